/* max, min, argmax and argmin, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h).
 *
 * Of a row, the extreme is found block by block, and then its place in the first block that has it. Columns are gone
 * along side by side, each with its extreme and where that is. NaN is beyond all numbers. */
#include "extremes.h"

#include "cpu/short_rows.h"
#include "ops/runs.h"

enum {
    BLOCK = 1024, /* elements of a row */
    TILE = TNI_EXTREMES_TILE,
    FEW = 16 /* elements of a row that are looked at one by one */
};

typedef struct job {
    tni_extreme_along e;
    int64_t tiles; /* of columns */
    bool smallest, places;
} job;

TNI_INLINE bool is_beyond(real a, real b) {
    return a > b || (a != a && b == b);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The largest of sign * x; NaN where there is one. */
TNI_INLINE real most_of(const tn_type t, const void *x, int64_t n, const real sign) {
    const vreal none = v_set(-(real)INFINITY);
    vreal most[4] = {none, none, none, none};
    int64_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        for (int k = 0; k < 4; k++) most[k] = v_max(most[k], v_load(t, x, i + k * VL) * sign);
    }
    for (; i < n; i += VL) most[0] = v_max(most[0], v_load_some(t, x, i, n - i, -sign * (real)INFINITY) * sign);
    return v_hmax(v_max(v_max(most[0], most[1]), v_max(most[2], most[3])));
}

/* The first of n elements with sign * x == most, or the first NaN where that is one; there is one. */
TNI_INLINE int64_t place_of(const tn_type t, const void *x, int64_t n, const real sign, real most) {
    const vreal wanted = v_set(most);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        const vreal now = v_load(t, x, i) * sign;
        if (v_any(most == most ? (vint)(now == wanted) : (vint)(now != now))) break;
    }
    for (; i < n; i++) {
        const real now = r_load(t, x, i) * sign;
        if (most == most ? now == most : now != now) break;
    }
    return i;
}

TNI_INLINE int64_t place_in_row(const tn_type t, const void *x, int64_t n, const real sign) {
    real most = -(real)INFINITY;
    int64_t block = 0;
    for (int64_t i = 0; i < n && most == most; i += BLOCK) {
        const real now = most_of(t, r_at(t, x, i), min(n - i, BLOCK), sign);
        if (!is_beyond(now, most)) continue;
        most = now;
        block = i;
    }
    return block + place_of(t, r_at(t, x, block), min(n - block, BLOCK), sign, most);
}

/* Nobody could foretell a branch. */
TNI_INLINE int64_t place_in_few(const tn_type t, const void *x, int64_t n, const real sign) {
    real most = r_load(t, x, 0) * sign;
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        const real now = r_load(t, x, i) * sign;
        const bool taken = (now > most) | ((now != now) & (most == most));
        most = taken ? now : most;
        at = taken ? i : at;
    }
    return at;
}

TNI_INLINE void place_rows(const tn_type t, const job *j, const real sign, int64_t begin, int64_t end) {
    int64_t *index = j->e.y->data;
    const int64_t n = j->e.n;
    for (int64_t r = begin; r < end && n <= FEW; r++) index[r] = place_in_few(t, r_at(t, j->e.x->data, r * n), n, sign);
    for (int64_t r = begin; r < end && n > FEW; r++) index[r] = place_in_row(t, r_at(t, j->e.x->data, r * n), n, sign);
}

