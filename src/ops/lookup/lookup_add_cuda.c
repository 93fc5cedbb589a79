/* add on the GPU: with a sort of the positions, or without where elements have an index each: few along the axis, by
 * columns whose sums are in shared memory, or by columns that are split into such parts first. */
#include "core/layout/layout.h"
#include "cuda/rows/row_plan.h"
#include "lookup_cuda.h"

typedef enum way { BY_SORT, BY_FEW, BY_COLUMNS, BY_SPLIT } way;

typedef struct add_state {
    way way;
    tn_launch elements, pieces; /* of few; pieces: of 16 bytes */
    tni_add_few few;
    bool may_piece;
    tni_columns_state columns;
    tni_split_state split;
    tni_sort_state sort;
} add_state;

/* What a sort takes, measured on an H200: its launches, and positions in a nanosecond. */
enum { SORT_NS = 40000, SORTED_PER_NS = 6 };

static way way_of(const tn_call *call, const tni_lookup *l) {
    const bool single = l->inner == 1 || !tni_lookup_is_by_row(l); /* elements, not rows */
    if (single && l->n <= TNI_ADD_FEW) return BY_FEW;
    const double columns = tni_add_columns_ns(call, l), split = tni_add_split_ns(call, l);
    const double sort = SORT_NS + (double)(l->outer * l->n * l->inner) / SORTED_PER_NS;
    if (columns <= split && columns <= sort) return BY_COLUMNS;
    return split <= sort ? BY_SPLIT : BY_SORT;
}

/* A sort wants base to lie densely. */
bool tni_lookup_add_cuda_accepts(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    tni_lookup_steps w;
    if (tni_lookup_accepts(call)) return true;
    return l.n >= 0 && tni_is_dense(l.from->ndim, l.from->shape, l.from->strides) &&
           tni_is_dense(l.to->ndim, l.to->shape, l.to->strides) && l.base && tni_lookup_steps_of(&l, l.base, &w) &&
           way_of(call, &l) != BY_SORT;
}

size_t tni_lookup_add_cuda_workspace(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    const add_state *s = call->state;
    return s->way == BY_SORT ? tni_sort_room_of(&l, false).bytes : s->way == BY_SPLIT ? s->split.bytes : 0;
}

static tn_status fill_few(const tn_call *call, const tni_lookup *l, add_state *s) {
    const char *type = tn_type_name(l->to->type);
    const int64_t vector = 16 / (int64_t)tn_type_size(l->to->type), count = l->outer * l->v * l->inner;
    tni_lookup_steps base = {0};
    if (l->base) tni_lookup_steps_of(l, l->base, &base);
    s->few.by_outer = base.by_outer;
    s->few.by_v = base.by_v;
    s->may_piece = l->inner == 1 && l->v % vector == 0 && base.by_v <= 1 && base.by_outer % vector == 0;
    s->elements.block = s->pieces.block = TNI_ADD_THREADS;
    s->elements.grid = (uint32_t)ceil_div(count, TNI_ADD_THREADS * TNI_ADD_ITEMS);
    s->pieces.grid = (uint32_t)ceil_div(count / vector, TNI_ADD_THREADS * TNI_ADD_ITEMS);
    TN_TRY(tni_cuda_find(call, &s->elements, "lookup_add", "lookup_add_few_s_%s", type));
    return s->may_piece ? tni_cuda_find(call, &s->pieces, "lookup_add", "lookup_add_few_p_%s", type) : TN_OK;
}

static tn_status fill(const tn_call *call, void *state) {
    const tni_lookup l = tni_lookup_of(call);
    add_state *s = state;
    s->way = way_of(call, &l);
    s->few = (tni_add_few){.index = tni_index_of(&l), .n = l.n, .inner = l.inner};
    switch (s->way) {
    case BY_FEW: return fill_few(call, &l, s);
    case BY_COLUMNS: return tni_add_columns_prepare(call, &l, &s->columns);
    case BY_SPLIT: return tni_add_split_prepare(call, &l, &s->split);
    default: return tni_sort_prepare(call, &l, false, &s->sort);
    }
}

tn_status tni_lookup_add_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(add_state), fill, state);
}

tn_status tni_lookup_add_cuda_run(const tn_call *call, void *state) {
    const tni_lookup l = tni_lookup_of(call);
    const add_state *s = state;
    if (s->way == BY_SORT) return tni_sort_launch(call, &l, &s->sort);
    if (s->way == BY_SPLIT) return tni_add_split_launch(call, &l, &s->split);
    if (s->way == BY_COLUMNS) return tni_columns_launch(call, &l, &s->columns, l.index->data);
    tni_add_few p = s->few;
    p.index.data = l.index->data;
    p.from = l.from->data;
    p.base = data_of(l.base);
    p.to = l.to->data;
    const bool pieces = s->may_piece && tni_is_aligned((const void *[]){p.base, p.to}, 2);
    const int64_t vector = pieces ? 16 / (int64_t)tn_type_size(l.to->type) : 1;
    p.count = l.outer * l.v * l.inner / vector;
    p.slab = tni_divided_of(l.v * l.inner / vector, p.count);
    p.by_inner = tni_divided_of(l.inner, l.v * l.inner);
    return tn_cuda_launch(call, pieces ? &s->pieces : &s->elements, (void *[]){&p});
}
