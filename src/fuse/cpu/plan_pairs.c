/* Steps that can be one: a sum, difference or product whose only use is another, and relu behind that; what the lowered
 * graph says is one function, and sums of products. And functions that need not be as exact as they are. */
#include "steps.h"

typedef struct pairing {
    tni_cpu_planner *c;
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
    if (value < 0 || s->scalars >> k & 1 || a->uses[value] != 1 || a->c->values[value].elsewhere) return NULL;
    int32_t maker = a->makers[value];
    if (maker < segment->first || maker >= segment->first + segment->count) return NULL;
    tni_step *made = &a->c->steps[maker];
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

/* The step that makes `node` for s alone; NULL: there is none. */
static tni_step *maker_of(const pairing *a, const tni_segment *segment, const tni_step *s, int32_t node) {
    for (int k = 0; k < s->n_args; k++) {
        tni_step *made = sole_maker(a, segment, s, k, s->level);
        if (made && made->node == node && made->op == a->c->g->nodes[node].op && made->pair < 0) return made;
    }
    return NULL;
}

/* s becomes the form that its node is, in the place of the steps of what is inside. */
static bool try_form(const pairing *a, const tni_segment *segment, tni_step *s) {
    const tni_form *form = &a->c->b->lowered[s->node].forms[0];
    tni_step *inside[2] = {NULL, NULL};
    const tni_step *outer = s;
    if (s->pair >= 0 || !form->n_inside || !tni_loop_of(s->lane, form->op)) return false;
    for (int k = 0; k < form->n_inside; k++) {
        outer = inside[k] = maker_of(a, segment, outer, form->inside[k]);
        if (!outer) return false;
    }
    s->op = form->op;
    s->n_args = 1;
    s->arg[0] = outer->arg[0];
    s->arg[1] = -1;
    s->scalars = outer->scalars;
    s->run = tni_loop_of(s->lane, form->op);
    for (int k = 0; k < form->n_inside; k++) drop(inside[k]);
    return true;
}

/* A sum that loses its columns, of products that nobody else needs. */
static void try_product(const pairing *a, const tni_segment *segment, tni_step *s) {
    const tni_pass *pass = a->c->pass;
    bool gathers = s->kind == TNI_STEP_GATHER, reduces = s->kind == TNI_STEP_REDUCE;
    if (s->op != TNI_P_SUM || !(reduces || gathers)) return;
    if (gathers && (s->level != TNI_ELEMENT || pass->accumulators[s->operand].strides[pass->n_dims] != 0)) return;
    tni_step *inner = sole_maker(a, segment, s, 0, TNI_ELEMENT);
    if (!inner || inner->node != a->c->b->lowered[s->node].product || inner->op != TNI_P_MUL) return;
    if (inner->pair >= 0 || inner->scalars) return;
    if (inner->arg[0] < 0 || inner->arg[1] < 0) return;
    s->arg[0] = inner->arg[0];
    s->arg[1] = inner->arg[1];
    s->n_args = 2;
    drop(inner);
}

static void try_join(const pairing *a, const tni_segment *segment, tni_step *s) {
    try_product(a, segment, s);
    if (!is_real(s) || (s->node >= 0 && try_form(a, segment, s)) || s->level != TNI_ELEMENT) return;
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
    bool real = s->kind == TNI_STEP_LOOP && s->lane == TNI_LANE_F32 && s->level == TNI_ELEMENT && s->pair < 0;
    tni_loop loop = real ? tni_real_loops_of(s->lane)->coarse[s->op] : NULL;
    if (!loop) return;
    s->coarse = true;
    s->run = loop;
}

tn_status tni_plan_pairs(tni_cpu_planner *c) {
    size_t n = (size_t)c->made->n_values + 1;
    pairing a = {.c = c, .uses = tni_calloc(2 * n, sizeof *a.uses)};
    if (!a.uses) return TN_NO_MEMORY;
    a.makers = a.uses + n;
    for (int32_t i = 0; i < c->made->n_steps; i++) {
        const tni_step *s = &c->steps[i];
        for (int k = 0; k < 3; k++) {
            if (s->arg[k] >= 0) a.uses[s->arg[k]]++;
        }
        if (s->out >= 0) a.makers[s->out] = i;
    }
    for (int32_t i = 0; i < c->made->n_segments; i++) {
        const tni_segment *segment = &c->segments[i];
        for (int32_t k = 0; k < segment->count; k++) try_join(&a, segment, &c->steps[segment->first + k]);
    }
    tni_free(a.uses);
    const bool coarse = c->pass->coarse && !c->pass->reduces;
    for (int32_t i = 0; coarse && i < c->made->n_steps; i++) make_coarse(&c->steps[i]);
    return TN_OK;
}
