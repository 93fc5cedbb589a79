/* What the files of the contract share with each other and with nobody else: tokens, printing of parts, evaluation. */
#ifndef TNI_CONTRACT_PARTS_H
#define TNI_CONTRACT_PARTS_H

#include "contract.h"
#include "core/host/memory.h"

/* ---- tokens (lex.c) ------------------------------------------------------------------------------------- */
enum { TNI_MAX_NAME = 63 }; /* characters of a name */
enum { TNI_FUNCTIONS = TNI_ITEM_RESIZE - TNI_ITEM_BROADCAST + 1 };

/* The kind of a token: a character for what is one character long, else one of these. */
enum {
    TNI_END = 256,
    TNI_NAME,
    TNI_INT,
    TNI_FLOAT,
    TNI_STRING, /* 'text': at and length are of the text between the quotes */
    TNI_ARROW,
    TNI_TOKEN_EQ,
    TNI_TOKEN_NE,
    TNI_TOKEN_LE,
    TNI_TOKEN_GE,
};

typedef struct tni_token {
    int kind;
    int32_t at, length;
    int64_t value; /* of TNI_INT */
    double number; /* of TNI_INT and TNI_FLOAT */
} tni_token;

typedef struct tni_lexer {
    const char *text;
    const char *what;            /* "contract", "gradient rule" */
    char name[TNI_MAX_NAME + 1]; /* the operator's, for messages; "" while unknown */
    tni_token token;             /* the current one */
} tni_lexer;

tn_status tni_lex_begin(tni_lexer *lex, const char *what, const char *name, const char *text);
tn_status tni_lex_next(tni_lexer *lex);
/* TN_BAD_CONTRACT with the message, the column and the text with a caret under it. */
tn_status tni_lex_fail(const tni_lexer *lex, int32_t at, const char *format, ...) TN_PRINTF(3, 4);
/* The same for a character that nothing begins with. */
tn_status tni_lex_unexpected(const tni_lexer *lex, int32_t at);
/* "expected `what`", at the current token. */
tn_status tni_lex_expected(const tni_lexer *lex, const char *format, ...) TN_PRINTF(2, 3);
bool tni_lex_is(const tni_lexer *lex, const char *word); /* the current token is this name */
bool tni_is_keyword(const char *text, int32_t length);

/* ---- the parser's working copy (parse.c, resolve.c) -------------------------------------------- */

/* A name and where it stands; attributes may be declared behind their use, so names are resolved at the end. */
typedef struct tni_use {
    const char *name; /* NULL: none */
    int32_t at;
    bool rows; /* written as rows(*name) */
} tni_use;

typedef struct tni_draft_item {
    tni_item item;
    tni_use a, attr, keep;
    const tni_use *more; /* (item.n_more) */
    int32_t at;
} tni_draft_item;

typedef struct tni_draft_param {
    tni_param param;
    tni_use type; /* where the type is a name */
    int32_t at;
} tni_draft_param;

typedef struct tni_draft {
    tni_lexer lex;
    tni_arena *arena;
    tni_contract *contract; /* its counts are right from the start; its arrays are made at the end of these */
    int32_t depth;          /* of the expression being parsed */
    int32_t node_at[TNI_MAX_NODES];
    uint8_t node_depth[TNI_MAX_NODES];
    tni_node nodes[TNI_MAX_NODES];
    tni_draft_item items[TNI_MAX_NODES];
    tni_draft_param inputs[TNI_MAX_ARGS], outputs[TNI_MAX_ARGS];
    tni_attr attrs[TNI_MAX_ARGS];
    int32_t attr_at[TNI_MAX_ARGS];
    tni_use types[TNI_MAX_TYPES], dims[TNI_MAX_NAMES], packs[TNI_MAX_PACKS];
    int32_t conditions[TNI_MAX_NODES];
    struct {
        bool is_attr;
        int32_t index;
    } order[2 * TNI_MAX_ARGS];
} tni_draft;

