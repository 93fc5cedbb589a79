/* The primitives as functions of vectors: for the interpreter's loops (loops_cpu.c), and for the loops that are made of
 * formulas, whose compiler is given this file and src/cpu/vec/vec*.h (emit_c.c). */
#ifndef TNI_FUSE_FUNCTIONS_H
#define TNI_FUSE_FUNCTIONS_H

TNI_INLINE vreal f_neg(vreal x) {
    return -x;
}
TNI_INLINE vreal f_abs(vreal x) {
    return v_abs(x);
}
TNI_INLINE vreal f_sign(vreal x) {
    vreal none = v_select((vint)(x != x), x, v_set(0));
    return v_select((vint)(x > 0), v_set(1), v_select((vint)(x < 0), v_set(-1), none));
}
TNI_INLINE vreal f_sqrt(vreal x) {
    return v_sqrt(x);
}
TNI_INLINE vreal f_rsqrt(vreal x) {
    return 1 / v_sqrt(x);
}
TNI_INLINE vreal f_exp(vreal x) {
    return v_exp(x);
}
TNI_INLINE vreal f_log(vreal x) {
    return v_log(x);
}
TNI_INLINE vreal f_sin(vreal x) {
    return v_sin(x);
}
TNI_INLINE vreal f_cos(vreal x) {
    return v_cos(x);
}
TNI_INLINE vreal f_tanh(vreal x) {
    return v_tanh(x);
}
TNI_INLINE vreal f_erf(vreal x) {
    return v_erf(x);
}
TNI_INLINE vreal f_relu(vreal x) {
    return v_max(x, v_set(0));
}

/* 1 / (1 + exp(-x)), both sides of the fraction times c, a power of 2 so small that exp cannot overflow. From where the
 * result is 1 on, and below where it is 0, x makes no difference. */
TNI_INLINE vreal f_sigmoid(vreal x) {
    const real shift = sizeof(real) == 4 ? -30 : -100, c = sizeof(real) == 4 ? (real)0x1p-30 : (real)0x1p-100;
    x = v_atmost(v_atleast(x, v_set(sizeof(real) == 4 ? -104 : -746)), v_set(sizeof(real) == 4 ? 20 : 40));
    return c / (c + exp_shifted(-x, shift));
}

/* log(1 + x), with what 1 + x has rounded away put back. Below 1 ulp of 1 it is x itself. */
TNI_INLINE vreal f_log1p(vreal x) {
    vreal u = 1 + x, y = v_log(u) - ((u - 1) - x) / u;
    y = v_select((vint)(u == 1), x, y);
    vint plain = (vint)(u == 0) | (vint)(x == (real)INFINITY);
    return v_select(plain, v_log(u), y);
}

/* 2^n (exp(r) - 1) + 2^n - 1, in halves, so that 2^n does not overflow. Next to 0 it is x itself. */
TNI_INLINE vreal f_expm1(vreal x) {
    const real low = sizeof(real) == 4 ? -30 : -50, tiny = sizeof(real) == 4 ? (real)0x1p-26 : (real)0x1p-55;
    vreal a = v_atmost(v_atleast(x, v_set(low)), v_set(EXP_HIGH)), bias = v_set(MAGIC + (EXPONENT_BIAS - 1));
    vreal t = v_fma(a, v_set(LOG2_E), bias), half = power_of_2(t);
    vreal y = v_fma(exp_reduced(a, t - bias), half, half - (real)0.5) * 2;
    return v_select((vint)(v_abs(x) < tiny), x, y);
}

/* log(1 + x) for 0 <= x <= 1: 1 + x, or half of it, is never made, so nothing of x is lost. */
TNI_INLINE vreal log1p_unit(vreal x) {
    vint halved = (vint)(x > (real)0.41421356237309515);
    vreal f = v_select(halved, v_fma(x, v_set((real)0.5), v_set((real)-0.5)), x);
    return log_reduced(v_select(halved, v_set(1), v_set(0)), f);
}

