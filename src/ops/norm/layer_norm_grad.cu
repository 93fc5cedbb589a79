/* The gradients of layer_norm: with xhat = (x - mean) * rstd and g = dy * gamma,
 *     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), dgamma = sum(dy * xhat), dbeta = sum(dy)
 * the means taken along rows, the sums over all of them. A block stays for many rows: a thread has the same columns in
 * each, so their sums stay in its registers, and x and dy are read once. In the end every block writes its sums, and a
 * small kernel adds them up in order. The next row is on its way through shared memory while one is worked on.
 *
 * Rows that no cluster holds are split: one kernel finds the two means of each piece, a second one writes dx, and a
 * third walks along the columns. */
#include "layer_norm.cuh"

#include "cuda/rows/row_kernels.cuh"
#include "cuda/rows/row_sums.cuh"

/* ---- a row ------------------------------------------------------------------------------------------------------- */

template <class T> struct place {
    const T *x, *dy;
    T *dx; /* NULL: not wanted */
};

template <class T> TN_DEVICE place<T> place_at(const tni_layer_norm_grad &p, i64 row) {
    i64 at[LAYER_NORM_GRAD_VIEWS];
    find_row(p.s.rows, row, at);
    return {(const T *)p.x + at[LAYER_NORM_GRAD_X], (const T *)p.dy + at[LAYER_NORM_GRAD_DY],
            p.dx ? (T *)p.dx + at[LAYER_NORM_GRAD_DX] : nullptr};
}

template <class A> struct moments { A mean, rstd; };

template <class A> TN_DEVICE moments<A> moments_at(const tni_layer_norm_grad &p, i64 row) {
    i64 at[LAYER_NORM_GRAD_VIEWS];
    find_row(p.s.rows, row, at);
    return {((const A *)p.mean)[at[LAYER_NORM_GRAD_MEAN]], ((const A *)p.rstd)[at[LAYER_NORM_GRAD_RSTD]]};
}

/* A thread's part of a row. */
template <class T, int V, int E> struct row_state {
    acc<T> xhat[E];
    row_part<T, V, E> dy;

    TN_MEMBER void set(const row_part<T, V, E> &x, const moments<acc<T>> &m) {
#pragma unroll
        for (int e = 0; e < E; e++) xhat[e] = (x.get(e) - m.mean) * m.rstd;
    }

    /* g and g * xhat, added up; first: where in the row the thread's elements count from. Piece by piece: gamma comes
     * from a nearby cache, and all of it at once would take many registers. */
    TN_MEMBER two<acc<T>> sums(const tni_layer_norm_grad &p, row_run g, i64 first, int n) const {
        two<acc<T>> s = {0, 0};
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            acc<T> gamma[V];
            if (piece_at<V>(g, k) >= n) break;
            asm volatile("" ::: "memory");
            read_vector(p.gamma, first + piece_at<V>(g, k), n - piece_at<V>(g, k), (acc<T>)1, gamma);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const acc<T> a = dy.get(k * V + j) * gamma[j];
                s.a += a;
                s.b = tn_fma(a, xhat[k * V + j], s.b);
            }
        }
        return s;
    }

    /* dx, from the two means; what was xhat is lost */
    TN_MEMBER void store(const tni_layer_norm_grad &p, T *dx, const two<acc<T>> &mean, acc<T> rstd, row_run g,
                         i64 first, int n) {
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            acc<T> gamma[V];
            if (piece_at<V>(g, k) >= n) break;
            asm volatile("" ::: "memory");
            read_vector(p.gamma, first + piece_at<V>(g, k), n - piece_at<V>(g, k), (acc<T>)1, gamma);
#pragma unroll
            for (int j = 0; j < V; j++) {
                acc<T> &a = xhat[k * V + j];
                a = tn_fma(-a, mean.b, tn_fma(dy.get(k * V + j), gamma[j], -mean.a)) * rstd;
            }
        }
        store_part<T, V>(dx + first, n, g, xhat);
    }
};

