/* What `tenon check` says, as text or as JSON. Lines go out one by one and JSON piece by piece, each as soon as it is
 * known: whoever runs the cases may not live to say the next one. */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "core/host/text.h"
#include "core/table/table.h"

enum { MOST_SHOWN = 10 }; /* failures of an operator, as text */

double check_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clear_progress(void) {
    if (progress_wanted()) fprintf(stderr, "\r\033[K");
}

void check_progress(const checker *c) {
    static double last;
    if (!progress_wanted() || check_now() - last < 0.05) return;
    last = check_now();
    fprintf(stderr, "\r\033[K[%d/%d] %s %s %s %s  %lld passed, %lld failed", c->next + 1, c->n_operators,
            c->contract->name, tn_type_name(c->T), c->kernel ? c->kernel : "", c->row->name, (long long)c->passed,
            (long long)c->failed);
}

void check_command(const checker *c, char *text, size_t size) {
    bool random = c->case_seed != 0;
    if (c->options.again) {
        snprintf(text, size, "%s", c->options.again);
        return;
    }
    size_t n = (size_t)snprintf(text, size, "tenon check %s --dtype %s", c->contract->name, tn_type_name(c->T));
    if (c->options.device) n += (size_t)snprintf(text + n, size - n, " --device %s", c->options.device);
    if (c->kernel) n += (size_t)snprintf(text + n, size - n, " --kernel %s", c->kernel);
    n += (size_t)snprintf(text + n, size - n, " --case %s", c->row->name);
    if (random) {
        n += (size_t)snprintf(text + n, size - n, " --cases 1");
    } else {
        n += (size_t)snprintf(text + n, size - n, " --sample %d", c->sample_index);
    }
    n += (size_t)snprintf(text + n, size - n, " --seed %llu",
                          (unsigned long long)(random ? c->case_seed : c->options.seed));
    if (c->options.has_limit) n += (size_t)snprintf(text + n, size - n, " --limit %lld", (long long)c->options.limit);
    snprintf(text + n, size - n, "%s%s", c->options.quick ? " --quick" : "", c->options.loads);
}

static void json_text(const char *before, const char *value) {
    tni_text text = {0};
    tni_text_json_string(&text, value ? value : "");
    printf("%s%s", before, value && !text.failed ? text.data : "null");
    tn_free(text.data);
}

/* One element of an operator's "cases". */
static void json_case(checker *c, const char *outcome, const char *message, const char *why, double seconds) {
    char command[1024];
    printf(c->said++ ? ",\n    " : "\n    ");
    json_text("{\"outcome\": ", outcome);
    if (c->row) {
        check_command(c, command, sizeof command);
        json_text(", \"case\": ", c->row->name);
        json_text(", \"dtype\": ", tn_type_name(c->T));
        json_text(", \"kernel\": ", c->kernel);
        printf(", \"sample\": %d", c->sample_index);
        json_text(", \"args\": ", c->sample->args);
        json_text(", \"command\": ", command);
    }
    if (message) json_text(", \"message\": ", message);
    if (why && *why) json_text(", \"why\": ", why);
    if (seconds >= 0) printf(", \"seconds\": %.3f", seconds);
    putchar('}');
    fflush(stdout);
}

static void print_place(const checker *c, char *text, size_t size) {
    snprintf(text, size, "%s %s %s %s, sample %d (%s)", c->contract->name, tn_type_name(c->T),
             c->kernel ? c->kernel : "any kernel", c->row->name, c->sample_index, c->sample->args);
}

