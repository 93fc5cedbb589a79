/* gather and scatter_add: each element has an index of its own. */
#include "gather.h"

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/lookup/lookup.h"

TNI_CPU_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_take)

/* `whole` is what the index counts in. */
static tni_lookup lookup_along(const tn_view *whole, const tn_view *index, int64_t axis) {
    tni_lookup l = {.index = index, .index_name = "index", .skipped = -1, .v = whole->shape[axis]};
    tni_lookup_around(&l, whole, (int)axis);
    tni_lookup_by_element(&l, (int)axis);
    return l;
}

static tni_lookup gather_lookup(const tn_call *call) {
    const gather_args a = gather_args_of(call);
    tni_lookup l = lookup_along(a.x, a.index, a.axis);
    l.from = a.x;
    l.to = a.y;
    return l;
}

static tni_lookup gather_grad_lookup(const tn_call *call) {
    const gather_grad_args a = gather_grad_args_of(call);
    tni_lookup l = lookup_along(a.dx, a.index, a.axis);
    l.from = a.dy;
    l.to = a.dx;
    return l;
}

static tni_lookup scatter_add_lookup(const tn_call *call) {
    const scatter_add_args a = scatter_add_args_of(call);
    tni_lookup l = lookup_along(a.x, a.index, a.axis);
    l.from = a.src;
    l.base = a.x;
    l.to = a.y;
    return l;
}

static const tni_lookup_kind gather_kind = {gather_lookup}, gather_grad_kind = {gather_grad_lookup},
                             scatter_add_kind = {scatter_add_lookup};
static const tn_kernel gather_kernels[] = {TNI_TAKE_KERNELS(gather_kind), {0}};
static const tn_kernel gather_grad_kernels[] = {TNI_ADD_KERNELS(gather_grad_kind), {0}};
static const tn_kernel scatter_add_kernels[] = {TNI_ADD_KERNELS(scatter_add_kind), {0}};

static const tn_sample gather_samples[] = {
    {"s=[7] n=4 index<s[axis]"},
    {"s=[4, 33] n=9 index<s[axis]"},
    {"s=[4, 33] n=9 axis=0 index<s[axis] index=i32"},
    {"s=[3, 8, 5] n=11 axis=1 index<s[axis]"},
    {"s=[3, 8, 1] n=11 axis=1 index<s[axis]"},
    {"s=[3, 6, 8] n=5 axis=1 index<s[axis]"}, /* four elements at a time on the GPU, and the next one, too */
    {"s=[5, 1201] n=4 axis=0 index<s[axis]"}, /* by columns on the GPU, and the next one, too */
    {"s=[3, 5, 402] n=300 axis=1 index<s[axis] index=i32"},
    {"s=[5, 9] n=300 index<s[axis] index=i32"},
    {"s=[3, 4099] n=2500 index<s[axis]"}, /* a row in shared memory on a small GPU */
    {"s=[2, 5] n=0 index<s[axis]"},
    {"s=[0, 5] n=3 index<s[axis]"},
    {"s=[9, 21] n=1 index<s[axis] T=i32"},
    {"s=[9, 21] n=30 index<s[axis] T=bool"},
    {"s=[5, 6] n=8 axis=0 index<s[axis] T=i64"},
    {"s=[4096, 4096] n=4096 index<s[axis]", .bench = true},
    {"s=[4096, 4096] n=4096 axis=0 index<s[axis]", .bench = true},
    {0},
};

static const tn_sample gather_grad_samples[] = {
    {"shape=[7] n=4 index<shape[axis]"},
    {"shape=[4, 33] n=9 index<shape[axis]"},
    {"shape=[4, 33] n=9 axis=0 index<shape[axis] index=i32"},
    {"shape=[3, 8, 5] n=11 axis=1 index<shape[axis]"},
    {"shape=[3, 2, 5] n=400 axis=1 index<shape[axis]"},
    {"shape=[5, 3] n=100 index<shape[axis]"},
    {"shape=[2, 5] n=0 index<shape[axis]"},
    {"shape=[0, 5] n=3 index<shape[axis]"},
    {"shape=[480, 1030] n=1100 index<shape[axis] T=bf16"}, /* by claims on a GPU, */
    {"shape=[1, 30000] n=31000 index<shape[axis] T=f32"},  /* and split */
    {"shape=[8192, 32000] n=1 index<shape[axis]", .bench = true},
    {"shape=[4096, 4096] n=4096 index<shape[axis]", .bench = true},
    {0},
};

static const tn_sample scatter_add_samples[] = {
    {"s=[7] n=4 index<s[axis]"},
    {"s=[3] n=1000 index<s[axis]"},
    {"s=[4, 33] n=9 index<s[axis]"},
    {"s=[4, 33] n=9 axis=0 index<s[axis] index=i32"},
    {"s=[3, 8, 5] n=11 axis=1 index<s[axis]"},
    {"s=[9, 70] n=40 index<s[axis]"},
    {"s=[9, 1201] n=40 axis=0 index<s[axis]"},
    {"s=[2, 3, 601] n=300 axis=1 index<s[axis] index=i32"},
    {"s=[3, 20000] n=600 index<s[axis]"},
    {"s=[2, 5] n=0 index<s[axis]"},
    {"s=[0, 5] n=3 index<s[axis]"},
    {"s=[70000] n=9000 index<s[axis]"},
    {"s=[2, 20000] n=30000 index<s[axis] T=bf16"}, /* split on a GPU */
    {"s=[4096, 4096] n=4096 index<s[axis]", .bench = true},
    {"s=[4096, 4096] n=4096 axis=0 index<s[axis]", .bench = true},
    {"s=[1048576] n=4194304 index<s[axis]", .bench = true},
    {0},
};

const tn_op tni_ops_gather[] = {
    {
        .signature = "gather<T: any>(x: T[*s], index: i32|i64[resize(*s, axis, n)], axis: axis = -1) "
                     "-> y: T[resize(*s, axis, n)] where rank(*s) >= 1",
        .doc = "y[…, j, …] = x[…, index[…, j, …], …]: one index along the axis for each element.",
        .grad = "x: gather_grad(dy, index, *s)",
        .kernels = gather_kernels,
        .samples = gather_samples,
    },
    {
        .signature = "gather_grad(dy: T[resize(*shape, axis, n)], index: i32|i64[resize(*shape, axis, n)], "
                     "shape: ints, axis: axis = -1) -> dx: T[*shape]",
        .doc = "The gradient of gather: each element of dy is added where it came from, to the same bits "
               "every time.",
        .grad = "dy: gather(ddx, index)",
        .kernels = gather_grad_kernels,
        .samples = gather_grad_samples,
    },
    {
        .signature = "scatter_add(x: T[*s], index: i32|i64[resize(*s, axis, n)], src: T[resize(*s, axis, n)], "
                     "axis: axis = -1) -> y: T[*s] where rank(*s) >= 1",
        .doc = "x, with src[…, j, …] added at […, index[…, j, …], …]: to the same bits every time.",
        .grad = "x: identity(dy); src: gather(dy, index)",
        .autocast = "widest",
        .kernels = scatter_add_kernels,
        .samples = scatter_add_samples,
    },
    {0},
};
