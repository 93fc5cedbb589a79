/* What softmax_cuda.c tells the kernels of softmax.cu and softmax_grad.cu. */
#pragma once

#include "../cuda/rows.cuh"
#include "../cuda/tile.cuh"

enum { SOFTMAX_X, SOFTMAX_Y, SOFTMAX_MASK, SOFTMAX_QUERY, SOFTMAX_VIEWS };
enum { SOFTMAX_GRAD_Y, SOFTMAX_GRAD_DY, SOFTMAX_GRAD_DX, SOFTMAX_GRAD_VIEWS };

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
    double factor;        /* scale * log2(e) */
    long long mask_step;
    long long visible; /* causal: how many keys the first query sees; it may be less than 1 */
    int causal;
} tni_softmax;

typedef struct tni_softmax_grad {
    tni_softmax_shape s;
    const void *y, *dy;
    void *dx, *partials; /* partials: (rows, splits) sums */
    double scale;
} tni_softmax_grad;
