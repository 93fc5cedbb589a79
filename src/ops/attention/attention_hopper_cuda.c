/* attention on Hopper: "hopper", where four warps multiply what is in shared memory (sm_90), for heads of 64 and 128
 * numbers without bias, mask and cap. What is not as CUDA's tensor maps want it, attention_cuda.c's kernels take. */
#include "attention_cuda.h"
#include "ops/gemm/gemm_cuda.h"

TNI_CUDA_DECLARE(attention_hopper)
bool tni_attention_hopper_cuda_accepts_dense(const tn_call *call);

enum {
    LINES = 128, /* of a tile: rows, or keys */
    THREADS = 384,
    BOX_COLUMNS = 64,
};

static bool fits_map(int64_t size) {
    return size > 0 && size < INT32_MAX;
}

/* Rows, heads and entries are multiples of 16 bytes apart, and not in one place. */
static bool lies_well(const tn_view *x) {
    bool well = x->strides[3] == 1;
    for (int d = 0; d < 3; d++) well = well && (x->shape[d] == 1 || (x->strides[d] > 0 && x->strides[d] % 8 == 0));
    return well;
}

static bool suits(const tn_call *call, const attention_job *a) {
    const tn_gpu *gpu;
    const bool sizes = a->d == a->e && (a->d == 64 || a->d == 128) && fits_map(a->m) && fits_map(a->n) &&
                       fits_map(a->hq) && fits_map(a->b) && a->b * a->hq * ceil_div(a->m, LINES) < INT32_MAX;
    const bool plain = !a->bias && !a->mask && a->softcap == 0 && a->scale > 0;
    return sizes && plain && tn_cuda_gpu(call, &gpu) == TN_OK && tni_gemm_is_hopper(gpu, "attention_hopper");
}

bool tni_attention_hopper_cuda_accepts(const tn_call *call) {
    const attention_job a = attention_job_of(call);
    return suits(call, &a) && lies_well(a.q) && lies_well(a.k) && lies_well(a.v);
}

bool tni_attention_hopper_cuda_accepts_dense(const tn_call *call) {
    const attention_job a = attention_job_of(call);
    return suits(call, &a);
}

typedef struct plan {
    tn_launch tiles, rows;
} plan;

static tn_status fill(const tn_call *call, void *state) {
    plan *p = state;
    const attention_job a = attention_job_of(call);
    p->tiles.block = THREADS;
    p->tiles.grid = (uint32_t)(a.b * a.hq * ceil_div(a.m, LINES));
    p->tiles.shared = (uint32_t)(1024 + 5 * LINES * a.d * 2 + 128);
    TN_TRY(tni_attention_find(call, &p->rows, "rows", a.b * a.hq * a.m));
    return tni_cuda_find(call, &p->tiles, "attention_hopper", "attention_hopper_%d_%s", (int)a.d,
                         tn_type_name(a.q->type));
}

size_t tni_attention_hopper_cuda_workspace(const tn_call *call) {
    (void)call;
    return 0;
}

tn_status tni_attention_hopper_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(plan), fill, state);
}

/* CUtensorMapDataType … CUtensorMapL2promotion */
enum { MAP_F16 = 6, MAP_BF16 = 9, MAP_PLAIN = 0, MAP_SWIZZLE_128 = 3, MAP_PROMOTE_256 = 3, MAP_ZEROS = 0 };

/* Columns, rows, heads, entries; boxes of 64 columns of a tile. Strides are in bytes, but for the first dimension. */
static tn_status make_map(const tn_call *call, const tn_view *x, unsigned long long *map) {
    const tni_cuda_api *cu = tni_cuda(call->name);
    const uint32_t box[5] = {BOX_COLUMNS, LINES, 1, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
    uint64_t size[5] = {(uint64_t)x->shape[3], 1, 1, 1, 1}, strides[4] = {16, 16, 16, 16};
    if (!cu) return TN_SYSTEM;
    for (int d = 0; d < 3; d++) {
        size[3 - d] = (uint64_t)x->shape[d];
        if (x->shape[d] > 1) strides[2 - d] = (uint64_t)x->strides[d] * 2;
    }
    return tn_cuda_failed(call, "cuTensorMapEncodeTiled",
                          cu->cuTensorMapEncodeTiled(map, x->type == TN_F16 ? MAP_F16 : MAP_BF16, 5, x->data, size,
                                                     strides, box, steps, MAP_PLAIN, MAP_SWIZZLE_128, MAP_PROMOTE_256,
                                                     MAP_ZEROS));
}

static bool begins_well(const tn_view *x) {
    return (uintptr_t)x->data % 16 == 0;
}

tn_status tni_attention_hopper_cuda_run(const tn_call *call, void *state) {
    const plan *l = state;
    const attention_job a = attention_job_of(call);
    tni_gpu_attention_hopper p = {.attention = tni_attention_gpu(call, &a)};
    tni_cuda_scope scope;
    if (!begins_well(a.q) || !begins_well(a.k) || !begins_well(a.v))
        return tni_attention_launch(call, &l->rows, &p.attention, ATTENTION_O, a.b * a.hq * a.m);
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope)); /* which the driver wants for a map */
    tn_status status = make_map(call, a.q, p.q);
    if (status == TN_OK) status = make_map(call, a.k, p.k);
    if (status == TN_OK) status = make_map(call, a.v, p.v);
    if (status == TN_OK) status = tn_cuda_launch(call, &l->tiles, (void *[]){&p});
    tni_cuda_leave(&scope);
    return status;
}
