/* Gated linear units: one half of a layer's output decides how much of the other passes. */
#include "ops/formula_row.h"

static const tn_sample pairs[] = {
    {"s=[7]"}, {"s=[4, 33]"}, {"s=[0, 5]"}, {"s=[5000]"}, {"s=[4096, 4096]", .bench = true}, {0}};

/* As gelu's: 1 + erf(x) loses bits where x is far below 0. */
static const tn_sample lossy[] = {
    {"s=[7]", 6}, {"s=[4, 33]", 6}, {"s=[0, 5]"}, {"s=[5000]", 6}, {"s=[4096, 4096]", .bench = true}, {0}};

const tn_op tni_ops_gates[] = {
    FORMULA("swiglu(x: T[*s], gate: T[*s]) -> y: T[*s]", "silu(gate) * x", .autocast = "widest",
            .doc = "silu(gate) * x.", .samples = pairs),
    FORMULA("geglu(x: T[*s], gate: T[*s]) -> y: T[*s]", "gelu(gate) * x", .autocast = "widest",
            .doc = "gelu(gate) * x.", .samples = lossy),
    FORMULA("reglu(x: T[*s], gate: T[*s]) -> y: T[*s]", "relu(gate) * x", .autocast = "widest",
            .doc = "relu(gate) * x.", .samples = pairs),
    {0},
};
