/* segment_sum: rows that belong together are added up. Which do is said by an id for each row, or by where each segment
 * begins. */
#include "segment_sum.h"

#include <inttypes.h>
#include <string.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"
#include "ops/lookup/lookup.h"

TNI_CPU_DECLARE(lookup_add)
TNI_CPU_DECLARE(segment_sum_offsets)
TNI_CUDA_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_take)
TNI_CUDA_DECLARE(segment_sum_offsets)
TNI_CUDA_DECLARE(segment_sum_offsets_grad)

/* ---- by ids ------------------------------------------------------------------------------------------------------ */

static tni_lookup segment_sum_lookup(const tn_call *call) {
    const segment_sum_args a = segment_sum_args_of(call);
    tni_lookup l = {.from = a.x, .to = a.y, .index = a.ids, .index_name = "ids", .skipped = -1, .drops_negative = true};
    l.v = a.segments;
    tni_lookup_around(&l, a.x, 0);
    tni_lookup_by_row(&l);
    return l;
}

static tni_lookup segment_sum_grad_lookup(const tn_call *call) {
    const segment_sum_grad_args a = segment_sum_grad_args_of(call);
    tni_lookup l = {
        .from = a.dy, .to = a.dx, .index = a.ids, .index_name = "ids", .skipped = -1, .drops_negative = true};
    l.v = a.dy->shape[0];
    tni_lookup_around(&l, a.dy, 0);
    tni_lookup_by_row(&l);
    return l;
}

static const tni_lookup_kind sum_kind = {segment_sum_lookup}, sum_grad_kind = {segment_sum_grad_lookup};
static const tn_kernel segment_sum_kernels[] = {TNI_ADD_KERNELS(sum_kind), {0}};
static const tn_kernel segment_sum_grad_kernels[] = {TNI_TAKE_KERNELS(sum_grad_kind), {0}};

/* ---- by offsets -------------------------------------------------------------------------------------------------- */

tn_status tni_segment_check(const tn_call *call, const tn_view *offsets, int64_t n) {
    for (int64_t i = 0, before = 0; i < offsets->shape[0]; i++) {
        const int64_t at = offset_at(offsets, i);
        if (at < before || at > n) {
            return tn_fail(TN_BAD_VALUE,
                           "%s: offsets[%" PRId64 "] is %" PRId64 ", must be from %" PRId64 " to %" PRId64, call->name,
                           i, at, before, n);
        }
        before = at;
    }
    return TN_OK;
}

/* x: (n, inner). Segment k has the rows from offsets[k] to offsets[k + 1]. */
static tn_status segment_sum_offsets_ref(const tn_call *call, void *state) {
    (void)state;
    const segment_sum_offsets_args a = segment_sum_offsets_args_of(call);
    const int64_t n = a.x->shape[0], m = a.y->shape[0], inner = tn_product(a.x, 1, a.x->ndim);
    TN_TRY(tni_segment_check(call, a.offsets, n));
    for (int64_t k = 0; k < m; k++) {
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            for (int64_t p = offset_at(a.offsets, k); p < offset_at(a.offsets, k + 1); p++)
                sum += get(a.x, p * inner + i);
            set(a.y, k * inner + i, sum);
        }
    }
    return TN_OK;
}

/* Each row of dx is that of its segment; 0 before the first and behind the last. */
static tn_status segment_sum_offsets_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const segment_sum_offsets_grad_args a = segment_sum_offsets_grad_args_of(call);
    const int64_t m = a.dy->shape[0], inner = tn_product(a.dy, 1, a.dy->ndim);
    TN_TRY(tni_segment_check(call, a.offsets, a.n));
    for (int64_t p = 0; p < a.n; p++) {
        int64_t k = 0;
        while (k < m && offset_at(a.offsets, k + 1) <= p) k++;
        const bool inside = k < m && offset_at(a.offsets, k) <= p;
        for (int64_t i = 0; i < inner; i++) set(a.dx, p * inner + i, inside ? get(a.dy, k * inner + i) : 0);
    }
    return TN_OK;
}

/* The same, segment by segment. */
static void copy_segments(void *arg, int64_t begin, int64_t end) {
    const segment_sum_offsets_grad_args *a = arg;
    const size_t bytes = (size_t)tn_product(a->dy, 1, a->dy->ndim) * tn_type_size(a->dy->type);
    for (int64_t k = begin; k < end; k++) {
        const char *from = (const char *)a->dy->data + (size_t)k * bytes;
        for (int64_t p = offset_at(a->offsets, k); p < offset_at(a->offsets, k + 1); p++)
            memcpy((char *)a->dx->data + (size_t)p * bytes, from, bytes);
    }
}

static tn_status segment_sum_offsets_grad_copy(const tn_call *call, void *state) {
    (void)state;
    segment_sum_offsets_grad_args a = segment_sum_offsets_grad_args_of(call);
    const int64_t m = a.dy->shape[0], inner = tn_product(a.dy, 1, a.dy->ndim);
    const size_t bytes = (size_t)inner * tn_type_size(a.dy->type);
    TN_TRY(tni_segment_check(call, a.offsets, a.n));
    const int64_t first = offset_at(a.offsets, 0), last = offset_at(a.offsets, m);
    memset(a.dx->data, 0, (size_t)first * bytes);
    memset((char *)a.dx->data + (size_t)last * bytes, 0, (size_t)(a.n - last) * bytes);
    const int64_t each = m > 0 ? (a.n / m + 1) * max(inner, 1) : 1; /* elements of a segment, about */
    tn_parallel(call, m, max(32768 / each, 1), copy_segments, &a);
    return TN_OK;
}

