/* How much of an SM a kernel really fills: NVIDIA's profiler ncu counts the active warps of one call, in a process of
 * its own. What may come between is told in a sentence: there is no ncu, or it may not read the GPU's counters. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_kernel.h"
#include "cli/cli.h"
#include "cli/doctor/doctor.h"

static const char METRIC[] = "sm__warps_active.avg.pct_of_peak_sustained_active";
enum { SECONDS = 120, MOST_COLUMNS = 64 };

static bool find_ncu(char path[static PATH_MAX]) {
    return find_program("ncu", path, PATH_MAX) || find_program("/usr/local/cuda/bin/ncu", path, PATH_MAX);
}

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

/* Puts the numbers of ncu's table into uses; returns how many there are. Each launch has a row. */
static int read_table(char *output, kernel_use *uses, int32_t n) {
    char *fields[MOST_COLUMNS];
    int kernel = -1, metric = -1, value = -1, found = 0;
    for (char *line = output, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = 0;
        if (*line != '"') continue; /* what the program itself prints, and ==PROF== */
        const int count = split(line, fields);
        if (value < 0) {
            kernel = column(fields, count, "Kernel Name");
            metric = column(fields, count, "Metric Name");
            value = column(fields, count, "Metric Value");
            if (kernel < 0 || metric < 0) value = -1;
            continue;
        }
        if (count <= kernel || count <= metric || count <= value || strcmp(fields[metric], METRIC) != 0) continue;
        char *rest;
        const double percent = strtod(fields[value], &rest);
        for (int32_t i = 0; i < n && rest != fields[value] && percent > 0; i++) {
            if (uses[i].measured > 0 || !is_of(fields[kernel], uses[i].launch.name)) continue;
            uses[i].measured = percent / 100;
            found++;
            break;
        }
    }
    return found;
}

/* Why there are no numbers. */
static void explain(program_end *end, char *why, size_t size) {
    static const char ERROR[] = "==ERROR==";
    const char *error = strstr(end->output, ERROR);
    char text[128];
    if (strstr(end->output, "ERR_NVGPUCTRPERM")) {
        snprintf(why, size,
                 "ncu may not read the GPU's counters (ERR_NVGPUCTRPERM): run it as root, or ask the machine's owner "
                 "for NVreg_RestrictProfilingToAdminUsers=0");
    } else if (error) {
        error += strlen(ERROR);
        error += strspn(error, " ");
        snprintf(why, size, "ncu says: %.*s", (int)strcspn(error, "\n"), error);
    } else if (end->late || end->signal || end->status) {
        describe_end(end, SECONDS, text);
        snprintf(why, size, "ncu %s", text);
    } else {
        snprintf(why, size, "ncu saw none of these kernels");
    }
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

void ncu_measure(const char *words, kernel_use *uses, int32_t n, char *why, size_t size) {
    char ncu[PATH_MAX], self[PATH_MAX], names[1024] = "", command[2 * PATH_MAX + 8192];
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
    if (!find_ncu(ncu)) {
        snprintf(why, size, "there is no ncu on the PATH; it comes with the CUDA toolkit, as Nsight Compute");
        return;
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    const int fits = snprintf(command, sizeof command,
                              "exec '%s' --csv --print-kernel-base function --metrics %s -k 'regex:^(%s)$' -c %d '%s' "
                              "%s",
                              ncu, METRIC, names, launches, self, words);
    if (fits < 0 || (size_t)fits >= sizeof command) {
        snprintf(why, size, "the command is too long");
        return;
    }
    program_end end = run_program((char *[]){"sh", "-c", command, NULL}, SECONDS);
    char output[sizeof end.output];
    memcpy(output, end.output, sizeof output); /* which reading the table takes apart */
    if (!read_table(output, uses, n)) explain(&end, why, size);
}
