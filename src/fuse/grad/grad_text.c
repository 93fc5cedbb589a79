/* The gradient as a formula: what it takes (inputs, outputs, attributes, what arrives), its contract, its
 * statements. */
#include <stdio.h>
#include <string.h>

#include "core/contract/parts.h"
#include "fuse/lang/language.h"
#include "gradient.h"

enum { LEAVES = 3 * TNI_MAX_ARGS, MOST_SAVED = 6 };

typedef struct writer {
    const tni_gradient *made;
    const tni_fuse *f;
    uint32_t saved;             /* outputs that are taken, not computed again */
    bool value[TNI_FUSE_NODES]; /* its value is needed */
    bool taken[LEAVES];         /* leaves that are arguments of the gradient, by ref */
    bool attr[TNI_MAX_ARGS];
    int32_t stand_in[TNI_FUSE_NODES]; /* for a node whose shape alone is needed: a leaf of that shape */
    int32_t map[TNI_FUSE_NODES];
    int32_t place[LEAVES]; /* which input of the gradient a leaf is */
    bool names_tail;       /* its arguments do not say that the last dimension is the last */
} writer;

static const tni_gnode *node_at(const writer *w, int32_t i) {
    return &w->made->g.nodes[i];
}

/* ---- what is needed ---------------------------------------------------------------------------------------------- */

/* The output whose value this is, and which is taken; -1: none. */
static int32_t saved_output(const writer *w, int32_t node) {
    for (int32_t k = 0; k < w->f->contract->n_outputs && k < 32; k++) {
        if (w->saved >> k & 1 && w->f->outputs[k].node == node) return k;
    }
    return -1;
}

static bool shape_only(const writer *w, const tni_gnode *node, int k) {
    return tni_takes_shape(&w->made->g, node, k);
}

static void mark_values(writer *w) {
    memset(w->value, 0, sizeof w->value);
    for (int32_t i = 0; i < w->f->contract->n_inputs; i++) {
        if (w->made->result[i] >= 0) w->value[w->made->result[i]] = true;
    }
    for (int32_t i = w->made->g.n - 1; i >= 0; i--) {
        if (!w->value[i] || saved_output(w, i) >= 0) continue;
        for (int k = 0; k < TNI_NODE_ARGS && node_at(w, i)->arg[k] >= 0; k++) {
            if (!shape_only(w, node_at(w, i), k)) w->value[node_at(w, i)->arg[k]] = true;
        }
    }
}

/* ---- taking outputs or computing them again ---------------------------------------------------------------------- */

/* An input that may have fewer elements than the result. */
static bool is_broadcast(const writer *w, const tni_gnode *node) {
    const tni_contract *c = w->f->contract;
    if (node->op != TNI_P_INPUT || node->ref >= c->n_inputs) return false;
    return tni_broadcasts(c, &c->inputs[node->ref].shape);
}

/* Bytes that move, in tensors of elements; a little for the operations, so that of two ways the shorter is taken. */
static double cost(const writer *w) {
    double made = 0;
    for (int32_t i = 0; i < w->made->g.n; i++) {
        const tni_gnode *node = node_at(w, i);
        if (!w->value[i]) continue;
        bool memory = node->op == TNI_P_INPUT || saved_output(w, i) >= 0;
        double size = tni_is_scalar(node->extent) ? 0 : tni_has_tail(&w->made->g, node->extent) ? 1 : 1.0 / 64;
        if (memory) {
            made += is_broadcast(w, node) ? size / 2 : size;
        } else if (tni_is_reduction(node->op)) {
            made += size > 0 ? 0.02 : 1; /* one over everything reads it all once more */
        } else {
            made += tni_prims[node->op].typing == TNI_TYPED_FLOAT ? 2e-3 : 2e-4;
        }
    }
    return made;
}

/* dx, where the gradient makes a dx itself. */
static bool is_made(const writer *w, const char *name) {
    int32_t input = name[0] == 'd' ? tni_input_named(w->f->contract, name + 1) : -1;
    return input >= 0 && w->made->result[input] >= 0;
}

