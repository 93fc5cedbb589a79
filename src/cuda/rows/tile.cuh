/* Short rows that lie one behind the other: a block takes many of them through shared memory, 16 bytes at a time, and a
 * thread has whole rows to itself. Written in what C and CUDA C++ share. */
#pragma once

enum {
    TNI_TILE_THREADS = 128,
    TNI_TILE_BYTES = 32768, /* of shared memory that a block takes, at most */
};

#ifdef __CUDACC__
#include "cuda/device/device.cuh"

/* `count` elements that lie side by side, into shared memory or out of it. All loads of a thread are under way before
 * the first is used. */
template <class T> TN_DEVICE void load_tile(const T *from, T *tile, int count) {
    constexpr int VL = pack<T>::VL, BATCH = 8;
    int first = 0;
    if (is_aligned(from)) {
        const int packs = count / VL;
        for (int i = threadIdx.x; i < packs; i += BATCH * TNI_TILE_THREADS) {
            words batch[BATCH];
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const int at = i + j * TNI_TILE_THREADS;
                batch[j] = load_words_if(from + at * VL, at < packs);
            }
#pragma unroll
            for (int j = 0; j < BATCH; j++) {
                const int at = i + j * TNI_TILE_THREADS;
                if (at < packs) ((words *)tile)[at] = batch[j];
            }
        }
        first = packs * VL;
    }
#pragma unroll 4
    for (int i = first + threadIdx.x; i < count; i += TNI_TILE_THREADS) tile[i] = from[i];
}

template <class T> TN_DEVICE void store_tile(T *to, const T *tile, int count) {
    constexpr int VL = pack<T>::VL;
    int i = threadIdx.x;
    if (is_aligned(to)) {
        for (; i < count / VL; i += TNI_TILE_THREADS) store_pack(to + i * VL, ((const pack<T> *)tile)[i]);
        i = count / VL * VL + threadIdx.x;
    }
    for (; i < count; i += TNI_TILE_THREADS) to[i] = tile[i];
}

#endif
