/* What sum_cuda.c tells the kernels of sum_rows.cu and sum_columns.cu, what those share, and the sizes that fix the
 * order of the additions. That order depends on how many numbers are added up and nothing else: not on how many sums
 * there are, nor where they lie. */
#pragma once

#include "cuda/copy/walk.cuh"

enum {
    TNI_SUM_CLUSTER = 8, /* blocks that may end a sum together */

    TNI_SUM_THREADS = 256,
    TNI_SUM_WHOLE = 16, /* rows: up to so many parts are ended by the blocks that have summed them up */

    TNI_SUM_COLUMN_THREADS = 256, /* 2 * 16 slots of 8 packs */
    TNI_SUM_ODD_THREADS = 288,    /* 16 of 17 */
    TNI_SUM_FEW_THREADS = 128,
    TNI_SUM_FEW_WORDS = 4, /* of 4 bytes, or larger elements, of a thread */
    TNI_SUM_FEW_PAIRS = 2 * (32 * TNI_SUM_FEW_WORDS -
                             1), /* columns of a warp where words are pairs: the last is not whole */
    TNI_SUM_FEW_SINGLES = 32 * TNI_SUM_FEW_WORDS,
    TNI_SUM_SLOTS = 16,    /* columns: every so many rows of a part are one sum; of few rows, so many as a pack has */
    TNI_SUM_WAYS = 4,      /* threads that add those up */
    TNI_SUM_CHAPTERS = 32, /* columns: parts are added up to so many sums, then those */
    TNI_SUM_CHAPTER_BYTES = 16384, /* of which a block holds so much */
    TNI_SUM_END_LANES = 8,         /* columns that a block ends, of parts in memory */
};

/* The innermost dimension is summed up. A sum's numbers are segments of n, which are `step` apart; they are counted in
 * packs of 16 bytes, of which each segment has a whole number, the last may be short. */
typedef struct tni_sum_rows {
    const void *x;
    void *y;
    void *parts;    /* (outputs, n_parts), where a second kernel ends the sums */
    tni_walk kept;  /* from sum to sum: of x, of y */
    tni_walk packs; /* from pack to pack: of x; the number of its first element in its segment */
    long long n, step;
    long long outputs, n_packs, chunk;
    int n_parts, blocks, per_block; /* a sum's parts are shared out to blocks */
    int ends;                       /* which end it, as a cluster if they are several */
    int aligned;                    /* every segment begins at a multiple of 16 bytes */
} tni_sum_rows;

/* Sums of one number. */
typedef struct tni_sum_one {
    const void *x;
    void *y;
    unsigned outputs;
    tni_walk kept; /* of x, of y */
} tni_sum_one;

/* The innermost dimension, of c columns, is kept. Threads are rows of `lanes`: each has a pack of columns, or of what
 * lies side by side in memory. `groups` rows of them have a part; `together` parts are done at once, of one item (a
 * tile of columns at one place of the other kept dimensions), or of as many items where they have one part each. */
typedef struct tni_sum_columns {
    const void *x;
    void *y;
    void *parts;            /* (n_parts, outputs), where a second kernel ends the sums */
    tni_walk kept;          /* all kept dimensions but the columns: of x, of y */
    tni_walk rows;          /* from row to row: of x */
    const void *low, *high; /* x's memory, beyond which nothing is read */
    long long c, step, y_step;
    long long n_rows, per_part;
    long long tiles, items, outputs;
    long long slot_step, part_step;            /* packs: from row to row of a slot; more than that from part to part */
    int n_parts, per_chapter, chapters;        /* chapters of so many parts each */
    int per_slot;                              /* packs: rows of a part that are one sum, a multiple of 8 */
    int slots, lanes, groups, together, width; /* width: columns of a tile */
    int ways;                                  /* threads that add up a column's slots */
    int blocks;                                /* of an item, as a cluster if they end it and are several */
    int per_block;                             /* parts of a block that does not end sums */
    int ends;
    int side_by_side; /* any layout: packs are aligned and full; else columns of a thread are `lanes` apart */
} tni_sum_columns;

