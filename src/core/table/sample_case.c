/* From a sample's sizes and options to the types and shapes of every input. */
#include "setting.h"

#include <stdlib.h>
#include <string.h>

#include "core/contract/parts.h"

tn_value tni_setting_attr(const tni_setting *s, int32_t i) {
    if (s->attrs[i].kind != TN_ATTR_UNSET) return s->attrs[i];
    if (s->contract->attrs[i].has_default) return s->contract->attrs[i].value;
    return (tn_value){.kind = TN_ATTR_UNSET};
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

typedef struct term {
    int64_t i;
    const char *text; /* of strings; NULL: a number or a truth value */
} term;

static tn_status eval(const tni_setting *s, int32_t element, int32_t node, term *result);

static tn_status eval_attr(const tni_setting *s, const tni_node *n, term *result) {
    tn_value v = tni_setting_attr(s, n->ref);
    const char *name = s->contract->attrs[n->ref].name;
    switch (v.kind) {
    case TN_ATTR_INT: result->i = v.i; return TN_OK;
    case TN_ATTR_BOOL: result->i = v.b; return TN_OK;
    case TN_ATTR_STR: result->text = v.s; return TN_OK;
    case TN_ATTR_INTS:
        if (n->kind == TNI_ATTR_AT && n->value >= 0 && n->value < v.count) {
            result->i = v.ints[n->value];
            return TN_OK;
        }
        break;
    case TN_ATTR_UNSET: return tni_setting_fail(s, TN_BAD_VALUE, "does not say %s", name);
    default: break;
    }
    return tni_setting_fail(s, TN_BAD_VALUE, "%s has no integer to compute a shape from", name);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static tn_status eval_binary(const tni_setting *s, const tni_node *n, const term *a, const term *b, term *result) {
    bool texts = a->text && b->text;
    int order = texts ? strcmp(a->text, b->text) : (a->i > b->i) - (a->i < b->i);
    bool overflow = false;
    switch (n->kind) {
    case TNI_ADD: overflow = __builtin_add_overflow(a->i, b->i, &result->i); break;
    case TNI_SUB: overflow = __builtin_sub_overflow(a->i, b->i, &result->i); break;
    case TNI_MUL: overflow = __builtin_mul_overflow(a->i, b->i, &result->i); break;
    case TNI_DIV:
    case TNI_MOD:
        if (b->i == 0) return tni_setting_fail(s, TN_BAD_VALUE, "a shape divides by 0");
        if (b->i == -1) { /* INT64_MIN / -1 traps */
            if (n->kind == TNI_DIV) overflow = __builtin_sub_overflow((int64_t)0, a->i, &result->i);
        } else {
            int64_t q = floor_div(a->i, b->i);
            result->i = n->kind == TNI_DIV ? q : a->i - q * b->i;
        }
        break;
    case TNI_EQ: result->i = order == 0; break;
    case TNI_NE: result->i = order != 0; break;
    case TNI_LT: result->i = order < 0; break;
    case TNI_LE: result->i = order <= 0; break;
    case TNI_GT: result->i = order > 0; break;
    case TNI_GE: result->i = order >= 0; break;
    case TNI_AND: result->i = a->i && b->i; break;
    case TNI_OR: result->i = a->i || b->i; break;
    default: return tni_setting_fail(s, TN_BAD_CONTRACT, "an expression cannot be evaluated");
    }
    return overflow ? tni_setting_fail(s, TN_BAD_VALUE, "a shape is too large") : TN_OK;
}

/* The pack's dimensions for this element of a list. */
static tn_status pack_dims(const tni_setting *s, int32_t pack, int32_t element, tni_dims *dims) {
    if (!s->pack_set[pack]) {
        return tni_setting_fail(s, TN_BAD_VALUE, "does not say %s=[…]", s->contract->packs[pack]);
    }
    *dims = s->elements[pack] && element < s->n_elements ? s->elements[pack][element] : s->packs[pack];
    return TN_OK;
}

static tn_status eval_dim(const tni_setting *s, int32_t dim, term *result) {
    result->i = s->dims[dim];
    return result->i >= 0 ? TN_OK : tni_setting_fail(s, TN_BAD_VALUE, "does not say %s=…", s->contract->dims[dim]);
}

/* The parser bounds the depth of the tree. */
static tn_status eval(const tni_setting *s, int32_t element, int32_t node, term *result) {
    const tni_node *n = &s->contract->nodes[node];
    *result = (term){0};
    switch (n->kind) {
    case TNI_LIT_INT:
    case TNI_LIT_BOOL: result->i = n->value; return TN_OK;
    case TNI_LIT_STR: result->text = n->text; return TN_OK;
    case TNI_DIM: return eval_dim(s, n->ref, result);
    case TNI_ATTR:
    case TNI_ATTR_AT: return eval_attr(s, n, result);
    case TNI_RANK: {
        tni_dims dims;
        TN_TRY(pack_dims(s, n->ref, element, &dims));
        result->i = dims.ndim;
        return TN_OK;
    }
    default: break;
    }
    term a, b = {0};
    TN_TRY(eval(s, element, n->left, &a));
    if (n->kind == TNI_NEG || n->kind == TNI_NOT) {
        result->i = n->kind == TNI_NEG ? (int64_t)(0 - (uint64_t)a.i) : !a.i;
        return TN_OK;
    }
    TN_TRY(eval(s, element, n->right, &b));
    return eval_binary(s, n, &a, &b, result);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static tn_status too_deep(const tni_setting *s, int32_t input) {
    return tni_setting_fail(s, TN_BAD_SHAPE, "%s would have more than %d dimensions", s->contract->inputs[input].name,
                            TN_MAX_RANK);
}

static tn_status seq_dims(const tni_setting *s, tni_seq seq, int32_t element, tni_dims *dims) {
    if (!seq.is_attr) return pack_dims(s, seq.ref, element, dims);
    tn_value v = tni_setting_attr(s, seq.ref);
    if (v.kind != TN_ATTR_INTS || v.count > TN_MAX_RANK) {
        return tni_setting_fail(s, TN_BAD_VALUE, "does not say %s=[…]", s->contract->attrs[seq.ref].name);
    }
    dims->ndim = v.count;
    for (int32_t i = 0; i < v.count; i++) dims->d[i] = v.ints[i];
    return TN_OK;
}

static tn_status broadcast_dims(const tni_setting *s, const tni_item *item, int32_t element, tni_dims *out) {
    tni_dims of[TNI_MAX_PACKS + 1];
    int32_t bad;
    for (int32_t k = 0; k <= item->n_more; k++) {
        TN_TRY(seq_dims(s, k ? item->more[k - 1] : item->a, element, &of[k]));
    }
    if (tni_broadcast_all(item, of, out, &bad)) return TN_OK;
    return tni_setting_fail(s, TN_BAD_SHAPE, "shapes do not broadcast");
}

/* Which of the dimensions an axis or axes attribute names; an empty list names all. */
static tn_status marked_axes(const tni_setting *s, int32_t attr, int32_t rank, bool marked[TN_MAX_RANK]) {
    tn_value v = tni_setting_attr(s, attr);
    bool all = v.kind == TN_ATTR_INTS && v.count == 0;
    for (int32_t i = 0; i < rank; i++) marked[i] = all;
    int32_t count = v.kind == TN_ATTR_INTS ? v.count : v.kind == TN_ATTR_INT ? 1 : 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t axis = v.kind == TN_ATTR_INTS ? v.ints[i] : v.i;
        if (rank == 0 && (axis == 0 || axis == -1)) continue;
        if (axis < -rank || axis >= rank) {
            return tni_setting_fail(s, TN_BAD_VALUE, "%s is %lld, the rank is %d", s->contract->attrs[attr].name,
                                    (long long)axis, rank);
        }
        marked[axis < 0 ? axis + rank : axis] = true;
    }
    return TN_OK;
}

static tn_status reduce_dims(const tni_setting *s, const tni_item *item, const tni_dims *a, tni_dims *out) {
    bool marked[TN_MAX_RANK];
    TN_TRY(marked_axes(s, item->attr, a->ndim, marked));
    tn_value keep = item->keep_attr >= 0 ? tni_setting_attr(s, item->keep_attr) : (tn_value){.kind = TN_ATTR_UNSET};
    out->ndim = 0;
    for (int32_t i = 0; i < a->ndim; i++) {
        if (!marked[i]) {
            out->d[out->ndim++] = a->d[i];
        } else if (keep.kind == TN_ATTR_BOOL && keep.b) {
            out->d[out->ndim++] = 1;
        }
    }
    return TN_OK;
}

static tn_status permute_dims(const tni_setting *s, const tni_item *item, const tni_dims *a, tni_dims *out) {
    tn_value v = tni_setting_attr(s, item->attr);
    const char *name = s->contract->attrs[item->attr].name;
    if (v.kind != TN_ATTR_INTS || v.count != a->ndim) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s must name %d dimensions", name, a->ndim);
    }
    out->ndim = a->ndim;
    for (int32_t i = 0; i < v.count; i++) {
        int64_t from = v.ints[i] < 0 ? v.ints[i] + v.count : v.ints[i];
        if (from < 0 || from >= v.count) return tni_setting_fail(s, TN_BAD_VALUE, "%s is no permutation", name);
        out->d[i] = a->d[from];
    }
    return TN_OK;
}

static tn_status pad_dims(const tni_setting *s, const tni_item *item, const tni_dims *a, tni_dims *out) {
    tn_value v = tni_setting_attr(s, item->attr);
    const char *name = s->contract->attrs[item->attr].name;
    *out = *a;
    if (v.kind != TN_ATTR_INTS || v.count % 2 != 0 || v.count / 2 > a->ndim) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s must have two numbers for each of up to %d dimensions", name,
                                a->ndim);
    }
    for (int32_t i = 0; i < v.count / 2; i++) {
        int64_t *size = &out->d[out->ndim - 1 - i];
        *size += v.ints[2 * i] + v.ints[2 * i + 1];
        if (*size < 0) return tni_setting_fail(s, TN_BAD_SHAPE, "%s leaves a size of %lld", name, (long long)*size);
    }
    return TN_OK;
}

