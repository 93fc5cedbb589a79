/* Gradients: the graph that is derived from a formula, and that graph as another formula's text. */
#ifndef TNI_FUSE_GRADIENT_H
#define TNI_FUSE_GRADIENT_H

#include "fuse/graph/formula_object.h"

/* The gradient's graph is over the formula's inputs, then one leaf for the d of each output, then one for each output
 * itself, which stands for its value where that is taken instead of computed again. */
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
/* grad_call.c: what argument k of a call gets of dy, which arrives at it in its own shape. */
tn_status tni_call_gradient(tni_graph *g, int32_t node, int32_t k, int32_t dy, int32_t *made);
/* grad_scan.c: the same for all arguments of a scan; -1: it does not depend on one, or is stepped. */
tn_status tni_scan_gradient(tni_graph *g, const tni_scanning *how, int32_t node, int32_t dy,
                            int32_t made[static TNI_NODE_ARGS]);
/* A sum over what `target` lacks; where that is -1, as far as `kind` reaches. */
typedef struct tni_sum {
    int kind; /* tni_reach */
    int32_t target;
    int32_t shape; /* a node with the dimensions of what is summed */
} tni_sum;
/* How many reductions, one after the other, the first n nodes wait for. */
typedef struct tni_waits {
    int32_t n, of[TNI_FUSE_NODES];
} tni_waits;
/* grad_sums.c: the sum of a node, taken apart where its parts wait for fewer other reductions. */
int32_t tni_sum_apart(tni_graph *g, tni_waits *waits, const tni_sum *sum, int32_t node);
/* An attribute as a formula's signature declares it. */
void tni_print_attr_of(tni_text *text, const tni_attr *attr);
tn_status tni_differentiate(tni_gradient *gradient);
tn_status tni_gradient_text(const tni_gradient *gradient, tni_text *text, tni_text *rule);

#endif
