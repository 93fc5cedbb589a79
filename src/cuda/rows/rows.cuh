/* Rows of tensors as kernels see them, on both sides: the host fills them in (row_plan.h). Written in what C and CUDA
 * C++ share.
 *
 * A row of n elements belongs to some lanes of a warp, to a block, or to a cluster of blocks. Its elements are dealt
 * out in pieces of V, which is what 16 bytes hold; the last one may be short. Neighbouring lanes have neighbouring
 * pieces, and a warp has a run of them. What a row's sums are made of and in which order depends on n alone, not on
 * where the row begins nor on how many there are. */
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

/* Elements of a thread that holds its part of a row in registers (`held` in row_plan.c says the same). */
template <class T> struct held { static constexpr int most = sizeof(T) == 8 ? 16 : 32; };

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

/* Who holds a row of which each has every threads-th part: thread `rank` of `threads` (shares.cuh). */
struct row_group {
    int rank, threads;
};

/* Which pieces of a row a thread has: `first`, and from there on every `step`-th. */
struct row_run {
    int first, step;
};

/* Of a row that `lanes` lanes have. */
TN_DEVICE row_run run_of_lanes(int lanes) {
    return {(int)threadIdx.x & (lanes - 1), lanes};
}

/* Of a row that whole warps have: each thread PIECES of it, this one being number `thread` among them. */
template <int PIECES> TN_DEVICE row_run run_of_warp(int thread) {
    return {thread / 32 * 32 * PIECES + thread % 32, 32};
}

/* The first element of a thread's piece k. */
template <int V> TN_DEVICE int piece_at(row_run g, int k) {
    return (k * g.step + g.first) * V;
}

/* ---- rows that begin anywhere ------------------------------------------------------------------------------------ */

/* Such a row lies in words of 16 bytes: with `lead` elements before it in the first one, word w has its V elements from
 * V w - lead on, and piece p lies in words p and p + 1. A thread loads the words with the numbers of its pieces and
 * gets the other halves from the next lane, where there is one. Words at the ends of the row are loaded 4 bytes at a
 * time, because nothing beside the row is read. */

/* Whether p is not at a multiple of 16 bytes, or n elements are no whole words; for some lane of the warp. */
template <class T> TN_DEVICE bool is_ragged(const T *p, int n) {
    return __any_sync(0xffffffffu, !is_aligned(p) || n % pack<T>::VL != 0);
}

/* The lane that is `by` further among those of this lane's row. */
TN_DEVICE int lane_beside(row_run g, int by) {
    const int lane = threadIdx.x % 32, all = g.step - 1;
    return (lane & ~all) | ((lane + by) & all);
}
TN_DEVICE bool is_first_lane(row_run g) {
    return (g.first & (g.step - 1)) == 0;
}
TN_DEVICE bool is_last_lane(row_run g) {
    return ((g.first + 1) & (g.step - 1)) == 0;
}

TN_DEVICE words words_from_lane(const words &a, int lane) {
    words r;
#pragma unroll
    for (int j = 0; j < 4; j++) r.w[j] = __shfl_sync(0xffffffffu, a.w[j], lane);
    return r;
}

/* Elements lead, lead + 1, … of the two times V that lie in a and b. */
template <class T> TN_DEVICE words shifted(const words &a, const words &b, u32 lead) {
    return shift_words(a, b, lead * (u32)sizeof(T));
}

/* The 4 bytes each of the word that begins at element `at` which are wholly in the row, else zeros. */
template <class T> TN_DEVICE words load_inside(const T *x, int at, int n, bool wanted) {
    constexpr int QUARTER = pack<T>::VL / 4; /* 0: less than an element of f64 */
    words r;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int from = at + j * pack<T>::VL / 4;
        const bool there = from >= 0 && from + max(QUARTER, 1) <= n;
        r.w[j] = load_word_if((const u32 *)(x + at) + j, wanted && there);
    }
    return r;
}

