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

/* ---- means and squares ------------------------------------------------------------------------------------------- */

/* Of n numbers: their mean, and the sum of (a - mean)^2. */
template <class T> struct moments {
    T n, mean, m2;
    TN_MEMBER void begin() { n = mean = m2 = 0; }
    /* a is number n, of which this is the inverse; n is set at the end. */
    TN_MEMBER void add(T a, T inverse) {
        const T d = a - mean;
        mean = tn_fma(d, inverse, mean);
        m2 = tn_fma(d, a - mean, m2);
    }
    template <class R> TN_MEMBER operator moments<R>() const { return {(R)n, (R)mean, (R)m2}; }
};
struct take_moments {
    template <class T> static TN_MEMBER moments<T> of(const moments<T> &a, const moments<T> &b) {
        const T n = a.n + b.n, part = n > 0 ? b.n / n : 0, d = b.mean - a.mean;
        /* d alone is squared nowhere: beside nothing it is a mean, and its square may be infinite */
        return {n, tn_fma(d, part, a.mean), tn_fma(d * (a.n * part), d, a.m2 + b.m2)};
    }
    template <class M> static TN_MEMBER M none() { return {0, 0, 0}; }
};
template <class T> TN_DEVICE moments<T> from_lane(const moments<T> &a, u32 o) {
    return {from_lane(a.n, o), from_lane(a.mean, o), from_lane(a.m2, o)};
}
template <class T, class To> TN_DEVICE void narrow(const moments<T> &a, To &to) { narrow(a.m2, to); }
/* Any number narrows to these two, moments as well: which is meant has to be said. */
template <class T> TN_DEVICE void narrow(const moments<T> &a, f16 &to) { narrow(a.m2, to); }
template <class T> TN_DEVICE void narrow(const moments<T> &a, bf16 &to) { narrow(a.m2, to); }

/* A thread's numbers, of which it takes the first one away: that is one instruction for the mean and one for squares.
 * What they lose is as large as the squares of a thread's numbers are, of which this one's is among all. */
template <class T> struct deviation_partial {
    moments<T> all;
    T n, first, s, squares;
    TN_MEMBER void begin() {
        all.begin();
        n = first = s = squares = 0;
    }
    TN_MEMBER void add(T a) {
        first = n > 0 ? first : a;
        const T d = a - first;
        n += 1;
        s += d;
        squares = tn_fma(d, d, squares);
    }
    TN_MEMBER void fold() {
        const T mean = n > 0 ? s / n : 0, m2 = tn_fma(-mean, s, squares);
        all = take_moments::of(all, moments<T>{n, first + mean, m2 < 0 ? 0 : m2});
        n = first = s = squares = 0;
    }
    TN_MEMBER moments<T> total() {
        fold();
        return all;
    }
};

/* ---- of rows that begin anywhere (MODE 3) ------------------------------------------------------------------------ */

/* A thread's vector w holds the elements from N w - shift on (load_shifted). How a row is added up must not depend on
 * the shift: there is one partial for each place of a vector, and so each has elements that are a round of all threads
 * apart, whatever the shift is. Then those of the elements N t … N t + N - 1, of all rounds, are put together, some of
 * which the next thread has. */
template <class Op, class T, int N> struct slot_partials {
    short_partial<Op, T> slot[N];
    TN_MEMBER void begin() {
#pragma unroll
        for (int j = 0; j < N; j++) slot[j].begin();
    }
    TN_MEMBER short_partial<Op, T> &operator[](int j) { return slot[j]; }
};

template <class Op> struct order_matters {
    enum { value = true };
};
template <> struct order_matters<take_max_nan> {
    enum { value = false };
};
template <> struct order_matters<take_min_nan> {
    enum { value = false };
};

template <class Op, int N, class T> TN_DEVICE T join_some(const T *a) {
    T t[N];
#pragma unroll
    for (int j = 0; j < N; j++) t[j] = a[j];
#pragma unroll
    for (int half = N / 2; half; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) t[j] = Op::of(t[j], t[j + half]);
    }
    return t[0];
}

