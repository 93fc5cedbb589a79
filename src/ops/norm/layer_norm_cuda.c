/* layer_norm and its gradient on the GPU: which kernels, and how the rows are shared out. */
#include "layer_norm.h"

#include "core/contract/contract.h"
#include "cuda/device/vector.h"
#include "cuda/rows/row_plan.h"
#include "layer_norm.cuh"

static tni_rows rows_of(const layer_norm_args *a) {
    const tn_view *views[LAYER_NORM_VIEWS] = {a->x, a->y, a->mean, a->rstd};
    return tni_rows_of(views, LAYER_NORM_VIEWS, a->x->ndim - 1);
}

static tni_rows grad_rows_of(const layer_norm_grad_args *a) {
    const tn_view *views[LAYER_NORM_GRAD_VIEWS] = {a->x, a->dy, a->dx, a->mean, a->rstd};
    return tni_rows_of(views, LAYER_NORM_GRAD_VIEWS, a->x->ndim - 1);
}

bool tni_layer_norm_cuda_accepts(const tn_call *call) {
    const layer_norm_args a = layer_norm_args_of(call);
    const tni_rows rows = rows_of(&a);
    return tni_rows_beside(&rows, 2);
}

bool tni_layer_norm_grad_cuda_accepts(const tn_call *call) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const tni_rows rows = grad_rows_of(&a);
    return tni_rows_beside(&rows, a.dx ? 3 : 2);
}

/* ---- sharing out ------------------------------------------------------------------------------------------------- */

enum { OTHER_SHARED = 2048 }; /* bytes that a kernel uses by itself, at most */

static tn_status find_split(const tn_call *call, tn_type type, tni_layer_norm_shape *s, tn_launch *first,
                            tn_launch *second) {
    const tni_row_plan plan = tni_row_plan_split(type, s->rows.n);
    s->splits = plan.splits;
    s->split = plan.split;
    return tni_row_find_split(call, &plan, type, s->rows.count, first, second);
}

/* ---- layer_norm -------------------------------------------------------------------------------------------------- */

/* A parameter that the kernels for the common case take: side by side, in the type of x or in f32. */
static bool is_plain(const tn_view *v, tn_type type) {
    return v && (v->type == type || v->type == TN_F32) && v->strides[0] == 1;
}

/* One number behind the other for each row. */
static bool is_vector(const tni_gpu_rows *rows, int view) {
    return rows->n_dims == 0 || rows->strides[0][view] == 1;
}

typedef struct forward_state {
    tn_launch first, second; /* second: writes, where rows are split */
    tn_launch dense;         /* instead of both where everything is aligned; a grid of 0 where there is none */
    int lanes;               /* of its rows */
    tni_layer_norm p;
    bool may_feed;
} forward_state;

size_t tni_layer_norm_cuda_workspace(const tn_call *call) {
    const layer_norm_args a = layer_norm_args_of(call);
    const tni_rows rows = rows_of(&a);
    const tn_type type = a.x->type;
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, rows.n);
    if (!tni_row_may_split(&plan)) return 0;
    const int64_t pieces = rows.count * tni_row_plan_split(type, rows.n).splits;
    return (size_t)pieces * 3 * tn_type_size(tni_acc_type(type));
}

static tn_status find_lanes(const tn_call *call, const layer_norm_args *a, forward_state *s) {
    for (s->lanes = 1; s->lanes * LAYER_NORM_LANES_EACH < s->p.s.rows.n;) s->lanes *= 2;
    const int64_t rows = TNI_ROW_WARP_BLOCK / s->lanes; /* of a block */
    s->dense = (tn_launch){.grid = (uint32_t)ceil_div(s->p.s.rows.count, rows), .block = TNI_ROW_WARP_BLOCK};
    return tni_cuda_find(call, &s->dense, call->name, "layer_norm_lanes_%s_%s", tn_type_name(a->x->type),
                         tn_type_name(a->gamma->type));
}

/* The kernels for the common case: some lanes have a short row, a block has a longer one. */
static tn_status find_dense(const tn_call *call, const layer_norm_args *a, forward_state *s) {
    const tn_type type = a->x->type;
    const tni_gpu_rows *rows = &s->p.s.rows;
    const int64_t n = rows->n, size = (int64_t)tn_type_size(type);
    if (type == TN_F64 || !is_plain(a->gamma, type) || !is_plain(a->beta, type)) return TN_OK;
    if (a->beta->type != a->gamma->type) return TN_OK;
    if (n == 0 || n % (16 / size) || !tni_rows_dense(rows, 2)) return TN_OK;
    if (!is_vector(rows, LAYER_NORM_MEAN) || !is_vector(rows, LAYER_NORM_RSTD)) return TN_OK;
    if (n <= 32 * LAYER_NORM_LANES_EACH) return find_lanes(call, a, s);
    const int each = n * size <= 1536 || (size == 4 && n <= 4096) ? 8 : n <= 8192 ? 16 : 32;
    const int64_t threads = round_up(ceil_div(n, each), 32);
    if (threads > TNI_ROW_BLOCK) return TN_OK;
    s->dense = (tn_launch){.grid = (uint32_t)rows->count, .block = (uint32_t)threads};
    return tni_cuda_find(call, &s->dense, call->name, "layer_norm_dense_%d_%s_%s", each, tn_type_name(type),
                         tn_type_name(a->gamma->type));
}

