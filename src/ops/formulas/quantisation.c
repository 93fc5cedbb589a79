/* Quantisation to 8-bit integers: per tensor or per channel, by the shape of scale. */
#include "ops/formula_row.h"

static const tn_sample quantized[] = {{"s=[7] scale=[] scale>0"},
                                      {"s=[4, 33] scale=[4, 1] scale>0 zero=[4, 1] zero<10"},
                                      {"s=[0, 5] scale>0"},
                                      {"s=[4096, 4096] scale=[] scale>0", .bench = true},
                                      {0}};

const tn_op tni_ops_quantisation[] = {
    /* Rounding has a derivative of 0: the gradient passes as if it were not there. */
    FORMULA("fake_quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, low: int = -128, high: int = 127) -> y: T[*s]",
            "z = zero if has(zero) else 0; y = (clamp(round(x / scale) + z, low, high) - z) * scale",
            .grad = "~ x: fake_quantize_grad(x, scale, zero, dy)",
            .doc = "x as it is after quantize and dequantize, per tensor or per channel by the shape of scale; the "
                   "gradient passes where nothing was cut off.",
            .samples = quantized),
    FORMULA("fake_quantize_grad(x: T[*s], scale: f32[~*s], zero: i32[~*s]?, dy: T[*s], low: int = -128, "
            "high: int = 127) -> dx: T[*s]",
            "q = round(x / scale) + (zero if has(zero) else 0); dx = dy if q >= low and q <= high else 0",
            .doc = "The gradient of fake_quantize: dy where nothing was cut off.", .samples = quantized),
    FORMULA("quantize(x: T[*s], scale: f32[~*s], zero: i32[~*s]?) -> q: i8[*s]",
            "clamp(round(x / scale) + (zero if has(zero) else 0), -128, 127)",
            .doc = "x / scale + zero, rounded to the nearest 8-bit integer.", .samples = quantized),
    FORMULA("dequantize(q: i8[*s], scale: T[~*s], zero: i32[~*s]?) -> y: T[*s]",
            "(q - zero if has(zero) else q) * scale", .doc = "(q - zero) * scale, in the type of scale.",
            SAMPLES({"s=[7] scale=[]"}, {"s=[4, 33] scale=[4, 1] zero=[4, 1] zero<10"}, {"s=[0, 5]"},
                    {"s=[4096, 4096] scale=[]", .bench = true})),
    {0},
};
