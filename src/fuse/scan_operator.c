/* What formulas call for scan and reduce: s becomes step(s, x, …) along an axis, element by element. The step is a
 * fused formula over all rows at once, which runs once for each element of a row; s lies in the workspace, in the type
 * that sums of T have. */
#include <string.h>

#include "core/contract/parts.h"
#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "operator.h"

#define TYPES "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32"

/* A formula that the kernel runs, over tensors without the axis. */
typedef struct piece {
    tni_fuse *formula; /* NULL: it is not needed */
    tni_program *program;
    int32_t n_in, n_out;
    int32_t in[TNI_SCAN_VALUES + 2], out[2]; /* of the operator; -1: s */
    bool wanted[2];
} piece;

typedef struct scan_state {
    piece begin, step, end;
    int64_t n;         /* elements along the axis */
    size_t state, own; /* bytes: of s, and the most that a piece needs */
    bool reference;
} scan_state;

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Views of a call of a piece. */
typedef struct piece_call {
    tn_view views[TNI_SCAN_VALUES + 4];
    int64_t shapes[TNI_SCAN_VALUES + 4][TN_MAX_RANK], strides[TNI_SCAN_VALUES + 4][TN_MAX_RANK];
    tn_slot in[TNI_SCAN_VALUES + 2], out[2];
    tn_value attrs[TNI_MAX_ARGS];
    tn_call call;
} piece_call;

static int32_t axis_of(const tn_call *call) {
    return (int32_t)call->attrs[TNI_SCAN_AXIS].i;
}

/* x at element i of the axis; what has no axis as it is. */
static void set_view(const tn_call *call, const tn_view *x, bool has_axis, int64_t i, piece_call *made, int32_t k) {
    const int32_t axis = has_axis ? axis_of(call) : x->ndim;
    int32_t n = 0;
    made->views[k] = (tn_view){.data = x->data, .shape = made->shapes[k], .strides = made->strides[k], .type = x->type};
    for (int32_t d = 0; d < x->ndim; d++) {
        if (d == axis) continue;
        made->shapes[k][n] = x->shape[d];
        made->strides[k][n++] = x->strides[d];
    }
    made->views[k].ndim = n;
    if (has_axis && x->data) {
        made->views[k].data = (char *)x->data + i * x->strides[axis] * (int64_t)tn_type_size(x->type);
    }
}

/* s: dense, in the shape of x without the axis. */
static void set_state(const tn_call *call, piece_call *made, int32_t k) {
    const tn_view *x = tn_in(call, 0);
    set_view(call, x, true, 0, made, k);
    made->views[k].data = call->workspace;
    made->views[k].type = tni_acc_type(x->type);
    tni_dense_strides(made->views[k].ndim, made->shapes[k], made->strides[k]);
}

static void make_call(const tn_call *call, const piece *p, int64_t i, piece_call *made) {
    int32_t n = 0;
    const tni_contract *c = p->formula->contract;
    memset(made, 0, sizeof *made);
    for (int32_t k = 0; k < p->n_in; k++, n++) {
        made->in[k] = (tn_slot){&made->views[n], 1};
        if (p->in[k] < 0) {
            set_state(call, made, n);
        } else {
            set_view(call, tn_in(call, p->in[k]), p->in[k] != TNI_SCAN_START, i, made, n);
        }
    }
    for (int32_t k = 0; k < p->n_out; k++, n++) {
        made->attrs[c->n_attrs + k] = (tn_value){.kind = TN_ATTR_BOOL, .b = p->wanted[k]};
        if (!p->wanted[k]) continue;
        made->out[k] = (tn_slot){&made->views[n], 1};
        set_view(call, tn_out(call, p->out[k]), p->out[k] != TNI_SCAN_LAST, i, made, n);
    }
    if (c->n_attrs) made->attrs[0] = call->attrs[TNI_SCAN_FIRST];
    made->call = *call;
    made->call.in = made->in;
    made->call.out = made->out;
    made->call.attrs = made->attrs;
    made->call.workspace = NULL;
    made->call.state = NULL;
}

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

static tn_status parse_piece(piece *p, tni_text *text) {
    const tn_status status = text->failed ? TN_NO_MEMORY : tni_fuse_parse(text->data, NULL, &p->formula);
    tni_free(text->data);
    return status;
}

/* s = start */
static tn_status make_begin(const tn_call *call, piece *p) {
    const tn_view *start = tn_in(call, TNI_SCAN_START);
    tni_text text = {0};
    tni_text_add(&text, "scan_begin(s: %s[*r]!, ", tn_type_name(tni_acc_type(tn_in(call, 0)->type)));
    p->in[p->n_in++] = -1;
    if (start) {
        tni_text_add(&text, "start: %s[*r]) : s = start", tn_type_name(start->type));
        p->in[p->n_in++] = TNI_SCAN_START;
    } else {
        tni_text_add(&text, "first: float) : s = first");
    }
    return parse_piece(p, &text);
}

/* last = s */
static tn_status make_end(const tn_call *call, piece *p) {
    const tn_view *last = tn_out(call, TNI_SCAN_LAST);
    tni_text text = {0};
    if (!last) return TN_OK;
    tni_text_add(&text, "scan_end(s: %s[*r]) -> last: %s[*r] : last = s", tn_type_name(tni_acc_type(last->type)),
                 tn_type_name(last->type));
    p->in[p->n_in++] = -1;
    p->out[p->n_out] = TNI_SCAN_LAST;
    p->wanted[p->n_out++] = true;
    return parse_piece(p, &text);
}

