/* compute-sanitizer, where it is installed: the case that failed runs again under it, in a process of its own, and its
 * first finding is told. There, each tensor has memory of its own, so that the tool sees what lies outside. */
#include "check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static const char CHILD[] = "TENON_CHECK_CHILD", HERE[] = "sanitize";
static const char *const tools[] = {"memcheck", "racecheck", "initcheck", "synccheck"};
enum { TOOLS = sizeof tools / sizeof *tools };

bool check_is_sanitized(void) {
    const char *set = getenv(CHILD);
    return set && strcmp(set, HERE) == 0;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static bool is_program(char *path, size_t size, const char *folder, size_t length) {
    const int n = snprintf(path, size, "%.*s/compute-sanitizer", (int)length, folder);
    return n > 0 && (size_t)n < size && access(path, X_OK) == 0;
}

static bool find_program(char *path, size_t size) {
    static const char *const elsewhere[] = {"/usr/local/cuda/bin", "/opt/cuda/bin",
                                            "/usr/local/cuda/extras/compute-sanitizer"};
    for (const char *at = getenv("PATH"); at && *at; at += strcspn(at, ":"), at += *at == ':') {
        if (is_program(path, size, at, strcspn(at, ":"))) return true;
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        if (is_program(path, size, elsewhere[i], strlen(elsewhere[i]))) return true;
    }
    return false;
}

/* ---- what it says ------------------------------------------------------------------------------------------------ */

/* Lines of it begin with this. */
static const char MARK[] = "========= ";

static bool is_finding(const char *line) {
    static const char *const words[] = {"Invalid ",         "Misaligned ",   "Race reported", "Barrier error",
                                        "Uninitialized __", "out of bounds", "hazard"};
    if (strstr(line, "SUMMARY")) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(line, words[i])) return true;
    }
    return false;
}

/* Reads the first finding: its line, and those that belong to it, which are set in. */
static bool read_finding(FILE *from, char *text, size_t size) {
    char line[2048];
    bool found = false, ended = false;
    text[0] = 0;
    while (fgets(line, sizeof line, from)) { /* to the end: it is not to write into a closed pipe */
        line[strcspn(line, "\n")] = 0;
        const char *said = strncmp(line, MARK, strlen(MARK)) == 0 ? line + strlen(MARK) : NULL;
        if (!said || ended) continue;
        const bool set_in = *said == ' ';
        said += strspn(said, " ");
        if (!found && !set_in && is_finding(said)) {
            found = true;
            snprintf(text, size, "%s", said);
        } else if (found) {
            const size_t n = strlen(text);
            ended = !set_in || !*said || strstr(said, "backtrace") != NULL;
            if (!ended) snprintf(text + n, size - n, " %s", said);
        }
    }
    return found;
}

/* Runs a command of `tenon` under a tool. False: it finds nothing, or does not start. */
static bool run_tool(const char *program, const char *tool, const char *again, char *text, size_t size) {
    char self[PATH_MAX], command[PATH_MAX + 4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    snprintf(command, sizeof command,
             "%s=%s '%s' --tool %s --report-api-errors no --print-limit 1 '%s'%s --in-process 2>&1", CHILD, HERE,
             program, tool, self, again + strlen("tenon"));
    fflush(NULL);
    FILE *child = n > 0 ? popen(command, "r") : NULL;
    const bool found = child && read_finding(child, text, size);
    if (child) pclose(child);
    return found;
}

/* A case that a tool can run: it needs a call that can be made again, and not on purpose broken. */
static bool can_sanitize(const checker *c) {
    return c->gpu && !c->options.again && !getenv(CHILD) && c->row &&
           !is_named("sticky,idle,fork,leaks,huge", c->row->name);
}

void check_sanitize(checker *c, char *text, size_t size) {
    char program[PATH_MAX], again[2048], said[1024];
    text[0] = 0;
    if (!can_sanitize(c) || c->sanitized || !find_program(program, sizeof program)) return;
    c->sanitized = true; /* a run takes seconds: one for each operator */
    check_command(c, again, sizeof again);
    for (int i = 0; i < 2 && !text[0]; i++) { /* memcheck, racecheck */
        if (!run_tool(program, tools[i], again, said, sizeof said)) continue;
        snprintf(text, size, "compute-sanitizer (%s): %s", tools[i], said);
    }
}

/* ---- the row of --sanitize --------------------------------------------------------------------------------------- */

static bool is_wanted(const checker *c) {
    return c->gpu && c->options.sanitize && !getenv(CHILD);
}

static void run_sanitize(checker *c) {
    char program[PATH_MAX], again[2048], said[1024];
    if (!find_program(program, sizeof program)) {
        check_skip(c, "compute-sanitizer is not here; it comes with the CUDA toolkit");
        return;
    }
    snprintf(again, sizeof again, "tenon check %s --alone --device %s%s%s --case values --quick%s", c->contract->name,
             c->options.device, check_dtypes ? " --dtype " : "", check_dtypes ? check_dtypes : "", c->options.loads);
    for (int i = 0; i < TOOLS && !c->broken; i++) {
        if (run_tool(program, tools[i], again, said, sizeof said)) {
            check_fail(c, "compute-sanitizer (%s): %s", tools[i], said);
        }
    }
}

const check_row sanitize_rows[] = {
    {"sanitize", "compute-sanitizer over `values`: memcheck, racecheck, initcheck, synccheck (cuda; --sanitize)",
     ONCE | PER_OP, 0, is_wanted, run_sanitize,
     "The tool names the kernel and, in a build with line information (nvcc -lineinfo, `tenon build --debug`), the "
     "line. "
     "docs/debugging.md shows how to go on from there."},
    {0},
};
