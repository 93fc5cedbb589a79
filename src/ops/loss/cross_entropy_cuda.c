/* cross_entropy and its gradient on the GPU: which kernels, and how the rows are shared out. */
#include "cross_entropy.h"

#include "core/contract/contract.h"
#include "cross_entropy.cuh"
#include "cuda/rows/row_plan.h"

_Static_assert((int)REDUCE_MEAN == CROSS_ENTROPY_MEAN && (int)REDUCE_NONE == CROSS_ENTROPY_NONE, "as kernels see it");

enum { OTHER_SHARED = 4096 }; /* bytes that a kernel uses by itself, at most */
enum { LONG_SHARED = CROSS_ENTROPY_LONG * CROSS_ENTROPY_SLOTS * 16 + 2048 }; /* with what the kernel has of its own */
enum { GRAD_BLOCK = 256, GRAD_BLOCKS_PER_SM = 8 };
enum { STREAMED = 65536 }; /* elements of the longest row that one block walks through */

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
    return tni_rows_beside(&rows, a.gx ? 2 : 1);
}

/* ---- workspace: sums over all rows, the losses of the rows, and what is found out of pieces of rows -------------- */

typedef struct room {
    size_t losses, partials, bytes; /* offsets; all of it */
} room;

static room room_of(const tn_call *call, const cross_entropy_args *a, const tni_rows *rows) {
    const tn_type type = a->x->type;
    const size_t size = tn_type_size(tni_acc_type(type));
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, rows->n);
    const int64_t pieces = tni_row_may_split(&plan) ? rows->count * tni_row_plan_split(type, rows->n).splits : 0;
    const int64_t losses = is_reduced(a) ? rows->count : 0;
    room r = {.losses = is_reduced(a) ? sizeof(tni_cross_entropy_sums) : 0};
    r.partials = (size_t)round_up((int64_t)r.losses + losses * (int64_t)size, 64);
    r.bytes = r.partials + (size_t)pieces * 4 * size;
    return r;
}

size_t tni_cross_entropy_cuda_workspace(const tn_call *call) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const tni_rows rows = rows_of(&a);
    return room_of(call, &a, &rows).bytes;
}

/* ---- cross_entropy ----------------------------------------------------------------------------------------------- */

typedef struct forward_state {
    tn_launch divisor, first, second, total; /* second: writes, where rows are split */
    tni_cross_entropy p;
    room room;
    bool may_feed; /* rows are as far apart as 16-byte copies need */
} forward_state;

static tn_status find_split(const tn_call *call, tn_type type, forward_state *s) {
    const tni_row_plan plan = tni_row_plan_split(type, s->p.rows.n);
    s->p.splits = plan.splits;
    s->p.split = plan.split;
    s->p.writers = s->p.gx ? plan.splits : 1;
    TN_TRY(tni_row_find_split(call, &plan, type, s->p.rows.count, &s->first, &s->second));
    s->second.grid = (uint32_t)(s->p.rows.count * s->p.writers);
    return TN_OK;
}

/* As many blocks as the GPU holds; each has a row after another, and fetches the next one early. */
static tn_status find_blocks(const tn_call *call, tn_type type, const tni_row_plan *plan, forward_state *s) {
    const int64_t count = s->p.rows.count;
    const uint32_t bytes = (uint32_t)(plan->threads * plan->each) * (uint32_t)tn_type_size(type);
    int64_t at_once;
    s->may_feed = tni_row_may_feed(call, &s->p.rows, plan, type, 1, bytes, OTHER_SHARED);
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(tni_row_find_blocks(call, plan, type, &s->first, &at_once));
    if (at_once == 0) return find_split(call, type, s);
    s->first.grid = (uint32_t)((s->may_feed ? min(count, at_once) : count) * plan->cluster);
    return TN_OK;
}

/* Blocks of a long row; 0 where it is none: it is too short or too long for that, or label smoothing looks at all of
 * it. By the length of a row and the attributes alone. */
static int long_cluster(const tn_call *call, const tni_row_plan *plan, tn_type type, const forward_state *s) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK || gpu->shared_per_block < LONG_SHARED) return 0;
    if (plan->cluster == 1 || plan->piece != TNI_PIECE_WHOLE || type == TN_F64 || s->p.soft.f64 != 0) return 0;
    const int64_t size = CROSS_ENTROPY_LONG * (16 / (int64_t)tn_type_size(type));
    int cluster = 1;
    while (cluster * CROSS_ENTROPY_CHUNKS * size < s->p.rows.n) cluster *= 2;
    return cluster <= TNI_ROW_CLUSTER ? cluster : 0;
}

