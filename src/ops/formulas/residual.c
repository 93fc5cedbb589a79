/* What stands between a layer and the residual stream: dropout, bias, scale. */
#include "ops/formula_row.h"

const tn_op tni_ops_residual[] = {
    FORMULA("dropout(x: T[*s], seed: i64[2], p: float = 0.5) -> y: T[*s] where p >= 0, p <= 1",
            "where(rand(seed) < p, 0, x * (1 / (1 - p)))",
            .doc = "Elements are 0 with probability p, the others grow by 1 / (1 - p); the same seed gives the same "
                   "mask.",
            SAMPLES({"s=[7] p=0.25"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[5000] p=0.1"}, {"s=[9] p=0.0"},
                    {"s=[4096, 4096] p=0.1", .bench = true})),
    FORMULA("bias_dropout_add(x: T[*r, c], bias: T[c]?, residual: T[*r, c], seed: i64[2], p: float = 0.5) "
            "-> y: T[*r, c] where p >= 0, p <= 1",
            "t = x + bias if has(bias) else x; y = residual + where(rand(seed) < p, 0, t * (1 / (1 - p)))",
            .autocast = "widest", .doc = "residual + dropout(x + bias).",
            SAMPLES({"r=[7] c=5 p=0.25"}, {"r=[4] c=33 bias"}, {"r=[0] c=5 bias"}, {"r=[2] c=3000 bias p=0.1"},
                    {"r=[4096] c=4096 bias p=0.1", .bench = true})),
    FORMULA("residual_scale(x: T[*s], residual: T[*s], scale: T[~*s]) -> y: T[*s]", "residual + x * scale",
            .autocast = "widest", .doc = "residual + x * scale.",
            SAMPLES({"s=[7]"}, {"s=[4, 33] scale=[33]"}, {"s=[4, 33] scale=[]"}, {"s=[0, 5]"},
                    {"s=[4096, 4096] scale=[4096]", .bench = true})),
    {0},
};
