/* What copy.c tells the kernels of copy.cu. */
#pragma once

#include "chunk.cuh"

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

/* Rows of elements side by side in both views, that begin anywhere. */
typedef struct tni_copy_rows {
    tni_chunks chunks;
    const void *from;
    tni_walk outer;
} tni_copy_rows;

/* How the lines of a tile are read or written: one element at a time, 16 bytes at a time, or 16 bytes at a time from or
 * to anywhere. */
enum { TNI_TILE_NARROW, TNI_TILE_WIDE, TNI_TILE_ANYWHERE };

/* A dimension of the tiles. Where it is short, another one is stacked on it: index i is then step i % 2^shift of the
 * one and i >> shift of the other. */
typedef struct tni_tile_dim {
    long long size, tiles;
    long long to, from; /* strides */
    int shift;          /* 62: nothing is stacked */
    long long stack_to, stack_from;
} tni_tile_dim;

/* to[i, j] = from[i, j] for i < i.size, j < j.size, and for each of the outer steps. to is fast along i, from along
 * j. */
typedef struct tni_copy_tiles {
    void *to;
    const void *from;
    const void *low, *high; /* the memory of `from`, beyond which nothing is read */
    tni_tile_dim i, j;
    int writes, reads; /* TNI_TILE_… */
    tni_walk outer;
} tni_copy_tiles;
