/* exp, log, tanh and erf of vectors; included by vec.h. Errors, over all inputs (denormals, infinities, NaN and -0 give
 * what the C library gives): f32 below 2 ulp, f64 below 3 ulp. No gather, no branch. Without fused multiply-add the
 * bounds hold as well: products that must be exact have few enough bits. Also sin and cos: of f32, where there is fused
 * multiply-add, with a branch for large x; else the C library's.
 *
 * The polynomials are minimax fits; what each one approximates is said where it is used. */
#ifndef TNI_VEC_MATH_H
#define TNI_VEC_MATH_H

#if defined(TNI_REAL_f32)

enum { MANTISSA = 23, EXPONENT_BIAS = 127 };
static const real MAGIC = 0x1.8p23f; /* x + MAGIC has the integer nearest to x in its low bits */
static const real LN2_HI = 0x1.62e4p-1f, LN2_LO = 0x1.7f7d1cp-20f, LOG2_E = 0x1.715476p+0f;
static const real EXP_LOW = -104, EXP_HIGH = 89; /* exp is 0, infinity there */
static const real SMALLEST_NORMAL = 0x1p-126f;
static const real TANH_ONE = 10, ERF_ONE = 4; /* they are 1 there */
/* exp(r) = 1 + r + r^2 P(r), |r| <= ln(2) / 2 */
static const real EXP_POLY[] = {0x1.fffffcp-2f, 0x1.555494p-3f, 0x1.5558bep-5f, 0x1.123856p-7f, 0x1.6a3d0ep-10f};
/* log(1 + f) = f - f^2 / 2 + f^3 P(f), sqrt(1/2) <= 1 + f < sqrt(2) */
static const real LOG_POLY[] = {0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f,
                                0x1.22da18p-3f, -0x1.0d853ap-3f, 0x1.055b86p-3f, -0x1.38b5eep-4f};
/* tanh(x) = x + x^3 P(x^2), x <= 0.9 */
static const real TANH_POLY[] = {-0x1.55554ep-2f, 0x1.110f34p-3f, -0x1.b9c9f2p-5f, 0x1.62ef7cp-6f,
                                 -0x1.0ed002p-7f, 0x1.5283eap-9f, -0x1.dd957ep-12f};
/* erf(x) = x + x P(x^2), x <= 1 */
static const real ERF_POLY[] = {0x1.06eba8p-3f, -0x1.81273ep-2f,  0x1.ce2cf8p-4f, -0x1.b7f90ep-6f,
                                0x1.5405b2p-8f, -0x1.a3f6fep-11f, 0x1.496a2ep-14f};
/* erf(x) = 1 - exp(-P(x)), 1 <= x <= ERF_ONE */
static const real ERFC_POLY[] = {0x1.72e9dcp-12f, 0x1.2085b2p+0f, 0x1.46c586p-1f,  0x1.a60a7p-4f,
                                 -0x1.6541fep-6f, 0x1.814c8ep-9f, -0x1.852ccap-13f};

#else

enum { MANTISSA = 52, EXPONENT_BIAS = 1023 };
static const real MAGIC = 0x1.8p52;
static const real LN2_HI = 0x1.62e42fefa38p-1, LN2_LO = 0x1.ef35793c7673p-45, LOG2_E = 0x1.71547652b82fep+0;
static const real EXP_LOW = -746, EXP_HIGH = 710;
static const real SMALLEST_NORMAL = 0x1p-1022;
static const real TANH_ONE = 20, ERF_ONE = 6;
static const real EXP_POLY[] = {
    0x1.000000000000bp-1, 0x1.5555555555561p-3,  0x1.555555555009fp-5,  0x1.111111110d665p-7,  0x1.6c16c18593112p-10,
    0x1.a01a01bad522p-13, 0x1.a01996c3eedf8p-16, 0x1.71dddfe689975p-19, 0x1.28b020ca74ee2p-22, 0x1.af8560b6080bdp-26};
