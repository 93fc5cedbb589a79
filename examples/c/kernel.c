/* A CUDA kernel as text becomes an operator of a C program: checked by its contract, with a kernel for the CPU beside it.
 * It runs on the first GPU where there is one, else on the CPU.
 *
 *     make build
 *     cc examples/c/kernel.c $(build/tenon flags) -o build/kernel && build/kernel */
#include <stdio.h>

#include <tenon.h>

enum { N = 1000 };

static const char cuda[] = "__global__ void plus_constant(const float *x, float c, float *y, long long n) {\n"
                           "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
                           "    if (i < n) y[i] = x[i] + c;\n"
                           "}\n";
static const char cpu[] = "void plus_constant(const float *x, float c, float *y, long begin, long end) {\n"
                          "    for (long i = begin; i < end; i++) y[i] = x[i] + c;\n"
                          "}\n";

static int failed(void) {
    fprintf(stderr, "%s\n", tn_last_error());
    return 1;
}

/* y = x + c where both lie on `device`. */
static tn_status add(const tn_function *op, tn_device device, void *x, double c, void *y) {
    int64_t shape[] = {N};
    const tn_dlpack_type f32 = tn_type_to_dlpack(TN_F32);
    tn_tensor in = {.data = x, .device = device, .ndim = 1, .dtype = f32, .shape = shape}, out = in;
    out.data = y;
    const tn_tensor *ins[] = {&in};
    tn_tensor *outs[] = {&out};
    const tn_attr attr = tn_attr_float("c", c);
    const tn_args args = {.in = ins, .n_in = 1, .attrs = &attr, .n_attrs = 1, .out = outs, .n_out = 1};
    return tn_run(op, &args, NULL);
}

int main(void) {
    const tn_kernel_text text = {.size = sizeof text,
                                 .signature = "plus_constant(x: f32[n], c: float) -> y: f32[n]",
                                 .grad = "dx = dy",
                                 .source = {.cuda = cuda, .cpu = cpu, .launch = "elements"}};
    const tn_function *op;
    if (tn_kernel_define(&text, &op) != TN_OK) return failed();

    int gpus = 0;
    const tn_device host = {TN_CPU, 0};
    const tn_device device = tn_device_count(TN_CUDA, &gpus) == TN_OK && gpus ? (tn_device){TN_CUDA, 0} : host;
    float values[N];
    tn_block x, y;
    for (int i = 0; i < N; i++) values[i] = (float)i;
    if (tn_device_alloc(device, sizeof values, NULL, &x) != TN_OK) return failed();
    if (tn_device_alloc(device, sizeof values, NULL, &y) != TN_OK) return failed();
    if (tn_copy(device, x.data, host, values, sizeof values, NULL) != TN_OK) return failed();
    if (add(op, device, x.data, 0.5, y.data) != TN_OK) return failed();
    if (tn_copy(host, values, device, y.data, sizeof values, NULL) != TN_OK) return failed();
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += values[i] != (float)i + 0.5f;
    printf("plus_constant on the %s: %d of %d numbers are wrong\n", device.kind == TN_CUDA ? "GPU" : "CPU", wrong, N);
    tn_device_free(device, x, NULL);
    tn_device_free(device, y, NULL);
    tn_shutdown();
    return wrong != 0;
}
