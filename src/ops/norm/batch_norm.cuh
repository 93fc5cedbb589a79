/* What batch_norm_cuda.c tells the kernels of batch_norm.cu and batch_norm_grad.cu, and what those share. */
#pragma once

#include "cuda/copy/walk.cuh"
#include "cuda/device/vector.cuh"

enum {
    TNI_BN_THREADS = 256,
    TNI_BN_CLUSTER = 8,        /* planes: blocks that may have a channel together, */
    TNI_BN_KEPT_THREADS = 512, /* most of a block that keeps packs in shared memory, */
    TNI_BN_STAGES = 4,         /* which come in so many steps; */
    TNI_BN_ONE_THREADS = 256,  /* of a block that keeps single elements in registers, a thread so many: */
    TNI_BN_ONE_SINGLES = 10,
    TNI_BN_ONE_GRAD_SINGLES = 8, /* backward, of x and dy each */
    TNI_BN_LANES = 16,           /* rows: packs of channels side by side; */
    TNI_BN_BATCH = 8,            /* places of a thread in a chunk; */
    TNI_BN_GRAD_BATCH = 4,
    TNI_BN_WRITE_THREADS = 128,       /* of a block that writes a chunk of rows, of which */
    TNI_BN_WRITE_LANES = 128,         /* these are side by side */
    TNI_BN_WRITE_BATCH = 2,           /* and a thread has so many places; */
    TNI_BN_SMALL_WRITE_THREADS = 256, /* the same for elements of 2 bytes, where blocks write many chunks */
    TNI_BN_SMALL_WRITE_LANES = 16,
    TNI_BN_SMALL_WRITE_BATCH = 8,
    TNI_BN_ROW_BLOCKS = 4,       /* blocks of a multiprocessor, */
    TNI_BN_SMALL_ROW_BLOCKS = 2, /* for elements of 2 bytes */
    TNI_BN_GRAD_ROW_BLOCKS = 2,
    TNI_BN_END_LANES = 8,  /* channels that a block ends */
    TNI_BN_END_SLOTS = 32, /* threads that share a channel's parts */
    TNI_BN_SUMS = 3,       /* for each part and channel: count, mean, m2; backward: of g, of g * d */
    TNI_BN_NUMBERS = 5     /* for each channel: see below */
};

/* A tensor of the shape of x; NULL where it is absent. Steps in elements. */
typedef struct tni_bn_big {
    void *data;
    long long n_step, c_step, row_step;
} tni_bn_big;

/* x: (n, c, s). Planes: the s values of a plane are side by side, counted in packs of 16 bytes, the last may be short.
 * A channel's packs are cut in parts. Rows: the c channels of a place are side by side, and there are n * s places, in
 * chunks; a part is every n_parts-th chunk: all blocks move through x together, and what they have read last is in the
 * L2 cache when those that write come from the other end. */
typedef struct tni_batch_norm {
    tni_bn_big x, residual, dy, y, dresidual; /* backward: y is dx */
    tni_vector gamma, beta, mean, rstd, running_mean, running_var, dgamma, dbeta;
    void *sums;                    /* (n_parts, TNI_BN_SUMS, c) */
    void *numbers;                 /* (TNI_BN_NUMBERS, c): mean, scale, beta; shift, slope */
    double momentum, eps, inverse; /* inverse: 1 / count */
    long long n, c, s, count;      /* count: n * s */
    long long packs;               /* planes: of a plane */
    long long units;               /* packs of a channel, or places */
    tni_divisor per_plane;         /* by packs, where is_short: units < 2^31 */
    long long per_part, n_parts;
    long long per_block, n_blocks; /* of the last kernel, which writes, n_blocks for rows: every n_blocks-th chunk is a
                                      block's own; or of a channel's cluster */
    long long tiles, write_tiles;  /* rows: of channels */
    long long n_chunks;            /* rows: of places, in the first kernel */
    int lanes, write_lanes;        /* rows: as a power of 2 */
    int per_stage;                 /* a channel in shared memory: packs of a thread that come in one step */
    int is_short, relu;
    int wide; /* packs are 16-byte aligned; rows: and full */
    int full; /* planes: packs are wide and full, and is_short */
} tni_batch_norm;

#ifdef __CUDACC__

/* d = x - mean, z = d * scale + beta (+ residual); dx = g * scale - shift - slope * d */
enum { MEAN, SCALE, BETA, SHIFT, SLOPE };

/* ---- where things are -------------------------------------------------------------------------------------------- */

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

/* The same where is_short is known to hold; of packs of V elements. */
template <class T, int V = pack<T>::VL> TN_DEVICE spot near_spot_of(const tni_batch_norm &p, i64 q) {
    const u32 plane = quotient((u32)q, p.per_plane);
    return {(i64)plane, (i64)((u32)q - plane * p.per_plane.by) * V};
}

