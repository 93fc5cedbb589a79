/* sum over the innermost dimension, and others. x is read once, 16 bytes at a time wherever they lie: a row that begins
 * elsewhere is summed up as it lies, and the sums are put in their places at the end. */
#include "sum.cuh"

/* The numbers of a row are dealt out to LANES threads: place i of pack q is added to sum i of thread q % LANES. A row
 * that does not begin at a multiple of 16 bytes is dealt out as if it began before, so that its sums end up some
 * places further on, and are brought back. */

template <class T, int LANES, int BATCH>
TN_DEVICE void add_row(const T *x, int n, int lane, bool aligned, pack_sums<T> &sums) {
    constexpr int VL = pack<T>::VL;
    const int before = aligned ? 0 : (int)lead_of(x), full = (before + n) / VL;
    const T *from = x - before;
    /* The first and the last pack may be short. */
    const bool has_head = before > 0 && lane == 0, has_tail = full * VL < before + n && full % LANES == lane;
    const int first = has_head ? LANES : lane, count = ceil_div(full - first, LANES);
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
    const i64 last = min(end * VL, p.n);
    add_row<T, LANES, BATCH>(x + begin * VL, (int)(last - begin * VL), lane, p.aligned, sums);
    return p.aligned ? 0 : (int)lead_of(x);
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

/* Sums of one number, if they are few. */
template <class T> TN_DEVICE void sum_one(const tni_sum_one &p) {
    const u32 output = blockIdx.x * TNI_SUM_THREADS + threadIdx.x;
    if (output >= p.outputs) return;
    const place here = walk_to(p.kept, output);
    ((T *)p.y)[here.at[1]] = ((const T *)p.x)[here.at[0]];
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

/* Rows of medium length that do not fill their packs, so that most begin anywhere: a warp has one. Its elements are
 * dealt out to the lanes in turn, those of 2 bytes in pairs: each lane has a sum of every place. */
template <class T> struct lane_sums {
    static constexpr int PER = sizeof(T) == 2 ? 2 : 1;
    acc<T> v[PER];

    TN_MEMBER void add(const lane_word<T> &a) {
#pragma unroll
        for (int i = 0; i < PER; i++) v[i] += a.get(i);
    }
    /* A row that begins in the middle of a pair has its first places where others have their second, and its second
     * places one lane further on. */
    TN_MEMBER acc<T> total(bool odd) const {
        if (PER == 1) return v[0];
        const acc<T> next = __shfl_sync(0xffffffffu, v[0], (threadIdx.x + 1) % 32);
        return v[PER - 1] + (odd ? next : v[0]);
    }
};

/* ROWS rows at a time, of which the first `there` exist. K: words of a row that are loaded at a time. A pair may be
 * half in the row: the first, whose other half is read as well (no allocation begins with it), or the last. */
template <class T, int ROWS, int K>
TN_DEVICE void sum_near_rows(const T *const (&x)[ROWS], int n, int there, acc<T> (&totals)[ROWS]) {
    constexpr int PER = lane_sums<T>::PER;
    const int lane = threadIdx.x % 32;
    lane_sums<T> sums[ROWS] = {};
    T tails[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int last = n - 1 + (PER > 1 && ((u64)x[r] & 2));
        const bool half = PER > 1 && r < there && last % 2 == 0 && last / 2 % 32 == lane;
        tails[r] = half ? x[r][n - 1] : T{};
    }
#pragma unroll 1
    for (int first = lane; first <= n / PER; first += 32 * K) {
        lane_word<T> a[ROWS][K];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int odd = PER > 1 && ((u64)x[r] & 2), full = r < there ? (n + odd) / PER : 0;
            const lane_word<T> *at = (const lane_word<T> *)(x[r] - odd) + first;
#pragma unroll
            for (int k = 0; k < K; k++) a[r][k].load_if(at + k * 32, first + k * 32 < full);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (PER > 1 && ((u64)x[r] & 2) && first == 0) a[r][0].w[0] &= 0xffff0000u;
#pragma unroll
            for (int k = 0; k < K; k++) sums[r].add(a[r][k]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (PER > 1) sums[r].v[0] += widen(tails[r]);
        totals[r] = sums[r].total(PER > 1 && ((u64)x[r] & 2));
    }
}

/* The same, in the same order, of a row whose elements are `step` apart. */
template <class T> TN_DEVICE acc<T> sum_far_row(const T *x, int n, i64 step) {
    constexpr int PER = lane_sums<T>::PER;
    lane_sums<T> sums = {};
#pragma unroll 4
    for (int i = threadIdx.x % 32 * PER; i < n; i += 32 * PER) {
#pragma unroll
        for (int k = 0; k < PER; k++) sums.v[k] += widen(i + k < n ? x[(i + k) * step] : T{});
    }
    return sums.total(false);
}

/* The sums of several rows over a warp: of four, lanes 8 * k … 8 * k + 7 get the k-th. */
template <class A> TN_DEVICE A reduce_rows(const A (&s)[4]) {
    const bool high = threadIdx.x & 16, odd = threadIdx.x & 8;
    A two[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        two[i] = (high ? s[i + 2] : s[i]) + __shfl_xor_sync(0xffffffffu, high ? s[i] : s[i + 2], 16);
    }
    const A one = (odd ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, odd ? two[0] : two[1], 8);
    return reduce_lanes<take_sum, 8>(one);
}
template <class A> TN_DEVICE A reduce_rows(const A (&s)[2]) {
    const bool high = threadIdx.x & 16;
    return reduce_lanes<take_sum, 16>((high ? s[1] : s[0]) + __shfl_xor_sync(0xffffffffu, high ? s[0] : s[1], 16));
}
template <class A> TN_DEVICE A reduce_rows(const A (&s)[1]) {
    return reduce_lanes<take_sum, 32>(s[0]);
}

template <class T, int ROWS, int K> TN_DEVICE void sum_words(const tni_sum_rows &p) {
    const i64 first = ((i64)blockIdx.x * (TNI_SUM_THREADS / 32) + threadIdx.x / 32) * ROWS;
    if (first >= p.outputs) return;
    const int there = p.outputs - first < ROWS ? (int)(p.outputs - first) : ROWS;
    const int mine = (int)threadIdx.x % 32 * ROWS / 32; /* the row that this thread ends up with */
    const T *x[ROWS];
    acc<T> sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] = (const T *)p.x + walk_any(p.kept, (u64)(r < there ? first + r : first)).at[0];
    if (p.step == 1) {
        sum_near_rows<T, ROWS, K>(x, (int)p.n, there, sums);
    } else {
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] = sum_far_row(x[r], (int)p.n, p.step);
    }
    const acc<T> total = reduce_rows(sums);
    if (threadIdx.x % (32 / ROWS) == 0 && mine < there)
        narrow(total, ((T *)p.y)[walk_any(p.kept, (u64)(first + mine)).at[1]]);
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
    const int first = (int)rank * p.per_block, last = min(first + p.per_block, p.n_parts);
    if (p.ends && p.blocks > 1) cluster_begin();
    if (!p.ends) let_next_begin();
    for (int part = first; part < last; part++) {
        const i64 begin = part * p.chunk, end = min(begin + p.chunk, p.n_packs);
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

/* Room for 64 registers: a batch of packs, the sums, and what it takes to get at them. */
#define ROWS(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_rows, call)
#define WORDS(name, blocks, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, blocks, tni_sum_rows, call)
#define ONE(name, call) TN_ROW_KERNEL(name, TNI_SUM_THREADS, 4, tni_sum_one, call)

#define SUM(T, type)                                                \
    ONE(sum_one_##type, (sum_one<T>(p)))                            \
    ROWS(sum_thread_##type, (sum_group<T, 1, 2, true>(p)))          \
    ROWS(sum_few_##type, (sum_group<T, 8, 2, true>(p)))             \
    ROWS(sum_eight_##type, (sum_group<T, 8, 8, true>(p)))           \
    ROWS(sum_half_##type, (sum_group<T, 16, 8, true>(p)))           \
    WORDS(sum_words_##type, 5, (sum_words<T, 1, 10>(p)))            \
    WORDS(sum_two_words_##type, 4, (sum_words<T, 2, 8>(p)))         \
    WORDS(sum_four_short_words_##type, 4, (sum_words<T, 4, 3>(p)))  \
    WORDS(sum_four_words_##type, 4, (sum_words<T, 4, 4>(p)))        \
    ROWS(sum_warp_##type, (sum_group<T, 32, 8, true>(p)))           \
    ROWS(sum_block_##type, (sum_block<T, T, true>(p)))              \
    ROWS(sum_few_segments_##type, (sum_group<T, 8, 2, false>(p)))   \
    ROWS(sum_warp_segments_##type, (sum_group<T, 32, 8, false>(p))) \
    ROWS(sum_block_segments_##type, (sum_block<T, T, false>(p)))    \
    ROWS(sum_end_warp_##type, (sum_end_warp<acc<T>, T>(p)))         \
    ROWS(sum_end_block_##type, (sum_end_block<acc<T>, T>(p)))
TN_FOR_TYPES(SUM)
