/* take and add of elements that have an index each, by columns in shared memory. A column is what lies along the axis
 * at one (o, i).
 *
 * A block has some columns. Where they are neighbours in memory, so are its threads: each row of the tensors is read
 * and written in pieces as wide as the block has columns, and what an index leads to is in shared memory. */
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

/* ---- take -------------------------------------------------------------------------------------------------------- */

/* Takes from a column in shared memory, whose elements are `apart`, what the indices lead to, from j on and up to n. */
template <int ITEMS, class U>
TN_DEVICE void take_from(const tni_columns &p, const column &c, index_tile<ITEMS> &next, const U *table, int apart,
                         i64 j, i64 n) {
    const U zero = {}, bad = bytes_of<U>(p.bad);
    const i64 step = c.slots * p.inner;
    U *to = (U *)p.to + (c.o * p.n + j) * p.inner + c.i;
    for (; j < n; j += ITEMS * c.slots) {
        int k[ITEMS];
        bool has[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
            k[e] = next.at(p, e);
            has[e] = next.has(e);
        }
        next.go_on();
        next.load(p);
#pragma unroll
        for (int e = 0; e < ITEMS; e++, to += step) {
            const U a = k[e] >= 0 ? table[k[e] * apart] : k[e] == SKIPPED ? zero : bad;
            if (has[e]) *to = a;
        }
    }
}

/* Columns that are neighbours. Shared memory: (v, width). */
template <class U> TN_DEVICE void take_columns(const tni_columns &p) {
    constexpr int ITEMS = TNI_COLUMN_TAKE_ITEMS;
    const column c(p, blockIdx.x);
    U *table = (U *)dynamic_shared() + c.which;
    const i64 v = p.index.v, step = c.slots * p.inner;
    index_tile<ITEMS> next(p, c, c.slot, p.n);
    next.load(p);
    const U *from = (const U *)p.from + (c.o * v + c.slot) * p.inner + c.i;
    for (i64 first = c.slot; first < v; first += c.slots * ITEMS) {
        U a[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++, from += step) a[e] = c.has(first, e, v) ? *from : U{};
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (c.has(first, e, v)) table[(first + e * c.slots) * p.width] = a[e];
    }
    __syncthreads();
    take_from(p, c, next, table, p.width, c.slot, p.n);
}

/* A row of n elements into shared memory, where it lies as it does within 16 bytes. Returns its place. */
template <class U> TN_DEVICE const U *copy_row(const U *row, i64 n) {
    constexpr int V = 16 / (int)sizeof(U);
    const int lead = (int)(((u64)row & 15) / sizeof(U));
    words *const lines = dynamic_shared();
    const i64 past = (lead + n) / V; /* the first line that is not whole */
    for (i64 i = (lead > 0) + threadIdx.x; i < past; i += blockDim.x) {
        const U *from = row - lead + i * V;
        if constexpr (TN_COPY_ASYNC)
            copy_async(lines + i, from, true);
        else
            lines[i] = load_words_if(from, true);
    }
    U *const copy = (U *)lines + lead;
    const int t = (int)threadIdx.x;
    const i64 last = max(past * V - lead, (i64)0) + t; /* of what is behind the whole lines */
    if (t < V && t < n && lead > 0 && t < V - lead) copy[t] = row[t];
    if (t < V && last < n) copy[last] = row[last];
    copy_wait();
    __syncthreads();
    return copy;
}

/* A column along which memory goes: a block has all of it in shared memory, and a part of the indices. A gather out of
 * memory would take a line of the first-level cache for each element. */
template <class U> TN_DEVICE void take_row(const tni_columns &p) {
    const u32 group = blockIdx.x / (u32)p.parts;
    const i64 begin = (i64)(blockIdx.x - group * p.parts) * p.range, end = min(begin + p.range, p.n);
    const column c(p, group);
    index_tile<TNI_ROW_TAKE_ITEMS> next(p, c, begin + c.slot, end);
    next.load(p);
    const U *table = copy_row((const U *)p.from + c.o * p.index.v, p.index.v);
    take_from(p, c, next, table, 1, begin + c.slot, end);
}

