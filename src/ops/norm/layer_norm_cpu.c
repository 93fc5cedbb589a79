/* layer_norm, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h). */
#include "layer_norm.h"

#include <math.h>

#include "moments.h"
#include "norm.h"

/* ---- forward: x is read for the statistics, and again, from the cache, to be normalised -------------------------- */

typedef struct forward {
    tni_rows rows; /* of x, y, mean, rstd */
    tn_type type;
    const void *x;
    void *y;
    real *mean, *rstd;
    const real *gamma, *beta;
    double eps;
} forward;

/* Element i … of a row, as many vectors as there are at v. All loads come before the stores: the vectors are
 * independent, and y may be x. */
TNI_INLINE void normalise(const tn_type t, const real *gamma, const real *beta, const void *x, int64_t i, vreal mean,
                          vreal rstd, vreal *v, const int count) {
    for (int k = 0; k < count; k++) v[k] = (v_load(t, r_at(t, x, i), k * VL) - mean) * rstd;
    for (int k = 0; k < count; k++)
        v[k] = v_fma(v[k], v_load(V_NATIVE, gamma + i, k * VL), v_load(V_NATIVE, beta + i, k * VL));
}

/* The last vector is computed first and stored last: it may overlap the one before. */
TNI_INLINE void normalise_row(const tn_type t, const forward *f, const void *x, void *y, vreal mean, vreal rstd) {
    const int64_t n = f->rows.n, end = n - VL;
    const real *gamma = f->gamma, *beta = f->beta;
    if (end < 0) {
        const vreal v = (load_tail(t, x, 0, n, 0) - mean) * rstd;
        store_tail(t, y, 0, n, v_fma(v, load_tail(V_NATIVE, gamma, 0, n, 0), load_tail(V_NATIVE, beta, 0, n, 0)));
        return;
    }
    vreal last, v[4];
    normalise(t, gamma, beta, x, end, mean, rstd, &last, 1);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        normalise(t, gamma, beta, x, i, mean, rstd, v, 4);
        for (int k = 0; k < 4; k++) v_store(t, r_at(t, y, i), k * VL, v[k]);
    }
    for (; i < end; i += VL) {
        normalise(t, gamma, beta, x, i, mean, rstd, v, 1);
        v_store(t, y, i, v[0]);
    }
    if (i < n) v_store(t, y, end, last);
}

/* Infinities would have made it NaN; the plain sum says what it is. */
static double plain_mean(const tn_type t, const void *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)r_load(t, x, i);
    return sum / (double)n;
}

TNI_INLINE void forward_rows(const tn_type t, const forward *f, int64_t begin, int64_t end) {
    const int64_t n = f->rows.n;
    tni_row row = tni_row_at(&f->rows, begin);
    for (int64_t r = begin; r < end; r++, tni_row_next(&f->rows, &row)) {
        const void *x = r_at(t, f->x, row.at[0]);
        moments m = moments_of_run(t, x, n);
        if (!isfinite(m.mean) || n == 0) m.mean = plain_mean(t, x, n);
        const real mean = (real)m.mean, rstd = (real)(1 / sqrt(m.m2 / (double)n + f->eps));
        normalise_row(t, f, x, r_at(t, f->y, row.at[1]), v_set(mean), v_set(rstd));
        f->mean[row.at[2]] = mean;
        f->rstd[row.at[3]] = rstd;
    }
}

static void forward_body(void *arg, int64_t begin, int64_t end) {
    const forward *f = arg;
    V_BY_TYPE(f->type, forward_rows, f, begin, end);
}

tn_status TNI_CPU(layer_norm)(const tn_call *call, void *state) {
    (void)state;
    const layer_norm_args a = layer_norm_args_of(call);
    const tn_view *views[] = {a.x, a.y, a.mean, a.rstd};
    forward f = {.rows = tni_rows_of(views, 4, a.x->ndim - 1),
                 .type = a.x->type,
                 .x = a.x->data,
                 .y = a.y->data,
                 .mean = a.mean->data,
                 .rstd = a.rstd->data,
                 .eps = a.eps};
    const int64_t n = f.rows.n;
    f.gamma = reals_of(a.gamma, n, 1, call->workspace);
    f.beta = reals_of(a.beta, n, 0, (real *)call->workspace + n);
    tn_parallel(call, f.rows.count, tni_row_grain(n), forward_body, &f);
    return TN_OK;
}

/* ---- backward ------------------------------------------------------------------------------------------------------
 * Rows are taken four at a time, so that the running sums for dgamma and dbeta are loaded and stored once for all four.
 * A block of rows has sums of its own, (blocks, 2, c) in the workspace: the first row for dgamma, the second for dbeta.
 * Which rows make a block depends on the shape alone, and blocks are added up in their order: the same bits with any
 * number of threads. */

