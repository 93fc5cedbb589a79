/* Rows so short that a call for each, or a loop over its elements, would take longer than its work: some vectors each.
 * The last vector of a row is loaded together with what lies behind it, as far as that belongs to the same rows; only
 * the last rows of all are loaded element by element, where the machine has no masks.
 *
 *     const short_rows s = short_rows_of(rows, n, n, 0);
 *     for (int64_t r = 0; r < rows; r++) {
 *         vreal sum = short_last(t, &s, x, r);
 *         for (int k = 0; k < s.whole; k++) sum += v_load(t, x, r * n + k * VL);
 *         sums[r] = v_sum(sum);
 *     }                                                                                                              */
#ifndef TNI_SHORT_ROWS_H
#define TNI_SHORT_ROWS_H

#include "cpu/vec/vec.h"

enum { SHORT = 4 * VL }; /* elements of a row that is kept in registers */

typedef struct short_rows {
    int64_t n, apart; /* elements of a row; from one row to the next */
    int64_t end;      /* of the last row */
    int whole;        /* vectors before the last one, */
    vint own;         /* of which these lanes are the row's, */
    real others;      /* and the others become this */
} short_rows;

TNI_INLINE short_rows short_rows_of(int64_t rows, int64_t n, int64_t apart, real others) {
    const int whole = n > 0 ? (int)((n - 1) / VL) : 0;
    const vint own = (vint)(v_lanes() < v_seti((int_of_real)(n - whole * VL)));
    return (short_rows){n, apart, (rows - 1) * apart + n, whole, own, others};
}

/* The last vector of row r. */
TNI_INLINE vreal short_last(const tn_type t, const short_rows *s, const void *x, int64_t r) {
    const int64_t at = r * s->apart + s->whole * VL;
    if (at + VL > s->end) return v_load_n(t, x, at, s->n - s->whole * VL, s->others);
    return v_select(s->own, v_load(t, x, at), v_set(s->others));
}

#endif
