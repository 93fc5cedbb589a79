/* The arguments of max, min, argmax and argmin, and which of their calls the vectorised kernels take. */
#ifndef TNI_EXTREMES_H
#define TNI_EXTREMES_H

#include "core/host/arith.h"
#include "ops/arguments.h"

#define ARGMAX_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(axes, list) ATTR(keepdim, boolean) OUT(index)
TNI_ARGUMENTS(argmax, ARGMAX_ARGUMENTS) /* max has the same, and y for index */

/* x is dense: (outer, n, inner), where n is all that is reduced. n is 0 where the call is none for these kernels. */
typedef struct tni_extreme_along {
    const tn_view *x, *y;
    int64_t outer, n, inner;
} tni_extreme_along;

enum { TNI_EXTREMES_TILE = 512 }; /* columns that are one unit of work */

tni_extreme_along tni_extreme_along_of(const tn_call *call);

extern const tn_kernel tni_max_kernels[], tni_min_kernels[], tni_argmax_kernels[], tni_argmin_kernels[];

#endif
