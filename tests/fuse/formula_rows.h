/* Formulas with shapes of their inputs: for the interpreter, compiled C and CUDA C. */
#ifndef TENON_TEST_FUSE_ROWS_H
#define TENON_TEST_FUSE_ROWS_H

#include "harness.h"

#define LISTS "f(x: [T[*s]]!, z: [T[*s]], a: T[]) -> y: acc(T)[] : "

#define WALK "f(x: T[*r, c], b: T[c]) -> z: T[*r, c], y: T[c], w: T[c] : z = x * b; y = sum_to(z, b); w = sum_to(x, b)"
#define WALK_ROWS                                                                                                      \
    "f(x: T[*r, c], b: T[c]) -> z: T[*r, c], y: T[c] : r = rsqrt(mean(x * x, -1) + 0.1); z = x * r * b; y = sum_to(x " \
    "* r, b)"

/* What sums up rows first: gradients of normalisations. */
#define OF_GROUPS                                                                                                    \
    "f(x: T[n, c, *s], w: T[c], dy: T[n, c, *s], groups: int = 2) -> dx: T[n, c, *s], dw: T[c], db: T[c] where c % " \
    "groups == 0 : "
#define OF_CHANNELS "f(x: T[n, c, *s], w: T[c], dy: T[n, c, *s]) -> dx: T[n, c, *s], dw: T[c], db: T[c] : "

