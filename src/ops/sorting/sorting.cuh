/* What sorting_cuda.c tells the kernels of sort and top_k, and what those share. Rows lie one behind the other: the
 * host turns other axes round before.
 *
 * Keys (keys.cuh) have the size of an element, so kernels are made for sizes, not for types: u8, u16, u32 and u64. */
#pragma once

#include "keys.cuh"

enum {
    TNI_SORT_DIGITS = 256,  /* a digit has 8 bits */
    TNI_SORT_WARP = 256,    /* elements of a row that a warp sorts */
    TNI_SORT_THREADS = 256, /* of the smaller blocks that sort a row; the largest have twice as many */
    TNI_SORT_LONG_THREADS = 384,
    TNI_SORT_LONG_ITEMS = 18, /* of a thread: elements of a tile of a long row */
    TNI_SORT_LONG_FEW = 10,   /* the same where keys or places have 8 bytes */
    TNI_SORT_COUNTED = 65536, /* elements of a row whose digits one block counts */

    TNI_TOP_K_THREADS = 256,
    TNI_TOP_K_ITEMS = 16,  /* elements of a thread at a time; half as many of 8 bytes */
    TNI_TOP_K_MOST = 1024, /* k that is found without sorting the row; of 8-byte elements half of it */
    TNI_TOP_K_RECORD = 8,  /* bytes of what is collected; of 8-byte elements twice as many */
};

/* What pass `pass` does with a row: where it finds the records and where it leaves them. A pass in which all keys have
 * the same digit is left out, and so which of the two buffers is meant is only known on the GPU. */
enum { TNI_SORT_SKIP, TNI_SORT_FROM_X = 1, TNI_SORT_FROM_0 = 2, TNI_SORT_FROM_1 = 3, TNI_SORT_TO_OUTPUTS = 4 };

/* The first k of each row of x in order. */
typedef struct tni_sort {
    const void *x;    /* (rows, n) */
    void *values;     /* (rows, k), or NULL */
    long long *index; /* (rows, k), or NULL */
    long long rows, n, k;
    tni_key_rule rule;
    int lanes; /* of a warp that sort a row, where they are short */
    /* long rows: */
    int passes, pass;
    long long tiles;   /* of a row */
    void *keys[2];     /* (rows, n): what lies between two passes */
    void *places[2];   /* (rows, n): where these were in the row */
    void *counts;      /* (rows, passes, 256): of each digit; then where the first of them goes */
    int *steps;        /* (rows, passes) */
    void *found;       /* (passes, rows, tiles, 256): what tiles tell each other; see sort_long.cu */
    unsigned *tickets; /* (passes) */
} tni_sort;

/* The first k of rows, or of slices of rows; then of what was found of the slices of a row. */
typedef struct tni_top_k {
    const void *x;
    void *values;
    long long *index;
    long long rows, n, k;
    tni_key_rule rule;
    long long slices; /* of a row; each has at least k elements */
    void *found;      /* (rows, slices, k) records, where there are several */
} tni_top_k;

typedef struct tni_sort_grad {
    const void *dvalues;
    const long long *index;
    void *dx;
    long long count, n, k, inner; /* count: elements of dvalues */
} tni_sort_grad;

/* Memory that becomes 0, of an even number of bytes. */
typedef struct tni_sort_clear {
    void *begin;
    long long bytes;
} tni_sort_clear;

#ifdef __CUDACC__

template <class S> TN_DEVICE S key_of(S bits, const tni_key_rule &r) {
    return (S)tni_key_u32(bits, (u32)r.sign, (u32)r.infinity, (u32)r.flip);
}
template <> TN_MEMBER u64 key_of<u64>(u64 bits, const tni_key_rule &r) {
    return tni_key_u64(bits, r.sign, r.infinity, r.flip);
}

