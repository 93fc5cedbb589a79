/* batch_norm, vectorised: backward. Compiled once per instruction set and precision (src/cpu/variants.h). With
 * d = x - mean and g what passes the activation, the sums of g and of g * d come first, then every element. */
#include "batch_norm.h"
#include "moments.h"

enum { X, GAMMA, BETA, RESIDUAL, MEAN, RSTD, DY };
enum { ACT };
enum { DX, DGAMMA, DBETA, DRESIDUAL };

enum { AT_X, AT_RESIDUAL, AT_DY, AT_DX, AT_DRESIDUAL }; /* the tensors of tni_channels */

enum {
    TILE = TNI_BATCH_NORM_TILE,
    DEEP = 256,          /* rows of columns summed up in `real` before that is added in double */
    TOGETHER = 8,        /* rows that are worked on at once */
    LINE = 64 / V_BYTES, /* vectors in a cache line */
};

/* Of a channel: z = d * scale + beta, dx = (g - shift - slope * d) * scale. */
typedef struct channel {
    real mean, scale, beta, shift, slope;
} channel;

typedef struct backward {
    const tn_call *call;
    tni_channels ch;
    tn_type type;
    bool relu;
    const void *x, *residual, *dy;
    void *dx, *dresidual;
    double *sums; /* of g, then of g * d: planes (c, blocks, 2), columns (blocks + 1, 2, width) */
    real *mean, *scale, *beta, *shift, *slope; /* columns: (width) */
} backward;

static real number(const backward *b, int input, int64_t k, real absent) {
    const tn_view *v = tn_in(b->call, input);
    return v ? r_load(v->type, v->data, k * v->strides[0]) : absent;
}

static channel channel_of(const backward *b, int64_t k) {
    return (channel){.mean = number(b, MEAN, k, 0),
                     .scale = number(b, GAMMA, k, 1) * number(b, RSTD, k, 0),
                     .beta = number(b, BETA, k, 0)};
}

/* Adds what the sums decide, and writes dgamma and dbeta. */
static void finish(const backward *b, int64_t k, double sum, double dot, channel *c) {
    const tn_view *dgamma = tn_out(b->call, DGAMMA), *dbeta = tn_out(b->call, DBETA);
    const double rstd = (double)number(b, RSTD, k, 0);
    c->shift = (real)(sum / (double)b->ch.m);
    c->slope = (real)(rstd * rstd * dot / (double)b->ch.m);
    if (dgamma) r_store(dgamma->type, dgamma->data, k * dgamma->strides[0], (real)(dot * rstd));
    if (dbeta) r_store(dbeta->type, dbeta->data, k * dbeta->strides[0], (real)sum);
}

/* Makes g of dy: 0 where relu cut off, computed as in the forward pass. NaN passes. The last of the vectors may have
 * only `left` elements. */
TNI_INLINE void gate(const tn_type t, const int count, const vreal *scale, const vreal *beta, const void *residual,
                     int64_t left, const vreal *d, vreal *g) {
    vreal z[LINE > 4 ? LINE : 4];
    for (int k = 0; k < count; k++) z[k] = v_fma(d[k], scale[k], beta[k]);
    if (residual) {
        for (int k = 0; k < count; k++) z[k] += v_load_some(t, residual, k * VL, left, 0);
    }
    for (int k = 0; k < count; k++) g[k] = (vreal)((vint)g[k] & ~(vint)(z[k] <= 0));
}

/* ---- planes ------------------------------------------------------------------------------------------------------ */

typedef struct run {
    const void *x, *residual, *dy;
    void *dx, *dresidual;
    int64_t n;
} run;

