/* layer_norm: contract, gradient, reference. The vectorised kernels are in layer_norm_cpu.c. */
#include "layer_norm.h"

#include <math.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "fuse/formula_kernel.h"
#include "norm.h"
#include "ops/elements.h"
#include "ops/formula_row.h"

TNI_CPU_DECLARE(layer_norm)
TNI_CPU_DECLARE(layer_norm_grad)
TNI_CUDA_DECLARE(layer_norm)
TNI_CUDA_DECLARE(layer_norm_grad)

/* x: (rows, c). */
static tn_status layer_norm_ref(const tn_call *call, void *state) {
    (void)state;
    const layer_norm_args a = layer_norm_args_of(call);
    const int64_t rows = tn_product(a.x, 0, a.x->ndim - 1), c = a.x->shape[a.x->ndim - 1];
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < c; j++) mean += get(a.x, i * c + j);
        mean /= (double)c;
        for (int64_t j = 0; j < c; j++) {
            const double d = get(a.x, i * c + j) - mean;
            variance += d * d;
        }
        variance /= (double)c;
        const double rstd = 1 / sqrt(variance + a.eps);

        for (int64_t j = 0; j < c; j++) {
            double v = (get(a.x, i * c + j) - mean) * rstd;
            if (a.gamma) v *= get(a.gamma, j);
            if (a.beta) v += get(a.beta, j);
            set(a.y, i * c + j, v);
        }
        set(a.mean, i, mean);
        set(a.rstd, i, rstd);
    }
    return TN_OK;
}

/* The normalised x[i][j], and what arrives at it: g = dy * gamma. */
static double normalised(const layer_norm_grad_args *a, int64_t i, int64_t j, int64_t c) {
    return (get(a->x, i * c + j) - get(a->mean, i)) * get(a->rstd, i);
}

static double arriving(const layer_norm_grad_args *a, int64_t i, int64_t j, int64_t c) {
    return get(a->dy, i * c + j) * get_or(a->gamma, j, 1);
}

/* dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the means taken along the row */
static void layer_norm_dx_ref(const layer_norm_grad_args *a, int64_t rows, int64_t c) {
    for (int64_t i = 0; i < rows; i++) {
        double g_mean = 0, gx_mean = 0;
        for (int64_t j = 0; j < c; j++) {
            const double g = arriving(a, i, j, c);
            g_mean += g / (double)c;
            gx_mean += g * normalised(a, i, j, c) / (double)c;
        }
        for (int64_t j = 0; j < c; j++) {
            const double d = arriving(a, i, j, c) - g_mean - normalised(a, i, j, c) * gx_mean;
            set(a->dx, i * c + j, d * get(a->rstd, i));
        }
    }
}

static tn_status layer_norm_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const int64_t rows = tn_product(a.x, 0, a.x->ndim - 1), c = a.x->shape[a.x->ndim - 1];
    if (a.dx) layer_norm_dx_ref(&a, rows, c);
    for (int64_t j = 0; j < c; j++) {
        double scale = 0, shift = 0;
        for (int64_t i = 0; i < rows; i++) {
            const double d = get(a.dy, i * c + j);
            scale += d * normalised(&a, i, j, c);
            shift += d;
        }
        if (a.dgamma) set(a.dgamma, j, scale);
        if (a.dbeta) set(a.dbeta, j, shift);
    }
    return TN_OK;
}

/* The vectorised kernels take rows from anywhere, but a row's elements side by side. Others are made dense first. */
static bool has_unit_rows(const tn_view *v) {
    return !v || v->shape[v->ndim - 1] <= 1 || v->strides[v->ndim - 1] == 1;
}

static bool layer_norm_accepts(const tn_call *call) {
    const layer_norm_args a = layer_norm_args_of(call);
    return has_unit_rows(a.x) && has_unit_rows(a.y);
}

static bool layer_norm_grad_accepts(const tn_call *call) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    return has_unit_rows(a.x) && has_unit_rows(a.dy) && has_unit_rows(a.dx);
}

/* gamma and beta in the type of the arithmetic */
static size_t layer_norm_workspace(const tn_call *call) {
    const layer_norm_args a = layer_norm_args_of(call);
    return 2 * (size_t)a.x->shape[a.x->ndim - 1] * tn_type_size(a.mean->type);
}

/* gamma, and for each block of rows the sums of dgamma and dbeta */
static size_t layer_norm_grad_workspace(const tn_call *call) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const int64_t rows = tn_product(a.x, 0, a.x->ndim - 1);
    const int64_t sums = a.dgamma || a.dbeta ? 2 * ceil_div(rows, rows_summed_together(rows)) : 0;
    return (size_t)((1 + sums) * a.x->shape[a.x->ndim - 1]) * tn_type_size(a.mean->type);
}

