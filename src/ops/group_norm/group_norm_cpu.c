/* group_norm and instance_norm, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h).
 *
 * x: (n, c, s), and each sample lies in one piece, so a group of channels does. A group is read for its statistics and
 * again, from the cache, for what becomes of it. Long planes have one gamma and beta for many vectors. Where planes are
 * short, gamma and beta are spread: each element of a sample has its own, and a group is one row whatever its
 * channels. */
#include "group_norm.h"

#include <math.h>

#include "ops/norm/moments.h"

enum { TILE = 64 }; /* channels whose gradients are summed up together */

/* A tensor of the shape of x; data is NULL where it is absent. */
typedef struct samples {
    char *data;
    int64_t step; /* from one sample to the next, in elements */
} samples;

typedef struct work {
    const tn_call *call;
    tn_type type;
    bool relu, spread;
    int64_t n, c, s, groups, each, length; /* channels and elements of a group */
    double eps;
    samples x, dy, y, dx;
    const real *gamma, *beta; /* (c), or (c, s) where they are spread */
    /* Of the gradient: the sums of g, what passes the activation, and of g * d * rstd, d = x - mean. (n, 2, c); spread:
     * (blocks, 2, c, s), each of some samples. NULL: nobody wants them. */
    double *sums;
    real *spread_sums;
    int64_t per_block, blocks;
    const tn_view *dgamma, *dbeta;
} work;

static samples samples_of(const tn_view *v) {
    if (!v) return (samples){0};
    return (samples){v->data, v->strides[0]};
}

/* Group g of sample n. */
TNI_INLINE void *group_at(const tn_type t, const work *w, const samples *of, int64_t n, int64_t g) {
    return r_at(t, of->data, n * of->step + g * w->length);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

typedef struct statistics {
    real mean, rstd;
} statistics;

/* Infinities would have made the mean NaN; the plain sum says what it is. */
static double plain_mean(const tn_type t, const void *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)r_load(t, x, i);
    return sum / (double)n;
}

TNI_INLINE statistics statistics_of(const tn_type t, const work *w, const void *x) {
    moments m = moments_of_run(t, x, w->length);
    if (!isfinite(m.mean)) m.mean = plain_mean(t, x, w->length);
    return (statistics){(real)m.mean, (real)(1 / sqrt(m.m2 / (double)w->length + w->eps))};
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* What the elements of a vector are computed with: z = d * scale + beta; dx = g * scale - shift - slope * d. */
typedef struct numbers {
    vreal mean, scale, beta, shift, slope;
} numbers;

/* Of one channel. */
TNI_INLINE numbers numbers_of(const work *w, const statistics *of, int64_t c) {
    return (numbers){.mean = v_set(of->mean), .scale = v_set(w->gamma[c] * of->rstd), .beta = v_set(w->beta[c])};
}

/* Of `left` elements of a sample, from `at` on. */
TNI_INLINE void spread_to(numbers *p, const work *w, const statistics *of, int64_t at, int64_t left) {
    p->scale = v_load_some(V_NATIVE, w->gamma, at, left, 0) * of->rstd;
    p->beta = v_load_some(V_NATIVE, w->beta, at, left, 0);
}

TNI_INLINE vreal forward_of(const bool relu, const numbers *p, vreal x) {
    const vreal z = v_fma(x - p->mean, p->scale, p->beta);
    return relu ? v_select((vint)(z < 0), v_set(0), z) : z;
}

/* What passes the activation: dy, or 0 where relu cut off. NaN passes. */
TNI_INLINE vreal passed(const bool relu, const numbers *p, vreal d, vreal dy) {
    return relu ? v_select((vint)(v_fma(d, p->scale, p->beta) <= 0), v_set(0), dy) : dy;
}

TNI_INLINE vreal passed_on(const numbers *p, vreal d, vreal g) {
    return v_fma(g, p->scale, v_fma(d, -p->slope, -p->shift));
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* n elements of one channel. */
TNI_INLINE void forward_run(const tn_type t, const bool relu, const numbers *p, const void *x, void *y, int64_t n) {
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal v[4];
        for (int k = 0; k < 4; k++) v[k] = forward_of(relu, p, v_load(t, x, i + k * VL));
        for (int k = 0; k < 4; k++) v_store(t, y, i + k * VL, v[k]);
    }
    for (; i < n; i += VL) v_store_some(t, y, i, n - i, forward_of(relu, p, v_load_some(t, x, i, n - i, 0)));
}

TNI_INLINE void forward_group(const tn_type t, const bool relu, const work *w, int64_t n, int64_t g) {
    const void *x = group_at(t, w, &w->x, n, g);
    void *y = group_at(t, w, &w->y, n, g);
    const statistics of = statistics_of(t, w, x);
    if (!w->spread) {
        for (int64_t k = 0; k < w->each; k++) {
            const numbers p = numbers_of(w, &of, g * w->each + k);
            forward_run(t, relu, &p, r_at(t, x, k * w->s), r_at(t, y, k * w->s), w->s);
        }
        return;
    }
    numbers p = {.mean = v_set(of.mean)};
    for (int64_t i = 0; i < w->length; i += VL) {
        const int64_t left = w->length - i;
        spread_to(&p, w, &of, g * w->length + i, left);
        v_store_some(t, y, i, left, forward_of(relu, &p, v_load_some(t, x, i, left, 0)));
    }
}

TNI_INLINE void forward_groups(const tn_type t, const work *w, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
        if (w->relu)
            forward_group(t, true, w, r / w->groups, r % w->groups);
        else
            forward_group(t, false, w, r / w->groups, r % w->groups);
    }
}

