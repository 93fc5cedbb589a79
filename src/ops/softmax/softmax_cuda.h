/* The GPU kernels of softmax and its gradient, as the table sees them. */
#ifndef TNI_SOFTMAX_CUDA_H
#define TNI_SOFTMAX_CUDA_H

#include "cuda/driver/cuda.h"

TNI_CUDA_DECLARE(softmax)
TNI_CUDA_DECLARE(softmax_grad)

/* Whether the strides are ones that the kernels take: elements side by side along the axis, or along another dimension. */
bool tni_softmax_cuda_accepts(const tn_call *call);
bool tni_softmax_grad_cuda_accepts(const tn_call *call);

size_t tni_softmax_cuda_workspace(const tn_call *call);
size_t tni_softmax_grad_cuda_workspace(const tn_call *call);

#endif
