/* Rows of tensors as kernels see them, on both sides: the host fills them in (row_plan.h). Written in what C and CUDA
 * C++ share.
 *
 * A row of n elements belongs to a group of threads: some lanes of a warp, a block, or a cluster of blocks. Its
 * elements are dealt out in pieces of V: thread t gets the pieces t, t + threads, … so that neighbours read
 * neighbouring memory. V is what fits into 16 bytes where that divides n, else 1: what a row's sums are made of and in
 * which order depends on n alone, not on where the row begins nor on how many there are. */
#pragma once

enum {
    TNI_ROW_DIMS = 4,
    TNI_ROW_VIEWS = 6,
    TNI_ROW_BLOCK = 512,        /* most threads of a block that holds a row, or a cluster's part of one */
    TNI_ROW_CLUSTER = 16,       /* most blocks of a cluster */
    TNI_ROW_WARP_BLOCK = 128,   /* threads of a block of several rows */
    TNI_COLUMN_PART = 8,        /* elements of a column that a thread holds */
    TNI_COLUMN_WAYS = 128,      /* most threads that share a column */
    TNI_COLUMN_SPLIT_WAYS = 16, /* the threads that share a piece of a column that is split */
    TNI_COLUMN_SPLITS = 256,    /* most pieces of a column */
    TNI_COLUMN_PIECES = 4,      /* most pieces that a block of a cluster holds */
    TNI_ROW_SPLITS = 1024,      /* most pieces of a row that no cluster holds */
};

/* The last dimension is the fastest. */
typedef struct tni_gpu_rows {
    long long n, count;
    int n_dims;
    long long shape[TNI_ROW_DIMS];
    long long strides[TNI_ROW_DIMS][TNI_ROW_VIEWS]; /* in elements */
} tni_gpu_rows;

/* A number in both types that kernels compute in: to convert it on the GPU takes as long as several exponentials. */
typedef struct tni_number {
    double f64;
    float f32;
} tni_number;

#ifdef __CUDACC__
#include "cuda/device/device.cuh"

template <class A> TN_DEVICE A number(const tni_number &a);
template <> TN_MEMBER float number<float>(const tni_number &a) {
    return a.f32;
}
template <> TN_MEMBER double number<double>(const tni_number &a) {
    return a.f64;
}

/* Elements of a thread that holds its part of a row in registers (tni_row_held in row_plan.h says the same); single
 * ones need registers for their places too. */
template <class T, int V> struct held { static constexpr int most = (sizeof(T) == 8 ? 16 : 32) / (V > 1 ? 1 : 2); };

/* Where row `row` begins in the first VIEWS tensors. */
template <int VIEWS> TN_DEVICE void find_row(const tni_gpu_rows &rows, i64 row, i64 (&at)[VIEWS]) {
#pragma unroll
    for (int k = 0; k < VIEWS; k++) at[k] = 0;
#pragma unroll 1
    for (int d = rows.n_dims - 1; d > 0; d--) {
        const i64 rest = rows.count >> 31 ? row / rows.shape[d] : (i64)((u32)row / (u32)rows.shape[d]);
        const i64 index = row - rest * rows.shape[d];
#pragma unroll
        for (int k = 0; k < VIEWS; k++) at[k] += index * rows.strides[d][k];
        row = rest;
    }
#pragma unroll
    for (int k = 0; k < VIEWS; k++) at[k] += row * rows.strides[0][k];
}

/* The row that this lane has a part of, where `lanes` lanes, a power of 2, have one. */
TN_DEVICE i64 row_of_lanes(int lanes) {
    const int shift = __ffs(lanes) - 1;
    return (i64)blockIdx.x * (blockDim.x >> shift) + (threadIdx.x >> shift);
}

/* Who holds a row: thread `rank` of `threads`. */
struct row_group {
    int rank, threads;
};

/* The first element of a thread's piece k. */
template <int V> TN_DEVICE int piece_at(row_group g, int k) {
    return (k * g.threads + g.rank) * V;
}

/* This thread's pieces of the elements below n, as they are in memory; the others are 0. All loads are under way before
 * the first is used. */
template <class T, int V, int E> struct row_part {
    words raw[E / V];

    TN_MEMBER void load(const T *x, int n, row_group g) {
        if (is_aligned(x)) {
#pragma unroll
            for (int k = 0; k < E / V; k++) raw[k] = load_words_if(x + piece_at<V>(g, k), piece_at<V>(g, k) < n);
        } else {
#pragma unroll
            for (int k = 0; k < E / V; k++) {
                pack<T> a = {};
                const int i = piece_at<V>(g, k);
                if (i < n) {
#pragma unroll
                    for (int j = 0; j < V; j++) a.v[j] = x[i + j];
                }
                raw[k] = words_of(a);
            }
        }
    }
    TN_MEMBER acc<T> get(int e) const {
        return widen_word<T>(raw[e / V], e % V);
    }
};

/* Rows of any length that begin anywhere, in the same pieces: the last one may be short.
 * ------------------------------- */

/* Elements lead, lead + 1, … of the two times V that lie in a and b. */
template <class T> TN_DEVICE words shifted(const words &a, const words &b, u32 lead) {
    const u32 bytes = lead * (u32)sizeof(T);
    u32 w[8] = {a.w[0], a.w[1], a.w[2], a.w[3], b.w[0], b.w[1], b.w[2], b.w[3]};
    words r;
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = bytes & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = bytes & 4 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 4; i++) r.w[i] = sizeof(T) < 4 ? __funnelshift_r(w[i], w[i + 1], bytes % 4 * 8) : w[i];
    return r;
}

