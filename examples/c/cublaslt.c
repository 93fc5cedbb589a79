/* An operator of your own whose kernel is NVIDIA's cuBLASLt: y = a b^T. Tenon finds the library and gives the handle; a
 * formula is the reference, the gradient, and the kernel where there is no cuBLASLt.
 *
 *     make build
 *     cc -O2 -shared -fPIC examples/c/cublaslt.c $(build/tenon flags --cflags) -I/usr/local/cuda/include -o build/lt.so
 *     build/tenon --load build/lt.so check --only-loaded --device cuda
 *     build/tenon --load build/lt.so bench library_product --device cuda --kernels all
 */
#include <dlfcn.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <tenon/cuda.h>

enum { A, B, Y = 0 };

/* Nothing is linked: the functions come from the library that Tenon has opened. */
#define FUNCTION(lt, name) ((__typeof__(name) *)dlsym((lt)->library, #name))

/* What `prepare` makes for calls of one shape. It has no pointers to tensors, so calls on several threads share it. */
typedef struct plan {
    tn_cublaslt lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulHeuristicResult_t best;
} plan;

static void release(void *state) {
    plan *p = (plan *)state;
    if (p->product) FUNCTION(&p->lt, cublasLtMatmulDescDestroy)(p->product);
    cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->y};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) FUNCTION(&p->lt, cublasLtMatrixLayoutDestroy)(layouts[i]);
    }
    free(p);
}

/* cuBLASLt counts columns first. A matrix with rows of k is one with columns of k to it, so it is asked for
 * y^T (n, m) = b (n, k) a^T (k, m), where its first operand is to be transposed. */
static int describe(plan *p, uint64_t m, uint64_t n, uint64_t k) {
    const cublasOperation_t transpose = CUBLAS_OP_T;
    int error = FUNCTION(&p->lt, cublasLtMatmulDescCreate)(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!error) {
        error = FUNCTION(&p->lt, cublasLtMatmulDescSetAttribute)(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                                                 sizeof transpose);
    }
    __typeof__(cublasLtMatrixLayoutCreate) *create = FUNCTION(&p->lt, cublasLtMatrixLayoutCreate);
    if (!error) error = create(&p->a, CUDA_R_32F, k, m, (int64_t)k);
    if (!error) error = create(&p->b, CUDA_R_32F, k, n, (int64_t)k);
    return error ? error : (int)create(&p->y, CUDA_R_32F, n, m, (int64_t)n);
}

/* Tensors may begin at any multiple of 4 bytes. */
static int choose(plan *p) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *set = FUNCTION(&p->lt, cublasLtMatmulPreferenceSetAttribute);
    const uint64_t limit = p->lt.workspace;
    const uint32_t four = 4;
    cublasLtMatmulPreference_t preference;
    int count = 0, error = FUNCTION(&p->lt, cublasLtMatmulPreferenceCreate)(&preference);
    if (error) return error;
    error = set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    for (int i = 0; i < 4 && !error; i++) error = set(preference, alignments[i], &four, sizeof four);
    if (!error) {
        error = FUNCTION(&p->lt, cublasLtMatmulAlgoGetHeuristic)(p->lt.handle, p->product, p->b, p->a, p->y, p->y,
                                                                 preference, 1, &p->best, &count);
    }
    FUNCTION(&p->lt, cublasLtMatmulPreferenceDestroy)(preference);
    return error || count > 0 ? error : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* TN_UNSUPPORTED leaves the call to the next kernel: TN_MAY_DECLINE is among the flags. */
static tn_status prepare(const tn_call *call, void **state) {
    const tn_view *y = tn_out(call, Y);
    plan *p = (plan *)calloc(1, sizeof *p);
    if (!p) return TN_NO_MEMORY;
    tn_status status = tn_cuda_cublaslt(call, &p->lt);
    if (status == TN_OK) {
        int error = describe(p, (uint64_t)y->shape[0], (uint64_t)y->shape[1], (uint64_t)tn_in(call, A)->shape[1]);
        if (!error) error = choose(p);
        if (error && tn_cuda_cublaslt_failed(call, "preparing the product", error)) status = TN_UNSUPPORTED;
    }
    if (status == TN_OK) *state = p;
    if (status != TN_OK) release(p);
    return status;
}

/* Its beginning must be a multiple of 256. */
static size_t workspace(const tn_call *call) {
    const plan *p = (const plan *)call->state;
    return p->best.workspaceSize ? p->best.workspaceSize + 256 : 0;
}

static tn_status run(const tn_call *call, void *state) {
    const plan *p = (const plan *)state;
    const float one = 1, zero = 0;
    void *y = tn_out(call, Y)->data, *room = (void *)(((uintptr_t)call->workspace + 255) / 256 * 256);
    const int error = FUNCTION(&p->lt, cublasLtMatmul)(
        p->lt.handle, p->product, &one, tn_in(call, B)->data, p->b, tn_in(call, A)->data, p->a, &zero, y, p->y, y, p->y,
        &p->best.algo, room, p->best.workspaceSize, (cudaStream_t)call->host->stream);
    return tn_cuda_cublaslt_failed(call, "cublasLtMatmul", error);
}

/* Empty matrices and sums of nothing are left to the formula. */
static bool accepts(const tn_call *call) {
    return tn_count(tn_in(call, A)) > 0 && tn_count(tn_in(call, B)) > 0;
}

static const tn_kernel kernels[] = {
    {.name = "cublaslt",
     .device = TN_CUDA,
     .types = TN_BIT(TN_F32),
     .flags = TN_MAY_DECLINE | TN_ROWS_VARY,
     .accepts = accepts,
     .workspace = workspace,
     .prepare = prepare,
     .release = release,
     .run = run},
    {0},
};
static const tn_sample samples[] = {
    {"m=3 n=5 k=7"},
    {"m=64 n=32 k=40"},
    {"m=1 n=9 k=33"},
    {"m=4 n=3 k=0"},
    {"m=0 n=3 k=2"},
    {"m=1024 n=1024 k=1024", .bench = true},
    {0},
};
static const tn_op library_product = {
    .signature = "library_product(a: T[m, k], b: T[n, k]) -> y: T[m, n]",
    .doc = "a b^T.",
    .formula = "sum(a * b, k)",
    .kernels = kernels,
    .samples = samples,
};
static const tn_op *const table[] = {&library_product};
const tn_plugin tenon_plugin = TN_PLUGIN(table);
