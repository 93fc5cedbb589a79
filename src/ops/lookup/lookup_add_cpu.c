/* add, vectorised. Compiled once per instruction set and precision (src/cpu/vec/variants.h).
 *
 * Long rows: a counting sort puts the rows that belong to one k next to each other, in their order. Then each row of
 * the result is summed up and written once, and rows that nothing belongs to are zeroed in long stretches.
 *
 * Short rows and single elements: they are added where they belong, one after the other. 16-bit results have their sums
 * in f32, in the workspace. Threads share the outer dimension or, where there is none, the k: each of them then reads
 * all of the index, so they are few. */
#include "lookup_add.h"

#include <stdatomic.h>

#include "ops/runs.h"

enum { TILE = 1024 }; /* elements of a row that are summed up at a time */

/* ---- long rows --------------------------------------------------------------------------------------------------- */

typedef struct grouped {
    tni_lookup l;
    tni_groups g;
} grouped;

/* The rows that the positions name, and the row of base, into one row of the result. */
TNI_INLINE void add_group(const tn_type t, const grouped *g, const void *from, const void *base, void *to,
                          const int64_t *positions, int64_t count) {
    const int64_t inner = g->l.inner, bytes = (int64_t)tn_type_size(t);
    if (!base && count == 1) {
        memcpy(to, (const char *)from + positions[0] * inner * bytes, (size_t)(inner * bytes));
        return;
    }
    for (int64_t first = 0, n; first < inner; first += n) {
        real sums[TILE];
        n = min(inner - first, TILE);
        const void *begin = base ? base : r_at(t, from, positions[0] * inner);
        widen_run(t, r_at(t, begin, first), sums, n);
        for (int64_t p = base ? 0 : 1; p < count; p++)
            add_to_run(t, r_at(t, from, positions[p] * inner + first), sums, n);
        narrow_run(t, sums, r_at(t, to, first), n);
    }
}

/* Rows begin … end - 1 of the result. */
TNI_INLINE void add_groups(const tn_type t, const grouped *g, int64_t begin, int64_t end) {
    const tni_lookup *l = &g->l;
    const int64_t keys = g->g.keys, bytes = (int64_t)tn_type_size(t) * l->inner;
    for (int64_t row = begin; row < end;) {
        const int64_t slab = row / keys, k = row % keys, first = g->g.starts[k], count = g->g.starts[k + 1] - first;
        char *to = (char *)l->to->data + row * bytes;
        const char *base = l->base ? (const char *)l->base->data + row * bytes : NULL;
        if (count > 0) {
            const char *from = (const char *)l->from->data + slab * g->g.positions_of_slab * bytes;
            add_group(t, g, from, base, to, g->g.positions + first, count);
            row++;
            continue;
        }
        int64_t empty = 1; /* rows, up to the next that something is added to */
        while (row + empty < end && k + empty < keys && g->g.starts[k + empty + 1] == first) empty++;
        if (base)
            memcpy(to, base, (size_t)(empty * bytes));
        else
            memset(to, 0, (size_t)(empty * bytes));
        row += empty;
    }
}

static void add_some_groups(void *arg, int64_t begin, int64_t end) {
    const grouped *g = arg;
    V_BY_TYPE(g->l.to->type, add_groups, g, begin, end);
}

static tn_status add_grouped(const tn_call *call, const tni_lookup *l) {
    grouped g = {.l = *l};
    TN_TRY(tni_groups_make(call, l, &g.g));
    tn_parallel(call, g.g.slabs * g.g.keys, max(32768 / l->inner, 1), add_some_groups, &g);
    return TN_OK;
}

/* ---- short rows and elements ------------------------------------------------------------------------------------- */

typedef struct direct {
    tni_lookup l;
    tni_direct d;
    real *sums; /* (d.lanes, d.block, v, inner), where the result cannot hold them */
    _Atomic int64_t bad;
} direct;

enum { RUN = TNI_LOOKUP_RUN };

/* n elements as `real`: their own memory where they are, else `wider`. */
TNI_INLINE const real *reals_at(const tn_type t, const void *from, int64_t n, real *wider) {
    if (t == V_NATIVE) return from;
    widen_run(t, from, wider, n);
    return wider;
}

/* Of n elements one index after the other, `by` apart; `step`: of the sums from k to k, `each`: from element to
 * element. Only what belongs to k from `low` on counts, `few` of them. The indices are within. */
