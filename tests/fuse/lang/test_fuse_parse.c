/* Formulas: what is read, what contract comes of it, what is printed, what is refused. */
#include <stdlib.h>

#include "tests/test.h"

#include "core/host/memory.h"
#include "fuse/fuse.h"

/* Parsing what was printed gives the same text again. */
static void check_prints_back(const tni_fuse *f, const char *text) {
    char *printed = tni_fuse_print(f), *again = NULL;
    tni_fuse *second = NULL;
    CHECK_ROW(printed && tni_fuse_parse(printed, NULL, &second) == TN_OK, "%s: %s: %s", text, printed, tn_last_error());
    if (second) again = tni_fuse_print(second);
    CHECK_ROW(again && strcmp(printed, again) == 0, "%s became %s", printed, again ? again : "nothing");
    tni_fuse_free(second);
    tn_free(printed);
    tn_free(again);
}

static const char *const good[][2] = {
    {"relu(x*s+b)", "f(x: T[~*s], s: T[~*s], b: T[~*s]) -> y: T[*s] : y = relu(x * s + b)"},
    {"silu(x) * y", "f(x: T[~*s], y: T[~*s]) -> z: T[*s] : z = x * sigmoid(x) * y"},
    {"x", "f(x: T[*s]) -> y: T[*s] : y = x"},
    {"2", "f() -> y: i64[] : y = 2"},
    {"y = x * 2; z = x - 1", "f(x: T[*s]) -> y: T[*s], z: T[*s] : y = x * 2; z = x - 1"},
    {"t = exp(x)\n# a comment\ny = t * t\n", "f(x: T[*s]) -> y: T[*s] : t1 = exp(x); y = t1 * t1"},
    {"y = x +\n  1", "f(x: T[*s]) -> y: T[*s] : y = x + 1"},
    {"sum(x)", "f(x: T[*s]) -> y: T[] : y = sum(x)"},
    {"sum(x, -1)", "f(x: T[*s, n]) -> y: T[*s] : y = sum(x, -1)"},
    {"max(x, dim=-1)", "f(x: T[*s, n]) -> y: T[*s] : y = max(x, axis=-1)"},
    {"min(x, axis=-1)", "f(x: T[*s, n]) -> y: T[*s] : y = min(x, axis=-1)"},
    {"max(x, -1.0)", "f(x: T[*s]) -> y: T[*s] : y = maximum(x, -1.0)"},
    {"max(x, (-1))", "f(x: T[*s]) -> y: T[*s] : y = maximum(x, -1)"},
    {"maximum(x, -1)", "f(x: T[*s]) -> y: T[*s] : y = maximum(x, -1)"},
    {"max(-1, x)", "f(x: T[*s]) -> y: T[*s] : y = maximum(-1, x)"},
    {"x / sum(x, -1)", "f(x: T[*s]) -> y: T[*s] : y = x / sum(x, -1)"},
    {"exp(x - logsumexp(x, -1))", "f(x: T[*s]) -> y: T[*s] : y = exp(x - logsumexp(x, -1))"},
    {"mean((x - t) ** 2)", "f(x: T[~*s], t: T[~*s]) -> y: T[] : u1 = x - t; y = mean(u1 * u1)"},
    {"y = x * 2; z = x + b",
     "f(x: T[*s_x], b: T[*s_b]) -> y: T[*s_x], z: T[broadcast(*s_x, *s_b)] : y = x * 2; z = x + b"},
    {"x / sum(b)", "f(x: T[*s_x], b: T[*s_b]) -> y: T[*s_x] : y = x / sum(b)"},
    {"sum(x * y, -1)", "f(x: T[*s_x], y: T[*s_y]) -> z: T[rows(*s_x, *s_y)] : z = sum(x * y, -1)"},
    {"w * sum(x, -1) * v",
     "f(w: T[*s_w], x: T[*s_x], v: T[*s_v]) -> y: T[broadcast(*s_w, *s_v, rows(*s_x))] : y = w * sum(x, -1) * v"},
    {"(x - mean(x, -1)) * g + b", "f(x: T[*s_x], g: T[*s_g], b: T[*s_b]) -> y: T[broadcast(*s_x, *s_g, *s_b)] : y = "
                                  "(x - mean(x, -1)) * g + b"},
    {"y = x + rand(s); z = mean(w, -1) * x",
     "f(x: T[*s_x], s: i64[2], w: T[*s_w]) -> y: T[broadcast(*s_x, *s_w)], z: T[broadcast(*s_x, rows(*s_w))] : y = x + "
     "rand(s); z = mean(w, -1) * x"},
    {"where(pi > x, x, 0)", "f(x: T[*s]) -> y: T[*s] : y = where(x < 3.141592653589793, x, 0)"},
    {"where(m, x, 0)", "f(m: bool[~*s], x: T[~*s]) -> y: T[*s] : y = where(m, x, 0)"},
    {"x if m else -x", "f(x: T[~*s], m: bool[~*s]) -> y: T[*s] : y = where(m, x, -x)"},
    {"x if x > 0 else 0.1 * x", "f(x: T[*s]) -> y: T[*s] : y = where(0 < x, x, 0.1 * x)"},
    {"x > 0 and x < 1 or not x == 3", "f(x: T[*s]) -> y: bool[*s] : y = 0 < x and x < 1 or x != 3"},
    {"(x > 0) & (x < 1) | !(x > 2)", "f(x: T[*s]) -> y: bool[*s] : y = 0 < x and x < 1 or not 2 < x"},
    {"i32(x) & 1 == 0", "f(x: T[*s]) -> y: bool[*s] : y = i32(x) & 1 == 0"},
    {"(i32(x) & 6 | i32(x) << 2 ^ 3) >> 1", "f(x: T[*s]) -> y: i32[*s] : t1 = i32(x); y = (t1 & 6 | t1 << 2 ^ 3) >> 1"},
    {"sum(x, axis=0)", "f(x: T[dim0, *dims]) -> y: T[*dims] : y = sum(x, axis=dim0)"},
    {"max(x, axis=[1, -2]) * x",
     "f(x: T[dim0, dim1, *dims, dim_2, dim_1]) -> y: T[dim0, dim1, *dims, dim_2, dim_1] : y = max(x, axis=[dim1, "
     "dim_2]) * x"},
    {"mean(x, [-1])", "f(x: T[*s, n]) -> y: T[*s] : y = mean(x, -1)"},
    {"f(x: T[n, c, *s]) -> y: T[c], z: T[], w: T[n, c] : y = mean(x, axis=[0, s]); z = sum(x, [n, c, s]); w = max(x, "
     "s)",
     "f(x: T[n, c, *s]) -> y: T[c], z: T[], w: T[n, c] : y = mean(x, axis=[n, s]); z = sum(x); w = max(x, axis=s)"},
    {"gate(a, b) = a * sigmoid(b); y = gate(x, w) + gate(w, x)",
     "f(x: T[~*s], w: T[~*s]) -> y: T[*s] : y = x * sigmoid(w) + w * sigmoid(x)"},
    {"f(a) = a * s\ng(a) = f(a) +\n  f(2 * a) # twice\ng(x)",
     "f(x: T[~*s], s: T[~*s]) -> y: T[*s] : y = x * s + 2 * x * s"},
    {"sq(a) = a * a; n(v) = sqrt(sum(sq(v), axis=[0, -1])); x / n(x)",
     "f(x: T[dim0, *dims, dim_1]) -> y: T[dim0, *dims, dim_1] : y = x / sqrt(sum(x * x, axis=[dim0, dim_1]))"},
    {"h(x, w) : s(x) = x * sigmoid(x); s(w) * x", "h(x: T[~*s], w: T[~*s]) -> y: T[*s] : y = w * sigmoid(w) * x"},
    {"softmax(x)", "f(x: T[*s]) -> y: T[*s] : t1 = exp(x - detach(max(x, axis=-1))); y = t1 / sum(t1, -1)"},
    {"norm(x, -1)", "f(x: T[*s, n]) -> y: T[*s] : t1 = sum(x * x, -1); t2 = t1 == 0; y = where(t2, 0.0, sqrt(where(t2, "
                    "1.0, t1)))"},
    {"std(x)", "f(x: T[*s]) -> y: T[] : t1 = var(x); t2 = t1 == 0; y = where(t2, 0.0, sqrt(where(t2, 1.0, t1)))"},
    {"y = any(x); z = all(x > 0, axis=-1)",
     "f(x: T[*s, n]) -> y: bool[], z: bool[*s] : y = sum(where(bool(x), 1.0, 0.0)) "
     "!= 0; z = sum(where(0 < x, 0.0, 1.0), -1) == 0"},
    {"x >> 2 & 3", "f<T: int>(x: T[*s]) -> y: T[*s] : y = x >> 2 & 3"},
    {"(x ^ w | 8) / 2", "f<T: int>(x: T[~*s], w: T[~*s]) -> y: f32[*s] : y = (x ^ w | 8) * 0.5"},
    {"~i8(x) & (i8(x) | 1)", "f(x: T[*s]) -> y: i8[*s] : t1 = i8(x); y = ~t1 & (t1 | 1)"},
    {"~(x > 0) ^ (x < 1)", "f(x: T[*s]) -> y: bool[*s] : y = (not 0 < x) != (x < 1)"},
    {"i8(300) + i8(-1e9) + u8(-5.0) + i32(nan) + i16(40000)", "f() -> y: i32[] : y = i32(-2.562e4)"},
    {"-x ** 2", "f(x: T[*s]) -> y: T[*s] : y = -(x * x)"},
    {"2 ** -x", "f(x: T[*s]) -> y: T[*s] : y = 2 ** -x"},
    {"(-2) ** x", "f(x: T[*s]) -> y: T[*s] : y = (-2) ** x"},
    {"x ** 2 ** y", "f(x: T[~*s], y: T[~*s]) -> z: T[*s] : z = x ** 2 ** y"},
    {"(x ** y) ** 2.5", "f(x: T[~*s], y: T[~*s]) -> z: T[*s] : z = (x ** y) ** 2.5"},
    {"x - (y - z)", "f(x: T[~*s], y: T[~*s], z: T[~*s]) -> out: T[*s] : out = x - (y - z)"},
    {"x - y - z", "f(x: T[~*s], y: T[~*s], z: T[~*s]) -> out: T[*s] : out = x - y - z"},
    {"x / 8", "f(x: T[*s]) -> y: T[*s] : y = x * 0.125"},
    {"x / 3", "f(x: T[*s]) -> y: T[*s] : y = x / 3"},
    {"x * 1 + 0 * x", "f(x: T[*s]) -> y: T[*s] : y = x + 0 * x"},
    {"x + -0.0", "f(x: T[*s]) -> y: T[*s] : y = x"},
    {"exp(x - -0)", "f(x: T[*s]) -> y: T[*s] : y = exp(x)"},
    {"x + 0", "f(x: T[*s]) -> y: T[*s] : y = x + 0"},
    {"0.0 + x + 0.0 + 0.0", "f(x: T[*s]) -> y: T[*s] : y = 0.0 + x"},
    {"x + (1 + 2) * pi", "f(x: T[*s]) -> y: T[*s] : y = x + 9.42477796076938"},
    {"x * -1", "f(x: T[*s]) -> y: T[*s] : y = -x"},
    {"a - -b", "f(a: T[~*s], b: T[~*s]) -> y: T[*s] : y = a + b"},
    {"f32(x) * 2", "f(x: T[*s]) -> y: f32[*s] : y = f32(x) * 2"},
    {"f32(x) * x", "f(x: T[*s]) -> y: acc(T)[*s] : y = f32(x) * x"},
    {"i32(x) + 1", "f(x: T[*s]) -> y: i32[*s] : y = i32(x) + 1"},
    {"i32(x) / 2", "f(x: T[*s]) -> y: f32[*s] : y = i32(x) * 0.5"},
    {"where(rand(seed) < 0.5, x, 0)", "f(seed: i64[2], x: T[*s]) -> y: T[*s] : y = where(rand(seed) < 0.5, x, 0)"},
    {"x * index(-1)", "f(x: T[*s]) -> y: T[*s] : y = x * index(-1)"},
    {"index(x) + index(x, dim=-1)", "f(x: T[*s]) -> y: i64[*s] : y = index(x) + index(x, -1)"},
    {"y = index(0); z = x * index()", "f(x: T[dim0, *dims]) -> y: i64[dim0], z: T[dim0, *dims] : y = index(axis=dim0); "
                                      "z = x * index()"},
    {"f(x: T[n, c, *s]) -> y: T[n, c, *s] : x * index(n) + index(axis=[n, s]) - index(1) * index(-1)",
     "f(x: T[n, c, *s]) -> y: T[n, c, *s] : y = x * index(axis=n) + index(axis=[n, s]) - index(axis=c) * index(-1)"},
    {"f(i: i64[b], x: T[b, n]) -> y: T[b, n] : x * one_hot(i, n)",
     "f(i: i64[b], x: T[b, n]) -> y: T[b, n] : y = x * where(index(-1) == i, 1, 0)"},
    {"gather(x, i) * 2", "f(x: T[*s_x], i: i32|i64[*s_i]) -> y: T[*s_i] : y = gather(x, i) * 2"},
    {"sort(x, axis=0, result='index')", "f(x: T[*s]) -> y: i64[*s] : y = sort(x, axis=0, result='index')"},
    {"f(t: T[v, d], i: i64[*s]) -> y: T[*s, d] : t[i + 1] * index(d)",
     "f(t: T[v, d], i: i64[*s]) -> y: T[*s, d] : y = embedding(t, i + 1) * index(-1)"},
    {"f(d: T[n, k], i: i64[n, k], x: T[n, c]) -> y: T[n, c] : gather_grad(d, i, shape=shape(x), axis=1)",
     "f(d: T[n, k], i: i64[n, k], x: T[n, c]) -> y: T[n, c] : y = gather_grad(d, i, shape=shape(x), axis=1)"},
    {"argmax(x, -1)", "f(x: T[*s, n]) -> y: i64[*s] : y = i64(min(where(x == max(x, axis=-1) or x != x, index(x, -1), "
                      "9007199254740992), axis=-1))"},
    {"x + rand(s, 3)", "f(x: T[*s], s: i64[2]) -> y: T[*s] : y = x + rand(s, 3)"},
    {"x! = x * 2", "f(x: T[*s]!) : x = x * 2"},
    {"x! = x * 2; y = x + 1", "f(x: T[*s]!) -> y: T[*s] : t1 = x * 2; y = t1 + 1; x = t1"},
    {"x! = x * 2; b! = a", "f(x: T[*s_x]!, a: T[*s_a], b: T[*s_b]!) : t1 = a; t2 = x * 2; x = t2; b = t1"},
    {".5 * x + 1. + 1e3", "f(x: T[*s]) -> y: T[*s] : y = 0.5 * x + 1.0 + 1e3"},
    {"x % 3", "f(x: T[*s]) -> y: T[*s] : y = x % 3"},
    {"clamp(x, 0, 6)", "f(x: T[*s]) -> y: T[*s] : y = clamp(x, 0, 6)"},
    {"gelu(x)", "f(x: T[*s]) -> y: T[*s] : y = x * (0.5 + 0.5 * erf(x * 0.7071067811865476))"},
    {"min(x, max(y, x))", "f(x: T[~*s], y: T[~*s]) -> z: T[*s] : z = minimum(x, maximum(y, x))"},
    /* bare names: inputs in the order of the signature */
    {"g(a, b, c) : c - b * a", "g(a: T[~*s], b: T[~*s], c: T[~*s]) -> y: T[*s] : y = c - b * a"},
    {"g(x, y) : y - x", "g(x: T[~*s], y: T[~*s]) -> z: T[*s] : z = y - x"},
    {"g(b, m, a) : where(m, a, b)", "g(b: T[~*s], m: bool[~*s], a: T[~*s]) -> y: T[*s] : y = where(m, a, b)"},
    {"g(x, eps: float = 1e-5, m: 'a'|'b' = 'a') : t = x if m == 'a' else -x\ny = t + eps",
     "g(x: T[*s], eps: float = 1e-5, m: 'a'|'b' = 'a') -> y: T[*s] : y = where((m == 'a'), x, -x) + eps"},
    {"g(x, seed) : x * rand(seed)", "g(x: T[*s], seed: i64[2]) -> y: T[*s] : y = x * rand(seed)"},
    {"g(x) : x! = x * 2", "g(x: T[*s]!) : x = x * 2"},
    {"g(max, e) : max - e", "g(max: T[~*s], e: T[~*s]) -> y: T[*s] : y = max - e"},
    /* a name of a constant may be taken */
    {"e = x * 2; y = e + 1", "f(x: T[*s]) -> y: T[*s] : y = x * 2 + 1"},
    {"pi = x * 2", "f(x: T[*s]) -> pi: T[*s] : pi = x * 2"},
    {"g(e: T[*s], pi: float = 2.0) -> y: T[*s] : e * pi", "g(e: T[*s], pi: float = 2.0) -> y: T[*s] : y = e * pi"},
    {"inf - nan + x * e", "f(x: T[*s]) -> y: T[*s] : y = nan + x * 2.718281828459045"},
    {"g(x: T[*r, c], w: W[c]?, eps: float = 1e-5) -> y: T[*r, c] : n = x * rsqrt(mean(x * x, -1) + eps); "
     "y = n * w if has(w) else n",
     "g(x: T[*r, c], w: W[c]?, eps: float = 1e-5) -> y: T[*r, c] : t1 = x * rsqrt(mean(x * x, -1) + eps); "
     "y = where(has(w), t1 * w, t1)"},
    {"g(x: T[n, c], b: T[c]) -> y: T[n, c] : x * sum_to(expand(0.0, x), b)",
     "g(x: T[n, c], b: T[c]) -> y: T[n, c] : y = x * expand(0.0, b)"},
    {"g(x: T[n, c, *s], b: T[n, c]) -> y: T[n, c] : expand(mean(x), b)",
     "g(x: T[n, c, *s], b: T[n, c]) -> y: T[n, c] : y = expand(mean(x), b)"},
    {"g(x: T[n, c]) -> y: T[n, c] : max(x)", "g(x: T[n, c]) -> y: T[n, c] : y = max(x)"},
    {"g(x: T[n, c, *s], b: T[c]) -> y: T[n, c, *s] : x + b",
     "g(x: T[n, c, *s], b: T[c]) -> y: T[n, c, *s] : y = x + b"},
    {"g(x: T[*s], m: 'a'|'b' = 'a') -> y: T[*s] : y = x if m == 'a' else -x",
     "g(x: T[*s], m: 'a'|'b' = 'a') -> y: T[*s] : y = where((m == 'a'), x, -x)"},
    {"g(x: T[*s], m: 'a'|'b' = 'a', k: int = 2, f: bool = false) -> y: T[*s] : y = x * k if m != 'b' and f else -x",
     "g(x: T[*s], m: 'a'|'b' = 'a', k: int = 2, f: bool = false) -> y: T[*s] : y = where(not (m == 'b') and f, x * k, "
     "-x)"},
    {"step(p: T[*s]!, g: G[*s], m: f32[*s]!, lr: f32[], b: float = 0.9) : m = b * m + (1 - b) * g; p = p - lr * m",
     "step(p: T[*s]!, g: G[*s], m: f32[*s]!, lr: f32[], b: float = 0.9) : t1 = b * m + (1 - b) * g; t2 = p - lr * t1; "
     "p = "
     "t2; m = t1"},
    {"step(p: T[*s]!, g: G[*s], m: f32[*s]!, lr: f32[], b: float = 0.9) -> n: f32[] : m = b * m + (1 - b) * g; p = p - "
     "lr "
     "* m; n = sum(g)",
     "step(p: T[*s]!, g: G[*s], m: f32[*s]!, lr: f32[], b: float = 0.9) -> n: f32[] : t1 = b * m + (1 - b) * g; t2 = p "
     "- "
     "lr * t1; n = sum(g); p = t2; m = t1"},
};

