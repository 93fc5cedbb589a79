/* batch_norm in training: contract, gradient, reference. The vectorised kernels are in batch_norm_cpu.c. */
#include "batch_norm.h"

#include <math.h>
#include <string.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"

/* batch_norm */
enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { MOMENTUM, EPS, ACT };
enum { Y, MEAN, RSTD };
enum { ACT_NONE, ACT_RELU };

/* batch_norm_grad: the inputs begin as those of batch_norm */
enum { GRAD_RESIDUAL = BETA + 1, GRAD_MEAN, GRAD_RSTD, GRAD_DY };
enum { GRAD_ACT };
enum { GRAD_DX, GRAD_DGAMMA, GRAD_DBETA, GRAD_DRESIDUAL };

TNI_CPU_DECLARE(batch_norm)
TNI_CPU_DECLARE(batch_norm_grad)
TNI_CUDA_DECLARE(batch_norm)
TNI_CUDA_DECLARE(batch_norm_grad)

static double element(const tn_view *v, int64_t i, double absent) {
    return v ? tn_get(v->type, v->data, i) : absent;
}

/* x is (n, c, s): where value i of n * s in a channel is. */
static int64_t place(const tn_view *x, int64_t channel, int64_t i) {
    const int64_t c = x->shape[1], s = tn_product(x, 2, x->ndim);
    return (i / s * c + channel) * s + i % s;
}

/* Mean and variance of a channel's m values. The running ones move towards them by `momentum`, the variance as an
 * estimate from a sample, over m - 1; a batch without values leaves them alone. */
static void statistics_ref(const tn_call *call, int64_t channel, int64_t m, double *mean, double *variance) {
    const tn_view *x = tn_in(call, X), *running_mean = tn_in(call, RUNNING_MEAN),
                  *running_var = tn_in(call, RUNNING_VAR);
    const double momentum = call->attrs[MOMENTUM].f;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < m; i++) sum += element(x, place(x, channel, i), 0);
    *mean = sum / (double)m;
    for (int64_t i = 0; i < m; i++) {
        const double d = element(x, place(x, channel, i), 0) - *mean;
        squares += d * d;
    }
    *variance = squares / (double)m;
    if (m == 0) return;

    const double old_mean = element(running_mean, channel, 0), old_var = element(running_var, channel, 0);
    const double unbiased = m > 1 ? squares / (double)(m - 1) : *variance;
    tn_set(running_mean->type, running_mean->data, channel, (1 - momentum) * old_mean + momentum * *mean);
    tn_set(running_var->type, running_var->data, channel, (1 - momentum) * old_var + momentum * unbiased);
}

/* y = act(gamma * (x - mean) * rstd + beta + residual) */
static tn_status batch_norm_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, X), *gamma = tn_in(call, GAMMA), *beta = tn_in(call, BETA);
    const tn_view *residual = tn_in(call, RESIDUAL);
    const tn_view *y = tn_out(call, Y), *mean_out = tn_out(call, MEAN), *rstd_out = tn_out(call, RSTD);
    const int64_t c = x->shape[1], m = x->shape[0] * tn_product(x, 2, x->ndim);
    for (int64_t k = 0; k < c; k++) {
        double mean, variance;
        statistics_ref(call, k, m, &mean, &variance);
        const double rstd = 1 / sqrt(variance + call->attrs[EPS].f);
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(x, k, i);
            const double xhat = (element(x, at, 0) - mean) * rstd;
            const double z = element(gamma, k, 1) * xhat + element(beta, k, 0) + element(residual, at, 0);
            tn_set(y->type, y->data, at, call->attrs[ACT].choice == ACT_RELU && z < 0 ? 0 : z);
        }
        tn_set(mean_out->type, mean_out->data, k, mean);
        tn_set(rstd_out->type, rstd_out->data, k, rstd);
    }
    return TN_OK;
}

/* What passes the activation: dy, or 0 where relu cut off. */
static double passed(const tn_call *call, int64_t k, int64_t at, double xhat) {
    const tn_view *gamma = tn_in(call, GAMMA), *beta = tn_in(call, BETA);
    const tn_view *residual = tn_in(call, GRAD_RESIDUAL), *dy = tn_in(call, GRAD_DY);
    const double z = element(gamma, k, 1) * xhat + element(beta, k, 0) + element(residual, at, 0);
    return call->attrs[GRAD_ACT].choice == ACT_RELU && z <= 0 ? 0 : element(dy, at, 0);
}

/* With g what passes the activation: dresidual = g, dbeta = sum(g), dgamma = sum(g * xhat) and
 * dx = gamma * rstd * (g - dbeta / m - xhat * dgamma / m). */
static tn_status batch_norm_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, X), *mean = tn_in(call, GRAD_MEAN), *rstd = tn_in(call, GRAD_RSTD);
    const tn_view *dx = tn_out(call, GRAD_DX), *dresidual = tn_out(call, GRAD_DRESIDUAL);
    const tn_view *dgamma = tn_out(call, GRAD_DGAMMA), *dbeta = tn_out(call, GRAD_DBETA);
    const int64_t c = x->shape[1], m = x->shape[0] * tn_product(x, 2, x->ndim);
    for (int64_t k = 0; k < c; k++) {
        const double scale = element(rstd, k, 0), shift = element(mean, k, 0);
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(x, k, i);
            const double xhat = (element(x, at, 0) - shift) * scale, g = passed(call, k, at, xhat);
            sum += g;
            dot += g * xhat;
        }
        for (int64_t i = 0; i < m; i++) {
            const int64_t at = place(x, k, i);
            const double xhat = (element(x, at, 0) - shift) * scale, g = passed(call, k, at, xhat);
            const double d = element(tn_in(call, GAMMA), k, 1) * scale * (g - (sum + xhat * dot) / (double)m);
            if (dx) tn_set(dx->type, dx->data, at, d);
            if (dresidual) tn_set(dresidual->type, dresidual->data, at, g);
        }
        if (dgamma) tn_set(dgamma->type, dgamma->data, k, dot);
        if (dbeta) tn_set(dbeta->type, dbeta->data, k, sum);
    }
    return TN_OK;
}

