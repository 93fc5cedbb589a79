__global__ void rowScale(float* out, const float* in, const float* s, int rows, int cols) {
    int c = threadIdx.x + blockIdx.x * blockDim.x, r = blockIdx.y;
    if (c < cols) out[r * cols + c] = in[r * cols + c] * s[r];
}
