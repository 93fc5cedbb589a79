/* rope, vectorised. A row is worked on in blocks of pairs. What cos and sin have for a block, and where pairs are
 * neighbours the block itself, goes through buffers as `real`, so that one loop serves all types and strides. */
#include "rope.h"

#include "ops/runs.h"

enum { BLOCK = 512 }; /* pairs */

typedef struct job {
    rope_job of;
    tni_rows rows;
} job;

/* n numbers `step` apart as `real`: their own memory where they lie so, else in `buffer`. */
static const real *reals(tn_type t, const void *p, int64_t step, int64_t n, real *buffer) {
    const tn_view run = {.type = t, .data = (void *)(uintptr_t)p, .ndim = 1, .shape = &n, .strides = &step};
    return reals_of(&run, n, 0, buffer);
}

/* y = pairs (x[i], x[apart + i]) turned; rows lie together. */
TNI_INLINE void turn_halves(const tn_type t, const void *x, void *y, int64_t apart, const real *c, const real *s,
                            int64_t n, real sign) {
    for (int64_t i = 0; i < n; i += VL) {
        const vreal a = v_load_some(t, x, i, n - i, 0), b = v_load_some(t, x, apart + i, n - i, 0);
        const vreal cos = v_load_some(V_NATIVE, c, i, n - i, 0), sin = v_load_some(V_NATIVE, s, i, n - i, 0) * sign;
        v_store_some(t, y, i, n - i, a * cos - b * sin);
        v_store_some(t, y, apart + i, n - i, b * cos + a * sin);
    }
}

/* The same of neighbours, from one array to another: the compiler has vectors for that. */
static void turn_neighbours(const real *restrict x, real *restrict y, const real *restrict c, const real *restrict s,
                            int64_t n, real sign) {
    for (int64_t i = 0; i < n; i++) {
        const real a = x[2 * i], b = x[2 * i + 1], sin = s[i] * sign;
        y[2 * i] = a * c[i] - b * sin;
        y[2 * i + 1] = b * c[i] + a * sin;
    }
}

static void turn_block_of_neighbours(tn_type t, const void *x, void *y, const real *c, const real *s, int64_t n,
                                     real sign) {
    real from[2 * BLOCK], to[2 * BLOCK];
    V_BY_TYPE(t, widen_run, x, from, 2 * n);
    turn_neighbours(from, to, c, s, n, sign);
    V_BY_TYPE(t, narrow_run, to, y, 2 * n);
}

/* Elements of x and y that do not lie together. */
static void turn_apart(const job *j, const tni_row *row, int64_t first, int64_t n, const real *c, const real *s,
                       real sign) {
    const tn_type t = j->of.x->type;
    const int64_t near = j->of.interleaved ? 2 : 1, far = j->of.interleaved ? 1 : j->of.pairs;
    for (int64_t i = 0; i < n; i++) {
        const int64_t p = (first + i) * near, q = p + far, *at = row->at, *step = j->rows.step;
        const real a = r_load(t, j->of.x->data, at[ROPE_X] + p * step[ROPE_X]);
        const real b = r_load(t, j->of.x->data, at[ROPE_X] + q * step[ROPE_X]);
        const real sin = s[i] * sign;
        r_store(t, j->of.y->data, at[ROPE_Y] + p * step[ROPE_Y], a * c[i] - b * sin);
        r_store(t, j->of.y->data, at[ROPE_Y] + q * step[ROPE_Y], b * c[i] + a * sin);
    }
}

static void turn_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const rope_job *of = &j->of;
    const tn_type t = of->x->type, angles = of->cos->type;
    const bool together = j->rows.step[ROPE_X] == 1 && j->rows.step[ROPE_Y] == 1;
    const real sign = of->back ? -1 : 1;
    real cos_buffer[BLOCK], sin_buffer[BLOCK];
    tni_row row = tni_row_at(&j->rows, begin);
    for (int64_t r = begin; r < end; r++, tni_row_next(&j->rows, &row)) {
        for (int64_t i = 0; i < of->pairs; i += BLOCK) {
            const int64_t n = min(of->pairs - i, BLOCK), first = of->interleaved ? 2 * i : i;
            const real *c = reals(angles, r_at(angles, of->cos->data, row.at[ROPE_COS] + i * of->cos_step),
                                  of->cos_step, n, cos_buffer);
            const real *s = reals(angles, r_at(angles, of->sin->data, row.at[ROPE_SIN] + i * of->sin_step),
                                  of->sin_step, n, sin_buffer);
            const void *x = r_at(t, of->x->data, row.at[ROPE_X] + first);
            void *y = r_at(t, of->y->data, row.at[ROPE_Y] + first);
            if (!together)
                turn_apart(j, &row, i, n, c, s, sign);
            else if (of->interleaved)
                turn_block_of_neighbours(t, x, y, c, s, n, sign);
            else
                V_BY_TYPE(t, turn_halves, x, y, of->pairs, c, s, n, sign);
        }
    }
}

static tn_status run(const tn_call *call, bool back) {
    job j = {.of = rope_job_of(call, back)};
    if (tn_count(j.of.x) == 0) return TN_OK;
    j.rows = rope_rows_of(&j.of);
    tn_parallel(call, j.rows.count, tni_row_grain(j.rows.n), turn_rows, &j);
    return TN_OK;
}

tn_status TNI_CPU(rope)(const tn_call *call, void *state) {
    (void)state;
    return run(call, false);
}

tn_status TNI_CPU(rope_grad)(const tn_call *call, void *state) {
    (void)state;
    return run(call, true);
}
