/* What scan_cuda.c tells the kernels of cumsum, cumprod, cummax and their gradients, and what those share.
 *
 * A row is cut into parts. Within a part the elements are put together in a fixed order; what stands in front of a part
 * is put together from the parts before it, one by one. So a row has the same bits whether a block goes along all of
 * its parts, or each part has a block of its own, because there are few rows: then a first launch finds the total of
 * each part, a second one what stands in front of it, and a third one is the same kernel again. */
#pragma once

#include "ops/sorting/keys.cuh"

enum {
    TNI_SCAN_THREADS = 256,
    TNI_SCAN_STEPS = 8,         /* of a block along a part of a row, at least */
    TNI_SCAN_COLUMN = 128,      /* elements of a part of a column, at least */
    TNI_SCAN_PARTS_MOST = 4096, /* parts of a row: they are put together one by one */
    TNI_SCAN_BATCH = 8,         /* elements of a column that a thread reads before it writes */
    TNI_SCAN_BYTES = 32,        /* that a thread takes of a row at a time */
    TNI_SCAN_EACH = 4,          /* the same in elements, for operators that read or write more than x and y */
};

/* What a launch does with each part. */
enum { TNI_SCAN_WHOLE, TNI_SCAN_TOTALS, TNI_SCAN_PARTS }; /* goes along all parts; finds totals; one part for a block */

/* Tensors are (outer, n, inner). Place i of a row is element i, or with `reverse` element n - 1 - i. */
typedef struct tni_gpu_scan {
    const void *x, *y, *dy, *ddx; /* of cumsum and cumprod x alone, of the gradients as in scan.h */
    void *to, *gx, *gy, *gdy;     /* to: y, dx or values. NULL: not wanted */
    void *s;                      /* of the second gradient: s of scan.h for all elements, in acc(T) */
    long long *index;
    void *sums; /* totals of parts, then what stands in front of each: (rows, parts), or (parts, columns) */
    long long rows, n, inner;
    long long part, parts; /* elements of a part: goes by n alone, as all that bits depend on */
    tni_key_rule rule;
    int mode, lanes; /* lanes: threads of a row, a power of 2 */
    int reverse, exclusive, smallest, aligned;
} tni_gpu_scan;

#ifdef __CUDACC__

/* ---- what is put together ---------------------------------------------------------------------------------------- */

