/* tenon doctor: what of this machine keeps Tenon from working, and the command that mends it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "doctor.h"

static bool json, list;
static int64_t timeout = 30;

static const char *const state_names[] = {[PASSED] = "PASS", [WARNED] = "WARN", [FAILED] = "FAIL", [SKIPPED] = "SKIP"};

enum { MOST_CHECKS = 64, MOST_ADDED = 16, MOST_ID = 32, COLUMN = 22 };

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static struct { char id[MOST_ID], what[128]; } added_text[MOST_ADDED];
static doctor_row added[MOST_ADDED + 1];
static int n_added;

static const doctor_row *const tables[] = {system_checks,   gpu_checks,   library_checks,
                                           compiler_checks, smoke_checks, added};

/* The i-th of all; NULL: no more. */
static const doctor_row *row_at(int i) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (const doctor_row *row = tables[t]; row->id; row++) {
            if (i-- == 0) return row;
        }
    }
    return NULL;
}

void tni_doctor_add(const char *id, const char *what, void (*run)(doctor_result *r)) {
    if (n_added == MOST_ADDED) return;
    snprintf(added_text[n_added].id, sizeof added_text[0].id, "%s", id);
    snprintf(added_text[n_added].what, sizeof added_text[0].what, "%s", what);
    added[n_added] = (doctor_row){added_text[n_added].id, added_text[n_added].what, run, HERE};
    n_added++;
}

