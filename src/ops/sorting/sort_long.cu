/* Rows that no block holds: a radix sort by digits of 8 bits, from the lowest on.
 *
 * One kernel counts the digits of all passes in one read; another finds where the elements of each digit begin, and
 * which passes change nothing. Then each pass reads and writes a row once. A block has a tile of it: it puts the tile
 * in the order of the digit in shared memory, learns from the tiles before it how many of each digit they have, and
 * writes runs of equal digits to where they go.
 *
 * Tiles tell each other through p.found: for each digit a number and a flag in one word. A tile first says how many it
 * has itself (OWN), then how many there are up to its end (UP_TO); whoever comes later adds up backwards until it meets
 * the latter. Tiles are handed out by a ticket: those before it are under way when a block waits for them.
 *
 * Between passes a record is its key and its place in the row: of 32 bits in rows of fewer than 2^30 elements, which
 * leaves 30 bits for numbers beside a flag; of 64 bits in longer ones. */
#include "sorting.cuh"

enum { WARPS = TNI_SORT_LONG_THREADS / 32 };

template <class I> struct found_word { static constexpr int shift = sizeof(I) * 8 - 2; };
enum { OWN = 1, UP_TO = 2 };

TN_DEVICE u32 load_found(const u32 *p) {
    u32 a;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(a) : "l"(p) : "memory");
    return a;
}
TN_DEVICE u64 load_found(const u64 *p) {
    u64 a;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(p) : "memory");
    return a;
}
TN_DEVICE void store_found(u32 *p, u32 a) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(a) : "memory");
}
TN_DEVICE void store_found(u64 *p, u64 a) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(a) : "memory");
}

/* ---- all digits counted ------------------------------------------------------------------------------------------ */

template <class S> TN_DEVICE void count_key(u32 (*counts)[TNI_SORT_DIGITS], S bits, const tni_key_rule &rule) {
    const S key = key_of<S>(bits, rule);
#pragma unroll
    for (int pass = 0; pass < (int)sizeof(S); pass++) atomicAdd(&counts[pass][(u32)(key >> pass * 8) & 255], 1u);
}

/* A block counts TNI_SORT_COUNTED elements of a row, in two tables so that fewer threads meet. */
template <class S, class I> TN_DEVICE void count_digits(const tni_sort &p) {
    constexpr int PASSES = sizeof(S), V = 16 / sizeof(S), TABLES = 2;
    __shared__ u32 counts[TABLES][PASSES][TNI_SORT_DIGITS];
    const i64 parts = (p.n + TNI_SORT_COUNTED - 1) / TNI_SORT_COUNTED, row = blockIdx.x / parts;
    const i64 begin = (blockIdx.x - row * parts) * TNI_SORT_COUNTED;
    const int n = (int)(p.n - begin < TNI_SORT_COUNTED ? p.n - begin : TNI_SORT_COUNTED);
    const S *x = (const S *)p.x + row * p.n + begin;
    for (int i = threadIdx.x; i < TABLES * PASSES * TNI_SORT_DIGITS; i += blockDim.x) (&counts[0][0][0])[i] = 0;
    __syncthreads();
    u32(*own)[TNI_SORT_DIGITS] = counts[threadIdx.x / 32 % TABLES];
    const int whole = ((u64)x & 15) == 0 ? n / V * V : 0;
    for (int i = threadIdx.x * V; i < whole; i += 2 * blockDim.x * V) {
        const int next = i + blockDim.x * V;
        union {
            words w;
            S bits[V];
        } a, b;
        a.w = load_words_if(x + i, true);
        b.w = load_words_if(x + next, next < whole);
#pragma unroll
        for (int j = 0; j < V; j++) count_key<S>(own, a.bits[j], p.rule);
        if (next < whole) {
#pragma unroll
            for (int j = 0; j < V; j++) count_key<S>(own, b.bits[j], p.rule);
        }
    }
    for (int i = whole + threadIdx.x; i < n; i += blockDim.x) count_key<S>(own, x[i], p.rule);
    __syncthreads();
    I *all = (I *)p.counts + row * PASSES * TNI_SORT_DIGITS;
    for (int i = threadIdx.x; i < PASSES * TNI_SORT_DIGITS; i += blockDim.x) {
        u32 sum = 0;
#pragma unroll
        for (int t = 0; t < TABLES; t++) sum += (&counts[t][0][0])[i];
        if (sum) atomicAdd(&all[i], (I)sum);
    }
}

