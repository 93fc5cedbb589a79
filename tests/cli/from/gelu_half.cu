#include <cuda_fp16.h>

namespace kernels {

__device__ inline float gelu(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

/* A loop over the grid: any number of blocks does. */
__global__ void gelu_half(const __half *__restrict__ in, __half *__restrict__ out, int64_t count) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        out[i] = __float2half(gelu(__half2float(in[i])));
    }
}

}  // namespace kernels
