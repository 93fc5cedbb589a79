/* One call checked against its contract, and its outputs inferred. No operator checks anything itself: what a contract
 * says is checked here, for all of them, in the same words. */
#include <string.h>

#include "parts.h"

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static tn_status check_tensor(const tni_binder *r, int32_t operand) {
    const tni_operand *o = &r->in->operands[operand];
    int64_t bad = 0;
    for (int i = 0; i < o->ndim && o->ndim <= TN_MAX_RANK; i++) {
        if (o->shape[i] < -1) bad = o->shape[i];
    }
    bool type = o->type >= TN_NO_TYPE && o->type < TN_TYPE_COUNT;
    if (type && o->ndim >= -1 && o->ndim <= TN_MAX_RANK && !bad) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: ", r->c->name);
    tni_print_operand(&text, r, operand);
    if (!type) {
        tni_text_add(&text, " has no type that Tenon knows");
    } else if (bad) {
        tni_text_add(&text, " has a size of %lld", (long long)bad);
    } else {
        tni_text_add(&text, " has rank %d; 0 to %d is possible", o->ndim, TN_MAX_RANK);
    }
    return tni_fail_text(type ? TN_BAD_SHAPE : TN_BAD_TYPE, &text);
}

static tn_status bind_presence(tni_binder *r) {
    const tni_contract *c = r->c;
    int32_t next = 0;
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_param *param = &c->inputs[i];
        int32_t count = r->in->counts[i];
        r->start[i] = next;
        if (count == 0 && !param->optional) {
            return tn_fail(TN_BAD_VALUE, "%s: %s is missing%s", c->name, param->name,
                           param->list ? "; it needs at least one tensor" : "");
        }
        if (count < 0 || (count > 1 && !param->list)) {
            return tn_fail(TN_BAD_VALUE, "%s: %s is one tensor, not %d", c->name, param->name, count);
        }
        next += count;
    }
    for (int i = 0; i < next; i++) TN_TRY(check_tensor(r, i));
    return TN_OK;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

tn_type tni_acc_type(tn_type type) {
    switch (type) {
    case TN_F16:
    case TN_BF16:
    case TN_E4M3:
    case TN_E5M2: return TN_F32;
    case TN_I8: return TN_I32;
    case TN_I16:
    case TN_I32:
    case TN_U8:
    case TN_U16:
    case TN_U32:
    case TN_BOOL: return TN_I64;
    default: return type;
    }
}

tn_type tni_complex_type(tn_type type) {
    switch (type) {
    case TN_F16:
    case TN_BF16:
    case TN_F32:
    case TN_C64: return TN_C64;
    case TN_F64:
    case TN_C128: return TN_C128;
    default: return TN_NO_TYPE;
    }
}

static tn_type wrapped(tn_type type, tni_type_wrap wrap) {
    return wrap == TNI_ACC ? tni_acc_type(type) : wrap == TNI_COMPLEX ? tni_complex_type(type) : type;
}

/* The T of a given acc(T) or complex(T) that nothing else binds: T itself if it can be, else the one of half the size.
 */
static tn_type unwrapped(tn_type given, tni_type_wrap wrap, uint32_t mask) {
    tn_type found = TN_NO_TYPE;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        if (!(mask & TN_BIT(t)) || wrapped((tn_type)t, wrap) != given) continue;
        size_t size = tn_type_size((tn_type)t) * (wrap == TNI_COMPLEX ? 2 : 1);
        if (found == TN_NO_TYPE || size == tn_type_size(given)) found = (tn_type)t;
    }
    return found;
}

/* "linear: w has type f64, needs f32: T is f32 from x" */
static tn_status wrong_type(const tni_binder *r, int32_t operand, const tni_type *type, uint32_t need, int32_t from) {
    tni_text text = {0};
    tni_text_add(&text, "%s: ", r->c->name);
    tni_print_operand(&text, r, operand);
    tni_text_add(&text, " has type %s, needs ", tn_type_name(r->in->operands[operand].type));
    tni_print_mask(&text, need, ", ", " or ");
    bool named = type->kind == TNI_TYPE_VAR && from >= 0;
    if (named) {
        tni_text_add(&text, ": %s is %s", r->c->types[type->ref].name, tn_type_name(r->b->types[type->ref]));
        tni_text_add(&text, " from ");
        tni_print_operand(&text, r, from);
    } else if (type->kind == TNI_TYPE_ATTR) {
        tni_text_add(&text, ": %s is %s", r->c->attrs[type->ref].name, tn_type_name(r->b->attrs[type->ref].type));
    }
    return tni_fail_text(TN_BAD_TYPE, &text);
}

