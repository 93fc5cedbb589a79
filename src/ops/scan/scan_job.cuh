/* What scan_cuda.c tells the kernels of cumsum, cumprod, cummax and their gradients. */
#pragma once

#include "ops/sorting/keys.cuh"

enum {
    TNI_SCAN_THREADS = 256,
    TNI_SCAN_WARPS = TNI_SCAN_THREADS / 32,
    TNI_SCAN_LANE = 4,       /* elements of a lane that follow each other, of operators that read more than x */
    TNI_CUMMAX_LANE = 2,     /* the same of cummax, whose places are 8 bytes each */
    TNI_SCAN_COLUMN = 16,    /* elements of a thread along a column */
    TNI_SCAN_ROW_GROUP = 32, /* tiles of a group (scan_chain.cuh) */
    TNI_SCAN_COLUMN_GROUP = TNI_SCAN_WARPS,
    TNI_SCAN_CLEARING = 256, /* blocks, at most */
};

/* Tensors are (outer, n, inner). Place i of a row is element i, or with `reverse` element n - 1 - i. */
typedef struct tni_gpu_scan {
    const void *x, *y, *dy, *ddx; /* of cumsum and cumprod x alone, of the gradients as in scan.h */
    void *to, *gx, *gy, *gdy;     /* to: y, dx or values. NULL: not wanted */
    void *s;                      /* of the second gradient: s of scan.h for all elements, in acc(T) */
    long long *index;
    void *words; /* what tiles tell each other, of 64 bits each; where a row has more than one */
    long long n_words;
    long long rows, n, inner; /* rows: of a place along the axis, columns */
    long long tile, tiles;    /* elements of a tile: goes by n alone, as all that bits depend on */
    long long blocks;         /* of the first tiles of all rows; those of the second ones follow, … */
    tni_key_rule rule;
    int log_lanes, log_pieces; /* a piece is what that many lanes read at once of a row; pieces of a tile */
    int warps;                 /* of a tile */
    int reverse, exclusive, smallest;
    int aligned; /* a thread can read vectors of x and write those of y */
} tni_gpu_scan;
