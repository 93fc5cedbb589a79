/* cross_entropy and its gradient on the GPU: which kernels, and how the rows are shared out. */
#include "cross_entropy.h"

#include "core/contract/contract.h"
#include "cross_entropy.cuh"
#include "cuda/rows/row_plan.h"

_Static_assert((int)REDUCE_MEAN == CROSS_ENTROPY_MEAN && (int)REDUCE_NONE == CROSS_ENTROPY_NONE, "as kernels see it");

static const char UNIT[] = "cross_entropy"; /* the file of the forward kernels, which cross_entropy_inplace has too */
enum { GRAD_BLOCK = 256, GRAD_BLOCKS_PER_SM = 8 };
enum { WALKED = 131072 };   /* bytes of a row that a block walks through, where no gradient is wanted */
enum { SHORT_BLOCK = 128 }; /* fewest threads of a block, where a row needs fewer */
enum { SUMMED = 4096 };     /* rows that one block adds up */

static bool is_reduced(const cross_entropy_args *a) {
    return a->reduction != REDUCE_NONE;
}

static tni_rows rows_of(const cross_entropy_args *a) {
    const tn_view *views[CROSS_ENTROPY_VIEWS] = {a->x, a->gx, a->target, a->lse, is_reduced(a) ? NULL : a->loss};
    return tni_rows_of(views, CROSS_ENTROPY_VIEWS, a->x->ndim - 1);
}

bool tni_cross_entropy_cuda_accepts(const tn_call *call) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const tni_rows rows = rows_of(&a);
    return tni_rows_beside(&rows, a.gx ? 2 : 1) && (rows.n_dims <= 1 || rows.count <= INT32_MAX);
}

/* ---- how rows are held ------------------------------------------------------------------------------------------- */

/* In rows of up to so many bytes a thread has `words` words of 4 bytes for its share, and at least `pieces` pieces.
 * Larger shares put more bytes on their way and take fewer exchanges; smaller ones leave room for more threads, which
 * the gradient needs. A row that is too long for a block is shared by a cluster. */
typedef struct held_size {
    int64_t bytes;
    int words, pieces;
} held_size;
typedef held_size held_table[2];
static const held_table held_vectors[] = {
    [false] = {{4096, 16, 4}, {INT64_MAX, 32, 7}}, /* the loss alone */
    [true] = {{32768, 16, 4}, {INT64_MAX, 32, 5}},
};
static const held_table held_odd[] = {
    [false] = {{4096, 16, 16}, {INT64_MAX, 32, 24}},
    [true] = {{64 * CROSS_ENTROPY_ODD_BLOCK, 16, 16}, {INT64_MAX, 32, 24}},
};

typedef struct held_plan {
    char piece; /* 'p': 16 bytes; 's': as odd rows are */
    int words;
    int threads;     /* of a block that have a row: a power of 2, or a multiple of 32 */
    int64_t cluster; /* blocks that have a row; of several, each has a piece of `split` elements, and all its threads */
    int64_t split;
} held_plan;

/* A row that one block does not hold: as few pieces as can be, which begin at cache lines where the row does. A piece
 * of pairs that begins in the middle of a word lies in one word more: so much is left free. */
static void plan_cluster(held_plan *plan, int64_t size, int64_t n) {
    const int64_t line = 128 / size, held = TNI_ROW_BLOCK * plan->words * 4 / size;
    plan->cluster = ceil_div(n, plan->piece == 's' && size == 2 ? held - line : held);
    plan->split = round_up(ceil_div(n, plan->cluster), line);
    plan->threads = TNI_ROW_BLOCK;
}

