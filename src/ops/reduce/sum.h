/* The arguments of sum and its gradient, and how sum divides its work. Which numbers are added up together depends on
 * shapes and strides alone, so the result has the same bits with any number of threads. */
#ifndef TNI_SUM_H
#define TNI_SUM_H

#include "core/host/arith.h"
#include "cpu/rows.h"
#include "ops/arguments.h"

#define SUM_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(axes, list) ATTR(keepdim, boolean) OUT(y)
TNI_ARGUMENTS(sum, SUM_ARGUMENTS)

#define SUM_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dy) ATTR(shape, list) ATTR(axes, list) ATTR(keepdim, boolean) OUT(dx)
TNI_ARGUMENTS(sum_grad, SUM_GRAD_ARGUMENTS)

enum {
    TNI_SUM_TILE = 512,   /* columns that are summed up side by side */
    TNI_SUM_PIECE = 8192, /* elements of a long row that are one unit of work */
    TNI_SUM_SHORT = 2048, /* elements of a row that is short */
    TNI_SUM_NARROW = 32,  /* so few columns are taken several rows at once, to be whole vectors, */
    TNI_SUM_FEW = 64,     /* where there are more rows than this */
};

/* The dimensions of x in memory order, merged where they can be. The innermost is apart: where it is summed up, x is
 * rows, else columns. A unit of work is a piece of a row, or a row of columns. */
typedef struct tni_sum {
    tni_rows kept;    /* the other dimensions that y has: at[0] in x, at[1] in y */
    tni_rows reduced; /* the other dimensions that are summed up: at[0] in x */
    bool by_rows;
    int64_t n, step, y_step; /* the innermost dimension, its strides in x and y */
    int64_t fold;            /* columns: so many rows that follow each other in memory are one */
    int64_t outputs, units;
    int64_t items;           /* what can be done on its own: an output, or a tile of columns */
    int64_t parts, per_part; /* each item's units in parts that are done apart and then added up */
    int64_t sums;            /* of parts, kept until then; 0 where an item is done as a whole */
    bool interleaved; /* rows: too short to visit one output's rows after the other; one item adds to all outputs */
} tni_sum;

tni_sum tni_sum_of(const tn_view *x, const tn_view *y, const tn_value *axes);
size_t tni_sum_workspace(const tn_call *call); /* of sum and mean on the CPU */

/* `v` has the dimensions of `like` less those summed up, or with size 1: its strides in all of them, 0 where summed. */
void tni_sum_strides(const tn_view *like, const tn_view *v, const tn_value *axes, int64_t *strides);

/* The dimensions of `all` that are summed up, or those that are kept; its views are x and y as tni_sum_strides has
 * it. */
tni_rows tni_sum_dims(const tni_rows *all, bool reduced);

#endif
