/* The contract language: what a signature says, once parsed. One parser (parse.c), one printer (print.c), one evaluator
 * that validates calls and infers outputs (bind.c). Other languages get the parsed form as JSON (json.c) and never see
 * the text. */
#ifndef TNI_CONTRACT_H
#define TNI_CONTRACT_H

#include <tenon/call.h>

#include "core/host/text.h"

enum {
    TNI_MAX_ARGS = 48,  /* inputs, outputs and attributes, each */
    TNI_MAX_NAMES = 48, /* dimensions */
    TNI_MAX_PACKS = 50, /* *r, *s … */
    TNI_MAX_TYPES = 8,  /* T, W … */
    TNI_MAX_NODES = 512,
    TNI_MAX_DEPTH = 64, /* of nested expressions */
    TNI_MAX_INTS = 64,  /* elements of an ints or axes attribute */
};

/* ---- expressions: a tree in contract->nodes ---------------------------------------------------------------------- */

typedef enum tni_node_kind {
    TNI_LIT_INT,  /* value */
    TNI_LIT_BOOL, /* value */
    TNI_LIT_STR,  /* text */
    TNI_DIM,      /* ref: dimension */
    TNI_ATTR,     /* ref: attribute */
    TNI_ATTR_AT,  /* ref: ints attribute, value: index */
    TNI_RANK,     /* ref: pack */
    TNI_ADD,
    TNI_SUB,
    TNI_MUL,
    TNI_DIV,
    TNI_MOD,
    TNI_NEG,
    TNI_EQ,
    TNI_NE,
    TNI_LT,
    TNI_LE,
    TNI_GT,
    TNI_GE,
    TNI_AND,
    TNI_OR,
    TNI_NOT,
} tni_node_kind;

typedef struct tni_node {
    tni_node_kind kind;
    int32_t left, right; /* children, -1: none; a unary one has its child at left */
    int32_t ref;
    int64_t value;
    const char *text;
} tni_node;

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

typedef enum tni_item_kind {
    TNI_ITEM_EXPR,      /* node */
    TNI_ITEM_PACK,      /* ref: pack */
    TNI_ITEM_SPREAD,    /* ref: ints attribute whose elements are the dimensions (`*shape`) */
    TNI_ITEM_BROADCAST, /* broadcast(*a, *b, rows(*c), …) */
    TNI_ITEM_ROWS,      /* rows(*a, *b, …): what they broadcast to without its last dimension, if it has one */
    TNI_ITEM_REDUCE,    /* reduce(*s, axes, keepdim): axes may be an axis or axes attribute, keepdim an attribute */
    TNI_ITEM_PERMUTE,   /* permute(*s, dims) */
    TNI_ITEM_PAD,       /* pad(*s, pad): more before and behind, a pair for each dimension from the last on */
    TNI_ITEM_REPEAT,    /* repeat(*s, repeats): dimensions so many times over, the last of both together */
    TNI_ITEM_CONCAT,    /* concat(*s, axis): *s bound by each element of a list */
    TNI_ITEM_RESIZE,    /* resize(*s, axis, n): *s with n, an expression at node, along the axis */
} tni_item_kind;

/* An operand of a shape function: a pack, or an ints attribute spread. */
typedef struct tni_seq {
    bool is_attr;
    int32_t ref;
    bool rows; /* of broadcast: rows(*s), which meets the others as a column */
} tni_seq;

typedef struct tni_item {
    tni_item_kind kind;
    bool broadcast; /* `~`: a size of 1 (and for a pack, missing leading dimensions) is fine too */
    int32_t node;
    int32_t ref;
    tni_seq a;      /* of shape functions */
    int32_t n_more; /* of broadcast and rows: further operands */
    const tni_seq *more;
    int32_t attr;      /* axes, dims or axis attribute of a shape function */
    int32_t keep_attr; /* keepdim attribute; -1: none */
} tni_item;