tn_status tni_draft_next(tni_draft *d);
bool tni_draft_at(const tni_draft *d, int kind);
tn_status tni_draft_take(tni_draft *d, int kind, bool *taken); /* the token where it is there */
tn_status tni_draft_expect(tni_draft *d, int kind, const char *what);
tn_status tni_draft_copy_token(tni_draft *d, const char **text);
tn_status tni_draft_take_name(tni_draft *d, const char *what, tni_use *use);
tn_type tni_draft_type_at(const tni_draft *d); /* the type that the current token names, or TN_NO_TYPE */

tn_status tni_parse_nested(tni_draft *d, int lowest, int32_t *index); /* an expression (parse_shape.c) */
tn_status tni_parse_shape(tni_draft *d, tni_shape *shape);
bool tni_at_attribute(tni_draft *d, tni_attr_kind *kind); /* parse_attr.c */
tn_status tni_parse_attribute(tni_draft *d, const tni_use *use, tni_attr_kind kind);

int32_t tni_draft_attr(const tni_draft *d, const char *name); /* -1: none */
tn_status tni_check_names(tni_draft *d);                      /* check.c */
tn_status tni_check_meaning(tni_draft *d);

/* Names become references, everything that the text alone can tell is checked, and the arrays are made. */
tn_status tni_draft_resolve(tni_draft *draft);

/* ---- printing of parts (print.c) ------------------------------------------------------------------------ */
void tni_print_node(tni_text *text, const tni_contract *contract, int32_t node);
void tni_print_shape(tni_text *text, const tni_contract *contract, const tni_shape *shape);  /* with its brackets */
bool tni_prints_alike(const tni_contract *contract, const tni_shape *a, const tni_shape *b); /* they say the same */
void tni_print_items(tni_text *text, const tni_contract *contract, int32_t first, int32_t count);
void tni_print_type(tni_text *text, const tni_contract *contract, const tni_type *type);
void tni_print_mask(tni_text *text, uint32_t mask, const char *separator, const char *last_separator);
void tni_print_value(tni_text *text, const tn_value *value); /* as a signature writes it */

/* ---- evaluation (eval.c) -------------------------------------------------------------------------------- */

/* What an expression comes to. */
typedef struct tni_result {
    bool known;
    bool unset; /* not known because nothing in this call says: an absent optional input would */
    bool real;  /* a number that need not be whole */
    int64_t value;
    double number;    /* of reals */
    const char *text; /* of strings */
} tni_result;

tn_status tni_eval(const tni_contract *contract, const tni_bound *bound, int32_t node, tni_result *result);
/* "c is 6 and groups is 4": the names in an expression and what they are. */
void tni_print_values(tni_text *text, const tni_contract *contract, const tni_bound *bound, int32_t node);
/* The dimensions of a pack or of an ints attribute. */
tn_status tni_seq_dims(const tni_contract *contract, const tni_bound *bound, tni_seq seq, tni_dims *dims, bool *unset);
/* The dimensions of a pack, spread or shape function, but for concat, which needs the inputs. */
tn_status tni_item_dims(const tni_contract *contract, const tni_bound *bound, const tni_item *item, tni_dims *dims,
                        bool *unset);
/* Which items a shape has under these attributes. */
tn_status tni_choose(const tni_contract *contract, const tni_bound *bound, const tni_shape *shape, int32_t *first,
                     int32_t *count);
/* NumPy's broadcasting; false where the two do not. */
bool tni_broadcast(tni_dims *to, const tni_dims *with);
/* What broadcast() or rows() makes of its operands' dimensions; false where the `bad`-th does not go with those
 * before. */
bool tni_broadcast_all(const tni_item *item, const tni_dims *of, tni_dims *made, int32_t *bad);
bool tni_is_sequence(const tni_item *item); /* stands for any number of dimensions */
/* broadcast or rows: the names of shape functions are tni_functions[kind - TNI_ITEM_BROADCAST]. */
bool tni_takes_packs(tni_item_kind kind);
extern const char *const tni_functions[TNI_FUNCTIONS];
void tni_print_dims(tni_text *text, int32_t ndim, const int64_t *shape); /* "(2, ?, 3)" */

