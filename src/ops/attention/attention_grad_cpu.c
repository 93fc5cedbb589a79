/* attention_grad, vectorised. A head of k goes by block of keys, and each of these by block of rows: scores and their
 * gradients are made once, and added to dq, dk and dv as five products. dk and dv of a block of keys stay where they
 * are until its last row; dq of the head waits in the workspace. */
#include "attention_cpu.h"

#include <stdatomic.h>

#include "core/host/memory.h"

/* A head at work. Packed, as the left or the right side of a product: */
typedef struct work {
    head t;
    real *q, *dy;             /* rows, left */
    real *q_terms, *dy_terms; /* rows, right */
    real *k, *v, *k_terms;    /* keys, right: as columns, as columns, as terms */
    real *weights, *slopes;   /* (rows, keys), left */
    real *turned;             /* (keys, rows), left: of either */
    real *dk, *dv;            /* (keys, …): sums */
    real *dq, *delta;         /* (all rows, …), (all rows) */
    int64_t d_row, e_row;     /* of sums */
    real *dbias;              /* dense sums of all pieces; NULL: not wanted */
    double *dsinks;           /* (entries, heads of q) */
} work;

typedef struct job {
    attention_job a;
    const attention_plan *plan;
    char *workspace;
    real *dbias;
    double *dsinks;
    _Atomic int64_t next;
} job;

static real *take(real **memory, int64_t count) {
    real *made = *memory;
    *memory += count;
    return made;
}

static work work_of(const job *j, int64_t p, int64_t h, real *memory) {
    const attention_job *a = &j->a;
    const int64_t all = a->group * a->m, rows = min(ROWS, all);
    work w = {.t = {a, p, h}, .dbias = j->dbias, .dsinks = j->dsinks};
    w.d_row = round_up(a->d, TILE_COLUMNS);
    w.e_row = round_up(a->e, TILE_COLUMNS);
    w.q = take(&memory, ceil_div(a->d, GEMM_STEP) * rows * A_ROW);
    w.dy = take(&memory, ceil_div(a->e, GEMM_STEP) * rows * A_ROW);
    w.q_terms = take(&memory, rows * w.d_row);
    w.dy_terms = take(&memory, rows * w.e_row);
    w.k = take(&memory, a->d * KEYS);
    w.v = take(&memory, a->e * KEYS);
    w.k_terms = take(&memory, KEYS * w.d_row);
    w.weights = take(&memory, rows * A_ROW);
    w.slopes = take(&memory, rows * A_ROW);
    w.turned = take(&memory, KEYS * A_ROW);
    w.dk = take(&memory, KEYS * w.d_row);
    w.dv = take(&memory, KEYS * w.e_row);
    w.dq = take(&memory, all * w.d_row);
    w.delta = take(&memory, all);
    return w;
}

static real lse_of(const work *w, int64_t r) {
    const attention_job *a = w->t.job;
    const tn_view *x = a->lse;
    const int64_t h = w->t.h * a->group + r % a->group;
    return r_load(x->type, x->data, w->t.p * x->strides[0] + h * x->strides[1] + r / a->group * x->strides[2]);
}

/* delta = sum(o dy) - dlse */
static real delta_of(const work *w, int64_t r) {
    const attention_job *a = w->t.job;
    const int64_t h = w->t.h * a->group + r % a->group, i = r / a->group;
    double sum = 0;
    if (a->dy) {
        const void *o = row_of(&w->t, a->o, r), *dy = row_of(&w->t, a->dy, r);
        for (int64_t c = 0; c < a->e; c++)
            sum += (double)r_load(a->o->type, o, c * a->o->strides[3]) * r_load(a->dy->type, dy, c * a->dy->strides[3]);
    }
    if (a->dlse) {
        const tn_view *x = a->dlse;
        sum -= r_load(x->type, x->data, w->t.p * x->strides[0] + h * x->strides[1] + i * x->strides[2]);
    }
    return (real)sum;
}

/* Of all rows; and what they add to the sinks. */
static void begin_rows(const work *w) {
    const attention_job *a = w->t.job;
    for (int64_t r = 0; r < a->group * a->m; r++) {
        const int64_t h = w->t.h * a->group + r % a->group;
        w->delta[r] = delta_of(w, r);
        if (!a->dsinks) continue;
        const double sink = r_load(a->sinks->type, a->sinks->data, h * a->sinks->strides[0]);
        w->dsinks[w->t.p * a->hq + h] -= exp(sink - lse_of(w, r)) * w->delta[r];
    }
}

