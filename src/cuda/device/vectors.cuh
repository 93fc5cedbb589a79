/* Several elements at a time, 16 bytes or fewer, wherever they are. */
#pragma once

#include "types.cuh"

namespace tn {

template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) vec {
    enum { VL = N }; /* no variable: each would be one in the compiled code */
    T v[N];
    TN_MEMBER T &operator[](int i) { return v[i]; }
    TN_MEMBER const T &operator[](int i) const { return v[i]; }
};

template <class T> struct is_half {
    enum { value = false };
};
template <> struct is_half<f16> {
    enum { value = true };
};
template <> struct is_half<bf16> {
    enum { value = true };
};

template <class T> TN_DEVICE bool is_aligned(const T *p) { return ((u64)p & 15) == 0; }

/* Element j as a number; of bf16 by one instruction, out of the pair that it is in. */
template <class T, int N> TN_DEVICE auto widen_at(const vec<T, N> &a, int j) { return widen(a.v[j]); }
template <int N> TN_DEVICE f32 widen_at(const vec<bf16, N> &a, int j) {
    if constexpr (N == 1) {
        return widen(a.v[0]);
    } else {
        union {
            vec<bf16, N> a;
            u32 w[N / 2];
        } r;
        r.a = a;
        return widen_half(bf16{}, r.w[j / 2], j);
    }
}

/* N numbers rounded to T: the 16-bit types in pairs. */
template <class T, int N, class A> TN_DEVICE vec<T, N> narrow_vector(const A *a) {
    union {
        vec<T, N> all;
        u32 w[(sizeof(T) * N + 3) / 4];
    } r;
    if constexpr (is_half<T>::value && N > 1) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) r.w[i] = narrow_pair(T{}, round_to_odd(a[2 * i]), round_to_odd(a[2 * i + 1]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) narrow(a[i], r.all.v[i]);
    }
    return r.all;
}

/* As hide of a number. */
template <class T, int N> TN_DEVICE void hide(vec<T, N> &a) {
    constexpr int W = (int)sizeof(T) * N / 4;
    if constexpr (W > 0) {
        union {
            vec<T, N> a;
            u32 w[W];
        } r;
        r.a = a;
#pragma unroll
        for (int i = 0; i < W; i++) hide(r.w[i]);
        a = r.a;
    }
}

/* MODE 3: which of two elements, from i >= -1 on, are below `past` and not before 0. */
TN_DEVICE int two_left(int i, int past) { return ((u32)i < (u32)past) | (i + 1 < past) << 1; }
/* Whether p is behind a multiple of two elements. */
template <class T> TN_DEVICE u32 parity_of(const T *p) { return (u32)((u64)p / sizeof(T)) & 1; }

/* ---- loads: the first n of N elements; the others are 0 ---------------------------------------------------------- */

/* `step` elements apart. */
template <class T, int N> TN_DEVICE vec<T, N> load_apart(const T *p, i64 step, int n) {
    vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = i < n ? p[i * step] : T{};
    return r;
}

/* The elements of a row that begins anywhere, two at a time: thread x of ACROSS has words x, x + ACROSS … and word
 * w has the elements 2 w - odd and 2 w - odd + 1, as far as they are among the row's n; the others are 0. Those of 16
 * bits are words of memory where the row begins as `odd` says. All loads are under way before the first is waited for:
 * the row's first and last word, which may be halves, come behind the others. */
template <u32 ACROSS, class T, int U>
TN_DEVICE void load_words(vec<T, 2> (&v)[U], const T *row, int n, u32 odd, u32 x) {
    const int begin = (int)(2 * x) - (int)odd, last = n - 1;
    const T *const p = row + begin;
    if (sizeof(T) != 2 || parity_of(row) != odd) {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int i = begin + u * (int)(2 * ACROSS);
            if constexpr (sizeof(T) == 2) {
                union {
                    u32 w;
                    vec<T, 2> a;
                } r;
                r.w = load_halves_if(p + u * (int)(2 * ACROSS), two_left(i, n));
                v[u] = r.a;
            } else {
                v[u].v[0] = (u32)i < (u32)n ? p[u * (int)(2 * ACROSS)] : T{};
                v[u].v[1] = i + 1 < n ? p[u * (int)(2 * ACROSS) + 1] : T{};
            }
        }
        return;
    }
    if constexpr (sizeof(T) == 2) {
        union words_of_two {
            u32 w[U];
            vec<T, 2> a[U];
            TN_MEMBER words_of_two() {}
        } r;
        const u32 whole = n > 0 ? (u32)last : 0; /* a word that begins below has both */
#pragma unroll
        for (int u = 0; u < U; u++)
            r.w[u] = load_word_if(p + u * (int)(2 * ACROSS), (u32)(begin + u * (int)(2 * ACROSS)) < whole);
        if (begin < 0 && n > 0) r.w[0] = (u32)row[0].bits << 16;
        if (n > 0 && (((u32)last + odd) & 1) == 0 && ((u32)last + odd) / 2 % ACROSS == x) {
            const u32 half = row[last].bits;
#pragma unroll
            for (int u = 0; u < U; u++) r.w[u] = begin + u * (int)(2 * ACROSS) == last ? half : r.w[u];
        }
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = r.a[u];
    }
}

