/* A family of formulas is one file: an array of rows, which {0} ends, behind the samples that its rows share. Kernels
 * and gradients are derived from the formula (docs/formulas.md). */
#ifndef TNI_FORMULA_ROW_H
#define TNI_FORMULA_ROW_H

#include <tenon/op.h>

/* A row: its contract, its statements, then .doc, .samples and whatever else it has. */
#define FORMULA(contract, statements, ...) \
    { .signature = contract, .formula = statements, __VA_ARGS__ }

/* The samples of one row. */
#define SAMPLES(...)                 \
    .samples = (const tn_sample[]) { \
        __VA_ARGS__, {               \
            0                        \
        }                            \
    }

#endif
