/* add: to[s, k] = base[s, k] + the rows of from[s] that belong to k, in their order.
 *
 * The rows are sorted by what they belong to (lookup_sort.cu). Every piece of `to` is then written once, by one
 * thread: 0 where nothing belongs to it, else what it has summed up in f32. What more than TNI_ADD_PART rows belong to
 * is summed up by several blocks, in parts of so many from its first one on, and then from those. */
#include "lookup.cuh"

/* Where a piece of a row lies. Pieces are at multiples of 16 bytes in the result's memory, so the first one and the
 * last may have fewer than V elements of the row, and in other tensors they lie anywhere. */
struct stretch {
    i64 first, n; /* elements first … first + V - 1 of a row of n; first may be negative */

    template <class T, int V> static TN_MEMBER stretch of(const tni_add &p, i64 row, i64 c) {
        const i64 lead = V > 1 ? shift_of<V>((const T *)p.to + row * p.row) : 0;
        return stretch{c * V - lead, p.row};
    }
    TN_MEMBER bool is_there() const {
        return first < n;
    }
    TN_MEMBER bool has(int j) const {
        return first + j >= 0 && first + j < n;
    }
};

/* A piece of a row of some tensor. It is read in the whole 16 bytes that it lies in, with what is beside the row, and
 * used later, so that many are under way at once. */
template <class T, int V> struct piece {
    chunk<T> raw;

    /* Nothing outside of low … high is read. */
    TN_MEMBER void load(const T *row, const stretch &s, const T *low, const T *high, bool there) {
        raw.read(row + s.first, low, high, there);
    }
    TN_MEMBER vec<T, V> get(const T *row, const stretch &s) const {
        union {
            words w;
            vec<T, V> a;
        } r;
        r.w = raw.shift ? shift_words(raw.a, raw.b, raw.shift) : raw.a;
        if (!raw.reads) { /* at an end of the tensor */
#pragma unroll
            for (int j = 0; j < V; j++) r.a.v[j] = s.has(j) ? row[s.first + j] : T{};
        }
        return r.a;
    }
};
template <class T> struct piece<T, 1> {
    vec<T, 1> a;

    TN_MEMBER void load(const T *row, const stretch &s, const T *, const T *, bool there) {
        if (there) a.v[0] = row[s.first];
    }
    TN_MEMBER vec<T, 1> get(const T *, const stretch &) const {
        return a;
    }
};

template <class T, int V> TN_DEVICE void add_piece(acc<T> (&sum)[V], const vec<T, V> &a) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] += widen_at(a, j);
}

template <class T, int V> TN_DEVICE void store_sum(T *row, const stretch &s, const acc<T> (&sum)[V]) {
    const vec<T, V> a = narrow_vector<T, V>(sum);
    const bool whole = V == 1 || (s.first >= 0 && s.first + V <= s.n);
    if (whole) *(vec<T, V> *)(row + s.first) = a;
#pragma unroll
    for (int j = 0; j < V; j++)
        if (!whole && s.has(j)) row[s.first + j] = a.v[j];
}

/* A piece of row `row` of base, or 0. */
template <class T, int V> TN_DEVICE void start_sum(acc<T> (&sum)[V], const tni_add &p, i64 row, const stretch &s) {
    const T *base = (const T *)p.base, *mine = base + row * p.row;
    vec<T, V> b = {};
    if (base) {
        piece<T, V> a;
        a.load(mine, s, base, base + (i64)p.slabs * p.keys * p.row, true);
        b = a.get(mine, s);
    }
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = widen_at(b, j); /* -0 stays what it is */
}

/* The positions of what belongs to k. */
TN_DEVICE span positions_of(const tni_add &p, u32 k) {
    if (p.offsets.data) return segment_at(p.offsets, k);
    const u32 end = p.ends[k];
    return span{end ? p.begins[k] : 0, end};
}

/* What the row at a sorted position belongs to. */
TN_DEVICE u32 key_at(const tni_add &p, i64 at) {
    return p.offsets.data ? find_segment(p.offsets, (u32)at) : p.key[at];
}

/* ---- most rows --------------------------------------------------------------------------------------------------- */

/* Adds a piece of a slab's rows at positions begin … end - 1, every `step`-th. TOGETHER rows are under way at
 * once. */
