/* What `tenon bench` measures with: a call on buffers that rotate, a copy of as many bytes beside it, and the
 * machine. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/data.h"
#include "core/host/text.h"
#include "core/table/sample.h"

/* ---- the machine (bench_machine.c) ------------------------------------------------------------------------------- */
double bench_now(void);      /* seconds */
const char *bench_cpu(void); /* "Neoverse-N1", "Intel(R) Xeon(R) …" */
int bench_cores(void);
const char *bench_isa(void);  /* "neon", "avx512 avx2" */
int64_t bench_cache(void);    /* bytes of the last level; 32 MB where nobody says */
const char *bench_date(void); /* "2025-01-31T12:00:00Z" */

/* ---- one measurement (bench_measure.c) --------------------------------------------------------------------------- */
typedef struct spread {
    double median, low, high; /* seconds; low and high: 10% and 90% of the repeats */
} spread;
spread bench_spread(double *times, int n); /* sorts them; all 0 where there are none */

typedef struct measurement {
    const char *kernel;
    tn_cost cost;
    spread run, copy;
    int repeats;
    int inner;   /* calls in one repeat: short ones are timed together */
    int buffers; /* that take turns, so that a call finds nothing of the last one in the cache */
    bool cached; /* small enough to stay in the cache: the copy stays there too */
} measurement;

/* Measures the call for about `seconds`. */
tn_status bench_measure(const tn_function *op, const tni_case *sample, const char *kernel, double seconds,
                        measurement *m);

/* ---- kernels beside each other (bench_ladder.c) ------------------------------------------------------------------ */

/* Measures the call with each kernel that is asked for, and prints a table: those that take it, then why others do not.
 * names: "all", or "mma,tile". */
tn_status bench_ladder(const tn_function *op, const tni_case *made, const char *title, const char *names,
                       tn_device where, double seconds);
enum { MOST_RUNGS = 16 };
int bench_kernels_of(const tn_function *op, const char *names, tn_device where, const char *list[MOST_RUNGS]);

/* ---- the verb (cmd_bench.c) -------------------------------------------------------------------------------------- */

/* Measures calls of operators that need not be in the table, on `device` (NULL: the CPU), and prints the table of
 * `tenon bench` with these names in its first column, or adds rows of JSON to `rows` (NULL: prints). Returns the exit
 * status. */
int bench_alone(const char *title, int n, const tn_function *const *ops, const tni_case *const *cases,
                const char *const *names, tn_type T, const char *device, tni_text *rows);
const char *bench_time(double seconds, char text[24]); /* "3.21 ms" */

#endif
