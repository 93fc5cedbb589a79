/* The part of vec_x86.h that differs: AVX-512 (F, BW, DQ, VL), with F16C for single elements. */
#ifndef TNI_VEC_AVX512_H
#define TNI_VEC_AVX512_H

TNI_INLINE float f16_widen(uint16_t h) {
    return _cvtsh_ss(h);
}
TNI_INLINE uint16_t f16_round(float f) {
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return (vreal)MM(fmadd)((mreal)a, (mreal)b, (mreal)c);
}

/* In this form compilers keep a comparison in a mask register, and make it a blend. */
TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)(((vint)a & mask) | ((vint)b & ~mask));
}

/* Lanes 0 … n - 1 of memory, 0 <= n <= VL. By these instructions and no others: of loops with a condition compilers may
 * make a masked vextractf64x4, which faults on the page behind the last element although the lanes there are masked. */
#if defined(TNI_REAL_f32)
TNI_INLINE vreal v_load_first(const real *p, int64_t n, real fill) {
    return (vreal)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), (__mmask16)((1u << n) - 1), p);
}
TNI_INLINE void v_store_first(real *p, int64_t n, vreal v) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}
#else
TNI_INLINE vreal v_load_first(const real *p, int64_t n, real fill) {
    return (vreal)_mm512_mask_loadu_pd(_mm512_set1_pd(fill), (__mmask8)((1u << n) - 1), p);
}
TNI_INLINE void v_store_first(real *p, int64_t n, vreal v) {
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), (__m512d)v);
}
#endif

#if defined(TNI_REAL_f32)

/* The instructions give b where one is NaN; a NaN in a stays where it is. */
TNI_INLINE vreal v_max(vreal a, vreal b) {
    __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (vreal)_mm512_mask_max_ps((__m512)a, number, (__m512)a, (__m512)b);
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    __mmask16 number = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q);
    return (vreal)_mm512_mask_min_ps((__m512)a, number, (__m512)a, (__m512)b);
}

TNI_INLINE __m128 fold_sum(vreal v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
TNI_INLINE __m128 fold_max(vreal v) {
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    return _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

TNI_INLINE bool v_any(vint mask) {
    return _mm512_movepi32_mask((__m512i)mask) != 0;
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)((const uint8_t *)p + i));
    return (vint)_mm512_movm_epi32(_mm_test_epi8_mask(bytes, bytes));
}

TNI_INLINE vdouble v_low(vreal v) {
    return (vdouble)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
}
TNI_INLINE vdouble v_high(vreal v) {
    return (vdouble)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
}

TNI_INLINE vreal widen_f16(__m256i halves) {
    return (vreal)_mm512_cvtph_ps(halves);
}
TNI_INLINE __m256i narrow_f16(vreal v) {
    return _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
}
TNI_INLINE vreal widen_bf16(__m256i halves) {
    return (vreal)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}
/* Bits whose upper halves are v as bf16: half of the last place is added, less the last bit of it where that leaves an
 * even number. The fixup takes v itself where it is NaN, made quiet. */
TNI_INLINE __m512i round_to_bf16(vreal v) {
    __m512i bits = (__m512i)v, rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    rounded = _mm512_mask_add_epi32(rounded, odd, bits, _mm512_set1_epi32(0x8000));
    return (__m512i)_mm512_fixupimm_ps((__m512)rounded, (__m512)v, _mm512_set1_epi32(0x22), 0);
}
TNI_INLINE __m256i narrow_bf16(vreal v) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_bf16(v), 16));
}

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    return widen_f16(_mm256_loadu_si256((const __m256i *)p));
}
TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    _mm256_storeu_si256((__m256i *)p, narrow_f16(v));
}
TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    return widen_bf16(_mm256_loadu_si256((const __m256i *)p));
}
TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    _mm256_storeu_si256((__m256i *)p, narrow_bf16(v));
}

/* Lanes 0 … n - 1 of 16-bit memory, as v_load_first and v_store_first. */
TNI_INLINE vreal v_load_first_halves(const tn_type t, const uint16_t *p, int64_t n, real fill) {
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    const __m256i halves = _mm256_maskz_loadu_epi16(lanes, p);
    const vreal wide = t == TN_F16 ? widen_f16(halves) : widen_bf16(halves);
    return (vreal)_mm512_mask_mov_ps(_mm512_set1_ps(fill), lanes, (__m512)wide);
}
TNI_INLINE void v_store_first_halves(const tn_type t, uint16_t *p, int64_t n, vreal v) {
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), t == TN_F16 ? narrow_f16(v) : narrow_bf16(v));
}

/* Two vectors behind each other: one permutation takes the upper halves of both. */
TNI_INLINE void v_store_two_bf16(uint16_t *p, const vreal *v) {
    static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    __m512i halves = _mm512_permutex2var_epi16(round_to_bf16(v[0]), _mm512_loadu_si512(upper), round_to_bf16(v[1]));
    _mm512_storeu_si512(p, halves);
}

#else

TNI_INLINE vreal v_max(vreal a, vreal b) {
    __mmask8 number = _mm512_cmp_pd_mask((__m512d)a, (__m512d)a, _CMP_ORD_Q);
    return (vreal)_mm512_mask_max_pd((__m512d)a, number, (__m512d)a, (__m512d)b);
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    __mmask8 number = _mm512_cmp_pd_mask((__m512d)a, (__m512d)a, _CMP_ORD_Q);
    return (vreal)_mm512_mask_min_pd((__m512d)a, number, (__m512d)a, (__m512d)b);
}

TNI_INLINE __m128d fold_sum(vreal v) {
    __m256d h = _mm256_add_pd(_mm512_castpd512_pd256((__m512d)v), _mm512_extractf64x4_pd((__m512d)v, 1));
    return _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
}
TNI_INLINE __m128d fold_max(vreal v) {
    __m256d h = _mm256_max_pd(_mm512_castpd512_pd256((__m512d)v), _mm512_extractf64x4_pd((__m512d)v, 1));
    return _mm_max_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
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
