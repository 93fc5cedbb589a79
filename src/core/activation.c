/* Attributes of type `activation`. Hand-written kernels have 'none' and 'relu' themselves. For any other one the operator
 * runs with 'none' into a tensor of values before the activation, and the activation's formula goes over those; an
 * operator that takes `z` and `dy` is a gradient, and its dy goes through the activation's own gradient first. */
#include "activation.h"

#include <string.h>

enum { MOST_INPUTS = TNI_MAX_ARGS };

/* ---- which ------------------------------------------------------------------------------------------------------- */

static bool has_defaults(const tni_contract *c) {
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (!c->attrs[i].has_default && !c->attrs[i].optional && !c->attrs[i].implied) return false;
    }
    return true;
}

/* One tensor of any shape, and one of the same shape and type made from it. */
bool tni_is_activation(const tn_operator *op) {
    const tni_contract *c = op->contract;
    if (!op->row->formula || c->n_inputs != 1 || c->n_outputs != 1 || !has_defaults(c)) return false;
    const tni_param *x = &c->inputs[0], *y = &c->outputs[0];
    bool packs = x->shape.count == 1 && y->shape.count == 1 && x->shape.cond < 0 && y->shape.cond < 0;
    if (!packs || x->list || x->inplace || x->optional || y->want != TNI_ALWAYS) return false;
    const tni_item *a = &c->items[x->shape.first], *b = &c->items[y->shape.first];
    bool alike = a->kind == TNI_ITEM_PACK && b->kind == TNI_ITEM_PACK && a->ref == b->ref && !a->broadcast;
    return alike && x->type.kind == TNI_TYPE_VAR && y->type.kind == TNI_TYPE_VAR && x->type.ref == y->type.ref &&
           x->type.wrap == y->type.wrap;
}

int16_t tni_activation_choice(const char *name) {
    if (strcmp(name, "none") == 0) return TNI_ACT_NONE;
    if (strcmp(name, "relu") == 0) return TNI_ACT_RELU;
    const tn_operator *op = tn_find(name);
    return op && tni_is_activation(op) ? (int16_t)(TNI_ACT_OTHER + op->index) : -1;
}

const char *tni_activation_name(int16_t choice) {
    if (choice < TNI_ACT_OTHER) return choice == TNI_ACT_RELU ? "relu" : "none";
    return tn_operator_name(tn_operator_at(choice - TNI_ACT_OTHER));
}

const char *tni_activation_near(const char *name) {
    const char *near = NULL;
    int least = 3; /* farther than this is another word */
    for (int i = 0; i < tn_operator_count(); i++) {
        const tn_operator *op = tn_operator_at(i);
        int distance = tni_is_activation(op) ? tni_edit_distance(name, op->contract->name, least) : least;
        if (distance >= least) continue;
        least = distance;
        near = op->contract->name;
    }
    return near;
}

/* The attribute's place among those given; -1: it has its default. */
static int32_t given_at(const tn_operator *op, const tn_args *args, int32_t attr) {
    for (int32_t i = 0; i < args->n_attrs && args->attrs; i++) {
        const tn_attr *a = &args->attrs[i];
        bool same = a->name ? strcmp(a->name, op->contract->attrs[attr].name) == 0 : i == attr;
        if (same && a->value.kind == TN_STR && a->value.s) return i;
    }
    return -1;
}

const tn_operator *tni_activation_asked(const tn_operator *op, const tn_args *args, int32_t *at) {
    int32_t attr = op->contract->activation;
    if (attr < 0 || op->row->formula) return NULL; /* formulas have all of them */
    *at = given_at(op, args, attr);
    const char *name = *at >= 0 ? args->attrs[*at].value.s : op->contract->attrs[attr].value.s;
    if (!name || strcmp(name, "none") == 0 || strcmp(name, "relu") == 0) return NULL;
    const tn_operator *found = tn_find(name);
    return found && tni_is_activation(found) ? found : NULL; /* else the call is refused in the usual way */
}

/* ---- a call with parts replaced ---------------------------------------------------------------------------------- */

