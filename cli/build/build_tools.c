/* Compilers: whether they are there, and running them. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "build.h"
#include "cli/doctor/doctor.h"

extern char **environ;

int split_words(char *text, const char **words, int most) {
    int n = 0;
    for (char *rest = text, *word; n < most && (word = strtok_r(rest, " \t\n", &rest));) words[n++] = word;
    return n;
}

int run_tool(const char *const *words, bool show) {
    pid_t child;
    int status = 0;
    for (int i = 0; show && words[i]; i++) printf("%s%s", i ? " " : "  ", words[i]);
    if (show) putchar('\n');
    fflush(stdout);
    const int error = posix_spawnp(&child, words[0], NULL, NULL, (char *const *)(uintptr_t)words, environ);
    if (error) {
        fprintf(stderr, "tenon build: %s: %s\n", words[0], strerror(error));
        return 127;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    fprintf(stderr, "tenon build: %s was ended by signal %d\n", words[0], WTERMSIG(status));
    return 1;
}

/* The doctor knows how to look at it, and how this system installs it. */
bool check_compiler(char *about, size_t size) {
    doctor_result r = {0};
    for (const doctor_row *row = compiler_checks; row->id; row++) {
        if (strcmp(row->id, "compiler") == 0) row->run(&r);
    }
    snprintf(about, size, "%s", r.observed);
    if (r.state == NO_STATE || r.state == PASSED) return true;
    fprintf(stderr, "tenon build: there is no C compiler to use: %s\n  %s\n", r.observed, r.fix);
    return false;
}
