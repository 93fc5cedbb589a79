/* Loops take four vectors at a time, which keeps two multiply-add units busy; the elements left over are one vector
 * that overlaps the one before (v_load_last), loaded first, so that a function may run in place. */
#include "spans.h"

/* Elements that are added one after the other. Then the sums of blocks are added: long rows stay accurate. */
enum { SUM_BLOCK = 1024 };

/* Where `keep`, the scores are written. */
TNI_INLINE real max_of(const tn_type t, const bool masked, const bool keep, const void *x, const uint8_t *mask,
                       real *scores, int64_t n, real scale) {
    const vreal none = v_set(-(real)INFINITY);
    vreal last = n % VL ? v_load_last(t, x, n, 0) * scale : none, most[4] = {none, none, none, none};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) {
            vreal score = v_load(t, x, i + k * VL) * scale;
            if (masked) score = v_select(v_mask(mask, i + k * VL), score, none);
            if (keep) v_store(V_NATIVE, scores, i + k * VL, score);
            most[k] = v_atleast(score, most[k]);
        }
    }
    for (; i + VL <= n; i += VL) {
        vreal score = v_load(t, x, i) * scale;
        if (masked) score = v_select(v_mask(mask, i), score, none);
        if (keep) v_store(V_NATIVE, scores, i, score);
        most[0] = v_atleast(score, most[0]);
    }
    if (i < n) {
        if (masked) last = v_select(v_mask_last(mask, n), last, none);
        if (keep) v_store_last(V_NATIVE, scores, n, last);
        most[1] = v_atleast(v_select(v_last_lanes(n), last, none), most[1]);
    }
    return v_hmax(v_atleast(v_atleast(most[0], most[1]), v_atleast(most[2], most[3])));
}

TNI_INLINE real scores_of(const tn_type t, const void *x, const uint8_t *mask, real *scores, int64_t n, real scale) {
    return mask ? max_of(t, true, true, x, mask, scores, n, scale) : max_of(t, false, true, x, NULL, scores, n, scale);
}

TNI_INLINE vreal exp_at(const tn_type t, const void *x, int64_t i, vreal scale, vreal shift) {
    return v_exp_scaled(v_fma(v_load(t, x, i), scale, -shift));
}

/* A block of the sum; where `store`, its terms. */
TNI_INLINE real sum_block(const tn_type t, const bool store, const void *x, real *e, int64_t n, vreal scale,
                          vreal shift) {
    vreal last = n % VL ? v_load_last(t, x, n, 0) : scale, sum[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal a[4];
        for (int k = 0; k < 4; k++) a[k] = exp_at(t, x, i + k * VL, scale, shift);
        for (int k = 0; k < 4; k++) {
            if (store) v_store(V_NATIVE, e, i + k * VL, a[k]);
            sum[k] += a[k];
        }
    }
    for (; i + VL <= n; i += VL) {
        vreal a = exp_at(t, x, i, scale, shift);
        if (store) v_store(V_NATIVE, e, i, a);
        sum[0] += a;
    }
    if (i < n) {
        vreal a = v_exp_scaled(v_fma(last, scale, -shift));
        if (store) v_store_last(V_NATIVE, e, n, a);
        sum[1] += v_select(v_last_lanes(n), a, v_set(0));
    }
    return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

TNI_INLINE real sum_of(const tn_type t, const void *x, int64_t n, real scale, real shift) {
    real sum = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK)
        sum += sum_block(t, false, r_at(t, x, i), NULL, min(n - i, SUM_BLOCK), v_set(scale), v_set(shift));
    return sum;
}

real TNI_CPU(span_exp)(const real *x, real *e, int64_t n, real scale, real shift) {
    real sum = 0;
    for (int64_t i = 0; i < n; i += SUM_BLOCK)
        sum += sum_block(V_NATIVE, true, x + i, e + i, min(n - i, SUM_BLOCK), v_set(scale), v_set(shift));
    return sum;
}

TNI_INLINE void scale_to(const tn_type t, const real *e, void *y, int64_t n, real by) {
    vreal last = n % VL ? v_load_last(V_NATIVE, e, n, 0) : v_set(by);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) v_store(t, y, i + k * VL, v_load(V_NATIVE, e, i + k * VL) * by);
    }
    for (; i + VL <= n; i += VL) v_store(t, y, i, v_load(V_NATIVE, e, i) * by);
    if (i < n) v_store_last(t, y, n, last * by);
}

