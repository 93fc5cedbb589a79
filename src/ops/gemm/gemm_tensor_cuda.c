/* Products on the GPU's tensor cores: "mma", where a warp multiplies what it holds in registers (sm_80 and later), and
 * "hopper", where four warps multiply what is in shared memory (sm_90). Both read 16 bytes at a time: a matrix that
 * lies otherwise is copied into the workspace first, which is little beside the product. */
#include <string.h>

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "cuda/copy/copy.h"
#include "gemm_cuda.h"

enum {
    PIECE = 8,  /* 16-bit numbers in 16 bytes */
    LEAST = 16, /* of n and k, for which tensor cores are worth their tile */
    MMA_TILE = 128,
    MMA_THREADS = 256,
    MMA_SHARED = 65536, /* bytes: four steps of both sides */
    HOPPER_ROWS = 128,
    HOPPER_THREADS = 384,
    HOPPER_STEP = 64, /* of k */
    HOPPER_LOOPS = 3, /* of a batch: a tensor map has five dimensions */
};

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* How a or b gets to the kernel. Its lines are rows of a, or columns of b. */
typedef struct operand {
    bool copied, along; /* along: dense along k */
    int64_t pitch;      /* of the copy */
    size_t offset;      /* of the copy in the workspace */
} operand;

/* a or b as lines: `line` and `step` are its strides from line to line and along k. */
typedef struct lines {
    const tni_matrix *x;
    int64_t count, line, step;
} lines;

static lines lines_of_a(const tni_product *p) {
    return (lines){&p->a, p->m, p->a.row, p->a.column};
}

static lines lines_of_b(const tni_product *p) {
    return (lines){&p->b, p->n, p->b.column, p->b.row};
}

static int64_t terms_of(const tni_product *p) {
    int64_t terms = p->k;
    for (int32_t d = 0; d < p->n_sums; d++) terms *= p->sums[d];
    return terms;
}

/* `count` lines, `pitch` apart, and the matrices of the batch begin at multiples of 16 bytes. */
static bool in_pieces(const tni_product *p, const tni_matrix *x, int64_t count, int64_t pitch) {
    bool fits = p->n_sums == 0 && (count <= 1 || (pitch > 0 && pitch % PIECE == 0));
    for (int32_t d = 0; d < p->n_batch; d++) {
        fits = fits && (p->batch[d] == 1 || (x->batch[d] >= 0 && x->batch[d] % PIECE == 0));
    }
    return fits;
}

/* As it lies, if that is in pieces of 16 bytes; else as a dense copy along k. */
static operand operand_of(const tni_product *p, lines l, bool must_be_along, size_t *bytes) {
    const bool along = (p->k <= 1 || l.step == 1) && in_pieces(p, l.x, l.count, l.line);
    const bool across = (l.count <= 1 || l.line == 1) && in_pieces(p, l.x, p->k, l.step);
    if (along || (across && !must_be_along)) return (operand){.along = along};
    int64_t entries = 1;
    for (int32_t d = 0; d < p->n_batch; d++) entries *= l.x->batch[d] ? p->batch[d] : 1;
    const operand o = {.copied = true, .along = true, .pitch = round_up(terms_of(p), PIECE), .offset = *bytes};
    *bytes += (size_t)round_up(entries * l.count * o.pitch * 2, 256);
    return o;
}

/* Copies lie behind what the call uses anyway; products follow each other and take the same place. Returns where they
 * end. The Hopper kernel has none for a dense across k beside b along it. */
static size_t operands_of(const tni_product *p, size_t used, bool hopper, operand *a, operand *b) {
    used = (size_t)round_up((int64_t)used, 256);
    *b = operand_of(p, lines_of_b(p), false, &used);
    *a = operand_of(p, lines_of_a(p), hopper && b->along, &used);
    return used;
}

