/* Calls of operators of the table on whole tensors: gather(x, i, axis=0), sort(x, result='index'). Their results have
 * dimensions of the formula, which the operator's contract tells from those of the arguments. How such a formula runs
 * is in src/fuse/steps. */
#include <stdio.h>
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/activation_names.h"
#include "core/table/table.h"
#include "formula_parse.h"

/* A call while it is read. */
typedef struct reading {
    const tn_function *op;
    const tni_contract *c;
    const tni_token *at; /* its name */
    tni_coarse call;
    int32_t nodes[TNI_NODE_ARGS];
    tni_text attrs;
    tn_attr values[TNI_MAX_ARGS]; /* those of the text */
    void *memory[TNI_MAX_ARGS];
    int32_t n_memory;
    struct {
        int32_t attr, item, at;
    } axes[TNI_MAX_INTS]; /* axis=n: a number when the tensors are known */
    int32_t n_axes;
} reading;

/* The dimensions of a tensor in their order, as items of the formula; -1: a size of 1. */
typedef struct dims {
    bool known;
    int32_t n;
    int8_t item[TN_MAX_RANK];
} dims;

const tn_function *tni_coarse_named(const tni_parser *p, const char *name) {
    const tn_function *op = p->formula ? tn_find(name) : NULL;
    if (!op || op->index < 0 || op->index >= p->formula->n_known || op->contract->has_lists) return NULL;
    for (int i = 0; i < op->contract->n_inputs; i++) {
        if (op->contract->inputs[i].inplace) return NULL;
    }
    return op->contract->n_inputs && op->contract->n_outputs ? op : NULL;
}

static bool by_name(const tni_parser *p) {
    return p->named || (p->typed && !p->formula->axes.numpy);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static tn_status add_argument(tni_parser *p, reading *r, int32_t at, int32_t node, int32_t to, int32_t axis) {
    if (r->call.n_args == TNI_NODE_ARGS) {
        return tni_lex_fail(&p->lex, at, "in a formula %s takes at most %d tensors", r->c->name, TNI_NODE_ARGS);
    }
    for (int k = 0; k < r->call.n_args; k++) {
        if (r->call.to[k] != to) continue;
        return tni_lex_fail(&p->lex, at, "%s is given '%s' twice", r->c->name,
                            to < 0 ? r->c->attrs[-1 - to].name : r->c->inputs[to].name);
    }
    if (p->g->nodes[node].absent) {
        return tni_lex_fail(&p->lex, at, "what is given to %s may be absent, and the operator needs it", r->c->name);
    }
    r->call.axis[r->call.n_args] = (int8_t)axis;
    r->call.to[r->call.n_args] = (int8_t)to;
    r->nodes[r->call.n_args++] = node;
    return TN_OK;
}

static bool wants_integers(const tni_param *param) {
    return param->type.kind == TNI_TYPE_FIXED && !(param->type.mask & ~TN_INTS);
}

static tn_status take_tensor(tni_parser *p, reading *r, int32_t input) {
    const tni_param *param = &r->c->inputs[input];
    const int32_t at = p->lex.token.at;
    int32_t node;
    p->index_input = wants_integers(param); /* a name that is new is an input of integers then */
    const tn_status status = tni_parse_expression(p, &node);
    p->index_input = false;
    TN_TRY(status);
    if (wants_integers(param) && tni_class_of(p->g, p->g->nodes[node].type) == TNI_CLASS_FLOAT) {
        return tni_lex_fail(&p->lex, at,
                            "%s takes integers as %s, and this is a float: a contract in front gives types", r->c->name,
                            param->name);
    }
    return add_argument(p, r, at, node, input, 0);
}

/* Where the value of `name=value` begins, in bytes behind the token; 0: the token is no such name. */
static int32_t value_behind(const tni_parser *p) {
    const tni_token *token = &p->lex.token;
    const char *s = p->lex.text + token->at + token->length, *begin = s;
    s += strspn(s, " ");
    if (token->kind != TNI_NAME || s[0] != '=' || s[1] == '=') return 0;
    s++;
    return (int32_t)(s + strspn(s, " ") - begin);
}

/* To a place of the text that no token has been read of. */
static tn_status go_to(tni_parser *p, int32_t at) {
    p->lex.token = (tni_token){.kind = TNI_END, .at = at};
    return tni_parse_next(p);
}

/* `shape(x)`, `shape(x, 2)` without the last two, `size(x, -1)`: up to what stands behind it. */
static tn_status take_size(tni_parser *p, reading *r, int32_t attr, bool all) {
    int32_t node, axis = TNI_ALL_SIZES;
    const int32_t at = p->lex.token.at;
    bool more;
    p->brackets++;
    TN_TRY(tni_parse_next(p)); /* to the '(' */
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_expression(p, &node));
    TN_TRY(tni_parse_take(p, ',', &more));
    if (!all && !more) return tni_lex_expected(&p->lex, "',' and which dimension's size it is");
    if (more) {
        bool minus;
        TN_TRY(tni_parse_take(p, '-', &minus));
        if (!tni_parse_at(p, TNI_INT) || p->lex.token.value >= TN_MAX_RANK) {
            return tni_lex_expected(&p->lex, "the number of a dimension");
        }
        const int32_t value = (int32_t)(minus ? -p->lex.token.value : p->lex.token.value);
        axis = all ? TNI_ALL_SIZES - value : value;
        TN_TRY(tni_parse_next(p));
    }
    TN_TRY(tni_close_call(p, "')'"));
    return add_argument(p, r, at, node, -1 - attr, axis);
}

