/* Moves on the GPU. */
#include <string.h>

#include "cuda/copy/chunk.h"
#include "move.cuh"
#include "move.h"

typedef struct plan {
    tn_launch launch;
    tni_move_job job;
    bool empty, by_chunks;
    bool is_short;     /* rows of a few chunks, one behind the other (move_short) */
    bool aligned;      /* rows begin at multiples of 16 bytes if the result does */
    bool dense;        /* they follow each other in the result */
    int64_t low, high; /* the operand's memory, in elements from its first one */
} plan;

static void fill_constant(const tni_move *m, size_t size, unsigned *to) {
    for (size_t at = 0; at < 16; at += size) memcpy((char *)to + at, m->constant, size);
}

static tn_status fill(const tn_call *call, void *state) {
    plan *p = state;
    const tni_move m = tni_move_of(call);
    const tni_move_dim *row = &m.dims[m.n_dims - 1];
    const size_t size = tn_type_size(m.to->type);
    p->empty = tn_count(m.to) == 0;
    if (p->empty) return TN_OK;
    reach_of(m.from, &p->low, &p->high);
    p->by_chunks = row->to == 1 && row->from == 1;
    p->aligned = p->dense = true;
    int64_t so_far = row->map.size;
    p->job = (tni_move_job){.n_dims = m.n_dims - 1, .map = row->map, .step = row->to, .apart = row->from};
    fill_constant(&m, size, p->job.constant);
    for (int d = 0; d < m.n_dims - 1; d++) {
        const tni_move_dim *from = &m.dims[m.n_dims - 2 - d];
        p->job.dims[d].map = from->map;
        p->job.dims[d].to = from->to;
        p->job.dims[d].from = from->from;
        p->job.dims[d].divisor = divisor_if(from->map.size < INT32_MAX, from->map.size);
        p->aligned = p->aligned && from->to * (int64_t)size % 16 == 0;
        p->dense = p->dense && from->to == so_far;
        so_far *= from->map.size;
    }
    p->is_short = p->by_chunks && p->dense && so_far < INT32_MAX - 16 &&
                  chunks_of(row->map.size, (int64_t)size, false) < TNI_LONG_CHUNKS;
    const char *name = p->is_short ? "move_short_%d" : p->by_chunks ? "move_chunks_%d" : "move_elements_%d";
    return tni_cuda_find(call, &p->launch, "move", name, (int)size);
}

tn_status tni_move_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

tn_status tni_move_cuda_run(const tn_call *call, void *state) {
    const plan *p = state;
    if (p->empty) return TN_OK;
    tni_move m = {0};
    ((const tni_mover *)call->kernel->data)->describe(call, &m);
    const int64_t size = (int64_t)tn_type_size(m.to->type), rows = tn_count(m.to) / p->job.map.size;
    tni_move_job job = p->job;
    job.from = m.from->data;
    if (p->by_chunks) {
        fill_chunks(&job.chunks, m.to->data, job.map.size, rows, size, p->dense, p->aligned);
    } else {
        const int64_t count = rows * job.map.size;
        job.chunks = (tni_chunks){.to = m.to->data, .count = count, .per_row = job.map.size};
        job.chunks.is_short = count < INT32_MAX;
        job.chunks.divisor = divisor_if(job.chunks.is_short, job.map.size);
    }
    job.chunks.low = (const char *)m.from->data + p->low * size;
    job.chunks.high = (const char *)m.from->data + p->high * size;
    tn_launch launch = p->launch;
    int64_t blocks = p->by_chunks ? chunk_blocks(&job.chunks) : ceil_div(job.chunks.count, TNI_CHUNK_THREADS);
    if (p->is_short) {
        const int64_t items = TNI_CHUNK_THREADS * TNI_SHORT_ITEMS(size);
        blocks = ceil_div(job.chunks.count, items);
        launch.shared = (uint32_t)((job.map.size + items * 16 / size / job.map.size + 2 + 16 / size) *
                                   (int64_t)sizeof(int64_t));
    }
    return launch_chunks(call, &launch, blocks, &job);
}
