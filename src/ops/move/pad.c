/* pad and its gradient. */
#include <math.h>
#include <string.h>

#include "core/layout/layout.h"
#include "move.h"

/* ---- the constant ------------------------------------------------------------------------------------------------ */

/* One element of a type; complex numbers have no imaginary part. */
static void make_constant(tn_type type, double value, unsigned char *to) {
    const float single = (float)value;
    if (type == TN_C64) {
        memcpy(to, &single, sizeof single);
    } else if (type == TN_C128) {
        memcpy(to, &value, sizeof value);
    } else {
        tn_set(type, to, 0, value);
    }
}

/* ---- what the dimensions do -------------------------------------------------------------------------------------- */

/* `pad` has pairs from the last dimension on. */
static void describe(const tn_view *padded, const tn_view *x, const tn_value *pad, int mode, tni_move *m) {
    m->to = padded;
    m->from = x;
    m->n_dims = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        const int pair = 2 * (x->ndim - 1 - d);
        const int64_t before = pair < pad->count ? pad->ints[pair] : 0;
        m->dims[d] = (tni_move_dim){{padded->shape[d], x->shape[d], before, mode}, padded->strides[d], x->strides[d]};
    }
}

static void describe_pad(const tn_call *call, tni_move *m) {
    const pad_args a = pad_args_of(call);
    describe(a.y, a.x, a.pad, a.mode, m);
    make_constant(a.y->type, a.value, m->constant);
}

static void describe_grad(const tn_call *call, tni_move *m) {
    const pad_grad_args a = pad_grad_args_of(call);
    describe(a.dy, a.dx, a.pad, a.mode, m);
}

static const tni_mover padding = {describe_pad}, grad = {describe_grad};

/* Where the rest is constant, the gradient only takes the middle out: a move the other way. */
static void describe_cut(const tn_call *call, tni_move *m) {
    const pad_grad_args a = pad_grad_args_of(call);
    describe(a.dx, a.dy, a.pad, TNI_MAP_CONSTANT, m);
    for (int d = 0; d < m->n_dims; d++) m->dims[d].map.before = -m->dims[d].map.before;
}

static const tni_mover cutting = {describe_cut};

static bool is_cut(const tn_call *call) {
    return pad_grad_args_of(call).mode == TNI_MAP_CONSTANT;
}

static const tn_kernel pad_kernels[] = {TNI_MOVE_KERNELS(padding)};
static const tn_kernel pad_grad_kernels[] = {TNI_MOVES(cutting, .accepts = is_cut), TNI_FOLD_KERNELS(grad)};

static const tn_sample pad_samples[] = {
    {"s=[] pad=[]"},
    {"s=[7] pad=[2, 3]"},
    {"s=[4, 33] pad=[1, 0] value=1.5"},
    {"s=[4, 33] pad=[0, 0, 2, 1]"},
    {"s=[3, 5, 17] pad=[-2, 5, 1, -3] value=-2.0"},
    {"s=[3, 40] pad=[8, 8]"},
    {"s=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='reflect'"},
    {"s=[4, 33] pad=[3, 70] mode='reflect'"},
    {"s=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='replicate'"},
    {"s=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='circular'"},
    {"s=[5, 9] pad=[20, -4, -1, 3] mode='circular'"},
    {"s=[1, 1] pad=[3, 2, 1, 1] mode='reflect'"},
    {"s=[300, 257] pad=[1, 1, 1, 1]"},
    {"s=[0, 5] pad=[1, 1, 2, 1]"},
    {"s=[3, 0] pad=[1, 1] mode='circular'"},
    {"s=[5, 4] pad=[-2, -2]"},
    {"s=[64, 64, 112, 112] pad=[1, 1, 1, 1]", .bench = true},
    {"s=[16384, 4096] pad=[8, 8]", .bench = true},
    {"s=[64, 64, 112, 112] pad=[1, 1, 1, 1] mode='reflect'", .bench = true},
    {0},
};

static const tn_sample pad_grad_samples[] = {
    {"shape=[] pad=[]"},
    {"shape=[7] pad=[2, 3]"},
    {"shape=[3, 5, 17] pad=[-2, 5, 1, -3]"},
    {"shape=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='reflect'"},
    {"shape=[4, 33] pad=[3, 70] mode='reflect'"},
    {"shape=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='replicate'"},
    {"shape=[3, 7] pad=[-2, 4, 5, -1] mode='replicate'"},
    {"shape=[7, 3, 5] pad=[0, 0, 1, 1, -9, 5] mode='replicate'"}, /* nothing is left of the middle */
    {"shape=[2, 3, 6, 7] pad=[2, 1, 3, 2] mode='circular'"},
    {"shape=[5, 9] pad=[20, -4, -1, 3] mode='circular'"},
    {"shape=[1, 1] pad=[3, 2, 1, 1] mode='reflect'"},
    {"shape=[0, 5] pad=[1, 1, 2, 1]"},
    {"shape=[3, 1500] pad=[2, 2] mode='reflect'"},
    {"shape=[64, 64, 112, 112] pad=[1, 1, 1, 1]", .bench = true},
    {"shape=[64, 64, 112, 112] pad=[1, 1, 1, 1] mode='reflect'", .bench = true},
    {0},
};

#define MODES "mode: 'constant'|'reflect'|'replicate'|'circular' = 'constant'"

const tn_op tni_ops_pad[] = {
    {
        .signature = "pad<T: any>(x: T[*s], pad: ints, " MODES ", value: float = 0.0) -> y: T[pad(*s, pad)]",
        .doc = "More elements before and behind, a pair of numbers for each dimension from the last on; negative ones "
               "cut. An empty dimension is padded with value in every mode.",
        .grad = "x: pad_grad(dy, *s)",
        .kernels = pad_kernels,
        .samples = pad_samples,
    },
    {
        .signature = "pad_grad(dy: T[pad(*shape, pad)], shape: ints, pad: ints, " MODES ") -> dx: T[*shape]",
        .doc = "The gradient of pad: what each element became, added up.",
        .grad = "dy: pad(ddx)",
        .kernels = pad_grad_kernels,
        .samples = pad_grad_samples,
    },
    {0},
};
