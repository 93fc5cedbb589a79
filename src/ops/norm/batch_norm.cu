/* batch_norm. Where a channel fits into the shared memory of a few blocks, one kernel, which reads x once; else three.
 * Many blocks sum up each channel in parts, a few end the sums, many write. x is read twice; the last kernel goes
 * backwards, so that it begins with what the first one has left in the L2 cache. */
#include "batch_norm.cuh"

/* ---- mean and variance without cancellation ---------------------------------------------------------------------- */

/* Of n numbers: mean and the sum of squared distances from it. */
template <class A> struct moments { A n, mean, m2; };

/* From the sums of d = x - shift and of d * d over n numbers. */
template <class A> TN_DEVICE moments<A> moments_of(A n, A shift, A sum, A squares) {
    if (n == 0) return {0, 0, 0};
    const A d = sum / n, m2 = squares - sum * d;
    return {n, shift + d, m2 < 0 ? 0 : m2};
}

/* 0 where it is not finite, which makes differences NaN. */
template <class A> TN_DEVICE A if_finite(A a) {
    return a - a == 0 ? a : 0;
}

/* A warp measures from the mean of the numbers that its lanes meet first: that is near the others, or these make the
 * variance. Lane l has number q + l, and those from `end` on are not there. */
template <class A> TN_DEVICE A shift_of_warp(A first, i64 q, i64 end) {
    const i64 there = end - (q - threadIdx.x % 32);
    return if_finite(reduce_lanes<take_sum, 32>(q < end ? first / (A)(there < 32 ? (int)there : 32) : 0));
}

/* All of the numbers of LANES neighbouring lanes, for each of them. An infinite mean stays what it is. */
template <int LANES> TN_DEVICE moments<double> merge_lanes(const moments<double> &m) {
    const double n = reduce_lanes<take_sum, LANES>(m.n), sum = reduce_lanes<take_sum, LANES>(m.n * m.mean);
    const double mean = n > 0 ? sum / n : 0, d = m.mean - mean;
    return {n, mean, reduce_lanes<take_sum, LANES>(m.m2 + m.n * d * d)};
}

template <class A, class B> TN_DEVICE void put_moments(const tni_batch_norm &p, i64 part, i64 c, const moments<B> &m) {
    *sums_at<A>(p, part, 0, c) = (A)m.n;
    *sums_at<A>(p, part, 1, c) = (A)m.mean;
    *sums_at<A>(p, part, 2, c) = (A)m.m2;
}

/* ---- statistics of planes ---------------------------------------------------------------------------------------- */

/* A thread's sums: several, so that none waits for the one before. */
template <class T> struct plane_sums {
    static constexpr int SUMS = pack<T>::VL < 4 ? pack<T>::VL : 4;
    acc<T> shift, sum[SUMS], squares[SUMS];
    int n;

    TN_MEMBER void add(int i, acc<T> x) {
        const acc<T> d = x - shift;
        sum[i % SUMS] += d;
        squares[i % SUMS] += d * d;
    }
};

template <class T> TN_DEVICE void add_pack(plane_sums<T> &s, const pack<T> &a, i64 left) {
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        if (i < left) s.add(i, widen(a.v[i]));
    }
}

/* Those of the warp, which has one shift. */
template <class T> TN_DEVICE moments<double> moments_of_warp(const plane_sums<T> &s) {
    acc<T> sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < plane_sums<T>::SUMS; i++) {
        sum += s.sum[i];
        squares += s.squares[i];
    }
    return moments_of<double>((double)reduce_lanes<take_sum, 32>(s.n), (double)s.shift,
                              reduce_lanes<take_sum, 32>((double)sum), reduce_lanes<take_sum, 32>((double)squares));
}

