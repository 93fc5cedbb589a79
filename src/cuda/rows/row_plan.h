/* How rows are shared out over a GPU's threads: chosen from the type and the length of a row alone, so that a row comes
 * out the same whatever is computed beside it. */
#ifndef TNI_CUDA_ROW_PLAN_H
#define TNI_CUDA_ROW_PLAN_H

#include "core/host/arith.h"
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

/* Blocks of the largest cluster that the kernels of `unit` can be launched with; 1: they have none. */
int tni_row_clustered(const tn_call *call, const char *unit);

/* The first `views` tensors' rows lie one behind the other, without gaps. */
bool tni_rows_dense(const tni_gpu_rows *rows, int32_t views);

/* Threads of a block for which every thread has `each` elements of a row, if they are `most` or a half or a quarter of
 * it and the first `views` tensors are dense; else 0. */
int tni_row_full(const tni_gpu_rows *rows, int32_t views, int each, int most);
/* How many of them a block is to have: two of small elements, if there are many. */
int tni_row_full_rows(const tn_call *call, tn_type type, const tni_gpu_rows *rows);

/* Blocks that `count` rows take; 0 where there is nothing. */
uint32_t tni_row_grid(const tni_row_plan *plan, int64_t count);

/* The rows for kernels; fails where they have too many dimensions. */
tn_status tni_gpu_rows_of(const tn_call *call, tni_gpu_rows *to, const tni_rows *from);

/* Whether the elements of rows lie side by side in the first `views` tensors, and rows have dimensions that kernels
 * take. */
bool tni_rows_beside(const tni_rows *rows, int32_t views);
/* Whether every row of the first `views` tensors begins at a multiple of 16 bytes if the first one does. */
bool tni_rows_aligned(const tni_gpu_rows *rows, int32_t views, tn_type type);
/* Whether a row can be fetched with 16-byte copies into `bytes` of shared memory: of the first `views` tensors, with
 * kernels that have `own` bytes for themselves. */
bool tni_row_may_feed(const tn_call *call, const tni_gpu_rows *rows, tn_type type, int32_t views, uint32_t bytes,
                      uint32_t own);

static inline bool tni_is_aligned(const void *const *data, int count) {
    uintptr_t all = 0;
    for (int i = 0; i < count; i++) all |= (uintptr_t)data[i];
    return all % 16 == 0;
}

/* Clusters may turn out not to fit; then rows are split after all. */
static inline bool tni_row_may_split(const tni_row_plan *plan) {
    return plan->kind == TNI_ROW_SPLIT || plan->cluster > 1;
}

/* ---- the kernels of an operator: OP_warp_…, OP_block_…, OP_split_… and OP_write_… in OP.cu ----------------------- */

/* Rows that some lanes have. */
tn_status tni_row_find_lanes(const tn_call *call, const tni_row_plan *plan, tn_type type, int64_t count, tn_launch *l);
/* Rows that a block or a cluster has, and how many of them the GPU has under way at once: 0 where the cluster does not
 * fit. l->shared is set before, l->grid after. */
tn_status tni_row_find_blocks(const tn_call *call, const tni_row_plan *plan, tn_type type, tn_launch *l,
                              int64_t *at_once);
/* Rows that are split: a launch that looks at the pieces and one that writes them. */
tn_status tni_row_find_split(const tn_call *call, const tni_row_plan *plan, tn_type type, int64_t count,
                             tn_launch *first, tn_launch *second);

static inline tni_number tni_number_of(double a) {
    return (tni_number){.f64 = a, .f32 = (float)a};
}

#endif
