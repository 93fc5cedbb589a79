/* Rows that begin anywhere, written 16 bytes at a time. A thread has a chunk: 16 bytes at a multiple of 16 in the
 * result's memory, or as much of them as the row has. Where the elements of a chunk follow each other in the operand,
 * they are read with two aligned loads at most, which are shifted into place.
 *
 * Chunks whose elements do not, as at the ends of rows, take many times as long. Nearly every warp has one, so a block
 * does all others first and then those, side by side in as few warps as they fill. Where rows are long there are few of
 * them, and a warp has a part of one row: what is to be known of the row is found out once (write_chunks). */
#pragma once

#include "walk.cuh"

enum {
    TNI_CHUNK_THREADS = 256,
    TNI_CHUNK_ITEMS = 2,  /* of a thread: that many are under way at once */
    TNI_LONG_CHUNKS = 64, /* of a row that is long */
    TNI_LONG_ITEMS = 8,   /* of a thread, of such a row, at most; half of them under way at once */
};

#ifdef __CUDACC__
#define TNI_CHUNK_FUNCTION TN_DEVICE
#else
#define TNI_CHUNK_FUNCTION static inline
#endif

/* Chunks of a row of n elements of `size` bytes: one more than it fills where rows begin anywhere. */
TNI_CHUNK_FUNCTION long long chunks_of(long long n, long long size, int aligned) {
    return ((aligned ? n * size : n * size + 16 - size) + 15) / 16;
}

/* All chunks of the rows of a result. */
typedef struct tni_chunks {
    void *to;
    const void *low, *high;   /* the operand's memory, beyond which nothing is read */
    long long count, per_row; /* chunks: of all rows, of one; where rows are long, count is of parts */
    long long size;           /* elements of a row */
    long long elements;       /* of all rows, where they follow each other: a chunk may have the end of one and the
                                 beginning of the next. 0: they do not */
    long long parts;          /* of a row that is long, a warp's each; 0: rows are not */
    long long rows;           /* warps have the same part of so many rows before the next one; 0: row after row */
    int items;                /* chunks of a thread of such a part */
    tni_divisor
        divisor;  /* by `rows`, else by `parts`; else by `size` where rows follow each other, else by `per_row` */
    int is_short; /* count < 2^31: the divisor serves */
} tni_chunks;

#ifdef __CUDACC__

/* Which elements of a row a chunk has. */
template <class U> struct chunk {
    static constexpr int V = 16 / (int)sizeof(U);
    U *to;           /* where its first element would be */
    i64 first;       /* which that is: negative where the chunk begins before the row */
    int begin, past; /* those of its elements that the row has; none where begin >= past */
    words a, b;
    u32 shift;
    bool reads; /* they follow each other in the operand, and were read */

    /* Chunk c of a row of n elements at `row`. */
    TN_MEMBER void place(U *row, i64 n, i64 c) {
        const int lead = (int)(((u64)row & 15) / sizeof(U));
        first = c * V - lead;
        to = row + first;
        begin = first < 0 ? lead : 0;
        past = (int)min(n - first, (i64)V);
    }
    TN_MEMBER bool is_whole() const {
        return begin == 0 && past == V;
    }

    /* Elements from `from` on, if `there`: they are read in whole lines of 16 bytes, which must lie between low and
     * high. */
    TN_MEMBER void read(const U *from, const void *low, const void *high, bool there) {
        shift = (u32)((u64)from & 15);
        const char *line = (const char *)from - shift;
        reads = there && line >= (const char *)low && line + (shift ? 32 : 16) <= (const char *)high;
        a = load_words_if(line, reads);
        b = load_words_if(line + 16, reads && shift);
    }

    /* Writes what was read, or else the elements that the row has one by one: *get.at(e), or get.outside() where that
     * is null. at() is asked for one e after the other, and for several of them before the first of those is read: so
     * their reads are under way at once. */
    template <class Get> TN_MEMBER void write(Get &get) {
        if (reads) {
            store_words(to, shift ? shift_words(a, b, shift) : a);
        } else if (begin < past) {
            write_each(get);
        }
    }

  private:
    TN_MEMBER bool has(int e) const {
        return e >= begin && e < past;
    }
    template <class Get> TN_MEMBER void write_each(Get &get) {
        constexpr int TOGETHER = V < 8 ? V : 8;
        union {
            U v[V];
            words w;
        } r;
#pragma unroll
        for (int group = 0; group < V; group += TOGETHER) {
            const U *at[TOGETHER];
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) at[e] = has(group + e) ? get.at(group + e) : nullptr;
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) r.v[group + e] = at[e] ? *at[e] : get.outside();
        }
        if (is_whole()) {
            store_words(to, r.w);
            return;
        }
