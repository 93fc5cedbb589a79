/* cross_entropy: loss, log-sum-exp and, where it is wanted, the gradient, all from one read of the logits. A row is
 * held in the registers of some lanes, a block or a cluster of blocks. Blocks that have many rows to do fetch the next
 * one into shared memory while they work on one, so that memory is never idle. Rows that no cluster holds are split:
 * one kernel finds what a second one needs to write.
 *
 * With m the largest logit and d = log(sum(exp(x - m))), log p[j] = x[j] - m - d: no large numbers cancel. A target
 * that is no class makes its loss and its gradient NaN. */
#include "cross_entropy.cuh"

#include "cuda/rows/row_kernels.cuh"

#define LOG2_E 1.4426950408889634074

/* ---- what is known of a part of a row ---------------------------------------------------------------------------- */

/* most: the largest logit; sum: of exp(x - most). With label smoothing, also less: the sum of weight * (base - x), base
 * being most, or 0 where that is -inf; and weights: their sum. */
template <class A> struct partial { A most, sum, less, weights; };

template <class A> TN_DEVICE A base_of(A most) {
    return most == -infinity<A>() ? 0 : most;
}

/* exp(x - base): exactly 1 where they are equal. */
template <class A> TN_DEVICE A exponential(A x, A base) {
    return power_of_2((x - base) * (A)LOG2_E);
}

/* What exponentials relative to `most` are multiplied by to be relative to the row's largest logit. */
template <class A> TN_DEVICE A rescale(A most, A row_most) {
    return exponential(most, base_of(row_most));
}

/* The threads of a group put together what they know. The first exchange is of the largest logit and the sum, the
 * second of what label smoothing needs. */
template <class A> struct exchange { A a[32], b[32], cluster_a[TNI_ROW_CLUSTER], cluster_b[TNI_ROW_CLUSTER]; };

template <class A> TN_DEVICE void join_lanes(partial<A> &p, int lanes) {
    const A most = reduce_some_lanes<take_max>(p.most, lanes);
    p.sum = reduce_some_lanes<take_sum>(p.sum * rescale(p.most, most), lanes);
    p.most = most;
}

/* From another base; never inf - inf. */
template <class A> TN_DEVICE void rebase(partial<A> &p, A from, A to) {
    p.less += p.weights * (base_of(to) - base_of(from));
}

template <class A> TN_DEVICE void join_less_lanes(partial<A> &p, int lanes) {
    p.less = reduce_some_lanes<take_sum>(p.less, lanes);
    p.weights = reduce_some_lanes<take_sum>(p.weights, lanes);
}

template <class A> TN_DEVICE void join(partial<A> &p, const A *most, const A *sum, int count) {
    const int lane = threadIdx.x % 32;
    p.most = lane < count ? most[lane] : -infinity<A>();
    p.sum = lane < count ? sum[lane] : 0;
    join_lanes(p, 32);
}

template <class A> TN_DEVICE void join_less(partial<A> &p, const A *less, const A *weights, int count) {
    const int lane = threadIdx.x % 32;
    p.less = lane < count ? less[lane] : 0;
    p.weights = lane < count ? weights[lane] : 0;
    join_less_lanes(p, 32);
}

struct lane_group {
    int lanes;

    template <class A> TN_MEMBER void join_all(partial<A> &p, bool smooth) {
        const A own = p.most;
        join_lanes(p, lanes);
        if (!smooth) return;
        rebase(p, own, p.most);
        join_less_lanes(p, lanes);
    }
};

/* shared: two of each exchange, in turns, so that a row's numbers are read before they are written over two rows
 * later. */
