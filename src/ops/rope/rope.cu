/* rope: x, y: (rows, 2 * pairs), cos, sin: (rows, pairs), most often the same for many rows. A thread has as many pairs
 * as 16 bytes have elements: it reads 16 bytes from each half of a row, and writes them. cos and sin come out of the
 * nearest cache for all but the first. */
#include "rope.cuh"

/* V elements of a row: aligned to 16 bytes, or one. */
template <class T, int V> TN_DEVICE void load_part(const T *p, acc<T> *a) {
    if constexpr (V == 1) {
        a[0] = widen(*p);
    } else {
        const words w = load_words_if(p, true);
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = widen_word<T>(w, j);
    }
}

template <class T, int V> TN_DEVICE void store_part(T *p, const acc<T> *a) {
    if constexpr (V == 1) {
        narrow(a[0], *p);
    } else {
        store_pack(p, narrow_pack<T>(a));
    }
}

/* V numbers of type C, which lie anywhere. */
template <class C, int V, class A> TN_DEVICE void load_as(const void *from, i64 at, A (&a)[V]) {
    const C *p = (const C *)from + at;
    if (((u64)p & (alignof(vec<C, V>) - 1)) == 0) {
        const vec<C, V> r = *(const vec<C, V> *)p;
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = (A)widen(r.v[j]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = (A)widen(p[j]);
    }
}

template <int V, class A> TN_DEVICE void load_angles(int type, const void *from, i64 at, A (&a)[V]) {
    if (type == ROPE_F32)
        load_as<f32, V>(from, at, a);
    else if (type == ROPE_BF16)
        load_as<bf16, V>(from, at, a);
    else if (type == ROPE_F16)
        load_as<f16, V>(from, at, a);
    else
        load_as<f64, V>(from, at, a);
}

/* The angles of V pairs from pair `first` on; where pieces are neighbours, of V / 2 pairs in either half of the row. */
template <int V, bool HALVED, class A>
TN_DEVICE void load_both_angles(const tni_rope &p, const void *from, i64 at, i64 first, A (&a)[V]) {
    if constexpr (HALVED) {
        A near[V / 2], far[V / 2];
        load_angles<V / 2>(p.angles, from, at + first / 2, near);
        load_angles<V / 2>(p.angles, from, at + (p.pairs + first) / 2, far);
#pragma unroll
        for (int j = 0; j < V; j++) a[j] = j < V / 2 ? near[j % (V / 2)] : far[j % (V / 2)];
    } else {
        load_angles<V>(p.angles, from, at + first, a);
    }
}

/* Piece i: V pairs of a row, as 16 bytes of its first half and 16 of its second. in[0 … V - 1] are of the first half.
 * Where pairs are neighbours, each 16 bytes have V / 2 of them: threads read and write side by side all the same. */
template <class T, int V, bool NEIGHBOURS> TN_DEVICE void turn_piece(const tni_rope &p, i64 i) {
    constexpr bool HALVED = NEIGHBOURS && V > 1;
    const bool few = p.rows.count * p.pieces >> 31 == 0;
    const i64 row = few ? (i64)((u32)i / (u32)p.pieces) : i / p.pieces, first = (i - row * p.pieces) * V;
    const i64 near = NEIGHBOURS && V == 1 ? 2 * first : first, far = NEIGHBOURS && V == 1 ? near + 1 : p.pairs + first;
    acc<T> c[V], s[V], in[2 * V], out[2 * V];
    i64 at[4];
    find_row(p.rows, row, at);
    load_part<T, V>((const T *)p.x + at[0] + near, in);
    load_part<T, V>((const T *)p.x + at[0] + far, in + V);
    load_both_angles<V, HALVED>(p, p.cos, at[2], first, c);
    load_both_angles<V, HALVED>(p, p.sin, at[3], first, s);
#pragma unroll
    for (int j = 0; j < V; j++) {
        const int m = NEIGHBOURS ? 2 * j : j, n = NEIGHBOURS ? 2 * j + 1 : V + j;
        const acc<T> sine = p.back ? -s[j] : s[j];
        out[m] = in[m] * c[j] - in[n] * sine;
        out[n] = in[n] * c[j] + in[m] * sine;
    }
    store_part<T, V>((T *)p.y + at[1] + near, out);
    store_part<T, V>((T *)p.y + at[1] + far, out + V);
}

template <class T, int V, bool NEIGHBOURS> TN_DEVICE void turn(const tni_rope &p) {
    const i64 count = p.rows.count * p.pieces, stride = (i64)gridDim.x * ROPE_THREADS;
    for (i64 i = (i64)blockIdx.x * ROPE_THREADS + threadIdx.x; i < count; i += stride)
        turn_piece<T, V, NEIGHBOURS>(p, i);
}

#define ROPE(T, name)                                                                                   \
    TN_ROW_KERNEL(rope_halves_p_##name, ROPE_THREADS, 4, tni_rope, (turn<T, pack<T>::VL, false>(p)))    \
    TN_ROW_KERNEL(rope_halves_s_##name, ROPE_THREADS, 4, tni_rope, (turn<T, 1, false>(p)))              \
    TN_ROW_KERNEL(rope_neighbours_p_##name, ROPE_THREADS, 4, tni_rope, (turn<T, pack<T>::VL, true>(p))) \
    TN_ROW_KERNEL(rope_neighbours_s_##name, ROPE_THREADS, 4, tni_rope, (turn<T, 1, true>(p)))
TN_FOR_TYPES(ROPE)