/* Which item list of the contract: items[first … first + count - 1]; `cond` chooses between two. */
typedef struct tni_shape {
    int32_t cond; /* node; -1: none */
    int32_t first, count;
    int32_t else_first, else_count;
} tni_shape;

/* ---- types ------------------------------------------------------------------------------------------------------- */

typedef enum tni_type_kind {
    TNI_TYPE_FIXED, /* one of mask */
    TNI_TYPE_VAR,   /* ref: type variable */
    TNI_TYPE_ATTR,  /* ref: dtype attribute */
} tni_type_kind;

typedef enum tni_type_wrap { TNI_PLAIN, TNI_ACC, TNI_COMPLEX } tni_type_wrap;

typedef struct tni_type {
    tni_type_kind kind;
    tni_type_wrap wrap;
    int32_t ref;
    uint32_t mask;
} tni_type;

typedef struct tni_typevar {
    const char *name;
    uint32_t mask;
    bool declared;   /* in <…> */
    const char *set; /* as written in <…>: "any", "i32 i64" */
} tni_typevar;

/* ---- parameters -------------------------------------------------------------------------------------------------- */

typedef enum tni_want { TNI_ALWAYS, TNI_ASKED, TNI_GRAD } tni_want;

typedef struct tni_param { /* a tensor, or a list of them */
    const char *name;
    tni_type type;
    tni_shape shape;
    bool list;
    bool optional;     /* input */
    bool inplace;      /* input */
    tni_want want;     /* output */
    int32_t want_attr; /* output: its want_<name> attribute; -1: none */
} tni_param;

typedef enum tni_attr_kind {
    TNI_A_INT,
    TNI_A_FLOAT,
    TNI_A_BOOL,
    TNI_A_STR,
    TNI_A_DTYPE,
    TNI_A_AXIS,
    TNI_A_AXES,
    TNI_A_INTS,
    TNI_A_CHOICE,
    TNI_A_ACTIVATION,
} tni_attr_kind;

typedef struct tni_attr {
    const char *name;
    tni_attr_kind kind;
    bool optional; /* `float?`: may be absent, and is when not given */
    bool has_default;
    bool implied;   /* want_<output>, not written in the signature */
    tn_value value; /* the default */
    int32_t length; /* of ints[2]; -1: any */
    int32_t n_choices;
    const char *const *choices;
    /* of axis and axes: what they count in */
    bool rank_is_seq; /* true: rank_seq, the operand of the shape function that uses it; false: the first input */
    tni_seq rank_seq;
} tni_attr;

typedef struct tni_condition {
    int32_t node;
    const char *text; /* as printed back, for the message */
} tni_condition;

typedef struct tni_contract {
    const char *name;
    int32_t n_types, n_inputs, n_outputs, n_attrs, n_dims, n_packs, n_conditions, n_order, n_nodes, n_items;
    tni_typevar types[TNI_MAX_TYPES];
    tni_param *inputs;  /* (n_inputs) */
    tni_param *outputs; /* (n_outputs) */
    tni_attr *attrs;    /* (n_attrs), the implied ones last */
    const char **dims;  /* names */
    const char **packs; /* names, without the star */
    tni_condition *conditions;
    tni_node *nodes;
    tni_item *items;
    struct {
        bool is_attr;
        int32_t index;
    } * order;          /* parameters as written, without the implied ones: (n_order) */
    bool has_lists;     /* among the inputs */
    int32_t activation; /* the attribute of that type; -1: there is none */
    void *arena;        /* owns all of the above */
} tni_contract;

