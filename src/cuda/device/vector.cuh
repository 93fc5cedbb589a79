/* A vector parameter whose type is only known when the kernel runs, such as gamma of a normalisation. Written in what C
 * and CUDA C++ share; the host fills it in (vector.h). */
#pragma once

enum { TNI_VECTOR_F16, TNI_VECTOR_BF16, TNI_VECTOR_F32, TNI_VECTOR_F64 };

typedef struct tni_vector {
    void *data; /* NULL: absent */
    long long step;
    int type;
} tni_vector;

#ifdef __CUDACC__
#include "device.cuh"

namespace tn {

template <class W, int V> struct alignas(sizeof(W) * V > 16 ? 16 : sizeof(W) * V) several { W v[V]; };

template <class W, int V, class A> TN_DEVICE void read_several(const tni_vector &v, i64 i, int n, A (&to)[V]) {
    const W *from = (const W *)v.data;
    if (V > 1 && v.step == 1 && n >= V && is_aligned(from)) {
        const vec<W, V> all = *(const vec<W, V> *)(from + i);
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = (A)widen(all.v[j]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++)
            if (j < n) to[j] = (A)widen(from[(i + j) * v.step]);
    }
}

/* The first n of V numbers from i on, a multiple of V; `absent` for those behind them and where there is no vector. */
template <int V, class A> TN_DEVICE void read_vector(const tni_vector &v, i64 i, int n, A absent, A (&to)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) to[j] = absent;
    if (!v.data) return;
    switch (v.type) {
    case TNI_VECTOR_F32: read_several<float>(v, i, n, to); break;
    case TNI_VECTOR_BF16: read_several<bf16>(v, i, n, to); break;
    case TNI_VECTOR_F16: read_several<f16>(v, i, n, to); break;
    default: read_several<double>(v, i, n, to);
    }
}

template <class A> TN_DEVICE A read_number(const tni_vector &v, i64 i, A absent) {
    A to[1];
    read_vector(v, i, 1, absent, to);
    return to[0];
}

/* Nothing where there is no vector. */
template <class A> TN_DEVICE void write_number(const tni_vector &v, i64 i, A a) {
    const i64 at = i * v.step;
    if (!v.data) return;
    switch (v.type) {
    case TNI_VECTOR_F32: ((float *)v.data)[at] = (float)a; break;
    case TNI_VECTOR_BF16: narrow((float)a, ((bf16 *)v.data)[at]); break;
    case TNI_VECTOR_F16: narrow((float)a, ((f16 *)v.data)[at]); break;
    default: ((double *)v.data)[at] = (double)a;
    }
}

} // namespace tn

#endif
