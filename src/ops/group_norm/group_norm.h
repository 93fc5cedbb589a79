/* The arguments of group_norm, of instance_norm, where every channel is a group, and of their gradients; and how the
 * vectorised kernels divide their work. */
#ifndef TNI_GROUP_NORM_H
#define TNI_GROUP_NORM_H

#include "ops/arguments.h"
#include "ops/norm/norm.h"

#define GROUP_NORM_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(gamma) IN(beta) ATTR(groups, integer) ATTR(eps, number) ATTR(act, choice) OUT(y)
TNI_ARGUMENTS(group_norm, GROUP_NORM_ARGUMENTS)

#define GROUP_NORM_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                        \
    IN(gamma)                                    \
    IN(beta)                                     \
    IN(dy) ATTR(groups, integer) ATTR(eps, number) ATTR(act, choice) OUT(dx) OUT(dgamma) OUT(dbeta)
TNI_ARGUMENTS(group_norm_grad, GROUP_NORM_GRAD_ARGUMENTS)

#define INSTANCE_NORM_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(gamma) IN(beta) ATTR(eps, number) ATTR(act, choice) OUT(y)
TNI_ARGUMENTS(instance_norm, INSTANCE_NORM_ARGUMENTS)

#define INSTANCE_NORM_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(gamma) IN(beta) IN(dy) ATTR(eps, number) ATTR(act, choice) OUT(dx) OUT(dgamma) OUT(dbeta)
TNI_ARGUMENTS(instance_norm_grad, INSTANCE_NORM_GRAD_ARGUMENTS)

extern const tn_kernel tni_group_norm_kernels[], tni_instance_norm_kernels[];

enum { GROUP_NORM_ACTS = 2 }; /* 'none' and 'relu'; other activations are the formula's */

/* x: (n, c, s). Are planes so short that gamma and beta are spread over the elements of a sample? A vector then holds
 * several channels. */
static inline bool tni_group_norm_spreads(int64_t c, int64_t s) {
    enum { SHORT_PLANE = 64, MOST = 65536 };
    return s < SHORT_PLANE && c * s <= MOST;
}

#endif
