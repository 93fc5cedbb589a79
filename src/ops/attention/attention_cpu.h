/* What attention and its gradient have in common on the CPU: blocks of rows and keys, packed for the tiles of products,
 * and their scores. */
#ifndef TNI_ATTENTION_CPU_H
#define TNI_ATTENTION_CPU_H

#include "attention_plan.h"
#include "ops/gemm/pack_cpu.h"

enum { ROWS = ATTENTION_ROWS, KEYS = ATTENTION_KEYS };

/* One entry of the batch and one head of k: what its rows and keys are. */
typedef struct head {
    const attention_job *job;
    int64_t p, h; /* entry, head of k */
} head;

/* Where element 0 of row r, of a tensor with a row for each of q's, begins. */
TNI_INLINE void *row_of(const head *t, const tn_view *x, int64_t r) {
    const attention_job *a = t->job;
    const int64_t h = t->h * a->group + r % a->group;
    return r_at(x->type, x->data, t->p * x->strides[0] + h * x->strides[1] + r / a->group * x->strides[2]);
}

TNI_INLINE tni_matrix keys_of(const head *t, const tn_view *x, int64_t key) {
    const int64_t at = t->p * x->strides[0] + t->h * x->strides[1] + key * x->strides[2];
    return (tni_matrix){r_at(x->type, x->data, at), x->type, x->strides[2], x->strides[3], {0}, {0}};
}

/* Where row r of a block of packed rows begins, by steps of GEMM_STEP numbers. */
TNI_INLINE real *packed_step(real *packed, int64_t rows, int64_t step) {
    return packed + step * rows * A_ROW;
}

/* Rows first … of x as the left side of a product. */
void TNI_CPU(attention_pack_rows)(const head *t, const tn_view *x, int64_t first, int64_t rows, real *to);
/* The same from there as the right side: rows become terms. */
void TNI_CPU(attention_turn_rows)(const real *packed, int64_t rows, int64_t width, real *to);
/* Keys of x as the right side of a product: as its columns, or (turned) as its terms. */
void TNI_CPU(attention_pack_keys)(const head *t, const tn_view *x, int64_t first, int64_t keys, bool turned, real *to);
/* c (rows, columns) = a b, or with `add` what it is more. c_row and the memory behind a row: whole vectors. */
void TNI_CPU(attention_product)(int64_t rows, int64_t columns, int64_t k, const real *a, const real *b, real *c,
                                int64_t c_row, bool add);

/* What row r sees of keys first … first + keys - 1: begin … end - 1, counted from the first. */
typedef struct seen {
    int64_t begin, end;
} seen;
seen TNI_CPU(attention_seen)(const head *t, int64_t r, int64_t first, int64_t keys);

/* Of row r: products of q and k become scores, -inf where a key takes no part. `capped`: scores before the bias, for
 * the gradient; NULL: nobody asks. */
void TNI_CPU(attention_scores)(const head *t, int64_t r, int64_t first, seen s, real *scores, real *capped);

/* The score of one pair, for rows that are done again. */
real TNI_CPU(attention_score)(const head *t, int64_t r, int64_t key, real *capped);

/* Where what takes no part is NaN, or infinite, it must not be seen, but 0 times it is: rows with such a result are
 * done again, key by key. */
TNI_INLINE bool is_finite_run(const real *x, int64_t n) {
    vreal odd = {0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) odd += v_load(V_NATIVE, x, i) * 0;
    real sum = v_sum(odd);
    for (; i < n; i++) sum += x[i] * 0;
    return sum == 0;
}

/* A row of results into memory. */
void TNI_CPU(attention_put)(const real *from, int64_t n, const tn_view *x, void *to);

#endif
