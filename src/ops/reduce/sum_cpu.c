/* sum and mean, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h). x is read once,
 * in the order of its memory, whatever the axes. Some hundred numbers at a time are added up in `real`, and those sums
 * in double, so that the error does not grow with the count. */
#include "sum.h"

#include "cpu/short_rows.h"
#include "ops/runs.h"

enum {
    PART = 1024,                   /* elements of a row added up in `real` */
    SHALLOW = 64,                  /* the same where they are added one by one */
    DEEP = 256,                    /* rows of columns added up in `real` */
    TOGETHER = 8,                  /* rows of columns added to the running sums at once */
    NARROW = 64,                   /* columns that are few */
    NARROW_TOGETHER = TNI_SUM_FEW, /* rows of few columns added to the running sums at once */
    LINE = 128 / V_BYTES,          /* vectors in a cache line of 16-bit elements */
    COPY = 16384,                  /* elements that sum_grad writes as one unit of work */
};

typedef struct job {
    tni_sum s;
    tn_type type;
    const void *x;
    void *y;
    double *parts; /* (parts, outputs), where they are added up in the end */
    bool mean;     /* sums are divided */
    double count;  /* by how many elements they are of */
} job;

/* What becomes of a sum. */
TNI_INLINE double result_of(const job *j, double sum) {
    return j->mean ? sum / j->count : sum;
}

TNI_INLINE vreal results_of(const job *j, vreal sums) {
    return j->mean ? sums / v_set((real)j->count) : sums;
}

/* The result for output `o`, which is y[at], or a part of it. */
TNI_INLINE void put(const tn_type t, const job *j, int64_t part, int64_t o, int64_t at, double value) {
    if (j->s.sums > 0)
        j->parts[part * j->s.outputs + o] = value;
    else
        r_store(t, j->y, at, (real)result_of(j, value));
}

/* ---- rows: the innermost dimension is summed up ------------------------------------------------------------------ */