static const row rows[] = {
    {"relu(x*s+b)", "7,13 13 13", -2, 2},
    {"relu(x*s+b)", "7,13 1 .", -2, 2},
    {"relu(x*s+b)", "70,300 300 70,1", -2, 2},
    {"relu(x*s+b)", "3,5000 5000 3,1", -2, 2},
    {"relu(x*s+b)", "100000 . .", -2, 2},
    {"relu(x*s+b)", "4,1,5 3,1 1", -2, 2},
    {"relu(x*s+b)", "0,5 5 1", -2, 2},
    {"f(x: T[a, b, c]) -> y: T[b] : d = x - mean(x, axis=[a, c]); y = sum(d * d, axis=[a, c])", "0,9,1", -2, 2},
    {"f(x: T[n]) -> y: T[] : e = x * 0 + 1180591620717411303424.0; d = e - mean(e); y = sum(d * d)", "20000", -2, 2},
    {"f(x: T[n]) -> y: T[] : d = x - mean(x); v = mean(d * d); e = x - v; y = sum(e * e)", "20000", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "3,5,49 5", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "70,3,9 3", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "2,3,2100 3", -2, 2},
    {"f(x: T[n, c, s], z: f32[n, c, s], w: f64[n, c, 1]) -> y: T[n, c, s], v: T[n, c, s] : y = x * w; v = y + z",
     "2,5,11 2,5,11 2,5,1", -2, 2},
    {"f(x: T[n, c], s: T[n, 1]) -> y: T[n, c], z: T[n, 1] : y = x * s; z = s * 2", "5,1030 5,1", -2, 2},
    {"f(x: T[n, c], s: T[n, 1]) -> y: T[n, c], z: T[n, 1] : y = x * s; z = s * 2", "5,13 5,1", -2, 2},
    {"x / s + x / 3", "5,1030 5,1", 0.5, 2},
    {"f(x: T[*s], a: f32[]) -> q: i8[*s] : clamp(round(x / a), -128, 127)", "1001 .", -2, 2},
    {"f(x: T[*s]) -> q: i8[*s], u: u8[*s], h: i16[*s] : q = x; u = x * 3; h = x * 1000", "1001", -200, 200},
    {"f(x: T[*s]) -> q: i8[*s], u: i64[*s] : q = where(x > 1, nan, x * 1e9); u = i32(x * inf) - u8(x * 99)", "1001", -3,
     3},
    {"f(x: T[*s]) -> a: i64[*s], b: i8[*s] : n = i32(x); a = (n & 6 | n << 3 ^ 5) + (n >> 1); b = ~n & 1000", "1001",
     -500, 500},
    {"f(x: T[*s]) -> a: i64[*s], b: bool[*s] : n = i64(x); a = (1 << n) + (-5 >> n); b = ~(x > 1) ^ (x > 3) | !(x < 0)",
     "700", -9, 50},
    {"relu(x*s+b)", ". . .", -2, 2},
    {"exp(x) + log(abs(x) + 1) - log1p(abs(x)) * expm1(x)", "33,17", -3, 3},
    {"sin(x) * cos(x) + tanh(x) / (1.5 + erf(x)) - sigmoid(x) * softplus(x)", "33,17", -8, 8},
    {"sqrt(abs(x)) + rsqrt(abs(x) + 0.1) + floor(x) - round(x) + sign(x)", "1000", -8, 8},
    {"exp2(x) + log2(abs(x) + 0.1) - log10(abs(x) + 0.1) * ceil(x) + trunc(3 * x)", "33,37", -8, 8},
    {"atan(x) + sinh(x) / cosh(x) - asinh(x) * tan(x / 8) + erfc(x) + atan2(x, w)", "33,37 37", -8, 8},
    {"asin(x) + acos(x) * atanh(x) + erfinv(x) - acosh(abs(x) + 1.5)", "1000", -0.95, 0.95},
    {"lgamma(x) - digamma(x) * polygamma(1, x) + polygamma(2, x) / polygamma(3, x)", "1000", 0.6, 9},
    {"logaddexp(x, w) + relu6(x) - hardtanh(x) * hardtanh(x, -3, w)", "33,37 37", -8, 8},
    {"y = isnan(x / (x > 0)) + 2 * isinf(x / (x > 1)); z = isfinite(1 / (x > 0)) or x > 3", "33,37", -8, 8},
    {"x % 1.5 + abs(x) ** 1.7 + min(x, 0.5) - max(x, -0.25) + clamp(x, -1, 1)", "1000", -4, 4},
    {"x % -1.5", "1000", -4, 4},
    {"gelu(x) + gelu_tanh(x) + silu(x) + relu(x)", "1000", -4, 4},
    {"x if x > 0 and x < 1 or not x > -1 else -x", "1000", -2, 2},
    {"where(x == 0, 1, where(x != x, 2, x <= 0.5))", "100", -1, 1},
    {"y = x + 1; z = x * 2; w = y", "9,4", -1, 1},
    {"x or count(x)", "4,9", -1, 1},
    {"bool((x - 1) ** 0) and x", "4,9", -1, 1},
    {"x * f64(0 * x > 1)", "4,9", -1, 1},
    {"f(x: T[*s]) -> y: T[*s] : where(not count(x), 1, x) + f32(count(x)) + f16(count(x, -1))", "4,9", -1, 1},
    {"where(count(x) > 30, x, 1) * (count(x) == 36)", "4,9", -1, 1},
    {"sum(x)", "37,51", -1, 1},
    {"sum(x)", "100000", -1, 1},
    {"mean(x) + max(x) - min(x) + var(x) + logsumexp(x)", "37,51", -1, 1},
    {"x - mean(x)", "37,51", -1, 1},
    {"sum(x, -1)", "37,51", -1, 1},
    {"sum(x, -1)", "3,10000", -1, 1},
    {"sum(x, -1)", "3,40001", -1, 1}, /* long rows that are read once are cut; these begin anywhere */
    {"m = max(x * w, axis=-1); n = mean(x, -1)", "2,36864 36864", -1, 1},
    {"max(x, axis=-1) - min(x, axis=-1) * sum(x * x, -1)", "700,3", -1, 1},
    {"max(x, axis=-1) - min(x, axis=-1) * sum(x * x, -1)", "130,17", -1, 1},
    {"max(x, axis=-1) - min(x, axis=-1) * sum(x * x, -1)", "41,64", -1, 1},
    {"t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)", "3,5000", -1, 1},
    {WALK_ROWS, "700,3 3", -1, 1},
    {WALK_ROWS, "130,17 17", -1, 1},
    {WALK_ROWS, "90,63 63", -1, 1},
    {WALK_ROWS, "300,1 1", -1, 1},
    {WALK_ROWS, "5,3000 3000", -1, 1},
    {"sum(x * y, -1)", "37,51 51", -1, 1},
    {"sum(x * y, -1)", "37,51 .", -1, 1},
    {"sum(x * y, -1)", ". 3,1", -1, 1},
    {"sum(x, -1) * y", "37,51 .", -1, 1},
    {"sum(x, -1) * y", "37,51 37,1", -1, 1},
    {"sum(x, -1) * y", "37,51 51", -1, 1},
    {"y * sum(x, -1) + max(z, axis=-1)", "5,1 2,1,70 70", -1, 1},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", "37,51 51 51", -1, 1},
    {"(x - mean(x, -1)) * rsqrt(var(x, -1) + 0.1) * g + b", "37,1 51 4,1,51", -1, 1},
    {"-sum(exp(x - logsumexp(x, -1)) * t, -1)", "37,51 37,51", -1, 1},
    {"m = mean(x, -1); v = var(x, -1); y = (x - mean(x, -1)) * g + b", "37,51 51 51", -1, 1},
    {"y = x * b; z = x + c; w = b * c * d", "6,5 5 6,1 .", -1, 1},
    /* what meets as single numbers only */
    {"sum(c) * b", "7,9 5,13", -1, 1},
    {"sum(c) * b", "13,9 300", -1, 1},
    {"mean(x * y) + w * sum(z * z)", "3,70 70 . 301", -1, 1},
    {"x / sqrt(sum(g * g) + 1)", "37,51 30,7", -1, 1},
    {"exp(x - logsumexp(x, -1)) * mean(t * t) + max(q)", "7,51 20,3 .", -1, 1},
    {"y = x * max(g) - sum(h, -1); z = sum(g * g); v! = v * sum(g) + 1", "5,51 30 51 7", -1, 1},
    {"a = max(x - y, axis=-1); b = x * y", "6,130 3,1,1", -1, 1},
    {"f(x: T[*r, c], b: T[*q]) -> y: T[*r, c], z: T[*r] : y = x * b; z = sum(y, -1)", "5,6,64 6", -1, 1},
    {"sum(x, -1)", "37,1", -1, 1},
    {"sum(x, -1)", "37,0", -1, 1},
    {"sum(x)", "37,0", -1, 1},
    {"sum(x) + x", "20000", -1, 1},
    {"sum(x)", ".", -1, 1},
    {"exp(x - logsumexp(x, -1))", "37,51", -9, 9},
    {"exp(x - logsumexp(x, -1))", "3,10000", -9, 9},
    {"exp(x - logsumexp(x, -1))", "900,3", -9, 9},
    {"exp(x - logsumexp(x, -1))", "3,0", -9, 9},
    {"logsumexp(x) + sum(b)", "0,4 3", -9, 9},
    {"t = exp(x - max(x, axis=-1)); t / sum(t, -1)", "64,64", -9, 9},
    {"t = x - mean(x, -1); t * rsqrt(var(x, -1) + 1e-5)", "11,130", -2, 2},
    {"t = x - mean(x, -1); t * rsqrt(mean(t * t, -1) + 1e-5)", "2,5001", -2, 2},
    {"(x - min(x, axis=-1)) / (max(x, axis=-1) - min(x, axis=-1) + 0.001) + var(x, -1)", "2,3,4001", -2, 2},
    {"y = x / sum(b); z = x + b", "6,5 5", 0.5, 2},
    {"f(x: T[*q], b: T[*s]) -> y: T[broadcast(*q, *s)] : x * sum(b, -1)", "6,5 7,1,5", 0.5, 2},
    {"mean((x - t) ** 2)", "20,30 20,30", -2, 2},
    {"mean((x - t) ** 2)", "20,30 30", -2, 2},
    {"x + rand(s)", "12,34 2", -1, 1},
    {"x + rand(s) * rand(s, 7)", "3,5000 2", -1, 1},
    {"x + sum(rand(s), -1)", "12,34 2", -1, 1},
    {"x! = x * 2 + 1", "12,34", -1, 1},
    {"x! = x / sum(x, -1); y = x + 1", "3,5000", 1, 2},
    {"x! = x * 2; y! = x + y", "12,34 12,34", -1, 1},
    {"f(x: T[n, c, *s], g: W[c], b: W[c]) -> y: T[n, c, *s] : x * g + b", "2,3,4,5 3 3", -1, 1},
    {"f(x: T[n, c, *s], g: W[c], b: W[c]) -> y: T[n, c, *s] : x * g + b", "2,3 3 3", -1, 1},
    {"f(x: T[n], y: T[m]) -> z: T[n, m] : x * y", "5 7", -1, 1},
    {"f(x: T[n, m], y: T[m, n]) -> z: T[n, m] : x - y", "5,7 7,5", -1, 1},
    {"f(x: T[*r, c], g: W[c]?, eps: float = 1e-5) -> y: T[*r, c], r: acc(T)[*r] : r = rsqrt(mean(x * x, -1) + eps); "
     "y = x * r * g if has(g) else x * r",
     "4,9,6 6", -1, 1},
    {"f(x: T[*r, c], g: W[c]?, eps: float = 1e-5) -> y: T[*r, c], r: acc(T)[*r] : r = rsqrt(mean(x * x, -1) + eps); "
     "y = x * r * g if has(g) else x * r",
     "4,9,6 -", -1, 1},
    {"f(x: T[*r, c]) -> y: T[*r, 1] : sum(x, -1)", "4,9", -1, 1},
    {"f(x: T[*r, c]) -> y: T[*r, c] : sum(x, -1)", "4,9", -1, 1},
    {"f(x: T[*r, c]) -> y: f64[*r, c], z: i32[*r, c], w: bool[*r, c], v: i8[*r, c] : y = x * 3; z = x * 3; w = x > "
     "0.2; "
     "v = round(x * 10)",
     "4,9", -3, 3},
    {"softmax(x) + log_softmax(x)", "37,51", -3, 3},
    {"softmax(x, axis=0) * norm(x, -1) - std(x, axis=[0])", "37,51", -3, 3},
    {"y = any(x > 2, -1); z = all(x > -3); w = any(x > 2.9, axis=-1) or all(x < 2.9, axis=-1)", "37,51", -3, 3},
    {"gate(a, b) = a * sigmoid(b); y = gate(x, w) + gate(w, x) * detach(x)", "37,51 51", -3, 3},
    {"prod(x, -1)", "37,51", 0.5, 1.5},
    {"prod(x, -1) + prod(x) * x", "9,7", 0.5, 1.5},
    {"prod(x, axis=0)", "37,51", 0.5, 1.5},
    /* attributes that divide dimensions */
    {"f(x: T[*s], axes: axes = [0, 2], keepdim: bool = true) -> y: T[reduce(*s, axes, keepdim)] : "
     "max(x, axis=axes) - mean(x, axis=axes)",
     "5,6,70", -3, 3},
    {"f(x: T[*s], axes: axes = [1]) -> y: T[reduce(*s, axes)], z: T[*s] : y = std(x, axis=axes); z = x - y", "5,33,7",
     -3, 3},
    {"f(x: T[*s], axis: axis = 0) -> y: T[*s] : x - logsumexp(x, axis=axis)", "37,51", -3, 3},
    {"f(x: T[n, c, *s], w: T[c], groups: int = 3) -> y: T[n, c, *s], m: T[n, groups] where c % groups == 0 : "
     "m = mean(x, axis=[c / groups, s]); y = (x - m) * rsqrt(var(x, axis=[c / groups, s]) + 0.1) * w",
     "3,6,5,7 6", -3, 3},
    {"f(x: T[n, c, *s], w: T[c], b: f32[c], groups: int = 2) -> y: T[n, c, *s] where c % groups == 0 : "
     "(x - mean(x, axis=[c / groups, s])) * rsqrt(var(x, axis=[c / groups, s]) + 0.1) * w + b",
     "2,8,18 8 8", -3, 3},
    {"f(x: T[n, c, *s], w: T[c], b: f32[c], groups: int = 1) -> y: T[n, c, *s] where c % groups == 0 : "
     "(x - mean(x, axis=[c / groups, s])) * rsqrt(var(x, axis=[c / groups, s]) + 0.1) * w + b",
     "1,7,1003 7 7", -3, 3},
    {"f(x: T[n, c, *s], w: T[c], groups: int = 2) -> y: T[n, c, *s] where c % groups == 0 : "
     "x * w - max(x * w, axis=[c / groups, s])",
     "2,6,5000 6", -3, 3},
    {OF_GROUPS
     "m = mean(x, axis=[c / groups, s]); d = x - m; v = var(x, axis=[c / groups, s]); r = rsqrt(v + 0.1); e = dy * w; "
     "dx = sum_to(e * d, v) * (-0.5 * r * r * r) * d + e * r - r * sum_to(e, m); dw = sum_to(dy * (d * r), w); "
     "db = sum_to(dy, w)",
     "3,6,50 6 3,6,50", -2, 2},
    {OF_GROUPS
     "m = mean(x, axis=[c / groups, s]); d = x - m; v = var(x, axis=[c / groups, s]); u = d * rsqrt(v + 0.1) * w; "
     "e = dy * sigmoid(u); dx = e - sum_to(e * w, m) * d - sum_to(e * w * d, m); dw = sum_to(e * u, w); db = sum_to(e, "
     "w)",
     "2,4,7,9 4 2,4,7,9", -2, 2},
    {OF_CHANNELS
     "k = count(x) / count(w); a = x + 2; d = a - sum_to(a, w) / k; v = sum_to(d * d, w) / k; "
     "r = rsqrt(v + 0.1); t = sum_to(dy * d, w); dx = w * r * (dy - t * d * r * r / k - sum_to(d, w) / k); dw = t * r; "
     "db = sum_to(dy, w)",
     "5,3,6,8 3 5,3,6,8", -2, 2},
    {OF_CHANNELS
     "k = count(x) / count(w); d = x - sum_to(x, w) / k; e = dy - sum_to(dy, w) / k; c2 = sum_to(d * e, w) / k; "
     "dx = d * c2 - sum_to(d * w, w); dw = sum_to(d * e * dy, w); db = sum_to(d, w) + sum_to(dy, w)",
     "2,5,40 5 2,5,40", -2, 2},
    {"f(x: T[n, *s, c], w: T[c], groups: int = 2) -> y: T[n, *s, c] where c % groups == 0 : "
     "(x - mean(x, axis=[c / groups, s])) * w + max(x, axis=c / groups)",
     "3,5,7,6 6", -3, 3},
    {"f(x: T[n, c, *s], w: T[c]) -> y: T[n, c, *s] : (x - mean(x, s)) * rsqrt(var(x, s) + 0.1) * w", "3,4,5,70 4", -3,
     3},
    {"prod(x, axis=1) - prod(x, axis=0) * x", "6,5,33", 0.5, 1.5},
    {"prod(x, -1)", "3,2100", 0.99, 1.01},
    {"f(i: i64[n, c]) -> y: i64[n], z: i64[c] : y = prod(i, -1); z = prod(i, n)", "9,7", -3, 3},
    /* columns of rows that begin anywhere */
    {"f(x: T[n, c]) -> y: T[c] : sum(x * x, axis=n)", "333,29", -2, 2},
    {"f(x: T[m, n, c], w: T[c]) -> y: T[m, c] : mean(x * w, axis=n)", "3,401,27 27", -2, 2},
    {"f(x: T[n, c], z: T[n, c], w: T[n, 1]) -> y: T[c], v: T[c] : y = sum(x * z, axis=n); v = sum(x * w, axis=n)",
     "201,31 201,31 201,1", -2, 2},
    /* along one dimension that is not the last: rows stand upright */
    {"f(x: T[n, c]) -> y: T[c] : mean(x, axis=n)", "301,45", -2, 2},
    {"f(x: T[n, c]) -> y: T[c], z: T[c] : y = max(x, axis=n); z = sum(abs(x), axis=n)", "1100,131", -2, 2},
    {"f(x: T[m, n, c], w: T[m, c]) -> y: T[m, c] : var(x, axis=n) * w", "2,523,37 2,37", -2, 2},
    {"f(x: T[b, n, c]) -> y: T[b, c] : mean(x, axis=n)", "3,2,150", -1, 1},
    {"f(x: T[b, n, c]) -> y: T[b, c] : mean(x, axis=n)", "2,7,129", -1, 1},
    {"f(x: T[n, c]) -> y: T[c] : mean(x, axis=n)", "60,72", -1, 1},
    {"f(x: T[n, c]) -> y: T[c] : mean(x, axis=n)", "300,35", -1, 1},
    {"f(x: T[n, c]) -> y: T[c], z: T[c] : y = var(x, axis=n); z = max(x, axis=n)", "33,72", 5, 7},
    {"f(x: T[n, c]) -> y: T[c] : var(x, axis=n)", "1200,43", 5, 7},
    {"f(x: T[n, c]) -> y: T[c], m: T[c] : y = var(x, axis=n); m = mean(x, axis=n)", "700,48", 5, 7},
    {"f(x: T[n, c], dy: T[c]) -> dx: T[n, c] : (x - mean(x, axis=n)) * dy * 2", "40,67 67", -1, 1},
    {"f(x: T[n, c], dy: T[c]) -> dx: T[n, c] : (x - mean(x, axis=n)) * dy * 2", "600,45 45", -1, 1},
    {"f(x: T[n, c], dy: T[c]) -> dx: T[n, c] : t = x == max(x, axis=n); dx = where(t, dy / sum(t, axis=n), 0)",
     "19,75 75", -1, 1},
    {"f(x: T[b, n, c], w: T[n]) -> y: T[b, n, c] : softmax(x * w, axis=n)", "2,45,77 45", -3, 3},
    {"f(x: T[n, c]) -> y: T[n, c] : softmax(x, axis=n)", "5000,40", -3, 3},
    {"f(x: T[n, c], b: T[c]) -> y: i64[c], z: T[n, c] : y = argmax(x, n); z = x * index(b) + index(x, axis=n)",
     "21,67 67", -1, 1},
    {"f(i: i32[b, n, c], t: bool[b, n, c]) -> y: i64[b, c], z: bool[b, c], p: i64[b, c] : y = sum(i, n); "
     "z = any(t, n); p = prod(i, n)",
     "2,9,40 2,9,40", -2, 2},
    {"f(x: T[n, c]) -> y: bool[c] : all(x > -0.99, axis=n)", "700,40", -1, 1},
    /* along any dimensions */
    {"sum(x, axis=0)", "37,51", -1, 1},
    {"max(x, axis=0) - min(x, axis=0)", "37,51", -1, 1},
    {"max(x, axis=1) * min(x, axis=0)", "6,5,70", -1, 1},
    {"y = x - mean(x, axis=0); z = var(x, axis=0)", "37,51", -1, 1},
    {"t = exp(x - max(x, axis=1)); t / sum(t, axis=1)", "5,33,7", -3, 3},
    {"t = exp(x - max(x, axis=0)); t / sum(t, axis=0)", "300,40", -3, 3},
    {"sum(exp(x - max(x, axis=0)), axis=1)", "7,9,4", -3, 3},
    {"logsumexp(x, axis=[0, -1]) + mean(x, -2)", "5,6,70", -3, 3},
    {"mean(x, axis=[2, 3])", "3,4,5,6", -1, 1},
    {"mean(x, axis=[2, 3]) + sum(x, axis=1)", "3,4,5,6", -1, 1},
    {"mean(x * w, axis=[0, 1]) * count(x, axis=0)", "3,4,5,6 3,4,5,6", -1, 1},
    {"sum(x, axis=0)", "37,1", -1, 1},
    {"sum(x, axis=0)", "1,37", -1, 1},
    {"sum(x, axis=0)", "0,5", -1, 1},
    {"t = exp(x - max(x, axis=-2)); y = t / sum(t, -1)", "2,3,0", -2, 2},
    {"sum(x, axis=1)", "5,7", -1, 1},
    {"f(x: T[n, c, *s], g: W[c]) -> y: T[n, c, *s], m: acc(T)[c] : m = mean(x, axis=[n, s]); "
     "y = (x - m) * rsqrt(var(x, axis=[n, s]) + 0.1) * g",
     "4,6,3,5 6", -1, 1},
    {"f(x: T[n, c, *s], g: W[c]) -> y: T[n, c, *s], m: acc(T)[c] : m = mean(x, axis=[n, s]); "
     "y = (x - m) * rsqrt(var(x, axis=[n, s]) + 0.1) * g",
     "40,6 6", -1, 1},
    {"f(x: T[n, c, *s]) -> y: T[n, c], z: T[*s] : y = mean(x, s); z = max(x, axis=[n, c])", "4,6,3,5", -1, 1},
    {"f(x: T[b, n, c]) -> y: T[b, c] : max(x, axis=n)", "3,40,64", -1, 1},
    {"f(i: i64[n, c]) -> y: i64[c], z: i64[n] : y = sum(i, n); z = max(i, axis=c) - min(i, axis=c)", "30,7", -9, 9},
    /* positions */
    {"where(index(-1) < 5, x, 0)", "37,51", -1, 1},
    {"y = x * index(-1); z = index(-1) - 3; w = index(-1) < 4", "5,64", -1, 1},
    {"x * index(-1)", "1001", -1, 1},
    {"x + index()", "37,51", -1, 1},
    {"x + index()", "6,1,5", -1, 1},
    {"x - index(-1) * w", "5,1 3,1,1", -1, 1},
    {"x * index(-1)", ".", -1, 1},
    {"x * index(-1)", "3,0", -1, 1},
    {"x * index(0) - index(1) * index(2)", "6,5,33", -1, 1},
    {"x * (index(-1) < w)", "37,51 37,1", 0, 51},
    {"y = index(0); z = x", "37,5", -1, 1},
    {"sum(x * index(-1), -1)", "37,51", -1, 1},
    {"sum(x * (index(-1) * 1e-4), -1)", "3,40001", -1, 1},
    {"max(x * index(-1), axis=-1) - sum(x * index(0), -1)", "130,17", -1, 1},
    {"sum(x * index(-1))", "37,51", -1, 1},
    {"sum(index(-1)) + x", "37,51", -1, 1},
    {"sum(x * index(0), axis=0) * (index(1) * 0.001)", "300,40", -1, 1},
    {"t = where(index(-1) < 30, x, -inf); exp(t - max(t, axis=-1)) / sum(exp(t - max(t, axis=-1)), -1)", "37,64", -1,
     1},
    {"f(s: T[b, n, m]) -> y: T[b, n, m] : softmax(where(index(n) >= index(m), s, -inf))", "3,33,40", -1, 1},
    {"f(s: T[b, n, m]) -> y: T[b, n, m] : softmax(where(index(n) >= index(m), s, -inf))", "2,5,600", -1, 1},
    {"f(x: T[b, t, d]) -> y: T[b, t, d] : x + sin(index(t) * exp2(index(d) * -0.1))", "3,33,40", -1, 1},
    {"f(x: T[b, *s], w: T[b]) -> y: T[b, *s], z: T[*s] : y = x * index(s) - w * index(b); z = sum(x * index(b), b)",
     "4,6,9 4", -1, 1},
    {"f(x: T[b, *s], w: T[b]) -> y: T[b, *s], z: T[b] : y = x * index(-1) - w; z = sum(x * index(-1), s)", "4,6,9 4",
     -1, 1},
    {"f(x: T[n, c, *s], groups: int = 3) -> y: T[n, c, *s] where c % groups == 0 : "
     "x * index(c / groups) + index(groups) * mean(x, axis=[c / groups, s])",
     "3,6,5,7", -1, 1},
    {"f(x: T[*s], axis: axis = 1) -> y: T[*s], i: i64[reduce(*s, axis)] : y = x * index(axis); i = argmax(x, "
     "axis=axis)",
     "5,33,7", -1, 1},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c], i: i64[], j: i64[c] : y = x * index(b) + index(b, -1); i = argmax(b); "
     "j = argmin(x, axis=n)",
     "37,51 51", -1, 1},
    {"f(i: i64[b], x: T[b, n]) -> y: T[b, n], z: f32[n] : t = one_hot(i, n); y = x * t; z = sum(t, b)", "37 37,51", 0,
     50},
    {"y = argmax(x, -1); z = argmin(x); w = argmax(floor(x), -1)", "37,51", -2, 2},
    {"argmax(x, axis=0) - argmin(x, axis=1)", "37,51", -2, 2},
    {"argmax(x, -1)", "3,40001", -1, 1},
    {"f(i: i64[n, c], b: bool[n, c]) -> y: i64[n], z: i64[c] : y = argmin(i, -1); z = argmax(b, n)", "9,7 9,7", -3, 3},
    /* dimensions that no argument has all of */
    {"f(a: T[n, d], b: T[m, d]) -> y: T[n, m] : sum((a - b) ** 2, d)", "7,33 5,33", -1, 1},
    {"f(a: T[n, d], b: T[m, d]) -> y: T[n, m], z: T[m] : y = sum(abs(a - b), -1); z = max(b, axis=d)", "1,33 5,33", -1,
     1},
    {"f(a: T[n], b: T[m]) -> y: T[], z: T[m] : y = sum(a * b); z = b * sum(a)", "9 33", -1, 1},
    {"f(x: T[n, c, s], style: T[n, c, t]) -> y: T[n, c, s] : (x - mean(x, s)) * rsqrt(var(x, s) + 0.1) * std(style, t) "
     "+ mean(style, t)",
     "2,3,40 2,3,7", -1, 1},
    {"f(x: T[n, *s], style: T[n, *t]) -> y: T[n, *s], z: T[n] : y = x * max(style, t); z = sum(x, s)", "3,4,5 3,7", -1,
     1},
    {"f(q: T[h, n, d], k: T[h, m, d], v: T[h, m, e]) -> o: T[h, n, e] : s = softmax(sum(q * k, d), axis=m); o = sum(s "
     "* "
     "v, m)",
     "2,5,8 2,7,8 2,7,9", -1, 1},
    {"f(x: T[n, n], b: T[n]) -> y: T[n, n], z: T[n] : y = softmax(x, axis=1) * b; z = sum(x * x, axis=1)", "9,9 9", -1,
     1},
    {"f(x: T[n, n], b: T[n]) -> y: T[n, n] : x - mean(x, n) + b", "9,9 9", -1, 1},
    /* parts */
    {"f(x: T[n, c]) -> y: T[n - 1, c], z: T[n, c - 1] : y = x[1:] - x[:-1]; z = x[..., 1:] * x[:, :-1]", "9,33", -1, 1},
    {"rope(x: T[*r, t, d], p: T[t, d], q: T[t, d]) -> y: T[*r, t, d] : x * p + rotate_half(x) * q",
     "2,3,5,64 5,64 5,64", -1, 1},
    {"f(x: T[*r, c]) -> y: T[*r, c / 2] : silu(x[..., :c / 2]) * x[..., c / 2:]", "4,7,66", -3, 3},
    {"f(a: T[r, n], b: T[r, m], w: T[n + m]) -> y: T[r, n + m], z: T[r] : t = concat(a, b, axis=-1) * w; "
     "y = softmax(t); z = max(t, axis=-1)",
     "5,33 5,12 45", -1, 1},
    {"f(x: T[n, c], k: int = 2) -> y: T[n, c], z: T[n, c] : y = shift(x, k, n, 1.5) * x; z = shift(x, -3, -1) + x",
     "9,33", -1, 1},
    {"f(x: T[n, c]) -> y: T[n, c], z: T[c] : y = roll(x, 2, n) * x - roll(x, -3, c); z = sum(flip(x, 0) * x, n)",
     "9,33", -1, 1},
    {"f(x: T[h, w]) -> y: T[h - 2, w - 2] : x[1:-1, 1:-1] * 4 - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, "
     "2:]",
     "17,40", -1, 1},
    {"f(x: T[n, c], w: T[3]) -> y: T[n, c] : shift(x, 2, -1) * w[0] + shift(x, 1, -1) * w[1] + x * w[2]", "9,130 3", -1,
     1},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c], z: T[n] : t = x - mean(x[:, :3], c); y = t * flip(b, 0); z = sum(t[:, 2:], "
     "-1)",
     "9,33 33", -1, 1},
    {"f(x: T[n, c]) -> y: T[n, c], z: T[n - 1] : y = rotate_half(x * index(n)) * (1 + index(c)); "
     "z = sum(flip(x * index(c), c)[1:] + x[:-1] * index(x[:-1], axis=[n, c]), c)",
     "5,34", -1, 1},
    {"f(x: T[n, c]) -> y: T[n - 2, c], z: i64[c] : y = where(index(x[2:], -1) == argmax(x[2:], -1), x[:-2], x[2:]); "
     "z = sum(index(x[1:], axis=c) + argmin(x[1:], axis=n), n)",
     "5,33", -1, 1},
    {"f(x: T[n, c]) -> y: T[(n + 1) / 2, c], z: T[n / 3, c] : y = x[::2] * 2 + flip(x, n)[::2]; z = exp(x[2::3])",
     "11,5", -1, 1},
    {"f(x: T[n, c], w: T[c]) -> y: T[n, c], z: T[n] : t = x * w; y = concat(t[..., ::-2], x[:, 1::2], axis=c); "
     "z = sum(t[:, 10:2:-3] * index(t[:, 2:9:3], c), c)",
     "5,12 12", -1, 1},
    {"f(x: T[*r, 2 * c], p: T[c], q: T[c]) -> y: T[*r, c], z: T[*r, c] : a = x[..., ::2]; b = x[..., 1::2]; "
     "y = a * p - b * q; z = b * p + a * q",
     "2,3,24 12 12", -1, 1},
    {"f(x: T[n, c]) -> y: T[n, c / 2], z: T[n - 3, c] : a, b = halves(x); y = silu(a) * b; "
     "p, q, r = split(x, [1, n - 3, 2], n); z = q * max(p, n) + min(r, n)",
     "9,6", -1, 1},
    {"concat(halves(x)[1], chunk(x, 2)[0] * 2, axis=-1) + shift(x, 1, axis=0)", "9,14", -1, 1},
    {"f(x: T[*s], a: float = 0.3) -> y: T[*s] : leaky_relu(x, slope=a) + elu(x, alpha=0.5)", "9,34", -2, 2},
    /* the step of a scan */
    {"f(s: T[*r]!, x: T[*r], a: T[*r]) -> y: T[*r]?, b: T[*r]? : b = s; t = tanh(a * s + x); y = t; s = y",
     "12,34 12,34 12,34", -1, 1},
    {"f(x: T[n, n]) -> y: T[3, 3], z: T[n] : y = x[:3, :3] * x[1:4, 2:5]; z = x[:, 0] * 2", "9,9", -1, 1},
    {"f(x: T[n, c]) -> y: T[n - 4, c] : y = x[4:]", "4,5", -1, 1},
    {"f(x: T[n, c]) -> y: T[n - 3, c], z: T[c] : y = x[3:] * 2; z = x[3] + x[0]", "4,5", -1, 1},
    {"f(i: i32[n, c], m: bool[n, c]) -> y: i64[n, c], z: bool[n, c] : y = concat(i[:, 3:], i[:, :3], axis=c) * 2; "
     "z = m and not shift(m, 1, n)",
     "9,33 9,33", -9, 9},
    /* sums beside results, of rows that are whole vectors: few long blocks, fed by a ring */
    {"y = x * b; d = sum(x * b)", "20480 .", -1, 1},
    {"y = x * b; d = sum(x * b)", "20496 .", -1, 1},
    {"y = x * b; d = sum(x * b)", "17424 .", -1, 1},
    {WALK, "300,8 8", -1, 1},
    {WALK, "60,64 64", -1, 1},
    {WALK, "5,1032 1032", -1, 1},
    {WALK_ROWS, "300,8 8", -1, 1},
    {WALK_ROWS, "60,64 64", -1, 1},
    {WALK_ROWS, "7,1032 1032", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q] : sum_to(x, b) + expand(count(x), b)", "4,9 9", -1, 1},
    {"f(x: T[n, c, h], b: T[c], g: T[]) -> y: T[c] : sum_to(expand(g / count(x), x), b) * b", "4,6,9 6 .", -1, 1},
    {"f(x: T[n, c, h], b: T[n]) -> y: T[n], z: T[] : y = sum_to(expand(b, x), b); z = sum(expand(b, x)) + mean(x)",
     "4,6,9 4", -1, 1},
    {"f(x: T[*s]) -> y: T[], z: T[], w: T[] : y = sum(expand(mean(x), x)); z = var(expand(5, x)); w = max(expand(x, "
     "x))",
     "30,7", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q] : sum_to(x * x, b) * b", "4,6,9 6,1", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[] : sum(tanh(sum_to(x, b)))", "9 6,9", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[] : mean(sum_to(x, b) * x)", "6,1 4,1,9", -1, 1},
    {"f(x: T[c], b: T[n, c]) -> y: T[n] : sum(sum_to(x, b), -1)", "9 6,9", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q] : sum_to(x * x, b) * b", "40,60,90 60,1", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q] : sum_to(x * x, b) * b", "4,6,9 4,1,9", -1, 1},
    {"f(x: T[*s], b: T[*q]) -> y: T[*q], z: T[*s] : t = exp(x); y = sum_to(t, b); z = t * b", "300,200 200", -1, 1},
    {"f(i: i32[*s], j: i64[*s]) -> y: i64[*s], z: f32[*s], s: i64[], m: i32[*s] : y = i * 3 + j % 5 - min(i, j); z = i "
     "/ 2; "
     "s = sum(i) + max(j); m = abs(i) ** 2 if i != j else -i",
     "30,7 30,7", -9, 9},
    {"f(c: bool[*s], x: T[*s]) -> y: T[*s], n: i64[], d: bool[*s] : y = x if c else -x; n = sum(c); d = not c and x > "
     "0",
     "30,7 30,7", -1, 1},
    {"f16(x) + bf16(x) * i8(x * 20) + f32(bool(x > 0))", "500", -2, 2},
};

