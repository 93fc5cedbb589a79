/* cumsum and cumprod, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h); the f32
 * build has integers, too. What is so far is kept in double, or in 64 bits.
 *
 * Sums of a row are made a vector at a time: its lanes are added up among themselves, and to what is before them. All
 * else goes along the axis in order, with many rows side by side: neighbouring columns, or some rows whose products
 * would wait for each other. A product in another order could meet infinity on its way where there is none. */
#include "scan.h"

#include "ops/runs.h"
#include "scan_lanes.h"
#include "scan_shift.h"

enum {
    SHORT_ROW = 64, /* fewer elements: rows need no others beside them */
    BLOCK = 512,    /* numbers that are widened at a time */
};

typedef struct job {
    tni_scan s;
    tn_type type;
    const void *x;
    void *y;
    tni_lanes lanes;
} job;

/* ---- sums of rows, a vector at a time ---------------------------------------------------------------------------- */

/* Lane i: the sum of lanes 0 … i, or i … VL - 1 */
TNI_INLINE vreal v_add_up(vreal v, const bool reverse) {
    v += v_shifted(v, v_set(0), 1, reverse);
    if (VL > 2) v += v_shifted(v, v_set(0), 2 % VL, reverse);
    if (VL > 4) v += v_shifted(v, v_set(0), 4 % VL, reverse);
    if (VL > 8) v += v_shifted(v, v_set(0), 8 % VL, reverse);
    return v;
}

TNI_INLINE void sum_row(const tn_type t, const void *x, void *y, int64_t n, const bool exclusive, const bool reverse) {
    double before = 0;
    int64_t done = 0;
    for (; done + VL <= n; done += VL) {
        const int64_t at = reverse ? n - VL - done : done;
        const vreal sums = v_add_up(v_load(t, x, at), reverse);
        v_store(t, y, at, v_set((real)before) + (exclusive ? v_shifted(sums, v_set(0), 1, reverse) : sums));
        before += (double)sums[reverse ? 0 : VL - 1];
    }
    for (; done < n; done++) {
        const int64_t at = reverse ? n - 1 - done : done;
        const double after = before + (double)r_load(t, x, at);
        r_store(t, y, at, (real)(exclusive ? before : after));
        before = after;
    }
}

TNI_INLINE void sum_rows(const tn_type t, const job *j, int64_t begin, int64_t end, const bool exclusive,
                         const bool reverse) {
    const int64_t n = j->s.n;
    for (int64_t r = begin; r < end; r++) sum_row(t, r_at(t, j->x, r * n), r_at(t, j->y, r * n), n, exclusive, reverse);
}

TNI_INLINE void sum_rows_of(const tn_type t, const job *j, int64_t begin, int64_t end) {
    if (j->s.exclusive && j->s.reverse)
        sum_rows(t, j, begin, end, true, true);
    else if (j->s.exclusive)
        sum_rows(t, j, begin, end, true, false);
    else if (j->s.reverse)
        sum_rows(t, j, begin, end, false, true);
    else
        sum_rows(t, j, begin, end, false, false);
}

static void do_sum_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->type, sum_rows_of, j, begin, end);
}

/* ---- in order, many rows side by side ---------------------------------------------------------------------------- */

/* One element of each lane. */
TNI_INLINE void step_sums(const real *x, real *y, int64_t count, double *so_far, const bool exclusive) {
    for (int64_t c = 0; c < count; c++) {
        const double after = so_far[c] + (double)x[c];
        y[c] = (real)(exclusive ? so_far[c] : after);
        so_far[c] = after;
    }
}

TNI_INLINE void step_products(const real *x, real *y, int64_t count, double *so_far, const bool exclusive) {
    for (int64_t c = 0; c < count; c++) {
        const double after = so_far[c] * (double)x[c];
        y[c] = (real)(exclusive ? so_far[c] : after);
        so_far[c] = after;
    }
}

static void step_reals(const tni_scan *s, const real *x, real *y, int64_t count, double *so_far) {
    if (s->product && s->exclusive)
        step_products(x, y, count, so_far, true);
    else if (s->product)
        step_products(x, y, count, so_far, false);
    else if (s->exclusive)
        step_sums(x, y, count, so_far, true);
    else
        step_sums(x, y, count, so_far, false);
}

