/* softmax. Rows that a group of threads can hold in registers are read once: some lanes of a warp, a block, or a
 * cluster whose blocks exchange one pair of numbers. A thread takes the exponentials of its elements relative to its
 * own largest one, so the whole row needs one exchange: of pairs (largest score, sum of exponentials). Longer rows are
 * split: one kernel finds a pair for each piece, a second one adds them up and writes.
 *
 * Scores are x * scale * log2(e), exponentials powers of 2. A row whose sum is 0, infinite or NaN comes out as NaN
 * where it is kept and 0 where it is masked. */
#include "softmax.cuh"

/* ---- pairs ------------------------------------------------------------------------------------------------------ */

/* sum: of 2^(score - most); most is -inf where there is nothing. */
template <class A> struct pair { A most, sum; };

/* What is subtracted from scores whose largest is `most`: never -inf, which would turn what is -inf into NaN. */
template <class A> TN_DEVICE A shift_of(A most) {
    return most == -infinity<A>() ? 0 : most;
}

/* A pair's sum relative to another shift. */
template <class A> TN_DEVICE A rescaled(const pair<A> &p, A shift) {
    return p.sum * power_of_2(p.most - shift);
}

template <class A> TN_DEVICE void join(pair<A> &a, const pair<A> &b) {
    const A most = take_max::of(a.most, b.most), shift = shift_of(most);
    a.sum = rescaled(a, shift) + rescaled(b, shift);
    a.most = most;
}

template <class A> TN_DEVICE pair<A> join_lanes(const pair<A> &p, int lanes) {
    const A most = reduce_some_lanes<take_max>(p.most, lanes);
    return {most, reduce_some_lanes<take_sum>(rescaled(p, shift_of(most)), lanes)};
}

/* What blocks exchange: a pair for each warp, and one for each block of the cluster. */
template <class A> struct exchange {
    A most[32], sum[32], cluster_most[TNI_ROW_CLUSTER], cluster_sum[TNI_ROW_CLUSTER];
};

/* The pair of the first `count` <= 32 in shared memory. */
template <class A> TN_DEVICE pair<A> join_shared(const A *most, const A *sum, int count) {
    const int lane = threadIdx.x % 32;
    const pair<A> none = {-infinity<A>(), 0};
    return join_lanes(lane < count ? pair<A>{most[lane], sum[lane]} : none, 32);
}

template <class A> TN_DEVICE pair<A> join_block(pair<A> p, exchange<A> &x) {
    p = join_lanes(p, 32);
    if (threadIdx.x % 32 == 0) {
        x.most[threadIdx.x / 32] = p.most;
        x.sum[threadIdx.x / 32] = p.sum;
    }
    __syncthreads();
    return join_shared(x.most, x.sum, blockDim.x / 32);
}

/* Over the blocks of a cluster, which have all arrived once since they began. */
template <class A> TN_DEVICE pair<A> join_cluster(pair<A> p, exchange<A> &x, int blocks) {
    cluster_wait();
    if ((int)threadIdx.x < blocks) {
        store_cluster(&x.cluster_most[cluster_rank()], threadIdx.x, p.most);
        store_cluster(&x.cluster_sum[cluster_rank()], threadIdx.x, p.sum);
    }
    cluster_arrive();
    cluster_wait();
    return join_shared(x.cluster_most, x.cluster_sum, blocks);
}

/* ---- a thread's part of a row ------------------------------------------------------------------------------------ */

/* Where a row, or a piece of one, is. */
template <class T> struct place {
    const T *x;
    const u8 *mask; /* NULL: none */
    T *y;
    int n;     /* elements */
    int limit; /* only those below can take part */
};

