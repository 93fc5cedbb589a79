/* Steps of a formula as calls of operators: each finds its plan as a call from outside does. Tensors between steps lie
 * in the workspace, dense; behind them is what a step needs for itself. */
#include <string.h>

#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "core/run/run.h"
#include "formula_steps.h"

/* A tensor between steps, or an output that nobody wants and a step reads all the same. */
typedef struct between {
    bool needed;
    tn_type type;
    int32_t ndim;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
    size_t offset; /* in the workspace */
} between;

struct tni_prepared {
    const tni_fuse *f;
    const char *kernel; /* of the steps; NULL: the best */
    bool *runs;         /* (steps) */
    between *tensors;   /* (tensors); of inputs and outputs `needed` alone counts */
    size_t bytes;       /* of the tensors between steps */
    size_t step_bytes;  /* the most that a step needs for itself */
};

/* A call of one step, while it is made. */
typedef struct calling {
    tn_args args;
    tn_tensor in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    const tn_tensor *in_at[TNI_MAX_ARGS];
    tn_tensor *out_at[TNI_MAX_ARGS];
    tn_attr attrs[3 * TNI_MAX_ARGS];
} calling;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const tn_view *view_of(const tni_prepared *p, const tn_call *call, int32_t tensor) {
    const tni_contract *c = p->f->contract;
    if (tensor < c->n_inputs) return tn_in(call, tensor);
    return tensor < c->n_inputs + c->n_outputs ? tn_out(call, tensor - c->n_inputs) : NULL;
}

/* false: it is absent, or unknown yet. */
static bool tensor_of(const tni_prepared *p, const tn_call *call, int32_t tensor, tn_tensor *made) {
    const tn_view *view = view_of(p, call, tensor);
    between *own = &p->tensors[tensor];
    if (!view && (own->type == TN_NO_TYPE || !own->needed)) return false;
    *made = (tn_tensor){.data = view              ? view->data
                                : call->workspace ? (char *)call->workspace + own->offset
                                                  : NULL,
                        .device = call->device,
                        .ndim = view ? view->ndim : own->ndim,
                        .dtype = tn_type_to_dlpack(view ? view->type : own->type),
                        .shape = (int64_t *)(view ? view->shape : own->shape),
                        .strides = (int64_t *)(view ? view->strides : own->strides)};
    return true;
}

static void set_attrs(const tni_prepared *p, const tn_call *call, const tni_called *step, calling *made) {
    const tni_contract *c = p->f->contract;
    int32_t n = 0;
    for (int32_t k = 0; k < step->n_attrs; k++) made->attrs[n++] = step->attrs[k];
    for (int32_t k = 0; k < step->n_own; k++) {
        const int32_t i = step->own[k];
        if (call->attrs[i].kind != TN_ATTR_UNSET) made->attrs[n++] = (tn_attr){c->attrs[i].name, call->attrs[i]};
    }
    for (int32_t k = 0; k < step->n_sizes; k++) {
        tn_tensor of = {0};
        const int32_t axis = step->sizes[k].axis;
        int left;
        if (axis == TNI_NO_SIZE) {
            made->attrs[n++] = (tn_attr){step->sizes[k].attr, call->attrs[step->sizes[k].of]};
            continue;
        }
        tensor_of(p, call, step->sizes[k].of, &of);
        made->attrs[n++] = tni_gives_shape(axis, &left)
                               ? tn_attr_ints(step->sizes[k].attr, of.shape, of.ndim - left)
                               : tn_attr_int(step->sizes[k].attr, of.shape[axis < 0 ? of.ndim + axis : axis]);
    }
    for (int32_t k = 0; k < step->n_out; k++) { /* `?` outputs are made when somebody takes them */
        const tni_contract *called = step->op->contract;
        const int32_t want = called->outputs[k].want_attr;
        const bool wanted = step->out[k] >= 0 && p->tensors[step->out[k]].needed;
        if (want >= 0) made->attrs[n++] = tn_attr_bool(called->attrs[want].name, wanted);
    }
    made->args.attrs = made->attrs;
    made->args.n_attrs = n;
}