static tn_status repeat_dims(const tni_setting *s, const tni_item *item, const tni_dims *a, tni_dims *out) {
    tn_value v = tni_setting_attr(s, item->attr);
    if (v.kind != TN_ATTR_INTS || v.count < a->ndim || v.count > TN_MAX_RANK) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s must have a number for each of %d dimensions",
                                s->contract->attrs[item->attr].name, a->ndim);
    }
    out->ndim = v.count;
    for (int32_t i = 0; i < v.count; i++) {
        out->d[i] = v.ints[i] * (i < v.count - a->ndim ? 1 : a->d[i - (v.count - a->ndim)]);
    }
    return TN_OK;
}

static tn_status resize_dims(const tni_setting *s, const tni_item *item, int32_t element, tni_dims *out) {
    bool marked[TN_MAX_RANK];
    term t;
    TN_TRY(seq_dims(s, item->a, element, out));
    TN_TRY(marked_axes(s, item->attr, out->ndim, marked));
    TN_TRY(eval(s, element, item->node, &t));
    for (int32_t i = 0; i < out->ndim; i++) {
        if (marked[i]) out->d[i] = t.i;
    }
    return TN_OK;
}

static tn_status item_dims(const tni_setting *s, const tni_item *item, int32_t element, tni_dims *out) {
    tni_dims a;
    term t;
    switch (item->kind) {
    case TNI_ITEM_EXPR:
        TN_TRY(eval(s, element, item->node, &t));
        out->ndim = 1;
        out->d[0] = t.i;
        return t.i >= 0 ? TN_OK : tni_setting_fail(s, TN_BAD_SHAPE, "a dimension comes out as %lld", (long long)t.i);
    case TNI_ITEM_PACK: return pack_dims(s, item->ref, element, out);
    case TNI_ITEM_SPREAD: return seq_dims(s, (tni_seq){.is_attr = true, .ref = item->ref}, element, out);
    case TNI_ITEM_BROADCAST:
    case TNI_ITEM_ROWS: return broadcast_dims(s, item, element, out);
    case TNI_ITEM_REDUCE: TN_TRY(seq_dims(s, item->a, element, &a)); return reduce_dims(s, item, &a, out);
    case TNI_ITEM_PERMUTE: TN_TRY(seq_dims(s, item->a, element, &a)); return permute_dims(s, item, &a, out);
    case TNI_ITEM_PAD: TN_TRY(seq_dims(s, item->a, element, &a)); return pad_dims(s, item, &a, out);
    case TNI_ITEM_REPEAT: TN_TRY(seq_dims(s, item->a, element, &a)); return repeat_dims(s, item, &a, out);
    case TNI_ITEM_RESIZE: return resize_dims(s, item, element, out);
    case TNI_ITEM_CONCAT: break; /* of outputs only */
    }
    return tni_setting_fail(s, TN_BAD_CONTRACT, "an input's shape cannot be computed");
}

