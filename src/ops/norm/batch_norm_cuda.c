/* batch_norm and its gradient on the GPU: how the kernels of batch_norm.cu and batch_norm_grad.cu divide the work. */
#include "batch_norm.cuh"
#include "batch_norm.h"
#include "cuda/copy/walk.h"
#include "cuda/device/vector.h"
#include "cuda/driver/cuda.h"
#include "ops/counts.h"

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
    FEWEST = 64,      /* threads of a block that has a channel, or a part of it, */
    RESIDENT = 1024,  /* and of all those on a multiprocessor, */
    RESERVED = 1024,  /* bytes of whose shared memory are the system's, */
    OWN_SHARED = 2048 /* and no more than these the kernel's */
};

typedef struct bn_plan {
    bool empty, rows;
    bool one,
        singles; /* one: a kernel does all, with packs of channels in shared memory, or single elements in registers */
    tni_batch_norm p; /* all but the pointers */
    bool has_90;      /* code for sm_90 or later */
    tni_launch sums, end, write;
    tni_launch write_any; /* rows: instead of `write` where tensors cannot be written 16 bytes at a time */
} bn_plan;

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

static tni_bn_big big_of(const tn_view *v) {
    if (!v) return (tni_bn_big){0};
    return (tni_bn_big){.data = v->data,
                        .n_step = v->shape[0] > 1 ? v->strides[0] : 0,
                        .c_step = v->shape[1] > 1 ? v->strides[1] : 0,
                        .row_step = tni_batch_norm_step(v)};
}

static void set_forward(tni_batch_norm *p, const tn_call *call) {
    p->x = big_of(tn_in(call, X));
    p->residual = big_of(tn_in(call, RESIDUAL));
    p->y = big_of(tn_out(call, Y));
    p->gamma = tni_vector_of(tn_in(call, GAMMA));
    p->beta = tni_vector_of(tn_in(call, BETA));
    p->running_mean = tni_vector_of(tn_in(call, RUNNING_MEAN));
    p->running_var = tni_vector_of(tn_in(call, RUNNING_VAR));
    p->mean = tni_vector_of(tn_out(call, MEAN));
    p->rstd = tni_vector_of(tn_out(call, RSTD));
}

static void set_backward(tni_batch_norm *p, const tn_call *call) {
    p->x = big_of(tn_in(call, X));
    p->residual = big_of(tn_in(call, GRAD_RESIDUAL));
    p->dy = big_of(tn_in(call, GRAD_DY));
    p->y = big_of(tn_out(call, GRAD_DX));
    p->dresidual = big_of(tn_out(call, GRAD_DRESIDUAL));
    p->gamma = tni_vector_of(tn_in(call, GAMMA));
    p->beta = tni_vector_of(tn_in(call, BETA));
    p->mean = tni_vector_of(tn_in(call, GRAD_MEAN));
    p->rstd = tni_vector_of(tn_in(call, GRAD_RSTD));
    p->dgamma = tni_vector_of(tn_out(call, GRAD_DGAMMA));
    p->dbeta = tni_vector_of(tn_out(call, GRAD_DBETA));
}

/* ---- layout ------------------------------------------------------------------------------------------------------------ */

/* Rows, unless some tensor is not in rows, and then (which `accepts` has seen to) all are in planes. A single channel
 * is better in planes. */
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
    const int64_t wanted = smaller(pieces((int64_t)PLANE_PARTS * gpu->sms, p->c), MOST_PARTS);
    const int64_t parts = larger(1, smaller(pieces(p->units, good), wanted));
    p->per_part = pieces(pieces(p->units, parts), good) * good;
    p->n_parts = pieces(p->units, larger(1, p->per_part));
    const bool few = p->c * pieces(p->units, good) < 4 * (int64_t)gpu->sms;
    p->per_block = few ? good / 2 : good;
    p->n_blocks = pieces(p->units, p->per_block);
}

/* What the two directions differ in: tensors of which a channel is kept, single elements that a thread keeps; rows: places
 * of a thread in a chunk, and blocks of a multiprocessor, also for elements of 2 bytes. */
