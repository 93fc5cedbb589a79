/* The arguments of segment_sum, by ids and by offsets, and of their gradients. */
#ifndef TNI_SEGMENT_SUM_H
#define TNI_SEGMENT_SUM_H

#include "ops/arguments.h"

#define SEGMENT_SUM_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(ids) ATTR(segments, integer) OUT(y)
TNI_ARGUMENTS(segment_sum, SEGMENT_SUM_ARGUMENTS)

#define SEGMENT_SUM_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(ids) OUT(dx)
TNI_ARGUMENTS(segment_sum_grad, SEGMENT_SUM_GRAD_ARGUMENTS)

#define SEGMENT_SUM_OFFSETS_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(offsets) OUT(y)
TNI_ARGUMENTS(segment_sum_offsets, SEGMENT_SUM_OFFSETS_ARGUMENTS)

#define SEGMENT_SUM_OFFSETS_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(offsets) ATTR(n, integer) OUT(dx)
TNI_ARGUMENTS(segment_sum_offsets_grad, SEGMENT_SUM_OFFSETS_GRAD_ARGUMENTS)

static inline int64_t offset_at(const tn_view *offsets, int64_t i) {
    const int64_t at = i * offsets->strides[0];
    return offsets->type == TN_I64 ? ((const int64_t *)offsets->data)[at] : ((const int32_t *)offsets->data)[at];
}

/* Fails where offsets descend, or leave 0 … n. */
tn_status tni_segment_check(const tn_call *call, const tn_view *offsets, int64_t n);

#endif
