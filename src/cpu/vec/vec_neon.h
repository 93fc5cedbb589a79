/* What vec.h asks of NEON (arm64, always there). Included by vec.h. */
#ifndef TNI_VEC_NEON_H
#define TNI_VEC_NEON_H

#include <arm_neon.h>

TNI_INLINE float f16_widen(uint16_t h) {
    __fp16 half;
    memcpy(&half, &h, sizeof half);
    return (float)half;
}

TNI_INLINE uint16_t f16_round(float f) {
    __fp16 half = (__fp16)f;
    uint16_t h;
    memcpy(&h, &half, sizeof h);
    return h;
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)(((vint)a & mask) | ((vint)b & ~mask));
}

TNI_INLINE bool v_any(vint mask) {
    return vmaxvq_u32((uint32x4_t)mask) != 0;
}

#if defined(TNI_REAL_f32)

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return (vreal)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

TNI_INLINE vreal v_max(vreal a, vreal b) {
    return (vreal)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    return (vreal)vminq_f32((float32x4_t)a, (float32x4_t)b);
}
TNI_INLINE vreal v_abs(vreal a) {
    return (vreal)vabsq_f32((float32x4_t)a);
}
TNI_INLINE vreal v_sqrt(vreal a) {
    return (vreal)vsqrtq_f32((float32x4_t)a);
}

TNI_INLINE vreal v_about(vreal a) {
    return (vreal)vrecpeq_f32((float32x4_t)a);
}

TNI_INLINE real v_sum(vreal v) {
    return vaddvq_f32((float32x4_t)v);
}
TNI_INLINE real v_hmax(vreal v) {
    return vmaxvq_f32((float32x4_t)v);
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    uint32_t four;
    memcpy(&four, (const uint8_t *)p + i, sizeof four);
    uint16x4_t wide = vget_low_u16(vmovl_u8(vcreate_u8(four)));
    uint32x4_t bytes = vmovl_u16(wide);
    return (vint)vtstq_u32(bytes, bytes);
}

TNI_INLINE vdouble v_low(vreal v) {
    return (vdouble)vcvt_f64_f32(vget_low_f32((float32x4_t)v));
}
TNI_INLINE vdouble v_high(vreal v) {
    return (vdouble)vcvt_high_f64_f32((float32x4_t)v);
}

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    return (vreal)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
}
/* Interleaved with zeros: two a cycle, where shifts go one a cycle. */
TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    uint16x8_t half = vcombine_u16(vld1_u16(p), vdup_n_u16(0));
    return (vreal)vzip1q_u16(vdupq_n_u16(0), half);
}
/* No shift for the same reason: the odd bit is tested, the upper halves are unzipped. */
TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    uint32x4_t bits = (uint32x4_t)v;
    uint32x4_t odd = vtstq_u32(bits, vdupq_n_u32(0x10000)); /* -1 where set */
    uint32x4_t rounded = vsubq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t number = vceqq_f32((float32x4_t)v, (float32x4_t)v);
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    uint16x8_t halves = vreinterpretq_u16_u32(vbslq_u32(number, rounded, quiet));
    vst1_u16(p, vget_low_u16(vuzp2q_u16(halves, halves)));
}

#else

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return (vreal)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}

TNI_INLINE vreal v_max(vreal a, vreal b) {
    return (vreal)vmaxq_f64((float64x2_t)a, (float64x2_t)b);
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    return (vreal)vminq_f64((float64x2_t)a, (float64x2_t)b);
}
TNI_INLINE vreal v_abs(vreal a) {
    return (vreal)vabsq_f64((float64x2_t)a);
}
TNI_INLINE vreal v_sqrt(vreal a) {
    return (vreal)vsqrtq_f64((float64x2_t)a);
}

TNI_INLINE real v_sum(vreal v) {
    return vaddvq_f64((float64x2_t)v);
}
TNI_INLINE real v_hmax(vreal v) {
    return vmaxvq_f64((float64x2_t)v);
}

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    const uint8_t *b = (const uint8_t *)p + i;
    return (vint){-(int64_t)(b[0] != 0), -(int64_t)(b[1] != 0)};
}

#endif

TNI_INLINE vreal v_atleast(vreal x, vreal low) {
    return v_max(x, low);
}
TNI_INLINE vreal v_atmost(vreal x, vreal high) {
    return v_min(x, high);
}

#endif
