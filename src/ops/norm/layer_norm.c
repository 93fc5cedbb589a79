/* layer_norm: contract, gradient, reference. The vectorised kernels are in layer_norm_cpu.c. */
#include <math.h>

#include "cpu/vec/variants.h"
#include "layer_norm.h"
#include "layer_norm_cuda.h"

/* layer_norm */
enum { X, GAMMA, BETA };
enum { EPS };
enum { Y, MEAN, RSTD };

/* layer_norm_grad: the inputs begin as those of layer_norm */
enum { GRAD_MEAN = BETA + 1, GRAD_RSTD, GRAD_DY };
enum { GRAD_DX, GRAD_DGAMMA, GRAD_DBETA };

TNI_CPU_DECLARE(layer_norm)
TNI_CPU_DECLARE(layer_norm_grad)

/* x: (rows, c). */
static tn_status layer_norm_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, X), *gamma = tn_in(call, GAMMA), *beta = tn_in(call, BETA);
    const tn_view *y = tn_out(call, Y), *mean_out = tn_out(call, MEAN), *rstd_out = tn_out(call, RSTD);
    const int64_t rows = tn_product(x, 0, x->ndim - 1), c = x->shape[x->ndim - 1];
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < c; j++) mean += tn_get(x->type, x->data, i * c + j);
        mean /= (double)c;
        for (int64_t j = 0; j < c; j++) {
            const double d = tn_get(x->type, x->data, i * c + j) - mean;
            variance += d * d;
        }
        variance /= (double)c;
        const double rstd = 1 / sqrt(variance + call->attrs[EPS].f);

        for (int64_t j = 0; j < c; j++) {
            double v = (tn_get(x->type, x->data, i * c + j) - mean) * rstd;
            if (gamma) v *= tn_get(gamma->type, gamma->data, j);
            if (beta) v += tn_get(beta->type, beta->data, j);
            tn_set(y->type, y->data, i * c + j, v);
        }
        tn_set(mean_out->type, mean_out->data, i, mean);
        tn_set(rstd_out->type, rstd_out->data, i, rstd);
    }
    return TN_OK;
}

/* The normalised x[i][j], and what arrives at it: g = dy * gamma. */
static double normalised(const tn_call *call, int64_t i, int64_t j, int64_t c) {
    const tn_view *x = tn_in(call, X), *mean = tn_in(call, GRAD_MEAN), *rstd = tn_in(call, GRAD_RSTD);
    const double d = tn_get(x->type, x->data, i * c + j) - tn_get(mean->type, mean->data, i);
    return d * tn_get(rstd->type, rstd->data, i);
}

static double arriving(const tn_call *call, int64_t i, int64_t j, int64_t c) {
    const tn_view *gamma = tn_in(call, GAMMA), *dy = tn_in(call, GRAD_DY);
    const double d = tn_get(dy->type, dy->data, i * c + j);
    return gamma ? d * tn_get(gamma->type, gamma->data, j) : d;
}

/* dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the means taken along the row */
static void layer_norm_dx_ref(const tn_call *call, const tn_view *dx, int64_t rows, int64_t c) {
    const tn_view *rstd = tn_in(call, GRAD_RSTD);
    for (int64_t i = 0; i < rows; i++) {
        double g_mean = 0, gx_mean = 0;
        for (int64_t j = 0; j < c; j++) {
            const double g = arriving(call, i, j, c);
            g_mean += g / (double)c;
            gx_mean += g * normalised(call, i, j, c) / (double)c;
        }
        for (int64_t j = 0; j < c; j++) {
            const double d = arriving(call, i, j, c) - g_mean - normalised(call, i, j, c) * gx_mean;
            tn_set(dx->type, dx->data, i * c + j, d * tn_get(rstd->type, rstd->data, i));
        }
    }
}

static tn_status layer_norm_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tn_view *x = tn_in(call, X), *dy = tn_in(call, GRAD_DY);
    const tn_view *dx = tn_out(call, GRAD_DX), *dgamma = tn_out(call, GRAD_DGAMMA), *dbeta = tn_out(call, GRAD_DBETA);
    const int64_t rows = tn_product(x, 0, x->ndim - 1), c = x->shape[x->ndim - 1];
    if (dx) layer_norm_dx_ref(call, dx, rows, c);
    for (int64_t j = 0; j < c; j++) {
        double scale = 0, shift = 0;
        for (int64_t i = 0; i < rows; i++) {
            const double d = tn_get(dy->type, dy->data, i * c + j);
            scale += d * normalised(call, i, j, c);
            shift += d;
        }
        if (dgamma) tn_set(dgamma->type, dgamma->data, j, scale);
        if (dbeta) tn_set(dbeta->type, dbeta->data, j, shift);
    }
    return TN_OK;
}

/* The vectorised kernels take rows from anywhere, but a row's elements side by side. Others are made dense first. */
static bool has_unit_rows(const tn_view *v) {
    return !v || v->shape[v->ndim - 1] <= 1 || v->strides[v->ndim - 1] == 1;
}

static bool layer_norm_accepts(const tn_call *call) {
    return has_unit_rows(tn_in(call, X)) && has_unit_rows(tn_out(call, Y));
}

static bool layer_norm_grad_accepts(const tn_call *call) {
    return has_unit_rows(tn_in(call, X)) && has_unit_rows(tn_in(call, GRAD_DY)) && has_unit_rows(tn_out(call, GRAD_DX));
}

/* gamma and beta in the type of the arithmetic */
static size_t layer_norm_workspace(const tn_call *call) {
    const tn_view *x = tn_in(call, X);
    return 2 * (size_t)x->shape[x->ndim - 1] * tn_type_size(tn_out(call, MEAN)->type);
}

