#include "rows.h"

#include <string.h>

static int64_t magnitude(int64_t a) {
    return a < 0 ? -a : a;
}

/* Does dimension a step further through memory than b? Tensors decide in their order; a stride of 0 says nothing. */
static bool outer(const tni_rows *rows, int32_t a, int32_t b) {
    for (int32_t k = 0; k < rows->n_views; k++) {
        int64_t sa = magnitude(rows->strides[a][k]), sb = magnitude(rows->strides[b][k]);
        if (sa != sb && sa != 0 && sb != 0) return sa > sb;
    }
    return false;
}

static void swap(tni_rows *rows, int32_t a, int32_t b) {
    int64_t size = rows->shape[a], strides[TNI_ROWS_MAX];
    memcpy(strides, rows->strides[a], sizeof strides);
    rows->shape[a] = rows->shape[b];
    memcpy(rows->strides[a], rows->strides[b], sizeof strides);
    rows->shape[b] = size;
    memcpy(rows->strides[b], strides, sizeof strides);
}

static bool can_merge(const tni_rows *rows, int32_t a, int32_t b) {
    for (int32_t k = 0; k < rows->n_views; k++) {
        if (rows->strides[a][k] != rows->strides[b][k] * rows->shape[b]) return false;
    }
    return true;
}

/* Adds a dimension inside the last, and lets it sink outwards to its place in memory order. */
static void push(tni_rows *rows, int64_t size, const int64_t *strides) {
    int32_t d = rows->n_dims++;
    rows->shape[d] = size;
    memcpy(rows->strides[d], strides, sizeof rows->strides[d]);
    for (; d > 0 && outer(rows, d, d - 1); d--) swap(rows, d, d - 1);
}

static void merge(tni_rows *rows) {
    int32_t kept = 0;
    for (int32_t d = 0; d < rows->n_dims; d++) {
        if (kept > 0 && can_merge(rows, kept - 1, d)) {
            rows->shape[kept - 1] *= rows->shape[d];
            memcpy(rows->strides[kept - 1], rows->strides[d], sizeof rows->strides[d]);
        } else {
            if (kept != d) swap(rows, kept, d);
            kept++;
        }
    }
    rows->n_dims = kept;
}

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
    for (int32_t d = 0; d < first->ndim; d++) {
        int64_t strides[TNI_ROWS_MAX] = {0};
        for (int32_t k = 0; k < n_views; k++) strides[k] = stride_in(views[k], first->ndim, d, axis);
        if (d == axis) {
            rows.n = first->shape[d];
            memcpy(rows.step, strides, sizeof strides);
        } else {
            rows.count *= first->shape[d];
            if (first->shape[d] != 1) push(&rows, first->shape[d], strides);
        }
    }
    merge(&rows);
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