/* Elements from `first` on, `n` of them, of row `row`. */
template <class T> TN_DEVICE place<T> place_at(const tni_softmax &p, i64 row, i64 first, int n) {
    i64 at[SOFTMAX_VIEWS];
    find_row(p.s.rows, row, at);
    const i64 limit = p.causal ? p.visible + at[SOFTMAX_QUERY] - first : n;
    return {(const T *)p.x + at[SOFTMAX_X] + first,
            p.mask ? (const u8 *)p.mask + at[SOFTMAX_MASK] + first * p.mask_step : nullptr,
            (T *)p.y + at[SOFTMAX_Y] + first, n,
            (int)(limit < 0   ? 0
                  : limit < n ? limit
                              : n)};
}

/* Which of a thread's elements take part. */
template <int V, int E, class T> TN_DEVICE u32 kept_of(const place<T> &at, i64 mask_step, row_run g) {
    const u32 below = elements_below<V, E>(at.limit, g);
    u32 masked = 0;
    if (at.mask) {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const i64 i = piece_at<V>(g, e / V) + e % V;
            const bool keep = below >> e & 1 ? at.mask[i * mask_step] : true;
            masked |= (u32)!keep << e;
        }
    }
    return below & ~masked;
}

/* The largest (with a factor below 0: the smallest) of E numbers. */
template <int E, class A> TN_DEVICE A extreme_of(const A (&a)[E], bool smallest) {
    A r = a[0], q = a[E / 2];
    if (smallest) {
#pragma unroll
        for (int e = 1; e < E / 2; e++) {
            r = -take_max::of(-r, -a[e]);
            q = -take_max::of(-q, -a[E / 2 + e]);
        }
        return -take_max::of(-r, -q);
    }
#pragma unroll
    for (int e = 1; e < E / 2; e++) {
        r = take_max::of(r, a[e]);
        q = take_max::of(q, a[E / 2 + e]);
    }
    return take_max::of(r, q);
}

/* The same of a thread's elements as they are in memory: 16-bit types two at a time. */
template <class T, int V, int E> struct raw_extreme {
    static TN_MEMBER acc<T> of(const row_part<T, V, E> &part, bool smallest) {
        acc<T> a[E];
#pragma unroll
        for (int i = 0; i < E; i++) a[i] = part.get(i);
        return extreme_of(a, smallest);
    }
};
template <class T, int E> struct raw_extreme<T, 8, E> {
    static TN_MEMBER float of(const row_part<T, 8, E> &part, bool smallest) {
        return smallest ? fold(part, true) : fold(part, false);
    }
    static TN_MEMBER float fold(const row_part<T, 8, E> &part, bool smallest) {
        words r = part.raw[0];
#pragma unroll
        for (int k = 1; k < E / 8; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) r.w[j] = extreme_pair(T(), r.w[j], part.raw[k].w[j], smallest);
        }
        r.w[0] = extreme_pair(T(), r.w[0], r.w[2], smallest);
        r.w[0] = extreme_pair(T(), extreme_pair(T(), r.w[1], r.w[3], smallest), r.w[0], smallest);
        const float a = widen_word<T>(r, 0), b = widen_word<T>(r, 1);
        return smallest ? fminf(a, b) : fmaxf(a, b);
    }
};

/* From elements to exponentials relative to `most`, the largest of their scores. */
template <int E, class A> TN_DEVICE pair<A> exponentials_of(A (&e)[E], A most, A factor) {
    const A shift = shift_of(most);
    A sum = 0, more = 0;
#pragma unroll
    for (int i = 0; i < E; i++) e[i] = power_of_2(tn_fma(e[i], factor, -shift));
#pragma unroll
    for (int i = 0; i < E; i += 2) {
        sum += e[i];
        more += e[i + 1];
    }
    return {most, sum + more};
}

