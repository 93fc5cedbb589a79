/* What move_cuda.c tells the kernels of move.cu. */
#pragma once

#include "cuda/copy/chunk.cuh"
#include "maps.cuh"

enum { TNI_MOVE_DIMS = 16, TNI_MOVE_PARTS = 128 };
/* Chunks of a thread of rows that are short, where elements have `size` bytes: 16 elements, or 4 chunks. */
#define TNI_SHORT_ITEMS(size) ((size) < 4 ? (int)(size) : 4)

/* Strides in elements; `dims` has the dimensions around the rows, the first is the fastest. */
typedef struct tni_move_job {
    tni_chunks
        chunks; /* where elements of a row lie apart, of single elements, and only `to`, counts and divisor hold */
    const void *from;
    int n_dims;  /* around the rows */
    tni_map map; /* of the row */
    long long step, apart;
    unsigned constant[4]; /* 16 bytes of what lies outside */
    struct {
        tni_map map;
        tni_divisor divisor;
        long long to, from;
    } dims[TNI_MOVE_DIMS];
} tni_move_job;

/* Dense tensors whose rows become parts of the rows of another. Of each tensor there is only what the kernel cannot
 * find out: so many of them fit into the 4 KiB that a launch may pass. */
typedef struct tni_parts {
    void *to;
    long long rows, n; /* n: elements of a row of the result */
    int count;         /* of parts */
    int aligned;       /* rows of the result begin at multiples of 16 bytes if it does */
    int is_short;      /* every part has fewer than 2^31 chunks: the divisors serve */
    unsigned first_block[TNI_MOVE_PARTS];
    const void *from[TNI_MOVE_PARTS];
    long long at[TNI_MOVE_PARTS + 1]; /* where in a row of the result each part begins, and the last one ends */
    struct {
        unsigned magic, shift;
    } per_row[TNI_MOVE_PARTS]; /* to divide by the chunks of a part's row */
} tni_parts;
