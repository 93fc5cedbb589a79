/* Operators that are text: defined, called on the CPU, written to a file and read again, compiled for GPUs. */
#include <stdlib.h>
#include <unistd.h>

#include "cuda/driver/nvrtc.h"
#include "tests/test.h"
#include "text/source.h"

static const char cuda[] = "template <class T>\n"
                           "__global__ void triple(const T *x, float c, T *y, long long x_count) {\n"
                           "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
                           "    if (i < x_count) y[i] = (T)(3 * (float)x[i] + c);\n"
                           "}\n";
static const char cpu[] = "void triple(const T *x, float c, T *y, long begin, long end) {\n"
                          "    for (long i = begin; i < end; i++) y[i] = 3 * x[i] + c;\n"
                          "}\n";

static tn_kernel_text text_of(const char *signature) {
    return (tn_kernel_text){.size = sizeof(tn_kernel_text), .signature = signature};
}

/* y of f32[3] = 1, 2, 3 */
static tn_status call(const tn_function *op, float c, float y[static 3]) {
    float x[] = {1, 2, 3};
    int64_t shape[] = {3};
    tn_tensor in = {.data = x, .device = {TN_CPU, 0}, .ndim = 1, .dtype = tn_type_to_dlpack(TN_F32), .shape = shape};
    tn_tensor out = in;
    out.data = y;
    const tn_tensor *ins[] = {&in};
    tn_tensor *outs[] = {&out};
    const tn_attr attr = tn_attr_float("c", c);
    const tn_args args = {.in = ins, .n_in = 1, .attrs = &attr, .n_attrs = 1, .out = outs, .n_out = 1};
    return tn_run(op, &args, NULL);
}

static void test_define(void) {
    tn_kernel_text text = text_of("triple(x: T[*s], c: float) -> y: T[*s]");
    text.source.cuda = cuda;
    text.source.cpu = cpu;
    text.grad = "dx = 3 * dy";
    const tn_function *op, *again, *other;
    CHECK(tn_kernel_define(&text, &op) == TN_OK && op == tn_find("triple"));
    CHECK(tn_kernel_define(&text, &again) == TN_OK && again == op);
    float y[3];
    CHECK(call(op, 0.5f, y) == TN_OK && y[0] == 3.5f && y[2] == 9.5f);
    char *rule = tn_gradient_json(op);
    CHECK(rule && strstr(rule, "triple_grad") && tn_find("triple_grad"));
    tn_free(rule);
    text.source.cpu = "void triple(const T *x, T *y, long s) { for (long i = 0; i < s; i++) y[i] = x[i]; }";
    CHECK(tn_kernel_define(&text, &other) == TN_OK && other != op);
    CHECK(strcmp(tn_function_name(other), "triple_2") == 0 && tn_find("triple_2_grad"));
    CHECK(call(other, 0.5f, y) == TN_OK && y[2] == 3 && call(op, 0, y) == TN_OK && y[2] == 9);
}

