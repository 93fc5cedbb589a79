/* What split.c and fused.c share: the formula while it is split. */
#ifndef TNI_FUSE_STEPS_SPLIT_H
#define TNI_FUSE_STEPS_SPLIT_H

#include "formula_steps.h"

typedef struct tni_splitter {
    tni_fuse *f;
    const tni_graph *g;
    tni_steps *made;
    bool needed[TNI_FUSE_NODES], stored[TNI_FUSE_NODES]; /* stored: as a tensor, since a call takes it */
    int32_t level[TNI_FUSE_NODES];                       /* how many calls stand behind one another before it */
    int32_t tensor[TNI_FUSE_NODES];                      /* -1: none */
    bool direct[TNI_MAX_ARGS];                           /* outputs that a call writes */
} tni_splitter;

/* A fused formula while it is written. */
typedef struct tni_fused_step {
    tni_splitter *s;
    int32_t level;
    int32_t n_results, results[TNI_MAX_ARGS]; /* nodes that are stored for calls */
    bool output[TNI_MAX_ARGS];                /* of the formula */
    bool value[TNI_FUSE_NODES];
    bool input[TNI_MAX_ARGS];    /* of the formula: taken */
    int32_t place[TNI_MAX_ARGS]; /* of an input among the arguments */
    int32_t n_types;             /* type variables of its own */
    uint64_t bound, maybe; /* by position: packs that inputs of the formula have here, and such as may be absent */
    int32_t n_packs;       /* and tensors that are handed on and have others: a pack for each */
    struct {
        int32_t tensor;
        uint64_t has;
    } packs[TNI_MAX_ARGS];
    tni_text types, in, out;
    tni_called *step;
} tni_fused_step;

/* fused.c */
bool tni_is_there(const tni_splitter *s, int32_t node, int32_t level); /* as a tensor when this level's formulas run */
tn_status tni_make_fused(tni_fused_step *x);                           /* x->step->op, and what it takes and makes */

#endif