static tn_status find_forward(const tn_call *call, const layer_norm_args *a, forward_state *s) {
    const tn_type type = a->x->type;
    tni_layer_norm_shape *shape = &s->p.s;
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, shape->rows.n);
    const int64_t count = shape->rows.count;
    shape->lanes = plan.lanes;
    shape->cluster = plan.cluster;
    if (count == 0) return TN_OK;
    if (plan.kind == TNI_ROW_SPLIT) return find_split(call, type, shape, &s->first, &s->second);
    TN_TRY(find_dense(call, a, s));
    if (plan.kind == TNI_ROW_LANES) return tni_row_find_lanes(call, &plan, type, count, &s->first);
    int64_t at_once;
    const uint32_t bytes = (uint32_t)(plan.threads * plan.each) * (uint32_t)tn_type_size(type);
    s->may_feed = tni_row_may_feed(call, &shape->rows, type, 1, bytes, OTHER_SHARED);
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(tni_row_find_blocks(call, &plan, type, &s->first, &at_once));
    if (at_once == 0) return find_split(call, type, shape, &s->first, &s->second);
    s->first.grid = (uint32_t)((s->may_feed ? min(count, at_once) : count) * plan.cluster);
    return TN_OK;
}

static tn_status fill(const tn_call *call, void *state) {
    const layer_norm_args a = layer_norm_args_of(call);
    const tni_rows rows = rows_of(&a);
    forward_state *s = state;
    s->p.gamma = tni_vector_of(a.gamma);
    s->p.beta = tni_vector_of(a.beta);
    s->p.eps = tni_number_of(a.eps);
    s->p.share = tni_number_of(rows.n ? 1 / (double)rows.n : 0);
    TN_TRY(tni_gpu_rows_of(call, &s->p.s.rows, &rows));
    return find_forward(call, &a, s);
}

tn_status tni_layer_norm_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(forward_state), fill, state);
}

tn_status tni_layer_norm_cuda_run(const tn_call *call, void *state) {
    const layer_norm_args a = layer_norm_args_of(call);
    const forward_state *s = state;
    tni_layer_norm p = s->p;
    p.x = a.x->data;
    p.gamma.data = data_of(a.gamma);
    p.beta.data = data_of(a.beta);
    p.y = a.y->data;
    p.mean = a.mean->data;
    p.rstd = a.rstd->data;
    p.partials = call->workspace;
    p.s.fed = s->may_feed && tni_is_aligned(&p.x, 1);
    if (s->dense.grid && tni_is_aligned((const void *[]){p.x, p.y, p.gamma.data, p.beta.data}, 4)) {
        p.s.lanes = s->lanes;
        return tn_cuda_launch(call, &s->dense, (void *[]){&p});
    }
    TN_TRY(tn_cuda_launch(call, &s->first, (void *[]){&p}));
    return tn_cuda_launch(call, &s->second, (void *[]){&p});
}

/* ---- layer_norm_grad --------------------------------------------------------------------------------------------- */

enum { ROWS_HELD = 2, BLOCKS_OF_LANES = 4 };

typedef struct grad_state {
    /* first: dx and the sums of blocks; or, where rows are split, their means; ring: instead of it where everything is
     * aligned, a grid of 0 where there is none */
    tn_launch first, columns, second, add, ring;
    tni_layer_norm_grad p;
    size_t sums; /* where they begin in the workspace */
    bool may_feed;
} grad_state;

static bool wants_sums(const layer_norm_grad_args *a) {
    return a->dgamma || a->dbeta;
}

/* Blocks, or clusters, that each have a part of the rows, at most. */
static int64_t most_parts(const tn_call *call, const tni_row_plan *plan, int64_t count) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return 1;
    if (plan->kind == TNI_ROW_LANES) return min(tni_row_grid(plan, count), (int64_t)gpu->sms * BLOCKS_OF_LANES);
    const int64_t blocks = plan->threads < TNI_ROW_BLOCK ? TNI_ROW_BLOCK / plan->threads : 1; /* of an SM */
    return min(count, max(gpu->sms * blocks / plan->cluster, 1));
}

