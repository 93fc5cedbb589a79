/* Parts of values: x[..., 1:c / 2]. They become operations on windows: window, flip, join (graph/primitive_list.h). */
#include <string.h>

#include "formula_parse.h"

/* ---- sizes: sums of dimensions, attributes of type int and whole numbers ----------------------------------------- */

tn_status tni_size_too_large(const tni_parser *p, int32_t at) {
    return tni_lex_fail(&p->lex, at, "this size is no sum of a few dimensions, whole attributes and numbers");
}

/* A dimension of the contract, or an attribute that is an int. */
static tn_status size_named(tni_parser *p, tni_size *made) {
    const tni_contract *c = tni_parse_attrs(p);
    char name[TNI_MAX_NAME + 1] = "";
    memcpy(name, p->lex.text + p->lex.token.at, (size_t)p->lex.token.length);
    const int32_t attr = c ? tni_attr_named(c, name) : -1;
    for (int32_t i = 0; c && i < c->n_dims; i++) {
        if (strcmp(c->dims[i], name) != 0) continue;
        *made = tni_size_named(i);
        return tni_parse_next(p);
    }
    if (attr >= 0 && c->attrs[attr].kind == TNI_A_INT && !c->attrs[attr].optional) {
        *made = tni_size_named(TNI_SIZE_ATTR + attr);
        return tni_parse_next(p);
    }
    return tni_lex_fail(&p->lex, p->lex.token.at,
                        "'%s' is no dimension of the signature and no attribute of type int: bounds are made of these "
                        "and of whole numbers",
                        name);
}

static bool at_floor(const tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    return tni_lex_is(&p->lex, "floor") && s[strspn(s, " ")] == '(';
}

/* floor(n / 2): rounded down */
static tn_status rounded_size(tni_parser *p, tni_size *made) {
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_size(p, made));
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
    made->floors = made->divisor > 1;
    return tni_parse_next(p);
}

static tn_status parse_factor(tni_parser *p, tni_size *made) {
    const int32_t at = p->lex.token.at;
    if (tni_parse_at(p, '-')) {
        tni_size inner;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_factor(p, &inner));
        return tni_size_scale(&inner, -1, 1, made) ? TN_OK : tni_size_too_large(p, at);
    }
    if (tni_parse_at(p, '(')) {
        TN_TRY(tni_parse_next(p));
        TN_TRY(tni_parse_size(p, made));
        if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
        return tni_parse_next(p);
    }
    if (at_floor(p)) return rounded_size(p, made);
    if (tni_parse_at(p, TNI_NAME)) return size_named(p, made);
    if (!tni_parse_at(p, TNI_INT)) {
        return tni_lex_expected(&p->lex, "a whole number, a dimension or an attribute of type int");
    }
    if (p->lex.token.value >= (int64_t)1 << 40) return tni_size_too_large(p, at);
    *made = tni_size_of(p->lex.token.value);
    return tni_parse_next(p);
}

static tn_status parse_size_product(tni_parser *p, tni_size *made) {
    TN_TRY(parse_factor(p, made));
    while (tni_parse_at(p, '*') || tni_parse_at(p, '/')) {
        const bool times = tni_parse_at(p, '*');
        const int32_t at = p->lex.token.at;
        tni_size left = *made, right;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_factor(p, &right));
        if (times && tni_size_is_number(&left)) {
            const tni_size other = left;
            left = right;
            right = other;
        }
        const bool number = tni_size_is_number(&right);
        const bool fits = number && (times ? tni_size_scale(&left, right.constant, 1, made)
                                           : tni_size_scale(&left, 1, right.constant, made));
        if (!fits) return tni_size_too_large(p, at);
    }
    return TN_OK;
}

tn_status tni_parse_size(tni_parser *p, tni_size *made) {
    TN_TRY(parse_size_product(p, made));
    while (tni_parse_at(p, '+') || tni_parse_at(p, '-')) {
        const int sign = tni_parse_at(p, '+') ? 1 : -1;
        const int32_t at = p->lex.token.at;
        tni_size left = *made, right;
        TN_TRY(tni_parse_next(p));
        TN_TRY(parse_size_product(p, &right));
        if (!tni_size_add(&left, sign, &right, made)) return tni_size_too_large(p, at);
    }
    return TN_OK;
}

