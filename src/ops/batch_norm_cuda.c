/* batch_norm and its gradient on the GPU: how the kernels of batch_norm.cu and batch_norm_grad.cu divide the work. */
#include "../cuda/cuda.h"
#include "../cuda/walk.h"
#include "batch_norm.cuh"
#include "batch_norm.h"

/* batch_norm */
enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { MOMENTUM, EPS, ACT };
enum { Y, MEAN, RSTD };
enum { ACT_NONE, ACT_RELU };

/* batch_norm_grad */
enum { GRAD_RESIDUAL = BETA + 1, GRAD_MEAN, GRAD_RSTD, GRAD_DY };
enum { GRAD_ACT };
enum { GRAD_DX, GRAD_DGAMMA, GRAD_DBETA, GRAD_DRESIDUAL };

enum {
    BATCH = 8,        /* packs of a thread that are a good piece of work */
    PLANE_PARTS = 32, /* blocks for each multiprocessor that sum up planes; */
    MOST_PARTS = 512, /* of a channel */
    ROW_PARTS = 4,    /* rows, whose parts cost more to end */
};

typedef struct bn_plan {
    bool empty, rows, one; /* one: a block does a channel by itself */
    tni_batch_norm p;      /* all but the pointers */
    tni_launch sums, end, write;
} bn_plan;

