/* Matrix products on the GPU: what gemm_cuda.c tells the kernels, and what these have in common.
 *
 * z[i, j] = alpha * sum over l of a[i, l] * b[l, j], plus bias[j], plus residual[i, j], and y is z, or relu of it: for
 * each matrix of a batch. A block makes one tile of y. */
#pragma once

#ifdef __CUDACC__
#define TNI_ALIGNED_64 alignas(64)
#else
#define TNI_ALIGNED_64 _Alignas(64)
#endif

enum { TNI_PRODUCT_DIMS = 16 }; /* the most that a tensor has */

/* Strides are in elements. */
typedef struct tni_gpu_matrix {
    void *data; /* NULL: there is none; a is all ones then */
    long long row, col;
    long long batch[TNI_PRODUCT_DIMS], sum[TNI_PRODUCT_DIMS];
} tni_gpu_matrix;

typedef struct tni_gpu_product {
    tni_gpu_matrix a, b, y, z, residual; /* (m, k), (k, n), (m, n) … */
    const void *bias;                    /* (n); NULL: there is none */
    long long bias_step;
    long long m, n, k;
    int n_batch, n_sums;
    long long batch[TNI_PRODUCT_DIMS], sums[TNI_PRODUCT_DIMS];
    long long terms; /* of a sum: as many times k */
    long long row_tiles, col_tiles;
    double alpha;
    int relu;
} tni_gpu_product;

/* For product_warpgroup.cu: with a and b as CUDA's tensor maps. */
typedef struct tni_gpu_warpgroup {
    TNI_ALIGNED_64 unsigned long long a[16];
    TNI_ALIGNED_64 unsigned long long b[16];
    tni_gpu_product product;
    long long tiles; /* of all matrices */
} tni_gpu_warpgroup;

enum { PASS_THREADS = 256 };
typedef struct tni_gpu_pass {
    const void *dy, *z;
    void *dz;
    long long count;
    int n_dims;
    long long shape[TNI_PRODUCT_DIMS];
    long long dy_strides[TNI_PRODUCT_DIMS], z_strides[TNI_PRODUCT_DIMS], dz_strides[TNI_PRODUCT_DIMS];
} tni_gpu_pass;

#ifdef __CUDACC__

#include "cuda/device/async_copy.cuh"
#include "cuda/device/bulk.cuh"
#include "cuda/device/kernel.cuh"
#include "cuda/device/types.cuh"

using namespace tn;

/* ---- which tile a block makes ------------------------------------------------------------------------------------ */

/* A matrix of the batch, and the first row and column of a tile of it. */
struct tile_spot {
    i64 row, col, index;
};

/* Blocks that run at the same time have tiles close to each other, GROUP rows of them: they read the same parts of a
 * and b, which the L2 cache has then. */
TN_DEVICE tile_spot find_tile(const tni_gpu_product &p, i64 number, int rows, int cols) {
    enum { GROUP = 8 };
    const i64 tiles = p.row_tiles * p.col_tiles, index = number / tiles, tile = number - index * tiles;
    const i64 in_group = GROUP * p.col_tiles, group = tile / in_group, first = group * GROUP;
    const i64 high = p.row_tiles - first < GROUP ? p.row_tiles - first : GROUP, within = tile - group * in_group;
    return {(first + within % high) * rows, within / high * cols, index};
}

/* How far entry `index` of loops of these sizes is from the first. The last loop is the fastest. */
TN_DEVICE i64 distance(i64 index, int n, const long long *sizes, const long long *strides) {
    i64 at = 0;
    for (int d = n - 1; d >= 0; d--) {
        const i64 rest = index / sizes[d];
        at += (index - rest * sizes[d]) * strides[d];
        index = rest;
    }
    return at;
}

template <class T> TN_DEVICE T *matrix_of(const tni_gpu_product &p, const tni_gpu_matrix &x, i64 index) {
    return x.data ? (T *)x.data + distance(index, p.n_batch, p.batch, x.batch) : nullptr;
}

/* ---- the end of a tile ------------------------------------------------------------------------------------------- */

/* What is added to a tile, and where it goes. */
template <class T> struct tile_end {
    T *y, *z;
    const T *residual, *bias;
};

template <class T> TN_DEVICE tile_end<T> end_of(const tni_gpu_product &p, i64 index) {
    return {matrix_of<T>(p, p.y, index), matrix_of<T>(p, p.z, index), matrix_of<T>(p, p.residual, index),
            (const T *)p.bias};
}

template <class T> TN_DEVICE void put(const tni_gpu_product &p, const tile_end<T> &e, i64 i, i64 j, acc<T> sum) {
    if (i >= p.m || j >= p.n) return;
    acc<T> v = (acc<T>)p.alpha * sum;
    if (e.bias) v += widen(e.bias[j * p.bias_step]);
    if (e.residual) v += widen(e.residual[i * p.residual.row + j * p.residual.col]);
    if (e.z) narrow(v, e.z[i * p.z.row + j * p.z.col]);
    narrow(p.relu && v < 0 ? (acc<T>)0 : v, e.y[i * p.y.row + j * p.y.col]);
}

#endif