/* ---- dimensions of a value --------------------------------------------------------------------------------------- */

tn_status tni_need_names(const tni_parser *p, int32_t at) {
    const tni_fuse *f = p->formula;
    if (p->typed && !f->axes.numpy && !f->axes.list) return TN_OK;
    return tni_lex_fail(&p->lex, at,
                        "to take parts of a value its dimensions need names, which a signature gives: "
                        "f(x: T[*r, c]) -> …");
}

int32_t tni_root_of(const tni_axes *axes, int32_t item) {
    while (axes->items[item].source >= 0) item = axes->items[item].source;
    return item;
}

static uint64_t roots_of(const tni_axes *axes, uint64_t items) {
    uint64_t made = 0;
    for (int32_t i = 0; i < axes->n_items; i++) made |= items >> i & 1 ? (uint64_t)1 << tni_root_of(axes, i) : 0;
    return made;
}

/* What an item is a part of in this value: x[:2] and x[:, :2] have items of one size, and are parts of two. */
int32_t tni_traced(const tni_parser *p, int32_t node, int32_t item) {
    for (;;) {
        const tni_gnode *n = &p->g->nodes[node];
        const bool taken = n->op == TNI_P_TAKE && p->g->windows[n->kind].to == item;
        if (taken && p->g->windows[n->kind].from < 0) return item;
        if (taken) item = p->g->windows[n->kind].from;
        int32_t next = -1;
        for (int k = 0; k < TNI_NODE_ARGS && n->arg[k] >= 0 && next < 0; k++) {
            if (p->g->nodes[n->arg[k]].extent.full >> item & 1) next = n->arg[k];
        }
        if (next < 0) return item;
        node = next;
    }
}

/* The items of a value, in the order of what they are parts of. */
static int32_t items_in_order(const tni_parser *p, int32_t node, int32_t *made, int32_t *root) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->formula->axes.n_items; i++) {
        if (!(p->g->nodes[node].extent.full >> i & 1)) continue;
        const int32_t of = tni_root_of(&p->formula->axes, tni_traced(p, node, i));
        int32_t k = n++;
        for (; k > 0 && root[k - 1] > of; k--) {
            root[k] = root[k - 1];
            made[k] = made[k - 1];
        }
        root[k] = of;
        made[k] = i;
    }
    return n;
}

/* The whole dimensions of everything that a value is made of, less those that it has itself, or has joined. */
static void find_lost(const tni_parser *p, int32_t node, tni_value_dims *made) {
    const tni_axes *axes = &p->formula->axes;
    bool reach[TNI_FUSE_NODES] = {false};
    uint64_t has = 0, all = 0, single = 0;
    for (int32_t i = 0; i < axes->n_items; i++) {
        const bool own = p->g->nodes[node].extent.full >> i & 1;
        has |= own ? (uint64_t)1 << tni_root_of(axes, tni_traced(p, node, i)) : 0;
    }
    reach[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        const tni_gnode *n = &p->g->nodes[i];
        if (!reach[i]) continue;
        if (n->op == TNI_P_INPUT) all |= roots_of(axes, n->extent.full);
        for (int k = 0; k < TNI_NODE_ARGS && n->arg[k] >= 0; k++) reach[n->arg[k]] = true;
        if (n->op != TNI_P_TAKE) continue;
        const tni_window *window = &p->g->windows[n->kind];
        if (window->to < 0 && window->from >= 0)
            single |= (uint64_t)1 << tni_root_of(axes, tni_traced(p, n->arg[0], window->from));
        const bool joined = window->to >= 0 && window->from >= 0 &&
                            ((has >> tni_root_of(axes, window->to) | p->g->nodes[node].extent.full >> window->to) & 1);
        if (joined) has |= (uint64_t)1 << tni_root_of(axes, tni_traced(p, n->arg[0], window->from));
    }
    made->single = all & ~has & single;
    made->reduced = all & ~has & ~single;
}

