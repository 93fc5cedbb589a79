/* The gradient of softmax, vectorised: dx = scale * y * (dy - sum(y * dy)). Rows, columns or gathered rows, as in
 * softmax_cpu.c; a row is read twice, the second time from cache. dx may be y or dy. */
#include "cpu/columns.h"
#include "cpu/spans.h"
#include "softmax.h"

enum { ROW_Y, ROW_DY, ROW_DX, ROW_VIEWS };

enum { PART = 1024 }; /* elements of a buffer; longer rows are summed part by part, and stay accurate */

typedef struct job {
    tn_type type;
    const void *y, *dy;
    void *dx;
    real scale;
    tni_rows rows;
    int64_t columns; /* 0: rows are done one by one */
    int64_t width;   /* columns of a block */
    int64_t across[TNI_ROWS_MAX];
} job;

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* sum(y * dy); where `keep`, both are widened into a and b */
TNI_INLINE real part_dot(const tn_type t, const bool keep, const void *y, const void *dy, real *a, real *b, int64_t n) {
    vreal sum[4] = {{0}, {0}, {0}, {0}};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) {
            vreal u = v_load(t, y, i + k * VL), v = v_load(t, dy, i + k * VL);
            if (keep) v_store(V_NATIVE, a, i + k * VL, u);
            if (keep) v_store(V_NATIVE, b, i + k * VL, v);
            sum[k] = v_fma(u, v, sum[k]);
        }
    }
    for (; i < n; i += VL) {
        const int64_t left = min(n - i, VL);
        vreal u = v_load_columns(t, y, i, left), v = v_load_columns(t, dy, i, left);
        if (keep) v_store_columns(V_NATIVE, a, i, left, u);
        if (keep) v_store_columns(V_NATIVE, b, i, left, v);
        sum[0] = v_fma(u, v, sum[0]);
    }
    return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* scale * dy - shift; the usual scale of 1 saves an instruction */
TNI_INLINE vreal centred(const bool scaled, vreal dy, vreal scale, vreal shift) {
    return scaled ? v_fma(dy, scale, -shift) : dy - shift;
}

/* dx = y * (scale * dy - shift); `from` is the type of y and dy */
TNI_INLINE void write_span(const tn_type from, const tn_type t, const bool scaled, const void *y, const void *dy,
                           void *dx, int64_t n, vreal s, vreal m) {
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        vreal a[4];
        for (int k = 0; k < 4; k++)
            a[k] = v_load(from, y, i + k * VL) * centred(scaled, v_load(from, dy, i + k * VL), s, m);
        for (int k = 0; k < 4; k++) v_store(t, dx, i + k * VL, a[k]);
    }
    for (; i < n; i += VL) {
        const int64_t left = min(n - i, VL);
        vreal a = v_load_columns(from, y, i, left) * centred(scaled, v_load_columns(from, dy, i, left), s, m);
        v_store_columns(t, dx, i, left, a);
    }
}

TNI_INLINE void write_grad(const tn_type from, const tn_type t, const void *y, const void *dy, void *dx, int64_t n,
                           real scale, real shift) {
    if (scale == 1)
        write_span(from, t, false, y, dy, dx, n, v_set(1), v_set(shift));
    else
        write_span(from, t, true, y, dy, dx, n, v_set(scale), v_set(shift));
}

/* The 16-bit types are widened once, into buffers, where they fit: widening is slow. */
TNI_INLINE void do_row(const tn_type t, const void *y, const void *dy, void *dx, int64_t n, real scale) {
    real a[PART], b[PART], sum = 0;
    if (t != V_NATIVE && n <= PART) {
        sum = part_dot(t, true, y, dy, a, b, n);
        write_grad(V_NATIVE, t, a, b, dx, n, scale, scale * sum);
    } else {
        for (int64_t i = 0; i < n; i += PART)
            sum += part_dot(t, false, r_at(t, y, i), r_at(t, dy, i), NULL, NULL, min(n - i, PART));
        write_grad(t, t, y, dy, dx, n, scale, scale * sum);
    }
}