/* ---- a block of rows and keys ------------------------------------------------------------------------------------ */

static void add_to_bias(const work *w, int64_t r, int64_t key, seen s, const real *slopes) {
    const attention_job *a = w->t.job;
    const int64_t *shape = a->dbias->shape;
    const int64_t at[4] = {w->t.p, w->t.h * a->group + r % a->group, r / a->group, key + s.begin};
    int64_t first = 0;
    for (int d = 0; d < 4; d++) first = first * shape[d] + (shape[d] == 1 ? 0 : at[d]);
    for (int64_t j = 0; j < s.end - s.begin; j++) w->dbias[first + (shape[3] == 1 ? 0 : j)] += slopes[s.begin + j];
}

/* Row i of the block: scores become weights, products of dy and v slopes. */
static void weigh_row(const work *w, int64_t first, int64_t i, int64_t key, int64_t keys) {
    const attention_job *a = w->t.job;
    _Alignas(64) real capped[KEYS];
    real *weights = w->weights + i * A_ROW, *slopes = w->slopes + i * A_ROW;
    const int64_t r = first + i;
    const seen s = TNI_CPU(attention_seen)(&w->t, r, key, keys);
    const vreal lse = v_set(lse_of(w, r)), delta = v_set(w->delta[r]);
    TNI_CPU(attention_scores)(&w->t, r, key, s, weights, capped);
    for (int64_t j = s.begin; j < s.end; j += VL) {
        const int64_t n = s.end - j;
        const vreal score = v_load_some(V_NATIVE, weights, j, n, 0), product = v_load_some(V_NATIVE, slopes, j, n, 0);
        const vint none = (vint)(score == v_set(-(real)INFINITY));
        const vreal weight = v_select(none, (vreal){0}, v_exp(score - lse));
        v_store_some(V_NATIVE, weights, j, n, weight);
        v_store_some(V_NATIVE, slopes, j, n, v_select(none, (vreal){0}, weight * (product - delta)));
    }
    for (int64_t j = 0; j < keys; j++) {
        if (j >= s.begin && j < s.end) continue;
        weights[j] = slopes[j] = 0;
    }
    if (a->dbias) add_to_bias(w, r, key, s, slopes);
    for (int64_t j = s.begin; j < s.end; j++) {
        const real t = a->softcap > 0 ? capped[j] / (real)a->softcap : 0;
        slopes[j] *= (real)a->scale * (1 - t * t);
    }
}

/* (rows, keys) to (keys, rows). */
static void turn(const real *from, int64_t rows, int64_t keys, real *to) {
    pack_transposed(V_NATIVE, from, A_ROW, rows, keys, to, A_ROW);
}

static void meet_rows(const work *w, int64_t first, int64_t rows, int64_t key, int64_t keys) {
    const attention_job *a = w->t.job;
    const int64_t e = a->dy ? a->e : 0;
    TNI_CPU(attention_pack_rows)(&w->t, a->q, first, rows, w->q);
    TNI_CPU(attention_product)(rows, keys, a->d, w->q, w->k, w->weights, A_ROW, false);
    if (e) TNI_CPU(attention_pack_rows)(&w->t, a->dy, first, rows, w->dy);
    TNI_CPU(attention_product)(rows, keys, e, w->dy, w->v, w->slopes, A_ROW, false);
    for (int64_t i = 0; i < rows; i++) weigh_row(w, first, i, key, keys);
    if (a->dv && e) {
        TNI_CPU(attention_turn_rows)(w->dy, rows, e, w->dy_terms);
        turn(w->weights, rows, keys, w->turned);
        TNI_CPU(attention_product)(keys, e, rows, w->turned, w->dy_terms, w->dv, w->e_row, true);
    }
    if (a->dk) {
        TNI_CPU(attention_turn_rows)(w->q, rows, a->d, w->q_terms);
        turn(w->slopes, rows, keys, w->turned);
        TNI_CPU(attention_product)(keys, a->d, rows, w->turned, w->q_terms, w->dk, w->d_row, true);
    }
    if (a->dq)
        TNI_CPU(attention_product)(rows, a->d, keys, w->slopes, w->k_terms, w->dq + first * w->d_row, w->d_row, true);
}

