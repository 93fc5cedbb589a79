/* attention on the GPU: what its kernels are told, and those that make a row with a warp, for any type and strides. */
#include "attention_cuda.h"

TNI_CUDA_DECLARE(attention)
TNI_CUDA_DECLARE(attention_grad)

static tni_gpu_heads heads_of(const tn_view *x) {
    tni_gpu_heads made = {0};
    for (int d = 0; x && d < x->ndim; d++) made.at[d] = x->shape[d] == 1 ? 0 : x->strides[d];
    if (x) made.data = x->data;
    return made;
}

static int code_of(tn_type type) {
    return type == TN_F16    ? ATTENTION_F16
           : type == TN_BF16 ? ATTENTION_BF16
           : type == TN_F32  ? ATTENTION_F32
                             : ATTENTION_F64;
}

tni_gpu_attention tni_attention_gpu(const tn_call *call, const attention_job *a) {
    tni_gpu_attention p = {.q = heads_of(a->q),
                           .k = heads_of(a->k),
                           .v = heads_of(a->v),
                           .bias = heads_of(a->bias),
                           .mask = heads_of(a->mask),
                           .o = heads_of(a->o),
                           .dy = heads_of(a->dy),
                           .dq = heads_of(a->dq),
                           .dk = heads_of(a->dk),
                           .dv = heads_of(a->dv),
                           .dbias = heads_of(a->dbias),
                           .lse = heads_of(a->lse),
                           .dlse = heads_of(a->dlse),
                           .delta = call->workspace,
                           .sinks = data_of(a->sinks),
                           .dsinks = data_of(a->dsinks),
                           .m = a->m,
                           .n = a->n,
                           .before = a->before,
                           .after = a->after,
                           .b = (int)a->b,
                           .hq = (int)a->hq,
                           .hk = (int)a->hk,
                           .group = (int)a->group,
                           .d = (int)a->d,
                           .e = (int)a->e,
                           .scale = a->scale,
                           .softcap = a->softcap};
    if (a->sinks) p.sinks_type = code_of(a->sinks->type), p.sinks_step = a->sinks->strides[0];
    if (a->dsinks) p.dsinks_step = a->dsinks->strides[0];
    for (int d = 0; a->dbias && d < 4; d++) p.bias_shape[d] = a->dbias->shape[d];
    return p;
}

tn_status tni_attention_find(const tn_call *call, tn_launch *l, const char *what, int64_t rows) {
    l->block = ATTENTION_THREADS;
    l->grid = (uint32_t)min(ceil_div(rows, ATTENTION_THREADS / 32), INT32_MAX);
    return tni_cuda_find(call, l, "attention", "attention_%s_%s", what, tn_type_name(tn_in(call, 0)->type));
}

tn_status tni_attention_launch(const tn_call *call, const tn_launch *l, tni_gpu_attention *p, int make, int64_t rows) {
    p->make = make;
    p->rows = rows;
    return rows > 0 ? tn_cuda_launch(call, l, (void *[]){p}) : TN_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static tn_status fill(const tn_call *call, void *state) {
    const attention_job a = attention_job_of(call);
    return tni_attention_find(call, state, "rows", a.b * a.hq * a.m);
}

tn_status tni_attention_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tn_launch), fill, state);
}

tn_status tni_attention_cuda_run(const tn_call *call, void *state) {
    const attention_job a = attention_job_of(call);
    tni_gpu_attention p = tni_attention_gpu(call, &a);
    return tni_attention_launch(call, state, &p, ATTENTION_O, a.b * a.hq * a.m);
}

/* ---- the gradient ------------------------------------------------------------------------------------------------ */

tn_status tni_attention_fill_grad(const tn_call *call, attention_grad_launches *l) {
    const attention_job a = attention_grad_job_of(call);
    const int64_t queries = a.b * a.hq * a.m, keys = a.b * a.hk * a.n;
    TN_TRY(tni_attention_find(call, &l->delta, "delta", queries));
    TN_TRY(tni_attention_find(call, &l->queries, "gradients", queries));
    TN_TRY(tni_attention_find(call, &l->keys, "gradients", keys));
    TN_TRY(tni_attention_find(call, &l->dbias, "dbias", a.dbias ? tn_count(a.dbias) : 0));
    TN_TRY(tni_attention_find(call, &l->dsinks, "dsinks", 0));
    l->dsinks.grid = (uint32_t)a.hq;
    return TN_OK;
}

/* Everything but dq, dk and dv: delta goes first. */
tn_status tni_attention_run_rest(const tn_call *call, const attention_job *a, const attention_grad_launches *l,
                                 tni_gpu_attention *p) {
    TN_TRY(tni_attention_launch(call, &l->delta, p, 0, a->b * a->hq * a->m));
    if (a->dbias) TN_TRY(tni_attention_launch(call, &l->dbias, p, 0, tn_count(a->dbias)));
    if (a->dsinks) TN_TRY(tni_attention_launch(call, &l->dsinks, p, 0, a->hq));
    return TN_OK;
}

static tn_status fill_grad(const tn_call *call, void *state) {
    return tni_attention_fill_grad(call, state);
}

size_t tni_attention_grad_cuda_workspace(const tn_call *call) {
    const attention_job a = attention_grad_job_of(call);
    return (size_t)(a.b * a.hq * a.m) * (a.q->type == TN_F64 ? 8 : 4);
}

tn_status tni_attention_grad_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(attention_grad_launches), fill_grad, state);
}

tn_status tni_attention_run_grad(const tn_call *call, const attention_job *a, const attention_grad_launches *l,
                                 tni_gpu_attention *p) {
    const int64_t queries = a->b * a->hq * a->m, keys = a->b * a->hk * a->n;
    TN_TRY(tni_attention_run_rest(call, a, l, p));
    if (a->dq) TN_TRY(tni_attention_launch(call, &l->queries, p, ATTENTION_DQ, queries));
    if (a->dk) TN_TRY(tni_attention_launch(call, &l->keys, p, ATTENTION_DK, keys));
    if (a->dv) TN_TRY(tni_attention_launch(call, &l->keys, p, ATTENTION_DV, keys));
    return TN_OK;
}

tn_status tni_attention_grad_cuda_run(const tn_call *call, void *state) {
    const attention_job a = attention_grad_job_of(call);
    tni_gpu_attention p = tni_attention_gpu(call, &a);
    return tni_attention_run_grad(call, &a, state, &p);
}
