/* The gradient of cross_entropy, vectorised: dx = gx * dloss. Where dloss is 1 and dx is gx nothing is done, elsewhere
 * one is a copy of the other. */
#include "cpu/rows.h"
#include "cpu/spans.h"
#include "cross_entropy.h"

enum { ROW_GX, ROW_DX, ROW_DLOSS, ROW_VIEWS };

typedef struct job {
    tn_type type;
    const void *gx;
    const real *dloss;
    void *dx;
    tni_rows rows;
} job;

/* n elements, steps of their own */
TNI_INLINE void scale_row(const tn_type t, const void *gx, int64_t step_gx, void *dx, int64_t step_dx, int64_t n,
                          real by) {
    if (by == 1 && gx == dx) return;
    if (by == 1 && step_gx == 1 && step_dx == 1) {
        memcpy(dx, gx, (size_t)((char *)r_at(t, dx, n) - (char *)dx));
        return;
    }
    int64_t i = 0;
    if (step_gx == 1 && step_dx == 1) {
        for (; i + VL <= n; i += VL) v_store(t, dx, i, v_load(t, gx, i) * by);
    }
    for (; i < n; i++) r_store(t, dx, i * step_dx, r_load(t, gx, i * step_gx) * by);
}

TNI_INLINE void do_rows(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_rows *rows = &j->rows;
    tni_row row = tni_row_at(rows, begin);
    for (int64_t r = begin; r < end; r++, tni_row_next(rows, &row))
        scale_row(t, r_at(t, j->gx, row.at[ROW_GX]), rows->step[ROW_GX], r_at(t, j->dx, row.at[ROW_DX]),
                  rows->step[ROW_DX], rows->n, j->dloss[row.at[ROW_DLOSS]]);
}

static void rows_piece(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->type, do_rows, j, begin, end);
}

/* One row, its elements begin … end - 1. */
TNI_INLINE void do_elements(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const int64_t step_gx = j->rows.step[ROW_GX], step_dx = j->rows.step[ROW_DX];
    scale_row(t, r_at(t, j->gx, begin * step_gx), step_gx, r_at(t, j->dx, begin * step_dx), step_dx, end - begin,
              *j->dloss);
}

static void elements_piece(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->type, do_elements, j, begin, end);
}

tn_status TNI_CPU(cross_entropy_grad)(const tn_call *call, void *state) {
    (void)state;
    const cross_entropy_grad_args a = cross_entropy_grad_args_of(call);
    const bool each = a.reduction == REDUCE_NONE;
    const tn_view *views[ROW_VIEWS] = {a.gx, a.dx, each ? a.dloss : NULL};
    job j = {.type = a.gx->type, .gx = a.gx->data, .dloss = a.dloss->data, .dx = a.dx->data};
    j.rows = tni_rows_of(views, ROW_VIEWS, each ? a.gx->ndim - 1 : -1);
    if (j.rows.n == 0 || j.rows.count == 0) return TN_OK;
    /* One number for all: the rows are as long as memory allows. */
    if (!each && j.rows.n_dims > 0) j.rows.n = tni_rows_take(&j.rows, j.rows.n_dims - 1, j.rows.step);
    if (!each && j.rows.count == 1)
        tn_parallel(call, j.rows.n, tni_row_grain(1), elements_piece, &j);
    else
        tn_parallel(call, j.rows.count, tni_row_grain(j.rows.n), rows_piece, &j);
    return TN_OK;
}
