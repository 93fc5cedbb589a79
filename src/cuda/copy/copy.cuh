/* What copy.c tells the kernels of copy.cu. */
#pragma once

#include "walk.cuh"

enum {
    TNI_COPY_THREADS = 256,
    TNI_COPY_ITEMS = 8,     /* elements of a thread: that many loads are under way at once */
    TNI_COPY_FEW_ITEMS = 4, /* where they are 16 bytes, or counted in 64 bits */
    TNI_TILE_GROUPS = 16    /* a transposing tile's edge, in 16 bytes; of tiles of single bytes, half as much */
};

/* View 0 is what is written, view 1 what is read. */
typedef struct tni_copy_lines {
    void *to;
    const void *from;
    tni_walk walk;
} tni_copy_lines;

/* to[i * to_i + j * to_j] = from[i * from_i + j * from_j] for i < n_i, j < n_j, and for each of the outer steps. to is
 * fast along i, from along j. */
typedef struct tni_copy_tiles {
    void *to;
    const void *from;
    long long n_i, n_j, to_i, to_j, from_i, from_j;
    long long tiles_i, tiles_j;
    int wide_to, wide_from; /* whole tiles may be written, read 16 bytes at a time */
    tni_walk outer;
} tni_copy_tiles;
