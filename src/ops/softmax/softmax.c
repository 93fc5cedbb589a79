/* softmax: contract, gradient, reference. The vectorised kernels are in softmax_cpu.c. */
#include "softmax.h"

#include <math.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "fuse/formula_kernel.h"
#include "ops/elements.h"
#include "ops/formula_row.h"

TNI_CPU_DECLARE(softmax)
TNI_CPU_DECLARE(softmax_grad)
TNI_CUDA_DECLARE(softmax)
TNI_CUDA_DECLARE(softmax_grad)

/* One row: n elements, `step` apart, from `first` on. Only the keys below `visible` can take part. A row with nothing
 * left is 0; one that is left with nothing but -inf is NaN. */
static void softmax_row_ref(const softmax_args *a, int64_t first, int64_t step, int64_t n, int64_t visible) {
    const uint8_t *keep = data_of(a->mask);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n && j < visible; j++) {
        const int64_t i = first + j * step;
        if (!keep || keep[i]) most = fmax(most, a->scale * get(a->x, i));
    }
    for (int64_t j = 0; j < n && j < visible; j++) {
        const int64_t i = first + j * step;
        if (!keep || keep[i]) sum += exp(a->scale * get(a->x, i) - most);
    }
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = first + j * step;
        const bool kept = j < visible && (!keep || keep[i]);
        set(a->y, i, kept ? exp(a->scale * get(a->x, i) - most) / sum : 0);
    }
}

/* x: (outer, n, inner), a row for each of outer and inner. With `causal`, inner is 1 and outer is (…, m queries). */
static tn_status softmax_ref(const tn_call *call, void *state) {
    (void)state;
    const softmax_args a = softmax_args_of(call);
    const int axis = (int)a.axis;
    const int64_t outer = tn_product(a.x, 0, axis), n = a.x->shape[axis], inner = tn_product(a.x, axis + 1, a.x->ndim);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            const int64_t m = a.causal ? a.x->shape[axis - 1] : 1;
            softmax_row_ref(&a, o * n * inner + i, inner, n, a.causal ? o % m + n - m + 1 : n);
        }
    }
    return TN_OK;
}

/* dx = scale * y * (dy - sum(y * dy)) along the axis */
static tn_status softmax_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const softmax_grad_args a = softmax_grad_args_of(call);
    const int axis = (int)a.axis;
    const int64_t outer = tn_product(a.y, 0, axis), n = a.y->shape[axis], inner = tn_product(a.y, axis + 1, a.y->ndim);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            const int64_t first = o * n * inner + i, end = first + n * inner;
            double sum = 0;
            for (int64_t at = first; at < end; at += inner) sum += get(a.y, at) * get(a.dy, at);
            for (int64_t at = first; at < end; at += inner)
                set(a.dx, at, a.scale * get(a.y, at) * (get(a.dy, at) - sum));
        }
    }
    return TN_OK;
}

/* Formulas have no masks of softmax's kind, in which a row may be empty, and reduce along the last dimension. */
static bool softmax_formula_accepts(const tn_call *call) {
    const softmax_args a = softmax_args_of(call);
    return !a.mask && !a.causal && a.axis == a.x->ndim - 1;
}

/* Lengths here and below: measured on an H200 beside the formula, bench/results/lengths-cuda-*.json. */
static const tni_lengths_by_hand softmax_by_hand = {.whole = {{2048, 12288}, {0, INT64_MAX}},
                                                    .odd = {{0, 1153}, {0, 4096}}};

static bool softmax_formula_wins(const tn_call *call) {
    return tni_formula_wins(softmax_args_of(call).x, &softmax_by_hand);
}

static tni_formula_kernel softmax_formula = {
    .statements = "t = scale * x; e = exp(t - max(t, axis=-1)); y = e / sum(e, -1)",
    .accepts = softmax_formula_accepts,
    .wins = softmax_formula_wins,
};

static bool softmax_grad_formula_accepts(const tn_call *call) {
    const softmax_grad_args a = softmax_grad_args_of(call);
    return a.axis == a.y->ndim - 1;
}

static const tni_lengths_by_hand softmax_grad_by_hand = {.whole = {{0, 12288}, {0, INT64_MAX}}, .odd = {{0, 1024}}};

static bool softmax_grad_formula_wins(const tn_call *call) {
    return tni_formula_wins(softmax_grad_args_of(call).y, &softmax_grad_by_hand);
}

static tni_formula_kernel softmax_grad_formula = {
    .statements = "dx = scale * y * (dy - sum(y * dy, -1))",
    .accepts = softmax_grad_formula_accepts,
    .wins = softmax_grad_formula_wins,
};