template <class T, int V, int TOGETHER>
TN_DEVICE void sum_rows(const tni_add &p, acc<T> (&sum)[V], i64 slab, const stretch &s, u32 begin, u32 end, u32 step) {
    const T *low = (const T *)p.from, *high = low + (i64)p.slabs * p.rows * p.row, *from = low + slab * p.rows * p.row;
    for (u64 q = begin; q < end; q += (u64)TOGETHER * step) {
        piece<T, V> a[TOGETHER];
        const T *row[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            const u64 at = q + (u64)t * step;
            const bool there = at < end;
            row[t] = from;
            if (there) row[t] += (i64)(p.position ? p.position[at] : (u32)at) * p.row;
            a[t].load(row[t], s, low, high, there);
        }
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            if (q + (u64)t * step < end) add_piece<T, V>(sum, a[t].get(row[t], s));
        }
    }
}

/* ITEMS: pieces of a thread, whose positions it looks for together. Where few k have rows, most of its work is to write
 * zeros; where most have some, one piece is enough, and blocks are done at about the same time. */
template <class T, int V, int ITEMS, int TOGETHER> TN_DEVICE void add_rows(const tni_add &p) {
    wait_for_last();
    const i64 first = (i64)blockIdx.x * (TNI_ADD_THREADS * ITEMS) + threadIdx.x;
    i64 row[ITEMS], slab[ITEMS], c[ITEMS];
    span rows[ITEMS];
#pragma unroll
    for (int e = 0; e < ITEMS; e++) {
        const i64 i = first + e * TNI_ADD_THREADS;
        if (i >= p.count) continue;
        row[e] = divide(i, p.pieces);
        c[e] = i - row[e] * p.pieces.by;
        slab[e] = p.slabs == 1 ? 0 : divide(row[e], p.by_keys);
        rows[e] = positions_of(p, (u32)(row[e] - slab[e] * p.by_keys.by));
    }
#pragma unroll
    for (int e = 0; e < ITEMS; e++) {
        const i64 i = first + e * TNI_ADD_THREADS;
        if (i >= p.count || rows[e].end - rows[e].begin > TNI_ADD_PART) continue; /* add_ends writes those of many */
        const stretch s = stretch::of<T, V>(p, row[e], c[e]);
        if (!s.is_there()) continue;
        acc<T> sum[V];
        start_sum<T, V>(sum, p, row[e], s);
        sum_rows<T, V, TOGETHER>(p, sum, slab[e], s, rows[e].begin, rows[e].end, 1);
        store_sum<T, V>((T *)p.to + row[e] * p.row, s, sum);
    }
}

/* Where rows are long and most k have none. The first warps look at the sorted positions, for a piece of each thread:
 * those at the first position of a k sum up its rows. The others write zeros for the k that have no rows, and one asks
 * for a whole row, or a part of one, so that it waits once. */
template <class T> TN_DEVICE void add_long(const tni_add &p) {
    constexpr int V = pack<T>::VL;
    wait_for_last();
    i64 number = ((i64)blockIdx.x * TNI_ADD_THREADS + threadIdx.x) / 32;
    if (number < p.sums) {
        const i64 at = divide(number, p.by_tiles), tile = number - at * p.by_tiles.by;
        const i64 slab = p.slabs == 1 ? 0 : divide(at, p.by_positions), position = at - slab * p.by_positions.by;
        const u32 k = p.key[position];
        if (k >= p.keys) return;
        const span rows = positions_of(p, k);
        if (rows.begin != (u32)position || rows.end - rows.begin > TNI_ADD_PART)
            return; /* add_ends writes the others */
        const i64 row = slab * p.keys + k;
        const stretch s = stretch::of<T, V>(p, row, tile * 32 + threadIdx.x % 32);
        if (!s.is_there()) return;
        acc<T> sum[V] = {};
        sum_rows<T, V, 2>(p, sum, slab, s, rows.begin, rows.end, 1);
        store_sum<T, V>((T *)p.to + row * p.row, s, sum);
        return;
    }
    number -= p.sums;
    const i64 row = divide(number, p.by_parts), part = number - row * p.by_parts.by;
    if (row >= (i64)p.slabs * p.keys) return;
    const i64 slab = p.slabs == 1 ? 0 : divide(row, p.by_keys);
    if (positions_of(p, (u32)(row - slab * p.by_keys.by)).end > 0) return;
    const acc<T> zero[V] = {};
    stretch s = stretch::of<T, V>(p, row, part * 32 * p.items + threadIdx.x % 32);
#pragma unroll 4
    for (int e = 0; e < p.items; e++, s.first += 32 * V)
        if (s.is_there()) store_sum<T, V>((T *)p.to + row * p.row, s, zero);
}

/* ---- what many rows belong to ------------------------------------------------------------------------------------ */

/* Positions are looked at in chunks of TNI_ADD_PART. A block has some chunks and a tile of the row: `lanes` threads
 * have pieces side by side, the others more rows of the same. */
struct many {
    i64 slab, chunk, c; /* chunk: the block's first; c: this thread's piece of a row */
    int lane, way, ways;
    bool there;

