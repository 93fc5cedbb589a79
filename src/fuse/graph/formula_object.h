/* The formula object: a contract, a graph, and which dimensions of the arguments belong together. */
#ifndef TNI_FUSE_FORMULA_OBJECT_H
#define TNI_FUSE_FORMULA_OBJECT_H

#include "graph.h"

/* ---- the object -------------------------------------------------------------------------------------------------- */

typedef struct tni_fuse_output {
    int32_t node;
    int32_t inplace; /* the input that it updates; -1: an output of the contract */
} tni_fuse_output;

/* An attribute can divide what the contract has one name for. `axes: axes`, or `axis: axis`, divides *s into the
 * dimensions that it lists and all others; `groups: int` with `where c % groups == 0` divides c into `groups` and
 * `c / groups`. The two parts are items, one behind the other. */
typedef enum tni_part {
    TNI_WHOLE,       /* the item is no part of anything */
    TNI_PART_LISTED, /* the dimensions of a pack that the attribute lists */
    TNI_PART_OTHERS, /* and the others, of which there is the item behind */
    TNI_PART_GROUPS, /* so many groups as the attribute says */
    TNI_PART_MEMBERS /* and what each of them has */
} tni_part;

/* How dimensions of arguments find each other. */
typedef struct tni_axes {
    bool numpy; /* to the right, by position; else by the items below */
    bool tails; /* by position, and what is [*p, n] has the last dimension; [*p] has not */
    bool list;  /* lists of tensors: what they hold is one long row, over all of them */
    int32_t n_items;
    struct {
        const char *key; /* "*s", "n", "2 * n"; "~b": what the input b: T[~*s] has of *s, by position only; of parts:
                          * "axes" and "*s / axes", "groups" and "c / groups" */
        bool pack;
        bool loose; /* no argument says whether it stands before or behind some other: it has no number */
        tni_part part;
        const char *whole; /* of parts: "*s", "c" */
        int32_t attr;      /* which divides it */
        /* By name: its size, where that is linear in dimensions; of T[n, n] there are two of one size. Behind the
         * contract's items are those of parts, x[1:], which no argument has. */
        bool sized;
        tni_size size;
        int32_t nth;    /* of its size: 0, or 1 for the second n of T[n, n] */
        int32_t source; /* the item that it was first a part of; -1: none */
    } items[TNI_MAX_ARGS];
    int32_t n_own; /* those of the contract */
} tni_axes;

typedef struct tni_fuse tni_fuse;
struct tni_scanning;
struct tni_fuse {
    tni_contract *contract;
    bool signed_by_user;
    bool fast;
    bool detaches;   /* its text has detach(…): its gradient is not its slope then */
    bool takes_bits; /* of an input without a type: it is no float then */
    /* Without a signature: how many dimensions axes name from the front, and from the end. */
    int32_t n_front, n_back;
    bool takes_parts; /* and it is read again with a contract, which `signature` begins: f(x: T[dim0, *dims]) */
    char *signature, *whole;
    int32_t statements;  /* where they begin in the text */
    bool names_axes;     /* one of them is not the last: the dimensions need names */
    uint64_t said_attrs; /* attributes of the signature whose names are in the formula's text, as bits */
    int32_t n_known;     /* rows that the table had: activations that were added later are not in the graph */
    /* The formula of an operator that is one: a formula may call rows of the table. */
    tn_status (*formula_of)(const tn_function *op, const tni_fuse **formula);
    const struct tni_scanning *scanning;
    tni_graph graph;
    struct tni_steps *steps; /* where it calls operators of the table; NULL: it is one piece */
    tni_axes axes;
    int32_t n_outputs; /* the contract's outputs in order, then the inputs that are updated */
    tni_fuse_output outputs[2 * TNI_MAX_ARGS];
    /* By position: arguments that meet as single numbers only have dimensions of their own. Rows go along those of the
     * last group. */
    int32_t n_groups;
    uint8_t in_group[TNI_MAX_ARGS], out_group[2 * TNI_MAX_ARGS];
    int32_t n_windows;
    tni_window *windows; /* (TNI_WINDOWS) in the arena; NULL: there are none */
    tni_arena *arena;
};

/* ---- recurrences.c: scans along a dimension ---------------------------------------------------------------------- */

/* scan('a * s + x', axis=t) is a call of an operator that is in no table. Its step is a formula of `s`, what there is
 * so far, and of values by their names. The first value, or one called "-" that is in no step, has all dimensions and
 * the type of the result. */
