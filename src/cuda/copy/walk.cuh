/* Nested loops over up to 16 dimensions, seen by both sides: the host fills them in (walk.h), kernels find their place.
 * Written in what C and CUDA C++ share. */
#pragma once

enum { TNI_WALK_DIMS = 16, TNI_WALK_VIEWS = 2 };

/* n / by for n < 2^31 without a division: (high(n * magic) + n) >> shift. */
typedef struct tni_divisor {
    unsigned by, magic, shift;
} tni_divisor;

/* Dimension 0 is the fastest; strides in elements. */
typedef struct tni_walk {
    long long count;
    int n_dims;
    int is_short;                        /* count < 2^31: the divisors serve */
    tni_divisor divisors[TNI_WALK_DIMS]; /* of shape */
    long long shape[TNI_WALK_DIMS];
    long long strides[TNI_WALK_DIMS][TNI_WALK_VIEWS];
} tni_walk;

#ifdef __CUDACC__
#include "cuda/device/device.cuh"

/* An element of 16 bytes, or as many of smaller ones. */
struct alignas(16) u128 {
    u32 w[4];
};

struct place {
    i64 at[TNI_WALK_VIEWS];
};

TN_DEVICE u32 quotient(u32 n, const tni_divisor &d) {
    return (__umulhi(n, d.magic) + n) >> d.shift;
}

/* 64 bits are only divided where there are so many. */
TN_DEVICE u64 quotient(u64 n, u64 by) {
    return (n | by) >> 32 == 0 ? (u32)n / (u32)by : n / by;
}

/* Where step i < count is in each view, where is_short is known to hold. */
TN_DEVICE place walk_to(const tni_walk &w, u32 i) {
    place p = {};
    int d = 0;
#pragma unroll 1
    for (; d + 1 < w.n_dims; d++) {
        const u32 rest = quotient(i, w.divisors[d]);
        const i64 index = i - rest * w.divisors[d].by;
        for (int k = 0; k < TNI_WALK_VIEWS; k++) p.at[k] += index * w.strides[d][k];
        i = rest;
    }
    for (int k = 0; k < TNI_WALK_VIEWS; k++) p.at[k] += i * w.strides[d][k]; /* without dimensions, i is 0 */
    return p;
}

/* The same for any count. */
TN_DEVICE place walk_any(const tni_walk &w, u64 i) {
    place p = {};
    int d = 0;
#pragma unroll 1
    for (; d + 1 < w.n_dims; d++) {
        const u64 rest = w.is_short ? (u64)quotient((u32)i, w.divisors[d]) : i / (u64)w.shape[d];
        const i64 index = (i64)(i - rest * (u64)w.shape[d]);
        for (int k = 0; k < TNI_WALK_VIEWS; k++) p.at[k] += index * w.strides[d][k];
        i = rest;
    }
    for (int k = 0; k < TNI_WALK_VIEWS; k++) p.at[k] += (i64)i * w.strides[d][k];
    return p;
}

#endif
