/* linear_int8 and linear_fp8: products of 8-bit numbers, with a scale for each row of x and of w. Both have the same
 * arguments, so kernels take those of linear_int8. */
#ifndef TNI_SCALED_LINEAR_H
#define TNI_SCALED_LINEAR_H

#include "ops/arguments.h"

#define SCALED_LINEAR_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(w) IN(x_scale) IN(w_scale) IN(b) ATTR(type, type) ATTR(act, choice) OUT(y)
TNI_ARGUMENTS(linear_int8, SCALED_LINEAR_ARGUMENTS)

/* Rows of x, columns of y, and terms of a sum. */
typedef struct tni_scaled_size {
    int64_t m, n, k;
} tni_scaled_size;

static inline tni_scaled_size tni_scaled_size_of(const linear_int8_args *a) {
    return (tni_scaled_size){tn_product(a->x, 0, a->x->ndim - 1), a->w->shape[0], a->w->shape[1]};
}

static inline bool tni_scaled_is_float(tn_type type) {
    return type == TN_F32 || type == TN_F16 || type == TN_BF16;
}

#endif
