/* batch_norm: three kernels. Many blocks sum up each channel in parts, a few end the sums, many write. x is read twice; the
 * last kernel goes backwards, so that it begins with what the first one has left in the L2 cache. */
#include "device.cuh"

#include "batch_norm.cuh"

/* ---- mean and variance without cancellation -------------------------------------------------------------------------- */

/* Of n numbers: mean and the sum of squared distances from it. */
template <class A> struct moments { A n, mean, m2; };

/* An infinite mean stays what it is. */
template <class A> TN_DEVICE moments<A> merge(const moments<A> &a, const moments<A> &b) {
    const A n = a.n + b.n, share = n > 0 ? b.n / n : 0, d = b.mean - a.mean;
    return {n, d - d == 0 ? a.mean + d * share : a.mean + b.mean, a.m2 + b.m2 + d * d * a.n * share};
}

/* From the sums of d = x - shift and of d * d over n numbers. */
template <class A> TN_DEVICE moments<A> moments_of(A n, A shift, A sum, A squares) {
    if (n == 0) return {0, 0, 0};
    const A d = sum / n, m2 = squares - sum * d;
    return {n, shift + d, m2 < 0 ? 0 : m2};
}

/* Each thread measures from the first number it meets: that is near the others, or it is what makes the variance. */
template <class A> TN_DEVICE A shift_of(A first) {
    return first - first == 0 ? first : 0;
}

template <int LANES, class A> TN_DEVICE moments<A> merge_lanes(moments<A> m) {
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2) {
        m = merge(m, moments<A>{__shfl_down_sync(0xffffffffu, m.n, d), __shfl_down_sync(0xffffffffu, m.mean, d),
                                __shfl_down_sync(0xffffffffu, m.m2, d)});
    }
    return m;
}

template <class A> TN_DEVICE void put_moments(const tni_batch_norm &p, i64 part, i64 c, const moments<A> &m) {
    *sums_at<A>(p, part, 0, c) = m.n;
    *sums_at<A>(p, part, 1, c) = m.mean;
    *sums_at<A>(p, part, 2, c) = m.m2;
}

/* ---- statistics of planes ---------------------------------------------------------------------------------------------- */

/* A thread's sums: several, so that none waits for the one before. */
template <class T> struct plane_sums {
    static constexpr int SUMS = pack<T>::VL < 4 ? pack<T>::VL : 4;
    acc<T> shift, sum[SUMS], squares[SUMS];
    int n;
};

template <class T> TN_DEVICE void add_pack(plane_sums<T> &s, const pack<T> &a, i64 left) {
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        const acc<T> d = i < left ? widen(a.v[i]) - s.shift : 0;
        s.sum[i % plane_sums<T>::SUMS] += d;
        s.squares[i % plane_sums<T>::SUMS] += d * d;
    }
}

template <class T> TN_DEVICE moments<acc<T>> end_of(const plane_sums<T> &s) {
    acc<T> sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < plane_sums<T>::SUMS; i++) {
        sum += s.sum[i];
        squares += s.squares[i];
    }
    return moments_of<acc<T>>((acc<T>)s.n, s.shift, sum, squares);
}

/* Every TNI_BN_THREADS-th pack from q on. */
template <class T> TN_DEVICE moments<acc<T>> moments_of_packs(const tni_batch_norm &p, i64 c, i64 q, i64 end) {
    constexpr int VL = pack<T>::VL, BATCH = 8, STEP = TNI_BN_THREADS;
    plane_sums<T> s = {};
    if (q < end) s.shift = shift_of(widen(*plane_at<T>(p.x, c, spot_of<T>(p, q))));
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
    return end_of(s);
}

/* A block sums up one part of one channel. */
template <class T> TN_DEVICE void statistics_of_planes(const tni_batch_norm &p) {
    constexpr int WARPS = TNI_BN_THREADS / 32;
    __shared__ moments<acc<T>> scratch[WARPS];
    const i64 c = (i64)quotient((u64)blockIdx.x, (u64)p.n_parts), part = blockIdx.x - c * p.n_parts;
    const i64 begin = part * p.per_part, end = begin + p.per_part < p.units ? begin + p.per_part : p.units;
    moments<acc<T>> m = merge_lanes<32>(moments_of_packs<T>(p, c, begin + threadIdx.x, end));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    m = merge_lanes<WARPS>(scratch[threadIdx.x % WARPS]);
    if (threadIdx.x == 0) put_moments(p, part, c, m);
}

/* ---- statistics of rows -------------------------------------------------------------------------------------------------- */

