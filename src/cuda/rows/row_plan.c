#include "row_plan.h"

#include <string.h>

int tni_row_held(tn_type type, char piece) {
    return (type == TN_F64 ? 16 : 32) / (piece == 's' ? 2 : 1);
}

static int64_t power_of_2_from(int64_t a) {
    int64_t p = 1;
    while (p < a) p *= 2;
    return p;
}

static char piece_of(tn_type type, int64_t n) {
    return n % (16 / (int64_t)tn_type_size(type)) == 0 ? 'p' : 's';
}

int tni_row_clustered(const tn_call *call, const char *unit) {
    const tni_gpu *gpu;
    if (!tni_cuda_has_90(call, unit) || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 1;
    return gpu->major <= 10 ? TNI_ROW_CLUSTER : TNI_ROW_CLUSTER / 2;
}

/* As many lanes as can have something to do, and as few elements for each as kernels are made for. */
static void share_lanes(tni_row_plan *plan, int most, int64_t n) {
    const int few[] = {plan->piece == 'p' ? 8 : 2, plan->piece == 'p' ? 8 : 4};
    plan->kind = TNI_ROW_LANES;
    plan->threads = TNI_ROW_WARP_BLOCK;
    plan->each = n <= 32 * few[0] ? few[0] : n <= 32 * few[1] ? few[1] : most;
    plan->lanes = (int)power_of_2_from((n + plan->each - 1) / plan->each);
}

tni_row_plan tni_row_plan_split(tn_type type, int64_t n) {
    tni_row_plan plan = {.kind = TNI_ROW_SPLIT, .piece = piece_of(type, n), .threads = TNI_ROW_BLOCK, .cluster = 1};
    plan.each = tni_row_held(type, plan.piece);
    const int64_t tile = (int64_t)plan.each * TNI_ROW_BLOCK, least = 16384;
    const int64_t split = (n + TNI_ROW_SPLITS - 1) / TNI_ROW_SPLITS;
    plan.split = tni_round_up(split > least ? split : least, tile);
    plan.splits = (int)((n + plan.split - 1) / plan.split);
    return plan;
}

static tni_row_plan plan_of(const tn_call *call, const char *unit, tn_type type, int64_t n, int rows, char piece) {
    tni_row_plan plan = {.kind = TNI_ROW_BLOCKS, .piece = piece, .cluster = 1};
    plan.each = tni_row_held(type, plan.piece) / rows;
    const int64_t block = (int64_t)plan.each * TNI_ROW_BLOCK;
    if (n <= 32 * plan.each && piece != 'r') {
        share_lanes(&plan, plan.each, n);
        return plan;
    }
    if (n > block) {
        const int64_t cluster = power_of_2_from((n + block - 1) / block);
        if (cluster > tni_row_clustered(call, unit)) return tni_row_plan_split(type, n);
        plan.cluster = (int)cluster;
    }
    plan.threads = (int)tni_round_up((n + plan.each * plan.cluster - 1) / (plan.each * plan.cluster), 32);
    return plan;
}

tni_row_plan tni_row_plan_of(const tn_call *call, const char *unit, tn_type type, int64_t n) {
    return plan_of(call, unit, type, n, 1, piece_of(type, n));
}

tni_row_plan tni_row_plan_of_some(const tn_call *call, const char *unit, tn_type type, int64_t n, int rows) {
    return plan_of(call, unit, type, n, rows, piece_of(type, n));
}

tni_row_plan tni_row_plan_ragged(const tn_call *call, const char *unit, tn_type type, int64_t n) {
    const tni_row_plan plan = tni_row_plan_of(call, unit, type, n);
    const bool may = tn_type_size(type) == 2 && plan.piece == 's' && plan.kind == TNI_ROW_BLOCKS;
    return may ? plan_of(call, unit, type, n, 1, 'r') : plan;
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
    const tni_gpu *gpu;
    if (tn_type_size(type) > 2 || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 1;
    return rows->count >= many * gpu->sms ? 2 : 1;
}

uint32_t tni_row_grid(const tni_row_plan *plan, int64_t count) {
    if (plan->kind == TNI_ROW_LANES) {
        const int64_t rows = plan->threads / plan->lanes; /* of a block */
        return (uint32_t)((count + rows - 1) / rows);
    }
    return (uint32_t)(count * (plan->kind == TNI_ROW_SPLIT ? plan->splits : plan->cluster));
}

bool tni_gpu_rows_of(tni_gpu_rows *to, const tni_rows *from) {
    if (from->n_dims > TNI_ROW_DIMS) return false;
    memset(to, 0, sizeof *to);
    to->n = from->n;
    to->count = from->count;
    to->n_dims = from->n_dims;
    for (int32_t d = 0; d < from->n_dims; d++) {
        to->shape[d] = from->shape[d];
        for (int32_t k = 0; k < from->n_views; k++) to->strides[d][k] = from->strides[d][k];
    }
    return true;
}
