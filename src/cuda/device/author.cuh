/* tenon/device.cuh: device code for kernels of your own. The kernels of Tenon's table are written with it.
 *
 * Include it in a .cu file for nvcc (-I as `tenon flags --cflags` says) or in a text for NVRTC, where Tenon brings it
 * along. It includes nothing, needs C++17 and compiles for sm_75 and later. Everything is in namespace tn: write
 * tn::block_sum(a, shared), and avoid `using namespace tn`, which makes names such as exp ambiguous.
 *
 * docs/cuda.md describes each function. */
#pragma once

#include "async_copy.cuh"
#include "bulk.cuh"
#include "cluster.cuh"
#include "kernel.cuh"
#include "math.cuh"
#include "packs.cuh"
#include "random.cuh"
#include "reduce.cuh"
#include "vectors.cuh"

/* ---- simple forms, for authors ----------------------------------------------------------------------------------- */

namespace tn {

/* What sums and maxima of T are made in: float for f16 and bf16, T itself for all others. */
template <class T> struct wide_of { typedef T type; };
template <> struct wide_of<f16> { typedef f32 type; };
template <> struct wide_of<bf16> { typedef f32 type; };
template <class T> using wide = typename wide_of<T>::type;

/* ---- which thread ------------------------------------------------------------------------------------------------ */

/* This thread's place among all of the grid along x, and how many there are: 64 bits, which large tensors need. */
TN_DEVICE i64 global_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
TN_DEVICE i64 global_threads() { return (i64)gridDim.x * blockDim.x; }

/* This thread's place in its block, x first, and how many threads a block has. */
TN_DEVICE u32 block_thread() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
TN_DEVICE u32 block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* N elements from p on, N a power of 2: at once where p is aligned to them, else one by one. */
template <int N, class T> TN_DEVICE vec<T, N> load(const T *p) {
    static_assert((N & (N - 1)) == 0, "N is a power of 2");
    if (((u64)p & (alignof(vec<T, N>) - 1)) == 0) return *(const vec<T, N> *)p;
    vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = p[i];
    return r;
}
/* The same at the end of an array: `left` elements are there, and the others are 0. */
template <int N, class T> TN_DEVICE vec<T, N> load(const T *p, i64 left) {
    if (left >= N) return load<N>(p);
    vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = i < left ? p[i] : T{};
    return r;
}

template <int N, class T> TN_DEVICE void store(T *p, const vec<T, N> &a) {
    static_assert((N & (N - 1)) == 0, "N is a power of 2");
    if (((u64)p & (alignof(vec<T, N>) - 1)) == 0) {
        *(vec<T, N> *)p = a;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) p[i] = a.v[i];
}
template <int N, class T> TN_DEVICE void store(T *p, const vec<T, N> &a, i64 left) {
    if (left >= N) {
        store(p, a);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i < left) p[i] = a.v[i];
    }
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Of numbers of every type; a NaN wins. */
struct take_largest {
    template <class A> static TN_MEMBER A of(A a, A b) { return a > b || a != a ? a : b; }
    static TN_MEMBER f32 of(f32 a, f32 b) { return max_nan(a, b); }
};
struct take_smallest {
    template <class A> static TN_MEMBER A of(A a, A b) { return a < b || a != a ? a : b; }
    static TN_MEMBER f32 of(f32 a, f32 b) { return min_nan(a, b); }
};

/* Over a warp that has `lanes` threads: all but the last one of a block have 32. */
template <class Op, class A> TN_DEVICE A reduce_whole_warp(A a, u32 lanes) {
    if (lanes == 32) return reduce_lanes<Op, 32>(a);
    const u32 there = (1u << lanes) - 1, lane = block_thread() % 32;
    for (u32 d = 16; d > 0; d /= 2) {
        const A other = __shfl_down_sync(there, a, d);
        if (lane + d < lanes) a = Op::of(a, other);
    }
    return __shfl_sync(there, a, 0);
}

/* Over a block of any shape and size. `shared`: 32 numbers, which may be in use until now. */
template <class Op, class A> TN_DEVICE A reduce_whole_block(A a, A *shared) {
    const u32 threads = block_threads(), thread = block_thread(), warp = thread / 32;
    a = reduce_whole_warp<Op>(a, threads - warp * 32 < 32 ? threads - warp * 32 : 32);
    __syncthreads();
    if (thread % 32 == 0) shared[warp] = a;
    __syncthreads();
    a = shared[0];
    for (u32 w = 1; w < ceil_div(threads, 32u); w++) a = Op::of(a, shared[w]);
    return a;
}

/* Over the blocks of a cluster. `shared`: 48 numbers, the last 16 for one of each block. */
template <class Op, class A> TN_DEVICE A reduce_whole_cluster(A a, A *shared) {
    const u32 blocks = cluster_blocks();
    a = reduce_whole_block<Op>(a, shared);
    if (blocks == 1) return a;
    cluster_arrive(); /* every block has begun, and is done with the numbers of the last time */
    cluster_wait();
    for (u32 r = block_thread(); r < blocks; r += block_threads()) store_cluster(shared + 32 + cluster_rank(), r, a);
    cluster_arrive();
    cluster_wait();
    a = shared[32];
    for (u32 r = 1; r < blocks; r++) a = Op::of(a, shared[32 + r]);
    return a;
}

#define TN_REDUCE(name, Op)                                                                            \
    template <class T> TN_DEVICE wide<T> warp_##name(T a) { return reduce_lanes<Op, 32>((wide<T>)a); } \
    template <class T> TN_DEVICE wide<T> block_##name(T a, wide<T> *shared) {                          \
        return reduce_whole_block<Op>((wide<T>)a, shared);                                             \
    }                                                                                                  \
    template <class T> TN_DEVICE wide<T> cluster_##name(T a, wide<T> *shared) {                        \
        return reduce_whole_cluster<Op>((wide<T>)a, shared);                                           \
    }
