/* Whole calls of a formula: arguments checked by its contract, made into views, bound and run. */
#ifndef TENON_TEST_RUN_FORMULA_H
#define TENON_TEST_RUN_FORMULA_H

#include <string.h>

#include "core/contract/parts.h"
#include "core/layout/layout.h"
#include "fuse/fuse.h"

typedef struct run_tensors {
    tni_operand operands[TNI_MAX_ARGS];
    int32_t counts[TNI_MAX_ARGS];
    tni_bound bound;
    tn_spec specs[TNI_MAX_ARGS];
    tn_view views[2 * TNI_MAX_ARGS];
    tn_slot in[TNI_MAX_ARGS], out[TNI_MAX_ARGS];
    int64_t shapes[2 * TNI_MAX_ARGS][TN_MAX_RANK], strides[2 * TNI_MAX_ARGS][TN_MAX_RANK];
} run_tensors;

static inline const tn_tensor *run_given(const tn_args *args, int32_t i) {
    return i < args->n_in ? args->in[i] : NULL;
}

/* Inputs of shapes that the contract does not tie together must broadcast all the same. */
static inline tn_status run_check_broadcast(const tni_fuse *f, const run_tensors *t) {
    const tni_contract *c = f->contract;
    tni_dims groups[TNI_MAX_ARGS] = {{.ndim = 0}};
    int32_t ranks[TNI_MAX_ARGS];
    for (int i = 0, k = 0; i < c->n_inputs; i++) ranks[i] = t->counts[i] ? t->operands[k++].ndim : -1;
    for (int i = 0, k = 0; f->axes.numpy && i < c->n_inputs; i++) {
        if (!t->counts[i]) continue;
        const tni_operand *o = &t->operands[k++];
        tni_dims dims = {.ndim = o->ndim};
        if (tni_is_seed(c, i)) continue;
        for (int d = 0; d < o->ndim && d < TN_MAX_RANK; d++) dims.d[d] = o->shape[d];
        if (tni_is_row(f, &c->inputs[i], ranks) && dims.ndim < TN_MAX_RANK) dims.d[dims.ndim++] = 1;
        tni_dims *all = &groups[f->in_group[i]];
        if (tni_broadcast(all, &dims)) continue;
        tni_text text = {0};
        tni_text_add(&text, "%s: %s has shape ", c->name, c->inputs[i].name);
        tni_print_dims(&text, o->ndim, o->shape);
        tni_text_add(&text, ", which does not broadcast with ");
        tni_print_dims(&text, all->ndim, all->d);
        tni_text_add(&text, " of the inputs before it");
        return tni_fail_text(TN_BAD_SHAPE, &text);
    }
    return TN_OK;
}

static inline tn_status run_check(const tni_fuse *f, const tn_args *args, run_tensors *t) {
    const tni_contract *c = f->contract;
    int32_t n = 0;
    if (args->n_in > c->n_inputs) {
        return tn_fail(TN_BAD_VALUE, "%s: takes %d inputs, found %d", c->name, c->n_inputs, args->n_in);
    }
    for (int i = 0; i < c->n_inputs; i++) {
        const tn_tensor *tensor = run_given(args, i);
        t->counts[i] = tensor != NULL;
        if (!tensor) continue;
        if (tensor->ndim > TN_MAX_RANK) {
            return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %d, at most %d can be", c->name, c->inputs[i].name,
                           tensor->ndim, TN_MAX_RANK);
        }
        t->operands[n++] = (tni_operand){tn_type_from_dlpack(tensor->dtype), tensor->ndim, tensor->shape};
    }
    tni_inputs inputs = {t->operands, t->counts};
    TN_TRY(tni_bind(c, &inputs, args->attrs, args->n_attrs, &t->bound, t->specs));
    return run_check_broadcast(f, t);
}

