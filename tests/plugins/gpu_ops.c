/* Operators for the made-up GPU of fake_cuda.c, whose memory is the host's: y = 2 x, once right, and broken in the ways
 * that `tenon check --device cuda` must catch. */
#include <tenon/op.h>

/* Where element i of the view lies. */
static int64_t place(const tn_view *v, int64_t i) {
    int64_t at = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        at += i % v->shape[d] * v->strides[d];
        i /= v->shape[d];
    }
    return at;
}

static void twice(const tn_view *x, const tn_view *y) {
    for (int64_t i = 0; i < tn_count(x); i++) {
        tn_set(y->type, y->data, place(y, i), 2 * tn_get(x->type, x->data, place(x, i)));
    }
}

static tn_status run_right(const tn_call *call, void *state) {
    (void)state;
    twice(tn_in(call, 0), tn_out(call, 0));
    return TN_OK;
}

/* Writes behind y: `far` elements past the last. */
static void write_past(const tn_view *y, int64_t far) {
    int64_t n = tn_count(y);
    if (n) tn_set(y->type, y->data, place(y, n - 1) + far, 7);
}

static tn_status run_past(const tn_call *call, void *state) {
    write_past(tn_out(call, 0), 1);
    return run_right(call, state);
}

static tn_status run_far(const tn_call *call, void *state) {
    write_past(tn_out(call, 0), 100);
    return run_right(call, state);
}

static tn_status run_dense(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) tn_set(y->type, y->data, i, 2 * tn_get(x->type, x->data, i));
    return TN_OK;
}

static tn_status run_drift(const tn_call *call, void *state) {
    static _Atomic int calls;
    tn_status status = run_right(call, state);
    const tn_view *y = tn_out(call, 0);
    if (++calls % 7 == 0 && tn_count(y)) tn_set(y->type, y->data, 0, tn_get(y->type, y->data, 0) * (1 + 0x1p-7));
    return status;
}

static tn_status run_leak(const tn_call *call, void *state) {
    call->host->alloc(call->host->context, call->device, 65536);
    return run_right(call, state);
}

/* Counts on zeros in its workspace. */
static tn_status run_dirty(const tn_call *call, void *state) {
    tn_status status = run_right(call, state);
    const tn_view *y = tn_out(call, 0);
    if (*(const unsigned char *)call->workspace == 0xff && tn_count(y)) tn_set(y->type, y->data, 0, -1);
    return status;
}

/* Reads one element behind the last, and adds nothing of it to the result unless it is NaN. */
static tn_status run_reads(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    const int64_t n = tn_count(x);
    tn_status status = run_right(call, state);
    if (n) {
        const double behind = tn_get(x->type, x->data, place(x, n - 1) + 1);
        tn_set(y->type, y->data, place(y, n - 1), tn_get(y->type, y->data, place(y, n - 1)) + 0 * behind);
    }
    return status;
}

/* Leaves out what does not fill four. */
static tn_status run_tail(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x) / 4 * 4; i++) {
        tn_set(y->type, y->data, place(y, i), 2 * tn_get(x->type, x->data, place(x, i)));
    }
    return TN_OK;
}

/* Adds to what the output holds. */
static tn_status run_adds(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) {
        const double held = tn_get(y->type, y->data, place(y, i));
        tn_set(y->type, y->data, place(y, i), (held == held ? held : 3) + 2 * tn_get(x->type, x->data, place(x, i)));
    }
    return TN_OK;
}

static size_t workspace(const tn_call *call) {
    (void)call;
    return 256;
}

static tn_status run_reference(const tn_call *call, void *state) {
    return run_right(call, state);
}

static const tn_sample samples[] = {{"s=[3, 5]"}, {"s=[]"}, {"s=[0, 4]"}, {"s=[7, 33]"}, {"s=[2, 3, 4]"}, {0}};

#define REFERENCE \
    { .name = "ref", .device = TN_CPU, .flags = TN_STRIDED, .run = run_reference }
#define OPERATOR(name_, ...)                                                                    \
    static const tn_kernel name_##_kernels[] = {                                                \
        {.name = "cuda", .device = TN_CUDA, .flags = TN_STRIDED, __VA_ARGS__}, REFERENCE, {0}}; \
    static const tn_op name_ = {                                                                \
        .signature = #name_ "(x: T[*s]) -> y: T[*s]", .doc = "2 x.", .kernels = name_##_kernels, .samples = samples};

OPERATOR(gpu_right, .run = run_right)
OPERATOR(gpu_past, .run = run_past)
OPERATOR(gpu_far, .run = run_far)
OPERATOR(gpu_dense, .run = run_dense)
OPERATOR(gpu_drift, .run = run_drift)
OPERATOR(gpu_leak, .run = run_leak)
OPERATOR(gpu_dirty, .run = run_dirty, .workspace = workspace)
OPERATOR(gpu_reads, .run = run_reads)
OPERATOR(gpu_tail, .run = run_tail)
OPERATOR(gpu_adds, .run = run_adds)

static const tn_op *const table[] = {&gpu_right, &gpu_past,  &gpu_far,   &gpu_dense, &gpu_drift,
                                     &gpu_leak,  &gpu_dirty, &gpu_reads, &gpu_tail,  &gpu_adds};
TN_API const tn_plugin tenon_plugin = TN_PLUGIN(table);