template <class A> struct block_group {
    exchange<A> *shared; /* (2, 2) */
    int blocks;
    u32 turn;

    TN_MEMBER void give(exchange<A> &x, A a, A b) {
        if (threadIdx.x % 32 == 0) {
            x.a[threadIdx.x / 32] = a;
            x.b[threadIdx.x / 32] = b;
        }
        __syncthreads();
    }
    TN_MEMBER void give_cluster(exchange<A> &x, A a, A b) {
        if ((int)threadIdx.x < blocks) {
            store_cluster(&x.cluster_a[cluster_rank()], threadIdx.x, a);
            store_cluster(&x.cluster_b[cluster_rank()], threadIdx.x, b);
        }
        cluster_arrive();
        cluster_wait();
    }
    TN_MEMBER void join_all(partial<A> &p, bool smooth) {
        exchange<A> &first = shared[turn % 2 * 2], &second = shared[turn % 2 * 2 + 1];
        const int warps = blockDim.x / 32;
        const A own = p.most;
        join_lanes(p, 32);
        give(first, p.most, p.sum);
        join(p, first.a, first.b, warps);
        if (blocks > 1) {
            give_cluster(first, p.most, p.sum);
            join(p, first.cluster_a, first.cluster_b, blocks);
        }
        if (smooth) {
            rebase(p, own, p.most);
            join_less_lanes(p, 32);
            give(second, p.less, p.weights);
            join_less(p, second.a, second.b, warps);
            if (blocks > 1) {
                give_cluster(second, p.less, p.weights);
                join_less(p, second.cluster_a, second.cluster_b, blocks);
            }
        }
        turn++;
    }
};