/* Types and shapes of the outputs, as tn_infer. */
static inline tn_status run_infer(const tni_fuse *f, const tn_args *args, tn_spec *specs) {
    run_tensors *t = tni_calloc(1, sizeof *t);
    if (!t) return TN_NO_MEMORY;
    tn_status status = run_check(f, args, t);
    if (status == TN_OK) memcpy(specs, t->specs, (size_t)f->contract->n_outputs * sizeof *specs);
    tni_free(t);
    return status;
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static inline tn_view *run_set_view(run_tensors *t, int32_t i, const tn_tensor *tensor) {
    int64_t own[TN_MAX_RANK];
    tn_view *view = &t->views[i];
    tni_dense_strides(tensor->ndim, tensor->shape, own);
    memcpy(t->shapes[i], tensor->shape, (size_t)tensor->ndim * sizeof(int64_t));
    memcpy(t->strides[i], tensor->strides ? tensor->strides : own, (size_t)tensor->ndim * sizeof(int64_t));
    *view = (tn_view){.data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL,
                      .shape = t->shapes[i],
                      .strides = t->strides[i],
                      .ndim = tensor->ndim,
                      .type = tn_type_from_dlpack(tensor->dtype)};
    return view;
}

/* An input that broadcasts gets its full shape, with strides of 0. */
static inline void run_broaden(run_tensors *t, int32_t i, const tni_dims *full) {
    tn_view *view = &t->views[i];
    int32_t missing = full->ndim - view->ndim;
    if (missing < 0) return;
    for (int d = full->ndim - 1; d >= 0; d--) {
        bool has = d >= missing && t->shapes[i][d - missing] == full->d[d];
        t->strides[i][d] = has ? t->strides[i][d - missing] : 0;
    }
    memcpy(t->shapes[i], full->d, (size_t)full->ndim * sizeof(int64_t));
    view->ndim = full->ndim;
}

static inline tn_status run_set_inputs(const tni_fuse *f, const tn_args *args, run_tensors *t) {
    const tni_contract *c = f->contract;
    for (int i = 0, n = 0; i < c->n_inputs; i++) {
        const tn_tensor *tensor = run_given(args, i);
        if (!tensor) continue;
        tni_dims full;
        t->in[i] = (tn_slot){run_set_view(t, i, tensor), 1};
        TN_TRY(tni_input_shape(c, &t->bound, i, &t->operands[n++], &full));
        run_broaden(t, i, &full);
    }
    return TN_OK;
}

static inline tn_status run_set_outputs(const tni_fuse *f, const tn_args *args, run_tensors *t) {
    const tni_contract *c = f->contract;
    for (int i = 0; i < c->n_outputs && i < args->n_out; i++) {
        const tn_tensor *tensor = args->out[i];
        const tn_spec *spec = &t->specs[i];
        if (!tensor) continue;
        bool fits = tensor->ndim == spec->ndim || !spec->present;
        for (int d = 0; fits && spec->present && d < spec->ndim; d++) fits = tensor->shape[d] == spec->shape[d];
        if (!fits) return tn_fail(TN_BAD_SHAPE, "%s: the tensor for %s has another shape", c->name, c->outputs[i].name);
        if (spec->present && tn_type_from_dlpack(tensor->dtype) != spec->type) {
            return tn_fail(TN_BAD_TYPE, "%s: the tensor for %s has type %s, needs %s", c->name, c->outputs[i].name,
                           tn_type_name(tn_type_from_dlpack(tensor->dtype)), tn_type_name(spec->type));
        }
        t->out[i] = (tn_slot){run_set_view(t, TNI_MAX_ARGS + i, tensor), 1};
    }
    return TN_OK;
}

static inline tn_status run_program(const tni_fuse *f, tn_call *call) {
    tni_program *program;
    TN_TRY(tni_fuse_bind(f, call, &program));
    tn_block block = {0};
    size_t bytes = program->workspace;
    tn_status status = TN_OK;
    if (bytes) {
        block = call->host->alloc(call->host->context, call->device, bytes);
        call->workspace = block.data;
        if (!block.data) status = tn_fail(TN_NO_MEMORY, "%s: no memory for %zu bytes of workspace", call->name, bytes);
    }
    if (status == TN_OK) status = tni_program_run(program, call);
    if (block.data) call->host->release(call->host->context, call->device, block);
    tni_program_free(program);
    return status;
}

/* `?` outputs that are given are wanted. */
static inline tn_status run_check_wanted(const tni_fuse *f, const tn_args *args, run_tensors *t) {
    const tni_contract *c = f->contract;
    tn_attr attrs[2 * TNI_MAX_ARGS];
    int32_t n = 0;
    for (int i = 0; i < args->n_attrs && n < TNI_MAX_ARGS; i++) attrs[n++] = args->attrs[i];
    for (int i = 0; i < c->n_outputs && i < args->n_out; i++) {
        if (c->outputs[i].want_attr >= 0 && args->out[i]) {
            attrs[n++] = tn_attr_bool(c->attrs[c->outputs[i].want_attr].name, true);
        }
    }
    tn_args with = *args;
    with.attrs = attrs;
    with.n_attrs = n;
    return run_check(f, &with, t);
}

/* Everything at once: checks, binds and runs on the CPU. host NULL: the default one. */
static inline tn_status run_formula(const tni_fuse *f, const tn_args *args, const tn_host *host) {
    run_tensors *t = tni_calloc(1, sizeof *t);
    if (!t) return TN_NO_MEMORY;
    tn_status status = run_check_wanted(f, args, t);
    if (status == TN_OK) status = run_set_inputs(f, args, t);
    if (status == TN_OK) status = run_set_outputs(f, args, t);
    tn_call call = {.name = f->contract->name,
                    .in = t->in,
                    .out = t->out,
                    .attrs = t->bound.attrs,
                    .device = {TN_CPU, 0},
                    .host = host ? host : tn_default_host()};
    if (status == TN_OK) status = run_program(f, &call);
    tni_free(t);
    return status;
}

#endif
