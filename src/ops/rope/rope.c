/* rope, rotary position embedding: contract, gradient, reference. The vectorised kernels are in rope_cpu.c. */
#include "rope.h"

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(rope)
TNI_CPU_DECLARE(rope_grad)
TNI_CUDA_DECLARE(rope)
TNI_CUDA_DECLARE(rope_grad)

/* The gradient has the arguments of rope in the same places. */
rope_job rope_job_of(const tn_call *call, bool back) {
    const rope_args a = rope_args_of(call);
    const int32_t last = a.x->ndim - 1;
    return (rope_job){.x = a.x,
                      .cos = a.cos,
                      .sin = a.sin,
                      .y = a.y,
                      .pairs = a.x->shape[last] / 2,
                      .cos_step = a.cos->strides[last],
                      .sin_step = a.sin->strides[last],
                      .interleaved = a.interleaved,
                      .back = back};
}

tni_rows rope_rows_of(const rope_job *job) {
    /* Rows of cos and sin are half as long: they are known by where they begin. */
    tn_view cos = *job->cos, sin = *job->sin;
    const tn_view *views[ROPE_VIEWS] = {job->x, job->y, &cos, &sin};
    cos.ndim--;
    sin.ndim--;
    return tni_rows_of(views, ROPE_VIEWS, job->x->ndim - 1);
}

/* Elements i and j of x, as numbers of a plane, turned by an angle. All tensors are dense. */
static void turn(const rope_job *job, int64_t i, int64_t j, int64_t angle) {
    const double c = get(job->cos, angle), s = job->back ? -get(job->sin, angle) : get(job->sin, angle);
    const double a = get(job->x, i), b = get(job->x, j);
    set(job->y, i, a * c - b * s);
    set(job->y, j, b * c + a * s);
}

static tn_status turn_all(const tn_call *call, bool back) {
    const rope_job job = rope_job_of(call, back);
    const int64_t n = job.pairs, count = tn_count(job.cos);
    for (int64_t k = 0; k < count; k++) {
        const int64_t row = k / n * 2 * n, pair = k % n;
        if (job.interleaved)
            turn(&job, row + 2 * pair, row + 2 * pair + 1, k);
        else
            turn(&job, row + pair, row + n + pair, k);
    }
    return TN_OK;
}

static tn_status rope_ref(const tn_call *call, void *state) {
    (void)state;
    return turn_all(call, false);
}

static tn_status rope_grad_ref(const tn_call *call, void *state) {
    (void)state;
    return turn_all(call, true);
}

static const tn_kernel rope_kernels[] = {
    TNI_CPU_KERNELS(rope, .flags = TN_STRIDED | TN_ALIAS),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, rope, TN_ALIAS, tni_rope_cuda_accepts),
    {.name = "ref", .device = TN_CPU, .run = rope_ref},
    {0},
};

static const tn_kernel rope_grad_kernels[] = {
    TNI_CPU_KERNELS(rope_grad, .flags = TN_STRIDED | TN_ALIAS),
    TNI_STRIDED_OR_DENSE(TNI_CUDA_KERNEL, rope_grad, TN_ALIAS, tni_rope_cuda_accepts),
    {.name = "ref", .device = TN_CPU, .run = rope_grad_ref},
    {0},
};

/* The third: batch, heads, positions; the fourth: batch, positions, heads. */
static const tn_sample samples[] = {
    {"r=[7] d=10"},
    {"r=[5] d=6 interleaved=true"},
    {"r=[2, 3, 9] d=16 cos=[9, 8] sin=[9, 8]"},
    {"r=[2, 9, 3] d=66 cos=[9, 1, 33] sin=[9, 1, 33] interleaved=true C=f32"},
    {"r=[2, 4, 5] d=128 cos=[2, 1, 5, 64] sin=[2, 1, 5, 64] C=f32"},
    {"r=[3, 5] d=64 cos=[5, 32] sin=[5, 32] interleaved=true"},
    {"r=[] d=4"},
    {"r=[3] d=0"},
    {"r=[0, 3] d=8 cos=[3, 4] sin=[3, 4]"},
    {"r=[2] d=3000"},
    {"r=[2] d=2502 interleaved=true"},
    {"r=[4, 32, 2048] d=128 cos=[2048, 64] sin=[2048, 64] C=f32", .bench = true},
    {"r=[4, 32, 2048] d=128 cos=[2048, 64] sin=[2048, 64] C=f32 interleaved=true", .bench = true},
    {0},
};

const tn_op tni_ops_rope[] = {
    {
        .signature = "rope(x: T[*r, d], cos: C[~*r, d / 2], sin: C[~*r, d / 2], interleaved: bool = false) "
                     "-> y: T[*r, d] where d % 2 == 0",
        .doc = "Rotary position embedding: turns pairs of a row, which are its halves' elements or neighbours, by "
               "angles.",
        .grad = "x: rope_grad(dy, cos, sin)",
        .kernels = rope_kernels,
        .samples = samples,
    },
    {
        .signature = "rope_grad(dy: T[*r, d], cos: C[~*r, d / 2], sin: C[~*r, d / 2], interleaved: bool = false) "
                     "-> dx: T[*r, d] where d % 2 == 0",
        .doc = "The gradient of rope, which turns back.",
        .grad = "dy: rope(ddx, cos, sin)",
        .kernels = rope_grad_kernels,
        .samples = samples,
    },
    {0},
};
