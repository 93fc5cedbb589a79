/* The parts of attention_cpu.h. */
#include "attention_cpu.h"

_Static_assert(A_ROW == 272 && TILE_COLUMNS <= 32, "attention.c has room for as much");
_Static_assert((int)KEYS <= (int)GEMM_STEP && (int)ROWS <= (int)GEMM_STEP, "scores are one step of a product");

/* ---- packing ----------------------------------------------------------------------------------------------------- */

TNI_INLINE void pack_row(const tn_type t, const void *from, int64_t step, int64_t n, real *to) {
    if (step == 1)
        widen_run(t, from, to, n);
    else
        for (int64_t i = 0; i < n; i++) to[i] = r_load(t, from, i * step);
}

void TNI_CPU(attention_pack_rows)(const head *t, const tn_view *x, int64_t first, int64_t rows, real *to) {
    const int64_t width = x->shape[3], step = x->strides[3];
    for (int64_t l = 0; l < width; l += GEMM_STEP) {
        real *packed = packed_step(to, rows, l / GEMM_STEP);
        for (int64_t i = 0; i < rows; i++) {
            const void *from = r_at(x->type, row_of(t, x, first + i), l * step);
            V_BY_TYPE(x->type, pack_row, from, step, min(width - l, GEMM_STEP), packed + i * A_ROW);
        }
    }
}

/* k x columns of x in panels, as tiles read them. */
static void pack_panels(const tni_matrix *x, int64_t k, int64_t columns, real *to) {
    for (int64_t l = 0; l < columns; l += TILE_COLUMNS) {
        const int64_t n = min(columns - l, TILE_COLUMNS);
        const void *from = r_at(x->type, x->data, l * x->column);
        V_BY_TYPE(x->type, pack_b_of, x, from, k, n, round_up(n, VL), to + l * k);
    }
}

void TNI_CPU(attention_turn_rows)(const real *packed, int64_t rows, int64_t width, real *to) {
    for (int64_t l = 0; l < width; l += GEMM_STEP) {
        const real *step = packed + l / GEMM_STEP * rows * A_ROW;
        const tni_matrix x = {(void *)(uintptr_t)step, V_NATIVE, A_ROW, 1, {0}, {0}};
        pack_panels(&x, rows, min(width - l, GEMM_STEP), to + l * rows);
    }
}

/* As columns: in steps of GEMM_STEP terms, one behind the other. */
void TNI_CPU(attention_pack_keys)(const head *t, const tn_view *x, int64_t first, int64_t keys, bool turned, real *to) {
    tni_matrix m = keys_of(t, x, first);
    const int64_t width = x->shape[3];
    if (turned) {
        pack_panels(&m, keys, width, to);
        return;
    }
    for (int64_t l = 0; l < width; l += GEMM_STEP) {
        const tni_matrix columns = {r_at(m.type, m.data, l * m.column), m.type, m.column, m.row, {0}, {0}};
        pack_panels(&columns, min(width - l, GEMM_STEP), keys, to + l * round_up(keys, TILE_COLUMNS));
    }
}

void TNI_CPU(attention_product)(int64_t rows, int64_t columns, int64_t k, const real *a, const real *b, real *c,
                                int64_t c_row, bool add) {
    for (int64_t step = 0; step < k || step == 0; step += GEMM_STEP) {
        const int64_t terms = min(k - step, GEMM_STEP);
        const real *left = a + step / GEMM_STEP * rows * A_ROW;
        const real *right = k > GEMM_STEP ? b + step * round_up(columns, TILE_COLUMNS) : b;
        for (int64_t l = 0; l < columns; l += TILE_COLUMNS) {
            const int64_t n = min(columns - l, TILE_COLUMNS), vectors = n > VL ? 2 : 1;
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                tile_function *tile = TNI_CPU(gemm_tiles)[vectors - 1][min(rows - i, TILE_ROWS) - 1];
                tile(terms, left + i * A_ROW, right + l * terms, vectors * VL, c + i * c_row + l, c_row,
                     add || step > 0);
            }
        }
    }
}

