/* The arguments of batch_norm and its gradient, the two layouts that the vectorised kernels take as they are, and how
 * they divide their work. */
#ifndef TNI_BATCH_NORM_H
#define TNI_BATCH_NORM_H

#include "norm.h"
#include "ops/arguments.h"

#define BATCH_NORM_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                   \
    IN(gamma)                               \
    IN(beta)                                \
    IN(running_mean)                        \
    IN(running_var)                         \
    IN(residual) ATTR(momentum, number) ATTR(eps, number) ATTR(act, choice) OUT(y) OUT(mean) OUT(rstd) OUT(z)
TNI_ARGUMENTS(batch_norm, BATCH_NORM_ARGUMENTS)

#define BATCH_NORM_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                        \
    IN(gamma)                                    \
    IN(beta) IN(residual) IN(mean) IN(rstd) IN(dy) IN(z) ATTR(act, choice) OUT(dx) OUT(dgamma) OUT(dbeta) OUT(dresidual)
TNI_ARGUMENTS(batch_norm_grad, BATCH_NORM_GRAD_ARGUMENTS)

enum { ACT_NONE, ACT_RELU }; /* the choices of act that kernels see; the core does the others */

/* Numbers in the workspace: SUMS for each channel of each part, PER_CHANNEL for each channel. */
enum { TNI_BATCH_NORM_SUMS = 3, TNI_BATCH_NORM_PER_CHANNEL = 5 };

/* x: (n, c, *s). Planes: for each n and channel, the values of s lie side by side, as in NCHW. */
static inline bool tni_batch_norm_planes(const tn_view *v) {
    int64_t step = 1;
    for (int d = v->ndim - 1; d >= 2; d--) {
        if (v->shape[d] != 1 && v->strides[d] != step) return false;
        step *= v->shape[d];
    }
    return true;
}

/* Rows: the channels lie side by side, and (n, s) are places one step apart: channels-last, or plain (n, c). The step;
 * 0 where it is not so, or where places repeat each other. */
static inline int64_t tni_batch_norm_step(const tn_view *v) {
    int64_t step = 0, places = 1;
    if (v->shape[1] != 1 && v->strides[1] != 1) return 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (d == 1 || v->shape[d] == 1) continue;
        if (places == 1) step = v->strides[d];
        if (step == 0 || v->strides[d] != step * places) return 0;
        places *= v->shape[d];
    }
    return step == 0 ? v->shape[1] : step;
}

/* Parts of n whose planes are summed up apart, where there are few channels. By the shape alone, as rows are. */
static inline int64_t tni_batch_norm_parts(int64_t n, int64_t c) {
    if (c >= 16 || n <= 1) return 1;
    return min(n, 16);
}

#endif
