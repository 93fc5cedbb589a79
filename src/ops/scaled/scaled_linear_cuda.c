/* linear_int8 and linear_fp8 on the GPU: "hopper" (sm_90), "mma" (integers from sm_80 on, floats from sm_89 on), and
 * "plain", by single numbers. The first two read 16 bytes at a time, so rows of other lengths are copied first. */
#include "scaled_linear_cuda.h"

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "cuda/products/scaled.cuh"
#include "ops/gemm/gemm_cuda.h"
#include "scaled_linear.h"

enum { PLAIN = 16, THREADS = 256, MMA_SHARED = 65536, STEP = 128 /* of k, on Hopper */ };

typedef struct scaled_plan {
    tn_launch launch, plain; /* plain: for data that begin anywhere */
    tni_gemm_operand a, b;
    int rows, cols; /* of a tile */
    bool by_boxes;
} scaled_plan;

static const tni_gemm_wants wants = {0};

/* x and w are dense: y = x w^T. */
static tni_product product_of(const linear_int8_args *a) {
    const tni_scaled_size s = tni_scaled_size_of(a);
    return (tni_product){.m = s.m,
                         .n = s.n,
                         .k = s.k,
                         .a = {.data = a->x->data, .type = a->x->type, .row = s.k, .column = 1},
                         .b = {.data = a->w->data, .type = a->w->type, .row = 1, .column = s.k},
                         .y = {.data = a->y->data, .type = a->y->type, .row = s.n, .column = 1},
                         .act = a->act,
                         .alpha = 1};
}

static tni_gpu_scaled job_of(const linear_int8_args *a, const tni_product *p, int rows, int cols) {
    tni_gpu_scaled job = {.row_scale = a->x_scale->data, .col_scale = a->w_scale->data, .bias = data_of(a->b)};
    job.w.product = tni_gemm_job(p, rows, cols);
    job.w.tiles = job.w.product.row_tiles * job.w.product.col_tiles;
    return job;
}

static const char *type_name(const tni_product *p) {
    return tn_type_name(p->a.type);
}

/* ---- single numbers ---------------------------------------------------------------------------------------------- */

static tn_status find_plain(const tn_call *call, const tni_product *p, tn_launch *l) {
    int64_t tiles;
    TN_TRY(tni_gemm_tiles(call, p, PLAIN, PLAIN, &tiles));
    l->grid = (uint32_t)tiles;
    l->block = THREADS;
    return tni_cuda_find(call, l, "product_scaled", "product_scaled_plain_%s_%s", type_name(p),
                         tn_type_name(p->y.type));
}

static tn_status run_plain(const tn_call *call, const linear_int8_args *a, const tni_product *p, const tn_launch *l) {
    tni_gpu_scaled job = job_of(a, p, PLAIN, PLAIN);
    return tn_cuda_launch(call, l, (void *[]){&job});
}

static tn_status fill_plain(const tn_call *call, void *state) {
    scaled_plan *plan = state;
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    return find_plain(call, &p, &plan->plain);
}

/* ---- tensor cores ------------------------------------------------------------------------------------------------ */

static tn_status fill_mma(const tn_call *call, void *state) {
    scaled_plan *plan = state;
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    int64_t tiles;
    TN_TRY(find_plain(call, &p, &plan->plain));
    plan->rows = plan->cols = TNI_GEMM_MMA_TILE;
    tni_gemm_operands(&p, 0, &wants, &plan->a, &plan->b);
    TN_TRY(tni_gemm_tiles(call, &p, plan->rows, plan->cols, &tiles));
    plan->launch.grid = (uint32_t)tiles;
    plan->launch.block = THREADS;
    plan->launch.shared = MMA_SHARED;
    return tni_cuda_find(call, &plan->launch, "product_scaled", "product_scaled_mma_%s_%s", type_name(&p),
                         tn_type_name(p.y.type));
}

