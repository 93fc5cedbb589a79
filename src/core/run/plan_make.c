/* Making a plan: the tensors of a call read and checked, the contract bound, outputs compared, a kernel chosen.
 * Everything that a user can get wrong about a call is said here or in tni_bind, never in a kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activation.h"
#include "core/host/status.h"
#include "core/layout/layout.h"
#include "plan.h"
#include "run.h"
#include "watch.h"

/* A call as it is being read: what tni_bind wants. */
typedef struct reading {
    const tn_function *op;
    const tn_args *args;
    int32_t counts[TNI_MAX_ARGS];
    int32_t n_tensors; /* present inputs */
    tni_operand *operands;
    const tn_tensor **tensors;
    tn_attr *attrs;
    int32_t n_attrs;
    tn_device device;
    const tni_device_ops *ops; /* of the device */
    const char *device_of;     /* the argument that set it; NULL: none yet */
} reading;

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static tn_status read_device(reading *r, const char *arg, tn_device device) {
    const char *name = r->op->contract->name;
    const tni_device_ops *ops = tni_device_of(device.kind);
    char here[TNI_DEVICE_TEXT], there[TNI_DEVICE_TEXT], all[TNI_DEVICES_TEXT];
    if (!ops) {
        tni_device_print(here, device);
        tni_device_print_all(all);
        return tn_fail(TN_BAD_DEVICE, "%s: %s is on %s (DLPack's numbers); Tenon runs on %s", name, arg, here, all);
    }
    if (ops->single) device.index = 0;
    if (!r->device_of) {
        r->device_of = arg;
        r->device = device;
        r->ops = ops;
    } else if (device.kind != r->device.kind || device.index != r->device.index) {
        tni_device_print(here, device);
        tni_device_print(there, r->device);
        return tn_fail(TN_BAD_DEVICE, "%s: %s is on %s, but %s is on %s", name, arg, here, r->device_of, there);
    }
    return TN_OK;
}

/* unknown: sizes and ranks of -1 are allowed. */
static tn_status read_tensor(reading *r, const char *arg, const tn_tensor *t, bool unknown, tni_operand *operand) {
    const char *name = r->op->contract->name;
    if (t->ndim > TN_MAX_RANK) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has rank %d, Tenon takes at most %d", name, arg, t->ndim, TN_MAX_RANK);
    }
    if (t->ndim < 0 && !(unknown && t->ndim == -1)) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s has a negative rank (%d)", name, arg, t->ndim);
    }
    if (t->ndim > 0 && !t->shape) return tn_fail(TN_BAD_SHAPE, "%s: %s has no shape (NULL)", name, arg);
    for (int32_t d = 0; d < t->ndim; d++) {
        if (t->shape[d] >= 0 || (unknown && t->shape[d] == -1)) continue;
        return tn_fail(TN_BAD_SHAPE, "%s: dimension %d of %s has the negative size %lld", name, d, arg,
                       (long long)t->shape[d]);
    }
    bool typeless = t->dtype.code == 0 && t->dtype.bits == 0; /* how tn_infer says "not known yet" */
    static const int64_t nothing; /* for single numbers without a shape: there may be 0 added to it */
    *operand = (tni_operand){tn_type_from_dlpack(t->dtype), t->ndim, t->shape ? t->shape : &nothing};
    if (operand->type == TN_NO_TYPE && !(unknown && typeless)) {
        static const char *const families[] = {"int", "uint",   "float",
                                               NULL,  "bfloat", "complex"}; /* by DLPack's code */
        const char *family = t->dtype.code < sizeof families / sizeof *families ? families[t->dtype.code] : NULL;
        if (family && t->dtype.lanes == 1)
            return tn_fail(TN_BAD_TYPE, "%s: %s has type %s%d, which Tenon does not have", name, arg, family,
                           t->dtype.bits);
        return tn_fail(TN_BAD_TYPE, "%s: %s has an element type that Tenon lacks (DLPack code %d, %d bits, %d lanes)",
                       name, arg, t->dtype.code, t->dtype.bits, t->dtype.lanes);
    }
    return read_device(r, arg, t->device);
}

