/* Timing one call. Beside every repeat of the call runs a copy of as many bytes as the call must move, on the same
 * threads and with buffers that rotate in the same way: what the memory (or the cache) gives at that very moment. */
#include "bench.h"
#include "core/host/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 1000, LEAST_REPEATS = 11, MOST_BUFFERS = 64, MOST_INNER = 100000 };
static const double SHORTEST = 200e-6; /* seconds of a repeat */
static const double MOST_BYTES = 6e9;  /* of all buffers */

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Large inputs repeat a million random numbers: drawing more takes longer than measuring. */
static bool fill(made_call *k, const tni_case *sample) {
    int64_t most = 1000003;
    for (int32_t i = 0; i < k->n_in; i++) { /* what has an order is drawn as a whole */
        if (sample->inputs[i].order != TNI_ORDER_NONE && k->in[i].count > most) most = k->in[i].count;
    }
    double *values = tni_malloc((size_t)most * sizeof *values);
    if (!values) return false;
    for (int32_t i = 0; i < k->n_in; i++) {
        array *a = &k->in[i];
        int64_t n = a->count < most ? a->count : most;
        tni_sample_input drawn = sample->inputs[i];
        if (drawn.order == TNI_ORDER_NONE) drawn.shape = (tni_dims){.ndim = 1, .d = {n}};
        case_values(&drawn, a->type, (uint64_t)i + 1, values);
        size_t size = tn_type_size(a->type);
        for (int64_t at = 0; at < n; at++) tn_set(a->type, a->tensor.data, at, values[at]);
        for (int64_t at = n; at < a->count; at += n) {
            int64_t part = a->count - at < n ? a->count - at : n;
            memcpy((char *)a->tensor.data + (size_t)at * size, a->tensor.data, (size_t)part * size);
        }
    }
    tni_free(values);
    return true;
}

/* ---- the copy ---------------------------------------------------------------------------------------------------- */

typedef struct copier {
    char *memory; /* for each buffer: from, then to */
    int64_t half; /* bytes of either */
    int buffers;
} copier;

typedef struct copy_part {
    const char *from;
    char *to;
} copy_part;

static void copy_piece(void *arg, int64_t begin, int64_t end) {
    const copy_part *p = arg;
    memcpy(p->to + begin, p->from + begin, (size_t)(end - begin));
}

static void copy_once(const copier *c, int64_t turn) {
    char *from = c->memory + turn % c->buffers * 2 * c->half;
    copy_part part = {from, from + c->half};
    const tn_host *host = tn_default_host();
    host->parallel(host->context, c->half, 1 << 16, copy_piece, &part);
}

static bool copier_make(copier *c, double bytes, int buffers) {
    c->half = (int64_t)(bytes / 2) / 64 * 64 + 64;
    c->buffers = buffers;
    size_t all = (size_t)c->half * 2 * (size_t)buffers;
    c->memory = tni_malloc_aligned(all);
    if (c->memory) memset(c->memory, 1, all); /* the pages are there before the clock runs */
    return c->memory != NULL;
}

/* ---- repeats ----------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

spread bench_spread(double *times, int n) {
    if (n == 0) return (spread){0, 0, 0};
    qsort(times, (size_t)n, sizeof *times, by_size);
    return (spread){.median = times[n / 2], .low = times[n / 10], .high = times[n - 1 - n / 10]};
}

typedef struct timing {
    made_call *calls; /* (buffers) */
    int buffers, inner;
    copier copy;
    int64_t turn;
} timing;

static tn_status time_calls(timing *t, double *seconds) {
    double begin = bench_now();
    for (int i = 0; i < t->inner; i++) {
        made_call *k = &t->calls[(t->turn + i) % t->buffers];
        TN_TRY(tn_run(k->op, &k->args, NULL));
    }
    *seconds = (bench_now() - begin) / t->inner;
    return TN_OK;
}

static double time_copies(timing *t) {
    double begin = bench_now();
    for (int i = 0; i < t->inner; i++) copy_once(&t->copy, t->turn + i);
    return (bench_now() - begin) / t->inner;
}

/* How many calls fill a repeat; also the warm-up. */
static tn_status choose_inner(timing *t) {
    double seconds = 0;
    t->inner = t->buffers;
    TN_TRY(time_calls(t, &seconds));
    time_copies(t);
    TN_TRY(time_calls(t, &seconds));
    int inner = seconds > 0 ? (int)(SHORTEST / seconds) + 1 : MOST_INNER;
    t->inner = inner > MOST_INNER ? MOST_INNER : inner;
    return TN_OK;
}

static tn_status repeat(timing *t, double seconds, measurement *m) {
    double *runs = tni_malloc(2 * MOST_REPEATS * sizeof *runs), *copies = runs + MOST_REPEATS;
    if (!runs) return TN_NO_MEMORY;
    double begin = bench_now();
    tn_status status = choose_inner(t);
    int n = 0;
    while (status == TN_OK && n < MOST_REPEATS && (n < LEAST_REPEATS || bench_now() - begin < seconds)) {
        status = time_calls(t, &runs[n]);
        copies[n++] = time_copies(t);
        t->turn += t->inner;
    }
    if (status == TN_OK) {
        m->run = bench_spread(runs, n);
        m->copy = bench_spread(copies, n);
        m->repeats = n;
        m->inner = t->inner;
    }
    tni_free(runs);
    return status;
}

static int choose_buffers(const measurement *m) {
    double cache = (double)bench_cache(), bytes = m->cost.bytes > 64 ? m->cost.bytes : 64;
    if (m->cached) return 1;
    double wanted = 4 * cache / bytes + 1, fitting = MOST_BYTES / (2 * bytes);
    double n = wanted < fitting ? wanted : fitting;
    return n < 1 ? 1 : n > MOST_BUFFERS ? MOST_BUFFERS : (int)n;
}

tn_status bench_measure(const tn_function *op, const tni_case *sample, const char *kernel, double seconds,
                        measurement *m) {
    made_call bare;
    *m = (measurement){0};
    TN_TRY(call_make(&bare, op, sample, (call_options){.bare = true}));
    bare.args.kernel = kernel;
    tn_status status = tn_explain(op, &bare.args, &m->kernel, &m->cost);
    call_free(&bare);
    TN_TRY(status);
    m->cached = m->cost.bytes < (double)bench_cache() / 2;
    m->buffers = choose_buffers(m);
    timing t = {.buffers = m->buffers};
    t.calls = tni_calloc((size_t)m->buffers, sizeof *t.calls);
    if (!t.calls) return TN_NO_MEMORY;
    int made = 0;
    for (; status == TN_OK && made < m->buffers; made++) {
        status = call_make(&t.calls[made], op, sample, (call_options){0});
        if (status != TN_OK) break;
        t.calls[made].args.kernel = kernel;
        if (!fill(&t.calls[made], sample)) status = TN_NO_MEMORY;
    }
    if (status == TN_OK && !copier_make(&t.copy, m->cost.bytes, m->buffers)) status = TN_NO_MEMORY;
    if (status == TN_OK) status = repeat(&t, seconds, m);
    for (int i = 0; i < made; i++) call_free(&t.calls[i]);
    tni_free(t.calls);
    tni_free(t.copy.memory);
    return status;
}
