/* What expressions and shape functions come to. Sizes that are not known (-1) stay unknown as far as they must;
 * arithmetic is 64-bit and checked; division rounds down, as in Python, where the same expressions are evaluated too.
 */
#include <string.h>

#include "parts.h"

typedef struct scope {
    const tni_contract *c;
    const tni_bound *b;
    int32_t root; /* the whole expression, for messages */
} scope;

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void tni_print_dims(tni_text *text, int32_t ndim, const int64_t *shape) {
    tni_text_add(text, "(");
    if (ndim < 0) tni_text_add(text, "...");
    for (int i = 0; i < ndim; i++) {
        if (i) tni_text_add(text, ", ");
        if (shape[i] < 0) {
            tni_text_add(text, "?");
        } else {
            tni_text_add(text, "%lld", (long long)shape[i]);
        }
    }
    tni_text_add(text, ")");
}

enum { MOST_LEAVES = 16 };

/* The names in an expression, each once. */
static void leaves(const tni_contract *c, int32_t index, int32_t *found, int *count) {
    if (index < 0) return;
    const tni_node *node = &c->nodes[index];
    bool leaf = node->kind >= TNI_DIM && node->kind <= TNI_RANK;
    for (int i = 0; leaf && i < *count; i++) {
        const tni_node *other = &c->nodes[found[i]];
        leaf = other->kind != node->kind || other->ref != node->ref || other->value != node->value;
    }
    if (leaf && *count < MOST_LEAVES) found[(*count)++] = index;
    leaves(c, node->left, found, count);
    leaves(c, node->right, found, count);
}

void tni_print_values(tni_text *text, const tni_contract *contract, const tni_bound *bound, int32_t node) {
    int32_t found[MOST_LEAVES];
    int count = 0;
    leaves(contract, node, found, &count);
    for (int i = 0; i < count; i++) {
        tni_result value;
        const tni_node *leaf = &contract->nodes[found[i]];
        tni_text_add(text, "%s", i == 0 ? "" : i < count - 1 ? ", " : " and ");
        tni_print_node(text, contract, found[i]);
        if (tni_eval(contract, bound, found[i], &value) != TN_OK || !value.known) {
            tni_text_add(text, " is unknown");
        } else if (value.text) {
            tni_text_add(text, " is '%s'", value.text);
        } else if (value.real) {
            tni_text_add(text, " is ");
            tni_text_double(text, value.number);
        } else if (leaf->kind == TNI_ATTR && contract->attrs[leaf->ref].kind == TNI_A_BOOL) {
            tni_text_add(text, " is %s", value.value ? "true" : "false");
        } else {
            tni_text_add(text, " is %lld", (long long)value.value);
        }
    }
}

