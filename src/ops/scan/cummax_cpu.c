/* cummax and cummin, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h); the f32
 * build has integers, too.
 *
 * In most rows a new extreme is rare, after the first few elements. So a row is looked at a vector at a time: where no
 * lane takes over, all of them get what there was. Columns are gone along side by side (scan_lanes.h). */
#include "cummax.h"

#include "ops/runs.h"
#include "scan_lanes.h"

typedef struct job {
    tni_extremes e;
    tni_lanes lanes;
    void *values; /* NULL: not wanted */
    int64_t *index;
} job;

TNI_INLINE bool takes_over(real now, real best, const bool smallest) {
    return (now != now) | (smallest ? now <= best : now >= best);
}

TNI_INLINE void fill_index(int64_t *index, int64_t value) {
    for (int i = 0; i < VL; i++) index[i] = value;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct extreme {
    real value;
    int64_t at;
} extreme;

TNI_INLINE int32_t signed_bits(const tn_type t, const void *x, int64_t i) {
    return t == TN_F32 ? ((const int32_t *)x)[i] : ((const int16_t *)x)[i];
}

/* Floats of 16 and 32 bits as integers in their order, in which both zeros are equal and NaN is the last. */
TNI_INLINE int64_t key_at(const tn_type t, const void *x, int64_t i, const bool smallest) {
    const int32_t most = t == TN_F32 ? INT32_MAX : INT16_MAX;
    const int32_t infinity = t == TN_F32 ? 0x7f800000 : t == TN_BF16 ? 0x7f80 : 0x7c00;
    const int32_t bits = signed_bits(t, x, i), sign = bits >> 31, size = bits & most, key = (size ^ sign) - sign;
    return size > infinity ? INT32_MAX : smallest ? -key : key;
}

/* The key and, below it, the place in one number: the larger of two such numbers takes over. So the next element waits
 * for little, and values are copied. */
TNI_INLINE void row_keys(const tn_type t, const job *j, int64_t first, int64_t begin, int64_t end, extreme *best,
                         const bool smallest) {
    const void *x = r_at(t, j->e.x->data, first);
    int64_t top = begin == 0 ? INT64_MIN : key_at(t, x, best->at, smallest) * ((int64_t)1 << 32) + best->at;
    for (int64_t i = begin; i < end; i++) {
        const int64_t now = key_at(t, x, i, smallest) * ((int64_t)1 << 32) + i;
        top = now > top ? now : top;
        const int64_t at = (uint32_t)top;
        if (j->index) j->index[first + i] = at;
        if (!j->values) continue;
        if (t == TN_F32)
            ((int32_t *)j->values)[first + i] = signed_bits(t, x, at);
        else
            ((int16_t *)j->values)[first + i] = (int16_t)signed_bits(t, x, at);
    }
    if (begin < end) *best = (extreme){r_load(t, x, (uint32_t)top), (uint32_t)top};
}

TNI_INLINE void row_elements(const tn_type t, const job *j, int64_t first, int64_t begin, int64_t end, extreme *best,
                             const bool smallest) {
    if (t != TN_F64 && j->e.n <= UINT32_MAX) {
        row_keys(t, j, first, begin, end, best, smallest);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const real now = r_load(t, j->e.x->data, first + i);
        /* In short rows nobody could foretell a branch. */
        const bool taken = (i == 0) | takes_over(now, best->value, smallest);
        best->value = taken ? now : best->value;
        best->at = taken ? i : best->at;
        if (j->values) r_store(t, j->values, first + i, best->value);
        if (j->index) j->index[first + i] = best->at;
    }
}

TNI_INLINE void extremes_row(const tn_type t, const job *j, int64_t first, const bool smallest) {
    const int64_t n = j->e.n;
    extreme best = {0, 0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vreal now = v_load(t, j->e.x->data, first + i), so_far = v_set(best.value);
        const vint taken = (vint)(now != now) | (vint)(smallest ? now <= so_far : now >= so_far);
        if (i == 0 || v_any(taken)) {
            row_elements(t, j, first, i, i + VL, &best, smallest);
            continue;
        }
        if (j->values) v_store(t, j->values, first + i, so_far);
        if (j->index) fill_index(j->index + first + i, best.at);
    }
    row_elements(t, j, first, i, n, &best, smallest);
}

TNI_INLINE void extremes_rows(const tn_type t, const job *j, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
        if (j->e.smallest)
            extremes_row(t, j, r * j->e.n, true);
        else
            extremes_row(t, j, r * j->e.n, false);
    }
}

static void do_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->e.x->type, extremes_rows, j, begin, end);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Places along the axis are as wide as `real`, for vectors of both. */
TNI_INLINE void step_columns(const real *x, real *best, int_of_real *at, int64_t i, int64_t count,
                             const bool smallest) {
    for (int64_t c = 0; c < count; c++) {
        const bool taken = takes_over(x[c], best[c], smallest);
        best[c] = taken ? x[c] : best[c];
        at[c] = taken ? (int_of_real)i : at[c];
    }
}

TNI_INLINE void extremes_columns(const tn_type t, const job *j, int64_t first, int64_t count) {
    real x[TNI_LANES], best[TNI_LANES];
    int_of_real at[TNI_LANES];
    widen_run(t, r_at(t, j->e.x->data, first), best, count);
    memset(at, 0, (size_t)count * sizeof *at);
    for (int64_t i = 0; i < j->e.n; i++) {
        const int64_t place = first + i * j->e.inner;
        widen_run(t, r_at(t, j->e.x->data, place), x, count);
        if (j->e.smallest)
            step_columns(x, best, at, i, count, true);
        else
            step_columns(x, best, at, i, count, false);
        if (j->values) narrow_run(t, best, r_at(t, j->values, place), count);
        for (int64_t c = 0; j->index && c < count; c++) j->index[place + c] = at[c];
    }
}

