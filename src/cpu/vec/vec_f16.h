/* Conversions between float and the 16-bit types in integer arithmetic, one lane and VL lanes: for machines without
 * instructions for it. Denormals, infinities and NaN are right, and no intermediate is a denormal float, so the
 * caller's flush-to-zero mode does not matter. */
#ifndef TNI_VEC_F16_H
#define TNI_VEC_F16_H

TNI_INLINE float f32_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

TNI_INLINE uint32_t bits_of_f32(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* f16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
TNI_INLINE float f16_widen(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7fff;
    uint32_t bits = (body << 13) + ((127 - 15) << 23);
    if (body >= 0x7c00)
        bits += (255 - 31 - (127 - 15)) << 23; /* infinity, NaN */
    else if (body < 0x400)
        bits = bits_of_f32(f32_of_bits(body << 13 | (127 - 14) << 23) - 0x1p-14f); /* m * 2^-24 */
    return f32_of_bits(bits | sign);
}

TNI_INLINE uint16_t f16_round(float f) {
    uint32_t bits = bits_of_f32(f), sign = bits >> 16 & 0x8000, body = bits & 0x7fffffff, h;
    if (body > 0x7f800000)
        h = 0x7e00 | (body >> 13 & 0x3ff);
    else if (body >= 0x47800000)
        h = 0x7c00; /* 65536 and more */
    else if (body < 0x38800000)
        h = bits_of_f32(f32_of_bits(body) + 0.5f) - bits_of_f32(0.5f); /* below 2^-14 */
    else
        h = (body + 0xfff + (body >> 13 & 1) - ((127 - 15) << 23)) >> 13;
    return (uint16_t)(h | sign);
}

#if defined(TNI_REAL_f32)

TNI_INLINE vint select_bits(vint mask, vint a, vint b) {
    return (a & mask) | (b & ~mask);
}

/* h: 0 … 0xffff in each lane */
TNI_INLINE vreal v_widen_f16(vint h) {
    vint body = h & 0x7fff;
    vint bits = (body << 13) + ((127 - 15) << 23);
    vint special = bits + ((255 - 31 - (127 - 15)) << 23);
    vint denormal = (vint)((vreal)((body << 13) | (127 - 14) << 23) - 0x1p-14f);
    bits = select_bits((vint)(body >= 0x7c00), special, bits);
    bits = select_bits((vint)(body < 0x400), denormal, bits);
    return (vreal)(bits | (h & 0x8000) << 16);
}

/* Gives 0 … 0xffff in each lane. */
TNI_INLINE vint v_round_f16(vreal v) {
    vint body = (vint)v & 0x7fffffff;
    vint normal = (body + 0xfff + ((body >> 13) & 1) - ((127 - 15) << 23)) >> 13;
    vint denormal = (vint)((vreal)body + 0.5f) - 0x3f000000;
    vint h = select_bits((vint)(body < 0x38800000), denormal, normal);
    h = select_bits((vint)(body >= 0x47800000), v_seti(0x7c00), h);
    h = select_bits((vint)(body > 0x7f800000), 0x7e00 | ((body >> 13) & 0x3ff), h);
    return h | (((vint)v >> 16) & 0x8000);
}

TNI_INLINE vint v_round_bf16(vreal v) {
    vint bits = (vint)v;
    vint rounded = bits + (0x7fff + ((bits >> 16) & 1));
    vint quiet = bits | 0x400000;
    return (select_bits((vint)(v == v), rounded, quiet) >> 16) & 0xffff;
}

#endif
#endif
