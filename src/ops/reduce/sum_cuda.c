/* sum and sum_grad on the GPU: which kernels of sum_rows.cu and sum_columns.cu a call takes. */
#include "sum.h"

#include "cuda/copy/copy.h"
#include "cuda/copy/walk.h"
#include "cuda/driver/cuda.h"
#include "cuda/rows/row_plan.h"
#include "sum.cuh"

enum {
    THREAD_PACKS = 2,       /* up to so many packs are added up by one thread, */
    FEW_PACKS = 16,         /* by 8 threads, */
    WORD_PACKS = 160,       /* by a warp, 4 bytes at a time, where they do not fill their packs, */
    EIGHT_PACKS = 64,       /* by 8 threads that load 8 at a time, */
    HALF_PACKS = 256,       /* by half a warp, */
    WARP_PACKS = 1280,      /* by a warp; longer sums by a block, or some, in parts: */
    FEW_PARTS_PACKS = 8192, /* of so much, if those are few; all have one length */
    PART_PACKS = 4096,      /* or of so much, if they are many */
    ONE_OUTPUTS = 16384,    /* up to so many sums of one number need no fast copy */
    BUSY = 2,               /* blocks for each multiprocessor that are enough for long sums */
    OLD_PARTS = 8, /* that a block does one after the other without clusters, rather than have a second kernel */

    FEW_ROWS = 64,       /* columns: so many rows are few */
    FEW_ROWS_PACKS = 64, /* of columns, for each multiprocessor: so many are enough for a thread to do them all */
    PART = 512,          /* columns: rows of a part, at least */
    MOST_PARTS = 4096,
    LANES = 8,      /* columns: packs side by side that a block takes, or twice as many, */
    ODD_LANES = 16, /* where rows begin anywhere, each with a piece of one more */
    BLOCKS = 4,     /* columns: that a multiprocessor holds at a time, */
    ODD_BLOCKS = 3, /* of the odd layout */
    FEW_ROWS_LANES = 32,
    DENSE_PACKS = 4,          /* columns that are fewer than so many packs are read as they lie in memory */
    SMALL_BYTES = 32 << 10,   /* columns: a block is fast with so much of x, */
    STREAM_BYTES = 128 << 10, /* is fastest beside one other on its multiprocessor if it has so much, */
    MEDIUM_BYTES = 256 << 10, /* has so much where there are more than can run at a time, */
    LARGE_BYTES = 192 << 10,  /* and is too slow with more than so much, unless all run at once */
};

/* How columns are dealt out: see sum_columns.cu. */
typedef enum layout { PACKS, ODD, DENSE, ANY, FEW, FEW_ODD } layout;
static const char *const layout_names[] = {"packs", "odd", "dense", "any", "few", "few_odd"};

typedef struct sum_plan {
    bool empty, by_rows;
    bool is_one;  /* sums have one term, and are few */
    bool copies;  /* or many */
    bool aligned; /* rows: segments are 16-byte aligned if x is */
    union {
        struct {
            tn_launch first, last;
            tni_sum_rows all, end;
        } rows;
        struct {
            tn_launch first[2], last; /* first: where x is not 16-byte aligned, and where it is */
            tni_sum_columns all[2];
            tni_sum_end end;
            int64_t low, high; /* elements from x's first one to the lowest in memory, and behind the highest */
        } columns;
        struct {
            tn_launch launch;
            tni_sum_one all;
        } one;
    };
} sum_plan;

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Views: x, and y spread over x's shape, with stride 0 where it is summed up. */
typedef struct shapes {
    tni_rows all, kept, reduced; /* kept and reduced: without the innermost dimension */
    bool by_rows;                /* which is reduced */
    int64_t n, step, y_step;
    int64_t outputs, terms;
    int size;    /* bytes of an element */
    bool has_90; /* code for sm_90 or later */
    int cluster; /* blocks that may end columns together */
} shapes;

/* Twice as many as every GPU takes, where this one does. */
static int column_cluster(const tn_call *call) {
    tn_launch l = {.cluster = 2 * TNI_SUM_CLUSTER, .block = TNI_SUM_ODD_THREADS};
    int fits = 0;
    const bool may = tni_row_clustered(call, "sum_columns") >= (int)l.cluster &&
                     tni_cuda_find(call, &l, "sum_columns", "sum_columns_odd_f64") == TN_OK &&
                     tn_cuda_occupancy(call, &l, &fits) == TN_OK;
    return may && fits > 0 ? (int)l.cluster : TNI_SUM_CLUSTER;
}