static const tn_kernel segment_sum_offsets_kernels[] = {
    TNI_CPU_KERNELS(segment_sum_offsets),
    TNI_CUDA_KERNEL(segment_sum_offsets, .workspace = tni_segment_sum_offsets_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = segment_sum_offsets_ref},
    {0},
};

static const tn_kernel segment_sum_offsets_grad_kernels[] = {
    TNI_CUDA_KERNEL(segment_sum_offsets_grad, .workspace = tni_segment_sum_offsets_grad_cuda_workspace),
    {.name = "copy", .device = TN_CPU, .run = segment_sum_offsets_grad_copy},
    {.name = "ref", .device = TN_CPU, .run = segment_sum_offsets_grad_ref},
    {0},
};

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static const tn_sample segment_sum_samples[] = {
    {"n=9 s=[4] segments=3 ids<segments"},
    {"n=200 s=[33] segments=7 ids<segments ids=i32"},
    {"n=20 s=[2, 3] segments=30 ids<segments ids=sorted"},
    {"n=500 s=[] segments=2 ids<segments"},
    {"n=0 s=[5] segments=3 ids<segments"},
    {"n=5 s=[0] segments=3 ids<segments"},
    {"n=400 s=[64] segments=1 ids<segments"},
    {"n=1048576 s=[64] segments=65536 ids<segments", .bench = true},
    {0},
};

static const tn_sample segment_sum_grad_samples[] = {
    {"m=3 s=[4] n=9 ids<m"},
    {"m=7 s=[33] n=200 ids<m ids=i32"},
    {"m=30 s=[2, 3] n=20 ids<m"},
    {"m=2 s=[] n=50 ids<m"},
    {"m=3 s=[5] n=0 ids<m"},
    {"m=65536 s=[64] n=1048576 ids<m", .bench = true},
    {0},
};

static const tn_sample segment_sum_offsets_samples[] = {
    {"n=9 s=[4] m=3 offsets=offsets(n)"},
    {"n=200 s=[33] m=7 offsets=offsets(n) offsets=i32"},
    {"n=20 s=[2, 3] m=30 offsets=offsets(n)"},
    {"n=500 s=[] m=2 offsets=offsets(n)"},
    {"n=0 s=[5] m=3 offsets=offsets(n)"},
    {"n=700 s=[40] m=1 offsets=offsets(n)"},
    {"n=3000 s=[3] m=9 offsets=offsets(n)"}, /* long segments, whose parts several blocks have */
    {"n=1048576 s=[64] m=65536 offsets=offsets(n)", .bench = true},
    {0},
};

static const tn_sample segment_sum_offsets_grad_samples[] = {
    {"n=9 s=[4] m=3 offsets=offsets(n)"},
    {"n=200 s=[33] m=7 offsets=offsets(n) offsets=i32"},
    {"n=20 s=[2, 3] m=30 offsets=offsets(n)"},
    {"n=0 s=[5] m=3 offsets=offsets(n)"},
    {"n=1048576 s=[64] m=65536 offsets=offsets(n)", .bench = true},
    {0},
};

const tn_op tni_ops_segment_sum[] = {
    {
        .signature = "segment_sum(x: T[n, *s], ids: i32|i64[n], segments: int) -> y: T[segments, *s] "
                     "where segments >= 0",
        .doc = "The rows of x with the same id, added up in their order; a row with a negative id is left out.",
        .grad = "x: segment_sum_grad(dy, ids)",
        .kernels = segment_sum_kernels,
        .samples = segment_sum_samples,
    },
    {
        .signature = "segment_sum_grad(dy: T[m, *s], ids: i32|i64[n]) -> dx: T[n, *s]",
        .doc = "The gradient of segment_sum: each row is that of its segment, and 0 where the id is negative.",
        .grad = "dy: segment_sum(ddx, ids, m)",
        .kernels = segment_sum_grad_kernels,
        .samples = segment_sum_grad_samples,
    },
    {
        .signature = "segment_sum_offsets(x: T[n, *s], offsets: i32|i64[m + 1]) -> y: T[m, *s]",
        .doc = "The sums of x's rows from offsets[k] up to offsets[k + 1], for each k.",
        .grad = "x: segment_sum_offsets_grad(dy, offsets, n)",
        .kernels = segment_sum_offsets_kernels,
        .samples = segment_sum_offsets_samples,
    },
    {
        .signature = "segment_sum_offsets_grad(dy: T[m, *s], offsets: i32|i64[m + 1], n: int) -> dx: T[n, *s] "
                     "where n >= 0",
        .doc = "The gradient of segment_sum_offsets: each row is that of its segment.",
        .grad = "dy: segment_sum_offsets(ddx, offsets)",
        .kernels = segment_sum_offsets_grad_kernels,
        .samples = segment_sum_offsets_grad_samples,
    },
    {0},
};
