/* The interpreter against the reference: formulas by shapes, types, layouts. */
#include "tests/fuse/formula_rows.h"

static void check_row(const row *r, tn_type T, tn_type W, int layout) {
    call_of c;
    if (row_open(r, T, W, layout, (layout + 1) % 3, &c)) {
        double **want = ref_run(&c);
        CHECK_ROW(want, "%s: %s", r->formula, tn_last_error());
        bool compiled;
        tn_status status = c.n_parts ? views_run(&c, &compiled) : call_run(&c);
        CHECK_ROW(status == TN_OK, "%s with %s: %s", r->formula, r->shapes, tn_last_error());
        if (want && status == TN_OK) compare(r, &c, want, T, layout);
        ref_free(c.f, want);
    }
    row_close(&c);
}

/* The same bits on any number of threads. */
static void test_threads(void) {
    static const char *const formulas[] = {
        "y = sum(x); z = x - mean(x)", "exp(x - logsumexp(x, -1))",
        "f(x: T[n, c], b: T[c]) -> y: T[n, c], s: T[c] : y = x * b; s = sum_to(x * x, b)"};
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        tni_fuse *f;
        CHECK(tni_fuse_parse(formulas[i], NULL, &f) == TN_OK);
        int64_t shape[2] = {777, 333};
        call_of c = {.f = f};
        random_state = 1;
        for (int k = 0; k < f->contract->n_inputs; k++) {
            array_make(&c.in[k], TN_F32, 2 - k, shape + k, 0);
            array_fill(&c.in[k], -2, 2);
        }
        CHECK(call_make_outputs(&c, 0) == TN_OK);
        char *before[2] = {NULL, NULL};
        for (int threads = 1; threads <= 5; threads++) {
            tn_set_threads(threads);
            CHECK_ROW(call_run(&c) == TN_OK, "%s: %s", formulas[i], tn_last_error());
            for (int k = 0; k < f->contract->n_outputs; k++) {
                size_t bytes = (size_t)array_count(&c.out[k]) * 4;
                if (threads == 1) before[k] = memcpy(malloc(bytes), c.out[k].data, bytes);
                CHECK_ROW(memcmp(before[k], c.out[k].data, bytes) == 0, "%s on %d threads", formulas[i], threads);
            }
        }
        free(before[0]);
        free(before[1]);
        call_free(&c);
        tni_fuse_free(f);
    }
    tn_set_threads(0);
}

/* The Nth allocation fails, for every N: a status, nothing lost. */
static void test_no_memory(void) {
    tni_fuse *f;
    CHECK(tni_fuse_parse("t = exp(x - max(x, axis=-1)); y = t / sum(t, -1); z = x - mean(x)", NULL, &f) == TN_OK);
    call_of c = {.f = f};
    array_make(&c.in[0], TN_F32, 2, (int64_t[]){5, 7}, 0);
    array_fill(&c.in[0], -2, 2);
    CHECK(call_make_outputs(&c, 0) == TN_OK);
    tn_status status = TN_NO_MEMORY;
    for (int64_t n = 1; status == TN_NO_MEMORY && n < 1000; n++) {
        tni_fail_allocation(n);
        status = call_run(&c);
    }
    tni_fail_allocation(0);
    CHECK_ROW(status == TN_OK, "%s", tn_last_error());
    call_free(&c);
    tni_fuse_free(f);
}

/* Calls that do not fit, and shapes that are not known. */
static void test_calls(void) {
    static const struct {
        const char *formula, *shapes, *message; /* shapes: -1 is unknown; the message, or what is inferred */
    } calls[] = {
        {"x + b", "3,4 5", "f: b"},
        {"f(x: T[*s], b: T[*q]) -> y: T[*s] : x + b", "3,4 5", "does not broadcast"},
        {"f(x: T[n, c], b: T[c]) -> y: T[n, c] : x + b", "3,4 5", "b has shape (5), but c is 4"},
        {"f(x: T[n, c], b: T[c]) -> y: T[n] : x + b", "3,4 4", "gives y a dimension of 4 elements"},
        {"f(x: T[n, c]) -> y: T[n] : max(x, axis=-1)", "3,0", "max of no elements"},
        {"f(x: T[*s], b: T[*s]?) -> y: T[*s] : x + b", "3,4 -", "y needs b, which is absent"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        tni_fuse *f;
        tni_fuse_options options = {.name = "f"};
        CHECK_ROW(tni_fuse_parse(calls[i].formula, &options, &f) == TN_OK, "%s", tn_last_error());
        call_of c = {.f = f};
        const char *shapes = calls[i].shapes;
        for (int k = 0; k < f->contract->n_inputs; k++) {
            int64_t shape[TN_MAX_RANK];
            int ndim = parse_shape(&shapes, shape);
            if (ndim >= 0) array_make(&c.in[k], TN_F32, ndim, shape, 0);
        }
        tn_status status = call_make_outputs(&c, 0);
        if (status == TN_OK) status = call_run(&c);
        CHECK_ROW(status != TN_OK && strstr(tn_last_error(), calls[i].message), "%s with %s: %s", calls[i].formula,
                  calls[i].shapes, status == TN_OK ? "taken" : tn_last_error());
        call_free(&c);
        tni_fuse_free(f);
    }
    tni_fuse *f;
    CHECK(tni_fuse_parse("y = x * b; z = sum(x * b)", NULL, &f) == TN_OK);
    int64_t x[2] = {-1, 4}, b[1] = {4};
    tn_tensor tx = tn_dense(NULL, TN_BF16, 2, x), tb = tn_dense(NULL, TN_BF16, 1, b);
    const tn_tensor *in[2] = {&tx, &tb};
    tn_args args = {.in = in, .n_in = 2};
    tn_spec specs[2];
    CHECK_ROW(run_infer(f, &args, specs) == TN_OK, "%s", tn_last_error());
    CHECK(specs[0].ndim == 2 && specs[0].shape[0] == -1 && specs[0].shape[1] == 4 && specs[0].type == TN_BF16);
    CHECK(specs[1].ndim == 0 && specs[1].type == TN_BF16);
    tni_fuse_free(f);
}

int main(void) {
    static const struct {
        tn_type T, W;
        int layout;
    } ways[] = {{TN_F64, TN_F64, 0},  {TN_F32, TN_F32, 0}, {TN_F32, TN_F64, 1},
                {TN_BF16, TN_F32, 0}, {TN_F16, TN_F16, 2}, {TN_F32, TN_F32, 3}};
    /* With a sanitizer the formulas take turns: its faults are those of the loops, which formulas share. */
    const bool all = !IS_CHECKED || getenv("TENON_TEST_ALL");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            if (all || k % 3 == i % 3) check_row(&rows[i], ways[k].T, ways[k].W, ways[k].layout);
        }
    }
    test_threads();
    test_no_memory();
    test_calls();
    printf("%d formulas\n", (int)(sizeof rows / sizeof rows[0]));
    return test_end();
}
