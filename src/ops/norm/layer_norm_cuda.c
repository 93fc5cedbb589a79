/* layer_norm and its gradient on the GPU: which kernels, and how the rows are shared out. */
#include "layer_norm_cuda.h"

#include "core/contract/contract.h"
#include "cuda/device/vector.h"
#include "cuda/rows/row_plan.h"
#include "layer_norm.cuh"
#include "ops/counts.h"

/* layer_norm */
enum { X, GAMMA, BETA };
enum { EPS };
enum { Y, MEAN, RSTD };

/* layer_norm_grad: the inputs begin as those of layer_norm */
enum { GRAD_MEAN = BETA + 1, GRAD_RSTD, GRAD_DY };
enum { GRAD_DX, GRAD_DGAMMA, GRAD_DBETA };

static tni_rows rows_of(const tn_call *call) {
    const tn_view *x = tn_in(call, X);
    const tn_view *views[LAYER_NORM_VIEWS] = {x, tn_out(call, Y), tn_out(call, MEAN), tn_out(call, RSTD)};
    return tni_rows_of(views, LAYER_NORM_VIEWS, x->ndim - 1);
}

static tni_rows grad_rows_of(const tn_call *call) {
    const tn_view *x = tn_in(call, X);
    const tn_view *views[LAYER_NORM_GRAD_VIEWS] = {x, tn_in(call, GRAD_DY), tn_out(call, GRAD_DX),
                                                   tn_in(call, GRAD_MEAN), tn_in(call, GRAD_RSTD)};
    return tni_rows_of(views, LAYER_NORM_GRAD_VIEWS, x->ndim - 1);
}

bool tni_layer_norm_cuda_accepts(const tn_call *call) {
    const tni_rows rows = rows_of(call);
    const bool beside = rows.step[LAYER_NORM_X] == 1 && rows.step[LAYER_NORM_Y] == 1;
    return (beside || rows.n <= 1) && rows.n_dims <= TNI_ROW_DIMS;
}

bool tni_layer_norm_grad_cuda_accepts(const tn_call *call) {
    const tni_rows rows = grad_rows_of(call);
    const bool beside = rows.step[LAYER_NORM_GRAD_X] == 1 && rows.step[LAYER_NORM_GRAD_DY] == 1 &&
                        (!tn_out(call, GRAD_DX) || rows.step[LAYER_NORM_GRAD_DX] == 1);
    return (beside || rows.n <= 1) && rows.n_dims <= TNI_ROW_DIMS;
}

static void *data_of(const tn_view *v) {
    return v ? v->data : NULL;
}

/* ---- sharing out ---------------------------------------------------------------------------------------------------- */

enum { OTHER_SHARED = 2048 }; /* bytes that a kernel uses by itself, at most */

/* Whether the first `views` tensors' rows are as far apart as 16-byte copies need, and the GPU has `bytes` for them. */
static bool may_feed(const tn_call *call, const tni_gpu_rows *rows, const tni_row_plan *plan, int32_t views,
                     uint32_t bytes) {
    const int64_t vector = 16 / (int64_t)tn_type_size(tn_in(call, X)->type);
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return false;
    bool may = plan->piece == 'p' && bytes + OTHER_SHARED <= (uint32_t)gpu->shared_per_block;
    for (int32_t d = 0; d < rows->n_dims; d++) {
        for (int32_t k = 0; k < views; k++) may &= rows->strides[d][k] % vector == 0;
    }
    return may;
}

/* Clusters may turn out not to fit; then rows are split after all. */
static bool may_split(const tni_row_plan *plan) {
    return plan->kind == TNI_ROW_SPLIT || plan->cluster > 1;
}