/* How many of args->in belong to each input. */
static tn_status read_counts(reading *r) {
    const tni_contract *c = r->op->contract;
    const tn_args *args = r->args;
    if (args->n_in < 0 || (args->n_in > 0 && !args->in)) {
        return tn_fail(TN_BAD_VALUE, "%s: the array of inputs is NULL or has a negative length", c->name);
    }
    if (c->has_lists && !args->lengths) {
        return tn_fail(TN_BAD_VALUE, "%s: takes lists of tensors, so args.lengths must say how long each is", c->name);
    }
    int64_t total = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        r->counts[i] = args->lengths ? args->lengths[i] : total < args->n_in;
        if (r->counts[i] < 0 || (!c->inputs[i].list && r->counts[i] > 1)) {
            return tn_fail(TN_BAD_VALUE, "%s: %s cannot have %d tensors", c->name, c->inputs[i].name, r->counts[i]);
        }
        total += r->counts[i];
    }
    if (total == args->n_in) return TN_OK;
    if (args->lengths) {
        return tn_fail(TN_BAD_VALUE, "%s: args.lengths adds up to %lld, but there are %d inputs", c->name,
                       (long long)total, args->n_in);
    }
    return tn_fail(TN_BAD_VALUE, "%s: takes at most %d tensors, got %d", c->name, c->n_inputs, args->n_in);
}

static tn_status read_inputs(reading *r, tni_arena *arena, bool unknown) {
    const tni_contract *c = r->op->contract;
    TN_TRY(read_counts(r));
    r->operands = tni_arena_alloc(arena, (size_t)r->args->n_in * sizeof *r->operands);
    r->tensors = tni_arena_alloc(arena, (size_t)r->args->n_in * sizeof *r->tensors);
    if (!r->operands || !r->tensors) return TN_NO_MEMORY;
    const tn_tensor *const *next = r->args->in;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        int32_t given = r->counts[i];
        for (int32_t k = 0; k < given; k++) {
            const tn_tensor *t = *next++;
            if (!t && c->inputs[i].list) {
                return tn_fail(TN_BAD_VALUE, "%s: tensor %d of %s is missing (NULL)", c->name, k, c->inputs[i].name);
            }
            if (!t) {
                r->counts[i] = 0;
                continue;
            }
            TN_TRY(read_tensor(r, c->inputs[i].name, t, unknown, &r->operands[r->n_tensors]));
            r->tensors[r->n_tensors++] = t;
        }
    }
    return TN_OK;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Attributes by name; with outputs given, whether a `?` output is wanted follows from them. */
static tn_status read_attrs(reading *r, tni_arena *arena, bool outputs) {
    const tni_contract *c = r->op->contract;
    const tn_args *args = r->args;
    if (args->n_attrs < 0 || args->n_attrs > 4 * TNI_MAX_ARGS || (args->n_attrs && !args->attrs)) {
        return tn_fail(TN_BAD_VALUE, "%s: the array of attributes is NULL or has a wrong length", c->name);
    }
    r->attrs = tni_arena_alloc(arena, (size_t)(args->n_attrs + c->n_outputs) * sizeof *r->attrs);
    if (!r->attrs) return TN_NO_MEMORY;
    for (int32_t i = 0; i < args->n_attrs; i++) {
        tn_attr a = args->attrs[i];
        if (!a.name && i >= c->n_attrs) return tn_fail(TN_BAD_VALUE, "%s: too many attributes", c->name);
        if (!a.name) a.name = c->attrs[i].name;
        if (a.value.kind != TN_ATTR_UNSET) r->attrs[r->n_attrs++] = a;
    }
    for (int32_t o = 0; outputs && o < c->n_outputs; o++) {
        if (c->outputs[o].want_attr < 0) continue;
        const char *name = c->attrs[c->outputs[o].want_attr].name;
        bool wanted = o < args->n_out && args->out[o];
        int32_t at = 0;
        while (at < r->n_attrs && strcmp(r->attrs[at].name, name) != 0) at++;
        r->attrs[at] = tn_attr_bool(name, wanted);
        if (at == r->n_attrs) r->n_attrs++;
    }
    return TN_OK;
}

tn_attr tn_attr_int(const char *name, int64_t value) {
    return (tn_attr){name, {.kind = TN_ATTR_INT, .i = value}};
}
tn_attr tn_attr_float(const char *name, double value) {
    return (tn_attr){name, {.kind = TN_ATTR_FLOAT, .f = value}};
}
tn_attr tn_attr_bool(const char *name, bool value) {
    return (tn_attr){name, {.kind = TN_ATTR_BOOL, .b = value}};
}
tn_attr tn_attr_str(const char *name, const char *value) {
    return (tn_attr){name, {.kind = TN_ATTR_STR, .s = value}};
}
tn_attr tn_attr_type(const char *name, tn_type value) {
    return (tn_attr){name, {.kind = TN_ATTR_TYPE, .type = value}};
}
tn_attr tn_attr_ints(const char *name, const int64_t *values, int32_t count) {
    return (tn_attr){name, {.kind = TN_ATTR_INTS, .count = count, .ints = values}};
}