/* Those of an input stand as its shape says, those of others as the formula's do. */
tn_status tni_value_dims_of(const tni_parser *p, int32_t node, tni_value_dims *made) {
    const tni_gnode *n = &p->g->nodes[node];
    *made = (tni_value_dims){.n = 0};
    if (n->op == TNI_P_INPUT) {
        tni_entry entries[TN_MAX_RANK];
        int32_t count;
        TN_TRY(tni_param_entries(p->formula, &p->formula->contract->inputs[n->ref], entries, &count));
        for (int32_t k = 0; k < count; k++) made->item[made->n++] = entries[k].both ? -2 : entries[k].item;
        return TN_OK;
    }
    find_lost(p, node, made);
    made->n = items_in_order(p, node, made->item, made->root);
    return TN_OK;
}

/* Where a part of one element has taken a dimension away, a number could be meant with it or without if
 * that stood between this one and the end that is counted from. */
tn_status tni_check_number(const tni_parser *p, int32_t at, const tni_value_dims *dims, int32_t k, bool back) {
    const uint64_t lost = dims->single;
    const tni_axes *axes = &p->formula->axes;
    if (k < 0 || k >= dims->n || dims->item[k] < 0) return TN_OK;
    const int32_t root = dims->root[k];
    const uint64_t between = back ? lost >> root >> 1 << root << 1 : lost & (((uint64_t)1 << root) - 1);
    if (!between) return TN_OK;
    return tni_lex_fail(
        &p->lex, at,
        "this value has no %s any more, so the number of a dimension could be meant with it or without: "
        "an axis has a name, and a part can be taken before",
        axes->items[__builtin_ctzll(between)].key);
}

/* Has a part of one element taken this dimension away, or a part of it? */
bool tni_is_single(const tni_parser *p, int32_t node, int32_t item) {
    tni_value_dims dims;
    find_lost(p, node, &dims);
    return dims.single >> item & 1;
}

int32_t tni_item_or_part(const tni_parser *p, int32_t node, int32_t item) {
    const tni_axes *axes = &p->formula->axes;
    const uint64_t has = p->g->nodes[node].extent.full;
    if (has >> item & 1) return item;
    for (int32_t i = 0; i < axes->n_items; i++) {
        if (!(has >> i & 1)) continue;
        int32_t from = tni_traced(p, node, i);
        while (from >= 0 && from != item) from = axes->items[from].source;
        if (from == item) return i;
    }
    return -1;
}

tn_status tni_item_at(const tni_parser *p, int32_t at, int32_t node, bool back, int32_t k, int32_t *item) {
    tni_value_dims dims;
    *item = -1;
    TN_TRY(tni_value_dims_of(p, node, &dims));
    dims.single |= dims.reduced; /* of a formula without parts it would have its number still */
    if (k >= dims.n) return TN_OK;
    TN_TRY(tni_check_number(p, at, &dims, back ? dims.n - 1 - k : k, back));
    for (int32_t i = back ? dims.n - 1 - k : 0; i <= (back ? dims.n - 1 : k); i++) {
        if (dims.item[i] < 0 || p->formula->axes.items[dims.item[i]].pack) return TN_OK;
    }
    *item = dims.item[back ? dims.n - 1 - k : k];
    return TN_OK;
}

tn_status tni_check_axis(const tni_parser *p, int32_t at, int32_t node, int32_t item) {
    if (item >= 0 && p->formula->axes.items[item].sized && p->g->nodes[node].extent.full >> item & 1) return TN_OK;
    if (item >= 0 && p->formula->axes.items[item].pack) {
        return tni_lex_fail(&p->lex, at,
                            "*%s stands for any number of dimensions, of which parts have no names: give "
                            "this one a name of its own, as in x: T[*r, c]",
                            p->formula->axes.items[item].key + 1);
    }
    return tni_lex_fail(&p->lex, at, "this value has no such dimension of which a part could be taken");
}

/* size(n - 1), size(n, 2): an item by its size, as printed formulas have it. */
static tn_status take_sized(tni_parser *p, int32_t *item) {
    tni_size size, nth = {.constant = 1};
    bool more;
    TN_TRY(tni_parse_next(p));
    if (!tni_parse_at(p, '(')) return tni_lex_expected(&p->lex, "'(' behind size");
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_size(p, &size));
    TN_TRY(tni_parse_take(p, ',', &more));
    if (more) TN_TRY(tni_parse_size(p, &nth));
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
    uint64_t taken = 0;
    for (int64_t k = 0; k < nth.constant && k < TN_MAX_RANK; k++) {
        *item = tni_item_of_size(p->formula, &size, taken, -1);
        if (*item >= 0) taken |= (uint64_t)1 << *item;
    }
    if (*item == -2) return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d dimensions and parts", TN_MAX_RANK);
    return tni_parse_next(p);
}

