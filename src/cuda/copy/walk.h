/* Loops for kernels, made from the rows that CPU kernels walk too. */
#ifndef TNI_CUDA_WALK_H
#define TNI_CUDA_WALK_H

#include "cpu/rows.h"
#include "walk.cuh"

/* For 0 < by < 2^31. */
tni_divisor tni_divisor_of(uint64_t by);

/* All dimensions of `rows`, of views 0 and 1. */
void tni_walk_of(tni_walk *walk, const tni_rows *rows);

/* Another dimension, outside those there are. */
void tni_walk_push(tni_walk *walk, int64_t size, int64_t stride_0, int64_t stride_1);

#endif