static void forward_body(void *arg, int64_t begin, int64_t end) {
    const work *w = arg;
    V_BY_TYPE(w->type, forward_groups, w, begin, end);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

typedef struct products {
    vreal g[4], dot[4];
} products;

TNI_INLINE void add_product(products *s, int k, vreal g, vreal d) {
    s->g[k] += g;
    s->dot[k] = v_fma(g, d, s->dot[k]);
}

/* The sums of g and of g * d, in parts, as in moments.h. */
typedef struct both_sums {
    double g, dot;
} both_sums;

TNI_INLINE void add_products(both_sums *sums, const products *s) {
    sums->g += (double)v_sum((s->g[0] + s->g[1]) + (s->g[2] + s->g[3]));
    sums->dot += (double)v_sum((s->dot[0] + s->dot[1]) + (s->dot[2] + s->dot[3]));
}

/* Of a channel. */
TNI_INLINE both_sums channel_sums(const tn_type t, const bool relu, const numbers *p, const void *x, const void *dy,
                                  int64_t n) {
    both_sums sums = {0};
    for (int64_t begin = 0, end; begin < n; begin = end) {
        end = min(begin + MOMENTS_PART, n);
        products s = {0};
        int64_t i = begin;
        for (; i + 4 * VL <= end; i += 4 * VL) {
            for (int k = 0; k < 4; k++) {
                const vreal d = v_load(t, x, i + k * VL) - p->mean;
                add_product(&s, k, passed(relu, p, d, v_load(t, dy, i + k * VL)), d);
            }
        }
        for (; i < end; i += VL) { /* dy, and so g, is 0 where there is no element */
            const vreal d = v_load_some(t, x, i, end - i, 0) - p->mean;
            add_product(&s, 0, passed(relu, p, d, v_load_some(t, dy, i, end - i, 0)), d);
        }
        add_products(&sums, &s);
    }
    return sums;
}

TNI_INLINE void backward_run(const tn_type t, const bool relu, const numbers *p, const void *x, const void *dy,
                             void *dx, int64_t n) {
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal v[4];
        for (int k = 0; k < 4; k++) {
            const vreal d = v_load(t, x, i + k * VL) - p->mean;
            v[k] = passed_on(p, d, passed(relu, p, d, v_load(t, dy, i + k * VL)));
        }
        for (int k = 0; k < 4; k++) v_store(t, dx, i + k * VL, v[k]);
    }
    for (; i < n; i += VL) {
        const vreal d = v_load_some(t, x, i, n - i, 0) - p->mean;
        v_store_some(t, dx, i, n - i, passed_on(p, d, passed(relu, p, d, v_load_some(t, dy, i, n - i, 0))));
    }
}

