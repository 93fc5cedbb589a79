/* cross_entropy and its gradient on the GPU: which kernels, and how the rows are shared out. */
#include "cross_entropy_cuda.h"

#include <string.h>

#include "core/contract/contract.h"
#include "cross_entropy.cuh"
#include "cuda/rows/row_plan.h"

/* cross_entropy */
enum { X, TARGET, WEIGHT };
enum { IGNORE_INDEX, LABEL_SMOOTHING, Z_LOSS, REDUCTION };
enum { LOSS, LSE, GX };

/* cross_entropy_grad */
enum { GRAD_GX, GRAD_DLOSS };
enum { GRAD_REDUCTION };

enum { OTHER_SHARED = 4096 }; /* bytes that a kernel uses by itself, at most */
enum { LONG_SHARED = CROSS_ENTROPY_LONG * CROSS_ENTROPY_SLOTS * 16 + 2048 }; /* with what the kernel has of its own */
enum { GRAD_BLOCK = 256, GRAD_BLOCKS_PER_SM = 8 };
enum { STREAMED = 65536 }; /* elements of the longest row that one block walks through */

static bool is_reduced(const tn_call *call) {
    return call->attrs[REDUCTION].choice != CROSS_ENTROPY_NONE;
}

static tni_rows rows_of(const tn_call *call) {
    const tn_view *x = tn_in(call, X), *loss = is_reduced(call) ? NULL : tn_out(call, LOSS);
    const tn_view *views[CROSS_ENTROPY_VIEWS] = {x, tn_out(call, GX), tn_in(call, TARGET), tn_out(call, LSE), loss};
    return tni_rows_of(views, CROSS_ENTROPY_VIEWS, x->ndim - 1);
}

bool tni_cross_entropy_cuda_accepts(const tn_call *call) {
    const tni_rows rows = rows_of(call);
    const bool beside = rows.step[CROSS_ENTROPY_X] == 1 && (!tn_out(call, GX) || rows.step[CROSS_ENTROPY_GX] == 1);
    return (beside || rows.n <= 1) && rows.n_dims <= TNI_ROW_DIMS;
}

/* ---- workspace: sums over all rows, the losses of the rows, and what is found out of pieces of rows --------------- */

typedef struct room {
    size_t losses, partials, bytes; /* offsets; all of it */
} room;

static room room_of(const tn_call *call, const tni_rows *rows) {
    const tn_type type = tn_in(call, X)->type;
    const size_t size = tn_type_size(tni_acc_type(type));
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, rows->n);
    /* Clusters may turn out not to fit; then rows are split after all. */
    const bool may_split = plan.kind == TNI_ROW_SPLIT || plan.cluster > 1;
    const int64_t pieces = may_split ? rows->count * tni_row_plan_split(type, rows->n).splits : 0;
    room r = {.losses = is_reduced(call) ? sizeof(tni_cross_entropy_sums) : 0};
    const int64_t losses = is_reduced(call) ? rows->count : 0;
    r.partials = (size_t)tni_round_up((int64_t)r.losses + losses * (int64_t)size, 64);
    r.bytes = r.partials + (size_t)pieces * 4 * size;
    return r;
}

size_t tni_cross_entropy_cuda_workspace(const tn_call *call) {
    const tni_rows rows = rows_of(call);
    return room_of(call, &rows).bytes;
}

/* ---- cross_entropy -------------------------------------------------------------------------------------------------- */

typedef struct forward_state {
    tni_launch divisor, first, second, total; /* second: writes, where rows are split */
    tni_cross_entropy p;
    room room;
    bool may_feed; /* rows are as far apart as 16-byte copies need */
} forward_state;

static tn_status find_split(const tn_call *call, const char *type, const tni_row_plan *plan, forward_state *s) {
    s->p.splits = plan->splits;
    s->p.split = plan->split;
    s->p.writers = s->p.gx ? plan->splits : 1;
    s->first = s->second = (tni_launch){.block = (uint32_t)plan->threads};
    s->first.grid = (uint32_t)(s->p.rows.count * plan->splits);
    s->second.grid = (uint32_t)(s->p.rows.count * s->p.writers);
    TN_TRY(tni_cuda_find(call, &s->first, call->name, "cross_entropy_split_%c_%s", plan->piece, type));
    return tni_cuda_find(call, &s->second, call->name, "cross_entropy_write_%c_%s", plan->piece, type);
}

