/* Checks of the library itself, of the machine's CPU, of the cache and of the environment. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "core/host/threads.h"
#include "core/table/sha256.h"
#include "doctor.h"
#include "fuse/cache/cache.h"

/* ---- what checks share ------------------------------------------------------------------------------------------- */

bool machine_path(char *path, size_t size, const char *name) {
    const char *root = getenv("TENON_DOCTOR_ROOT");
    const int n = snprintf(path, size, "%s%s", root ? root : "", name);
    return n > 0 && (size_t)n < size;
}

bool read_line(const char *name, char *text, size_t size) {
    char path[PATH_MAX];
    FILE *file = machine_path(path, sizeof path, name) ? fopen(path, "re") : NULL;
    const bool done = file && fgets(text, (int)size, file);
    if (done) text[strcspn(text, "\n")] = 0;
    if (file) fclose(file);
    return done;
}

const char *install_command(const package_names *names) {
    static char text[512];
    const struct {
        const char *program, *verb, *packages;
    } managers[] = {{"/usr/bin/apt-get", "apt-get install", names->apt},
                    {"/usr/bin/dnf", "dnf install", names->dnf},
                    {"/usr/bin/zypper", "zypper install", names->zypper},
                    {"/usr/bin/pacman", "pacman -S", names->pacman}};
    for (size_t i = 0; i < sizeof managers / sizeof *managers; i++) {
        if (!managers[i].packages || access(managers[i].program, X_OK) != 0) continue;
        snprintf(text, sizeof text, "%s%s %s", geteuid() ? "sudo " : "", managers[i].verb, managers[i].packages);
        return text;
    }
    return names->otherwise;
}

bool own_file(char *path, size_t size) {
    Dl_info about;
    char whole[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)&system_checks, &about) || !realpath(about.dli_fname, whole)) return false;
    const int n = snprintf(path, size, "%s", whole);
    return n > 0 && (size_t)n < size;
}

/* ---- library, CPU ------------------------------------------------------------------------------------------------ */

static void check_library(doctor_result *r) {
    char path[PATH_MAX], hash[TNI_SHA256_TEXT];
    struct stat about;
    require(r, "a library that can be read");
    if (!own_file(path, sizeof path) || fstatat(AT_FDCWD, path, &about, 0) != 0 || !tni_sha256_file(path, hash)) {
        observe(r, "the file of libtenon.so cannot be read: %s", strerror(errno));
        judge(r, FAILED, "it was moved or replaced while this process runs",
              "tenon doctor library   # again: a new process opens what is there now");
        return;
    }
    observe(r, "tenon %s, %d operators, %s (%.1f MB, sha256 %s)", tn_version(), tn_function_count(), path,
            (double)about.st_size / 1e6, hash);
}

static void check_cpu(doctor_result *r) {
    const char *held_back = getenv("TENON_ISA");
    observe(r, "%s, %d cores, %s, %d threads", bench_cpu(), bench_cores(), bench_isa(), tn_threads());
    if (held_back && *held_back) observe(r, " (TENON_ISA=%s)", held_back);
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

/* Puts a file there and takes it away. */
static bool can_write(const char *folder) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/.doctor-XXXXXX", folder);
    const int file = n > 0 && (size_t)n < sizeof path ? mkostemp(path, O_CLOEXEC) : -1;
    if (file < 0) return false;
    close(file);
    unlink(path);
    return true;
}

/* The folder, or of those on the way to it the last that exists, can be written to. */
static bool can_make(const char *folder) {
    char path[PATH_MAX];
    struct stat about;
    snprintf(path, sizeof path, "%s", folder);
    errno = 0;
    while (fstatat(AT_FDCWD, path, &about, 0) != 0) {
        const int error = errno;
        const bool is_link = fstatat(AT_FDCWD, path, &about, AT_SYMLINK_NOFOLLOW) == 0; /* to nothing */
        char *end = strrchr(path, '/');
        errno = error;
        if (error != ENOENT || is_link) return false;
        if (!end) snprintf(path, sizeof path, ".");
        if (end) end[end == path] = 0;
    }
    if (!S_ISDIR(about.st_mode)) errno = ENOTDIR;
    return S_ISDIR(about.st_mode) && can_write(path);
}

static void check_cache(doctor_result *r) {
    static const char reason[] = "every process compiles its formulas anew";
    char path[PATH_MAX];
    require(r, "a folder of this user's own that can be written to");
    if (!tni_cache_folder(path, sizeof path)) {
        observe(r, "none: neither TENON_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set");
        judge(r, WARNED, reason, "export TENON_CACHE_DIR=/tmp/tenon-cache-$(id -u)");
        return;
    }
    const tni_cache_state s = tni_cache_look();
    if (s.refused) {
        observe(r, "%s %s", path, s.refused);
        judge(r, WARNED, "what is in it would be run, so it is not used: every process compiles its formulas anew",
              "chmod go-w '%s'   # or: export TENON_CACHE_DIR=\"$HOME/.cache/tenon\"", path);
    } else if (!can_make(path)) {
        observe(r, "%s cannot be written to: %s", path, strerror(errno));
        judge(r, WARNED, reason, "export TENON_CACHE_DIR=/tmp/tenon-cache-$(id -u)");
    } else {
        observe(r, "%s, %s%d file%s, %.1f of %.0f MB", path, s.exists ? "" : "not there yet, ", (int)s.files,
                s.files == 1 ? "" : "s", (double)s.bytes / 1e6, (double)s.most / 1e6);
    }
}

