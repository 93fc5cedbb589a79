/* sum and sum_grad on the GPU: which kernels of sum.cu a call takes. */
#include <string.h>

#include "../cuda/cuda.h"
#include "../cuda/walk.h"
#include "sum.cuh"
#include "sum.h"

enum { X };
enum { AXES };
enum { Y };

enum { GRAD_DY };
enum { GRAD_SHAPE, GRAD_AXES };
enum { GRAD_DX };

enum {
    THREAD_PACKS = 2,  /* up to so many packs are added up by one thread, */
    FEW_PACKS = 16,    /* by 8 threads, */
    WARP_PACKS = 1024, /* by a warp; longer sums by a block, */
    SMALL_BYTES = 1 << 18,
    FEW_PARTS = 8,    /* which does so many parts one after the other rather than have a second kernel */
    BUSY = 4,         /* blocks for each multiprocessor that are enough to do parts one after the other */
    MANY_ROWS = 4096, /* columns: from so many rows on, parts are of LONG_PART rows at least, before of SHORT_PART */
    SHORT_PART = 1024,
    SLOT_ROWS = 16, /* columns: rows that a thread has at least, if there are more threads */
    LONG_PART = 256,
    MOST_PARTS = 8192, /* columns: longer parts rather than more */
    END_PARTS = 256,   /* columns: more parts are first added up to fewer */
};

typedef struct sum_plan {
    bool empty, by_rows, two_ends;
    bool copies;                    /* a sum has one term */
    tni_launch first, middle, last; /* last: a grid of 0 where there is none */
    int64_t middle_at;              /* in the workspace, in numbers: the parts that `middle` makes */
    bool aligned;                   /* columns: strides are multiples of 16 bytes */
    int64_t high;                   /* columns: elements from x's first one to behind the last in memory */
    union {
        struct {
            tni_sum_rows all, end;
        } rows;
        struct {
            tni_sum_columns all, middle;
            tni_sum_end end;
        } columns;
    };
} sum_plan;

static const char *type_name(tn_type type) {
    return type == TN_F16 ? "f16" : type == TN_BF16 ? "bf16" : type == TN_F32 ? "f32" : "f64";
}

