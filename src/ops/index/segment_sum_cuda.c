/* segment_sum by offsets on the GPU: as other sums, of rows that are sorted already. */
#include "segment_sum.h"

#include "ops/lookup/lookup_cuda.h"

/* As an add whose index are the offsets. */
static tni_lookup sum_lookup(const tn_call *call) {
    const segment_sum_offsets_args a = segment_sum_offsets_args_of(call);
    return (tni_lookup){.from = a.x,
                        .to = a.y,
                        .index = a.offsets,
                        .outer = 1,
                        .v = a.y->shape[0],
                        .by_n = 1,
                        .n = a.x->shape[0],
                        .inner = tn_product(a.x, 1, a.x->ndim),
                        .skipped = -1};
}

static tn_status fill_sum(const tn_call *call, void *state) {
    const tni_lookup l = sum_lookup(call);
    return tni_sort_prepare(call, &l, true, state);
}

size_t tni_segment_sum_offsets_cuda_workspace(const tn_call *call) {
    const tni_lookup l = sum_lookup(call);
    return tni_sort_room_of(&l, true).bytes;
}

tn_status tni_segment_sum_offsets_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tni_sort_state), fill_sum, state);
}

tn_status tni_segment_sum_offsets_cuda_run(const tn_call *call, void *state) {
    const tni_lookup l = sum_lookup(call);
    return tni_sort_launch(call, &l, state);
}

/* ---- the gradient: a take, of the segments that were found ------------------------------------------------------- */

typedef struct grad_state {
    tn_launch segments;
    tni_take_state take;
} grad_state;

/* The add whose gradient it is. */
static tni_lookup grad_segments(const tn_call *call) {
    const segment_sum_offsets_grad_args a = segment_sum_offsets_grad_args_of(call);
    return (tni_lookup){.from = a.dx,
                        .to = a.dy,
                        .index = a.offsets,
                        .outer = 1,
                        .v = a.dy->shape[0],
                        .by_n = 1,
                        .n = a.n,
                        .inner = tn_product(a.dy, 1, a.dy->ndim),
                        .skipped = -1};
}

/* Positions are i32; v, what is in no segment, is not out of range but left out. */
static tni_lookup grad_lookup(const tni_lookup *l, const tn_view *segments) {
    tni_lookup take = *l;
    take.from = l->to;
    take.to = l->from;
    take.index = segments;
    take.skipped = l->v;
    return take;
}

static tn_status fill_grad(const tn_call *call, void *state) {
    const tn_view segments = {.type = TN_I32};
    const tni_lookup l = grad_segments(call), take = grad_lookup(&l, &segments);
    grad_state *s = state;
    TN_TRY(tni_segments_prepare(call, &l, &s->segments));
    return tni_take_prepare(call, &take, &s->take);
}

size_t tni_segment_sum_offsets_grad_cuda_workspace(const tn_call *call) {
    return (size_t)grad_segments(call).n * sizeof(int32_t);
}

tn_status tni_segment_sum_offsets_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_grad, state);
}

tn_status tni_segment_sum_offsets_grad_cuda_run(const tn_call *call, void *state) {
    const tn_view segments = {.type = TN_I32};
    const tni_lookup l = grad_segments(call), take = grad_lookup(&l, &segments);
    const grad_state *s = state;
    TN_TRY(tni_segments_launch(call, &l, &s->segments, call->workspace));
    return tni_take_launch(call, &take, &s->take, call->workspace);
}
