/* attention: contracts, gradient, samples. The references are in attention_ref.c, the vectorised kernels in
 * attention_cpu.c and attention_grad_cpu.c. */
#include "attention.h"

#include <math.h>

#include "attention_plan.h"
#include "core/contract/contract.h"
#include "core/host/status.h"
#include "core/table/kernel_flags.h"
#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"

TNI_CPU_DECLARE(attention)
TNI_CPU_DECLARE(attention_grad)
TNI_CUDA_DECLARE(attention)
TNI_CUDA_DECLARE(attention_grad)
TNI_CUDA_DECLARE(attention_hopper)
TNI_CUDA_DECLARE(attention_mma)
TNI_CUDA_DECLARE(attention_grad_mma)
bool tni_attention_hopper_cuda_accepts_dense(const tn_call *call);
bool tni_attention_mma_cuda_accepts_dense(const tn_call *call);
bool tni_attention_grad_mma_cuda_accepts_dense(const tn_call *call);

/* ---- what a call asks for ---------------------------------------------------------------------------------------- */

/* A negative side of the window is open. */
static void fill_job(attention_job *a, const tn_view *q, const tn_view *k, const tn_view *v, const tn_value *window,
                     bool causal, const tn_value *scale) {
    a->b = q->shape[0], a->hq = q->shape[1], a->m = q->shape[2], a->d = q->shape[3];
    a->hk = k->shape[1], a->n = k->shape[2], a->e = v->shape[3];
    a->group = a->hk ? a->hq / a->hk : 1;
    const int64_t all = a->m + a->n, before = window->ints[0], after = window->ints[1];
    a->before = before < 0 ? all : min(before, all);
    a->after = causal ? 0 : after < 0 ? all : min(after, all);
    a->scale = scale->kind == TN_ATTR_UNSET ? 1 / sqrt((double)max(a->d, 1)) : scale->f;
}

/* The last attributes of both operators. */
enum { CAUSAL, WINDOW, SCALE, SOFTCAP };

attention_job attention_job_of(const tn_call *call) {
    const attention_args v = attention_args_of(call);
    attention_job a = {.q = v.q,
                       .k = v.k,
                       .v = v.v,
                       .bias = v.bias,
                       .mask = v.mask,
                       .sinks = v.sinks,
                       .o = v.o,
                       .lse = v.lse,
                       .softcap = v.softcap};
    fill_job(&a, v.q, v.k, v.v, v.window, v.causal, &call->attrs[SCALE]);
    return a;
}

attention_job attention_grad_job_of(const tn_call *call) {
    const attention_grad_args v = attention_grad_args_of(call);
    attention_job a = {.q = v.q,
                       .k = v.k,
                       .v = v.v,
                       .bias = v.bias,
                       .mask = v.mask,
                       .sinks = v.sinks,
                       .o = v.o,
                       .lse = v.lse,
                       .dy = v.dy,
                       .dlse = v.dlse,
                       .dq = v.dq,
                       .dk = v.dk,
                       .dv = v.dv,
                       .dbias = v.dbias,
                       .dsinks = v.dsinks,
                       .softcap = v.softcap};
    fill_job(&a, v.q, v.k, v.v, v.window, v.causal, &call->attrs[SCALE]);
    return a;
}

/* Pairs of a query and a key that see each other, a mask aside. */
static double pairs_of(const attention_job *a) {
    double pairs = 0;
    for (int64_t i = 0; i < a->m; i++) pairs += (double)(attention_end_of_keys(a, i) - attention_first_key(a, i));
    return pairs * (double)(a->b * a->hq);
}

tn_cost tni_attention_cost(const tn_call *call) {
    const attention_job a = attention_job_of(call);
    return (tn_cost){.flops = 2 * pairs_of(&a) * (double)(a.d + a.e)};
}

/* Scores and their gradients, and what each of dq, dk and dv adds up. */
tn_cost tni_attention_grad_cost(const tn_call *call) {
    const attention_job a = attention_grad_job_of(call);
    return (tn_cost){.flops = 2 * pairs_of(&a) * (double)(3 * a.d + 2 * a.e)};
}

/* ---- the memory that it takes on the CPU ------------------------------------------------------------------------ */

enum { TERMS = 256, TERMS_ROW = TERMS + 16, WIDE = 32 }; /* as in tile_cpu.h: terms, a row of them, the most columns */

