/* matmul, matvec and vecmat: contracts, gradients, references. The vectorised kernels are in gemm_cpu.c. Their
 * gradients are products again, so they can be differentiated any number of times. */
#include "core/host/arith.h"
#include "gemm.h"
#include "gemm_cuda.h"
#include "gemm_plan.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(gemm)

/* Which entry of v's batch belongs to entry p of the batch of `like`, with which it broadcasts. All are dense. */
static int64_t entry(const tn_view *v, const tn_view *like, int64_t p) {
    int64_t at = 0, step = 1;
    for (int32_t d = like->ndim - 3, e = v->ndim - 3; d >= 0 && e >= 0; d--, e--) {
        if (v->shape[e] != 1) at += p % like->shape[d] * step;
        step *= v->shape[e];
        p /= like->shape[d];
    }
    return at;
}

/* a: (p, m, k), b: (q, k, n) */
static tn_status matmul_ref(const tn_call *call, void *state) {
    (void)state;
    const matmul_args v = matmul_args_of(call);
    const int32_t last = v.y->ndim - 1;
    const int64_t m = v.y->shape[last - 1], n = v.y->shape[last], k = v.a->shape[v.a->ndim - 1], count = tn_count(v.y);
    for (int64_t at = 0; at < count; at++) {
        const int64_t p = at / (m * n), i = at / n % m, j = at % n;
        const int64_t a = (entry(v.a, v.y, p) * m + i) * k, b = entry(v.b, v.y, p) * k * n + j;
        double sum = 0;
        for (int64_t l = 0; l < k; l++) sum += get(v.a, a + l) * get(v.b, b + l * n);
        set(v.y, at, v.alpha * sum);
    }
    return TN_OK;
}

/* da = alpha * dy b^T, summed over the entries of dy that one entry of a took part in. */
static tn_status matmul_a_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const matmul_a_grad_args v = matmul_a_grad_args_of(call);
    const int32_t last = v.dy->ndim - 1;
    const int64_t m = v.dy->shape[last - 1], n = v.dy->shape[last], k = v.b->shape[v.b->ndim - 2];
    const int64_t count = tn_count(v.da), entries = tn_product(v.dy, 0, last - 1);
    for (int64_t at = 0; at < count; at++) {
        const int64_t i = at / k % m, l = at % k;
        double sum = 0;
        for (int64_t p = 0; p < entries; p++) {
            const int64_t b = (entry(v.b, v.dy, p) * k + l) * n;
            if (entry(v.da, v.dy, p) != at / (m * k)) continue;
            for (int64_t j = 0; j < n; j++) sum += get(v.dy, (p * m + i) * n + j) * get(v.b, b + j);
        }
        set(v.da, at, v.alpha * sum);
    }
    return TN_OK;
}

/* db = alpha * a^T dy, in the same way. */
static tn_status matmul_b_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const matmul_b_grad_args v = matmul_b_grad_args_of(call);
    const int32_t last = v.dy->ndim - 1;
    const int64_t m = v.dy->shape[last - 1], n = v.dy->shape[last], k = v.a->shape[v.a->ndim - 1];
    const int64_t count = tn_count(v.db), entries = tn_product(v.dy, 0, last - 1);
    for (int64_t at = 0; at < count; at++) {
        const int64_t l = at / n % k, j = at % n;
        double sum = 0;
        for (int64_t p = 0; p < entries; p++) {
            const int64_t a = entry(v.a, v.dy, p) * m * k + l;
            if (entry(v.db, v.dy, p) != at / (k * n)) continue;
            for (int64_t i = 0; i < m; i++) sum += get(v.a, a + i * k) * get(v.dy, (p * m + i) * n + j);
        }
        set(v.db, at, v.alpha * sum);
    }
    return TN_OK;
}

