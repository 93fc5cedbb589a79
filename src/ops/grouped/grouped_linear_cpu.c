/* grouped_linear, vectorised: the packed products of gemm_cpu.c, group by group. */
#include <inttypes.h>

#include "cpu/vec/vec.h"
#include "grouped_linear.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/index/segment_sum.h"

static void move_by(tni_matrix *x, int64_t elements) {
    x->data = r_at(x->type, x->data, elements);
}

/* The part of rows begin … end - 1, with entry g of the matrices; g < 0: of those rows nothing is added up. */
static tni_product part_of(const tni_grouped *all, int64_t begin, int64_t end, int64_t g) {
    tni_product p = all->product;
    p.n_batch = 0;
    if (all->by_terms) {
        p.k = end - begin;
        move_by(&p.a, begin * p.a.column);
        move_by(&p.b, begin * p.b.row);
        move_by(&p.y, g * p.y.batch[0]);
        return p;
    }
    p.m = end - begin;
    move_by(&p.a, begin * p.a.row);
    move_by(&p.y, begin * p.y.row);
    if (g < 0)
        p.k = 0;
    else
        move_by(&p.b, g * p.b.batch[0]);
    return p;
}

static void run_part(const tn_call *call, const gemm_plan *plan, const tni_product *p) {
    gemm_plan own = *plan;
    if (p->m * p->n == 0) return;
    own.blocks[0] = tni_gemm_divide(p, 1, plan->slices);
    TNI_CPU(gemm_run)(call, &own, p);
}

tn_status TNI_CPU(grouped_linear)(const tn_call *call, void *state) {
    const tni_grouped all = tni_grouped_of(call);
    TN_TRY(tni_segment_check(call, all.offsets, all.rows));
    for (int64_t g = -1; g <= all.groups; g++) {
        const bool inside = g >= 0 && g < all.groups;
        const int64_t begin = g < 0 ? 0 : offset_at(all.offsets, g);
        const int64_t end = g < all.groups ? offset_at(all.offsets, g + 1) : all.rows;
        if (!inside && all.by_terms) continue;
        const tni_product p = part_of(&all, begin, end, inside ? g : -1);
        run_part(call, state, &p);
    }
    return TN_OK;
}
