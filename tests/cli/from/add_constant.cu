// The first kernel that everybody writes.
#include <cuda_runtime.h>

__global__ void add_constant_kernel(const float *input, float *output, float constant, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        output[i] = input[i] + constant;
    }
}