static bool may_save(const writer *w, int32_t k) {
    const tni_contract *c = w->f->contract;
    if (is_made(w, c->outputs[k].name)) return false;
    const tni_gnode *node = &w->f->graph.nodes[w->f->outputs[k].node];
    bool plain = c->outputs[k].want == TNI_ALWAYS && c->outputs[k].shape.cond < 0;
    bool compared = node->op == TNI_P_RMAX || node->op == TNI_P_RMIN; /* rounded, it is no longer one of the elements */
    if (compared && w->f->graph.nodes[node->arg[0]].op != TNI_P_INPUT) return false;
    if (tni_param_type(&c->outputs[k].type) != node->type) return false; /* rounded to something else */
    return plain && tni_prims[node->op].arity > 0 && tni_class_of(&w->made->g, node->type) == TNI_CLASS_FLOAT &&
           w->made->arriving[k] >= 0 && tni_same_shape(node_at(w, w->made->arriving[k]), node);
}

static void choose_saved(writer *w) {
    uint32_t candidates = 0, best = 0;
    int32_t n = 0;
    for (int32_t k = 0; k < w->f->contract->n_outputs && k < 32 && n < MOST_SAVED; k++) {
        if (!may_save(w, k)) continue;
        candidates |= 1u << k;
        n++;
    }
    double least = -1;
    for (uint32_t subset = candidates;; subset = (subset - 1) & candidates) {
        w->saved = subset;
        mark_values(w);
        double now = cost(w);
        if (least < 0 || now <= least) {
            least = now;
            best = subset;
        }
        if (subset == 0) break;
    }
    w->saved = best;
    mark_values(w);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static int32_t leaf_ref(const writer *w, int32_t i) {
    int32_t k = saved_output(w, i);
    return k >= 0 ? tni_ref_of_saved(w->f, k) : node_at(w, i)->op == TNI_P_INPUT ? node_at(w, i)->ref : -1;
}

/* Has a leaf a shape that can be asked for? What may be absent has one for itself alone: an optional input, and what
 * arrives at an optional output. */
static bool is_there(const writer *w, int32_t leaf, int32_t asks) {
    const tni_contract *c = w->f->contract;
    int32_t ref = leaf_ref(w, leaf);
    if (ref < 0 || (leaf != asks && node_at(w, leaf)->absent)) return false;
    return ref >= c->n_inputs ? w->taken[ref] : !tni_is_seed(c, ref);
}

/* A leaf with the dimensions of `node`: one that is taken anyway, or any. */
static int32_t leaf_like(const writer *w, int32_t node) {
    int32_t found = -1;
    for (int32_t i = 0; i < w->made->g.n; i++) {
        int32_t ref = leaf_ref(w, i);
        if (!is_there(w, i, node) || !tni_same_shape(node_at(w, i), node_at(w, node))) continue;
        if (w->taken[ref]) return i;
        if (found < 0) found = i;
    }
    return found;
}

static void take_leaf(writer *w, int32_t i) {
    const tni_gnode *node = node_at(w, i);
    int32_t ref = leaf_ref(w, i);
    if (ref >= 0) {
        w->taken[ref] = true;
        return;
    }
    if (node->op == TNI_P_RAND || node->op == TNI_P_HAS) w->taken[node->ref] = true;
    if (node->op == TNI_P_ATTR || node->op == TNI_P_ATTR_IS || node->op == TNI_P_HAS_ATTR) w->attr[node->ref] = true;
}

/* A rule says what it is the gradient of by taking what arrives there, if only to give 0. What may be absent costs
 * nothing; else something that is needed does. */
static void take_arriving(writer *w) {
    const tni_contract *c = w->f->contract;
    bool any = false;
    for (int32_t k = 0; k < c->n_outputs; k++) {
        bool *taken = &w->taken[tni_ref_of_d(w->f, k)];
        *taken |= w->made->arriving[k] >= 0 && c->outputs[k].want != TNI_ALWAYS;
        any |= *taken;
    }
    for (int32_t k = 0; k < c->n_outputs && !any; k++) w->taken[tni_ref_of_d(w->f, k)] = w->made->arriving[k] >= 0;
    for (int32_t k = 0; k < c->n_outputs; k++) {
        const tni_type *type = &c->outputs[k].type;
        if (w->taken[tni_ref_of_d(w->f, k)] && type->kind == TNI_TYPE_ATTR) w->attr[type->ref] = true;
    }
}

/* ---- attributes that say of dimensions --------------------------------------------------------------------------- */

static void take_attrs_of_node(writer *w, int32_t node) {
    const tni_node *n = &w->f->contract->nodes[node];
    if (n->kind == TNI_ATTR) w->attr[n->ref] = true;
    if (n->left >= 0) take_attrs_of_node(w, n->left);
    if (n->right >= 0) take_attrs_of_node(w, n->right);
}

/* reduce(*s, axes, keepdim), groups */
static void take_attrs_of_shape(writer *w, const tni_shape *shape) {
    for (int k = 0; k < shape->count; k++) {
        const tni_item *item = &w->f->contract->items[shape->first + k];
        if (item->kind == TNI_ITEM_EXPR) take_attrs_of_node(w, item->node);
        if (item->kind != TNI_ITEM_REDUCE) continue;
        w->attr[item->attr] = true;
        if (item->keep_attr >= 0) w->attr[item->keep_attr] = true;
    }
}

/* n - k, of a part that is needed */
static void take_attrs_of_size(writer *w, const tni_size *size) {
    for (int32_t i = 0; i < size->n; i++) {
        if (size->ref[i] >= TNI_SIZE_ATTR) w->attr[size->ref[i] - TNI_SIZE_ATTR] = true;
    }
}

static void take_attrs_of_parts(writer *w) {
    const tni_axes *axes = &w->f->axes;
    for (int32_t i = 0; i < w->made->g.n; i++) {
        if (!w->value[i] || !tni_is_part(node_at(w, i)->op)) continue;
        const tni_window *window = &w->made->g.windows[node_at(w, i)->kind];
        take_attrs_of_size(w, &window->begin);
        if (window->from >= 0) take_attrs_of_size(w, &axes->items[window->from].size);
        if (window->to >= 0) take_attrs_of_size(w, &axes->items[window->to].size);
    }
}

/* Does the gradient's contract have every dimension that the sizes of its parts are made of? */
static bool knows_size(const writer *w, const tni_contract *c, const tni_size *size) {
    for (int32_t i = 0; i < size->n; i++) {
        bool known = size->ref[i] >= TNI_SIZE_ATTR;
        for (int d = 0; d < c->n_dims && !known; d++) {
            known = strcmp(c->dims[d], w->f->contract->dims[size->ref[i]]) == 0;
        }
        if (!known) return false;
    }
    return true;
}

static bool knows_parts(const writer *w, const tni_contract *c) {
    const tni_axes *axes = &w->f->axes;
    for (int32_t i = 0; i < w->made->g.n; i++) {
        if (!w->value[i] || !tni_is_part(node_at(w, i)->op)) continue;
        const tni_window *window = &w->made->g.windows[node_at(w, i)->kind];
        if (!knows_size(w, c, &window->begin)) return false;
        if (window->from >= 0 && !knows_size(w, c, &axes->items[window->from].size)) return false;
        if (window->to >= 0 && !knows_size(w, c, &axes->items[window->to].size)) return false;
    }
    return true;
}

/* Those that divide what a sum goes along, and those in the shapes of what the gradient takes. */
static void take_attrs_of_dims(writer *w) {
    const tni_contract *c = w->f->contract;
    const tni_axes *axes = &w->f->axes;
    for (int32_t i = 0; i < w->made->g.n; i++) {
        const uint32_t items = w->value[i] && tni_n_measured(node_at(w, i)) ? tni_items_over(node_at(w, i)->kind) : 0;
        for (int k = 0; k < axes->n_items && items >> k; k++) {
            if (items >> k & 1 && axes->items[k].part) w->attr[axes->items[k].attr] = true;
        }
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (w->taken[i]) take_attrs_of_shape(w, &c->inputs[i].shape);
    }
    for (int32_t k = 0; k < c->n_outputs; k++) {
        const bool taken = w->taken[tni_ref_of_d(w->f, k)] || w->taken[tni_ref_of_saved(w->f, k)];
        if (taken) take_attrs_of_shape(w, &c->outputs[k].shape);
    }
}

/* Where no leaf has a shape that is needed, the node itself is computed: its value counts for nothing, but it is
 * there. */
static void take_arguments(writer *w) {
    for (int32_t i = 0; i < w->made->g.n; i++) {
        w->stand_in[i] = i;
        if (w->value[i]) take_leaf(w, i);
    }
    for (int32_t i = w->made->g.n - 1; i >= 0; i--) {
        if (!w->value[i] || saved_output(w, i) >= 0) continue;
        for (int k = 0; k < TNI_NODE_ARGS && node_at(w, i)->arg[k] >= 0; k++) {
            int32_t arg = node_at(w, i)->arg[k];
            int32_t leaf = shape_only(w, node_at(w, i), k) ? leaf_like(w, arg) : -1;
            w->stand_in[arg] = leaf >= 0 && !w->value[arg] ? leaf : arg;
            if (!w->value[w->stand_in[arg]]) {
                w->value[w->stand_in[arg]] = true;
                take_leaf(w, w->stand_in[arg]);
            }
        }
    }
    take_arriving(w);
    take_attrs_of_dims(w);
    take_attrs_of_parts(w);
}

/* ---- the contract ------------------------------------------------------------------------------------------------ */

static bool is_shared(const writer *w, const tni_param *param) {
    return w->f->axes.numpy && tni_broadcasts(w->f->contract, &param->shape);
}

/* broadcast(*a, rows(*b)) has one dimension fewer where *a has none: those who have them say so. */
static bool has_columns(const writer *w, const tni_param *param) {
    const tni_item *item = &w->f->contract->items[param->shape.first];
    return item->n_more && item->more[item->n_more - 1].rows;
}

/* An input that broadcast has its own shape now; so has the d of a result that several made up. */
static void print_param(tni_text *text, const writer *w, const char *before, const tni_param *param) {
    tni_text_add(text, "%s%s: ", before, param->name);
    tni_print_type(text, w->f->contract, &param->type);
    if (tni_is_shape_function(w->f->contract, &param->shape) && tni_is_row(w->f, param, NULL)) {
        tni_text_add(text, "[rows(*s_%s)]", param->name);
    } else if (is_shared(w, param) ||
               (tni_is_shape_function(w->f->contract, &param->shape) && !has_columns(w, param))) {
        tni_text_add(text, param->shape.count == 2 ? "[*s_%s, n_%s]" : "[*s_%s]", param->name, param->name);
    } else {
        tni_print_shape(text, w->f->contract, &param->shape);
    }
}

void tni_print_attr_of(tni_text *text, const tni_attr *attr) {
    static const char *const names[] = {
        [TNI_A_INT] = "int",     [TNI_A_FLOAT] = "float", [TNI_A_BOOL] = "bool", [TNI_A_ACTIVATION] = "activation",
        [TNI_A_DTYPE] = "dtype", [TNI_A_CHOICE] = "",     [TNI_A_AXIS] = "axis", [TNI_A_AXES] = "axes"};
    tni_text_add(text, "%s: %s", attr->name, names[attr->kind]);
    for (int i = 0; i < attr->n_choices; i++) tni_text_add(text, "%s'%s'", i ? "|" : "", attr->choices[i]);
    if (attr->optional) tni_text_add(text, "?");
    if (attr->has_default) tni_text_add(text, " = ");
    if (attr->has_default) tni_print_value(text, &attr->value);
}

static bool uses_type(const tni_param *param, int32_t variable) {
    return param->type.kind == TNI_TYPE_VAR && param->type.ref == variable;
}

static void print_type_variables(tni_text *text, const writer *w) {
    const tni_contract *c = w->f->contract;
    bool any = false;
    for (int v = 0; v < c->n_types; v++) {
        bool used = false, smooth = false;
        for (int i = 0; i < c->n_inputs; i++) {
            used |= (w->taken[i] || w->made->result[i] >= 0) && uses_type(&c->inputs[i], v);
            smooth |= w->made->result[i] >= 0 && uses_type(&c->inputs[i], v);
        }
        for (int k = 0; k < c->n_outputs; k++) {
            bool taken = w->taken[tni_ref_of_d(w->f, k)] || w->taken[tni_ref_of_saved(w->f, k)];
            used |= taken && uses_type(&c->outputs[k], v);
        }
        if (!c->types[v].declared || !used || (smooth && c->types[v].mask & ~TN_FLOATS)) continue; /* any float */
        tni_text_add(text, "%s%s: %s", any ? ", " : "<", c->types[v].name, c->types[v].set);
        any = true;
    }
    if (any) tni_text_add(text, ">");
}

static void separate(tni_text *text, bool *first) {
    tni_text_add(text, *first ? "" : ", ");
    *first = false;
}

/* `names`: only those, for the rule. */
static void print_arguments(tni_text *text, writer *w, bool names) {
    const tni_contract *c = w->f->contract;
    bool first = true;
    int32_t n = 0;
    for (int ref = 0; ref < c->n_inputs + 2 * c->n_outputs; ref++) {
        /* inputs, then outputs that are taken, then what arrives */
        int at = ref < c->n_inputs ? ref : ref < c->n_inputs + c->n_outputs ? ref + c->n_outputs : ref - c->n_outputs;
        if (!w->taken[at]) continue;
        const tni_param *param = at < c->n_inputs ? &c->inputs[at] : &c->outputs[(at - c->n_inputs) % c->n_outputs];
        const char *before = at >= c->n_inputs && at < c->n_inputs + c->n_outputs ? "d" : "";
        separate(text, &first);
        w->place[at] = n++;
        if (names) {
            tni_text_add(text, "%s%s", before, param->name);
        } else {
            print_param(text, w, before, param);
            bool optional = at < c->n_inputs ? param->optional : param->want != TNI_ALWAYS;
            if (optional) tni_text_add(text, "?");
        }
    }
    for (int i = 0; i < c->n_attrs && !names; i++) {
        if (!w->attr[i]) continue;
        separate(text, &first);
        tni_print_attr_of(text, &c->attrs[i]);
    }
}

static bool is_argument(const writer *w, const char *name) {
    const tni_contract *c = w->f->contract;
    int32_t input = tni_input_named(c, name), saved = tni_output_named(c, name);
    int32_t arriving = name[0] == 'd' ? tni_output_named(c, name + 1) : -1;
    return (input >= 0 && w->taken[input]) || (saved >= 0 && w->taken[tni_ref_of_saved(w->f, saved)]) ||
           (arriving >= 0 && w->taken[tni_ref_of_d(w->f, arriving)]) || tni_attr_named(c, name) >= 0;
}

/* Of the gradient of an input: dx, or d_x where an argument of the gradient is called dx, or ddx, as what arrives at dx
 * will be called. */
static const char *result_prefix(const writer *w, int32_t input) {
    static const char *const prefixes[] = {"d", "d_", "d__", "d___", "d____"};
    enum { LAST = sizeof prefixes / sizeof *prefixes - 1 };
    int k = 0;
    for (; k < LAST; k++) {
        char name[TNI_MAX_NAME + 8];
        snprintf(name, sizeof name, "d%s%s", prefixes[k], w->f->contract->inputs[input].name);
        if (!is_argument(w, name + 1) && !is_argument(w, name)) break;
    }
    return prefixes[k];
}

/* `where c % groups == 0` makes of c what it is in the formula: groups, and what they have. */
static void print_divisions(tni_text *text, const writer *w) {
    const tni_axes *axes = &w->f->axes;
    const char *before = " where ";
    for (int k = 0; k < axes->n_items; k++) {
        if (axes->items[k].part != TNI_PART_GROUPS || !w->attr[axes->items[k].attr]) continue;
        tni_text_add(text, "%s%s %% %s == 0", before, axes->items[k].whole, axes->items[k].key);
        before = " and ";
    }
}

static void print_contract(tni_text *text, writer *w) {
    const tni_contract *c = w->f->contract;
    bool first = true;
    tni_text_add(text, "%s_grad", c->name);
    print_type_variables(text, w);
    tni_text_add(text, "(");
    print_arguments(text, w, false);
    tni_text_add(text, ") -> ");
    for (int i = 0; i < c->n_inputs; i++) {
        if (w->made->result[i] < 0) continue;
        separate(text, &first);
        print_param(text, w, result_prefix(w, i), &c->inputs[i]);
        tni_text_add(text, "?");
    }
    print_divisions(text, w);
}

/* Is a pack or a dimension, as `item` is one, in an input that is always there? */
static bool is_told(const tni_contract *c, const tni_item *item) {
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_shape *shape = &c->inputs[i].shape;
        for (int k = 0; k < shape->count && !c->inputs[i].optional; k++) {
            const tni_item *other = &c->items[shape->first + k];
            if (other->kind != item->kind) continue;
            if (item->kind == TNI_ITEM_PACK
                    ? other->ref == item->ref
                    : c->nodes[other->node].kind == TNI_DIM && c->nodes[other->node].ref == c->nodes[item->node].ref)
                return true;
        }
    }
    return false;
}