tn_status tni_parse_sized_axis(tni_parser *p, bool *taken, int32_t *item) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    *taken = p->formula && p->typed && tni_lex_is(&p->lex, "size") && s[strspn(s, " ")] == '(' &&
             p->formula->contract && !p->formula->axes.numpy;
    return *taken ? take_sized(p, item) : TN_OK;
}

/* Over `axis =` */
tn_status tni_pass_axis_word(tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    if (!tni_lex_is(&p->lex, "axis") && !tni_lex_is(&p->lex, "dim")) return TN_OK;
    if (s[strspn(s, " ")] != '=') return TN_OK;
    TN_TRY(tni_parse_next(p));
    return tni_parse_next(p);
}

/* n, -1, size(n - 1), with or without axis= in front: an item of the value. */
tn_status tni_take_part_axis(tni_parser *p, int32_t node, int32_t *item) {
    tni_value_dims dims;
    bool sized;
    TN_TRY(tni_pass_axis_word(p));
    const int32_t at = p->lex.token.at;
    TN_TRY(tni_parse_sized_axis(p, &sized, item));
    if (sized) return TN_OK;
    if (tni_parse_at(p, TNI_NAME)) {
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + at, p->lex.token.length);
        *item = named ? tni_item_or_part(p, node, __builtin_ctz(named)) : -1;
        if (named && *item < 0 && p->formula->axes.items[__builtin_ctz(named)].pack) *item = __builtin_ctz(named);
        TN_TRY(tni_check_axis(p, at, node, *item));
        return tni_parse_next(p);
    }
    bool minus;
    TN_TRY(tni_parse_take(p, '-', &minus));
    if (!tni_parse_at(p, TNI_INT)) return tni_lex_expected(&p->lex, "a dimension of the signature or its number");
    TN_TRY(tni_value_dims_of(p, node, &dims));
    const int64_t k = minus ? dims.n - p->lex.token.value : p->lex.token.value;
    if (k < 0 || k >= dims.n) return tni_lex_fail(&p->lex, at, "this value has %d dimensions", (int)dims.n);
    for (int32_t i = minus ? (int32_t)k : 0; i <= (minus ? dims.n - 1 : (int32_t)k); i++) {
        if (dims.item[i] >= 0 && p->formula->axes.items[dims.item[i]].pack)
            return tni_check_axis(p, at, node, dims.item[i]);
    }
    *item = dims.item[k];
    TN_TRY(tni_check_number(p, at, &dims, (int32_t)k, minus));
    TN_TRY(tni_check_axis(p, at, node, *item));
    return tni_parse_next(p);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

tn_status tni_make_part(tni_parser *p, tni_prim op, tni_window window, int32_t a, int32_t b, int32_t *node) {
    const int32_t k = window.from == -2 || window.to == -2 ? -1 : tni_add_window(p->formula, window);
    if (k < 0) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d dimensions, or %d different parts", TN_MAX_RANK,
                            TNI_WINDOWS / 2);
    }
    p->g->windows = p->formula->windows;
    *node = tni_node3(p->g, op, k, a, b, -1);
    return tni_parse_made(p, *node);
}

tni_size tni_size_of_item(const tni_parser *p, int32_t item) {
    return item < 0 ? tni_size_of(1) : p->formula->axes.items[item].size;
}

tn_status tni_take_range(tni_parser *p, int32_t at, int32_t item, tni_range part, int32_t *node) {
    tni_size size;
    if (!tni_size_add(&part.end, -1, &part.begin, &size)) return tni_size_too_large(p, at);
    if (size.n == 0 && size.constant < 0) return tni_lex_fail(&p->lex, at, "this part ends before it begins");
    if (part.step > 1 && !tni_size_steps(&size, part.step, &size)) return tni_size_too_large(p, at);
    const uint64_t taken = item >= 0 ? p->g->nodes[*node].extent.full & ~((uint64_t)1 << item) : 0;
    const int32_t to = tni_item_of_size(p->formula, &size, taken, item);
    const tni_window window = {
        .from = item, .to = to, .begin = part.begin, .step = part.step, .bounds = part.last ? TNI_AT_END : TNI_INSIDE};
    return tni_make_part(p, TNI_P_TAKE, window, *node, -1, node);
}

