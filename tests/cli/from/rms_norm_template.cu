#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

template <typename T, int BLOCK = 128>
__global__ void rms_norm_kernel(T *__restrict__ out, const T *__restrict__ input, const T *__restrict__ weight,
                                const float epsilon, const int hidden_size) {
    __shared__ float sums[BLOCK / 32];
    const T *row = input + (int64_t)blockIdx.x * hidden_size;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += BLOCK) sum += (float)row[i] * (float)row[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < BLOCK / 32; i++) sum += sums[i];
    const float scale = rsqrtf(sum / hidden_size + epsilon);
    for (int i = threadIdx.x; i < hidden_size; i += BLOCK) {
        out[(int64_t)blockIdx.x * hidden_size + i] = (T)((float)row[i] * scale * (float)weight[i]);
    }
}

void rms_norm(torch::Tensor &out, torch::Tensor &input, torch::Tensor &weight, double epsilon) {
    const int hidden_size = input.size(-1);
    const int num_tokens = input.numel() / hidden_size;
    auto stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "rms_norm", [&] {
        rms_norm_kernel<scalar_t, 256><<<num_tokens, 256, 0, stream>>>(
            out.data_ptr<scalar_t>(), input.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(), epsilon, hidden_size);
    });
}
