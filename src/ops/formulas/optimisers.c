/* Steps of optimisers, in place: of a tensor, and of lists of them in few launches. */
#include "ops/formula_row.h"

#define SGD \
    "lr: acc(T)[], momentum: float = 0.9, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = false"
#define SGD_STEP                                                                                 \
    "d = g + weight_decay * p; b = momentum * m + (1 - dampening) * d if has(m) else d; m = b; " \
    "p = p - lr * (d + momentum * b if nesterov and has(m) else b)"
/* Adam adds the decay to the gradient, AdamW takes it off the weights. */
#define ADAM(decay)                                                                               \
    "lr: acc(T)[], step: acc(T)[], beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, " \
    "weight_decay: float = " decay
#define ADAM_STEP(gradient, kept)                                                                      \
    "w = master if has(master) else p; d = " gradient "; "                                             \
    "m = m + (d - m) * (1 - beta1) if beta1 >= 0.5 else d + (m - d) * beta1; "                         \
    "v = v + (d * d - v) * (1 - beta2) if beta2 >= 0.5 else d * d + (v - d * d) * beta2; "             \
    "t = where(step > 0, step, nan); c1 = -expm1(t * log(beta1)); c2 = sqrt(-expm1(t * log(beta2))); " \
    "u = " kept " - lr * c2 / c1 * m / (sqrt(v) + eps * c2); p = u; master = u"
#define ADAMW_STEP ADAM_STEP("g", "w * (1 - lr * weight_decay)")
#define PLAIN_ADAM_STEP ADAM_STEP("g + weight_decay * w if weight_decay != 0 else g", "w")
#define LION "lr: acc(T)[], beta1: float = 0.9, beta2: float = 0.99, weight_decay: float = 0.0"
#define LION_STEP                                                              \
    "w = master if has(master) else p; c = g + (m - g) * beta1; "              \
    "m = m + (g - m) * (1 - beta2) if beta2 >= 0.5 else g + (m - g) * beta2; " \
    "u = w * (1 - lr * weight_decay) - lr * sign(c); p = u; master = u"