/* The items that the condition chooses. */
static tn_status chosen_items(const tni_setting *s, const tni_shape *shape, int32_t element, int32_t *first,
                              int32_t *count) {
    term t = {.i = 1};
    if (shape->cond >= 0) TN_TRY(eval(s, element, shape->cond, &t));
    *first = t.i ? shape->first : shape->else_first;
    *count = t.i ? shape->count : shape->else_count;
    return TN_OK;
}

tn_status tni_setting_shape(const tni_setting *s, int32_t input, int32_t element, tni_dims *shape) {
    int32_t first, count;
    TN_TRY(chosen_items(s, &s->contract->inputs[input].shape, element, &first, &count));
    shape->ndim = 0;
    for (int32_t k = first; k < first + count; k++) {
        tni_dims part;
        TN_TRY(item_dims(s, &s->contract->items[k], element, &part));
        if (shape->ndim + part.ndim > TN_MAX_RANK) return too_deep(s, input);
        memcpy(shape->d + shape->ndim, part.d, (size_t)part.ndim * sizeof *part.d);
        shape->ndim += part.ndim;
    }
    return TN_OK;
}

void tni_setting_broadcast(const tni_setting *s, int32_t input, bool may_be_one[TN_MAX_RANK], int32_t *droppable) {
    int32_t first, count, rank = 0;
    *droppable = 0;
    if (chosen_items(s, &s->contract->inputs[input].shape, 0, &first, &count) != TN_OK) return;
    for (int32_t k = first; k < first + count; k++) {
        const tni_item *item = &s->contract->items[k];
        tni_dims part;
        if (item_dims(s, item, 0, &part) != TN_OK) return;
        for (int32_t d = 0; d < part.ndim && rank < TN_MAX_RANK; d++) may_be_one[rank++] = item->broadcast;
        if (k == first && item->broadcast && item->kind == TNI_ITEM_PACK) *droppable = part.ndim;
    }
}

