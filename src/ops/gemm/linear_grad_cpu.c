/* linear_grad, vectorised: dy less what relu cut off, where that is asked for or in the way, and then products. */
#include "core/host/arith.h"
#include "cpu/rows.h"
#include "cpu/vec/vec.h"
#include "gemm_plan.h"

typedef struct slope_job {
    tni_rows rows;
    const tn_view *dy, *z, *dz; /* z NULL: dz is dy */
} slope_job;

enum { OF_DZ, OF_DY, OF_Z };

TNI_INLINE void slope_of(const tn_type t, const slope_job *j, const tni_row *row) {
    const int64_t *step = j->rows.step;
    const void *dy = r_at(t, j->dy->data, row->at[OF_DY]), *z = j->z ? r_at(t, j->z->data, row->at[OF_Z]) : NULL;
    void *dz = r_at(t, j->dz->data, row->at[OF_DZ]);
    int64_t i = 0;
    if (step[OF_DZ] == 1 && step[OF_DY] == 1 && (!z || step[OF_Z] == 1)) {
        for (; i + VL <= j->rows.n; i += VL) {
            const vreal v = v_load(t, dy, i);
            v_store(t, dz, i, z ? v_select((vint)(v_load(t, z, i) <= v_set(0)), v_set(0), v) : v);
        }
    }
    for (; i < j->rows.n; i++) {
        const bool cut = z && r_load(t, z, i * step[OF_Z]) <= 0;
        r_store(t, dz, i * step[OF_DZ], cut ? 0 : r_load(t, dy, i * step[OF_DY]));
    }
}

static void slope_body(void *arg, int64_t begin, int64_t end) {
    const slope_job *j = arg;
    tni_row row = tni_row_at(&j->rows, begin);
    for (int64_t r = begin; r < end; r++, tni_row_next(&j->rows, &row)) V_BY_TYPE(j->dz->type, slope_of, j, &row);
}

/* dz = dy, or 0 where relu cut off */
static void fill_dz(const tn_call *call, const linear_grad_args *a, const tn_view *dz) {
    slope_job j = {.dy = a->dy, .z = a->act == TNI_ACT_RELU ? a->z : NULL, .dz = dz};
    const tn_view *views[] = {dz, a->dy, j.z};
    j.rows = tni_rows_of(views, 3, dz->ndim - 1);
    if (j.rows.n > 0) tn_parallel(call, j.rows.count, tni_row_grain(j.rows.n), slope_body, &j);
}

tn_status TNI_CPU(linear_grad)(const tn_call *call, void *state) {
    const gemm_plan *plan = state;
    const linear_grad_args a = linear_grad_args_of(call);
    int64_t room[TN_MAX_RANK];
    const tn_view dz = tni_linear_grad_dz(&a, (char *)call->workspace + plan->slices * plan->slice_bytes, room);
    if (a.dresidual)
        fill_dz(call, &a, a.dresidual);
    else if (gemm_keeps_dz(&a))
        fill_dz(call, &a, &dz);
    tni_product all[TNI_PRODUCTS_MOST];
    tni_linear_grad_products(call, &dz, all);
    TNI_CPU(gemm_run)(call, plan, all);
    return TN_OK;
}