TNI_INLINE double sum_dense(const tn_type t, const void *p, int64_t count) {
    double total = 0;
    for (int64_t begin = 0, n; begin < count; begin += n) {
        n = min(count - begin, PART);
        const void *from = r_at(t, p, begin);
        vreal sum[4] = {0};
        int64_t i = 0;
        for (; i + 4 * VL <= n; i += 4 * VL) {
            for (int k = 0; k < 4; k++) sum[k] += v_load(t, r_at(t, from, i), k * VL);
        }
        for (; i + VL <= n; i += VL) sum[0] += v_load(t, from, i);
        if (i < n) sum[1] += load_tail(t, from, i, n - i, 0);
        total += (double)v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    return total;
}

TNI_INLINE double sum_apart(const tn_type t, const void *p, int64_t n, int64_t step) {
    double total = 0;
    for (int64_t i = 0; i < n;) {
        double part = 0;
        for (const int64_t end = min(n, i + SHALLOW); i < end; i++) part += (double)r_load(t, p, i * step);
        total += part;
    }
    return total;
}

TNI_INLINE double sum_run(const tn_type t, const void *p, int64_t n, int64_t step) {
    return step == 1 && n >= VL ? sum_dense(t, p, n) : sum_apart(t, p, n, step);
}

TNI_INLINE double sum_units(const tn_type t, const job *j, const void *p, int64_t begin, int64_t end) {
    const int64_t per_row = ceil_div(j->s.n, TNI_SUM_PIECE);
    if (begin >= end) return 0;
    tni_row row = tni_row_at(&j->s.reduced, begin / per_row);
    double total = 0;
    for (int64_t unit = begin, k = begin % per_row; unit < end; unit++) {
        const int64_t from = k * TNI_SUM_PIECE, n = min(j->s.n - from, TNI_SUM_PIECE);
        total += sum_run(t, r_at(t, p, row.at[0] + from * j->s.step), n, j->s.step);
        if (++k == per_row) {
            k = 0;
            tni_row_next(&j->s.reduced, &row);
        }
    }
    return total;
}

/* Rows that are an output each: `count` of them, x_stride apart, with results y_stride apart. */
TNI_INLINE void sum_plain_rows(const tn_type t, const job *j, const void *x, int64_t x_stride, void *y,
                               int64_t y_stride, int64_t count) {
    const int64_t n = j->s.n, step = j->s.step;
    if (step == 1 && n <= SHORT) {
        const short_rows s = short_rows_of(count, n, x_stride, 0);
        for (int64_t i = 0; i < count; i++) {
            vreal sum = short_last(t, &s, x, i);
            for (int k = 0; k < s.whole; k++) sum += v_load(t, x, i * x_stride + k * VL);
            r_store(t, y, i * y_stride, (real)result_of(j, (double)v_sum(sum)));
        }
    } else if (step == 1) {
        for (int64_t i = 0; i < count; i++)
            r_store(t, y, i * y_stride, (real)result_of(j, sum_dense(t, r_at(t, x, i * x_stride), n)));
    } else if (n <= SHALLOW) {
        for (int64_t i = 0; i < count; i++) {
            double total = 0;
            for (int64_t k = 0; k < n; k++) total += (double)r_load(t, x, i * x_stride + k * step);
            r_store(t, y, i * y_stride, (real)result_of(j, total));
        }
    } else {
        for (int64_t i = 0; i < count; i++)
            r_store(t, y, i * y_stride, (real)result_of(j, sum_apart(t, r_at(t, x, i * x_stride), n, step)));
    }
}

TNI_INLINE void sum_each_row(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_rows *kept = &j->s.kept;
    const int last = kept->n_dims - 1;
    const int64_t size = last >= 0 ? kept->shape[last] : 1;
    const int64_t *strides = kept->strides[last >= 0 ? last : 0];
    for (int64_t o = begin, count; o < end; o += count) {
        count = min(end - o, size - o % size);
        const tni_row at = tni_row_at(kept, o);
        sum_plain_rows(t, j, r_at(t, j->x, at.at[0]), strides[0], r_at(t, j->y, at.at[1]), strides[1], count);
    }
}

/* Short rows of many outputs, in the order of memory: every unit adds one row to each output. */
TNI_INLINE void sum_interleaved(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_sum *s = &j->s;
    for (int64_t part = begin; part < end; part++) {
        double *totals = j->parts + part * s->outputs;
        const int64_t first = part * s->per_part, last = min(first + s->per_part, s->units);
        memset(totals, 0, (size_t)s->outputs * sizeof(double));
        tni_row unit = tni_row_at(&s->reduced, first);
        for (int64_t u = first; u < last; u++, tni_row_next(&s->reduced, &unit)) {
            tni_row at = tni_row_at(&s->kept, 0);
            for (int64_t o = 0; o < s->outputs; o++, tni_row_next(&s->kept, &at))
                totals[o] += sum_run(t, r_at(t, j->x, unit.at[0] + at.at[0]), s->n, s->step);
        }
    }
}

TNI_INLINE void sum_rows(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_sum *s = &j->s;
    for (int64_t i = begin; i < end; i++) {
        const int64_t part = i / s->outputs, o = i % s->outputs, first = part * s->per_part;
        const tni_row at = tni_row_at(&s->kept, o);
        const double total = sum_units(t, j, r_at(t, j->x, at.at[0]), first, min(first + s->per_part, s->units));
        put(t, j, part, o, at.at[1], total);
    }
}

/* ---- columns: the innermost dimension is kept -------------------------------------------------------------------- */

/* The running sums of some columns: `sums` of the last rows in `real`, `total` of those before them. */
typedef struct columns {
    real sums[TNI_SUM_TILE];
    double total[TNI_SUM_TILE];
    int64_t width, depth;
    bool has_total; /* else it is not even set to 0 */
} columns;

static void columns_begin(columns *c, int64_t width) {
    c->width = width;
    c->depth = 0;
    c->has_total = false;
    memset(c->sums, 0, (size_t)width * sizeof(real));
}

static void columns_flush(columns *c) {
    if (!c->has_total) memset(c->total, 0, (size_t)c->width * sizeof(double));
    for (int64_t i = 0; i < c->width; i++) c->total[i] += (double)c->sums[i];
    memset(c->sums, 0, (size_t)c->width * sizeof(real));
    c->depth = 0;
    c->has_total = true;
}

/* The sums of `count` rows in `width` vectors of columns; the last vector may have only `left` columns. Even and odd
 * rows are added apart: two chains of additions instead of one. `ahead`: bytes to the rows that come next, whose lines
 * are asked for, since the machine expects no steps from row to row; 0: none do. */
TNI_INLINE void sum_vectors(const tn_type t, const int width, const void *p, int64_t count, int64_t stride,
                            int64_t ahead, int64_t left, vreal *sum) {
    const int64_t down = stride * (int64_t)tn_type_size(t);
    const char *x = p; /* a pointer that moves: compilers make vectors of two that are multiplied out */
    vreal odd[LINE] = {0};
    int64_t r = 0;
    for (int k = 0; k < width; k++) sum[k] = (vreal){0};
    for (; r + 2 <= count; r += 2, x += 2 * down) {
        if (ahead > 0) {
            __builtin_prefetch(x + ahead);
            __builtin_prefetch(x + down + ahead);
        }
        for (int k = 0; k < width; k++) sum[k] += v_load_some(t, x, k * VL, left, 0);
        for (int k = 0; k < width; k++) odd[k] += v_load_some(t, x + down, k * VL, left, 0);
    }
    for (int k = 0; k < width && r < count; k++) sum[k] += v_load_some(t, x, k * VL, left, 0);
    for (int k = 0; k < width; k++) sum[k] += odd[k];
}

/* Vectors in a cache line of memory. */
TNI_INLINE int line_of(const tn_type t) {
    return t == V_NATIVE ? LINE / 2 : LINE;
}

/* sums += `count` rows */
TNI_INLINE void add_rows(const tn_type t, const void *p, int64_t count, int64_t stride, int64_t ahead, int64_t width,
                         real *sums) {
    const int line = line_of(t);
    int64_t i = 0;
    vreal sum[LINE];
    for (; i + line * VL <= width; i += line * VL) {
        sum_vectors(t, line, r_at(t, p, i), count, stride, ahead, VL, sum);
        for (int k = 0; k < line; k++) v_store(V_NATIVE, sums, i + k * VL, v_load(V_NATIVE, sums, i + k * VL) + sum[k]);
    }
    for (; i < width; i += VL) {
        sum_vectors(t, 1, r_at(t, p, i), count, stride, 0, width - i, sum);
        v_store_some(V_NATIVE, sums, i, width - i, v_load_some(V_NATIVE, sums, i, width - i, 0) + sum[0]);
    }
}

/* So few rows that the sums of a vector of columns are the result at once. */
TNI_INLINE void sum_few_rows(const tn_type t, const job *j, const void *p, int64_t count, int64_t stride, int64_t width,
                             void *y) {
    const int line = line_of(t);
    int64_t i = 0;
    vreal sum[LINE];
    for (; i + line * VL <= width; i += line * VL) {
        sum_vectors(t, line, r_at(t, p, i), count, stride, 0, VL, sum);
        for (int k = 0; k < line; k++) v_store(t, y, i + k * VL, results_of(j, sum[k]));
    }
    for (; i < width; i += VL) {
        sum_vectors(t, 1, r_at(t, p, i), count, stride, 0, width - i, sum);
        v_store_some(t, y, i, width - i, results_of(j, sum[0]));
    }
}

/* How many rows are added to the running sums of so many columns at once. */
static int64_t rows_together(int64_t width) {
    return width <= NARROW ? NARROW_TOGETHER : TOGETHER;
}

/* Rows `stride` apart, whose columns lie side by side, as many at once as fit into the nearest cache together. */
TNI_INLINE void add_block(const tn_type t, columns *c, const void *p, int64_t rows, int64_t stride) {
    const int64_t together = rows_together(c->width);
    const int64_t ahead = together * stride * (int64_t)tn_type_size(t);
    for (int64_t r = 0, count; r < rows; r += count) {
        count = min(rows - r, together);
        add_rows(t, r_at(t, p, r * stride), count, stride, r + count < rows ? ahead : 0, c->width, c->sums);
        c->depth += count;
        if (c->depth >= DEEP) columns_flush(c);
    }
}

/* Rows that lie one behind the other are taken `fold` at a time, as one long row; c->width is that of the long row. */
TNI_INLINE void add_folded(const tn_type t, columns *c, const void *p, int64_t rows, int64_t fold) {
    const int64_t whole = rows / fold, rest = rows % fold * (c->width / fold);
    add_block(t, c, p, whole, c->width);
    add_rows(t, r_at(t, p, whole * c->width), 1, 0, 0, rest, c->sums);
    if (++c->depth >= DEEP) columns_flush(c);
}

TNI_INLINE void add_scattered(const tn_type t, columns *c, const void *p, int64_t rows, int64_t stride, int64_t step) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c->width; i++) c->sums[i] += r_load(t, p, r * stride + i * step);
        if (++c->depth >= SHALLOW) columns_flush(c);
    }
}

