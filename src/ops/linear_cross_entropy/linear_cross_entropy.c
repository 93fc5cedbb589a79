/* linear_cross_entropy: contracts, gradients, samples. The kernel is in linear_cross_entropy_chunks.c, the reference in
 * linear_cross_entropy_ref.c. */
#include "linear_cross_entropy.h"
#include "ops/loss/cross_entropy.h"

tni_token_loss tni_token_loss_of(const tn_call *call) {
    const tni_token_loss_reader *reader = call->kernel->data;
    tni_token_loss a = reader->of(call);
    a.rows = tn_count(a.target);
    a.v = a.w->shape[0];
    a.k = a.w->shape[1];
    return a;
}

/* What the three operators have under the same names. */
#define SHARED(a)                                                                                                     \
    .x = (a).x, .w = (a).w, .target = (a).target, .b = (a).b, .weight = (a).weight, .ignore_index = (a).ignore_index, \
    .logits_mib = (a).logits_mib, .label_smoothing = (a).label_smoothing, .z_loss = (a).z_loss,                       \
    .softcap = (a).softcap, .temperature = (a).temperature

static tni_token_loss of_all(const tn_call *call) {
    const linear_cross_entropy_args a = linear_cross_entropy_args_of(call);
    return (tni_token_loss){SHARED(a), .reduction = a.reduction, .loss = a.loss, .lse = a.lse, .dx = a.gx, .dw = a.gw,
                            .db = a.gb};
}

static tni_token_loss of_tokens(const tn_call *call) {
    const linear_cross_entropy_tokens_args a = linear_cross_entropy_tokens_args_of(call);
    return (tni_token_loss){
        SHARED(a),   .reduction = REDUCE_NONE, .loss = a.loss, .log_prob = a.log_prob, .entropy = a.entropy,
        .lse = a.lse};
}

static tni_token_loss of_tokens_grad(const tn_call *call) {
    const linear_cross_entropy_tokens_grad_args a = linear_cross_entropy_tokens_grad_args_of(call);
    return (tni_token_loss){SHARED(a),
                            .reduction = REDUCE_NONE,
                            .log_prob_was = a.log_prob,
                            .lse_was = a.lse,
                            .entropy_was = a.entropy,
                            .dloss = a.dloss,
                            .dlog_prob = a.dlog_prob,
                            .dentropy = a.dentropy,
                            .dx = a.dx,
                            .dw = a.dw,
                            .db = a.db};
}

static const tni_token_loss_reader all = {of_all}, tokens = {of_tokens}, tokens_grad = {of_tokens_grad};

#define CHUNKS(on, reader)                                                                                           \
    {                                                                                                                \
        .name = "chunks", .device = on, .flags = (on) == TN_CUDA ? TN_ROWS_VARY : 0,                                 \
        .workspace = tni_token_loss_workspace, .prepare = tni_token_loss_prepare, .release = tni_token_loss_release, \
        .run = tni_token_loss_run, .data = &(reader)                                                                 \
    }
#define KERNELS(reader)                                  \
    {                                                    \
        CHUNKS(TN_CPU, reader), CHUNKS(TN_CUDA, reader), \
            {.name = "ref",                              \
             .device = TN_CPU,                           \
             .workspace = tni_token_loss_ref_workspace,  \
             .run = tni_token_loss_ref,                  \
             .data = &(reader)},                         \
        {                                                \
            0                                            \
        }                                                \
    }

static const tn_kernel all_kernels[] = KERNELS(all), tokens_kernels[] = KERNELS(tokens),
                       tokens_grad_kernels[] = KERNELS(tokens_grad);

/* Logits and their gradients are rounded between the products: in 16 bits, where bounds are those of sums in f32. */
#define ROUNDED_BETWEEN .tolerance = 4096

#define GRADIENTS " want_gx=true want_gw=true want_gb=true"

/* The first sample is also run with sums of 70000 ones. As logits these have no room in 16 bits. */
#define COOL " temperature=20000.0"

