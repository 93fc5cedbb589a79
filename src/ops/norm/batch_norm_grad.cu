/* batch_norm_grad. Where a channel fits into the shared memory of a few blocks, one kernel, which reads x and dy once;
 * else three. Many blocks sum up g and g * d for each channel in parts, a few end the sums, many write dx and
 * dresidual, backwards: they begin with what is still in the L2 cache. g is what passes the activation, which is
 * computed again; d = x - mean. */
#include "batch_norm.cuh"

/* What the elements of a thread's packs are computed with. */
template <class T> struct numbers { acc<T> mean[pack<T>::VL], scale[pack<T>::VL], beta[pack<T>::VL]; };

/* Before the numbers of all channels are written down. */
template <class T, bool RELU> TN_DEVICE void numbers_of(const tni_batch_norm &p, i64 c, int i, numbers<T> &to) {
    typedef acc<T> A;
    to.mean[i] = read_number<A>(p.mean, c, 0);
    to.scale[i] = RELU ? (A)(read_number<double>(p.rstd, c, 0) * read_number<double>(p.gamma, c, 1)) : 0;
    to.beta[i] = RELU ? read_number<A>(p.beta, c, 0) : 0;
}

/* For all elements of a channel. */
template <class T> TN_DEVICE void spread(numbers<T> &n) {
#pragma unroll
    for (int i = 1; i < pack<T>::VL; i++) n.mean[i] = n.mean[0], n.scale[i] = n.scale[0], n.beta[i] = n.beta[0];
}

/* The packs of one place of the tensors. */
template <class T> struct inputs { pack<T> x, residual, dy; };

/* dy, or 0 where relu cut off; NaN passes. */
template <class T, bool RELU>
TN_DEVICE acc<T> passed(const tni_batch_norm &p, const inputs<T> &in, const numbers<T> &by, int i) {
    const acc<T> g = widen(in.dy.v[i]);
    if (!RELU) return g;
    acc<T> z = (widen(in.x.v[i]) - by.mean[i]) * by.scale[i] + by.beta[i];
    if (p.residual.data) z += widen(in.residual.v[i]);
    return z <= 0 ? 0 : g;
}

/* The sums of a thread, for each element of its packs. */
template <class T> struct sums { acc<T> g[pack<T>::VL], dot[pack<T>::VL]; };

/* Adds a pack, of which some elements are there. */
template <class T, bool RELU>
TN_DEVICE void add_pack(const tni_batch_norm &p, const inputs<T> &in, const numbers<T> &by, i64 left, i64 apart,
                        sums<T> &to) {
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        if (i * apart >= left) continue;
        const acc<T> g = passed<T, RELU>(p, in, by, i);
        to.g[i] += g;
        to.dot[i] += g * (widen(in.x.v[i]) - by.mean[i]);
    }
}

/* ---- sums of planes ---------------------------------------------------------------------------------------------- */

/* The residual only matters to relu. */
template <class T, bool RELU>
TN_DEVICE inputs<T> inputs_of_plane(const tni_batch_norm &p, i64 c, const spot &at, bool wide) {
    const i64 left = p.s - at.first;
    inputs<T> in = {};
    in.x = get(wide, plane_at<T>(p.x, c, at), left, 1);
    in.dy = get(wide, plane_at<T>(p.dy, c, at), left, 1);
    if (RELU && p.residual.data) in.residual = get(wide, plane_at<T>(p.residual, c, at), left, 1);
    return in;
}

template <class T, bool RELU>
TN_DEVICE void sums_of_packs(const tni_batch_norm &p, i64 c, i64 q, i64 end, const numbers<T> &by, sums<T> &to) {
    constexpr int VL = pack<T>::VL, BATCH = RELU ? 2 : 4, STEP = TNI_BN_THREADS;
#pragma unroll 1
    for (; p.full && q < end; q += BATCH * STEP) {
        inputs<T> in[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (q + k * STEP < end) in[k] = inputs_of_plane<T, RELU>(p, c, near_spot_of<T>(p, q + k * STEP), true);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (q + k * STEP < end) add_pack<T, RELU>(p, in[k], by, VL, 1, to);
        }
    }
#pragma unroll 1
    for (; q < end; q += STEP) {
        const spot at = spot_of<T>(p, q);
        const i64 left = p.s - at.first;
        add_pack<T, RELU>(p, inputs_of_plane<T, RELU>(p, c, at, p.wide && left >= VL), by, left, 1, to);
    }
}

