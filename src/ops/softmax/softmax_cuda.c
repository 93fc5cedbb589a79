/* softmax and its gradient on the GPU: which kernel, and how the rows are shared out. */
#include <string.h>

#include "core/contract/contract.h"
#include "cuda/rows/row_plan.h"
#include "softmax.cuh"
#include "softmax.h"

static const double LOG2_E = 1.4426950408889634074;

/* The tensors of a call as rows or columns. */
typedef struct layout {
    tni_rows rows;
    int64_t columns;              /* 0: rows */
    int64_t across[TNI_ROWS_MAX]; /* from a column to the next */
} layout;

/* Rows where the first `views` tensors have stride 1 along the axis, columns where they have it in another dimension;
 * false: neither, or more dimensions than kernels take. */
static bool lay_out(layout *l, const tn_view *const *views, int32_t n_views, int32_t need, int32_t axis) {
    l->rows = tni_rows_of(views, n_views, axis);
    l->columns = 0;
    if (l->rows.count == 0 || l->rows.n == 0) { /* nothing to do, however it is laid out */
        l->rows.count = l->rows.n_dims = 0;
        return true;
    }
    bool along = true;
    for (int32_t k = 0; k < need; k++) along = along && (l->rows.n <= 1 || l->rows.step[k] == 1);
    for (int32_t d = 0; d < l->rows.n_dims && !along && !l->columns; d++) {
        bool beside = true;
        for (int32_t k = 0; k < need; k++) beside = beside && l->rows.strides[d][k] == 1;
        if (beside) l->columns = tni_rows_take(&l->rows, d, l->across);
    }
    return (along || l->columns) && l->rows.n_dims <= TNI_ROW_DIMS;
}

typedef struct query_view {
    int64_t strides[TN_MAX_RANK];
    tn_view view;
} query_view;

/* `query` becomes a tensor whose elements are the number of their query. */
static bool lay_out_softmax(layout *l, const softmax_args *a, query_view *query) {
    memset(query, 0, sizeof *query);
    query->view = (tn_view){.shape = a->x->shape, .strides = query->strides, .ndim = a->x->ndim};
    if (a->causal) query->strides[a->x->ndim - 2] = 1;
    const tn_view *views[SOFTMAX_VIEWS] = {a->x, a->y, a->mask, a->causal ? &query->view : NULL};
    const bool good = lay_out(l, views, SOFTMAX_VIEWS, 2, (int32_t)a->axis);
    return good && !(a->causal && l->columns);
}

static bool lay_out_grad(layout *l, const softmax_grad_args *a) {
    const tn_view *views[SOFTMAX_GRAD_VIEWS] = {a->y, a->dy, a->dx};
    return lay_out(l, views, SOFTMAX_GRAD_VIEWS, SOFTMAX_GRAD_VIEWS, (int32_t)a->axis);
}

bool tni_softmax_cuda_accepts(const tn_call *call) {
    const softmax_args a = softmax_args_of(call);
    layout l;
    query_view query;
    return lay_out_softmax(&l, &a, &query);
}

bool tni_softmax_grad_cuda_accepts(const tn_call *call) {
    const softmax_grad_args a = softmax_grad_args_of(call);
    layout l;
    return lay_out_grad(&l, &a);
}

/* ---- sharing out ------------------------------------------------------------------------------------------------- */

/* Columns: 0 pieces where threads hold what they share of a column. */
static int column_splits(int64_t n, int64_t *split) {
    const int64_t least = n <= 8192 ? 128 : 512, tile = TNI_COLUMN_SPLIT_WAYS * TNI_COLUMN_PART;
    if (n <= TNI_COLUMN_WAYS * TNI_COLUMN_PART) return 0;
    *split = round_up(max(ceil_div(n, TNI_COLUMN_SPLITS), least), tile);
    return (int)ceil_div(n, *split);
}

/* Columns of a block: enough to fill it, and to read whole sectors of memory. */
static int64_t columns_of_block(int ways) {
    int64_t across = 256;
    while (across > 8 && across * ways > (across > 32 ? 256 : 1024)) across /= 2;
    return across;
}