/* The moments of a thread's channels over its places of a part. */
template <class T>
TN_DEVICE void moments_of_places(const tni_batch_norm &p, const rows_share &r, moments<acc<T>> (&m)[pack<T>::VL]) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, BATCH = 8;
    const i64 begin = r.part * p.per_part + r.slot, last = (r.part + 1) * p.per_part;
    const i64 end = last < p.units ? last : p.units, step = p.x.row_step * r.slots;
    const T *x = (const T *)p.x.data + begin * p.x.row_step + r.column;
    const int n = begin < end && r.left > 0 ? (int)((end - begin - 1) / r.slots) + 1 : 0;
    A shift[VL] = {}, sum[VL] = {}, squares[VL] = {};
    if (n > 0) {
        const pack<T> a = get(p.wide, x, r.left, r.apart);
#pragma unroll
        for (int i = 0; i < VL; i++) shift[i] = shift_of(widen(a.v[i]));
    }
    int k = 0;
#pragma unroll 1
    for (; p.wide && k + BATCH <= n; k += BATCH, x += BATCH * step) {
        pack<T> a[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) a[j] = load_pack(x + j * step);
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
#pragma unroll
            for (int i = 0; i < VL; i++) {
                const A d = widen(a[j].v[i]) - shift[i];
                sum[i] += d;
                squares[i] += d * d;
            }
        }
    }
#pragma unroll 2
    for (; k < n; k++, x += step) {
        const pack<T> a = get(p.wide, x, r.left, r.apart);
#pragma unroll
        for (int i = 0; i < VL; i++) {
            const A d = widen(a.v[i]) - shift[i];
            sum[i] += d;
            squares[i] += d * d;
        }
    }
#pragma unroll
    for (int i = 0; i < VL; i++) m[i] = moments_of((A)n, shift[i], sum[i], squares[i]);
}

/* A block sums up a tile of channels over one part of the places. */
template <class T> TN_DEVICE void statistics_of_rows(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, THREADS = TNI_BN_THREADS;
    __shared__ A mean[VL][THREADS], m2[VL][THREADS], count[THREADS];
    const rows_share r = rows_share_of<T>(p);
    moments<A> m[VL];
    moments_of_places<T>(p, r, m);
    /* The upper half of the slots hands over to the lower half, and so on. */
#pragma unroll 1
    for (int half = r.slots / 2; half > 0; half /= 2) {
        if (r.slot >= half && r.slot < 2 * half) {
#pragma unroll
            for (int i = 0; i < VL; i++) {
                mean[i][threadIdx.x] = m[i].mean;
                m2[i][threadIdx.x] = m[i].m2;
            }
            count[threadIdx.x] = m[0].n;
        }
        __syncthreads();
        if (r.slot < half) {
            const int other = threadIdx.x + (half << p.lanes);
#pragma unroll
            for (int i = 0; i < VL; i++) m[i] = merge(m[i], moments<A>{count[other], mean[i][other], m2[i][other]});
        }
    }
    if (r.slot > 0) return;
#pragma unroll
    for (int i = 0; i < VL; i++) {
        if (i * r.apart < r.left) put_moments(p, r.part, r.column + i * r.apart, m[i]);
    }
}

/* ---- the end of the statistics ------------------------------------------------------------------------------------------- */

TN_DEVICE void move_running(const tni_bn_small &running, i64 c, double momentum, double value) {
    float *at = (float *)running.data + c * running.step;
    *at = (float)((1 - momentum) * *at + momentum * value);
}

template <class A> TN_DEVICE void end_channel(const tni_batch_norm &p, i64 c, const moments<double> &m) {
    const double count = (double)p.count;
    const double mean = m.mean, variance = m.m2 / count; /* NaN where there are no values */
    const double rstd = 1 / sqrt(variance + p.eps);
    *number_at<A>(p, MEAN, c) = (A)mean;
    *number_at<A>(p, SCALE, c) = (A)(rstd * get_number<double>(p.gamma, c, 1));
    *number_at<A>(p, BETA, c) = get_number<A>(p.beta, c, 0);
    put_number<double>(p.mean, c, mean);
    put_number<double>(p.rstd, c, rstd);
    if (p.count == 0) return;
    move_running(p.running_mean, c, p.momentum, mean);
    move_running(p.running_var, c, p.momentum, p.count > 1 ? m.m2 / (count - 1) : variance);
}

/* The sum over the slots of a lane, for all of them. scratch: (slots, lanes) that nobody reads any more. */
TN_DEVICE double sum_slots(double a, double (&scratch)[TNI_BN_END_SLOTS][TNI_BN_END_LANES]) {
    const int lane = threadIdx.x % TNI_BN_END_LANES, slot = threadIdx.x / TNI_BN_END_LANES;
    scratch[slot][lane] = a;
    __syncthreads();
    double sum = 0;
#pragma unroll 8
    for (int i = 0; i < TNI_BN_END_SLOTS; i++) sum += scratch[i][lane];
    return sum;
}

