/* Products by cuBLASLt: descriptors, and the algorithm that it thinks best. */
#include "cublaslt.h"

#include <string.h>

static int type_of(tn_type type) {
    return type == TN_F64 ? LT_F64 : type == TN_F16 ? LT_F16 : type == TN_BF16 ? LT_BF16 : LT_F32;
}

static int make_layout(const tni_cublaslt_api *lt, const tni_lt_job *job, const tni_lt_matrix *x, lt_layout *made) {
    int error = lt->MatrixLayoutInit_internal(made, sizeof *made, type_of(job->type), (uint64_t)x->rows,
                                              (uint64_t)x->cols, x->ld);
    if (job->batch == 1) return error;
    if (!error) error = lt->MatrixLayoutSetAttribute(made, LT_LAYOUT_BATCH_COUNT, &job->batch, sizeof job->batch);
    if (!error) error = lt->MatrixLayoutSetAttribute(made, LT_LAYOUT_BATCH_STRIDE, &x->stride, sizeof x->stride);
    return error;
}

static int make_desc(const tni_cublaslt_api *lt, const tni_lt_job *job, void *bias, lt_desc *made) {
    const bool wide = job->type == TN_F64;
    const int32_t a = job->transpose_a, b = job->transpose_b;
    const uint32_t epilogue = (uint32_t)job->epilogue;
    const int compute = wide ? LT_COMPUTE_64F : job->tf32 ? LT_COMPUTE_TF32 : LT_COMPUTE_32F;
    int error = lt->MatmulDescInit_internal(made, sizeof *made, compute, wide ? LT_F64 : LT_F32);
    if (!error) error = lt->MatmulDescSetAttribute(made, LT_DESC_TRANSPOSE_A, &a, sizeof a);
    if (!error) error = lt->MatmulDescSetAttribute(made, LT_DESC_TRANSPOSE_B, &b, sizeof b);
    if (!error) error = lt->MatmulDescSetAttribute(made, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!error && bias) error = lt->MatmulDescSetAttribute(made, LT_DESC_BIAS, &bias, sizeof bias);
    return error;
}

static int make_preference(const tni_cublaslt_api *lt, const tni_lt_job *job, lt_preference *made) {
    const uint64_t limit = job->limit;
    const uint32_t reductions = LT_REDUCTION_COMPUTE_TYPE;
    const uint32_t alignments[] = {job->a.alignment, job->b.alignment, job->c.alignment, job->d.alignment};
    int error = lt->MatmulPreferenceInit_internal(made, sizeof *made);
    if (!error) error = lt->MatmulPreferenceSetAttribute(made, LT_PREFER_WORKSPACE, &limit, sizeof limit);
    if (!error) error = lt->MatmulPreferenceSetAttribute(made, LT_PREFER_REDUCTIONS, &reductions, sizeof reductions);
    for (int i = 0; !error && i < 4; i++) {
        error = lt->MatmulPreferenceSetAttribute(made, LT_PREFER_ALIGNMENT_A + i, &alignments[i], sizeof(uint32_t));
    }
    return error;
}

int tni_lt_describe(const tni_cublaslt_api *lt, const tni_lt_job *job, void *bias, tni_lt_described *made) {
    const tni_lt_matrix *const from[] = {&job->a, &job->b, &job->c, &job->d};
    int error = make_desc(lt, job, bias, &made->desc);
    for (int i = 0; !error && i < 4; i++) error = make_layout(lt, job, from[i], &made->layout[i]);
    return error ? error : make_preference(lt, job, &made->preference);
}

