/* What all operators that look up share: how an index is read, what is wrong with one, the references, and take. */
#include "lookup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/layout/layout.h"
#include "ops/elements.h"

/* ---- the index --------------------------------------------------------------------------------------------------- */

/* The step over dimensions begin … end - 1 of the index, as if they were one. */
static bool merged_step(const tn_view *index, int begin, int end, int64_t *step) {
    int64_t size = 1;
    *step = 0;
    if (tn_product(index, begin, end) == 0) return true; /* nothing is read */
    for (int d = end - 1; d >= begin; d--) {
        if (index->shape[d] == 1) continue;
        if (size == 1)
            *step = index->strides[d];
        else if (index->strides[d] != *step * size)
            return false;
        size *= index->shape[d];
    }
    return true;
}

void tni_lookup_by_row(tni_lookup *l) {
    l->n = merged_step(l->index, 0, l->index->ndim, &l->by_n) ? tn_count(l->index) : -1;
    l->by_outer = l->by_inner = 0;
}

void tni_lookup_by_element(tni_lookup *l, int axis) {
    const tn_view *index = l->index;
    const bool merges = merged_step(index, 0, axis, &l->by_outer) && merged_step(index, axis, axis + 1, &l->by_n) &&
                        merged_step(index, axis + 1, index->ndim, &l->by_inner);
    l->n = merges ? index->shape[axis] : -1;
    if (l->n == 1) l->by_n = l->by_outer; /* one index of each slab: they follow each other as any others */
}

static bool is_dense(const tn_view *v) {
    return tni_is_dense(v->ndim, v->shape, v->strides);
}

bool tni_lookup_accepts(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    return l.n >= 0 && is_dense(l.from) && is_dense(l.to) && (!l.base || is_dense(l.base));
}

/* The tensor that is read may have rows, or whole slabs, that lie apart: to copy all of it first would take longer. */
bool tni_lookup_take_accepts(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    tni_lookup_steps w;
    return l.n >= 0 && is_dense(l.to) && tni_lookup_steps_of(&l, l.from, &w) && (l.inner > 1 || w.by_v == 1);
}

bool tni_lookup_steps_of(const tni_lookup *l, const tn_view *view, tni_lookup_steps *w) {
    int inner = view->ndim, axis;
    int64_t step, size = 1;
    if (tn_count(view) == 0) return *w = (tni_lookup_steps){l->v * l->inner, l->inner}, true;
    while (size < l->inner) size *= view->shape[--inner];
    for (axis = inner, size = 1; size < l->v;) size *= view->shape[--axis];
    return merged_step(view, inner, view->ndim, &step) && (l->inner == 1 || step == 1) &&
           merged_step(view, axis, inner, &w->by_v) && merged_step(view, 0, axis, &w->by_outer) && w->by_v >= 0 &&
           w->by_outer >= 0;
}

tn_status tni_lookup_bad(const tn_call *call, const tni_lookup *l, int64_t o, int64_t j, int64_t i) {
    const tn_view *index = l->index;
    const int64_t k = tni_index_at(index->data, tni_lookup_is_wide(l), o * l->by_outer + j * l->by_n + i * l->by_inner);
    const bool by_row = index->ndim == 0 || tn_count(index) == l->n;
    const int64_t at = by_row ? j : (o * l->n + j) * l->inner + i; /* in dense order */
    char place[TN_MAX_RANK * 24] = "";
    int used = 0;
    for (int d = 0; d < index->ndim; d++) {
        const int64_t inner = tn_product(index, d + 1, index->ndim);
        used += snprintf(place + used, sizeof place - (size_t)used, "%s%" PRId64, d ? ", " : "[",
                         at / inner % index->shape[d]);
    }
    return tn_fail(TN_BAD_VALUE, "%s: %s%s%s is %" PRId64 ", must be %s %" PRId64, call->name, l->index_name, place,
                   used ? "]" : "", k, k < 0 ? "at least" : "below", k < 0 ? 0 : l->v);
}