bool tni_attr_is_shape(const tni_contract *c, int32_t attr) {
    for (int32_t k = 0; k < c->n_items; k++) {
        const tni_item *item = &c->items[k];
        if (item->kind == TNI_ITEM_SPREAD && item->ref == attr) return true;
        if (item->kind > TNI_ITEM_SPREAD && item->a.is_attr && item->a.ref == attr) return true;
        for (int32_t i = 0; i < item->n_more; i++) {
            if (item->more[i].is_attr && item->more[i].ref == attr) return true;
        }
    }
    return false;
}

int32_t tni_setting_slots(tni_setting *s, int64_t **slots) {
    const tni_contract *c = s->contract;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_dims; i++) {
        if (s->dims[i] >= 0) slots[n++] = &s->dims[i];
    }
    for (int32_t i = 0; i < c->n_packs; i++) {
        for (int32_t d = 0; s->pack_set[i] && d < s->packs[i].ndim; d++) slots[n++] = &s->packs[i].d[d];
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (s->attrs[i].kind != TN_ATTR_INTS || s->attrs[i].count > TN_MAX_RANK || !tni_attr_is_shape(c, i)) continue;
        int64_t *ints = (int64_t *)s->attrs[i].ints; /* the arena's memory */
        for (int32_t d = 0; d < s->attrs[i].count; d++) slots[n++] = ints + d;
    }
    return n;
}