/* What is known of two parts, together. */
template <class A> TN_DEVICE void join(partial<A> &all, partial<A> part) {
    const A most = take_max::of(all.most, part.most);
    rebase(all, all.most, most);
    rebase(part, part.most, most);
    all.sum = all.sum * rescale(all.most, most) + part.sum * rescale(part.most, most);
    all.less += part.less;
    all.weights += part.weights;
    all.most = most;
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

template <class T> struct place {
    const T *x;
    T *gx; /* NULL: not wanted */
    i64 target, lse, loss;
};

template <class T> TN_DEVICE place<T> place_at(const tni_cross_entropy &p, i64 row) {
    i64 at[CROSS_ENTROPY_VIEWS];
    find_row(p.rows, row, at);
    return {(const T *)p.x + at[CROSS_ENTROPY_X], p.gx ? (T *)p.gx + at[CROSS_ENTROPY_GX] : nullptr,
            at[CROSS_ENTROPY_TARGET], at[CROSS_ENTROPY_LSE],
            p.reduction == CROSS_ENTROPY_NONE ? at[CROSS_ENTROPY_LOSS] : row};
}

TN_DEVICE i64 target_at(const tni_cross_entropy &p, i64 at) {
    return p.wide_target ? ((const i64 *)p.target)[at] : ((const int *)p.target)[at];
}

TN_DEVICE float weight_at(const tni_cross_entropy &p, i64 j) {
    return p.weight ? p.weight[j * p.weight_step] : 1.0f;
}

/* What a row's target says. */
template <class A> struct aim {
    i64 target;
    bool ignored, bad;
    A logit, weight; /* of the target */
};

/* The logit only for the thread that writes the loss. */
template <class T> TN_DEVICE aim<acc<T>> aim_at(const tni_cross_entropy &p, const T *x, i64 target, bool writes) {
    aim<acc<T>> a;
    a.target = target;
    a.ignored = a.target == p.ignore_index;
    a.bad = !a.ignored && (a.target < 0 || a.target >= p.rows.n);
    const bool read = !a.ignored && !a.bad;
    a.logit = read && writes ? widen(x[target]) : 0;
    a.weight = read ? weight_at(p, a.target) : 0;
    return a;
}

/* What gx is multiplied by: 1, or 1 / divisor of the mean. Every lane of the warp takes part. */
TN_DEVICE double unit_of(const tni_cross_entropy &p) {
    if (p.reduction != CROSS_ENTROPY_MEAN || !p.gx) return 1;
    const int lane = threadIdx.x % 32;
    return 1 / reduce_lanes<take_sum, 32>(lane < p.parts ? p.sums->divisor[lane] : 0.0);
}

/* gx[j] = by * e[j] - less * weight[j] with e[j] = exp(x[j] - most), and at the target `aimed` less: there it is put
 * together from what is left of 1 and the rest, because the two may nearly cancel. */
template <class A> struct slope {
    A by, less, aimed, share, rest; /* share: what makes e a probability */

    TN_MEMBER void scale(A by_what) {
        by *= by_what;
        share *= by_what;
        rest *= by_what;
    }
    TN_MEMBER A at_target(A e) const {
        return tn_fma(tn_fma(e, share, (A)-1), aimed, e * rest);
    }
};

template <class A>
TN_DEVICE slope<A> slope_of(const tni_cross_entropy &p, const partial<A> &row, const aim<A> &a, A lse, A unit) {
    const A aimed = number<A>(p.hard) * a.weight * unit, less = number<A>(p.soft) * unit;
    const A rest = (p.soft.f32 != 0 ? less * row.weights : 0) + 2 * number<A>(p.z) * lse * unit;
    const A nan = infinity<A>() - infinity<A>(), share = a.bad ? nan : 1 / row.sum;
    return {(aimed + rest) * share, less, aimed, share, rest * share};
}

/* By one thread of a row. */
template <class A, class T>
TN_DEVICE void write_loss(const tni_cross_entropy &p, const place<T> &at, const partial<A> &row, const aim<A> &a, A d) {
    /* nothing but -inf: NaN, as inf - inf is */
    const bool void_row = row.most == -infinity<A>() && p.rows.n > 0;
    const A most = void_row ? row.most - row.most : row.most, lse = most + d;
    A loss = number<A>(p.hard) * a.weight * ((most - a.logit) + d) + number<A>(p.z) * lse * lse;
    if (p.soft.f32 != 0) loss += number<A>(p.soft) * (row.less + row.weights * d);
    if (a.bad) loss = infinity<A>() - infinity<A>();
    ((A *)p.lse)[at.lse] = lse;
    ((A *)(p.reduction == CROSS_ENTROPY_NONE ? p.loss : p.losses))[at.loss] = a.ignored ? 0 : loss;
}

/* ---- a thread's part of a row ------------------------------------------------------------------------------------ */

/* The largest of a thread's elements; those at n and after do not count. */
template <class T, int V, int E> TN_DEVICE acc<T> largest_of(const row_part<T, V, E> &part, u32 there, acc<T> (&x)[E]) {
    typedef acc<T> A;
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = part.get(i);
    if (there != all_of<E>::bits) {
#pragma unroll
        for (int i = 0; i < E; i++) x[i] = there >> i & 1 ? x[i] : -infinity<A>();
    }
    A r = x[0], q = x[E / 2];
#pragma unroll
    for (int i = 1; i < E / 2; i++) {
        r = take_max::of(r, x[i]);
        q = take_max::of(q, x[E / 2 + i]);
    }
    return take_max::of(r, q);
}

/* What label smoothing needs of x, of which n are in the row; first: where in the row they begin. A piece is in the row
 * as a whole, or not at all. */
template <int V, int E, class A>
TN_DEVICE void weigh(const tni_cross_entropy &p, const A (&x)[E], row_group g, i64 first, int n, partial<A> &r) {
    const A base = base_of(r.most);
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int at = piece_at<V>(g, k);
        if (at >= n) break;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const A weight = weight_at(p, first + at + j);
            r.less += weight * (base - x[k * V + j]);
            r.weights += weight;
        }
    }
}

/* From elements to exponentials relative to `most`. */
template <int E, class A> TN_DEVICE A take_exponentials(A (&x)[E], A most) {
    const A base = base_of(most);
    A even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = exponential(x[i], base);
#pragma unroll
    for (int i = 0; i < E; i += 2) {
        even += x[i];
        odd += x[i + 1];
    }
    return even + odd;
}

