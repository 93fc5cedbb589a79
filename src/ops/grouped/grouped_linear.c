/* grouped_linear, the products of a mixture of experts: contract, gradients, references. The gradients are products of
 * groups again, so they can be differentiated any number of times. */
#include "grouped_linear.h"

#include "grouped_linear_cuda.h"
#include "ops/elements.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/index/segment_sum.h"

TNI_CPU_DECLARE(grouped_linear)

/* ---- references -------------------------------------------------------------------------------------------------- */

/* The group that row i belongs to, or -1. */
static int64_t group_of(const tn_view *offsets, int64_t i) {
    int64_t g = offsets->shape[0] - 2;
    if (offset_at(offsets, g + 1) <= i) return -1;
    while (g >= 0 && offset_at(offsets, g) > i) g--;
    return g;
}

/* x: (t, k), w: (e, n, k) */
static tn_status grouped_linear_ref(const tn_call *call, void *state) {
    (void)state;
    const grouped_linear_args a = grouped_linear_args_of(call);
    const int64_t t = a.x->shape[0], k = a.x->shape[1], n = a.w->shape[1];
    TN_TRY(tni_segment_check(call, a.offsets, t));
    for (int64_t at = 0; at < t * n; at++) {
        const int64_t i = at / n, j = at % n, g = group_of(a.offsets, i);
        double sum = 0;
        for (int64_t l = 0; g >= 0 && l < k; l++) sum += get(a.x, i * k + l) * get(a.w, (g * n + j) * k + l);
        set(a.y, at, sum);
    }
    return TN_OK;
}

/* dx = dy w, with the w of each row's group */
static tn_status grouped_linear_x_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const grouped_linear_x_grad_args a = grouped_linear_x_grad_args_of(call);
    const int64_t t = a.dy->shape[0], n = a.dy->shape[1], k = a.w->shape[2];
    TN_TRY(tni_segment_check(call, a.offsets, t));
    for (int64_t at = 0; at < t * k; at++) {
        const int64_t i = at / k, l = at % k, g = group_of(a.offsets, i);
        double sum = 0;
        for (int64_t j = 0; g >= 0 && j < n; j++) sum += get(a.dy, i * n + j) * get(a.w, (g * n + j) * k + l);
        set(a.dx, at, sum);
    }
    return TN_OK;
}

/* dw = dy^T x, of each group's rows */
static tn_status grouped_linear_w_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const grouped_linear_w_grad_args a = grouped_linear_w_grad_args_of(call);
    const int64_t e = a.dw->shape[0], n = a.dw->shape[1], k = a.dw->shape[2];
    TN_TRY(tni_segment_check(call, a.offsets, a.x->shape[0]));
    for (int64_t at = 0; at < e * n * k; at++) {
        const int64_t g = at / (n * k), j = at / k % n, l = at % k;
        double sum = 0;
        for (int64_t i = offset_at(a.offsets, g); i < offset_at(a.offsets, g + 1); i++)
            sum += get(a.dy, i * n + j) * get(a.x, i * k + l);
        set(a.dw, at, sum);
    }
    return TN_OK;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The last two dimensions of v; `transposed`: swapped. Three dimensions: the first is the batch. */
static tni_matrix matrix_of(const tn_view *v, bool transposed) {
    const int64_t *last = v->strides + v->ndim - 1;
    tni_matrix x = {.data = v->data, .type = v->type, .row = last[-!transposed], .column = last[-(int)transposed]};
    if (v->ndim == 3) x.batch[0] = v->strides[0];
    return x;
}

static tni_grouped grouped_of(const tn_view *offsets, tni_matrix a, tni_matrix b, tni_matrix y) {
    const int64_t groups = offsets->shape[0] - 1;
    return (tni_grouped){.product = {.n_batch = 1, .batch = {groups}, .a = a, .b = b, .y = y, .alpha = 1},
                         .offsets = offsets,
                         .groups = groups};
}

static tni_grouped linear_product(const tn_call *call) {
    const grouped_linear_args a = grouped_linear_args_of(call);
    tni_grouped made = grouped_of(a.offsets, matrix_of(a.x, false), matrix_of(a.w, true), matrix_of(a.y, false));
    made.rows = made.product.m = a.x->shape[0];
    made.product.n = a.y->shape[1];
    made.product.k = a.x->shape[1];
    return made;
}

static tni_grouped x_grad_product(const tn_call *call) {
    const grouped_linear_x_grad_args a = grouped_linear_x_grad_args_of(call);
    tni_grouped made = grouped_of(a.offsets, matrix_of(a.dy, false), matrix_of(a.w, false), matrix_of(a.dx, false));
    made.rows = made.product.m = a.dy->shape[0];
    made.product.n = a.dx->shape[1];
    made.product.k = a.dy->shape[1];
    return made;
}