/* ---- references -------------------------------------------------------------------------------------------------- */

/* The k of (o, j, i); -1 where it is skipped. */
static tn_status find(const tn_call *call, const tni_lookup *l, int64_t o, int64_t j, int64_t i, int64_t *k) {
    *k = tni_index_at(l->index->data, tni_lookup_is_wide(l), o * l->by_outer + j * l->by_n + i * l->by_inner);
    if (tni_lookup_skips(l, *k))
        *k = -1;
    else if (*k < 0 || *k >= l->v)
        return tni_lookup_bad(call, l, o, j, i);
    return TN_OK;
}

tn_status tni_lookup_take_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_lookup l = tni_lookup_of(call);
    const size_t size = tn_type_size(l.to->type);
    char *to = l.to->data;
    for (int64_t o = 0; o < l.outer; o++) {
        for (int64_t j = 0; j < l.n; j++) {
            for (int64_t i = 0; i < l.inner; i++, to += size) {
                int64_t k;
                TN_TRY(find(call, &l, o, j, i, &k));
                if (k < 0)
                    memset(to, 0, size);
                else
                    memcpy(to, (const char *)l.from->data + (size_t)((o * l.v + k) * l.inner + i) * size, size);
            }
        }
    }
    return TN_OK;
}

size_t tni_lookup_add_ref_workspace(const tn_call *call) {
    return (size_t)tn_count(tn_out(call, 0)) * sizeof(double);
}

/* Sums are kept in double, in the workspace. */
tn_status tni_lookup_add_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_lookup l = tni_lookup_of(call);
    const int64_t count = l.outer * l.v * l.inner;
    double *sums = call->workspace;
    for (int64_t e = 0; e < count; e++) sums[e] = get_or(l.base, e, 0);
    for (int64_t o = 0; o < l.outer; o++) {
        for (int64_t j = 0; j < l.n; j++) {
            for (int64_t i = 0; i < l.inner; i++) {
                int64_t k;
                TN_TRY(find(call, &l, o, j, i, &k));
                if (k >= 0) sums[(o * l.v + k) * l.inner + i] += get(l.from, (o * l.n + j) * l.inner + i);
            }
        }
    }
    for (int64_t e = 0; e < count; e++) set(l.to, e, sums[e]);
    return TN_OK;
}

/* ---- take -------------------------------------------------------------------------------------------------------- */

typedef struct take {
    tni_lookup l;
    tni_lookup_steps by; /* of what is read */
    size_t size;         /* of an element */
    _Atomic int64_t bad; /* the first index that is none, counted in the order of `to` */
} take;

/* Rows of `size` bytes, copied as two parts of a constant size that may overlap; part 0: as a whole. */
static inline __attribute__((always_inline)) void take_rows(take *t, const size_t size, const size_t part,
                                                            int64_t begin, int64_t end) {
    const tni_lookup *l = &t->l;
    const bool wide = tni_lookup_is_wide(l);
    char *to = (char *)l->to->data + (size_t)begin * size;
    int64_t o = begin / l->n, j = begin % l->n;
    for (int64_t row = begin; row < end; row++, to += size) {
        const int64_t k = tni_index_at(l->index->data, wide, o * l->by_outer + j * l->by_n);
        const bool skipped = tni_lookup_skips(l, k);
        if (!skipped && (uint64_t)k < (uint64_t)l->v) { /* only then does a sum with k not overflow */
            const char *from = (const char *)l->from->data + (size_t)(o * t->by.by_outer + k * t->by.by_v) * t->size;
            memcpy(to, from, part ? part : size);
            if (part) memcpy(to + size - part, from + size - part, part);
        } else {
            memset(to, 0, size);
            if (!skipped) tni_note_first(&t->bad, row * l->inner);
        }
        if (++j == l->n) {
            j = 0;
            o++;
        }
    }
}

