/* Mean and variance without cancellation, for the vectorised kernels of the normalisations.
 *
 * Some thousand numbers at a time are summed up as d = x - shift and d * d in registers, where the shift is the mean of
 * the first few of them; such parts are merged in double. So the numbers are read once, and a mean far from 0, or one
 * that drifts, costs no accuracy. */
#ifndef TNI_MOMENTS_H
#define TNI_MOMENTS_H

#include "ops/runs.h"

enum {
    MOMENTS_PART = 1024, /* numbers summed in `real` before they are merged in double */
    MOMENTS_FIRST = 8,   /* vectors that give the shift */
};

/* Of n numbers: mean and the sum of squared distances from it. */
typedef struct moments {
    double n, mean, m2;
} moments;

static inline void moments_merge(moments *all, moments part) {
    if (part.n == 0) return;
    const double n = all->n + part.n, d = part.mean - all->mean, share = part.n / n;
    all->mean += d * share;
    all->m2 += part.m2 + d * d * all->n * share;
    all->n = n;
}

/* From the sums of d = x - shift and of d * d over n numbers. */
static inline moments moments_of_sums(double n, double shift, double sum, double squares) {
    const double d = sum / n, m2 = squares - sum * d;
    return (moments){.n = n, .mean = shift + d, .m2 = m2 < 0 ? 0 : m2};
}

/* The sums of one part. */
typedef struct shifted {
    real shift;
    vreal sum[4], squares[4];
} shifted;

TNI_INLINE void shifted_one(shifted *s, int k, vreal d) {
    s->sum[k] += d;
    s->squares[k] = v_fma(d, d, s->squares[k]);
}

/* n > 0 numbers are at p. */
TNI_INLINE shifted shifted_begin(const tn_type t, const void *p, int64_t n) {
    shifted s = {.shift = r_load(t, p, 0)};
    const int64_t vectors = min(n / VL, MOMENTS_FIRST);
    if (vectors == 0) return s;
    vreal first = v_load(t, p, 0);
    for (int64_t k = 1; k < vectors; k++) first += v_load(t, p, k * VL);
    /* Few bits, so that differences from 16-bit numbers are exact: rounded, they would all be off to the same side. */
    s.shift = (real)bf16_widen(bf16_round((float)(v_sum(first) / (real)(vectors * VL))));
    return s;
}

TNI_INLINE void shifted_add(const tn_type t, shifted *s, const void *p, int64_t n) {
    const vreal shift = v_set(s->shift);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) shifted_one(s, k, v_load(t, p, i + k * VL) - shift);
    }
    for (; i + VL <= n; i += VL) shifted_one(s, 0, v_load(t, p, i) - shift);
    if (i < n) shifted_one(s, 1, load_tail(t, p, i, n - i, s->shift) - shift);
}

TNI_INLINE moments shifted_end(const shifted *s, int64_t n) {
    const double sum = v_sum((s->sum[0] + s->sum[1]) + (s->sum[2] + s->sum[3]));
    const double squares = v_sum((s->squares[0] + s->squares[1]) + (s->squares[2] + s->squares[3]));
    return moments_of_sums((double)n, s->shift, sum, squares);
}

/* Of n numbers that lie side by side. */
TNI_INLINE moments moments_of_run(const tn_type t, const void *p, int64_t n) {
    moments all = {0};
    for (int64_t i = 0; i < n; i += MOMENTS_PART) {
        const int64_t part = min(n - i, MOMENTS_PART);
        const void *from = r_at(t, p, i);
        shifted s = shifted_begin(t, from, part);
        shifted_add(t, &s, from, part);
        moments_merge(&all, shifted_end(&s, part));
    }
    return all;
}

#endif
