/* triu and tril: a triangle of each matrix is kept, the rest is 0. */
#include "triangle.h"

#include <stdlib.h>
#include <string.h>

#include "core/host/arith.h"
#include "cuda/driver/cuda.h"

/* ---- matrices in memory order ------------------------------------------------------------------------------------ */

triangle triangle_of(const tn_call *call, bool upper) {
    const triu_args a = triu_args_of(call);
    const int32_t row = a.x->ndim - 2, column = a.x->ndim - 1;
    const bool turned = llabs(a.y->strides[row]) < llabs(a.y->strides[column]);
    const int32_t inner = turned ? row : column, outer = turned ? column : row;
    const tn_view *views[] = {a.y, a.x};
    triangle t = {.x = a.x, .y = a.y, .n = a.x->shape[inner], .lines = a.x->shape[outer]};
    for (int k = 0; k < 2; k++) {
        t.step[k] = views[k]->strides[inner];
        t.line_step[k] = views[k]->strides[outer];
    }
    /* Kept is what has column - row >= diagonal, or <=. Seen along columns, that turns round. A diagonal beyond the
     * matrix, which may be as large as an integer gets, is as good as the one beside it. */
    const int64_t diagonal = max(-a.x->shape[row] - 1, min(a.x->shape[column] + 1, a.diagonal));
    t.from_start = turned == upper;
    t.offset = turned ? -diagonal : diagonal;
    if (t.from_start) t.offset++;
    /* The dimensions around the matrices. */
    const tn_view y = {.shape = a.y->shape, .strides = a.y->strides, .ndim = row};
    const tn_view x = {.shape = a.x->shape, .strides = a.x->strides, .ndim = row};
    const tn_view *around[] = {&y, &x};
    t.matrices = tni_rows_of(around, 2, -1);
    return t;
}

/* ---- the CPU's kernel -------------------------------------------------------------------------------------------- */

static void copy_line(char *to, int64_t step, const char *from, int64_t apart, int64_t n, size_t size) {
    if (n <= 0 || to == from) return; /* in place, they are where they belong */
    if (step == 1 && apart == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(to + i * step * (int64_t)size, from + i * apart * (int64_t)size, size);
}

static void clear_line(char *to, int64_t step, int64_t n, size_t size) {
    if (n > 0 && step == 1) memset(to, 0, (size_t)n * size);
    for (int64_t i = 0; step != 1 && i < n; i++) memset(to + i * step * (int64_t)size, 0, size);
}

/* How many lines from this one on, of at most so many, are as it is: nothing or all of each is kept, and they lie one
 * behind the other. */
static int64_t lines_alike(const triangle *t, int64_t line, int64_t border, int64_t most) {
    const bool whole_on_both = t->step[0] == 1 && t->line_step[0] == t->n && t->step[1] == 1 && t->line_step[1] == t->n;
    if (!whole_on_both || (border > 0 && border < t->n)) return 1;
    return border > 0 ? most : max(1, min(most, 1 - t->offset - line));
}

static void do_lines(void *arg, int64_t begin, int64_t end) {
    const triangle *t = arg;
    const size_t size = tn_type_size(t->y->type);
    const int64_t bytes = (int64_t)size;
    tni_row at = tni_row_at(&t->matrices, begin / t->lines);
    int64_t line = begin % t->lines;
    for (int64_t i = begin, alike; i < end; i += alike) {
        char *to = (char *)t->y->data + (at.at[0] + line * t->line_step[0]) * bytes;
        const char *from = (const char *)t->x->data + (at.at[1] + line * t->line_step[1]) * bytes;
        const int64_t border = max(0, min(t->n, line + t->offset));
        alike = lines_alike(t, line, border, min(t->lines - line, end - i));
        const int64_t n = alike * t->n, cut = alike * border;
        const int64_t first = t->from_start ? 0 : cut, last = t->from_start ? cut : n;
        clear_line(to, t->step[0], first, size);
        copy_line(to + first * t->step[0] * bytes, t->step[0], from + first * t->step[1] * bytes, t->step[1],
                  last - first, size);
        clear_line(to + last * t->step[0] * bytes, t->step[0], n - last, size);
        line += alike;
        if (line < t->lines) continue;
        line = 0;
        tni_row_next(&t->matrices, &at);
    }
}

static tn_status run(const tn_call *call, bool upper) {
    triangle t = triangle_of(call, upper);
    if (tn_count(t.y) == 0) return TN_OK;
    tn_parallel(call, t.matrices.count * t.lines, tni_row_grain(t.n), do_lines, &t);
    return TN_OK;
}

static tn_status triu_cpu(const tn_call *call, void *state) {
    (void)state;
    return run(call, true);
}

static tn_status tril_cpu(const tn_call *call, void *state) {
    (void)state;
    return run(call, false);
}

/* ---- the plain version ------------------------------------------------------------------------------------------- */

static void plain(const tn_call *call, bool upper) {
    const triu_args a = triu_args_of(call);
    const int64_t m = a.x->shape[a.x->ndim - 1], n = a.x->shape[a.x->ndim - 2], count = tn_count(a.x);
    const size_t size = tn_type_size(a.x->type);
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = i % m, row = i / m % n;
        const bool kept = upper ? column - row >= a.diagonal : column - row <= a.diagonal;
        char *to = (char *)a.y->data + i * (int64_t)size;
        memset(to, 0, size);
        if (kept) memcpy(to, (const char *)a.x->data + i * (int64_t)size, size);
    }
}