/* ---- where digits begin ------------------------------------------------------------------------------------------ */

/* The sum over the threads of the block before this one, of 256. */
template <class I> TN_DEVICE I sum_before(I a, I *sums) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
    I up_to = a;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const I below = __shfl_up_sync(0xffffffffu, up_to, d, 32);
        if (lane >= d) up_to += below;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = up_to;
    __syncthreads();
    for (u32 w = 0; w < warp; w++) up_to += sums[w];
    return up_to - a;
}

/* A block of 256 threads has a row. */
template <class I> TN_DEVICE void plan_passes(const tni_sort &p) {
    __shared__ I sums[8];
    I *counts = (I *)p.counts + (i64)blockIdx.x * p.passes * TNI_SORT_DIGITS;
    u32 moving = 0; /* passes in which not all digits are the same */
    for (int pass = 0; pass < p.passes; pass++) {
        I *count = counts + pass * TNI_SORT_DIGITS + threadIdx.x;
        const I own = *count;
        *count = sum_before(own, sums);
        if (!__syncthreads_or(own == (I)p.n)) moving |= 1u << pass;
    }
    if (moving == 0) moving = 1; /* somebody must write the outputs */
    if (threadIdx.x >= p.passes) return;
    const u32 own = 1u << threadIdx.x, before = __popc(moving & (own - 1));
    int step = before == 0 ? TNI_SORT_FROM_X : before % 2 ? TNI_SORT_FROM_0 : TNI_SORT_FROM_1;
    if (moving >> threadIdx.x == 1) step |= TNI_SORT_TO_OUTPUTS;
    p.steps[(i64)blockIdx.x * p.passes + threadIdx.x] = moving & own ? step : TNI_SORT_SKIP;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* How many elements of digit threadIdx.x the tiles of the row before this one have; `own`: this one's. */
template <class I> TN_DEVICE I look_back(I *found, i64 tile, I own) {
    constexpr int shift = found_word<I>::shift;
    I before = 0;
    for (i64 t = tile - 1; t >= 0;) {
        const I word = load_found(found + t * TNI_SORT_DIGITS);
        if (word >> shift == 0) continue; /* it has nothing to say yet */
        before += word & (((I)1 << shift) - 1);
        if (word >> shift == UP_TO) break;
        t--;
    }
    store_found(found + tile * TNI_SORT_DIGITS, (I)UP_TO << shift | (before + own));
    return before;
}

template <class S, class I, int ITEMS> TN_DEVICE void sort_pass(const tni_sort &p) {
    constexpr int TILE = TNI_SORT_LONG_THREADS * ITEMS;
    __shared__ digit_ranks<WARPS> ranks;
    __shared__ union {
        S keys[TILE];
        I places[TILE];
    } room;
    __shared__ I begin[TNI_SORT_DIGITS]; /* where elements of the tile go: their number in it, and this */
    __shared__ u32 ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(&p.tickets[p.pass], 1u);
    __syncthreads();
    const i64 row = ticket / p.tiles, tile = ticket - row * p.tiles;
    const int step = p.steps[row * p.passes + p.pass], from = step & 3, shift = p.pass * 8;
    if (step == TNI_SORT_SKIP) return;
    const bool to_outputs = step & TNI_SORT_TO_OUTPUTS;
    const i64 row_at = row * p.n, tile_at = tile * TILE;
    const int n = (int)(p.n - tile_at < TILE ? p.n - tile_at : TILE);
    const int first = threadIdx.x / 32 * 32 * ITEMS + lane_id();
    const S *x = (const S *)p.x + row_at;

    S keys[ITEMS];
    I places[ITEMS];
    if (from == TNI_SORT_FROM_X) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) keys[i] = first + i * 32 < n ? x[tile_at + first + i * 32] : 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) keys[i] = first + i * 32 < n ? key_of<S>(keys[i], p.rule) : (S) ~(S)0;
    } else {
        const S *keys_from = (const S *)p.keys[from == TNI_SORT_FROM_1] + row_at + tile_at;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) keys[i] = first + i * 32 < n ? keys_from[first + i * 32] : (S) ~(S)0;
    }

    u32 to[ITEMS];
    const I own = ranks.count(keys, shift, to);
    I *found = (I *)p.found + ((i64)p.pass * p.rows + row) * p.tiles * TNI_SORT_DIGITS + threadIdx.x;
    if (threadIdx.x < TNI_SORT_DIGITS && tile > 0) {
        store_found(found + tile * TNI_SORT_DIGITS, (I)OWN << found_word<I>::shift | own);
    }
    ranks.find_starts((u32)own);
    u32 pairs[ITEMS / 2]; /* two places in the tile to a register: those of the row need some, too */
