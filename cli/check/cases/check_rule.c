/* Gradient rules, carried out. What a framework's adapter does with its own tensors is done here with arrays. */
#include "check_rule.h"
#include "core/table/table.h"

#include <string.h>

static int32_t tensor_of(const made_call *c, int32_t param) {
    for (int32_t i = 0; i < c->n_in; i++) {
        if (c->param[i] == param) return i;
    }
    return -1;
}

/* The array that a source names, or NULL where it is absent. */
static const array *source_array(const backward *b, const tni_source *s) {
    const array *a = NULL;
    if (s->kind == TNI_FROM_INPUT) {
        int32_t i = tensor_of(b->forward, s->ref);
        a = i >= 0 ? &b->forward->in[i] : NULL;
    } else if (s->kind == TNI_FROM_OUTPUT) {
        a = &b->forward->out[s->ref];
    } else if (s->kind == TNI_FROM_DOUTPUT) {
        a = &b->dout[s->ref];
    } else if (s->kind == TNI_FROM_LOCAL) {
        a = &b->locals[s->ref];
    }
    return a && a->count >= 0 ? a : NULL;
}

/* kind TN_ATTR_UNSET: nothing to pass on. */
static tn_value source_value(const backward *b, const tni_source *s) {
    switch (s->kind) {
    case TNI_FROM_ATTR: return b->bound->attrs[s->ref];
    case TNI_FROM_DIM: return (tn_value){.kind = TN_ATTR_INT, .i = b->bound->dims[s->ref]};
    case TNI_FROM_PACK:
        return (tn_value){
            .kind = TN_ATTR_INTS, .count = b->bound->packs[s->ref].ndim, .ints = b->bound->packs[s->ref].d};
    case TNI_FROM_LITERAL: return s->literal;
    default: return (tn_value){.kind = TN_ATTR_UNSET};
    }
}

static void add_attr(made_call *k, const char *name, tn_value value) {
    if (value.kind != TN_ATTR_UNSET) k->attrs[k->args.n_attrs++] = (tn_attr){name, value};
}

/* A gradient that did not arrive is 0 where the called operator insists on one. */
static tn_status add_zeros(const backward *b, made_call *k, const tni_source *s) {
    const array *like = &b->forward->out[s->ref];
    if (!array_make_zero(&k->in[k->n_in], like->type, like->tensor.ndim, like->shape)) return TN_NO_MEMORY;
    k->param[k->n_in++] = s->param;
    return TN_OK;
}

static tn_status add_inputs(const backward *b, made_call *k, const tni_statement *st) {
    const tni_contract *called = st->op->contract;
    for (int32_t param = 0; param < called->n_inputs; param++) {
        for (int32_t i = 0; i < st->n_sources; i++) {
            const tni_source *s = &st->sources[i];
            if (s->to_attr || s->param != param) continue;
            const array *a = source_array(b, s);
            if (a) {
                array_view(&k->in[k->n_in], a->type, a->tensor.ndim, a->shape, a->strides, a->tensor.data);
                k->param[k->n_in++] = param;
            } else if (s->kind == TNI_FROM_DOUTPUT && !called->inputs[param].optional) {
                TN_TRY(add_zeros(b, k, s));
            }
        }
    }
    for (int32_t i = 0; i < st->n_sources; i++) {
        const tni_source *s = &st->sources[i];
        if (s->to_attr) add_attr(k, called->attrs[s->param].name, source_value(b, s));
    }
    return TN_OK;
}

/* Is result r of the statement asked for: a local always, a gradient where the call has the input. */
static bool wanted(const backward *b, const tni_statement *st, int32_t r) {
    return r < st->n_results && (st->result_is_local || tensor_of(b->forward, st->results[r]) >= 0);
}

static bool has_kernel(const tn_function *op, const char *name) {
    for (const tn_kernel *k = op->row->kernels; name && k->name; k++) {
        if (strcmp(k->name, name) == 0) return true;
    }
    return false;
}

static tn_status run_statement(backward *b, const tni_statement *st) {
    const tni_contract *called = st->op->contract;
    made_call k = {.op = st->op, .n_out = called->n_outputs};
    k.in = tni_calloc((size_t)st->n_sources + 1, sizeof *k.in);
    k.out = tni_calloc((size_t)called->n_outputs + 1, sizeof *k.out);
    tn_status status = k.in && k.out ? TN_OK : TN_NO_MEMORY;
    for (int32_t o = 0; status == TN_OK && o < called->n_outputs; o++) {
        k.out[o].count = -1;
        int32_t want = called->outputs[o].want_attr;
        if (want >= 0) k.attrs[k.args.n_attrs++] = tn_attr_bool(called->attrs[want].name, wanted(b, st, o));
    }
    if (status == TN_OK) status = add_inputs(b, &k, st);
    if (status == TN_OK) status = call_outputs(&k, (call_options){0});
    k.args.kernel = has_kernel(st->op, b->kernel) ? b->kernel : NULL;
    if (status == TN_OK) status = call_run(&k, b->gpu, NULL);
    if (status == TN_UNSUPPORTED && k.args.kernel) { /* one that takes some calls; users get the next */
        k.args.kernel = NULL;
        status = call_run(&k, b->gpu, NULL);
    }
    for (int32_t r = 0; status == TN_OK && r < st->n_results; r++) {
        if (!wanted(b, st, r) || k.out[r].count < 0) continue;
        int32_t at = st->result_is_local ? st->results[r] : tensor_of(b->forward, st->results[r]);
        array_move(st->result_is_local ? &b->locals[at] : &b->din[at], &k.out[r]);
    }
    call_free(&k);
    return status;
}

static tn_status bind_forward(backward *b) {
    const made_call *f = b->forward;
    tni_operand operands[4 * TNI_MAX_ARGS];
    int32_t counts[TNI_MAX_ARGS] = {0};
    for (int32_t i = 0; i < f->n_in; i++) {
        operands[i] = (tni_operand){f->in[i].type, f->in[i].tensor.ndim, f->in[i].shape};
        counts[f->param[i]]++;
    }
    b->bound = tni_malloc(sizeof *b->bound);
    if (!b->bound) return TN_NO_MEMORY;
    tni_inputs inputs = {operands, counts};
    return tni_bind(f->op->contract, &inputs, f->attrs, f->args.n_attrs, b->bound, NULL);
}

tn_status backward_run(backward *b, const made_call *forward, const tni_rule *rule, const array *dout,
                       const char *kernel, mirror *gpu) {
    *b = (backward){.forward = forward, .rule = rule, .dout = dout, .kernel = kernel, .gpu = gpu};
    for (int32_t i = 0; i < TNI_MAX_ARGS; i++) b->locals[i].count = -1;
    for (int32_t i = 0; i < 4 * TNI_MAX_ARGS; i++) b->din[i].count = -1;
    tn_status status = bind_forward(b);
    for (int32_t s = 0; status == TN_OK && s < rule->n_statements; s++) {
        bool any = false;
        for (int32_t r = 0; r < rule->statements[s].n_results; r++) any |= wanted(b, &rule->statements[s], r);
        if (any) status = run_statement(b, &rule->statements[s]);
    }
    if (status != TN_OK) backward_free(b);
    return status;
}

void backward_free(backward *b) {
    for (int32_t i = 0; i < TNI_MAX_ARGS; i++) array_free(&b->locals[i]);
    for (int32_t i = 0; i < 4 * TNI_MAX_ARGS; i++) array_free(&b->din[i]);
    tni_free(b->bound);
    b->bound = NULL;
}