/* dgamma and dbeta of a thread's columns; what is not in the row has dy = 0 */
template <class A, int E> struct column_sums {
    A dgamma[E], dbeta[E];

    TN_MEMBER void clear() {
#pragma unroll
        for (int e = 0; e < E; e++) dgamma[e] = dbeta[e] = 0;
    }
    template <class T, int V> TN_MEMBER void add(const row_state<T, V, E> &row) {
#pragma unroll
        for (int e = 0; e < E; e++) {
            dgamma[e] = tn_fma(row.dy.get(e), row.xhat[e], dgamma[e]);
            dbeta[e] += row.dy.get(e);
        }
    }
};

/* Where part `part` of the sums of dgamma begins; those of dbeta are `parts` further. */
template <class A> TN_DEVICE A *sums_at(const tni_layer_norm_grad &p, i64 part) {
    return (A *)p.sums + part * p.s.rows.n;
}

TN_DEVICE bool wants_sums(const tni_layer_norm_grad &p) {
    return p.dgamma.data || p.dbeta.data;
}

/* A row's part in everything. */
template <class T, int V, int E, class G>
TN_DEVICE void finish_row(const tni_layer_norm_grad &p, row_state<T, V, E> &state, i64 row, acc<T> rstd,
                          column_sums<acc<T>, E> &sums, row_run g, G &group, int n) {
    typedef acc<T> A;
    if (wants_sums(p)) sums.add(state);
    if (!p.dx) return;
    const A share = 1 / (A)p.s.rows.n;
    two<A> mean = group.add(state.sums(p, g, 0, n));
    mean.a *= share;
    mean.b *= share;
    hide(row);
    state.store(p, place_at<T>(p, row).dx, mean, rstd, g, 0, n);
}

/* ---- rows that are held in registers ----------------------------------------------------------------------------- */

/* The sums of the groups of a block, added up in their order, to its part. shared: (2, n) */
template <class A, int V, int E>
TN_DEVICE void add_groups(const tni_layer_norm_grad &p, const column_sums<A, E> &sums, row_run g, A *shared) {
    const int n = (int)p.s.rows.n, groups = blockDim.x / p.s.lanes, mine = threadIdx.x / p.s.lanes;
    for (int i = 0; i < groups; i++) {
        if (i == mine) {
#pragma unroll
            for (int e = 0; e < E; e++) {
                const int at = piece_at<V>(g, e / V) + e % V;
                if (at >= n) continue;
                shared[at] = (i ? shared[at] : 0) + sums.dgamma[e];
                shared[n + at] = (i ? shared[n + at] : 0) + sums.dbeta[e];
            }
        }
        __syncthreads();
    }
    A *to = sums_at<A>(p, blockIdx.x);
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        to[j] = shared[j];
        to[(i64)p.parts * n + j] = shared[n + j];
    }
}

/* x, dy, dx: (rows, n). `lanes` neighbouring lanes have a row at a time. */
template <class T, int V, int E> TN_DEVICE void layer_norm_grad_warp(const tni_layer_norm_grad &p) {
    typedef acc<T> A;
    const i64 groups = (i64)gridDim.x * (TNI_ROW_WARP_BLOCK / p.s.lanes);
    const i64 first = row_of_lanes(p.s.lanes);
    row_run g = run_of_lanes(p.s.lanes);
    const i64 count = p.s.rows.count, turns = ceil_div(count, groups);
    lane_sums group = {p.s.lanes};
    column_sums<A, E> sums;
    sums.clear();
    for (i64 turn = 0; turn < turns; turn++) { /* as many for all lanes, which take part in each exchange */
        const i64 row = first + turn * groups;
        hide(g.first);
        const i64 real = row < count ? row : 0;
        const int n = row < count ? (int)p.s.rows.n : 0;
        const place<T> at = place_at<T>(p, real);
        const moments<A> m = moments_at<A>(p, real);
        row_part<T, V, E> x;
        row_state<T, V, E> state;
        load_two(x, at.x, state.dy, at.dy, n, g);
        state.set(x, m);
        finish_row(p, state, real, m.rstd, sums, g, group, n);
    }
    if (wants_sums(p)) add_groups<A, V>(p, sums, g, (A *)dynamic_shared());
}

template <class T, int V, int E> TN_DEVICE void pin_all(const row_part<T, V, E> &part) {
#pragma unroll
    for (int k = 0; k < E / V; k++) pin(part.get(k * V));
}