/* What the compiler makes is tried out there. */
static void check_temporary(doctor_result *r) {
    const char *set = getenv("TMPDIR"), *path = set && *set == '/' ? set : "/tmp";
    struct statvfs about;
    observe(r, "%s", path);
    require(r, "a folder to write to and to run programs from");
    if (!can_write(path)) {
        observe(r, " cannot be written to: %s", strerror(errno));
        judge(r, WARNED, "formulas are not compiled for the CPU, and run slower", "export TMPDIR=/tmp");
    } else if (statvfs(path, &about) == 0) {
        observe(r, ", %.1f GB free", (double)about.f_bavail * (double)about.f_frsize / 1e9);
        if (about.f_flag & ST_NOEXEC) {
            judge(r, WARNED, "it is mounted noexec: formulas are not compiled for the CPU, and run slower",
                  "mkdir -p \"$HOME/tmp\" && export TMPDIR=\"$HOME/tmp\"");
        }
    }
}

/* ---- environment ------------------------------------------------------------------------------------------------- */

/* Everything that is read somewhere: a test compares it with the sources. */
typedef struct variable {
    const char *name;
    enum { ANY, COUNT, THREADS, WORDS, FILE_NAME, FILES } kind; /* FILES: a:b:c */
    const char *words; /* those allowed, with spaces around; of a FILE_NAME, instead of one */
} variable;
static const variable variables[] = {
    {"TENON_CACHE_BYTES", COUNT},
    {"TENON_CACHE_DIR", ANY},
    {"TENON_CC", ANY},
    {"TENON_CHECK_INDEX", WORDS, " 0 1 "},
    {"TENON_CUBLASLT", FILE_NAME, " none "},
    {"TENON_DOCTOR_ROOT", ANY},
    {"TENON_ISA", WORDS, " none avx2 avx512 "},
    {"TENON_JIT", WORDS, " 0 now "},
    {"TENON_LIBRARY", FILE_NAME},
    {"TENON_LOG", ANY},
    {"TENON_NUM_THREADS", THREADS},
    {"TENON_NVRTC", FILE_NAME},
    {"TENON_PLUGINS", FILES},
    {"TENON_SAME_ROWS", WORDS, " 0 1 "},
    {"TENON_SITE_PACKAGES", FILE_NAME},
    {"TENON_SYNC", WORDS, " 0 1 "},
    {"TENON_TF32", WORDS, " 0 1 "},
    /* of builds and tests */
    {"TENON_CHECK_CHILD", ANY},
    {"TENON_CUBINS", ANY},
    {"TENON_CUDA_ARCHS", ANY},
    {"TENON_PYTHON", ANY},
    {"TENON_QUICK", ANY},
    {"TENON_QUICK_CUBINS", ANY},
    {"TENON_SLOW_CALLS", ANY},
    {"TENON_TEST_ALL", ANY},
    {"TENON_TEST_DEVICE", ANY},
    {"TENON_TEST_NVRTC", ANY},
    {"TENON_TEST_ONLY", ANY},
    {"TENON_TEST_PART", ANY},
    {"TENON_TEST_SECOND", ANY},
    {"TENON_TEST_SHOW", ANY},
    {"TENON_WERROR", ANY},
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

static const variable *find_variable(const char *name) {
    for (int i = 0; i < VARIABLES; i++) {
        if (strcmp(variables[i].name, name) == 0) return &variables[i];
    }
    return NULL;
}

static void judge_unknown(doctor_result *r, const char *name) {
    const char *names[VARIABLES + 1];
    char reason[256];
    const size_t prefix = strlen("TENON_"); /* which all have */
    for (int i = 0; i < VARIABLES; i++) names[i] = variables[i].name + prefix;
    names[VARIABLES] = NULL;
    const char *near = nearest_name(name + prefix, names);
    snprintf(reason, sizeof reason, "nothing reads %s%s%s%s", name, near ? "; did you mean TENON_" : "",
             near ? near : "", near ? "?" : "");
    if (near) judge(r, WARNED, reason, "export TENON_%s=\"$%s\"; unset %s", near, name, name);
    if (!near) judge(r, WARNED, reason, "unset %s", name);
}

bool is_from_library_path(const char *file) {
    const char *all = getenv("LD_LIBRARY_PATH"), *slash = strrchr(file, '/');
    const size_t length = slash ? (size_t)(slash - file) : 0;
    while (all && *all && length) {
        const size_t n = strcspn(all, ":");
        if (n == length && memcmp(all, file, n) == 0) return true;
        all += n + (all[n] == ':');
    }
    return false;
}

static bool is_count(const char *text) {
    char *end;
    const long long n = strtoll(text, &end, 10);
    return *text && !*end && n > 0;
}

/* The first of "a:b:c" that does not exist, in words; NULL: all do. */
static const char *missing_file(const char *list) {
    static char text[PATH_MAX + 64];
    for (const char *at = list; *at; at += strcspn(at, ":"), at += *at == ':') {
        char path[PATH_MAX];
        struct stat about;
        snprintf(path, sizeof path, "%.*s", (int)strcspn(at, ":"), at);
        if (!*path || fstatat(AT_FDCWD, path, &about, 0) == 0) continue;
        snprintf(text, sizeof text, "names %s, which does not exist", path);
        return text;
    }
    return NULL;
}

/* NULL: there is nothing to say against it. */
static const char *wrong_value(const variable *v, const char *value) {
    enum { DIGITS = 5 };
    static char text[128];
    char word[64];
    struct stat about;
    snprintf(word, sizeof word, " %s ", value);
    if (v->words && strstr(v->words, word)) return NULL;
    if (v->kind == COUNT && !is_count(value)) return "is no number above 0, and is not used";
    if (v->kind == THREADS && !(is_count(value) && strlen(value) < DIGITS && atoi(value) <= TNI_MOST_THREADS)) {
        snprintf(text, sizeof text, "is no number from 1 to %d, and is not used", TNI_MOST_THREADS);
        return text;
    }
    if (v->kind == FILE_NAME && fstatat(AT_FDCWD, value, &about, 0) != 0) return "names nothing that exists";
    if (v->kind == FILES) return missing_file(value);
    if (v->kind != WORDS) return NULL;
    snprintf(text, sizeof text, "is none of%.*s, and is not used", (int)strlen(v->words) - 1, v->words);
    return text;
}

static void check_environment(doctor_result *r) {
    extern char **environ;
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING"), *omp = getenv("OMP_NUM_THREADS");
    require(r, "names that Tenon reads, with values that it takes");
    for (char **e = environ; *e; e++) {
        char name[128], reason[PATH_MAX + 256];
        const size_t length = strcspn(*e, "=");
        if (strncmp(*e, "TENON_", 6) != 0 || length >= sizeof name || !(*e)[length]) continue;
        const char *value = *e + length + 1;
        memcpy(name, *e, length);
        name[length] = 0;
        observe(r, "%s%s", r->observed[0] ? ", " : "", *e);
        const variable *v = find_variable(name);
        const char *wrong = v && *value ? wrong_value(v, value) : NULL;
        if (!v) judge_unknown(r, name);
        if (!wrong) continue;
        snprintf(reason, sizeof reason, "%s %s", name, wrong);
        judge(r, WARNED, reason, "unset %s", name);
    }
    if (omp) observe(r, "%sOMP_NUM_THREADS=%s", r->observed[0] ? ", " : "", omp);
    if (omp && atoi(omp) > 2 * bench_cores()) {
        judge(r, WARNED, "OMP_NUM_THREADS: frameworks start many more threads than there are cores",
              "export OMP_NUM_THREADS=%d", bench_cores());
    }
    if (blocking && strcmp(blocking, "1") == 0) { /* which is how one looks for a mistake: nothing to say against it */
        observe(r, "%sCUDA_LAUNCH_BLOCKING=1 (every kernel is waited for)", r->observed[0] ? ", " : "");
    }
    if (!r->observed[0]) observe(r, "none of Tenon's variables is set");
}

/* The toolkit's folder of stubs has a libcuda.so.1 in some versions, which starts no GPU. */
static void check_library_path(doctor_result *r) {
    const char *all = getenv("LD_LIBRARY_PATH"), *preload = getenv("LD_PRELOAD");
    require(r, "no folder of CUDA's stubs");
    observe(r, all && *all ? "LD_LIBRARY_PATH=%s" : "LD_LIBRARY_PATH is not set", all);
    if (preload && *preload) observe(r, ", LD_PRELOAD=%s", preload);
    for (const char *at = all; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        char folder[PATH_MAX], reason[PATH_MAX + 128];
        snprintf(folder, sizeof folder, "%.*s", (int)strcspn(at, ":"), at);
        if (!strstr(folder, "/stubs")) continue;
        snprintf(reason, sizeof reason, "%s has a libcuda.so that only linkers are meant to see", folder);
        judge(r, WARNED, reason,
              "export LD_LIBRARY_PATH=$(printf %%s \"$LD_LIBRARY_PATH\" | tr : '\\n' | grep -vxF '%s' | paste -sd:)",
              folder);
    }
}

const doctor_row system_checks[] = {
    {"library", "libtenon.so: where it is, its version and hash", check_library},
    {"cpu", "the CPU, its vector instructions, threads", check_cpu},
    {"environment", "TENON_… and other variables: unknown names, values that are not used", check_environment},
    {"library_path", "LD_LIBRARY_PATH: folders of CUDA's stubs", check_library_path},
    {"cache", "the folder of compiled formulas: can be written to, size and limit", check_cache},
    {"temporary", "the folder in which the C compiler works", check_temporary},
    {0},
};
