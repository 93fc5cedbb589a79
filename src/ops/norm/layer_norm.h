/* What the kernels of layer_norm and the sizes of their workspace agree on. */
#ifndef TNI_LAYER_NORM_H
#define TNI_LAYER_NORM_H

#include <stdint.h>

/* Rows whose part of dgamma and dbeta is summed up together: enough blocks to share out, few enough that adding them up
 * is little work, and none so long that the sums lose accuracy. */
static inline int64_t tni_layer_norm_block(int64_t rows) {
    const int64_t sixteenth = (rows + 15) / 16;
    return sixteenth < 8 ? 8 : sixteenth > 256 ? 256 : sixteenth;
}

#endif