template <class T> TN_DEVICE T *plane_at(const tni_bn_big &v, i64 c, const spot &at) {
    return (T *)v.data + at.plane * v.n_step + c * v.c_step + at.first;
}

/* ---- packs: `left` elements of them are there, `apart` elements from each other ---------------------------------- */

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

/* ---- rows: which channels and places a thread has ---------------------------------------------------------------- */

struct rows_share {
    i64 tile;        /* the first channel of the block */
    i64 column;      /* of the thread's pack; not less than c where it has none */
    i64 part;        /* of the places */
    i64 left, apart; /* channels from the first on; how far apart they are */
    int slot, slots; /* every slots-th place is its own */
};

template <class T> TN_DEVICE rows_share share_of_rows(const tni_batch_norm &p, bool wide, int lanes, i64 tiles) {
    const int lane = threadIdx.x & ((1 << lanes) - 1);
    const i64 part = blockIdx.x / (u32)tiles;
    rows_share r;
    r.tile = (blockIdx.x - part * tiles) * (pack<T>::VL << lanes);
    r.column = r.tile + (wide ? lane * pack<T>::VL : lane);
    r.part = part;
    r.left = p.c - r.column;
    r.apart = wide ? 1 : (i64)1 << lanes;
    r.slot = threadIdx.x >> lanes;
    r.slots = (int)blockDim.x >> lanes;
    return r;
}

/* Of a block that sums up, and of one that writes. */
template <class T> TN_DEVICE rows_share rows_share_of(const tni_batch_norm &p) {
    return share_of_rows<T>(p, p.wide, p.lanes, p.tiles);
}
template <class T, bool WIDE> TN_DEVICE rows_share write_share_of(const tni_batch_norm &p) {
    return share_of_rows<T>(p, WIDE, p.write_lanes, p.write_tiles);
}

template <class T> TN_DEVICE T *row_at(const tni_bn_big &v, const rows_share &r, i64 row) {
    return (T *)v.data + row * v.row_step + r.column;
}

/* One of the numbers of each of a thread's channels. */
template <class T, bool WIDE>
TN_DEVICE void numbers_at(const tni_batch_norm &p, int which, const rows_share &r, acc<T> (&to)[pack<T>::VL]) {
    typedef acc<T> A;
    constexpr int VL = pack<T>::VL;
    if (WIDE) {
        const vec<A, VL> all = *(const vec<A, VL> *)number_at<A>(p, which, r.column);
#pragma unroll
        for (int i = 0; i < VL; i++) to[i] = all.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < VL; i++)
            to[i] = *number_at<A>(p, which, r.column + (i * r.apart < r.left ? i * r.apart : 0));
    }
}

/* A block that writes: its threads, and how many places each takes at a time where one tensor is read, or several. */
template <class T, bool ONE> struct row_writer {
    static constexpr bool SMALL = sizeof(T) == 2;
    static constexpr int THREADS = SMALL ? TNI_BN_SMALL_WRITE_THREADS : TNI_BN_WRITE_THREADS;
    static constexpr int SMALL_BATCH = ONE ? TNI_BN_SMALL_WRITE_BATCH : TNI_BN_SMALL_WRITE_BATCH / 2;
    static constexpr int BATCH = SMALL ? SMALL_BATCH : TNI_BN_WRITE_BATCH;

    /* The first place of a thread, and how far it is to that in its next chunk: they go backwards, below 0 is none. */
    static TN_MEMBER i64 first(const tni_batch_norm &p, const rows_share &r) {
        const i64 chunks = (i64)quotient((u64)(p.units + BATCH * r.slots - 1), (u64)(BATCH * r.slots));
        return (chunks - 1 - r.part) * BATCH * r.slots + r.slot;
    }
    static TN_MEMBER i64 step(const tni_batch_norm &p, const rows_share &r) {
        return p.n_blocks * BATCH * r.slots;
    }
};

/* A place to read where the last one may be behind the end: with several tensors, a condition would cost a tenth. */
TN_DEVICE i64 readable(const tni_batch_norm &p, i64 row) {
    return row < p.units ? row : p.units - 1;
}

/* After the places: which channel of the tile a thread ends, and whose sums of it, every ways-th from the way-th slot
 * on; the ways are neighbouring lanes. Threads that find no channel left do one again. */