static void do_columns(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        V_BY_TYPE(j->e.x->type, extremes_columns, j, first, count);
    }
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

/* As signed numbers of 64 bits in their order. */
TNI_INLINE int64_t ordered_at(const tn_type t, const void *x, int64_t i) {
    switch (t) {
    case TN_I8: return ((const int8_t *)x)[i];
    case TN_I16: return ((const int16_t *)x)[i];
    case TN_I32: return ((const int32_t *)x)[i];
    case TN_I64: return ((const int64_t *)x)[i];
    case TN_U16: return ((const uint16_t *)x)[i];
    case TN_U32: return ((const uint32_t *)x)[i];
    case TN_U64: return (int64_t)(((const uint64_t *)x)[i] ^ (uint64_t)INT64_MIN);
    default: return ((const uint8_t *)x)[i]; /* TN_BOOL, too */
    }
}

/* Such a number back in its type. */
TNI_INLINE void store_ordered(const tn_type t, void *y, int64_t i, int64_t a) {
    const uint64_t bits = (uint64_t)a;
    switch (t) {
    case TN_I16:
    case TN_U16: ((uint16_t *)y)[i] = (uint16_t)bits; break;
    case TN_I32:
    case TN_U32: ((uint32_t *)y)[i] = (uint32_t)bits; break;
    case TN_I64: ((uint64_t *)y)[i] = bits; break;
    case TN_U64: ((uint64_t *)y)[i] = bits ^ (uint64_t)INT64_MIN; break;
    default: ((uint8_t *)y)[i] = (uint8_t)bits;
    }
}

TNI_INLINE void whole_row(const tn_type t, const job *j, int64_t first, const bool smallest) {
    const void *x = j->e.x->data;
    void *values = j->values;
    int64_t *index = j->index, best = 0, at = 0;
    for (int64_t i = 0; i < j->e.n; i++) {
        const int64_t now = ordered_at(t, x, first + i);
        /* In short rows nobody could foretell a branch. */
        const bool taken = (i == 0) | (smallest ? now <= best : now >= best);
        best = taken ? now : best;
        at = taken ? i : at;
        if (values) store_ordered(t, values, first + i, best);
        if (index) index[first + i] = at;
    }
}

TNI_INLINE void whole_columns(const tn_type t, const job *j, int64_t first, int64_t count) {
    int64_t best[TNI_LANES], at[TNI_LANES];
    for (int64_t c = 0; c < count; c++) best[c] = ordered_at(t, j->e.x->data, first + c);
    for (int64_t i = 0; i < j->e.n; i++) {
        const int64_t place = first + i * j->e.inner;
        for (int64_t c = 0; c < count; c++) {
            const int64_t now = ordered_at(t, j->e.x->data, place + c);
            const bool taken = i == 0 || (j->e.smallest ? now <= best[c] : now >= best[c]);
            best[c] = taken ? now : best[c];
            at[c] = taken ? i : at[c];
            if (j->values) store_ordered(t, j->values, place + c, best[c]);
            if (j->index) j->index[place + c] = at[c];
        }
    }
}

TNI_INLINE void whole_unit(const tn_type t, const job *j, int64_t first, int64_t count) {
    if (j->e.inner > 1) {
        whole_columns(t, j, first, count);
        return;
    }
    for (int64_t r = 0; r < count; r++) {
        if (j->e.smallest)
            whole_row(t, j, first + r * j->e.n, true);
        else
            whole_row(t, j, first + r * j->e.n, false);
    }
}

static void do_whole(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        switch (j->e.x->type) {
        case TN_I8: whole_unit(TN_I8, j, first, count); break;
        case TN_I16: whole_unit(TN_I16, j, first, count); break;
        case TN_I32: whole_unit(TN_I32, j, first, count); break;
        case TN_I64: whole_unit(TN_I64, j, first, count); break;
        case TN_U16: whole_unit(TN_U16, j, first, count); break;
        case TN_U32: whole_unit(TN_U32, j, first, count); break;
        case TN_U64: whole_unit(TN_U64, j, first, count); break;
        default: whole_unit(TN_U8, j, first, count);
        }
    }
}

tn_status TNI_CPU(cummax)(const tn_call *call, void *state) {
    (void)state;
    job j = {.e = tni_extremes_of(call)};
    j.values = data_of(j.e.values);
    j.index = data_of(j.e.index);
    if (tn_count(j.e.x) == 0) return TN_OK;
    const bool is_float = TN_BIT(j.e.x->type) & TN_FLOATS;
    if (is_float && j.e.inner == 1) {
        tn_parallel(call, j.e.outer, tni_row_grain(j.e.n), do_rows, &j);
        return TN_OK;
    }
    if (is_float && sizeof(real) == 4 && j.e.n > INT32_MAX)
        return tn_fail(TN_UNSUPPORTED, "%s: so long an axis needs to be the last one", call->name);
    j.lanes = tni_lanes_of(j.e.outer, j.e.n, j.e.inner);
    tn_parallel(call, j.lanes.units, tni_row_grain(j.e.n * j.lanes.width), is_float ? do_columns : do_whole, &j);
    return TN_OK;
}
