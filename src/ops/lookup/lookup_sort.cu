/* Positions sorted by small integer keys, with equal keys in their order: the same every time, without atomics on
 * memory that others see. Two ways.
 *
 * Few positions, by rank: each is counted how many come before it. Every block has all keys in shared memory, and the
 * threads of a warp compare theirs with the same one at a time. It takes n^2 comparisons, but one kernel.
 *
 * Many, by radix: for each 8 bits of the key, from the lowest, one kernel counts the digits of each tile, one adds them
 * up over the tiles, and one writes each position behind those that come before it. */
#include "lookup.cuh"

/* The key of position p. */
TN_DEVICE u32 key_of(const tni_sort &s, u32 p) {
    const u32 row = s.width == 1 ? p : p / s.width, i = p - row * s.width, o = row / s.n;
    const i64 k = find_index(s.index, o, row - o * s.n, i);
    return k < 0 ? s.keys : (u32)((o * s.index.v + k) * s.width + i);
}

/* No key has positions yet. By all blocks of the first kernel: where there are many keys, it has more of them than it
 * needs for the positions. */
TN_DEVICE void clear_ends(const tni_sort &s) {
    for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < s.keys; k += (u64)gridDim.x * blockDim.x)
        s.ends[k] = 0;
}

/* ---- by rank ----------------------------------------------------------------------------------------------------- */

struct alignas(16) four_keys {
    u32 k[4];
};

struct rank_shared {
    four_keys keys[TNI_RANK_MOST / 4];
    u32 before[TNI_RANK_WAYS][TNI_RANK_BLOCK];
};

/* How many of TNI_RANK_BLOCK keys are below `limit`. */
TN_DEVICE u32 count_below(const four_keys *keys, u32 limit) {
    u32 count = 0;
#pragma unroll
    for (int q = 0; q < TNI_RANK_BLOCK / 4; q++) {
        const four_keys four = keys[q];
#pragma unroll
        for (int e = 0; e < 4; e++) count += four.k[e] < limit;
    }
    return count;
}

TN_DEVICE void sort_by_rank(const tni_sort &s, rank_shared &shared) {
    u32 *keys = shared.keys[0].k;
    const u32 blocks = (s.count + TNI_RANK_BLOCK - 1) / TNI_RANK_BLOCK;
    const u32 mine = threadIdx.x % TNI_RANK_BLOCK, way = threadIdx.x / TNI_RANK_BLOCK;
    const u32 p = blockIdx.x * TNI_RANK_BLOCK + mine;
    clear_ends(s);
    if (blockIdx.x >= blocks) return;
    for (u32 q = threadIdx.x; q < blocks * TNI_RANK_BLOCK; q += blockDim.x) {
        keys[q] = q < s.count ? key_of(s, q) : 0xffffffffu;
    }
    __syncthreads();
    const u32 key = keys[p];
    u32 before = 0;
    for (u32 b = way; b < blocks; b += TNI_RANK_WAYS) {
        const four_keys *theirs = shared.keys + b * (TNI_RANK_BLOCK / 4);
        if (b != blockIdx.x) {
            before += count_below(theirs, b < blockIdx.x && key != 0xffffffffu ? key + 1 : key);
        } else {
            for (u32 q = 0; q < TNI_RANK_BLOCK; q++) {
                const u32 other = keys[b * TNI_RANK_BLOCK + q];
                before += other < key || (other == key && q < mine);
            }
        }
    }
    shared.before[way][mine] = before;
    __syncthreads();
    if (way > 0 || p >= s.count) return;
    u32 rank = 0;
#pragma unroll
    for (int w = 0; w < TNI_RANK_WAYS; w++) rank += shared.before[w][mine];
    s.key[rank] = key;
    s.position[rank] = p;
}

/* ---- by radix ---------------------------------------------------------------------------------------------------- */

TN_DEVICE u32 digit_of(const tni_sort &s, u32 key) {
    return key >> s.shift & (TNI_SORT_DIGITS - 1);
}

TN_DEVICE u32 sort_key(const tni_sort &s, u32 p) {
    return s.is_first ? key_of(s, p) : s.from_key[p];
}

/* The digits of a tile. */
TN_DEVICE void count_digits(const tni_sort &s, u32 (&digits)[TNI_SORT_DIGITS]) {
    if (s.is_first) clear_ends(s);
    if (blockIdx.x >= s.blocks) return;
    digits[threadIdx.x] = 0;
    __syncthreads();
    for (int e = 0; e < TNI_SORT_EACH; e++) {
        const u64 p = (u64)blockIdx.x * TNI_SORT_TILE + e * TNI_SORT_THREADS + threadIdx.x;
        if (p < s.count) atomicAdd(&digits[digit_of(s, sort_key(s, (u32)p))], 1); /* counts: in any order */
    }
    __syncthreads();
    s.counts[(u64)threadIdx.x * s.blocks + blockIdx.x] = digits[threadIdx.x];
}

/* The sum of all threads' numbers up to and with this one's. */
TN_DEVICE u32 sum_so_far(u32 a, u32 (&sums)[TNI_SORT_THREADS / 32]) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, a, d);
        if (lane >= (u32)d) a += other;
    }
    if (lane == 31) sums[warp] = a;
    __syncthreads();
    for (u32 w = 0; w < warp; w++) a += sums[w];
    __syncthreads();
    return a;
}

