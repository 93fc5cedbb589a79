/* Rows that stand upright in memory: a row's elements lie far apart, and beside each of them lie those of other rows. A
 * thread has N rows, which are neighbours; ACROSS threads have rows side by side, and threads with the same place among
 * those, DOWN of a block and as many of each block of a cluster, have other elements of the same rows. */
#pragma once

#include "cluster.cuh"
#include "partials.cuh"

#ifndef TN_NO_PARTIALS

namespace tn {

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* Where the elements of a tensor begin and end, after a dimension that leads `by` elements further. */
template <class T> TN_DEVICE void reach(const T *&low, const T *&high, i64 by) {
    if (by < 0) {
        low += by;
    } else {
        high += by;
    }
}

/* Elements u DOWN, as many as there are among `left`, of N rows, from p on, each `apart` behind the one before. n of
 * the rows are there. MODE 0: wherever that is; each vector is put together from the two pieces of 16 aligned bytes
 * that it lies in, which are all under way before the first is needed, and hold what is between `low` and `high`. */
template <int MODE, u32 DOWN, class T, int N, int U>
TN_DEVICE void load_upright(vec<T, N> (&v)[U], const T *p, i64 apart, i64 left, int n, const T *low, const T *high) {
    if constexpr (MODE > 0 || N == 1 || sizeof(T) * N != 16) {
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = load_vector<T, N, MODE>(p + u * apart, (i64)u * DOWN < left ? n : 0);
    } else {
        words a[U], b[U];
        u32 rest = 0; /* vectors that are not in two such pieces: the first ones and the last of a tensor */
#pragma unroll
        for (int u = 0; u < U; u++) {
            const T *const at = p + u * apart, *const from = at - shift_of<N>(at);
            const bool there = n > 0 && (i64)u * DOWN < left, two = from != at;
            const bool inside = from >= low && from + (two ? 2 * N : N) <= high;
            a[u] = load_words_if(from, there && inside);
            b[u] = load_words_if(from + N, there && inside && two);
            rest |= (u32)(there && !inside) << u;
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            v[u] = shift_vector<T, N>(a[u], b[u], shift_of<N>(p + u * apart));
        }
#pragma unroll 1
        for (u32 w = 0; rest; w++, rest >>= 1) {
            if (!(rest & 1)) continue;
            const vec<T, N> r = load_some<T, N>(p + w * apart, (1 << n) - 1);
#pragma unroll
            for (int u = 0; u < U; u++) v[u] = choose((u32)u == w, r, v[u]);
        }
    }
}

/* The same of elements that begin anywhere, if p is at a multiple of 16 bytes before them, and so is each row: vectors
 * of memory, as they lie. N or none of them are asked for. */
template <int MODE, u32 DOWN, class T, int N, int U>
TN_DEVICE void load_lying(vec<T, N> (&v)[U], const T *p, i64 apart, i64 left, int n, const T *low, const T *high) {
    if constexpr (MODE > 0) {
        load_upright<MODE, DOWN>(v, p, apart, left, n, low, high);
    } else {
        u32 rest = 0; /* vectors at the ends of the tensor */
#pragma unroll
        for (int u = 0; u < U; u++) {
            const T *const at = p + u * apart;
            const bool there = n > 0 && (i64)u * DOWN < left, inside = at >= low && at + N <= high;
            v[u] = load_vector<T, N, 2>(at, there && inside ? N : 0);
            rest |= (u32)(there && !inside) << u;
        }
#pragma unroll 1
        for (u32 w = 0; rest; w++, rest >>= 1) {
            if (!(rest & 1)) continue;
            const T *const at = p + w * apart;
            int some = 0;
            for (int j = 0; j < N; j++) some |= (int)(at + j >= low && at + j < high) << j;
            const vec<T, N> r = load_some<T, N>(at, some);
#pragma unroll
            for (int u = 0; u < U; u++) v[u] = choose((u32)u == w, r, v[u]);
        }
    }
}

/* What threads have of rows, each vector `shift` before its place, goes to the threads whose rows they are; the last of
 * those beside each other has none then. `slots` has room for all threads. */
template <u32 ACROSS, class T, int N> TN_DEVICE void stand_up(T (&h)[N], T *slots, u32 shift) {
    const u32 x = threadIdx.x % ACROSS;
    T *const own = slots + threadIdx.x / ACROSS * (ACROSS * N);
    __syncthreads(); /* slots are read no more */
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (x * N + j >= shift) own[x * N + j - shift] = h[j];
    }
    __syncthreads();
    if (x == ACROSS - 1) return;
#pragma unroll
    for (int j = 0; j < N; j++) h[j] = own[x * N + j];
}

/* ---- over threads and blocks ------------------------------------------------------------------------------------- */

/* Numbers that join_upright needs in `slots`, and in `shares` where there are several blocks. */
template <u32 ACROSS, u32 DOWN, int N> TN_DEVICE constexpr int upright_slots() {
    return (int)((ACROSS < 32 ? (ACROSS * DOWN + 31) / 32 : DOWN) * ACROSS) * N;
}

/* Places of GROUPS, which lie one behind the other, are put together in order, each by one of THREADS. */
template <class Op, u32 GROUPS, u32 PLACES, u32 THREADS, class T> TN_DEVICE void join_groups(T *to, const T *from) {
    for (u32 k = threadIdx.x; k < PLACES; k += THREADS) {
        T t = from[k];
#pragma unroll
        for (u32 g = 1; g < GROUPS; g++) t = Op::of(t, from[g * PLACES + k]);
        to[k] = t;
    }
}

/* What all threads have of each of the N rows, in one order, and every thread gets it. */
template <class Op, u32 ACROSS, u32 DOWN, u32 BLOCKS, class T, int N>
TN_DEVICE void join_upright(T (&h)[N], T *slots, T *shares, u32 rank) {
    constexpr u32 PER = (u32)sizeof(T) / 4, ROWS = ACROSS * N, GROUPS = upright_slots<ACROSS, DOWN, N>() / ROWS;
    const u32 tid = threadIdx.x, x = tid % ACROSS, group = ACROSS < 32 ? tid / 32 : tid / ACROSS;
    if (DOWN == 1 && BLOCKS == 1) return;
#pragma unroll
    for (u32 o = ACROSS; o < 32 && o < ACROSS * DOWN; o *= 2) {
#pragma unroll
        for (int j = 0; j < N; j++) h[j] = Op::of(h[j], from_lane(h[j], o));
    }
    __syncthreads(); /* slots are read no more */
    if (ACROSS >= 32 || tid % 32 < ACROSS) {
#pragma unroll
        for (int j = 0; j < N; j++) slots[group * ROWS + j * ACROSS + x] = h[j];
    }
    __syncthreads();
    join_groups<Op, GROUPS, ROWS, ACROSS * DOWN>(slots, slots);
    __syncthreads();
    if constexpr (BLOCKS > 1) {
        for (u32 k = tid; k < ROWS * PER; k += ACROSS * DOWN) {
#pragma unroll 4
            for (u32 to = 0; to < BLOCKS; to++)
                store_cluster((u32 *)(shares + rank * ROWS) + k, to, ((const u32 *)slots)[k]);
        }
        cluster_arrive();
        cluster_wait();
        join_groups<Op, BLOCKS, ROWS, ACROSS * DOWN>(slots, shares);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < N; j++) h[j] = slots[j * ACROSS + x];
}

} // namespace tn

#endif
