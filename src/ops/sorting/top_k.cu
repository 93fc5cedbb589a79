/* top_k of rows that are read once. A block walks through a row and collects what is better than the k-th best so far;
 * when its room is full, it keeps the best k. Of numbers in no order, a step lets ever fewer through: about k of every
 * power of two. What is as good as the k-th best comes later in the row, and so is not wanted.
 *
 * Where rows are few, a block has a slice of one. A second kernel goes the same way over what was found, slice by
 * slice: equal keys still come by their places. */
#include "sorting.cuh"

enum { THREADS = TNI_TOP_K_THREADS };

/* The key above the place; the smallest are wanted. LEVELS digits of 8 bits, the highest first. */
struct small_record {
    enum { LEVELS = 8, KEY_LEVELS = 4 };
    typedef u32 key_type;
    u64 both;

    static TN_MEMBER small_record of(u32 key, u32 place) {
        return {(u64)key << 32 | place};
    }
    static TN_MEMBER small_record last() {
        return {~0ull};
    }
    TN_MEMBER u32 key() const {
        return (u32)(both >> 32);
    }
    TN_MEMBER u32 place() const {
        return (u32)both;
    }
    TN_MEMBER u32 digit(int level) const {
        return (u32)(both >> (56 - 8 * level)) & 255;
    }
    TN_MEMBER void set_digit(int level, u32 digit) {
        both |= (u64)digit << (56 - 8 * level);
    }
    /* Without the digits from `level` on. */
    TN_MEMBER u64 head(int level) const {
        return level == 0 ? 0 : both >> (64 - 8 * level);
    }
    TN_MEMBER bool operator<(const small_record &other) const {
        return both < other.both;
    }
    TN_MEMBER bool same_head(const small_record &other, int level) const {
        return head(level) == other.head(level);
    }
    TN_MEMBER bool up_to_head(const small_record &other, int level) const {
        return head(level) <= other.head(level);
    }
};

struct large_record {
    enum { LEVELS = 12, KEY_LEVELS = 8 };
    typedef u64 key_type;
    u64 own, at;

    static TN_MEMBER large_record of(u64 key, u32 place) {
        return {key, place};
    }
    static TN_MEMBER large_record last() {
        return {~0ull, ~0ull};
    }
    TN_MEMBER u64 key() const {
        return own;
    }
    TN_MEMBER u32 place() const {
        return (u32)at;
    }
    TN_MEMBER u32 digit(int level) const {
        return (u32)(level < 8 ? own >> (56 - 8 * level) : at >> (88 - 8 * level)) & 255;
    }
    TN_MEMBER void set_digit(int level, u32 digit) {
        if (level < 8)
            own |= (u64)digit << (56 - 8 * level);
        else
            at |= (u64)digit << (88 - 8 * level);
    }
    TN_MEMBER u64 head(int level) const {
        return level == 0 ? 0 : own >> (level < 8 ? 64 - 8 * level : 0);
    }
    TN_MEMBER u64 tail(int level) const {
        return level <= 8 ? 0 : at >> (96 - 8 * level);
    }
    TN_MEMBER bool operator<(const large_record &other) const {
        return own < other.own || (own == other.own && at < other.at);
    }
    TN_MEMBER bool same_head(const large_record &other, int level) const {
        return head(level) == other.head(level) && tail(level) == other.tail(level);
    }
    TN_MEMBER bool up_to_head(const large_record &other, int level) const {
        return head(level) < other.head(level) ||
               (head(level) == other.head(level) && tail(level) <= other.tail(level));
    }
};

template <class S> struct record_for { typedef small_record type; };
template <> struct record_for<u64> { typedef large_record type; };

/* ---- what a block has collected ---------------------------------------------------------------------------------- */