void check_fail(checker *c, const char *format, ...) {
    if (c->broken) return;
    c->broken = true;
    char text[1024], why[sizeof c->why], found[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    clear_progress();
    if (c->options.json) {
        check_explain(c, text, why, sizeof why);
        check_sanitize(c, found, sizeof found);
        const size_t n = strlen(why), left = sizeof why - n;
        if (*found && left > 2) snprintf(why + n, left, "%s%.*s", n ? " " : "", (int)left - 2, found);
        json_case(c, "fail", text, why, -1);
        return;
    }
    if (++c->shown > MOST_SHOWN) return;
    check_explain(c, text, why, sizeof why);
    if (c->row) {
        char place[512], command[1024];
        print_place(c, place, sizeof place);
        check_command(c, command, sizeof command);
        printf("%sFAIL%s %s: %s\n     %s\n", style_text(RED), style_text(PLAIN), place, text, command);
    } else {
        printf("%sFAIL%s %s: %s\n", style_text(RED), style_text(PLAIN), c->contract->name, text);
    }
    if (*why && strcmp(why, c->why) != 0) { /* once for failures of a kind that follow each other */
        memcpy(c->why, why, sizeof why);
        printf("     %sWhy:%s ", style_text(BOLD), style_text(PLAIN));
        print_wrapped(why, 10, 10);
    }
    fflush(stdout);
    check_sanitize(c, found, sizeof found);
    if (*found) {
        printf("          ");
        print_wrapped(found, 10, 10);
    }
    fflush(stdout);
}

void check_skip(checker *c, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    c->skipping = true;
    clear_progress();
    if (c->options.json) {
        json_case(c, "skip", text, NULL, -1);
    } else {
        printf("%sskip%s %s %s %s %s: %s\n", style_text(YELLOW), style_text(PLAIN), c->contract->name,
               tn_type_name(c->T), c->kernel ? c->kernel : "any kernel", c->row->name, text);
        fflush(stdout);
    }
}

void check_note(checker *c, const char *format, ...) {
    size_t n = strlen(c->notes);
    va_list list;
    va_start(list, format);
    if (n + 2 < sizeof c->notes) {
        if (n) c->notes[n++] = '\n';
        vsnprintf(c->notes + n, sizeof c->notes - n, format, list);
    }
    va_end(list);
}

void check_verbose(checker *c, double seconds) {
    if (!c->options.verbose) return;
    clear_progress();
    const char *outcome = c->broken ? "FAIL" : c->skipping ? "skip" : "ok  ";
    if (c->options.json) {
        if (!c->broken && !c->skipping) json_case(c, "pass", NULL, NULL, seconds);
        return;
    }
    char place[512];
    print_place(c, place, sizeof place);
    printf("%s %s  %.0f ms\n", outcome, place, 1e3 * seconds);
    fflush(stdout);
}

void check_say_begin(checker *c) {
    if (!c->options.json) return;
    printf(c->listed++ ? ",\n  " : "\n  ");
    json_text("{\"name\": ", c->contract->name);
    printf(", \"cases\": [");
    fflush(stdout);
}

/* Notes, one on a line, behind `before` each. */
static void print_notes(const checker *c, const char *before, const char *between, bool json) {
    for (const char *p = c->notes; *p;) {
        char line[sizeof c->notes];
        const size_t n = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, p);
        if (json) {
            json_text(p == c->notes ? "" : between, line);
        } else {
            printf("%s%s%s%s\n", before, style_text(YELLOW), line, style_text(PLAIN));
        }
        p += n + (p[n] == '\n');
    }
}

void check_say_end(checker *c, const char *unchecked) {
    const int64_t failed = c->failed - c->before.failed, passed = c->passed - c->before.passed;
    const double seconds = check_now() - c->before.began;
    const char *name = c->contract->name;
    clear_progress();
    if (c->options.json) {
        printf("], \"notes\": [");
        if (unchecked) json_text("", unchecked);
        print_notes(c, "", ", ", true);
        printf("], \"passed\": %lld, \"failed\": %lld, \"skipped\": %lld, \"worst\": %.3f, \"seconds\": %.3f}",
               (long long)passed, (long long)failed, (long long)(c->skipped - c->before.skipped), c->worst, seconds);
    } else if (unchecked) {
        printf("%s%-24s%s %s%s%s\n", style_text(BOLD), name, style_text(PLAIN), style_text(YELLOW), unchecked,
               style_text(PLAIN));
    } else {
        if (c->shown > MOST_SHOWN) printf("     … and %lld more like these\n", (long long)(c->shown - MOST_SHOWN));
        printf("%s%-24s%s %6lld passed", style_text(BOLD), name, style_text(PLAIN), (long long)passed);
        if (failed) printf(", %s%lld failed%s", style_text(RED), (long long)failed, style_text(PLAIN));
        printf("%s   worst error %.2f of its bound, %.1f s%s\n", style_text(DIM), c->worst, seconds, style_text(PLAIN));
        print_notes(c, "     ", "", false);
    }
    if (fflush(stdout) != 0) c->stop = true; /* nobody reads it */
}

void check_say_all(const checker *c, bool begin) {
    if (c->options.json && begin) {
        json_text("{\"command\": ", command_text());
        json_text(", \"version\": ", tn_version());
        json_text(", \"device\": ", c->options.device ? c->options.device : "cpu");
        printf(", \"quick\": %s, \"seed\": %llu, \"limit_s\": %lld, \"operators\": [",
               c->options.quick ? "true" : "false", (unsigned long long)c->options.seed, (long long)c->options.limit);
    } else if (c->options.json) {
        printf("\n], \"passed\": %lld, \"failed\": %lld, \"skipped\": %lld}\n", (long long)c->passed,
               (long long)c->failed, (long long)c->skipped);
    } else if (!begin) {
        if (c->passed + c->failed + c->skipped == 0) {
            printf("nothing to check: no operator has such a type, kernel, case or sample\n");
        }
        printf("%lld passed, %s%lld failed%s", (long long)c->passed, c->failed ? style_text(RED) : "",
               (long long)c->failed, c->failed ? style_text(PLAIN) : "");
        if (c->skipped) printf(", %lld skipped", (long long)c->skipped);
        putchar('\n');
    }
    fflush(stdout);
}