TNI_INLINE run run_of(const tn_type t, const backward *b, const tni_plane_run *p, int64_t k) {
    run r = {.x = v_from(t, b->x, tni_plane_at(&b->ch, p, k, AT_X)),
             .dy = v_from(t, b->dy, tni_plane_at(&b->ch, p, k, AT_DY)),
             .n = p->n};
    if (b->residual) r.residual = v_from(t, b->residual, tni_plane_at(&b->ch, p, k, AT_RESIDUAL));
    if (b->dx) r.dx = v_to(t, b->dx, tni_plane_at(&b->ch, p, k, AT_DX));
    if (b->dresidual) r.dresidual = v_to(t, b->dresidual, tni_plane_at(&b->ch, p, k, AT_DRESIDUAL));
    return r;
}

/* Elements i …: `count` vectors of d and of g, the last of which may have only `left` elements. */
TNI_INLINE void load_run(const tn_type t, const int count, bool relu, const run *r, const channel *c, int64_t i,
                         int64_t left, vreal *d, vreal *g) {
    for (int k = 0; k < count; k++) d[k] = v_load_some(t, v_from(t, r->x, i), k * VL, left, c->mean) - c->mean;
    for (int k = 0; k < count; k++) g[k] = v_load_some(t, v_from(t, r->dy, i), k * VL, left, 0);
    if (relu) {
        const vreal scale[4] = {v_set(c->scale), v_set(c->scale), v_set(c->scale), v_set(c->scale)};
        const vreal beta[4] = {v_set(c->beta), v_set(c->beta), v_set(c->beta), v_set(c->beta)};
        gate(t, count, scale, beta, r->residual ? v_from(t, r->residual, i) : NULL, left, d, g);
    }
}

TNI_INLINE void sum_run(const tn_type t, bool relu, const run *r, const channel *c, double *sum, double *dot) {
    for (int64_t begin = 0, end; begin < r->n; begin = end) {
        end = smaller(begin + MOMENTS_PART, r->n);
        vreal sums[4] = {0}, dots[4] = {0}, d[4], g[4];
        int64_t i = begin;
        for (; i + 4 * VL <= end; i += 4 * VL) {
            load_run(t, 4, relu, r, c, i, VL, d, g);
            for (int k = 0; k < 4; k++) sums[k] += g[k];
            for (int k = 0; k < 4; k++) dots[k] = v_fma(g[k], d[k], dots[k]);
        }
        for (; i < end; i += VL) {
            load_run(t, 1, relu, r, c, i, end - i, d, g);
            sums[0] += g[0];
            dots[0] = v_fma(g[0], d[0], dots[0]);
        }
        *sum += (double)v_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
        *dot += (double)v_sum((dots[0] + dots[1]) + (dots[2] + dots[3]));
    }
}

TNI_INLINE void store_run(const tn_type t, const int count, const run *r, const channel *c, int64_t i, int64_t left,
                          vreal *d, const vreal *g) {
    for (int k = 0; k < count; k++) d[k] = v_fma(d[k], v_set(-c->slope), g[k] - c->shift) * c->scale;
    if (r->dx) {
        for (int k = 0; k < count; k++) v_store_some(t, v_to(t, r->dx, i), k * VL, left, d[k]);
    }
    if (r->dresidual) {
        for (int k = 0; k < count; k++) v_store_some(t, v_to(t, r->dresidual, i), k * VL, left, g[k]);
    }
}

TNI_INLINE void apply_run(const tn_type t, bool relu, const run *r, const channel *c) {
    vreal d[4], g[4];
    int64_t i = 0;
    for (; i + 4 * VL <= r->n; i += 4 * VL) {
        load_run(t, 4, relu, r, c, i, VL, d, g);
        store_run(t, 4, r, c, i, VL, d, g);
    }
    for (; i < r->n; i += VL) {
        load_run(t, 1, relu, r, c, i, r->n - i, d, g);
        store_run(t, 1, r, c, i, r->n - i, d, g);
    }
}

/* Values begin … end - 1 of channel k: sums[0] of g, sums[1] of g * d. */
TNI_INLINE void sum_plane(const tn_type t, const backward *b, int64_t k, channel c, int64_t begin, int64_t end,
                          double *sums) {
    tni_plane_run at = tni_plane_first(&b->ch, begin, end);
    sums[0] = sums[1] = 0;
    do {
        const run r = run_of(t, b, &at, k);
        sum_run(t, b->relu, &r, &c, &sums[0], &sums[1]);
    } while (tni_plane_next(&b->ch, &at));
}

