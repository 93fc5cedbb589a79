/* What one form of call computes, as JSON: for frameworks that can do it with operations of their own. */
#include <string.h>

#include <tenon/fuse.h>

#include "core/contract/parts.h"
#include "operator.h"

/* A call of which types and ranks are known, and no more. */
typedef struct form {
    const tni_fuse *f;
    int32_t counts[TNI_MAX_ARGS];
    tni_operand operands[TNI_MAX_ARGS];
    tn_attr attrs[TNI_MAX_ARGS];
    void *memory[TNI_MAX_ARGS]; /* of attributes */
    int32_t n_memory;
    tni_bound bound;
    tn_spec specs[TNI_MAX_ARGS];
    int64_t unknown[TN_MAX_RANK]; /* sizes; no dimension is left out then, */
    int64_t places[TN_MAX_RANK];  /* and strides tell which dimension it was */
    tn_view views[2 * TNI_MAX_ARGS];
    tn_slot in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    tni_domain domain;
    tni_specialized specialized;
} form;

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static tn_status bind(form *m, const tn_type *types, const int32_t *ranks, const char *attributes) {
    const tni_contract *c = m->f->contract;
    int32_t n = 0;
    for (int d = 0; d < TN_MAX_RANK; d++) {
        m->unknown[d] = -1;
        m->places[d] = d + 1;
    }
    for (int i = 0; i < c->n_inputs; i++) {
        m->counts[i] = types[i] != TN_NO_TYPE;
        if (ranks[i] < 0) return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %d", c->name, c->inputs[i].name, ranks[i]);
        if (m->counts[i]) m->operands[n++] = (tni_operand){types[i], ranks[i], m->unknown};
    }
    for (int i = 0; i < c->n_attrs; i++) m->attrs[i].name = c->attrs[i].name;
    TN_TRY(tni_attrs_parse(c, attributes, m->attrs, m->memory, &m->n_memory));
    tni_inputs inputs = {m->operands, m->counts};
    return tni_bind(c, &inputs, m->attrs, c->n_attrs, &m->bound, m->specs);
}

static tn_slot view_of(form *m, int32_t i, tn_type type, int32_t rank) {
    m->views[i] = (tn_view){.shape = m->unknown, .strides = m->places, .ndim = rank, .type = type};
    return (tn_slot){&m->views[i], 1};
}

static tn_status place(form *m) {
    const tni_contract *c = m->f->contract;
    for (int i = 0, n = 0; i < c->n_inputs; i++) {
        if (!m->counts[i]) continue;
        m->in[i] = view_of(m, i, m->operands[n].type, m->operands[n].ndim);
        n++;
    }
    for (int i = 0; i < c->n_outputs; i++) {
        const tn_spec *spec = &m->specs[i];
        if (!spec->present) continue;
        if (spec->ndim < 0)
            return tn_fail(TN_UNSUPPORTED, "%s: the rank of %s is unknown", c->name, c->outputs[i].name);
        m->out[i] = view_of(m, TNI_MAX_ARGS + i, spec->type, spec->ndim);
    }
    tn_call call = {.name = c->name, .in = m->in, .out = m->out, .attrs = m->bound.attrs};
    return tni_make_domain(m->f, &call, &m->domain);
}

/* Kernels see an input that broadcasts (~) in the shape of all. Where that makes no difference it need not be said. */
static tn_status check(const form *m) {
    const tni_contract *c = m->f->contract;
    bool broadcasts = false, sums_to = false;
    if (m->f->steps) return tn_fail(TN_UNSUPPORTED, "%s: calls operators of the table", c->name);
    if (m->f->windows) return tn_fail(TN_UNSUPPORTED, "%s: takes parts of values", c->name);
    if (c->has_lists) return tn_fail(TN_UNSUPPORTED, "%s: takes lists of tensors", c->name);
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].inplace) return tn_fail(TN_UNSUPPORTED, "%s: updates %s in place", c->name, c->inputs[i].name);
        broadcasts |= tni_broadcasts(c, &c->inputs[i].shape);
    }
    for (int32_t i = 0; i < m->f->graph.n; i++) sums_to |= m->f->graph.nodes[i].op == TNI_P_SUM_TO;
    if (!broadcasts || (m->f->axes.numpy && !sums_to)) return TN_OK;
    return tn_fail(TN_UNSUPPORTED, "%s: has an input that broadcasts (~) beside dimensions by name", c->name);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static const char *lane_name(const form *m, int type) {
    return tn_type_name(tni_lane_type(tni_lane_of(&m->specialized.graph, type)));
}

/* Which dimension of the tensor each of the domain's is; -1: none. The parts of one that is divided are both it. */
static void add_dims(tni_text *text, const tni_domain *domain, uint32_t mask, const int64_t *strides) {
    tni_text_add(text, "[");
    for (int d = 0; d < domain->n_dims; d++) {
        tni_text_add(text, "%s%d", d ? ", " : "", mask >> d & 1 ? (int)strides[d] - 1 : -1);
    }
    tni_text_add(text, "]");
}

/* What its arguments are computed in. */
static const char *lane_of_arguments(const form *m, const tni_gnode *node) {
    if (tni_prims[node->op].typing != TNI_TYPED_TEST) return lane_name(m, node->type);
    return tn_type_name(tni_lane_type(tni_lane_of_test(&m->specialized.graph, node)));
}

