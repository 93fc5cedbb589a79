/* Activations by name: rows of the table that are a formula of one tensor. */
#ifndef TNI_ACTIVATION_NAMES_H
#define TNI_ACTIVATION_NAMES_H

#include "table.h"

bool tni_is_activation(const tn_function *op);
const char *tni_activation_name(int16_t choice); /* TNI_ACT_OTHER + the index in the table */
extern const tni_activations tni_table_activations;

#endif
