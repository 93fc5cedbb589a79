/* cross_entropy: contract, gradient, reference. The vectorised kernels are in cross_entropy_cpu.c. */
#include "cross_entropy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(cross_entropy)
TNI_CPU_DECLARE(cross_entropy_inplace)
TNI_CPU_DECLARE(cross_entropy_grad)
TNI_CUDA_DECLARE(cross_entropy)
TNI_CUDA_DECLARE(cross_entropy_inplace)
TNI_CUDA_DECLARE(cross_entropy_grad)

tn_status tni_bad_target(const char *op, const tn_view *target, int64_t v, int64_t ignore_index, int64_t row,
                         int64_t value) {
    char place[TN_MAX_RANK * 24] = "";
    int used = 0;
    for (int d = 0; d < target->ndim; d++) {
        const int64_t inner = tn_product(target, d + 1, target->ndim);
        used += snprintf(place + used, sizeof(place) - (size_t)used, "%s%" PRId64, d ? ", " : "[",
                         row / inner % target->shape[d]);
    }
    return tn_fail(TN_BAD_VALUE, "%s: target%s%s is %" PRId64 ", must be %s %" PRId64 " or ignore_index %" PRId64, op,
                   place, used ? "]" : "", value, value < 0 ? "at least" : "below v =", value < 0 ? 0 : v,
                   ignore_index);
}

tn_status tni_cross_entropy_bad_target(const tn_call *call, int64_t row, int64_t value) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    return tni_bad_target(call->name, a.target, a.x->shape[a.x->ndim - 1], a.ignore_index, row, value);
}

/* What 'mean' divides by: the weights of the targets that are not ignored. */
static tn_status divisor_of(const tn_call *call, const cross_entropy_args *a, int64_t rows, int64_t v,
                            double *divisor) {
    *divisor = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = target_at(a->target, i);
        if (t == a->ignore_index) continue;
        if (t < 0 || t >= v) return tni_cross_entropy_bad_target(call, i, t);
        *divisor += get_or(a->weight, t, 1);
    }
    return TN_OK;
}

/* A row that holds +inf, or nothing but -inf, gives NaN: so does its loss. */
static double log_sum_exp(const tn_view *x, int64_t first, int64_t v) {
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v; j++) most = fmax(most, get(x, first + j));
    for (int64_t j = 0; j < v; j++) sum += exp(get(x, first + j) - most);
    return most + log(sum);
}

/* The loss of row i, whose log p[j] is x[j] - lse; s is label_smoothing:
 *     -(1 - s) * weight[t] * log p[t] - s / v * sum(weight * log p) + z_loss * lse^2
 * gx, where it is wanted, gets the gradient times `unit`. */
static double row_ref(const cross_entropy_args *a, int64_t i, int64_t v, double lse, double unit) {
    const int64_t t = target_at(a->target, i);
    const label_shares shares = label_shares_of(a);
    const double hard = shares.target * get_or(a->weight, t, 1), soft = shares.each, z = a->z_loss;

    double loss = hard * (lse - get(a->x, i * v + t)) + z * lse * lse, weights = 0;
    for (int64_t j = 0; j < v && soft != 0; j++) {
        loss += soft * get_or(a->weight, j, 1) * (lse - get(a->x, i * v + j));
        weights += get_or(a->weight, j, 1);
    }
    for (int64_t j = 0; j < v && a->gx; j++) {
        const double p = exp(get(a->x, i * v + j) - lse);
        double d = (hard + soft * weights + 2 * z * lse) * p - (j == t ? hard : 0);
        if (soft != 0) d -= soft * get_or(a->weight, j, 1);
        set(a->gx, i * v + j, d * unit);
    }
    return loss;
}

