/* What layer_norm_cuda.c tells the kernels of layer_norm.cu and layer_norm_grad.cu. */
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/rows/rows.cuh"

enum { LAYER_NORM_X, LAYER_NORM_Y, LAYER_NORM_MEAN, LAYER_NORM_RSTD, LAYER_NORM_VIEWS };
enum {
    LAYER_NORM_GRAD_X,
    LAYER_NORM_GRAD_DY,
    LAYER_NORM_GRAD_DX,
    LAYER_NORM_GRAD_MEAN,
    LAYER_NORM_GRAD_RSTD,
    LAYER_NORM_GRAD_VIEWS
};

enum {
    LAYER_NORM_GRAD_COLUMNS = 256,
    LAYER_NORM_ADD_COLUMNS = 32,
    LAYER_NORM_ADD_WAYS = 32,
    LAYER_NORM_LANES_EACH = 8,         /* elements of a short row that a lane has */
    LAYER_NORM_RING_STAGES = 12,       /* rows that are on their way into a block, at most */
    LAYER_NORM_RING_BYTES = 128 << 10, /* of those that are on their way into an SM, */
    LAYER_NORM_RING_LONG = 192 << 10,  /* and with the one that is worked on, where it stays in the ring */
};

/* How rows are shared out. */
typedef struct tni_layer_norm_shape {
    tni_gpu_rows rows;
    int lanes, cluster;
    int splits;      /* pieces of a row that no cluster holds */
    long long split; /* elements of one */
    int fed;         /* rows come through shared memory */
} tni_layer_norm_shape;

typedef struct tni_layer_norm {
    tni_layer_norm_shape s;
    const void *x;
    tni_vector gamma, beta;
    void *y, *mean, *rstd;
    void *partials;        /* (rows, splits) of struct moments */
    tni_number eps, share; /* share: 1 / n */
} tni_layer_norm;

typedef struct tni_layer_norm_grad {
    tni_layer_norm_shape s;
    const void *x, *dy, *mean, *rstd;
    tni_vector gamma, dgamma, dbeta; /* the last two: data is NULL where not wanted */
    void *dx;                        /* NULL: not wanted */
    void *partials;                  /* (rows, splits) pairs of sums, where rows are split */
    void *sums;                      /* (2, parts, n): of dgamma, then of dbeta, each block its rows */
    int parts;
    int stages;          /* of a ring */
    long long part_rows; /* rows of a part, where each column is walked along */
} tni_layer_norm_grad;
