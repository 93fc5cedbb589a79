/* repeat and its gradient. */
#include <string.h>

#include "move.h"

/* y has further dimensions in front where there are more repeats than dimensions of x. */
static void describe(const tn_view *y, const tn_view *x, tni_move *m) {
    const int more = y->ndim - x->ndim;
    m->to = y;
    m->from = x;
    m->n_dims = y->ndim;
    for (int d = 0; d < y->ndim; d++) {
        const int64_t n = d < more ? 1 : x->shape[d - more];
        m->dims[d] = (tni_move_dim){
            {y->shape[d], n, 0, TNI_MAP_CIRCULAR}, y->strides[d], d < more ? 0 : x->strides[d - more]};
    }
}

/* A dimension that is repeated becomes two: which time it is, where the operand stands still, and the dimension itself.
 * Where it is a single element, and the result is not read along it, the first of these is enough. */
static void describe_repeat(const tn_call *call, tni_move *m) {
    const repeat_args a = repeat_args_of(call);
    describe(a.y, a.x, m);
    const int32_t n_dims = m->n_dims;
    tni_move_dim dims[TN_MAX_RANK];
    memcpy(dims, m->dims, sizeof dims);
    m->n_dims = 0;
    for (int d = 0; d < n_dims; d++) {
        const tni_map map = dims[d].map;
        const int left = TN_MAX_RANK - m->n_dims - (n_dims - d); /* dimensions that there may still be */
        if (map.n == 0 || map.size == map.n || (map.n == 1 && dims[d].to == 1) || (map.n > 1 && left == 0)) {
            m->dims[m->n_dims++] = dims[d];
            continue;
        }
        const int64_t times = map.size / map.n;
        m->dims[m->n_dims++] = (tni_move_dim){{times, times, 0, TNI_MAP_CONSTANT}, dims[d].to * map.n, 0};
        if (map.n > 1)
            m->dims[m->n_dims++] = (tni_move_dim){{map.n, map.n, 0, TNI_MAP_CONSTANT}, dims[d].to, dims[d].from};
    }
}

static void describe_grad(const tn_call *call, tni_move *m) {
    const repeat_grad_args a = repeat_grad_args_of(call);
    describe(a.dy, a.dx, m);
}

static const tni_mover repeating = {describe_repeat}, grad = {describe_grad};
static const tn_kernel repeat_kernels[] = {TNI_MOVE_KERNELS(repeating)};
static const tn_kernel repeat_grad_kernels[] = {TNI_FOLD_KERNELS(grad)};

static const tn_sample repeat_samples[] = {
    {"s=[] repeats=[]"},
    {"s=[] repeats=[3]"},
    {"s=[7] repeats=[3]"},
    {"s=[4, 33] repeats=[2, 3]"},
    {"s=[4, 33] repeats=[2, 1, 1]"},
    {"s=[3, 5, 17] repeats=[1, 4, 1]"},
    {"s=[2, 3] repeats=[2, 2, 1, 100]"},
    {"s=[5, 1] repeats=[1, 65]"},
    {"s=[4] repeats=[0]"},
    {"s=[0, 3] repeats=[2, 2]"},
    {"s=[2048, 4096] repeats=[1, 8]", .bench = true},
    {"s=[2048, 4096] repeats=[8, 1]", .bench = true},
    {0},
};

static const tn_sample repeat_grad_samples[] = {
    {"shape=[] repeats=[]"},
    {"shape=[] repeats=[3]"},
    {"shape=[7] repeats=[3]"},
    {"shape=[4, 33] repeats=[2, 3]"},
    {"shape=[4, 33] repeats=[2, 1, 1]"},
    {"shape=[3, 5, 17] repeats=[1, 4, 1]"},
    {"shape=[2, 3] repeats=[2, 2, 1, 100]"},
    {"shape=[2, 1300] repeats=[2, 2]"},
    {"shape=[4] repeats=[0]"},
    {"shape=[0, 3] repeats=[2, 2]"},
    {"shape=[2048, 4096] repeats=[1, 8]", .bench = true},
    {0},
};

const tn_op tni_ops_repeat[] = {
    {
        .signature = "repeat<T: any>(x: T[*s], repeats: ints) -> y: T[repeat(*s, repeats)]",
        .doc = "x so many times over in each dimension, as a whole; more numbers than dimensions make new ones.",
        .grad = "x: repeat_grad(dy, *s)",
        .kernels = repeat_kernels,
        .samples = repeat_samples,
    },
    {
        .signature = "repeat_grad(dy: T[repeat(*shape, repeats)], shape: ints, repeats: ints) -> dx: T[*shape]",
        .doc = "The gradient of repeat: the copies of each element added up.",
        .grad = "dy: repeat(ddx)",
        .kernels = repeat_grad_kernels,
        .samples = repeat_grad_samples,
    },
    {0},
};
