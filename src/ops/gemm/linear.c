/* linear: contract, gradient, references. The vectorised kernels are in gemm_cpu.c. */
#include "core/contract/contract.h"
#include "gemm.h"
#include "gemm_cuda.h"
#include "gemm_plan.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(gemm)
TNI_CPU_DECLARE(linear_grad)

/* x: (r, k), w: (n, k), all dense */
static tn_status linear_ref(const tn_call *call, void *state) {
    (void)state;
    const linear_args a = linear_args_of(call);
    const int64_t n = a.w->shape[0], k = a.w->shape[1], r = tn_product(a.x, 0, a.x->ndim - 1);
    for (int64_t i = 0; i < r; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += get(a.x, i * k + l) * get(a.w, j * k + l);
            sum += get_or(a.b, j, 0) + get_or(a.residual, i * n + j, 0);
            if (a.z && a.act != TNI_ACT_NONE) set(a.z, i * n + j, sum);
            set(a.y, i * n + j, a.act == TNI_ACT_RELU && sum < 0 ? 0 : sum);
        }
    }
    return TN_OK;
}

/* What passes the activation: dy, or 0 where relu cut off. */
static double passed(const linear_grad_args *a, int64_t at) {
    return a->act == TNI_ACT_RELU && get(a->z, at) <= 0 ? 0 : get(a->dy, at);
}

/* dx = dz w, dw = dz^T x, db = the sum of dz over rows, dresidual = dz */
static tn_status linear_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const linear_grad_args a = linear_grad_args_of(call);
    const int64_t n = a.w->shape[0], k = a.w->shape[1], r = tn_product(a.x, 0, a.x->ndim - 1);
    for (int64_t at = 0; a.dresidual && at < r * n; at++) set(a.dresidual, at, passed(&a, at));
    for (int64_t at = 0; a.dx && at < r * k; at++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++) sum += passed(&a, at / k * n + j) * get(a.w, j * k + at % k);
        set(a.dx, at, sum);
    }
    for (int64_t at = 0; a.dw && at < n * k; at++) {
        double sum = 0;
        for (int64_t i = 0; i < r; i++) sum += passed(&a, i * n + at / k) * get(a.x, i * k + at % k);
        set(a.dw, at, sum);
    }
    for (int64_t j = 0; a.db && j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < r; i++) sum += passed(&a, i * n + j);
        set(a.db, j, sum);
    }
    return TN_OK;
}

static const tn_kernel linear_kernels[] = {
    GEMM_KERNELS(&tni_linear_products),
    TNI_GEMM_CUDA_KERNELS(&tni_linear_products),
    {.name = "ref", .device = TN_CPU, .run = linear_ref},
    {0},
};

static const tn_kernel linear_grad_kernels[] = {
    TNI_CPU_KERNELS(linear_grad, .flags = TN_STRIDED, .prepare = tni_linear_grad_prepare, .release = tni_free,
                    .workspace = tni_gemm_workspace),
    TNI_GEMM_GRAD_CUDA_KERNELS,
    {.name = "ref", .device = TN_CPU, .run = linear_grad_ref},
    {0},
};

/* Values before an activation that is a formula are stored: in 16 bits, where bounds are those of sums in f32. */
#define ROUNDED_BETWEEN .tolerance = 4096

static const tn_sample linear_samples[] = {
    {"r=[7] k=5 n=3"},
    {"r=[] k=33 n=17 b"},
    {"r=[2, 3] k=64 n=40 b residual"},
    {"r=[13] k=31 n=65 b act='relu'"},
    {"r=[4, 5] k=9 n=21 residual act='relu' want_z=true"},
    {"r=[3, 1, 5] k=16 n=8 b residual act='gelu' want_z=true", ROUNDED_BETWEEN},
    {"r=[6] k=12 n=50 act='silu'", ROUNDED_BETWEEN},
    {"r=[1] k=700 n=130"},
    {"r=[2] k=300 n=67 b"},
    {"r=[3] k=130 n=40"},
    {"r=[50] k=70 n=90 b"},
    {"r=[0] k=5 n=3 b"},
    {"r=[5] k=0 n=3 b"},
    {"r=[5] k=4 n=0"},
    {"r=[24] k=40 n=64 b residual act='relu'"}, /* rows at multiples of 16 bytes, as cuBLASLt takes them in 16 bits */
    {"r=[1024] k=1024 n=1024", .bench = true},
    {"r=[2048] k=2048 n=2048 b act='gelu'", .bench = true},
    {"r=[2048] k=4096 n=4096", .bench = true},
    {"r=[1] k=4096 n=4096", .bench = true},
    {"r=[16] k=4096 n=4096", .bench = true},
    {0},
};

#define ALL "want_dx=true want_dw=true want_db=true"

static const tn_sample linear_grad_samples[] = {
    {"r=[7] k=5 n=3 " ALL},
    {"r=[] k=33 n=17 " ALL},
    {"r=[2, 3] k=64 n=40 want_dx=true want_dw=true want_dresidual=true"},
    {"r=[13] k=31 n=65 act='relu' z " ALL},
    {"r=[4, 5] k=9 n=21 act='relu' z want_dresidual=true " ALL},
    {"r=[3, 1, 5] k=16 n=8 act='gelu' z want_dresidual=true " ALL, ROUNDED_BETWEEN},
    {"r=[6] k=12 n=50 act='silu' z want_dx=true", ROUNDED_BETWEEN},
    {"r=[700] k=7 n=13 want_dw=true want_db=true"},
    {"r=[50] k=70 n=90 want_db=true"},
    {"r=[0] k=5 n=3 " ALL},
    {"r=[5] k=0 n=3 " ALL},
    {"r=[5] k=4 n=0 " ALL},
    {"r=[40] k=48 n=64 act='relu' z " ALL}, /* as above */
    {"r=[1024] k=1024 n=1024 " ALL, .bench = true},
    {"r=[2048] k=4096 n=4096 want_dx=true want_dw=true", .bench = true},
    {"r=[2048] k=4096 n=512 want_dx=true want_dw=true", .bench = true},
    {0},
};

const tn_op tni_ops_linear[] = {
    {
        .signature = "linear(x: T[*r, k], w: T[n, k], b: T[n]?, residual: T[*r, n]?, act: activation = 'none') "
                     "-> y: T[*r, n], z: T[*r, n if act != 'none' else 0]?grad",
        .doc = "act(x w^T + b + residual); z is what act was applied to.",
        .grad = "x, w, b, residual: linear_grad(x, w, dy, z)",
        .autocast = "16",
        .kernels = linear_kernels,
        .cost = tni_linear_cost,
        .samples = linear_samples,
    },
    {
        .signature = "linear_grad(x: T[*r, k], w: T[n, k], dy: T[*r, n], z: T[*r, n if act != 'none' else 0]?, "
                     "act: activation = 'none') -> dx: T[*r, k]?, dw: T[n, k]?, db: T[n]?, dresidual: T[*r, n]?",
        .doc = "The gradients of linear that are asked for; with act it needs z, the values before it.",
        .kernels = linear_grad_kernels,
        .cost = tni_linear_grad_cost,
        .samples = linear_grad_samples,
    },
    {0},
};
