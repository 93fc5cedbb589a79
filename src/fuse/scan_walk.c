/* A scan on a GPU in one launch: what its step is there, and how its arguments move (cuda/gpu_walk.h). */
#include <string.h>

#include "scan_pieces.h"

/* begin = start; before = s; y = step(s, x, …); next = y; last = s */
static tn_status make_walk_step(const tn_call *call, tni_scan_piece *p) {
    static const int32_t outputs[TNI_SCAN_OUTPUTS] = {-1, -1, TNI_SCAN_Y, TNI_SCAN_BEFORE, TNI_SCAN_LAST};
    const tn_view *start = tn_in(call, TNI_SCAN_START);
    const char *type = tn_type_name(tn_in(call, 0)->type), *wide = tn_type_name(tni_acc_type(tn_in(call, 0)->type));
    char *statements;
    tni_text text = {0};
    TN_TRY(tni_scan_step_text(call, &statements));
    tni_text_add(&text, "scan_walk(s: %s[*r]", wide);
    p->in[p->n_in++] = -1;
    tni_scan_add_values(call, p, &text);
    if (start) {
        tni_text_add(&text, ", step_start: %s[*r]", tn_type_name(start->type));
        p->in[p->n_in++] = TNI_SCAN_START;
    } else {
        tni_text_put(&text, ", step_start: float");
    }
    tni_text_add(&text,
                 ") -> step_begin: %1$s[*r], step_next: %1$s[*r], step_result: %2$s[*r]?, step_before: %2$s[*r]?, "
                 "step_last: %2$s[*r]? : step_begin = step_start; step_before = s; step_last = s; ",
                 wide, type);
    tni_text_put(&text, statements);
    tni_text_put(&text, "; step_next = step_result");
    tni_free(statements);
    for (int32_t k = 0; k < TNI_SCAN_OUTPUTS; k++) {
        p->out[p->n_out] = outputs[k];
        p->wanted[p->n_out++] = outputs[k] < 0 || tn_out(call, outputs[k]);
    }
    return tni_scan_parse(p, &text);
}

/* How far each argument of the step is from its next element. */
static tni_gpu_walk walk_of(const tn_call *call, const tni_scan_run *s) {
    static const uint8_t roles[TNI_SCAN_OUTPUTS] = {TNI_WALK_BEGIN, TNI_WALK_NEXT, TNI_WALK_RESULT, TNI_WALK_RESULT,
                                                    TNI_WALK_LAST};
    const int32_t axis = tni_scan_axis(call), sign = call->attrs[TNI_SCAN_REVERSE].b ? -1 : 1;
    const tni_scan_piece *p = &s->step;
    tni_gpu_walk walk = {.n = s->n};
    for (int32_t k = 0; k < p->n_in; k++) {
        const bool moves = p->in[k] >= 0 && p->in[k] != TNI_SCAN_START;
        walk.in[k] = moves ? sign * tn_in(call, p->in[k])->strides[axis] : 0;
    }
    for (int32_t k = 0; k < p->n_out; k++) {
        const bool moves = p->wanted[k] && p->out[k] >= 0 && p->out[k] != TNI_SCAN_LAST;
        walk.out[k] = moves ? sign * tn_out(call, p->out[k])->strides[axis] : 0;
        walk.role[k] = roles[k];
    }
    return walk;
}

/* A call of the step, of the element that comes first. */
static void make_walk_call(const tn_call *call, const tni_scan_run *s, tni_scan_views *made) {
    tni_scan_call_of(call, s, &s->step, call->attrs[TNI_SCAN_REVERSE].b && s->n ? s->n - 1 : 0, made);
}

/* source: NULL, or where the text goes, for tests; nothing is loaded then. */
static tn_status bind_walk(const tn_call *call, tni_scan_run *s, char **source) {
    const tn_view *x = tn_in(call, 0);
    tni_scan_views *made = tni_malloc(sizeof *made);
    if (!made) return TN_NO_MEMORY;
    s->n = x->shape[tni_scan_axis(call)];
    tn_status status = make_walk_step(call, &s->step);
    if (status == TN_OK) {
        tni_gpu_walk walk = walk_of(call, s);
        make_walk_call(call, s, made);
        made->call.state = &walk;
        status = source ? tni_fuse_emit_for(s->step.formula, &made->call, &tni_cuda_walk, &s->step.program, source)
                        : tni_fuse_bind_to(s->step.formula, &made->call, &tni_cuda_walk, &s->step.program);
    }
    tni_free(made);
    return status;
}

tn_status tni_scan_make_walk(const tn_call *call, tni_scan_run *s) {
    return bind_walk(call, s, NULL);
}

tn_status tni_scan_run_walk(const tn_call *call, const tni_scan_run *s) {
    tni_scan_views made;
    make_walk_call(call, s, &made);
    return tni_program_run(s->step.program, &made.call);
}

tn_status tni_scan_walk(const tn_call *call,
                        tn_status (*use)(void *arg, const tni_program *program, const tn_call *step,
                                         const char *source),
                        void *arg) {
    tni_scan_run s = {0};
    tni_scan_views made;
    char *source = NULL;
    tn_status status = bind_walk(call, &s, &source);
    if (status == TN_OK) {
        make_walk_call(call, &s, &made);
        status = use(arg, s.step.program, &made.call, source);
    }
    tn_free(source);
    tni_scan_release(&s.step);
    return status;
}