/* As many blocks as the GPU holds; each has a row after another, and fetches the next one early. */
static tn_status find_blocks(const tn_call *call, tn_type type, const tni_row_plan *plan, forward_state *s) {
    const int64_t count = s->p.rows.count, vector = 16 / (int64_t)tn_type_size(type);
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    s->may_feed = plan->piece == 'p';
    for (int32_t d = 0; d < s->p.rows.n_dims; d++) {
        s->may_feed &= s->p.rows.strides[d][CROSS_ENTROPY_X] % vector == 0;
    }
    s->first.block = (uint32_t)plan->threads;
    s->first.cluster = (uint32_t)plan->cluster;
    const uint32_t bytes = (uint32_t)(plan->threads * plan->each) * (uint32_t)tn_type_size(type);
    s->may_feed &= bytes + OTHER_SHARED <= (uint32_t)gpu->shared_per_block;
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(tni_cuda_find(call, &s->first, call->name, "cross_entropy_block_%c_%s", plan->piece, tn_type_name(type)));
    int most;
    TN_TRY(tni_cuda_occupancy(call, &s->first, &most));
    if (most < 1) {
        const tni_row_plan split = tni_row_plan_split(type, s->p.rows.n);
        return find_split(call, tn_type_name(type), &split, s);
    }
    const int64_t at_once = plan->cluster > 1 ? most : (int64_t)most * gpu->sms;
    const int64_t rows = s->may_feed && at_once < count ? at_once : count;
    s->first.grid = (uint32_t)(rows * plan->cluster);
    return TN_OK;
}

/* Blocks of a long row; 0 where it is none: it is too short or too long for that, or label smoothing looks at all of it. By
 * the length of a row and the attributes alone. */
static int long_cluster(const tn_call *call, const tni_row_plan *plan, tn_type type, const forward_state *s) {
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK || gpu->shared_per_block < LONG_SHARED) return 0;
    if (plan->cluster == 1 || plan->piece != 'p' || type == TN_F64 || s->p.soft.f64 != 0) return 0;
    const int64_t size = CROSS_ENTROPY_LONG * (16 / (int64_t)tn_type_size(type));
    int cluster = 1;
    while (cluster * CROSS_ENTROPY_CHUNKS * size < s->p.rows.n) cluster *= 2;
    return cluster <= TNI_ROW_CLUSTER ? cluster : 0;
}

static tn_status find_long(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t vector = 16 / (int64_t)tn_type_size(type), part = s->p.cluster * CROSS_ENTROPY_LONG * vector;
    const tni_gpu *gpu;
    int most;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    s->may_feed = true;
    for (int32_t d = 0; d < s->p.rows.n_dims; d++) {
        s->may_feed &= s->p.rows.strides[d][CROSS_ENTROPY_X] % vector == 0;
    }
    s->p.chunks = (int)((s->p.rows.n + part - 1) / part);
    s->first.block = CROSS_ENTROPY_LONG;
    s->first.cluster = (uint32_t)s->p.cluster;
    s->first.shared = CROSS_ENTROPY_LONG * CROSS_ENTROPY_SLOTS * 16;
    TN_TRY(tni_cuda_find(call, &s->first, call->name, "cross_entropy_long_%s", tn_type_name(type)));
    TN_TRY(tni_cuda_occupancy(call, &s->first, &most));
    if (most < 1) {
        const tni_row_plan split = tni_row_plan_split(type, s->p.rows.n);
        return find_split(call, tn_type_name(type), &split, s);
    }
    const int64_t at_once = s->p.cluster > 1 ? most : (int64_t)most * gpu->sms, count = s->p.rows.count;
    s->first.grid = (uint32_t)((at_once < count ? at_once : count) * s->p.cluster);
    return TN_OK;
}