static const tn_kernel softmax_kernels[] = {
    TNI_CPU_KERNELS(softmax, .flags = TN_STRIDED | TN_ALIAS),
    TNI_FORMULA_ROWS(TN_CUDA, softmax_formula),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, softmax, TN_ALIAS, tni_softmax_cuda_accepts,
                         .workspace = tni_softmax_cuda_workspace),
    TNI_FORMULA_KERNEL(TN_CUDA, softmax_formula),
    {.name = "ref", .device = TN_CPU, .run = softmax_ref},
    {0},
};

static const tn_kernel softmax_grad_kernels[] = {
    TNI_CPU_KERNELS(softmax_grad, .flags = TN_STRIDED | TN_ALIAS),
    TNI_FORMULA_ROWS(TN_CUDA, softmax_grad_formula),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, softmax_grad, TN_ALIAS, tni_softmax_grad_cuda_accepts,
                         .workspace = tni_softmax_grad_cuda_workspace),
    TNI_FORMULA_KERNEL(TN_CUDA, softmax_grad_formula),
    {.name = "ref", .device = TN_CPU, .run = softmax_grad_ref},
    {0},
};

static const tn_sample softmax_samples[] = {
    {"s=[7]"},
    {"s=[1]"},
    {"s=[4, 33]"},
    {"s=[3, 5, 17] axis=1"},
    {"s=[65, 6] axis=0"},
    {"s=[2, 3, 4, 9] axis=2 scale=0.125"},
    {"s=[5, 1000] scale=-2.5"},
    {"s=[6, 31] mask"},
    {"s=[2, 3, 8, 16] mask=[2, 1, 1, 16]"},
    {"s=[5, 7, 3] axis=1 mask=[7, 1]"},
    {"s=[9, 9] causal=true"},
    {"s=[2, 5, 13] causal=true scale=0.3"},
    {"s=[3, 11, 4] causal=true"}, /* more queries than keys: the first rows see nothing */
    {"s=[2, 6, 10] causal=true mask=[6, 10]"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[3, 0, 4] axis=0"},
    {"s=[40, 2048]"},
    {"s=[3, 40960] scale=0.5"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[128, 32768]", .bench = true},
    {"s=[8, 512, 512] causal=true scale=0.125", .bench = true},
    {0},
};

static const tn_sample softmax_grad_samples[] = {
    {"s=[7]"},
    {"s=[1]"},
    {"s=[4, 33]"},
    {"s=[5, 1000] scale=-2.5"},
    {"s=[3, 5, 17] axis=1 scale=0.125"},
    {"s=[65, 6] axis=0"},
    {"s=[2, 3, 4, 9] axis=2"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[40, 2048]"},
    {"s=[3, 40960] scale=0.5"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[128, 32768]", .bench = true},
    {0},
};

const tn_op tni_ops_softmax[] = {
    {
        .signature = "softmax(x: T[*s], mask: bool[~*s]?, axis: axis = -1, scale: float = 1.0, causal: bool = false) "
                     "-> y: T[*s] where not causal or (rank(*s) >= 2 and axis == rank(*s) - 1)",
        .doc = "exp(scale * x), normalised along an axis; a false mask takes an element out, and a row without any is "
               "0. With causal, query i of q sees the keys up to i + k - q of k: the last sees all, and with more "
               "queries than keys the first rows are 0.",
        .grad = "x: softmax_grad(y, dy)",
        .autocast = "32",
        .kernels = softmax_kernels,
        .samples = softmax_samples,
    },
    {
        .signature = "softmax_grad(y: T[*s], dy: T[*s], axis: axis = -1, scale: float = 1.0) -> dx: T[*s]",
        .doc = "The gradient of softmax, from its output.",
        .grad = "y, dy: softmax_grad_grad(y, dy, ddx)",
        .kernels = softmax_grad_kernels,
        .samples = softmax_grad_samples,
    },
    /* Of scale * y * (dy - sum(y * dy)). */
    FORMULA("softmax_grad_grad(y: T[*s], dy: T[*s], ddx: T[*s], axis: axis = -1, scale: float = 1.0) -> gy: T[*s]?, "
            "gdy: T[*s]? where rank(*s) >= 1",
            "t = sum(y * ddx, axis=axis); gy = scale * (ddx * (dy - sum(y * dy, axis=axis)) - dy * t); "
            "gdy = scale * y * (ddx - t)",
            .doc = "The gradients of softmax_grad.",
            SAMPLES({"s=[7] want_gy=true want_gdy=true"}, {"s=[4, 33] scale=0.5 want_gy=true want_gdy=true"},
                    {"s=[3, 5, 17] axis=1 want_gy=true want_gdy=true"}, {"s=[65, 6] axis=0 want_gy=true"},
                    {"s=[2, 5000] want_gdy=true"}, {"s=[0, 5] want_gy=true want_gdy=true"},
                    {"s=[5, 0] want_gy=true want_gdy=true"},
                    {"s=[4096, 1024] want_gy=true want_gdy=true", .bench = true})),
    {0},
};