/* Asks for x and dy of a row, if there is one; either way it is one more group of copies. */
template <class T, int V, int E>
TN_DEVICE void fetch_two(const tni_layer_norm_grad &p, i64 row, i64 count, int n, row_run g, words *slots, u32 pieces) {
    if (row < count) {
        const place<T> from = place_at<T>(p, row);
        row_feed<T, V, E>{slots}.fetch(from.x, n, g);
        row_feed<T, V, E>{slots + pieces}.fetch(from.dy, n, g);
    }
    copy_commit();
}

/* A block has a row at a time, or a cluster of blocks has. */
template <class T, int V> TN_DEVICE void layer_norm_grad_block(const tni_layer_norm_grad &p) {
    constexpr int E = held<T>::most / 2;
    typedef acc<T> A;
    __shared__ sum_exchange<A> shared[2];
    const int n = (int)p.s.rows.n, blocks = p.s.cluster;
    const bool fed = TN_COPY_ASYNC && p.s.fed;
    const i64 step = gridDim.x / blocks;
    row_run g = run_of_warp<E / V>((int)(cluster_rank() * blockDim.x + threadIdx.x));
    block_sums<A> group = {shared, blocks, 0};
    /* two rows ahead: (2 rows, x and dy, E / V pieces, threads) */
    const u32 pieces = E / V * blockDim.x;
    words *slots = dynamic_shared() + threadIdx.x;
    column_sums<A, E> sums;
    sums.clear();
    const i64 count = p.s.rows.count;
    i64 row = cluster_index();
    for (u32 ahead = 0; ahead < 2 && fed; ahead++)
        fetch_two<T, V, E>(p, row + ahead * step, count, n, g, slots + ahead * 2 * pieces, pieces);
    if (blocks > 1) {
        cluster_begin();
        cluster_wait();
    }
    moments<A> next = moments_at<A>(p, row);
    for (u32 turn = 0; row < count; row += step, turn ^= 1) {
        const moments<A> m = next;
        row_part<T, V, E> x;
        row_state<T, V, E> state;
        hide(g.first);
        if (fed) {
            words *from = slots + turn * 2 * pieces;
            copy_wait_for<1>();
            row_feed<T, V, E>{from}.take_arrived(x);
            row_feed<T, V, E>{from + pieces}.take_arrived(state.dy);
            pin_all(x); /* out of shared memory, before something else comes in */
            pin_all(state.dy);
            fetch_two<T, V, E>(p, row + 2 * step, count, n, g, from, pieces);
        } else {
            const place<T> at = place_at<T>(p, row);
            load_two(x, at.x, state.dy, at.dy, n, g);
        }
        if (row + step < count) next = moments_at<A>(p, row + step);
        state.set(x, m);
        finish_row(p, state, row, m.rstd, sums, g, group, n);
    }
    if (!wants_sums(p)) return;
    /* of this block's columns only: the other blocks of the cluster have the others */
    A *to = sums_at<A>(p, cluster_index());
#pragma unroll
    for (int e = 0; e < E; e++) {
        const int j = piece_at<V>(g, e / V) + e % V;
        if (j >= n) continue;
        to[j] = sums.dgamma[e];
        to[(i64)p.parts * n + j] = sums.dbeta[e];
    }
}

/* The common case, from sm_90 on: everything is aligned and without gaps, rows are of whole pieces, gamma is there in
 * type W, and dx and sums are wanted. Several rows ahead are on their way into a ring in shared memory, which costs no
 * registers: those hold the sums of a thread's columns, and up to 16 elements of gamma and of a row. More of a row stay
 * in the ring until dx is written, and only then does another row take their place. */
