/* How tensors lie in memory: strides, and copies between layouts. */
#ifndef TNI_LAYOUT_H
#define TNI_LAYOUT_H

#include <tenon/op.h>

void tni_dense_strides(int32_t ndim, const int64_t *shape, int64_t *strides);
bool tni_is_dense(int32_t ndim, const int64_t *shape, const int64_t *strides);
/* Every element at its own place and no gaps: dense, in some order of the dimensions. */
bool tni_is_permuted_dense(int32_t ndim, const int64_t *shape, const int64_t *strides);
/* Copies elements between views of the same shape and type, any strides, in the CPU's memory. */
tn_status tni_strided_copy(const tn_call *call, const tn_view *to, const tn_view *from);

/* The next integer towards 0 that 64 bits hold, 0 of NaN: smaller types keep its lower bits. Without branches, so that
 * loops of it become vectors. */
static inline int64_t tni_whole(double a) {
    const int64_t near = (int64_t)(a >= -0x1p63 && a < 0x1p63 ? a : 0);
    return a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : near;
}

/* The same for 64 bits without a sign: of negative numbers, the lower bits. */
static inline uint64_t tni_whole_unsigned(double a) {
    return a >= 0x1p64 ? UINT64_MAX : a >= 0x1p63 ? (uint64_t)a : (uint64_t)tni_whole(a);
}

#endif