/* before = s; y = step(s, x, …); s = y */
static tn_status make_step(const tn_call *call, piece *p) {
    const char *names = call->attrs[TNI_SCAN_NAMES].s;
    const char *type = tn_type_name(tn_in(call, 0)->type);
    char name[TNI_MAX_NAME + 1];
    tni_fuse *step;
    tni_text text = {0};
    TN_TRY(tni_scan_step(&tni_scans, call->attrs[TNI_SCAN_STEP].s, names, TYPES, &step));
    char *statements = tni_fuse_print_apart(step);
    tni_fuse_free(step);
    if (!statements) return TN_NO_MEMORY;
    tni_text_add(&text, "scan_step(s: %s[*r]!", tn_type_name(tni_acc_type(tn_in(call, 0)->type)));
    p->in[p->n_in++] = -1;
    for (int32_t k = 0; tni_scan_next_name(&names, name); k++) {
        if (strcmp(name, "-") == 0) continue;
        p->in[p->n_in++] = k;
        tni_text_add(&text, ", %s: %s[*r]", name, tn_type_name(tn_in(call, k)->type));
    }
    tni_text_add(&text, ") -> step_result: %s[*r]?, step_before: %s[*r]? : step_before = s; ", type, type);
    tni_text_put(&text, statements);
    tni_text_put(&text, "; s = step_result");
    tni_free(statements);
    for (int32_t k = TNI_SCAN_Y; k <= TNI_SCAN_BEFORE; k++) {
        p->out[p->n_out] = k;
        p->wanted[p->n_out++] = tn_out(call, k) != NULL;
    }
    return parse_piece(p, &text);
}

static tn_status bind_piece(const tn_call *call, scan_state *s, piece *p) {
    if (!p->formula || s->reference) return TN_OK;
    piece_call *made = tni_malloc(sizeof *made);
    if (!made) return TN_NO_MEMORY;
    make_call(call, p, 0, made);
    const tn_status status = tni_fuse_bind(p->formula, &made->call, &p->program);
    if (status == TN_OK && p->program->workspace > s->own) s->own = p->program->workspace;
    tni_free(made);
    return status;
}

static void release_piece(piece *p) {
    tni_program_free(p->program);
    tni_fuse_free(p->formula);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

static void release(void *state) {
    scan_state *s = state;
    release_piece(&s->begin);
    release_piece(&s->step);
    release_piece(&s->end);
    tni_free(s);
}

static tn_status make_pieces(const tn_call *call, scan_state *s) {
    const tn_view *x = tn_in(call, 0);
    const int32_t axis = axis_of(call);
    s->n = x->shape[axis];
    s->state = (size_t)round_up(
        tn_product(x, 0, axis) * tn_product(x, axis + 1, x->ndim) * (int64_t)tn_type_size(tni_acc_type(x->type)), 64);
    TN_TRY(make_begin(call, &s->begin));
    TN_TRY(make_step(call, &s->step));
    TN_TRY(make_end(call, &s->end));
    TN_TRY(bind_piece(call, s, &s->begin));
    TN_TRY(bind_piece(call, s, &s->step));
    return bind_piece(call, s, &s->end);
}

static tn_status prepare(const tn_call *call, void **state) {
    scan_state *s = tni_calloc(1, sizeof *s);
    if (!s) return TN_NO_MEMORY;
    s->reference = call->kernel->data != NULL;
    const tn_status status = make_pieces(call, s);
    if (status == TN_OK) {
        *state = s;
    } else {
        release(s);
    }
    return status;
}

static size_t workspace(const tn_call *call) {
    const scan_state *s = call->state;
    return s->state + s->own;
}

static tn_status run_piece(const tn_call *call, const scan_state *s, const piece *p, int64_t i) {
    piece_call made;
    if (!p->formula) return TN_OK;
    make_call(call, p, i, &made);
    made.call.workspace = s->own ? (char *)call->workspace + s->state : NULL;
    return s->reference ? tni_fuse_reference(p->formula, &made.call) : tni_program_run(p->program, &made.call);
}

static tn_status run(const tn_call *call, void *state) {
    const scan_state *s = state;
    const bool reverse = call->attrs[TNI_SCAN_REVERSE].b;
    if (s->state == 0) return TN_OK; /* there are no rows */
    TN_TRY(run_piece(call, s, &s->begin, 0));
    for (int64_t i = 0; i < s->n; i++) TN_TRY(run_piece(call, s, &s->step, reverse ? s->n - 1 - i : i));
    return run_piece(call, s, &s->end, 0);
}

/* ---- the operator ------------------------------------------------------------------------------------------------ */

static const bool by_reference = true;
static const tn_kernel kernels[] = {
    {"steps", TN_CPU, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, NULL},
    {"steps", TN_CUDA, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, NULL},
    {"ref", TN_CPU, 0, 0, TN_STRIDED, NULL, workspace, prepare, release, run, &by_reference},
    {0},
};

static const tn_op row = {
    .signature = "scan<T: " TYPES ", A: " TYPES ", B: " TYPES ", C: " TYPES ", D: " TYPES ", E: " TYPES ", F: " TYPES
                 ", S: " TYPES ">(x: T[*s], a: A[~*s]?, b: B[~*s]?, c: C[~*s]?, d: D[~*s]?, e: E[~*s]?, f: F[~*s]?, "
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
