/* Problems: values, the float64 reference, and how far from it a right result may be.
 *
 * The bound of an element with reference r is
 *
 *     tolerance * (u_out |r| + u_acc c (|r| + s)) + tiny
 *
 * u_out and u_acc: half a unit in the last place of the output's type and of the type that it accumulates in.
 * s: how much the result moves when each input moves by its own size (measured: the reference runs again on inputs that
 *    are off by about 2^-18 at random). It is what rounding the inputs once costs, cancellation included, so a sum near
 *    0 of large numbers has the room that it needs, and a well-conditioned element has none to spare. A few runs may
 *    miss by chance how sensitive an element is, so it is at least half of what its neighbours' are on average.
 * c = 48 + sqrt(n) for n numbers that are added up: a few roundings, and a long sum's random walk. Where the kernel
 *    computes in f64, so does the reference, one number after the other: 4 (48 + n).
 *    Where an element depends on nothing but the same element of the inputs (the reference is asked), it is 8: about 8
 *    units in the last place of a well-conditioned f32, and on average it must be a tenth of that (check_compare.c).
 * Where a kernel of the operator says that it rounds between its steps (TNI_ROUNDS_BETWEEN), a result of 16 bits has 4
 * u_out (|r| + s) in addition: numbers that are rounded on their way move it as much as inputs that are.
 * tiny: the smallest normal number of the accumulation type, or half of the smallest number of the output's. */
#include "check.h"
#include "core/table/kernel_flags.h"
#include "core/table/table.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { NUDGES = 3, MORE_NUDGES = 12 /* for few results */, NEAR = 16 /* neighbours on each side */ };
static const double NUDGE = 0x1p-18, BY_ELEMENT = 8;

