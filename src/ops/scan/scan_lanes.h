/* Rows of (outer, n, inner) that a CPU kernel goes along side by side: neighbouring columns where there are any, else
 * some rows that lie one behind the other, so that they need not wait for their own results. */
#ifndef TNI_SCAN_LANES_H
#define TNI_SCAN_LANES_H

#include "core/host/arith.h"

enum {
    TNI_LANES = 512, /* columns, at most */
    TNI_LANE_ROWS = 4,
    TNI_LANES_UNITS = 8,    /* to share out, if there are columns enough */
    TNI_LANES_LEAST = 64,   /* columns of one of these */
    TNI_LANES_SHORT = 1024, /* elements of short rows that make a unit, at least */
};

typedef struct tni_lanes {
    int64_t units, width;
    int64_t outer, n, inner, per_outer; /* units of an outer index */
} tni_lanes;

static inline tni_lanes tni_lanes_of(int64_t outer, int64_t n, int64_t inner) {
    tni_lanes l = {.outer = outer, .n = n, .inner = inner};
    if (inner == 1) {
        l.width = n < TNI_LANES_SHORT ? min(max(TNI_LANES_SHORT / max(n, 1), TNI_LANE_ROWS), TNI_LANES) : TNI_LANE_ROWS;
        l.per_outer = 1;
        l.units = ceil_div(outer, l.width);
        return l;
    }
    const int64_t shares = ceil_div(TNI_LANES_UNITS, outer);
    l.width = min(max(round_up(ceil_div(inner, shares), 16), TNI_LANES_LEAST), TNI_LANES);
    l.per_outer = ceil_div(inner, l.width);
    l.units = outer * l.per_outer;
    return l;
}

/* The first element of a unit's first lane, and how many lanes it has. */
static inline int64_t tni_lanes_at(const tni_lanes *l, int64_t unit, int64_t *count) {
    if (l->inner == 1) {
        *count = min(l->outer - unit * l->width, l->width);
        return unit * l->width * l->n;
    }
    const int64_t column = unit % l->per_outer * l->width;
    *count = min(l->inner - column, l->width);
    return unit / l->per_outer * l->n * l->inner + column;
}

#endif
