/* What triangle_cuda.c tells the kernels of triangle.cu. */
#pragma once

#include "cuda/copy/chunk.cuh"

/* Strides in elements, of the result and of the operand. See triangle.h. */
typedef struct tni_triangle {
    tni_chunks chunks; /* of lines; where elements of a line lie apart, single elements, and only `to`, counts and
                          divisor hold */
    const void *from;
    tni_walk matrices;
    long long n, lines, line_step[2], step[2], offset;
    tni_divisor by_lines;
    int from_start;
} tni_triangle;