static held_plan held_plan_of(tn_type type, int64_t n, bool with_gradient) {
    const int64_t size = (int64_t)tn_type_size(type);
    const bool whole = n * size % 16 == 0;
    const int64_t bytes = whole ? 16 : max(size, 4), pieces = whole ? n * size / 16 : size == 2 ? n / 2 + 1 : n;
    const held_size *s = (whole ? held_vectors : held_odd)[with_gradient];
    while (pieces * bytes > s->bytes) s++;
    held_plan plan = {.piece = whole ? 'p' : 's', .words = s->words};
    plan.cluster = 1;
    if (pieces > (int64_t)TNI_ROW_BLOCK * (s->words * 4 / bytes)) {
        plan_cluster(&plan, size, n);
        return plan;
    }
    const int64_t each = max(ceil_div(pieces, TNI_ROW_BLOCK), min(s->pieces, s->words * 4 / bytes));
    const int64_t threads = ceil_div(pieces, each);
    plan.threads = 1;
    while (plan.threads < threads && plan.threads < 32) plan.threads *= 2;
    if (threads > 32) plan.threads = (int)round_up(threads, 32);
    return plan;
}

/* ---- workspace: sums over all rows, the losses of the rows, what is found out of pieces of rows, and the logits of
 * targets ---------------------------------------------------------------------------------------------------------- */

typedef struct room {
    size_t losses, partials, aimed, bytes; /* offsets; all of it */
} room;

static room room_of(const cross_entropy_args *a, const tni_rows *rows) {
    const tn_type type = a->x->type;
    const size_t size = tn_type_size(tni_acc_type(type));
    const held_plan plan = held_plan_of(type, rows->n, a->gx);
    /* no cluster may have so many blocks, or it may not fit: then rows are split */
    const int64_t pieces = plan.cluster > 1 ? rows->count * tni_row_plan_split(type, rows->n).splits : 0;
    const int64_t losses = is_reduced(a) ? rows->count : 0;
    room r = {.losses = is_reduced(a) ? sizeof(tni_cross_entropy_sums) : 0};
    r.partials = (size_t)round_up((int64_t)r.losses + losses * (int64_t)size, 64);
    r.aimed = r.partials + (size_t)pieces * 4 * size;
    r.bytes = r.aimed + (pieces ? (size_t)rows->count * tn_type_size(type) : 0);
    return r;
}

size_t tni_cross_entropy_cuda_workspace(const tn_call *call) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const tni_rows rows = rows_of(&a);
    return room_of(&a, &rows).bytes;
}

/* ---- cross_entropy ----------------------------------------------------------------------------------------------- */

typedef struct forward_state {
    tn_launch divisor, first, second, total; /* second: writes, where rows are split */
    tni_cross_entropy p;
    room room;
    int64_t fetched; /* elements from the first to the last of x, where rows are fetched into shared memory; else 0 */
} forward_state;

/* Whether the GPU holds a cluster of the first launch at all. */
static bool fits(const tn_call *call, const forward_state *s) {
    int most;
    return s->first.cluster <= 1 || (tn_cuda_occupancy(call, &s->first, &most) == TN_OK && most > 0);
}

static tn_status find_split(const tn_call *call, tn_type type, forward_state *s) {
    const tni_row_plan plan = tni_row_plan_split(type, s->p.rows.n);
    s->p.cluster = 1;
    s->p.splits = plan.splits;
    s->p.split = plan.split;
    s->p.writers = s->p.gx ? plan.splits : 1;
    const char *name = tn_type_name(type);
    const char piece = s->p.rows.n * (int64_t)tn_type_size(type) % 16 == 0 ? 'p' : 's';
    s->first = (tn_launch){.grid = tni_row_grid(&plan, s->p.rows.count), .block = TNI_ROW_BLOCK};
    s->second = (tn_launch){.grid = (uint32_t)(s->p.rows.count * s->p.writers), .block = TNI_ROW_BLOCK};
    TN_TRY(tni_cuda_find(call, &s->first, UNIT, "cross_entropy_split_%c_%s", piece, name));
    return tni_cuda_find(call, &s->second, UNIT, "cross_entropy_write_%c_%s", piece, name);
}

