/* sum over any axes. x is read once, 16 bytes at a time where it is aligned. */
#include "device.cuh"

#include "sum.cuh"

/* ---- packs ------------------------------------------------------------------------------------------------------- */

template <class T> TN_DEVICE acc<T> add_pack(const pack<T> &a) {
    acc<T> v[pack<T>::VL];
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) v[i] = widen(a.v[i]);
#pragma unroll
    for (int d = pack<T>::VL / 2; d > 0; d /= 2) {
#pragma unroll
        for (int i = 0; i < d; i++) v[i] += v[i + d];
    }
    return v[0];
}

/* The first `left` elements of a pack, then zeros. */
template <class T> TN_DEVICE pack<T> some_of_pack(const T *p, i64 step, i64 left) {
    pack<T> a;
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) a.v[i] = i < left ? p[i * step] : T{};
    return a;
}

/* 16 bytes from an address that is not a multiple of 16: out of the two that are around it. The second one is read whole,
 * so it must not lie behind the tensor's end. */
template <class T> TN_DEVICE pack<T> load_unaligned(const T *p) {
    const u64 off = (u64)p & 15;
    const u32 *base = (const u32 *)((u64)p - off);
    union {
        pack<u32> half[2];
        u32 w[8];
    } v;
    v.half[0] = *(const pack<u32> *)base;
    v.half[1] = *(const pack<u32> *)(base + 4);
#pragma unroll
    for (int i = 0; i < 6; i++) v.w[i] = off & 8 ? v.w[i + 2] : v.w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) v.w[i] = off & 4 ? v.w[i + 1] : v.w[i];
    union {
        u32 w[4];
        pack<T> a;
    } r;
#pragma unroll
    for (int i = 0; i < 4; i++) r.w[i] = __funnelshift_r(v.w[i], v.w[i + 1], (off & 3) * 8);
    return r.a;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* One thread's share of packs begin … end - 1 is every LANES-th, added up one after the other. Three ways to get at them,
 * all in the same order. */

/* One segment of packs that are 16-byte aligned: BATCH of them are under way at once. */
template <class T, int LANES, int BATCH>
TN_DEVICE acc<T> share_of_packs(const tni_sum_rows &p, const T *x, i64 q, i64 end) {
    constexpr int VL = pack<T>::VL;
    const i64 full = end * VL <= p.n ? end : end - 1;
    acc<T> sum = 0;
    const T *at = x + q * VL;
#pragma unroll 1
    for (; q + (BATCH - 1) * LANES < full; q += LANES * BATCH, at += LANES * BATCH * VL) {
        pack<T> a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) a[k] = load_pack(at + k * LANES * VL);
#pragma unroll
        for (int k = 0; k < BATCH; k++) sum += add_pack(a[k]);
    }
    if (q < full) {
        pack<T> a[BATCH - 1];
#pragma unroll
        for (int k = 0; k < BATCH - 1; k++) {
            a[k] = pack<T>{};
            if (q + k * LANES < full) a[k] = load_pack(at + k * LANES * VL);
        }
#pragma unroll
        for (int k = 0; k < BATCH - 1; k++) sum += add_pack(a[k]);
    }
    /* The short one belongs to the thread whose turn it is. */
    const bool mine = full < end && (full - q) % LANES == 0;
    return mine ? sum + add_pack(some_of_pack(x + full * VL, 1, p.n - full * VL)) : sum;
}

template <class T, int LANES> TN_DEVICE acc<T> share_of_elements(const tni_sum_rows &p, const T *x, i64 q, i64 end) {
    constexpr int VL = pack<T>::VL, BATCH = 4;
    /* The packs that can be read with what is around them. */
    const i64 near_end = p.step == 1 && p.n >= 2 * VL ? p.n / VL - 1 : 0, safe = near_end < end ? near_end : end;
    acc<T> sum = 0;
#pragma unroll 1
    for (; q + (BATCH - 1) * LANES < safe; q += BATCH * LANES) {
        pack<T> a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) a[k] = load_unaligned(x + (q + k * LANES) * VL);
#pragma unroll
        for (int k = 0; k < BATCH; k++) sum += add_pack(a[k]);
    }
