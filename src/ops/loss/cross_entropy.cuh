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
enum { CROSS_ENTROPY_PARTS = 32, CROSS_ENTROPY_BLOCK = 1024 };
enum { CROSS_ENTROPY_ALONE = 512 }; /* threads of a block that has all rows, at most; of f64 half as many */

/* Long rows: threads of a block; chunks of 16 bytes for each of them that it holds; how many of those in shared
 * memory. */
enum { CROSS_ENTROPY_LONG = 1024, CROSS_ENTROPY_CHUNKS = 16, CROSS_ENTROPY_SLOTS = 14 };

/* Sums over all rows, in the workspace. */
typedef struct tni_cross_entropy_sums {
    double divisor[CROSS_ENTROPY_PARTS]; /* of the mean, part by part */
    double total[CROSS_ENTROPY_PARTS];   /* of the losses */
    unsigned arrived;                    /* blocks that have written their total */
    unsigned pad[15];
} tni_cross_entropy_sums;

typedef struct tni_cross_entropy {
    tni_gpu_rows rows;
    const void *x, *target;
    const float *weight; /* NULL: all 1 */
    void *gx;            /* NULL: not wanted */
    void *lse, *loss;
    tni_cross_entropy_sums *sums;
    void *losses;   /* (rows), where they are added up */
    void *partials; /* (rows, splits) of struct partial */
    long long weight_step, ignore_index;
    tni_number hard, soft, z; /* 1 - label_smoothing, label_smoothing / v, z_loss */
    int wide_target;          /* i64, else i32 */
    int reduction;
    int lanes, cluster, splits, writers; /* writers: blocks of a row that write, where it is split */
    int whole;                           /* rows are walked through by one block each, and only the loss is wanted */
    int fed;                             /* rows come through shared memory */
    int chunks;                          /* long rows: of each block */
    long long split;
    int parts;           /* of divisor and total */
    int ends_alone;      /* one part, and no gradient that needs the divisor early: the total's kernel finds it */
    int alone;           /* few short rows: one block has them, and there is one launch */
    long long part_rows; /* rows of one part */
} tni_cross_entropy;

typedef struct tni_cross_entropy_grad {
    tni_gpu_rows rows; /* of n elements, for each of which there is one dloss */
    const void *gx, *dloss;
    void *dx;
    long long pieces; /* of 16 bytes in a row where all are aligned, else elements */
    int one;          /* dloss is one number */
} tni_cross_entropy_grad;