/* A block ends TNI_BN_END_LANES channels: first the mean of the parts' means, then how far they are from it. In double, which
 * costs little: parts are few. */
template <class A> TN_DEVICE void end_statistics(const tni_batch_norm &p) {
    __shared__ double scratch[2][TNI_BN_END_SLOTS][TNI_BN_END_LANES];
    const int lane = threadIdx.x % TNI_BN_END_LANES, slot = threadIdx.x / TNI_BN_END_LANES;
    const i64 c = (i64)blockIdx.x * TNI_BN_END_LANES + lane;
    double sum = 0, m2 = 0;
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
    if (slot == 0 && c < p.c) end_channel<A>(p, c, moments<double>{(double)p.count, mean, m2});
}

/* ---- the result ------------------------------------------------------------------------------------------------------------- */

template <class T, bool RESIDUAL>
TN_DEVICE pack<T> normalised(const tni_batch_norm &p, const pack<T> &x, const pack<T> &residual,
                             const acc<T> (&mean)[pack<T>::VL], const acc<T> (&scale)[pack<T>::VL],
                             const acc<T> (&beta)[pack<T>::VL]) {
    acc<T> y[pack<T>::VL];
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        y[i] = (widen(x.v[i]) - mean[i]) * scale[i] + beta[i];
        if (RESIDUAL) y[i] += widen(residual.v[i]);
        if (p.relu && y[i] < 0) y[i] = 0; /* NaN stays */
    }
    return narrow_pack<T>(y);
}

/* A block writes some packs of one channel. */
template <class T, bool RESIDUAL> TN_DEVICE void normalise_planes(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, BATCH = 4, STEP = TNI_BN_THREADS;
    const u64 block = gridDim.x - 1 - blockIdx.x;
    const i64 c = (i64)quotient(block, (u64)p.n_blocks), begin = (i64)(block - c * p.n_blocks) * p.per_block;
    const i64 end = begin + p.per_block < p.units ? begin + p.per_block : p.units;
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
            if (q + k * STEP < end) store_pack(plane_at<T>(p.y, c, at), y);
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
        put(wide, plane_at<T>(p.y, c, at), left, 1, normalised<T, RESIDUAL>(p, x, residual, mean, scale, beta));
    }
}

/* A block writes a tile of channels at some places. */
template <class T, bool RESIDUAL> TN_DEVICE void normalise_rows(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, BATCH = RESIDUAL ? 4 : 8;
    const rows_share r = rows_share_of<T>(p);
    const i64 first = (p.n_blocks - 1 - r.part) * p.per_block;
    const i64 end = first + p.per_block < p.units ? first + p.per_block : p.units;
    if (r.left <= 0) return;
    A mean[VL], scale[VL], beta[VL];
#pragma unroll
    for (int i = 0; i < VL; i++) {
        const i64 c = i * r.apart < r.left ? r.column + i * r.apart : r.column;
        mean[i] = *number_at<A>(p, MEAN, c);
        scale[i] = *number_at<A>(p, SCALE, c);
        beta[i] = *number_at<A>(p, BETA, c);
    }
    i64 row = first + r.slot;
    const T *x = (const T *)p.x.data + row * p.x.row_step + r.column;
    const T *residual = RESIDUAL ? (const T *)p.residual.data + row * p.residual.row_step + r.column : x;
    T *y = (T *)p.y.data + row * p.y.row_step + r.column;
    const i64 x_step = r.slots * p.x.row_step, residual_step = r.slots * p.residual.row_step,
              y_step = r.slots * p.y.row_step;
#pragma unroll 1
    for (; p.wide && row + (BATCH - 1) * r.slots < end; row += BATCH * r.slots) {
        pack<T> a[BATCH], b[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            a[k] = load_pack(x + k * x_step);
            if (RESIDUAL) b[k] = load_pack(residual + k * residual_step);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            store_pack(y + k * y_step, normalised<T, RESIDUAL>(p, a[k], b[k], mean, scale, beta));
        }
        x += BATCH * x_step;
        if (RESIDUAL) residual += BATCH * residual_step;
        y += BATCH * y_step;
    }
#pragma unroll 1
    for (; row < end; row += r.slots) {
        const pack<T> a = get(p.wide, x, r.left, r.apart);
        pack<T> b = {};
        if (RESIDUAL) b = get(p.wide, residual, r.left, r.apart);
        put(p.wide, y, r.left, r.apart, normalised<T, RESIDUAL>(p, a, b, mean, scale, beta));
        x += x_step;
        if (RESIDUAL) residual += residual_step;
        y += y_step;
    }
}

/* ---- a channel that a block keeps in registers: x is read once ------------------------------------------------------------------ */

