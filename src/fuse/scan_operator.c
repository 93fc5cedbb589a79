/* What formulas call for scan and reduce: s becomes step(s, x, …) along an axis, element by element. The step is a
 * fused formula over all rows at once, which runs once for each element of a row; s lies in the workspace, in the type
 * that sums of T have. What lies along the axis in memory goes through a buffer there, some elements at a time, in
 * which rows are side by side. On a GPU one kernel walks along the axis, if the step allows it. */
#include <stdlib.h>
#include <string.h>

#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "scan_pieces.h"

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Do its elements along the axis lie closer than those of a row beside it? */
static bool lies_along(const tn_call *call, const tn_view *x) {
    const int32_t axis = tni_scan_axis(call);
    const int64_t step = llabs(x->strides[axis]);
    bool apart = false;
    for (int32_t d = 0; d < x->ndim; d++) {
        const int64_t other = llabs(x->strides[d]);
        if (d == axis || x->shape[d] == 1 || other == 0) continue;
        if (other <= step) return false;
        apart = true;
    }
    return apart && step > 0;
}

static int64_t place_buffer(const tn_call *call, tni_scan_run *s, const tn_view *x) {
    if (!x || !lies_along(call, x)) return -1;
    const int64_t place = (int64_t)s->buffers.bytes;
    s->buffers.bytes += (size_t)round_up(s->buffers.width * s->lines * (int64_t)tn_type_size(x->type), 64);
    return place;
}

/* Whole lines of the cache at least; more of few rows. */
static void make_buffers(const tn_call *call, tni_scan_run *s) {
    enum { LEAST = 16, MOST = 256, ELEMENTS = 1 << 16 };
    tni_scan_buffers *made = &s->buffers;
    made->width = s->lines ? ELEMENTS / s->lines : MOST;
    made->width = made->width < LEAST ? LEAST : made->width > MOST ? MOST : made->width;
    if (made->width > s->n) made->width = s->n;
    if (s->reference || call->device.kind != TN_CPU || s->n < 2) made->width = 0;
    if (!made->width) return;
    for (int32_t k = 0; k <= TNI_SCAN_VALUES; k++)
        made->in[k] = k == TNI_SCAN_START ? -1 : place_buffer(call, s, tn_in(call, k));
    for (int32_t k = 0; k <= TNI_SCAN_LAST; k++)
        made->out[k] = k == TNI_SCAN_LAST ? -1 : place_buffer(call, s, tn_out(call, k));
    if (!made->bytes) made->width = 0;
}

/* Elements first … first + count - 1 of a tensor from its buffer, or into it. */
static tn_status copy_one(const tn_call *call, const tni_scan_run *s, const tn_view *x, int64_t place, int64_t first,
                          bool into) {
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    if (place < 0) return TN_OK;
    const int32_t axis = tni_scan_axis(call);
    const int64_t size = (int64_t)tn_type_size(x->type), left = s->n - first;
    int64_t stride = 1;
    for (int32_t d = x->ndim - 1; d >= 0; d--) {
        shape[d] = d == axis ? (left < s->buffers.width ? left : s->buffers.width) : x->shape[d];
        strides[d] = d == axis ? s->lines : stride;
        if (d != axis) stride *= shape[d];
    }
    const tn_view there = {(char *)x->data + first * x->strides[axis] * size, shape, x->strides, x->ndim, x->type};
    const tn_view here = {(char *)call->workspace + s->state + place, shape, strides, x->ndim, x->type};
    return into ? tni_strided_copy(call, &here, &there) : tni_strided_copy(call, &there, &here);
}

static tn_status fill_buffers(const tn_call *call, const tni_scan_run *s, int64_t first) {
    for (int32_t k = 0; k < TNI_SCAN_VALUES; k++)
        TN_TRY(copy_one(call, s, tn_in(call, k), s->buffers.in[k], first, true));
    return TN_OK;
}

