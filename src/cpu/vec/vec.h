/* The vector layer of the CPU kernels. A source that includes it is compiled once per instruction set and precision
 * (variants.h): `real` is float or double, `vreal` as many of them as a register holds. Arithmetic and comparisons are
 * the compiler's vector operators: `a * b + c`, `a < b`, `a & mask`.
 *
 * A kernel is written once for all memory types: an inline function takes the type, loads widen, stores round, and
 * after inlining the type is a constant that costs nothing:
 *
 *     TNI_INLINE void scale_row(const tn_type t, const void *x, void *y, int64_t n, real s) {
 *         int64_t i = 0;
 *         for (; i + VL <= n; i += VL) v_store(t, y, i, v_load(t, x, i) * s);
 *         if (i < n) v_store_n(t, y, i, n - i, v_load_n(t, x, i, n - i, 0) * s);
 *     }
 *     static void scale_rows(tn_type t, …) {
 *         V_BY_TYPE(t, scale_row, x, y, n, s);
 *     }
 *
 * Every load and store takes all four floating types in both builds (a weight in f32 beside x in f64); those named
 * above are the fast ones. Nothing here needs alignment. */
#ifndef TNI_VEC_H
#define TNI_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <tenon/op.h>

#include "variants.h"

#ifndef TNI_INLINE /* else by the build: to inline everything takes the compiler minutes */
#define TNI_INLINE static inline __attribute__((always_inline))
#endif

#if defined(TNI_ISA_avx512)
enum { V_BYTES = 64 };
#elif defined(TNI_ISA_avx2)
enum { V_BYTES = 32 };
#else
enum { V_BYTES = 16 };
#endif

/* V_MASKS: some lanes of a vector are loaded and stored as fast as all of them. */
#if defined(TNI_ISA_avx512)
enum { V_MASKS = 1 };
#else
enum { V_MASKS = 0 };
#endif

/* V_NATIVE: the type of `real` in memory. V_HALVES: this build serves the 16-bit types as well. */
#if defined(TNI_REAL_f32)
typedef float real;
typedef int32_t int_of_real;
#define V_NATIVE TN_F32
enum { V_HALVES = 1 };
#else
typedef double real;
typedef int64_t int_of_real;
#define V_NATIVE TN_F64
enum { V_HALVES = 0 };
#endif

/* f(TN_F16, …), f(TN_BF16, …) or f(V_NATIVE, …), whichever t is. */
#define V_BY_TYPE(t, f, ...)                 \
    do {                                     \
        if (V_HALVES && (t) == TN_F16)       \
            f(TN_F16, __VA_ARGS__);          \
        else if (V_HALVES && (t) == TN_BF16) \
            f(TN_BF16, __VA_ARGS__);         \
        else                                 \
            f(V_NATIVE, __VA_ARGS__);        \
    } while (0)

enum { VL = V_BYTES / sizeof(real) };

typedef real vreal __attribute__((vector_size(V_BYTES)));
typedef double vdouble __attribute__((vector_size(V_BYTES)));
typedef int_of_real vint __attribute__((vector_size(V_BYTES))); /* a comparison gives -1 (true) or 0 in each lane */

TNI_INLINE vreal v_set(real a) {
    return a - (vreal){0};
}

TNI_INLINE vint v_seti(int_of_real a) {
    return a - (vint){0};
}

/* 0, 1, 2 … VL - 1: which lane it is. */
TNI_INLINE vint v_lanes(void) {
    vint lanes;
    for (int k = 0; k < VL; k++) lanes[k] = k;
    return lanes;
}

