/* A fused formula between calls, as text: its arguments are inputs of the whole formula and tensors that steps before
 * it hand on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/fuse.h>

#include "core/contract/parts.h"
#include "fuse/grad/gradient.h"
#include "fuse/lang/language.h"
#include "split.h"

bool tni_is_there(const tni_splitter *s, int32_t node, int32_t level) {
    const int op = s->g->nodes[node].op;
    return op == TNI_P_INPUT || op == TNI_P_CALL || (s->tensor[node] >= 0 && s->level[node] < level);
}

static void separate(tni_text *text) {
    if (text->length) tni_text_add(text, ", ");
}

/* A name for what is handed on, which the contract has not. */
static void name_tensor(const tni_splitter *s, int32_t tensor, char name[static TNI_MAX_NAME + 1]) {
    const tni_contract *c = s->f->contract;
    for (int more = 0; more < 8; more++) {
        snprintf(name, TNI_MAX_NAME + 1, "step%.*s%d", more, "________", (int)tensor);
        if (tni_input_named(c, name) < 0 && tni_output_named(c, name) < 0 && tni_attr_named(c, name) < 0) return;
    }
}

static tn_status no_rows(void) {
    return tn_fail(TN_BAD_CONTRACT,
                   "formula: a reduction along rows stands between operators; a contract in front that names "
                   "dimensions, as x: T[n, c], is needed");
}

/* By position: the packs that arguments of this part have, those of optional ones where no other has them. */
static void print_packs(const tni_fused_step *x, tni_text *text, uint64_t has) {
    tni_text packs = {0};
    uint64_t known = x->bound;
    int32_t n = 0;
    for (int k = 0; k < x->n_packs; k++) {
        if (x->packs[k].has & ~has || !(x->packs[k].has & ~x->bound)) continue;
        tni_text_add(&packs, "%s*t%d", n++ ? ", " : "", (int)x->packs[k].tensor);
        known |= x->packs[k].has;
    }
    const uint64_t inputs = has & (x->bound | (x->maybe & ~known));
    for (int k = 0; k < TNI_MAX_ARGS; k++) {
        if (inputs >> k & 1) tni_text_add(&packs, "%s*s%d", n++ ? ", " : "", k);
    }
    tni_text_add(text, n > 1 ? "[broadcast(%s)]" : "[%s]", packs.data ? packs.data : "");
    text->failed |= packs.failed;
    tni_free(packs.data);
}

/* A dimension of the formula. The second one of a name, "n (2)", is known by the n before it. */
static tn_status print_dim(const tni_axes *axes, const int32_t *items, int32_t k, tni_text *text) {
    const char *key = axes->items[items[k]].key, *mark = strstr(key, " (");
    const size_t length = mark ? (size_t)(mark - key) : strlen(key);
    int before = 0;
    for (int32_t i = 0; i < k; i++) {
        const char *other = axes->items[items[i]].key;
        before += strncmp(other, key, length) == 0 && (!other[length] || other[length] == ' ');
    }
    if (mark && before != strtol(mark + 2, NULL, 10) - 1) {
        return tn_fail(TN_UNSUPPORTED,
                       "formula: an operator is given a value that has the second dimension called %.*s without the "
                       "first; give it another name in the contract",
                       (int)length, key);
    }
    tni_text_add(text, "%.*s", (int)length, key);
    return TN_OK;
}

static tn_status print_shape(const tni_fused_step *x, tni_text *text, tni_extent e) {
    const tni_axes *axes = &x->s->f->axes;
    const char *before = "";
    if (e.row) return no_rows();
    if (axes->numpy) {
        print_packs(x, text, e.full);
        return TN_OK;
    }
    int32_t items[TN_MAX_RANK];
    const int32_t n = tni_items_in_order(axes, e.full, items);
    tni_text_add(text, "[");
    for (int32_t k = 0; k < n; k++, before = ", ") {
        tni_text_add(text, "%s", before);
        if (items[k] < axes->n_own) {
            TN_TRY(print_dim(axes, items, k, text));
        } else {
            tni_size_print_plain(text, x->s->f->contract, &axes->items[items[k]].size);
        }
    }
    tni_text_add(text, "]");
    return TN_OK;
}

