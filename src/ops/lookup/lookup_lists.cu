/* add of elements that have an index each: the sums of a block's places are in shared memory.
 *
 * What is added to a place waits in a list of the place, and when there is no more room, or nothing more to come, each
 * list is summed up by one thread. Lists grow in any order, so their sums do not depend on it: up to four numbers are
 * added in the order of their bits, more of them as multiples of a small power of two, whose sums are exact
 * (any_order).
 *
 * Of a few long columns, each is split first: blocks put what they read of it in order of the parts that the places
 * are in, and other blocks, which have a part each, go on from there. */
#include "lookup_columns.cuh"

/* ---- sums that do not depend on an order ------------------------------------------------------------------------- */

TN_DEVICE u32 magnitude_bits(f32 a) {
    return __float_as_uint(a) & 0x7fffffffu;
}
TN_DEVICE u64 magnitude_bits(f64 a) {
    return (u64)__double_as_longlong(a) & ~(1ull << 63);
}
TN_DEVICE f32 magnitude_of(u32 bits) {
    return __uint_as_float(bits);
}
TN_DEVICE f64 magnitude_of(u64 bits) {
    return __longlong_as_double((i64)bits);
}

/* Adds up to 65535 numbers of which the largest magnitude is known. They are rounded to multiples of 2^-36 of a power
 * of two above it, whose sums have no error; of f64, what is left is rounded to multiples of 2^-36 of that. */
template <class A> struct any_order {
    f64 anchor, scale, sum, rest;
    A plain; /* what infinities and NaN make */
    bool is_finite;

    template <class Bits> TN_MEMBER any_order(Bits most) : sum(0), rest(0), plain(0) {
        const f64 m = magnitude_of(most);
        is_finite = m <= 0x1.fffffffffffffp1023;
        scale = m > 0x1p900 ? 0x1p-100 : 1;
        const u64 bits = (u64)__double_as_longlong(m * scale);
        anchor = __longlong_as_double((i64)(bits & 0x7ff0000000000000ull)) * 0x1.8p17;
    }
    TN_MEMBER void add(A a) {
        const f64 b = a * scale, c = (b + anchor) - anchor;
        sum += c;
        if constexpr (sizeof(A) == 8) rest += ((b - c) + anchor * 0x1p-36) - anchor * 0x1p-36;
        if (!is_finite) plain += a;
    }
    TN_MEMBER A result() const {
        return is_finite ? (A)((sum + rest) / scale) : plain;
    }
};

TN_DEVICE i64 bits_in_order(f64 a) {
    return __double_as_longlong(a);
}
TN_DEVICE int bits_in_order(f32 a) {
    return (int)__float_as_uint(a);
}

template <class A> TN_DEVICE void put_in_order(A &a, A &b) {
    const bool right = bits_in_order(a) <= bits_in_order(b);
    const A low = right ? a : b, high = right ? b : a;
    a = low;
    b = high;
}

template <class A> TN_DEVICE A sum_of_four(A (&a)[4]) {
    put_in_order(a[0], a[1]);
    put_in_order(a[2], a[3]);
    put_in_order(a[0], a[2]);
    put_in_order(a[1], a[3]);
    put_in_order(a[1], a[2]);
    return ((a[0] + a[1]) + a[2]) + a[3];
}

enum { ITEMS = TNI_COLUMN_ADD_ITEMS };

/* ---- lists ------------------------------------------------------------------------------------------------------- */

template <class A> struct alignas(2 * sizeof(A)) term {
    A a;
    u16 next, place; /* of the list; NONE: it ends here */
};

struct long_lists {
    enum { LONG = 256, QUEUE = 64 };
    u32 places[QUEUE], count;
    f64 joined[32];
};

struct take_more {
    template <class A> static TN_MEMBER A of(A a, A b) {
        return a > b ? a : b;
    }
};