static shapes shapes_of(const tn_call *call) {
    const sum_args a = sum_args_of(call);
    const tn_view *x = a.x, *y = a.y;
    int64_t strides[TN_MAX_RANK], inner[TNI_ROWS_MAX];
    tni_sum_strides(x, y, a.axes, strides);
    const tn_view spread = {.shape = x->shape, .strides = strides, .ndim = x->ndim};
    const tn_view *views[] = {x, &spread};
    shapes s = {.all = tni_rows_of(views, 2, -1), .n = 1, .step = 1, .outputs = tn_count(y)};
    s.size = (int)tn_type_size(x->type);
    s.has_90 = tni_cuda_has(call, "sum_rows", 90);
    s.terms = tni_sum_dims(&s.all, true).count;
    s.by_rows = s.all.n_dims == 0 || s.terms == 0 || s.all.strides[s.all.n_dims - 1][1] == 0;
    if (s.terms == 0) {
        s.n = 0;
    } else if (s.all.n_dims > 0) {
        s.n = tni_rows_take(&s.all, s.all.n_dims - 1, inner);
        s.step = inner[0];
        s.y_step = inner[1];
    }
    s.kept = tni_sum_dims(&s.all, false);
    s.reduced = tni_sum_dims(&s.all, true);
    s.cluster = s.by_rows || !s.has_90 ? 1 : column_cluster(call);
    return s;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* How a row of so many packs is cut: by its length alone. */
static int64_t row_parts(const shapes *s) {
    const int64_t packs = ceil_div(s->n, 16 / s->size) * s->reduced.count, few = ceil_div(packs, FEW_PARTS_PACKS);
    return packs == 0 ? 1 : few <= TNI_SUM_WHOLE ? few : ceil_div(packs, PART_PACKS);
}

/* How many blocks share a sum's parts and end it; 0: there are too many, and each goes to memory. */
static int64_t row_blocks(const shapes *s, int64_t parts, const tn_gpu *gpu) {
    const bool busy = s->outputs >= (int64_t)BUSY * gpu->sms;
    if (parts > TNI_SUM_WHOLE || (!s->has_90 && !busy && parts > OLD_PARTS)) return 0;
    int64_t blocks = 1;
    while (s->has_90 && s->outputs * blocks < (int64_t)BUSY * gpu->sms && blocks < TNI_SUM_CLUSTER &&
           blocks * 2 <= parts) {
        blocks *= 2;
    }
    return blocks;
}

/* The packs of a sum: those of a segment, then segments. */
static void walk_packs(tni_walk *walk, const shapes *s) {
    const int64_t lanes = 16 / s->size;
    walk->count = 1;
    tni_walk_push(walk, ceil_div(s->n, lanes), lanes * s->step, lanes);
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

/* Whether rows begin at multiples of 16 bytes if x does. */
static bool rows_are_aligned(const shapes *s) {
    bool aligned = s->step == 1;
    for (int d = 0; d < s->kept.n_dims; d++) aligned = aligned && s->kept.strides[d][0] * s->size % 16 == 0;
    return aligned;
}

/* Adds up the parts of each sum. */
static tn_status plan_row_end(const tn_call *call, sum_plan *plan) {
    const tni_sum_rows *all = &plan->rows.all;
    const tn_type type = sum_args_of(call).x->type;
    const int64_t per_pack = type == TN_F64 ? 2 : 4;
    tni_sum_rows *end = &plan->rows.end;
    *end = (tni_sum_rows){.n = all->n_parts,
                          .step = 1,
                          .outputs = all->outputs,
                          .n_parts = 1,
                          .blocks = 1,
                          .per_block = 1,
                          .ends = 1,
                          .aligned = all->n_parts % per_pack == 0};
    end->n_packs = end->chunk = ceil_div(end->n, per_pack);
    walk_parts(&end->kept, &all->kept, all->n_parts);
    const bool warp = all->n_parts <= TNI_SUM_WHOLE;
    tn_launch *last = &plan->rows.last;
    last->grid = (uint32_t)(warp ? ceil_div(end->outputs, TNI_SUM_THREADS / 32) : end->outputs);
    last->block = TNI_SUM_THREADS;
    last->programmatic = tni_cuda_has(call, "sum_rows", 90);
    return tni_cuda_find(call, last, "sum_rows", "sum_end_%s_%s", warp ? "warp" : "block", tn_type_name(type));
}

static tn_status plan_rows(const tn_call *call, const shapes *s, const tn_gpu *gpu, sum_plan *plan) {
    tni_sum_rows *all = &plan->rows.all;
    tn_launch *first = &plan->rows.first;
    const int64_t parts = row_parts(s), blocks = row_blocks(s, parts, gpu);
    *all = (tni_sum_rows){.n = s->n, .step = s->step, .outputs = s->outputs};
    tni_walk_of(&all->kept, &s->kept);
    walk_packs(&all->packs, s);
    all->n_packs = all->packs.count;
    all->chunk = parts <= TNI_SUM_WHOLE ? ceil_div(all->n_packs, parts) : PART_PACKS;
    all->n_parts = (int)parts;
    all->ends = blocks > 0;
    all->blocks = (int)(all->ends ? blocks : parts);
    all->per_block = (int)ceil_div(parts, all->blocks);
    plan->aligned = rows_are_aligned(s);
    const bool flat = s->reduced.n_dims == 0;
    const char *kind = "block";
    int64_t blocks_of_all = s->outputs * all->blocks;
    if (flat && all->n_packs <= THREAD_PACKS) {
        kind = "thread";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS);
    } else if (all->n_packs <= FEW_PACKS) {
        kind = "few";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS / 8);
    } else if (flat && all->n_packs <= WORD_PACKS && s->n * s->size % 16 != 0) {
        const int64_t words = s->n * s->size / (s->size == 8 ? 8 : 4) + 1; /* with halves at both ends */
        const int rows = words <= 4 * 32 ? 4 : words <= 8 * 32 ? 2 : 1;
        kind = words <= 3 * 32 ? "four_short_words" : rows == 4 ? "four_words" : rows == 2 ? "two_words" : "words";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS / 32 * rows);
    } else if (flat && all->n_packs <= EIGHT_PACKS) {
        kind = "eight";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS / 8);
    } else if (flat && all->n_packs <= HALF_PACKS) {
        kind = "half";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS / 16);
    } else if (all->n_packs <= WARP_PACKS) {
        kind = "warp";
        blocks_of_all = ceil_div(s->outputs, TNI_SUM_THREADS / 32);
    }
    first->grid = (uint32_t)blocks_of_all;
    first->block = TNI_SUM_THREADS;
    first->cluster = all->ends ? (uint32_t)all->blocks : 1;
    TN_TRY(tni_cuda_find(call, first, "sum_rows", "sum_%s%s_%s", kind, flat ? "" : "_segments",
                         tn_type_name(sum_args_of(call).x->type)));
    return all->ends ? TN_OK : plan_row_end(call, plan);
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* The order of the additions: by the number of rows alone. */
static void cut_rows(tni_sum_columns *p, int64_t per_pack) {
    const bool few = p->n_rows <= FEW_ROWS;
    p->slots = few ? (int)per_pack : TNI_SUM_SLOTS;
    p->ways = few ? 1 : TNI_SUM_WAYS;
    p->per_part = few ? FEW_ROWS : max(PART, round_up(ceil_div(p->n_rows, MOST_PARTS), TNI_SUM_SLOTS * 8));
    p->per_slot = (int)(p->per_part / p->slots);
    p->n_parts = (int)ceil_div(p->n_rows, p->per_part);
    p->per_chapter = (int)ceil_div(p->n_parts, TNI_SUM_CHAPTERS);
    p->chapters = (int)ceil_div(p->n_parts, p->per_chapter);
}

