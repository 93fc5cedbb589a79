/* Tenon: fused ML operators in one table. Include this. */
#ifndef TENON_H
#define TENON_H

#include <tenon/call.h>
#include <tenon/cuda.h>
#include <tenon/device.h>
#include <tenon/fuse.h>
#include <tenon/kernel.h>
#include <tenon/host.h>
#include <tenon/op.h>
#include <tenon/ops.h>
#include <tenon/param.h>
#include <tenon/status.h>
#include <tenon/tensor.h>
#include <tenon/version.h>

#endif
