/* What the row kernels of softmax and cross_entropy are made of: passes over n elements that follow each other in
 * memory. There is one set of functions for each type, compiled once (spans_cpu.c); the logic of a row is written above
 * them, once for all types. All may run in place. */
#ifndef TNI_SPANS_H
#define TNI_SPANS_H

#include "core/host/arith.h"
#include "cpu/short_rows.h"
#include "cpu/vec/vec.h"

enum {
    SPAN = 32768 / (int)sizeof(real), /* elements of a buffer on the stack */
};

/* Evenly spaced rows of n elements each. */
typedef struct row_run {
    const void *x;
    void *y;
    int64_t n, count, apart_x, apart_y;
} row_run;

typedef struct spans {
    int64_t size; /* bytes of an element */
    bool native;  /* elements are `real` */
    /* The largest scale * x, -inf where there is none. May miss a NaN; the sum will not. */
    real (*max)(const void *x, int64_t n, real scale);
    /* The same, and scores = scale * x, -inf where there is a mask and it is false. */
    real (*scores)(const void *x, const uint8_t *mask, real *scores, int64_t n, real scale);
    /* The sum of exp(scale * x - shift) * V_EXP_SCALE. */
    real (*sum)(const void *x, int64_t n, real scale, real shift);
    /* y = e * by */
    void (*scale)(const real *e, void *y, int64_t n, real by);
    /* y = exp(scale * x - shift) * V_EXP_SCALE * by: what `sum` added up */
    void (*exp)(const void *x, void *y, int64_t n, real scale, real shift, real by);
    /* The whole softmax of rows with n <= SHORT. */
    void (*short_rows)(const row_run *run, real scale);
    /* Of such rows, apart_x apart, what `max` and `sum` give: the largest, and the sum of exp(x - largest); and its
     * terms, row by row behind each other in e; NULL: not wanted. shifts[r] is shift_of(the largest). */
    void (*short_sums)(const row_run *run, real *shifts, real *sums, real *e);
    /* Elements `step` apart from and to a buffer. */
    void (*gather)(const void *x, int64_t step, real *to, int64_t n);
    void (*scatter)(const real *from, void *y, int64_t step, int64_t n);
} spans;

const spans *TNI_CPU(spans_of)(tn_type type);

/* e = exp(scale * x - shift) * V_EXP_SCALE; returns the sum. */
real TNI_CPU(span_exp)(const real *x, real *e, int64_t n, real scale, real shift);

/* Where element i is. */
static inline void *span_at(const spans *s, const void *p, int64_t i) {
    return (char *)(uintptr_t)p + i * s->size;
}

/* n elements, `step` apart, become 0. */
static inline void span_clear(const spans *s, void *y, int64_t step, int64_t n) {
    if (step == 1) memset(y, 0, (size_t)(n * s->size));
    for (int64_t i = 0; i < n && step != 1; i++) memset(span_at(s, y, i * step), 0, (size_t)s->size);
}

/* What is subtracted from scores whose largest is `most`. Infinite: every exponent must become NaN. */
static inline real shift_of(real most) {
    return most - most == 0 ? most : (real)NAN;
}

/* Is that the sum of a row? The largest element adds 1 to it, but for a row that has a NaN or +inf, or nothing but
 * -inf, or nothing. */
static inline bool is_proper(real sum) {
    return sum >= V_EXP_SCALE / 2;
}

#endif