/* Whether these strides are multiples of 16 bytes. */
static bool are_aligned(const tni_walk *walk, int size) {
    int64_t all = 0;
    for (int d = 0; d < walk->n_dims; d++) all |= walk->strides[d][0] * size;
    return all % 16 == 0;
}

/* A tile of columns, and the threads that have a part of it. `aligned`: so is every row. */
static layout deal_columns(tni_sum_columns *p, int size, bool data_aligned, const tn_gpu *gpu) {
    const int64_t per_pack = 16 / size, stride = p->rows.strides[0][0];
    const bool full = p->c % per_pack == 0, outer_aligned = data_aligned && are_aligned(&p->kept, size);
    const bool aligned = outer_aligned && are_aligned(&p->rows, size);
    const bool any = p->step != 1 || p->rows.n_dims != 1 || stride == 0;
    if (!any && outer_aligned && stride == p->c && p->c < DENSE_PACKS * per_pack && !full) {
        p->tiles = 1;
        p->lanes = p->width = (int)p->c;
        p->groups = p->slots / (int)per_pack;
        return DENSE;
    }
    p->side_by_side = p->step == 1 && aligned && full;
    /* Where rows begin anywhere, a row of a tile takes a pack more than it fills. */
    const int64_t more = any || aligned ? 0 : 1;
    const int64_t most = p->n_rows <= FEW_ROWS ? FEW_ROWS_LANES : more ? ODD_LANES : LANES;
    const int64_t room = (int64_t)BLOCKS * gpu->sms, items = ceil_div(p->c, most * per_pack) * p->kept.count;
    const bool wide = !any && p->side_by_side && p->n_parts > 1 && items > room && items <= 2 * room;
    p->tiles = ceil_div(p->c, (wide ? 2 : 1) * most * per_pack); /* so that all run at once */
    p->width = (int)round_up(ceil_div(p->c, p->tiles), per_pack);
    p->lanes = (int)(p->width / per_pack + more);
    p->groups = p->slots;
    const int64_t packs = p->c / per_pack * p->kept.count / gpu->sms;
    if (any) return ANY;
    if (p->n_rows <= FEW_ROWS && packs >= FEW_ROWS_PACKS) return p->side_by_side ? FEW : FEW_ODD;
    return p->side_by_side ? PACKS : ODD;
}

