/* Attributes of type `activation`. Hand-written kernels have 'none' and 'relu' themselves. A call that asks for another
 * one is planned like any other, but its kernel is the one made here, which runs other operators: the same one with
 * 'none' into a tensor of values before the activation, then the activation's formula over those. An operator that
 * takes `z` and `dy` is a gradient: its dy goes through the activation's own gradient first. */
#include "activation.h"
#include "core/contract/parts.h"
#include "core/host/arith.h"
#include "core/layout/layout.h"
#include "run.h"

#include <string.h>

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

typedef struct activated {
    tn_kernel rows[2]; /* kernels of the call: this one */
    const tn_function *op, *act;
    const char *wanted; /* kernel of the operator; NULL: any */
    size_t step_bytes;  /* the most that a step needs for itself, behind the tensors between the steps */
} activated;

enum { MOST_STEPS = 3 };

/* The calls that one is made of. */
typedef struct steps {
    int32_t count;
    struct {
        const tn_function *op;
        tn_args args;
    } step[MOST_STEPS];
    const tn_tensor *in[TNI_MAX_ARGS], *slope_in[TNI_MAX_ARGS], *z;
    tn_tensor *out[TNI_MAX_ARGS], *y_out, *dz_out;
    tn_attr attrs[TNI_MAX_ARGS];
    tn_tensor tensors[2 * TNI_MAX_ARGS], before, y, dz; /* what the others point to */
    int64_t strides[TN_MAX_RANK];
    size_t borrowed; /* bytes of the workspace so far */
} steps;

static void add_step(steps *s, const tn_function *op, tn_args args) {
    s->step[s->count].op = op;
    s->step[s->count++].args = args;
}

tn_tensor tni_tensor_of(const tn_call *call, const tn_view *v) {
    return (tn_tensor){.data = v->data,
                       .device = call->device,
                       .ndim = v->ndim,
                       .dtype = tn_type_to_dlpack(v->type),
                       .shape = (int64_t *)v->shape,
                       .strides = (int64_t *)v->strides};
}

/* A tensor like this one, dense in the same order of dimensions, in the workspace. */
static tn_tensor borrow(const tn_call *call, const tn_tensor *like, steps *s) {
    tn_tensor t = *like;
    size_t bytes = tn_type_size(tn_type_from_dlpack(t.dtype));
    for (int32_t d = 0; d < t.ndim; d++) bytes *= (size_t)t.shape[d];
    if (!tni_is_permuted_dense(t.ndim, t.shape, t.strides)) {
        tni_dense_strides(t.ndim, t.shape, s->strides);
        t.strides = s->strides;
    }
    t.data = call->workspace ? (char *)call->workspace + s->borrowed : NULL;
    s->borrowed += (size_t)round_up((int64_t)bytes, 64);
    return t;
}

/* The operator's own call, with 'none'. */
static tn_status own_call(const tn_call *call, const activated *a, steps *s, tn_args *args) {
    const tni_contract *c = a->op->contract;
    int32_t n = 0, n_attrs = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].list) {
            return tn_fail(TN_UNSUPPORTED, "%s: %s is a list, so %s can be 'none' or 'relu' only", c->name,
                           c->inputs[i].name, c->attrs[c->activation].name);
        }
        const tn_view *v = tn_in(call, i);
        s->in[i] = v ? &s->tensors[n] : NULL;
        if (v) s->tensors[n++] = tni_tensor_of(call, v);
    }
    for (int32_t o = 0; o < c->n_outputs; o++) {
        const tn_view *v = tn_out(call, o);
        s->out[o] = v ? &s->tensors[n] : NULL;
        if (v) s->tensors[n++] = tni_tensor_of(call, v);
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (c->attrs[i].implied || call->attrs[i].kind == TN_ATTR_UNSET) continue;
        s->attrs[n_attrs++] = i == c->activation ? tn_attr_str(c->attrs[i].name, "none")
                                                 : (tn_attr){c->attrs[i].name, call->attrs[i]};
    }
    *args = (tn_args){.in = s->in, .n_in = c->n_inputs, .out = s->out, .n_out = c->n_outputs, .kernel = a->wanted};
    args->attrs = s->attrs;
    args->n_attrs = n_attrs;
    return TN_OK;
}

/* Where there is a z, that is where the values before the activation go. */
static tn_status forward_steps(const tn_call *call, const activated *a, steps *s) {
    tn_args args;
    TN_TRY(own_call(call, a, s, &args));
    int32_t z = tni_output_named(a->op->contract, "z");
    bool given = z >= 0 && s->out[z];
    s->before = given ? *s->out[z] : borrow(call, s->out[0], s);
    if (given) s->out[z] = NULL;
    s->y_out = s->out[0];
    s->out[0] = &s->before;
    s->z = &s->before;
    add_step(s, a->op, args);
    add_step(s, a->act, (tn_args){.in = &s->z, .n_in = 1, .out = &s->y_out, .n_out = 1});
    return TN_OK;
}