static tn_status find_split(const tn_call *call, tn_type type, tni_layer_norm_shape *s, tni_launch *first,
                            tni_launch *second) {
    const tni_row_plan plan = tni_row_plan_split(type, s->rows.n);
    const char *name = tn_type_name(type);
    s->splits = plan.splits;
    s->split = plan.split;
    *first = *second = (tni_launch){.grid = tni_row_grid(&plan, s->rows.count), .block = (uint32_t)plan.threads};
    TN_TRY(tni_cuda_find(call, first, call->name, "%s_split_%c_%s", call->name, plan.piece, name));
    return tni_cuda_find(call, second, call->name, "%s_write_%c_%s", call->name, plan.piece, name);
}

/* The kernel for rows that a block or a cluster holds, and how many rows the GPU has under way at once: 0 where the
 * cluster does not fit. */
static tn_status find_blocks(const tn_call *call, tn_type type, const tni_row_plan *plan, tni_launch *l,
                             int64_t *at_once) {
    const tni_gpu *gpu;
    int most;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    l->block = (uint32_t)plan->threads;
    l->cluster = (uint32_t)plan->cluster;
    TN_TRY(tni_cuda_find(call, l, call->name, "%s_block_%c_%s", call->name, plan->piece, tn_type_name(type)));
    TN_TRY(tni_cuda_occupancy(call, l, &most));
    *at_once = plan->cluster > 1 ? most : (int64_t)most * gpu->sms;
    return TN_OK;
}

/* ---- layer_norm ----------------------------------------------------------------------------------------------------- */

/* A parameter that the kernels for the common case take: side by side, in the type of x or in f32. */
static bool is_plain(const tn_view *v, tn_type type) {
    return v && (v->type == type || v->type == TN_F32) && v->strides[0] == 1;
}

/* One number behind the other for each row. */
static bool is_vector(const tni_gpu_rows *rows, int view) {
    return rows->n_dims == 0 || rows->strides[0][view] == 1;
}

static bool are_aligned(const void *const *data, int count) {
    uintptr_t all = 0;
    for (int i = 0; i < count; i++) all |= (uintptr_t)data[i];
    return (all & 15) == 0;
}

typedef struct forward_state {
    tni_launch first, second; /* second: writes, where rows are split */
    tni_launch dense;         /* instead of both where everything is aligned; a grid of 0 where there is none */
    int lanes;                /* of its rows */
    tni_layer_norm p;
    bool may_feed;
} forward_state;

size_t tni_layer_norm_cuda_workspace(const tn_call *call) {
    const tni_rows rows = rows_of(call);
    const tn_type type = tn_in(call, X)->type;
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, rows.n);
    if (!may_split(&plan)) return 0;
    const int64_t pieces = rows.count * tni_row_plan_split(type, rows.n).splits;
    return (size_t)pieces * 3 * tn_type_size(tni_acc_type(type));
}

static tn_status find_lanes(const tn_call *call, tn_type type, forward_state *s) {
    const int64_t n = s->p.s.rows.n, count = s->p.s.rows.count;
    for (s->lanes = 1; s->lanes * LAYER_NORM_LANES_EACH < n;) s->lanes *= 2;
    const int64_t rows = TNI_ROW_WARP_BLOCK / s->lanes; /* of a block */
    s->dense = (tni_launch){.grid = (uint32_t)((count + rows - 1) / rows), .block = TNI_ROW_WARP_BLOCK};
    return tni_cuda_find(call, &s->dense, call->name, "layer_norm_lanes_%s_%s", tn_type_name(type),
                         tn_type_name(tn_in(call, GAMMA)->type));
}

