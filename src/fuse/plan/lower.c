/* The lowered graph: what is several operations in the formula and can be one. It is found here once, for every
 * backend; whether it is worth it in a pass, each backend decides. */
#include <math.h>

#include "planner.h"

/* Takes nothing away, or only adds dimensions: the same values. */
int32_t tni_resolve(const tni_binding *b, int32_t node) {
    for (;;) {
        const tni_gnode *n = &b->specialized.graph.nodes[node];
        bool reduces = tni_is_reduction(n->op) || n->op == TNI_P_SUM_TO;
        bool same = n->op == TNI_P_EXPAND || (reduces && b->mask[n->arg[0]] == b->mask[node]);
        if (!same) return node;
        node = n->arg[0];
    }
}

static const tni_gnode *node_at(const tni_binding *b, int32_t node) {
    return &b->specialized.graph.nodes[node];
}

static int lane_of(const tni_binding *b, int32_t node) {
    return tni_lane_of(&b->specialized.graph, node_at(b, node)->type);
}

/* Argument k, past what only changes its shape. */
static int32_t argument(const tni_binding *b, int32_t node, int k) {
    return tni_resolve(b, node_at(b, node)->arg[k]);
}

static bool is_op(const tni_binding *b, int32_t node, int op) {
    return node >= 0 && node_at(b, node)->op == op;
}

static bool is_number(const tni_binding *b, int32_t node, double value) {
    const tni_gnode *n = node_at(b, node);
    return n->op == TNI_P_CONST && n->ref < 0 && n->value == value;
}

/* The argument of `op` of two where the other one is this number; -1: it is not so. */
static int32_t beside_number(const tni_binding *b, int32_t node, int op, double value) {
    if (!is_op(b, node, op)) return -1;
    if (is_number(b, argument(b, node, 0), value)) return argument(b, node, 1);
    return is_number(b, argument(b, node, 1), value) ? argument(b, node, 0) : -1;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static tni_form find_half_erf(const tni_binding *b, int32_t node) {
    int32_t half = beside_number(b, node, TNI_P_ADD, 0.5), erf = beside_number(b, half, TNI_P_MUL, 0.5);
    if (!is_op(b, erf, TNI_P_ERF)) return (tni_form){0};
    return (tni_form){TNI_P_HALF_ERF, 2, {half, erf}, {argument(b, erf, 0), -1}};
}

static tni_form find_one_tanh(const tni_binding *b, int32_t node) {
    int32_t tanh = beside_number(b, node, TNI_P_ADD, 1);
    if (!is_op(b, tanh, TNI_P_TANH)) return (tni_form){0};
    return (tni_form){TNI_P_ONE_TANH, 1, {tanh, -1}, {argument(b, tanh, 0), -1}};
}

static tni_form find_tanh_softplus(const tni_binding *b, int32_t node) {
    int32_t softplus = is_op(b, node, TNI_P_TANH) ? argument(b, node, 0) : -1;
    if (!is_op(b, softplus, TNI_P_SOFTPLUS)) return (tni_form){0};
    return (tni_form){TNI_P_TANH_SOFTPLUS, 1, {softplus, -1}, {argument(b, softplus, 0), -1}};
}

/* The gate is argument k. */
static tni_form find_times_sigmoid(const tni_binding *b, int32_t node, int k) {
    int32_t gate = is_op(b, node, TNI_P_MUL) ? argument(b, node, k) : -1;
    if (!is_op(b, gate, TNI_P_SIGMOID) || lane_of(b, gate) != lane_of(b, node)) return (tni_form){0};
    return (tni_form){TNI_P_TIMES_SIGMOID, 1, {gate, -1}, {argument(b, node, 1 - k), argument(b, gate, 0)}};
}

static void add_form(tni_lowered *lowered, tni_form form) {
    if (form.n_inside) lowered->forms[lowered->forms[0].n_inside != 0] = form;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

int32_t tni_unless_infinite(const tni_binding *b, int32_t node) {
    if (!is_op(b, node, TNI_P_WHERE)) return -1;
    int32_t test = node_at(b, node)->arg[0], most = argument(b, node, 2);
    if (!is_op(b, test, TNI_P_EQ)) return -1;
    int32_t abs = argument(b, test, 0);
    const tni_gnode *inf = node_at(b, argument(b, test, 1));
    bool is = is_op(b, abs, TNI_P_ABS) && argument(b, abs, 0) == most && inf->op == TNI_P_CONST && isinf(inf->value);
    return is ? most : -1;
}

/* sum(exp(x - max(x))): the maximum. */
static int32_t find_most(const tni_binding *b, int32_t node, bool *guarded) {
    int32_t exp = is_op(b, node, TNI_P_SUM) ? argument(b, node, 0) : -1;
    int32_t less = is_op(b, exp, TNI_P_EXP) ? argument(b, exp, 0) : -1;
    if (!is_op(b, less, TNI_P_SUB)) return -1;
    int32_t x = argument(b, less, 0), most = argument(b, less, 1), inner = tni_unless_infinite(b, most);
    *guarded = inner >= 0 && is_number(b, node_at(b, most)->arg[1], 0);
    if (*guarded) most = inner;
    if (!is_op(b, most, TNI_P_RMAX) || argument(b, most, 0) != x) return -1;
    bool alike = b->mask[most] == b->mask[node] && lane_of(b, node) == lane_of(b, x) &&
                 lane_of(b, most) == lane_of(b, x);
    return alike && lane_of(b, x) >= TNI_LANE_F32 ? most : -1;
}

static int32_t find_product(const tni_binding *b, int32_t node) {
    const tni_gnode *n = node_at(b, node);
    if (n->op != TNI_P_SUM && n->op != TNI_P_SUM_TO) return -1;
    int32_t product = argument(b, node, 0);
    bool real = lane_of(b, node) >= TNI_LANE_F32 && lane_of(b, product) == lane_of(b, node);
    return real && is_op(b, product, TNI_P_MUL) ? product : -1;
}

tn_status tni_lower(tni_binding *b) {
    const int32_t n = b->specialized.graph.n;
    b->lowered = tni_arena_alloc(b->arena, ((size_t)n + 1) * sizeof *b->lowered);
    if (!b->lowered) return TN_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        tni_lowered *lowered = &b->lowered[i];
        *lowered = (tni_lowered){.product = find_product(b, i)};
        lowered->most = find_most(b, i, &lowered->guarded);
        if (lane_of(b, i) < TNI_LANE_F32) continue;
        add_form(lowered, find_half_erf(b, i));
        add_form(lowered, find_one_tanh(b, i));
        add_form(lowered, find_tanh_softplus(b, i));
        for (int k = 0; k < 2; k++) add_form(lowered, find_times_sigmoid(b, i, k));
    }
    return TN_OK;
}
