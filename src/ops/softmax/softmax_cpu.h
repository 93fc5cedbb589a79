/* What the files of softmax's vectorised kernel share. */
#ifndef TNI_SOFTMAX_CPU_H
#define TNI_SOFTMAX_CPU_H

#include "cpu/columns.h"
#include "cpu/spans.h"
#include "softmax.h"

enum { ROW_X, ROW_Y, ROW_MASK, ROW_QUERY, ROW_VIEWS }; /* columns need stride 1 in the first two */

typedef struct softmax_job {
    tn_type type;
    const void *x;
    const uint8_t *mask; /* NULL: none */
    void *y;
    real scale;
    bool causal;
    int64_t visible; /* with causal: how many keys query 0 sees; may be negative */
    tni_rows rows;
    int64_t columns;              /* 0: rows are done one by one */
    int64_t width;                /* columns of a block */
    int64_t across[TNI_ROWS_MAX]; /* strides from column to column */
} softmax_job;

/* A piece of the parallel loop over blocks of columns. */
void TNI_CPU(softmax_columns)(void *job, int64_t begin, int64_t end);

#endif
