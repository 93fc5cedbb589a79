/* Gradients. L = the sum over the differentiable outputs of a random projection; what the rule gives for each input
 * must be the slope of L that the forward operator itself shows, in f64, by central differences with one step of
 * Richardson's extrapolation: error h^4. A step that straddles a kink (relu) gives a wrong slope, so three widths are
 * tried; a wrong gradient agrees with none. */
#include "check_rule.h"
#include "cli/check/check.h"
#include "core/table/table.h"
#include "fuse/operator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ALL_BELOW = 49, SOME = 24, DIRECTIONS = 2 };
static const double STEPS[] = {0x1p-13, 0x1p-10, 0x1p-16};

/* A forward call in f64 that can be run again and again. */
typedef struct slope {
    checker *c;
    problem *p;
    made_call k;
    array *projection; /* (outputs); count -1: not differentiable, or nobody used it */
    double size;       /* the sum of |projection * output|: what L's rounding is measured by */
} slope;

/* L for the problem's values as they are now. */
static bool evaluate(slope *s, double *loss) {
    problem_write(s->p, &s->k);
    s->k.args.kernel = s->c->kernel;
    tn_status status = call_run(&s->k, s->c->gpu, NULL);
    if (check_declined(s->c, status)) return false;
    if (status != TN_OK) {
        check_fail(s->c, "refused: %s", tn_last_error());
        return false;
    }
    *loss = s->size = 0;
    for (int32_t o = 0; o < s->k.n_out; o++) {
        const array *y = &s->k.out[o], *w = &s->projection[o];
        for (int64_t i = 0; w->count >= 0 && i < y->count; i++) {
            const double value = tn_get(y->type, y->tensor.data, i);
            if (value == -(double)INFINITY) continue; /* the logarithm of an empty sum, which has no slope */
            double term = value * tn_get(w->type, w->tensor.data, array_place(w, i));
            *loss += term;
            s->size += fabs(term);
        }
    }
    return true;
}

/* The difference quotient of L along `direction` (NULL: element `at` alone) of input i. */
static bool quotient(slope *s, int32_t i, int64_t at, const double *direction, double h, double *slope_seen) {
    double *x = s->p->in[i], loss[2] = {0, 0};
    int64_t n = s->k.in[i].count;
    double *kept = tni_malloc((size_t)n * sizeof *kept);
    if (!kept) return false;
    memcpy(kept, x, (size_t)n * sizeof *kept);
    bool good = true;
    for (int side = 0; side < 2 && good; side++) {
        double step = side ? -h : h;
        for (int64_t e = 0; direction && e < n; e++) x[e] = kept[e] + step * direction[e];
        if (!direction) x[at] = kept[at] + step;
        good = evaluate(s, &loss[side]);
        memcpy(x, kept, (size_t)n * sizeof *kept);
    }
    tni_free(kept);
    *slope_seen = (loss[0] - loss[1]) / (2 * h);
    return good;
}

static bool agrees(slope *s, int32_t i, int64_t at, const double *direction, double expected, double scale,
                   double *seen) {
    for (size_t k = 0; k < sizeof STEPS / sizeof *STEPS; k++) {
        double wide, narrow, h = STEPS[k];
        if (!quotient(s, i, at, direction, h, &wide) || !quotient(s, i, at, direction, h / 2, &narrow)) return true;
        *seen = (4 * narrow - wide) / 3;
        double room = 2e-6 * (scale + fabs(expected)) + 4e-15 * s->size / h;
        if (fabs(*seen - expected) <= room) return true;
    }
    return false;
}

/* place: "element 3". */
static void fail_slope(slope *s, const char *name, const char *place, double expected, double seen) {
    if (isnan(seen)) {
        check_fail(s->c,
                   "d%s %s is %.9g, but outputs are not finite for the numbers drawn: a sample with \"%s>0\" draws "
                   "positive ones",
                   name, place, expected, name);
    } else {
        check_fail(s->c, "d%s %s is %.9g, central differences say %.9g", name, place, expected, seen);
    }
}

static void compare_slope(slope *s, int32_t i, const double *gradient) {
    const array *x = &s->k.in[i];
    const char *name = s->c->contract->inputs[s->k.param[i]].name;
    uint64_t seed = check_seed(s->c, 900 + (uint64_t)i);
    double scale = 0, seen = 0;
    for (int64_t e = 0; e < x->count; e++) scale = fmax(scale, fabs(gradient[e]));
    int64_t count = x->count < ALL_BELOW ? x->count : SOME;
    for (int64_t k = 0; k < count && !s->c->broken; k++) {
        int64_t e = x->count < ALL_BELOW ? k : random_below(&seed, x->count);
        if (!agrees(s, i, e, NULL, gradient[e], scale, &seen)) {
            char place[32];
            snprintf(place, sizeof place, "element %lld", (long long)e);
            fail_slope(s, name, place, gradient[e], seen);
        }
    }
    double *direction = tni_malloc((size_t)x->count * sizeof *direction);
    for (int k = 0; direction && k < DIRECTIONS && x->count && !s->c->broken; k++) {
        double expected = 0, unit = 1 / sqrt((double)x->count);
        for (int64_t e = 0; e < x->count; e++) {
            direction[e] = random_bits(&seed) & 1 ? unit : -unit;
            expected += direction[e] * gradient[e];
        }
        if (!agrees(s, i, 0, direction, expected, scale, &seen)) {
            fail_slope(s, name, "along a random direction", expected, seen);
        }
    }
    tni_free(direction);
}

