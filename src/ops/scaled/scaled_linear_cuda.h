/* linear_int8 and linear_fp8 on the GPU: the kernels of both. */
#ifndef TNI_SCALED_LINEAR_CUDA_H
#define TNI_SCALED_LINEAR_CUDA_H

#include "cuda/driver/cuda.h"

TNI_CUDA_DECLARE(scaled_hopper)
TNI_CUDA_DECLARE(scaled_mma)
TNI_CUDA_DECLARE(scaled_plain)

#define TNI_SCALED_KERNEL(kernel)                                                                         \
    {                                                                                                     \
        .name = #kernel, .device = TN_CUDA, .accepts = tni_scaled_##kernel##_cuda_accepts,                \
        .workspace = tni_scaled_##kernel##_cuda_workspace, .prepare = tni_scaled_##kernel##_cuda_prepare, \
        .release = tni_free, .run = tni_scaled_##kernel##_cuda_run                                        \
    }
#define TNI_SCALED_CUDA_KERNELS TNI_SCALED_KERNEL(hopper), TNI_SCALED_KERNEL(mma), TNI_SCALED_KERNEL(plain)

#endif