/* Threads of a block that walks with a ring, and how many elements of a row each has. 0: there is no such block. */
static int ring_threads(tn_type type, int64_t n, int *each) {
    const int64_t shortest = 256, size = (int64_t)tn_type_size(type);
    if (type == TN_F64 || n < shortest || n % (16 / size)) return 0;
    for (*each = 32 / (int)size; *each <= 64 / (int)size; *each *= 2) {
        const int64_t threads = round_up(ceil_div(n, *each), 32);
        if (threads <= TNI_ROW_BLOCK) return (int)threads;
    }
    return 0;
}

/* Blocks with rings: as many as have that many threads together. */
static int64_t ring_parts(const tn_call *call, int64_t threads, int64_t count) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return 1;
    return min(count, gpu->sms * (TNI_ROW_BLOCK / threads));
}

/* The same where each column is walked along: so many that all SMs have something to do. */
static int64_t column_parts(const tn_call *call, int64_t n, int64_t count) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return 1;
    const int64_t parts = 4 * (int64_t)gpu->sms / max(ceil_div(n, LAYER_NORM_GRAD_COLUMNS), 1);
    return min(max(parts, 1), max(count, 1));
}

/* Bytes of the pairs of pieces of rows, and of all. */
static size_t grad_room(const tn_call *call, const layer_norm_grad_args *a, const tni_rows *rows, size_t *sums) {
    const tn_type type = a->x->type;
    const int64_t size = (int64_t)tn_type_size(tni_acc_type(type));
    const tni_row_plan plan = tni_row_plan_of_some(call, call->name, type, rows->n, ROWS_HELD);
    const bool splits = tni_row_may_split(&plan);
    const int64_t pieces = splits ? rows->count * tni_row_plan_split(type, rows->n).splits : 0;
    int64_t parts = plan.kind == TNI_ROW_SPLIT ? 0 : most_parts(call, &plan, rows->count);
    int each;
    const int threads = ring_threads(type, rows->n, &each);
    const int64_t rings = threads ? ring_parts(call, threads, rows->count) : 0;
    const int64_t along = splits ? column_parts(call, rows->n, rows->count) : 0;
    parts = max(parts, max(rings, along));
    *sums = (size_t)round_up(2 * pieces * size, 64);
    return *sums + (wants_sums(a) ? (size_t)(2 * parts * rows->n * size) : 0);
}

size_t tni_layer_norm_grad_cuda_workspace(const tn_call *call) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const tni_rows rows = grad_rows_of(&a);
    size_t sums;
    return grad_room(call, &a, &rows, &sums);
}

static tn_status find_grad_split(const tn_call *call, const layer_norm_grad_args *a, grad_state *s) {
    const tn_type type = a->x->type;
    const int64_t n = s->p.s.rows.n, count = s->p.s.rows.count;
    s->first = (tn_launch){0};
    if (a->dx) TN_TRY(find_split(call, type, &s->p.s, &s->first, &s->second));
    if (!wants_sums(a)) return TN_OK;
    const int64_t parts = column_parts(call, n, count);
    s->p.part_rows = ceil_div(count, parts);
    s->p.parts = (int)ceil_div(count, s->p.part_rows);
    const int64_t blocks = ceil_div(n, LAYER_NORM_GRAD_COLUMNS);
    s->columns = (tn_launch){.grid = (uint32_t)(blocks * s->p.parts), .block = LAYER_NORM_GRAD_COLUMNS};
    return tni_cuda_find(call, &s->columns, call->name, "layer_norm_grad_columns_%s", tn_type_name(type));
}

static tn_status find_grad_ring(const tn_call *call, const layer_norm_grad_args *a, grad_state *s) {
    const tn_type type = a->x->type;
    const tni_gpu_rows *rows = &s->p.s.rows;
    const tn_gpu *gpu;
    int each;
    const int threads = ring_threads(type, rows->n, &each);
    TN_TRY(tn_cuda_gpu(call, &gpu));
    if (!threads || !is_plain(a->gamma, type) || !a->dx || !wants_sums(a)) return TN_OK;
    if (!is_vector(rows, LAYER_NORM_GRAD_MEAN) || !is_vector(rows, LAYER_NORM_GRAD_RSTD)) return TN_OK;
    if (!tni_rows_dense(rows, 3) || !tni_cuda_has(call, call->name, 90)) return TN_OK;
    const int64_t stage = 2 * round_up(rows->n * (int64_t)tn_type_size(type), 128);
    const int64_t blocks = TNI_ROW_BLOCK / threads, room = gpu->shared_per_sm - blocks * OTHER_SHARED;
    const int64_t bytes = min(each <= 16 ? LAYER_NORM_RING_BYTES : LAYER_NORM_RING_LONG, room);
    const int64_t stages = min(bytes / (blocks * stage), LAYER_NORM_RING_STAGES);
    s->p.stages = (int)min(stages, (gpu->shared_per_block - OTHER_SHARED) / stage);
    if (s->p.stages < 2) return TN_OK;
    s->ring = (tn_launch){.grid = (uint32_t)ring_parts(call, threads, rows->count),
                          .block = (uint32_t)threads,
                          .shared = (uint32_t)(s->p.stages * stage + 128)};
    return tni_cuda_find(call, &s->ring, call->name, "layer_norm_grad_ring_%d_%s_%s", each, tn_type_name(type),
                         tn_type_name(a->gamma->type));
}

