/* How many passes over memory formulas with several reductions are on a GPU. Their results are compared with the
 * reference in test_fuse_cuda; here nothing is compiled or run. */
#include "tests/fuse/harness.h"

#include "fuse/plan/backend.h"

#define GROUP_NORM                                                                                                  \
    "f(x: T[n, c, *s], w: T[c], groups: int = 4) -> y: T[n, c, *s] where c % groups == 0 : (x - mean(x, axis=[c / " \
    "groups, s])) * rsqrt(var(x, axis=[c / groups, s]) + 0.1) * w"
#define CHANNELS "f(x: T[n, c, *s], dy: T[n, c, *s], w: T[c]) -> y: T[n, c, *s], z: T[c] : "

static const struct {
    row row;
    int32_t passes;
} rows[] = {
    /* gamma has no dimension of its own for s, and all the same a group is a row; a very long one is not */
    {{GROUP_NORM, "3,8,5,7 8", -2, 2}, 1},
    {{GROUP_NORM, "3,8,1024,600 8", -2, 2}, 2},
    {{"f(x: T[n, c, *s], w: T[c], groups: int = 4) -> y: T[n, c, *s], v: T[c] where c % groups == 0 : y = (x - mean(x, "
      "axis=[c / groups, s])) * w; v = w * 2",
      "3,8,5,7 8", -2, 2},
     3},
    /* a row's numbers, the mean, what is off it, and the result; what is not summed up along rows has a pass less */
    {{CHANNELS "d = x - sum_to(x, w) * 0.1; z = sum_to(d * dy, w); y = d * z", "3,8,5,7 3,8,5,7 8", -2, 2}, 5},
    {{CHANNELS "d = x - sum_to(x, w) * 0.1; z = sum_to(d * dy, w); y = d * z", "3,8,5,6 3,8,5,6 8", -2, 2}, 4},
    /* a variance alone waits for nothing */
    {{"f(x: T[n, c, *s]) -> y: T[n, c, *s] : (x - mean(x, axis=[n, s])) * rsqrt(var(x, axis=[n, s]) + 0.1)", "3,8,5,7",
      -2, 2},
     2},
    {{"f(x: T[n, c, *s], w: T[c]) -> y: T[n, c, *s] : k = count(x) / count(w); d = x - sum_to(x, w) / k; "
      "y = d * rsqrt(sum_to(d * d, w) / k + 0.1)",
      "3,8,5,7 8", -2, 2},
     2},
};

static void check_passes(const row *r, int32_t wanted) {
    static views v;
    call_of c;
    if (row_open(r, TN_F32, TN_F32, 0, 0, &c)) {
        tni_program *program = NULL;
        char *source = NULL;
        make_views(&c, &v);
        CHECK_ROW(tni_fuse_emit(c.f, &v.call, "cuda", &program, &source) == TN_OK, "%s", tn_last_error());
        const int32_t made = program ? program->n_passes : 0;
        CHECK_ROW(made == wanted, "%s with %s: %d passes, not %d", r->formula, r->shapes, (int)made, (int)wanted);
        tni_program_free(program);
        tni_free(source);
    }
    row_close(&c);
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) check_passes(&rows[i].row, rows[i].passes);
    return test_end();
}
