/* A cuBLASLt for machines without a GPU: it multiplies what lies in the host's memory, where the made-up driver of
 * fake_cuda.c has its GPUs', and is as strict as the real one. What goes wrong with it is set by FAKE_CUBLASLT:
 *     old, does not start, finds nothing, describes nothing, fails
 * or, what costs a kernel its fast way:
 *     no epilogues, no gradients    of those it finds no algorithm
 *     wants workspace               of which it leaves nothing as it was */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/op.h>

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { WORKSPACE = 1 << 16 };
enum { NONE = 1, RELU = 2, BIAS = 4, GRADIENT_OF_B = 512 };

typedef struct layout {
    int64_t type, rows, cols, ld, batch, stride;
} layout;
typedef struct desc {
    int64_t compute, scale, transpose[2], epilogue;
    void *bias;
} desc;
typedef struct preference {
    uint64_t limit, reductions, alignment[4];
} preference;
typedef struct algo {
    uint64_t alignment[4], workspace, made, unused[2];
} algo;
typedef struct result {
    algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;

#define EXPORT __attribute__((visibility("default")))
EXPORT size_t cublasLtGetVersion(void);
EXPORT const char *cublasLtGetStatusName(int status);
EXPORT const char *cublasLtGetStatusString(int status);
EXPORT int cublasLtCreate(void **handle);
EXPORT int cublasLtDestroy(void *handle);
EXPORT int cublasLtMatrixLayoutInit_internal(layout *l, size_t size, int type, uint64_t rows, uint64_t cols,
                                             int64_t ld);
EXPORT int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t size);
EXPORT int cublasLtMatmulDescInit_internal(desc *d, size_t size, int compute, int scale);
EXPORT int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t size);
EXPORT int cublasLtMatmulPreferenceInit_internal(preference *p, size_t size);
EXPORT int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size);
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, const desc *d, const layout *a, const layout *b,
                                          const layout *c, const layout *y, const preference *p, int wanted,
                                          result *results, int *count);
EXPORT int cublasLtMatmul(void *handle, const desc *d, const void *alpha, const void *a, const layout *la,
                          const void *b, const layout *lb, const void *beta, const void *c, const layout *lc, void *y,
                          const layout *ly, const algo *made, void *workspace, size_t bytes, void *stream);

EXPORT _Atomic int fake_lt_handles, fake_lt_products, fake_lt_gradients; /* alive; made; with the bias gradient */

static int is(const char *what) {
    const char *set = getenv("FAKE_CUBLASLT");
    return set && strcmp(set, what) == 0;
}

size_t cublasLtGetVersion(void) {
    return is("old") ? 110502 : 130203;
}
const char *cublasLtGetStatusName(int status) {
    return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OTHER";
}
const char *cublasLtGetStatusString(int status) {
    return status == NOT_SUPPORTED ? "the functionality is not supported" : "something else";
}

static char context;

int cublasLtCreate(void **handle) {
    if (is("does not start")) return NOT_INITIALIZED;
    fake_lt_handles++;
    *handle = &context;
    return 0;
}
int cublasLtDestroy(void *handle) {
    fake_lt_handles--;
    return handle == &context ? 0 : INVALID_VALUE;
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

int cublasLtMatrixLayoutInit_internal(layout *l, size_t size, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    if (size < 64 || ld < (int64_t)rows || is("describes nothing")) return INVALID_VALUE;
    *l = (layout){type, (int64_t)rows, (int64_t)cols, ld, 1, 0};
    return 0;
}
int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t size) {
    if (attribute == 5 && size == 4) return l->batch = *(const int32_t *)value, 0;
    if (attribute == 6 && size == 8) return l->stride = *(const int64_t *)value, 0;
    return INVALID_VALUE;
}
int cublasLtMatmulDescInit_internal(desc *d, size_t size, int compute, int scale) {
    if (size < 256) return INVALID_VALUE;
    *d = (desc){.compute = compute, .scale = scale, .epilogue = NONE};
    return 0;
}
int cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t size) {
    if ((attribute == 3 || attribute == 4) && size == 4)
        return d->transpose[attribute - 3] = *(const int32_t *)value, 0;
    if (attribute == 7 && size == 4) return d->epilogue = *(const uint32_t *)value, 0;
    if (attribute == 8 && size == 8) return d->bias = *(void *const *)value, 0;
    return INVALID_VALUE;
}
int cublasLtMatmulPreferenceInit_internal(preference *p, size_t size) {
    if (size < 64) return INVALID_VALUE;
    *p = (preference){.reductions = 7, .alignment = {256, 256, 256, 256}};
    return 0;
}
int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size) {
    if (attribute == 1 && size == 8) return p->limit = *(const uint64_t *)value, 0;
    if (attribute == 3 && size == 4) return p->reductions = *(const uint32_t *)value, 0;
    if (attribute >= 5 && attribute <= 8 && size == 4) return p->alignment[attribute - 5] = *(const uint32_t *)value, 0;
    return INVALID_VALUE;
}

/* The same in memory of its own, as authors ask for them. */
#define MADE(what, type, parameters, ...)                         \
    EXPORT int cublasLt##what##Create parameters;                 \
    EXPORT int cublasLt##what##Destroy(type *old);                \
    int cublasLt##what##Create parameters {                       \
        *made = malloc(512);                                      \
        return cublasLt##what##Init_internal(*made, __VA_ARGS__); \
    }                                                             \
    int cublasLt##what##Destroy(type *old) {                      \
        free(old);                                                \
        return 0;                                                 \
    }
MADE(MatrixLayout, layout, (layout * *made, int type, uint64_t rows, uint64_t cols, int64_t ld), 512, type, rows, cols,
     ld)
