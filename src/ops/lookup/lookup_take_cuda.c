/* take on the GPU: how many bytes a thread copies at a time. */
#include <string.h>

#include "core/layout/layout.h"
#include "cuda/copy/chunk.h"
#include "lookup_cuda.h"

enum {
    WARPS_PER_SM = 16, /* that share out long rows, at least */
    MANY_PARTS = 4,    /* of rows so long that those which the index names twice meet in the L2 cache only by parts */
};

tni_divided tni_divided_of(int64_t by, int64_t below) {
    tni_divided d = {.by = max(by, 1), .is_short = max(below, by) < INT32_MAX};
    if (d.is_short) d.divisor = tni_divisor_of((uint64_t)d.by);
    return d;
}

tni_index tni_index_of(const tni_lookup *l) {
    return (tni_index){.wide = tni_lookup_is_wide(l),
                       .drops_negative = l->drops_negative,
                       .v = l->v,
                       .skipped = l->skipped,
                       .by_outer = l->by_outer,
                       .by_n = l->by_n,
                       .by_inner = l->by_inner};
}

/* 4 bytes of what an index that is out of range makes: NaN, where the type has it. */
static uint32_t bad_bits(tn_type type, int word) {
    switch (type) {
    case TN_F16: return 0x7e007e00u;
    case TN_BF16: return 0x7fc07fc0u;
    case TN_F32:
    case TN_C64: return 0x7fc00000u;
    case TN_F64:
    case TN_C128: return word % 2 ? 0x7ff80000u : 0;
    default: return 0;
    }
}

static tn_status find(const tn_call *call, tn_launch *launch, int64_t bytes, int64_t count) {
    launch->block = TNI_TAKE_THREADS;
    launch->grid = (uint32_t)ceil_div(count, TNI_TAKE_THREADS * TNI_TAKE_ITEMS);
    return tni_cuda_find(call, launch, "lookup_take", "lookup_take_%d", (int)bytes);
}

/* Elements have an index each, which lies as they do, and four of them share an o. */
static bool takes_fours(const tni_lookup *l) {
    const bool single = l->inner == 1 || !tni_lookup_is_by_row(l);
    const bool alike = (l->n == 1 || l->by_n == l->inner) && (l->inner == 1 || l->by_inner == 1) &&
                       (l->outer == 1 || l->by_outer == l->n * l->inner);
    return single && alike && (l->inner == 1 ? l->n : l->inner) % 4 == 0 && tn_type_size(l->to->type) <= 8;
}

static tn_status launch_fours(const tn_call *call, const tni_lookup *l, const tni_take_state *s, tni_take *p) {
    p->count = l->outer * l->n * l->inner;
    p->slab = tni_divided_of(l->n * l->inner, p->count);
    p->pieces = tni_divided_of(l->inner, l->n * l->inner);
    return tn_cuda_launch(call, &s->fours, (void *[]){p});
}

/* Rows that are long enough for a warp to have a part of one. */
static bool has_long_rows(const tni_lookup *l, int64_t size) {
    return tni_lookup_is_by_row(l) && chunks_of(l->inner, size, true) >= TNI_LONG_CHUNKS;
}

/* Warps have smaller parts of a row where all of them together are too few for the GPU. */
static void spread_parts(tni_chunks *c, int64_t rows, int64_t warps) {
    int64_t items = c->items;
    while (items > 1 && rows * ceil_div(c->per_row, 32 * items) < warps) items = items / 2;
    c->parts = ceil_div(c->per_row, 32 * items);
    c->items = (int)ceil_div(c->per_row, 32 * c->parts);
    c->count = rows * c->parts;
    c->is_short = c->count < INT32_MAX;
    c->rows = c->parts >= MANY_PARTS ? rows : 0;
    c->divisor = divisor_if(c->is_short, c->rows ? c->rows : c->parts);
}

static tn_status launch_rows(const tn_call *call, const tni_lookup *l, const tni_take_state *s, tni_take *p) {
    const int64_t rows = l->outer * l->n;
    tn_launch launch = s->rows;
    p->n = tni_divided_of(l->n, rows);
    p->chunks.low = p->from;
    p->chunks.high = (const char *)p->from +
                     ((l->outer - 1) * s->whole.by_outer + (l->v - 1) * s->whole.by_v + l->inner) * s->size;
    fill_chunks(&p->chunks, p->to, l->inner, rows, s->size, true, s->row % 16 == 0);
    spread_parts(&p->chunks, rows, s->warps);
    return launch_chunks(call, &launch, chunk_blocks(&p->chunks), p);
}

