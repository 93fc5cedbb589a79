/* Activations by name: which there are, and calls that ask for one that their kernels have not. */
#ifndef TNI_ACTIVATION_H
#define TNI_ACTIVATION_H

#include "contract_parts.h"

/* tn_value.choice of an attribute of type `activation`; the others are TNI_ACT_OTHER + their index in the table. */
enum { TNI_ACT_NONE, TNI_ACT_RELU, TNI_ACT_OTHER };

bool tni_is_activation(const tn_operator *op);
int16_t tni_activation_choice(const char *name); /* -1: there is none of that name */
const char *tni_activation_name(int16_t choice);
const char *tni_activation_near(const char *name); /* one that is spelt nearly so; NULL: there is none */

/* The activation that the call asks for and that is not the kernels' business; NULL: none. *at: which of args->attrs
 * names it, -1 for the default. */
const tn_operator *tni_activation_asked(const tn_operator *op, const tn_args *args, int32_t *at);
/* tn_run, tni_call_alloc (with `make`) or tn_prepare of such a call. */
tn_status tni_activated_run(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                            const tn_host *host, tni_make_output make, void *context, bool only_prepare);
tn_status tni_activated_explain(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                                const char **kernel, tn_cost *cost);

#endif