/* One launch, or two where rows are split: the second writes. */
typedef struct launches {
    tn_launch first, second;
    tn_launch full; /* instead of `first` where everything is aligned; a grid of 0 where there is none */
    tni_softmax_shape shape;
    int tensors;   /* that are read: 1 by softmax, 2 by its gradient */
    bool plain;    /* nothing is masked */
    bool positive; /* softmax: the scale is */
} launches;

/* Blocks of a cluster that holds a column; 0: none does. By the length alone. */
static int column_cluster(const tn_call *call, const tni_softmax_shape *s) {
    const int64_t blocks = ceil_div(s->splits, TNI_COLUMN_PIECES);
    int cluster = 1;
    while (cluster < blocks) cluster *= 2;
    const bool whole = s->split == TNI_COLUMN_SPLIT_WAYS * TNI_COLUMN_PART; /* a piece is what threads hold at once */
    return whole && cluster <= tni_row_clustered(call, call->name) ? cluster : 0;
}

/* So few columns that most SMs would have nothing to do. */
static bool is_few(const tn_call *call, const tni_softmax_shape *s) {
    const tn_gpu *gpu;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return false;
    return s->rows.count * s->columns <= gpu->sms / 4;
}

static tn_status find_columns(const tn_call *call, tn_type of, launches *l) {
    const char *type = tn_type_name(of);
    tni_softmax_shape *s = &l->shape;
    int64_t split = 0;
    s->splits = column_splits(s->rows.n, &split);
    s->split = split;
    s->ways = s->splits ? TNI_COLUMN_SPLIT_WAYS : (int)ceil_div(s->rows.n, TNI_COLUMN_PART);
    const int64_t across = s->splits ? 32 : columns_of_block(s->ways);
    const int64_t blocks = ceil_div(s->rows.count * s->columns, across);
    l->first.block = l->second.block = (uint32_t)(across * s->ways);
    l->first.grid = (uint32_t)(blocks * max(s->splits, 1));
    if (!s->splits) return tni_cuda_find(call, &l->first, call->name, "%s_columns_%s", call->name, type);
    const int cluster = l->tensors == 1 && of != TN_F64 ? column_cluster(call, s) : 0;
    if (cluster && is_few(call, s)) {
        l->first.block = SOFTMAX_FEW_THREADS;
        l->first.grid = (uint32_t)(s->rows.count * s->columns);
        return tni_cuda_find(call, &l->first, call->name, "%s_columns_few_%s", call->name, type);
    }
    if (cluster) {
        int fits;
        l->first.grid = (uint32_t)(blocks * cluster);
        l->first.cluster = (uint32_t)cluster;
        TN_TRY(tni_cuda_find(call, &l->first, call->name, "%s_columns_cluster_%s", call->name, type));
        TN_TRY(tn_cuda_occupancy(call, &l->first, &fits));
        s->cluster = cluster;
        if (fits > 0) return TN_OK;
        l->first.grid = (uint32_t)(blocks * s->splits);
        l->first.cluster = 0;
    }
    l->second.grid = l->first.grid;
    TN_TRY(tni_cuda_find(call, &l->first, call->name, "%s_columns_split_%s", call->name, type));
    return tni_cuda_find(call, &l->second, call->name, "%s_columns_write_%s", call->name, type);
}

static tn_status find_split(const tn_call *call, tn_type type, launches *l) {
    const tni_row_plan plan = tni_row_plan_split(type, l->shape.rows.n);
    l->shape.splits = plan.splits;
    l->shape.split = plan.split;
    return tni_row_find_split(call, &plan, type, l->shape.rows.count, &l->first, &l->second);
}

/* Dense rows that do not begin at multiples of 16 bytes go through shared memory, many of them at once: a thread has a
 * short one, a warp a longer one. By the length and the strides alone. */
static bool fits_tiles(tn_type type, const launches *l) {
    const int64_t n = l->shape.rows.n;
    return n <= 32 * SOFTMAX_TILE_MOST && n % (16 / (int64_t)tn_type_size(type)) != 0 &&
           tni_rows_dense(&l->shape.rows, l->tensors + 1);
}

