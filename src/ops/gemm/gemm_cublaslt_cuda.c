/* Products by NVIDIA's cuBLASLt, where it is found: kernel "cublaslt". `prepare` has it choose an algorithm for the
 * shape. Whatever it cannot make, or refuses when it comes to it, is made by Tenon's own kernels, which are prepared
 * beside it.
 *
 * It counts columns first. So for y = a b, row by row, it is asked for y^T = b^T a^T: its A is b and its B is a. */
#include <stdatomic.h>

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "core/run/watch.h"
#include "cuda/libraries/cublaslt.h"
#include "gemm_cuda.h"

enum { MOST_RUNS = 64, LT_ALIGNMENT = 256 };

/* How one product of a call is made. */
typedef struct lt_product {
    bool by_library;
    bool makes_next; /* with the gradient of the weights, that of the bias */
    bool has_mma, relu_after;
    tn_launch tile, mma, relu;
    tni_gemm_operand a, b;
    tni_lt_plan lt;
    size_t copies_end; /* in the workspace */
    _Atomic bool has_failed;
} lt_product;

typedef struct lt_call {
    tn_launch pass;
    size_t workspace;
    lt_product product[TNI_PRODUCTS_MOST];
} lt_call;

/* ---- which way round --------------------------------------------------------------------------------------------- */

/* The values before relu go to z, if there is one, and y is made of it. */
static tni_matrix *target_of(tni_product *p) {
    return p->z.type == TN_NO_TYPE ? &p->y : &p->z;
}

static bool is_by_rows(const tni_product *p, const tni_matrix *x) {
    return (p->n == 1 || x->column == 1) && (p->m == 1 || x->row >= p->n);
}

static bool is_by_columns(const tni_product *p, const tni_matrix *x) {
    return (p->m == 1 || x->row == 1) && (p->n == 1 || x->column >= p->m);
}

static tni_matrix transposed(tni_matrix x) {
    const int64_t row = x.row;
    x.row = x.column;
    x.column = row;
    return x;
}

/* y^T = b^T a^T where y lies column by column. A bias would belong to rows then. */
static void turn(tni_product *p) {
    const tni_matrix *target = target_of(p), a = p->a;
    const int64_t m = p->m;
    if (is_by_rows(p, target) || !is_by_columns(p, target) || p->bias.type != TN_NO_TYPE) return;
    p->a = transposed(p->b);
    p->b = transposed(a);
    p->y = transposed(p->y);
    p->z = transposed(p->z);
    p->residual = transposed(p->residual);
    p->m = p->n;
    p->n = m;
}

static int products_of(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST], size_t *used) {
    const int count = tni_gemm_products(call, products, used);
    for (int i = 0; i < count; i++) {
        if (!tni_gemm_is_of_ones(call, i, count)) turn(&products[i]);
    }
    return count;
}

/* ---- the batch --------------------------------------------------------------------------------------------------- */

/* Loops over the batch, of which the library makes the last one in a run. Strides of its A, B, C, D. */
typedef struct batch {
    int32_t n;
    int64_t size[TN_MAX_RANK + 1], stride[TN_MAX_RANK + 1][4];
} batch;

static bool continues(const batch *made, const int64_t stride[4], int64_t size) {
    bool all = true;
    for (int i = 0; i < 4; i++) all = all && made->stride[made->n - 1][i] == stride[i] * size;
    return all;
}

/* Loops that continue each other are one. There is always one, if only of 1. */
static batch batch_of(const tni_product *p, const tni_gpu_product *job, const tni_matrix *c, const tni_matrix *d) {
    batch made = {.n = 1, .size = {1}};
    for (int32_t i = 0; i < p->n_batch; i++) {
        const int64_t stride[4] = {job->b.batch[i], job->a.batch[i], c->batch[i], d->batch[i]}, size = p->batch[i];
        if (size == 1) continue;
        const bool joins = made.size[made.n - 1] == 1 || continues(&made, stride, size);
        if (!joins) made.size[made.n++] = 1;
        made.size[made.n - 1] *= size;
        for (int k = 0; k < 4; k++) made.stride[made.n - 1][k] = stride[k];
    }
    return made;
}

static int64_t runs_of(const batch *b) {
    int64_t runs = 1;
    for (int32_t i = 0; i + 1 < b->n; i++) runs *= b->size[i];
    return runs;
}

/* ---- what the library is told ------------------------------------------------------------------------------------ */

/* `count` lines of `length`; where there is one, how far it is to the next does not matter. */
static tni_lt_matrix lines(int64_t length, int64_t count, int64_t pitch, int64_t piece) {
    return (tni_lt_matrix){length, count, count > 1 ? pitch : round_up(length, piece), 0, 16};
}

