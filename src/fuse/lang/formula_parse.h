/* What the files of the parser share: expressions (parse_expr.c), calls of functions (parse_call.c) and statements
 * (parse.c). The graph is made on the way; there is no tree in between. */
#ifndef TNI_FUSE_PARSE_H
#define TNI_FUSE_PARSE_H

#include "formula_lex.h"

typedef struct tni_named {
    const char *name;
    int32_t node;
    int32_t input; /* of the scope or the contract; -1: a local */
    bool used;
} tni_named;

typedef struct tni_parser {
    tni_lexer lex;
    tni_graph *g;
    tni_fuse *formula; /* NULL: a template */
    tni_scope *scope;
    bool typed; /* there is a signature */
    int32_t n_names;
    tni_named names[TNI_FUSE_NAMES];
    int32_t depth;        /* of recursion */
    int32_t brackets;     /* open ones: line ends are blanks inside */
    bool want_truth;      /* the expression that begins here is a condition */
    const int32_t *nodes; /* of a template: a, b, c, y, d */
    int kind;             /* of a template: how far reductions reach */
} tni_parser;

tn_status tni_parse_next(tni_parser *p);
bool tni_parse_at(const tni_parser *p, int kind);
tn_status tni_parse_take(tni_parser *p, int kind, bool *taken);
tn_status tni_parse_copy_name(tni_parser *p, const char **name); /* of the current token, which stays */
/* Failures of the graph, with the place. */
tn_status tni_parse_made(const tni_parser *p, int32_t node);

tn_status tni_parse_expression(tni_parser *p, int32_t *node);
/* A condition: a name that is new and stands alone is an input of type bool. */
tn_status tni_parse_condition(tni_parser *p, int32_t *node);
tn_status tni_parse_call(tni_parser *p, const tni_token *name, int32_t *node); /* behind the '(' */
bool tni_is_function(const char *name);
bool tni_is_reserved(const char *name); /* a word of the language, or a constant */
/* Fails with this text, which it frees, and the nearest name: of a function, or of a value. `name` NULL: with none. */
tn_status tni_fail_near(tni_parser *p, int32_t at, tni_text *text, const char *name, bool functions);

tni_named *tni_find_name(tni_parser *p, const char *name);
tn_status tni_add_name(tni_parser *p, const char *name, int32_t node, int32_t input);
tn_status tni_new_input(tni_parser *p, const char *name, bool is_bool, bool is_seed, tni_named **made);
tn_status tni_value_of(tni_parser *p, const tni_token *token, int32_t *node); /* of a name */

#endif
