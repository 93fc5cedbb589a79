/* Tiles of 16-bit numbers for attention on tensor cores (sm_80 and later): how they come into shared memory, and lie
 * there; what warps read of them. */
#pragma once

#include "attention.cuh"
#include "cuda/products/matrix.cuh"

enum { PIECE = 8 /* numbers in 16 bytes */ };

/* Lines of SIZE numbers. A line's pieces change places by its number, so that 8 of them above each other are in
 * different banks. */
template <class T, int SIZE> struct tile {
    words *data;

    TN_MEMBER words *at(int line, int piece) const {
        return data + line * (SIZE / PIECE) + (piece ^ (line & 7));
    }
    /* LINES lines by `threads`: line l is `from(l)`, NULL where there is none; it has `size` numbers, then zeros. */
    template <int LINES, class F> TN_MEMBER void fetch(int threads, int size, const F &from) const {
        for (int i = (int)threadIdx.x; i < LINES * (SIZE / PIECE); i += threads) {
            const int line = i / (SIZE / PIECE), piece = i % (SIZE / PIECE), left = (size - piece * PIECE) * 2;
            const T *p = from(line);
            const int bytes = p && left > 0 ? (left < 16 ? left : 16) : 0;
            copy_some_async(at(line, piece), bytes ? p + piece * PIECE : (const T *)data, bytes);
        }
    }
    /* As the left side of a product: lines `line` to `line` + 15, terms `first` to `first` + 15. */
    TN_MEMBER void left(int line, int first, u32 (&made)[4]) const {
        const int lane = (int)threadIdx.x % 32;
        load_matrices<false>(at(line + lane % 16, first / PIECE + lane / 16), made);
    }
    /* As the right side: 16 lines are columns, of the same terms. made: low and high of 8 columns, of 8 more. */
    TN_MEMBER void columns(int line, int first, u32 (&made)[4]) const {
        const int lane = (int)threadIdx.x % 32, part = lane / 8;
        load_matrices<false>(at(line + part / 2 * 8 + lane % 8, first / PIECE + part % 2), made);
    }
    /* As the right side: 16 lines are terms, of columns `first` to `first` + 15. */
    TN_MEMBER void terms(int line, int first, u32 (&made)[4]) const {
        const int lane = (int)threadIdx.x % 32, part = lane / 8;
        load_matrices<true>(at(line + part % 2 * 8 + lane % 8, first / PIECE + part / 2), made);
    }
};

/* sums (16, COUNT * 8) += 16 lines of a times as many of b, SIZE terms. */
template <class T, int SIZE, int COUNT>
TN_DEVICE void multiply_lines(const tile<T, SIZE> &a, int a_line, const tile<T, SIZE> &b, f32 (&sums)[COUNT][4]) {
#pragma unroll
    for (int l = 0; l < SIZE; l += 16) {
        u32 rows[4], cols[4];
        a.left(a_line, l, rows);
#pragma unroll
        for (int j = 0; j < COUNT; j += 2) {
            b.columns(j * 8, l, cols);
            multiply_matrices(T{}, sums[j], rows, cols[0], cols[1]);
            multiply_matrices(T{}, sums[j + 1], rows, cols[2], cols[3]);
        }
    }
}

