/* Clusters: blocks that see each other's shared memory (sm_90 and later). A block without a cluster is one by
 * itself. emulate.h of the tests stands in for this file. */
#ifndef TNI_CUDA_CLUSTER
#define TNI_CUDA_CLUSTER

#include "instructions.cuh"

namespace tn {

#if __CUDA_ARCH__ >= 900
/* This block's number in its cluster, and the cluster's number; a block without a cluster is one by itself. */
TN_DEVICE u32 cluster_rank() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
TN_DEVICE u32 cluster_index() {
    u32 r;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(r));
    return r;
}
/* How many blocks it has. */
TN_DEVICE u32 cluster_blocks() {
    u32 r;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}
/* Every thread of every block arrives; what was written before is seen after the wait. */
TN_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TN_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/* Only that every block has begun, which must be before its shared memory is written. */
TN_DEVICE void cluster_begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
TN_DEVICE u32 cluster_address(const void *shared, u32 rank) {
    u32 local = (u32)__cvta_generic_to_shared(shared), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(local), "r"(rank));
    return there;
}
/* Writes into block `rank`'s copy of a shared variable. */
TN_DEVICE void store_cluster(float *shared, u32 rank, float a) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address(shared, rank)), "f"(a) : "memory");
}
TN_DEVICE void store_cluster(double *shared, u32 rank, double a) {
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(cluster_address(shared, rank)), "d"(a) : "memory");
}
/* A number of any other type of 4 or 8 bytes. */
template <class A> TN_DEVICE void store_cluster(A *shared, u32 rank, A a) {
    static_assert(sizeof(A) == 4 || sizeof(A) == 8, "a number of 4 or 8 bytes");
    if constexpr (sizeof(A) == 4) {
        asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address(shared, rank)), "r"(a) : "memory");
    } else {
        asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(cluster_address(shared, rank)), "l"(a) : "memory");
    }
}
#else
TN_DEVICE u32 cluster_rank() { return 0; }
TN_DEVICE u32 cluster_index() { return blockIdx.x; }
TN_DEVICE u32 cluster_blocks() { return 1; }
TN_DEVICE void cluster_begin() {}
TN_DEVICE void cluster_arrive() {}
TN_DEVICE void cluster_wait() {}
template <class A> TN_DEVICE void store_cluster(A *shared, u32 rank, A a) { shared[rank] = a; }
#endif

} // namespace tn

#endif