/* What is handed on in the type that its value has. */
static tn_status print_type(tni_fused_step *x, tni_text *text, int type, bool given) {
    const tni_contract *c = x->s->f->contract;
    if (type == TNI_TY_WEAK_INT) type = TN_I64;
    if (type == TNI_TY_WEAK_FLOAT) type = TN_F32;
    if (type < TNI_TY_VAR) {
        tni_text_add(text, "%s", tn_type_name((tn_type)type));
    } else if (type < TNI_TY_ACC) {
        tni_text_add(text, "%s", type % 16 < c->n_types ? c->types[type % 16].name : "T");
    } else if (type < TNI_TY_WEAK_INT && !given) {
        tni_text_add(text, "acc(%s)", type % 16 < c->n_types ? c->types[type % 16].name : "T");
    } else if (given) { /* a variable of its own: nothing else may say what the formula's is */
        tni_text_add(text, "Own%d", ++x->n_types);
        separate(&x->types);
        tni_text_add(&x->types, "Own%d: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 bool", x->n_types);
    } else {
        return tn_fail(TN_BAD_CONTRACT,
                       "formula: the type of what an operator is given cannot be told from the formula; "
                       "a cast such as f32(…) says it");
    }
    return TN_OK;
}

static void mark_values(tni_fused_step *x) {
    const tni_splitter *s = x->s;
    for (int32_t k = 0; k < x->n_results; k++) x->value[x->results[k]] = true;
    for (int32_t k = 0; k < s->f->n_outputs; k++) x->value[s->f->outputs[k].node] |= x->output[k];
    for (int32_t i = s->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &s->g->nodes[i];
        if (!x->value[i] || tni_is_there(s, i, x->level)) continue;
        for (int k = 0; k < TNI_NODE_ARGS && n->arg[k] >= 0; k++) x->value[n->arg[k]] = true;
    }
    for (int32_t i = 0; i < s->g->n; i++) {
        const int op = s->g->nodes[i].op;
        const bool of_input = op == TNI_P_INPUT || op == TNI_P_RAND || op == TNI_P_HAS;
        if (x->value[i] && of_input) x->input[s->g->nodes[i].ref] = true;
    }
}

/* The one pack of an input. */
static tn_status print_pack(tni_fused_step *x, tni_extent e) {
    const char *before = "[";
    for (int k = 0; k < TNI_MAX_ARGS; k++) {
        if (!(e.full >> k & 1)) continue;
        tni_text_add(&x->in, "%s*s%d", before, k);
        before = ", ";
    }
    tni_text_add(&x->in, e.full ? "]" : "[]");
    return e.row ? no_rows() : TN_OK;
}

/* An input of the formula, by position in the shape of a pack for itself. */
static tn_status print_input(tni_fused_step *x, int32_t i) {
    const tni_fuse *f = x->s->f;
    const tni_param *param = &f->contract->inputs[i];
    separate(&x->in);
    tni_text_add(&x->in, "%s: ", param->name);
    tni_print_type(&x->in, f->contract, &param->type);
    if (f->axes.numpy && !tni_is_seed(f->contract, i)) {
        tni_extent extent = {(uint64_t)1 << i, 0};
        if (f->signed_by_user) TN_TRY(tni_param_extent(f, param, &extent));
        *(param->optional ? &x->maybe : &x->bound) |= extent.full;
        TN_TRY(print_pack(x, extent));
    } else {
        tni_print_shape(&x->in, f->contract, &param->shape);
    }
    if (param->optional) tni_text_add(&x->in, "?");
    x->place[i] = x->step->n_in;
    x->step->in[x->step->n_in++] = i;
    return TN_OK;
}

static tn_status check_count(const tni_fused_step *x) {
    if (x->step->n_in < TNI_MAX_ARGS && x->step->n_out < TNI_MAX_ARGS) return TN_OK;
    return tn_fail(TN_BAD_CONTRACT, "formula: between two operators it takes or makes more than %d tensors",
                   TNI_MAX_ARGS);
}

static tn_status print_handed(tni_fused_step *x, tni_text *text, int32_t node, bool given) {
    char name[TNI_MAX_NAME + 1];
    name_tensor(x->s, x->s->tensor[node], name);
    separate(text);
    tni_text_add(text, "%s: ", name);
    TN_TRY(print_type(x, text, x->s->g->nodes[node].type, given));
    const tni_extent extent = x->s->g->nodes[node].extent;
    if (given && x->s->f->axes.numpy && extent.full & ~x->bound) {
        x->packs[x->n_packs].tensor = x->s->tensor[node];
        x->packs[x->n_packs++].has = extent.full;
        tni_text_add(text, "[*t%d]", (int)x->s->tensor[node]);
        return TN_OK;
    }
    return print_shape(x, text, extent);
}

