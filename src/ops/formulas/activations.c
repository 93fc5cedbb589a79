/* Activations. */
#include "ops/formula_row.h"

static const tn_sample unary[] = {
    {"s=[7]"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[]"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};

/* 1 + erf(x) loses bits where x is far below 0, and so do PyTorch's and JAX's. */
static const tn_sample lossy[] = {
    {"s=[7]", 6}, {"s=[4, 33]", 6}, {"s=[0, 5]"}, {"s=[]", 6}, {"s=[5000]", 6}, {"s=[4096, 4096]", .bench = true}, {0}};

const tn_op tni_ops_activations[] = {
    FORMULA("relu(x: T[*s]) -> y: T[*s]", "relu(x)", .doc = "max(x, 0); the gradient at 0 is 0.", .samples = unary),
    FORMULA("leaky_relu(x: T[*s], slope: float = 0.01) -> y: T[*s]", "x if x > 0 else x * slope",
            .doc = "x, or slope * x below 0.", .samples = unary),
    FORMULA("prelu(x: T[n, c, *s], slope: T[c]) -> y: T[n, c, *s]", "x if x > 0 else x * slope", .autocast = "16",
            .doc = "x, or slope * x below 0, with a slope for each channel.",
            SAMPLES({"n=4 c=33 s=[]"}, {"n=2 c=3 s=[4, 5]"}, {"n=1 c=7 s=[300]"}, {"n=0 c=3 s=[2]"},
                    {"n=32 c=256 s=[56, 56]", .bench = true})),
    FORMULA("elu(x: T[*s], alpha: float = 1.0) -> y: T[*s]", "x if x > 0 else alpha * expm1(x)",
            .doc = "x, or alpha * (exp(x) - 1) below 0.", .samples = unary),
    FORMULA("celu(x: T[*s], alpha: float = 1.0) -> y: T[*s] where alpha != 0",
            "x if x > 0 else alpha * expm1(x / alpha)", .doc = "x, or alpha * (exp(x / alpha) - 1) below 0.",
            .samples = unary),
    FORMULA("selu(x: T[*s]) -> y: T[*s]", "1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * expm1(x))",
            .doc = "The ELU that keeps mean 0 and variance 1.", .samples = unary),
    FORMULA("sigmoid(x: T[*s]) -> y: T[*s]", "sigmoid(x)", .doc = "1 / (1 + exp(-x)).", .samples = unary),
    FORMULA("log_sigmoid(x: T[*s]) -> y: T[*s]", "-softplus(-x)", .doc = "log(sigmoid(x)).", .samples = unary),
    FORMULA("hard_sigmoid(x: T[*s]) -> y: T[*s]", "0.0 if x <= -3 else 1.0 if x >= 3 else x / 6 + 0.5",
            .doc = "clamp(x / 6 + 0.5, 0, 1); the gradient at -3 and 3 is 0.", .samples = unary),
    FORMULA("tanh(x: T[*s]) -> y: T[*s]", "tanh(x)", .doc = "The hyperbolic tangent.", .samples = unary),
    FORMULA("softplus(x: T[*s], beta: float = 1.0) -> y: T[*s]", "softplus(x * beta) / beta", .autocast = "32",
            .doc = "log(1 + exp(beta * x)) / beta.", .samples = unary),
    FORMULA("softsign(x: T[*s]) -> y: T[*s]", "x / (1 + abs(x))", .doc = "x / (1 + |x|).", .samples = unary),
    FORMULA("gelu(x: T[*s]) -> y: T[*s]", "gelu(x)", .doc = "x times the normal distribution's probability below x.",
            .samples = lossy),
    FORMULA("gelu_tanh(x: T[*s]) -> y: T[*s]", "gelu_tanh(x)", .doc = "gelu, approximated with tanh.",
            .samples = unary),
    FORMULA("quick_gelu(x: T[*s]) -> y: T[*s]", "x * sigmoid(1.702 * x)", .doc = "x * sigmoid(1.702 * x).",
            .samples = unary),
    FORMULA("silu(x: T[*s]) -> y: T[*s]", "silu(x)", .doc = "x * sigmoid(x).", .samples = unary),
    FORMULA("hard_swish(x: T[*s]) -> y: T[*s]", "0.0 if x <= -3 else x if x >= 3 else x * (x / 6 + 0.5)",
            .doc = "x * hard_sigmoid(x).", .samples = unary),
    FORMULA("mish(x: T[*s]) -> y: T[*s]", "x * tanh(softplus(x))", .doc = "x * tanh(softplus(x)).", .samples = unary),
    {0},
};
