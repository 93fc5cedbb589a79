/* sum over any axes. x is read once, 16 bytes at a time wherever they lie: what begins elsewhere is summed up as it
 * lies, and the sums are put in their places at the end. */
#include "device.cuh"

#include "sum.cuh"

/* ---- packs ------------------------------------------------------------------------------------------------------- */

/* A thread's sums: of each place of its packs. */
template <class T> struct pack_sums {
    static constexpr int VL = pack<T>::VL;
    acc<T> v[VL];

    TN_MEMBER void add(const words &a) {
#pragma unroll
        for (int i = 0; i < VL; i++) v[i] += widen_word<T>(a, i);
    }
    /* `count` packs, `step` elements apart, one after the other: BATCH of them are always under way, the first ones since
     * load_packs. */
    template <int BATCH> TN_MEMBER void add_packs(words (&a)[BATCH], const T *at, i64 step, int count) {
#pragma unroll 1
        for (; count > 0; count -= BATCH) {
            at += BATCH * step;
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                add(a[k]);
                a[k] = load_words_if(at + k * step, k + BATCH < count);
            }
        }
    }
    TN_MEMBER acc<T> total() const {
        acc<T> a[VL];
#pragma unroll
        for (int i = 0; i < VL; i++) a[i] = v[i];
#pragma unroll
        for (int d = VL / 2; d > 0; d /= 2) {
#pragma unroll
            for (int i = 0; i < d; i++) a[i] += a[i + d];
        }
        return a[0];
    }
};

/* Those of `count` packs that are among the first BATCH, else zeros. */
template <class T, int BATCH> TN_DEVICE void load_packs(words (&a)[BATCH], const T *at, i64 step, int count) {
#pragma unroll
    for (int k = 0; k < BATCH; k++) a[k] = load_words_if(at + k * step, k < count);
}

/* Element i of a pack whose words are 0 before. */
template <class T> TN_DEVICE void put_element(words &a, int i, T value) {
    a.w[i / 2] |= (u32)value.bits << i % 2 * 16;
}
template <> TN_MEMBER void put_element<float>(words &a, int i, float value) {
    a.w[i] = __float_as_uint(value);
}
template <> TN_MEMBER void put_element<double>(words &a, int i, double value) {
    a.w[2 * i] = (u32)__double2loint(value);
    a.w[2 * i + 1] = (u32)__double2hiint(value);
}

/* How many elements p is behind a multiple of 16 bytes. */
template <class T> TN_DEVICE int offset_of(const T *p) {
    return (int)((u64)p & 15) / (int)sizeof(T);
}

/* The elements of a pack that are at `low` or behind and before `high`, else zeros. */
template <class T> TN_DEVICE words some_of_pack(const T *p, const T *low, const T *high) {
    words a = {};
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) put_element(a, i, p + i >= low && p + i < high ? p[i] : T{});
    return a;
}

/* The first `left` elements of a pack, `step` apart, then zeros. */
template <class T> TN_DEVICE words far_pack(const T *p, i64 step, i64 left) {
    words a = {};
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) put_element(a, i, i < left ? p[i * step] : T{});
    return a;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The numbers of a row are dealt out to LANES threads: place i of pack q is added to sum i of thread q % LANES. A row
 * that does not begin at a multiple of 16 bytes is dealt out as if it began before, so that its sums end up some
 * places further on, and are brought back. */

template <class T, int LANES, int BATCH>
TN_DEVICE void add_row(const T *x, int n, int lane, bool aligned, pack_sums<T> &sums) {
    constexpr int VL = pack<T>::VL;
    const int before = aligned ? 0 : offset_of(x), full = (before + n) / VL;
    const T *from = x - before;
    /* The first and the last pack may be short. */
    const bool has_head = before > 0 && lane == 0, has_tail = full * VL < before + n && full % LANES == lane;
    const int first = has_head ? LANES : lane, count = (full - first + LANES - 1) / LANES;
    words a[BATCH], head = {}, tail = {};
    load_packs(a, from + first * VL, LANES * VL, count);
    if (has_head) head = some_of_pack(from, x, x + n);
    if (has_tail && !(has_head && full == 0)) tail = some_of_pack(from + full * VL, x, x + n);
    sums.add(head);
    sums.add_packs(a, from + first * VL, LANES * VL, count);
    sums.add(tail);
}

/* What does not lie side by side, or is several segments. FLAT: there is one. */
template <class T, int LANES, bool FLAT>
TN_DEVICE void add_far_row(const tni_sum_rows &p, const T *x, i64 q, i64 end, pack_sums<T> &sums) {
#pragma unroll 2
    for (; q < end; q += LANES) {
        const place here = FLAT ? place{{q * pack<T>::VL * p.step, q * pack<T>::VL}} : walk_any(p.packs, (u64)q);
        const T *at = x + here.at[0];
        const i64 left = p.n - here.at[1];
        const bool wide = p.step == 1 && left >= pack<T>::VL && is_aligned(at);
        sums.add(wide ? load_words_if(at, true) : far_pack(at, p.step, left));
    }
}

