/* Columns, and the indices along them: what take and add of elements that have an index each share. A column is what
 * lies along the axis at one (o, i). */
#pragma once

#include "lookup.cuh"

/* A thread's column, and which of the threads that have it this one is. */
struct column {
    i64 o, i;
    int which; /* of the block's */
    int slot, slots;
    bool there;

    TN_MEMBER column(const tni_columns &p, u32 group) {
        const int t = (int)threadIdx.x;
        slots = (int)blockDim.x / p.width;
        which = p.across ? t % p.width : t / slots;
        slot = p.across ? t / p.width : t % slots;
        const i64 number = (i64)group * p.width + which;
        there = number < p.count;
        o = divide(number, p.by_inner);
        i = number - o * p.inner;
    }
    /* Element e of those that this thread has from `first` on is there, of n along the axis. */
    TN_MEMBER bool has(i64 first, int e, i64 n) const {
        return there && first + e * slots < n;
    }
};

/* Indices of a column, every `slots`-th of them, ITEMS at a time and as they are in memory: that they are used later
 * keeps all of them under way. */
template <int ITEMS> struct index_tile {
    const char *next;
    i64 step;
    int left, slots; /* of the column's, from this thread's next one on */
    u32 low[ITEMS], high[ITEMS];

    /* From j on, up to n. */
    TN_MEMBER index_tile(const tni_columns &p, const column &c, i64 j, i64 n)
        : left(c.there ? (int)(n - j) : 0), slots(c.slots) {
        const i64 size = p.index.wide ? 8 : 4, first = c.o * p.index.by_outer + c.i * p.index.by_inner;
        next = (const char *)p.index.data + (first + j * p.index.by_n) * size;
        step = slots * p.index.by_n * size;
    }
    TN_MEMBER bool has(int e) const {
        return e * slots < left;
    }
    /* Those that `has` speaks of. Where there is none, it is -1. */
    TN_MEMBER void load(const tni_columns &p) {
        if (p.index.wide) {
#pragma unroll
            for (int e = 0; e < ITEMS; e++, next += step) {
                const u64 k = has(e) ? *(const u64 *)next : ~0ull;
                low[e] = (u32)k;
                high[e] = (u32)(k >> 32);
            }
        } else {
#pragma unroll
            for (int e = 0; e < ITEMS; e++, next += step) {
                low[e] = has(e) ? *(const u32 *)next : ~0u;
                high[e] = (u32)((int)low[e] >> 31);
            }
        }
    }
    TN_MEMBER void go_on() {
        left -= ITEMS * slots;
    }
    TN_MEMBER int at(const tni_columns &p, int e) const {
        return (int)check_index(p.index, (i64)((u64)high[e] << 32 | low[e]));
    }
};

/* ---- add --------------------------------------------------------------------------------------------------------- */

/* A tile of what is added to a column. */
template <class T> struct column_tile {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS };
    index_tile<ITEMS> index;
    const T *from;
    i64 step;
    T a[ITEMS];

    TN_MEMBER column_tile(const tni_columns &p, const column &c) : index(p, c, c.slot, p.n) {
        from = (const T *)p.from + (c.o * p.n + c.slot) * p.inner + c.i;
        step = c.slots * p.inner;
    }
    /* The next one. */
    TN_MEMBER void load(const tni_columns &p) {
        index.load(p);
#pragma unroll
        for (int e = 0; e < ITEMS; e++, from += step) a[e] = index.has(e) ? *from : T{};
        index.go_on();
    }
};

/* What the sums of `range` places begin with, every `slots`-th from `slot` on: what base has, or 0. */
template <class T> TN_DEVICE void fill_sums(acc<T> *sums, const T *base, i64 step, int slot, int slots, int range) {
    constexpr int TOGETHER = sizeof(T) == 2 ? 16 : 8; /* bytes under way */
    const int given = base ? range : 0;
    for (int first = slot; first < range; first += slots * TOGETHER) {
        T b[TOGETHER];
#pragma unroll
        for (int e = 0; e < TOGETHER; e++, base += step) b[e] = first + e * slots < given ? *base : T{};
#pragma unroll
        for (int e = 0; e < TOGETHER; e++)
            if (first + e * slots < range) sums[first + e * slots] = widen(b[e]);
    }
}
