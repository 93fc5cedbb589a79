/* The arguments of rope and its gradient, and how their rows lie in memory. */
#ifndef TNI_ROPE_H
#define TNI_ROPE_H

#include "cpu/rows.h"
#include "ops/arguments.h"

#define ROPE_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(cos) IN(sin) ATTR(interleaved, boolean) OUT(y)
TNI_ARGUMENTS(rope, ROPE_ARGUMENTS)

#define ROPE_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) IN(cos) IN(sin) ATTR(interleaved, boolean) OUT(dx)
TNI_ARGUMENTS(rope_grad, ROPE_GRAD_ARGUMENTS)

enum { ROPE_X, ROPE_Y, ROPE_COS, ROPE_SIN, ROPE_VIEWS };

/* x: (rows, 2 * pairs), turned by one angle for each pair; the gradient turns back. */
typedef struct rope_job {
    const tn_view *x, *cos, *sin, *y;
    int64_t pairs;
    int64_t cos_step, sin_step; /* along a row */
    bool interleaved;           /* a pair is two neighbours, else they are half a row apart */
    bool back;
} rope_job;

rope_job rope_job_of(const tn_call *call, bool back);

/* Where rows begin, by ROPE_…; a row is x's. */
tni_rows rope_rows_of(const rope_job *job);

#endif
