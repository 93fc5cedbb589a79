/* How checks are run: in processes of their own, so that one that crashes or hangs is a result like any other. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "doctor.h"

/* ---- reading with an end ----------------------------------------------------------------------------------------- */

/* Fills `to`; fewer bytes at the end of the file, or when the time is over (*late). */
static size_t read_until(int file, void *to, size_t bytes, double deadline, bool *late) {
    size_t n = 0;
    *late = false;
    while (n < bytes) {
        const double left = deadline - bench_now();
        struct pollfd one = {file, POLLIN, 0};
        const int ready = left > 0 ? poll(&one, 1, (int)(left * 1e3) + 1) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) *late = true;
        if (ready <= 0) break;
        const ssize_t some = read(file, (char *)to + n, bytes - n);
        if (some < 0 && errno == EINTR) continue;
        if (some <= 0) break;
        n += (size_t)some;
    }
    return n;
}

static void take_end(int status, program_end *end) {
    end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void describe_end(const program_end *end, double seconds, char text[static 128]) {
    if (end->late) {
        snprintf(text, 128, "did not end within %g s", seconds);
    } else if (end->signal) {
        snprintf(text, 128, "was ended by signal %d (%s)", end->signal, strsignal(end->signal));
    } else {
        snprintf(text, 128, "ended with status %d", end->status);
    }
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void run_one(const doctor_row *row, doctor_result *r) {
    const double begin = bench_now();
    *r = (doctor_result){0};
    row->run(r);
    if (!r->state) r->state = PASSED;
    r->seconds = bench_now() - begin;
}

/* Rows from the first on that share its process. */
static int count_together(const doctor_row *const *rows, int n) {
    int together = 1;
    if (rows[0]->where == ALONE) return 1;
    while (together < n && rows[together]->where == TOGETHER) together++;
    return together;
}

/* In the child: results go into the pipe. What libraries print goes nowhere. */
static _Noreturn void be_child(const doctor_row *const *rows, int n, int to) {
    static doctor_result r;
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int file = 0; file < 3 && nowhere >= 0; file++) dup2(nowhere, file);
    for (int i = 0; i < n; i++) {
        run_one(rows[i], &r);
        const char *at = (const char *)&r;
        for (size_t done = 0; done < sizeof r;) {
            const ssize_t some = write(to, at + done, sizeof r - done);
            if (some <= 0) _exit(1);
            done += (size_t)some;
        }
    }
    _exit(0);
}

static void not_answered(const doctor_row *row, doctor_result *r, const program_end *end, double seconds) {
    char text[128];
    describe_end(end, seconds, text);
    *r = (doctor_result){.seconds = end->late ? seconds : 0};
    observe(r, "the check %s", text);
    require(r, "an answer");
    if (end->late) {
        judge(r, FAILED, "what it looks at hangs, or this machine is busy", "tenon doctor --timeout %.0f", 4 * seconds);
    } else {
        judge(r, FAILED, "what it looks at ends programs that use it",
              "gdb -batch -ex 'set follow-fork-mode child' -ex run -ex bt --args tenon doctor %s   # shows where",
              row->id);
    }
}

/* A process for the first rows. Returns how many were answered for: at least one. */
static int run_in_child(const doctor_row *const *rows, int n, double seconds, doctor_result *results,
                        void (*done)(const doctor_row *, const doctor_result *)) {
    const int together = count_together(rows, n);
    int ends[2], answered = 0, status = 0;
    bool late = false;
    program_end end = {0};
    fflush(stdout);
    const pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) {
        close(ends[0]);
        be_child(rows, together, ends[1]);
    }
    if (child < 0) {
        judge(results, FAILED, "no process could be started", NULL);
        done(rows[0], results);
        return 1;
    }
    setpgid(child, child); /* whoever is first */
    close(ends[1]);
    for (; answered < together; answered++) {
        doctor_result *r = &results[answered];
        if (read_until(ends[0], r, sizeof *r, bench_now() + seconds, &late) < sizeof *r) break;
        done(rows[answered], r);
    }
    if (late) kill(-child, SIGKILL);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (answered == together) return together;
    take_end(status, &end);
    end.late = late;
    not_answered(rows[answered], &results[answered], &end, seconds);
    done(rows[answered], &results[answered]);
    return answered + 1;
}

void run_checks(const doctor_row *const *rows, int n, double seconds, doctor_result *results,
                void (*done)(const doctor_row *row, const doctor_result *r)) {
    for (int i = 0; i < n;) {
        if (rows[i]->where == HERE) {
            run_one(rows[i], &results[i]);
            done(rows[i], &results[i]);
            i++;
        } else {
            i += run_in_child(rows + i, n - i, seconds, results + i, done);
        }
    }
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

bool find_program(const char *name, char *path, size_t size) {
    const char *folders = getenv("PATH");
    if (strchr(name, '/')) folders = "";
    for (const char *from = folders ? folders : "/usr/bin:/bin"; from; from = strchr(from, ':')) {
        from += *from == ':';
        const int length = (int)strcspn(from, ":");
        struct stat about;
        const int n = snprintf(path, size, "%.*s%s%s", length, from, length ? "/" : "", name);
        bool fits = n > 0 && (size_t)n < size;
        if (fits && fstatat(AT_FDCWD, path, &about, 0) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

program_end run_program(char *const *words, double seconds) {
    extern char **environ;
    static program_end end;
    posix_spawn_file_actions_t files;
    int ends[2], status = 0;
    pid_t pid;
    char path[4096], rest[4096];
    end = (program_end){0};
    if (!find_program(words[0], path, sizeof path) || pipe2(ends, O_CLOEXEC) != 0) return end;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_adddup2(&files, ends[1], 2);
    end.found = posix_spawn(&pid, path, &files, NULL, words, environ) == 0;
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    if (end.found) {
        const double deadline = bench_now() + seconds;
        size_t n = read_until(ends[0], end.output, sizeof end.output - 1, deadline, &end.late);
        end.output[n] = 0;
        while (n && !end.late) n = read_until(ends[0], rest, sizeof rest, deadline, &end.late);
        if (end.late) kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        take_end(status, &end);
    }
    close(ends[0]);
    return end;
}

const char *last_line(char *text) {
    for (size_t n = strlen(text); n && (text[n - 1] == '\n' || text[n - 1] == ' '); n--) text[n - 1] = 0;
    const char *end = strrchr(text, '\n');
    return end ? end + 1 : text;
}
