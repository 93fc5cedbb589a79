/* A thread's share of a row, held in WORDS registers (half as many numbers of f64): vectors of 16 bytes where the row's
 * length is a multiple of them, and for other rows pairs or single elements. Each has
 *     load     all loads are under way before the first is used; elements that are not in the row are -inf
 *     take     if it has COPIES: the same, from a copy in shared memory (row_copy)
 *     get      element i of ELEMENTS
 *     forget   what was made of elements so far is not kept for what is made of them later: it would take registers
 *     clear    all elements become 0
 *     at       its place in the row, which may be outside of it
 *     left     whether some thread may have an i-th element: if not, nor has it later ones
 *     holds    whether this thread has the one at a place
 *     store    y[at] = of(get(i), at): y lies as it likes
 *     word     where it is PAIRED: the k-th pair of 16-bit elements
 * Element i goes into the state i % SLOTS (join.cuh). G is who holds the row: row_group or block_group. */
#pragma once

#include "pairs.cuh"

/* The compiler does not know it: it makes a branch around many of them, not a selection for each. */
TN_DEVICE u32 hidden_zero() {
    u32 zero = 0;
    hide(zero);
    return zero;
}

template <class T> TN_DEVICE T lowest() {
    T t;
    narrow(-infinity<acc<T>>(), t);
    return t;
}

/* As piece_at. */
template <int V, class G> TN_DEVICE int place_of(G g, int k) {
    return (k * g.threads + g.rank) * V;
}

/* ---- the next row on its way ------------------------------------------------------------------------------------- */

#if __CUDA_ARCH__ >= 900
/* What this thread wrote to shared memory is before bulk copies that are begun behind a barrier. */
TN_DEVICE void before_bulk() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#else
TN_DEVICE void before_bulk() {
}
#endif

/* A copy of n elements from x on in the block's dynamic shared memory, made while the block works on others. It lies as
 * the row does within 16 bytes. Bulk copies are of whole 16 bytes, which may have something else at both ends; but
 * nothing outside of low … high is read, the 16 bytes that are wholly in the tensor. */
template <class T> struct row_copy {
    const T *x;
    int n;
    const void *low, *high;

    TN_MEMBER u64 begin() const {
        return (u64)x & ~15ull;
    }
    TN_MEMBER u64 from() const {
        return max(begin(), (u64)low);
    }
    TN_MEMBER u64 to() const {
        return min(((u64)(x + n) + 15) & ~15ull, (u64)high);
    }
    /* Element 0 of the copy. */
    TN_MEMBER T *copy() const {
        return (T *)dynamic_shared() + lead_of(x);
    }
    /* By one thread, when nobody needs the last copy any more. */
    TN_MEMBER void fetch(u64 *arrived) const {
        bulk_expect(arrived, (u32)(to() - from()));
        bulk_fetch((char *)dynamic_shared() + (from() - begin()), (const void *)from(), (u32)(to() - from()), arrived);
    }
    /* By all threads of the block. */
    TN_MEMBER void wait(u64 *arrived, u32 phase) const {
        bulk_wait(arrived, phase);
        if (from() <= (u64)x && to() >= (u64)(x + n)) return;
        const int i = threadIdx.x, j = n - 1 - i; /* at the beginning and at the end of the tensor */
        if (i < 16 && (u64)(x + i) < from()) copy()[i] = x[i];
        if (i < 16 && (u64)(x + j) >= to()) copy()[j] = x[j];
        before_bulk();
        __syncthreads();
    }
};

/* ---- shares ------------------------------------------------------------------------------------------------------ */

template <class T, int WORDS> struct vector_share {
    enum { VL = pack<T>::VL, ELEMENTS = WORDS / 4 * VL, SLOTS = 1, PAIRED = is_half<T>::value, COPIES = false };
    words raw[WORDS / 4];

    template <class G> TN_MEMBER void load(const T *x, int n, G g) {
        pack<T> none;
#pragma unroll
        for (int j = 0; j < VL; j++) none.v[j] = lowest<T>();
        x = hidden(x);
        if (is_aligned(x)) {
#pragma unroll
            for (int k = 0; k < WORDS / 4; k++) {
                const int i = place_of<VL>(g, k);
                raw[k] = load_words_or(x + i, i < n, words_of(none));
            }
        } else if (((u64)x & 3) == 0) {
#pragma unroll
            for (int k = 0; k < WORDS; k++) {
                const int i = place_of<VL>(g, k / 4);
                raw[k / 4].w[k % 4] = load_word_or((const u32 *)(x + i) + k % 4, i < n, words_of(none).w[k % 4]);
            }
        } else {
#pragma unroll
            for (int k = 0; k < WORDS / 4; k++) {
                const int i = place_of<VL>(g, k);
                pack<T> a = none;
#pragma unroll
                for (int j = 0; j < VL; j++)
                    if (i < n) a.v[j] = (x + i)[j];
                raw[k] = words_of(a);
                asm volatile("" ::: "memory"); /* more under way would take too many registers */
            }
        }
    }
    TN_MEMBER void forget() {
#pragma unroll
        for (int k = 0; k < WORDS; k++) hide(raw[k / 4].w[k % 4]);
    }
    TN_MEMBER void clear() {
#pragma unroll
        for (int k = 0; k < WORDS; k++) raw[k / 4].w[k % 4] = hidden_zero();
    }
    TN_MEMBER acc<T> get(int i) const {
        return widen_word<T>(raw[i / VL], i % VL);
    }
    TN_MEMBER u32 word(int k) const {
        return raw[k / 4].w[k % 4];
    }
    template <class G> static TN_MEMBER int at(int i, G g, int) {
        return place_of<VL>(g, i / VL) + i % VL;
    }
    template <class G> static TN_MEMBER bool left(int i, G g, int n) {
        return i % VL != 0 || i / VL * g.threads * VL < n;
    }
    template <class G> static TN_MEMBER bool holds(int at, G g, int) {
        bool mine = false;
#pragma unroll
        for (int k = 0; k < WORDS / 4; k++) mine |= k * g.threads + g.rank == at / VL;
        return mine;
    }
    template <class G, class F> TN_MEMBER void store(T *y, int n, G g, int, F of) const {
        const bool aligned = is_aligned(y);
        y = hidden(y);
#pragma unroll
        for (int k = 0; k < WORDS / 4; k++) {
            int first = place_of<VL>(g, k);
            hide_place(g, first);
            if (first >= n) break;
            acc<T> e[VL];
#pragma unroll
            for (int j = 0; j < VL; j++) e[j] = of(get(k * VL + j), first + j);
            const pack<T> a = narrow_pack<T>(e);
            if (aligned) {
                store_pack(y + first, a);
            } else {
#pragma unroll
                for (int j = 0; j < VL; j++) (y + first)[j] = a.v[j];
            }
        }
    }
};