TNI_INLINE void add_run(const bool wide, const bool whole, const void *index, int64_t at, int64_t by, const real *x,
                        int64_t n, int64_t step, int64_t each, real *sums, int64_t low, int64_t few) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = tni_index_at(index, wide, at + i * by);
        if (whole || (uint64_t)k - (uint64_t)low < (uint64_t)few) sums[k * step + i * each] += x[i];
    }
}

/* n elements of one slab, as many at a time as RUN. Returns whether all indices are within. */
TNI_INLINE bool add_elements(const tn_type t, const bool wide, const tni_lookup *l, real *sums, const void *from,
                             int64_t at, int64_t by, int64_t n, int64_t step, int64_t each, int64_t low, int64_t high) {
    const bool whole = high - low == l->v;
    for (int64_t first = 0; first < n; first += RUN) {
        const int64_t count = min(n - first, RUN), begin = at + first * by;
        real wider[RUN], *to = sums + first * each;
        if (!tni_indices_are_within(l, begin, by, count)) return false;
        const real *x = reals_at(t, r_at(t, from, first), count, wider);
        if (whole)
            add_run(wide, true, l->index->data, begin, by, x, count, step, each, to, 0, 0);
        else
            add_run(wide, false, l->index->data, begin, by, x, count, step, each, to, low, high - low);
    }
    return true;
}

/* Single elements of slabs first … last - 1, short enough that several are one run; their indices lie behind each
 * other. Returns whether all are within. */
TNI_INLINE bool add_short_slabs(const tn_type t, const bool wide, const bool dense, const tni_lookup *l, real *sums,
                                int64_t first, int64_t last) {
    const int64_t n = l->n, by = dense ? 1 : l->by_n, v = l->v;
    const void *index = l->index->data;
    int64_t before[RUN];
    tni_place_slabs(before, min(RUN / n, last - first) * n, n, v);
    for (int64_t o = first, slabs; o < last; o += slabs) {
        slabs = min(RUN / n, last - o);
        const int64_t at = o * l->by_outer, count = slabs * n;
        real wider[RUN], *to = sums + (o - first) * v;
        if (!tni_indices_are_within(l, at, by, count)) return false;
        const real *x = reals_at(t, r_at(t, l->from->data, o * n), count, wider);
        for (int64_t i = 0; i < count; i++) to[before[i] + tni_index_at(index, wide, at + i * by)] += x[i];
    }
    return true;
}

/* The same for indices of which some are skipped; the first that is none is noted. (o, j, i): where they stand. */
TNI_INLINE void add_with_care(const tn_type t, direct *d, real *sums, int64_t o, int64_t low, int64_t high) {
    const tni_lookup *l = &d->l;
    const bool wide = tni_lookup_is_wide(l), by_row = tni_lookup_is_by_row(l);
    const int64_t inner = l->inner;
    const void *from = r_at(t, l->from->data, o * l->n * inner);
    for (int64_t j = 0; j < l->n; j++) {
        for (int64_t i = 0; i < inner; i++) {
            const int64_t k = tni_index_at(l->index->data, wide, o * l->by_outer + j * l->by_n + i * l->by_inner);
            const bool within = k >= low && k < high && !tni_lookup_skips(l, k);
            if (within && by_row) {
                for (; i < inner; i++) sums[k * inner + i] += r_load(t, from, j * inner + i);
            } else if (within) {
                sums[k * inner + i] += r_load(t, from, j * inner + i);
            } else {
                if ((uint64_t)k >= (uint64_t)l->v && !tni_lookup_skips(l, k))
                    tni_note_first(&d->bad, (o * l->n + j) * inner + i);
                if (by_row) break;
            }
        }
    }
}

/* All that belongs to k from `low` to `high` - 1 of slab o is added to `sums`, which has the slab. */
TNI_INLINE void add_slab(const tn_type t, const bool wide, direct *d, real *sums, int64_t o, int64_t low,
                         int64_t high) {
    const tni_lookup *l = &d->l;
    const int64_t inner = l->inner, at = o * l->by_outer;
    const void *from = r_at(t, l->from->data, o * l->n * inner);
    bool right = true;
    if (l->skipped >= 0 || l->drops_negative || (tni_lookup_is_by_row(l) && inner > 1)) {
        add_with_care(t, d, sums, o, low, high);
        return;
    }
    if (inner == 1) {
        right = add_elements(t, wide, l, sums, from, at, l->by_n, l->n, 1, 0, low, high);
    } else {
        for (int64_t j = 0; j < l->n; j++) {
            right &= add_elements(t, wide, l, sums, r_at(t, from, j * inner), at + j * l->by_n, l->by_inner, inner,
                                  inner, 1, low, high);
        }
    }
    if (!right) add_with_care(t, d, sums, o, low, high); /* the call fails: it is about which index it was */
}