#pragma unroll 2
    for (; q < end; q += LANES) {
        const i64 first = q * VL;
        sum += add_pack(q < safe ? load_unaligned(x + first) : some_of_pack(x + first * p.step, p.step, p.n - first));
    }
    return sum;
}

template <class T, int LANES> TN_DEVICE acc<T> share_of_segments(const tni_sum_rows &p, const T *x, i64 q, i64 end) {
    acc<T> sum = 0;
#pragma unroll 2
    for (; q < end; q += LANES) {
        const place here = walk_any(p.packs, (u64)q);
        const T *at = x + here.at[0];
        const i64 left = p.n - here.at[1];
        const bool wide = p.step == 1 && left >= pack<T>::VL && is_aligned(at);
        sum += add_pack(wide ? load_pack(at) : some_of_pack(at, p.step, left));
    }
    return sum;
}

/* FLAT: there is one segment. */
template <class T, int LANES, int BATCH, bool FLAT>
TN_DEVICE acc<T> share_of_row(const tni_sum_rows &p, const T *x, int lane, i64 begin, i64 end) {
    if (!FLAT) return share_of_segments<T, LANES>(p, x, begin + lane, end);
    if (p.step == 1 && is_aligned(x)) return share_of_packs<T, LANES, BATCH>(p, x, begin + lane, end);
    return share_of_elements<T, LANES>(p, x, begin + lane, end);
}

/* Short sums: each is done by LANES neighbouring threads of a warp. */
template <class T, int LANES, int BATCH, bool FLAT> TN_DEVICE void sum_group(const tni_sum_rows &p) {
    const i64 output = (i64)blockIdx.x * (TNI_SUM_THREADS / LANES) + threadIdx.x / LANES;
    acc<T> total = 0;
    T *y = (T *)p.y;
    if (output < p.outputs) {
        const place here = walk_any(p.kept, (u64)output);
        y += here.at[1];
        total = share_of_row<T, LANES, BATCH, FLAT>(p, (const T *)p.x + here.at[0], threadIdx.x % LANES, 0, p.n_packs);
    }
    total = reduce_lanes<take_sum, LANES>(total);
    if (output < p.outputs && threadIdx.x % LANES == 0) narrow(total, *y);
}

/* Long sums: a block does one part of a sum, or all of its parts and then adds them up as sum_end_warp would. */
template <class T, class Y, bool FLAT> TN_DEVICE void sum_block(const tni_sum_rows &p) {
    constexpr int WARPS = TNI_SUM_THREADS / 32;
    __shared__ acc<T> scratch[2][WARPS]; /* in turn, so that one barrier for each part is enough */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 blocks = p.whole ? 1 : p.n_parts, output = blockIdx.x / blocks;
    const int first = p.whole ? 0 : (int)(blockIdx.x % blocks), count = p.whole ? p.n_parts : 1;
    const place here = walk_any(p.kept, output);
    acc<T> mine = 0; /* of warp 0: lane i has the sum of part first + i */
    for (int i = 0; i < count; i++) {
        const i64 begin = (first + i) * p.chunk, end = begin + p.chunk < p.n_packs ? begin + p.chunk : p.n_packs;
        acc<T> sum = share_of_row<T, TNI_SUM_THREADS, 8, FLAT>(p, (const T *)p.x + here.at[0], threadIdx.x, begin, end);
        sum = reduce_lanes<take_sum, 32>(sum);
        if (lane == 0) scratch[i % 2][warp] = sum;
        __syncthreads();
        if (warp != 0) continue;
        sum = reduce_lanes<take_sum, WARPS>(scratch[i % 2][lane % WARPS]);
        if (lane == i) mine = sum;
    }
    if (warp != 0) return;
    mine = reduce_lanes<take_sum, 32>(mine);
    if (lane != 0) return;
    if (p.whole)
        narrow(mine, ((Y *)p.y)[here.at[1]]);
    else
        ((acc<T> *)p.parts)[blockIdx.x] = mine;
}