/* Each warp has room for some terms. Which of them are where is the same every time; the order of a list is not. */
template <class A> struct lists {
    enum { NONE = 0xffff };
    long_lists &late;
    A *sums;
    term<A> *terms;
    u32 *heads;
    u32 places, room, begin, used;

    /* All threads meet before the first is inserted. */
    TN_MEMBER lists(long_lists &late, u32 places, u32 room) : late(late), places(places), room(room), used(0) {
        terms = (term<A> *)dynamic_shared();
        sums = (A *)(terms + blockDim.x / 32 * room);
        heads = (u32 *)(sums + places);
        begin = threadIdx.x / 32 * room;
        for (u32 k = threadIdx.x; k < places; k += blockDim.x) heads[k] = NONE;
        if (threadIdx.x == 0) late.count = 0;
    }
    /* For so many terms of each lane. */
    TN_MEMBER bool has_room(u32 items) const {
        return used + items * 32 <= room;
    }
    /* All lanes of a warp together, if there is room. */
    TN_MEMBER void insert(bool mine, u32 place, A a) {
        const u32 lanes = __ballot_sync(0xffffffffu, mine), before = lanes & ((1u << threadIdx.x % 32) - 1);
        if (mine) {
            const u32 at = begin + used + (u32)__popc(before), next = atomicExch(&heads[place], at);
            terms[at] = term<A>{a, (u16)next, (u16)place};
        }
        used += (u32)__popc(lanes);
    }
    /* Sums up the lists of all places, of which this thread has every `step`-th from `first` on, below `past`. Before
     * it all threads meet; afterwards there is room again. The last time, write(number, sum) is called for each. */
    template <class Write> TN_MEMBER void flush(u32 first, u32 step, u32 past, bool last, Write write) {
        for (u32 k = first, number = 0; k < past; k += step, number++) {
            const u32 head = heads[k];
            A sum = sums[k], more = (A)-0.0;
            if (head != NONE) {
                const bool is_short = sum_short(head, more) || sum_any(head, long_lists::LONG, more);
                if (!is_short && put_off(k, head, more)) more = (A)-0.0;
                sum += more;
            }
            if (last) {
                write(number, sum);
            } else if (head != NONE) {
                heads[k] = NONE;
            }
            if (head != NONE) sums[k] = sum;
        }
        __syncthreads();
        const u32 count = min(late.count, (u32)long_lists::QUEUE);
        for (u32 q = 0; q < count; q++) sum_together(late.places[q]);
        if (count > 0) {
            __syncthreads();
            if (threadIdx.x == 0) late.count = 0;
            for (u32 k = first, number = 0; k < past && last; k += step, number++) write(number, sums[k]);
        }
        used = 0;
    }

  private:
    TN_MEMBER bool sum_short(u32 at, A &sum) const {
        A a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = (A)-0.0; /* which adds nothing, not even a sign */
            if (at == NONE) continue;
            const term<A> t = terms[at];
            a[i] = t.a;
            at = t.next;
        }
        sum = sum_of_four(a);
        return at == NONE;
    }
    /* Of a list of up to `limit`. */
    TN_MEMBER bool sum_any(u32 head, u32 limit, A &sum) const {
        auto most = magnitude_bits((A)0);
        u32 count = 0;
        for (u32 at = head; at != NONE; at = terms[at].next) {
            most = max(most, magnitude_bits(terms[at].a));
            if (++count > limit) return false;
        }
        any_order<A> all(most);
        for (u32 at = head; at != NONE; at = terms[at].next) all.add(terms[at].a);
        sum = all.result();
        return true;
    }
    /* Remembers a long list for all threads together; where too many are, it is summed up at once. */
    TN_MEMBER bool put_off(u32 k, u32 head, A &sum) const {
        const u32 q = atomicAdd(&late.count, 1u);
        if (q >= long_lists::QUEUE) return !sum_any(head, ~0u, sum);
        late.places[q] = k;
        return true;
    }
    /* What all threads have, joined in any order. */
    template <class Op, class F> TN_MEMBER F joined(F a) const {
        F *const all = (F *)late.joined;
#pragma unroll
        for (u32 d = 16; d > 0; d /= 2) a = Op::of(a, __shfl_xor_sync(0xffffffffu, a, d));
        __syncthreads();
        if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = a;
        __syncthreads();
        a = all[0];
        for (u32 w = 1; w < blockDim.x / 32; w++) a = Op::of(a, all[w]);
        return a;
    }
    TN_MEMBER void sum_together(u32 k) {
        auto most = magnitude_bits((A)0);
        for (u32 at = begin + threadIdx.x % 32; at < begin + used; at += 32)
            if (terms[at].place == k) most = max(most, magnitude_bits(terms[at].a));
        any_order<A> all(joined<take_more>(most));
        for (u32 at = begin + threadIdx.x % 32; at < begin + used; at += 32)
            if (terms[at].place == k) all.add(terms[at].a);
        all.sum = joined<take_sum>(all.sum);
        all.rest = joined<take_sum>(all.rest);
        all.plain = joined<take_sum>(all.plain);
        if (threadIdx.x == 0) sums[k] += all.result();
    }
};

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* A block has some columns, and of those the k from `low` on. Their sums are in shared memory: (width, pitch). The next
 * tile is under way while one is added. */