/* A row of at most `vectors` vectors. The last one overlaps the one before; `fresh` are the lanes that do not. */
TNI_INLINE void do_short_row(const tn_type t, const int vectors, const void *y, const void *dy, void *dx, int64_t n,
                             vint fresh, real scale) {
    vreal a[4], b[4], sum;
    for (int k = 0; k < vectors - 1; k++) a[k] = v_load(t, y, k * VL);
    for (int k = 0; k < vectors - 1; k++) b[k] = v_load(t, dy, k * VL);
    a[vectors - 1] = v_load_last(t, y, n, 0);
    b[vectors - 1] = v_load_last(t, dy, n, 0);
    sum = v_select(fresh, a[vectors - 1] * b[vectors - 1], v_set(0));
    for (int k = 0; k < vectors - 1; k++) sum = v_fma(a[k], b[k], sum);
    const vreal shift = v_set(v_sum(sum) * scale);
    for (int k = 0; k < vectors; k++) a[k] = a[k] * v_fma(b[k], v_set(scale), -shift);
    for (int k = 0; k < vectors - 1; k++) v_store(t, dx, k * VL, a[k]);
    v_store_last(t, dx, n, a[vectors - 1]);
}

static void do_gathered_row(const spans *s, const tni_rows *rows, const void *y, const void *dy, void *dx, real scale) {
    real a[PART], b[PART], sum = 0;
    const int64_t step_y = rows->step[ROW_Y], step_dy = rows->step[ROW_DY];
    for (int64_t i = 0; i < rows->n; i += PART) {
        const int64_t n = min(rows->n - i, PART);
        s->gather(span_at(s, y, i * step_y), step_y, a, n);
        s->gather(span_at(s, dy, i * step_dy), step_dy, b, n);
        sum += part_dot(V_NATIVE, false, a, b, NULL, NULL, n);
    }
    for (int64_t i = 0; i < rows->n; i += PART) {
        const int64_t n = min(rows->n - i, PART);
        s->gather(span_at(s, y, i * step_y), step_y, a, n);
        s->gather(span_at(s, dy, i * step_dy), step_dy, b, n);
        write_grad(V_NATIVE, V_NATIVE, a, b, a, n, scale, scale * sum);
        s->scatter(a, span_at(s, dx, i * rows->step[ROW_DX]), rows->step[ROW_DX], n);
    }
}

/* Evenly spaced rows: `vectors` is 1 … 4 for short ones, 0 for others. Each of the functions below is compiled on its
 * own, with few variables: a store of one to the stack between rows would cost more than the row (rows.h). */
TNI_INLINE void do_run(const tn_type t, const int vectors, const job *j, const tni_row *row, int64_t run) {
    const int64_t *apart = tni_row_apart(&j->rows), n = j->rows.n;
    const vint fresh = n % VL ? v_last_lanes(n) : v_seti(-1);
    const real scale = j->scale;
    const void *y = r_at(t, j->y, row->at[ROW_Y]), *dy = r_at(t, j->dy, row->at[ROW_DY]);
    void *dx = r_at(t, j->dx, row->at[ROW_DX]);
    for (int64_t r = 0; r < run; r++) {
        if (vectors == 0)
            do_row(t, y, dy, dx, n, scale);
        else
            do_short_row(t, vectors, y, dy, dx, n, fresh, scale);
        y = r_at(t, y, apart[ROW_Y]);
        dy = r_at(t, dy, apart[ROW_DY]);
        dx = r_at(t, dx, apart[ROW_DX]);
    }
}

TNI_INLINE void do_short_run(const tn_type t, const job *j, const tni_row *row, int64_t run) {
    switch (ceil_div(j->rows.n, VL)) {
    case 1: do_run(t, 1, j, row, run); break;
    case 2: do_run(t, 2, j, row, run); break;
    case 3: do_run(t, 3, j, row, run); break;
    default: do_run(t, 4, j, row, run); break;
    }
}

static __attribute__((noinline)) void short_run(const job *j, const tni_row *row, int64_t run) {
    V_BY_TYPE(j->type, do_short_run, j, row, run);
}

static __attribute__((noinline)) void half_run(const job *j, const tni_row *row, int64_t run) {
    if (V_HALVES && j->type == TN_F16) do_run(TN_F16, 0, j, row, run);
    if (V_HALVES && j->type == TN_BF16) do_run(TN_BF16, 0, j, row, run);
}

static __attribute__((noinline)) void native_run(const job *j, const tni_row *row, int64_t run) {
    do_run(V_NATIVE, 0, j, row, run);
}

static void gathered_run(const job *j, const tni_row *row, int64_t run) {
    const spans *s = TNI_CPU(spans_of)(j->type);
    const int64_t *apart = tni_row_apart(&j->rows);
    for (int64_t r = 0; r < run; r++)
        do_gathered_row(s, &j->rows, span_at(s, j->y, row->at[ROW_Y] + r * apart[ROW_Y]),
                        span_at(s, j->dy, row->at[ROW_DY] + r * apart[ROW_DY]),
                        span_at(s, j->dx, row->at[ROW_DX] + r * apart[ROW_DX]), j->scale);
}