/* a: (p, m, k), b: (p, k, n), c: (p, m, n) */
static tn_status matmul_add_ref(const tn_call *call, void *state) {
    (void)state;
    const matmul_add_args v = matmul_add_args_of(call);
    const int32_t last = v.c->ndim - 1;
    const int64_t m = v.c->shape[last - 1], n = v.c->shape[last], k = v.a->shape[last], count = tn_count(v.c);
    for (int64_t at = 0; at < count; at++) {
        const int64_t a = at / n * k, b = at / (m * n) * k * n + at % n;
        double sum = 0;
        for (int64_t l = 0; l < k; l++) sum += get(v.a, a + l) * get(v.b, b + l * n);
        set(v.c, at, v.alpha * sum + (v.add ? get(v.c, at) : 0));
    }
    return TN_OK;
}

/* a: (p, m, k), x: (p, k) */
static tn_status matvec_ref(const tn_call *call, void *state) {
    (void)state;
    const matvec_args v = matvec_args_of(call);
    const int64_t m = v.a->shape[v.a->ndim - 2], k = v.a->shape[v.a->ndim - 1], count = tn_count(v.y);
    for (int64_t at = 0; at < count; at++) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++) sum += get(v.a, at * k + l) * get(v.x, at / m * k + l);
        set(v.y, at, sum);
    }
    return TN_OK;
}

/* x: (p, m), a: (p, m, k) */
static tn_status vecmat_ref(const tn_call *call, void *state) {
    (void)state;
    const vecmat_args v = vecmat_args_of(call);
    const int64_t m = v.a->shape[v.a->ndim - 2], k = v.a->shape[v.a->ndim - 1], count = tn_count(v.y);
    for (int64_t at = 0; at < count; at++) {
        const int64_t p = at / k;
        double sum = 0;
        for (int64_t i = 0; i < m; i++) sum += get(v.x, p * m + i) * get(v.a, (p * m + i) * k + at % k);
        set(v.y, at, sum);
    }
    return TN_OK;
}

static const tn_kernel matmul_kernels[] = {
    GEMM_KERNELS(&tni_matmul_products),
    TNI_GEMM_CUDA_KERNELS(&tni_matmul_products),
    {.name = "ref", .device = TN_CPU, .run = matmul_ref},
    {0},
};

static const tn_kernel matmul_a_grad_kernels[] = {
    GEMM_KERNELS(&tni_matmul_a_grad_products),
    TNI_GEMM_CUDA_KERNELS(&tni_matmul_a_grad_products),
    {.name = "ref", .device = TN_CPU, .run = matmul_a_grad_ref},
    {0},
};

static const tn_kernel matmul_b_grad_kernels[] = {
    GEMM_KERNELS(&tni_matmul_b_grad_products),
    TNI_GEMM_CUDA_KERNELS(&tni_matmul_b_grad_products),
    {.name = "ref", .device = TN_CPU, .run = matmul_b_grad_ref},
    {0},
};

static const tn_kernel matmul_add_kernels[] = {
    GEMM_KERNELS(&tni_matmul_add_products),
    TNI_GEMM_ADD_CUDA_KERNELS(&tni_matmul_add_products),
    {.name = "ref", .device = TN_CPU, .run = matmul_add_ref},
    {0},
};

static const tn_kernel matvec_kernels[] = {
    GEMM_KERNELS(&tni_matvec_products),
    TNI_GEMM_CUDA_KERNELS(&tni_matvec_products),
    {.name = "ref", .device = TN_CPU, .run = matvec_ref},
    {0},
};

static const tn_kernel vecmat_kernels[] = {
    GEMM_KERNELS(&tni_vecmat_products),
    TNI_GEMM_CUDA_KERNELS(&tni_vecmat_products),
    {.name = "ref", .device = TN_CPU, .run = vecmat_ref},
    {0},
};

