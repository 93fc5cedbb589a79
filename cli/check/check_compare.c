/* Results against the reference, element by element. */
#include "check.h"
#include "core/table/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_index(char text[128], const tni_dims *shape, int64_t index) {
    int64_t at[TN_MAX_RANK];
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        at[d] = index % shape->d[d];
        index /= shape->d[d];
    }
    size_t n = (size_t)snprintf(text, 128, "[");
    for (int32_t d = 0; d < shape->ndim && n < 100; d++) {
        n += (size_t)snprintf(text + n, 128 - n, d ? ", %lld" : "%lld", (long long)at[d]);
    }
    snprintf(text + n, 128 - n, "]");
}

/* What the type makes of the value: a finite reference may be infinite in f16. */
static double as_held(tn_type type, double value) {
    double memory;
    tn_set(type, &memory, 0, value);
    return tn_get(type, &memory, 0);
}

/* The error as a part of the bound: 0 right, up to 1 good enough. */
static double badness(const checker *c, const result *r, int64_t i, double got) {
    double want = r->value[i], bound = r->bound ? r->bound[i] : 0;
    if (c->any_infinity && !isfinite(want)) return isfinite(got) ? INFINITY : 0;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(want) || isinf(got)) {
        if (want == got) return 0;
        double past = want + copysign(bound, want);
        return isinf(got) && got == as_held(r->type, past) ? 0 : INFINITY;
    }
    double error = fabs(got - want);
    return error == 0 ? 0 : bound > 0 ? error / bound : INFINITY;
}

/* Is every byte of element i this one? */
static bool holds(const array *a, int64_t i, unsigned char byte) {
    const size_t size = tn_type_size(a->type);
    const unsigned char *element = (unsigned char *)a->tensor.data + array_place(a, i) * (int64_t)size;
    for (size_t k = 0; k < size; k++) {
        if (element[k] != byte) return false;
    }
    return true;
}

/* Which wrong elements were never written: they hold what array_make and array_fill put there. NaN may have come from
 * elsewhere, and -1 may be a result; so, where the call can run again, they must hold what is put there then. */
static void find_unwritten(checker *c, const result *r, const array *a, const double *got, bool *unwritten) {
    enum { OTHER = 0x5a };
    const bool is_float = TN_BIT(a->type) & (TN_FLOATS | TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2));
    const bool can_try = c->tested.call && result_array(c->tested.call, r) == a && !c->broken;
    bool any = false;
    for (int64_t i = 0; i < r->count; i++) {
        unwritten[i] = r->output >= 0 && (is_float || can_try) && badness(c, r, i, got[i]) > 1 &&
                       holds(a, i, ARRAY_PATTERN);
        any |= unwritten[i];
    }
    if (!any || !can_try || !check_run_again(c, OTHER)) return;
    for (int64_t i = 0; i < r->count; i++) unwritten[i] &= holds(a, i, OTHER);
}

/* Is element i one of the last `tail` of its row? */
static bool in_tail(int64_t i, int64_t row, int64_t tail) {
    return i % row >= row - tail;
}

