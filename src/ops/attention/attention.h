/* The arguments of attention and its gradient, and what their kernels have in common. */
#ifndef TNI_ATTENTION_H
#define TNI_ATTENTION_H

#include "core/host/arith.h"
#include "ops/arguments.h"

#define ATTENTION_ARGUMENTS(IN, OUT, ATTR) \
    IN(q)                                  \
    IN(k)                                  \
    IN(v)                                  \
    IN(bias)                               \
    IN(mask)                               \
    IN(sinks) ATTR(causal, boolean) ATTR(window, list) ATTR(scale, number) ATTR(softcap, number) OUT(o) OUT(lse)
TNI_ARGUMENTS(attention, ATTENTION_ARGUMENTS)

#define ATTENTION_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(q)                                       \
    IN(k)                                       \
    IN(v)                                       \
    IN(bias)                                    \
    IN(mask)                                    \
    IN(sinks)                                   \
    IN(o)                                       \
    IN(lse)                                     \
    IN(dy)                                      \
    IN(dlse)                                    \
    ATTR(causal, boolean)                       \
    ATTR(window, list) ATTR(scale, number) ATTR(softcap, number) OUT(dq) OUT(dk) OUT(dv) OUT(dbias) OUT(dsinks)
TNI_ARGUMENTS(attention_grad, ATTENTION_GRAD_ARGUMENTS)

/* The arguments of either. What the forward pass lacks is NULL. */
typedef struct attention_job {
    const tn_view *q, *k, *v, *bias, *mask, *sinks; /* bias: of the gradient, with sizes of 1 where it broadcasts */
    const tn_view *o, *lse, *dy, *dlse;
    const tn_view *dq, *dk, *dv, *dbias, *dsinks;
    int64_t b, hq, hk, m, n, d, e;
    int64_t group; /* heads of q that share one of k */
    double scale, softcap;
    int64_t before, after; /* keys that a query sees before its own place, and behind it */
} attention_job;

attention_job attention_job_of(const tn_call *call);
attention_job attention_grad_job_of(const tn_call *call);

/* Query i has its place among the keys so that the last query stands at the last key. */
static inline int64_t attention_first_key(const attention_job *a, int64_t i) {
    return min(max(i + a->n - a->m - a->before, 0), a->n);
}
static inline int64_t attention_end_of_keys(const attention_job *a, int64_t i) {
    return max(attention_first_key(a, i), min(i + a->n - a->m + a->after + 1, a->n));
}

/* Element (p, h, i, j) of a tensor with four dimensions, of which those of size 1 broadcast. */
static inline int64_t attention_at(const tn_view *x, int64_t p, int64_t h, int64_t i, int64_t j) {
    const int64_t at[4] = {p, h, i, j};
    int64_t sum = 0;
    for (int d = 0; d < 4; d++) sum += x->shape[d] == 1 ? 0 : at[d] * x->strides[d];
    return sum;
}

tn_status tni_attention_ref(const tn_call *call, void *state);
tn_status tni_attention_grad_ref(const tn_call *call, void *state);
tn_cost tni_attention_cost(const tn_call *call);
tn_cost tni_attention_grad_cost(const tn_call *call);

#endif
