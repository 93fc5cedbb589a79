/* What the files that plan a pass share: its memory and dimensions (plan.c), its steps (plan_steps.c), its scratch
 * memory (plan_scratch.c). */
#ifndef TNI_FUSE_PLAN_H
#define TNI_FUSE_PLAN_H

#include "program.h"

typedef struct tni_value {
    uint8_t level, lane;
    bool elsewhere; /* in an argument's memory, no scratch */
    bool gathered;  /* 8 bytes, whatever the lane: a reduction under way */
    int32_t segment;
    bool crosses; /* used outside of its segment */
    int32_t last; /* step that uses it */
} tni_value;

typedef struct tni_planner {
    tni_binding *b;
    tni_pass *pass;
    const tni_graph *g;
    bool streams;  /* rows are longer than a block, or that of lists */
    bool list;     /* the pass goes over lists */
    int32_t parts; /* on a GPU: tensors of them that a launch has room for */
    bool failed;   /* no memory */
    bool *needed;  /* of each node, as all arrays but todo_memory */
    uint8_t *level;
    bool *fixed;    /* the same in every row: made once where blocks are whole rows */
    int32_t *stage; /* of row reductions that must be through before */
    int32_t n_stages, current;
    int32_t *memory_of;        /* of inputs and what is in the workspace; -1: none */
    int32_t *value[TNI_LANES]; /* in each lane, at the node's own level; -1: none */
    int32_t *wide[TNI_LANES];  /* the same, expanded to elements */
    int32_t *direct;           /* the memory that the node's values are made in; -1: none */
    int32_t *todo_memory;      /* memory or accumulator of each todo of this pass; -1 */
    tni_step *steps;
    tni_value *values;
    tni_segment *segments;
    int32_t step_capacity, value_capacity, segment_capacity;
    bool *taken;    /* for walks over the graph */
    int64_t moving; /* bytes of scratch memory that each block writes anew */
} tni_planner;

int32_t tni_resolve(const tni_planner *p, int32_t node); /* past nodes that only change a shape */
bool tni_is_kept(const tni_planner *p, int32_t node);    /* comes from the workspace */
bool tni_reduces_rows(const tni_planner *p, int32_t node);
bool tni_is_contiguous(const tni_planner *p, const tni_memory *memory);

/* Of todo t of this pass: the node whose value it takes, how many values there are, and when it is done. */
int32_t tni_todo_node(const tni_planner *p, const tni_item_todo *todo);
uint8_t tni_level_of_todo(const tni_planner *p, int32_t t);
bool tni_makes_bf16(const tni_planner *p); /* the pass, and nothing else: functions need not be exact to more */
int32_t tni_stage_of_todo(const tni_planner *p, int32_t t);
/* Sets `taken` for the element values that this stage's reductions and results need; false: it has none. */
bool tni_mark_elements(tni_planner *p, int32_t stage);

tn_status tni_plan_steps(tni_planner *p);                                         /* for pass->block and pass->rows */
tn_status tni_plan_pairs(tni_planner *p);                                         /* joins steps (plan_pairs.c) */
bool tni_is_number(const tni_planner *p, const tni_step *s, int k, double value); /* is argument k this constant? */
tn_status tni_plan_scratch(tni_planner *p); /* offsets of values; sets pass->scratch */

#endif
