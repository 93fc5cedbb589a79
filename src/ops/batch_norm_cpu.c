/* batch_norm, vectorised: forward. Compiled once per instruction set and precision (src/cpu/variants.h). x is read for
 * the statistics and again to be normalised; in planes a channel is still in the cache then. */
#include "batch_norm.h"

#include <math.h>

#include "moments.h"

enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { MOMENTUM, EPS, ACT };
enum { Y, MEAN, RSTD };

enum { AT_X, AT_RESIDUAL, AT_Y }; /* the tensors of tni_channels */

enum {
    TILE = TNI_BATCH_NORM_TILE,
    DEEP = 256,          /* rows of columns summed up in `real` before they are merged in double */
    FIRST = 8,           /* rows that give the columns' shifts */
    TOGETHER = 8,        /* rows that are worked on at once */
    LINE = 64 / V_BYTES, /* vectors in a cache line */
};

typedef struct forward {
    const tn_call *call;
    tni_channels ch;
    tn_type type;
    const void *x, *residual;
    void *y;
    bool relu;
    moments *parts;             /* planes: (c, blocks), columns: (blocks + 1, width) */
    real *mean, *scale, *shift; /* columns: (width) */
} forward;

/* y = act((x - mean) * scale + shift + residual) */
typedef struct affine {
    real mean, scale, shift;
} affine;

/* From a channel's moments to everything that is one number per channel. */
static affine finish(const forward *f, int64_t k, moments all) {
    const tn_call *call = f->call;
    const tn_view *gamma = tn_in(call, GAMMA), *beta = tn_in(call, BETA);
    const tn_view *mean = tn_out(call, MEAN), *rstd = tn_out(call, RSTD);
    const tn_view *running_mean = tn_in(call, RUNNING_MEAN), *running_var = tn_in(call, RUNNING_VAR);
    const double variance = all.m2 / all.n, momentum = call->attrs[MOMENTUM].f;
    const real r = (real)(1 / sqrt(variance + call->attrs[EPS].f));
    ((real *)mean->data)[k * mean->strides[0]] = (real)all.mean;
    ((real *)rstd->data)[k * rstd->strides[0]] = r;
    if (all.n > 0) {
        float *m = (float *)running_mean->data + k * running_mean->strides[0];
        float *v = (float *)running_var->data + k * running_var->strides[0];
        const double unbiased = all.n > 1 ? all.m2 / (all.n - 1) : variance;
        *m = (float)((1 - momentum) * *m + momentum * all.mean);
        *v = (float)((1 - momentum) * *v + momentum * unbiased);
    }
    /* The backward pass computes scale in the same way, so that relu cuts off the same elements. */
    const real g = gamma ? r_load(gamma->type, gamma->data, k * gamma->strides[0]) : 1;
    return (affine){.mean = (real)all.mean,
                    .scale = g * r,
                    .shift = beta ? r_load(beta->type, beta->data, k * beta->strides[0]) : 0};
}

/* ---- planes ------------------------------------------------------------------------------------------------------ */

/* Infinities would have made the mean NaN; the plain sum says what it is. */
static double plane_plain_mean(const forward *f, int64_t k) {
    double sum = 0;
    tni_plane_run run = tni_plane_first(&f->ch, 0, f->ch.m);
    do {
        const int64_t at = tni_plane_at(&f->ch, &run, k, AT_X);
        for (int64_t i = 0; i < run.n; i++) sum += (double)r_load(f->type, f->x, at + i);
    } while (tni_plane_next(&f->ch, &run));
    return sum / (double)f->ch.m;
}

/* The mean of the first few values: a shift for moments.h. */
static real few_mean(const forward *f, int64_t k, int64_t begin, int64_t end) {
    const int64_t few = smaller(end - begin, 32);
    double sum = 0;
    tni_plane_run run = tni_plane_first(&f->ch, begin, begin + few);
    do {
        const int64_t at = tni_plane_at(&f->ch, &run, k, AT_X);
        for (int64_t i = 0; i < run.n; i++) sum += (double)r_load(f->type, f->x, at + i);
    } while (tni_plane_next(&f->ch, &run));
    return (real)(sum / (double)few);
}

