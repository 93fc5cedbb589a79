/* Copies between layouts on the GPU. */
#ifndef TNI_CUDA_COPY_H
#define TNI_CUDA_COPY_H

#include <tenon/op.h>

/* Elements between views of the same shape and type, any strides, on the call's device and stream. */
tn_status tni_cuda_copy(const tn_call *call, const tn_view *to, const tn_view *from);

#endif
