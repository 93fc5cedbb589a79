/* Elements as unsigned keys that are ordered as the elements are, seen by both sides. Written in what C and CUDA C++
 * share.
 *
 * NaN is larger than every number, as in PyTorch and NumPy, and all NaNs are equal; -0.0 and +0.0 are equal. Where the
 * order is descending, every bit of the key is turned round: equal elements keep their order all the same. */
#pragma once

#ifdef __CUDACC__
#include "cuda/device/device.cuh"
#define TNI_KEY_FUNCTION TN_DEVICE
#else
#define TNI_KEY_FUNCTION static inline
#endif

/* How the bits of a type become a key. Floats: sign is their sign's bit, and what is above `infinity` without it is
 * NaN. Signed integers: sign, and infinity is 0. Unsigned ones: both are 0. flip: all bits, where the order is
 * descending. */
typedef struct tni_key_rule {
    unsigned long long sign, infinity, flip;
} tni_key_rule;

#define TNI_KEY_FUNCTIONS(K, name)                                                                          \
    TNI_KEY_FUNCTION K tni_key_##name(K bits, K sign, K infinity, K flip) {                                 \
        const K nan = sign | (sign - 1), size = bits & ~sign; /* NaN's key is the largest that there is */  \
        const K number = bits & sign ? (K)(nan ^ bits) : (K)(bits | sign);                                  \
        const K key = infinity == 0 ? (K)(bits ^ sign) : size > infinity ? nan : size == 0 ? sign : number; \
        return key ^ flip;                                                                                  \
    }                                                                                                       \
    /* Whether several bit patterns have this key: the zeros, or NaNs. */                                   \
    TNI_KEY_FUNCTION int tni_key_is_shared_##name(K key, K sign, K infinity, K flip) {                      \
        key ^= flip;                                                                                        \
        return infinity != 0 && (key == sign || key == (K)(sign | (sign - 1)));                             \
    }                                                                                                       \
    /* The bits that every other key was made from. */                                                      \
    TNI_KEY_FUNCTION K tni_bits_##name(K key, K sign, K infinity, K flip) {                                 \
        key ^= flip;                                                                                        \
        return infinity == 0 || key & sign ? (K)(key ^ sign) : (K)((sign | (sign - 1)) ^ key);              \
    }
TNI_KEY_FUNCTIONS(unsigned int, u32)
TNI_KEY_FUNCTIONS(unsigned long long, u64)
#undef TNI_KEY_FUNCTIONS