const tn_op tni_ops_optimisers[] = {
    FORMULA("sgd_step(p: T[*s]!, g: G[*s], m: M[*s]!?, " SGD ")", SGD_STEP,
            .doc = "A step of gradient descent with momentum, in place; without m a plain one, which has none.",
            SAMPLES({"s=[7] m lr>0"}, {"s=[4, 33] m lr>0 nesterov=true weight_decay=0.1 G=f32"}, {"s=[0, 5] m lr>0"},
                    {"s=[5000] m lr>0 dampening=0.5"}, {"s=[3, 5] lr>0 weight_decay=0.1"},
                    {"s=[4096, 4096] m lr>0", .bench = true})),
    FORMULA("adamw_step(p: T[*s]!, g: G[*s], m: M[*s]!, v: M[*s]!, master: acc(T)[*s]!?, " ADAM("0.01") ")", ADAMW_STEP,
            .doc = "A step of AdamW, the first being step 1 (NaN for 0), in place; with master, p is that rounded.",
            SAMPLES({"s=[7] lr>0 step>0 v>0"}, {"s=[4, 33] lr>0 step>0 v>0 G=bf16 master"},
                    {"s=[0, 5] lr>0 step>0 v>0"}, {"s=[5000] lr>0 step>0 v>0 weight_decay=0.1"},
                    {"s=[4096, 4096] lr>0 step>0 v>0", .bench = true})),
    FORMULA("adam_step(p: T[*s]!, g: G[*s], m: M[*s]!, v: M[*s]!, master: acc(T)[*s]!?, " ADAM("0.0") ")",
            PLAIN_ADAM_STEP,
            .doc = "A step of Adam, whose weight decay is added to the gradient; all else as adamw_step.",
            SAMPLES({"s=[7] lr>0 step>0 v>0"}, {"s=[4, 33] lr>0 step>0 v>0 G=bf16 master weight_decay=0.1"},
                    {"s=[0, 5] lr>0 step>0 v>0"}, {"s=[5000] lr>0 step>0 v>0 weight_decay=0.1"},
                    {"s=[4096, 4096] lr>0 step>0 v>0", .bench = true})),
    FORMULA("lion_step(p: T[*s]!, g: G[*s], m: M[*s]!, master: acc(T)[*s]!?, " LION ")", LION_STEP,
            .doc = "A step of Lion, by the sign of a mean of gradients, in place; with master, p is that rounded.",
            SAMPLES({"s=[7] lr>0"}, {"s=[4, 33] lr>0 G=bf16 master weight_decay=0.1"}, {"s=[0, 5] lr>0"},
                    {"s=[5000] lr>0 weight_decay=0.1"}, {"s=[4096, 4096] lr>0", .bench = true})),
    /* The second moments of a matrix are known by their means over rows and over columns. */
    FORMULA(
        "adafactor_step(p: T[*r, n, k]!, g: G[*r, n, k], row: M[*r, n]!?, column: M[*r, k]!?, "
        "variance: M[*r, n, k]!?, lr: acc(T)[], step: acc(T)[], beta2_decay: float = -0.8, "
        "eps1: float = 1.1920929e-7, eps2: float = 1e-3, clip: float = 1.0, weight_decay: float = 0.0) "
        "where clip > 0",
        /* one: of the type that is computed in, which g may be narrower than; NaN for step 0. */
        "one = step / step; h = g * one; s = h * h; a = one * step ** beta2_decay; "
        "r = row + (mean(s, k) - row) * a; c = column + (mean(s, n) - column) * a; "
        "f = variance + (s - variance) * a; "
        "v = f if has(variance) else r * c / maximum(mean(r, n), eps1); u = h * rsqrt(maximum(v, eps1 * eps1)); "
        "rate = maximum(eps2, sqrt(mean(p * p))) * minimum(lr, rsqrt(step)) / maximum(1, sqrt(mean(u * u)) / clip); "
        "row = r; column = c; variance = f; p = p * (1 - lr * weight_decay) - rate * u",
        .doc = "A step of Adafactor in place, the first being step 1: second moments are products of row and "
               "column, or variance.",
        SAMPLES({"r=[] n=4 k=7 row row>0 column column>0 lr>0 step>0"},
                {"r=[] n=1 k=33 variance variance>0 lr>0 step>0 weight_decay=0.1"},
                {"r=[3] n=5 k=9 row row>0 column column>0 lr>0 step>0 weight_decay=0.1 G=f32"},
                {"r=[2, 2] n=40 k=33 row row>0 column column>0 lr>0 step>0 clip=2.0"},
                {"r=[] n=300 k=257 row row>0 column column>0 lr>0 step>0 M=f32"},
                {"r=[] n=4096 k=4096 row row>0 column column>0 lr>0 step>0", .bench = true})),
    FORMULA("sgd_step_list(p: [T[*s]]!, g: [G[*s]], m: [M[*s]]!?, " SGD ")", SGD_STEP,
            .doc = "sgd_step for each tensor of the lists, in few launches.",
            SAMPLES({"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] lr>0"},
                    {"p=[[0, 3], [5]] g=[[0, 3], [5]] m=[[0, 3], [5]] lr>0 nesterov=true G=f32"},
                    {"p=[[7], [4, 33]] g=[[7], [4, 33]] lr>0 weight_decay=0.1"},
                    {"p=[[40000], [3]] g=[[40000], [3]] m=[[40000], [3]] lr>0"},
                    {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] lr>0", .bench = true})),
    FORMULA(
        "adamw_step_list(p: [T[*s]]!, g: [G[*s]], m: [M[*s]]!, v: [M[*s]]!, master: [acc(T)[*s]]!?, " ADAM("0.01") ")",
        ADAMW_STEP, .doc = "adamw_step for each tensor of the lists, in few launches.",
        SAMPLES(
            {"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] v=[[7], [4, 33]] lr>0 step>0 v>0"},
            {"p=[[], [9]] g=[[], [9]] m=[[], [9]] v=[[], [9]] master=[[], [9]] lr>0 step>0 v>0 G=bf16"},
            {"p=[[0]] g=[[0]] m=[[0]] v=[[0]] lr>0 step>0 v>0"},
            {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] v=[[4096, 4096]] lr>0 step>0 v>0", .bench = true})),
    FORMULA(
        "adam_step_list(p: [T[*s]]!, g: [G[*s]], m: [M[*s]]!, v: [M[*s]]!, master: [acc(T)[*s]]!?, " ADAM("0.0") ")",
        PLAIN_ADAM_STEP, .doc = "adam_step for each tensor of the lists, in few launches.",
        SAMPLES(
            {"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] v=[[7], [4, 33]] lr>0 step>0 v>0"},
            {"p=[[], [9]] g=[[], [9]] m=[[], [9]] v=[[], [9]] master=[[], [9]] lr>0 step>0 v>0 G=bf16 "
             "weight_decay=0.1"},
            {"p=[[0]] g=[[0]] m=[[0]] v=[[0]] lr>0 step>0 v>0"},
            {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] v=[[4096, 4096]] lr>0 step>0 v>0", .bench = true})),
    FORMULA("lion_step_list(p: [T[*s]]!, g: [G[*s]], m: [M[*s]]!, master: [acc(T)[*s]]!?, " LION ")", LION_STEP,
            .doc = "lion_step for each tensor of the lists, in few launches.",
            SAMPLES({"p=[[7], [4, 33]] g=[[7], [4, 33]] m=[[7], [4, 33]] lr>0"},
                    {"p=[[], [9]] g=[[], [9]] m=[[], [9]] master=[[], [9]] lr>0 G=bf16 weight_decay=0.1"},
                    {"p=[[0]] g=[[0]] m=[[0]] lr>0"},
                    {"p=[[4096, 4096]] g=[[4096, 4096]] m=[[4096, 4096]] lr>0", .bench = true})),
    FORMULA("clip_grad_norm(g: [T[*s]]!, max_norm: acc(T)[]) -> norm: acc(T)[]",
            "n = sqrt(sum(g * g)); g = g * minimum(1, max_norm / (n + 1e-6)); norm = n",
            .doc = "The norm of all gradients together; where it is larger than max_norm, all are scaled down to "
                   "that, in place.",
            SAMPLES({"g=[[7], [4, 33]] max_norm>0"}, {"g=[[0, 3], []] max_norm>0"}, {"g=[[40000], [3]] max_norm>0"},
                    {"g=[[0]] max_norm>0"}, {"g=[[4096, 4096]] max_norm>0", .bench = true})),
    {0},
};
