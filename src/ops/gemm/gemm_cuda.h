/* Products on the GPU: kernels of all operators of this family. A row's `data` lists the products of a call; NULL: they
 * are those of linear_grad. */
#ifndef TNI_GEMM_CUDA_H
#define TNI_GEMM_CUDA_H

#include "cuda/driver/cuda.h"
#include "cuda/products/product.cuh"
#include "gemm.h"

TNI_CUDA_DECLARE(gemm_rows)
TNI_CUDA_DECLARE(gemm_mma)
TNI_CUDA_DECLARE(gemm_hopper)
TNI_CUDA_DECLARE(gemm_split)
TNI_CUDA_DECLARE(gemm_tile)
TNI_CUDA_DECLARE(gemm_cublaslt)

#define TNI_GEMM_KERNEL(kernel, products, more_types, more_flags)                                     \
    {                                                                                                 \
        .name = #kernel, .device = TN_CUDA, .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16) | (more_types), \
        .flags = TN_STRIDED | (more_flags), .accepts = tni_gemm_##kernel##_cuda_accepts,              \
        .workspace = tni_gemm_##kernel##_cuda_workspace, .prepare = tni_gemm_##kernel##_cuda_prepare, \
        .release = tni_free, .run = tni_gemm_##kernel##_cuda_run, .data = (products)                  \
    }
#define TNI_GEMM_CUBLASLT_KERNEL(products)                                                                 \
    {                                                                                                      \
        .name = "cublaslt", .device = TN_CUDA,                                                             \
        .types = TN_BIT(TN_F64) | TN_BIT(TN_F32) | TN_BIT(TN_F16) | TN_BIT(TN_BF16),                       \
        .flags = TN_STRIDED | TN_MAY_DECLINE | TN_SPARE_WORKSPACE | TN_ROWS_VARY,                          \
        .accepts = tni_gemm_cublaslt_cuda_accepts, .workspace = tni_gemm_cublaslt_cuda_workspace,          \
        .prepare = tni_gemm_cublaslt_cuda_prepare, .release = tni_free, .run = tni_gemm_cublaslt_cuda_run, \
        .data = (products)                                                                                 \
    }
#define TNI_GEMM_ROWS_KERNEL(products) TNI_GEMM_KERNEL(rows, products, TN_BIT(TN_F32), TN_ROWS_VARY)
/* Those of Tenon that also have an f32 y of 16-bit a and b. */
#define TNI_GEMM_ADD_CUDA_KERNELS(products)                                                                           \
    TNI_GEMM_KERNEL(split, products, 0, TN_ROWS_VARY), TNI_GEMM_KERNEL(hopper, products, 0, 0),                       \
        TNI_GEMM_KERNEL(mma, products, 0, 0), {                                                                       \
        .name = "tile", .device = TN_CUDA, .flags = TN_STRIDED, .workspace = tni_gemm_tile_cuda_workspace,            \
        .prepare = tni_gemm_tile_cuda_prepare, .release = tni_free, .run = tni_gemm_tile_cuda_run, .data = (products) \
    }
/* Best first, as measured on an H200: bench/results/gemm-cuda-… Few rows are by estimate. */
#define TNI_GEMM_GRAD_CUDA_KERNELS TNI_GEMM_CUBLASLT_KERNEL(NULL), TNI_GEMM_ADD_CUDA_KERNELS(NULL)
#define TNI_GEMM_CUDA_KERNELS(products) \
    TNI_GEMM_ROWS_KERNEL(products), TNI_GEMM_CUBLASLT_KERNEL(products), TNI_GEMM_ADD_CUDA_KERNELS(products)

/* TENON_SAME_ROWS leaves out kernels by which a row may have other bits beside other rows. */
bool tni_gemm_rows_may_vary(void);
/* TENON_TF32: cuBLASLt may round factors of f32 to 11 bits. */
bool tni_gemm_may_be_tf32(void);

/* The products of a call; `used`: how many bytes of its workspace they leave alone. The last one of linear_grad has
 * ones for a where it is about the bias: tni_gemm_is_of_ones. */
int tni_gemm_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST], size_t *used);
bool tni_gemm_is_of_ones(const tn_call *call, int i, int count);