/* A block sums up one part of one channel. */
template <class T, bool RELU> TN_DEVICE void sums_of_planes(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, WARPS = TNI_BN_THREADS / 32;
    __shared__ A scratch[2][WARPS];
    const i64 c = (i64)quotient((u64)blockIdx.x, (u64)p.n_parts), part = blockIdx.x - c * p.n_parts;
    const i64 begin = part * p.per_part, end = min(begin + p.per_part, p.units);
    numbers<T> by;
    sums<T> s = {};
    let_next_begin();
    numbers_of<T, RELU>(p, c, 0, by);
    spread(by);
    sums_of_packs<T, RELU>(p, c, begin + threadIdx.x, end, by, s);
#pragma unroll
    for (int i = 1; i < VL; i++) {
        s.g[0] += s.g[i];
        s.dot[0] += s.dot[i];
    }
    const A g = reduce_lanes<take_sum, 32>(s.g[0]), dot = reduce_lanes<take_sum, 32>(s.dot[0]);
    if (threadIdx.x % 32 == 0) {
        scratch[0][threadIdx.x / 32] = g;
        scratch[1][threadIdx.x / 32] = dot;
    }
    __syncthreads();
    if (threadIdx.x >= 2) return;
    A total = scratch[threadIdx.x][0];
    for (int i = 1; i < WARPS; i++) total += scratch[threadIdx.x][i];
    *sums_at<A>(p, part, threadIdx.x, c) = total;
}

/* ---- sums of rows ------------------------------------------------------------------------------------------------ */

template <class T, bool RELU>
TN_DEVICE inputs<T> inputs_of_row(const tni_batch_norm &p, const rows_share &r, i64 row, bool wide) {
    inputs<T> in = {};
    in.x = get(wide, row_at<T>(p.x, r, row), r.left, r.apart);
    in.dy = get(wide, row_at<T>(p.dy, r, row), r.left, r.apart);
    if (RELU && p.residual.data) in.residual = get(wide, row_at<T>(p.residual, r, row), r.left, r.apart);
    return in;
}

/* The places of a chunk that a thread has at once; the residual takes room too. */
template <bool RELU> struct at_once { static constexpr int places = RELU ? TNI_BN_GRAD_BATCH / 2 : TNI_BN_GRAD_BATCH; };

template <class T, bool RELU>
TN_DEVICE void sums_of_places(const tni_batch_norm &p, const rows_share &r, const numbers<T> &by, sums<T> &to) {
    constexpr int BATCH = TNI_BN_GRAD_BATCH, ONCE = at_once<RELU>::places;
#pragma unroll 1
    for (i64 chunk = r.part; chunk < p.n_chunks; chunk += p.n_parts) {
        i64 row = chunk * BATCH * r.slots + r.slot;
        if (p.wide && row + (BATCH - 1) * r.slots < p.units) {
#pragma unroll 1
            for (int from = 0; from < BATCH; from += ONCE, row += ONCE * r.slots) {
                inputs<T> in[ONCE];
#pragma unroll
                for (int k = 0; k < ONCE; k++) in[k] = inputs_of_row<T, RELU>(p, r, row + k * r.slots, true);
#pragma unroll
                for (int k = 0; k < ONCE; k++) add_pack<T, RELU>(p, in[k], by, pack<T>::VL, 1, to);
            }
            continue;
        }
#pragma unroll 1
        for (int k = 0; k < BATCH && row < p.units; k++, row += r.slots)
            add_pack<T, RELU>(p, inputs_of_row<T, RELU>(p, r, row, p.wide), by, r.left, r.apart, to);
    }
}

