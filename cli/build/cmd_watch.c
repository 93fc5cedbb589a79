/* tenon watch: builds and checks again whenever a file is saved. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "build.h"
#include "cli/cli.h"

enum { QUIET_MS = 150 }; /* editors write several files, and some of them twice */

static volatile sig_atomic_t is_over;

static void end_it(int signal) {
    (void)signal;
    is_over = 1;
}

/* A process of its own, since an operator that is loaded stays, and one that is broken may crash. */
static int run_verb(int argc, char **argv) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        status = tni_command(argc, argv);
        fflush(stdout);
        _exit(status);
    }
    if (child < 0) return fprintf(stderr, "tenon watch: no process: %s\n", strerror(errno)), 1;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return 1;
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (!is_over) fprintf(stderr, "tenon watch: it was ended by signal %d\n", WTERMSIG(status));
    return 1;
}

static void build_and_check(const builder *b) {
    char now[16];
    const time_t seconds = time(NULL);
    struct tm parts;
    strftime(now, sizeof now, "%H:%M:%S", localtime_r(&seconds, &parts));
    if (isatty(STDOUT_FILENO)) printf("\033[H\033[2J\033[3J");
    printf("%s%s  %s%s\n", style_text(BOLD), now, b->name, style_text(PLAIN));
    char *build[] = {"tenon", "build", "--arch", "none", "--", (char *)(uintptr_t)b->folder, NULL};
    char *check[] = {"tenon", "--load", (char *)(uintptr_t)b->output, "check", "--only-loaded", "--quick", NULL};
    const bool good = run_verb(6, build) == 0 && run_verb(6, check) == 0;
    if (is_over) return;
    printf("%s%s%s  waiting for changes in %s; Ctrl-C ends it\n", style_text(good ? GREEN : RED),
           good ? "passed" : "failed", style_text(PLAIN), b->folder);
    fflush(stdout);
}

/* Reads what is there; does any of it matter? What is built is written into the same folder. */
static bool read_changes(int watch) {
    char buffer[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t n = read(watch, buffer, sizeof buffer);
    bool matters = false;
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
        const char *dot = event->len ? strrchr(event->name, '.') : NULL;
        matters |= dot && event->name[0] != '.' && (!strcmp(dot, ".c") || !strcmp(dot, ".cu") || !strcmp(dot, ".h"));
        at += (ssize_t)(sizeof *event + event->len);
    }
    return matters;
}

/* true: a source has changed, and for a moment nothing more did. */
static bool wait_for_change(int watch) {
    bool changed = false;
    for (;;) {
        struct pollfd one = {.fd = watch, .events = POLLIN};
        const int ready = poll(&one, 1, changed ? QUIET_MS : -1);
        if (is_over || (ready < 0 && errno != EINTR)) return false;
        if (ready == 0) return true;
        if (ready > 0) changed |= read_changes(watch);
    }
}

static int watch_folder(const builder *b) {
    const int watch = inotify_init1(IN_CLOEXEC);
    if (watch < 0 || inotify_add_watch(watch, b->folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_DELETE) < 0) {
        fprintf(stderr, "tenon watch: %s: %s\n", b->folder, strerror(errno));
        if (watch >= 0) close(watch);
        return 1;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = end_it}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = end_it}, NULL);
    do build_and_check(b);
    while (!is_over && wait_for_change(watch));
    close(watch);
    putchar('\n');
    return 0;
}

static int run(int count, const char *const *rest) {
    if (count > 1) return usage_error(&verb_watch, "takes one folder, not '%s' as well", rest[1]);
    builder b = {.folder = count ? rest[0] : "."};
    const int status = find_sources(&b, NULL) ? watch_folder(&b) : 1;
    free_sources(&b);
    return status;
}

static const option options[] = {{0}};

const verb verb_watch = {
    .name = "watch",
    .summary = "builds a folder with operators and checks them, again whenever a file is saved",
    .examples = "tenon watch my_op\tuntil Ctrl-C\n"
                "tenon watch\tthe folder that you are in",
    .text = "Does `tenon build` and then `tenon check --only-loaded --quick`, in processes of their own.",
    .options = options,
    .run = run,
};
