/* Kernels of an operator beside each other: what `tenon bench --kernels` prints. */
#include <stdio.h>
#include <string.h>

#include "bench_gpu.h"
#include "cli/cli.h"
#include "core/table/table.h"

enum { COLUMNS = 12 };

typedef struct rung {
    const char *kernel;
    tn_cost cost;
    spread run;
    char why_not[512]; /* the call does not go to it; "": it does */
} rung;

/* "all" are all but the reference, which is slow by far. */
static bool is_named(const char *names, const tn_kernel *k) {
    const char *kernel = k->name;
    const size_t length = strlen(kernel);
    if (strcmp(names, "all") == 0) return k[1].name != NULL;
    for (const char *p = names; *p; p += strspn(p, ", ")) {
        const size_t n = strcspn(p, ", ");
        if (n == length && memcmp(p, kernel, n) == 0) return true;
        p += n;
    }
    return false;
}

/* A name may stand for two rows, of different types. */
int bench_kernels_of(const tn_function *op, const char *names, tn_device where, const char *list[MOST_RUNGS]) {
    int n = 0;
    for (const tn_kernel *k = op->row->kernels; k && k->name && n < MOST_RUNGS; k++) {
        bool is_new = (int)k->device == where.kind && is_named(names, k);
        for (int i = 0; i < n; i++) is_new = is_new && strcmp(list[i], k->name) != 0;
        if (is_new) list[n++] = k->name;
    }
    return n;
}

static tn_status measure(const tn_function *op, const tni_case *made, tn_device where, double seconds, rung *r) {
    tn_status status;
    if (where.kind == TN_CUDA) {
        gpu_measurement m;
        status = bench_gpu(op, made, r->kernel, where.index, seconds, &m);
        r->cost = m.cost;
        r->run = m.cold.graph.median > 0 ? m.cold.graph : m.cold.events;
    } else {
        measurement m;
        status = bench_measure(op, made, r->kernel, seconds, &m);
        r->cost = m.cost;
        r->run = m.run;
    }
    if (status != TN_UNSUPPORTED) return status;
    snprintf(r->why_not, sizeof r->why_not, "%s", tn_last_error());
    return TN_OK;
}

static void print_rung(const rung *r, double best) {
    char median[24], low[24], high[24], range[64], rate[24] = "-";
    snprintf(range, sizeof range, "%s … %s", bench_time(r->run.low, low), bench_time(r->run.high, high));
    if (r->cost.flops > 0) snprintf(rate, sizeof rate, "%.4g", r->cost.flops / r->run.median / 1e12);
    printf("%-*s %10s %*s %10s %10.1f %s%10.1f%%%s\n", COLUMNS, r->kernel, bench_time(r->run.median, median), 23, range,
           rate, r->cost.bytes / r->run.median / 1e9, style_text(r->run.median <= best ? GREEN : PLAIN),
           100 * best / r->run.median, style_text(PLAIN));
}

static void print_all(const char *title, const rung *rungs, int n) {
    double best = 0;
    for (int i = 0; i < n; i++) {
        const double median = rungs[i].run.median;
        if (!rungs[i].why_not[0] && (best == 0 || median < best)) best = median;
    }
    printf("%s%s%s\n%s%-*s %10s %21s %10s %10s %11s%s\n", style_text(BOLD), title, style_text(PLAIN), style_text(DIM),
           COLUMNS, "kernel", "median", "10% … 90%", "TFLOP/s", "GB/s", "of the best", style_text(PLAIN));
    for (int i = 0; i < n; i++) {
        if (!rungs[i].why_not[0]) print_rung(&rungs[i], best);
    }
    for (int i = 0; i < n; i++) {
        if (!rungs[i].why_not[0]) continue;
        printf("%s%-*s ", style_text(DIM), COLUMNS, rungs[i].kernel);
        print_wrapped(rungs[i].why_not, COLUMNS + 1, COLUMNS + 1);
        printf("%s", style_text(PLAIN));
    }
    putchar('\n');
    fflush(stdout);
}

tn_status bench_ladder(const tn_function *op, const tni_case *made, const char *title, const char *names,
                       tn_device where, double seconds) {
    static rung rungs[MOST_RUNGS];
    const char *list[MOST_RUNGS];
    const int n = bench_kernels_of(op, names, where, list);
    for (int i = 0; i < n; i++) {
        rungs[i] = (rung){.kernel = list[i]};
        TN_TRY(measure(op, made, where, seconds, &rungs[i]));
    }
    if (n == 0)
        return tn_fail(TN_NOT_FOUND, "%s has no such kernel here; `tenon ops %s` lists them", tn_function_name(op),
                       tn_function_name(op));
    print_all(title, rungs, n);
    return TN_OK;
}