static tn_status find_tiles(const tn_call *call, tn_type type, launches *l) {
    const int64_t n = l->shape.rows.n, bytes = n * (int64_t)tn_type_size(type) * l->tensors; /* of a row */
    const bool is_short = bytes * TNI_TILE_THREADS <= TNI_TILE_BYTES;
    /* as many rows as there are threads, or warps; and the next tile begins at a multiple of 16 bytes */
    const int64_t few = is_short ? TNI_TILE_THREADS : tn_type_size(type) == 2 ? 8 : TNI_TILE_THREADS / 32;
    l->shape.tile = (int)(few * max(TNI_TILE_BYTES / 2 / (few * bytes), 1));
    l->first.shared = (uint32_t)(l->shape.tile * bytes);
    l->first.grid = (uint32_t)ceil_div(l->shape.rows.count, l->shape.tile);
    l->first.block = TNI_TILE_THREADS;
    const char *name = tn_type_name(type);
    if (is_short) return tni_cuda_find(call, &l->first, call->name, "%s_tile_%s", call->name, name);
    const int each = n <= 32 * 8 ? 8 : n <= 32 * 16 ? 16 : SOFTMAX_TILE_MOST;
    return tni_cuda_find(call, &l->first, call->name, "%s_tile_warp_%d_%s", call->name, each, name);
}

/* Threads of softmax_full for these rows; 0 where there is no such kernel. */
static int full_threads(tn_type type, const launches *l) {
    if (!l->plain || !l->positive || type == TN_F64) return 0;
    return tni_row_full(&l->shape.rows, 2, type == TN_F32 ? 8 : 16, type == TN_F32 ? 1024 : 512);
}

static tn_status find_full(const tn_call *call, tn_type type, int threads, launches *l) {
    const int rows = tni_row_full_rows(call, type, &l->shape.rows);
    l->full = (tn_launch){.grid = (uint32_t)ceil_div(l->shape.rows.count, rows), .block = (uint32_t)threads};
    return tni_cuda_find(call, &l->full, call->name, "%s_%s_%d_%s", call->name, rows > 1 ? "two" : "full", threads,
                         tn_type_name(type));
}

static tn_status find_rows(const tn_call *call, tn_type type, launches *l) {
    const int64_t count = l->shape.rows.count;
    if (l->plain && fits_tiles(type, l)) return find_tiles(call, type, l);
    const tni_row_plan plan = tni_row_plan_of(call, call->name, type, l->shape.rows.n);
    if (plan.kind == TNI_ROW_SPLIT) return find_split(call, type, l);
    l->shape.lanes = plan.lanes;
    l->shape.cluster = plan.cluster;
    if (plan.kind == TNI_ROW_LANES) return tni_row_find_lanes(call, &plan, type, count, &l->first);
    const int full = full_threads(type, l);
    if (full) TN_TRY(find_full(call, type, full, l));
    int64_t at_once;
    TN_TRY(tni_row_find_blocks(call, &plan, type, &l->first, &at_once));
    l->first.grid = tni_row_grid(&plan, count);
    return plan.cluster == 1 || at_once > 0 ? TN_OK : find_split(call, type, l);
}

/* An empty tensor leaves both grids 0: nothing is launched. */
static tn_status share_out(const tn_call *call, const layout *from, tn_type type, launches *l) {
    if (from->rows.n == 0 || from->rows.count == 0) return TN_OK;
    TN_TRY(tni_gpu_rows_of(call, &l->shape.rows, &from->rows));
    l->shape.columns = from->columns;
    for (int32_t k = 0; k < from->rows.n_views; k++) l->shape.step[k] = from->rows.step[k];
    return from->columns ? find_columns(call, type, l) : find_rows(call, type, l);
}

