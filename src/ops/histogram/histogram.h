/* The arguments of histogram, and which bin a number falls into. */
#ifndef TNI_HISTOGRAM_H
#define TNI_HISTOGRAM_H

#include <math.h>

#include "ops/arguments.h"

#define HISTOGRAM_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(bins, integer) ATTR(low, number) ATTR(high, number) OUT(counts)
TNI_ARGUMENTS(histogram, HISTOGRAM_ARGUMENTS)

static inline double histogram_width(const histogram_args *a) {
    return (a->high - a->low) / (double)a->bins;
}

/* Where bin i begins, rounded once, so that all devices agree; the last one ends at `high`, which it has. */
static inline double histogram_edge(const histogram_args *a, int64_t i) {
    return i == a->bins ? a->high : fma((double)i, histogram_width(a), a->low);
}

#endif