/* A thread's sums of packs begin … end - 1. Returns how many places further on they are. */
template <class T, int LANES, int BATCH, bool FLAT>
TN_DEVICE int add_share(const tni_sum_rows &p, const T *x, int lane, i64 begin, i64 end, pack_sums<T> &sums) {
    constexpr int VL = pack<T>::VL;
    if (!FLAT || p.step != 1) {
        add_far_row<T, LANES, FLAT>(p, x, begin + lane, end, sums);
        return 0;
    }
    const i64 last = end * VL < p.n ? end * VL : p.n;
    add_row<T, LANES, BATCH>(x + begin * VL, (int)(last - begin * VL), lane, p.aligned, sums);
    return p.aligned ? 0 : offset_of(x);
}

template <int BY, class A, int N> TN_DEVICE void shift_if(A (&w)[N], bool wanted) {
#pragma unroll
    for (int i = 0; i < N - BY; i++) w[i] = wanted ? w[i + BY] : w[i];
}

/* Brings sums back by `places` < VL; next: those of the next thread. */
template <class T> TN_DEVICE void bring_back(pack_sums<T> &sums, const acc<T> (&next)[pack<T>::VL - 1], int places) {
    constexpr int VL = pack<T>::VL;
    acc<T> w[2 * VL - 1];
#pragma unroll
    for (int i = 0; i < VL; i++) w[i] = sums.v[i];
#pragma unroll
    for (int i = 0; i < VL - 1; i++) w[VL + i] = next[i];
    if (VL > 4) shift_if<VL / 2>(w, places & VL / 2);
    if (VL > 2) shift_if<2>(w, places & 2);
    shift_if<1>(w, places & 1);
#pragma unroll
    for (int i = 0; i < VL; i++) sums.v[i] = w[i];
}

/* The same where LANES neighbouring threads of a warp have a row. */
template <class T, int LANES> TN_DEVICE void bring_back_lanes(pack_sums<T> &sums, int places) {
    const int lane = threadIdx.x % 32, other = (lane & ~(LANES - 1)) | ((lane + 1) & (LANES - 1));
    acc<T> next[pack<T>::VL - 1];
#pragma unroll
    for (int i = 0; i < pack<T>::VL - 1; i++) {
        next[i] = LANES == 1 ? sums.v[i] : __shfl_sync(0xffffffffu, sums.v[i], other);
    }
    bring_back(sums, next, places);
}

/* Short sums: each is done by LANES neighbouring threads of a warp. */
template <class T, int LANES, int BATCH, bool FLAT> TN_DEVICE void sum_group(const tni_sum_rows &p) {
    const i64 output = (i64)blockIdx.x * (TNI_SUM_THREADS / LANES) + threadIdx.x / LANES;
    pack_sums<T> sums = {};
    int places = 0;
    T *y = (T *)p.y;
    if (output < p.outputs) {
        const place here = walk_any(p.kept, (u64)output);
        const T *x = (const T *)p.x + here.at[0];
        y += here.at[1];
        places = add_share<T, LANES, BATCH, FLAT>(p, x, threadIdx.x % LANES, 0, p.n_packs, sums);
    }
    if (FLAT && !p.aligned) bring_back_lanes<T, LANES>(sums, places);
    const acc<T> total = reduce_lanes<take_sum, LANES>(sums.total());
    if (output < p.outputs && threadIdx.x % LANES == 0) narrow(total, *y);
}

/* Rows of medium length that do not fill their packs: most begin anywhere, so a block takes many of them through shared
 * memory. A row's elements are dealt out to the lanes of `strands` warps in turn. */

/* `count` elements that lie side by side, to where they are as far behind a multiple of 16 bytes. */
template <class T> TN_DEVICE void load_tile(const T *from, int count, T *tile) {
    constexpr int VL = pack<T>::VL, BATCH = TNI_SUM_TILE_PACKS / TNI_SUM_THREADS;
    const int before = offset_of(from), first = before > 0, full = (before + count) / VL, i = threadIdx.x;
    words a[BATCH];
    from -= before;
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        const int q = k * TNI_SUM_THREADS + i;
        a[k] = load_words_if(from + q * VL, q >= first && q < full);
    }
    if (i < VL && i >= before && i < before + count) tile[i] = from[i];
    if (i < VL && full * VL + i >= before && full * VL + i < before + count) tile[full * VL + i] = from[full * VL + i];
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        const int q = k * TNI_SUM_THREADS + i;
        const pack<u32> all = {{a[k].w[0], a[k].w[1], a[k].w[2], a[k].w[3]}};
        if (q >= first && q < full) *(pack<u32> *)(tile + q * VL) = all;
    }
}

