/* Calls in slices: how many there are, and that results are right, and the same bits on any number of threads. Compiled
 * loops are in test_fuse_c. */
#include "tests/fuse/harness.h"

#include "fuse/plan/backend.h"

#define NORM(axes) "(x - mean(x, axis=" axes ")) * rsqrt(var(x, axis=" axes ") + 0.1)"

static const struct {
    row row;
    int64_t slices; /* in f32 */
} rows[] = {
    {{"f(x: T[n, c, *s], g: T[c]) -> y: T[n, c, *s] : " NORM("[n, s]") " * g", "4,12,50,60 12", -2, 2}, 3},
    {{"f(x: T[n, c, *s]) -> y: T[n, c, *s], m: T[c] : y = " NORM("[n, s]") "; m = max(x, axis=[n, s])", "4,12,50,60",
      -2, 2},
     3},
    /* a number of slices that divides the size, and slices that are not too small for that */
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : " NORM("[n, s]"), "4,14,3000", -2, 2}, 7},
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : " NORM("[n, s]"), "4,31,1200", -2, 2}, 1},
    /* along several dimensions, the outermost first */
    {{"f(x: T[n, g, c, s], w: T[g, c]) -> y: T[n, g, c, s] : " NORM("[c, s]") " * w", "2,8,25,800 8,25", -2, 2}, 8},
    {{"f(x: T[n, g, c, s], w: T[g, c]) -> y: T[n, g, c, s], m: T[g] : y = " NORM("[c, s]") " * w; m = sum(x, axis=[n, "
                                                                                           "c, s])",
      "2,8,25,800 8,25", -2, 2},
     8},
    /* one pass; or all of it at once */
    {{"f(x: T[n, c]) -> y: T[n, c] : " NORM("-1"), "300,600", -2, 2}, 1},
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : " NORM("[n, s]"), "4,4,100", -2, 2}, 1},
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : x / (1 + sum(x * x))", "4,12,3000", -2, 2}, 1},
    {{"f(x: T[n, c]) -> y: T[n, c] : " NORM("n"), "300,600", -2, 2}, 1},
    /* positions count on from slice to slice; random numbers, too */
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : (x + index(c)) / (1 + max(x, axis=[n, s]))", "4,12,3000", -2, 2}, 1},
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : (x + index(s)) / (1 + max(x, axis=[n, s]))", "4,12,3000", 0, 2}, 3},
    {{"f(x: T[n, c, s], seed: i64[2]) -> y: T[n, c, s] : (x + rand(seed)) / (1 + max(x, axis=[n, s]))", "4,12,3000 2",
      0, 2},
     1},
    /* the size of it all is not a slice's */
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : (x + count(x, axis=c)) / (1 + max(x, axis=[n, s]))", "4,12,3000", 0, 2}, 3},
    /* other slices may still read what one would update */
    {{"x! = x - mean(x, axis=[0, 2])", "4,12,3000", -2, 2}, 1},
    /* parts are views */
    {{"f(x: T[n, c, s]) -> y: T[n, c, s] : flip(x, c) / (1 + max(x, axis=[n, s]))", "4,12,3000", 0, 2}, 4},
};

static int64_t slices_of(const call_of *c) {
    static views v;
    tni_program *program = NULL;
    make_views(c, &v);
    CHECK_ROW(tni_fuse_bind(c->f, &v.call, &program) == TN_OK, "%s", tn_last_error());
    const int64_t made = program ? program->n_slices : 0;
    tni_program_free(program);
    return made;
}

static void run(call_of *c, int threads, char *copy) {
    bool compiled;
    const array *out = &c->out[0];
    CHECK(tn_set_threads(threads) == TN_OK);
    CHECK_ROW(views_run(c, &compiled) == TN_OK, "%s: %s", c->f->contract->name, tn_last_error());
    if (copy && out->memory) memcpy(copy, out->memory, out->bytes);
}

static void check_row(const row *r, int64_t slices, tn_type T, int layout) {
    call_of c;
    if (row_open(r, T, T, layout, layout, &c)) {
        double **want = ref_run(&c);
        CHECK_ROW(T != TN_F32 || slices_of(&c) == slices, "%s with %s: %lld slices", r->formula, r->shapes,
                  (long long)slices_of(&c));
        char *copy = malloc(c.out[0].bytes + 1);
        run(&c, 1, copy);
        if (want) compare(r, &c, want, T, layout);
        for (int threads = 2; threads <= 6 && c.out[0].memory; threads += 4) {
            run(&c, threads, NULL);
            CHECK_ROW(memcmp(copy, c.out[0].memory, c.out[0].bytes) == 0, "%s: other bits with %d threads", r->formula,
                      threads);
        }
        free(copy);
        ref_free(c.f, want);
    }
    row_close(&c);
}

int main(void) {
    setenv("TENON_JIT", "0", 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i += IS_CHECKED ? 3 : 1) {
        check_row(&rows[i].row, rows[i].slices, TN_F32, 0);
        check_row(&rows[i].row, rows[i].slices, i % 2 ? TN_BF16 : TN_F64, 1 + (int)(i % 4));
    }
    return test_end();
}
