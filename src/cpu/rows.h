/* Tensors of one shape seen as rows along one of its axes, whatever their strides. The other dimensions are put in
 * memory order and merged where every tensor allows it, so that walking from row to row is an addition for each tensor.
 *
 *     const tn_view *views[] = {x, mask, y, mean};     absent ones may be NULL; mean has the shape without the axis
 *     tni_rows rows = tni_rows_of(views, 4, axis);
 *     …tn_parallel(call, rows.count, tni_row_grain(rows.n), body, &…)
 *     static void body(void *arg, int64_t begin, int64_t end) {
 *         tni_row row = tni_row_at(rows, begin);
 *         for (int64_t r = begin; r < end; r++, tni_row_next(rows, &row))
 *             … x + row.at[0], y + row.at[2], mean + row.at[3]: elements; along the row rows->step[0] … apart
 *     }
 *
 * Rows come in no particular order; where speed is everything, tni_row_run finds evenly spaced rows to loop over. A
 * kernel that must know a coordinate gives a view with stride 1 in that dimension and 0 elsewhere: its at[] is the
 * coordinate. */
#ifndef TNI_ROWS_H
#define TNI_ROWS_H

#include <tenon/op.h>

enum { TNI_ROWS_MAX = 8 }; /* tensors */

typedef struct tni_rows {
    int64_t n;     /* elements of a row */
    int64_t count; /* rows */
    int64_t step[TNI_ROWS_MAX];
    int32_t n_views, n_dims;
    int64_t shape[TN_MAX_RANK];                 /* (n_dims), of the rows; the last is the fastest */
    int64_t strides[TN_MAX_RANK][TNI_ROWS_MAX]; /* (n_dims, n_views), then zeros */
} tni_rows;

/* views[0] is there and has the axis; the others have its shape, or that without the axis, or are NULL (all steps and
 * strides 0). axis -1: there is none, a row is one element. */
tni_rows tni_rows_of(const tn_view *const *views, int32_t n_views, int32_t axis);

/* Takes dimension `dim` out of the rows: rows.count then counts what is left (a kernel that works on many rows at once,
 * side by side). Returns its size. */
int64_t tni_rows_take(tni_rows *rows, int32_t dim, int64_t *strides);

/* Where one row begins in each tensor. */
typedef struct tni_row {
    int64_t at[TNI_ROWS_MAX];
    int64_t index[TN_MAX_RANK];
} tni_row;

tni_row tni_row_at(const tni_rows *rows, int64_t r);
void tni_row_carry(const tni_rows *rows, tni_row *row);

static inline void tni_row_next(const tni_rows *rows, tni_row *row) {
    int32_t last = rows->n_dims - 1;
    if (last >= 0 && ++row->index[last] < rows->shape[last]) {
        for (int32_t k = 0; k < TNI_ROWS_MAX; k++) row->at[k] += rows->strides[last][k];
    } else {
        tni_row_carry(rows, row);
    }
}

/* How many rows from here on, at most `left`, are evenly spaced: tni_row_apart(rows)[k] in tensor k. A loop over such a
 * run only adds to pointers and stores nothing of its own between rows: some processors write long stretches of memory
 * without reading it first, until another store comes between. tni_row_skip then moves on past the run. */
static inline int64_t tni_row_run(const tni_rows *rows, const tni_row *row, int64_t left) {
    int32_t last = rows->n_dims - 1;
    int64_t run = last < 0 ? 1 : rows->shape[last] - row->index[last];
    return run < left ? run : left;
}
static inline const int64_t *tni_row_apart(const tni_rows *rows) {
    return rows->strides[rows->n_dims > 0 ? rows->n_dims - 1 : 0];
}
static inline void tni_row_skip(const tni_rows *rows, tni_row *row, int64_t run) {
    int32_t last = rows->n_dims - 1;
    for (int32_t k = 0; k < TNI_ROWS_MAX && last >= 0; k++) row->at[k] += (run - 1) * rows->strides[last][k];
    if (last >= 0) row->index[last] += run - 1;
    tni_row_next(rows, row);
}

/* How many rows of n elements are worth handing to another thread. */
static inline int64_t tni_row_grain(int64_t n) {
    int64_t rows = n > 0 ? 32768 / n : 32768;
    return rows > 0 ? rows : 1;
}

#endif