static tn_status find_grad_rows(const tn_call *call, const layer_norm_grad_args *a, grad_state *s) {
    const tn_type type = a->x->type;
    tni_layer_norm_shape *shape = &s->p.s;
    const tni_row_plan plan = tni_row_plan_of_some(call, call->name, type, shape->rows.n, ROWS_HELD);
    int64_t parts = most_parts(call, &plan, shape->rows.count), at_once;
    shape->lanes = plan.lanes;
    shape->cluster = plan.cluster;
    if (plan.kind == TNI_ROW_SPLIT) return find_grad_split(call, a, s);
    TN_TRY(find_grad_ring(call, a, s));
    if (plan.kind == TNI_ROW_LANES) {
        s->p.parts = (int)parts;
        s->first.shared = (uint32_t)(2 * shape->rows.n) * (uint32_t)tn_type_size(tni_acc_type(type));
        TN_TRY(tni_row_find_lanes(call, &plan, type, shape->rows.count, &s->first));
        s->first.grid = (uint32_t)parts;
        return TN_OK;
    }
    const uint32_t bytes = 4 * (uint32_t)(plan.threads * plan.each) * (uint32_t)tn_type_size(type);
    s->may_feed = tni_row_may_feed(call, &shape->rows, type, 2, bytes, OTHER_SHARED); /* x and dy, 2 rows ahead */
    s->first.shared = s->may_feed ? bytes : 0;
    TN_TRY(tni_row_find_blocks(call, &plan, type, &s->first, &at_once));
    if (at_once == 0) return find_grad_split(call, a, s);
    parts = min(parts, at_once);
    s->p.parts = (int)parts;
    s->first.grid = (uint32_t)(parts * plan.cluster);
    return TN_OK;
}

static tn_status fill_grad(const tn_call *call, void *state) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const tni_rows rows = grad_rows_of(&a);
    grad_state *s = state;
    s->p.gamma = tni_vector_of(a.gamma);
    s->p.dgamma = tni_vector_of(a.dgamma);
    s->p.dbeta = tni_vector_of(a.dbeta);
    grad_room(call, &a, &rows, &s->sums);
    TN_TRY(tni_gpu_rows_of(call, &s->p.s.rows, &rows));
    if (rows.count > 0 && rows.n > 0) TN_TRY(find_grad_rows(call, &a, s));
    if (!wants_sums(&a)) return TN_OK;
    s->add.grid = (uint32_t)ceil_div(rows.n, LAYER_NORM_ADD_COLUMNS);
    s->add.block = LAYER_NORM_ADD_COLUMNS * LAYER_NORM_ADD_WAYS;
    s->add.programmatic = tni_cuda_has(call, call->name, 90);
    return tni_cuda_find(call, &s->add, call->name, "layer_norm_grad_add_%s", a.x->type == TN_F64 ? "f64" : "f32");
}

tn_status tni_layer_norm_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_grad, state);
}

tn_status tni_layer_norm_grad_cuda_run(const tn_call *call, void *state) {
    const layer_norm_grad_args a = layer_norm_grad_args_of(call);
    const grad_state *s = state;
    tni_layer_norm_grad p = s->p;
    p.x = a.x->data;
    p.dy = a.dy->data;
    p.mean = a.mean->data;
    p.rstd = a.rstd->data;
    p.gamma.data = data_of(a.gamma);
    p.dgamma.data = data_of(a.dgamma);
    p.dbeta.data = data_of(a.dbeta);
    p.dx = data_of(a.dx);
    p.partials = call->workspace;
    p.sums = (char *)call->workspace + s->sums;
    p.s.fed = s->may_feed && tni_is_aligned((const void *[]){p.x, p.dy}, 2);
    if (s->ring.grid && tni_is_aligned((const void *[]){p.x, p.dy, p.dx, p.gamma.data}, 4)) {
        p.parts = (int)s->ring.grid;
        TN_TRY(tn_cuda_launch(call, &s->ring, (void *[]){&p}));
        return tn_cuda_launch(call, &s->add, (void *[]){&p});
    }
    TN_TRY(tn_cuda_launch(call, &s->first, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &s->columns, (void *[]){&p})); /* before dx, which may be x or dy, is written */
    TN_TRY(tn_cuda_launch(call, &s->second, (void *[]){&p}));
    return tn_cuda_launch(call, &s->add, (void *[]){&p});
}