/* sums (16, SIZE) += weights (16, COUNT * 8), which are rounded, times as many lines of b. */
template <class T, int SIZE, int COUNT>
TN_DEVICE void multiply_weights(const f32 (&weights)[COUNT][4], const tile<T, SIZE> &b, f32 (&sums)[SIZE / 8][4]) {
#pragma unroll
    for (int j = 0; j < COUNT; j += 2) {
        const u32 rows[4] = {narrow_pair(T{}, weights[j][0], weights[j][1]),
                             narrow_pair(T{}, weights[j][2], weights[j][3]),
                             narrow_pair(T{}, weights[j + 1][0], weights[j + 1][1]),
                             narrow_pair(T{}, weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
        for (int c = 0; c < SIZE; c += 16) {
            u32 cols[4];
            b.terms(j * 8, c, cols);
            multiply_matrices(T{}, sums[c / 8], rows, cols[0], cols[1]);
            multiply_matrices(T{}, sums[c / 8 + 1], rows, cols[2], cols[3]);
        }
    }
}

/* Two of a lane's four sums, those of its line l / 4 or of the one 8 lines on, over the quarter that shares a line. */
template <class Op, class A> TN_DEVICE A reduce_quarter(A a) {
    return reduce_lanes<Op, 4>(a);
}

/* A warp's 16 lines of sums, times `by`, to where `to(line)` says, NULL: nowhere. */
template <class T, int SIZE, class F>
TN_DEVICE void put_lines(const f32 (&sums)[SIZE / 8][4], const f32 (&by)[2], int size, i64 step, const F &to) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        T *line = to(lane / 4 + half * 8);
        const bool pairs = step == 1 && (u64)line % 4 == 0;
#pragma unroll
        for (int i = 0; i < SIZE / 8; i++) {
            const int c = i * 8 + lane % 4 * 2;
            const f32 a = sums[i][half * 2] * by[half], b = sums[i][half * 2 + 1] * by[half];
            if (!line || c >= size) continue;
            if (pairs && c + 1 < size) {
                *(u32 *)(line + c) = narrow_pair(T{}, a, b);
            } else {
                narrow(a, line[c * step]);
                if (c + 1 < size) narrow(b, line[(c + 1) * step]);
            }
        }
    }
}

/* Which of the warp's 16 lines have sums that are no numbers; only the lowest 16 bits. */
template <int COUNT> TN_DEVICE u32 odd_lines(const f32 (&sums)[COUNT][4]) {
    f32 odd[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        odd[0] += sums[i][0] * 0 + sums[i][1] * 0;
        odd[1] += sums[i][2] * 0 + sums[i][3] * 0;
    }
    u32 lines = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const bool is_odd = reduce_quarter<take_sum>(odd[half]) != 0 || odd[half] != odd[half];
        const u32 mine = is_odd ? 1u << ((int)threadIdx.x % 32 / 4 + half * 8) : 0;
        lines |= mine;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) lines |= from_lane(lines, (u32)d);
    return lines;
}

/* Row r of those that share a head of k is of query r / group. */
TN_DEVICE query_spot spot_of(const tni_gpu_attention &p, int b, int h, i64 r) {
    return {b, h * p.group + (int)(r % p.group), r / p.group};
}

template <class T> struct rows_from {
    const tni_gpu_attention &p;
    const tni_gpu_heads &x;
    int b, h;
    i64 first, count;
    TN_MEMBER T *operator()(int line) const {
        const i64 r = first + line;
        if (r >= count) return nullptr;
        const query_spot s = spot_of(p, b, h, r);
        return (T *)row_at<T>(x, s.p, s.h, s.i);
    }
};
template <class T> struct keys_from {
    const tni_gpu_heads &x;
    int b, h;
    i64 first, count;
    TN_MEMBER T *operator()(int line) const {
        return first + line < count ? (T *)row_at<T>(x, b, h, first + line) : nullptr;
    }
};

/* What one tile of a launch is about. */
struct head_tile {
    int b, h;
    i64 tile;
};
TN_DEVICE head_tile find_head_tile(const tni_gpu_attention &p, i64 tiles) {
    const i64 head = blockIdx.x / tiles;
    return {(int)(head / p.hk), (int)(head % p.hk), blockIdx.x % tiles};
}

/* No bias, mask or cap. */
TN_DEVICE bool is_plain(const tni_gpu_attention &p) {
    return !p.bias.data && !p.mask.data && !(p.softcap > 0);
}
/* Rows first … last see all of keys begin … end - 1. */
TN_DEVICE bool see_all(const tni_gpu_attention &p, i64 first, i64 last, i64 begin, i64 end) {
    return first_key(p, last / p.group) <= begin && end_of_keys(p, first / p.group) >= end;
}

static const f32 LOG2_OF_E = 0x1.715476p+0f, LN_OF_2 = 0x1.62e43p-1f;
