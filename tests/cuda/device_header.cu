/* What authors write with tenon/device.cuh, in every type. test_device_header.c compiles it, and runs the kernels that
 * have plain C names where there is a GPU. */
#include <tenon/device.cuh>

/* Every way in which a T is used as a number. */
template <class T> __device__ void use(const T *x, T *y, long long n, float c) {
    __shared__ T few[9];
    __shared__ tn::wide<T> shared[48];
    const long long i = tn::global_thread();
    if (threadIdx.x < 9) few[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    T v = i < n ? x[i] : T(0), w = 1;
    v = v * 2 + c;
    v += 1;
    v *= 0.5f;
    v -= few[3];
    v /= 2u;
    w = exp(v) + expf(v) + max(v, 0.0f) + sqrt(v) + fabsf(v);
    w = w + tn::exp(v) + tn::max(v, 0.0f) + tn::silu(v) + tn::gelu(v) + tn::sigmoid(v) + tn::pow(v, 2.0f);
    w = w + tn::max(i, 0) + tn::min(3, 4u) + tn::abs(-3) + tn::mod(i, 4) + tn::fma(v, 2, 1.0f) + tn::sign(v);
    if (v > w && v != 0 && !(w == few[1]) && v < 3.5) w = -v;
    w = w + tn::block_sum(w, shared) + tn::block_max(v, shared) + tn::block_min(v, shared);
    w = w + tn::warp_sum(v) + tn::warp_max(w) + tn::warp_min(w);
    w = w + tn::cluster_sum(v, shared) + tn::cluster_max(v, shared) + tn::cluster_min(w, shared);
    w = w + tn::random(5, i) + tn::random_normal(5, i) + (float)n + 1.0 + 2;
    tn::vec<T, 4> q = tn::load<4>(x + 4 * i, n - 4 * i);
    q[1] = q[0] + w;
    q[2] = few[3] > v ? few[3] : v;
    q[3] = n;
    tn::store(y + 4 * i, q, n - 4 * i);
}
template <class T> __global__ void use_kernel(const T *x, T *y, long long n, float c) {
    use(x, y, n, c);
}
template __global__ void use_kernel<float>(const float *, float *, long long, float);
template __global__ void use_kernel<double>(const double *, double *, long long, float);
template __global__ void use_kernel<tn::f16>(const tn::f16 *, tn::f16 *, long long, float);
template __global__ void use_kernel<tn::bf16>(const tn::bf16 *, tn::bf16 *, long long, float);

/* x: a number for each thread of all blocks of a cluster; out: sum, max, min of the warp, the block and the cluster, as
 * the last thread sees them. Whole warps only, for the first three. */
template <class T> __device__ void reduce(const T *x, tn::wide<T> *out) {
    __shared__ tn::wide<T> shared[48];
    const T a = x[blockIdx.x * tn::block_threads() + tn::block_thread()];
    tn::wide<T> r[9] = {};
    if (tn::block_threads() % 32 == 0) {
        r[0] = tn::warp_sum(a);
        r[1] = tn::warp_max(a);
        r[2] = tn::warp_min(a);
    }
    r[3] = tn::block_sum(a, shared);
    r[4] = tn::block_max(a, shared);
    r[5] = tn::block_min(a, shared);
    r[6] = tn::cluster_sum(a, shared);
    r[7] = tn::cluster_max(a, shared);
    r[8] = tn::cluster_min(a, shared);
    if (tn::block_thread() != tn::block_threads() - 1 || tn::cluster_rank() != tn::cluster_blocks() - 1) return;
    for (int k = 0; k < 9; k++) out[k] = r[k];
}
extern "C" __global__ void reduce_f32(const float *x, float *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_f64(const double *x, double *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_f16(const tn::f16 *x, float *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_bf16(const tn::bf16 *x, float *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_i32(const int *x, int *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_u32(const unsigned *x, unsigned *out) {
    reduce(x, out);
}
extern "C" __global__ void reduce_i64(const long long *x, long long *out) {
    reduce(x, out);
}

/* y[i] = x[i] + 1 for i in 0 … n - 1, 4 at a time, from wherever x and y begin. */
template <class T> __device__ void add_one(const T *x, T *y, long long n) {
    const long long i = 4 * tn::global_thread();
    if (i >= n) return;
    tn::vec<T, 4> a = tn::load<4>(x + i, n - i);
    for (int k = 0; k < 4; k++) a[k] += 1;
    tn::store(y + i, a, n - i);
}
extern "C" __global__ void add_one_f32(const float *x, float *y, long long n) {
    add_one(x, y, n);
}
extern "C" __global__ void add_one_f16(const tn::f16 *x, tn::f16 *y, long long n) {
    add_one(x, y, n);
}

#ifndef __CUDACC_RTC__
void launch(const tn::f16 *x, tn::f16 *y) {
    use_kernel<<<1, 32>>>(x, y, 1, 1.0f);
}
#endif
