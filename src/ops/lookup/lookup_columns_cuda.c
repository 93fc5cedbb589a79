/* take and add on the GPU by columns in shared memory: which calls they suit, and how many columns a block has. */
#include "core/contract/contract.h"
#include "cuda/rows/row_plan.h"
#include "lookup_cuda.h"

enum {
    RESERVED = 1024,     /* bytes of shared memory that a block takes for itself */
    BLOCKS_PER_SM = 2,   /* that columns leave room for, before a block has fewer of them: one reads, one adds */
    MOST_WIDTH = 8,      /* columns of a block: 32 bytes of f32 */
    FEW_COLUMNS_N = 2048 /* a column with so many is worth a block even where there are few columns */
};

/* Elements, not rows, have an index each. */
static bool is_single(const tni_lookup *l) {
    return l->inner == 1 || !tni_lookup_is_by_row(l);
}

static int64_t columns_of(const tni_lookup *l) {
    return l->outer * l->inner;
}

/* The most columns of `bytes` each that leave room for other blocks, and make work for all SMs. */
static int width_of(const tn_gpu *gpu, int64_t columns, int64_t bytes) {
    const int64_t room = min(gpu->shared_per_sm / BLOCKS_PER_SM - RESERVED, gpu->shared_per_block);
    int width = MOST_WIDTH;
    while (width > 1 && (width * bytes > room || ceil_div(columns, width) < gpu->sms)) width /= 2;
    return width;
}

static tni_columns columns_job(const tni_lookup *l, int width) {
    return (tni_columns){.index = tni_index_of(l),
                         .count = columns_of(l),
                         .n = l->n,
                         .inner = l->inner,
                         .by_inner = tni_divided_of(l->inner, columns_of(l)),
                         .width = width,
                         .ways = 1,
                         .across = l->inner > 1};
}

/* ---- take -------------------------------------------------------------------------------------------------------- */

/* Where all is read side by side as it is, or the index leads to a few of many elements, there is nothing to gain. */
bool tni_take_columns_suit(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    const int64_t bytes = l->v * (int64_t)tn_type_size(l->to->type);
    if (l->inner == 1 || tni_lookup_is_by_row(l) || 2 * l->n < l->v || tn_type_size(l->to->type) > 8) return false;
    if (tn_cuda_gpu(call, &gpu) != TN_OK || columns_of(l) > INT32_MAX) return false;
    return columns_of(l) >= MOST_WIDTH / 2 * gpu->sms && width_of(gpu, columns_of(l), bytes) >= MOST_WIDTH / 2;
}

tn_status tni_take_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type);
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const int width = width_of(gpu, columns_of(l), l->v * size);
    s->p = columns_job(l, width);
    s->launch.block = TNI_COLUMN_TAKE_THREADS;
    s->launch.grid = (uint32_t)ceil_div(columns_of(l), width);
    s->launch.shared = (uint32_t)max(width * l->v * size, 8);
    return tni_cuda_find(call, &s->launch, "lookup_columns", "lookup_take_columns_%d", (int)size);
}

/* ---- add --------------------------------------------------------------------------------------------------------- */

/* What a block needs: sums, and what waits to be added with its k. */
static int64_t add_bytes(const tni_lookup *l, int width, int ways) {
    const int64_t size = (int64_t)tn_type_size(tni_acc_type(l->to->type));
    const int64_t waiting = (int64_t)width * waiting_pitch(ways, width);
    return (width * (int64_t)column_pitch(l->v, width) + waiting) * size + waiting * 4;
}

static int add_width(const tn_gpu *gpu, const tni_lookup *l) {
    return width_of(gpu, columns_of(l), add_bytes(l, 1, 1));
}

/* Warps of a column: large columns leave room for so few blocks that each needs more. */
static int add_ways(const tn_gpu *gpu, const tni_lookup *l, int width) {
    const int64_t blocks = max(gpu->shared_per_sm / (add_bytes(l, width, 1) + RESERVED), 1);
    return (int)max(min(TNI_COLUMN_WARPS / (blocks * width), TNI_COLUMN_WARPS / width), 1);
}

bool tni_add_columns_suit(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    if (!is_single(l) || tn_cuda_gpu(call, &gpu) != TN_OK || columns_of(l) > INT32_MAX || l->v > INT32_MAX / 8)
        return false;
    const int width = add_width(gpu, l);
    const bool enough = 2 * columns_of(l) >= gpu->sms || l->n <= FEW_COLUMNS_N;
    return enough && add_bytes(l, width, add_ways(gpu, l, width)) <= gpu->shared_per_block;
}

tn_status tni_add_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const int width = add_width(gpu, l), ways = add_ways(gpu, l, width);
    s->p = columns_job(l, width);
    s->p.ways = ways;
    s->launch.block = 32 * (uint32_t)(width * ways);
    s->launch.grid = (uint32_t)(l->v > 0 ? ceil_div(columns_of(l), width) : 0);
    s->launch.shared = (uint32_t)add_bytes(l, width, ways);
    return tni_cuda_find(call, &s->launch, "lookup_columns", "lookup_add_columns_%s", tn_type_name(l->to->type));
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

tn_status tni_columns_launch(const tn_call *call, const tni_lookup *l, const tni_columns_state *s, const void *index) {
    tni_columns p = s->p;
    p.index.data = index;
    p.from = l->from->data;
    p.base = data_of(l->base);
    p.to = l->to->data;
    return tn_cuda_launch(call, &s->launch, (void *[]){&p});
}
