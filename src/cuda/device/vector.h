/* Vector parameters for kernels, made from a call's views. */
#ifndef TNI_CUDA_VECTOR_H
#define TNI_CUDA_VECTOR_H

#include <tenon/op.h>

#include "vector.cuh"

/* NULL: an absent one. Its data is NULL where the view's is, as it is when a kernel is prepared. */
static inline tni_vector tni_vector_of(const tn_view *v) {
    if (!v) return (tni_vector){0};
    const int type = v->type == TN_F16    ? TNI_VECTOR_F16
                     : v->type == TN_BF16 ? TNI_VECTOR_BF16
                     : v->type == TN_F32  ? TNI_VECTOR_F32
                                          : TNI_VECTOR_F64;
    return (tni_vector){.data = v->data, .step = v->shape[0] > 1 ? v->strides[0] : 1, .type = type};
}

#endif