static tn_status plan_of(const tn_call *call, int64_t pieces, int64_t slice_reals, int64_t size, int64_t shared_bytes,
                         void **state) {
    attention_plan *plan = *state = tni_malloc(sizeof *plan);
    if (!plan) return TN_NO_MEMORY;
    const int64_t threads = call->host->threads ? call->host->threads(call->host->context) : tn_threads();
    *plan = (attention_plan){.pieces = pieces,
                             .slices = max(1, min(threads, pieces)),
                             .slice_bytes = round_up(slice_reals * size, 64),
                             .shared_bytes = shared_bytes};
    return TN_OK;
}

/* Rows or keys with `terms` numbers each, packed as the left side of a product; as the right side; sums. */
static int64_t left(int64_t rows, int64_t terms) {
    return ceil_div(terms, TERMS) * rows * TERMS_ROW;
}
static int64_t right(int64_t terms, int64_t columns) {
    return terms * round_up(columns, WIDE);
}

/* As attention_cpu.c divides it. */
tn_status tni_attention_prepare(const tn_call *call, void **state) {
    const attention_job a = attention_job_of(call);
    const int64_t rows = min(ATTENTION_ROWS, a.group * a.m), keys = ATTENTION_KEYS;
    const int64_t reals = left(rows, a.d) + right(a.d, keys) + left(rows, keys) + right(keys, a.e) + right(rows, a.e) +
                          2 * round_up(rows, WIDE);
    return plan_of(call, a.b * a.hk * ceil_div(a.group * a.m, ATTENTION_ROWS), reals, a.q->type == TN_F64 ? 8 : 4, 0,
                   state);
}

/* As attention_grad_cpu.c divides it: whatever adds to the same dbias is one piece. */
tn_status tni_attention_grad_prepare(const tn_call *call, void **state) {
    const attention_job a = attention_grad_job_of(call);
    const int64_t all = a.group * a.m, rows = min(ATTENTION_ROWS, all), keys = ATTENTION_KEYS;
    const int64_t size = a.q->type == TN_F64 ? 8 : 4;
    const int64_t packed = left(rows, a.d) + left(rows, a.e) + right(rows, a.d) + right(rows, a.e) + right(a.d, keys) +
                           right(a.e, keys) + right(keys, a.d);
    const int64_t reals = packed + 2 * left(rows, keys) + left(keys, max(rows, 1)) + right(keys, a.d) +
                          right(keys, a.e) + right(all, a.d) + round_up(all, WIDE);
    int64_t pieces = a.b * a.hk, shared = round_up(a.b * a.hq, 8) * 8;
    if (a.dbias) {
        shared += tn_count(a.dbias) * size;
        pieces = (a.dbias->shape[0] == 1 ? min(a.b, 1) : a.b) * (a.dbias->shape[1] == 1 ? min(a.hk, 1) : a.hk);
    }
    return plan_of(call, pieces, reals, size, shared, state);
}

size_t tni_attention_workspace(const tn_call *call) {
    const attention_plan *plan = call->state;
    return (size_t)(plan->slices * plan->slice_bytes + plan->shared_bytes);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define TENSOR_KERNEL(kernel, op, more, strides)                                                         \
    {                                                                                                    \
        .name = kernel, .device = TN_CUDA, .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16),                    \
        .flags = TNI_ROUNDS_BETWEEN | (more), .accepts = tni_##op##_cuda_accepts##strides,               \
        .prepare = tni_##op##_cuda_prepare, .release = tni_free, .workspace = tni_##op##_cuda_workspace, \
        .run = tni_##op##_cuda_run                                                                       \
    }
/* As tensors lie, and dense, which the core makes of others. */
#define TENSOR_KERNELS(kernel, op) TENSOR_KERNEL(kernel, op, TN_STRIDED, ), TENSOR_KERNEL(kernel, op, 0, _dense)

static const tn_kernel kernels[] = {
    TNI_CPU_KERNELS(attention, .flags = TN_STRIDED, .prepare = tni_attention_prepare, .release = tni_free,
                    .workspace = tni_attention_workspace),
    TENSOR_KERNELS("hopper", attention_hopper),
    TENSOR_KERNELS("mma", attention_mma),
    TNI_CUDA_KERNEL(attention, .flags = TN_STRIDED),
    {.name = "ref", .device = TN_CPU, .run = tni_attention_ref},
    {0},
};

