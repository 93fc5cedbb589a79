/* Rows about values: the samples themselves, special numbers, masks, long sums. */
#include "cli/check/check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Floats that may be any numbers. */
static bool float_input(const problem *p, int32_t i) {
    return TN_BIT(p->sample->inputs[i].type) & TN_FLOATS && p->sample->inputs[i].order == TNI_ORDER_NONE;
}

static const char *input_name(const checker *c, const problem *p, int32_t i) {
    return c->contract->inputs[p->sample->inputs[i].input].name;
}

/* Solves, runs, compares; the problem stays. */
static bool solve_and_run(checker *c, problem *p, const char *what) {
    made_call k;
    if (problem_solve(p, true) != TN_OK || problem_call(p, &k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return false;
    }
    bool good = run_and_compare(c, p, &k, what);
    call_free(&k);
    return good;
}

/* ---- the sample -------------------------------------------------------------------------------------------------- */

static void run_values(checker *c) {
    problem p;
    if (sample_problem(c, &p)) check_problem(c, &p, "");
}

/* Each output alone: the others are NULL, whether the contract calls them optional or not. */
static void run_outputs(checker *c) {
    problem p;
    if (!sample_problem(c, &p)) return;
    if (problem_solve(&p, true) != TN_OK) check_fail(c, "the reference refused: %s", tn_last_error());
    for (int32_t only = 0; only < c->contract->n_outputs && !c->broken; only++) {
        made_call k;
        char what[96];
        if (problem_call(&p, &k, (call_options){0}) != TN_OK) break;
        bool present = k.out[only].count >= 0;
        for (int32_t i = 0; i < k.n_out; i++) {
            if (i == only || k.out[i].count < 0) continue;
            array_free(&k.out[i]);
            k.out[i].count = -1;
        }
        call_link(&k);
        snprintf(what, sizeof what, "only %s wanted", c->contract->outputs[only].name);
        if (present) run_and_compare(c, &p, &k, what);
        call_free(&k);
    }
    problem_free(&p);
}

/* ---- special numbers --------------------------------------------------------------------------------------------- */

/* NaN, ±Inf, -0 and denormals of the type (the smallest ones; of f64, in which the reference computes too, one that has
 * bits to spare), one at each of the first places, so that every lane of a vector and the rest behind the last vector
 * gets its turn; then a whole tensor of -Inf, and one with one number left.
 *
 * NaN must come out where the reference has it. So must infinities of the first input; of the others (an infinite
 * rstd), and of all inputs of a gradient, 0 * inf or inf - inf may arise in one order of computing and not in another,
 * so there not finite is enough. */
static bool any_infinity_will_do(const checker *c, int32_t i) {
    if (i > 0) return true;
    for (int32_t k = 0; k < c->contract->n_inputs; k++) {
        if (strcmp(c->contract->inputs[k].name, "dy") == 0) return true;
    }
    return false;
}

static void run_special_input(checker *c, problem *p, int32_t i) {
    const double denormal = p->sample->inputs[i].type == TN_F64   ? 0x1p-1040
                            : p->sample->inputs[i].type == TN_F16 ? 0x1p-24
                                                                  : 0x1p-133;
    const double specials[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -0.0, denormal, -denormal};
    int64_t n = dims_count(&p->sample->inputs[i].shape), most = n < 67 ? n : 67, step = c->options.quick ? 5 : 1;
    char what[96];
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
        for (int64_t at = (int64_t)s % step; at < most && !c->broken; at += step) {
            double kept = p->in[i][at];
            p->in[i][at] = specials[s];
            c->any_infinity = isinf(specials[s]) && any_infinity_will_do(c, i);
            snprintf(what, sizeof what, "%g as element %lld of %s", specials[s], (long long)at, input_name(c, p, i));
            solve_and_run(c, p, what);
            p->in[i][at] = kept;
        }
    }
    c->any_infinity = any_infinity_will_do(c, i);
    for (int64_t at = -1; at < most && !c->broken; at += 13) {
        for (int64_t k = 0; k < n; k++) p->in[i][k] = k == at ? 1 : -(double)INFINITY;
        snprintf(what, sizeof what, "%s all -inf but element %lld", input_name(c, p, i), (long long)at);
        solve_and_run(c, p, what);
    }
    c->any_infinity = false;
}