TNI_INLINE void value_rows(const tn_type t, const job *j, const real sign, int64_t begin, int64_t end) {
    const int64_t n = j->e.n, rows = end - begin;
    const void *x = r_at(t, j->e.x->data, begin * n);
    if (n > SHORT) {
        for (int64_t r = 0; r < rows; r++)
            r_store(t, j->e.y->data, begin + r, sign * most_of(t, r_at(t, x, r * n), n, sign));
        return;
    }
    const short_rows s = short_rows_of(rows, n, n, -sign * (real)INFINITY);
    for (int64_t r = 0; r < rows; r++) {
        vreal most = short_last(t, &s, x, r) * sign;
        for (int k = 0; k < s.whole; k++) most = v_max(most, v_load(t, x, r * n + k * VL) * sign);
        r_store(t, j->e.y->data, begin + r, sign * v_hmax(most));
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

TNI_INLINE void step_places(const tn_type t, const void *x, const real sign, real *most, int_of_real *at, int_of_real i,
                            int64_t count) {
    for (int64_t c = 0; c < count; c += VL) { /* the arrays have whole vectors */
        const vreal now = v_load_some(t, x, c, count - c, 0) * sign, before = v_load(V_NATIVE, most, c);
        const vint taken = (vint)(now > before) | ((vint)(now != now) & (vint)(before == before));
        vint place;
        memcpy(&place, at + c, sizeof place);
        place = (taken & v_seti(i)) | (~taken & place);
        v_store(V_NATIVE, most, c, v_select(taken, now, before));
        memcpy(at + c, &place, sizeof place);
    }
}

/* `count` columns of all rows: the extremes of several rows at once stay in registers. */
TNI_INLINE void value_columns(const tn_type t, const job *j, const real sign, const void *x, int64_t at,
                              int64_t count) {
    enum { TOGETHER = 8 }; /* rows */
    const int64_t inner = j->e.inner;
    real most[TILE];
    for (int64_t c = 0; c < count; c += VL) v_store(V_NATIVE, most, c, v_set(-(real)INFINITY));
    for (int64_t i = 0; i < j->e.n; i += TOGETHER) {
        const int64_t last = min(i + TOGETHER, j->e.n);
        for (int64_t c = 0; c < count; c += VL) {
            vreal so_far = v_load(V_NATIVE, most, c);
            for (int64_t r = i; r < last; r++)
                so_far = v_max(so_far, v_load_some(t, r_at(t, x, r * inner), c, count - c, 0) * sign);
            v_store(V_NATIVE, most, c, so_far);
        }
    }
    for (int64_t c = 0; c < count; c += VL)
        v_store_some(t, r_at(t, j->e.y->data, at), c, count - c, v_load(V_NATIVE, most, c) * sign);
}

TNI_INLINE void place_columns(const tn_type t, const job *j, const real sign, const void *x, int64_t at,
                              int64_t count) {
    int64_t *index = (int64_t *)j->e.y->data + at;
    real most[TILE];
    int_of_real places[TILE] = {0};
    for (int64_t c = 0; c < count; c += VL) v_store(V_NATIVE, most, c, v_load_some(t, x, c, count - c, 0) * sign);
    for (int64_t i = 1; i < j->e.n; i++)
        step_places(t, r_at(t, x, i * j->e.inner), sign, most, places, (int_of_real)i, count);
    for (int64_t c = 0; c < count; c++) index[c] = places[c];
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

TNI_INLINE void units_of(const tn_type t, const job *j, const real sign, const bool places, int64_t begin,
                         int64_t end) {
    for (int64_t unit = begin; unit < end && j->e.inner > 1; unit++) {
        const int64_t o = unit / j->tiles, first = unit % j->tiles * TILE, count = min(j->e.inner - first, TILE);
        const void *x = r_at(t, j->e.x->data, o * j->e.n * j->e.inner + first);
        if (places)
            place_columns(t, j, sign, x, o * j->e.inner + first, count);
        else
            value_columns(t, j, sign, x, o * j->e.inner + first, count);
    }
    if (j->e.inner > 1) return;
    if (places)
        place_rows(t, j, sign, begin, end);
    else
        value_rows(t, j, sign, begin, end);
}

TNI_INLINE void units(const tn_type t, const job *j, int64_t begin, int64_t end) {
    if (j->places && j->smallest)
        units_of(t, j, -1, true, begin, end);
    else if (j->places)
        units_of(t, j, 1, true, begin, end);
    else if (j->smallest)
        units_of(t, j, -1, false, begin, end);
    else
        units_of(t, j, 1, false, begin, end);
}

static void body(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->e.x->type, units, j, begin, end);
}

static tn_status find(const tn_call *call, bool smallest, bool places) {
    job j = {.e = tni_extreme_along_of(call), .smallest = smallest, .places = places};
    j.tiles = ceil_div(j.e.inner, TILE);
    tn_parallel(call, j.e.outer * j.tiles, tni_row_grain(j.e.n * min(j.e.inner, TILE)), body, &j);
    return TN_OK;
}

tn_status TNI_CPU(max)(const tn_call *call, void *state) {
    (void)state;
    return find(call, false, false);
}

tn_status TNI_CPU(min)(const tn_call *call, void *state) {
    (void)state;
    return find(call, true, false);
}

tn_status TNI_CPU(argmax)(const tn_call *call, void *state) {
    (void)state;
    return find(call, false, true);
}

tn_status TNI_CPU(argmin)(const tn_call *call, void *state) {
    (void)state;
    return find(call, true, true);
}
