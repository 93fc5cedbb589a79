/* Arithmetic, element by element. */
#include "family.h"

static const tn_sample unary[] = {
    {"s=[7]"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[]"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};
static const tn_sample positive[] = {
    {"s=[7] x>0"}, {"s=[4, 33] x>0"}, {"s=[0, 5] x>0"}, {"s=[5000] x>0"}, {"s=[4096, 4096] x>0", .bench = true}, {0}};
static const tn_sample binary[] = {{"s=[7]"},
                                   {"s=[4, 33] y=[33]"},
                                   {"s=[4, 33] x=[4, 1]"},
                                   {"s=[5, 4, 3] x=[4, 1] y=[5, 1, 3]"},
                                   {"s=[0, 5]"},
                                   {"s=[5000] x=[]"},
                                   {"s=[4096, 4096]", .bench = true},
                                   {0}};
static const tn_sample constant[] = {
    {"s=[7] c=0.5"}, {"s=[4, 33] c=-3.0"}, {"s=[0, 5] c=1.0"}, {"s=[4096, 4096] c=2.5", .bench = true}, {0}};

const tn_op tni_ops_arithmetic[] = {
    FORMULA("identity(x: T[*s]) -> y: T[*s]", "x", .doc = "x.", .samples = unary),
    FORMULA("add(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x + y", .autocast = "widest", .doc = "x + y.", .samples = binary),
    FORMULA("sub(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x - y", .autocast = "widest", .doc = "x - y.", .samples = binary),
    FORMULA("mul(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x * y", .autocast = "widest", .doc = "x * y.", .samples = binary),
    FORMULA("div(x: T[~*s], y: T[~*s]) -> z: T[*s]", "x / y", .autocast = "widest", .doc = "x / y.",
            SAMPLES({"s=[7] y>0"}, {"s=[4, 33] y=[33] y>0"}, {"s=[0, 5] y>0"}, {"s=[4096, 4096] y>0", .bench = true})),
    FORMULA("add_constant(x: T[*s], c: float) -> y: T[*s]", "x + c", .doc = "x + c.", .samples = constant),
    FORMULA("scale(x: T[*s], c: float) -> y: T[*s]", "x * c", .doc = "x * c.", .samples = constant),
    FORMULA("scale_bias_relu(x: T[*s], scale: T[~*s], bias: T[~*s]) -> y: T[*s]", "relu(x * scale + bias)",
            .autocast = "widest", .doc = "relu(x * scale + bias).",
            SAMPLES({"s=[7]"}, {"s=[4, 33] scale=[33] bias=[33]"}, {"s=[2, 3, 5] scale=[3, 1] bias=[]"}, {"s=[0, 5]"},
                    {"s=[4096, 4096] scale=[4096] bias=[4096]", .bench = true})),
    FORMULA("bias_act(x: T[*r, c], bias: T[c], act: activation = 'relu') -> y: T[*r, c]", "act(x + bias)",
            .autocast = "widest", .doc = "act(x + bias).",
            SAMPLES({"r=[4] c=33"}, {"r=[2, 3] c=5 act='gelu'"}, {"r=[4] c=9 act='gelu_tanh'"},
                    {"r=[9] c=17 act='silu'"}, {"r=[] c=65 act='tanh'"}, {"r=[0] c=3 act='sigmoid'"},
                    {"r=[3] c=7 act='none'"}, {"r=[3] c=7 act='mish'"}, {"r=[3] c=7 act='leaky_relu'"},
                    {"r=[4096] c=4096", .bench = true})),
    FORMULA("square(x: T[*s]) -> y: T[*s]", "x * x", .autocast = "32", .doc = "x * x.", .samples = unary),
    FORMULA("sqrt(x: T[*s]) -> y: T[*s]", "sqrt(x)", .doc = "The square root.", .samples = positive),
    FORMULA("rsqrt(x: T[*s]) -> y: T[*s]", "rsqrt(x)", .autocast = "32", .doc = "1 / sqrt(x).", .samples = positive),
    FORMULA("exp(x: T[*s]) -> y: T[*s]", "exp(x)", .autocast = "32", .doc = "e to the power of x.", .samples = unary),
    FORMULA("log(x: T[*s]) -> y: T[*s]", "log(x)", .autocast = "32", .doc = "The natural logarithm.",
            .samples = positive),
    FORMULA("abs(x: T[*s]) -> y: T[*s]", "abs(x)", .doc = "|x|; the gradient at 0 is 0.", .samples = unary),
    FORMULA("sign(x: T[*s]) -> y: T[*s]", "sign(x)", .doc = "-1, 0 or 1.", .samples = unary),
    FORMULA("floor(x: T[*s]) -> y: T[*s]", "floor(x)", .doc = "The next integer below.", .samples = unary),
    FORMULA("clamp(x: T[*s], low: float?, high: float?) -> y: T[*s]",
            "clamp(x, low if has(low) else -inf, high if has(high) else inf)",
            .doc = "x, but at least low and at most high; the gradient at a bound passes.",
            SAMPLES({"s=[7] low=-0.5"}, {"s=[4, 33] high=0.25"}, {"s=[5, 9] low=-0.5 high=0.5"}, {"s=[0, 5]"},
                    {"s=[4096, 4096] low=-1.0 high=1.0", .bench = true})),
    FORMULA("pow(x: T[*s], exponent: float) -> y: T[*s]", "x ** exponent", .autocast = "32",
            .doc = "x to the power of exponent.",
            SAMPLES({"s=[7] x>0 exponent=2.5"}, {"s=[4, 33] exponent=3.0"}, {"s=[4, 33] x>0 exponent=-0.5"},
                    {"s=[0, 5] exponent=2.0"}, {"s=[4096, 4096] x>0 exponent=1.5", .bench = true})),
    FORMULA("lerp(x: T[~*s], end: T[~*s], weight: T[~*s]) -> y: T[*s]",
            "x + weight * (end - x) if abs(weight) < 0.5 else end - (1 - weight) * (end - x)", .autocast = "widest",
            .doc = "From x (weight 0) to end (weight 1).",
            SAMPLES({"s=[7]"}, {"s=[4, 33] weight=[]"}, {"s=[4, 33] end=[33] weight=[4, 1]"}, {"s=[0, 5]"},
                    {"s=[4096, 4096]", .bench = true})),
    {0},
};