static tn_status find_rows(const tn_call *call, tn_type type, forward_state *s) {
    const char *name = tn_type_name(type);
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, s->p.rows.n);
    s->p.lanes = plan.lanes;
    s->p.cluster = plan.cluster;
    if (s->p.rows.count == 0) return TN_OK;
    if (!s->p.gx && plan.cluster > 1 && s->p.rows.n <= STREAMED) {
        s->p.whole = 1;
        s->p.splits = 1;
        s->p.split = s->p.rows.n;
        s->first = (tni_launch){.grid = (uint32_t)s->p.rows.count, .block = TNI_ROW_BLOCK};
        return tni_cuda_find(call, &s->first, call->name, "cross_entropy_split_%c_%s", plan.piece, name);
    }
    const int longer = long_cluster(call, &plan, type, s);
    if (longer) {
        s->p.cluster = longer;
        return find_long(call, type, s);
    }
    if (plan.kind == TNI_ROW_SPLIT) return find_split(call, name, &plan, s);
    if (plan.kind == TNI_ROW_BLOCKS) return find_blocks(call, type, &plan, s);
    s->first.grid = tni_row_grid(&plan, s->p.rows.count);
    s->first.block = (uint32_t)plan.threads;
    const int64_t threads = tni_round_up(s->p.rows.count * plan.lanes, 32);
    if (is_reduced(call) && threads <= (type == TN_F64 ? CROSS_ENTROPY_ALONE / 2 : CROSS_ENTROPY_ALONE)) {
        s->p.alone = 1;
        s->divisor.grid = s->total.grid = 0;
        s->first.grid = 1;
        s->first.block = (uint32_t)threads;
    }
    return tni_cuda_find(call, &s->first, call->name, "cross_entropy_warp_%c%d_%s", plan.piece, plan.each, name);
}

/* The sums over all rows: in one part, or where there are very many rows in several. */
static tn_status find_sums(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t each = 4 * CROSS_ENTROPY_BLOCK, count = s->p.rows.count;
    int64_t parts = (count + each - 1) / each;
    if (parts > CROSS_ENTROPY_PARTS) parts = CROSS_ENTROPY_PARTS;
    if (parts < 1) parts = 1;
    s->p.parts = (int)parts;
    s->p.part_rows = (count + parts - 1) / parts;
    s->divisor = s->total = (tni_launch){.grid = (uint32_t)parts, .block = CROSS_ENTROPY_BLOCK};
    s->p.ends_alone = parts == 1 && !s->p.gx;
    if (s->p.ends_alone) s->divisor.grid = 0;
    TN_TRY(tni_cuda_find(call, &s->divisor, call->name, "cross_entropy_divisor"));
    return tni_cuda_find(call, &s->total, call->name, "cross_entropy_total_%s", type == TN_F64 ? "f64" : "f32");
}

static tn_status fill(const tn_call *call, forward_state *s) {
    const tn_view *x = tn_in(call, X), *weight = tn_in(call, WEIGHT);
    const double smoothing = call->attrs[LABEL_SMOOTHING].f;
    const tni_rows rows = rows_of(call);
    if (!tni_gpu_rows_of(&s->p.rows, &rows)) {
        return tn_fail(TN_UNSUPPORTED, "%s: tensors of too many dimensions", call->name);
    }
    s->p.weight_step = weight ? weight->strides[0] : 0;
    s->p.ignore_index = call->attrs[IGNORE_INDEX].i;
    s->p.hard = tni_number_of(1 - smoothing);
    s->p.soft = tni_number_of(rows.n ? smoothing / (double)rows.n : 0);
    s->p.z = tni_number_of(call->attrs[Z_LOSS].f);
    s->p.wide_target = tn_in(call, TARGET)->type == TN_I64;
    s->p.reduction = call->attrs[REDUCTION].choice;
    s->p.gx = tn_out(call, GX) ? s : NULL; /* so far, only whether it is wanted */
    s->room = room_of(call, &rows);
    if (is_reduced(call)) TN_TRY(find_sums(call, x->type, s));
    return find_rows(call, x->type, s);
}

tn_status tni_cross_entropy_cuda_prepare(const tn_call *call, void **state) {
    forward_state *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    const tn_status status = fill(call, s);
    if (status == TN_OK) {
        *state = s;
    } else {
        tni_free(s);
    }
    return status;
}

tn_status tni_cross_entropy_cuda_run(const tn_call *call, void *state) {
    const forward_state *s = state;
    const tn_view *weight = tn_in(call, WEIGHT), *gx = tn_out(call, GX);
    char *workspace = call->workspace;
    tni_cross_entropy p = s->p;
    p.x = tn_in(call, X)->data;
    p.target = tn_in(call, TARGET)->data;
    p.weight = weight ? weight->data : NULL;
    p.gx = gx ? gx->data : NULL;
    p.lse = tn_out(call, LSE)->data;
    p.loss = tn_out(call, LOSS)->data;
    p.sums = (tni_cross_entropy_sums *)workspace;
    p.losses = workspace + s->room.losses;
    p.partials = workspace + s->room.partials;
    p.fed = s->may_feed && ((uintptr_t)p.x & 15) == 0;
    TN_TRY(tni_cuda_launch(call, &s->divisor, (void *[]){&p}));
    TN_TRY(tni_cuda_launch(call, &s->first, (void *[]){&p}));
    TN_TRY(tni_cuda_launch(call, &s->second, (void *[]){&p}));
    return tni_cuda_launch(call, &s->total, (void *[]){&p});
}