static const tn_sample matmul_samples[] = {
    {"p=[] q=[] m=7 k=5 n=3"},
    {"p=[] q=[] m=33 k=70 n=41 alpha=0.125"},
    {"p=[3] q=[3] m=4 k=9 n=17"},
    {"p=[2, 3] q=[3] m=5 k=6 n=7 alpha=-2.5"},
    {"p=[4] q=[] m=9 k=20 n=35"},
    {"p=[] q=[4] m=9 k=20 n=35"},
    {"p=[2, 1] q=[1, 3] m=3 k=4 n=5"},
    {"p=[2, 3] q=[2, 3] m=1 k=64 n=20"},
    {"p=[2] q=[2] m=20 k=64 n=1"},
    {"p=[] q=[] m=14 k=900 n=50"},
    {"p=[0] q=[1] m=3 k=4 n=5"},
    {"p=[2] q=[2] m=0 k=4 n=5"},
    {"p=[2] q=[2] m=3 k=0 n=5"},
    {"p=[2] q=[2] m=3 k=4 n=0"},
    {"p=[3] q=[3] m=24 k=32 n=40 alpha=0.5"}, /* rows at multiples of 16 bytes */
    {"p=[] q=[] m=1024 k=1024 n=1024", .bench = true},
    {"p=[32] q=[32] m=256 k=64 n=256 alpha=0.125", .bench = true},
    {"p=[4096] q=[4096] m=8 k=8 n=8", .bench = true},
    {0},
};

/* `shape` is p of those above. */
static const tn_sample matmul_a_grad_samples[] = {
    {"shape=[] q=[] m=7 k=5 n=3"},
    {"shape=[] q=[] m=33 k=70 n=41 alpha=0.125"},
    {"shape=[3] q=[3] m=4 k=9 n=17"},
    {"shape=[2, 3] q=[3] m=5 k=6 n=7 alpha=-2.5"},
    {"shape=[] q=[4] m=9 k=20 n=35"},
    {"shape=[2, 1] q=[1, 3] m=3 k=4 n=5"},
    {"shape=[1] q=[4] m=3 k=4 n=5"},
    {"shape=[1] q=[0] m=3 k=4 n=5"},
    {"shape=[2] q=[2] m=3 k=4 n=0"},
    {"shape=[] q=[] m=1024 k=1024 n=1024", .bench = true},
    {0},
};

static const tn_sample matmul_b_grad_samples[] = {
    {"shape=[] p=[] m=7 k=5 n=3"},
    {"shape=[] p=[] m=70 k=33 n=41 alpha=0.125"},
    {"shape=[3] p=[3] m=4 k=9 n=17"},
    {"shape=[3] p=[2, 3] m=5 k=6 n=7 alpha=-2.5"},
    {"shape=[] p=[4] m=9 k=20 n=35"},
    {"shape=[1, 3] p=[2, 1] m=3 k=4 n=5"},
    {"shape=[1] p=[4] m=3 k=4 n=5"},
    {"shape=[1] p=[0] m=3 k=4 n=5"},
    {"shape=[2] p=[2] m=0 k=4 n=5"},
    {"shape=[] p=[] m=1024 k=1024 n=1024", .bench = true},
    {0},
};

static const tn_sample matmul_add_samples[] = {
    {"p=[] m=7 k=5 n=3"},
    {"p=[] m=33 k=700 n=41 alpha=0.125"},
    {"p=[3] m=4 k=9 n=17 add=false"},
    {"p=[2, 3] m=50 k=64 n=7 alpha=-2.5"},
    {"p=[] m=48 k=64 n=72"},
    {"p=[] m=2 k=300 n=96 add=false"},
    {"p=[2] m=3 k=0 n=5"},
    {"p=[2] m=3 k=0 n=5 add=false"},
    {"p=[2] m=0 k=4 n=5"},
    {"p=[0] m=3 k=4 n=5"},
    {"p=[] m=1024 k=1024 n=1024", .bench = true},
    {0},
};

