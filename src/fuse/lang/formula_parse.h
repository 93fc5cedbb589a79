/* What the files of the parser share: expressions (parse_expr.c), calls of functions (parse_call.c) and statements
 * (parse.c). The graph is made on the way; there is no tree in between. */
#ifndef TNI_FUSE_PARSE_H
#define TNI_FUSE_PARSE_H

#include "formula_lex.h"

enum { TNI_MOST_PIECES = 16 };                            /* that a statement takes a value apart into */
enum { TNI_OWN_FUNCTIONS = 64, TNI_FUNCTION_INPUTS = 8 }; /* that a formula defines, and what one takes, at most */

/* f(a, b) = a * b: each call reads the text again, with values for a and b. */
typedef struct tni_own_function {
    const char *name;
    int32_t n_inputs, at; /* at: where its expression begins */
    const char *inputs[TNI_FUNCTION_INPUTS];
} tni_own_function;

typedef struct tni_named {
    const char *name; /* "": free */
    int32_t node;
    int32_t input; /* of the scope or the contract; -1: a local */
    int32_t call;  /* of the function whose input it is; 0: the formula's own */
    bool used;
    int32_t at; /* where it is assigned */
} tni_named;

typedef struct tni_parser {
    tni_lexer lex;
    tni_graph *g;
    tni_fuse *formula; /* NULL: a template */
    tni_scope *scope;
    bool typed;         /* there is a signature with types */
    bool named;         /* there is none, and the dimensions have names: axes are reduced */
    tni_contract *bare; /* of a signature of bare names: its attributes, and nothing else that counts; NULL: none */
    int32_t n_names;
    tni_named names[TNI_FUSE_NAMES];
    int32_t n_functions;
    tni_own_function functions[TNI_OWN_FUNCTIONS];
    int32_t n_known; /* functions that can be called here: those before the one whose text is read */
    int32_t call;    /* of a function whose text is read; 0: none */
    int32_t n_calls;
    int32_t depth;        /* of recursion */
    int32_t brackets;     /* open ones: line ends are blanks inside */
    bool index_input;     /* a new name is an input of integers: an operator takes it as an index */
    bool want_truth;      /* the expression that begins here is a condition */
    bool read_pi, read_e; /* as constants: they are none of the formula's names any more */
    int32_t n_targets;    /* of `a, b = halves(x)`; 0: one value is wanted */
    int32_t n_pieces, pieces[TNI_MOST_PIECES];
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

/* formula_reach.c: what stands in the brackets of a call. Axes that a reduction is given: bits by their number from the
 * front, from the end (bit 0: the last), or of items. */
enum { TNI_MOST_ARGUMENTS = 3 };
typedef struct tni_axes_given {
    bool any;
    uint32_t front, back, items;
} tni_axes_given;
typedef struct tni_arguments {
    int32_t count, nodes[TNI_MOST_ARGUMENTS];
    tni_axes_given axes; /* behind the first one */
    int32_t axes_at;
} tni_arguments;
/* Up to the bracket and over it. `reduction`: axes may stand behind the first one. */
tn_status tni_parse_arguments(tni_parser *p, const char *name, bool reduction, tni_arguments *made);
/* `-1 )`, `axis=[0, 2] )`, `n )`: up to the bracket; nothing where no axes stand here. */
tn_status tni_take_reach(tni_parser *p, const char *name, tni_arguments *args);
tn_status tni_take_axis(tni_parser *p, const char *name, tni_axes_given *made); /* one of them: -1, n */
/* The tni_reach of the axes; argument 0, where there is one (not -1), must have them. */
tn_status tni_reach_of(tni_parser *p, const char *name, const tni_arguments *args, int *reach);
/* The formula of a row of the table at some values. */
typedef struct tni_row_call {
    const tn_function *op;
    const int32_t *inputs; /* -1: absent */
    const int32_t *own;    /* attributes that are those of the formula: nodes; -1: they are numbers */
    const tn_value *attrs; /* not set: the default */
    int32_t output;
    int32_t last; /* the item that rows go along; -1: the last dimension, whatever its name */
} tni_row_call;
/* One of single elements, as elu, or one that goes along rows, as rms_norm. done: it can be a part of this formula. */
tn_status tni_inline_rows(tni_parser *p, const tni_token *at, const tni_row_call *call, bool *done, int32_t *node);
tn_status tni_close_call(tni_parser *p, const char *what);
tn_status tni_wrong_count(tni_parser *p, const tni_token *at, const char *name, int wanted, int given);

/* formula_functions.c: f(a, b) = … where a statement begins, and calls of it, behind the '(' */
bool tni_at_definition(const tni_parser *p);
tn_status tni_parse_definition(tni_parser *p);
const tni_own_function *tni_own_named(const tni_parser *p, const char *name); /* NULL: none */
tn_status tni_parse_own_call(tni_parser *p, const tni_own_function *function, const tni_token *at, int32_t *node);
/* formula_coarse.c: operators of the table on whole tensors; NULL: there is none that formulas can call */
const tn_function *tni_coarse_named(const tni_parser *p, const char *name);
tn_status tni_parse_coarse(tni_parser *p, const tni_token *at, const tn_function *op, int32_t *node);
/* formula_scan.c: scan('a * s + x', axis=t), reduce('max(s, x)'), behind the '(' */
tn_status tni_parse_scan(tni_parser *p, const tni_token *at, bool reduces, int32_t *node);
/* table[i]: rows of a matrix; at the name */
bool tni_at_lookup(const tni_parser *p);
tn_status tni_parse_lookup(tni_parser *p, int32_t *node);
bool tni_begins_list(const tni_parser *p); /* behind this token */
void tni_go_to_list(tni_parser *p);        /* to the '[' behind it: elsewhere there are no lists */
/* Of every function, one after the other; "" where there is none, NULL at the end. */
const char *tni_function_name(int index);
bool tni_is_reserved(const char *name); /* a word of the language, or a number that has no other name */
tn_status tni_fail_with(tni_parser *p, int32_t at, tni_text *text); /* which it frees */
const tni_contract *tni_parse_attrs(const tni_parser *p);           /* whose attributes can be named; NULL: none */

/* formula_parts.c: n - k, c / 2 */
tn_status tni_parse_size(tni_parser *p, tni_size *made);
tn_status tni_size_too_large(const tni_parser *p, int32_t at);

/* formula_parts.c: x[1:] from the '[' on, shift(x, 1, n) and others behind the '(' */
tn_status tni_parse_subscript(tni_parser *p, int32_t *node);
bool tni_is_part_function(const char *name);
tn_status tni_parse_part_call(tni_parser *p, const tni_token *name, const char *text, int32_t *node);
/* size(n - 1): the item of this size, where an axis stands */
tn_status tni_parse_sized_axis(tni_parser *p, bool *taken, int32_t *item);

/* ---- formula_parts.c, formula_part_calls.c: parts of values ------------------------------------------------------ */

/* The dimensions of a value. */
typedef struct tni_value_dims {
    uint64_t single;              /* items that a part of one element took away */
    uint64_t reduced;             /* and those that a reduction took */
    int32_t n, item[TN_MAX_RANK]; /* -1: a size of 1 */
    int32_t root[TN_MAX_RANK];    /* what they are parts of */
} tni_value_dims;

tn_status tni_value_dims_of(const tni_parser *p, int32_t node, tni_value_dims *made);
int32_t tni_root_of(const tni_axes *axes, int32_t item);
int32_t tni_traced(const tni_parser *p, int32_t node, int32_t item);
bool tni_is_single(const tni_parser *p, int32_t node, int32_t item);
tni_size tni_size_of_item(const tni_parser *p, int32_t item);

/* Is it clear which dimension is meant, and can parts of it be taken? */
tn_status tni_need_names(const tni_parser *p, int32_t at);
tn_status tni_check_number(const tni_parser *p, int32_t at, const tni_value_dims *dims, int32_t k, bool back);
tn_status tni_check_axis(const tni_parser *p, int32_t at, int32_t node, int32_t item);
tn_status tni_pass_axis_word(tni_parser *p);
tn_status tni_take_part_axis(tni_parser *p, int32_t node, int32_t *item);

tn_status tni_make_part(tni_parser *p, tni_prim op, tni_window window, int32_t a, int32_t b, int32_t *node);
/* Elements begin … end - 1, of which one of `step` is taken (0: each). */
typedef struct tni_range {
    tni_size begin, end;
    int32_t step;
    bool last; /* behind it nothing may be left */
} tni_range;
tn_status tni_take_range(tni_parser *p, int32_t at, int32_t item, tni_range part, int32_t *node);

/* The item that a value has of this one, or of a part of it; -1: neither. */
int32_t tni_item_or_part(const tni_parser *p, int32_t node, int32_t item);
/* Dimension k of a value, from the front or from the end; -1: it has none, or it has no name. */
tn_status tni_item_at(const tni_parser *p, int32_t at, int32_t node, bool back, int32_t k, int32_t *item);

/* formula_hints.c: what was meant, or how it is written */
void tni_hint_function(tni_text *text, const char *name);
void tni_hint_value(tni_text *text, const tni_parser *p, const char *name);
const char *tni_hint_word(const char *name); /* for what is no name of anything: True, None; NULL: it may be one */

/* formula_foreign.c: what other languages write */
tn_status tni_fail_behind(const tni_lexer *lex, int32_t statement); /* what stands behind the whole of a statement */
tn_status tni_fail_comma(const tni_lexer *lex);
tn_status tni_check_words(const tni_lexer *lex, int32_t at);  /* `return` at this place, in front of a value, is none */
tn_status tni_fail_bracket(const tni_lexer *lex, int32_t at); /* a '[' that stands behind no value */
bool tni_defines_function(const char *text);                  /* it begins f(…) = */

tni_named *tni_find_name(tni_parser *p, const char *name);
bool tni_names_value(tni_parser *p, const char *name); /* of the signature, or assigned before */
tn_status tni_add_name(tni_parser *p, const char *name, int32_t node, int32_t input);
tn_status tni_new_input(tni_parser *p, int32_t at, const char *name, bool is_bool, bool is_seed, tni_named **made);
tn_status tni_value_of(tni_parser *p, const tni_token *token, int32_t *node); /* of a name */

#endif
