/* gated_linear, the first half of a gated MLP: contract, gradient, reference, and the kernel that makes it of a product
 * and the gate behind it. For backward it keeps no more than its inputs: the product is made again. */
#include <math.h>

#include <tenon/cuda.h>

#include "core/host/arith.h"
#include "core/host/status.h"
#include "core/layout/layout.h"
#include "core/run/run.h"
#include "gemm.h"
#include "ops/elements.h"
#include "ops/formula_row.h"

/* The gate at g, by the words of the contract. */
static double gate_ref(int act, double g) {
    switch ((tni_gate)act) {
    case TNI_GATE_SILU: return g / (1 + exp(-g));
    case TNI_GATE_GELU: return g * erfc(-g * sqrt(0.5)) / 2;
    case TNI_GATE_GELU_TANH: return g / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (g + 0.044715 * g * g * g)));
    case TNI_GATE_RELU: return g < 0 ? 0 : g;
    case TNI_GATE_SIGMOID: return 1 / (1 + exp(-g));
    case TNI_GATE_NONE: break;
    }
    return g;
}

/* x: (r, k), w: (2 n, k) */
static tn_status gated_linear_ref(const tn_call *call, void *state) {
    (void)state;
    const gated_linear_args a = gated_linear_args_of(call);
    const int64_t k = a.w->shape[1], n = a.w->shape[0] / 2, count = tn_count(a.y);
    for (int64_t at = 0; at < count; at++) {
        const int64_t i = at / n, j = at % n;
        double gate = 0, up = 0;
        for (int64_t l = 0; l < k; l++) {
            gate += get(a.x, i * k + l) * get(a.w, j * k + l);
            up += get(a.x, i * k + l) * get(a.w, (n + j) * k + l);
        }
        set(a.y, at, gate_ref(a.act, gate) * up);
    }
    return TN_OK;
}

/* ---- of two operators -------------------------------------------------------------------------------------------- */

/* h = linear(x, w), which lies in the workspace, and y = gated(h). */
typedef struct steps {
    tn_tensor x, w, h, y;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK]; /* of h */
    const tn_tensor *product_in[2], *gate_in[1];
    tn_tensor *product_out[1], *gate_out[1];
    tn_attr act;
    tn_args product, gate;
    size_t h_bytes;
} steps;

/* The steps point into *s. */
static void find_steps(const tn_call *call, steps *s) {
    static const char *const words[] = {TNI_GATES};
    const gated_linear_args a = gated_linear_args_of(call);
    *s = (steps){.x = tni_tensor_of(call, a.x), .w = tni_tensor_of(call, a.w), .y = tni_tensor_of(call, a.y)};
    s->h = s->y;
    s->h.data = call->workspace;
    s->h.shape = s->shape;
    s->h.strides = s->strides;
    for (int32_t d = 0; d < s->h.ndim; d++) s->shape[d] = a.y->shape[d];
    s->shape[s->h.ndim - 1] = a.w->shape[0];
    tni_dense_strides(s->h.ndim, s->shape, s->strides);
    s->h_bytes = (size_t)round_up(2 * tn_count(a.y) * (int64_t)tn_type_size(a.y->type), 64);
    s->act = tn_attr_str("act", words[a.act]);
    s->product_in[0] = &s->x;
    s->product_in[1] = &s->w;
    s->product_out[0] = s->gate_out[0] = &s->h;
    s->gate_in[0] = &s->h;
    s->gate_out[0] = &s->y;
    s->product = (tn_args){.in = s->product_in, .n_in = 2, .out = s->product_out, .n_out = 1};
    s->gate = (tn_args){.in = s->gate_in, .n_in = 1, .attrs = &s->act, .n_attrs = 1, .out = s->gate_out, .n_out = 1};
}

/* Plans both, so that `run` looks nothing up that could fail. */
static tn_status steps_prepare(const tn_call *call, void **state) {
    (void)state;
    steps s;
    const tn_gpu *gpu;
    if (call->device.kind == TN_CUDA) TN_TRY(tn_cuda_gpu(call, &gpu)); /* linear would speak of itself */
    find_steps(call, &s);
    TN_TRY(tn_prepare(tn_find("linear"), &s.product, call->host));
    return tn_prepare(tn_find("gated"), &s.gate, call->host);
}

static size_t step_bytes(const steps *s) {
    size_t product = 0, gate = 0;
    if (tn_workspace(tn_find("linear"), &s->product, &product) != TN_OK) return 0; /* they were planned */
    if (tn_workspace(tn_find("gated"), &s->gate, &gate) != TN_OK) return 0;
    return product > gate ? product : gate;
}

static size_t steps_workspace(const tn_call *call) {
    steps s;
    find_steps(call, &s);
    return s.h_bytes + step_bytes(&s);
}

static tn_status steps_run(const tn_call *call, void *state) {
    (void)state;
    steps s;
    tni_scratch own;
    find_steps(call, &s);
    char *behind = call->workspace ? (char *)call->workspace + s.h_bytes : NULL;
    const size_t bytes = step_bytes(&s);
    TN_TRY(tn_run(tn_find("linear"), &s.product, tni_scratch_init(&own, call->host, behind, bytes)));
    return tn_run(tn_find("gated"), &s.gate, tni_scratch_init(&own, call->host, behind, bytes));
}