#pragma unroll
        for (int e = 0; e < V; e++)
            if (has(e)) to[e] = r.v[e];
    }
};

/* Elements that follow each other, for chunk::write. */
template <class U> struct in_a_row {
    const U *from; /* element 0 of the chunk */
    TN_MEMBER const U *at(int e) const {
        return from + e;
    }
    TN_MEMBER U outside() const {
        return U{};
    }
};

/* ---- all chunks of a result -------------------------------------------------------------------------------------- */

/* Where elements of rows come from is said by a Rows<U>:
 *     bool find(u64 row, i64 &to)   goes to a row, which begins at element `to`; false: all of it lies outside
 *     const U *whole(i64 col, int n) elements col … col + n - 1 if they follow each other, else null
 *     bool is_outside(i64 col, int n) all of them lie outside
 *     void start(i64 col)           goes to an element of the row
 *     const U *next()               that element; the next call has the next one. Null: it lies outside
 *     U outside()                   what lies there */

/* Those of rows that lie in memory as they are, of which `row` is one. */
template <class U> struct memory_rows {
    const U *row, *here;

    TN_MEMBER const U *whole(i64 col, int) const {
        return row + col;
    }
    TN_MEMBER bool is_outside(i64, int) const {
        return false;
    }
    TN_MEMBER void start(i64 col) {
        here = row + col;
    }
    TN_MEMBER const U *next() {
        return here++;
    }
};

template <class U> struct placed {
    chunk<U> it; /* it.first: of which element of row `row` the chunk begins with */
    u64 row;
    bool inside;

    template <class Rows> TN_MEMBER void place(const tni_chunks &p, u64 i, Rows &rows) {
        constexpr int V = chunk<U>::V;
        i64 to;
        if (p.elements) {
            const int lead = (int)(((u64)p.to & 15) / sizeof(U));
            const i64 at = (i64)i * V - lead;
            row = at < 0 ? 0 : quotient((u32)at, p.divisor);
            inside = rows.find(row, to);
            it.to = (U *)p.to + at;
            it.first = at - (i64)row * p.size;
            it.begin = at < 0 ? lead : 0;
            it.past = (int)min(p.elements - at, (i64)V);
        } else {
            row = p.is_short ? quotient((u32)i, p.divisor) : i / (u64)p.per_row;
            inside = rows.find(row, to);
            it.place((U *)p.to + to, p.size, (i64)(i - row * (u64)p.per_row));
        }
    }
};

/* A chunk with elements of several rows, or that do not follow each other: one row after the other. */
template <class U, class Rows> TN_DEVICE void write_apart(const tni_chunks &p, u64 i, Rows rows) {
    constexpr int V = chunk<U>::V, TOGETHER = V < 8 ? V : 8;
    placed<U> c;
    c.place(p, i, rows);
    const int begin = c.it.begin, past = c.it.past;
    union {
        U v[V];
        words w;
    } r;
    i64 col = c.it.first + begin;
#pragma unroll 1
    for (int from = begin; from < past;) {
        const int end = (int)min((i64)past, from + p.size - col);
        rows.start(col);
#pragma unroll
        for (int group = 0; group < V; group += TOGETHER) {
            const U *at[TOGETHER];
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) {
                const bool mine = group + e >= from && group + e < end;
                at[e] = mine && c.inside ? rows.next() : nullptr;
            }
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) {
                if (group + e >= from && group + e < end) r.v[group + e] = at[e] ? *at[e] : rows.outside();
            }
        }
        from = end;
        col = 0;
        i64 to;
        if (from < past) c.inside = rows.find(++c.row, to);
    }
    if (begin == 0 && past == V) {
        store_words(c.it.to, r.w);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++)
        if (e >= begin && e < past) c.it.to[e] = r.v[e];
}

/* Elements of a chunk of a row at `begin`, one by one. */
template <class U, class Rows> TN_DEVICE void write_some(U *begin, i64 first, i64 size, bool inside, Rows &rows) {
    const i64 end = min(first + chunk<U>::V, size);
    i64 at = max(first, (i64)0);
    rows.start(at);
#pragma unroll 1
    for (; at < end; at++) {
        const U *from = inside ? rows.next() : nullptr;
        begin[at] = from ? *from : rows.outside();
    }
}