/* A warp adds up to 32 parts of a sum. x is the parts: n of them for each output. */
template <class A, class Y> TN_DEVICE void sum_end_warp(const tni_sum_rows &p) {
    const i64 output = (i64)blockIdx.x * (TNI_SUM_THREADS / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (output >= p.outputs) return;
    const place here = walk_any(p.kept, (u64)output);
    A part = lane < p.n ? ((const A *)p.x)[here.at[0] + lane] : 0;
    part = reduce_lanes<take_sum, 32>(part);
    if (lane == 0) narrow(part, ((Y *)p.y)[here.at[1]]);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* What a group of threads does: a tile of columns, at one place of the other kept dimensions, of one part of the rows. */
struct column_item {
    i64 tile, outer, part;
};

TN_DEVICE column_item column_item_at(const tni_sum_columns &p, i64 item) {
    if (p.items == p.tiles) return {item, 0, 0};
    const u64 rest = quotient((u64)item, (u64)p.tiles), part = quotient(rest, (u64)p.kept.count);
    return {item - (i64)rest * p.tiles, (i64)(rest - part * (u64)p.kept.count), (i64)part};
}

template <class T, int COUNT> TN_DEVICE void add_each(const pack<T> (&a)[COUNT], acc<T> (&sums)[pack<T>::VL]) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
#pragma unroll
        for (int i = 0; i < pack<T>::VL; i++) sums[i] += widen(a[k].v[i]);
    }
}

/* A thread's rows are every (1 << slots)-th from `row` on, added up one after the other. Three ways to get at them. */

/* A pack of columns that begins at `at`; what lies behind x's end is 0. */
template <class T, bool ALIGNED> TN_DEVICE pack<T> load_columns(const tni_sum_columns &p, const T *at) {
    if (ALIGNED) return load_pack(at);
    const i64 left = (const T *)p.end - at;
    return left >= 2 * pack<T>::VL ? load_unaligned(at) : some_of_pack(at, 1, left);
}

/* The rows are one dimension. */
template <class T, bool ALIGNED, int BATCH>
TN_DEVICE void add_packs(const tni_sum_columns &p, const T *x, i64 row, i64 end, acc<T> (&sums)[pack<T>::VL]) {
    const i64 stride = p.rows.strides[0][0], step = stride << p.slots;
    const T *at = x + row * stride;
#pragma unroll 1
    for (; row + ((BATCH - 1) << p.slots) < end; row += BATCH << p.slots, at += BATCH * step) {
        pack<T> a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) a[k] = load_columns<T, ALIGNED>(p, at + k * step);
        add_each(a, sums);
    }
    if (row >= end) return;
    pack<T> a[BATCH - 1];
#pragma unroll
    for (int k = 0; k < BATCH - 1; k++) {
        a[k] = pack<T>{};
        if (row + (k << p.slots) < end) a[k] = load_columns<T, ALIGNED>(p, at + k * step);
    }
    add_each(a, sums);
}

/* The rows are several dimensions. */
template <class T, bool ALIGNED>
TN_DEVICE void add_far_packs(const tni_sum_columns &p, const T *x, i64 row, i64 end, acc<T> (&sums)[pack<T>::VL]) {
    constexpr int BATCH = 4;
#pragma unroll 1
    for (; row < end; row += BATCH << p.slots) {
        pack<T> a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const i64 r = row + (k << p.slots);
            a[k] = pack<T>{};
            if (r < end) a[k] = load_columns<T, ALIGNED>(p, x + walk_any(p.rows, (u64)r).at[0]);
        }
        add_each(a, sums);
    }
}

/* Columns do not lie side by side: as many, but they are `lanes` apart. `left`: columns from the first on. */
template <class T, bool ONE>
TN_DEVICE void add_elements(const tni_sum_columns &p, const T *x, i64 left, i64 row, i64 end,
                            acc<T> (&sums)[pack<T>::VL]) {
    constexpr int BATCH = 4;
#pragma unroll 1
    for (; row < end; row += BATCH << p.slots) {
        pack<T> a[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const i64 r = row + (b << p.slots);
            const T *at = x + (ONE ? r * p.rows.strides[0][0] : r < end ? walk_any(p.rows, (u64)r).at[0] : 0);
#pragma unroll
            for (int i = 0; i < pack<T>::VL; i++) {
                const i64 k = (i64)i << p.lanes;
                a[b].v[i] = r < end && k < left ? at[k * p.step] : T{};
            }
        }
        add_each(a, sums);
    }
}