/* Every TNI_BN_THREADS-th pack from q on. */
template <class T> TN_DEVICE moments<double> moments_of_packs(const tni_batch_norm &p, i64 c, i64 q, i64 end) {
    constexpr int VL = pack<T>::VL, BATCH = 8, STEP = TNI_BN_THREADS;
    plane_sums<T> s = {};
    s.shift = shift_of_warp<acc<T>>(q < end ? widen(*plane_at<T>(p.x, c, spot_of<T>(p, q))) : 0, q, end);
#pragma unroll 1
    for (; p.full && q + (BATCH - 1) * STEP < end; q += BATCH * STEP) {
        pack<T> a[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) a[k] = load_pack(plane_at<T>(p.x, c, near_spot_of<T>(p, q + k * STEP)));
#pragma unroll
        for (int k = 0; k < BATCH; k++) add_pack(s, a[k], VL);
        s.n += BATCH * VL;
    }
    if (p.full && q < end) {
        pack<T> a[BATCH - 1];
#pragma unroll
        for (int k = 0; k < BATCH - 1; k++) {
            if (q + k * STEP < end) a[k] = load_pack(plane_at<T>(p.x, c, near_spot_of<T>(p, q + k * STEP)));
        }
#pragma unroll
        for (int k = 0; k < BATCH - 1; k++) {
            if (q + k * STEP >= end) break;
            add_pack(s, a[k], VL);
            s.n += VL;
        }
        q = end;
    }
#pragma unroll 2
    for (; q < end; q += STEP) {
        const spot at = spot_of<T>(p, q);
        const i64 left = p.s - at.first;
        add_pack(s, get(p.wide && left >= VL, plane_at<T>(p.x, c, at), left, 1), left);
        s.n += left < VL ? (int)left : VL;
    }
    return moments_of_warp(s);
}

/* A block sums up one part of one channel. */
template <class T> TN_DEVICE void statistics_of_planes(const tni_batch_norm &p) {
    constexpr int WARPS = TNI_BN_THREADS / 32;
    __shared__ moments<double> scratch[WARPS];
    const i64 c = (i64)quotient((u64)blockIdx.x, (u64)p.n_parts), part = blockIdx.x - c * p.n_parts;
    const i64 begin = part * p.per_part, end = min(begin + p.per_part, p.units);
    let_next_begin();
    moments<double> m = moments_of_packs<T>(p, c, begin + threadIdx.x, end);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    m = merge_lanes<WARPS>(scratch[threadIdx.x % WARPS]);
    if (threadIdx.x == 0) put_moments<acc<T>>(p, part, c, m);
}

/* ---- statistics of rows ------------------------------------------------------------------------------------------ */

/* A thread's sums for each of its channels. */
template <class T> struct row_sums {
    acc<T> shift[pack<T>::VL], sum[pack<T>::VL], squares[pack<T>::VL];

    TN_MEMBER void add(const pack<T> &a) {
#pragma unroll
        for (int i = 0; i < pack<T>::VL; i++) {
            const acc<T> d = widen(a.v[i]) - shift[i];
            sum[i] += d;
            squares[i] += d * d;
        }
    }
};

/* The moments of a thread's channels over its places of a part. */
template <class T>
TN_DEVICE void moments_of_places(const tni_batch_norm &p, const rows_share &r, moments<acc<T>> (&m)[pack<T>::VL]) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, BATCH = TNI_BN_BATCH;
    const i64 per_chunk = BATCH * r.slots, step = p.x.row_step * r.slots;
    row_sums<T> s = {};
    int n = 0;
    if (r.left > 0 && r.part * per_chunk + r.slot < p.units) {
        const pack<T> a = get(p.wide, row_at<T>(p.x, r, r.part * per_chunk + r.slot), r.left, r.apart);
#pragma unroll
        for (int i = 0; i < VL; i++) s.shift[i] = if_finite(widen(a.v[i]));
    }
    /* Chunks that are full: the next one's packs are under way while these are added. */
    const i64 reach = (BATCH - 1) * r.slots, ahead = p.n_parts * per_chunk * p.x.row_step;
    const auto is_full = [&](i64 chunk) {
        return p.wide && r.left > 0 && chunk * per_chunk + r.slot + reach < p.units;
    };
    i64 chunk = r.part;
    const T *x = row_at<T>(p.x, r, chunk * per_chunk + r.slot);
    words a[BATCH];
