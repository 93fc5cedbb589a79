/* batch_norm_grad: three kernels. Many blocks sum up g and g * d for each channel in parts, a few end the sums, many write dx
 * and dresidual. g is what passes the activation, which is computed again; d = x - mean. */
#include "device.cuh"

#include "batch_norm.cuh"

/* What the elements of a thread's packs are computed with. */
template <class T> struct numbers { acc<T> mean[pack<T>::VL], scale[pack<T>::VL], beta[pack<T>::VL]; };

/* Before the numbers of all channels are written down. */
template <class T, bool RELU> TN_DEVICE void numbers_of(const tni_batch_norm &p, i64 c, int i, numbers<T> &to) {
    typedef acc<T> A;
    to.mean[i] = get_number<A>(p.mean, c, 0);
    to.scale[i] = RELU ? (A)(get_number<double>(p.rstd, c, 0) * get_number<double>(p.gamma, c, 1)) : 0;
    to.beta[i] = RELU ? get_number<A>(p.beta, c, 0) : 0;
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

/* ---- sums of planes ---------------------------------------------------------------------------------------------------- */

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
    const i64 begin = part * p.per_part, end = begin + p.per_part < p.units ? begin + p.per_part : p.units;
    numbers<T> by;
    sums<T> s = {};
    numbers_of<T, RELU>(p, c, 0, by);
#pragma unroll
    for (int i = 1; i < VL; i++) by.mean[i] = by.mean[0], by.scale[i] = by.scale[0], by.beta[i] = by.beta[0];
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

/* ---- sums of rows -------------------------------------------------------------------------------------------------------- */

template <class T, bool RELU> TN_DEVICE inputs<T> inputs_of_row(const tni_batch_norm &p, const rows_share &r, i64 row) {
    inputs<T> in = {};
    in.x = get(p.wide, (const T *)p.x.data + row * p.x.row_step + r.column, r.left, r.apart);
    in.dy = get(p.wide, (const T *)p.dy.data + row * p.dy.row_step + r.column, r.left, r.apart);
    if (RELU && p.residual.data) {
        in.residual = get(p.wide, (const T *)p.residual.data + row * p.residual.row_step + r.column, r.left, r.apart);
    }
    return in;
}

template <class T, bool RELU>
TN_DEVICE void sums_of_places(const tni_batch_norm &p, const rows_share &r, const numbers<T> &by, sums<T> &to) {
    constexpr int BATCH = RELU ? 3 : 4;
    const i64 last = (r.part + 1) * p.per_part, end = last < p.units ? last : p.units;
    i64 row = r.part * p.per_part + r.slot;
#pragma unroll 1
    for (; p.wide && row + (BATCH - 1) * r.slots < end; row += BATCH * r.slots) {
        inputs<T> in[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) in[k] = inputs_of_row<T, RELU>(p, r, row + k * r.slots);
#pragma unroll
        for (int k = 0; k < BATCH; k++) add_pack<T, RELU>(p, in[k], by, pack<T>::VL, 1, to);
    }
#pragma unroll 1
    for (; row < end; row += r.slots) add_pack<T, RELU>(p, inputs_of_row<T, RELU>(p, r, row), by, r.left, r.apart, to);
}

/* A block sums up a tile of channels over one part of the places. */
template <class T, bool RELU> TN_DEVICE void sums_of_rows(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, THREADS = TNI_BN_THREADS;
    __shared__ A shared_g[VL][THREADS], shared_dot[VL][THREADS];
    const rows_share r = rows_share_of<T>(p);
    sums<T> s = {};
    if (r.left > 0) {
        numbers<T> by;
#pragma unroll
        for (int i = 0; i < VL; i++)
            numbers_of<T, RELU>(p, i * r.apart < r.left ? r.column + i * r.apart : r.column, i, by);
        sums_of_places<T, RELU>(p, r, by, s);
    }
    /* The upper half of the slots hands over to the lower half, and so on. */
#pragma unroll 1
    for (int half = r.slots / 2; half > 0; half /= 2) {
        if (r.slot >= half && r.slot < 2 * half) {
#pragma unroll
            for (int i = 0; i < VL; i++) {
                shared_g[i][threadIdx.x] = s.g[i];
                shared_dot[i][threadIdx.x] = s.dot[i];
            }
        }
        __syncthreads();
        if (r.slot < half) {
            const int other = threadIdx.x + (half << p.lanes);
#pragma unroll
            for (int i = 0; i < VL; i++) {
                s.g[i] += shared_g[i][other];
                s.dot[i] += shared_dot[i][other];
            }
        }
    }
    if (r.slot > 0) return;
#pragma unroll
    for (int i = 0; i < VL; i++) {
        if (i * r.apart >= r.left) continue;
        *sums_at<A>(p, r.part, 0, r.column + i * r.apart) = s.g[i];
        *sums_at<A>(p, r.part, 1, r.column + i * r.apart) = s.dot[i];
    }
}

/* ---- the end of the sums ---------------------------------------------------------------------------------------------------- */

template <class A> TN_DEVICE void end_channel(const tni_batch_norm &p, i64 c, double g, double dot) {
    const double count = (double)p.count, rstd = get_number<double>(p.rstd, c, 0);
    const double scale = rstd * get_number<double>(p.gamma, c, 1);
    *number_at<A>(p, MEAN, c) = get_number<A>(p.mean, c, 0);
    *number_at<A>(p, SCALE, c) = (A)scale;
    *number_at<A>(p, BETA, c) = get_number<A>(p.beta, c, 0);
    *number_at<A>(p, SHIFT, c) = (A)(scale * g / count);
    *number_at<A>(p, SLOPE, c) = (A)(scale * rstd * rstd * dot / count);
    put_number<double>(p.dgamma, c, p.count > 0 ? rstd * dot : 0); /* without values rstd is NaN */
    put_number<double>(p.dbeta, c, g);
}

/* A block ends TNI_BN_END_LANES channels. */
template <class A> TN_DEVICE void end_sums(const tni_batch_norm &p) {
    constexpr int LANES = TNI_BN_END_LANES, SLOTS = TNI_BN_END_SLOTS;
    __shared__ double scratch[2][SLOTS][LANES];
    const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    const i64 c = (i64)blockIdx.x * LANES + lane;
    double g = 0, dot = 0;
#pragma unroll 8
    for (i64 part = slot; c < p.c && part < p.n_parts; part += SLOTS) {
        g += *sums_at<A>(p, part, 0, c);
        dot += *sums_at<A>(p, part, 1, c);
    }
    scratch[0][slot][lane] = g;
    scratch[1][slot][lane] = dot;
    __syncthreads();
    if (slot > 0 || c >= p.c) return;
    for (int i = 1; i < SLOTS; i++) {
        g += scratch[0][i][lane];
        dot += scratch[1][i][lane];
    }
    end_channel<A>(p, c, g, dot);
}

/* ---- the results -------------------------------------------------------------------------------------------------------------- */

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
    if (p.y.data) put(wide, plane_at<T>(p.y, c, at), left, 1, out.dx);
    if (p.dresidual.data) put(wide, plane_at<T>(p.dresidual, c, at), left, 1, out.dresidual);
}