/* dz = the activation's gradient at z, for dy: by its rule, with y made again where that asks for it. */
static tn_status slope_steps(const tn_call *call, const activated *a, const tn_tensor *dy, steps *s) {
    const tni_rule *rule;
    TN_TRY(tni_operator_rule(a->act, &rule));
    if (!rule || rule->n_statements != 1) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s has no gradient", a->op->contract->name, a->act->contract->name);
    }
    const tni_statement *statement = &rule->statements[0];
    for (int32_t i = 0; i < statement->n_sources; i++) {
        const tni_source *source = &statement->sources[i];
        if (source->to_attr) continue; /* its default, which is the activation's own */
        const tn_tensor **to = &s->slope_in[source->param];
        *to = source->kind == TNI_FROM_INPUT ? s->z : source->kind == TNI_FROM_DOUTPUT ? dy : &s->y;
        if (*to != &s->y || s->y_out) continue;
        s->y = borrow(call, &s->dz, s);
        s->y_out = &s->y;
        add_step(s, a->act, (tn_args){.in = &s->z, .n_in = 1, .out = &s->y_out, .n_out = 1});
    }
    int32_t n = statement->op->contract->n_inputs;
    s->dz_out = &s->dz;
    add_step(s, statement->op, (tn_args){.in = s->slope_in, .n_in = n, .out = &s->dz_out, .n_out = 1});
    return TN_OK;
}

static tn_status backward_steps(const tn_call *call, const activated *a, int32_t z, int32_t dy, steps *s) {
    tn_args args;
    TN_TRY(own_call(call, a, s, &args));
    if (!s->in[z]) {
        return tn_fail(TN_BAD_VALUE, "%s: with '%s' it needs z, the values before the activation",
                       a->op->contract->name, a->act->contract->name);
    }
    s->z = s->in[z];
    s->dz = borrow(call, s->in[dy], s);
    TN_TRY(slope_steps(call, a, s->in[dy], s));
    s->in[dy] = &s->dz;
    s->in[z] = NULL;
    add_step(s, a->op, args);
    return TN_OK;
}

static tn_status find_steps(const tn_call *call, steps *s) {
    const activated *a = call->kernel->data;
    int32_t z = tni_input_named(a->op->contract, "z"), dy = tni_input_named(a->op->contract, "dy");
    return z >= 0 && dy >= 0 ? backward_steps(call, a, z, dy, s) : forward_steps(call, a, s);
}

/* Plans the steps, and takes over the name of the kernel that the operator itself will run. */
static tn_status prepare_steps(const tn_call *call, void **state) {
    activated *a = (activated *)call->kernel->data;
    steps s = {0};
    (void)state;
    TN_TRY(find_steps(call, &s));
    for (int32_t i = 0; i < s.count; i++) {
        const char *name;
        size_t bytes;
        TN_TRY(tn_explain(s.step[i].op, &s.step[i].args, &name, NULL));
        TN_TRY(tn_workspace(s.step[i].op, &s.step[i].args, &bytes));
        if (s.step[i].op == a->op) a->rows[0].name = name;
        if (bytes > a->step_bytes) a->step_bytes = bytes;
    }
    return TN_OK;
}

static size_t steps_bytes(const tn_call *call) {
    const activated *a = call->kernel->data;
    steps s = {0};
    return find_steps(call, &s) == TN_OK ? s.borrowed + a->step_bytes : 0; /* it was, in prepare */
}

static tn_status run_steps(const tn_call *call, void *state) {
    const activated *a = call->kernel->data;
    steps s = {0};
    (void)state;
    TN_TRY(find_steps(call, &s));
    char *behind = call->workspace ? (char *)call->workspace + s.borrowed : NULL;
    for (int32_t i = 0; i < s.count; i++) {
        tni_scratch own;
        const tn_host *host = tni_scratch_init(&own, call->host, behind, a->step_bytes);
        TN_TRY(tn_run(s.step[i].op, &s.step[i].args, host));
    }
    return TN_OK;
}

tn_status tni_activated_kernels(tni_arena *arena, const tn_function *op, const tn_call *call, const char *wanted,
                                const tn_kernel **kernels) {
    int32_t attr = op->contract->activation;
    if (attr < 0 || op->row->formula || call->attrs[attr].choice < TNI_ACT_OTHER) return TN_OK; /* formulas have all */
    activated *a = tni_arena_alloc(arena, sizeof *a);
    if (!a) return TN_NO_MEMORY;
    if (wanted && !(wanted = tni_arena_text(arena, wanted, strlen(wanted)))) return TN_NO_MEMORY;
    a->op = op;
    a->act = tn_function_at(call->attrs[attr].choice - TNI_ACT_OTHER);
    a->wanted = wanted;
    /* Each step looks after what its own tensors share, and none reads what an earlier one wrote but for that. */
    a->rows[0] = (tn_kernel){.name = wanted ? wanted : "steps",
                             .device = (tn_device_kind)call->device.kind,
                             .flags = TN_STRIDED | TN_ALIAS,
                             .workspace = steps_bytes,
                             .prepare = prepare_steps,
                             .run = run_steps,
                             .data = a};
    *kernels = a->rows;
    return TN_OK;
}
