/* add on the CPU: what its vectorised kernels (lookup_add_cpu.c) share with what makes their workspace. */
#ifndef TNI_LOOKUP_ADD_H
#define TNI_LOOKUP_ADD_H

#include "lookup.h"

/* Rows are long enough to be put into groups first. */
bool tni_lookup_is_grouped(const tni_lookup *l);

/* The rows of `from`, by what they belong to: those of k are positions[starts[k] … starts[k + 1] - 1]. An index that is
 * the same for all o makes one list for all of them, the `slabs`. Else there is one slab, and k counts on through o. */
typedef struct tni_groups {
    int64_t slabs, keys;
    int64_t positions_of_slab; /* rows of `from` from slab to slab */
    int64_t *starts;           /* (keys + 1) */
    int64_t *positions;
} tni_groups;

/* In the call's workspace. Fails where an index is out of range. */
tn_status tni_groups_make(const tn_call *call, const tni_lookup *l, tni_groups *g);

/* How elements are added without groups. */
typedef struct tni_direct {
    bool by_key;   /* threads share the k, not the outer dimension */
    int64_t grain; /* of what they share */
    int64_t block; /* so many of the outer dimension at once, where they are small */
    int64_t lanes; /* blocks that are under way at most */
    size_t bytes;  /* of the sums in the workspace; 0: they are in the result */
} tni_direct;

tni_direct tni_direct_of(const tni_lookup *l);

/* Fails where an index is out of range: for calls without a result. */
tn_status tni_lookup_check(const tn_call *call, const tni_lookup *l);

#endif
