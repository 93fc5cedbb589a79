/* The command line: a table of verbs, a table of options for each, and how text reaches the terminal. */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <tenon/status.h>

/* All of it: the program itself is a few lines around this (main.c). */
TN_API int tni_command(int argc, char **argv);

/* ---- verbs ------------------------------------------------------------------------------------------------------- */

typedef enum option_kind { FLAG, TEXT, NUMBER, POSITIVE } option_kind; /* NUMBER: 0 or more */

typedef struct option {
    const char *name;  /* "--dtype" */
    const char *value; /* what follows, for the help: "f32,bf16"; NULL for flags */
    const char *help;
    option_kind kind;
    void *to; /* bool, const char * or int64_t */
} option;

typedef struct verb {
    const char *name;
    const char *summary;   /* a line for `tenon help` */
    const char *examples;  /* lines "command\tcomment" */
    const char *text;      /* paragraphs behind the options; NULL: none */
    const option *options; /* {0} ends */
    bool takes_text;       /* arguments are formulas, which may begin with '-' */
    int (*run)(int count, const char *const *rest);
    void (*more)(void); /* prints what the help of the verb ends with; NULL: nothing */
} verb;

extern const verb verb_ops, verb_check, verb_bench, verb_fuse, verb_devices, verb_doctor, verb_flags, verb_tune;
const verb *const *all_verbs(void); /* NULL ends */

/* A page of docs/ for `tenon help NAME`, in Markdown: made by cmake/help.cmake. */
typedef struct topic {
    const char *name, *about, *text;
} topic;
extern const topic topics[];               /* {0} ends */
const topic *find_topic(const char *name); /* NULL: there is none */
void print_topic(const topic *t);

/* The exit status of a command that was not understood. */
enum { EXIT_USAGE = 2 };

/* " --load a.so --load b.so": what a command that reproduces this one needs as well. */
const char *loaded_plugins(void);
/* Where in the table the operators of --load begin. */
int first_loaded(void);
/* The whole command, as the user wrote it. */
const char *command_text(void);

/* Says what is wrong and where to look; returns EXIT_USAGE. */
int usage_error(const verb *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads options into their places, everything else into rest. 0: go on; -1: help was shown; else the exit status. */
int parse_options(const verb *v, int argc, char **argv, const char **rest, int *count);
void print_help(const verb *v);
/* Of the names the one that a person most likely meant; NULL: none is near. names ends with NULL. */
const char *nearest_name(const char *name, const char *const *names);

/* ---- the terminal ------------------------------------------------------------------------------------------------ */

typedef enum style { PLAIN, BOLD, DIM, RED, GREEN, YELLOW } style;
/* The escape sequence, or "" where standard output is no terminal or NO_COLOR is set. */
const char *style_text(style s);
int terminal_width(void);   /* 100 where there is none */
bool progress_wanted(void); /* standard error is a terminal */
/* Prints text wrapped to the terminal, every line but the first indented. `column`: where the first line begins. */
void print_wrapped(const char *text, int column, int indent);
void heading(const char *text);
/* A contract, and a formula, with what does not fit on a line on several. */
void print_signature(const char *text);
void print_formula(const char *text);

#endif
