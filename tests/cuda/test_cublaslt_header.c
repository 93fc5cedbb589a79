/* What cublaslt.h writes out of NVIDIA's headers is what they say; and a real cuBLASLt, which needs no GPU for that,
 * takes descriptions that are made so. The build leaves this test out where there are no such headers. */
#include <cublasLt.h>

#include "cuda/libraries/cublaslt.h"
#include "tests/test.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(LT_F32, CUDA_R_32F);
SAME(LT_F64, CUDA_R_64F);
SAME(LT_F16, CUDA_R_16F);
SAME(LT_BF16, CUDA_R_16BF);
SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_COMPUTE_64F, CUBLAS_COMPUTE_64F);
SAME(LT_COMPUTE_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(LT_DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_DESC_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT);
SAME(LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU);
SAME(LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(LT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(LT_EPILOGUE_SUMS_OF_B, CUBLASLT_EPILOGUE_BGRADB);
SAME(LT_PREFER_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREFER_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(LT_PREFER_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREFER_ALIGNMENT_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREFER_ALIGNMENT_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREFER_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(0, CUBLAS_STATUS_SUCCESS);
SAME(1, CUBLAS_OP_T);
SAME(sizeof(lt_algo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(lt_result), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(lt_result, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(lt_result, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
_Static_assert(sizeof(lt_layout) >= sizeof(cublasLtMatrixLayoutOpaque_t), "room for a layout");
_Static_assert(sizeof(lt_desc) >= sizeof(cublasLtMatmulDescOpaque_t), "room for a description");
_Static_assert(sizeof(lt_preference) >= sizeof(cublasLtMatmulPreferenceOpaque_t), "room for preferences");

int main(void) {
    const tni_cublaslt_api *lt = tni_cublaslt("a test");
    const tni_lt_matrix x = {.rows = 24, .cols = 40, .ld = 32, .stride = 2048, .alignment = 16};
    const tni_lt_job job = {.type = TN_BF16, .batch = 3, .a = x, .b = x, .c = x, .d = x, .limit = 1 << 20};
    if (!lt) {
        printf("0 passed, 0 failed, 1 skipped: %s\n", tn_last_error());
        return 0;
    }
    for (int transpose = 0; transpose < 4; transpose++) {
        for (int wide = 0; wide < 2; wide++) {
            tni_lt_job one = job;
            tni_lt_described made;
            one.transpose_a = transpose & 1;
            one.transpose_b = transpose & 2;
            one.type = wide ? TN_F64 : TN_BF16;
            one.epilogue = transpose ? LT_EPILOGUE_RELU_BIAS : LT_EPILOGUE_NONE;
            CHECK(tni_lt_describe(lt, &one, transpose ? &made : NULL, &made) == 0);
        }
    }
    printf("cuBLASLt %d, %s\n", lt->version, tni_cublaslt_look()->file);
    return test_end();
}