const char *reference_kernel(const tn_function *op) {
    const char *last = NULL;
    for (const tn_kernel *k = op->row->kernels; k->name; k++) {
        if (k->device == TN_CPU) last = k->name;
    }
    return last;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

void problem_round(problem *p, int32_t i) {
    const tni_sample_input *input = &p->sample->inputs[i];
    int64_t n = dims_count(&input->shape);
    for (int64_t k = 0; k < n; k++) {
        double rounded;
        tn_set(input->type, &rounded, 0, p->in[i][k]);
        p->in[i][k] = tn_get(input->type, &rounded, 0);
    }
}

tn_status problem_make(problem *p, const tn_function *op, tni_case *sample, const tn_sample *from, uint64_t seed) {
    *p = (problem){.op = op, .sample = sample, .text = from->args, .seed = seed};
    p->tolerance = from->tolerance > 0 ? from->tolerance : 1;
    p->in = tni_calloc((size_t)sample->n_inputs + 1, sizeof *p->in);
    bool failed = !p->in;
    for (int32_t i = 0; i < sample->n_inputs && !failed; i++) {
        const tni_sample_input *input = &sample->inputs[i];
        p->in[i] = tni_malloc((size_t)dims_count(&input->shape) * sizeof(double));
        failed = !p->in[i];
        if (!failed) case_values(input, input->type, mix_seed(seed, (uint64_t)i + 1), p->in[i]);
    }
    if (failed) problem_free(p);
    return failed ? TN_NO_MEMORY : TN_OK;
}

static void free_results(problem *p) {
    for (int32_t i = 0; i < p->n_results; i++) {
        tni_free(p->results[i].value);
        tni_free(p->results[i].bound);
    }
    p->n_results = 0;
}

void problem_free(problem *p) {
    free_results(p);
    for (int32_t i = 0; p->in && i < p->sample->n_inputs; i++) tni_free(p->in[i]);
    tni_free(p->in);
    tni_case_free(p->sample);
    *p = (problem){0};
}

void problem_write(const problem *p, made_call *c) {
    for (int32_t i = 0; i < c->n_in; i++) array_write(&c->in[i], p->in[i]);
}

tn_status problem_call(const problem *p, made_call *c, call_options options) {
    TN_TRY(call_make(c, p->op, p->sample, options));
    problem_write(p, c);
    return TN_OK;
}

array *result_array(const made_call *k, const result *r) {
    return r->output >= 0 ? &k->out[r->output] : &k->in[r->input];
}

/* ---- solving ----------------------------------------------------------------------------------------------------- */

static tn_status run_reference(made_call *c) {
    c->args.kernel = reference_kernel(c->op);
    return tn_run(c->op, &c->args, NULL);
}

/* Types of the call that is checked, not of the reference. */
static tn_status add_results(problem *p, const made_call *wide) {
    const tni_contract *contract = p->op->contract;
    made_call narrow;
    TN_TRY(call_make(&narrow, p->op, p->sample, (call_options){.flags = 0}));
    for (int32_t i = 0; i < wide->n_out; i++) {
        p->results[p->n_results++] = (result){.present = wide->out[i].count >= 0,
                                              .name = contract->outputs[i].name,
                                              .output = i,
                                              .type = narrow.out[i].type};
    }
    for (int32_t i = 0; i < wide->n_in; i++) {
        const tni_param *param = &contract->inputs[wide->param[i]];
        if (!param->inplace) continue;
        p->results[p->n_results++] = (result){
            .present = true, .name = param->name, .output = -1, .input = i, .type = narrow.in[i].type};
    }
    call_free(&narrow);
    return TN_OK;
}

static tn_status read_results(problem *p, const made_call *wide) {
    for (int32_t i = 0; i < p->n_results; i++) {
        result *r = &p->results[i];
        if (!r->present) continue;
        const array *a = result_array(wide, r);
        r->count = a->count;
        r->shape.ndim = a->tensor.ndim;
        memcpy(r->shape.d, a->shape, sizeof r->shape.d);
        r->value = tni_malloc((size_t)r->count * sizeof(double));
        if (!r->value) return TN_NO_MEMORY;
        array_read(a, r->value);
    }
    return TN_OK;
}

static bool has_bits(const array *a, int64_t k, char bits) {
    const size_t size = tn_type_size(a->type);
    const char *element = (const char *)a->tensor.data + (size_t)k * size; /* the reference's outputs are dense */
    for (size_t i = 0; i < size; i++) {
        if (element[i] != bits) return false;
    }
    return true;
}

static bool has_untouched(const made_call *wide) {
    for (int32_t i = 0; i < wide->n_out; i++) {
        for (int64_t k = 0; k < wide->out[i].count; k++) {
            if (has_bits(&wide->out[i], k, (char)0xff)) return true;
        }
    }
    return false;
}

/* Outputs have all bits set before the run, and what has them still may be a result. An element that has none set where
 * there were none before is not written: every kernel that forgets it too would pass for right. */
static tn_status check_written(const problem *p, const made_call *wide) {
    made_call other;
    if (!has_untouched(wide)) return TN_OK;
    TN_TRY(problem_call(p, &other, (call_options){.flags = CALL_WIDE, .zero = true}));
    tn_status status = run_reference(&other);
    for (int32_t i = 0; i < wide->n_out && status == TN_OK; i++) {
        for (int64_t k = 0; k < wide->out[i].count && status == TN_OK; k++) {
            if (!has_bits(&wide->out[i], k, (char)0xff) || !has_bits(&other.out[i], k, 0)) continue;
            status = tn_fail(TN_BAD_VALUE, "%s: kernel '%s', the reference, does not write element %lld of %s",
                             tn_function_name(p->op), reference_kernel(p->op), (long long)k,
                             p->op->contract->outputs[i].name);
        }
    }
    call_free(&other);
    return status;
}

static bool is_float(tn_type type) {
    return TN_BIT(type) & (TN_FLOATS | TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2));
}

/* Half a unit in the last place of 1. */
static double unit(tn_type type) {
    switch (type) {
    case TN_F16: return 0x1p-11;
    case TN_BF16: return 0x1p-8;
    case TN_F32: return 0x1p-24;
    case TN_E4M3: return 0x1p-4;
    case TN_E5M2: return 0x1p-3;
    default: return 0x1p-53;
    }
}

static double tiny(tn_type type) {
    switch (type) {
    case TN_F16: return 0x1p-25;
    case TN_E4M3: return 0x1p-10;
    case TN_E5M2: return 0x1p-17;
    case TN_F64: return DBL_MIN;
    default: return 4 * FLT_MIN;
    }
}

static void nudge(const problem *p, made_call *wide, uint64_t *seed) {
    for (int32_t i = 0; i < wide->n_in; i++) {
        if (!is_float(wide->in[i].type) || p->sample->inputs[i].order != TNI_ORDER_NONE) {
            array_write(&wide->in[i], p->in[i]);
            continue;
        }
        int64_t n = wide->in[i].count; /* the reference's inputs are dense */
        for (int64_t k = 0; k < n; k++) {
            uint64_t bits = random_bits(seed); /* half to one and a half NUDGE: two never cancel for good */
            double by = NUDGE * (0.5 + (double)(bits >> 32) * 0x1p-32);
            tn_set(wide->in[i].type, wide->in[i].tensor.data, k, p->in[i][k] * (bits & 1 ? 1 + by : 1 - by));
        }
    }
}

