/* Copies by boxes: which part of a copy a block does at a time. */
#ifndef TNI_CUDA_BOXES_H
#define TNI_CUDA_BOXES_H

#include "boxes.cuh"
#include "cpu/rows.h"

/* `rows` has all dimensions, in memory order of what is written, which is view 0; view 1 is what is read. Sizes and
 * strides in elements of `size` bytes. *shared: bytes that a block needs. False: other kernels do this copy better. */
bool tni_boxes_of(tni_boxes *boxes, const tni_rows *rows, void *to, const void *from, int size, int sms, int *shared);

#endif
