/* How rows are shared out as chunks (chunk.cuh). */
#ifndef TNI_CHUNK_H
#define TNI_CHUNK_H

#include "chunk.cuh"
#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "walk.h"

/* Of a count that is short, the divisor; else none is used. */
static inline tni_divisor divisor_if(bool is_short, int64_t by) {
    return is_short ? tni_divisor_of((uint64_t)by) : (tni_divisor){0};
}

/* Elements before the first one of a tensor and up to behind the last one, in its memory. */
static inline void reach_of(const tn_view *v, int64_t *low, int64_t *high) {
    *low = 0;
    *high = tn_count(v) > 0;
    for (int d = 0; d<v->ndim && * high> 0; d++) {
        const int64_t reach = (v->shape[d] - 1) * v->strides[d];
        *(reach < 0 ? low : high) += reach;
    }
}

/* Chunks of `rows` rows of n elements of `size` bytes. dense: they follow each other. aligned: each begins at a
 * multiple of 16 bytes if the first does. */
static inline void fill_chunks(tni_chunks *c, void *to, int64_t n, int64_t rows, int64_t size, bool dense,
                               bool aligned) {
    const int64_t lead = (int64_t)((uintptr_t)to % 16), elements = n * rows;
    c->to = to;
    c->size = n;
    c->elements = dense && elements < INT32_MAX - 16 ? elements : 0;
    c->per_row = chunks_of(n, size, aligned && lead == 0);
    c->count = c->elements ? ceil_div(elements * size + lead, 16) : rows * c->per_row;
    c->parts = c->per_row >= TNI_LONG_CHUNKS ? ceil_div(c->per_row, 32 * TNI_LONG_ITEMS) : 0;
    if (c->parts) {
        c->count = rows * c->parts;
        c->items = (int)ceil_div(c->per_row, 32 * c->parts); /* parts are alike: no warp has a small rest */
    }
    c->is_short = c->count < INT32_MAX;
    c->divisor = divisor_if(c->is_short, c->parts ? c->parts : c->elements ? n : c->per_row);
}

/* Blocks of write_chunks. */
static inline int64_t chunk_blocks(const tni_chunks *c) {
    return ceil_div(c->count, c->parts ? TNI_CHUNK_THREADS / 32 : TNI_CHUNK_THREADS * TNI_CHUNK_ITEMS);
}

static inline tn_status launch_chunks(const tn_call *call, tn_launch *launch, int64_t blocks, void *parameters) {
    if (blocks > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: more elements than one call can move", call->name);
    launch->grid = (uint32_t)blocks;
    launch->block = TNI_CHUNK_THREADS;
    return tn_cuda_launch(call, launch, (void *[]){parameters});
}

#endif