/* From exponentials, relative to this thread's largest logit, to gx. */
template <int V, int E, class A>
TN_DEVICE void take_slopes(const tni_cross_entropy &p, A (&e)[E], const slope<A> &s, const aim<A> &a, row_group g,
                           i64 first, int n) {
    const i64 target = a.target - first;
    const bool mine = target >= 0 && target < n && (int)target / V % g.threads == g.rank;
    A aimed = 0;
    if (mine) {
#pragma unroll
        for (int i = 0; i < E; i++)
            if (piece_at<V>(g, i / V) + i % V == (int)target) aimed = s.at_target(e[i]);
    }
#pragma unroll
    for (int i = 0; i < E; i++) e[i] *= s.by;
    if (mine) {
#pragma unroll
        for (int i = 0; i < E; i++)
            if (piece_at<V>(g, i / V) + i % V == (int)target) e[i] = aimed;
    }
    if (p.soft.f32 != 0) {
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            const int at = piece_at<V>(g, k);
            if (at >= n) break;
#pragma unroll
            for (int j = 0; j < V; j++) e[k * V + j] -= rounded_product(s.less, (A)weight_at(p, first + at + j));
        }
    }
    if (a.ignored) {
#pragma unroll
        for (int i = 0; i < E; i++) e[i] = 0;
    }
}

/* The rest of a row after its elements are here: next() may fetch those of the next row. What is at the target is
 * looked up late, when the target itself has arrived, and used after the exchange. */
template <class T, int V, int E, class G, class Next>
TN_DEVICE void finish_row(const tni_cross_entropy &p, const row_part<T, V, E> &part, bool there_is_row,
                          const place<T> &at, i64 target, row_group g, G &group, int n, acc<T> unit, Next next) {
    typedef acc<T> A;
    const u32 there = elements_below<V, E>(n, g);
    A e[E];
    partial<A> row = {largest_of(part, there, e), 0, 0, 0};
    const A most = row.most;
    pin(most);
    next();
    if (p.soft.f32 != 0) weigh<V>(p, e, g, 0, n, row);
    row.sum = take_exponentials(e, most);
    const bool writes = g.rank == 0 && there_is_row;
    const aim<A> a = aim_at(p, at.x, target, writes);
    group.join_all(row, p.soft.f32 != 0);
    const A d = tn_log(row.sum);
    if (writes) write_loss(p, at, row, a, d);
    if (!p.gx) return;
    slope<A> s = slope_of(p, row, a, row.most + d, unit);
    s.scale(rescale(most, row.most));
    take_slopes<V>(p, e, s, a, g, 0, n);
    store_part<T, V>(at.gx, n, g, e);
}

/* ---- over all rows ----------------------------------------------------------------------------------------------- */

/* The sum of a block's threads, for all of them. shared: (32) */
TN_DEVICE double add_block(double a, double *shared) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    a = reduce_lanes<take_sum, 32>(a);
    if (lane == 0) shared[threadIdx.x / 32] = a;
    __syncthreads();
    return reduce_lanes<take_sum, 32>(lane < warps ? shared[lane] : 0.0);
}

/* A thread's share of the weights of the targets from row `first` on that are not ignored. */
TN_DEVICE double add_weights(const tni_cross_entropy &p, i64 first, i64 end) {
    double sum = 0;
    for (i64 row = first + threadIdx.x; row < end && p.reduction == CROSS_ENTROPY_MEAN; row += blockDim.x) {
        i64 at[CROSS_ENTROPY_VIEWS];
        find_row(p.rows, row, at);
        const i64 t = target_at(p, at[CROSS_ENTROPY_TARGET]);
        if (t != p.ignore_index && t >= 0 && t < p.rows.n) sum += weight_at(p, t);
    }
    return sum;
}

/* A thread's share of the losses of the rows from `first` on. */
template <class A> TN_DEVICE double add_losses(const tni_cross_entropy &p, i64 first, i64 end) {
    double sum = 0;
    for (i64 row = first + threadIdx.x; row < end; row += blockDim.x) sum += ((const A *)p.losses)[row];
    return sum;
}

template <class A> TN_DEVICE void write_total(const tni_cross_entropy &p, double sum, double divisor) {
    if (threadIdx.x == 0) *(A *)p.loss = (A)(p.reduction == CROSS_ENTROPY_MEAN ? sum / divisor : sum);
}

/* ---- rows that are held in registers ----------------------------------------------------------------------------- */

/* x, gx: (rows, v). `lanes` neighbouring lanes have a row, of which each has E elements. A block that is alone has all
 * rows, and does what comes before and after them. */
