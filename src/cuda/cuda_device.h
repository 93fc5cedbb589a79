/* GPUs of CUDA as a device. */
#ifndef TNI_CUDA_DEVICE_H
#define TNI_CUDA_DEVICE_H

#include "core/host/device.h"

extern const tni_device_ops tni_cuda_device;

#endif
