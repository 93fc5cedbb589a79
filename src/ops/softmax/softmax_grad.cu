/* The gradient of softmax: dx = scale * y * (dy - sum(y * dy)). As in softmax.cu, rows that a group of threads can hold
 * in registers are read once; longer ones are split, one kernel adding up the pieces and a second one writing. */
#include "softmax.cuh"

/* ---- sums -------------------------------------------------------------------------------------------------------- */

template <class A> struct exchange { A sum[32], cluster[TNI_ROW_CLUSTER]; };

template <class A> TN_DEVICE A add_shared(const A *sum, int count) {
    const int lane = threadIdx.x % 32;
    return reduce_lanes<take_sum, 32>(lane < count ? sum[lane] : (A)0);
}

template <class A> TN_DEVICE A add_block(A sum, exchange<A> &x) {
    sum = reduce_lanes<take_sum, 32>(sum);
    if (threadIdx.x % 32 == 0) x.sum[threadIdx.x / 32] = sum;
    __syncthreads();
    return add_shared(x.sum, blockDim.x / 32);
}

/* Over the blocks of a cluster, which have all arrived once since they began. */
template <class A> TN_DEVICE A add_cluster(A sum, exchange<A> &x, int blocks) {
    cluster_wait();
    if ((int)threadIdx.x < blocks) store_cluster(&x.cluster[cluster_rank()], threadIdx.x, sum);
    cluster_arrive();
    cluster_wait();
    return add_shared(x.cluster, blocks);
}

/* ---- a thread's part of a row ------------------------------------------------------------------------------------ */

template <class T> struct place {
    const T *y, *dy;
    T *dx;
};

template <class T> TN_DEVICE place<T> place_at(const tni_softmax_grad &p, i64 row, i64 first) {
    i64 at[SOFTMAX_GRAD_VIEWS];
    find_row(p.s.rows, row, at);
    return {(const T *)p.y + at[SOFTMAX_GRAD_Y] + first, (const T *)p.dy + at[SOFTMAX_GRAD_DY] + first,
            (T *)p.dx + at[SOFTMAX_GRAD_DX] + first};
}

template <class T, int V, int E> struct two_parts {
    row_part<T, V, E> y, dy;

    TN_MEMBER void load(const place<T> &at, int n, row_run g) {
        load_two(y, at.y, dy, at.dy, n, g);
    }
    /* What is not there is 0, and adds 0. */
    TN_MEMBER acc<T> sum() const {
        acc<T> even = 0, odd = 0;
#pragma unroll
        for (int e = 0; e < E; e += 2) {
            even = tn_fma(y.get(e), dy.get(e), even);
            odd = tn_fma(y.get(e + 1), dy.get(e + 1), odd);
        }
        return even + odd;
    }
    TN_MEMBER void finish(acc<T> sum, acc<T> scale, acc<T> (&dx)[E]) const {
#pragma unroll
        for (int e = 0; e < E; e++) dx[e] = scale * y.get(e) * (dy.get(e) - sum);
    }
};

/* ---- rows that are held in registers ----------------------------------------------------------------------------- */

/* y, dy, dx: (rows, n). `lanes` neighbouring lanes have a row, of which each has E elements. */
template <class T, int V, int E> TN_DEVICE void softmax_grad_warp(const tni_softmax_grad &p) {
    const i64 row = row_of_lanes(p.s.lanes);
    const row_run g = run_of_lanes(p.s.lanes);
    const bool there = row < p.s.rows.count; /* lanes without a row take part in the exchange */
    const int n = there ? (int)p.s.rows.n : 0;
    const place<T> at = place_at<T>(p, there ? row : 0, 0);
    two_parts<T, V, E> part;
    part.load(at, n, g);
    const acc<T> sum = reduce_some_lanes<take_sum>(part.sum(), p.s.lanes);
    acc<T> dx[E];
    part.finish(sum, number<acc<T>>(p.scale), dx);
    store_part<T, V>(at.dx, n, g, dx);
}

/* A block has a row, or a cluster of blocks has. */
template <class T, int V> TN_DEVICE void softmax_grad_block(const tni_softmax_grad &p) {
    constexpr int E = held<T>::most;
    __shared__ exchange<acc<T>> shared;
    const int blocks = p.s.cluster, n = (int)p.s.rows.n;
    if (blocks > 1) cluster_begin();
    const row_run g = run_of_warp<E / V>((int)(cluster_rank() * blockDim.x + threadIdx.x));
    const place<T> at = place_at<T>(p, cluster_index(), 0);
    two_parts<T, V, E> part;
    part.load(at, n, g);
    acc<T> sum = add_block(part.sum(), shared), dx[E];
    if (blocks > 1) sum = add_cluster(sum, shared, blocks);
    part.finish(sum, number<acc<T>>(p.scale), dx);
    store_part<T, V>(at.dx, n, g, dx);
}