/* ---- inference --------------------------------------------------------------------------------------------------- */

static tn_status read_call(reading *r, tni_arena *arena, bool unknown, bool outputs, tni_bound *bound, tn_spec *specs) {
    TN_TRY(read_inputs(r, arena, unknown));
    TN_TRY(read_attrs(r, arena, outputs));
    tni_inputs inputs = {r->operands, r->counts};
    return tni_bind(r->op->contract, &inputs, r->attrs, r->n_attrs, bound, specs);
}

tn_status tni_check_call(const char *wanted, const tn_function *op, const tn_args *args) {
    if (!op || !args) {
        return tn_fail(TN_BAD_VALUE, "%s: the %s NULL", wanted, !op ? "operator is" : "arguments are");
    }
    for (int32_t i = 0; args->attrs && i < args->n_attrs; i++) {
        if (args->attrs[i].name) continue;
        return tn_fail(TN_BAD_VALUE, "%s: attribute %d has no name (NULL)", op->contract->name, i);
    }
    return TN_OK;
}

tn_status tn_infer(const tn_function *op, const tn_args *args, tn_spec *specs) {
    TN_TRY(tni_check_call("tn_infer", op, args));
    if (!specs) return tn_fail(TN_BAD_VALUE, "tn_infer: the array for the results is NULL");
    return tni_infer(op, args, specs);
}

