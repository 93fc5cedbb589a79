/* Sums over the threads that have a row together: pairs of numbers, in a fixed order. */
#pragma once

#include "rows.cuh"

template <class A> struct two { A a, b; };

template <class A> TN_DEVICE two<A> add_lanes(const two<A> &v, int lanes) {
    return {reduce_some_lanes<take_sum>(v.a, lanes), reduce_some_lanes<take_sum>(v.b, lanes)};
}

/* What warps, and blocks of a cluster, tell each other. */
template <class A> struct sum_exchange { A a[32], b[32], cluster_a[TNI_ROW_CLUSTER], cluster_b[TNI_ROW_CLUSTER]; };

template <class A> TN_DEVICE two<A> add_shared(const A *a, const A *b, int count) {
    const int lane = threadIdx.x % 32;
    return add_lanes(lane < count ? two<A>{a[lane], b[lane]} : two<A>{0, 0}, 32);
}

/* Some lanes of a warp. */
struct lane_sums {
    int lanes;

    template <class A> TN_MEMBER two<A> add(const two<A> &v) {
        return add_lanes(v, lanes);
    }
};

/* A block or a cluster of blocks, which have all begun. Exchanges take turns: what one leaves behind is read before the
 * next but one writes, because everybody has been at the barrier in between. */
template <class A> struct block_sums {
    sum_exchange<A> *shared; /* (2) */
    int blocks;
    u32 turn;

    TN_MEMBER two<A> add(two<A> v) {
        sum_exchange<A> &x = shared[turn++ % 2];
        v = add_lanes(v, 32);
        if (threadIdx.x % 32 == 0) {
            x.a[threadIdx.x / 32] = v.a;
            x.b[threadIdx.x / 32] = v.b;
        }
        __syncthreads();
        v = add_shared(x.a, x.b, blockDim.x / 32);
        if (blocks == 1) return v;
        if ((int)threadIdx.x < blocks) {
            store_cluster(&x.cluster_a[cluster_rank()], threadIdx.x, v.a);
            store_cluster(&x.cluster_b[cluster_rank()], threadIdx.x, v.b);
        }
        cluster_arrive();
        cluster_wait();
        return add_shared(x.cluster_a, x.cluster_b, blocks);
    }
};
