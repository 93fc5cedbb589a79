#include "walk.h"

tni_divisor tni_divisor_of(uint64_t by) {
    tni_divisor d = {.by = (unsigned)by};
    while ((uint64_t)1 << d.shift < by) d.shift++;
    d.magic = (unsigned)(((((uint64_t)1 << d.shift) - by) << 32) / by + 1);
    return d;
}

void tni_walk_push(tni_walk *walk, int64_t size, int64_t stride_0, int64_t stride_1) {
    const int d = walk->n_dims++;
    walk->count *= size;
    walk->is_short = walk->count < INT32_MAX;
    walk->shape[d] = size;
    walk->strides[d][0] = stride_0;
    walk->strides[d][1] = stride_1;
    if (size > 0 && size < INT32_MAX) walk->divisors[d] = tni_divisor_of((uint64_t)size);
}

void tni_walk_of(tni_walk *walk, const tni_rows *rows) {
    walk->count = 1;
    walk->n_dims = 0;
    walk->is_short = 1;
    for (int d = rows->n_dims - 1; d >= 0; d--) {
        tni_walk_push(walk, rows->shape[d], rows->strides[d][0], rows->strides[d][1]);
    }
}
