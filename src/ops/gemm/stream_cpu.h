/* Products of few rows of a with a b whose columns lie together, as the weights of a linear layer do: what is read of b
 * is used once, so it goes from memory through registers, and nothing is packed. */
#ifndef TNI_STREAM_CPU_H
#define TNI_STREAM_CPU_H

#include "core/host/arith.h"
#include "cpu/vec/transpose.h"
#include "ops/runs.h"
#include "tile_cpu.h"

enum {
    STREAM_ROWS = 4,
    STREAM_AHEAD = 16 * VL, /* elements of a column that are asked for early */
};

/* A square of b: VL columns, `step` apart, and VL of k from l on; lane j of square[i] is element (l + i, j). */
TNI_INLINE void load_square(const tn_type t, const void *b, int64_t step, int64_t l, int64_t k, int64_t columns,
                            vreal square[VL]) {
    _Pragma("GCC unroll 16") for (int j = 0; j < VL; j++) {
        square[j] = (vreal){0};
        __builtin_prefetch(r_at(t, b, j * step + l + STREAM_AHEAD));
        if (j < columns) square[j] = v_load_some(t, r_at(t, b, j * step), l, k - l, 0);
    }
    v_transpose(square);
}

/* As tile_of, with one vector of columns; the order of sums is the same. */
TNI_INLINE void stream_of(const tn_type t, const int rows, int64_t k, const real *a, const void *b, int64_t step,
                          int64_t columns, real *c, int64_t c_row, bool add) {
    vreal sums[STREAM_ROWS], square[VL];
    for (int i = 0; i < rows; i++) sums[i] = (vreal){0};
    int64_t l = 0;
    for (; l + VL <= k; l += VL) {
        load_square(t, b, step, l, k, columns, square);
        _Pragma("GCC unroll 16") for (int j = 0; j < VL; j++) {
            _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++)
                sums[i] = v_fma(v_set(a[i * A_ROW + l + j]), square[j], sums[i]);
        }
    }
    if (l < k) load_square(t, b, step, l, k, columns, square);
    for (int64_t j = 0; j < k - l; j++) {
        for (int i = 0; i < rows; i++) sums[i] = v_fma(v_set(a[i * A_ROW + l + j]), square[j], sums[i]);
    }
    for (int i = 0; i < rows; i++) {
        const vreal before = add ? v_load(V_NATIVE, c, i * c_row) : (vreal){0};
        v_store(V_NATIVE, c, i * c_row, add ? before + sums[i] : sums[i]);
    }
}

typedef void stream_function(tn_type t, int64_t k, const real *a, const void *b, int64_t step, int64_t columns, real *c,
                             int64_t c_row, bool add);

#endif
