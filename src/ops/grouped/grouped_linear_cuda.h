/* grouped_linear on the GPU: kernels of the operator and of its gradients. A row's `data` says which it is. */
#ifndef TNI_GROUPED_LINEAR_CUDA_H
#define TNI_GROUPED_LINEAR_CUDA_H

#include "ops/gemm/gemm_cuda.h"

TNI_CUDA_DECLARE(grouped_hopper)
TNI_CUDA_DECLARE(grouped_mma)
TNI_CUDA_DECLARE(grouped_tile)

#define TNI_GROUPED_KERNEL(kernel, kind, ...)                                                              \
    {                                                                                                      \
        .name = #kernel, .device = TN_CUDA, .flags = TN_STRIDED, .run = tni_grouped_##kernel##_cuda_run,   \
        .prepare = tni_grouped_##kernel##_cuda_prepare, .release = tni_free, .data = (kind), ##__VA_ARGS__ \
    }
#define TNI_GROUPED_TENSOR_KERNEL(kernel, kind)                                 \
    TNI_GROUPED_KERNEL(kernel, kind, .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16), \
                       .accepts = tni_grouped_##kernel##_cuda_accepts,          \
                       .workspace = tni_grouped_##kernel##_cuda_workspace)
#define TNI_GROUPED_CUDA_KERNELS(kind) \
    TNI_GROUPED_TENSOR_KERNEL(hopper, kind), TNI_GROUPED_TENSOR_KERNEL(mma, kind), TNI_GROUPED_KERNEL(tile, kind)

#endif