template <class T, int V, int E> TN_DEVICE void cross_entropy_warp(const tni_cross_entropy &p) {
    typedef acc<T> A;
    __shared__ double shared[2][32];
    const i64 row = row_of_lanes(p.lanes);
    const row_group g = {(int)threadIdx.x & (p.lanes - 1), p.lanes};
    const bool there = row < p.rows.count; /* lanes without a row take part in the exchange */
    const int n = there ? (int)p.rows.n : 0;
    const place<T> at = place_at<T>(p, there ? row : 0);
    const i64 target = there ? target_at(p, at.target) : p.ignore_index;
    row_part<T, V, E> part;
    part.load(at.x, n, g);
    lane_group group = {p.lanes};
    const double divisor = p.alone ? add_block(add_weights(p, 0, p.rows.count), shared[0]) : 1;
    const double unit = !p.alone ? unit_of(p) : p.reduction == CROSS_ENTROPY_MEAN ? 1 / divisor : 1;
    finish_row(p, part, there, at, target, g, group, n, (A)unit, [] {});
    if (!p.alone) return;
    __syncthreads();
    write_total<A>(p, add_block(add_losses<A>(p, 0, p.rows.count), shared[1]), divisor);
}

/* A block has a row at a time, or a cluster of blocks has. */
template <class T, int V> TN_DEVICE void cross_entropy_block(const tni_cross_entropy &p) {
    constexpr int E = held<T, V>::most;
    typedef acc<T> A;
    __shared__ exchange<A> shared[4];
    const int n = (int)p.rows.n;
    const bool fed = TN_COPY_ASYNC && V > 1 && p.fed;
    const i64 step = gridDim.x / p.cluster;
    row_group g = {(int)(cluster_rank() * blockDim.x + threadIdx.x), (int)(p.cluster * blockDim.x)};
    block_group<A> group = {shared, p.cluster, 0};
    row_feed<T, V, E> feed = {dynamic_shared() + threadIdx.x};
    i64 row = cluster_index();
    if (fed) feed.fetch(place_at<T>(p, row).x, n, g);
    if (p.cluster > 1) {
        cluster_begin();
        cluster_wait();
    }
    const A unit = (A)unit_of(p);
    for (; row < p.rows.count; row += step) {
        const place<T> at = place_at<T>(p, row);
        const i64 target = target_at(p, at.target);
        row_part<T, V, E> part;
        hide(g.rank);
        if (fed) {
            feed.take(part);
        } else {
            part.load(at.x, n, g);
        }
        finish_row(p, part, true, at, target, g, group, n, unit, [&] {
            if (fed && row + step < p.rows.count) feed.fetch(place_at<T>(p, row + step).x, n, g);
        });
    }
}

/* ---- long rows --------------------------------------------------------------------------------------------------- */

/* A block, or each block of a cluster, has up to CHUNKS chunks of a row, 16 bytes of each for every thread: most of
 * them in shared memory, the last few in registers. They stay there until the gradient is written; where a chunk was,
 * the same one of the next row is asked for at once, so that there is always something on its way. A thread only sees
 * what it has asked for itself: no barriers are needed. */
template <class T> struct resident {
    enum { SLOTS = CROSS_ENTROPY_SLOTS };
    words *slots; /* this thread's, blockDim.x apart */
    words held[CROSS_ENTROPY_CHUNKS - SLOTS];
    int begin; /* where this thread's part of a row begins */

    static TN_MEMBER int size() { /* elements of a chunk */
        return blockDim.x * pack<T>::VL;
    }
    /* Asks for chunk K of the row whose part of this thread is at x; where there is none, for nothing, so that the
     * groups of copies are always as many. */
    template <int K> TN_MEMBER void fetch(const tni_cross_entropy &p, const T *x, bool row_there) {
        const bool there = row_there && K < p.chunks && begin + K * size() < (int)p.rows.n;
        const T *from = there ? x + K * size() : (const T *)p.x;
        if constexpr (K < SLOTS) {
            if (p.fed)
                copy_async(slots + K * blockDim.x, from, there);
            else if (there)
                slots[K * blockDim.x] = words_from(from);
            copy_commit();
        } else {
            held[K - SLOTS] = p.fed ? load_words_if(from, there) : there ? words_from(from) : words{};
        }
    }
    /* Element by element, where x is not aligned. */
    static TN_MEMBER words words_from(const T *from) {
        pack<T> a;
#pragma unroll
        for (int j = 0; j < pack<T>::VL; j++) a.v[j] = from[j];
        return words_of(a);
    }
    template <int K> TN_MEMBER words get() const {
        if constexpr (K < SLOTS)
            return load_shared(slots + K * blockDim.x);
        else
            return held[K - SLOTS];
    }
    template <int K> TN_MEMBER bool has(const tni_cross_entropy &p) const {
        return K < p.chunks && begin + K * size() < (int)p.rows.n;
    }
};

