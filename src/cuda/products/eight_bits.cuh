/* Numbers of 8 bits, as tensor cores multiply them. */
#pragma once

#include "cuda/device/types.cuh"

namespace tn {

/* Numbers of 8 bits, and what they are added up in. */
struct of_i8 {
    signed char bits;
};
struct of_e4m3 {
    unsigned char bits;
};
template <class T> struct sum_type { typedef f32 type; };
template <> struct sum_type<of_i8> { typedef int type; };
template <class T> using sum_of = typename sum_type<T>::type;

TN_DEVICE int value_of(of_i8 a) {
    return a.bits;
}
/* An exponent of 0 is that of 1 without the leading bit; all ones are NaN. */
TN_DEVICE f32 value_of(of_e4m3 a) {
    const u32 sign = (u32)a.bits >> 7 << 31, rest = a.bits & 0x7f;
    const f32 size = rest == 0x7f ? __uint_as_float(0x7fc00000) : __uint_as_float(rest << 20) * 0x1p120f;
    return __uint_as_float(__float_as_uint(size) | sign);
}

} // namespace tn
