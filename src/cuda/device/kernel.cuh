/* Kernels under plain C names, which the host finds them by. */
#pragma once

#include "instructions.cuh"

/* TN_KERNEL(softmax_warp_bf16, 256, (float *x, int n), body): at most 256 threads of a block. */
#define TN_KERNEL(name, bounds, parameters, ...) \
    extern "C" __global__ void __launch_bounds__(bounds) name parameters { __VA_ARGS__; }

/* Threads that an SM holds. */
#if __CUDA_ARCH__ == 750
#define TN_SM_THREADS 1024
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200
#define TN_SM_THREADS 1536
#else
#define TN_SM_THREADS 2048
#endif

/* A kernel whose parameters are one struct, p; `blocks` of it fit onto an SM, or as many as it has threads for. */
#define TN_ROW_KERNEL(name, bounds, blocks, parameters, call)                                                          \
    extern "C" __global__ void __launch_bounds__(bounds, (blocks) * (bounds) <= TN_SM_THREADS                          \
                                                             ? (blocks)                                                \
                                                             : TN_SM_THREADS / (bounds)) name(TN_PARAMS(parameters)) { \
        call;                                                                                                          \
    }

/* KERNELS(T, name) for the floating types of 2 and 4 bytes, and for all of them. */
#define TN_FOR_SMALL_TYPES(KERNELS) KERNELS(f16, f16) KERNELS(bf16, bf16) KERNELS(float, f32)
#define TN_FOR_TYPES(KERNELS) TN_FOR_SMALL_TYPES(KERNELS) KERNELS(double, f64)