/* log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + s^2 P(s^2))), s = f / (2 + f) */
static const real LOG_POLY[] = {0x1.5555555555592p-1, 0x1.999999997fdb7p-2, 0x1.24924941f125dp-2, 0x1.c71c52095d069p-3,
                                0x1.74663ee86ce41p-3, 0x1.39a1bab6c71e3p-3, 0x1.2f056395511b5p-3};
static const real TANH_POLY[] = {-0x1.5555555555519p-2,  0x1.111111110dbfap-3,   -0x1.ba1ba1b80d946p-5,
                                 0x1.664f48302a74bp-6,   -0x1.226e2da6fd686p-7,  0x1.d6d2e0d4ef4fp-9,
                                 -0x1.7d99619546fa3p-10, 0x1.350c420de5934p-11,  -0x1.f23b9ae3caa9p-13,
                                 0x1.896175df6aacfp-14,  -0x1.22b350aad233dp-15, 0x1.6de245ea6e3a1p-17,
                                 -0x1.4c83c4c4e3d5cp-19, 0x1.383751855a2d4p-22};
static const real ERF_POLY[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b2p-4,
                                -0x1.b82ce3128499dp-6,  0x1.565bcd0db02e8p-8,   -0x1.c02db3d8ed321p-11,
                                0x1.f9a321a11f74ap-14,  -0x1.f4d1df396bd52p-17, 0x1.b9def19f9c16ap-20,
                                -0x1.5f1d36d0795a6p-23, 0x1.f7a412c758503p-27,  -0x1.386ac29bc2765p-30,
                                0x1.0579afa306dbep-34};
static const real ERFC_POLY[] = {0x1.13879d25f87c7p-21,  0x1.20dd1e3136794p+0,   0x1.45f6359d1baf6p-1,
                                 0x1.a4ab28ed23b4cp-4,   -0x1.3719a622c25d7p-6,  -0x1.b19d4d2de9ac7p-12,
                                 0x1.f7099154ba3a5p-10,  -0x1.954aee9462105p-11, 0x1.1e5cf7033d226p-13,
                                 0x1.479a7806d86eap-16,  -0x1.7a109811ebbb3p-16, 0x1.1fdf575521623p-17,
                                 -0x1.1bdc0162b961ap-19, 0x1.8cd744a627b7p-22,   -0x1.8a967c6ea7ac5p-25,
                                 0x1.0b56733397c5dp-28,  -0x1.bc4f874e74227p-33, 0x1.5660dcc0b9bf3p-38};

#endif

enum { POLY_MOST = 18 };
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* c[0] + c[1] x + … + c[n - 1] x^(n - 1), by pairs, pairs of pairs … (Estrin): a short chain of dependent steps, so
 * that two multiply-add units stay busy. A term without a partner joins its neighbour: that saves a square. */
TNI_INLINE vreal v_poly(vreal x, const real *c, const int n) {
    vreal term[(POLY_MOST + 1) / 2];
    for (int k = 0; k < n / 2; k++) term[k] = v_fma(v_set(c[2 * k + 1]), x, v_set(c[2 * k]));
    if (n % 2) term[n / 2] = v_set(c[n - 1]);
    for (int m = (n + 1) / 2; m > 1; m /= 2) {
        x = x * x;
        if (m % 2) term[m - 2] = v_fma(term[m - 1], x, term[m - 2]);
        for (int k = 0; k < m / 2; k++) term[k] = v_fma(term[2 * k + 1], x, term[2 * k]);
    }
    return term[0];
}

/* The sign of `sign`; a >= 0 or NaN. */
TNI_INLINE vreal v_copysign(vreal a, vreal sign) {
    return (vreal)((vint)a | ((vint)sign & (vint)v_set(-(real)0)));
}

/* ---- exp --------------------------------------------------------------------------------------------------------- */

