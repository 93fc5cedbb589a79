/* Formulas with shapes of their inputs: for the interpreter, compiled C and CUDA C. */
#ifndef TENON_TEST_FUSE_ROWS_H
#define TENON_TEST_FUSE_ROWS_H

#include "harness.h"

#define LISTS "f(x: [T[*s]]!, z: [T[*s]], a: T[]) -> y: acc(T)[] : "

#define WALK "f(x: T[*r, c], b: T[c]) -> z: T[*r, c], y: T[c], w: T[c] : z = x * b; y = sum_to(z, b); w = sum_to(x, b)"
#define WALK_ROWS                                                                                                      \
    "f(x: T[*r, c], b: T[c]) -> z: T[*r, c], y: T[c] : r = rsqrt(mean(x * x, -1) + 0.1); z = x * r * b; y = sum_to(x " \
    "* r, b)"

static const row rows[] = {
    {"relu(x*s+b)", "7,13 13 13", -2, 2},
    {"relu(x*s+b)", "7,13 1 .", -2, 2},
    {"relu(x*s+b)", "70,300 300 70,1", -2, 2},
    {"relu(x*s+b)", "3,5000 5000 3,1", -2, 2},
    {"relu(x*s+b)", "100000 . .", -2, 2},
    {"relu(x*s+b)", "4,1,5 3,1 1", -2, 2},
    {"relu(x*s+b)", "0,5 5 1", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "3,5,49 5", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "70,3,9 3", -2, 2},
    {"f(x: T[n, c, s], w: T[c]) -> y: T[n, c, s] : x if x > 0 else w * x", "2,3,2100 3", -2, 2},
    {"f(x: T[n, c, s], z: f32[n, c, s], w: f64[n, c, 1]) -> y: T[n, c, s], v: T[n, c, s] : y = x * w; v = y + z",
     "2,5,11 2,5,11 2,5,1", -2, 2},
    {"f(x: T[n, c], s: T[n, 1]) -> y: T[n, c], z: T[n, 1] : y = x * s; z = s * 2", "5,1030 5,1", -2, 2},
    {"f(x: T[n, c], s: T[n, 1]) -> y: T[n, c], z: T[n, 1] : y = x * s; z = s * 2", "5,13 5,1", -2, 2},
    {"x / s + x / 3", "5,1030 5,1", 0.5, 2},
    {"f(x: T[*s], a: f32[]) -> q: i8[*s] : clamp(round(x / a), -128, 127)", "1001 .", -2, 2},
    {"relu(x*s+b)", ". . .", -2, 2},
    {"exp(x) + log(abs(x) + 1) - log1p(abs(x)) * expm1(x)", "33,17", -3, 3},
    {"sin(x) * cos(x) + tanh(x) / (1.5 + erf(x)) - sigmoid(x) * softplus(x)", "33,17", -8, 8},
    {"sqrt(abs(x)) + rsqrt(abs(x) + 0.1) + floor(x) - round(x) + sign(x)", "1000", -8, 8},
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
