/* Shared memory that is filled while the thread goes on (sm_80 and later). emulate.h stands in for this file, too. */
#ifndef TNI_CUDA_ASYNC_COPY
#define TNI_CUDA_ASYNC_COPY

#include "instructions.cuh"

namespace tn {

TN_DEVICE words load_shared(const words *p) {
    words r;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
                 : "r"((u32)__cvta_generic_to_shared(p)));
    return r;
}

#if __CUDA_ARCH__ >= 800
#define TN_COPY_ASYNC 1
/* 16 bytes from global memory, of which `bytes` are there; the others become 0. */
TN_DEVICE void copy_some_async(words *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}
/* What has been asked for since the last time becomes a group. */
TN_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until all groups but the last GROUPS ones are there, for this thread. */
template <int GROUPS> TN_DEVICE void copy_wait_for() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
/* Until everything that this thread has asked for is there, for this thread. */
TN_DEVICE void copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
#define TN_COPY_ASYNC 0
TN_DEVICE void copy_some_async(words *, const void *, int) {}
TN_DEVICE void copy_commit() {}
template <int GROUPS> TN_DEVICE void copy_wait_for() {}
TN_DEVICE void copy_wait() {}
#endif
/* All of them, or none. */
TN_DEVICE void copy_async(words *to, const void *from, bool there) { copy_some_async(to, from, there ? 16 : 0); }

} // namespace tn

#endif
