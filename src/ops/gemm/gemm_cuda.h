/* Products on the GPU: kernels of all operators of this family. A row's `data` lists the products of a call; NULL: they
 * are those of linear_grad. */
#ifndef TNI_GEMM_CUDA_H
#define TNI_GEMM_CUDA_H

#include "cuda/driver/cuda.h"
#include "cuda/products/product.cuh"
#include "gemm.h"

TNI_CUDA_DECLARE(gemm_mma)
TNI_CUDA_DECLARE(gemm_hopper)
TNI_CUDA_DECLARE(gemm_tile)

#define TNI_GEMM_TENSOR_KERNEL(kernel, products)                                                               \
    {                                                                                                          \
        .name = #kernel, .device = TN_CUDA, .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16), .flags = TN_STRIDED,    \
        .accepts = tni_gemm_##kernel##_cuda_accepts, .workspace = tni_gemm_##kernel##_cuda_workspace,          \
        .prepare = tni_gemm_##kernel##_cuda_prepare, .release = tni_free, .run = tni_gemm_##kernel##_cuda_run, \
        .data = (products)                                                                                     \
    }
/* The third is for whoever asks for it by name, until it has been measured. */
#define TNI_GEMM_CUDA_KERNELS(products)             \
    TNI_GEMM_TENSOR_KERNEL(mma, products),          \
        {.name = "tile",                            \
         .device = TN_CUDA,                         \
         .flags = TN_STRIDED,                       \
         .workspace = tni_gemm_tile_cuda_workspace, \
         .prepare = tni_gemm_tile_cuda_prepare,     \
         .release = tni_free,                       \
         .run = tni_gemm_tile_cuda_run,             \
         .data = (products)},                       \
        TNI_GEMM_TENSOR_KERNEL(hopper, products)

/* The products of a call; `used`: how many bytes of its workspace they leave alone. The last one of linear_grad has
 * ones for a where it is about the bias: tni_gemm_is_of_ones. */
int tni_gemm_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST], size_t *used);
bool tni_gemm_is_of_ones(const tn_call *call, int i, int count);

/* What a kernel with tiles of this size is told, and how many tiles there are; more than a grid can have fail. */
tni_gpu_product tni_gemm_job(const tni_product *p, int rows, int cols);
tn_status tni_gemm_tiles(const tn_call *call, const tni_product *p, int rows, int cols, int64_t *tiles);

/* linear_grad's dresidual, and what passes relu on the way back; nothing for others. Before the products. */
tn_status tni_gemm_find_pass(const tn_call *call, tn_launch *pass);
tn_status tni_gemm_pass_back(const tn_call *call, const tn_launch *pass);

/* One product by single numbers, however its matrices lie. */
tn_status tni_gemm_find_tile(const tn_call *call, const tni_product *p, tn_launch *l);
tn_status tni_gemm_run_tile(const tn_call *call, const tni_product *p, bool of_ones, const tn_launch *l);

#endif
