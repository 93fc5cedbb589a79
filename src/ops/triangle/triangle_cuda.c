/* triu and tril on the GPU. */
#include "core/layout/layout.h"
#include "cuda/copy/chunk.h"
#include "triangle.cuh"
#include "triangle.h"

typedef struct plan {
    tn_launch launch;
    tni_triangle job;
    bool empty, by_chunks;
    bool aligned;      /* lines begin at multiples of 16 bytes if the result does */
    bool dense;        /* they follow each other in the result */
    int64_t low, high; /* the operand's memory, in elements from its first one */
} plan;

static tn_status fill(const tn_call *call, plan *p, bool upper) {
    const triangle t = triangle_of(call, upper);
    const int64_t size = (int64_t)tn_type_size(t.y->type);
    p->empty = tn_count(t.y) == 0;
    if (p->empty) return TN_OK;
    reach_of(t.x, &p->low, &p->high);
    p->by_chunks = t.step[0] == 1 && t.step[1] == 1;
    p->aligned = t.line_step[0] * size % 16 == 0;
    for (int d = 0; d < t.matrices.n_dims; d++) p->aligned &= t.matrices.strides[d][0] * size % 16 == 0;
    p->dense = t.line_step[0] == t.n && tni_is_dense(t.y->ndim, t.y->shape, t.y->strides);
    p->job = (tni_triangle){.n = t.n, .lines = t.lines, .offset = t.offset, .from_start = t.from_start};
    for (int k = 0; k < 2; k++) {
        p->job.step[k] = t.step[k];
        p->job.line_step[k] = t.line_step[k];
    }
    tni_walk_of(&p->job.matrices, &t.matrices);
    return tni_cuda_find(call, &p->launch, "triangle", p->by_chunks ? "triangle_chunks_%d" : "triangle_elements_%d",
                         (int)size);
}

static tn_status fill_upper(const tn_call *call, void *state) {
    return fill(call, state, true);
}

static tn_status fill_lower(const tn_call *call, void *state) {
    return fill(call, state, false);
}

tn_status tni_triu_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill_upper, state);
}

tn_status tni_tril_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill_lower, state);
}

static tn_status run(const tn_call *call, const plan *p) {
    if (p->empty) return TN_OK;
    const triu_args a = triu_args_of(call);
    const int64_t size = (int64_t)tn_type_size(a.y->type);
    const int64_t rows = p->job.matrices.count * p->job.lines;
    tni_triangle job = p->job;
    tn_launch launch = p->launch;
    job.from = a.x->data;
    if (p->by_chunks) {
        fill_chunks(&job.chunks, a.y->data, job.n, rows, size, p->dense, p->aligned);
    } else {
        job.chunks = (tni_chunks){.to = a.y->data, .count = rows * job.n};
        job.chunks.is_short = job.chunks.count < INT32_MAX;
        job.chunks.divisor = divisor_if(job.chunks.is_short, job.n);
    }
    job.chunks.low = (const char *)a.x->data + p->low * size;
    job.chunks.high = (const char *)a.x->data + p->high * size;
    job.by_lines = divisor_if(job.chunks.is_short, job.lines);
    return launch_chunks(
        call, &launch, p->by_chunks ? chunk_blocks(&job.chunks) : ceil_div(job.chunks.count, TNI_CHUNK_THREADS), &job);
}

tn_status tni_triu_cuda_run(const tn_call *call, void *state) {
    return run(call, state);
}

tn_status tni_tril_cuda_run(const tn_call *call, void *state) {
    return run(call, state);
}