/* The kernels for the common case: some lanes have a short row, a block has a longer one. */
static tn_status find_dense(const tn_call *call, tn_type type, forward_state *s) {
    const tn_view *gamma = tn_in(call, GAMMA), *beta = tn_in(call, BETA);
    const tni_gpu_rows *rows = &s->p.s.rows;
    const int64_t n = rows->n, size = (int64_t)tn_type_size(type);
    if (type == TN_F64 || !is_plain(gamma, type) || !is_plain(beta, type) || beta->type != gamma->type) return TN_OK;
    if (n == 0 || n % (16 / size) || !tni_rows_dense(rows, 2)) return TN_OK;
    if (!is_vector(rows, LAYER_NORM_MEAN) || !is_vector(rows, LAYER_NORM_RSTD)) return TN_OK;
    if (n <= 32 * LAYER_NORM_LANES_EACH) return find_lanes(call, type, s);
    const int each = n * size <= 1536 || (size == 4 && n <= 4096) ? 8 : n <= 8192 ? 16 : 32;
    const int64_t threads = tni_round_up((n + each - 1) / each, 32);
    if (threads > TNI_ROW_BLOCK) return TN_OK;
    s->dense = (tni_launch){.grid = (uint32_t)rows->count, .block = (uint32_t)threads};
    return tni_cuda_find(call, &s->dense, call->name, "layer_norm_dense_%d_%s_%s", each, tn_type_name(type),
                         tn_type_name(gamma->type));
}

static tn_status find_forward(const tn_call *call, tn_type type, forward_state *s) {
    tni_layer_norm_shape *shape = &s->p.s;
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, shape->rows.n);
    const int64_t count = shape->rows.count;
    shape->lanes = plan.lanes;
    shape->cluster = plan.cluster;
    if (count == 0) return TN_OK;
    if (plan.kind == TNI_ROW_SPLIT) return find_split(call, type, shape, &s->first, &s->second);
    TN_TRY(find_dense(call, type, s));
    if (plan.kind == TNI_ROW_LANES) {
        s->first = (tni_launch){.grid = tni_row_grid(&plan, count), .block = (uint32_t)plan.threads};
        return tni_cuda_find(call, &s->first, call->name, "layer_norm_warp_%c%d_%s", plan.piece, plan.each,
                             tn_type_name(type));
    }
    int64_t at_once;
    const uint32_t bytes = (uint32_t)(plan.threads * plan.each) * (uint32_t)tn_type_size(type);
    s->may_feed = may_feed(call, &shape->rows, &plan, 1, bytes);
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(find_blocks(call, type, &plan, &s->first, &at_once));
    if (at_once == 0) return find_split(call, type, shape, &s->first, &s->second);
    s->first.grid = (uint32_t)((s->may_feed ? smaller(count, at_once) : count) * plan.cluster);
    return TN_OK;
}

tn_status tni_layer_norm_cuda_prepare(const tn_call *call, void **state) {
    const tni_rows rows = rows_of(call);
    forward_state *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    s->p.gamma = tni_vector_of(tn_in(call, GAMMA));
    s->p.beta = tni_vector_of(tn_in(call, BETA));
    s->p.eps = tni_number_of(call->attrs[EPS].f);
    s->p.share = tni_number_of(rows.n ? 1 / (double)rows.n : 0);
    tn_status status = tni_gpu_rows_of(&s->p.s.rows, &rows)
                           ? find_forward(call, tn_in(call, X)->type, s)
                           : tn_fail(TN_UNSUPPORTED, "%s: tensors of too many dimensions", call->name);
    if (status == TN_OK) {
        *state = s;
    } else {
        tni_free(s);
    }
    return status;
}

tn_status tni_layer_norm_cuda_run(const tn_call *call, void *state) {
    const forward_state *s = state;
    tni_layer_norm p = s->p;
    p.x = tn_in(call, X)->data;
    p.gamma.data = data_of(tn_in(call, GAMMA));
    p.beta.data = data_of(tn_in(call, BETA));
    p.y = tn_out(call, Y)->data;
    p.mean = tn_out(call, MEAN)->data;
    p.rstd = tn_out(call, RSTD)->data;
    p.partials = call->workspace;
    p.s.fed = s->may_feed && ((uintptr_t)p.x & 15) == 0;
    const void *const data[] = {p.x, p.y, p.gamma.data, p.beta.data};
    if (s->dense.grid && are_aligned(data, 4)) {
        p.s.lanes = s->lanes;
        return tni_cuda_launch(call, &s->dense, (void *[]){&p});
    }
    TN_TRY(tni_cuda_launch(call, &s->first, (void *[]){&p}));
    return tni_cuda_launch(call, &s->second, (void *[]){&p});
}

