/* The workspace of linear_int8 and linear_fp8 on the CPU: x, widened, and for each thread some rows of w. */
#ifndef TNI_SCALED_LINEAR_CPU_H
#define TNI_SCALED_LINEAR_CPU_H

#include <stdatomic.h>

#include "core/host/arith.h"
#include "scaled_linear.h"

enum {
    TNI_INT8_COLUMNS = 32, /* of a packed panel, at most */
    TNI_FP8_COLUMNS = 2,
    TNI_SCALED_MULTIPLE = 32,   /* of k, to which rows are filled up: as many numbers as the widest vector has */
    TNI_SCALED_GRAIN = 1 << 16, /* multiplications that are worth another thread */
};

/* What prepare makes; those who run it may have another number of threads. */
typedef struct tni_scaled_room {
    int64_t threads, wide_bytes, bytes;
} tni_scaled_room;

#endif
