#include "rows.h"

#include <string.h>

#include "core/layout/nest.h"

/* The stride of `view` in dimension d of the first view, whose rank is ndim. */
static int64_t stride_in(const tn_view *view, int32_t ndim, int32_t d, int32_t axis) {
    if (view == NULL || (view->ndim < ndim && d == axis)) return 0;
    return view->strides[view->ndim < ndim && d > axis ? d - 1 : d];
}

tni_rows tni_rows_of(const tn_view *const *views, int32_t n_views, int32_t axis) {
    const tn_view *first = views[0];
    tni_rows rows;
    rows.n = 1;
    rows.count = 1;
    rows.n_views = n_views;
    rows.n_dims = 0;
    memset(rows.step, 0, sizeof rows.step);
    memset(rows.strides[0], 0, sizeof rows.strides[0]); /* of no dimension */
    int64_t *columns[TNI_ROWS_MAX];                     /* of `strides`: those of one view */
    for (int32_t k = 0; k < n_views; k++) columns[k] = &rows.strides[0][k];
    for (int32_t d = 0; d < first->ndim; d++) {
        int64_t strides[TNI_ROWS_MAX] = {0};
        for (int32_t k = 0; k < n_views; k++) strides[k] = stride_in(views[k], first->ndim, d, axis);
        if (d == axis) {
            rows.n = first->shape[d];
            memcpy(rows.step, strides, sizeof strides);
        } else {
            rows.count *= first->shape[d];
            if (first->shape[d] == 1) continue;
            rows.shape[rows.n_dims] = first->shape[d];
            memcpy(rows.strides[rows.n_dims++], strides, sizeof strides);
        }
    }
    tni_nest nest = {rows.n_dims, n_views, rows.shape, columns, TNI_ROWS_MAX};
    tni_nest_sort(&nest, n_views);
    tni_nest_merge(&nest);
    rows.n_dims = nest.n_loops;
    return rows;
}

int64_t tni_rows_take(tni_rows *rows, int32_t dim, int64_t *strides) {
    int64_t size = rows->shape[dim];
    memcpy(strides, rows->strides[dim], sizeof rows->strides[dim]);
    rows->n_dims--;
    for (int32_t d = dim; d < rows->n_dims; d++) {
        rows->shape[d] = rows->shape[d + 1];
        memcpy(rows->strides[d], rows->strides[d + 1], sizeof rows->strides[d]);
    }
    rows->count = 1;
    for (int32_t d = 0; d < rows->n_dims; d++) rows->count *= rows->shape[d];
    return size;
}

tni_row tni_row_at(const tni_rows *rows, int64_t r) {
    tni_row row;
    memset(&row, 0, sizeof row);
    if (rows->count == 0) return row; /* a dimension of 0 divides nothing */
    for (int32_t d = rows->n_dims - 1; d >= 0; d--) {
        row.index[d] = r % rows->shape[d];
        r /= rows->shape[d];
        for (int32_t k = 0; k < rows->n_views; k++) row.at[k] += row.index[d] * rows->strides[d][k];
    }
    return row;
}

/* The last index has reached its end: it goes back to 0, and the one outside it goes up. */
void tni_row_carry(const tni_rows *rows, tni_row *row) {
    for (int32_t d = rows->n_dims - 1; d >= 0; d--) {
        bool inside = row->index[d] < rows->shape[d];
        int64_t move = inside ? 1 : 1 - rows->shape[d];
        for (int32_t k = 0; k < rows->n_views; k++) row->at[k] += move * rows->strides[d][k];
        if (inside) return;
        row->index[d] = 0;
        if (d > 0) row->index[d - 1]++;
    }
}
