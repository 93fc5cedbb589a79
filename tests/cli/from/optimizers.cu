// Two steps of optimizers, each in one pass.
__global__ void sgd_momentum(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ v, float lr,
                             float momentum, size_t count) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        v[i] = momentum * v[i] + g[i];
        w[i] -= lr * v[i];
    }
}

__global__ void adam(float *p, const float *grad, float *exp_avg, float *exp_avg_sq, float lr, float beta1, float beta2,
                     float eps, float correction1, float correction2, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = grad[i];
    float m = beta1 * exp_avg[i] + (1.0f - beta1) * g;
    float v = beta2 * exp_avg_sq[i] + (1.0f - beta2) * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    p[i] -= lr * (m / correction1) / (sqrtf(v / correction2) + eps);
}
