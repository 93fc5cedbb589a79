/* What the loops that are made of formulas are written in (emit_c.c): given to the host's compiler together with
 * functions.h and src/cpu/vec/vec*.h. */
#ifndef TNI_FUSE_LOOP_H
#define TNI_FUSE_LOOP_H

#include "cpu/vec/vec.h"

#include "functions.h"

#define EACH for (int k = 0; k < u; k++) /* vector of the u that are under way together */

/* A result that is rounded as it is: what comes behind must not become one operation with it. */
TNI_INLINE vreal apart(vreal a) {
#if defined(__aarch64__)
    __asm__("" : "+w"(a));
#elif defined(__AVX512F__)
    __asm__("" : "+v"(a));
#elif defined(__x86_64__)
    __asm__("" : "+x"(a));
#else
    __asm__("" : "+m"(a));
#endif
    return a;
}

/* `left` elements from i on, at most VL. */
TNI_INLINE vreal load(const tn_type t, const void *p, int64_t i, int64_t left) {
    return left < VL ? v_load_n(t, p, i, left, 0) : v_load(t, p, i);
}

TNI_INLINE void store(const tn_type t, void *p, int64_t i, int64_t left, vreal a) {
    if (left < VL)
        v_store_n(t, p, i, left, a);
    else
        v_store(t, p, i, a);
}

#if defined(TNI_ISA_neon) && defined(TNI_REAL_f32)

/* Eight at once are less work than two times four: halves are told apart once, and rounded as 16-bit numbers. */
enum { PAIRS = 1 };

TNI_INLINE void load_two(const void *p, vreal *a) {
    uint16x8_t halves = vld1q_u16(p), zero = vdupq_n_u16(0);
    a[0] = (vreal)vzip1q_u16(zero, halves);
    a[1] = (vreal)vzip2q_u16(zero, halves);
}

#if defined(TNI_BF16) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) /* the compiler may be too old for it */

TNI_INLINE void store_two(void *p, const vreal *a) {
    bfloat16x8_t half = vcvtq_low_bf16_f32((float32x4_t)a[0]);
    vst1q_u16(p, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(half, (float32x4_t)a[1])));
}

#else

/* As v_store: up where what is cut off is more than half, or half and the rest odd. */
TNI_INLINE void store_two(void *p, const vreal *a) {
    uint16x8_t low = vuzp1q_u16((uint16x8_t)a[0], (uint16x8_t)a[1]);
    uint16x8_t high = vuzp2q_u16((uint16x8_t)a[0], (uint16x8_t)a[1]);
    uint16x8_t odd = vandq_u16(high, vdupq_n_u16(1));
    uint16x8_t up = vcgtq_u16(low, vsubq_u16(vdupq_n_u16(0x8000), odd)); /* -1 where it is */
    uint16x8_t number = vuzp1q_u16((uint16x8_t)(a[0] == a[0]), (uint16x8_t)(a[1] == a[1]));
    vst1q_u16(p, vbslq_u16(number, vsubq_u16(high, up), vorrq_u16(high, vdupq_n_u16(0x40))));
}

#endif

#elif defined(TNI_REAL_f32) && (defined(TNI_ISA_avx512) || defined(TNI_ISA_avx2))

enum { PAIRS = 1 };

TNI_INLINE void load_two(const void *p, vreal *a) {
    for (int k = 0; k < 2; k++) a[k] = v_load(TN_BF16, p, k * VL);
}

TNI_INLINE void store_two(void *p, const vreal *a) {
    v_store_two_bf16(p, a);
}

#else

enum { PAIRS = 0 };

TNI_INLINE void load_two(const void *p, vreal *a) {
    for (int k = 0; k < 2; k++) a[k] = v_load(TN_BF16, p, k * VL);
}

TNI_INLINE void store_two(void *p, const vreal *a) {
    for (int k = 0; k < 2; k++) v_store(TN_BF16, p, k * VL, a[k]);
}

#endif

/* u vectors behind each other. */
TNI_INLINE void load_all(const tn_type t, const void *p, int64_t i, int64_t left, const int u, vreal *a) {
    if (PAIRS && t == TN_BF16 && u > 1) {
        for (int k = 0; k < u; k += 2) load_two((const uint16_t *)p + i + k * VL, a + k);
    } else {
        EACH a[k] = load(t, p, i + k * VL, left);
    }
}

TNI_INLINE void store_all(const tn_type t, void *p, int64_t i, int64_t left, const int u, const vreal *a) {
    if (PAIRS && t == TN_BF16 && u > 1) {
        for (int k = 0; k < u; k += 2) store_two((uint16_t *)p + i + k * VL, a + k);
    } else {
        EACH store(t, p, i + k * VL, left, a[k]);
    }
}