/* From the sums of g * gamma and of g * gamma * d over a group. */
TNI_INLINE void set_slopes(numbers *p, const work *w, const statistics *of, both_sums sums) {
    const double rstd = of->rstd, m = (double)w->length;
    p->shift = v_set((real)(rstd * sums.g / m));
    p->slope = v_set((real)(rstd * rstd * rstd * sums.dot / m));
}

TNI_INLINE void backward_planes(const tn_type t, const bool relu, const work *w, int64_t n, int64_t g) {
    const void *x = group_at(t, w, &w->x, n, g), *dy = group_at(t, w, &w->dy, n, g);
    const statistics of = statistics_of(t, w, x);
    double *dbetas = w->sums ? w->sums + n * 2 * w->c : NULL, *dgammas = w->sums ? dbetas + w->c : NULL;
    both_sums all = {0};
    for (int64_t k = 0, c = g * w->each; k < w->each; k++, c++) {
        const numbers p = numbers_of(w, &of, c);
        const both_sums own = channel_sums(t, relu, &p, r_at(t, x, k * w->s), r_at(t, dy, k * w->s), w->s);
        if (w->sums) {
            dbetas[c] = own.g;
            dgammas[c] = own.dot * (double)of.rstd;
        }
        all.g += own.g * (double)w->gamma[c];
        all.dot += own.dot * (double)w->gamma[c];
    }
    for (int64_t k = 0; k < w->each && w->dx.data; k++) {
        numbers p = numbers_of(w, &of, g * w->each + k);
        set_slopes(&p, w, &of, all);
        backward_run(t, relu, &p, r_at(t, x, k * w->s), r_at(t, dy, k * w->s),
                     r_at(t, group_at(t, w, &w->dx, n, g), k * w->s), w->s);
    }
}

/* The sums over a group of g * gamma and of g * gamma * d; what each element adds to dbeta and dgamma goes to its
 * place. */
TNI_INLINE both_sums spread_products(const tn_type t, const bool relu, const work *w, const statistics *of,
                                     const void *x, const void *dy, int64_t first, real *dbetas) {
    const vreal rstd = v_set(of->rstd);
    real *dgammas = dbetas ? dbetas + w->c * w->s : NULL;
    numbers p = {.mean = v_set(of->mean)};
    both_sums sums = {0};
    for (int64_t begin = 0, end; begin < w->length; begin = end) {
        end = min(begin + MOMENTS_PART, w->length);
        products s = {0};
        for (int64_t i = begin; i < end; i += VL) {
            const int64_t left = end - i, at = first + i;
            const vreal d = v_load_some(t, x, i, left, 0) - p.mean,
                        gamma = v_load_some(V_NATIVE, w->gamma, at, left, 0);
            if (relu) spread_to(&p, w, of, at, left);
            const vreal g = passed(relu, &p, d, v_load_some(t, dy, i, left, 0));
            if (dbetas) {
                v_store_some(V_NATIVE, dbetas, at, left, v_load_some(V_NATIVE, dbetas, at, left, 0) + g);
                v_store_some(V_NATIVE, dgammas, at, left,
                             v_fma(g * rstd, d, v_load_some(V_NATIVE, dgammas, at, left, 0)));
            }
            add_product(&s, 0, g * gamma, d);
        }
        add_products(&sums, &s);
    }
    return sums;
}

