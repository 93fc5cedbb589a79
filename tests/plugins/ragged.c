/* Operators whose integers must fit together: offsets of ragged rows, permutations, indices that are all different.
 * Their samples ask for such numbers; with others these kernels would read and write anywhere. */
#include <tenon/op.h>

static double get(const tn_view *v, int64_t i) {
    return tn_get(v->type, v->data, i);
}
static void set(const tn_view *v, int64_t i, double value) {
    tn_set(v->type, v->data, i, value);
}
static int64_t at(const tn_view *v, int64_t i) {
    return ((const int64_t *)v->data)[i];
}

/* ---- y[k] = the sum of the rows offsets[k] … offsets[k + 1] - 1 of x: (n, c) ------------------------------------- */

static tn_status sum_segments(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *offsets = tn_in(call, 1), *y = tn_out(call, 0);
    const int64_t m = y->shape[0], c = y->shape[1];
    (void)state;
    for (int64_t k = 0; k < m; k++) {
        for (int64_t i = 0; i < c; i++) {
            double sum = 0;
            for (int64_t row = at(offsets, k); row < at(offsets, k + 1); row++) sum += get(x, row * c + i);
            set(y, k * c + i, sum);
        }
    }
    return TN_OK;
}

/* The gradient goes to every row of a segment. */
static tn_status sum_segments_grad(const tn_call *call, void *state) {
    const tn_view *dy = tn_in(call, 0), *offsets = tn_in(call, 1), *dx = tn_out(call, 0);
    const int64_t m = dy->shape[0], c = dy->shape[1];
    (void)state;
    for (int64_t k = 0; k < m; k++) {
        for (int64_t row = at(offsets, k); row < at(offsets, k + 1); row++) {
            for (int64_t i = 0; i < c; i++) set(dx, row * c + i, get(dy, k * c + i));
        }
    }
    return TN_OK;
}

/* For f32, a row after the other. */
static tn_status sum_segments_f32(const tn_call *call, void *state) {
    const tn_view *offsets = tn_in(call, 1), *y = tn_out(call, 0);
    const int64_t m = y->shape[0], c = y->shape[1];
    const float *x = tn_in(call, 0)->data;
    float *to = y->data;
    (void)state;
    for (int64_t k = 0; k < m; k++) {
        for (int64_t i = 0; i < c; i++) to[k * c + i] = 0;
        for (int64_t row = at(offsets, k); row < at(offsets, k + 1); row++) {
            for (int64_t i = 0; i < c; i++) to[k * c + i] += x[row * c + i];
        }
    }
    return TN_OK;
}

/* Segments have a row at least, it thinks. */
static tn_status sum_segments_never_empty(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *offsets = tn_in(call, 1), *y = tn_out(call, 0);
    const int64_t m = y->shape[0], c = y->shape[1];
    (void)state;
    for (int64_t k = 0; k < m; k++) {
        for (int64_t row = at(offsets, k), first = 1; row < at(offsets, k + 1); row++, first = 0) {
            for (int64_t i = 0; i < c; i++) set(y, k * c + i, get(x, row * c + i) + (first ? 0 : get(y, k * c + i)));
        }
    }
    return TN_OK;
}

/* ---- y[order[i]] = x[i]; and y[i] = x[order[i]], its gradient ---------------------------------------------------- */

static void reorder(const tn_call *call, bool scatter) {
    const tn_view *x = tn_in(call, 0), *order = tn_in(call, 1), *y = tn_out(call, 0);
    const int64_t n = x->shape[0], c = tn_product(x, 1, x->ndim);
    for (int64_t k = 0; k < n * c; k++) {
        const int64_t there = at(order, k / c) * c + k % c;
        if (scatter) {
            set(y, there, get(x, k));
        } else {
            set(y, k, get(x, there));
        }
    }
}
static tn_status scatter(const tn_call *call, void *state) {
    (void)state;
    reorder(call, true);
    return TN_OK;
}
static tn_status gather(const tn_call *call, void *state) {
    (void)state;
    reorder(call, false);
    return TN_OK;
}

/* ---- y[index[i]] += x[i], in place; no index comes twice --------------------------------------------------------- */

static tn_status add_rows(const tn_call *call, void *state) {
    const tn_view *y = tn_in(call, 0), *index = tn_in(call, 1), *x = tn_in(call, 2), *count = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) set(y, at(index, i), get(y, at(index, i)) + get(x, i));
    if (count) set(count, 0, (double)tn_count(x));
    return TN_OK;
}

/* Reads all before it writes any: the same, where no index comes twice. */
static tn_status add_rows_last(const tn_call *call, void *state) {
    const tn_view *y = tn_in(call, 0), *index = tn_in(call, 1), *x = tn_in(call, 2), *count = tn_out(call, 0);
    double *sums = call->workspace;
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) sums[i] = get(y, at(index, i)) + get(x, i);
    for (int64_t i = 0; i < tn_count(x); i++) set(y, at(index, i), sums[i]);
    if (count) set(count, 0, (double)tn_count(x));
    return TN_OK;
}
static size_t a_double_each(const tn_call *call) {
    return (size_t)tn_count(tn_in(call, 2)) * sizeof(double);
}