/* How an item's parts are shared out to blocks. Those that end the item together are as many as still run at the same
 * time as all others. If that leaves them with too much, parts go to memory. */
static void share_out(tni_sum_columns *p, int size, layout how, int cluster, const tn_gpu *gpu) {
    const bool odd = how == ODD;
    const int64_t at_once = (odd ? TNI_SUM_ODD_THREADS : TNI_SUM_COLUMN_THREADS) / (p->groups * p->lanes);
    const int64_t room = (int64_t)(odd ? ODD_BLOCKS : BLOCKS) * gpu->sms;
    p->items = p->tiles * p->kept.count;
    p->ends = p->blocks = 1;
    if (p->n_parts == 1) {
        p->together = (int)min(at_once, p->items);
        return;
    }
    const int64_t bytes = p->n_rows * p->c * p->kept.count * size / p->items; /* of an item */
    const int64_t most = min(cluster, p->chapters);
    while (p->blocks * 2 <= most && p->items * p->blocks * 2 <= room && bytes / p->blocks > SMALL_BYTES) {
        const bool busy = p->items * p->blocks * 8 >= (int64_t)gpu->sms * 15; /* nearly two on each multiprocessor */
        if (busy && how == PACKS && bytes / p->blocks >= STREAM_BYTES) break;
        p->blocks *= 2;
    }
    const int64_t kept_bytes = (int64_t)p->chapters * p->width * (size == 8 ? 8 : 4), all = p->items * p->blocks;
    const bool at_a_time = all <= room && all * 5 >= (int64_t)gpu->sms * 4;
    p->ends = kept_bytes <= TNI_SUM_CHAPTER_BYTES && (at_a_time || bytes / p->blocks <= LARGE_BYTES);
    if (!p->ends) {
        const int64_t wanted = max(room / p->items, ceil_div(bytes, MEDIUM_BYTES));
        const int64_t fast = ceil_div((int64_t)SMALL_BYTES * p->n_parts, bytes); /* parts of so much */
        p->per_block = (int)max(ceil_div(p->n_parts, wanted), min(at_once, fast));
        p->blocks = (int)ceil_div(p->n_parts, p->per_block);
    }
    const int64_t mine = p->ends ? min(ceil_div(p->chapters, p->blocks) * p->per_chapter, p->n_parts) : p->per_block;
    p->together = (int)ceil_div(mine, ceil_div(mine, at_once));
}

static layout columns_of(const shapes *s, bool data_aligned, const tn_gpu *gpu, tni_sum_columns *p) {
    *p = (tni_sum_columns){.c = s->n, .step = s->step, .y_step = s->y_step, .n_rows = s->terms, .outputs = s->outputs};
    tni_walk_of(&p->kept, &s->kept);
    tni_walk_of(&p->rows, &s->reduced);
    cut_rows(p, 16 / s->size);
    const layout how = deal_columns(p, s->size, data_aligned, gpu);
    share_out(p, s->size, how, s->cluster, gpu);
    p->slot_step = p->rows.strides[0][0] * p->slots;
    p->part_step = p->rows.strides[0][0] * p->per_part * (p->together - 1);
    return how;
}