/* ---- cross_entropy_grad ---------------------------------------------------------------------------------------------- */

/* One dloss for all: rows are as long as memory allows. False: the elements of rows do not lie side by side. */
static bool lay_out_grad(tni_rows *rows, const tn_call *call) {
    const tn_view *gx = tn_in(call, GRAD_GX), *dx = tn_out(call, 0);
    const bool each = call->attrs[GRAD_REDUCTION].choice == CROSS_ENTROPY_NONE;
    const tn_view *views[CROSS_ENTROPY_GRAD_VIEWS] = {gx, dx, each ? tn_in(call, GRAD_DLOSS) : NULL};
    *rows = tni_rows_of(views, CROSS_ENTROPY_GRAD_VIEWS, each ? gx->ndim - 1 : -1);
    if (!each && rows->n_dims > 0) rows->n = tni_rows_take(rows, rows->n_dims - 1, rows->step);
    const bool beside = rows->step[CROSS_ENTROPY_GRAD_GX] == 1 && rows->step[CROSS_ENTROPY_GRAD_DX] == 1;
    return (beside || rows->n <= 1) && rows->n_dims <= TNI_ROW_DIMS;
}

bool tni_cross_entropy_grad_cuda_accepts(const tn_call *call) {
    tni_rows rows;
    return lay_out_grad(&rows, call);
}

typedef struct grad_state {
    tni_launch pieces, elements; /* pieces: of 16 bytes, where everything is aligned */
    tni_cross_entropy_grad p;
    int64_t vector; /* elements of 16 bytes */
    bool may_piece;
} grad_state;

static uint32_t grad_grid(const tni_gpu *gpu, int64_t pieces) {
    const int64_t blocks = (pieces + GRAD_BLOCK - 1) / GRAD_BLOCK, most = (int64_t)gpu->sms * GRAD_BLOCKS_PER_SM;
    return (uint32_t)(blocks < most ? blocks : most);
}

static tn_status fill_grad(const tn_call *call, grad_state *s) {
    const tn_type type = tn_in(call, GRAD_GX)->type;
    const tni_gpu *gpu;
    tni_rows rows;
    lay_out_grad(&rows, call);
    if (!tni_gpu_rows_of(&s->p.rows, &rows)) {
        return tn_fail(TN_UNSUPPORTED, "%s: tensors of too many dimensions", call->name);
    }
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    s->p.one = call->attrs[GRAD_REDUCTION].choice != CROSS_ENTROPY_NONE;
    s->vector = 16 / (int64_t)tn_type_size(type);
    s->may_piece = rows.n % s->vector == 0;
    for (int32_t d = 0; d < rows.n_dims; d++) {
        for (int32_t k = 0; k < CROSS_ENTROPY_GRAD_DLOSS; k++) s->may_piece &= rows.strides[d][k] % s->vector == 0;
    }
    s->pieces.block = s->elements.block = GRAD_BLOCK;
    s->pieces.grid = grad_grid(gpu, rows.count * (rows.n / s->vector));
    s->elements.grid = grad_grid(gpu, rows.count * rows.n);
    TN_TRY(tni_cuda_find(call, &s->pieces, call->name, "cross_entropy_grad_p_%s", tn_type_name(type)));
    return tni_cuda_find(call, &s->elements, call->name, "cross_entropy_grad_s_%s", tn_type_name(type));
}

tn_status tni_cross_entropy_grad_cuda_prepare(const tn_call *call, void **state) {
    grad_state *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    const tn_status status = fill_grad(call, s);
    if (status == TN_OK) {
        *state = s;
    } else {
        tni_free(s);
    }
    return status;
}

tn_status tni_cross_entropy_grad_cuda_run(const tn_call *call, void *state) {
    const grad_state *s = state;
    tni_cross_entropy_grad p = s->p;
    p.gx = tn_in(call, GRAD_GX)->data;
    p.dloss = tn_in(call, GRAD_DLOSS)->data;
    p.dx = tn_out(call, 0)->data;
    const bool pieces = s->may_piece && (((uintptr_t)p.gx | (uintptr_t)p.dx) & 15) == 0;
    p.pieces = pieces ? p.rows.n / s->vector : p.rows.n;
    return tni_cuda_launch(call, pieces ? &s->pieces : &s->elements, (void *[]){&p});
}