static bool all_told(const tni_contract *c) {
    for (int i = 0; i < c->n_outputs; i++) {
        const tni_shape *shape = &c->outputs[i].shape;
        for (int k = 0; k < shape->count; k++) {
            const tni_item *item = &c->items[shape->first + k];
            bool named = item->kind == TNI_ITEM_PACK ||
                         (item->kind == TNI_ITEM_EXPR && c->nodes[item->node].kind == TNI_DIM);
            if (named && !is_told(c, item)) return false;
        }
    }
    return true;
}

static bool has_row_reductions(const writer *w) {
    for (int32_t i = 0; i < w->made->g.n; i++) {
        const tni_gnode *node = node_at(w, i);
        bool reaches = tni_reaches(node->op) || node->op == TNI_P_INDEX;
        if (w->value[i] && reaches && node->kind != TNI_OVER_ALL) return true;
    }
    return false;
}

/* Along the last of a pack's dimensions. */
static bool has_rows(const writer *w) {
    for (int32_t i = 0; i < w->made->g.n; i++) {
        const bool reduces = tni_is_reduction(node_at(w, i)->op) || node_at(w, i)->op == TNI_P_COUNT;
        if (w->value[i] && reduces && node_at(w, i)->kind == TNI_OVER_ROW) return true;
    }
    return false;
}