static finding find_out(const checker *c, const result *r, const bool *unwritten, const double *got) {
    finding f = {.count = r->count};
    const int64_t last = r->shape.ndim ? r->shape.d[r->shape.ndim - 1] : 1;
    for (int64_t i = 0; i < r->count; i++) {
        if (badness(c, r, i, got[i]) <= 1) continue;
        const double want = as_held(r->type, r->value[i]);
        f.wrong++;
        f.worst = fmax(f.worst, badness(c, r, i, got[i]));
        f.unwritten += unwritten[i];
        f.nan += isnan(got[i]) && !isnan(want);
        f.dropped += isnan(want) && !isnan(got[i]);
    }
    const int64_t each = last ? f.unwritten / (r->count / last) : 0;
    bool of_all = f.unwritten > 0 && f.unwritten < r->count;
    bool of_rows = of_all && each * (r->count / last) == f.unwritten;
    for (int64_t i = 0; i < r->count && (of_all || of_rows); i++) {
        of_all &= unwritten[i] == in_tail(i, r->count, f.unwritten);
        of_rows &= unwritten[i] == in_tail(i, last, each);
    }
    f.tail = of_all || of_rows;
    return f;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Inputs of stride 0 make few results, each many times: their roundings have no average. */
static int64_t count_different(const result *r) {
    double *sorted = tni_malloc((size_t)r->count * sizeof *sorted);
    int64_t n = 0;
    if (!sorted) return 0;
    memcpy(sorted, r->value, (size_t)r->count * sizeof *sorted);
    qsort(sorted, (size_t)r->count, sizeof *sorted, by_value);
    for (int64_t i = 0; i < r->count; i++) n += i == 0 || sorted[i] != sorted[i - 1];
    tni_free(sorted);
    return n;
}

/* Roundings are as often up as down, and small as large: where every element has a few of its own and shares none, they
 * are off by a twentieth of the bound on average. Twice that is no rounding: bits are lost. */
static bool loses_bits(const checker *c, const result *r, const double *got, double *average) {
    enum { LEAST = 64 };
    const double most = 0.1;
    double sum = 0;
    for (int64_t i = 0; i < r->count; i++) {
        const double bad = badness(c, r, i, got[i]);
        sum += isfinite(bad) ? bad : 0;
    }
    *average = sum / (double)r->count;
    return r->by_element && r->count >= LEAST && *average > most && count_different(r) >= LEAST;
}

/* at: the worst element */
static void fail_result(checker *c, const result *r, const array *a, const double *got, int64_t at, const char *what) {
    char index[128];
    bool *unwritten = tni_calloc((size_t)r->count, sizeof *unwritten);
    if (unwritten) find_unwritten(c, r, a, got, unwritten);
    const finding f = unwritten ? find_out(c, r, unwritten, got) : (finding){0};
    if (!c->broken) c->found = f;
    for (int64_t i = 0; f.unwritten && i < r->count; i++) {
        if (!unwritten[i]) continue;
        at = i;
        break;
    }
    tni_free(unwritten);
    print_index(index, &r->shape, at);
    if (f.unwritten) {
        check_fail(c, "%s%s was never written (%lld of %lld elements were not)%s%s", r->name, index,
                   (long long)f.unwritten, (long long)r->count, *what ? ", " : "", what);
    }
    check_fail(c, "%s%s%s is %.9g, should be %.9g (bound %.2g; %lld of %lld wrong)%s%s", r->name, index,
               r->output < 0 ? " in place" : "", got[at], r->value[at], r->bound ? r->bound[at] : 0, (long long)f.wrong,
               (long long)r->count, *what ? ", " : "", what);
}

bool compare_result(checker *c, const result *r, const array *a, const char *what) {
    double worst = 0;
    int64_t at = -1, wrong = 0;
    double *got = tni_malloc((size_t)a->count * sizeof(double));
    if (!got) {
        check_fail(c, "out of memory");
        return false;
    }
    array_read(a, got);
    for (int64_t i = 0; i < r->count; i++) {
        double bad = badness(c, r, i, got[i]);
        wrong += bad > 1;
        if (bad > worst) {
            worst = bad;
            at = i;
        }
    }
    if (worst <= 1 && worst > c->worst) c->worst = worst;
    if (wrong) fail_result(c, r, a, got, at, what);
    double average;
    const bool lossy = !wrong && r->by_element && loses_bits(c, r, got, &average);
    if (lossy) {
        check_fail(c,
                   "%s loses low bits: it is off by %.2f of its bound on average, where roundings make 0.05 and 0.1 is "
                   "the most%s%s",
                   r->name, average, *what ? ", " : "", what);
    }
    tni_free(got);
    return !wrong && !lossy;
}

bool results_right(const checker *c, const problem *p, const made_call *k) {
    bool right = true;
    for (int32_t i = 0; i < p->n_results && right; i++) {
        const result *r = &p->results[i];
        const array *a = result_array(k, r);
        if (!r->present || a->count < 0) continue;
        double *got = tni_malloc((size_t)a->count * sizeof *got);
        if (!got) return false;
        array_read(a, got);
        for (int64_t e = 0; e < r->count && right; e++) right = badness(c, r, e, got[e]) <= 1;
        tni_free(got);
    }
    return right;
}

bool compare_call(checker *c, const problem *p, const made_call *k, const char *what) {
    bool good = true;
    for (int32_t i = 0; i < p->n_results; i++) {
        const result *r = &p->results[i];
        const array *a = result_array(k, r);
        if (r->present && a->count >= 0 && !compare_result(c, r, a, what)) good = false;
    }
    return good;
}

/* Nothing but the results may have been written. */
static bool check_untouched(checker *c, const made_call *k, const char *what) {
    for (int32_t i = 0; i < k->n_in; i++) {
        const tni_param *param = &c->contract->inputs[k->param[i]];
        if (array_intact(&k->in[i], !param->inplace)) continue;
        check_fail(c, "input %s was written to%s%s", param->name, *what ? ", " : "", what);
        return false;
    }
    for (int32_t i = 0; i < k->n_out; i++) {
        if (k->out[i].count < 0 || array_intact(&k->out[i], false)) continue;
        check_fail(c, "memory around output %s was written to%s%s", c->contract->outputs[i].name, *what ? ", " : "",
                   what);
        return false;
    }
    return true;
}

/* The maximum of no elements has no value: a formula that asks for it is right to say so. */
static bool asks_for_none(const checker *c, const made_call *k, tn_status status) {
    bool empty = false;
    for (int32_t i = 0; i < k->n_in; i++) empty |= k->in[i].count == 0;
    return status == TN_BAD_SHAPE && empty && c->op->row->formula && strstr(tn_last_error(), "of no elements");
}

bool run_and_compare(checker *c, const problem *p, made_call *k, const char *what) {
    bool watched = true;
    for (int32_t i = 0; i < k->n_in; i++) watched &= array_watch(&k->in[i]);
    for (int32_t i = 0; i < k->n_out; i++) watched &= k->out[i].count < 0 || array_watch(&k->out[i]);
    if (!watched) {
        check_fail(c, "out of memory");
        return false;
    }
    k->args.kernel = c->kernel;
    tn_status status = call_run(k, c->gpu, NULL);
    if (check_declined(c, status) || asks_for_none(c, k, status)) return true;
    if (status != TN_OK) {
        bool outside = c->gpu && c->gpu->outside;
        check_fail(c, "%s%s%s%s", outside ? "" : "refused: ", tn_last_error(), *what ? ", " : "", what);
        return false;
    }
    c->tested.problem = p;
    c->tested.call = k;
    const bool good = check_untouched(c, k, what) && compare_call(c, p, k, what);
    c->tested.call = NULL;
    return good;
}

bool same_bits(checker *c, const char *name, const array *a, const array *b, const char *what) {
    size_t size = tn_type_size(a->type);
    if (array_dense(a) && array_dense(b) && !memcmp(a->tensor.data, b->tensor.data, (size_t)a->count * size))
        return true;
    for (int64_t i = 0; i < a->count; i++) {
        const char *x = (char *)a->tensor.data + array_place(a, i) * (int64_t)size;
        const char *y = (char *)b->tensor.data + array_place(b, i) * (int64_t)size;
        if (memcmp(x, y, size) == 0) continue;
        tni_dims shape = {.ndim = a->tensor.ndim};
        char index[128];
        memcpy(shape.d, a->shape, sizeof shape.d);
        print_index(index, &shape, i);
        check_fail(c, "%s%s is %.9g, then %.9g: %s", name, index, tn_get(a->type, x, 0), tn_get(b->type, y, 0), what);
        return false;
    }
    return true;
}

bool same_results(checker *c, const made_call *a, const made_call *b, const char *what) {
    for (int32_t i = 0; i < a->n_out; i++) {
        if (a->out[i].count < 0 || b->out[i].count < 0) continue;
        if (!same_bits(c, c->contract->outputs[i].name, &a->out[i], &b->out[i], what)) return false;
    }
    for (int32_t i = 0; i < a->n_in; i++) {
        const tni_param *param = &c->contract->inputs[a->param[i]];
        if (param->inplace && !same_bits(c, param->name, &a->in[i], &b->in[i], what)) return false;
    }
    return true;
}
