/* What cumsum and cumprod share with their gradients: their arguments, and how a call is seen. */
#ifndef TNI_SCAN_H
#define TNI_SCAN_H

#include "core/host/arith.h"
#include "ops/arguments.h"

#define CUMSUM_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(axis, integer) ATTR(exclusive, boolean) ATTR(reverse, boolean) OUT(y)
TNI_ARGUMENTS(cumsum, CUMSUM_ARGUMENTS)
TNI_ARGUMENTS(cumprod, CUMSUM_ARGUMENTS)

#define CUMSUM_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(dy) ATTR(axis, integer) ATTR(exclusive, boolean) ATTR(reverse, boolean) OUT(dx)
TNI_ARGUMENTS(cumsum_grad, CUMSUM_GRAD_ARGUMENTS)

#define CUMPROD_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(y) IN(dy) ATTR(axis, integer) ATTR(exclusive, boolean) ATTR(reverse, boolean) OUT(dx)
TNI_ARGUMENTS(cumprod_grad, CUMPROD_GRAD_ARGUMENTS)

#define CUMPROD_GRAD_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x)                                          \
    IN(y) IN(dy) IN(ddx) ATTR(axis, integer) ATTR(exclusive, boolean) ATTR(reverse, boolean) OUT(gx) OUT(gy) OUT(gdy)
TNI_ARGUMENTS(cumprod_grad_grad, CUMPROD_GRAD_GRAD_ARGUMENTS)

/* A row along an axis is put together from its first element on, or with `reverse` from its last one. Tensors are
 * (outer, n, inner). */
typedef struct tni_scan {
    const tn_view *x, *y; /* of a gradient: dy and dx */
    int64_t outer, n, inner;
    bool product;   /* else a sum */
    bool exclusive; /* an element of y is made of those before it alone */
    bool reverse;
} tni_scan;

/* A kernel of cumsum, cumsum_grad or cumprod has one as its `data`. */
typedef struct tni_scan_kind {
    tni_scan (*of)(const tn_call *call);
} tni_scan_kind;

static inline tni_scan tni_scan_of(const tn_call *call) {
    return ((const tni_scan_kind *)call->kernel->data)->of(call);
}

/* Of s and a below: where nothing has arrived yet, an infinite element makes no NaN of it. */
static inline double tni_scan_times(double x, double so_far) {
    return so_far == 0 ? 0 : x * so_far;
}

/* The gradient of cumprod, without dividing by an element, which may be 0. In the order of the product, with w = dy and
 * p[i] = y[i - 1], or where it is exclusive w[i] = dy[i + 1] and p = y:
 *
 *     dx[i] = p[i] s[i]      s[i] = w[i] + x[i + 1] s[i + 1]      what each later y has of x[i], added up from behind
 *
 * And of that, with ddx for what arrives at dx:
 *
 *     gp[i] = ddx[i] s[i]      gw[i] = a[i] = ddx[i] p[i] + x[i] a[i - 1]      gx[i] = a[i - 1] s[i]                 */
typedef struct tni_scan_grad {
    const tn_view *x, *y, *dy, *dx;     /* of the first gradient */
    const tn_view *ddx, *gx, *gy, *gdy; /* of the second one; what is not wanted is NULL */
    int64_t outer, n, inner;
    bool exclusive, reverse;
} tni_scan_grad;

tni_scan_grad tni_scan_grad_of(const tn_call *call);      /* of cumprod_grad */
tni_scan_grad tni_scan_grad_grad_of(const tn_call *call); /* of cumprod_grad_grad */

size_t tni_scan_grad_grad_workspace(const tn_call *call); /* s, in `real`, for all elements */

#endif
