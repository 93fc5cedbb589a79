/* Folding and simplification. Unless `fast` is asked for, only what leaves every bit of the result alone, for NaN,
 * infinities and -0 too: x * 1 is x, but x + 0 turns -0 into 0, and x * 0 may be NaN. Powers with small whole exponents
 * become products, which are closer than any pow. */
#include <math.h>
#include <stdlib.h>

#include "graph.h"

enum { AS_IS = -2 };

double tni_round_to(int type, double value) {
    uint64_t memory[1] = {0};
    switch (type) {
    case TN_F16:
    case TN_BF16:
    case TN_F32:
    case TN_E4M3:
    case TN_E5M2: tn_set((tn_type)type, memory, 0, value); return tn_get((tn_type)type, memory, 0);
    case TN_BOOL: return value != 0;
    case TN_I8:
    case TN_I16:
    case TN_I32:
    case TN_I64:
    case TN_U8:
    case TN_U16:
    case TN_U32:
    case TNI_TY_WEAK_INT: return trunc(value) + 0.0; /* an integer has no -0 */
    default: return value;
    }
}

bool tni_int_range(int type, double *least, double *most) {
    const bool is_int = type < TN_TYPE_COUNT && (TN_BIT(type) & TN_INTS),
               has_sign = is_int && (TN_BIT(type) & TN_SIGNED);
    const int bits = is_int && tn_type_size((tn_type)type) < 8 ? 8 * (int)tn_type_size((tn_type)type) : 0;
    *most = ldexp(1, has_sign ? bits - 1 : bits) - 1;
    *least = has_sign ? -*most - 1 : 0;
    return bits != 0;
}

double tni_cast_to(int type, bool real, double value) {
    double least, most;
    bool narrow = tni_int_range(type, &least, &most);
    if (!narrow && (type != TN_I64 || !real)) return tni_round_to(type, value);
    if (!narrow) return isnan(value) ? 0 : fmin(fmax(tni_round_to(type, value), -0x1p63), 0x1p63);
    if (real) return isnan(value) ? 0 : fmin(fmax(tni_round_to(type, value), least), most);
    return value - (most - least + 1) * floor((value - least) / (most - least + 1));
}

static const tni_gnode *node_at(const tni_graph *g, int32_t i) {
    return &g->nodes[i];
}

static bool is_const(const tni_graph *g, int32_t i) {
    return i >= 0 && node_at(g, i)->op == TNI_P_CONST;
}

static bool is_value(const tni_graph *g, int32_t i, double value) {
    return is_const(g, i) && node_at(g, i)->value == value && signbit(node_at(g, i)->value) == signbit(value);
}

static bool is_op(const tni_graph *g, int32_t i, tni_prim op) {
    return node_at(g, i)->op == op;
}

static bool is_int(const tni_graph *g, int type) {
    return tni_class_of(g, type) == TNI_CLASS_INT;
}

/* `a` in the place of `node`, where it has the node's type; it keeps the node's shape. */
static int32_t instead(tni_graph *g, const tni_gnode *node, int32_t a) {
    if (a < 0) return a;
    if (node_at(g, a)->type != node->type) {
        if (!is_const(g, a) || node->type >= TNI_TY_VAR) return AS_IS;
        a = tni_const(g, node->type, node_at(g, a)->value);
    }
    for (int i = 0; i < 3 && node->arg[i] >= 0 && a >= 0; i++) {
        if (!tni_is_reduction(node->op) && node->op != TNI_P_SUM_TO) a = tni_node2(g, TNI_P_EXPAND, a, node->arg[i]);
    }
    return a;
}