/* Units begin … end - 1 of the columns from p on. */
TNI_INLINE void add_units(const tn_type t, const job *j, columns *c, const void *p, int64_t begin, int64_t end) {
    const tni_sum *s = &j->s;
    const int last = s->reduced.n_dims - 1;
    const int64_t size = last >= 0 ? s->reduced.shape[last] : 1, stride = last >= 0 ? s->reduced.strides[last][0] : 0;
    for (int64_t unit = begin, rows; unit < end; unit += rows) {
        rows = min(end - unit, size - unit % size);
        const void *from = r_at(t, p, tni_row_at(&s->reduced, unit).at[0]);
        if (s->step != 1)
            add_scattered(t, c, from, rows, stride, s->step);
        else if (s->fold > 1)
            add_folded(t, c, from, rows, s->fold);
        else
            add_block(t, c, from, rows, stride);
    }
}

/* Tiles begin … end - 1, each of so few rows that no sums are kept beside the result. */
TNI_INLINE void sum_few(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_sum *s = &j->s;
    const int64_t tiles = ceil_div(s->n, TNI_SUM_TILE), stride = s->reduced.n_dims > 0 ? s->reduced.strides[0][0] : 0;
    tni_row at = tni_row_at(&s->kept, begin / tiles);
    for (int64_t i = begin, tile = begin % tiles * TNI_SUM_TILE; i < end; i++) {
        const int64_t width = min(s->n - tile, TNI_SUM_TILE);
        sum_few_rows(t, j, r_at(t, j->x, at.at[0] + tile), s->units, stride, width, r_at(t, j->y, at.at[1] + tile));
        tile += width;
        if (tile < s->n) continue;
        tile = 0;
        tni_row_next(&s->kept, &at);
    }
}