/* x = n ln(2) + r: returns exp(r) - 1. */
TNI_INLINE vreal exp_reduced(vreal x, vreal n) {
    vreal r = v_fma(n, v_set(-LN2_HI), x);
    r = v_fma(n, v_set(-LN2_LO), r);
    return v_fma(v_poly(r, EXP_POLY, COUNT(EXP_POLY)), r * r, r);
}

/* 2^n for a t = n + MAGIC + EXPONENT_BIAS */
TNI_INLINE vreal power_of_2(vreal t) {
    return (vreal)((vint)t << MANTISSA);
}

/* exp(x) 2^shift where that and exp(x) are normal numbers; NaN stays. */
TNI_INLINE vreal exp_shifted_by(vreal (*reduced)(vreal x, vreal n), vreal x, real shift) {
    vreal bias = v_set(MAGIC + (EXPONENT_BIAS + shift));
    vreal t = v_fma(x, v_set(LOG2_E), bias);
    vreal power = power_of_2(t);
    return v_fma(reduced(x, t - bias), power, power);
}

TNI_INLINE vreal exp_shifted(vreal x, real shift) {
    return exp_shifted_by(exp_reduced, x, shift);
}

/* The result may be denormal, so its power of 2 is applied in two halves: one rounding, at the end. */
TNI_INLINE vreal exp_by(vreal (*reduced)(vreal x, vreal n), vreal x) {
    x = v_atmost(v_atleast(x, v_set(EXP_LOW)), v_set(EXP_HIGH));
    vreal n = v_fma(x, v_set(LOG2_E), v_set(MAGIC)) - MAGIC;
    vreal p = reduced(x, n) + 1;
    vreal bias = v_set(MAGIC + EXPONENT_BIAS);
    vreal half = v_fma(n, v_set((real)0.5), bias);
    return p * power_of_2(half) * power_of_2((n - (half - bias)) + bias);
}

TNI_INLINE vreal v_exp(vreal x) {
    return exp_by(exp_reduced, x);
}

/* exp(x) V_EXP_SCALE for x <= 0, -inf included: exp at half the price. Because of the scale nothing that counts is
 * denormal: what exp would round to 0 is so small that the product with 1 / V_EXP_SCALE rounds to 0, and a sum of 2^60
 * such terms does not overflow. Softmax divides one by the other, and the scale is gone. */
#if defined(TNI_REAL_f32)
static const real V_EXP_SCALE = 0x1p64f, V_EXP_UNSCALE = 0x1p-64f, EXP_SHIFT = 64, EXP_SCALED_LOW = -131;
#else
static const real V_EXP_SCALE = 0x1p512, V_EXP_UNSCALE = 0x1p-512, EXP_SHIFT = 512, EXP_SCALED_LOW = -1060;
#endif

TNI_INLINE vreal v_exp_scaled(vreal x) {
    return exp_shifted(v_atleast(x, v_set(EXP_SCALED_LOW)), EXP_SHIFT);
}

/* ---- log --------------------------------------------------------------------------------------------------------- */

#if defined(TNI_REAL_f32)

/* k ln(2) + log(1 + f) */
TNI_INLINE vreal log_reduced(vreal k, vreal f) {
    vreal f2 = f * f;
    vreal tail = v_fma(v_poly(f, LOG_POLY, COUNT(LOG_POLY)), f * f2, k * LN2_LO);
    return v_fma(k, v_set(LN2_HI), f + v_fma(f2, v_set((real)-0.5), tail));
}

#else

TNI_INLINE vreal log_reduced(vreal k, vreal f) {
    vreal half = f * f * (real)0.5, s = f / (f + 2), z = s * s;
    vreal tail = v_fma(s, v_fma(v_poly(z, LOG_POLY, COUNT(LOG_POLY)), z, half), k * LN2_LO);
    return v_fma(k, v_set(LN2_HI), f - (half - tail));
}

#endif

