/* The GPU kernels of cross_entropy and its gradient, as the table sees them. */
#ifndef TNI_CROSS_ENTROPY_CUDA_H
#define TNI_CROSS_ENTROPY_CUDA_H

#include "cuda/driver/cuda.h"

TNI_CUDA_DECLARE(cross_entropy)
TNI_CUDA_DECLARE(cross_entropy_grad)

/* Whether the elements of rows lie side by side. */
bool tni_cross_entropy_cuda_accepts(const tn_call *call);
bool tni_cross_entropy_grad_cuda_accepts(const tn_call *call);

size_t tni_cross_entropy_cuda_workspace(const tn_call *call);

#endif
