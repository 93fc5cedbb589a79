/* What histogram_cuda.c tells the kernels of histogram.cu. */
#pragma once

enum {
    HISTOGRAM_THREADS = 512,
    HISTOGRAM_SHARED = 8192, /* most counts that a block keeps in its shared memory */
    HISTOGRAM_COPIES = 16,   /* most copies of them, so that fewer threads meet in one: each warp has one of these */
};

typedef struct tni_histogram {
    const void *x;
    unsigned long long *counts; /* (bins) */
    long long n, bins;
    double low, high, width, per_width;
    int copies; /* in shared memory; 0: counted in `counts` itself */
} tni_histogram;

#ifdef __CUDACC__
#include "cuda/device/device.cuh"
#endif