/* The text of a value up to the ',' or ')' behind it. */
static int32_t value_length(const char *s) {
    int32_t n = 0, open = 0;
    bool quoted = false;
    for (; s[n] && s[n] != '\n'; n++) {
        quoted ^= s[n] == '\'';
        if (quoted) continue;
        if (open == 0 && (s[n] == ',' || s[n] == ')')) break;
        open += (s[n] == '[' || s[n] == '(') - (s[n] == ']' || s[n] == ')');
    }
    while (n > 0 && s[n - 1] == ' ') n--;
    return n;
}

static tn_status take_result(tni_parser *p, reading *r, int32_t at, const char *value, int32_t length) {
    char name[TNI_MAX_NAME + 1] = "";
    if (length > 2 && length - 2 <= TNI_MAX_NAME && value[0] == '\'') memcpy(name, value + 1, (size_t)length - 2);
    r->call.output = tni_output_named(r->c, name);
    if (r->call.output >= 0) return go_to(p, at + length);
    return tni_lex_fail(&p->lex, at, "%s has no result of this name, such as '%s'", r->c->name, r->c->outputs[0].name);
}

static void add_attr(reading *r, int32_t attr, const char *value, int32_t length) {
    const char *before = r->attrs.length ? " " : "";
    tni_text_add(&r->attrs, "%s%s=%.*s", before, r->c->attrs[attr].name, (int)length, value);
}

/* axis=n: the name of a dimension. */
static bool take_axis(const tni_parser *p, reading *r, int32_t attr, int32_t at, int32_t length) {
    const uint32_t items = r->c->attrs[attr].kind == TNI_A_AXIS && p->g->items[0]
                               ? tni_items_named(&p->formula->axes, p->lex.text + at, length)
                               : 0;
    if (!items || items & (items - 1) || r->n_axes == TNI_MAX_INTS) return false;
    r->axes[r->n_axes].attr = attr;
    r->axes[r->n_axes].item = __builtin_ctz(items);
    r->axes[r->n_axes++].at = at;
    return true;
}

/* shift=k: an attribute of the formula. A call says what it is, so one of axes must be told by the text. */
static bool is_own_attribute(const tni_parser *p, const reading *r, int32_t attr, int32_t at, int32_t length) {
    const tni_contract *own = tni_parse_attrs(p);
    const tni_attr_kind kind = r->c->attrs[attr].kind;
    char name[TNI_MAX_NAME + 1] = "";
    if (!own || length > TNI_MAX_NAME || (kind != TNI_A_INT && kind != TNI_A_FLOAT && kind != TNI_A_BOOL)) return false;
    memcpy(name, p->lex.text + at, (size_t)length);
    const int32_t found = tni_attr_named(own, name);
    return found >= 0 && own->attrs[found].kind == kind && !own->attrs[found].optional;
}

/* One of another kind: axes decide which dimensions a result has, and words which kernel is right. */
static tn_status check_own_attribute(const tni_parser *p, const reading *r, int32_t attr, int32_t at, int32_t length) {
    const tni_contract *own = tni_parse_attrs(p);
    char name[TNI_MAX_NAME + 1] = "";
    if (!own || length > TNI_MAX_NAME || is_own_attribute(p, r, attr, at, length)) return TN_OK;
    memcpy(name, p->lex.text + at, (size_t)length);
    if (tni_attr_named(own, name) < 0) return TN_OK;
    return tni_lex_fail(
        &p->lex, at,
        "'%s' is an attribute of the formula, and %s of %s cannot be one: only an int, a float or a bool "
        "of the same kind can",
        name, r->c->attrs[attr].name, r->c->name);
}

