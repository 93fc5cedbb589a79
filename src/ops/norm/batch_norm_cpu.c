/* batch_norm, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h).
 *
 * Two layouts are taken as they are (batch_norm.h): planes, where a channel's values lie side by side for each n, and
 * rows, where all channels of a place do. Both go the same way: sums for each channel, in parts; from the sums what
 * each channel is multiplied with and moved by; then every element. With planes and enough channels a thread does all
 * of it for a channel at once, while the channel is in its cache. */
#include "batch_norm.h"

#include <math.h>

#include "moments.h"

enum { ROWS_TOGETHER = 4 }; /* rows for which a channel's numbers are loaded once */
enum { TILE = 1024 };       /* channels whose sums stay in the nearest cache */
enum { KEPT = 28672 };      /* numbers of a channel that are kept in f32 */

/* A tensor of the shape of x; data is NULL where it is absent. Steps in elements. */
typedef struct big {
    char *data;
    int64_t n_step, c_step, row_step;
} big;

/* Both directions. In the forward one `from` are x and residual, `to` is y; in the backward one `from` are x, residual
 * and dy, `to` are dx and dresidual. */
typedef struct work {
    const tn_call *call;
    tn_type type;
    bool grad, relu, rows;   /* rows: the layout */
    int64_t n, c, s;         /* x: (n, c, s) */
    int64_t parts, per_part; /* planes: of n; rows: of n * s */
    big x, residual, dy, y, dx, dresidual;
    /* (c) each: d = x - mean, z = d * scale + beta (+ residual); dx = g * scale - shift - slope * d */
    real *mean, *scale, *beta, *shift, *slope;
    double *sums; /* (parts, 3, c): n, mean, m2 of a part; backward: of g, and of g * d */
    batch_norm_args forward;
    batch_norm_grad_args backward;
} work;

static void finish(const work *w, int64_t c);

static big big_of(const tn_view *v) {
    if (!v) return (big){0};
    return (big){v->data, v->strides[0], v->strides[1], tni_batch_norm_step(v)};
}

TNI_INLINE void *plane_at(const tn_type t, const big *b, int64_t n, int64_t c) {
    return b->data ? r_at(t, b->data, n * b->n_step + c * b->c_step) : NULL;
}

TNI_INLINE void *row_at(const tn_type t, const big *b, int64_t r) {
    return b->data ? r_at(t, b->data, r * b->row_step) : NULL;
}

static double *sums_at(const work *w, int64_t part, int which, int64_t c) {
    return w->sums + (part * TNI_BATCH_NORM_SUMS + which) * w->c + c;
}

/* ---- one vector -------------------------------------------------------------------------------------------------- */

/* What the elements of a vector are computed with: one channel's numbers, or those of neighbouring channels. */
typedef struct numbers {
    vreal mean, scale, beta, shift, slope;
} numbers;

TNI_INLINE numbers numbers_of(const work *w, int64_t c) {
    return (numbers){v_set(w->mean[c]), v_set(w->scale[c]), v_set(w->beta[c]), v_set(w->grad ? w->shift[c] : 0),
                     v_set(w->grad ? w->slope[c] : 0)};
}

TNI_INLINE numbers numbers_at(const work *w, const bool grad, int64_t c, int64_t left) {
    numbers p = {v_load_some(V_NATIVE, w->mean, c, left, 0), v_load_some(V_NATIVE, w->scale, c, left, 0),
                 v_load_some(V_NATIVE, w->beta, c, left, 0), v_set(0), v_set(0)};
    if (!grad) return p;
    p.shift = v_load_some(V_NATIVE, w->shift, c, left, 0);
    p.slope = v_load_some(V_NATIVE, w->slope, c, left, 0);
    return p;
}

/* What passes the activation: dy, or 0 where relu cut off. NaN passes. */
TNI_INLINE vreal passed(const tn_type t, const bool relu, const numbers *p, vreal d, const void *residual,
                        const void *dy, int64_t i, int64_t left) {
    const vreal g = v_load_some(t, dy, i, left, 0);
    if (!relu) return g;
    vreal z = v_fma(d, p->scale, p->beta);
    if (residual) z += v_load_some(t, residual, i, left, 0);
    return v_select((vint)(z <= 0), v_set(0), g);
}

