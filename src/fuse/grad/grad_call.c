/* The gradient of a call of an operator: the operator's own rule, as further calls. */
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/table.h"
#include "gradient.h"

typedef struct passing {
    tni_graph *g;
    int32_t node, dy;
    const tni_coarse *call; /* of the node */
    const tni_contract *c;  /* of its operator */
    tn_attr values[TNI_MAX_ARGS];
    tni_coarse made;
    int32_t args[TNI_NODE_ARGS];
    tni_text attrs;
} passing;

static tn_status unsupported(const passing *p) {
    return tn_fail(TN_UNSUPPORTED, "formula: the gradient of %s takes more than a formula can give it", p->c->name);
}

static int32_t argument_of(const tni_coarse *call, int32_t to) {
    for (int k = 0; k < call->n_args; k++) {
        if (call->to[k] == to) return k;
    }
    return -1;
}

static tn_status add_argument(passing *p, int32_t to, int32_t node, int32_t axis) {
    if (p->made.n_args == TNI_NODE_ARGS) return unsupported(p);
    p->made.axis[p->made.n_args] = (int8_t)axis;
    p->made.to[p->made.n_args] = (int8_t)to;
    p->args[p->made.n_args++] = node;
    return TN_OK;
}

/* ---- what the called operator is given --------------------------------------------------------------------------- */

/* Another output of the same call, of the shape of the one that the formula takes. */
static tn_status other_output(passing *p, int32_t output, int32_t *node) {
    const tni_gnode own = p->g->nodes[p->node];
    tni_coarse call = *p->call;
    if (output == call.output) {
        *node = p->node;
        return TN_OK;
    }
    const tni_param *param = &p->c->outputs[output];
    if (param->type.kind != TNI_TYPE_FIXED ||
        !tni_prints_alike(p->c, &param->shape, &p->c->outputs[call.output].shape)) {
        return unsupported(p);
    }
    call.output = output;
    *node = tni_coarse_node(p->g, tni_add_coarse(p->g, &call), own.arg, tni_param_type(&param->type), own.extent);
    return *node < 0 ? p->g->status : TN_OK;
}

/* Does this call make the output? linear has a z only where it has an activation. */
static tn_status is_made(const passing *p, int32_t output, bool *made) {
    const int32_t cond = p->c->outputs[output].shape.cond;
    tni_result result = {.known = true, .value = true};
    *made = true;
    if (cond < 0) return TN_OK;
    tni_bound *bound = tni_calloc(1, sizeof *bound);
    if (!bound) return TN_NO_MEMORY;
    for (int i = 0; i < p->c->n_attrs; i++) {
        const tn_value *given = &p->values[i].value;
        bound->attrs[i] = given->kind == TN_ATTR_UNSET ? p->c->attrs[i].value : *given;
    }
    const tn_status status = tni_eval(p->c, bound, cond, &result);
    tni_free(bound);
    *made = !result.known || result.value;
    return status;
}

static tn_status give_tensor(passing *p, const tni_statement *rule, const tni_source *source) {
    const bool optional = rule->op->contract->inputs[source->param].optional;
    const int32_t k = source->kind == TNI_FROM_INPUT ? argument_of(p->call, source->ref) : -1;
    int32_t node = k >= 0 ? p->g->nodes[p->node].arg[k] : -1;
    if (source->kind == TNI_FROM_OUTPUT && optional) {
        bool made;
        TN_TRY(is_made(p, source->ref, &made));
        if (!made) return TN_OK;
    }
    if (source->kind == TNI_FROM_OUTPUT) TN_TRY(other_output(p, source->ref, &node));
    if (source->kind == TNI_FROM_DOUTPUT && source->ref == p->call->output) node = p->dy;
    if (node >= 0) return add_argument(p, source->param, node, 0);
    return optional ? TN_OK : unsupported(p);
}

static void give_value(passing *p, const tni_contract *called, int32_t attr, const tn_value *value) {
    if (value->kind == TN_ATTR_UNSET) return;
    tni_text_add(&p->attrs, "%s%s=", p->attrs.length ? " " : "", called->attrs[attr].name);
    tni_print_value(&p->attrs, value);
}

/* [*s, n, m] */
static bool only_names_behind(const passing *p, const tni_shape *shape) {
    for (int i = 1; i < shape->count; i++) {
        if (p->c->items[shape->first + i].kind != TNI_ITEM_EXPR) return false;
    }
    return p->c->items[shape->first].kind == TNI_ITEM_PACK;
}

/* Where a name of the contract stands in the shape of what the call is given, and which: *s as all of a shape or its
 * first sizes, n as one of it, from behind where a pack stands before it. */