typedef struct direction {
    int kept, singles, batch, row_blocks, small_row_blocks;
} direction;
static const direction forward = {1, TNI_BN_ONE_SINGLES, TNI_BN_BATCH, TNI_BN_ROW_BLOCKS, TNI_BN_SMALL_ROW_BLOCKS};
static const direction backward = {2, TNI_BN_ONE_GRAD_SINGLES, TNI_BN_GRAD_BATCH, TNI_BN_GRAD_ROW_BLOCKS,
                                   TNI_BN_GRAD_ROW_BLOCKS};

/* The sums: as many blocks as there are at a time, which take turns: chunk by chunk, all at about the same place of x. To
 * write, elements of 2 bytes the same way; of others a block for each chunk. Either is the faster one there. */
static void divide_rows(bn_plan *plan, int64_t per_pack, direction way, const tni_gpu *gpu) {
    tni_batch_norm *p = &plan->p;
    const bool small = per_pack == 8;
    const int64_t packs = pieces(p->c, per_pack);
    const int64_t write_lanes = small ? TNI_BN_SMALL_WRITE_LANES : TNI_BN_WRITE_LANES;
    while ((int64_t)1 << p->lanes < smaller(packs, TNI_BN_LANES)) p->lanes++;
    while ((int64_t)1 << p->write_lanes < smaller(packs, write_lanes)) p->write_lanes++;
    p->tiles = pieces(p->c, per_pack << p->lanes);
    p->write_tiles = pieces(p->c, per_pack << p->write_lanes);
    p->units = p->count;
    p->n_chunks = pieces(p->units, (int64_t)(TNI_BN_THREADS >> p->lanes) * way.batch);
    const int64_t blocks = (int64_t)(small ? way.small_row_blocks : way.row_blocks) * gpu->sms;
    p->n_parts = smaller(p->n_chunks, larger(1, blocks / p->tiles));
    plan->write.block = small ? TNI_BN_SMALL_WRITE_THREADS : TNI_BN_WRITE_THREADS;
    p->n_blocks = small ? larger(1, blocks / p->write_tiles)
                        : pieces(p->units, (plan->write.block >> p->write_lanes) * (int64_t)TNI_BN_WRITE_BATCH);
}

/* Divides by p->packs, where that serves. */
static void set_divisor(tni_batch_norm *p) {
    if (p->packs == 0 || !p->is_short) return;
    tni_walk walk = {.count = 1};
    tni_walk_push(&walk, p->packs, 0, 0);
    p->per_plane = walk.divisors[0];
}

/* c > 0 */
static void divide(bn_plan *plan, const tn_call *call, direction way, const tni_gpu *gpu) {
    const tn_view *x = tn_in(call, X);
    const int64_t per_pack = 16 / (int64_t)tn_type_size(x->type);
    tni_batch_norm *p = &plan->p;
    p->n = x->shape[0];
    p->c = x->shape[1];
    p->s = tn_product(x, 2, x->ndim);
    p->count = p->n * p->s;
    if (plan->rows) {
        divide_rows(plan, per_pack, way, gpu);
    } else {
        divide_planes(p, per_pack, gpu);
        plan->write.block = TNI_BN_THREADS;
    }
    p->is_short = p->units < INT32_MAX;
    set_divisor(p);
    plan->sums.grid = (uint32_t)((plan->rows ? p->tiles : p->c) * p->n_parts);
    plan->end.grid = (uint32_t)pieces(p->c, TNI_BN_END_LANES);
    plan->write.grid = (uint32_t)((plan->rows ? p->write_tiles : p->c) * p->n_blocks);
    plan->sums.block = plan->end.block = TNI_BN_THREADS;
    plan->has_90 = tni_cuda_has_90(call, call->name);
    plan->end.programmatic = plan->write.programmatic = plan->has_90;
}

/* What a channel is to `blocks` blocks that have it together. */
typedef struct keeping {
    int64_t blocks, per_block, threads, shared; /* shared: bytes of a block */
    int64_t cost;
} keeping;

/* A channel of `units` packs or elements, of which a block keeps `bytes` each in shared memory. The cost: rounds of
 * blocks on a multiprocessor, in kilobytes that it moves meanwhile; to wait for each other costs more where it has
 * nothing else to do. */
