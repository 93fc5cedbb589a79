/* take of elements that have an index each, by columns in shared memory.
 *
 * A block has some columns. Where they are neighbours in memory, so are its threads: each row of the tensors is read
 * and written in pieces as wide as the block has columns, and what an index leads to is in shared memory. */
#include "lookup_columns.cuh"

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
    const i64 v = p.index.v, step = c.slots * p.by_v;
    index_tile<ITEMS> next(p, c, c.slot, p.n);
    next.load(p);
    const U *from = (const U *)p.from + c.o * p.by_outer + c.slot * p.by_v + c.i;
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
    const U *table = copy_row((const U *)p.from + c.o * p.by_outer, p.index.v);
    take_from(p, c, next, table, 1, begin + c.slot, end);
}

#define TAKE(name, U)                                                                                      \
    TN_ROW_KERNEL(lookup_take_columns_##name, TNI_COLUMN_TAKE_THREADS, 3, tni_columns, take_columns<U>(p)) \
    TN_KERNEL(lookup_take_row_##name, TNI_ROW_TAKE_THREADS, (TN_PARAMS(tni_columns)), take_row<U>(p))
TAKE(1, u8)
TAKE(2, u16)
TAKE(4, u32)
TAKE(8, u64)