static void test_good(void) {
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tni_fuse *f;
        tni_fuse_options options = {.name = "f"};
        tn_status status = tni_fuse_parse(good[i][0], &options, &f);
        CHECK_ROW(status == TN_OK, "%s: %s", good[i][0], tn_last_error());
        if (status != TN_OK) continue;
        char *printed = tni_fuse_print(f);
        CHECK_ROW(printed && strcmp(printed, good[i][1]) == 0, "%s\n    gave   %s\n    wanted %s", good[i][0], printed,
                  good[i][1]);
        tn_free(printed);
        check_prints_back(f, good[i][0]);
        tni_fuse_free(f);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* The caret line points at the first character of `at`. */
static const struct {
    const char *text, *message, *at;
} bad[] = {
    {"", "expected an expression, or 'name = …'", ""},
    {"   # nothing", "expected an expression", ""},
    {"x +", "expected a number, a name or '('", ""},
    {"x + * y", "expected a number, a name or '('", "* y"},
    {"(x + 1", "expected ')'", ""},
    {"x + 1)", "this ')' closes nothing", ")"},
    {"x ^ 2", "'^' takes integers or truth values, and this is a float; a power is written a ** b", "^ 2"},
    {"x > 0 & x < 1", "and this is a float", "& x"},
    {"~(x / 2)", "'~' takes integers", "~(x"},
    {"!x > 2", "write (!a) == b or !(a == b)", "!x"},
    {"1 << sqrt(x)", "'<<' takes integers or truth values", "<< sqrt"},
    {"f<T: any>(x: T[*s]) -> y: T[*s] : x | 1", "and this can be a float", "| 1"},
    {"x // 2", "floor(a / b)", "// 2"},
    {"x < y < z", "comparisons do not chain", "< z"},
    {"sofplus(x)", "there is no function 'sofplus'; did you mean 'softplus'?", "sofplus"},
    {"tahn(x) + 1", "did you mean 'tanh'?", "tahn"},
    {"lgosumexp(x, -1)", "did you mean 'logsumexp'?", "lgosumexp"},
    {"zzzzzz(x)", "there is no function 'zzzzzz' at", "zzzzzz"},
    {"x = 1; x(2)", "'x' is a value; a product is written with '*'", "x(2)"},
    {"exp(x, y)", "exp takes 1 argument, found 2", "exp"},
    {"clamp(x)", "clamp takes 3 arguments, found 1", "clamp"},
    {"max(x, y, z)", "max takes 2 arguments, found 3", "max"},
    {"where(x, y, z, w)", "too many arguments", "w)"},
    {"exp()", "exp takes 1 argument, found 0", "exp"},
    {"one_hot(x)", "one_hot takes an index and the dimension that it goes along: one_hot(i, n)", "one_hot"},
    {"f(i: i64[n], x: T[n]) -> y: T[n] : x * one_hot(i, n)", "the index has this dimension already", "n)"},
    {"index(x, y)", "index takes 1 argument, found 2", "index"},
    {"f(x: T[n, c]) -> y: T[n, c] : x * index(k)", "there is no 'k' in the signature", "k)"},
    {"f(x: T[n, c]) -> y: T[n, c] : x * index(3)", "there is no dimension 3: the formula has 2", "3)"},
    {"f(x: T[*s]) -> y: T[*s] : x * index(0)", "the signature gives the others no names", "0)"},
    {"f(x: [T[*s]]!) : x = x * index()", "elements of a list of tensors have no index", "index"},
    {"f(x: T[*p], y: T[*q]) -> z: T[broadcast(*p, *q)] : y * sum(x, 0)", "the signature gives the others no names",
     "0)"},
    {"sum(x, dim=16)", "16 is no axis: there are at most 16 dimensions", "16)"},
    {"sum(x, y)", "sum takes 1 argument, found 2", "sum"},
    {"exp", "'exp' is a function: expected '(' behind it", "exp"},
    {"x y", "expected an operator or the end of the statement", "y"},
    {"x = y = 2", "'=' stands behind one name; '==' compares", "= 2"},
    {"1x", "malformed number: a product is written 1 * x", "1x"},
    {"1.5e-5f * x", "malformed number: it has no suffix", "1.5e-5f"},
    {"1_000 * x", "a number has no '_' in it", "1_000"},
    {"0x10 * x", "numbers are decimal", "0x10"},
    {"1.2.3", "malformed number at", "1.2.3"},
    {"1e400 * x", "the number is too large", "1e400"},
    {"99999999999999999999 * x", "more than 53 bits", "99999999999999999999"},
    {"x $ y", "unexpected character '$'", "$"},
    {"x + \x01", "unexpected byte 0x01", "\x01"},
    {"x + ä", "'ä' is not ASCII: names are of letters a to z, digits and '_'", "ä"},
    {"x − 1", "there is no '−'; write a - b at column 3\n  x − 1\n    ^", NULL},
    {"x² + 1", "there is no '²'; write x ** 2", "²"},
    {"x @ y", "there is no '@'; the product of matrices is matmul(x, y), with a contract in front", "@ y"},
    {"y * x.sum()", "a value has no methods: write sum(x) at", ".sum"},
    {"x.mean(-1)", "a value has no methods: write mean(x, …) at", ".mean"},
    {"x.mish()", "a value has no methods: write mish(x) at", ".mish"},
    {"exp(x).sum()", "a value has no methods: write sum(…) at", ".sum"},
    {"x.float()", "a value has no methods, and there is no function 'float'; it is written f32(x)", ".float"},
    {"x.view(2, -1)", "there is no function 'view'; a formula does not rearrange its inputs", ".view"},
    {"y * torch.nn.functional.silu(x)", "names have no module in front of them: write silu(…)", "torch"},
    {"x * math.pi", "names have no module in front of them: write pi at", "math"},
    {"x * self.weight", "a name has no '.': give self.weight to an input with a name of its own", ".weight"},
    {"x / x.shape[0]", "count(x) and count(x, -1) give sizes", ".shape"},
    {"x.", "unexpected character '.'", "."},
    {"shift(x, 1) * 2", "expected the axis: shift(x, …, axis=-1)", "* 2"},
    {"concat(x, y)", "expected the axis: concat(x, …, axis=-1)", ""},
    {"flip(x, n)", "names of dimensions are for formulas with a contract in front", "n)"},
    {"f(x: T[n, c]) -> y: T[n, c] : split(x, 3)[0]",
     "split takes a list of sizes, split(x, [2, 4]); chunk(x, 3) makes 3 parts", "3)"},
    {"a, b = x * 2", "several names take the parts of a value, as in a, b = halves(x)", "x * 2"},
    {"f(x: T[n, c]) -> a: T[n, c], b: T[n, c] : a, b = chunk(x, 3)",
     "expected '[' and which part it is, or the names of all 3", ""},
    {"f<T: bits>(n, m) : n & m", "expected T: int or T: float", "bits"},
    {"a, b = -halves(x)", "several names take the parts of a value", "-halves"},
    {"a, a = halves(x)", "'a' is assigned twice", "a = halves"},
    {"x[n:]", "'n' is no dimension of the signature", "n:"},
    {"[x, y]", "there are no lists; a formula with several results is written a = …; b = …", "[x"},
    {"(x, y)", "a formula with several results is written a = …; b = …", ", y"},
    {"(x, y) -> x * y", "inputs are named in front as in f(x, y) : x + y", ", y"},
    {"x -> x * 2", "inputs are named in front as in f(x, y) : x + y", "->"},
    {"min([x, y])", "there are no lists at", "[x"},
    {"f(x, y) { x * y }", "a formula with a name and inputs is written f(x) : …", "f(x"},
    {"f(x, y) : return x * y", "the last statement is the result, with no word in front", "return"},
    {"f(x: T[n]) -> y: T[n] : return x", "the last statement is the result, with no word in front", "return"},
    {"f(x, eps=1e-5) : x + eps", "expected a type before the default: eps: float = 1e-5", "=1e"},
    {"let y = x * 2", "a value is named with no word in front: y = …", "let"},
    {"x mod 2", "a remainder is written a % b", "mod"},
    {"y = x where x > 0", "a choice is written where(c, a, b), or a if c else b", "where"},
    {"x.to(f16)", "there is no function 'to'; a cast is written f32(x)", ".to"},
    {"x, y", "a formula with several results is written a = …; b = …", ", y"},
    {"x > 0 && x < 1", "there is no '&&'; write a and b", "&&"},
    {"||x||", "abs(x) for |x|", NULL},
    {"2 * |x|", "an absolute value is written abs(x)", "|x"},
    {"c ? x : y", "there is no '?'; write a if c else b", "?"},
    {"x += 1", "there is no '+='; write y = x + …, or x! = x + … to update an input", "+="},
    {"x **= 2", "there is no '**='", "**="},
    {"x == \"sum\"", "a string is compared with an attribute", "\"sum"},
    {"x \\\n + 1", "a line goes on behind an operator", "\\"},
    {"return x", "the last statement is the result, with no word in front", "return"},
    {"lambda x: x * 2", "inputs are named in front as in f(x, y) : x + y", "lambda"},
    {"y = x; z is None", "has(x) says whether an optional input is there", "is None"},
    {"for i in x: i", "there are no loops", "for"},
    {"f(x) = x * 2", "expected an expression that calls f; a formula with that name is written f(…) : …", ""},
    {"f(a) = f(a) + 1; f(x)", "there is no function 'f'", "f(a) +"},
    {"f(a) = g(a); g(b) = b; f(x)", "there is no function 'g'", "g(a)"},
    {"exp(a) = a; exp(x)", "'exp' is a function of the language", "exp(a)"},
    {"f(a) = a +; f(x)", "expected a number, a name or '('", "; f"},
    {"f(a, b) = a; f(x)", "f takes 2 arguments, found 1", "f(x)"},
    {"f(a, a) = a; f(x, x)", "'a' is there twice", "a) ="},
    {"f(a) = a; f(b) = b; f(x)", "'f' is defined twice", "f(b)"},
    {"f(a) = a; f = x; f", "'f' is a function already", "f = x"},
    {"t = x; t(a) = a; t(x)", "'t' is a value already", "t(a)"},
    {"f(a) = ; f(x)", "expected an expression: what 'f' computes", "; f"},
    {"2 x", "a product is written with '*'", "x"},
    {"mean(x, dim=-1, keepdim=True)", "leave it out: inside of a formula the dimension stays, with size 1", "keepdim"},
    {"mean(x, -1, True)", "expected ')': nothing stands behind the axis", "True"},
    {"var(x, unbiased=False)", "leave it out: var divides by the count", "unbiased"},
    {"relu(x, inplace=True)", "relu takes its arguments by their order, without names", "inplace"},
    {"sum(x, dim=[0, 1)", "expected ',' or ']' after an axis", ")"},
    {"sum(x, [])", "expected a number for the axis of sum", "]"},
    {"sum(x, axis=n)", "expected a number for the axis of sum", "n)"},
    {"f(x: T[n, *s]) -> y: T[n] : sum(x, axis=1)", "name it, as in sum(x, axis=s)", "1)"},
    {"f(x: T[n, c]) -> y: T[n] : sum(x, 2)", "there is no dimension 2: the formula has 2", "2)"},
    {"f(x: T[n, c]) -> y: T[n] : sum(x, axis=m)", "expected a dimension of the signature or its number", "m)"},
    {"f(x: T[n, c], g: T[n]) -> y: T[n] : g + sum(g, c)", "sum goes along c, a dimension of the formula", "c)"},
    {"x]", "expected an operator or the end of the statement", "]"},
    {"leaky_relu(x, 0.1)", "in a formula 'slope' has its default", "leaky_relu"},
    {"clamp(x, 0)", "clamp takes 3 arguments, found 2: clamp(x, low, high)", "clamp"},
    {"matmul(x, y)", "a contract in front gives names to dimensions, as x: T[n, c] does", "matmul"},
    {"cat(x, y)", "there is no function 'cat'; a formula does not rearrange its inputs", "cat"},
    {"arctan(x)", "there is no function 'arctan'; it is written atan(x)", "arctan"},
    {"bfloat16(x)", "it is written bf16(x)", "bfloat16"},
    {"x + # größer\n 1 $", "unexpected character '$' at column 17\n  x + # größer  1 $\n                  ^", NULL},
    {"x + \xc3", "unexpected byte 0xc3 at column 5\n  x + ?\n      ^", "\xc3"},
    {"x + \xc3 # ä", "unexpected byte 0xc3 at column 5\n  x + ? # ä\n      ^", "\xc3 "},
    {"t = x; t = x + 1; y = t", "'t' is assigned twice", "t = x + 1"},
    {"y = x; x = 2", "'x' was read before, so it is an input; call this otherwise, or write 'x! = …'", "x = 2"},
    {"inf = 3; y = x", "'inf' cannot be assigned", "inf"},
    {"y = x * e; e = 2", "'e' was read as the constant before; assign it first", "e = 2"},
    {"max(x, -1)", "max(…, axis=-1) is the largest along that dimension, maximum(…, -1) the larger of the two", "-1"},
    {"min(x * 2, 0) + 1", "minimum(…, 0) the smaller of the two", "0)"},
    {"max(x, -2)", "can mean two things", "-2"},
    {"x + True", "'True' cannot be a name: the truth values are true and false", "True"},
    {"where(x > 0, x, None)", "'None' cannot be a name: an input that may be absent has a '?'", "None"},
    {"f(x: T[*s]) -> y: T[*s] : x * Inf", "'Inf' cannot be a name: it is written inf", "Inf"},
    {"None = x; y = None", "'None' cannot be a name", NULL},
    {"f(False: T[*s]) -> y: T[*s] : 1", "'False' cannot be a name", NULL},
    {"heavyside(x)", "did you mean 'heaviside'? It is written where(x > 0, 1, 0)", "heavyside"},
    {"sofmax(x)", "did you mean 'softmax'?", "sofmax"},
    {"softmax(x, 2, 3)", "nothing stands behind the axis", "3)"},
    {"gammaln(x)", "it is written lgamma(x)", "gammaln"},
    {"foo(x)", "there is no function 'foo' at", "foo"},
    {"g(a, b) : a", "'b' is not used", "b) :"},
    {"g(a, b) : a + bb * b", "there is no 'bb' in the signature", "bb"},
    {"g(alpha, b) : alpah + b", "did you mean 'alpha'?", "alpah"},
    {"g(a, a) : a", "'a' is there twice", "a) :"},
    {"g(a, b: T[*s]) : a + b", "give one to all of them, or none", "b: T"},
    {"g(a) -> y : a", "inputs without types have no outputs in the signature", "-> y"},
    {"g(a, b,) : a", "expected the name of an input", ") :"},
    {"g(a, nan) : a", "'nan' is a word or a number of the language", "nan"},
    {"g(a, seed) : a * rand(sed)", "there is no 'sed' in the signature", "sed"},
    {"g(a, k: int = 1) : k = 2; y = a", "'k' cannot be assigned", "k = 2"},
    {"g(a, k: int = 1) : a = 2; y = a", "'a' is an input; 'a! = …' updates it in place", "a = 2"},
    {"t = x; t! = 3", "'t' is no input: only inputs are updated", "t! = 3"},
    {"x! + 1", "expected '=' behind the '!'", "+ 1"},
    {"x + 1; y = x", "only the last statement may be a bare expression", "x + 1; y"},
    {"x if y", "expected 'else'", ""},
    {"x if", "expected a number, a name or '('", ""},
    {"if x", "'if' is a word of the language", "if x"},
    {"rand(x) + x", "'x' is a seed: it is for rand", "x"},
    {"x + rand(x)", "'x' is no seed", "x)"},
    {"rand(1)", "expected the name of the seed", "1)"},
    {"rand(s, x)", "expected a whole number", "x)"},
    {"has(x)", "'x' is not optional", "x)"},
    {"f(x: T[n], gate: T[n]?) -> y: T[n] : x + gate if has(gat) else x", "did you mean 'gate'?", "gat)"},
    {"c64(x)", "there is no function 'c64'; did you mean 'f64'?", "c64"},
    {"i + 9007199254740993", "the integer has more than 53 bits", "9007199254740993"},
    {"x == 'a'", "a string is compared with an attribute", "'a'"},
    {"x + 'a", "the string has no closing quote", "'a"},
    {"f(x: T[*s]) -> y: T[*s] : y = x * scale", "there is no 'scale' in the signature", "scale"},
    {"f(x: T[*s], scale: T[]) -> y: T[*s] : y = x * scal", "did you mean 'scale'?", "scal"},
    {"f(x: T[*s]) -> y: T[*s] : z = x", "the output 'y' of the signature is not assigned", ""},
    {"f(x: T[*s]) -> y: T[*s] : z = x; y = x", "'z' is assigned, but no output of the signature and not used", ""},
    {"f(x: T[*s]) -> y: T[*s] : x = 2; y = x", "'x' is an input that the signature does not mark '!'", "x = 2"},
    {"f(x: T[*s]!) -> y: T[*s] : y = x", "'x' is marked '!' but not assigned", ""},
    {"f(x: T[*s], k: int = 1) -> y: T[*s] : k = 2; y = x", "'k' cannot be assigned", "k = 2"},
    {"f(x: T[*s]) -> y: T[*s], z: T[*s] : x", "expected 'name = …': the signature has 2 outputs", "x"},
    {"f(x: T[n, c], g: T[n]) -> y: T[n, c] : y = x * sum(g, -1)", "sum goes along c, a dimension", "-1"},
    {"f(x: T[n, c]) -> y: T[n] : y = sum(x, -1) * c", "'c' is a dimension", "c"},
    {"f(x: T[*s], m: 'a'|'b') -> y: T[*s] : x if m else 0", "'m' is a word: compare it", "m else"},
    {"f(x: T[*s], m: 'a'|'b') -> y: T[*s] : x if m == 'c' else 0", "expected one of the words of 'm'", "c'"},
    {"f(x: T[*s], m: axis) -> y: T[*s] : x * m", "has no value in a formula", "m"},
    {"f(x T[*s]) -> y: T[*s] : x", "expected ':' after 'x'", "T[*s]) "},
    {"f(x: T[*s]) -> y: T[*s]", "expected ':' and the formula behind the signature", ""},
    {"f(x: T[*s) -> y: T[*s] : x", "expected", NULL},
    {"f(x: T[*s]) -> y: T[*q] : x", "*q", NULL},
    {"f(x: T[n, c, *s]) -> y: T[n, c] : mean(x)", "mean(…) is one number for everything, and 'y' has dimensions",
     "mean"},
    {"f(x: T[n, c, *s]) -> y: T[n, c], m: T[] : m = max(x); y = sqrt(m) + 1", "max(…, axis=-1) goes along the last",
     "y = sqrt"},
    {"f(x: T[n, 2*c]) -> y: T[n, c] : sum(x, -1)", "which dimension is -1, the signature does not say", "-1"},
    {"f(x: T[n, c], b: T[m]) -> y: T[] : sum(x * b, axis=1)", "name it, as in sum(x, axis=m)", "1"},
    {"f(x: T[n, c], b: T[c, m], g: T[m, n]) -> y: T[] : sum(x * b * g)",
     "g has m before n, and the order of other arguments puts it behind: no order of the dimensions fits both", NULL},
    {"f(x: T[n, c, k], b: T[c, n, m]) -> y: T[] : sum(x * b)", "b has c before n, and x has it behind", NULL},
    {"f(x: T[n, a * b]) -> y: T[n] : sum(x, -1)", "a * b", NULL},
    {"f(xs: [T[*s, n]]) -> y: T[] : 1", "only single numbers (T[]), which xs is not", NULL},
    {"f(xs: [T[*s]], b: T[n]) -> y: T[] : 1", "only single numbers (T[]), which b is not", NULL},
    {"f(xs: [T[*s]]) -> y: T[] : sum(xs, -1)", "sum along the last dimension of a list", NULL},
    {"f(x: T[*s]) -> y: T[*s] : x[1:]", "its dimensions need names", "[1:]"},
    {"f(x: T[*r, c]) -> y: T[*r, c] : x[1:]", "this dimension is one of *r or stands behind them", "1:]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[:, :, 1:]", "3 subscripts for a value that has 2 dimensions", "[:, :, 1:]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[..., 1:, ...]", "'...' stands in a subscript once", "...]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[::0]", "expected a step, which is a whole number other than 0", "0]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[::n]", "expected a step", "n]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[1:3:-1]", "this part ends before it begins", "1:3"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[3:1]", "this part ends before it begins", "3:1]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[:k]", "'k' is no dimension of the signature and no attribute of type int", "k]"},
    {"f(x: T[n, c]) -> y: T[n, c] : x[:n * c]", "this size is no sum of a few dimensions", "* c"},
    {"f(x: T[n, c]) -> y: T[n, c] : shift(x, 1, m)", "this value has no such dimension", "m)"},
    {"f(x: T[n, c], b: T[c]) -> y: T[n, c] : x * shift(b, 1, n)", "this value has no such dimension", "n)"},
    {"f(x: T[n, c]) -> y: T[n, c] : shift(x, 1, -1, x)", "what comes in is the same along the axis", ")"},
    {"f(x: T[n, c]) -> y: T[n, c] : chunk(x, 2, n)", "expected '[' and which part", ""},
    {"f(x: T[n, c]) -> y: T[n, c] : chunk(x, 2, n)[2]", "expected a part from 0 to 1", "2]"},
    {"f(x: T[n, c]) -> y: T[n, c] : concat(x, x)", "the axis: concat(a, b, axis=-1)", ")"},
    {"f(x: T[n, c]!, s: T[n]) : x = shift(x, 1, n)", "it takes parts of values, so it cannot update x in place", NULL},
    {"f(x: T[n, c], s: i64[2]) -> y: T[n, c] : flip(x, n) * rand(s)", "so it cannot draw random numbers", NULL},
    {"f(a: T[n, d], b: T[m, d]) -> y: T[n, m] : sum(b, n)", "sum goes along n, a dimension", "n)"},
    {"f(nan: T[n]) -> z: T[n] : 1", "an input cannot be called 'nan'", NULL},
    {"f(x: T[~*s], b: T[~*s]) -> y: T[*s] : x / sum(b)", "sum of an input that broadcasts", NULL},
    {"f(x: T[~*s], b: T[~*s]) -> y: T[*s] : x + sum_to(x * b, b)", "sum_to of an input that broadcasts", NULL},
};