static int32_t number_like(tni_graph *g, const tni_gnode *node, double value) {
    return instead(g, node, tni_const(g, TNI_TY_WEAK_FLOAT, value));
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

static int32_t fold(tni_graph *g, const tni_gnode *node) {
    const tni_prim_row *row = &tni_prims[node->op];
    double v[3] = {0};
    for (int i = 0; i < row->arity; i++) {
        if (!is_const(g, node->arg[i])) return AS_IS;
        v[i] = node_at(g, node->arg[i])->value;
    }
    bool real = tni_prims[node->op].arity && tni_class_of(g, node_at(g, node->arg[0])->type) == TNI_CLASS_FLOAT;
    double made = node->op == TNI_P_CAST ? tni_cast_to(node->kind, real, v[0])
                  : row->eval            ? row->eval(v[0], v[1], v[2])
                                         : NAN;
    if (!row->eval && node->op != TNI_P_CAST) return AS_IS;
    bool whole = is_int(g, node->type);
    if (node->type >= TNI_TY_VAR && node->type < TNI_TY_WEAK_INT) return AS_IS;
    if (whole && !(fabs(made) <= 0x1p53)) return AS_IS; /* no double is that integer */
    return tni_const(g, node->type, made);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

/* 0 in any shape, but not -0 */
static bool is_zero(const tni_graph *g, int32_t i) {
    while (is_op(g, i, TNI_P_EXPAND)) i = node_at(g, i)->arg[0];
    return is_value(g, i, 0);
}

/* Never -0: adding 0 to it changes nothing. Derivatives of choices by an attribute are long sums of 0. */
static bool has_no_minus_zero(const tni_graph *g, int32_t i) {
    while (is_op(g, i, TNI_P_EXPAND)) i = node_at(g, i)->arg[0];
    const tni_gnode *node = node_at(g, i);
    return is_zero(g, i) || (node->op == TNI_P_ADD && (is_zero(g, node->arg[0]) || is_zero(g, node->arg[1])));
}

static int32_t simplify_add(tni_graph *g, const tni_gnode *node) {
    int32_t a = node->arg[0], b = node->arg[1];
    if (is_zero(g, b) && has_no_minus_zero(g, a)) return instead(g, node, a);
    if (is_zero(g, a) && has_no_minus_zero(g, b)) return instead(g, node, b);
    bool zero_is_free = g->fast || is_int(g, node->type);
    if (is_value(g, b, -0.0) || (zero_is_free && is_value(g, b, 0))) return instead(g, node, a);
    if (is_value(g, a, -0.0) || (zero_is_free && is_value(g, a, 0))) return instead(g, node, b);
    if (is_op(g, b, TNI_P_NEG)) return tni_node2(g, TNI_P_SUB, a, node_at(g, b)->arg[0]);
    if (is_op(g, a, TNI_P_NEG)) return tni_node2(g, TNI_P_SUB, b, node_at(g, a)->arg[0]);
    return AS_IS;
}

static int32_t simplify_sub(tni_graph *g, const tni_gnode *node) {
    int32_t a = node->arg[0], b = node->arg[1];
    if (is_value(g, b, 0)) return instead(g, node, a);
    if (is_op(g, b, TNI_P_NEG)) return tni_node2(g, TNI_P_ADD, a, node_at(g, b)->arg[0]);
    if (g->fast && a == b) return number_like(g, node, 0);
    return AS_IS;
}

static int32_t simplify_mul(tni_graph *g, const tni_gnode *node) {
    int32_t a = node->arg[0], b = node->arg[1];
    for (int i = 0; i < 2; i++) {
        int32_t one = node->arg[i], other = node->arg[1 - i];
        if (is_value(g, one, 1)) return instead(g, node, other);
        if (is_value(g, one, -1) && node_at(g, other)->type == node->type) return tni_node1(g, TNI_P_NEG, other);
        if (g->fast && is_const(g, one) && node_at(g, one)->value == 0) return number_like(g, node, 0);
    }
    if (is_op(g, a, TNI_P_NEG) && is_op(g, b, TNI_P_NEG)) {
        return tni_node2(g, TNI_P_MUL, node_at(g, a)->arg[0], node_at(g, b)->arg[0]);
    }
    return AS_IS;
}

/* Division by a power of two is multiplication: the same bits. */
static int32_t simplify_div(tni_graph *g, const tni_gnode *node) {
    int32_t b = node->arg[1], exponent;
    if (!is_const(g, b)) return AS_IS;
    double value = node_at(g, b)->value;
    if (value == 1) return instead(g, node, node->arg[0]);
    bool exact = fabs(frexp(value, &exponent)) == 0.5 && abs(exponent) < 100;
    if (!exact && !(g->fast && isfinite(1 / value))) return AS_IS;
    return tni_node2(g, TNI_P_MUL, node->arg[0], tni_const(g, TNI_TY_WEAK_FLOAT, 1 / value));
}

static int32_t simplify_pow(tni_graph *g, const tni_gnode *node) {
    int32_t a = node->arg[0], b = node->arg[1];
    if (!is_const(g, b) || node_at(g, a)->type != node->type) return AS_IS;
    double power = node_at(g, b)->value;
    if (power == 1) return a;
    if (power == 0) return number_like(g, node, 1);
    if (power == -1 && !is_int(g, node->type)) {
        return tni_node2(g, TNI_P_DIV, tni_const(g, TNI_TY_WEAK_FLOAT, 1), a);
    }
    if (g->fast && power == 0.5) return tni_node1(g, TNI_P_SQRT, a);
    if (power != 2 && power != 3 && power != 4) return AS_IS;
    int32_t square = tni_node2(g, TNI_P_MUL, a, a);
    return power == 2 ? square : tni_node2(g, TNI_P_MUL, square, power == 3 ? a : square);
}

static int32_t simplify_unary(tni_graph *g, const tni_gnode *node) {
    int32_t a = node->arg[0];
    const tni_gnode *arg = node_at(g, a);
    switch (node->op) {
    case TNI_P_NEG:
        if (arg->op == TNI_P_NEG) return arg->arg[0];
        return arg->op == TNI_P_SUB && g->fast ? tni_node2(g, TNI_P_SUB, arg->arg[1], arg->arg[0]) : AS_IS;
    case TNI_P_FLOOR:
    case TNI_P_CEIL:
    case TNI_P_TRUNC:
    case TNI_P_ROUND: return is_int(g, arg->type) ? a : AS_IS;
    case TNI_P_CAST: return arg->type == node->type ? a : AS_IS;
    case TNI_P_NOT:
        if (arg->op == TNI_P_NOT) return arg->arg[0];
        if (arg->op == TNI_P_EQ) return tni_node2(g, TNI_P_NE, arg->arg[0], arg->arg[1]);
        return arg->op == TNI_P_NE ? tni_node2(g, TNI_P_EQ, arg->arg[0], arg->arg[1]) : AS_IS;
    default: return AS_IS;
    }
}

/* ---- logic, choice ----------------------------------------------------------------------------------------------- */

static int32_t simplify_logic(tni_graph *g, const tni_gnode *node) {
    for (int i = 0; i < 2; i++) {
        if (!is_const(g, node->arg[i])) continue;
        bool decides = (node_at(g, node->arg[i])->value != 0) == (node->op == TNI_P_OR);
        return instead(g, node, decides ? node->arg[i] : node->arg[1 - i]);
    }
    return node->arg[0] == node->arg[1] ? node->arg[0] : AS_IS;
}

/* c is `mode == 'a'`, and the node is a choice by `mode == 'b'`: the two do not hold at the same time. */
static bool excludes(const tni_graph *g, int32_t c, int32_t a) {
    if (!is_op(g, c, TNI_P_ATTR_IS) || !is_op(g, a, TNI_P_WHERE)) return false;
    const tni_gnode *outer = node_at(g, c), *inner = node_at(g, node_at(g, a)->arg[0]);
    return inner->op == TNI_P_ATTR_IS && inner->ref == outer->ref && inner->value != outer->value;
}

/* The second branch of a choice may take its place: it is of the same kind. */
static bool is_like_second(const tni_graph *g, int32_t a) {
    const tni_gnode *all = node_at(g, a), *second = node_at(g, all->arg[2]);
    return tni_same_shape(second, all) && second->type == all->type;
}

static int32_t simplify_where(tni_graph *g, const tni_gnode *node) {
    int32_t c = node->arg[0], a = node->arg[1], b = node->arg[2];
    if (is_const(g, c)) return instead(g, node, node_at(g, c)->value != 0 ? a : b);
    if (a == b) return instead(g, node, a);
    if (is_op(g, c, TNI_P_NOT)) return tni_node3(g, TNI_P_WHERE, 0, node_at(g, c)->arg[0], b, a);
    if (excludes(g, c, a) && is_like_second(g, a)) return tni_node3(g, TNI_P_WHERE, 0, c, node_at(g, a)->arg[2], b);
    if (excludes(g, c, b) && node_at(g, b)->arg[2] == a) return instead(g, node, b);
    return AS_IS;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Has a node the shape of this argument, and is the argument there whenever the node is? */
static bool is_shaped_by(const tni_graph *g, const tni_gnode *node, int32_t a) {
    const tni_gnode *arg = node_at(g, a);
    if (!tni_same_extent(arg->extent, node->extent)) return false;
    if (node->op == TNI_P_EXPAND && a == node->arg[0]) return false; /* it was repeated for a reason: specialize.c */
    return tni_prims[node->op].arity == 1 || (tni_is_sure(arg) && (node->absent || !arg->absent));
}

/* A node that stands for the shape of `a`: the plainest that has it, since its value does not matter. */
static int32_t shape_of(const tni_graph *g, int32_t a) {
    for (bool more = true; more;) {
        const tni_gnode *node = node_at(g, a);
        more = false;
        for (int i = 0; i < 3 && node->arg[i] >= 0 && !more; i++) {
            if (!is_shaped_by(g, node, node->arg[i])) continue;
            a = node->arg[i];
            more = true;
        }
    }
    return a;
}

static int32_t simplify_shape(tni_graph *g, const tni_gnode *node) {
    const int shape = tni_prims[node->op].arity - 1; /* the argument whose shape counts */
    int32_t a = node->arg[0], b = node->arg[shape], plain = shape_of(g, b);
    tni_extent have = node_at(g, a)->extent, other = node_at(g, b)->extent;
    bool sure = tni_is_sure(node_at(g, node->op == TNI_P_EXPAND ? a : b)) || shape_of(g, a) == plain;
    if (node->op == TNI_P_EXPAND && sure && tni_covers(have, other)) return a;
    if (node->op == TNI_P_SUM_TO && sure && tni_covers(other, have)) return a;
    if (node->op == TNI_P_SUM_TO && is_zero(g, a)) { /* zeros where there were more of them */
        while (is_op(g, a, TNI_P_EXPAND)) a = node_at(g, a)->arg[0];
        return tni_node2(g, TNI_P_EXPAND, a, b);
    }
    if (node->op == TNI_P_SUM_TO && tni_is_scalar(other)) return tni_node3(g, TNI_P_SUM, TNI_OVER_ALL, a, -1, -1);
    if (node->op == TNI_P_COUNT) {
        if (!tni_is_along(g, have, node->kind)) return tni_const(g, TNI_TY_WEAK_FLOAT, 1);
    }
    if (node->op == TNI_P_INDEX_IN && !tni_is_along(g, have, node->kind)) {
        return tni_node2(g, TNI_P_EXPAND, tni_const(g, TNI_TY_WEAK_INT, 0), plain);
    }
    if (plain == b) return AS_IS;
    tni_gnode plainer = *node;
    plainer.arg[shape] = plain;
    return tni_node_as_is(g, &plainer);
}

/* Over a single element. */
static int32_t simplify_reduction(tni_graph *g, const tni_gnode *node) {
    const tni_gnode *arg = node_at(g, node->arg[0]);
    bool single = !tni_is_along(g, arg->extent, node->kind);
    bool itself = node->op != TNI_P_VAR && node->op != TNI_P_LSE;
    return single && itself ? instead(g, node, node->arg[0]) : AS_IS;
}

/* All of it, and what is turned round twice. */
static int32_t simplify_part(const tni_graph *g, const tni_gnode *node) {
    const tni_window *window = &g->windows[node->kind];
    const tni_gnode *arg = node_at(g, node->arg[0]);
    const bool has = window->from >= 0 && arg->extent.full >> window->from & 1;
    const bool whole = node->op == TNI_P_TAKE && window->from == window->to && has && window->step == 1 &&
                       tni_size_is_number(&window->begin) && window->begin.constant == 0;
    if (whole) return node->arg[0];
    return node->op == TNI_P_FLIP && arg->op == TNI_P_FLIP && arg->kind == node->kind ? arg->arg[0] : AS_IS;
}

int32_t tni_simplify(tni_graph *g, const tni_gnode *node) {
    if (tni_is_part(node->op)) return simplify_part(g, node);
    int32_t folded = fold(g, node);
    if (folded != AS_IS) return folded;
    if (tni_is_reduction(node->op)) return simplify_reduction(g, node);
    switch (node->op) {
    case TNI_P_ADD: return simplify_add(g, node);
    case TNI_P_SUB: return simplify_sub(g, node);
    case TNI_P_MUL: return simplify_mul(g, node);
    case TNI_P_DIV: return simplify_div(g, node);
    case TNI_P_POW: return simplify_pow(g, node);
    case TNI_P_MIN:
    case TNI_P_MAX: return node->arg[0] == node->arg[1] ? instead(g, node, node->arg[0]) : AS_IS;
    case TNI_P_AND:
    case TNI_P_OR: return simplify_logic(g, node);
    case TNI_P_WHERE: return simplify_where(g, node);
    case TNI_P_COUNT:
    case TNI_P_INDEX_IN:
    case TNI_P_EXPAND:
    case TNI_P_SUM_TO: return simplify_shape(g, node);
    default: return simplify_unary(g, node);
    }
}