/* Values begin … end - 1 of channel k. Short runs share a part (moments.h), and a shift: the mean of those before. */
TNI_INLINE moments plane_moments(const tn_type t, const forward *f, int64_t k, int64_t begin, int64_t end) {
    const bool is_short = f->ch.size < MOMENTS_FIRST * VL;
    moments all = {.mean = is_short ? (double)few_mean(f, k, begin, end) : 0};
    shifted s = {0};
    int64_t count = 0, runs = 0;
    tni_plane_run run = tni_plane_first(&f->ch, begin, end);
    do {
        const int64_t at = tni_plane_at(&f->ch, &run, k, AT_X);
        for (int64_t i = 0, n; i < run.n; i += n) {
            n = smaller(run.n - i, MOMENTS_PART - count);
            const void *p = v_from(t, f->x, at + i);
            if (count == 0) s = is_short ? (shifted){.shift = (real)all.mean} : shifted_begin(t, p, n);
            shifted_add(t, &s, p, n);
            count += n;
            if (count == MOMENTS_PART || ++runs == 64) {
                moments_merge(&all, shifted_end(&s, count));
                count = runs = 0;
            }
        }
    } while (tni_plane_next(&f->ch, &run));
    if (count > 0) moments_merge(&all, shifted_end(&s, count));
    return all;
}

/* Residual and activation of some vectors, the last of which may have only `left` elements. */
TNI_INLINE void end_vectors(const tn_type t, const int count, bool relu, const void *residual, int64_t left, vreal *v) {
    if (residual) {
        for (int k = 0; k < count; k++) v[k] += v_load_some(t, residual, k * VL, left, 0);
    }
    if (relu) {
        for (int k = 0; k < count; k++) v[k] = v_atleast(v[k], v_set(0));
    }
}

/* Elements i … of a run. */
TNI_INLINE void apply_vectors(const tn_type t, const int count, bool relu, const affine *a, const void *x,
                              const void *residual, int64_t i, int64_t left, vreal *v) {
    for (int k = 0; k < count; k++) {
        const vreal d = v_load_some(t, v_from(t, x, i), k * VL, left, 0) - a->mean;
        v[k] = v_fma(d, v_set(a->scale), v_set(a->shift));
    }
    end_vectors(t, count, relu, residual ? v_from(t, residual, i) : NULL, left, v);
}

/* n elements side by side. The last vector is computed first and stored last: it may overlap the one before, also
 * where y is x. */
TNI_INLINE void apply_run(const tn_type t, bool relu, const affine a, const void *x, const void *residual, void *y,
                          int64_t n) {
    const int64_t end = n >= VL ? n - VL : 0;
    vreal last, v[4];
    apply_vectors(t, 1, relu, &a, x, residual, end, n, &last);
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        apply_vectors(t, 4, relu, &a, x, residual, i, VL, v);
        for (int k = 0; k < 4; k++) v_store(t, v_to(t, y, i), k * VL, v[k]);
    }
    for (; i < end; i += VL) {
        apply_vectors(t, 1, relu, &a, x, residual, i, VL, v);
        v_store(t, y, i, v[0]);
    }
    if (i < n) v_store_some(t, y, end, n, last);
}

TNI_INLINE void normalise_plane(const tn_type t, const forward *f, int64_t k, affine a, int64_t begin, int64_t end) {
    tni_plane_run run = tni_plane_first(&f->ch, begin, end);
    do {
        const void *x = v_from(t, f->x, tni_plane_at(&f->ch, &run, k, AT_X)), *residual = NULL;
        if (f->residual) residual = v_from(t, f->residual, tni_plane_at(&f->ch, &run, k, AT_RESIDUAL));
        apply_run(t, f->relu, a, x, residual, v_to(t, f->y, tni_plane_at(&f->ch, &run, k, AT_Y)), run.n);
    } while (tni_plane_next(&f->ch, &run));
}

static affine finish_plane(const forward *f, int64_t k, moments all) {
    if (!isfinite(all.mean)) all.mean = plane_plain_mean(f, k);
    return finish(f, k, all);
}

/* Channels, each as a whole. */
TNI_INLINE void whole_planes(const tn_type t, const forward *f, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) {
        const affine a = finish_plane(f, k, plane_moments(t, f, k, 0, f->ch.m));
        normalise_plane(t, f, k, a, 0, f->ch.m);
    }
}

