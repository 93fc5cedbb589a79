/* cumsum, cumprod, cummax and the gradients of cumprod on the GPU: which kernels, and how rows are shared out. */
#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "cummax.h"
#include "scan.h"
#include "scan_job.cuh"

/* One scan: a launch, and where rows have several tiles one before it, which clears what these tell each other. */
typedef struct pass {
    tn_launch scan, clear;
    tni_gpu_scan job;
    int64_t side;  /* columns of a thread, where they can be read at once */
    int64_t align; /* bytes, of which x and y are multiples where vectors can be read; 0: they cannot */
} pass;

/* Kernels of unit.cu whose names begin with `name`. */
typedef struct scan_shape {
    const char *unit, *name, *type;
    int64_t outer, n, inner;
    int64_t lane, stripes, side; /* of the operator, as scan.cuh has them */
    int64_t element, state;      /* bytes: of x, of what is put together */
} scan_shape;

static int log2_from(int64_t n) {
    int log = 0;
    while ((int64_t)1 << log < n) log++;
    return log;
}

static void share_rows(const scan_shape *s, pass *p) {
    tni_gpu_scan *job = &p->job;
    const int64_t stripes = TNI_SCAN_WARPS * s->stripes;
    job->log_lanes = log2_from(min(ceil_div(s->n, s->lane), 32));
    const int64_t piece = s->lane << job->log_lanes;
    job->log_pieces = log2_from(min(ceil_div(s->n, piece), stripes));
    job->tile = piece << job->log_pieces;
    job->warps = (int)max(((int64_t)1 << job->log_pieces) / s->stripes, 1);
    job->blocks = ceil_div(s->outer, (stripes >> job->log_pieces) << (5 - job->log_lanes));
    p->align = s->n % s->lane == 0 ? s->lane * s->element : 0;
}

static int64_t blocks_of_columns(const tni_gpu_scan *job, int64_t side) {
    return ceil_div(job->rows, TNI_SCAN_WARPS / job->warps * 32 * side);
}

static void share_columns(const scan_shape *s, pass *p) {
    tni_gpu_scan *job = &p->job;
    job->warps = 1 << log2_from(min(ceil_div(s->n, TNI_SCAN_COLUMN), TNI_SCAN_WARPS));
    job->tile = (int64_t)TNI_SCAN_COLUMN * job->warps;
    job->blocks = blocks_of_columns(job, 1);
    p->align = s->inner % s->side == 0 ? s->side * s->element : 0;
}

static tn_status find_clear(const tn_call *call, const scan_shape *s, pass *p) {
    const int64_t tiles = p->job.tiles, group = s->inner == 1 ? TNI_SCAN_ROW_GROUP : TNI_SCAN_COLUMN_GROUP;
    p->job.n_words = (tiles + 2 * (tiles / group)) * p->job.rows * (s->state / 4);
    p->clear.block = TNI_SCAN_THREADS;
    p->clear.grid = (uint32_t)min(ceil_div(p->job.n_words, TNI_SCAN_THREADS), TNI_SCAN_CLEARING);
    p->scan.programmatic = tni_cuda_has(call, s->unit, 90);
    return tni_cuda_find(call, &p->clear, "scan", "scan_clear");
}

static tn_status find(const tn_call *call, const scan_shape *s, pass *p) {
    tni_gpu_scan *job = &p->job;
    if (s->outer * s->n * s->inner == 0) return TN_OK;
    job->rows = s->outer * s->inner;
    job->n = s->n;
    job->inner = s->inner;
    p->side = s->side;
    if (s->inner == 1)
        share_rows(s, p);
    else
        share_columns(s, p);
    job->tiles = ceil_div(s->n, job->tile);
    if (job->blocks * job->tiles > INT32_MAX)
        return tn_fail(TN_UNSUPPORTED, "%s: so many rows are not possible at once", call->name);
    p->scan.block = TNI_SCAN_THREADS;
    if (job->tiles > 1) TN_TRY(find_clear(call, s, p));
    return tni_cuda_find(call, &p->scan, s->unit, s->inner == 1 ? "%s_rows_%s" : "%s_columns_%s", s->name, s->type);
}

