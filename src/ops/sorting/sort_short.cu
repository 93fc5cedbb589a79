/* Rows that a warp or a block sorts at once. */
#include "sorting.cuh"

/* ---- a warp, or some lanes of it --------------------------------------------------------------------------------- */

/* What is put in order: no two are equal, since places are not. */
template <class S> struct short_record {
    u64 both; /* the key above the place */

    static TN_MEMBER short_record of(S key, u32 place) {
        return {(u64)key << 32 | place};
    }
    static TN_MEMBER short_record last() {
        return {~0ull};
    }
    TN_MEMBER bool operator<(const short_record &other) const {
        return both < other.both;
    }
    TN_MEMBER short_record from_lane(int across) const {
        return {__shfl_xor_sync(0xffffffffu, both, across, 32)};
    }
    TN_MEMBER S key() const {
        return (S)(both >> 32);
    }
    TN_MEMBER u32 place() const {
        return (u32)both;
    }
};
template <> struct short_record<u64> {
    u64 own;
    u32 at;

    static TN_MEMBER short_record of(u64 key, u32 place) {
        return {key, place};
    }
    static TN_MEMBER short_record last() {
        return {~0ull, ~0u};
    }
    TN_MEMBER bool operator<(const short_record &other) const {
        return own < other.own || (own == other.own && at < other.at);
    }
    TN_MEMBER short_record from_lane(int across) const {
        return {__shfl_xor_sync(0xffffffffu, own, across, 32), __shfl_xor_sync(0xffffffffu, at, across, 32)};
    }
    TN_MEMBER u64 key() const {
        return own;
    }
    TN_MEMBER u32 place() const {
        return at;
    }
};

/* The smaller of two records goes to `a` where `up`, else the larger. */
template <class R> TN_DEVICE void put_in_order(R &a, R &b, bool up) {
    const bool swap = (b < a) == up;
    const R kept = a;
    a = swap ? b : a;
    b = swap ? kept : b;
}

/* A bitonic network over lanes * ITEMS records; record i of a lane is number lane * ITEMS + i. */
template <int ITEMS, class R> TN_DEVICE void sort_lanes(R (&r)[ITEMS], int lanes) {
    const int first = (int)lane_id() % lanes * ITEMS;
#pragma unroll 1
    for (int size = 2; size <= lanes * ITEMS; size *= 2) {
#pragma unroll 1
        for (int apart = size / 2; apart >= ITEMS; apart /= 2) {
            const bool up = (first & size) == 0, lower = (first & apart) == 0;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                const R other = r[i].from_lane(apart / ITEMS);
                if ((other < r[i]) == (up == lower)) r[i] = other;
            }
        }
#pragma unroll
        for (int apart = ITEMS / 2; apart > 0; apart /= 2) {
            if (apart >= size) continue;
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                if ((i & apart) == 0) put_in_order(r[i], r[i | apart], ((first + i) & size) == 0);
            }
        }
    }
}

/* Some lanes have a row; with several ITEMS all 32. Results change hands in shared memory, so that neighbours write
 * neighbouring memory. */
template <class S, int ITEMS> TN_DEVICE void sort_warp(const tni_sort &p) {
    typedef short_record<S> R;
    __shared__ R turned[ITEMS > 1 ? 4 : 1][ITEMS > 1 ? 32 * ITEMS : 1];
    const int lanes = p.lanes, lane = (int)lane_id() % lanes;
    const i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
    const bool there = row < p.rows;
    const S *x = (const S *)p.x + (there ? row * p.n : 0);
    R r[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int at = i * 32 + lane;
        r[i] = there && at < p.n ? R::of(key_of<S>(x[at], p.rule), at) : R::last();
    }
    sort_lanes<ITEMS>(r, lanes);
    if (ITEMS > 1) {
        R *own = turned[threadIdx.x / 32];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) own[lane * ITEMS + i] = r[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) r[i] = own[i * 32 + lane];
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int at = i * 32 + lane;
        if (!there || at >= p.k) continue;
        if (p.values) ((S *)p.values)[row * p.k + at] = bits_of<S>(r[i].key(), x + r[i].place(), p.rule);
        if (p.index) p.index[row * p.k + at] = r[i].place();
    }
}