/* How many numbers a result may be the sum of. */
static double longest_sum(const problem *p) {
    double most = 1, least = INFINITY;
    for (int32_t i = 0; i < p->sample->n_inputs; i++) {
        const tni_dims *shape = &p->sample->inputs[i].shape;
        most = fmax(most, (double)dims_count(shape));
    }
    for (int32_t i = 0; i < p->n_results; i++) {
        if (p->results[i].present && p->results[i].count) least = fmin(least, (double)p->results[i].count);
    }
    double longest = most / least;
    for (int32_t i = 0; i < p->sample->n_inputs; i++) {
        const tni_dims *shape = &p->sample->inputs[i].shape;
        for (int32_t d = 0; d < shape->ndim; d++) longest = fmax(longest, (double)shape->d[d]);
    }
    return longest;
}

static bool rounds_between(const tn_function *op) {
    for (const tn_kernel *k = op->row->kernels; k && k->name; k++) {
        if (k->flags & TNI_ROUNDS_BETWEEN) return true;
    }
    return false;
}

/* The bound holds s until the last run has been looked at. */
static void add_movement(const problem *p, const made_call *wide) {
    for (int32_t i = 0; i < p->n_results; i++) {
        const result *r = &p->results[i];
        if (!r->present || !r->bound) continue;
        const array *a = result_array(wide, r);
        for (int64_t k = 0; k < r->count; k++) {
            double moved = fabs(tn_get(a->type, a->tensor.data, k) - r->value[k]) / NUDGE;
            if (moved > r->bound[k]) r->bound[k] = moved; /* false for NaN */
        }
    }
}

