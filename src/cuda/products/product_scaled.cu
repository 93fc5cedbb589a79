/* Products of 8-bit numbers (scaled.cuh): by what a warp's tensor cores multiply (sides.cuh), of integers from sm_80
 * and of floats from sm_89 on, and by single numbers, for any GPU and for data that begin anywhere. */
#include "scaled.cuh"
#include "sides.cuh"

template <class T, class Y> TN_DEVICE void make_tile(const tni_gpu_scaled &s) {
    const tni_gpu_product &p = s.w.product;
    words *shared = dynamic_shared_128();
    const tile_spot spot = find_tile(p, blockIdx.x, TILE, TILE);
    const auto a = side_of<T, true>((const T *)p.a.data, spot.row, p.a.row, p.a.col, p.m, p.k);
    const auto b = side_of<T, true>((const T *)p.b.data, spot.col, p.b.col, p.b.row, p.n, p.k);
    sum_of<T> sums[4][4][4] = {};
    multiply_all<T>(a, b, p.k, shared, sums);
    const tile_end<Y> end = end_of<Y>(p, 0, p.m);
    const int warp = (int)threadIdx.x / 32;
    char *patch = (char *)shared + warp * PATCH_ROWS * PATCH_PITCH<Y, WARP_COLS>;
#pragma unroll
    for (int i = 0; i < WARP_ROWS / PATCH_ROWS; i++) {
        const i64 row = spot.row + warp / 4 * WARP_ROWS + i * PATCH_ROWS, col = spot.col + warp % 4 * WARP_COLS;
        f32 made[4 * 4];
        scale_sums<WARP_COLS>(s, row, col, &sums[i][0][0], made);
        put_patch<Y, WARP_COLS, WRITE>(p, end, patch, row, col, made);
    }
}

/* A block makes 16 x 16 elements of y, each thread one, along k in steps of 64. */
enum { PLAIN = 16, PLAIN_STEP = 64 };

template <class T, class Y> TN_DEVICE void make_plain(const tni_gpu_scaled &s) {
    __shared__ T a[PLAIN][PLAIN_STEP], b[PLAIN][PLAIN_STEP + 4];
    const tni_gpu_product &p = s.w.product;
    const tile_spot spot = find_tile(p, blockIdx.x, PLAIN, PLAIN);
    const int row = (int)threadIdx.x / PLAIN, col = (int)threadIdx.x % PLAIN;
    const i64 i = spot.row + row, j = spot.col + col;
    sum_of<T> sum = 0;
    for (i64 first = 0; first < p.k; first += PLAIN_STEP) {
        for (int at = (int)threadIdx.x; at < PLAIN * PLAIN_STEP; at += THREADS) {
            const int line = at / PLAIN_STEP, l = at % PLAIN_STEP;
            const bool there = first + l < p.k;
            a[line][l] = there && spot.row + line < p.m ? ((const T *)p.a.data)[(spot.row + line) * p.a.row + first + l]
                                                        : T{0};
            b[line][l] = there && spot.col + line < p.n ? ((const T *)p.b.data)[(spot.col + line) * p.b.col + first + l]
                                                        : T{0};
        }
        __syncthreads();
#pragma unroll 8
        for (int l = 0; l < PLAIN_STEP; l++) sum += value_of(a[row][l]) * value_of(b[col][l]);
        __syncthreads();
    }
    if (i >= p.m || j >= p.n) return;
    const f32 bias = s.bias ? s.bias[j] : 0;
    put(p, end_of<Y>(p, 0, p.m), i, j, (f32)sum * (s.row_scale[i] * s.col_scale[j]) + bias);
}

#define PRODUCT(T, Y)                                                                                  \
    TN_ROW_KERNEL(product_scaled_mma_##T##_##Y, THREADS, 1, tni_gpu_scaled, (make_tile<of_##T, Y>(p))) \
    TN_ROW_KERNEL(product_scaled_plain_##T##_##Y, THREADS, 2, tni_gpu_scaled, (make_plain<of_##T, Y>(p)))
PRODUCT(i8, f32)
PRODUCT(i8, f16)
PRODUCT(i8, bf16)
PRODUCT(e4m3, f32)
PRODUCT(e4m3, f16)
PRODUCT(e4m3, bf16)
