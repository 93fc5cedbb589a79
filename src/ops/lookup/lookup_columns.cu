/* take and add of elements that have an index each, by columns in shared memory. A column is what lies along the axis
 * at one (o, i).
 *
 * A block has some columns. Where they are neighbours in memory, so are its threads: each row of the tensors is read
 * and written in pieces as wide as the block has columns, and what an index leads to is in shared memory. */
#include "lookup.cuh"

enum { ITEMS = TNI_COLUMN_ITEMS };

/* A thread's column, and which of the threads that have it this one is. */
struct column {
    i64 o, i;
    int which; /* of the block's */
    int slot, slots;
    bool there;

    TN_MEMBER column(const tni_columns &p) {
        const int t = (int)threadIdx.x;
        slots = (int)blockDim.x / p.width;
        which = p.across ? t % p.width : t / slots;
        slot = p.across ? t / p.width : t % slots;
        const i64 number = (i64)blockIdx.x * p.width + which;
        there = number < p.count;
        o = divide(number, p.by_inner);
        i = number - o * p.inner;
    }
    /* Element e of those that this thread has from `first` on is there, of n along the axis. */
    TN_MEMBER bool has(i64 first, int e, i64 n) const {
        return there && first + e * slots < n;
    }
};

/* Indices as they are in memory: that they are used later keeps all of them under way. */
struct indices {
    u32 low[ITEMS], high[ITEMS];

    /* Those of j = first, first + slots, … < n. */
    TN_MEMBER void load(const tni_columns &p, const column &c, i64 first) {
        const i64 step = c.slots * p.index.by_n;
        i64 at = c.o * p.index.by_outer + c.i * p.index.by_inner + first * p.index.by_n;
        if (p.index.wide) {
#pragma unroll
            for (int e = 0; e < ITEMS; e++, at += step) {
                const u64 k = c.has(first, e, p.n) ? ((const u64 *)p.index.data)[at] : 0;
                low[e] = (u32)k;
                high[e] = (u32)(k >> 32);
            }
        } else {
#pragma unroll
            for (int e = 0; e < ITEMS; e++, at += step)
                low[e] = c.has(first, e, p.n) ? ((const u32 *)p.index.data)[at] : 0;
        }
    }
    TN_MEMBER int at(const tni_columns &p, int e) const {
        return (int)check_index(p.index, p.index.wide ? (i64)((u64)high[e] << 32 | low[e]) : (i64)(int)low[e]);
    }
};

/* ---- take -------------------------------------------------------------------------------------------------------- */

/* Shared memory: (v, width). */
template <class U> TN_DEVICE void take_columns(const tni_columns &p) {
    extern __shared__ double memory[];
    const column c(p);
    U *table = (U *)memory + c.which;
    const i64 v = p.index.v, step = c.slots * p.inner;
    const int batch = c.slots * ITEMS;
    const U zero = {}, bad = bytes_of<U>(p.bad);
    indices next;
    next.load(p, c, c.slot);
    const U *from = (const U *)p.from + (c.o * v + c.slot) * p.inner + c.i;
    for (i64 first = c.slot; first < v; first += batch) {
        U a[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++, from += step) a[e] = c.has(first, e, v) ? *from : zero;
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (c.has(first, e, v)) table[(first + e * c.slots) * p.width] = a[e];
    }
    __syncthreads();
    U *to = (U *)p.to + (c.o * p.n + c.slot) * p.inner + c.i;
    for (i64 first = c.slot; first < p.n; first += batch) {
        int k[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++) k[e] = next.at(p, e);
        next.load(p, c, first + batch);
#pragma unroll
        for (int e = 0; e < ITEMS; e++, to += step) {
            const U a = k[e] >= 0 ? table[k[e] * p.width] : k[e] == SKIPPED ? zero : bad;
            if (c.has(first, e, p.n)) *to = a;
        }
    }
}

/* ---- add --------------------------------------------------------------------------------------------------------- */

/* Adds what the lanes have to sums[k], group after group and in the order of the lanes, of k in low … high - 1. Who
 * meets whom is found for all groups before the first is added. */