/* Each instruction-set header defines, besides loads and stores of the 16-bit types:
 *     v_fma(a, b, c)         a * b + c, in one rounding where the machine has that. By its instruction: of a * b + c d
 *                            compilers round either product, and not the same one in every place
 *     v_select(mask, a, b)   a where the mask is true, else b
 *     v_atleast(x, low)      max(x, low), v_atmost(x, high) min(x, high): a NaN in x stays
 *     v_max(a, b), v_min     NaN where either is NaN
 *     v_sum(v), v_hmax(v)    over the lanes, in a fixed order; v_hmax is NaN where a lane is
 *     v_abs, v_sqrt, v_any(mask), v_mask(p, i): VL bools as a mask
 *     v_about(v)             for floats: 1 / v, to 8 bits at least, where both are normal numbers
 *     v_low(v), v_high(v)    for floats: half of the lanes as double */
#if defined(TNI_ISA_neon)
#include "vec_neon.h"
#elif defined(TNI_ISA_vector)
#include "vec_generic.h"
#else
#include "vec_x86.h"
#endif

/* ---- one element ------------------------------------------------------------------------------------------------- */

TNI_INLINE float bf16_widen(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

TNI_INLINE uint16_t bf16_round(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if defined(TNI_REAL_f32)

TNI_INLINE float r_narrow(real a) {
    return a;
}

#else

/* To odd, so that rounding the float to 16 bits afterwards gives what rounding once would have. */
TNI_INLINE float r_narrow(real a) {
    float f = (float)a;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((double)f == a || f != f || (bits & 1)) return f;
    bits += fabs((double)f) > fabs(a) ? -1u : 1u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#endif

TNI_INLINE real r_load(const tn_type t, const void *p, int64_t i) {
    if (t == TN_F16) return (real)f16_widen(((const uint16_t *)p)[i]);
    if (t == TN_BF16) return (real)bf16_widen(((const uint16_t *)p)[i]);
    if (t == TN_F32) return (real)((const float *)p)[i];
    return (real)((const double *)p)[i];
}

TNI_INLINE void r_store(const tn_type t, void *p, int64_t i, real a) {
    if (t == TN_F16)
        ((uint16_t *)p)[i] = f16_round(r_narrow(a));
    else if (t == TN_BF16)
        ((uint16_t *)p)[i] = bf16_round(r_narrow(a));
    else if (t == TN_F32)
        ((float *)p)[i] = (float)a;
    else
        ((double *)p)[i] = (double)a;
}

/* Where element i of memory of type t is. */
TNI_INLINE void *r_at(const tn_type t, const void *p, int64_t i) {
    return (char *)(uintptr_t)p + i * (t == TN_F64 ? 8 : t == TN_F32 ? 4 : 2);
}

/* ---- vectors and memory ------------------------------------------------------------------------------------------ */

/* Lanes 0 … n - 1 from memory, the others `fill`; 0 <= n <= VL. */
TNI_INLINE vreal v_load_n(const tn_type t, const void *p, int64_t i, int64_t n, real fill) {
#if defined(TNI_ISA_avx512)
    if (t == V_NATIVE) return v_load_first((const real *)p + i, n, fill);
#endif
#if defined(TNI_ISA_avx512) && defined(TNI_REAL_f32)
    if (t == TN_F16 || t == TN_BF16) return v_load_first_halves(t, (const uint16_t *)p + i, n, fill);
#endif
    real lanes[VL];
    for (int k = 0; k < VL; k++) lanes[k] = k < n ? r_load(t, p, i + k) : fill;
    vreal v;
    memcpy(&v, lanes, sizeof v);
    return v;
}

TNI_INLINE void v_store_n(const tn_type t, void *p, int64_t i, int64_t n, vreal v) {
#if defined(TNI_ISA_avx512)
    if (t == V_NATIVE) {
        v_store_first((real *)p + i, n, v);
        return;
    }
#endif
#if defined(TNI_ISA_avx512) && defined(TNI_REAL_f32)
    if (t == TN_F16 || t == TN_BF16) {
        v_store_first_halves(t, (uint16_t *)p + i, n, v);
        return;
    }
#endif
    for (int k = 0; k < VL; k++) {
        if (k < n) r_store(t, p, i + k, v[k]);
    }
}

#if defined(TNI_REAL_f32)

/* Elements i … i + VL - 1 of memory of type t. */
TNI_INLINE vreal v_load(const tn_type t, const void *p, int64_t i) {
    if (t == TN_F16) return v_load_f16((const uint16_t *)p + i);
    if (t == TN_BF16) return v_load_bf16((const uint16_t *)p + i);
    if (t == TN_F64) return v_load_n(t, p, i, VL, 0);
    vreal v;
    memcpy(&v, (const char *)p + i * (int64_t)sizeof(real), sizeof v);
    return v;
}

/* Rounds to nearest even; NaN stays NaN. */
TNI_INLINE void v_store(const tn_type t, void *p, int64_t i, vreal v) {
    if (t == TN_F16)
        v_store_f16((uint16_t *)p + i, v);
    else if (t == TN_BF16)
        v_store_bf16((uint16_t *)p + i, v);
    else if (t == TN_F64)
        v_store_n(t, p, i, VL, v);
    else
        memcpy((char *)p + i * (int64_t)sizeof(real), &v, sizeof v);
}

#else

TNI_INLINE vreal v_load(const tn_type t, const void *p, int64_t i) {
    if (t != TN_F64) return v_load_n(t, p, i, VL, 0);
    vreal v;
    memcpy(&v, (const char *)p + i * (int64_t)sizeof(real), sizeof v);
    return v;
}

TNI_INLINE void v_store(const tn_type t, void *p, int64_t i, vreal v) {
    if (t != TN_F64)
        v_store_n(t, p, i, VL, v);
    else
        memcpy((char *)p + i * (int64_t)sizeof(real), &v, sizeof v);
}

#endif

#if defined(TNI_REAL_f32)

/* sums[k] += v[k] in double */
TNI_INLINE void v_add_to(double *sums, vreal v) {
    vdouble low, high;
    memcpy(&low, sums, sizeof low);
    memcpy(&high, sums + VL / 2, sizeof high);
    low += v_low(v);
    high += v_high(v);
    memcpy(sums, &low, sizeof low);
    memcpy(sums + VL / 2, &high, sizeof high);
}

#else

TNI_INLINE void v_add_to(double *sums, vreal v) {
    v_store(TN_F64, sums, 0, v_load(TN_F64, sums, 0) + v);
}

#endif

/* The last vector of n elements, for what a loop of whole vectors leaves over: where there are VL of them it overlaps
 * what the loop did, and a kernel that may run in place loads it before the loop. v_last_lanes tells the lanes that the
 * loop did not see; below VL elements the rest is `fill`. */
TNI_INLINE vreal v_load_last(const tn_type t, const void *p, int64_t n, real fill) {
    return n >= VL ? v_load(t, p, n - VL) : v_load_n(t, p, 0, n, fill);
}

TNI_INLINE void v_store_last(const tn_type t, void *p, int64_t n, vreal v) {
    if (n >= VL)
        v_store(t, p, n - VL, v);
    else
        v_store_n(t, p, 0, n, v);
}

TNI_INLINE vint v_last_lanes(int64_t n) {
    return n >= VL ? (vint)(v_lanes() >= v_seti((int_of_real)(VL - n % VL)))
                   : (vint)(v_lanes() < v_seti((int_of_real)n));
}

/* n bools as a mask, the other lanes false. */
TNI_INLINE vint v_mask_n(const void *p, int64_t i, int64_t n) {
    vint mask = {0};
    for (int k = 0; k < VL; k++) {
        if (k < n) mask[k] = -(int_of_real)(((const uint8_t *)p)[i + k] != 0);
    }
    return mask;
}

TNI_INLINE vint v_mask_last(const void *p, int64_t n) {
    return n >= VL ? v_mask(p, n - VL) : v_mask_n(p, 0, n);
}

#include "vec_math.h"

#endif