/* The types that acc(T) or complex(T) can be. */
static uint32_t wrapped_mask(uint32_t mask, tni_type_wrap wrap) {
    uint32_t made = 0;
    for (int t = 1; t < TN_TYPE_COUNT; t++) {
        tn_type one = mask & TN_BIT(t) ? wrapped((tn_type)t, wrap) : TN_NO_TYPE;
        if (one != TN_NO_TYPE) made |= TN_BIT(one);
    }
    return made;
}

/* Is there an input of this very type, not known yet? Then an acc(T) of f32 may still be that of an f16. */
static bool has_unknown_type(const tni_binder *r, int32_t var) {
    for (int i = 0; i < r->c->n_inputs; i++) {
        const tni_type *type = &r->c->inputs[i].type;
        if (r->in->counts[i] && type->kind == TNI_TYPE_VAR && type->wrap == TNI_PLAIN && type->ref == var) return true;
    }
    return false;
}

static tn_status bind_type(tni_binder *r, const tni_type *type, int32_t operand, int32_t *from) {
    tn_type given = r->in->operands[operand].type;
    if (given == TN_NO_TYPE) return TN_OK;
    if (type->kind == TNI_TYPE_FIXED) {
        return type->mask & TN_BIT(given) ? TN_OK : wrong_type(r, operand, type, type->mask, -1);
    }
    tn_type bound = type->kind == TNI_TYPE_ATTR ? r->b->attrs[type->ref].type : r->b->types[type->ref];
    if (bound != TN_NO_TYPE) {
        tn_type need = wrapped(bound, type->wrap);
        if (given == need) return TN_OK;
        return wrong_type(r, operand, type, TN_BIT(need), type->kind == TNI_TYPE_VAR ? from[type->ref] : -1);
    }
    uint32_t mask = r->c->types[type->ref].mask;
    bound = unwrapped(given, type->wrap, mask);
    if (bound != TN_NO_TYPE && type->wrap != TNI_PLAIN && has_unknown_type(r, type->ref)) return TN_OK;
    if (bound == TN_NO_TYPE) return wrong_type(r, operand, type, wrapped_mask(mask, type->wrap), -1);
    r->b->types[type->ref] = bound;
    from[type->ref] = operand;
    return TN_OK;
}

/* T before acc(T): a plain use tells more. */
static tn_status bind_types(tni_binder *r) {
    const tni_contract *c = r->c;
    int32_t from[TNI_MAX_TYPES];
    for (int i = 0; i < c->n_types; i++) {
        r->b->types[i] = TN_NO_TYPE;
        from[i] = -1;
    }
    for (int wraps = 0; wraps < 2; wraps++) {
        for (int i = 0; i < c->n_inputs; i++) {
            const tni_type *type = &c->inputs[i].type;
            if ((type->wrap != TNI_PLAIN) != wraps) continue;
            for (int k = 0; k < r->in->counts[i]; k++) TN_TRY(bind_type(r, type, r->start[i] + k, from));
        }
    }
    for (int t = 0; t < c->n_types; t++) { /* what nothing bound equals T, where it may */
        if (strcmp(c->types[t].name, "T") != 0 || r->b->types[t] == TN_NO_TYPE) continue;
        for (int i = 0; i < c->n_types; i++) {
            bool may = c->types[i].mask & TN_BIT(r->b->types[t]);
            if (r->b->types[i] == TN_NO_TYPE && may) r->b->types[i] = r->b->types[t];
        }
    }
    return TN_OK;
}

