/* segment_sum_offsets, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h). The rows
 * of a segment lie one behind the other: they are read once, in the order of memory. */
#include "segment_sum.h"

#include "ops/runs.h"

enum { TILE = 1024 }; /* elements of a row that are summed up at a time */
enum { CHAIN = 128 }; /* rows that are added one to the other; in a longer chain the errors of rounding would grow */

TNI_INLINE void sum_segment(const tn_type t, const void *from, int64_t rows, int64_t inner, int64_t n, void *to) {
    real sums[TILE], chain[TILE];
    memset(sums, 0, (size_t)n * sizeof(real));
    for (int64_t r = 0; r < rows;) {
        memset(chain, 0, (size_t)n * sizeof(real));
        for (const int64_t end = min(rows, r + CHAIN); r < end; r++) add_to_run(t, r_at(t, from, r * inner), chain, n);
        for (int64_t i = 0; i < n; i++) sums[i] += chain[i];
    }
    narrow_run(t, sums, to, n);
}

TNI_INLINE void sum_segments(const tn_type t, const tn_call *call, int64_t begin, int64_t end) {
    const segment_sum_offsets_args a = segment_sum_offsets_args_of(call);
    const int64_t inner = tn_product(a.x, 1, a.x->ndim);
    for (int64_t k = begin; k < end; k++) {
        const int64_t first = offset_at(a.offsets, k), rows = offset_at(a.offsets, k + 1) - first;
        for (int64_t i = 0, n; i < inner; i += n) {
            n = min(inner - i, TILE);
            const void *from = r_at(t, a.x->data, first * inner + i);
            sum_segment(t, from, rows, inner, n, r_at(t, a.y->data, k * inner + i));
        }
    }
}

static void sum_some_segments(void *arg, int64_t begin, int64_t end) {
    const tn_call *call = arg;
    V_BY_TYPE(tn_out(call, 0)->type, sum_segments, call, begin, end);
}

tn_status TNI_CPU(segment_sum_offsets)(const tn_call *call, void *state) {
    (void)state;
    const segment_sum_offsets_args a = segment_sum_offsets_args_of(call);
    const int64_t m = a.y->shape[0], n = a.x->shape[0], inner = tn_product(a.x, 1, a.x->ndim);
    TN_TRY(tni_segment_check(call, a.offsets, n));
    const int64_t each = m > 0 ? (n / m + 1) * max(inner, 1) : 1; /* elements of a segment, about */
    tn_parallel(call, m, max(32768 / each, 1), sum_some_segments, (void *)call);
    return TN_OK;
}
