/* Calls that ask for an activation that their operator's kernels lack. */
#ifndef TNI_ACTIVATION_H
#define TNI_ACTIVATION_H

#include "core/host/memory.h"
#include "core/table/table.h"

/* Where the call asks for an activation that its operator's kernels lack, *kernels becomes a table with one that has
 * it, kept in the arena. */
tn_status tni_activated_kernels(tni_arena *arena, const tn_function *op, const tn_call *call, const char *wanted,
                                const tn_kernel **kernels);

#endif
