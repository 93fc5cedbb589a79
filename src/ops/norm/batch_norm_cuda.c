/* batch_norm and its gradient on the GPU: how the kernels of batch_norm.cu and batch_norm_grad.cu divide the work. */
#include "batch_norm.cuh"
#include "batch_norm.h"
#include "core/host/arith.h"
#include "cuda/copy/walk.h"
#include "cuda/device/vector.h"
#include "cuda/driver/cuda.h"

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
    bool one;         /* a kernel does all, with packs of channels in shared memory, */
    bool singles;     /* or with single elements in registers */
    tni_batch_norm p; /* all but the pointers */
    bool has_90;      /* code for sm_90 or later */
    tn_launch sums, end, write;
    tn_launch write_any; /* rows: instead of `write` where tensors cannot be written 16 bytes at a time */
} bn_plan;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tni_bn_big big_of(const tn_view *v) {
    if (!v) return (tni_bn_big){0};
    return (tni_bn_big){.data = v->data,
                        .n_step = v->shape[0] > 1 ? v->strides[0] : 0,
                        .c_step = v->shape[1] > 1 ? v->strides[1] : 0,
                        .row_step = tni_batch_norm_step(v)};
}

static void set_forward(tni_batch_norm *p, const batch_norm_args *a) {
    p->x = big_of(a->x);
    p->residual = big_of(a->residual);
    p->y = big_of(a->y);
    p->gamma = tni_vector_of(a->gamma);
    p->beta = tni_vector_of(a->beta);
    p->running_mean = tni_vector_of(a->running_mean);
    p->running_var = tni_vector_of(a->running_var);
    p->mean = tni_vector_of(a->mean);
    p->rstd = tni_vector_of(a->rstd);
}

