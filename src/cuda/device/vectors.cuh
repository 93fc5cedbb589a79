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

/* How far p, counted in elements, is behind a multiple of N. */
template <int N, class T> TN_DEVICE u32 shift_of(const T *p) { return (u32)((u64)p / sizeof(T)) % N; }
/* MODE 3 and 4: which of N elements, from i > -N on, are below `past` and not before 0: a bit for each. */
template <int N> TN_DEVICE int some_left(int i, int past) {
    const u32 all = (1u << N) - 1;
    const int more = past - i;
    return (int)((i < 0 ? all << -i & all : all) & (more <= 0 ? 0 : more >= N ? all : (1u << more) - 1));
}

/* How many of `most` elements from `from` on there are. */
template <int MODE, class I> TN_DEVICE int count_left(I from, I past, int most) {
    if (MODE == 2) return from < past ? most : 0;
    const I n = past - from;
    return n <= 0 ? 0 : n < most ? (int)n : most;
}

/* The 16 bytes that begin at byte `shift` < 16 of the 32 of a and b. */
TN_DEVICE words shift_words(const words &a, const words &b, u32 shift) {
    u32 t[6], u[5];
    words r;
    const bool two = shift & 8, one = shift & 4;
#pragma unroll
    for (int i = 0; i < 6; i++) {
        const u32 near = i < 4 ? a.w[i & 3] : b.w[i & 3], far = i < 2 ? a.w[(i + 2) & 3] : b.w[(i - 2) & 3];
        t[i] = two ? far : near;
    }
#pragma unroll
    for (int i = 0; i < 5; i++) u[i] = one ? t[i + 1] : t[i];
#pragma unroll
    for (int i = 0; i < 4; i++) r.w[i] = (u32)(((u64)u[i + 1] << 32 | u[i]) >> ((shift & 3) * 8));
    return r;
}
/* The same as N elements, from the `lead`-th of those in a on. */
template <class T, int N> TN_DEVICE vec<T, N> shift_vector(const words &a, const words &b, u32 lead) {
    union {
        words w;
        vec<T, N> v;
    } r;
    r.w = shift_words(a, b, lead * (u32)sizeof(T));
    return r.v;
}

/* ---- loads: the first n of N elements; the others are 0 ---------------------------------------------------------- */

/* `step` elements apart. */
template <class T, int N> TN_DEVICE vec<T, N> load_apart(const T *p, i64 step, int n) {
    vec<T, N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = i < n ? p[i * step] : T{};
    return r;
}

/* Elements c, c + 1 … of a row where each one in memory stands for `each`, which is N at least. */
template <class T, int N> TN_DEVICE vec<T, N> load_stretched(const T *p, i64 c, i64 each, int n) {
    vec<T, N> r;
    const u32 at = n > 0 ? (u32)c / (u32)each : 0; /* rows have fewer than 2^32 elements */
    const int edge = (int)((at + 1) * (u32)each - (u32)c);
    const T first = n > 0 ? p[at] : T{}, second = edge < n ? p[at + 1] : T{};
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = i >= n ? T{} : i < edge ? first : second;
    return r;
}

/* N elements wherever they are, or zeros. Of 16 bits: the words that they are in, and what lies across two of them is
 * put together. */
template <class T, int N> TN_DEVICE vec<T, N> load_across(const T *p, bool there) {
    union {
        vec<T, N> a;
        u32 w[(sizeof(T) * N + 3) / 4];
    } r;
    if constexpr (sizeof(T) == 2 && N > 1) {
        const u32 bits = (u32)((u64)p & 2) * 8;
        const u32 *const from = (const u32 *)((u64)p & ~(u64)3);
        const u32 last = there && bits ? ((const u16 *)p)[N - 1] : 0; /* nothing behind it is read */
        u32 low = load_word_if(from, there);
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            const u32 high = k + 1 < N / 2 ? load_word_if(from + k + 1, there) : last;
            r.w[k] = (u32)(((u64)high << 32 | low) >> bits);
            low = high;
        }
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int k = 0; k < N; k++) r.w[k] = load_word_if(p + k, there);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) r.a.v[k] = there ? p[k] : T{};
    }
    return r.a;
}

/* Side by side. MODE 0: memory lies anywhere; 1: memory is aligned, vectors at once but for the last of a row; 2: and
 * rows are whole vectors. (3, and 4 if they lie differently, of rows that begin anywhere: load_shifted.) */
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
            u32 word;
        } r;
        if (MODE > 0 && N > 1 && W >= 1) {
            if constexpr (W >= 4) {
                for (int i = 0; i < W / 4; i++) r.w[i] = load_words_if((const char *)p + 16 * i, n == N);
            } else if constexpr (W == 2) {
                r.half = load_half_words_if(p, n == N);
            } else if constexpr (W == 1) {
                r.word = load_word_if(p, n == N);
            }
            if (MODE == 2 || n == N || n <= 0) return r.a;
        } else if (MODE > 0 && N > 1 && n == N) {
            return *(const vec<T, N> *)p;
        } else if (MODE == 0 && N > 1 && n == N) {
            if (W >= 4 && is_aligned(p)) return load_vector<T, N, 2>(p, n);
            return load_across<T, N>(p, true);
        }