TNI_INLINE vreal f_softplus(vreal x) {
    return v_max(x, v_set(0)) + log1p_unit(v_exp(-v_abs(x)));
}

/* 0.5 + 0.5 erf(x). */
#if defined(TNI_REAL_f32) && !defined(TNI_ISA_avx512) /* whose erf is quicker */
/* erf(a) = 1 - exp(-a P(a)), 0 <= a <= 4; beyond, exp is 0 */
static const real HALF_ERF_POLY[] = {0x1.20dd8ap+0f,   0x1.45f034p-1f,  0x1.a576fap-4f,   -0x1.3ecf0ep-6f,
                                     0x1.058dbep-12f,  0x1.66be1cp-10f, -0x1.10dedep-11f, 0x1.aa0292p-14f,
                                     -0x1.681214p-17f, 0x1.03f8eap-21f};

TNI_INLINE vreal f_half_erf(vreal x) {
    vreal a = v_atmost(v_abs(x), v_set(12)), p = a * v_poly(a, HALF_ERF_POLY, 10);
    vreal half = exp_shifted(-v_atmost(p, v_set((real)87.4)), -1);
    return v_select((vint)(x < 0), half, 1 - half);
}
#else
TNI_INLINE vreal f_half_erf(vreal x) {
    return v_fma(v_erf(x), v_set(0.5), v_set(0.5));
}
#endif

/* With e = exp(x): (e^2 + 2 e) / (e^2 + 2 e + 2). From 30 on it is 1. */
TNI_INLINE vreal f_tanh_softplus(vreal x) {
    vreal e = v_exp(v_atmost(x, v_set(30))), n = v_fma(e, e, e + e);
    return n / (n + 2);
}

/* 2^x: x = n + f, exp(f ln(2)) 2^n. The power of 2 is applied in two halves, as that of exp is. */
TNI_INLINE vreal f_exp2(vreal x) {
    const real low = sizeof(real) == 4 ? -151 : -1076, high = sizeof(real) == 4 ? 129 : 1025;
    x = v_atmost(v_atleast(x, v_set(low)), v_set(high));
    const vreal n = (x + MAGIC) - MAGIC, bias = v_set(MAGIC + EXPONENT_BIAS), half = v_fma(n, v_set((real)0.5), bias);
    const vreal p = exp_reduced((x - n) * (LN2_HI + LN2_LO), v_set(0)) + 1;
    return p * power_of_2(half) * power_of_2((n - (half - bias)) + bias);
}

/* log(x) / ln(2), log(x) / ln(10): of x = 2^k (1 + f) the whole k counts as it is. */
TNI_INLINE vreal f_log2(vreal x) {
    vreal k, f;
    v_log_parts(x, &k, &f);
    return v_log_of(x, v_fma(log_reduced(v_set(0), f), v_set(LOG2_E), k));
}

TNI_INLINE vreal f_log10(vreal x) {
    const real hi = sizeof(real) == 4 ? (real)0x1.344p-2 : (real)0x1.34413509fp-2;
    const real lo = sizeof(real) == 4 ? (real)0x1.3509f79fef312p-18 : (real)0x1.e7fbcc47c4acdp-40;
    vreal k, f;
    v_log_parts(x, &k, &f);
    const vreal part = v_fma(log_reduced(v_set(0), f), v_set((real)0x1.bcb7b1526e50ep-2), k * lo);
    return v_log_of(x, v_fma(k, v_set(hi), part));
}

/* log(exp(a) + exp(b)); two that are infinite alike stay so. */
TNI_INLINE vreal f_logaddexp(vreal a, vreal b) {
    const vreal y = v_max(a, b) + log1p_unit(v_exp(-v_abs(a - b)));
    return v_select((vint)(a == b), a + (LN2_HI + LN2_LO), y);
}

