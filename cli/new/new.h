/* `tenon new`: the files of a project around one kernel. */
#ifndef CLI_NEW_H
#define CLI_NEW_H

#include <stdbool.h>

#include "core/host/memory.h"
#include "core/host/text.h"

/* A file of templates/, made by cmake/templates.cmake: "elementwise.cu" and its text. */
typedef struct template_file {
    const char *name, *text;
} template_file;
extern const template_file template_files[]; /* {0} ends */

typedef struct project_kind {
    const char *name;    /* of --template, and of its two files */
    const char *about;   /* a line for the help and the README */
    const char *example; /* lines of Python that call it */
} project_kind;
extern const project_kind project_kinds[]; /* {0} ends */

/* What stands in a template between two @, and what takes its place. {0} ends */
typedef struct filling {
    const char *name, *text;
} filling;

/* A template filled in; the caller frees its data. NULL where there is no memory. */
char *fill_template(const char *name, const filling *fillings);
/* Writes a new file; makes the folder of it. Says what is wrong, where something is. */
bool write_new_file(const char *folder, const char *name, const char *text);
/* The whole file, NUL at the end; the caller frees it. NULL: said what is wrong. */
char *read_whole_file(const char *path);

/* What --from makes of a file that somebody has. */
typedef struct from_result {
    tni_text contract; /* NAME.c */
    tni_text kernels;  /* NAME.cu */
    tni_text notes;    /* what was guessed and left out, a line each, for the terminal */
    tni_text example;  /* lines of Python */
    tni_text json;     /* the operators, for programs (--json) */
} from_result;
/* from.c. false: said what is wrong. */
bool read_kernels(const char *path, const char *name, from_result *made);

#endif