/* ---- layer_norm_grad ------------------------------------------------------------------------------------------------ */

enum { ROWS_HELD = 2, BLOCKS_OF_LANES = 4 };

typedef struct grad_state {
    /* first: dx and the sums of blocks; or, where rows are split, their means; ring: instead of it where everything is
     * aligned, a grid of 0 where there is none */
    tni_launch first, columns, second, add, ring;
    tni_layer_norm_grad p;
    size_t sums; /* where they begin in the workspace */
    bool may_feed;
} grad_state;

static bool wants_sums(const tn_call *call) {
    return tn_out(call, GRAD_DGAMMA) || tn_out(call, GRAD_DBETA);
}

/* Blocks, or clusters, that each have a part of the rows, at most. */
static int64_t most_parts(const tn_call *call, const tni_row_plan *plan, int64_t count) {
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 1;
    if (plan->kind == TNI_ROW_LANES) return smaller(tni_row_grid(plan, count), (int64_t)gpu->sms * BLOCKS_OF_LANES);
    const int64_t blocks = plan->threads < TNI_ROW_BLOCK ? TNI_ROW_BLOCK / plan->threads : 1; /* of an SM */
    const int64_t most = gpu->sms * blocks / plan->cluster;
    return smaller(count, most > 0 ? most : 1);
}

/* Threads of a block that walks with a ring, and how many elements of a row each has. 0: there is no such block. */
static int ring_threads(tn_type type, int64_t n, int *each) {
    const int64_t shortest = 256, size = (int64_t)tn_type_size(type);
    if (type == TN_F64 || n < shortest || n % (16 / size)) return 0;
    for (*each = 32 / (int)size; *each <= 64 / (int)size; *each *= 2) {
        const int64_t threads = tni_round_up((n + *each - 1) / *each, 32);
        if (threads <= TNI_ROW_BLOCK) return (int)threads;
    }
    return 0;
}

/* Blocks with rings: as many as have that many threads together. */
static int64_t ring_parts(const tn_call *call, int64_t threads, int64_t count) {
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 1;
    return smaller(count, gpu->sms * (TNI_ROW_BLOCK / threads));
}