/* dx, from what passed the activation */
TNI_INLINE vreal passed_on(const numbers *p, vreal d, vreal g) {
    return v_fma(g, p->scale, v_fma(d, -p->slope, -p->shift));
}

TNI_INLINE void forward_vector(const tn_type t, const bool relu, const numbers *p, const void *x, const void *residual,
                               void *y, int64_t i, int64_t left) {
    vreal z = v_fma(v_load_some(t, x, i, left, 0) - p->mean, p->scale, p->beta);
    if (residual) z += v_load_some(t, residual, i, left, 0);
    if (relu) z = v_select((vint)(z < 0), v_set(0), z);
    v_store_some(t, y, i, left, z);
}

TNI_INLINE void backward_vector(const tn_type t, const bool relu, const numbers *p, const void *x, const void *residual,
                                const void *dy, void *dx, void *dresidual, int64_t i, int64_t left) {
    const vreal d = v_load_some(t, x, i, left, 0) - p->mean;
    const vreal g = passed(t, relu, p, d, residual, dy, i, left);
    if (dx) v_store_some(t, dx, i, left, passed_on(p, d, g));
    if (dresidual) v_store_some(t, dresidual, i, left, g);
}

/* Planes of one channel lie far apart: a short one is asked for ahead, because the processor sees no pattern. */
TNI_INLINE void fetch_plane(const tn_type t, const work *w, const big *b, int64_t n, int64_t c) {
    if (n >= w->n || !b->data) return;
    const char *at = plane_at(t, b, n, c), *end = r_at(t, (void *)at, min(w->s, 4096));
    for (; at < end; at += 64) __builtin_prefetch(at);
}

/* ---- planes ------------------------------------------------------------------------------------------------------ */

/* Mean and variance of channel c over first … last - 1 of n. Short planes share a part, as moments.h calls it. */
TNI_INLINE moments plane_moments(const tn_type t, const work *w, int64_t c, int64_t first, int64_t last) {
    moments all = {0};
    if (w->s > MOMENTS_PART / 2) {
        for (int64_t n = first; n < last; n++) {
            moments_merge(&all, moments_of_run(t, plane_at(t, &w->x, n, c), w->s));
        }
        return all;
    }
    const int64_t together = max(1, MOMENTS_PART / max(1, w->s));
    for (int64_t n = first; n < last && w->s > 0; n += together) {
        const int64_t end = min(n + together, last);
        shifted s = shifted_begin(t, plane_at(t, &w->x, n, c), w->s);
        for (int64_t k = n; k < end; k++) {
            fetch_plane(t, w, &w->x, k + 1, c);
            shifted_add(t, &s, plane_at(t, &w->x, k, c), w->s);
        }
        moments_merge(&all, shifted_end(&s, (end - n) * w->s));
    }
    return all;
}

/* The sums of g and of g * d along one plane. */
TNI_INLINE void plane_products(const tn_type t, const bool relu, const work *w, int64_t n, int64_t c, double *sum,
                               double *dot) {
    const numbers p = numbers_of(w, c);
    const void *x = plane_at(t, &w->x, n, c), *residual = plane_at(t, &w->residual, n, c),
               *dy = plane_at(t, &w->dy, n, c);
    for (int64_t begin = 0, end; begin < w->s; begin = end) {
        end = min(begin + MOMENTS_PART, w->s);
        vreal sums[4] = {0}, dots[4] = {0};
        int64_t i = begin;
        for (; i + 4 * VL <= end; i += 4 * VL) {
            for (int k = 0; k < 4; k++) {
                const vreal d = v_load(t, x, i + k * VL) - p.mean;
                const vreal g = passed(t, relu, &p, d, residual, dy, i + k * VL, VL);
                sums[k] += g;
                dots[k] = v_fma(g, d, dots[k]);
            }
        }
        for (; i < end; i += VL) {
            const vreal d = v_load_some(t, x, i, end - i, 0) - p.mean;
            const vreal g = passed(t, relu, &p, d, residual, dy, i, end - i);
            sums[0] += g; /* 0 where there is no element: so is dy */
            dots[0] = v_fma(g, d, dots[0]);
        }
        *sum += (double)v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
        *dot += (double)v_sum((dots[0] + dots[1]) + (dots[2] + dots[3]));
    }
}

