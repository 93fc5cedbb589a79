__global__ void conv1d_same(const float *in, const float *k, float *out, int n, int r) {
    int i = threadIdx.x + blockDim.x * blockIdx.x;
    if (i >= n) return;
    float a = 0;
    for (int j = -r; j <= r; ++j) { int at = i + j; if (at >= 0 && at < n) a += in[at] * k[j + r]; }
    out[i] = a;
}
