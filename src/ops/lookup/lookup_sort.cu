/* The kernels that sort the positions of an index (lookup_sort.cuh), and the one that finds their segments. */
#include "lookup_sort.cuh"

TN_DEVICE void sort_rank(const tni_sort &s) {
    __shared__ rank_shared shared;
    sort_by_rank(s, shared);
}

TN_DEVICE void sort_count(const tni_sort &s) {
    __shared__ u32 digits[TNI_SORT_DIGITS];
    count_digits(s, digits);
}

TN_DEVICE void sort_add(const tni_sort &s) {
    __shared__ u32 sums[TNI_SORT_THREADS / 32], total;
    add_counts(s, sums, total);
}

TN_DEVICE void sort_place(const tni_sort &s) {
    __shared__ sort_shared shared;
    place_digits(s, shared);
}

TN_DEVICE void find_segments(const tni_segments &s) {
    const u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (p < s.offsets.positions) s.segment[p] = find_segment(s.offsets, (u32)p);
}

TN_KERNEL(lookup_sort_rank, TNI_RANK_BLOCK *TNI_RANK_WAYS, (TN_PARAMS(tni_sort)), sort_rank(p))
TN_KERNEL(lookup_sort_count, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_count(p))
TN_KERNEL(lookup_sort_add, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_add(p))
TN_KERNEL(lookup_sort_place, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_place(p))
TN_KERNEL(lookup_sort_mark, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), mark_keys(p))
TN_KERNEL(lookup_sort_segments, TNI_SORT_THREADS, (TN_PARAMS(tni_segments)), find_segments(p))