tn_status tni_infer(const tn_function *op, const tn_args *args, tn_spec *specs) {
    tni_arena *arena = tni_arena_new();
    if (!arena) return TN_NO_MEMORY;
    tni_bound bound;
    reading r = {.op = op, .args = args};
    tn_status status = read_call(&r, arena, true, false, &bound, specs);
    tni_arena_free(arena);
    return status;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static void print_shape(char text[192], int32_t ndim, const int64_t *shape) {
    size_t at = (size_t)snprintf(text, 192, "(");
    for (int32_t d = 0; d < ndim && at < 160; d++) {
        at += (size_t)snprintf(text + at, 192 - at, d ? ", %lld" : "%lld", (long long)shape[d]);
    }
    snprintf(text + at, 192 - at, ")");
}

static tn_status check_output(reading *r, const char *arg, const tn_tensor *t, const tn_spec *spec) {
    const char *name = r->op->contract->name;
    tni_operand got;
    TN_TRY(read_tensor(r, arg, t, false, &got));
    if (got.type != spec->type) {
        return tn_fail(TN_BAD_TYPE, "%s: %s is %s, needs %s", name, arg, tn_type_name(got.type),
                       tn_type_name(spec->type));
    }
    bool same = got.ndim == spec->ndim;
    for (int32_t d = 0; same && d < got.ndim; d++) same = got.shape[d] == spec->shape[d];
    if (same) return TN_OK;
    char has[192], needs[192];
    print_shape(has, got.ndim, got.shape);
    print_shape(needs, spec->ndim, spec->shape);
    return tn_fail(TN_BAD_SHAPE, "%s: %s has shape %s, needs %s", name, arg, has, needs);
}

/* Whether an input and an output have the same dimensions as written; the input's may broadcast to them. */
static bool same_shape(const tni_contract *c, const tni_param *a, const tni_param *b) {
    if (a->list || b->list || a->shape.cond >= 0 || b->shape.cond >= 0) return false;
    if (a->shape.count != b->shape.count) return false;
    for (int32_t i = 0; i < a->shape.count; i++) {
        const tni_item *x = &c->items[a->shape.first + i], *y = &c->items[b->shape.first + i];
        if (x->kind != y->kind || y->broadcast) return false;
        if (x->kind == TNI_ITEM_PACK) {
            if (x->ref != y->ref) return false;
        } else if (x->kind == TNI_ITEM_EXPR) {
            const tni_node *p = &c->nodes[x->node], *q = &c->nodes[y->node];
            if (p->kind != TNI_DIM || q->kind != TNI_DIM || p->ref != q->ref) return false;
        } else {
            return false;
        }
    }
    return true;
}

/* The first input that has an output's dimensions as written, and all of them; NULL: none has. */
static const tn_tensor *tensor_like(const tni_contract *c, const tn_args *args, int32_t output, const tn_spec *spec) {
    for (int32_t i = 0, at = 0; i < c->n_inputs && at < args->n_in; i++) {
        const tn_tensor *t = args->in[at];
        bool same = (!args->lengths || args->lengths[i] == 1) && t && t->ndim == spec->ndim &&
                    same_shape(c, &c->inputs[i], &c->outputs[output]);
        for (int32_t d = 0; same && d < spec->ndim; d++) same = t->shape[d] == spec->shape[d];
        if (same) return t;
        at += args->lengths ? args->lengths[i] : 1;
    }
    return NULL;
}

void tni_output_strides(const tn_function *op, const tn_args *args, int32_t output, const tn_spec *spec,
                        int64_t *strides) {
    const tn_tensor *like = tensor_like(op->contract, args, output, spec);
    if (like && like->strides && tni_is_permuted_dense(like->ndim, like->shape, like->strides)) {
        memcpy(strides, like->strides, (size_t)like->ndim * sizeof *strides);
    } else {
        tni_dense_strides(spec->ndim, spec->shape, strides);
    }
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* Bytes that the view reaches, before and after its first element. */
static tn_status measure(const char *name, const char *arg, tni_slot *slot) {
    const tn_view *v = &slot->view;
    int64_t low = 0, high = 0, size = (int64_t)tn_type_size(v->type);
    bool overflow = false, empty = false;
    for (int32_t d = 0; d < v->ndim; d++) {
        int64_t reach;
        empty |= v->shape[d] == 0;
        if (v->shape[d] == 0) continue;
        overflow |= __builtin_mul_overflow(v->shape[d] - 1, v->strides[d], &reach);
        overflow |= __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
    }
    overflow |= __builtin_add_overflow(high, 1, &high) || __builtin_mul_overflow(high, size, &high);
    overflow |= __builtin_mul_overflow(low, size, &low);
    if (overflow && !empty) return tn_fail(TN_BAD_SHAPE, "%s: the strides of %s reach past 2^63 bytes", name, arg);
    slot->low = empty ? 0 : low;
    slot->high = empty ? 0 : high;
    return TN_OK;
}

/* Whether two elements of a tensor may share memory; from the smallest stride up, each must step over all before it. */
static bool overlaps_itself(const tn_view *v) {
    bool taken[TN_MAX_RANK] = {false};
    int64_t reach = 0;
    for (int32_t step = 0; step < v->ndim; step++) {
        int32_t best = -1;
        for (int32_t d = 0; d < v->ndim; d++) {
            if (v->shape[d] == 0) return false;
            if (taken[d]) continue;
            if (best < 0 || llabs(v->strides[d]) < llabs(v->strides[best])) best = d;
        }
        taken[best] = true;
        if (v->shape[best] == 1) continue;
        if (llabs(v->strides[best]) <= reach) return true;
        reach += (v->shape[best] - 1) * llabs(v->strides[best]);
    }
    return false;
}

/* Shape and strides of a tensor seen as `full`, missing and single dimensions repeated with stride 0. */
static tn_status fill_slot(tni_plan *plan, tni_slot *slot, const char *arg, tn_type type, const tni_dims *full,
                           const tni_operand *operand, const int64_t *strides) {
    size_t n = (size_t)full->ndim;
    int64_t *numbers = tni_arena_alloc(plan->arena, 3 * (n ? n : 1) * sizeof *numbers);
    if (!numbers) return TN_NO_MEMORY;
    int64_t *shape = numbers, *view = numbers + n, *dense = numbers + 2 * n, own[TN_MAX_RANK];
    tni_dense_strides(operand->ndim, operand->shape, own);
    if (!strides) strides = own;
    int32_t lead = full->ndim - operand->ndim;
    for (int32_t d = 0; d < full->ndim; d++) {
        bool repeated = d < lead || (operand->shape[d - lead] == 1 && full->d[d] != 1);
        shape[d] = full->d[d];
        view[d] = repeated ? 0 : strides[d - lead];
    }
    tni_dense_strides(full->ndim, shape, dense);
    slot->view = (tn_view){NULL, shape, view, full->ndim, type};
    slot->dense = dense;
    TN_TRY(measure(plan->op->contract->name, arg, slot));
    if (slot->written && !slot->dropped && overlaps_itself(&slot->view)) {
        return tn_fail(TN_BAD_VALUE,
                       "%s: %s is written, but some of its elements share memory (stride 0 or overlapping)",
                       plan->op->contract->name, arg);
    }
    return TN_OK;
}

static tn_status fill_inputs(tni_plan *plan, const reading *r, const tni_bound *bound) {
    const tni_contract *c = plan->op->contract;
    int32_t at = 0;
    for (int32_t i = 0; i < c->n_inputs; i++) {
        plan->in[i] = (tn_slot){plan->views + at, r->counts[i]};
        for (int32_t k = 0; k < r->counts[i]; k++, at++) {
            tni_slot *slot = &plan->slots[at];
            tni_dims full;
            TN_TRY(tni_input_shape(c, bound, i, &r->operands[at], &full));
            *slot = (tni_slot){.param = i, .written = c->inputs[i].inplace};
            TN_TRY(fill_slot(plan, slot, c->inputs[i].name, r->operands[at].type, &full, &r->operands[at],
                             r->tensors[at]->strides));
        }
    }
    plan->n_slots = at;
    return TN_OK;
}

static tn_status fill_outputs(tni_plan *plan, reading *r, bool made) {
    const tni_contract *c = plan->op->contract;
    const tn_args *args = r->args;
    for (int32_t o = 0; o < c->n_outputs; o++) {
        const tn_spec *spec = &plan->specs[o];
        const tn_tensor *t = !made && o < args->n_out ? args->out[o] : NULL;
        if (c->outputs[o].list) {
            return tn_fail(TN_UNSUPPORTED, "%s: output '%s' is a list; operators can write to lists, not return them",
                           c->name, c->outputs[o].name);
        }
        plan->out[o] = (tn_slot){plan->views + plan->n_slots, spec->present};
        if (!spec->present) continue;
        if (t) TN_TRY(check_output(r, c->outputs[o].name, t, spec));
        tni_output_strides(plan->op, args, o, spec, plan->strides[o]);
        tni_slot *slot = &plan->slots[plan->n_slots++];
        *slot = (tni_slot){.param = o, .is_output = true, .written = true, .dropped = !made && !t};
        tni_dims full = {.ndim = spec->ndim};
        memcpy(full.d, spec->shape, sizeof full.d);
        tni_operand operand = {spec->type, spec->ndim, spec->shape};
        const int64_t *strides = made ? plan->strides[o] : t ? t->strides : NULL;
        TN_TRY(fill_slot(plan, slot, c->outputs[o].name, spec->type, &full, &operand, strides));
    }
    return TN_OK;
}

/* Attribute values with memory of their own. */
static tn_status keep_attrs(tni_plan *plan, const tni_bound *bound) {
    for (int32_t a = 0; a < plan->op->contract->n_attrs; a++) {
        tn_value v = bound->attrs[a];
        if (v.kind == TN_ATTR_STR) {
            v.s = tni_arena_text(plan->arena, v.s, strlen(v.s));
            if (!v.s) return TN_NO_MEMORY;
        } else if (v.kind == TN_ATTR_INTS) {
            int64_t *ints = tni_arena_alloc(plan->arena, (size_t)(v.count ? v.count : 1) * sizeof *ints);
            if (!ints) return TN_NO_MEMORY;
            if (v.count) memcpy(ints, v.ints, (size_t)v.count * sizeof *ints);
            v.ints = ints;
        }
        plan->attrs[a] = v;
    }
    return TN_OK;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

tn_call tni_plan_call(const tni_plan *plan) {
    return (tn_call){.name = plan->op->contract->name,
                     .in = plan->in,
                     .out = plan->out,
                     .attrs = plan->attrs,
                     .device = plan->device,
                     .host = tn_default_host(),
                     .kernel = plan->kernel,
                     .state = plan->state};
}

/* Lays the views out as this kernel wants them. */
static void lay_out(tni_plan *plan, const tn_kernel *kernel) {
    for (int32_t i = 0; i < plan->n_slots; i++) {
        const tni_slot *slot = &plan->slots[i];
        plan->views[i] = slot->view;
        if (slot->dropped || !(kernel->flags & TN_STRIDED)) plan->views[i].strides = slot->dense;
    }
}

/* Which slots need a copy, now that the kernel is known. */
static void settle(tni_plan *plan) {
    plan->simple = plan->idle = true;
    for (int32_t i = 0; i < plan->n_slots; i++) {
        tni_slot *slot = &plan->slots[i];
        const tn_view *v = &slot->view;
        bool keeps = !slot->dropped &&
                     ((plan->kernel->flags & TN_STRIDED) || tni_is_dense(v->ndim, v->shape, v->strides));
        if (keeps) slot->dense = NULL;
        plan->simple &= keeps;
        plan->idle &= !slot->written || slot->dropped || slot->low == slot->high;
    }
}

/* The type that decides between kernels: T, or what stands in for it. */
static tn_type main_type(const tni_contract *c, const tni_bound *bound, const reading *r) {
    for (int32_t i = 0; i < c->n_types; i++) {
        if (strcmp(c->types[i].name, "T") == 0) return bound->types[i];
    }
    if (c->n_types) return bound->types[0];
    return r->n_tensors ? r->operands[0].type : TN_NO_TYPE;
}

static tn_status no_kernel(const tni_plan *plan, const char *wanted, tn_type type, bool device_known) {
    const char *name = plan->op->contract->name;
    char device[TNI_DEVICE_TEXT];
    tni_device_print(device, plan->device);
    if (!device_known) {
        return tn_fail(TN_BAD_DEVICE, "%s: the tensors are on %s, but this build of Tenon has no kernels for it", name,
                       device);
    }
    if (wanted) {
        return tn_fail(TN_UNSUPPORTED, "%s: kernel '%s' does not take this call (%s on %s), or there is none", name,
                       wanted, tn_type_name(type), device);
    }
    return tn_fail(TN_UNSUPPORTED, "%s: no kernel takes this call (%s on %s)", name, tn_type_name(type), device);
}

static tn_status prepare(const tn_call *call, void **state) {
    const tn_kernel *k = call->kernel;
    if (!k->prepare) return TN_OK;
    tni_expect_error();
    tn_status status = k->prepare(call, state);
    if (status != TN_OK && !tni_error_is_said()) {
        tn_fail(status, "%s: kernel '%s' could not be prepared and did not say why: %s", call->name, k->name,
                tn_status_text(status));
    }
    return status;
}

/* Before it is asked itself. */
static bool fits(const tni_plan *plan, const tn_kernel *k, const char *wanted, tn_type type, uint32_t isa) {
    if ((int32_t)k->device != plan->device.kind) return false;
    if (wanted && strcmp(wanted, k->name) != 0) return false;
    return !(k->isa & ~isa) && (!k->types || k->types & TN_BIT(type));
}

/* Asks one kernel, which takes the call or does not. *declined: it found out in prepare, and left a message. */
static tn_status ask(tni_plan *plan, const tn_kernel *k, tn_call *call, bool *declined) {
    lay_out(plan, k);
    call->kernel = k;
    if (k->accepts && !k->accepts(call)) return TN_OK;
    const tn_status status = prepare(call, &plan->state);
    *declined = status == TN_UNSUPPORTED && k->flags & TN_MAY_DECLINE;
    if (*declined) return TN_OK;
    TN_TRY(status);
    call->state = plan->state;
    plan->kernel = k;
    plan->workspace = k->workspace ? k->workspace(call) : 0;
    settle(plan);
    return TN_OK;
}

/* why: for the log, of the kernels that were passed over. */
static tn_status choose_among(tni_plan *plan, const char *wanted, tn_type type, tni_text *why) {
    const uint32_t isa = plan->ops->isa ? plan->ops->isa() : 0;
    bool device_known = false, declined = false;
    tn_call call = tni_plan_call(plan);
    const tn_kernel *k = plan->op->row->kernels;
    TN_TRY(tni_activated_kernels(plan->arena, plan->op, &call, wanted, &k));
    for (; k->name && !plan->kernel; k++) {
        bool has_said = false;
        device_known |= (int32_t)k->device == plan->device.kind;
        if (fits(plan, k, wanted, type, isa)) TN_TRY(ask(plan, k, &call, &has_said));
        if (!plan->kernel && tni_watching() & TNI_WATCH_LOG) {
            tni_watch_pass(why, plan, k, wanted, type, isa, has_said);
        }
        declined |= has_said;
    }
    if (plan->kernel) return TN_OK;
    return wanted && declined ? TN_UNSUPPORTED : no_kernel(plan, wanted, type, device_known);
}

static tn_status choose_entered(tni_plan *plan, const char *wanted, tn_type type) {
    tni_text why = {0};
    const tn_status status = choose_among(plan, wanted, type, &why);
    if (status == TN_OK && why.length && !why.failed) {
        plan->why = tni_arena_text(plan->arena, why.data, why.length);
    }
    tni_free(why.data);
    return status;
}

static tn_status choose(tni_plan *plan, const char *wanted, tn_type type) {
    void *entered;
    plan->enters = plan->op->from && plan->ops->enter;
    if (!plan->enters) return choose_entered(plan, wanted, type);
    TN_TRY(plan->ops->enter(plan->op->contract->name, plan->device, &entered));
    const tn_status status = choose_entered(plan, wanted, type);
    plan->ops->leave(entered);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static tn_status reserve(tni_plan *plan, int32_t n_in) {
    const tni_contract *c = plan->op->contract;
    size_t slots = (size_t)(n_in > 0 ? n_in : 0) + (size_t)c->n_outputs;
    plan->slots = tni_arena_alloc(plan->arena, slots * sizeof *plan->slots);
    plan->views = tni_arena_alloc(plan->arena, slots * sizeof *plan->views);
    plan->in = tni_arena_alloc(plan->arena, (size_t)c->n_inputs * sizeof *plan->in);
    plan->out = tni_arena_alloc(plan->arena, (size_t)c->n_outputs * sizeof *plan->out);
    plan->attrs = tni_arena_alloc(plan->arena, (size_t)c->n_attrs * sizeof *plan->attrs);
    plan->specs = tni_arena_alloc(plan->arena, (size_t)c->n_outputs * sizeof *plan->specs);
    plan->strides = tni_arena_alloc(plan->arena, (size_t)c->n_outputs * sizeof *plan->strides);
    bool all = plan->slots && plan->views && plan->in && plan->out && plan->attrs && plan->specs && plan->strides;
    return all ? TN_OK : TN_NO_MEMORY;
}

static tn_status fill(tni_plan *plan, const tn_args *args, bool made) {
    const tni_contract *c = plan->op->contract;
    tni_bound bound;
    reading r = {.op = plan->op, .args = args};
    if (!made && args->n_out > 0 && !args->out) {
        return tn_fail(TN_BAD_VALUE, "%s: the array of outputs is NULL", c->name);
    }
    if (!made && (args->n_out < 0 || args->n_out > c->n_outputs)) {
        return tn_fail(TN_BAD_VALUE, "%s: has %d outputs, got %d", c->name, c->n_outputs, args->n_out);
    }
    TN_TRY(reserve(plan, args->n_in));
    TN_TRY(read_call(&r, plan->arena, false, !made, &bound, plan->specs));
    TN_TRY(fill_inputs(plan, &r, &bound));
    TN_TRY(fill_outputs(plan, &r, made));
    TN_TRY(keep_attrs(plan, &bound));
    plan->device = r.device_of ? r.device : (tn_device){TN_CPU, 0};
    plan->ops = r.device_of ? r.ops : tni_device_of(TN_CPU);
    return choose(plan, args->kernel, main_type(c, &bound, &r));
}

tn_status tni_plan_make(const tn_function *op, const tn_args *args, bool made, tni_plan **plan) {
    tni_arena *arena = tni_arena_new();
    if (!arena) return TN_NO_MEMORY;
    tni_plan *p = tni_arena_alloc(arena, sizeof *p);
    if (!p) {
        tni_arena_free(arena);
        return TN_NO_MEMORY;
    }
    p->op = op;
    p->arena = arena;
    tn_status status = fill(p, args, made);
    if (status != TN_OK) {
        tni_arena_free(arena);
        return status;
    }
    *plan = p;
    return TN_OK;
}

/* Even where the device cannot be entered any more: there is memory to be given back. */
static void release_state(tni_plan *plan) {
    void *entered;
    const bool is_in = plan->enters && plan->ops->enter(plan->op->contract->name, plan->device, &entered) == TN_OK;
    plan->kernel->release(plan->state);
    if (is_in) plan->ops->leave(entered);
}

void tni_plan_free(tni_plan *plan) {
    if (plan->kernel && plan->kernel->release) release_state(plan);
    tni_arena_free(plan->arena);
}