/* From a thread's elements to exponentials relative to its own largest score; those not kept are 0. */
template <class T, int V, int E>
TN_DEVICE pair<acc<T>> take_exponentials(const row_part<T, V, E> &part, u32 kept, acc<T> factor, acc<T> (&e)[E]) {
    typedef acc<T> A;
#pragma unroll
    for (int i = 0; i < E; i++) e[i] = part.get(i);
    if (kept == all_of<E>::bits) return exponentials_of(e, raw_extreme<T, V, E>::of(part, factor < 0) * factor, factor);
    const A none = factor < 0 ? infinity<A>() : -infinity<A>();
    A sum = 0;
#pragma unroll
    for (int i = 0; i < E; i++) e[i] = kept >> i & 1 ? e[i] : none;
    const A most = kept ? extreme_of(e, factor < 0) * factor : -infinity<A>();
    exponentials_of(e, most, factor);
#pragma unroll
    for (int i = 0; i < E; i++) {
        e[i] = kept >> i & 1 ? e[i] : 0;
        sum += e[i];
    }
    return {most, sum};
}

/* e times what makes the row's exponentials add up to 1. */
template <int E, class A> TN_DEVICE void normalise(A (&e)[E], u32 kept, const pair<A> &own, const pair<A> &row) {
    const A by = power_of_2(own.most - shift_of(row.most)) / row.sum;
#pragma unroll
    for (int i = 0; i < E; i++) e[i] *= by;
    if (kept != all_of<E>::bits) {
#pragma unroll
        for (int i = 0; i < E; i++) e[i] = kept >> i & 1 ? e[i] : 0;
    }
}

/* ---- short rows -------------------------------------------------------------------------------------------------- */

/* One row in shared memory, from scores to what they come to. */
template <class T> TN_DEVICE void softmax_of(T *row, int n, acc<T> factor) {
    typedef acc<T> A;
    A most = -infinity<A>(), sum = 0;
    if (n == 1) { /* 1, or NaN */
        narrow(widen(row[0]) * factor - widen(row[0]) * factor + 1, row[0]);
        return;
    }
#pragma unroll 4
    for (int i = 0; i < n; i++) most = take_max::of(most, widen(row[i]) * factor);
    const A shift = shift_of(most);
#pragma unroll 4
    for (int i = 0; i < n; i++) sum += power_of_2(tn_fma(widen(row[i]), factor, -shift));
    const A by = 1 / sum;
#pragma unroll 4
    for (int i = 0; i < n; i++) narrow(power_of_2(tn_fma(widen(row[i]), factor, -shift)) * by, row[i]);
}

/* x: (rows, n), without gaps. */
template <class T> TN_DEVICE void softmax_tile(const tni_softmax &p) {
    T *tile = (T *)dynamic_shared();
    const int n = (int)p.s.rows.n;
    const i64 first = (i64)blockIdx.x * p.s.tile, left = p.s.rows.count - first;
    const int rows = left < p.s.tile ? (int)left : p.s.tile;
    load_tile((const T *)p.x + first * n, tile, rows * n);
    __syncthreads();
    for (int r = threadIdx.x; r < rows; r += TNI_TILE_THREADS) softmax_of(tile + r * n, n, number<acc<T>>(p.factor));
    __syncthreads();
    store_tile((T *)p.y + first * n, tile, rows * n);
}

/* Longer ones, a warp for each: of up to 32 * E elements, lane l has elements l, l + 32, … */
template <class T, int E> TN_DEVICE void softmax_tile_warp(const tni_softmax &p) {
    typedef acc<T> A;
    T *tile = (T *)dynamic_shared();
    const int n = (int)p.s.rows.n, lane = threadIdx.x % 32;
    const i64 first = (i64)blockIdx.x * p.s.tile, left = p.s.rows.count - first;
    const int rows = left < p.s.tile ? (int)left : p.s.tile;
    const A factor = number<A>(p.factor), none = factor < 0 ? infinity<A>() : -infinity<A>();
    load_tile((const T *)p.x + first * n, tile, rows * n);
    __syncthreads();
    for (int r = threadIdx.x / 32; r < rows; r += TNI_TILE_THREADS / 32) {
        T *row = tile + r * n + lane;
        A e[E], sum = 0;
#pragma unroll
        for (int i = 0; i < E; i++) e[i] = 32 * i + lane < n ? widen(row[32 * i]) : none;
        const A most = reduce_lanes<take_max, 32>(extreme_of(e, factor < 0) * factor), shift = shift_of(most);
#pragma unroll
        for (int i = 0; i < E; i++) {
            if (32 * i >= n) break; /* all lanes agree */
            e[i] = power_of_2(tn_fma(e[i], factor, -shift));
            if (32 * i + lane < n) sum += e[i];
        }
        const A by = 1 / reduce_lanes<take_sum, 32>(sum);
#pragma unroll
        for (int i = 0; i < E; i++) {
            if (32 * i + lane < n) narrow(e[i] * by, row[32 * i]);
        }
    }
    __syncthreads();
    store_tile((T *)p.y + first * n, tile, rows * n);
}

