/* Products on the GPU's tensor cores: "mma", where a warp multiplies what it holds in registers (sm_80 and later), and
 * "hopper", where four warps multiply what is in shared memory (sm_90). "split" is "hopper" with few tiles, that
 * several blocks make together. They read 16 bytes at a time: a matrix that lies otherwise is copied into the workspace
 * first, which is little beside the product. */
#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "gemm_cuda.h"

enum {
    LEAST = 16, /* of n and k, for which tensor cores are worth their tile */
    MMA_TILE = TNI_GEMM_MMA_TILE,
    MMA_THREADS = 256,
    MMA_SHARED = 65536, /* bytes: four steps of both sides */
    HOPPER_ROWS = TNI_GEMM_HOPPER_ROWS,
    HOPPER_STEP = 64, /* of k */
    LINE_BYTES = 128, /* of a box */
    HOPPER_LOOPS = 3, /* of a batch: a tensor map has five dimensions */
};

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* SPLIT: a row's sums depend on how many tiles there are, so on other rows. */
typedef enum tensor_way { MMA, HOPPER, SPLIT } tensor_way;

typedef struct tensor_plan {
    tensor_way way;
    tn_launch pass;
    struct {
        bool single; /* too small, or about ones */
        tn_launch launch, alone;
        tni_gemm_operand a, b;
        const struct hopper_tile *tile;
    } product[TNI_PRODUCTS_MOST];
} tensor_plan;

static const tni_gemm_wants wants[] = {[HOPPER] = {.alike = true}, [SPLIT] = {.alike = true}};

/* m has no say: a row's sums are made in the same order however many rows there are. */
bool tni_gemm_suits_mma(const tni_product *p) {
    return p->n >= LEAST && tni_gemm_terms(p) >= LEAST;
}

static bool fits_map(int64_t size) {
    return size > 0 && size < INT32_MAX;
}

bool tni_gemm_fits_maps(const tni_product *p) {
    bool fits = p->n_batch <= HOPPER_LOOPS && fits_map(p->m) && fits_map(p->n) && fits_map(tni_gemm_terms(p));
    for (int32_t d = 0; d < p->n_batch; d++) fits = fits && fits_map(p->batch[d]);
    return fits;
}

static bool suits_hopper(const tni_product *p) {
    return tni_gemm_suits_mma(p) && tni_gemm_fits_maps(p);
}

static bool takes(const tn_call *call, const tni_product *products, int i, int count, tensor_way way) {
    return (way == MMA ? tni_gemm_suits_mma : suits_hopper)(&products[i]) && !tni_gemm_is_of_ones(call, i, count);
}

static bool takes_any(const tn_call *call, tensor_way way) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool any = false;
    const int count = tni_gemm_products(call, products, &used);
    for (int i = 0; i < count; i++) any = any || takes(call, products, i, count, way);
    return any;
}

static size_t workspace(const tn_call *call, tensor_way way) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used, most;
    const int count = tni_gemm_products(call, products, &used);
    most = used;
    for (int i = 0; i < count; i++) {
        tni_gemm_operand a, b;
        if (!takes(call, products, i, count, way)) continue;
        const size_t bytes = tni_gemm_operands(&products[i], used, &wants[way], &a, &b);
        if (bytes > most) most = bytes;
    }
    return most;
}

tn_status tni_gemm_find_mma(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                            const tni_gemm_operand *b, tn_launch *l) {
    char types[16];
    int64_t tiles;
    TN_TRY(tni_gemm_tiles(call, p, MMA_TILE, MMA_TILE, &tiles));
    l->grid = (uint32_t)tiles;
    l->block = MMA_THREADS;
    l->shared = MMA_SHARED;
    return tni_cuda_find(call, l, "product_mma", "product_mma_%c%c_%s", a->along ? 't' : 'f', b->along ? 't' : 'f',
                         tni_gemm_types(p, types));
}

/* Hopper's tiles, and what they take on an H200, in nanoseconds. A cluster has `blocks` below each other, or as many as
 * k is divided into `parts`. What it takes to add up parts is an estimate. */