enum { TOGETHER = 4, LINE = 64 / V_BYTES, TILE = 64 };

typedef struct backward {
    tni_rows rows; /* of x, dy, dx, mean, rstd */
    tn_type type;
    const void *x, *dy;
    void *dx;
    const real *mean, *rstd, *gamma;
    bool params; /* dgamma or dbeta is wanted */
    real *sums;  /* (blocks, 2, c) */
    int64_t rows_per_block, blocks;
    const tn_view *dgamma, *dbeta;
} backward;

/* One row, and what is the same for all of it: with d = x - mean, dx = rstd * dy * gamma - shift - slope * d. */
typedef struct grad_row {
    const void *x, *dy;
    void *dx;
    real mean, rstd, shift, slope;
} grad_row;

typedef struct grad_sums {
    vreal g[4], dot[4];
} grad_sums;

TNI_INLINE void add_products(grad_sums *s, int k, vreal d, vreal dy, vreal gamma) {
    const vreal g = dy * gamma;
    s->g[k] += g;
    s->dot[k] = v_fma(g, d, s->dot[k]);
}

/* The sums of g = dy * gamma and of g * d along the row; in parts, as in moments.h. */
TNI_INLINE void sum_row(const tn_type t, const backward *b, grad_row *row) {
    const vreal mean = v_set(row->mean);
    double g = 0, dot = 0;
    for (int64_t begin = 0, n; begin < b->rows.n; begin += n) {
        n = min(b->rows.n - begin, MOMENTS_PART);
        const void *x = r_at(t, row->x, begin), *dy = r_at(t, row->dy, begin);
        const real *gamma = b->gamma + begin;
        grad_sums s = {0};
        int64_t i = 0;
        for (; i + 4 * VL <= n; i += 4 * VL) {
            const void *xi = r_at(t, x, i), *dyi = r_at(t, dy, i);
            for (int k = 0; k < 4; k++)
                add_products(&s, k, v_load(t, xi, k * VL) - mean, v_load(t, dyi, k * VL),
                             v_load(V_NATIVE, gamma + i, k * VL));
        }
        for (; i < n; i += VL) {
            const vreal d = v_load_some(t, x, i, n - i, row->mean) - mean;
            add_products(&s, 0, d, v_load_some(t, dy, i, n - i, 0), v_load_some(V_NATIVE, gamma, i, n - i, 0));
        }
        g += (double)v_sum((s.g[0] + s.g[1]) + (s.g[2] + s.g[3]));
        dot += (double)v_sum((s.dot[0] + s.dot[1]) + (s.dot[2] + s.dot[3]));
    }
    const double rstd = row->rstd, c = (double)b->rows.n;
    row->shift = (real)(rstd * g / c);
    row->slope = (real)(rstd * rstd * rstd * dot / c);
}

/* Elements i … of `count` rows, `width` vectors of them, of which the last may have only `left` elements. A row's
 * vectors together are a cache line: rows that lie a power of two apart fight for the same place in the cache. */
TNI_INLINE void grad_vectors(const tn_type t, const int width, const backward *b, const grad_row *rows, int count,
                             real *sums, int64_t i, int64_t left) {
    const bool dx = b->dx, params = b->params;
    const real *scale = b->gamma + i;
    real *dgammas = sums + i, *dbetas = sums + b->rows.n + i;
    vreal gamma[LINE], dgamma[LINE] = {0}, dbeta[LINE] = {0}, d[LINE], dy[LINE];
    for (int k = 0; k < width; k++) gamma[k] = v_load_some(V_NATIVE, scale, k * VL, left, 0);
    for (const grad_row *row = rows; row < rows + count; row++) {
        for (int k = 0; k < width; k++) d[k] = v_load_some(t, r_at(t, row->x, i), k * VL, left, 0) - row->mean;
        for (int k = 0; k < width; k++) dy[k] = v_load_some(t, r_at(t, row->dy, i), k * VL, left, 0);
        if (params) {
            for (int k = 0; k < width; k++) dbeta[k] += dy[k];
        }
        for (int k = 0; k < width; k++) dy[k] *= row->rstd;
        if (params) {
            for (int k = 0; k < width; k++) dgamma[k] = v_fma(dy[k], d[k], dgamma[k]);
        }
        if (dx) {
            for (int k = 0; k < width; k++)
                d[k] = v_fma(dy[k], gamma[k], v_fma(d[k], v_set(-row->slope), v_set(-row->shift)));
            for (int k = 0; k < width; k++) v_store_some(t, r_at(t, row->dx, i), k * VL, left, d[k]);
        }
    }
    if (params) {
        for (int k = 0; k < width; k++) {
            dgamma[k] += v_load_some(V_NATIVE, dgammas, k * VL, left, 0);
            dbeta[k] += v_load_some(V_NATIVE, dbetas, k * VL, left, 0);
        }
        for (int k = 0; k < width; k++) {
            v_store_some(V_NATIVE, dgammas, k * VL, left, dgamma[k]);
            v_store_some(V_NATIVE, dbetas, k * VL, left, dbeta[k]);
        }
    }
}

