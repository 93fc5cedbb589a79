/* one_hot on the GPU. */
#include "one_hot.h"

#include <string.h>

#include "ops/lookup/lookup_cuda.h"

typedef struct one_hot_state {
    tn_launch launch;
    tni_one_hot p;
} one_hot_state;

static tn_status fill(const tn_call *call, void *state) {
    const one_hot_args a = one_hot_args_of(call);
    const int64_t size = (int64_t)tn_type_size(a.y->type);
    one_hot_state *s = state;
    int64_t one = 0; /* of any type: none is larger */
    tn_set(a.y->type, &one, 0, 1);
    memcpy(s->p.one, &one, sizeof s->p.one);
    s->p.wide = a.index->type == TN_I64;
    s->p.count = tn_count(a.y);
    s->p.pieces = ceil_div(s->p.count * size, 16);
    s->p.classes = tni_divided_of(a.classes, s->p.count);
    s->launch.block = TNI_TAKE_THREADS;
    s->launch.grid = (uint32_t)ceil_div(s->p.pieces, TNI_TAKE_THREADS);
    return tni_cuda_find(call, &s->launch, "one_hot", "one_hot_%d", (int)size);
}

tn_status tni_one_hot_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(one_hot_state), fill, state);
}

tn_status tni_one_hot_cuda_run(const tn_call *call, void *state) {
    const one_hot_args a = one_hot_args_of(call);
    const one_hot_state *s = state;
    tni_one_hot p = s->p;
    p.index = a.index->data;
    p.y = a.y->data;
    return tn_cuda_launch(call, &s->launch, (void *[]){&p});
}
