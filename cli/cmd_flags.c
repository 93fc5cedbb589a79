/* tenon flags: what a compiler has to be told to build against this Tenon. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static bool only_cflags, only_libs;

/* The folder of the library that this code is in. */
static bool find_library(char folder[static PATH_MAX]) {
    Dl_info about;
    if (!dladdr((void *)(uintptr_t)&verb_flags, &about) || !realpath(about.dli_fname, folder)) return false;
    *strrchr(folder, '/') = 0;
    return true;
}

/* Headers are in a folder beside the library; of a build and of an installation they are, or the rest of them is,
 * beside the library's folder; some systems have a folder for the processor in between. */
static int print_cflags(const char *library) {
    static const char *const places[][2] = {
        {"include", "tenon/ops.h"}, {"../include", "tenon.h"}, {"../../include", "tenon/ops.h"}};
    int printed = 0;
    for (int i = 0; i < 3; i++) {
        char path[PATH_MAX], file[PATH_MAX], folder[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", library, places[i][0]);
        if (n >= PATH_MAX || !realpath(path, folder)) continue;
        n = snprintf(file, sizeof file, "%s/%s", folder, places[i][1]);
        if (n < PATH_MAX && access(file, R_OK) == 0) printf("%s-I%s", printed++ ? " " : "", folder);
    }
    return printed;
}

static int run(int count, const char *const *rest) {
    char library[PATH_MAX];
    if (count) return usage_error(&verb_flags, "there are only options, and '%s' is none", rest[0]);
    if (!find_library(library)) return fprintf(stderr, "tenon flags: libtenon.so cannot be found\n"), 1;
    const bool all = only_cflags == only_libs;
    int printed = all || only_cflags ? print_cflags(library) : 0;
    if (all || only_libs) printf("%s-L%s -Wl,-rpath,%s -ltenon", printed ? " " : "", library, library);
    putchar('\n');
    return 0;
}

static const option options[] = {
    {"--cflags", NULL, "only where the headers are: all that a shared object with operators needs", FLAG, &only_cflags},
    {"--libs", NULL, "only where the library is", FLAG, &only_libs},
    {0},
};

const verb verb_flags = {
    .name = "flags",
    .summary = "what the C compiler has to be told to find the headers and the library",
    .examples = "cc first.c $(tenon flags) -o first\ta program that calls operators\n"
                "cc -shared -fPIC reverse.c $(tenon flags --cflags) -o reverse.so\ta shared object with an operator",
    .options = options,
    .run = run,
};