static tn_status plan_columns(const tn_call *call, const shapes *s, const tn_gpu *gpu, sum_plan *plan) {
    const tn_view *x = sum_args_of(call).x;
    bool ends = true;
    for (int aligned = 0; aligned < 2; aligned++) {
        tni_sum_columns *p = &plan->columns.all[aligned];
        tn_launch *first = &plan->columns.first[aligned];
        const layout how = columns_of(s, aligned, gpu, p);
        ends = ends && p->ends;
        if (how >= FEW) {
            const int64_t of_warp = s->size == 2 ? TNI_SUM_FEW_PAIRS : TNI_SUM_FEW_SINGLES;
            const int64_t threads = how == FEW ? p->c / (16 / s->size) : ceil_div(p->c, of_warp) * 32;
            first->block = TNI_SUM_FEW_THREADS;
            first->grid = (uint32_t)ceil_div(threads * p->kept.count, first->block);
        } else {
            first->block = (uint32_t)round_up((int64_t)p->together * p->groups * p->lanes, 32);
            first->grid = (uint32_t)(ceil_div(p->items, p->n_parts == 1 ? p->together : 1) * p->blocks);
            first->cluster = p->ends ? (uint32_t)p->blocks : 1;
        }
        TN_TRY(
            tni_cuda_find(call, first, "sum_columns", "sum_columns_%s_%s", layout_names[how], tn_type_name(x->type)));
    }
    for (int d = 0; d < x->ndim; d++) {
        const int64_t reach = (x->shape[d] - 1) * x->strides[d];
        plan->columns.low += min(0, reach);
        plan->columns.high += max(0, reach);
    }
    plan->columns.high++;
    if (ends) return TN_OK;
    const tni_sum_columns *p = &plan->columns.all[0];
    plan->columns.end = (tni_sum_end){.kept = p->kept,
                                      .c = p->c,
                                      .y_step = p->y_step,
                                      .outputs = s->outputs,
                                      .n_parts = p->n_parts,
                                      .per_chapter = p->per_chapter};
    tn_launch *last = &plan->columns.last;
    last->grid = (uint32_t)ceil_div(s->outputs, TNI_SUM_END_LANES);
    last->block = TNI_SUM_END_LANES * TNI_SUM_CHAPTERS;
    last->programmatic = tni_cuda_has(call, "sum_rows", 90);
    return tni_cuda_find(call, last, "sum_columns", "sum_end_columns_%s", tn_type_name(x->type));
}

/* ---- the operator ------------------------------------------------------------------------------------------------ */

size_t tni_sum_cuda_workspace(const tn_call *call) {
    const shapes s = shapes_of(call);
    const tn_gpu *gpu;
    if (s.outputs == 0 || tn_cuda_gpu(call, &gpu) != TN_OK) return 0;
    const size_t size = s.size == 8 ? 8 : 4, outputs = (size_t)s.outputs;
    if (s.terms <= 1) return 0;
    if (s.by_rows) {
        const int64_t parts = row_parts(&s);
        return row_blocks(&s, parts, gpu) > 0 ? 0 : (size_t)parts * outputs * size;
    }
    tni_sum_columns p[2];
    for (int aligned = 0; aligned < 2; aligned++) columns_of(&s, aligned, gpu, &p[aligned]);
    return p[0].ends && p[1].ends ? 0 : (size_t)p[0].n_parts * outputs * size;
}

/* The views of a sum of one number are all kept. */
static tn_status plan_one(const tn_call *call, const shapes *s, sum_plan *plan) {
    tni_sum_one *all = &plan->one.all;
    tn_launch *launch = &plan->one.launch;
    tni_walk_of(&all->kept, &s->kept);
    if (!s->by_rows) tni_walk_push(&all->kept, s->n, s->step, s->y_step);
    all->outputs = (unsigned)s->outputs;
    launch->grid = (uint32_t)ceil_div(s->outputs, TNI_SUM_THREADS);
    launch->block = TNI_SUM_THREADS;
    return tni_cuda_find(call, launch, "sum_rows", "sum_one_%s", tn_type_name(sum_args_of(call).x->type));
}

