/* Functions of one number, the same name for each type. What begins with tn_ are the primitives of formulas; CUDA's own
 * functions have the names without it. The polynomials are minimax fits of what stands above them. */
#pragma once

#include "types.cuh"

namespace tn {

/* ---- whole numbers ----------------------------------------------------------------------------------------------- */

template <class I> TN_DEVICE I ceil_div(I a, I b) { return (a + b - 1) / b; }
template <class I> TN_DEVICE I round_up(I a, I to) { return ceil_div(a, to) * to; }
TN_DEVICE i64 tn_abs(i64 a) { return a < 0 ? (i64)(0 - (u64)a) : a; }
TN_DEVICE i64 tn_sign(i64 a) { return (a > 0) - (a < 0); }
TN_DEVICE i64 tn_floor(i64 a) { return a; }
TN_DEVICE i64 tn_ceil(i64 a) { return a; }
TN_DEVICE i64 tn_trunc(i64 a) { return a; }
TN_DEVICE i64 tn_round(i64 a) { return a; }
TN_DEVICE i64 tn_relu(i64 a) { return a > 0 ? a : 0; }
TN_DEVICE i64 tn_mod(i64 a, i64 b) {
    if (b == 0 || b == -1) return 0;
    i64 r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TN_DEVICE i64 tn_pow(i64 a, i64 b) {
    u64 y = 1, s = (u64)a;
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b /= 2, s *= s)
        if (b % 2) y *= s;
    return (i64)y;
}
TN_DEVICE i64 tn_shift_left(i64 a, i64 b) { return (u64)b < 64 ? (i64)((u64)a << b) : 0; }
TN_DEVICE i64 tn_shift_right(i64 a, i64 b) { return a >> ((u64)b < 64 ? b : 63); }
TN_DEVICE i64 tn_min(i64 a, i64 b) { return a < b ? a : b; }
TN_DEVICE i64 tn_max(i64 a, i64 b) { return a > b ? a : b; }

/* ---- to whole numbers -------------------------------------------------------------------------------------------- */

TN_DEVICE i64 tn_whole(f64 a) {
    return a != a ? 0 : a >= 0x1p63 ? 0x7fffffffffffffffLL : a < -0x1p63 ? -0x7fffffffffffffffLL - 1 : (i64)a;
}
TN_CALLED i64 tn_whole_far(f32 a) { return tn_whole((f64)a); }
TN_DEVICE i64 tn_whole(f32 a) { return fabsf(a) < 0x1p31f ? (i64)(int)a : tn_whole_far(a); }

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

TN_DEVICE f32 tn_min(f32 a, f32 b) { return min_nan(a, b); }
TN_DEVICE f32 tn_max(f32 a, f32 b) { return max_nan(a, b); }
TN_DEVICE f64 tn_min(f64 a, f64 b) { return a < b || a != a ? a : b; }
TN_DEVICE f64 tn_max(f64 a, f64 b) { return a > b || a != a ? a : b; }
TN_DEVICE f64 tn_relu(f64 a) { return a > 0 || a != a ? a : 0; }
TN_DEVICE f32 tn_relu(f32 a) { return tn_max(a, 0.0f); }
TN_DEVICE f64 tn_mod(f64 a, f64 b) {
    f64 r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TN_DEVICE f32 tn_mod(f32 a, f32 b) {
    f32 r = fmodf(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
TN_DEVICE f32 tn_sign(f32 a) { return a != a ? a : (f32)((a > 0) - (a < 0)); }
TN_DEVICE f64 tn_sign(f64 a) { return a != a ? a : (f64)((a > 0) - (a < 0)); }
TN_DEVICE f32 tn_fma(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
TN_DEVICE f64 tn_fma(f64 a, f64 b, f64 c) { return fma(a, b, c); }
#define TN_BOTH(name, call)                               \
    TN_DEVICE f32 tn_##name(f32 a) { return call##f(a); } \
    TN_DEVICE f64 tn_##name(f64 a) { return call(a); }
TN_BOTH(abs, fabs)
TN_BOTH(floor, floor)
TN_BOTH(ceil, ceil)
TN_BOTH(trunc, trunc)
TN_BOTH(round, rint)
TN_BOTH(sqrt, sqrt)
TN_BOTH(rsqrt, rsqrt)
TN_BOTH(log, log)
TN_BOTH(log1p, log1p)
TN_BOTH(expm1, expm1)
TN_BOTH(sin, sin)
TN_BOTH(cos, cos)
TN_BOTH(erf, erf)
TN_BOTH(erfc, erfc)
TN_BOTH(erfinv, erfinv)
TN_BOTH(lgamma, lgamma)
TN_BOTH(exp2, exp2)
TN_BOTH(log2, log2)
TN_BOTH(log10, log10)
TN_BOTH(tan, tan)
TN_BOTH(asin, asin)
TN_BOTH(acos, acos)
TN_BOTH(atan, atan)
TN_BOTH(sinh, sinh)
TN_BOTH(cosh, cosh)
TN_BOTH(asinh, asinh)
TN_BOTH(acosh, acosh)
TN_BOTH(atanh, atanh)
#undef TN_BOTH
TN_DEVICE f32 tn_atan2(f32 a, f32 b) { return atan2f(a, b); }
TN_DEVICE f64 tn_atan2(f64 a, f64 b) { return atan2(a, b); }
TN_DEVICE f32 tn_pow(f32 a, f32 b) { return powf(a, b); }
TN_DEVICE f64 tn_pow(f64 a, f64 b) { return pow(a, b); }
/* Never a part of a tn_fma: the same product is the same number wherever it is subtracted. */
TN_DEVICE f32 rounded_product(f32 a, f32 b) { return __fmul_rn(a, b); }
TN_DEVICE f64 rounded_product(f64 a, f64 b) { return __dmul_rn(a, b); }

/* ---- exponentials and what is made of them ----------------------------------------------------------------------- */

/* 2^a: 2 units in the last place; what is below the smallest normal number is 0. */
TN_DEVICE f32 power_of_2(f32 a) { return ex2_approx(a); }
TN_DEVICE f64 power_of_2(f64 a) { return exp2(a); }
TN_DEVICE f64 tn_exp(f64 a) { return exp(a); }
TN_DEVICE f64 tn_tanh(f64 a) { return tanh(a); }
TN_DEVICE f64 tn_sigmoid(f64 a) {
    f64 e = exp(-fabs(a)), s = 1 / (1 + e);
    return a < 0 ? e * s : s;
}
TN_DEVICE f64 tn_softplus(f64 a) { return tn_max(a, 0.0) + log1p(exp(-fabs(a))); }
TN_DEVICE f64 tn_half_erf(f64 a) { return 0.5 + 0.5 * erf(a); }
TN_DEVICE f64 tn_one_tanh(f64 a) { return 1 + tanh(a); }
TN_DEVICE f64 tn_tanh_softplus(f64 a) { return tanh(tn_softplus(a)); }
/* 2^(a log2 e): what the product has lost is put back behind; an infinite a has lost nothing. */
TN_DEVICE f32 tn_exp(f32 a) {
    f32 t = a * 0x1.715476p+0f, e = fmaf(a, 0x1.715476p+0f, -t);
    e = fmaf(a, 0x1.4ae0cp-26f, e);
    e = fabsf(t) < 256.0f ? e : 0.0f;
    return ex2_approx(t) * fmaf(e, 0x1.62e43p-1f, 1.0f);
}
/* a polynomial below 0.6, where 1 - 2 / (exp(2 a) + 1) would cancel */
TN_DEVICE f32 tn_tanh(f32 a) {
    f32 m = fabsf(a), s = a * a, y = fmaf(-2.0f, rcp_approx(ex2_approx(m * 0x1.715476p+1f) + 1.0f), 1.0f);
    f32 q = fmaf(s, fmaf(s, fmaf(s, fmaf(s, -0x1.830b8p-8f, 0x1.54dffep-6f), -0x1.b89ed6p-5f), 0x1.1109dcp-3f),
                 -0x1.55553ep-2f);
    return m < 0.6f ? fmaf(a * s, q, a) : copysignf(y, a);
}
/* 1 / a, for a from 1 on */
TN_DEVICE f32 tn_inverse(f32 a) {
    f32 r = rcp_approx(a);
    return fmaf(r, fmaf(-a, r, 1.0f), r);
}
/* 1 + exp(-a), and finite, with what that sum has lost */
TN_DEVICE f32 tn_one_exp(f32 a, f32 &lost) {
    f32 e = tn_exp(tn_min(-a, 88.0f)), d = 1.0f + e;
    lost = e - (d - 1.0f);
    return d;
}
TN_DEVICE f32 tn_sigmoid(f32 a) {
    f32 lost, d = tn_one_exp(a, lost), r = rcp_approx(d);
    return fmaf(r, fmaf(-lost, r, fmaf(-d, r, 1.0f)), r);
}
TN_DEVICE f32 tn_times_sigmoid(f32 a, f32 b) {
    f32 lost, d = tn_one_exp(b, lost), r = rcp_approx(d), q = a * r;
    return fabsf(q) < infinity<f32>() ? fmaf(fmaf(-q, lost, fmaf(-q, d, a)), r, q) : q;
}
TN_DEVICE f64 tn_times_sigmoid(f64 a, f64 b) { return a * tn_sigmoid(b); }
/* log(a), right to 2^-22 beside 1: for an a that is 1 or apart from it */
TN_DEVICE f32 tn_log_apart(f32 a) { return lg2_approx(a) * 0x1.62e43p-1f; }
/* log(1 + e) = e P(e) for e in 0 … 1 */
TN_DEVICE f32 tn_softplus(f32 a) {
    f32 e = tn_exp(-fabsf(a)), q = fmaf(e, 0x1.60d4cap-8f, -0x1.ed51cep-6f);
    q = fmaf(e, fmaf(e, fmaf(e, q, 0x1.447094p-4f), -0x1.198718p-3f), 0x1.88172ep-3f);
    q = fmaf(e, fmaf(e, fmaf(e, fmaf(e, q, -0x1.fcfcecp-3f), 0x1.553346p-2f), -0x1.fffed4p-2f), 1.0f);
    return fmaf(e, q, tn_max(a, 0.0f));
}
/* two that are infinite alike stay so */
TN_DEVICE f64 tn_logaddexp(f64 a, f64 b) {
    return a == b ? a + 0x1.62e42fefa39efp-1 : tn_max(a, b) + log1p(exp(-fabs(a - b)));
}
TN_DEVICE f32 tn_logaddexp(f32 a, f32 b) {
    return a == b ? a + 0x1.62e43p-1f : tn_max(a, b) + tn_softplus(-fabsf(a - b));
}
/* 0.5 + 0.5 erf(a), from erfc(m) = 2^(-m P(m)), and around 0 by a polynomial in a^2 */
TN_DEVICE f32 tn_half_erf(f32 a) {
    f32 m = fabsf(a), s = fminf(m, 4.2f), q = fmaf(s, -0x1.06e09cp-18f, 0x1.194bdep-14f);
    q = fmaf(s, fmaf(s, fmaf(s, q, -0x1.ddfc98p-12f), 0x1.5c5f1ap-10f), 0x1.3d594p-10f);
    q = fmaf(s, fmaf(s, fmaf(s, fmaf(s, q, -0x1.d6ca56p-6f), 0x1.309ad6p-3f), 0x1.d63322p-1f), 0x1.a0bee4p+0f);
    f32 y = 0.5f * ex2_approx(-m * q), z = a * a, p = fmaf(z, 0x1.137764p-9f, -0x1.b0549p-7f);
    p = fmaf(z, fmaf(z, fmaf(z, p, 0x1.cdc60ap-5f), -0x1.812504p-3f), 0x1.20dd72p-1f);
    return m < 0.7f ? fmaf(a, p, 0.5f) : a < 0 ? y : 1.0f - y;
}
TN_DEVICE f32 tn_one_tanh(f32 a) { return 2.0f * rcp_approx(1.0f + tn_exp(-2.0f * a)); }
/* with e = exp(a): (e^2 + 2 e) / (e^2 + 2 e + 2) */
TN_DEVICE f32 tn_tanh_softplus(f32 a) {
    f32 e = tn_exp(tn_min(a, 30.0f)), n = fmaf(e, e, e + e), r = tn_inverse(n + 2.0f);
    return n > 2.0f ? fmaf(-2.0f, r, 1.0f) : n * r;
}

/* ---- the same to 2^-18, for results that are rounded to bf16 ----------------------------------------------------- */

TN_DEVICE f64 tn_half_erf_coarse(f64 a) { return tn_half_erf(a); }
TN_DEVICE f32 tn_half_erf_coarse(f32 a) {
    f32 m = fabsf(a), s = fminf(m, 4.2f), q = fmaf(s, 0x1.5412c4p-16f, -0x1.fd197ap-12f);
    q = fmaf(s, fmaf(s, fmaf(s, q, 0x1.562940p-8f), -0x1.15be96p-5f), 0x1.3829b0p-3f);
    q = fmaf(s, fmaf(s, q, 0x1.d58c24p-1f), 0x1.a0c8b8p+0f);
    f32 y = ex2_approx(fmaf(-m, q, -1.0f));
    return a < 0 ? y : 1.0f - y;
}
TN_DEVICE f64 tn_tanh_coarse(f64 a) { return tanh(a); }
TN_DEVICE f32 tn_tanh_coarse(f32 a) {
    f32 s = a * a, y = fmaf(-2.0f, rcp_approx(ex2_approx(a * 0x1.715476p+1f) + 1.0f), 1.0f);
    return s < 0.0625f ? fmaf(a * s, fmaf(s, 0x1.07b938p-3f, -0x1.553e76p-2f), a) : y;
}
TN_DEVICE f64 tn_exp_coarse(f64 a) { return exp(a); }
TN_DEVICE f32 tn_exp_coarse(f32 a) { return ex2_approx(a * 0x1.715476p+0f); }
TN_DEVICE f64 tn_sigmoid_coarse(f64 a) { return tn_sigmoid(a); }
TN_DEVICE f32 tn_sigmoid_coarse(f32 a) { return rcp_approx(1.0f + tn_exp_coarse(-a)); }
template <class T> TN_DEVICE T tn_times_sigmoid_coarse(T a, T b) { return a * tn_sigmoid_coarse(b); }
TN_DEVICE f64 tn_one_tanh_coarse(f64 a) { return 1 + tanh(a); }
TN_DEVICE f32 tn_one_tanh_coarse(f32 a) { return 2.0f * rcp_approx(1.0f + tn_exp_coarse(-2.0f * a)); }
TN_DEVICE f64 tn_tanh_softplus_coarse(f64 a) { return tn_tanh_softplus(a); }
TN_DEVICE f32 tn_tanh_softplus_coarse(f32 a) {
    f32 e = tn_exp_coarse(tn_min(a, 30.0f)), n = fmaf(e, e, e + e);
    return n * rcp_approx(n + 2.0f);
}
TN_DEVICE f64 tn_sqrt_coarse(f64 a) { return sqrt(a); }
TN_DEVICE f32 tn_sqrt_coarse(f32 a) { return sqrt_approx(a); }

/* ---- derivatives of lgamma, as src/fuse/graph/special_functions.c has them --------------------------------------- */

TN_DEVICE f64 not_a_number() { return __longlong_as_double(0x7ff8000000000000ll); }
TN_CALLED f64 tn_digamma(f64 x) {
    const f64 series[] = {0x1.5555555555555p-4, -0x1.1111111111111p-7, 0x1.041041041041p-8, -0x1.1111111111111p-8,
                          0x1.f07c1f07c1f08p-8, -0x1.5995995995996p-6, 0x1.5555555555555p-4};
    f64 sum = 0, tail = 0;
    if (x == 0) return -1 / x;
    if (x < 0 && x == floor(x)) return not_a_number();
    if (x < 0) {
        const f64 rest = x - rint(x);
        sum = fabs(rest) == 0.5 ? 0 : -0x1.921fb54442d18p+1 / tan(0x1.921fb54442d18p+1 * rest);
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    const f64 z = 1 / (x * x);
    for (int k = 6; k >= 0; k--) tail = (tail + series[k]) * z;
    return x < 1e17 ? sum + (log(x) - 0.5 / x - tail) : sum + log(x);
}
TN_DEVICE f32 tn_digamma(f32 x) { return (f32)tn_digamma((f64)x); }
/* 1 / x^s + 1 / (x + 1)^s + … for x > 0 */
TN_CALLED f64 tn_zeta(f64 s, f64 x) {
    const f64 series[] = {0x1.5555555555555p-4,  -0x1.6c16c16c16c17p-10, 0x1.1566abc011567p-15, -0x1.bbd779334ef0bp-21,
                          0x1.66a8f2bf70ebep-26, -0x1.22805d644267fp-31, 0x1.d6db2c4e09162p-37, -0x1.7da4e1f79955cp-42,
                          0x1.355871d652e9ep-47, -0x1.f57d968caacf1p-53, 0x1.967e1f09c376fp-58, -0x1.497d9033a2b5cp-63};
    f64 sum = 0, tail = 0;
    for (; x < 10 + s / 2; x += 1) {
        const f64 term = pow(x, -s);
        sum += term;
        if (term < 0x1p-60 * sum) return sum;
    }
    f64 factor = s / x;
    for (int k = 0; k < 12; k++) {
        tail += series[k] * factor;
        factor *= (s + 2 * k + 1) / x * ((s + 2 * k + 2) / x);
    }
    return sum + pow(x, -s) * (x / (s - 1) + 0.5 + tail);
}
TN_CALLED f64 tn_polygamma(f64 n, f64 x) {
    if (n == 0) return tn_digamma(x);
    if (!(n > 0) || n != floor(n) || n > 170 || x != x || x == -infinity<f64>()) return not_a_number();
    const bool odd = fmod(n, 2.0) == 1;
    if (x == infinity<f64>()) return odd ? 0 : -0.0;
    if (x <= 0 && x == floor(x)) return odd ? infinity<f64>() : not_a_number();
    f64 sum;
    if (x > 0) {
        sum = tn_zeta(n + 1, x);
    } else {
        const f64 rest = x - floor(x), below = tn_zeta(n + 1, 1 - rest) - tn_zeta(n + 1, 1 - x);
        sum = tn_zeta(n + 1, rest) + (odd ? below : -below);
    }
    const f64 value = tgamma(n + 1) * sum;
    return odd ? value : -value;
}
TN_DEVICE f32 tn_polygamma(f32 n, f32 x) { return (f32)tn_polygamma((f64)n, (f64)x); }

/* ---- quotients --------------------------------------------------------------------------------------------------- */

/* a / b to 2^-22; 1 / b would be beyond what f32 has for the largest and the smallest */
TN_DEVICE f32 tn_quick(f32 a, f32 b) {
    f32 m = fabsf(b), by = m > 0x1p125f ? 0x1p-4f : m < 0x1p-125f ? 0x1p24f : 1.0f;
    return a * by * rcp_approx(b * by);
}
/* a / b, as rounded as that. For one b and many a: 1 / b is computed once. Twice what is left over is divided too,
 * which is exact as long as nothing becomes too small. */
TN_DEVICE f32 tn_over(f32 a, f32 b) {
    f32 r = 1 / b, q = a * r;
    bool usual = fabsf(r) > 0x1p-40f && fabsf(r) < 0x1p40f;
    if (!(usual && fabsf(q) > 0x1p-60f && fabsf(q) < 0x1p60f)) return a / b;
    q = fmaf(fmaf(-q, b, a), r, q);
    return fmaf(fmaf(-q, b, a), r, q);
}

} // namespace tn