/* ---- rows that are held in registers ----------------------------------------------------------------------------- */

/* x: (rows, n). `lanes` neighbouring lanes have a row, of which each has E elements. */
template <class T, int V, int E> TN_DEVICE void softmax_warp(const tni_softmax &p) {
    typedef acc<T> A;
    const i64 row = row_of_lanes(p.s.lanes);
    const row_run g = run_of_lanes(p.s.lanes);
    const bool there = row < p.s.rows.count; /* lanes without a row take part in the exchange */
    const place<T> at = place_at<T>(p, there ? row : 0, 0, there ? (int)p.s.rows.n : 0);
    row_part<T, V, E> part;
    part.load(at.x, at.limit, g);
    const u32 kept = kept_of<V, E>(at, p.mask_step, g);
    A e[E];
    const pair<A> own = take_exponentials(part, kept, number<A>(p.factor), e);
    normalise(e, kept, own, join_lanes(own, p.s.lanes));
    store_part<T, V>(at.y, at.n, g, e);
}

/* A block has a row, or a cluster of blocks has. */
template <class T, int V> TN_DEVICE void softmax_block(const tni_softmax &p) {
    constexpr int E = held<T>::most;
    typedef acc<T> A;
    __shared__ exchange<A> shared;
    const int blocks = p.s.cluster;
    if (blocks > 1) cluster_begin();
    const row_run g = run_of_warp<E / V>((int)(cluster_rank() * blockDim.x + threadIdx.x));
    const place<T> at = place_at<T>(p, cluster_index(), 0, (int)p.s.rows.n);
    row_part<T, V, E> part;
    part.load(at.x, at.limit, g);
    const u32 kept = kept_of<V, E>(at, p.mask_step, g);
    A e[E];
    const pair<A> own = take_exponentials(part, kept, number<A>(p.factor), e);
    pair<A> row = join_block(own, shared);
    if (blocks > 1) row = join_cluster(row, shared, blocks);
    normalise(e, kept, own, row);
    store_part<T, V>(at.y, at.n, g, e);
}

/* The common case of a block for a row: nothing is masked, the factor is above 0, and rows are aligned, without gaps,
 * and as long as THREADS threads with E elements each. With little else to compute and to keep in registers more rows
 * fit onto an SM and pass through it sooner, and with them more of memory is on its way. Where there are many, a block
 * has ROWS. */
