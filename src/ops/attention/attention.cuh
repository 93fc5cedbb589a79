/* What attention_cuda.c tells the kernels, and what these have in common: pairs of a query and a key, and rows that a
 * warp makes by itself. */
#pragma once

#ifdef __CUDACC__
#include "cuda/device/device.cuh"
#endif

enum { ATTENTION_THREADS = 256 };
enum { ATTENTION_F16, ATTENTION_BF16, ATTENTION_F32, ATTENTION_F64 }; /* what sinks may be */

/* Strides are in elements: of entry, head, row and column, 0 where a tensor broadcasts. */
typedef struct tni_gpu_heads {
    void *data; /* NULL: there is none */
    long long at[4];
} tni_gpu_heads;

/* What a warp makes: o of a query; dq of one; dk or dv of a key. */
enum { ATTENTION_O, ATTENTION_DQ, ATTENTION_DK, ATTENTION_DV };

typedef struct tni_gpu_attention {
    tni_gpu_heads q, k, v, bias, mask, o, dy, dq, dk, dv, dbias;
    tni_gpu_heads lse, dlse; /* of rows: no column */
    void *delta;             /* (b, hq, m), dense: sum(o dy) - dlse */
    const void *sinks;
    void *dsinks;
    long long sinks_step, dsinks_step;
    long long m, n, rows; /* rows: of what a launch makes */
    long long before, after;
    long long bias_shape[4];
    int b, hq, hk, group, d, e;
    int sinks_type, make;
    double scale, softcap;
} tni_gpu_attention;

#ifdef __CUDACC__
#define TNI_MAP_ALIGNED alignas(64)
#else
#define TNI_MAP_ALIGNED _Alignas(64)
#endif

/* q, k and v as CUDA's tensor maps: columns, rows, heads, entries. */
typedef struct tni_gpu_attention_hopper {
    TNI_MAP_ALIGNED unsigned long long q[16];
    TNI_MAP_ALIGNED unsigned long long k[16];
    TNI_MAP_ALIGNED unsigned long long v[16];
    tni_gpu_attention attention;
} tni_gpu_attention_hopper;

#ifdef __CUDACC__

/* One query and one head of it. */
struct query_spot {
    int p, h;
    i64 i;
};

TN_DEVICE i64 place(const tni_gpu_heads &x, i64 p, i64 h, i64 i, i64 j) {
    return p * x.at[0] + h * x.at[1] + i * x.at[2] + j * x.at[3];
}
template <class T> TN_DEVICE const T *row_at(const tni_gpu_heads &x, i64 p, i64 h, i64 i) {
    return (const T *)x.data + place(x, p, h, i, 0);
}

TN_DEVICE i64 first_key(const tni_gpu_attention &p, i64 i) {
    const i64 key = i + p.n - p.m - p.before;
    return key < 0 ? 0 : key < p.n ? key : p.n;
}
TN_DEVICE i64 end_of_keys(const tni_gpu_attention &p, i64 i) {
    const i64 key = i + p.n - p.m + p.after + 1, first = first_key(p, i);
    return key < first ? first : key < p.n ? key : p.n;
}

template <class A> TN_DEVICE A load_sink(const tni_gpu_attention &p, int h) {
    const i64 at = h * p.sinks_step;
    if (p.sinks_type == ATTENTION_F32) return (A)((const f32 *)p.sinks)[at];
    if (p.sinks_type == ATTENTION_F64) return (A)((const f64 *)p.sinks)[at];
    if (p.sinks_type == ATTENTION_F16) return (A)widen(((const f16 *)p.sinks)[at]);
    return (A)widen(((const bf16 *)p.sinks)[at]);
}

/* ---- a pair ------------------------------------------------------------------------------------------------------ */

template <class A> TN_DEVICE A cap_score(const tni_gpu_attention &p, A t) {
    return p.softcap > 0 ? (A)p.softcap * tn_tanh(t / (A)p.softcap) : t;
}
/* Its slope 1 - tanh(u)^2, from u: near its ends a tanh has lost what is left of 1. */
template <class A> TN_DEVICE A cap_slope(const tni_gpu_attention &p, A t) {
    if (!(p.softcap > 0)) return 1;
    const A e = tn_exp(-2 * tn_abs(t / (A)p.softcap));
    return 4 * e / ((1 + e) * (1 + e));
}