template <class T> TN_DEVICE void add_listed(const tni_columns &p) {
    __shared__ long_lists late;
    const u32 group = blockIdx.x / (u32)p.parts, low = (blockIdx.x - group * p.parts) * (u32)p.range;
    const column c(p, group);
    const int range = c.there ? min(p.range, (int)(p.index.v - low)) : 0, pitch = column_pitch(p.range, p.width);
    const i64 here = (c.o * p.index.v + low + c.slot) * p.inner + c.i, step = c.slots * p.inner;
    const T *base = p.base ? (const T *)p.base + c.o * p.by_outer + (low + c.slot) * p.by_v + c.i : nullptr;
    const u32 begin = c.which * pitch;
    column_tile<T> next(p, c);
    lists<acc<T>> all(late, (u32)(p.width * pitch), (u32)p.room);
    next.load(p);
    fill_sums<T>(all.sums + begin, base, c.slots * p.by_v, c.slot, c.slots, range);
    __syncthreads();
    T *const to = (T *)p.to + here;
    const auto write = [=](u32 number, acc<T> sum) { narrow(sum, to[number * step]); };
    i64 tiles = (p.n + c.slots * ITEMS - 1) / (c.slots * ITEMS);
    for (bool more = true; more;) {
        for (; tiles > 0 && all.has_room(ITEMS); tiles--) {
            u32 place[ITEMS];
            bool mine[ITEMS];
            acc<T> a[ITEMS];
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                const u32 k = next.index.low[e];
                mine[e] = next.index.high[e] == 0 && k != (u32)p.index.skipped && k - low < (u32)range;
                place[e] = begin + k - low;
                a[e] = widen(next.a[e]);
            }
            next.load(p);
#pragma unroll
            for (int e = 0; e < ITEMS; e++) all.insert(mine[e], place[e], a[e]);
        }
        more = __syncthreads_or(tiles > 0);
        all.flush(begin + c.slot, c.slots, begin + range, !more, write);
    }
}

/* ---- long columns ------------------------------------------------------------------------------------------------ */

/* Shared memory: what a block of split_column has. */
template <class T> struct split_shared {
    T *terms;
    u16 *places;
    u32 *counts;

    TN_MEMBER split_shared(const tni_split &p) {
        terms = (T *)dynamic_shared();
        places = (u16 *)(terms + p.chunk);
        counts = (u32 *)(places + p.chunk);
    }
};

/* Each count becomes the sum of those before it; returns the sum of all. There are as many threads, at least. */
TN_DEVICE u32 sum_counts(u32 *counts, u32 parts) {
    __shared__ u32 sums[32];
    const u32 t = threadIdx.x, lane = t % 32, mine = t < parts ? counts[t] : 0;
    u32 sum = mine;
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[t / 32] = sum;
    __syncthreads();
    u32 before = 0, all = 0;
    for (u32 w = 0; w < blockDim.x / 32; w++) {
        if (w < t / 32) before += sums[w];
        all += sums[w];
    }
    if (t < parts) counts[t] = before + sum - mine;
    return all;
}

/* `count` elements of shared memory, 16 bytes at a time; what is behind them in their last 16 bytes goes along. */
template <class U> TN_DEVICE void copy_lines(U *to, const U *from, u32 count) {
    const u32 lines = (count * (u32)sizeof(U) + 15) / 16;
    for (u32 i = threadIdx.x; i < lines; i += blockDim.x) store_words((words *)to + i, ((const words *)from)[i]);
}

/* A chunk of a column, put in order of the parts that the places are in; in a part, in any order. */
template <class T> TN_DEVICE void split_column(const tni_split &p) {
    constexpr int EACH = TNI_SPLIT_EACH;
    const split_shared<T> s(p);
    const u32 row = blockIdx.x / p.chunks, t = threadIdx.x, threads = blockDim.x;
    const i64 first = (i64)(blockIdx.x - row * p.chunks) * p.chunk + t, o = p.first + row;
    const T *from = (const T *)p.from + o * p.n;
    int k[EACH]; /* or why there is none */
    T a[EACH];
    u32 rank[EACH];
    if (t < p.parts) s.counts[t] = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const i64 j = first + e * threads;
        k[e] = j < p.n ? (int)find_index(p.index, o, j, 0) : SKIPPED;
        a[e] = j < p.n ? from[j] : T{};
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (k[e] >= 0) rank[e] = atomicAdd(&s.counts[k[e] >> p.shift], 1u);
    __syncthreads();
    const u32 count = sum_counts(s.counts, p.parts);
    __syncthreads();
    u16 *const bounds = p.bounds + (u64)blockIdx.x * (p.parts + 1);
    if (t < p.parts) bounds[t] = (u16)s.counts[t];
    if (t == 0) bounds[p.parts] = (u16)count;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (k[e] < 0) continue;
        const u32 to = s.counts[k[e] >> p.shift] + rank[e];
        s.terms[to] = a[e];
        s.places[to] = (u16)(k[e] & ((1 << p.shift) - 1));
    }
    __syncthreads();
    copy_lines((T *)p.terms + (u64)blockIdx.x * p.chunk, s.terms, count);
    copy_lines(p.places + (u64)blockIdx.x * p.chunk, s.places, count);
}