static tn_status take_own_attribute(tni_parser *p, reading *r, int32_t attr, int32_t at) {
    int32_t node;
    TN_TRY(go_to(p, at));
    TN_TRY(tni_parse_expression(p, &node));
    return add_argument(p, r, at, node, -1 - attr, TNI_NO_SIZE);
}

/* shift=2 * 3: a number that is computed here. */
static tn_status take_number(tni_parser *p, reading *r, int32_t attr, int32_t at, int32_t length) {
    static const char plain[] = "+-.0123456789e";
    const tni_attr_kind kind = r->c->attrs[attr].kind;
    const bool number = kind == TNI_A_INT || kind == TNI_A_FLOAT || kind == TNI_A_AXIS;
    const bool computed = number && (int32_t)strspn(p->lex.text + at, plain) < length;
    const bool lone = (int32_t)strspn(p->lex.text + at, "abcdefghijklmnopqrstuvwxyz_0123456789") >= length;
    int32_t node;
    if (!computed || lone) {
        add_attr(r, attr, p->lex.text + at, length);
        return go_to(p, at + length);
    }
    TN_TRY(go_to(p, at));
    TN_TRY(tni_parse_expression(p, &node));
    const tni_gnode *made = &p->g->nodes[node];
    if (made->op != TNI_P_CONST) {
        return tni_lex_fail(&p->lex, at, "%s of %s is a number that the formula's text alone tells",
                            r->c->attrs[attr].name, r->c->name);
    }
    tni_text text = {0};
    if (made->type == TNI_TY_WEAK_INT) {
        tni_text_add(&text, "%lld", (long long)made->value);
    } else {
        tni_text_double(&text, made->value);
    }
    if (!text.failed) add_attr(r, attr, text.data, (int32_t)text.length);
    r->attrs.failed |= text.failed;
    tni_free(text.data);
    return TN_OK;
}

/* axis=0, result='index', mask=m, v=size(table, 0) */
static tn_status take_named(tni_parser *p, reading *r) {
    char name[TNI_MAX_NAME + 1] = "";
    const int32_t at = p->lex.token.at, begin = at + p->lex.token.length + value_behind(p);
    const char *value = p->lex.text + begin;
    memcpy(name, p->lex.text + at, (size_t)p->lex.token.length);
    const int32_t attr = tni_attr_named(r->c, name), input = tni_input_named(r->c, name), length = value_length(value);
    if (attr < 0 && input < 0 && strcmp(name, "result") == 0) return take_result(p, r, begin, value, length);
    if (input >= 0) {
        TN_TRY(go_to(p, begin));
        return take_tensor(p, r, input);
    }
    if (attr < 0 || r->c->attrs[attr].implied) {
        return tni_lex_fail(&p->lex, at, "%s has no attribute '%s'", r->c->name, name);
    }
    const bool all = strncmp(value, "shape(", 6) == 0;
    if (all || strncmp(value, "size(", 5) == 0) {
        TN_TRY(go_to(p, begin));
        return take_size(p, r, attr, all);
    }
    if (take_axis(p, r, attr, begin, length)) return go_to(p, begin + length);
    TN_TRY(check_own_attribute(p, r, attr, begin, length));
    if (is_own_attribute(p, r, attr, begin, length)) return take_own_attribute(p, r, attr, begin);
    return take_number(p, r, attr, begin, length);
}

static tn_status take_arguments(tni_parser *p, reading *r) {
    int32_t input = 0;
    for (bool more = !tni_parse_at(p, ')'); more;) {
        if (value_behind(p)) {
            TN_TRY(take_named(p, r));
        } else if (input == r->c->n_inputs) {
            return tni_lex_fail(&p->lex, p->lex.token.at, "%s takes %d tensor%s, and attributes by name, as in axis=0",
                                r->c->name, input, input == 1 ? "" : "s");
        } else {
            TN_TRY(take_tensor(p, r, input++));
        }
        TN_TRY(tni_parse_take(p, ',', &more));
    }
    return tni_close_call(p, "',' or ')' after an argument");
}

static int32_t argument_of(const reading *r, int32_t to) {
    for (int k = 0; k < r->call.n_args; k++) {
        if (r->call.to[k] == to) return k;
    }
    return -1;
}

static tn_status dims_of(const tni_parser *p, int32_t node, dims *made);

