/* The table of built-in operators, made from list.h. */
#include "ops/list.h"

#include "core/core.h"
#include "fuse/operator.h"
#include "ops/formulas/formulas.h"

#define DECLARE(name, ...) extern const tn_op tni_op_##name;
TNI_OPS(DECLARE)
TNI_FORMULAS(DECLARE)

#define ROW(name, ...) &tni_op_##name,
const tn_op *const tni_builtin_ops[] = {TNI_OPS(ROW) TNI_FORMULAS(ROW) NULL};

/* Rows may be formulas. */
static __attribute__((constructor)) void set_formulas(void) {
    tni_set_formulas(&tni_fused_rows);
}
