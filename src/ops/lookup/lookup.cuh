/* What the host tells the kernels of lookup_take.cu, lookup_columns.cu, lookup_lists.cu, lookup_claims.cu,
 * lookup_sort.cu, lookup_add.cu and one_hot.cu, and what they share. Written in what C and CUDA C++ share.
 *
 * A position p counts the indices in the order in which they are added: (o * n + j) * width + i. Rows have one index
 * for all i: width is 1. Elements have one each: width is inner. */
#pragma once

#include "cuda/copy/chunk.cuh"

enum {
    TNI_TAKE_THREADS = 256,
    TNI_TAKE_ITEMS = 4, /* pieces of a thread that are under way at once */
    TNI_TAKE_FOURS = 2, /* the same, of four elements with an index each */

    TNI_RANK_MOST = 8192, /* so many positions are sorted by counting who comes before whom */
    TNI_RANK_BLOCK = 64,  /* positions of a block, */
    TNI_RANK_WAYS = 8,    /* each with so many threads that count */

    TNI_SORT_THREADS = 256,
    TNI_SORT_EACH = 16, /* positions of a thread */
    TNI_SORT_TILE = TNI_SORT_THREADS * TNI_SORT_EACH,
    TNI_SORT_BITS = 8, /* of the key, in one pass */
    TNI_SORT_DIGITS = 1 << TNI_SORT_BITS,

    TNI_ADD_THREADS = 256,
    TNI_ADD_ITEMS = 4,
    TNI_ADD_LONG_ITEMS = 8, /* of long rows, at most */
    TNI_ADD_PART = 64,      /* what more rows than this are added to is summed up in parts of so many */
    TNI_ADD_EACH = 32,      /* chunks of so many positions that a block looks for parts in, at most */
    TNI_ADD_FEW = 8,        /* so many along the axis need no sort */

    TNI_COLUMN_TAKE_THREADS = 256, /* of a block that takes from columns in shared memory */
    TNI_COLUMN_TAKE_ITEMS = 8,     /* of a thread that are under way at once */
    TNI_ROW_TAKE_THREADS = 1024,   /* of one that takes from a row there, at most */
    TNI_ROW_TAKE_ITEMS = 4,

    TNI_COLUMN_ADD_THREADS = 1024, /* of a block that adds in shared memory, at most */
    TNI_COLUMN_ADD_ITEMS = 4,      /* terms of a thread that are under way at once */
    TNI_SPLIT_THREADS = 512,       /* of a block that splits, at most */
    TNI_SPLIT_EACH = 8,            /* terms of a thread that splits */
};

/* A divisor of numbers below `below`. */
typedef struct tni_divided {
    long long by;
    int is_short; /* the numbers are below 2^31 */
    tni_divisor divisor;
} tni_divided;

/* How an index is read. */
typedef struct tni_index {
    const void *data;
    int wide, drops_negative;
    long long v, skipped; /* -1: none */
    long long by_outer, by_n, by_inner;
} tni_index;

typedef struct tni_take {
    tni_index index;
    tni_chunks chunks; /* of long rows */
    const void *from;
    void *to;
    long long by_outer, by_v; /* the steps of `from`, in pieces */
    long long count;          /* of pieces */
    tni_divided pieces, n;    /* pieces of a row; rows of an o */
    tni_divided slab;         /* elements of an o; of four elements at a time, pieces are those behind the axis */
    unsigned bad[4];          /* 16 bytes of what an index that is out of range makes */
} tni_take;

/* The positions in the order of their keys: (o * v + k) * width + i, or `keys` for what is left out. */
typedef struct tni_sort {
    tni_index index;
    unsigned count, keys;
    unsigned n, width;
    unsigned blocks;                                     /* tiles of positions */
    int shift;                                           /* of this pass */
    int is_first;                                        /* of the passes: keys come from the index */
    unsigned *from_key, *from_position, *key, *position; /* (count) */
    unsigned *counts;                                    /* (digits, blocks): of this pass; then what comes before */
    unsigned *totals;                                    /* (digits) */
    unsigned *begins, *ends; /* (keys): where each key's positions are; its end is 0 where it has none */
} tni_sort;

/* Where segments begin, and the last one ends. */
typedef struct tni_offsets {
    const void *data; /* (segments + 1) */
    int wide;
    unsigned segments, positions;
} tni_offsets;

/* The segment of each position; `segments` for those that are in none. */
typedef struct tni_segments {
    tni_offsets offsets;
    unsigned *segment;
} tni_segments;

/* to[s, k] = base[s, k] + the rows of from[s] that belong to k. Rows have `pieces` of 16 bytes, wherever they begin, or
 * of one element. */
typedef struct tni_add {
    const void *from, *base;
    void *to;
    const unsigned *key, *position, *begins, *ends; /* of tni_sort */
    tni_offsets offsets;                            /* instead of those, where rows lie in segments; data NULL: no */
    void *partials;                                 /* (slabs, chunks, 2, pieces): of long sums */
    long long count;                                /* of all pieces of `to` */
    long long rows;                                 /* of `from`, for each slab */
    long long row;                                  /* elements of one */
    unsigned positions, keys, chunks, slabs;
    int each;         /* chunks of a block */
    int lanes, tiles; /* of partials: lanes of a block side by side, a power of 2; blocks side by side */
    tni_divided pieces, by_keys;
    /* Of long rows, of which most are 0: warps that sum up, each a tile of the row at a position; then others that
     * write zeros, each a part of a row, with so many pieces of a thread. */
    long long sums;
    tni_divided by_tiles, by_positions, by_parts;
    int items;
} tni_add;