/* The column of the caret in the line below the excerpt, counted in the excerpt. */
static bool caret_at(const char *message, const char *text, const char *at) {
    const char *line = strchr(message, '\n'), *caret = line ? strchr(line + 1, '\n') : NULL;
    if (!caret || message[strlen(message) - 1] != '^') return false;
    size_t column = strlen(caret + 1) - 3, want = strlen(text);
    if (*at) {
        const char *found = NULL; /* the last place: rows are written so */
        for (const char *s = strstr(text, at); s; s = strstr(s + 1, at)) found = s;
        if (!found) return false;
        want = (size_t)(found - text);
    } else {
        return column >= 1 && column <= want; /* at the end, or at what ends there */
    }
    return column == want;
}

static void test_bad(void) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tni_fuse *f;
        tn_status status = tni_fuse_parse(bad[i].text, NULL, &f);
        CHECK_ROW(status == TN_BAD_CONTRACT && !f, "%s was taken", bad[i].text);
        if (status == TN_OK) {
            tni_fuse_free(f);
            continue;
        }
        CHECK_ROW(strstr(tn_last_error(), bad[i].message), "%s: %s", bad[i].text, tn_last_error());
        bool points = !bad[i].at || (bad[i].at[0] == 0 && bad[i].text[0] == 0) ||
                      caret_at(tn_last_error(), bad[i].text, bad[i].at);
        CHECK_ROW(points, "%s: %s", bad[i].text, tn_last_error());
    }
    tni_fuse *f;
    CHECK(tni_fuse_parse(NULL, NULL, &f) == TN_BAD_CONTRACT && strstr(tn_last_error(), "there is no text"));
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void test_limits(void) {
    static const struct {
        const char *head, *middle, *tail;
        int count;
        const char *message; /* NULL: it is taken */
    } limits[] = {
        {"", "(", "x", 1 << 20, "nested more than 100 deep"},
        {"x", ")", "", 1 << 20, "closes nothing"},
        {"", "-", "x", 1 << 20, "nested more than 100 deep"},
        {"", "- ", "x", 90, NULL},
        {"", "not ", "x", 1 << 18, "nested more than 100 deep"},
        {"", "x if x > 0 else ", "x", 1 << 16, "nested more than 100 deep"},
        {"", "exp(", "x", 1 << 18, "nested more than 100 deep"},
        {"2 ", "** 1 ", "", 90, NULL},
        {"x ", "** x ", "", 1 << 18, "nested more than 100 deep"},
        {"x", " + 1", "", 1 << 18, "too many operations"},
        {"x", " + 1", "", 3000, NULL},
        {"x", "x", "", 100, "the name is longer than 63 characters"},
        {"y = ", "9", "", 1 << 20, "the number is too large"},
        {"y = 0.", "3", "", 300, NULL},
        {"x", ";", "", 1 << 20, NULL},
        {"x", "\n", "", 1 << 20, NULL},
        {"x", " ", "", 1 << 20, NULL},
        {"x #", "#", "", 1 << 20, NULL},
        {"f(", "(", "", 1 << 20, "there is no function 'f'"},
        {"f(x: T[*s]) -> y: T[*s] : ", "(", "x", 1 << 20, "nested more than 100 deep"},
        {"f(x: T[", "[", "", 1 << 20, "expected"},
        {"max(", "x, ", "x)", 1 << 16, "too many arguments"},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        size_t step = strlen(limits[i].middle), size = strlen(limits[i].head) + step * (size_t)limits[i].count;
        char *text = malloc(size + strlen(limits[i].tail) + 1);
        strcpy(text, limits[i].head);
        size_t n = strlen(text);
        for (int k = 0; k < limits[i].count; k++, n += step) memcpy(text + n, limits[i].middle, step);
        strcpy(text + n, limits[i].tail);
        tni_fuse *f;
        tn_status status = tni_fuse_parse(text, NULL, &f);
        if (limits[i].message) {
            CHECK_ROW(status == TN_BAD_CONTRACT && strstr(tn_last_error(), limits[i].message), "%s…: %s",
                      limits[i].middle, status == TN_OK ? "taken" : tn_last_error());
        } else {
            CHECK_ROW(status == TN_OK, "%s…: %s", limits[i].middle, tn_last_error());
        }
        tni_fuse_free(f);
        free(text);
    }
    char text[TNI_MAX_ARGS * 16] = "0";
    for (int i = 0; i < TNI_MAX_ARGS + 1; i++) snprintf(text + strlen(text), 16, " + x%d", i);
    tni_fuse *f;
    CHECK(tni_fuse_parse(text, NULL, &f) == TN_BAD_CONTRACT && strstr(tn_last_error(), "more than 48 inputs"));
}

