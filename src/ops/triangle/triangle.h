/* triu and tril as lines of memory. */
#ifndef TNI_TRIANGLE_H
#define TNI_TRIANGLE_H

#include "cpu/rows.h"
#include "cuda/driver/cuda.h"
#include "ops/arguments.h"

#define TRIU_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(diagonal, integer) OUT(y)
TNI_ARGUMENTS(triu, TRIU_ARGUMENTS)
TNI_ARGUMENTS(tril, TRIU_ARGUMENTS)

/* Matrices of `lines` lines of n elements; a line is what y is fastest along, a row or a column. Of line i, elements
 * from i + offset on are kept, or those before it. */
typedef struct triangle {
    const tn_view *x, *y;
    tni_rows matrices; /* at[0]: in y, at[1]: in x */
    int64_t n, lines;
    int64_t step[2], line_step[2]; /* of y, of x */
    int64_t offset;
    bool from_start; /* those before it */
} triangle;

triangle triangle_of(const tn_call *call, bool upper);

TNI_CUDA_DECLARE(triu)
TNI_CUDA_DECLARE(tril)

#endif