MADE(MatmulDesc, desc, (desc * *made, int compute, int scale), 512, compute, scale)
MADE(MatmulPreference, preference, (preference * *made), 512)

/* ---- products ---------------------------------------------------------------------------------------------------- */

static tn_type type_of(const layout *l) {
    return l->type == 0 ? TN_F32 : l->type == 1 ? TN_F64 : l->type == 2 ? TN_F16 : TN_BF16;
}

/* The sizes go together, in one type, with sums in the right one. */
static int is_possible(const desc *d, const layout *a, const layout *b, const layout *c, const layout *y) {
    const int64_t m = d->transpose[0] ? a->cols : a->rows, k = d->transpose[0] ? a->rows : a->cols;
    const int64_t n = d->transpose[1] ? b->rows : b->cols, depth = d->transpose[1] ? b->cols : b->rows;
    const int wide = type_of(y) == TN_F64;
    if (m != y->rows || n != y->cols || k != depth || m != c->rows || n != c->cols || m * n * k == 0) return 0;
    if (a->type != y->type || b->type != y->type || c->type != y->type) return 0;
    if (a->batch != y->batch || b->batch != y->batch || c->batch != y->batch) return 0;
    const int tf32 = type_of(y) == TN_F32 && getenv("TENON_TF32");
    return d->compute == (wide ? 70 : tf32 ? 77 : 68) && d->scale == (wide ? 1 : 0);
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const desc *d, const layout *a, const layout *b, const layout *c,
                                   const layout *y, const preference *p, int wanted, result *results, int *count) {
    const int adds = (d->epilogue & (BIAS | GRADIENT_OF_B)) != 0;
    *count = 0;
    if (handle != &context || wanted < 1 || !is_possible(d, a, b, c, y)) return INVALID_VALUE;
    if ((type_of(y) == TN_F16 || type_of(y) == TN_BF16) && p->reductions != 2) return INVALID_VALUE;
    if (adds != (d->bias != NULL)) return INVALID_VALUE;
    if (is("finds nothing")) return NOT_SUPPORTED;
    if (is("no epilogues") && d->epilogue != NONE) return NOT_SUPPORTED;
    if (is("no gradients") && d->epilogue == GRADIENT_OF_B) return 0;
    *results = (result){.workspace = is("wants workspace") ? WORKSPACE : 0};
    results->algo.made = 1;
    results->algo.workspace = results->workspace;
    memcpy(results->algo.alignment, p->alignment, sizeof p->alignment);
    *count = 1;
    return 0;
}

static double element(const layout *l, const void *data, int64_t entry, int64_t i, int64_t j) {
    return tn_get(type_of(l), data, entry * l->stride + i + j * l->ld);
}

static void make_one(const desc *d, double alpha, const void *a, const layout *la, const void *b, const layout *lb,
                     double beta, const void *c, const layout *lc, void *y, const layout *ly, int64_t entry, int64_t i,
                     int64_t j) {
    const int64_t k = d->transpose[0] ? la->rows : la->cols;
    double sum = 0;
    for (int64_t l = 0; l < k; l++) {
        sum += (d->transpose[0] ? element(la, a, entry, l, i) : element(la, a, entry, i, l)) *
               (d->transpose[1] ? element(lb, b, entry, j, l) : element(lb, b, entry, l, j));
    }
    sum *= alpha;
    if (beta != 0) sum += beta * element(lc, c, entry, i, j);
    if (d->epilogue & BIAS) sum += tn_get(type_of(ly), d->bias, i);
    if (d->epilogue & RELU && sum < 0) sum = 0;
    tn_set(type_of(ly), y, entry * ly->stride + i + j * ly->ld, sum);
}

/* The columns of op(B) added up. */
static void add_columns(const desc *d, const void *b, const layout *lb) {
    const int64_t n = d->transpose[1] ? lb->rows : lb->cols, k = d->transpose[1] ? lb->cols : lb->rows;
    fake_lt_gradients++;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++) sum += d->transpose[1] ? element(lb, b, 0, j, l) : element(lb, b, 0, l, j);
        tn_set(type_of(lb), d->bias, j, sum);
    }
}

static int is_aligned(const void *data, uint64_t to) {
    return (uintptr_t)data % to == 0;
}

int cublasLtMatmul(void *handle, const desc *d, const void *alpha, const void *a, const layout *la, const void *b,
                   const layout *lb, const void *beta, const void *c, const layout *lc, void *y, const layout *ly,
                   const algo *made, void *workspace, size_t bytes, void *stream) {
    (void)stream;
    const uint64_t *to = made->alignment;
    if (handle != &context || !made->made || !is_possible(d, la, lb, lc, ly)) return INVALID_VALUE;
    if (!is_aligned(a, to[0]) || !is_aligned(b, to[1]) || !is_aligned(c, to[2]) || !is_aligned(y, to[3])) {
        return INVALID_VALUE;
    }
    if (made->workspace && (!workspace || bytes < made->workspace || !is_aligned(workspace, 256))) return INVALID_VALUE;
    if (is("fails")) return EXECUTION_FAILED;
    if (made->workspace) memset(workspace, 0xff, made->workspace); /* nobody else's */
    const int wide = d->scale == 1;
    const double p = wide ? *(const double *)alpha : *(const float *)alpha;
    const double q = wide ? *(const double *)beta : *(const float *)beta;
    for (int64_t at = 0; at < ly->batch * ly->rows * ly->cols; at++) {
        const int64_t i = at % ly->rows, j = at / ly->rows % ly->cols, entry = at / ly->rows / ly->cols;
        make_one(d, p, a, la, b, lb, q, c, lc, y, ly, entry, i, j);
    }
    if (d->epilogue == GRADIENT_OF_B) add_columns(d, b, lb);
    fake_lt_products++;
    return 0;
}
