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

/* ---- vectors of a type of their own: gamma, beta ---------------------------------------------------------------------- */

template <class W, int V> struct alignas(sizeof(W) * V > 16 ? 16 : sizeof(W) * V) several { W v[V]; };

template <class W, int V, class A> TN_DEVICE void read_several(const tni_vector &v, i64 i, A (&to)[V]) {
    const W *from = (const W *)v.data;
    if (V > 1 && v.step == 1 && is_aligned(from)) {
        const several<W, V> all = *(const several<W, V> *)(from + i);
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = (A)widen(all.v[j]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = (A)widen(from[(i + j) * v.step]);
    }
}

/* V numbers from i on, a multiple of V; `absent` where there is no vector. */
template <int V, class A> TN_DEVICE void read_vector(const tni_vector &v, i64 i, A absent, A (&to)[V]) {
    if (!v.data) {
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = absent;
    } else if (v.type == TNI_VECTOR_F32) {
        read_several<float>(v, i, to);
    } else if (v.type == TNI_VECTOR_BF16) {
        read_several<bf16>(v, i, to);
    } else if (v.type == TNI_VECTOR_F16) {
        read_several<f16>(v, i, to);
    } else {
        read_several<double>(v, i, to);
    }
}

template <class A> TN_DEVICE void write_vector(const tni_vector &v, i64 i, A a) {
    if (v.type == TNI_VECTOR_F32) {
        ((float *)v.data)[i * v.step] = (float)a;
    } else if (v.type == TNI_VECTOR_BF16) {
        narrow((float)a, ((bf16 *)v.data)[i * v.step]);
    } else if (v.type == TNI_VECTOR_F16) {
        narrow((float)a, ((f16 *)v.data)[i * v.step]);
    } else {
        ((double *)v.data)[i * v.step] = (double)a;
    }
}
