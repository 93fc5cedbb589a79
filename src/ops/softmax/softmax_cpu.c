/* softmax, vectorised. Three ways through memory:
 *   rows      the axis has stride 1 in x and y: a row at a time;
 *   columns   another dimension has: neighbouring columns side by side, a lane for each (softmax_columns_cpu.c);
 *   gathered  neither: a row is collected into a buffer, done there and spread again.
 * Each finds the largest score, then the exponentials and their sum, then the quotients. The exponentials wait in y, or
 * in a buffer for the 16-bit types; only what does not fit there is computed twice.
 *
 * y = e / sum(e) with e = exp(scale * x - m), for any number m. We take the largest score as it was rounded, so that
 * one fused multiply-add makes the exponent. Where the mask takes an element out, the exponent is -inf. The largest
 * element that is kept adds 1 to the sum. A smaller sum shows that a kept element was NaN or +inf, that all kept ones
 * were -inf, or that none was kept. Such a row is NaN where kept and 0 elsewhere. */
#include "softmax_cpu.h"

/* One row that lies together, without a mask. */
static void do_row(const spans *s, const void *x, void *y, int64_t n, real scale) {
    if (s->native) {
        const real sum = TNI_CPU(span_exp)(x, y, n, scale, shift_of(s->max(x, n, scale)));
        s->scale(y, y, n, 1 / sum);
    } else if (n <= SPAN) {
        real e[SPAN];
        const real shift = shift_of(s->scores(x, NULL, e, n, scale));
        s->scale(e, y, n, 1 / TNI_CPU(span_exp)(e, e, n, 1, shift));
    } else {
        const real shift = shift_of(s->max(x, n, scale));
        s->exp(x, y, n, scale, shift, 1 / s->sum(x, n, scale, shift));
    }
}

static void do_run(const spans *s, const row_run *run, real scale) {
    if (run->n <= SHORT) {
        s->short_rows(run, scale);
        return;
    }
    for (int64_t r = 0; r < run->count; r++)
        do_row(s, span_at(s, run->x, r * run->apart_x), span_at(s, run->y, r * run->apart_y), run->n, scale);
}

/* A row of any strides, with or without a mask: n of its elements take part. */
typedef struct any_row {
    const void *x;
    const uint8_t *mask; /* NULL: none */
    void *y;
    int64_t n, step_x, step_mask, step_y;
    real scale;
} any_row;

/* The scores of elements i … i + n - 1; returns the largest. */
static real gather_scores(const spans *s, const any_row *r, int64_t i, int64_t n, real *scores) {
    const spans *native = TNI_CPU(spans_of)(V_NATIVE);
    const uint8_t *mask = r->mask ? r->mask + i * r->step_mask : NULL;
    const void *x = span_at(s, r->x, i * r->step_x);
    if (r->step_x == 1 && (!mask || r->step_mask == 1)) return s->scores(x, mask, scores, n, r->scale);
    s->gather(x, r->step_x, scores, n);
    native->scores(scores, NULL, scores, n, r->scale);
    for (int64_t k = 0; mask && k < n; k++) {
        if (!mask[k * r->step_mask]) scores[k] = -(real)INFINITY;
    }
    return native->max(scores, n, 1);
}

/* NaN where kept, 0 elsewhere: a row without a proper sum. */
static void write_improper(const spans *s, const any_row *r) {
    for (int64_t i = 0; i < r->n; i++) {
        const real value = r->mask && !r->mask[i * r->step_mask] ? 0 : (real)NAN;
        s->scatter(&value, span_at(s, r->y, i * r->step_y), 1, 1);
    }
}

/* What fits into the buffer is gathered and computed once. */
static void do_any_row(const spans *s, const any_row *r) {
    real e[SPAN], most = -(real)INFINITY, sum = 0;
    for (int64_t i = 0; i < r->n; i += SPAN) {
        const real span = gather_scores(s, r, i, min(r->n - i, SPAN), e);
        most = span > most ? span : most;
    }
    const real shift = shift_of(most);
    for (int64_t i = 0; i < r->n; i += SPAN) {
        if (r->n > SPAN) gather_scores(s, r, i, min(r->n - i, SPAN), e);
        sum += TNI_CPU(span_exp)(e, e, min(r->n - i, SPAN), 1, shift);
    }
    if (!is_proper(sum)) {
        write_improper(s, r);
        return;
    }
    for (int64_t i = 0; i < r->n; i += SPAN) {
        const int64_t n = min(r->n - i, SPAN);
        void *y = span_at(s, r->y, i * r->step_y);
        if (r->n > SPAN) gather_scores(s, r, i, n, e);
        if (r->n > SPAN) TNI_CPU(span_exp)(e, e, n, 1, shift);
        if (r->step_y != 1) TNI_CPU(spans_of)(V_NATIVE)->scale(e, e, n, 1 / sum);
        if (r->step_y == 1)
            s->scale(e, y, n, 1 / sum);
        else
            s->scatter(e, y, r->step_y, n);
    }
}