/* ---- the case ---------------------------------------------------------------------------------------------------- */

static tn_status input_type(const tni_setting *s, int32_t input, tn_type *type) {
    const tni_param *p = &s->contract->inputs[input];
    const tni_input_setting *g = &s->inputs[input];
    tn_type t = TN_NO_TYPE;
    switch (p->type.kind) {
    case TNI_TYPE_FIXED: t = g->type != TN_NO_TYPE ? g->type : tni_usual_type(p->type.mask); break;
    case TNI_TYPE_VAR: t = g->type != TN_NO_TYPE ? g->type : s->types[p->type.ref]; break;
    case TNI_TYPE_ATTR: {
        tn_value v = tni_setting_attr(s, p->type.ref);
        if (v.kind == TN_ATTR_TYPE) t = v.type;
        break;
    }
    }
    *type = p->type.wrap == TNI_ACC ? tni_acc_type(t) : p->type.wrap == TNI_COMPLEX ? tni_complex_type(t) : t;
    return *type ? TN_OK : tni_setting_fail(s, TN_BAD_TYPE, "the type of %s is not known", p->name);
}

static bool is_name(const char *text, const char *end, const char *name) {
    return strlen(name) == (size_t)(end - text) && !strncmp(text, name, (size_t)(end - text));
}

/* The size of "s[axis]" or "shape[axis]": of a pack or a shape attribute, along what an axis attribute says. */
static bool read_size_along(const tni_setting *s, const char *text, int64_t *size) {
    const tni_contract *c = s->contract;
    const char *bracket = strchr(text, '['), *end = bracket ? strchr(bracket, ']') : NULL;
    int32_t attr = -1;
    tni_seq seq = {.ref = -1};
    tni_dims dims;
    if (!end || end[1]) return false;
    for (int32_t i = 0; i < c->n_packs; i++) {
        if (is_name(text, bracket, c->packs[i])) seq = (tni_seq){.ref = i};
    }
    for (int32_t i = 0; i < c->n_attrs; i++) {
        if (is_name(bracket + 1, end, c->attrs[i].name) && c->attrs[i].kind == TNI_A_AXIS) attr = i;
        if (is_name(text, bracket, c->attrs[i].name)) seq = (tni_seq){.is_attr = true, .ref = i};
    }
    bool marked[TN_MAX_RANK];
    if (attr < 0 || seq.ref < 0 || seq_dims(s, seq, 0, &dims) != TN_OK) return false;
    if (marked_axes(s, attr, dims.ndim, marked) != TN_OK) return false;
    for (int32_t i = 0; i < dims.ndim; i++) {
        if (marked[i]) *size = dims.d[i];
    }
    return dims.ndim > 0;
}

/* "10", the dimension "v", the int attribute "classes", or "s[axis]". */
static bool read_size(const tni_setting *s, const char *text, int64_t *size) {
    char *end;
    *size = strtoll(text, &end, 10);
    bool known = (end != text && *end == 0) || read_size_along(s, text, size);
    for (int32_t i = 0; i < s->contract->n_attrs && !known; i++) {
        const tn_value v = tni_setting_attr(s, i);
        known = !strcmp(s->contract->attrs[i].name, text) && v.kind == TN_ATTR_INT;
        if (known) *size = v.i;
    }
    for (int32_t i = 0; i < s->contract->n_dims && !known; i++) {
        known = !strcmp(s->contract->dims[i], text) && s->dims[i] >= 0;
        if (known) *size = s->dims[i];
    }
    return known;
}

