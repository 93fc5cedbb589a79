/* Formulas that call operators of the table: split into steps, each an operator of its own. What stands between two
 * calls is one fused formula; values that go from step to step lie in the workspace. */
#ifndef TNI_FUSE_FORMULA_STEPS_H
#define TNI_FUSE_FORMULA_STEPS_H

#include "fuse/graph/formula_object.h"

/* Tensors are numbered: the formula's inputs, its outputs, then what steps hand on. */
typedef struct tni_called {
    const tn_function *op;
    bool made;                                                /* by tn_fuse, for this formula */
    int32_t n_in, in[TNI_MAX_ARGS], n_out, out[TNI_MAX_ARGS]; /* -1: none */
    int32_t n_attrs;
    tn_attr attrs[TNI_MAX_ARGS];
    int32_t n_own; /* attributes of the formula that pass along by name: `own` has their places */
    int32_t own[TNI_MAX_ARGS];
    int32_t n_sizes;
    struct {
        const char *attr;
        int32_t of; /* the tensor whose shape it is given, or a size of that; or the formula's attribute that it is */
        int8_t axis;
    } sizes[TNI_NODE_ARGS];
    int32_t n_memory;
    void *memory[TNI_MAX_ARGS]; /* of attributes */
} tni_called;

typedef struct tni_steps {
    int32_t n, n_tensors;
    tni_called *steps; /* in the order in which they run */
} tni_steps;

/* split.c: formula->steps, where the formula calls operators. */
tn_status tni_make_steps(tni_fuse *formula);
void tni_steps_free(tni_steps *steps); /* NULL is fine */
/* From now on, or no more: the operators are gone, and nobody gives one back. */
void tni_steps_outlive(bool operators);

/* run_steps.c: what an operator's kernels do for such a formula. */
typedef struct tni_prepared tni_prepared;
tn_status tni_prepare_steps(const tni_fuse *formula, const tn_call *call, const char *kernel, tni_prepared **made);
size_t tni_steps_workspace(const tni_prepared *prepared);
tn_status tni_run_steps(const tni_prepared *prepared, const tn_call *call);
void tni_prepared_free(tni_prepared *prepared);

#endif
