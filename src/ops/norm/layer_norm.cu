/* layer_norm. A row is held in the registers of some lanes, a block or a cluster of blocks, so that x is read once: the
 * mean, then the squares of what differs from it, then the result. Blocks that have many rows to do fetch the next one
 * into shared memory while they work on one. Rows that no cluster holds are split: one kernel finds the moments of each
 * piece, a second one puts them together and writes. */
#include "layer_norm.cuh"

#include "cuda/rows/row_kernels.cuh"
#include "cuda/rows/row_sums.cuh"

/* ---- a row ------------------------------------------------------------------------------------------------------- */

template <class T> struct place {
    const T *x;
    T *y;
    i64 mean, rstd;
};

template <class T> TN_DEVICE place<T> place_at(const tni_layer_norm &p, i64 row) {
    i64 at[LAYER_NORM_VIEWS];
    find_row(p.s.rows, row, at);
    return {(const T *)p.x + at[LAYER_NORM_X], (T *)p.y + at[LAYER_NORM_Y], at[LAYER_NORM_MEAN], at[LAYER_NORM_RSTD]};
}

/* sum / n, given share = 1 / n: exact where that is, as for rows that are the same number all over. */
template <class A> TN_DEVICE A mean_of(A sum, int n, A share) {
    const A near = sum * share, rest = tn_fma(-near, (A)n, sum);
    return rest == rest ? tn_fma(rest, share, near) : near; /* infinity stays what it is */
}

/* a / b, the last bits aside. */
TN_DEVICE float quotient(float a, float b) {
    return __fdividef(a, b);
}

/* By one thread of a row. */
template <class T, class A> TN_DEVICE void write_moments(const tni_layer_norm &p, const place<T> &at, A mean, A rstd) {
    ((A *)p.mean)[at.mean] = mean;
    ((A *)p.rstd)[at.rstd] = rstd;
}

/* What a thread has read is widened again each time: as numbers it would take twice the registers. */
template <class T, int V, int E> TN_DEVICE void forget_widened(row_part<T, V, E> &part) {
#pragma unroll
    for (int k = 0; k < E / V; k++) {
#pragma unroll
        for (int j = 0; j < 4; j++) hide(part.raw[k].w[j]);
    }
}

template <class T, int V, int E> TN_DEVICE acc<T> sum_of(const row_part<T, V, E> &part) {
    acc<T> even = 0, odd = 0;
#pragma unroll
    for (int i = 0; i < E; i += 2) {
        even += part.get(i);
        odd += part.get(i + 1);
    }
    return even + odd;
}

/* The sum of squares of what differs from `mean`, where they are in the row. */
template <class T, int V, int E>
TN_DEVICE acc<T> squares_of(const row_part<T, V, E> &part, acc<T> mean, row_run g, int n) {
    acc<T> even = 0, odd = 0;
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int more = n - piece_at<V>(g, k);
        if (more >= V) {
#pragma unroll
            for (int j = 0; j < V; j += 2) {
                const acc<T> a = part.get(k * V + j) - mean, b = part.get(k * V + j + 1) - mean;
                even = tn_fma(a, a, even);
                odd = tn_fma(b, b, odd);
            }
        } else if (more > 0) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                const acc<T> a = part.get(k * V + j) - mean;
                if (j < more) even = tn_fma(a, a, even);
            }
        }
    }
    return even + odd;
}

/* x becomes y, as it is stored; first: where in the row the thread's elements count from. Piece by piece: gamma and
 * beta come from nearby caches, and all of them at once would take many registers. */
template <class T, int V, int E, class A>
TN_DEVICE void normalise(const tni_layer_norm &p, row_part<T, V, E> &part, A mean, A rstd, row_run g, i64 first,
                         int n) {
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int at = piece_at<V>(g, k);
        A y[V], by[V];
        if (at >= n) break;
        asm volatile("" ::: "memory");
        read_vector(p.gamma, first + at, n - at, (A)1, by);
#pragma unroll
        for (int j = 0; j < V; j++) y[j] = (part.get(k * V + j) - mean) * rstd * by[j];
        asm volatile("" ::: "memory");
        read_vector(p.beta, first + at, n - at, (A)0, by);
#pragma unroll
        for (int j = 0; j < V; j++) y[j] += by[j];
        part.raw[k] = words_of(narrow_pack<T>(y));
    }
}

/* The rest of a row, if it is there, after its elements are here: next() may fetch those of the next row. Where things
 * go is found again at the end: all the while, it would take registers. */