/* Along a dimension that is told by its place, as a size such as 2 * n has no name. */
static bool has_places(const writer *w) {
    for (int32_t i = 0; i < w->made->g.n; i++) {
        const uint32_t items = w->value[i] && tni_n_measured(node_at(w, i)) ? tni_items_over(node_at(w, i)->kind) : 0;
        for (int k = 0; items >> k; k++) {
            const char *key = w->made->g.items[k];
            if (key && strncmp(key, "size(", 5) == 0) continue;
            if (items >> k & 1 && key && strpbrk(key, "(+-%") != NULL) return true;
            if (items >> k & 1 && key && key[0] != '*' && strchr(key, '*')) return true;
        }
    }
    return false;
}

static bool draws(const writer *w) {
    for (int32_t i = 0; i < w->made->g.n; i++) {
        if (w->value[i] && node_at(w, i)->op == TNI_P_RAND) return true;
    }
    return false;
}

/* What is drawn at random goes by the order of all dimensions. */
static bool same_order(const tni_axes *a, const tni_axes *b) {
    bool same = a->n_items == b->n_items;
    for (int i = 0; i < a->n_items && same; i++) same = strcmp(a->items[i].key, b->items[i].key) == 0;
    return same;
}

/* By name, the arguments say which dimension is the last: they must be here too where it has no name, as in a pack. */
static tn_status compare_axes(writer *w, const tni_fuse *other, bool *same) {
    const tni_axes *own = &w->f->axes, *its = &other->axes;
    const tni_contract *c = other->contract;
    const int32_t last = own->n_items - 1, its_last = its->n_items - 1;
    tni_extent extent;
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tni_param *param = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        if (i < c->n_inputs && tni_is_seed(c, i)) continue;
        TN_TRY(tni_param_extent(other, param, &extent));
    }
    *same = (!draws(w) || its->numpy || same_order(own, its)) && knows_parts(w, c);
    w->names_tail = false;
    if (its->numpy || last < 0 || !has_row_reductions(w)) return TN_OK;
    const bool ends = its_last >= 0 && strcmp(its->items[its_last].key, own->items[last].key) == 0 &&
                      !its->items[its_last].loose;
    if (has_places(w)) *same &= same_order(own, its);
    if (own->items[last].pack) {
        *same &= ends || !has_rows(w);
    } else {
        w->names_tail = !ends;
    }
    return TN_OK;
}