/* t[j] becomes t[j + shift] for the first half of them; bit by bit, since an index would need local memory. */
template <int BY, class T, int N> TN_DEVICE void move_down(T (&t)[N], u32 shift) {
    if constexpr (BY > 0) {
#pragma unroll
        for (int j = 0; j < N / 2 + BY - 1; j++) t[j] = choose(shift & BY, t[j + BY], t[j]);
        move_down<BY / 2>(t, shift);
    }
}

/* Of a thread's elements. What the last thread of a warp would have belongs to two warps: `rest` gets it, N numbers
 * for each warp of a row, and rest_total adds it. With at most 32 threads there is no such. */
template <class Op, u32 ACROSS, class T, int N>
TN_DEVICE T slots_total(const slot_partials<Op, T, N> &a, u32 shift, T *rest) {
    constexpr u32 LANES = ACROSS < 32 ? ACROSS : 32, WARPS = ACROSS / 32;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T t[2 * N];
#pragma unroll
    for (int j = 0; j < N; j++) t[j] = t[N + j] = a.slot[j].s;
    if (order_matters<Op>::value) {
        const u32 next = (lane & ~(LANES - 1)) | ((lane + 1) & (LANES - 1));
        if (ACROSS > 32 && (lane == 0 || lane == 31)) {
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (((u32)j < shift) == (lane == 0)) rest[(WARPS * N + warp * N + j - shift) % (WARPS * N)] = t[j];
            }
        }
#pragma unroll
        for (int j = 0; j < N - 1; j++) t[N + j] = __shfl_sync(0xffffffffu, t[j], next);
        move_down<N / 2>(t, shift);
    }
    const T all = join_some<Op, N>(t);
    return order_matters<Op>::value && ACROSS > 32 && lane == 31 ? Op::template none<T>() : all;
}

/* What warp w comes to, with what was left over. */
template <class Op, int N, class T> TN_DEVICE T rest_total(const T *warps, const T *rest, u32 w) {
    return order_matters<Op>::value ? Op::of(warps[w], join_some<Op, N>(rest + w * N)) : warps[w];
}

/* ---- sums that keep columns -------------------------------------------------------------------------------------- */

/* The totals of N of them, of which n are there, into a block's own place. */
template <int MODE, class T, class R, int N> TN_DEVICE void store_totals(T *p, i64 step, R (&r)[N], int n) {
    T y[N];
#pragma unroll
    for (int j = 0; j < N; j++) y[j] = r[j].total();
    if (MODE > 2) {
        for (int j = 0; j < N; j++) {
            if (is_in<MODE>(j, n)) p[j * step] = y[j];
        }
        return;
    }
    if (N > 1 && step == 1 && is_aligned(p)) return store_vector < T, N, MODE == 0 ? 1 : MODE > (p, y, n);
    store_apart<T, N>(p, step, y, n);
}

/* N of them where they are kept, in a thread's own place, and back. */
template <int N, class T> TN_DEVICE vec<T, N> load_totals(const T *p, i64 step, int n) {
    if (N > 1 && step == 1 && is_aligned(p)) return load_vector<T, N, 1>(p, n);
    return load_apart<T, N>(p, step, n);
}
template <int N, class T> TN_DEVICE void keep_totals(T *p, i64 step, const vec<T, N> &a, int n) {
    if (N > 1 && step == 1 && is_aligned(p)) return store_vector<T, N, 1>(p, a.v, n);
    store_apart<T, N>(p, step, a.v, n);
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

/* The partial results (pieces, size), `pitch` apart, of a sum become one; each block has `across` of them. */
struct finish_params {
    const char *from;
    char *to;
    i64 pieces, size, pitch, across, blocks;
};
template <int N> struct finishes { finish_params sum[N]; };

template <class Op, class T, class R, class To> TN_DEVICE void finish(const finish_params &p, i64 block) {
    __shared__ R slots[256];
    const u32 across = (u32)p.across, x = threadIdx.x % across, way = threadIdx.x / across, ways = 256 / across;
    const i64 i = block * across + x;
    R a = Op::template none<R>();
    if (i < p.size) {
#pragma unroll 8
        for (i64 k = way; k < p.pieces; k += ways) a = Op::of(a, (R)((const T *)p.from)[k * p.pitch + i]);
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
