/* What a backend plans from: the lowered graph of one call, what is to be done, and each pass with what is known of
 * every node in it. */
#ifndef TNI_FUSE_PLANNER_H
#define TNI_FUSE_PLANNER_H

#include "backend.h"

/* ---- the lowered graph (lower.c) --------------------------------------------------------------------------------- */

/* A node that is several at once. A backend that has the form takes it where what is inside is needed by nothing else,
 * or is not worth keeping. */
typedef struct tni_form {
    uint8_t op;        /* a primitive of kind TNI_FORM */
    int8_t n_inside;   /* 0: there is none */
    int32_t inside[2]; /* the nodes between it and its arguments, from the outside in */
    int32_t of[2];     /* its arguments */
} tni_form;

typedef struct tni_lowered {
    tni_form forms[2];
    int32_t product; /* of a sum: the product that it is the sum of; -1: none */
    int32_t most;    /* of sum(exp(x - m)): the maximum m of x; -1: none */
    bool guarded;    /* and an infinite m counts as 0 in it */
    bool deviates;   /* a sum: of the squares of what values are off their mean, not of the values */
    bool kept;       /* a row's number that sums of rows are made of, or that many rows share: a pass keeps it */
} tni_lowered;

/* What is to be done: a value stored, or one accumulated. */
typedef struct tni_item_todo {
    int32_t node;
    int32_t output;  /* of the formula; -1: to the workspace */
    bool gathers;    /* a reduction over more than rows: its argument is accumulated */
    int32_t becomes; /* where it gathers: the output that it is, and nothing else is made of it; -1: the workspace */
    uint32_t mask;   /* of the result */
    int32_t phase;
    int64_t offset; /* in the workspace */
} tni_item_todo;

typedef struct tni_binding {
    const tni_fuse *f;
    const tn_call *call;
    tni_domain domain;
    tni_specialized specialized; /* counts are numbers in it: `ref` is their place in program->counts */
    tni_program *program;
    tni_arena *arena; /* of what is needed until the program is made; all that follows has room for every node */
    uint32_t *mask;   /* dimensions of each node */
    tni_lowered *lowered;
    int32_t *phase;   /* after which its value is there */
    int32_t *todo_of; /* what keeps it in the workspace; -1: nothing does */
    int32_t n_todo;
    tni_item_todo *todo;
    struct tni_planner *planners; /* (passes) */
} tni_binding;

/* Takes the parts out of the graph: what is left is about views of the arguments. The domain and the masks of nodes are
 * made anew. */
tn_status tni_take_parts_apart(tni_binding *b);
/* The input that is updated by an output, which may be one view of several; -1: none. */
static inline int32_t tni_updated_by(const tni_binding *b, int32_t output) {
    return b->f->outputs[b->domain.out[output].index].inplace;
}
tn_status tni_lower(tni_binding *b);
/* The dimensions that a node takes away from its argument. */
uint32_t tni_reduced(const tni_binding *b, int32_t node);
bool tni_gathers(const tni_binding *b, int32_t node); /* reduces over more than rows, or over very long ones */
/* deviations.c: of a sum of squares of e - mean(e), that e; -1: it is something else. Sums of that form which are
 * gathered become such of e, where the backend has them. */
int32_t tni_deviates(const tni_binding *b, int32_t sum);
void tni_find_deviations(tni_binding *b);
/* rows_first.c: sums over rows of rows become sums of what one pass keeps of each row, where the backend wants it. */
tn_status tni_sum_rows_first(tni_binding *b);
/* shared.c: values that many rows share are made by a pass of their own, where the backend wants it. */
tn_status tni_keep_shared(tni_binding *b);
/* stretch.c: the last two dimensions become one, where the backend reads arguments that have the outer one alone. */
void tni_stretch(tni_binding *b);
/* turn.c: the only dimension that is reduced becomes the last one, where the backend wants it so. */
void tni_turn(tni_binding *b);
bool tni_lies_beside(const tni_binding *b); /* elements, along the last dimension, in every argument */
bool tni_is_empty(const tni_domain *d);     /* a dimension is 0 */
/* slices.c: how many slices the program has; from then on the domain is that of one. */
void tni_slice(tni_binding *b);
int32_t tni_resolve(const tni_binding *b, int32_t node); /* past nodes that only change a shape */
/* where(abs(m) == inf, …, m), what logsumexp takes of a maximum: that m; -1: it is something else. */
int32_t tni_unless_infinite(const tni_binding *b, int32_t node);

/* ---- a pass (pass.c) --------------------------------------------------------------------------------------------- */

typedef struct tni_planner {
    tni_binding *b;
    tni_pass *pass;
    const tni_graph *g;
    bool list;    /* the pass goes over lists */
    bool *needed; /* of each node, as all arrays but todo_memory */
    uint8_t *level;
    bool *fixed;    /* the same in every row */
    int32_t *stage; /* of row reductions that must be through before */
    int32_t n_stages;
    int32_t *memory_of;   /* of inputs and what is in the workspace; -1: none */
    int32_t *todo_memory; /* memory or accumulator of each todo of this pass; -1 */
} tni_planner;

tn_status tni_plan_pass(tni_binding *b, tni_pass *pass, tni_planner *made);

bool tni_in_pass(const tni_binding *b, const tni_pass *pass, const tni_item_todo *todo);
bool tni_is_kept(const tni_planner *p, int32_t node); /* comes from the workspace */
bool tni_reduces_rows(const tni_planner *p, int32_t node);

/* Of todo t of this pass: the node whose value it takes, how many values there are, and when it is done. */
int32_t tni_todo_node(const tni_planner *p, const tni_item_todo *todo);
uint8_t tni_level_of_todo(const tni_planner *p, int32_t t);
int32_t tni_stage_of_todo(const tni_planner *p, int32_t t);

#endif
