/* `tenon new --from kernel.cu`: what can be known of kernels from their text. The text is not compiled; it is read as a
 * person would skim it, and whatever is guessed is said. */
#ifndef CLI_FROM_H
#define CLI_FROM_H

#include "core/host/memory.h"
#include "core/host/text.h"
#include "text/params.h"

/* ---- tokens (from_tokens.c) -------------------------------------------------------------------------------------- */

typedef enum token_kind { END, WORD, NUMERAL, SIGN } token_kind;

typedef struct token {
    const char *s;
    int n;
    token_kind kind;
} token;

typedef struct tokens {
    token *at; /* behind the last one is one of kind END */
    int n;
} tokens;

/* Of clean text (tni_blank_text). */
tokens read_tokens(tni_arena *arena, const char *begin, const char *end);
bool token_is(const token *t, const char *text);
bool token_is_one_of(const token *t, const char *const *texts); /* NULL ends */
bool same_token(const token *a, const token *b);
/* The place of the bracket that closes the one at i; the end where none does. */
int closing(const tokens *all, int i);
/* The end of an expression that begins at i: the first ',' ';' ')' '}' ']' that is not inside of it. */
int end_of_expression(const tokens *all, int i);
tokens part(const tokens *all, int begin, int end);
/* Without spaces: "x.size(0)". */
char *joined(tni_arena *arena, const tokens *t);
/* What `word` is set to where it is declared: `int word = …;`. An empty part where it is not. */
tokens definition(const tokens *all, const char *word, int length);

/* ---- what is found ----------------------------------------------------------------------------------------------- */

enum { MOST_DIMS = 6, MOST_NAME = 64 };

typedef enum role {
    INPUT,
    OUTPUT,
    UPDATED,   /* read and written */
    LENGTH,    /* a dimension, or the product of several */
    ATTRIBUTE, /* a number */
    STRANGE    /* nothing that Tenon has: `why` says what */
} role;

typedef struct guess {
    const tni_cparam *param;
    role role;
    char type[16];   /* in the contract: "f32", "T", "float" */
    char shape[192]; /* "*n", "rows, cols"; of tensors */
    int n_dims;      /* how many of the next are known */
    char dims[MOST_DIMS][MOST_NAME];
    bool has_shape, is_partial; /* partial: any number of dimensions may stand in front */
    bool is_accumulated;        /* added to: `+=`, atomicAdd */
    char why[240];
} guess;

/* A launch, `name<<<grid, block>>>(…)`, and the function of the host that it is in. */
typedef struct launch_site {
    bool found;
    tokens grid, block, shared, templates; /* templates: between < and > */
    tokens arguments[TNI_MOST_PARAMS];
    int n_arguments;
    const char *host; /* its name; "": none */
    tokens host_params, host_body;
} launch_site;

typedef struct from_kernel {
    const tni_cfunction *function;
    char op[MOST_NAME];
    guess guesses[TNI_MOST_PARAMS];
    int n;
    tokens body;
    launch_site site;
    tni_text launch;     /* the line */
    bool launch_is_read; /* from <<<…>>>, not guessed */
    tni_text formula;    /* empty: none could be told */
    tni_text signature;
    char stands_in_the_way[320]; /* "": nothing */
} from_kernel;

typedef struct from_file {
    const char *path, *text, *clean;
    tokens all; /* of the whole file */
    tni_arena *arena;
    tni_cfunctions functions;
    from_kernel *kernels;
    int n;
} from_file;

/* ---- who finds it ------------------------------------------------------------------------------------------------ */

void find_launch(const from_file *file, from_kernel *k);                      /* from_site.c */
void guess_launch(const from_file *file, from_kernel *k);                     /* from_launch.c */
void guess_roles(const from_file *file, from_kernel *k);                      /* from_roles.c */
void guess_shapes(const from_file *file, from_kernel *k);                     /* from_shapes.c */
void guess_formula(const from_file *file, from_kernel *k);                    /* from_formula.c */
void write_signature(from_kernel *k);                                         /* from_write.c */
void write_device_text(const from_file *file, tni_text *to, tni_text *notes); /* from_device.c */

guess *find_guess(from_kernel *k, const token *t);
/* An object-like macro, or a constant of the file: its value; an empty part where there is none. */
tokens constant_of(const from_file *file, const token *t);

#endif
