/* Products of 16-bit integers, two neighbours added up in 32 bits: what sums of 8-bit integers are made of on the
 * CPU. */
#ifndef TNI_DOT_CPU_H
#define TNI_DOT_CPU_H

#include "cpu/vec/vec.h"

enum { PAIRS = V_BYTES / 4 }; /* of a vector */

typedef int8_t vbytes __attribute__((vector_size(V_BYTES / 2)));
typedef int16_t vshorts __attribute__((vector_size(V_BYTES)));
typedef int32_t vsums __attribute__((vector_size(V_BYTES)));

/* sums[i] + a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1] */
#if defined(TNI_ISA_avx512)
TNI_INLINE vsums v_dot(vsums sums, vshorts a, vshorts b) {
    return sums + (vsums)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
#elif defined(TNI_ISA_avx2)
TNI_INLINE vsums v_dot(vsums sums, vshorts a, vshorts b) {
    return sums + (vsums)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#elif defined(TNI_ISA_sse2)
TNI_INLINE vsums v_dot(vsums sums, vshorts a, vshorts b) {
    return sums + (vsums)_mm_madd_epi16((__m128i)a, (__m128i)b);
}
#elif defined(TNI_ISA_neon)
TNI_INLINE vsums v_dot(vsums sums, vshorts a, vshorts b) {
    const int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)a), vget_low_s16((int16x8_t)b));
    const int32x4_t high = vmull_high_s16((int16x8_t)a, (int16x8_t)b);
    return sums + (vsums)vpaddq_s32(low, high);
}
#else
TNI_INLINE vsums v_dot(vsums sums, vshorts a, vshorts b) {
    for (int i = 0; i < PAIRS; i++)
        sums[i] += (int32_t)a[2 * i] * (int32_t)b[2 * i] + (int32_t)a[2 * i + 1] * (int32_t)b[2 * i + 1];
    return sums;
}
#endif

/* n bytes, at most as many as a vector has 16-bit numbers; 0 behind them. */
TNI_INLINE vshorts v_widen_bytes(const int8_t *from, int64_t n) {
    vbytes bytes = {0};
    if (n >= 2 * PAIRS)
        memcpy(&bytes, from, sizeof bytes);
    else
        memcpy(&bytes, from, (size_t)n);
    return __builtin_convertvector(bytes, vshorts);
}

TNI_INLINE vshorts v_shorts_at(const int16_t *from) {
    vshorts v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* The same pair in every place. */
TNI_INLINE vshorts v_same_pair(const int16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return (vshorts)(both - (vsums){0});
}

TNI_INLINE int32_t v_sum_all(vsums v) {
    int32_t sum = 0;
    for (int i = 0; i < PAIRS; i++) sum += v[i];
    return sum;
}

#endif