/* Four sums over a warp, of which lanes 8 * k … 8 * k + 7 get the k-th. */
template <class A> TN_DEVICE A reduce_four(const A (&s)[4]) {
    const bool high = threadIdx.x & 16, odd = threadIdx.x & 8;
    A two[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        two[i] = (high ? s[i + 2] : s[i]) + __shfl_xor_sync(0xffffffffu, high ? s[i] : s[i + 2], 16);
    }
    const A one = (odd ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, odd ? two[0] : two[1], 8);
    return reduce_lanes<take_sum, 8>(one);
}

/* The sums of all strands of the block's rows. `tile`: where the rows are if they lie one behind the other. */
template <class T, bool DENSE>
TN_DEVICE void sum_strands(const tni_sum_rows &p, i64 first, int rows, const T *tile, acc<T> *sums) {
    constexpr int FOUR = 4;
    const int lane = threadIdx.x % 32, n = (int)p.n, jobs = rows * p.strands;
    for (int job = threadIdx.x / 32 * FOUR; job < jobs; job += TNI_SUM_THREADS / 32 * FOUR) {
        const T *at[FOUR];
        int left[FOUR];
        acc<T> s[FOUR] = {};
#pragma unroll
        for (int k = 0; k < FOUR; k++) {
            const bool there = job + k < jobs;
            const int row = there ? (job + k) / p.strands : 0, begin = (job + k) % p.strands * 32 + lane;
            at[k] = DENSE ? tile + row * n + begin
                          : (const T *)p.x + walk_any(p.kept, (u64)(first + row)).at[0] + begin * p.step;
            left[k] = there ? n - begin : 0;
        }
#pragma unroll 4
        for (int e = 0; e < n; e += 32 * p.strands) {
#pragma unroll
            for (int k = 0; k < FOUR; k++) s[k] += widen(e < left[k] ? at[k][DENSE ? e : e * p.step] : T{});
        }
        const acc<T> sum = reduce_four(s);
        if (lane % 8 == 0) sums[job + lane / 8] = sum;
    }
}

template <class T> TN_DEVICE void sum_tile(const tni_sum_rows &p) {
    __shared__ pack<T> tile[TNI_SUM_TILE_PACKS];
    __shared__ acc<T> sums[TNI_SUM_TILE_STRANDS];
    const i64 first = (i64)blockIdx.x * p.tile_rows;
    const int rows = (int)(first + p.tile_rows < p.outputs ? p.tile_rows : p.outputs - first), row = threadIdx.x;
    const T *x = (const T *)p.x + first * p.n;
    if (p.dense) {
        load_tile<T>(x, rows * (int)p.n, tile[0].v);
        __syncthreads();
        sum_strands<T, true>(p, first, rows, tile[0].v + offset_of(x), sums);
    } else {
        sum_strands<T, false>(p, first, rows, nullptr, sums);
    }
    __syncthreads();
    if (row >= rows) return;
    acc<T> total = sums[row * p.strands];
    for (int i = 1; i < p.strands; i++) total += sums[row * p.strands + i];
    narrow(total, ((T *)p.y)[walk_any(p.kept, (u64)(first + row)).at[1]]);
}

/* The sum of the block's sums, in warp 0. Two buffers take turns, so that nobody waits for the last one to be read. */
template <class T> struct block_total {
    static constexpr int WARPS = TNI_SUM_THREADS / 32, VL = pack<T>::VL;
    acc<T> totals[2][WARPS], firsts[2][WARPS][VL]; /* firsts: the sums of each warp's first thread */

    TN_MEMBER acc<T> of(pack_sums<T> &sums, bool aligned, int places, int turn) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (!aligned) {
            acc<T> next[VL - 1];
            if (lane == 0) {
#pragma unroll
                for (int i = 0; i < VL; i++) firsts[turn][warp][i] = sums.v[i];
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < VL - 1; i++) {
                next[i] = __shfl_down_sync(0xffffffffu, sums.v[i], 1);
                if (lane == 31) next[i] = firsts[turn][(warp + 1) % WARPS][i];
            }
            bring_back(sums, next, places);
        }
        const acc<T> sum = reduce_lanes<take_sum, 32>(sums.total());
        if (lane == 0) totals[turn][warp] = sum;
        __syncthreads();
        return warp > 0 ? 0 : reduce_lanes<take_sum, WARPS>(totals[turn][lane % WARPS]);
    }
};

/* Up to 32 parts, one in each lane of a warp. */
template <class A> TN_DEVICE A sum_parts(const A *parts, int n) {
    const int lane = threadIdx.x % 32;
    return reduce_lanes<take_sum, 32>(lane < n ? parts[lane] : 0);
}

/* Long sums: a block does some parts of a sum. Either the sum's blocks end it as sum_end_warp would, the first of them
 * with what the others have told it, or each part goes to memory. */
