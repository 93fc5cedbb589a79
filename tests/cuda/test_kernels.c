/* Kernels are found by names that the host puts together. Every name that it asks for must be one that a .cu exports,
 * and every exported one must be asked for by some call.
 *
 * So operators prepare many calls here, for a driver that is made up (tests/plugins/fake_cuda.c) and says which kernels
 * it is asked for: all samples, and rows of all lengths at which another kernel is chosen, in all types, in several
 * layouts, on a GPU with clusters and on one without, and where no cluster fits. Nothing is allocated, nothing runs. */
#include "kernels.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "cli/bench/bench_gpu.h"
#include "cli/data.h"
#include "core/run/plan.h"
#include "cuda/copy/copy.h"
#include "fuse/formula_kernel.h"
#include "tests/test.h"

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

static char doing[256]; /* for messages */
static int n_calls, n_without_nvrtc;

/* The driver calls it with the image, which is its unit's name. */
static void ask(const char *unit, const char *name) {
    exported_kernel *k = exported_kernels;
    while (k->unit && (strcmp(k->unit, unit) != 0 || strcmp(k->name, name) != 0)) k++;
    k->asked = true;
    CHECK_ROW(k->unit, "%s asks for kernel %s, which %s.cu does not export", doing, name, unit);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* WITH_GAPS: rows are further apart than they are long. TURNED_ROUND: the first dimension is the fastest.
 * CHANNELS_FIRST: the second is. FIRST_TURNED: the first tensor is turned round, all others lie as rows. */
typedef enum order { AS_ROWS, WITH_GAPS, TURNED_ROUND, CHANNELS_FIRST, FIRST_TURNED, ORDERS } order;

static void lay_out(const tni_dims *shape, order how, int64_t *strides) {
    int32_t dims[TN_MAX_RANK], n = 0; /* from the fastest on */
    int64_t step = 1;
    if (how == CHANNELS_FIRST && shape->ndim > 1) dims[n++] = 1;
    for (int32_t d = shape->ndim - 1; d >= 0; d--) {
        if (!(how == CHANNELS_FIRST && shape->ndim > 1 && d == 1)) dims[n++] = d;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t d = how == TURNED_ROUND ? i : dims[i];
        strides[d] = step;
        step *= shape->d[d] > 0 ? shape->d[d] : 1;
        if (how == WITH_GAPS && i == 0) step += 5;
    }
}

/* A call that is refused, or goes to no CUDA kernel, asks for none. */
static void prepare(const tn_function *op, const tni_case *c, order how, int device) {
    tn_tensor tensors[TNI_MAX_ARGS];
    const tn_tensor *in[TNI_MAX_ARGS] = {0};
    int64_t strides[TNI_MAX_ARGS][TN_MAX_RANK];
    int32_t n_in = 0, lengths[TNI_MAX_ARGS] = {0};
    tni_plan *plan;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const tni_sample_input *s = &c->inputs[i];
        lay_out(&s->shape, how != FIRST_TURNED ? how : i == 0 ? TURNED_ROUND : AS_ROWS, strides[i]);
        tensors[i] = tn_dense(NULL, s->type, s->shape.ndim, (int64_t *)(uintptr_t)s->shape.d);
        tensors[i].strides = strides[i];
        tensors[i].device = (tn_device){TN_CUDA, device};
        const int32_t at = op->contract->has_lists ? i : s->input; /* lists are laid out one after the other */
        in[at] = &tensors[i];
        lengths[s->input]++;
        if (at >= n_in) n_in = at + 1;
    }
    tn_args args = {.in = in,
                    .n_in = n_in,
                    .lengths = op->contract->has_lists ? lengths : NULL,
                    .attrs = c->attrs,
                    .n_attrs = c->n_attrs};
    if (tni_plan_make(op, &args, true, &plan) == TN_OK) tni_plan_free(plan);
    n_calls++;
    /* Those that calls go to only where another one is missing. */
    for (const tn_kernel *k = op->row->kernels; k && k->name; k++) {
        if (k->device != TN_CUDA || strcmp(k->name, "cuda") == 0) continue;
        args.kernel = k->name;
        if (tni_plan_make(op, &args, true, &plan) == TN_OK) tni_plan_free(plan);
        n_calls++;
    }
}

