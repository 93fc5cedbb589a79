/* Arithmetic with counts and sizes. */
#ifndef TNI_ARITH_H
#define TNI_ARITH_H

#include <stdint.h>

static inline int64_t min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* a / b, rounded up */
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* The next multiple of `to` that is not below a. */
static inline int64_t round_up(int64_t a, int64_t to) {
    return ceil_div(a, to) * to;
}

#endif