/* x: (rows, v). Ignored rows have loss 0 and gradient 0. */
static tn_status cross_entropy_ref(const tn_call *call, void *state) {
    (void)state;
    const cross_entropy_args a = cross_entropy_args_of(call);
    const int64_t rows = tn_product(a.x, 0, a.x->ndim - 1), v = a.x->shape[a.x->ndim - 1];
    double divisor, total = 0;
    TN_TRY(divisor_of(call, &a, rows, v, &divisor));

    for (int64_t i = 0; i < rows; i++) {
        const bool ignored = target_at(a.target, i) == a.ignore_index;
        const double row_lse = log_sum_exp(a.x, i * v, v);
        const double row = ignored ? 0 : row_ref(&a, i, v, row_lse, a.reduction == REDUCE_MEAN ? 1 / divisor : 1);
        for (int64_t j = 0; j < v && ignored && a.gx; j++) set(a.gx, i * v + j, 0);
        set(a.lse, i, row_lse);
        if (a.reduction == REDUCE_NONE) set(a.loss, i, row);
        total += row;
    }
    if (a.reduction == REDUCE_SUM) set(a.loss, 0, total);
    if (a.reduction == REDUCE_MEAN) set(a.loss, 0, total / divisor);
    return TN_OK;
}

/* An element of x is read for the last time when its gradient is made. */
static tn_status cross_entropy_inplace_ref(const tn_call *call, void *state) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return cross_entropy_ref(&as.call, state);
}

/* dx = gx * dloss; dloss is one number, or with reduction 'none' one per row */
static tn_status cross_entropy_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const cross_entropy_grad_args a = cross_entropy_grad_args_of(call);
    const int64_t rows = tn_product(a.gx, 0, a.gx->ndim - 1), v = a.gx->shape[a.gx->ndim - 1];
    for (int64_t i = 0; i < rows; i++) {
        const double d = get(a.dloss, a.reduction == REDUCE_NONE ? i : 0);
        for (int64_t j = 0; j < v; j++) set(a.dx, i * v + j, d * get(a.gx, i * v + j));
    }
    return TN_OK;
}

static const tn_kernel cross_entropy_kernels[] = {
    TNI_CPU_KERNELS(cross_entropy, .flags = TN_STRIDED),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, cross_entropy, 0, tni_cross_entropy_cuda_accepts,
                         .workspace = tni_cross_entropy_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = cross_entropy_ref},
    {0},
};

static const tn_kernel cross_entropy_inplace_kernels[] = {
    TNI_CPU_KERNELS(cross_entropy_inplace, .flags = TN_STRIDED),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, cross_entropy_inplace, 0, tni_cross_entropy_inplace_cuda_accepts,
                         .workspace = tni_cross_entropy_inplace_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = cross_entropy_inplace_ref},
    {0},
};

static const tn_kernel cross_entropy_grad_kernels[] = {
    TNI_CPU_KERNELS(cross_entropy_grad, .flags = TN_STRIDED | TN_ALIAS),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, cross_entropy_grad, TN_ALIAS, tni_cross_entropy_grad_cuda_accepts),
    {.name = "ref", .device = TN_CPU, .run = cross_entropy_grad_ref},
    {0},
};