static const tn_kernel grad_kernels[] = {
    TNI_CPU_KERNELS(attention_grad, .flags = TN_STRIDED, .prepare = tni_attention_grad_prepare, .release = tni_free,
                    .workspace = tni_attention_workspace),
    TENSOR_KERNELS("mma", attention_grad_mma),
    TNI_CUDA_KERNEL(attention_grad, .flags = TN_STRIDED, .workspace = tni_attention_grad_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = tni_attention_grad_ref},
    {0},
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const tn_sample samples[] = {
    {"b=2 hq=2 hk=2 m=5 n=7 d=8 e=8"},
    {"b=1 hq=1 hk=1 m=1 n=1 d=1 e=1"},
    {"b=1 hq=4 hk=2 m=19 n=19 d=16 e=24 causal=true"},
    {"b=2 hq=3 hk=1 m=9 n=20 d=40 e=16 causal=true scale=0.3"},
    {"b=1 hq=2 hk=2 m=20 n=9 d=8 e=8 causal=true"}, /* the first queries see nothing */
    {"b=1 hq=2 hk=1 m=33 n=70 d=32 e=32 window=[9, 3]"},
    {"b=1 hq=2 hk=2 m=30 n=30 d=20 e=12 causal=true window=[5, -1] sinks"},
    {"b=2 hq=2 hk=1 m=7 n=11 d=8 e=8 bias"},
    {"b=2 hq=2 hk=2 m=6 n=13 d=16 e=8 bias=[1, 2, 6, 13] softcap=2.0 scale=-0.7"},
    {"b=2 hq=2 hk=2 m=6 n=13 d=16 e=16 mask"},
    {"b=3 hq=2 hk=1 m=5 n=17 d=8 e=8 mask=[3, 1, 1, 17] sinks W=f32"},
    {"b=1 hq=2 hk=2 m=12 n=12 d=8 e=4 bias=[1, 1, 12, 12] mask=[1, 1, 12, 12] causal=true"},
    {"b=1 hq=2 hk=1 m=50 n=130 d=8 e=8"},
    {"b=1 hq=1 hk=1 m=100 n=130 d=8 e=8 causal=true"},
    {"b=1 hq=2 hk=1 m=9 n=20 d=64 e=64 causal=true"},
    {"b=1 hq=1 hk=1 m=3 n=9 d=144 e=136"},
    {"b=1 hq=1 hk=1 m=3 n=9 d=272 e=264"},
    {"b=0 hq=2 hk=1 m=5 n=7 d=8 e=8"},
    {"b=2 hq=2 hk=1 m=0 n=7 d=8 e=8"},
    {"b=2 hq=2 hk=1 m=5 n=0 d=8 e=8"},
    {"b=2 hq=2 hk=1 m=5 n=7 d=0 e=8"},
    {"b=2 hq=2 hk=1 m=5 n=7 d=8 e=0"},
    {"b=4 hq=16 hk=16 m=4096 n=4096 d=128 e=128", .bench = true},
    {"b=4 hq=16 hk=16 m=4096 n=4096 d=128 e=128 causal=true", .bench = true},
    {"b=4 hq=16 hk=16 m=2048 n=2048 d=64 e=64 causal=true", .bench = true},
    {0},
};

#define GIVEN " want_dq=true want_dk=true want_dv=true"
/* The first has a cap: with more terms its scores would grow, and lse, which is drawn, would not. */
static const tn_sample grad_samples[] = {
    {"b=2 hq=2 hk=2 m=5 n=7 d=8 e=8 dy softcap=0.5" GIVEN},
    {"b=2 hq=2 hk=2 m=5 n=7 d=8 e=8 dy" GIVEN},
    {"b=1 hq=1 hk=1 m=1 n=1 d=1 e=1 dy dlse" GIVEN},
    {"b=1 hq=4 hk=2 m=19 n=19 d=16 e=24 dy causal=true" GIVEN},
    {"b=2 hq=3 hk=1 m=9 n=20 d=40 e=16 dlse causal=true scale=0.3 want_dk=true want_dv=true"},
    {"b=1 hq=2 hk=2 m=20 n=9 d=8 e=8 dy causal=true want_dq=true"},
    {"b=1 hq=2 hk=1 m=33 n=70 d=32 e=32 dy window=[9, 3]" GIVEN},
    {"b=1 hq=2 hk=2 m=30 n=30 d=20 e=12 dy causal=true window=[5, -1] sinks want_dsinks=true" GIVEN},
    {"b=2 hq=2 hk=1 m=7 n=11 d=8 e=8 dy wb=2 wh=2 wm=7 wn=11 bias want_dbias=true" GIVEN},
    {"b=2 hq=2 hk=2 m=6 n=13 d=16 e=8 dy wb=1 wh=2 wm=6 wn=13 bias softcap=2.0 scale=-0.7 want_dbias=true" GIVEN},
    {"b=2 hq=2 hk=2 m=6 n=13 d=16 e=16 dy mask want_dv=true"},
    {"b=3 hq=2 hk=1 m=5 n=17 d=8 e=8 dy wb=3 wh=1 wm=1 wn=17 bias mask=[3, 1, 1, 17] sinks W=f32 want_dbias=true "
     "want_dsinks=true"},
    {"b=1 hq=2 hk=1 m=50 n=130 d=8 e=8 dy wb=1 wh=1 wm=50 wn=1 bias causal=true want_dbias=true" GIVEN},
    {"b=1 hq=1 hk=1 m=3 n=9 d=272 e=264 dy" GIVEN},
    {"b=0 hq=2 hk=1 m=5 n=7 d=8 e=8 dy sinks want_dsinks=true" GIVEN},
    {"b=2 hq=2 hk=1 m=0 n=7 d=8 e=8 dy" GIVEN},
    {"b=2 hq=2 hk=1 m=5 n=0 d=8 e=8 dy" GIVEN},
    {"b=2 hq=2 hk=1 m=5 n=7 d=0 e=8 dy" GIVEN},
    {"b=2 hq=2 hk=1 m=5 n=7 d=8 e=0 dy" GIVEN},
    {"b=4 hq=16 hk=16 m=4096 n=4096 d=128 e=128 dy" GIVEN, .bench = true},
    {"b=4 hq=16 hk=16 m=4096 n=4096 d=128 e=128 dy causal=true" GIVEN, .bench = true},
    {0},
};

#define OPTIONS "causal: bool = false, window: ints[2] = [-1, -1], scale: float?, softcap: float = 0.0) "
#define NEEDS "hq % hk == 0, softcap >= 0"

const tn_op tni_ops_attention[] = {
    {
        .signature = "attention(q: T[b, hq, m, d], k: T[b, hk, n, d], v: T[b, hk, n, e], bias: T[~b, ~hq, ~m, ~n]?, "
                     "mask: bool[~b, ~hq, ~m, ~n]?, sinks: W[hq]?, " OPTIONS
                     "-> o: T[b, hq, m, e], lse: acc(T)[b, hq, m] where " NEEDS,
        .doc = "softmax(scale * q k^T + bias) v, without a tensor of the scores. Scores s become softcap * tanh(s / "
               "softcap), before the bias is added, where softcap is not 0; scale is 1 / sqrt(d) unless it is given. "
               "hq / hk heads of q share one of k and v. The last query stands at the last key: with causal, query i "
               "sees the keys up to i + n - m, and window says how many keys before and behind its place it sees (-1: "
               "all). A key whose mask is false or whose bias is -inf takes no part, and a row without any is 0. A "
               "sink is one more score of its head, without a value. lse is the logarithm of each row's sum of "
               "exponentials.",
        .grad = "q, k, v, bias, sinks: attention_grad(q, k, v, bias, mask, sinks, o, lse, do, dlse)",
        .autocast = "16",
        .kernels = kernels,
        .cost = tni_attention_cost,
        .samples = samples,
    },
    {
        .signature = "attention_grad(q: T[b, hq, m, d], k: T[b, hk, n, d], v: T[b, hk, n, e], bias: T[wb, wh, wm, "
                     "wn]?, mask: bool[~b, ~hq, ~m, ~n]?, sinks: W[hq]?, o: T[b, hq, m, e], lse: acc(T)[b, hq, m], "
                     "dy: T[b, hq, m, e]?, dlse: acc(T)[b, hq, m]?, " OPTIONS
                     "-> dq: T[b, hq, m, d]?, dk: T[b, hk, n, d]?, dv: T[b, hk, n, e]?, dbias: T[wb, wh, wm, wn]?, "
                     "dsinks: W[hq]? where " NEEDS ", wb == 1 or wb == b, wh == 1 or wh == hq, wm == 1 or wm == m, wn "
                     "== 1 or wn == n",
        .doc = "The gradient of attention, for which the scores are computed again.",
        .kernels = grad_kernels,
        .cost = tni_attention_grad_cost,
        .samples = grad_samples,
    },
    {0},
};