/* Block d: how many of digit d are in the tiles before each. */
TN_DEVICE void add_counts(const tni_sort &s, u32 (&sums)[TNI_SORT_THREADS / 32], u32 &total) {
    u32 *counts = s.counts + (u64)blockIdx.x * s.blocks;
    u32 before = 0;
    for (u32 first = 0; first < s.blocks; first += TNI_SORT_THREADS) {
        const u32 b = first + threadIdx.x, count = b < s.blocks ? counts[b] : 0;
        const u32 with = sum_so_far(count, sums);
        if (b < s.blocks) counts[b] = before + with - count;
        if (threadIdx.x == TNI_SORT_THREADS - 1) total = with;
        __syncthreads();
        before += total;
        __syncthreads();
    }
    if (threadIdx.x == 0) s.totals[blockIdx.x] = before;
}

struct sort_shared {
    u32 next[TNI_SORT_THREADS / 32][TNI_SORT_DIGITS]; /* by warp: how many of a digit; then where the next one goes */
    u32 sums[TNI_SORT_THREADS / 32];
};

/* A tile's positions go behind those of smaller digits, of earlier tiles, of earlier warps and, in the warp, of earlier
 * positions. Each warp has 32 * TNI_SORT_EACH positions in a row. */
TN_DEVICE void place_digits(const tni_sort &s, sort_shared &shared) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u64 first = (u64)blockIdx.x * TNI_SORT_TILE + warp * (32 * TNI_SORT_EACH) + lane;
    u32 key[TNI_SORT_EACH], position[TNI_SORT_EACH], rank[TNI_SORT_EACH];
    for (int w = 0; w < TNI_SORT_THREADS / 32; w++) shared.next[w][threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < TNI_SORT_EACH; e++) {
        const u64 p = first + e * 32;
        key[e] = p < s.count ? sort_key(s, (u32)p) : 0;
        position[e] = p < s.count && !s.is_first ? s.from_position[p] : (u32)p;
    }
#pragma unroll
    for (int e = 0; e < TNI_SORT_EACH; e++) {
        const bool there = first + e * 32 < s.count;
        const u32 digit = digit_of(s, key[e]);
        /* those that are not there have a group of their own */
        const u32 alike = __match_any_sync(0xffffffffu, there ? digit : TNI_SORT_DIGITS);
        const u32 before = shared.next[warp][digit];
        rank[e] = before + __popc(alike & ((1u << lane) - 1));
        __syncwarp();
        if (there && lane == (u32)__ffs(alike) - 1) shared.next[warp][digit] = before + __popc(alike);
        __syncwarp();
    }
    __syncthreads();
    const u32 total = s.totals[threadIdx.x], smaller = sum_so_far(total, shared.sums) - total;
    u32 next = smaller + s.counts[(u64)threadIdx.x * s.blocks + blockIdx.x];
#pragma unroll
    for (int w = 0; w < TNI_SORT_THREADS / 32; w++) {
        const u32 count = shared.next[w][threadIdx.x];
        shared.next[w][threadIdx.x] = next;
        next += count;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < TNI_SORT_EACH; e++) {
        if (first + e * 32 >= s.count) continue;
        const u32 to = shared.next[warp][digit_of(s, key[e])] + rank[e];
        s.key[to] = key[e];
        s.position[to] = position[e];
    }
}

/* ---- what is sorted ---------------------------------------------------------------------------------------------- */

/* Where each key's positions begin and end. */
TN_DEVICE void mark_keys(const tni_sort &s) {
    wait_for_last();
    const u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= s.count) return;
    const u32 key = s.key[p];
    if (key >= s.keys) return;
    if (p == 0 || s.key[p - 1] != key) s.begins[key] = (u32)p;
    if (p + 1 == s.count || s.key[p + 1] != key) s.ends[key] = (u32)p + 1;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

TN_DEVICE void sort_rank(const tni_sort &s) {
    __shared__ rank_shared shared;
    sort_by_rank(s, shared);
}

TN_DEVICE void sort_count(const tni_sort &s) {
    __shared__ u32 digits[TNI_SORT_DIGITS];
    wait_for_last();
    count_digits(s, digits);
}

TN_DEVICE void sort_add(const tni_sort &s) {
    __shared__ u32 sums[TNI_SORT_THREADS / 32], total;
    wait_for_last();
    add_counts(s, sums, total);
}

TN_DEVICE void sort_place(const tni_sort &s) {
    __shared__ sort_shared shared;
    wait_for_last();
    place_digits(s, shared);
}

TN_DEVICE void find_segments(const tni_segments &s) {
    const u64 p = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (p < s.offsets.positions) s.segment[p] = find_segment(s.offsets, (u32)p);
}

TN_KERNEL(lookup_sort_rank, TNI_RANK_BLOCK *TNI_RANK_WAYS, (TN_PARAMS(tni_sort)), sort_rank(p))
TN_KERNEL(lookup_sort_count, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_count(p))
TN_KERNEL(lookup_sort_add, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_add(p))
TN_KERNEL(lookup_sort_place, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), sort_place(p))
TN_KERNEL(lookup_sort_mark, TNI_SORT_THREADS, (TN_PARAMS(tni_sort)), mark_keys(p))
TN_KERNEL(lookup_sort_segments, TNI_SORT_THREADS, (TN_PARAMS(tni_segments)), find_segments(p))