/* ignore_index inside 0 … v - 1 makes some of the drawn targets ignored. */
static const tn_sample cross_entropy_samples[] = {
    {"r=[5] v=10 target<v want_gx=true"},
    {"r=[] v=7 target<v want_gx=true"},
    {"r=[2, 3] v=33 target<v reduction='sum' want_gx=true"},
    {"r=[4, 3] v=17 target<v reduction='none' want_gx=true"},
    {"r=[9] v=3 target<v ignore_index=1 want_gx=true"},
    {"r=[9] v=3 target<v ignore_index=1 reduction='none'"},
    {"r=[6] v=12 target<v weight weight>0 want_gx=true"},
    {"r=[12] v=5 target<v weight weight>0 ignore_index=2 label_smoothing=0.1 want_gx=true"},
    {"r=[3] v=1000 target<v label_smoothing=0.2 reduction='sum'"},
    {"r=[2, 2] v=65 target<v z_loss=0.01 want_gx=true"},
    {"r=[5] v=9 target<v weight weight>0 label_smoothing=0.3 z_loss=0.1 reduction='none' want_gx=true"},
    {"r=[4] v=1 target<v want_gx=true"},
    {"r=[150] v=3 target<v want_gx=true"},
    {"r=[70] v=19 target<v ignore_index=1 reduction='none' want_gx=true"},
    {"r=[2] v=50257 target<v want_gx=true"},
    {"r=[0] v=5 target<v reduction='sum' want_gx=true"},
    {"r=[40] v=2048 target<v target=i32 ignore_index=7 want_gx=true"},
    {"r=[3] v=40960 target<v label_smoothing=0.1 z_loss=0.01 want_gx=true"},
    {"r=[8192] v=1000 target<v want_gx=true", .bench = true},
    {"r=[256] v=50257 target<v", .bench = true},
    {"r=[256] v=50257 target<v want_gx=true", .bench = true},
    {0},
};

static const tn_sample cross_entropy_inplace_samples[] = {
    {"r=[5] v=10 target<v"},
    {"r=[] v=7 target<v reduction='sum'"},
    {"r=[4, 3] v=17 target<v reduction='none'"},
    {"r=[9] v=3 target<v ignore_index=1"},
    {"r=[12] v=65 target<v weight weight>0 ignore_index=2 label_smoothing=0.1"},
    {"r=[150] v=3 target<v"},
    {"r=[2] v=50257 target<v"},
    {"r=[3] v=40960 target<v label_smoothing=0.1 z_loss=0.01"},
    {"r=[40] v=2048 target<v target=i32 ignore_index=7"},
    {"r=[0] v=5 target<v reduction='sum'"},
    {"r=[8192] v=1000 target<v", .bench = true},
    {"r=[256] v=50257 target<v", .bench = true},
    {0},
};

static const tn_sample cross_entropy_grad_samples[] = {
    {"r=[5] v=10"},
    {"r=[] v=7"},
    {"r=[2, 3] v=33 reduction='sum'"},
    {"r=[4, 3] v=17 reduction='none'"},
    {"r=[0] v=5"},
    {"r=[3] v=0 reduction='none'"},
    {"r=[8192] v=1000", .bench = true},
    {"r=[256] v=50257 reduction='none'", .bench = true},
    {0},
};

const tn_op tni_ops_cross_entropy[] = {
    {
        .signature = "cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100, "
                     "label_smoothing: float = 0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean') "
                     "-> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r], gx: T[*r, v]?grad "
                     "where label_smoothing >= 0, label_smoothing <= 1",
        .doc = "The cross entropy of logits x with class indices, plus z_loss * lse^2 per row; gradient in the same "
               "pass.",
        .grad = "x: cross_entropy_grad(gx, dloss)",
        .autocast = "32",
        .kernels = cross_entropy_kernels,
        .samples = cross_entropy_samples,
    },
    {
        .signature = "cross_entropy_inplace(x: T[*r, v]!, target: i32|i64[*r], weight: f32[v]?, "
                     "ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0, "
                     "reduction: 'mean'|'sum'|'none' = 'mean') "
                     "-> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r] "
                     "where label_smoothing >= 0, label_smoothing <= 1",
        .doc = "cross_entropy, whose gradient takes the place of the logits x.",
        .kernels = cross_entropy_inplace_kernels,
        .samples = cross_entropy_inplace_samples,
    },
    {
        .signature = "cross_entropy_grad(gx: T[*r, v], dloss: acc(T)[*r if reduction == 'none' else], "
                     "reduction: 'mean'|'sum'|'none' = 'mean') -> dx: T[*r, v]",
        .doc = "The gradient of cross_entropy: gx times what arrives at the loss.",
        .kernels = cross_entropy_grad_kernels,
        .samples = cross_entropy_grad_samples,
    },
    {0},
};