/* What acc(T) and complex(T) are. */
tn_type tni_acc_type(tn_type type);     /* TN_NO_TYPE for TN_NO_TYPE */
tn_type tni_complex_type(tn_type type); /* TN_NO_TYPE where there is none */

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* tn_value.choice of an attribute of type `activation`; the others are TNI_ACT_OTHER and more. */
enum { TNI_ACT_NONE, TNI_ACT_RELU, TNI_ACT_OTHER };
/* The activations beyond 'none' and 'relu'. The language knows no operators: whoever does hands this in. */
typedef struct tni_activations {
    int16_t (*choice)(const char *name);      /* -1: there is none of that name */
    const char *(*nearest)(const char *name); /* one that is spelt nearly so; NULL: there is none */
    const char *(*next)(int *at);             /* all their names, from *at = 0 on; NULL: no more */
} tni_activations;
void tni_set_activations(const tni_activations *activations);
int16_t tni_activation_choice(const char *name); /* -1: there is none of that name */

/* ---- parsing and printing ---------------------------------------------------------------------------------------- */

/* Error messages of the parser point at the character:
 *     contract of 'softmax': expected ':' after 'mask' at column 24
 *       softmax(x: T[*s], mask bool[~*s]?)
 *                              ^                                                                                 */
tn_status tni_contract_parse(const char *signature, tni_contract **contract);
void tni_contract_free(tni_contract *contract); /* NULL is fine */
/* The input is i64[2], which seeds random numbers. */
bool tni_is_seed(const tni_contract *contract, int32_t input);

/* The signature in canonical form; parsing it again gives the same contract. Caller frees with tn_free. */
char *tni_contract_print(const tni_contract *contract);

/* ---- binding: one call checked against the contract, outputs inferred -------------------------------------------- */

/* What is known of a tensor. */
typedef struct tni_operand {
    tn_type type;         /* TN_NO_TYPE: unknown */
    int32_t ndim;         /* -1: unknown */
    const int64_t *shape; /* (ndim); -1: unknown */
} tni_operand;

typedef struct tni_dims {
    int32_t ndim;           /* -1: unknown */
    int64_t d[TN_MAX_RANK]; /* -1: unknown */
} tni_dims;

typedef struct tni_bound {
    tn_type types[TNI_MAX_TYPES]; /* TN_NO_TYPE: unknown */
    int64_t dims[TNI_MAX_NAMES];  /* -1: unknown */
    bool dim_set[TNI_MAX_NAMES];
    tni_dims packs[TNI_MAX_PACKS];
    bool pack_set[TNI_MAX_PACKS];
    tn_value attrs[TNI_MAX_ARGS];             /* complete, normalised: defaults filled, axes non-negative and sorted */
    int64_t ints[TNI_MAX_ARGS][TNI_MAX_INTS]; /* what attrs[].ints of axes and ints attributes points to */
} tni_bound;

/* The inputs of a call: operands in the signature's order, lists laid out one after the other. counts[i] is 0 where
 * input i is absent, the length for a list. */
typedef struct tni_inputs {
    const tni_operand *operands;
    const int32_t *counts; /* (n_inputs) */
} tni_inputs;

/* Checks everything that needs no data and fills `bound` and `specs` (n_outputs; NULL: not wanted). The messages are in
 * the user's terms and begin with the operator's name: "softmax: x has rank 0, needs at least 1".
 *
 * Lists: a name that only lists have is each element's own, and they agree element by element. A name that something
 * else uses too is the same for all. `bound` and the spec of a list output say what holds for the first element.
 *
 * The dims of permute(*s, dims) become non-negative, as axes do. A name that only `~` uses is what those broadcast
 * to. */
tn_status tni_bind(const tni_contract *contract, const tni_inputs *inputs, const tn_attr *attrs, int32_t n_attrs,
                   tni_bound *bound, tn_spec *specs);

/* The full shape of input i by the contract, `~` expanded: what a kernel sees. For an element of a list and for shapes
 * with unknowns it is the operand's own. Call after tni_bind. */
tn_status tni_input_shape(const tni_contract *contract, const tni_bound *bound, int32_t i, const tni_operand *operand,
                          tni_dims *full);

/* An attribute from text, as the CLI and samples write it: "axis", "-1"; "axes", "[0, 2]"; "reduction", "'sum'" or
 * "sum". Strings and ints of the value live in `arena` memory that the caller frees with tn_free. */