/* Slabs first … last - 1, to `sums`. */
TNI_INLINE void add_slabs(const tn_type t, const bool wide, direct *d, real *sums, int64_t first, int64_t last,
                          int64_t low, int64_t high) {
    const tni_lookup *l = &d->l;
    const bool skips = l->skipped >= 0 || l->drops_negative, follow = l->by_outer == l->n * l->by_n;
    const bool several = l->n > 0 && l->n <= RUN / 2 && last - first > 1;
    if (l->inner == 1 && !skips && follow && several &&
        (l->by_n == 1 ? add_short_slabs(t, wide, true, l, sums, first, last)
                      : add_short_slabs(t, wide, false, l, sums, first, last)))
        return;
    /* Where an index is none, the sums are wrong from here on, and the call fails. */
    for (int64_t o = first; o < last; o++) add_slab(t, wide, d, sums + (o - first) * l->v * l->inner, o, low, high);
}

/* Slabs first … last - 1, one behind the other in memory. */
TNI_INLINE void add_block(const tn_type t, direct *d, int64_t first, int64_t last, int64_t lane, int64_t low,
                          int64_t high) {
    const tni_lookup *l = &d->l;
    const int64_t slab = l->v * l->inner, begin = low * l->inner;
    const int64_t n = (last - first - 1) * slab + (high - low) * l->inner;
    const void *base = l->base ? r_at(t, l->base->data, first * slab + begin) : NULL;
    void *to = r_at(t, l->to->data, first * slab + begin);
    real *sums = d->sums ? d->sums + lane * d->d.block * slab : (real *)r_at(t, l->to->data, first * slab);
    if (base)
        widen_run(t, base, sums + begin, n);
    else
        memset(sums + begin, 0, (size_t)n * sizeof(real));
    if (tni_lookup_is_wide(l))
        add_slabs(t, true, d, sums, first, last, low, high);
    else
        add_slabs(t, false, d, sums, first, last, low, high);
    if (d->sums) narrow_run(t, sums + begin, to, n);
}

TNI_INLINE void add_parts(const tn_type t, direct *d, int64_t begin, int64_t end) {
    const tni_lookup *l = &d->l;
    const int64_t block = d->d.block;
    if (d->d.by_key) {
        add_block(t, d, 0, 1, 0, begin, end);
        return;
    }
    for (int64_t lane = begin; lane < end; lane++) {
        for (int64_t o = lane * block; o < l->outer; o += d->d.lanes * block)
            add_block(t, d, o, min(o + block, l->outer), lane, 0, l->v);
    }
}

static void add_some_parts(void *arg, int64_t begin, int64_t end) {
    direct *d = arg;
    V_BY_TYPE(d->l.to->type, add_parts, d, begin, end);
}

static tn_status add_direct(const tn_call *call, const tni_lookup *l) {
    direct d = {.l = *l, .d = tni_direct_of(l), .bad = INT64_MAX};
    d.sums = d.d.bytes ? call->workspace : NULL;
    if (d.d.by_key)
        tn_parallel(call, l->v, d.d.grain, add_some_parts, &d);
    else
        tn_parallel(call, d.d.lanes, d.d.grain, add_some_parts, &d);
    const int64_t bad = atomic_load(&d.bad);
    if (bad == INT64_MAX) return TN_OK;
    return tni_lookup_bad(call, l, bad / l->inner / l->n, bad / l->inner % l->n, bad % l->inner);
}

tn_status TNI_CPU(lookup_add)(const tn_call *call, void *state) {
    (void)state;
    const tni_lookup l = tni_lookup_of(call);
    if (l.outer * l.v * l.inner == 0) return tni_lookup_check(call, &l);
    return tni_lookup_is_grouped(&l) ? add_grouped(call, &l) : add_direct(call, &l);
}
