/* What the files of src/fuse share: primitives, the graph, the formula object. */
#ifndef TNI_FUSE_PARTS_H
#define TNI_FUSE_PARTS_H

#include "core/host/memory.h"
#include "fuse/fuse.h"

enum {
    TNI_FUSE_NODES = 4096, /* operations of a formula */
    TNI_FUSE_DEPTH = 100,  /* of nested brackets and signs */
    TNI_FUSE_NAMES = 512,  /* inputs, outputs and locals */
};

/* ---- primitives (prims.c): one row each -------------------------------------------------------------------------- */

typedef enum tni_prim {
    TNI_P_CONST,   /* value */
    TNI_P_INPUT,   /* ref: input of the contract */
    TNI_P_ATTR,    /* ref: attribute of the contract, a number or a flag */
    TNI_P_ATTR_IS, /* ref: attribute with choices; value: which one */
    TNI_P_HAS,     /* ref: optional input */
    TNI_P_HAS_ATTR,
    TNI_P_RAND,  /* ref: the seed's input; value: stream */
    TNI_P_COUNT, /* arg 0: of what; kind */
    TNI_P_NEG,
    TNI_P_ABS,
    TNI_P_SIGN,
    TNI_P_FLOOR,
    TNI_P_ROUND,
    TNI_P_SQRT,
    TNI_P_RSQRT,
    TNI_P_EXP,
    TNI_P_LOG,
    TNI_P_LOG1P,
    TNI_P_EXPM1,
    TNI_P_SIN,
    TNI_P_COS,
    TNI_P_TANH,
    TNI_P_ERF,
    TNI_P_SIGMOID,
    TNI_P_SOFTPLUS,
    TNI_P_RELU,
    TNI_P_NOT,
    TNI_P_CAST, /* kind: the tn_type */
    TNI_P_ADD,
    TNI_P_SUB,
    TNI_P_MUL,
    TNI_P_DIV,
    TNI_P_MOD,
    TNI_P_POW,
    TNI_P_MIN,
    TNI_P_MAX,
    TNI_P_LT,
    TNI_P_LE,
    TNI_P_EQ,
    TNI_P_NE,
    TNI_P_AND,
    TNI_P_OR,
    TNI_P_WHERE,
    TNI_P_CLAMP,
    TNI_P_SUM, /* reductions; kind: tni_reach */
    TNI_P_MEAN,
    TNI_P_RMAX,
    TNI_P_RMIN,
    TNI_P_VAR,
    TNI_P_LSE,
    TNI_P_SUM_TO, /* arg 0 summed over the dimensions that arg 1 does not have */
    TNI_P_EXPAND, /* arg 0 in the shape of both */
    TNI_PRIMS,
    TNI_P_TANH_SOFTPLUS = TNI_PRIMS, /* of steps on the CPU alone: tanh(softplus(a)) */
    TNI_P_HALF_ERF,                  /* 0.5 + 0.5 * erf(a) */
    TNI_P_COARSE_EXP,                /* where everything that is made is rounded to bf16 */
    TNI_P_COARSE_SIGMOID,
    TNI_P_COARSE_TANH_SOFTPLUS,
    TNI_STEP_OPS,
} tni_prim;

typedef enum tni_reach { TNI_OVER_ROW, TNI_OVER_ALL } tni_reach;

typedef enum tni_typing {
    TNI_TYPED_BY_HAND, /* leaves, casts */
    TNI_TYPED_SAME,    /* what the arguments promote to; a truth value counts as an integer */
    TNI_TYPED_FLOAT,   /* the same, and an integer becomes a float */
    TNI_TYPED_TEST,    /* a comparison: bool */
    TNI_TYPED_LOGIC,   /* bool of bools */
    TNI_TYPED_CHOICE,  /* what arguments 1 and 2 promote to */
    TNI_TYPED_FIRST,   /* argument 0's */
} tni_typing;

typedef struct tni_prim_row {
    const char *name; /* as the language writes it */
    int8_t arity;
    int8_t binds; /* of an operator: how strongly, 1 … 8; 0: written as a function */
    uint8_t typing;
    bool commutes;
    double (*eval)(double a, double b, double c); /* NULL: not of plain numbers */
    /* The gradient of each argument as a formula of a, b, c, the result y and what arrives, d. NULL: none. */
    const char *grad[3];
    const char *code; /* CUDA C; $a $b $c stand for the arguments */
} tni_prim_row;