/* No gradient is wanted: the blocks of a cluster walk through a row, each through a piece of it. */
static tn_status find_walked(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t size = (int64_t)tn_type_size(type), tile = TNI_ROW_BLOCK * 64 / size;
    const int64_t most = tni_row_clustered(call, UNIT), wanted = ceil_div(s->p.rows.n * size, WALKED);
    s->p.cluster = s->p.splits = (int)min(wanted, most);
    s->p.split = round_up(ceil_div(s->p.rows.n, s->p.splits), tile);
    s->first = (tn_launch){
        .grid = (uint32_t)(s->p.rows.count * s->p.splits), .block = TNI_ROW_BLOCK, .cluster = (uint32_t)s->p.splits};
    TN_TRY(tni_cuda_find(call, &s->first, UNIT, "cross_entropy_split_p_%s", tn_type_name(type)));
    return fits(call, s) ? TN_OK : find_split(call, type, s);
}

/* Where x is in memory from its first element on. */
static int64_t extent_of(const tni_gpu_rows *rows) {
    int64_t extent = rows->n;
    for (int32_t d = 0; d < rows->n_dims; d++) {
        const int64_t stride = rows->strides[d][CROSS_ENTROPY_X];
        if (stride < 0) return 0;
        extent += (rows->shape[d] - 1) * stride;
    }
    return extent;
}

/* As many clusters as the GPU holds at a time; each goes on from row to row. */
static tn_status find_clusters(const tn_call *call, tn_type type, const held_plan *plan, forward_state *s) {
    const int64_t size = (int64_t)tn_type_size(type);
    int at_once;
    s->p.cluster = (int)plan->cluster;
    s->p.split = plan->split;
    if (plan->piece == 's') s->fetched = extent_of(&s->p.rows);
    s->first = (tn_launch){.block = (uint32_t)plan->threads,
                           .cluster = (uint32_t)plan->cluster,
                           .shared = s->fetched ? (uint32_t)(plan->split * size + 16) : 0,
                           .programmatic = s->divisor.grid && tni_cuda_has(call, UNIT, 90)};
    TN_TRY(tni_cuda_find(call, &s->first, UNIT, "cross_entropy_cluster_%c%d_%s", plan->piece, plan->words,
                         tn_type_name(type)));
    if (tn_cuda_occupancy(call, &s->first, &at_once) != TN_OK || at_once <= 0) return find_split(call, type, s);
    s->first.grid = (uint32_t)(min(s->p.rows.count, at_once) * plan->cluster);
    return TN_OK;
}

static tn_status find_held(const tn_call *call, tn_type type, bool reduced, const held_plan *plan, forward_state *s) {
    const int64_t count = s->p.rows.count, all = round_up(count * plan->threads, 32);
    const bool power_of_2 = (plan->threads & (plan->threads - 1)) == 0; /* what rows of one block must have */
    const bool alone = reduced && plan->words == 16 && power_of_2 && all <= TNI_ROW_BLOCK;
    s->p.row_threads = plan->threads;
    s->p.block_rows = (int)(alone ? all / plan->threads : max(SHORT_BLOCK / plan->threads, 1));
    s->p.row_shift = s->p.block_rows > 1 ? __builtin_ctz((unsigned)plan->threads) : 16;
    s->first = (tn_launch){.grid = (uint32_t)ceil_div(count, s->p.block_rows),
                           .block = (uint32_t)(s->p.block_rows * plan->threads),
                           .programmatic = s->divisor.grid && tni_cuda_has(call, UNIT, 90)};
    if (alone) s->divisor.grid = s->total.grid = 0;
    return tni_cuda_find(call, &s->first, UNIT, "cross_entropy_%s_%c%d_%s", alone ? "alone" : "held", plan->piece,
                         plan->words, tn_type_name(type));
}