TNI_INLINE void grad_rows(const tn_type t, const backward *b, const grad_row *rows, int count, real *sums) {
    const int64_t n = b->rows.n;
    int64_t i = 0;
    for (; i + LINE * VL <= n; i += LINE * VL) grad_vectors(t, LINE, b, rows, count, sums, i, VL);
    for (; i < n; i += VL) grad_vectors(t, 1, b, rows, count, sums, i, n - i);
}

TNI_INLINE void backward_rows(const tn_type t, const backward *b, int64_t begin, int64_t end, real *sums) {
    tni_row at = tni_row_at(&b->rows, begin);
    grad_row rows[TOGETHER];
    for (int64_t r = begin, count; r < end; r += count) {
        count = min(end - r, TOGETHER);
        for (grad_row *row = rows; row < rows + count; row++, tni_row_next(&b->rows, &at)) {
            row->x = r_at(t, b->x, at.at[0]);
            row->dy = r_at(t, b->dy, at.at[1]);
            row->dx = b->dx ? r_at(t, b->dx, at.at[2]) : NULL;
            row->mean = b->mean[at.at[3]];
            row->rstd = b->rstd[at.at[4]];
            if (b->dx) sum_row(t, b, row);
        }
        grad_rows(t, b, rows, (int)count, sums);
    }
}

static void backward_block(void *arg, int64_t first, int64_t last) {
    const backward *b = arg;
    const int64_t c = b->rows.n;
    for (int64_t k = first; k < last; k++) {
        real *sums = b->sums + 2 * c * k;
        const int64_t begin = k * b->rows_per_block, end = min(begin + b->rows_per_block, b->rows.count);
        if (b->params && c > 0) memset(sums, 0, 2 * (size_t)c * sizeof(real));
        V_BY_TYPE(b->type, backward_rows, b, begin, end, sums);
    }
}

/* Adds the blocks up: columns first * TILE … of dgamma, then of dbeta. */
static void add_blocks(void *arg, int64_t first, int64_t last) {
    const backward *b = arg;
    const int64_t c = b->rows.n, tiles = ceil_div(c, TILE);
    for (int64_t k = first; k < last; k++) {
        const tn_view *to = k < tiles ? b->dgamma : b->dbeta;
        if (!to) continue;
        const int64_t begin = k % tiles * TILE, width = min(c - begin, TILE);
        double total[TILE] = {0};
        for (int64_t block = 0; block < b->blocks; block++) {
            const real *sums = b->sums + (2 * block + (k >= tiles)) * c + begin;
            for (int64_t i = 0; i < width; i++) total[i] += (double)sums[i];
        }
        for (int64_t i = 0; i < width; i++) r_store(to->type, to->data, (begin + i) * to->strides[0], (real)total[i]);
    }
}

tn_status TNI_CPU(layer_norm_grad)(const tn_call *call, void *state) {
    (void)state;
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const tn_view *views[] = {a.x, a.dy, a.dx, a.mean, a.rstd};
    backward b = {.rows = tni_rows_of(views, 5, a.x->ndim - 1),
                  .type = a.x->type,
                  .x = a.x->data,
                  .dy = a.dy->data,
                  .dx = data_of(a.dx),
                  .mean = a.mean->data,
                  .rstd = a.rstd->data,
                  .dgamma = a.dgamma,
                  .dbeta = a.dbeta};
    const int64_t c = b.rows.n, rows = b.rows.count;
    b.params = b.dgamma || b.dbeta;
    b.gamma = reals_of(a.gamma, c, 1, call->workspace);
    b.sums = (real *)call->workspace + c;
    b.rows_per_block = rows_summed_together(rows);
    b.blocks = ceil_div(rows, b.rows_per_block);
    if (b.dx || b.params) tn_parallel(call, b.blocks, tni_row_grain(b.rows_per_block * c), backward_block, &b);
    if (b.params) tn_parallel(call, 2 * ceil_div(c, TILE), tni_row_grain(b.blocks * TILE), add_blocks, &b);
    return TN_OK;
}