/* What bias and mask make of a score. */
template <class T> TN_DEVICE acc<T> end_score(const tni_gpu_attention &p, const query_spot &s, i64 j, acc<T> t) {
    if (p.bias.data) t += widen(((const T *)p.bias.data)[place(p.bias, s.p, s.h, s.i, j)]);
    if (p.mask.data && !((const u8 *)p.mask.data)[place(p.mask, s.p, s.h, s.i, j)]) t = minus_infinity<acc<T>>();
    return t;
}

template <class T> TN_DEVICE acc<T> dot(const T *a, i64 a_step, const T *b, i64 b_step, int n) {
    acc<T> sum = 0;
    for (int l = 0; l < n; l++) sum += widen(a[l * a_step]) * widen(b[l * b_step]);
    return sum;
}

/* `raw`: the score before cap and bias. */
template <class T> TN_DEVICE acc<T> score_of(const tni_gpu_attention &p, const query_spot &s, i64 j, acc<T> &raw) {
    const T *q = row_at<T>(p.q, s.p, s.h, s.i), *k = row_at<T>(p.k, s.p, s.h / p.group, j);
    raw = 0;
    if (j < first_key(p, s.i) || j >= end_of_keys(p, s.i)) return minus_infinity<acc<T>>();
    raw = (acc<T>)p.scale * dot(q, p.q.at[3], k, p.k.at[3], p.d);
    return end_score<T>(p, s, j, cap_score(p, raw));
}

/* slope: of the score before the bias, which softcap and scale then meet. */
template <class A> struct pair_weights {
    A weight, slope, inner; /* inner: of q k^T */
    bool seen;
};
template <class T> TN_DEVICE pair_weights<acc<T>> weights_of(const tni_gpu_attention &p, const query_spot &s, i64 j) {
    typedef acc<T> A;
    A raw;
    const A score = score_of<T>(p, s, j, raw);
    if (score == minus_infinity<A>()) return {0, 0, 0, false};
    const A lse = ((const A *)p.lse.data)[place(p.lse, s.p, s.h, s.i, 0)];
    const A delta = ((const A *)p.delta)[((i64)s.p * p.hq + s.h) * p.m + s.i];
    A product = 0;
    if (p.dy.data)
        product = dot(row_at<T>(p.dy, s.p, s.h, s.i), p.dy.at[3], row_at<T>(p.v, s.p, s.h / p.group, j), p.v.at[3],
                      p.e);
    const A weight = tn_exp(score - lse), slope = weight * (product - delta);
    return {weight, slope, slope * (A)p.scale * cap_slope(p, raw), true};
}

/* ---- a row, by a warp -------------------------------------------------------------------------------------------- */

enum { CHUNK = 256 }; /* columns at a time */

/* A lane has every 32nd column from `column` on, in register: sums[i] += by * from[...]. */
template <class T> TN_DEVICE void add_row(acc<T> by, const T *from, i64 step, int columns, acc<T> (&sums)[CHUNK / 32]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) {
        const int c = i * 32 + lane;
        if (c < columns) sums[i] += by * widen(from[c * step]);
    }
}

template <class T> TN_DEVICE void put_row(const acc<T> (&sums)[CHUNK / 32], acc<T> by, T *to, i64 step, int columns) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) {
        const int c = i * 32 + lane;
        if (c < columns) narrow(sums[i] * by, to[c * step]);
    }
}

/* o of columns first … of a query: lanes have a key each, and then a column each. Returns the logarithm of the sum.
 * What takes no part is not looked at, whatever v has there. */
