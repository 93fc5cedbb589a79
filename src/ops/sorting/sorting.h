/* What sort and top_k share: their arguments, and rows that are put in order.
 *
 * The order of a row is total: of equal elements the one with the smaller index comes first. So the result does not
 * depend on how it is found, nor by how many threads. top_k are the first k of the sorted row. */
#ifndef TNI_SORTING_H
#define TNI_SORTING_H

#include "core/host/arith.h"
#include "keys.cuh"
#include "ops/arguments.h"

#define SORT_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(axis, integer) ATTR(descending, boolean) OUT(values) OUT(index)
TNI_ARGUMENTS(sort, SORT_ARGUMENTS)

#define SORT_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dvalues) IN(index) ATTR(axis, integer) OUT(dx)
TNI_ARGUMENTS(sort_grad, SORT_GRAD_ARGUMENTS)

#define TOP_K_ARGUMENTS(IN, OUT, ATTR) IN(x) ATTR(k, integer) ATTR(largest, boolean) OUT(values) OUT(index)
TNI_ARGUMENTS(top_k, TOP_K_ARGUMENTS)

#define TOP_K_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(dvalues) IN(index) ATTR(n, integer) OUT(dx)
TNI_ARGUMENTS(top_k_grad, TOP_K_GRAD_ARGUMENTS)

/* Dense rows along one axis: element i of row r is at r / inner * n * inner + r % inner + i * inner. The first k of
 * each in order are wanted, k = n where all are; in the outputs k takes the place of n. */
typedef struct tni_sorting {
    const tn_view *x, *values, *index; /* values, index: NULL where they are not wanted */
    int64_t rows, n, k, inner;
    tni_key_rule rule;
} tni_sorting;

tni_sorting tni_sorting_of_sort(const tn_call *call);
tni_sorting tni_sorting_of_top_k(const tn_call *call);

/* Where values go by an index: dx[index[j]] = dvalues[j], and 0 where no j leads. */
typedef struct tni_sorting_grad {
    const tn_view *dvalues, *index, *dx;
    int64_t rows, n, k, inner;
} tni_sorting_grad;

tni_sorting_grad tni_sorting_grad_of_sort(const tn_call *call);
tni_sorting_grad tni_sorting_grad_of_top_k(const tn_call *call);

/* What is put in order on the CPU: the key above, the index below, in one number of 8 bytes or of 16. */
static inline bool tni_sorting_is_narrow(const tni_sorting *o) {
    return tn_type_size(o->x->type) <= 4 && o->n <= UINT32_MAX;
}

enum {
    TNI_SORTING_LONG = 1 << 16,       /* elements of a row that several threads sort together */
    TNI_SORTING_MOST_BYTES = 1 << 30, /* of memory for slots, unless one has more */
    TNI_SORTING_SLOTS = 64,           /* of memory: so many pieces of work are under way at once, at most */
    TNI_SORTING_CHUNKS = 16,          /* of a long row, each for a thread */
    TNI_SORTING_PART = 1 << 15,       /* elements of a part of a row of which top_k wants few */
    TNI_SORTING_BITS = 11,            /* of a digit */
    TNI_SORTING_DIGITS = 1 << TNI_SORTING_BITS,
    TNI_SORTING_PASSES = 8, /* most: of 8 bits each */
    TNI_SORTING_BLOCK = 64, /* elements of a row that top_k looks at together */
};

/* Memory of one slot: two times `records`, and the counts of digits. */
typedef struct tni_sorting_room {
    int64_t slots, records;       /* records of one of the two halves */
    size_t record, counts, bytes; /* bytes of a record, of the counts, of a slot */
} tni_sorting_room;
tni_sorting_room tni_sorting_room_of(const tni_sorting *o);

/* Records that there is room for while the first k of a row are looked for, if few are wanted; 0: it is sorted. */
int64_t tni_sorting_few(const tni_sorting *o);

#endif
