/* cuBLASLt, NVIDIA's library of matrix products, opened at first need. No header of it is included and nothing is
 * linked: what is used of versions 12 and 13 is written out here. */
#ifndef TNI_CUDA_CUBLASLT_H
#define TNI_CUDA_CUBLASLT_H

#include "core/host/library.h"
#include "cuda/driver/cuda.h"

typedef struct cublasLtContext *lt_handle; /* cublasLtHandle_t */

/* Descriptors are made in memory of the caller's, so that a call allocates nothing. These are twice as large as those
 * of version 13; a version that needs more says so. */
typedef struct lt_layout { /* cublasLtMatrixLayoutOpaque_t */
    uint64_t data[16];
} lt_layout;
typedef struct lt_desc { /* cublasLtMatmulDescOpaque_t */
    uint64_t data[64];
} lt_desc;
typedef struct lt_preference { /* cublasLtMatmulPreferenceOpaque_t */
    uint64_t data[16];
} lt_preference;
typedef struct lt_algo { /* cublasLtMatmulAlgo_t, of just this size */
    uint64_t data[8];
} lt_algo;
typedef struct lt_result { /* cublasLtMatmulHeuristicResult_t, of just this size */
    lt_algo algo;
    size_t workspace;
    int32_t state;
    float waves;
    int32_t reserved[4];
} lt_result;

enum {               /* cudaDataType */
       LT_F32 = 0,   /* CUDA_R_32F */
       LT_F64 = 1,   /* CUDA_R_64F */
       LT_F16 = 2,   /* CUDA_R_16F */
       LT_BF16 = 14, /* CUDA_R_16BF */
};
enum {                       /* cublasComputeType_t: sums of f16, bf16 and f32 in f32, without TF32 */
       LT_COMPUTE_32F = 68,  /* CUBLAS_COMPUTE_32F */
       LT_COMPUTE_64F = 70,  /* CUBLAS_COMPUTE_64F */
       LT_COMPUTE_TF32 = 77, /* CUBLAS_COMPUTE_32F_FAST_TF32 */
};
enum {                             /* cublasLtMatrixLayoutAttribute_t */
       LT_LAYOUT_BATCH_COUNT = 5,  /* CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: int32_t */
       LT_LAYOUT_BATCH_STRIDE = 6, /* CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: int64_t */
};
enum {                          /* cublasLtMatmulDescAttributes_t */
       LT_DESC_TRANSPOSE_A = 3, /* CUBLASLT_MATMUL_DESC_TRANSA: int32_t, 1 is CUBLAS_OP_T */
       LT_DESC_TRANSPOSE_B = 4, /* CUBLASLT_MATMUL_DESC_TRANSB */
       LT_DESC_EPILOGUE = 7,    /* CUBLASLT_MATMUL_DESC_EPILOGUE: uint32_t */
       LT_DESC_BIAS = 8,        /* CUBLASLT_MATMUL_DESC_BIAS_POINTER: void * */
};
enum {                              /* cublasLtEpilogue_t */
       LT_EPILOGUE_NONE = 1,        /* CUBLASLT_EPILOGUE_DEFAULT */
       LT_EPILOGUE_RELU = 2,        /* CUBLASLT_EPILOGUE_RELU */
       LT_EPILOGUE_BIAS = 4,        /* CUBLASLT_EPILOGUE_BIAS: an element for each row of D */
       LT_EPILOGUE_RELU_BIAS = 6,   /* CUBLASLT_EPILOGUE_RELU_BIAS */
       LT_EPILOGUE_SUMS_OF_B = 512, /* CUBLASLT_EPILOGUE_BGRADB: the columns of op(B) added up go to the bias */
};
enum {                            /* cublasLtMatmulPreferenceAttributes_t */
       LT_PREFER_WORKSPACE = 1,   /* CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: uint64_t */
       LT_PREFER_REDUCTIONS = 3,  /* CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: uint32_t */
       LT_PREFER_ALIGNMENT_A = 5, /* CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: uint32_t, then those of B, C, D */
};
enum { LT_REDUCTION_COMPUTE_TYPE = 2 }; /* CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: partial sums are not rounded */

