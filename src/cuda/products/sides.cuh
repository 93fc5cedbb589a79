/* Both sides of a product's tile on their way through shared memory to what a warp multiplies (sm_80 and later). A
 * block of 8 warps makes 128 x 128 elements of y, a warp 64 x 32 of them. It goes along k in steps of 64 bytes; four
 * steps are under way to shared memory at a time.
 *
 * a and b lie densely along k or across it, in lines that begin at multiples of 16 bytes. A step of one of them is 8
 * KB, as it lies in memory: 128 lines of 64 bytes, or 32 lines of 128 numbers of 16 bits. Its pieces of 16 bytes
 * change places within a line from line to line, so that 8 of them above each other are in different banks. */
#pragma once

#include "matrix.cuh"
#include "product.cuh"

#ifdef __CUDACC__

enum {
    TILE = 128,
    STEP_BYTES = 64, /* of k */
    THREADS = 256,
    STAGES = 4,
    LINE_PIECES = STEP_BYTES / 16, /* of a line along k */
    PIECES = TILE * LINE_PIECES,
    STAGE_WORDS = 2 * PIECES, /* of both sides, 16 bytes each */
    WARP_ROWS = 64,
    WARP_COLS = 32,
};

/* Where piece `piece` of line `line` is. Lines across k have 16-bit numbers. */
template <bool ALONG> TN_DEVICE int place_of(int line, int piece) {
    return ALONG ? line * LINE_PIECES + (piece ^ (line >> 1 & 3)) : line * (TILE / 8) + (piece ^ (line & 7));
}

/* A side of the tile: rows of a, or columns of b. ALONG: they lie densely along k. */
template <class T, bool ALONG> struct side {
    enum {
        PIECE = 16 / (int)sizeof(T), /* numbers in 16 bytes */
        STEP = STEP_BYTES / (int)sizeof(T),
    };
    const T *from;
    i64 pitch; /* from line to line */
    i64 lines; /* rows or columns that there are, from the first of the tile on */
    i64 k;

    TN_MEMBER void fetch(words *shared, i64 first) const {
        constexpr int LINE = ALONG ? (int)LINE_PIECES : TILE / PIECE;
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
    /* 16 lines from o on, and pieces l and l + 1 along k, in quarters: `o_first` says that the second quarter is 8
     * lines on and the third a piece, else the other way round. */
    template <bool O_FIRST> TN_MEMBER void load(const words *shared, int o, int l, u32 (&made)[4]) const {
        const int lane = (int)threadIdx.x % 32, quarter = lane / 8;
        const int o_half = O_FIRST ? quarter % 2 : quarter / 2, l_half = O_FIRST ? quarter / 2 : quarter % 2;
        const int line = ALONG ? o + o_half * 8 + lane % 8 : (l + l_half) * PIECE + lane % 8;
        load_matrices<!ALONG>(shared + place_of<ALONG>(line, ALONG ? l + l_half : o / PIECE + o_half), made);
    }
};

template <class T, bool ALONG>
TN_DEVICE side<T, ALONG> side_of(const T *data, i64 first, i64 line_step, i64 step, i64 all, i64 k) {
    return {data + first * line_step, ALONG ? line_step : step, all - first, k};
}

/* Sums are f32, or i32 of integers. */
template <class T, class S, class A, class B>
TN_DEVICE void multiply_step(const A &a, const B &b, const words *stage, S (&sums)[4][4][4]) {
    const int warp = (int)threadIdx.x / 32, row = warp / 4 * WARP_ROWS, col = warp % 4 * WARP_COLS;
#pragma unroll
    for (int l = 0; l < LINE_PIECES; l += 2) {
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

/* All terms of a tile's sums; then the stages' memory is free. */
template <class T, class S, class A, class B>
TN_DEVICE void multiply_all(const A &a, const B &b, i64 k, words *shared, S (&sums)[4][4][4]) {
    const i64 steps = (k + A::STEP - 1) / A::STEP;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) a.fetch(shared + s * STAGE_WORDS, (i64)s * A::STEP);
        if (s < steps) b.fetch(shared + s * STAGE_WORDS + PIECES, (i64)s * A::STEP);
        copy_commit();
    }
    for (i64 s = 0; s < steps; s++) {
        const i64 next = s + STAGES - 1;
        copy_wait_for<STAGES - 2>();
        __syncthreads(); /* the step is there, and everybody has left the one whose place is taken now */
        words *to = shared + next % STAGES * STAGE_WORDS;
        if (next < steps) a.fetch(to, next * A::STEP);
        if (next < steps) b.fetch(to + PIECES, next * A::STEP);
        copy_commit();
        multiply_step<T>(a, b, shared + s % STAGES * STAGE_WORDS, sums);
    }
    __syncthreads();
}

#endif