static tn_status find_long(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t part = s->p.cluster * CROSS_ENTROPY_LONG * (16 / (int64_t)tn_type_size(type));
    const tn_gpu *gpu;
    int most;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    s->may_feed = tni_rows_aligned(&s->p.rows, 1, type);
    s->p.chunks = (int)ceil_div(s->p.rows.n, part);
    s->first.block = CROSS_ENTROPY_LONG;
    s->first.cluster = (uint32_t)s->p.cluster;
    s->first.shared = CROSS_ENTROPY_LONG * CROSS_ENTROPY_SLOTS * 16;
    TN_TRY(tni_cuda_find(call, &s->first, call->name, "cross_entropy_long_%s", tn_type_name(type)));
    TN_TRY(tn_cuda_occupancy(call, &s->first, &most));
    if (most < 1) return find_split(call, type, s);
    const int64_t at_once = s->p.cluster > 1 ? most : (int64_t)most * gpu->sms;
    s->first.grid = (uint32_t)(min(at_once, s->p.rows.count) * s->p.cluster);
    return TN_OK;
}

/* Rows that one block walks through one after the other, where no gradient is wanted. */
static tn_status find_streamed(const tn_call *call, tn_type type, const tni_row_plan *plan, forward_state *s) {
    s->p.whole = 1;
    s->p.splits = 1;
    s->p.split = s->p.rows.n;
    s->first = (tn_launch){.grid = (uint32_t)s->p.rows.count, .block = TNI_ROW_BLOCK};
    return tni_cuda_find(call, &s->first, call->name, "cross_entropy_split_%c_%s", plan->piece, tn_type_name(type));
}

static tn_status find_rows(const tn_call *call, tn_type type, bool reduced, forward_state *s) {
    const int64_t count = s->p.rows.count;
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, s->p.rows.n);
    s->p.lanes = plan.lanes;
    s->p.cluster = plan.cluster;
    if (count == 0) return TN_OK;
    if (!s->p.gx && plan.cluster > 1 && s->p.rows.n <= STREAMED) return find_streamed(call, type, &plan, s);
    const int longer = long_cluster(call, &plan, type, s);
    if (longer) {
        s->p.cluster = longer;
        return find_long(call, type, s);
    }
    if (plan.kind == TNI_ROW_SPLIT) return find_split(call, type, s);
    if (plan.kind == TNI_ROW_BLOCKS) return find_blocks(call, type, &plan, s);
    TN_TRY(tni_row_find_lanes(call, &plan, type, count, &s->first));
    const int64_t threads = round_up(count * plan.lanes, 32);
    if (reduced && threads <= (type == TN_F64 ? CROSS_ENTROPY_ALONE / 2 : CROSS_ENTROPY_ALONE)) {
        s->p.alone = 1;
        s->divisor.grid = s->total.grid = 0;
        s->first.grid = 1;
        s->first.block = (uint32_t)threads;
    }
    return TN_OK;
}

/* The sums over all rows: in one part, or where there are very many rows in several. */
static tn_status find_sums(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t count = s->p.rows.count;
    const int64_t parts = max(min(ceil_div(count, 4 * CROSS_ENTROPY_BLOCK), CROSS_ENTROPY_PARTS), 1);
    s->p.parts = (int)parts;
    s->p.part_rows = ceil_div(count, parts);
    s->divisor = s->total = (tn_launch){.grid = (uint32_t)parts, .block = CROSS_ENTROPY_BLOCK};
    s->p.ends_alone = parts == 1 && !s->p.gx;
    if (s->p.ends_alone) s->divisor.grid = 0;
    TN_TRY(tni_cuda_find(call, &s->divisor, call->name, "cross_entropy_divisor"));
    return tni_cuda_find(call, &s->total, call->name, "cross_entropy_total_%s", type == TN_F64 ? "f64" : "f32");
}

static tn_status fill(const tn_call *call, void *state) {
    const cross_entropy_args a = cross_entropy_args_of(call);
    const tni_rows rows = rows_of(&a);
    forward_state *s = state;
    TN_TRY(tni_gpu_rows_of(call, &s->p.rows, &rows));
    s->p.weight_step = a.weight ? a.weight->strides[0] : 0;
    s->p.ignore_index = a.ignore_index;
    s->p.hard = tni_number_of(1 - a.label_smoothing);
    s->p.soft = tni_number_of(rows.n ? a.label_smoothing / (double)rows.n : 0);
    s->p.z = tni_number_of(a.z_loss);
    s->p.wide_target = a.target->type == TN_I64;
    s->p.reduction = a.reduction;
    s->p.gx = a.gx ? s : NULL; /* so far, only whether it is wanted */
    s->room = room_of(call, &a, &rows);
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
    p.target = a.target->data;
    p.weight = data_of(a.weight);
    p.gx = data_of(a.gx);
    p.lse = a.lse->data;
    p.loss = a.loss->data;
    p.sums = (tni_cross_entropy_sums *)workspace;
    p.losses = workspace + s->room.losses;
    p.partials = workspace + s->room.partials;
    p.fed = s->may_feed && tni_is_aligned(&p.x, 1);
    TN_TRY(tn_cuda_launch(call, &s->divisor, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &s->first, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &s->second, (void *[]){&p}));
    return tn_cuda_launch(call, &s->total, (void *[]){&p});
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