/* As row_part::load. Nothing outside the row is read: where a piece touches 16 bytes that are not all of the row, it is
 * read element by element. */
template <class T, int E>
TN_DEVICE void load_ragged(row_part<T, pack<T>::VL, E> &part, const T *x, int n, row_group g) {
    constexpr int V = pack<T>::VL, K = E / V;
    const u32 lead = lead_of(x);
    const T *even = x - lead;
    const int reach = lead ? 2 * V - (int)lead
                           : V; /* of the 16 bytes that a piece touches, from its first element on */
    words low[K], high[K];
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = piece_at<V>(g, k);
        const bool inside = i >= (int)lead && i + reach <= n;
        low[k] = load_words_if(even + i, inside);
        high[k] = load_words_if(even + i + V, inside && lead);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = piece_at<V>(g, k);
        part.raw[k] = shifted<T>(low[k], high[k], lead);
        if (i < n && (i < (int)lead || i + reach > n)) {
            pack<T> a = {};
#pragma unroll
            for (int j = 0; j < V; j++)
                if (i + j < n) a.v[j] = x[i + j];
            part.raw[k] = words_of(a);
        }
    }
}

/* As store_part, by all threads of the block. What of a piece belongs to 16 bytes that another warp, or nobody, writes
 * otherwise goes element by element. */
template <class T, int E> TN_DEVICE void store_ragged(T *y, int n, row_group g, const acc<T> (&a)[E]) {
    constexpr int V = pack<T>::VL, LANES = 32;
    const u32 lead = lead_of(y);
    const int lane = g.rank % LANES;
    asm("" : "+r"(g.rank));
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int i = piece_at<V>(g, k);
        union {
            pack<T> elements;
            words all;
        } own = {narrow_pack<T>(a + k * V)};
        words before; /* the piece of the lane before */
#pragma unroll
        for (int j = 0; j < 4; j++) before.w[j] = __shfl_up_sync(0xffffffffu, own.all.w[j], 1, LANES);
        const bool whole = i + V <= n;
        const bool first = lane == 0 && lead, last = lane == LANES - 1 || i + 2 * V > n;
        if (whole && !first) store_words(y + i - lead, lead ? shifted<T>(before, own.all, V - lead) : own.all);
#pragma unroll
        for (int j = 0; j < V; j++) {
            const bool alone = j < V - (int)lead ? first || !whole : last || !whole;
            if (alone && i + j < n) y[i + j] = own.elements.v[j];
        }
    }
}

/* Single elements. */
template <class T, int E> struct row_part<T, 1, E> {
    T raw[E];

    TN_MEMBER void load(const T *x, int n, row_group g) {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const int i = piece_at<1>(g, e);
            raw[e] = i < n ? x[i] : T();
        }
    }
    TN_MEMBER acc<T> get(int e) const {
        return widen(raw[e]);
    }
};

template <int E> struct all_of { static constexpr u32 bits = E == 32 ? 0xffffffffu : (1u << E % 32) - 1; };

/* Bit e is set where the e-th element of a thread is below `limit`. */
template <int V, int E> TN_DEVICE u32 elements_below(int limit, row_group g) {
    u32 bits = 0;
    if (piece_at<V>(g, E / V - 1) + V <= limit) return all_of<E>::bits;
#pragma unroll
    for (int k = 0; k < E / V; k++) {
        const int more = limit - piece_at<V>(g, k);
        const u32 all = (1u << V % 32) - 1;
        bits |= (more >= V ? all : more > 0 ? (1u << more) - 1 : 0) << k * V;
    }
    return bits;
}

/* Writes a thread's E numbers to where row_part found them. The compiler does not know that it is the same place: it
 * would keep E offsets in registers all the while. */
template <class T, int V, int E> TN_DEVICE void store_part(T *y, int n, row_group g, const acc<T> (&a)[E]) {
    asm("" : "+r"(g.rank));
    if (V > 1 && is_aligned(y)) {
#pragma unroll
        for (int k = 0; k < E / V; k++) {
            if (piece_at<V>(g, k) < n) store_pack(y + piece_at<V>(g, k), narrow_pack<T>(a + k * V));
        }
    } else {
#pragma unroll
        for (int e = 0; e < E; e++) {
            const int i = piece_at<V>(g, e / V);
            if (i < n) narrow(a[e], y[i + e % V]);
        }
    }
}

/* Brings the next row into shared memory while this one is worked on. A thread fetches its own pieces and takes them
 * out again, so nobody else waits. One row at a time: what was taken must be in registers before the next is
 * fetched. */
template <class T, int V, int E> struct row_feed {
    words *slots; /* this thread's; (E / V), blockDim.x apart */

    TN_MEMBER void fetch(const T *x, int n, row_group g) {
#pragma unroll
        for (int k = 0; k < E / V; k++)
            copy_async(slots + k * blockDim.x, x + piece_at<V>(g, k), piece_at<V>(g, k) < n);
    }
    TN_MEMBER void take(row_part<T, V, E> &part) {
        copy_wait();
        take_arrived(part);
    }
    TN_MEMBER void take_arrived(row_part<T, V, E> &part) {
#pragma unroll
        for (int k = 0; k < E / V; k++) part.raw[k] = load_shared(slots + k * blockDim.x);
    }
};
template <class T, int E> struct row_feed<T, 1, E> {
    words *slots;

    TN_MEMBER void fetch(const T *, int, row_group) {
    }
    TN_MEMBER void take(row_part<T, 1, E> &) {
    }
    TN_MEMBER void take_arrived(row_part<T, 1, E> &) {
    }
};

#endif
