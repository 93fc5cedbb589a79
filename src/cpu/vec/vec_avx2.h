/* The part of vec_x86.h that differs: AVX2, FMA, F16C. */
#ifndef TNI_VEC_AVX2_H
#define TNI_VEC_AVX2_H

TNI_INLINE float f16_widen(uint16_t h) {
    return _cvtsh_ss(h);
}
TNI_INLINE uint16_t f16_round(float f) {
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return (vreal)MM(fmadd)((mreal)a, (mreal)b, (mreal)c);
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)MM(blendv)((mreal)b, (mreal)a, (mreal)mask);
}

TNI_INLINE bool v_any(vint mask) {
    return _mm256_movemask_epi8((__m256i)mask) != 0;
}

TNI_INLINE vreal v_max(vreal a, vreal b) {
    return v_select((vint)(a != a), a, v_atleast(b, a));
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    return v_select((vint)(a != a), a, v_atmost(b, a));
}

#if defined(TNI_REAL_f32)

TNI_INLINE __m128 fold_sum(vreal v) {
    return _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
}
TNI_INLINE __m128 fold_max(vreal v) {
    return _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    __m128i eight = _mm_loadl_epi64((const __m128i *)((const uint8_t *)p + i));
    return (vint)_mm256_cmpgt_epi32(_mm256_cvtepu8_epi32(eight), _mm256_setzero_si256());
}

TNI_INLINE vdouble v_low(vreal v) {
    return (vdouble)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
}
TNI_INLINE vdouble v_high(vreal v) {
    return (vdouble)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
}

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    return (vreal)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    return (vreal)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
}
/* v as bf16 in the lower halves. */
TNI_INLINE __m256i round_to_bf16(vreal v) {
    __m256i bits = (__m256i)v;
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i number = (__m256i)_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_EQ_OQ);
    return _mm256_srli_epi32(_mm256_blendv_epi8(quiet, rounded, number), 16);
}
TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    __m256i h = round_to_bf16(v);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08); /* quarters 0 and 2 */
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(packed));
}
/* Two vectors behind each other. */
TNI_INLINE void v_store_two_bf16(uint16_t *p, const vreal *v) {
    __m256i packed = _mm256_packus_epi32(round_to_bf16(v[0]), round_to_bf16(v[1])); /* quarters 0, 2, 1, 3 */
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}

#else

TNI_INLINE __m128d fold_sum(vreal v) {
    return _mm_add_pd(_mm256_castpd256_pd128((__m256d)v), _mm256_extractf128_pd((__m256d)v, 1));
}
TNI_INLINE __m128d fold_max(vreal v) {
    return _mm_max_pd(_mm256_castpd256_pd128((__m256d)v), _mm256_extractf128_pd((__m256d)v, 1));
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    int32_t four;
    memcpy(&four, (const uint8_t *)p + i, sizeof four);
    return (vint)_mm256_cmpgt_epi64(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four)), _mm256_setzero_si256());
}

#endif
#endif