/* ---- rows that are split ----------------------------------------------------------------------------------------- */

template <class T, int V> TN_DEVICE void softmax_grad_split(const tni_softmax_grad &p) {
    constexpr int E = held<T>::most, TILE = TNI_ROW_BLOCK * E;
    __shared__ exchange<acc<T>> shared;
    const split_walk w = split_of(p.s);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    acc<T> sum = 0;
    for (i64 first = w.first; first < w.end; first += TILE) {
        two_parts<T, V, E> part;
        part.load(place_at<T>(p, w.row, first), (int)min(w.end - first, (i64)TILE), g);
        sum += part.sum();
    }
    sum = add_block(sum, shared);
    if (threadIdx.x == 0) ((acc<T> *)p.partials)[blockIdx.x] = sum;
}

template <class T, int V> TN_DEVICE void softmax_grad_write(const tni_softmax_grad &p) {
    constexpr int E = held<T>::most, TILE = TNI_ROW_BLOCK * E;
    __shared__ exchange<acc<T>> shared;
    const split_walk w = split_of(p.s);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    acc<T> sum = 0;
    for (int i = threadIdx.x; i < p.s.splits; i += TNI_ROW_BLOCK)
        sum += ((const acc<T> *)p.partials)[w.row * p.s.splits + i];
    sum = add_block(sum, shared);
    for (i64 first = w.first; first < w.end; first += TILE) {
        const int n = (int)min(w.end - first, (i64)TILE);
        const place<T> at = place_at<T>(p, w.row, first);
        two_parts<T, V, E> part;
        part.load(at, n, g);
        acc<T> dx[E];
        part.finish(sum, number<acc<T>>(p.scale), dx);
        __syncthreads(); /* dx may be y or dy: others have loaded what is written at the edges of a warp */
        store_part<T, V>(at.dx, n, g, dx);
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

template <class T> struct column : column_spot { place<T> at; };

template <class T> TN_DEVICE column<T> column_at(const tni_softmax_grad &p, i64 block) {
    column<T> c;
    (column_spot &)c = spot_of(p.s, block);
    c.at = place_at<T>(p, c.row, c.beside);
    return c;
}

template <class T, int E> struct column_parts {
    acc<T> y[E], dy[E];

    TN_MEMBER void load(const tni_softmax_grad &p, const column<T> &c, i64 first, i64 end) {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const i64 i = first + c.way + (i64)e * p.s.ways;
            const bool there = c.there && i < end;
            y[e] = widen(there ? c.at.y[i * p.s.step[SOFTMAX_GRAD_Y]] : T());
            dy[e] = widen(there ? c.at.dy[i * p.s.step[SOFTMAX_GRAD_DY]] : T());
        }
    }
    TN_MEMBER acc<T> sum() const {
        acc<T> sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++) sum = tn_fma(y[e], dy[e], sum);
        return sum;
    }
    TN_MEMBER void store(const tni_softmax_grad &p, const column<T> &c, i64 first, i64 end, acc<T> sum) const {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const i64 i = first + c.way + (i64)e * p.s.ways;
            const acc<T> dx = number<acc<T>>(p.scale) * y[e] * (dy[e] - sum);
            if (c.there && i < end) narrow(dx, c.at.dx[i * p.s.step[SOFTMAX_GRAD_DX]]);
        }
    }
};

struct join_sums {
    template <class A> TN_MEMBER void operator()(A &a, A b) const {
        a += b;
    }
};

template <class T> TN_DEVICE void softmax_grad_columns(const tni_softmax_grad &p) {
    __shared__ acc<T> shared[1][1024];
    const column<T> c = column_at<T>(p, blockIdx.x);
    column_parts<T, TNI_COLUMN_PART> part;
    part.load(p, c, 0, p.s.rows.n);
    part.store(p, c, 0, p.s.rows.n, join_ways(part.sum(), c, p.s.ways, shared, join_sums()));
}

/* Long columns are split, as long rows are: block b has piece b % splits of its columns. */
template <class T> TN_DEVICE void softmax_grad_columns_split(const tni_softmax_grad &p) {
    constexpr int E = TNI_COLUMN_PART;
    __shared__ acc<T> shared[1][1024];
    const split_walk w = split_of(p.s);
    const column<T> c = column_at<T>(p, w.row);
    acc<T> sum = 0;
    for (i64 first = w.first; first < w.end; first += (i64)p.s.ways * E) {
        column_parts<T, E> part;
        part.load(p, c, first, w.end);
        sum += part.sum();
    }
    sum = join_ways(sum, c, p.s.ways, shared, join_sums());
    if (c.there && c.way == 0) ((acc<T> *)p.partials)[c.index * p.s.splits + blockIdx.x % p.s.splits] = sum;
}

