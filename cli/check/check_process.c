/* The processes that cases run in. The one that was started runs none: it forks a child, which goes through the
 * operators and leaves word of where it is in memory that both see. Should the child die, by a crash, an exit or since
 * a case does not come back, its case has failed, and another child goes on behind it.
 *
 * On the CPU each operator has a child of its own, so that what one does to the memory of its process is not the
 * trouble of the next. A CUDA context takes longer to make than most operators take to check, so on a GPU one child is
 * there for all; the parent leaves CUDA alone, which a child could not use after it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "cli/cli.h"
#include "core/table/table.h"

enum { MOST_HANGS = 3 }; /* of an operator: then it is given up */

checker *checker_new(check_options options) {
    void *memory = mmap(NULL, sizeof(checker), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "tenon check: the system gives no shared memory\n");
        return NULL;
    }
    checker *c = memory;
    c->options = options;
    c->made_context = -1;
    /* With a sanitizer, not the same multiplications and additions become one as in the loops that another compiler
     * makes of a formula: calls that are compared must all be interpreted, or all compiled. */
    if (CHECK_ASAN || CHECK_TSAN) setenv("TENON_JIT", "0", 0);
    return c;
}

void checker_free(checker *c) {
    munmap(c, sizeof *c);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The GPU asked for, and a mirror on it. */
static bool open_device(checker *c, mirror *m, const char *device) {
    tn_device at;
    c->gpu = NULL;
    if (read_device(device, &at) != TN_OK) {
        c->status = usage_error(&verb_check, "%s", tn_last_error());
    } else if (at.kind == TN_CUDA) {
        snprintf(c->device, sizeof c->device, "cuda:%d", at.index);
        c->options.device = c->device;
        if (c->made_context < 0) check_idle(c, at.index);
        if (mirror_open(m, at.index) == TN_OK) {
            m->apart = check_is_sanitized();
            c->gpu = m;
        } else {
            fprintf(stderr, "tenon check: %s\n", tn_last_error());
            c->status = 1;
        }
    } else {
        c->options.device = NULL;
    }
    c->stop = c->status != 0;
    c->opened = !c->stop;
    return c->opened;
}

/* From the operator that is next, as far as this process goes. */
static void run_operators(checker *c, const tn_function *const *ops, int n, const char *device) {
    static mirror gpu;
    if (!open_device(c, &gpu, device)) return;
    /* The leak checker of AddressSanitizer looks through the whole process at its end: that is done once. */
    const bool one_only = !c->options.in_process && !c->gpu && !CHECK_ASAN;
    c->dead = false;
    do {
        check_operator(c, ops[c->next]);
        if (!c->dead) c->next++;
    } while (c->next < n && !c->dead && !c->stop && !one_only);
    if (!c->dead) mirror_close(&gpu);
}

/* ---- children ---------------------------------------------------------------------------------------------------- */

static void be_child(checker *c, const tn_function *const *ops, int n, const char *device, const sigset_t *mask) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* an interrupted check leaves nothing running */
    sigprocmask(SIG_SETMASK, mask, NULL);
    run_operators(c, ops, n, device);
    c->ended = true;
    exit(0);
}

/* Waits for the child; kills it when its case takes too long. The status of waitpid. */
static int await(checker *c, pid_t child, const sigset_t *awaited, bool *late) {
    const double limit = (double)c->options.limit;
    int status = 0;
    *late = false;
    while (waitpid(child, &status, *late ? 0 : WNOHANG) != child) {
        const double left = c->running ? c->began + limit - check_now() : limit;
        *late = c->running && left <= 0;
        if (*late) {
            kill(child, SIGKILL);
            continue;
        }
        const double wait = left > 0 ? left : limit;
        sigtimedwait(awaited, NULL, &(struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)});
    }
    return status;
}

static void say_death(checker *c, int status, bool late) {
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (late) {
        check_fail(c, "does not come back: stopped after %lld seconds (--limit)", (long long)c->options.limit);
    } else if (c->cause[0]) {
        check_fail(c, "%s", c->cause);
    } else if (number == SIGKILL) {
        check_fail(c, "was killed by the system, perhaps because memory ran out");
    } else if (number) {
        check_fail(c, "crashed (%s)", strsignal(number));
    } else {
        check_fail(c, "ended the process with exit(%d); a kernel returns a tn_status", WEXITSTATUS(status));
    }
    c->failed++; /* once, also where it had failed before it died */
}

/* The child is gone: what came of it, and where the next one begins. */
static void bury(checker *c, const tn_function *const *ops, int status, bool late) {
    const bool in_case = c->running;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) { /* nobody reads what is said */
        c->stop = true;
        return;
    }
    if (c->ended || !c->opened) {
        fprintf(stderr, "tenon check: the process %s (%s %d)\n",
                c->ended ? "did not end well behind its last case" : "died before the first case",
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        c->failed++;
        c->stop |= !c->opened;
        return;
    }
    c->op = ops[c->next];
    c->contract = c->op->contract;
    c->tested.call = NULL; /* it was the child's */
    if (!in_case) {
        c->broken = false;
        c->row = NULL;
    }
    say_death(c, status, late);
    c->running = c->any_infinity = false;
    c->case_seed = 0;
    c->cause[0] = 0;
    c->resume = in_case ? c->serial : INT64_MAX; /* outside of a case, there is no knowing what it would do again */
    if (late && ++c->hangs == MOST_HANGS) {
        check_note(c, "given up: %d cases did not come back", MOST_HANGS);
        c->resume = INT64_MAX;
    }
}

static void fork_child(checker *c, const tn_function *const *ops, int n, const char *device) {
    sigset_t awaited, before;
    bool late;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    fflush(NULL);
    c->ended = c->running = c->opened = false;
    const pid_t child = fork();
    if (child == 0) be_child(c, ops, n, device, &before);
    if (child < 0) {
        fprintf(stderr, "tenon check: the system refuses another process\n");
        c->stop = true;
        c->status = 1;
    } else {
        const int status = await(c, child, &awaited, &late);
        if (!c->ended || c->running || status != 0) bury(c, ops, status, late);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void check_operators(checker *c, const tn_function *const *ops, int n, const char *device) {
    c->n_operators = n;
    if (c->options.in_process) {
        if (n) run_operators(c, ops, n, device);
        if (c->dead) printf("%sstopped%s: %s\n", style_text(RED), style_text(PLAIN), tn_last_error());
        return;
    }
    while (c->next < n && !c->stop) fork_child(c, ops, n, device);
}