static bool find_size(const passing *p, bool pack, int32_t ref, int32_t *arg, int32_t *axis) {
    for (int k = 0; k < p->call->n_args; k++) {
        if (p->call->to[k] < 0) continue;
        const tni_shape *shape = &p->c->inputs[p->call->to[k]].shape;
        bool behind = false;
        for (int i = 0; shape->cond < 0 && i < shape->count; i++) {
            const tni_item *item = &p->c->items[shape->first + i];
            const bool is_pack = item->kind != TNI_ITEM_EXPR;
            *arg = p->g->nodes[p->node].arg[k];
            *axis = pack ? TNI_ALL_SIZES - (shape->count - 1) : behind ? i - shape->count : i;
            if (pack && item->kind == TNI_ITEM_PACK && item->ref == ref && !item->broadcast &&
                only_names_behind(p, shape))
                return true;
            const tni_node *node = is_pack ? NULL : &p->c->nodes[item->node];
            if (!pack && node && node->kind == TNI_DIM && node->ref == ref) return true;
            behind |= is_pack;
        }
    }
    return false;
}

static tn_status give_attr(passing *p, const tni_statement *rule, const tni_source *source) {
    const tni_contract *called = rule->op->contract;
    int32_t node, axis;
    switch (source->kind) {
    case TNI_FROM_LITERAL: give_value(p, called, source->param, &source->literal); return TN_OK;
    case TNI_FROM_ATTR: {
        const int32_t k = argument_of(p->call, -1 - source->ref);
        if (k >= 0) return add_argument(p, -1 - source->param, p->g->nodes[p->node].arg[k], p->call->axis[k]);
        const tn_value *given = &p->values[source->ref].value;
        if (given->kind == TN_ATTR_UNSET) given = &p->c->attrs[source->ref].value;
        give_value(p, called, source->param, given);
        return TN_OK;
    }
    case TNI_FROM_DIM:
    case TNI_FROM_PACK:
        if (!find_size(p, source->kind == TNI_FROM_PACK, source->ref, &node, &axis)) return unsupported(p);
        return add_argument(p, -1 - source->param, node, axis);
    default: return unsupported(p);
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static tn_status call_rule(passing *p, const tni_statement *rule, int32_t result, int32_t like, int32_t *made) {
    void *memory[TNI_MAX_ARGS];
    int32_t n_memory = 0;
    p->made = (tni_coarse){.op = rule->op, .output = result};
    for (int i = 0; i < p->c->n_attrs; i++) p->values[i].name = p->c->attrs[i].name;
    tn_status status = tni_attrs_parse(p->c, p->call->attrs, p->values, memory, &n_memory);
    for (int pass = 0; pass < 2; pass++) { /* tensors first */
        for (int32_t i = 0; i < rule->n_sources && status == TN_OK; i++) {
            const tni_source *source = &rule->sources[i];
            if (source->to_attr != (pass == 1)) continue;
            status = pass ? give_attr(p, rule, source) : give_tensor(p, rule, source);
        }
    }
    if (status == TN_OK && p->attrs.failed) status = TN_NO_MEMORY;
    if (status == TN_OK) {
        const tni_gnode of = p->g->nodes[like];
        p->made.attrs = p->attrs.data ? p->attrs.data : "";
        *made = tni_coarse_node(p->g, tni_add_coarse(p->g, &p->made), p->args, of.type, of.extent);
        status = p->g->status;
    }
    for (int32_t i = 0; i < n_memory; i++) tni_free(memory[i]);
    tni_free(p->attrs.data);
    return status;
}

tn_status tni_call_gradient(tni_graph *g, int32_t node, int32_t k, int32_t dy, int32_t *made) {
    const tni_coarse call = g->calls[g->nodes[node].ref]; /* more of them may be added */
    const tni_rule *rule;
    *made = -1;
    passing p = {.g = g, .node = node, .dy = dy, .call = &call, .c = call.op->contract};
    TN_TRY(tni_operator_rule(call.op, &rule));
    for (int32_t s = 0; rule && s < rule->n_statements; s++) {
        const tni_statement *statement = &rule->statements[s];
        for (int32_t r = 0; r < statement->n_results; r++) {
            if (statement->result_is_local || statement->results[r] != call.to[k]) continue;
            if (strcmp(statement->op->contract->name, "identity") == 0) {
                *made = dy;
                return TN_OK;
            }
            if (statement->op->index < 0) return unsupported(&p); /* a formula's, which has no name */
            return call_rule(&p, statement, r, g->nodes[node].arg[k], made);
        }
    }
    return tn_fail(TN_UNSUPPORTED, "formula: %s has no gradient of %s", p.c->name, p.c->inputs[call.to[k]].name);
}