static tn_status load_copies(const tn_call *call) {
    cu_kernel any;
    return tni_cuda_kernel(call->name, call->device.index, "copy", "copy_lines_4_short", &any); /* loads them all */
}

/* Between a tensor and a smaller one of its sums, which is seen with stride 0 along what is summed up. */
static tn_status copy_sums(const tn_call *call, const tn_view *wide, const tn_view *sums, const tn_value *axes,
                           bool to_sums) {
    int64_t strides[TN_MAX_RANK];
    tni_sum_strides(wide, sums, axes, strides);
    const tn_view spread = {
        .data = sums->data, .shape = wide->shape, .strides = strides, .ndim = wide->ndim, .type = wide->type};
    return to_sums ? tni_cuda_copy(call, &spread, wide) : tni_cuda_copy(call, wide, &spread);
}

static tn_status fill(const tn_call *call, void *state) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const shapes s = shapes_of(call);
    sum_plan *plan = state;
    plan->empty = s.outputs == 0;
    plan->is_one = s.terms == 1 && s.outputs <= ONE_OUTPUTS;
    plan->copies = s.terms == 1 && !plan->is_one;
    plan->by_rows = s.by_rows;
    if (plan->empty) return TN_OK;
    if (plan->is_one) return plan_one(call, &s, plan);
    if (plan->copies) return load_copies(call);
    return s.by_rows ? plan_rows(call, &s, gpu, plan) : plan_columns(call, &s, gpu, plan);
}

tn_status tni_sum_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(sum_plan), fill, state);
}

static tn_status run_one(const tn_call *call, const sum_args *a, const sum_plan *plan) {
    tni_sum_one all = plan->one.all;
    all.x = a->x->data;
    all.y = a->y->data;
    return tn_cuda_launch(call, &plan->one.launch, (void *[]){&all});
}

static tn_status run_rows(const tn_call *call, const sum_args *a, const sum_plan *plan) {
    tni_sum_rows all = plan->rows.all;
    all.x = a->x->data;
    all.y = a->y->data;
    all.parts = call->workspace;
    all.aligned = plan->aligned && (uintptr_t)all.x % 16 == 0;
    TN_TRY(tn_cuda_launch(call, &plan->rows.first, (void *[]){&all}));
    if (all.ends) return TN_OK;
    tni_sum_rows end = plan->rows.end;
    end.x = all.parts;
    end.y = all.y;
    end.aligned = end.aligned && (uintptr_t)end.x % 16 == 0;
    return tn_cuda_launch(call, &plan->rows.last, (void *[]){&end});
}

static tn_status run_columns(const tn_call *call, const sum_args *a, const sum_plan *plan) {
    const tn_view *x = a->x;
    const bool aligned = (uintptr_t)x->data % 16 == 0;
    const int64_t size = (int64_t)tn_type_size(x->type);
    tni_sum_columns all = plan->columns.all[aligned];
    all.x = x->data;
    all.y = a->y->data;
    all.parts = call->workspace;
    all.low = (const char *)all.x + plan->columns.low * size;
    all.high = (const char *)all.x + plan->columns.high * size;
    TN_TRY(tn_cuda_launch(call, &plan->columns.first[aligned], (void *[]){&all}));
    if (all.ends) return TN_OK;
    tni_sum_end end = plan->columns.end;
    end.parts = all.parts;
    end.y = all.y;
    return tn_cuda_launch(call, &plan->columns.last, (void *[]){&end});
}

tn_status tni_sum_cuda_run(const tn_call *call, void *state) {
    const sum_args a = sum_args_of(call);
    const sum_plan *plan = state;
    if (plan->empty) return TN_OK;
    if (plan->is_one) return run_one(call, &a, plan);
    if (plan->copies) return copy_sums(call, a.x, a.y, a.axes, true);
    return plan->by_rows ? run_rows(call, &a, plan) : run_columns(call, &a, plan);
}

/* ---- the gradient: a copy of dy, seen with stride 0 along what was summed up ------------------------------------- */

tn_status tni_sum_grad_cuda_prepare(const tn_call *call, void **state) {
    *state = NULL;
    return load_copies(call);
}

tn_status tni_sum_grad_cuda_run(const tn_call *call, void *state) {
    (void)state;
    const sum_grad_args a = sum_grad_args_of(call);
    return copy_sums(call, a.dx, a.dy, a.axes, false);
}