TNI_INLINE void plane_sums(const tn_type t, const bool relu, const work *w, int64_t c, int64_t part) {
    const int64_t first = part * w->per_part, last = min(first + w->per_part, w->n);
    double *a = sums_at(w, part, 0, c), *b = sums_at(w, part, 1, c);
    if (!w->grad) {
        const moments m = plane_moments(t, w, c, first, last);
        *a = m.n;
        *b = m.mean;
        *sums_at(w, part, 2, c) = m.m2;
        return;
    }
    *a = *b = 0;
    for (int64_t n = first; n < last; n++) {
        fetch_plane(t, w, &w->x, n + 1, c);
        fetch_plane(t, w, &w->dy, n + 1, c);
        plane_products(t, relu, w, n, c, a, b);
    }
}

TNI_INLINE void plane_apply(const tn_type t, const bool relu, const work *w, int64_t c, int64_t n) {
    const numbers p = numbers_of(w, c);
    const void *x = plane_at(t, &w->x, n, c), *residual = plane_at(t, &w->residual, n, c),
               *dy = plane_at(t, &w->dy, n, c);
    void *y = plane_at(t, &w->y, n, c), *dx = plane_at(t, &w->dx, n, c), *dresidual = plane_at(t, &w->dresidual, n, c);
    int64_t i = 0;
    if (w->grad && dx && !residual && !dresidual) { /* the common case, without a question for each vector */
        for (; i + 4 * VL <= w->s; i += 4 * VL) {
            vreal d[4], g[4];
            for (int k = 0; k < 4; k++) {
                d[k] = v_load(t, x, i + k * VL) - p.mean;
                g[k] = passed(t, relu, &p, d[k], NULL, dy, i + k * VL, VL);
            }
            for (int k = 0; k < 4; k++) v_store(t, dx, i + k * VL, passed_on(&p, d[k], g[k]));
        }
    }
    if (w->grad) {
        for (; i + VL <= w->s; i += VL) backward_vector(t, relu, &p, x, residual, dy, dx, dresidual, i, VL);
        if (i < w->s) backward_vector(t, relu, &p, x, residual, dy, dx, dresidual, i, w->s - i);
    } else {
        for (; i + VL <= w->s; i += VL) forward_vector(t, relu, &p, x, residual, y, i, VL);
        if (i < w->s) forward_vector(t, relu, &p, x, residual, y, i, w->s - i);
    }
}