TNI_INLINE void scan_columns(const tn_type t, const job *j, int64_t first, int64_t count) {
    real x[TNI_LANES], y[TNI_LANES];
    double so_far[TNI_LANES];
    for (int64_t c = 0; c < count; c++) so_far[c] = j->s.product;
    for (int64_t i = 0; i < j->s.n; i++) {
        const int64_t at = first + (j->s.reverse ? j->s.n - 1 - i : i) * j->s.inner;
        if (t == V_NATIVE) {
            step_reals(&j->s, (const real *)j->x + at, (real *)j->y + at, count, so_far);
            continue;
        }
        widen_run(t, r_at(t, j->x, at), x, count);
        step_reals(&j->s, x, y, count, so_far);
        narrow_run(t, y, r_at(t, j->y, at), count);
    }
}

/* n numbers of a row in order, from the first or the last one on. */
TNI_INLINE double scan_numbers(const real *x, real *y, int64_t n, bool reverse, double so_far, const bool product,
                               const bool exclusive) {
    const int64_t step = reverse ? -1 : 1;
    for (int64_t i = 0, at = reverse ? n - 1 : 0; i < n; i++, at += step) {
        const double after = product ? so_far * (double)x[at] : so_far + (double)x[at];
        y[at] = (real)(exclusive ? so_far : after);
        so_far = after;
    }
    return so_far;
}

/* `count` rows, each in order: processors have several of them under way where they are short. Numbers of 16 bits are
 * widened and rounded some hundred at a time. */
TNI_INLINE void scan_rows(const tn_type t, const job *j, int64_t first, int64_t count, const bool product,
                          const bool exclusive) {
    const int64_t n = j->s.n, together = max(BLOCK / n, 1);
    const bool reverse = j->s.reverse;
    real block[BLOCK];
    for (int64_t r = 0; r < count && t == V_NATIVE; r++)
        scan_numbers((const real *)j->x + first + r * n, (real *)j->y + first + r * n, n, reverse, product, product,
                     exclusive);
    for (int64_t r = 0; r < count && t != V_NATIVE; r += together) {
        const int64_t rows = min(together, count - r), begin = first + r * n;
        double so_far = product;
        for (int64_t done = 0, size; done < rows * n; done += size) { /* several steps are of one row */
            size = min(rows * n - done, BLOCK);
            const int64_t at = begin + (reverse && rows == 1 ? n - done - size : done);
            widen_run(t, r_at(t, j->x, at), block, size);
            if (rows == 1) so_far = scan_numbers(block, block, size, reverse, so_far, product, exclusive);
            for (int64_t k = 0; k < rows && rows > 1; k++)
                scan_numbers(block + k * n, block + k * n, n, reverse, product, product, exclusive);
            narrow_run(t, block, r_at(t, j->y, at), size);
        }
    }
}

TNI_INLINE void scan_rows_of(const tn_type t, const job *j, int64_t first, int64_t count) {
    if (j->s.product && j->s.exclusive)
        scan_rows(t, j, first, count, true, true);
    else if (j->s.product)
        scan_rows(t, j, first, count, true, false);
    else if (j->s.exclusive)
        scan_rows(t, j, first, count, false, true);
    else
        scan_rows(t, j, first, count, false, false);
}

/* TNI_LANE_ROWS rows that lie one behind the other, side by side. */
static void multiply_rows(const job *j, int64_t at) {
    const real *x = j->x;
    real *y = j->y;
    const int64_t n = j->s.n, step = j->s.reverse ? -1 : 1;
    const bool exclusive = j->s.exclusive;
    double so_far[TNI_LANE_ROWS] = {1, 1, 1, 1};
    if (j->s.reverse) at += n - 1;
    for (int64_t i = 0; i < n; i++, at += step) {
        for (int c = 0; c < TNI_LANE_ROWS; c++) {
            const double after = so_far[c] * (double)x[at + c * n];
            y[at + c * n] = (real)(exclusive ? so_far[c] : after);
            so_far[c] = after;
        }
    }
}

TNI_INLINE void scan_lanes(const tn_type t, const job *j, int64_t first, int64_t count) {
    if (j->s.inner > 1) {
        scan_columns(t, j, first, count);
        return;
    }
    int64_t r = 0;
    if (t == V_NATIVE && j->s.product && j->s.n >= SHORT_ROW) {
        for (; r + TNI_LANE_ROWS <= count; r += TNI_LANE_ROWS) multiply_rows(j, first + r * j->s.n);
    }
    scan_rows_of(t, j, first + r * j->s.n, count - r);
}