/* A thread's words of a ragged row, on their way. */
template <class T, int K> struct ragged_words {
    words front, back; /* the row's first word; its last one, or the one behind this lane's last */
    /* 16-bit types: the row's first element, where it is the second half of 4 bytes, and its last, as a first half. */
    u32 first, last;

    static TN_MEMBER int back_of(const T *x, int n, row_run g) {
        const int end = (n + (int)lead_of(x)) / pack<T>::VL, apart = end - g.first; /* the word that the row ends in */
        const bool mine = apart >= 0 && apart < K * g.step && (apart & (g.step - 1)) == 0;
        return mine ? end : is_last_lane(g) ? (K - 1) * g.step + g.first + 1 : -1;
    }
    TN_MEMBER void load(words (&raw)[K], const T *x, int n, row_run g) {
        constexpr int V = pack<T>::VL;
        const int lead = (int)lead_of(x), begin = piece_at<V>(g, 0) - lead, at = back_of(x, n, g) * V - lead;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = k * g.step * V;
            raw[k] = load_words_if(x + begin + i, (k > 0 || begin >= 0) && begin + i + V <= n);
        }
        front = load_inside(x, -lead, n, lead && g.first == 0);
        back = load_inside(x, at, n, at >= 0);
        if constexpr (sizeof(T) == 2) {
            first = load_half_if(x, lead % 2 && g.first == 0 && n > 0);
            last = load_half_if(x + n - 1, (n + lead) % 2 && at < n && at + V > n - 1 && n > 0);
        }
    }
    /* Pieces from words. */
    TN_MEMBER void settle(words (&raw)[K], const T *x, int n, row_run g) {
        constexpr int V = pack<T>::VL;
        const int lead = (int)lead_of(x), end = back_of(x, n, g);
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                front.w[j] |= j == lead / 2 ? first << 16 : 0;
                back.w[j] |= j == (n + lead) % V / 2 ? last : 0;
            }
        }
        const int last_word = (K - 1) * g.step + g.first;
#pragma unroll
        for (int k = 0; k < K; k++) { /* which are zeros so far where they are not whole */
            const bool ends = end == g.first + k * g.step;
#pragma unroll
            for (int j = 0; j < 4; j++) raw[k].w[j] |= (k ? 0 : front.w[j]) | (ends ? back.w[j] : 0);
        }
#pragma unroll
        for (int k = 0; k < K; k++) {
            constexpr int LAST = K - 1;
            /* behind the last lane's word is the first lane's next one */
            words sent = raw[k];
            if (k < LAST) sent = choose(is_first_lane(g), raw[min(k + 1, LAST)], sent);
            words next = words_from_lane(sent, lane_beside(g, 1));
            if (k == LAST) next = choose(is_last_lane(g), choose(end == last_word + 1, back, words{}), next);
            raw[k] = shifted<T>(raw[k], next, (u32)lead);
        }
    }
};

/* A thread's pieces of the elements below n, as they are in memory; what is not there is 0. All loads are under way
 * before the first is used. All lanes of a warp take part. */
template <class T, int V, int E> struct row_part {
    words raw[E / V];

    TN_MEMBER void load_whole(const T *x, int n, row_run g) {
#pragma unroll
        for (int k = 0; k < E / V; k++) raw[k] = load_words_if(x + piece_at<V>(g, k), piece_at<V>(g, k) < n);
    }
    TN_MEMBER void load(const T *x, int n, row_run g) {
        if (is_ragged(x, n)) {
            ragged_words<T, E / V> more;
            more.load(raw, x, n, g);
            more.settle(raw, x, n, g);
        } else {
            load_whole(x, n, g);
        }
    }
    TN_MEMBER acc<T> get(int e) const {
        return widen_word<T>(raw[e / V], e % V);
    }
};

/* Of two rows: all loads of both are under way before the first is used. */
template <class T, int V, int E>
TN_DEVICE void load_two(row_part<T, V, E> &a, const T *x, row_part<T, V, E> &b, const T *y, int n, row_run g) {
    if (is_ragged(x, n) || is_ragged(y, n)) {
        ragged_words<T, E / V> more_x, more_y;
        more_x.load(a.raw, x, n, g);
        more_y.load(b.raw, y, n, g);
        more_x.settle(a.raw, x, n, g);
        more_y.settle(b.raw, y, n, g);
    } else {
        a.load_whole(x, n, g);
        b.load_whole(y, n, g);
    }
}