typedef struct hopper_tile {
    int cols, blocks, parts;
    int step, end; /* of one tile: 64 of k, and everything else */
} hopper_tile;

static const hopper_tile hopper_tiles[] = {
    {256, 2, 1, 660, 3500}, {256, 1, 1, 670, 3500}, {128, 2, 1, 420, 2500},
    {128, 1, 1, 420, 2500}, {64, 1, 1, 320, 2000},  {256, 1, 2, 670, 6000},
    {128, 1, 2, 420, 4000}, {256, 1, 4, 670, 6000}, {128, 1, 4, 420, 4000},
};

static int64_t hopper_count(const tni_product *p, const hopper_tile *t) {
    int64_t count = ceil_div(p->m, HOPPER_ROWS * t->blocks) * ceil_div(p->n, t->cols);
    for (int32_t d = 0; d < p->n_batch; d++) count *= p->batch[d];
    return count;
}

/* Clusters that run at the same time. SMs come in groups of 16 or a few more, and a cluster is in one of them. */
static int64_t hopper_clusters(const hopper_tile *t, int sms) {
    const int size = t->blocks * t->parts;
    return max(1, (size > 2 ? sms - sms % 16 : sms) / size);
}

/* An f32 y of 16-bit a and b has the first tiles alone: it is added to in large products. Parts are for products that
 * have no more tiles than there are clusters. */
static bool has_tile(const tni_product *p, const hopper_tile *t, int64_t turns, tensor_way way) {
    const bool is_same = p->y.type == p->a.type;
    return (is_same || (t->cols == hopper_tiles[0].cols && t->parts == 1)) &&
           (t->parts == 1 || (way == SPLIT && turns == 1));
}

static double hopper_time(const hopper_tile *t, int64_t turns, int64_t terms) {
    const int64_t steps = ceil_div(ceil_div(terms, HOPPER_STEP), t->parts);
    return (double)turns * ((double)steps * t->step + t->end);
}

int tni_gemm_hopper_cols(int64_t down, int64_t n, int64_t terms, int sms) {
    const hopper_tile *const wide = &hopper_tiles[1], *const narrow = &hopper_tiles[3];
    const int64_t wide_turns = ceil_div(down * ceil_div(n, wide->cols), sms);
    const int64_t narrow_turns = ceil_div(down * ceil_div(n, narrow->cols), sms);
    return hopper_time(wide, wide_turns, terms) <= hopper_time(narrow, narrow_turns, terms) ? wide->cols : narrow->cols;
}

/* The fastest. The sums of an element are the same in all of them that do not divide k. */
static const hopper_tile *choose_hopper(const tni_product *p, int sms, tensor_way way) {
    const hopper_tile *best = NULL;
    double least = 0;
    for (size_t i = 0; i < sizeof hopper_tiles / sizeof *hopper_tiles; i++) {
        const hopper_tile *t = &hopper_tiles[i];
        const int64_t turns = ceil_div(hopper_count(p, t), hopper_clusters(t, sms));
        const double time = hopper_time(t, turns, tni_gemm_terms(p));
        if (!has_tile(p, t, turns, way) || (best && time >= least)) continue;
        best = t;
        least = time;
    }
    return best;
}

/* In some product of the call the parts of k are worth while. */
static bool splits_any(const tn_call *call, int sms) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool any = false;
    const int count = tni_gemm_products(call, products, &used);
    for (int i = 0; i < count; i++) {
        any = any || (takes(call, products, i, count, SPLIT) && choose_hopper(&products[i], sms, SPLIT)->parts > 1);
    }
    return any;
}

/* A block stays on its SM and makes one tile after the other, or one part of a tile. */
static tn_status find_hopper(const tn_call *call, const tni_product *p, tensor_plan *plan, int i) {
    const char a = plan->product[i].a.along ? 't' : 'f', b = plan->product[i].b.along ? 't' : 'f';
    tn_launch *l = &plan->product[i].launch;
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const hopper_tile *t = plan->product[i].tile = choose_hopper(p, gpu->sms, plan->way);
    char types[16];
    int64_t tiles;
    TN_TRY(tni_gemm_tiles(call, p, HOPPER_ROWS, t->cols, &tiles));
    l->cluster = (uint32_t)(t->blocks * t->parts);
    l->grid = (uint32_t)min(hopper_count(p, t), hopper_clusters(t, gpu->sms)) * l->cluster;
    l->block = TNI_GEMM_HOPPER_THREADS;
    l->shared = TNI_GEMM_HOPPER_SHARED;
    return tni_cuda_find(call, l, "product_warpgroup", "product_warpgroup_%dx%d_%c%c_%s", t->cols, t->parts, a, b,
                         tni_gemm_types(p, types));
}

