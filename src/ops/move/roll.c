/* roll and its gradient. */
#include "move.h"

static void describe(const tn_view *y, const tn_view *x, int64_t shift, int64_t axis, tni_move *m) {
    m->to = y;
    m->from = x;
    m->n_dims = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        const int64_t n = x->shape[d];
        const int64_t before = d == axis && n > 0 ? tni_modulo(shift, n) : 0;
        m->dims[d] = (tni_move_dim){{n, n, before, TNI_MAP_CIRCULAR}, y->strides[d], x->strides[d]};
    }
}

static void describe_roll(const tn_call *call, tni_move *m) {
    const roll_args a = roll_args_of(call);
    describe(a.y, a.x, a.shift, a.axis, m);
}

/* Back again; -shift might not fit. */
static void describe_grad(const tn_call *call, tni_move *m) {
    const roll_grad_args a = roll_grad_args_of(call);
    const int64_t n = a.dy->ndim ? a.dy->shape[a.axis] : 0;
    describe(a.dx, a.dy, n > 0 ? n - tni_modulo(a.shift, n) : 0, a.axis, m);
}

static const tni_mover rolling = {describe_roll}, grad = {describe_grad};
static const tn_kernel roll_kernels[] = {TNI_MOVE_KERNELS(rolling)};
static const tn_kernel roll_grad_kernels[] = {TNI_MOVE_KERNELS(grad)};

static const tn_sample samples[] = {
    {"s=[7] shift=2 axis=0"},
    {"s=[4, 33] shift=-5 axis=1"},
    {"s=[4, 40] shift=8 axis=1"},
    {"s=[65, 7] shift=1000 axis=0"},
    {"s=[3, 5, 17] shift=2 axis=1"},
    {"s=[3, 5, 17] shift=0 axis=-1"},
    {"s=[1] shift=3 axis=0"},
    {"s=[0] shift=3 axis=0"},
    {"s=[3, 0, 4] shift=1 axis=0"},
    {"s=[70000] shift=12345 axis=0"},
    {"s=[16384, 4096] shift=1000 axis=1", .bench = true},
    {"s=[16384, 4096] shift=1001 axis=1", .bench = true},
    {"s=[16384, 4096] shift=5000 axis=0", .bench = true},
    {0},
};

const tn_op tni_ops_roll[] = {
    {
        .signature = "roll<T: any>(x: T[*s], shift: int, axis: axis) -> y: T[*s]",
        .doc = "Elements moved on along an axis; those that leave at its end come in again at its beginning.",
        .grad = "x: roll_grad(dy)",
        .kernels = roll_kernels,
        .samples = samples,
    },
    {
        .signature = "roll_grad<T: any>(dy: T[*s], shift: int, axis: axis) -> dx: T[*s]",
        .doc = "The gradient of roll: the way back.",
        .grad = "dy: roll(ddx)",
        .kernels = roll_grad_kernels,
        .samples = samples,
    },
    {0},
};