static keeping keep(int64_t blocks, const tni_batch_norm *p, int64_t units, int64_t bytes, int64_t most_threads,
                    const tni_gpu *gpu) {
    keeping k = {.blocks = blocks, .per_block = pieces(units, blocks), .threads = FEWEST};
    while (k.threads < most_threads && k.threads * BATCH < k.per_block) k.threads *= 2;
    k.shared = k.per_block * bytes;
    const int64_t fit = (int64_t)gpu->shared_per_sm / (k.shared + OWN_SHARED + RESERVED);
    const int64_t room = larger(1, smaller(fit, RESIDENT / k.threads));
    const int64_t here = smaller(room, pieces(p->c * blocks, gpu->sms));
    int64_t wait = 48 + 48 / here;
    for (int64_t of = blocks; of > 1; of /= 2) wait += 16;
    k.cost = pieces(p->c * blocks, here * gpu->sms) * (here * k.per_block * larger(bytes, 16) / 1024 + wait);
    return k;
}

/* Where a channel fits into the shared memory of a block or a cluster of blocks, one kernel does all. Planes of packs
 * that are not full are taken as single elements, in registers: they begin anywhere. */
static void hold_channels(bn_plan *plan, int64_t size, direction way, const tni_gpu *gpu) {
    tni_batch_norm *p = &plan->p;
    const bool singles = p->s * size % 16 != 0;
    const int64_t units = singles ? p->count : p->units, bytes = singles ? 0 : 16 * way.kept;
    const int64_t threads = singles ? TNI_BN_ONE_THREADS : TNI_BN_KEPT_THREADS;
    keeping best = {0};
    if (plan->rows || units == 0 || units > INT32_MAX / 2) return;
    for (int64_t blocks = 1; blocks <= (plan->has_90 ? TNI_BN_CLUSTER : 1); blocks *= 2) {
        const keeping k = keep(blocks, p, units, bytes, threads, gpu);
        const bool fits = singles ? k.per_block <= threads * way.singles
                                  : k.shared <= (int64_t)gpu->shared_per_block - OWN_SHARED;
        if (fits && (best.blocks == 0 || k.cost < best.cost)) best = k;
    }
    if (best.blocks == 0) return;
    plan->one = true;
    plan->singles = singles;
    p->units = units;
    p->packs = singles ? p->s : p->packs;
    p->n_blocks = best.blocks;
    p->per_block = best.per_block;
    p->per_stage = (int)pieces(best.per_block, best.threads * TNI_BN_STAGES);
    p->inverse = 1 / (double)p->count;
    set_divisor(p);
    plan->write.programmatic = false;
    plan->write.grid = (uint32_t)(p->c * best.blocks);
    plan->write.cluster = (uint32_t)best.blocks;
    plan->write.block = (uint32_t)best.threads;
    plan->write.shared = (uint32_t)best.shared;
}

/* Numbers of parts and channels: in the workspace one after the other. */
static size_t workspace(const tn_call *call, bool rows, direction way) {
    const tn_view *x = tn_in(call, X);
    bn_plan plan = {.rows = rows};
    const tni_gpu *gpu;
    if (x->shape[1] == 0 || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK) return 0;
    divide(&plan, call, way, gpu);
    hold_channels(&plan, (int64_t)tn_type_size(x->type), way, gpu);
    const int64_t numbers = (plan.p.n_parts * TNI_BN_SUMS + TNI_BN_NUMBERS) * plan.p.c;
    return plan.one ? 0 : (size_t)numbers * (x->type == TN_F64 ? 8 : 4);
}

size_t tni_batch_norm_cuda_workspace(const tn_call *call) {
    return workspace(call, forward_in_rows(call), forward);
}

size_t tni_batch_norm_grad_cuda_workspace(const tn_call *call) {
    return workspace(call, backward_in_rows(call), backward);
}

static void set_workspace(tni_batch_norm *p, const tn_call *call, size_t size) {
    p->sums = call->workspace;
    p->numbers = (char *)call->workspace + (size_t)(p->n_parts * TNI_BN_SUMS * p->c) * size;
}

static void set_wide(const bn_plan *plan, tni_batch_norm *p, int size) {
    p->wide = is_wide(p, plan->rows, size);
    p->full = p->wide && p->is_short && p->s * size % 16 == 0;
}

