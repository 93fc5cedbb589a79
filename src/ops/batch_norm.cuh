/* What batch_norm_cuda.c tells the kernels of batch_norm.cu and batch_norm_grad.cu, and what those share. */
#pragma once

#include "../cuda/walk.cuh"

enum {
    TNI_BN_THREADS = 256,
    TNI_BN_ONE_THREADS = 768, /* planes: at most, where a block does a channel by itself, */
    TNI_BN_ONE_PACKS = 5,     /* of which each thread keeps so many packs in registers; */
    TNI_BN_ONE_GRAD_THREADS = 512,
    TNI_BN_ONE_GRAD_PACKS = 4, /* backward, of x and dy each */
    TNI_BN_LANES = 16,         /* rows: packs of channels side by side */
    TNI_BN_END_LANES = 8,      /* channels that a block ends */
    TNI_BN_END_SLOTS = 32,     /* threads that share a channel's parts */
    TNI_BN_SUMS = 3,           /* for each part and channel: count, mean, m2; backward: of g, of g * d */
    TNI_BN_NUMBERS = 5         /* for each channel: see below */
};

/* Types of the numbers that may be of any. */
enum { TNI_BN_F16, TNI_BN_BF16, TNI_BN_F32, TNI_BN_F64 };

/* A tensor of the shape of x; NULL where it is absent. Steps in elements. */
typedef struct tni_bn_big {
    void *data;
    long long n_step, c_step, row_step;
} tni_bn_big;

/* A number for each channel; NULL where it is absent. */
typedef struct tni_bn_small {
    void *data;
    long long step;
    int type; /* TNI_BN_… */
} tni_bn_small;

/* x: (n, c, s). Planes: the s values of a plane are side by side, counted in packs of 16 bytes, the last may be short. A
 * channel's packs are cut in parts. Rows: the c channels of a place are side by side, and there are n * s places; a part is
 * some of them. */
typedef struct tni_batch_norm {
    tni_bn_big x, residual, dy, y, dresidual; /* backward: y is dx */
    tni_bn_small gamma, beta, mean, rstd, running_mean, running_var, dgamma, dbeta;
    void *sums;    /* (n_parts, TNI_BN_SUMS, c) */
    void *numbers; /* (TNI_BN_NUMBERS, c): mean, scale, beta; shift, slope */
    double momentum, eps;
    long long n, c, s, count; /* count: n * s */
    long long packs;          /* planes: of a plane */
    long long units;          /* packs of a channel, or places */
    tni_divisor per_plane;    /* by packs, where is_short: units < 2^31 */
    long long per_part, n_parts;
    long long per_block, n_blocks; /* the same of the last kernel, which writes */
    long long tiles;               /* rows: of channels */
    int lanes;                     /* rows: as a power of 2 */
    int is_short, relu;
    int wide; /* packs are 16-byte aligned; rows: and full */
    int full; /* planes: packs are wide and full, and is_short */
} tni_batch_norm;

#ifdef __CUDACC__

/* d = x - mean, z = d * scale + beta (+ residual); dx = g * scale - shift - slope * d */
enum { MEAN, SCALE, BETA, SHIFT, SLOPE };

/* ---- types known at run time --------------------------------------------------------------------------------------- */

template <class A> TN_DEVICE A get_number(const tni_bn_small &v, i64 c, A absent) {
    const i64 at = c * v.step;
    if (!v.data) return absent;
    switch (v.type) {
    case TNI_BN_F16: return widen(((const f16 *)v.data)[at]);
    case TNI_BN_BF16: return widen(((const bf16 *)v.data)[at]);
    case TNI_BN_F32: return ((const float *)v.data)[at];
    default: return (A)((const double *)v.data)[at];
    }
}

template <class A> TN_DEVICE void put_number(const tni_bn_small &v, i64 c, A value) {
    const i64 at = c * v.step;
    if (!v.data) return;
    switch (v.type) {
    case TNI_BN_F16: narrow((float)value, ((f16 *)v.data)[at]); break;
    case TNI_BN_BF16: narrow((float)value, ((bf16 *)v.data)[at]); break;
    case TNI_BN_F32: ((float *)v.data)[at] = (float)value; break;
    default: ((double *)v.data)[at] = value;
    }
}

/* ---- where things are ------------------------------------------------------------------------------------------------ */

template <class A> TN_DEVICE A *sums_at(const tni_batch_norm &p, i64 part, int which, i64 c) {
    return (A *)p.sums + (part * TNI_BN_SUMS + which) * p.c + c;
}

template <class A> TN_DEVICE A *number_at(const tni_batch_norm &p, int which, i64 c) {
    return (A *)p.numbers + which * p.c + c;
}

/* Pack q of a channel: its plane, and its first element there. */
struct spot {
    i64 plane, first;
};

template <class T> TN_DEVICE spot spot_of(const tni_batch_norm &p, i64 q) {
    const i64 plane = p.is_short ? (i64)quotient((u32)q, p.per_plane) : (i64)quotient((u64)q, (u64)p.packs);
    return {plane, (q - plane * p.packs) * pack<T>::VL};
}

/* The same where is_short is known to hold. */
template <class T> TN_DEVICE spot near_spot_of(const tni_batch_norm &p, i64 q) {
    const u32 plane = quotient((u32)q, p.per_plane);
    return {(i64)plane, (i64)((u32)q - plane * p.per_plane.by) * pack<T>::VL};
}

template <class T> TN_DEVICE T *plane_at(const tni_bn_big &v, i64 c, const spot &at) {
    return (T *)v.data + at.plane * v.n_step + c * v.c_step + at.first;
}

/* ---- packs: `left` elements of them are there, `apart` elements from each other -------------------------------------------- */

template <class T> TN_DEVICE pack<T> get_some(const T *p, i64 left, i64 apart) {
    pack<T> a;
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) a.v[i] = i * apart < left ? p[i * apart] : T{};
    return a;
}

template <class T> TN_DEVICE void put_some(T *p, i64 left, i64 apart, const pack<T> &a) {
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) {
        if (i * apart < left) p[i * apart] = a.v[i];
    }
}

template <class T> TN_DEVICE pack<T> get(bool wide, const T *p, i64 left, i64 apart) {
    return wide ? load_pack(p) : get_some(p, left, apart);
}

template <class T> TN_DEVICE void put(bool wide, T *p, i64 left, i64 apart, const pack<T> &a) {
    if (wide)
        store_pack(p, a);
    else
        put_some(p, left, apart, a);
}

/* ---- rows: which channels and places a thread has --------------------------------------------------------------------------- */

struct rows_share {
    i64 column;      /* the first channel of the thread's pack; not less than c where it has none */
    i64 part;        /* of the places */
    i64 left, apart; /* channels from the first on; how far apart they are */
    int slot, slots; /* every slots-th place is its own */
};

template <class T> TN_DEVICE rows_share rows_share_of(const tni_batch_norm &p) {
    const int lane = threadIdx.x & ((1 << p.lanes) - 1);
    const i64 part = (i64)quotient((u64)blockIdx.x, (u64)p.tiles), tile = blockIdx.x - part * p.tiles;
    rows_share r;
    r.column = tile * (pack<T>::VL << p.lanes) + (p.wide ? lane * pack<T>::VL : lane);
    r.part = part;
    r.left = p.c - r.column;
    r.apart = p.wide ? 1 : (i64)1 << p.lanes;
    r.slot = threadIdx.x >> p.lanes;
    r.slots = TNI_BN_THREADS >> p.lanes;
    return r;
}

#endif
