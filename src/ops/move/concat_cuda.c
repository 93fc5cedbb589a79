/* concat on the GPU: up to TNI_MOVE_PARTS tensors in one launch. */
#include "concat.h"
#include "cuda/copy/chunk.h"
#include "cuda/copy/copy.h"
#include "move.cuh"

typedef struct plan {
    tn_launch launch;
    bool dense;
} plan;

static tn_status fill(const tn_call *call, void *state) {
    plan *p = state;
    p->dense = concat_is_dense(call);
    if (!p->dense) return TN_OK;
    return tni_cuda_find(call, &p->launch, "move", "move_parts_%d", (int)tn_type_size(tn_out(call, 0)->type));
}

tn_status tni_concat_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

typedef struct batch {
    tni_parts p;
    int64_t blocks;
} batch;

/* Another tensor: n elements of each row. */
static void add_part(batch *b, int64_t size, const void *from, int64_t n) {
    tni_parts *p = &b->p;
    const int k = p->count++;
    const bool aligned = p->aligned && ((uintptr_t)p->to + (uintptr_t)(p->at[k] * size)) % 16 == 0;
    const int64_t per_row = chunks_of(n, size, aligned), count = per_row * p->rows;
    const tni_divisor divisor = divisor_if(count < INT32_MAX, per_row);
    p->is_short &= count < INT32_MAX;
    p->first_block[k] = (unsigned)b->blocks;
    p->from[k] = from;
    p->at[k + 1] = p->at[k] + n;
    p->per_row[k].magic = divisor.magic;
    p->per_row[k].shift = divisor.shift;
    b->blocks += ceil_div(count, TNI_CHUNK_THREADS * TNI_CHUNK_ITEMS);
}

static tn_status launch_batch(const tn_call *call, const plan *p, batch *b) {
    tn_launch launch = p->launch;
    TN_TRY(launch_chunks(call, &launch, b->blocks, &b->p));
    b->p.at[0] = b->p.at[b->p.count]; /* the next one goes on where this one ends */
    b->p.count = 0;
    b->p.is_short = 1;
    b->blocks = 0;
    return TN_OK;
}

tn_status tni_concat_cuda_run(const tn_call *call, void *state) {
    const plan *p = state;
    const concat c = concat_of(call);
    if (tn_count(c.y) == 0) return TN_OK;
    if (!p->dense) return concat_apart(call, &c, tni_cuda_copy);
    const int64_t size = (int64_t)tn_type_size(c.y->type), n = c.y->shape[c.axis] * c.inner;
    batch b = {.p = {.to = c.y->data, .rows = c.rows, .n = n, .aligned = n * size % 16 == 0, .is_short = 1}};
    for (int k = 0; k < c.count; k++) {
        const int64_t own = c.xs[k].shape[c.axis] * c.inner;
        if (own > 0) add_part(&b, size, c.xs[k].data, own);
        if (b.p.count == TNI_MOVE_PARTS) TN_TRY(launch_batch(call, p, &b));
    }
    return b.p.count ? launch_batch(call, p, &b) : TN_OK;
}
