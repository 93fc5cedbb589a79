/* Sums of what a move brings to several places, on the GPU. */
#include "cuda/copy/chunk.h"
#include "fold.cuh"
#include "move.h"

typedef struct plan {
    tn_launch launch;
    tni_fold_job job;
} plan;

static bool has_several(const tni_map *m) {
    return m->rule != TNI_MAP_CONSTANT;
}

static tn_status fill(const tn_call *call, void *state) {
    plan *p = state;
    const tni_move m = tni_move_of(call);
    p->job.count = tn_count(m.from);
    if (p->job.count == 0) return TN_OK;
    p->job.is_short = p->job.count < INT32_MAX;
    p->job.n_dims = m.n_dims;
    int near = 0;
    for (int k = 0; k < TNI_FOLD_NEAR; k++) p->job.near[k] = -1;
    for (int d = 0; d < m.n_dims; d++) {
        const tni_move_dim *from = &m.dims[m.n_dims - 1 - d];
        p->job.dims[d].map = from->map;
        p->job.dims[d].from = from->to;
        p->job.dims[d].to = from->from;
        p->job.dims[d].far = -1;
        p->job.dims[d].divisor = divisor_if(p->job.is_short, from->map.n);
        if (!has_several(&from->map)) continue;
        if (near < TNI_FOLD_NEAR) {
            p->job.near[near++] = d;
        } else {
            p->job.dims[d].far = p->job.n_far++;
        }
    }
    return tni_cuda_find(call, &p->launch, "fold", "fold_%s", tn_type_name(m.to->type));
}

tn_status tni_fold_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

tn_status tni_fold_cuda_run(const tn_call *call, void *state) {
    const plan *p = state;
    if (p->job.count == 0) return TN_OK;
    tni_fold_job job = p->job;
    tn_launch launch = p->launch;
    job.from = tn_in(call, 0)->data;
    job.to = tn_out(call, 0)->data;
    return launch_chunks(call, &launch, ceil_div(job.count, TNI_FOLD_THREADS), &job);
}