static tn_status print_output(tni_fused_step *x, int32_t k) {
    const tni_fuse *f = x->s->f;
    const tni_param *param = &f->contract->outputs[k];
    separate(&x->out);
    tni_text_add(&x->out, "%s: ", param->name);
    tni_print_type(&x->out, f->contract, &param->type);
    if (f->axes.numpy) {
        tni_extent extent = x->s->g->nodes[f->outputs[k].node].extent;
        if (f->signed_by_user) TN_TRY(tni_param_extent(f, param, &extent));
        TN_TRY(print_shape(x, &x->out, extent));
    } else {
        tni_print_shape(&x->out, f->contract, &param->shape);
    }
    if (param->want != TNI_ALWAYS) tni_text_add(&x->out, "?");
    x->step->out[x->step->n_out++] = f->contract->n_inputs + k;
    return TN_OK;
}

static void print_attrs(tni_fused_step *x) {
    const tni_contract *c = x->s->f->contract;
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].implied) continue;
        separate(&x->in);
        tni_print_attr_of(&x->in, &c->attrs[i]);
        x->step->own[x->step->n_own++] = i;
    }
}

static void print_declared(tni_fused_step *x) {
    const tni_contract *c = x->s->f->contract;
    for (int v = 0; v < c->n_types; v++) {
        if (!c->types[v].declared) continue;
        separate(&x->types);
        tni_text_add(&x->types, "%s: %s", c->types[v].name, c->types[v].set);
    }
}

/* name<types>(inputs, attributes) -> outputs */
static tn_status print_arguments(tni_fused_step *x, tni_text *text) {
    const tni_splitter *s = x->s;
    for (int32_t i = 0; i < s->f->contract->n_inputs; i++) {
        TN_TRY(check_count(x));
        if (x->input[i]) TN_TRY(print_input(x, i));
    }
    for (int32_t i = 0; i < s->g->n; i++) {
        if (!x->value[i] || !tni_is_there(s, i, x->level) || s->g->nodes[i].op == TNI_P_INPUT) continue;
        TN_TRY(check_count(x));
        TN_TRY(print_handed(x, &x->in, i, true));
        x->step->in[x->step->n_in++] = s->tensor[i];
    }
    print_attrs(x);
    for (int32_t k = 0; k < s->f->n_outputs; k++) {
        if (x->output[k]) TN_TRY(print_output(x, k));
    }
    for (int32_t k = 0; k < x->n_results; k++) {
        TN_TRY(check_count(x));
        TN_TRY(print_handed(x, &x->out, x->results[k], false));
        x->step->out[x->step->n_out++] = s->tensor[x->results[k]];
    }
    print_declared(x);
    text->failed |= x->types.failed || x->in.failed || x->out.failed;
    if (text->failed) return TN_NO_MEMORY;
    tni_text_add(text, "%s_step%s%s%s(%s) -> %s", s->f->contract->name, x->types.length ? "<" : "",
                 x->types.length ? x->types.data : "", x->types.length ? ">" : "", x->in.length ? x->in.data : "",
                 x->out.data);
    return text->failed ? TN_NO_MEMORY : TN_OK;
}

/* Does the contract have the dimensions that a size is made of? */
static bool has_size(const tni_fused_step *x, const tni_contract *c, const tni_size *size) {
    for (int32_t i = 0; i < size->n; i++) {
        bool known = size->ref[i] >= TNI_SIZE_ATTR;
        for (int d = 0; d < c->n_dims && !known; d++) {
            known = strcmp(c->dims[d], x->s->f->contract->dims[size->ref[i]]) == 0;
        }
        if (!known) return false;
    }
    return true;
}

/* And those of all parts that it takes? */
static bool has_sizes(const tni_fused_step *x, const tni_contract *c) {
    const tni_splitter *s = x->s;
    for (int32_t i = 0; i < s->g->n; i++) {
        const tni_gnode *n = &s->g->nodes[i];
        if (!x->value[i] || !tni_is_part(n->op) || tni_is_there(s, i, x->level)) continue;
        const tni_window *window = &s->g->windows[n->kind];
        if (!has_size(x, c, &window->begin)) return false;
        for (int side = 0; side < 2; side++) {
            const int32_t item = side ? window->to : window->from;
            if (item >= 0 && !has_size(x, c, &s->f->axes.items[item].size)) return false;
        }
    }
    return true;
}

static void begin_again(tni_fused_step *x) {
    x->types.length = x->in.length = x->out.length = 0;
    x->n_types = x->n_packs = 0;
    x->bound = x->maybe = 0;
    x->step->n_in = x->step->n_out = x->step->n_own = 0;
}

