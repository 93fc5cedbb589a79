/* scan and reduce as nodes: calls of the operator of src/fuse/scan_operator.c, whose step is a text. */
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/table.h"
#include "formula_object.h"

/* A choice between numbers that f32 has. */
static bool fits_f32(const tni_graph *g, int32_t node) {
    const tni_gnode *n = &g->nodes[node];
    if (n->op == TNI_P_CONST) return n->value == (double)(float)n->value;
    if (n->op == TNI_P_WHERE) return fits_f32(g, n->arg[1]) && fits_f32(g, n->arg[2]);
    return n->op == TNI_P_EXPAND && fits_f32(g, n->arg[0]);
}

int32_t tni_scan_typed(tni_graph *g, int32_t node) {
    if (node < 0) return node;
    const int type = g->nodes[node].type;
    if (type == TNI_TY_WEAK_FLOAT) return tni_node3(g, TNI_P_CAST, fits_f32(g, node) ? TN_F32 : TN_F64, node, -1, -1);
    return type == TNI_TY_WEAK_INT || type == TN_BOOL ? tni_node3(g, TNI_P_CAST, TN_I64, node, -1, -1) : node;
}

static bool add_tensors(tni_coarse *made, const tni_scan_call *call, int32_t nodes[static TNI_NODE_ARGS]) {
    for (int32_t k = 0; k < call->n; k++) {
        nodes[made->n_args] = call->values[k];
        made->to[made->n_args++] = (int8_t)k;
        if (call->values[k] < 0) return false;
    }
    if (call->start < 0) return call->n > 0;
    nodes[made->n_args] = call->start;
    made->to[made->n_args++] = TNI_SCAN_START;
    return true;
}

int32_t tni_scan_node(tni_graph *g, const tni_scanning *how, const tni_scan_call *call) {
    tni_coarse made = {.op = how->make(), .output = call->output, .scans = true, .along = (int8_t)call->along};
    int32_t nodes[TNI_NODE_ARGS], node = -1;
    tni_text attrs = {0};
    tni_text_add(&attrs, "step='%s' names='%s' axis=%d reverse=%s first=", call->step, call->names, (int)call->axis,
                 call->reverse ? "true" : "false");
    tni_text_double(&attrs, call->first);
    if (!made.op || attrs.failed) {
        g->status = TN_NO_MEMORY;
    } else if (add_tensors(&made, call, nodes)) {
        const tni_gnode whole = g->nodes[call->values[0]];
        tni_extent extent = whole.extent;
        if (call->output == TNI_SCAN_LAST) extent.full &= ~((uint64_t)1 << call->along);
        made.attrs = attrs.data;
        node = tni_coarse_node(g, tni_add_coarse(g, &made), nodes, whole.type, extent);
    }
    tni_free(attrs.data);
    return node;
}

tn_status tni_scan_of(const tni_graph *g, int32_t node, tni_scan_call *made) {
    const tni_coarse *call = &g->calls[g->nodes[node].ref];
    const tni_contract *c = call->op->contract;
    tn_attr attrs[TNI_MAX_ARGS] = {{0}};
    *made = (tni_scan_call){.start = -1, .output = call->output, .along = call->along};
    for (int i = 0; i < c->n_attrs; i++) attrs[i].name = c->attrs[i].name;
    TN_TRY(tni_attrs_parse(c, call->attrs, attrs, made->memory, &made->n_memory));
    made->step = attrs[TNI_SCAN_STEP].value.s;
    made->names = attrs[TNI_SCAN_NAMES].value.s;
    made->axis = (int32_t)attrs[TNI_SCAN_AXIS].value.i;
    made->reverse = attrs[TNI_SCAN_REVERSE].value.b;
    made->first = attrs[TNI_SCAN_FIRST].value.f;
    for (int32_t k = 0; k < call->n_args; k++) {
        if (call->to[k] == TNI_SCAN_START) {
            made->start = g->nodes[node].arg[k];
        } else {
            made->values[made->n++] = g->nodes[node].arg[k];
        }
    }
    return TN_OK;
}

void tni_scan_free(tni_scan_call *call) {
    for (int32_t i = 0; i < call->n_memory; i++) tni_free(call->memory[i]);
    call->n_memory = 0;
}

bool tni_scan_next_name(const char **names, char *name) {
    const char *begin = *names + strspn(*names, " ");
    const size_t length = strcspn(begin, " ");
    if (length == 0 || length > TNI_MAX_NAME) return false;
    memcpy(name, begin, length);
    name[length] = 0;
    *names = begin + length;
    return true;
}

tn_status tni_scan_step(const tni_scanning *how, const char *step, const char *names, const char *types,
                        tni_fuse **made) {
    char name[TNI_MAX_NAME + 1];
    tni_text text = {0};
    tni_text_add(&text, types[0] ? "step<T: %s>(s: T[*r]" : "step%s(s: T[*r]", types);
    while (tni_scan_next_name(&names, name)) {
        if (strcmp(name, "-") != 0) tni_text_add(&text, ", %s: T[*r]", name);
    }
    tni_text_add(&text, ") -> step_result: T[*r] : %s", step);
    const tn_status status = text.failed ? TN_NO_MEMORY : how->parse(text.data, made);
    tni_free(text.data);
    return status;
}
