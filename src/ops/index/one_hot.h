/* The arguments of one_hot. */
#ifndef TNI_ONE_HOT_H
#define TNI_ONE_HOT_H

#include "ops/arguments.h"

#define ONE_HOT_ARGUMENTS(IN, OUT, ATTR) IN(index) ATTR(classes, integer) ATTR(type, type) OUT(y)
TNI_ARGUMENTS(one_hot, ONE_HOT_ARGUMENTS)

#endif