/* ignore_index inside 0 … v - 1 makes some of the drawn targets ignored. */
static const tn_sample all_samples[] = {
    {"r=[5] k=7 v=10 target<v" COOL GRADIENTS, ROUNDED_BETWEEN},
    {"r=[5] k=7 v=10 target<v" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[] k=9 v=7 target<v reduction='sum'" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[2, 3] k=16 v=33 target<v b target=i32" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[9] k=5 v=3 target<v ignore_index=1 temperature=16.0 reduction='sum'" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[12] k=8 v=65 target<v b weight weight>0 ignore_index=2 label_smoothing=0.1" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[2, 2] k=6 v=21 target<v z_loss=0.01" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[6] k=12 v=40 target<v softcap=2.0 temperature=0.7 reduction='sum'" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[9] k=20 v=50 target<v b", ROUNDED_BETWEEN},
    {"r=[3] k=4 v=1000 target<v label_smoothing=0.2", ROUNDED_BETWEEN},
    {"r=[300] k=2 v=500 target<v b logits_mib=1" GRADIENTS, ROUNDED_BETWEEN}, /* in chunks, if in f64 */
    {"r=[0] k=4 v=5 target<v reduction='sum'" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[4] k=0 v=5 target<v" GRADIENTS, ROUNDED_BETWEEN},
    {"r=[2048] k=1024 v=32000 target<v", .bench = true},
    {"r=[1024] k=1024 v=50257 target<v" GRADIENTS, .bench = true},
    {0},
};

static const tn_sample tokens_samples[] = {
    {"r=[5] k=7 v=10 target<v" COOL, ROUNDED_BETWEEN},
    {"r=[5] k=7 v=10 target<v", ROUNDED_BETWEEN},
    {"r=[] k=9 v=7 target<v b", ROUNDED_BETWEEN},
    {"r=[2, 3] k=16 v=33 target<v target=i32 softcap=3.0", ROUNDED_BETWEEN},
    {"r=[12] k=8 v=65 target<v b weight weight>0 ignore_index=2 label_smoothing=0.1 z_loss=0.01 temperature=1.5",
     ROUNDED_BETWEEN},
    {"r=[0] k=4 v=5 target<v", ROUNDED_BETWEEN},
    {"r=[1024] k=1024 v=32000 target<v", .bench = true},
    {0},
};

#define GIVEN " dloss dlog_prob dentropy want_dx=true want_dw=true"

static const tn_sample tokens_grad_samples[] = {
    {"r=[5] k=7 v=10 target<v" COOL GIVEN, ROUNDED_BETWEEN},
    {"r=[5] k=7 v=10 target<v" GIVEN, ROUNDED_BETWEEN},
    {"r=[] k=9 v=7 target<v dloss want_dx=true", ROUNDED_BETWEEN},
    {"r=[2, 3] k=16 v=33 target<v b dentropy target=i32 softcap=3.0 want_dx=true want_db=true", ROUNDED_BETWEEN},
    {"r=[9] k=20 v=50 target<v dlog_prob want_dw=true", ROUNDED_BETWEEN},
    {"r=[12] k=8 v=65 target<v b weight weight>0 ignore_index=2 label_smoothing=0.1 z_loss=0.01 temperature=1.5 "
     "want_db=true" GIVEN,
     ROUNDED_BETWEEN},
    {"r=[0] k=4 v=5 target<v b want_db=true" GIVEN, ROUNDED_BETWEEN},
    {"r=[1024] k=1024 v=32000 target<v" GIVEN, .bench = true},
    {0},
};

#define INPUTS "w: T[v, k], target: i32|i64[*r], b: T[v]?, weight: f32[v]?, "
#define OPTIONS "ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0, "
#define MORE "softcap: float = 0.0, temperature: float = 1.0, logits_mib: int = 512) "
#define NEEDS " where label_smoothing >= 0, label_smoothing <= 1, softcap >= 0, temperature > 0, logits_mib >= 1"

const tn_op tni_ops_linear_cross_entropy[] = {
    {
        .signature = "linear_cross_entropy(x: T[*r, k], " INPUTS OPTIONS "reduction: 'mean'|'sum' = 'mean', " MORE
                     "-> loss: acc(T)[], lse: acc(T)[*r], gx: T[*r, k]?grad, gw: T[v, k]?grad, gb: T[v]?grad" NEEDS,
        .doc = "cross_entropy of softcap * tanh((x w^T + b) / softcap) / temperature, without a tensor of these "
               "logits: at most logits_mib MiB of them are in memory, and what has no room is computed twice where "
               "gradients are wanted.",
        .grad = "x: cross_entropy_grad(gx, dloss, reduction='sum'); w: cross_entropy_grad(gw, dloss, reduction='sum'); "
                "b: cross_entropy_grad(gb, dloss, reduction='sum')",
        .autocast = "16",
        .kernels = all_kernels,
        .samples = all_samples,
    },
    {
        .signature = "linear_cross_entropy_tokens(x: T[*r, k], " INPUTS OPTIONS MORE
                     "-> loss: acc(T)[*r], log_prob: acc(T)[*r], entropy: acc(T)[*r], lse: acc(T)[*r]" NEEDS,
        .doc = "linear_cross_entropy for each token: its loss, the logarithm of its target's probability, the entropy "
               "of all classes, and the logsumexp of its logits; all but the last are 0 where the target is "
               "ignore_index.",
        .grad = "x, w, b: linear_cross_entropy_tokens_grad(x, w, target, b, weight, log_prob, entropy, lse, dloss, "
                "dlog_prob, dentropy)",
        .autocast = "16",
        .kernels = tokens_kernels,
        .samples = tokens_samples,
    },
    {
        .signature = "linear_cross_entropy_tokens_grad(x: T[*r, k], " INPUTS
                     "log_prob: acc(T)[*r], entropy: acc(T)[*r], lse: acc(T)[*r], dloss: acc(T)[*r]?, "
                     "dlog_prob: acc(T)[*r]?, dentropy: acc(T)[*r]?, " OPTIONS MORE
                     "-> dx: T[*r, k]?, dw: T[v, k]?, db: T[v]?" NEEDS,
        .doc = "The gradient of linear_cross_entropy_tokens, for which the logits are computed again.",
        .kernels = tokens_grad_kernels,
        .samples = tokens_grad_samples,
    },
    {0},
};
