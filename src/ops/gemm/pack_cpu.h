/* Parts of matrices, widened and laid out as the tiles of tile_cpu.h read them. */
#ifndef TNI_PACK_CPU_H
#define TNI_PACK_CPU_H

#include "core/host/arith.h"
#include "cpu/vec/transpose.h"
#include "gemm_plan.h"
#include "ops/runs.h"
#include "tile_cpu.h"

/* to[v * apart + u] = from[u * step + v] for u < count and v < length, where count <= VL: rows that lie along v become
 * columns. Writes whole vectors along u, 0 behind the last. */
TNI_INLINE void pack_strip(const tn_type t, const void *from, int64_t step, int64_t count, int64_t length, real *to,
                           int64_t apart) {
    for (int64_t v = 0; v < length; v += VL) {
        const int64_t n = length - v;
        vreal square[VL];
        _Pragma("GCC unroll 16") for (int i = 0; i < VL; i++) {
            square[i] = (vreal){0};
            if (i < count) square[i] = v_load_some(t, r_at(t, from, i * step), v, n, 0);
        }
        v_transpose(square);
        if (n >= VL) {
            _Pragma("GCC unroll 16") for (int i = 0; i < VL; i++) v_store(V_NATIVE, to, (v + i) * apart, square[i]);
        } else {
            for (int i = 0; i < n; i++) v_store(V_NATIVE, to, (v + i) * apart, square[i]);
        }
    }
}

/* The same for any count. */
TNI_INLINE void pack_transposed(const tn_type t, const void *from, int64_t step, int64_t count, int64_t length,
                                real *to, int64_t apart) {
    int64_t u = 0;
    for (; u + VL <= count; u += VL) pack_strip(t, r_at(t, from, u * step), step, VL, length, to + u, apart);
    if (u < count) pack_strip(t, r_at(t, from, u * step), step, count - u, length, to + u, apart);
}

/* to[u * apart + v] = from[u * step + v * along] for u < count and v < length, one by one. */
TNI_INLINE void pack_any(const tn_type t, const void *from, int64_t step, int64_t along, int64_t count, int64_t length,
                         real *to, int64_t apart) {
    for (int64_t u = 0; u < count; u++)
        for (int64_t v = 0; v < length; v++) to[u * apart + v] = r_load(t, from, u * step + v * along);
}

/* rows x k of a, each row for itself, A_ROW apart. */
TNI_INLINE void pack_a_of(const tn_type t, const tni_matrix *a, const void *from, int64_t rows, int64_t k, real *to) {
    if (a->column == 1) {
        for (int64_t i = 0; i < rows; i++) widen_run(t, r_at(t, from, i * a->row), to + i * A_ROW, k);
    } else if (a->row == 1) {
        pack_transposed(t, from, a->column, k, rows, to, A_ROW);
    } else {
        pack_any(t, from, a->row, a->column, rows, k, to, A_ROW);
    }
}

/* k x columns of b, at most TILE_COLUMNS, as k rows of `width`, which is as many whole vectors. */
TNI_INLINE void pack_b_of(const tn_type t, const tni_matrix *b, const void *from, int64_t k, int64_t columns,
                          int64_t width, real *to) {
    if (b->column == 1) {
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < columns; j += VL)
                v_store(V_NATIVE, to, l * width + j, v_load_some(t, r_at(t, from, l * b->row), j, columns - j, 0));
    } else if (b->row == 1) {
        pack_transposed(t, from, b->column, columns, k, to, width);
    } else {
        memset(to, 0, (size_t)(k * width) * sizeof *to);
        pack_any(t, from, b->row, b->column, k, columns, to, width);
    }
}

#endif
