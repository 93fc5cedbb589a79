/* softmax along an axis that is not the fastest: a block of neighbouring columns at a time. It is walked along the axis
 * three times, for the largest scores, the exponentials and their sums, and the quotients; what belongs to a column
 * waits in a small array. */
#include "softmax_cpu.h"

/* Row i of the axis begins at x + i * step_x. */
typedef struct block {
    const void *x;
    const uint8_t *mask; /* NULL: none */
    void *y;
    real *e; /* where the exponentials wait; NULL: they are computed again */
    int64_t n, width, step_x, step_y, step_e, step_mask, across_mask;
    real scale;
    real shift[COLUMNS_MOST + VL], sum[COLUMNS_MOST + VL]; /* the sum, then 1 / sum */
} block;

/* Which of the `width` columns from c on the mask keeps in row i. */
TNI_INLINE vint columns_kept(const block *b, int64_t i, int64_t c, int64_t width) {
    const uint8_t *mask = b->mask + i * b->step_mask + c * b->across_mask;
    if (b->across_mask == 0) return v_seti(-(int_of_real)(*mask != 0));
    if (b->across_mask == 1 && width >= VL) return v_mask(mask, 0);
    vint kept = {0};
    for (int64_t lane = 0; lane < min(width, VL); lane++) kept[lane] = -(int_of_real)(mask[lane * b->across_mask] != 0);
    return kept;
}

/* scale * x - shift */
TNI_INLINE vreal plain_score(const tn_type t, const block *b, int64_t i, int64_t c, vreal shift) {
    return v_fma(v_load(t, b->x, i * b->step_x + c), v_set(b->scale), -shift);
}

/* The same for fewer columns than a vector, and with a mask. */
TNI_INLINE vreal any_score(const tn_type t, const block *b, int64_t i, int64_t c, vreal shift) {
    vreal score = v_fma(v_load_columns(t, b->x, i * b->step_x + c, b->width - c), v_set(b->scale), -shift);
    return b->mask ? v_select(columns_kept(b, i, c, b->width - c), score, v_set(-(real)INFINITY)) : score;
}

/* Columns that are taken in whole groups. */
TNI_INLINE int64_t grouped(const block *b) {
    return b->mask ? 0 : b->width / (GROUP * VL) * (GROUP * VL);
}

TNI_INLINE void find_max(const tn_type t, block *b) {
    const int64_t whole = grouped(b);
    for (int64_t c = 0; c < b->width; c++) b->shift[c] = -(real)INFINITY;
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t c = 0; c < whole; c += VL)
            v_store(V_NATIVE, b->shift, c, v_atleast(plain_score(t, b, i, c, v_set(0)), v_load(V_NATIVE, b->shift, c)));
        for (int64_t c = whole; c < b->width; c += VL)
            v_store(V_NATIVE, b->shift, c, v_atleast(any_score(t, b, i, c, v_set(0)), v_load(V_NATIVE, b->shift, c)));
    }
    for (int64_t c = 0; c < b->width; c++) b->shift[c] = shift_of(b->shift[c]);
}

TNI_INLINE void add_exp(const tn_type t, block *b) {
    const int64_t whole = grouped(b);
    for (int64_t c = 0; c < b->width; c++) b->sum[c] = 0;
    for (int64_t i = 0; i < b->n; i++) {
        real *e = b->e ? b->e + i * b->step_e : NULL;
        for (int64_t c = 0; c < whole; c += GROUP * VL) {
            vreal a[GROUP];
            for (int k = 0; k < GROUP; k++)
                a[k] = v_exp_scaled(plain_score(t, b, i, c + k * VL, v_load(V_NATIVE, b->shift, c + k * VL)));
            for (int k = 0; k < GROUP; k++) {
                v_store(V_NATIVE, b->sum, c + k * VL, v_load(V_NATIVE, b->sum, c + k * VL) + a[k]);
                if (e) v_store(V_NATIVE, e, c + k * VL, a[k]);
            }
        }
        for (int64_t c = whole; c < b->width; c += VL) {
            vreal a = v_exp_scaled(any_score(t, b, i, c, v_load(V_NATIVE, b->shift, c)));
            v_store(V_NATIVE, b->sum, c, v_load(V_NATIVE, b->sum, c) + a);
            if (e) v_store_columns(V_NATIVE, e, c, b->width - c, a);
        }
    }
    for (int64_t c = 0; c < b->width; c++) b->sum[c] = 1 / b->sum[c];
}

