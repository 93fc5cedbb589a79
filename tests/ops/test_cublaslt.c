/* Products by cuBLASLt, without a GPU: the driver (fake_cuda.c) and the library (fake_cublaslt.c) are made up, and so
 * are Tenon's own kernels beside them, as loops of the host. An operator gets a twin, in no table, whose kernels are
 * "cublaslt", on the CPU, and the reference; `tenon check` compares the two. So it is with a library that fails in each
 * of the ways in which one can fail: then another kernel makes the product, and the log says why. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/check/check.h"
#include "core/layout/layout.h"
#include "core/run/plan.h"
#include "core/run/watch.h"
#include "core/table/table.h"
#include "cuda/copy/copy.h"
#include "cuda/libraries/cublaslt.h"
#include "cuda/products/product.cuh"
#include "tests/plugins/fake_cuda.h"
#include "tests/test.h"

/* ---- Tenon's own kernels, as loops of the host ------------------------------------------------------------------- */

static int64_t distance(int64_t index, int n, const long long *sizes, const long long *strides) {
    int64_t at = 0;
    for (int d = n - 1; d >= 0; d--) {
        at += index % sizes[d] * strides[d];
        index /= sizes[d];
    }
    return at;
}

static _Atomic int n_own; /* products that were made here */

static double sum_of(const tni_gpu_product *p, tn_type type, int64_t index, int64_t i, int64_t j) {
    double sum = 0;
    const int64_t a = distance(index, p->n_batch, p->batch, p->a.batch),
                  b = distance(index, p->n_batch, p->batch, p->b.batch);
    int64_t outer = 1;
    for (int d = 0; d < p->n_sums; d++) outer *= p->sums[d];
    for (int64_t s = 0; s < outer; s++) {
        const int64_t at_a = a + distance(s, p->n_sums, p->sums, p->a.sum) + i * p->a.row;
        const int64_t at_b = b + distance(s, p->n_sums, p->sums, p->b.sum) + j * p->b.col;
        for (int64_t l = 0; l < p->k; l++) {
            const double x = p->a.data ? tn_get(type, p->a.data, at_a + l * p->a.col) : 1;
            sum += x * tn_get(type, p->b.data, at_b + l * p->b.row);
        }
    }
    return p->alpha * sum;
}

static void make_product(const tni_gpu_product *p, tn_type type) {
    int64_t entries = 1;
    for (int d = 0; d < p->n_batch; d++) entries *= p->batch[d];
    n_own++;
    for (int64_t at = 0; at < entries * p->m * p->n; at++) {
        const int64_t j = at % p->n, i = at / p->n % p->m, index = at / p->n / p->m;
        double v = sum_of(p, type, index, i, j);
        if (p->bias) v += tn_get(type, p->bias, j * p->bias_step);
#define PLACE(x) (distance(index, p->n_batch, p->batch, p->x.batch) + i * p->x.row + j * p->x.col)
        if (p->residual.data) v += tn_get(type, p->residual.data, PLACE(residual));
        if (p->z.data) tn_set(type, p->z.data, PLACE(z), v);
        tn_set(type, p->y.data, PLACE(y), p->relu && v < 0 ? 0 : v);
#undef PLACE
    }
}

static void make_pass(const tni_gpu_pass *p, tn_type type) {
    for (int64_t i = 0; i < p->count; i++) {
        const double z = tn_get(type, p->z, distance(i, p->n_dims, p->shape, p->z_strides));
        const double dy = tn_get(type, p->dy, distance(i, p->n_dims, p->shape, p->dy_strides));
        tn_set(type, p->dz, distance(i, p->n_dims, p->shape, p->dz_strides), z <= 0 ? 0 : dy);
    }
}

#define KERNEL(what, TYPE, type, name)                           \
    static void name(const fake_launch *how, void **arguments) { \
        if (how->grid[0]) make_##what(arguments[0], TYPE);       \
    }
KERNEL(product, TN_F16, f16, product_f16)
KERNEL(product, TN_BF16, bf16, product_bf16)
KERNEL(product, TN_F32, f32, product_f32)
KERNEL(product, TN_F64, f64, product_f64)
KERNEL(pass, TN_F16, f16, pass_f16)
KERNEL(pass, TN_BF16, bf16, pass_bf16)
KERNEL(pass, TN_F32, f32, pass_f32)
KERNEL(pass, TN_F64, f64, pass_f64)

#define ROW(kernel, function) \
    { kernel, function, 1024, 32 }