/* A block sums up a tile of channels over one part of the places. */
template <class T, bool RELU> TN_DEVICE void sums_of_rows(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, THREADS = TNI_BN_THREADS;
    __shared__ A shared_g[VL][THREADS], shared_dot[VL][THREADS];
    const rows_share r = rows_share_of<T>(p);
    sums<T> s = {};
    let_next_begin();
    if (r.left > 0) {
        numbers<T> by;
#pragma unroll
        for (int i = 0; i < VL; i++)
            numbers_of<T, RELU>(p, i * r.apart < r.left ? r.column + i * r.apart : r.column, i, by);
        sums_of_places<T, RELU>(p, r, by, s);
    }
#pragma unroll
    for (int i = 0; i < VL; i++) {
        shared_g[i][threadIdx.x] = s.g[i];
        shared_dot[i][threadIdx.x] = s.dot[i];
    }
    __syncthreads();
    const row_tile<T> own(p, r);
    A g = 0, dot = 0;
    for (int slot = own.way; slot < own.slots; slot += own.ways) {
        g += shared_g[own.i][own.thread_of(slot)];
        dot += shared_dot[own.i][own.thread_of(slot)];
    }
    g = reduce_some_lanes<take_sum>(g, own.ways);
    dot = reduce_some_lanes<take_sum>(dot, own.ways);
    if (own.way > 0 || own.column >= p.c) return;
    *sums_at<A>(p, r.part, 0, own.column) = g;
    *sums_at<A>(p, r.part, 1, own.column) = dot;
}

/* ---- the end of the sums ----------------------------------------------------------------------------------------- */

/* A block ends TNI_BN_END_LANES channels. */
template <class A> TN_DEVICE void end_sums(const tni_batch_norm &p) {
    __shared__ end_scratch scratch[2];
    const int slot = threadIdx.x / TNI_BN_END_LANES;
    const i64 c = (i64)blockIdx.x * TNI_BN_END_LANES + threadIdx.x % TNI_BN_END_LANES, known = c < p.c ? c : 0;
    const double rstd = read_number<double>(p.rstd, known, 0), gamma = read_number<double>(p.gamma, known, 1);
    const A mean = read_number<A>(p.mean, known, 0), beta = read_number<A>(p.beta, known, 0);
    const double count = (double)p.count, scale = rstd * gamma;
    double g = 0, dot = 0;
    let_next_begin();
    wait_for_last();
#pragma unroll 8
    for (i64 part = slot; c < p.c && part < p.n_parts; part += TNI_BN_END_SLOTS) {
        g += *sums_at<A>(p, part, 0, c);
        dot += *sums_at<A>(p, part, 1, c);
    }
    g = sum_slots(g, scratch[0]);
    dot = sum_slots(dot, scratch[1]);
    if (slot > 0 || c >= p.c) return;
    *number_at<A>(p, MEAN, c) = mean;
    *number_at<A>(p, SCALE, c) = (A)scale;
    *number_at<A>(p, BETA, c) = beta;
    *number_at<A>(p, SHIFT, c) = (A)(scale * g / count);
    *number_at<A>(p, SLOPE, c) = (A)(scale * rstd * rstd * dot / count);
    write_number<double>(p.dgamma, c, p.count > 0 ? rstd * dot : 0); /* without values rstd is NaN */
    write_number<double>(p.dbeta, c, g);
}

/* ---- the results ------------------------------------------------------------------------------------------------- */

template <class T> struct more_numbers {
    numbers<T> by;
    acc<T> shift[pack<T>::VL], slope[pack<T>::VL];
};

template <class T> TN_DEVICE void more_numbers_of(const tni_batch_norm &p, i64 c, int i, more_numbers<T> &to) {
    typedef acc<T> A;
    to.by.mean[i] = *number_at<A>(p, MEAN, c);
    to.by.scale[i] = *number_at<A>(p, SCALE, c);
    to.by.beta[i] = *number_at<A>(p, BETA, c);
    to.shift[i] = *number_at<A>(p, SHIFT, c);
    to.slope[i] = *number_at<A>(p, SLOPE, c);
}

template <class T> struct outputs { pack<T> dx, dresidual; };

template <class T, bool RELU>
TN_DEVICE outputs<T> outputs_of(const tni_batch_norm &p, const inputs<T> &in, const more_numbers<T> &n) {
    constexpr int VL = pack<T>::VL;
    acc<T> dx[VL], dresidual[VL];
#pragma unroll
    for (int i = 0; i < VL; i++) {
        const acc<T> d = widen(in.x.v[i]) - n.by.mean[i];
        dresidual[i] = passed<T, RELU>(p, in, n.by, i);
        dx[i] = dresidual[i] * n.by.scale[i] - (d * n.slope[i] + n.shift[i]);
    }
    return {narrow_pack<T>(dx), narrow_pack<T>(dresidual)};
}