static const tni_launch *writer_of(const bn_plan *plan, const tni_batch_norm *p) {
    return plan->rows && !p->wide ? &plan->write_any : &plan->write;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------------- */

static tn_status find_forward(const tn_call *call, bn_plan *plan) {
    const tn_type type = tn_in(call, X)->type;
    const char *layout = plan->rows ? "rows" : "planes", *unit = "batch_norm";
    const char *residual = tn_in(call, RESIDUAL) ? "_residual" : "";
    if (plan->one) {
        return tni_cuda_find(call, &plan->write, unit, "batch_norm_%s%s_%s", plan->singles ? "singles" : "kept",
                             residual, tn_type_name(type));
    }
    TN_TRY(tni_cuda_find(call, &plan->sums, unit, "batch_norm_statistics_%s_%s", layout, tn_type_name(type)));
    TN_TRY(tni_cuda_find(call, &plan->end, unit, "batch_norm_end_%s", type == TN_F64 ? "f64" : "f32"));
    if (plan->rows) {
        plan->write_any = plan->write;
        TN_TRY(tni_cuda_find(call, &plan->write_any, unit, "batch_norm_write_any_rows%s_%s", residual,
                             tn_type_name(type)));
    }
    return tni_cuda_find(call, &plan->write, unit, "batch_norm_write_%s%s_%s", layout, residual, tn_type_name(type));
}

static tn_status find_backward(const tn_call *call, bn_plan *plan) {
    const tn_type type = tn_in(call, X)->type;
    const char *layout = plan->rows ? "rows" : "planes", *relu = plan->p.relu ? "_relu" : "", *unit = "batch_norm_grad";
    if (plan->one) {
        return tni_cuda_find(call, &plan->write, unit, "batch_norm_grad_%s%s_%s", plan->singles ? "singles" : "kept",
                             relu, tn_type_name(type));
    }
    TN_TRY(tni_cuda_find(call, &plan->sums, unit, "batch_norm_grad_sums_%s%s_%s", layout, relu, tn_type_name(type)));
    TN_TRY(tni_cuda_find(call, &plan->end, unit, "batch_norm_grad_end_%s", type == TN_F64 ? "f64" : "f32"));
    if (plan->rows) {
        plan->write_any = plan->write;
        TN_TRY(tni_cuda_find(call, &plan->write_any, unit, "batch_norm_grad_write_any_rows%s_%s", relu,
                             tn_type_name(type)));
    }
    return tni_cuda_find(call, &plan->write, unit, "batch_norm_grad_write_%s%s_%s", layout, relu, tn_type_name(type));
}

static tn_status prepare(const tn_call *call, bn_plan plan, direction way,
                         tn_status (*find)(const tn_call *, bn_plan *), void **state) {
    const tni_gpu *gpu;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    plan.empty = tn_in(call, X)->shape[1] == 0;
    if (!plan.empty) {
        divide(&plan, call, way, gpu);
        hold_channels(&plan, (int64_t)tn_type_size(tn_in(call, X)->type), way, gpu);
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
    return prepare(call, plan, forward, find_forward, state);
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
    return tni_cuda_launch(call, writer_of(plan, &p), (void *[]){&p});
}

/* ---- backward ---------------------------------------------------------------------------------------------------------- */

tn_status tni_batch_norm_grad_cuda_prepare(const tn_call *call, void **state) {
    bn_plan plan = {.rows = backward_in_rows(call)};
    plan.p.relu = call->attrs[GRAD_ACT].choice == ACT_RELU;
    return prepare(call, plan, backward, find_backward, state);
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
    tni_launch end = plan->end;
    if (p.y.data || p.dgamma.data || p.dbeta.data) {
        TN_TRY(tni_cuda_launch(call, &plan->sums, (void *[]){&p}));
    } else {
        p.n_parts = 0;            /* nobody asks for the sums; */
        end.programmatic = false; /* it reads mean and gamma early, which only a kernel of this call may be ahead of */
    }
    TN_TRY(tni_cuda_launch(call, &end, (void *[]){&p}));
    if (!p.y.data && !p.dresidual.data) return TN_OK;
    return tni_cuda_launch(call, writer_of(plan, &p), (void *[]){&p});
}
