/* The two layouts that the vectorised kernels of batch_norm take as they are, and how they divide their work. */
#ifndef TNI_BATCH_NORM_H
#define TNI_BATCH_NORM_H

#include <tenon/op.h>

/* Numbers in the workspace: SUMS for each channel of each part, PER_CHANNEL for each channel. */
enum { TNI_BATCH_NORM_SUMS = 3, TNI_BATCH_NORM_PER_CHANNEL = 5 };

/* x: (n, c, *s). Planes: for each n and channel, the values of s lie side by side, as in NCHW. */
static inline bool tni_batch_norm_planes(const tn_view *v) {
    int64_t step = 1;
    for (int d = v->ndim - 1; d >= 2; d--) {
        if (v->shape[d] != 1 && v->strides[d] != step) return false;
        step *= v->shape[d];
    }
    return true;
}

/* Rows: the channels lie side by side, and (n, s) are places one step apart: channels-last, or plain (n, c). The step; 0
 * where it is not so, or where places repeat each other. */
static inline int64_t tni_batch_norm_step(const tn_view *v) {
    int64_t step = 0, places = 1;
    if (v->shape[1] != 1 && v->strides[1] != 1) return 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (d == 1 || v->shape[d] == 1) continue;
        if (places == 1) step = v->strides[d];
        if (step == 0 || v->strides[d] != step * places) return 0;
        places *= v->shape[d];
    }
    return step == 0 ? v->shape[1] : step;
}

/* Sums over a channel are made in parts that depend on the shape alone, so that threads do not show in the result. */

/* Rows that are summed up together: enough parts to share out, none so long that the sums lose accuracy. */
static inline int64_t tni_batch_norm_block(int64_t places) {
    const int64_t sixteenth = (places + 15) / 16;
    return sixteenth < 8 ? 8 : sixteenth > 256 ? 256 : sixteenth;
}

/* Parts of n whose planes are summed up apart, where there are few channels. */
static inline int64_t tni_batch_norm_parts(int64_t n, int64_t c) {
    if (c >= 16 || n <= 1) return 1;
    return n < 16 ? n : 16;
}

/* Of the kernels in batch_norm_cuda.c. */
size_t tni_batch_norm_cuda_workspace(const tn_call *call);
size_t tni_batch_norm_grad_cuda_workspace(const tn_call *call);

#endif
