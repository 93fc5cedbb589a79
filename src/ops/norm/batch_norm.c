/* batch_norm in training: contract, gradient, reference. The vectorised kernels are in batch_norm_cpu.c. */
#include "batch_norm.h"

#include <math.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(batch_norm)
TNI_CPU_DECLARE(batch_norm_grad)
TNI_CUDA_DECLARE(batch_norm)
TNI_CUDA_DECLARE(batch_norm_grad)

/* x is (n, c, s): where value i of n * s in a channel is. */
static int64_t place(const tn_view *x, int64_t channel, int64_t i) {
    const int64_t c = x->shape[1], s = tn_product(x, 2, x->ndim);
    return (i / s * c + channel) * s + i % s;
}

/* Mean and variance of a channel's m values. The running ones move towards them by `momentum`, the variance as an
 * estimate from a sample, over m - 1; a batch without values leaves them alone. */
static void statistics_ref(const batch_norm_args *a, int64_t channel, int64_t m, double *mean, double *variance) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < m; i++) sum += get(a->x, place(a->x, channel, i));
    *mean = sum / (double)m;
    for (int64_t i = 0; i < m; i++) {
        const double d = get(a->x, place(a->x, channel, i)) - *mean;
        squares += d * d;
    }
    *variance = squares / (double)m;
    if (m == 0) return;

    const double unbiased = m > 1 ? squares / (double)(m - 1) : *variance, old = 1 - a->momentum;
    set(a->running_mean, channel, old * get(a->running_mean, channel) + a->momentum * *mean);
    set(a->running_var, channel, old * get(a->running_var, channel) + a->momentum * unbiased);
}

/* y = act(gamma * (x - mean) * rstd + beta + residual) */
static tn_status batch_norm_ref(const tn_call *call, void *state) {
    (void)state;
    const batch_norm_args a = batch_norm_args_of(call);
    const int64_t c = a.x->shape[1], m = a.x->shape[0] * tn_product(a.x, 2, a.x->ndim);
    for (int64_t k = 0; k < c; k++) {
        double mean, variance;
        statistics_ref(&a, k, m, &mean, &variance);
        const double rstd = 1 / sqrt(variance + a.eps);
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(a.x, k, i);
            const double xhat = (get(a.x, at) - mean) * rstd;
            const double z = get_or(a.gamma, k, 1) * xhat + get_or(a.beta, k, 0) + get_or(a.residual, at, 0);
            set(a.y, at, a.act == ACT_RELU && z < 0 ? 0 : z);
        }
        set(a.mean, k, mean);
        set(a.rstd, k, rstd);
    }
    return TN_OK;
}

/* What passes the activation: dy, or 0 where relu cut off. */
static double passed(const batch_norm_grad_args *a, int64_t k, int64_t at, double xhat) {
    const double z = get_or(a->gamma, k, 1) * xhat + get_or(a->beta, k, 0) + get_or(a->residual, at, 0);
    return a->act == ACT_RELU && z <= 0 ? 0 : get(a->dy, at);
}

/* With g what passes the activation: dresidual = g, dbeta = sum(g), dgamma = sum(g * xhat) and
 * dx = gamma * rstd * (g - dbeta / m - xhat * dgamma / m). */
static tn_status batch_norm_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    const int64_t c = a.x->shape[1], m = a.x->shape[0] * tn_product(a.x, 2, a.x->ndim);
    for (int64_t k = 0; k < c; k++) {
        const double scale = get(a.rstd, k), shift = get(a.mean, k);
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(a.x, k, i);
            const double xhat = (get(a.x, at) - shift) * scale, g = passed(&a, k, at, xhat);
            sum += g;
            dot += g * xhat;
        }
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(a.x, k, i);
            const double xhat = (get(a.x, at) - shift) * scale, g = passed(&a, k, at, xhat);
            const double d = get_or(a.gamma, k, 1) * scale * (g - (sum + xhat * dot) / (double)m);
            if (a.dx) set(a.dx, at, d);
            if (a.dresidual) set(a.dresidual, at, g);
        }
        if (a.dgamma) set(a.dgamma, k, dot);
        if (a.dbeta) set(a.dbeta, k, sum);
    }
    return TN_OK;
}

