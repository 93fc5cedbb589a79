/* Operators that look up are one thing, seen two ways. Three dimensions are enough: those before the axis, the axis,
 * those behind it.
 *
 *     take:  to[o, j, i] = from[o, k, i]             for k = index[o, j, i]
 *     add:   to[o, k, i] = base[o, k, i] + the sum of from[o, j, i] over all j with index[o, j, i] == k
 *
 * Each is the gradient of the other. An index that has no o or no i is read with a step of 0. Sums have the
 * same bits every time: they are in the order of j, or do not depend on an order (lookup_lists.cu). */
#ifndef TNI_LOOKUP_H
#define TNI_LOOKUP_H

#include <stdatomic.h>

#include "core/host/arith.h"
#include "ops/arguments.h"

typedef struct tni_lookup {
    const tn_view *from, *to, *index;
    const tn_view *base;              /* of add; NULL: 0 */
    const char *index_name;           /* as the contract calls it */
    int64_t outer, v, n, inner;       /* from of take and to of add: (outer, v, inner). The other: (outer, n, inner) */
    int64_t by_outer, by_n, by_inner; /* the steps of the index */
    int64_t skipped;                  /* the index of which take makes 0, and which add leaves out; -1: there is none */
    bool drops_negative;              /* negative ones are skipped, too */
} tni_lookup;

/* A kernel of such an operator has one as its `data`: how a call is seen. */
typedef struct tni_lookup_kind {
    tni_lookup (*of)(const tn_call *call);
} tni_lookup_kind;

static inline tni_lookup tni_lookup_of(const tn_call *call) {
    return ((const tni_lookup_kind *)call->kernel->data)->of(call);
}

/* The three dimensions of `shape` around an axis. */
static inline void tni_lookup_around(tni_lookup *l, const tn_view *shape, int axis) {
    l->outer = tn_product(shape, 0, axis);
    l->inner = tn_product(shape, axis + 1, shape->ndim);
}

/* n and the steps, of an index that is the same for all o and i, and of one that has all dimensions. An index may have
 * any strides that three steps can say; where they cannot, n is -1. */
void tni_lookup_by_row(tni_lookup *l);
void tni_lookup_by_element(tni_lookup *l, int axis);

/* Rows of `inner` elements belong to one index. */
static inline bool tni_lookup_is_by_row(const tni_lookup *l) {
    return l->by_inner == 0 || l->inner <= 1;
}

static inline bool tni_lookup_is_wide(const tni_lookup *l) {
    return l->index->type == TN_I64;
}