#define WARP(S)                                                            \
    TN_ROW_KERNEL(sort_warp_1_##S, 128, 8, tni_sort, (sort_warp<S, 1>(p))) \
    TN_ROW_KERNEL(sort_warp_4_##S, 128, 8, tni_sort, (sort_warp<S, 4>(p))) \
    TN_ROW_KERNEL(sort_warp_8_##S, 128, 4, tni_sort, (sort_warp<S, 8>(p)))
WARP(u8)
WARP(u16)
WARP(u32)
WARP(u64)

/* ---- a block ----------------------------------------------------------------------------------------------------- */

/* Changes the places of a block's values in shared memory: value i goes to to[i], and those at warp * 32 * ITEMS + i *
 * 32 + lane come back. */
template <class A, int ITEMS> TN_DEVICE void exchange(A (&values)[ITEMS], const u32 (&to)[ITEMS], A *room) {
    const u32 first = threadIdx.x / 32 * 32 * ITEMS + lane_id();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) room[to[i]] = values[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) values[i] = room[first + i * 32];
}

/* The row's keys are in the block's registers. They are put in order digit by digit, from the lowest on; what is
 * behind the row's end has the largest key and so stays behind. */
template <class S, int THREADS, int ITEMS> TN_DEVICE void sort_block(const tni_sort &p) {
    __shared__ digit_ranks<THREADS / 32> ranks;
    __shared__ union {
        S keys[THREADS * ITEMS];
        u16 places[THREADS * ITEMS];
    } room;
    const u32 first = threadIdx.x / 32 * 32 * ITEMS + lane_id(), n = (u32)p.n;
    const i64 row = blockIdx.x;
    const S *x = (const S *)p.x + row * p.n;
    S keys[ITEMS];
    u16 places[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 at = first + i * 32;
        keys[i] = at < n ? key_of<S>(x[at], p.rule) : (S) ~(S)0;
        places[i] = (u16)at;
    }
#pragma unroll 1
    for (int shift = 0; shift < (int)sizeof(S) * 8; shift += 8) {
        u32 to[ITEMS];
        const u32 all = ranks.count(keys, shift, to);
        const u32 behind = threadIdx.x == 255 ? THREADS * ITEMS - n : 0;
        if (__syncthreads_or(threadIdx.x < TNI_SORT_DIGITS && all - behind == n)) continue; /* all have one digit */
        ranks.find_starts(all);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) to[i] = ranks.place((u32)(keys[i] >> shift) & 255, to[i]);
        exchange(keys, to, room.keys);
        exchange(places, to, room.places);
    }
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const u32 at = first + i * 32;
        if (at >= p.k) continue;
        if (p.values) ((S *)p.values)[row * p.k + at] = bits_of<S>(keys[i], x + places[i], p.rule);
        if (p.index) p.index[row * p.k + at] = places[i];
    }
}

/* Threads and items: block_forms in sorting_cuda.c has the same. */
#define BLOCK(S, THREADS, ITEMS, BLOCKS) \
    TN_ROW_KERNEL(sort_block_##THREADS##x##ITEMS##_##S, THREADS, BLOCKS, tni_sort, (sort_block<S, THREADS, ITEMS>(p)))
#define BLOCKS(S)        \
    BLOCK(S, 256, 4, 4)  \
    BLOCK(S, 256, 8, 3)  \
    BLOCK(S, 256, 16, 3) \
    BLOCK(S, 384, 16, 2)
BLOCKS(u8)
BLOCKS(u16)
BLOCKS(u32)
BLOCK(u64, 256, 4, 4)
BLOCK(u64, 256, 8, 3)
BLOCK(u64, 384, 8, 2)