#pragma unroll
    for (int k = 0; k < BATCH; k++) a[k] = load_words_if(x + k * step, is_full(chunk));
#pragma unroll 1
    for (; is_full(chunk); chunk += p.n_parts, x += ahead, n += BATCH) {
        const bool more = is_full(chunk + p.n_parts);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            s.add(pack_of<T>(a[k]));
            a[k] = load_words_if(x + ahead + k * step, more);
        }
    }
#pragma unroll 1
    for (; chunk < p.n_chunks && r.left > 0; chunk += p.n_parts, x += ahead) {
        i64 row = chunk * per_chunk + r.slot;
#pragma unroll 1
        for (int k = 0; k < BATCH && row < p.units; k++, row += r.slots, n++)
            s.add(get(p.wide, x + k * step, r.left, r.apart));
    }
#pragma unroll
    for (int i = 0; i < VL; i++) m[i] = moments_of((A)n, s.shift[i], s.sum[i], s.squares[i]);
}

/* A block sums up a tile of channels over one part of the places. */
template <class T> TN_DEVICE void statistics_of_rows(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, THREADS = TNI_BN_THREADS;
    __shared__ A means[VL][THREADS], m2s[VL][THREADS], counts[THREADS];
    const rows_share r = rows_share_of<T>(p);
    moments<A> m[VL];
    let_next_begin();
    moments_of_places<T>(p, r, m);
#pragma unroll
    for (int i = 0; i < VL; i++) {
        means[i][threadIdx.x] = m[i].mean;
        m2s[i][threadIdx.x] = m[i].m2;
    }
    counts[threadIdx.x] = m[0].n;
    __syncthreads();
    /* First the mean of the slots' means, measured from one of them, then how far they are from it. */
    const row_tile<T> own(p, r);
    const A base = if_finite(means[own.i][own.thread_of(0)]);
    A n = 0, sum = 0, m2 = 0;
    for (int slot = own.way; slot < own.slots; slot += own.ways) {
        const int thread = own.thread_of(slot);
        n += counts[thread];
        sum += counts[thread] * (means[own.i][thread] - base);
    }
    n = reduce_some_lanes<take_sum>(n, own.ways);
    sum = reduce_some_lanes<take_sum>(sum, own.ways);
    const A mean = n > 0 ? base + sum / n : 0;
    for (int slot = own.way; slot < own.slots; slot += own.ways) {
        const int thread = own.thread_of(slot);
        const A d = means[own.i][thread] - mean;
        m2 += m2s[own.i][thread] + counts[thread] * d * d;
    }
    m2 = reduce_some_lanes<take_sum>(m2, own.ways);
    if (own.way == 0 && own.column < p.c) put_moments<A>(p, r.part, own.column, moments<A>{n, mean, m2});
}

/* ---- the end of the statistics ----------------------------------------------------------------------------------- */

/* What a channel has besides x; asked for early. */
struct channel_inputs {
    double gamma, beta;
    float running_mean, running_var;

    TN_MEMBER channel_inputs(const tni_batch_norm &p, i64 c) {
        gamma = read_number<double>(p.gamma, c, 1);
        beta = read_number<double>(p.beta, c, 0);
        running_mean = ((const float *)p.running_mean.data)[c * p.running_mean.step];
        running_var = ((const float *)p.running_var.data)[c * p.running_var.step];
    }
};

TN_DEVICE float moved(double momentum, float running, double value) {
    return (float)((1 - momentum) * running + momentum * value);
}

/* Without values the variance is NaN, and the running statistics stay. */
TN_DEVICE double rstd_of(const tni_batch_norm &p, double m2) {
    return 1 / sqrt(m2 / (double)p.count + p.eps);
}

