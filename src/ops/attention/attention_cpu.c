/* attention, vectorised. A block of rows meets the keys block by block: products with the keys, exponentials, products
 * with the values. What came before is scaled down where a larger score appears, so no row of scores is ever whole. */
#include "attention_cpu.h"

#include <stdatomic.h>

/* A block of rows at work. */
typedef struct block {
    head t;
    int64_t first, rows;
    real *q, *k, *v, *scores, *o; /* packed; scores as the left side of a product */
    int64_t o_row;
    real *most, *sum; /* of each row: its largest score, and the sum of exp(score - most) V_EXP_SCALE */
} block;

typedef struct job {
    attention_job a;
    const attention_plan *plan;
    char *workspace;
    _Atomic int64_t next;
} job;

static real *take(real **memory, int64_t count) {
    real *made = *memory;
    *memory += count;
    return made;
}

static block block_of(job *j, int64_t piece, real *memory) {
    const attention_job *a = &j->a;
    const int64_t all = a->group * a->m, blocks = ceil_div(all, ROWS), part = piece % blocks, which = piece / blocks;
    block k = {.t = {a, which / a->hk, which % a->hk}, .first = part * ROWS, .rows = min(all - part * ROWS, ROWS)};
    k.o_row = round_up(a->e, TILE_COLUMNS);
    k.q = take(&memory, ceil_div(a->d, GEMM_STEP) * k.rows * A_ROW);
    k.scores = take(&memory, k.rows * A_ROW);
    k.k = take(&memory, a->d * KEYS);
    k.v = take(&memory, KEYS * k.o_row);
    k.o = take(&memory, k.rows * k.o_row);
    k.most = take(&memory, k.rows);
    k.sum = take(&memory, k.rows);
    memset(k.o, 0, (size_t)(k.rows * k.o_row) * sizeof(real));
    for (int64_t i = 0; i < k.rows; i++) {
        const tn_view *sinks = a->sinks;
        const int64_t h = k.t.h * a->group + (k.first + i) % a->group;
        k.most[i] = sinks ? r_load(sinks->type, sinks->data, h * sinks->strides[0]) : -(real)INFINITY;
        k.sum[i] = k.most[i] == -(real)INFINITY ? 0 : V_EXP_SCALE * (real)exp(k.most[i] - k.most[i]);
    }
    return k;
}

/* The largest of n scores; NaN where one is. */
static real largest(const real *scores, int64_t n) {
    vreal most = v_set(-(real)INFINITY);
    for (int64_t j = 0; j < n; j += VL) most = v_max(most, v_load_some(V_NATIVE, scores, j, n - j, -(real)INFINITY));
    return v_hmax(most);
}

/* scores become exp(scale * score - shift) V_EXP_SCALE; returns their sum. */
static real exponentials(real *scores, int64_t n, real scale, real shift) {
    vreal sum = {0};
    for (int64_t j = 0; j < n; j += VL) {
        const vreal score = v_load_some(V_NATIVE, scores, j, n - j, -(real)INFINITY);
        const vreal e = v_exp_scaled(v_fma(score, v_set(scale), v_set(-shift)));
        v_store_some(V_NATIVE, scores, j, n - j, e);
        sum += e;
    }
    return v_sum(sum);
}

static void scale_run(real *x, int64_t n, real by) {
    for (int64_t j = 0; j < n; j += VL) v_store(V_NATIVE, x, j, v_load(V_NATIVE, x, j) * by);
}

/* Row i's scores of this block of keys become weights; 0 where it sees none. */
static void weigh_row(const block *k, int64_t i, int64_t key, int64_t keys) {
    real *scores = k->scores + i * A_ROW;
    const seen s = TNI_CPU(attention_seen)(&k->t, k->first + i, key, keys);
    const attention_job *a = k->t.job;
    const bool plain = !a->bias && !a->mask && a->softcap == 0 && a->scale > 0;
    const real scale = plain ? (real)a->scale : 1;
    if (!plain) TNI_CPU(attention_scores)(&k->t, k->first + i, key, s, scores, NULL);
    const real found = scale * largest(scores + s.begin, s.end - s.begin), before = k->most[i];
    const real most = found > before || found != found ? found : before;
    if (most == -(real)INFINITY) { /* so far nothing takes part */
        memset(scores, 0, (size_t)keys * sizeof *scores);
        return;
    }
    const real sum = exponentials(scores + s.begin, s.end - s.begin, scale, most);
    for (int64_t j = 0; j < s.begin; j++) scores[j] = 0;
    for (int64_t j = s.end; j < keys; j++) scores[j] = 0;
    if (most == before) {
        k->sum[i] += sum;
        return;
    }
    const real down = (real)exp(before - most);
    k->most[i] = most;
    k->sum[i] = k->sum[i] * down + sum;
    scale_run(k->o + i * k->o_row, k->o_row, down);
}

