/* sort, top_k and their gradients on the GPU: which kernels, and how the memory is shared out. */
#include "sorting.h"

#include "cuda/copy/copy.h"
#include "cuda/driver/cuda.h"
#include "sorting.cuh"

enum { CLEAR_BLOCK = 256, GRAD_BLOCK = 256, GRAD_BLOCKS_PER_SM = 8, GRAD_TOGETHER = 4, WARP_BLOCK = 128 };
enum { COUNT_BLOCK = 512, SHORT_TOP_K = 1024, SLICE = 8192 /* fewest elements of one */ };
static const int64_t NARROW = (int64_t)1 << 30; /* elements of rows whose places have 32 bits */
static const int64_t STREAMED = (int64_t)1 << 31;

static const char *kernels_of(tn_type type) {
    static const char *const names[] = {[1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    return names[tn_type_size(type)];
}

/* Blocks that sort a row in registers, the smallest first: sort_short.cu has a kernel for each. */
typedef struct block_form {
    int threads, items; /* of a thread */
} block_form;
static const block_form block_forms[] = {{256, 4}, {256, 8}, {256, 16}, {384, 16}, {0, 0}};
static const block_form block_forms_of_8_bytes[] = {{256, 4}, {256, 8}, {384, 8}, {0, 0}};

/* The one that a row fits in; of none, where it is too long. */
static block_form find_form(tn_type type, int64_t n) {
    const block_form *f = tn_type_size(type) == 8 ? block_forms_of_8_bytes : block_forms;
    while (f->threads && n > (int64_t)f->threads * f->items) f++;
    return *f;
}

/* ---- how -------------------------------------------------------------------------------------------------------- */

typedef enum method { BY_WARP, BY_BLOCK, BY_PASSES, BY_STREAM } method;

typedef struct sorting_plan {
    method method;
    int items;       /* of a warp's lane */
    block_form form; /* of a block */
    bool wide;       /* passes: 64 bits for a place */
    int passes;
    int64_t tile, tiles, buffers;
    int64_t slices;
} sorting_plan;

static bool is_streamed(const tni_sorting *o) {
    const int64_t most = TNI_TOP_K_MOST / (tn_type_size(o->x->type) == 8 ? 2 : 1);
    return o->k < o->n && o->n > SHORT_TOP_K && o->n <= STREAMED && o->k <= most;
}

static int64_t slices_of(const tni_sorting *o, int sms) {
    const int64_t wanted = ceil_div(3 * (int64_t)sms, o->rows), most = o->n / max(SLICE, 4 * o->k);
    return o->rows >= 2 * (int64_t)sms ? 1 : max(min(wanted, most), 1);
}

static sorting_plan plan_of(const tni_sorting *o, int sms) {
    const size_t size = tn_type_size(o->x->type);
    sorting_plan plan = {.method = BY_BLOCK, .passes = (int)size, .wide = o->n >= NARROW, .slices = 1};
    if (is_streamed(o)) {
        plan.method = BY_STREAM;
        plan.slices = slices_of(o, sms);
    } else if (o->n <= TNI_SORT_WARP) {
        plan.method = BY_WARP;
        plan.items = o->n <= 32 ? 1 : o->n <= 128 ? 4 : 8;
    } else if (find_form(o->x->type, o->n).threads) {
        plan.form = find_form(o->x->type, o->n);
    } else {
        plan.method = BY_PASSES;
        plan.tile = TNI_SORT_LONG_THREADS * (size == 8 || plan.wide ? TNI_SORT_LONG_FEW : TNI_SORT_LONG_ITEMS);
        plan.tiles = ceil_div(o->n, plan.tile);
        plan.buffers = min(plan.passes - 1, 2);
    }
    return plan;
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

/* Offsets. x, values, index: rows that lie one behind the other, where the axis is not the last. */
typedef struct sorting_room {
    size_t x, values, index;
    size_t counts, found, tickets, steps; /* the first three are cleared */
    size_t keys[2], places[2];
    size_t records; /* of slices */
    size_t bytes;
} sorting_room;

static size_t take(sorting_room *r, int64_t bytes) {
    const size_t at = r->bytes;
    r->bytes += (size_t)round_up(bytes, 64);
    return at;
}

static sorting_room room_of(const tni_sorting *o, const sorting_plan *plan) {
    const int64_t size = (int64_t)tn_type_size(o->x->type), place = plan->wide ? 8 : 4;
    const int64_t digits = o->rows * plan->passes * TNI_SORT_DIGITS * place;
    sorting_room r = {0};
    if (o->inner > 1) {
        r.x = take(&r, o->rows * o->n * size);
        r.values = take(&r, o->values ? o->rows * o->k * size : 0);
        r.index = take(&r, o->index ? o->rows * o->k * 8 : 0);
    }
    if (plan->method == BY_PASSES) {
        r.counts = take(&r, digits);
        r.found = take(&r, digits * plan->tiles);
        r.tickets = take(&r, plan->passes * 4);
        r.steps = take(&r, o->rows * plan->passes * 4);
        for (int b = 0; b < plan->buffers; b++) {
            r.keys[b] = take(&r, o->rows * o->n * size);
            r.places[b] = take(&r, o->rows * o->n * place);
        }
    }
    if (plan->slices > 1) r.records = take(&r, o->rows * plan->slices * o->k * TNI_TOP_K_RECORD * (size == 8 ? 2 : 1));
    return r;
}

/* ---- sort, and top_k --------------------------------------------------------------------------------------------- */

typedef struct sorting_state {
    tn_launch clear, count, plan, pass; /* by passes */
    tn_launch short_rows, stream, slices;
    sorting_plan how;
    sorting_room room;
    tni_sort p;
    tni_top_k top;
} sorting_state;

static tn_status set_grid(const tn_call *call, tn_launch *l, int64_t grid) {
    if (grid > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: so many rows are not possible at once", call->name);
    l->grid = (uint32_t)grid;
    return TN_OK;
}

static uint32_t clear_grid(int64_t bytes, const tn_gpu *gpu) {
    return (uint32_t)max(min(ceil_div(bytes, 16 * CLEAR_BLOCK), (int64_t)gpu->sms * 8), 1);
}

static tn_status find_short(const tn_call *call, const tni_sorting *o, sorting_state *s) {
    tn_launch *l = &s->short_rows;
    if (s->how.method == BY_WARP) {
        s->p.lanes = 1;
        while (s->p.lanes < o->n && s->p.lanes < 32) s->p.lanes *= 2;
        l->block = WARP_BLOCK;
        TN_TRY(set_grid(call, l, ceil_div(o->rows, WARP_BLOCK / s->p.lanes)));
        return tni_cuda_find(call, l, "sort_short", "sort_warp_%d_%s", s->how.items, kernels_of(o->x->type));
    }
    l->block = (uint32_t)s->how.form.threads;
    TN_TRY(set_grid(call, l, o->rows));
    return tni_cuda_find(call, l, "sort_short", "sort_block_%dx%d_%s", s->how.form.threads, s->how.form.items,
                         kernels_of(o->x->type));
}

static tn_status find_passes(const tn_call *call, const tni_sorting *o, const tn_gpu *gpu, sorting_state *s) {
    const char *wide = s->how.wide ? "wide_" : "", *type = kernels_of(o->x->type);
    s->p.passes = s->how.passes;
    s->p.tiles = s->how.tiles;
    s->clear = (tn_launch){.block = CLEAR_BLOCK, .grid = clear_grid((int64_t)(s->room.steps - s->room.counts), gpu)};
    s->count.block = COUNT_BLOCK;
    s->plan.block = 256;
    s->pass.block = TNI_SORT_LONG_THREADS;
    TN_TRY(set_grid(call, &s->count, o->rows * ceil_div(o->n, TNI_SORT_COUNTED)));
    TN_TRY(set_grid(call, &s->plan, o->rows));
    TN_TRY(set_grid(call, &s->pass, o->rows * s->how.tiles));
    TN_TRY(tni_cuda_find(call, &s->clear, "sorting_grad", "sorting_clear"));
    TN_TRY(tni_cuda_find(call, &s->count, "sort_long", "sort_count_%s%s", wide, type));
    TN_TRY(tni_cuda_find(call, &s->plan, "sort_long", "sort_plan%s", s->how.wide ? "_wide" : ""));
    return tni_cuda_find(call, &s->pass, "sort_long", "sort_pass_%s%s", wide, type);
}

/* Bytes of a block's collection in top_k.cu, of threads that take `items` at a time. */
static uint32_t collection_bytes(tn_type type, int items) {
    const int64_t record = TNI_TOP_K_RECORD * (tn_type_size(type) == 8 ? 2 : 1);
    const int64_t most = TNI_TOP_K_MOST * TNI_TOP_K_RECORD / record, step = TNI_TOP_K_THREADS * items;
    return (uint32_t)round_up((step + 2 * most) * record + (TNI_SORT_DIGITS + 8 + 5) * 4, 16);
}

static tn_status find_stream(const tn_call *call, const tni_sorting *o, sorting_state *s) {
    const tn_type type = o->x->type;
    const int items = TNI_TOP_K_ITEMS / (tn_type_size(type) == 8 ? 2 : 1);
    s->stream = (tn_launch){.block = TNI_TOP_K_THREADS, .shared = collection_bytes(type, items)};
    TN_TRY(set_grid(call, &s->stream, o->rows * s->how.slices));
    TN_TRY(tni_cuda_find(call, &s->stream, "top_k", "top_k_rows_%s", kernels_of(type)));
    if (s->how.slices == 1) return TN_OK;
    s->slices = (tn_launch){.block = TNI_TOP_K_THREADS, .shared = collection_bytes(type, 8)};
    TN_TRY(set_grid(call, &s->slices, o->rows));
    return tni_cuda_find(call, &s->slices, "top_k", "top_k_slices_%s", kernels_of(type));
}

static tn_status fill(const tn_call *call, const tni_sorting *o, sorting_state *s) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    if (o->rows == 0 || o->k == 0) return TN_OK;
    s->how = plan_of(o, gpu->sms);
    s->room = room_of(o, &s->how);
    s->p = (tni_sort){.rows = o->rows, .n = o->n, .k = o->k, .rule = o->rule};
    s->top = (tni_top_k){.rows = o->rows, .n = o->n, .k = o->k, .rule = o->rule, .slices = s->how.slices};
    switch (s->how.method) {
    case BY_STREAM: return find_stream(call, o, s);
    case BY_PASSES: return find_passes(call, o, gpu, s);
    default: return find_short(call, o, s);
    }
}

static tn_status run_passes(const tn_call *call, const sorting_state *s, tni_sort *p) {
    char *workspace = call->workspace;
    tni_sort_clear clear = {.begin = workspace + s->room.counts, .bytes = (long long)(s->room.steps - s->room.counts)};
    p->counts = workspace + s->room.counts;
    p->found = workspace + s->room.found;
    p->tickets = (unsigned *)(workspace + s->room.tickets);
    p->steps = (int *)(workspace + s->room.steps);
    for (int b = 0; b < s->how.buffers; b++) {
        p->keys[b] = workspace + s->room.keys[b];
        p->places[b] = workspace + s->room.places[b];
    }
    TN_TRY(tn_cuda_launch(call, &s->clear, (void *[]){&clear}));
    TN_TRY(tn_cuda_launch(call, &s->count, (void *[]){p}));
    TN_TRY(tn_cuda_launch(call, &s->plan, (void *[]){p}));
    for (p->pass = 0; p->pass < s->how.passes; p->pass++) TN_TRY(tn_cuda_launch(call, &s->pass, (void *[]){p}));
    return TN_OK;
}

static tn_status run_rows(const tn_call *call, const sorting_state *s, const void *x, void *values, void *index) {
    if (s->how.method == BY_STREAM) {
        tni_top_k p = s->top;
        p.x = x;
        p.values = values;
        p.index = index;
        p.found = (char *)call->workspace + s->room.records;
        TN_TRY(tn_cuda_launch(call, &s->stream, (void *[]){&p}));
        return tn_cuda_launch(call, &s->slices, (void *[]){&p});
    }
    tni_sort p = s->p;
    p.x = x;
    p.values = values;
    p.index = index;
    return s->how.method == BY_PASSES ? run_passes(call, s, &p) : tn_cuda_launch(call, &s->short_rows, (void *[]){&p});
}

/* Copies between (outer, n, inner) and rows of n, (outer, inner, n). */
static tn_status turn(const tn_call *call, const tni_sorting *o, void *rows, void *whole, tn_type type, bool back) {
    const int64_t shape[] = {o->rows / o->inner, o->inner, o->n}, block = o->n * o->inner;
    const int64_t in_rows[] = {block, o->n, 1}, in_whole[] = {block, 1, o->inner};
    const tn_view a = {.data = rows, .shape = shape, .strides = in_rows, .ndim = 3, .type = type};
    const tn_view b = {.data = whole, .shape = shape, .strides = in_whole, .ndim = 3, .type = type};
    return back ? tni_cuda_copy(call, &b, &a) : tni_cuda_copy(call, &a, &b);
}

static tn_status run_sorting(const tn_call *call, const tni_sorting *o, const sorting_state *s) {
    char *workspace = call->workspace;
    void *values = data_of(o->values), *index = data_of(o->index);
    if (o->rows == 0 || o->k == 0) return TN_OK;
    if (o->inner == 1) return run_rows(call, s, o->x->data, values, index);
    TN_TRY(turn(call, o, workspace + s->room.x, o->x->data, o->x->type, false));
    TN_TRY(run_rows(call, s, workspace + s->room.x, values ? workspace + s->room.values : NULL,
                    index ? workspace + s->room.index : NULL));
    if (values) TN_TRY(turn(call, o, workspace + s->room.values, values, o->x->type, true));
    return index ? turn(call, o, workspace + s->room.index, index, TN_I64, true) : TN_OK;
}

static tn_status fill_sort(const tn_call *call, void *state) {
    const tni_sorting o = tni_sorting_of_sort(call);
    return fill(call, &o, state);
}

static tn_status fill_top_k(const tn_call *call, void *state) {
    const tni_sorting o = tni_sorting_of_top_k(call);
    return fill(call, &o, state);
}

static size_t workspace(const tn_call *call) {
    const sorting_state *s = call->state;
    return s->room.bytes;
}

size_t tni_sort_cuda_workspace(const tn_call *call) {
    return workspace(call);
}

size_t tni_top_k_cuda_workspace(const tn_call *call) {
    return workspace(call);
}

tn_status tni_sort_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(sorting_state), fill_sort, state);
}

tn_status tni_top_k_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(sorting_state), fill_top_k, state);
}