static tn_status fill(const tn_call *call, tensor_plan *plan, tensor_way way) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    plan->way = way;
    TN_TRY(tni_gemm_find_pass(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        const tni_product *p = &products[i];
        TN_TRY(tni_gemm_find_tile(call, p, &plan->product[i].alone));
        plan->product[i].single = !takes(call, products, i, count, way);
        if (plan->product[i].single) continue;
        tni_gemm_operand *a = &plan->product[i].a, *b = &plan->product[i].b;
        tni_gemm_operands(p, used, &wants[way], a, b);
        TN_TRY(way == MMA ? tni_gemm_find_mma(call, p, a, b, &plan->product[i].launch) : find_hopper(call, p, plan, i));
    }
    return TN_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* CUtensorMapDataType … CUtensorMapL2promotion */
enum { MAP_U8 = 0, MAP_F16 = 6, MAP_BF16 = 9, MAP_PLAIN = 0, MAP_SWIZZLE_128 = 3, MAP_PROMOTE_256 = 3, MAP_ZEROS = 0 };

/* Boxes of 128 bytes of each line, or of 64 numbers and as many lines: of x, which has `count` lines. */
static tn_status make_map(const tn_call *call, const tni_product *p, const tni_gpu_matrix *x, int64_t count,
                          int64_t pitch, bool along, int box_lines, unsigned long long *map) {
    const tni_cuda_api *cu = tni_cuda(call->name);
    const tn_type type = p->a.type;
    const int kind = type == TN_F16 ? MAP_F16 : type == TN_BF16 ? MAP_BF16 : MAP_U8;
    const int64_t terms = tni_gemm_terms(p);
    uint64_t size[5] = {(uint64_t)(along ? terms : count), (uint64_t)(along ? count : terms), 1, 1, 1};
    const uint64_t bytes = tn_type_size(type);
    uint64_t strides[4] = {(uint64_t)pitch * bytes, 16, 16, 16}; /* bytes, but for the first dimension */
    const uint32_t box[5] = {(uint32_t)(LINE_BYTES / bytes), (uint32_t)(along ? box_lines : HOPPER_STEP), 1, 1, 1};
    const uint32_t steps[5] = {1, 1, 1, 1, 1};
    if (!cu) return TN_SYSTEM;
    if (size[1] == 1) strides[0] = 16; /* whatever it was */
    for (int32_t d = 0; d < p->n_batch; d++) {
        if (x->batch[d] == 0 || p->batch[d] == 1) continue; /* of one matrix the stride may be anything */
        size[2 + d] = (uint64_t)p->batch[d];
        strides[1 + d] = (uint64_t)x->batch[d] * bytes;
    }
    return tn_cuda_failed(call, "cuTensorMapEncodeTiled",
                          cu->cuTensorMapEncodeTiled(map, kind, 5, x->data, size, strides, box, steps, MAP_PLAIN,
                                                     MAP_SWIZZLE_128, MAP_PROMOTE_256, MAP_ZEROS));
}

static tn_status make_maps(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                           const tni_gemm_operand *b, int cols, tni_gpu_warpgroup *w) {
    const tni_gpu_matrix *of_a = &w->product.a, *of_b = &w->product.b;
    TN_TRY(make_map(call, p, of_a, p->m, a->along ? of_a->row : of_a->col, a->along, HOPPER_ROWS, w->a));
    return make_map(call, p, of_b, p->n, b->along ? of_b->col : of_b->row, b->along, cols, w->b);
}

tn_status tni_gemm_make_maps(const tn_call *call, const tni_product *p, const tni_gemm_operand *a,
                             const tni_gemm_operand *b, int cols, tni_gpu_warpgroup *w) {
    tni_cuda_scope scope;
    TN_TRY(tni_cuda_enter(call->name, call->device.index, &scope)); /* which the driver wants for a map */
    const tn_status status = make_maps(call, p, a, b, cols, w);
    tni_cuda_leave(&scope);
    return status;
}

static tn_status run_hopper(const tn_call *call, const tni_product *p, const tensor_plan *plan, int i,
                            const tni_gpu_product *job) {
    const hopper_tile *t = plan->product[i].tile;
    tni_gpu_warpgroup w = {.product = *job, .tiles = hopper_count(p, t)};
    TN_TRY(tni_gemm_make_maps(call, p, &plan->product[i].a, &plan->product[i].b, t->cols / t->blocks, &w));
    return tn_cuda_launch(call, &plan->product[i].launch, (void *[]){&w});
}

static tn_status run_product(const tn_call *call, const tni_product *p, const tensor_plan *plan, int i) {
    const hopper_tile *t = plan->product[i].tile;
    tni_gpu_product job = t ? tni_gemm_job(p, HOPPER_ROWS * t->blocks, t->cols) : tni_gemm_job(p, MMA_TILE, MMA_TILE);
    TN_TRY(tni_gemm_copy_operands(call, p, &plan->product[i].a, &plan->product[i].b, &job));
    if (!tni_gemm_is_aligned(&job)) return tni_gemm_run_tile(call, p, false, &plan->product[i].alone);
    if (t) return run_hopper(call, p, plan, i, &job);
    return tn_cuda_launch(call, &plan->product[i].launch, (void *[]){&job});
}

static tn_status run(const tn_call *call, const tensor_plan *plan) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    const int count = tni_gemm_products(call, products, &used);
    TN_TRY(tni_gemm_pass_back(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        const bool of_ones = tni_gemm_is_of_ones(call, i, count);
        TN_TRY(plan->product[i].single ? tni_gemm_run_tile(call, &products[i], of_ones, &plan->product[i].alone)
                                       : run_product(call, &products[i], plan, i));
    }
    return TN_OK;
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

bool tni_gemm_mma_cuda_accepts(const tn_call *call) {
    return takes_any(call, MMA) && tni_cuda_has(call, "product_mma", 80);
}

/* The instructions are those of sm_90a alone: later GPUs have others. */
bool tni_gemm_is_hopper(const tn_gpu *gpu, const char *unit) {
    const tni_image *image = tni_image_for(unit, gpu->major, gpu->minor);
    return image && image->arch == 90 && image->kind == 'a';
}

/* Why a GPU cannot be used `prepare` says. */
bool tni_gemm_hopper_cuda_accepts(const tn_call *call) {
    const tn_gpu *gpu;
    return takes_any(call, HOPPER) &&
           (tn_cuda_gpu(call, &gpu) != TN_OK || tni_gemm_is_hopper(gpu, "product_warpgroup"));
}

bool tni_gemm_split_cuda_accepts(const tn_call *call) {
    const tn_gpu *gpu;
    return tni_gemm_rows_may_vary() && tn_cuda_gpu(call, &gpu) == TN_OK &&
           tni_gemm_is_hopper(gpu, "product_warpgroup") && splits_any(call, gpu->sms);
}

#define KERNEL(name, way)                                                         \
    static tn_status fill_##name(const tn_call *call, void *state) {              \
        return fill(call, state, way);                                            \
    }                                                                             \
    size_t tni_gemm_##name##_cuda_workspace(const tn_call *call) {                \
        return workspace(call, way);                                              \
    }                                                                             \
    tn_status tni_gemm_##name##_cuda_prepare(const tn_call *call, void **state) { \
        return tni_cuda_prepare(call, sizeof(tensor_plan), fill_##name, state);   \
    }                                                                             \
    tn_status tni_gemm_##name##_cuda_run(const tn_call *call, void *state) {      \
        return run(call, state);                                                  \
    }
KERNEL(mma, MMA)
KERNEL(hopper, HOPPER)
KERNEL(split, SPLIT)
