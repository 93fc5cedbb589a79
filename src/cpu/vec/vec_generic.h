/* What vec.h asks of a machine of which nothing is known: the compiler's vector operators do it all. Included by vec.h.
 */
#ifndef TNI_VEC_GENERIC_H
#define TNI_VEC_GENERIC_H

#include "vec_f16.h"

TNI_INLINE vreal v_fma(vreal a, vreal b, vreal c) {
    return a * b + c;
}

TNI_INLINE vreal v_select(vint mask, vreal a, vreal b) {
    return (vreal)(((vint)a & mask) | ((vint)b & ~mask));
}

TNI_INLINE vreal v_atleast(vreal x, vreal low) {
    return v_select((vint)(x < low), low, x);
}
TNI_INLINE vreal v_atmost(vreal x, vreal high) {
    return v_select((vint)(x > high), high, x);
}
TNI_INLINE vreal v_max(vreal a, vreal b) {
    return v_select((vint)(a > b) | (vint)(a != a), a, b);
}
TNI_INLINE vreal v_min(vreal a, vreal b) {
    return v_select((vint)(a < b) | (vint)(a != a), a, b);
}

TNI_INLINE vreal v_abs(vreal a) {
    return (vreal)((vint)a & ~(vint)v_set(-(real)0));
}

TNI_INLINE vreal v_sqrt(vreal a) {
    for (int k = 0; k < VL; k++) a[k] = (real)sqrt(a[k]);
    return a;
}

TNI_INLINE vreal v_about(vreal a) {
    return 1 / a;
}

TNI_INLINE bool v_any(vint mask) {
    int_of_real any = 0;
    for (int k = 0; k < VL; k++) any |= mask[k];
    return any != 0;
}

/* Halves are folded onto each other. */
TNI_INLINE real v_sum(vreal v) {
    real lanes[VL];
    memcpy(lanes, &v, sizeof v);
    for (int half = VL / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    }
    return lanes[0];
}

TNI_INLINE real v_hmax(vreal v) {
    real most = v[0];
    for (int k = 1; k < VL; k++) most = v[k] > most || v[k] != v[k] ? v[k] : most;
    return most;
}

#if defined(TNI_REAL_f32)

TNI_INLINE vdouble v_low(vreal v) {
    return (vdouble){v[0], v[1]};
}
TNI_INLINE vdouble v_high(vreal v) {
    return (vdouble){v[2], v[3]};
}

#endif

TNI_INLINE vint v_mask(const void *p, int64_t i) {
    vint mask;
    for (int k = 0; k < VL; k++) mask[k] = -(int_of_real)(((const uint8_t *)p)[i + k] != 0);
    return mask;
}

#if defined(TNI_REAL_f32)

TNI_INLINE vreal v_load_f16(const uint16_t *p) {
    vint h;
    for (int k = 0; k < VL; k++) h[k] = p[k];
    return v_widen_f16(h);
}

TNI_INLINE void v_store_f16(uint16_t *p, vreal v) {
    vint h = v_round_f16(v);
    for (int k = 0; k < VL; k++) p[k] = (uint16_t)h[k];
}

TNI_INLINE vreal v_load_bf16(const uint16_t *p) {
    vint h;
    for (int k = 0; k < VL; k++) h[k] = p[k];
    return (vreal)(h << 16);
}

TNI_INLINE void v_store_bf16(uint16_t *p, vreal v) {
    vint h = v_round_bf16(v);
    for (int k = 0; k < VL; k++) p[k] = (uint16_t)h[k];
}

#endif
#endif