TNI_INLINE void backward_spread(const tn_type t, const bool relu, const work *w, int64_t n, int64_t g, real *dbetas) {
    const void *x = group_at(t, w, &w->x, n, g), *dy = group_at(t, w, &w->dy, n, g);
    const statistics of = statistics_of(t, w, x);
    const int64_t first = g * w->length;
    numbers p = {.mean = v_set(of.mean)};
    set_slopes(&p, w, &of, spread_products(t, relu, w, &of, x, dy, first, dbetas));
    void *dx = w->dx.data ? group_at(t, w, &w->dx, n, g) : NULL;
    for (int64_t i = 0; i < w->length && dx; i += VL) {
        const int64_t left = w->length - i;
        spread_to(&p, w, &of, first + i, left);
        const vreal d = v_load_some(t, x, i, left, 0) - p.mean;
        v_store_some(t, dx, i, left, passed_on(&p, d, passed(relu, &p, d, v_load_some(t, dy, i, left, 0))));
    }
}

/* Group g of the samples of a block. */
TNI_INLINE void backward_block(const tn_type t, const bool relu, const work *w, int64_t block, int64_t g) {
    const int64_t first = block * w->per_block, last = min(first + w->per_block, w->n), size = w->c * w->s;
    real *dbetas = w->spread_sums ? w->spread_sums + block * 2 * size : NULL;
    const size_t bytes = (size_t)w->length * sizeof(real);
    if (dbetas) {
        memset(dbetas + g * w->length, 0, bytes);
        memset(dbetas + size + g * w->length, 0, bytes);
    }
    for (int64_t n = first; n < last; n++) {
        if (w->spread)
            backward_spread(t, relu, w, n, g, dbetas);
        else
            backward_planes(t, relu, w, n, g);
    }
}

TNI_INLINE void backward_blocks(const tn_type t, const work *w, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
        if (w->relu)
            backward_block(t, true, w, r / w->groups, r % w->groups);
        else
            backward_block(t, false, w, r / w->groups, r % w->groups);
    }
}

static void backward_body(void *arg, int64_t begin, int64_t end) {
    const work *w = arg;
    V_BY_TYPE(w->type, backward_blocks, w, begin, end);
}

/* What a part (a sample or a block of them) has of channels first … first + width - 1, for dbeta (0) or dgamma (1). */
static void add_part(const work *w, int64_t part, int which, int64_t first, int64_t width, double *total) {
    if (!w->spread) {
        const double *from = w->sums + (part * 2 + which) * w->c + first;
        for (int64_t i = 0; i < width; i++) total[i] += from[i];
        return;
    }
    const real *from = w->spread_sums + ((part * 2 + which) * w->c + first) * w->s;
    for (int64_t i = 0; i < width; i++) {
        for (int64_t k = 0; k < w->s; k++) total[i] += (double)from[i * w->s + k];
    }
}

