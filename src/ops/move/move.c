/* Moves: dimensions in memory order and merged, the CPU's kernel, and the plain one. */
#include "move.h"

#include <stdlib.h>
#include <string.h>

#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "core/layout/lines.h"

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

static bool is_plain(const tni_map *m) {
    return m->before == 0 && m->size == m->n;
}

tni_move tni_move_described(const tn_call *call) {
    const tni_mover *mover = call->kernel->data;
    tni_move m = {0};
    mover->describe(call, &m);
    for (int d = 0; d < m.n_dims; d++)
        if (is_plain(&m.dims[d].map)) m.dims[d].map.rule = TNI_MAP_CONSTANT;
    return m;
}

/* Dimension `outer` continues the plain one inside of it on both sides. The two are one, then, unless the outer one
 * takes elements in another order. */
static bool merges(const tni_move_dim *outer, const tni_move_dim *inner) {
    const bool in_order = is_plain(&outer->map) || outer->map.rule == TNI_MAP_CONSTANT ||
                          outer->map.rule == TNI_MAP_CIRCULAR;
    return is_plain(&inner->map) && in_order && outer->to == inner->to * inner->map.size &&
           outer->from == inner->from * inner->map.size;
}

static void sort_dims(tni_move *m) {
    for (int i = 1; i < m->n_dims; i++) {
        for (int d = i; d > 0 && llabs(m->dims[d].to) > llabs(m->dims[d - 1].to); d--) {
            const tni_move_dim kept = m->dims[d];
            m->dims[d] = m->dims[d - 1];
            m->dims[d - 1] = kept;
        }
    }
}

tni_move tni_move_of(const tn_call *call) {
    tni_move m = tni_move_described(call);
    int n = 0;
    for (int d = 0; d < m.n_dims; d++) {
        if (m.dims[d].map.size != 1 || !is_plain(&m.dims[d].map)) m.dims[n++] = m.dims[d];
    }
    m.n_dims = n;
    sort_dims(&m);
    n = 0; /* dimensions that are done */
    for (int d = 0; d < m.n_dims; d++) {
        tni_move_dim next = m.dims[d];
        if (n > 0 && merges(&m.dims[n - 1], &next)) {
            const tni_map *outer = &m.dims[n - 1].map;
            const int64_t inner = next.map.size;
            next.map = (tni_map){outer->size * inner, outer->n * inner, outer->before * inner, outer->rule};
            n--;
        }
        m.dims[n++] = next;
    }
    m.n_dims = n;
    if (n == 0) { /* a single element */
        m.dims[0] = (tni_move_dim){{1, 1, 0, TNI_MAP_CONSTANT}, 1, 1};
        m.n_dims = 1;
    }
    return m;
}

/* ---- the CPU's kernel -------------------------------------------------------------------------------------------- */

enum {
    GRAIN = 1 << 15, /* bytes for a thread of its own */
    PIECE = 1 << 17  /* bytes of a row that are done at a time */
};

typedef struct job {
    const tni_move *m;
    size_t size;
    char *to;
    const char *from;
    int64_t pieces, per_piece; /* of a row; elements of one */
    struct stretch *stretches; /* of a short row; NULL: rows are long */
    int n_stretches;
    const char *filled; /* as many constants as a short row has elements */
} job;

/* n elements, `step` and `apart` elements from one to the next. */
static void copy_apart(char *to, int64_t step, const char *from, int64_t apart, int64_t n, size_t size) {
    const int64_t a = step * (int64_t)size, b = apart * (int64_t)size;
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 1);
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 4);
        break;
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, 8);
        break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * a, from + i * b, size);
    }
}

static void copy_run(char *to, int64_t step, const char *from, int64_t apart, int64_t n, size_t size) {
    if (step == 1 && apart == 1) {
        memcpy(to, from, (size_t)n * size);
    } else {
        copy_apart(to, step, from, apart, n, size);
    }
}

static bool is_zero(const unsigned char *constant, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (constant[i]) return false;
    return true;
}

static void fill_run(const job *j, char *to, int64_t n) {
    const int64_t step = j->m->dims[j->m->n_dims - 1].to;
    if (step == 1 && is_zero(j->m->constant, j->size)) {
        memset(to, 0, (size_t)n * j->size);
    } else {
        copy_apart(to, step, (const char *)j->m->constant, 0, n, j->size);
    }
}

/* How many elements from i on, up to `end`, follow each other in the operand; *step: which way they go. */
static int64_t run_from(const tni_map *m, int64_t i, int64_t end, int64_t at, int64_t *step) {
    const int64_t j = i - m->before, n = m->n;
    *step = 1;
    if (j >= 0 && j < n) return min(end - i, n - j);
    if (at < 0) return j < 0 ? min(end - i, -j) : end - i;
    if (m->rule == TNI_MAP_CIRCULAR) return min(end - i, n - at);
    if (m->rule == TNI_MAP_REPLICATE || n == 1) {
        *step = 0;
        return j < 0 ? min(end - i, -j) : end - i;
    }
    const int64_t k = tni_modulo(j, 2 * n - 2); /* on the way there up to n - 2, then on the way back */
    *step = k < n - 1 ? 1 : -1;
    return min(end - i, k < n - 1 ? n - 1 - k : 2 * n - 2 - k);
}

