/* sum: contract, gradient, reference. The vectorised kernels are in sum_cpu.c. */
#include "sum.h"

#include <string.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(sum)
TNI_CPU_DECLARE(sum_grad)
TNI_CUDA_DECLARE(sum)
TNI_CUDA_DECLARE(sum_grad)

static bool is_reduced(const tn_value *axes, int dim) {
    for (int k = 0; k < axes->count; k++)
        if (axes->ints[k] == dim) return true;
    return false;
}

/* ---- reference ------------------------------------------------------------------------------------------------------
 * Counting through the reduced dimensions of dense x only, or through the kept ones only: where is the i-th? */
static int64_t place(const tn_view *x, const tn_value *axes, bool reduced, int64_t i) {
    int64_t at = 0, step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        if (is_reduced(axes, d) == reduced) {
            at += i % x->shape[d] * step;
            i /= x->shape[d];
        }
        step *= x->shape[d];
    }
    return at;
}

static int64_t reduced_count(const tn_view *x, const tn_value *axes) {
    int64_t n = 1;
    for (int k = 0; k < axes->count; k++) n *= x->shape[axes->ints[k]];
    return n;
}

static tn_status sum_ref(const tn_call *call, void *state) {
    (void)state;
    const sum_args a = sum_args_of(call);
    const int64_t outputs = tn_count(a.y), n = reduced_count(a.x, a.axes);
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t first = place(a.x, a.axes, false, i);
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += get(a.x, first + place(a.x, a.axes, true, j));
        set(a.y, i, sum);
    }
    return TN_OK;
}

static tn_status sum_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const sum_grad_args a = sum_grad_args_of(call);
    const int64_t outputs = tn_count(a.dy), n = reduced_count(a.dx, a.axes);
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t first = place(a.dx, a.axes, false, i);
        const double d = get(a.dy, i);
        for (int64_t j = 0; j < n; j++) set(a.dx, first + place(a.dx, a.axes, true, j), d);
    }
    return TN_OK;
}

/* ---- how the vectorised kernels divide their work ---------------------------------------------------------------- */

void tni_sum_strides(const tn_view *like, const tn_view *v, const tn_value *axes, int64_t *strides) {
    const bool all = v->ndim == like->ndim;
    for (int d = 0, k = 0; d < like->ndim; d++) {
        const bool reduced = is_reduced(axes, d);
        strides[d] = reduced ? 0 : v->strides[k];
        if (all || !reduced) k++;
    }
}

tni_rows tni_sum_dims(const tni_rows *all, bool reduced) {
    tni_rows rows = {.n = 1, .count = 1, .n_views = all->n_views};
    for (int d = 0; d < all->n_dims; d++) {
        if ((all->strides[d][1] == 0) != reduced) continue;
        rows.shape[rows.n_dims] = all->shape[d];
        memcpy(rows.strides[rows.n_dims++], all->strides[d], sizeof all->strides[d]);
        rows.count *= all->shape[d];
    }
    return rows;
}

/* Enough parts to share out, but each with some thousand numbers to add and, of columns, some tens of rows. */
static void divide(tni_sum *s, int64_t elements) {
    const int64_t rows = !s->by_rows ? 64 : s->interleaved ? 4 : 1; /* at least, in a part */
    const int64_t most = min(elements / s->items / 16384, s->units / rows);
    const int64_t parts = min(ceil_div(64, s->items), most);
    s->per_part = parts > 1 ? ceil_div(s->units, parts) : s->units;
    s->parts = s->units > 0 ? ceil_div(s->units, s->per_part) : 1;
    s->sums = s->interleaved || s->parts > 1 ? s->parts * s->outputs : 0;
}

/* y has elements. */
tni_sum tni_sum_of(const tn_view *x, const tn_view *y, const tn_value *axes) {
    int64_t strides[TN_MAX_RANK];
    tni_sum_strides(x, y, axes, strides);
    const tn_view spread = {.shape = x->shape, .strides = strides, .ndim = x->ndim};
    const tn_view *views[] = {x, &spread};
    tni_rows all = tni_rows_of(views, 2, -1);

    tni_sum s = {.n = 1, .step = 1, .y_step = 1, .fold = 1, .outputs = tn_count(y)};
    if (all.n_dims > 0) {
        int64_t inner[TNI_ROWS_MAX];
        s.n = tni_rows_take(&all, all.n_dims - 1, inner);
        s.step = inner[0];
        s.y_step = inner[1];
        s.by_rows = s.y_step == 0;
    }
    s.kept = tni_sum_dims(&all, false);
    s.reduced = tni_sum_dims(&all, true);
    const int last = s.reduced.n_dims - 1;
    if (s.by_rows) {
        s.units = s.reduced.count * ceil_div(s.n, TNI_SUM_PIECE);
        s.interleaved = s.outputs > 1 && s.n < TNI_SUM_SHORT && s.units >= 8;
        s.items = s.interleaved ? 1 : s.outputs;
    } else {
        const bool many = s.reduced.count > TNI_SUM_FEW;
        if (many && s.n < TNI_SUM_NARROW && s.step == 1 && s.reduced.strides[last][0] == s.n)
            s.fold = 16 / (s.n % 16 == 0 ? 16 : s.n % 8 == 0 ? 8 : s.n % 4 == 0 ? 4 : s.n % 2 == 0 ? 2 : 1);
        s.units = s.reduced.count;
        s.items = s.kept.count * ceil_div(s.n, TNI_SUM_TILE);
    }
    divide(&s, tn_count(x));
    return s;
}

