/* Moves, and rows that become parts of other rows. Every type is one of its size. */
#include "move.cuh"

/* Where row `row` is, in the result and in the operand; false: outside of the operand. */
TN_DEVICE bool find_row(const tni_move_job &p, u64 row, i64 &to, i64 &from) {
    bool inside = true;
    to = from = 0;
#pragma unroll 1
    for (int d = 0; d < p.n_dims; d++) {
        const u64 size = (u64)p.dims[d].map.size;
        const u64 rest = p.chunks.is_short ? quotient((u32)row, p.dims[d].divisor) : row / size;
        const i64 index = (i64)(row - rest * size), at = tni_map_at(&p.dims[d].map, index);
        inside = inside && at >= 0;
        to += index * p.dims[d].to;
        from += at * p.dims[d].from;
        row = rest;
    }
    return inside;
}

/* The rows of a move, for write_chunks. */
template <class U> struct mapped {
    const tni_move_job &p;
    const U *row;
    i64 col;    /* of the next element, */
    i64 source; /* and where that comes from, if the map is a circle */

    TN_MEMBER mapped(const tni_move_job &p) : p(p) {
    }
    TN_MEMBER bool is_circle() const {
        return p.map.rule == TNI_MAP_CIRCULAR && p.map.n > 0;
    }
    TN_MEMBER bool find(u64 number, i64 &to) {
        i64 from;
        const bool inside = find_row(p, number, to, from);
        row = (const U *)p.from + from;
        return inside;
    }
    TN_MEMBER const U *whole(i64 first, int n) const {
        const i64 at = first - p.map.before, from = is_circle() ? tni_modulo(at, p.map.n) : at;
        return from >= 0 && from + n <= p.map.n ? row + from : nullptr;
    }
    TN_MEMBER bool is_outside(i64 first, int n) const {
        const i64 at = first - p.map.before;
        return p.map.rule == TNI_MAP_CONSTANT && (at + n <= 0 || at >= p.map.n);
    }
    TN_MEMBER void start(i64 first) {
        col = first;
        if (is_circle()) source = tni_modulo(first - p.map.before, p.map.n);
    }
    TN_MEMBER const U *next() {
        const bool circle = is_circle();
        const i64 from = circle ? source : tni_map_at(&p.map, col);
        col++;
        if (circle) source = source + 1 == p.map.n ? 0 : source + 1;
        return from < 0 ? nullptr : row + from * p.apart;
    }
    TN_MEMBER U outside() const {
        return *(const U *)p.constant;
    }
};

template <class U> TN_DEVICE void move_chunks(const tni_move_job &p) {
    write_chunks<U>(p.chunks, mapped<U>(p));
}

/* Rows of a few chunks, one behind the other in the result. A chunk is put together element by element, of one row or
 * several. To tell the chunks that lie within a row from the others would take longer: nearly every warp has both. */
template <class U> struct short_rows {
    static constexpr int V = chunk<U>::V, ITEMS = TNI_SHORT_ITEMS(sizeof(U)), ELEMENTS = ITEMS * TNI_CHUNK_THREADS * V;
    static constexpr i64 NOWHERE = -((i64)1 << 62); /* and so is what is added to it */

    const tni_move_job &p;
    i64 *begins;  /* of the block's rows: where element 0 would come from if it were in the operand */
    i64 *borders; /* (size): where other elements than those within come from, counted from there */
    u32 first_row;
    int size, inside, span; /* elements from `inside` on, so many of them, are in the operand as they lie there */

    /* Of ELEMENTS of the result, from `first` on. A chunk may have more than there are: rows that are nowhere. */
    TN_MEMBER short_rows(const tni_move_job &p, i64 first) : p(p) {
        const tni_map &map = p.map;
        const u32 last_row = quotient((u32)(min(first + ELEMENTS, p.chunks.elements) - 1), p.chunks.divisor);
        first_row = quotient((u32)max(first, (i64)0), p.chunks.divisor);
        size = (int)map.size;
        inside = (int)min(max(map.before, (i64)0), map.size);
        span = (int)max(min(map.before + map.n, map.size) - inside, (i64)0);
        borders = (i64 *)dynamic_shared_128();
        begins = borders + size;
        for (u32 row = first_row + threadIdx.x; row <= last_row + V; row += TNI_CHUNK_THREADS) {
            i64 to, from;
            begins[row - first_row] = row <= last_row && find_row(p, row, to, from) ? from - map.before : NOWHERE;
        }
        for (int k = (int)threadIdx.x; k < size - span; k += TNI_CHUNK_THREADS) {
            const int col = k < inside ? k : k + span;
            const i64 source = tni_map_at(&map, col);
            borders[col] = source < 0 ? NOWHERE : source + map.before;
        }
        __syncthreads();
    }

    /* A chunk from element `at` on. What it has in front of the first element does not matter. */
    TN_MEMBER void read(int at, U (&v)[V]) const {
        const u32 row = at < 0 ? 0 : quotient((u32)at, p.chunks.divisor);
        const i64 *next = begins + (row - first_row);
        int col = at - (int)row * size;
        i64 begin = *next;
#pragma unroll
        for (int e = 0; e < V; e++) {
            const int place = max(col, 0);
            i64 from = place;
            if ((u32)(place - inside) >= (u32)span) from = borders[place];
            from += begin;
            v[e] = from > NOWHERE / 2 ? ((const U *)p.from)[from] : *(const U *)p.constant;
            const bool ends = ++col == size;
            col = ends ? 0 : col;
            next += ends;
            if (ends) begin = *next;
        }
    }

    TN_MEMBER void write(int at, const U (&v)[V], const words &all) const {
        const int elements = (int)p.chunks.elements;
        U *const to = (U *)p.chunks.to + at;
        if (at >= 0 && at + V <= elements) {
            store_words(to, all);
            return;
        }
#pragma unroll
        for (int e = 0; e < V; e++)
            if (at + e >= 0 && at + e < elements) to[e] = v[e];
    }
};

