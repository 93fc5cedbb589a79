/* Whole rows into shared memory and out of it, by one thread (sm_90 and later). emulate.h stands in for the first
 * part. */
#pragma once

#include "vectors.cuh"

#ifndef TNI_CUDA_BULK
#define TNI_CUDA_BULK

namespace tn {

/* The block's dynamic shared memory, at a multiple of 16 bytes. */
TN_DEVICE words *dynamic_shared() {
    extern __shared__ __align__(16) words memory[];
    return memory;
}
/* The same at a multiple of 128, for rings of bulk copies. There are two functions because NVRTC 13 refuses an
 * alignment that is the argument of a template. */
TN_DEVICE words *dynamic_shared_128() {
    extern __shared__ __align__(128) words memory_128[];
    return memory_128;
}

#if __CUDA_ARCH__ >= 900
#define TN_BULK true
/* Barriers are in shared memory; each waits for one thread and its bytes at a time. One thread prepares all of them;
 * the block synchronises before the first is used. */
TN_DEVICE void bulk_prepare(u64 *barriers, int count) {
    for (int i = 0; i < count; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((u32)__cvta_generic_to_shared(barriers + i))
                     : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* How many bytes are to arrive before those who wait go on. */
TN_DEVICE void bulk_expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(barrier)),
                 "r"(bytes)
                 : "memory");
}
/* Multiples of 16 bytes, both sides aligned to 16. */
TN_DEVICE void bulk_fetch(void *to, const void *from, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (u32)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"((u32)__cvta_generic_to_shared(barrier))
                 : "memory");
}
/* Until everything has arrived; phase: 0 the first time, then 1, 0, … */
TN_DEVICE void bulk_wait(u64 *barrier, u32 phase) {
    asm volatile("{\n\t"
                 ".reg .pred there;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n\t"
                 "@!there bra again;\n\t"
                 "}" ::"r"((u32)__cvta_generic_to_shared(barrier)),
                 "r"(phase)
                 : "memory");
}
/* What this thread has written to shared memory may be sent, also by others that wait for it. */
TN_DEVICE void bulk_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* The other way: multiples of 16 bytes from shared memory, both sides aligned to 16. */
TN_DEVICE void bulk_send(void *to, const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"((u32)__cvta_generic_to_shared(from)), "r"(bytes)
                 : "memory");
}
/* Until everything that this thread has sent has been read, and its place can be written again. */
TN_DEVICE void bulk_sent() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
#else
#define TN_BULK false
TN_DEVICE void bulk_prepare(u64 *, int) {}
TN_DEVICE void bulk_expect(u64 *, u32) {}
TN_DEVICE void bulk_fetch(void *, const void *, u32, u64 *) {}
TN_DEVICE void bulk_wait(u64 *, u32) {}
TN_DEVICE void bulk_written() {}
TN_DEVICE void bulk_send(void *, const void *, u32) {}
TN_DEVICE void bulk_sent() {}
#endif

} // namespace tn

#endif

/* ---- rows that begin anywhere ------------------------------------------------------------------------------------ */

/* Bulk copies are of whole 16 bytes, so a copy lies within 16 bytes as its row does, and has what is beside it at both
 * ends. Nothing outside of a tensor is read: of its first and last row what lies in 16 bytes with something else is
 * missing, and is loaded by who needs it. */
#ifndef TN_NO_PARTIALS

namespace tn {

/* Those of a tensor's bytes that are in whole pieces of 16. */
struct whole_pieces {
    u64 low, high;
    template <class T>
    TN_MEMBER whole_pieces(const T *begin, const T *end) : low(((u64)begin + 15) & ~15ull), high((u64)end & ~15ull) {}
};

/* All pieces that the row lies in, from `row` on `bytes`: as many bytes arrive wherever it is, since others of the
 * tensor's come in place of those that are outside. */
template <class T>
TN_DEVICE void fetch_row(char *to, const T *row, u32 bytes, const whole_pieces &tensor, u64 *arrived) {
    const u64 from = (u64)row & ~15ull, past = from + bytes;
    u64 first = from < tensor.low ? tensor.low : from, last = past < tensor.high ? past : tensor.high;
    if (first < last)
        bulk_fetch(to + (first - from), (const void *)first, (u32)(last - first), arrived);
    else
        first = last = from;
    for (u64 at = from; at < past; at += 16) {
        if (at == first) at = last; /* those are on their way */
        if (at < past) bulk_fetch(to + (at - from), (const void *)tensor.low, 16, arrived);
    }
}

/* As load_row, of the copy of a row. */
template <u32 ACROSS, class T, int N, int U>
TN_DEVICE void take_row(vec<T, N> (&v)[U], const char *copy, const T *row, int n, u32 x, const whole_pieces &tensor) {
    constexpr int STEP = N * (int)ACROSS;
    const u32 lead = shift_of<N>(row);
    const int begin = (int)(N * x);
#pragma unroll
    for (int u = 0; u < U; u++) {
        const char *const at = copy + (u32)(begin + u * STEP) * sizeof(T);
        const bool there = begin + u * STEP < n;
        v[u] = shift_vector<T, N>(load_shared_if(at, there), load_shared_if(at + 16, there && lead), lead);
    }
    if ((u64)row >= tensor.low && (u64)(row + n) <= tensor.high) return;
#pragma unroll
    for (int u = 0; u < U; u++) {
        const int i = begin + u * STEP;
        if (i < n && ((u64)(row + i) < tensor.low || (u64)(row + (i + N < n ? i + N : n)) > tensor.high))
            v[u] = load_some<T, N>(row + i, some_left<N>(i, n));
    }
}

} // namespace tn

#endif