/* x = 2^k (1 + f) for what is above 0 and finite. */
TNI_INLINE void v_log_parts(vreal x, vreal *k, vreal *f) {
    const vint sqrt_half = (vint)v_set((real)0x1.6a09e667f3bcdp-1);
    const vint magic = (vint)v_set(MAGIC);
    /* denormals: made normal */
    vint denormal = (vint)(x < SMALLEST_NORMAL);
    vreal normal = v_select(denormal, x * (real)((int64_t)1 << MANTISSA), x);
    vint power = ((vint)normal - sqrt_half) >> MANTISSA;
    *f = (vreal)((vint)normal - (power << MANTISSA)) - 1;
    power -= denormal & MANTISSA;
    *k = (vreal)(magic + power) - MAGIC;
}

/* The logarithm y of x, and what it is of infinity, NaN, 0 and below. */
TNI_INLINE vreal v_log_of(vreal x, vreal y) {
    y = v_select((vint)(x < (real)INFINITY), y, x);
    y = v_select((vint)(x == 0), v_set(-(real)INFINITY), y);
    return v_select((vint)(x < 0), v_set((real)NAN), y);
}

TNI_INLINE vreal v_log(vreal x) {
    vreal k, f;
    v_log_parts(x, &k, &f);
    return v_log_of(x, log_reduced(k, f));
}

/* ---- tanh, erf --------------------------------------------------------------------------------------------------- */

TNI_INLINE vreal v_tanh(vreal x) {
    vreal a = v_abs(x), z = a * a;
    vreal small = v_fma(v_poly(z, TANH_POLY, COUNT(TANH_POLY)), z * a, a);
    vreal e = exp_shifted(v_atmost(a, v_set(TANH_ONE)) * 2, 0);
    vreal large = 1 - 2 / (e + 1);
    return v_copysign(v_select((vint)(a < (real)0.9), small, large), x);
}

#if defined(TNI_ISA_avx512) && defined(TNI_REAL_f32)

/* A register holds a table of 16: a polynomial for each of 16 stretches, around k ERF_STEP, takes half the time of one
 * for all. erf(x) = slope x + c[0] + c[1] d + … + c[5] d^5, d = x - k ERF_STEP; the slope keeps small results
 * precise. */
