/* Operators that are formulas (tn_fuse is in tenon/fuse.h). */
#ifndef TNI_FUSE_OPERATOR_H
#define TNI_FUSE_OPERATOR_H

#include "core/table/table.h"
#include "fuse.h"
#include "fuse/plan/backend.h"

extern const tni_formulas tni_fused_rows;               /* for tni_set_formulas */
extern const tni_backend *const tni_formula_backends[]; /* for tni_set_backends */

/* The formula of an operator that is one, or that has one among its kernels. */
tn_status tni_operator_formula(const tn_function *op, const tni_fuse **parsed);

/* scan_operator.c: what formulas call for scan and reduce. */
extern const tni_scanning tni_scans;
/* For tests: what a call of that operator would run on a GPU, and the call of the program that its kernel makes. */
tn_status tni_scan_walk(const tn_call *call,
                        tn_status (*use)(void *arg, const tni_program *program, const tn_call *step,
                                         const char *source),
                        void *arg);
void tni_scans_forget(void); /* the operator is gone: the next formula makes another one */

#endif
