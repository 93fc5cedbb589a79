/* Products of few rows: y (m, n) of x (m, k) and w (k, n), where m is 16 at most. They take as long as w takes to be
 * read once, so w goes from memory into registers as it is multiplied there, and a lane asks for it several steps
 * ahead.
 *
 * A block makes 4 to 64 columns of y. Its warps share k out among themselves, and their sums are added up at the end,
 * in order. That order is the same for any number of rows and of a block's columns.
 *
 * 16-bit numbers go to tensor cores (sm_80 and later). Columns of y are the 16 rows of their first matrix, and rows of
 * x the 8 columns of the second one. A step is 32 of k. Which of them is which of a tensor core's two times 16 is free,
 * if w and x agree: lane l has 8 neighbours, from 8 * (l % 4) on. */
#include "cuda/device/reduce.cuh"
#include "matrix.cuh"
#include "product.cuh"

enum {
    WARPS = 8,
    STEP = 32, /* of k, of 16-bit numbers */
    PIECE = 8, /* of them in 16 bytes: of a step, one for each of four lanes */
};

TN_DEVICE int lane_line() {
    return (int)threadIdx.x % 32 / 4;
}
TN_DEVICE int lane_piece() {
    return (int)threadIdx.x % 4 * PIECE;
}

/* The last of `count` where there are no more: what is made of it again is not written. */
TN_DEVICE i64 line_or_last(i64 line, i64 count) {
    return line < count ? line : count - 1;
}

/* ---- w ----------------------------------------------------------------------------------------------------------- */

/* w dense along k: a column of y is a line of it. Lane l has, of each 16 lines, pieces of l / 4 and l / 4 + 8. */
template <class T, int N> struct along {
    enum { TILES = N, COLS = 16 * TILES, LINES = 2 * TILES, SHARE = 2 /* blocks of an SM */ };
    const T *lines[LINES];

    TN_MEMBER along(const tni_gpu_product &p, const T *w, i64 col) {
#pragma unroll
        for (int i = 0; i < LINES; i++)
            lines[i] = w + line_or_last(col + 8 * i + lane_line(), p.n) * p.b.col + lane_piece();
    }
    TN_MEMBER void fetch(words (&own)[LINES], int l, bool there) const {
#pragma unroll
        for (int i = 0; i < LINES; i++) own[i] = load_words_if(lines[i] + l, there);
    }
    /* The first matrix of tile i, for half of a step. */
    static TN_MEMBER void load(const words (&own)[LINES], int i, int half, u32 (&made)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) made[j] = own[2 * i + j % 2].w[2 * half + j / 2];
    }
    /* Of tile i, the column of y that row `row` of its matrix is. */
    static TN_MEMBER int column(int i, int row) {
        return 16 * i + row;
    }
};

/* w dense along n: a step is 32 lines. Lane l has pieces of lines 8 * (l % 4) and the next 7, of columns 8 * (l / 4)
 * and the next 7, two for each tile. */
template <class T> struct across {
    enum { TILES = 4, COLS = 16 * TILES, LINES = PIECE, SHARE = 1 };
    const T *first;
    i64 pitch;

    TN_MEMBER across(const tni_gpu_product &p, const T *w, i64 col) : pitch(p.b.row) {
        const i64 piece = line_or_last(col / PIECE + lane_line(), p.n / PIECE);
        first = w + lane_piece() * pitch + piece * PIECE;
    }
    TN_MEMBER void fetch(words (&own)[LINES], int l, bool there) const {
        const T *line = first + l * pitch;
#pragma unroll
        for (int i = 0; i < LINES; i++, line += pitch) own[i] = load_words_if(line, there);
    }
    static TN_MEMBER void load(const words (&own)[LINES], int i, int half, u32 (&made)[4]) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const u32 low = own[4 * half + 2 * j].w[i], high = own[4 * half + 2 * j + 1].w[i];
            made[2 * j] = (low & 0xffff) | high << 16;
            made[2 * j + 1] = low >> 16 | (high & 0xffff0000);
        }
    }
    static TN_MEMBER int column(int i, int row) {
        return row % 8 * PIECE + 2 * i + row / 8;
    }
};

/* ---- x ----------------------------------------------------------------------------------------------------------- */