/* "conv2d: h / stride <what>: h is 8 and stride is 0" */
static tn_status bad(const scope *s, const char *what) {
    tni_text text = {0};
    tni_text_add(&text, "%s: ", s->c->name);
    tni_print_node(&text, s->c, s->root);
    tni_text_add(&text, " %s: ", what);
    tni_print_values(&text, s->c, s->b, s->root);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static tn_status eval_attr(const scope *s, const tni_node *node, tni_result *r) {
    const tn_value *value = &s->b->attrs[node->ref];
    const tni_attr *attr = &s->c->attrs[node->ref];
    r->known = true;
    if (node->kind == TNI_ATTR_AT) {
        if (node->value >= value->count) {
            return tn_fail(TN_BAD_VALUE, "%s: %s has %d elements, needs at least %d", s->c->name, attr->name,
                           value->count, (int)node->value + 1);
        }
        r->value = value->ints[node->value];
    } else if (value->kind == TN_ATTR_STR) {
        r->text = value->s;
    } else if (value->kind == TN_ATTR_FLOAT) {
        r->real = true;
        r->number = value->f;
    } else {
        r->value = value->kind == TN_ATTR_BOOL ? value->b : value->i;
        r->known = attr->kind != TNI_A_AXIS || r->value >= 0; /* of an unknown rank it is still as given */
    }
    return TN_OK;
}

static tn_status arithmetic(const scope *s, tni_node_kind kind, int64_t a, int64_t b, int64_t *value) {
    bool overflow = false;
    switch (kind) {
    case TNI_ADD: overflow = __builtin_add_overflow(a, b, value); break;
    case TNI_SUB: overflow = __builtin_sub_overflow(a, b, value); break;
    case TNI_MUL: overflow = __builtin_mul_overflow(a, b, value); break;
    case TNI_DIV:
    case TNI_MOD:
        if (b == 0) return bad(s, "divides by zero");
        if (b == -1) { /* INT64_MIN / -1 does not fit */
            *value = 0;
            overflow = kind == TNI_DIV && __builtin_sub_overflow(0, a, value);
        } else {
            int64_t rest = a % b;
            bool down = rest != 0 && (rest < 0) != (b < 0);
            *value = kind == TNI_DIV ? a / b - down : rest + (down ? b : 0);
        }
        break;
    default: break;
    }
    return overflow ? bad(s, "does not fit in 64 bits") : TN_OK;
}

/* NaN is not in any order, and equals nothing. */
static bool compare_reals(tni_node_kind kind, double a, double b) {
    switch (kind) {
    case TNI_EQ: return a == b;
    case TNI_NE: return a != b;
    case TNI_LT: return a < b;
    case TNI_LE: return a <= b;
    case TNI_GT: return a > b;
    default: return a >= b;
    }
}

static double real_of(const tni_result *r) {
    return r->real ? r->number : (double)r->value;
}

static bool compare(tni_node_kind kind, const tni_result *a, const tni_result *b) {
    if (a->real || b->real) return compare_reals(kind, real_of(a), real_of(b));
    int order = a->text && b->text ? strcmp(a->text, b->text) : a->value < b->value ? -1 : a->value > b->value;
    switch (kind) {
    case TNI_EQ: return order == 0;
    case TNI_NE: return order != 0;
    case TNI_LT: return order < 0;
    case TNI_LE: return order <= 0;
    case TNI_GT: return order > 0;
    default: return order >= 0;
    }
}

static tn_status eval(const scope *s, int32_t index, tni_result *r);

static tn_status eval_binary(const scope *s, const tni_node *node, tni_result *r) {
    tni_result a, b;
    TN_TRY(eval(s, node->left, &a));
    TN_TRY(eval(s, node->right, &b));
    if (node->kind == TNI_AND || node->kind == TNI_OR) { /* one side may settle it */
        bool settles = node->kind == TNI_OR;
        bool settled = (a.known && a.value == settles) || (b.known && b.value == settles);
        r->known = settled || (a.known && b.known);
        r->value = settled ? settles : !settles;
        r->unset = !r->known && (a.unset || b.unset);
        return TN_OK;
    }
    r->known = a.known && b.known;
    r->unset = a.unset || b.unset;
    if (!r->known) return TN_OK;
    if (node->kind < TNI_EQ) return arithmetic(s, node->kind, a.value, b.value, &r->value);
    r->value = compare(node->kind, &a, &b);
    return TN_OK;
}

static tn_status eval(const scope *s, int32_t index, tni_result *r) {
    const tni_node *node = &s->c->nodes[index];
    *r = (tni_result){.known = true, .value = node->value};
    switch (node->kind) {
    case TNI_LIT_INT:
    case TNI_LIT_BOOL: return TN_OK;
    case TNI_LIT_STR: r->text = node->text; return TN_OK;
    case TNI_DIM:
        r->unset = !s->b->dim_set[node->ref];
        r->value = r->unset ? -1 : s->b->dims[node->ref];
        r->known = r->value >= 0;
        return TN_OK;
    case TNI_RANK:
        r->unset = !s->b->pack_set[node->ref];
        r->value = r->unset ? -1 : s->b->packs[node->ref].ndim;
        r->known = r->value >= 0;
        return TN_OK;
    case TNI_ATTR:
    case TNI_ATTR_AT: return eval_attr(s, node, r);
    case TNI_NEG:
        TN_TRY(eval(s, node->left, r));
        return r->known ? arithmetic(s, TNI_SUB, 0, r->value, &r->value) : TN_OK;
    case TNI_NOT:
        TN_TRY(eval(s, node->left, r));
        r->value = !r->value;
        return TN_OK;
    default: return eval_binary(s, node, r);
    }
}

tn_status tni_eval(const tni_contract *contract, const tni_bound *bound, int32_t node, tni_result *result) {
    const scope s = {contract, bound, node};
    return eval(&s, node, result);
}

tn_status tni_choose(const tni_contract *contract, const tni_bound *bound, const tni_shape *shape, int32_t *first,
                     int32_t *count) {
    tni_result r = {.value = true};
    if (shape->cond >= 0) TN_TRY(tni_eval(contract, bound, shape->cond, &r));
    *first = r.value ? shape->first : shape->else_first;
    *count = r.value ? shape->count : shape->else_count;
    return TN_OK;
}

/* ---- shape functions --------------------------------------------------------------------------------------------- */

const char *const tni_functions[TNI_FUNCTIONS] = {"broadcast", "rows",   "reduce", "permute",
                                                  "pad",       "repeat", "concat", "resize"};

bool tni_takes_packs(tni_item_kind kind) {
    return kind == TNI_ITEM_BROADCAST || kind == TNI_ITEM_ROWS;
}

bool tni_is_sequence(const tni_item *item) {
    return item->kind != TNI_ITEM_EXPR;
}

tn_status tni_seq_dims(const tni_contract *contract, const tni_bound *bound, tni_seq seq, tni_dims *dims, bool *unset) {
    if (!seq.is_attr) {
        *unset |= !bound->pack_set[seq.ref];
        dims->ndim = -1;
        if (!bound->pack_set[seq.ref] || bound->packs[seq.ref].ndim < 0) return TN_OK;
        dims->ndim = bound->packs[seq.ref].ndim;
        memcpy(dims->d, bound->packs[seq.ref].d, (size_t)dims->ndim * sizeof dims->d[0]);
        return TN_OK;
    }
    const tn_value *value = &bound->attrs[seq.ref];
    const char *name = contract->attrs[seq.ref].name;
    if (value->count > TN_MAX_RANK) {
        return tn_fail(TN_BAD_VALUE, "%s: %s has %d elements; a shape has at most %d", contract->name, name,
                       value->count, TN_MAX_RANK);
    }
    for (int i = 0; i < value->count; i++) {
        if (value->ints[i] < 0) {
            return tn_fail(TN_BAD_VALUE, "%s: %s has a size of %lld", contract->name, name, (long long)value->ints[i]);
        }
        dims->d[i] = value->ints[i];
    }
    dims->ndim = value->count;
    return TN_OK;
}

static void print_seq_dims(tni_text *text, const tni_contract *c, tni_seq seq, const tni_dims *dims) {
    tni_text_add(text, "*%s ", seq.is_attr ? c->attrs[seq.ref].name : c->packs[seq.ref]);
    tni_print_dims(text, dims->ndim, dims->d);
}

/* The size that two broadcast to; -2 where they do not. A size other than 1 wins over an unknown one. */
static int64_t broadcast_size(int64_t a, int64_t b) {
    if (a == b || b == 1) return a;
    if (a == 1) return b;
    return a == -1 ? b : b == -1 ? a : -2;
}

bool tni_broadcast(tni_dims *to, const tni_dims *with) {
    if (to->ndim < 0 || with->ndim < 0) {
        to->ndim = -1;
        return true;
    }
    tni_dims made = {.ndim = to->ndim > with->ndim ? to->ndim : with->ndim};
    for (int i = 1; i <= made.ndim; i++) { /* from the last dimension */
        int64_t a = i <= to->ndim ? to->d[to->ndim - i] : 1, b = i <= with->ndim ? with->d[with->ndim - i] : 1;
        made.d[made.ndim - i] = broadcast_size(a, b);
        if (made.d[made.ndim - i] == -2) return false;
    }
    *to = made;
    return true;
}

bool tni_broadcast_all(const tni_item *item, const tni_dims *of, tni_dims *made, int32_t *bad) {
    bool dropped = item->kind == TNI_ITEM_ROWS, columns = false;
    tni_dims whole = of[0]; /* what columns are made of has to go with the others, too */
    *made = of[0];
    for (int32_t k = 1; k <= item->n_more; k++) {
        tni_dims next = of[k];
        if (item->more[k - 1].rows) {
            if (!columns) dropped = made->ndim == 0; /* beside single numbers alone there is no last dimension */
            columns = true;
            if (next.ndim > 0) next.d[next.ndim - 1] = 1;
        }
        *bad = k;
        if (!tni_broadcast(&whole, &of[k]) || !tni_broadcast(made, &next)) return false;
    }
    if (dropped && made->ndim > 0) made->ndim--;
    return true;
}

static tn_status broadcast_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims,
                                bool *unset) {
    tni_dims of[TNI_MAX_PACKS + 1] = {*dims};
    int32_t bad;
    for (int32_t k = 0; k < item->n_more; k++) TN_TRY(tni_seq_dims(c, b, item->more[k], &of[k + 1], unset));
    if (tni_broadcast_all(item, of, dims, &bad)) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: ", c->name);
    for (int32_t k = 0; k < bad; k++) {
        print_seq_dims(&text, c, k ? item->more[k - 1] : item->a, &of[k]);
        tni_text_add(&text, k + 1 < bad ? ", " : " and ");
    }
    print_seq_dims(&text, c, item->more[bad - 1], &of[bad]);
    tni_text_add(&text, " do not broadcast");
    return tni_fail_text(TN_BAD_SHAPE, &text);
}