/* gamma, and for each block of rows the sums of dgamma and dbeta */
static size_t layer_norm_grad_workspace(const tn_call *call) {
    const tn_view *x = tn_in(call, X);
    const int64_t rows = tn_product(x, 0, x->ndim - 1), block = tni_layer_norm_block(rows);
    const bool params = tn_out(call, GRAD_DGAMMA) || tn_out(call, GRAD_DBETA);
    const int64_t sums = params ? 2 * ((rows + block - 1) / block) : 0;
    return (size_t)((1 + sums) * x->shape[x->ndim - 1]) * tn_type_size(tn_in(call, GRAD_MEAN)->type);
}

static const tn_kernel layer_norm_kernels[] = {
    TNI_CPU_KERNELS(layer_norm, .flags = TN_STRIDED | TN_ALIAS, .accepts = layer_norm_accepts,
                    .workspace = layer_norm_workspace),
    TNI_CPU_KERNELS(layer_norm, .flags = TN_ALIAS, .workspace = layer_norm_workspace),
    TNI_CUDA_KERNEL(layer_norm, .flags = TN_STRIDED | TN_ALIAS, .accepts = tni_layer_norm_cuda_accepts,
                    .workspace = tni_layer_norm_cuda_workspace),
    TNI_CUDA_KERNEL(layer_norm, .flags = TN_ALIAS, .workspace = tni_layer_norm_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = layer_norm_ref},
    {0},
};

static const tn_kernel layer_norm_grad_kernels[] = {
    TNI_CPU_KERNELS(layer_norm_grad, .flags = TN_STRIDED | TN_ALIAS, .accepts = layer_norm_grad_accepts,
                    .workspace = layer_norm_grad_workspace),
    TNI_CPU_KERNELS(layer_norm_grad, .flags = TN_ALIAS, .workspace = layer_norm_grad_workspace),
    TNI_CUDA_KERNEL(layer_norm_grad, .flags = TN_STRIDED | TN_ALIAS, .accepts = tni_layer_norm_grad_cuda_accepts,
                    .workspace = tni_layer_norm_grad_cuda_workspace),
    TNI_CUDA_KERNEL(layer_norm_grad, .flags = TN_ALIAS, .workspace = tni_layer_norm_grad_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = layer_norm_grad_ref},
    {0},
};

static const tn_sample layer_norm_samples[] = {
    {"r=[] c=7"},
    {"r=[5] c=33"},
    {"r=[2, 3] c=64 gamma beta"},
    {"r=[2, 3] c=65 gamma beta W=f32"},
    {"r=[7] c=17 gamma"},
    {"r=[4, 1, 3] c=100 beta W=f32 eps=0.01"},
    {"r=[3] c=1 gamma beta"},
    {"r=[2] c=5003 gamma beta"},
    {"r=[0] c=8 gamma beta"},
    {"r=[3] c=0 gamma beta"},
    {"r=[40] c=2048 gamma beta W=f32"},
    {"r=[9] c=264 gamma beta"},
    {"r=[5] c=1000 gamma beta W=f32"},
    {"r=[3] c=12296 gamma beta"},
    {"r=[3] c=40960 gamma beta"},
    {"r=[4096] c=1024 gamma beta", .bench = true},
    {"r=[64, 128] c=768 gamma beta W=f32", .bench = true},
    {"r=[256] c=16384 gamma beta", .bench = true},
    {0},
};

static const tn_sample layer_norm_grad_samples[] = {
    {"r=[] c=7 rstd>0 want_dx=true"},
    {"r=[5] c=33 rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[2, 3] c=64 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[2, 3] c=65 gamma beta W=f32 rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[300] c=17 gamma rstd>0 want_dgamma=true"},
    {"r=[4, 1, 3] c=100 beta W=f32 rstd>0 want_dbeta=true"},
    {"r=[9] c=31 gamma rstd>0 want_dx=true want_dgamma=true"},
    {"r=[3] c=1 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[2] c=5003 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[0] c=8 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[3] c=0 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[40] c=2048 gamma beta W=f32 rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[150] c=264 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[5] c=1000 gamma beta W=f32 rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[3] c=12296 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[3] c=40960 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"r=[4096] c=1024 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true", .bench = true},
    {"r=[64, 128] c=768 gamma beta W=f32 rstd>0 want_dx=true want_dgamma=true want_dbeta=true", .bench = true},
    {"r=[256] c=16384 gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true", .bench = true},
    {0},
};

const tn_op tni_op_layer_norm = {
    .signature = "layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) "
                 "-> y: T[*r, c], mean: acc(T)[*r], rstd: acc(T)[*r]",
    .doc = "Normalises the last dimension to mean 0 and variance 1, then times gamma, plus beta.",
    .grad = "x, gamma, beta: layer_norm_grad(x, gamma, beta, mean, rstd, dy)",
    .autocast = "32",
    .kernels = layer_norm_kernels,
    .samples = layer_norm_samples,
};

const tn_op tni_op_layer_norm_grad = {
    .signature = "layer_norm_grad(x: T[*r, c], gamma: W[c]?, beta: W[c]?, mean: acc(T)[*r], rstd: acc(T)[*r], "
                 "dy: T[*r, c]) -> dx: T[*r, c]?, dgamma: W[c]?, dbeta: W[c]?",
    .doc = "The gradients of layer_norm that are asked for.",
    .kernels = layer_norm_grad_kernels,
    .samples = layer_norm_grad_samples,
};
