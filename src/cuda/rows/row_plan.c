#include "row_plan.h"

#include <string.h>

/* Elements that a thread holds at most (held in rows.cuh says the same). */
static int held(tn_type type) {
    return type == TN_F64 ? 16 : 32;
}

static int64_t power_of_2_from(int64_t a) {
    int64_t p = 1;
    while (p < a) p *= 2;
    return p;
}

int tni_row_clustered(const tn_call *call, const char *unit) {
    const tn_gpu *gpu;
    if (!tni_cuda_has(call, unit, 90) || tn_cuda_gpu(call, &gpu) != TN_OK) return 1;
    return gpu->major <= 10 ? TNI_ROW_CLUSTER : TNI_ROW_CLUSTER / 2;
}

/* As many lanes as can have something to do, and as few elements for each as kernels are made for. */
static void share_lanes(tni_row_plan *plan, int most, int64_t n) {
    const int few = 8;
    plan->kind = TNI_ROW_LANES;
    plan->threads = TNI_ROW_WARP_BLOCK;
    plan->each = n <= 32 * few ? few : most;
    plan->lanes = (int)power_of_2_from(ceil_div(n, plan->each));
}

tni_row_plan tni_row_plan_split(tn_type type, int64_t n) {
    tni_row_plan plan = {.kind = TNI_ROW_SPLIT, .each = held(type), .threads = TNI_ROW_BLOCK, .cluster = 1};
    const int64_t tile = (int64_t)plan.each * TNI_ROW_BLOCK, least = 16384;
    plan.split = round_up(max(ceil_div(n, TNI_ROW_SPLITS), least), tile);
    plan.splits = (int)ceil_div(n, plan.split);
    return plan;
}

tni_row_plan tni_row_plan_of_some(const tn_call *call, const char *unit, tn_type type, int64_t n, int rows) {
    tni_row_plan plan = {.kind = TNI_ROW_BLOCKS, .each = held(type) / rows, .cluster = 1};
    const int64_t block = (int64_t)plan.each * TNI_ROW_BLOCK;
    if (n <= 32 * plan.each) {
        share_lanes(&plan, plan.each, n);
        return plan;
    }
    if (n > block) {
        const int64_t cluster = power_of_2_from(ceil_div(n, block));
        if (cluster > tni_row_clustered(call, unit)) return tni_row_plan_split(type, n);
        plan.cluster = (int)cluster;
    }
    plan.threads = (int)round_up(ceil_div(n, plan.each * plan.cluster), 32);
    return plan;
}

tni_row_plan tni_row_plan_of(const tn_call *call, const char *unit, tn_type type, int64_t n) {
    return tni_row_plan_of_some(call, unit, type, n, 1);
}

bool tni_rows_dense(const tni_gpu_rows *rows, int32_t views) {
    for (int32_t k = 0; k < views && rows->n_dims; k++) {
        if (rows->strides[0][k] != rows->n) return false;
    }
    return rows->n_dims <= 1;
}

int tni_row_full(const tni_gpu_rows *rows, int32_t views, int each, int most) {
    const int64_t threads = rows->n / each;
    if (threads * each != rows->n || !tni_rows_dense(rows, views)) return 0;
    return threads == most || threads == most / 2 || threads == most / 4 ? (int)threads : 0;
}

int tni_row_full_rows(const tn_call *call, tn_type type, const tni_gpu_rows *rows) {
    const int64_t many = 16; /* for each multiprocessor */
    const tn_gpu *gpu;
    if (tn_type_size(type) > 2 || tn_cuda_gpu(call, &gpu) != TN_OK) return 1;
    return rows->count >= many * gpu->sms ? 2 : 1;
}

uint32_t tni_row_grid(const tni_row_plan *plan, int64_t count) {
    if (plan->kind == TNI_ROW_LANES) {
        const int64_t rows = plan->threads / plan->lanes; /* of a block */
        return (uint32_t)ceil_div(count, rows);
    }
    return (uint32_t)(count * (plan->kind == TNI_ROW_SPLIT ? plan->splits : plan->cluster));
}

tn_status tni_gpu_rows_of(const tn_call *call, tni_gpu_rows *to, const tni_rows *from) {
    if (from->n_dims > TNI_ROW_DIMS) {
        return tn_fail(TN_UNSUPPORTED, "%s: tensors of too many dimensions", call->name);
    }
    memset(to, 0, sizeof *to);
    to->n = from->n;
    to->count = from->count;
    to->n_dims = from->n_dims;
    for (int32_t d = 0; d < from->n_dims; d++) {
        to->shape[d] = from->shape[d];
        for (int32_t k = 0; k < from->n_views; k++) to->strides[d][k] = from->strides[d][k];
    }
    return TN_OK;
}

bool tni_rows_beside(const tni_rows *rows, int32_t views) {
    bool beside = true;
    for (int32_t k = 0; k < views; k++) beside = beside && rows->step[k] == 1;
    return (beside || rows->n <= 1) && rows->n_dims <= TNI_ROW_DIMS;
}

bool tni_rows_aligned(const tni_gpu_rows *rows, int32_t views, tn_type type) {
    bool aligned = true;
    for (int32_t d = 0; d < rows->n_dims; d++) {
        for (int32_t k = 0; k < views; k++) aligned &= rows->strides[d][k] * (int64_t)tn_type_size(type) % 16 == 0;
    }
    return aligned;
}

bool tni_row_may_feed(const tn_call *call, const tni_gpu_rows *rows, tn_type type, int32_t views, uint32_t bytes,
                      uint32_t own) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK || bytes + own > (uint32_t)gpu->shared_per_block) return false;
    return rows->n % (16 / (int64_t)tn_type_size(type)) == 0 && tni_rows_aligned(rows, views, type);
}

tn_status tni_row_find_lanes(const tn_call *call, const tni_row_plan *plan, tn_type type, int64_t count, tn_launch *l) {
    l->grid = tni_row_grid(plan, count);
    l->block = (uint32_t)plan->threads;
    return tni_cuda_find(call, l, call->name, "%s_warp_%d_%s", call->name, plan->each, tn_type_name(type));
}

tn_status tni_row_find_blocks(const tn_call *call, const tni_row_plan *plan, tn_type type, tn_launch *l,
                              int64_t *at_once) {
    const tn_gpu *gpu;
    int most;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    l->block = (uint32_t)plan->threads;
    l->cluster = (uint32_t)plan->cluster;
    TN_TRY(tni_cuda_find(call, l, call->name, "%s_block_%s", call->name, tn_type_name(type)));
    TN_TRY(tn_cuda_occupancy(call, l, &most));
    *at_once = plan->cluster > 1 ? most : (int64_t)most * gpu->sms;
    return TN_OK;
}

tn_status tni_row_find_split(const tn_call *call, const tni_row_plan *plan, tn_type type, int64_t count,
                             tn_launch *first, tn_launch *second) {
    const char *name = tn_type_name(type);
    *first = *second = (tn_launch){.grid = tni_row_grid(plan, count), .block = (uint32_t)plan->threads};
    TN_TRY(tni_cuda_find(call, first, call->name, "%s_split_%s", call->name, name));
    return tni_cuda_find(call, second, call->name, "%s_write_%s", call->name, name);
}