/* The whole of a channel's dx where x and dy have 16 bits: what the first pass has widened is kept for the second. */
TNI_INLINE void channel_kept(const tn_type t, const bool relu, const work *w, int64_t c) {
    real kept[2][KEPT];
    const numbers begin = numbers_of(w, c);
    double sum = 0, dot = 0;
    int64_t k = 0;
    for (int64_t n = 0; n < w->n; n++) {
        const void *x = plane_at(t, &w->x, n, c), *dy = plane_at(t, &w->dy, n, c);
        fetch_plane(t, w, &w->x, n + 1, c);
        fetch_plane(t, w, &w->dy, n + 1, c);
        vreal sums[4] = {0}, dots[4] = {0};
        int64_t i = 0;
        for (; i + 4 * VL <= w->s; i += 4 * VL) {
            for (int j = 0; j < 4; j++, k += VL) {
                const vreal d = v_load(t, x, i + j * VL) - begin.mean;
                const vreal g = passed(t, relu, &begin, d, NULL, dy, i + j * VL, VL);
                v_store(V_NATIVE, kept[0], k, d);
                v_store(V_NATIVE, kept[1], k, g);
                sums[j] += g;
                dots[j] = v_fma(g, d, dots[j]);
            }
        }
        for (; i < w->s; i += VL, k += VL) {
            const vreal d = v_load_some(t, x, i, w->s - i, 0) - begin.mean;
            const vreal g = passed(t, relu, &begin, d, NULL, dy, i, w->s - i);
            v_store(V_NATIVE, kept[0], k, d);
            v_store(V_NATIVE, kept[1], k, g);
            sums[0] += g; /* 0 where there is no element: so is dy */
            dots[0] = v_fma(g, d, dots[0]);
        }
        sum += (double)v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
        dot += (double)v_sum((dots[0] + dots[1]) + (dots[2] + dots[3]));
    }
    *sums_at(w, 0, 0, c) = sum;
    *sums_at(w, 0, 1, c) = dot;
    finish(w, c);
    const numbers p = numbers_of(w, c);
    k = 0;
    for (int64_t n = 0; n < w->n; n++) {
        void *dx = plane_at(t, &w->dx, n, c);
        fetch_plane(t, w, &w->dx, n + 1, c);
        for (int64_t i = 0; i < w->s; i += VL, k += VL) {
            const vreal v = passed_on(&p, v_load(V_NATIVE, kept[0], k), v_load(V_NATIVE, kept[1], k));
            v_store_some(t, dx, i, w->s - i, v);
        }
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Where some rows are in every tensor. */
typedef struct row_places {
    const void *x[ROWS_TOGETHER], *residual[ROWS_TOGETHER], *dy[ROWS_TOGETHER];
    void *y[ROWS_TOGETHER], *dx[ROWS_TOGETHER], *dresidual[ROWS_TOGETHER];
} row_places;

TNI_INLINE row_places places_of(const tn_type t, const work *w, int64_t r, const int count) {
    row_places at;
    for (int k = 0; k < count; k++) {
        at.x[k] = row_at(t, &w->x, r + k);
        at.residual[k] = row_at(t, &w->residual, r + k);
        at.dy[k] = row_at(t, &w->dy, r + k);
        at.y[k] = row_at(t, &w->y, r + k);
        at.dx[k] = row_at(t, &w->dx, r + k);
        at.dresidual[k] = row_at(t, &w->dresidual, r + k);
    }
    return at;
}

/* The sums of some channels over the rows of a part, from channel `c` on. Forward: of x - shift and of its square, the
 * shift being the part's first row. Backward: of g and of g * d. */
typedef struct tile_sums {
    int64_t c;
    real shift[TILE], a[TILE], b[TILE];
} tile_sums;

/* Adds `left` channels, from i on, of `count` rows. */
TNI_INLINE void add_channels(const tn_type t, const bool relu, const bool grad, const work *w, const row_places *at,
                             const int count, tile_sums *sums, int64_t i, int64_t left) {
    const int64_t c = sums->c + i;
    numbers p = {0};
    if (grad)
        p = numbers_at(w, true, c, left);
    else
        p.mean = v_load(V_NATIVE, sums->shift, i);
    vreal a = v_load(V_NATIVE, sums->a, i), b = v_load(V_NATIVE, sums->b, i);
    for (int k = 0; k < count; k++) {
        const vreal d = v_load_some(t, at->x[k], c, left, 0) - p.mean;
        const vreal g = grad ? passed(t, relu, &p, d, at->residual[k], at->dy[k], c, left) : d;
        a += g;
        b = v_fma(g, d, b);
    }
    v_store(V_NATIVE, sums->a, i, a);
    v_store(V_NATIVE, sums->b, i, b);
}

TNI_INLINE void add_tile(const tn_type t, const bool relu, const bool grad, const work *w, int64_t r, const int count,
                         tile_sums *sums, int64_t width) {
    const row_places at = places_of(t, w, r, count);
    int64_t i = 0;
    for (; i + VL <= width; i += VL) add_channels(t, relu, grad, w, &at, count, sums, i, VL);
    if (i < width) add_channels(t, relu, grad, w, &at, count, sums, i, width - i);
}

/* As moments_of_sums has it; backward the two sums as they are. */
static void keep_sums(const work *w, int64_t part, double n, const tile_sums *sums, int64_t width) {
    double *first = sums_at(w, part, 0, sums->c), *second = sums_at(w, part, 1, sums->c),
           *third = sums_at(w, part, 2, sums->c);
    for (int64_t i = 0; i < width; i++) {
        const double sum = (double)sums->a[i], other = (double)sums->b[i], d = sum / n, m2 = other - sum * d;
        first[i] = w->grad ? sum : n;
        second[i] = w->grad ? other : (double)sums->shift[i] + d;
        third[i] = m2 < 0 ? 0 : m2;
    }
}

TNI_INLINE void row_sums_of(const tn_type t, const bool relu, const bool grad, const work *w, int64_t part) {
    const int64_t first = part * w->per_part, last = min(first + w->per_part, w->n * w->s);
    tile_sums sums;
    for (sums.c = 0; sums.c < w->c; sums.c += TILE) {
        const int64_t width = min(w->c - sums.c, TILE);
        const size_t bytes = (size_t)round_up(width, VL) * sizeof(real);
        memset(sums.a, 0, bytes);
        memset(sums.b, 0, bytes);
        if (!grad) widen_run(t, r_at(t, row_at(t, &w->x, first), sums.c), sums.shift, width);
        int64_t r = first;
        for (; r + ROWS_TOGETHER <= last; r += ROWS_TOGETHER)
            add_tile(t, relu, grad, w, r, ROWS_TOGETHER, &sums, width);
        for (; r < last; r++) add_tile(t, relu, grad, w, r, 1, &sums, width);
        keep_sums(w, part, (double)(last - first), &sums, width);
    }
}

TNI_INLINE void row_sums(const tn_type t, const bool relu, const work *w, int64_t part) {
    if (w->grad)
        row_sums_of(t, relu, true, w, part);
    else
        row_sums_of(t, false, false, w, part);
}

/* `left` channels, from i on, of `count` rows. */
TNI_INLINE void apply_channels(const tn_type t, const bool relu, const bool grad, const work *w, const row_places *at,
                               const int count, int64_t i, int64_t left) {
    const numbers p = numbers_at(w, grad, i, left);
    for (int k = 0; k < count; k++) {
        if (grad) {
            backward_vector(t, relu, &p, at->x[k], at->residual[k], at->dy[k], at->dx[k], at->dresidual[k], i, left);
        } else {
            forward_vector(t, relu, &p, at->x[k], at->residual[k], at->y[k], i, left);
        }
    }
}

TNI_INLINE void apply_rows(const tn_type t, const bool relu, const bool grad, const work *w, const int count,
                           int64_t r) {
    const int64_t c = w->c;
    const row_places at = places_of(t, w, r, count);
    int64_t i = 0;
    for (; i + VL <= c; i += VL) apply_channels(t, relu, grad, w, &at, count, i, VL);
    if (i < c) apply_channels(t, relu, grad, w, &at, count, i, c - i);
}

/* Rows first … last - 1. */
TNI_INLINE void row_apply(const tn_type t, const bool relu, const bool grad, const work *w, int64_t first,
                          int64_t last) {
    int64_t r = first;
    for (; r + ROWS_TOGETHER <= last; r += ROWS_TOGETHER) apply_rows(t, relu, grad, w, ROWS_TOGETHER, r);
    for (; r < last; r++) apply_rows(t, relu, grad, w, 1, r);
}

/* ---- from the sums to each channel's numbers --------------------------------------------------------------------- */

static real param(const tn_view *v, int64_t c, real absent) {
    return v ? r_load(v->type, v->data, c * v->strides[0]) : absent;
}

static void set_output(const tn_view *v, int64_t c, double value) {
    if (v) r_store(v->type, v->data, c * v->strides[0], (real)value);
}

/* Infinities would have made the mean NaN; the plain sum says what it is. */
static double plain_mean(const work *w, int64_t c) {
    double sum = 0;
    for (int64_t n = 0; n < w->n; n++) {
        for (int64_t i = 0; i < w->s; i++) {
            const void *at = w->rows ? row_at(w->type, &w->x, n * w->s + i) : plane_at(w->type, &w->x, n, c);
            sum += (double)r_load(w->type, at, w->rows ? c : i);
        }
    }
    return sum / (double)(w->n * w->s);
}

static void move_running(const tn_view *v, int64_t c, double momentum, double value) {
    float *running = (float *)v->data + c * v->strides[0];
    *running = (float)((1 - momentum) * *running + momentum * value);
}

static void finish_forward(const work *w, int64_t c) {
    const batch_norm_args *a = &w->forward;
    moments all = {0};
    for (int64_t part = 0; part < w->parts; part++) {
        moments_merge(&all, (moments){*sums_at(w, part, 0, c), *sums_at(w, part, 1, c), *sums_at(w, part, 2, c)});
    }
    const int64_t m = w->n * w->s;
    const double mean = m > 0 && isfinite(all.mean) ? all.mean : plain_mean(w, c);
    const double variance = all.m2 / (double)m, rstd = 1 / sqrt(variance + a->eps);
    w->mean[c] = (real)mean;
    w->scale[c] = (real)(rstd * (double)param(a->gamma, c, 1));
    w->beta[c] = param(a->beta, c, 0);
    set_output(a->mean, c, mean);
    set_output(a->rstd, c, rstd);
    if (m == 0) return;
    move_running(a->running_mean, c, a->momentum, mean);
    move_running(a->running_var, c, a->momentum, m > 1 ? all.m2 / (double)(m - 1) : variance);
}

static void begin_backward(const work *w, int64_t c) {
    const batch_norm_grad_args *a = &w->backward;
    w->mean[c] = param(a->mean, c, 0);
    w->scale[c] = param(a->rstd, c, 0) * param(a->gamma, c, 1);
    w->beta[c] = param(a->beta, c, 0);
}

static void finish_backward(const work *w, int64_t c) {
    const batch_norm_grad_args *a = &w->backward;
    double sum = 0, dot = 0;
    for (int64_t part = 0; part < w->parts; part++) {
        sum += *sums_at(w, part, 0, c);
        dot += *sums_at(w, part, 1, c);
    }
    const double m = (double)(w->n * w->s), rstd = (double)param(a->rstd, c, 0);
    const double scale = rstd * (double)param(a->gamma, c, 1);
    w->shift[c] = (real)(scale * sum / m);
    w->slope[c] = (real)(scale * rstd * rstd * dot / m);
    set_output(a->dgamma, c, m > 0 ? rstd * dot : 0); /* without values rstd is NaN */
    set_output(a->dbeta, c, sum);
}

static void finish(const work *w, int64_t c) {
    if (w->grad) {
        finish_backward(w, c);
    } else {
        finish_forward(w, c);
    }
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

typedef enum stage { CHANNELS, PLANE_SUMS, PLANE_APPLY, ROW_SUMS, ROW_APPLY } stage;

typedef struct loop {
    const work *w;
    stage stage;
} loop;

TNI_INLINE void stage_of_type(const tn_type t, const bool relu, const loop *l, int64_t begin, int64_t end) {
    const work *w = l->w;
    for (int64_t i = begin; i < end; i++) {
        switch (l->stage) {
        case CHANNELS:
            if (t != V_NATIVE && w->grad && w->parts > 0 && w->dx.data && !w->residual.data && !w->dresidual.data &&
                w->n * round_up(w->s, VL) <= KEPT) {
                channel_kept(t, relu, w, i);
                break;
            }
            if (w->parts > 0) plane_sums(t, relu, w, i, 0);
            finish(w, i);
            for (int64_t n = 0; n < w->n; n++) plane_apply(t, relu, w, i, n);
            break;
        case PLANE_SUMS: plane_sums(t, relu, w, i % w->c, i / w->c); break;
        case PLANE_APPLY: plane_apply(t, relu, w, i % w->c, i / w->c); break;
        case ROW_SUMS: row_sums(t, relu, w, i); break;
        case ROW_APPLY:
            if (w->grad)
                row_apply(t, relu, true, w, begin, end);
            else
                row_apply(t, relu, false, w, begin, end);
            return;
        }
    }
}

TNI_INLINE void stage_of(const tn_type t, const loop *l, int64_t begin, int64_t end) {
    if (l->w->relu) {
        stage_of_type(t, true, l, begin, end);
    } else {
        stage_of_type(t, false, l, begin, end);
    }
}

static void body(void *arg, int64_t begin, int64_t end) {
    const loop *l = arg;
    V_BY_TYPE(l->w->type, stage_of, l, begin, end);
}

static void run_stage(const work *w, stage s, int64_t n, int64_t elements) {
    loop l = {w, s};
    tn_parallel(w->call, n, tni_row_grain(elements), body, &l);
}

/* Adds a part of all channels to the first one: backward two sums, forward what moments_merge does, n numbers of each
 * channel being in the first part so far. */
static void merge_sums(double *restrict a, const double *restrict b, int64_t count) {
    for (int64_t i = 0; i < count; i++) a[i] += b[i];
}

static void merge_moments(double *restrict mean, double *restrict m2, const double *restrict more_mean,
                          const double *restrict more_m2, int64_t count, double n, double share) {
    for (int64_t i = 0; i < count; i++) {
        const double d = more_mean[i] - mean[i];
        mean[i] += d * share;
        m2[i] += more_m2[i] + d * d * n * share;
    }
}

/* Rows: the parts of all channels become one. Every channel has as many values in a part. */
static void merge_parts(work *w) {
    double *first = sums_at(w, 0, 0, 0), *mean = sums_at(w, 0, 1, 0), *m2 = sums_at(w, 0, 2, 0);
    for (int64_t part = 1; part < w->parts; part++) {
        const double *more = sums_at(w, part, 0, 0), n = first[0], share = more[0] / (n + more[0]);
        if (!w->grad) merge_moments(mean, m2, more + w->c, more + 2 * w->c, w->c, n, share);
        merge_sums(first, more, w->grad ? 2 * w->c : w->c);
    }
    w->parts = min(w->parts, 1);
}

static void run(work *w) {
    if (w->rows) {
        run_stage(w, ROW_SUMS, w->parts, w->per_part * w->c);
        if (w->c > 0) merge_parts(w);
    } else if (w->parts <= 1) {
        run_stage(w, CHANNELS, w->c, w->n * w->s);
        return;
    } else {
        run_stage(w, PLANE_SUMS, w->parts * w->c, w->per_part * w->s);
    }
    for (int64_t c = 0; c < w->c; c++) finish(w, c);
    if (w->rows) {
        run_stage(w, ROW_APPLY, w->n * w->s, w->c);
    } else {
        run_stage(w, PLANE_APPLY, w->n * w->c, w->s);
    }
}

/* Every tensor is in rows, or (which `accepts` has seen to) every one is in planes. */
static bool all_rows(const big *const *tensors, int count) {
    for (int i = 0; i < count; i++) {
        if (tensors[i]->data && tensors[i]->row_step == 0) return false;
    }
    return true;
}

static void set_up(work *w, const tn_call *call, const tn_view *x) {
    const big *tensors[] = {&w->x, &w->residual, &w->dy, &w->y, &w->dx, &w->dresidual};
    w->call = call;
    w->type = x->type;
    w->n = x->shape[0];
    w->c = x->shape[1];
    w->s = tn_product(x, 2, x->ndim);
    w->rows = all_rows(tensors, 6);
    const int64_t places = w->rows ? w->n * w->s : w->n;
    w->per_part = w->rows ? rows_summed_together(places) : max(1, ceil_div(places, tni_batch_norm_parts(w->n, w->c)));
    w->parts = ceil_div(places, w->per_part);
    w->sums = (double *)call->workspace;
    w->mean = (real *)(w->sums + w->parts * TNI_BATCH_NORM_SUMS * w->c);
    w->scale = w->mean + w->c;
    w->beta = w->mean + 2 * w->c;
    w->shift = w->mean + 3 * w->c;
    w->slope = w->mean + 4 * w->c;
}

tn_status TNI_CPU(batch_norm)(const tn_call *call, void *state) {
    (void)state;
    const batch_norm_args a = batch_norm_args_of(call);
    work w = {
        .forward = a, .relu = a.act == ACT_RELU, .x = big_of(a.x), .residual = big_of(a.residual), .y = big_of(a.y)};
    set_up(&w, call, a.x);
    run(&w);
    return TN_OK;
}

tn_status TNI_CPU(batch_norm_grad)(const tn_call *call, void *state) {
    (void)state;
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    work w = {.backward = a,
              .grad = true,
              .relu = a.act == ACT_RELU,
              .x = big_of(a.x),
              .residual = big_of(a.residual),
              .dy = big_of(a.dy),
              .dx = big_of(a.dx),
              .dresidual = big_of(a.dresidual)};
    set_up(&w, call, a.x);
    for (int64_t c = 0; c < w.c; c++) begin_backward(&w, c);
    run(&w);
    return TN_OK;
}
