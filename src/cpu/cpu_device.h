/* The CPU as a device. */
#ifndef TNI_CPU_DEVICE_H
#define TNI_CPU_DEVICE_H

#include "core/host/device.h"

extern const tni_device_ops tni_cpu_device;

#endif
