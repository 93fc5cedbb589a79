#include <cfloat>

// One block for each row.
extern "C" __global__ void __launch_bounds__(256) softmax_rows(const float *x, float *y, int cols)
{
    extern __shared__ float scratch[];
    const float *row = x + blockIdx.x * cols;
    float *out = y + blockIdx.x * cols;
    float best = -3.4e38f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) best = fmaxf(best, row[c]);
    scratch[threadIdx.x] = best;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + s]);
        __syncthreads();
    }
    best = scratch[0];
    __syncthreads();
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(row[c] - best);
    scratch[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) scratch[threadIdx.x] += scratch[threadIdx.x + s];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x) out[c] = expf(row[c] - best) / scratch[0];
}