static int64_t pieces(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static const char *type_name(tn_type type) {
    return type == TN_F16 ? "f16" : type == TN_BF16 ? "bf16" : type == TN_F32 ? "f32" : "f64";
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

static tni_bn_big big_of(const tn_view *v) {
    if (!v) return (tni_bn_big){0};
    return (tni_bn_big){.data = v->data,
                        .n_step = v->shape[0] > 1 ? v->strides[0] : 0,
                        .c_step = v->shape[1] > 1 ? v->strides[1] : 0,
                        .row_step = tni_batch_norm_step(v)};
}

static tni_bn_small small_of(const tn_view *v) {
    if (!v) return (tni_bn_small){0};
    const int type = v->type == TN_F16    ? TNI_BN_F16
                     : v->type == TN_BF16 ? TNI_BN_BF16
                     : v->type == TN_F32  ? TNI_BN_F32
                                          : TNI_BN_F64;
    return (tni_bn_small){.data = v->data, .step = v->shape[0] > 1 ? v->strides[0] : 0, .type = type};
}

static void set_forward(tni_batch_norm *p, const tn_call *call) {
    p->x = big_of(tn_in(call, X));
    p->residual = big_of(tn_in(call, RESIDUAL));
    p->y = big_of(tn_out(call, Y));
    p->gamma = small_of(tn_in(call, GAMMA));
    p->beta = small_of(tn_in(call, BETA));
    p->running_mean = small_of(tn_in(call, RUNNING_MEAN));
    p->running_var = small_of(tn_in(call, RUNNING_VAR));
    p->mean = small_of(tn_out(call, MEAN));
    p->rstd = small_of(tn_out(call, RSTD));
}

static void set_backward(tni_batch_norm *p, const tn_call *call) {
    p->x = big_of(tn_in(call, X));
    p->residual = big_of(tn_in(call, GRAD_RESIDUAL));
    p->dy = big_of(tn_in(call, GRAD_DY));
    p->y = big_of(tn_out(call, GRAD_DX));
    p->dresidual = big_of(tn_out(call, GRAD_DRESIDUAL));
    p->gamma = small_of(tn_in(call, GAMMA));
    p->beta = small_of(tn_in(call, BETA));
    p->mean = small_of(tn_in(call, GRAD_MEAN));
    p->rstd = small_of(tn_in(call, GRAD_RSTD));
    p->dgamma = small_of(tn_out(call, GRAD_DGAMMA));
    p->dbeta = small_of(tn_out(call, GRAD_DBETA));
}

/* ---- layout ------------------------------------------------------------------------------------------------------------ */

/* Rows, unless some tensor is not in rows, and then (which `accepts` has seen to) all are in planes. A single channel is
 * better in planes. */
static bool in_rows(const tn_view *const *tensors, int count) {
    bool rows = true, planes = true;
    for (int i = 0; i < count; i++) {
        if (!tensors[i]) continue;
        rows = rows && tni_batch_norm_step(tensors[i]) != 0;
        planes = planes && tni_batch_norm_planes(tensors[i]);
    }
    return rows && !(planes && tensors[0]->shape[1] == 1);
}

static bool forward_in_rows(const tn_call *call) {
    const tn_view *tensors[] = {tn_in(call, X), tn_in(call, RESIDUAL), tn_out(call, Y)};
    return in_rows(tensors, 3);
}

static bool backward_in_rows(const tn_call *call) {
    const tn_view *tensors[] = {tn_in(call, X), tn_in(call, GRAD_RESIDUAL), tn_in(call, GRAD_DY), tn_out(call, GRAD_DX),
                                tn_out(call, GRAD_DRESIDUAL)};
    return in_rows(tensors, 5);
}

/* Whether every tensor can be read and written 16 bytes at a time. */
static bool is_wide(const tni_batch_norm *p, bool rows, int size) {
    const tni_bn_big *tensors[] = {&p->x, &p->residual, &p->dy, &p->y, &p->dresidual};
    uint64_t all = rows ? (uint64_t)(p->c * size) : 0;
    for (int i = 0; i < 5; i++) {
        const tni_bn_big *t = tensors[i];
        if (!t->data) continue;
        all |= (uint64_t)(uintptr_t)t->data;
        all |= rows ? (uint64_t)(t->row_step * size) : (uint64_t)(t->n_step * size) | (uint64_t)(t->c_step * size);
    }
    return all % 16 == 0;
}

/* ---- work -------------------------------------------------------------------------------------------------------------- */

/* A channel's packs, in parts that keep every thread busy, more of them where there are few channels. */
static void divide_planes(tni_batch_norm *p, int64_t per_pack, const tni_gpu *gpu) {
    const int64_t good = TNI_BN_THREADS * BATCH;
    p->packs = pieces(p->s, per_pack);
    p->units = p->n * p->packs;
    const int64_t wanted = least(pieces((int64_t)PLANE_PARTS * gpu->sms, p->c), MOST_PARTS);
    const int64_t parts = most(1, least(pieces(p->units, good), wanted));
    p->per_part = pieces(pieces(p->units, parts), good) * good;
    p->n_parts = pieces(p->units, most(1, p->per_part));
    const bool few = p->c * pieces(p->units, good) < 4 * (int64_t)gpu->sms;
    p->per_block = few ? good / 2 : good;
    p->n_blocks = pieces(p->units, p->per_block);
}

static void divide_rows(tni_batch_norm *p, int64_t per_pack, const tni_gpu *gpu) {
    const int64_t packs = least(pieces(p->c, per_pack), TNI_BN_LANES);
    while ((int64_t)1 << p->lanes < packs) p->lanes++;
    const int64_t good = (TNI_BN_THREADS >> p->lanes) * BATCH;
    p->tiles = pieces(p->c, per_pack << p->lanes);
    p->units = p->count;
    const int64_t parts = most(1, least(pieces(p->units, good), pieces((int64_t)ROW_PARTS * gpu->sms, p->tiles)));
    p->per_part = pieces(pieces(p->units, parts), good) * good;
    p->n_parts = pieces(p->units, most(1, p->per_part));
    p->per_block = good;
    p->n_blocks = pieces(p->units, good);
}

/* c > 0 */
static void divide(bn_plan *plan, const tn_call *call, const tni_gpu *gpu) {
    const tn_view *x = tn_in(call, X);
    const int64_t per_pack = 16 / (int64_t)tn_type_size(x->type);
    tni_batch_norm *p = &plan->p;
    p->n = x->shape[0];
    p->c = x->shape[1];
    p->s = tn_product(x, 2, x->ndim);
    p->count = p->n * p->s;
    if (plan->rows) {
        divide_rows(p, per_pack, gpu);
    } else {
        divide_planes(p, per_pack, gpu);
    }
    p->is_short = p->units < INT32_MAX;
    if (p->packs > 0 && p->is_short) {
        tni_walk walk = {.count = 1};
        tni_walk_push(&walk, p->packs, 0, 0);
        p->per_plane = walk.divisors[0];
    }
    const int64_t across = plan->rows ? p->tiles : p->c;
    plan->sums.grid = (uint32_t)(across * p->n_parts);
    plan->end.grid = (uint32_t)pieces(p->c, TNI_BN_END_LANES);
    plan->write.grid = (uint32_t)(across * p->n_blocks);
    plan->sums.block = plan->end.block = plan->write.block = TNI_BN_THREADS;
}

/* Where a channel is small enough to stay in a block's registers, one kernel does all. */
static void divide_channels(bn_plan *plan, int64_t threads, int64_t packs) {
    const int64_t units = plan->p.units, half = pieces(units, 2);
    if (plan->rows || units == 0 || units > threads * packs) return;
    plan->one = true;
    plan->write.grid = (uint32_t)plan->p.c;
    plan->write.block = (uint32_t)least(threads, most(128, pieces(half, 32) * 32));
}

/* Numbers of parts and channels: in the workspace one after the other. */
static size_t workspace(const tn_call *call, bool rows) {
    const tn_view *x = tn_in(call, X);
    bn_plan plan = {.rows = rows};
    const tni_gpu *gpu;
    if (x->shape[1] == 0 || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 0;
    divide(&plan, call, gpu);
    const int64_t numbers = (plan.p.n_parts * TNI_BN_SUMS + TNI_BN_NUMBERS) * plan.p.c;
    return (size_t)numbers * (x->type == TN_F64 ? 8 : 4);
}

size_t tni_batch_norm_cuda_workspace(const tn_call *call) {
    return workspace(call, forward_in_rows(call));
}

size_t tni_batch_norm_grad_cuda_workspace(const tn_call *call) {
    return workspace(call, backward_in_rows(call));
}

static void set_workspace(tni_batch_norm *p, const tn_call *call, size_t size) {
    p->sums = call->workspace;
    p->numbers = (char *)call->workspace + (size_t)(p->n_parts * TNI_BN_SUMS * p->c) * size;
}

static void set_wide(const bn_plan *plan, tni_batch_norm *p, int size) {
    p->wide = is_wide(p, plan->rows, size);
    p->full = p->wide && p->is_short && p->s * size % 16 == 0;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------------- */

static tn_status find_forward(const tn_call *call, bn_plan *plan) {
    const tn_type type = tn_in(call, X)->type;
    const char *layout = plan->rows ? "rows" : "planes", *unit = "batch_norm";
    const char *residual = tn_in(call, RESIDUAL) ? "_residual" : "";
    divide_channels(plan, TNI_BN_ONE_THREADS, TNI_BN_ONE_PACKS);
    if (plan->one) return tni_cuda_find(call, &plan->write, unit, "batch_norm_one%s_%s", residual, type_name(type));
    TN_TRY(tni_cuda_find(call, &plan->sums, unit, "batch_norm_statistics_%s_%s", layout, type_name(type)));
    TN_TRY(tni_cuda_find(call, &plan->end, unit, "batch_norm_end_%s", type == TN_F64 ? "f64" : "f32"));
    return tni_cuda_find(call, &plan->write, unit, "batch_norm_write_%s%s_%s", layout, residual, type_name(type));
}

static tn_status find_backward(const tn_call *call, bn_plan *plan) {
    const tn_type type = tn_in(call, X)->type;
    const char *layout = plan->rows ? "rows" : "planes", *relu = plan->p.relu ? "_relu" : "", *unit = "batch_norm_grad";
    divide_channels(plan, TNI_BN_ONE_GRAD_THREADS, TNI_BN_ONE_GRAD_PACKS);
    if (plan->one) return tni_cuda_find(call, &plan->write, unit, "batch_norm_grad_one%s_%s", relu, type_name(type));
    TN_TRY(tni_cuda_find(call, &plan->sums, unit, "batch_norm_grad_sums_%s%s_%s", layout, relu, type_name(type)));
    TN_TRY(tni_cuda_find(call, &plan->end, unit, "batch_norm_grad_end_%s", type == TN_F64 ? "f64" : "f32"));
    return tni_cuda_find(call, &plan->write, unit, "batch_norm_grad_write_%s%s_%s", layout, relu, type_name(type));
}

static tn_status prepare(const tn_call *call, bn_plan plan, tn_status (*find)(const tn_call *, bn_plan *),
                         void **state) {
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    plan.empty = tn_in(call, X)->shape[1] == 0;
    if (!plan.empty) {
        divide(&plan, call, gpu);
        TN_TRY(find(call, &plan));
    }
    bn_plan *kept = tni_malloc(sizeof *kept);
    if (!kept) return TN_NO_MEMORY;
    *kept = plan;
    *state = kept;
    return TN_OK;
}

tn_status tni_batch_norm_cuda_prepare(const tn_call *call, void **state) {
    bn_plan plan = {.rows = forward_in_rows(call)};
    plan.p.relu = call->attrs[ACT].choice == ACT_RELU;
    plan.p.momentum = call->attrs[MOMENTUM].f;
    plan.p.eps = call->attrs[EPS].f;
    return prepare(call, plan, find_forward, state);
}

tn_status tni_batch_norm_cuda_run(const tn_call *call, void *state) {
    const bn_plan *plan = state;
    if (plan->empty) return TN_OK;
    const tn_type type = tn_in(call, X)->type;
    tni_batch_norm p = plan->p;
    set_forward(&p, call);
    set_workspace(&p, call, type == TN_F64 ? 8 : 4);
    set_wide(plan, &p, (int)tn_type_size(type));
    if (plan->one) return tni_cuda_launch(call, &plan->write, (void *[]){&p});
    TN_TRY(tni_cuda_launch(call, &plan->sums, (void *[]){&p}));
    TN_TRY(tni_cuda_launch(call, &plan->end, (void *[]){&p}));
    return tni_cuda_launch(call, &plan->write, (void *[]){&p});
}

/* ---- backward ---------------------------------------------------------------------------------------------------------- */

tn_status tni_batch_norm_grad_cuda_prepare(const tn_call *call, void **state) {
    bn_plan plan = {.rows = backward_in_rows(call)};
    plan.p.relu = call->attrs[GRAD_ACT].choice == ACT_RELU;
    return prepare(call, plan, find_backward, state);
}

tn_status tni_batch_norm_grad_cuda_run(const tn_call *call, void *state) {
    const bn_plan *plan = state;
    if (plan->empty) return TN_OK;
    const tn_type type = tn_in(call, X)->type;
    tni_batch_norm p = plan->p;
    set_backward(&p, call);
    set_workspace(&p, call, type == TN_F64 ? 8 : 4);
    set_wide(plan, &p, (int)tn_type_size(type));
    if (plan->one) return tni_cuda_launch(call, &plan->write, (void *[]){&p});
    if (p.y.data || p.dgamma.data || p.dbeta.data) {
        TN_TRY(tni_cuda_launch(call, &plan->sums, (void *[]){&p}));
    } else {
        p.n_parts = 0; /* nobody asks for the sums */
    }
    TN_TRY(tni_cuda_launch(call, &plan->end, (void *[]){&p}));
    if (!p.y.data && !p.dresidual.data) return TN_OK;
    return tni_cuda_launch(call, &plan->write, (void *[]){&p});
}