template <class T> TN_DEVICE void softmax_grad_columns_write(const tni_softmax_grad &p) {
    constexpr int E = TNI_COLUMN_PART;
    __shared__ acc<T> shared[1][1024];
    const split_walk w = split_of(p.s);
    const column<T> c = column_at<T>(p, w.row);
    acc<T> sum = 0;
    for (int i = c.way; i < p.s.splits && c.there; i += p.s.ways)
        sum += ((const acc<T> *)p.partials)[c.index * p.s.splits + i];
    sum = join_ways(sum, c, p.s.ways, shared, join_sums());
    for (i64 first = w.first; first < w.end; first += (i64)p.s.ways * E) {
        column_parts<T, E> part;
        part.load(p, c, first, w.end);
        part.store(p, c, first, w.end, sum);
    }
}

/* ---- short rows -------------------------------------------------------------------------------------------------- */

/* y, dy: (rows, n), without gaps. A thread has whole rows to itself. */
template <class T> TN_DEVICE void softmax_grad_tile(const tni_softmax_grad &p) {
    const int n = (int)p.s.rows.n;
    const i64 first = (i64)blockIdx.x * p.s.tile, left = p.s.rows.count - first;
    const int rows = left < p.s.tile ? (int)left : p.s.tile;
    T *y = (T *)dynamic_shared(), *dy = y + p.s.tile * n;
    load_tile((const T *)p.y + first * n, y, rows * n);
    load_tile((const T *)p.dy + first * n, dy, rows * n);
    __syncthreads();
    for (int r = threadIdx.x; r < rows; r += TNI_TILE_THREADS) {
        acc<T> sum = 0;
#pragma unroll 4
        for (int i = r * n; i < r * n + n; i++) sum = tn_fma(widen(y[i]), widen(dy[i]), sum);
#pragma unroll 4
        for (int i = r * n; i < r * n + n; i++)
            narrow(number<acc<T>>(p.scale) * widen(y[i]) * (widen(dy[i]) - sum), dy[i]);
    }
    __syncthreads();
    store_tile((T *)p.dx + first * n, dy, rows * n);
}

/* Longer ones, a warp for each: of up to 32 * E elements, lane l has elements l, l + 32, … */
template <class T, int E> TN_DEVICE void softmax_grad_tile_warp(const tni_softmax_grad &p) {
    typedef acc<T> A;
    const int n = (int)p.s.rows.n, lane = threadIdx.x % 32;
    const i64 first = (i64)blockIdx.x * p.s.tile, left = p.s.rows.count - first;
    const int rows = left < p.s.tile ? (int)left : p.s.tile;
    T *y = (T *)dynamic_shared(), *dy = y + p.s.tile * n;
    load_tile((const T *)p.y + first * n, y, rows * n);
    load_tile((const T *)p.dy + first * n, dy, rows * n);
    __syncthreads();
    for (int r = threadIdx.x / 32; r < rows; r += TNI_TILE_THREADS / 32) {
        const T *from = y + r * n + lane;
        T *row = dy + r * n + lane;
        A d[E], sum = 0;
#pragma unroll
        for (int i = 0; i < E; i++) {
            if (32 * i + lane >= n) break;
            d[i] = widen(row[32 * i]);
            sum = tn_fma(widen(from[32 * i]), d[i], sum);
        }
        sum = reduce_lanes<take_sum, 32>(sum);
#pragma unroll
        for (int i = 0; i < E; i++) {
            if (32 * i + lane >= n) break;
            narrow(number<A>(p.scale) * widen(from[32 * i]) * (d[i] - sum), row[32 * i]);
        }
    }
    __syncthreads();
    store_tile((T *)p.dx + first * n, dy, rows * n);
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

#define SOFTMAX_GRAD(T, name)                                                                    \
    TN_WARP_KERNELS(softmax_grad, T, name, TNI_ROW_WARP_BLOCK)                                   \
    TN_BLOCK_KERNEL(softmax_grad, block, T, name, 1)                                             \
    TN_BLOCK_KERNEL(softmax_grad, split, T, name, 1)                                             \
    TN_BLOCK_KERNEL(softmax_grad, write, T, name, 1)                                             \
    SOFTMAX_TILE_KERNELS(softmax_grad, T, name, sizeof(T) == 8 ? 4 : 10, sizeof(T) == 8 ? 3 : 7) \
    SOFTMAX_COLUMN_KERNELS(softmax_grad, T, name)
TN_FOR_TYPES(SOFTMAX_GRAD)
