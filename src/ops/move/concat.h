/* concat as rows: each row of the result is a row of every tensor, one behind the other. */
#ifndef TNI_CONCAT_H
#define TNI_CONCAT_H

#include "cuda/driver/cuda.h"
#include "ops/arguments.h"

#define CONCAT_ARGUMENTS(IN, OUT, ATTR) IN(xs) ATTR(axis, integer) OUT(y)
TNI_ARGUMENTS(concat, CONCAT_ARGUMENTS) /* xs is the first of them */

typedef struct concat {
    const tn_view *xs, *y;
    int count, axis;
    int64_t rows, inner; /* inner: elements for each step along the axis */
} concat;

concat concat_of(const tn_call *call);
/* All tensors are dense. */
bool concat_is_dense(const tn_call *call);
/* One tensor after the other, of any strides. */
tn_status concat_apart(const tn_call *call, const concat *c,
                       tn_status (*copy)(const tn_call *, const tn_view *to, const tn_view *from));

TNI_CUDA_DECLARE(concat)

#endif
