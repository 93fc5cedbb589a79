/* Sums of what a move brings to several places, vectorised. Compiled once per instruction set and precision. A piece of
 * an output's row is added up in a buffer, over all rows of the input that it became. */
#include "move.h"

#include "core/host/arith.h"
#include "ops/runs.h"

enum {
    PIECE = 1024, /* elements of a row */
    DEEP = 64,    /* terms that are added up in `real`, before that goes into double */
};

typedef struct job {
    tni_move m;
    int64_t pieces; /* of a row */
} job;

/* Of a piece: the latest terms, and all before them. */
typedef struct sums {
    real latest[PIECE];
    double all[PIECE];
    int depth; /* terms in the latest, at most */
} sums;

static void settle(sums *s, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        s->all[i] += (double)s->latest[i];
        s->latest[i] = 0;
    }
    s->depth = 0;
}

/* to[k] += x[at + k * step] for k < n. */
TNI_INLINE void add_run(const tn_type t, const void *x, int64_t at, int64_t step, real *to, int64_t n) {
    int64_t k = 0;
    if (step == 1) {
        for (; k + VL <= n; k += VL) v_store(V_NATIVE, to, k, v_load(V_NATIVE, to, k) + v_load(t, r_at(t, x, at), k));
    }
    for (; k < n; k++) to[k] += r_load(t, x, at + k * step);
}

/* Adds one row of the input, at x[at], to elements begin … end - 1 of the output's row. */
TNI_INLINE void add_row(const tn_type t, const tni_move_dim *d, const void *x, int64_t at, int64_t begin, int64_t end,
                        sums *s) {
    const tni_map *m = &d->map;
    const bool circular = m->rule == TNI_MAP_CIRCULAR;
    const int64_t first = circular ? -((m->before + m->n - 1) / m->n) : 0;
    const int64_t last = circular ? (m->size - 1 - m->before) / m->n : 0;
    for (int64_t k = first; k <= last; k++) { /* elements that are in their places, or some rounds away */
        const int64_t shift = m->before + k * m->n, from = max(begin, -shift), to = min(end, m->size - shift);
        if (from >= to) continue;
        add_run(t, x, at + (from + shift) * d->to, d->to, s->latest + (from - begin), to - from);
        if (++s->depth == DEEP) settle(s, end - begin);
    }
    if (circular || m->rule == TNI_MAP_CONSTANT) return;
    const int64_t inside = max(0, min(m->before, m->size)), behind = max(0, m->before + m->n);
    for (int64_t i = inside > 0 ? 0 : behind; i < m->size; i = i + 1 == inside ? behind : i + 1) { /* the others */
        const int64_t j = tni_map_at(m, i);
        if (j >= begin && j < end) s->all[j - begin] += (double)r_load(t, x, at + i * d->to);
    }
}

/* The sources of the dimensions around a row, and which of them are next. */
typedef struct around {
    tni_sources sources[TN_MAX_RANK];
    int64_t counts[TN_MAX_RANK], k[TN_MAX_RANK];
} around;

static int64_t place_of(const tni_move *m, const around *a) {
    int64_t at = 0;
    for (int d = 0; d < m->n_dims - 1; d++) at += tni_source_at(&a->sources[d], a->k[d]) * m->dims[d].to;
    return at;
}

static bool next_source(const tni_move *m, around *a) {
    int d = m->n_dims - 2;
    while (d >= 0 && ++a->k[d] == a->counts[d]) a->k[d--] = 0;
    return d >= 0;
}

TNI_INLINE void fold_pieces(const tn_type t, const job *j, int64_t first, int64_t past) {
    const tni_move *m = &j->m;
    const int last = m->n_dims - 1;
    const tni_move_dim *inner = &m->dims[last];
    sums s;
    for (int64_t p = first; p < past; p++) {
        const int64_t begin = p % j->pieces * PIECE, end = min(inner->map.n, begin + PIECE);
        int64_t row = p / j->pieces, to = 0;
        around a;
        bool any = true;
        for (int d = last - 1; d >= 0; d--) {
            const int64_t index = row % m->dims[d].map.n;
            row /= m->dims[d].map.n;
            to += index * m->dims[d].from;
            a.sources[d] = tni_sources_of(&m->dims[d].map, index);
            a.counts[d] = a.sources[d].counts[0] + a.sources[d].counts[1];
            a.k[d] = 0;
            any = any && a.counts[d] > 0;
        }
        for (int64_t i = 0; i < end - begin; i++) s.all[i] = s.latest[i] = 0;
        s.depth = 0;
        while (any) {
            add_row(t, inner, m->to->data, place_of(m, &a), begin, end, &s);
            any = next_source(m, &a);
        }
        settle(&s, end - begin);
        for (int64_t i = begin; i < end; i++) r_store(t, m->from->data, to + i * inner->from, (real)s.all[i - begin]);
    }
}

static void fold_some(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    V_BY_TYPE(j->m.to->type, fold_pieces, j, begin, end);
}

tn_status TNI_CPU(tni_fold)(const tn_call *call, void *state) {
    (void)state;
    job j = {.m = tni_move_of(call)};
    const int64_t outputs = tn_count(j.m.from), n = j.m.dims[j.m.n_dims - 1].map.n;
    if (outputs == 0) return TN_OK;
    j.pieces = ceil_div(n, PIECE);
    const int64_t work = tn_count(j.m.to) / (outputs / n * j.pieces); /* input elements of a piece */
    tn_parallel(call, outputs / n * j.pieces, max(1, 16384 / max(1, work)), fold_some, &j);
    return TN_OK;
}