TN_DEVICE void write_statistics(const tni_batch_norm &p, i64 c, const channel_inputs &in, double mean, double m2,
                                double rstd) {
    write_number<double>(p.mean, c, mean);
    write_number<double>(p.rstd, c, rstd);
    if (p.count == 0) return;
    const double variance = p.count > 1 ? m2 / (double)(p.count - 1) : m2;
    ((float *)p.running_mean.data)[c * p.running_mean.step] = moved(p.momentum, in.running_mean, mean);
    ((float *)p.running_var.data)[c * p.running_var.step] = moved(p.momentum, in.running_var, variance);
}

/* A block ends TNI_BN_END_LANES channels: first the mean of the parts' means, then how far they are from it. In
 * double, which costs little: parts are few. */
template <class A> TN_DEVICE void end_statistics(const tni_batch_norm &p) {
    __shared__ end_scratch scratch[2];
    const int slot = threadIdx.x / TNI_BN_END_LANES;
    const i64 c = (i64)blockIdx.x * TNI_BN_END_LANES + threadIdx.x % TNI_BN_END_LANES;
    const channel_inputs in(p, c < p.c ? c : 0);
    double sum = 0, m2 = 0;
    let_next_begin();
    wait_for_last();
#pragma unroll 8
    for (i64 part = slot; c < p.c && part < p.n_parts; part += TNI_BN_END_SLOTS) {
        sum += (double)*sums_at<A>(p, part, 0, c) * (double)*sums_at<A>(p, part, 1, c);
    }
    const double mean = sum_slots(sum, scratch[0]) / (double)p.count;
#pragma unroll 8
    for (i64 part = slot; c < p.c && part < p.n_parts; part += TNI_BN_END_SLOTS) {
        const double d = (double)*sums_at<A>(p, part, 1, c) - mean;
        m2 += (double)*sums_at<A>(p, part, 2, c) + d * d * (double)*sums_at<A>(p, part, 0, c);
    }
    m2 = sum_slots(m2, scratch[1]);
    if (slot > 0 || c >= p.c) return;
    const double rstd = rstd_of(p, m2);
    *number_at<A>(p, MEAN, c) = (A)mean;
    *number_at<A>(p, SCALE, c) = (A)(rstd * in.gamma);
    *number_at<A>(p, BETA, c) = (A)in.beta;
    write_statistics(p, c, in, mean, m2, rstd);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

template <class T, bool RESIDUAL>
TN_DEVICE pack<T> normalised(const tni_batch_norm &p, const pack<T> &x, const pack<T> &residual,
                             const acc<T> (&mean)[pack<T>::VL], const acc<T> (&scale)[pack<T>::VL],
                             const acc<T> (&beta)[pack<T>::VL]) {
    acc<T> y[pack<T>::VL];
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        y[i] = (widen(x.v[i]) - mean[i]) * scale[i] + beta[i];
        if (RESIDUAL) y[i] += widen(residual.v[i]);
    }
    if (p.relu) {
#pragma unroll
        for (int i = 0; i < pack<T>::VL; i++) y[i] = y[i] < 0 ? 0 : y[i]; /* NaN stays */
    }
    return narrow_pack<T>(y);
}