/* The vectorised kernels take planes and rows (batch_norm.h), the same for every tensor. Others are made dense
 * first. */
static bool same_layout(const tn_view *const *tensors, int count) {
    bool planes = true, rows = true;
    for (int i = 0; i < count; i++) {
        if (!tensors[i]) continue;
        planes = planes && tni_batch_norm_planes(tensors[i]);
        rows = rows && tni_batch_norm_step(tensors[i]) != 0;
    }
    return planes || rows;
}

static bool batch_norm_accepts(const tn_call *call) {
    const batch_norm_args a = batch_norm_args_of(call);
    return same_layout((const tn_view *[]){a.x, a.residual, a.y}, 3);
}

static bool batch_norm_grad_accepts(const tn_call *call) {
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    return same_layout((const tn_view *[]){a.x, a.residual, a.dy, a.dx, a.dresidual}, 5);
}

/* For whichever layout needs more. */
static size_t workspace(const tn_view *x) {
    const int64_t n = x->shape[0], c = x->shape[1], places = n * tn_product(x, 2, x->ndim);
    const int64_t parts = max(ceil_div(places, rows_summed_together(places)), tni_batch_norm_parts(n, c));
    return (size_t)(parts * TNI_BATCH_NORM_SUMS + TNI_BATCH_NORM_PER_CHANNEL) * (size_t)c * sizeof(double);
}

static size_t batch_norm_workspace(const tn_call *call) {
    return workspace(batch_norm_args_of(call).x);
}

static size_t batch_norm_grad_workspace(const tn_call *call) {
    return workspace(batch_norm_grad_args_of(call).x);
}

static const tn_kernel batch_norm_kernels[] = {
    TNI_STRIDED_OR_DENSE(TNI_CPU_KERNELS, batch_norm, TN_ALIAS, batch_norm_accepts, .workspace = batch_norm_workspace),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, batch_norm, TN_ALIAS, batch_norm_accepts,
                         .workspace = tni_batch_norm_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = batch_norm_ref},
    {0},
};

static const tn_kernel batch_norm_grad_kernels[] = {
    TNI_STRIDED_OR_DENSE(TNI_CPU_KERNELS, batch_norm_grad, TN_ALIAS, batch_norm_grad_accepts,
                         .workspace = batch_norm_grad_workspace),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, batch_norm_grad, TN_ALIAS, batch_norm_grad_accepts,
                         .workspace = tni_batch_norm_grad_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = batch_norm_grad_ref},
    {0},
};

/* Values before an activation that is a formula are stored: in 16 bits, where bounds are those of sums in f32. */
#define ROUNDED_BETWEEN .tolerance = 4096

static const tn_sample batch_norm_samples[] = {
    {"n=5 c=3 s=[]"},
    {"n=3 c=4 s=[7] gamma beta"},
    {"n=2 c=17 s=[3, 5] gamma beta W=f32"},
    {"n=4 c=6 s=[5, 5] gamma beta residual act='relu'"},
    {"n=4 c=6 s=[5, 5] residual"},
    {"n=3 c=5 s=[2, 3, 4] gamma act='relu' momentum=0.3"},
    {"n=2 c=9 s=[33] beta eps=0.01"},
    {"n=2 c=1 s=[4]"},
    {"n=2 c=7 s=[5, 3] gamma beta residual act='gelu'", ROUNDED_BETWEEN},
    {"n=4 c=6 s=[5] beta act='tanh'", ROUNDED_BETWEEN},
    {"n=70 c=70 s=[1] gamma beta", .tolerance = 2}, /* cut down to n=2, means that cancel: differences are rounded */
    {"n=1 c=3 s=[1] gamma beta"},
    {"n=9 c=1030 s=[] gamma beta", .tolerance = 2},
    {"n=3 c=2 s=[120, 104] gamma beta W=f32"},
    {"n=5 c=3 s=[83, 101] residual act='relu'"},
    {"n=0 c=3 s=[4] gamma beta"},
    {"n=3 c=0 s=[4] gamma beta"},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32", .bench = true},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32 residual act='relu'", .bench = true},
    {"n=4096 c=512 s=[] gamma beta W=f32", .bench = true},
    {0},
};

