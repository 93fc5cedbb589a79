// Four numbers at a time, and what is left over.
__global__ void vector_add(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, size_t n) {
    size_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 x = reinterpret_cast<const float4 *>(a)[i / 4];
        float4 y = reinterpret_cast<const float4 *>(b)[i / 4];
        reinterpret_cast<float4 *>(c)[i / 4] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    } else {
        for (size_t j = i; j < n; j++) c[j] = a[j] + b[j];
    }
}

void launch(const float *a, const float *b, float *c, size_t n) {
    int threads = 256;
    int blocks = (n / 4 + threads) / threads;
    vector_add<<<blocks, threads>>>(a, b, c, n);
}
