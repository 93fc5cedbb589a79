// one warp per row
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void layer_norm_kernel(float *__restrict__ out, float *__restrict__ mean, float *__restrict__ rstd,
                                  const float *__restrict__ inp, const float *__restrict__ weight,
                                  const float *__restrict__ bias, int N, int C, float eps) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= N) return;
    const float *x = inp + row * C;
    float m = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += 32) m += x[i];
    for (int o = 16; o > 0; o /= 2) m += warp.shfl_xor(m, o);
    m /= C;
    float v = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += 32) v += (x[i] - m) * (x[i] - m);
    for (int o = 16; o > 0; o /= 2) v += warp.shfl_xor(v, o);
    float s = rsqrtf(v / C + eps);
    if (warp.thread_rank() == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
    for (int c = warp.thread_rank(); c < C; c += 32) out[row * C + c] = (x[c] - m) * s * weight[c] + bias[c];
}