template <class T, class Y, bool FLAT> TN_DEVICE void sum_block(const tni_sum_rows &p) {
    __shared__ block_total<T> block;
    __shared__ acc<T> parts[TNI_SUM_WHOLE];
    const u32 output = blockIdx.x / p.blocks, rank = blockIdx.x - output * p.blocks;
    const place here = walk_any(p.kept, output);
    const T *x = (const T *)p.x + here.at[0];
    const int first = (int)rank * p.per_block, last = first + p.per_block < p.n_parts ? first + p.per_block : p.n_parts;
    if (p.ends && p.blocks > 1) cluster_begin();
    if (!p.ends) let_next_begin();
    for (int part = first; part < last; part++) {
        const i64 begin = part * p.chunk, end = begin + p.chunk < p.n_packs ? begin + p.chunk : p.n_packs;
        pack_sums<T> sums = {};
        const int places = add_share<T, TNI_SUM_THREADS, 8, FLAT>(p, x, threadIdx.x, begin, end, sums);
        const acc<T> sum = block.of(sums, !FLAT || p.aligned, places, part % 2);
        if (p.ends && p.blocks > 1 && part == first) cluster_wait();
        if (threadIdx.x > 0) continue;
        if (!p.ends)
            ((acc<T> *)p.parts)[(i64)output * p.n_parts + part] = sum;
        else if (rank == 0)
            parts[part] = sum;
        else
            store_cluster(&parts[part], 0, sum);
    }
    if (!p.ends) return;
    if (p.blocks > 1) {
        if (first >= last) cluster_wait();
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    if (rank > 0 || threadIdx.x >= 32) return;
    const acc<T> total = sum_parts(parts, p.n_parts);
    if (threadIdx.x == 0) narrow(total, ((Y *)p.y)[here.at[1]]);
}

/* Many parts in memory are a row again. */
template <class A, class Y> TN_DEVICE void sum_end_block(const tni_sum_rows &p) {
    wait_for_last();
    sum_block<A, Y, true>(p);
}

/* A warp adds up to 32 parts of a sum. x is the parts: n of them for each output. */
template <class A, class Y> TN_DEVICE void sum_end_warp(const tni_sum_rows &p) {
    const i64 output = (i64)blockIdx.x * (TNI_SUM_THREADS / 32) + threadIdx.x / 32;
    wait_for_last();
    if (output >= p.outputs) return;
    const place here = walk_any(p.kept, (u64)output);
    const A total = sum_parts((const A *)p.x + here.at[0], (int)p.n);
    if (threadIdx.x % 32 == 0) narrow(total, ((Y *)p.y)[here.at[1]]);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* The rows of a part are dealt out in turn to `slots` sums. How a part's rows and columns are dealt out to threads:
 *   PACKS  a row of threads has one slot, and each thread the packs at some place of its rows, all aligned and full.
 *          The next part's packs are under way while this one's sums are added up.
 *   ODD    the same where rows begin anywhere. `slots` rows further on, a row begins as far behind a multiple of 16
 *          bytes, whatever the stride: so packs are loaded as they lie, and what is at their places is the same column
 *          again.
 *   DENSE  rows are few columns and lie one behind the other: as many of them as a pack has elements are c packs, and
 *          a row of threads has those.
 *   ANY    packs of rows that are several dimensions, or elements that do not lie side by side. */
enum column_layout { PACKS, ODD, DENSE, ANY };

/* What a row of threads does: a tile of columns, at one place of the other kept dimensions, of one part. */
template <class T> struct column_work {
    const T *x; /* the first row's first column of the tile */
    i64 outer, column;
    i64 begin, end; /* rows */
    int part;
    bool there;

    TN_MEMBER column_work(const tni_sum_columns &p, i64 item, int part) : part(part) {
        const u64 index = quotient((u64)item, (u64)p.tiles);
        there = item < p.items && part < p.n_parts;
        outer = there ? (i64)index : 0;
        column = (item - (i64)index * p.tiles) * p.width;
        find_rows(p);
        x = (const T *)p.x + walk_any(p.kept, (u64)outer).at[0] + column * p.step;
    }
    TN_MEMBER void find_rows(const tni_sum_columns &p) {
        begin = part * p.per_part;
        end = begin + p.per_part < p.n_rows ? begin + p.per_part : p.n_rows;
    }
    TN_MEMBER void go_on(const tni_sum_columns &p) {
        part += p.together;
        find_rows(p);
    }
};

TN_DEVICE int times(i64 length, i64 step) {
    return length > 0 ? (int)quotient((u64)(length + step - 1), (u64)step) : 0;
}

/* Whether a pack reaches beyond memory that is ours. */
template <class T> TN_DEVICE bool is_beyond(const T *at, const T *low, const T *high) {
    return at < low || at + pack<T>::VL > high;
}

/* A thread's packs of all its parts. ODD: the first and the last may reach beyond x's memory. */
template <class T, bool ODD> struct column_stream {
    static constexpr int VL = pack<T>::VL, BATCH = (ODD ? 4 : 8) / (sizeof(T) == 8 ? 2 : 1);
    words a[BATCH];
    const T *next, *tail; /* tail: the last pack, if it reaches beyond, */
    int tail_part;        /* and after how many parts it comes */
    int left, turn;       /* packs from `next` on, and how many batches of its part have begun before */

    TN_MEMBER void load(const tni_sum_columns &p, int k) {
        a[k] = load_words_if(next + k * p.slot_step, k < left);
    }
    TN_MEMBER void go_on(const tni_sum_columns &p) {
        next += BATCH * p.slot_step;
        left -= BATCH;
        turn += BATCH;
        if (turn < p.per_slot) return;
        turn = 0;
        next += p.part_step;
    }
    /* w: the first part; all others are `together` further on each, up to `end`. */
    TN_MEMBER void begin(const tni_sum_columns &p, const column_work<T> &w, int end, int slot, int lane) {
        const T *low = (const T *)p.low, *high = (const T *)p.high;
        const int more = (end - 1 - w.part) / p.together; /* parts */
        const i64 rows = p.n_rows - (w.part + (i64)more * p.together) * p.per_part - slot, most = p.per_part - slot;
        next = w.x + (w.begin + slot) * p.rows.strides[0][0];
        const int place = lane * VL - (ODD ? offset_of(next) : 0);
        const bool there = w.there && w.part < end && place < p.width && w.column + place < p.c;
        left = there ? more * p.per_slot + times(rows < most ? rows : most, p.slots) : 0;
        next += place;
        tail = nullptr;
        turn = 0;
        const bool has_head = ODD && left > 0 && is_beyond(next, low, high);
        if (ODD && left > 1) {
            const T *last = next + (left - 1) * p.slot_step + (left - 1) / p.per_slot * p.part_step;
            if (is_beyond(last, low, high)) tail = last;
            tail_part = (left - 1) / p.per_slot;
            left -= tail != nullptr;
        }
        a[0] = load_words_if(next, left > 0 && !has_head);
#pragma unroll
        for (int k = 1; k < BATCH; k++) load(p, k);
        if (has_head) a[0] = some_of_pack(next, low, high);
        go_on(p);
    }
    TN_MEMBER void add_part(const tni_sum_columns &p, pack_sums<T> &sums) {
#pragma unroll 1
        for (int i = 0; i < p.per_slot; i += BATCH) {
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                sums.add(a[k]);
                load(p, k);
            }
            go_on(p);
        }
        if (ODD && tail && --tail_part < 0) sums.add(some_of_pack(tail, (const T *)p.low, (const T *)p.high));
    }
};

template <class T>
TN_DEVICE void add_dense(const tni_sum_columns &p, const column_work<T> &w, int group, int lane, pack_sums<T> &sums) {
    const T *first = w.x + w.begin * p.c, *end = w.x + w.end * p.c;
    const i64 at = (group * p.c + lane) * pack<T>::VL, step = p.slots * p.c;
    const int count = times(end - first - at, step);
    const T *last = first + at + (count - 1) * step;
    const bool has_tail = count > 0 && is_beyond(last, first, end);
    words a[16];
    load_packs(a, first + at, step, count - has_tail);
    sums.add_packs(a, first + at, step, count - has_tail);
    if (has_tail) sums.add(some_of_pack(last, first, end));
}

template <class T>
TN_DEVICE void add_any(const tni_sum_columns &p, const column_work<T> &w, int slot, int lane, pack_sums<T> &sums) {
    constexpr int BATCH = 2;
    const i64 first = p.side_by_side ? lane * pack<T>::VL : lane, left = p.c - w.column - first;
    const T *x = w.x + first * p.step;
    if (left <= 0) return;
#pragma unroll 1
    for (i64 row = w.begin + slot; row < w.end; row += BATCH * p.slots) {
        words a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const i64 r = row + k * p.slots;
            const T *at = x + (r < w.end ? walk_any(p.rows, (u64)r).at[0] : 0);
            a[k] = words{};
            if (r >= w.end) continue;
            a[k] = p.side_by_side ? load_words_if(at, true)
                                  : far_pack(at, p.lanes * p.step, (left + p.lanes - 1) / p.lanes);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) sums.add(a[k]);
    }
}