/* Axes that were named: their numbers in the first tensor, from the front or, behind a pack, from the end. */
static tn_status number_axes(tni_parser *p, reading *r) {
    dims of = {0};
    if (r->n_axes && r->call.n_args) TN_TRY(dims_of(p, r->nodes[0], &of));
    for (int32_t i = 0; i < r->n_axes; i++) {
        char number[16];
        bool pack = false;
        int32_t k = 0;
        const int32_t item = tni_item_or_part(p, r->nodes[0], r->axes[i].item);
        for (; k < of.n && of.item[k] != item; k++) pack |= of.item[k] >= 0 && p->formula->axes.items[of.item[k]].pack;
        if (k == of.n || item < 0 || p->formula->axes.items[item].pack) {
            return tni_lex_fail(&p->lex, r->axes[i].at, "what %s is given first has not this one dimension",
                                r->c->name);
        }
        snprintf(number, sizeof number, "%d", (int)(pack ? k - of.n : k));
        add_attr(r, r->axes[i].attr, number, (int32_t)strlen(number));
    }
    return TN_OK;
}

/* All that the contract wants is there. */
static tn_status check_arguments(tni_parser *p, reading *r) {
    for (int i = 0; i < r->c->n_inputs; i++) {
        if (r->c->inputs[i].optional || argument_of(r, i) >= 0) continue;
        return tni_lex_fail(&p->lex, r->at->at, "%s needs '%s'", r->c->name, r->c->inputs[i].name);
    }
    for (int i = 0; i < r->c->n_attrs; i++) r->values[i].name = r->c->attrs[i].name;
    TN_TRY(number_axes(p, r));
    if (r->attrs.failed) return TN_NO_MEMORY;
    const char *text = r->attrs.data ? r->attrs.data : "";
    if (tni_attrs_parse(r->c, text, r->values, r->memory, &r->n_memory) != TN_OK) {
        char why[256];
        strncpy(why, tn_last_error(), sizeof why - 1);
        why[sizeof why - 1] = 0;
        why[strcspn(why, "\n")] = 0;
        return tni_lex_fail(&p->lex, r->at->at, "%s", why);
    }
    for (int i = 0; i < r->c->n_attrs; i++) {
        const tni_attr *attr = &r->c->attrs[i];
        const bool there = r->values[i].value.kind != TN_ATTR_UNSET || argument_of(r, -1 - i) >= 0;
        if (there || attr->has_default || attr->optional || attr->implied) continue;
        return tni_lex_fail(&p->lex, r->at->at, "%s needs the attribute '%s'", r->c->name, attr->name);
    }
    return TN_OK;
}

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

/* Of an input as its signature orders them; of a value as the formula does. */
static tn_status dims_of(const tni_parser *p, int32_t node, dims *made) {
    const tni_gnode *n = &p->g->nodes[node];
    *made = (dims){.known = by_name(p) && !n->extent.row};
    if (!made->known) return TN_OK;
    if (n->op == TNI_P_INPUT && p->typed) {
        tni_entry entries[TN_MAX_RANK];
        const tni_param *param = &p->formula->contract->inputs[n->ref];
        made->known = param->shape.cond < 0;
        if (!made->known) return TN_OK;
        TN_TRY(tni_param_entries(p->formula, param, entries, &made->n));
        for (int k = 0; k < made->n; k++) {
            made->item[k] = (int8_t)entries[k].item;
            made->known &= !entries[k].both && entries[k].keep < 0;
        }
        return TN_OK;
    }
    int32_t items[TN_MAX_RANK];
    made->n = tni_items_in_order(&p->formula->axes, n->extent.full, items);
    for (int k = 0; k < made->n; k++) made->item[k] = (int8_t)items[k];
    return TN_OK;
}

/* Is what a call makes in the order of the formula? Then its dimensions alone say where they are. */
static bool in_order(const tni_parser *p, const dims *made) {
    int32_t items[TN_MAX_RANK];
    uint64_t all = 0;
    for (int k = 0; k < made->n; k++) {
        if (made->item[k] < 0 || all >> made->item[k] & 1) return false;
        all |= (uint64_t)1 << made->item[k];
    }
    tni_items_in_order(&p->formula->axes, all, items);
    for (int k = 0; k < made->n; k++) {
        if (made->item[k] != items[k]) return false;
    }
    return true;
}

/* What the names of the operator's contract are, in items of the formula. */
typedef struct bound {
    dims packs[TNI_MAX_PACKS];
    int8_t dim[TNI_MAX_NAMES];
    bool dim_known[TNI_MAX_NAMES];
} bound;