static tn_status has_same_axes(writer *w, tni_contract *made, bool *same) {
    *same = w->f->axes.numpy;
    if (*same) return TN_OK;
    tni_fuse other = {.contract = made, .arena = tni_arena_new(), .said_attrs = UINT64_MAX}; /* it has no other */
    if (!other.arena) return TN_NO_MEMORY;
    tn_status status = tni_make_axes(&other, &other.axes);
    if (status == TN_OK) status = compare_axes(w, &other, same);
    tni_arena_free(other.arena);
    return status == TN_BAD_CONTRACT ? TN_OK : status;
}

/* Dimensions and types must come from somewhere, and from what is always there: where the needed arguments do not tell,
 * inputs that do are added. */
static tn_status make_contract(writer *w, tni_text *text, tni_contract **made) {
    const tni_contract *c = w->f->contract;
    for (int i = 0;; i++) {
        text->length = 0;
        print_contract(text, w);
        if (text->failed) return TN_NO_MEMORY;
        tn_status status = tni_contract_parse(text->data, made);
        if (status != TN_OK && status != TN_BAD_CONTRACT) return status;
        bool same = true;
        if (status == TN_OK && all_told(*made)) {
            TN_TRY(has_same_axes(w, *made, &same));
            if (same) return TN_OK;
        }
        while (i < c->n_inputs && (w->taken[i] || tni_is_seed(c, i) || (status == TN_OK && c->inputs[i].optional))) i++;
        if (i >= c->n_inputs && !same) {
            return tn_fail(TN_UNSUPPORTED, "%s: no argument of its gradient would have all dimensions in their order",
                           c->name);
        }
        if (i >= c->n_inputs) return status;
        if (status == TN_OK) tni_contract_free(*made);
        *made = NULL;
        w->taken[i] = true;
    }
}

