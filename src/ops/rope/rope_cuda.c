/* rope on the GPU. */
#include "cuda/driver/cuda.h"
#include "cuda/rows/row_plan.h"
#include "rope.cuh"
#include "rope.h"

TNI_CUDA_DECLARE(rope)
TNI_CUDA_DECLARE(rope_grad)

/* Rows lie together in all tensors. The gradient's are in the same places. */
bool tni_rope_cuda_accepts(const tn_call *call) {
    const rope_job job = rope_job_of(call, false);
    const tni_rows rows = rope_rows_of(&job);
    const bool together = job.pairs <= 1 || (job.cos_step == 1 && job.sin_step == 1);
    return together && tni_rows_beside(&rows, 2);
}

typedef struct plan {
    tn_launch pieces, single; /* pieces: where everything is aligned */
    tni_rope job;
    int64_t vector; /* pairs of a piece */
    bool empty, may_piece;
} plan;

static int code_of(tn_type angles) {
    return angles == TN_F16 ? ROPE_F16 : angles == TN_BF16 ? ROPE_BF16 : angles == TN_F32 ? ROPE_F32 : ROPE_F64;
}

static uint32_t grid_of(int64_t count) {
    return (uint32_t)min(ceil_div(count, ROPE_THREADS), INT32_MAX);
}

static tn_status fill(const tn_call *call, plan *p, bool back) {
    const rope_job job = rope_job_of(call, back);
    const tn_type type = job.x->type;
    p->empty = tn_count(job.x) == 0;
    if (p->empty) return TN_OK;
    const tni_rows rows = rope_rows_of(&job);
    const char *pairs = job.interleaved ? "neighbours" : "halves";
    TN_TRY(tni_gpu_rows_of(call, &p->job.rows, &rows));
    p->job.pairs = job.pairs;
    p->job.angles = code_of(job.cos->type);
    p->job.back = back;
    p->vector = 16 / (int64_t)tn_type_size(type);
    p->may_piece = job.pairs % p->vector == 0 && tni_rows_aligned(&p->job.rows, 2, type);
    p->pieces.block = p->single.block = ROPE_THREADS;
    p->pieces.grid = grid_of(rows.count * (job.pairs / p->vector));
    p->single.grid = grid_of(rows.count * job.pairs);
    TN_TRY(tni_cuda_find(call, &p->pieces, "rope", "rope_%s_p_%s", pairs, tn_type_name(type)));
    return tni_cuda_find(call, &p->single, "rope", "rope_%s_s_%s", pairs, tn_type_name(type));
}

static tn_status fill_forward(const tn_call *call, void *state) {
    return fill(call, state, false);
}

static tn_status fill_back(const tn_call *call, void *state) {
    return fill(call, state, true);
}

tn_status tni_rope_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill_forward, state);
}

tn_status tni_rope_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill_back, state);
}

tn_status tni_rope_cuda_run(const tn_call *call, void *state) {
    const plan *p = state;
    const rope_args a = rope_args_of(call);
    tni_rope job = p->job;
    if (p->empty) return TN_OK;
    job.x = a.x->data;
    job.cos = a.cos->data;
    job.sin = a.sin->data;
    job.y = a.y->data;
    const bool pieces = p->may_piece && tni_is_aligned((const void *[]){job.x, job.y}, 2);
    job.pieces = pieces ? job.pairs / p->vector : job.pairs;
    return tn_cuda_launch(call, pieces ? &p->pieces : &p->single, (void *[]){&job});
}

tn_status tni_rope_grad_cuda_run(const tn_call *call, void *state) {
    return tni_rope_cuda_run(call, state);
}
