/* cumsum and cumprod: contracts, gradients, reference. */
#include "scan.h"

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(scan)
TNI_CPU_DECLARE(cumprod_grad)
TNI_CPU_DECLARE(cumprod_grad_grad)
TNI_CUDA_DECLARE(scan)
TNI_CUDA_DECLARE(cumprod_grad)
TNI_CUDA_DECLARE(cumprod_grad_grad)

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static tni_scan scan_along(const tn_view *x, const tn_view *y, int64_t axis) {
    return (tni_scan){.x = x,
                      .y = y,
                      .outer = tn_product(x, 0, (int)axis),
                      .n = x->shape[axis],
                      .inner = tn_product(x, (int)axis + 1, x->ndim)};
}

static tni_scan scan_of_cumsum(const tn_call *call) {
    const cumsum_args a = cumsum_args_of(call);
    tni_scan s = scan_along(a.x, a.y, a.axis);
    s.exclusive = a.exclusive;
    s.reverse = a.reverse;
    return s;
}

/* An element is in the sums behind it, so it gets the sum of what these get. */
static tni_scan scan_of_cumsum_grad(const tn_call *call) {
    const cumsum_grad_args a = cumsum_grad_args_of(call);
    tni_scan s = scan_along(a.dy, a.dx, a.axis);
    s.exclusive = a.exclusive;
    s.reverse = !a.reverse;
    return s;
}

static tni_scan scan_of_cumprod(const tn_call *call) {
    const cumprod_args a = cumprod_args_of(call);
    tni_scan s = scan_along(a.x, a.y, a.axis);
    s.exclusive = a.exclusive;
    s.reverse = a.reverse;
    s.product = true;
    return s;
}

tni_scan_grad tni_scan_grad_of(const tn_call *call) {
    const cumprod_grad_args a = cumprod_grad_args_of(call);
    const tni_scan s = scan_along(a.x, a.dx, a.axis);
    return (tni_scan_grad){.x = a.x,
                           .y = a.y,
                           .dy = a.dy,
                           .dx = a.dx,
                           .outer = s.outer,
                           .n = s.n,
                           .inner = s.inner,
                           .exclusive = a.exclusive,
                           .reverse = a.reverse};
}

tni_scan_grad tni_scan_grad_grad_of(const tn_call *call) {
    const cumprod_grad_grad_args a = cumprod_grad_grad_args_of(call);
    const tni_scan s = scan_along(a.x, a.x, a.axis);
    return (tni_scan_grad){.x = a.x,
                           .y = a.y,
                           .dy = a.dy,
                           .ddx = a.ddx,
                           .gx = a.gx,
                           .gy = a.gy,
                           .gdy = a.gdy,
                           .outer = s.outer,
                           .n = s.n,
                           .inner = s.inner,
                           .exclusive = a.exclusive,
                           .reverse = a.reverse};
}

size_t tni_scan_grad_grad_workspace(const tn_call *call) {
    const tn_view *x = tn_in(call, 0);
    return (size_t)tn_count(x) * (x->type == TN_F64 ? sizeof(double) : sizeof(float));
}

/* ---- reference --------------------------------------------------------------------------------------------------- */

/* Where a row begins, and how far it is from one of its elements to the next, in the order of the scan. */
typedef struct row_ref {
    int64_t first, step;
} row_ref;

static row_ref row_at(int64_t row, int64_t n, int64_t inner, bool reverse) {
    const int64_t first = row / inner * n * inner + row % inner;
    return reverse ? (row_ref){first + (n - 1) * inner, -inner} : (row_ref){first, inner};
}

/* Integers wrap around, in the bits that they have. */
static uint64_t whole_at(const tn_view *v, int64_t i) {
    switch (tn_type_size(v->type)) {
    case 1: return ((const uint8_t *)v->data)[i];
    case 2: return ((const uint16_t *)v->data)[i];
    case 4: return ((const uint32_t *)v->data)[i];
    default: return ((const uint64_t *)v->data)[i];
    }
}

static void set_whole(const tn_view *v, int64_t i, uint64_t value) {
    switch (tn_type_size(v->type)) {
    case 1: ((uint8_t *)v->data)[i] = (uint8_t)value; break;
    case 2: ((uint16_t *)v->data)[i] = (uint16_t)value; break;
    case 4: ((uint32_t *)v->data)[i] = (uint32_t)value; break;
    default: ((uint64_t *)v->data)[i] = value;
    }
}

static void scan_whole_ref(const tni_scan *s, row_ref row) {
    uint64_t so_far = s->product;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = row.first + i * row.step;
        const uint64_t x = whole_at(s->x, at), next = s->product ? so_far * x : so_far + x;
        set_whole(s->y, at, s->exclusive ? so_far : next);
        so_far = next;
    }
}