static tn_status output_type(const tni_binder *r, const tni_param *output, tn_type *made) {
    const tni_type *type = &output->type;
    if (type->kind == TNI_TYPE_FIXED) {
        *made = (tn_type)__builtin_ctz(type->mask);
        return TN_OK;
    }
    tn_type bound = type->kind == TNI_TYPE_ATTR ? r->b->attrs[type->ref].type : r->b->types[type->ref];
    *made = wrapped(bound, type->wrap);
    if (*made == TN_NO_TYPE && bound != TN_NO_TYPE) {
        return tn_fail(TN_BAD_TYPE, "%s: %s would be complex, but %s has no complex type", r->c->name, output->name,
                       tn_type_name(bound));
    }
    return TN_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* concat(*s, axis): the elements agree but for one dimension, whose sizes add up. */
static tn_status join(const tni_binder *r, const tni_item *item, int32_t operand, const tni_dims *part,
                      tni_dims *dims) {
    const tn_value *value = &r->b->attrs[item->attr];
    bool same = part->ndim == dims->ndim && value->i < dims->ndim;
    for (int i = 0; same && i < dims->ndim; i++) {
        if (i == value->i) {
            bool known = dims->d[i] >= 0 && part->d[i] >= 0;
            if (known && __builtin_add_overflow(dims->d[i], part->d[i], &dims->d[i])) {
                return tn_fail(TN_BAD_SHAPE, "%s: the sizes along dimension %d add up to more than 64 bits", r->c->name,
                               i);
            }
            if (!known) dims->d[i] = -1;
        } else {
            if (dims->d[i] < 0) dims->d[i] = part->d[i];
            same = part->d[i] < 0 || part->d[i] == dims->d[i];
        }
    }
    if (same) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: ", r->c->name);
    tni_print_operand(&text, r, operand);
    tni_text_add(&text, " has shape ");
    tni_print_dims(&text, r->in->operands[operand].ndim, r->in->operands[operand].shape);
    tni_text_add(&text, ", which differs from the others beyond dimension %lld", (long long)value->i);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

tn_status tni_concat_dims(const tni_binder *r, const tni_item *item, tni_dims *dims) {
    const tni_contract *c = r->c;
    int32_t list = -1, where = 0;
    for (int i = 0; i < c->n_inputs && list < 0; i++) { /* the list that has the pack, and the pack's place in it */
        for (int k = 0; k < r->count[i] && c->inputs[i].list && r->in->counts[i]; k++) {
            const tni_item *one = &c->items[r->first[i] + k];
            if (one->kind == TNI_ITEM_PACK && one->ref == item->a.ref) {
                list = i;
                where = k;
            }
        }
    }
    dims->ndim = -1;
    if (list < 0) return TN_OK;
    for (int k = 0; k < r->in->counts[list]; k++) {
        const tni_operand *o = &r->in->operands[r->start[list] + k];
        tni_dims part = {.ndim = o->ndim < 0 ? -1 : o->ndim - (r->count[list] - 1)};
        for (int i = 0; i < part.ndim; i++) part.d[i] = o->shape[where + i];
        if (part.ndim < 0) { /* one of unknown rank: the sum along the axis is unknown too */
            dims->ndim = -1;
            return TN_OK;
        }
        if (k == 0) {
            *dims = part;
        } else {
            TN_TRY(join(r, item, r->start[list] + k, &part, dims));
        }
    }
    return TN_OK;
}

/* "linear: the shape [n] of y needs something that is absent: b" */
static tn_status not_told(const tni_binder *r, const tni_param *output, int32_t item) {
    tni_text text = {0};
    tni_text_add(&text, "%s: ", r->c->name);
    tni_print_items(&text, r->c, item, 1);
    tni_text_add(&text, ", a size of %s, cannot be told from the inputs given", output->name);
    const char *between = ": absent are ";
    for (int i = 0; i < r->c->n_inputs; i++) {
        if (r->in->counts[i]) continue;
        tni_text_add(&text, "%s%s", between, r->c->inputs[i].name);
        between = ", ";
    }
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status negative_size(const tni_binder *r, const tni_param *output, int32_t node, int64_t size) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s would have a size of %lld: ", r->c->name, output->name, (long long)size);
    tni_print_node(&text, r->c, node);
    tni_text_add(&text, ", where ");
    tni_print_values(&text, r->c, r->b, node);
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status item_dims(const tni_binder *r, const tni_param *output, int32_t index, tni_dims *part) {
    const tni_item *item = &r->c->items[index];
    bool unset = false;
    if (item->kind == TNI_ITEM_EXPR) {
        tni_result size;
        TN_TRY(tni_eval(r->c, r->b, item->node, &size));
        if (size.known && size.value < 0) return negative_size(r, output, item->node, size.value);
        unset = size.unset;
        part->ndim = 1;
        part->d[0] = size.known ? size.value : -1;
    } else if (item->kind == TNI_ITEM_CONCAT) {
        TN_TRY(tni_concat_dims(r, item, part));
    } else {
        TN_TRY(tni_item_dims(r->c, r->b, item, part, &unset));
    }
    return unset ? not_told(r, output, index) : TN_OK;
}

tn_status tni_output_dims(const tni_binder *r, const tni_param *output, tni_dims *dims) {
    int32_t first, count;
    TN_TRY(tni_choose(r->c, r->b, &output->shape, &first, &count));
    dims->ndim = 0;
    for (int k = first; k < first + count; k++) {
        tni_dims part;
        TN_TRY(item_dims(r, output, k, &part));
        if (part.ndim < 0) dims->ndim = -1;
        if (dims->ndim < 0) continue;
        if (dims->ndim + part.ndim > TN_MAX_RANK) {
            return tn_fail(TN_BAD_SHAPE, "%s: %s would have %d dimensions; %d is the most", r->c->name, output->name,
                           dims->ndim + part.ndim, TN_MAX_RANK);
        }
        for (int i = 0; i < part.ndim; i++) dims->d[dims->ndim++] = part.d[i];
    }
    return TN_OK;
}

/* Elements and bytes have to fit in 63 bits. Sizes of 0 count as 1, so that strides fit as well. */
static tn_status check_bytes(const tni_contract *c, const char *name, tn_type type, int32_t ndim,
                             const int64_t *shape) {
    int64_t bytes = type == TN_NO_TYPE ? 1 : (int64_t)tn_type_size(type);
    bool overflow = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] > 1) overflow |= __builtin_mul_overflow(bytes, shape[i], &bytes);
    }
    if (!overflow) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: %s of shape ", c->name, name);
    tni_print_dims(&text, ndim, shape);
    tni_text_add(&text, " and type %s is larger than 2^63 bytes", tn_type_name(type));
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status check_sizes(const tni_binder *r) {
    for (int i = 0; i < r->c->n_inputs; i++) {
        for (int k = 0; k < r->in->counts[i]; k++) {
            const tni_operand *o = &r->in->operands[r->start[i] + k];
            TN_TRY(check_bytes(r->c, r->c->inputs[i].name, o->type, o->ndim, o->shape));
        }
    }
    return TN_OK;
}

static tn_status infer_output(const tni_binder *r, const tni_param *output, tn_spec *spec) {
    spec->present = output->want_attr < 0 || r->b->attrs[output->want_attr].b;
    spec->type = TN_NO_TYPE;
    spec->ndim = 0;
    if (!spec->present) return TN_OK;
    tni_dims dims;
    TN_TRY(output_type(r, output, &spec->type));
    TN_TRY(tni_output_dims(r, output, &dims));
    spec->ndim = dims.ndim;
    for (int i = 0; i < dims.ndim; i++) spec->shape[i] = dims.d[i];
    return check_bytes(r->c, output->name, spec->type, spec->ndim, spec->shape);
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static tn_status check_conditions(const tni_binder *r) {
    for (int i = 0; i < r->c->n_conditions; i++) {
        const tni_condition *condition = &r->c->conditions[i];
        tni_result holds;
        TN_TRY(tni_eval(r->c, r->b, condition->node, &holds));
        if (!holds.known || holds.value) continue;
        tni_text text = {0};
        tni_text_add(&text, "%s: needs %s, but ", r->c->name, condition->text);
        tni_print_values(&text, r->c, r->b, condition->node);
        return tni_fail_text(TN_BAD_VALUE, &text);
    }
    return TN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

tn_status tni_bind(const tni_contract *contract, const tni_inputs *inputs, const tn_attr *attrs, int32_t n_attrs,
                   tni_bound *bound, tn_spec *specs) {
    tni_binder r;
    r.c = contract;
    r.in = inputs;
    r.b = bound;
    TN_TRY(bind_presence(&r));
    TN_TRY(tni_bind_attrs(contract, attrs, n_attrs, bound));
    TN_TRY(bind_types(&r));
    TN_TRY(tni_bind_shapes(&r));
    TN_TRY(check_conditions(&r));
    TN_TRY(check_sizes(&r));
    for (int i = 0; specs && i < contract->n_outputs; i++) TN_TRY(infer_output(&r, &contract->outputs[i], &specs[i]));
    return TN_OK;
}

tn_status tni_input_shape(const tni_contract *contract, const tni_bound *bound, int32_t i, const tni_operand *operand,
                          tni_dims *full) {
    int32_t first, count;
    bool expands = false;
    TN_TRY(tni_choose(contract, bound, &contract->inputs[i].shape, &first, &count));
    for (int k = first; k < first + count; k++) expands |= contract->items[k].broadcast;
    tni_dims made = {.ndim = 0};
    for (int k = first; k < first + count && expands && !contract->inputs[i].list; k++) {
        const tni_item *item = &contract->items[k];
        tni_dims part = {.ndim = 1};
        bool unset = false;
        if (item->kind == TNI_ITEM_EXPR) {
            tni_result size;
            TN_TRY(tni_eval(contract, bound, item->node, &size));
            part.d[0] = size.known ? size.value : -1;
        } else {
            TN_TRY(tni_item_dims(contract, bound, item, &part, &unset));
        }
        expands = part.ndim >= 0 && made.ndim + part.ndim <= TN_MAX_RANK;
        for (int d = 0; expands && d < part.ndim; d++) {
            made.d[made.ndim++] = part.d[d];
            expands &= part.d[d] >= 0;
        }
    }
    if (expands && !contract->inputs[i].list) {
        *full = made;
        return TN_OK;
    }
    full->ndim = operand->ndim;
    for (int d = 0; d < operand->ndim; d++) full->d[d] = operand->shape[d];
    return TN_OK;
}