template <class T, int V, int E, class G, class Next>
TN_DEVICE void finish_row(const tni_layer_norm &p, row_part<T, V, E> &part, i64 row, bool there, row_run g, G &group,
                          Next next) {
    typedef acc<T> A;
    forget_widened(part);
    const A sum = sum_of(part), count = (A)p.s.rows.n;
    const int n = there ? (int)p.s.rows.n : 0;
    next();
    const A mean = group.add(two<A>{sum, 0}).a / count;
    forget_widened(part);
    const A squares = squares_of(part, mean, g, n);
    const A rstd = 1 / tn_sqrt(group.add(two<A>{squares, 0}).a / count + number<A>(p.eps));
    hide(row);
    forget_widened(part);
    normalise(p, part, mean, rstd, g, 0, n);
    const place<T> at = place_at<T>(p, row);
    if (g.first == 0 && there) write_moments(p, at, mean, rstd);
    store_pieces(at.y, n, g, part.raw);
}

/* ---- rows that are held in registers ----------------------------------------------------------------------------- */

/* x, y: (rows, n). `lanes` neighbouring lanes have a row, of which each has E elements. */
template <class T, int V, int E> TN_DEVICE void layer_norm_warp(const tni_layer_norm &p) {
    const i64 row = row_of_lanes(p.s.lanes);
    const row_run g = run_of_lanes(p.s.lanes);
    const bool there = row < p.s.rows.count; /* lanes without a row take part in the exchange */
    const i64 real = there ? row : 0;
    row_part<T, V, E> part;
    part.load(place_at<T>(p, real).x, there ? (int)p.s.rows.n : 0, g);
    lane_sums group = {p.s.lanes};
    finish_row(p, part, real, there, g, group, [] {});
}

/* A block has a row at a time, or a cluster of blocks has. */
template <class T, int V> TN_DEVICE void layer_norm_block(const tni_layer_norm &p) {
    constexpr int E = held<T>::most;
    __shared__ sum_exchange<acc<T>> shared[2];
    const int n = (int)p.s.rows.n, blocks = p.s.cluster;
    const bool fed = TN_COPY_ASYNC && p.s.fed;
    const i64 step = gridDim.x / blocks;
    row_run g = run_of_warp<E / V>((int)(cluster_rank() * blockDim.x + threadIdx.x));
    block_sums<acc<T>> group = {shared, blocks, 0};
    row_feed<T, V, E> feed = {dynamic_shared() + threadIdx.x};
    i64 row = cluster_index();
    if (fed) feed.fetch(place_at<T>(p, row).x, n, g);
    if (blocks > 1) {
        cluster_begin();
        cluster_wait();
    }
    for (; row < p.s.rows.count; row += step) {
        row_part<T, V, E> part;
        hide(g.first);
        if (fed) {
            feed.take(part);
        } else {
            part.load(place_at<T>(p, row).x, n, g);
        }
        finish_row(p, part, row, true, g, group, [&] {
            if (fed && row + step < p.s.rows.count) feed.fetch(place_at<T>(p, row + step).x, n, g);
        });
    }
}

/* ---- the common case --------------------------------------------------------------------------------------------- */

/* Everything is aligned and without gaps, gamma and beta are there in type W, and rows are of whole pieces. */

template <class T, int V, int E>
TN_DEVICE void load_dense(row_part<T, V, E> &part, const T *x, row_run g, int n, bool there) {
#pragma unroll
    for (int k = 0; k < E / V; k++) part.raw[k] = load_words_if(x + piece_at<V>(g, k), there && piece_at<V>(g, k) < n);
}

/* Lanes have a row, of which each has E elements. Gamma and beta are on their way together with it: few rows wait for
 * memory once. */
template <class T, class W, int E> TN_DEVICE void layer_norm_lanes(const tni_layer_norm &p) {
    constexpr int V = pack<T>::VL;
    typedef acc<T> A;
    const int n = (int)p.s.rows.n, lanes = p.s.lanes;
    const i64 row = row_of_lanes(lanes);
    const row_run g = run_of_lanes(lanes);
    const bool there = row < p.s.rows.count; /* lanes without a row take part in the exchange */
    row_part<T, V, E> part;
    vec<W, V> gamma[E / V], beta[E / V];
    load_dense(part, (const T *)p.x + row * n, g, n, there);
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        if (piece_at<V>(g, k) >= n) continue;
        gamma[k] = *(const vec<W, V> *)((const W *)p.gamma.data + piece_at<V>(g, k));
        beta[k] = *(const vec<W, V> *)((const W *)p.beta.data + piece_at<V>(g, k));
    }
    const A share = number<A>(p.share);
    const A mean = mean_of(reduce_some_lanes<take_sum>(sum_of(part), lanes), n, share);
    const A squares = reduce_some_lanes<take_sum>(squares_of(part, mean, g, n), lanes);
    const A rstd = 1 / tn_sqrt(squares * share + number<A>(p.eps));
    if (!there) return;
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        A y[V];
        if (piece_at<V>(g, k) >= n) break;
