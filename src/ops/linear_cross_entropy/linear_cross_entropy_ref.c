/* linear_cross_entropy word by word, with all logits in memory, in double. */
#include <math.h>

#include "linear_cross_entropy.h"
#include "ops/elements.h"
#include "ops/loss/cross_entropy.h"

tn_status tni_token_loss_check(const tn_call *call, const tni_token_loss *a) {
    for (int64_t i = 0; i < a->rows; i++) {
        const int64_t t = target_at(a->target, i);
        if (t == a->ignore_index || (t >= 0 && t < a->v)) continue;
        return tni_bad_target(call->name, a->target, a->v, a->ignore_index, i, t);
    }
    return TN_OK;
}

static double capped(const tni_token_loss *a, double h) {
    return a->softcap > 0 ? a->softcap * tanh(h / a->softcap) : h;
}

static double logit(const tni_token_loss *a, double h) {
    return capped(a, h) / a->temperature;
}

/* dl / dh */
static double slope(const tni_token_loss *a, double h) {
    const double c = a->softcap > 0 ? cosh(h / a->softcap) : 1;
    return 1 / (c * c * a->temperature);
}

/* h: (rows, v) */
static void logits_ref(const tni_token_loss *a, double *h) {
    for (int64_t at = 0; at < a->rows * a->v; at++) {
        const int64_t i = at / a->v, j = at % a->v;
        h[at] = get_or(a->b, j, 0);
        for (int64_t d = 0; d < a->k; d++) h[at] += get(a->x, i * a->k + d) * get(a->w, j * a->k + d);
    }
}

/* What is known of a row. */
typedef struct token {
    int64_t target;
    bool ignored;
    double lse, entropy, loss, log_prob, share; /* share: the target's weight */
} token;

static token token_ref(const tni_token_loss *a, const double *h, int64_t i) {
    token t = {.target = target_at(a->target, i)};
    double most = -INFINITY, sum = 0, mean = 0, smooth = 0;
    for (int64_t j = 0; j < a->v; j++) most = fmax(most, logit(a, h[j]));
    for (int64_t j = 0; j < a->v; j++)
        sum += exp(logit(a, h[j]) - (most == -INFINITY ? 0 : most)); /* NaN is not lost */
    t.lse = most + log(sum);
    t.ignored = t.target == a->ignore_index;
    if (t.ignored) return t;
    for (int64_t j = 0; j < a->v; j++) {
        const double l = logit(a, h[j]), p = exp(l - t.lse);
        if (l != -INFINITY) mean += p * l;
        if (a->label_smoothing > 0) smooth += get_or(a->weight, j, 1) * (t.lse - l);
    }
    t.share = get_or(a->weight, t.target, 1);
    t.entropy = t.lse - mean;
    t.log_prob = logit(a, h[t.target]) - t.lse;
    t.loss = -(1 - a->label_smoothing) * t.share * t.log_prob + a->z_loss * t.lse * t.lse;
    if (a->label_smoothing > 0) t.loss += a->label_smoothing / (double)a->v * smooth;
    return t;
}

static double at_most_0(double log_p) {
    return log_p > 0 ? 0 : log_p;
}

/* What arrives at the values of a token. */
typedef struct arrived {
    double loss, log_prob, entropy;
} arrived;

/* h becomes its gradient. No probability is above 1, whatever lse is; the target's is what log_prob says. */
static void slopes_ref(const tni_token_loss *a, const token *t, const arrived *d, double *h) {
    const double hard = d->loss * (1 - a->label_smoothing) * t->share - d->log_prob;
    const double soft = a->label_smoothing / (double)a->v;
    double weights = 0;
    for (int64_t j = 0; j < a->v && soft > 0; j++) weights += get_or(a->weight, j, 1);
    const double rest = d->loss * 2 * a->z_loss * t->lse;
    for (int64_t j = 0; j < a->v; j++) {
        const double log_p = at_most_0(logit(a, h[j]) - t->lse), p = exp(log_p);
        double s = (hard + rest) * p;
        if (j == t->target) s = hard * expm1(at_most_0(t->log_prob)) + rest * exp(at_most_0(t->log_prob));
        if (d->entropy != 0 && p > 0) s -= d->entropy * p * (log_p + t->entropy);
        if (soft > 0) s += d->loss * soft * (weights * p - get_or(a->weight, j, 1));
        h[j] = t->ignored ? 0 : s * slope(a, h[j]);
    }
}

/* The gradients of x, w and b from those of h. */
static void products_ref(const tni_token_loss *a, const double *dh) {
    for (int64_t at = 0; a->dx && at < a->rows * a->k; at++) {
        double sum = 0;
        for (int64_t j = 0; j < a->v; j++) sum += dh[at / a->k * a->v + j] * get(a->w, j * a->k + at % a->k);
        set(a->dx, at, sum);
    }
    for (int64_t at = 0; a->dw && at < a->v * a->k; at++) {
        double sum = 0;
        for (int64_t i = 0; i < a->rows; i++) sum += dh[i * a->v + at / a->k] * get(a->x, i * a->k + at % a->k);
        set(a->dw, at, sum);
    }
    for (int64_t j = 0; a->db && j < a->v; j++) {
        double sum = 0;
        for (int64_t i = 0; a->b && i < a->rows; i++) sum += dh[i * a->v + j];
        set(a->db, j, sum);
    }
}

size_t tni_token_loss_ref_workspace(const tn_call *call) {
    const tni_token_loss a = tni_token_loss_of(call);
    return (size_t)(a.rows * a.v) * sizeof(double);
}

tn_status tni_token_loss_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_token_loss a = tni_token_loss_of(call);
    double *h = call->workspace, total = 0, divisor = 0;
    TN_TRY(tni_token_loss_check(call, &a));
    for (int64_t i = 0; i < a.rows; i++) {
        const int64_t t = target_at(a.target, i);
        if (t != a.ignore_index) divisor += get_or(a.weight, t, 1);
    }
    if (a.reduction != REDUCE_MEAN) divisor = 1;
    logits_ref(&a, h);
    for (int64_t i = 0; i < a.rows; i++) {
        token t = token_ref(&a, h + i * a.v, i);
        if (a.lse) set(a.lse, i, t.lse);
        if (a.loss && a.reduction == REDUCE_NONE) set(a.loss, i, t.loss);
        if (a.log_prob) set(a.log_prob, i, t.log_prob);
        if (a.entropy) set(a.entropy, i, t.entropy);
        total += t.loss;
        arrived d = {.loss = 1 / divisor};
        if (a.lse_was) {
            t.lse = get(a.lse_was, i);
            t.log_prob = get(a.log_prob_was, i);
            t.entropy = get(a.entropy_was, i);
            d = (arrived){get_or(a.dloss, i, 0), get_or(a.dlog_prob, i, 0), get_or(a.dentropy, i, 0)};
        }
        slopes_ref(&a, &t, &d, h + i * a.v);
    }
    if (a.loss && a.reduction != REDUCE_NONE) set(a.loss, 0, total / divisor);
    products_ref(&a, h);
    return TN_OK;
}
