/* The kernels of cumsum, cumprod, cummax and their gradients.
 *
 * A row is cut into tiles, which blocks keep in registers, and tiles tell each other their totals (scan_chain.cuh): so
 * each element is read once, and it does not matter how many rows there are. Within a tile elements are put together
 * in an order that goes by the length of a row alone. */
#pragma once

#include "scan_job.cuh"

#ifdef __CUDACC__

#include "cuda/copy/walk.cuh"

/* ---- what is put together ---------------------------------------------------------------------------------------- */

/* What is put together has some words of 32 bits. */
template <class S> struct scan_parts {
    enum { COUNT = sizeof(S) / 4 };
    u32 w[COUNT];

    TN_MEMBER scan_parts() {
    }
    TN_MEMBER scan_parts(const S &a) {
        memcpy(w, &a, sizeof a);
    }
    TN_MEMBER S whole() const {
        S a;
        memcpy(&a, w, sizeof a);
        return a;
    }
};

template <class S> TN_DEVICE S from_below(const S &a, int d, int width) {
    scan_parts<S> parts(a);
#pragma unroll
    for (int k = 0; k < parts.COUNT; k++) parts.w[k] = __shfl_up_sync(0xffffffffu, parts.w[k], d, width);
    return parts.whole();
}
template <class S> TN_DEVICE S from_lane(const S &a, int lane, int width) {
    scan_parts<S> parts(a);
#pragma unroll
    for (int k = 0; k < parts.COUNT; k++) parts.w[k] = __shfl_sync(0xffffffffu, parts.w[k], lane, width);
    return parts.whole();
}

/* What integers are added up in: more bits than they have would be cut off again. */
template <class T> struct scan_acc { typedef acc<T> type; };
template <> struct scan_acc<u8> { typedef u32 type; };
template <> struct scan_acc<u16> { typedef u32 type; };
template <> struct scan_acc<u32> { typedef u32 type; };
template <> struct scan_acc<u64> { typedef u64 type; };

/* A place's offset in tensors, from where its row begins. */
TN_DEVICE i64 scan_at(const tni_gpu_scan &p, i64 i) {
    return (p.reverse ? p.n - 1 - i : i) * p.inner;
}

/* An operator Op has a type `state`, `none()` and `join(p, a, b)`, where b is behind a; `raw`, what is read of a place,
 * and `state_of` it; and `write`, which gets what is put together before a place and up to it. Of a row a thread has
 * LANE elements side by side, STRIPES times. SIDE: columns of a thread. VECTORS: where p.aligned, LANE elements of a
 * row or SIDE of a place are read at once and `put` writes them: the row of element e begins at first + e step. */

#include "scan_chain.cuh"

/* A state of each warp becomes two: that of the warps before it that have the same tile, and that of all of these. A
 * block has V columns for each of LANES lanes; `own` is the same in all lanes where LANES is 1. By every thread. */