/* What all rows and matrices of x begin at a multiple of, if the first one does: 16 bytes or less. */
static uint32_t alignment_of(const tni_product *p, const tni_matrix *x, const batch *b, int which) {
    const int64_t size = (int64_t)tn_type_size(x->type);
    uint32_t bytes = 16;
    while (p->m > 1 && x->row * size % bytes) bytes /= 2;
    for (int32_t i = 0; i < b->n; i++) {
        while (b->stride[i][which] * size % bytes) bytes /= 2;
    }
    return bytes;
}

static bool is_half(const tni_product *p) {
    return p->y.type == TN_F16 || p->y.type == TN_BF16;
}

static bool has_tensor_kernel(const tn_call *call, const tni_product *p) {
    return is_half(p) && tni_gemm_suits_mma(p) && tni_cuda_has(call, "product_mma", 80);
}

/* What C is: the residual; without one, D itself, which is not read. */
static const tni_matrix *addend_of(tni_product *p) {
    return p->residual.type == TN_NO_TYPE ? target_of(p) : &p->residual;
}

/* Rows of y that are no multiples of 16 bytes make the library slow, and Tenon's tensor cores are not. Also it rounds
 * the product there before it adds to it, and where there is more than one matrix: in 16 bits that shows. */
static tn_status refuse(const tn_call *call, const tni_product *p, const tni_lt_job *job, int64_t runs) {
    const bool adds = is_half(p) && (p->bias.type != TN_NO_TYPE || p->residual.type != TN_NO_TYPE);
    const bool in_pieces = job->c.alignment == 16 && job->d.alignment == 16;
    if (runs > MOST_RUNS) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt would have to run once for each matrix of the batch", call->name);
    }
    if (!in_pieces && (adds || has_tensor_kernel(call, p))) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt is slow where rows of y are no multiples of 16 bytes", call->name);
    }
    if (adds && (runs > 1 || job->batch > 1)) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt rounds twice where it adds to more than one matrix", call->name);
    }
    return TN_OK;
}

static tn_status ask(const tn_call *call, tni_product *p, int epilogue, lt_product *made) {
    const tni_matrix *d = target_of(p), *c = addend_of(p);
    const int64_t piece = 16 / (int64_t)tn_type_size(p->y.type);
    const tn_gpu *gpu;
    tni_gpu_product job = tni_gemm_job(p, TNI_GEMM_MMA_TILE, TNI_GEMM_MMA_TILE);
    tni_gemm_place_operands(p, &made->a, &made->b, &job);
    const batch b = batch_of(p, &job, c, d);
    TN_TRY(tn_cuda_gpu(call, &gpu));
    tni_lt_job lt = {.type = p->y.type,
                     .transpose_a = made->b.along,
                     .transpose_b = !made->a.along,
                     .epilogue = epilogue,
                     .tf32 = p->y.type == TN_F32 && tni_gemm_may_be_tf32(),
                     .batch = (int32_t)min(b.size[b.n - 1], INT32_MAX),
                     .limit = tni_cublaslt_workspace(gpu)};
    lt.a = made->b.along ? lines(job.k, p->n, job.b.col, piece) : lines(p->n, job.k, job.b.row, piece);
    lt.b = made->a.along ? lines(job.k, p->m, job.a.row, piece) : lines(p->m, job.k, job.a.col, piece);
    lt.c = lines(p->n, p->m, c->row, piece);
    lt.d = lines(p->n, p->m, d->row, piece);
    lt.c.alignment = alignment_of(p, c, &b, 2);
    lt.d.alignment = alignment_of(p, d, &b, 3);
    tni_lt_matrix *const all[] = {&lt.a, &lt.b, &lt.c, &lt.d};
    for (int i = 0; i < 4; i++) all[i]->stride = b.stride[b.n - 1][i];
    TN_TRY(refuse(call, p, &lt, b.size[b.n - 1] > INT32_MAX ? INT64_MAX : runs_of(&b)));
    return tni_lt_prepare(call, &lt, &made->lt);
}

/* With all that belongs to it in one kernel, but for relu where the values before it are kept. */
static tn_status find_library(const tn_call *call, tni_product *p, lt_product *made) {
    const bool has_bias = p->bias.type != TN_NO_TYPE, has_residual = p->residual.type != TN_NO_TYPE;
    const bool is_relu = p->act == TNI_ACT_RELU, keeps_z = p->z.type != TN_NO_TYPE;
    if (!is_by_rows(p, target_of(p)) || (has_residual && !is_by_rows(p, &p->residual))) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt takes no y or residual with these strides", call->name);
    }
    if (p->a.type != p->y.type) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt is asked for results in the type of the inputs alone", call->name);
    }
    if (has_bias && p->n > 1 && p->bias.column != 1) {
        return tn_fail(TN_UNSUPPORTED, "%s: cuBLASLt takes no bias with gaps", call->name);
    }
    made->relu_after = is_relu && keeps_z;
    const int relu = is_relu && !keeps_z ? LT_EPILOGUE_RELU : 0, bias = has_bias ? LT_EPILOGUE_BIAS : 0;
    return ask(call, p, relu | bias ? relu | bias : LT_EPILOGUE_NONE, made);
}