#pragma unroll
        for (int i = 0; i < N; i++) r.a.v[i] = i < n ? p[i] : T{};
        return r.a;
    }
}

/* MODE 3 and 4: N elements, or zeros. ALIKE: they are a whole vector of memory. */
template <class T, int N, bool ALIKE> TN_DEVICE vec<T, N> load_all(const T *p, bool there) {
    return ALIKE ? load_vector<T, N, 2>(p, there ? N : 0) : load_across<T, N>(p, there);
}

/* MODE 3 and 4: those that `there` has a bit for, and zeros. */
template <class T, int N> TN_DEVICE vec<T, N> load_some(const T *p, int there) {
    if (there == (1 << N) - 1) return load_across<T, N>(p, true);
    union {
        vec<T, N> a;
        u32 w[(sizeof(T) * N + 3) / 4];
    } r;
    if constexpr (sizeof(T) == 2 && N > 1) { /* compilers put single halves into local memory */
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            const u32 low = there >> (2 * k) & 1 ? ((const u16 *)p)[2 * k] : 0;
            r.w[k] = low | (there >> (2 * k + 1) & 1 ? (u32)((const u16 *)p)[2 * k + 1] << 16 : 0);
        }
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) r.a.v[j] = there >> j & 1 ? p[j] : T{};
    }
    return r.a;
}

/* Side by side, or those that n has a bit for of a vector of memory that may begin before them, in MODE 3. */
template <class T, int N, int MODE> TN_DEVICE vec<T, N> load_places(const T *p, int n) {
    if constexpr (MODE > 2) {
        vec<T, N> r = load_all<T, N, true>(p, n == (1 << N) - 1);
        if (n != (1 << N) - 1 && n != 0) r = load_some<T, N>(p, n);
        return r;
    } else {
        return load_vector<T, N, MODE>(p, n);
    }
}

/* One of two, by a mask, word by word: of a question compilers make branches, or a choice of addresses in local
 * memory. */
template <class T> TN_DEVICE T choose(bool first, const T &a, const T &b) {
    constexpr int W = (int)(sizeof(T) + 3) / 4;
    union both {
        T t;
        u32 w[W];
        TN_MEMBER both(const T &of) : t(of) {}
    } x(a), y(b);
    u32 mask = first ? ~0u : 0;
    hide(mask);
#pragma unroll
    for (int k = 0; k < W; k++) x.w[k] = (x.w[k] & mask) | (y.w[k] & ~mask);
    return x.t;
}

/* Vectors of 16 bytes, STEP elements apart, from p on, wherever that is: each is put together from the two pieces of 16
 * aligned bytes that it lies in, all of which are under way before the first is needed. Vector u begins `i` + u STEP
 * elements behind the row's first one, and the row has n. Where a piece is not all in the row, vectors are made of
 * anything. */
template <int STEP, class T, int N, int U, class I>
TN_DEVICE void load_pieces(vec<T, N> (&v)[U], const T *p, I i, I n) {
    constexpr int PIECE = 16 / (int)sizeof(T);
    const u32 lead = shift_of<PIECE>(p);
    const words *const from = (const words *)(p - lead);
    words low[U], high[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        const I first = i + u * STEP - (int)lead, end = n - PIECE;
        low[u] = load_words_if(from + u * STEP / PIECE, first >= 0 && first <= end);
        high[u] = load_words_if(from + u * STEP / PIECE + 1, lead && first + PIECE <= end);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        v[u] = shift_vector<T, N>(low[u], high[u], lead);
    }
}

/* A row that begins anywhere: thread x of ACROSS has its vectors x, x + ACROSS …; vector w has the elements from
 * N w - shift on, as far as they are among the row's n, and zeros. ALIKE: memory lies as `shift` says, and vectors are
 * whole ones of it. `before`: of so many elements before these it is known that they are in memory. All loads are under
 * way before the first is waited for: those of the first and last elements, which need not fill a vector or the pieces
 * that it lies in, come behind the others. */
