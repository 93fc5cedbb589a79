/* The GPU kernels of layer_norm and its gradient, as the table sees them. */
#ifndef TNI_LAYER_NORM_CUDA_H
#define TNI_LAYER_NORM_CUDA_H

#include "cuda/driver/cuda.h"

TNI_CUDA_DECLARE(layer_norm)
TNI_CUDA_DECLARE(layer_norm_grad)

/* Whether the elements of rows lie side by side. */
bool tni_layer_norm_cuda_accepts(const tn_call *call);
bool tni_layer_norm_grad_cuda_accepts(const tn_call *call);

size_t tni_layer_norm_cuda_workspace(const tn_call *call);
size_t tni_layer_norm_grad_cuda_workspace(const tn_call *call);

#endif