static tn_status below_value(const tni_setting *s, int32_t input, int64_t *below) {
    const char *text = s->inputs[input].below;
    *below = 0;
    if (!text) return TN_OK;
    const bool known = read_size(s, text, below);
    const char *name = s->contract->inputs[input].name;
    if (!known)
        return tni_setting_fail(s, TN_BAD_VALUE, "%s<%s: expected a number, a dimension, an int attribute or s[axis]",
                                name, text);
    return *below >= 0 ? TN_OK : tni_setting_fail(s, TN_BAD_VALUE, "%s<%s: nothing is below", name, text);
}

static int64_t dims_count(const tni_dims *dims) {
    int64_t n = 1;
    for (int32_t i = 0; i < dims->ndim; i++) {
        if (__builtin_mul_overflow(n, dims->d[i], &n)) return INT64_MAX;
    }
    return n;
}

static bool is_integer(tn_type type) {
    return TN_BIT(type) & (TN_BIT(TN_I8) | TN_BIT(TN_I16) | TN_BIT(TN_I32) | TN_BIT(TN_I64) | TN_BIT(TN_U8));
}

/* The dimension along which an input is sorted, unique or a permutation. */
static int32_t ordered_along(const tni_setting *s, int32_t ndim) {
    for (int32_t i = 0; i < s->contract->n_attrs; i++) {
        if (s->contract->attrs[i].kind != TNI_A_AXIS) continue;
        const int64_t axis = tni_setting_attr(s, i).i, from_first = axis < 0 ? axis + ndim : axis;
        if (from_first >= 0 && from_first < ndim) return (int32_t)from_first;
    }
    return ndim - 1;
}

/* Whether there are such numbers, and below which: `made` has its type, shape and what `<` says. */
static tn_status order_input(const tni_setting *s, const tni_input_setting *g, tni_sample_input *made) {
    const char *name = s->contract->inputs[made->input].name, *order = tni_order_name(g->order);
    made->along = ordered_along(s, made->shape.ndim);
    const int64_t n = made->shape.ndim ? made->shape.d[made->along] : 1;
    int64_t total = 0;
    made->order = g->order;
    if (g->order == TNI_ORDER_NONE) return TN_OK;
    if (made->shape.ndim == 0)
        return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s: %s has no dimension", name, order, name);
    if (g->order == TNI_ORDER_SORTED) return TN_OK;
    if (!is_integer(made->type)) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s: %s has no integers", name, order, name);
    }
    if (g->order == TNI_ORDER_UNIQUE) {
        if (!g->below) return tni_setting_fail(s, TN_BAD_VALUE, "%s=unique: from how many? say %s<n, too", name, name);
        if (made->below >= n) return TN_OK;
        return tni_setting_fail(s, TN_BAD_VALUE, "%s=unique: %lld different numbers below %lld", name, (long long)n,
                                (long long)made->below);
    }
    if (g->below) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s=%s says what is in it; %s<%s is too much", name, order, name,
                                g->below);
    }
    made->below = n;
    if (g->order == TNI_ORDER_PERMUTATION) return TN_OK;
    if (!read_size(s, g->total, &total) || total < 0) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s=offsets(%s): expected a number or a dimension", name, g->total);
    }
    made->below = total + 1;
    if (n > 1 || (n == 1 && total == 0)) return TN_OK;
    return tni_setting_fail(s, TN_BAD_VALUE, "%s=offsets(%s): %lld offsets cannot go from 0 to %lld", name, g->total,
                            (long long)n, (long long)total);
}