/* A block writes some packs of one channel. */
template <class T, bool RESIDUAL> TN_DEVICE void normalise_planes(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, BATCH = 4, STEP = TNI_BN_THREADS;
    const u64 block = gridDim.x - 1 - blockIdx.x;
    const i64 c = (i64)quotient(block, (u64)p.n_blocks), begin = (i64)(block - c * p.n_blocks) * p.per_block;
    const i64 end = min(begin + p.per_block, p.units);
    wait_for_last();
    A mean[VL], scale[VL], beta[VL];
#pragma unroll
    for (int i = 0; i < VL; i++) {
        mean[i] = *number_at<A>(p, MEAN, c);
        scale[i] = *number_at<A>(p, SCALE, c);
        beta[i] = *number_at<A>(p, BETA, c);
    }
    i64 q = begin + threadIdx.x;
#pragma unroll 1
    for (; p.full && q < end; q += BATCH * STEP) {
        pack<T> x[BATCH], residual[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const spot at = near_spot_of<T>(p, q + k * STEP);
            if (q + k * STEP >= end) continue;
            x[k] = load_pack(plane_at<T>(p.x, c, at));
            if (RESIDUAL) residual[k] = load_pack(plane_at<T>(p.residual, c, at));
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const spot at = near_spot_of<T>(p, q + k * STEP);
            const pack<T> y = normalised<T, RESIDUAL>(p, x[k], residual[k], mean, scale, beta);
            if (q + k * STEP < end) stream_pack(plane_at<T>(p.y, c, at), y);
        }
    }
#pragma unroll 1
    for (; q < end; q += STEP) {
        const spot at = spot_of<T>(p, q);
        const i64 left = p.s - at.first;
        const bool wide = p.wide && left >= VL;
        const pack<T> x = get(wide, plane_at<T>(p.x, c, at), left, 1);
        pack<T> residual = {};
        if (RESIDUAL) residual = get(wide, plane_at<T>(p.residual, c, at), left, 1);
        put_last(wide, plane_at<T>(p.y, c, at), left, 1, normalised<T, RESIDUAL>(p, x, residual, mean, scale, beta));
    }
}

/* A block writes a tile of channels in its chunks of places. x does not wait for the statistics: it is under way
 * meanwhile. */
template <class T, bool RESIDUAL, bool WIDE> TN_DEVICE void normalise_rows(const tni_batch_norm &p) {
    typedef row_writer<T, !RESIDUAL> writer;
    constexpr int VL = pack<T>::VL, BATCH = writer::BATCH;
    const rows_share r = write_share_of<T, WIDE>(p);
    const i64 first = writer::first(p, r), step = writer::step(p, r);
    if (r.left <= 0) return;
    acc<T> mean[VL], scale[VL], beta[VL];
#pragma unroll 1
    for (i64 row = first; row >= 0; row -= step) {
        pack<T> x[BATCH] = {}, residual[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const i64 at = RESIDUAL ? readable(p, row + k * r.slots) : row + k * r.slots;
            if (!RESIDUAL && at >= p.units) continue;
            x[k] = get(WIDE, row_at<T>(p.x, r, at), r.left, r.apart);
            if (RESIDUAL) residual[k] = get(WIDE, row_at<T>(p.residual, r, at), r.left, r.apart);
        }
        if (row == first) {
            wait_for_last();
            numbers_at<T, WIDE>(p, MEAN, r, mean);
            numbers_at<T, WIDE>(p, SCALE, r, scale);
            numbers_at<T, WIDE>(p, BETA, r, beta);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const i64 at = row + k * r.slots;
            const pack<T> y = normalised<T, RESIDUAL>(p, x[k], residual[k], mean, scale, beta);
            if (at < p.units) put_last(WIDE, row_at<T>(p.y, r, at), r.left, r.apart, y);
        }
    }
}

/* ---- a channel that stays in a block, or in a cluster of blocks -------------------------------------------------- */

/* What its elements are computed with. */
template <class A> struct channel_numbers { A mean, scale, beta; };

/* Shared memory: what warps and blocks tell each other. */
template <class A> struct channel_exchange {
    moments<double> warps[TNI_BN_KEPT_THREADS / 32], blocks[TNI_BN_CLUSTER];
    channel_numbers<A> numbers;
};