/* ---- the statements ---------------------------------------------------------------------------------------------- */

static bool is_leaf(const writer *w, int32_t i) {
    return tni_prims[node_at(w, i)->op].arity == 0 || saved_output(w, i) >= 0;
}

static int32_t copy_leaf(writer *w, tni_graph *g, int32_t i, const tni_contract *contract) {
    tni_gnode node = *node_at(w, i);
    int32_t ref = leaf_ref(w, i);
    if (ref >= 0) {
        node = (tni_gnode){.op = TNI_P_INPUT,
                           .type = node.type,
                           .arg = TNI_NO_ARGS,
                           .ref = w->place[ref],
                           .extent = node.extent,
                           .sure = node.extent,
                           .absent = node.absent};
    } else if (node.op == TNI_P_RAND || node.op == TNI_P_HAS) {
        node.ref = w->place[node.ref];
    } else if (node.op == TNI_P_ATTR || node.op == TNI_P_ATTR_IS || node.op == TNI_P_HAS_ATTR) {
        node.ref = tni_attr_named(contract, w->f->contract->attrs[node.ref].name);
    }
    return tni_node_as_is(g, &node);
}

/* Leaves first: one that stands in for a shape may come behind the node that asks for it. */
static tn_status copy_nodes(writer *w, tni_graph *g, const tni_contract *contract) {
    for (int32_t i = 0; i < w->made->g.n && g->status == TN_OK; i++) {
        if (w->value[i] && is_leaf(w, i)) w->map[i] = copy_leaf(w, g, i, contract);
    }
    for (int32_t i = 0; i < w->made->g.n && g->status == TN_OK; i++) {
        if (!w->value[i] || is_leaf(w, i)) continue;
        tni_gnode node = *node_at(w, i);
        for (int k = 0; k < TNI_NODE_ARGS && node.arg[k] >= 0; k++) {
            node.arg[k] = w->map[shape_only(w, &node, k) ? w->stand_in[node.arg[k]] : node.arg[k]];
        }
        w->map[i] = tni_node_as_is(g, &node);
    }
    return g->status;
}