#define ALL "want_dx=true want_dgamma=true want_dbeta=true"

static const tn_sample batch_norm_grad_samples[] = {
    {"n=5 c=3 s=[] rstd>0 want_dx=true"},
    {"n=3 c=4 s=[7] gamma beta rstd>0 " ALL},
    {"n=2 c=17 s=[3, 5] gamma beta W=f32 rstd>0 " ALL},
    {"n=4 c=6 s=[5, 5] gamma beta residual act='relu' rstd>0 want_dresidual=true " ALL},
    {"n=4 c=6 s=[5, 5] residual rstd>0 want_dx=true want_dresidual=true"},
    {"n=3 c=5 s=[2, 3, 4] gamma act='relu' rstd>0 want_dx=true want_dgamma=true"},
    {"n=2 c=9 s=[33] beta act='relu' rstd>0 want_dbeta=true"},
    {"n=2 c=9 s=[33] residual act='relu' rstd>0 want_dresidual=true"},
    {"n=2 c=7 s=[5, 3] gamma beta residual z act='silu' rstd>0 want_dresidual=true " ALL, ROUNDED_BETWEEN},
    {"n=4 c=6 s=[5] gamma z act='tanh' rstd>0 want_dx=true want_dgamma=true", ROUNDED_BETWEEN},
    {"n=70 c=70 s=[1] gamma beta rstd>0 " ALL},
    {"n=9 c=1030 s=[] gamma beta rstd>0 " ALL},
    {"n=3 c=2 s=[120, 104] gamma beta W=f32 rstd>0 " ALL},
    {"n=5 c=3 s=[83, 101] gamma residual act='relu' rstd>0 want_dresidual=true " ALL},
    {"n=0 c=3 s=[4] gamma beta rstd>0 " ALL},
    {"n=3 c=0 s=[4] gamma beta rstd>0 " ALL},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32 rstd>0 " ALL, .bench = true},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32 residual act='relu' rstd>0 want_dresidual=true " ALL, .bench = true},
    {0},
};

const tn_op tni_ops_batch_norm[] = {
    {
        .signature = "batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, "
                     "running_var: f32[c]!, residual: T[n, c, *s]?, momentum: float = 0.1, eps: float = 1e-5, "
                     "act: activation = 'none') -> y: T[n, c, *s], mean: acc(T)[c], rstd: acc(T)[c], "
                     "z: T[n, c, *s if act != 'none' and act != 'relu' else 0]",
        .doc = "In training: normalises each channel over the batch, times gamma, plus beta, plus residual, then act; "
               "moves the running statistics.",
        .grad = "x, gamma, beta, residual: batch_norm_grad(x, gamma, beta, residual, mean, rstd, dy, z)",
        .kernels = batch_norm_kernels,
        .samples = batch_norm_samples,
    },
    {
        .signature = "batch_norm_grad(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, residual: T[n, c, *s]?, "
                     "mean: acc(T)[c], rstd: acc(T)[c], dy: T[n, c, *s], "
                     "z: T[n, c, *s if act != 'none' and act != 'relu' else 0]?, act: activation = 'none') "
                     "-> dx: T[n, c, *s]?, dgamma: W[c]?, dbeta: W[c]?, dresidual: T[n, c, *s]?",
        .doc = "The gradients of batch_norm that are asked for; what relu cut off is computed again, other activations "
               "need z, the values before them.",
        .kernels = batch_norm_grad_kernels,
        .samples = batch_norm_grad_samples,
    },
    {0},
};