/* An item's place, its first column, and how many elements it begins behind a multiple of 16 bytes. */
struct column_item {
    i64 outer, column;
    int before;
};

/* What a block's threads tell each other. */
template <class T> struct column_shared {
    static constexpr int VL = pack<T>::VL, CHAPTERS = TNI_SUM_CHAPTER_BYTES / sizeof(acc<T>);
    acc<T> sums[TNI_SUM_ODD_THREADS * VL * 4 / 3]; /* (rows of threads, VL, lanes) */
    acc<T> parts[TNI_SUM_ODD_THREADS];             /* (together, width) */
    acc<T> chapters[CHAPTERS];                     /* (chapters, width) */
    column_item item;                              /* where it has several parts */
};

/* The length of a line of sums: more than it holds, so that threads that read across lines meet different banks. */
TN_DEVICE int line_of(const tni_sum_columns &p) {
    return p.lanes < 16 ? p.lanes : (p.lanes + 3) / 8 * 8 + 4;
}

/* A column's sum over a part: its slots one after the other, from where threads have put them. */
template <class T, column_layout LAYOUT>
TN_DEVICE acc<T> sum_slots(const tni_sum_columns &p, int before, const acc<T> *sums, int group, int column) {
    constexpr int VL = pack<T>::VL;
    const int line = line_of(p);
    const u32 stride = (u32)p.rows.strides[0][0];
    acc<T> sum = 0;
#pragma unroll 4
    for (int slot = 0; slot < p.slots; slot++) {
        int row = group * p.groups + slot, place = column;
        if (LAYOUT == ODD) place += (int)((before + slot * stride) & (VL - 1));
        if (LAYOUT == DENSE) {
            row = group * p.groups + slot / VL;
            place += slot % VL * (int)p.c;
        }
        if (LAYOUT == ANY && !p.side_by_side) place = column % p.lanes * VL + column / p.lanes;
        sum += sums[(row * VL + place % VL) * line + place / VL];
    }
    return sum;
}