/* Of all threads that have the channel, for the first warp. */
template <class A>
TN_DEVICE moments<double> moments_of_channel(const tni_batch_norm &p, u32 rank, moments<double> m,
                                             channel_exchange<A> &shared) {
    const int blocks = (int)p.n_blocks, lane = threadIdx.x % 16;
    const moments<double> none = {0, 0, 0};
    if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x < 32) m = merge_lanes<16>(lane < (int)blockDim.x / 32 ? shared.warps[lane] : none);
    if (blocks == 1) return m;
    cluster_wait(); /* all have begun */
    if ((int)threadIdx.x < blocks) {
        store_cluster(&shared.blocks[rank].n, threadIdx.x, m.n);
        store_cluster(&shared.blocks[rank].mean, threadIdx.x, m.mean);
        store_cluster(&shared.blocks[rank].m2, threadIdx.x, m.m2);
    }
    cluster_arrive();
    cluster_wait();
    return threadIdx.x < 32 ? merge_lanes<16>(lane < blocks ? shared.blocks[lane] : none) : none;
}

/* From the moments of a warp's elements, for all threads. */
template <class A>
TN_DEVICE channel_numbers<A> numbers_of_channel(const tni_batch_norm &p, const channel_share &share,
                                                const channel_inputs &in, const moments<double> &of_warp,
                                                channel_exchange<A> &shared) {
    const moments<double> m = moments_of_channel(p, share.rank, of_warp, shared);
    double rstd = 0;
    if (threadIdx.x == 0) {
        rstd = rstd_of(p, m.m2);
        shared.numbers = {(A)m.mean, (A)(rstd * in.gamma), (A)in.beta};
    }
    __syncthreads();
    if (threadIdx.x == 0 && share.rank == 0) write_statistics(p, share.c, in, m.mean, m.m2, rstd);
    return shared.numbers;
}

/* In shared memory: packs, that come in stages; those of one are summed up while the others are under way. */
template <class T, bool RESIDUAL> TN_DEVICE void normalise_kept(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, STAGES = TNI_BN_STAGES;
    __shared__ channel_exchange<A> shared;
    const channel_share share(p);
    const int step = blockDim.x, per_stage = p.per_stage;
    kept_packs<T> x = {dynamic_shared() + threadIdx.x};
#pragma unroll 1
    for (int k = 0; k < STAGES * per_stage; k += per_stage) {
        x.fetch(p, p.x, share.c, k, share.first + k * step, share.end);
        copy_commit();
    }
    const channel_inputs in(p, share.c);
    plane_sums<T> s = {};
    int k = 0, q = share.first;
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
        wait_for_stage(stage);
        if (stage == 0) s.shift = shift_of_warp<A>(q < share.end ? widen_word<T>(x.take(0), 0) : 0, q, share.end);
#pragma unroll 2
        for (; k < (stage + 1) * per_stage && q < share.end; k++, q += step) {
            const words a = x.take(k);
#pragma unroll
            for (int i = 0; i < VL; i++) s.add(i, widen_word<T>(a, i));
        }
    }
    s.n = k * VL;
    const channel_numbers<A> all = numbers_of_channel<A>(p, share, in, moments_of_warp(s), shared);
    A mean[VL], scale[VL], beta[VL];
#pragma unroll
    for (int i = 0; i < VL; i++) mean[i] = all.mean, scale[i] = all.scale, beta[i] = all.beta;
    k = 0, q = share.first;
#pragma unroll 4
    for (; q < share.end; k++, q += step) {
        const spot at = near_spot_of<T>(p, q);
        pack<T> residual = {};
        if (RESIDUAL) residual = get(p.wide, plane_at<T>(p.residual, share.c, at), VL, 1);
        const pack<T> y = normalised<T, RESIDUAL>(p, pack_of<T>(x.take(k)), residual, mean, scale, beta);
        put(p.wide, plane_at<T>(p.y, share.c, at), VL, 1, y);
    }
}

