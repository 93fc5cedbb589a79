/* one_hot: threads have 16 bytes each, which may be of two rows or more. */
#include "ops/lookup/lookup.cuh"

template <class U> struct alignas(16) hot_piece { U v[16 / sizeof(U)]; };

TN_DEVICE i64 hot_of(const tni_one_hot &p, i64 row) {
    return p.wide ? ((const i64 *)p.index)[row] : (i64)((const int *)p.index)[row];
}

template <class U> TN_DEVICE void one_hot(const tni_one_hot &p) {
    constexpr int V = 16 / sizeof(U);
    const U one = (U)(p.one[0] | (u64)p.one[1] << 32);
    const i64 i = (i64)blockIdx.x * TNI_TAKE_THREADS + threadIdx.x, first = i * V;
    if (i >= p.pieces) return;
    i64 row = divide(first, p.classes), c = first - row * p.classes.by, hot = hot_of(p, row);
    hot_piece<U> a;
#pragma unroll
    for (int e = 0; e < V; e++) {
        a.v[e] = c == hot ? one : (U)0;
        if (++c == p.classes.by && first + e + 1 < p.count) {
            c = 0;
            hot = hot_of(p, ++row);
        }
    }
    if (first + V <= p.count && is_aligned((const U *)p.y)) {
        ((hot_piece<U> *)p.y)[i] = a;
    } else {
        for (int e = 0; e < V && first + e < p.count; e++) ((U *)p.y)[first + e] = a.v[e];
    }
}

#define ONE_HOT(name, U) TN_KERNEL(one_hot_##name, TNI_TAKE_THREADS, (TN_PARAMS(tni_one_hot)), one_hot<U>(p))
ONE_HOT(1, u8)
ONE_HOT(2, u16)
ONE_HOT(4, u32)
ONE_HOT(8, u64)