static tn_status scan_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_scan s = tni_scan_of(call);
    for (int64_t r = 0; r < s.outer * s.inner; r++) {
        const row_ref row = row_at(r, s.n, s.inner, s.reverse);
        if (!(TN_BIT(s.x->type) & TN_FLOATS)) {
            scan_whole_ref(&s, row);
            continue;
        }
        double so_far = s.product;
        for (int64_t i = 0; i < s.n; i++) {
            const int64_t at = row.first + i * row.step;
            const double x = get(s.x, at), next = s.product ? so_far * x : so_far + x;
            set(s.y, at, s.exclusive ? so_far : next);
            so_far = next;
        }
    }
    return TN_OK;
}

/* w[i] and p[i] of scan.h */
static double arriving(const tni_scan_grad *g, row_ref row, int64_t i) {
    if (g->exclusive) i++;
    return i < g->n ? get(g->dy, row.first + i * row.step) : 0;
}

static double before(const tni_scan_grad *g, row_ref row, int64_t i) {
    if (!g->exclusive) i--;
    return i >= 0 ? get(g->y, row.first + i * row.step) : 1;
}

static double x_at(const tni_scan_grad *g, row_ref row, int64_t i) {
    return i < g->n ? get(g->x, row.first + i * row.step) : 0;
}

static tn_status cumprod_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_scan_grad g = tni_scan_grad_of(call);
    for (int64_t r = 0; r < g.outer * g.inner; r++) {
        const row_ref row = row_at(r, g.n, g.inner, g.reverse);
        double s = 0;
        for (int64_t i = g.n - 1; i >= 0; i--) {
            s = arriving(&g, row, i) + tni_scan_times(x_at(&g, row, i + 1), s);
            set(g.dx, row.first + i * row.step, before(&g, row, i) * s);
        }
    }
    return TN_OK;
}

static void set_if(const tn_view *v, row_ref row, int64_t i, int64_t n, double value) {
    if (v && i >= 0 && i < n) set(v, row.first + i * row.step, value);
}

/* s: (n), of one row */
static void grad_grad_row_ref(const tni_scan_grad *g, row_ref row, double *s) {
    const int64_t n = g->n, shift = g->exclusive;
    double a = 0;
    for (int64_t i = n - 1; i >= 0; i--)
        s[i] = arriving(g, row, i) + (i + 1 < n ? tni_scan_times(x_at(g, row, i + 1), s[i + 1]) : 0);
    for (int64_t i = 0; i < n; i++) {
        const double ddx = get(g->ddx, row.first + i * row.step);
        set_if(g->gx, row, i, n, i > 0 ? a * s[i] : 0);
        set_if(g->gy, row, i - 1 + shift, n, ddx * s[i]);
        a = ddx * before(g, row, i) + tni_scan_times(x_at(g, row, i), a);
        set_if(g->gdy, row, i + shift, n, a);
    }
    /* One element more than p and w have is in y and dy. */
    if (!g->exclusive) set_if(g->gy, row, n - 1, n, 0);
    if (g->exclusive) set_if(g->gdy, row, 0, n, 0);
}

static tn_status cumprod_grad_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_scan_grad g = tni_scan_grad_grad_of(call);
    for (int64_t r = 0; r < g.outer * g.inner; r++)
        grad_grad_row_ref(&g, row_at(r, g.n, g.inner, g.reverse), call->workspace);
    return TN_OK;
}

static size_t cumprod_grad_grad_ref_workspace(const tn_call *call) {
    return (size_t)tni_scan_grad_grad_of(call).n * sizeof(double);
}

/* ---- the rows of the table --------------------------------------------------------------------------------------- */

static const tni_scan_kind cumsum_kind = {scan_of_cumsum}, cumsum_grad_kind = {scan_of_cumsum_grad},
                           cumprod_kind = {scan_of_cumprod};

#define WHOLE_TYPES                                                                                      \
    (TN_BIT(TN_I8) | TN_BIT(TN_I16) | TN_BIT(TN_I32) | TN_BIT(TN_I64) | TN_BIT(TN_U8) | TN_BIT(TN_U16) | \
     TN_BIT(TN_U32) | TN_BIT(TN_U64))

/* The f32 build serves integers, too. */
#define SCAN_VARIANT(set, needs, kind)                                         \
    {.name = #set,                                                             \
     .device = TN_CPU,                                                         \
     .types = TN_BIT(TN_F16) | TN_BIT(TN_BF16) | TN_BIT(TN_F32) | WHOLE_TYPES, \
     .isa = needs,                                                             \
     .run = scan_##set##_f32,                                                  \
     .data = &(kind)},                                                         \
        {.name = #set,                                                         \
         .device = TN_CPU,                                                     \
         .types = TN_BIT(TN_F64),                                              \
         .isa = needs,                                                         \
         .run = scan_##set##_f64,                                              \
         .data = &(kind)},
#define SCAN_KERNELS(kind)                                                          \
    TNI_VARIANTS(SCAN_VARIANT, kind)                                                \
    TNI_CUDA_KERNEL(scan, .workspace = tni_scan_cuda_workspace, .data = &(kind)), { \
        .name = "ref", .device = TN_CPU, .run = scan_ref, .data = &(kind)           \
    }