static void set_backward(tni_batch_norm *p, const batch_norm_grad_args *a) {
    p->x = big_of(a->x);
    p->residual = big_of(a->residual);
    p->dy = big_of(a->dy);
    p->y = big_of(a->dx);
    p->dresidual = big_of(a->dresidual);
    p->gamma = tni_vector_of(a->gamma);
    p->beta = tni_vector_of(a->beta);
    p->mean = tni_vector_of(a->mean);
    p->rstd = tni_vector_of(a->rstd);
    p->dgamma = tni_vector_of(a->dgamma);
    p->dbeta = tni_vector_of(a->dbeta);
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

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

static bool forward_in_rows(const batch_norm_args *a) {
    return in_rows((const tn_view *[]){a->x, a->residual, a->y}, 3);
}

static bool backward_in_rows(const batch_norm_grad_args *a) {
    return in_rows((const tn_view *[]){a->x, a->residual, a->dy, a->dx, a->dresidual}, 5);
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

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* A channel's packs, in parts that keep every thread busy, more of them where there are few channels. */
static void divide_planes(tni_batch_norm *p, int64_t per_pack, const tn_gpu *gpu) {
    const int64_t good = TNI_BN_THREADS * BATCH;
    p->packs = ceil_div(p->s, per_pack);
    p->units = p->n * p->packs;
    const int64_t wanted = min(ceil_div((int64_t)PLANE_PARTS * gpu->sms, p->c), MOST_PARTS);
    const int64_t parts = max(1, min(ceil_div(p->units, good), wanted));
    p->per_part = round_up(ceil_div(p->units, parts), good);
    p->n_parts = ceil_div(p->units, max(1, p->per_part));
    const bool few = p->c * ceil_div(p->units, good) < 4 * (int64_t)gpu->sms;
    p->per_block = few ? good / 2 : good;
    p->n_blocks = ceil_div(p->units, p->per_block);
}

/* What the two directions differ in: tensors of which a channel is kept, single elements that a thread keeps; rows:
 * places of a thread in a chunk, and blocks of a multiprocessor, also for elements of 2 bytes. */
typedef struct direction {
    int kept, singles, batch, row_blocks, small_row_blocks;
} direction;
static const direction forward = {.kept = 1,
                                  .singles = TNI_BN_ONE_SINGLES,
                                  .batch = TNI_BN_BATCH,
                                  .row_blocks = TNI_BN_ROW_BLOCKS,
                                  .small_row_blocks = TNI_BN_SMALL_ROW_BLOCKS};
static const direction backward = {.kept = 2,
                                   .singles = TNI_BN_ONE_GRAD_SINGLES,
                                   .batch = TNI_BN_GRAD_BATCH,
                                   .row_blocks = TNI_BN_GRAD_ROW_BLOCKS,
                                   .small_row_blocks = TNI_BN_GRAD_ROW_BLOCKS};

/* The sums: as many blocks as there are at a time, which take turns: chunk by chunk, all at about the same place of x.
 * To write, elements of 2 bytes the same way; of others a block for each chunk. Either is the faster one there. */
static void divide_rows(bn_plan *plan, int64_t per_pack, direction way, const tn_gpu *gpu) {
    tni_batch_norm *p = &plan->p;
    const bool small = per_pack == 8;
    const int64_t packs = ceil_div(p->c, per_pack);
    const int64_t write_lanes = small ? TNI_BN_SMALL_WRITE_LANES : TNI_BN_WRITE_LANES;
    while ((int64_t)1 << p->lanes < min(packs, TNI_BN_LANES)) p->lanes++;
    while ((int64_t)1 << p->write_lanes < min(packs, write_lanes)) p->write_lanes++;
    p->tiles = ceil_div(p->c, per_pack << p->lanes);
    p->write_tiles = ceil_div(p->c, per_pack << p->write_lanes);
    p->units = p->count;
    p->n_chunks = ceil_div(p->units, (int64_t)(TNI_BN_THREADS >> p->lanes) * way.batch);
    const int64_t blocks = (int64_t)(small ? way.small_row_blocks : way.row_blocks) * gpu->sms;
    p->n_parts = min(p->n_chunks, max(1, blocks / p->tiles));
    plan->write.block = small ? TNI_BN_SMALL_WRITE_THREADS : TNI_BN_WRITE_THREADS;
    p->n_blocks = small ? max(1, blocks / p->write_tiles)
                        : ceil_div(p->units, (plan->write.block >> p->write_lanes) * (int64_t)TNI_BN_WRITE_BATCH);
}

/* Divides by p->packs, where that serves. */
static void set_divisor(tni_batch_norm *p) {
    if (p->packs == 0 || !p->is_short) return;
    tni_walk walk = {.count = 1};
    tni_walk_push(&walk, p->packs, 0, 0);
    p->per_plane = walk.divisors[0];
}

/* c > 0 */
static void divide(bn_plan *plan, const tn_call *call, const tn_view *x, direction way, const tn_gpu *gpu) {
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
    plan->end.grid = (uint32_t)ceil_div(p->c, TNI_BN_END_LANES);
    plan->write.grid = (uint32_t)((plan->rows ? p->write_tiles : p->c) * p->n_blocks);
    plan->sums.block = plan->end.block = TNI_BN_THREADS;
    plan->has_90 = tni_cuda_has(call, call->name, 90);
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
                    const tn_gpu *gpu) {
    keeping k = {.blocks = blocks, .per_block = ceil_div(units, blocks), .threads = FEWEST};
    while (k.threads < most_threads && k.threads * BATCH < k.per_block) k.threads *= 2;
    k.shared = k.per_block * bytes;
    const int64_t fit = (int64_t)gpu->shared_per_sm / (k.shared + OWN_SHARED + RESERVED);
    const int64_t room = max(1, min(fit, RESIDENT / k.threads));
    const int64_t here = min(room, ceil_div(p->c * blocks, gpu->sms));
    int64_t wait = 48 + 48 / here;
    for (int64_t of = blocks; of > 1; of /= 2) wait += 16;
    k.cost = ceil_div(p->c * blocks, here * gpu->sms) * (here * k.per_block * max(bytes, 16) / 1024 + wait);
    return k;
}

/* Where a channel fits into the shared memory of a block or a cluster of blocks, one kernel does all. Planes of packs
 * that are not full are taken as single elements, in registers: they begin anywhere. */
static void hold_channels(bn_plan *plan, int64_t size, direction way, const tn_gpu *gpu) {
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
    p->per_stage = (int)ceil_div(best.per_block, best.threads * TNI_BN_STAGES);
    p->inverse = 1 / (double)p->count;
    set_divisor(p);
    plan->write.programmatic = false;
    plan->write.grid = (uint32_t)(p->c * best.blocks);
    plan->write.cluster = (uint32_t)best.blocks;
    plan->write.block = (uint32_t)best.threads;
    plan->write.shared = (uint32_t)best.shared;
}

/* Numbers of parts and channels: in the workspace one after the other. */
static size_t workspace(const tn_call *call, const tn_view *x, bool rows, direction way) {
    bn_plan plan = {.rows = rows};
    const tn_gpu *gpu;
    if (x->shape[1] == 0 || tn_cuda_gpu(call, &gpu) != TN_OK) return 0;
    divide(&plan, call, x, way, gpu);
    hold_channels(&plan, (int64_t)tn_type_size(x->type), way, gpu);
    const int64_t numbers = (plan.p.n_parts * TNI_BN_SUMS + TNI_BN_NUMBERS) * plan.p.c;
    return plan.one ? 0 : (size_t)numbers * (x->type == TN_F64 ? 8 : 4);
}

size_t tni_batch_norm_cuda_workspace(const tn_call *call) {
    const batch_norm_args a = batch_norm_args_of(call);
    return workspace(call, a.x, forward_in_rows(&a), forward);
}

size_t tni_batch_norm_grad_cuda_workspace(const tn_call *call) {
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    return workspace(call, a.x, backward_in_rows(&a), backward);
}

static void set_workspace(tni_batch_norm *p, const tn_call *call, size_t size) {
    p->sums = call->workspace;
    p->numbers = (char *)call->workspace + (size_t)(p->n_parts * TNI_BN_SUMS * p->c) * size;
}

static void set_wide(const bn_plan *plan, tni_batch_norm *p, int size) {
    p->wide = is_wide(p, plan->rows, size);
    p->full = p->wide && p->is_short && p->s * size % 16 == 0;
}

static const tn_launch *writer_of(const bn_plan *plan, const tni_batch_norm *p) {
    return plan->rows && !p->wide ? &plan->write_any : &plan->write;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* sums, writes: what is special of the kernels that sum up and of those that write, as their names have it. */
static tn_status find(const tn_call *call, tn_type type, const char *kind, const char *sums, const char *writes,
                      bn_plan *plan) {
    const char *layout = plan->rows ? "rows" : "planes", *op = call->name, *name = tn_type_name(type);
    if (plan->one) {
        const char *holds = plan->singles ? "singles" : "kept";
        return tni_cuda_find(call, &plan->write, op, "%s_%s%s_%s", op, holds, writes, name);
    }
    TN_TRY(tni_cuda_find(call, &plan->sums, op, "%s_%s_%s%s_%s", op, kind, layout, sums, name));
    TN_TRY(tni_cuda_find(call, &plan->end, op, "%s_end_%s", op, type == TN_F64 ? "f64" : "f32"));
    if (plan->rows) {
        plan->write_any = plan->write;
        TN_TRY(tni_cuda_find(call, &plan->write_any, op, "%s_write_any_rows%s_%s", op, writes, name));
    }
    return tni_cuda_find(call, &plan->write, op, "%s_write_%s%s_%s", op, layout, writes, name);
}

/* How the work is divided, unless the tensors are empty. */
static tn_status fill(const tn_call *call, const tn_view *x, direction way, bn_plan *plan) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    plan->empty = x->shape[1] == 0;
    if (plan->empty) return TN_OK;
    divide(plan, call, x, way, gpu);
    hold_channels(plan, (int64_t)tn_type_size(x->type), way, gpu);
    return TN_OK;
}

static tn_status fill_forward(const tn_call *call, void *state) {
    const batch_norm_args a = batch_norm_args_of(call);
    bn_plan *plan = state;
    plan->rows = forward_in_rows(&a);
    plan->p.relu = a.act == ACT_RELU;
    plan->p.momentum = a.momentum;
    plan->p.eps = a.eps;
    TN_TRY(fill(call, a.x, forward, plan));
    return plan->empty ? TN_OK : find(call, a.x->type, "statistics", "", a.residual ? "_residual" : "", plan);
}

static tn_status fill_backward(const tn_call *call, void *state) {
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    const char *relu = a.act == ACT_RELU ? "_relu" : "";
    bn_plan *plan = state;
    plan->rows = backward_in_rows(&a);
    plan->p.relu = a.act == ACT_RELU;
    TN_TRY(fill(call, a.x, backward, plan));
    return plan->empty ? TN_OK : find(call, a.x->type, "sums", relu, relu, plan);
}

tn_status tni_batch_norm_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(bn_plan), fill_forward, state);
}