/* ---- add --------------------------------------------------------------------------------------------------------- */

/* A tile of what is added to a column. */
template <class T> struct terms {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS };
    index_tile<ITEMS> index;
    const T *from;
    i64 step;
    T a[ITEMS];

    TN_MEMBER terms(const tni_columns &p, const column &c) : index(p, c, c.slot, p.n) {
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

/* Where the terms of a tile are added, and by whom. Threads claim places: in each round, of those that want the same
 * one, the first along the axis has it. A claim is a number of 32 bits, the round's in front, the term's behind it, of
 * which the lowest stays; rounds count down, so that claims of earlier rounds need not be cleared. Rounds take turns
 * with two tables of claims, for then one barrier is enough: who still reads one table meets nobody who writes it.
 * Places whose numbers differ by a multiple of the table share a claim, which costs a round and changes no sum. */
template <class A> struct places {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS, TERM_BITS = 12, ROUNDS = 1 << (32 - TERM_BITS), MANY_ROUNDS = 8 };
    static_assert(TNI_COLUMN_ADD_THREADS * TNI_COLUMN_ADD_ITEMS <= 1 << TERM_BITS, "a claim has room for each term");
    A *sums;
    u32 *claims; /* (2, table + 32): the last 32 are for terms that want nothing, one for each lane */
    u32 table, round;

    TN_MEMBER places(const tni_columns &p, A *sums, int count)
        : sums(sums), claims((u32 *)(sums + count)), table((u32)p.table) {
        clear();
    }
    TN_MEMBER void clear() {
        for (u32 i = threadIdx.x; i < 2 * (table + 32); i += blockDim.x) claims[i] = ~0u;
        round = ROUNDS - 1;
    }
    /* For as many rounds as a tile can take. */
    TN_MEMBER void make_room() {
        if (round > ITEMS * TNI_COLUMN_ADD_THREADS) return;
        __syncthreads();
        clear();
        __syncthreads();
    }

    /* Adds what the lanes have to their places, in the order of the lanes. */
    TN_MEMBER void add_group(bool mine, u32 place, A a) {
        const u32 lane = threadIdx.x % 32, alike = __match_any_sync(0xffffffffu, mine ? place : ~lane);
        u32 left = mine ? alike : 0;
        A sum = mine ? sums[place] : A{};
        __syncwarp();
        while (__any_sync(0xffffffffu, left != 0)) { /* all that are alike have the same sum */
            const A next = __shfl_sync(0xffffffffu, a, left ? __ffs((int)left) - 1 : 0);
            if (left) sum += next;
            left &= left - 1;
        }
        if (mine && lane == (u32)__ffs((int)alike) - 1) sums[place] = sum;
        __syncwarp();
    }
    /* Where very many want the same: one warp after the other. */
    TN_MEMBER void add_in_turns(u32 waiting, const u32 (&place)[ITEMS], const A (&a)[ITEMS]) {
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
#pragma unroll 1
            for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
                __syncthreads();
                if (threadIdx.x / 32 == warp) add_group(waiting >> e & 1, place[e], a[e]);
            }
        }
    }
    /* Adds a[e] at place[e] of those that `waiting` has a bit for; the terms of a thread are `step` apart. */
    TN_MEMBER void add(u32 waiting, const u32 (&place)[ITEMS], const A (&a)[ITEMS], u32 term, u32 step) {
        const u32 none = table + threadIdx.x % 32;
        u32 want[ITEMS];
        make_room();
#pragma unroll
        for (int e = 0; e < ITEMS; e++) want[e] = waiting >> e & 1 ? place[e] & (table - 1) : none;
#pragma unroll 1
        for (int rounds = 0;; rounds++, round--) {
            u32 *const claim = claims + (round & 1) * (table + 32);
            const u32 mine = round << TERM_BITS | term;
            if (waiting) {
#pragma unroll
                for (int e = 0; e < ITEMS; e++) atomicMin(&claim[want[e]], mine + e * step);
            }
            const int threads = __syncthreads_count(waiting != 0);
            if (threads == 0) return;
            if (rounds == MANY_ROUNDS && 2 * threads > (int)blockDim.x) {
                round--;
                return add_in_turns(waiting, place, a);
            }
            if (!waiting) continue;
            u32 found[ITEMS];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) found[e] = claim[want[e]];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                const bool has = found[e] == mine + e * step && (waiting >> e & 1);
                if (has) sums[place[e]] += a[e];
                want[e] = has ? none : want[e];
                waiting &= ~((u32)has << e);
            }
        }
    }
};