static void run_special(checker *c) {
    tni_case *shape;
    if (tni_sample_case(c->contract, c->sample->args, c->T, &shape) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    for (int32_t i = 0; i < shape->n_inputs && !c->broken; i++) {
        problem p;
        if (!sample_problem(c, &p)) continue;
        if (float_input(&p, i)) run_special_input(c, &p, i);
        problem_free(&p);
    }
    tni_case_free(shape);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static bool has_bool(const checker *c) {
    for (int32_t i = 0; i < c->contract->n_inputs; i++) {
        const tni_type *type = &c->contract->inputs[i].type;
        if (type->kind == TNI_TYPE_FIXED && type->mask == TN_BIT(TN_BOOL)) return true;
    }
    return false;
}

static void require_finite(checker *c, const problem *p) {
    for (int32_t i = 0; i < p->n_results; i++) {
        for (int64_t k = 0; p->results[i].present && k < p->results[i].count; k++) {
            const double value = p->results[i].value[k];
            if (isfinite(value) || value == -(double)INFINITY) continue; /* the logarithm of an empty sum */
            check_fail(c, "the reference itself is not finite where everything is masked: %s", p->results[i].name);
            return;
        }
    }
}

/* Nothing left; then whole rows gone, with NaN in what the mask takes out. */
static void run_masked(checker *c) {
    problem p;
    if (!sample_problem(c, &p)) return;
    for (int round = 0; round < 3 && !c->broken; round++) {
        bool any = false;
        for (int32_t i = 0; i < p.sample->n_inputs; i++) {
            const tni_dims *shape = &p.sample->inputs[i].shape;
            int64_t n = dims_count(shape), last = shape->ndim ? shape->d[shape->ndim - 1] : 1;
            if (p.sample->inputs[i].type != TN_BOOL) continue;
            any = true;
            for (int64_t k = 0; k < n; k++) p.in[i][k] = round > 0 && k / last % 2 == 1 && k % 3 != round;
        }
        if (!any) break;
        solve_and_run(c, &p, round == 0 ? "all masked" : "every second row masked");
        if (round == 0) require_finite(c, &p);
        for (int32_t i = 0; i < p.sample->n_inputs; i++) { /* a masked NaN must not be seen: where shapes agree */
            const tni_dims *shape = &p.sample->inputs[i].shape;
            int64_t last = shape->ndim ? shape->d[shape->ndim - 1] : 1;
            for (int64_t k = 0; float_input(&p, i) && k < dims_count(shape); k += 7) {
                if (k / last % 2 == 0) p.in[i][k] = (double)NAN;
            }
        }
    }
    problem_free(&p);
}

/* ---- long sums --------------------------------------------------------------------------------------------------- */

/* What is exact to 2^24 and beyond is asked only where there is time. */
static bool has_long_sums(const checker *c) {
    const bool narrow = tn_type_size(c->T) < 4 || c->T == TN_I32;
    return has_sizes(c) && (narrow || !c->options.quick);
}

/* 70000 ones, or nearly: a 16-bit sum stops at 256 (bf16) or 2048 (f16). */
static void run_accumulate(checker *c) {
    variant v;
    if (!variant_begin(c, &v)) return;
    int32_t n = v.n_slots;
    variant_drop(&v);
    for (int32_t k = 0; k < n && !c->broken; k++) {
        problem p;
        if (!variant_begin(c, &v)) return;
        for (int32_t i = 0; i < n; i++) *v.slots[i] = i == k ? 70000 : 2;
        if (!variant_problem(c, &v, &p)) continue;
        for (int32_t i = 0; i < p.sample->n_inputs; i++) {
            int64_t count = dims_count(&p.sample->inputs[i].shape);
            for (int64_t e = 0; float_input(&p, i) && e < count; e++) p.in[i][e] = e % 16 == 5 ? 1.0625 : 1;
            problem_round(&p, i);
        }
        char what[64];
        snprintf(what, sizeof what, "with size %d as 70000", k);
        check_problem(c, &p, what);
    }
}

/* ---- indices ----------------------------------------------------------------------------------------------------- */

static bool has_index(const checker *c) {
    return strchr(c->sample->args, '<') != NULL;
}

/* Every index the same: what atomics get wrong. */
static void run_same_index(checker *c) {
    for (int round = 0; round < 2 && !c->broken; round++) {
        problem p;
        if (!sample_problem(c, &p)) return;
        for (int32_t i = 0; i < p.sample->n_inputs; i++) {
            const tni_sample_input *input = &p.sample->inputs[i];
            int64_t n = dims_count(&input->shape);
            const bool any = input->order == TNI_ORDER_NONE || input->order == TNI_ORDER_SORTED;
            for (int64_t k = 0; any && input->below > 0 && k < n; k++)
                p.in[i][k] = round ? (double)(input->below - 1) : 0;
        }
        check_problem(c, &p, round ? "every index the last" : "every index 0");
    }
}

const check_row value_rows[] = {
    {"values", "every sample against float64", EACH | LANES, 0, NULL, run_values},
    {"outputs", "each output alone, the others not wanted", FEW, 20000, has_outputs, run_outputs,
     "An output that nobody wants is absent: tn_out(call, i) is NULL. Test for NULL before you write it, and compute "
     "what other outputs need all the same."},
    {"special", "NaN, ±Inf, -0 and denormals in every lane; -Inf everywhere", FEW | NOT_REF | LANES, 400, NULL,
     run_special,
     "NaN and infinities take another way through the code: comparisons with NaN are false, inf - inf and 0 * inf are "
     "NaN, and exp overflows. Keep the largest number of a row away from exp, and let NaN through."},
    {"masked", "rows that a mask removes, NaN under the mask", EACH | LANES, 20000, has_bool, run_masked,
     "What a mask removes must not count, also where it is NaN or a whole row is gone: choose with the mask (mask ? x "
     ": 0), do not multiply by it, and do not divide by a count of 0."},
    {"accumulate", "70000 ones: 16-bit sums stop early", ONCE | NOT_REF, 0, has_long_sums, run_accumulate,
     "The sum is kept in a 16-bit type, which stops growing at 256 (bf16) or 2048 (f16). Add in float and round once "
     "at the end."},
    {"same_index", "all indices equal", FEW, 20000, has_index, run_same_index,
     "Several threads write to the same place when indices are equal. Use atomicAdd, or let one thread own each "
     "place."},
    {0},
};
