/* How much of an SM a kernel really fills: NVIDIA's profiler ncu counts the active warps of one call, in a process of
 * its own. What may come between is told in a sentence: there is no ncu, or it may not read the GPU's counters. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_kernel.h"

static const char METRIC[] = "sm__warps_active.avg.pct_of_peak_sustained_active";
enum { SECONDS = 120, MOST_COLUMNS = 64, LATE = 124, NOT_FOUND = 127 }; /* the last two: how `timeout` ends */

/* ---- what it says ------------------------------------------------------------------------------------------------ */

/* Takes a line of CSV apart, in its place: "a","b, c". Returns how many fields there are. */
static int split(char *line, char *fields[static MOST_COLUMNS]) {
    int n = 0;
    for (char *from = line; n < MOST_COLUMNS; from++) {
        char *to = fields[n++] = from;
        bool quoted = false;
        for (; *from && (quoted || *from != ','); from++) {
            if (*from == '"') {
                quoted = !quoted;
            } else {
                *to++ = *from;
            }
        }
        const bool more = *from == ',';
        *to = 0;
        if (!more) break;
    }
    return n;
}

static int column(char *const *fields, int n, const char *title) {
    for (int i = 0; i < n; i++) {
        if (strcmp(fields[i], title) == 0) return i;
    }
    return -1;
}

/* "my_kernel", and "my_kernel(const float *, int)" */
static bool is_of(const char *said, const char *name) {
    const size_t n = strlen(name);
    return strncmp(said, name, n) == 0 && (said[n] == 0 || said[n] == '(' || said[n] == '<');
}

/* What was read so far. */
typedef struct report {
    int kernel, metric, value; /* columns; value < 0: the titles are still to come */
    int found;                 /* numbers */
    bool forbidden;
    char error[160]; /* the first one */
} report;

/* A line of ncu's table: its titles first, then a row for each launch. */
static void read_row(report *r, char *line, kernel_use *uses, int32_t n) {
    char *fields[MOST_COLUMNS];
    const int count = split(line, fields);
    if (r->value < 0) {
        r->kernel = column(fields, count, "Kernel Name");
        r->metric = column(fields, count, "Metric Name");
        r->value = r->kernel < 0 || r->metric < 0 ? -1 : column(fields, count, "Metric Value");
        return;
    }
    if (count <= r->kernel || count <= r->metric || count <= r->value || strcmp(fields[r->metric], METRIC) != 0) return;
    char *rest;
    const double percent = strtod(fields[r->value], &rest);
    for (int32_t i = 0; i < n && rest != fields[r->value] && percent > 0; i++) {
        if (uses[i].measured > 0 || !is_of(fields[r->kernel], uses[i].launch.name)) continue;
        uses[i].measured = percent / 100;
        r->found++;
        return;
    }
}

static void read_line(report *r, char *line, kernel_use *uses, int32_t n) {
    static const char ERROR[] = "==ERROR==";
    line[strcspn(line, "\n")] = 0;
    if (strstr(line, "ERR_NVGPUCTRPERM")) r->forbidden = true;
    if (line[0] == '"') read_row(r, line, uses, n); /* other lines are the program's own, and remarks */
    if (strncmp(line, ERROR, strlen(ERROR)) == 0 && !r->error[0]) {
        const char *said = line + strlen(ERROR);
        snprintf(r->error, sizeof r->error, "%s", said + strspn(said, " "));
    }
}

/* Why there are no numbers. */
static void explain(const report *r, int status, char *why, size_t size) {
    if (r->forbidden) {
        snprintf(why, size,
                 "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM): run it as root, or ask the machine's owner "
                 "for NVreg_RestrictProfilingToAdminUsers=0");
    } else if (r->error[0]) {
        snprintf(why, size, "ncu says: %s", r->error);
    } else if (status == NOT_FOUND) {
        snprintf(why, size, "there is no ncu on the PATH; it comes with the CUDA toolkit, as Nsight Compute");
    } else if (status == LATE) {
        snprintf(why, size, "ncu did not end within %d s", SECONDS);
    } else if (status) {
        snprintf(why, size, "ncu ended with status %d", status);
    } else {
        snprintf(why, size, "ncu saw none of these kernels");
    }
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

void ncu_measure(const char *words, kernel_use *uses, int32_t n, char *why, size_t size) {
    char self[PATH_MAX], names[1024] = "", command[PATH_MAX + 10240], line[4096];
    report r = {.value = -1};
    int32_t launches = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!uses[i].launch.grid) continue; /* not needed for this shape */
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? "|" : "", uses[i].launch.name);
        launches++;
    }
    why[0] = 0;
    if (!launches) {
        snprintf(why, size, "the operator launches its kernels by itself");
        return;
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    snprintf(command, sizeof command,
             "PATH=$PATH:/usr/local/cuda/bin; exec timeout %d ncu --csv --print-kernel-base function --metrics %s "
             "-k 'regex:^(%s)$' -c %d '%s' %s 2>&1",
             SECONDS, METRIC, names, launches, self, words);
    fflush(NULL);
    FILE *child = popen(command, "r");
    while (child && fgets(line, sizeof line, child)) read_line(&r, line, uses, n);
    const int end = child ? pclose(child) : -1;
    if (!r.found) explain(&r, end >= 0 && WIFEXITED(end) ? WEXITSTATUS(end) : 128, why, size);
}