static void test_file(void) {
    char path[] = "/tmp/tenon-text-XXXXXX";
    const int file = mkstemp(path);
    char *text = tn_kernel_write(tn_find("triple"));
    CHECK(file >= 0 && text && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    tn_free(text);
    tn_shutdown();
    CHECK(tn_find("triple") == NULL);
    CHECK(tn_load(path) == TN_OK && tn_load(path) == TN_OK);
    float y[3];
    CHECK(tn_find("triple") && call(tn_find("triple"), 1, y) == TN_OK && y[1] == 7);
    CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
    static const char wrong[] = "tenon kernel 1\n--- signature\nf(x: T[n]) -> y: T[n]\n--- cudda\nint a;\n";
    CHECK(write(file, wrong, sizeof wrong - 1) == sizeof wrong - 1);
    CHECK(tn_load(path) == TN_BAD_PLUGIN && strstr(tn_last_error(), "`--- cudda` is no part of a kernel"));
    close(file);
    unlink(path);
    CHECK(tn_kernel_write(tn_find("softmax")) == NULL && strstr(tn_last_error(), "not given as text"));
}

static void test_mistakes(void) {
    static const struct {
        const char *signature, *cuda, *cpu, *launch, *grad, *says;
    } rows[] = {
        {"f(x: T[n]) -> y: T[n]", NULL, NULL, NULL, NULL, "f: there is no kernel"},
        {"f(x: T[n) -> y: T[n]", "", NULL, NULL, NULL, "contract of 'f'"},
        {"f(x: T[n]) -> y: T[n]", "int a;", NULL, NULL, NULL, "no `__global__ void name"},
        {"f(x: T[n]) -> y: T[n]", "\n__global__ void f(const T *in, T *y) {}", NULL, NULL, NULL,
         "line 2: f(… T * …): nothing is called 'in'; there are x, y, n, rows, columns"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void f(T *x, T *y) {}", NULL, NULL, NULL,
         "x is an input, so f takes it as"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void f(const T *x, const T *y) {}", NULL, NULL, NULL,
         "y is an output, but f has it as const"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void a(T *y) {} __global__ void b(T *y) {}", NULL, NULL, NULL,
         "which kernel it is of, `name: elements`; the text has a, b"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void a(T *y) {}", NULL, "b: rows", NULL, "there is no kernel 'b'"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void a(T *y) {}", NULL, "grid=c", NULL, "'c' is none of n, rows"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void a(T *y, int) {}", NULL, NULL, NULL, "parameter 2 of a has no name"},
        {"f(x: T[n]) -> y: T[n]", "__global__ void a(T *y) {}", NULL, NULL, "dz = dy", "assigns no gradient"},
        {"f(xs: [T[n]]) -> y: T[n]", "__global__ void a(T *y) {}", NULL, NULL, NULL, "no lists of tensors"},
        {"softmax(x: T[n]) -> y: T[n]", "__global__ void a(T *y) {}", NULL, NULL, NULL, "already has an operator"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tn_kernel_text text = text_of(rows[i].signature);
        text.source.cuda = rows[i].cuda;
        text.source.cpu = rows[i].cpu;
        text.source.launch = rows[i].launch;
        text.grad = rows[i].grad;
        const tn_function *op;
        CHECK_ROW(tn_kernel_define(&text, &op) != TN_OK && !op, "%zu", i);
        CHECK_ROW(strstr(tn_last_error(), rows[i].says), "%zu: %s", i, tn_last_error());
    }
    tn_kernel_text text = text_of("small(x: f32[n], c: float) -> y: f32[n]");
    const tn_function *op;
    text.size = 8;
    CHECK(tn_kernel_define(&text, &op) == TN_BAD_VALUE && tn_kernel_define(NULL, &op) == TN_BAD_VALUE);
    text.size = sizeof text;
    text.source.cpu = "void small(const float *x, float *y, float c, long n) {\n    y[0] = nothing;\n}";
    float y[3];
    CHECK(tn_kernel_define(&text, &op) == TN_OK && call(op, 1, y) == TN_BAD_VALUE);
    CHECK(strstr(tn_last_error(), "small:2:12: error") != NULL);
}

/* ---- what NVRTC makes of them, without a GPU --------------------------------------------------------------------- */

static tn_status count_built(void *context, const tn_built *built) {
    int *n = context;
    ++*n;
    CHECK(built->bytes > 100 && built->major == 8 && memmem(built->data, built->bytes, "\n\n", 2));
    return TN_OK;
}

static int build(const char *signature, const char *source, const char *launch, tn_status want) {
    tn_kernel_text text = text_of(signature);
    text.source.cuda = source;
    text.source.launch = launch;
    const tn_function *op = NULL;
    int n = 0;
    CHECK_ROW(tn_kernel_define(&text, &op) == TN_OK, "%s: %s", signature, tn_last_error());
    const tn_status status = tni_source_build(op, &text.source, 8, 0, NULL, count_built, &n);
    CHECK_ROW(status == want, "%s: %s", signature, tn_last_error());
    return n;
}

static void test_nvrtc(void) {
    CHECK(build("b1(x: T[*s], c: float) -> y: T[*s]", cuda, NULL, TN_OK) == 4);
    CHECK(build("b2(x: f32[n]) -> y: f32[n]",
                "#include <cuda_runtime.h>\n#include <stdint.h>\n#include <math.h>\n"
                "__global__ void k(const float *x, float *y, uint32_t n) {\n"
                "    int64_t i = threadIdx.x;\n    if (i < n) y[i] = expf(x[i]);\n}",
                NULL, TN_OK) == 1);
    CHECK(build("b3(x: T[*r, c]) -> y: T[*r]",
                "#include <tenon/device.cuh>\n"
                "__global__ void k(const T *x, T *y, long long c) {\n"
                "    __shared__ float shared[32];\n    float a = (float)x[blockIdx.x * c];\n"
                "    a = tn::block_sum(a, shared);\n    y[blockIdx.x] = (T)a;\n}",
                "rows", TN_OK) == 4);
    CHECK(
        build("b4<T: f32 f16>(x: T[n], w: T[k]) -> y: T[n]",
              "template <typename scalar_t, int BLOCK = 256>\n__global__ void one(const scalar_t *x, scalar_t *scratch)"
              " {\n    scratch[0] = x[0];\n}\n__constant__ float w[9];\n"
              "__global__ void two(const T *scratch, T *y) {\n    y[0] = scratch[0] + (T)w[0];\n}",
              "one: elements scratch=4*n; two: grid=1", TN_OK) == 2);
    CHECK(build("b8(x: f32[n]) -> y: f32[n]", "__global__ void k(const float *x, float *y, int n, int sms) {}",
                "grid=4*sms", TN_OK) == 1);
    CHECK(build("b7(x: f32[n]) -> y: f32[n]",
                "TN_TUNE(BLOCK, 64, 128)\nTN_TUNE(maxrregcount, 0, 32)\n__global__ void k(const float *x, float *y, "
                "int n) {\n"
                "    __shared__ float a[BLOCK];\n    a[threadIdx.x] = x[0];\n    y[0] = a[0];\n}\n/* TN_TUNED\n"
                "sm_80 f32 rows=1 columns=9: BLOCK=128\nsm_80 f32 rows=1 columns=99: BLOCK=128\n*/\n",
                "elements block=BLOCK", TN_OK) == 2);
    build("b5(x: f32[n]) -> y: f32[n]", "__global__ void k(const float *x, float *y) {\n\n    y[0] = foo(x[0]);\n}",
          NULL, TN_BAD_VALUE);
    CHECK(strstr(tn_last_error(), "b5(3): error: identifier \"foo\" is undefined") != NULL);
    build("b6(x: f32[n]) -> y: f32[n]", "template <int N> __global__ void k(const float *x, float *y) {}", NULL,
          TN_BAD_VALUE);
    CHECK(strstr(tn_last_error(), "nobody says what 'N' of the template k is") != NULL);
}

int main(void) {
    test_define();
    test_file();
    test_mistakes();
    if (tni_nvrtc_version("test")) {
        test_nvrtc();
        setenv("TENON_CHECK_INDEX", "1", 1); /* with pointers that know their tensor */
        test_nvrtc();
    } else {
        CHECK_ROW(!getenv("TENON_TEST_NVRTC"), "%s", tn_last_error());
        printf("no NVRTC: texts are not compiled\n");
    }
    tn_shutdown();
    return test_end();
}