TNI_INLINE void exp_to(const tn_type t, const void *x, void *y, int64_t n, real scale, real shift, real by) {
    const vreal s = v_set(scale), m = v_set(shift);
    vreal last = n % VL ? v_load_last(t, x, n, 0) : s;
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal a[4];
        for (int k = 0; k < 4; k++) a[k] = exp_at(t, x, i + k * VL, s, m) * by;
        for (int k = 0; k < 4; k++) v_store(t, y, i + k * VL, a[k]);
    }
    for (; i + VL <= n; i += VL) v_store(t, y, i, exp_at(t, x, i, s, m) * by);
    if (i < n) v_store_last(t, y, n, v_exp_scaled(v_fma(last, s, -m)) * by);
}

/* `many` rows of at most `vectors` vectors. The last vector overlaps the one before; `fresh` are its lanes that do
 * not. */
TNI_INLINE void short_softmax(const tn_type t, const int many, const int vectors, const void *x, int64_t apart_x,
                              void *y, int64_t apart_y, int64_t n, vint fresh, vreal scale) {
    const int last = vectors - 1;
    vreal a[4][4], by[4];
    for (int r = 0; r < many; r++) {
        for (int k = 0; k < last; k++) a[r][k] = v_load(t, x, r * apart_x + k * VL) * scale;
        a[r][last] = v_load_last(t, r_at(t, x, r * apart_x), n, 0) * scale;
    }
    for (int r = 0; r < many; r++) {
        vreal most = v_select(fresh, a[r][last], v_set(-(real)INFINITY));
        for (int k = 0; k < last; k++) most = v_atleast(a[r][k], most);
        const vreal shift = v_set(shift_of(v_hmax(most)));
        for (int k = 0; k < vectors; k++) a[r][k] = v_exp_scaled(a[r][k] - shift);
    }
    for (int r = 0; r < many; r++) {
        vreal sum = v_select(fresh, a[r][last], v_set(0));
        for (int k = 0; k < last; k++) sum += a[r][k];
        by[r] = v_set(1 / v_sum(sum));
    }
    for (int r = 0; r < many; r++) {
        for (int k = 0; k < last; k++) v_store(t, y, r * apart_y + k * VL, a[r][k] * by[r]);
        v_store_last(t, r_at(t, y, r * apart_y), n, a[r][last] * by[r]);
    }
}

TNI_INLINE void softmax_rows_of(const tn_type t, const int many, const int vectors, const row_run *run, real scale) {
    const vint fresh = run->n % VL ? v_last_lanes(run->n) : v_seti(-1);
    const int64_t ax = run->apart_x, ay = run->apart_y, n = run->n;
    int64_t r = 0;
    for (; r + many <= run->count; r += many)
        short_softmax(t, many, vectors, r_at(t, run->x, r * ax), ax, r_at(t, run->y, r * ay), ay, n, fresh,
                      v_set(scale));
    for (; r < run->count; r++)
        short_softmax(t, 1, vectors, r_at(t, run->x, r * ax), ax, r_at(t, run->y, r * ay), ay, n, fresh, v_set(scale));
}

TNI_INLINE void short_rows_to(const tn_type t, const row_run *run, real scale) {
    switch (ceil_div(run->n, VL)) {
    case 1: softmax_rows_of(t, 4, 1, run, scale); break;
    case 2: softmax_rows_of(t, 2, 2, run, scale); break;
    case 3: softmax_rows_of(t, 1, 3, run, scale); break;
    default: softmax_rows_of(t, 1, 4, run, scale); break;
    }
}

TNI_INLINE void short_sums_of(const tn_type t, const int whole, const row_run *run, real *shifts, real *sums, real *e) {
    const int64_t n = run->n, rest = n - whole * VL;
    const short_rows s = short_rows_of(run->count, n, run->apart_x, -(real)INFINITY);
    for (int64_t r = 0; r < run->count; r++) {
        vreal a[4], most = short_last(t, &s, run->x, r), sum = {0};
        a[whole] = most;
        for (int k = 0; k < whole; k++) {
            a[k] = v_load(t, run->x, r * run->apart_x + k * VL);
            most = v_atleast(a[k], most);
        }
        const vreal shift = v_set(shift_of(v_hmax(most)));
        for (int k = 0; k <= whole; k++) {
            a[k] = v_exp_scaled(a[k] - shift);
            sum += k < whole ? a[k] : v_select(s.own, a[k], v_set(0));
        }
        for (int k = 0; e && k < whole; k++) v_store(V_NATIVE, e, r * n + k * VL, a[k]);
        if (e && (r + 1) * n + VL - rest <= run->count * n)
            v_store(V_NATIVE, e, r * n + whole * VL, a[whole]); /* the next row comes over what is too much */
        else if (e)
            v_store_n(V_NATIVE, e, r * n + whole * VL, rest, a[whole]);
        shifts[r] = shift[0];
        sums[r] = v_sum(sum);
    }
}