static void do_lanes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        V_BY_TYPE(j->type, scan_lanes, j, first, count);
    }
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

#if defined(TNI_REAL_f32)

TNI_INLINE uint64_t load_whole(const void *x, int64_t i, const size_t size) {
    return size == 1   ? ((const uint8_t *)x)[i]
           : size == 2 ? ((const uint16_t *)x)[i]
           : size == 4 ? ((const uint32_t *)x)[i]
                       : ((const uint64_t *)x)[i];
}

TNI_INLINE void store_whole(void *y, int64_t i, uint64_t value, const size_t size) {
    if (size == 1) ((uint8_t *)y)[i] = (uint8_t)value;
    if (size == 2) ((uint16_t *)y)[i] = (uint16_t)value;
    if (size == 4) ((uint32_t *)y)[i] = (uint32_t)value;
    if (size == 8) ((uint64_t *)y)[i] = value;
}

TNI_INLINE void whole_columns(const job *j, int64_t first, int64_t count, const bool product, const size_t size) {
    uint64_t so_far[TNI_LANES];
    for (int64_t c = 0; c < count; c++) so_far[c] = product;
    for (int64_t i = 0; i < j->s.n; i++) {
        const int64_t at = first + (j->s.reverse ? j->s.n - 1 - i : i) * j->s.inner;
        for (int64_t c = 0; c < count; c++) {
            const uint64_t x = load_whole(j->x, at + c, size), before = so_far[c];
            so_far[c] = product ? before * x : before + x;
            store_whole(j->y, at + c, j->s.exclusive ? before : so_far[c], size);
        }
    }
}

TNI_INLINE void whole_row(const job *j, int64_t at, const bool product, const bool exclusive, const size_t size) {
    const int64_t n = j->s.n, step = j->s.reverse ? -1 : 1;
    uint64_t so_far = product;
    if (j->s.reverse) at += n - 1;
    for (int64_t i = 0; i < n; i++, at += step) {
        const uint64_t x = load_whole(j->x, at, size), after = product ? so_far * x : so_far + x;
        store_whole(j->y, at, exclusive ? so_far : after, size);
        so_far = after;
    }
}

TNI_INLINE void whole_rows(const job *j, int64_t first, int64_t count, const bool product, const size_t size) {
    for (int64_t c = 0; c < count; c++) {
        if (j->s.exclusive)
            whole_row(j, first + c * j->s.n, product, true, size);
        else
            whole_row(j, first + c * j->s.n, product, false, size);
    }
}

TNI_INLINE void whole_lanes_sized(const job *j, int64_t first, int64_t count, const size_t size) {
    if (j->s.inner > 1 && j->s.product)
        whole_columns(j, first, count, true, size);
    else if (j->s.inner > 1)
        whole_columns(j, first, count, false, size);
    else if (j->s.product)
        whole_rows(j, first, count, true, size);
    else
        whole_rows(j, first, count, false, size);
}

static void do_whole_lanes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        switch (tn_type_size(j->type)) {
        case 1: whole_lanes_sized(j, first, count, 1); break;
        case 2: whole_lanes_sized(j, first, count, 2); break;
        case 4: whole_lanes_sized(j, first, count, 4); break;
        default: whole_lanes_sized(j, first, count, 8);
        }
    }
}

static tn_body lanes_body(tn_type type) {
    return TN_BIT(type) & TN_FLOATS ? do_lanes : do_whole_lanes;
}

#else

static tn_body lanes_body(tn_type type) {
    (void)type;
    return do_lanes;
}

#endif

tn_status TNI_CPU(scan)(const tn_call *call, void *state) {
    (void)state;
    job j = {.s = tni_scan_of(call)};
    j.type = j.s.x->type;
    j.x = j.s.x->data;
    j.y = j.s.y->data;
    if (tn_count(j.s.x) == 0) return TN_OK;
    if (j.s.inner == 1 && !j.s.product && TN_BIT(j.type) & TN_FLOATS && j.s.n >= VL) {
        tn_parallel(call, j.s.outer, tni_row_grain(j.s.n), do_sum_rows, &j);
        return TN_OK;
    }
    j.lanes = tni_lanes_of(j.s.outer, j.s.n, j.s.inner);
    tn_parallel(call, j.lanes.units, tni_row_grain(j.s.n * j.lanes.width), lanes_body(j.type), &j);
    return TN_OK;
}
