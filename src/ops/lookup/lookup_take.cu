/* take: to[o, j, i] = from[o, index[o, j, i], i].
 *
 * Warps have parts of long rows, in chunks of 16 bytes that lie anywhere (chunk.cuh). Of short ones threads have pieces
 * of 16 bytes, or as many as divide a row; those of a thread are a block apart, so that neighbours
 * write neighbours. All of them are under way before the first is written. */
#include "lookup.cuh"

/* ---- long rows with an index each -------------------------------------------------------------------------------- */

/* The rows of the result, for write_chunks. */
template <class U> struct taken_rows : memory_rows<U> {
    const tni_take &p;
    bool skipped;

    TN_MEMBER taken_rows(const tni_take &p) : p(p) {
    }
    TN_MEMBER bool find(u64 number, i64 &to) {
        const i64 o = divide((i64)number, p.n), k = find_index(p.index, o, (i64)number - o * p.n.by, 0);
        to = (i64)number * p.chunks.size;
        this->row = (const U *)p.from + o * p.by_outer + k * p.by_v;
        skipped = k == SKIPPED;
        return k >= 0;
    }
    TN_MEMBER U outside() const {
        const U zero = {};
        return skipped ? zero : bytes_of<U>(p.bad);
    }
};

/* ---- short ones -------------------------------------------------------------------------------------------------- */

template <class U> TN_DEVICE void take_pieces(const tni_take &p) {
    const i64 first = (i64)blockIdx.x * (TNI_TAKE_THREADS * TNI_TAKE_ITEMS) + threadIdx.x;
    const U *from = (const U *)p.from;
    i64 k[TNI_TAKE_ITEMS], at[TNI_TAKE_ITEMS];
    U piece[TNI_TAKE_ITEMS];
#pragma unroll
    for (int e = 0; e < TNI_TAKE_ITEMS; e++) {
        const i64 i = first + e * TNI_TAKE_THREADS;
        if (i >= p.count) continue;
        const i64 row = divide(i, p.pieces), c = i - row * p.pieces.by, o = divide(row, p.n);
        k[e] = find_index(p.index, o, row - o * p.n.by, c);
        at[e] = o * p.by_outer + k[e] * p.by_v + c;
    }
#pragma unroll
    for (int e = 0; e < TNI_TAKE_ITEMS; e++) {
        if (first + e * TNI_TAKE_THREADS >= p.count) continue;
        const unsigned zero[4] = {0, 0, 0, 0};
        piece[e] = k[e] >= 0 ? from[at[e]] : k[e] == SKIPPED ? bytes_of<U>(zero) : bytes_of<U>(p.bad);
    }
#pragma unroll
    for (int e = 0; e < TNI_TAKE_ITEMS; e++) {
        const i64 i = first + e * TNI_TAKE_THREADS;
        if (i < p.count) ((U *)p.to)[i] = piece[e];
    }
}

/* ---- elements with an index each --------------------------------------------------------------------------------- */

/* The same of elements, where the index lies as the result does: four at a time, which share an
 * o, and of which all or none follow each other behind the axis. So a thread divides once for four of them, and reads
 * their indices and writes them at once. */
template <class U> struct alignas(sizeof(U) < 4 ? 4 * sizeof(U) : 16) four { U v[4]; };

TN_DEVICE four<i64> load_indices(const tni_index &x, i64 at) {
    if (x.wide) return *(const four<i64> *)((const i64 *)x.data + at);
    const four<int> k = *(const four<int> *)((const int *)x.data + at);
    return four<i64>{{k.v[0], k.v[1], k.v[2], k.v[3]}};
}

template <class U> TN_DEVICE void take_fours(const tni_take &p) {
    const i64 first = ((i64)blockIdx.x * (TNI_TAKE_THREADS * TNI_TAKE_FOURS) + threadIdx.x) * 4;
    const U *from = (const U *)p.from;
    const U zero = {}, bad = bytes_of<U>(p.bad);
    i64 at[TNI_TAKE_FOURS][4]; /* in `from`, or why not there */
#pragma unroll
    for (int e = 0; e < TNI_TAKE_FOURS; e++) {
        const i64 i = first + e * (TNI_TAKE_THREADS * 4);
        if (i >= p.count) continue;
        const i64 o = divide(i, p.slab), rest = i - o * p.slab.by, inner = p.pieces.by;
        const i64 c = inner == 1 ? 0 : rest - divide(rest, p.pieces) * inner;
        const four<i64> k = load_indices(p.index, i);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const i64 found = check_index(p.index, k.v[w]);
            at[e][w] = found < 0 ? found : o * p.by_outer + found * p.by_v + c + (inner == 1 ? 0 : w);
        }
    }
    four<U> a[TNI_TAKE_FOURS];
#pragma unroll
    for (int e = 0; e < TNI_TAKE_FOURS; e++) {
        if (first + e * (TNI_TAKE_THREADS * 4) >= p.count) continue;
#pragma unroll
        for (int w = 0; w < 4; w++) a[e].v[w] = at[e][w] >= 0 ? from[at[e][w]] : at[e][w] == SKIPPED ? zero : bad;
    }
#pragma unroll
    for (int e = 0; e < TNI_TAKE_FOURS; e++) {
        const i64 i = first + e * (TNI_TAKE_THREADS * 4);
        if (i < p.count) *(four<U> *)((U *)p.to + i) = a[e];
    }
}

#define TAKE(name, U) TN_KERNEL(lookup_take_##name, TNI_TAKE_THREADS, (TN_PARAMS(tni_take)), take_pieces<U>(p))
TAKE(1, u8)
TAKE(2, u16)
TAKE(4, u32)
TAKE(8, u64)
TAKE(16, u128)

#define ROWS(name, U) \
    TN_ROW_KERNEL(lookup_take_rows_##name, TNI_CHUNK_THREADS, 4, tni_take, (write_part<U>(p.chunks, taken_rows<U>(p))))
ROWS(1, u8)
ROWS(2, u16)
ROWS(4, u32)
ROWS(8, u64)
ROWS(16, u128)

#define FOURS(name, U) TN_KERNEL(lookup_take_fours_##name, TNI_TAKE_THREADS, (TN_PARAMS(tni_take)), take_fours<U>(p))
FOURS(1, u8)
FOURS(2, u16)
FOURS(4, u32)
FOURS(8, u64)