/* Lane l has a piece of row l / 4 of each 8. */
template <class T, int EIGHTS> struct rows_of_x {
    const T *rows[EIGHTS];

    TN_MEMBER rows_of_x(const tni_gpu_product &p, const T *x) {
#pragma unroll
        for (int i = 0; i < EIGHTS; i++) rows[i] = x + line_or_last(8 * i + lane_line(), p.m) * p.a.row + lane_piece();
    }
    TN_MEMBER void fetch(words (&own)[EIGHTS], int l, bool there) const {
#pragma unroll
        for (int i = 0; i < EIGHTS; i++) own[i] = load_words_if(rows[i] + l, there);
    }
};

/* ---- what all blocks do ------------------------------------------------------------------------------------------ */

/* A warp's part of k, in steps of STEP: the same for any rows and columns. */
template <int STEP> struct range {
    int begin, end;

    TN_MEMBER range(const tni_gpu_product &p) {
        const int k = (int)p.k, part = (k + STEP * WARPS - 1) / (STEP * WARPS) * STEP;
        begin = (int)threadIdx.x / 32 * part;
        end = begin + part < k ? begin + part : k;
    }
};

/* The sums of all warps, in shared memory: for each warp and row of y a line of the block's columns. */
template <int COLS, int ROWS> struct meeting {
    enum { PITCH = COLS + 4 };

    static TN_MEMBER f32 *line(int warp, int row) {
        return (f32 *)dynamic_shared_128() + (warp * ROWS + row) * PITCH;
    }
    /* Adds them up, in order, and writes them. */
    template <class T> static TN_MEMBER void end(const tni_gpu_product &p, i64 index, i64 col) {
        const tile_end<T> out = end_of<T>(p, index, p.m);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < (int)p.m * COLS; i += 32 * WARPS) {
            const int row = i / COLS, own = i % COLS;
            f32 sum = line(0, row)[own];
#pragma unroll
            for (int warp = 1; warp < WARPS; warp++) sum += line(warp, row)[own];
            put(p, out, row, col + own, sum);
        }
    }
};

/* ---- 16-bit numbers ---------------------------------------------------------------------------------------------- */

/* What a lane has of a step. */
template <class T, class W, int EIGHTS> struct step {
    words w[W::LINES], x[EIGHTS];

    TN_MEMBER void multiply(f32 (&sums)[W::TILES][EIGHTS][4]) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < W::TILES; i++) {
                u32 a[4];
                W::load(w, i, half, a);
#pragma unroll
                for (int j = 0; j < EIGHTS; j++)
                    multiply_matrices(T{}, sums[i][j], a, x[j].w[2 * half], x[j].w[2 * half + 1]);
            }
        }
    }
};

template <class W, int EIGHTS> TN_DEVICE void lay_down(const f32 (&sums)[W::TILES][EIGHTS][4]) {
    const int warp = (int)threadIdx.x / 32, row = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < W::TILES; i++) {
#pragma unroll
        for (int j = 0; j < EIGHTS * 4; j++) {
            const int col = W::column(i, lane_line() + j % 4 / 2 * 8);
            meeting<W::COLS, 8 * EIGHTS>::line(warp, j / 4 * 8 + row + j % 2)[col] = sums[i][j / 4][j % 4];
        }
    }
}

/* W: how w lies; AHEAD: steps under way. */
template <class T, class W, int EIGHTS, int AHEAD> TN_DEVICE void make_columns(const tni_gpu_product &p) {
    const i64 index = blockIdx.x / (u32)p.col_tiles, col = (i64)(blockIdx.x % (u32)p.col_tiles) * W::COLS;
    const W w(p, matrix_of<T>(p, p.b, index), col);
    const rows_of_x<T, EIGHTS> x(p, matrix_of<T>(p, p.a, index));
    const range<STEP> own(p);
    step<T, W, EIGHTS> steps[AHEAD];
    f32 sums[W::TILES][EIGHTS][4] = {};
    auto fetch = [&](step<T, W, EIGHTS> &to, int l) {
        const bool there = l + lane_piece() < own.end;
        w.fetch(to.w, l, there);
        x.fetch(to.x, l, there);
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch(steps[i], own.begin + i * STEP);
    for (int l = own.begin; l < own.end; l += AHEAD * STEP) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            steps[i].multiply(sums);
            fetch(steps[i], l + (i + AHEAD) * STEP);
        }
    }
    lay_down<W, EIGHTS>(sums);
    meeting<W::COLS, 8 * EIGHTS>::template end<T>(p, index, col);
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

