/* Reductions along any axes, which are formulas; sum, which has kernels of its own, is in src/ops/reduce. On the CPU
 * these compute the mean, too. max, min, argmax and argmin have kernels of their own there. */
#include "cpu/vec/variants.h"
#include "ops/formula_row.h"
#include "ops/reduce/extremes.h"
#include "ops/reduce/sum.h"

TNI_CPU_DECLARE(mean)

static const tn_kernel mean_kernels[] = {
    TNI_CPU_KERNELS(mean, .flags = TN_STRIDED, .workspace = tni_sum_workspace),
    {0},
};

#define REDUCTION(name, types, more, type) \
#name types "(x: T[*s], axes: axes = [], keepdim: bool = false" more ") -> y: " type "[reduce(*s, axes, keepdim)]"
/* Every type that formulas compute with. */
#define REAL "<T: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 bool>"

#define POSITION(name, types) \
#name types "(x: T[*s], axes: axes = [], keepdim: bool = false) -> index: i64[reduce(*s, axes, keepdim)]"

static const tn_sample reductions[] = {
    {"s=[]"},
    {"s=[7]"},
    {"s=[4, 33] axes=[1]"},
    {"s=[65, 7] axes=[0] keepdim=true"},
    {"s=[3, 5, 17] axes=[1]"},
    {"s=[3, 5, 17] axes=[-1, 0]"},
    {"s=[2, 3, 4, 5, 6] axes=[1, 3] keepdim=true"},
    {"s=[1, 9, 1] axes=[0, 2]"},
    {"s=[5000]"},
    {"s=[300, 257] axes=[0]"},
    {"s=[3, 0, 4] axes=[0]"}, /* nothing to reduce */
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axes=[1]", .bench = true},
    {"s=[4096, 1024] axes=[0]", .bench = true},
    {"s=[64, 256, 256] axes=[1]", .bench = true},
    {0},
};

static const tn_sample positions[] = {
    {"s=[]"},
    {"s=[7]"},
    {"s=[4, 33] axes=[1]"},
    {"s=[65, 7] axes=[0] keepdim=true"},
    {"s=[3, 5, 17] axes=[1]"},
    {"s=[3, 5, 17] axes=[-1, 0]"},
    {"s=[1, 9, 1] axes=[0, 2]"},
    {"s=[5000]"},
    {"s=[300, 257] axes=[0]"},
    {"s=[0, 5] axes=[1]"}, /* no row */
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axes=[1]", .bench = true},
    {"s=[4096, 1024] axes=[0]", .bench = true},
    {0},
};

