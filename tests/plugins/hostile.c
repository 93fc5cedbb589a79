/* A plugin whose constructor does what HOSTILE says: it must cost the process that tries it first, and no other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/op.h>

static tn_status nothing(const tn_call *call, void *state) {
    (void)call, (void)state;
    return TN_OK;
}

static const tn_kernel kernels[] = {{.name = "ref", .device = TN_CPU, .run = nothing}, {0}};
static const tn_op hostile = {.signature = "hostile(x: T[*s]) -> y: T[*s]", .doc = "Nothing.", .kernels = kernels};
static const tn_op *table[] = {&hostile};
TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);

static __attribute__((constructor)) void begin(void) {
    const char *what = getenv("HOSTILE"), *log = getenv("HOSTILE_LOG");
    FILE *file = log ? fopen(log, "ae") : NULL;
    if (file) {
        fprintf(file, "opened\n");
        fclose(file);
    }
    if (!what) return;
    fprintf(stderr, "the constructor is here\n");
    if (strcmp(what, "crashes") == 0) raise(SIGSEGV);
    if (strcmp(what, "aborts") == 0) abort();
    if (strcmp(what, "exits") == 0) _exit(3);
    if (strcmp(what, "leads nowhere") == 0) table[0] = (const tn_op *)16;
}