static const tn_kernel cumsum_kernels[] = {SCAN_KERNELS(cumsum_kind), {0}};
static const tn_kernel cumsum_grad_kernels[] = {SCAN_KERNELS(cumsum_grad_kind), {0}};
static const tn_kernel cumprod_kernels[] = {SCAN_KERNELS(cumprod_kind), {0}};

static const tn_kernel cumprod_grad_kernels[] = {
    TNI_CPU_KERNELS(cumprod_grad),
    TNI_CUDA_KERNEL(cumprod_grad, .workspace = tni_cumprod_grad_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .run = cumprod_grad_ref},
    {0},
};

static const tn_kernel cumprod_grad_grad_kernels[] = {
    TNI_CPU_KERNELS(cumprod_grad_grad, .workspace = tni_scan_grad_grad_workspace),
    TNI_CUDA_KERNEL(cumprod_grad_grad, .workspace = tni_cumprod_grad_grad_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .workspace = cumprod_grad_grad_ref_workspace, .run = cumprod_grad_grad_ref},
    {0},
};

/* Rows of every way that a kernel takes: of a few elements, of a warp's, of a block's and longer, and columns. */
static const tn_sample scan_samples[] = {
    {"s=[7]"},
    {"s=[4, 33]"},
    {"s=[4, 33] exclusive=true"},
    {"s=[4, 33] reverse=true"},
    {"s=[5, 64] exclusive=true reverse=true"},
    {"s=[3, 5, 17] axis=1"},
    {"s=[65, 6] axis=0 reverse=true"},
    {"s=[2, 300, 70] axis=1 exclusive=true"},
    {"s=[1200, 3] axis=0 exclusive=true reverse=true"},
    {"s=[3, 1030]"},
    {"s=[2, 5000] reverse=true"},
    {"s=[40000] exclusive=true"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[2, 1]"},
    {"s=[40, 9] T=i32"},
    {"s=[70, 8] axis=0 T=u8"},
    {"s=[2, 600] reverse=true T=i64"},
    {"s=[3, 21] exclusive=true T=i16"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axis=0", .bench = true},
    {"s=[64, 256, 256] axis=1", .bench = true},
    {"s=[4194304]", .bench = true},
    {0},
};

static const tn_sample scan_grad_samples[] = {
    {"s=[7]"},
    {"s=[4, 33]"},
    {"s=[4, 33] exclusive=true"},
    {"s=[4, 33] reverse=true"},
    {"s=[5, 64] exclusive=true reverse=true"},
    {"s=[3, 5, 17] axis=1"},
    {"s=[65, 6] axis=0 reverse=true"},
    {"s=[2, 300, 70] axis=1 exclusive=true"},
    {"s=[3, 1030]"},
    {"s=[2, 5000] reverse=true"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[2, 1]"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axis=0", .bench = true},
    {0},
};

#define NUMBERS "T: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64"
#define HOW "axis: axis = -1, exclusive: bool = false, reverse: bool = false"

const tn_op tni_ops_scan[] = {
    {
        .signature = "cumsum<" NUMBERS ">(x: T[*s], " HOW ") -> y: T[*s] where rank(*s) >= 1",
        .doc =
            "Each element added to those before it along an axis; to those behind it where `reverse`; without itself "
            "where `exclusive`. Integers wrap around.",
        .grad = "x: cumsum_grad(dy)",
        .autocast = "32",
        .kernels = cumsum_kernels,
        .samples = scan_samples,
    },
    {
        .signature = "cumsum_grad(dy: T[*s], " HOW ") -> dx: T[*s] where rank(*s) >= 1",
        .doc = "The gradient of cumsum: dy, added up from the other side.",
        .grad = "dy: cumsum(ddx)",
        .kernels = cumsum_grad_kernels,
        .samples = scan_grad_samples,
    },
    {
        .signature = "cumprod<" NUMBERS ">(x: T[*s], " HOW ") -> y: T[*s] where rank(*s) >= 1",
        .doc = "Each element multiplied by those before it along an axis; by those behind it where `reverse`; without "
               "itself where `exclusive`. Integers wrap around.",
        .grad = "x: cumprod_grad(x, y, dy)",
        .autocast = "32",
        .kernels = cumprod_kernels,
        .samples = scan_samples,
    },
    {
        .signature = "cumprod_grad(x: T[*s], y: T[*s], dy: T[*s], " HOW ") -> dx: T[*s] where rank(*s) >= 1",
        .doc = "The gradient of cumprod, also where elements are 0: nothing is divided.",
        .grad = "x, y, dy: cumprod_grad_grad(x, y, dy, ddx)",
        .kernels = cumprod_grad_kernels,
        .samples = scan_grad_samples,
    },
    {
        .signature = "cumprod_grad_grad(x: T[*s], y: T[*s], dy: T[*s], ddx: T[*s], " HOW ") "
                     "-> gx: T[*s], gy: T[*s], gdy: T[*s] where rank(*s) >= 1",
        .doc = "The gradient of cumprod_grad.",
        .kernels = cumprod_grad_grad_kernels,
        .samples = scan_grad_samples,
    },
    {0},
};
