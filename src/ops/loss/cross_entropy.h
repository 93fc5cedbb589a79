/* The arguments of cross_entropy and its gradient, and what its CPU kernels share. */
#ifndef TNI_CROSS_ENTROPY_H
#define TNI_CROSS_ENTROPY_H

#include "ops/arguments.h"

#define CROSS_ENTROPY_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                      \
    IN(target)                                 \
    IN(weight)                                 \
    ATTR(ignore_index, integer)                \
    ATTR(label_smoothing, number) ATTR(z_loss, number) ATTR(reduction, choice) OUT(loss) OUT(lse) OUT(gx)
TNI_ARGUMENTS(cross_entropy, CROSS_ENTROPY_ARGUMENTS)

#define CROSS_ENTROPY_INPLACE_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                              \
    IN(target)                                         \
    IN(weight)                                         \
    ATTR(ignore_index, integer)                        \
    ATTR(label_smoothing, number) ATTR(z_loss, number) ATTR(reduction, choice) OUT(loss) OUT(lse)
TNI_ARGUMENTS(cross_entropy_inplace, CROSS_ENTROPY_INPLACE_ARGUMENTS)

#define CROSS_ENTROPY_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(gx) IN(dloss) ATTR(reduction, choice) OUT(dx)
TNI_ARGUMENTS(cross_entropy_grad, CROSS_ENTROPY_GRAD_ARGUMENTS)

enum { REDUCE_MEAN, REDUCE_SUM, REDUCE_NONE }; /* the choices of reduction */

static inline int64_t target_at(const tn_view *target, int64_t i) {
    return target->type == TN_I64 ? ((const int64_t *)target->data)[i] : ((const int32_t *)target->data)[i];
}

/* How much the target and each class count; one class alone is certain, so nothing but z_loss has a gradient there. */
typedef struct label_shares {
    double target, each; /* 1 - label_smoothing, label_smoothing / v */
} label_shares;

static inline label_shares label_shares_of(const cross_entropy_args *a) {
    const int64_t v = a->x->shape[a->x->ndim - 1];
    if (v < 2) return (label_shares){0, 0};
    return (label_shares){1 - a->label_smoothing, a->label_smoothing / (double)v};
}

/* A call of cross_entropy_inplace as one of cross_entropy whose gx is x itself. */
typedef struct cross_entropy_inplace_call {
    tn_slot out[3];
    tn_call call;
} cross_entropy_inplace_call;

static inline void as_cross_entropy(const tn_call *call, cross_entropy_inplace_call *as) {
    as->call = *call;
    as->out[0] = call->out[0];
    as->out[1] = call->out[1];
    as->out[2] = call->in[0];
    as->call.out = as->out;
}

/* The failure that row `row` of the target (counted in dense order) causes by being `value`: neither a class nor
 * ignore_index. */
tn_status tni_cross_entropy_bad_target(const tn_call *call, int64_t row, int64_t value);
/* The same for any operator `op` whose classes are 0 … v - 1. */
tn_status tni_bad_target(const char *op, const tn_view *target, int64_t v, int64_t ignore_index, int64_t row,
                         int64_t value);

#endif