/* Elements begin … end - 1 of a row; from is NULL where the row lies outside. */
static void move_row(const job *j, char *to, const char *from, int64_t begin, int64_t end) {
    const tni_move_dim *d = &j->m->dims[j->m->n_dims - 1];
    const int64_t size = (int64_t)j->size;
    if (!from) {
        fill_run(j, to + begin * d->to * size, end - begin);
        return;
    }
    for (int64_t i = begin; i < end;) {
        int64_t step, at = tni_map_at(&d->map, i);
        const int64_t n = run_from(&d->map, i, end, at, &step);
        char *here = to + i * d->to * size;
        if (at < 0) {
            fill_run(j, here, n);
        } else {
            copy_run(here, d->to, from + at * d->from * size, step * d->from, n, j->size);
        }
        i += n;
    }
}

static const int64_t OUTSIDE = INT64_MIN; /* no offset: strides may be negative */

/* Where the dimensions around a row are. */
typedef struct outer {
    int64_t index[TN_MAX_RANK], to;
    int64_t from[TN_MAX_RANK + 1]; /* [d]: of the dimensions before d together, or OUTSIDE */
} outer;

static void place_from(const job *j, outer *o, int first) {
    for (int d = first; d < j->m->n_dims - 1; d++) {
        const tni_move_dim *dim = &j->m->dims[d];
        const int64_t at = tni_map_at(&dim->map, o->index[d]);
        o->from[d + 1] = o->from[d] == OUTSIDE || at < 0 ? OUTSIDE : o->from[d] + at * dim->from;
    }
}

static void next_row(const job *j, outer *o) {
    int d = j->m->n_dims - 2;
    while (d >= 0 && ++o->index[d] == j->m->dims[d].map.size) {
        o->to -= (j->m->dims[d].map.size - 1) * j->m->dims[d].to;
        o->index[d--] = 0;
    }
    if (d < 0) return;
    o->to += j->m->dims[d].to;
    place_from(j, o, d);
}

static outer outer_at(const job *j, int64_t row) {
    outer o = {.to = 0};
    for (int d = j->m->n_dims - 2; d >= 0; d--) {
        o.index[d] = row % j->m->dims[d].map.size;
        row /= j->m->dims[d].map.size;
        o.to += o.index[d] * j->m->dims[d].to;
    }
    place_from(j, &o, 0);
    return o;
}

static void move_pieces(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const int last = j->m->n_dims - 1;
    const int64_t n = j->m->dims[last].map.size;
    int64_t piece = begin % j->pieces;
    outer o = outer_at(j, begin / j->pieces);
    for (int64_t i = begin; i < end; i++) {
        const char *from = o.from[last] == OUTSIDE ? NULL : j->from + o.from[last] * (int64_t)j->size;
        const int64_t first = piece * j->per_piece;
        move_row(j, j->to + o.to * (int64_t)j->size, from, first, min(n, first + j->per_piece));
        if (++piece < j->pieces) continue;
        piece = 0;
        next_row(j, &o);
    }
}

/* ---- short rows --------------------------------------------------------------------------------------------------
 * Every row has the same stretches, which are found once. Then a stretch is copied for many rows before the next one
 * is: by a load and a store or two each. */

enum {
    SHORT_BYTES = 256, /* of a row */
    STRETCHES = 8,     /* that it has at most */
    ROWS = 256         /* whose result stays in the nearest cache */
};

/* Bytes of a row that follow each other on both sides; from < 0: constants. */
typedef struct stretch {
    int64_t to, from, bytes;
} stretch;

/* False: there are too many, or elements that do not follow each other. */
static bool find_stretches(job *j, stretch *stretches, char *filled) {
    const tni_move_dim *d = &j->m->dims[j->m->n_dims - 1];
    const int64_t size = (int64_t)j->size, n = d->map.size;
    if (j->m->n_dims < 2 || n * size > SHORT_BYTES || d->to != 1 || (d->from != 1 && d->map.n > 1)) return false;
    for (int64_t i = 0; i < n; i++) memcpy(filled + i * size, j->m->constant, j->size);
    for (int64_t i = 0, count; i < n; i += count) {
        int64_t step, at = tni_map_at(&d->map, i);
        count = run_from(&d->map, i, n, at, &step);
        if (j->n_stretches == STRETCHES || (at >= 0 && step != 1 && count > 1)) return false;
        stretches[j->n_stretches++] = (stretch){i * size, at < 0 ? -1 : at * size, count * size};
    }
    j->stretches = stretches;
    j->filled = filled;
    return true;
}