extern const tni_prim_row tni_prims[TNI_PRIMS];

static inline bool tni_is_reduction(int op) {
    return op >= TNI_P_SUM && op <= TNI_P_LSE;
}

/* Functions that are formulas themselves. */
typedef struct tni_composite {
    const char *name;
    int8_t arity;
    const char *formula; /* of a, b, c */
} tni_composite;
extern const tni_composite tni_composites[]; /* ends with a NULL name */

/* ---- types of values --------------------------------------------------------------------------------------------- */

/* A tn_type, or one of these. A graph for one call has tn_types and weak ones only. */
enum {
    TNI_TY_VAR = 32,      /* + k: type variable k of the contract */
    TNI_TY_ACC = 48,      /* + k: acc() of it */
    TNI_TY_WEAK_INT = 64, /* a number in the text takes the type of what it meets */
    TNI_TY_WEAK_FLOAT,
    TNI_TY_SOME_FLOAT, /* depends on type variables in a way that the contract language has no word for */
    TNI_TY_SOME,
};

typedef enum tni_class { TNI_CLASS_BOOL, TNI_CLASS_INT, TNI_CLASS_FLOAT, TNI_CLASS_ANY } tni_class;

/* ---- the graph (graph.c) ----------------------------------------------------------------------------------------- */

/* Which dimensions a value has. Bits are items of the formula's shapes: dimensions and packs, or where there is no
 * signature one for each input. */
typedef struct tni_extent {
    uint64_t full; /* all of the item */
    uint64_t row;  /* of packs: all but the last dimension, which was reduced */
} tni_extent;

typedef struct tni_gnode {
    uint8_t op;   /* tni_prim */
    uint8_t kind; /* tni_reach of reductions and counts, tn_type of casts */
    uint8_t type;
    int32_t arg[3]; /* nodes before this one; -1: none */
    int32_t ref;
    double value;
    tni_extent extent;
    tni_extent sure; /* what it has of that wherever it is there: `w if has(w) else 1` has nothing of w's */
    bool absent;     /* it may be: it is made of an optional input, and no choice offers something else */
} tni_gnode;

typedef struct tni_graph {
    tni_gnode *nodes; /* arguments come before their users */
    int32_t n, capacity;
    int32_t *table; /* open hashing over nodes; -1: empty */
    int32_t table_size;
    bool fast;
    bool wide;        /* something is f64: so are numbers without a type that are not constants */
    tn_status status; /* the first failure; nodes are -1 from then on */
    uint32_t masks[TNI_MAX_TYPES];
    uint64_t tail;  /* the items that have the last dimension */
    bool tail_pack; /* they are packs, so that taking the last dimension away leaves something */
    uint64_t all;   /* every item */
} tni_graph;

void tni_graph_init(tni_graph *g, bool fast);
void tni_graph_clear(tni_graph *g);
/* The same node for the same thing; folded and simplified. Where an argument is -1, so is the result. */
int32_t tni_node3(tni_graph *g, tni_prim op, int kind, int32_t a, int32_t b, int32_t c);
int32_t tni_node2(tni_graph *g, tni_prim op, int32_t a, int32_t b);
int32_t tni_node1(tni_graph *g, tni_prim op, int32_t a);
int32_t tni_const(tni_graph *g, int type, double value);
int32_t tni_leaf(tni_graph *g, tni_prim op, int32_t ref, double value, int type, tni_extent extent);
/* A node as it is, nothing simplified: simplify.c ends here. */
int32_t tni_node_as_is(tni_graph *g, const tni_gnode *node);

tni_class tni_class_of(const tni_graph *g, int type);
int tni_promote(const tni_graph *g, int a, int b);
bool tni_covers(tni_extent a, tni_extent b); /* a has every dimension that b has */
bool tni_is_scalar(tni_extent a);
bool tni_same_extent(tni_extent a, tni_extent b);
bool tni_is_sure(const tni_gnode *node);                     /* it has its dimensions whatever inputs are absent */
bool tni_same_shape(const tni_gnode *a, const tni_gnode *b); /* whatever inputs are absent */
tni_extent tni_join(tni_extent a, tni_extent b);
bool tni_has_tail(const tni_graph *g, tni_extent a);

