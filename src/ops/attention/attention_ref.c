/* attention and its gradient in plain C, in double: what all other kernels are compared with. */
#include <math.h>

#include "attention.h"
#include "core/host/memory.h"
#include "ops/elements.h"

/* A score that takes no part is -inf; t: what softcap made of it. */
typedef struct score {
    double value, t;
} score;

static double product(const tn_view *x, int64_t i, const tn_view *y, int64_t j, int64_t count) {
    double sum = 0;
    for (int64_t l = 0; l < count; l++) sum += get(x, i + l) * get(y, j + l);
    return sum;
}

static score score_of(const attention_job *a, int64_t p, int64_t h, int64_t i, int64_t j) {
    const int64_t q = ((p * a->hq + h) * a->m + i) * a->d, k = ((p * a->hk + h / a->group) * a->n + j) * a->d;
    const uint8_t *mask = data_of(a->mask);
    if (j < attention_first_key(a, i) || j >= attention_end_of_keys(a, i)) return (score){-INFINITY, 0};
    if (mask && !mask[attention_at(a->mask, p, h, i, j)]) return (score){-INFINITY, 0};
    double t = a->scale * product(a->q, q, a->k, k, a->d);
    if (a->softcap > 0) t = a->softcap * tanh(t / a->softcap);
    return (score){t + (a->bias ? get(a->bias, attention_at(a->bias, p, h, i, j)) : 0), t};
}

/* o = sum over the keys of softmax(score) v. The sink is a score without a v. */
static void row_ref(const attention_job *a, int64_t p, int64_t h, int64_t i, double *scores) {
    const int64_t row = (p * a->hq + h) * a->m + i, v = (p * a->hk + h / a->group) * a->n;
    double most = a->sinks ? get(a->sinks, h) : -INFINITY;
    for (int64_t j = 0; j < a->n; j++) most = fmax(most, scores[j] = score_of(a, p, h, i, j).value);
    const double shift = most == -INFINITY ? 0 : most;
    double sum = a->sinks ? exp(get(a->sinks, h) - shift) : 0;
    for (int64_t j = 0; j < a->n; j++) sum += exp(scores[j] - shift);
    for (int64_t c = 0; a->o && c < a->e; c++) {
        double o = 0;
        for (int64_t j = 0; j < a->n; j++) {
            if (scores[j] != -INFINITY) o += exp(scores[j] - shift) * get(a->v, (v + j) * a->e + c);
        }
        set(a->o, row * a->e + c, sum == 0 ? 0 : o / sum);
    }
    if (a->lse) set(a->lse, row, shift + log(sum));
}

tn_status tni_attention_ref(const tn_call *call, void *state) {
    (void)state;
    const attention_job a = attention_job_of(call);
    double *scores = tni_malloc((size_t)(a.n + 1) * sizeof *scores);
    if (!scores) return TN_NO_MEMORY;
    for (int64_t row = 0; row < a.b * a.hq * a.m; row++)
        row_ref(&a, row / (a.hq * a.m), row / a.m % a.hq, row % a.m, scores);
    tni_free(scores);
    return TN_OK;
}

/* ---- the gradient ------------------------------------------------------------------------------------------------ */

/* Sums in double: of each output, dense. NULL: not wanted. */
typedef struct sums {
    double *dq, *dk, *dv, *dbias, *dsinks;
} sums;

static void add(double *to, double by, const tn_view *x, int64_t at, int64_t count) {
    for (int64_t l = 0; l < count; l++) to[l] += by * get(x, at + l);
}

/* 0 where nobody used o. */
static double product_with_dy(const attention_job *a, int64_t row, const tn_view *x, int64_t i) {
    return a->dy ? product(a->dy, row * a->e, x, i, a->e) : 0;
}

/* With p = exp(score - lse) and delta = sum(o dy) - dlse: dv += p dy, dscore = p (v dy - delta). */
static void pair_ref(const attention_job *a, const sums *s, int64_t p, int64_t h, int64_t i, int64_t j, double delta) {
    const int64_t row = (p * a->hq + h) * a->m + i, key = (p * a->hk + h / a->group) * a->n + j;
    const score t = score_of(a, p, h, i, j);
    if (t.value == -INFINITY) return;
    const double weight = exp(t.value - get(a->lse, row));
    double slope = weight * (product_with_dy(a, row, a->v, key * a->e) - delta);
    if (s->dv && a->dy) add(s->dv + key * a->e, weight, a->dy, row * a->e, a->e);
    if (s->dbias) s->dbias[attention_at(a->dbias, p, h, i, j)] += slope;
    slope *= a->scale * (a->softcap > 0 ? 1 - t.t / a->softcap * (t.t / a->softcap) : 1);
    if (s->dq) add(s->dq + row * a->d, slope, a->k, key * a->d, a->d);
    if (s->dk) add(s->dk + key * a->d, slope, a->q, row * a->d, a->d);
}

static void grad_row_ref(const attention_job *a, const sums *s, int64_t p, int64_t h, int64_t i) {
    const int64_t row = (p * a->hq + h) * a->m + i;
    const double delta = product_with_dy(a, row, a->o, row * a->e) - (a->dlse ? get(a->dlse, row) : 0);
    for (int64_t j = 0; j < a->n; j++) pair_ref(a, s, p, h, i, j, delta);
    if (s->dsinks) s->dsinks[h] -= exp(get(a->sinks, h) - get(a->lse, row)) * delta;
}

static double *make_sums(const tn_view *out, bool *failed) {
    double *made = out ? tni_calloc((size_t)tn_count(out) + 1, sizeof *made) : NULL;
    *failed = *failed || (out && !made);
    return made;
}

static void end_sums(const tn_view *out, double *made, bool failed) {
    for (int64_t i = 0; made && !failed && i < tn_count(out); i++) set(out, i, made[i]);
    tni_free(made);
}

tn_status tni_attention_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const attention_job a = attention_grad_job_of(call);
    bool failed = false;
    const sums s = {make_sums(a.dq, &failed), make_sums(a.dk, &failed), make_sums(a.dv, &failed),
                    make_sums(a.dbias, &failed), make_sums(a.dsinks, &failed)};
    for (int64_t row = 0; !failed && row < a.b * a.hq * a.m; row++)
        grad_row_ref(&a, &s, row / (a.hq * a.m), row / a.m % a.hq, row % a.m);
    end_sums(a.dq, s.dq, failed);
    end_sums(a.dk, s.dk, failed);
    end_sums(a.dv, s.dv, failed);
    end_sums(a.dbias, s.dbias, failed);
    end_sums(a.dsinks, s.dsinks, failed);
    return failed ? TN_NO_MEMORY : TN_OK;
}