static tn_status triu_ref(const tn_call *call, void *state) {
    (void)state;
    plain(call, true);
    return TN_OK;
}

static tn_status tril_ref(const tn_call *call, void *state) {
    (void)state;
    plain(call, false);
    return TN_OK;
}

static const tn_kernel triu_kernels[] = {
    {.name = "rows", .device = TN_CPU, .flags = TN_STRIDED | TN_ALIAS, .run = triu_cpu},
    TNI_CUDA_KERNEL(triu, .flags = TN_STRIDED | TN_ALIAS),
    {.name = "ref", .device = TN_CPU, .run = triu_ref},
    {0},
};

static const tn_kernel tril_kernels[] = {
    {.name = "rows", .device = TN_CPU, .flags = TN_STRIDED | TN_ALIAS, .run = tril_cpu},
    TNI_CUDA_KERNEL(tril, .flags = TN_STRIDED | TN_ALIAS),
    {.name = "ref", .device = TN_CPU, .run = tril_ref},
    {0},
};

static const tn_sample samples[] = {
    {"r=[] n=7 m=7"},
    {"r=[3] n=4 m=33"},
    {"r=[2, 3] n=33 m=4 diagonal=-2"},
    {"r=[2] n=40 m=40 diagonal=1"},
    {"r=[2] n=5 m=9 diagonal=20"},
    {"r=[2] n=5 m=9 diagonal=-20"},
    {"r=[] n=1 m=1"},
    {"r=[2] n=0 m=4"},
    {"r=[2] n=4 m=0"},
    {"r=[] n=300 m=257 diagonal=3"},
    {"r=[2] n=300 m=5 diagonal=-100"}, /* lines of which all is kept, and lines of which nothing is */
    {"r=[16] n=2048 m=2048", .bench = true},
    {0},
};

const tn_op tni_ops_triangle[] = {
    {
        .signature = "triu<T: any>(x: T[*r, n, m], diagonal: int = 0) -> y: T[*r, n, m]",
        .doc = "What is on a diagonal of each matrix and above it; the rest is 0.",
        .grad = "x: triu(dy)",
        .kernels = triu_kernels,
        .samples = samples,
    },
    {
        .signature = "tril<T: any>(x: T[*r, n, m], diagonal: int = 0) -> y: T[*r, n, m]",
        .doc = "What is on a diagonal of each matrix and below it; the rest is 0.",
        .grad = "x: tril(dy)",
        .kernels = tril_kernels,
        .samples = samples,
    },
    {0},
};
