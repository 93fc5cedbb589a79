/* cross_entropy: contract, gradient, reference. The vectorised kernels are in cross_entropy_cpu.c. */
#include "cross_entropy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cpu/vec/variants.h"
#include "cross_entropy_cuda.h"

/* cross_entropy */
enum { X, TARGET, WEIGHT };
enum { IGNORE_INDEX, LABEL_SMOOTHING, Z_LOSS, REDUCTION };
enum { LOSS, LSE, GX };
enum { REDUCE_MEAN, REDUCE_SUM, REDUCE_NONE };

/* cross_entropy_grad */
enum { GRAD_GX, GRAD_DLOSS };
enum { GRAD_REDUCTION };
enum { GRAD_DX };

TNI_CPU_DECLARE(cross_entropy)
TNI_CPU_DECLARE(cross_entropy_grad)

tn_status tni_cross_entropy_bad_target(const tn_call *call, int64_t row, int64_t value) {
    const tn_view *x = tn_in(call, X), *target = tn_in(call, TARGET);
    char place[TN_MAX_RANK * 24] = "";
    int used = 0;
    for (int d = 0; d < target->ndim; d++) {
        const int64_t inner = tn_product(target, d + 1, target->ndim);
        used += snprintf(place + used, sizeof(place) - (size_t)used, "%s%" PRId64, d ? ", " : "[",
                         row / inner % target->shape[d]);
    }
    return tn_fail(TN_BAD_VALUE, "%s: target%s%s is %" PRId64 ", must be %s %" PRId64 " or ignore_index %" PRId64,
                   call->name, place, used ? "]" : "", value,
                   value < 0 ? "at least" : "below v =", value < 0 ? 0 : x->shape[x->ndim - 1],
                   call->attrs[IGNORE_INDEX].i);
}

static double weight_of(const tn_view *weight, int64_t j) {
    return weight ? tn_get(weight->type, weight->data, j) : 1;
}

static int64_t target_of(const tn_call *call, int64_t i) {
    const tn_view *target = tn_in(call, TARGET);
    return target->type == TN_I64 ? ((const int64_t *)target->data)[i] : ((const int32_t *)target->data)[i];
}

/* What 'mean' divides by: the weights of the targets that are not ignored. */
static tn_status divisor_of(const tn_call *call, int64_t rows, int64_t v, double *divisor) {
    *divisor = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = target_of(call, i);
        if (t == call->attrs[IGNORE_INDEX].i) continue;
        if (t < 0 || t >= v) return tni_cross_entropy_bad_target(call, i, t);
        *divisor += weight_of(tn_in(call, WEIGHT), t);
    }
    return TN_OK;
}

/* A row that holds +inf, or nothing but -inf, gives NaN: so does its loss. */
static double log_sum_exp(const tn_view *x, int64_t first, int64_t v) {
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < v; j++) max = fmax(max, tn_get(x->type, x->data, first + j));
    for (int64_t j = 0; j < v; j++) sum += exp(tn_get(x->type, x->data, first + j) - max);
    return max + log(sum);
}

/* The loss of row i, whose log p[j] is x[j] - lse; s is label_smoothing:
 *     -(1 - s) * weight[t] * log p[t] - s / v * sum(weight * log p) + z_loss * lse^2
 * gx, where it is wanted, gets the gradient times `unit`. */
static double row_ref(const tn_call *call, int64_t i, int64_t v, double lse, double unit) {
    const tn_view *x = tn_in(call, X), *weight = tn_in(call, WEIGHT), *gx = tn_out(call, GX);
    const int64_t t = target_of(call, i);
    const double hard = (1 - call->attrs[LABEL_SMOOTHING].f) * weight_of(weight, t);
    const double soft = call->attrs[LABEL_SMOOTHING].f / (double)v, z = call->attrs[Z_LOSS].f;

    double loss = hard * (lse - tn_get(x->type, x->data, i * v + t)) + z * lse * lse, weights = 0;
    for (int64_t j = 0; j < v && soft != 0; j++) {
        loss += soft * weight_of(weight, j) * (lse - tn_get(x->type, x->data, i * v + j));
        weights += weight_of(weight, j);
    }
    for (int64_t j = 0; j < v && gx; j++) {
        const double p = exp(tn_get(x->type, x->data, i * v + j) - lse);
        double d = (hard + soft * weights + 2 * z * lse) * p - (j == t ? hard : 0);
        if (soft != 0) d -= soft * weight_of(weight, j);
        tn_set(gx->type, gx->data, i * v + j, d * unit);
    }
    return loss;
}