static tn_status find_rows(const tn_call *call, tn_type type, bool reduced, forward_state *s) {
    const held_plan plan = held_plan_of(type, s->p.rows.n, s->p.gx);
    if (s->p.rows.count == 0) return TN_OK;
    if (plan.cluster > 1 && plan.piece == 'p' && !s->p.gx) return find_walked(call, type, s);
    if (plan.cluster > tni_row_clustered(call, UNIT)) return find_split(call, type, s);
    return plan.cluster > 1 ? find_clusters(call, type, &plan, s) : find_held(call, type, reduced, &plan, s);
}

/* The sums over all rows: by one block, or where there are very many rows by a cluster. */
static tn_status find_sums(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t count = s->p.rows.count, most = min(tni_row_clustered(call, UNIT), CROSS_ENTROPY_PARTS);
    const int64_t parts = max(min(ceil_div(count, SUMMED), most), 1);
    s->p.part_rows = ceil_div(count, parts);
    s->divisor = s->total = (tn_launch){
        .grid = (uint32_t)parts, .block = CROSS_ENTROPY_BLOCK, .cluster = (uint32_t)parts};
    s->total.programmatic = count > 0 && tni_cuda_has(call, UNIT, 90);
    if (!s->p.gx || s->p.reduction != REDUCE_MEAN) s->divisor.grid = 0;
    TN_TRY(tni_cuda_find(call, &s->divisor, UNIT, "cross_entropy_divisor"));
    return tni_cuda_find(call, &s->total, UNIT, "cross_entropy_total_%s", type == TN_F64 ? "f64" : "f32");
}

static tn_status fill(const tn_call *call, void *state) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const tni_rows rows = rows_of(&a);
    forward_state *s = state;
    TN_TRY(tni_gpu_rows_of(call, &s->p.rows, &rows));
    s->p.weight_step = a.weight ? a.weight->strides[0] : 0;
    s->p.ignore_index = a.ignore_index;
    const label_shares shares = label_shares_of(&a);
    s->p.hard = tni_number_of(shares.target);
    s->p.soft = tni_number_of(shares.each);
    s->p.z = tni_number_of(a.z_loss);
    s->p.wide_target = a.target->type == TN_I64;
    s->p.reduction = a.reduction;
    s->p.gx = a.gx ? s : NULL; /* so far, only whether it is wanted */
    s->room = room_of(&a, &rows);
    if (is_reduced(&a)) TN_TRY(find_sums(call, a.x->type, s));
    return find_rows(call, a.x->type, is_reduced(&a), s);
}

tn_status tni_cross_entropy_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(forward_state), fill, state);
}

tn_status tni_cross_entropy_cuda_run(const tn_call *call, void *state) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const forward_state *s = state;
    char *workspace = call->workspace;
    tni_cross_entropy p = s->p;
    p.x = a.x->data;
    if (s->fetched) {
        const uintptr_t end = (uintptr_t)p.x + (uintptr_t)s->fetched * tn_type_size(a.x->type);
        p.low = (const void *)(((uintptr_t)p.x + 15) / 16 * 16);
        p.high = (const void *)(end / 16 * 16);
    }
    p.target = a.target->data;
    p.weight = data_of(a.weight);
    p.gx = data_of(a.gx);
    p.lse = a.lse->data;
    p.loss = a.loss->data;
    p.sums = (tni_cross_entropy_sums *)workspace;
    if (workspace) {
        p.losses = workspace + s->room.losses;
        p.partials = s->second.grid ? workspace + s->room.partials : NULL;
        p.aimed = workspace + s->room.aimed;
    }
    TN_TRY(tn_cuda_launch(call, &s->divisor, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &s->first, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &s->second, (void *[]){&p}));
    return tn_cuda_launch(call, &s->total, (void *[]){&p});
}

/* ---- cross_entropy_inplace: its kernels are those of cross_entropy ----------------------------------------------- */

bool tni_cross_entropy_inplace_cuda_accepts(const tn_call *call) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return tni_cross_entropy_cuda_accepts(&as.call);
}

size_t tni_cross_entropy_inplace_cuda_workspace(const tn_call *call) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return tni_cross_entropy_cuda_workspace(&as.call);
}