template <class T, int E, int THREADS, int ROWS> TN_DEVICE void softmax_full(const tni_softmax &p) {
    constexpr int V = pack<T>::VL, WARPS = THREADS / 32;
    typedef acc<T> A;
    __shared__ pair<A> shared[ROWS][WARPS];
    const i64 at = (i64)blockIdx.x * (ROWS * THREADS * E) + threadIdx.x * V;
    const i64 left = p.s.rows.count - (i64)blockIdx.x * ROWS; /* rows */
    const A factor = number<A>(p.factor);
    A e[ROWS][E];
    pair<A> own[ROWS];
    {
        row_part<T, V, E> part[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int k = 0; k < E / V; k++)
                part[r].raw[k] = load_words_if((const T *)p.x + at + (r * E + k * V) * THREADS, r == 0 || r < left);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < E; i++) e[r][i] = part[r].get(i);
            own[r] = exponentials_of(e[r], raw_extreme<T, V, E>::of(part[r], false) * factor, factor);
            const pair<A> warp = join_lanes(own[r], 32);
            if (threadIdx.x % 32 == 0) shared[r][threadIdx.x / 32] = warp;
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const pair<A> row = join_lanes(shared[r][threadIdx.x % WARPS], WARPS);
        normalise(e[r], all_of<E>::bits, own[r], row);
        if (r > 0 && r >= left) continue;
#pragma unroll
        for (int k = 0; k < E / V; k++)
            store_pack((T *)p.y + at + (r * E + k * V) * THREADS, narrow_pack<T>(e[r] + k * V));
    }
}

/* ---- rows that are split ----------------------------------------------------------------------------------------- */

template <class T, int V> TN_DEVICE void softmax_split(const tni_softmax &p) {
    constexpr int E = held<T>::most;
    typedef acc<T> A;
    __shared__ exchange<A> shared;
    const split_walk w = split_of(p.s);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    pair<A> own = {-infinity<A>(), 0};
    for (i64 first = w.first; first < w.end; first += TNI_ROW_BLOCK * E) {
        const i64 left = w.end - first;
        const place<T> at = place_at<T>(p, w.row, first, (int)min(left, (i64)(TNI_ROW_BLOCK * E)));
        row_part<T, V, E> part;
        part.load(at.x, at.limit, g);
        A e[E];
        join(own, take_exponentials(part, kept_of<V, E>(at, p.mask_step, g), number<A>(p.factor), e));
    }
    own = join_block(own, shared);
    if (threadIdx.x == 0) ((pair<A> *)p.partials)[blockIdx.x] = own;
}