/* The gradient of the weights, and with it that of the bias, which is the sum of a's rows. */
static bool find_with_next(const tn_call *call, tni_product *p, const tni_product *next, lt_product *made) {
    const bool dense = next->n == 1 || next->y.column == 1;
    if (!dense || next->n != p->m || p->n_batch != 0 || !is_by_rows(p, &p->y)) return false;
    return ask(call, p, LT_EPILOGUE_SUMS_OF_B, made) == TN_OK;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static bool has_elements(const tni_product *p) {
    bool all = p->m > 0 && p->n > 0 && tni_gemm_terms(p) > 0;
    for (int32_t d = 0; d < p->n_batch; d++) all = all && p->batch[d] > 0;
    return all;
}

/* The last product is the bias gradient, and the one before it that of the weights. */
static bool has_bias_next(const tn_call *call, int i, int count) {
    return i == count - 2 && tni_gemm_is_of_ones(call, count - 1, count) && linear_grad_args_of(call).dw;
}

/* Tenon's own kernels, for when they are needed. */
static tn_status find_own(const tn_call *call, const tni_product *p, bool of_ones, lt_product *made) {
    TN_TRY(tni_gemm_find_tile(call, p, &made->tile));
    made->has_mma = !of_ones && has_tensor_kernel(call, p);
    return made->has_mma ? tni_gemm_find_mma(call, p, &made->a, &made->b, &made->mma) : TN_OK;
}

static tn_status plan_product(const tn_call *call, tni_product *products, int i, int count, size_t used,
                              lt_product *made) {
    static const tni_gemm_wants wants = {.apart = true};
    tni_product *p = &products[i];
    const bool of_ones = tni_gemm_is_of_ones(call, i, count);
    if (!of_ones && has_elements(p)) {
        made->copies_end = tni_gemm_operands(p, used, &wants, &made->a, &made->b);
        made->makes_next = has_bias_next(call, i, count) && find_with_next(call, p, &products[count - 1], made);
        made->by_library = made->makes_next || find_library(call, p, made) == TN_OK;
        if (made->relu_after) TN_TRY(tni_gemm_find_relu(call, p, &made->relu));
    }
    return find_own(call, p, of_ones, made);
}

/* Where Tenon has a kernel for tensor cores, the library makes all products of a call or leaves the call to that one,
 * with its own message or one of those above. Others may be made by single numbers beside it. */
static tn_status fill(const tn_call *call, void *state) {
    lt_call *plan = state;
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool any = false;
    if (!tni_cublaslt(call->name)) return TN_UNSUPPORTED;
    const int count = products_of(call, products, &used);
    plan->workspace = used;
    TN_TRY(tni_gemm_find_pass(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        lt_product *made = &plan->product[i];
        TN_TRY(plan_product(call, products, i, count, used, made));
        if (!made->by_library && made->has_mma && has_elements(&products[i])) return TN_UNSUPPORTED;
        any = any || made->by_library;
        const size_t own = made->by_library && made->lt.workspace ? LT_ALIGNMENT + made->lt.workspace : 0;
        plan->workspace = (size_t)max((int64_t)plan->workspace, (int64_t)(made->copies_end + own));
    }
    return any ? TN_OK : TN_UNSUPPORTED;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool is_multiple(const void *data, size_t of) {
    return (uintptr_t)data % of == 0;
}

/* Where the library's own workspace begins. */
static void *workspace_of(const tn_call *call, const lt_product *made) {
    const uintptr_t at = (uintptr_t)call->workspace + made->copies_end;
    return made->lt.workspace ? (void *)((at + LT_ALIGNMENT - 1) / LT_ALIGNMENT * LT_ALIGNMENT) : NULL;
}

/* One run for each entry of all loops of the batch but the last. */
static tn_status run_batch(const tn_call *call, const lt_product *made, const batch *b, tni_lt_operands first) {
    const int64_t size = (int64_t)tn_type_size(made->lt.job.type), runs = runs_of(b);
    for (int64_t run = 0; run < runs; run++) {
        int64_t rest = run, at[4] = {0};
        for (int32_t i = b->n - 2; i >= 0; i--) {
            for (int k = 0; k < 4; k++) at[k] += rest % b->size[i] * b->stride[i][k] * size;
            rest /= b->size[i];
        }
        tni_lt_operands o = first;
        o.a = (const char *)first.a + at[0];
        o.b = (const char *)first.b + at[1];
        o.c = (const char *)first.c + at[2];
        o.d = (char *)first.d + at[3];
        TN_TRY(tni_lt_run(call, &made->lt, &o));
    }
    return TN_OK;
}

/* bias: what the epilogue adds, or where it puts the bias gradient. */
static tn_status run_library(const tn_call *call, tni_product *p, const tni_gpu_product *job, void *bias,
                             const lt_product *made) {
    const tni_matrix *d = target_of(p), *c = addend_of(p);
    const batch b = batch_of(p, job, c, d);
    const tni_lt_operands o = {.alpha = p->alpha,
                               .beta = p->residual.type != TN_NO_TYPE,
                               .a = job->b.data,
                               .b = job->a.data,
                               .c = c->data,
                               .d = d->data,
                               .bias = bias,
                               .workspace = workspace_of(call, made)};
    TN_TRY(run_batch(call, made, &b, o));
    return made->relu_after ? tni_gemm_run_relu(call, p, d, &made->relu) : TN_OK;
}

/* Data that lie as the algorithm was told. */
static bool can_run(const tn_call *call, tni_product *p, const void *bias, const lt_product *made) {
    const tni_matrix *d = target_of(p), *c = addend_of(p);
    return made->by_library && !atomic_load_explicit(&made->has_failed, memory_order_relaxed) &&
           (call->workspace || !made->lt.workspace) && is_multiple(d->data, made->lt.job.d.alignment) &&
           is_multiple(c->data, made->lt.job.c.alignment) && is_multiple(bias, 16);
}

/* A product that the library has refused once stays with Tenon's own kernels. */
static bool try_library(const tn_call *call, tni_product *p, const tni_gpu_product *job, void *bias, lt_product *made) {
    if (!can_run(call, p, bias, made)) return false;
    if (run_library(call, p, job, bias, made) == TN_OK) return true;
    atomic_store_explicit(&made->has_failed, true, memory_order_relaxed);
    tni_watch_error(call->name, "Tenon's own kernel makes this product from now on");
    return false;
}

/* *done: the next product is made as well. */
static tn_status run_product(const tn_call *call, tni_product *p, const tni_product *next, lt_product *made,
                             bool *done) {
    tni_gpu_product job = tni_gemm_job(p, TNI_GEMM_MMA_TILE, TNI_GEMM_MMA_TILE);
    const bool copies = made->a.copied || made->b.copied, uses_operands = made->by_library || made->has_mma;
    void *bias = made->makes_next ? next->y.data : p->bias.data;
    if (!uses_operands || (copies && !call->workspace)) return tni_gemm_run_tile(call, p, false, &made->tile);
    TN_TRY(tni_gemm_copy_operands(call, p, &made->a, &made->b, &job));
    if (!tni_gemm_is_aligned(&job)) return tni_gemm_run_tile(call, p, false, &made->tile);
    if (try_library(call, p, &job, bias, made)) {
        *done = made->makes_next;
        return TN_OK;
    }
    if (!made->has_mma) return tni_gemm_run_tile(call, p, false, &made->tile);
    return tn_cuda_launch(call, &made->mma, (void *[]){&job});
}

static tn_status run(const tn_call *call, lt_call *plan) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool done = false;
    const int count = products_of(call, products, &used);
    if (plan->workspace && !call->workspace) {
        tn_fail(TN_NO_MEMORY, "%s: no memory for the workspace (%zu bytes)", call->name, plan->workspace);
        if (used) return TN_NO_MEMORY;
        tni_watch_error(call->name, "Tenon's own kernel makes what needs one");
    }
    TN_TRY(tni_gemm_pass_back(call, &plan->pass));
    for (int i = 0; i < count; i++) {
        const bool of_ones = tni_gemm_is_of_ones(call, i, count), is_made = done;
        lt_product *made = &plan->product[i];
        done = false;
        if (is_made) continue;
        TN_TRY(of_ones ? tni_gemm_run_tile(call, &products[i], true, &made->tile)
                       : run_product(call, &products[i], &products[count - 1], made, &done));
    }
    return TN_OK;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

bool tni_gemm_cublaslt_cuda_accepts(const tn_call *call) {
    tni_product products[TNI_PRODUCTS_MOST];
    size_t used;
    bool any = false;
    const int count = tni_gemm_products(call, products, &used);
    for (int i = 0; i < count; i++) {
        any = any || (!tni_gemm_is_of_ones(call, i, count) && has_elements(&products[i]));
    }
    return any && tni_gemm_rows_may_vary();
}

tn_status tni_gemm_cublaslt_cuda_prepare(const tn_call *call, void **state) {
    return tni_cuda_prepare(call, sizeof(lt_call), fill, state);
}

size_t tni_gemm_cublaslt_cuda_workspace(const tn_call *call) {
    return ((const lt_call *)call->state)->workspace;
}

tn_status tni_gemm_cublaslt_cuda_run(const tn_call *call, void *state) {
    return run(call, state);
}