/* Each element has an index of its own. */
static inline __attribute__((always_inline)) void take_elements(take *t, const size_t size, int64_t begin,
                                                                int64_t end) {
    const tni_lookup *l = &t->l;
    const bool wide = tni_lookup_is_wide(l);
    char *to = (char *)l->to->data + (size_t)(begin * l->inner) * size;
    for (int64_t row = begin; row < end; row++) {
        const int64_t o = row / l->n, at = o * l->by_outer + row % l->n * l->by_n;
        const char *from = (const char *)l->from->data + (size_t)(o * t->by.by_outer) * size;
        for (int64_t i = 0; i < l->inner; i++, to += size) {
            const int64_t k = tni_index_at(l->index->data, wide, at + i * l->by_inner);
            const bool skipped = tni_lookup_skips(l, k);
            if (!skipped && (uint64_t)k < (uint64_t)l->v) {
                memcpy(to, from + (size_t)(k * t->by.by_v + i) * size, size);
            } else {
                memset(to, 0, size);
                if (!skipped) tni_note_first(&t->bad, row * l->inner + i);
            }
        }
    }
}

/* n elements, one index after the other, `by` apart; bytes: `step` of `from` from k to k, `each` from element to
 * element. The indices are within. */
static inline __attribute__((always_inline)) void take_run(const size_t size, const bool wide, char *to,
                                                           const char *from, const void *index, int64_t at, int64_t by,
                                                           int64_t n, int64_t step, int64_t each) {
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * (int64_t)size, from + tni_index_at(index, wide, at + i * by) * step + i * each, size);
}

enum { RUN = TNI_LOOKUP_RUN };

/* As take_run, of elements in whole slabs: how short they are makes no difference. */
static inline __attribute__((always_inline)) void take_slabs(const size_t size, const bool wide, char *to,
                                                             const char *from, const int64_t *before, const void *index,
                                                             int64_t at, int64_t by, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * (int64_t)size, from + (before[i] + tni_index_at(index, wide, at + i * by)) * (int64_t)size,
               size);
}

/* Single elements begin … end - 1 of `to`, by indices that lie behind each other or `by_n` apart: those of some whole
 * slabs, or of a part of one. Returns whether all are within. */
static inline __attribute__((always_inline)) bool take_singles(const take *t, const size_t size, const bool wide,
                                                               const bool dense, int64_t begin, int64_t end) {
    const tni_lookup *l = &t->l;
    const void *index = l->index->data;
    const int64_t n = l->n, by = dense ? 1 : l->by_n, bytes = (int64_t)size, slab = t->by.by_outer * bytes;
    const int64_t together = l->by_outer == n * by ? RUN / n : 0; /* slabs */
    int64_t before[RUN];
    tni_place_slabs(before, together * n, n, t->by.by_outer);
    for (int64_t row = begin, o = begin / n, j = begin % n, count; row < end; row += count) {
        const int64_t left = min(n - j, end - row), slabs = j == 0 ? min(together, (end - row) / n) : 0;
        const int64_t at = o * l->by_outer + j * by;
        const char *from = (const char *)l->from->data + o * slab;
        char *to = (char *)l->to->data + row * bytes;
        count = slabs > 0 ? slabs * n : min(left, RUN);
        if (!tni_indices_are_within(l, at, by, count)) return false;
        if (slabs > 0)
            take_slabs(size, wide, to, from, before, index, at, by, count);
        else
            take_run(size, wide, to, from, index, at, by, count, bytes, 0);
        j = slabs > 0 ? 0 : (j + count) % n;
        o = (row + count) / n;
    }
    return true;
}

