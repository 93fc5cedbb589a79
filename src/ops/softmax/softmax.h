/* The arguments of softmax and its gradient. */
#ifndef TNI_SOFTMAX_H
#define TNI_SOFTMAX_H

#include "ops/arguments.h"

#define SOFTMAX_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(mask) ATTR(axis, integer) ATTR(scale, number) ATTR(causal, boolean) OUT(y)
TNI_ARGUMENTS(softmax, SOFTMAX_ARGUMENTS)

#define SOFTMAX_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(y) IN(dy) ATTR(axis, integer) ATTR(scale, number) OUT(dx)
TNI_ARGUMENTS(softmax_grad, SOFTMAX_GRAD_ARGUMENTS)

#endif
