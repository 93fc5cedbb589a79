/* Gradients of sort and top_k: values go to where their indices say. No two of a row say the same, so the result does
 * not depend on who is first. */
#include "sorting.cuh"

enum { TOGETHER = 4 };

/* dvalues: (outer, k, inner), dx: (outer, n, inner). */
template <class S> TN_DEVICE void scatter(const tni_sort_grad &p) {
    const i64 stride = (i64)gridDim.x * blockDim.x, block = p.k * p.inner;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += stride * TOGETHER) {
        i64 to[TOGETHER];
        S value[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const i64 from = i + j * stride;
            to[j] = from < p.count ? p.index[from] : -1;
            value[j] = from < p.count ? ((const S *)p.dvalues)[from] : 0;
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            if (to[j] < 0 || to[j] >= p.n) continue; /* no place of the row */
            const u64 from = (u64)(i + j * stride);
            const u64 outer = from >> 32 ? from / (u64)block : (u32)from / (u32)block;
            const u64 rest = from - outer * (u64)block;
            const u64 column = p.inner == 1 ? 0 : rest >> 32 ? rest % (u64)p.inner : (u32)rest % (u32)p.inner;
            ((S *)p.dx)[(outer * p.n + to[j]) * p.inner + column] = value[j];
        }
    }
}

TN_ROW_KERNEL(sorting_scatter_u16, 256, 4, tni_sort_grad, scatter<u16>(p))
TN_ROW_KERNEL(sorting_scatter_u32, 256, 4, tni_sort_grad, scatter<u32>(p))
TN_ROW_KERNEL(sorting_scatter_u64, 256, 4, tni_sort_grad, scatter<u64>(p))

/* Sets memory to 0: gradients that nothing is written to, and what passes count with. */
TN_DEVICE void clear(const tni_sort_clear &p) {
    const i64 stride = (i64)gridDim.x * blockDim.x, first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 to_even = (i64)(-(u64)p.begin & 15), lead = to_even < p.bytes ? to_even : p.bytes;
    const i64 pieces = (p.bytes - lead) / 16, end = lead + pieces * 16;
    char *begin = (char *)p.begin;
    for (i64 i = first; i < pieces; i += stride) store_words(begin + lead + i * 16, words{});
    if (first * 2 < lead) *(u16 *)(begin + first * 2) = 0;
    if (end + first * 2 < p.bytes) *(u16 *)(begin + end + first * 2) = 0;
}

TN_ROW_KERNEL(sorting_clear, 256, 8, tni_sort_clear, clear(p))
