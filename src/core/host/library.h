/* Libraries that are opened when they are first needed: NVRTC and others that no build links. */
#ifndef TNI_LIBRARY_H
#define TNI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <tenon/status.h>

typedef struct tni_library {
    const char *variable;       /* of the environment, that names the file; NULL: none */
    const char *const *names;   /* as the loader knows it, best first; NULL ends */
    const char *const *wheels;  /* behind the site-packages folder of a Python environment; NULL: none */
    const char *const *folders; /* where installers put it that tell the loader nothing; NULL: none */
} tni_library;

/* A site-packages folder to look in: of a Python that has no library of it open yet. */
TN_API void tni_library_look_in(const char *site_packages);
/* The file that the variable names; a copy that the process has already; what the loader finds; what lies in a Python
 * environment (TENON_SITE_PACKAGES, where it was told to look, those that this process has libraries of); the folders.
 * NULL: nowhere. */
void *tni_library_open(const tni_library *l);
/* The file that a library was opened from, links resolved. */
bool tni_library_file(void *library, char *path, size_t size);

#endif
