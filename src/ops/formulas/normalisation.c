/* Normalisations that are formulas; layer_norm and batch_norm, which are none, are in src/ops/norm. The kernels that
 * group_norm and instance_norm have for the CPU are in src/ops/group_norm. */
#include "ops/formula_row.h"
#include "ops/group_norm/group_norm.h"

/* y of x, less its mean and over its root mean square, both along `axes`. */
#define NORMALISE(axes)                                                       \
    "t = (x - mean(x, axis=" axes ")) * rsqrt(var(x, axis=" axes ") + eps); " \
    "u = t * gamma if has(gamma) else t; y = act(u + beta if has(beta) else u)"

const tn_op tni_ops_normalisation[] = {
    FORMULA("rms_norm(x: T[*r, c], gamma: W[c]?, eps: float = 1e-6, zero_centered: bool = false) -> y: T[*r, c]",
            "n = x * rsqrt(mean(x * x, -1) + eps); w = n * gamma; "
            "y = (w + n if zero_centered else w) if has(gamma) else n",
            .autocast = "32",
            .doc = "x over the root of its mean square along the last dimension, times gamma or 1 + gamma.",
            SAMPLES({"r=[7] c=5"}, {"r=[4] c=33 gamma"}, {"r=[2, 3] c=64 gamma W=f32 zero_centered=true"},
                    {"r=[0] c=5 gamma"}, {"r=[2] c=5000 gamma eps=1e-3"}, {"r=[12] c=1024 gamma"},
                    {"r=[20] c=2048 gamma W=f32"}, {"r=[4096] c=4096 gamma", .bench = true})),
    FORMULA("batch_norm_infer(x: T[n, c, *s], mean: M[c], var: M[c], gamma: W[c]?, beta: W[c]?, "
            "residual: T[n, c, *s]?, eps: float = 1e-5, act: activation = 'none') -> y: T[n, c, *s]",
            "t = (x - mean) * rsqrt(var + eps); u = t * gamma if has(gamma) else t; v = u + beta if has(beta) else u; "
            "y = act(v + residual if has(residual) else v)",
            .autocast = "widest",
            .doc = "batch_norm as it is once it has been trained: with the statistics given, plus residual, then act.",
            SAMPLES({"n=4 c=5 s=[3, 2] var>0"}, {"n=2 c=7 s=[] var>0 gamma beta act='relu'"},
                    {"n=3 c=4 s=[9] var>0 gamma residual act='silu' W=f32"}, {"n=0 c=3 s=[4] var>0 gamma beta"},
                    {"n=20 c=3 s=[4, 4] var>0 gamma beta"},
                    {"n=32 c=64 s=[56, 56] var>0 gamma beta W=f32 M=f32 act='relu'", .bench = true})),
    FORMULA("group_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, groups: int, eps: float = 1e-5, "
            "act: activation = 'none') -> y: T[n, c, *s] where c % groups == 0",
            NORMALISE("[c / groups, s]"), .autocast = "32", .kernels = tni_group_norm_kernels,
            .doc = "Each group of channels of x less its mean, over its root mean square, times gamma, plus beta, then "
                   "act.",
            SAMPLES({"n=4 c=6 s=[3, 2] groups=3"}, {"n=2 c=8 s=[] groups=2 gamma beta act='relu'"},
                    {"n=3 c=4 s=[9] groups=4 gamma W=f32"}, {"n=2 c=5 s=[7, 3] groups=1 gamma beta act='silu'"},
                    {"n=0 c=4 s=[4] groups=2 gamma beta"}, {"n=2 c=12 s=[33] groups=3 gamma beta W=f32 eps=1e-3"},
                    {"n=3 c=6 s=[9, 15] groups=2 gamma beta act='relu'"}, {"n=2 c=4 s=[1100] groups=2 gamma W=f32"},
                    {"n=32 c=64 s=[56, 56] groups=32 gamma beta W=f32", .bench = true},
                    {"n=8 c=320 s=[64, 64] groups=32 gamma beta W=f32 act='silu'", .bench = true})),
    FORMULA("instance_norm(x: T[n, c, *s], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5, act: activation = 'none') "
            "-> y: T[n, c, *s]",
            NORMALISE("s"), .kernels = tni_instance_norm_kernels,
            .doc = "Each channel of each sample of x less its mean, over its root mean square, times gamma, plus beta, "
                   "then act.",
            SAMPLES({"n=4 c=6 s=[3, 2]"}, {"n=2 c=3 s=[40] gamma beta act='relu'"}, {"n=3 c=4 s=[9] gamma W=f32"},
                    {"n=0 c=4 s=[4] gamma beta"}, {"n=2 c=3 s=[5, 7, 2] gamma beta W=f32 eps=1e-3 act='silu'"},
                    {"n=2 c=3 s=[131] gamma beta W=f32 act='relu'"},
                    {"n=32 c=64 s=[56, 56] gamma beta W=f32", .bench = true})),
    FORMULA("add_layer_norm(x: T[*r, c], residual: T[*r, c], gamma: W[c]?, beta: W[c]?, eps: float = 1e-5) "
            "-> y: T[*r, c], sum: T[*r, c]",
            "sum = x + residual; t = (sum - mean(sum, -1)) * rsqrt(var(sum, -1) + eps); "
            "u = t * gamma if has(gamma) else t; y = u + beta if has(beta) else u",
            .autocast = "widest", .doc = "layer_norm of x + residual, and x + residual itself.",
            SAMPLES({"r=[7] c=5"}, {"r=[4] c=33 gamma beta"}, {"r=[2, 3] c=64 gamma W=f32"}, {"r=[0] c=5 gamma"},
                    {"r=[2] c=5000 gamma beta eps=1e-3"}, {"r=[12] c=1024 gamma beta W=f32"},
                    {"r=[4096] c=4096 gamma beta", .bench = true})),
    FORMULA("add_rms_norm(x: T[*r, c], residual: T[*r, c], gamma: W[c]?, eps: float = 1e-6, "
            "zero_centered: bool = false) -> y: T[*r, c], sum: T[*r, c]",
            "sum = x + residual; n = sum * rsqrt(mean(sum * sum, -1) + eps); w = n * gamma; "
            "y = (w + n if zero_centered else w) if has(gamma) else n",
            .autocast = "widest", .doc = "rms_norm of x + residual, and x + residual itself.",
            SAMPLES({"r=[7] c=5"}, {"r=[4] c=33 gamma"}, {"r=[2, 3] c=64 gamma W=f32 zero_centered=true"},
                    {"r=[0] c=5 gamma"}, {"r=[2] c=5000 gamma eps=1e-3"}, {"r=[12] c=1024 gamma"},
                    {"r=[4096] c=4096 gamma", .bench = true})),
    {0},
};