static size_t words_bytes(const pass *p) {
    return (size_t)p->job.n_words * sizeof(uint64_t);
}

static tn_status launch(const tn_call *call, const pass *p, tni_gpu_scan *job) {
    tn_launch scan = p->scan;
    if (job->aligned && job->inner > 1) job->blocks = blocks_of_columns(job, p->side);
    scan.grid = (uint32_t)(job->blocks * job->tiles);
    TN_TRY(tn_cuda_launch(call, &p->clear, (void *[]){job}));
    return tn_cuda_launch(call, &scan, (void *[]){job});
}

/* The name of an integer type of this size, without a sign. */
static const char *bits_of(tn_type type) {
    static const char *const names[] = {[1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    return names[tn_type_size(type)];
}

/* ---- cumsum and cumprod ------------------------------------------------------------------------------------------ */

static tn_status fill_scan(const tn_call *call, void *state) {
    const tni_scan s = tni_scan_of(call);
    const int64_t size = (int64_t)tn_type_size(s.x->type);
    const scan_shape shape = {.unit = "scan",
                              .name = s.product ? "cumprod" : "cumsum",
                              .type = TN_BIT(s.x->type) & TN_FLOATS ? tn_type_name(s.x->type) : bits_of(s.x->type),
                              .outer = s.outer,
                              .n = s.n,
                              .inner = s.inner,
                              .lane = 16 / size,
                              .stripes = min(size, 4),
                              .side = size == 8 ? 1 : 2,
                              .element = size,
                              .state = max(size, 4)};
    pass *p = state;
    p->job.exclusive = s.exclusive;
    p->job.reverse = s.reverse;
    return find(call, &shape, p);
}

tn_status tni_scan_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(pass), fill_scan, state);
}

size_t tni_scan_cuda_workspace(const tn_call *call) {
    return words_bytes(call->state);
}

tn_status tni_scan_cuda_run(const tn_call *call, void *state) {
    const tni_scan s = tni_scan_of(call);
    const pass *p = state;
    tni_gpu_scan job = p->job;
    job.x = s.x->data;
    job.to = s.y->data;
    job.words = call->workspace;
    job.aligned = p->align && ((uintptr_t)job.x | (uintptr_t)job.to) % (uintptr_t)p->align == 0;
    return launch(call, p, &job);
}

/* ---- cummax and cummin ------------------------------------------------------------------------------------------- */

/* How bits become a key (ops/sorting/keys.cuh). `flip` has all bits of the type: what turns the order round. */
static tni_key_rule rule_of(tn_type type) {
    const uint64_t sign = (uint64_t)1 << (8 * tn_type_size(type) - 1);
    const uint64_t infinity = type == TN_F16    ? 0x7c00
                              : type == TN_BF16 ? 0x7f80
                              : type == TN_F32  ? 0x7f800000
                              : type == TN_F64  ? 0x7ff0000000000000
                                                : 0;
    const bool has_sign = TN_BIT(type) & (TN_FLOATS | TN_SIGNED);
    return (tni_key_rule){.sign = has_sign ? sign : 0, .infinity = infinity, .flip = sign | (sign - 1)};
}

static tn_status fill_cummax(const tn_call *call, void *state) {
    const tni_extremes e = tni_extremes_of(call);
    const int64_t size = (int64_t)tn_type_size(e.x->type);
    if (e.n > UINT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: a row has more than 2^32 elements", call->name);
    const scan_shape shape = {.unit = "cummax",
                              .name = "cummax",
                              .type = bits_of(e.x->type),
                              .outer = e.outer,
                              .n = e.n,
                              .inner = e.inner,
                              .lane = TNI_CUMMAX_LANE,
                              .stripes = size == 8 ? 4 : 8,
                              .side = 1,
                              .element = size,
                              .state = size == 8 ? 16 : 8};
    pass *p = state;
    p->job.rule = rule_of(e.x->type);
    p->job.smallest = e.smallest;
    return find(call, &shape, p);
}

tn_status tni_cummax_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(pass), fill_cummax, state);
}

size_t tni_cummax_cuda_workspace(const tn_call *call) {
    return words_bytes(call->state);
}