/* The same where each column is walked along: so many that all SMs have something to do. */
static int64_t column_parts(const tn_call *call, int64_t n, int64_t count) {
    const tni_gpu *gpu;
    if (tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 1;
    const int64_t blocks = (n + LAYER_NORM_GRAD_COLUMNS - 1) / LAYER_NORM_GRAD_COLUMNS;
    const int64_t parts = 4 * (int64_t)gpu->sms / (blocks > 0 ? blocks : 1);
    return smaller(parts > 1 ? parts : 1, count > 0 ? count : 1);
}

/* Bytes of the pairs of pieces of rows, and of all. */
static size_t grad_room(const tn_call *call, const tni_rows *rows, size_t *sums) {
    const tn_type type = tn_in(call, X)->type;
    const int64_t size = (int64_t)tn_type_size(tni_acc_type(type));
    const tni_row_plan plan = tni_row_plan_of_some(call, call->name, type, rows->n, ROWS_HELD);
    const bool splits = may_split(&plan);
    const int64_t pieces = splits ? rows->count * tni_row_plan_split(type, rows->n).splits : 0;
    int64_t parts = plan.kind == TNI_ROW_SPLIT ? 0 : most_parts(call, &plan, rows->count);
    int each;
    const int threads = ring_threads(type, rows->n, &each);
    const int64_t rings = threads ? ring_parts(call, threads, rows->count) : 0;
    const int64_t along = splits ? column_parts(call, rows->n, rows->count) : 0;
    if (rings > parts) parts = rings;
    if (along > parts) parts = along;
    *sums = (size_t)tni_round_up(2 * pieces * size, 64);
    return *sums + (wants_sums(call) ? (size_t)(2 * parts * rows->n * size) : 0);
}

size_t tni_layer_norm_grad_cuda_workspace(const tn_call *call) {
    const tni_rows rows = grad_rows_of(call);
    size_t sums;
    return grad_room(call, &rows, &sums);
}

static tn_status find_grad_split(const tn_call *call, tn_type type, grad_state *s) {
    const int64_t n = s->p.s.rows.n, count = s->p.s.rows.count;
    s->first = (tni_launch){0};
    if (tn_out(call, GRAD_DX)) TN_TRY(find_split(call, type, &s->p.s, &s->first, &s->second));
    if (!wants_sums(call)) return TN_OK;
    const int64_t parts = column_parts(call, n, count);
    s->p.part_rows = (count + parts - 1) / parts;
    s->p.parts = (int)((count + s->p.part_rows - 1) / s->p.part_rows);
    const int64_t blocks = (n + LAYER_NORM_GRAD_COLUMNS - 1) / LAYER_NORM_GRAD_COLUMNS;
    s->columns = (tni_launch){.grid = (uint32_t)(blocks * s->p.parts), .block = LAYER_NORM_GRAD_COLUMNS};
    return tni_cuda_find(call, &s->columns, call->name, "layer_norm_grad_columns_%s", tn_type_name(type));
}

static tn_status find_grad_ring(const tn_call *call, tn_type type, grad_state *s) {
    const tn_view *gamma = tn_in(call, GAMMA);
    const tni_gpu_rows *rows = &s->p.s.rows;
    const tni_gpu *gpu;
    int each;
    const int threads = ring_threads(type, rows->n, &each);
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    if (!threads || !is_plain(gamma, type) || !tn_out(call, GRAD_DX) || !wants_sums(call)) return TN_OK;
    if (!is_vector(rows, LAYER_NORM_GRAD_MEAN) || !is_vector(rows, LAYER_NORM_GRAD_RSTD)) return TN_OK;
    if (!tni_rows_dense(rows, 3) || !tni_cuda_has_90(call, call->name)) return TN_OK;
    const int64_t stage = 2 * tni_round_up(rows->n * (int64_t)tn_type_size(type), 128);
    const int64_t blocks = TNI_ROW_BLOCK / threads, room = gpu->shared_per_sm - blocks * OTHER_SHARED;
    const int64_t bytes = smaller(each <= 16 ? LAYER_NORM_RING_BYTES : LAYER_NORM_RING_LONG, room);
    const int64_t stages = smaller(bytes / (blocks * stage), LAYER_NORM_RING_STAGES);
    s->p.stages = (int)smaller(stages, (gpu->shared_per_block - OTHER_SHARED) / stage);
    if (s->p.stages < 2) return TN_OK;
    s->ring = (tni_launch){.grid = (uint32_t)ring_parts(call, threads, rows->count),
                           .block = (uint32_t)threads,
                           .shared = (uint32_t)(s->p.stages * stage + 128)};
    return tni_cuda_find(call, &s->ring, call->name, "layer_norm_grad_ring_%d_%s_%s", each, tn_type_name(type),
                         tn_type_name(gamma->type));
}

static tn_status find_grad_rows(const tn_call *call, tn_type type, grad_state *s) {
    tni_layer_norm_shape *shape = &s->p.s;
    const tni_row_plan plan = tni_row_plan_of_some(call, call->name, type, shape->rows.n, ROWS_HELD);
    int64_t parts = most_parts(call, &plan, shape->rows.count), at_once;
    shape->lanes = plan.lanes;
    shape->cluster = plan.cluster;
    if (plan.kind == TNI_ROW_SPLIT) return find_grad_split(call, type, s);
    TN_TRY(find_grad_ring(call, type, s));
    if (plan.kind == TNI_ROW_LANES) {
        s->p.parts = (int)parts;
        s->first.grid = (uint32_t)parts;
        s->first.block = (uint32_t)plan.threads;
        s->first.shared = (uint32_t)(2 * shape->rows.n) * (uint32_t)tn_type_size(tni_acc_type(type));
        return tni_cuda_find(call, &s->first, call->name, "layer_norm_grad_warp_%c%d_%s", plan.piece, plan.each,
                             tn_type_name(type));
    }
    const uint32_t bytes = 4 * (uint32_t)(plan.threads * plan.each) * (uint32_t)tn_type_size(type);
    s->may_feed = may_feed(call, &shape->rows, &plan, 2, bytes); /* x and dy, two rows ahead */
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(find_blocks(call, type, &plan, &s->first, &at_once));
    if (at_once == 0) return find_grad_split(call, type, s);
    parts = smaller(parts, at_once);
    s->p.parts = (int)parts;
    s->first.grid = (uint32_t)(parts * plan.cluster);
    return TN_OK;
}

static tn_status find_grad(const tn_call *call, grad_state *s) {
    const tn_type type = tn_in(call, X)->type;
    const int64_t n = s->p.s.rows.n;
    if (s->p.s.rows.count > 0 && n > 0) TN_TRY(find_grad_rows(call, type, s));
    if (!wants_sums(call)) return TN_OK;
    s->add.grid = (uint32_t)((n + LAYER_NORM_ADD_COLUMNS - 1) / LAYER_NORM_ADD_COLUMNS);
    s->add.block = LAYER_NORM_ADD_COLUMNS * LAYER_NORM_ADD_WAYS;
    s->add.programmatic = tni_cuda_has_90(call, call->name);
    return tni_cuda_find(call, &s->add, call->name, "layer_norm_grad_add_%s", type == TN_F64 ? "f64" : "f32");
}

tn_status tni_layer_norm_grad_cuda_prepare(const tn_call *call, void **state) {
    const tni_rows rows = grad_rows_of(call);
    grad_state *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    s->p.gamma = tni_vector_of(tn_in(call, GAMMA));
    s->p.dgamma = tni_vector_of(tn_out(call, GRAD_DGAMMA));
    s->p.dbeta = tni_vector_of(tn_out(call, GRAD_DBETA));
    grad_room(call, &rows, &s->sums);
    tn_status status = tni_gpu_rows_of(&s->p.s.rows, &rows)
                           ? find_grad(call, s)
                           : tn_fail(TN_UNSUPPORTED, "%s: tensors of too many dimensions", call->name);
    if (status == TN_OK) {
        *state = s;
    } else {
        tni_free(s);
    }
    return status;
}

tn_status tni_layer_norm_grad_cuda_run(const tn_call *call, void *state) {
    const grad_state *s = state;
    tni_layer_norm_grad p = s->p;
    p.x = tn_in(call, X)->data;
    p.dy = tn_in(call, GRAD_DY)->data;
    p.mean = tn_in(call, GRAD_MEAN)->data;
    p.rstd = tn_in(call, GRAD_RSTD)->data;
    p.gamma.data = data_of(tn_in(call, GAMMA));
    p.dgamma.data = data_of(tn_out(call, GRAD_DGAMMA));
    p.dbeta.data = data_of(tn_out(call, GRAD_DBETA));
    p.dx = data_of(tn_out(call, GRAD_DX));
    p.partials = call->workspace;
    p.sums = (char *)call->workspace + s->sums;
    p.s.fed = s->may_feed && (((uintptr_t)p.x | (uintptr_t)p.dy) & 15) == 0;
    const void *const data[] = {p.x, p.dy, p.dx, p.gamma.data};
    if (s->ring.grid && are_aligned(data, 4)) {
        p.parts = (int)s->ring.grid;
        TN_TRY(tni_cuda_launch(call, &s->ring, (void *[]){&p}));
        return tni_cuda_launch(call, &s->add, (void *[]){&p});
    }
    TN_TRY(tni_cuda_launch(call, &s->first, (void *[]){&p}));
    TN_TRY(tni_cuda_launch(call, &s->columns, (void *[]){&p})); /* before dx, which may be x or dy, is written */
    TN_TRY(tni_cuda_launch(call, &s->second, (void *[]){&p}));
    return tni_cuda_launch(call, &s->add, (void *[]){&p});
}