template <class T, class W, int E> TN_DEVICE void grad_ring(const tni_layer_norm_grad &p) {
    constexpr int V = pack<T>::VL;
    constexpr bool HELD = E <= 16;
    static_assert(TNI_ROW_BLOCK / 32 == 16, "half a warp adds up what the warps have");
    typedef acc<T> A;
    __shared__ u64 arrived[LAYER_NORM_RING_STAGES];
    __shared__ two<A> shared[2][16];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const int n = (int)p.s.rows.n, count = (int)p.s.rows.count, step = (int)gridDim.x, stages = p.stages;
    const u32 bytes = (u32)n * sizeof(T), pitch = round_up(bytes, 128u);
    const row_run own = {(int)threadIdx.x, (int)blockDim.x};
    const A share = 1 / (A)n;
    /* (stages, x and dy, pitch). What arrives at multiples of 128 bytes arrives a fifth sooner. */
    u8 *ring = (u8 *)round_up((u64)dynamic_shared(), (u64)128);
    const auto fetch = [&](int row, int stage) { /* by one thread */
                                                 if (row >= count) return;
                                                 u8 *to = ring + (u32)stage * 2 * pitch;
                                                 bulk_expect(arrived + stage, 2 * bytes);
                                                 bulk_fetch(to, (const T *)p.x + (i64)row * n, bytes, arrived + stage);
                                                 bulk_fetch(to + pitch, (const T *)p.dy + (i64)row * n, bytes,
                                                            arrived + stage);
    };
    int row = (int)blockIdx.x;
    if (threadIdx.x == 0) {
        bulk_prepare(arrived, stages);
        for (int s = 0; s < stages; s++) fetch(row + s * step, s);
    }
    A gamma[E], dgamma[E], dbeta[E];
    const auto open_gamma = [&](int k) {
        vec<W, V> g = {};
        if (piece_at<V>(own, k) < n) g = *(const vec<W, V> *)((const W *)p.gamma.data + piece_at<V>(own, k));
#pragma unroll
        for (int j = 0; j < V; j++) gamma[k * V + j] = (A)widen(g.v[j]);
    };
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        if (HELD) open_gamma(k);
#pragma unroll
        for (int j = 0; j < V; j++) dgamma[k * V + j] = dbeta[k * V + j] = 0;
    }
    moments<A> next = {((const A *)p.mean)[row], ((const A *)p.rstd)[row]};
    __syncthreads();
    int stage = 0, turn = 0;
    u32 phase = 0;
    for (; row < count; row += step, turn ^= 1) {
        const moments<A> m = next;
        bulk_wait(arrived + stage, phase);
        const words *x = (const words *)(ring + (u32)stage * 2 * pitch) + threadIdx.x;
        if (row + step < count) next = {((const A *)p.mean)[row + step], ((const A *)p.rstd)[row + step]};
        A xhat[E], g[E], d[V];
        /* piece k of a thread's elements: dy, then xhat and dy * gamma; where there is nothing, all are 0 */
        const auto open = [&](int k) {
            words px = {}, pd = {};
            A mean = 0;
            if (!HELD) open_gamma(k);
            if (piece_at<V>(own, k) < n) {
                px = load_shared(x + k * blockDim.x);
                pd = load_shared(x + k * blockDim.x + pitch / 16);
                mean = m.mean;
            }
#pragma unroll
            for (int j = 0; j < V; j++) {
                d[j] = widen_word<T>(pd, j);
                xhat[k * V + j] = (widen_word<T>(px, j) - mean) * m.rstd;
                g[k * V + j] = d[j] * gamma[k * V + j];
            }
        };
        two<A> sums = {0, 0};
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            open(k);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const int e = k * V + j;
                dgamma[e] = tn_fma(d[j], xhat[e], dgamma[e]);
                dbeta[e] += d[j];
                sums.a += g[e];
                sums.b = tn_fma(g[e], xhat[e], sums.b);
            }
        }
        sums.a = reduce_lanes<take_sum, 32>(sums.a);
        sums.b = reduce_lanes<take_sum, 32>(sums.b);
        if (lane == 0) shared[turn][threadIdx.x / 32] = sums;
        __syncthreads(); /* and everybody has taken this row out of the ring, or the one before */
        if (HELD && threadIdx.x == 0) fetch(row + stages * step, stage);
        if (!HELD && threadIdx.x == 0 && row >= step) fetch(row + (stages - 1) * step, stage ? stage - 1 : stages - 1);
        sums = lane % 16 < warps ? shared[turn][lane % 16] : two<A>{0, 0};
        sums.a = reduce_lanes<take_sum, 16>(sums.a) * share;
        sums.b = reduce_lanes<take_sum, 16>(sums.b) * share;
        T *to = (T *)p.dx + (i64)row * n;
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            if (!HELD) open(k);
#pragma unroll
            for (int j = k * V; j < k * V + V; j++) g[j] = tn_fma(-xhat[j], sums.b, g[j] - sums.a) * m.rstd;
            if (piece_at<V>(own, k) < n) store_pack(to + piece_at<V>(own, k), narrow_pack<T>(g + k * V));
        }
        if (++stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
    let_next_begin();
    A *sums = sums_at<A>(p, blockIdx.x);
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        if (piece_at<V>(own, k) >= n) break;
#pragma unroll
        for (int j = 0; j < V; j += pack<A>::VL) {
            A *to = sums + piece_at<V>(own, k) + j;
            store_pack(to, narrow_pack<A>(dgamma + k * V + j));
            store_pack(to + (i64)p.parts * n, narrow_pack<A>(dbeta + k * V + j));
        }
    }
}

