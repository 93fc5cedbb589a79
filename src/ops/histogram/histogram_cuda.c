/* histogram on the GPU. */
#include "histogram.h"

#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "histogram.cuh"

enum { BLOCKS_PER_SM = 4, EACH = 4 /* elements of a thread, at least */ };

typedef struct plan {
    tn_launch clear, count;
    tni_histogram job;
} plan;

static tn_status fill(const tn_call *call, void *state) {
    const histogram_args a = histogram_args_of(call);
    const int64_t n = tn_count(a.x);
    const tn_gpu *gpu;
    plan *p = state;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    p->job = (tni_histogram){.n = n,
                             .bins = a.bins,
                             .low = a.low,
                             .high = a.high,
                             .width = histogram_width(&a),
                             .per_width = (double)a.bins / (a.high - a.low),
                             .copies = (int)min(HISTOGRAM_SHARED / a.bins, HISTOGRAM_COPIES)};
    p->clear.block = p->count.block = HISTOGRAM_THREADS;
    p->clear.grid = (uint32_t)ceil_div(a.bins, HISTOGRAM_THREADS);
    p->count.grid = (uint32_t)min(ceil_div(n, HISTOGRAM_THREADS * EACH), (int64_t)gpu->sms * BLOCKS_PER_SM);
    TN_TRY(tni_cuda_find(call, &p->clear, "histogram", "histogram_clear"));
    return tni_cuda_find(call, &p->count, "histogram",
                         p->job.copies > 0 ? "histogram_shared_%s" : "histogram_global_%s", tn_type_name(a.x->type));
}

tn_status tni_histogram_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

tn_status tni_histogram_cuda_run(const tn_call *call, void *state) {
    const histogram_args a = histogram_args_of(call);
    const plan *p = state;
    tni_histogram job = p->job;
    job.x = a.x->data;
    job.counts = a.counts->data;
    TN_TRY(tn_cuda_launch(call, &p->clear, (void *[]){&job}));
    return tn_cuda_launch(call, &p->count, (void *[]){&job});
}
