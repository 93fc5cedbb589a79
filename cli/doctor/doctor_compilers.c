/* Checks of the C compiler, of nvcc, and of whether the two go together. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "fuse/cpu/compile_c.h"

enum { MOST_SECONDS = 10 }; /* for a compiler that tells its version */

static const package_names gcc = {"gcc libc6-dev", "gcc glibc-devel", "gcc glibc-devel", "gcc",
                                  "install a C compiler: https://gcc.gnu.org"};

/* What `program --version` says; its first line ends there. */
static program_end ask(char *program) {
    program_end end = run_program((char *[]){program, "--version", NULL}, MOST_SECONDS);
    return end;
}

/* The first number with a point behind the word; 0: none. */
static int version_behind(const char *text, const char *word) {
    const char *at = strstr(text, word);
    for (at = at ? at + strlen(word) : NULL; at && *at; at++) {
        if (isdigit((unsigned char)*at) && strchr(at, '.') == at + strspn(at, "0123456789")) return atoi(at);
        at += isdigit((unsigned char)*at) ? strspn(at, "0123456789.") - 1 : 0;
    }
    return 0;
}

/* ---- the C compiler ---------------------------------------------------------------------------------------------- */

/* `variable`: what chose it, if something did. */
static void judge_compiler(doctor_result *r, const char *variable) {
    static const char reason[] = "formulas are interpreted on the CPU, at about half the speed";
    if (variable) judge(r, WARNED, reason, "unset %s", variable);
    if (!variable) judge(r, WARNED, reason, "%s", install_command(&gcc));
}

static void check_compiler(doctor_result *r) {
    char name[512], path[PATH_MAX], how[128];
    snprintf(name, sizeof name, "%s", tni_c_compiler());
    name[strcspn(name, " ")] = 0;
    require(r, "a C compiler that runs (TENON_CC, CC or cc)");
    const char *variable = getenv("TENON_CC") ? "TENON_CC" : getenv("CC") ? "CC" : NULL;
    if (!find_program(name, path, sizeof path)) {
        observe(r, "there is no '%s'%s%s", name, variable ? ", which is what it shall be by " : " on the PATH",
                variable ? variable : "");
        judge_compiler(r, variable);
        return;
    }
    program_end end = ask(name);
    observe(r, "%s", path);
    if (end.late || end.signal || end.status) {
        describe_end(&end, MOST_SECONDS, how);
        observe(r, " --version %s", how);
        judge_compiler(r, variable);
        return;
    }
    observe(r, ", %.*s", (int)strcspn(end.output, "\n"), end.output);
}

/* ---- nvcc -------------------------------------------------------------------------------------------------------- */

static bool find_nvcc(char path[static PATH_MAX]) {
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    for (int i = 0; i < 2; i++) {
        char name[PATH_MAX];
        const char *folder = getenv(variables[i]);
        const int n = folder && *folder ? snprintf(name, sizeof name, "%s/bin/nvcc", folder) : -1;
        if (n > 0 && (size_t)n < sizeof name && find_program(name, path, PATH_MAX)) return true;
    }
    return find_program("nvcc", path, PATH_MAX) || find_program("/usr/local/cuda/bin/nvcc", path, PATH_MAX);
}

static void check_nvcc(doctor_result *r) {
    char path[PATH_MAX], how[128], reason[160];
    require(r, "any, not newer than the driver; only building Tenon needs it");
    if (!find_nvcc(path)) {
        observe(r, "not found");
        judge(r, SKIPPED, "only building CUDA kernels needs it", NULL);
        return;
    }
    program_end end = ask(path);
    const int major = version_behind(end.output, "release "), driver = driver_cuda_major();
    observe(r, "%s", path);
    if (!major) {
        describe_end(&end, MOST_SECONDS, how);
        observe(r, " --version %s", how);
        judge(r, WARNED, "it does not tell its version", "python -m pip install --force-reinstall nvidia-cuda-nvcc");
        return;
    }
    const char *release = strstr(end.output, "release ");
    observe(r, ", CUDA %.*s", (int)strcspn(release + 8, ",\n"), release + 8);
    if (!driver || major <= driver) return;
    snprintf(reason, sizeof reason, "what it compiles needs driver %d; this one is for CUDA %d", least_driver(major),
             driver);
    char older[64], folder[PATH_MAX];
    snprintf(older, sizeof older, "/usr/local/cuda-%d", driver);
    bool has_older = machine_path(folder, sizeof folder, older) && access(folder, X_OK) == 0;
    if (has_older) judge(r, WARNED, reason, "export CUDA_HOME=%s", folder);
    if (!has_older) judge(r, WARNED, reason, "%s", install_driver());
}