/* name, what it returns, arguments */
#define TNI_LT_FUNCTIONS(X)                                                                                           \
    X(GetVersion, size_t, (void))                                                                                     \
    X(GetStatusName, const char *, (int status))                                                                      \
    X(GetStatusString, const char *, (int status))                                                                    \
    X(Create, int, (lt_handle * handle))                                                                              \
    X(Destroy, int, (lt_handle handle))                                                                               \
    X(MatrixLayoutInit_internal, int,                                                                                 \
      (lt_layout * layout, size_t size, int type, uint64_t rows, uint64_t cols, int64_t ld))                          \
    X(MatrixLayoutSetAttribute, int, (lt_layout * layout, int attribute, const void *value, size_t size))             \
    X(MatmulDescInit_internal, int, (lt_desc * desc, size_t size, int compute, int scale))                            \
    X(MatmulDescSetAttribute, int, (lt_desc * desc, int attribute, const void *value, size_t size))                   \
    X(MatmulPreferenceInit_internal, int, (lt_preference * preference, size_t size))                                  \
    X(MatmulPreferenceSetAttribute, int, (lt_preference * preference, int attribute, const void *value, size_t size)) \
    X(MatmulAlgoGetHeuristic, int,                                                                                    \
      (lt_handle handle, const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *c,             \
       const lt_layout *d, const lt_preference *preference, int wanted, lt_result *results, int *count))              \
    X(Matmul, int,                                                                                                    \
      (lt_handle handle, const lt_desc *desc, const void *alpha, const void *a, const lt_layout *a_layout,            \
       const void *b, const lt_layout *b_layout, const void *beta, const void *c, const lt_layout *c_layout, void *d, \
       const lt_layout *d_layout, const lt_algo *algo, void *workspace, size_t bytes, cu_stream stream))

typedef struct tni_cublaslt_api {
#define TNI_LT_FIELD(name, result, arguments) result(*name) arguments;
    TNI_LT_FUNCTIONS(TNI_LT_FIELD)
#undef TNI_LT_FIELD
    void *library;
    int version; /* 130100 is 13.1.0 */
} tni_cublaslt_api;

/* Its functions; NULL and a message where there is none, it is too old, or TENON_CUBLASLT=none. */
const tni_cublaslt_api *tni_cublaslt(const char *wanted);

/* What was found, also where it cannot be used. */
typedef struct tni_cublaslt_found {
    char file[1024];     /* "": none */
    int version;         /* 0: it does not tell */
    bool is_off;         /* TENON_CUBLASLT=none */
    const char *why_not; /* ""; the message */
} tni_cublaslt_found;
const tni_cublaslt_found *tni_cublaslt_look(void);

/* The handle of the context that is current on this thread, which is one of GPU `index`: made at first need, and kept
 * until tni_cublaslt_close. All failures are TN_UNSUPPORTED: another kernel can do without it. */
tn_status tni_cublaslt_handle(const char *wanted, int index, lt_handle *handle);
void tni_cublaslt_close(void);

/* "linear: cuBLASLt 13.1.0: choosing an algorithm: CUBLAS_STATUS_NOT_SUPPORTED (…)", with this status. */
tn_status tni_cublaslt_failed(tn_status as, const char *wanted, const char *what, int error);

/* Bytes of workspace that a product may use on this GPU. */
size_t tni_cublaslt_workspace(const tn_gpu *gpu);

/* ---- products (cublaslt_product.c) ------------------------------------------------------------------------------- */

/* A matrix as cuBLASLt sees it: column by column, `ld` elements from one to the next. */
typedef struct tni_lt_matrix {
    int64_t rows, cols, ld, stride; /* stride: between the matrices of a batch */
    uint32_t alignment;             /* bytes, of every one of them */
} tni_lt_matrix;

/* D = op(A) op(B), times a number, plus C times another one, for each matrix of a batch. */
typedef struct tni_lt_job {
    tn_type type; /* of all of them */
    bool transpose_a, transpose_b;
    bool tf32; /* of f32: the factors are rounded */
    int epilogue;
    int32_t batch;
    tni_lt_matrix a, b, c, d;
    size_t limit; /* bytes of workspace */
} tni_lt_job;

/* How it is made; no pointers, so several threads may run it at once. */
typedef struct tni_lt_plan {
    tni_lt_job job;
    lt_layout layout[4]; /* of A, B, C, D */
    lt_algo algo;
    size_t workspace; /* bytes, at a multiple of 256 */
} tni_lt_plan;

/* The job in the library's own terms. bias: NULL where the epilogue has none. Returns its error. */
typedef struct tni_lt_described {
    lt_desc desc;
    lt_layout layout[4];
    lt_preference preference;
} tni_lt_described;
int tni_lt_describe(const tni_cublaslt_api *lt, const tni_lt_job *job, void *bias, tni_lt_described *made);

/* The operands of a run. bias: NULL where the epilogue has none. */
typedef struct tni_lt_operands {
    double alpha, beta;
    const void *a, *b, *c;
    void *d, *bias, *workspace;
} tni_lt_operands;

/* Asks for the best algorithm; TN_UNSUPPORTED where there is none. */
tn_status tni_lt_prepare(const tn_call *call, const tni_lt_job *job, tni_lt_plan *plan);
/* Puts it on the call's stream. Can be captured in a CUDA graph. */
tn_status tni_lt_run(const tn_call *call, const tni_lt_plan *plan, const tni_lt_operands *o);

#endif
