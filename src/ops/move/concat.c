/* concat: tensors side by side along an axis. */
#include "concat.h"

#include <string.h>

#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "cuda/driver/cuda.h"

/* ---- as rows ----------------------------------------------------------------------------------------------------- */

bool concat_is_dense(const tn_call *call) {
    bool dense = tni_is_dense(tn_out(call, 0)->ndim, tn_out(call, 0)->shape, tn_out(call, 0)->strides);
    for (int k = 0; k < call->in[0].count && dense; k++) {
        const tn_view *x = &call->in[0].views[k];
        dense = tni_is_dense(x->ndim, x->shape, x->strides);
    }
    return dense;
}

concat concat_of(const tn_call *call) {
    const concat_args a = concat_args_of(call);
    const tn_view *y = a.y;
    const int axis = (int)a.axis;
    return (concat){.xs = call->in[0].views,
                    .y = y,
                    .count = call->in[0].count,
                    .axis = axis,
                    .rows = tn_product(y, 0, axis),
                    .inner = tn_product(y, axis + 1, y->ndim)};
}

tn_status concat_apart(const tn_call *call, const concat *c,
                       tn_status (*copy)(const tn_call *, const tn_view *to, const tn_view *from)) {
    int64_t at = 0;
    for (int k = 0; k < c->count; k++) {
        const tn_view *x = &c->xs[k];
        tn_view to = {.data = (char *)c->y->data + at * c->y->strides[c->axis] * (int64_t)tn_type_size(c->y->type),
                      .shape = x->shape,
                      .strides = c->y->strides,
                      .ndim = x->ndim,
                      .type = x->type};
        TN_TRY(copy(call, &to, x));
        at += x->shape[c->axis];
    }
    return TN_OK;
}

/* ---- the CPU's kernel -------------------------------------------------------------------------------------------- */

enum { PIECE = 1 << 17, GRAIN = 1 << 15 }; /* bytes */

typedef struct job {
    concat c;
    int64_t row_bytes, pieces;
} job;

/* Bytes begin … end - 1 of a row of y. */
static void do_piece(const job *j, int64_t row, int64_t begin, int64_t end) {
    const int64_t unit = j->c.inner * (int64_t)tn_type_size(j->c.y->type);
    int64_t at = 0;
    for (int k = 0; k < j->c.count && at < end; k++) {
        const int64_t n = j->c.xs[k].shape[j->c.axis] * unit;
        const int64_t first = max(begin, at), last = min(end, at + n);
        if (first < last) {
            memcpy((char *)j->c.y->data + row * j->row_bytes + first,
                   (const char *)j->c.xs[k].data + row * n + (first - at), (size_t)(last - first));
        }
        at += n;
    }
}

static void do_pieces(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i % j->pieces * PIECE;
        do_piece(j, i / j->pieces, first, min(j->row_bytes, first + PIECE));
    }
}

static tn_status concat_cpu(const tn_call *call, void *state) {
    (void)state;
    job j = {.c = concat_of(call)};
    if (tn_count(j.c.y) == 0) return TN_OK;
    if (!concat_is_dense(call)) return concat_apart(call, &j.c, tni_strided_copy);
    j.row_bytes = tn_count(j.c.y) / j.c.rows * (int64_t)tn_type_size(j.c.y->type);
    j.pieces = ceil_div(j.row_bytes, PIECE);
    tn_parallel(call, j.c.rows * j.pieces, max(1, GRAIN / min(j.row_bytes, PIECE)), do_pieces, &j);
    return TN_OK;
}

/* ---- the plain version ------------------------------------------------------------------------------------------- */

static tn_status concat_ref(const tn_call *call, void *state) {
    (void)state;
    const concat c = concat_of(call);
    const int64_t size = (int64_t)tn_type_size(c.y->type), along = c.y->shape[c.axis];
    for (int64_t row = 0; row < c.rows; row++) {
        int64_t at = row * along;
        for (int k = 0; k < c.count; k++) {
            const int64_t n = c.xs[k].shape[c.axis];
            for (int64_t i = 0; i < n * c.inner; i++) {
                memcpy((char *)c.y->data + (at * c.inner + i) * size,
                       (const char *)c.xs[k].data + (row * n * c.inner + i) * size, (size_t)size);
            }
            at += n;
        }
    }
    return TN_OK;
}

static const tn_kernel concat_kernels[] = {
    {.name = "rows", .device = TN_CPU, .flags = TN_STRIDED, .run = concat_cpu},
    TNI_CUDA_KERNEL(concat, .flags = TN_STRIDED),
    {.name = "ref", .device = TN_CPU, .run = concat_ref},
    {0},
};

static const tn_sample concat_samples[] = {
    {"xs=[[7]]"},
    {"xs=[[7], [3], [1]]"},
    {"xs=[[4, 33], [2, 33]]"},
    {"xs=[[4, 33], [4, 7], [4, 1]] axis=1"},
    {"xs=[[4, 32], [4, 8]] axis=-1"},
    {"xs=[[3, 5, 17], [3, 1, 17], [3, 2, 17]] axis=1"},
    {"xs=[[0, 3], [2, 3]]"},
    {"xs=[[2, 0], [2, 3], [2, 0]] axis=1"},
    {"xs=[[0], [0]]"},
    {"xs=[[70000], [3]]"},
    {"xs=[[16384, 2048], [16384, 2048]] axis=1", .bench = true},
    {"xs=[[8192, 4096], [8192, 4096]]", .bench = true},
    {"xs=[[16384, 2047], [16384, 1025], [16384, 1000]] axis=1", .bench = true},
    {0},
};

const tn_op tni_ops_concat[] = {
    {
        .signature = "concat<T: any>(xs: [T[*s]], axis: axis = 0) -> y: T[concat(*s, axis)]",
        .doc = "Tensors joined along an axis; in all others they have the same sizes.",
        .kernels = concat_kernels,
        .samples = concat_samples,
    },
    {0},
};