/* What the sums of a column begin with, `slots` apart: what base has, or 0. */
template <class T> TN_DEVICE void fill_sums(acc<T> *sums, const T *base, i64 step, const column &c, int range) {
    constexpr int ITEMS = sizeof(T) == 2 ? 16 : 8; /* bytes under way */
    const int given = base ? range : 0;
    for (int first = c.slot; first < range; first += c.slots * ITEMS) {
        T b[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++, base += step) b[e] = first + e * c.slots < given ? *base : T{};
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (first + e * c.slots < range) sums[first + e * c.slots] = widen(b[e]);
    }
}

/* A block has some columns, and of those the k from `low` on. Their sums are in shared memory: (width, pitch). Each is
 * added to in the order of j, and each element of `to` is written once. The next tile is under way while one is added.
 */
template <class T> TN_DEVICE void add_columns(const tni_columns &p) {
    enum { ITEMS = TNI_COLUMN_ADD_ITEMS };
    const u32 group = blockIdx.x / (u32)p.parts, low = (blockIdx.x - group * p.parts) * (u32)p.range;
    const column c(p, group);
    const int range = c.there ? min(p.range, (int)(p.index.v - low)) : 0, pitch = column_pitch(p.range, p.width);
    const i64 here = (c.o * p.index.v + low + c.slot) * p.inner + c.i, step = c.slots * p.inner;
    const u32 begin = c.which * pitch;
    terms<T> next(p, c);
    places<acc<T>> to_add(p, (acc<T> *)dynamic_shared(), p.width * pitch);
    next.load(p);
    fill_sums<T>(to_add.sums + begin, p.base ? (const T *)p.base + here : nullptr, step, c, range);
    __syncthreads();
#pragma unroll 1
    for (int first = 0; first < (int)p.n; first += c.slots * ITEMS) {
        u32 place[ITEMS], waiting = 0;
        acc<T> a[ITEMS];
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
            const u32 k = next.index.low[e], behind = k - low;
            const bool mine = next.index.high[e] == 0 && k != (u32)p.index.skipped && behind < (u32)range;
            waiting |= (u32)mine << e;
            place[e] = begin + behind;
            a[e] = widen(next.a[e]);
        }
        next.load(p);
        to_add.add(waiting, place, a, (u32)c.slot, (u32)c.slots);
    }
    __syncthreads();
    T *to = (T *)p.to + here;
#pragma unroll 4
    for (int k = c.slot; k < range; k += c.slots, to += step) narrow(to_add.sums[begin + k], *to);
}

#define TAKE(name, U)                                                                                      \
    TN_ROW_KERNEL(lookup_take_columns_##name, TNI_COLUMN_TAKE_THREADS, 3, tni_columns, take_columns<U>(p)) \
    TN_KERNEL(lookup_take_row_##name, TNI_ROW_TAKE_THREADS, (TN_PARAMS(tni_columns)), take_row<U>(p))
TAKE(1, u8)
TAKE(2, u16)
TAKE(4, u32)
TAKE(8, u64)

#define ADD(T, name) \
    TN_KERNEL(lookup_add_columns_##name, TNI_COLUMN_ADD_THREADS, (TN_PARAMS(tni_columns)), add_columns<T>(p))
TN_FOR_TYPES(ADD)