static void meet_keys(const block *k, int64_t key, int64_t keys) {
    const attention_job *a = k->t.job;
    TNI_CPU(attention_pack_keys)(&k->t, a->k, key, keys, false, k->k);
    TNI_CPU(attention_product)(k->rows, keys, a->d, k->q, k->k, k->scores, A_ROW, false);
    for (int64_t i = 0; i < k->rows; i++) weigh_row(k, i, key, keys);
    if (!a->o) return;
    TNI_CPU(attention_pack_keys)(&k->t, a->v, key, keys, true, k->v);
    TNI_CPU(attention_product)(k->rows, a->e, keys, k->scores, k->v, k->o, k->o_row, true);
}

/* A row again, key by key, from what its scores add up to. */
static void do_again(const block *k, int64_t r, real lse, real *o) {
    const attention_job *a = k->t.job;
    const int64_t i = r / a->group;
    memset(o, 0, (size_t)a->e * sizeof *o);
    for (int64_t j = attention_first_key(a, i); j < attention_end_of_keys(a, i); j++) {
        const real score = TNI_CPU(attention_score)(&k->t, r, j, NULL);
        const tni_matrix v = keys_of(&k->t, a->v, j);
        if (score == -(real)INFINITY) continue;
        for (int64_t c = 0; c < a->e; c++) o[c] += (real)exp(score - lse) * r_load(v.type, v.data, c * v.column);
    }
}

static void end_row(const block *k, int64_t i) {
    const attention_job *a = k->t.job;
    const int64_t r = k->first + i;
    const real most = k->most[i], sum = k->sum[i],
               lse = (most == -(real)INFINITY ? 0 : most) + (real)log(sum * V_EXP_UNSCALE);
    real *o = k->o + i * k->o_row;
    if (a->lse) {
        const int64_t h = k->t.h * a->group + r % a->group;
        r_store(a->lse->type, a->lse->data,
                k->t.p * a->lse->strides[0] + h * a->lse->strides[1] + r / a->group * a->lse->strides[2], lse);
    }
    if (!a->o) return;
    scale_run(o, k->o_row, sum == 0 ? 0 : 1 / sum);
    if (lse == lse && !is_finite_run(o, a->e)) do_again(k, r, lse, o);
    TNI_CPU(attention_put)(o, a->e, a->o, row_of(&k->t, a->o, r));
}

static void do_block(const block *k) {
    const attention_job *a = k->t.job;
    const int64_t begin = attention_first_key(a, k->first / a->group);
    const int64_t end = attention_end_of_keys(a, (k->first + k->rows - 1) / a->group);
    TNI_CPU(attention_pack_rows)(&k->t, a->q, k->first, k->rows, k->q);
    for (int64_t key = begin / KEYS * KEYS; key < end; key += KEYS) meet_keys(k, key, min(a->n - key, KEYS));
    for (int64_t i = 0; i < k->rows; i++) end_row(k, i);
}

static void slices_body(void *arg, int64_t begin, int64_t end) {
    job *j = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        char *memory = j->workspace + slice * j->plan->slice_bytes;
        for (int64_t at; (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->plan->pieces;) {
            const block k = block_of(j, at, (real *)memory);
            do_block(&k);
        }
    }
}

tn_status TNI_CPU(attention)(const tn_call *call, void *state) {
    const attention_plan *plan = state;
    job j = {.a = attention_job_of(call), .plan = plan, .workspace = call->workspace};
    tn_parallel(call, min(plan->slices, plan->pieces), 1, slices_body, &j);
    return TN_OK;
}
