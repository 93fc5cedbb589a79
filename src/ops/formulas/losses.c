/* Losses of two tensors of one shape, and cosine_similarity; cross_entropy of class indices, which has kernels of its
 * own, is in src/ops/loss. */
#include "ops/formula_row.h"

#define LOSS(name, more) #name "(x: T[*s], target: T[*s], reduction: 'mean'|'sum' = 'mean'" more ") -> loss: acc(T)[]"
#define REDUCED "loss = mean(t) if reduction == 'mean' else sum(t)"

static const tn_sample pairs[] = {
    {"s=[7]"}, {"s=[4, 33] reduction='sum'"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample probabilities[] = {{"s=[7] target>0"},
                                          {"s=[4, 33] target>0 reduction='sum'"},
                                          {"s=[5000] target>0"},
                                          {"s=[4096, 4096] target>0", .bench = true},
                                          {0}};

const tn_op tni_ops_losses[] = {
    FORMULA(LOSS(mse, ""), "d = x - target; t = d * d; " REDUCED, .autocast = "32",
            .doc = "The mean of (x - target) ** 2.", .samples = pairs),
    FORMULA(LOSS(l1, ""), "t = abs(x - target); " REDUCED, .autocast = "32", .doc = "The mean of |x - target|.",
            .samples = pairs),
    FORMULA(LOSS(huber, ", delta: float = 1.0") " where delta > 0",
            "d = abs(x - target); t = 0.5 * d * d if d <= delta else delta * (d - 0.5 * delta); " REDUCED,
            .autocast = "32",
            .doc = "The mean of a square up to a difference of delta, and of a straight line from there on.",
            .samples = pairs),
    FORMULA(LOSS(bce_with_logits, ""), "t = softplus(x) - x * target; " REDUCED, .autocast = "32",
            .doc = "Binary cross-entropy of sigmoid(x) and target.", .samples = pairs),
    FORMULA(LOSS(focal, ", alpha: float = 0.25, gamma: float = 2.0"),
            /* A sample that is certainly right misses by 0, where the derivative of a power below 1 is infinite. */
            "miss = target * sigmoid(-x) + (1 - target) * sigmoid(x); a = 1 - alpha + (2 * alpha - 1) * target; "
            "m = miss if abs(miss) > 1e-30 else 1e-30; t = a * m ** gamma * (softplus(x) - x * target); " REDUCED,
            .autocast = "32", .doc = "bce_with_logits, times (1 - the probability of what is right) ** gamma.",
            .samples = probabilities),
    FORMULA(LOSS(kl_div, ""), "t = target * (log(target) - x) if target != 0 else -target * x; " REDUCED,
            .autocast = "32", .doc = "Kullback-Leibler divergence of the logarithms x from the probabilities target.",
            .samples = probabilities),
    FORMULA("soft_cross_entropy(x: T[*r, v], target: T[*r, v], weight: W[v]?, reduction: 'mean'|'sum' = 'mean', "
            "label_smoothing: float = 0.0, z_loss: float = 0.0) -> loss: acc(T)[] "
            "where label_smoothing >= 0, label_smoothing <= 1",
            /* The smoothing is part of the target: without any, target * 1 + 0 is the target. */
            "lse = logsumexp(x, -1); p = lse - x; q = p * weight if has(weight) else p; "
            "smooth = target * (1 - label_smoothing) + label_smoothing / count(x, -1); "
            "t = sum(q * smooth, -1) + z_loss * lse * lse; " REDUCED,
            .autocast = "32",
            .doc = "The cross entropy of logits x with class probabilities, plus z_loss * lse^2 per row; 'mean' is "
                   "that over the rows.",
            SAMPLES({"r=[5] v=10 target>0"}, {"r=[] v=7 target>0 reduction='sum'"},
                    {"r=[2, 3] v=33 target>0 weight weight>0"},
                    {"r=[4] v=17 target>0 weight weight>0 label_smoothing=0.1 z_loss=0.01 W=f32"},
                    {"r=[3] v=5000 target>0 label_smoothing=0.2 reduction='sum'"},
                    {"r=[8192] v=1000 target>0", .bench = true})),
    FORMULA("cosine_similarity(x: T[*r, c], y: T[*r, c], eps: float = 1e-8) -> z: T[*r]",
            "sum(x * y, -1) / (max(sqrt(sum(x * x, -1)), eps) * max(sqrt(sum(y * y, -1)), eps))", .autocast = "32",
            .doc = "The cosine of the angle between the rows of x and y, whose norms count as eps at least.",
            SAMPLES({"r=[7] c=5"}, {"r=[] c=33"}, {"r=[0] c=5"}, {"r=[2] c=5000"}, {"r=[4096] c=4096", .bench = true})),
    {0},
};
