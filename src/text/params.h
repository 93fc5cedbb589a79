/* Functions in a text of CUDA C or C: their names and parameters, as far as a caller must know them. */
#ifndef TNI_TEXT_PARAMS_H
#define TNI_TEXT_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/host/memory.h"
#include <tenon/status.h>

enum { TNI_MOST_PARAMS = 64 };

typedef struct tni_cparam {
    const char *type; /* as written, without const, volatile, __restrict__, * and &: "float", "T", "unsigned int" */
    const char *name; /* "": it has none */
    int pointers;     /* `*`s and `[]`s */
    bool is_const;    /* what it points to */
    int32_t line, at, length; /* where it stands in the text; lines count from 1 */
} tni_cparam;

typedef struct tni_cfunction {
    const char *name;
    const char *templates; /* the parameters of its template, "class T, int N = 4"; NULL: it is none */
    int32_t n_params, line;
    tni_cparam *params;
    int32_t body, end; /* from '{' to behind '}' */
    bool is_static;
} tni_cfunction;

typedef struct tni_cvariable {
    const char *name;
    int32_t line;
} tni_cvariable;

typedef struct tni_cfunctions {
    int32_t n, n_constants;
    tni_cfunction *functions; /* with a body, in the text's order */
    tni_cvariable *constants; /* `__constant__` ones */
} tni_cfunctions;

/* The `__global__` functions of a text of CUDA C, or with `host` those that C calls. What is found is the arena's. */
tn_status tni_find_functions(const char *text, bool host, tni_arena *arena, tni_cfunctions *found);
/* The text with comments, strings and lines of the preprocessor blank: same length, same lines. */
char *tni_blank_text(const char *text, tni_arena *arena);
int32_t tni_line_of(const char *text, int32_t at);

#endif
