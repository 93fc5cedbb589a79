/* Reductions over lanes of a warp, and over warps of a block. The order is fixed, and every lane gets the result. */
#pragma once

#include "math.cuh"

namespace tn {

/* What is reduced by. of: of two; none: of nothing. */
struct take_sum {
    template <class A> static TN_MEMBER A of(A a, A b) { return a + b; }
    static TN_MEMBER i64 of(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
    template <class A> static TN_MEMBER A none() { return 0; }
};
struct take_product {
    template <class A> static TN_MEMBER A of(A a, A b) { return a * b; }
    static TN_MEMBER i64 of(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
    template <class A> static TN_MEMBER A none() { return 1; }
};
/* A NaN does not win: kernels that must keep it see it in the sum that follows. */
struct take_max {
    static TN_MEMBER f32 of(f32 a, f32 b) { return fmaxf(a, b); }
    static TN_MEMBER f64 of(f64 a, f64 b) { return fmax(a, b); }
};
/* A NaN wins. */
struct take_max_nan {
    template <class A> static TN_MEMBER A of(A a, A b) { return tn_max(a, b); }
    template <class A> static TN_MEMBER A none() { return minus_infinity<A>(); }
};
struct take_min_nan {
    template <class A> static TN_MEMBER A of(A a, A b) { return tn_min(a, b); }
    template <class A> static TN_MEMBER A none() { return infinity<A>(); }
};

/* What the lane has whose number differs by these bits. */
template <class A> TN_DEVICE A from_lane(const A &a, u32 bits) { return __shfl_xor_sync(0xffffffffu, a, bits, 32); }

/* Over groups of LANES neighbouring lanes, a power of 2 up to 32. */
template <class Op, int LANES, class A> TN_DEVICE A reduce_lanes(A a) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) a = Op::of(a, from_lane(a, (u32)d));
    return a;
}

/* Over groups of `lanes` neighbouring lanes, a power of 2 that all threads agree on. */
template <class Op, class A> TN_DEVICE A reduce_some_lanes(A a, int lanes) {
    for (int d = lanes / 2; d > 0; d /= 2) a = Op::of(a, __shfl_xor_sync(0xffffffffu, a, d, 32));
    return a;
}

/* The same where `lanes` may be more than a warp has: over the whole warp then. */
template <class Op, class A> TN_DEVICE A reduce_warp_lanes(A a, u32 lanes) {
    return lanes >= 32 ? reduce_lanes<Op, 32>(a) : reduce_some_lanes<Op>(a, (int)lanes);
}

/* Over `count` numbers, at most 32, by every warp that calls it. */
template <class Op, class A> TN_DEVICE A reduce_few(const A *a, u32 count) {
    const u32 lane = threadIdx.x % 32;
    return reduce_lanes<Op, 32>(lane < count ? a[lane] : Op::template none<A>());
}

/* Over a block of `threads`, which takes turns with itself: slots, of each warp one, may be in use until now. */
template <class Op, class A> TN_DEVICE A reduce_block(A a, u32 threads, A *slots) {
    a = reduce_lanes<Op, 32>(a);
    __syncthreads();
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = a;
    __syncthreads();
    return reduce_few<Op>(slots, threads / 32);
}

/* The smallest power of 2 that is not below n. */
TN_DEVICE u32 power_of_2_from(u32 n) {
    u32 p = 1;
    while (p < n) p *= 2;
    return p;
}

} // namespace tn