/* What it is given may not tell every dimension: inputs of the formula that do are taken as well. */
static tn_status print_signature(tni_fused_step *x, tni_text *text) {
    const tni_contract *whole = x->s->f->contract;
    for (int32_t i = 0;; i++) {
        tni_contract *c = NULL;
        text->length = 0;
        begin_again(x);
        TN_TRY(print_arguments(x, text));
        const tn_status status = tni_contract_parse(text->data, &c);
        const bool whole_one = status == TN_OK && has_sizes(x, c);
        tni_contract_free(c);
        if (whole_one) return TN_OK;
        while (i < whole->n_inputs && (x->input[i] || whole->inputs[i].optional || tni_is_seed(whole, i))) i++;
        if (i >= whole->n_inputs) return status;
        x->input[i] = true;
    }
}

/* The nodes that it computes, over its own arguments. */
static tn_status copy_nodes(const tni_fused_step *x, const tni_contract *c, int32_t *map, tni_graph *to) {
    const tni_splitter *s = x->s;
    for (int32_t i = 0; i < s->g->n; i++) {
        tni_gnode node = s->g->nodes[i];
        if (!x->value[i]) continue;
        if (tni_is_there(s, i, x->level) && node.op != TNI_P_INPUT) {
            char name[TNI_MAX_NAME + 1];
            name_tensor(s, s->tensor[i], name);
            node.op = TNI_P_INPUT;
            node.ref = tni_input_named(c, name);
            for (int k = 0; k < TNI_NODE_ARGS; k++) node.arg[k] = -1;
        } else if (node.op == TNI_P_INPUT || node.op == TNI_P_RAND || node.op == TNI_P_HAS) {
            node.ref = x->place[node.ref];
        } else if (node.op == TNI_P_ATTR || node.op == TNI_P_ATTR_IS || node.op == TNI_P_HAS_ATTR) {
            node.ref = tni_attr_named(c, s->f->contract->attrs[node.ref].name);
        }
        for (int k = 0; k < TNI_NODE_ARGS && node.arg[k] >= 0; k++) node.arg[k] = map[node.arg[k]];
        map[i] = tni_node_as_is(to, &node);
    }
    return to->status;
}

static tn_status print_statements(const tni_fused_step *x, tni_text *text) {
    const tni_splitter *s = x->s;
    tni_contract *c;
    tni_graph g;
    tni_fuse_output outputs[TNI_MAX_ARGS];
    int32_t n = 0;
    TN_TRY(tni_contract_parse(text->data, &c));
    int32_t *map = tni_calloc((size_t)s->g->n + 1, sizeof *map);
    tni_graph_init(&g, s->g->fast);
    memcpy(g.items, s->g->items, sizeof g.items);
    g.n_items = s->g->n_items;
    g.windows = s->g->windows;
    g.tail_pack = s->g->tail_pack;
    /* The arguments of this part may have another dimension last. */
    const tni_axes *axes = &s->f->axes;
    g.names_tail = !axes->numpy && axes->n_items > 0 && !axes->items[axes->n_items - 1].pack;
    tn_status status = map ? copy_nodes(x, c, map, &g) : TN_NO_MEMORY;
    for (int32_t k = 0; status == TN_OK && k < s->f->n_outputs; k++) {
        if (x->output[k]) outputs[n++] = (tni_fuse_output){map[s->f->outputs[k].node], -1};
    }
    for (int32_t k = 0; status == TN_OK && k < x->n_results; k++)
        outputs[n++] = (tni_fuse_output){map[x->results[k]], -1};
    if (status == TN_OK) {
        tni_text_add(text, " : ");
        tni_print_statements(text, &g, c, outputs, n, TNI_NESTED);
        if (text->failed) status = TN_NO_MEMORY;
    }
    tni_graph_clear(&g);
    tni_free(map);
    tni_contract_free(c);
    return status;
}

tn_status tni_make_fused(tni_fused_step *x) {
    tni_text text = {0};
    mark_values(x);
    tn_status status = print_signature(x, &text);
    if (status == TN_OK) status = print_statements(x, &text);
    const tn_fuse_options options = {.fast = x->s->f->fast};
    if (status == TN_OK) status = tn_fuse(text.data, &options, &x->step->op);
    x->step->made = status == TN_OK;
    tni_free(text.data);
    tni_free(x->types.data);
    tni_free(x->in.data);
    tni_free(x->out.data);
    return status;
}