/* ITEMS: elements of a thread in a step. */
template <class R, int ITEMS> struct collection {
    enum { STEP = THREADS * ITEMS, MOST = TNI_TOP_K_MOST * TNI_TOP_K_RECORD / sizeof(R), ROOM = STEP + MOST };
    R records[ROOM];
    R best[MOST];
    u32 counts[TNI_SORT_DIGITS], sums[8];
    u32 count, n_best;
    u32 digit, needed, bucket;

    /* Adds a record where `wanted`. Returns how many there are with those that this warp adds; 0: it adds none. */
    TN_MEMBER u32 add(const R &record, bool wanted) {
        const u32 all = __ballot_sync(0xffffffffu, wanted);
        u32 first = 0;
        if (all == 0) return 0;
        if (lane_id() == 0) first = atomicAdd(&count, (u32)__popc(all));
        first = __shfl_sync(0xffffffffu, first, 0, 32);
        if (wanted) records[first + __popc(all & lanes_below())] = record;
        return first + __popc(all);
    }

    /* Finds, digit by digit, up to which record there are `k` of those collected, and keeps these. Returns what none
     * of their keys is above. By all threads; count > k, and a barrier comes before. */
    TN_MEMBER typename R::key_type keep(u32 k) {
        R head = R::of(0, 0);
        u32 need = k;
        int level = 0;
        for (; level < R::LEVELS; level++) {
            counts[threadIdx.x] = 0;
            __syncthreads();
            for (u32 i = threadIdx.x; i < count; i += THREADS) {
                const R r = records[i];
                if (r.same_head(head, level)) atomicAdd(&counts[r.digit(level)], 1u);
            }
            __syncthreads();
            const u32 own = counts[threadIdx.x], up_to = sum_up_to(own, sums);
            if (up_to >= need && up_to - own < need) {
                digit = threadIdx.x;
                needed = need - (up_to - own);
                bucket = own;
            }
            __syncthreads();
            head.set_digit(level, digit);
            need = needed;
            if (bucket == need) break; /* at the last level at the latest: no two records are equal */
        }
        level++;
        if (threadIdx.x == 0) n_best = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < count; i += THREADS) {
            const R r = records[i];
            if (r.up_to_head(head, level)) best[atomicAdd(&n_best, 1u)] = r;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < k; i += THREADS) records[i] = best[i];
        if (threadIdx.x == 0) count = k;
        __syncthreads();
        for (; level < R::KEY_LEVELS; level++) head.set_digit(level, 255);
        return head.key();
    }

    /* Sorts the first n, with what is behind them up to a power of 2: a bitonic network. */
    TN_MEMBER void sort(u32 n) {
        const u32 all = power_of_2_from(n);
        for (u32 i = n + threadIdx.x; i < all; i += THREADS) records[i] = R::last();
        for (u32 size = 2; size <= all; size *= 2) {
            for (u32 apart = size / 2; apart > 0; apart /= 2) {
                __syncthreads();
                for (u32 i = threadIdx.x; i < all / 2; i += THREADS) {
                    const u32 low = i / apart * 2 * apart + i % apart, high = low + apart;
                    const R a = records[low], b = records[high];
                    if ((b < a) == ((low & size) == 0)) {
                        records[low] = b;
                        records[high] = a;
                    }
                }
            }
        }
        __syncthreads();
    }
};

/* ---- walking through a row --------------------------------------------------------------------------------------- */

/* Elements begin … end - 1 of a row, a step at a time. All loads of a step are under way together. */
template <class S, int ITEMS> struct row_source {
    typedef typename record_for<S>::type R;
    enum { V = 16 / sizeof(S) < ITEMS ? 16 / sizeof(S) : ITEMS };
    const S *x;
    u32 begin, end;
    bool aligned;
    union {
        words w[ITEMS / V];
        S bits[ITEMS];
    } held;

    TN_MEMBER u32 at(u32 start, int i) const {
        return start + (i / V * THREADS + threadIdx.x) * V + i % V;
    }
    TN_MEMBER void load(u32 start) {
        if (aligned && start + THREADS * ITEMS <= end) {
#pragma unroll
            for (int g = 0; g < ITEMS / V; g++) held.w[g] = load_words_if(x + at(start, g * V), true);
        } else {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) held.bits[i] = at(start, i) < end ? x[at(start, i)] : 0;
        }
    }
    TN_MEMBER R get(int i, u32 place, const tni_key_rule &rule) const {
        return R::of(key_of<S>(held.bits[i], rule), place);
    }
};

/* Records that slices left behind. */
template <class R, int ITEMS> struct found_source {
    const R *x;
    u32 begin, end;
    R held[ITEMS];

    TN_MEMBER u32 at(u32 start, int i) const {
        return start + i * THREADS + threadIdx.x;
    }
    TN_MEMBER void load(u32 start) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) held[i] = at(start, i) < end ? x[at(start, i)] : R::last();
    }
    TN_MEMBER R get(int i, u32, const tni_key_rule &) const {
        return held[i];
    }
};