template <class T> TN_DEVICE void put_column(const tni_sum_columns &p, i64 outer, i64 column, acc<T> value) {
    narrow(value, ((T *)p.y)[walk_any(p.kept, (u64)outer).at[1] + column * p.y_step]);
}

/* Adds parts first … first + together - 1, which are in shared memory, to the sums of their chapters. */
template <class T>
TN_DEVICE void add_to_chapters(const tni_sum_columns &p, column_shared<T> &shared, int first, int end) {
    const int chapter = first / p.per_chapter, last = (end - 1) / p.per_chapter;
    for (int k = threadIdx.x; k < (last - chapter + 1) * p.width; k += blockDim.x) {
        const int mine = chapter + k / p.width, column = k % p.width;
        const int from = mine * p.per_chapter, to = from + p.per_chapter < end ? from + p.per_chapter : end;
        acc<T> &sum = shared.chapters[mine * p.width + column];
        acc<T> total = from >= first ? 0 : sum;
#pragma unroll 4
        for (int i = from < first ? first : from; i < to; i++) {
            total += shared.parts[(i - first) * p.width + column];
        }
        sum = total;
    }
}

/* Ends the sums of an item whose chapters are in shared memory, here or in the other blocks of the cluster, of which
 * each has those from chapter `first` on. */
template <class T>
TN_DEVICE void end_item(const tni_sum_columns &p, column_shared<T> &shared, u32 rank, int first, int end) {
    __syncthreads();
    if (p.blocks > 1) {
        cluster_wait(); /* all have begun */
        for (int k = first * p.width + (int)threadIdx.x; rank > 0 && k < end * p.width; k += blockDim.x) {
            store_cluster(&shared.chapters[k], 0, shared.chapters[k]);
        }
        cluster_arrive();
        cluster_wait();
    }
    if (rank > 0) return;
    for (int column = threadIdx.x; column < p.width && shared.item.column + column < p.c; column += blockDim.x) {
        acc<T> total = 0;
#pragma unroll 8
        for (int i = 0; i < p.chapters; i++) total += shared.chapters[i * p.width + column];
        put_column<T>(p, shared.item.outer, shared.item.column + column, total);
    }
}

/* The sums of `together` parts from `part` on, whose slots are in shared memory. No divisions of 64 bits here: they would
 * take the registers of the packs under way. */
template <class T, column_layout LAYOUT>
TN_DEVICE void end_parts(const tni_sum_columns &p, column_shared<T> &shared, int part, int end) {
    for (int k = threadIdx.x; k < p.together * p.width; k += blockDim.x) {
        const int other = k / p.width, column = k % p.width;
        const column_item &item = shared.item;
        if (part + other >= end || item.column + column >= p.c) continue;
        const acc<T> sum = sum_slots<T, LAYOUT>(p, item.before, shared.sums, other, column);
        if (p.ends)
            shared.parts[k] = sum;
        else
            ((acc<T> *)p.parts)[(part + other) * p.outputs + item.outer * p.c + item.column + column] = sum;
    }
}

/* The same where parts are whole items. */
template <class T, column_layout LAYOUT>
TN_DEVICE void end_items(const tni_sum_columns &p, column_shared<T> &shared, i64 item) {
    for (int k = threadIdx.x; k < p.together * p.width; k += blockDim.x) {
        const int other = k / p.width, column = k % p.width;
        const column_work<T> its(p, item + other, 0);
        if (!its.there || its.column + column >= p.c) continue;
        const acc<T> sum = sum_slots<T, LAYOUT>(p, offset_of(its.x), shared.sums, other, column);
        put_column<T>(p, its.outer, its.column + column, sum);
    }
}