/* The sums of columns, which are the result, or a part of it. */
TNI_INLINE void put_columns(const tn_type t, const job *j, int64_t part, int64_t o, int64_t at, const columns *c,
                            int64_t width) {
    const tni_sum *s = &j->s;
    if (s->sums > 0) {
        memcpy(j->parts + part * s->outputs + o, c->total, (size_t)width * sizeof *c->total);
    } else {
        for (int64_t k = 0; k < width; k++) r_store(t, j->y, at + k * s->y_step, (real)result_of(j, c->total[k]));
    }
}

TNI_INLINE void sum_columns(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_sum *s = &j->s;
    const bool plain = s->sums == 0 && s->fold == 1 && s->y_step == 1;
    const int64_t tiles = ceil_div(s->n, TNI_SUM_TILE);
    columns c;
    for (int64_t i = begin; i < end; i++) {
        const int64_t part = i / s->items, item = i % s->items, tile = item % tiles * TNI_SUM_TILE;
        const int64_t width = min(s->n - tile, TNI_SUM_TILE), first = part * s->per_part;
        const tni_row at = tni_row_at(&s->kept, item / tiles);
        columns_begin(&c, width * s->fold);
        add_units(t, j, &c, r_at(t, j->x, at.at[0] + tile * s->step), first, min(first + s->per_part, s->units));
        if (plain && !c.has_total) { /* so few rows that their sums are the result */
            for (int64_t k = 0; k < width; k += VL)
                v_store_some(t, r_at(t, j->y, at.at[1] + tile), k, width - k,
                             results_of(j, v_load_some(V_NATIVE, c.sums, k, width - k, 0)));
            continue;
        }
        columns_flush(&c);
        for (int64_t k = 0; k < width; k++) {
            for (int64_t f = 1; f < s->fold; f++) c.total[k] += c.total[f * width + k];
        }
        put_columns(t, j, part, item / tiles * s->n + tile, at.at[1] + tile * s->y_step, &c, width);
    }
}