/* All reads of a thread are under way at once. */
template <class U> TN_DEVICE void move_short(const tni_move_job &p) {
    constexpr int V = short_rows<U>::V, ITEMS = short_rows<U>::ITEMS, STEP = TNI_CHUNK_THREADS * V;
    const i64 first = (i64)blockIdx.x * (ITEMS * STEP) - (i64)(((u64)p.chunks.to & 15) / sizeof(U));
    const i64 mine = first + (int)threadIdx.x * V;
    const short_rows<U> rows(p, first);
    union {
        U v[V];
        words w;
    } a[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (mine + k * STEP < p.chunks.elements) rows.read((int)mine + k * STEP, a[k].v);
#pragma unroll
    for (int k = 0; k < ITEMS; k++)
        if (mine + k * STEP < p.chunks.elements) rows.write((int)mine + k * STEP, a[k].v, a[k].w);
}

/* One element at a time, where those of a row are not side by side. */
template <class U> TN_DEVICE void move_elements(const tni_move_job &p) {
    const u64 i = (u64)blockIdx.x * TNI_CHUNK_THREADS + threadIdx.x;
    if (i >= (u64)p.chunks.count) return;
    const u64 row = p.chunks.is_short ? quotient((u32)i, p.chunks.divisor) : i / (u64)p.chunks.per_row;
    mapped<U> from(p);
    i64 to;
    const bool inside = from.find(row, to);
    const i64 e = (i64)(i - row * (u64)p.chunks.per_row), at = inside ? tni_map_at(&p.map, e) : -1;
    ((U *)p.chunks.to)[to + e * p.step] = at >= 0 ? from.row[at * p.apart] : from.outside();
}

/* Blocks have the parts one after the other. Every thread looks at one part's first block, so that which part is this
 * block's is known after one step, however many there are. */
template <class U> TN_DEVICE void move_parts(const tni_parts &p) {
    static_assert(TNI_MOVE_PARTS <= TNI_CHUNK_THREADS, "a thread for each part");
    constexpr int ITEMS = TNI_CHUNK_ITEMS;
    const int t = (int)threadIdx.x, which = __syncthreads_count(t < p.count && p.first_block[t] <= blockIdx.x) - 1;
    const i64 n = p.at[which + 1] - p.at[which];
    const U *source = (const U *)p.from[which];
    U *to = (U *)p.to + p.at[which];
    const i64 per_row = chunks_of(n, sizeof(U), p.aligned && ((u64)to & 15) == 0);
    const tni_divisor divisor = {(u32)per_row, p.per_row[which].magic, p.per_row[which].shift};
    chunk<U> mine[ITEMS];
    in_a_row<U> from[ITEMS];
    bool there[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const u64 i = ((u64)(blockIdx.x - p.first_block[which]) * ITEMS + k) * TNI_CHUNK_THREADS + threadIdx.x;
        there[k] = i < (u64)(per_row * p.rows);
        if (!there[k]) continue;
        const i64 row = p.is_short ? (i64)quotient((u32)i, divisor) : (i64)(i / (u64)per_row);
        mine[k].place(to + row * p.n, n, (i64)i - row * per_row);
        from[k].from = source + row * n + mine[k].first;
        mine[k].read(from[k].from, source, source + p.rows * n, mine[k].is_whole());
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (there[k]) mine[k].write(from[k]);
    }
}

#define MOVES(size, U)                                                                             \
    TN_ROW_KERNEL(move_chunks_##size, TNI_CHUNK_THREADS, 3, tni_move_job, (move_chunks<U>(p)))     \
    TN_ROW_KERNEL(move_short_##size, TNI_CHUNK_THREADS, 5, tni_move_job, (move_short<U>(p)))       \
    TN_ROW_KERNEL(move_elements_##size, TNI_CHUNK_THREADS, 4, tni_move_job, (move_elements<U>(p))) \
    TN_ROW_KERNEL(move_parts_##size, TNI_CHUNK_THREADS, 4, tni_parts, (move_parts<U>(p)))

MOVES(1, u8)
MOVES(2, u16)
MOVES(4, u32)
MOVES(8, u64)
MOVES(16, u128)