static void do_any_rows(const softmax_job *j, const spans *s, int64_t begin, int64_t end) {
    const tni_rows *rows = &j->rows;
    const int64_t n = rows->n, step_mask = rows->step[ROW_MASK];
    tni_row row = tni_row_at(rows, begin);
    for (int64_t k = begin; k < end; k++, tni_row_next(rows, &row)) {
        any_row r = {
            .x = span_at(s, j->x, row.at[ROW_X]),
            .mask = j->mask ? j->mask + row.at[ROW_MASK] : NULL,
            .y = span_at(s, j->y, row.at[ROW_Y]),
            .n = j->causal ? min(j->visible + row.at[ROW_QUERY], n) : n,
            .step_x = rows->step[ROW_X],
            .step_mask = step_mask,
            .step_y = rows->step[ROW_Y],
            .scale = j->scale,
        };
        if (r.mask && step_mask == 0 && !*r.mask) r.n = 0;
        if (r.mask && step_mask == 0) r.mask = NULL;
        if (r.n < 0) r.n = 0;
        if (!r.mask && r.step_x == 1 && r.step_y == 1)
            do_row(s, r.x, r.y, r.n, j->scale);
        else
            do_any_row(s, &r);
        span_clear(s, span_at(s, r.y, r.n * r.step_y), r.step_y, n - r.n); /* what a causal mask hides */
    }
}

static void rows_piece(void *arg, int64_t begin, int64_t end) {
    const softmax_job *j = arg;
    const tni_rows *rows = &j->rows;
    const spans *s = TNI_CPU(spans_of)(j->type);
    if (j->mask || j->causal || rows->step[ROW_X] != 1 || rows->step[ROW_Y] != 1) {
        do_any_rows(j, s, begin, end);
        return;
    }
    const int64_t *apart = tni_row_apart(rows);
    tni_row row = tni_row_at(rows, begin);
    while (begin < end) {
        const row_run run = {
            .x = span_at(s, j->x, row.at[ROW_X]),
            .y = span_at(s, j->y, row.at[ROW_Y]),
            .n = rows->n,
            .count = tni_row_run(rows, &row, end - begin),
            .apart_x = apart[ROW_X],
            .apart_y = apart[ROW_Y],
        };
        do_run(s, &run, j->scale);
        tni_row_skip(rows, &row, run.count);
        begin += run.count;
    }
}

tn_status TNI_CPU(softmax)(const tn_call *call, void *state) {
    (void)state;
    const softmax_args a = softmax_args_of(call);
    const tn_view *x = a.x;
    const int32_t axis = (int32_t)a.axis;
    softmax_job j = {
        .type = x->type,
        .x = x->data,
        .mask = data_of(a.mask),
        .y = a.y->data,
        .scale = (real)a.scale,
        .causal = a.causal,
    };
    /* A tensor whose elements are the number of their query. */
    int64_t query_strides[TN_MAX_RANK] = {0};
    const tn_view query = {.shape = x->shape, .strides = query_strides, .ndim = x->ndim};
    if (j.causal) {
        query_strides[x->ndim - 2] = 1;
        j.visible = x->shape[axis] - x->shape[x->ndim - 2] + 1;
    }
    const tn_view *views[ROW_VIEWS] = {x, a.y, a.mask, j.causal ? &query : NULL};
    j.rows = tni_rows_of(views, ROW_VIEWS, axis);
    if (j.rows.n == 0 || j.rows.count == 0) return TN_OK;
    j.columns = j.causal ? 0 : take_columns(&j.rows, 2, j.across);
    if (j.columns == 0) {
        tn_parallel(call, j.rows.count, tni_row_grain(j.rows.n), rows_piece, &j);
    } else {
        /* of the 16-bit types as many as fit into the buffer, where that is not too few */
        const int64_t fit = SPAN / j.rows.n / 16 * 16;
        j.width = column_width(call, &j.rows, j.columns, 2 * (int64_t)sizeof(real));
        if (j.type != V_NATIVE && fit >= 16) j.width = min(j.width, fit);
        const int64_t blocks = j.rows.count * ceil_div(j.columns, j.width);
        tn_parallel(call, blocks, tni_row_grain(j.rows.n * j.width), TNI_CPU(softmax_columns), &j);
    }
    return TN_OK;
}