const tn_op tni_ops_reductions[] = {
    FORMULA("log_softmax(x: T[*s], axis: axis = -1) -> y: T[*s] where rank(*s) >= 1", "x - logsumexp(x, axis=axis)",
            .autocast = "32", .doc = "The logarithm of softmax along an axis.",
            SAMPLES({"s=[7]"}, {"s=[4, 33]"}, {"s=[3, 5, 17] axis=1"}, {"s=[65, 7] axis=0"}, {"s=[2, 5000]"},
                    {"s=[0, 5]"}, {"s=[5, 0]"}, {"s=[4096, 1024]", .bench = true}, {"s=[256, 50257]", .bench = true},
                    {"s=[64, 256, 256] axis=1", .bench = true})),
    FORMULA("logsumexp(x: T[*s], axes: axes = [-1], keepdim: bool = false) -> y: T[reduce(*s, axes, keepdim)]",
            "logsumexp(x, axis=axes)", .autocast = "32",
            .doc = "log(sum(exp(x))) over some axes; [] is all of them. Of no elements it is -inf.",
            SAMPLES({"s=[7]"}, {"s=[] axes=[]"}, {"s=[4, 33]"}, {"s=[65, 7] axes=[0] keepdim=true"},
                    {"s=[3, 5, 17] axes=[1]"}, {"s=[3, 5, 17] axes=[-1, 0]"}, {"s=[4, 33] axes=[]"}, {"s=[2, 5000]"},
                    {"s=[3, 0, 4] axes=[1]"}, {"s=[3, 0, 4] axes=[0]"}, {"s=[4096, 1024]", .bench = true},
                    {"s=[4096, 1024] axes=[0]", .bench = true})),
    FORMULA(REDUCTION(mean, "", "", "T"), "mean(x, axis=axes)", .doc = "The mean over some axes; [] is all of them.",
            .kernels = mean_kernels, .samples = reductions),
    FORMULA(REDUCTION(max, REAL, "", "T"), "max(x, axis=axes)", .kernels = tni_max_kernels,
            .doc = "The largest element over some axes; [] is all of them. Several that are equal share the gradient.",
            .samples = reductions),
    FORMULA(REDUCTION(min, REAL, "", "T"), "min(x, axis=axes)", .kernels = tni_min_kernels,
            .doc = "The smallest element over some axes; [] is all of them. Several that are equal share the gradient.",
            .samples = reductions),
    FORMULA(
        POSITION(argmax, REAL), "argmax(x, axis=axes)", .kernels = tni_argmax_kernels,
        .doc = "Where the largest element is, the first of several; NaN is larger than all. Over several axes, and [] "
               "is all of them, their elements are counted in the order of the axes.",
        .samples = positions),
    FORMULA(
        POSITION(argmin, REAL), "argmin(x, axis=axes)", .kernels = tni_argmin_kernels,
        .doc = "Where the smallest element is, the first of several; NaN is smaller than all. Over several axes, and "
               "[] is all of them, their elements are counted in the order of the axes.",
        .samples = positions),
    FORMULA(REDUCTION(prod, "", "", "T"), "prod(x, axis=axes)", .autocast = "32",
            .doc = "The product over some axes; [] is all of them.", .samples = reductions),
    FORMULA(
        REDUCTION(var, "", ", correction: float = 0.0", "T"),
        "n = count(x, axis=axes); d = x - mean(x, axis=axes); y = sum(d * d, axis=axes) / maximum(n - correction, 0)",
        .doc = "The variance over some axes; [] is all of them. It divides by the count minus the correction.",
        .samples = reductions),
    FORMULA(
        REDUCTION(std, "", ", correction: float = 0.0", "T"),
        "n = count(x, axis=axes); d = x - mean(x, axis=axes); v = sum(d * d, axis=axes) / maximum(n - correction, 0); "
        "y = where(v == 0, 0.0, sqrt(where(v == 0, 1.0, v)))",
        .doc = "The root of var: the standard deviation over some axes; [] is all of them.", .samples = reductions),
    FORMULA(REDUCTION(norm, "", ", p: float = 2.0", "T"),
            "a = abs(x); "
            "y = norm(x, axis=axes) if p == 2 else sum(a, axis=axes) if p == 1 else max(a, axis=axes) if p == inf "
            "else min(a, axis=axes) if p == -inf else sum(where(x != 0, 1, 0), axis=axes) if p == 0 "
            "else sum(a ** p, axis=axes) ** (1 / p)",
            .autocast = "32",
            .doc = "sum(abs(x) ** p) ** (1 / p) over some axes; [] is all of them. p = inf is the largest |x|, 0 the "
                   "count of what is not 0.",
            SAMPLES({"s=[]"}, {"s=[7]"}, {"s=[4, 33] axes=[1]"}, {"s=[65, 7] axes=[0] keepdim=true p=1.0"},
                    {"s=[3, 5, 17] axes=[1] p=inf"}, {"s=[3, 5, 17] axes=[-1, 0] p=3.0"}, {"s=[5000]"},
                    {"s=[3, 0, 4] axes=[1]"}, {"s=[3, 0, 4] axes=[0] p=-inf"}, {"s=[4, 9] axes=[1] p=0.0"},
                    {"s=[4096, 1024]", .bench = true}, {"s=[4096, 1024] axes=[1]", .bench = true},
                    {"s=[4096, 1024] axes=[0]", .bench = true})),
    FORMULA(REDUCTION(any, REAL, "", "bool"), "any(x, axis=axes)",
            .doc = "Whether any element is true, or not 0, over some axes; [] is all of them.", .samples = reductions),
    FORMULA(REDUCTION(all, REAL, "", "bool"), "all(x, axis=axes)",
            .doc = "Whether every element is true, or not 0, over some axes; [] is all of them.",
            .samples = reductions),
    {0},
};