static const tn_sample vector_samples[] = {
    {"p=[] m=7 k=5"},
    {"p=[] m=40 k=300"},
    {"p=[3] m=9 k=33"},
    {"p=[2, 3] m=70 k=6"},
    {"p=[0] m=3 k=4"},
    {"p=[2] m=0 k=4"},
    {"p=[2] m=3 k=0"},
    {"p=[] m=4096 k=4096", .bench = true},
    {0},
};

static const tn_sample outer_samples[] = {
    {"p=[] m=7 n=5"},
    {"p=[] m=40 n=300"},
    {"p=[2, 3] m=9 n=33"},
    {"p=[0] m=3 n=4"},
    {"p=[2] m=0 n=4"},
    {"p=[] m=4096 n=4096", .bench = true},
    {0},
};

const tn_op tni_ops_matmul[] = {
    {
        .signature = "matmul(a: T[*p, m, k], b: T[*q, k, n], alpha: float = 1.0) -> y: T[broadcast(*p, *q), m, n]",
        .doc = "alpha times the product of matrices; the dimensions before the last two broadcast.",
        .grad = "a: matmul_a_grad(b, dy, *p); b: matmul_b_grad(a, dy, *q)",
        .autocast = "16",
        .kernels = matmul_kernels,
        .cost = tni_matmul_cost,
        .samples = matmul_samples,
    },
    {
        .signature = "matmul_a_grad(b: T[*q, k, n], dy: T[broadcast(*shape, *q), m, n], shape: ints, "
                     "alpha: float = 1.0) -> da: T[*shape, m, k]",
        .doc = "The gradient of matmul for a, whose dimensions before the last two are `shape`.",
        .grad = "b: matmul_b_grad(dda, dy, *q); dy: matmul(dda, b)",
        .kernels = matmul_a_grad_kernels,
        .cost = tni_matmul_a_grad_cost,
        .samples = matmul_a_grad_samples,
    },
    {
        .signature = "matmul_b_grad(a: T[*p, m, k], dy: T[broadcast(*p, *shape), m, n], shape: ints, "
                     "alpha: float = 1.0) -> db: T[*shape, k, n]",
        .doc = "The gradient of matmul for b, whose dimensions before the last two are `shape`.",
        .grad = "a: matmul_a_grad(ddb, dy, *p); dy: matmul(a, ddb)",
        .kernels = matmul_b_grad_kernels,
        .cost = tni_matmul_b_grad_cost,
        .samples = matmul_b_grad_samples,
    },
    {
        .signature = "matmul_add(a: T[*p, m, k], b: T[*p, k, n], c: acc(T)[*p, m, n]!, alpha: float = 1.0, "
                     "add: bool = true)",
        .doc =
            "c gets alpha times the product of matrices added, in the type that sums have; without `add`, c is that.",
        .kernels = matmul_add_kernels,
        .samples = matmul_add_samples,
    },
    {
        .signature = "matvec(a: T[*p, m, k], x: T[*p, k]) -> y: T[*p, m]",
        .doc = "Matrix times vector.",
        .grad = "a: outer_product(dy, x); x: vecmat(dy, a)",
        .autocast = "16",
        .kernels = matvec_kernels,
        .cost = tni_matvec_cost,
        .samples = vector_samples,
    },
    {
        .signature = "vecmat(x: T[*p, m], a: T[*p, m, k]) -> y: T[*p, k]",
        .doc = "Vector times matrix.",
        .grad = "x: matvec(a, dy); a: outer_product(x, dy)",
        .autocast = "16",
        .kernels = vecmat_kernels,
        .cost = tni_vecmat_cost,
        .samples = vector_samples,
    },
    {
        .signature = "outer_product(x: T[*p, m], y: T[*p, n]) -> z: T[*p, m, n]",
        .doc = "Every element of x times every element of y.",
        .formula = "x * y",
        .grad = "x: matvec(dz, y); y: vecmat(x, dz)",
        .autocast = "widest",
        .samples = outer_samples,
    },
    {0},
};