typedef struct replaced {
    tn_args args;
    tn_attr attrs[2 * TNI_MAX_ARGS + 1];
    const tn_tensor *in[MOST_INPUTS];
    tn_tensor *out[TNI_MAX_ARGS];
} replaced;

/* The call with 'none' for its activation. */
static tn_status replace(const tn_operator *op, const tn_args *args, int32_t at, replaced *r) {
    const tni_contract *c = op->contract;
    if (args->n_in > MOST_INPUTS || args->n_attrs > 2 * TNI_MAX_ARGS || args->n_out > TNI_MAX_ARGS) {
        return tn_fail(TN_BAD_VALUE, "%s: too many arguments", c->name);
    }
    r->args = *args;
    for (int32_t i = 0; i < args->n_attrs; i++) r->attrs[i] = args->attrs[i];
    for (int32_t i = 0; i < args->n_in; i++) r->in[i] = args->in[i];
    for (int32_t i = 0; i < args->n_out && args->out; i++) r->out[i] = args->out[i];
    if (at < 0) {
        at = r->args.n_attrs++;
        r->attrs[at].name = c->attrs[c->activation].name;
    }
    r->attrs[at].value = (tn_value){.kind = TN_STR, .s = "none"};
    r->args.attrs = r->attrs;
    r->args.in = r->in;
    r->args.out = r->out;
    return TN_OK;
}

/* A tensor of the core's own for the time of a call. */
typedef struct passing {
    tn_tensor tensor;
    tn_block block;
    int64_t shape[TN_MAX_RANK], strides[TN_MAX_RANK];
} passing;

static void describe(tn_device device, tn_type type, int32_t ndim, const int64_t *shape, const int64_t *strides,
                     passing *p) {
    for (int32_t d = 0; d < ndim; d++) {
        p->shape[d] = shape[d];
        p->strides[d] = strides[d];
    }
    p->tensor = (tn_tensor){.device = device, .ndim = ndim, .dtype = tn_dtype_of(type), .shape = p->shape};
    p->tensor.strides = p->strides;
}

/* Memory for what was described; a call that is only prepared needs none. */
static tn_status borrow(const char *name, const tn_host *host, bool memory, passing *p) {
    size_t bytes = tn_type_size(tn_type_of(p->tensor.dtype));
    tn_device device = p->tensor.device;
    for (int32_t d = 0; d < p->tensor.ndim; d++) bytes *= (size_t)p->shape[d];
    if (!memory) return TN_OK;
    p->block = host->alloc(host->context, device, bytes ? bytes : 1);
    p->tensor.data = p->block.data;
    if (p->block.data) return TN_OK;
    return tn_fail(TN_NO_MEMORY, "%s: no memory for the values before its activation (%zu bytes)", name, bytes);
}

static void give_back(const tn_host *host, passing *p) {
    if (p->block.data) host->release(host->context, p->tensor.device, p->block);
}