/* Gradients of the inputs by the rule; gradients[i] is NULL where there is none. */
static bool run_rule(slope *s, const tni_rule *rule, double **gradients) {
    backward b;
    double loss;
    if (!evaluate(s, &loss)) return false;
    /* In-place inputs now hold what they became; the rule sees the outputs, and inputs as they were. */
    for (int32_t i = 0; i < s->k.n_in; i++) {
        if (s->c->contract->inputs[s->k.param[i]].inplace) array_write(&s->k.in[i], s->p->in[i]);
    }
    if (backward_run(&b, &s->k, rule, s->projection, s->c->kernel, s->c->gpu) != TN_OK) {
        check_fail(s->c, "the gradient rule: %s", tn_last_error());
        return false;
    }
    for (int32_t i = 0; i < s->k.n_in; i++) {
        if (b.din[i].count < 0) continue;
        if (b.din[i].count != s->k.in[i].count) {
            check_fail(s->c, "d%s has another shape than its input", s->c->contract->inputs[s->k.param[i]].name);
            continue;
        }
        gradients[i] = tni_malloc((size_t)b.din[i].count * sizeof(double));
        if (gradients[i]) array_read(&b.din[i], gradients[i]);
    }
    backward_free(&b);
    return true;
}

/* Random projections of the outputs in `use`, with or without memory of their own. */
static bool make_projection(slope *s, const tni_rule *rule, int32_t only, bool expanded) {
    uint64_t seed = check_seed(s->c, 800);
    for (int32_t o = 0; o < s->k.n_out; o++) {
        const array *y = &s->k.out[o];
        array *w = &s->projection[o];
        array_free(w);
        w->count = -1;
        if (y->count < 0 || !rule->differentiable[o] || (only >= 0 && o != only)) continue;
        if (!array_make(w, y->type, y->tensor.ndim, y->shape, DENSE, 0)) return false;
        for (int64_t i = 0; i < w->count; i++) tn_set(w->type, w->tensor.data, i, expanded ? 1 : random_normal(&seed));
        for (int32_t d = 0; expanded && d < y->tensor.ndim; d++) w->strides[d] = 0;
    }
    return true;
}

static void check_rule(slope *s, const tni_rule *rule, int32_t only, bool expanded) {
    double *gradients[4 * TNI_MAX_ARGS] = {NULL};
    if (!make_projection(s, rule, only, expanded)) {
        check_fail(s->c, "out of memory");
    } else if (run_rule(s, rule, gradients)) {
        for (int32_t i = 0; i < s->k.n_in && !s->c->broken; i++) {
            if (gradients[i]) compare_slope(s, i, gradients[i]);
        }
    }
    for (int32_t i = 0; i < s->k.n_in; i++) tni_free(gradients[i]);
}

/* A sample may have integers, or bool, where T may be any type: they have no slope. */
static bool has_slope(const slope *s, const tni_rule *rule) {
    const uint32_t floats = TN_BIT(TN_F16) | TN_BIT(TN_BF16) | TN_BIT(TN_F32) | TN_BIT(TN_F64);
    for (int32_t o = 0; o < s->k.n_out; o++) {
        if (rule->differentiable[o] && s->k.out[o].count >= 0 && !(TN_BIT(s->k.out[o].type) & floats)) return false;
    }
    return true;
}

static void run_grad_with(checker *c, bool expanded) {
    const tni_rule *rule;
    problem p;
    if (tni_operator_rule(c->op, &rule) != TN_OK || !rule) {
        check_fail(c, "the gradient rule: %s", tn_last_error());
        return;
    }
    if (!sample_problem(c, &p)) return;
    slope s = {.c = c, .p = &p};
    s.projection = tni_calloc((size_t)c->contract->n_outputs + 1, sizeof *s.projection);
    if (!s.projection || call_make(&s.k, c->op, p.sample, (call_options){.flags = CALL_WIDE | CALL_ALL}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        int32_t used = 0;
        const bool sloped = has_slope(&s, rule);
        if (sloped) check_rule(&s, rule, -1, expanded);
        for (int32_t o = 0; o < s.k.n_out; o++) used += rule->differentiable[o];
        for (int32_t o = 0; o < s.k.n_out && sloped && used > 1 && !c->broken;
             o++) { /* one gradient arrives, the others do not */
            if (rule->differentiable[o] && s.k.out[o].count >= 0) check_rule(&s, rule, o, expanded);
        }
        for (int32_t o = 0; o < s.k.n_out; o++) array_free(&s.projection[o]);
        call_free(&s.k);
    }
    tni_free(s.projection);
    problem_free(&p);
}

static void run_grad(checker *c) {
    run_grad_with(c, false);
}

static void run_grad_sum(checker *c) {
    run_grad_with(c, true);
}

static bool has_rule(const checker *c) {
    const tni_rule *rule;
    const tni_fuse *formula;
    if (tni_operator_formula(c->op, &formula) == TN_OK && formula->detaches) return false;
    return c->T == TN_F64 && (tni_operator_rule(c->op, &rule) != TN_OK || (rule && !rule->stands_in));
}

const check_row grad_rows[] = {
    {"grad", "gradients against central differences (f64)", EACH, 6000, has_rule, run_grad,
     "The gradient is not the slope of the function. Work the derivative out again for this input: the chain rule with "
     "dy, the sign, factors such as 2, and sums over dimensions that broadcast."},
    {"grad_sum", "the same for sum(): all ones, of stride 0 (f64)", TELLS | FEW, 6000, has_rule, run_grad_sum,
     "dy has strides of 0 here, as sum().backward() hands it over. A kernel with TN_STRIDED must use dy's strides."},
    {0},
};