    TN_MEMBER many(const tni_add &p) {
        const i64 tile = blockIdx.x % (u32)p.tiles, rest = blockIdx.x / (u32)p.tiles;
        slab = rest % p.slabs;
        chunk = rest / p.slabs * p.each;
        lane = (int)threadIdx.x & (p.lanes - 1);
        way = (int)threadIdx.x / p.lanes;
        ways = TNI_ADD_THREADS / p.lanes;
        c = tile * p.lanes + lane;
        there = c < p.pieces.by;
    }
};

template <class T, int V> struct many_shared { acc<T> sum[TNI_ADD_THREADS][V]; };

/* The sum over the ways, for those of the first. */
template <class T, int V>
TN_DEVICE void join_ways(many_shared<T, V> &shared, const many &m, int lanes, acc<T> (&sum)[V]) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; j++) shared.sum[threadIdx.x][j] = sum[j];
    for (int half = m.ways / 2; half > 0; half /= 2) {
        __syncthreads();
        if (m.way >= half) continue;
#pragma unroll
        for (int j = 0; j < V; j++) shared.sum[threadIdx.x][j] += shared.sum[threadIdx.x + half * lanes][j];
    }
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = shared.sum[threadIdx.x][j];
}

/* Where the sum of a part is kept: the one that begins in this chunk of positions. Two can, of two k: slot 0 is that of
 * the k which the chunk's first position belongs to. */
template <class T, int V> TN_DEVICE acc<T> *partial_at(const tni_add &p, const many &m, i64 chunk, int slot) {
    return (acc<T> *)p.partials + (((m.slab * p.chunks + chunk) * 2 + slot) * p.pieces.by + m.c) * V;
}

/* The last position of a chunk. */
TN_DEVICE i64 last_of(const tni_add &p, i64 chunk) {
    const i64 past = (chunk + 1) * TNI_ADD_PART;
    return (past < p.positions ? past : p.positions) - 1;
}

struct part {
    span rows;
    u32 k;
};

/* One part of what k has; none where no part of it begins in this chunk, or where it has too few rows. */
TN_DEVICE part find_part(const tni_add &p, i64 chunk, int slot) {
    const i64 low = chunk * TNI_ADD_PART;
    if (chunk >= p.chunks) return part{};
    const u32 k = key_at(p, slot ? last_of(p, chunk) : low);
    if (k >= p.keys) return part{};
    const span rows = positions_of(p, k);
    const i64 first = rows.begin, last = rows.end;
    if (last - first <= TNI_ADD_PART || (slot && first <= low)) return part{};
    const i64 before = slot ? 0 : (low - first + TNI_ADD_PART - 1) / TNI_ADD_PART; /* parts of k */
    const i64 begin = first + before * TNI_ADD_PART;
    if (begin >= last) return part{};
    return part{span{(u32)begin, (u32)(begin + TNI_ADD_PART < last ? begin + TNI_ADD_PART : last)}, k};
}

/* Most chunks have none: so threads look at them together. */
template <class T, int V> TN_DEVICE void add_parts(const tni_add &p) {
    wait_for_last();
    __shared__ many_shared<T, V> shared;
    __shared__ part parts[2 * TNI_ADD_EACH];
    const many m(p);
    const int t = (int)threadIdx.x, count = 2 * p.each;
    if (t < count) parts[t] = find_part(p, m.chunk + t / 2, t % 2);
    if (!__syncthreads_or(t < count && parts[t].rows.end > 0)) return;
    for (int q = 0; q < count; q++) {
        const span rows = parts[q].rows;
        if (rows.end == 0) continue;
        const stretch s = stretch::of<T, V>(p, m.slab * p.keys + parts[q].k, m.c);
        acc<T> sum[V] = {};
        if (m.there && s.is_there()) sum_rows<T, V, 4>(p, sum, m.slab, s, rows.begin + m.way, rows.end, m.ways);
        join_ways<T, V>(shared, m, p.lanes, sum);
        if (m.there && m.way == 0) {
            acc<T> *to = partial_at<T, V>(p, m, m.chunk + q / 2, q % 2);
#pragma unroll
            for (int j = 0; j < V; j++) to[j] = sum[j];
        }
    }
}

/* The k whose first row is in a chunk, if it has many: the chunk's last position belongs to it. Else p.keys. */
TN_DEVICE u32 find_end(const tni_add &p, i64 chunk) {
    if (chunk >= p.chunks) return p.keys;
    const u32 k = key_at(p, last_of(p, chunk));
    if (k >= p.keys) return p.keys;
    const span rows = positions_of(p, k);
    return (i64)rows.begin >= chunk * TNI_ADD_PART && rows.end - rows.begin > TNI_ADD_PART ? k : p.keys;
}