template <class T, int K>
TN_DEVICE void fetch_chunks(const tni_cross_entropy &p, resident<T> &chunks, const T *x, bool row_there) {
    if constexpr (K < CROSS_ENTROPY_CHUNKS) {
        chunks.template fetch<K>(p, x, row_there);
        fetch_chunks<T, K + 1>(p, chunks, x, row_there);
    }
}

/* Puts VL more elements to what is known of a row. */
template <class T> TN_DEVICE void add_chunk(const words &raw, partial<acc<T>> &r) {
    constexpr int VL = pack<T>::VL;
    typedef acc<T> A;
    A x[VL], most = r.most;
#pragma unroll
    for (int i = 0; i < VL; i++) {
        x[i] = widen_word<T>(raw, i);
        most = take_max::of(most, x[i]);
    }
    const A base = base_of(most);
    A sum = r.sum * exponential(r.most, base), more = 0;
#pragma unroll
    for (int i = 0; i < VL; i += 2) {
        sum += exponential(x[i], base);
        more += exponential(x[i + 1], base);
    }
    r.sum = sum + more;
    r.most = most;
}

/* Chunks K and after, each as soon as it is there: behind it SLOTS - 1 - K others have been asked for. */
template <class T, int K>
TN_DEVICE void add_chunks(const tni_cross_entropy &p, const resident<T> &chunks, partial<acc<T>> &r) {
    if constexpr (K < CROSS_ENTROPY_CHUNKS) {
        if constexpr (K < resident<T>::SLOTS) copy_wait_for<resident<T>::SLOTS - 1 - K>();
        if (chunks.template has<K>(p)) add_chunk<T>(chunks.template get<K>(), r);
        add_chunks<T, K + 1>(p, chunks, r);
    }
}

/* gx of VL elements, from element j of the row on. */
template <class T>
TN_DEVICE void write_chunk(T *gx, const words &raw, int j, acc<T> base, const slope<acc<T>> &s, const aim<acc<T>> &a) {
    constexpr int VL = pack<T>::VL;
    acc<T> e[VL];
    const int target = (int)a.target; /* that is a class, or s is NaN */
#pragma unroll
    for (int i = 0; i < VL; i++) {
        e[i] = exponential(widen_word<T>(raw, i), base);
        e[i] = target == j + i ? s.at_target(e[i]) : e[i] * s.by;
        if (a.ignored) e[i] = 0;
    }
    if (is_aligned(gx)) {
        store_pack(gx, narrow_pack<T>(e));
    } else {
#pragma unroll
        for (int i = 0; i < VL; i++) narrow(e[i], gx[i]);
    }
}

/* Writes chunks K and after, and asks for those of the next row. */
template <class T, int K>
TN_DEVICE void write_chunks(const tni_cross_entropy &p, resident<T> &chunks, T *gx, acc<T> base, const slope<acc<T>> &s,
                            const aim<acc<T>> &a, const T *next, bool more) {
    if constexpr (K < CROSS_ENTROPY_CHUNKS) {
        const int j = chunks.begin + K * chunks.size();
        if (gx && chunks.template has<K>(p)) write_chunk(gx + j, chunks.template get<K>(), j, base, s, a);
        chunks.template fetch<K>(p, next, more);
        write_chunks<T, K + 1>(p, chunks, gx, base, s, a, next, more);
    }
}

