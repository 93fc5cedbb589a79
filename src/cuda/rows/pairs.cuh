/* Rows of 16-bit elements that begin anywhere and have any length, read and written in words of 4 bytes, which hold two
 * neighbours each: half as many instructions as with single elements.
 *
 * The parity of a row is 1 where it begins in the middle of a word. Word w of a row has elements 2 w - parity and
 * 2 w - parity + 1; thread t of T has the words t, t + T … Only a row's first and last word may be halves. A row of n
 * elements lies in n / 2 + 1 words at most.
 *
 * A thread thus has elements of two classes (an element's class is its index modulo 2 T): those in the low halves of
 * its words, and those in the high ones. Which classes that are depends on the parity: 2 t and 2 t + 1, or 2 t - 1 and
 * 2 t. What reduces a row keeps one state for each half, and join_row (join.cuh) puts the classes together in an order
 * that is the same for both parities: a row comes out the same wherever it lies. */
#pragma once

#include "rows.cuh"

/* Whether p is behind a multiple of two elements. */
template <class T> TN_DEVICE u32 parity_of(const T *p) {
    return shift_of<2>(p);
}

/* What is in memory where `there` is true, else `other`. No branch: all loads of a loop are under way together. */
TN_DEVICE u32 load_word_or(const void *p, bool there, u32 other) {
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %2, 0;\n\t"
                 "@t ld.global.u32 %0, [%1];\n\t"
                 "}"
                 : "+r"(other)
                 : "l"(p), "r"((u32)there));
    return other;
}

TN_DEVICE void store_word_if(void *p, bool there, u32 a) {
    asm volatile("{\n\t"
                 ".reg .pred t;\n\t"
                 "setp.ne.u32 t, %1, 0;\n\t"
                 "@t st.global.u32 [%0], %2;\n\t"
                 "}" ::"l"(p),
                 "r"((u32)there), "r"(a)
                 : "memory");
}

/* The compiler no longer knows where p comes from: one base and an offset make an address, not a sum of many. Nor does
 * it know that p is in global memory, but the functions above do. */
template <class T> TN_DEVICE T *hidden(T *p) {
    i64 address = (i64)p;
    hide(address);
    return (T *)address;
}

/* This thread's words; elements that are not in the row are `outside`. */
template <int WORDS, class T>
TN_DEVICE void load_pairs(u32 (&word)[WORDS], const T *row, int n, row_group g, int parity, T outside) {
    const u32 neither = outside.bits * 0x10001u;
    const T *even = hidden(row - parity);
    const int end = n + parity; /* counted from `even` on */
    const bool head = parity && g.rank == 0;
#pragma unroll
    for (int u = 0; u < WORDS; u++) {
        int i = 2 * (u * g.threads + g.rank);
        hide(i); /* no addresses of later words in registers, here and below */
        word[u] = load_word_or(even + i, i + 1 < end && !(u == 0 && head), neither);
    }
    if (n == 0) return;
    if (head) word[0] = (neither & 0xffffu) | (u32)row[0].bits << 16;
    if (end % 2 == 1 && (u32)(end / 2) % (u32)g.threads == (u32)g.rank) {
        const u32 tail = (neither & 0xffff0000u) | row[n - 1].bits;
#pragma unroll
        for (int u = 0; u < WORDS; u++) word[u] = u * g.threads + g.rank == end / 2 ? tail : word[u];
    }
}

/* The lanes of this warp that have the same row as this one. */
TN_DEVICE u32 lanes_of_row(row_group g) {
    return g.threads >= 32 ? 0xffffffffu : ((1u << g.threads) - 1) << (threadIdx.x % 32 - g.rank);
}

/* Writes of(word, i) to where load_pairs found a word, i being the place of its first element in the row; x has this
 * parity. The row that is written may have the other one: then neighbouring lanes put their halves together. All lanes
 * of the row take part. */
template <int WORDS, class T, class F>
TN_DEVICE void store_pairs(const u32 (&word)[WORDS], T *row, int n, row_group g, int parity, F of) {
    const int begin = 2 * g.rank - parity, step = 2 * g.threads;
    if (n == 0) return;
    row = hidden(row);
    if ((int)parity_of(row) == parity) {
        u32 last = word[0];
#pragma unroll
        for (int u = 0; u < WORDS; u++) {
            int i = begin + u * step;
            hide(i);
            if (u % 4 == 0 && u * step > n) break;
            store_word_if(row + i, (u32)i < (u32)n - 1u, of(word[u], i));
            last = i == n - 1 ? word[u] : last;
        }
        if (begin == -1) row[0].bits = (u16)(of(word[0], -1) >> 16);
        if ((n + parity) % 2 == 1 && (u32)(n - 1 - begin) % (u32)step == 0) row[n - 1].bits = (u16)of(last, n - 1);
        return;
    }
    const int lane = threadIdx.x % 32;
    const bool first_lane = lane == 0 || g.rank == 0, last_lane = lane == 31 || g.rank + 1 == g.threads;
#pragma unroll
    for (int u = 0; u < WORDS; u++) {
        int i = begin + u * step;
        hide(i);
        const u32 own = of(word[u], i), next = __shfl_sync(lanes_of_row(g), own, last_lane ? lane : lane + 1);
        if (first_lane && i >= 0 && i < n) row[i].bits = (u16)own;
        const bool both = !last_lane && i + 2 < n;
        store_word_if(row + i + 1, both, __funnelshift_r(own, next, 16));
        if (!both && i + 1 < n) row[i + 1].bits = (u16)(own >> 16);
    }
}
