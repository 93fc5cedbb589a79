/* Operators that are formulas (tn_fuse is in tenon/fuse.h). */
#ifndef TNI_FUSE_OPERATOR_H
#define TNI_FUSE_OPERATOR_H

#include "core/table/table.h"
#include "fuse.h"

/* For tni_set_formulas. */
extern const tni_formulas tni_fused_rows;

/* The formula of an operator that is one. */
tn_status tni_operator_formula(const tn_operator *op, const tni_fuse **parsed);
/* Where the signature in front of a formula ends, at its ':' or, where that is missing, with the text; -1:
 * there is none. */
int32_t tni_signature_end(const char *text);

/* compile_c.c: a process that ends takes its compiler and its files along; the thread that compiles is given a moment to
 * see that. Who goes by _exit, as the child of a fork does, calls it before. */
void tni_c_end(void);

#endif
