/* What the normalisations share. */
#ifndef TNI_NORM_H
#define TNI_NORM_H

#include "core/host/arith.h"

/* Rows that are summed up together: enough parts to share out, few enough that adding them up is little work, and none
 * so long that the sums lose accuracy. By the shape alone, so that the number of threads does not show in the
 * result. */
static inline int64_t rows_summed_together(int64_t rows) {
    return min(max(ceil_div(rows, 16), 8), 256);
}

#endif
