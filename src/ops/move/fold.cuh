/* What fold_cuda.c tells the kernels of fold.cu. */
#pragma once

#include "cuda/copy/walk.cuh"
#include "maps.cuh"

enum { TNI_FOLD_THREADS = 256, TNI_FOLD_DIMS = 16, TNI_FOLD_NEAR = 2, TNI_FOLD_DEEP = 64 };

/* An output is the sum of all elements of the input that it became. Strides in elements; the first dimension is the
 * fastest. */
typedef struct tni_fold_job {
    const void *from; /* the input, which the map's result is */
    void *to;         /* the output, its operand */
    long long count;  /* outputs */
    int is_short;
    int n_dims;
    int near[TNI_FOLD_NEAR]; /* two dimensions that have several sources, gone through in loops; -1: none */
    int n_far;               /* further ones */
    struct {
        tni_map map;
        tni_divisor divisor; /* of map.n */
        long long from, to;
        int far; /* which of the further ones; -1: none of them */
    } dims[TNI_FOLD_DIMS];
} tni_fold_job;
