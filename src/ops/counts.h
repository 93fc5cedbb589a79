/* Arithmetic with counts that kernels for the CPU and what launches those for the GPU share. */
#ifndef TNI_COUNTS_H
#define TNI_COUNTS_H

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* a / b, rounded up */
static inline int64_t pieces(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

#endif
