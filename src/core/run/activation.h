/* Activations by name: which there are, and calls that ask for one that their kernels have not. */
#ifndef TNI_ACTIVATION_H
#define TNI_ACTIVATION_H

#include "core/contract/parts.h"

/* tn_value.choice of an attribute of type `activation`; the others are TNI_ACT_OTHER + their index in the table. */
enum { TNI_ACT_NONE, TNI_ACT_RELU, TNI_ACT_OTHER };

bool tni_is_activation(const tn_operator *op);
int16_t tni_activation_choice(const char *name); /* -1: there is none of that name */
const char *tni_activation_name(int16_t choice);
const char *tni_activation_near(const char *name); /* one that is spelt nearly so; NULL: there is none */

/* Where the call asks for an activation that its operator's kernels have not, *kernels becomes a table with one that has
 * it, kept in the arena. */
tn_status tni_activated_kernels(tni_arena *arena, const tn_operator *op, const tn_call *call, const char *wanted,
                                const tn_kernel **kernels);

#endif