static const real ERF_STEP = 0x1.04p-2f, ERF_PER_STEP = 0x1.f81f82p+1f, ERF_LAST = 0x1.f70a3ep+1f;
static const real ERF_SLOPE[16] = {1, 1, 1, 1, 1};
static const real ERF_TABLE[][16] = {
    {0, 0x1.b31b18p-6f, 0x1.3fe9dep-6f, -0x1.6108a6p-5f, -0x1.551262p-3f, 0x1.dad53ep-1f, 0x1.f00614p-1f,
     0x1.f9e15cp-1f, 0x1.fdea6ep-1f, 0x1.ff5eb6p-1f, 0x1.ffd4cap-1f, 0x1.fff5cp-1f, 0x1.fffddap-1f, 0x1.ffff9ap-1f,
     0x1.fffffp-1f, 0x1.fffffep-1f},
    {0x1.06eba8p-3f, 0x1.da8f4ep-5f, -0x1.065e36p-3f, -0x1.7932f4p-2f, -0x1.320de4p-1f, 0x1.cd22a8p-3f, 0x1.c5d048p-4f,
     0x1.8894ecp-5f, 0x1.2a875ap-6f, 0x1.8f182cp-8f, 0x1.d4fedcp-10f, 0x1.e477e2p-12f, 0x1.b7e972p-14f, 0x1.5f21aap-16f,
     0x1.ecba86p-19f, 0x1.2fe476p-21f},
    {0, -0x1.130e3ep-2f, -0x1.c5603p-2f, -0x1.ecad38p-2f, -0x1.a25404p-2f, -0x1.24b752p-2f, -0x1.59af12p-3f,
     -0x1.5ce18cp-4f, -0x1.2f316ap-5f, -0x1.c7fb6cp-7f, -0x1.29ad4ep-8f, -0x1.52383cp-10f, -0x1.4efe52p-12f,
     -0x1.219f48p-14f, -0x1.b5954cp-17f, -0x1.2113e2p-19f},
    {-0x1.81264p-2f, -0x1.3a8b06p-2f, -0x1.203c3cp-3f, 0x1.14ad5ap-5f, 0x1.23e24p-3f, 0x1.55c3b2p-3f, 0x1.137244p-3f,
     0x1.5bf512p-4f, 0x1.68d33p-5f, 0x1.3a15b6p-6f, 0x1.d0d4bep-8f, 0x1.26ba24p-9f, 0x1.41f43ap-11f, 0x1.301acap-13f,
     0x1.f22142p-16f, 0x1.627e2ap-18f},
    {0, 0x1.05386ep-3f, 0x1.74fc88p-3f, 0x1.2cda64p-3f, 0x1.05ed38p-4f, -0x1.4ba674p-7f, -0x1.76ae08p-5f,
     -0x1.804b2ap-5f, -0x1.096f0ep-5f, -0x1.1c0faep-6f, -0x1.ef129cp-8f, -0x1.67e2e8p-9f, -0x1.ba8e08p-11f,
     -0x1.d05bc2p-13f, -0x1.a23b54p-15f, -0x1.44b9ap-17f},
    {0x1.cb888ep-4f, 0x1.4228cp-4f, 0x1.51bb3ap-8f, -0x1.beeb76p-5f, -0x1.179e78p-4f, -0x1.6d3304p-5f, -0x1.94a8eep-7f,
     0x1.00bfa6p-7f, 0x1.aac88p-7f, 0x1.4847ecp-7f, 0x1.683bc8p-8f, 0x1.36b034p-9f, 0x1.b63beep-11f, 0x1.02065ep-12f,
     0x1.00d5d8p-14f, 0x1.b3c062p-17f},
};

/* What the table has for each lane's k, which is in the lowest bits. */
TNI_INLINE vreal look_up(const real *table, vreal k) {
    return (vreal)_mm512_permutexvar_ps((__m512i)k, _mm512_loadu_ps(table));
}

TNI_INLINE vreal v_erf(vreal x) {
    vreal a = v_atmost(v_abs(x), v_set(ERF_LAST)), k = v_fma(a, v_set(ERF_PER_STEP), v_set(MAGIC));
    vreal d = v_fma(k - MAGIC, v_set(-ERF_STEP), a), y = look_up(ERF_TABLE[5], k);
    for (int i = 4; i >= 0; i--) y = v_fma(y, d, look_up(ERF_TABLE[i], k));
    return v_copysign(v_fma(look_up(ERF_SLOPE, k), a, y), x);
}

#else

TNI_INLINE vreal v_erf(vreal x) {
    vreal a = v_atmost(v_abs(x), v_set(ERF_ONE));
    vreal small = v_fma(v_poly(a * a, ERF_POLY, COUNT(ERF_POLY)), a, a);
    vreal large = 1 - exp_shifted(-v_poly(a, ERFC_POLY, COUNT(ERFC_POLY)), 0);
    return v_copysign(v_select((vint)(a < 1), small, large), x);
}

#endif

/* ---- sin, cos ---------------------------------------------------------------------------------------------------- */

#if defined(TNI_REAL_f32) && (defined(TNI_ISA_neon) || defined(TNI_ISA_avx2) || defined(TNI_ISA_avx512))
#define V_HAS_SIN

/* sin(r) = r + r^3 P(r^2), cos(r) = 1 - r^2 / 2 + r^4 P(r^2), |r| <= pi / 4 */
static const real SIN_POLY[] = {-0x1.555546p-3f, 0x1.110756p-7f, -0x1.994b4p-13f};
static const real COS_POLY[] = {0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e86ap-16f};
/* pi / 2, in parts that are all positive: -0 stays -0 */
static const real QUARTER[] = {0x1.921fb4p+0f, 0x1.4442dp-24f, 0x1.846988p-48f}, QUARTERS_PER = 0x1.45f306p-1f;
static const real SIN_FAR = 0x1p20f;