/* Rows begin … end - 1 of `to`, each with l->inner elements, of which each has an index. */
static inline __attribute__((always_inline)) bool take_across(const take *t, const size_t size, const bool wide,
                                                              int64_t begin, int64_t end) {
    const tni_lookup *l = &t->l;
    const int64_t inner = l->inner, bytes = (int64_t)size;
    for (int64_t row = begin, o = begin / l->n, j = begin % l->n; row < end; row++) {
        const int64_t at = o * l->by_outer + j * l->by_n;
        const char *from = (const char *)l->from->data + o * t->by.by_outer * bytes;
        char *to = (char *)l->to->data + row * inner * bytes;
        if (!tni_indices_are_within(l, at, l->by_inner, inner)) return false;
        take_run(size, wide, to, from, l->index->data, at, l->by_inner, inner, t->by.by_v * bytes, bytes);
        if (++j < l->n) continue;
        j = 0;
        o++;
    }
    return true;
}

static void take_some_rows(void *arg, int64_t begin, int64_t end) {
    take *t = arg;
    const size_t size = t->size * (size_t)t->l.inner;
    if (size == 2) {
        take_rows(t, 2, 2, begin, end);
    } else if (size == 4) {
        take_rows(t, 4, 4, begin, end);
    } else if (size == 8) {
        take_rows(t, 8, 8, begin, end);
    } else if (size == 3) {
        take_rows(t, size, 2, begin, end);
    } else if (size < 8) {
        take_rows(t, size, 4, begin, end);
    } else if (size <= 16) {
        take_rows(t, size, 8, begin, end);
    } else if (size <= 32) {
        take_rows(t, size, 16, begin, end);
    } else if (size <= 64) {
        take_rows(t, size, 32, begin, end);
    } else {
        take_rows(t, size, 0, begin, end);
    }
}

static inline __attribute__((always_inline)) bool take_plain(const take *t, const size_t size, const bool wide,
                                                             int64_t begin, int64_t end) {
    if (t->l.inner > 1) return take_across(t, size, wide, begin, end);
    return t->l.by_n == 1 ? take_singles(t, size, wide, true, begin, end)
                          : take_singles(t, size, wide, false, begin, end);
}

static inline __attribute__((always_inline)) void take_sized(take *t, const size_t size, int64_t begin, int64_t end) {
    const tni_lookup *l = &t->l;
    const bool skips = l->skipped >= 0 || l->drops_negative;
    if (!skips &&
        (tni_lookup_is_wide(l) ? take_plain(t, size, true, begin, end) : take_plain(t, size, false, begin, end)))
        return;
    take_elements(t, size, begin, end); /* also where an index is none: the call fails, and says which it was */
}

static void take_some_elements(void *arg, int64_t begin, int64_t end) {
    take *t = arg;
    switch (t->size) {
    case 1: take_sized(t, 1, begin, end); break;
    case 2: take_sized(t, 2, begin, end); break;
    case 4: take_sized(t, 4, begin, end); break;
    case 8: take_sized(t, 8, begin, end); break;
    default: take_sized(t, 16, begin, end);
    }
}

tn_status tni_lookup_take(const tn_call *call, void *state) {
    (void)state;
    take t = {.l = tni_lookup_of(call), .bad = INT64_MAX};
    const tni_lookup *l = &t.l;
    t.size = tn_type_size(l->to->type);
    if (l->outer * l->n * l->inner == 0) return TN_OK;
    if (!tni_lookup_steps_of(l, l->from, &t.by))
        return tn_fail(TN_UNSUPPORTED, "%s: the tensor that is read has strides of no such kind", call->name);
    const int64_t grain = max(32768 / l->inner, 1);
    const bool by_row = tni_lookup_is_by_row(l) && l->inner > 1;
    tn_parallel(call, l->outer * l->n, grain, by_row ? take_some_rows : take_some_elements, &t);
    const int64_t bad = atomic_load(&t.bad);
    if (bad == INT64_MAX) return TN_OK;
    return tni_lookup_bad(call, l, bad / l->inner / l->n, bad / l->inner % l->n, bad % l->inner);
}