/* ---- subscripts -------------------------------------------------------------------------------------------------- */

typedef struct subscript {
    int32_t at;
    bool dots, range, has_begin, has_end, begin_back, end_back;
    tni_size begin, end;
    int32_t step; /* below 0: from the end to the front */
} subscript;

/* Behind the '[' or ',': "..." is no token. */
static bool at_dots(const tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    return strncmp(s + strspn(s, " \n"), "...", 3) == 0;
}

static void pass_dots(tni_parser *p) {
    int32_t at = p->lex.token.at + p->lex.token.length;
    at += (int32_t)strspn(p->lex.text + at, " \n");
    p->lex.token = (tni_token){.kind = TNI_ARROW, .at = at, .length = 3};
}

/* A bound; one that begins with '-' counts from the end. */
static tn_status parse_bound(tni_parser *p, tni_size *made, bool *has, bool *back) {
    *has = !tni_parse_at(p, ':') && !tni_parse_at(p, ',') && !tni_parse_at(p, ']');
    *back = tni_parse_at(p, '-');
    return *has ? tni_parse_size(p, made) : TN_OK;
}

/* The ':' and what stands behind it. */
static tn_status parse_step(tni_parser *p, int32_t *made) {
    bool minus;
    TN_TRY(tni_parse_next(p));
    if (tni_parse_at(p, ',') || tni_parse_at(p, ']')) return TN_OK;
    TN_TRY(tni_parse_take(p, '-', &minus));
    const int64_t value = p->lex.token.value;
    if (!tni_parse_at(p, TNI_INT) || value < 1 || value > 1 << 20) {
        return tni_lex_expected(&p->lex, "a step, which is a whole number other than 0: x[::2], x[::-1]");
    }
    *made = (int32_t)(minus ? -value : value);
    return tni_parse_next(p);
}

static tn_status parse_one(tni_parser *p, subscript *made) {
    *made = (subscript){.dots = at_dots(p), .step = 1};
    if (made->dots) {
        pass_dots(p);
        made->at = p->lex.token.at;
        return tni_parse_next(p);
    }
    TN_TRY(tni_parse_next(p));
    made->at = p->lex.token.at;
    TN_TRY(parse_bound(p, &made->begin, &made->has_begin, &made->begin_back));
    made->range = tni_parse_at(p, ':');
    if (!made->range && !made->has_begin) return tni_lex_expected(&p->lex, "a range such as 1:, a number or '...'");
    if (!made->range) return TN_OK;
    TN_TRY(tni_parse_next(p));
    TN_TRY(parse_bound(p, &made->end, &made->has_end, &made->end_back));
    return tni_parse_at(p, ':') ? parse_step(p, &made->step) : TN_OK;
}

/* x[a:b:-k]: elements a, a - k, … behind b: those from b + 1 to a, the last one first. */
static tn_status turn(tni_parser *p, const subscript *s, int32_t item, const tni_size *begin, const tni_size *end,
                      int32_t *node) {
    const tni_size whole = tni_size_of_item(p, item), one = tni_size_of(1), none = tni_size_of(0);
    tni_size first = none, behind = whole, size;
    if (s->has_end && !tni_size_add(end, 1, &one, &first)) return tni_size_too_large(p, s->at);
    if (s->has_begin && !tni_size_add(begin, 1, &one, &behind)) return tni_size_too_large(p, s->at);
    if (!tni_size_add(&behind, -1, &first, &size)) return tni_size_too_large(p, s->at);
    const uint64_t others = p->g->nodes[*node].extent.full & ~((uint64_t)1 << item);
    TN_TRY(tni_take_range(p, s->at, item, (tni_range){.begin = first, .end = behind}, node));
    const int32_t part = tni_item_of_size(p->formula, &size, others, item);
    if (part < 0) return TN_OK; /* a single element */
    TN_TRY(tni_make_part(p, TNI_P_FLIP, (tni_window){.from = part, .to = part, .begin = none}, *node, -1, node));
    return s->step == -1
               ? TN_OK
               : tni_take_range(p, s->at, part, (tni_range){.begin = none, .end = size, .step = -s->step}, node);
}