/* ---- rows again, pair by pair, where 0 times what is not a number got into them ---------------------------------- */

/* All that row r sees gets NaN from it, so there is nothing to do again: every number was NaN, say. */
static bool is_lost(const work *w, int64_t r) {
    const real lse = lse_of(w, r);
    return lse != lse;
}

static bool may_be_lost(const work *w, int64_t key) {
    const attention_job *a = w->t.job;
    for (int64_t r = 0; !a->mask && r < a->group * a->m; r++) {
        const seen s = TNI_CPU(attention_seen)(&w->t, r, key, 1);
        if (s.begin < s.end && is_lost(w, r)) return true;
    }
    return false;
}

typedef struct pair {
    real weight, slope;
} pair;

static pair pair_of(const work *w, int64_t r, int64_t key) {
    const attention_job *a = w->t.job;
    real capped = 0, product = 0;
    const real score = TNI_CPU(attention_score)(&w->t, r, key, &capped);
    const tni_matrix v = keys_of(&w->t, a->v, key);
    if (score == -(real)INFINITY) return (pair){0, 0};
    for (int64_t c = 0; a->dy && c < a->e; c++)
        product += r_load(a->dy->type, row_of(&w->t, a->dy, r), c * a->dy->strides[3]) *
                   r_load(v.type, v.data, c * v.column);
    const real weight = (real)exp(score - lse_of(w, r)), t = a->softcap > 0 ? capped / (real)a->softcap : 0;
    return (pair){weight, weight * (product - w->delta[r]) * (real)a->scale * (1 - t * t)};
}

static bool sees(const work *w, int64_t r, int64_t key) {
    return TNI_CPU(attention_score)(&w->t, r, key, NULL) != -(real)INFINITY;
}

static void add_row(real by, const tn_view *x, const void *from, real *to) {
    for (int64_t l = 0; l < x->shape[3]; l++) to[l] += by * r_load(x->type, from, l * x->strides[3]);
}

static void do_row_again(const work *w, int64_t r, real *dq) {
    const attention_job *a = w->t.job;
    memset(dq, 0, (size_t)a->d * sizeof *dq);
    for (int64_t j = 0; j < a->n; j++)
        if (sees(w, r, j)) add_row(pair_of(w, r, j).slope, a->k, keys_of(&w->t, a->k, j).data, dq);
}

static void do_key_again(const work *w, int64_t key, real *dk, real *dv) {
    const attention_job *a = w->t.job;
    memset(dk, 0, (size_t)a->d * sizeof *dk);
    memset(dv, 0, (size_t)a->e * sizeof *dv);
    for (int64_t r = 0; r < a->group * a->m; r++) {
        if (!sees(w, r, key)) continue;
        const pair both = pair_of(w, r, key);
        add_row(both.slope, a->q, row_of(&w->t, a->q, r), dk);
        if (a->dy) add_row(both.weight, a->dy, row_of(&w->t, a->dy, r), dv);
    }
}

/* ---- a head ------------------------------------------------------------------------------------------------------ */

static void end_keys(const work *w, int64_t key, int64_t keys) {
    const attention_job *a = w->t.job;
    for (int64_t j = 0; j < keys; j++) {
        real *dk = w->dk + j * w->d_row, *dv = w->dv + j * w->e_row;
        const bool finite = (!a->dk || is_finite_run(dk, a->d)) && (!a->dv || is_finite_run(dv, a->e));
        if (!finite && !may_be_lost(w, key + j)) do_key_again(w, key + j, dk, dv);
        if (a->dk) TNI_CPU(attention_put)(dk, a->d, a->dk, keys_of(&w->t, a->dk, key + j).data);
        if (a->dv) TNI_CPU(attention_put)(dv, a->e, a->dv, keys_of(&w->t, a->dv, key + j).data);
    }
}