/* Are the rows of columns so few that they are added up at once? */
static bool has_few_rows(const tni_sum *s) {
    const bool plain = s->sums == 0 && s->fold == 1 && s->step == 1 && s->y_step == 1 && s->reduced.n_dims <= 1;
    return plain && s->units <= rows_together(min(s->n, TNI_SUM_TILE));
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

TNI_INLINE void sum_items(const tn_type t, const job *j, int64_t begin, int64_t end) {
    if (j->s.interleaved)
        sum_interleaved(t, j, begin, end);
    else if (j->s.by_rows && j->s.units == 1)
        sum_each_row(t, j, begin, end);
    else if (j->s.by_rows)
        sum_rows(t, j, begin, end);
    else if (has_few_rows(&j->s))
        sum_few(t, j, begin, end);
    else
        sum_columns(t, j, begin, end);
}

static void sum_body(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->type, sum_items, j, begin, end);
}

/* The first part becomes the sum of all of them. */
static void add_parts(const job *j) {
    const tni_sum *s = &j->s;
    const int64_t inner = s->by_rows ? 1 : s->n;
    double *total = j->parts;
    for (int64_t part = 1; part < s->parts; part++) {
        const double *more = j->parts + part * s->outputs;
        for (int64_t o = 0; o < s->outputs; o++) total[o] += more[o];
    }
    tni_row at = tni_row_at(&s->kept, 0);
    for (int64_t o = 0; o < s->outputs; o += inner, tni_row_next(&s->kept, &at)) {
        for (int64_t k = 0; k < inner; k++)
            r_store(j->type, j->y, at.at[1] + k * s->y_step, (real)result_of(j, total[o + k]));
    }
}

static tn_status run_sum(const tn_call *call, bool mean) {
    const sum_args a = sum_args_of(call); /* mean has the same */
    if (tn_count(a.y) == 0) return TN_OK;
    job j = {.s = tni_sum_of(a.x, a.y, a.axes),
             .type = a.x->type,
             .x = a.x->data,
             .y = a.y->data,
             .parts = call->workspace,
             .mean = mean,
             .count = (double)(tn_count(a.x) / tn_count(a.y))};
    const int64_t items = j.s.items * j.s.parts;
    tn_parallel(call, items, tni_row_grain(tn_count(a.x) / items), sum_body, &j);
    if (j.s.sums > 0) add_parts(&j);
    return TN_OK;
}

tn_status TNI_CPU(sum)(const tn_call *call, void *state) {
    (void)state;
    return run_sum(call, false);
}

tn_status TNI_CPU(mean)(const tn_call *call, void *state) {
    (void)state;
    return run_sum(call, true);
}

/* ---- backward: dy repeated along the axes ------------------------------------------------------------------------ */

typedef struct spread {
    tni_rows rows; /* of dx, dy, the innermost dimension apart */
    int64_t n, to_step, from_step;
    char *dx;
    const char *dy;
} spread;