tn_status tni_attr_parse(const tni_contract *contract, const char *name, const char *text, tn_attr *attr,
                         void **memory);
/* All attributes of a call, "eps=1e-05 mode='sum' axes=[0, 2]": each value to its place in `attrs`. The caller frees
 * the first *n_memory of `memory` (TNI_MAX_ARGS), also after a failure. */
tn_status tni_attrs_parse(const tni_contract *contract, const char *text, tn_attr *attrs, void **memory,
                          int32_t *n_memory);

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
/* clang-format off: it would reflow this */
/* tn_function_json gives an object with the members
 *
 *   "name", "signature" (canonical), "doc", "autocast": str|null, "formula": str|null
 *   "types":   [{"name": "T", "of": ["f16", …]}]
 *   "params":  as written, implied ones last:
 *              [{"kind": "input", "name", "type": TYPE, "shape": SHAPE, "optional", "inplace", "list"} |
 *               {"kind": "attr", "name", "type": "int|float|bool|str|dtype|axis|axes|ints|choice|activation",
 *                "optional", "required", "default": value (only where there is one), "implied", "length": n|null,
 *                "choices": [str] (of choice and activation), "rank_of": SEQ|null (null: the first input)}]
 *   "outputs": [{"name", "type": TYPE, "shape": SHAPE, "want": "always"|"asked"|"grad", "want_attr": str|null, "list"}]
 *   "where":   [{"text", "expr": EXPR}]
 *   "grad":    null | "derived" (tn_gradient_json has it) |
 *              {"locals": [str], "stands_in": bool, "differentiable": [output names],
 *               "statements": [{"results": [names], "local": bool, "op": name,
 *                               "formula": str (of a called operator that is in no table: tn_fuse makes it),
 *                               "args": [{"param": name in the called operator, "attr": bool,
 *                                         "from": "input|output|doutput|attr|dim|pack|local|literal",
 *                                         "name": str | "value": value}]}]}
 *   "kernels": [{"name", "device": "cpu" …, "types": [..]}]
 *   "samples": [{"text", "tolerance", "bench", "types": {"W": "f32"}, "attrs": {name: value},
 *                "inputs": present ones, of a list input one entry per element:
 *                          [{"name", "shape": [..], "type": TYPE, "below": n|null, "positive": bool,
 *                            "order": null|"sorted"|"unique"|"permutation"|"offsets",
 *                            "along": 1 (the dimension that the order is of)}]}]
 *
 *   TYPE:  {"var": "T"} | {"fixed": ["i32", "i64"]} | {"attr": "out"}, each with "wrap": "acc"|"complex" where wrapped
 *   SHAPE: [DIM…] | {"if": EXPR, "then": [DIM…], "else": [DIM…]}
 *   DIM:   {"expr": EXPR} | {"pack": "s"} | {"spread": "shape"}, each with "broadcast": true where `~`
 *          | {"fn": "broadcast"|"rows", "of": [SEQ ("rows": true: of rows)]}
 *          | {"fn": "reduce", "a": SEQ, "axes": attr, "keepdim": attr|null}
 *          | {"fn": "permute", "a": SEQ, "dims": attr} | {"fn": "concat", "a": SEQ, "axis": attr}
 *          | {"fn": "pad", "a": SEQ, "pad": attr} | {"fn": "repeat", "a": SEQ, "repeats": attr}
 *          | {"fn": "resize", "a": SEQ, "axis": attr, "size": EXPR}
 *   SEQ:   {"pack": "s"} | {"attr": "shape"}
 *   EXPR:  3 | true | {"str": "none"} | {"dim": "n"} | {"attr": "groups"} | {"attr": "stride", "at": 0} | {"rank": "s"}
 *          | {"op": "+ - * / % neg == != < <= > >= and or not", "args": [EXPR…]} */
/* clang-format on */

void tni_contract_json(tni_text *text, const tni_contract *contract); /* "types" … "where": members without braces */

#endif