/* The same without a sort: few along the axis. */
typedef struct tni_add_few {
    tni_index index;
    const void *from, *base;
    void *to;
    long long by_outer, by_v; /* the steps of base */
    long long count;          /* of pieces of `to` */
    long long n, inner;
    tni_divided slab, by_inner; /* pieces of an o; elements behind the axis */
} tni_add_few;

/* Take, or add without a sort, of elements that have an index each, where columns of v elements, or parts of them, fit
 * into shared memory. A column is what lies along the axis at one (o, i). */
typedef struct tni_columns {
    tni_index index;
    const void *from, *base;
    void *to;
    long long by_outer, by_v; /* the steps of what the index counts in: from of take, base of add */
    long long count;          /* of columns */
    long long n, inner;
    tni_divided by_inner;
    int width;        /* columns of a block: a power of 2 */
    int across;       /* columns are neighbours in memory: so are the threads that read and write them */
    int parts, range; /* of add: parts of a column, of so many k; of take from rows: of so many indices */
    int room;         /* of add by lists: terms of a warp that wait */
    int table;        /* of add by claims: claims of a round, a power of 2 */
    unsigned bad[4];
} tni_columns;

/* Add where memory goes along the axis and the columns are few or long. Chunks of a column are put in order of the
 * parts that its places are in; then each part is added up. */
typedef struct tni_split {
    tni_index index;
    const void *from, *base;
    void *to;
    long long by_outer, by_v;      /* the steps of base */
    long long n, first;            /* first: of the columns that are split now */
    unsigned rows;                 /* columns that are split at a time */
    unsigned chunk, chunks, parts; /* terms of a chunk; chunks and parts of a column */
    int shift, room;               /* a part has 2^shift places; terms of a warp that wait */
    void *terms;                   /* (rows, chunks, chunk) */
    unsigned short *places;        /* of the same: in their part */
    unsigned short *bounds;        /* (rows, chunks, parts + 1): where in a chunk its stretch of each part begins */
} tni_split;

/* From one column of sums to the next in shared memory: in elements, so that columns begin in different banks. */
#ifdef __CUDACC__
#define TNI_COLUMNS_FUNCTION static __device__ __forceinline__
#else
#define TNI_COLUMNS_FUNCTION static inline
#endif
TNI_COLUMNS_FUNCTION int column_pitch(long long elements, int width) {
    return (int)((elements + 31) / 32 * 32 + (width > 1 ? 32 / width : 0));
}

typedef struct tni_one_hot {
    const void *index;
    void *y;
    int wide;
    unsigned one[2]; /* the bits of a one */
    long long count; /* elements of y */
    long long pieces;
    tni_divided classes;
} tni_one_hot;

#ifdef __CUDACC__

TN_DEVICE i64 divide(i64 a, const tni_divided &d) {
    return d.is_short ? (i64)quotient((u32)a, d.divisor) : a / d.by;
}

/* The first bytes of the 16. */
template <class U> TN_DEVICE U bytes_of(const unsigned (&w)[4]) {
    return (U)(sizeof(U) == 8 ? w[0] | (u64)w[1] << 32 : (u64)w[0]);
}
template <> TN_MEMBER u128 bytes_of<u128>(const unsigned (&w)[4]) {
    return u128{{w[0], w[1], w[2], w[3]}};
}

enum { SKIPPED = -1, OUT_OF_RANGE = -2 };

/* An index, or why it is none. */
TN_DEVICE i64 check_index(const tni_index &x, i64 k) {
    if (k < 0) return x.drops_negative ? SKIPPED : OUT_OF_RANGE;
    return k == x.skipped ? SKIPPED : k < x.v ? k : OUT_OF_RANGE;
}

/* The index at (o, j, i), or why there is none. */
TN_DEVICE i64 find_index(const tni_index &x, i64 o, i64 j, i64 i) {
    const i64 at = o * x.by_outer + j * x.by_n + i * x.by_inner;
    return check_index(x, x.wide ? ((const i64 *)x.data)[at] : (i64)((const int *)x.data)[at]);
}

/* Positions begin … end - 1: none where both are 0. */
struct span {
    u32 begin, end;
};

TN_DEVICE i64 offset_at(const tni_offsets &o, u32 i) {
    return o.wide ? ((const i64 *)o.data)[i] : (i64)((const int *)o.data)[i];
}

/* Segment k. Nobody has checked the offsets: those that descend, or lead out of the tensor, make it empty or short. */
TN_DEVICE span segment_at(const tni_offsets &o, u32 k) {
    const i64 first = offset_at(o, k), past = offset_at(o, k + 1);
    const i64 begin = first < 0 ? 0 : first, end = past < (i64)o.positions ? past : (i64)o.positions;
    return begin < end ? span{(u32)begin, (u32)end} : span{0, 0};
}

/* The last segment that begins at p or before it, if there is a further one behind it: else `segments`. */
TN_DEVICE u32 find_segment(const tni_offsets &o, u32 p) {
    u32 low = 0, high = o.segments + 1; /* the first offset above p */
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (offset_at(o, middle) <= (i64)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 || low > o.segments ? o.segments : low - 1;
}

#endif