static void rows_piece(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const tni_rows *rows = &j->rows;
    const bool together = rows->step[ROW_Y] == 1 && rows->step[ROW_DY] == 1 && rows->step[ROW_DX] == 1;
    tni_row row = tni_row_at(rows, begin);
    while (begin < end) {
        const int64_t run = tni_row_run(rows, &row, end - begin);
        if (!together)
            gathered_run(j, &row, run);
        else if (rows->n <= SHORT)
            short_run(j, &row, run);
        else if (j->type == V_NATIVE)
            native_run(j, &row, run);
        else
            half_run(j, &row, run);
        tni_row_skip(rows, &row, run);
        begin += run;
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* y, dy, dx: (n, width), their rows `step` apart. */
TNI_INLINE void do_block(const tn_type t, const int64_t *step, const void *y, const void *dy, void *dx, int64_t n,
                         int64_t width, real scale) {
    const int64_t whole = width / VL * VL;
    real sum[COLUMNS_MOST + VL] = {0};
    for (int64_t i = 0; i < n; i++) {
        const int64_t at_y = i * step[ROW_Y], at_dy = i * step[ROW_DY];
        for (int64_t c = 0; c < whole; c += VL) {
            vreal a = v_fma(v_load(t, y, at_y + c), v_load(t, dy, at_dy + c), v_load(V_NATIVE, sum, c));
            v_store(V_NATIVE, sum, c, a);
        }
        for (int64_t c = whole; c < width; c++) sum[c] += r_load(t, y, at_y + c) * r_load(t, dy, at_dy + c);
    }
    for (int64_t c = 0; c < width; c++) sum[c] *= scale;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at_y = i * step[ROW_Y], at_dy = i * step[ROW_DY], at_dx = i * step[ROW_DX];
        for (int64_t c = 0; c < whole; c += VL) {
            vreal a = v_fma(v_load(t, dy, at_dy + c), v_set(scale), -v_load(V_NATIVE, sum, c));
            v_store(t, dx, at_dx + c, v_load(t, y, at_y + c) * a);
        }
        for (int64_t c = whole; c < width; c++)
            r_store(t, dx, at_dx + c, r_load(t, y, at_y + c) * (r_load(t, dy, at_dy + c) * scale - sum[c]));
    }
}

TNI_INLINE void do_blocks(const tn_type t, const job *j, int64_t begin, int64_t end) {
    const tni_rows *rows = &j->rows;
    const int64_t blocks = ceil_div(j->columns, j->width);
    for (int64_t r = begin; r < end; r++) {
        const tni_row row = tni_row_at(rows, r / blocks);
        const int64_t first = r % blocks * j->width;
        do_block(t, rows->step, r_at(t, j->y, row.at[ROW_Y] + first), r_at(t, j->dy, row.at[ROW_DY] + first),
                 r_at(t, j->dx, row.at[ROW_DX] + first), rows->n, min(j->width, j->columns - first), j->scale);
    }
}

static void blocks_piece(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->type, do_blocks, j, begin, end);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

tn_status TNI_CPU(softmax_grad)(const tn_call *call, void *state) {
    (void)state;
    const softmax_grad_args a = softmax_grad_args_of(call);
    const tn_view *views[ROW_VIEWS] = {a.y, a.dy, a.dx};
    job j = {
        .type = a.y->type,
        .y = a.y->data,
        .dy = a.dy->data,
        .dx = a.dx->data,
        .scale = (real)a.scale,
        .rows = tni_rows_of(views, ROW_VIEWS, (int32_t)a.axis),
    };
    if (j.rows.n == 0 || j.rows.count == 0) return TN_OK;
    j.columns = take_columns(&j.rows, ROW_VIEWS, j.across);
    if (j.columns == 0) {
        tn_parallel(call, j.rows.count, tni_row_grain(j.rows.n), rows_piece, &j);
    } else {
        j.width = column_width(call, &j.rows, j.columns, 2 * (int64_t)tn_type_size(j.type));
        const int64_t blocks = j.rows.count * ceil_div(j.columns, j.width);
        tn_parallel(call, blocks, tni_row_grain(j.rows.n * j.width), blocks_piece, &j);
    }
    return TN_OK;
}