/* The sums of the parts */
size_t tni_sum_workspace(const tn_call *call) {
    const sum_args a = sum_args_of(call);
    if (tn_count(a.y) == 0) return 0;
    return (size_t)tni_sum_of(a.x, a.y, a.axes).sums * sizeof(double);
}

static const tn_kernel sum_kernels[] = {
    TNI_CPU_KERNELS(sum, .flags = TN_STRIDED, .workspace = tni_sum_workspace),
    TNI_CUDA_KERNEL(sum, .flags = TN_STRIDED, .workspace = tni_sum_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = sum_ref},
    {0},
};

static const tn_kernel sum_grad_kernels[] = {
    TNI_CPU_KERNELS(sum_grad, .flags = TN_STRIDED),
    TNI_CUDA_KERNEL(sum_grad, .flags = TN_STRIDED),
    {.name = "ref", .device = TN_CPU, .run = sum_grad_ref},
    {0},
};

static const tn_sample sum_samples[] = {
    {"s=[]"},
    {"s=[7]"},
    {"s=[4, 33]"},
    {"s=[4, 33] axes=[1]"},
    {"s=[65, 7] axes=[0] keepdim=true"},
    {"s=[3, 5, 17] axes=[1]"},
    {"s=[3, 5, 17] axes=[-1, 0]"},
    {"s=[2, 3, 4, 5, 6] axes=[1, 3] keepdim=true"},
    {"s=[2, 3, 4, 5] axes=[0, 2]"},
    {"s=[1, 9, 1] axes=[0, 2]"},
    {"s=[5000]"},
    {"s=[70000] axes=[0]"},
    {"s=[300, 257] axes=[0]"},
    {"s=[300, 3] axes=[1]"},
    {"s=[3, 700] axes=[0]"},
    {"s=[70, 1] axes=[1]"},
    {"s=[0]"},
    {"s=[3, 0, 4] axes=[1]"},
    {"s=[3, 0, 4] axes=[0]"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axes=[1]", .bench = true},
    {"s=[4096, 1024] axes=[0]", .bench = true},
    {"s=[64, 256, 256] axes=[1]", .bench = true},
    {0},
};

static const tn_sample sum_grad_samples[] = {
    {"shape=[]"},
    {"shape=[7]"},
    {"shape=[4, 33]"},
    {"shape=[4, 33] axes=[1]"},
    {"shape=[65, 7] axes=[0] keepdim=true"},
    {"shape=[3, 5, 17] axes=[1]"},
    {"shape=[2, 3, 4, 5, 6] axes=[1, 3] keepdim=true"},
    {"shape=[2, 3, 4, 5] axes=[0, 2]"},
    {"shape=[0]"},
    {"shape=[3, 0, 4] axes=[1]"},
    {"shape=[4096, 1024]", .bench = true},
    {"shape=[4096, 1024] axes=[1]", .bench = true},
    {"shape=[4096, 1024] axes=[0]", .bench = true},
    {0},
};

const tn_op tni_ops_sum[] = {
    {
        .signature = "sum(x: T[*s], axes: axes = [], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]",
        .doc = "The sum over some axes; [] is all of them.",
        .grad = "x: sum_grad(dy, *s)",
        .autocast = "32",
        .kernels = sum_kernels,
        .samples = sum_samples,
    },
    {
        .signature = "sum_grad(dy: T[reduce(*shape, axes, keepdim)], shape: ints, axes: axes = [], "
                     "keepdim: bool = false) -> dx: T[*shape]",
        .doc = "The gradient of sum: dy, repeated along the axes that were summed.",
        .grad = "dy: sum(ddx)",
        .kernels = sum_grad_kernels,
        .samples = sum_grad_samples,
    },
    {0},
};
