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

/* The compiler no longer knows where p comes from: one base and an offset make an address, not a sum of many. Nor does
 * it know that p is in global memory, but the functions above do. */
template <class T> TN_DEVICE T *hidden(T *p) {
    i64 address = (i64)p;
    hide(address);
    return (T *)address;
}

/* All threads of a block have a row, or a piece of one. As a row_group, but the compiler knows how many they are: each
 * address is a base that a thread has, and a constant. */
struct block_group {
    int rank;
    enum { threads = TNI_ROW_BLOCK };
};

/* No addresses of later places in registers: they would be sums of something that is known only at run time. */
TN_DEVICE void hide_place(row_group, int &i) {
    hide(i);
}
TN_DEVICE void hide_place(block_group, int &) {
}

/* Words that are asked about together: those before the last ones of a row are all there. */
enum { TNI_PAIRS_AT_ONCE = 4 };

/* Whether all threads have all of the words from the u-th on that are asked about together, both halves of each, in a
 * row of this parity whose elements end before `end`, counted from the word that it begins in. */
template <class G> TN_DEVICE bool are_whole(int u, G g, int parity, int end) {
    return 2 * (u + TNI_PAIRS_AT_ONCE) * g.threads <= end && !(u == 0 && parity);
}

/* This thread's words; elements that are not in the row are `outside`. */
template <int WORDS, class T, class G>
TN_DEVICE void load_pairs(u32 (&word)[WORDS], const T *row, int n, G g, int parity, T outside) {
    const u32 neither = outside.bits * 0x10001u;
    const int end = n + parity;
    const bool head = parity && g.rank == 0;
    const T *even = hidden(row - parity + 2 * g.rank);
#pragma unroll
    for (int first = 0; first < WORDS; first += TNI_PAIRS_AT_ONCE) {
        if (are_whole(first, g, parity, end)) {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) {
                int i = 2 * u * g.threads;
                hide_place(g, i);
                word[u] = load_word(even + i);
            }
        } else {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) {
                int i = 2 * u * g.threads;
                hide_place(g, i);
                word[u] = load_word_or(even + i, i + 2 * g.rank + 1 < end && !(u == 0 && head), neither);
            }
        }
    }
    if (n == 0) return;
    if (head) word[0] = (neither & 0xffffu) | (u32)row[0].bits << 16;
    if (end % 2 == 1 && (u32)(end / 2) % (u32)g.threads == (u32)g.rank) {
        const u32 tail = (neither & 0xffff0000u) | row[n - 1].bits;
#pragma unroll
        for (int u = 0; u < WORDS; u++) word[u] = u * g.threads + g.rank == end / 2 ? tail : word[u];
    }
}

/* The same from a copy in shared memory that has the words as they are in memory, and anything beside the row. */
template <int WORDS, class T>
TN_DEVICE void take_pairs(u32 (&word)[WORDS], const u32 *copy, int n, block_group g, int parity, T outside) {
    const u32 neither = outside.bits * 0x10001u;
    const int end = n + parity;
    copy += g.rank;
#pragma unroll
    for (int first = 0; first < WORDS; first += TNI_PAIRS_AT_ONCE) {
        if (are_whole(first, g, 0, end)) {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) word[u] = copy[u * g.threads];
        } else {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) {
                const int i = 2 * (u * g.threads + g.rank);
                word[u] = i < end ? copy[u * g.threads] : neither;
                if (i + 1 == end) word[u] = (word[u] & 0xffffu) | (neither & 0xffff0000u);
            }
        }
    }
    if (parity && g.rank == 0) word[0] = (word[0] & 0xffff0000u) | (neither & 0xffffu);
}

/* The lanes of this warp that have the same row as this one. */
template <class G> TN_DEVICE u32 lanes_of_row(G g) {
    return g.threads >= 32 ? 0xffffffffu : ((1u << g.threads) - 1) << (threadIdx.x % 32 - g.rank);
}

/* To where load_pairs found the words: the row has the same parity. */
template <int WORDS, class T, class G, class F>
TN_DEVICE void store_whole_pairs(const u32 (&word)[WORDS], T *row, int n, G g, int parity, F of) {
    const int begin = 2 * g.rank - parity, end = n + parity;
    T *even = hidden(row + begin);
#pragma unroll
    for (int first = 0; first < WORDS; first += TNI_PAIRS_AT_ONCE) {
        if (2 * first * g.threads >= end) break;
        if (are_whole(first, g, parity, end)) {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) {
                int i = 2 * u * g.threads;
                hide_place(g, i);
                store_word(even + i, of(word[u], begin + i));
            }
        } else {
#pragma unroll
            for (int u = first; u < first + TNI_PAIRS_AT_ONCE; u++) {
                int i = 2 * u * g.threads;
                hide_place(g, i);
                const u32 a = of(word[u], begin + i);
                store_word_if(even + i, (u32)(begin + i) < (u32)n - 1u, a);
                if (begin + i == n - 1) even[i].bits = (u16)a;
                if (u == 0 && begin == -1) row[0].bits = (u16)(a >> 16);
            }
        }
    }
}

/* Writes of(word, i) to where load_pairs found a word, i being the place of its first element in the row; x has this
 * parity. The row that is written may have the other one: then neighbouring lanes put their halves together. All lanes
 * of the row take part. */
template <int WORDS, class T, class G, class F>
TN_DEVICE void store_pairs(const u32 (&word)[WORDS], T *row, int n, G g, int parity, F of) {
    const int begin = 2 * g.rank - parity, step = 2 * g.threads;
    if (n == 0) return;
    if ((int)parity_of(row) == parity) return store_whole_pairs(word, row, n, g, parity, of);
    row = hidden(row);
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