/* What a kernel with tiles of this size is told, and how many tiles there are; more than a grid can have fail. */
tni_gpu_product tni_gemm_job(const tni_product *p, int rows, int cols);
tn_status tni_gemm_tiles(const tn_call *call, const tni_product *p, int rows, int cols, int64_t *tiles);

/* How a or b gets to a kernel that reads 16 bytes at a time. Its lines are rows of a, or columns of b. */
typedef struct tni_gemm_operand {
    bool copied, along; /* along: dense along k */
    int64_t pitch;      /* of the copy */
    size_t offset;      /* of the copy in the workspace */
} tni_gemm_operand;

typedef struct tni_gemm_wants {
    bool alike; /* no a dense across k beside b along it */
    bool apart; /* lines do not overlap */
    bool a_along;
} tni_gemm_wants;

int64_t tni_gemm_terms(const tni_product *p); /* of a sum */

/* Copies lie behind what the call uses anyway; products follow each other and take the same place. Returns where they
 * end. */
size_t tni_gemm_operands(const tni_product *p, size_t used, const tni_gemm_wants *wants, tni_gemm_operand *a,
                         tni_gemm_operand *b);
/* Tells the job how they lie, with one sum; and copies what must be copied, which says where. */
void tni_gemm_place_operands(const tni_product *p, const tni_gemm_operand *a, const tni_gemm_operand *b,
                             tni_gpu_product *job);
tn_status tni_gemm_copy_operands(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                                 const tni_gemm_operand *b, tni_gpu_product *job);
bool tni_gemm_is_aligned(const tni_gpu_product *job); /* a and b, to 16 bytes */

/* "mma" for one product: n and k are not too small for it; the kernel, with a job for tiles of this size. */
enum { TNI_GEMM_MMA_TILE = 128 };
bool tni_gemm_suits_mma(const tni_product *p);
tn_status tni_gemm_find_mma(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                            const tni_gemm_operand *b, tn_launch *l);

/* Hopper's tiles: of how many columns, and what its boxes and the kernels of this unit need. */
enum {
    TNI_GEMM_HOPPER_ROWS = 128,
    TNI_GEMM_HOPPER_THREADS = 384,
    /* Bytes, all that a block can have: from a multiple of 128 to the next one of 1024, a ring of 4 * 48 KB, 34 KB to
     * write tiles through, and barriers. */
    TNI_GEMM_HOPPER_SHARED = 896 + 196608 + 34816 + 128,
};
bool tni_gemm_fits_maps(const tni_product *p); /* its sizes, with the copies' */
/* 256 or 128, for as many tiles below each other, each made by one block. */
int tni_gemm_hopper_cols(int64_t down, int64_t n, int64_t terms, int sms);
/* w->a and w->b, of its product, for boxes of 128 rows and `cols` columns. */
tn_status tni_gemm_make_maps(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                             const tni_gemm_operand *b, int cols, tni_gpu_warpgroup *w);

/* linear_grad's dresidual, and what passes relu on the way back; nothing for others. Before the products. */
tn_status tni_gemm_find_pass(const tn_call *call, tn_launch *pass);
tn_status tni_gemm_pass_back(const tn_call *call, const tn_launch *pass);

/* y = relu(z) of a product, where z has the values before it. */
tn_status tni_gemm_find_relu(const tn_call *call, const tni_product *p, tn_launch *l);
tn_status tni_gemm_run_relu(const tn_call *call, const tni_product *p, const tni_matrix *z, const tn_launch *l);
/* Behind the name of a kernel: "bf16", or "bf16_f32" where y has another type than a and b. */
const char *tni_gemm_types(const tni_product *p, char room[16]);

/* One product by single numbers, however its matrices lie. */
tn_status tni_gemm_find_tile(const tn_call *call, const tni_product *p, tn_launch *l);
tn_status tni_gemm_run_tile(const tn_call *call, const tni_product *p, bool of_ones, const tn_launch *l);

/* The GPU runs code of `unit` that is for Hopper alone. */
bool tni_gemm_is_hopper(const tn_gpu *gpu, const char *unit);

#endif
