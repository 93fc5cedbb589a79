/* How rows are shared out over a GPU's threads: chosen from the type and the length of a row alone, so that a row comes
 * out the same whatever is computed beside it. */
#ifndef TNI_CUDA_ROW_PLAN_H
#define TNI_CUDA_ROW_PLAN_H

#include "../cpu/rows.h"
#include "cuda.h"
#include "rows.cuh"

typedef enum tni_row_kind {
    TNI_ROW_LANES,  /* some lanes of a warp have a row */
    TNI_ROW_BLOCKS, /* a block, or a cluster of blocks, has a row */
    TNI_ROW_SPLIT,  /* a row is cut into pieces, each for a block; what they find out is added up by a second kernel */
} tni_row_kind;

typedef struct tni_row_plan {
    tni_row_kind kind;
    char piece;    /* 'p': a thread has pieces of 16 bytes; 's': single elements */
    int each;      /* elements that a thread holds */
    int lanes;     /* of a row; LANES */
    int threads;   /* of a block */
    int cluster;   /* blocks of a row; BLOCKS */
    int splits;    /* pieces of a row; SPLIT */
    int64_t split; /* elements of one */
} tni_row_plan;

/* `unit`: the .cu file, whose image for this GPU tells whether there are clusters. */
tni_row_plan tni_row_plan_of(const tn_call *call, const char *unit, tn_type type, int64_t n);
/* For kernels whose threads hold parts of `rows` rows at a time. */
tni_row_plan tni_row_plan_of_some(const tn_call *call, const char *unit, tn_type type, int64_t n, int rows);
tni_row_plan tni_row_plan_split(tn_type type, int64_t n);

/* Threads of a block for which every thread has `each` elements of a row, if they are `most` or a half or a quarter of it and
 * the first `views` tensors' rows lie evenly at multiples of 16 bytes; else 0. */
int tni_row_full(const tni_gpu_rows *rows, tn_type type, int32_t views, int each, int most);

/* Blocks that `count` rows take; 0 where there is nothing. */
uint32_t tni_row_grid(const tni_row_plan *plan, int64_t count);

/* The rows for kernels; false: they have too many dimensions. */
bool tni_gpu_rows_of(tni_gpu_rows *to, const tni_rows *from);

/* Elements that a thread holds at most. */
int tni_row_held(tn_type type, char piece);

static inline int64_t tni_round_up(int64_t a, int64_t to) {
    return (a + to - 1) / to * to;
}

#endif