/* The operand as dense lines in the workspace; *job then says where it lies. */
static tn_status copy_operand(const tn_call *call, const tni_product *p, lines l, const operand *o,
                              tni_gpu_matrix *job) {
    int64_t shape[TN_MAX_RANK], from_strides[TN_MAX_RANK], to_strides[TN_MAX_RANK], next = l.count * o->pitch;
    int64_t inner = p->k;
    int32_t n = 0;
    for (int32_t d = p->n_batch - 1; d >= 0; d--) {
        job->batch[d] = 0;
        if (!l.x->batch[d] || p->batch[d] == 1) continue;
        shape[n] = p->batch[d];
        from_strides[n] = l.x->batch[d];
        job->batch[d] = to_strides[n++] = next;
        next *= p->batch[d];
    }
    shape[n] = l.count;
    from_strides[n] = l.line;
    to_strides[n++] = o->pitch;
    for (int32_t d = p->n_sums - 1; d >= 0; d--) {
        shape[n] = p->sums[d];
        from_strides[n] = l.x->sum[d];
        to_strides[n++] = inner;
        inner *= p->sums[d];
    }
    shape[n] = p->k;
    from_strides[n] = l.step;
    to_strides[n++] = 1;
    job->data = (char *)call->workspace + o->offset;
    const tn_view from = {.data = l.x->data, .type = l.x->type, .ndim = n, .shape = shape, .strides = from_strides};
    const tn_view to = {.data = job->data, .type = l.x->type, .ndim = n, .shape = shape, .strides = to_strides};
    return tni_cuda_copy(call, &to, &from);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

typedef struct tensor_plan {
    bool hopper;
    tn_launch pass;
    struct {
        bool single; /* too small, or about ones */
        tn_launch launch, tile;
        operand a, b;
        int cols; /* of a tile of Hopper's */
    } product[TNI_PRODUCTS_MOST];
} tensor_plan;

/* m has no say: a row's sums are made in the same order however many rows there are. */
static bool suits(const tni_product *p) {
    return p->n >= LEAST && terms_of(p) >= LEAST;
}

/* Sizes that a tensor map can have, with the copy's. */
static bool suits_hopper(const tni_product *p) {
    const int64_t most = INT32_MAX;
    bool fits = suits(p) && p->n_batch <= HOPPER_LOOPS && p->m < most && p->n < most && terms_of(p) < most;
    for (int32_t d = 0; d < p->n_batch; d++) fits = fits && p->batch[d] < most;
    return fits;
}

static bool takes(const tn_call *call, const tni_product *products, int i, int count, bool hopper) {
    return (hopper ? suits_hopper : suits)(&products[i]) && !tni_gemm_is_of_ones(call, i, count);
}

static bool takes_any(const tn_call *call, bool hopper) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool any = false;
    const int count = tni_gemm_products(call, products, &used);
    for (int i = 0; i < count; i++) any = any || takes(call, products, i, count, hopper);
    return any;
}

static size_t workspace(const tn_call *call, bool hopper) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used, most;
    const int count = tni_gemm_products(call, products, &used);
    most = used;
    for (int i = 0; i < count; i++) {
        operand a, b;
        if (!takes(call, products, i, count, hopper)) continue;
        const size_t bytes = operands_of(&products[i], used, hopper, &a, &b);
        if (bytes > most) most = bytes;
    }
    return most;
}

static tn_status find_mma(const tn_call *call, const tni_product *p, tensor_plan *plan, int i) {
    const char a = plan->product[i].a.along ? 't' : 'f', b = plan->product[i].b.along ? 't' : 'f';
    tn_launch *l = &plan->product[i].launch;
    int64_t tiles;
    TN_TRY(tni_gemm_tiles(call, p, MMA_TILE, MMA_TILE, &tiles));
    l->grid = (uint32_t)tiles;
    l->block = MMA_THREADS;
    l->shared = MMA_SHARED;
    return tni_cuda_find(call, l, "product_mma", "product_mma_%c%c_%s", a, b, tn_type_name(p->y.type));
}