template <class T> TN_DEVICE void cross_entropy_long(const tni_cross_entropy &p) {
    typedef acc<T> A;
    __shared__ exchange<A> shared[4];
    block_group<A> group = {shared, p.cluster, 0};
    resident<T> chunks;
    chunks.slots = dynamic_shared() + threadIdx.x;
    chunks.begin = (int)cluster_rank() * p.chunks * chunks.size() + (int)threadIdx.x * pack<T>::VL;
    const i64 step = gridDim.x / p.cluster;
    i64 row = cluster_index();
    fetch_chunks<T, 0>(p, chunks, place_at<T>(p, row).x + chunks.begin, true);
    if (p.cluster > 1) {
        cluster_begin();
        cluster_wait();
    }
    const A unit = (A)unit_of(p);
    for (; row < p.rows.count; row += step) {
        const place<T> at = place_at<T>(p, row);
        const i64 target = target_at(p, at.target);
        partial<A> r = {-infinity<A>(), 0, 0, 0};
        add_chunks<T, 0>(p, chunks, r);
        const bool writes = threadIdx.x == 0 && cluster_rank() == 0, more = row + step < p.rows.count;
        const aim<A> a = aim_at(p, at.x, target, writes);
        group.join_all(r, false);
        const A d = tn_log(r.sum);
        if (writes) write_loss(p, at, r, a, d);
        const slope<A> s = slope_of(p, r, a, r.most + d, unit);
        const T *next = more ? place_at<T>(p, row + step).x + chunks.begin : (const T *)p.x;
        write_chunks<T, 0>(p, chunks, at.gx, base_of(r.most), s, a, next, more);
    }
}

/* ---- rows that are split ----------------------------------------------------------------------------------------- */

/* Block b has piece b % splits of row b / splits, and walks through it by tiles of what its threads hold. Where the
 * piece is the row as a whole and no gradient is wanted, that is all there is to do. */
template <class T, int V> TN_DEVICE void cross_entropy_split(const tni_cross_entropy &p) {
    constexpr int E = held<T, V>::most, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ exchange<A> shared[4];
    const i64 begin = (i64)(blockIdx.x % p.splits) * p.split;
    const i64 end = min(begin + p.split, p.rows.n);
    const place<T> at = place_at<T>(p, blockIdx.x / p.splits);
    const row_group g = {(int)threadIdx.x, TNI_ROW_BLOCK};
    partial<A> all = {-infinity<A>(), 0, 0, 0};
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> part;
        part.load(at.x + first, n, g);
        const u32 there = elements_below<V, E>(n, g);
        A e[E];
        partial<A> tile = {largest_of(part, there, e), 0, 0, 0};
        if (p.soft.f32 != 0) weigh<V>(p, e, g, first, n, tile);
        tile.sum = take_exponentials(e, tile.most);
        join(all, tile);
    }
    block_group<A> group = {shared, 1, 0};
    group.join_all(all, p.soft.f32 != 0);
    if (threadIdx.x != 0) return;
    if (p.whole) {
        write_loss(p, at, all, aim_at(p, at.x, target_at(p, at.target), true), tn_log(all.sum));
    } else {
        ((partial<A> *)p.partials)[blockIdx.x] = all;
    }
}

/* Block b writes piece b % writers of row b / writers. */
template <class T, int V> TN_DEVICE void cross_entropy_write(const tni_cross_entropy &p) {
    constexpr int E = held<T, V>::most, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ exchange<A> shared[4];
    const i64 row_index = blockIdx.x / p.writers, begin = (i64)(blockIdx.x % p.writers) * p.split;
    const i64 end = min(begin + p.split, p.rows.n);
    const place<T> at = place_at<T>(p, row_index);
    const aim<A> a = aim_at(p, at.x, target_at(p, at.target), true);
    const row_group g = {(int)threadIdx.x, TNI_ROW_BLOCK};
    partial<A> row = {-infinity<A>(), 0, 0, 0};
    for (int i = threadIdx.x; i < p.splits; i += TNI_ROW_BLOCK)
        join(row, ((const partial<A> *)p.partials)[row_index * p.splits + i]);
    block_group<A> group = {shared, 1, 0};
    group.join_all(row, p.soft.f32 != 0);
    const A d = tn_log(row.sum), unit = (A)unit_of(p);
    if (blockIdx.x % p.writers == 0 && threadIdx.x == 0) write_loss(p, at, row, a, d);
    if (!p.gx) return;
    const slope<A> s = slope_of(p, row, a, row.most + d, unit);
    const A base = base_of(row.most);
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> part;
        part.load(at.x + first, n, g);
        A e[E];
#pragma unroll
        for (int i = 0; i < E; i++) e[i] = exponential(part.get(i), base);
        take_slopes<V>(p, e, s, a, g, first, n);
        store_part<T, V>(at.gx + first, n, g, e);
    }
}