static tni_grouped w_grad_product(const tn_call *call) {
    const grouped_linear_w_grad_args a = grouped_linear_w_grad_args_of(call);
    tni_grouped made = grouped_of(a.offsets, matrix_of(a.dy, true), matrix_of(a.x, false), matrix_of(a.dw, false));
    made.by_terms = true;
    made.product.m = a.dw->shape[1];
    made.product.n = a.dw->shape[2];
    made.rows = made.product.k = a.x->shape[0];
    return made;
}

static const tni_grouped_kind linear_kind = {linear_product}, x_grad_kind = {x_grad_product},
                              w_grad_kind = {w_grad_product};

/* Two operations for each term, and no bytes: those of the tensors. Rows of no group are counted, too: who asks does
 * not know the offsets. */
#define COST(op)                                                                                          \
    static tn_cost op##_cost(const tn_call *call) {                                                       \
        const tni_grouped g = op##_product(call);                                                         \
        return (tn_cost){.flops = 2.0 * (double)g.product.m * (double)g.product.n * (double)g.product.k}; \
    }
COST(linear)
COST(x_grad)
COST(w_grad)

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Blocks for as many rows as there are: a group has no more. */
static tn_status grouped_prepare(const tn_call *call, void **state) {
    const tni_grouped g = tni_grouped_of(call);
    return tni_gemm_plan_parts(call, &g.product, (gemm_plan **)state);
}

#define KERNELS(op, kind)                                                                                     \
    static const tn_kernel op##_kernels[] = {                                                                 \
        TNI_CPU_KERNELS(grouped_linear, .flags = TN_STRIDED, .prepare = grouped_prepare, .release = tni_free, \
                        .workspace = tni_gemm_workspace, .data = &(kind)),                                    \
        TNI_GROUPED_CUDA_KERNELS(&(kind)),                                                                    \
        {.name = "ref", .device = TN_CPU, .run = op##_ref},                                                   \
        {0},                                                                                                  \
    };

KERNELS(grouped_linear, linear_kind)
KERNELS(grouped_linear_x_grad, x_grad_kind)
KERNELS(grouped_linear_w_grad, w_grad_kind)

static const tn_sample samples[] = {
    {"t=9 k=5 n=3 e=2 offsets=offsets(t)"},
    {"t=40 k=33 n=17 e=5 offsets=offsets(t) offsets=i64"},
    {"t=300 k=64 n=40 e=3 offsets=offsets(t)"}, /* groups of many tiles */
    {"t=6 k=24 n=48 e=40 offsets=offsets(t)"},  /* most groups are empty */
    {"t=200 k=32 n=64 e=7 offsets=offsets(t)"},
    {"t=90 k=40 n=136 e=1 offsets=offsets(t)"},
    {"t=20 k=9 n=4 e=0 offsets=offsets(0)"},
    {"t=0 k=4 n=5 e=3 offsets=offsets(t)"},
    {"t=7 k=0 n=5 e=3 offsets=offsets(t)"},
    {"t=7 k=5 n=0 e=3 offsets=offsets(t)"},
    {"t=8192 k=2048 n=1408 e=64 offsets=offsets(t)", .bench = true},
    {0},
};

const tn_op tni_ops_grouped_linear[] = {
    {
        .signature = "grouped_linear(x: T[t, k], w: T[e, n, k], offsets: i32|i64[e + 1]) -> y: T[t, n]",
        .doc =
            "The rows of x from offsets[g] up to offsets[g + 1] times w[g]^T, for each g; rows of no group become 0.",
        .grad = "x: grouped_linear_x_grad(w, offsets, dy); w: grouped_linear_w_grad(x, offsets, dy)",
        .autocast = "16",
        .kernels = grouped_linear_kernels,
        .cost = linear_cost,
        .samples = samples,
    },
    {
        .signature = "grouped_linear_x_grad(w: T[e, n, k], offsets: i32|i64[e + 1], dy: T[t, n]) -> dx: T[t, k]",
        .doc = "The gradient of grouped_linear for x: the rows of dy in group g times w[g].",
        .grad = "w: grouped_linear_w_grad(ddx, offsets, dy); dy: grouped_linear(ddx, w, offsets)",
        .kernels = grouped_linear_x_grad_kernels,
        .cost = x_grad_cost,
        .samples = samples,
    },
    {
        .signature = "grouped_linear_w_grad(x: T[t, k], offsets: i32|i64[e + 1], dy: T[t, n]) -> dw: T[e, n, k]",
        .doc = "The gradient of grouped_linear for w: of each group, dy^T times x.",
        .grad = "x: grouped_linear_x_grad(ddw, offsets, dy); dy: grouped_linear(x, ddw, offsets)",
        .kernels = grouped_linear_w_grad_kernels,
        .cost = w_grad_cost,
        .samples = samples,
    },
    {0},
};
