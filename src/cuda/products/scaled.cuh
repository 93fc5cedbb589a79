/* Products of 8-bit numbers with a scale for each row and each column: what kernels are told, and what they make of
 * sums.
 *
 * y[i, j] = row_scale[i] * col_scale[j] * sum over l of a[i, l] * b[l, j], plus bias[j], or relu of that. */
#pragma once

#include "product.cuh"

typedef struct tni_gpu_scaled {
    tni_gpu_warpgroup w;                       /* its product has a, b, y, sizes and relu */
    const float *row_scale, *col_scale, *bias; /* (m), (n), (n); bias NULL: there is none */
} tni_gpu_scaled;

#ifdef __CUDACC__

#include "eight_bits.cuh"

/* What a warp has of tensor cores (product.cuh, meet_sums), 16 rows from `row` and WIDTH columns from `col` on. */
template <int WIDTH, class S>
TN_DEVICE void scale_sums(const tni_gpu_scaled &s, i64 row, i64 col, const S *sums, f32 *made) {
    const tni_gpu_product &p = s.w.product;
    const int lane = (int)threadIdx.x % 32;
    const i64 rows[2] = {row + lane / 4, row + lane / 4 + 8}, first = col + lane % 4 * 2;
    const f32 by[2] = {rows[0] < p.m ? s.row_scale[rows[0]] : 0, rows[1] < p.m ? s.row_scale[rows[1]] : 0};
#pragma unroll
    for (int i = 0; i < WIDTH / 8; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const i64 c = first + 8 * i + j;
            const f32 scale = c < p.n ? s.col_scale[c] : 0, bias = s.bias && c < p.n ? s.bias[c] : 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = 4 * i + 2 * half + j;
                made[at] = (f32)sums[at] * (by[half] * scale) + bias;
            }
        }
    }
}

#endif
