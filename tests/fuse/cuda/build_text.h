/* Device code as text, made a library for the CPU (emulate.h). */
#ifndef TENON_TEST_FUSE_BUILD_TEXT_H
#define TENON_TEST_FUSE_BUILD_TEXT_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What emulate.h exports: all threads of a launch, one after the other. */
typedef void (*emulated_kernel)(const void *);
typedef void (*emulate)(emulated_kernel run, const void *words, unsigned grid, unsigned block, unsigned cluster);

/* NULL: it does not compile. */
static inline void *build_text(const char *folder, const char *source) {
    char path[128], command[768];
    snprintf(path, sizeof path, "%s/formula.cpp", folder);
    FILE *file = fopen(path, "w");
    if (!file) return NULL;
    fputs(source, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/formula.so", folder);
    unlink(path);
    snprintf(command, sizeof command,
             "c++ -O0 -std=c++17 -ffp-contract=off -shared -fPIC -w -include " EMULATE_H " %s/formula.cpp -o %s",
             folder, path);
    return system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

#endif