/* Of a column: single elements. */
template <class T, int E> struct row_part<T, 1, E> {
    T raw[E];

    TN_MEMBER acc<T> get(int e) const {
        return widen(raw[e]);
    }
};

template <int E> struct all_of { static constexpr u32 bits = E == 32 ? 0xffffffffu : (1u << E % 32) - 1; };

/* Bit e is set where the e-th element of a thread is below `limit`. */
template <int V, int E> TN_DEVICE u32 elements_below(int limit, row_run g) {
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

/* The elements of a word that `there` has a bit for: those of 16 bits in pairs where it has both. */
template <class T> TN_DEVICE void store_inside(T *y, const words &a, int there) {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int pair = there >> 2 * j & 3;
            if (pair == 3) ((u32 *)y)[j] = a.w[j];
            if (pair == 1) y[2 * j].bits = (u16)a.w[j];
            if (pair == 2) y[2 * j + 1].bits = (u16)(a.w[j] >> 16);
        }
    } else {
        const pack<T> all = pack_of<T>(a);
#pragma unroll
        for (int j = 0; j < pack<T>::VL; j++)
            if (there >> j & 1) y[j] = all.v[j];
    }
}

/* To a ragged row: a thread writes the words with the numbers of its pieces, whose first halves the lane before has.
 * The first lane of a warp has none before its first piece, nor has the last one another lane behind its last piece:
 * such a word is written by both, each its elements, as are the words at the ends of the row. */
template <class T, int K> TN_DEVICE void store_ragged(T *y, int n, row_run g, const words (&piece)[K]) {
    constexpr int V = pack<T>::VL, ALL = (1 << V) - 1;
    const int lead = (int)lead_of(y), behind = piece_at<V>(g, K - 1) + V - lead;
    words last = {};
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int at = piece_at<V>(g, k) - lead;
        const bool alone = k == 0 && is_first_lane(g) && lead;
        words own = piece[k], sent = own;
        if (k > 0) sent = choose(is_last_lane(g), last, own);
        const words before = words_from_lane(sent, lane_beside(g, -1));
        const words word = choose(lead != 0, shifted<T>(before, own, (u32)(V - lead)), own);
        last = own;
        if (at + V <= n && !alone) {
            store_words(y + at, word);
        } else if (at < n) {
            store_inside(y + at, word, some_left<V>(at, n) & (alone ? ALL << lead : ALL));
        }
    }
    if (lead && is_last_lane(g) && behind < n)
        store_inside(y + behind, shifted<T>(last, words{}, (u32)(V - lead)), some_left<V>(behind, n) & ~(ALL << lead));
}

/* Writes a thread's pieces to where row_part found them. The compiler does not know that it is the same place: it would
 * keep offsets in registers all the while. All lanes of a warp take part. */
template <class T, int K> TN_DEVICE void store_pieces(T *y, int n, row_run g, const words (&piece)[K]) {
    constexpr int V = pack<T>::VL;
    hide(g.first);
    if (is_ragged(y, n)) return store_ragged(y, n, g, piece);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (piece_at<V>(g, k) < n) store_words(y + piece_at<V>(g, k), piece[k]);
}

/* The same from numbers. */
template <class T, int V, int E> TN_DEVICE void store_part(T *y, int n, row_run g, const acc<T> (&a)[E]) {
    words piece[E / V];
#pragma unroll
    for (int k = 0; k < E / V; k++) piece[k] = words_of(narrow_pack<T>(a + k * V));
    store_pieces(y, n, g, piece);
}

/* Brings the next row, which is not ragged, into shared memory while this one is worked on. A thread fetches its own
 * pieces and takes them out again, so nobody else waits. One row at a time: what was taken must be in registers before
 * the next is fetched. */
template <class T, int V, int E> struct row_feed {
    words *slots; /* this thread's; (E / V), blockDim.x apart */

    TN_MEMBER void fetch(const T *x, int n, row_run g) {
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

#endif
