/* Products on the GPU: what kernels are told of a call's products, and the kernel of single numbers, for any types and
 * strides. Those for tensor cores are in gemm_tensor_cuda.c. */
#include "gemm_cuda.h"

#include <stdio.h>
#include <string.h>

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "cuda/copy/copy.h"
#include "gemm_plan.h"

enum { TILE = 64, THREADS = 256 };
_Static_assert(TNI_PRODUCT_DIMS >= TN_MAX_RANK, "a product has as many loops as a tensor has dimensions");

/* ---- which products a call has ----------------------------------------------------------------------------------- */

/* What linear_grad makes its products from. The workspace begins with dz where relu cuts something off and nobody asked
 * for it. */
typedef struct gradient {
    linear_grad_args a;
    tn_view dz;
    int64_t strides[TN_MAX_RANK];
    size_t bytes; /* of the workspace */
} gradient;

static void find_gradient(const tn_call *call, gradient *g) {
    g->a = linear_grad_args_of(call);
    g->dz = tni_linear_grad_dz(&g->a, call->workspace, g->strides);
    const int64_t bytes = gemm_keeps_dz(&g->a) ? tn_count(&g->dz) * (int64_t)tn_type_size(g->dz.type) : 0;
    g->bytes = (size_t)round_up(bytes, 64);
}

/* The products of a call; `used`: how many bytes of its workspace they leave alone. The last one of linear_grad has
 * ones for a where it is about the bias. */
int tni_gemm_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST], size_t *used) {
    const tni_products *list = call->kernel->data;
    *used = 0;
    if (list) return list->of(call, products);
    gradient g;
    find_gradient(call, &g);
    *used = g.bytes;
    const int count = tni_linear_grad_products(call, &g.dz, products);
    if (g.a.db) products[count - 1].a.data = NULL;
    return count;
}

bool tni_gemm_is_of_ones(const tn_call *call, int i, int count) {
    return !call->kernel->data && linear_grad_args_of(call).db && i == count - 1;
}

/* ---- what kernels are told --------------------------------------------------------------------------------------- */

static tni_gpu_matrix on_gpu(const tni_product *p, const tni_matrix *x) {
    tni_gpu_matrix made = {.row = x->row, .col = x->column};
    if (x->type == TN_NO_TYPE) return made;
    made.data = x->data;
    for (int32_t d = 0; d < p->n_batch; d++) made.batch[d] = x->batch[d];
    for (int32_t d = 0; d < p->n_sums; d++) made.sum[d] = x->sum[d];
    return made;
}

tni_gpu_product tni_gemm_job(const tni_product *p, int rows, int cols) {
    tni_gpu_product job = {.m = p->m, .n = p->n, .k = p->k, .alpha = p->alpha, .relu = p->act == TNI_ACT_RELU};
    job.a = on_gpu(p, &p->a);
    job.b = on_gpu(p, &p->b);
    job.y = on_gpu(p, &p->y);
    job.z = on_gpu(p, &p->z);
    job.residual = on_gpu(p, &p->residual);
    job.bias = p->bias.type == TN_NO_TYPE ? NULL : p->bias.data;
    job.bias_step = p->bias.column;
    job.n_batch = p->n_batch;
    job.n_sums = p->n_sums;
    job.terms = 1;
    for (int32_t d = 0; d < p->n_batch; d++) job.batch[d] = p->batch[d];
    for (int32_t d = 0; d < p->n_sums; d++) job.terms *= job.sums[d] = p->sums[d];
    job.row_tiles = ceil_div(p->m, rows);
    job.col_tiles = ceil_div(p->n, cols);
    return job;
}

const char *tni_gemm_types(const tni_product *p, char room[16]) {
    const char *separator = p->y.type == p->a.type ? "" : "_";
    snprintf(room, 16, "%s%s%s", tn_type_name(p->a.type), separator, *separator ? tn_type_name(p->y.type) : "");
    return room;
}

tn_status tni_gemm_tiles(const tn_call *call, const tni_product *p, int rows, int cols, int64_t *tiles) {
    *tiles = ceil_div(p->m, rows) * ceil_div(p->n, cols);
    for (int32_t d = 0; d < p->n_batch; d++) *tiles *= p->batch[d];
    return *tiles <= INT32_MAX
               ? TN_OK
               : tn_fail(TN_UNSUPPORTED, "%s: y has more than 2^31 tiles of %d x %d", call->name, rows, cols);
}

/* ---- relu on the way back ---------------------------------------------------------------------------------------- */

