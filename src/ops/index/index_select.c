/* index_select: parts of a tensor along an axis, and their gradient. */
#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "embedding.h"
#include "ops/lookup/lookup.h"

TNI_CPU_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_take)

static tni_lookup index_select_lookup(const tn_call *call) {
    const index_select_args a = index_select_args_of(call);
    tni_lookup l = {.from = a.x, .to = a.y, .index = a.index, .index_name = "index", .skipped = -1};
    l.v = a.x->shape[a.axis];
    tni_lookup_around(&l, a.x, (int)a.axis);
    tni_lookup_by_row(&l);
    return l;
}

static tni_lookup index_select_grad_lookup(const tn_call *call) {
    const index_select_grad_args a = index_select_grad_args_of(call);
    tni_lookup l = {.from = a.dy, .to = a.dx, .index = a.index, .index_name = "index", .skipped = -1};
    l.v = a.dx->shape[a.axis];
    tni_lookup_around(&l, a.dx, (int)a.axis);
    tni_lookup_by_row(&l);
    return l;
}

static const tni_lookup_kind select_kind = {index_select_lookup}, grad_kind = {index_select_grad_lookup};
static const tn_kernel index_select_kernels[] = {TNI_TAKE_KERNELS(select_kind), {0}};
static const tn_kernel index_select_grad_kernels[] = {TNI_ADD_KERNELS(grad_kind), {0}};

static const tn_sample index_select_samples[] = {
    {"s=[7] n=4 index<s[axis]"},
    {"s=[9, 33] n=20 index<s[axis]"},
    {"s=[4, 9] n=5 axis=1 index<s[axis] index=i32"},
    {"s=[3, 8, 16] n=11 axis=1 index<s[axis]"},
    {"s=[3, 8, 5] n=0 axis=-1 index<s[axis]"},
    {"s=[0, 5] n=3 axis=1 index<s[axis]"},
    {"s=[40, 24] n=64 index<s[axis] T=i32"},
    {"s=[5, 9] n=7 axis=1 index<s[axis] T=bool"},
    {"s=[5, 1301] n=7 index<s[axis]"}, /* rows of many chunks on the GPU */
    {"s=[6, 3] n=9 index<s[axis] T=i64"},
    {"s=[65536, 256] n=65536 index<s[axis]", .bench = true},
    {"s=[256, 4096] n=4096 axis=1 index<s[axis]", .bench = true},
    {0},
};

static const tn_sample index_select_grad_samples[] = {
    {"shape=[7] n=4 index<shape[axis]"},
    {"shape=[9, 33] n=20 index<shape[axis]"},
    {"shape=[4, 9] n=5 axis=1 index<shape[axis] index=i32"},
    {"shape=[3, 8, 16] n=11 axis=1 index<shape[axis]"},
    {"shape=[3, 2, 40] n=300 axis=1 index<shape[axis]"},
    {"shape=[2, 8, 5] n=0 axis=-1 index<shape[axis]"},
    {"shape=[0, 5] n=3 axis=1 index<shape[axis]"},
    {"shape=[65536, 256] n=65536 index<shape[axis]", .bench = true},
    {0},
};

const tn_op tni_ops_index_select[] = {
    {
        .signature = "index_select<T: any>(x: T[*s], index: i32|i64[n], axis: axis = 0) -> y: T[resize(*s, axis, n)] "
                     "where rank(*s) >= 1",
        .doc = "The parts of x along an axis that the index names.",
        .grad = "x: index_select_grad(dy, index, *s)",
        .kernels = index_select_kernels,
        .samples = index_select_samples,
    },
    {
        .signature = "index_select_grad(dy: T[resize(*shape, axis, n)], index: i32|i64[n], shape: ints, "
                     "axis: axis = 0) -> dx: T[*shape]",
        .doc = "The gradient of index_select: each part of dy is added where it came from, in order.",
        .grad = "dy: index_select(ddx, index)",
        .kernels = index_select_grad_kernels,
        .samples = index_select_grad_samples,
    },
    {0},
};