static void prepare_all(const tn_function *op, const char *text, order last) {
    for (tn_type T = TN_F16; T <= TN_C128; T++) { /* of every size; integers, of sort and top_k alone */
        tni_case *c;
        if (tni_sample_case(op->contract, text, T, &c) != TN_OK) continue;
        snprintf(doing, sizeof doing, "%s of %s in %s", op->contract->name, text, tn_type_name(T));
        for (order how = AS_ROWS; how <= last; how++) prepare(op, c, how, 0);
        prepare(op, c, AS_ROWS, 1);
        setenv("FAKE_CUDA", "no cluster fits", 1);
        prepare(op, c, AS_ROWS, 0);
        setenv("FAKE_CUDA", "kernels", 1);
        tni_case_free(c);
    }
}

static void prepare_samples(void) {
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        if (op->row->formula) continue;
        for (const tn_sample *s = op->row->samples; s->args; s++) prepare_all(op, s->args, ORDERS - 1);
    }
}

/* ---- rows of all lengths ----------------------------------------------------------------------------------------- */

/* @: the length, #: how many. */
static const struct {
    const char *op, *text;
} rows[] = {
    {"softmax", "s=[#, @]"},
    {"softmax", "s=[#, @] mask scale=-1.0"},
    {"softmax", "s=[@, #] axis=0"},
    {"softmax_grad", "s=[#, @]"},
    {"softmax_grad", "s=[@, #] axis=0"},
    {"layer_norm", "r=[#] c=@"},
    {"layer_norm", "r=[#] c=@ gamma beta"},
    {"layer_norm", "r=[#] c=@ gamma beta W=f32"},
    {"layer_norm_grad", "r=[#] c=@ gamma beta rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"layer_norm_grad", "r=[#] c=@ gamma beta W=f32 rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"cross_entropy", "r=[#] v=@ target<v"},
    {"cross_entropy", "r=[#] v=@ target<v want_gx=true"},
    {"cross_entropy", "r=[#] v=@ target<v reduction='none' label_smoothing=0.1 want_gx=true"},
    {"cross_entropy_grad", "r=[#] v=@"},
    {"batch_norm", "n=# c=3 s=[@] gamma beta"},
    {"batch_norm", "n=# c=@ s=[] gamma beta"},
    {"batch_norm", "n=# c=3 s=[@] residual act='relu'"},
    {"batch_norm", "n=# c=@ s=[] residual act='relu'"},
    {"batch_norm_grad", "n=# c=3 s=[@] rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"batch_norm_grad", "n=# c=@ s=[] rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"batch_norm_grad", "n=# c=3 s=[@] act='relu' rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"batch_norm_grad", "n=# c=@ s=[] act='relu' rstd>0 want_dx=true want_dgamma=true want_dbeta=true"},
    {"sum", "s=[#, @] axes=[1]"},
    {"sum", "s=[@, #] axes=[0]"},
    {"sum", "s=[3, #, @] axes=[0, 2]"},
    {"sum", "s=[#, 3, @] axes=[1]"},
    {"sort", "s=[#, @]"},
    {"sort", "s=[@, #] axis=0"},
    {"top_k", "r=[#] n=@ k=1"},
    {"cumsum", "s=[#, @]"},
    {"cumsum", "s=[@, #] axis=0"},
    {"cumprod", "s=[#, @]"},
    {"cumprod", "s=[@, #] axis=0"},
    {"cumprod_grad", "s=[#, @]"},
    {"cumprod_grad", "s=[@, #] axis=0"},
    {"cumprod_grad_grad", "s=[#, @]"},
    {"cumprod_grad_grad", "s=[@, #] axis=0"},
    {"cummax", "s=[#, @]"},
    {"cummin", "s=[@, #] axis=0"},
};

static void write_text(char *to, const char *from, long long count, long long length) {
    for (; *from; from++) {
        if (*from == '@' || *from == '#') {
            to += sprintf(to, "%lld", *from == '@' ? length : count);
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
}

/* Rows that are longer than 30 bits can count. */
static void prepare_huge(void) {
    prepare_all(tn_find("sort"), "s=[1073741824]", AS_ROWS);
}

/* Tiles and parts that no sample is the right size for: as many rows of y, columns, and terms of a sum. */
static void prepare_products(void) {
    static const struct {
        const char *op, *text;
    } ways[] = {
        {"linear", "r=[%d] n=%d k=%d"},
        {"matmul", "p=[] q=[] m=%d n=%d k=%d"},
        {"matmul_b_grad", "shape=[] p=[] k=%d n=%d m=%d"},
        {"linear_int8", "r=[%d] n=%d k=%d type=f32"},
        {"linear_int8", "r=[%d] n=%d k=%d type=f16"},
    };
    static const int sizes[][3] = {{1024, 1536, 1024}, {512, 4096, 4096}, {4096, 4096, 1024}, {128, 256, 1024},
                                   {256, 4096, 2048},  {256, 4096, 4096}, {512, 4096, 8192},  {1, 4096, 1024},
                                   {2, 4096, 1024},    {4, 4096, 1024},   {8, 4096, 1024},    {16, 4096, 1024}};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (size_t i = 0; i < WAYS * sizeof sizes / sizeof *sizes; i++) {
        const int *size = sizes[i / WAYS];
        char text[64];
        snprintf(text, sizeof text, ways[i % WAYS].text, size[0], size[1], size[2]);
        prepare_all(tn_find(ways[i % WAYS].op), text, AS_ROWS);
    }
}

static void prepare_rows(void) {
    static const long long counts[] = {1, 3, 200, 40000};
    long long lengths[256] = {7, 24, 33, 40, 100, 144, 264, 1000, 1040, 1152, 5003, 12296, 50257}, n = 13;
    for (long long power = 1; power <= 1 << 21; power *= 2) {
        const long long near[] = {power, power + 1, power + power / 2};
        for (int i = 0; i < 3; i++) lengths[n++] = near[i];
    }
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (long long i = 0; i < n * 4; i++) {
            char text[192];
            write_text(text, rows[r].text, counts[i % 4], lengths[i / 4]);
            prepare_all(tn_find(rows[r].op), text, WITH_GAPS);
        }
    }
}

/* ---- formulas among the kernels ---------------------------------------------------------------------------------- */

/* There is no NVRTC here: where a formula is the best of an operator's kernels, the next one takes its calls. */
static void without_nvrtc(const tn_function *op) {
    enum { MOST = 32 };
    tn_kernel kernels[MOST] = {{0}};
    tn_op row = *op->row;
    tn_function *twin;
    tni_case *sample;
    made_call call;
    const char *chosen = "";
    int n = 1;
    for (const tn_kernel *k = row.kernels; k->name && n < MOST - 1; k++) {
        kernels[k->run == tni_formula_kernel_run ? 0 : n++] = *k;
    }
    if (!kernels[0].name) return;
    row.kernels = kernels;
    CHECK(tni_operator_make(&row, &twin) == TN_OK);
    CHECK(tni_sample_case(twin->contract, row.samples[1].args, TN_F32, &sample) == TN_OK);
    CHECK(call_make(&call, twin, sample, (call_options){.bare = true}) == TN_OK);
    for (int32_t i = 0; i < call.n_in; i++) call.in[i].tensor.device = (tn_device){TN_CUDA, 0};
    for (int32_t i = 0; i < call.n_out; i++) call.out[i].tensor.device = (tn_device){TN_CUDA, 0};
    tn_status status = tn_explain(twin, &call.args, &chosen, NULL);
    CHECK_ROW(status == TN_OK && strcmp(chosen, "cuda") == 0, "%s goes to '%s': %s", call.op->contract->name, chosen,
              tn_last_error());
    call.args.kernel = "formula";
    CHECK(tn_explain(twin, &call.args, &chosen, NULL) == TN_UNSUPPORTED);
    n_without_nvrtc++;
    call_free(&call);
    tni_case_free(sample);
    tni_plans_free(twin);
    tni_operator_free(twin);
}

/* ---- copies, and what benchmarks run ----------------------------------------------------------------------------- */

/* By lines, by rows, by tiles, by boxes, one element over and over; aligned and not; few elements and many. */
static void copy_all(void) {
    const tn_host host = tn_stream_host(NULL);
    const tn_call copying = {.name = "copy", .device = {TN_CUDA, 0}, .host = &host};
    const tn_type types[] = {TN_U8, TN_BF16, TN_F32, TN_F64, TN_C128};
    const int64_t edges[] = {64, (int64_t)1 << 18, 4099};
    for (int i = 0; i < 5 * 3 * 2 * 5; i++) {
        const int64_t large = edges[i / 5 % 3], size = (int64_t)tn_type_size(types[i % 5]);
        const int64_t shape[] = {large, large}, dense[] = {large, 1}, turned[] = {1, large}, same[] = {0, 0},
                      apart[] = {2 * large + 1, 2}, gaps[] = {large + 1, 1};
        const int64_t *const from[] = {dense, turned, same, apart, gaps};
        const tn_view to = {
            .data = (void *)(uintptr_t)0x10000, .shape = shape, .strides = dense, .ndim = 2, .type = types[i % 5]};
        tn_view x = to;
        x.data = (void *)(uintptr_t)(0x900000 + (i / 15 % 2 ? size / 2 : 0));
        x.strides = from[i / 30];
        snprintf(doing, sizeof doing, "a copy of %s", tn_type_name(types[i % 5]));
        CHECK_ROW(tni_cuda_copy(&copying, &to, &x) == TN_OK, "%s: %s", doing, tn_last_error());
    }
    for (int i = 0; i < 5; i++) { /* channels go last: boxes */
        const int64_t shape[] = {64, 4099, 3}, dense[] = {3 * 4099, 3, 1}, images[] = {3 * 4099, 1, 4099};
        const tn_view to = {
            .data = (void *)(uintptr_t)0x10000, .shape = shape, .strides = dense, .ndim = 3, .type = types[i]};
        tn_view x = to;
        x.data = (void *)(uintptr_t)0x900000;
        x.strides = images;
        CHECK_ROW(tni_cuda_copy(&copying, &to, &x) == TN_OK, "channels of %s: %s", tn_type_name(types[i]),
                  tn_last_error());
    }
}

static void bench(void) {
    snprintf(doing, sizeof doing, "a benchmark");
    CHECK(bench_launch(0) >= 0);
    CHECK(bench_fma(0, TN_F32) > 0);
    CHECK(bench_fma(0, TN_F64) > 0);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "fake_cuda.so";
    setenv("FAKE_CUDA", "kernels", 1);
    setenv("TENON_NVRTC", path, 1); /* which it is not: activations that are formulas have no kernels here */
    setenv("TENON_CACHE_DIR", "/dev/null", 1);
    setenv("TENON_CUBLASLT", "none", 1); /* the real one would not get along with this driver */
    void *driver = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void (**asked)(const char *, const char *) = driver ? dlsym(driver, "fake_asked") : NULL;
    CHECK(asked);
    if (!asked) return test_end();
    *asked = ask;
    prepare_samples();
    prepare_rows();
    prepare_huge();
    prepare_products();
    for (int i = 0; i < tn_function_count(); i++) without_nvrtc(tn_function_at(i));
    CHECK(n_without_nvrtc >= 4);
    copy_all();
    bench();
    int n = 0;
    for (exported_kernel *k = exported_kernels; k->unit; k++, n++) {
        CHECK_ROW(k->asked, "%s of %s.cu: no call asks for it", k->name, k->unit);
    }
    printf("%d calls ask for %d kernels\n", n_calls, n);
    return test_end();
}
