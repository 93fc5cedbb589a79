/* The part of vec_x86.h that differs: SSE2. No blend, no widening, no f16: a few bit operations each. */
#ifndef TNI_VEC_SSE2_H
#define TNI_VEC_SSE2_H

#include "vec_f16.h"

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return a * b + c;
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)(((vint)a & mask) | ((vint)b & ~mask));
}

TNI_INLINE bool v_any(vint mask) {
    return _mm_movemask_epi8((__m128i)mask) != 0;
}

TNI_INLINE vreal v_max(vreal a, vreal b) {
    return v_select((vint)(a != a), a, v_atleast(b, a));
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    return v_select((vint)(a != a), a, v_atmost(b, a));
}

#if defined(TNI_REAL_f32)

TNI_INLINE __m128 fold_sum(vreal v) {
    return (__m128)v;
}
TNI_INLINE __m128 fold_max(vreal v) {
    return (__m128)v;
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    int32_t four;
    memcpy(&four, (const uint8_t *)p + i, sizeof four);
    __m128i zero = _mm_setzero_si128();
    __m128i wide = _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
    return (vint)_mm_cmpgt_epi32(wide, zero);
}

TNI_INLINE vdouble v_low(vreal v) {
    return (vdouble)_mm_cvtps_pd((__m128)v);
}
TNI_INLINE vdouble v_high(vreal v) {
    return (vdouble)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v));
}

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    __m128i h = _mm_loadl_epi64((const __m128i *)p);
    return v_widen_f16((vint)_mm_unpacklo_epi16(h, _mm_setzero_si128()));
}

TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    __m128i h = _mm_loadl_epi64((const __m128i *)p);
    return (vreal)_mm_unpacklo_epi16(_mm_setzero_si128(), h);
}

/* h: 0 … 0xffff in each lane. The pack saturates signed numbers, so each becomes one first. */
TNI_INLINE void store_low_halves(uint16_t *p, vint h) {
    __m128i number = _mm_srai_epi32(_mm_slli_epi32((__m128i)h, 16), 16);
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi32(number, number));
}

TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    store_low_halves(p, v_round_f16(v));
}

TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    store_low_halves(p, v_round_bf16(v));
}

#else

TNI_INLINE __m128d fold_sum(vreal v) {
    return (__m128d)v;
}
TNI_INLINE __m128d fold_max(vreal v) {
    return (__m128d)v;
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    const uint8_t *b = (const uint8_t *)p + i;
    return (vint){-(int64_t)(b[0] != 0), -(int64_t)(b[1] != 0)};
}

#endif
#endif