double tni_doctor_timeout(void) {
    return (double)timeout;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void add_text(char *to, size_t size, const char *format, va_list args) {
    const size_t n = strlen(to);
    vsnprintf(to + n, size - n, format, args);
}

void observe(doctor_result *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_text(r->observed, sizeof r->observed, format, args);
    va_end(args);
}

void require(doctor_result *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_text(r->required, sizeof r->required, format, args);
    va_end(args);
}

/* Behind what is there, unless that has it already: two GPUs may have one fault. */
static void add_once(char *to, size_t size, const char *between, const char *text) {
    const size_t n = strlen(to);
    if (!strstr(to, text)) snprintf(to + n, size - n, "%s%s", n ? between : "", text);
}

void judge(doctor_result *r, check_state state, const char *reason, const char *fix, ...) {
    static const int severity[] = {[PASSED] = 1, [SKIPPED] = 0, [WARNED] = 2, [FAILED] = 3};
    char text[sizeof r->fix] = "";
    if (!r->state || severity[state] > severity[r->state]) r->state = state;
    add_once(r->reason, sizeof r->reason, "; ", reason);
    if (!fix) return;
    va_list args;
    va_start(args, fix);
    vsnprintf(text, sizeof text, fix, args);
    va_end(args);
    add_once(r->fix, sizeof r->fix, "\n", text);
}

void tni_doctor_say(doctor_result *r, const char *state, const char *observed, const char *required, const char *reason,
                    const char *fix) {
    r->state = FAILED;
    for (check_state s = PASSED; s <= SKIPPED; s++) {
        if (strcmp(state, state_names[s]) == 0) r->state = s;
    }
    snprintf(r->observed, sizeof r->observed, "%s", observed);
    snprintf(r->required, sizeof r->required, "%s", required);
    snprintf(r->reason, sizeof r->reason, "%s", reason);
    snprintf(r->fix, sizeof r->fix, "%s", fix);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static const style styles[] = {[PASSED] = GREEN, [WARNED] = YELLOW, [FAILED] = RED, [SKIPPED] = DIM};

static void print_field(const char *name, const char *text) {
    if (!text[0]) return;
    printf("        %s%-*s%s", style_text(DIM), COLUMN - 8, name, style_text(PLAIN));
    print_wrapped(text, COLUMN, COLUMN);
}

/* Commands are not broken into lines: they are there to be copied. */
static void print_fix(const char *text) {
    for (bool first = true; *text; first = false) {
        const int n = (int)strcspn(text, "\n");
        printf("        %s%-*s%s%s%.*s%s\n", style_text(DIM), COLUMN - 8, first ? "fix" : "", style_text(PLAIN),
               style_text(BOLD), n, text, style_text(PLAIN));
        text += n + (text[n] == '\n');
    }
}

static void print_result(const doctor_row *row, const doctor_result *r) {
    printf("%s%s%s  %s%-*s%s", style_text(styles[r->state]), state_names[r->state], style_text(PLAIN), style_text(BOLD),
           COLUMN - 6, row->id, style_text(PLAIN));
    print_wrapped(r->observed[0] ? r->observed : r->reason, COLUMN, COLUMN);
    if (r->state == WARNED || r->state == FAILED) {
        print_field("required", r->required);
        if (r->observed[0]) print_field("because", r->reason);
        print_fix(r->fix);
    }
    fflush(stdout);
}

static void print_nothing(const doctor_row *row, const doctor_result *r) {
    (void)row, (void)r;
}

static int count(const doctor_result *results, int n, check_state state) {
    int found = 0;
    for (int i = 0; i < n; i++) found += results[i].state == state;
    return found;
}

static void print_summary(const doctor_result *results, int n, double seconds) {
    const int failed = count(results, n, FAILED), warned = count(results, n, WARNED);
    printf("\n%s%d passed, %d warning%s, %d failed, %d skipped%s in %.1f s\n", style_text(BOLD),
           count(results, n, PASSED), warned, warned == 1 ? "" : "s", failed, count(results, n, SKIPPED),
           style_text(PLAIN), seconds);
    if (!n_added) printf("`python -m tenon.doctor` adds that Python and its frameworks.\n");
}

static void json_field(tni_text *t, const char *name, const char *text) {
    tni_text_add(t, ", \"%s\": ", name);
    if (text[0]) tni_text_json_string(t, text);
    if (!text[0]) tni_text_add(t, "null");
}

static int print_json(const doctor_row *const *rows, const doctor_result *results, int n, double seconds) {
    tni_text t = {0};
    tni_text_add(&t, "{\n  \"tenon\": \"%s\",\n  \"checks\": [", tn_version());
    for (int i = 0; i < n; i++) {
        const doctor_result *r = &results[i];
        tni_text_add(&t, "%s\n    {\"id\": \"%s\", \"state\": \"%s\"", i ? "," : "", rows[i]->id,
                     state_names[r->state]);
        json_field(&t, "observed", r->observed);
        json_field(&t, "required", r->required);
        json_field(&t, "reason", r->reason);
        json_field(&t, "fix", r->fix);
        tni_text_add(&t, ", \"milliseconds\": %d}", (int)(r->seconds * 1e3));
    }
    tni_text_add(&t,
                 "\n  ],\n  \"passed\": %d,\n  \"warnings\": %d,\n  \"failed\": %d,\n  \"skipped\": %d,\n  "
                 "\"milliseconds\": %d\n}\n",
                 count(results, n, PASSED), count(results, n, WARNED), count(results, n, FAILED),
                 count(results, n, SKIPPED), (int)(seconds * 1e3));
    bool failed = t.failed;
    if (failed) fprintf(stderr, "tenon doctor: out of memory\n");
    if (!failed) fputs(t.data, stdout);
    tn_free(t.data);
    return failed;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static void print_rows(void) {
    for (int i = 0; row_at(i); i++) {
        printf("  %s%-16s%s", style_text(BOLD), row_at(i)->id, style_text(PLAIN));
        print_wrapped(row_at(i)->what, 18, 18);
    }
}

static void print_more(void) {
    heading("checks");
    print_rows();
}

static int unknown_check(const char *id) {
    const char *names[MOST_CHECKS + 1];
    int n = 0;
    for (; n < MOST_CHECKS && row_at(n); n++) names[n] = row_at(n)->id;
    names[n] = NULL;
    const char *near = nearest_name(id, names);
    if (near) return usage_error(&verb_doctor, "there is no check '%s'; did you mean %s?", id, near);
    const char *more = n_added ? "" : "; `python -m tenon.doctor` has more, of Python and its frameworks";
    return usage_error(&verb_doctor, "there is no check '%s'%s", id, more);
}

/* All, or those that are asked for, in the order of the tables. */
static int choose(int count_ids, const char *const *ids, const doctor_row **rows) {
    int n = 0;
    for (int i = 0; n < MOST_CHECKS && row_at(i); i++) {
        bool wanted = count_ids == 0;
        for (int k = 0; k < count_ids; k++) wanted |= strcmp(ids[k], row_at(i)->id) == 0;
        if (wanted) rows[n++] = row_at(i);
    }
    return n;
}

static int run(int count_ids, const char *const *ids) {
    static doctor_result results[MOST_CHECKS];
    const doctor_row *rows[MOST_CHECKS];
    const double begin = bench_now();
    if (list) return print_rows(), 0;
    for (int k = 0; k < count_ids; k++) {
        if (choose(1, ids + k, rows) == 0) return unknown_check(ids[k]);
    }
    const int n = choose(count_ids, ids, rows);
    run_checks(rows, n, (double)timeout, results, json ? print_nothing : print_result);
    const double seconds = bench_now() - begin;
    if (json && print_json(rows, results, n, seconds)) return 1;
    if (!json) print_summary(results, n, seconds);
    fflush(stdout);
    return count(results, n, FAILED) > 0;
}

static const option options[] = {
    {"--json", NULL, "one object, for programs (docs/doctor.md)", FLAG, &json},
    {"--list", NULL, "the checks, and what each looks at", FLAG, &list},
    {"--timeout", "SECONDS", "that a check may take (30)", POSITIVE, &timeout},
    {0},
};

const verb verb_doctor = {
    .name = "doctor",
    .summary = "what of this machine keeps Tenon from working, and the command that mends it",
    .examples = "tenon doctor\tall checks\n"
                "tenon doctor driver gpu nvrtc\tsome of them\n"
                "tenon doctor --json\tthe same for a program\n"
                "python -m tenon.doctor\twith this Python and its frameworks",
    .text =
        "FAIL: something that is wanted does not work; WARN: it works, but slower or other than it seems; SKIP: there "
        "is nothing to look at. The exit status is 0 where nothing failed, 1 otherwise.\n"
        "Checks run in processes of their own: one that crashes or hangs is reported. Nothing is changed, and only "
        "the tests on a GPU make a CUDA context.",
    .options = options,
    .run = run,
    .more = print_more,
};
