/* cummax and cummin, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h); the f32
 * build has integers, too.
 *
 * In most rows a new extreme is rare, after the first few elements. So a row is looked at a vector at a time: where no
 * lane takes over, all of them get what there was; elsewhere the extremes are found among the lanes. Columns are gone
 * along side by side (scan_lanes.h). */
#include "cummax.h"

#include "ops/runs.h"
#include "scan_lanes.h"
#include "scan_shift.h"

enum {
    FEW = 8,       /* columns, or elements of a row */
    SHORT_ROW = 48 /* elements, of up to 32 bits */
};

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

/* What is the extreme of either; NaN where one is. */
TNI_INLINE vreal v_extreme(vreal a, vreal b, const bool smallest) {
    return smallest ? v_min(a, b) : v_max(a, b);
}

/* Lane i: the extreme of lanes 0 … i. */
TNI_INLINE vreal v_extremes(vreal v, const bool smallest) {
    const vreal none = v_set(smallest ? (real)INFINITY : -(real)INFINITY);
    v = v_extreme(v, v_shifted(v, none, 1, false), smallest);
    if (VL > 2) v = v_extreme(v, v_shifted(v, none, 2 % VL, false), smallest);
    if (VL > 4) v = v_extreme(v, v_shifted(v, none, 4 % VL, false), smallest);
    if (VL > 8) v = v_extreme(v, v_shifted(v, none, 8 % VL, false), smallest);
    return v;
}

TNI_INLINE vint v_later(vint at, const int k) {
    const vint before = (vint)v_shifted((vreal)at, (vreal)v_seti(-1), k, false);
    return (vint)v_select((vint)(before > at), (vreal)before, (vreal)at);
}

/* Lane i: the last of lanes 0 … i that is taken; -1: none is. */
TNI_INLINE vint v_last_taken(vint taken) {
    vint at = (taken & v_lanes()) | ~taken;
    at = v_later(at, 1);
    if (VL > 2) at = v_later(at, 2 % VL);
    if (VL > 4) at = v_later(at, 4 % VL);
    if (VL > 8) at = v_later(at, 8 % VL);
    return at;
}

/* Elements i … of a row, `count` of them, which are in `now`. An element takes over where it is the extreme of all up
 * to it. Values are copied: zeros keep their signs. */
TNI_INLINE void vector_extremes(const tn_type t, const job *j, int64_t first, int64_t i, int64_t count, vreal now,
                                extreme *best, const bool smallest) {
    const vreal so_far = v_extreme(v_extremes(now, smallest), v_set(best->value), smallest);
    const vint taken = (vint)(now != now) | (vint)(smallest ? now <= so_far : now >= so_far);
    const vint at = v_last_taken(taken), none = (vint)(at < 0);
    const vreal value = v_select(none, v_set(best->value), v_taken(now, at & ~none));
    int_of_real places[VL];
    memcpy(places, &at, sizeof places);
    if (j->values) v_store_some(t, j->values, first + i, count, value);
    if (j->index) {
        int64_t *to = j->index + first + i;
        for (int64_t k = 0; k < count; k++) to[k] = places[k] < 0 ? best->at : i + places[k];
    }
    if (count < VL) return; /* the row is through */
    best->at = at[VL - 1] < 0 ? best->at : i + at[VL - 1];
    best->value = value[VL - 1];
}

/* Element by element, in rows that are too short for vectors. Values are copied: zeros keep their signs. */
TNI_INLINE void extremes_apart(const tn_type t, const job *j, int64_t first, int64_t step, const bool smallest) {
    const size_t size = t == TN_F64 ? 8 : t == TN_F32 ? 4 : 2;
    real best = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < j->e.n; i++) {
        const int64_t place = first + i * step;
        const real now = r_load(t, j->e.x->data, place);
        /* In short rows nobody could foretell a branch. */
        const bool taken = (i == 0) | takes_over(now, best, smallest);
        best = taken ? now : best;
        at = taken ? i : at;
        if (j->values) memcpy(r_at(t, j->values, place), r_at(t, j->e.x->data, first + at * step), size);
        if (j->index) j->index[place] = at;
    }
}

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

/* The key and, below it, the place in one number: the larger of two such numbers takes over. All numbers are made at
 * once; the next element then waits for little, and values are copied. */
TNI_INLINE void extremes_by_keys(const tn_type t, const job *j, int64_t first, const bool smallest) {
    const void *x = r_at(t, j->e.x->data, first);
    const int64_t n = j->e.n;
    int64_t numbers[SHORT_ROW], top = INT64_MIN;
    for (int64_t i = 0; i < n; i++) numbers[i] = key_at(t, x, i, smallest) * ((int64_t)1 << 32) + i;
    for (int64_t i = 0; i < n; i++) {
        top = numbers[i] > top ? numbers[i] : top;
        const int64_t at = (uint32_t)top;
        if (j->index) j->index[first + i] = at;
        if (!j->values) continue;
        if (t == TN_F32)
            ((int32_t *)j->values)[first + i] = signed_bits(t, x, at);
        else
            ((int16_t *)j->values)[first + i] = (int16_t)signed_bits(t, x, at);
    }
}

TNI_INLINE void extremes_row(const tn_type t, const job *j, int64_t first, const bool smallest) {
    const int64_t n = j->e.n;
    if (t == TN_F64 ? n <= FEW : n <= SHORT_ROW) {
        if (t == TN_F64)
            extremes_apart(t, j, first, 1, smallest);
        else
            extremes_by_keys(t, j, first, smallest);
        return;
    }
    extreme best = {smallest ? (real)INFINITY : -(real)INFINITY, 0};
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vreal now = v_load(t, j->e.x->data, first + i), so_far = v_set(best.value);
        const vint taken = (vint)(now != now) | (vint)(smallest ? now <= so_far : now >= so_far);
        if (v_any(taken)) {
            vector_extremes(t, j, first, i, VL, now, &best, smallest);
            continue;
        }
        if (j->values) v_store(t, j->values, first + i, so_far);
        if (j->index) fill_index(j->index + first + i, best.at);
    }
    if (i < n) vector_extremes(t, j, first, i, n - i, load_tail(t, j->e.x->data, first + i, n - i, 0), &best, smallest);
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

/* Columns, one after the other: what a step of so few would cost is more than their work. */
TNI_INLINE void extremes_few(const tn_type t, const job *j, int64_t first, int64_t count) {
    for (int64_t c = first; c < first + count; c++) {
        if (j->e.smallest)
            extremes_apart(t, j, c, j->e.inner, true);
        else
            extremes_apart(t, j, c, j->e.inner, false);
    }
}

static void do_columns(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        if (count <= FEW) {
            V_BY_TYPE(j->e.x->type, extremes_few, j, first, count);
            continue;
        }
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
