/* Opening a plugin in a process that may die of it.
 *
 * The child is a fork, so that it has the libraries and the symbols that this process has. Other threads of the process
 * are not in it, and neither is a GPU: it opens the file, reads the table, and leaves by _exit, so that no destructor
 * and no buffer of the parent's is touched. glibc lets a fork use the loader and the heap whatever other threads were
 * at. Where there is no fork to be had, nothing is tried. */
#include "trial.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SECONDS = 30, SAID = 400 };

static const tni_tried *tried;

void tni_set_tried(const tni_tried *with) {
    tried = with;
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

enum verdict { OPENED = 'o', REFUSED = 'r' }; /* refused by the loader: the parent's dlopen says why */

static volatile size_t letters; /* what is read must be read */

/* Reads what the table will read. */
static void walk(const tn_plugin *plugin) {
    for (uint32_t i = 0; plugin && i < plugin->count; i++) {
        const tn_op *op = plugin->ops[i];
        if (op->signature) letters += strlen(op->signature);
        if (op->doc) letters += strlen(op->doc);
        for (const tn_kernel *k = op->kernels; k && k->name; k++) letters += strlen(k->name);
    }
}

static _Noreturn void be_child(const char *local, int answer, int said) {
    const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    const struct rlimit none = {0, 0};
    sigset_t all;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], SIG_DFL); /* no handler of the host */
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setrlimit(RLIMIT_CORE, &none);
    dup2(said, STDOUT_FILENO); /* what constructors print is printed once, by the parent's */
    dup2(said, STDERR_FILENO);
    void *handle = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    if (handle) walk(dlsym(handle, TNI_PLUGIN_SYMBOL));
    const char verdict = handle ? OPENED : REFUSED;
    _exit(write(answer, &verdict, 1) == 1 ? 0 : 1);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

/* The child's answer; 0: it died without one, or does not come back. */
static char await(int answer, bool *late) {
    char verdict = 0;
    struct pollfd one = {.fd = answer, .events = POLLIN};
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const time_t end = t.tv_sec + MOST_SECONDS;
    int ready = 0;
    while (ready <= 0 && t.tv_sec < end) { /* a signal of the host's may come in between */
        ready = poll(&one, 1, 1000);
        clock_gettime(CLOCK_MONOTONIC, &t);
    }
    *late = ready <= 0;
    return ready > 0 && read(answer, &verdict, 1) == 1 ? verdict : 0;
}

/* The last line that it wrote, behind "; it said: "; "" where there is none. */
static void last_words(int said, char text[SAID + 32]) {
    char bytes[SAID + 1];
    const off_t size = lseek(said, 0, SEEK_END);
    const off_t from = size > SAID ? size - SAID : 0;
    ssize_t n = size > 0 ? pread(said, bytes, SAID, from) : 0;
    while (n > 0 && bytes[n - 1] == '\n') n--;
    bytes[n > 0 ? n : 0] = 0;
    const char *line = strrchr(bytes, '\n');
    text[0] = 0;
    if (bytes[0]) snprintf(text, SAID + 32, "; it said: %s", line ? line + 1 : bytes);
}

static tn_status fail_death(const char *path, int status, bool late, const char *words) {
    if (late) {
        return tn_fail(TN_BAD_PLUGIN,
                       "%s: opening it does not come back (stopped after %d seconds)%s; it is not loaded", path,
                       MOST_SECONDS, words);
    }
    if (WIFEXITED(status)) {
        return tn_fail(TN_BAD_PLUGIN,
                       "%s: its constructor ended a trial process with exit(%d)%s; it is not loaded into this one",
                       path, WEXITSTATUS(status), words);
    }
    return tn_fail(TN_BAD_PLUGIN,
                   "%s: opening it crashed a trial process (%s)%s; it is not loaded into this one. To see where: gdb "
                   "-batch -ex run -ex bt --args python3 -c \"import ctypes; ctypes.CDLL('%s')\"",
                   path, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it died", words, path);
}

static tn_status try_in_child(const char *local, const char *path, int ends[2], int said) {
    bool late = false;
    char words[SAID + 32];
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        be_child(local, ends[1], said);
    }
    close(ends[1]);
    ends[1] = -1;
    if (child < 0) return TN_OK;
    const char verdict = await(ends[0], &late);
    if (late) kill(child, SIGKILL);
    int status = 1 << 8 | 0x7f; /* neither exited nor killed: whoever reaps the host's children was faster */
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (verdict) return TN_OK;
    last_words(said, words);
    return fail_death(path, status, late, words);
}

tn_status tni_trial(const char *local, const char *path, const struct stat *info) {
    char known[256];
    int ends[2];
    snprintf(known, sizeof known, "%s %llu %llu %lld %lld.%09ld", TENON_VERSION, (unsigned long long)info->st_dev,
             (unsigned long long)info->st_ino, (long long)info->st_size, (long long)info->st_mtim.tv_sec,
             info->st_mtim.tv_nsec);
    if (tried && tried->is_known(known)) return TN_OK;
    const int said = memfd_create("tenon", MFD_CLOEXEC);
    if (said < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        if (said >= 0) close(said);
        return TN_OK;
    }
    const tn_status status = try_in_child(local, path, ends, said);
    close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    close(said);
    if (status == TN_OK && tried) tried->remember(known);
    return status;
}
