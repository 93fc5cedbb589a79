/* grouped_linear: rows in groups, each times a matrix of its own. The arguments of the operator and of its
 * gradients, and one description of the product that all of them are. */
#ifndef TNI_GROUPED_LINEAR_H
#define TNI_GROUPED_LINEAR_H

#include "ops/gemm/gemm.h"

#define GROUPED_LINEAR_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(w) IN(offsets) OUT(y)
TNI_ARGUMENTS(grouped_linear, GROUPED_LINEAR_ARGUMENTS)

#define GROUPED_LINEAR_X_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(w) IN(offsets) IN(dy) OUT(dx)
TNI_ARGUMENTS(grouped_linear_x_grad, GROUPED_LINEAR_X_GRAD_ARGUMENTS)

#define GROUPED_LINEAR_W_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(offsets) IN(dy) OUT(dw)
TNI_ARGUMENTS(grouped_linear_w_grad, GROUPED_LINEAR_W_GRAD_ARGUMENTS)

/* The product of a call as if there were one group: its batch are the groups, of which b or y has an entry each. The
 * groups divide m; by_terms: they divide k. */
typedef struct tni_grouped {
    tni_product product;
    const tn_view *offsets;
    int64_t groups, rows; /* rows: of all groups, and of none */
    bool by_terms;
} tni_grouped;

/* The `data` of a kernel. */
typedef struct tni_grouped_kind {
    tni_grouped (*of)(const tn_call *call);
} tni_grouped_kind;

static inline tni_grouped tni_grouped_of(const tn_call *call) {
    const tni_grouped_kind *kind = call->kernel->data;
    return kind->of(call);
}

#endif
