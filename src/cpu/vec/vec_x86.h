/* What vec.h asks of x86-64: SSE2 (always there), AVX2 with FMA and F16C, AVX-512 (F, BW, DQ, VL). Included by vec.h.
 */
#ifndef TNI_VEC_X86_H
#define TNI_VEC_X86_H

#include <immintrin.h>

/* MM(max)(a, b) is _mm256_max_ps(a, b): width and precision of this build. */
#if defined(TNI_ISA_avx512) && defined(TNI_REAL_f32)
#define MM(op) _mm512_##op##_ps
typedef __m512 mreal;
#elif defined(TNI_ISA_avx512)
#define MM(op) _mm512_##op##_pd
typedef __m512d mreal;
#elif defined(TNI_ISA_avx2) && defined(TNI_REAL_f32)
#define MM(op) _mm256_##op##_ps
typedef __m256 mreal;
#elif defined(TNI_ISA_avx2)
#define MM(op) _mm256_##op##_pd
typedef __m256d mreal;
#elif defined(TNI_REAL_f32)
#define MM(op) _mm_##op##_ps
typedef __m128 mreal;
#else
#define MM(op) _mm_##op##_pd
typedef __m128d mreal;
#endif

/* The instructions give their second operand where one is NaN. */
TNI_INLINE vreal v_atleast(vreal x, vreal low) {
    return (vreal)MM(max)((mreal)low, (mreal)x);
}
TNI_INLINE vreal v_atmost(vreal x, vreal high) {
    return (vreal)MM(min)((mreal)high, (mreal)x);
}

TNI_INLINE vreal v_abs(vreal a) {
    return (vreal)((vint)a & ~(vint)v_set(-(real)0));
}
TNI_INLINE vreal v_sqrt(vreal a) {
    return (vreal)MM(sqrt)((mreal)a);
}

#if defined(TNI_REAL_f32)
TNI_INLINE vreal v_about(vreal a) {
#if defined(TNI_ISA_avx512)
    return (vreal)_mm512_rcp14_ps((__m512)a);
#else
    return (vreal)MM(rcp)((mreal)a);
#endif
}
#endif

#if defined(TNI_ISA_sse2)
#include "vec_sse2.h"
#elif defined(TNI_ISA_avx2)
#include "vec_avx2.h"
#else
#include "vec_avx512.h"
#endif

/* Halves are folded onto each other. */
#if defined(TNI_REAL_f32)

TNI_INLINE real sum_128(__m128 v) {
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
TNI_INLINE real max_128(__m128 v) {
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}

#else

TNI_INLINE real sum_128(__m128d v) {
    return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)));
}
TNI_INLINE real max_128(__m128d v) {
    return _mm_cvtsd_f64(_mm_max_sd(v, _mm_unpackhi_pd(v, v)));
}

#endif

TNI_INLINE real v_sum(vreal v) {
    return sum_128(fold_sum(v));
}

TNI_INLINE real v_hmax(vreal v) {
    return v_any((vint)(v != v)) ? (real)NAN : max_128(fold_max(v));
}

#undef MM
#endif
