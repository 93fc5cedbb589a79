/* Products of few rows on the GPU: kernel "rows" (sm_80 and later), which reads the weights as they lie: of 16 rows of
 * 16-bit numbers at most, or 4 of f32. Whether it takes a product depends on how many rows there are, so a row may have
 * other bits beside many. */
#include <stdlib.h>
#include <string.h>

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "gemm_cuda.h"

enum {
    LEAST_K = 512,           /* each warp has an eighth of it */
    LEAST_WEIGHTS = 1 << 20, /* numbers of b, of which it is worth while */
    /* More than these bytes of them cuBLASLt reads faster: an H200 takes 31 us for 117 MB and one row, and this 34. */
    MOST_BYTES = 40 << 20
};

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

bool tni_gemm_rows_may_vary(void) {
    return !is_set("TENON_SAME_ROWS");
}

bool tni_gemm_may_be_tf32(void) {
    return is_set("TENON_TF32");
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

/* As product_rows.cu has them, the best first. A row's sums are the same in those with b along k, and in those with b
 * across it. */
typedef struct rows_kernel {
    int cols, rows; /* of a block, at most */
    bool along, is_f32;
    int blocks, least_rows; /* on a GPU and of y, for which it is good */
} rows_kernel;

enum { WARPS = 8 };
static const rows_kernel kernels[] = {
    {.cols = 32, .rows = 8, .along = true, .blocks = 96, .least_rows = 5}, /* reads x half as often */
    {.cols = 16, .rows = 8, .along = true},
    {.cols = 32, .rows = 16, .along = true},
    {.cols = 64, .rows = 8},
    {.cols = 64, .rows = 16},
    {.cols = 4, .rows = 1, .along = true, .is_f32 = true},
    {.cols = 4, .rows = 2, .along = true, .is_f32 = true},
    {.cols = 8, .rows = 4, .along = true, .is_f32 = true},
};

static const rows_kernel *find_kernel(const tni_product *p, bool along) {
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const rows_kernel *k = &kernels[i];
        const bool is_good = ceil_div(p->n, k->cols) >= k->blocks && p->m >= k->least_rows;
        const bool is_kind = k->along == along && k->is_f32 == (p->a.type == TN_F32);
        if (is_kind && p->m <= k->rows && is_good) return k;
    }
    return NULL;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

typedef struct rows_plan {
    tn_launch launch, alone; /* alone: for data that begin anywhere */
    const rows_kernel *kernel;
    tni_gemm_operand a, b;
} rows_plan;

/* Neither matrix has to be copied, and lines end with a whole piece of 16 bytes. */
static const rows_kernel *choose(const tni_product *p, tni_gemm_operand *a, tni_gemm_operand *b) {
    static const tni_gemm_wants wants = {0};
    const int64_t piece = 16 / (int64_t)tn_type_size(p->a.type);
    int64_t weights = p->n * p->k;
    if (p->m < 1 || p->n < 1 || p->k < LEAST_K || p->k > INT32_MAX / 2 || p->n_sums || p->k % piece) return NULL;
    for (int32_t d = 0; d < p->n_batch; d++) weights *= p->batch[d];
    if (weights < LEAST_WEIGHTS || weights * (int64_t)tn_type_size(p->b.type) > MOST_BYTES) return NULL;
    tni_gemm_operands(p, 0, &wants, a, b);
    if (a->copied || b->copied || !a->along || (!b->along && p->n % piece)) return NULL;
    return find_kernel(p, b->along);
}

/* The call's only product. */
static tni_product product_of(const tn_call *call) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    tni_gemm_products(call, products, &used);
    return products[0];
}

static tn_status fill(const tn_call *call, void *state) {
    rows_plan *plan = state;
    const tni_product p = product_of(call);
    const rows_kernel *k = plan->kernel = choose(&p, &plan->a, &plan->b);
    int64_t blocks;
    TN_TRY(tni_gemm_find_tile(call, &p, &plan->alone));
    TN_TRY(tni_gemm_tiles(call, &p, k->rows, k->cols, &blocks));
    plan->launch.grid = (uint32_t)blocks;
    plan->launch.block = 32 * WARPS;
    plan->launch.shared = (uint32_t)(WARPS * k->rows * (k->cols + 4) * (int)sizeof(float));
    return tni_cuda_find(call, &plan->launch, "product_rows", "product_rows_%dx%d_%c_%s", k->cols, k->rows,
                         k->along ? 't' : 'f', tn_type_name(p.a.type));
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

bool tni_gemm_rows_cuda_accepts(const tn_call *call) {
    const tni_product p = product_of(call);
    tni_gemm_operand a, b;
    return tni_gemm_rows_may_vary() && choose(&p, &a, &b) && tni_cuda_has(call, "product_rows", 80);
}

size_t tni_gemm_rows_cuda_workspace(const tn_call *call) {
    (void)call;
    return 0;
}

tn_status tni_gemm_rows_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(rows_plan), fill, state);
}

tn_status tni_gemm_rows_cuda_run(const tn_call *call, void *state) {
    const rows_plan *plan = state;
    const tni_product p = product_of(call);
    tni_gpu_product job = tni_gemm_job(&p, plan->kernel->rows, plan->kernel->cols);
    if (!tni_gemm_is_aligned(&job)) return tni_gemm_run_tile(call, &p, false, &plan->alone);
    return tn_cuda_launch(call, &plan->launch, (void *[]){&job});
}