template <class A> TN_DEVICE A from_below(A a, int d, int width) {
    return __shfl_up_sync(0xffffffffu, a, d, width);
}
template <class A> TN_DEVICE A from_lane(A a, int lane, int width) {
    return __shfl_sync(0xffffffffu, a, lane, width);
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
 * and `state_of` it; EACH, the elements of a thread; and `write`, which gets what is put together before a place and up
 * to it. VECTOR: a row of x and y is read and written 16 bytes at a time. */

template <class Op> TN_DEVICE typename Op::state scan_lanes(const tni_gpu_scan &p, typename Op::state a, int width) {
    const int lane = (int)threadIdx.x % width;
    for (int d = 1; d < width; d *= 2) {
        const typename Op::state before = from_below(a, d, width);
        if (lane >= d) a = Op::join(p, before, a);
    }
    return a;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

template <class Op, int E = Op::EACH> struct scan_piece { typename Op::raw v[E]; };

/* Elements at places i … i + EACH - 1 of the row whose first element is at `row`; there is nothing from `end` on. */
template <class Op> TN_DEVICE scan_piece<Op> scan_read(const tni_gpu_scan &p, i64 row, i64 i, i64 end) {
    constexpr int E = Op::EACH;
    scan_piece<Op> piece;
    if constexpr (Op::VECTOR) {
        typedef typename Op::raw T;
        constexpr int V = 16 / (int)sizeof(T);
        if (p.aligned && i + E <= end) {
            const T *from = (const T *)p.x + row + (p.reverse ? p.n - i - E : i);
#pragma unroll
            for (int k = 0; k < E / V; k++) {
                const pack<T> a = load_pack(from + k * V);
#pragma unroll
                for (int e = 0; e < V; e++) piece.v[p.reverse ? E - 1 - (k * V + e) : k * V + e] = a.v[e];
            }
            return piece;
        }
    }
#pragma unroll
    for (int k = 0; k < E; k++) {
        if (i + k < end) piece.v[k] = Op::read(p, row + scan_at(p, i + k), i + k);
    }
    return piece;
}

/* local[k]: what places i … i + k are together; base: what is before place i. */
template <class Op>
TN_DEVICE void scan_write(const tni_gpu_scan &p, i64 row, i64 i, i64 end, const scan_piece<Op> &piece,
                          typename Op::state base, const typename Op::state (&local)[Op::EACH]) {
    constexpr int E = Op::EACH;
    typename Op::state before = base;
    if constexpr (Op::VECTOR) {
        typedef typename Op::raw T;
        constexpr int V = 16 / (int)sizeof(T);
        if (p.aligned && i + E <= end) {
            T out[E];
#pragma unroll
            for (int k = 0; k < E; k++) {
                const typename Op::state upto = Op::join(p, base, local[k]);
                out[p.reverse ? E - 1 - k : k] = Op::result(p.exclusive ? before : upto);
                before = upto;
            }
            T *to = (T *)p.to + row + (p.reverse ? p.n - i - E : i);
#pragma unroll
            for (int k = 0; k < E / V; k++) {
                pack<T> a;
#pragma unroll
                for (int e = 0; e < V; e++) a.v[e] = out[k * V + e];
                store_pack(to + k * V, a);
            }
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < E; k++) {
        const typename Op::state upto = Op::join(p, base, local[k]);
        if (i + k < end) Op::write(p, row + scan_at(p, i + k), i + k, piece.v[k], before, upto);
        before = upto;
    }
}

/* A state of each warp becomes two: that of the warps before it with which it shares a row, and that of all of these.
 * By every thread of the block. turn: 0 and 1 in turns, so that nobody overwrites what others still read. */
template <class Op>
TN_DEVICE void scan_warps(const tni_gpu_scan &p, typename Op::state own, int turn, typename Op::state &before,
                          typename Op::state &all) {
    typedef typename Op::state state;
    alignas(16) __shared__ unsigned char memory[2 * (TNI_SCAN_THREADS / 32) * sizeof(state)];
    state *const states = (state *)memory + turn * (TNI_SCAN_THREADS / 32);
    const int warp = (int)threadIdx.x / 32, warps = p.lanes / 32, first = warp / warps * warps;
    if (threadIdx.x % 32 == 0) states[warp] = own;
    __syncthreads();
    before = all = Op::none();
    for (int w = first; w < first + warps; w++) {
        if (w == warp) before = all;
        all = Op::join(p, all, states[w]);
    }
}

template <class Op> TN_DEVICE void scan_rows(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    constexpr int E = Op::EACH;
    const int width = p.lanes < 32 ? p.lanes : 32, lane = (int)threadIdx.x % p.lanes;
    const i64 step = (i64)p.lanes * E, part = p.part, units = p.mode ? p.rows * p.parts : p.rows;
    const i64 unit = (i64)blockIdx.x * (TNI_SCAN_THREADS / p.lanes) + threadIdx.x / p.lanes;
    const bool there = unit < units; /* the last block may have fewer; their threads wait with the others */
    const i64 row = (p.mode ? unit / p.parts : unit) * p.n, begin = p.mode ? unit % p.parts * part : 0;
    const i64 length = p.mode && part < p.n ? part : p.n; /* of all units, so that a block takes its steps together */
    const i64 end = !there ? begin : begin + length < p.n ? begin + length : p.n;
    state offset = there && p.mode == TNI_SCAN_PARTS ? ((const state *)p.sums)[unit] : Op::none();
    state so_far = Op::none();
    scan_piece<Op> next = scan_read<Op>(p, row, begin + lane * E, end);
    i64 of_part = 0; /* elements of this part so far */
    int turn = 0;
    for (i64 done = 0; done < length; done += step, turn ^= 1) {
        const i64 i = begin + done + lane * E;
        const scan_piece<Op> piece = next;
        next = scan_read<Op>(p, row, i + step, end); /* under way while the threads wait for each other */
        state local[E], before, all;
#pragma unroll
        for (int k = 0; k < E; k++) {
            const state one = i + k < end ? Op::state_of(p, piece.v[k], i + k) : Op::none();
            local[k] = k ? Op::join(p, local[k > 0 ? k - 1 : 0], one) : one;
        }
        const state upto = scan_lanes<Op>(p, local[E - 1], width);
        const state left = from_below(upto, 1, width), warp = from_lane(upto, width - 1, width);
        const state in_warp = (int)threadIdx.x % width ? left : Op::none();
        if (p.lanes > 32) {
            scan_warps<Op>(p, warp, turn, before, all);
        } else {
            before = Op::none();
            all = warp;
        }
        if (p.mode != TNI_SCAN_TOTALS) {
            const state base = Op::join(p, Op::join(p, offset, so_far), Op::join(p, before, in_warp));
            scan_write<Op>(p, row, i, end, piece, base, local);
        }
        so_far = Op::join(p, so_far, all);
        of_part += step;
        if (!p.mode && of_part == part) { /* the next part begins */
            offset = Op::join(p, offset, so_far);
            so_far = Op::none();
            of_part = 0;
        }
    }
    if (p.mode == TNI_SCAN_TOTALS && there && lane == 0) ((state *)p.sums)[unit] = so_far;
}

/* ---- columns: a thread has one ----------------------------------------------------------------------------------- */

template <class Op> TN_DEVICE void scan_columns(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    constexpr int B = TNI_SCAN_BATCH;
    const i64 thread = (i64)blockIdx.x * TNI_SCAN_THREADS + threadIdx.x;
    const i64 part = p.mode ? thread / p.rows : 0, column = thread - part * p.rows;
    if (part >= (p.mode ? p.parts : 1) || column >= p.rows) return;
    const i64 first = column / p.inner * p.n * p.inner + column % p.inner;
    const i64 begin = part * p.part, past = begin + p.part, end = p.mode && past < p.n ? past : p.n;
    state *const sum = (state *)p.sums + (part * p.rows + column);
    state offset = p.mode == TNI_SCAN_PARTS ? *sum : Op::none(), so_far = Op::none();
    i64 of_part = 0; /* elements of this part so far */
    for (i64 i = begin; i < end; i += B) {
        typename Op::raw v[B];
#pragma unroll
        for (int k = 0; k < B; k++) {
            if (i + k < end) v[k] = Op::read(p, first + scan_at(p, i + k), i + k);
        }
        state before = Op::join(p, offset, so_far);
#pragma unroll
        for (int k = 0; k < B; k++) {
            if (i + k >= end) continue;
            so_far = Op::join(p, so_far, Op::state_of(p, v[k], i + k));
            const state upto = Op::join(p, offset, so_far);
            if (p.mode != TNI_SCAN_TOTALS) Op::write(p, first + scan_at(p, i + k), i + k, v[k], before, upto);
            before = upto;
        }
        of_part += B;
        if (!p.mode && of_part == p.part) { /* the next part begins */
            offset = Op::join(p, offset, so_far);
            so_far = Op::none();
            of_part = 0;
        }
    }
    if (p.mode == TNI_SCAN_TOTALS) *sum = so_far;
}

/* ---- totals of parts become what stands in front of each --------------------------------------------------------- */

/* Of columns: a thread has one. */
template <class Op> TN_DEVICE void scan_column_offsets(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    constexpr int B = 2 * TNI_SCAN_BATCH;
    const i64 column = (i64)blockIdx.x * TNI_SCAN_THREADS + threadIdx.x;
    if (column >= p.rows) return;
    state so_far = Op::none();
    state *const sums = (state *)p.sums + column;
    for (i64 k = 0; k < p.parts; k += B) {
        state own[B];
#pragma unroll
        for (int j = 0; j < B; j++) own[j] = k + j < p.parts ? sums[(k + j) * p.rows] : Op::none();
#pragma unroll
        for (int j = 0; j < B; j++) {
            if (k + j < p.parts) sums[(k + j) * p.rows] = so_far;
            so_far = Op::join(p, so_far, own[j]);
        }
    }
}

/* Of rows: a warp has one, and reads 32 totals ahead; each lane joins all of them, in order, and keeps its own. */
template <class Op> TN_DEVICE void scan_row_offsets(const tni_gpu_scan &p) {
    typedef typename Op::state state;
    const i64 row = (i64)blockIdx.x * (TNI_SCAN_THREADS / 32) + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= p.rows) return;
    state *const sums = (state *)p.sums + row * p.parts;
    state so_far = Op::none(), next = lane < p.parts ? sums[lane] : Op::none();
    for (i64 k = 0; k < p.parts; k += 32) {
        const state own = next;
        state mine = so_far;
        next = k + 32 + lane < p.parts ? sums[k + 32 + lane] : Op::none();
#pragma unroll
        for (int j = 0; j < 32; j++) {
            if (j == lane) mine = so_far;
            so_far = Op::join(p, so_far, from_lane(own, j, 32));
        }
        if (k + lane < p.parts) sums[k + lane] = mine;
    }
}

template <class Op> TN_DEVICE void scan_offsets(const tni_gpu_scan &p) {
    if (p.inner == 1)
        scan_row_offsets<Op>(p);
    else
        scan_column_offsets<Op>(p);
}

#define SCAN(name, type, ...)                                                                               \
    TN_ROW_KERNEL(name##_rows_##type, TNI_SCAN_THREADS, 2, tni_gpu_scan, (scan_rows<__VA_ARGS__>(p)))       \
    TN_ROW_KERNEL(name##_columns_##type, TNI_SCAN_THREADS, 2, tni_gpu_scan, (scan_columns<__VA_ARGS__>(p))) \
    TN_ROW_KERNEL(name##_offsets_##type, TNI_SCAN_THREADS, 1, tni_gpu_scan, (scan_offsets<__VA_ARGS__>(p)))

#endif