/* simplify.c: a node with the same value, or -2: as it is */
int32_t tni_simplify(tni_graph *g, const tni_gnode *node);
double tni_round_to(int type, double value);

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

struct tni_fuse {
    tni_contract *contract;
    bool signed_by_user;
    bool fast;
    int32_t n_known; /* rows that the table had: activations that were added later are not in the graph */
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

/* parse.c: statements into the graph. For a formula with a signature, formula->contract and axes are there. */
typedef struct tni_scope {
    int32_t n_inputs; /* without a signature: found on the way */
    const char *inputs[TNI_MAX_ARGS];
    bool is_seed[TNI_MAX_ARGS], is_bool[TNI_MAX_ARGS], is_updated[TNI_MAX_ARGS];
    int32_t n_outputs;
    const char *outputs[TNI_MAX_ARGS];
    int32_t output_nodes[TNI_MAX_ARGS];
    int32_t updated_nodes[TNI_MAX_ARGS]; /* by input; -1: none */
} tni_scope;

tn_status tni_parse_formula(tni_fuse *formula, const char *text, int32_t begin, tni_scope *scope);
/* An expression of the library's own over nodes a, b, c, y, d (-1: not there); reductions without a second argument
 * reach as `kind` says. */
int32_t tni_template(tni_graph *g, const char *text, const int32_t nodes[5], int kind);

/* contract.c: the contract of a formula without a signature; the items of one with. */
tn_status tni_make_contract(tni_fuse *formula, const tni_scope *scope, const char *name);
tn_status tni_make_axes(tni_fuse *formula, tni_axes *axes);
/* Which items a parameter has in which order, at most TN_MAX_RANK. -1: a literal 1. */
tn_status tni_param_items(const tni_fuse *formula, const tni_param *param, int32_t *items, int32_t *count);
/* The same as bits of the graph's items. */
tn_status tni_param_extent(const tni_fuse *formula, const tni_param *param, tni_extent *extent);
/* It has all but the last dimension; `ranks` of the inputs (-1: absent) decide of broadcast(*a, rows(*b)). */
bool tni_is_row(const tni_fuse *formula, const tni_param *param, const int32_t *ranks);
bool tni_broadcasts(const tni_contract *contract, const tni_shape *shape);
bool tni_is_shape_function(const tni_contract *contract,
                           const tni_shape *shape); /* broadcast() or rows(), nothing else */
tn_status tni_find_groups(tni_fuse *formula);       /* when the graph and the outputs are there */
/* A kernel sees `~` inputs in the shape of all: reductions must be of the whole shape. */
tn_status tni_check_reductions(const tni_fuse *formula);
int tni_param_type(const tni_type *type);

/* print.c */
void tni_print_statements(tni_text *text, const tni_graph *g, const tni_contract *contract,
                          const tni_fuse_output *outputs, int32_t n_outputs);

/* special.c: the graph of one call: types known, attributes constants, absent inputs gone. */
typedef struct tni_special {
    tni_graph graph;
    int32_t n_outputs;
    int32_t outputs[2 * TNI_MAX_ARGS]; /* nodes; -1: not wanted */
} tni_special;
typedef struct tni_given {
    tn_type types[TNI_MAX_ARGS]; /* of inputs; TN_NO_TYPE: absent */
    const tn_value *attrs;
    bool wanted[2 * TNI_MAX_ARGS];
} tni_given;
tn_status tni_specialise(const tni_fuse *formula, const tni_given *given, tni_special *made);

/* grad.c, grad_text.c: the gradient's graph over the formula's inputs, then one leaf for the d of each output, then
 * one for each output itself, which stands for its value where that is taken instead of computed again. */
typedef struct tni_gradient {
    const tni_fuse *f;
    tni_graph g;
    int32_t result[TNI_MAX_ARGS];   /* the gradient of each input; -1: none */
    int32_t arriving[TNI_MAX_ARGS]; /* leaves of the outputs' d; -1: not differentiable */
} tni_gradient;

static inline int32_t tni_ref_of_d(const tni_fuse *f, int32_t output) {
    return f->contract->n_inputs + output;
}
static inline int32_t tni_ref_of_saved(const tni_fuse *f, int32_t output) {
    return f->contract->n_inputs + f->contract->n_outputs + output;
}
tn_status tni_differentiate(tni_gradient *gradient);
tn_status tni_gradient_text(const tni_gradient *gradient, tni_text *text, tni_text *rule);

#endif