/* Long enough for every way to share out a row. */
static const row longer[] = {
    {"relu(x * s + b)", "64,512 512 64,1", -2, 2},
    {"t = exp(x - max(x, axis=-1)); t / sum(t, -1)", "3,4096 ", -4, 4},
    {"t = exp(x - max(x, axis=-1)); t / sum(t, -1)", "2,40000", -4, 4},
    {"t = exp(x - max(x, axis=-1)); t / sum(t, -1)", "33,40", -4, 4},
    {"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c], m: T[] : r = rsqrt(mean(x * x, -1) + 1e-5); y = x * r * g; d = "
     "sum_to(x * r, g); m = max(x * r)",
     "50,1024 1024", -2, 2},
    {"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : r = rsqrt(mean(x * x, -1) + 1e-5); y = x * r * g; d = sum_to(x * "
     "r, g)",
     "3,8300 8300", -2, 2},
    {"f(x: T[n, m, c], g: T[m], h: T[c]) -> y: T[n, m, c], d: T[m], q: T[c], s: T[] : y = x * g; d = sum_to(x * x, g); "
     "q = sum_to(x, h); s = sum(x)",
     "5,6,40 6 40", -2, 2},
    {"f(x: T[n, c]!, s: T[n, 1]!, t: T[]!) -> y: T[n, c] : y = x * s + t; x = x - s; s = s + 1; t = t * 2",
     "20,64 20,1 .", -2, 2},
    {"f(x: T[c], t: T[]!) -> y: T[c] : y = x * t; t = t + 1", "5000 .", -2, 2},
    {"f(x: T[n, c]!, s: T[n, 1]!) : x = x / sum(x * s, -1); s = s + 1", "20,64 20,1", 1, 2},
    {"x + rand(s)", "64,64 2", -1, 1},
    {LISTS "x = x * 2 + a * z; y = sum(x * z)", "7/13/1/300 7/13/1/300 .", -1, 1},
    {LISTS "x = x * 2 + a * z; y = max(x)", "1024*3/0*2/2048 1024*3/0*2/2048 .", -1, 1},
    {LISTS "n = sqrt(sum(x * x)); x = x * min(1, a / (n + 1e-6)) + z; y = n",
     "0*5/96*70/8/5000*3/0 0*5/96*70/8/5000*3/0 .", -1, 1},
    {LISTS "y = sum(x * a) + count(x); x = x - mean(z)", "0*3 0*3 .", -1, 1},
    {LISTS "y = a; x = x * a", "40000/3 40000/3 .", -1, 1},
    {"f(x: [T[*s]]!, seed: i64[2]) : x = x + rand(seed)", "64*2/5/130 2", -1, 1},
};
#undef LISTS

#endif
