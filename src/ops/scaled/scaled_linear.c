/* linear_int8 and linear_fp8: contracts, references. */
#include "scaled_linear_cpu.h"

#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "core/host/memory.h"
#include "cpu/vec/variants.h"
#include "ops/elements.h"
#include "scaled_linear_cuda.h"

TNI_CPU_DECLARE(linear_int8)
TNI_CPU_DECLARE(linear_fp8)

/* x: (m, k), w: (n, k). Sums of 8-bit integers are exact. */
static tn_status scaled_linear_ref(const tn_call *call, void *state) {
    (void)state;
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_scaled_size s = tni_scaled_size_of(&a);
    for (int64_t at = 0; at < s.m * s.n; at++) {
        const int64_t i = at / s.n, j = at % s.n;
        double sum = 0;
        for (int64_t l = 0; l < s.k; l++) sum += get(a.x, i * s.k + l) * get(a.w, j * s.k + l);
        const double y = sum * get(a.x_scale, i) * get(a.w_scale, j) + get_or(a.b, j, 0);
        set(a.y, at, a.act == TNI_ACT_RELU && y < 0 ? 0 : y);
    }
    return TN_OK;
}

/* What it is made of by vectors of 32-bit numbers. */
static bool is_float(const tn_call *call) {
    return tni_scaled_is_float(linear_int8_args_of(call).y->type);
}

/* x in numbers of `size` bytes, and for each thread as many rows of w. */
static tn_status make_room(const tn_call *call, int64_t size, int64_t rows, void **state) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_scaled_size s = tni_scaled_size_of(&a);
    const int64_t row = round_up(s.k, TNI_SCALED_MULTIPLE) * size;
    tni_scaled_room *room = *state = tni_malloc(sizeof *room);
    if (!room) return TN_NO_MEMORY;
    room->threads = call->host->threads ? call->host->threads(call->host->context) : tn_threads();
    room->wide_bytes = round_up(s.m * row, 64);
    room->bytes = room->wide_bytes + room->threads * row * rows;
    return TN_OK;
}

static tn_status linear_int8_prepare(const tn_call *call, void **state) {
    return make_room(call, sizeof(int16_t), TNI_INT8_COLUMNS, state);
}

static tn_status linear_fp8_prepare(const tn_call *call, void **state) {
    return make_room(call, sizeof(float), TNI_FP8_COLUMNS, state);
}

static size_t workspace(const tn_call *call) {
    const tni_scaled_room *room = call->state;
    return (size_t)room->bytes;
}

#define CPU_KERNEL(set, needs, op) \
    {.name = #set,                 \
     .device = TN_CPU,             \
     .isa = needs,                 \
     .accepts = is_float,          \
     .workspace = workspace,       \
     .prepare = op##_prepare,      \
     .release = tni_free,          \
     .run = op##_##set##_f32},
#define KERNELS(op)                                                  \
    static const tn_kernel op##_kernels[] = {                        \
        TNI_VARIANTS(CPU_KERNEL, op) TNI_SCALED_CUDA_KERNELS,        \
        {.name = "ref", .device = TN_CPU, .run = scaled_linear_ref}, \
        {0},                                                         \
    };
KERNELS(linear_int8)
KERNELS(linear_fp8)

static tn_cost scaled_cost(const tn_call *call) {
    const linear_int8_args a = linear_int8_args_of(call);
    const tni_scaled_size s = tni_scaled_size_of(&a);
    return (tn_cost){.flops = 2.0 * (double)s.m * (double)s.n * (double)s.k};
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Of 8-bit floats, Hopper's tensor cores keep fewer bits of a sum than an f32 has: how many times an f32's and an f16's
 * bound that may be. */
#define SAMPLES(sums, halves)                                                                                        \
    {"r=[7] k=5 n=3 type=f32", .tolerance = sums}, {"r=[] k=33 n=17 b type=f32", .tolerance = sums},                 \
        {"r=[2, 3] k=64 n=40 b type=f16", .tolerance = halves},                                                      \
        {"r=[13] k=31 n=65 b act='relu' type=bf16", .tolerance = halves},                                            \
        {"r=[3, 1, 5] k=48 n=24 x_scale=[] type=f32", .tolerance = sums},                                            \
        {"r=[2, 9] k=160 n=48 x_scale=[2, 1] b act='relu' type=f32", .tolerance = sums},                             \
        {"r=[150] k=208 n=136 type=bf16", .tolerance = halves}, {"r=[1] k=700 n=130 type=f32", .tolerance = sums},   \
        {"r=[4] k=300 n=67 b type=f16", .tolerance = halves},                                                        \
        {"r=[6] k=12 n=50 act='silu' type=f32", .tolerance = sums}, {"r=[0] k=5 n=3 b type=f32", .tolerance = sums}, \
        {"r=[5] k=0 n=3 b type=f32", .tolerance = sums}, {"r=[5] k=4 n=0 type=f32", .tolerance = sums},              \
        {"r=[2048] k=4096 n=4096 type=bf16", .bench = true}, {                                                       \
        "r=[16] k=4096 n=4096 type=bf16", .bench = true                                                              \
    }
static const tn_sample linear_int8_samples[] = {SAMPLES(1, 1), {0}}, linear_fp8_samples[] = {SAMPLES(512, 64), {0}};

const tn_op tni_ops_scaled_linear[] = {
    {
        /* Sums of more terms may not be integers of 32 bits. */
        .signature = "linear_int8(x: i8[*r, k], w: i8[n, k], x_scale: f32[~*r], w_scale: f32[n], b: f32[n]?, "
                     "type: dtype = bf16, act: activation = 'none') -> y: type[*r, n] where k <= 131071",
        .doc = "act(x_scale * w_scale * (x w^T) + b) of 8-bit integers, with a scale for each row of x and of w.",
        .kernels = linear_int8_kernels,
        .cost = scaled_cost,
        .samples = linear_int8_samples,
    },
    {
        .signature = "linear_fp8(x: e4m3[*r, k], w: e4m3[n, k], x_scale: f32[~*r], w_scale: f32[n], b: f32[n]?, "
                     "type: dtype = bf16, act: activation = 'none') -> y: type[*r, n]",
        .doc = "act(x_scale * w_scale * (x w^T) + b) of 8-bit floats, with a scale for each row of x and of w.",
        .kernels = linear_fp8_kernels,
        .cost = scaled_cost,
        .samples = linear_fp8_samples,
    },
    {0},
};