typedef uint16_t halves __attribute__((vector_size(V_BYTES)));
typedef uint32_t words __attribute__((vector_size(V_BYTES)));
typedef uint64_t longs __attribute__((vector_size(V_BYTES)));

/* The element's bits in every lane. Not through memory: a store elsewhere between two rows keeps some processors from
 * seeing that whole cache lines are written, and they read each line before they write it. */
TNI_INLINE vint repeated(const char *element, const size_t size) {
    uint64_t bits = 0;
    memcpy(&bits, element, size);
    if (size == 2) return (vint)((halves){0} + (uint16_t)bits);
    if (size == 4) return (vint)((words){0} + (uint32_t)bits);
    return (vint)((longs){0} + bits);
}

/* n copies of one element. Short runs have no use for a vector of many. */
TNI_INLINE void fill(char *to, const char *element, const size_t size, int64_t n) {
    int64_t left = n * (int64_t)size;
    if (left >= V_BYTES) {
        const vint v = repeated(element, size);
        for (; left >= 4 * V_BYTES; left -= 4 * V_BYTES, to += 4 * V_BYTES) {
            for (int k = 0; k < 4; k++) memcpy(to + k * V_BYTES, &v, sizeof v);
        }
        for (; left >= V_BYTES; left -= V_BYTES, to += V_BYTES) memcpy(to, &v, sizeof v);
    }
    for (; left > 0; left -= (int64_t)size, to += size) memcpy(to, element, size);
}

TNI_INLINE void spread_units(const size_t size, const spread *s, int64_t begin, int64_t end) {
    const int64_t bytes = (int64_t)size, per_row = ceil_div(s->n, COPY);
    tni_row row = tni_row_at(&s->rows, begin / per_row);
    for (int64_t unit = begin, k = begin % per_row; unit < end; unit++) {
        const int64_t first = k * COPY, n = min(s->n - first, COPY);
        char *to = s->dx + (row.at[0] + first * s->to_step) * bytes;
        const char *from = s->dy + (row.at[1] + first * s->from_step) * bytes;
        if (s->to_step == 1 && s->from_step == 1) {
            memcpy(to, from, (size_t)n * size);
        } else if (s->to_step == 1 && s->from_step == 0) {
            fill(to, from, size, n);
        } else {
            for (int64_t i = 0; i < n; i++) memcpy(to + i * s->to_step * bytes, from + i * s->from_step * bytes, size);
        }
        if (++k == per_row) {
            k = 0;
            tni_row_next(&s->rows, &row);
        }
    }
}

static void spread_halves(void *arg, int64_t begin, int64_t end) {
    spread_units(2, arg, begin, end);
}

static void spread_reals(void *arg, int64_t begin, int64_t end) {
    spread_units(sizeof(real), arg, begin, end);
}

tn_status TNI_CPU(sum_grad)(const tn_call *call, void *state) {
    (void)state;
    const sum_grad_args a = sum_grad_args_of(call);
    const tn_view *dy = a.dy, *dx = a.dx;
    if (tn_count(dx) == 0) return TN_OK;
    int64_t strides[TN_MAX_RANK], inner[TNI_ROWS_MAX] = {1, 1};
    tni_sum_strides(dx, dy, a.axes, strides);
    const tn_view wide = {.shape = dx->shape, .strides = strides, .ndim = dx->ndim};
    const tn_view *views[] = {dx, &wide};
    spread s = {.rows = tni_rows_of(views, 2, -1), .n = 1, .dx = dx->data, .dy = dy->data};
    if (s.rows.n_dims > 0) s.n = tni_rows_take(&s.rows, s.rows.n_dims - 1, inner);
    s.to_step = inner[0];
    s.from_step = inner[1];
    const tn_body body = dx->type == V_NATIVE ? spread_reals : spread_halves;
    tn_parallel(call, s.rows.count * ceil_div(s.n, COPY), tni_row_grain(min(s.n, COPY)), body, &s);
    return TN_OK;
}
