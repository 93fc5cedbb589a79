/* How rows are shared out over a GPU's threads: chosen from the type and the length of a row alone, so that a row comes
 * out the same whatever is computed beside it. */
#ifndef TNI_CUDA_ROW_PLAN_H
#define TNI_CUDA_ROW_PLAN_H

#include "cpu/rows.h"
#include "cuda/driver/cuda.h"
#include "rows.cuh"

typedef enum tni_row_kind {
    TNI_ROW_LANES,  /* some lanes of a warp have a row */
    TNI_ROW_BLOCKS, /* a block, or a cluster of blocks, has a row */
    TNI_ROW_SPLIT,  /* a row is cut into pieces, each for a block; what they find out is added up by a second kernel */
} tni_row_kind;

typedef struct tni_row_plan {
    tni_row_kind kind;
    char piece;    /* 'p': a thread has pieces of 16 bytes; 's': single elements; 'r': pieces, the last may be short */
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
/* For kernels that have ragged rows of 16-bit types in blocks: pieces of 16 bytes whatever the length. */
tni_row_plan tni_row_plan_ragged(const tn_call *call, const char *unit, tn_type type, int64_t n);
tni_row_plan tni_row_plan_split(tn_type type, int64_t n);

/* Blocks of the largest cluster that the kernels of `unit` can be launched with; 1: they have none. */
int tni_row_clustered(const tn_call *call, const char *unit);

/* The first `views` tensors' rows lie one behind the other, without gaps. */
bool tni_rows_dense(const tni_gpu_rows *rows, int32_t views);

/* Threads of a block for which every thread has `each` elements of a row, if they are `most` or a half or a quarter of it
 * and the first `views` tensors are dense; else 0. */
int tni_row_full(const tni_gpu_rows *rows, int32_t views, int each, int most);
/* How many of them a block is to have: two of small elements, if there are many. */
int tni_row_full_rows(const tn_call *call, tn_type type, const tni_gpu_rows *rows);

/* Blocks that `count` rows take; 0 where there is nothing. */
uint32_t tni_row_grid(const tni_row_plan *plan, int64_t count);

/* The rows for kernels; false: they have too many dimensions. */
bool tni_gpu_rows_of(tni_gpu_rows *to, const tni_rows *from);

/* Elements that a thread holds at most. */
int tni_row_held(tn_type type, char piece);

static inline tni_number tni_number_of(double a) {
    return (tni_number){.f64 = a, .f32 = (float)a};
}

static inline int64_t tni_round_up(int64_t a, int64_t to) {
    return (a + to - 1) / to * to;
}

#endif
