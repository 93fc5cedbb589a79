/* Element types: what is stored, and what it is computed in. */
#pragma once

#include "instructions.cuh"

namespace tn {

/* Rounded to odd: rounding to 16 bits afterwards rounds once. */
TN_DEVICE f32 round_to_odd(f64 a) {
    f32 f = (f32)a;
    u32 bits = __float_as_uint(f);
    if ((f64)f == a || f != f || (bits & 1)) return f;
    return __uint_as_float(bits + (fabs((f64)f) > fabs(a) ? -1u : 1u));
}
TN_DEVICE f32 round_to_odd(f32 a) { return a; }

TN_DEVICE f32 bf16_to_f32(u16 a) { return __uint_as_float((u32)a << 16); }

/* f16 and bf16 are made from every number and compute as float, so that what is written for float works with them. In a
 * namespace of their own: exp(a) of such an a means CUDA's exp, not one of the functions in tn. */
namespace types {

/* Formulas go without: NVRTC takes 1.5 ms to read it. */
#ifdef TN_PLAIN_HALVES
#define TN_HALF(type, to_f32, from_f32) \
    struct type {                       \
        u16 bits;                       \
    };
#else
#define TN_HALF(type, to_f32, from_f32)                                        \
    struct type {                                                              \
        u16 bits;                                                              \
        type() = default;                                                      \
        TN_MEMBER type(f32 a) : bits(from_f32(a)) {}                           \
        TN_MEMBER type(f64 a) : bits(from_f32(round_to_odd(a))) {}             \
        TN_MEMBER type(int a) : type((f64)a) {}                                \
        TN_MEMBER type(u32 a) : type((f64)a) {}                                \
        TN_MEMBER type(long a) : type((f64)a) {}                               \
        TN_MEMBER type(unsigned long a) : type((f64)a) {}                      \
        TN_MEMBER type(i64 a) : type((f64)a) {}                                \
        TN_MEMBER type(u64 a) : type((f64)a) {}                                \
        TN_MEMBER operator f32() const { return to_f32(bits); }                \
        TN_MEMBER type &operator+=(f32 a) { return *this = (f32) * this + a; } \
        TN_MEMBER type &operator-=(f32 a) { return *this = (f32) * this - a; } \
        TN_MEMBER type &operator*=(f32 a) { return *this = (f32) * this * a; } \
        TN_MEMBER type &operator/=(f32 a) { return *this = (f32) * this / a; } \
    };
#endif
TN_HALF(f16, f16_to_f32, f32_to_f16)
TN_HALF(bf16, bf16_to_f32, f32_to_bf16)
#undef TN_HALF

} // namespace types

using types::bf16;
using types::f16;

/* The f16 or bf16 that these bits are. */
template <class T> TN_DEVICE T from_bits(u16 bits) {
    T a;
    a.bits = bits;
    return a;
}

/* What a type is computed in. */
template <class T> struct acc_of { typedef f32 type; };
template <> struct acc_of<f64> { typedef f64 type; };
template <class T> using acc = typename acc_of<T>::type;

/* ---- conversions ------------------------------------------------------------------------------------------------- */

TN_DEVICE f32 widen(f16 a) { return f16_to_f32(a.bits); }
TN_DEVICE f32 widen(bf16 a) { return bf16_to_f32(a.bits); }
template <class T> TN_DEVICE T widen(T a) { return a; }

/* The one or the other of two that lie in a register. */
TN_DEVICE f32 widen_half(f16, u32 pair, int i) { return f16_to_f32((u16)(i % 2 ? pair >> 16 : pair)); }
TN_DEVICE f32 widen_half(bf16, u32 pair, int i) { return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16); }

template <class A> TN_DEVICE void narrow(A a, f16 &to) { to.bits = f32_to_f16(round_to_odd(a)); }
template <class A> TN_DEVICE void narrow(A a, bf16 &to) { to.bits = f32_to_bf16(round_to_odd(a)); }
template <class A, class T> TN_DEVICE void narrow(A a, T &to) { to = (T)a; }

/* Two numbers of a 16-bit type, the first one in the lower half. */
TN_DEVICE u32 narrow_pair(f16, f32 low, f32 high) { return f32_to_f16x2(low, high); }
TN_DEVICE u32 narrow_pair(bf16, f32 low, f32 high) { return f32_to_bf16x2(low, high); }

/* What is left of a number in type T. */
template <class T> TN_DEVICE acc<T> rounded(acc<T> a) {
    T t;
    narrow(a, t);
    return widen(t);
}

/* ---- numbers that are the same in all types ---------------------------------------------------------------------- */

/* No number is larger. */
template <class A> TN_DEVICE A infinity();
template <> TN_MEMBER f32 infinity<f32>() { return __int_as_float(0x7f800000); }
template <> TN_MEMBER f64 infinity<f64>() { return __longlong_as_double(0x7ff0000000000000ll); }
template <> TN_MEMBER i64 infinity<i64>() { return 0x7fffffffffffffffll; }

/* No number is smaller. */
template <class A> TN_DEVICE A minus_infinity() { return -infinity<A>(); }
template <> TN_MEMBER i64 minus_infinity<i64>() { return -infinity<i64>() - 1; }

template <class A> TN_DEVICE A not_a_number() { return (A)__int_as_float(0x7fffffff); }

} // namespace tn