template <class Op, int V, int LANES>
TN_DEVICE void scan_warps(const tni_gpu_scan &p, const typename Op::state (&own)[V], typename Op::state (&before)[V],
                          typename Op::state (&all)[V]) {
    typedef typename Op::state state;
    alignas(16) __shared__ unsigned char memory[TNI_SCAN_WARPS * V * LANES * sizeof(state)];
    state *const states = (state *)memory;
    const int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / 32, first = warp & ~(p.warps - 1);
#pragma unroll
    for (int v = 0; v < V; v++) states[(warp * V + v) * LANES + lane] = own[v];
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++) {
        before[v] = all[v] = Op::none();
        for (int w = first; w < first + p.warps; w++) {
            if (w == warp) before[v] = all[v];
            all[v] = Op::join(p, all[v], states[(w * V + v) * LANES + lane]);
        }
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct scan_place {
    i64 row, i; /* the first of LANE elements */
};

/* Stripes of a warp follow each other, and then those of the next warp: pieces of a tile, and then other rows. */
template <class Op> TN_DEVICE scan_place scan_row_place(const tni_gpu_scan &p, i64 tile, i64 block, int stripe) {
    constexpr int LOG_LANES = 5, STRIPES = TNI_SCAN_WARPS * Op::STRIPES;
    const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 * Op::STRIPES + stripe;
    const int rows_of_lanes = LOG_LANES - p.log_lanes;
    return scan_place{block * ((STRIPES >> p.log_pieces) << rows_of_lanes) + ((at >> p.log_pieces) << rows_of_lanes) +
                          (lane >> p.log_lanes),
                      tile * p.tile +
                          (((at & ((1 << p.log_pieces) - 1)) << p.log_lanes) + (lane & ((1 << p.log_lanes) - 1))) *
                              Op::LANE};
}

/* Where LANE elements of a row lie in memory, one behind the other; with `reverse` the last one comes first. */
template <class Op> TN_DEVICE i64 scan_vector_at(const tni_gpu_scan &p, const scan_place &at) {
    return at.row * p.n + (p.reverse ? p.n - at.i - Op::LANE : at.i);
}

template <class Op>
TN_DEVICE void scan_read_row(const tni_gpu_scan &p, i64 tile, i64 block,
                             typename Op::state (&a)[Op::STRIPES][Op::LANE]) {
    typedef typename Op::raw raw;
    constexpr int J = Op::STRIPES, E = Op::LANE;
    if constexpr (Op::VECTORS) {
        if (p.aligned) {
            vec<raw, E> x[J];
#pragma unroll
            for (int j = 0; j < J; j++) {
                const scan_place at = scan_row_place<Op>(p, tile, block, j);
                if (at.row < p.rows && at.i < p.n)
                    x[j] = *(const vec<raw, E> *)((const raw *)p.x + scan_vector_at<Op>(p, at));
            }
#pragma unroll
            for (int j = 0; j < J; j++) {
                const scan_place at = scan_row_place<Op>(p, tile, block, j);
#pragma unroll
                for (int e = 0; e < E; e++) {
                    const raw own = p.reverse ? x[j].v[E - 1 - e] : x[j].v[e];
                    a[j][e] = at.row < p.rows && at.i < p.n ? Op::state_of(p, own, at.i + e) : Op::none();
                }
            }
            return;
        }
    }
    raw x[J][E];
#pragma unroll
    for (int j = 0; j < J; j++) {
        const scan_place at = scan_row_place<Op>(p, tile, block, j);
#pragma unroll
        for (int e = 0; e < E; e++) {
            if (at.row < p.rows && at.i + e < p.n) x[j][e] = Op::read(p, at.row * p.n + scan_at(p, at.i + e), at.i + e);
        }
    }
#pragma unroll
    for (int j = 0; j < J; j++) {
        const scan_place at = scan_row_place<Op>(p, tile, block, j);
#pragma unroll
        for (int e = 0; e < E; e++)
            a[j][e] = at.row < p.rows && at.i + e < p.n ? Op::state_of(p, x[j][e], at.i + e) : Op::none();
    }
}

/* base[j]: what stands in front of a[j], which has its own elements put together. */
template <class Op>
TN_DEVICE void scan_write_row(const tni_gpu_scan &p, i64 tile, i64 block, const typename Op::state (&base)[Op::STRIPES],
                              const typename Op::state (&a)[Op::STRIPES][Op::LANE]) {
    typedef typename Op::state state;
    constexpr int E = Op::LANE;
#pragma unroll
    for (int j = 0; j < Op::STRIPES; j++) {
        const scan_place at = scan_row_place<Op>(p, tile, block, j);
        state before = base[j];
        if (at.row >= p.rows || at.i >= p.n) continue;
        if constexpr (Op::VECTORS) {
            if (p.aligned) {
                state y[E], placed[E];
#pragma unroll
                for (int e = 0; e < E; e++) {
                    const state upto = Op::join(p, base[j], a[j][e]);
                    y[e] = p.exclusive ? before : upto;
                    before = upto;
                }
#pragma unroll
                for (int e = 0; e < E; e++) placed[e] = p.reverse ? y[E - 1 - e] : y[e];
                Op::template put<E>(p, at.row * p.n, 0, scan_vector_at<Op>(p, at), placed);
                continue;
            }
        }
#pragma unroll
        for (int e = 0; e < E; e++) {
            const state upto = Op::join(p, base[j], a[j][e]);
            if (at.i + e < p.n) Op::write(p, at.row * p.n + scan_at(p, at.i + e), at.i + e, before, upto);
            before = upto;
        }
    }
}

/* Short rows have a part of a warp each, longer ones some warps, and long ones several blocks. */
template <class Op> TN_DEVICE void scan_rows(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    constexpr int J = Op::STRIPES, E = Op::LANE;
    const i64 tile = (i64)quotient((u64)blockIdx.x, (u64)p.blocks), block = (i64)blockIdx.x - tile * p.blocks;
    const int width = 1 << p.log_lanes, lane = (int)threadIdx.x % width;
    state a[J][E], base[J], so_far = Op::none();
    scan_read_row<Op>(p, tile, block, a);
#pragma unroll
    for (int j = 0; j < J; j++) {
#pragma unroll
        for (int e = 1; e < E; e++) a[j][e] = Op::join(p, a[j][e - 1], a[j][e]);
        base[j] = a[j][E - 1];
    }
    for (int d = 1; d < width; d *= 2) {
#pragma unroll
        for (int j = 0; j < J; j++) {
            const state before = from_below(base[j], d, width);
            if (lane >= d) base[j] = Op::join(p, before, base[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < J; j++) {
        const state left = from_below(base[j], 1, width), piece = from_lane(base[j], width - 1, width);
        if (((int)threadIdx.x / 32 * J + j) % (1 << p.log_pieces) == 0) so_far = Op::none(); /* a row begins */
        base[j] = lane > 0 ? Op::join(p, so_far, left) : so_far;
        so_far = Op::join(p, so_far, piece);
    }
    if (p.warps > 1) {
        state own[1] = {so_far}, before[1], all[1], prefix[1];
        scan_warps<Op, 1, 1>(p, own, before, all);
        if (p.tiles > 1) {
            scan_chain<Op, 1, 1>(p, tile, block, true, all, prefix);
            before[0] = Op::join(p, prefix[0], before[0]);
        }
#pragma unroll
        for (int j = 0; j < J; j++) base[j] = Op::join(p, before[0], base[j]);
    }
    scan_write_row<Op>(p, tile, block, base, a);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* A lane has V columns side by side, and a warp TNI_SCAN_COLUMN places of each; the next places have the next warp, and
 * then the next block. */
template <class Op, int V> TN_DEVICE void scan_columns(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    typedef typename Op::raw raw;
    constexpr int K = TNI_SCAN_COLUMN;
    const i64 tile = (i64)quotient((u64)blockIdx.x, (u64)p.blocks), block = (i64)blockIdx.x - tile * p.blocks;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const i64 column = ((block * (TNI_SCAN_WARPS / p.warps) + warp / p.warps) * 32 + lane) * V;
    const bool there = column < p.rows;
    const i64 outer = (i64)quotient((u64)column, (u64)p.inner), first = outer * (p.n - 1) * p.inner + column;
    const i64 begin = tile * p.tile + warp % p.warps * K;
    const int count = !there ? 0 : p.n - begin < K ? (int)(p.n - begin) : K; /* of places; none where it is below 0 */
    vec<raw, V> x[K];
    state a[K][V], before[V], all[V], prefix[V];
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (k >= count) continue;
        const i64 at = first + scan_at(p, begin + k);
        if constexpr (V > 1)
            x[k] = *(const vec<raw, V> *)((const raw *)p.x + at);
        else
            x[k].v[0] = Op::read(p, at, begin + k);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
#pragma unroll
        for (int v = 0; v < V; v++) {
            const state one = k < count ? Op::state_of(p, x[k].v[v], begin + k) : Op::none();
            a[k][v] = k > 0 ? Op::join(p, a[k > 0 ? k - 1 : 0][v], one) : one;
        }
    }
    scan_warps<Op, V, 32>(p, a[K - 1], before, all);
    if (p.tiles > 1) {
        scan_chain<Op, V, 32>(p, tile, column, there, all, prefix);
#pragma unroll
        for (int v = 0; v < V; v++) before[v] = Op::join(p, prefix[v], before[v]);
    }
    state last[V];
#pragma unroll
    for (int v = 0; v < V; v++) last[v] = before[v];
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (k >= count) continue;
        const i64 at = first + scan_at(p, begin + k);
        state y[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            const state upto = Op::join(p, before[v], a[k][v]);
            if constexpr (V > 1)
                y[v] = p.exclusive ? last[v] : upto;
            else
                Op::write(p, at, begin + k, last[v], upto);
            last[v] = upto;
        }
        if constexpr (V > 1) Op::template put<V>(p, first, 1, at, y);
    }
}

template <class Op> TN_DEVICE void scan_any_columns(const tni_gpu_scan &p) {
    if (Op::SIDE > 1 && p.aligned)
        scan_columns<Op, Op::SIDE>(p);
    else
        scan_columns<Op, 1>(p);
}

/* Blocks of an SM: of rows, of columns. */
#define SCAN(name, type, of_rows, of_columns, ...)                                                          \
    TN_ROW_KERNEL(name##_rows_##type, TNI_SCAN_THREADS, of_rows, tni_gpu_scan, (scan_rows<__VA_ARGS__>(p))) \
    TN_ROW_KERNEL(name##_columns_##type, TNI_SCAN_THREADS, of_columns, tni_gpu_scan, (scan_any_columns<__VA_ARGS__>(p)))

#endif