template <class T>
TN_DEVICE void put_outputs_of_plane(const tni_batch_norm &p, i64 c, const spot &at, bool wide, const outputs<T> &out) {
    const i64 left = p.s - at.first;
    if (p.y.data) put_last(wide, plane_at<T>(p.y, c, at), left, 1, out.dx);
    if (p.dresidual.data) put_last(wide, plane_at<T>(p.dresidual, c, at), left, 1, out.dresidual);
}

/* A block writes some packs of one channel; in the reverse order, since the last ones are still in the L2 cache. */
template <class T, bool RELU> TN_DEVICE void write_planes(const tni_batch_norm &p) {
    constexpr int VL = pack<T>::VL, BATCH = RELU ? 2 : 4, STEP = TNI_BN_THREADS;
    const u64 block = gridDim.x - 1 - blockIdx.x;
    const i64 c = (i64)quotient(block, (u64)p.n_blocks), begin = (i64)(block - c * p.n_blocks) * p.per_block;
    const i64 end = min(begin + p.per_block, p.units);
    wait_for_last();
    more_numbers<T> n;
#pragma unroll
    for (int i = 0; i < VL; i++) more_numbers_of<T>(p, c, i, n);
    i64 q = begin + threadIdx.x;
#pragma unroll 1
    for (; p.full && q < end; q += BATCH * STEP) {
        inputs<T> in[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (q + k * STEP < end) in[k] = inputs_of_plane<T, RELU>(p, c, near_spot_of<T>(p, q + k * STEP), true);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const outputs<T> out = outputs_of<T, RELU>(p, in[k], n);
            if (q + k * STEP < end) put_outputs_of_plane<T>(p, c, near_spot_of<T>(p, q + k * STEP), true, out);
        }
    }
#pragma unroll 1
    for (; q < end; q += STEP) {
        const spot at = spot_of<T>(p, q);
        const bool wide = p.wide && p.s - at.first >= VL;
        put_outputs_of_plane<T>(p, c, at, wide, outputs_of<T, RELU>(p, inputs_of_plane<T, RELU>(p, c, at, wide), n));
    }
}

template <class T, bool WIDE>
TN_DEVICE void put_outputs_of_row(const tni_batch_norm &p, const rows_share &r, i64 row, const outputs<T> &out) {
    if (p.y.data) put_last(WIDE, row_at<T>(p.y, r, row), r.left, r.apart, out.dx);
    if (p.dresidual.data) put_last(WIDE, row_at<T>(p.dresidual, r, row), r.left, r.apart, out.dresidual);
}

/* A block writes a tile of channels in its chunks of places. What is read does not wait for the sums: it is under way
 * meanwhile. */
template <class T, bool RELU, bool WIDE> TN_DEVICE void write_rows(const tni_batch_norm &p) {
    typedef row_writer<T, false> writer;
    constexpr int BATCH = writer::BATCH;
    const rows_share r = write_share_of<T, WIDE>(p);
    const i64 first = writer::first(p, r), step = writer::step(p, r);
    if (r.left <= 0) return;
    more_numbers<T> n;
#pragma unroll 1
    for (i64 row = first; row >= 0; row -= step) {
        inputs<T> in[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) in[k] = inputs_of_row<T, RELU>(p, r, readable(p, row + k * r.slots), WIDE);
        if (row == first) {
            wait_for_last();
            numbers_at<T, WIDE>(p, MEAN, r, n.by.mean);
            numbers_at<T, WIDE>(p, SCALE, r, n.by.scale);
            numbers_at<T, WIDE>(p, BETA, r, n.by.beta);
            numbers_at<T, WIDE>(p, SHIFT, r, n.shift);
            numbers_at<T, WIDE>(p, SLOPE, r, n.slope);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const outputs<T> out = outputs_of<T, RELU>(p, in[k], n);
            if (row + k * r.slots < p.units) put_outputs_of_row<T, WIDE>(p, r, row + k * r.slots, out);
        }
    }
}

/* ---- a channel that stays in a block, or in a cluster of blocks: x and dy are read once -------------------------- */

/* Sums over all threads that have a channel, of two numbers at once; every thread gets them. In double: these are
 * few. */
struct channel_sums {
    double warps[2][TNI_BN_KEPT_THREADS / 32], blocks[2][TNI_BN_CLUSTER];

