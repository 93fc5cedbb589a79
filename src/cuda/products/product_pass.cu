/* What passes relu on the way back: dz = dy where z > 0, else 0. */
#include "product.cuh"

template <class T> TN_DEVICE void pass(const tni_gpu_pass &p) {
    const i64 stride = (i64)gridDim.x * PASS_THREADS;
    for (i64 i = (i64)blockIdx.x * PASS_THREADS + threadIdx.x; i < p.count; i += stride) {
        const T dy = ((const T *)p.dy)[distance(i, p.n_dims, p.shape, p.dy_strides)];
        const T z = ((const T *)p.z)[distance(i, p.n_dims, p.shape, p.z_strides)];
        T *dz = (T *)p.dz + distance(i, p.n_dims, p.shape, p.dz_strides);
        narrow(widen(z) <= 0 ? (acc<T>)0 : widen(dy), *dz);
    }
}

#define PASS(T, name) TN_ROW_KERNEL(product_pass_##name, PASS_THREADS, 4, tni_gpu_pass, (pass<T>(p)))
TN_FOR_TYPES(PASS)