/* ---- nvcc and the host's compiler -------------------------------------------------------------------------------- */

/* The newest version that a condition lets pass, of `#if macro > 15` or `>= 16`; 0: it is about something else. */
static int most_by(const char *line, const char *macro) {
    const char *at = strncmp(line, "#if", 3) == 0 ? strstr(line, macro) : NULL;
    int most = 0;
    for (; at && !most; at = strstr(at, macro)) {
        at += strlen(macro);
        at += strspn(at, " ");
        if (*at != '>') continue;
        const bool equal = at[1] == '=';
        most = atoi(at + 1 + equal) - equal;
    }
    return most;
}

/* nvcc refuses by this header. */
static bool read_limits(const char *nvcc, int *most_gcc, int *most_clang, char path[static PATH_MAX]) {
    char real[PATH_MAX], line[1024];
    *most_gcc = *most_clang = 0;
    if (!realpath(nvcc, real)) return false;
    for (int up = 0; up < 2 && strrchr(real, '/'); up++) *strrchr(real, '/') = 0;
    const int n = snprintf(path, PATH_MAX, "%s/include/crt/host_config.h", real);
    FILE *file = n > 0 && n < PATH_MAX ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (!*most_gcc) *most_gcc = most_by(line, "__GNUC__");
        if (!*most_clang) *most_clang = most_by(line, "__clang_major__");
    }
    if (file) fclose(file);
    return *most_gcc && *most_clang;
}

static void check_host_compiler(doctor_result *r) {
    char nvcc[PATH_MAX], header[PATH_MAX], path[PATH_MAX], program[PATH_MAX], reason[160];
    int most_gcc, most_clang;
    const char *set = getenv("NVCC_CCBIN");
    snprintf(program, sizeof program, "%s", set && *set ? set : "gcc");
    if (!find_nvcc(nvcc) || !read_limits(nvcc, &most_gcc, &most_clang, header)) {
        judge(r, SKIPPED, "there is no nvcc whose limits could be read", NULL);
        return;
    }
    require(r, "gcc up to %d or clang up to %d, by %s", most_gcc, most_clang, header);
    if (!find_program(program, path, sizeof path)) {
        observe(r, "there is no '%s'", program);
        judge(r, WARNED, "nvcc needs it", "%s", install_command(&gcc));
        return;
    }
    program_end end = ask(program);
    const bool is_clang = strstr(end.output, "clang") != NULL;
    const int version = is_clang ? version_behind(end.output, "version ") : version_behind(end.output, ")"),
              most = is_clang ? most_clang : most_gcc;
    observe(r, "%s, %s %d", path, is_clang ? "clang" : "gcc", version);
    if (version > most) {
        snprintf(reason, sizeof reason, "nvcc refuses %s %d", is_clang ? "clang" : "gcc", version);
        judge(r, WARNED, reason, "export NVCC_CCBIN=%s-%d   # once it is installed", is_clang ? "clang++" : "g++",
              most);
    }
}

const doctor_row compiler_checks[] = {
    {"compiler", "the C compiler that formulas are compiled with for the CPU", check_compiler},
    {"nvcc", "the CUDA compiler, for building kernels: found where, version against the driver", check_nvcc},
    {"host_compiler", "the host's compiler against the limits in nvcc's crt/host_config.h", check_host_compiler},
    {0},
};
