/* The gradient of cross_entropy: dx = gx * dloss. dloss is read on the device: where it is 1 and dx is gx, as in
 * loss.backward(), nothing else is read or written. As many blocks as the GPU holds walk over all pieces. */
#include "cross_entropy.cuh"

enum { GRAD_TOGETHER = 4 }; /* pieces of a thread that are under way at once */

/* Piece i: where it is in each tensor, in elements. */
template <int V>
TN_DEVICE void find_piece(const tni_cross_entropy_grad &p, i64 i, i64 (&at)[CROSS_ENTROPY_GRAD_VIEWS]) {
    const bool few = p.rows.count * p.pieces >> 31 == 0;
    const i64 row = p.rows.count == 1 ? 0 : few ? (i64)((u32)i / (u32)p.pieces) : i / p.pieces;
    const i64 first = (i - row * p.pieces) * V;
    find_row(p.rows, row, at);
    at[CROSS_ENTROPY_GRAD_GX] += first;
    at[CROSS_ENTROPY_GRAD_DX] += first;
}

template <class T> TN_DEVICE words scaled(const words &a, acc<T> by) {
    acc<T> v[pack<T>::VL];
#pragma unroll
    for (int j = 0; j < pack<T>::VL; j++) v[j] = widen_word<T>(a, j) * by;
    return words_of(narrow_pack<T>(v));
}

/* One dloss for all: whether there is nothing to do is known at once. */
template <class T> TN_DEVICE bool is_done(const tni_cross_entropy_grad &p) {
    return p.gx == p.dx && p.one && *(const acc<T> *)p.dloss == 1;
}

/* gx, dx: (rows, n), all rows aligned, in pieces of 16 bytes. */
template <class T> TN_DEVICE void grad_pieces(const tni_cross_entropy_grad &p) {
    const i64 count = p.rows.count * p.pieces, stride = (i64)gridDim.x * blockDim.x;
    if (is_done<T>(p)) return;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += GRAD_TOGETHER * stride) {
        words a[GRAD_TOGETHER];
        T *to[GRAD_TOGETHER];
        acc<T> by[GRAD_TOGETHER];
#pragma unroll
        for (int k = 0; k < GRAD_TOGETHER; k++) {
            const bool there = i + k * stride < count;
            i64 at[CROSS_ENTROPY_GRAD_VIEWS];
            find_piece<pack<T>::VL>(p, there ? i + k * stride : 0, at);
            a[k] = load_words_if((const T *)p.gx + at[CROSS_ENTROPY_GRAD_GX], there);
            by[k] = ((const acc<T> *)p.dloss)[at[CROSS_ENTROPY_GRAD_DLOSS]];
            to[k] = there ? (T *)p.dx + at[CROSS_ENTROPY_GRAD_DX] : nullptr;
        }
#pragma unroll
        for (int k = 0; k < GRAD_TOGETHER; k++) {
            if (to[k]) store_words(to[k], scaled<T>(a[k], by[k]));
        }
    }
}

/* The same element by element. */
template <class T> TN_DEVICE void grad_elements(const tni_cross_entropy_grad &p) {
    const i64 count = p.rows.count * p.pieces, stride = (i64)gridDim.x * blockDim.x;
    if (is_done<T>(p)) return;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += GRAD_TOGETHER * stride) {
#pragma unroll
        for (int k = 0; k < GRAD_TOGETHER; k++) {
            if (i + k * stride >= count) continue;
            i64 at[CROSS_ENTROPY_GRAD_VIEWS];
            find_piece<1>(p, i + k * stride, at);
            const acc<T> by = ((const acc<T> *)p.dloss)[at[CROSS_ENTROPY_GRAD_DLOSS]];
            narrow(widen(((const T *)p.gx)[at[CROSS_ENTROPY_GRAD_GX]]) * by, ((T *)p.dx)[at[CROSS_ENTROPY_GRAD_DX]]);
        }
    }
}

#define GRAD(T, name)                                                                             \
    TN_ROW_KERNEL(cross_entropy_grad_p_##name, 256, 1, tni_cross_entropy_grad, grad_pieces<T>(p)) \
    TN_ROW_KERNEL(cross_entropy_grad_s_##name, 256, 1, tni_cross_entropy_grad, grad_elements<T>(p))
TN_FOR_TYPES(GRAD)
