// Forward and backward, in one file.
static inline int div_up(int a, int b) { return (a + b - 1) / b; }

__global__ void scale_bias_relu_forward_kernel(const float *x, const float *scale, const float *bias, float *y,
                                               int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    float v = x[row * cols + col] * scale[col] + bias[col];
    y[row * cols + col] = v > 0.0f ? v : 0.0f;
}

__global__ void scale_bias_relu_backward_kernel(const float *y, const float *scale, const float *dy, float *dx,
                                                int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    dx[row * cols + col] = y[row * cols + col] > 0.0f ? dy[row * cols + col] * scale[col] : 0.0f;
}

void forward(const float *x, const float *scale, const float *bias, float *y, int rows, int cols) {
    const dim3 threads(32, 8);
    const dim3 blocks(div_up(cols, 32), div_up(rows, 8));
    scale_bias_relu_forward_kernel<<<blocks, threads>>>(x, scale, bias, y, rows, cols);
}

void backward(const float *y, const float *scale, const float *dy, float *dx, int rows, int cols) {
    const dim3 threads(32, 8);
    const dim3 blocks(div_up(cols, 32), div_up(rows, 8));
    scale_bias_relu_backward_kernel<<<blocks, threads>>>(y, scale, dy, dx, rows, cols);
}