static inline int64_t tni_index_at(const void *index, bool wide, int64_t i) {
    return wide ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

/* Are n indices, `by` apart, all from 0 to v - 1? The sign of k, or of v - 1 - k, says where one is not. */
static inline bool tni_indices_are_within(const tni_lookup *l, int64_t at, int64_t by, int64_t n) {
    const bool wide = tni_lookup_is_wide(l);
    const void *index = l->index->data;
    const uint64_t most = (uint64_t)l->v - 1;
    uint64_t outside = 0;
    for (int64_t i = 0; i < n && wide; i++) {
        const uint64_t k = (uint64_t)tni_index_at(index, true, at + i * by);
        outside |= k | (most - k);
    }
    for (int64_t i = 0; i < n && !wide; i++) {
        const uint64_t k = (uint64_t)tni_index_at(index, false, at + i * by);
        outside |= k | (most - k);
    }
    return l->v > 0 && outside >> 63 == 0;
}

/* Elements at a time: their indices, and what they are as `real`, stay in the nearest cache. */
enum { TNI_LOOKUP_RUN = 512 };

/* Of so many elements, in slabs of n indices each, how many of the k lie before their slab's. */
static inline void tni_place_slabs(int64_t *before, int64_t count, int64_t n, int64_t v) {
    for (int64_t i = 0, slab = 0; i < count; slab += v) {
        for (const int64_t end = i + n; i < end; i++) before[i] = slab;
    }
}

static inline bool tni_lookup_skips(const tni_lookup *l, int64_t k) {
    return k < 0 ? l->drops_negative : k == l->skipped;
}

/* The failure that an index is: it stands at (o, j, i). */
tn_status tni_lookup_bad(const tn_call *call, const tni_lookup *l, int64_t o, int64_t j, int64_t i);

/* Keeps the least: threads may meet bad indices in any order. */
static inline void tni_note_first(_Atomic int64_t *first, int64_t at) {
    int64_t known = atomic_load(first);
    while (at < known && !atomic_compare_exchange_weak(first, &known, at)) {
    }
}

/* Where the index does not lie densely, a kernel takes what three steps can say, if all else is dense. */
bool tni_lookup_accepts(const tn_call *call);

/* The steps of the tensor that the index counts in, (outer, v, inner), where its elements behind the axis lie densely:
 * from of take, base of add. */
typedef struct tni_lookup_steps {
    int64_t by_outer, by_v;
} tni_lookup_steps;
/* Whether two steps can say it, neither of them backward. */
bool tni_lookup_steps_of(const tni_lookup *l, const tn_view *view, tni_lookup_steps *w);
/* Of take on the CPU, that tensor is one which two steps can say. */
bool tni_lookup_take_accepts(const tn_call *call);
/* On the GPU, that tensor need not lie densely either: of add, where sums are in shared memory. */
bool tni_lookup_take_cuda_accepts(const tn_call *call);
bool tni_lookup_add_cuda_accepts(const tn_call *call);

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

tn_status tni_lookup_take(const tn_call *call, void *state);
tn_status tni_lookup_take_ref(const tn_call *call, void *state);
tn_status tni_lookup_add_ref(const tn_call *call, void *state);
size_t tni_lookup_add_ref_workspace(const tn_call *call);
size_t tni_lookup_add_workspace(const tn_call *call);

/* Of an operator whose calls `kind` sees: strided ones first, then dense. */
#define TNI_TAKE_CPU(kind, ...) \
    { .name = "copy", .device = TN_CPU, .run = tni_lookup_take, .data = &(kind), __VA_ARGS__ }
#define TNI_TAKE_KERNELS(kind)                                                                                       \
    TNI_TAKE_CPU(kind, .flags = TN_STRIDED, .accepts = tni_lookup_take_accepts), TNI_TAKE_CPU(kind),                 \
        TNI_CUDA_KERNEL(lookup_take, .flags = TN_STRIDED, .accepts = tni_lookup_take_cuda_accepts, .data = &(kind)), \
        TNI_CUDA_KERNEL(lookup_take, .data = &(kind)), {                                                             \
        .name = "ref", .device = TN_CPU, .run = tni_lookup_take_ref, .data = &(kind)                                 \
    }
#define TNI_ADD_KERNELS(kind)                                                                                  \
    TNI_CPU_KERNELS(lookup_add, .flags = TN_STRIDED, .accepts = tni_lookup_accepts,                            \
                    .workspace = tni_lookup_add_workspace, .data = &(kind)),                                   \
        TNI_CPU_KERNELS(lookup_add, .workspace = tni_lookup_add_workspace, .data = &(kind)),                   \
        TNI_CUDA_KERNEL(lookup_add, .flags = TN_STRIDED, .accepts = tni_lookup_add_cuda_accepts,               \
                        .workspace = tni_lookup_add_cuda_workspace, .data = &(kind)),                          \
        TNI_CUDA_KERNEL(lookup_add, .workspace = tni_lookup_add_cuda_workspace, .data = &(kind)), {            \
        .name = "ref", .device = TN_CPU, .run = tni_lookup_add_ref, .workspace = tni_lookup_add_ref_workspace, \
        .data = &(kind)                                                                                        \
    }

#endif