/* The vectorised kernels take planes and rows (batch_norm.h), the same for every tensor. Others are made dense first. */
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
    const tn_view *tensors[] = {tn_in(call, X), tn_in(call, RESIDUAL), tn_out(call, Y)};
    return same_layout(tensors, 3);
}

static bool batch_norm_grad_accepts(const tn_call *call) {
    const tn_view *tensors[] = {tn_in(call, X), tn_in(call, GRAD_RESIDUAL), tn_in(call, GRAD_DY), tn_out(call, GRAD_DX),
                                tn_out(call, GRAD_DRESIDUAL)};
    return same_layout(tensors, 5);
}

/* For whichever layout needs more. */
static size_t workspace(const tn_call *call) {
    const tn_view *x = tn_in(call, X);
    const int64_t n = x->shape[0], c = x->shape[1], places = n * tn_product(x, 2, x->ndim);
    const int64_t block = tni_batch_norm_block(places), blocks = (places + block - 1) / block;
    const int64_t planes = tni_batch_norm_parts(n, c), parts = blocks > planes ? blocks : planes;
    return (size_t)(parts * TNI_BATCH_NORM_SUMS + TNI_BATCH_NORM_PER_CHANNEL) * (size_t)c * sizeof(double);
}

static const tn_kernel batch_norm_kernels[] = {
    TNI_CPU_KERNELS(batch_norm, .flags = TN_STRIDED | TN_ALIAS, .accepts = batch_norm_accepts, .workspace = workspace),
    TNI_CPU_KERNELS(batch_norm, .flags = TN_ALIAS, .workspace = workspace),
    TNI_CUDA_KERNEL(batch_norm, .flags = TN_STRIDED | TN_ALIAS, .accepts = batch_norm_accepts,
                    .workspace = tni_batch_norm_cuda_workspace),
    TNI_CUDA_KERNEL(batch_norm, .flags = TN_ALIAS, .workspace = tni_batch_norm_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = batch_norm_ref},
    {0},
};

static const tn_kernel batch_norm_grad_kernels[] = {
    TNI_CPU_KERNELS(batch_norm_grad, .flags = TN_STRIDED | TN_ALIAS, .accepts = batch_norm_grad_accepts,
                    .workspace = workspace),
    TNI_CPU_KERNELS(batch_norm_grad, .flags = TN_ALIAS, .workspace = workspace),
    TNI_CUDA_KERNEL(batch_norm_grad, .flags = TN_STRIDED | TN_ALIAS, .accepts = batch_norm_grad_accepts,
                    .workspace = tni_batch_norm_grad_cuda_workspace),
    TNI_CUDA_KERNEL(batch_norm_grad, .flags = TN_ALIAS, .workspace = tni_batch_norm_grad_cuda_workspace),
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
    {"n=3 c=2 s=[120, 104] gamma beta W=f32 rstd>0 " ALL},
    {"n=5 c=3 s=[83, 101] gamma residual act='relu' rstd>0 want_dresidual=true " ALL},
    {"n=0 c=3 s=[4] gamma beta rstd>0 " ALL},
    {"n=3 c=0 s=[4] gamma beta rstd>0 " ALL},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32 rstd>0 " ALL, .bench = true},
    {"n=32 c=64 s=[56, 56] gamma beta W=f32 residual act='relu' rstd>0 want_dresidual=true " ALL, .bench = true},
    {0},
};

const tn_op tni_op_batch_norm = {
    .signature = "batch_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, running_mean: f32[c]!, running_var: f32[c]!, "
                 "residual: T[n, c, *s]?, momentum: float = 0.1, eps: float = 1e-5, act: activation = 'none') "
                 "-> y: T[n, c, *s], mean: acc(T)[c], rstd: acc(T)[c], "
                 "z: T[n, c, *s if act != 'none' and act != 'relu' else 0]",

    .doc = "In training: normalises each channel over the batch, times gamma, plus beta, plus residual, then act; "
           "moves the running statistics.",
    .grad = "x, gamma, beta, residual: batch_norm_grad(x, gamma, beta, residual, mean, rstd, dy, z)",
    .kernels = batch_norm_kernels,
    .samples = batch_norm_samples,
};

const tn_op tni_op_batch_norm_grad = {
    .signature = "batch_norm_grad(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, residual: T[n, c, *s]?, mean: acc(T)[c], "
                 "rstd: acc(T)[c], dy: T[n, c, *s], z: T[n, c, *s if act != 'none' and act != 'relu' else 0]?, act: "
                 "activation = 'none') "
                 "-> dx: T[n, c, *s]?, dgamma: W[c]?, dbeta: W[c]?, dresidual: T[n, c, *s]?",
    .doc =
        "The gradients of batch_norm that are asked for; what relu cut off is computed again, other activations need "
        "z, the values before them.",
    .kernels = batch_norm_grad_kernels,
    .samples = batch_norm_grad_samples,
};