tn_status tni_cross_entropy_inplace_cuda_prepare(const tn_call *call, void **state) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return tni_cross_entropy_cuda_prepare(&as.call, state);
}

tn_status tni_cross_entropy_inplace_cuda_run(const tn_call *call, void *state) {
    cross_entropy_inplace_call as;
    as_cross_entropy(call, &as);
    return tni_cross_entropy_cuda_run(&as.call, state);
}

/* ---- cross_entropy_grad ------------------------------------------------------------------------------------------ */

/* One dloss for all: rows are as long as memory allows. */
static tni_rows grad_rows_of(const cross_entropy_grad_args *a) {
    const bool each = a->reduction == REDUCE_NONE;
    const tn_view *views[CROSS_ENTROPY_GRAD_VIEWS] = {a->gx, a->dx, each ? a->dloss : NULL};
    tni_rows rows = tni_rows_of(views, CROSS_ENTROPY_GRAD_VIEWS, each ? a->gx->ndim - 1 : -1);
    if (!each && rows.n_dims > 0) rows.n = tni_rows_take(&rows, rows.n_dims - 1, rows.step);
    return rows;
}

bool tni_cross_entropy_grad_cuda_accepts(const tn_call *call) {
    const cross_entropy_grad_args a = cross_entropy_grad_args_of(call);
    const tni_rows rows = grad_rows_of(&a);
    return tni_rows_beside(&rows, 2);
}

typedef struct grad_state {
    tn_launch pieces, elements; /* pieces: of 16 bytes, where everything is aligned */
    tni_cross_entropy_grad p;
    int64_t vector; /* elements of 16 bytes */
    bool may_piece;
} grad_state;

static uint32_t grad_grid(const tn_gpu *gpu, int64_t pieces) {
    return (uint32_t)min(ceil_div(pieces, GRAD_BLOCK), (int64_t)gpu->sms * GRAD_BLOCKS_PER_SM);
}

static tn_status fill_grad(const tn_call *call, void *state) {
    const cross_entropy_grad_args a = cross_entropy_grad_args_of(call);
    const tn_type type = a.gx->type;
    const tni_rows rows = grad_rows_of(&a);
    const tn_gpu *gpu;
    grad_state *s = state;
    TN_TRY(tni_gpu_rows_of(call, &s->p.rows, &rows));
    TN_TRY(tn_cuda_gpu(call, &gpu));
    s->p.one = a.reduction != REDUCE_NONE;
    s->vector = 16 / (int64_t)tn_type_size(type);
    s->may_piece = rows.n % s->vector == 0 && tni_rows_aligned(&s->p.rows, CROSS_ENTROPY_GRAD_DLOSS, type);
    s->pieces.block = s->elements.block = GRAD_BLOCK;
    s->pieces.grid = grad_grid(gpu, rows.count * (rows.n / s->vector));
    s->elements.grid = grad_grid(gpu, rows.count * rows.n);
    TN_TRY(tni_cuda_find(call, &s->pieces, call->name, "cross_entropy_grad_p_%s", tn_type_name(type)));
    return tni_cuda_find(call, &s->elements, call->name, "cross_entropy_grad_s_%s", tn_type_name(type));
}

tn_status tni_cross_entropy_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_grad, state);
}

tn_status tni_cross_entropy_grad_cuda_run(const tn_call *call, void *state) {
    const cross_entropy_grad_args a = cross_entropy_grad_args_of(call);
    const grad_state *s = state;
    tni_cross_entropy_grad p = s->p;
    p.gx = a.gx->data;
    p.dloss = a.dloss->data;
    p.dx = a.dx->data;
    const bool pieces = s->may_piece && tni_is_aligned((const void *[]){p.gx, p.dx}, 2);
    p.pieces = pieces ? p.rows.n / s->vector : p.rows.n;
    return tn_cuda_launch(call, pieces ? &s->pieces : &s->elements, (void *[]){&p});
}