static int64_t pieces(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int power_of(int64_t least) {
    int power = 0;
    while ((int64_t)1 << power < least) power++;
    return power;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Views: x, and y spread over x's shape, with stride 0 where it is summed up. */
typedef struct shapes {
    tni_rows all, kept, reduced; /* kept and reduced: without the innermost dimension */
    bool by_rows;                /* which is reduced */
    int64_t n, step, y_step;
    int64_t outputs, terms;
    int size; /* bytes of an element */
} shapes;

static tni_rows only(const tni_rows *all, bool reduced) {
    tni_rows rows = {.n = 1, .count = 1, .n_views = all->n_views};
    for (int d = 0; d < all->n_dims; d++) {
        if ((all->strides[d][1] == 0) != reduced) continue;
        rows.shape[rows.n_dims] = all->shape[d];
        memcpy(rows.strides[rows.n_dims++], all->strides[d], sizeof all->strides[d]);
        rows.count *= all->shape[d];
    }
    return rows;
}

static shapes shapes_of(const tn_call *call) {
    const tn_view *x = tn_in(call, X), *y = tn_out(call, Y);
    int64_t strides[TN_MAX_RANK], inner[TNI_ROWS_MAX];
    tni_sum_strides(x, y, &call->attrs[AXES], strides);
    const tn_view spread = {.shape = x->shape, .strides = strides, .ndim = x->ndim};
    const tn_view *views[] = {x, &spread};
    shapes s = {.all = tni_rows_of(views, 2, -1), .n = 1, .step = 1, .outputs = tn_count(y)};
    s.size = (int)tn_type_size(x->type);
    s.terms = only(&s.all, true).count;
    s.by_rows = s.all.n_dims == 0 || s.terms == 0 || s.all.strides[s.all.n_dims - 1][1] == 0;
    if (s.terms == 0) {
        s.n = 0;
    } else if (s.all.n_dims > 0) {
        s.n = tni_rows_take(&s.all, s.all.n_dims - 1, inner);
        s.step = inner[0];
        s.y_step = inner[1];
    }
    s.kept = only(&s.all, false);
    s.reduced = only(&s.all, true);
    return s;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* How a row of so many packs is cut: by its length alone. */
static int64_t row_parts(const shapes *s) {
    const int64_t packs = pieces(s->n, 16 / s->size) * s->reduced.count;
    return packs > TNI_SUM_CHUNK ? pieces(packs, TNI_SUM_CHUNK) : 1;
}

/* Whether a block does all parts of a sum: they are few, and other sums keep the GPU busy. */
static bool row_is_whole(const shapes *s, int64_t parts, const tni_gpu *gpu) {
    return parts <= FEW_PARTS || (parts <= TNI_SUM_WHOLE && s->outputs >= BUSY * gpu->sms);
}

/* The packs of a sum: those of a segment, then segments. */
static void walk_packs(tni_walk *walk, const shapes *s) {
    const int64_t lanes = 16 / s->size;
    walk->count = 1;
    tni_walk_push(walk, pieces(s->n, lanes), lanes * s->step, lanes);
    for (int d = s->reduced.n_dims - 1; d >= 0; d--) {
        tni_walk_push(walk, s->reduced.shape[d], s->reduced.strides[d][0], 0);
    }
}

/* From sum to sum where its parts lie side by side. */
static void walk_parts(tni_walk *walk, const tni_walk *kept, int64_t parts) {
    walk->count = 1;
    walk->is_short = 1;
    for (int d = 0; d < kept->n_dims; d++) {
        tni_walk_push(walk, kept->shape[d], walk->count * parts, kept->strides[d][1]);
    }
}

/* Adds up the parts of each sum. */
static tn_status plan_row_end(const tn_call *call, sum_plan *plan) {
    const tni_sum_rows *all = &plan->rows.all;
    const char *type = type_name(tn_in(call, X)->type);
    const int64_t per_pack = strcmp(type, "f64") == 0 ? 2 : 4;
    tni_sum_rows *end = &plan->rows.end;
    *end = (tni_sum_rows){.n = all->n_parts, .step = 1, .outputs = all->outputs, .n_parts = 1, .whole = 1};
    end->n_packs = end->chunk = pieces(end->n, per_pack);
    walk_parts(&end->kept, &all->kept, all->n_parts);
    const bool warp = all->n_parts <= TNI_SUM_WHOLE;
    plan->last.grid = (uint32_t)(warp ? pieces(end->outputs, TNI_SUM_THREADS / 32) : end->outputs);
    plan->last.block = TNI_SUM_THREADS;
    return tni_cuda_find(call, &plan->last, "sum", "sum_end_%s_%s", warp ? "warp" : "block", type);
}

static tn_status plan_rows(const tn_call *call, const shapes *s, const tni_gpu *gpu, sum_plan *plan) {
    tni_sum_rows *all = &plan->rows.all;
    const int64_t parts = row_parts(s);
    *all = (tni_sum_rows){.n = s->n, .step = s->step, .outputs = s->outputs, .chunk = TNI_SUM_CHUNK};
    tni_walk_of(&all->kept, &s->kept);
    walk_packs(&all->packs, s);
    all->n_packs = all->packs.count;
    all->n_parts = (int)parts;
    all->whole = row_is_whole(s, parts, gpu);
    const bool flat = s->reduced.n_dims == 0;
    const char *kind = "block";
    int64_t per_block = 1;
    if (flat && all->n_packs <= THREAD_PACKS) {
        kind = "thread";
        per_block = TNI_SUM_THREADS;
    } else if (all->n_packs <= FEW_PACKS) {
        kind = "few";
        per_block = TNI_SUM_THREADS / 8;
    } else if (all->n_packs <= WARP_PACKS) {
        kind = "warp";
        per_block = TNI_SUM_THREADS / 32;
    }
    plan->first.grid = (uint32_t)(pieces(s->outputs, per_block) * (all->whole ? 1 : parts));
    plan->first.block = TNI_SUM_THREADS;
    TN_TRY(tni_cuda_find(call, &plan->first, "sum", "sum_%s%s_%s", kind, flat ? "" : "_segments",
                         type_name(tn_in(call, X)->type)));
    return all->whole ? TN_OK : plan_row_end(call, plan);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* By the number of rows alone. */
static int64_t rows_per_part(int64_t rows) {
    if (rows <= MANY_ROWS) return SHORT_PART;
    const int64_t least = pieces(pieces(rows, MOST_PARTS), TNI_SUM_SLOTS) * TNI_SUM_SLOTS;
    return least > LONG_PART ? least : LONG_PART;
}

/* Fills in what follows from c, n_rows and the kept dimensions; returns the number of blocks. */
static int64_t divide_columns(tni_sum_columns *p, int size, const tni_gpu *gpu) {
    const int64_t per_pack = 16 / size, packs = pieces(p->c, per_pack);
    const int64_t shares = pieces(p->n_rows, SLOT_ROWS);
    const int64_t slots = p->n_rows <= MANY_ROWS ? TNI_SUM_MANY_SLOTS : TNI_SUM_SLOTS;
    p->slots = power_of(shares < slots ? shares : slots);
    const int64_t lanes = shares == 1 ? 32 : TNI_SUM_THREADS >> p->slots; /* side by side, at most */
    p->lanes = power_of(packs < lanes ? packs : lanes < TNI_SUM_LANES || shares == 1 ? lanes : TNI_SUM_LANES);
    const int64_t width = per_pack << p->lanes;
    p->tiles = pieces(p->c, width);
    p->per_part = rows_per_part(p->n_rows);
    p->n_parts = pieces(p->n_rows, p->per_part);
    const int64_t per_block = TNI_SUM_THREADS >> (p->lanes + p->slots), whole = p->tiles * p->kept.count;
    const bool small = p->n_parts <= FEW_PARTS && p->n_rows * p->c * p->kept.count * size <= SMALL_BYTES;
    p->whole = p->n_parts == 1 || small || (p->n_parts <= TNI_SUM_END_SLOTS && whole >= BUSY * gpu->sms * per_block);
    p->items = whole * (p->whole ? 1 : p->n_parts);
    return pieces(p->items, per_block);
}

static int64_t high_of(const tn_view *v) {
    int64_t high = 1;
    for (int d = 0; d < v->ndim; d++) high += v->strides[d] > 0 ? (v->shape[d] - 1) * v->strides[d] : 0;
    return high;
}

/* Packs of columns are whole and, if the data is, 16-byte aligned. */
static bool are_aligned(const tni_sum_columns *p, int size) {
    int64_t all = p->c * size;
    for (int d = 0; d < p->kept.n_dims; d++) all |= p->kept.strides[d][0] * size;
    for (int d = 0; d < p->rows.n_dims; d++) all |= p->rows.strides[d][0] * size;
    return p->step == 1 && all % 16 == 0;
}

/* Many parts are added up as columns again: (n_parts, outputs). */
static tn_status plan_middle(const tn_call *call, const tni_gpu *gpu, sum_plan *plan) {
    const tni_sum_columns *all = &plan->columns.all;
    tni_sum_columns *middle = &plan->columns.middle;
    const bool is_double = tn_in(call, X)->type == TN_F64;
    const int size = is_double ? 8 : 4;
    *middle = (tni_sum_columns){.c = all->kept.count * all->c, .step = 1, .n_rows = all->n_parts};
    middle->kept.count = middle->kept.is_short = 1;
    middle->rows.count = 1;
    tni_walk_push(&middle->rows, all->n_parts, middle->c, 0);
    plan->middle.grid = (uint32_t)divide_columns(middle, size, gpu);
    if (middle->whole) { /* the end follows, so its result is a part too */
        middle->whole = 0;
        middle->items *= middle->n_parts;
        plan->middle.grid = (uint32_t)pieces(middle->items, TNI_SUM_THREADS >> (middle->lanes + middle->slots));
    }
    middle->wide = are_aligned(middle, size) ? 2 : 0;
    plan->middle.block = TNI_SUM_THREADS;
    plan->two_ends = true;
    plan->middle_at = all->n_parts * middle->c;
    return tni_cuda_find(call, &plan->middle, "sum", "sum_columns_%s", is_double ? "f64" : "f32");
}

static tn_status plan_columns(const tn_call *call, const shapes *s, const tni_gpu *gpu, sum_plan *plan) {
    tni_sum_columns *all = &plan->columns.all;
    const char *type = type_name(tn_in(call, X)->type);
    *all = (tni_sum_columns){.c = s->n, .step = s->step, .y_step = s->y_step, .n_rows = s->terms};
    tni_walk_of(&all->kept, &s->kept);
    tni_walk_of(&all->rows, &s->reduced);
    plan->first.grid = (uint32_t)divide_columns(all, s->size, gpu);
    plan->first.block = TNI_SUM_THREADS;
    plan->aligned = are_aligned(all, s->size);
    plan->high = high_of(tn_in(call, X));
    TN_TRY(
        tni_cuda_find(call, &plan->first, "sum", "sum_columns%s_%s", all->rows.n_dims <= 1 ? "" : "_segments", type));
    if (all->whole) return TN_OK;
    plan->columns.end = (tni_sum_end){.kept = all->kept, .c = all->c, .y_step = all->y_step, .n_parts = all->n_parts};
    plan->columns.end.outputs = s->outputs;
    if (all->n_parts > END_PARTS) {
        TN_TRY(plan_middle(call, gpu, plan));
        plan->columns.end.n_parts = plan->columns.middle.n_parts;
    }
    plan->last.grid = (uint32_t)pieces(s->outputs, TNI_SUM_THREADS / TNI_SUM_END_SLOTS);
    plan->last.block = TNI_SUM_THREADS;
    return tni_cuda_find(call, &plan->last, "sum", "sum_end_columns_%s", type);
}

/* ---- the operator ------------------------------------------------------------------------------------------------ */

size_t tni_sum_cuda_workspace(const tn_call *call) {
    const shapes s = shapes_of(call);
    const tni_gpu *gpu;
    if (s.outputs == 0 || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 0;
    const size_t size = s.size == 8 ? 8 : 4, outputs = (size_t)s.outputs;
    if (s.by_rows) {
        const int64_t parts = row_parts(&s);
        return row_is_whole(&s, parts, gpu) ? 0 : (size_t)parts * outputs * size;
    }
    tni_sum_columns p = {.c = s.n, .n_rows = s.terms, .kept.count = s.kept.count};
    divide_columns(&p, s.size, gpu);
    if (p.whole) return 0;
    const int64_t more = p.n_parts > END_PARTS ? pieces(p.n_parts, rows_per_part(p.n_parts)) : 0;
    return (size_t)(p.n_parts + more) * outputs * size;
}

static tn_status load_copies(const tn_call *call) {
    cu_kernel any;
    return tni_cuda_kernel(call->name, call->device.index, "copy", "copy_lines_4_short", &any); /* loads them all */
}

/* Between a tensor and a smaller one of its sums, which is seen with stride 0 along what is summed up. */
static tn_status copy_sums(const tn_call *call, const tn_view *wide, const tn_view *sums, int axes, bool to_sums) {
    int64_t strides[TN_MAX_RANK];
    tni_sum_strides(wide, sums, &call->attrs[axes], strides);
    const tn_view spread = {
        .data = sums->data, .shape = wide->shape, .strides = strides, .ndim = wide->ndim, .type = wide->type};
    return to_sums ? tni_cuda_copy(call, &spread, wide) : tni_cuda_copy(call, wide, &spread);
}

tn_status tni_sum_cuda_prepare(const tn_call *call, void **state) {
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    sum_plan *plan = tni_calloc(1, sizeof *plan);
    if (!plan) return TN_NO_MEMORY;
    const shapes s = shapes_of(call);
    plan->empty = s.outputs == 0;
    plan->copies = s.terms == 1;
    plan->by_rows = s.by_rows;
    tn_status status = plan->empty    ? TN_OK
                       : plan->copies ? load_copies(call)
                       : s.by_rows    ? plan_rows(call, &s, gpu, plan)
                                      : plan_columns(call, &s, gpu, plan);
    if (status == TN_OK) {
        *state = plan;
    } else {
        tni_free(plan);
    }
    return status;
}

static tn_status run_rows(const tn_call *call, const sum_plan *plan) {
    tni_sum_rows all = plan->rows.all;
    all.x = tn_in(call, X)->data;
    all.y = tn_out(call, Y)->data;
    all.parts = call->workspace;
    TN_TRY(tni_cuda_launch(call, &plan->first, (void *[]){&all}));
    if (all.whole) return TN_OK;
    tni_sum_rows end = plan->rows.end;
    end.x = call->workspace;
    end.y = all.y;
    return tni_cuda_launch(call, &plan->last, (void *[]){&end});
}

static tn_status run_columns(const tn_call *call, const sum_plan *plan) {
    tni_sum_columns all = plan->columns.all;
    all.x = tn_in(call, X)->data;
    all.y = tn_out(call, Y)->data;
    all.parts = call->workspace;
    all.end = (const char *)all.x + (size_t)plan->high * tn_type_size(tn_in(call, X)->type);
    const bool aligned = plan->aligned && (uintptr_t)all.x % 16 == 0, halves = tn_type_size(tn_in(call, X)->type) == 2;
    all.wide = all.step != 1 ? 0 : aligned ? 2 : halves; /* what is larger is read one by one as fast */
    TN_TRY(tni_cuda_launch(call, &plan->first, (void *[]){&all}));
    if (all.whole) return TN_OK;
    tni_sum_end end = plan->columns.end;
    end.parts = all.parts;
    end.y = all.y;
    if (plan->two_ends) {
        const size_t size = tn_in(call, X)->type == TN_F64 ? 8 : 4;
        tni_sum_columns middle = plan->columns.middle;
        middle.x = all.parts;
        middle.end = (char *)all.parts + (size_t)plan->middle_at * size;
        middle.parts = (char *)all.parts + (size_t)plan->middle_at * size;
        end.parts = middle.parts;
        TN_TRY(tni_cuda_launch(call, &plan->middle, (void *[]){&middle}));
    }
    return tni_cuda_launch(call, &plan->last, (void *[]){&end});
}

tn_status tni_sum_cuda_run(const tn_call *call, void *state) {
    const sum_plan *plan = state;
    if (plan->empty) return TN_OK;
    if (plan->copies) return copy_sums(call, tn_in(call, X), tn_out(call, Y), AXES, true);
    return plan->by_rows ? run_rows(call, plan) : run_columns(call, plan);
}

/* ---- the gradient: a copy of dy, seen with stride 0 along what was summed up ------------------------------------------ */

tn_status tni_sum_grad_cuda_prepare(const tn_call *call, void **state) {
    *state = NULL;
    return load_copies(call);
}

tn_status tni_sum_grad_cuda_run(const tn_call *call, void *state) {
    (void)state;
    return copy_sums(call, tn_out(call, GRAD_DX), tn_in(call, GRAD_DY), GRAD_AXES, false);
}
