/* Looking for libraries (library.h says where). */
#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char told[PATH_MAX];

void tni_library_look_in(const char *site_packages) {
    snprintf(told, sizeof told, "%s", site_packages);
}

static void *open_named(const char *const *list, int flags) {
    void *library = NULL;
    for (; *list && !library; list++) library = dlopen(*list, flags);
    return library;
}

/* The first of the files that is in the folder and opens. */
static void *open_below(const char *folder, const char *const *files) {
    char path[PATH_MAX];
    void *library = NULL;
    for (; files && *files && !library; files++) {
        const int n = snprintf(path, sizeof path, "%s/%s", folder, *files);
        if (n > 0 && (size_t)n < sizeof path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* The wheels lie beside other packages of the same environment, whose libraries are mapped already. */
static void *open_beside(const char *const *wheels) {
    static const char folder[] = "/site-packages/";
    char line[4608], last[4096] = "";
    void *library = NULL;
    FILE *maps = wheels ? fopen("/proc/self/maps", "re") : NULL;
    if (!maps) return NULL;
    while (!library && fgets(line, sizeof line, maps)) {
        const char *path = strchr(line, '/');
        const char *end = path ? strstr(path, folder) : NULL;
        if (!end) continue;
        const size_t length = (size_t)(end - path) + sizeof folder - 2;
        if (length >= sizeof last || (strlen(last) == length && memcmp(last, path, length) == 0)) continue;
        memcpy(last, path, length);
        last[length] = 0;
        library = open_below(last, wheels);
    }
    fclose(maps);
    return library;
}

void *tni_library_open(const tni_library *l) {
    const char *exact = l->variable ? getenv(l->variable) : NULL, *site = getenv("TENON_SITE_PACKAGES");
    void *library = exact && *exact ? dlopen(exact, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) library = open_named(l->names, RTLD_NOW | RTLD_NOLOAD);
    if (!library) library = open_named(l->names, RTLD_NOW | RTLD_LOCAL);
    if (!library && site && *site) library = open_below(site, l->wheels);
    if (!library && told[0]) library = open_below(told, l->wheels);
    if (!library) library = open_beside(l->wheels);
    for (const char *const *f = l->folders; f && *f && !library; f++) library = open_below(*f, l->names);
    return library;
}

bool tni_library_file(void *library, char *path, size_t size) {
    struct link_map *map = NULL;
    char whole[PATH_MAX];
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return false;
    const int n = snprintf(path, size, "%s", realpath(map->l_name, whole) ? whole : map->l_name);
    return n > 0 && (size_t)n < size;
}