static const fake_code tile = {FAKE_CODE,
                               90,
                               {ROW("product_tile_f16", product_f16), ROW("product_tile_bf16", product_bf16),
                                ROW("product_tile_f32", product_f32), ROW("product_tile_f64", product_f64)}};
static const fake_code pass = {FAKE_CODE,
                               90,
                               {ROW("product_pass_f16", pass_f16), ROW("product_pass_bf16", pass_bf16),
                                ROW("product_pass_f32", pass_f32), ROW("product_pass_f64", pass_f64)}};
static const fake_code mma = {FAKE_CODE,
                              90,
                              {ROW("product_mma_tt_f16", product_f16), ROW("product_mma_tf_f16", product_f16),
                               ROW("product_mma_ft_f16", product_f16), ROW("product_mma_ff_f16", product_f16),
                               ROW("product_mma_tt_bf16", product_bf16), ROW("product_mma_tf_bf16", product_bf16),
                               ROW("product_mma_ft_bf16", product_bf16), ROW("product_mma_ff_bf16", product_bf16)}};
#define UNIT(name, code) \
    { name, 90, 'a', (const unsigned char *)&(code), (const unsigned char *)(&(code) + 1) }
const tni_image tni_images[] = {UNIT("product_tile", tile), UNIT("product_pass", pass), UNIT("product_mma", mma), {0}};

/* The linker puts it in the place of the one that has kernels for it. */
tn_status __wrap_tni_cuda_copy(const tn_call *call, const tn_view *to, const tn_view *from);
tn_status __wrap_tni_cuda_copy(const tn_call *call, const tn_view *to, const tn_view *from) {
    return tni_strided_copy(call, to, from);
}

/* ---- twins ------------------------------------------------------------------------------------------------------- */

enum { MOST_KERNELS = 4 };

typedef struct twin {
    tn_op row;
    tn_kernel kernels[MOST_KERNELS];
    tn_function *op;
} twin;

static const tn_kernel *kernel_of(const tn_op *row, const char *name) {
    const tn_kernel *k = row->kernels;
    while (k->name && strcmp(k->name, name) != 0) k++;
    return k;
}

/* "cublaslt", then Tenon's own, then the reference. */
static bool twin_make(twin *t, const char *name) {
    const tn_op *row = tn_find(name)->row;
    *t = (twin){.row = *row, .kernels = {*kernel_of(row, "cublaslt"), *kernel_of(row, "tile"), *kernel_of(row, "ref")}};
    t->kernels[0].device = t->kernels[1].device = TN_CPU;
    t->row.kernels = t->kernels;
    const tn_status status = tni_operator_make(&t->row, &t->op);
    CHECK_ROW(status == TN_OK, "%s", tn_last_error());
    return status == TN_OK;
}

static void twin_free(twin *t) {
    tni_plans_free(t->op);
    tni_operator_free(t->op);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void is_right(const char *name, const char *rows) {
    twin t;
    if (!twin_make(&t, name)) return;
    checker *c = checker_new((check_options){.quick = true,
                                             .in_process = true,
                                             .kernel = "cublaslt",
                                             .rows = rows,
                                             .cases = 4,
                                             .limit = 600,
                                             .seed = 1,
                                             .sample = -1,
                                             .again = "build/test_cublaslt"});
    CHECK(c);
    if (!c) return;
    const tn_function *op = t.op;
    check_operators(c, &op, 1, NULL);
    CHECK_ROW(c->failed == 0 && c->passed > 0 && c->status == 0, "%s: %lld passed, %lld failed", name,
              (long long)c->passed, (long long)c->failed);
    checker_free(c);
    twin_free(&t);
}

static _Atomic int *count_of(const char *name) {
    void *library = tni_cublaslt("a test")->library;
    return dlsym(library, name);
}

static void all_are_right(void) {
    static const char *const operators[] = {"linear",        "linear_grad", "matmul", "matmul_a_grad",
                                            "matmul_b_grad", "matvec",      "vecmat"};
    static const char rows[] =
        "values,outputs,special,expanded,transposed,padded,mixed,misaligned,empty,odd_rows,random,edges,"
        "concurrent";
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) is_right(operators[i], rows);
    CHECK(*count_of("fake_lt_products") > 10 * n_own);
    CHECK(*count_of("fake_lt_gradients") > 20);
    CHECK(*count_of("fake_lt_handles") == 1);
    tn_shutdown();
    CHECK(*count_of("fake_lt_handles") == 0);
}