/* In registers: single elements. */
template <class T, bool RESIDUAL> TN_DEVICE void normalise_singles(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int MOST = TNI_BN_ONE_SINGLES;
    __shared__ channel_exchange<A> shared;
    channel_share share(p);
    const int step = blockDim.x;
    T x[MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        if (share.first + k * step < share.end) x[k] = *single_at<T>(p, p.x, share.c, share.first + k * step);
    }
    const channel_inputs in(p, share.c);
    plane_sums<T> s = {};
    s.shift = shift_of_warp<A>(share.first < share.end ? widen(x[0]) : 0, share.first, share.end);
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        if (share.first + k * step >= share.end) continue;
        s.add(k, widen(x[k]));
        s.n++;
    }
    const channel_numbers<A> all = numbers_of_channel<A>(p, share, in, moments_of_warp(s), shared);
    hide(share.first);
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int q = share.first + k * step;
        if (q >= share.end) continue;
        A y = (widen(x[k]) - all.mean) * all.scale + all.beta;
        if (RESIDUAL) y += widen(*single_at<T>(p, p.residual, share.c, q));
        if (p.relu && y < 0) y = 0; /* NaN stays */
        narrow(y, *single_at<T>(p, p.y, share.c, q));
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

template <class T> struct row_blocks {
    static constexpr int of_sm = sizeof(T) == 2 ? TNI_BN_SMALL_ROW_BLOCKS : TNI_BN_ROW_BLOCKS;
};

/* Room for 80 registers, or for 64 where there are few: a batch of packs, the sums, and what it takes to get at
 * them. */
#define PLANES(name, call) TN_ROW_KERNEL(name, TNI_BN_THREADS, 3, tni_batch_norm, call)
#define ROWS(name, T, call) TN_ROW_KERNEL(name, TNI_BN_THREADS, row_blocks<T>::of_sm, tni_batch_norm, call)
#define WRITE(name, call) TN_ROW_KERNEL(name, TNI_BN_THREADS, 4, tni_batch_norm, call)
#define WRITE_ROWS(name, T, blocks, call)                                                                  \
    TN_ROW_KERNEL(name, (row_writer<T, true>::THREADS), sizeof(T) == 2 ? TNI_BN_SMALL_ROW_BLOCKS : blocks, \
                  tni_batch_norm, call)
#define ONE(name, call) TN_ROW_KERNEL(name, TNI_BN_ONE_THREADS, 3, tni_batch_norm, call)
#define KEPT(name, call) TN_ROW_KERNEL(name, TNI_BN_KEPT_THREADS, 2, tni_batch_norm, call)

#define BATCH_NORM(T, type)                                                                          \
    PLANES(batch_norm_statistics_planes_##type, (statistics_of_planes<T>(p)))                        \
    ROWS(batch_norm_statistics_rows_##type, T, (statistics_of_rows<T>(p)))                           \
    WRITE(batch_norm_write_planes_##type, (normalise_planes<T, false>(p)))                           \
    WRITE_ROWS(batch_norm_write_rows_##type, T, 9, (normalise_rows<T, false, true>(p)))              \
    WRITE_ROWS(batch_norm_write_any_rows_##type, T, 6, (normalise_rows<T, false, false>(p)))         \
    PLANES(batch_norm_write_planes_residual_##type, (normalise_planes<T, true>(p)))                  \
    WRITE_ROWS(batch_norm_write_rows_residual_##type, T, 7, (normalise_rows<T, true, true>(p)))      \
    WRITE_ROWS(batch_norm_write_any_rows_residual_##type, T, 5, (normalise_rows<T, true, false>(p))) \
    KEPT(batch_norm_kept_##type, (normalise_kept<T, false>(p)))                                      \
    KEPT(batch_norm_kept_residual_##type, (normalise_kept<T, true>(p)))                              \
    ONE(batch_norm_singles_##type, (normalise_singles<T, false>(p)))                                 \
    ONE(batch_norm_singles_residual_##type, (normalise_singles<T, true>(p)))
TN_FOR_TYPES(BATCH_NORM)
PLANES(batch_norm_end_f32, (end_statistics<float>(p)))
PLANES(batch_norm_end_f64, (end_statistics<double>(p)))