static tn_status print_gradient(writer *w, tni_text *text, const tni_contract *contract) {
    tni_fuse_output outputs[TNI_MAX_ARGS];
    tni_graph g;
    int32_t n = 0;
    tni_graph_init(&g, false);
    memcpy(g.items, w->made->g.items, sizeof g.items);
    g.names_tail = w->names_tail;
    g.calls = w->made->g.calls; /* as long as it is printed */
    g.n_calls = w->made->g.n_calls;
    g.windows = w->made->g.windows;
    g.n_items = w->made->g.n_items;
    g.tail_pack = w->made->g.tail_pack;
    tn_status status = copy_nodes(w, &g, contract);
    for (int i = 0; i < w->f->contract->n_inputs && status == TN_OK; i++) {
        if (w->made->result[i] >= 0) outputs[n++] = (tni_fuse_output){w->map[w->made->result[i]], -1};
    }
    if (status == TN_OK) {
        tni_text_add(text, " : ");
        tni_print_statements(text, &g, contract, outputs, n, TNI_NESTED);
    }
    g.calls = NULL;
    g.n_calls = 0;
    tni_graph_clear(&g);
    return status == TN_OK && text->failed ? TN_NO_MEMORY : status;
}

static void print_rule(writer *w, tni_text *rule) {
    const tni_contract *c = w->f->contract;
    bool first = true;
    for (int i = 0; i < c->n_inputs; i++) {
        if (w->made->result[i] < 0) continue;
        separate(rule, &first);
        tni_text_add(rule, "%s", c->inputs[i].name);
    }
    tni_text_add(rule, ": %s_grad(", c->name);
    print_arguments(rule, w, true);
    tni_text_add(rule, ")");
}