/* ONE: the rows are one dimension. */
template <class T, bool ONE>
TN_DEVICE void add_rows(const tni_sum_columns &p, const T *x, i64 column, i64 row, i64 end,
                        acc<T> (&sums)[pack<T>::VL]) {
    if (!p.wide)
        add_elements<T, ONE>(p, x + column * p.step, p.c - column, row, end, sums);
    else if (ONE && p.wide == 2)
        add_packs<T, true, 8>(p, x + column, row, end, sums);
    else if (ONE)
        add_packs<T, false, 4>(p, x + column, row, end, sums);
    else if (p.wide == 2)
        add_far_packs<T, true>(p, x + column, row, end, sums);
    else
        add_far_packs<T, false>(p, x + column, row, end, sums);
}

template <class T>
TN_DEVICE void put_column(const tni_sum_columns &p, const column_item &item, i64 column, acc<T> value) {
    if (column >= p.c) return;
    if (p.whole)
        narrow(value, ((T *)p.y)[walk_any(p.kept, (u64)item.outer).at[1] + column * p.y_step]);
    else
        ((acc<T> *)p.parts)[(item.part * p.kept.count + item.outer) * p.c + column] = value;
}

/* What a thread has summed up, to where the block's threads exchange it. */
template <class T> TN_DEVICE void put_sums(const tni_sum_columns &p, acc<T> *to, const acc<T> (&total)[pack<T>::VL]) {
    typedef pack<acc<T>> four; /* or two */
    if (p.wide) {
#pragma unroll
        for (int k = 0; k < pack<T>::VL; k += four::VL) {
            four a;
#pragma unroll
            for (int i = 0; i < four::VL; i++) a.v[i] = total[k + i];
            *(four *)(to + k) = a;
        }
    } else {
#pragma unroll
        for (int k = 0; k < pack<T>::VL; k++) to[k << p.lanes] = total[k];
    }
}

/* The sums of a thread that has its columns to itself. */
template <class T>
TN_DEVICE void put_own(const tni_sum_columns &p, const column_item &item, i64 column,
                       const acc<T> (&total)[pack<T>::VL]) {
    constexpr int VL = pack<T>::VL;
    T *y = (T *)p.y + walk_any(p.kept, (u64)item.outer).at[1] + column * p.y_step;
    if (p.wide && p.y_step == 1 && column + VL <= p.c && is_aligned(y)) {
        store_pack(y, narrow_pack<T>(total));
        return;
    }
#pragma unroll
    for (int k = 0; k < VL; k++) {
        const i64 i = p.wide ? k : (i64)k << p.lanes;
        if (column + i < p.c) narrow(total[k], y[i * p.y_step]);
    }
}

/* A group of slots × lanes threads does an item: each thread adds up its rows of its columns, then the slots' sums are added
 * up through shared memory, where neighbouring threads have neighbouring columns. */
template <class T, bool ONE> TN_DEVICE void sum_columns(const tni_sum_columns &p) {
    constexpr int VL = pack<T>::VL, MOST = TNI_SUM_THREADS / TNI_SUM_SLOTS * VL;
    static_assert(MOST <= TNI_SUM_THREADS, "with all slots in use, a thread has one column to end");
    __shared__ alignas(16) acc<T> sums[TNI_SUM_THREADS * VL];
    const int slots = 1 << p.slots, group = p.slots + p.lanes;
    const int lane = threadIdx.x & ((1 << p.lanes) - 1), slot = threadIdx.x >> p.lanes & (slots - 1);
    const int width = VL << p.lanes;                  /* columns of a tile */
    const int columns = TNI_SUM_THREADS * VL / slots; /* of the block */
    const i64 first = (i64)blockIdx.x * (TNI_SUM_THREADS >> group), mine = first + (threadIdx.x >> group);
    const column_item item = column_item_at(p, mine);
    const i64 in_tile = p.wide ? lane * VL : lane, column = item.tile * width + in_tile;
    const T *x = (const T *)p.x + (mine < p.items ? walk_any(p.kept, (u64)item.outer).at[0] : 0);
    const int parts = p.whole ? (int)p.n_parts : 1;
    acc<T> end_sum = 0;
    for (int i = 0; i < parts; i++) {
        acc<T> total[VL] = {};
        const i64 begin = (item.part + i) * p.per_part;
        const i64 end = begin + p.per_part < p.n_rows ? begin + p.per_part : p.n_rows;
        if (mine < p.items && column < p.c) add_rows<T, ONE>(p, x, column, begin + slot, end, total);
        if (slots == 1 && p.whole && parts == 1) {
            if (mine < p.items && column < p.c) put_own<T>(p, item, column, total);
            return;
        }
        /* sums: (slots, columns of the block) */
        put_sums<T>(p, sums + slot * columns + (threadIdx.x >> group) * width + in_tile, total);
        __syncthreads();
        for (int k = threadIdx.x; k < columns; k += TNI_SUM_THREADS) {
            acc<T> sum = sums[k];
            for (int s = 1; s < slots; s++) sum += sums[s * columns + k];
            end_sum = i == 0 ? sum : end_sum + sum;
            const i64 other = first + k / width;
            if (i == parts - 1 && other < p.items) {
                const column_item its = column_item_at(p, other);
                put_column<T>(p, its, its.tile * width + k % width, end_sum);
            }
        }
        if (i < parts - 1) __syncthreads();
    }
}

