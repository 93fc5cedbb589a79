/* The arguments of gather, its gradient and scatter_add. */
#ifndef TNI_GATHER_H
#define TNI_GATHER_H

#include "ops/arguments.h"

#define GATHER_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(index) ATTR(axis, integer) OUT(y)
TNI_ARGUMENTS(gather, GATHER_ARGUMENTS)

#define GATHER_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(index) ATTR(shape, list) ATTR(axis, integer) OUT(dx)
TNI_ARGUMENTS(gather_grad, GATHER_GRAD_ARGUMENTS)

#define SCATTER_ADD_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(index) IN(src) ATTR(axis, integer) OUT(y)
TNI_ARGUMENTS(scatter_add, SCATTER_ADD_ARGUMENTS)

#endif
