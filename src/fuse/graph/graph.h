/* The graph of a formula: types, dimensions, nodes. */
#ifndef TNI_FUSE_GRAPH_H
#define TNI_FUSE_GRAPH_H

#include "core/contract/contract.h"
#include "core/host/memory.h"
#include "primitives.h"
#include "sizes.h"

enum { TNI_FUSE_NODES = 4096 }; /* operations of a formula */

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

/* ---- nodes ----------------------------------------------------------------------------------------- */

/* Which dimensions a value has. Bits are items of the formula's shapes: dimensions and packs, or where there is no
 * signature one for each input. */
typedef struct tni_extent {
    uint64_t full; /* all of the item */
    uint64_t row;  /* of packs: all but the last dimension, which was reduced */
} tni_extent;

/* What window, flip and join do along one item. */
typedef enum tni_bounds {
    TNI_ZEROS_OUTSIDE,
    TNI_INSIDE, /* a part: what is outside is an error */
    TNI_AT_END, /* the same, and the part is the last: that something is left behind it is an error too */
    TNI_ROLLED, /* by no more than the size */
} tni_bounds;
typedef struct tni_window {
    int32_t from, to; /* items; -1: a size of 1. Those of window 2 * k + 1 are those of 2 * k the other way round */
    tni_size begin;   /* result i is element begin + step * i; of join: so many are of the first argument */
    int32_t step;     /* 0 means 1 */
    bool spreads;     /* the other way round: result i is element (begin + i) / step, and 0 where that is not whole */
    tni_bounds bounds;
    const char *text; /* `begin` as it is written */
} tni_window;
enum { TNI_WINDOWS = 256 };

/* Arguments of a node: a primitive has 3 at most, a call more. */
enum { TNI_NODE_ARGS = 8 };
#define TNI_TWO_ARGS(a, b) \
    { (a), (b), -1, -1, -1, -1, -1, -1 }
#define TNI_NO_ARGS TNI_TWO_ARGS(-1, -1)

typedef struct tni_gnode {
    uint8_t op; /* tni_prim */
    uint8_t type;
    uint32_t kind;              /* tni_reach of reductions, counts and indices, tn_type of casts */
    int32_t arg[TNI_NODE_ARGS]; /* nodes before this one; -1: none */
    int32_t ref;
    double value;
    tni_extent extent;
    tni_extent sure; /* what it has of that wherever it is there: `w if has(w) else 1` has nothing of w's */
    bool absent;     /* it may be: it is made of an optional input, and no choice offers something else */
} tni_gnode;

/* A call of an operator of the table on whole tensors, of which one output is the node's value. Argument k of the node
 * is the operator's input to[k]; where that is negative, attribute -1 - to[k] is given its shape, a size of it, or the
 * number that it is. */
enum { TNI_ALL_SIZES = 127, TNI_SOME_SIZES = TNI_ALL_SIZES - TN_MAX_RANK, TNI_NO_SIZE = -128 };
typedef struct tni_coarse {
    const struct tn_function *op;
    int32_t output, n_args;
    int8_t to[TNI_NODE_ARGS];
    /* Of a shape: which size, from the front or (below 0) from behind; TNI_ALL_SIZES - k: all but the last k.
     * TNI_NO_SIZE: the argument is no tensor but an attribute of the formula, which the operator's attribute is. */
    int8_t axis[TNI_NODE_ARGS];
    const char *attrs; /* the other attributes, as text: "axis=0 descending=true" */
    bool scans;        /* it is the operator of scan and reduce */
    int8_t along;      /* the item that these go along */
} tni_coarse;

/* Is an attribute given a whole shape, or all of it but the last `left` sizes? */
static inline bool tni_gives_shape(int axis, int *left) {
    *left = TNI_ALL_SIZES - axis;
    return axis >= TNI_SOME_SIZES;
}

typedef struct tni_graph {
    tni_gnode *nodes; /* arguments come before their users */
    int32_t n, capacity;
    int32_t *table; /* open hashing over nodes; -1: empty */
    int32_t table_size;
    bool fast;
    bool wide;        /* something is f64: so are numbers without a type that are not constants */
    tn_status status; /* the first failure; nodes are -1 from then on */
    uint32_t masks[TNI_MAX_TYPES];
    uint64_t tail;   /* the items that have the last dimension */
    bool tail_pack;  /* they are packs, so that taking the last dimension away leaves something */
    bool names_tail; /* a reduction along the last dimension is written with its name, not -1 */
    uint64_t all;    /* every item of the contract */
    int32_t n_items; /* by name: how many those are; behind them are those of parts */
    tni_coarse *calls;
    int32_t n_calls;
    const char *items[TN_MAX_RANK]; /* by name: what they are called, "n", "*s"; NULL: there is none */
    const tni_window *windows;      /* (TNI_WINDOWS) the formula's; NULL: it takes no parts */
} tni_graph;

void tni_graph_init(tni_graph *g, bool fast);
void tni_graph_clear(tni_graph *g);
/* The same node for the same thing; folded and simplified. Where an argument is -1, so is the result. */
int32_t tni_node3(tni_graph *g, tni_prim op, int kind, int32_t a, int32_t b, int32_t c);
int32_t tni_node2(tni_graph *g, tni_prim op, int32_t a, int32_t b);
int32_t tni_node1(tni_graph *g, tni_prim op, int32_t a);
int32_t tni_const(tni_graph *g, int type, double value);
int32_t tni_leaf(tni_graph *g, tni_prim op, int32_t ref, double value, int type, tni_extent extent);
/* The position of an element along the dimensions of a reach, counted as they lie in memory; it has the dimensions of
 * `extent`, whose items are `items` (-1: every dimension of the formula). */
int32_t tni_index(tni_graph *g, int kind, int32_t items, tni_extent extent);
/* A call, which a graph has once, with its text of its own; and its node. */
int32_t tni_add_coarse(tni_graph *g, const tni_coarse *call);
int32_t tni_coarse_node(tni_graph *g, int32_t call, const int32_t *arg, int type, tni_extent extent);
/* Is of argument k only the shape needed? */
bool tni_takes_shape(const tni_graph *g, const tni_gnode *node, int k);
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
/* Has a value of this extent something that a reduction of this kind takes away? */
bool tni_is_along(const tni_graph *g, tni_extent a, uint32_t kind);
/* A reduction over everything that would be repeated to get a value into a shape which has some of the dimensions that
 * it went over, and not all: whoever writes that wants to keep those. -1: none. */
int32_t tni_repeated(const tni_graph *g, int32_t node, tni_extent shape);

/* simplify.c: a node with the same value, or -2: as it is */
int32_t tni_simplify(tni_graph *g, const tni_gnode *node);
double tni_round_to(int type, double value);
/* What a cast to the type makes of a number that was real: the nearest integer towards 0 that the type has, 0 of NaN;
 * or of an integer: its lower bits. */
double tni_cast_to(int type, bool real, double value);
/* The smallest and the largest of an integer type that has fewer than 64 bits; false: it is none. */
bool tni_int_range(int type, double *least, double *most);

/* random.c: numbers first … first + n - 1 of rand(seed, stream), uniform in [0, 1) */
void tni_random(const int64_t *seed, int64_t stream, int64_t first, float *out, int64_t n);

#endif
