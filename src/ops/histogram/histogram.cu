/* histogram: x: (n), counts: (bins). A block counts in shared memory, in as many copies as there is room for, and adds
 * what it has found to all counts. Only integers are added, so their order does not matter. */
#include "histogram.cuh"

TN_DEVICE double edge_of(const tni_histogram &p, i64 i) {
    return i == p.bins ? p.high : __fma_rn((double)i, p.width, p.low);
}

/* The bin of a number, or -1. */
TN_DEVICE i64 bin_of(const tni_histogram &p, double x) {
    if (!(x >= p.low && x <= p.high)) return -1;
    i64 bin = min((i64)((x - p.low) * p.per_width), p.bins - 1);
    while (x < edge_of(p, bin)) bin--;
    while (bin + 1 < p.bins && x >= edge_of(p, bin + 1)) bin++;
    return bin;
}

TN_DEVICE void clear_counts(const tni_histogram &p) {
    const i64 i = (i64)blockIdx.x * HISTOGRAM_THREADS + threadIdx.x;
    if (i < p.bins) p.counts[i] = 0;
}

template <class T> TN_DEVICE void count_shared(const tni_histogram &p) {
    __shared__ u32 counts[HISTOGRAM_SHARED];
    const int bins = (int)p.bins, all = bins * p.copies;
    const i64 stride = (i64)gridDim.x * HISTOGRAM_THREADS;
    u32 *const own = counts + (int)(threadIdx.x / 32) % p.copies * bins;
    for (int i = threadIdx.x; i < all; i += HISTOGRAM_THREADS) counts[i] = 0;
    __syncthreads();
    for (i64 i = (i64)blockIdx.x * HISTOGRAM_THREADS + threadIdx.x; i < p.n; i += 4 * stride) {
        T v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = i + k * stride < p.n ? ((const T *)p.x)[i + k * stride] : T{};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const i64 bin = i + k * stride < p.n ? bin_of(p, (double)widen(v[k])) : -1;
            if (bin >= 0) atomicAdd(&own[bin], 1u);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < bins; i += HISTOGRAM_THREADS) {
        u64 sum = 0;
        for (int c = 0; c < p.copies; c++) sum += counts[c * bins + i];
        if (sum) atomicAdd(&p.counts[i], (unsigned long long)sum);
    }
}

template <class T> TN_DEVICE void count_global(const tni_histogram &p) {
    const i64 stride = (i64)gridDim.x * HISTOGRAM_THREADS;
    for (i64 i = (i64)blockIdx.x * HISTOGRAM_THREADS + threadIdx.x; i < p.n; i += stride) {
        const i64 bin = bin_of(p, (double)widen(((const T *)p.x)[i]));
        if (bin >= 0) atomicAdd(&p.counts[bin], 1ull);
    }
}

#define HISTOGRAM(T, name)                                                                          \
    TN_ROW_KERNEL(histogram_shared_##name, HISTOGRAM_THREADS, 2, tni_histogram, count_shared<T>(p)) \
    TN_ROW_KERNEL(histogram_global_##name, HISTOGRAM_THREADS, 2, tni_histogram, count_global<T>(p))

TN_ROW_KERNEL(histogram_clear, HISTOGRAM_THREADS, 2, tni_histogram, clear_counts(p))
TN_FOR_TYPES(HISTOGRAM)
HISTOGRAM(signed char, i8)
HISTOGRAM(unsigned char, u8)
HISTOGRAM(short, i16)
HISTOGRAM(int, i32)
HISTOGRAM(long long, i64)
