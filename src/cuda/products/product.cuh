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
#include "cuda/device/packs.cuh"
#include "cuda/device/types.cuh"

using namespace tn;

/* ---- which tile a block makes ------------------------------------------------------------------------------------ */

/* A matrix of the batch, and the first row and column of a tile of it. */
struct tile_spot {
    i64 row, col, index;
};

/* Blocks that run at the same time have tiles close to each other, GROUP rows of them: they read the same parts of a
 * and b, which the L2 cache has then. There are fewer than 2^31 tiles. */
TN_DEVICE tile_spot find_tile(const tni_gpu_product &p, u32 number, int rows, int cols) {
    enum { GROUP = 8 };
    const u32 down = (u32)p.row_tiles, across = (u32)p.col_tiles, tiles = down * across;
    const u32 index = number / tiles, tile = number - index * tiles;
    const u32 group = tile / (GROUP * across), first = group * GROUP, within = tile - group * GROUP * across;
    const u32 high = down - first < GROUP ? down - first : GROUP, col = within / high;
    return {(i64)(first + within - col * high) * rows, (i64)col * cols, index};
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
    return x.data ? (T *)x.data + (index ? distance(index, p.n_batch, p.batch, x.batch) : 0) : nullptr;
}

/* ---- the end of a tile ------------------------------------------------------------------------------------------- */

/* What is added to a tile, and where it goes. */
template <class T> struct tile_end {
    T *y, *z;
    const T *residual, *bias;
    f32 alpha;
    bool in_pieces; /* rows of all of them may be read and written 16 bytes at a time */
};

template <class T> TN_DEVICE bool is_in_pieces(const tni_gpu_matrix &x, const T *at) {
    return !at || (x.col == 1 && x.row % pack<T>::VL == 0 && (u64)at % 16 == 0);
}

template <class T> TN_DEVICE tile_end<T> end_of(const tni_gpu_product &p, i64 index) {
    tile_end<T> e = {matrix_of<T>(p, p.y, index),
                     matrix_of<T>(p, p.z, index),
                     matrix_of<T>(p, p.residual, index),
                     (const T *)p.bias,
                     (f32)p.alpha,
                     false};
    e.in_pieces = is_in_pieces(p.y, e.y) && is_in_pieces(p.z, e.z) && is_in_pieces(p.residual, e.residual) &&
                  (!e.bias || (p.bias_step == 1 && (u64)e.bias % 16 == 0));
    return e;
}

template <class T> TN_DEVICE void put(const tni_gpu_product &p, const tile_end<T> &e, i64 i, i64 j, acc<T> sum) {
    if (i >= p.m || j >= p.n) return;
    acc<T> v = (acc<T>)p.alpha * sum;
    if (e.bias) v += widen(e.bias[j * p.bias_step]);
    if (e.residual) v += widen(e.residual[i * p.residual.row + j * p.residual.col]);
    if (e.z) narrow(v, e.z[i * p.z.row + j * p.z.col]);
    narrow(p.relu && v < 0 ? (acc<T>)0 : v, e.y[i * p.y.row + j * p.y.col]);
}

/* ---- tensor cores' sums: through shared memory, so that whole lines are written ---------------------------------- */

enum { PATCH_ROWS = 16 };

/* Where a warp lays down sums of 16 rows and WIDTH columns. Pieces of 8 columns change places by the row, so that lanes
 * meet different banks. */
template <int WIDTH> TN_DEVICE int patch_at(int row, int piece) {
    return row * WIDTH + (piece ^ (row & 3)) * 8;
}

TN_DEVICE void read_piece(const f32 *from, bool second_first, f32 (&v)[8]) {
    const int first = second_first ? 4 : 0;
    const vec<f32, 4> a = *(const vec<f32, 4> *)(from + first), b = *(const vec<f32, 4> *)(from + (first ^ 4));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = second_first ? b.v[i] : a.v[i];
        v[i + 4] = second_first ? a.v[i] : b.v[i];
    }
}

/* 8 columns from (i, j) on, which all exist. */
template <class T> TN_DEVICE void put_piece(const tni_gpu_product &p, const tile_end<T> &e, i64 i, i64 j, f32 (&v)[8]) {
    enum { VL = pack<T>::VL };
    if (i >= p.m || j >= p.n) return;
#pragma unroll
    for (int first = 0; first < 8; first += VL) {
        pack<T> bias = {}, residual = {};
        acc<T> z[VL];
        if (e.bias) bias = pack_of<T>(load_words_if(e.bias + j + first, true));
        if (e.residual) residual = pack_of<T>(load_words_if(e.residual + i * p.residual.row + j + first, true));
#pragma unroll
        for (int k = 0; k < VL; k++) {
            z[k] = v[first + k] * e.alpha;
            if (e.bias) z[k] += widen(bias.v[k]);
            if (e.residual) z[k] += widen(residual.v[k]);
        }
        if (e.z) store_pack(e.z + i * p.z.row + j + first, narrow_pack<T>(z));
#pragma unroll
        for (int k = 0; k < VL; k++) z[k] = p.relu && z[k] < 0 ? 0 : z[k];
        store_pack(e.y + i * p.y.row + j + first, narrow_pack<T>(z));
    }
}

/* What a warp has of tensor cores: of every 8 columns, lane l has columns 2 * (l % 4) and the next one, of row l / 4
 * and of row l / 4 + 8. `patch`: (16, WIDTH), the warp's own. The patch begins at (row, col) of y. */
template <class T, int WIDTH>
TN_DEVICE void put_patch(const tni_gpu_product &p, const tile_end<T> &e, f32 *patch, i64 row, i64 col,
                         const f32 *sums) {
    enum { PIECES = WIDTH / 8, AT_ONCE = 32 / PIECES };
    const int lane = (int)threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++) {
        const vec<f32, 2> two = {sums[2 * i], sums[2 * i + 1]};
        *(vec<f32, 2> *)(patch + patch_at<WIDTH>(lane / 4 + i % 2 * 8, i / 2) + lane % 4 * 2) = two;
    }
    __syncwarp();
    if (e.in_pieces && (col + WIDTH <= p.n || p.n % 8 == 0)) {
#pragma unroll
        for (int i = 0; i < PATCH_ROWS; i += AT_ONCE) {
            const int r = i + lane / PIECES, piece = lane % PIECES;
            f32 v[8];
            read_piece(patch + patch_at<WIDTH>(r, piece), lane % 8 >= 4, v);
            put_piece(p, e, row + r, col + piece * 8, v);
        }
        return;
    }
    for (int r = 0; r < PATCH_ROWS; r++) {
#pragma unroll
        for (int j = lane; j < WIDTH; j += 32) put(p, e, row + r, col + j, patch[patch_at<WIDTH>(r, j / 8) + j % 8]);
    }
}

#endif