/* ---- attributes (attr.c) -------------------------------------------------------------------------------- */
/* Fills bound->attrs: names, kinds, values, defaults. Axes are still as given. */
tn_status tni_bind_attrs(const tni_contract *contract, const tn_attr *attrs, int32_t n_attrs, tni_bound *bound);
/* Makes axes non-negative, given the rank they count in (-1: unknown) and whose it is ("x", "shape"). */
tn_status tni_bind_axes(const tni_contract *contract, int32_t attr, int32_t rank, const char *whose, tni_bound *bound);
/* What an attribute takes: "an int", "one of 'a', 'b'" … */
void tni_print_attr_kind(tni_text *text, const tni_attr *attr);
/* Converts a value to what the attribute holds; ints are left where they are. The message begins with `who: `. */
tn_status tni_attr_accept(const char *who, const tni_attr *attr, const tn_value *given, tn_value *value);
extern const tni_activations *tni_known_activations;                     /* NULL: 'none' and 'relu' alone */
int32_t tni_attr_named(const tni_contract *contract, const char *name);  /* -1: none */
int32_t tni_input_named(const tni_contract *contract, const char *name); /* -1: none */
int32_t tni_output_named(const tni_contract *contract, const char *name);
tn_status tni_attr_unknown(const tni_contract *contract, const char *name); /* the failure, with what may be meant */

/* ---- one call being checked (bind.c, bind_shape.c) --------------------------------------------- */

typedef struct tni_binder {
    const tni_contract *c;
    const tni_inputs *in;
    tni_bound *b;
    int32_t start[TNI_MAX_ARGS];                               /* the first operand of input i */
    int32_t first[TNI_MAX_ARGS], count[TNI_MAX_ARGS];          /* its items under these attributes */
    int32_t dim_from[TNI_MAX_NAMES], pack_from[TNI_MAX_PACKS]; /* the operand that said it; -1: none */
    bool soft_dim[TNI_MAX_NAMES], soft_pack[TNI_MAX_PACKS];    /* bound by `~` alone, so it may still grow */
    bool each_dim[TNI_MAX_NAMES], each_pack[TNI_MAX_PACKS];    /* bound anew by each element of the lists */
} tni_binder;

/* Everything about shapes: binds dimensions and packs, makes axes non-negative, checks every input. */
tn_status tni_bind_shapes(tni_binder *binder);
/* The dimensions that a chosen item list stands for. `what` is the output's name. */
tn_status tni_output_dims(const tni_binder *binder, const tni_param *output, tni_dims *dims);
/* The dimensions of concat(*s, axis), over all elements of the list. */
tn_status tni_concat_dims(const tni_binder *binder, const tni_item *item, tni_dims *dims);
/* Finds the one open dimension of an expression on an input such that it is `size` (solve.c). */
tn_status tni_solve(tni_binder *binder, int32_t operand, int32_t root, int64_t size);
int tni_open_dims(const tni_binder *binder, int32_t node);    /* in an expression, each occurrence counted */
bool tni_has_unknown(const tni_binder *binder, int32_t node); /* something in it is bound, but to a size not known */
/* Binds what is not bound in it to an unknown size; false where there was nothing. */
bool tni_give_up(tni_binder *binder, int32_t operand, int32_t node);
void tni_set_dim(tni_binder *binder, int32_t operand, int32_t dim, int64_t size);
/* "layer_norm: gamma has shape (5)" */
void tni_begin_message(tni_text *text, const tni_binder *binder, int32_t operand);
/* "x" or "xs[2]" */
void tni_print_operand(tni_text *text, const tni_binder *binder, int32_t operand);

/* ---- JSON (json.c) -------------------------------------------------------------------------------------- */
void tni_json_value(tni_text *text, const tn_value *value);
void tni_json_type(tni_text *text, const tni_contract *contract, const tni_type *type); /* with its key "type" */

#endif