static void add_name(tni_text *text, const tni_gnode *node) {
    const char *name = tni_prims[node->op].name + strspn(tni_prims[node->op].name, " ");
    int length = (int)strcspn(name, " ");
    switch (node->op) {
    case TNI_P_CONST: tni_text_add(text, "\"op\": \"number\""); break;
    case TNI_P_INPUT: tni_text_add(text, "\"op\": \"input\""); break;
    case TNI_P_CAST: tni_text_add(text, "\"op\": \"cast\", \"to\": \"%s\"", tn_type_name((tn_type)node->kind)); break;
    default: tni_text_add(text, "\"op\": \"%.*s\"", length, name); break;
    }
}

static void add_reach(tni_text *text, const form *m, const tni_gnode *node) {
    if (!tni_is_over_items(node->kind)) {
        tni_text_add(text, ", \"over\": \"%s\"", node->kind == TNI_OVER_ROW ? "row" : "all");
        return;
    }
    const uint32_t gone = tni_reduced_mask(&m->domain, node->kind, ~0u);
    const char *before = ", \"over\": [";
    for (int d = 0; d < m->domain.n_dims; d++) {
        if (!(gone >> d & 1)) continue;
        tni_text_add(text, "%s%d", before, d);
        before = ", ";
    }
    tni_text_add(text, gone ? "]" : ", \"over\": []");
}

/* Dimensions that it has. */
static void add_mask(tni_text *text, const form *m, const tni_gnode *node) {
    const uint32_t mask = tni_node_mask(&m->domain, node, NULL);
    const char *before = "";
    tni_text_add(text, ", \"dims\": [");
    for (int d = 0; d < m->domain.n_dims; d++) {
        if (!(mask >> d & 1)) continue;
        tni_text_add(text, "%s%d", before, d);
        before = ", ";
    }
    tni_text_add(text, "]");
}

static void add_node(tni_text *text, const form *m, const tni_gnode *node) {
    bool reaches = tni_reaches(node->op) || node->op == TNI_P_INDEX;
    tni_text_add(text, "{");
    add_name(text, node);
    tni_text_add(text, ", \"type\": \"%s\"", lane_name(m, node->type));
    if (node->op == TNI_P_CONST) {
        tni_text_add(text, ", \"value\": ");
        tni_json_value(text, &(tn_value){.kind = TN_ATTR_FLOAT, .f = node->value});
    }
    if (node->op == TNI_P_INPUT) tni_text_add(text, ", \"input\": %d", (int)node->ref);
    if (tni_prims[node->op].torch) tni_text_add(text, ", \"torch\": \"%s\"", tni_prims[node->op].torch);
    if (tni_prims[node->op].arity) tni_text_add(text, ", \"in\": \"%s\"", lane_of_arguments(m, node));
    if (reaches) add_reach(text, m, node);
    if (node->op == TNI_P_INDEX) add_mask(text, m, node);
    tni_text_add(text, ", \"args\": [");
    for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++)
        tni_text_add(text, "%s%d", k ? ", " : "", (int)node->arg[k]);
    tni_text_add(text, "]}");
}

static char *print(const form *m) {
    const tni_domain *d = &m->domain;
    tni_text text = {0};
    tni_text_add(&text, "{\"inputs\": [");
    for (int i = 0; i < m->f->contract->n_inputs; i++) {
        tni_text_add(&text, i ? ", " : "");
        add_dims(&text, d, d->in[i].mask, d->in[i].strides);
    }
    tni_text_add(&text, "],\n\"sizes\": [");
    for (int k = 0; k < d->n_dims; k++) tni_text_add(&text, "%s%lld", k ? ", " : "", (long long)d->size[k]);
    tni_text_add(&text, "],\n\"nodes\": [");
    for (int32_t i = 0; i < m->specialized.graph.n; i++) {
        tni_text_add(&text, i ? ",\n" : "");
        add_node(&text, m, &m->specialized.graph.nodes[i]);
    }
    tni_text_add(&text, "],\n\"outputs\": [");
    for (int32_t i = 0; i < m->specialized.n_outputs; i++) {
        tni_text_add(&text, "%s{\"node\": %d, \"dims\": ", i ? ", " : "", (int)m->specialized.outputs[i]);
        add_dims(&text, d, d->out[i].mask, d->out[i].strides);
        tni_text_add(&text, "}");
    }
    tni_text_add(&text, "]}");
    if (!text.failed) return text.data;
    tni_free(text.data);
    return NULL;
}

char *tn_fuse_graph_json(const tn_function *op, const tn_type *types, const int32_t *ranks, const char *attributes) {
    char *text = NULL;
    if (!op || !types || !ranks) {
        tn_fail(TN_BAD_VALUE, "tn_fuse_graph_json: the %s NULL", !op ? "operator is" : "array of types or ranks is");
        return NULL;
    }
    form *m = tni_calloc(1, sizeof *m);
    if (!m) return NULL;
    tn_status status = tni_operator_formula(op, &m->f);
    if (status == TN_OK) status = check(m);
    if (status == TN_OK) status = bind(m, types, ranks, attributes ? attributes : "");
    if (status == TN_OK) status = place(m);
    if (status == TN_OK) status = tni_specialize_in(m->f, &m->domain, m->bound.attrs, &m->specialized);
    if (status == TN_OK) {
        text = print(m);
        tni_graph_clear(&m->specialized.graph);
    }
    for (int32_t i = 0; i < m->n_memory; i++) tni_free(m->memory[i]);
    tni_free(m);
    return text;
}
