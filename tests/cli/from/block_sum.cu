constexpr int kThreads = 256;

__global__ void block_sum(const float* __restrict__ in, float* __restrict__ partial, const int n) {
    __shared__ float buffer[kThreads];
    const int tid = threadIdx.x;
    const int i = blockIdx.x * kThreads + tid;
    buffer[tid] = i < n ? in[i] : 0.f;
    __syncthreads();
    for (int s = kThreads / 2; s > 0; s >>= 1) {
        if (tid < s) buffer[tid] += buffer[tid + s];
        __syncthreads();
    }
    if (tid == 0) partial[blockIdx.x] = buffer[0];
}

void run(const float *in, float *partial, int n, cudaStream_t stream) {
    block_sum<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(in, partial, n);
}