#pragma unroll
    for (int i = 0; i < ITEMS; i += 2) {
        const u32 low = ranks.place((u32)(keys[i] >> shift) & 255, to[i]);
        const u32 high = ranks.place((u32)(keys[i + 1] >> shift) & 255, to[i + 1]);
        room.keys[low] = keys[i];
        room.keys[high] = keys[i + 1];
        pairs[i / 2] = low | high << 16;
    }
    if (from == TNI_SORT_FROM_X) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) places[i] = (I)(tile_at + first + i * 32);
    } else {
        const I *places_from = (const I *)p.places[from == TNI_SORT_FROM_1] + row_at + tile_at;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) places[i] = first + i * 32 < n ? places_from[first + i * 32] : 0;
    }
    if (threadIdx.x < TNI_SORT_DIGITS) {
        const I counted = ((const I *)p.counts)[(row * p.passes + p.pass) * TNI_SORT_DIGITS + threadIdx.x];
        begin[threadIdx.x] = counted + look_back<I>(found, tile, own) - ranks.start[threadIdx.x];
    }
    __syncthreads();

    S *keys_to = (S *)p.keys[from == TNI_SORT_FROM_0] + row_at;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int number = i * TNI_SORT_LONG_THREADS + threadIdx.x;
        keys[i] = room.keys[number];
        if (number < n && !to_outputs) keys_to[begin[(u32)(keys[i] >> shift) & 255] + number] = keys[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) room.places[i % 2 ? pairs[i / 2] >> 16 : pairs[i / 2] & 0xffff] = places[i];
    __syncthreads();
    I *places_to = (I *)p.places[from == TNI_SORT_FROM_0] + row_at;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int number = i * TNI_SORT_LONG_THREADS + threadIdx.x;
        const I place = room.places[number], at = begin[(u32)(keys[i] >> shift) & 255] + number;
        if (number >= n) continue;
        if (!to_outputs) {
            places_to[at] = place;
        } else if (at < p.k) {
            if (p.values) ((S *)p.values)[row * p.k + at] = bits_of<S>(keys[i], x + place, p.rule);
            if (p.index) p.index[row * p.k + at] = (i64)place;
        }
    }
}

#define LONG(S, ITEMS)                                                                              \
    TN_ROW_KERNEL(sort_count_##S, 512, 2, tni_sort, (count_digits<S, u32>(p)))                      \
    TN_ROW_KERNEL(sort_count_wide_##S, 512, 2, tni_sort, (count_digits<S, u64>(p)))                 \
    TN_ROW_KERNEL(sort_pass_##S, TNI_SORT_LONG_THREADS, 2, tni_sort, (sort_pass<S, u32, ITEMS>(p))) \
    TN_ROW_KERNEL(sort_pass_wide_##S, TNI_SORT_LONG_THREADS, 2, tni_sort, (sort_pass<S, u64, TNI_SORT_LONG_FEW>(p)))
LONG(u8, TNI_SORT_LONG_ITEMS)
LONG(u16, TNI_SORT_LONG_ITEMS)
LONG(u32, TNI_SORT_LONG_ITEMS)
LONG(u64, TNI_SORT_LONG_FEW)
TN_ROW_KERNEL(sort_plan, 256, 1, tni_sort, plan_passes<u32>(p))
TN_ROW_KERNEL(sort_plan_wide, 256, 1, tni_sort, plan_passes<u64>(p))