    TN_MEMBER double all(const double *of, int n) {
        return reduce_lanes<take_sum, 16>((int)threadIdx.x % 16 < n ? of[threadIdx.x % 16] : 0);
    }
    TN_MEMBER void add(const tni_batch_norm &p, u32 rank, double &g, double &dot) {
        const int blocks_of = (int)p.n_blocks;
        g = reduce_lanes<take_sum, 32>(g);
        dot = reduce_lanes<take_sum, 32>(dot);
        if (threadIdx.x % 32 == 0) {
            warps[0][threadIdx.x / 32] = g;
            warps[1][threadIdx.x / 32] = dot;
        }
        __syncthreads();
        g = all(warps[0], blockDim.x / 32);
        dot = all(warps[1], blockDim.x / 32);
        if (blocks_of == 1) return;
        cluster_wait(); /* all have begun */
        if ((int)threadIdx.x < blocks_of) {
            store_cluster(&blocks[0][rank], threadIdx.x, g);
            store_cluster(&blocks[1][rank], threadIdx.x, dot);
        }
        cluster_arrive();
        cluster_wait();
        g = all(blocks[0], blocks_of);
        dot = all(blocks[1], blocks_of);
    }
};

/* From a thread's sums to the numbers that dx is computed with; the first thread writes what a channel gets. */
template <class T>
TN_DEVICE void end_channel(const tni_batch_norm &p, const channel_share &share, acc<T> g, acc<T> dot, double rstd,
                           channel_sums &shared, more_numbers<T> &to) {
    double all_g = (double)g, all_dot = (double)dot;
    shared.add(p, share.rank, all_g, all_dot);
    const double scale = (double)to.by.scale[0] * p.inverse;
    const acc<T> shift = (acc<T>)(scale * all_g), slope = (acc<T>)(scale * rstd * rstd * all_dot);
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) to.shift[i] = shift, to.slope[i] = slope;
    if (threadIdx.x > 0 || share.rank > 0) return;
    write_number<double>(p.dgamma, share.c, rstd * all_dot);
    write_number<double>(p.dbeta, share.c, all_g);
}

/* In shared memory: packs, that come in stages; those of one are summed up while the others are under way. */
template <class T, bool RELU> TN_DEVICE void write_kept(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, STAGES = TNI_BN_STAGES;
    __shared__ channel_sums shared;
    const channel_share share(p);
    const i64 c = share.c;
    const int step = blockDim.x, per_stage = p.per_stage;
    kept_packs<T> x = {dynamic_shared() + threadIdx.x}, dy = {x.slots + p.per_block};
#pragma unroll 1
    for (int k = 0; k < STAGES * per_stage; k += per_stage) {
        x.fetch(p, p.x, c, k, share.first + k * step, share.end);
        dy.fetch(p, p.dy, c, k, share.first + k * step, share.end);
        copy_commit();
    }
    more_numbers<T> n;
    numbers_of<T, true>(p, c, 0, n.by);
    spread(n.by);
    const double rstd = read_number<double>(p.rstd, c, 0);
    sums<T> s = {};
    int k = 0, q = share.first;
#pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
        wait_for_stage(stage);
#pragma unroll 2
        for (; k < (stage + 1) * per_stage && q < share.end; k++, q += step) {
            inputs<T> in = {pack_of<T>(x.take(k)), {}, pack_of<T>(dy.take(k))};
            if (RELU && p.residual.data)
                in.residual = get(p.wide, plane_at<T>(p.residual, c, near_spot_of<T>(p, q)), VL, 1);
            A g[VL];
#pragma unroll
            for (int i = 0; i < VL; i++) {
                g[i] = passed<T, RELU>(p, in, n.by, i);
                s.g[i] += g[i];
                s.dot[i] += g[i] * (widen(in.x.v[i]) - n.by.mean[i]);
            }
            if (RELU) dy.put(k, narrow_pack<T>(g)); /* exactly: dy or 0 */
        }
    }
    A g = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < VL; i++) g += s.g[i], dot += s.dot[i];
    end_channel<T>(p, share, g, dot, rstd, shared, n);
    k = 0, q = share.first;
