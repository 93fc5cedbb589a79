/* cumsum, cumprod, cummax and the gradients of cumprod on the GPU: which kernels, and how rows are shared out. */
#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "cummax.h"
#include "scan.cuh"
#include "scan.h"

enum {
    ROWS_PER_SM = 2,      /* fewer rows: parts of them have blocks of their own */
    COLUMNS_PER_SM = 512, /* the same for columns, which have a thread each */
};

/* One scan: a launch along all parts, or three. */
typedef struct pass {
    tn_launch scan, offsets;
    tni_gpu_scan job;
    bool is_cut;
    size_t bytes; /* of sums */
} pass;

/* Kernels of unit.cu whose names begin with `name`. */
typedef struct scan_shape {
    const char *unit, *name, *type;
    int64_t outer, n, inner;
    int64_t each, state; /* elements of a thread; bytes of what is put together */
} scan_shape;

static tn_status set_grid(const tn_call *call, tn_launch *l, int64_t grid) {
    if (grid > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: so many rows are not possible at once", call->name);
    l->block = TNI_SCAN_THREADS;
    l->grid = (uint32_t)grid;
    return TN_OK;
}

/* The smallest power of 2 times `least` that leaves no more parts than may be. */
static int64_t part_of(int64_t n, int64_t least) {
    while (ceil_div(n, least) > TNI_SCAN_PARTS_MOST) least *= 2;
    return least;
}

static tn_status find_rows(const tn_call *call, const scan_shape *s, int sms, pass *p) {
    tni_gpu_scan *job = &p->job;
    job->rows = s->outer;
    job->lanes = 1;
    while (job->lanes < TNI_SCAN_THREADS && job->lanes * s->each < s->n) job->lanes *= 2;
    job->part = part_of(s->n, TNI_SCAN_THREADS * s->each * TNI_SCAN_STEPS);
    job->parts = ceil_div(s->n, job->part);
    p->is_cut = job->parts > 1 && job->rows < (int64_t)sms * ROWS_PER_SM;
    TN_TRY(set_grid(call, &p->scan,
                    p->is_cut ? job->rows * job->parts : ceil_div(job->rows, TNI_SCAN_THREADS / job->lanes)));
    TN_TRY(set_grid(call, &p->offsets, ceil_div(job->rows, TNI_SCAN_THREADS / 32)));
    return tni_cuda_find(call, &p->scan, s->unit, "%s_rows_%s", s->name, s->type);
}

static tn_status find_columns(const tn_call *call, const scan_shape *s, int sms, pass *p) {
    tni_gpu_scan *job = &p->job;
    job->rows = s->outer * s->inner;
    job->part = part_of(s->n, TNI_SCAN_COLUMN);
    job->parts = ceil_div(s->n, job->part);
    p->is_cut = job->parts > 1 && job->rows < (int64_t)sms * COLUMNS_PER_SM;
    TN_TRY(set_grid(call, &p->scan, ceil_div(job->rows * (p->is_cut ? job->parts : 1), TNI_SCAN_THREADS)));
    TN_TRY(set_grid(call, &p->offsets, ceil_div(job->rows, TNI_SCAN_THREADS)));
    return tni_cuda_find(call, &p->scan, s->unit, "%s_columns_%s", s->name, s->type);
}

static tn_status find(const tn_call *call, const scan_shape *s, pass *p) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    if (s->outer * s->n * s->inner == 0) return TN_OK;
    p->job.n = s->n;
    p->job.inner = s->inner;
    TN_TRY(s->inner == 1 ? find_rows(call, s, gpu->sms, p) : find_columns(call, s, gpu->sms, p));
    if (!p->is_cut) return TN_OK;
    p->bytes = (size_t)(p->job.rows * p->job.parts * s->state);
    return tni_cuda_find(call, &p->offsets, s->unit, "%s_offsets_%s", s->name, s->type);
}

static tn_status launch(const tn_call *call, const pass *p, tni_gpu_scan *job) {
    job->mode = TNI_SCAN_WHOLE;
    if (!p->is_cut) return tn_cuda_launch(call, &p->scan, (void *[]){job});
    job->mode = TNI_SCAN_TOTALS;
    TN_TRY(tn_cuda_launch(call, &p->scan, (void *[]){job}));
    TN_TRY(tn_cuda_launch(call, &p->offsets, (void *[]){job}));
    job->mode = TNI_SCAN_PARTS;
    return tn_cuda_launch(call, &p->scan, (void *[]){job});
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
                              .each = TNI_SCAN_BYTES / max(size, 2),
                              .state = max(size, 4)};
    pass *p = state;
    p->job.exclusive = s.exclusive;
    p->job.reverse = s.reverse;
    p->job.aligned = s.n * size % 16 == 0;
    return find(call, &shape, p);
}

tn_status tni_scan_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(pass), fill_scan, state);
}

static size_t pass_bytes(const tn_call *call) {
    const pass *p = call->state;
    return p->bytes;
}

size_t tni_scan_cuda_workspace(const tn_call *call) {
    return pass_bytes(call);
}

tn_status tni_scan_cuda_run(const tn_call *call, void *state) {
    const tni_scan s = tni_scan_of(call);
    const pass *p = state;
    tni_gpu_scan job = p->job;
    job.x = s.x->data;
    job.to = s.y->data;
    job.sums = call->workspace;
    job.aligned = job.aligned && (uintptr_t)job.x % 16 == 0 && (uintptr_t)job.to % 16 == 0;
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
    const scan_shape shape = {.unit = "cummax",
                              .name = "cummax",
                              .type = bits_of(e.x->type),
                              .outer = e.outer,
                              .n = e.n,
                              .inner = e.inner,
                              .each = TNI_SCAN_EACH,
                              .state = 16};
    pass *p = state;
    p->job.rule = rule_of(e.x->type);
    p->job.smallest = e.smallest;
    return find(call, &shape, p);
}

tn_status tni_cummax_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(pass), fill_cummax, state);
}

size_t tni_cummax_cuda_workspace(const tn_call *call) {
    return pass_bytes(call);
}

tn_status tni_cummax_cuda_run(const tn_call *call, void *state) {
    const tni_extremes e = tni_extremes_of(call);
    const pass *p = state;
    tni_gpu_scan job = p->job;
    job.x = e.x->data;
    job.to = data_of(e.values);
    job.index = data_of(e.index);
    job.sums = call->workspace;
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
                              .each = TNI_SCAN_EACH,
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
    job.sums = call->workspace;
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

/* The sums of parts, which both passes have in turn, then s. */
static size_t sums_bytes(const grads *s) {
    return (size_t)round_up(max((int64_t)s->behind.bytes, (int64_t)s->forth.bytes), 64);
}

size_t tni_cumprod_grad_cuda_workspace(const tn_call *call) {
    return sums_bytes(call->state);
}

size_t tni_cumprod_grad_grad_cuda_workspace(const tn_call *call) {
    const grads *s = call->state;
    return sums_bytes(s) + s->s;
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
    behind.s = forth.s = (char *)call->workspace + sums_bytes(s);
    TN_TRY(launch(call, &s->behind, &behind));
    return launch(call, &s->forth, &forth);
}
