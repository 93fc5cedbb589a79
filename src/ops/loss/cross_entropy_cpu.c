/* cross_entropy, vectorised. A row of logits is read from memory once: its largest value, the sum of exponentials, then
 * the loss and, where it is wanted, the gradient come from cache. The exponentials wait for their sum in gx, or in a
 * buffer for the 16-bit types, rows that do not lie together and a gx that is x; what does not fit there is computed
 * twice.
 *
 * With m the largest logit and d = log(sum(exp(x - m))), log p[j] = x[j] - m - d: no large numbers cancel.
 *
 * No workspace: the rows are split into at most CHUNKS pieces, whatever the number of threads, and the losses of each
 * are added in order: the same bits every time. */
#include "cross_entropy.h"

#include "cpu/rows.h"
#include "cpu/spans.h"

enum { ROW_X, ROW_GX, ROW_TARGET, ROW_LSE, ROW_LOSS, ROW_VIEWS };

enum { CHUNKS = 1024, PART = 256, BATCH = 64 /* short rows at a time */ };

typedef struct job {
    tn_type type;
    const tn_view *target;
    const void *x;
    void *gx;            /* NULL: not wanted */
    real *lse, *loss;    /* loss NULL: reduced */
    const float *weight; /* NULL: all 1 */
    int64_t weight_step, ignore_index;
    double hard, soft, z; /* 1 - label_smoothing, label_smoothing / v, z_loss */
    double weights;       /* their sum */
    double unit;          /* what gx is multiplied by: 1, or 1 / divisor of the mean */
    tni_rows rows;
    bool together; /* rows have stride 1 */
    bool in_place; /* gx is x: a row is whole until its loss is known */
    int64_t chunk; /* rows of a chunk */
    double *sums;  /* (chunks) */
} job;