static void make_call(const tni_prepared *p, const tn_call *call, const tni_called *step, calling *made) {
    *made = (calling){
        .args = {
            .in = made->in_at, .n_in = step->n_in, .out = made->out_at, .n_out = step->n_out, .kernel = p->kernel}};
    for (int32_t i = 0; i < step->n_in; i++) {
        if (step->in[i] >= 0 && tensor_of(p, call, step->in[i], &made->in[i])) made->in_at[i] = &made->in[i];
    }
    for (int32_t k = 0; k < step->n_out; k++) {
        if (step->out[k] >= 0 && tensor_of(p, call, step->out[k], &made->out[k])) made->out_at[k] = &made->out[k];
    }
    set_attrs(p, call, step, made);
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

/* From the outputs that are wanted back to what makes them. */
static void mark_needed(tni_prepared *p, const tn_call *call) {
    const tni_contract *c = p->f->contract;
    const tni_steps *steps = p->f->steps;
    for (int32_t k = 0; k < c->n_outputs; k++) p->tensors[c->n_inputs + k].needed = tn_out(call, k) != NULL;
    for (int32_t i = steps->n - 1; i >= 0; i--) {
        const tni_called *step = &steps->steps[i];
        for (int32_t k = 0; k < step->n_out; k++) p->runs[i] |= step->out[k] >= 0 && p->tensors[step->out[k]].needed;
        for (int32_t k = 0; k < step->n_in && p->runs[i]; k++) {
            if (step->in[k] >= 0) p->tensors[step->in[k]].needed = true;
        }
        for (int32_t k = 0; k < step->n_sizes && p->runs[i]; k++) {
            if (step->sizes[k].axis != TNI_NO_SIZE) p->tensors[step->sizes[k].of].needed = true;
        }
    }
}

/* What the step makes that is not the caller's. */
static tn_status set_tensors(tni_prepared *p, const tn_call *call, const tni_called *step, const tn_spec *specs) {
    for (int32_t k = 0; k < step->n_out; k++) {
        const int32_t tensor = step->out[k];
        if (tensor < 0 || !p->tensors[tensor].needed || view_of(p, call, tensor)) continue;
        between *made = &p->tensors[tensor];
        int64_t count = 1;
        made->type = specs[k].type;
        made->ndim = specs[k].ndim;
        for (int32_t d = 0; d < made->ndim; d++) count *= made->shape[d] = specs[k].shape[d];
        tni_dense_strides(made->ndim, made->shape, made->strides);
        made->offset = p->bytes;
        p->bytes += (size_t)round_up(count * (int64_t)tn_type_size(made->type), 64);
    }
    return TN_OK;
}

static tn_status prepare_step(tni_prepared *p, const tn_call *call, const tni_called *step) {
    calling *made = tni_calloc(1, sizeof *made);
    tn_spec *specs = tni_calloc((size_t)step->n_out + 1, sizeof *specs);
    size_t bytes = 0;
    tn_status status = made && specs ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK) {
        make_call(p, call, step, made);
        status = tn_infer(step->op, &made->args, specs);
    }
    if (status == TN_OK) status = set_tensors(p, call, step, specs);
    if (status == TN_OK) {
        make_call(p, call, step, made); /* with what it makes */
        status = tn_workspace(step->op, &made->args, &bytes);
    }
    if (bytes > p->step_bytes) p->step_bytes = bytes;
    tni_free(specs);
    tni_free(made);
    return status;
}

tn_status tni_prepare_steps(const tni_fuse *f, const tn_call *call, const char *kernel, tni_prepared **made) {
    tni_prepared *p = tni_calloc(1, sizeof *p);
    *made = NULL;
    if (!p) return TN_NO_MEMORY;
    p->f = f;
    p->kernel = kernel;
    p->runs = tni_calloc((size_t)f->steps->n + 1, sizeof *p->runs);
    p->tensors = tni_calloc((size_t)f->steps->n_tensors + 1, sizeof *p->tensors);
    tn_status status = p->runs && p->tensors ? TN_OK : TN_NO_MEMORY;
    if (status == TN_OK) mark_needed(p, call);
    for (int32_t i = 0; i < f->steps->n && status == TN_OK; i++) {
        if (p->runs[i]) status = prepare_step(p, call, &f->steps->steps[i]);
    }
    if (status == TN_OK) {
        *made = p;
    } else {
        tni_prepared_free(p);
    }
    return status;
}

void tni_prepared_free(tni_prepared *p) {
    if (!p) return;
    tni_free(p->runs);
    tni_free(p->tensors);
    tni_free(p);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

size_t tni_steps_workspace(const tni_prepared *p) {
    return p->bytes + p->step_bytes;
}

tn_status tni_run_steps(const tni_prepared *p, const tn_call *call) {
    const tni_steps *steps = p->f->steps;
    char *behind = call->workspace ? (char *)call->workspace + p->bytes : NULL;
    for (int32_t i = 0; i < steps->n; i++) {
        calling made;
        tni_scratch own;
        if (!p->runs[i]) continue;
        make_call(p, call, &steps->steps[i], &made);
        const tn_host *host = tni_scratch_init(&own, call->host, behind, p->step_bytes);
        TN_TRY(tn_run(steps->steps[i].op, &made.args, host));
    }
    return TN_OK;
}