/* Memory that the loop comes to in a while, as far ahead as its u vectors are now. The machine does so by itself, but
 * begins anew with every page, and takes loads for dependent on stores that have the same place in another page. */
#if defined(__x86_64__)
enum { AHEAD = 2048 };
#else
enum { AHEAD = 0 };
#endif

TNI_INLINE void fetch(const tn_type t, const void *p, int64_t i, const int u) {
    const int bytes = u * VL * (t == TN_F64 ? 8 : t == TN_F32 ? 4 : 2);
    if (AHEAD == 0 || u == 1) return;
    for (int k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)r_at(t, p, i) + AHEAD + k);
}

/* sums[i] … += a */
TNI_INLINE void add_to(void *sums, int64_t i, int64_t left, vreal a) {
    double *to = (double *)sums + i;
    if (left >= VL) {
        v_add_to(to, a);
    } else {
        for (int k = 0; k < left; k++) to[k] += (double)a[k];
    }
}

/* The same of values that are not in double yet. */
TNI_INLINE void add_up(void *pending, int64_t i, int64_t left, vreal a) {
    real *to = (real *)pending + i;
    if (left >= VL) {
        v_store(V_NATIVE, to, 0, v_load(V_NATIVE, to, 0) + a);
    } else {
        for (int k = 0; k < left; k++) to[k] += a[k];
    }
}

TNI_INLINE void most_up(void *pending, int64_t i, int64_t left, vreal a) {
    store(V_NATIVE, pending, i, left, v_max(load(V_NATIVE, pending, i, left), a));
}

TNI_INLINE void least_up(void *pending, int64_t i, int64_t left, vreal a) {
    store(V_NATIVE, pending, i, left, v_min(load(V_NATIVE, pending, i, left), a));
}

/* They go to the sums. */
TNI_INLINE void settle(void *sums, void *pending, int64_t n) {
    for (int64_t i = 0; i < n; i += VL) {
        int64_t left = n - i < VL ? n - i : VL;
        add_to(sums, i, left, load(V_NATIVE, pending, i, left));
        store(V_NATIVE, pending, i, left, v_set(0));
    }
}

/* ---- sums and extremes of rows, as in loops_cpu.c ---------------------------------------------------------------- */

#define EACH_OF_4 for (int k = 0; k < 4; k++)
enum { SUM_BLOCK = 32 * VL }; /* elements that are added in `real`; the sums of those are added in double */

/* Only `left` lanes are the row's. */
TNI_INLINE vreal own_lanes(int64_t left, vreal made, vreal before) {
    return left < VL ? v_select((vint)(v_lanes() < v_seti((int_of_real)left)), made, before) : made;
}

TNI_INLINE void add_in(vreal *sums, const int k, int64_t left, vreal made) {
    sums[k] = own_lanes(left, made, sums[k]);
}

TNI_INLINE void most_in(vreal *most, const int k, int64_t left, vreal a) {
    most[k] = own_lanes(left, v_max(most[k], a), most[k]);
}

TNI_INLINE real sum_of_4(const vreal *a) {
    return v_sum((a[0] + a[1]) + (a[2] + a[3]));
}

TNI_INLINE real most_of_4(const vreal *a) {
    return v_hmax(v_max(v_max(a[0], a[1]), v_max(a[2], a[3])));
}

/* What was there, and more; NaN stays. */
TNI_INLINE double join_sum(double a, double b) {
    return a + b;
}
TNI_INLINE double join_max(double a, double b) {
    return a == a && (b != b || b > a) ? b : a;
}
TNI_INLINE double join_min(double a, double b) {
    return a == a && (b != b || b < a) ? b : a;
}
TNI_INLINE void join(double (*both)(double, double), double *to, double more) {
    *to = both(*to, more);
}

/* ---- truth ------------------------------------------------------------------------------------------------------- */

TNI_INLINE vint mask(const void *p, int64_t i, int64_t left) {
    return left < VL ? v_mask_n(p, i, left) : v_mask(p, i);
}

TNI_INLINE vreal single(const void *p, int64_t i) {
    return v_set(((const real *)p)[i]);
}

TNI_INLINE vint single_mask(const void *p) {
    return v_seti(-(int_of_real)(*(const uint8_t *)p != 0));
}

/* Truth as a number. */
TNI_INLINE vreal number(vint m) {
    return v_select(m, v_set(1), v_set(0));
}

#endif