tn_status tni_batch_norm_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(bn_plan), fill_backward, state);
}

tn_status tni_batch_norm_cuda_run(const tn_call *call, void *state) {
    const batch_norm_args a = batch_norm_args_of(call);
    const bn_plan *plan = state;
    if (plan->empty) return TN_OK;
    tni_batch_norm p = plan->p;
    set_forward(&p, &a);
    set_workspace(&p, call, a.x->type == TN_F64 ? 8 : 4);
    set_wide(plan, &p, (int)tn_type_size(a.x->type));
    if (plan->one) return tn_cuda_launch(call, &plan->write, (void *[]){&p});
    TN_TRY(tn_cuda_launch(call, &plan->sums, (void *[]){&p}));
    TN_TRY(tn_cuda_launch(call, &plan->end, (void *[]){&p}));
    return tn_cuda_launch(call, writer_of(plan, &p), (void *[]){&p});
}

tn_status tni_batch_norm_grad_cuda_run(const tn_call *call, void *state) {
    const batch_norm_grad_args a = batch_norm_grad_args_of(call);
    const bn_plan *plan = state;
    if (plan->empty) return TN_OK;
    tni_batch_norm p = plan->p;
    set_backward(&p, &a);
    set_workspace(&p, call, a.x->type == TN_F64 ? 8 : 4);
    set_wide(plan, &p, (int)tn_type_size(a.x->type));
    if (plan->one) return tn_cuda_launch(call, &plan->write, (void *[]){&p});
    tn_launch end = plan->end;
    if (p.y.data || p.dgamma.data || p.dbeta.data) {
        TN_TRY(tn_cuda_launch(call, &plan->sums, (void *[]){&p}));
    } else {
        p.n_parts = 0;            /* nobody asks for the sums; */
        end.programmatic = false; /* it reads mean and gamma early, which only a kernel of this call may be ahead of */
    }
    TN_TRY(tn_cuda_launch(call, &end, (void *[]){&p}));
    if (!p.y.data && !p.dresidual.data) return TN_OK;
    return tn_cuda_launch(call, writer_of(plan, &p), (void *[]){&p});
}