/* The average of s near element k; numbers of ordinary size stand in for neighbours that a small result lacks. */
static double near_average(const double *sums, int64_t count, int64_t k) {
    int64_t begin = k > NEAR ? k - NEAR : 0, end = k + NEAR < count ? k + NEAR + 1 : count;
    double missing = count < NEAR ? (double)(NEAR - count) : 0;
    return (sums[end] - sums[begin] + 0.25 * missing) / ((double)(end - begin) + missing);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static bool same_dims(const tni_dims *a, const tni_dims *b) {
    return a->ndim == b->ndim && memcmp(a->d, b->d, (size_t)a->ndim * sizeof *a->d) == 0;
}

/* Every result and every input has the same shape, or is a single number. */
static bool has_one_shape(const problem *p, const tni_dims **shape) {
    *shape = NULL;
    for (int32_t i = 0; i < p->n_results; i++) {
        const result *r = &p->results[i];
        if (!r->present) continue;
        if (*shape && !same_dims(*shape, &r->shape)) return false;
        *shape = &r->shape;
    }
    for (int32_t i = 0; *shape && i < p->sample->n_inputs; i++) {
        const tni_dims *own = &p->sample->inputs[i].shape;
        if (p->sample->inputs[i].order != TNI_ORDER_NONE) return false;
        if (!same_dims(*shape, own) && dims_count(own) != 1) return false;
    }
    return *shape != NULL;
}

/* Half of the elements change places: do the others come out as they were, and these not? */
static bool is_local(const problem *p, made_call *wide, const tni_dims *shape) {
    const int64_t n = dims_count(shape);
    uint64_t seed = mix_seed(p->seed, 0xe1), bits[2] = {random_bits(&seed), random_bits(&seed)};
    bool any = false;
    for (int32_t i = 0; i < wide->n_in; i++) {
        array *a = &wide->in[i];
        for (int64_t k = 0; k < a->count; k++) {
            const bool moved = a->count == n && bits[k / 64 % 2] >> k % 64 & 1;
            tn_set(a->type, a->tensor.data, k, p->in[i][moved ? (k + 3) % n : k]);
        }
    }
    if (run_reference(wide) != TN_OK) return false;
    for (int32_t i = 0; i < p->n_results; i++) {
        const result *r = &p->results[i];
        const array *a = r->present ? result_array(wide, r) : NULL;
        for (int64_t k = 0; a && k < r->count; k++) {
            const double now = tn_get(a->type, a->tensor.data, k);
            const bool moved = bits[k / 64 % 2] >> k % 64 & 1, same = now == r->value[k];
            if (!moved && !same && !(isnan(now) && isnan(r->value[k]))) return false;
            any |= moved && !same;
        }
    }
    return any;
}

/* The sample, in f64: 1 by element, 0 not, -1: it is not one to tell by. */
static int sample_is_local(const tn_function *op, const tn_sample *sample) {
    enum { LEAST = 16 }; /* elements */
    problem p = {0};
    tni_case *made;
    made_call wide;
    const tni_dims *shape;
    int answer = -1;
    if (tni_sample_case(op->contract, sample->args, tni_sample_type(op->contract), &made) != TN_OK) return -1;
    if (problem_make(&p, op, made, sample, 1) != TN_OK) return -1;
    if (problem_call(&p, &wide, (call_options){.flags = CALL_WIDE}) == TN_OK) {
        const bool solved = run_reference(&wide) == TN_OK && add_results(&p, &wide) == TN_OK &&
                            read_results(&p, &wide) == TN_OK;
        problem_write(&p, &wide); /* what was updated in place is as it was */
        if (solved && has_one_shape(&p, &shape) && dims_count(shape) >= LEAST) answer = is_local(&p, &wide, shape);
        call_free(&wide);
    }
    problem_free(&p);
    return answer;
}

/* By element, where all samples of the operator are that can tell; a shape with rows of one element could not. */
static bool is_elementwise(const problem *p) {
    static const tn_function *known;
    static bool yes;
    const tni_dims *shape;
    if (!has_one_shape(p, &shape)) return false;
    if (known == p->op) return yes;
    bool any = false, all = true;
    for (const tn_sample *sample = p->op->row->samples; sample->args; sample++) {
        const int answer = sample->bench ? -1 : sample_is_local(p->op, sample);
        any |= answer == 1;
        all &= answer != 0;
    }
    known = p->op;
    yes = any && all;
    return yes;
}

/* ---- the bound --------------------------------------------------------------------------------------------------- */

static tn_status finish_bound(const problem *p, result *r, tn_type held, bool elementwise) {
    tn_type acc = tni_acc_type(r->type);
    double n = longest_sum(p), out = unit(r->type), in = unit(acc), c = acc == TN_F64 ? 4 * (48 + n) : 48 + sqrt(n);
    if (elementwise) c = acc == TN_F64 ? 4 * 48 : BY_ELEMENT;
    r->by_element = elementwise && r->type == acc && acc != TN_F64; /* else its own last place is all there is to see */
    const double between = rounds_between(p->op) && tn_type_size(r->type) == 2 ? 4 * out : 0;
    if (held != TN_F64) out += unit(held);                            /* the reference was rounded too */
    double *sums = tni_malloc(((size_t)r->count + 1) * sizeof *sums); /* of s up to each element */
    if (!sums) return TN_NO_MEMORY;
    sums[0] = 0;
    for (int64_t k = 0; k < r->count; k++) sums[k + 1] = sums[k] + (isfinite(r->bound[k]) ? r->bound[k] : 0);
    for (int64_t k = 0; k < r->count; k++) {
        double size = fabs(r->value[k]), s = fmax(r->bound[k], 0.5 * near_average(sums, r->count, k));
        r->bound[k] = p->tolerance * (out * size + (in * c + between) * (size + s)) + tiny(r->type);
    }
    tni_free(sums);
    return TN_OK;
}

static tn_status find_bounds(problem *p, made_call *wide) {
    uint64_t seed = mix_seed(p->seed, 0xb0);
    for (int32_t i = 0; i < p->n_results; i++) {
        result *r = &p->results[i];
        if (!r->present || !is_float(r->type)) continue;
        r->bound = tni_calloc((size_t)r->count + 1, sizeof(double));
        if (!r->bound) return TN_NO_MEMORY;
    }
    int64_t most = 0;
    for (int32_t i = 0; i < p->n_results; i++) most = p->results[i].count > most ? p->results[i].count : most;
    for (int k = 0; k < (most < 2 * NEAR ? MORE_NUDGES : NUDGES); k++) {
        nudge(p, wide, &seed);
        TN_TRY(run_reference(wide));
        add_movement(p, wide);
    }
    const bool elementwise = is_elementwise(p);
    for (int32_t i = 0; i < p->n_results; i++) {
        result *r = &p->results[i];
        if (r->present && r->bound) TN_TRY(finish_bound(p, r, result_array(wide, r)->type, elementwise));
    }
    return TN_OK;
}

tn_status problem_solve(problem *p, bool bounds) {
    made_call wide;
    free_results(p);
    const uint64_t key = solved_key(p, bounds);
    if (solved_find(key, p)) return TN_OK;
    free_results(p);
    TN_TRY(problem_call(p, &wide, (call_options){.flags = CALL_WIDE}));
    tn_status status = run_reference(&wide);
    if (status == TN_OK) status = check_written(p, &wide);
    if (status == TN_OK) status = add_results(p, &wide);
    if (status == TN_OK) status = read_results(p, &wide);
    if (status == TN_OK && bounds) status = find_bounds(p, &wide);
    call_free(&wide);
    if (status == TN_OK) solved_keep(key, p);
    return status;
}