/* Floats have narrow tiles alone: they need registers for what a step adds up. */
static tn_status fill_hopper(const tn_call *call, void *state) {
    scaled_plan *plan = state;
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    const tn_gpu *gpu;
    int64_t tiles;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    TN_TRY(find_plain(call, &p, &plan->plain));
    plan->by_boxes = true;
    plan->rows = TNI_GEMM_HOPPER_ROWS;
    plan->cols = p.a.type == TN_I8 ? tni_gemm_hopper_cols(ceil_div(p.m, plan->rows), p.n, p.k / 2, gpu->sms) : STEP;
    tni_gemm_operands(&p, 0, &wants, &plan->a, &plan->b);
    TN_TRY(tni_gemm_tiles(call, &p, plan->rows, plan->cols, &tiles));
    plan->launch.grid = (uint32_t)min(tiles, gpu->sms);
    plan->launch.block = TNI_GEMM_HOPPER_THREADS;
    plan->launch.shared = TNI_GEMM_HOPPER_SHARED;
    return tni_cuda_find(call, &plan->launch, "product_scaled_warpgroup", "product_scaled_warpgroup_%d_%s_%s",
                         plan->cols, type_name(&p), tn_type_name(p.y.type));
}

static tn_status run_tensor(const tn_call *call, const scaled_plan *plan) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    tni_gpu_scaled job = job_of(&a, &p, plan->rows, plan->cols);
    TN_TRY(tni_gemm_copy_operands(call, &p, &plan->a, &plan->b, &job.w.product));
    if (!tni_gemm_is_aligned(&job.w.product)) return run_plain(call, &a, &p, &plan->plain);
    if (plan->by_boxes) TN_TRY(tni_gemm_make_maps(call, &p, &plan->a, &plan->b, plan->cols, &job.w));
    return tn_cuda_launch(call, &plan->launch, (void *[]){&job});
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

bool tni_scaled_plain_cuda_accepts(const tn_call *call) {
    return tni_scaled_is_float(linear_int8_args_of(call).y->type);
}

bool tni_scaled_mma_cuda_accepts(const tn_call *call) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    return tni_scaled_plain_cuda_accepts(call) && tni_gemm_suits_mma(&p) &&
           tni_cuda_has(call, "product_scaled", a.x->type == TN_I8 ? 80 : 89);
}

bool tni_scaled_hopper_cuda_accepts(const tn_call *call) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    const tn_gpu *gpu;
    return tni_scaled_plain_cuda_accepts(call) && tni_gemm_suits_mma(&p) && tni_gemm_fits_maps(&p) &&
           (tn_cuda_gpu(call, &gpu) != TN_OK || tni_gemm_is_hopper(gpu, "product_scaled_warpgroup"));
}

size_t tni_scaled_plain_cuda_workspace(const tn_call *call) {
    (void)call;
    return 0;
}

static size_t copies(const tn_call *call) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    tni_gemm_operand of_a, of_b;
    return tni_gemm_operands(&p, 0, &wants, &of_a, &of_b);
}

size_t tni_scaled_mma_cuda_workspace(const tn_call *call) {
    return copies(call);
}

size_t tni_scaled_hopper_cuda_workspace(const tn_call *call) {
    return copies(call);
}

tn_status tni_scaled_plain_cuda_run(const tn_call *call, void *state) {
    const scaled_plan *plan = state;
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_product p = product_of(&a);
    return run_plain(call, &a, &p, &plan->plain);
}

tn_status tni_scaled_mma_cuda_run(const tn_call *call, void *state) {
    return run_tensor(call, state);
}

tn_status tni_scaled_hopper_cuda_run(const tn_call *call, void *state) {
    return run_tensor(call, state);
}

#define PREPARE(name)                                                               \
    tn_status tni_scaled_##name##_cuda_prepare(const tn_call *call, void **state) { \
        return tni_cuda_prepare(call, sizeof(scaled_plan), fill_##name, state);     \
    }
PREPARE(plain)
PREPARE(mma)
PREPARE(hopper)
