/* Products of 16-bit numbers on tensor cores (sm_80 and later), as sides.cuh has them. */
#include "groups.cuh"
#include "sides.cuh"

/* Through the memory of the first stages, which nobody reads any more. Y, the type of y, is that of a and b, or that of
 * sums. */
template <class Y>
TN_DEVICE void put_all(const tni_gpu_product &p, const tile_work &w, words *shared, f32 (&sums)[4][4][4]) {
    const tile_spot &spot = w.spot;
    const tile_end<Y> end = end_of<Y>(p, spot.index, w.rows);
    const int warp = (int)threadIdx.x / 32;
    char *patch = (char *)shared + warp * PATCH_ROWS * PATCH_PITCH<Y, WARP_COLS>;
#pragma unroll
    for (int i = 0; i < WARP_ROWS / PATCH_ROWS; i++) {
        put_patch<Y, WARP_COLS, WRITE>(p, end, patch, spot.row + warp / 4 * WARP_ROWS + i * PATCH_ROWS,
                                       spot.col + warp % 4 * WARP_COLS, &sums[i][0][0]);
    }
}

template <class T, class Y, bool A_ALONG, bool B_ALONG, grouping G> TN_DEVICE void make_tile(const tni_gpu_product &p) {
    words *shared = dynamic_shared_128();
    tile_work w;
    if (!find_work<G>(p, TILE, TILE, w)) return;
    const T *a_data = matrix_of<T>(p, p.a, w.spot.index) + w.first * p.a.col;
    const T *b_data = matrix_of<T>(p, p.b, w.spot.index) + w.first * p.b.row;
    const auto a = side_of<T, A_ALONG>(a_data, w.spot.row, p.a.row, p.a.col, w.rows, w.k);
    const auto b = side_of<T, B_ALONG>(b_data, w.spot.col, p.b.col, p.b.row, p.n, w.k);
    f32 sums[4][4][4] = {};
    if (G != WHOLE && w.wrong) spoil<64>(&sums[0][0][0]);
    multiply_all<T>(a, b, w.k, shared, sums);
    put_all<Y>(p, w, shared, sums);
}

#define PRODUCT(T, Y, name, a, b, grouping) \
    TN_ROW_KERNEL(product_mma_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, a, b, grouping>(p)))
#define PRODUCTS(T, Y, name)                     \
    PRODUCT(T, Y, tt_##name, true, true, WHOLE)  \
    PRODUCT(T, Y, tf_##name, true, false, WHOLE) \
    PRODUCT(T, Y, ft_##name, false, true, WHOLE) \
    PRODUCT(T, Y, ff_##name, false, false, WHOLE)
/* Groups of rows begin anywhere, and pieces of 16 bytes do not: so a is dense along k, or, where groups are terms,
 * both are dense across it. */
#define GROUPED(T)                                      \
    PRODUCT(T, T, by_rows_tt_##T, true, true, BY_ROWS)  \
    PRODUCT(T, T, by_rows_tf_##T, true, false, BY_ROWS) \
    PRODUCT(T, T, by_terms_ff_##T, false, false, BY_TERMS)
PRODUCTS(f16, f16, f16)
PRODUCTS(bf16, bf16, bf16)
PRODUCTS(f16, f32, f16_f32)
PRODUCTS(bf16, f32, bf16_f32)
GROUPED(f16)
GROUPED(bf16)