/* x: (rows, v). Ignored rows have loss 0 and gradient 0. */
static tn_status cross_entropy_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, X), *loss = tn_out(call, LOSS), *lse = tn_out(call, LSE), *gx = tn_out(call, GX);
    const int64_t rows = tn_product(x, 0, x->ndim - 1), v = x->shape[x->ndim - 1];
    const int reduction = call->attrs[REDUCTION].choice;
    double divisor, total = 0;
    TN_TRY(divisor_of(call, rows, v, &divisor));

    for (int64_t i = 0; i < rows; i++) {
        const bool ignored = target_of(call, i) == call->attrs[IGNORE_INDEX].i;
        const double row_lse = log_sum_exp(x, i * v, v);
        const double row = ignored ? 0 : row_ref(call, i, v, row_lse, reduction == REDUCE_MEAN ? 1 / divisor : 1);
        for (int64_t j = 0; j < v && ignored && gx; j++) tn_set(gx->type, gx->data, i * v + j, 0);
        tn_set(lse->type, lse->data, i, row_lse);
        if (reduction == REDUCE_NONE) tn_set(loss->type, loss->data, i, row);
        total += row;
    }
    if (reduction == REDUCE_SUM) tn_set(loss->type, loss->data, 0, total);
    if (reduction == REDUCE_MEAN) tn_set(loss->type, loss->data, 0, total / divisor);
    return TN_OK;
}

/* dx = gx * dloss; dloss is one number, or with reduction 'none' one per row */
static tn_status cross_entropy_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *gx = tn_in(call, GRAD_GX), *dloss = tn_in(call, GRAD_DLOSS), *dx = tn_out(call, GRAD_DX);
    const int64_t rows = tn_product(gx, 0, gx->ndim - 1), v = gx->shape[gx->ndim - 1];
    const bool each = call->attrs[GRAD_REDUCTION].choice == REDUCE_NONE;
    for (int64_t i = 0; i < rows; i++) {
        const double d = tn_get(dloss->type, dloss->data, each ? i : 0);
        for (int64_t j = 0; j < v; j++)
            tn_set(dx->type, dx->data, i * v + j, d * tn_get(gx->type, gx->data, i * v + j));
    }
    return TN_OK;
}

static const tn_kernel cross_entropy_kernels[] = {
    TNI_CPU_KERNELS(cross_entropy, .flags = TN_STRIDED),
    TNI_CUDA_KERNEL(cross_entropy, .flags = TN_STRIDED, .accepts = tni_cross_entropy_cuda_accepts,
                    .workspace = tni_cross_entropy_cuda_workspace),
    TNI_CUDA_KERNEL(cross_entropy, .workspace = tni_cross_entropy_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = cross_entropy_ref},
    {0},
};

static const tn_kernel cross_entropy_grad_kernels[] = {
    TNI_CPU_KERNELS(cross_entropy_grad, .flags = TN_STRIDED | TN_ALIAS),
    TNI_CUDA_KERNEL(cross_entropy_grad, .flags = TN_STRIDED | TN_ALIAS, .accepts = tni_cross_entropy_grad_cuda_accepts),
    TNI_CUDA_KERNEL(cross_entropy_grad, .flags = TN_ALIAS),
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
    {"r=[2] v=50257 target<v want_gx=true"},
    {"r=[0] v=5 target<v reduction='sum' want_gx=true"},
    {"r=[40] v=2048 target<v target=i32 ignore_index=7 want_gx=true"},
    {"r=[3] v=40960 target<v label_smoothing=0.1 z_loss=0.01 want_gx=true"},
    {"r=[8192] v=1000 target<v want_gx=true", .bench = true},
    {"r=[256] v=50257 target<v", .bench = true},
    {"r=[256] v=50257 target<v want_gx=true", .bench = true},
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

const tn_op tni_op_cross_entropy = {
    .signature = "cross_entropy(x: T[*r, v], target: i32|i64[*r], weight: f32[v]?, ignore_index: int = -100, "
                 "label_smoothing: float = 0.0, z_loss: float = 0.0, reduction: 'mean'|'sum'|'none' = 'mean') "
                 "-> loss: acc(T)[*r if reduction == 'none' else], lse: acc(T)[*r], gx: T[*r, v]?grad "
                 "where label_smoothing >= 0, label_smoothing <= 1",
    .doc = "The cross entropy of logits x with class indices, plus z_loss * lse^2 per row; gradient in the same pass.",
    .grad = "x: cross_entropy_grad(gx, dloss)",
    .autocast = "32",
    .kernels = cross_entropy_kernels,
    .samples = cross_entropy_samples,
};

const tn_op tni_op_cross_entropy_grad = {
    .signature = "cross_entropy_grad(gx: T[*r, v], dloss: acc(T)[*r if reduction == 'none' else], "
                 "reduction: 'mean'|'sum'|'none' = 'mean') -> dx: T[*r, v]",
    .doc = "The gradient of cross_entropy: gx times what arrives at the loss.",
    .kernels = cross_entropy_grad_kernels,
    .samples = cross_entropy_grad_samples,
};