/* ---- sums over all rows, of many --------------------------------------------------------------------------------- */

/* What the mean divides by, each block its part of the rows. */
TN_DEVICE void add_divisor(const tni_cross_entropy &p) {
    __shared__ double shared[32];
    const i64 first = blockIdx.x * p.part_rows;
    const i64 end = min(first + p.part_rows, p.rows.count);
    const double sum = add_block(add_weights(p, first, end), shared);
    if (threadIdx.x == 0) p.sums->divisor[blockIdx.x] = sum;
    if (threadIdx.x == 0 && blockIdx.x == 0) p.sums->arrived = 0;
}

/* The losses added up: each block its part of the rows, the last one to arrive the parts, in their order. */
template <class A> TN_DEVICE void cross_entropy_total(const tni_cross_entropy &p) {
    __shared__ double shared[32];
    __shared__ u32 arrived;
    const i64 first = blockIdx.x * p.part_rows;
    const i64 end = min(first + p.part_rows, p.rows.count);
    double sum = add_block(add_losses<A>(p, first, end), shared);
    if (p.ends_alone) { /* nobody has needed the divisor yet */
        __syncthreads();
        write_total<A>(p, sum, add_block(add_weights(p, first, end), shared));
        return;
    }
    if (threadIdx.x == 0) {
        p.sums->total[blockIdx.x] = sum;
        __threadfence();
        arrived = atomicAdd(&p.sums->arrived, 1u);
        __threadfence();
    }
    __syncthreads();
    if (arrived + 1 != gridDim.x || threadIdx.x >= 32) return;
    const bool there = (int)threadIdx.x < p.parts;
    volatile const double *total = p.sums->total;
    sum = reduce_lanes<take_sum, 32>(there ? total[threadIdx.x] : 0.0);
    const double divisor = reduce_lanes<take_sum, 32>(there ? p.sums->divisor[threadIdx.x] : 0.0);
    write_total<A>(p, sum, divisor);
}

TN_ROW_KERNEL(cross_entropy_divisor, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, add_divisor(p))
TN_ROW_KERNEL(cross_entropy_total_f32, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, cross_entropy_total<float>(p))
TN_ROW_KERNEL(cross_entropy_total_f64, CROSS_ENTROPY_BLOCK, 1, tni_cross_entropy, cross_entropy_total<double>(p))

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* `threads` of a block that is alone, at most; blocks of 512 threads that an SM is to hold. */
template <class T> struct row_sizes {
    static constexpr int threads = CROSS_ENTROPY_ALONE / (sizeof(T) == 8 ? 2 : 1), blocks = sizeof(T) == 8 ? 1 : 2;
};

#define CROSS_ENTROPY(T, name)                                            \
    TN_WARP_KERNELS(cross_entropy, T, name, row_sizes<T>::threads)        \
    TN_BLOCK_KERNELS(cross_entropy, block, T, name, row_sizes<T>::blocks) \
    TN_BLOCK_KERNELS(cross_entropy, split, T, name, row_sizes<T>::blocks) \
    TN_BLOCK_KERNELS(cross_entropy, write, T, name, 1)
TN_FOR_TYPES(CROSS_ENTROPY)

#define LONG(T, name) \
    TN_ROW_KERNEL(cross_entropy_long_##name, CROSS_ENTROPY_LONG, 1, tni_cross_entropy, (cross_entropy_long<T>(p)))
TN_FOR_SMALL_TYPES(LONG)
