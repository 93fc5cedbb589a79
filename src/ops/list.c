/* The table of built-in operators, made from list.h. */
#include "list.h"

#include "../core/core.h"

#define DECLARE(name) extern const tn_op tni_op_##name;
TNI_OPS(DECLARE)

#define ROW(name) &tni_op_##name,
const tn_op *const tni_builtin_ops[] = {TNI_OPS(ROW) NULL};