/* [*s, n], [v, d], [b, *s]: one pack at most, and names. [broadcast(*p, *q), m, n] tells m and n; others say
 * nothing. */
static void bind_input(const tni_parser *p, const tni_contract *c, const tni_shape *shape, const dims *of, bound *b) {
    int32_t pack = -1, n = 0;
    if (shape->cond >= 0 || !of->known) return;
    for (int k = 0; k < shape->count; k++) {
        const tni_item *item = &c->items[shape->first + k];
        const bool some = item->kind == TNI_ITEM_PACK || item->kind == TNI_ITEM_BROADCAST;
        if ((!some && item->kind != TNI_ITEM_EXPR) || item->broadcast || (some && pack >= 0)) return;
        if (some) pack = k;
    }
    const int32_t behind = pack < 0 ? 0 : shape->count - 1 - pack, in_pack = of->n - (shape->count - 1);
    if (pack < 0 ? of->n != shape->count : in_pack < 0) return;
    for (int k = 0; k < shape->count; k++) {
        const tni_item *item = &c->items[shape->first + k];
        if (k == pack) {
            dims own = {.known = true, .n = in_pack};
            memcpy(own.item, of->item + n, (size_t)in_pack);
            if (item->kind == TNI_ITEM_PACK) b->packs[item->ref] = own;
            n = of->n - behind;
            continue;
        }
        const tni_node *node = &c->nodes[item->node];
        const int8_t at = of->item[n++];
        if (node->kind != TNI_DIM || (at >= 0 && p->formula->axes.items[at].pack)) continue;
        b->dim[node->ref] = at;
        b->dim_known[node->ref] = true;
    }
}

static bool add_dim(dims *made, int8_t item) {
    if (made->n == TN_MAX_RANK) return false;
    made->item[made->n++] = item;
    return true;
}

/* The dimension whose size an expression of the contract is: n, or an attribute that is given a size. */
static bool dim_of(const reading *r, const bound *b, const dims *args, int32_t node, int8_t *item) {
    const tni_node *n = &r->c->nodes[node];
    if (n->kind == TNI_DIM && b->dim_known[n->ref]) {
        *item = b->dim[n->ref];
        return true;
    }
    const int32_t k = n->kind == TNI_ATTR ? argument_of(r, -1 - n->ref) : -1;
    const int32_t axis = k < 0 ? TNI_NO_SIZE : r->call.axis[k];
    if (axis == TNI_NO_SIZE || axis >= TNI_SOME_SIZES || !args[k].known) return false;
    const int32_t at = axis < 0 ? args[k].n + axis : axis;
    if (at < 0 || at >= args[k].n) return false;
    *item = args[k].item[at];
    return true;
}

/* The dimension of a size that an attribute tells, top_k(x, k=3), or k=k of the formula: where the last one of the
 * first tensor was. */
static bool dim_of_number(const tni_parser *p, const reading *r, const dims *args, int32_t node, const dims *made,
                          int8_t *item) {
    const tni_node *n = &r->c->nodes[node];
    if (n->kind != TNI_ATTR || !p->typed || !args[0].known || args[0].n == 0) return false;
    const tn_value *given = &r->values[n->ref].value;
    if (given->kind == TN_ATTR_UNSET) given = &r->c->attrs[n->ref].value;
    const int32_t own = argument_of(r, -1 - n->ref);
    if (own >= 0 ? r->call.axis[own] != TNI_NO_SIZE : given->kind != TN_ATTR_INT || given->i < 0) return false;
    const tni_size size = own >= 0 ? tni_size_named(TNI_SIZE_ATTR + p->g->nodes[r->nodes[own]].ref)
                                   : tni_size_of(given->i);
    const int32_t last = args[0].item[args[0].n - 1];
    uint64_t taken = 0;
    for (int k = 0; k < made->n; k++) taken |= made->item[k] >= 0 ? (uint64_t)1 << made->item[k] : 0;
    const int32_t found = tni_item_of_size(p->formula, &size, taken, last);
    *item = (int8_t)found;
    return found >= 0;
}