template <class T> TN_DEVICE acc<T> make_o(const tni_gpu_attention &p, const query_spot &s, int first) {
    typedef acc<T> A;
    const A none = minus_infinity<A>();
    const int lane = (int)threadIdx.x % 32, columns = p.e - first < CHUNK ? p.e - first : CHUNK;
    A sums[CHUNK / 32] = {}, most = p.sinks ? load_sink<A>(p, s.h) : none;
    A sum = p.sinks ? tn_exp(most - most) : 0;
    const i64 begin = first_key(p, s.i), end = end_of_keys(p, s.i);
    for (i64 key = begin; key < end; key += 32) {
        A raw, score = none;
        if (key + lane < end) score = score_of<T>(p, s, key + lane, raw);
        const A found = reduce_lanes<take_max_nan, 32>(score), now = tn_max(found, most);
        const A shift = now == none ? 0 : now, down = most == none ? 0 : tn_exp(most - shift);
        const A weight = tn_exp(score - shift);
        sum = sum * down + reduce_lanes<take_sum, 32>(weight);
        most = now;
#pragma unroll
        for (int i = 0; i < CHUNK / 32; i++) sums[i] *= down;
        for (int j = 0; j < 32; j++) {
            const A by = __shfl_sync(0xffffffffu, weight, j), of = __shfl_sync(0xffffffffu, score, j);
            if (of != none) {
                const T *v = row_at<T>(p.v, s.p, s.h / p.group, key + j) + first * p.v.at[3];
                add_row(by, v, p.v.at[3], columns, sums);
            }
        }
    }
    if (p.o.data) {
        T *o = (T *)row_at<T>(p.o, s.p, s.h, s.i) + first * p.o.at[3];
        put_row(sums, sum == 0 ? (A)0 : 1 / sum, o, p.o.at[3], columns);
    }
    return (most == none ? 0 : most) + tn_log(sum);
}

/* dq of columns first … of a query. */
template <class T> TN_DEVICE void make_dq(const tni_gpu_attention &p, const query_spot &s, int first) {
    typedef acc<T> A;
    const int lane = (int)threadIdx.x % 32, columns = p.d - first < CHUNK ? p.d - first : CHUNK;
    A sums[CHUNK / 32] = {};
    const i64 begin = first_key(p, s.i), end = end_of_keys(p, s.i);
    for (i64 key = begin; key < end; key += 32) {
        pair_weights<A> own = {0, 0, 0, false};
        if (key + lane < end) own = weights_of<T>(p, s, key + lane);
        for (int j = 0; j < 32; j++) {
            const A by = __shfl_sync(0xffffffffu, own.inner, j);
            if (__shfl_sync(0xffffffffu, (int)own.seen, j)) {
                const T *k = row_at<T>(p.k, s.p, s.h / p.group, key + j) + first * p.k.at[3];
                add_row(by, k, p.k.at[3], columns, sums);
            }
        }
    }
    put_row(sums, (A)1, (T *)row_at<T>(p.dq, s.p, s.h, s.i) + first * p.dq.at[3], p.dq.at[3], columns);
}

/* dk or dv of columns first … of key j: rows of all heads that share it, one query after the other. */
template <class T> TN_DEVICE void make_dkv(const tni_gpu_attention &p, int b, int h, i64 j, int first, bool of_v) {
    typedef acc<T> A;
    const tni_gpu_heads &from = of_v ? p.dy : p.q, &to = of_v ? p.dv : p.dk;
    const int lane = (int)threadIdx.x % 32, all = of_v ? p.e : p.d, columns = all - first < CHUNK ? all - first : CHUNK;
    A sums[CHUNK / 32] = {};
    for (i64 row = 0; row < p.m * p.group && from.data; row += 32) {
        pair_weights<A> own = {0, 0, 0, false};
        const i64 r = row + lane;
        if (r < p.m * p.group) own = weights_of<T>(p, {b, h * p.group + (int)(r % p.group), r / p.group}, j);
        for (int l = 0; l < 32; l++) {
            const A by = __shfl_sync(0xffffffffu, of_v ? own.weight : own.inner, l);
            if (__shfl_sync(0xffffffffu, (int)own.seen, l)) {
                const i64 q = row + l;
                const T *x = row_at<T>(from, b, h * p.group + (int)(q % p.group), q / p.group) + first * from.at[3];
                add_row(by, x, from.at[3], columns, sums);
            }
        }
    }
    put_row(sums, (A)1, (T *)row_at<T>(to, b, h, j) + first * to.at[3], to.at[3], columns);
}

#endif