/* Wide tiles where they keep all SMs busy. A block stays on its SM and makes one tile after the other. */
static tn_status find_hopper(const tn_call *call, const tni_product *p, tensor_plan *plan, int i) {
    const char a = plan->product[i].a.along ? 't' : 'f', b = plan->product[i].b.along ? 't' : 'f';
    tn_launch *l = &plan->product[i].launch;
    const tn_gpu *gpu;
    int64_t tiles;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    plan->product[i].cols = 256;
    TN_TRY(tni_gemm_tiles(call, p, HOPPER_ROWS, 256, &tiles));
    if (tiles < gpu->sms) {
        plan->product[i].cols = 128;
        TN_TRY(tni_gemm_tiles(call, p, HOPPER_ROWS, 128, &tiles));
    }
    const int cols = plan->product[i].cols, stages = cols == 256 ? 4 : 6;
    l->grid = (uint32_t)min(tiles, gpu->sms);
    l->block = HOPPER_THREADS;
    l->shared = (uint32_t)(1024 + stages * ((HOPPER_ROWS + cols) * 128 + 16));
    return tni_cuda_find(call, l, "product_warpgroup", "product_warpgroup_%d_%c%c_%s", cols, a, b,
                         tn_type_name(p->y.type));
}

static tn_status fill(const tn_call *call, tensor_plan *plan, bool hopper) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    plan->hopper = hopper;
    TN_TRY(tni_gemm_find_pass(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        const tni_product *p = &products[i];
        TN_TRY(tni_gemm_find_tile(call, p, &plan->product[i].tile));
        plan->product[i].single = !takes(call, products, i, count, hopper);
        if (plan->product[i].single) continue;
        operands_of(p, used, hopper, &plan->product[i].a, &plan->product[i].b);
        TN_TRY((hopper ? find_hopper : find_mma)(call, p, plan, i));
    }
    return TN_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* CUtensorMapDataType … CUtensorMapL2promotion */
enum { MAP_F16 = 6, MAP_BF16 = 9, MAP_PLAIN = 0, MAP_SWIZZLE_128 = 3, MAP_PROMOTE_256 = 3, MAP_ZEROS = 0 };

/* Boxes of 64 numbers and as many lines: of x, which has `count` lines. */
static tn_status make_map(const tn_call *call, const tni_product *p, const tni_gpu_matrix *x, int64_t count,
                          int64_t pitch, bool along, int box_lines, unsigned long long *map) {
    const tni_cuda_api *cu = tni_cuda(call->name);
    const int64_t terms = terms_of(p);
    uint64_t size[5] = {(uint64_t)(along ? terms : count), (uint64_t)(along ? count : terms), 1, 1, 1};
    uint64_t strides[4] = {(uint64_t)pitch * 2, 16, 16, 16}; /* bytes, but for the first dimension */
    const uint32_t box[5] = {HOPPER_STEP, (uint32_t)(along ? box_lines : HOPPER_STEP), 1, 1, 1};
    const uint32_t steps[5] = {1, 1, 1, 1, 1};
    if (!cu) return TN_SYSTEM;
    if (size[1] == 1) strides[0] = 16; /* whatever it was */
    for (int32_t d = 0; d < p->n_batch; d++) {
        if (x->batch[d] == 0) continue;
        size[2 + d] = (uint64_t)p->batch[d];
        strides[1 + d] = (uint64_t)x->batch[d] * 2;
    }
    return tn_cuda_failed(call, "cuTensorMapEncodeTiled",
                          cu->cuTensorMapEncodeTiled(map, p->y.type == TN_F16 ? MAP_F16 : MAP_BF16, 5, x->data, size,
                                                     strides, box, steps, MAP_PLAIN, MAP_SWIZZLE_128, MAP_PROMOTE_256,
                                                     MAP_ZEROS));
}

static tn_status run_hopper(const tn_call *call, const tni_product *p, const tensor_plan *plan, int i,
                            const tni_gpu_product *job) {
    const operand *a = &plan->product[i].a, *b = &plan->product[i].b;
    const int cols = plan->product[i].cols;
    tni_gpu_warpgroup w = {.product = *job};
    int64_t tiles;
    TN_TRY(make_map(call, p, &job->a, p->m, a->along ? job->a.row : job->a.col, a->along, HOPPER_ROWS, w.a));
    TN_TRY(make_map(call, p, &job->b, p->n, b->along ? job->b.col : job->b.row, b->along, cols, w.b));
    TN_TRY(tni_gemm_tiles(call, p, HOPPER_ROWS, cols, &tiles));
    w.tiles = tiles;
    return tn_cuda_launch(call, &plan->product[i].launch, (void *[]){&w});
}

static bool is_aligned(const tni_gpu_matrix *x) {
    return (uintptr_t)x->data % 16 == 0;
}

static tn_status run_product(const tn_call *call, const tni_product *p, const tensor_plan *plan, int i) {
    const operand *a = &plan->product[i].a, *b = &plan->product[i].b;
    const int cols = plan->hopper ? plan->product[i].cols : MMA_TILE;
    tni_gpu_product job = tni_gemm_job(p, plan->hopper ? HOPPER_ROWS : MMA_TILE, cols);
    if (a->copied) {
        TN_TRY(copy_operand(call, p, lines_of_a(p), a, &job.a));
        job.a.row = a->pitch;
        job.a.col = 1;
    }
    if (b->copied) {
        TN_TRY(copy_operand(call, p, lines_of_b(p), b, &job.b));
        job.b.col = b->pitch;
        job.b.row = 1;
    }
    if (!is_aligned(&job.a) || !is_aligned(&job.b)) {
        return tni_gemm_run_tile(call, p, false, &plan->product[i].tile);
    }
    job.k = terms_of(p);
    job.n_sums = 0;
    if (plan->hopper) return run_hopper(call, p, plan, i, &job);
    return tn_cuda_launch(call, &plan->product[i].launch, (void *[]){&job});
}

static tn_status run(const tn_call *call, const tensor_plan *plan) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    TN_TRY(tni_gemm_pass_back(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        const bool of_ones = tni_gemm_is_of_ones(call, i, count);
        TN_TRY(plan->product[i].single ? tni_gemm_run_tile(call, &products[i], of_ones, &plan->product[i].tile)
                                       : run_product(call, &products[i], plan, i));
    }
    return TN_OK;
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

bool tni_gemm_mma_cuda_accepts(const tn_call *call) {
    return takes_any(call, false) && tni_cuda_has(call, "product_mma", 80);
}

size_t tni_gemm_mma_cuda_workspace(const tn_call *call) {
    return workspace(call, false);
}

static tn_status fill_mma(const tn_call *call, void *state) {
    return fill(call, state, false);
}

tn_status tni_gemm_mma_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tensor_plan), fill_mma, state);
}

tn_status tni_gemm_mma_cuda_run(const tn_call *call, void *state) {
    return run(call, state);
}

/* The instructions are those of sm_90a alone: later GPUs have others. */
bool tni_gemm_hopper_cuda_accepts(const tn_call *call) {
    const tn_gpu *gpu;
    if (!takes_any(call, true) || tn_cuda_gpu(call, &gpu) != TN_OK) return false;
    const tni_image *image = tni_image_for("product_warpgroup", gpu->major, gpu->minor);
    return image && image->arch == 90 && image->kind == 'a';
}

size_t tni_gemm_hopper_cuda_workspace(const tn_call *call) {
    return workspace(call, true);
}

static tn_status fill_hopper(const tn_call *call, void *state) {
    return fill(call, state, true);
}

tn_status tni_gemm_hopper_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(tensor_plan), fill_hopper, state);
}

tn_status tni_gemm_hopper_cuda_run(const tn_call *call, void *state) {
    return run(call, state);
}