/* resize(*s, axis, n): *s with n along the axis, which is a number here. */
static bool add_resized(const tni_parser *p, const reading *r, const bound *b, const dims *args, const tni_item *item,
                        dims *made) {
    const dims *of = item->a.is_attr ? NULL : &b->packs[item->a.ref];
    if (!of || !of->known) return false;
    const tn_value *given = &r->values[item->attr].value, *value = &r->c->attrs[item->attr].value;
    if (given->kind != TN_ATTR_UNSET) value = given;
    const int64_t axis = value->i < 0 ? value->i + of->n : value->i;
    for (int k = 0; k < of->n; k++) {
        int8_t at = of->item[k];
        if (at >= 0 && p->formula->axes.items[at].pack) return false; /* which of its dimensions it is nobody knows */
        if (k == axis && !dim_of(r, b, args, item->node, &at)) return false;
        if (!add_dim(made, at)) return false;
    }
    return axis >= 0 && axis < of->n;
}

/* *shape of an attribute that is given the shape of an argument, or its first sizes. */
static bool add_spread(const reading *r, const dims *args, const tni_item *item, dims *made) {
    const int32_t k = argument_of(r, -1 - item->ref);
    int left;
    if (k < 0 || !args[k].known || !tni_gives_shape(r->call.axis[k], &left) || left > args[k].n) return false;
    for (int d = 0; d < args[k].n - left; d++) {
        if (!add_dim(made, args[k].item[d])) return false;
    }
    return true;
}

/* broadcast(*p, *q): the longest of them, which ends with each of the others. */
static bool add_broadcast(const bound *b, const tni_item *item, dims *made) {
    const dims *longest = NULL;
    for (int k = 0; k <= item->n_more; k++) {
        const tni_seq seq = k ? item->more[k - 1] : item->a;
        if (seq.is_attr || seq.rows || !b->packs[seq.ref].known) return false;
        if (!longest || b->packs[seq.ref].n > longest->n) longest = &b->packs[seq.ref];
    }
    for (int k = 0; k <= item->n_more; k++) {
        const dims *of = &b->packs[(k ? item->more[k - 1] : item->a).ref];
        const int8_t *end = longest->item + longest->n - of->n;
        if (memcmp(end, of->item, (size_t)of->n * sizeof *end) != 0) return false;
    }
    for (int d = 0; d < longest->n; d++) {
        if (!add_dim(made, longest->item[d])) return false;
    }
    return true;
}

/* Those of the result by its shape; false: the contract does not tell. */
static bool result_dims(const tni_parser *p, const reading *r, const bound *b, const dims *args, dims *made) {
    const tni_shape *shape = &r->c->outputs[r->call.output].shape;
    *made = (dims){.known = true};
    for (int k = 0; k < shape->count; k++) {
        const tni_item *item = &r->c->items[shape->first + k];
        int8_t at;
        switch (item->kind) {
        case TNI_ITEM_EXPR:
            if (!dim_of(r, b, args, item->node, &at) && !dim_of_number(p, r, args, item->node, made, &at)) return false;
            if (!add_dim(made, at)) return false;
            break;
        case TNI_ITEM_PACK:
            if (!b->packs[item->ref].known) return false;
            for (int d = 0; d < b->packs[item->ref].n; d++) {
                if (!add_dim(made, b->packs[item->ref].item[d])) return false;
            }
            break;
        case TNI_ITEM_RESIZE:
            if (!add_resized(p, r, b, args, item, made)) return false;
            break;
        case TNI_ITEM_SPREAD:
            if (!add_spread(r, args, item, made)) return false;
            break;
        case TNI_ITEM_BROADCAST:
            if (!add_broadcast(b, item, made)) return false;
            break;
        default: return false;
        }
    }
    return shape->cond < 0;
}

/* The argument that has the shape of the result: by the contract, or because the result's shape is given as that of
 * it. -1: none. */
static int32_t like_argument(const reading *r) {
    const tni_shape *shape = &r->c->outputs[r->call.output].shape;
    const tni_item *item = &r->c->items[shape->first];
    const bool spread = shape->cond < 0 && shape->count == 1 && item->kind == TNI_ITEM_SPREAD;
    for (int k = 0; k < r->call.n_args; k++) {
        const int32_t to = r->call.to[k];
        if (to >= 0 ? shape->cond < 0 && !tni_broadcasts(r->c, shape) &&
                          tni_prints_alike(r->c, shape, &r->c->inputs[to].shape)
                    : spread && item->ref == -1 - to && r->call.axis[k] == TNI_ALL_SIZES)
            return k;
    }
    return -1;
}

static tn_status fail_shape(tni_parser *p, const reading *r) {
    return tni_lex_fail(&p->lex, r->at->at,
                        by_name(p) ? "the formula has no names for the dimensions of what %s makes, in their order"
                                   : "what %s makes has another shape than what it is given: a contract in front gives "
                                     "names to dimensions, as x: T[n, c] does",
                        r->c->name);
}

