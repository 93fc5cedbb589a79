/* take and add on the GPU by columns in shared memory: which calls they suit, and how they are shared out. */
#include "core/contract/contract.h"
#include "cuda/rows/row_plan.h"
#include "lookup_cuda.h"

enum {
    RESERVED = 1024,   /* bytes of shared memory that a block takes for itself */
    BLOCKS_PER_SM = 2, /* that columns leave room for, before a block has fewer of them: one reads, one adds */
    MOST_WIDTH = 8,    /* columns of a block, where they are neighbours in memory: 32 bytes of f32 */
    LEAST_WIDTH = 4,   /* before they are cut into parts */
    SHORT_N = 1024,    /* a block has several columns where they have fewer elements together, */
    SHORT_BYTES = 16384,
    MOST_SHORT = 32,
    LEAST_RANGE = 2048,   /* of the k of a block, where there are few columns, */
    CLAIM_BYTES = 16384,  /* that are left for claims at least, */
    LEAST_ROW = 4096,     /* bytes of a row that is taken from in shared memory, */
    LEAST_PART = 1024,    /* and indices of a block, where there are few rows */
    LEAST_THREADS = 128,  /* of a block */
    THREADS_PER_SM = 1024 /* that its registers allow */
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
    tni_index index = tni_index_of(l);
    if (index.skipped >= index.v) index.skipped = -1;
    return (tni_columns){.index = index,
                         .count = columns_of(l),
                         .n = l->n,
                         .inner = l->inner,
                         .by_inner = tni_divided_of(l->inner, columns_of(l)),
                         .width = width,
                         .across = l->inner > 1};
}

/* Threads of a block, a power of 2: as many as there is work for, but no more than shared memory leaves room for others
 * beside, if there are others. */
static int64_t threads_of(const tn_gpu *gpu, int64_t bytes, int64_t blocks, int64_t work) {
    const int64_t beside = blocks <= gpu->sms ? 1 : max(gpu->shared_per_sm / (bytes + RESERVED), 1);
    int64_t threads = LEAST_THREADS;
    while (2 * threads * beside <= THREADS_PER_SM && threads < work) threads *= 2;
    return threads;
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

/* Rows that fit, with about as many indices or more, for half of the SMs at least. What fits into a few lines of the
 * first-level cache is found there as quickly (H200: 7168 rows of 768 bf16 take 20 us so, and 26 here), and few rows
 * wait for memory twice. */
bool tni_take_row_suits(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type), bytes = l->v * size;
    if (l->inner != 1 || size > 8 || 2 * l->n < l->v || bytes < LEAST_ROW || l->n > INT32_MAX / 2) return false;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return false;
    return bytes + 16 <= gpu->shared_per_block && 2 * l->outer >= gpu->sms && l->outer * gpu->sms <= INT32_MAX;
}

/* Where there are few rows, several blocks have each of them, and its indices in parts. */
tn_status tni_take_row_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type), bytes = l->v * size + 16;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    tni_columns *p = &s->p;
    *p = columns_job(l, 1);
    const int64_t parts = max(min(gpu->sms / max(l->outer, 1), 2 * l->n / max(l->v, LEAST_PART)), 1);
    p->range = (int)ceil_div(l->n, parts);
    p->parts = (int)max(ceil_div(l->n, max(p->range, 1)), 1);
    s->launch.grid = (uint32_t)(l->n > 0 ? l->outer * p->parts : 0);
    s->launch.block = (uint32_t)threads_of(gpu, bytes, s->launch.grid, ceil_div(p->range, TNI_ROW_TAKE_ITEMS));
    s->launch.shared = (uint32_t)bytes;
    return tni_cuda_find(call, &s->launch, "lookup_columns", "lookup_take_row_%d", (int)size);
}

/* ---- add --------------------------------------------------------------------------------------------------------- */

static int64_t acc_size(const tni_lookup *l) {
    return (int64_t)tn_type_size(tni_acc_type(l->to->type));
}

/* Neighbours are read together, but for long ones; short rows share a block, if there are enough of them. */
static int add_width(const tn_gpu *gpu, const tni_lookup *l) {
    const int64_t columns = columns_of(l), bytes = l->v * acc_size(l);
    if (l->inner > 1) {
        const int width = width_of(gpu, columns, bytes);
        return width < LEAST_WIDTH && ceil_div(columns, LEAST_WIDTH) >= gpu->sms ? LEAST_WIDTH : width;
    }
    int width = 1;
    while (width < MOST_SHORT && 2 * width * l->n <= SHORT_N && 2 * width * bytes <= SHORT_BYTES &&
           columns / (2 * width) >= 2 * gpu->sms)
        width *= 2;
    return width;
}

/* As many as shared memory makes necessary. Where there are few columns, so many that half of the SMs have work: each
 * block reads all indices of its columns, and more of them would wait for the L2 cache. */
static int64_t add_parts(const tn_gpu *gpu, const tni_lookup *l, int width) {
    const int64_t room = gpu->shared_per_block - CLAIM_BYTES - width * 64 * acc_size(l); /* of column_pitch */
    const int64_t groups = max(ceil_div(columns_of(l), width), 1), least = ceil_div(l->v * width * acc_size(l), room);
    return max(max(least, min(gpu->sms / (2 * groups), l->v / LEAST_RANGE)), 1);
}

/* Elements in a nanosecond by columns, of one SM, and by the sort, of all of them; and what the launches of the sort
 * take. The sort was measured on an H200; columns are estimated. */
enum { BY_COLUMNS_PER_NS = 4, BY_SORT_PER_NS = 6, SORT_NS = 40000 };

bool tni_add_columns_suit(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    const int64_t columns = columns_of(l);
    if (!is_single(l) || tn_cuda_gpu(call, &gpu) != TN_OK) return false;
    if (columns > INT32_MAX || l->v > INT32_MAX / MOST_SHORT || l->n > INT32_MAX / MOST_SHORT) return false;
    const int width = add_width(gpu, l);
    const int64_t blocks = ceil_div(columns, width) * add_parts(gpu, l, width), each = l->n * width;
    if (blocks > INT32_MAX) return false;
    return max(blocks, gpu->sms) / gpu->sms * each / BY_COLUMNS_PER_NS <= SORT_NS + columns * l->n / BY_SORT_PER_NS;
}

/* Two tables, with room for those that claim nothing. */
static int64_t claim_bytes(const tni_columns *p) {
    return 2 * (p->table + 32) * 4;
}

tn_status tni_add_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    tni_columns *p = &s->p;
    *p = columns_job(l, add_width(gpu, l));
    p->range = (int)max(ceil_div(l->v, add_parts(gpu, l, p->width)), 1);
    p->parts = (int)ceil_div(l->v, p->range); /* 0: there is nothing to write */
    const int64_t blocks = ceil_div(columns_of(l), p->width) * p->parts;
    const int64_t sums = p->width * column_pitch(p->range, p->width) * acc_size(l);
    const int64_t work = ceil_div(p->n * p->width, TNI_COLUMN_ADD_ITEMS);
    s->launch.block = (uint32_t)threads_of(gpu, sums + CLAIM_BYTES / 2, blocks, work);
    p->table = (int)s->launch.block * TNI_COLUMN_ADD_ITEMS;
    while (sums + claim_bytes(p) > gpu->shared_per_block) p->table /= 2;
    s->launch.grid = (uint32_t)blocks;
    s->launch.shared = (uint32_t)(sums + claim_bytes(p));
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