/* Adds up the parts of columns: (n_parts, outputs), of c columns. */
typedef struct tni_sum_end {
    const void *parts;
    void *y;
    tni_walk kept;
    long long c, y_step, outputs;
    int n_parts, per_chapter;
} tni_sum_end;

#ifdef __CUDACC__
#include "cuda/device/device.cuh"

/* ---- packs ------------------------------------------------------------------------------------------------------- */

/* A thread's sums: of each place of its packs. */
template <class T> struct pack_sums {
    static constexpr int VL = pack<T>::VL;
    acc<T> v[VL];

    TN_MEMBER void add(const words &a) {
#pragma unroll
        for (int i = 0; i < VL; i++) v[i] += widen_word<T>(a, i);
    }
    /* `count` packs, `step` elements apart, one after the other: BATCH of them are always under way, the first ones
     * since load_packs. */
    template <int BATCH> TN_MEMBER void add_packs(words (&a)[BATCH], const T *at, i64 step, int count) {
#pragma unroll 1
        for (; count > 0; count -= BATCH) {
            at += BATCH * step;
#pragma unroll
            for (int k = 0; k < BATCH; k++) {
                add(a[k]);
                a[k] = load_words_if(at + k * step, k + BATCH < count);
            }
        }
    }
    TN_MEMBER acc<T> total() const {
        acc<T> a[VL];
#pragma unroll
        for (int i = 0; i < VL; i++) a[i] = v[i];
#pragma unroll
        for (int d = VL / 2; d > 0; d /= 2) {
#pragma unroll
            for (int i = 0; i < d; i++) a[i] += a[i + d];
        }
        return a[0];
    }
};

/* Those of `count` packs that are among the first BATCH, else zeros. */
template <class T, int BATCH> TN_DEVICE void load_packs(words (&a)[BATCH], const T *at, i64 step, int count) {
#pragma unroll
    for (int k = 0; k < BATCH; k++) a[k] = load_words_if(at + k * step, k < count);
}

/* 4 bytes, which are a pair of small elements, or one larger element. */
template <class T> struct alignas(sizeof(T) == 8 ? 8 : 4) lane_word {
    u32 w[sizeof(T) == 8 ? 2 : 1];

    TN_MEMBER acc<T> get(int i) const {
        words a = {};
#pragma unroll
        for (int k = 0; k < (int)(sizeof w / sizeof *w); k++) a.w[k] = w[k];
        return widen_word<T>(a, i);
    }
    /* Loads that the compiler does not put off. */
    TN_MEMBER void load_if(const lane_word *p, bool there) {
        if (sizeof(T) == 8) {
            const half_words a = load_half_words_if(p, there);
            w[0] = a.w[0];
            w[sizeof(T) == 8] = a.w[1];
        } else {
            asm volatile("{\n\t"
                         ".reg .pred t;\n\t"
                         "setp.ne.u32 t, %2, 0;\n\t"
                         "mov.u32 %0, 0;\n\t"
                         "@t ld.global.u32 %0, [%1];\n\t"
                         "}"
                         : "=&r"(w[0])
                         : "l"(p), "r"((u32)there));
        }
    }
};

/* Element i of a pack whose words are 0 before. */
template <class T> TN_DEVICE void put_element(words &a, int i, T value) {
    a.w[i / 2] |= (u32)value.bits << i % 2 * 16;
}
template <> TN_MEMBER void put_element<float>(words &a, int i, float value) {
    a.w[i] = __float_as_uint(value);
}
template <> TN_MEMBER void put_element<double>(words &a, int i, double value) {
    a.w[2 * i] = (u32)__double2loint(value);
    a.w[2 * i + 1] = (u32)__double2hiint(value);
}

/* The elements of a pack that are at `low` or behind and before `high`, else zeros. */
template <class T> TN_DEVICE words some_of_pack(const T *p, const T *low, const T *high) {
    words a = {};
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) put_element(a, i, p + i >= low && p + i < high ? p[i] : T{});
    return a;
}

/* The first `left` elements of a pack, `step` apart, then zeros. */
template <class T> TN_DEVICE words far_pack(const T *p, i64 step, i64 left) {
    words a = {};
#pragma unroll
    for (int i = 0; i < pack<T>::VL; i++) put_element(a, i, i < left ? p[i * step] : T{});
    return a;
}

#endif