/* w dense along k. A step is 128 of k: a lane has 4 neighbours of each line of w and row of x, and multiplies all lines
 * with all rows. */
template <int COLS, int ROWS> struct step_f32 {
    enum { OWN = 4, STEP = 32 * OWN };
    words w[COLS], x[ROWS];

    TN_MEMBER void fetch(const f32 *const (&lines)[COLS], const f32 *const (&rows)[ROWS], int l, bool there) {
#pragma unroll
        for (int i = 0; i < COLS; i++) w[i] = load_words_if(lines[i] + l, there);
#pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = load_words_if(rows[i] + l, there);
    }
    TN_MEMBER void multiply(f32 (&sums)[COLS][ROWS]) const {
#pragma unroll
        for (int i = 0; i < COLS; i++) {
#pragma unroll
            for (int j = 0; j < ROWS * OWN; j++)
                sums[i][j / OWN] += __uint_as_float(w[i].w[j % OWN]) * __uint_as_float(x[j / OWN].w[j % OWN]);
        }
    }
};

template <int COLS, int ROWS, int AHEAD> TN_DEVICE void make_columns_f32(const tni_gpu_product &p) {
    using part = step_f32<COLS, ROWS>;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const i64 index = blockIdx.x / (u32)p.col_tiles, col = (i64)(blockIdx.x % (u32)p.col_tiles) * COLS;
    const f32 *lines[COLS], *rows[ROWS];
#pragma unroll
    for (int i = 0; i < COLS; i++)
        lines[i] = matrix_of<f32>(p, p.b, index) + line_or_last(col + i, p.n) * p.b.col + lane * part::OWN;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        rows[i] = matrix_of<f32>(p, p.a, index) + line_or_last(i, p.m) * p.a.row + lane * part::OWN;
    const range<part::STEP> own(p);
    part steps[AHEAD];
    f32 sums[COLS][ROWS] = {};
    auto fetch = [&](int i, int l) { steps[i].fetch(lines, rows, l, l + lane * part::OWN < own.end); };
#pragma unroll
    for (int i = 0; i < AHEAD; i++) fetch(i, own.begin + i * part::STEP);
    for (int l = own.begin; l < own.end; l += AHEAD * part::STEP) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            steps[i].multiply(sums);
            fetch(i, l + (i + AHEAD) * part::STEP);
        }
    }
#pragma unroll
    for (int i = 0; i < COLS * ROWS; i++) {
        const f32 sum = reduce_lanes<take_sum, 32>(sums[i / ROWS][i % ROWS]);
        if (lane == 0) meeting<COLS, ROWS>::line(warp, i % ROWS)[i / ROWS] = sum;
    }
    meeting<COLS, ROWS>::template end<f32>(p, index, col);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Columns of a block, and rows at most; `t`: w is dense along k, `f`: along n. */
template <class T> using lines_16 = along<T, 1>;
template <class T> using lines_32 = along<T, 2>;
#define PRODUCT(T, name, W, eights, ahead)                                       \
    TN_ROW_KERNEL(product_rows_##name, 32 * WARPS, W<T>::SHARE, tni_gpu_product, \
                  (make_columns<T, W<T>, eights, ahead>(p)))
#define PRODUCTS(T)                         \
    PRODUCT(T, 16x8_t_##T, lines_16, 1, 6)  \
    PRODUCT(T, 32x8_t_##T, lines_32, 1, 4)  \
    PRODUCT(T, 32x16_t_##T, lines_32, 2, 3) \
    PRODUCT(T, 64x8_f_##T, across, 1, 4)    \
    PRODUCT(T, 64x16_f_##T, across, 2, 4)
PRODUCTS(f16)
PRODUCTS(bf16)
#define PRODUCT_F32(cols, rows, blocks, ahead)                                               \
    TN_ROW_KERNEL(product_rows_##cols##x##rows##_t_f32, 32 * WARPS, blocks, tni_gpu_product, \
                  (make_columns_f32<cols, rows, ahead>(p)))
PRODUCT_F32(4, 1, 2, 3)
PRODUCT_F32(4, 2, 2, 2)
PRODUCT_F32(8, 4, 1, 2)