#pragma unroll
        for (int j = 0; j < V; j++) {
            const A d = (part.get(k * V + j) - mean) * rstd;
            y[j] = tn_fma(d, (A)widen(gamma[k].v[j]), (A)widen(beta[k].v[j]));
        }
        store_pack((T *)p.y + row * n + piece_at<V>(g, k), narrow_pack<T>(y));
    }
    if (g.first != 0) return;
    ((A *)p.mean)[row] = mean;
    ((A *)p.rstd)[row] = rstd;
}

/* Elements that the threads of a warp have together. */
template <int V, int E> TN_DEVICE int count_of_warp(int warp, int n) {
    int count = 0;
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int left = n - (k * (int)blockDim.x + warp * 32) * V;
        count += left < 0 ? 0 : min(left, 32 * V);
    }
    return count;
}

/* A block has a row, and several blocks an SM: that keeps memory busy. Each warp has the mean of its elements and the
 * squares of what differs from that: one exchange is enough. */
template <class T, class W, int E> TN_DEVICE void layer_norm_dense(const tni_layer_norm &p) {
    constexpr int V = pack<T>::VL;
    /* elements whose gamma and beta are read at once: wide ones take many registers, which small threads have not */
    constexpr int FEW = E < 32 && sizeof(T) < sizeof(W) ? 2 : 4;
    typedef acc<T> A;
    __shared__ two<A> shared[32];
    const int n = (int)p.s.rows.n, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const i64 row = (i64)blockIdx.x * n;
    row_run g = {(int)threadIdx.x, (int)blockDim.x};
    row_part<T, V, E> part;
    load_dense(part, (const T *)p.x + row, g, n, true);
    const A sum = reduce_lanes<take_sum, 32>(sum_of(part));
    const A own = quotient(sum, (A)count_of_warp<V, E>(threadIdx.x / 32, n));
    forget_widened(part);
    const A squares = reduce_lanes<take_sum, 32>(squares_of(part, own, g, n));
    if (lane == 0) shared[threadIdx.x / 32] = {sum, squares};
    __syncthreads();
    const bool mine = lane < warps;
    const A count = mine ? (A)count_of_warp<V, E>(lane, n) : 0;
    const two<A> s = mine ? shared[lane] : two<A>{0, 0};
    const A share = number<A>(p.share), mean = mean_of(reduce_lanes<take_sum, 32>(s.a), n, share);
    const A apart = mine ? quotient(s.a, count) - mean : 0; /* the warp's mean, as it was */
    const A all = reduce_lanes<take_sum, 32>(tn_fma(apart * apart, count, s.b));
    const A rstd = 1 / tn_sqrt(all * share + number<A>(p.eps));
    forget_widened(part);
    hide(g.first); /* where y goes is computed now, and not kept all the while */
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        A y[V];
        if (piece_at<V>(g, k) >= n) break;
#pragma unroll
        for (int i = 0; i < V; i += FEW) {
            const int at = piece_at<V>(g, k) + i;
            const vec<W, FEW> gamma = *(const vec<W, FEW> *)((const W *)p.gamma.data + at);
            const vec<W, FEW> beta = *(const vec<W, FEW> *)((const W *)p.beta.data + at);
#pragma unroll
            for (int j = 0; j < FEW; j++) {
                const A d = (part.get(k * V + i + j) - mean) * rstd;
                y[i + j] = tn_fma(d, (A)widen(gamma.v[j]), (A)widen(beta.v[j]));
            }
        }
        store_pack((T *)p.y + row + piece_at<V>(g, k), narrow_pack<T>(y));
    }
    if (threadIdx.x != 0) return;
    ((A *)p.mean)[blockIdx.x] = mean;
    ((A *)p.rstd)[blockIdx.x] = rstd;
}

/* ---- rows that are split ----------------------------------------------------------------------------------------- */

/* Of `count` numbers; squares: of what differs from their mean. */
template <class A> struct moments { A count, mean, squares; };

template <class A> TN_DEVICE moments<A> join(const moments<A> &a, const moments<A> &b) {
    const A count = a.count + b.count, apart = b.mean - a.mean, part = count > 0 ? b.count / count : 0;
    return {count, a.mean + apart * part, a.squares + b.squares + apart * apart * a.count * part};
}

template <class A> TN_DEVICE moments<A> join_lanes(moments<A> m) {
    for (int d = 16; d > 0; d /= 2) {
        const moments<A> other = {__shfl_xor_sync(0xffffffffu, m.count, d, 32),
                                  __shfl_xor_sync(0xffffffffu, m.mean, d, 32),
                                  __shfl_xor_sync(0xffffffffu, m.squares, d, 32)};
        /* the same way round in both lanes, which must agree */
        m = threadIdx.x & d ? join(other, m) : join(m, other);
    }
    return m;
}

