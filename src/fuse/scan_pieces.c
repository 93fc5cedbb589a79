/* The pieces of a scan: their text, and calls of them. */
#include <string.h>

#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "scan_pieces.h"

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* x at element i of the axis; what has no axis as it is. */
static void set_view(const tn_call *call, const tn_view *x, bool has_axis, int64_t i, tni_scan_views *made, int32_t k) {
    const int32_t axis = has_axis ? tni_scan_axis(call) : x->ndim;
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
static void set_state(const tn_call *call, tni_scan_views *made, int32_t k) {
    const tn_view *x = tn_in(call, 0);
    set_view(call, x, true, 0, made, k);
    made->views[k].data = call->workspace;
    made->views[k].type = tni_acc_type(x->type);
    tni_dense_strides(made->views[k].ndim, made->shapes[k], made->strides[k]);
}

/* Element i of what lies in a buffer, which begins with element i - i % width. */
static void set_buffered(const tn_call *call, const tni_scan_run *s, int64_t place, int64_t i, tni_scan_views *made,
                         int32_t k) {
    tn_view *view = &made->views[k];
    if (place < 0) return;
    tni_dense_strides(view->ndim, made->shapes[k], made->strides[k]);
    if (!call->workspace) return;
    view->data = (char *)call->workspace + s->state + place +
                 i % s->buffers.width * s->lines * (int64_t)tn_type_size(view->type);
}

void tni_scan_call_of(const tn_call *call, const tni_scan_run *s, const tni_scan_piece *p, int64_t i,
                      tni_scan_views *made) {
    int32_t n = 0;
    const tni_contract *c = p->formula->contract;
    const bool buffered = p == &s->step && s->buffers.width;
    memset(made, 0, sizeof *made);
    for (int32_t k = 0; k < p->n_in; k++, n++) {
        made->in[k] = (tn_slot){&made->views[n], 1};
        if (p->in[k] < 0) {
            set_state(call, made, n);
        } else {
            set_view(call, tn_in(call, p->in[k]), p->in[k] != TNI_SCAN_START, i, made, n);
            if (buffered) set_buffered(call, s, s->buffers.in[p->in[k]], i, made, n);
        }
    }
    for (int32_t k = 0; k < p->n_out; k++, n++) {
        const int32_t want = c->outputs[k].want_attr;
        if (want >= 0) made->attrs[want] = (tn_value){.kind = TN_ATTR_BOOL, .b = p->wanted[k]};
        if (!p->wanted[k]) continue;
        made->out[k] = (tn_slot){&made->views[n], 1};
        if (p->out[k] < 0) {
            set_state(call, made, n);
        } else {
            set_view(call, tn_out(call, p->out[k]), p->out[k] != TNI_SCAN_LAST, i, made, n);
            if (buffered) set_buffered(call, s, s->buffers.out[p->out[k]], i, made, n);
        }
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

tn_status tni_scan_parse(tni_scan_piece *p, tni_text *text) {
    const tn_status status = text->failed ? TN_NO_MEMORY : tni_fuse_parse(text->data, NULL, &p->formula);
    tni_free(text->data);
    return status;
}

/* s = start */
static tn_status make_begin(const tn_call *call, tni_scan_piece *p) {
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
    return tni_scan_parse(p, &text);
}

/* last = s */
static tn_status make_end(const tn_call *call, tni_scan_piece *p) {
    const tn_view *last = tn_out(call, TNI_SCAN_LAST);
    tni_text text = {0};
    if (!last) return TN_OK;
    tni_text_add(&text, "scan_end(s: %s[*r]) -> last: %s[*r] : last = s", tn_type_name(tni_acc_type(last->type)),
                 tn_type_name(last->type));
    p->in[p->n_in++] = -1;
    p->out[p->n_out] = TNI_SCAN_LAST;
    p->wanted[p->n_out++] = true;
    return tni_scan_parse(p, &text);
}

/* The step as statements that assign step_result, for any types; NULL: it failed. */
tn_status tni_scan_step_text(const tn_call *call, char **statements) {
    tni_fuse *step;
    TN_TRY(
        tni_scan_step(&tni_scans, call->attrs[TNI_SCAN_STEP].s, call->attrs[TNI_SCAN_NAMES].s, TNI_SCAN_TYPES, &step));
    *statements = tni_fuse_print_apart(step);
    tni_fuse_free(step);
    return *statements ? TN_OK : TN_NO_MEMORY;
}

/* , x: f32[*r], a: bf16[*r] */
void tni_scan_add_values(const tn_call *call, tni_scan_piece *p, tni_text *text) {
    const char *names = call->attrs[TNI_SCAN_NAMES].s;
    char name[TNI_MAX_NAME + 1];
    for (int32_t k = 0; tni_scan_next_name(&names, name); k++) {
        if (strcmp(name, "-") == 0) continue;
        p->in[p->n_in++] = k;
        tni_text_add(text, ", %s: %s[*r]", name, tn_type_name(tn_in(call, k)->type));
    }
}

/* before = s; y = step(s, x, …); s = y */
static tn_status make_step(const tn_call *call, tni_scan_piece *p) {
    const char *type = tn_type_name(tn_in(call, 0)->type);
    char *statements;
    tni_text text = {0};
    TN_TRY(tni_scan_step_text(call, &statements));
    tni_text_add(&text, "scan_step(s: %s[*r]!", tn_type_name(tni_acc_type(tn_in(call, 0)->type)));
    p->in[p->n_in++] = -1;
    tni_scan_add_values(call, p, &text);
    tni_text_add(&text, ") -> step_result: %s[*r]?, step_before: %s[*r]? : step_before = s; ", type, type);
    tni_text_put(&text, statements);
    tni_text_put(&text, "; s = step_result");
    tni_free(statements);
    for (int32_t k = TNI_SCAN_Y; k <= TNI_SCAN_BEFORE; k++) {
        p->out[p->n_out] = k;
        p->wanted[p->n_out++] = tn_out(call, k) != NULL;
    }
    return tni_scan_parse(p, &text);
}

static tn_status bind_piece(const tn_call *call, tni_scan_run *s, tni_scan_piece *p) {
    if (!p->formula || s->reference) return TN_OK;
    tni_scan_views *made = tni_malloc(sizeof *made);
    if (!made) return TN_NO_MEMORY;
    tni_scan_call_of(call, s, p, 0, made);
    const tn_status status = tni_fuse_bind(p->formula, &made->call, &p->program);
    if (status == TN_OK && p->program->workspace > s->own) s->own = p->program->workspace;
    tni_free(made);
    return status;
}

void tni_scan_release(tni_scan_piece *p) {
    tni_program_free(p->program);
    tni_fuse_free(p->formula);
}

tn_status tni_scan_make_pieces(const tn_call *call, tni_scan_run *s) {
    TN_TRY(make_begin(call, &s->begin));
    TN_TRY(make_step(call, &s->step));
    TN_TRY(make_end(call, &s->end));
    TN_TRY(bind_piece(call, s, &s->begin));
    TN_TRY(bind_piece(call, s, &s->step));
    return bind_piece(call, s, &s->end);
}
