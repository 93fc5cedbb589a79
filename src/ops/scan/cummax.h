/* What cummax and cummin share: their arguments, and how a call is seen. */
#ifndef TNI_CUMMAX_H
#define TNI_CUMMAX_H

#include "core/host/arith.h"
#include "ops/arguments.h"

#define CUMMAX_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(axis, integer) OUT(values) OUT(index)
TNI_ARGUMENTS(cummax, CUMMAX_ARGUMENTS)
TNI_ARGUMENTS(cummin, CUMMAX_ARGUMENTS)

/* The largest element so far along an axis, or the smallest one, and where it is. Tensors are (outer, n, inner). Of
 * equal elements the last one counts, and a NaN is larger, and smaller, than every number: as in PyTorch. */
typedef struct tni_extremes {
    const tn_view *x, *values, *index; /* values, index: NULL where they are not wanted */
    int64_t outer, n, inner;
    bool smallest;
} tni_extremes;

/* A kernel has one as its `data`: whether it looks for the smallest. */
typedef struct tni_extremes_kind {
    bool smallest;
} tni_extremes_kind;

tni_extremes tni_extremes_of(const tn_call *call);

#endif
