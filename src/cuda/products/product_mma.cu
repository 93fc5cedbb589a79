/* Products of 16-bit numbers on tensor cores (sm_80 and later). A block of 8 warps makes 128 x 128 elements of y, a
 * warp 64 x 32 of them. It goes along k in steps of 32; four steps are under way to shared memory at a time.
 *
 * a and b lie densely along k or across it, in lines that begin at multiples of 16 bytes. A step of one of them is 8
 * KB, as it lies in memory: 128 lines of 32 numbers, or 32 lines of 128. Its pieces of 16 bytes change places within a
 * line from line to line, so that 8 of them above each other are in different banks. */
#include "matrix.cuh"
#include "product.cuh"

enum {
    TILE = 128,
    STEP = 32,
    THREADS = 256,
    STAGES = 4,
    PIECE = 8, /* numbers in 16 bytes */
    PIECES = TILE * STEP / PIECE,
    STAGE_WORDS = 2 * PIECES, /* of both sides, 16 bytes each */
    WARP_ROWS = 64,
    WARP_COLS = 32,
};

/* Where piece `piece` of line `line` is. */
template <bool ALONG> TN_DEVICE int place_of(int line, int piece) {
    return ALONG ? line * (STEP / PIECE) + (piece ^ (line >> 1 & 3)) : line * (TILE / PIECE) + (piece ^ (line & 7));
}

/* A side of the tile: rows of a, or columns of b. ALONG: they lie densely along k. */
template <class T, bool ALONG> struct side {
    const T *from;
    i64 pitch; /* from line to line */
    i64 lines; /* rows or columns that there are, from the first of the tile on */
    i64 k;

    TN_MEMBER void fetch(words *shared, i64 first) const {
        constexpr int LINE = ALONG ? STEP / PIECE : TILE / PIECE;
#pragma unroll
        for (int i = 0; i < PIECES / THREADS; i++) {
            const int at = (int)threadIdx.x + i * THREADS, line = at / LINE, piece = at % LINE;
            const i64 l = ALONG ? first + piece * PIECE : first + line, o = ALONG ? line : piece * PIECE;
            const i64 left = ALONG ? k - l : lines - o;
            const bool any = left > 0 && (ALONG ? o < lines : l < k);
            const T *p = any ? from + (ALONG ? o * pitch + l : l * pitch + o) : from;
            copy_some_async(shared + place_of<ALONG>(line, piece), p,
                            any ? (int)(left < PIECE ? left : PIECE) * (int)sizeof(T) : 0);
        }
    }
    /* The 16 x 16 numbers from line o and position l on, in quarters: `o_first` says that the second quarter is 8
     * lines on and the third 8 positions, else the other way round. */
    template <bool O_FIRST> TN_MEMBER void load(const words *shared, int o, int l, u32 (&made)[4]) const {
        const int lane = (int)threadIdx.x % 32, quarter = lane / 8;
        const int o_half = O_FIRST ? quarter % 2 : quarter / 2, l_half = O_FIRST ? quarter / 2 : quarter % 2;
        const int line = ALONG ? o + o_half * 8 + lane % 8 : l + l_half * 8 + lane % 8;
        load_matrices<!ALONG>(shared + place_of<ALONG>(line, ALONG ? l / PIECE + l_half : o / PIECE + o_half), made);
    }
};

template <class T, bool ALONG>
TN_DEVICE side<T, ALONG> side_of(const T *data, i64 first, i64 line_step, i64 step, i64 all, i64 k) {
    return {data + first * line_step, ALONG ? line_step : step, all - first, k};
}

template <class T, class A, class B>
TN_DEVICE void multiply_step(const A &a, const B &b, const words *stage, f32 (&sums)[4][4][4]) {
    const int warp = (int)threadIdx.x / 32, row = warp / 4 * WARP_ROWS, col = warp % 4 * WARP_COLS;
#pragma unroll
    for (int l = 0; l < STEP; l += 16) {
        u32 rows[4][4], cols[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) a.template load<true>(stage, row + 16 * i, l, rows[i]);
#pragma unroll
        for (int j = 0; j < 2; j++) b.template load<false>(stage + PIECES, col + 16 * j, l, cols[j]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                multiply_matrices(T{}, sums[i][j], rows[i], cols[j / 2][j % 2 * 2], cols[j / 2][j % 2 * 2 + 1]);
        }
    }
}

/* Through the memory of the first stages, which nobody reads any more. Y, the type of y, is that of a and b, or that of
 * sums. */
template <class Y>
TN_DEVICE void put_all(const tni_gpu_product &p, const tile_spot &spot, words *shared, f32 (&sums)[4][4][4]) {
    const tile_end<Y> end = end_of<Y>(p, spot.index);
    const int warp = (int)threadIdx.x / 32;
    char *patch = (char *)shared + warp * PATCH_ROWS * PATCH_PITCH<Y, WARP_COLS>;
#pragma unroll
    for (int i = 0; i < WARP_ROWS / PATCH_ROWS; i++) {
        put_patch<Y, WARP_COLS, WRITE>(p, end, patch, spot.row + warp / 4 * WARP_ROWS + i * PATCH_ROWS,
                                       spot.col + warp % 4 * WARP_COLS, &sums[i][0][0]);
    }
}

template <class T, class Y, bool A_ALONG, bool B_ALONG> TN_DEVICE void make_tile(const tni_gpu_product &p) {
    words *shared = dynamic_shared_128();
    const tile_spot spot = find_tile(p, blockIdx.x, TILE, TILE);
    const auto a = side_of<T, A_ALONG>(matrix_of<T>(p, p.a, spot.index), spot.row, p.a.row, p.a.col, p.m, p.k);
    const auto b = side_of<T, B_ALONG>(matrix_of<T>(p, p.b, spot.index), spot.col, p.b.col, p.b.row, p.n, p.k);
    const i64 steps = (p.k + STEP - 1) / STEP;
    f32 sums[4][4][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) a.fetch(shared + s * STAGE_WORDS, (i64)s * STEP);
        if (s < steps) b.fetch(shared + s * STAGE_WORDS + PIECES, (i64)s * STEP);
        copy_commit();
    }
    for (i64 s = 0; s < steps; s++) {
        const i64 next = s + STAGES - 1;
        copy_wait_for<STAGES - 2>();
        __syncthreads(); /* the step is there, and everybody has left the one whose place is taken now */
        words *to = shared + next % STAGES * STAGE_WORDS;
        if (next < steps) a.fetch(to, next * STEP);
        if (next < steps) b.fetch(to + PIECES, next * STEP);
        copy_commit();
        multiply_step<T>(a, b, shared + s % STAGES * STAGE_WORDS, sums);
    }
    __syncthreads();
    put_all<Y>(p, spot, shared, sums);
}

#define PRODUCTS(T, Y, name)                                                                             \
    TN_ROW_KERNEL(product_mma_tt_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, true, true>(p)))  \
    TN_ROW_KERNEL(product_mma_tf_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, true, false>(p))) \
    TN_ROW_KERNEL(product_mma_ft_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, false, true>(p))) \
    TN_ROW_KERNEL(product_mma_ff_##name, THREADS, 2, tni_gpu_product, (make_tile<T, Y, false, false>(p)))
PRODUCTS(f16, f16, f16)
PRODUCTS(bf16, bf16, bf16)
PRODUCTS(f16, f32, f16_f32)
PRODUCTS(bf16, f32, bf16_f32)