static void some_are_right(void) {
    static const char rows[] = "values,outputs,transposed,padded,misaligned";
    is_right("linear", rows);
    is_right("linear_grad", rows);
    is_right("matmul", rows);
}

static void without_gradients(void) {
    some_are_right();
    CHECK(*count_of("fake_lt_gradients") == 0);
}

static void by_other_kernels(void) {
    some_are_right();
    CHECK(*count_of("fake_lt_products") == 0);
}

/* ---- which kernel makes it --------------------------------------------------------------------------------------- */

static char log_name[] = "/tmp/tenon-cublaslt-XXXXXX";

static bool log_has(const char *text) {
    static char log[1 << 16];
    FILE *file = fopen(log_name, "r");
    const size_t n = file ? fread(log, 1, sizeof log - 1, file) : 0;
    if (file) fclose(file);
    log[n] = 0;
    if (text && !strstr(log, text)) printf("the log has no '%s':\n%s", text, log);
    return text ? strstr(log, text) != NULL : strstr(log, "cuBLASLt") == NULL;
}

static void fill(array *a, uint64_t seed) {
    for (int64_t i = 0; i < a->count; i++) tn_set(a->type, a->tensor.data, i, random_normal(&seed));
}

static bool has_memory = true;

static tn_block alloc(void *context, tn_device device, size_t bytes) {
    (void)context, (void)device;
    return (tn_block){has_memory ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL, NULL};
}

static void release(void *context, tn_device device, tn_block block) {
    (void)context, (void)device;
    free(block.data);
}

/* A call is made by this kernel of the twin's, is right, and the log has the text (NULL: nothing about it). */
static void goes_to(const char *kernel, const char *text) {
    twin t;
    tni_case *sample;
    made_call made, wanted;
    const char *chosen = "";
    const tn_host host = {.alloc = alloc, .release = release};
    if (!twin_make(&t, "linear")) return;
    CHECK(tni_sample_case(t.op->contract, "r=[33] k=64 n=40 b residual act='relu'", TN_F32, &sample) == TN_OK);
    CHECK(call_make(&made, t.op, sample, (call_options){0}) == TN_OK);
    CHECK(call_make(&wanted, t.op, sample, (call_options){0}) == TN_OK);
    for (int32_t i = 0; i < made.n_in; i++) {
        fill(&made.in[i], (uint64_t)i + 1);
        fill(&wanted.in[i], (uint64_t)i + 1);
    }
    wanted.args.kernel = "ref";
    CHECK(tn_run(t.op, &wanted.args, NULL) == TN_OK);
    for (int i = 0; i < 2; i++) { /* again, with what the first call left */
        array_fill(&made.out[0]);
        CHECK_ROW(tn_run(t.op, &made.args, &host) == TN_OK, "%s", tn_last_error());
        double most = 0;
        for (int64_t k = 0; k < made.out[0].count; k++) {
            const double a = tn_get(TN_F32, made.out[0].tensor.data, k),
                         b = tn_get(TN_F32, wanted.out[0].tensor.data, k);
            most = fmax(most, fabs(a - b));
        }
        CHECK_ROW(most < 1e-5, "%g off", most);
    }
    CHECK(tn_explain(t.op, &made.args, &chosen, NULL) == TN_OK);
    CHECK_ROW(strcmp(chosen, kernel) == 0, "it goes to '%s'", chosen);
    CHECK(log_has(text));
    call_free(&made);
    call_free(&wanted);
    tni_case_free(sample);
    twin_free(&t);
}

