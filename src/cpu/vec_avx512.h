/* The part of vec_x86.h that differs: AVX-512 (F, BW, DQ, VL), with F16C for single elements. */
#ifndef TNI_VEC_AVX512_H
#define TNI_VEC_AVX512_H

TNI_INLINE float f16_widen(uint16_t h) {
    return _cvtsh_ss(h);
}
TNI_INLINE uint16_t f16_round(float f) {
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}

#if defined(TNI_REAL_f32)

TNI_INLINE __m128 fold_sum(vreal v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
TNI_INLINE __m128 fold_max(vreal v) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    return _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)b, (__m512)a);
}

TNI_INLINE bool v_any(vint mask) {
    return _mm512_movepi32_mask((__m512i)mask) != 0;
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)((const uint8_t *)p + i));
    return (vint)_mm512_movm_epi32(_mm_test_epi8_mask(bytes, bytes));
}

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    return (vreal)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    return (vreal)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
}
TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    __m512i bits = (__m512i)v;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

#else

TNI_INLINE __m128d fold_sum(vreal v) {
    __m256d h = _mm256_add_pd(_mm512_castpd512_pd256((__m512d)v), _mm512_extractf64x4_pd((__m512d)v, 1));
    return _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
}
TNI_INLINE __m128d fold_max(vreal v) {
    __m256d h = _mm256_max_pd(_mm512_castpd512_pd256((__m512d)v), _mm512_extractf64x4_pd((__m512d)v, 1));
    return _mm_max_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)_mm512_mask_blend_pd(_mm512_movepi64_mask((__m512i)mask), (__m512d)b, (__m512d)a);
}

TNI_INLINE bool v_any(vint mask) {
    return _mm512_movepi64_mask((__m512i)mask) != 0;
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)((const uint8_t *)p + i));
    return (vint)_mm512_movm_epi64((__mmask8)_mm_test_epi8_mask(bytes, bytes));
}

#endif
#endif
