/* grouped_linear on the GPU. Where groups begin is known on the GPU alone, so each of these is one launch, with blocks
 * for as many tiles as there may be: "hopper" (sm_90), whose blocks go from tile to tile, "mma" (sm_80 and later), and
 * "tile", by single numbers, for any types and strides. */
#include "grouped_linear_cuda.h"

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "grouped_linear.h"

enum { TILE = 64, TILE_THREADS = 256, MMA_THREADS = 256, MMA_SHARED = 65536 };

typedef struct grouped_plan {
    tn_launch launch, alone; /* alone: "tile", for data that begin anywhere */
    tni_gemm_operand a, b;
    int cols; /* of Hopper's tiles; 0: others */
} grouped_plan;

/* Groups of rows begin anywhere: so a is read along k, except by Hopper's boxes, or where groups are terms. */
static const tni_gemm_wants mma_wants = {.a_along = true}, hopper_wants = {.alike = true};

static const char *grouping_of(const tni_grouped *g) {
    return g->by_terms ? "by_terms" : "by_rows";
}

static tni_gpu_product job_of(const tni_grouped *g, int rows, int cols) {
    tni_gpu_product job = tni_gemm_job(&g->product, rows, cols);
    job.groups = (tni_gpu_groups){.offsets = g->offsets->data,
                                  .step = g->offsets->strides[0],
                                  .wide = g->offsets->type == TN_I64,
                                  .count = (int)g->groups,
                                  .rows = g->rows};
    return job;
}

/* The most that there can be: a group's last tile may have few rows, and so may those before and behind the groups. */
static tn_status count_tiles(const tn_call *call, const tni_grouped *g, int rows, int cols, int64_t *tiles) {
    const tni_product *p = &g->product;
    const int64_t spans = min(g->groups + 2, p->m), down = p->m / rows + (spans > 0 ? spans : 0);
    if (g->by_terms) return tni_gemm_tiles(call, p, rows, cols, tiles);
    *tiles = down * ceil_div(p->n, cols);
    return *tiles <= INT32_MAX
               ? TN_OK
               : tn_fail(TN_UNSUPPORTED, "%s: y has more than 2^31 tiles of %d x %d", call->name, rows, cols);
}

/* ---- single numbers ---------------------------------------------------------------------------------------------- */

static tn_status find_tile(const tn_call *call, const tni_grouped *g, tn_launch *l) {
    int64_t tiles;
    if (g->groups > INT32_MAX - 2) return tn_fail(TN_UNSUPPORTED, "%s: more than 2^31 groups", call->name);
    TN_TRY(count_tiles(call, g, TILE, TILE, &tiles));
    l->grid = (uint32_t)tiles;
    l->block = TILE_THREADS;
    return tni_cuda_find(call, l, "product_tile", "product_tile_%s_%s", grouping_of(g),
                         tn_type_name(g->product.y.type));
}

static tn_status run_tile(const tn_call *call, const tni_grouped *g, const tn_launch *l) {
    tni_gpu_product job = job_of(g, TILE, TILE);
    return tn_cuda_launch(call, l, (void *[]){&job});
}

static tn_status fill_tile(const tn_call *call, void *state) {
    grouped_plan *plan = state;
    const tni_grouped g = tni_grouped_of(call);
    return find_tile(call, &g, &plan->alone);
}

tn_status tni_grouped_tile_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grouped_plan), fill_tile, state);
}

tn_status tni_grouped_tile_cuda_run(const tn_call *call, void *state) {
    const grouped_plan *plan = state;
    const tni_grouped g = tni_grouped_of(call);
    return run_tile(call, &g, &plan->alone);
}

/* ---- tensor cores ------------------------------------------------------------------------------------------------ */

/* Where groups are terms, both sides are read across k as they lie: no copy would lie otherwise. */
static bool suits(const tni_grouped *g, const tni_gemm_wants *wants) {
    tni_gemm_operand a, b;
    if (!tni_gemm_suits_mma(&g->product) || g->groups < 1 || g->groups > INT32_MAX - 2) return false;
    tni_gemm_operands(&g->product, 0, wants, &a, &b);
    return g->by_terms ? !a.along && !b.along : true;
}

static size_t operands_of(const tni_grouped *g, const tni_gemm_wants *wants, grouped_plan *plan) {
    return tni_gemm_operands(&g->product, 0, wants, &plan->a, &plan->b);
}

static char letter(const tni_gemm_operand *o) {
    return o->along ? 't' : 'f';
}