/* dresidual, and dz where it is not dy. */
tn_status tni_gemm_pass_back(const tn_call *call, const tn_launch *pass) {
    gradient g;
    if (call->kernel->data) return TN_OK;
    find_gradient(call, &g);
    if (tn_count(&g.dz) == 0) return TN_OK;
    if (g.a.act != TNI_ACT_RELU) return g.a.dresidual ? tni_cuda_copy(call, g.a.dresidual, g.a.dy) : TN_OK;
    tni_gpu_pass job = {.dy = g.a.dy->data, .z = g.a.z->data, .dz = g.dz.data, .count = tn_count(&g.dz)};
    job.n_dims = g.dz.ndim;
    for (int32_t d = 0; d < g.dz.ndim; d++) {
        job.shape[d] = g.dz.shape[d];
        job.dy_strides[d] = g.a.dy->strides[d];
        job.z_strides[d] = g.a.z->strides[d];
        job.dz_strides[d] = g.dz.strides[d];
    }
    return tn_cuda_launch(call, pass, (void *[]){&job});
}

tn_status tni_gemm_find_pass(const tn_call *call, tn_launch *pass) {
    gradient g;
    if (call->kernel->data) return TN_OK;
    find_gradient(call, &g);
    if (g.a.act != TNI_ACT_RELU) return TN_OK;
    if (!g.a.z) {
        return tn_fail(TN_BAD_VALUE, "%s: with 'relu' it needs z, the values before the activation", call->name);
    }
    pass->grid = (uint32_t)min(ceil_div(tn_count(&g.dz), PASS_THREADS), INT32_MAX);
    pass->block = PASS_THREADS;
    return tni_cuda_find(call, pass, "product_pass", "product_pass_%s", tn_type_name(g.dz.type));
}

/* ---- relu by itself ---------------------------------------------------------------------------------------------- */

/* The kernel above, with z for dy: what passes is z where it is positive. */
static tni_gpu_pass relu_job(const tni_product *p, const tni_matrix *z) {
    tni_gpu_pass job = {.dy = z->data, .z = z->data, .dz = p->y.data, .count = p->m * p->n, .n_dims = p->n_batch + 2};
    for (int32_t d = 0; d < job.n_dims; d++) {
        const bool rows = d == p->n_batch, columns = d > p->n_batch;
        job.shape[d] = rows ? p->m : columns ? p->n : p->batch[d];
        job.dy_strides[d] = job.z_strides[d] = rows ? z->row : columns ? z->column : z->batch[d];
        job.dz_strides[d] = rows ? p->y.row : columns ? p->y.column : p->y.batch[d];
        if (d < p->n_batch) job.count *= p->batch[d];
    }
    return job;
}

tn_status tni_gemm_find_relu(const tn_call *call, const tni_product *p, tn_launch *l) {
    l->grid = (uint32_t)min(ceil_div(relu_job(p, &p->y).count, PASS_THREADS), INT32_MAX);
    l->block = PASS_THREADS;
    return tni_cuda_find(call, l, "product_pass", "product_pass_%s", tn_type_name(p->y.type));
}

tn_status tni_gemm_run_relu(const tn_call *call, const tni_product *p, const tni_matrix *z, const tn_launch *l) {
    tni_gpu_pass job = relu_job(p, z);
    return tn_cuda_launch(call, l, (void *[]){&job});
}

/* ---- single numbers ---------------------------------------------------------------------------------------------- */

typedef struct tile_plan {
    tn_launch pass, launch[TNI_PRODUCTS_MOST];
} tile_plan;

tn_status tni_gemm_find_tile(const tn_call *call, const tni_product *p, tn_launch *l) {
    int64_t tiles;
    TN_TRY(tni_gemm_tiles(call, p, TILE, TILE, &tiles));
    l->grid = (uint32_t)tiles;
    l->block = THREADS;
    char types[16];
    return tni_cuda_find(call, l, "product_tile", "product_tile_%s", tni_gemm_types(p, types));
}

tn_status tni_gemm_run_tile(const tn_call *call, const tni_product *p, bool of_ones, const tn_launch *l) {
    tni_gpu_product job = tni_gemm_job(p, TILE, TILE);
    if (of_ones) job.a.data = NULL;
    return tn_cuda_launch(call, l, (void *[]){&job});
}

static tn_status fill_tile(const tn_call *call, void *state) {
    tile_plan *plan = state;
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    TN_TRY(tni_gemm_find_pass(call, &plan->pass));
    for (int i = 0; i < count; i++) TN_TRY(tni_gemm_find_tile(call, &products[i], &plan->launch[i]));
    return TN_OK;
}

tn_status tni_gemm_tile_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tile_plan), fill_tile, state);
}

size_t tni_gemm_tile_cuda_workspace(const tn_call *call) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    tni_gemm_products(call, products, &used);
    return used;
}

tn_status tni_gemm_tile_cuda_run(const tn_call *call, void *state) {
    const tile_plan *plan = state;
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    TN_TRY(tni_gemm_pass_back(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        TN_TRY(tni_gemm_run_tile(call, &products[i], tni_gemm_is_of_ones(call, i, count), &plan->launch[i]));
    }
    return TN_OK;
}