/* 16-bit types. */
template <class T, int WORDS> struct pair_share {
    enum { ELEMENTS = 2 * WORDS, SLOTS = 2, PAIRED = true, COPIES = true };
    u32 raw[WORDS];

    template <class G> TN_MEMBER void load(const T *x, int n, G g) {
        load_pairs(raw, x, n, g, parity_of(x), lowest<T>());
    }
    TN_MEMBER void take(const row_copy<T> &row, block_group g) {
        const int parity = parity_of(row.x);
        take_pairs(raw, (const u32 *)(row.copy() - parity), row.n, g, parity, lowest<T>());
    }
    TN_MEMBER void forget() {
#pragma unroll
        for (int k = 0; k < WORDS; k++) hide(raw[k]);
    }
    TN_MEMBER void clear() {
#pragma unroll
        for (int k = 0; k < WORDS; k++) raw[k] = hidden_zero();
    }
    TN_MEMBER acc<T> get(int i) const {
        return widen_half(T{}, raw[i / 2], i);
    }
    TN_MEMBER u32 word(int k) const {
        return raw[k];
    }
    template <class G> static TN_MEMBER int at(int i, G g, int parity) {
        return place_of<2>(g, i / 2) + i % 2 - parity;
    }
    template <class G> static TN_MEMBER bool left(int i, G g, int n) {
        return i % 8 != 0 || i * g.threads <= n;
    }
    template <class G> static TN_MEMBER bool holds(int at, G g, int parity) {
        return (at + parity) / 2 % g.threads == g.rank;
    }
    template <class G, class F> TN_MEMBER void store(T *y, int n, G g, int parity, F of) const {
        store_pairs(raw, y, n, g, parity, [&](u32 word, int i) {
            return narrow_pair(T{}, of(widen_half(T{}, word, 0), i), of(widen_half(T{}, word, 1), i + 1));
        });
        __syncwarp(lanes_of_row(g)); /* lanes may have written what others hold, and these may now write it anew */
    }
};

template <class T, int WORDS> struct single_share {
    enum { ELEMENTS = sizeof(T) == 8 ? WORDS / 2 : WORDS, SLOTS = 1, PAIRED = false, COPIES = true };
    T raw[ELEMENTS];

    template <class G> TN_MEMBER void load(const T *x, int n, G g) {
        x = hidden(x);
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) {
            int first = place_of<1>(g, i);
            hide_place(g, first);
            if constexpr (sizeof(T) == 4) {
                raw[i] = __uint_as_float(load_word_or(x + first, first < n, __float_as_uint(lowest<T>())));
            } else {
                raw[i] = first < n ? x[first] : lowest<T>();
            }
        }
    }
    TN_MEMBER void take(const row_copy<T> &row, block_group g) {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++)
            raw[i] = place_of<1>(g, i) < row.n ? row.copy()[place_of<1>(g, i)] : lowest<T>();
    }
    TN_MEMBER void forget() {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) hide(raw[i]);
    }
    TN_MEMBER void clear() {
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) raw[i] = T{};
    }
    TN_MEMBER acc<T> get(int i) const {
        return widen(raw[i]);
    }
    template <class G> static TN_MEMBER int at(int i, G g, int) {
        return place_of<1>(g, i);
    }
    template <class G> static TN_MEMBER bool left(int i, G g, int n) {
        return i % 4 != 0 || i * g.threads < n;
    }
    template <class G> static TN_MEMBER bool holds(int at, G g, int) {
        return at % g.threads == g.rank;
    }
    template <class G, class F> TN_MEMBER void store(T *y, int n, G g, int, F of) const {
        y = hidden(y);
#pragma unroll
        for (int i = 0; i < ELEMENTS; i++) {
            int first = place_of<1>(g, i);
            hide_place(g, first);
            if (!left(i, g, n)) break;
            if constexpr (sizeof(T) == 4) {
                store_word_if(y + first, first < n, __float_as_uint(of(get(i), first)));
            } else if (first < n) {
                narrow(of(get(i), first), y[first]);
            }
        }
    }
};

/* Rows whose length is no multiple of a vector. */
template <class T, int WORDS> struct odd_share_of { typedef single_share<T, WORDS> type; };
template <int WORDS> struct odd_share_of<f16, WORDS> { typedef pair_share<f16, WORDS> type; };
template <int WORDS> struct odd_share_of<bf16, WORDS> { typedef pair_share<bf16, WORDS> type; };
template <class T, int WORDS> using odd_share = typename odd_share_of<T, WORDS>::type;
