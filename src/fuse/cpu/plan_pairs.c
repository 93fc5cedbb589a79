/* Steps that can be one: a sum, difference or product whose only use is another, and relu behind that; tanh(softplus(a)),
 * 0.5 + 0.5 * erf(a); the sum of a product. And functions that need not be as exact as they are. */
#include "fuse/plan/planner.h"

typedef struct pairing {
    tni_planner *p;
    int32_t *uses;   /* of values */
    int32_t *makers; /* the step that makes a value */
} pairing;

static int pair_op(uint8_t op) {
    return op == TNI_P_ADD ? TNI_PAIR_ADD : op == TNI_P_SUB ? TNI_PAIR_SUB : op == TNI_P_MUL ? TNI_PAIR_MUL : -1;
}

static bool is_real(const tni_step *s) {
    return s->kind == TNI_STEP_LOOP && (s->lane == TNI_LANE_F32 || s->lane == TNI_LANE_F64);
}

/* The step that makes argument k for this one alone, in the same segment; NULL: there is none. */
static tni_step *sole_maker(const pairing *a, const tni_segment *segment, const tni_step *s, int k, uint8_t level) {
    int32_t value = s->arg[k];
    if (value < 0 || s->scalars >> k & 1 || a->uses[value] != 1 || a->p->values[value].elsewhere) return NULL;
    int32_t maker = a->makers[value];
    if (maker < segment->first || maker >= segment->first + segment->count) return NULL;
    tni_step *made = &a->p->steps[maker];
    return is_real(made) && made->lane == s->lane && made->level == level ? made : NULL;
}

static void drop(tni_step *s) {
    s->kind = TNI_STEP_NONE;
    s->out = -1;
    for (int k = 0; k < 3; k++) s->arg[k] = -1;
}

/* s becomes the pair of `inner`, which made its argument k, and itself. */
static void join(tni_step *s, tni_step *inner, int k) {
    int op1 = pair_op(inner->op), op2 = pair_op(s->op), other = 1 - k;
    if (op2 == TNI_PAIR_SUB && k == 1) op2 = TNI_PAIR_REVERSED;
    s->arg[2] = s->arg[other];
    s->scalars = (uint8_t)((s->scalars >> other & 1) << 2 | inner->scalars);
    s->arg[0] = inner->arg[0];
    s->arg[1] = inner->arg[1];
    s->n_args = 3;
    s->pair = (int8_t)(op1 * TNI_PAIRS + op2);
    s->run = tni_pair_loop(s->lane, op1, op2, false);
    drop(inner);
}

/* s becomes a function of what `inner` is one of. */
static void become(tni_step *s, tni_step *inner, int op) {
    s->op = (uint8_t)op;
    s->n_args = 1;
    s->arg[0] = inner->arg[0];
    s->arg[1] = -1;
    s->scalars = inner->scalars;
    s->run = tni_loop_of(s->lane, op);
    drop(inner);
}

/* The step that makes the argument beside 0.5; NULL: there is none. */
static tni_step *beside_half(const pairing *a, const tni_segment *segment, const tni_step *s, int op) {
    for (int k = 0; k < 2 && s && s->op == op && s->pair < 0; k++) {
        if (tni_is_number(a->p, s, 1 - k, 0.5)) return sole_maker(a, segment, s, k, s->level);
    }
    return NULL;
}

static bool try_function(const pairing *a, const tni_segment *segment, tni_step *s) {
    tni_step *softplus = s->op == TNI_P_TANH ? sole_maker(a, segment, s, 0, s->level) : NULL;
    tni_step *half = beside_half(a, segment, s, TNI_P_ADD), *erf = beside_half(a, segment, half, TNI_P_MUL);
    if (softplus && softplus->op == TNI_P_SOFTPLUS) {
        become(s, softplus, TNI_P_TANH_SOFTPLUS);
        return true;
    }
    if (!erf || erf->op != TNI_P_ERF) return false;
    become(s, erf, TNI_P_HALF_ERF);
    drop(half);
    return true;
}

/* A sum that loses its columns, of products that nobody else needs. */
static void try_product(const pairing *a, const tni_segment *segment, tni_step *s) {
    const tni_pass *pass = a->p->pass;
    bool gathers = s->kind == TNI_STEP_GATHER, reduces = s->kind == TNI_STEP_REDUCE;
    if (s->op != TNI_P_SUM || !(reduces || gathers)) return;
    if (gathers && (s->level != TNI_ELEMENT || pass->accumulators[s->operand].strides[pass->n_dims] != 0)) return;
    tni_step *inner = sole_maker(a, segment, s, 0, TNI_ELEMENT);
    if (!inner || inner->op != TNI_P_MUL || inner->pair >= 0 || inner->scalars) return;
    if (inner->arg[0] < 0 || inner->arg[1] < 0) return;
    s->arg[0] = inner->arg[0];
    s->arg[1] = inner->arg[1];
    s->n_args = 2;
    drop(inner);
}

static void try_join(const pairing *a, const tni_segment *segment, tni_step *s) {
    try_product(a, segment, s);
    if (!is_real(s) || try_function(a, segment, s) || s->level != TNI_ELEMENT) return;
    if (s->op == TNI_P_RELU) {
        tni_step *inner = sole_maker(a, segment, s, 0, s->level);
        if (!inner || inner->pair < 0 || inner->relu) return;
        int32_t out = s->out;
        *s = *inner;
        s->out = out;
        s->run = tni_pair_loop(s->lane, s->pair / TNI_PAIRS, s->pair % TNI_PAIRS, true);
        s->relu = true;
        drop(inner);
        return;
    }
    for (int k = 0; k < 2 && s->pair < 0 && pair_op(s->op) >= 0; k++) {
        tni_step *inner = sole_maker(a, segment, s, k, s->level);
        if (inner && inner->n_args == 2 && pair_op(inner->op) >= 0) join(s, inner, k);
    }
}

static void make_coarse(tni_step *s) {
    int op = s->op == TNI_P_EXP             ? TNI_P_COARSE_EXP
             : s->op == TNI_P_SIGMOID       ? TNI_P_COARSE_SIGMOID
             : s->op == TNI_P_TANH_SOFTPLUS ? TNI_P_COARSE_TANH_SOFTPLUS
                                            : -1;
    if (op < 0 || s->kind != TNI_STEP_LOOP || s->lane != TNI_LANE_F32 || s->level != TNI_ELEMENT || s->pair >= 0)
        return;
    s->op = (uint8_t)op;
    s->run = tni_loop_of(s->lane, op);
}

tn_status tni_plan_pairs(tni_planner *p) {
    size_t n = (size_t)p->pass->n_values + 1;
    pairing a = {.p = p, .uses = tni_calloc(2 * n, sizeof *a.uses)};
    if (!a.uses) return TN_NO_MEMORY;
    a.makers = a.uses + n;
    for (int32_t i = 0; i < p->pass->n_steps; i++) {
        const tni_step *s = &p->steps[i];
        for (int k = 0; k < 3; k++) {
            if (s->arg[k] >= 0) a.uses[s->arg[k]]++;
        }
        if (s->out >= 0) a.makers[s->out] = i;
    }
    for (int32_t i = 0; i < p->pass->n_segments; i++) {
        const tni_segment *segment = &p->segments[i];
        for (int32_t k = 0; k < segment->count; k++) try_join(&a, segment, &p->steps[segment->first + k]);
    }
    tni_free(a.uses);
    const bool coarse = tni_makes_bf16(p) && !p->pass->reduces;
    for (int32_t i = 0; coarse && i < p->pass->n_steps; i++) make_coarse(&p->steps[i]);
    return TN_OK;
}
