/* attention on the GPU's tensor cores: "mma", where a warp multiplies what it holds in registers (sm_80 and later). It
 * reads 16 bytes at a time; where a pointer begins elsewhere, the kernels of attention_cuda.c take the call. */
#include "attention_cuda.h"

TNI_CUDA_DECLARE(attention)
TNI_CUDA_DECLARE(attention_grad)
TNI_CUDA_DECLARE(attention_mma)
TNI_CUDA_DECLARE(attention_grad_mma)
bool tni_attention_mma_cuda_accepts_dense(const tn_call *call);
bool tni_attention_grad_mma_cuda_accepts_dense(const tn_call *call);

enum {
    PIECE = 8,      /* numbers in 16 bytes */
    MOST = 256,     /* of d and e */
    MOST_BACK = 128 /* of the gradient's */
};

/* What a block has, by the size of its lines. */
typedef struct mma_size {
    int size, rows, keys, warps;
} mma_size;
static const mma_size sizes[] = {{64, 128, 64, 8}, {128, 128, 64, 8}, {256, 64, 32, 4}};
enum { BACK_ROWS = 64, BACK_KEYS = 64, BACK_STEP = 32 /* rows that keys meet at a time */ };

static const mma_size *size_of(const attention_job *a) {
    const mma_size *s = sizes;
    while (s->size < max(a->d, a->e)) s++;
    return s;
}

/* ---- which calls ------------------------------------------------------------------------------------------------- */

/* Rows begin at multiples of 16 bytes, if the tensor does. */
static bool lies_well(const tn_view *x) {
    bool well = x->strides[3] == 1 || x->shape[3] == 1;
    for (int d = 0; d < 3; d++) well = well && (x->shape[d] == 1 || x->strides[d] % PIECE == 0);
    return well;
}

static bool fits(const tn_call *call, const attention_job *a, int64_t most, const char *unit) {
    const int64_t blocks = a->b * a->hk * (ceil_div(a->group * a->m, 64) + ceil_div(a->n, 64));
    return a->d >= 1 && a->e >= 1 && max(a->d, a->e) <= most && a->b * a->hk * a->m * a->n > 0 && blocks < INT32_MAX &&
           a->group * a->m < INT32_MAX && tni_cuda_has(call, unit, 80);
}

static bool are_dense_well(const attention_job *a) {
    return a->d % PIECE == 0 && a->e % PIECE == 0;
}

bool tni_attention_mma_cuda_accepts(const tn_call *call) {
    const attention_job a = attention_job_of(call);
    return fits(call, &a, MOST, "attention_mma") && lies_well(a.q) && lies_well(a.k) && lies_well(a.v);
}

bool tni_attention_mma_cuda_accepts_dense(const tn_call *call) {
    const attention_job a = attention_job_of(call);
    return fits(call, &a, MOST, "attention_mma") && are_dense_well(&a);
}

bool tni_attention_grad_mma_cuda_accepts(const tn_call *call) {
    const attention_job a = attention_grad_job_of(call);
    return fits(call, &a, MOST_BACK, "attention_grad_mma") && lies_well(a.q) && lies_well(a.k) && lies_well(a.v) &&
           (!a.dy || lies_well(a.dy));
}

bool tni_attention_grad_mma_cuda_accepts_dense(const tn_call *call) {
    const attention_job a = attention_grad_job_of(call);
    return fits(call, &a, MOST_BACK, "attention_grad_mma") && are_dense_well(&a);
}

static bool begins_well(const tn_view *x) {
    return !x || (uintptr_t)x->data % 16 == 0;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

typedef struct plan {
    tn_launch tiles, rows;
} plan;

static tn_status fill(const tn_call *call, void *state) {
    plan *p = state;
    const attention_job a = attention_job_of(call);
    const mma_size *s = size_of(&a);
    p->tiles.block = (uint32_t)s->warps * 32;
    p->tiles.grid = (uint32_t)(a.b * a.hk * ceil_div(a.group * a.m, s->rows));
    p->tiles.shared = (uint32_t)((s->rows + 4 * s->keys) * s->size * 2);
    TN_TRY(tni_attention_find(call, &p->rows, "rows", a.b * a.hq * a.m));
    return tni_cuda_find(call, &p->tiles, "attention_mma", "attention_mma_%d_%s", s->size, tn_type_name(a.q->type));
}

size_t tni_attention_mma_cuda_workspace(const tn_call *call) {
    (void)call;
    return 0;
}

tn_status tni_attention_mma_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

tn_status tni_attention_mma_cuda_run(const tn_call *call, void *state) {
    const plan *l = state;
    const attention_job a = attention_job_of(call);
    tni_gpu_attention p = tni_attention_gpu(call, &a);
    const bool well = begins_well(a.q) && begins_well(a.k) && begins_well(a.v);
    if (well) return tn_cuda_launch(call, &l->tiles, (void *[]){&p});
    return tni_attention_launch(call, &l->rows, &p, ATTENTION_O, a.b * a.hq * a.m);
}

/* ---- the gradient ------------------------------------------------------------------------------------------------ */

typedef struct grad_plan {
    attention_grad_launches rest;
    tn_launch dq, dkv;
} grad_plan;

static tn_status fill_grad(const tn_call *call, void *state) {
    grad_plan *p = state;
    const attention_job a = attention_grad_job_of(call);
    const int size = size_of(&a)->size;
    const char *type = tn_type_name(a.q->type);
    TN_TRY(tni_attention_fill_grad(call, &p->rest));
    p->dq.block = p->dkv.block = 128;
    p->dq.grid = (uint32_t)(a.b * a.hk * ceil_div(a.group * a.m, BACK_ROWS));
    p->dkv.grid = (uint32_t)(a.b * a.hk * ceil_div(a.n, BACK_KEYS));
    p->dq.shared = (uint32_t)(2 * BACK_ROWS + 4 * BACK_KEYS) * (uint32_t)size * 2;
    p->dkv.shared = (uint32_t)(2 * BACK_KEYS + 4 * BACK_STEP) * (uint32_t)size * 2 + 4 * BACK_STEP * 4;
    TN_TRY(tni_cuda_find(call, &p->dq, "attention_grad_mma", "attention_grad_mma_dq_%d_%s", size, type));
    return tni_cuda_find(call, &p->dkv, "attention_grad_mma", "attention_grad_mma_dkv_%d_%s", size, type);
}

size_t tni_attention_grad_mma_cuda_workspace(const tn_call *call) {
    return tni_attention_grad_cuda_workspace(call);
}

tn_status tni_attention_grad_mma_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(grad_plan), fill_grad, state);
}

tn_status tni_attention_grad_mma_cuda_run(const tn_call *call, void *state) {
    const grad_plan *l = state;
    const attention_job a = attention_grad_job_of(call);
    tni_gpu_attention p = tni_attention_gpu(call, &a);
    if (!begins_well(a.q) || !begins_well(a.k) || !begins_well(a.v) || !begins_well(a.dy))
        return tni_attention_run_grad(call, &a, &l->rest, &p);
    TN_TRY(tni_attention_run_rest(call, &a, &l->rest, &p));
    if (a.dq) TN_TRY(tn_cuda_launch(call, &l->dq, (void *[]){&p}));
    if (a.dk || a.dv) TN_TRY(tn_cuda_launch(call, &l->dkv, (void *[]){&p}));
    return TN_OK;
}