/* Every good formula, cut off at every place, and with one character replaced at every place. */
static void test_damaged(void) {
    static const char garbage[] = "(])[*~?!,:;='|<>-+9 aT\x80\n#.";
    unsigned pick = 1;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[1024];
        size_t length = strlen(good[i][0]);
        for (size_t cut = 0; cut <= 3 * length; cut++) {
            memcpy(text, good[i][0], length + 1);
            if (cut < length) {
                text[cut] = 0;
            } else if (cut < 3 * length) {
                pick = pick * 1664525u + 1013904223u;
                text[cut % length] = garbage[(pick >> 16) % (sizeof garbage - 1)];
            }
            tni_fuse *f, *g;
            char *rule;
            tn_status status = tni_fuse_parse(text, NULL, &f);
            CHECK_ROW(status == TN_OK || status == TN_BAD_CONTRACT, "%s: %s", text, tn_last_error());
            if (status != TN_OK) continue;
            check_prints_back(f, text);
            status = tni_fuse_grad(f, &g, &rule);
            CHECK_ROW(status == TN_OK || status == TN_BAD_CONTRACT || status == TN_UNSUPPORTED, "%s: %s", text,
                      tn_last_error());
            if (status == TN_OK) tn_free(rule);
            tni_fuse_free(g);
            tni_fuse_free(f);
        }
    }
}