/* A block writes some packs of one channel; in the reverse order, since the last ones are still in the L2 cache. */
template <class T, bool RELU> TN_DEVICE void write_planes(const tni_batch_norm &p) {
    constexpr int VL = pack<T>::VL, BATCH = RELU ? 2 : 4, STEP = TNI_BN_THREADS;
    const u64 block = gridDim.x - 1 - blockIdx.x;
    const i64 c = (i64)quotient(block, (u64)p.n_blocks), begin = (i64)(block - c * p.n_blocks) * p.per_block;
    const i64 end = begin + p.per_block < p.units ? begin + p.per_block : p.units;
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

template <class T>
TN_DEVICE void put_outputs_of_row(const tni_batch_norm &p, const rows_share &r, i64 row, const outputs<T> &out) {
    if (p.y.data) put(p.wide, (T *)p.y.data + row * p.y.row_step + r.column, r.left, r.apart, out.dx);
    if (p.dresidual.data) {
        put(p.wide, (T *)p.dresidual.data + row * p.dresidual.row_step + r.column, r.left, r.apart, out.dresidual);
    }
}

/* A block writes a tile of channels at some places. */
template <class T, bool RELU> TN_DEVICE void write_rows(const tni_batch_norm &p) {
    constexpr int VL = pack<T>::VL, BATCH = RELU ? 2 : 4;
    const rows_share r = rows_share_of<T>(p);
    const i64 first = (p.n_blocks - 1 - r.part) * p.per_block;
    const i64 end = first + p.per_block < p.units ? first + p.per_block : p.units;
    if (r.left <= 0) return;
    more_numbers<T> n;
#pragma unroll
    for (int i = 0; i < VL; i++) more_numbers_of<T>(p, i * r.apart < r.left ? r.column + i * r.apart : r.column, i, n);
    i64 row = first + r.slot;
#pragma unroll 1
    for (; p.wide && row + (BATCH - 1) * r.slots < end; row += BATCH * r.slots) {
        inputs<T> in[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) in[k] = inputs_of_row<T, RELU>(p, r, row + k * r.slots);
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            put_outputs_of_row<T>(p, r, row + k * r.slots, outputs_of<T, RELU>(p, in[k], n));
    }
#pragma unroll 1
    for (; row < end; row += r.slots) {
        put_outputs_of_row<T>(p, r, row, outputs_of<T, RELU>(p, inputs_of_row<T, RELU>(p, r, row), n));
    }
}

/* ---- a channel that a block keeps in registers: x and dy are read once ---------------------------------------------------------- */

/* The block's sum, in its first thread. */
template <class A> TN_DEVICE A sum_block(A a, A *scratch) {
    const int lane = threadIdx.x % 32;
    a = reduce_lanes<take_sum, 32>(a);
    if (lane == 0) scratch[threadIdx.x / 32] = a;
    __syncthreads();
    if (threadIdx.x >= 32) return a;
    return reduce_lanes<take_sum, 32>(lane < blockDim.x / 32 ? scratch[lane] : 0);
}

template <class T, bool RELU> TN_DEVICE void write_channel(const tni_batch_norm &p) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL, PACKS = TNI_BN_ONE_GRAD_PACKS;
    __shared__ A scratch[2][TNI_BN_ONE_GRAD_THREADS / 32];
    const i64 c = blockIdx.x;
    numbers<T> by;
    inputs<T> in[PACKS];
    A g = 0, dot = 0;
    numbers_of<T, RELU>(p, c, 0, by);
#pragma unroll
    for (int i = 1; i < VL; i++) by.mean[i] = by.mean[0], by.scale[i] = by.scale[0], by.beta[i] = by.beta[0];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const spot at = near_spot_of<T>(p, q);
        if (q < (int)p.units) in[k] = inputs_of_plane<T, RELU>(p, c, at, p.wide && p.s - at.first >= VL);
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const int left = q < (int)p.units ? (int)(p.s - near_spot_of<T>(p, q).first) : 0;
#pragma unroll
        for (int i = 0; i < VL; i++) {
            if (i >= left) continue;
            const A one = passed<T, RELU>(p, in[k], by, i);
            g += one;
            dot += one * (widen(in[k].x.v[i]) - by.mean[i]);
            if (RELU) narrow(one, in[k].dy.v[i]); /* exactly: dy or 0 */
        }
    }
    g = sum_block(g, scratch[0]);
    dot = sum_block(dot, scratch[1]);
    if (threadIdx.x == 0) end_channel<A>(p, c, g, dot);
    __syncthreads();
    more_numbers<T> n;