/* Leaves the first k in order at the front of the collection. Steps are taken one after the other, so that what is
 * collected later has a later place, or, of what slices left, as late a one where keys are equal. */
template <int ITEMS, class R, class Source>
TN_DEVICE void collect(collection<R, ITEMS> &c, Source &from, u32 k, const tni_key_rule &rule) {
    typename R::key_type limit = 0;
    bool limited = false;
    if (threadIdx.x == 0) c.count = 0;
    __syncthreads();
    from.load(from.begin);
    for (u32 start = from.begin; start < from.end; start += c.STEP) {
        const Source now = from;
        if (from.end - start > c.STEP) from.load(start + c.STEP);
        bool any = false;
        u32 count = 0;
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u32 at = now.at(start, i);
            any |= at < from.end && (!limited || now.get(i, at, rule).key() < limit);
        }
        if (__any_sync(0xffffffffu, any)) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                const u32 at = now.at(start, i);
                const R r = now.get(i, at, rule);
                const u32 now_there = c.add(r, at < from.end && (!limited || r.key() < limit));
                count = now_there ? now_there : count;
            }
        }
        /* Whoever adds the last knows how many there are. c.count itself goes up as soon as the first warp is on. */
        if (__syncthreads_or(count > c.ROOM - c.STEP)) {
            limit = c.keep(k);
            limited = true;
        }
    }
    if (c.count > k) c.keep(k);
    c.sort(k);
}

template <class S, class R> TN_DEVICE void write_row(const tni_top_k &p, i64 row, const R *records) {
    const S *x = (const S *)p.x + row * p.n;
    for (u32 i = threadIdx.x; i < (u32)p.k; i += THREADS) {
        const R r = records[i];
        if (p.values) ((S *)p.values)[row * p.k + i] = bits_of<S>((S)r.key(), x + r.place(), p.rule);
        if (p.index) p.index[row * p.k + i] = r.place();
    }
}

/* A block has a slice of a row, or all of it. */
template <class S, int ITEMS> TN_DEVICE void top_k_rows(const tni_top_k &p) {
    typedef typename record_for<S>::type R;
    extern __shared__ __align__(16) words shared[];
    collection<R, ITEMS> &c = *(collection<R, ITEMS> *)shared;
    const i64 row = blockIdx.x / p.slices, slice = blockIdx.x - row * p.slices;
    const i64 begin = p.n * slice / p.slices & ~15ll; /* at multiples of 16 bytes, where rows are */
    const i64 end = slice + 1 == p.slices ? p.n : p.n * (slice + 1) / p.slices & ~15ll;
    row_source<S, ITEMS> from;
    from.x = (const S *)p.x + row * p.n;
    from.begin = (u32)begin;
    from.end = (u32)end;
    from.aligned = ((u64)(from.x + begin) & 15) == 0;
    collect<ITEMS>(c, from, (u32)p.k, p.rule);
    if (p.slices == 1) {
        write_row<S>(p, row, c.records);
    } else {
        R *found = (R *)p.found + (row * p.slices + slice) * p.k;
        for (u32 i = threadIdx.x; i < (u32)p.k; i += THREADS) found[i] = c.records[i];
    }
}

template <class S, int ITEMS> TN_DEVICE void top_k_slices(const tni_top_k &p) {
    typedef typename record_for<S>::type R;
    extern __shared__ __align__(16) words shared[];
    collection<R, ITEMS> &c = *(collection<R, ITEMS> *)shared;
    found_source<R, ITEMS> from;
    from.x = (const R *)p.found + (i64)blockIdx.x * p.slices * p.k;
    from.begin = 0;
    from.end = (u32)(p.slices * p.k);
    collect<ITEMS>(c, from, (u32)p.k, p.rule);
    write_row<S>(p, blockIdx.x, c.records);
}

#define TOP_K(S, ITEMS)                                                             \
    TN_ROW_KERNEL(top_k_rows_##S, THREADS, 3, tni_top_k, (top_k_rows<S, ITEMS>(p))) \
    TN_ROW_KERNEL(top_k_slices_##S, THREADS, 2, tni_top_k, (top_k_slices<S, 8>(p)))
TOP_K(u8, TNI_TOP_K_ITEMS)
TOP_K(u16, TNI_TOP_K_ITEMS)
TOP_K(u32, TNI_TOP_K_ITEMS)
TOP_K(u64, TNI_TOP_K_ITEMS / 2)