template <class A> TN_DEVICE void add_groups(A *sums, const int (&k)[ITEMS], const A (&a)[ITEMS], int low, int high) {
    const u32 lane = threadIdx.x % 32;
    u32 turn[ITEMS]; /* how many before this one have the same k */
    bool mine[ITEMS];
#pragma unroll
    for (int e = 0; e < ITEMS; e++) {
        mine[e] = k[e] >= low && k[e] < high;
        const u32 alike = __match_any_sync(0xffffffffu, mine[e] ? (u32)k[e] : 0x80000000u | lane);
        turn[e] = __popc(alike & ((1u << lane) - 1));
    }
#pragma unroll
    for (int e = 0; e < ITEMS; e++) {
        u32 more = __ballot_sync(0xffffffffu, turn[e] > 0);
        if (mine[e] && turn[e] == 0) sums[k[e]] += a[e];
        __syncwarp();
        for (u32 round = 1; more; round++) {
            if (mine[e] && turn[e] == round) sums[k[e]] += a[e];
            __syncwarp();
            more = __ballot_sync(0xffffffffu, turn[e] > round);
        }
    }
}

/* Values as they are in memory. */
template <class T> TN_DEVICE void load_values(const tni_columns &p, const column &c, i64 first, T (&a)[ITEMS]) {
    const T *from = (const T *)p.from + (c.o * p.n + first) * p.inner + c.i;
#pragma unroll
    for (int e = 0; e < ITEMS; e++, from += c.slots * p.inner)
        if (c.has(first, e, p.n)) a[e] = *from;
}

/* Shared memory: sums (width, v), then what waits to be added, (width, 32 * ways * ITEMS), then its k. Each column has
 * `ways` warps, of which each adds to a part of the k, so that sums are in the order of j. Where the threads that read
 * a column are not the one warp that adds to it, they pass on what they read; meanwhile the next is under way. */
template <class T> TN_DEVICE void add_columns(const tni_columns &p) {
    extern __shared__ double memory[];
    const column c(p);
    const i64 v = p.index.v;
    const int pitch = column_pitch(v, p.width), room = waiting_pitch(p.ways, p.width);
    acc<T> *sums = (acc<T> *)memory, *waiting = sums + p.width * pitch;
    int *waiting_k = (int *)(waiting + p.width * room);
    const i64 here = (c.o * v + c.slot) * p.inner + c.i, step = c.slots * p.inner;
    const T *base = (const T *)p.base + here;
    T *to = (T *)p.to + here;
    indices next;
    T next_a[ITEMS] = {};
    next.load(p, c, c.slot);
    load_values(p, c, c.slot, next_a);
    for (i64 first = c.slot; first < v; first += c.slots * ITEMS) {
        T b[ITEMS] = {};
#pragma unroll
        for (int e = 0; e < ITEMS; e++, base += step)
            if (p.base && c.has(first, e, v)) b[e] = *base;
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (c.has(first, e, v)) sums[c.which * pitch + first + e * c.slots] = widen(b[e]);
    }
    __syncthreads();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = warp / p.ways, way = warp % p.ways;
    const int low = (int)(way * v / p.ways), high = (int)((way + 1) * v / p.ways);
    const bool passed_on = p.ways > 1 || (p.across && p.width > 1);
    for (i64 first = 0; first < p.n; first += c.slots * ITEMS) {
        int k[ITEMS];
        acc<T> a[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
            k[e] = c.has(first + c.slot, e, p.n) ? next.at(p, e) : SKIPPED;
            a[e] = widen(next_a[e]);
        }
        if (passed_on) {
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                waiting[c.which * room + c.slot + e * c.slots] = a[e];
                waiting_k[c.which * room + c.slot + e * c.slots] = k[e];
            }
            __syncthreads();
        }
        next.load(p, c, first + c.slot + c.slots * ITEMS);
        load_values(p, c, first + c.slot + c.slots * ITEMS, next_a);
        for (int part = 0; part < p.ways; part++) {
            if (passed_on) {
#pragma unroll
                for (int e = 0; e < ITEMS; e++) {
                    const int at = own * room + (part * ITEMS + e) * 32 + lane;
                    a[e] = waiting[at];
                    k[e] = waiting_k[at];
                }
            }
            add_groups(sums + own * pitch, k, a, low, high);
        }
        if (passed_on) __syncthreads();
    }
    __syncthreads();
    if (!c.there) return;
    for (i64 k = c.slot; k < v; k += c.slots, to += step) narrow(sums[c.which * pitch + k], *to);
}

#define TAKE(name, U) \
    TN_ROW_KERNEL(lookup_take_columns_##name, TNI_COLUMN_TAKE_THREADS, 3, tni_columns, take_columns<U>(p))
TAKE(1, u8)
TAKE(2, u16)
TAKE(4, u32)
TAKE(8, u64)

#define ADD(T, name) \
    TN_KERNEL(lookup_add_columns_##name, 32 * TNI_COLUMN_WARPS, (TN_PARAMS(tni_columns)), add_columns<T>(p))
TN_FOR_TYPES(ADD)
