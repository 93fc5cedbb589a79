/* The formula object: a contract, a graph, and which dimensions of the arguments belong together. */
#ifndef TNI_FUSE_FORMULA_OBJECT_H
#define TNI_FUSE_FORMULA_OBJECT_H

#include "graph.h"

/* ---- the object -------------------------------------------------------------------------------------------------- */

typedef struct tni_fuse_output {
    int32_t node;
    int32_t inplace; /* the input that it updates; -1: an output of the contract */
} tni_fuse_output;

/* How dimensions of arguments find each other. */
typedef struct tni_axes {
    bool numpy; /* to the right, by position; else by the items below */
    bool tails; /* by position, and what is [*p, n] has the last dimension; [*p] has not */
    bool list;  /* lists of tensors: what they hold is one long row, over all of them */
    int32_t n_items;
    struct {
        const char *key; /* "*s", "n", "2 * n"; "~b": what the input b: T[~*s] has of *s, by position only */
        bool pack;
    } items[TNI_MAX_ARGS];
} tni_axes;

typedef struct tni_fuse tni_fuse;
struct tni_fuse {
    tni_contract *contract;
    bool signed_by_user;
    bool fast;
    bool detaches;   /* its text has detach(…): its gradient is not its slope then */
    bool takes_bits; /* of an input without a type: it is no float then */
    /* Without a signature: how many dimensions axes name from the front, and from the end. */
    int32_t n_front, n_back;
    bool names_axes; /* one of them is not the last: the dimensions need names */
    int32_t n_known; /* rows that the table had: activations that were added later are not in the graph */
    /* The formula of an operator that is one: a formula may call rows of the table. */
    tn_status (*formula_of)(const tn_function *op, const tni_fuse **formula);
    tni_graph graph;
    tni_axes axes;
    int32_t n_outputs; /* the contract's outputs in order, then the inputs that are updated */
    tni_fuse_output outputs[2 * TNI_MAX_ARGS];
    /* By position: arguments that meet as single numbers only have dimensions of their own. Rows go along those of the
     * last group. */
    int32_t n_groups;
    uint8_t in_group[TNI_MAX_ARGS], out_group[2 * TNI_MAX_ARGS];
    tni_arena *arena;
};

/* ---- axes.c ------------------------------------------------------------------------------------------------------ */

/* The items of a formula whose contract is there. */
tn_status tni_make_axes(tni_fuse *formula, tni_axes *axes);
/* Which items a parameter has in which order, at most TN_MAX_RANK. -1: a literal 1. */
tn_status tni_param_items(const tni_fuse *formula, const tni_param *param, int32_t *items, int32_t *count);
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
    int32_t outputs[2 * TNI_MAX_ARGS]; /* nodes; -1: not wanted */
} tni_specialized;
typedef struct tni_call_form {
    tn_type types[TNI_MAX_ARGS]; /* of inputs; TN_NO_TYPE: absent */
    const tn_value *attrs;
    bool wanted[2 * TNI_MAX_ARGS];
    tn_type made[2 * TNI_MAX_ARGS]; /* what outputs are stored as */
} tni_call_form;
tn_status tni_specialize(const tni_fuse *formula, const tni_call_form *given, tni_specialized *made);

#endif