template <class T, int V> TN_DEVICE void softmax_write(const tni_softmax &p) {
    constexpr int E = held<T>::most;
    typedef acc<T> A;
    __shared__ exchange<A> shared;
    const split_walk w = split_of(p.s);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    pair<A> row = {-infinity<A>(), 0};
    for (int i = threadIdx.x; i < p.s.splits; i += TNI_ROW_BLOCK)
        join(row, ((const pair<A> *)p.partials)[w.row * p.s.splits + i]);
    row = join_block(row, shared);
    const A shift = shift_of(row.most), by = 1 / row.sum, factor = number<A>(p.factor);
    for (i64 first = w.first; first < w.end; first += TNI_ROW_BLOCK * E) {
        const i64 left = w.end - first;
        const place<T> at = place_at<T>(p, w.row, first, (int)min(left, (i64)(TNI_ROW_BLOCK * E)));
        row_part<T, V, E> part;
        part.load(at.x, at.limit, g);
        const u32 kept = kept_of<V, E>(at, p.mask_step, g);
        A e[E];
#pragma unroll
        for (int i = 0; i < E; i++) {
            e[i] = power_of_2(tn_fma(part.get(i), factor, -shift)) * by;
            if (!(kept >> i & 1)) e[i] = 0;
        }
        __syncthreads(); /* y may be x: others have loaded what is written at the edges of a warp */
        store_part<T, V>(at.y, at.n, g, e);
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

template <class T> struct column : column_spot {
    const T *x;
    const u8 *mask;
    T *y;
};

template <class T> TN_DEVICE column<T> column_at(const tni_softmax &p, const column_spot &spot) {
    column<T> c;
    (column_spot &)c = spot;
    i64 at[SOFTMAX_VIEWS];
    find_row(p.s.rows, c.row, at);
    c.x = (const T *)p.x + at[SOFTMAX_X] + c.beside;
    c.y = (T *)p.y + at[SOFTMAX_Y] + c.beside;
    c.mask = p.mask ? (const u8 *)p.mask + at[SOFTMAX_MASK] + c.beside * p.s.across_mask : nullptr;
    return c;
}

/* A thread's E elements of a column from `first` on, before `end`; bits of those that take part. */
template <class T, int E>
TN_DEVICE u32 load_column(const tni_softmax &p, const column<T> &c, i64 first, i64 end, row_part<T, 1, E> &part) {
    u32 below = 0, masked = 0;
#pragma unroll
    for (int e = 0; e < E; e++) {
        const i64 i = first + c.way + (i64)e * p.s.ways;
        const bool there = c.there && i < end;
        part.raw[e] = there ? c.x[i * p.s.step[SOFTMAX_X]] : T();
        below |= (u32)there << e;
    }
    if (c.mask) {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const i64 i = first + c.way + (i64)e * p.s.ways;
            const bool keep = below >> e & 1 ? c.mask[i * p.mask_step] : true;
            masked |= (u32)!keep << e;
        }
    }
    return below & ~masked;
}

template <class T, int E>
TN_DEVICE void store_column(const tni_softmax &p, const column<T> &c, i64 first, i64 end, const acc<T> (&e)[E]) {
#pragma unroll
    for (int k = 0; k < E; k++) {
        const i64 i = first + c.way + (i64)k * p.s.ways;
        if (c.there && i < end) narrow(e[k], c.y[i * p.s.step[SOFTMAX_Y]]);
    }
}

struct join_pairs {
    template <class A> TN_MEMBER void operator()(pair<A> &a, const pair<A> &b) const {
        join(a, b);
    }
};

/* A thread's elements from `first` on, once the column's pair is known. */
template <class T>
TN_DEVICE void write_column(const tni_softmax &p, const column<T> &c, i64 first, i64 end, const pair<acc<T>> &all) {
    constexpr int E = TNI_COLUMN_PART;
    typedef acc<T> A;
    const A shift = shift_of(all.most), by = 1 / all.sum, factor = number<A>(p.factor);
    row_part<T, 1, E> part;
    A e[E];
    const u32 kept = load_column(p, c, first, end, part);
#pragma unroll
    for (int i = 0; i < E; i++) {
        e[i] = power_of_2(tn_fma(part.get(i), factor, -shift)) * by;
        if (!(kept >> i & 1)) e[i] = 0;
    }
    store_column(p, c, first, end, e);
}

template <class T> TN_DEVICE void softmax_columns(const tni_softmax &p) {
    constexpr int E = TNI_COLUMN_PART;
    typedef acc<T> A;
    __shared__ pair<A> shared[1][1024];
    const column<T> c = column_at<T>(p, spot_of(p.s, blockIdx.x));
    row_part<T, 1, E> part;
    const u32 kept = load_column(p, c, 0, p.s.rows.n, part);
    A e[E];
    const pair<A> own = take_exponentials(part, kept, number<A>(p.factor), e);
    normalise(e, kept, own, join_ways(own, c, p.s.ways, shared, join_pairs()));
    store_column(p, c, 0, p.s.rows.n, e);
}

/* Longer columns are cut into pieces of 128 elements, which a cluster holds: a block has every `blocks`-th of
 * them. There are as many ways as a cluster has blocks, at most. */
template <class T> TN_DEVICE void softmax_columns_cluster(const tni_softmax &p) {
    constexpr int E = TNI_COLUMN_PART, PIECES = TNI_COLUMN_PIECES, WAYS = TNI_COLUMN_SPLIT_WAYS;
    constexpr int MOST = PIECES * TNI_ROW_CLUSTER / WAYS; /* pieces that a thread puts together in the end */
    typedef acc<T> A;
    __shared__ pair<A> shared[PIECES][1024];
    __shared__ A most[PIECES * TNI_ROW_CLUSTER][32], sum[PIECES * TNI_ROW_CLUSTER][32]; /* of all pieces */
    const int blocks = p.s.cluster, rank = (int)cluster_rank();
    const column<T> c = column_at<T>(p, spot_of(p.s, cluster_index()));
    row_part<T, 1, E> parts[PIECES];
    u32 kept[PIECES];
    A e[PIECES][E];
    pair<A> own[PIECES], piece[PIECES], all = {-infinity<A>(), 0};
    cluster_begin();
#pragma unroll
    for (int k = 0; k < PIECES; k++) kept[k] = load_column(p, c, (k * blocks + rank) * p.s.split, p.s.rows.n, parts[k]);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        piece[k] = own[k] = take_exponentials(parts[k], kept[k], number<A>(p.factor), e[k]);
    join_ways(piece, c, WAYS, shared, join_pairs());
    cluster_wait();
    if (c.way < blocks) { /* each way tells another block */
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            store_cluster(&most[k * blocks + rank][c.across], c.way, piece[k].most);
            store_cluster(&sum[k * blocks + rank][c.across], c.way, piece[k].sum);
        }
    }
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int m = 0; m < MOST; m++) {
        const int i = m * WAYS + c.way;
        if (i < p.s.splits) join(all, pair<A>{most[i][c.across], sum[i][c.across]});
    }
    all = join_ways(all, c, WAYS, shared, join_pairs());
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        normalise(e[k], kept[k], own[k], all);
        store_column(p, c, (k * blocks + rank) * p.s.split, p.s.rows.n, e[k]);
    }
}