enum {
    TNI_SCAN_VALUES = 7,
    TNI_SCAN_START = TNI_SCAN_VALUES, /* the input that s begins with; the values come before it */
};
enum { TNI_SCAN_Y, TNI_SCAN_BEFORE, TNI_SCAN_LAST }; /* outputs: s behind each step, before */
enum { TNI_SCAN_STEP, TNI_SCAN_NAMES, TNI_SCAN_AXIS, TNI_SCAN_REVERSE, TNI_SCAN_FIRST }; /* attributes */
typedef struct tni_scan_call {
    const char *step, *names; /* "a * s + x", "x a" */
    int32_t n, values[TNI_SCAN_VALUES];
    int32_t start; /* a node; -1: the number `first` */
    double first;
    int32_t axis; /* of the operator */
    bool reverse;
    int32_t output, along;
    void *memory[TNI_MAX_ARGS]; /* of one that tni_scan_of made */
    int32_t n_memory;
} tni_scan_call;
/* What a formula knows of the operator, handed in by whoever makes it. */
typedef struct tni_scanning {
    const tn_function *(*make)(void); /* NULL: no memory */
    tn_status (*parse)(const char *text, tni_fuse **made);
    void (*free)(tni_fuse *formula);
} tni_scanning;
/* A value that has no type of its own, as where(c, 1, 0.5), in one that loses nothing. */
int32_t tni_scan_typed(tni_graph *g, int32_t node);
int32_t tni_scan_node(tni_graph *g, const tni_scanning *how, const tni_scan_call *call);
tn_status tni_scan_of(const tni_graph *g, int32_t node, tni_scan_call *made);
void tni_scan_free(tni_scan_call *call); /* one that tni_scan_of made */
/* The first name of a list of them, which then begins behind it; false: there is none. */
bool tni_scan_next_name(const char **names, char *name); /* TNI_MAX_NAME + 1 */
/* The step, a formula of s and the values with one output. types: what T may be, "i32 i64"; "": any float. */
tn_status tni_scan_step(const tni_scanning *how, const char *step, const char *names, const char *types,
                        tni_fuse **made);

/* ---- windows.c: parts of values, along dimensions with names ----------------------------------------------------- */

/* The item of this size that is none of `taken`: one of the contract, or a new one. -2: there are too many. */
int32_t tni_item_of_size(tni_fuse *formula, const tni_size *size, uint64_t taken, int32_t source);
/* The item, where nobody has said so before, is a part of another one: it has its place. */
void tni_note_part(tni_fuse *formula, int32_t item, int32_t of);
/* A window and its reverse; -1: there are too many, or no memory. */
int32_t tni_add_window(tni_fuse *formula, tni_window window);
/* What is written for an axis: "n", "s" of *s, "size(n - 1)", "size(n, 2)". NULL: no memory. */
const char *tni_item_text(const tni_fuse *formula, int32_t item);
/* The items of a value in their order: a part stands where the whole would. */
int32_t tni_items_in_order(const tni_axes *axes, uint64_t items, int32_t *made);

/* ---- axes.c ------------------------------------------------------------------------------------------------------ */

/* The items of a formula whose contract is there. */
tn_status tni_make_axes(tni_fuse *formula, tni_axes *axes);
/* What one entry of a parameter's shape is in terms of the formula's items. */
typedef struct tni_entry {
    int32_t item; /* -1: a literal 1 */
    bool both;    /* the item and the one behind it: all of what they are parts of */
    int32_t keep; /* reduce(*s, axes, keepdim), which is an item TNI_PART_OTHERS: the attribute keepdim; -1: none */
} tni_entry;
/* Those of a parameter in their order, at most TN_MAX_RANK. */
tn_status tni_param_entries(const tni_fuse *formula, const tni_param *param, tni_entry *entries, int32_t *count);
/* The item of this name, or the parts of what has this name, as bits. */
uint32_t tni_items_named(const tni_axes *axes, const char *name, int32_t length);
/* The same as bits of the graph's items. */
tn_status tni_param_extent(const tni_fuse *formula, const tni_param *param, tni_extent *extent);
/* It has all but the last dimension; `ranks` of the inputs (-1: absent) decide of broadcast(*a, rows(*b)). */
bool tni_is_row(const tni_fuse *formula, const tni_param *param, const int32_t *ranks);
bool tni_broadcasts(const tni_contract *contract, const tni_shape *shape);
/* broadcast() or rows(), and nothing else */
bool tni_is_shape_function(const tni_contract *contract, const tni_shape *shape);
tn_status tni_find_groups(tni_fuse *formula); /* when the graph and the outputs are there */
/* A kernel sees `~` inputs in the shape of all: reductions must be of the whole shape. */
tn_status tni_check_reductions(const tni_fuse *formula);
/* How many arguments of a node it makes a difference for that they have their own shape, not one repeated. */
int tni_n_measured(const tni_gnode *node);
int tni_param_type(const tni_type *type);

/* ---- specialize.c ------------------------------------------------------------------------------------------------ */

/* The graph of one call: types known, attributes constants, absent inputs gone. */
typedef struct tni_specialized {
    tni_graph graph;
    int32_t n_outputs;
    int32_t outputs[4 * TNI_MAX_ARGS]; /* nodes; -1: not wanted. parts.c makes several of one */
} tni_specialized;
typedef struct tni_call_form {
    tn_type types[TNI_MAX_ARGS]; /* of inputs; TN_NO_TYPE: absent */
    const tn_value *attrs;
    bool wanted[2 * TNI_MAX_ARGS];
    tn_type made[2 * TNI_MAX_ARGS]; /* what outputs are stored as */
} tni_call_form;
tn_status tni_specialize(const tni_fuse *formula, const tni_call_form *given, tni_specialized *made);

#endif
