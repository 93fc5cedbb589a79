/* Blocks of products on the CPU, and the memory that they are packed into. */
#include "gemm_plan.h"

#include "core/host/arith.h"
#include "core/host/memory.h"
#include "core/host/status.h"
#include "core/layout/layout.h"

enum {
    MOST_ROWS = 1536,
    MOST_COLUMNS = 4 * GEMM_PANEL,
    LEAST_ROWS = 48, /* of a block that is divided further so that all threads have something to do */
    LEAST_COLUMNS = 96,
    SPARE = 32,           /* numbers between rows of a, at most: vectors end there */
    LEAST_WORK = 1 << 18, /* multiplications that are worth another thread */
    BLOCKS_EACH = 4,      /* that a thread should have, so that they end together */
};

gemm_blocks tni_gemm_divide(const tni_product *p, int64_t entries, int64_t threads) {
    const int64_t work = gemm_steps(p) * min(p->k, GEMM_STEP) * p->m * p->n;
    const int64_t wanted = threads == 1 ? 1 : min(threads * BLOCKS_EACH, ceil_div(work * entries, LEAST_WORK));
    gemm_blocks b = {.rows = ceil_div(p->m, ceil_div(p->m, MOST_ROWS)), .columns = min(p->n, MOST_COLUMNS)};
    b.rows = min(round_up(b.rows, LEAST_ROWS), p->m);
    while (entries * ceil_div(p->m, b.rows) * ceil_div(p->n, b.columns) < wanted) {
        const bool wide = b.columns >= 2 * LEAST_COLUMNS, tall = b.rows >= 2 * LEAST_ROWS;
        if (wide && (b.columns >= b.rows || !tall))
            b.columns = round_up(ceil_div(b.columns, 2), LEAST_COLUMNS);
        else if (tall)
            b.rows = round_up(ceil_div(b.rows, 2), LEAST_ROWS);
        else
            break;
    }
    b.down = ceil_div(p->m, b.rows);
    b.across = ceil_div(p->n, b.columns);
    b.count = entries * b.down * b.across;
    return b;
}

static int64_t threads_of(const tn_call *call) {
    return call->host->threads ? call->host->threads(call->host->context) : tn_threads();
}

/* The memory of a thread that makes blocks of this size. */
static void add_room(gemm_plan *plan, const tni_product *p, int64_t rows, int64_t columns) {
    const int64_t size = p->a.type == TN_F64 ? 8 : 4;
    /* The last block may have few rows. */
    const int64_t packed = max(rows, GEMM_FEW * min(gemm_steps(p), GEMM_TOGETHER));
    plan->a_bytes = max(plan->a_bytes, packed * (GEMM_STEP + SPARE) * size);
    plan->b_bytes = max(plan->b_bytes, GEMM_PANEL * GEMM_STEP * 4);
    plan->c_bytes = max(plan->c_bytes, round_up(rows * round_up(columns, LEAST_COLUMNS) * size, 64));
    plan->slice_bytes = plan->a_bytes + plan->b_bytes + plan->c_bytes;
}

static tn_status plan_products(const tn_call *call, const tni_product *all, int32_t count, gemm_plan **made) {
    const int64_t threads = threads_of(call);
    gemm_plan *plan = *made = tni_malloc(sizeof *plan);
    if (!plan) return TN_NO_MEMORY;
    *plan = (gemm_plan){.n_products = count, .slices = 1};
    for (int32_t i = 0; i < count; i++) {
        const tni_product *p = &all[i];
        int64_t entries = 1;
        for (int32_t d = 0; d < p->n_batch; d++) entries *= p->batch[d];
        if (p->m * p->n * entries == 0) continue;
        const gemm_blocks b = plan->blocks[i] = tni_gemm_divide(p, entries, threads);
        plan->slices = max(plan->slices, min(threads, b.count));
        add_room(plan, p, b.rows, b.columns);
    }
    return TN_OK;
}

tn_status tni_gemm_plan_parts(const tn_call *call, const tni_product *p, gemm_plan **made) {
    gemm_plan *plan = *made = tni_malloc(sizeof *plan);
    if (!plan) return TN_NO_MEMORY;
    *plan = (gemm_plan){.n_products = 1, .slices = threads_of(call)};
    add_room(plan, p, min(p->m, MOST_ROWS), min(p->n, MOST_COLUMNS));
    return TN_OK;
}

tn_status tni_gemm_prepare(const tn_call *call, void **state) {
    const tni_products *products = call->kernel->data;
    tni_product all[TNI_PRODUCTS_MOST];
    const int32_t count = products->of(call, all);
    return plan_products(call, all, count, (gemm_plan **)state);
}

tn_view tni_linear_grad_dz(const linear_grad_args *a, void *data, int64_t room[TN_MAX_RANK]) {
    tn_view dz = a->dresidual ? *a->dresidual : *a->dy;
    if (a->act == TNI_ACT_NONE) return *a->dy;
    if (gemm_keeps_dz(a)) {
        tni_dense_strides(dz.ndim, dz.shape, room);
        dz.strides = room;
        dz.data = data;
    }
    return dz;
}

tn_status tni_linear_grad_prepare(const tn_call *call, void **state) {
    const linear_grad_args a = linear_grad_args_of(call);
    int64_t room[TN_MAX_RANK];
    const tn_view dz = tni_linear_grad_dz(&a, NULL, room);
    tni_product all[TNI_PRODUCTS_MOST];
    const int32_t count = tni_linear_grad_products(call, &dz, all);
    gemm_plan *plan;
    TN_TRY(plan_products(call, all, count, &plan));
    if (gemm_keeps_dz(&a)) plan->dz_bytes = tn_count(&dz) * (int64_t)tn_type_size(dz.type);
    *state = plan;
    return TN_OK;
}

size_t tni_gemm_workspace(const tn_call *call) {
    const gemm_plan *plan = call->state;
    return (size_t)(plan->slices * plan->slice_bytes + plan->dz_bytes);
}