static tn_status empty_buffers(const tn_call *call, const tni_scan_run *s, int64_t first) {
    for (int32_t k = 0; k < TNI_SCAN_LAST; k++)
        TN_TRY(copy_one(call, s, tn_out(call, k), s->buffers.out[k], first, false));
    return TN_OK;
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

static void release(void *state) {
    tni_scan_run *s = state;
    tni_scan_release(&s->begin);
    tni_scan_release(&s->step);
    tni_scan_release(&s->end);
    tni_free(s);
}

static tn_status make_steps(const tn_call *call, tni_scan_run *s) {
    const tn_view *x = tn_in(call, 0);
    const int32_t axis = tni_scan_axis(call);
    s->n = x->shape[axis];
    s->lines = tn_product(x, 0, axis) * tn_product(x, axis + 1, x->ndim);
    s->state = (size_t)round_up(s->lines * (int64_t)tn_type_size(tni_acc_type(x->type)), 64);
    make_buffers(call, s);
    return tni_scan_make_pieces(call, s);
}

static tn_status prepare_with(const tn_call *call, tn_status (*make)(const tn_call *call, tni_scan_run *s),
                              void **state) {
    tni_scan_run *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    s->reference = call->kernel->data != NULL;
    const tn_status status = make(call, s);
    if (status == TN_OK) {
        *state = s;
    } else {
        release(s);
    }
    return status;
}

static tn_status prepare(const tn_call *call, void **state) {
    return prepare_with(call, make_steps, state);
}

static size_t workspace(const tn_call *call) {
    const tni_scan_run *s = call->state;
    return s->state + s->buffers.bytes + s->own;
}

static tn_status run_piece(const tn_call *call, const tni_scan_run *s, const tni_scan_piece *p, int64_t i) {
    tni_scan_views made;
    if (!p->formula) return TN_OK;
    tni_scan_call_of(call, s, p, i, &made);
    made.call.workspace = s->own ? (char *)call->workspace + s->state + s->buffers.bytes : NULL;
    return s->reference ? tni_fuse_reference(p->formula, &made.call) : tni_program_run(p->program, &made.call);
}

static tn_status run(const tn_call *call, void *state) {
    const tni_scan_run *s = state;
    const bool reverse = call->attrs[TNI_SCAN_REVERSE].b;
    const int64_t width = s->buffers.width ? s->buffers.width : 1, chunks = ceil_div(s->n, width);
    if (s->lines == 0) return TN_OK;
    TN_TRY(run_piece(call, s, &s->begin, 0));
    for (int64_t c = 0; c < chunks; c++) {
        const int64_t first = (reverse ? chunks - 1 - c : c) * width;
        const int64_t count = s->n - first < width ? s->n - first : width;
        if (s->buffers.width) TN_TRY(fill_buffers(call, s, first));
        for (int64_t i = 0; i < count; i++) TN_TRY(run_piece(call, s, &s->step, first + (reverse ? count - 1 - i : i)));
        if (s->buffers.width) TN_TRY(empty_buffers(call, s, first));
    }
    return run_piece(call, s, &s->end, 0);
}

/* A step that no kernel can walk with, as one that draws random numbers, runs element by element. */
static tn_status make_walk(const tn_call *call, tni_scan_run *s) {
    const tn_status status = tni_scan_make_walk(call, s);
    if (status != TN_UNSUPPORTED) return status;
    tni_scan_release(&s->step);
    s->step = (tni_scan_piece){0};
    return make_steps(call, s);
}

static tn_status prepare_walk(const tn_call *call, void **state) {
    return prepare_with(call, make_walk, state);
}

static tn_status run_walk(const tn_call *call, void *state) {
    const tni_scan_run *s = state;
    return s->begin.formula ? run(call, state) : tni_scan_run_walk(call, s);
}

static bool has_nvrtc(const tn_call *call) {
    return tni_nvrtc_version(call->name) > 0;
}

/* ---- the operator ------------------------------------------------------------------------------------------------ */

static const bool by_reference = true;
static const tn_kernel kernels[] = {
    {"steps", TN_CPU, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, NULL},
    {"walk", TN_CUDA, 0, 0, TN_STRIDED, has_nvrtc, workspace, prepare_walk, release, run_walk, NULL},
    {"steps", TN_CUDA, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, NULL},
    {"ref", TN_CPU, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, &by_reference},
    {0},
};

static const tn_op row = {
    .signature = "scan<T: " TNI_SCAN_TYPES ", A: " TNI_SCAN_TYPES ", B: " TNI_SCAN_TYPES ", C: " TNI_SCAN_TYPES
                 ", D: " TNI_SCAN_TYPES ", E: " TNI_SCAN_TYPES ", F: " TNI_SCAN_TYPES ", S: " TNI_SCAN_TYPES
                 ">(x: T[*s], a: A[~*s]?, b: B[~*s]?, c: C[~*s]?, d: D[~*s]?, e: E[~*s]?, f: F[~*s]?, "
                 "start: S[reduce(*s, axis)]?, step: str, names: str, axis: axis, reverse: bool = false, "
                 "first: float = 0) -> y: T[*s]?, before: T[*s]?, last: T[reduce(*s, axis)]? where rank(*s) >= 1",
    .doc = "A recurrence of a formula's own along an axis.",
    .kernels = kernels,
};

static _Atomic(tn_function *) scan_operator;

static const tn_function *make(void) {
    tn_function *made, *before = NULL;
    const tn_function *there = atomic_load(&scan_operator);
    if (there) return there;
    if (tni_operator_make(&row, &made) != TN_OK) return NULL;
    if (!atomic_compare_exchange_strong(&scan_operator, &before, made)) {
        tni_operator_free(made); /* another thread was first */
        return before;
    }
    tni_operator_keep(made);
    return made;
}

static tn_status parse_step(const char *text, tni_fuse **made) {
    return tni_fuse_parse(text, NULL, made);
}

const tni_scanning tni_scans = {make, parse_step, tni_fuse_free};

void tni_scans_forget(void) {
    atomic_store(&scan_operator, NULL);
}