/* Lengths here and below: measured on an H200 beside the formula, bench/results/lengths-cuda-*.json. */
static const tni_lengths_by_hand layer_norm_by_hand = {.whole = {{2048, 12288}, {2048, 12288}}};

static bool layer_norm_formula_wins(const tn_call *call) {
    return tni_formula_wins(layer_norm_args_of(call).x, &layer_norm_by_hand);
}

static tni_formula_kernel layer_norm_formula = {
    .statements = "mean = mean(x, -1); d = x - mean; rstd = rsqrt(mean(d * d, -1) + eps); n = d * rstd; "
                  "w = n * gamma if has(gamma) else n; y = w + beta if has(beta) else w",
    .wins = layer_norm_formula_wins,
};

/* The formula has the shapes of dgamma and dbeta from gamma and beta. */
static bool layer_norm_grad_formula_accepts(const tn_call *call) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    return (!a.dgamma || a.gamma) && (!a.dbeta || a.beta);
}

/* Longer rows are more than half of what the ring of the kernel by hand holds. */
static const tni_lengths_by_hand layer_norm_grad_by_hand = {.whole = {{1280, 8193}, {1280, 8193}}};

static bool layer_norm_grad_formula_wins(const tn_call *call) {
    return tni_formula_wins(layer_norm_grad_args_of(call).x, &layer_norm_grad_by_hand);
}

static tni_formula_kernel layer_norm_grad_formula = {
    .statements = "n = (x - mean) * rstd; g = dy * gamma if has(gamma) else dy; "
                  "dx = rstd * (g - mean(g, -1) - n * mean(g * n, -1)); "
                  "dgamma = sum_to(dy * n, gamma); dbeta = sum_to(dy, beta)",
    .accepts = layer_norm_grad_formula_accepts,
    .wins = layer_norm_grad_formula_wins,
};

static const tn_kernel layer_norm_kernels[] = {
    TNI_STRIDED_OR_DENSE(TNI_CPU_KERNELS, layer_norm, TN_ALIAS, layer_norm_accepts, .workspace = layer_norm_workspace),
    TNI_FORMULA_ROWS(TN_CUDA, layer_norm_formula),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, layer_norm, TN_ALIAS, tni_layer_norm_cuda_accepts,
                         .workspace = tni_layer_norm_cuda_workspace),
    TNI_FORMULA_KERNEL(TN_CUDA, layer_norm_formula),
    {.name = "ref", .device = TN_CPU, .run = layer_norm_ref},
    {0},
};

static const tn_kernel layer_norm_grad_kernels[] = {
    TNI_STRIDED_OR_DENSE(TNI_CPU_KERNELS, layer_norm_grad, TN_ALIAS, layer_norm_grad_accepts,
                         .workspace = layer_norm_grad_workspace),
    TNI_FORMULA_ROWS(TN_CUDA, layer_norm_grad_formula),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, layer_norm_grad, TN_ALIAS, tni_layer_norm_grad_cuda_accepts,
                         .workspace = tni_layer_norm_grad_cuda_workspace),
    TNI_FORMULA_KERNEL(TN_CUDA, layer_norm_grad_formula),
    {.name = "ref", .device = TN_CPU, .run = layer_norm_grad_ref},
    {0},
};