/* The first of its suggestions that it stands by. */
static tn_status choose(const tn_call *call, const tni_cublaslt_api *lt, lt_handle handle, const tni_lt_described *d,
                        tni_lt_plan *plan) {
    enum { SUGGESTIONS = 4 };
    lt_result results[SUGGESTIONS];
    int count = 0;
    const int error = lt->MatmulAlgoGetHeuristic(handle, &d->desc, &d->layout[0], &d->layout[1], &d->layout[2],
                                                 &d->layout[3], &d->preference, SUGGESTIONS, results, &count);
    if (error) return tni_cublaslt_failed(TN_UNSUPPORTED, call->name, "choosing an algorithm", error);
    for (int i = 0; i < count; i++) {
        if (results[i].state != 0 || results[i].workspace > plan->job.limit) continue;
        plan->algo = results[i].algo;
        plan->workspace = results[i].workspace;
        return TN_OK;
    }
    return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt has no algorithm for this product", call->name);
}

/* The context is current. */
static tn_status prepare(const tn_call *call, const tni_cublaslt_api *lt, const tni_cuda_api *cu, tni_lt_plan *plan) {
    const int epilogue = plan->job.epilogue;
    /* A bias is not known yet: some address with its alignment. */
    void *bias = epilogue == LT_EPILOGUE_NONE || epilogue == LT_EPILOGUE_RELU ? NULL : (void *)256;
    lt_handle handle;
    tni_lt_described described;
    TN_TRY(tni_cublaslt_handle(call->name, call->device.index, &handle));
    const int error = tni_lt_describe(lt, &plan->job, bias, &described);
    if (error) return tni_cublaslt_failed(TN_UNSUPPORTED, call->name, "describing the product", error);
    memcpy(plan->layout, described.layout, sizeof plan->layout);
    const int mode = tni_cuda_begin_loading(cu);
    const tn_status status = choose(call, lt, handle, &described, plan);
    tni_cuda_end_loading(cu, mode);
    return status;
}

tn_status tni_lt_prepare(const tn_call *call, const tni_lt_job *job, tni_lt_plan *plan) {
    const tni_cublaslt_api *lt = tni_cublaslt(call->name);
    const tni_cuda_api *cu = tni_cuda(call->name);
    tni_cuda_scope scope;
    if (!lt || !cu) return TN_UNSUPPORTED;
    *plan = (tni_lt_plan){.job = *job};
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tn_status status = prepare(call, lt, cu, plan);
    tni_cuda_leave(&scope);
    return status;
}

/* A kernel may be loaded when it first runs, also while a graph is captured. */
static tn_status run(const tn_call *call, const tni_lt_plan *plan, const tni_lt_operands *o) {
    const tni_cublaslt_api *lt = tni_cublaslt(call->name);
    const tni_cuda_api *cu = tni_cuda(call->name);
    const lt_layout *l = plan->layout;
    const bool wide = plan->job.type == TN_F64;
    const float alpha = (float)o->alpha, beta = (float)o->beta;
    const void *times_ab = wide ? (const void *)&o->alpha : &alpha, *times_c = wide ? (const void *)&o->beta : &beta;
    lt_handle handle;
    lt_desc desc;
    if (!lt || !cu) return TN_UNSUPPORTED;
    TN_TRY(tni_cublaslt_handle(call->name, call->device.index, &handle));
    int error = make_desc(lt, &plan->job, o->bias, &desc);
    if (error) return tni_cublaslt_failed(TN_UNSUPPORTED, call->name, "describing the product", error);
    const int mode = tni_cuda_begin_loading(cu);
    error = lt->Matmul(handle, &desc, times_ab, o->a, &l[0], o->b, &l[1], times_c, o->c, &l[2], o->d, &l[3],
                       &plan->algo, o->workspace, plan->workspace, call->host->stream);
    tni_cuda_end_loading(cu, mode);
    return error ? tni_cublaslt_failed(TN_UNSUPPORTED, call->name, "cublasLtMatmul", error) : TN_OK;
}

tn_status tni_lt_run(const tn_call *call, const tni_lt_plan *plan, const tni_lt_operands *o) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope));
    const tn_status status = run(call, plan, o);
    tni_cuda_leave(&scope);
    return status;
}