#pragma unroll
    for (int i = 0; i < VL; i++) more_numbers_of<T>(p, c, i, n);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int q = threadIdx.x + k * blockDim.x;
        const spot at = near_spot_of<T>(p, q);
        if (q >= (int)p.units) continue;
        put_outputs_of_plane<T>(p, c, at, p.wide && p.s - at.first >= VL, outputs_of<T, false>(p, in[k], n));
    }
}

/* ---- names -------------------------------------------------------------------------------------------------------------------- */

/* Room for 80 registers, or 128 where there are numbers for each channel of a pack. */
#define PLANES_BOUNDS TNI_BN_THREADS, 3
#define ROWS_BOUNDS TNI_BN_THREADS, 2
#define ONE_BOUNDS TNI_BN_ONE_GRAD_THREADS, 1
#define ONE(name, call) TN_KERNEL(name, ONE_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)
#define PLANES(name, call) TN_KERNEL(name, PLANES_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)
#define ROWS(name, call) TN_KERNEL(name, ROWS_BOUNDS, (const __grid_constant__ tni_batch_norm p), call)

#define BATCH_NORM_GRAD(T, relu, type)                                       \
    PLANES(batch_norm_grad_sums_planes_##type, (sums_of_planes<T, relu>(p))) \
    ROWS(batch_norm_grad_sums_rows_##type, (sums_of_rows<T, relu>(p)))       \
    PLANES(batch_norm_grad_write_planes_##type, (write_planes<T, relu>(p)))  \
    ROWS(batch_norm_grad_write_rows_##type, (write_rows<T, relu>(p)))        \
    ONE(batch_norm_grad_one_##type, (write_channel<T, relu>(p)))

BATCH_NORM_GRAD(f16, false, f16)
BATCH_NORM_GRAD(bf16, false, bf16)
BATCH_NORM_GRAD(float, false, f32)
BATCH_NORM_GRAD(double, false, f64)
BATCH_NORM_GRAD(f16, true, relu_f16)
BATCH_NORM_GRAD(bf16, true, relu_bf16)
BATCH_NORM_GRAD(float, true, relu_f32)
BATCH_NORM_GRAD(double, true, relu_f64)
PLANES(batch_norm_grad_end_f32, (end_sums<float>(p)))
PLANES(batch_norm_grad_end_f64, (end_sums<double>(p)))