/* ---- how many of the sorted x are below each limit --------------------------------------------------------------- */

static tn_status below_ref(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *limit = tn_in(call, 1), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(limit); i++) {
        int64_t n = 0;
        for (int64_t k = 0; k < tn_count(x); k++) n += get(x, k) < get(limit, i);
        set(y, i, (double)n);
    }
    return TN_OK;
}

/* By halves, which only finds it where x is sorted. */
static tn_status below_halves(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *limit = tn_in(call, 1), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(limit); i++) {
        int64_t low = 0, high = tn_count(x);
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (get(x, middle) < get(limit, i)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        set(y, i, (double)low);
    }
    return TN_OK;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static const tn_sample segment_samples[] = {
    {"n=9 m=4 c=5 offsets=offsets(n)"},    {"n=40 m=7 c=1 offsets=offsets(n)"},
    {"n=0 m=3 c=2 offsets=offsets(n)"},    {"n=3 m=20 c=2 offsets=offsets(n)"}, /* most have no row */
    {"n=300 m=2 c=17 offsets=offsets(n)"}, {0},
};
static const tn_sample order_samples[] = {
    {"n=9 s=[] order=permutation"}, {"n=33 s=[4] order=permutation"}, {"n=1 s=[2, 3] order=permutation"}, {0}};
static const tn_sample add_samples[] = {
    {"v=50 n=9 index<v index=unique"}, {"v=9 n=9 index<v index=unique"}, {"v=300 n=40 index<v index=unique"}, {0}};
static const tn_sample below_samples[] = {{"n=9 m=20 x=sorted"}, {"n=100 m=7 x=sorted"}, {"n=0 m=3 x=sorted"}, {0}};

#define KERNELS(list, fast, plain, ...)                                                            \
    static const tn_kernel list[] = {{.name = "fast", .device = TN_CPU, .run = fast, __VA_ARGS__}, \
                                     {.name = "ref", .device = TN_CPU, .run = plain},              \
                                     {0}};

KERNELS(sum_segments_kernels, sum_segments_f32, sum_segments, .types = TN_BIT(TN_F32))
KERNELS(never_empty_kernels, sum_segments_never_empty, sum_segments, .types = 0)
KERNELS(sum_segments_grad_kernels, sum_segments_grad, sum_segments_grad, .types = TN_BIT(TN_F32))
KERNELS(scatter_kernels, scatter, scatter, .types = TN_BIT(TN_F32))
KERNELS(gather_kernels, gather, gather, .types = TN_BIT(TN_F32))
KERNELS(add_kernels, add_rows_last, add_rows, .types = 0, .workspace = a_double_each)
KERNELS(below_kernels, below_halves, below_ref, .types = 0)

static const tn_op sum_segments_op = {
    .signature = "sum_segments(x: T[n, c], offsets: i64[m + 1]) -> y: T[m, c]",
    .doc = "Sums of ragged rows.",
    .grad = "x: sum_segments_grad(dy, offsets, n)",
    .kernels = sum_segments_kernels,
    .samples = segment_samples,
};
static const tn_op sum_segments_grad_op = {
    .signature = "sum_segments_grad(dy: T[m, c], offsets: i64[m + 1], n: int) -> dx: T[n, c]",
    .doc = "The gradient of sum_segments.",
    .kernels = sum_segments_grad_kernels,
    .samples = (const tn_sample[]){{"n=9 m=4 c=5 offsets=offsets(9)"}, {"n=5 m=20 c=2 offsets=offsets(5)"}, {0}},
};
static const tn_op never_empty_op = {
    .signature = "never_empty(x: T[n, c], offsets: i64[m + 1]) -> y: T[m, c]",
    .doc = "Sums of ragged rows, wrong where one is empty.",
    .kernels = never_empty_kernels,
    .samples = segment_samples,
};
static const tn_op scatter_op = {
    .signature = "scatter_rows(x: T[n, *s], order: i64[n]) -> y: T[n, *s]",
    .doc = "Row i goes to place order[i].",
    .grad = "x: gather_rows(dy, order)",
    .kernels = scatter_kernels,
    .samples = order_samples,
};
static const tn_op gather_op = {
    .signature = "gather_rows(x: T[n, *s], order: i64[n]) -> y: T[n, *s]",
    .doc = "Row i comes from place order[i].",
    .grad = "x: scatter_rows(dy, order)",
    .kernels = gather_kernels,
    .samples = order_samples,
};
static const tn_op add_op = {
    .signature = "add_at(y: T[v]!, index: i64[n], x: T[n]) -> count: i64[]",
    .doc = "Adds x at different places of y.",
    .kernels = add_kernels,
    .samples = add_samples,
};
static const tn_op below_op = {
    .signature = "count_below(x: T[n], limit: T[m]) -> y: i64[m]",
    .doc = "How many of the sorted x are below each limit.",
    .kernels = below_kernels,
    .samples = below_samples,
};

static const tn_op *const table[] = {
    &sum_segments_op, &sum_segments_grad_op, &never_empty_op, &scatter_op, &gather_op, &add_op, &below_op};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