TNI_INLINE void put_of(const tn_type t, const real *from, int64_t n, int64_t step, void *to) {
    if (step == 1)
        narrow_run(t, from, to, n);
    else
        for (int64_t i = 0; i < n; i++) r_store(t, to, i * step, from[i]);
}

void TNI_CPU(attention_put)(const real *from, int64_t n, const tn_view *x, void *to) {
    V_BY_TYPE(x->type, put_of, from, n, x->strides[3], to);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

seen TNI_CPU(attention_seen)(const head *t, int64_t r, int64_t first, int64_t keys) {
    const int64_t i = r / t->job->group;
    const int64_t begin = max(attention_first_key(t->job, i) - first, 0);
    const int64_t end = min(attention_end_of_keys(t->job, i) - first, keys);
    return begin < end ? (seen){begin, end} : (seen){0, 0};
}

/* Element (…, key) of a tensor of pairs, for row r. */
static int64_t pair_at(const head *t, const tn_view *x, int64_t r, int64_t key) {
    const int64_t group = t->job->group;
    return attention_at(x, t->p, t->h * group + r % group, r / group, key);
}

TNI_INLINE void add_bias(const tn_type t, const void *bias, int64_t step, int64_t n, real *scores) {
    if (step == 1)
        for (int64_t j = 0; j < n; j += VL) {
            const vreal sum = v_load_some(V_NATIVE, scores, j, n - j, 0) + v_load_some(t, bias, j, n - j, 0);
            v_store_some(V_NATIVE, scores, j, n - j, sum);
        }
    else
        for (int64_t j = 0; j < n; j++) scores[j] += r_load(t, bias, j * step);
}

void TNI_CPU(attention_scores)(const head *t, int64_t r, int64_t first, seen s, real *scores, real *capped) {
    const attention_job *a = t->job;
    const int64_t n = s.end - s.begin;
    const vreal scale = v_set((real)a->scale);
    scores += s.begin;
    for (int64_t j = 0; j < n; j += VL)
        v_store_some(V_NATIVE, scores, j, n - j, v_load_some(V_NATIVE, scores, j, n - j, 0) * scale);
    if (a->softcap > 0) {
        const vreal cap = v_set((real)a->softcap);
        for (int64_t j = 0; j < n; j += VL)
            v_store_some(V_NATIVE, scores, j, n - j, cap * v_tanh(v_load_some(V_NATIVE, scores, j, n - j, 0) / cap));
        if (capped) memcpy(capped + s.begin, scores, (size_t)n * sizeof *scores);
    }
    if (a->bias && n) {
        const int64_t step = a->bias->shape[3] == 1 ? 0 : a->bias->strides[3];
        const void *bias = r_at(a->bias->type, a->bias->data, pair_at(t, a->bias, r, first + s.begin));
        V_BY_TYPE(a->bias->type, add_bias, bias, step, n, scores);
    }
    if (a->mask && n) {
        const int64_t step = a->mask->shape[3] == 1 ? 0 : a->mask->strides[3];
        const uint8_t *mask = (const uint8_t *)a->mask->data + pair_at(t, a->mask, r, first + s.begin);
        for (int64_t j = 0; j < n; j++) scores[j] = mask[j * step] ? scores[j] : -(real)INFINITY;
    }
}

real TNI_CPU(attention_score)(const head *t, int64_t r, int64_t key, real *capped) {
    const attention_job *a = t->job;
    const seen s = TNI_CPU(attention_seen)(t, r, key, 1);
    const tni_matrix k = keys_of(t, a->k, key);
    const void *q = row_of(t, a->q, r);
    real sum = 0;
    if (s.begin == s.end) return -(real)INFINITY;
    for (int64_t l = 0; l < a->d; l++)
        sum += r_load(a->q->type, q, l * a->q->strides[3]) * r_load(k.type, k.data, l * k.column);
    TNI_CPU(attention_scores)(t, r, key, s, &sum, capped);
    return sum;
}