/* Numbers that the first of two launches leaves for the second: one for each piece of a row or column. */
static size_t count_left(const layout *from, const launches *l) {
    return l->second.grid ? (size_t)(from->rows.count * max(from->columns, 1) * l->shape.splits) : 0;
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

typedef struct forward_state {
    launches l;
    tni_softmax p;
} forward_state;

static tn_status plan_softmax(const tn_call *call, const softmax_args *a, layout *from, launches *l) {
    query_view query;
    lay_out_softmax(from, a, &query);
    *l = (launches){.tensors = 1, .plain = !a->mask && !a->causal, .positive = a->scale > 0};
    return share_out(call, from, a->x->type, l);
}

size_t tni_softmax_cuda_workspace(const tn_call *call) {
    const softmax_args a = softmax_args_of(call);
    layout from;
    launches l;
    if (plan_softmax(call, &a, &from, &l) != TN_OK) return 0;
    return 2 * count_left(&from, &l) * tn_type_size(tni_acc_type(a.x->type));
}

static tn_status fill(const tn_call *call, void *state) {
    const softmax_args a = softmax_args_of(call);
    forward_state *s = state;
    layout l;
    TN_TRY(plan_softmax(call, &a, &l, &s->l));
    s->p.s = s->l.shape;
    s->p.s.across_mask = l.columns ? l.across[SOFTMAX_MASK] : 0;
    s->p.factor = tni_number_of(a.scale * LOG2_E);
    s->p.mask_step = l.rows.step[SOFTMAX_MASK];
    s->p.causal = a.causal;
    if (a.causal) s->p.visible = a.x->shape[a.x->ndim - 1] - a.x->shape[a.x->ndim - 2] + 1;
    return TN_OK;
}

tn_status tni_softmax_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(forward_state), fill, state);
}

tn_status tni_softmax_cuda_run(const tn_call *call, void *state) {
    const softmax_args a = softmax_args_of(call);
    const forward_state *s = state;
    tni_softmax p = s->p;
    p.x = a.x->data;
    p.mask = data_of(a.mask);
    p.y = a.y->data;
    p.partials = call->workspace;
    if (s->l.full.grid && tni_is_aligned((const void *[]){p.x, p.y}, 2)) {
        return tn_cuda_launch(call, &s->l.full, (void *[]){&p});
    }
    TN_TRY(tn_cuda_launch(call, &s->l.first, (void *[]){&p}));
    return tn_cuda_launch(call, &s->l.second, (void *[]){&p});
}

/* ---- softmax_grad ------------------------------------------------------------------------------------------------ */

typedef struct grad_state {
    launches l;
    tni_softmax_grad p;
} grad_state;

static tn_status plan_grad(const tn_call *call, const softmax_grad_args *a, layout *from, launches *l) {
    lay_out_grad(from, a);
    *l = (launches){.tensors = 2, .plain = true};
    return share_out(call, from, a->y->type, l);
}

size_t tni_softmax_grad_cuda_workspace(const tn_call *call) {
    const softmax_grad_args a = softmax_grad_args_of(call);
    layout from;
    launches l;
    if (plan_grad(call, &a, &from, &l) != TN_OK) return 0;
    return count_left(&from, &l) * tn_type_size(tni_acc_type(a.y->type));
}

static tn_status fill_grad(const tn_call *call, void *state) {
    const softmax_grad_args a = softmax_grad_args_of(call);
    grad_state *s = state;
    layout l;
    TN_TRY(plan_grad(call, &a, &l, &s->l));
    s->p.s = s->l.shape;
    s->p.scale = tni_number_of(a.scale);
    return TN_OK;
}

tn_status tni_softmax_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_state), fill_grad, state);
}

tn_status tni_softmax_grad_cuda_run(const tn_call *call, void *state) {
    const softmax_grad_args a = softmax_grad_args_of(call);
    const grad_state *s = state;
    tni_softmax_grad p = s->p;
    p.y = a.y->data;
    p.dy = a.dy->data;
    p.dx = a.dx->data;
    p.partials = call->workspace;
    TN_TRY(tn_cuda_launch(call, &s->l.first, (void *[]){&p}));
    return tn_cuda_launch(call, &s->l.second, (void *[]){&p});
}