/* The element that a key was made from; `x` is where it lies, for keys that several have. */
template <class S> TN_DEVICE S bits_of(S key, const S *x, const tni_key_rule &r) {
    if (tni_key_is_shared_u32(key, (u32)r.sign, (u32)r.infinity, (u32)r.flip)) return *x;
    return (S)tni_bits_u32(key, (u32)r.sign, (u32)r.infinity, (u32)r.flip);
}
template <> TN_MEMBER u64 bits_of<u64>(u64 key, const u64 *x, const tni_key_rule &r) {
    if (tni_key_is_shared_u64(key, r.sign, r.infinity, r.flip)) return *x;
    return tni_bits_u64(key, r.sign, r.infinity, r.flip);
}

TN_DEVICE u32 lane_id() {
    return threadIdx.x % 32;
}
/* The lanes before this one. */
TN_DEVICE u32 lanes_below() {
    return (1u << lane_id()) - 1;
}

/* The lanes with the same digit of 8 bits. */
TN_DEVICE u32 same_digit(u32 digit) {
    u32 same = 0xffffffffu;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const bool set = digit >> b & 1;
        const u32 with = __ballot_sync(0xffffffffu, set);
        same &= set ? with : ~with;
    }
    return same;
}

/* The sum over the threads before this one, and this one's; of the first 256 threads of a block, the others add
 * nothing. By all threads of a block; `sums` has room for 8. */
TN_DEVICE u32 sum_up_to(u32 a, u32 *sums) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 below = __shfl_up_sync(0xffffffffu, a, d, 32);
        if (lane >= d) a += below;
    }
    if (lane == 31 && warp < 8) sums[warp] = a;
    __syncthreads();
    for (u32 w = 0; w < warp && w < 8; w++) a += sums[w];
    return a;
}

/* Puts keys in the order of one digit: where each of a thread's keys goes among those of the block. The block's keys
 * are dealt out to warps, ITEMS times 32 to each: key i of a lane is before key i + 1 of every lane, and those of a
 * warp before those of the next. Equal digits keep that order. */
template <int WARPS> struct digit_ranks {
    u16 before[WARPS][TNI_SORT_DIGITS]; /* keys of the digit: of a warp so far; then, of the warps before it */
    u32 start[TNI_SORT_DIGITS];         /* keys of smaller digits */
    u32 sums[8];

    /* rank[i]: how many of this warp's keys before key i have its digit. Every thread d < 256 gets the number of the
     * block's keys with digit d. */
    template <class S, int ITEMS> TN_MEMBER u32 count(const S (&keys)[ITEMS], int shift, u32 (&rank)[ITEMS]) {
        const u32 lane = lane_id(), warp = threadIdx.x / 32;
        u16 *const own = before[warp];
#pragma unroll
        for (int i = 0; i < TNI_SORT_DIGITS / 32; i++) own[i * 32 + lane] = 0;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            const u32 digit = (u32)(keys[i] >> shift) & 255, same = same_digit(digit), lower = same & lanes_below();
            const u32 so_far = own[digit];
            __syncwarp();
            if (lower == 0) own[digit] = (u16)(so_far + __popc(same));
            __syncwarp();
            rank[i] = so_far + __popc(lower);
        }
        __syncthreads();
        u32 all = 0;
        if (threadIdx.x < TNI_SORT_DIGITS) {
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                const u32 n = before[w][threadIdx.x];
                before[w][threadIdx.x] = (u16)all;
                all += n;
            }
        }
        return all;
    }

    /* After count: makes `start` of those numbers. Ends with a barrier. */
    TN_MEMBER void find_starts(u32 all) {
        const u32 up_to = sum_up_to(threadIdx.x < TNI_SORT_DIGITS ? all : 0, sums);
        if (threadIdx.x < TNI_SORT_DIGITS) start[threadIdx.x] = up_to - all;
        __syncthreads();
    }

    /* Where a key goes. */
    TN_MEMBER u32 place(u32 digit, u32 rank) const {
        return start[digit] + before[threadIdx.x / 32][digit] + rank;
    }
};

#endif