static tn_status axis_out_of_range(const tni_contract *c, const tni_item *item, int64_t axis, const tni_dims *dims) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s has %lld, but ", c->name, c->attrs[item->attr].name, (long long)axis);
    print_seq_dims(&text, c, item->a, dims);
    tni_text_add(&text, " has rank %d", dims->ndim);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

static tn_status reduce_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims) {
    const tn_value *value = &b->attrs[item->attr];
    const int64_t *axes = value->kind == TN_ATTR_INTS ? value->ints : &value->i;
    int count = value->kind == TN_ATTR_INTS ? value->count : 1;
    bool keep = item->keep_attr >= 0 && b->attrs[item->keep_attr].b;
    if (dims->ndim < 0) { /* [] is still "all" here; without dimensions left the rank is known after all */
        if (count == 0 && !keep) dims->ndim = 0;
        return TN_OK;
    }
    bool gone[TN_MAX_RANK] = {0};
    for (int i = 0; i < count; i++) {
        if (axes[i] < 0 || axes[i] >= dims->ndim) return axis_out_of_range(c, item, axes[i], dims);
        gone[axes[i]] = true;
    }
    int n = 0;
    for (int i = 0; i < dims->ndim; i++) {
        if (!gone[i] || keep) dims->d[n++] = gone[i] ? 1 : dims->d[i];
    }
    dims->ndim = n;
    return TN_OK;
}