/* Adds the parts up in their order, tile by tile: those of dbeta, then those of dgamma. */
static void add_parts(void *arg, int64_t begin, int64_t end) {
    const work *w = arg;
    const int64_t tiles = ceil_div(w->c, TILE), parts = w->spread ? w->blocks : w->n;
    for (int64_t k = begin; k < end; k++) {
        const int which = k >= tiles;
        const tn_view *to = which ? w->dgamma : w->dbeta;
        const int64_t first = k % tiles * TILE, width = min(w->c - first, TILE);
        double total[TILE] = {0};
        if (!to) continue;
        for (int64_t part = 0; part < parts; part++) add_part(w, part, which, first, width, total);
        for (int64_t i = 0; i < width; i++) r_store(to->type, to->data, (first + i) * to->strides[0], (real)total[i]);
    }
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* (c) as `real`, spread over (c, s) where planes are short. */
static const real *spread_over(const work *w, const tn_view *v, real absent, real *buffer) {
    if (!w->spread) return reals_of(v, w->c, absent, buffer);
    for (int64_t c = 0; c < w->c; c++) {
        const real value = v ? r_load(v->type, v->data, c * v->strides[0]) : absent;
        for (int64_t i = 0; i < w->s; i++) buffer[c * w->s + i] = value;
    }
    return buffer;
}

/* Returns what is left of the workspace. */
static char *set_up(work *w, const tn_call *call, const tn_view *x, const tn_view *gamma, const tn_view *beta,
                    int64_t groups) {
    w->call = call;
    w->type = x->type;
    w->n = x->shape[0];
    w->c = x->shape[1];
    w->s = tn_product(x, 2, x->ndim);
    w->x = samples_of(x);
    w->groups = groups;
    w->each = groups > 0 ? w->c / groups : 0;
    w->length = w->each * w->s;
    w->spread = tni_group_norm_spreads(w->c, w->s);
    const int64_t size = w->spread ? w->c * w->s : w->c;
    real *buffer = call->workspace;
    w->gamma = spread_over(w, gamma, 1, buffer);
    w->beta = spread_over(w, beta, 0, buffer + size);
    return (char *)(buffer + round_up(2 * size, 2));
}

static tn_status forward(work *w) {
    if (w->length > 0) tn_parallel(w->call, w->n * w->groups, tni_row_grain(w->length), forward_body, w);
    return TN_OK;
}

static tn_status backward(work *w, char *rest) {
    const bool params = w->dgamma || w->dbeta;
    w->per_block = w->spread ? rows_summed_together(w->n) : 1;
    w->blocks = ceil_div(w->n, w->per_block);
    if (params && w->spread) w->spread_sums = (real *)rest;
    if (params && !w->spread) w->sums = (double *)rest;
    if (w->length > 0)
        tn_parallel(w->call, w->blocks * w->groups, tni_row_grain(w->per_block * w->length), backward_body, w);
    if (params) tn_parallel(w->call, 2 * ceil_div(w->c, TILE), tni_row_grain(w->n * TILE), add_parts, w);
    return TN_OK;
}

tn_status TNI_CPU(group_norm)(const tn_call *call, void *state) {
    (void)state;
    const group_norm_args a = group_norm_args_of(call);
    work w = {.relu = a.act != 0, .eps = a.eps, .y = samples_of(a.y)};
    set_up(&w, call, a.x, a.gamma, a.beta, a.groups);
    return forward(&w);
}

tn_status TNI_CPU(instance_norm)(const tn_call *call, void *state) {
    (void)state;
    const instance_norm_args a = instance_norm_args_of(call);
    work w = {.relu = a.act != 0, .eps = a.eps, .y = samples_of(a.y)};
    set_up(&w, call, a.x, a.gamma, a.beta, a.x->shape[1]);
    return forward(&w);
}

tn_status TNI_CPU(group_norm_grad)(const tn_call *call, void *state) {
    (void)state;
    const group_norm_grad_args a = group_norm_grad_args_of(call);
    work w = {.relu = a.act != 0,
              .eps = a.eps,
              .dy = samples_of(a.dy),
              .dx = samples_of(a.dx),
              .dgamma = a.dgamma,
              .dbeta = a.dbeta};
    return backward(&w, set_up(&w, call, a.x, a.gamma, a.beta, a.groups));
}

tn_status TNI_CPU(instance_norm_grad)(const tn_call *call, void *state) {
    (void)state;
    const instance_norm_grad_args a = instance_norm_grad_args_of(call);
    work w = {.relu = a.act != 0,
              .eps = a.eps,
              .dy = samples_of(a.dy),
              .dx = samples_of(a.dx),
              .dgamma = a.dgamma,
              .dbeta = a.dbeta};
    return backward(&w, set_up(&w, call, a.x, a.gamma, a.beta, a.x->shape[1]));
}
