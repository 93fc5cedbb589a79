/* What softmax_cuda.c tells the kernels of softmax.cu and softmax_grad.cu. */
#pragma once

#include "cuda/rows/row_kernels.cuh"
#include "cuda/rows/tile.cuh"

enum { SOFTMAX_X, SOFTMAX_Y, SOFTMAX_MASK, SOFTMAX_QUERY, SOFTMAX_VIEWS };
enum { SOFTMAX_GRAD_Y, SOFTMAX_GRAD_DY, SOFTMAX_GRAD_DX, SOFTMAX_GRAD_VIEWS };

enum { SOFTMAX_TILE_MOST = 36 };    /* elements that a lane has of a row that goes through shared memory */
enum { SOFTMAX_FEW_THREADS = 512 }; /* of a block, where there are so few columns that each has one */

/* How rows are shared out. */
typedef struct tni_softmax_shape {
    tni_gpu_rows rows;
    int lanes, cluster;            /* lanes of a row; blocks of a row */
    int tile;                      /* rows of a block that takes short ones through shared memory */
    int splits;                    /* pieces of a row that no cluster holds */
    long long split;               /* elements of one */
    int ways;                      /* columns: threads that share one */
    long long columns;             /* columns: neighbours in memory, for each of the rows */
    long long step[TNI_ROW_VIEWS]; /* columns: along the axis, in elements */
    long long across_mask;         /* columns: from a column to the next */
} tni_softmax_shape;

typedef struct tni_softmax {
    tni_softmax_shape s;
    const void *x, *mask; /* mask NULL: none */
    void *y, *partials;   /* partials: (rows, splits) pairs of the largest score and the sum */
    tni_number factor;    /* scale * log2(e) */
    long long mask_step;
    long long visible; /* causal: how many keys the first query sees; it may be less than 1 */
    int causal;
} tni_softmax;

typedef struct tni_softmax_grad {
    tni_softmax_shape s;
    const void *y, *dy;
    void *dx, *partials; /* partials: (rows, splits) sums */
    tni_number scale;
} tni_softmax_grad;

#ifdef __CUDACC__

/* ---- rows that are split: a block has a piece, and walks through it by tiles of what its threads hold ------------ */

struct split_walk {
    i64 row, first, end;
};

TN_DEVICE split_walk split_of(const tni_softmax_shape &s) {
    const i64 row = blockIdx.x / s.splits, first = (i64)(blockIdx.x % s.splits) * s.split;
    return {row, first, min(first + s.split, s.rows.n)};
}

/* ---- columns: the axis is not the fastest dimension -------------------------------------------------------------- */

/* (rows, n, columns). Neighbouring threads have neighbouring columns; `ways` threads share one, each with every ways-th
 * element: elements way, way + ways, … */
struct column_spot {
    bool there;
    int way, across, of;    /* which of how many columns of the block */
    i64 index, row, beside; /* of the column: among all; its row, and where in that */
};

/* Of a block that has `of` columns, this thread's way being `way`. */
TN_DEVICE column_spot spot_of(const tni_softmax_shape &s, i64 block, int of, int way) {
    column_spot c;
    c.of = of;
    c.across = threadIdx.x % c.of;
    c.way = way;
    c.index = block * c.of + c.across;
    c.there = c.index < s.rows.count * s.columns;
    const i64 i = c.there ? c.index : 0;
    const bool few = s.rows.count * s.columns >> 31 == 0;
    c.row = few ? (i64)((u32)i / (u32)s.columns) : i / s.columns;
    c.beside = i - c.row * s.columns;
    return c;
}

TN_DEVICE column_spot spot_of(const tni_softmax_shape &s, i64 block) {
    const int of = blockDim.x / s.ways;
    return spot_of(s, block, of, threadIdx.x / of);
}

/* What the threads that share a column have, put together in a fixed order by join(V &, V), P columns or pieces of one
 * at a time; all of them get it. shared: (P, 1024) */
template <class V, int P, class Join>
TN_DEVICE void join_ways(V (&own)[P], const column_spot &c, int ways, V (*shared)[1024], Join join) {
    if (ways == 1) return;
    const int t = threadIdx.x;
    int half = 1;
    while (2 * half < ways) half *= 2;
#pragma unroll
    for (int k = 0; k < P; k++) shared[k][t] = own[k];
    __syncthreads();
    for (; half > 0; half /= 2) {
        if (c.way < half && c.way + half < ways) {
#pragma unroll
            for (int k = 0; k < P; k++) {
                join(own[k], shared[k][t + half * c.of]);
                shared[k][t] = own[k];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < P; k++) own[k] = shared[k][t - c.way * c.of];
}

template <class V, class Join>
TN_DEVICE V join_ways(V own, const column_spot &c, int ways, V (*shared)[1024], Join join) {
    V one[1] = {own};
    join_ways(one, c, ways, shared, join);
    return one[0];
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* Of tiles, and of the longest ones, an SM is to hold so many blocks. */
#define SOFTMAX_TILE_KERNELS(op, T, name, blocks, long_blocks)                                              \
    TN_ROW_KERNEL(op##_tile_##name, TNI_TILE_THREADS, blocks, tni_##op, (op##_tile<T>(p)))                  \
    TN_ROW_KERNEL(op##_tile_warp_8_##name, TNI_TILE_THREADS, blocks, tni_##op, (op##_tile_warp<T, 8>(p)))   \
    TN_ROW_KERNEL(op##_tile_warp_16_##name, TNI_TILE_THREADS, blocks, tni_##op, (op##_tile_warp<T, 16>(p))) \
    TN_ROW_KERNEL(op##_tile_warp_36_##name, TNI_TILE_THREADS, long_blocks, tni_##op, (op##_tile_warp<T, 36>(p)))
#define SOFTMAX_COLUMN_KERNELS(op, T, name)                                                          \
    TN_ROW_KERNEL(op##_columns_##name, 1024, 1, tni_##op, (op##_columns<T>(p)))                      \
    TN_ROW_KERNEL(op##_columns_split_##name, TNI_ROW_BLOCK, 1, tni_##op, (op##_columns_split<T>(p))) \
    TN_ROW_KERNEL(op##_columns_write_##name, TNI_ROW_BLOCK, 1, tni_##op, (op##_columns_write<T>(p)))

#endif