/* a * b + c in one rounding, whatever the compiler makes of v_fma. */
TNI_INLINE vreal fused(vreal a, vreal b, vreal c) {
#if defined(TNI_ISA_neon)
    return (vreal)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(TNI_ISA_avx512)
    return (vreal)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    return (vreal)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
}

/* How many quarter turns x is from 0, and what is left of it, for |x| >= SIN_FAR: of 2 / pi those bits that count,
 * times the mantissa, in whole numbers. */
static __attribute__((noinline, unused)) real turn_far(real x, int32_t *quarters) {
    static const uint32_t two_over_pi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                           0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
    uint32_t bits, part[3];
    __builtin_memcpy(&bits, &x, sizeof bits);
    *quarters = 0;
    if ((bits >> 23 & 255) == 255) return x - x;    /* infinity, NaN */
    int first = (int)(bits >> 23 & 255) - 152 + 32; /* x / 4 = mantissa 2^(first - 32) */
    for (int i = 0; i < 3; i++) {
        const uint32_t *word = two_over_pi + first / 32 + i;
        part[i] = (uint32_t)((((uint64_t)word[0] << 32 | word[1]) << first % 32) >> 32);
    }
    uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
    uint64_t turns = (mantissa * part[0] << 32) + mantissa * part[1] + (mantissa * part[2] >> 32); /* 2^-64 */
    int64_t rest = (int64_t)(turns << 2);
    int32_t whole = (int32_t)(turns >> 62) + (rest < 0);
    real r = (real)((double)rest * (0x1.921fb54442d18p+0 * 0x1p-64));
    *quarters = bits >> 31 ? -whole : whole;
    return bits >> 31 ? -r : r;
}

/* sin(x + ahead pi / 2) */
TNI_INLINE vreal sin_ahead(vreal x, const int ahead) {
    vreal t = v_fma(x, v_set(QUARTERS_PER), v_set(MAGIC)), n = t - MAGIC, r = x;
    vint quarters = (vint)t, far = ~(vint)(v_abs(x) < SIN_FAR);
    for (int k = 0; k < COUNT(QUARTER); k++) r = fused(n, v_set(-QUARTER[k]), r);
    if (__builtin_expect(v_any(far), 0)) {
        for (int k = 0; k < VL; k++) {
            int32_t own;
            if (!far[k]) continue;
            r[k] = turn_far(x[k], &own);
            quarters[k] = own;
        }
    }
    vreal z = r * r;
    vreal sine = v_fma(v_poly(z, SIN_POLY, COUNT(SIN_POLY)), z * r, r);
    sine = (vreal)((vint)sine | ((vint)r & (vint)v_set(-(real)0))); /* of -0 */
    vreal cosine = v_fma(v_poly(z, COS_POLY, COUNT(COS_POLY)), z * z, v_fma(z, v_set((real)-0.5), v_set(1)));
    quarters += ahead;
    vreal y = v_select(-(quarters & 1), cosine, sine);
    return (vreal)((vint)y ^ (quarters & 2) << 30);
}

TNI_INLINE vreal v_sin(vreal x) {
    return sin_ahead(x, 0);
}

TNI_INLINE vreal v_cos(vreal x) {
    return sin_ahead(x, 1);
}

#else

TNI_INLINE vreal v_sin(vreal x) {
    for (int k = 0; k < VL; k++) x[k] = sizeof(real) == 4 ? (real)sinf((float)x[k]) : (real)sin((double)x[k]);
    return x;
}

TNI_INLINE vreal v_cos(vreal x) {
    for (int k = 0; k < VL; k++) x[k] = sizeof(real) == 4 ? (real)cosf((float)x[k]) : (real)cos((double)x[k]);
    return x;
}

#endif

#undef COUNT
#endif