/* Side by side. MODE 0: one by one; 1: memory is aligned, vectors at once but for the last of a row; 2: and rows are
 * whole vectors. (3, of rows that begin anywhere: load_words.) */
template <class T, int N, int MODE> TN_DEVICE vec<T, N> load_vector(const T *p, int n) {
    if constexpr (N == 1 && sizeof(T) == 4) {
        union {
            u32 w;
            vec<T, 1> a;
        } r;
        r.w = load_word_if(p, n > 0);
        return r.a;
    } else {
        constexpr int W = (int)sizeof(T) * N / 4;
        union {
            vec<T, N> a;
            words w[W >= 4 ? W / 4 : 1];
            half_words half;
        } r;
        if (MODE > 0 && N > 1 && W >= 2) {
            if constexpr (W >= 4) {
                for (int i = 0; i < W / 4; i++) r.w[i] = load_words_if((const char *)p + 16 * i, n == N);
            } else if constexpr (W == 2) {
                r.half = load_half_words_if(p, n == N);
            }
            if (MODE == 2 || n == N || n <= 0) return r.a;
        } else if (MODE > 0 && N > 1 && n == N) {
            return *(const vec<T, N> *)p;
        }
#pragma unroll
        for (int i = 0; i < N; i++) r.a.v[i] = i < n ? p[i] : T{};
        return r.a;
    }
}

/* The same, of what is worth a place in the nearest cache. */
template <class T, int N, int MODE> TN_DEVICE vec<T, N> load_kept(const T *p, int n) {
    constexpr int W = (int)sizeof(T) * N / 4;
    if constexpr (MODE > 0 && W > 0) {
        union {
            vec<u32, W> w;
            vec<T, N> a;
        } r;
        r.w = {};
        if (n == N) r.w = *(const vec<u32, W> *)p;
        if (MODE == 2 || n == N) return r.a;
    }
    return load_vector<T, N, 0>(p, n);
}

/* From shared memory, where vectors have whole 16 bytes: all of it or nothing. */
template <class T, int N> TN_DEVICE vec<T, N> load_near(const char *p, int n) {
    constexpr int W = (int)sizeof(T) * N / 16;
    union {
        vec<T, N> a;
        words w[W];
    } r;
    for (int i = 0; i < W; i++) r.w[i] = load_shared_if(p + 16 * i, n > 0);
    return r.a;
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

template <class T, int N, class A> TN_DEVICE void store_apart(T *p, i64 step, const A (&y)[N], int n) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i < n) narrow(y[i], p[i * step]);
    }
}

/* Which of two elements there are: bits of `there`; 7: both, and they are a word of memory. */
template <class T, class A> TN_DEVICE void store_two(T *p, const A (&y)[2], int there) {
    if constexpr (sizeof(T) == 2) {
        if (there & 4 || (there == 3 && ((u64)p & 3) == 0)) {
            union {
                vec<T, 2> a;
                u32 w;
            } r;
            r.a = narrow_vector<T, 2>(y);
            *(u32 *)p = r.w;
            return;
        }
    }
    if (there & 1) narrow(y[0], p[0]);
    if (there & 2) narrow(y[1], p[1]);
}

template <class T, int N, int MODE, class A> TN_DEVICE void store_vector(T *p, const A (&y)[N], int n) {
    constexpr int W = (int)sizeof(T) * N / 4;
    if constexpr (MODE == 3) return store_two(p, y, n);
    if (MODE > 0 && N > 1 && n == N) {
        union {
            vec<T, N> a;
            words w[W >= 4 ? W / 4 : 1];
            half_words half;
        } r;
        r.a = narrow_vector<T, N>(y);
        if constexpr (W >= 4) {
            for (int i = 0; i < W / 4; i++) store_words((char *)p + 16 * i, r.w[i]);
        } else if constexpr (W == 2) {
            store_half_words(p, r.half);
        } else {
            *(vec<T, N> *)p = r.a;
        }
        return;
    }
    if (MODE == 2 && N > 1) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i < n) narrow(y[i], p[i]);
    }
}

/* Is element j one of the n that are there? */
template <int MODE> TN_DEVICE bool is_in(int j, int n) { return MODE == 2 || (MODE == 3 ? n >> j & 1 : j < n); }
/* How many of `most` elements from `from` on there are. */
template <int MODE, class I> TN_DEVICE int count_left(I from, I past, int most) {
    if (MODE == 2) return from < past ? most : 0;
    const I n = past - from;
    return n <= 0 ? 0 : n < most ? (int)n : most;
}
} // namespace tn
