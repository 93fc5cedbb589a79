/* attention for any type, size and stride: a warp makes a row, of o, dq, dk or dv. A lane has the score of every 32nd
 * key; then a lane has every 32nd column, and what the lanes know of 32 keys goes round. Tensor cores are in
 * attention_mma.cu. */
#include "attention.cuh"

/* The warps of the launch in turn. */
TN_DEVICE i64 first_warp() {
    return ((i64)blockIdx.x * ATTENTION_THREADS + threadIdx.x) / 32;
}
TN_DEVICE i64 all_warps() {
    return (i64)gridDim.x * (ATTENTION_THREADS / 32);
}

TN_DEVICE query_spot query_at(const tni_gpu_attention &p, i64 row) {
    return {(int)(row / p.m / p.hq), (int)(row / p.m % p.hq), row % p.m};
}

template <class T> TN_DEVICE void make_rows(const tni_gpu_attention &p) {
    typedef acc<T> A;
    for (i64 row = first_warp(); row < p.rows; row += all_warps()) {
        const query_spot s = query_at(p, row);
        A lse = 0;
        for (int first = 0; first < p.e || first == 0; first += CHUNK) lse = make_o<T>(p, s, first);
        if (p.lse.data && threadIdx.x % 32 == 0) ((A *)p.lse.data)[place(p.lse, s.p, s.h, s.i, 0)] = lse;
    }
}

template <class T> TN_DEVICE void make_gradients(const tni_gpu_attention &p) {
    const bool of_v = p.make == ATTENTION_DV;
    const int all = of_v ? p.e : p.d;
    for (i64 row = first_warp(); row < p.rows; row += all_warps()) {
        for (int first = 0; first < all; first += CHUNK) {
            if (p.make == ATTENTION_DQ)
                make_dq<T>(p, query_at(p, row), first);
            else
                make_dkv<T>(p, (int)(row / p.n / p.hk), (int)(row / p.n % p.hk), row % p.n, first, of_v);
        }
    }
}

/* delta = sum(o dy) - dlse */
template <class T> TN_DEVICE void make_delta(const tni_gpu_attention &p) {
    typedef acc<T> A;
    const int lane = (int)threadIdx.x % 32;
    for (i64 row = first_warp(); row < p.rows; row += all_warps()) {
        const query_spot s = query_at(p, row);
        A sum = 0;
        if (p.dy.data) {
            const T *o = row_at<T>(p.o, s.p, s.h, s.i), *dy = row_at<T>(p.dy, s.p, s.h, s.i);
            for (int c = lane; c < p.e; c += 32) sum += widen(o[c * p.o.at[3]]) * widen(dy[c * p.dy.at[3]]);
        }
        sum = reduce_lanes<take_sum, 32>(sum);
        if (p.dlse.data) sum -= ((const A *)p.dlse.data)[place(p.dlse, s.p, s.h, s.i, 0)];
        if (lane == 0) ((A *)p.delta)[row] = sum;
    }
}

/* A warp for each element of dbias, which all pairs that it was added to are behind. */
template <class T> TN_DEVICE void make_dbias(const tni_gpu_attention &p) {
    typedef acc<T> A;
    const int lane = (int)threadIdx.x % 32;
    const long long *shape = p.bias_shape;
    const i64 all[4] = {p.b, p.hq, p.m, p.n};
    i64 pairs = 1;
    for (int d = 0; d < 4; d++) pairs *= shape[d] == 1 ? all[d] : 1;
    for (i64 row = first_warp(); row < p.rows; row += all_warps()) {
        i64 own[4], rest = row;
        for (int d = 3; d >= 0; d--) {
            own[d] = rest % shape[d];
            rest /= shape[d];
        }
        A sum = 0;
        for (i64 pair = lane; pair < pairs; pair += 32) {
            i64 at[4], left = pair;
            for (int d = 3; d >= 0; d--) {
                const i64 size = shape[d] == 1 ? all[d] : 1;
                at[d] = shape[d] == 1 ? left % size : own[d];
                left /= size;
            }
            sum += weights_of<T>(p, {(int)at[0], (int)at[1], at[2]}, at[3]).slope;
        }
        sum = reduce_lanes<take_sum, 32>(sum);
        if (lane == 0) narrow(sum, ((T *)p.dbias.data)[place(p.dbias, own[0], own[1], own[2], own[3])]);
    }
}

/* A block for each head: in double, as there are as many terms as rows. */
template <class T> TN_DEVICE void make_dsinks(const tni_gpu_attention &p) {
    typedef acc<T> A;
    __shared__ f64 slots[ATTENTION_THREADS / 32];
    const int h = (int)blockIdx.x;
    const f64 sink = load_sink<f64>(p, h);
    f64 sum = 0;
    for (i64 row = threadIdx.x; row < p.b * p.m; row += ATTENTION_THREADS) {
        const i64 b = row / p.m, i = row % p.m;
        const f64 lse = ((const A *)p.lse.data)[place(p.lse, b, h, i, 0)];
        sum -= exp(sink - lse) * ((const A *)p.delta)[(b * p.hq + h) * p.m + i];
    }
    sum = reduce_block<take_sum>(sum, ATTENTION_THREADS, slots);
    const i64 at = h * p.dsinks_step;
    if (threadIdx.x) return;
    if (p.sinks_type == ATTENTION_F32)
        ((f32 *)p.dsinks)[at] = (f32)sum;
    else if (p.sinks_type == ATTENTION_F64)
        ((f64 *)p.dsinks)[at] = sum;
    else if (p.sinks_type == ATTENTION_F16)
        narrow(sum, ((f16 *)p.dsinks)[at]);
    else
        narrow(sum, ((bf16 *)p.dsinks)[at]);
}

#define KERNELS(T, name)                                                                                     \
    TN_ROW_KERNEL(attention_rows_##name, ATTENTION_THREADS, 1, tni_gpu_attention, make_rows<T>(p))           \
    TN_ROW_KERNEL(attention_gradients_##name, ATTENTION_THREADS, 1, tni_gpu_attention, make_gradients<T>(p)) \
    TN_ROW_KERNEL(attention_delta_##name, ATTENTION_THREADS, 1, tni_gpu_attention, make_delta<T>(p))         \
    TN_ROW_KERNEL(attention_dbias_##name, ATTENTION_THREADS, 1, tni_gpu_attention, make_dbias<T>(p))         \
    TN_ROW_KERNEL(attention_dsinks_##name, ATTENTION_THREADS, 1, tni_gpu_attention, make_dsinks<T>(p))
TN_FOR_TYPES(KERNELS)
