/* What rope_cuda.c tells the kernels of rope.cu. */
#pragma once

#include "cuda/rows/rows.cuh"

enum { ROPE_THREADS = 256 };
enum { ROPE_F16, ROPE_BF16, ROPE_F32, ROPE_F64 }; /* what cos and sin may be */

typedef struct tni_rope {
    tni_gpu_rows rows; /* of x, y, cos and sin; x's have 2 * pairs elements */
    const void *x, *cos, *sin;
    void *y;
    long long pairs;
    long long pieces; /* of a row: of as many pairs as 16 bytes have elements, or of one */
    int angles;       /* ROPE_F16 … */
    int back;         /* turn back: the gradient */
} tni_rope;
