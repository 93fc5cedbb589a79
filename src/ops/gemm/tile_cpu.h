/* The innermost loop of a product: a tile of y stays in registers while k goes by. */
#ifndef TNI_TILE_CPU_H
#define TNI_TILE_CPU_H

#include "cpu/vec/vec.h"
#include "gemm_plan.h"

/* Of 32 registers 24 are sums, of 16 there are 12; the others hold a piece of b and a number of a. */
#if defined(TNI_ISA_avx512) || defined(TNI_ISA_neon)
enum { TILE_ROWS = 12 };
#define TILE_ROW_COUNTS(X, arg) \
    X(1, arg)                   \
    X(2, arg) X(3, arg) X(4, arg) X(5, arg) X(6, arg) X(7, arg) X(8, arg) X(9, arg) X(10, arg) X(11, arg) X(12, arg)
#else
enum { TILE_ROWS = 6 };
#define TILE_ROW_COUNTS(X, arg) X(1, arg) X(2, arg) X(3, arg) X(4, arg) X(5, arg) X(6, arg)
#endif

enum {
    TILE_COLUMNS = 2 * VL,
    A_ROW = GEMM_STEP + 16, /* between packed rows of a: not a power of two, which caches map to one place */
};

/* c (+)= a b, for a: (rows, k), its rows A_ROW apart, and b: (k, vectors * VL), b_row apart; c's rows are c_row apart.
 * Rows of a lie along k, as most of them come: packing them is a copy. */
TNI_INLINE void tile_of(const int rows, const int vectors, int64_t k, const real *a, const real *b, int64_t b_row,
                        real *c, int64_t c_row, bool add) {
    vreal sums[TILE_ROWS][2];
    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
        __builtin_prefetch(c + i * c_row, 1);
        if (vectors > 1) __builtin_prefetch(c + i * c_row + VL, 1);
    }
    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
        _Pragma("GCC unroll 2") for (int j = 0; j < vectors; j++) sums[i][j] = (vreal){0};
    }
    for (int64_t l = 0; l < k; l++) {
        vreal of_b[2];

        _Pragma("GCC unroll 2") for (int j = 0; j < vectors; j++) of_b[j] = v_load(V_NATIVE, b, l * b_row + j * VL);
        _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
            const vreal of_a = v_set(a[i * A_ROW + l]);
            _Pragma("GCC unroll 2") for (int j = 0; j < vectors; j++) sums[i][j] = v_fma(of_a, of_b[j], sums[i][j]);
        }
    }
    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++) {
        _Pragma("GCC unroll 2") for (int j = 0; j < vectors; j++) {
            const vreal before = add ? v_load(V_NATIVE, c + i * c_row, j * VL) : (vreal){0};
            v_store(V_NATIVE, c + i * c_row, j * VL, add ? before + sums[i][j] : sums[i][j]);
        }
    }
}

typedef void tile_function(int64_t k, const real *a, const real *b, int64_t b_row, real *c, int64_t c_row, bool add);

/* By vectors and rows, from 1 on; in gemm_cpu.c. */
extern tile_function *const TNI_CPU(gemm_tiles)[2][TILE_ROWS];

#endif
