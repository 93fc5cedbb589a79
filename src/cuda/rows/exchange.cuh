/* How the threads that have a row together put together what they know of it: first the lanes of each warp, then the
 * warps of the block, then the blocks of a cluster, each through shared memory and in a fixed order.
 *
 * V is a struct of COUNT numbers of type A. It has at(i), number i, and none(), what counts for nothing; join_warp(v)
 * gives all lanes of a warp what they know together. */
#pragma once

#include "rows.cuh"

template <class A, int COUNT> struct exchange { A warps[COUNT][32], blocks[COUNT][TNI_ROW_CLUSTER]; };

/* Of the first `count` <= 32 warps or blocks. */
template <class V, class A, int COUNT, int MOST> TN_DEVICE V join_shared(const A (&of)[COUNT][MOST], int count) {
    const int lane = threadIdx.x % 32;
    V v;
    if (lane < count) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) v.at(i) = of[i][lane];
    } else {
        v = V::none();
    }
    return join_warp(v);
}

template <class V, class A, int COUNT> TN_DEVICE V join_block(V v, exchange<A, COUNT> &x) {
    v = join_warp(v);
    if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) x.warps[i][threadIdx.x / 32] = v.at(i);
    }
    __syncthreads();
    return join_shared<V>(x.warps, blockDim.x / 32);
}

/* v: of a block. All blocks of the cluster have begun. */
template <class V, class A, int COUNT> TN_DEVICE V join_cluster(V v, exchange<A, COUNT> &x, int blocks) {
    if ((int)threadIdx.x < blocks) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) store_cluster(&x.blocks[i][cluster_rank()], threadIdx.x, v.at(i));
    }
    cluster_arrive();
    cluster_wait();
    return join_shared<V>(x.blocks, blocks);
}