static tn_status fill_mma(const tn_call *call, void *state) {
    grouped_plan *plan = state;
    const tni_grouped g = tni_grouped_of(call);
    int64_t tiles;
    TN_TRY(find_tile(call, &g, &plan->alone));
    TN_TRY(count_tiles(call, &g, TNI_GEMM_MMA_TILE, TNI_GEMM_MMA_TILE, &tiles));
    operands_of(&g, g.by_terms ? &hopper_wants : &mma_wants, plan);
    plan->launch.grid = (uint32_t)tiles;
    plan->launch.block = MMA_THREADS;
    plan->launch.shared = MMA_SHARED;
    return tni_cuda_find(call, &plan->launch, "product_mma", "product_mma_%s_%c%c_%s", grouping_of(&g),
                         letter(&plan->a), letter(&plan->b), tn_type_name(g.product.y.type));
}

/* Wide tiles, but where narrow ones are done sooner: by the time that they take (gemm_tensor_cuda.c), if half a tile is
 * lost of each group. */
static tn_status fill_hopper(const tn_call *call, void *state) {
    grouped_plan *plan = state;
    const tni_grouped g = tni_grouped_of(call);
    const tni_product *p = &g.product;
    const int64_t down = g.by_terms ? ceil_div(p->m, TNI_GEMM_HOPPER_ROWS) * g.groups
                                    : ceil_div(p->m, TNI_GEMM_HOPPER_ROWS) + min(g.groups, p->m) / 2;
    const int64_t terms = g.by_terms ? ceil_div(p->k, g.groups) : p->k;
    const tn_gpu *gpu;
    int64_t tiles;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(find_tile(call, &g, &plan->alone));
    operands_of(&g, &hopper_wants, plan);
    plan->cols = tni_gemm_hopper_cols(down, p->n, terms, gpu->sms);
    TN_TRY(count_tiles(call, &g, TNI_GEMM_HOPPER_ROWS, plan->cols, &tiles));
    plan->launch.grid = (uint32_t)min(tiles, gpu->sms);
    plan->launch.block = TNI_GEMM_HOPPER_THREADS;
    plan->launch.shared = TNI_GEMM_HOPPER_SHARED;
    return tni_cuda_find(call, &plan->launch, "product_grouped", "product_grouped_%d_%c%c_%s", plan->cols,
                         letter(&plan->a), letter(&plan->b), tn_type_name(p->y.type));
}

static tn_status run_hopper(const tn_call *call, const tni_grouped *g, const grouped_plan *plan,
                            const tni_gpu_product *job) {
    tni_gpu_warpgroup w = {.product = *job, .tiles = job->row_tiles * job->col_tiles * g->groups};
    TN_TRY(tni_gemm_make_maps(call, &g->product, &plan->a, &plan->b, plan->cols, &w));
    return tn_cuda_launch(call, &plan->launch, (void *[]){&w});
}

static tn_status run_tensor(const tn_call *call, void *state) {
    const grouped_plan *plan = state;
    const tni_grouped g = tni_grouped_of(call);
    const int rows = plan->cols ? TNI_GEMM_HOPPER_ROWS : TNI_GEMM_MMA_TILE;
    tni_gpu_product job = job_of(&g, rows, plan->cols ? plan->cols : TNI_GEMM_MMA_TILE);
    TN_TRY(tni_gemm_copy_operands(call, &g.product, &plan->a, &plan->b, &job));
    if (!tni_gemm_is_aligned(&job)) return run_tile(call, &g, &plan->alone);
    if (plan->cols) return run_hopper(call, &g, plan, &job);
    return tn_cuda_launch(call, &plan->launch, (void *[]){&job});
}

bool tni_grouped_mma_cuda_accepts(const tn_call *call) {
    const tni_grouped g = tni_grouped_of(call);
    return suits(&g, g.by_terms ? &hopper_wants : &mma_wants) && tni_cuda_has(call, "product_mma", 80);
}

bool tni_grouped_hopper_cuda_accepts(const tn_call *call) {
    const tni_grouped g = tni_grouped_of(call);
    const tn_gpu *gpu;
    return suits(&g, &hopper_wants) && tni_gemm_fits_maps(&g.product) &&
           (tn_cuda_gpu(call, &gpu) != TN_OK || tni_gemm_is_hopper(gpu, "product_grouped"));
}

#define KERNEL(name, wants)                                                          \
    size_t tni_grouped_##name##_cuda_workspace(const tn_call *call) {                \
        const tni_grouped g = tni_grouped_of(call);                                  \
        grouped_plan plan;                                                           \
        return operands_of(&g, g.by_terms ? &hopper_wants : &(wants), &plan);        \
    }                                                                                \
    tn_status tni_grouped_##name##_cuda_prepare(const tn_call *call, void **state) { \
        return tni_cuda_prepare(call, sizeof(grouped_plan), fill_##name, state);     \
    }                                                                                \
    tn_status tni_grouped_##name##_cuda_run(const tn_call *call, void *state) {      \
        return run_tensor(call, state);                                              \
    }
KERNEL(mma, mma_wants)
KERNEL(hopper, hopper_wants)