/* Rows of the result, `down` bytes apart; from is NULL where they lie outside. */
static void copy_stretches(const job *j, char *to, int64_t down, const char *from, int64_t apart, int64_t rows) {
    if (!from) {
        const int64_t n = j->m->dims[j->m->n_dims - 1].map.size;
        tni_copy_lines(to, down, j->filled, 0, rows, n * (int64_t)j->size);
        return;
    }
    for (const stretch *s = j->stretches; s < j->stretches + j->n_stretches; s++) {
        if (s->from < 0)
            tni_copy_lines(to + s->to, down, j->filled, 0, rows, s->bytes);
        else
            tni_copy_lines(to + s->to, down, from + s->from, apart, rows, s->bytes);
    }
}

static void move_short_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const int last = j->m->n_dims - 1;
    const tni_move_dim *above = &j->m->dims[last - 1];
    const int64_t size = (int64_t)j->size;
    outer o = outer_at(j, begin);
    for (int64_t row = begin, count; row < end; row += count) {
        const int64_t i = o.index[last - 1];
        int64_t step, at = tni_map_at(&above->map, i);
        count = min(run_from(&above->map, i, above->map.size, at, &step), min(end - row, ROWS));
        const char *from = o.from[last] == OUTSIDE ? NULL : j->from + o.from[last] * size;
        copy_stretches(j, j->to + o.to * size, above->to * size, from, step * above->from * size, count);
        o.index[last - 1] += count - 1;
        o.to += (count - 1) * above->to;
        next_row(j, &o);
    }
}

tn_status tni_move_cpu(const tn_call *call, void *state) {
    (void)state;
    const tni_move m = tni_move_of(call);
    const int64_t count = tn_count(m.to), n = m.dims[m.n_dims - 1].map.size;
    if (count == 0) return TN_OK;
    job j = {.m = &m, .size = tn_type_size(m.to->type), .to = m.to->data, .from = m.from->data};
    stretch stretches[STRETCHES];
    char filled[SHORT_BYTES];
    if (find_stretches(&j, stretches, filled)) {
        tn_parallel(call, count / n, max(1, GRAIN / (n * (int64_t)j.size)), move_short_rows, &j);
        return TN_OK;
    }
    j.per_piece = min(n, max(1, PIECE / (int64_t)j.size));
    j.pieces = ceil_div(n, j.per_piece);
    const int64_t bytes = j.per_piece * (int64_t)j.size;
    tn_parallel(call, count / n * j.pieces, max(1, GRAIN / bytes), move_pieces, &j);
    return TN_OK;
}

/* ---- the plain version ------------------------------------------------------------------------------------------- */

/* Where element i of the result is in dense memory of the operand; -1: outside. */
static int64_t find(const tni_move *m, int64_t i) {
    int64_t at = 0;
    for (int d = m->n_dims - 1; d >= 0; d--) {
        const tni_map *map = &m->dims[d].map;
        int64_t j = i % map->size - map->before;
        i /= map->size;
        if (map->n == 0 || (map->rule == TNI_MAP_CONSTANT && (j < 0 || j >= map->n))) return -1;
        while (j < 0 || j >= map->n) { /* steps back in, by the rule */
            if (map->rule == TNI_MAP_REPLICATE || map->n == 1) {
                j = j < 0 ? 0 : map->n - 1;
            } else if (map->rule == TNI_MAP_CIRCULAR) {
                j += j < 0 ? map->n : -map->n;
            } else {
                j = j < 0 ? -j : 2 * (map->n - 1) - j;
            }
        }
        at += j * m->dims[d].from;
    }
    return at;
}

tn_status tni_move_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_move m = tni_move_described(call);
    const size_t size = tn_type_size(m.to->type);
    const int64_t count = tn_count(m.to);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = find(&m, i);
        memcpy((char *)m.to->data + i * (int64_t)size,
               at < 0 ? (const char *)m.constant : (const char *)m.from->data + at * (int64_t)size, size);
    }
    return TN_OK;
}

/* A double for each output. */
size_t tni_fold_ref_workspace(const tn_call *call) {
    return (size_t)tn_count(tn_out(call, 0)) * sizeof(double);
}

tn_status tni_fold_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_move m = tni_move_described(call);
    double *sums = call->workspace;
    const int64_t outputs = tn_count(m.from), inputs = tn_count(m.to);
    for (int64_t i = 0; i < outputs; i++) sums[i] = 0;
    for (int64_t k = 0; k < inputs; k++) {
        const int64_t at = find(&m, k);
        if (at >= 0) sums[at] += tn_get(m.to->type, m.to->data, k);
    }
    for (int64_t i = 0; i < outputs; i++) tn_set(m.from->type, m.from->data, i, sums[i]);
    return TN_OK;
}
