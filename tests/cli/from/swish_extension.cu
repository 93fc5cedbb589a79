#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")

template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) {
    return 1.0 / (1.0 + exp(-z));
}

template <typename scalar_t>
__global__ void swish_kernel(
    const scalar_t* __restrict__ x,
    scalar_t* __restrict__ y,
    const float beta,
    size_t size) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < size) {
    y[index] = x[index] * sigmoid(beta * x[index]);
  }
}

torch::Tensor swish_forward(torch::Tensor x, double beta) {
  CHECK_CUDA(x);
  auto y = torch::empty_like(x);
  const int threads = 256;
  const int blocks = (x.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "swish", ([&] {
    swish_kernel<scalar_t><<<blocks, threads>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), beta, x.numel());
  }));
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("swish_forward", &swish_forward, "swish (CUDA)");
}