/* Adds up the parts of columns: 8 columns side by side, and so many threads share the parts of each. */
template <class A, class Y> TN_DEVICE void sum_end_columns(const tni_sum_end &p) {
    constexpr int LANES = TNI_SUM_THREADS / TNI_SUM_END_SLOTS;
    __shared__ A sums[TNI_SUM_END_SLOTS][LANES];
    const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    const i64 output = (i64)blockIdx.x * LANES + lane;
    A sum = 0;
    if (output < p.outputs) {
#pragma unroll 8
        for (i64 i = slot; i < p.n_parts; i += TNI_SUM_END_SLOTS) sum += ((const A *)p.parts)[i * p.outputs + output];
    }
    sums[slot][lane] = sum;
    __syncthreads();
    if (slot > 0 || output >= p.outputs) return;
    for (int i = 1; i < TNI_SUM_END_SLOTS && i < p.n_parts; i++) sum += sums[i][lane];
    const i64 outer = (i64)quotient((u64)output, (u64)p.c);
    narrow(sum, ((Y *)p.y)[walk_any(p.kept, (u64)outer).at[1] + (output - outer * p.c) * p.y_step]);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Room for 64 and for 80 registers: a batch of packs, the sums, and what it takes to get at them. */
#define BOUNDS TNI_SUM_THREADS, 4
#define COLUMN_BOUNDS TNI_SUM_THREADS, 3
#define ROWS(name, call) TN_KERNEL(name, BOUNDS, (const __grid_constant__ tni_sum_rows p), call)
#define COLUMNS(name, call) TN_KERNEL(name, COLUMN_BOUNDS, (const __grid_constant__ tni_sum_columns p), call)
#define END(name, call) TN_KERNEL(name, TNI_SUM_THREADS, (const __grid_constant__ tni_sum_end p), call)

#define SUM(T, type)                                                 \
    ROWS(sum_thread_##type, (sum_group<T, 1, 2, true>(p)))           \
    ROWS(sum_few_##type, (sum_group<T, 8, 2, true>(p)))              \
    ROWS(sum_warp_##type, (sum_group<T, 32, 8, true>(p)))            \
    ROWS(sum_block_##type, (sum_block<T, T, true>(p)))               \
    ROWS(sum_few_segments_##type, (sum_group<T, 8, 2, false>(p)))    \
    ROWS(sum_warp_segments_##type, (sum_group<T, 32, 8, false>(p)))  \
    ROWS(sum_block_segments_##type, (sum_block<T, T, false>(p)))     \
    COLUMNS(sum_columns_##type, (sum_columns<T, true>(p)))           \
    COLUMNS(sum_columns_segments_##type, (sum_columns<T, false>(p))) \
    ROWS(sum_end_warp_##type, (sum_end_warp<acc<T>, T>(p)))          \
    ROWS(sum_end_block_##type, (sum_block<acc<T>, T, true>(p)))      \
    END(sum_end_columns_##type, (sum_end_columns<acc<T>, T>(p)))

SUM(f16, f16)
SUM(bf16, bf16)
SUM(float, f32)
SUM(double, f64)
