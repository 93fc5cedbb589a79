/* The arguments of layer_norm and its gradient. */
#ifndef TNI_LAYER_NORM_H
#define TNI_LAYER_NORM_H

#include "ops/arguments.h"

#define LAYER_NORM_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(gamma) IN(beta) ATTR(eps, number) OUT(y) OUT(mean) OUT(rstd)
TNI_ARGUMENTS(layer_norm, LAYER_NORM_ARGUMENTS)

#define LAYER_NORM_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(gamma) IN(beta) IN(mean) IN(rstd) IN(dy) OUT(dx) OUT(dgamma) OUT(dbeta)
TNI_ARGUMENTS(layer_norm_grad, LAYER_NORM_GRAD_ARGUMENTS)

#endif