/* In a rule, d<output> must not be another name of the formula. */
static tn_status check_names(const writer *w) {
    const tni_contract *c = w->f->contract;
    bool any = false;
    for (int k = 0; k < c->n_outputs; k++) {
        char name[TNI_MAX_NAME + 2];
        snprintf(name, sizeof name, "d%s", c->outputs[k].name);
        bool clash = tni_input_named(c, name) >= 0 || tni_output_named(c, name) >= 0 || tni_attr_named(c, name) >= 0;
        if (!clash && strlen(name) <= TNI_MAX_NAME) continue;
        return tn_fail(TN_BAD_CONTRACT, "%s: what arrives at %s is called %s, which is a name of the formula already",
                       c->name, c->outputs[k].name, name);
    }
    for (int i = 0; i < c->n_inputs; i++) any |= w->made->result[i] >= 0;
    if (any) return TN_OK;
    return tn_fail(TN_UNSUPPORTED, "%s: no output depends on an input in a way that has a derivative", c->name);
}

tn_status tni_gradient_text(const tni_gradient *made, tni_text *text, tni_text *rule) {
    writer *w = tni_calloc(1, sizeof *w);
    if (!w) return TN_NO_MEMORY;
    w->made = made;
    w->f = made->f;
    tni_contract *contract = NULL;
    tn_status status = check_names(w);
    if (status == TN_OK) {
        choose_saved(w);
        take_arguments(w);
        status = make_contract(w, text, &contract);
    }
    if (status == TN_OK) status = print_gradient(w, text, contract);
    if (status == TN_OK) print_rule(w, rule);
    if (status == TN_OK && rule->failed) status = TN_NO_MEMORY;
    tni_contract_free(contract);
    tni_free(w);
    return status;
}