static void meet_keys(const work *w, int64_t key, int64_t keys) {
    const attention_job *a = w->t.job;
    const int64_t all = a->group * a->m;
    TNI_CPU(attention_pack_keys)(&w->t, a->k, key, keys, false, w->k);
    if (a->dy) TNI_CPU(attention_pack_keys)(&w->t, a->v, key, keys, false, w->v);
    if (a->dq) TNI_CPU(attention_pack_keys)(&w->t, a->k, key, keys, true, w->k_terms);
    memset(w->dk, 0, (size_t)(keys * w->d_row) * sizeof(real));
    memset(w->dv, 0, (size_t)(keys * w->e_row) * sizeof(real));
    for (int64_t first = 0; first < all; first += ROWS) {
        const int64_t rows = min(all - first, ROWS), last = first + rows - 1;
        const bool meets = key < attention_end_of_keys(a, last / a->group) &&
                           key + keys > attention_first_key(a, first / a->group);
        if (meets) meet_rows(w, first, rows, key, keys);
    }
    end_keys(w, key, keys);
}

static void do_head(const work *w) {
    const attention_job *a = w->t.job;
    const int64_t all = a->group * a->m;
    memset(w->dq, 0, (size_t)(all * w->d_row) * sizeof(real));
    begin_rows(w);
    for (int64_t key = 0; key < a->n; key += KEYS) meet_keys(w, key, min(a->n - key, KEYS));
    for (int64_t r = 0; a->dq && r < all; r++) {
        real *dq = w->dq + r * w->d_row;
        if (!is_lost(w, r) && !is_finite_run(dq, a->d)) do_row_again(w, r, dq);
        TNI_CPU(attention_put)(dq, a->d, a->dq, row_of(&w->t, a->dq, r));
    }
}

/* A piece is one head of one entry, or all that add to the same dbias, in order. */
static void do_piece(const job *j, int64_t piece, real *memory) {
    const attention_job *a = &j->a;
    const bool all_entries = a->dbias && a->dbias->shape[0] == 1, all_heads = a->dbias && a->dbias->shape[1] == 1;
    const int64_t heads = all_heads ? 1 : a->hk, entry = piece / heads, own = piece % heads;
    for (int64_t p = all_entries ? 0 : entry; p < (all_entries ? a->b : entry + 1); p++) {
        for (int64_t h = all_heads ? 0 : own; h < (all_heads ? a->hk : own + 1); h++) {
            const work w = work_of(j, p, h, memory);
            do_head(&w);
        }
    }
}

static void slices_body(void *arg, int64_t begin, int64_t end) {
    job *j = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        char *memory = j->workspace + slice * j->plan->slice_bytes;
        for (int64_t at; (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->plan->pieces;)
            do_piece(j, at, (real *)memory);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void put_dbias(const job *j) {
    const tn_view *x = j->a.dbias;
    for (int64_t row = 0; row < tn_product(x, 0, 3); row++) {
        const int64_t at = row / (x->shape[1] * x->shape[2]) * x->strides[0] +
                           row / x->shape[2] % x->shape[1] * x->strides[1] + row % x->shape[2] * x->strides[2];
        TNI_CPU(attention_put)(j->dbias + row * x->shape[3], x->shape[3], x, r_at(x->type, x->data, at));
    }
}

static void put_dsinks(const job *j) {
    const tn_view *x = j->a.dsinks;
    for (int64_t h = 0; h < j->a.hq; h++) {
        double sum = 0;
        for (int64_t p = 0; p < j->a.b; p++) sum += j->dsinks[p * j->a.hq + h];
        r_store(x->type, x->data, h * x->strides[0], (real)sum);
    }
}

tn_status TNI_CPU(attention_grad)(const tn_call *call, void *state) {
    const attention_plan *plan = state;
    job j = {.a = attention_grad_job_of(call), .plan = plan, .workspace = call->workspace};
    char *shared = j.workspace + plan->slices * plan->slice_bytes;
    if (plan->shared_bytes) memset(shared, 0, (size_t)plan->shared_bytes);
    j.dsinks = (double *)shared;
    if (j.a.dbias) j.dbias = (real *)(shared + round_up(j.a.b * j.a.hq, 8) * 8);
    tn_parallel(call, min(plan->slices, plan->pieces), 1, slices_body, &j);
    if (j.a.dbias) put_dbias(&j);
    if (j.a.dsinks) put_dsinks(&j);
    return TN_OK;
}
