/* tan, sinh, cosh and the inverses of all that are circular or hyperbolic, as functions of vectors; functions.h
 * includes this. Errors: below 4 ulp; the f64 of tan is the C library's. */
#ifndef TNI_FUSE_TRIGONOMETRY_H
#define TNI_FUSE_TRIGONOMETRY_H

#if defined(TNI_REAL_f32)
static const real PI_HI = 0x1.921fb6p+1f, PI_LO = -0x1.777a5cp-24f;
/* atan(r) = r + r^3 P(r^2), r <= tan(pi / 8) */
static const real ATAN_POLY[] = {-0x1.555554p-2f, 0x1.99973p-3f, -0x1.24202ep-3f, 0x1.b80f88p-4f, -0x1.08432cp-4f};
/* asin(r) = r + r^3 P(r^2), r <= 0.5 */
static const real ASIN_POLY[] = {0x1.555554p-3f, 0x1.33343p-4f,  0x1.6d5bbap-5f,
                                 0x1.fd8da2p-6f, 0x1.18f91ep-6f, 0x1.13fed4p-5f};
/* sinh(r) = r + r^3 P(r^2), r <= 1 */
static const real SINH_POLY[] = {0x1.555556p-3f, 0x1.11111ep-7f, 0x1.a009p-13f, 0x1.78a70ep-19f};
enum { ATAN_TERMS = 5, ASIN_TERMS = 6, SINH_TERMS = 4 };
static const real SQUARES = 0x1p40f; /* up to here: what is above 2^13 is its own sqrt(x^2 + 1) */
#else
static const real PI_HI = 0x1.921fb54442d18p+1, PI_LO = 0x1.1a62633145c07p-53;
static const real ATAN_POLY[] = {-0x1.5555555555555p-2, 0x1.999999999934ap-3,  -0x1.24924924360cbp-3,
                                 0x1.c71c7185314cbp-4,  -0x1.745d0b26b83e7p-4, 0x1.3b1262d95579ep-4,
                                 -0x1.10fa75382537fp-4, 0x1.dfe61e80903d2p-5,  -0x1.a098bb6ba4941p-5,
                                 0x1.41603647c7a7cp-5,  -0x1.3a2b7a07caea9p-6};
static const real ASIN_POLY[] = {
    0x1.5555555555556p-3, 0x1.3333333332ecap-4,  0x1.6db6db6e31f13p-5, 0x1.f1c71c1db0623p-6, 0x1.6e8bb1c8209a2p-6,
    0x1.1c4d35cf95421p-6, 0x1.c9cf07674736ap-7,  0x1.782651caa6547p-7, 0x1.52420b04b37bep-7, 0x1.65a9c4dfcf8b2p-8,
    0x1.1d189408314eep-6, -0x1.e6aaa8a0a04ccp-7, 0x1.d72b2bc8155f8p-6};
static const real SINH_POLY[] = {0x1.5555555555555p-3, 0x1.11111111110fdp-7,  0x1.a01a01a01ee7p-13,
                                 0x1.71de3a4e14f4p-19, 0x1.ae6460fae3728p-26, 0x1.611cb330c1fe8p-33,
                                 0x1.b41232cf9950fp-41};
enum { ATAN_TERMS = 11, ASIN_TERMS = 13, SINH_TERMS = 7 };
static const real SQUARES = 0x1p100;
#endif

/* ---- circles ----------------------------------------------------------------------------------------------------- */

#if defined(V_HAS_SIN)
TNI_INLINE vreal f_tan(vreal x) {
    return v_sin(x) / v_cos(x);
}
#else
TNI_INLINE vreal f_tan(vreal x) {
    for (int k = 0; k < VL; k++) x[k] = sizeof(real) == 4 ? (real)tanf((float)x[k]) : (real)tan((double)x[k]);
    return x;
}
#endif

/* Of a >= 0. From tan(3 pi / 8) on it is pi / 2 + atan(-1 / a), from tan(pi / 8) on pi / 4 + atan((a - 1) / (a + 1)).
 */