static tn_status permute_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims) {
    const tn_value *value = &b->attrs[item->attr];
    const tni_dims from = *dims;
    uint32_t seen = 0;
    bool fits = value->count <= TN_MAX_RANK && (from.ndim < 0 || value->count == from.ndim);
    dims->ndim = fits ? value->count : 0;
    for (int i = 0; fits && i < value->count; i++) {
        int64_t dim = value->ints[i] < 0 ? value->ints[i] + value->count : value->ints[i];
        fits = dim >= 0 && dim < value->count && !(seen >> dim & 1);
        if (!fits) break;
        seen |= 1u << dim;
        dims->d[i] = from.ndim < 0 ? -1 : from.d[dim];
    }
    if (fits) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: %s is ", c->name, c->attrs[item->attr].name);
    tni_print_value(&text, value);
    tni_text_add(&text, ", which is not an order of the dimensions of ");
    print_seq_dims(&text, c, item->a, &from);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

/* "pad: pad is [1, 2, 3], which <what> *s (4, 5)" */
static tn_status bad_list(const tni_contract *c, const tni_bound *b, const tni_item *item, const char *what,
                          const tni_dims *dims) {
    tni_text text = {0};
    tni_text_add(&text, "%s: %s is ", c->name, c->attrs[item->attr].name);
    tni_print_value(&text, &b->attrs[item->attr]);
    tni_text_add(&text, ", which %s ", what);
    print_seq_dims(&text, c, item->a, dims);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

/* Of dimensions that are not known, nothing is told but how many there are. */
static tn_status pad_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims) {
    const tn_value *value = &b->attrs[item->attr];
    const tni_dims from = *dims;
    if (from.ndim < 0 && value->count % 2 == 0) return TN_OK;
    if (value->count % 2 != 0 || value->count / 2 > from.ndim) {
        return bad_list(c, b, item, "is not a pair for each of some dimensions of", &from);
    }
    for (int i = 0; i < value->count / 2; i++) {
        int64_t *size = &dims->d[dims->ndim - 1 - i];
        if (*size < 0) continue;
        if (__builtin_add_overflow(*size, value->ints[2 * i], size) ||
            __builtin_add_overflow(*size, value->ints[2 * i + 1], size) || *size < 0) {
            return bad_list(c, b, item, "leaves no size for a dimension of", &from);
        }
    }
    return TN_OK;
}

static tn_status repeat_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims) {
    const tn_value *value = &b->attrs[item->attr];
    const tni_dims from = *dims;
    for (int i = 0; i < value->count; i++) {
        if (value->ints[i] < 0) return bad_list(c, b, item, "has a negative number of repeats for", &from);
    }
    if (value->count < from.ndim || value->count > TN_MAX_RANK) {
        return bad_list(c, b, item, "needs a number for each dimension of", &from);
    }
    const int more = from.ndim < 0 ? 0 : value->count - from.ndim;
    dims->ndim = value->count;
    for (int i = 0; i < dims->ndim; i++) {
        const int64_t size = i < more ? 1 : from.ndim < 0 ? -1 : from.d[i - more];
        if (size < 0) {
            dims->d[i] = -1;
        } else if (__builtin_mul_overflow(size, value->ints[i], &dims->d[i])) {
            return bad_list(c, b, item, "has more repeats than 64 bits can count of", &from);
        }
    }
    return TN_OK;
}

