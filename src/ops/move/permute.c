/* permute and its gradient: copies between layouts. */
#include <string.h>

#include "core/layout/layout.h"
#include "cuda/copy/copy.h"
#include "move.h"

/* x with its dimensions in the order of y: strides[d] is that of dimension dims[d]. */
static tn_view in_order(const tn_view *x, const tn_view *y, const tn_value *dims, int64_t *strides) {
    for (int d = 0; d < y->ndim; d++) strides[d] = x->strides[dims->ints[d]];
    return (tn_view){.data = x->data, .shape = y->shape, .strides = strides, .ndim = y->ndim, .type = x->type};
}

typedef tn_status copier(const tn_call *call, const tn_view *to, const tn_view *from);

static tn_status permute(const tn_call *call, copier *copy) {
    const permute_args a = permute_args_of(call);
    int64_t strides[TN_MAX_RANK];
    const tn_view from = in_order(a.x, a.y, a.dims, strides);
    return copy(call, a.y, &from);
}

/* The other way: dx in the order of dy is what is written. */
static tn_status permute_grad(const tn_call *call, copier *copy) {
    const permute_grad_args a = permute_grad_args_of(call);
    int64_t strides[TN_MAX_RANK];
    const tn_view to = in_order(a.dx, a.dy, a.dims, strides);
    return copy(call, &to, a.dy);
}

/* One element after the other, of dense tensors. */
static tn_status copy_elements(const tn_call *call, const tn_view *to, const tn_view *from) {
    (void)call;
    const size_t size = tn_type_size(to->type);
    const int64_t count = tn_count(to);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at = 0, source = 0;
        for (int d = to->ndim - 1; d >= 0; d--) {
            at += rest % to->shape[d] * to->strides[d];
            source += rest % to->shape[d] * from->strides[d];
            rest /= to->shape[d];
        }
        memcpy((char *)to->data + at * (int64_t)size, (const char *)from->data + source * (int64_t)size, size);
    }
    return TN_OK;
}

/* Three kernels of an operator: how each copies. */
#define KERNELS(op)                                                                 \
    static tn_status op##_cpu(const tn_call *call, void *state) {                   \
        (void)state;                                                                \
        return op(call, tni_strided_copy);                                          \
    }                                                                               \
    static tn_status op##_cuda(const tn_call *call, void *state) {                  \
        (void)state;                                                                \
        return op(call, tni_cuda_copy);                                             \
    }                                                                               \
    static tn_status op##_ref(const tn_call *call, void *state) {                   \
        (void)state;                                                                \
        return op(call, copy_elements);                                             \
    }                                                                               \
    static const tn_kernel op##_kernels[] = {                                       \
        {.name = "tiles", .device = TN_CPU, .flags = TN_STRIDED, .run = op##_cpu},  \
        {.name = "cuda", .device = TN_CUDA, .flags = TN_STRIDED, .run = op##_cuda}, \
        {.name = "ref", .device = TN_CPU, .run = op##_ref},                         \
        {0},                                                                        \
    };
KERNELS(permute)
KERNELS(permute_grad)

static const tn_sample permute_samples[] = {
    {"s=[] dims=[]"},
    {"s=[7] dims=[0]"},
    {"s=[4, 33] dims=[1, 0]"},
    {"s=[4, 33] dims=[0, 1]"},
    {"s=[65, 70] dims=[-1, 0]"},
    {"s=[3, 5, 17] dims=[2, 1, 0]"},
    {"s=[6, 4, 32, 40] dims=[0, 2, 1, 3]"},
    {"s=[6, 4, 32, 40] dims=[0, 1, 3, 2]"},
    {"s=[6, 4, 32, 40] dims=[3, 2, 1, 0]"},
    {"s=[2, 3, 40, 41] dims=[0, 2, 3, 1]"},
    {"s=[2, 40, 41, 3] dims=[0, 3, 1, 2]"},
    {"s=[500, 3] dims=[1, 0]"},
    {"s=[3, 500] dims=[1, 0]"},
    {"s=[30, 20, 3] dims=[1, 0, 2]"},
    {"s=[30, 20, 129] dims=[1, 0, 2]"},
    {"s=[2, 3, 2, 3, 2, 3] dims=[5, 1, 3, 4, 0, 2]"},
    {"s=[0, 5] dims=[1, 0]"},
    {"s=[300, 257] dims=[1, 0]"},
    {"s=[383, 381] dims=[1, 0]"},       /* tiles of lines that begin anywhere */
    {"s=[15, 32, 128] dims=[0, 2, 1]"}, /* tiles of several short dimensions */
    {"s=[8, 128, 32] dims=[0, 2, 1]"},
    {"s=[64, 8, 3, 32] dims=[3, 2, 1, 0]"},
    {"s=[64, 512, 32, 128] dims=[0, 2, 1, 3]", .bench = true},
    {"s=[64, 512, 32, 128] dims=[0, 1, 3, 2]", .bench = true},
    {"s=[64, 512, 32, 128] dims=[3, 2, 1, 0]", .bench = true},
    {"s=[4096, 4096] dims=[1, 0]", .bench = true},
    {"s=[1000000, 3] dims=[1, 0]", .bench = true},
    {"s=[64, 3, 224, 224] dims=[0, 2, 3, 1]", .bench = true},
    {0},
};

static const tn_sample permute_grad_samples[] = {
    {"shape=[] dims=[]"},
    {"shape=[7] dims=[0]"},
    {"shape=[4, 33] dims=[1, 0]"},
    {"shape=[3, 5, 17] dims=[2, 0, 1]"},
    {"shape=[6, 4, 32, 40] dims=[0, 2, 1, 3]"},
    {"shape=[2, 3, 40, 41] dims=[0, 2, 3, 1]"},
    {"shape=[0, 5] dims=[1, 0]"},
    {"shape=[4096, 4096] dims=[1, 0]", .bench = true},
    {0},
};

const tn_op tni_ops_permute[] = {
    {
        .signature = "permute<T: any>(x: T[*s], dims: ints) -> y: T[permute(*s, dims)]",
        .doc = "x with its dimensions in another order, as a dense copy; of two dimensions, the transpose.",
        .grad = "x: permute_grad(dy, *s)",
        .kernels = permute_kernels,
        .samples = permute_samples,
    },
    {
        .signature = "permute_grad<T: any>(dy: T[permute(*shape, dims)], shape: ints, dims: ints) -> dx: T[*shape]",
        .doc = "The gradient of permute: dy with its dimensions in the order that they had.",
        .grad = "dy: permute(ddx)",
        .kernels = permute_grad_kernels,
        .samples = permute_grad_samples,
    },
    {0},
};
