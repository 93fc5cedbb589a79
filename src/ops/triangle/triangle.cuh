/* What triangle_cuda.c tells the kernels of triangle.cu. */
#pragma once

#include "cuda/copy/chunk.cuh"

/* Strides in elements, of the result and of the operand. See triangle.h. */
typedef struct tni_triangle {
    void *to;
    const void *from;
    const void *low, *high;
    tni_walk matrices;
    long long n, lines, line_step[2], step[2], offset;
    long long count, per_line; /* chunks, or elements */
    tni_divisor per_line_divisor, lines_divisor;
    int is_short, from_start;
} tni_triangle;