/* The dimensions that the result has, in the formula's order. */
static tn_status find_extent(tni_parser *p, const reading *r, tni_extent *extent) {
    dims args[TNI_NODE_ARGS] = {{0}}, made = {0};
    const int32_t like = like_argument(r);
    for (int k = 0; k < r->call.n_args; k++) TN_TRY(dims_of(p, r->nodes[k], &args[k]));
    if (!by_name(p)) {
        if (like < 0) return fail_shape(p, r);
        *extent = p->g->nodes[r->nodes[like]].extent;
        return TN_OK;
    }
    if (like >= 0) {
        made = args[like];
    } else {
        bound *b = tni_calloc(1, sizeof *b);
        if (!b) return TN_NO_MEMORY;
        for (int k = 0; k < r->call.n_args; k++) {
            if (r->call.to[k] >= 0) bind_input(p, r->c, &r->c->inputs[r->call.to[k]].shape, &args[k], b);
        }
        made.known = result_dims(p, r, b, args, &made);
        tni_free(b);
    }
    *extent = (tni_extent){0, 0};
    made.known &= in_order(p, &made);
    for (int k = 0; k < made.n && made.known; k++) extent->full |= (uint64_t)1 << made.item[k];
    return made.known ? TN_OK : fail_shape(p, r);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static int type_of_variable(const tni_parser *p, const reading *r, int32_t variable) {
    for (int k = 0; k < r->call.n_args; k++) {
        if (r->call.to[k] < 0) continue;
        const tni_type *type = &r->c->inputs[r->call.to[k]].type;
        if (type->kind != TNI_TYPE_VAR || type->ref != variable || type->wrap != TNI_PLAIN) continue;
        const int given = p->g->nodes[r->nodes[k]].type;
        return given == TNI_TY_WEAK_INT ? TN_I64 : given == TNI_TY_WEAK_FLOAT ? TN_F32 : given;
    }
    return TNI_TY_SOME;
}

static int type_of_result(const tni_parser *p, const reading *r) {
    const tni_type *type = &r->c->outputs[r->call.output].type;
    if (type->kind == TNI_TYPE_FIXED && !type->wrap) return tni_param_type(type);
    if (type->kind != TNI_TYPE_VAR || type->wrap == TNI_COMPLEX) return TNI_TY_SOME;
    const int of = type_of_variable(p, r, type->ref);
    if (type->wrap == TNI_PLAIN) return of;
    if (of < TNI_TY_VAR) return (int)tni_acc_type((tn_type)of);
    return of < TNI_TY_ACC ? of - TNI_TY_VAR + TNI_TY_ACC : TNI_TY_SOME;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* rms_norm(x, g): the formula of the row becomes a part of this one, and is fused and differentiated with it, where
 * the dimensions of the arguments are surely those that it would have. */
static tn_status try_inline(tni_parser *p, reading *r, bool *done, int32_t *node) {
    int32_t inputs[TNI_MAX_ARGS], own[TNI_MAX_ARGS];
    tn_value attrs[TNI_MAX_ARGS];
    dims x = {0}, of = {0};
    *done = false;
    for (int i = 0; i < r->c->n_inputs; i++) inputs[i] = -1;
    for (int i = 0; i < r->c->n_attrs; i++) attrs[i] = r->values[i].value;
    for (int i = 0; i < r->c->n_attrs; i++) own[i] = -1;
    if (argument_of(r, 0) >= 0) TN_TRY(dims_of(p, r->nodes[argument_of(r, 0)], &x));
    const bool elements = tni_is_activation(r->op); /* leaky_relu(x, slope=0.3): of any shape */
    if (!elements && by_name(p) && (!x.known || x.n == 0)) return TN_OK;
    for (int k = 0; k < r->call.n_args; k++) {
        if (r->call.to[k] < 0 && r->call.axis[k] != TNI_NO_SIZE) return TN_OK;
        if (r->call.to[k] < 0) {
            own[-1 - r->call.to[k]] = r->nodes[k];
            continue;
        }
        inputs[r->call.to[k]] = r->nodes[k];
        TN_TRY(dims_of(p, r->nodes[k], &of));
        const int32_t n = r->c->inputs[r->call.to[k]].shape.count == 1 ? 1 : x.n;
        const bool fits = of.n == n && memcmp(of.item, x.item + x.n - n, (size_t)n) == 0;
        if (!elements && by_name(p) && !fits) return TN_OK;
    }
    const bool pack = elements || !by_name(p) || x.item[x.n - 1] < 0 || p->formula->axes.items[x.item[x.n - 1]].pack;
    const tni_row_call call = {r->op, inputs, own, attrs, r->call.output, pack ? -1 : x.item[x.n - 1]};
    return tni_inline_rows(p, r->at, &call, done, node);
}

static tn_status read_call(tni_parser *p, reading *r, int32_t *node) {
    tni_extent extent;
    bool inlined;
    TN_TRY(check_arguments(p, r));
    TN_TRY(try_inline(p, r, &inlined, node));
    if (inlined) return TN_OK;
    if (p->formula->axes.list || p->formula->axes.tails) {
        return tni_lex_fail(&p->lex, r->at->at, "with %s in its contract a formula cannot call %s",
                            p->formula->axes.list ? "lists" : "[*p, n] of several packs", r->c->name);
    }
    TN_TRY(find_extent(p, r, &extent));
    r->call.attrs = r->attrs.data ? r->attrs.data : "";
    *node = tni_coarse_node(p->g, tni_add_coarse(p->g, &r->call), r->nodes, type_of_result(p, r), extent);
    return tni_parse_made(p, *node);
}

static tn_status parse(tni_parser *p, const tni_token *at, const tn_function *op,
                       tn_status (*take)(tni_parser *, reading *), int32_t *node) {
    reading *r = tni_calloc(1, sizeof *r);
    if (!r) return TN_NO_MEMORY;
    r->op = r->call.op = op;
    r->c = op->contract;
    r->at = at;
    tn_status status = take(p, r);
    if (status == TN_OK) status = read_call(p, r, node);
    for (int32_t i = 0; i < r->n_memory; i++) tni_free(r->memory[i]);
    tni_free(r->attrs.data);
    tni_free(r);
    return status;
}

tn_status tni_parse_coarse(tni_parser *p, const tni_token *at, const tn_function *op, int32_t *node) {
    return parse(p, at, op, take_arguments, node);
}

/* ---- table[i] ---------------------------------------------------------------------------------------------------- */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Is there a value in the brackets, and not only numbers, attributes and dimensions? */
bool tni_at_lookup(const tni_parser *p) {
    const tni_token *token = &p->lex.token;
    const char *s = p->lex.text + token->at + token->length;
    const tni_contract *attrs = tni_parse_attrs(p);
    bool value = false;
    int open = 0;
    if (token->kind != TNI_NAME || *s != '[' || !p->formula || !tni_coarse_named(p, "embedding")) return false;
    for (; *s && *s != '\n'; s++) {
        open += (*s == '[' || *s == '(') - (*s == ']' || *s == ')');
        if (open == 0) break;
        if (open == 1 && (*s == ',' || *s == ':' || *s == '.')) return false;
        char name[TNI_MAX_NAME + 1] = "";
        for (size_t n = 0; is_letter(*s) || (n && *s >= '0' && *s <= '9'); s++) {
            if (n < TNI_MAX_NAME) name[n++] = *s;
            if (!is_letter(s[1]) && !(s[1] >= '0' && s[1] <= '9')) {
                const bool known = (attrs && tni_attr_named(attrs, name) >= 0) ||
                                   (p->g->items[0] && tni_items_named(&p->formula->axes, name, (int32_t)n));
                value |= !known;
                break;
            }
        }
    }
    return *s == ']' && value;
}

static tn_status take_lookup(tni_parser *p, reading *r) {
    int32_t table;
    const tni_token name = *r->at;
    TN_TRY(go_to(p, name.at + name.length + 1));
    p->brackets++;
    TN_TRY(take_tensor(p, r, tni_input_named(r->c, "index")));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "']' behind the index");
    p->brackets--;
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_value_of(p, &name, &table));
    TN_TRY(add_argument(p, r, name.at, table, tni_input_named(r->c, "table"), 0));
    const int32_t index = r->nodes[0]; /* the table comes first, as where both are in brackets */
    r->nodes[0] = table;
    r->nodes[1] = index;
    r->call.to[0] = (int8_t)tni_input_named(r->c, "table");
    r->call.to[1] = (int8_t)tni_input_named(r->c, "index");
    return TN_OK;
}

tn_status tni_parse_lookup(tni_parser *p, int32_t *node) {
    const tni_token name = p->lex.token;
    return parse(p, &name, tni_coarse_named(p, "embedding"), take_lookup, node);
}