template <u32 ACROSS, bool ALIKE, class T, int N, int U>
TN_DEVICE void load_shifted(vec<T, N> (&v)[U], const T *row, int n, u32 shift, u32 x, int before = 0) {
    constexpr int STEP = N * (int)ACROSS;
    constexpr bool PIECES = !ALIKE && sizeof(T) * N == 16;
    const int begin = (int)(N * x) - (int)shift, whole = n - N;
    const u32 places = whole < 0 ? 0 : (u32)whole + 1; /* of vectors that are all there */
    const T *const p = row + begin;
    const int lead = PIECES ? (int)shift_of<N>(p) : 0, reach = lead ? 2 * N - lead : N;
    if constexpr (PIECES) {
        load_pieces<STEP>(v, p, begin + before, n + before);
    } else {
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = load_all<T, N, ALIKE>(p + u * STEP, (u32)(begin + u * STEP) < places);
    }
    if (n <= 0) return;
    const int last = ((int)((u32)n - 1 + shift) / N); /* vector */
#pragma unroll 1
    for (int k = 0; k < (PIECES ? 4 : 2); k++) { /* the first one and the last, then those beside them */
        const int w = k % 2 ? last - k / 2 : k / 2, i = w * N - (int)shift;
        const bool there = i >= 0 && i + before >= lead && i + reach <= n;
        if (w < 0 || w > last || (u32)w % ACROSS != x || there) continue;
        const vec<T, N> r = load_some<T, N>(row + i, some_left<N>(i, n));
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = choose((u32)u == (u32)w / ACROSS, r, v[u]);
    }
}

/* A row's vectors from its first element on. MODE 0: wherever it begins, as above. */
template <u32 ACROSS, int MODE, class T, int N, int U, class I>
TN_DEVICE void load_row(vec<T, N> (&v)[U], const T *row, I n, u32 x, int before = 0) {
    constexpr int MOST = 1 << 28; /* more than one round has */
    if constexpr (MODE == 0 && N > 1) {
        load_shifted<ACROSS, false>(v, row, n < MOST ? (int)n : MOST, 0, x, before);
    } else {
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int i = (int)((u * ACROSS + x) * N);
            v[u] = load_vector<T, N, MODE>(row + i, count_left<MODE>((I)i, n, N));
        }
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

template <class T, int N, int MODE, class A> TN_DEVICE void store_vector(T *p, const A (&y)[N], int n) {
    constexpr int W = (int)sizeof(T) * N / 4;
    if ((MODE > 0 || (W >= 4 && is_aligned(p))) && N > 1 && n == N) {
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

/* The first n of a vector, beside those of the lanes that have the row's vectors before and behind it, wherever they
 * begin: a lane writes the 16 aligned bytes that end in its vector, with what the lane before has of them. Where there
 * is no such lane, elements are written one by one. All lanes of a warp take part. */
template <u32 ACROSS, class T, int N> TN_DEVICE void store_pieces(T *p, const vec<T, N> &v, int n) {
    union pieces {
        vec<T, N> a;
        words w;
        TN_MEMBER pieces(const vec<T, N> &of) : a(of) {}
    } own(v);
    words before;
    const u32 lane = threadIdx.x % 32, x = threadIdx.x % ACROSS, lead = shift_of<N>(p);
    const int head = N - (int)lead;
#pragma unroll
    for (int k = 0; k < 4; k++) before.w[k] = __shfl_sync(0xffffffffu, own.w.w[k], (lane - 1) % 32);
    const u32 whole = n >= head && (lead == 0 || (lane > 0 && x > 0));
    const u32 next = __shfl_sync(0xffffffffu, whole, (lane + 1) % 32) && lane < 31 && x + 1 < ACROSS;
    if (whole) store_words(p - lead, lead ? shift_words(before, own.w, (u32)head * sizeof(T)) : own.w);
    if (n <= (whole ? head : 0) || (whole && next)) return;
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (j < n && !(j < head ? whole : next)) p[j] = v.v[j];
    }
}

/* Of a row that ACROSS threads have, as load_row. */
template <u32 ACROSS, class T, int N, int MODE, class A> TN_DEVICE void store_row(T *p, const A (&y)[N], int n) {
    if constexpr (MODE == 0 && N > 1 && sizeof(T) * N == 16) {
        store_pieces<ACROSS>(p, narrow_vector<T, N>(y), n);
    } else {
        store_vector<T, N, MODE>(p, y, n);
    }
}

/* MODE 3 and 4: those that `there` has a bit for. ALIKE: as above. */
template <class T, int N, bool ALIKE, class A> TN_DEVICE void store_shifted(T *p, const A (&y)[N], int there) {
    if (ALIKE && there == (1 << N) - 1) return store_vector<T, N, 2>(p, y, N);
    const vec<T, N> r = narrow_vector<T, N>(y);
#pragma unroll
    for (int j = 0; j < N; j++) {
        if (there >> j & 1) p[j] = r.v[j];
    }
}

/* Is element j one of the n that are there? */
template <int MODE> TN_DEVICE bool is_in(int j, int n) { return MODE == 2 || (MODE > 2 ? n >> j & 1 : j < n); }
/* As n of load_places: of N elements from `from` > -N on, which are below `past`. */
template <int MODE, int N> TN_DEVICE int places_left(i64 from, i64 past) {
    if (MODE <= 2) return count_left<MODE>(from, past, N);
    if (from < 0) return some_left<N>((int)from, past < N ? (int)past : N);
    return some_left<N>(0, count_left<0>(from, past, N));
}
} // namespace tn