static tn_status resize_dims(const tni_contract *c, const tni_bound *b, const tni_item *item, tni_dims *dims,
                             bool *unset) {
    const int64_t axis = b->attrs[item->attr].i;
    tni_result size;
    TN_TRY(tni_eval(c, b, item->node, &size));
    *unset |= size.unset;
    if (dims->ndim < 0) return TN_OK;
    if (axis < 0 || axis >= dims->ndim) return axis_out_of_range(c, item, axis, dims);
    dims->d[axis] = size.known ? size.value : -1;
    if (!size.known || size.value >= 0) return TN_OK;
    tni_text text = {0};
    tni_text_add(&text, "%s: ", c->name);
    tni_print_node(&text, c, item->node);
    tni_text_add(&text, " is %lld, which is no size", (long long)size.value);
    return tni_fail_text(TN_BAD_VALUE, &text);
}

tn_status tni_item_dims(const tni_contract *contract, const tni_bound *bound, const tni_item *item, tni_dims *dims,
                        bool *unset) {
    tni_seq seq = item->a;
    if (item->kind == TNI_ITEM_PACK || item->kind == TNI_ITEM_SPREAD) {
        seq = (tni_seq){item->kind == TNI_ITEM_SPREAD, item->ref};
    }
    TN_TRY(tni_seq_dims(contract, bound, seq, dims, unset));
    switch (item->kind) {
    case TNI_ITEM_BROADCAST:
    case TNI_ITEM_ROWS: return broadcast_dims(contract, bound, item, dims, unset);
    case TNI_ITEM_REDUCE: return reduce_dims(contract, bound, item, dims);
    case TNI_ITEM_PERMUTE: return permute_dims(contract, bound, item, dims);
    case TNI_ITEM_PAD: return pad_dims(contract, bound, item, dims);
    case TNI_ITEM_REPEAT: return repeat_dims(contract, bound, item, dims);
    case TNI_ITEM_RESIZE: return resize_dims(contract, bound, item, dims, unset);
    default: return TN_OK;
    }
}