#pragma unroll 4
    for (; q < share.end; k++, q += step) {
        const spot at = near_spot_of<T>(p, q);
        const inputs<T> in = {pack_of<T>(x.take(k)), {}, pack_of<T>(dy.take(k))};
        const outputs<T> out = outputs_of<T, false>(p, in, n);
        if (p.y.data) put(p.wide, plane_at<T>(p.y, c, at), VL, 1, out.dx);
        if (p.dresidual.data) put(p.wide, plane_at<T>(p.dresidual, c, at), VL, 1, out.dresidual);
    }
}

/* In registers: single elements. */
template <class T, bool RELU> TN_DEVICE void write_singles(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int MOST = TNI_BN_ONE_GRAD_SINGLES;
    __shared__ channel_sums shared;
    channel_share share(p);
    const i64 c = share.c;
    const int step = blockDim.x;
    inputs<T> in[MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int q = share.first + k * step;
        if (q >= share.end) continue;
        in[k].x.v[0] = *single_at<T>(p, p.x, c, q);
        in[k].dy.v[0] = *single_at<T>(p, p.dy, c, q);
        if (RELU && p.residual.data) in[k].residual.v[0] = *single_at<T>(p, p.residual, c, q);
    }
    more_numbers<T> n;
    numbers_of<T, true>(p, c, 0, n.by);
    spread(n.by);
    const double rstd = read_number<double>(p.rstd, c, 0);
    A g = 0, dot = 0;
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        if (share.first + k * step >= share.end) continue;
        const A one = passed<T, RELU>(p, in[k], n.by, 0);
        g += one;
        dot += one * (widen(in[k].x.v[0]) - n.by.mean[0]);
        if (RELU) narrow(one, in[k].dy.v[0]); /* exactly: dy or 0 */
    }
    end_channel<T>(p, share, g, dot, rstd, shared, n);
    hide(share.first);
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int q = share.first + k * step;
        if (q >= share.end) continue;
        const A dy = widen(in[k].dy.v[0]), d = widen(in[k].x.v[0]) - n.by.mean[0];
        if (p.y.data) narrow(dy * n.by.scale[0] - (d * n.slope[0] + n.shift[0]), *single_at<T>(p, p.y, c, q));
        if (p.dresidual.data) *single_at<T>(p, p.dresidual, c, q) = in[k].dy.v[0];
    }
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Room for 80 registers, for 128 where there are numbers for each channel of a pack, for 64 where there are few. */
#define PLANES(name, call) TN_ROW_KERNEL(name, TNI_BN_THREADS, 3, tni_batch_norm, call)
#define ROWS(name, call) TN_ROW_KERNEL(name, TNI_BN_THREADS, TNI_BN_GRAD_ROW_BLOCKS, tni_batch_norm, call)
#define WRITE_ROWS(name, T, blocks, call)                                                                  \
    TN_ROW_KERNEL(name, (row_writer<T, false>::THREADS), sizeof(T) == 2 ? TNI_BN_GRAD_ROW_BLOCKS : blocks, \
                  tni_batch_norm, call)
#define ONE(name, call) TN_ROW_KERNEL(name, TNI_BN_ONE_THREADS, 3, tni_batch_norm, call)
#define KEPT(name, call) TN_ROW_KERNEL(name, TNI_BN_KEPT_THREADS, 2, tni_batch_norm, call)

#define BATCH_NORM_GRAD(T, relu, type)                                                             \
    PLANES(batch_norm_grad_sums_planes_##type, (sums_of_planes<T, relu>(p)))                       \
    ROWS(batch_norm_grad_sums_rows_##type, (sums_of_rows<T, relu>(p)))                             \
    PLANES(batch_norm_grad_write_planes_##type, (write_planes<T, relu>(p)))                        \
    WRITE_ROWS(batch_norm_grad_write_rows_##type, T, relu ? 4 : 6, (write_rows<T, relu, true>(p))) \
    WRITE_ROWS(batch_norm_grad_write_any_rows_##type, T, 4, (write_rows<T, relu, false>(p)))       \
    KEPT(batch_norm_grad_kept_##type, (write_kept<T, relu>(p)))                                    \
    ONE(batch_norm_grad_singles_##type, (write_singles<T, relu>(p)))

#define BOTH(T, type) BATCH_NORM_GRAD(T, false, type) BATCH_NORM_GRAD(T, true, relu_##type)
TN_FOR_TYPES(BOTH)
PLANES(batch_norm_grad_end_f32, (end_sums<float>(p)))
PLANES(batch_norm_grad_end_f64, (end_sums<double>(p)))