static tn_device device_of(const tn_args *args) {
    for (int32_t i = 0; i < args->n_in; i++) {
        if (args->in[i]) return args->in[i]->device;
    }
    return (tn_device){TN_CPU, 0};
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

typedef struct forward {
    replaced call;
    tn_spec specs[TNI_MAX_ARGS];
    tn_tensor *y;
    passing before, made[TNI_MAX_ARGS]; /* made: of adapters, which own the memory and tell nothing but where it is */
} forward;

static tn_status find_outputs(const tn_operator *op, const tn_args *args, tni_make_output make, void *context,
                              forward *f) {
    const tni_contract *c = op->contract;
    TN_TRY(tn_infer(op, args, f->specs));
    for (int32_t i = 0; make && i < c->n_outputs; i++) {
        const tn_spec *spec = &f->specs[i];
        int64_t strides[TN_MAX_RANK];
        tn_tensor *made;
        f->call.out[i] = NULL;
        if (!spec->present) continue;
        tni_output_strides(op, args, i, spec, strides);
        TN_TRY(make(context, i, spec, strides, &made));
        describe(device_of(args), spec->type, spec->ndim, spec->shape, strides, &f->made[i]);
        f->call.out[i] = &f->made[i].tensor;
        f->made[i].tensor.data = made->data;
        f->made[i].tensor.byte_offset = made->byte_offset;
    }
    if (make) f->call.args.n_out = c->n_outputs;
    f->y = f->call.args.n_out > 0 ? f->call.out[0] : NULL;
    return TN_OK;
}

/* How both parts are run: for real, or prepared. */
typedef tn_status (*runner)(const tn_operator *op, const tn_args *args, const tn_host *host);

static bool fits(const tn_tensor *t, const tn_spec *spec) {
    bool same = t->ndim == spec->ndim && tn_type_of(t->dtype) == spec->type;
    for (int32_t d = 0; same && d < spec->ndim; d++) same = t->shape[d] == spec->shape[d];
    return same;
}

/* Where there is a z, that is where the values before the activation go. */
static tn_status run_forward(const tn_operator *op, const tn_operator *act, const tn_args *args, const tn_host *host,
                             runner run, forward *f) {
    int32_t z = tni_output_named(op->contract, "z");
    tn_tensor *before = z >= 0 && z < f->call.args.n_out ? f->call.out[z] : NULL;
    if (z >= 0) f->call.out[z] = NULL;
    if (f->y && !fits(f->y, &f->specs[0])) return run(op, &f->call.args, host); /* which says so */
    if (!before) {
        int64_t strides[TN_MAX_RANK];
        tni_output_strides(op, args, 0, &f->specs[0], strides);
        before = &f->before.tensor;
        describe(device_of(args), f->specs[0].type, f->specs[0].ndim, f->specs[0].shape, strides, &f->before);
        TN_TRY(borrow(op->contract->name, host, run == tn_run, &f->before));
    }
    if (f->call.args.n_out == 0) f->call.args.n_out = 1;
    f->call.out[0] = before;
    TN_TRY(run(op, &f->call.args, host));
    const tn_tensor *in[1] = {before};
    tn_tensor *out[1] = {f->y};
    tn_args last = {.in = in, .n_in = 1, .out = out, .n_out = 1};
    return f->y ? run(act, &last, host) : TN_OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

typedef struct backward {
    replaced call;
    passing dz, y;
} backward;

/* dz = the activation's gradient at z, for dy: by its rule, with y made again where that asks for it. */
static tn_status run_slope(const tn_operator *op, const tn_operator *act, const tn_tensor *z, const tn_tensor *dy,
                           const tn_host *host, runner run, backward *b) {
    const tni_rule *rule;
    TN_TRY(tni_operator_rule(act, &rule));
    if (!rule || rule->n_statements != 1) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s has no gradient", op->contract->name, act->contract->name);
    }
    const tni_statement *s = &rule->statements[0];
    const tn_tensor *in[TNI_MAX_ARGS] = {NULL};
    for (int32_t i = 0; i < s->n_sources; i++) {
        const tni_source *source = &s->sources[i];
        if (source->to_attr) continue; /* its default, which is the activation's own */
        in[source->param] = source->kind == TNI_FROM_INPUT ? z : source->kind == TNI_FROM_DOUTPUT ? dy : &b->y.tensor;
        if (source->kind != TNI_FROM_OUTPUT || b->y.block.data) continue;
        describe(z->device, tn_type_of(z->dtype), z->ndim, z->shape, b->dz.strides, &b->y);
        TN_TRY(borrow(op->contract->name, host, run == tn_run, &b->y));
        tn_tensor *y[1] = {&b->y.tensor};
        tn_args again = {.in = &z, .n_in = 1, .out = y, .n_out = 1};
        TN_TRY(run(act, &again, host));
    }
    tn_tensor *out[1] = {&b->dz.tensor};
    tn_args slope = {.in = in, .n_in = s->op->contract->n_inputs, .out = out, .n_out = 1};
    return run(s->op, &slope, host);
}

static tn_status run_backward(const tn_operator *op, const tn_operator *act, const tn_host *host, runner run,
                              backward *b) {
    int32_t z = tni_input_named(op->contract, "z"), dy = tni_input_named(op->contract, "dy");
    const tn_tensor *before = z < b->call.args.n_in ? b->call.in[z] : NULL,
                    *slope = dy < b->call.args.n_in ? b->call.in[dy] : NULL;
    bool fits = before && slope && before->ndim == slope->ndim && slope->ndim <= TN_MAX_RANK;
    for (int32_t d = 0; fits && d < slope->ndim; d++) fits = before->shape[d] == slope->shape[d];
    if (!fits) {
        return tn_fail(TN_BAD_VALUE, "%s: with '%s' it needs z, the values before the activation, in the shape of dy",
                       op->contract->name, act->contract->name);
    }
    int64_t strides[TN_MAX_RANK];
    tni_dense_strides(slope->ndim, slope->shape, strides);
    bool permuted = slope->strides && tni_is_permuted_dense(slope->ndim, slope->shape, slope->strides);
    describe(slope->device, tn_type_of(slope->dtype), slope->ndim, slope->shape, permuted ? slope->strides : strides,
             &b->dz);
    TN_TRY(borrow(op->contract->name, host, run == tn_run, &b->dz));
    TN_TRY(run_slope(op, act, before, slope, host, run, b));
    b->call.in[dy] = &b->dz.tensor;
    b->call.in[z] = NULL;
    return TN_OK;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static bool is_gradient(const tn_operator *op) {
    return tni_input_named(op->contract, "z") >= 0 && tni_input_named(op->contract, "dy") >= 0;
}

static tn_status go_backward(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                             const tn_host *host, tni_make_output make, void *context, runner run) {
    backward *b = tni_calloc(1, sizeof *b);
    if (!b) return TN_NO_MEMORY;
    tn_status status = replace(op, args, at, &b->call);
    if (status == TN_OK) status = run_backward(op, act, host, run, b);
    if (status == TN_OK) {
        status = make ? tni_call_alloc(op, &b->call.args, host, make, context) : run(op, &b->call.args, host);
    }
    give_back(host, &b->dz);
    give_back(host, &b->y);
    tni_free(b);
    return status;
}

static tn_status go_forward(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                            const tn_host *host, tni_make_output make, void *context, runner run) {
    forward *f = tni_calloc(1, sizeof *f);
    if (!f) return TN_NO_MEMORY;
    tn_status status = replace(op, args, at, &f->call);
    if (status == TN_OK) status = find_outputs(op, args, make, context, f);
    if (status == TN_OK) status = run_forward(op, act, args, host, run, f);
    give_back(host, &f->before);
    tni_free(f);
    return status;
}

tn_status tni_activated_run(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                            const tn_host *host, tni_make_output make, void *context, bool only_prepare) {
    runner run = only_prepare ? tn_prepare : tn_run;
    if (!host) host = tn_default_host();
    return (is_gradient(op) ? go_backward : go_forward)(op, act, args, at, host, make, context, run);
}

tn_status tni_activated_explain(const tn_operator *op, const tn_operator *act, const tn_args *args, int32_t at,
                                const char **kernel, tn_cost *cost) {
    replaced *r = tni_calloc(1, sizeof *r);
    if (!r) return TN_NO_MEMORY;
    tn_status status = replace(op, args, at, r);
    int32_t z = is_gradient(op) ? -1 : tni_output_named(op->contract, "z");
    if (z >= 0) r->out[z] = NULL;
    if (status == TN_OK) status = tn_explain(op, &r->args, kernel, cost);
    const tn_tensor *like = is_gradient(op) ? r->in[tni_input_named(op->contract, "dy")] : r->out[0];
    tn_cost more = {0, 0};
    if (status == TN_OK && cost && like) {
        tn_tensor *out[1] = {(tn_tensor *)(uintptr_t)like};
        tn_args one = {.in = &like, .n_in = 1, .out = out, .n_out = 1};
        status = tn_explain(act, &one, NULL, &more);
        cost->bytes += more.bytes;
        cost->flops += more.flops;
    }
    tni_free(r);
    return status;
}
