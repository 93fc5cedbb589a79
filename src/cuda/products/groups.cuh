/* Which part of a product a block makes, where rows lie in groups and each group has a matrix of its own.
 *
 * BY_ROWS: the groups are rows of a and y, and entry g of b belongs to group g. Rows in no group are 0. BY_TERMS:
 * they are terms of the sums, and entry g of y is what group g gives. Nobody has checked the offsets: where they
 * descend or leave the tensor, all of y is NaN. */
#pragma once

#include "product.cuh"

#ifdef __CUDACC__

enum grouping { WHOLE, BY_ROWS, BY_TERMS };

/* A tile: the rows of y that may be written end at `rows`; its sums have the `k` terms from `first` on, and are NaN
 * where offsets are wrong. */
struct tile_work {
    tile_spot spot;
    i64 rows, first, k;
    bool wrong;
};

TN_DEVICE i64 offset_at(const tni_gpu_groups &g, int i) {
    return g.wide ? ((const i64 *)g.offsets)[i * g.step] : (i64)((const int *)g.offsets)[i * g.step];
}

/* The lanes of a warp ask together. */
TN_DEVICE bool are_wrong(const tni_gpu_groups &g) {
    bool wrong = false;
    for (int i = (int)threadIdx.x % 32; i <= g.count; i += 32) {
        const i64 at = offset_at(g, i), before = i ? offset_at(g, i - 1) : 0;
        wrong = wrong || at < before || at > g.rows;
    }
    return __any_sync(0xffffffffu, wrong);
}

/* Goes through the tiles of all spans of rows, in order. Span 0 has the rows before all groups, span s those of group
 * s - 1, and the last one those behind them all; wrong offsets make span 0 of all rows. Lane l of a warp knows how many
 * tiles there are up to the end of span `first` + l. */
struct row_walk {
    const tni_gpu_product &p;
    int tile_rows, first;
    bool wrong;
    u32 before, until;

    TN_MEMBER row_walk(const tni_gpu_product &p, int tile_rows) : p(p), tile_rows(tile_rows), first(0), before(0) {
        wrong = are_wrong(p.groups);
        count();
    }
    TN_MEMBER i64 begin_of(int s) const {
        return s == 0 ? 0 : wrong ? p.groups.rows : offset_at(p.groups, s - 1);
    }
    TN_MEMBER i64 end_of(int s) const {
        return wrong || s > p.groups.count ? p.groups.rows : offset_at(p.groups, s);
    }
    TN_MEMBER u32 tiles_down(i64 begin, i64 end) const {
        return (u32)((end - begin + tile_rows - 1) / tile_rows);
    }
    TN_MEMBER void count() {
        const int lane = (int)threadIdx.x % 32, s = first + lane;
        u32 tiles = s <= p.groups.count + 1 ? tiles_down(begin_of(s), end_of(s)) * (u32)p.col_tiles : 0;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const u32 others = __shfl_up_sync(0xffffffffu, tiles, by);
            if (lane >= by) tiles += others;
        }
        until = before + tiles;
    }
    /* Tiles are asked for in ascending order, by all lanes together; false behind the last one. */
    TN_MEMBER bool find(u32 tile, int cols, tile_work &w) {
        u32 there;
        while (!(there = __ballot_sync(0xffffffffu, tile < until))) {
            before = __shfl_sync(0xffffffffu, until, 31);
            first += 32;
            if (first > p.groups.count + 1) return false;
            count();
        }
        const int lane = __ffs((int)there) - 1, s = first + lane;
        const u32 of_others = __shfl_sync(0xffffffffu, until, lane ? lane - 1 : 0);
        const bool in_group = s > 0 && s <= p.groups.count;
        const i64 begin = begin_of(s);
        w.rows = end_of(s);
        w.spot = place_tile(tile - (lane ? of_others : before), tiles_down(begin, w.rows), (u32)p.col_tiles, tile_rows,
                            cols);
        w.spot.row += begin;
        w.spot.index = in_group ? s - 1 : 0;
        w.first = 0;
        w.k = in_group ? p.k : 0;
        w.wrong = wrong;
        return true;
    }
};

TN_DEVICE void find_terms(const tni_gpu_product &p, u32 tile, int rows, int cols, bool wrong, tile_work &w) {
    w.spot = find_tile(p, tile, rows, cols);
    w.rows = p.m;
    w.first = wrong ? 0 : offset_at(p.groups, (int)w.spot.index);
    w.k = wrong ? 0 : offset_at(p.groups, (int)w.spot.index + 1) - w.first;
    w.wrong = wrong;
}

/* Sums that wrong offsets leave. */
template <int N, class A> TN_DEVICE void spoil(A *sums) {
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = not_a_number<A>();
}

/* The block's only tile; false: there is none for it. */
template <grouping G> TN_DEVICE bool find_work(const tni_gpu_product &p, int rows, int cols, tile_work &w) {
    if constexpr (G == BY_ROWS) return row_walk(p, rows).find(blockIdx.x, cols, w);
    if constexpr (G == BY_TERMS) {
        find_terms(p, blockIdx.x, rows, cols, are_wrong(p.groups), w);
    } else {
        w = {find_tile(p, blockIdx.x, rows, cols), p.m, 0, p.k, false};
    }
    return true;
}

#endif