/* What a block does of an item: parts first … end - 1. If it ends sums, those are whole chapters. */
struct column_share {
    u32 block, rank;
    int first_chapter, end_chapter, first, end;

    TN_MEMBER column_share(const tni_sum_columns &p) {
        u32 index = blockIdx.x;
        hide(index); /* computed where it is used */
        block = index / (u32)p.blocks;
        rank = index - block * (u32)p.blocks;
        first_chapter = (int)rank * p.chapters / p.blocks;
        end_chapter = ((int)rank + 1) * p.chapters / p.blocks;
        first = p.ends ? first_chapter * p.per_chapter : (int)rank * p.per_block;
        end = p.ends ? end_chapter * p.per_chapter : first + p.per_block;
        if (end > p.n_parts) end = p.n_parts;
    }
};

template <class T, column_layout LAYOUT> TN_DEVICE void sum_columns(const tni_sum_columns &p) {
    constexpr int VL = pack<T>::VL;
    constexpr bool STREAM = LAYOUT == PACKS || LAYOUT == ODD;
    __shared__ column_shared<T> shared;
    const bool many_items = p.n_parts == 1;
    const int row = threadIdx.x / p.lanes, lane = threadIdx.x % p.lanes, group = row / p.groups;
    const int slot = row - group * p.groups;
    const column_share share(p);
    if (p.ends && p.blocks > 1) cluster_begin();
    if (!p.ends) let_next_begin();
    column_work<T> mine(p, many_items ? (i64)share.block * p.together + group : share.block,
                        many_items ? 0 : share.first + group);
    mine.there = mine.there && group < p.together;
    column_stream<T, LAYOUT == ODD> stream;
    if (STREAM) stream.begin(p, mine, share.end, slot, lane);
    if (threadIdx.x == 0) shared.item = {mine.outer, mine.column, offset_of(mine.x)};
    int sums_at = group < p.together ? row * VL * line_of(p) + lane : -1;
#pragma unroll 1
    for (int part = share.first; part < share.end; part += p.together) {
        pack_sums<T> sums = {};
        if (STREAM) {
            stream.add_part(p, sums);
        } else if (mine.there && mine.part < share.end) {
            if (LAYOUT == DENSE) add_dense<T>(p, mine, slot, lane, sums);
            if (LAYOUT == ANY) add_any<T>(p, mine, slot, lane, sums);
            mine.go_on(p);
        }
        hide(sums_at);
        if (sums_at >= 0) {
#pragma unroll
            for (int i = 0; i < VL; i++) shared.sums[sums_at + i * line_of(p)] = sums.v[i];
        }
        __syncthreads();
        if (many_items) break;
        end_parts<T, LAYOUT>(p, shared, part, share.end);
        __syncthreads();
        if (p.ends) add_to_chapters<T>(p, shared, part, part + p.together < share.end ? part + p.together : share.end);
    }
    const column_share done(p);
    if (many_items)
        end_items<T, LAYOUT>(p, shared, (i64)done.block * p.together);
    else if (p.ends)
        end_item<T>(p, shared, done.rank, done.first_chapter, done.end_chapter);
}

/* What a thread loads of a row, of which it has so many columns, so far apart: a pack, where all are aligned and full;
 * else elements, so that a warp's lie side by side. */
template <class T> struct few_packs {
    static constexpr int COLUMNS = pack<T>::VL, APART = 1, BATCH = 6;
    words a;
    TN_MEMBER void load(const T *x, i64, bool there) {
        a = load_words_if(x, there);
    }
    TN_MEMBER acc<T> get(int i) const {
        return widen_word<T>(a, i);
    }
};
template <class T> struct few_elements {
    static constexpr int COLUMNS = 4, APART = 32, BATCH = sizeof(T) == 8 ? 4 : 8;
    T a[COLUMNS];
    TN_MEMBER void load(const T *x, i64 left, bool there) {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) a[i] = there && i * APART < left ? x[i * APART] : T{};
    }
    TN_MEMBER acc<T> get(int i) const {
        return widen(a[i]);
    }
};

/* Few rows of many columns: a thread does all slots of its columns, one after the other. */
template <class T, class LOAD> TN_DEVICE void sum_few_rows(const tni_sum_columns &p) {
    constexpr int VL = pack<T>::VL, COLUMNS = LOAD::COLUMNS, APART = LOAD::APART, BATCH = LOAD::BATCH;
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 threads = (i64)quotient((u64)p.c + COLUMNS * APART - 1, COLUMNS * APART) * APART; /* of all columns */
    const i64 outer = (i64)quotient((u64)index, (u64)threads), mine = index - outer * threads;
    const i64 column = mine / APART * (COLUMNS * APART) + mine % APART, left = p.c - column;
    if (outer >= p.kept.count) return;
    const place here = walk_any(p.kept, (u64)outer);
    const T *x = (const T *)p.x + here.at[0] + column;
    const i64 stride = p.rows.strides[0][0];
    const int n = (int)p.n_rows;
    int row = 0, slot = 0, begun = 0, added = 0; /* of what is loaded next; of what is added next */
    LOAD a[BATCH];
    acc<T> sums[COLUMNS] = {}, total[COLUMNS] = {};
    /* Rows 0, VL, 2 * VL … , then 1, VL + 1 … */
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        a[k].load(x + row * stride, left, k < n);
        row = row + VL < n ? row + VL : ++slot;
    }