/* ---- for results that are rounded to bf16, which has 8 bits: 16 and more are right ------------------------------- */

#if defined(TNI_REAL_f32)
/* exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2 */
static const real COARSE_EXP_POLY[] = {0x1.0006b6p-1f, 0x1.571cc2p-3f, 0x1.52258cp-5f};

/* x = n ln(2) + r: returns exp(r) - 1. */
TNI_INLINE vreal coarse_reduced(vreal x, vreal n) {
    vreal r = v_fma(n, v_set(-0x1.62e43p-1f), x);
    return v_fma(v_poly(r, COARSE_EXP_POLY, 3), r * r, r);
}

/* a / b; b and 1 / b are normal numbers. */
TNI_INLINE vreal coarse_quotient(vreal a, vreal b) {
    vreal r = v_about(b);
    return a * (r * v_fma(-b, r, v_set(2)));
}

TNI_INLINE vreal f_coarse_exp(vreal x) {
    return exp_by(coarse_reduced, x);
}

/* Where the result is 1 it is so to the last bit: gradients multiply x by how far it is from 1. */
TNI_INLINE vreal f_coarse_sigmoid(vreal x) {
    const real c = 0x1p-30f;
    vreal a = v_atmost(v_atleast(x, v_set(-104)), v_set(20));
    vreal y = coarse_quotient(v_set(c), c + exp_shifted_by(coarse_reduced, -a, -30));
    return v_select((vint)(x > 16), v_set(1), y);
}

#if defined(TNI_ISA_avx512) /* whose erf is quicker */
TNI_INLINE vreal f_coarse_half_erf(vreal x) {
    return f_half_erf(x);
}
#else
/* erf(x) / 2 = x P(x^2) / Q(x^2), |x| <= 4.1, to 2e-7. From 3.85 on it is a little above 0.5, and cut off there: what
 * is 0 or 1 is so to the last bit. The coefficients are positive: nothing cancels before the end. */
static const real HALF_ERF_ABOVE[] = {0x1.20dd72p-1f, 0x1.8ebb32p-4f,  0x1.b4c7a8p-6f,
                                      0x1.02d386p-9f, 0x1.2f3212p-13f, 0x1.0f2b0ap-20f};
static const real HALF_ERF_BELOW[] = {
    1, 0x1.0301d8p-1f, 0x1.daa8dcp-4f, 0x1.f694a8p-7f, 0x1.3c7a86p-10f, 0x1.3ec96p-15f};

TNI_INLINE vreal f_coarse_half_erf(vreal x) {
    const vreal far = v_set((real)4.1), half = v_set((real)0.5);
    vreal a = v_atmost(v_atleast(x, -far), far), z = a * a;
    vreal y = a * v_poly(z, HALF_ERF_ABOVE, 6) / v_poly(z, HALF_ERF_BELOW, 6);
    return half + v_atmost(v_atleast(y, -half), half);
}
#endif

TNI_INLINE vreal f_coarse_tanh_softplus(vreal x) {
    vreal e = f_coarse_exp(v_atmost(x, v_set(30))), n = v_fma(e, e, e + e);
    return v_select((vint)(x > 10), v_set(1), coarse_quotient(n, n + 2));
}
#endif

/* ---- two --------------------------------------------------------------------------------------------------------- */

TNI_INLINE vreal f_add(vreal a, vreal b) {
    return a + b;
}
TNI_INLINE vreal f_sub(vreal a, vreal b) {
    return a - b;
}
TNI_INLINE vreal f_mul(vreal a, vreal b) {
    return a * b;
}
TNI_INLINE vreal f_div(vreal a, vreal b) {
    return a / b;
}
TNI_INLINE vreal f_min(vreal a, vreal b) {
    return v_min(a, b);
}
TNI_INLINE vreal f_max(vreal a, vreal b) {
    return v_max(a, b);
}

#include "trigonometry.h"

#endif