static tn_status make_input(const tni_setting *s, int32_t input, int32_t element, tni_sample_input *made) {
    const tni_input_setting *g = &s->inputs[input];
    *made = (tni_sample_input){.input = input, .positive = g->positive};
    TN_TRY(input_type(s, input, &made->type));
    TN_TRY(below_value(s, input, &made->below));
    if (g->count >= 0) {
        made->shape = g->shapes[element];
    } else {
        TN_TRY(tni_setting_shape(s, input, element, &made->shape));
    }
    if (g->below && made->below == 0 && dims_count(&made->shape)) {
        return tni_setting_fail(s, TN_BAD_VALUE, "%s<%s: there is nothing below 0", s->contract->inputs[input].name,
                                g->below);
    }
    return order_input(s, g, made);
}

static int32_t input_length(const tni_setting *s, int32_t input) {
    if (!s->inputs[input].present) return 0;
    if (!s->contract->inputs[input].list) return 1;
    return s->inputs[input].count >= 0 ? s->inputs[input].count : s->n_elements;
}

static void add_attrs(const tni_setting *s, tni_case *c) {
    for (int32_t i = 0; i < s->contract->n_attrs; i++) {
        if (s->attrs[i].kind == TN_ATTR_UNSET) continue;
        c->attrs[c->n_attrs++] = (tn_attr){.name = s->contract->attrs[i].name, .value = s->attrs[i]};
    }
}

/* The validator has the last word: conditions, agreement of dimensions, ranges of axes. */
static tn_status check_case(const tni_setting *s, const tni_case *c, const int32_t *counts) {
    size_t n = (size_t)c->n_inputs + 1;
    tni_operand *operands = tni_arena_alloc(s->arena, n * sizeof *operands);
    struct {
        tni_bound bound;
        tn_spec specs[TNI_MAX_ARGS];
    } *scratch = tni_malloc(sizeof *scratch);
    if (!operands || !scratch) {
        tni_free(scratch);
        return TN_NO_MEMORY;
    }
    for (int32_t i = 0; i < c->n_inputs; i++) {
        operands[i] = (tni_operand){c->inputs[i].type, c->inputs[i].shape.ndim, c->inputs[i].shape.d};
    }
    tni_inputs inputs = {operands, counts};
    tn_status status = tni_bind(s->contract, &inputs, c->attrs, c->n_attrs, &scratch->bound, scratch->specs);
    tni_free(scratch);
    if (status == TN_OK || status == TN_NO_MEMORY) return status;
    return tni_setting_pass_on(s, status);
}

tn_status tni_setting_case(const tni_setting *s, tni_case **made) {
    const tni_contract *contract = s->contract;
    int32_t counts[TNI_MAX_ARGS], total = 0;
    for (int32_t i = 0; i < contract->n_inputs; i++) total += counts[i] = input_length(s, i);
    tni_case *c = tni_arena_alloc(s->arena, sizeof *c);
    if (!c) return TN_NO_MEMORY;
    c->inputs = tni_arena_alloc(s->arena, ((size_t)total + 1) * sizeof *c->inputs);
    c->attrs = tni_arena_alloc(s->arena, ((size_t)contract->n_attrs + 1) * sizeof *c->attrs);
    if (!c->inputs || !c->attrs) return TN_NO_MEMORY;
    for (int32_t i = 0; i < contract->n_inputs; i++) {
        for (int32_t k = 0; k < counts[i]; k++) TN_TRY(make_input(s, i, k, &c->inputs[c->n_inputs++]));
    }
    add_attrs(s, c);
    TN_TRY(check_case(s, c, counts));
    c->arena = s->arena;
    *made = c;
    return TN_OK;
}

tn_status tni_sample_case(const tni_contract *contract, const char *args, tn_type T, tni_case **made) {
    *made = NULL;
    tni_arena *arena = tni_arena_new();
    if (!arena) return TN_NO_MEMORY;
    tni_setting *setting = NULL;
    tn_status status = tni_setting_parse(contract, args, T, arena, &setting);
    if (status == TN_OK) status = tni_setting_case(setting, made);
    if (status != TN_OK) tni_arena_free(arena);
    return status;
}

void tni_case_free(tni_case *made) {
    if (made) tni_arena_free(made->arena);
}