tn_status tni_cummax_cuda_run(const tn_call *call, void *state) {
    const tni_extremes e = tni_extremes_of(call);
    const pass *p = state;
    tni_gpu_scan job = p->job;
    job.x = e.x->data;
    job.to = data_of(e.values);
    job.index = data_of(e.index);
    job.words = call->workspace;
    job.aligned = p->align && ((uintptr_t)job.x | (uintptr_t)job.to) % (uintptr_t)p->align == 0 &&
                  (uintptr_t)job.index % (TNI_CUMMAX_LANE * sizeof(int64_t)) == 0;
    return launch(call, p, &job);
}

/* ---- gradients of cumprod ---------------------------------------------------------------------------------------- */

typedef struct grads {
    pass behind, forth; /* forth: of the second gradient alone */
    size_t s;           /* bytes of s */
} grads;

static tn_status find_grad(const tn_call *call, const tni_scan_grad *g, const char *name, bool reverse, pass *p) {
    const tn_type type = g->x->type;
    const scan_shape shape = {.unit = "scan_grad",
                              .name = name,
                              .type = tn_type_name(type),
                              .outer = g->outer,
                              .n = g->n,
                              .inner = g->inner,
                              .lane = TNI_SCAN_LANE,
                              .stripes = 1,
                              .side = 1,
                              .element = (int64_t)tn_type_size(type),
                              .state = type == TN_F64 ? 16 : 8};
    p->job.exclusive = g->exclusive;
    p->job.reverse = reverse;
    return find(call, &shape, p);
}

static tni_gpu_scan job_of(const tn_call *call, const tni_scan_grad *g, const pass *p) {
    tni_gpu_scan job = p->job;
    job.x = g->x->data;
    job.y = g->y->data;
    job.dy = g->dy->data;
    job.ddx = data_of(g->ddx);
    job.to = data_of(g->dx);
    job.gx = data_of(g->gx);
    job.gy = data_of(g->gy);
    job.gdy = data_of(g->gdy);
    job.words = call->workspace;
    return job;
}

static tn_status fill_first(const tn_call *call, void *state) {
    const tni_scan_grad g = tni_scan_grad_of(call);
    grads *s = state;
    return find_grad(call, &g, "cumprod_grad", !g.reverse, &s->behind);
}

static tn_status fill_second(const tn_call *call, void *state) {
    const tni_scan_grad g = tni_scan_grad_grad_of(call);
    grads *s = state;
    s->s = tni_scan_grad_grad_workspace(call);
    TN_TRY(find_grad(call, &g, "cumprod_grad_behind", !g.reverse, &s->behind));
    return find_grad(call, &g, "cumprod_grad_grad", g.reverse, &s->forth);
}

tn_status tni_cumprod_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grads), fill_first, state);
}

tn_status tni_cumprod_grad_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grads), fill_second, state);
}

/* What tiles tell each other, in both passes in turn, then s. */
static size_t both_bytes(const grads *s) {
    return (size_t)round_up(max((int64_t)words_bytes(&s->behind), (int64_t)words_bytes(&s->forth)), 64);
}

size_t tni_cumprod_grad_cuda_workspace(const tn_call *call) {
    return both_bytes(call->state);
}

size_t tni_cumprod_grad_grad_cuda_workspace(const tn_call *call) {
    const grads *s = call->state;
    return both_bytes(s) + s->s;
}

tn_status tni_cumprod_grad_cuda_run(const tn_call *call, void *state) {
    const tni_scan_grad g = tni_scan_grad_of(call);
    const grads *s = state;
    tni_gpu_scan job = job_of(call, &g, &s->behind);
    return launch(call, &s->behind, &job);
}

tn_status tni_cumprod_grad_grad_cuda_run(const tn_call *call, void *state) {
    const tni_scan_grad g = tni_scan_grad_grad_of(call);
    const grads *s = state;
    tni_gpu_scan behind = job_of(call, &g, &s->behind), forth = job_of(call, &g, &s->forth);
    behind.s = forth.s = (char *)call->workspace + both_bytes(s);
    TN_TRY(launch(call, &s->behind, &behind));
    return launch(call, &s->forth, &forth);
}