/* The same, to the last bit, where there are so few columns that a block for each is sooner done. */
template <class T> TN_DEVICE void softmax_columns_few(const tni_softmax &p) {
    constexpr int E = TNI_COLUMN_PART, WAYS = TNI_COLUMN_SPLIT_WAYS;
    constexpr int GROUPS = SOFTMAX_FEW_THREADS / WAYS, MOST = TNI_COLUMN_PIECES * TNI_ROW_CLUSTER;
    constexpr int PIECES = MOST / GROUPS; /* of a thread */
    typedef acc<T> A;
    __shared__ pair<A> shared[PIECES][1024], pieces[MOST];
    const int group = (int)threadIdx.x / WAYS;
    const column<T> c = column_at<T>(p, spot_of(p.s, blockIdx.x, 1, (int)threadIdx.x % WAYS));
    row_part<T, 1, E> parts[PIECES];
    u32 kept[PIECES];
    A e[PIECES][E];
    pair<A> own[PIECES], piece[PIECES], all = {-infinity<A>(), 0};
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        kept[k] = load_column(p, c, (k * GROUPS + group) * p.s.split, p.s.rows.n, parts[k]);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        piece[k] = own[k] = take_exponentials(parts[k], kept[k], number<A>(p.factor), e[k]);
    join_ways(piece, c, WAYS, shared, join_pairs());
    if (c.way == 0) {
#pragma unroll
        for (int k = 0; k < PIECES; k++) pieces[k * GROUPS + group] = piece[k];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MOST; i += WAYS)
        if (i + c.way < p.s.splits) join(all, pieces[i + c.way]);
    all = join_ways(all, c, WAYS, shared, join_pairs());
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        normalise(e[k], kept[k], own[k], all);
        store_column(p, c, (k * GROUPS + group) * p.s.split, p.s.rows.n, e[k]);
    }
}

/* Long columns are split, as long rows are: block b has piece b % splits of its columns. */
template <class T> TN_DEVICE void softmax_columns_split(const tni_softmax &p) {
    constexpr int E = TNI_COLUMN_PART;
    typedef acc<T> A;
    __shared__ pair<A> shared[1][1024];
    const split_walk w = split_of(p.s);
    const column<T> c = column_at<T>(p, spot_of(p.s, w.row));
    pair<A> own = {-infinity<A>(), 0};
    for (i64 first = w.first; first < w.end; first += (i64)p.s.ways * E) {
        row_part<T, 1, E> part;
        A e[E];
        const u32 kept = load_column(p, c, first, w.end, part);
        join(own, take_exponentials(part, kept, number<A>(p.factor), e));
    }
    own = join_ways(own, c, p.s.ways, shared, join_pairs());
    if (c.there && c.way == 0) ((pair<A> *)p.partials)[c.index * p.s.splits + blockIdx.x % p.s.splits] = own;
}