template <class U, class Rows> TN_DEVICE words outside_words(Rows &rows) {
    union {
        U v[chunk<U>::V];
        words w;
    } r;
#pragma unroll
    for (int i = 0; i < chunk<U>::V; i++) r.v[i] = rows.outside();
    return r.w;
}

/* A part of a row, by a warp. */
template <class U, class Rows> TN_DEVICE void write_part(const tni_chunks &p, Rows rows) {
    constexpr int V = chunk<U>::V, AT_ONCE = TNI_LONG_ITEMS / 2;
    const u64 part = ((u64)blockIdx.x * TNI_CHUNK_THREADS + threadIdx.x) / 32;
    if (part >= (u64)p.count) return;
    const u64 by = (u64)(p.rows ? p.rows : p.parts), group = p.is_short ? quotient((u32)part, p.divisor) : part / by;
    const u64 rest = part - group * by, row = p.rows ? rest : group, place = p.rows ? group : rest;
    i64 to;
    const bool inside = rows.find(row, to);
    U *const begin = (U *)p.to + to;
    const i64 number = (i64)place * 32 * p.items + threadIdx.x % 32;
    i64 first = number * V - (i64)(((u64)begin & 15) / sizeof(U));
    for (int k = 0; k < p.items && first < p.size; k += AT_ONCE) {
        chunk<U> mine[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const i64 at = first + i * 32 * V;
            const bool whole = inside && k + i < p.items && at >= 0 && at + V <= p.size;
            const U *from = whole ? rows.whole(at, V) : nullptr;
            mine[i].read(from, p.low, p.high, from != nullptr);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++, first += 32 * V) {
            if (k + i >= p.items) break; /* the next warp has it */
            const chunk<U> &c = mine[i];
            const bool whole = first >= 0 && first + V <= p.size;
            if (c.reads)
                store_words(begin + first, c.shift ? shift_words(c.a, c.b, c.shift) : c.a);
            else if (whole && (!inside || rows.is_outside(first, V)))
                store_words(begin + first, outside_words<U>(rows));
            else if (first < p.size)
                write_some(begin, first, p.size, inside, rows);
        }
    }
}

/* A thread has two chunks, a block's threads apart; those that are not read at once come last. */
template <class U, class Rows> TN_DEVICE void write_short(const tni_chunks &p, Rows rows) {
    constexpr int ITEMS = TNI_CHUNK_ITEMS, V = chunk<U>::V;
    __shared__ u32 count;
    __shared__ u16 late[TNI_CHUNK_THREADS * ITEMS]; /* in any order: each is written once */
    const u64 base = (u64)blockIdx.x * (ITEMS * TNI_CHUNK_THREADS);
    placed<U> mine[ITEMS];
    bool there[ITEMS], outside[ITEMS];
    if (threadIdx.x == 0) count = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const u64 i = base + k * TNI_CHUNK_THREADS + threadIdx.x;
        there[k] = i < (u64)p.count;
        mine[k].it.reads = false;
        if (!there[k]) continue;
        mine[k].place(p, i, rows);
        const i64 first = mine[k].it.first;
        const bool whole = mine[k].it.is_whole() && first >= 0 && first + V <= p.size;
        const U *from = whole && mine[k].inside ? rows.whole(first, V) : nullptr;
        outside[k] = whole && (!mine[k].inside || rows.is_outside(first, V));
        mine[k].it.read(from, p.low, p.high, from != nullptr);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const chunk<U> &c = mine[k].it;
        if (c.reads)
            store_words(c.to, c.shift ? shift_words(c.a, c.b, c.shift) : c.a);
        else if (there[k] && outside[k])
            store_words(c.to, outside_words<U>(rows));
        else if (there[k] && c.begin < c.past)
            late[atomicAdd(&count, 1u)] = (u16)(k * TNI_CHUNK_THREADS + threadIdx.x);
    }
    __syncthreads();
    for (u32 q = threadIdx.x; q < count; q += TNI_CHUNK_THREADS) write_apart<U>(p, base + late[q], rows);
}

template <class U, class Rows> TN_DEVICE void write_chunks(const tni_chunks &p, Rows rows) {
    if (p.parts)
        write_part<U>(p, rows);
    else
        write_short<U>(p, rows);
}

#endif
