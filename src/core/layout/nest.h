/* Nested loops over the dimensions that several views share, in memory order and as few as possible: the one place that
 * sorts and merges dimensions. */
#ifndef TNI_NEST_H
#define TNI_NEST_H

#include <stddef.h>
#include <stdint.h>

/* Loop 0 is the outermost. The arrays are the caller's, and are changed. */
typedef struct tni_nest {
    int32_t n_loops, n_views;
    int64_t *sizes;          /* (n_loops) */
    int64_t *const *strides; /* (n_views): where each view has its stride of loop 0 */
    ptrdiff_t apart;         /* from a view's stride of one loop to that of the next */
} tni_nest;

/* Loops that step further through memory go outside. The first n_keys views decide, the first of them that can: a
 * stride of 0 says nothing. Loops that none of them tells apart keep their order. */
void tni_nest_sort(const tni_nest *nest, int32_t n_keys);

/* Neighbours become one loop where the outer one continues the inner one in every view. Of loops over a single step
 * none is left, unless all are. */
void tni_nest_merge(tni_nest *nest);

#endif