tn_status tni_take_prepare(const tn_call *call, const tni_lookup *l, tni_take_state *s) {
    s->size = (int64_t)tn_type_size(l->to->type);
    s->row = s->size * l->inner;
    s->bytes = s->size;
    if (!tni_lookup_steps_of(l, l->from, &s->whole)) return tn_fail(TN_UNSUPPORTED, "%s: unknown steps", call->name);
    const int64_t steps = (s->whole.by_outer | s->whole.by_v) * s->size;
    while (tni_lookup_is_by_row(l) && s->bytes < 16 && (s->row | steps) % (2 * s->bytes) == 0) s->bytes *= 2;
    s->p.index = tni_index_of(l);
    for (int w = 0; w < 4; w++) s->p.bad[w] = bad_bits(l->to->type, w);
    if (has_long_rows(l, s->size)) {
        const tn_gpu *gpu;
        TN_TRY(tn_cuda_gpu(call, &gpu));
        s->warps = WARPS_PER_SM * gpu->sms;
        return tni_cuda_find(call, &s->rows, "lookup_take", "lookup_take_rows_%d", (int)s->size);
    }
    const bool by_row = tni_take_row_suits(call, l);
    s->by_columns = by_row || tni_take_columns_suit(call, l);
    if (s->by_columns) {
        TN_TRY((by_row ? tni_take_row_prepare : tni_take_columns_prepare)(call, l, &s->columns));
        memcpy(s->columns.p.bad, s->p.bad, sizeof s->p.bad);
        return TN_OK;
    }
    const int64_t bytes = l->outer * l->n * s->row;
    TN_TRY(find(call, &s->pieces, s->bytes, bytes / s->bytes));
    TN_TRY(find(call, &s->elements, s->size, bytes / s->size));
    if (!takes_fours(l)) return TN_OK;
    s->fours.block = TNI_TAKE_THREADS;
    s->fours.grid = (uint32_t)ceil_div(bytes / s->size, TNI_TAKE_THREADS * TNI_TAKE_FOURS * 4);
    return tni_cuda_find(call, &s->fours, "lookup_take", "lookup_take_fours_%d", (int)s->size);
}

tn_status tni_take_launch(const tn_call *call, const tni_lookup *l, const tni_take_state *s, const void *index) {
    if (s->by_columns) return tni_columns_launch(call, l, &s->columns, index);
    const bool aligned = ((uintptr_t)l->from->data | (uintptr_t)l->to->data) % (uintptr_t)s->bytes == 0;
    const int64_t bytes = aligned ? s->bytes : s->size;
    tni_take p = s->p;
    p.by_outer = s->whole.by_outer;
    p.by_v = s->whole.by_v;
    p.index.data = index;
    p.from = l->from->data;
    p.to = l->to->data;
    if (s->rows.kernel) return launch_rows(call, l, s, &p);
    if (s->fours.kernel && (uintptr_t)index % 16 == 0 && (uintptr_t)p.to % (uintptr_t)min(4 * s->size, 16) == 0)
        return launch_fours(call, l, s, &p);
    p.count = l->outer * l->n * s->row / bytes;
    p.by_outer = p.by_outer * s->size / bytes;
    p.by_v = p.by_v * s->size / bytes;
    p.pieces = tni_divided_of(s->row / bytes, p.count);
    p.n = tni_divided_of(l->n, p.count);
    if (tni_lookup_is_by_row(l)) p.index.by_inner = 0; /* pieces are not elements */
    return tn_cuda_launch(call, aligned ? &s->pieces : &s->elements, (void *[]){&p});
}

bool tni_lookup_take_cuda_accepts(const tn_call *call) {
    const tni_lookup l = tni_lookup_of(call);
    tni_lookup_steps w;
    return l.n >= 0 && tni_is_dense(l.to->ndim, l.to->shape, l.to->strides) && tni_lookup_steps_of(&l, l.from, &w);
}

static tn_status fill(const tn_call *call, void *state) {
    const tni_lookup l = tni_lookup_of(call);
    return tni_take_prepare(call, &l, state);
}

tn_status tni_lookup_take_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tni_take_state), fill, state);
}

tn_status tni_lookup_take_cuda_run(const tn_call *call, void *state) {
    const tni_lookup l = tni_lookup_of(call);
    return tni_take_launch(call, &l, state, l.index->data);
}
