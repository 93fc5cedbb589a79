/* Partial results of reductions, and how they are put together: of a thread, of lanes and warps, of blocks. */
#pragma once

#include "reduce.cuh"
#include "vectors.cuh"

/* Formulas that reduce nothing leave it out: NVRTC takes 0.8 ms to read it. */
#ifndef TN_NO_PARTIALS

namespace tn {

/* ---- of a thread ------------------------------------------------------------------------------------------------- */

/* A reduction of few numbers. */
template <class Op, class T> struct short_partial {
    T s;
    TN_MEMBER void begin() { s = Op::template none<T>(); }
    TN_MEMBER void add(T a) { s = Op::of(s, a); }
    TN_MEMBER void add(T a, T b) { /* their product */
        s = tn_fma(a, b, s);
    }
    TN_MEMBER void fold() {}
    TN_MEMBER void scale(T by) { s *= by; }
    TN_MEMBER T total() { return s; }
    TN_MEMBER void take(T a) { s = a; }
};

/* Of many. What a sum of f32 loses is kept beside it: some numbers are added up in `few`, then fold adds those to s and
 * what that has lost to e. */
template <class Op, class T> struct long_partial : short_partial<Op, T> {};
template <> struct long_partial<take_sum, f32> {
    f32 s, e, few;
    TN_MEMBER void begin() { s = e = few = 0; }
    TN_MEMBER void add(f32 a) { few += a; }
    TN_MEMBER void add(f32 a, f32 b) { few = fmaf(a, b, few); }
    TN_MEMBER void fold() {
        f32 t = s + few, b = t - s;
        e += (s - (t - b)) + (few - b);
        s = t;
        few = 0;
    }
    TN_MEMBER void scale(f32 by) {
        s *= by;
        e *= by;
        few *= by;
    }
    TN_MEMBER f32 total() {
        fold();
        return fabsf(s) < infinity<f32>() ? s + e : s;
    }
    TN_MEMBER void take(f32 a) {
        s = a;
        e = few = 0;
    }
};

/* ---- of rows that begin anywhere (MODE 3) ------------------------------------------------------------------------ */

/* A thread's word w holds the elements 2 w - odd and 2 w - odd + 1 of a row, where `odd` says whether the row begins
 * between two words. How a row is added up must not depend on that: one partial for the first elements of words and one
 * for the second ones, so that each has elements that are twice the threads of a row apart, whatever `odd` is. Then the
 * pairs (2 t, 2 t + 1) are put together, half of them by asking the next thread. */
template <class Op, class T> struct two_partials {
    short_partial<Op, T> half[2];
    TN_MEMBER void begin() {
        half[0].begin();
        half[1].begin();
    }
    TN_MEMBER short_partial<Op, T> &operator[](int j) { return half[j]; }
};

/* What this thread's pair comes to. The last pair of a warp lacks its second half, which `rest` gets, (warps of a row);
 * it may be another warp's. With at most 32 threads nothing is left over. */
template <class Op, u32 ACROSS, class T> TN_DEVICE T pair_total(const two_partials<Op, T> &a, u32 odd, T *rest) {
    constexpr u32 LANES = ACROSS < 32 ? ACROSS : 32, WARPS = ACROSS / 32;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const T next = __shfl_sync(0xffffffffu, a.half[0].s, (lane & ~(LANES - 1)) | ((lane + 1) & (LANES - 1)));
    const T low = odd ? a.half[1].s : a.half[0].s, high = odd ? next : a.half[1].s;
    if (ACROSS <= 32) return Op::of(low, high);
    if (lane == (odd ? 0 : 31)) rest[odd ? (warp + WARPS - 1) % WARPS : warp] = odd ? a.half[0].s : a.half[1].s;
    return lane == 31 ? low : Op::of(low, high);
}

/* ---- sums that keep columns -------------------------------------------------------------------------------------- */

/* The totals of N of them, of which n are there, into a block's own place. */
template <int MODE, class T, class R, int N> TN_DEVICE void store_totals(T *p, i64 step, R (&r)[N], int n) {
    T y[N];
#pragma unroll
    for (int j = 0; j < N; j++) y[j] = r[j].total();
    if (MODE == 3) {
        for (int j = 0; j < N; j++) {
            if (is_in<3>(j, n)) p[j * step] = y[j];
        }
        return;
    }
    if (MODE > 0 && N > 1 && step == 1 && is_aligned(p)) return store_vector<T, N, MODE>(p, y, n);
    store_apart<T, N>(p, step, y, n);
}

/* A warp that has several rows at a time, ACROSS threads each, adds them up first. */
template <class Op, u32 ACROSS, class R, int N> TN_DEVICE void join_rows(R (&r)[N]) {
#pragma unroll
    for (u32 o = ACROSS; o < 32; o *= 2) {
#pragma unroll
        for (int j = 0; j < N; j++) r[j].take(Op::of(r[j].total(), __shfl_xor_sync(0xffffffffu, r[j].total(), o)));
    }
}

/* ---- a maximum, and the sum of exp(x - that) --------------------------------------------------------------------- */

/* Without elements the maximum is -inf. */
template <class T> struct max_and_sum { T most, sum; };

template <class T> TN_DEVICE T zero_if_infinite(T most) { return tn_abs(most) == infinity<T>() ? (T)0 : most; }
template <class T> TN_DEVICE T sum_unless_infinite(const max_and_sum<T> &a) {
    return tn_abs(a.most) == infinity<T>() ? not_a_number<T>() : a.sum;
}
/* A sum with maximum `from` becomes one with `to` by this factor. */
template <class T> TN_DEVICE T rescaling(T from, T to) { return from == to ? (T)1 : tn_exp(from - to); }

template <class T> TN_DEVICE max_and_sum<T> join_lanes(const max_and_sum<T> &a, u32 lanes) {
    const T most = reduce_warp_lanes<take_max_nan>(a.most, lanes);
    return {most, reduce_warp_lanes<take_sum>(a.sum * rescaling(a.most, most), lanes)};
}
template <class T> TN_DEVICE max_and_sum<T> join_warps(const T *most, const T *sum, u32 warps) {
    const u32 w = threadIdx.x % 32;
    return join_lanes(w < warps ? max_and_sum<T>{most[w], sum[w]} : max_and_sum<T>{-infinity<T>(), (T)0}, 32u);
}

/* ---- of blocks --------------------------------------------------------------------------------------------------- */

/* The partial results (pieces, size) of a sum become one; each block has `across` of them. */
struct finish_params {
    const char *from;
    char *to;
    i64 pieces, size, across, blocks;
};
template <int N> struct finishes { finish_params sum[N]; };

template <class Op, class T, class R, class To> TN_DEVICE void finish(const finish_params &p, i64 block) {
    __shared__ R slots[256];
    const u32 across = (u32)p.across, x = threadIdx.x % across, way = threadIdx.x / across, ways = 256 / across;
    const i64 i = block * across + x;
    R a = Op::template none<R>();
    if (i < p.size) {
#pragma unroll 8
        for (i64 k = way; k < p.pieces; k += ways) a = Op::of(a, (R)((const T *)p.from)[k * p.size + i]);
    }
    slots[threadIdx.x] = a;
    __syncthreads();
    for (u32 n = ways / 2; n; n /= 2) {
        if (way < n) slots[threadIdx.x] = Op::of(slots[threadIdx.x], slots[threadIdx.x + n * across]);
        __syncthreads();
    }
    if (way == 0 && i < p.size) narrow(slots[threadIdx.x], ((To *)p.to)[i]);
}

} // namespace tn

#endif
