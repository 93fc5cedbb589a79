/* Device code as text, made a library for the CPU (emulate.h). */
#ifndef TENON_TEST_FUSE_BUILD_TEXT_H
#define TENON_TEST_FUSE_BUILD_TEXT_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse/cuda/gpu.h"

/* What emulate.h exports: all threads of a launch, one after the other. */
typedef void (*emulated_kernel)(const void *);
typedef void (*emulate)(emulated_kernel run, const void *words, unsigned grid, unsigned block, unsigned cluster);

#define TN_CXX "c++ -O0 -std=c++17 -ffp-contract=off -fPIC -w"

/* Every text begins with the prelude: it is compiled once, with emulate.h. */
static inline const char *build_prelude(const char *folder) {
    static char header[128];
    char command[768];
    if (header[0]) return header;
    snprintf(header, sizeof header, "%s/prelude.h", folder);
    FILE *file = fopen(header, "w");
    if (!file) return header;
    fprintf(file, "#include \"%s\"\n%s", EMULATE_H, tni_cuda_prelude);
    fclose(file);
    snprintf(command, sizeof command, TN_CXX " -x c++-header %s -o %s.gch", header, header);
    if (system(command) != 0) printf("%s is compiled anew with every text\n", header);
    return header;
}

/* NULL: it does not compile. */
static inline void *build_text(const char *folder, const char *source) {
    char path[128], command[768];
    const size_t prelude = strlen(tni_cuda_prelude);
    snprintf(path, sizeof path, "%s/formula.cpp", folder);
    FILE *file = strncmp(source, tni_cuda_prelude, prelude) == 0 ? fopen(path, "w") : NULL;
    if (!file) return NULL;
    fputs(source + prelude, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/formula.so", folder);
    unlink(path);
    snprintf(command, sizeof command, TN_CXX " -shared -include %s %s/formula.cpp -o %s", build_prelude(folder), folder,
             path);
    return system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

#endif