tn_status tni_sort_cuda_run(const tn_call *call, void *state) {
    const tni_sorting o = tni_sorting_of_sort(call);
    return run_sorting(call, &o, state);
}

tn_status tni_top_k_cuda_run(const tn_call *call, void *state) {
    const tni_sorting o = tni_sorting_of_top_k(call);
    return run_sorting(call, &o, state);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

typedef struct grad_state {
    tn_launch clear, scatter;
    tni_sort_grad p;
    int64_t bytes; /* of dx, where not all of it is written */
} grad_state;

static tn_status fill_grad(const tn_call *call, const tni_sorting_grad *g, grad_state *s) {
    const size_t size = tn_type_size(g->dx->type);
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    s->p = (tni_sort_grad){.count = g->rows * g->k, .n = g->n, .k = g->k, .inner = g->inner};
    s->bytes = g->k < g->n ? g->rows * g->n * (int64_t)size : 0;
    s->clear.block = CLEAR_BLOCK;
    s->clear.grid = s->bytes ? clear_grid(s->bytes, gpu) : 0;
    s->scatter.block = GRAD_BLOCK;
    s->scatter.grid = (uint32_t)min(ceil_div(s->p.count, GRAD_BLOCK * GRAD_TOGETHER),
                                    (int64_t)gpu->sms * GRAD_BLOCKS_PER_SM);
    TN_TRY(tni_cuda_find(call, &s->clear, "sorting_grad", "sorting_clear"));
    return tni_cuda_find(call, &s->scatter, "sorting_grad", "sorting_scatter_%s", kernels_of(g->dx->type));
}

static tn_status run_grad(const tn_call *call, const tni_sorting_grad *g, const grad_state *s) {
    tni_sort_clear clear = {.begin = g->dx->data, .bytes = s->bytes};
    tni_sort_grad p = s->p;
    p.dvalues = g->dvalues->data;
    p.index = g->index->data;
    p.dx = g->dx->data;
    TN_TRY(tn_cuda_launch(call, &s->clear, (void *[]){&clear}));
    return tn_cuda_launch(call, &s->scatter, (void *[]){&p});
}

static tn_status fill_sort_grad(const tn_call *call, void *state) {
    const tni_sorting_grad g = tni_sorting_grad_of_sort(call);
    return fill_grad(call, &g, state);
}

static tn_status fill_top_k_grad(const tn_call *call, void *state) {
    const tni_sorting_grad g = tni_sorting_grad_of_top_k(call);
    return fill_grad(call, &g, state);
}

tn_status tni_sort_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_sort_grad, state);
}

tn_status tni_top_k_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_top_k_grad, state);
}

tn_status tni_sort_grad_cuda_run(const tn_call *call, void *state) {
    const tni_sorting_grad g = tni_sorting_grad_of_sort(call);
    return run_grad(call, &g, state);
}

tn_status tni_top_k_grad_cuda_run(const tn_call *call, void *state) {
    const tni_sorting_grad g = tni_sorting_grad_of_top_k(call);
    return run_grad(call, &g, state);
}
