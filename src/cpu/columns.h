/* Neighbouring columns, worked on side by side: lane by lane, each column is its own row. They are handed out in blocks
 * so wide that memory is read in long stretches, and so narrow that a second pass over the block finds it in cache. A
 * block is walked along the axis; within a step four vectors at a time, then one, then the columns that are left. */
#ifndef TNI_COLUMNS_H
#define TNI_COLUMNS_H

#include "core/host/arith.h"
#include "cpu/vec/vec.h"
#include "rows.h"

enum {
    COLUMNS_MOST = 16384 / (int)sizeof(real), /* of a block: an array of them stays in the first cache */
    COLUMNS_LEAST = 256,
    GROUP = 4,
};

/* Columns of a block of n rows, when `bytes` are moved for each element; fewer where threads would have nothing to do.
 * Wide blocks lose less by being read twice than narrow ones by strides that a cache maps to few of its lines. */
static inline int64_t column_width(const tn_call *call, const tni_rows *rows, int64_t columns, int64_t bytes) {
    const int64_t width = min(max(2097152 / (rows->n * bytes) / 16 * 16, COLUMNS_LEAST), COLUMNS_MOST);
    const int64_t threads = call->host->threads ? call->host->threads(call->host->context) : 1;
    const int64_t each = ceil_div(threads, rows->count); /* blocks of a row of columns */
    return min(round_up(ceil_div(columns, each), 16), width);
}

/* VL columns, or the last `width` of them, the other lanes 0. */
TNI_INLINE vreal v_load_columns(const tn_type t, const void *p, int64_t at, int64_t width) {
    return width >= VL ? v_load(t, p, at) : v_load_n(t, p, at, width, 0);
}

TNI_INLINE void v_store_columns(const tn_type t, void *p, int64_t at, int64_t width, vreal v) {
    if (width >= VL)
        v_store(t, p, at, v);
    else
        v_store_n(t, p, at, width, v);
}

/* Finds the dimension in which the first `views` tensors have stride 1, where the axis does not, takes it out of the
 * rows and returns its size; 0: there is none, or rows are better. There is at least one row. */
static inline int64_t take_columns(tni_rows *rows, int32_t views, int64_t *across) {
    bool along = rows->n > 1;
    for (int32_t k = 0; k < views; k++) along = along && rows->step[k] == 1;
    for (int32_t d = 0; d < rows->n_dims && !along; d++) {
        bool beside = true;
        for (int32_t k = 0; k < views; k++) beside = beside && rows->strides[d][k] == 1;
        if (beside) return tni_rows_take(rows, d, across);
    }
    return 0;
}

#endif
