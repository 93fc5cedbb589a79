/* 16 bytes at a time. */
#pragma once

#include "vectors.cuh"

namespace tn {

/* VL elements of T in 16 bytes. */
template <class T> using pack = vec<T, 16 / (int)sizeof(T)>;

/* How many elements p is behind a multiple of 16 bytes. */
template <class T> TN_DEVICE u32 lead_of(const T *p) { return (u32)((u64)p & 15) / (u32)sizeof(T); }

template <class T> TN_DEVICE words words_of(const pack<T> &a) {
    union {
        pack<T> a;
        words w;
    } r;
    r.a = a;
    return r.w;
}

template <class T> TN_DEVICE pack<T> pack_of(const words &a) {
    union {
        words w;
        pack<T> a;
    } r;
    r.w = a;
    return r.a;
}

/* p is aligned to 16 bytes. */
template <class T> TN_DEVICE pack<T> load_pack(const T *p) {
    words r;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "l"(p));
    return pack_of<T>(r);
}
template <class T> TN_DEVICE void store_pack(T *p, const pack<T> &a) { store_words(p, words_of(a)); }

/* Element i of 16 bytes of T: the code is shorter than by way of a pack. */
template <class T> TN_DEVICE acc<T> widen_word(const words &a, int i) { return widen_half(T{}, a.w[i / 2], i); }
template <> TN_MEMBER f32 widen_word<f32>(const words &a, int i) { return __uint_as_float(a.w[i]); }
template <> TN_MEMBER f64 widen_word<f64>(const words &a, int i) {
    return __hiloint2double((int)a.w[2 * i + 1], (int)a.w[2 * i]);
}

/* VL numbers rounded to T. */
template <class T> TN_DEVICE pack<T> narrow_pack(const acc<T> *a) { return narrow_vector<T, pack<T>::VL>(a); }

/* The larger, or the smaller, of each of the two numbers that a register holds; a NaN does not win. 16-bit types. */
#if __CUDA_ARCH__ >= 800
#define TN_EXTREME_PAIR(T)                                              \
    TN_DEVICE u32 extreme_pair(T, u32 a, u32 b, bool smallest) {        \
        u32 r;                                                          \
        if (smallest) {                                                 \
            asm("min." #T "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
        } else {                                                        \
            asm("max." #T "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); \
        }                                                               \
        return r;                                                       \
    }
TN_EXTREME_PAIR(bf16)
TN_EXTREME_PAIR(f16)
#undef TN_EXTREME_PAIR
#else
template <class T> TN_DEVICE u32 extreme_pair(T, u32 a, u32 b, bool smallest) {
    u32 r = 0;
#pragma unroll
    for (int half = 0; half < 32; half += 16) {
        const float p = widen(from_bits<T>((u16)(a >> half))), q = widen(from_bits<T>((u16)(b >> half)));
        const float most = smallest ? fminf(p, q) : fmaxf(p, q);
        T t;
        narrow(most, t);
        r |= (u32)t.bits << half;
    }
    return r;
}
#endif

} // namespace tn