TNI_INLINE vreal atan_positive(vreal a) {
    const vint far = (vint)(a > (real)2.414213562373095), middle = ~far & (vint)(a > (real)0.4142135623730951);
    const vreal above = v_select(far, v_set(-1), v_select(middle, a - 1, a));
    const vreal r = above / v_select(far, a, v_select(middle, a + 1, v_set(1))), z = r * r;
    const vreal base = v_select(far, v_set(PI_HI / 2), v_select(middle, v_set(PI_HI / 4), v_set(0)));
    const vreal rest = v_select(far, v_set(PI_LO / 2), v_select(middle, v_set(PI_LO / 4), v_set(0)));
    return base + (v_fma(v_poly(z, ATAN_POLY, ATAN_TERMS), z * r, r) + rest);
}

TNI_INLINE vreal f_atan(vreal x) {
    return v_copysign(atan_positive(v_abs(x)), x);
}

/* The angle of the point (x, y), whose quotient is 0 for 0 / 0 and 1 for two that are infinite. */
TNI_INLINE vreal f_atan2(vreal y, vreal x) {
    const vreal a = v_abs(y), b = v_abs(x), alike = v_select((vint)(a == 0), v_set(0), v_set(1));
    const vreal angle = atan_positive(v_select((vint)(a == b), alike, a / b));
    const vint left = (vint)((vint)x < 0); /* also of -0 */
    return v_copysign(v_select(left, PI_HI - (angle - PI_LO), angle), y);
}

/* asin(a) for a <= 0.5, and above of sqrt((1 - a) / 2), which is half of the angle between a and 1. */
TNI_INLINE vreal asin_part(vreal a, vint far) {
    const vreal z = v_select(far, (1 - a) * (real)0.5, a * a), r = v_select(far, v_sqrt(z), a);
    return v_fma(v_poly(z, ASIN_POLY, ASIN_TERMS), z * r, r);
}

TNI_INLINE vreal f_asin(vreal x) {
    const vreal a = v_abs(x);
    const vint far = (vint)(a > (real)0.5);
    const vreal p = asin_part(a, far);
    return v_copysign(v_select(far, PI_HI / 2 - (2 * p - PI_LO / 2), p), x);
}

TNI_INLINE vreal f_acos(vreal x) {
    const vreal a = v_abs(x);
    const vint far = (vint)(a > (real)0.5), left = (vint)(x < 0);
    const vreal p = asin_part(a, far), near_0 = PI_HI / 2 - (v_copysign(p, x) - PI_LO / 2);
    return v_select(far, v_select(left, PI_HI - (2 * p - PI_LO), 2 * p), near_0);
}

/* ---- hyperbolas -------------------------------------------------------------------------------------------------- */

/* exp(a) / 4 for a >= 0: sinh and cosh are finite where exp is not any more. Twice the largest one is infinite. */
TNI_INLINE vreal quarter_exp(vreal a) {
    return exp_shifted(v_atmost(a, v_set((real)(sizeof(real) == 4 ? 89.5 : 710.6))), -2);
}

TNI_INLINE vreal f_sinh(vreal x) {
    const vreal a = v_abs(x), e = quarter_exp(a), z = a * a;
    const vreal small = v_fma(v_poly(z, SINH_POLY, SINH_TERMS), z * a, a);
    return v_copysign(v_select((vint)(a < 1), small, 2 * e - (real)0.125 / e), x);
}

TNI_INLINE vreal f_cosh(vreal x) {
    const vreal e = quarter_exp(v_abs(x));
    return 2 * e + (real)0.125 / e;
}

/* log(2 a) = log1p(a) + log(2) where a^2 would be too large. */
TNI_INLINE vreal f_asinh(vreal x) {
    const vreal a = v_abs(x), s = a * a;
    const vint far = (vint)(a > SQUARES);
    const vreal y = f_log1p(v_select(far, a, a + s / (1 + v_sqrt(s + 1))));
    return v_copysign(y + v_select(far, v_set(LN2_HI + LN2_LO), v_set(0)), x);
}

TNI_INLINE vreal f_acosh(vreal x) {
    const vreal t = x - 1;
    const vint far = (vint)(x > SQUARES);
    const vreal y = f_log1p(v_select(far, x, t + v_sqrt(t * (t + 2))));
    return v_select((vint)(x < 1), v_set((real)NAN), y + v_select(far, v_set(LN2_HI + LN2_LO), v_set(0)));
}

TNI_INLINE vreal f_atanh(vreal x) {
    const vreal a = v_abs(x);
    return v_copysign((real)0.5 * f_log1p(2 * a / (1 - a)), x);
}

#endif