template <class T> TN_DEVICE void softmax_columns_write(const tni_softmax &p) {
    constexpr int E = TNI_COLUMN_PART;
    typedef acc<T> A;
    __shared__ pair<A> shared[1][1024];
    const split_walk w = split_of(p.s);
    const column<T> c = column_at<T>(p, spot_of(p.s, w.row));
    pair<A> all = {-infinity<A>(), 0};
    for (int i = c.way; i < p.s.splits && c.there; i += p.s.ways)
        join(all, ((const pair<A> *)p.partials)[c.index * p.s.splits + i]);
    all = join_ways(all, c, p.s.ways, shared, join_pairs());
    for (i64 first = w.first; first < w.end; first += (i64)p.s.ways * E) write_column(p, c, first, w.end, all);
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* Blocks that an SM is to hold: of 512 threads; of those that take rows through shared memory, and of the longest
 * ones. */
template <class T> struct of_sm {
    static constexpr bool wide = sizeof(T) == 8;
    static constexpr int rows = wide ? 1 : 2, tiles = wide ? 4 : 10, long_tiles = wide ? 3 : 7;
};

#define SOFTMAX(T, name)                                                          \
    TN_WARP_KERNELS(softmax, T, name, TNI_ROW_WARP_BLOCK)                         \
    TN_BLOCK_KERNEL(softmax, block, T, name, of_sm<T>::rows)                      \
    TN_BLOCK_KERNEL(softmax, split, T, name, 1)                                   \
    TN_BLOCK_KERNEL(softmax, write, T, name, 1)                                   \
    SOFTMAX_TILE_KERNELS(softmax, T, name, of_sm<T>::tiles, of_sm<T>::long_tiles) \
    SOFTMAX_COLUMN_KERNELS(softmax, T, name)
TN_FOR_TYPES(SOFTMAX)

#define COLUMNS_CLUSTER(T, name)                                                                                  \
    TN_ROW_KERNEL(softmax_columns_cluster_##name, TNI_ROW_BLOCK, 1, tni_softmax, (softmax_columns_cluster<T>(p))) \
    TN_ROW_KERNEL(softmax_columns_few_##name, SOFTMAX_FEW_THREADS, 1, tni_softmax, (softmax_columns_few<T>(p)))
TN_FOR_SMALL_TYPES(COLUMNS_CLUSTER)

/* As many blocks as fill an SM, or half as many where each has two rows. */
template <int THREADS> struct full_blocks { static constexpr int one = 2048 / THREADS, two = one / 2; };

#define FULL(T, name, each, threads)                                                                \
    TN_ROW_KERNEL(softmax_full_##threads##_##name, threads, full_blocks<threads>::one, tni_softmax, \
                  (softmax_full<T, each, threads, 1>(p)))
#define FULL_AND_TWO(T, name, each, threads)                                                       \
    FULL(T, name, each, threads)                                                                   \
    TN_ROW_KERNEL(softmax_two_##threads##_##name, threads, full_blocks<threads>::two, tni_softmax, \
                  (softmax_full<T, each, threads, 2>(p)))
#define FULL_HALF(T, name) FULL_AND_TWO(T, name, 16, 128) FULL_AND_TWO(T, name, 16, 256) FULL_AND_TWO(T, name, 16, 512)

FULL_HALF(f16, f16)
FULL_HALF(bf16, bf16)
FULL(float, f32, 8, 256)
FULL(float, f32, 8, 512)
FULL(float, f32, 8, 1024)