static const tn_sample layer_norm_samples[] = {
    {"r=[] c=7"},
    {"r=[5] c=33"},
    {"r=[2, 3] c=64 gamma beta"},
    {"r=[2, 3] c=65 gamma beta W=f32"},
    {"r=[3] c=20 gamma beta W=bf16"},
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

#define ALL "want_dx=true want_dgamma=true want_dbeta=true"

static const tn_sample layer_norm_grad_samples[] = {
    {"r=[] c=7 rstd>0 want_dx=true"},
    {"r=[5] c=33 rstd>0 " ALL},
    {"r=[2, 3] c=64 gamma beta rstd>0 " ALL},
    {"r=[2, 3] c=65 gamma beta W=f32 rstd>0 " ALL},
    {"r=[300] c=17 gamma rstd>0 want_dgamma=true"},
    {"r=[4, 1, 3] c=100 beta W=f32 rstd>0 want_dbeta=true"},
    {"r=[9] c=31 gamma rstd>0 want_dx=true want_dgamma=true"},
    {"r=[3] c=1 gamma beta rstd>0 " ALL},
    {"r=[2] c=5003 gamma beta rstd>0 " ALL},
    {"r=[0] c=8 gamma beta rstd>0 " ALL},
    {"r=[3] c=0 gamma beta rstd>0 " ALL},
    {"r=[40] c=2048 gamma beta W=f32 rstd>0 " ALL},
    {"r=[150] c=264 gamma beta rstd>0 " ALL},
    {"r=[5] c=1000 gamma beta W=f32 rstd>0 " ALL},
    {"r=[3] c=12296 gamma beta rstd>0 " ALL},
    {"r=[3] c=40960 gamma beta rstd>0 " ALL},
    {"r=[4096] c=1024 gamma beta rstd>0 " ALL, .bench = true},
    {"r=[64, 128] c=768 gamma beta W=f32 rstd>0 " ALL, .bench = true},
    {"r=[256] c=16384 gamma beta rstd>0 " ALL, .bench = true},
    {0},
};

#define TWICE "want_gx=true want_gdy=true"
#define OF_ALL "want_ggamma=true want_gbeta=true " TWICE

const tn_op tni_ops_layer_norm[] = {
    {
        .signature = "layer_norm(x: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) "
                     "-> y: T[*r, c], mean: acc(T)[*r], rstd: acc(T)[*r]",
        .doc = "Normalises the last dimension to mean 0 and variance 1, then times gamma, plus beta.",
        .grad = "x, gamma, beta: layer_norm_grad(x, gamma, beta, mean, rstd, dy)",
        .autocast = "32",
        .kernels = layer_norm_kernels,
        .samples = layer_norm_samples,
    },
    {
        .signature = "layer_norm_grad(x: T[*r, c], gamma: W[c]?, beta: W[c]?, mean: acc(T)[*r], rstd: acc(T)[*r], "
                     "dy: T[*r, c]) -> dx: T[*r, c]?, dgamma: W[c]?, dbeta: W[c]?",
        .doc = "The gradients of layer_norm that are asked for.",
        .grad = "~ x, gamma, beta, dy: layer_norm_grad_grad(x, gamma, beta, mean, rstd, dy, ddx, ddgamma, ddbeta)",
        .kernels = layer_norm_grad_kernels,
        .samples = layer_norm_grad_samples,
    },
    /* mean and rstd follow x here: with n = (x - mean) * rstd and P(a) = a - mean(a) - n * mean(a * n), the derivative
     * of n is rstd * P. Of the gradients, dx = rstd * P(h) for h = dy * gamma, dgamma = the sum of dy * n. */
    FORMULA(
        "layer_norm_grad_grad(x: T[*r, c], gamma: W[c]?, beta: W[c]?, mean: acc(T)[*r], rstd: acc(T)[*r], "
        "dy: T[*r, c], ddx: T[*r, c]?, ddgamma: W[c]?, ddbeta: W[c]?) -> gx: T[*r, c]?, ggamma: W[c]?, gbeta: W[c]?, "
        "gdy: T[*r, c]?",
        "n = (x - mean) * rstd; h = dy * gamma if has(gamma) else dy; "
        "m = mean(ddx, c); a = mean(ddx * n, c); k = mean(h, c); b = mean(h * n, c); "
        "q = (ddx - m - n * a) * rstd; u = dy * ddgamma; "
        "p = rstd * (u - mean(u, c) - n * mean(u * n, c)) if has(ddgamma) else 0; "
        "s = n * (mean(ddx * h, c) - m * k - 3 * a * b) + b * (ddx - m) + a * (h - k); "
        "gx = p - rstd * rstd * s if has(ddx) else p; ggamma = sum(dy * q, r) if has(ddx) else 0; gbeta = 0; "
        "t = (q * gamma if has(gamma) else q) if has(ddx) else 0; v = t + ddgamma * n if has(ddgamma) else t; "
        "gdy = v + ddbeta if has(ddbeta) else v",
        .doc = "The gradients of layer_norm_grad, where mean and rstd are those of x.",
        SAMPLES({"r=[7] c=5 rstd>0 ddx " TWICE}, {"r=[2, 3] c=64 gamma beta rstd>0 ddx ddgamma ddbeta " OF_ALL},
                {"r=[4] c=33 gamma W=f32 rstd>0 ddx " OF_ALL}, {"r=[5] c=9 gamma rstd>0 ddgamma " OF_ALL},
                {"r=[3] c=8 rstd>0 ddbeta " TWICE}, {"r=[2] c=5003 gamma rstd>0 ddx ddgamma ddbeta " OF_ALL},
                {"r=[0] c=8 gamma rstd>0 ddx ddbeta " OF_ALL},
                {"r=[4096] c=1024 gamma rstd>0 ddx " OF_ALL, .bench = true})),
    {0},
};