/* Elements that pack q of a channel has; 0 where there is no such pack. */
template <class T> TN_DEVICE int size_of_pack(const tni_batch_norm &p, int q, const spot &at) {
    const int left = (int)p.s - (int)at.first;
    return q >= (int)p.units ? 0 : left < pack<T>::VL ? left : pack<T>::VL;
}

/* The block's moments, in its first thread. */
template <class A> TN_DEVICE moments<A> merge_block(moments<A> m) {
    __shared__ moments<A> scratch[TNI_BN_ONE_THREADS / 32];
    const int lane = threadIdx.x % 32;
    m = merge_lanes<32>(m);
    if (lane == 0) scratch[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x >= 32) return m;
    return merge_lanes<32>(lane < blockDim.x / 32 ? scratch[lane] : moments<A>{0, 0, 0});
}

template <class T, bool RESIDUAL> TN_DEVICE void normalise_channel(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, PACKS = TNI_BN_ONE_PACKS;
    const i64 c = blockIdx.x;
    pack<T> x[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const spot at = near_spot_of<T>(p, q);
        const int size = size_of_pack<T>(p, q, at);
        if (size > 0) x[k] = get(p.wide && size == VL, plane_at<T>(p.x, c, at), size, 1);
    }
    const A shift = threadIdx.x < p.units ? shift_of(widen(x[0].v[0])) : 0;
    A sum = 0, squares = 0;
    int n = 0;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const int size = size_of_pack<T>(p, q, near_spot_of<T>(p, q));
#pragma unroll
        for (int i = 0; i < VL; i++) {
            const A d = i < size ? widen(x[k].v[i]) - shift : 0;
            sum += d;
            squares += d * d;
        }
        n += size;
    }
    const moments<A> m = merge_block(moments_of((A)n, shift, sum, squares));
    if (threadIdx.x == 0) end_channel<A>(p, c, moments<double>{m.n, m.mean, m.m2});
    __syncthreads();
    A mean[VL], scale[VL], beta[VL];
#pragma unroll
    for (int i = 0; i < VL; i++) {
        mean[i] = *number_at<A>(p, MEAN, c);
        scale[i] = *number_at<A>(p, SCALE, c);
        beta[i] = *number_at<A>(p, BETA, c);
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const spot at = near_spot_of<T>(p, q);
        const int size = size_of_pack<T>(p, q, at);
        if (size == 0) continue;
        const bool wide = p.wide && size == VL;
        pack<T> residual = {};
        if (RESIDUAL) residual = get(wide, plane_at<T>(p.residual, c, at), size, 1);
        put(wide, plane_at<T>(p.y, c, at), size, 1, normalised<T, RESIDUAL>(p, x[k], residual, mean, scale, beta));
    }
}

/* ---- names -------------------------------------------------------------------------------------------------------------------- */

/* Room for 80 registers, for 128 where there are numbers for each channel of a pack, for 64 where there are few: a batch of
 * packs, the sums, and what it takes to get at them. */
#define PLANES_BOUNDS TNI_BN_THREADS, 3
#define ROWS_BOUNDS TNI_BN_THREADS, 2
#define WRITE_BOUNDS TNI_BN_THREADS, 4
#define ONE_BOUNDS TNI_BN_ONE_THREADS, 1
#define ONE(name, call) TN_KERNEL(name, ONE_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)
#define WRITE(name, call) TN_KERNEL(name, WRITE_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)
#define PLANES(name, call) TN_KERNEL(name, PLANES_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)
#define ROWS(name, call) TN_KERNEL(name, ROWS_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)

#define BATCH_NORM(T, type)                                                         \
    PLANES(batch_norm_statistics_planes_##type, (statistics_of_planes<T>(p)))       \
    ROWS(batch_norm_statistics_rows_##type, (statistics_of_rows<T>(p)))             \
    WRITE(batch_norm_write_planes_##type, (normalise_planes<T, false>(p)))          \
    ROWS(batch_norm_write_rows_##type, (normalise_rows<T, false>(p)))               \
    PLANES(batch_norm_write_planes_residual_##type, (normalise_planes<T, true>(p))) \
    ROWS(batch_norm_write_rows_residual_##type, (normalise_rows<T, true>(p)))       \
    ONE(batch_norm_one_##type, (normalise_channel<T, false>(p)))                    \
    ONE(batch_norm_one_residual_##type, (normalise_channel<T, true>(p)))

BATCH_NORM(f16, f16)
BATCH_NORM(bf16, bf16)
BATCH_NORM(float, f32)
BATCH_NORM(double, f64)
PLANES(batch_norm_end_f32, (end_statistics<float>(p)))
PLANES(batch_norm_end_f64, (end_statistics<double>(p)))
