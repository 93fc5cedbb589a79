/* tenon build: one file with operators, out of .c and .cu. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "fuse/cpu/compile_c.h"

static const char *output, *architectures;
static bool debug, device_debug, verbose;

/* The compiler, its options and the headers; returns how many words there are. */
static int begin_command(const builder *b, char *compiler, const char **words) {
    static char folders[MOST_HEADERS][PATH_MAX], includes[MOST_HEADERS][PATH_MAX + 2];
    static const char *const always[] = {"-std=gnu11", "-fPIC", "-Wall", "-Wextra", "-Wno-missing-field-initializers"};
    int n = split_words(compiler, words, 32);
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) words[n++] = always[i];
    words[n++] = b->debug ? "-O0" : "-O2";
    if (b->debug) words[n++] = "-g";
    const int headers = find_headers(folders);
    for (int i = 0; i < headers; i++) {
        snprintf(includes[i], sizeof includes[i], "-I%.*s", PATH_MAX - 1, folders[i]);
        words[n++] = includes[i];
    }
    return n;
}

/* A shared object of the folder's C files and `more`, which ends with NULL. */
static bool link_all(const builder *b, const char *const *more, const char *to) {
    static char paths[MOST_SOURCES][PATH_MAX];
    char compiler[512];
    const char *words[MOST_WORDS];
    snprintf(compiler, sizeof compiler, "%s", tni_c_compiler());
    int n = begin_command(b, compiler, words);
    words[n++] = "-shared";
    for (int i = 0; i < b->n_c; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", b->folder, b->c[i]);
        words[n++] = paths[i];
    }
    for (; *more; more++) words[n++] = *more;
    words[n++] = "-lm";
    words[n++] = "-o";
    words[n++] = to;
    words[n] = NULL;
    return run_tool(words, b->verbose) == 0;
}

/* What is there already stays until the new one is whole: whoever has it open keeps it. */
static bool put_in_place(const builder *b, const char *made) {
    char next[PATH_MAX];
    if (snprintf(next, sizeof next, "%s.new", b->output) >= PATH_MAX) return false;
    const char *words[] = {"cp", made, next, NULL};
    if (run_tool(words, false) == 0 && rename(next, b->output) == 0) return true;
    fprintf(stderr, "tenon build: %s cannot be written\n", b->output);
    unlink(next);
    return false;
}

static bool build_in_work(const builder *b) {
    char embedded[PATH_MAX], ahead[PATH_MAX], plain[PATH_MAX], whole[PATH_MAX];
    bool any = false;
    work_file(b, "embedded.c", embedded);
    work_file(b, "ahead.c", ahead);
    work_file(b, "plain.so", plain);
    work_file(b, "whole.so", whole);
    const char *const texts[] = {embedded, NULL}, *const all[] = {embedded, ahead, NULL};
    if (!write_embedded(b, embedded) || !link_all(b, texts, plain)) return false;
    if (!compile_ahead(b, plain, ahead, &any)) return false;
    if (any && !link_all(b, all, whole)) return false;
    return put_in_place(b, any ? whole : plain);
}

static int build(builder *b) {
    char about[512];
    const double begin = bench_now();
    if (!find_sources(b, output) || !check_compiler(about, sizeof about)) return 1;
    if (b->verbose) printf("C compiler: %s\n", about);
    const bool good = make_work(b) && build_in_work(b);
    remove_work(b);
    if (!good) return fprintf(stderr, "tenon build: %s was not built\n", b->output), 1;
    struct stat info;
    const long long bytes = fstatat(AT_FDCWD, b->output, &info, 0) == 0 ? (long long)info.st_size : 0;
    printf("%s  %lld kB, built in %.1f s\n", b->output, (bytes + 999) / 1000, bench_now() - begin);
    return 0;
}

static int run(int count, const char *const *rest) {
    if (count > 1) return usage_error(&verb_build, "takes one folder, not '%s' as well", rest[1]);
    builder b = {.folder = count ? rest[0] : ".",
                 .debug = debug || device_debug,
                 .device_debug = device_debug,
                 .verbose = verbose,
                 .architectures = architectures};
    const int status = build(&b);
    free_sources(&b);
    return status;
}

static const option options[] = {
    {"-o", "file.so", "what to write; NAME.tenon.so in the folder unless you say so", TEXT, &output},
    {"--arch", "80,90",
     "compile the kernels for these GPUs; the usual ones that NVRTC knows unless you say so; 'none' "
     "leaves it to the first use",
     TEXT, &architectures},
    {"--debug", NULL, "for compute-sanitizer and ncu: line information in the kernels' code; C is not optimised", FLAG,
     &debug},
    {"--device-debug", NULL, "for cuda-gdb: the kernels are not optimised either", FLAG, &device_debug},
    {"-v", NULL, "show each command", FLAG, &verbose},
    {0},
};

const verb verb_build = {
    .name = "build",
    .summary = "one file of a folder with operators, .c and .cu: the folder that `tenon new` writes",
    .examples = "tenon build my_op\tmakes my_op/my_op.tenon.so\n"
                "tenon build my_op --debug -v\tfor compute-sanitizer and ncu; shows what it does\n"
                "tenon build my_op --arch none -o quick.so\tno GPU code: it is compiled when first used",
    .text = "Needs a C compiler: TENON_CC, CC or cc. The text of each NAME.cu becomes NAME_cu in C. NVRTC, if there is "
            "one, compiles the kernels for the usual GPUs, so that the first call does not have to.",
    .options = options,
    .run = run,
};