TNI_INLINE void short_sums_to(const tn_type t, const row_run *run, real *shifts, real *sums, real *e) {
    switch ((run->n - 1) / VL) {
    case 0: short_sums_of(t, 0, run, shifts, sums, e); break;
    case 1: short_sums_of(t, 1, run, shifts, sums, e); break;
    case 2: short_sums_of(t, 2, run, shifts, sums, e); break;
    default: short_sums_of(t, 3, run, shifts, sums, e); break;
    }
}

TNI_INLINE void gather_from(const tn_type t, const void *x, int64_t step, real *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = r_load(t, x, i * step);
}

TNI_INLINE void scatter_to(const tn_type t, const real *from, void *y, int64_t step, int64_t n) {
    for (int64_t i = 0; i < n; i++) r_store(t, y, i * step, from[i]);
}

/* The functions of one type, and their table. */
#define SPANS(NAME, bytes)                                                                               \
    static real max_##NAME(const void *x, int64_t n, real scale) {                                       \
        return max_of(TN_##NAME, false, false, x, NULL, NULL, n, scale);                                 \
    }                                                                                                    \
    static real scores_##NAME(const void *x, const uint8_t *mask, real *scores, int64_t n, real scale) { \
        return scores_of(TN_##NAME, x, mask, scores, n, scale);                                          \
    }                                                                                                    \
    static real sum_##NAME(const void *x, int64_t n, real scale, real shift) {                           \
        return sum_of(TN_##NAME, x, n, scale, shift);                                                    \
    }                                                                                                    \
    static void scale_##NAME(const real *e, void *y, int64_t n, real by) {                               \
        scale_to(TN_##NAME, e, y, n, by);                                                                \
    }                                                                                                    \
    static void exp_##NAME(const void *x, void *y, int64_t n, real scale, real shift, real by) {         \
        exp_to(TN_##NAME, x, y, n, scale, shift, by);                                                    \
    }                                                                                                    \
    static void short_rows_##NAME(const row_run *run, real scale) {                                      \
        short_rows_to(TN_##NAME, run, scale);                                                            \
    }                                                                                                    \
    static void short_sums_##NAME(const row_run *run, real *shifts, real *sums, real *e) {               \
        short_sums_to(TN_##NAME, run, shifts, sums, e);                                                  \
    }                                                                                                    \
    static void gather_##NAME(const void *x, int64_t step, real *to, int64_t n) {                        \
        gather_from(TN_##NAME, x, step, to, n);                                                          \
    }                                                                                                    \
    static void scatter_##NAME(const real *from, void *y, int64_t step, int64_t n) {                     \
        scatter_to(TN_##NAME, from, y, step, n);                                                         \
    }                                                                                                    \
    static const spans spans_##NAME = {                                                                  \
        .size = bytes,                                                                                   \
        .native = TN_##NAME == V_NATIVE,                                                                 \
        .max = max_##NAME,                                                                               \
        .scores = scores_##NAME,                                                                         \
        .sum = sum_##NAME,                                                                               \
        .scale = scale_##NAME,                                                                           \
        .exp = exp_##NAME,                                                                               \
        .short_rows = short_rows_##NAME,                                                                 \
        .short_sums = short_sums_##NAME,                                                                 \
        .gather = gather_##NAME,                                                                         \
        .scatter = scatter_##NAME,                                                                       \
    };

#if defined(TNI_REAL_f32)

SPANS(F16, 2)
SPANS(BF16, 2)
SPANS(F32, 4)

const spans *TNI_CPU(spans_of)(tn_type type) {
    return type == TN_F16 ? &spans_F16 : type == TN_BF16 ? &spans_BF16 : &spans_F32;
}

#else

SPANS(F64, 8)

const spans *TNI_CPU(spans_of)(tn_type type) {
    (void)type;
    return &spans_F64;
}

#endif