TNI_INLINE void apply_plane(const tn_type t, const backward *b, int64_t k, channel c, int64_t begin, int64_t end) {
    if (!b->dx && !b->dresidual) return;
    tni_plane_run at = tni_plane_first(&b->ch, begin, end);
    do {
        const run r = run_of(t, b, &at, k);
        apply_run(t, b->relu, &r, &c);
    } while (tni_plane_next(&b->ch, &at));
}

/* Channels, each as a whole: the second time it comes from the cache. */
TNI_INLINE void whole_planes(const tn_type t, const backward *b, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) {
        double sums[2];
        channel c = channel_of(b, k);
        sum_plane(t, b, k, c, 0, b->ch.m, sums);
        finish(b, k, sums[0], sums[1], &c);
        apply_plane(t, b, k, c, 0, b->ch.m);
    }
}

/* Few channels: blocks of them, first for the sums, then for the elements. */
TNI_INLINE void plane_blocks(const tn_type t, const backward *b, const channel *done, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i / b->ch.blocks, first = i % b->ch.blocks * b->ch.per_block;
        const int64_t last = smaller(first + b->ch.per_block, b->ch.m);
        if (done)
            apply_plane(t, b, k, done[k], first, last);
        else
            sum_plane(t, b, k, channel_of(b, k), first, last, b->sums + 2 * i);
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Where one row begins, or a tile of it. */
typedef struct grad_row {
    const void *x, *residual, *dy;
    void *dx, *dresidual;
} grad_row;

TNI_INLINE grad_row row_of(const tn_type t, const backward *b, const tni_row *row, int64_t first) {
    grad_row r = {.x = v_from(t, b->x, row->at[AT_X] + first), .dy = v_from(t, b->dy, row->at[AT_DY] + first)};
    if (b->residual) r.residual = v_from(t, b->residual, row->at[AT_RESIDUAL] + first);
    if (b->dx) r.dx = v_to(t, b->dx, row->at[AT_DX] + first);
    if (b->dresidual) r.dresidual = v_to(t, b->dresidual, row->at[AT_DRESIDUAL] + first);
    return r;
}

/* The numbers of `width` vectors of columns. */
typedef struct numbers {
    vreal mean[LINE], scale[LINE], beta[LINE];
} numbers;

TNI_INLINE numbers numbers_at(const backward *b, const int width, int64_t i, int64_t left) {
    numbers c;
    for (int k = 0; k < width; k++) {
        c.mean[k] = v_load_some(V_NATIVE, b->mean + i, k * VL, left, 0);
        c.scale[k] = v_load_some(V_NATIVE, b->scale + i, k * VL, left, 0);
        c.beta[k] = v_load_some(V_NATIVE, b->beta + i, k * VL, left, 0);
    }
    return c;
}

/* d and g of columns i … of a row. */
TNI_INLINE void load_row(const tn_type t, const int width, bool relu, const grad_row *r, const numbers *c, int64_t i,
                         int64_t left, vreal *d, vreal *g) {
    for (int k = 0; k < width; k++) d[k] = v_load_some(t, v_from(t, r->x, i), k * VL, left, 0) - c->mean[k];
    for (int k = 0; k < width; k++) g[k] = v_load_some(t, v_from(t, r->dy, i), k * VL, left, 0);
    if (relu) gate(t, width, c->scale, c->beta, r->residual ? v_from(t, r->residual, i) : NULL, left, d, g);
}

typedef struct tile {
    real sum[TILE], dot[TILE];
} tile;

/* Columns i … of the tile, which are columns first + i … of the rows. */
TNI_INLINE void add_vectors(const tn_type t, const int width, const backward *b, tile *s, const grad_row *rows,
                            int count, int64_t first, int64_t i, int64_t left) {
    const numbers c = numbers_at(b, width, first + i, left);
    const bool relu = b->relu;
    vreal sum[LINE] = {0}, dot[LINE] = {0}, d[LINE], g[LINE];
    for (const grad_row *row = rows; row < rows + count; row++) {
        load_row(t, width, relu, row, &c, i, left, d, g);
        for (int k = 0; k < width; k++) sum[k] += g[k];
        for (int k = 0; k < width; k++) dot[k] = v_fma(g[k], d[k], dot[k]);
    }
    for (int k = 0; k < width; k++) {
        sum[k] += v_load_some(V_NATIVE, s->sum + i, k * VL, left, 0);
        dot[k] += v_load_some(V_NATIVE, s->dot + i, k * VL, left, 0);
    }
    for (int k = 0; k < width; k++) {
        v_store_some(V_NATIVE, s->sum + i, k * VL, left, sum[k]);
        v_store_some(V_NATIVE, s->dot + i, k * VL, left, dot[k]);
    }
}

/* Adds the sums over `count` rows, at most DEEP, to those of the columns. */
TNI_INLINE void tile_sums(const tn_type t, const backward *b, tni_row row, int64_t count, int64_t first, int64_t width,
                          double *sums, double *dots) {
    tile s;
    grad_row rows[TOGETHER];
    memset(s.sum, 0, (size_t)width * sizeof(real));
    memset(s.dot, 0, (size_t)width * sizeof(real));
    for (int64_t r = 0, n; r < count; r += n) {
        n = smaller(count - r, TOGETHER);
        for (int64_t k = 0; k < n; k++, tni_row_next(&b->ch.rows, &row)) rows[k] = row_of(t, b, &row, first);
        int64_t i = 0;
        for (; i + LINE * VL <= width; i += LINE * VL) add_vectors(t, LINE, b, &s, rows, (int)n, first, i, VL);
        for (; i < width; i += VL) add_vectors(t, 1, b, &s, rows, (int)n, first, i, width - i);
    }
    for (int64_t i = 0; i < width; i++) sums[i] += (double)s.sum[i];
    for (int64_t i = 0; i < width; i++) dots[i] += (double)s.dot[i];
}

/* The rest of folded rows lies behind the last of them. */
static tni_row rest_row(const tni_channels *ch) {
    tni_row row = {0};
    for (int v = 0; v < ch->rows.n_views; v++) row.at[v] = ch->rows.count * ch->width;
    return row;
}

/* Tile i % tiles of block i / tiles; the block behind the last is the rest. */
TNI_INLINE void column_sums(const tn_type t, const backward *b, int64_t i) {
    const tni_channels *ch = &b->ch;
    const int64_t tiles = pieces(ch->width, TILE), block = i / tiles, first = i % tiles * TILE;
    const int64_t width = smaller(ch->width - first, TILE);
    double *sums = b->sums + 2 * block * ch->width + first, *dots = sums + ch->width;
    memset(sums, 0, (size_t)width * sizeof(double));
    memset(dots, 0, (size_t)width * sizeof(double));
    const bool rest = block == ch->blocks;
    const int64_t begin = rest ? 0 : block * ch->per_block,
                  end = rest ? 1 : smaller(begin + ch->per_block, ch->rows.count);
    const int64_t there = rest ? smaller(width, ch->rest - first) : width;
    for (int64_t r = begin; r < end && there > 0; r += DEEP) {
        const tni_row row = rest ? rest_row(ch) : tni_row_at(&ch->rows, r);
        tile_sums(t, b, row, smaller(end - r, DEEP), first, there, sums, dots);
    }
}

static void begin_column(const backward *b, int64_t k) {
    const channel c = channel_of(b, k);
    for (int64_t i = k; i < b->ch.width; i += b->ch.c) {
        b->mean[i] = c.mean;
        b->scale[i] = c.scale;
        b->beta[i] = c.beta;
    }
}

static void finish_column(const backward *b, int64_t k) {
    const tni_channels *ch = &b->ch;
    double sum = 0, dot = 0;
    for (int64_t block = 0; block <= ch->blocks; block++) {
        const double *sums = b->sums + 2 * block * ch->width, *dots = sums + ch->width;
        for (int64_t i = k; i < ch->width; i += ch->c) {
            sum += sums[i];
            dot += dots[i];
        }
    }
    channel c = channel_of(b, k);
    finish(b, k, sum, dot, &c);
    for (int64_t i = k; i < ch->width; i += ch->c) {
        b->shift[i] = c.shift;
        b->slope[i] = -c.slope;
    }
}

TNI_INLINE void apply_vectors(const tn_type t, const int width, const backward *b, const grad_row *rows, int count,
                              int64_t i, int64_t left) {
    const numbers c = numbers_at(b, width, i, left);
    const bool relu = b->relu;
    vreal shift[LINE], slope[LINE], d[LINE], g[LINE];
    for (int k = 0; k < width; k++) {
        shift[k] = v_load_some(V_NATIVE, b->shift + i, k * VL, left, 0);
        slope[k] = v_load_some(V_NATIVE, b->slope + i, k * VL, left, 0);
    }
    for (const grad_row *row = rows; row < rows + count; row++) {
        load_row(t, width, relu, row, &c, i, left, d, g);
        for (int k = 0; k < width; k++) d[k] = v_fma(d[k], slope[k], g[k] - shift[k]) * c.scale[k];
        if (row->dx) {
            for (int k = 0; k < width; k++) v_store_some(t, v_to(t, row->dx, i), k * VL, left, d[k]);
        }
        if (row->dresidual) {
            for (int k = 0; k < width; k++) v_store_some(t, v_to(t, row->dresidual, i), k * VL, left, g[k]);
        }
    }
}

TNI_INLINE void apply_rows(const tn_type t, const backward *b, tni_row row, int64_t count, int64_t width) {
    grad_row rows[TOGETHER];
    for (int64_t r = 0, n; r < count; r += n) {
        n = smaller(count - r, TOGETHER);
        for (int64_t k = 0; k < n; k++, tni_row_next(&b->ch.rows, &row)) rows[k] = row_of(t, b, &row, 0);
        int64_t i = 0;
        for (; i + LINE * VL <= width; i += LINE * VL) apply_vectors(t, LINE, b, rows, (int)n, i, VL);
        for (; i < width; i += VL) apply_vectors(t, 1, b, rows, (int)n, i, width - i);
    }
}

/* Rows begin … end - 1, where row rows.count is the rest. */
TNI_INLINE void apply_columns(const tn_type t, const backward *b, int64_t begin, int64_t end) {
    const tni_channels *ch = &b->ch;
    const bool rest = end > ch->rows.count;
    for (int part = 0; part < 1 + rest; part++) {
        const int64_t count = part ? 1 : smaller(end, ch->rows.count) - begin;
        if (count > 0)
            apply_rows(t, b, part ? rest_row(ch) : tni_row_at(&ch->rows, begin), count, part ? ch->rest : ch->width);
    }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

typedef enum stage { WHOLE_PLANES, PLANE_BLOCKS, COLUMN_SUMS, COLUMN_FINISH, COLUMN_APPLY } stage;

typedef struct loop {
    const backward *b;
    stage stage;
    const channel *done; /* of PLANE_BLOCKS the second time */
} loop;

TNI_INLINE void do_stage(const tn_type t, const loop *l, int64_t begin, int64_t end) {
    const backward *b = l->b;
    switch (l->stage) {
    case WHOLE_PLANES: whole_planes(t, b, begin, end); break;
    case PLANE_BLOCKS: plane_blocks(t, b, l->done, begin, end); break;
    case COLUMN_SUMS:
        for (int64_t i = begin; i < end; i++) column_sums(t, b, i);
        break;
    case COLUMN_FINISH:
        for (int64_t i = begin; i < end; i++) finish_column(b, i);
        break;
    case COLUMN_APPLY: apply_columns(t, b, begin, end); break;
    }
}

static void body(void *arg, int64_t begin, int64_t end) {
    const loop *l = arg;
    if (V_HALVES && l->b->type == TN_F16)
        do_stage(TN_F16, l, begin, end);
    else if (V_HALVES && l->b->type == TN_BF16)
        do_stage(TN_BF16, l, begin, end);
    else
        do_stage(V_NATIVE, l, begin, end);
}

static void run_stage(const backward *b, stage s, const channel *done, int64_t n, int64_t work) {
    loop l = {b, s, done};
    tn_parallel(b->call, n, grain_of(work), body, &l);
}

static void run_planes(const backward *b) {
    const tni_channels *ch = &b->ch;
    if (ch->blocks == 1) {
        run_stage(b, WHOLE_PLANES, NULL, ch->c, ch->m);
        return;
    }
    channel done[16]; /* more channels are not divided */
    run_stage(b, PLANE_BLOCKS, NULL, ch->c * ch->blocks, ch->per_block);
    for (int64_t k = 0; k < ch->c; k++) {
        double sum = 0, dot = 0;
        for (int64_t i = k * ch->blocks; i < (k + 1) * ch->blocks; i++) {
            sum += b->sums[2 * i];
            dot += b->sums[2 * i + 1];
        }
        done[k] = channel_of(b, k);
        finish(b, k, sum, dot, &done[k]);
    }
    run_stage(b, PLANE_BLOCKS, done, ch->c * ch->blocks, ch->per_block);
}

static void run_columns(const backward *b) {
    const tni_channels *ch = &b->ch;
    const int64_t tiles = pieces(ch->width, TILE);
    for (int64_t k = 0; k < ch->c; k++) begin_column(b, k);
    run_stage(b, COLUMN_SUMS, NULL, (ch->blocks + 1) * tiles, ch->per_block * smaller(ch->width, TILE));
    run_stage(b, COLUMN_FINISH, NULL, ch->c, 16 * ch->blocks * ch->fold);
    if (!b->dx && !b->dresidual) return;
    run_stage(b, COLUMN_APPLY, NULL, ch->rows.count + (ch->rest > 0), ch->width);
}

/* A batch without values: sums of nothing. */
static void finish_empty(const backward *b) {
    const tn_view *outputs[] = {tn_out(b->call, DGAMMA), tn_out(b->call, DBETA)};
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; outputs[i] && k < b->ch.c; k++)
            r_store(outputs[i]->type, outputs[i]->data, k * outputs[i]->strides[0], 0);
    }
}

tn_status TNI_CPU(batch_norm_grad)(const tn_call *call, void *state) {
    (void)state;
    const tn_view *residual = tn_in(call, RESIDUAL), *dx = tn_out(call, DX), *dresidual = tn_out(call, DRESIDUAL);
    const tn_view *views[] = {tn_in(call, X), residual, tn_in(call, DY), dx, dresidual};
    backward b = {.call = call,
                  .ch = tni_channels_of(views, 5),
                  .type = views[0]->type,
                  .x = views[0]->data,
                  .relu = call->attrs[ACT].choice == 1,
                  .dy = views[2]->data,
                  .dx = dx ? dx->data : NULL,
                  .dresidual = dresidual ? dresidual->data : NULL,
                  .sums = call->workspace};
    if (b.relu && residual) b.residual = residual->data;
    b.mean = (real *)(b.sums + tni_channels_sums(&b.ch, 2));
    b.scale = b.mean + b.ch.width;
    b.beta = b.scale + b.ch.width;
    b.shift = b.beta + b.ch.width;
    b.slope = b.shift + b.ch.width;
    if (b.ch.m == 0)
        finish_empty(&b);
    else if (b.ch.columns)
        run_columns(&b);
    else
        run_planes(&b);
    return TN_OK;
}