static double weight_at(const job *j, int64_t k) {
    return j->weight ? (double)j->weight[k * j->weight_step] : 1;
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

typedef struct row_sum {
    double shift, log_sum; /* m and d of above; NaN where the row has no proper sum */
    real sum;              /* of exp(x - m) * V_EXP_SCALE */
    bool in_buffer;        /* all exponentials are in the buffer */
} row_sum;

/* Elements i … i + n - 1 of a row as scores in the buffer; returns the largest. */
static real gather_scores(const spans *s, const void *x, int64_t step, int64_t i, int64_t n, real *buffer) {
    if (step == 1) return s->scores(span_at(s, x, i), NULL, buffer, n, 1);
    s->gather(span_at(s, x, i * step), step, buffer, n);
    return TNI_CPU(spans_of)(V_NATIVE)->max(buffer, n, 1);
}

/* A row that lies together. gx: where the exponentials are left if they can be; NULL: not wanted. */
static row_sum sum_row(const spans *s, const void *x, void *gx, int64_t v, real *buffer) {
    const bool in_buffer = gx && (!s->native || x == gx) && v <= SPAN;
    const real shift = shift_of(in_buffer ? s->scores(x, NULL, buffer, v, 1) : s->max(x, v, 1));
    const real sum = in_buffer                    ? TNI_CPU(span_exp)(buffer, buffer, v, 1, shift)
                     : gx && s->native && x != gx ? TNI_CPU(span_exp)(x, gx, v, 1, shift)
                                                  : s->sum(x, v, 1, shift);
    return (row_sum){shift, log((double)sum * (double)V_EXP_UNSCALE), sum, in_buffer};
}

/* A row of any stride. */
static row_sum sum_gathered_row(const spans *s, const void *x, int64_t step, int64_t v, real *buffer) {
    real most = -(real)INFINITY, sum = 0;
    for (int64_t i = 0; i < v; i += SPAN) {
        const real span = gather_scores(s, x, step, i, min(v - i, SPAN), buffer);
        most = span > most ? span : most;
    }
    const real shift = shift_of(most);
    for (int64_t i = 0; i < v; i += SPAN) {
        if (v > SPAN) gather_scores(s, x, step, i, min(v - i, SPAN), buffer);
        sum += TNI_CPU(span_exp)(buffer, buffer, min(v - i, SPAN), 1, shift);
    }
    return (row_sum){shift, log((double)sum * (double)V_EXP_UNSCALE), sum, v <= SPAN};
}

/* sum(weight * -log p), for label smoothing; part by part, so that long rows stay accurate. */
static double smooth_loss(const job *j, const spans *s, const void *x, double lse) {
    const int64_t v = j->rows.n, step = j->rows.step[ROW_X];
    double sum = 0;
    for (int64_t i = 0; i < v; i += PART) {
        real x_part[PART];
        double part = 0;
        const int64_t n = min(v - i, PART);
        s->gather(span_at(s, x, i * step), step, x_part, n);
        for (int64_t k = 0; k < n; k++) part += weight_at(j, i + k) * (lse - (double)x_part[k]);
        sum += part;
    }
    return sum;
}

/* gx of n elements from their exponentials e, which are lost: e * by - less * weight */
static void write_grad(const job *j, const spans *s, real *e, void *gx, int64_t first, int64_t n, real by, real less) {
    const int64_t step = j->rows.step[ROW_GX];
    void *to = span_at(s, gx, first * step);
    for (int64_t k = 0; less != 0 && k < n; k++) e[k] = e[k] * by - less * (real)weight_at(j, first + k);
    const real factor = less != 0 ? 1 : by;
    if (step != 1) TNI_CPU(spans_of)(V_NATIVE)->scale(e, e, n, factor);
    if (step != 1)
        s->scatter(e, to, step, n);
    else
        s->scale(e, to, n, factor);
}

/* The gradient of a row that is not ignored: unit * ((hard + soft * weights + 2 z lse) p - soft * weight), and at the
 * target less unit * hard. */
static void grad_row(const job *j, const spans *s, const void *x, void *gx, int64_t target, const row_sum *sum,
                     real *buffer) {
    const int64_t v = j->rows.n, step = j->rows.step[ROW_X];
    const double hard = j->hard * weight_at(j, target), lse = sum->shift + sum->log_sum;
    const double all = hard + j->soft * j->weights + 2 * j->z * lse;
    const double x_target = (double)r_load(j->type, x, target * step); /* before gx, which may be x, is written */
    const real by = (real)(all * j->unit / sum->sum), less = (real)(j->soft * j->unit), shift = (real)sum->shift;
    if (sum->in_buffer) {
        write_grad(j, s, buffer, gx, 0, v, by, less);
    } else if (j->together && s->native && !j->in_place) {
        write_grad(j, s, gx, gx, 0, v, by, less);
    } else if (j->together && less == 0) {
        s->exp(x, gx, v, 1, shift, by);
    } else {
        for (int64_t i = 0; i < v; i += SPAN) {
            const int64_t n = min(v - i, SPAN);
            gather_scores(s, x, step, i, n, buffer);
            TNI_CPU(span_exp)(buffer, buffer, n, 1, shift);
            write_grad(j, s, buffer, gx, i, n, by, less);
        }
    }
    const double p = exp((x_target - sum->shift) - sum->log_sum);
    const real at_target = (real)((all * p - j->soft * weight_at(j, target) - hard) * j->unit);
    s->scatter(&at_target, span_at(s, gx, target * j->rows.step[ROW_GX]), 1, 1);
}

/* The sums of a row, by itself. */
static row_sum sum_of(const job *j, const spans *s, const tni_row *row, real *buffer) {
    const int64_t v = j->rows.n, step = j->rows.step[ROW_X];
    const bool ignored = target_at(j->target, row->at[ROW_TARGET]) == j->ignore_index;
    const void *x = span_at(s, j->x, row->at[ROW_X]);
    if (!j->together) return sum_gathered_row(s, x, step, v, buffer);
    return sum_row(s, x, j->gx && !ignored ? span_at(s, j->gx, row->at[ROW_GX]) : NULL, v, buffer);
}

/* The sums of a run of short rows; their exponentials stay in the buffer. */
static void sum_short_rows(const job *j, const spans *s, const row_run *run, row_sum *sums, real *buffer) {
    real shift[BATCH], sum[BATCH], logs[BATCH];
    s->short_sums(run, shift, sum, j->gx ? buffer : NULL);
    for (int64_t r = 0; r < run->count; r += VL) {
        const int64_t n = min(run->count - r, VL);
        v_store_n(V_NATIVE, logs, r, n, v_log(v_load_n(V_NATIVE, sum, r, n, 1) * V_EXP_UNSCALE));
    }
    for (int64_t r = 0; r < run->count; r++) sums[r] = (row_sum){shift[r], logs[r], sum[r], true};
}

/* What a row's sums make of it. Returns the loss. */
static double finish_row(const job *j, const spans *s, const tni_row *row, const row_sum *sum, real *buffer) {
    const int64_t v = j->rows.n, step = j->rows.step[ROW_X];
    const int64_t target = target_at(j->target, row->at[ROW_TARGET]);
    const bool ignored = target == j->ignore_index;
    const void *x = span_at(s, j->x, row->at[ROW_X]);
    void *gx = j->gx ? span_at(s, j->gx, row->at[ROW_GX]) : NULL;
    const double lse = v > 0 ? sum->shift + sum->log_sum : -(double)INFINITY;
    j->lse[row->at[ROW_LSE]] = (real)lse;
    if (ignored) {
        if (gx) span_clear(s, gx, j->rows.step[ROW_GX], v);
        return 0;
    }
    const real x_target = r_load(j->type, x, target * step);
    double loss = j->hard * weight_at(j, target) * (sum->log_sum + (sum->shift - (double)x_target)) + j->z * lse * lse;
    if (j->soft != 0) loss += j->soft * smooth_loss(j, s, x, lse);
    if (gx) grad_row(j, s, x, gx, target, sum, buffer);
    return loss;
}

/* ---- all rows ---------------------------------------------------------------------------------------------------- */

/* Rows first … last - 1, one after the other; returns the sum of their losses. */
static double do_rows(const job *j, const spans *s, int64_t first, int64_t last, real *buffer) {
    const tni_rows *rows = &j->rows;
    const bool is_short = j->together && rows->n > 0 && rows->n <= SHORT;
    tni_row row = tni_row_at(rows, first);
    double total = 0;
    for (int64_t r = first, count; r < last; r += count) {
        row_sum sums[BATCH];
        count = is_short ? tni_row_run(rows, &row, min(last - r, BATCH)) : 1;
        const row_run run = {
            .x = span_at(s, j->x, row.at[ROW_X]), .n = rows->n, .count = count, .apart_x = tni_row_apart(rows)[ROW_X]};
        if (is_short)
            sum_short_rows(j, s, &run, sums, buffer);
        else
            sums[0] = sum_of(j, s, &row, buffer);
        for (int64_t k = 0; k < count; k++, tni_row_next(rows, &row)) {
            const double loss = finish_row(j, s, &row, &sums[k], buffer + k * rows->n);
            if (j->loss) j->loss[row.at[ROW_LOSS]] = (real)loss;
            total += loss;
        }
    }
    return total;
}

static void chunks_piece(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const spans *s = TNI_CPU(spans_of)(j->type);
    real buffer[SPAN];
    for (int64_t c = begin; c < end; c++) {
        const int64_t first = c * j->chunk;
        j->sums[c] = do_rows(j, s, first, min(first + j->chunk, j->rows.count), buffer);
    }
}

/* Looks at every target before anything is read or written by it; `divisor`: what the mean divides by. */
static tn_status check_targets(const tn_call *call, const job *j, double *divisor) {
    const tn_view *target = j->target;
    int64_t strides[TN_MAX_RANK + 1], dense = 1;
    for (int32_t d = target->ndim - 1; d >= 0; d--) {
        strides[d] = dense;
        dense *= target->shape[d];
    }
    const tn_view number = {.shape = target->shape, .strides = strides, .ndim = target->ndim}; /* of the row */
    const tni_rows rows = tni_rows_of((const tn_view *const[]){target, &number}, 2, -1);
    tni_row row = tni_row_at(&rows, 0);
    *divisor = 0;
    const int64_t *apart = tni_row_apart(&rows);
    for (int64_t r = 0, run; r < rows.count; r += run, tni_row_skip(&rows, &row, run)) {
        run = tni_row_run(&rows, &row, rows.count - r);
        for (int64_t i = 0; i < run; i++) {
            const int64_t t = target_at(target, row.at[0] + i * apart[0]);
            if (t == j->ignore_index) continue;
            if (t < 0 || t >= j->rows.n) return tni_cross_entropy_bad_target(call, row.at[1] + i * apart[1], t);
            *divisor += weight_at(j, t);
        }
    }
    return TN_OK;
}

/* n > 0 numbers, which are lost: the upper half onto the lower until one is left. */
static double sum_pairs(double *a, int64_t n) {
    for (; n > 1; n -= n / 2) {
        for (int64_t i = 0; i < n / 2; i++) a[i] += a[n - n / 2 + i];
    }
    return a[0];
}

tn_status TNI_CPU(cross_entropy)(const tn_call *call, void *state) {
    (void)state;
    const cross_entropy_args a = cross_entropy_args_of(call);
    const bool mean = a.reduction == REDUCE_MEAN, each = a.reduction == REDUCE_NONE;
    const tn_view *views[ROW_VIEWS] = {a.x, a.gx, a.target, a.lse, each ? a.loss : NULL};
    const label_shares shares = label_shares_of(&a);
    double sums[CHUNKS], divisor;
    job j = {
        .type = a.x->type,
        .target = a.target,
        .x = a.x->data,
        .gx = data_of(a.gx),
        .lse = a.lse->data,
        .loss = each ? a.loss->data : NULL,
        .weight = data_of(a.weight),
        .weight_step = a.weight ? a.weight->strides[0] : 0,
        .ignore_index = a.ignore_index,
        .hard = shares.target,
        .soft = shares.each,
        .z = a.z_loss,
        .rows = tni_rows_of(views, ROW_VIEWS, a.x->ndim - 1),
        .sums = sums,
    };
    j.in_place = a.gx && a.gx->data == a.x->data;
    j.together = j.rows.step[ROW_X] == 1 && (!a.gx || j.rows.step[ROW_GX] == 1);
    TN_TRY(check_targets(call, &j, &divisor));
    j.unit = mean ? 1 / divisor : 1;
    for (int64_t k = 0; k < j.rows.n && shares.each != 0; k++) j.weights += weight_at(&j, k);
    j.chunk = max(ceil_div(j.rows.count, CHUNKS), j.rows.n <= SHORT ? BATCH : 1);
    const int64_t chunks = j.rows.count ? ceil_div(j.rows.count, j.chunk) : 0;
    tn_parallel(call, chunks, tni_row_grain(j.rows.n * j.chunk), chunks_piece, &j);
    double total = chunks > 0 ? sum_pairs(sums, chunks) : 0;
    if (mean) total /= divisor;
    if (!each) *(real *)a.loss->data = (real)total;
    return TN_OK;
}

tn_status TNI_CPU(cross_entropy_inplace)(const tn_call *call, void *state) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return TNI_CPU(cross_entropy)(&as.call, state);
}