#pragma unroll 1
    for (int rows = n; rows > 0; rows -= BATCH) {
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) sums[i] += a[k].get(i);
            a[k].load(x + row * stride, left, k + BATCH < rows);
            row = row + VL < n ? row + VL : ++slot;
            added += VL;
            if (added < n) continue;
            added = ++begun;
#pragma unroll
            for (int i = 0; i < COLUMNS; i++) {
                total[i] += sums[i];
                sums[i] = 0;
            }
        }
    }
    T *y = (T *)p.y + here.at[1] + column * p.y_step;
    if (COLUMNS == VL && APART == 1 && p.y_step == 1 && is_aligned(y)) {
        store_pack(y, narrow_pack<T>(total));
    } else {
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            if (i * APART < left) narrow(total[i], y[i * APART * p.y_step]);
        }
    }
}

/* Adds up the parts of columns: a thread has a chapter of one. */
template <class A, class Y> TN_DEVICE void sum_end_columns(const tni_sum_end &p) {
    constexpr int LANES = TNI_SUM_END_LANES;
    __shared__ A chapters[TNI_SUM_CHAPTERS][LANES];
    const int lane = threadIdx.x % LANES, chapter = threadIdx.x / LANES;
    const i64 output = (i64)blockIdx.x * LANES + lane;
    const int first = chapter * p.per_chapter,
              end = first + p.per_chapter < p.n_parts ? first + p.per_chapter : p.n_parts;
    A sum = 0;
    wait_for_last();
    if (output < p.outputs) {
#pragma unroll 16
        for (int i = first; i < end; i++) sum += ((const A *)p.parts)[i * p.outputs + output];
    }
    chapters[chapter][lane] = sum;
    __syncthreads();
    if (chapter > 0 || output >= p.outputs) return;
#pragma unroll
    for (int i = 1; i < TNI_SUM_CHAPTERS; i++) sum += chapters[i][lane];
    const i64 outer = (i64)quotient((u64)output, (u64)p.c);
    narrow(sum, ((Y *)p.y)[walk_any(p.kept, (u64)outer).at[1] + (output - outer * p.c) * p.y_step]);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Room for 64 registers: a batch of packs, the sums, and what it takes to get at them; for 128 where the batch is
 * large. */
#define ROWS(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_rows, call)
#define COLUMNS(name, blocks, call) TN_ROW_KERNEL(name, TNI_SUM_COLUMN_THREADS, blocks, tni_sum_columns, call)
#define ODD_COLUMNS(name, call) TN_ROW_KERNEL(name, TNI_SUM_ODD_THREADS, 2, tni_sum_columns, call)
#define FEW(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_columns, call)
#define END(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_end, call)

#define SUM(T, type)                                                       \
    ROWS(sum_thread_##type, (sum_group<T, 1, 2, true>(p)))                 \
    ROWS(sum_few_##type, (sum_group<T, 8, 2, true>(p)))                    \
    ROWS(sum_tile_##type, (sum_tile<T>(p)))                                \
    ROWS(sum_warp_##type, (sum_group<T, 32, 8, true>(p)))                  \
    ROWS(sum_block_##type, (sum_block<T, T, true>(p)))                     \
    ROWS(sum_few_segments_##type, (sum_group<T, 8, 2, false>(p)))          \
    ROWS(sum_warp_segments_##type, (sum_group<T, 32, 8, false>(p)))        \
    ROWS(sum_block_segments_##type, (sum_block<T, T, false>(p)))           \
    COLUMNS(sum_columns_packs_##type, 2, (sum_columns<T, PACKS>(p)))       \
    ODD_COLUMNS(sum_columns_odd_##type, (sum_columns<T, ODD>(p)))          \
    COLUMNS(sum_columns_dense_##type, 1, (sum_columns<T, DENSE>(p)))       \
    COLUMNS(sum_columns_any_##type, 1, (sum_columns<T, ANY>(p)))           \
    FEW(sum_columns_few_##type, (sum_few_rows<T, few_packs<T>>(p)))        \
    FEW(sum_columns_few_odd_##type, (sum_few_rows<T, few_elements<T>>(p))) \
    ROWS(sum_end_warp_##type, (sum_end_warp<acc<T>, T>(p)))                \
    ROWS(sum_end_block_##type, (sum_end_block<acc<T>, T>(p)))              \
    END(sum_end_columns_##type, (sum_end_columns<acc<T>, T>(p)))

SUM(f16, f16)
SUM(bf16, bf16)
SUM(float, f32)
SUM(double, f64)