/* Quotients of exponentials that were kept. */
TNI_INLINE void write_kept(const tn_type t, const block *b) {
    const int64_t whole = grouped(b);
    for (int64_t i = 0; i < b->n; i++) {
        const real *e = b->e + i * b->step_e;
        for (int64_t c = 0; c < whole; c += VL)
            v_store(t, b->y, i * b->step_y + c, v_load(V_NATIVE, e, c) * v_load(V_NATIVE, b->sum, c));
        for (int64_t c = whole; c < b->width; c += VL) {
            vreal a = v_load_columns(V_NATIVE, e, c, b->width - c) * v_load(V_NATIVE, b->sum, c);
            if (b->mask) a = v_select(columns_kept(b, i, c, b->width - c), a, v_set(0));
            v_store_columns(t, b->y, i * b->step_y + c, b->width - c, a);
        }
    }
}

TNI_INLINE void write_again(const tn_type t, const block *b) {
    const int64_t whole = grouped(b);
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t c = 0; c < whole; c += GROUP * VL) {
            vreal a[GROUP];
            for (int k = 0; k < GROUP; k++)
                a[k] = v_exp_scaled(plain_score(t, b, i, c + k * VL, v_load(V_NATIVE, b->shift, c + k * VL)));
            for (int k = 0; k < GROUP; k++)
                v_store(t, b->y, i * b->step_y + c + k * VL, a[k] * v_load(V_NATIVE, b->sum, c + k * VL));
        }
        for (int64_t c = whole; c < b->width; c += VL) {
            vreal a = v_exp_scaled(any_score(t, b, i, c, v_load(V_NATIVE, b->shift, c))) * v_load(V_NATIVE, b->sum, c);
            if (b->mask) a = v_select(columns_kept(b, i, c, b->width - c), a, v_set(0));
            v_store_columns(t, b->y, i * b->step_y + c, b->width - c, a);
        }
    }
}

TNI_INLINE void do_block(const tn_type t, block *b) {
    find_max(t, b);
    add_exp(t, b);
    if (t == V_NATIVE || b->e)
        write_kept(t, b);
    else
        write_again(t, b);
}

TNI_INLINE void do_blocks(const tn_type t, const softmax_job *j, int64_t begin, int64_t end) {
    const tni_rows *rows = &j->rows;
    const int64_t blocks = ceil_div(j->columns, j->width);
    real buffer[SPAN];
    block b;
    b.n = rows->n;
    b.step_x = rows->step[ROW_X];
    b.step_y = rows->step[ROW_Y];
    b.step_mask = rows->step[ROW_MASK];
    b.across_mask = j->across[ROW_MASK];
    b.scale = j->scale;
    for (int64_t r = begin; r < end; r++) {
        const tni_row row = tni_row_at(rows, r / blocks);
        const int64_t first = r % blocks * j->width;
        b.x = r_at(t, j->x, row.at[ROW_X] + first);
        b.y = r_at(t, j->y, row.at[ROW_Y] + first);
        b.mask = j->mask ? j->mask + row.at[ROW_MASK] + first * b.across_mask : NULL;
        b.width = min(j->width, j->columns - first);
        b.e = t == V_NATIVE ? b.y : b.n * b.width <= SPAN ? buffer : NULL;
        b.step_e = t == V_NATIVE ? b.step_y : b.width;
        do_block(t, &b);
    }
}

void TNI_CPU(softmax_columns)(void *arg, int64_t begin, int64_t end) {
    const softmax_job *j = arg;
    V_BY_TYPE(j->type, do_blocks, j, begin, end);
}
