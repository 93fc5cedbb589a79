__global__ void histogram(const int *values, int *bins, int n, int n_bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && values[i] >= 0 && values[i] < n_bins) atomicAdd(&bins[values[i]], 1);
}
