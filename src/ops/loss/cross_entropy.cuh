/* What cross_entropy_cuda.c tells the kernels of cross_entropy.cu. */
#pragma once

#include "cuda/rows/rows.cuh"

enum {
    CROSS_ENTROPY_X,
    CROSS_ENTROPY_GX,
    CROSS_ENTROPY_TARGET,
    CROSS_ENTROPY_LSE,
    CROSS_ENTROPY_LOSS,
    CROSS_ENTROPY_VIEWS
};
enum { CROSS_ENTROPY_GRAD_GX, CROSS_ENTROPY_GRAD_DX, CROSS_ENTROPY_GRAD_DLOSS, CROSS_ENTROPY_GRAD_VIEWS };
enum { CROSS_ENTROPY_MEAN, CROSS_ENTROPY_SUM, CROSS_ENTROPY_NONE };
enum { CROSS_ENTROPY_PARTS = 8, CROSS_ENTROPY_BLOCK = 1024 };
enum {
    CROSS_ENTROPY_ODD_BLOCK = 256
}; /* most threads that have 16 words of an odd row: more would have too few registers */

/* Found from the targets of all rows, in the workspace. */
typedef struct tni_cross_entropy_sums {
    double divisor;  /* of the mean */
    tni_number unit; /* 1 / divisor */
} tni_cross_entropy_sums;

typedef struct tni_cross_entropy {
    tni_gpu_rows rows;
    const void *x, *target;
    const void *low, *high; /* the 16 bytes that are wholly in x; NULL: rows are not fetched */
    const float *weight;    /* NULL: all 1 */
    void *gx;               /* NULL: not wanted */
    void *lse, *loss;
    tni_cross_entropy_sums *sums;
    void *losses;   /* (rows), where they are added up */
    void *partials; /* (rows, splits) of struct partial; NULL: the pieces of a row are a cluster */
    void *aimed; /* (rows), where rows are split: the logits of the targets. gx may be x, which is then overwritten */
    long long weight_step, ignore_index;
    tni_number hard, soft, z; /* 1 - label_smoothing, label_smoothing / v, z_loss */
    int wide_target;          /* i64, else i32 */
    int reduction;
    int cluster;               /* blocks that have a row together */
    int row_threads;           /* of a row that one block has */
    int block_rows, row_shift; /* rows of a block, of which each has 2^row_shift threads where there are several */
    int splits, writers;       /* blocks of a row that is split, and of those that write it */
    long long split;           /* elements of a piece */
    long long part_rows;       /* rows of one block that adds up what all rows have */
} tni_cross_entropy;

typedef struct tni_cross_entropy_grad {
    tni_gpu_rows rows; /* of n elements, for each of which there is one dloss */
    const void *gx, *dloss;
    void *dx;
    long long pieces; /* of 16 bytes in a row where all are aligned, else elements */
    int one;          /* dloss is one number */
} tni_cross_entropy_grad;
