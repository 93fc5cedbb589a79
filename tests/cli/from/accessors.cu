#include <torch/extension.h>

template <typename scalar_t>
__global__ void cell_kernel(const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> gates,
                            torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> cell) {
    const int n = blockIdx.y;
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < gates.size(1)) cell[n][c] = tanh(gates[n][c]);
}
