/* Rows about where the elements lie: strides, broadcasts, alignment. */
#include "cli/check/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The sample, solved. */
static bool solved_problem(checker *c, problem *p) {
    if (!sample_problem(c, p)) return false;
    if (problem_solve(p, true) == TN_OK) return true;
    check_fail(c, "the reference refused: %s", tn_last_error());
    problem_free(p);
    return false;
}

static void run_with(checker *c, const problem *p, call_options options, const char *what) {
    made_call k;
    if (problem_call(p, &k, options) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    run_and_compare(c, p, &k, what);
    call_free(&k);
}

static void run_layout(checker *c, layout how) {
    problem p;
    if (!solved_problem(c, &p)) return;
    run_with(c, &p, (call_options){.how = how}, "");
    run_with(c, &p, (call_options){.how = how, .dense_out = true}, "into dense outputs");
    problem_free(&p);
}

#define LAYOUT_RUN(NAME, name)           \
    static void run_##name(checker *c) { \
        run_layout(c, NAME);             \
    }
LAYOUT_RUN(TRANSPOSED, transposed)
LAYOUT_RUN(SLICED, sliced)
LAYOUT_RUN(PADDED, padded)
LAYOUT_RUN(REVERSED, reversed)
LAYOUT_RUN(CHANNELS_LAST, channels_last)

/* Every tensor of the call in a layout of its own. */
static void run_mixed(checker *c) {
    problem p;
    if (!solved_problem(c, &p)) return;
    for (int first = 0; first < LAYOUT_COUNT && !c->broken; first++) {
        made_call k;
        char what[64];
        if (problem_call(&p, &k, (call_options){0}) != TN_OK) break;
        bool good = true;
        for (int32_t i = 0; good && i < k.n_in + k.n_out; i++) {
            array *a = i < k.n_in ? &k.in[i] : &k.out[i - k.n_in], old = *a;
            if (a->count < 0) continue;
            good = array_make(a, old.type, old.tensor.ndim, old.shape, (layout)((first + i) % LAYOUT_COUNT), 0);
            array_free(&old);
        }
        if (good) {
            problem_write(&p, &k);
            call_link(&k);
            snprintf(what, sizeof what, "combination %d", first);
            run_and_compare(c, &p, &k, what);
        }
        call_free(&k);
    }
    problem_free(&p);
}

static void run_misaligned(checker *c) {
    problem p;
    if (!solved_problem(c, &p)) return;
    for (int64_t offset = 1; offset <= 15 && !c->broken; offset += c->options.quick ? 2 : 1) {
        char what[64];
        snprintf(what, sizeof what, "%lld elements off", (long long)offset);
        run_with(c, &p, (call_options){.offset = offset}, what);
    }
    problem_free(&p);
}

/* ---- stride 0 ---------------------------------------------------------------------------------------------------- */

/* Makes the values the same along dimension d, then the tensor, with stride 0 there. */
static void repeat_values(double *values, const tni_dims *shape, int32_t d) {
    int64_t inner = 1, outer = 1, n = shape->d[d];
    for (int32_t i = 0; i < d; i++) outer *= shape->d[i];
    for (int32_t i = d + 1; i < shape->ndim; i++) inner *= shape->d[i];
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t k = 1; k < n; k++) {
            memcpy(values + (o * n + k) * inner, values + o * n * inner, (size_t)inner * sizeof *values);
        }
    }
}

/* Input i repeats one element along `d`; d == ndim: along all, a single number for the whole tensor. */
static void run_expanded_once(checker *c, int32_t i, int32_t d) {
    problem p;
    made_call k;
    char what[96];
    if (!sample_problem(c, &p)) return;
    const tni_dims *shape = &p.sample->inputs[i].shape;
    const char *name = c->contract->inputs[p.sample->inputs[i].input].name;
    bool all = d == shape->ndim;
    for (int32_t e = all ? 0 : d; e < (all ? shape->ndim : d + 1); e++) repeat_values(p.in[i], shape, e);
    snprintf(what, sizeof what, all ? "%s of stride 0 everywhere" : "%s of stride 0 in dimension %d", name, d);
    if (problem_solve(&p, true) != TN_OK || problem_call(&p, &k, (call_options){0}) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
    } else {
        array_fill(&k.in[i]); /* what will not be reached may hold anything */
        for (int32_t e = 0; e < shape->ndim; e++) {
            if (all || e == d) k.in[i].strides[e] = 0;
        }
        problem_write(&p, &k);
        run_and_compare(c, &p, &k, what);
        call_free(&k);
    }
    problem_free(&p);
}

static void run_expanded(checker *c) {
    tni_case *shape;
    if (tni_sample_case(c->contract, c->sample->args, c->T, &shape) != TN_OK) {
        check_fail(c, "%s", tn_last_error());
        return;
    }
    for (int32_t i = 0; i < shape->n_inputs; i++) {
        const tni_sample_input *input = &shape->inputs[i];
        if (c->contract->inputs[input->input].inplace || dims_count(&input->shape) == 0) continue;
        /* What is in order along a dimension is not the same all along it. */
        const int32_t end = input->order == TNI_ORDER_NONE ? input->shape.ndim : input->along - 1;
        for (int32_t d = 0; d <= end && input->shape.ndim && !c->broken; d++) {
            run_expanded_once(c, i, d);
        }
    }
    tni_case_free(shape);
}

static const char STRIDES[] = "The kernel says TN_STRIDED, so it gets tensors as they lie in memory: element (i, j) is "
                              "at i * strides[0] + j * strides[1], and strides may be negative. Use the strides of "
                              "every view, or leave TN_STRIDED out and get dense copies.";

const check_row layout_rows[] = {
    {"transposed", "first dimension fastest", TELLS | DEALT, 200000, NULL, run_transposed, STRIDES},
    {"sliced", "every second element of a larger tensor", TELLS | DEALT, 200000, NULL, run_sliced, STRIDES},
    {"padded", "rows of a wider tensor, odd distances", TELLS | DEALT, 200000, NULL, run_padded, STRIDES},
    {"reversed", "negative strides", TELLS | DEALT, 200000, NULL, run_reversed, STRIDES},
    {"channels_last", "(n, c, …) with c fastest", TELLS | DEALT, 200000, NULL, run_channels_last, STRIDES},
    {"mixed", "every tensor in another layout", TELLS | FEW, 20000, NULL, run_mixed, STRIDES},
    {"expanded", "stride 0, as sum().backward() hands it over", TELLS | FEW, 20000, NULL, run_expanded,
     "A stride may be 0: the same element again and again. A kernel with TN_STRIDED must use the strides that it is "
     "given."},
    {"misaligned", "first elements 1 to 15 past a boundary", FEW, 20000, NULL, run_misaligned,
     "Tensors may begin at any multiple of their element's size. Vector loads (float4) need 16 bytes: test the "
     "address, and load single elements where it does not fit."},
    {0},
};