/* The Nth allocation fails, for every N. */
static void test_no_memory(void) {
    static const char *const formulas[] = {
        "relu(x*s+b)",
        "f(x: T[*r, c], g: W[c]?, eps: float = 1e-5, m: 'a'|'b' = 'a') -> y: T[*r, c] : n = x * rsqrt(mean(x * x, "
        "-1) + eps) if m == 'a' else x; y = n * g if has(g) else n"};
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        bool done = false;
        for (int64_t n = 1; !done && n < 2000; n++) {
            tni_fuse *f, *g = NULL;
            char *rule = NULL, *printed = NULL;
            tni_fail_allocation(n);
            tn_status status = tni_fuse_parse(formulas[i], NULL, &f);
            if (status == TN_OK) status = tni_fuse_grad(f, &g, &rule);
            if (status == TN_OK) printed = tni_fuse_print(g);
            done = printed != NULL;
            tni_fail_allocation(0);
            CHECK_ROW(done || status == TN_NO_MEMORY || status == TN_OK, "allocation %lld: %s", (long long)n,
                      tn_last_error());
            tn_free(rule);
            tn_free(printed);
            tni_fuse_free(g);
            tni_fuse_free(f);
        }
        CHECK(done);
    }
}

static void test_graph(void) {
    static const char wanted[] = "0: T element an input x\n1: T row mean 0\n2: T element  -  0 1\n3: T scalar sum 2\n";
    tni_fuse *f;
    CHECK(tni_fuse_parse("sum(x - mean(x, -1))", NULL, &f) == TN_OK);
    char *graph = tni_fuse_print_graph(f);
    CHECK_ROW(graph && strcmp(graph, wanted) == 0, "%s", graph);
    tn_free(graph);
    tni_fuse_free(f);
}

int main(void) {
    test_graph();
    test_good();
    test_bad();
    test_limits();
    test_damaged();
    test_no_memory();
    printf("%d formulas, %d refused\n", (int)(sizeof good / sizeof good[0]), (int)(sizeof bad / sizeof bad[0]));
    return test_end();
}