template <class T> struct row_tile {
    i64 column;
    int i, lane, lanes; /* element i of the packs of the threads of this lane; lanes: as a power of 2 */
    int way, ways, slots;

    TN_MEMBER row_tile(const tni_batch_norm &p, const rows_share &r) : lanes(p.lanes), slots(r.slots) {
        constexpr int VL = pack<T>::VL;
        ways = min(slots / VL, 32);
        const int all = VL << lanes, item = threadIdx.x / ways;
        way = threadIdx.x % ways;
        i = (item & (all - 1)) >> lanes;
        lane = item & ((1 << lanes) - 1);
        column = item < all ? r.tile + (p.wide ? lane * VL + i : (i << lanes) + lane) : p.c;
    }
    TN_MEMBER int thread_of(int slot) const {
        return lane + (slot << lanes);
    }
};

/* ---- stores that leave in the L2 cache what is still to be read -------------------------------------------------- */

template <class T> TN_DEVICE void stream_pack(T *p, const pack<T> &a) {
    const words r = words_of(a);
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(r.w[0]), "r"(r.w[1]), "r"(r.w[2]), "r"(r.w[3])
                 : "memory");
}

template <class T> TN_DEVICE void put_last(bool wide, T *p, i64 left, i64 apart, const pack<T> &a) {
    if (wide)
        stream_pack(p, a);
    else
        put_some(p, left, apart, a);
}

/* ---- the sums of all parts of a channel -------------------------------------------------------------------------- */

/* The sum over the threads of a block that share a channel, for all of them; threads % TNI_BN_END_LANES are channels.
 * scratch: nobody reads it any more. */
typedef double end_scratch[TNI_BN_THREADS / 32][TNI_BN_END_LANES];
TN_DEVICE double sum_slots(double a, end_scratch &scratch) {
    const int lane = threadIdx.x % TNI_BN_END_LANES;
#pragma unroll
    for (int d = 16; d >= TNI_BN_END_LANES; d /= 2) a += __shfl_xor_sync(0xffffffffu, a, d, 32);
    if (threadIdx.x % 32 < TNI_BN_END_LANES) scratch[threadIdx.x / 32][lane] = a;
    __syncthreads();
    double sum = scratch[0][lane];
#pragma unroll
    for (int i = 1; i < TNI_BN_THREADS / 32; i++) sum += scratch[i][lane];
    return sum;
}

/* ---- a channel that stays in a block, or in a cluster of blocks -------------------------------------------------- */

/* The channel of a block, and which of its packs or elements are a thread's: every blockDim.x-th from the first on. A
 * kernel that goes through them again hides `first`, or the compiler would keep all places in registers. */
struct channel_share {
    i64 c;
    u32 rank;
    int first, end;

    TN_MEMBER channel_share(const tni_batch_norm &p) {
        c = (i64)(blockIdx.x / (u32)p.n_blocks);
        rank = blockIdx.x - (u32)c * (u32)p.n_blocks;
        first = (int)rank * (int)p.per_block + (int)threadIdx.x;
        end = min(((int)rank + 1) * (int)p.per_block, (int)p.units);
        if (p.n_blocks > 1) cluster_begin();
    }
};

/* Element q of a channel, kept in a register. */
template <class T> TN_DEVICE T *single_at(const tni_batch_norm &p, const tni_bn_big &v, i64 c, int q) {
    return plane_at<T>(v, c, near_spot_of<T, 1>(p, q));
}

/* A thread's packs of a tensor, kept in shared memory. It fetches them and takes them out again: no other thread waits.
 * `slots`: its first; the others are blockDim.x apart. */
template <class T> struct kept_packs {
    words *slots;

    /* From the k-th on, which is the channel's pack q, those of a stage. */
    TN_MEMBER void fetch(const tni_batch_norm &p, const tni_bn_big &v, i64 c, int k, int q, int end) {
        const int last = min(q + p.per_stage * (int)blockDim.x, end);
        if (TN_COPY_ASYNC && p.wide) {
#pragma unroll 4
            for (; q < last; k++, q += blockDim.x)
                copy_async(slots + k * blockDim.x, plane_at<T>(v, c, near_spot_of<T>(p, q)), true);
        } else {
#pragma unroll 1
            for (; q < last; k++, q += blockDim.x)
                put(k, get(p.wide, plane_at<T>(v, c, near_spot_of<T>(p, q)), pack<T>::VL, 1));
        }
    }
    TN_MEMBER void put(int k, const pack<T> &a) {
        *(pack<T> *)(slots + k * blockDim.x) = a;
    }
    TN_MEMBER words take(int k) const {
        return load_shared(slots + k * blockDim.x);
    }
};

/* Until the packs of a stage are there; each stage is a group, also one without packs. */
TN_DEVICE void wait_for_stage(int stage) {
    static_assert(TNI_BN_STAGES == 4, "");
    asm volatile("" ::: "memory");
    switch (stage) {
    case 0: copy_wait_for<3>(); break;
    case 1: copy_wait_for<2>(); break;
    case 2: copy_wait_for<1>(); break;
    default: copy_wait_for<0>();
    }
}

#endif