/* ---- rows that are split ----------------------------------------------------------------------------------------- */

/* Block b has piece b % splits of row b / splits, and walks through it by tiles of what its threads hold. */
template <class T, int V> TN_DEVICE void layer_norm_grad_split(const tni_layer_norm_grad &p) {
    constexpr int E = held<T>::most / 2, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ sum_exchange<A> shared[2];
    const i64 begin = (i64)(blockIdx.x % p.s.splits) * p.s.split;
    const i64 end = min(begin + p.s.split, p.s.rows.n);
    const place<T> at = place_at<T>(p, blockIdx.x / p.s.splits);
    const moments<A> m = moments_at<A>(p, blockIdx.x / p.s.splits);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    two<A> all = {0, 0};
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> x;
        row_state<T, V, E> state;
        load_two(x, at.x + first, state.dy, at.dy + first, n, g);
        state.set(x, m);
        const two<A> tile = state.sums(p, g, first, n);
        all.a += tile.a;
        all.b += tile.b;
    }
    block_sums<A> group = {shared, 1, 0};
    all = group.add(all);
    if (threadIdx.x == 0) ((two<A> *)p.partials)[blockIdx.x] = all;
}

template <class T, int V> TN_DEVICE void layer_norm_grad_write(const tni_layer_norm_grad &p) {
    constexpr int E = held<T>::most / 2, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ sum_exchange<A> shared[2];
    const i64 row = blockIdx.x / p.s.splits, begin = (i64)(blockIdx.x % p.s.splits) * p.s.split;
    const i64 end = min(begin + p.s.split, p.s.rows.n);
    const place<T> at = place_at<T>(p, row);
    const moments<A> m = moments_at<A>(p, row);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    two<A> mean = {0, 0};
    for (int i = threadIdx.x; i < p.s.splits; i += TNI_ROW_BLOCK) {
        const two<A> piece = ((const two<A> *)p.partials)[row * p.s.splits + i];
        mean.a += piece.a;
        mean.b += piece.b;
    }
    block_sums<A> group = {shared, 1, 0};
    mean = group.add(mean);
    mean.a /= (A)p.s.rows.n;
    mean.b /= (A)p.s.rows.n;
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> x;
        row_state<T, V, E> state;
        load_two(x, at.x + first, state.dy, at.dy + first, n, g);
        state.set(x, m);
        __syncthreads(); /* dx may be x or dy: others have loaded what is written at the edges of a warp */
        state.store(p, at.dx, mean, m.rstd, g, first, n);
    }
}

/* Neighbouring threads have neighbouring columns, of part_rows rows: block b has part b % parts. */
template <class T> TN_DEVICE void layer_norm_grad_columns(const tni_layer_norm_grad &p) {
    typedef acc<T> A;
    const i64 part = blockIdx.x % p.parts, column = (i64)(blockIdx.x / p.parts) * blockDim.x + threadIdx.x;
    const i64 end = min((part + 1) * p.part_rows, p.s.rows.count);
    A dgamma = 0, dbeta = 0;
    if (column >= p.s.rows.n) return;
#pragma unroll 4
    for (i64 row = part * p.part_rows; row < end; row++) {
        const place<T> at = place_at<T>(p, row);
        const moments<A> m = moments_at<A>(p, row);
        const A dy = widen(at.dy[column]);
        dgamma = tn_fma(dy, (widen(at.x[column]) - m.mean) * m.rstd, dgamma);
        dbeta += dy;
    }
    sums_at<A>(p, part)[column] = dgamma;
    sums_at<A>(p, part + p.parts)[column] = dbeta;
}

