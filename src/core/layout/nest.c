#include "nest.h"

#include <stdbool.h>
#include <stdlib.h>

static int64_t *stride_of(const tni_nest *nest, int32_t view, int32_t loop) {
    return nest->strides[view] + loop * nest->apart;
}

static bool belongs_outside(const tni_nest *nest, int32_t n_keys, int32_t loop, int32_t of) {
    for (int32_t v = 0; v < n_keys; v++) {
        const int64_t a = llabs(*stride_of(nest, v, loop)), b = llabs(*stride_of(nest, v, of));
        if (a != b && a != 0 && b != 0) return a > b;
    }
    return false;
}

static void swap(int64_t *a, int64_t *b) {
    const int64_t kept = *a;
    *a = *b;
    *b = kept;
}

void tni_nest_sort(const tni_nest *nest, int32_t n_keys) {
    for (int32_t i = 1; i < nest->n_loops; i++) {
        for (int32_t d = i; d > 0 && belongs_outside(nest, n_keys, d, d - 1); d--) {
            swap(&nest->sizes[d], &nest->sizes[d - 1]);
            for (int32_t v = 0; v < nest->n_views; v++) swap(stride_of(nest, v, d), stride_of(nest, v, d - 1));
        }
    }
}

static bool continues(const tni_nest *nest, int32_t outer, int32_t inner) {
    for (int32_t v = 0; v < nest->n_views; v++) {
        if (*stride_of(nest, v, outer) != *stride_of(nest, v, inner) * nest->sizes[inner]) return false;
    }
    return true;
}

void tni_nest_merge(tni_nest *nest) {
    int32_t last = 0; /* of the loops that are left */
    for (int32_t d = 1; d < nest->n_loops; d++) {
        if (nest->sizes[d] == 1) continue; /* it goes nowhere, whatever its strides are */
        const bool merges = nest->sizes[last] == 1 || continues(nest, last, d);
        nest->sizes[merges ? last : last + 1] = merges ? nest->sizes[last] * nest->sizes[d] : nest->sizes[d];
        if (!merges) last++;
        for (int32_t v = 0; v < nest->n_views; v++) *stride_of(nest, v, last) = *stride_of(nest, v, d);
    }
    if (nest->n_loops > 0) nest->n_loops = last + 1;
}
