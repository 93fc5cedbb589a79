/* Memory that somebody has set aside for a call, as a host. */
#include "core/host/memory.h"
#include "run.h"

static tn_block scratch_alloc(void *context, tn_device device, size_t bytes) {
    tni_scratch *s = context;
    const size_t left = (size_t)(s->end - s->next), skipped = -(uintptr_t)s->next % TNI_ALIGNMENT;
    if (skipped > left || bytes > left - skipped) return s->outer->alloc(s->outer->context, device, bytes);
    char *data = s->next + skipped;
    s->next = data + bytes;
    return (tn_block){data, NULL};
}

static void scratch_release(void *context, tn_device device, tn_block block) {
    const tni_scratch *s = context;
    const uintptr_t at = (uintptr_t)block.data;
    if (at < (uintptr_t)s->begin || at >= (uintptr_t)s->end) s->outer->release(s->outer->context, device, block);
}

static void scratch_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg) {
    const tni_scratch *s = context;
    s->outer->parallel(s->outer->context, n, grain, body, arg);
}

static int scratch_threads(void *context) {
    const tni_scratch *s = context;
    return s->outer->threads(s->outer->context);
}

const tn_host *tni_scratch_init(tni_scratch *s, const tn_host *outer, void *data, size_t bytes) {
    s->outer = outer;
    s->begin = s->next = data;
    s->end = data ? s->begin + bytes : s->begin; /* a call that needs none has none */
    s->host = (tn_host){s, outer->stream, scratch_alloc, scratch_release, scratch_parallel, scratch_threads};
    return &s->host;
}