#define STEPS_KERNEL(on)                                                                         \
    {                                                                                            \
        .name = "steps", .device = on, .flags = TN_STRIDED | (on == TN_CUDA ? TN_ROWS_VARY : 0), \
        .workspace = steps_workspace, .prepare = steps_prepare, .run = steps_run                 \
    }

static const tn_kernel gated_linear_kernels[] = {
    STEPS_KERNEL(TN_CPU),
    STEPS_KERNEL(TN_CUDA),
    {.name = "ref", .device = TN_CPU, .run = gated_linear_ref},
    {0},
};

/* The product is rounded between the steps: in 16 bits, where bounds are those of sums in f32. */
#define ROUNDED_BETWEEN .tolerance = 4096

static const tn_sample gated_linear_samples[] = {
    {"r=[7] k=5 n=3", ROUNDED_BETWEEN},
    {"r=[] k=33 n=17 act='gelu'", ROUNDED_BETWEEN},
    {"r=[2, 3] k=64 n=40 act='gelu_tanh'", ROUNDED_BETWEEN},
    {"r=[13] k=31 n=65 act='relu'", ROUNDED_BETWEEN},
    {"r=[4] k=9 n=21 act='sigmoid'", ROUNDED_BETWEEN},
    {"r=[4] k=9 n=21 act='none'", ROUNDED_BETWEEN},
    {"r=[0] k=5 n=3", ROUNDED_BETWEEN},
    {"r=[5] k=0 n=3", ROUNDED_BETWEEN},
    {"r=[5] k=4 n=0", ROUNDED_BETWEEN},
    {"r=[2048] k=1024 n=2816", .bench = true},
    {0},
};

#define WORDS "'silu'|'gelu'|'gelu_tanh'|'relu'|'sigmoid'|'none' = 'silu'"

/* What every choice of act does; without one of them it is `none`. */
#define CHOOSE(silu, gelu, gelu_tanh, relu, sigmoid, none)                           \
    "((" silu ") if act == 'silu' else (" gelu ") if act == 'gelu' else (" gelu_tanh \
    ") if act == 'gelu_tanh' else (" relu ") if act == 'relu' else (" sigmoid ") if act == 'sigmoid' else (" none "))"

#define GATE CHOOSE("silu(g)", "gelu(g)", "gelu_tanh(g)", "relu(g)", "sigmoid(g)", "g")

/* The derivatives: of g * p(g) it is p + g * p'. */
#define SLOPE                                                                                                         \
    CHOOSE("s + g * s * (1 - s)", "0.5 * erfc(g * -0.7071067811865476) + g * exp(g * g * -0.5) * 0.3989422804014327", \
           "0.5 * (1 + t) + 0.5 * g * (1 - t * t) * (0.7978845608028654 + 0.10703222440890037 * g * g)",              \
           "1 if g > 0 else 0", "s * (1 - s)", "1")

const tn_op tni_ops_gated_linear[] = {
    {
        .signature = "gated_linear(x: T[*r, k], w: T[2*n, k], act: " WORDS ") -> y: T[*r, n]",
        .doc = "act(x g^T) * (x u^T), where w is g and, below it, u. Keeps only its inputs for backward.",
        .grad = "h = linear(x, w, act='none'); dh = gated_grad(h, dy); x, w: linear_grad(x, w, dh, act='none')",
        .autocast = "16",
        .kernels = gated_linear_kernels,
        .samples = gated_linear_samples,
    },
    FORMULA("gated(h: T[*r, c], act: " WORDS ") -> y: T[*r, c / 2] where c % 2 == 0",
            "g = h[..., :c / 2]; y = " GATE " * h[..., c / 2:]", .grad = "h: gated_grad(h, dy)",
            .doc = "The first half of the last dimension, through an activation, times the second.",
            .autocast = "widest",
            SAMPLES({"r=[7] c=6"}, {"r=[4] c=66 act='gelu'", .tolerance = 6}, {"r=[3, 2] c=10 act='gelu_tanh'"},
                    {"r=[5] c=8 act='relu'"}, {"r=[5] c=34 act='sigmoid'"}, {"r=[5] c=4 act='none'"}, {"r=[0] c=4"},
                    {"r=[4096] c=8192", .bench = true})),
    FORMULA("gated_grad(h: T[*r, c], dy: T[*r, c / 2], act: " WORDS ") -> dh: T[*r, c] where c % 2 == 0",
            "g = h[..., :c / 2]; s = sigmoid(g); t = tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)); "
            "dh = concat(h[..., c / 2:] * dy * " SLOPE ", dy * " GATE ", axis=-1)",
            .doc = "The gradient of gated.",
            SAMPLES({"r=[7] c=6"}, {"r=[4] c=66 act='gelu'", .tolerance = 6},
                    {"r=[3, 2] c=10 act='gelu_tanh'", .tolerance = 4}, {"r=[5] c=8 act='relu'"},
                    {"r=[5] c=34 act='sigmoid'"}, {"r=[5] c=4 act='none'"}, {"r=[0] c=4"},
                    {"r=[4096] c=8192", .bench = true})),
    {0},
};