TN_REDUCE(sum, take_sum)
TN_REDUCE(max, take_largest)
TN_REDUCE(min, take_smallest)
#undef TN_REDUCE

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* Number i of the sequence that belongs to `seed`: the same on every GPU, whichever thread asks. From 0 to 1, 1
 * excluded. */
TN_DEVICE f32 random(i64 seed, i64 i) {
    f32 y[1];
    random_numbers(seed, 0, 0, i, y);
    return y[0];
}
/* Normal: mean 0, variance 1. Another sequence than that of random. */
TN_DEVICE f32 random_normal(i64 seed, i64 i) {
    u32 c[4];
    philox(seed, 0, 1, (u64)i, c);
    const f32 u = ((f32)(c[0] >> 8) + 0.5f) * 0x1p-24f, v = (f32)(c[1] >> 8) * 0x1p-24f;
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318531f * v);
}

/* ---- mathematics ------------------------------------------------------------------------------------------------- */

/* What a function of an A is computed in: float for f16 and bf16, 64 bits for whole numbers. */
template <class A> struct real_of { typedef i64 type; };
template <> struct real_of<f32> { typedef f32 type; };
template <> struct real_of<f64> { typedef f64 type; };
template <> struct real_of<f16> { typedef f32 type; };
template <> struct real_of<bf16> { typedef f32 type; };
template <class A> using real = typename real_of<A>::type;
/* What A + B is. */
template <class A, class B> using both = decltype(wide<A>() + wide<B>());

/* The functions of formulas, under their names there. */
#define TN_FUNCTION(name) \
    template <class A> TN_DEVICE real<A> name(A a) { return tn_##name((real<A>)a); }
TN_FUNCTION(abs)
TN_FUNCTION(sign)
TN_FUNCTION(floor)
TN_FUNCTION(round)
TN_FUNCTION(sqrt)
TN_FUNCTION(rsqrt)
TN_FUNCTION(exp)
TN_FUNCTION(expm1)
TN_FUNCTION(log)
TN_FUNCTION(log1p)
TN_FUNCTION(sin)
TN_FUNCTION(cos)
TN_FUNCTION(tanh)
TN_FUNCTION(erf)
TN_FUNCTION(relu)
TN_FUNCTION(sigmoid)
TN_FUNCTION(softplus)
#undef TN_FUNCTION
template <class A> TN_DEVICE real<A> silu(A a) { return tn_times_sigmoid((real<A>)a, (real<A>)a); }
template <class A> TN_DEVICE real<A> gelu(A a) {
    return (real<A>)a * tn_half_erf((real<A>)a * (real<A>)0.70710678118654752);
}
template <class A, class B> TN_DEVICE real<both<A, B>> pow(A a, B b) {
    return tn_pow((real<both<A, B>>)a, (real<both<A, B>>)b);
}
/* The sign is that of b. */
template <class A, class B> TN_DEVICE real<both<A, B>> mod(A a, B b) {
    return tn_mod((real<both<A, B>>)a, (real<both<A, B>>)b);
}
template <class A, class B, class C> TN_DEVICE both<both<A, B>, C> fma(A a, B b, C c) {
    typedef both<both<A, B>, C> number;
    return tn_fma((number)a, (number)b, (number)c);
}
/* A NaN wins. */
template <class A, class B> TN_DEVICE both<A, B> max(A a, B b) {
    return take_largest::of((both<A, B>)a, (both<A, B>)b);
}
template <class A, class B> TN_DEVICE both<A, B> min(A a, B b) {
    return take_smallest::of((both<A, B>)a, (both<A, B>)b);
}

} // namespace tn
