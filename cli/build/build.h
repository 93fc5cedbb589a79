/* `tenon build`: a folder with operators, .c and .cu, becomes one file. */
#ifndef CLI_BUILD_H
#define CLI_BUILD_H

#include <limits.h>
#include <stdbool.h>

#include "core/host/text.h"

enum { MOST_SOURCES = 64, MOST_WORDS = 160, MOST_ARCHITECTURES = 16 };

typedef struct builder {
    const char *folder;
    char name[NAME_MAX + 1]; /* of the .c file, if there is one; of the folder otherwise */
    char output[PATH_MAX];
    char work[PATH_MAX]; /* a folder for what is in between; gone afterwards */
    bool debug, device_debug, verbose;
    const char *architectures; /* "80,90"; NULL: the usual ones */
    int n_c, n_cu;
    char *c[MOST_SOURCES], *cu[MOST_SOURCES]; /* names of files in the folder, sorted */
} builder;

/* ---- build_tools.c ----------------------------------------------------------------------------------------------- */

/* Runs a program that prints what it has to say. Returns its exit status; 127: it cannot be started. */
int run_tool(const char *const *words, bool show);
/* The C compiler runs; prints what to install where it does not. `about`: its version. */
bool check_compiler(char *about, size_t size);
/* Words of a command, as a shell would separate them, without quotes; returns how many. `text` is changed. */
int split_words(char *text, const char **words, int most);

/* ---- build_files.c ----------------------------------------------------------------------------------------------- */

/* The sources of the folder, its name, what will be written. false: said what is wrong. */
bool find_sources(builder *b, const char *output);
void free_sources(builder *b);
bool make_work(builder *b);
void remove_work(const builder *b);
/* In the work folder: `const char my_op_cu[] = …` for each .cu file. */
bool write_embedded(const builder *b, const char *path);
/* `const NAME[] = {…}` of bytes, for a C compiler. */
void put_bytes(tni_text *text, const char *name, const void *data, size_t bytes);
bool write_text(const char *path, const tni_text *text);
/* "<work>/<name>" */
void work_file(const builder *b, const char *name, char path[static PATH_MAX]);

/* ---- build_ahead.c ----------------------------------------------------------------------------------------------- */

/* Kernels of the shared object `built`, compiled for GPUs, as a C source. *any: there are some. false: a message was
 * printed. */
bool compile_ahead(const builder *b, const char *built, const char *source, bool *any);

#endif