static void by_library(void) {
    goes_to("cublaslt", NULL);
    CHECK(n_own == 0 && *count_of("fake_lt_products") == 2);
}
static void one_that_fails(void) {
    goes_to("cublaslt", "tenon linear: Tenon's own kernel makes this product from now on: cuBLASLt 13.2.3: "
                        "cublasLtMatmul: CUBLAS_STATUS_OTHER (something else)\n");
    CHECK(n_own == 2);
}
static void without_memory(void) {
    has_memory = false;
    goes_to("cublaslt", "tenon linear: Tenon's own kernel makes what needs one: no memory for the workspace (");
    CHECK(n_own == 2);
}
static void missing(void) {
    goes_to("tile", "'cublaslt' cannot take it: there is no cuBLASLt (libcublasLt.so.13 or .12); get it with: pip");
}
static void turned_off(void) {
    setenv("TENON_CUBLASLT", "none", 1);
    goes_to("tile", "'cublaslt' cannot take it: TENON_CUBLASLT=none turns cuBLASLt off");
    CHECK(tni_cublaslt_look()->is_off);
}
static void old(void) {
    goes_to("tile", "fake_cublaslt.so) is 11.5; version 12 or newer is needed");
}
static void without_functions(void) {
    setenv("TENON_CUBLASLT", tni_cuda_look()->file, 1);
    goes_to("tile", "has no cublasLtGetVersion; version 12 or newer is needed");
}
static void not_starting(void) {
    goes_to("tile", "'cublaslt' cannot take it: cuBLASLt 13.2.3: it does not start: CUBLAS_STATUS_OTHER (something ");
}
static void describing_nothing(void) {
    goes_to("tile", "'cublaslt' cannot take it: cuBLASLt 13.2.3: describing the product: CUBLAS_STATUS_OTHER");
}
static void finding_nothing(void) {
    goes_to("tile", "cuBLASLt 13.2.3: choosing an algorithm: CUBLAS_STATUS_NOT_SUPPORTED (the functionality is not");
}

/* Where no library is found: this machine may have one. */
void *__real_tni_library_open(const tni_library *l);
void *__wrap_tni_library_open(const tni_library *l);
void *__wrap_tni_library_open(const tni_library *l) {
    const char *how = getenv("FAKE_CUBLASLT");
    return how && strcmp(how, "missing") == 0 ? NULL : __real_tni_library_open(l);
}

/* ---- for authors ------------------------------------------------------------------------------------------------- */

static void authors_get_it(void) {
    const tn_call call = {.name = "mine", .device = {TN_CUDA, 1}};
    tn_cublaslt lt;
    CHECK_ROW(tn_cuda_cublaslt(&call, &lt) == TN_OK, "%s", tn_last_error());
    CHECK(lt.handle && lt.version == 130203 && lt.workspace == 4 << 20 && dlsym(lt.library, "cublasLtMatmul"));
    CHECK(tn_cuda_cublaslt_failed(&call, "cublasLtMatmul", 0) == TN_OK);
    CHECK(tn_cuda_cublaslt_failed(&call, "cublasLtMatmul", 15) == TN_SYSTEM);
    CHECK(strcmp(tn_last_error(), "mine: cuBLASLt 13.2.3: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED (the "
                                  "functionality is not supported)") == 0);
}
static void authors_do_not_get_it(void) {
    const tn_call call = {.name = "mine", .device = {TN_CUDA, 0}};
    tn_cublaslt lt;
    CHECK(tn_cuda_cublaslt(&call, &lt) == TN_UNSUPPORTED && !lt.handle);
    CHECK(strstr(tn_last_error(), "mine: cuBLASLt 13.2.3: it does not start: "));
}

/* The library says whether it is asked for that. */
static void as_tf32(void) {
    setenv("TENON_TF32", "1", 1);
    all_are_right();
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* How the library is, and what is tested then. */
static const struct {
    const char *how;
    void (*test)(void);
} tests[] = {
    {"", all_are_right},
    {"", as_tf32},
    {"wants workspace", some_are_right},
    {"no epilogues", some_are_right},
    {"no gradients", without_gradients},
    {"fails", by_other_kernels},
    {"", by_library},
    {"fails", one_that_fails},
    {"wants workspace", without_memory},
    {"missing", missing},
    {"", turned_off},
    {"old", old},
    {"", without_functions},
    {"does not start", not_starting},
    {"describes nothing", describing_nothing},
    {"finds nothing", finding_nothing},
    {"", authors_get_it},
    {"does not start", authors_do_not_get_it},
};

/* In a process of its own: a library is looked for once. */
static bool passes_in_child(size_t i) {
    int status = -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("FAKE_CUBLASLT", tests[i].how, 1);
        test_passed = test_failed = 0;
        tests[i].test();
        fflush(stdout);
        _exit(test_failed != 0 || test_passed == 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    setenv("FAKE_CUDA", "kernels", 1);
    setenv("TENON_CUBLASLT", argv[2], 1);
    CHECK(dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL));
    const int file = mkstemp(log_name);
    CHECK(file >= 0);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        CHECK(ftruncate(file, 0) == 0);
        if (tests[i].test != all_are_right) setenv("TENON_LOG", log_name, 1);
        CHECK_ROW(passes_in_child(i), "row %zu, '%s'", i, tests[i].how);
    }
    unlink(log_name);
    close(file);
    return test_end();
}