/* Over the block; shared: (32) */
template <class A> TN_DEVICE moments<A> join_block(moments<A> m, moments<A> *shared) {
    const int lane = threadIdx.x % 32;
    m = join_lanes(m);
    if (lane == 0) shared[threadIdx.x / 32] = m;
    __syncthreads();
    return join_lanes(lane < (int)blockDim.x / 32 ? shared[lane] : moments<A>{0, 0, 0});
}

/* Block b has piece b % splits of row b / splits, and walks through it by tiles of what its threads hold. */
template <class T, int V> TN_DEVICE void layer_norm_split(const tni_layer_norm &p) {
    constexpr int E = held<T>::most, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ moments<A> shared[32];
    const i64 begin = (i64)(blockIdx.x % p.s.splits) * p.s.split;
    const i64 end = min(begin + p.s.split, p.s.rows.n);
    const place<T> at = place_at<T>(p, blockIdx.x / p.s.splits);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    moments<A> all = {0, 0, 0};
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> part;
        part.load(at.x + first, n, g);
        const u32 there = elements_below<V, E>(n, g);
        const A count = (A)__popc(there), mean = there ? sum_of(part) / count : 0;
        all = join(all, {count, mean, squares_of(part, mean, g, n)});
    }
    all = join_block(all, shared);
    if (threadIdx.x == 0) ((moments<A> *)p.partials)[blockIdx.x] = all;
}

template <class T, int V> TN_DEVICE void layer_norm_write(const tni_layer_norm &p) {
    constexpr int E = held<T>::most, TILE = TNI_ROW_BLOCK * E;
    typedef acc<T> A;
    __shared__ moments<A> shared[32];
    const i64 row = blockIdx.x / p.s.splits, begin = (i64)(blockIdx.x % p.s.splits) * p.s.split;
    const i64 end = min(begin + p.s.split, p.s.rows.n);
    const place<T> at = place_at<T>(p, row);
    const row_run g = run_of_warp<E / V>((int)threadIdx.x);
    moments<A> all = {0, 0, 0};
    for (int i = threadIdx.x; i < p.s.splits; i += TNI_ROW_BLOCK)
        all = join(all, ((const moments<A> *)p.partials)[row * p.s.splits + i]);
    all = join_block(all, shared);
    const A mean = all.mean, rstd = 1 / tn_sqrt(all.squares / (A)p.s.rows.n + number<A>(p.eps));
    if (begin == 0 && threadIdx.x == 0) write_moments(p, at, mean, rstd);
    for (i64 first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (i64)TILE);
        row_part<T, V, E> part;
        part.load(at.x + first, n, g);
        __syncthreads(); /* y may be x: others have loaded what is written at the edges of a warp */
        normalise(p, part, mean, rstd, g, first, n);
        store_pieces(at.y + first, n, g, part.raw);
    }
}

/* ---- instances --------------------------------------------------------------------------------------------------- */

#define LAYER_NORM(T, name)                                             \
    TN_WARP_KERNELS(layer_norm, T, name, TNI_ROW_WARP_BLOCK)            \
    TN_BLOCK_KERNEL(layer_norm, block, T, name, sizeof(T) == 8 ? 1 : 2) \
    TN_BLOCK_KERNEL(layer_norm, split, T, name, 1)                      \
    TN_BLOCK_KERNEL(layer_norm, write, T, name, 1)
TN_FOR_TYPES(LAYER_NORM)

/* W: the type of gamma and beta. An SM is to hold as many blocks as have 64 KB on their way, if it has so many threads;
 * f32 takes twice the registers. */
template <class T, int EACH> struct dense_blocks {
    static constexpr int small = EACH == 32 ? 2 : 4, of_sm = sizeof(T) == 4 ? 32 / EACH : small;
};

#define LANES(T, name, W, w)                                                            \
    TN_ROW_KERNEL(layer_norm_lanes_##name##_##w, TNI_ROW_WARP_BLOCK, 1, tni_layer_norm, \
                  (layer_norm_lanes<T, W, LAYER_NORM_LANES_EACH>(p)))
#define DENSE(T, name, W, w, each)                                                                       \
    TN_ROW_KERNEL(layer_norm_dense_##each##_##name##_##w, TNI_ROW_BLOCK, (dense_blocks<T, each>::of_sm), \
                  tni_layer_norm, (layer_norm_dense<T, W, each>(p)))
#define ALIGNED(T, name, W, w) \
    LANES(T, name, W, w) DENSE(T, name, W, w, 8) DENSE(T, name, W, w, 16) DENSE(T, name, W, w, 32)

ALIGNED(f16, f16, f16, f16)
ALIGNED(f16, f16, float, f32)
ALIGNED(bf16, bf16, bf16, bf16)
ALIGNED(bf16, bf16, float, f32)
ALIGNED(float, f32, float, f32)