static tn_status apply(tni_parser *p, const subscript *s, int32_t item, int32_t *node) {
    if (s->range && !s->has_begin && !s->has_end && s->step == 1) return TN_OK;
    if (item < 0)
        return tni_lex_fail(&p->lex, s->at, "this dimension has no part: its size is 1, or an attribute divides it");
    TN_TRY(tni_check_axis(p, s->at, *node, item));
    const tni_size whole = tni_size_of_item(p, item), one = tni_size_of(1);
    tni_size begin = s->has_begin ? s->begin : tni_size_of(0), end = s->has_end ? s->end : whole;
    if (s->begin_back && !tni_size_add(&begin, 1, &whole, &begin)) return tni_size_too_large(p, s->at);
    if (s->end_back && !tni_size_add(&end, 1, &whole, &end)) return tni_size_too_large(p, s->at);
    if (!s->range && !tni_size_add(&begin, 1, &one, &end)) return tni_size_too_large(p, s->at);
    if (s->step < 0) return turn(p, s, item, &begin, &end, node);
    return tni_take_range(p, s->at, item, (tni_range){.begin = begin, .end = end, .step = s->step}, node);
}

/* Which dimension subscript i of n is for: those behind the dots count from the end. */
static int32_t dim_of(const subscript *list, int32_t n, int32_t i, int32_t n_dims) {
    int32_t dots = n;
    for (int32_t k = 0; k < n; k++) dots = list[k].dots ? k : dots;
    return i < dots ? i : n_dims - (n - i);
}

static tn_status check_packs(const tni_parser *p, const subscript *s, const tni_value_dims *dims, int32_t from,
                             int32_t to) {
    for (int32_t d = from; d <= to; d++) {
        if (dims->item[d] < 0 || !p->formula->axes.items[dims->item[d]].pack) continue;
        return tni_lex_fail(&p->lex, s->at,
                            "this dimension is one of %s or stands behind them: x[..., 1:] counts from the end",
                            p->formula->axes.items[dims->item[d]].key);
    }
    return TN_OK;
}

/* Without a contract: how many dimensions need names, from the front and from the end. The formula is read again with
 * them. */
static tn_status note_dims(tni_parser *p, const subscript *list, int32_t n) {
    tni_fuse *f = p->formula;
    int32_t front = n, back = 0;
    for (int32_t k = 0; k < n; k++) {
        if (!list[k].dots) continue;
        front = k;
        back = n - 1 - k;
    }
    f->takes_parts = true;
    if (front > f->n_front) f->n_front = front;
    if (back > f->n_back) f->n_back = back;
    p->brackets--;
    return tni_parse_next(p);
}

tn_status tni_parse_subscript(tni_parser *p, int32_t *node) {
    subscript list[TN_MAX_RANK];
    tni_value_dims dims;
    int32_t n = 0, dots = 0, open = p->lex.token.at;
    if (!p->formula) return tni_lex_expected(&p->lex, "no '['");
    if (p->typed) TN_TRY(tni_need_names(p, open));
    p->brackets++;
    do {
        if (n == TN_MAX_RANK) return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d subscripts", TN_MAX_RANK);
        TN_TRY(parse_one(p, &list[n]));
        dots += list[n++].dots;
        if (dots > 1) return tni_lex_fail(&p->lex, list[n - 1].at, "'...' stands in a subscript once");
    } while (tni_parse_at(p, ','));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' behind a range");
    if (!p->typed) return note_dims(p, list, n);
    TN_TRY(tni_value_dims_of(p, *node, &dims));
    if (n - dots > dims.n) {
        return tni_lex_fail(&p->lex, open, "%d subscripts for a value that has %d dimensions", (int)(n - dots),
                            (int)dims.n);
    }
    for (int32_t i = 0; i < n; i++) {
        if (list[i].dots) continue;
        const bool back = dim_of(list, n, i, dims.n + n) != i; /* behind the dots */
        const int32_t d = dim_of(list, n, i, dims.n);
        TN_TRY(back ? check_packs(p, &list[i], &dims, d, dims.n - 1) : check_packs(p, &list[i], &dims, 0, d));
        TN_TRY(tni_check_number(p, list[i].at, &dims, d, back));
        TN_TRY(apply(p, &list[i], dims.item[d], node));
    }
    p->brackets--;
    return tni_parse_next(p);
}