template <class T, int V> TN_DEVICE void add_ends(const tni_add &p) {
    wait_for_last();
    __shared__ many_shared<T, V> shared;
    __shared__ u32 keys[TNI_ADD_EACH];
    const many m(p);
    const int t = (int)threadIdx.x;
    if (t < p.each) keys[t] = find_end(p, m.chunk + t);
    if (!__syncthreads_or(t < p.each && keys[t] < p.keys)) return;
    for (int q = 0; q < p.each; q++) {
        const u32 k = keys[q];
        if (k >= p.keys) continue;
        const span rows = positions_of(p, k);
        const i64 first = rows.begin, count = rows.end - rows.begin, parts = (count + TNI_ADD_PART - 1) / TNI_ADD_PART;
        const bool in_slot_1 = first > (m.chunk + q) * TNI_ADD_PART; /* the first part; others are in slot 0 */
        const i64 row = m.slab * p.keys + k;
        const stretch s = stretch::of<T, V>(p, row, m.c);
        const bool there = m.there && s.is_there();
        acc<T> sum[V] = {};
        if (there && m.way == 0) start_sum<T, V>(sum, p, row, s);
        for (i64 part = m.way; there && part < parts; part += m.ways) {
            const i64 chunk = (first + part * TNI_ADD_PART) / TNI_ADD_PART;
            const acc<T> *partial = partial_at<T, V>(p, m, chunk, part == 0 && in_slot_1);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] += partial[j];
        }
        join_ways<T, V>(shared, m, p.lanes, sum);
        if (there && m.way == 0) store_sum<T, V>((T *)p.to + row * p.row, s, sum);
    }
}

/* ---- without a sort: few along the axis -------------------------------------------------------------------------- */

/* Every thread has a piece of `to`, and looks which of the few belong to it. V > 1: nothing is behind the axis. */
template <class T, int V> TN_DEVICE void add_few(const tni_add_few &p) {
#pragma unroll
    for (int e = 0; e < TNI_ADD_ITEMS; e++) {
        const i64 i = (i64)blockIdx.x * (TNI_ADD_THREADS * TNI_ADD_ITEMS) + e * TNI_ADD_THREADS + threadIdx.x;
        if (i >= p.count) continue;
        const i64 o = divide(i, p.slab), at = (i - o * p.slab.by) * V, k = V > 1 ? at : divide(at, p.by_inner);
        const i64 inner = at - k * p.inner;
        const T *from = (const T *)p.from + o * p.n * p.inner + (V > 1 ? 0 : inner);
        acc<T> sum[V];
        const T *base = (const T *)p.base + o * p.by_outer + k * p.by_v + (V > 1 ? 0 : inner);
        const vec<T, V> b = p.base ? *(const vec<T, V> *)base : vec<T, V>{};
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] = widen_at(b, v);
        for (i64 j = 0; j < p.n; j++) {
            const i64 which = find_index(p.index, o, j, V > 1 ? 0 : inner) - k;
            if ((u64)which >= V) continue;
            const acc<T> a = widen(from[j * p.inner]);
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (which == v) sum[v] += a;
            }
        }
        *(vec<T, V> *)((T *)p.to + i * V) = narrow_vector<T, V>(sum);
    }
}

#define ROWS(T, name, V, piece)                                                                               \
    TN_KERNEL(lookup_add_rows_##piece##_##name, TNI_ADD_THREADS, (TN_PARAMS(tni_add)),                        \
              (add_rows<T, V, TNI_ADD_ITEMS, 4>(p)))                                                          \
    TN_ROW_KERNEL(lookup_add_dense_##piece##_##name, TNI_ADD_THREADS, 4, tni_add,                             \
                  (add_rows < T, V, 1, V == 1 ? 8 : 2 > (p)))                                                 \
    TN_KERNEL(lookup_add_parts_##piece##_##name, TNI_ADD_THREADS, (TN_PARAMS(tni_add)), (add_parts<T, V>(p))) \
    TN_KERNEL(lookup_add_ends_##piece##_##name, TNI_ADD_THREADS, (TN_PARAMS(tni_add)), (add_ends<T, V>(p)))   \
    TN_KERNEL(lookup_add_few_##piece##_##name, TNI_ADD_THREADS, (TN_PARAMS(tni_add_few)), (add_few<T, V>(p)))
#define ADD(T, name)              \
    ROWS(T, name, pack<T>::VL, p) \
    ROWS(T, name, 1, s)           \
    TN_ROW_KERNEL(lookup_add_long_##name, TNI_ADD_THREADS, 4, tni_add, (add_long<T>(p)))
TN_FOR_TYPES(ADD)