/* What a warp reads of a part of a column: every so many chunks, a stretch of each. */
template <class T> struct stretches {
    const tni_split &p;
    const u16 *bounds; /* of the column's first chunk */
    u64 column;        /* its chunks begin with this one */
    u32 chunk, step;   /* the next one */
    u32 known;         /* of chunk + lane * step: begin and end */
    u32 ahead;         /* chunks that are not known yet come after so many */
    u64 at, end;
    u32 place[ITEMS];
    T a[ITEMS];
    int count; /* of this lane's */

    TN_MEMBER stretches(const tni_split &p, u32 row, u32 part)
        : p(p), column((u64)row * p.chunks), chunk(threadIdx.x / 32), step(blockDim.x / 32), ahead(0), at(0), end(0) {
        bounds = p.bounds + column * (p.parts + 1) + part;
    }
    TN_MEMBER bool is_over() const {
        return at == end && chunk >= p.chunks;
    }
    /* Up to ITEMS terms for each lane; `count` is 0 where there are none. */
    TN_MEMBER void load() {
        while (at == end && chunk < p.chunks) go_on();
        count = 0;
#pragma unroll
        for (int e = 0; e < ITEMS; e++) {
            const u64 i = at + e * 32 + threadIdx.x % 32;
            if (i >= end) continue;
            place[e] = p.places[i];
            a[e] = ((const T *)p.terms)[i];
            count = e + 1;
        }
        at = min(at + ITEMS * 32, end);
    }

  private:
    /* To the next chunk. The bounds of 32 are read at once. */
    TN_MEMBER void go_on() {
        if (ahead % 32 == 0) {
            const u32 mine = chunk + threadIdx.x % 32 * step;
            const u16 *const b = bounds + (u64)mine * (p.parts + 1);
            known = mine < p.chunks ? b[0] | (u32)b[1] << 16 : 0;
        }
        const u32 here = __shfl_sync(0xffffffffu, known, ahead++ % 32);
        at = (column + chunk) * p.chunk + (here & 0xffff);
        end = (column + chunk) * p.chunk + (here >> 16);
        chunk += step;
    }
};

/* A block has a part of a column. */
template <class T> TN_DEVICE void add_split(const tni_split &p) {
    __shared__ long_lists late;
    const u32 row = blockIdx.x / p.parts, part = blockIdx.x - row * p.parts;
    const i64 low = (i64)part << p.shift, o = p.first + row, first = low + threadIdx.x;
    const int range = (int)min((i64)1 << p.shift, p.index.v - low), threads = (int)blockDim.x;
    const T *base = p.base ? (const T *)p.base + o * p.by_outer + first * p.by_v : nullptr;
    lists<acc<T>> all(late, 1u << p.shift, (u32)p.room);
    fill_sums<T>(all.sums, base, threads * p.by_v, (int)threadIdx.x, threads, range);
    wait_for_last();
    stretches<T> next(p, row, part);
    next.load();
    __syncthreads();
    T *const to = (T *)p.to + o * p.index.v + first;
    const auto write = [=](u32 number, acc<T> sum) { narrow(sum, to[(i64)number * threads]); };
    for (bool more = true; more;) {
        while (__any_sync(0xffffffffu, next.count > 0) && all.has_room(ITEMS)) {
            u32 place[ITEMS];
            acc<T> a[ITEMS];
            const int count = next.count;
#pragma unroll
            for (int e = 0; e < ITEMS; e++) {
                place[e] = next.place[e];
                a[e] = widen(next.a[e]);
            }
            next.load();
#pragma unroll
            for (int e = 0; e < ITEMS; e++) all.insert(e < count, place[e], a[e]);
        }
        more = __syncthreads_or(next.count > 0);
        all.flush(threadIdx.x, threads, range, !more, write);
    }
}

#define ADD(T, name)                                                                                        \
    TN_KERNEL(lookup_add_listed_##name, TNI_COLUMN_ADD_THREADS, (TN_PARAMS(tni_columns)), add_listed<T>(p)) \
    TN_ROW_KERNEL(lookup_split_##name, TNI_SPLIT_THREADS, 3, tni_split, split_column<T>(p))                 \
    TN_KERNEL(lookup_add_split_##name, TNI_COLUMN_ADD_THREADS, (TN_PARAMS(tni_split)), add_split<T>(p))
TN_FOR_TYPES(ADD)