/* ---- the sums of all parts --------------------------------------------------------------------------------------- */

/* A warp's lanes have neighbouring columns; the warps of a block share the parts, and add up in order. */
template <class A> TN_DEVICE A add_parts(const A *sums, i64 column, const tni_layer_norm_grad &p, A *shared) {
    const int lane = threadIdx.x % LAYER_NORM_ADD_COLUMNS, way = threadIdx.x / LAYER_NORM_ADD_COLUMNS;
    A sum = 0;
#pragma unroll 8
    for (int i = way; i < p.parts && column < p.s.rows.n; i += LAYER_NORM_ADD_WAYS)
        sum += sums[i * p.s.rows.n + column];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int w = 1; w < LAYER_NORM_ADD_WAYS && way == 0; w++) sum += shared[w * LAYER_NORM_ADD_COLUMNS + lane];
    __syncthreads();
    return sum;
}

template <class A> TN_DEVICE void grad_add(const tni_layer_norm_grad &p) {
    __shared__ A shared[LAYER_NORM_ADD_COLUMNS * LAYER_NORM_ADD_WAYS];
    const i64 column = (i64)blockIdx.x * LAYER_NORM_ADD_COLUMNS + threadIdx.x % LAYER_NORM_ADD_COLUMNS;
    const bool writes = threadIdx.x < LAYER_NORM_ADD_COLUMNS && column < p.s.rows.n;
    wait_for_last();
    if (p.dgamma.data) {
        const A sum = add_parts(sums_at<A>(p, 0), column, p, shared);
        if (writes) write_number(p.dgamma, column, sum);
    }
    if (p.dbeta.data) {
        const A sum = add_parts(sums_at<A>(p, p.parts), column, p, shared);
        if (writes) write_number(p.dbeta, column, sum);
    }
}

TN_ROW_KERNEL(layer_norm_grad_add_f32, LAYER_NORM_ADD_COLUMNS *LAYER_NORM_ADD_WAYS, 1, tni_layer_norm_grad,
              grad_add<float>(p))
TN_ROW_KERNEL(layer_norm_grad_add_f64, LAYER_NORM_ADD_COLUMNS *LAYER_NORM_ADD_WAYS, 1, tni_layer_norm_grad,
              grad_add<double>(p))

/* ---- instances --------------------------------------------------------------------------------------------------- */

/* A thread holds two rows, so half as many elements of each. */
#define WARP(T, name, E) TN_WARP_KERNEL(layer_norm_grad, T, name, E, TNI_ROW_WARP_BLOCK)
#define LAYER_NORM_GRAD(T, name)                                                                   \
    WARP(T, name, 8)                                                                               \
    TN_BLOCK_KERNEL(layer_norm_grad, block, T, name, 1)                                            \
    TN_BLOCK_KERNEL(layer_norm_grad, split, T, name, 1)                                            \
    TN_BLOCK_KERNEL(layer_norm_grad, write, T, name, 1)                                            \
    TN_ROW_KERNEL(layer_norm_grad_columns_##name, LAYER_NORM_GRAD_COLUMNS, 1, tni_layer_norm_grad, \
                  layer_norm_grad_columns<T>(p))
TN_FOR_TYPES(LAYER_NORM_GRAD)

#define LONGER(T, name) WARP(T, name, 16)
TN_FOR_SMALL_TYPES(LONGER)

/* W: the type of gamma; each: elements of a thread */
#define RING(T, name, W, w, each)                                                                    \
    TN_ROW_KERNEL(layer_norm_grad_ring_##each##_##name##_##w, TNI_ROW_BLOCK, 1, tni_layer_norm_grad, \
                  (grad_ring<T, W, each>(p)))
#define RING_HALF(T, name, W, w) \
    RING(T, name, W, w, 16)      \
    RING(T, name, W, w, 32)

RING_HALF(f16, f16, f16, f16)
RING_HALF(f16, f16, float, f32)
RING_HALF(bf16, bf16, bf16, bf16)
RING_HALF(bf16, bf16, float, f32)
RING(float, f32, float, f32, 8)
RING(float, f32, float, f32, 16)