/* Few channels: blocks of them, first for the moments, then to be normalised. */
TNI_INLINE void plane_blocks(const tn_type t, const forward *f, const affine *done, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i / f->ch.blocks, first = i % f->ch.blocks * f->ch.per_block;
        const int64_t last = smaller(first + f->ch.per_block, f->ch.m);
        if (done)
            normalise_plane(t, f, k, done[k], first, last);
        else
            f->parts[i] = plane_moments(t, f, k, first, last);
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* The sums of d = x - shift and of d * d over some rows, for a tile of columns. */
typedef struct tile {
    real shift[TILE], sum[TILE], squares[TILE];
} tile;

TNI_INLINE void add_vectors(const tn_type t, const int width, tile *s, const void *const *rows, int count, int64_t i,
                            int64_t left) {
    vreal shift[LINE], sum[LINE] = {0}, squares[LINE] = {0};
    for (int k = 0; k < width; k++) shift[k] = v_load_some(V_NATIVE, s->shift + i, k * VL, left, 0);
    for (int r = 0; r < count; r++) {
        for (int k = 0; k < width; k++) {
            const vreal d = v_load_some(t, v_from(t, rows[r], i), k * VL, left, 0) - shift[k];
            sum[k] += d;
            squares[k] = v_fma(d, d, squares[k]);
        }
    }
    for (int k = 0; k < width; k++) {
        sum[k] += v_load_some(V_NATIVE, s->sum + i, k * VL, left, 0);
        squares[k] += v_load_some(V_NATIVE, s->squares + i, k * VL, left, 0);
    }
    for (int k = 0; k < width; k++) {
        v_store_some(V_NATIVE, s->sum + i, k * VL, left, sum[k]);
        v_store_some(V_NATIVE, s->squares + i, k * VL, left, squares[k]);
    }
}

/* Adds `count` rows from `row` on, their columns `first` … . */
TNI_INLINE void add_rows(const tn_type t, const forward *f, tile *s, tni_row row, int64_t count, int64_t first,
                         int64_t width) {
    const void *rows[TOGETHER];
    for (int64_t r = 0, n; r < count; r += n) {
        n = smaller(count - r, TOGETHER);
        for (int64_t k = 0; k < n; k++, tni_row_next(&f->ch.rows, &row))
            rows[k] = v_from(t, f->x, row.at[AT_X] + first);
        int64_t i = 0;
        for (; i + LINE * VL <= width; i += LINE * VL) add_vectors(t, LINE, s, rows, (int)n, i, VL);
        for (; i < width; i += VL) add_vectors(t, 1, s, rows, (int)n, i, width - i);
    }
}

static void clear_tile(tile *s, int64_t width) {
    memset(s->sum, 0, (size_t)width * sizeof(real));
    memset(s->squares, 0, (size_t)width * sizeof(real));
}

/* Merges the moments of `count` rows, at most DEEP, into those of the columns. The first few rows give the shift. */
TNI_INLINE void tile_moments(const tn_type t, const forward *f, tni_row row, int64_t count, int64_t first,
                             int64_t width, moments *all) {
    tile s;
    const int64_t few = smaller(count, FIRST);
    memset(s.shift, 0, (size_t)width * sizeof(real));
    for (int pass = 0; pass < 2; pass++) {
        clear_tile(&s, width);
        add_rows(t, f, &s, row, pass == 0 ? few : count, first, width);
        for (int64_t i = 0; i < width && pass == 0; i++) s.shift[i] = s.sum[i] / (real)few;
    }
    for (int64_t i = 0; i < width; i++)
        moments_merge(&all[i], moments_of_sums((double)count, s.shift[i], s.sum[i], s.squares[i]));
}

/* The rest of folded rows lies behind the last of them. */
static tni_row rest_row(const tni_channels *ch) {
    tni_row row = {0};
    for (int v = 0; v < ch->rows.n_views; v++) row.at[v] = ch->rows.count * ch->width;
    return row;
}

/* Tile i % tiles of block i / tiles; the block behind the last is the rest. */
TNI_INLINE void column_moments(const tn_type t, const forward *f, int64_t i) {
    const tni_channels *ch = &f->ch;
    const int64_t tiles = pieces(ch->width, TILE), block = i / tiles, first = i % tiles * TILE;
    const int64_t width = smaller(ch->width - first, TILE);
    moments *all = f->parts + block * ch->width + first;
    memset(all, 0, (size_t)width * sizeof *all);
    const bool rest = block == ch->blocks;
    const int64_t begin = rest ? 0 : block * ch->per_block,
                  end = rest ? 1 : smaller(begin + ch->per_block, ch->rows.count);
    const int64_t there = rest ? smaller(width, ch->rest - first) : width;
    for (int64_t r = begin; r < end && there > 0; r += DEEP) {
        const tni_row row = rest ? rest_row(ch) : tni_row_at(&ch->rows, r);
        tile_moments(t, f, row, smaller(end - r, DEEP), first, there, all);
    }
}

static double column_plain_mean(const forward *f, int64_t k) {
    const tni_channels *ch = &f->ch;
    double sum = 0;
    for (int64_t r = 0; r < ch->rows.count; r++) {
        const int64_t at = tni_row_at(&ch->rows, r).at[AT_X];
        for (int64_t i = k; i < ch->width; i += ch->c) sum += (double)r_load(f->type, f->x, at + i);
    }
    for (int64_t i = k; i < ch->rest; i += ch->c) sum += (double)r_load(f->type, f->x, ch->rows.count * ch->width + i);
    return sum / (double)ch->m;
}

/* Channel k from the moments of its columns in all blocks. */
static void finish_column(const forward *f, int64_t k) {
    const tni_channels *ch = &f->ch;
    moments all = {.n = (double)ch->m};
    for (int64_t block = 0; block <= ch->blocks; block++) {
        const moments *p = f->parts + block * ch->width;
        for (int64_t i = k; i < ch->width; i += ch->c) all.mean += p[i].n * p[i].mean;
    }
    all.mean /= all.n;
    for (int64_t block = 0; block <= ch->blocks; block++) {
        const moments *p = f->parts + block * ch->width;
        for (int64_t i = k; i < ch->width; i += ch->c)
            all.m2 += p[i].m2 + p[i].n * (p[i].mean - all.mean) * (p[i].mean - all.mean);
    }
    if (!isfinite(all.mean)) all.mean = column_plain_mean(f, k);
    const affine a = finish(f, k, all);
    for (int64_t i = k; i < ch->width; i += ch->c) {
        f->mean[i] = a.mean;
        f->scale[i] = a.scale;
        f->shift[i] = a.shift;
    }
}

typedef struct apply_row {
    const void *x, *residual;
    void *y;
} apply_row;

TNI_INLINE void apply_columns(const tn_type t, const int width, const forward *f, const apply_row *rows, int count,
                              int64_t i, int64_t left) {
    vreal mean[LINE], scale[LINE], shift[LINE], v[LINE];
    for (int k = 0; k < width; k++) {
        mean[k] = v_load_some(V_NATIVE, f->mean + i, k * VL, left, 0);
        scale[k] = v_load_some(V_NATIVE, f->scale + i, k * VL, left, 0);
        shift[k] = v_load_some(V_NATIVE, f->shift + i, k * VL, left, 0);
    }
    const bool relu = f->relu;
    for (const apply_row *row = rows; row < rows + count; row++) {
        const void *x = v_from(t, row->x, i);
        for (int k = 0; k < width; k++) v[k] = v_fma(v_load_some(t, x, k * VL, left, 0) - mean[k], scale[k], shift[k]);
        end_vectors(t, width, relu, row->residual ? v_from(t, row->residual, i) : NULL, left, v);
        for (int k = 0; k < width; k++) v_store_some(t, v_to(t, row->y, i), k * VL, left, v[k]);
    }
}

TNI_INLINE void normalise_rows(const tn_type t, const forward *f, tni_row row, int64_t count, int64_t width) {
    apply_row rows[TOGETHER];
    for (int64_t r = 0, n; r < count; r += n) {
        n = smaller(count - r, TOGETHER);
        for (int64_t k = 0; k < n; k++, tni_row_next(&f->ch.rows, &row)) {
            rows[k].x = v_from(t, f->x, row.at[AT_X]);
            rows[k].residual = f->residual ? v_from(t, f->residual, row.at[AT_RESIDUAL]) : NULL;
            rows[k].y = v_to(t, f->y, row.at[AT_Y]);
        }
        int64_t i = 0;
        for (; i + LINE * VL <= width; i += LINE * VL) apply_columns(t, LINE, f, rows, (int)n, i, VL);
        for (; i < width; i += VL) apply_columns(t, 1, f, rows, (int)n, i, width - i);
    }
}

/* Rows begin … end - 1, where row rows.count is the rest. */
TNI_INLINE void normalise_columns(const tn_type t, const forward *f, int64_t begin, int64_t end) {
    const tni_channels *ch = &f->ch;
    const bool rest = end > ch->rows.count;
    for (int part = 0; part < 1 + rest; part++) {
        const int64_t count = part ? 1 : smaller(end, ch->rows.count) - begin;
        if (count > 0)
            normalise_rows(t, f, part ? rest_row(ch) : tni_row_at(&ch->rows, begin), count,
                           part ? ch->rest : ch->width);
    }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

typedef enum stage { WHOLE_PLANES, PLANE_BLOCKS, COLUMN_MOMENTS, COLUMN_FINISH, COLUMN_APPLY } stage;

typedef struct loop {
    const forward *f;
    stage stage;
    const affine *done; /* of PLANE_BLOCKS the second time */
} loop;

TNI_INLINE void do_stage(const tn_type t, const loop *l, int64_t begin, int64_t end) {
    const forward *f = l->f;
    switch (l->stage) {
    case WHOLE_PLANES: whole_planes(t, f, begin, end); break;
    case PLANE_BLOCKS: plane_blocks(t, f, l->done, begin, end); break;
    case COLUMN_MOMENTS:
        for (int64_t i = begin; i < end; i++) column_moments(t, f, i);
        break;
    case COLUMN_FINISH:
        for (int64_t i = begin; i < end; i++) finish_column(f, i);
        break;
    case COLUMN_APPLY: normalise_columns(t, f, begin, end); break;
    }
}

static void body(void *arg, int64_t begin, int64_t end) {
    const loop *l = arg;
    if (V_HALVES && l->f->type == TN_F16)
        do_stage(TN_F16, l, begin, end);
    else if (V_HALVES && l->f->type == TN_BF16)
        do_stage(TN_BF16, l, begin, end);
    else
        do_stage(V_NATIVE, l, begin, end);
}

static void run_stage(const forward *f, stage s, const affine *done, int64_t n, int64_t work) {
    loop l = {f, s, done};
    tn_parallel(f->call, n, grain_of(work), body, &l);
}

static void run_planes(const forward *f) {
    const tni_channels *ch = &f->ch;
    if (ch->blocks == 1) {
        run_stage(f, WHOLE_PLANES, NULL, ch->c, ch->m);
        return;
    }
    affine done[16]; /* more channels are not divided */
    run_stage(f, PLANE_BLOCKS, NULL, ch->c * ch->blocks, ch->per_block);
    for (int64_t k = 0; k < ch->c; k++) {
        moments all = {0};
        for (int64_t block = 0; block < ch->blocks; block++) moments_merge(&all, f->parts[k * ch->blocks + block]);
        done[k] = finish_plane(f, k, all);
    }
    run_stage(f, PLANE_BLOCKS, done, ch->c * ch->blocks, ch->per_block);
}

static void run_columns(const forward *f) {
    const tni_channels *ch = &f->ch;
    const int64_t tiles = pieces(ch->width, TILE);
    run_stage(f, COLUMN_MOMENTS, NULL, (ch->blocks + 1) * tiles, ch->per_block * smaller(ch->width, TILE));
    run_stage(f, COLUMN_FINISH, NULL, ch->c, 16 * ch->blocks * ch->fold);
    run_stage(f, COLUMN_APPLY, NULL, ch->rows.count + (ch->rest > 0), ch->width);
}

tn_status TNI_CPU(batch_norm)(const tn_call *call, void *state) {
    (void)state;
    const tn_view *views[] = {tn_in(call, X), tn_in(call, RESIDUAL), tn_out(call, Y)};
    forward f = {.call = call,
                 .ch = tni_channels_of(views, 3),
                 .type = views[0]->type,
                 .x = views[0]->data,
                 .residual = views[1] ? views[1]->data : NULL,
                 .y = views[2]->data,
                 .relu = call->attrs[ACT].choice == 1,
                 .parts = call->workspace};
    f.mean = (real *)((double *)call->workspace + tni_channels_sums(&f.ch, 3));
    f.scale = f.mean + f.ch.width;
    f.shift = f.scale + f.ch.width;
    if (f.ch.m == 0) {
        for (int64_t k = 0; k < f.ch.c; k++) finish(&f, k, (moments){.mean = NAN});
    } else if (f.ch.columns) {
        run_columns(&f);
    } else {
        run_planes(&f);
    }
    return TN_OK;
}
