/* Parts of values: x[..., 1:c / 2], and the functions that move elements along a dimension: shift, roll, flip, concat,
 * chunk, rotate_half. All of them become three operations on windows: window, flip, join (graph/primitive_list.h). */
#include <string.h>

#include "formula_parse.h"

/* ---- dimensions of a value --------------------------------------------------------------------------------------- */

typedef struct value_dims {
    uint64_t single;              /* items that a part of one element took away */
    uint64_t reduced;             /* and those that a reduction took */
    int32_t n, item[TN_MAX_RANK]; /* -1: a size of 1 */
    int32_t root[TN_MAX_RANK];    /* what they are parts of */
} value_dims;

static tn_status need_names(const tni_parser *p, int32_t at) {
    const tni_fuse *f = p->formula;
    if (p->typed && !f->axes.numpy && !f->axes.list) return TN_OK;
    return tni_lex_fail(&p->lex, at,
                        "to take parts of a value its dimensions need names, which a signature gives: "
                        "f(x: T[*r, c]) -> …");
}

static int32_t root_of(const tni_axes *axes, int32_t item) {
    while (axes->items[item].source >= 0) item = axes->items[item].source;
    return item;
}

static uint64_t roots_of(const tni_axes *axes, uint64_t items) {
    uint64_t made = 0;
    for (int32_t i = 0; i < axes->n_items; i++) made |= items >> i & 1 ? (uint64_t)1 << root_of(axes, i) : 0;
    return made;
}

/* What an item is a part of in this value: x[:2] and x[:, :2] have items of one size, and are parts of two. */
static int32_t traced(const tni_parser *p, int32_t node, int32_t item) {
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
        const int32_t of = root_of(&p->formula->axes, traced(p, node, i));
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
static void find_lost(const tni_parser *p, int32_t node, value_dims *made) {
    const tni_axes *axes = &p->formula->axes;
    bool reach[TNI_FUSE_NODES] = {false};
    uint64_t has = 0, all = 0, single = 0;
    for (int32_t i = 0; i < axes->n_items; i++) {
        const bool own = p->g->nodes[node].extent.full >> i & 1;
        has |= own ? (uint64_t)1 << root_of(axes, traced(p, node, i)) : 0;
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
            single |= (uint64_t)1 << root_of(axes, traced(p, n->arg[0], window->from));
        const bool joined = window->to >= 0 && window->from >= 0 &&
                            ((has >> root_of(axes, window->to) | p->g->nodes[node].extent.full >> window->to) & 1);
        if (joined) has |= (uint64_t)1 << root_of(axes, traced(p, n->arg[0], window->from));
    }
    made->single = all & ~has & single;
    made->reduced = all & ~has & ~single;
}

/* Those of an input stand as its shape says, those of others as the formula's do. */
static tn_status dims_of(const tni_parser *p, int32_t node, value_dims *made) {
    const tni_gnode *n = &p->g->nodes[node];
    *made = (value_dims){.n = 0};
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
static tn_status check_number(const tni_parser *p, int32_t at, const value_dims *dims, int32_t k, bool back) {
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
static bool is_single(const tni_parser *p, int32_t node, int32_t item) {
    value_dims dims;
    find_lost(p, node, &dims);
    return dims.single >> item & 1;
}

int32_t tni_item_or_part(const tni_parser *p, int32_t node, int32_t item) {
    const tni_axes *axes = &p->formula->axes;
    const uint64_t has = p->g->nodes[node].extent.full;
    if (has >> item & 1) return item;
    for (int32_t i = 0; i < axes->n_items; i++) {
        if (!(has >> i & 1)) continue;
        int32_t from = traced(p, node, i);
        while (from >= 0 && from != item) from = axes->items[from].source;
        if (from == item) return i;
    }
    return -1;
}

tn_status tni_item_at(const tni_parser *p, int32_t at, int32_t node, bool back, int32_t k, int32_t *item) {
    value_dims dims;
    *item = -1;
    TN_TRY(dims_of(p, node, &dims));
    dims.single |= dims.reduced; /* of a formula without parts it would have its number still */
    if (k >= dims.n) return TN_OK;
    TN_TRY(check_number(p, at, &dims, back ? dims.n - 1 - k : k, back));
    for (int32_t i = back ? dims.n - 1 - k : 0; i <= (back ? dims.n - 1 : k); i++) {
        if (dims.item[i] < 0 || p->formula->axes.items[dims.item[i]].pack) return TN_OK;
    }
    *item = dims.item[back ? dims.n - 1 - k : k];
    return TN_OK;
}

static tn_status check_axis(const tni_parser *p, int32_t at, int32_t node, int32_t item) {
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
static tn_status pass_axis_word(tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    if (!tni_lex_is(&p->lex, "axis") && !tni_lex_is(&p->lex, "dim")) return TN_OK;
    if (s[strspn(s, " ")] != '=') return TN_OK;
    TN_TRY(tni_parse_next(p));
    return tni_parse_next(p);
}

/* n, -1, size(n - 1), with or without axis= in front: an item of the value. */
static tn_status take_axis(tni_parser *p, int32_t node, int32_t *item) {
    value_dims dims;
    bool sized;
    TN_TRY(pass_axis_word(p));
    const int32_t at = p->lex.token.at;
    TN_TRY(tni_parse_sized_axis(p, &sized, item));
    if (sized) return TN_OK;
    if (tni_parse_at(p, TNI_NAME)) {
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + at, p->lex.token.length);
        *item = named ? tni_item_or_part(p, node, __builtin_ctz(named)) : -1;
        if (named && *item < 0 && p->formula->axes.items[__builtin_ctz(named)].pack) *item = __builtin_ctz(named);
        TN_TRY(check_axis(p, at, node, *item));
        return tni_parse_next(p);
    }
    bool minus;
    TN_TRY(tni_parse_take(p, '-', &minus));
    if (!tni_parse_at(p, TNI_INT)) return tni_lex_expected(&p->lex, "a dimension of the signature or its number");
    TN_TRY(dims_of(p, node, &dims));
    const int64_t k = minus ? dims.n - p->lex.token.value : p->lex.token.value;
    if (k < 0 || k >= dims.n) return tni_lex_fail(&p->lex, at, "this value has %d dimensions", (int)dims.n);
    for (int32_t i = minus ? (int32_t)k : 0; i <= (minus ? dims.n - 1 : (int32_t)k); i++) {
        if (dims.item[i] >= 0 && p->formula->axes.items[dims.item[i]].pack)
            return check_axis(p, at, node, dims.item[i]);
    }
    *item = dims.item[k];
    TN_TRY(check_number(p, at, &dims, (int32_t)k, minus));
    TN_TRY(check_axis(p, at, node, *item));
    return tni_parse_next(p);
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

static tn_status make_part(tni_parser *p, tni_prim op, tni_window window, int32_t a, int32_t b, int32_t *node) {
    const int32_t k = window.from == -2 || window.to == -2 ? -1 : tni_add_window(p->formula, window);
    if (k < 0) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d dimensions, or %d different parts", TN_MAX_RANK,
                            TNI_WINDOWS / 2);
    }
    p->g->windows = p->formula->windows;
    *node = tni_node3(p->g, op, k, a, b, -1);
    return tni_parse_made(p, *node);
}

static tni_size size_of(const tni_parser *p, int32_t item) {
    return item < 0 ? tni_size_of(1) : p->formula->axes.items[item].size;
}

/* Elements begin … end - 1 along an item. */
static tn_status slice(tni_parser *p, int32_t at, int32_t item, const tni_size *begin, const tni_size *end,
                       int32_t *node) {
    tni_size size;
    if (!tni_size_add(end, -1, begin, &size)) return tni_size_too_large(p, at);
    if (size.n == 0 && size.constant < 0) return tni_lex_fail(&p->lex, at, "this part ends before it begins");
    const uint64_t taken = item >= 0 ? p->g->nodes[*node].extent.full & ~((uint64_t)1 << item) : 0;
    const int32_t to = tni_item_of_size(p->formula, &size, taken, item);
    const tni_window window = {.from = item, .to = to, .begin = *begin, .bounds = TNI_INSIDE};
    return make_part(p, TNI_P_TAKE, window, *node, -1, node);
}

/* ---- subscripts -------------------------------------------------------------------------------------------------- */

typedef struct subscript {
    int32_t at;
    bool dots, range, has_begin, has_end, begin_back, end_back;
    tni_size begin, end;
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

static tn_status parse_one(tni_parser *p, subscript *made) {
    *made = (subscript){.dots = at_dots(p)};
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
    if (tni_parse_at(p, ':'))
        return tni_lex_fail(&p->lex, p->lex.token.at,
                            "a range has no step; flip(x, axis) turns "
                            "a value round");
    return TN_OK;
}

static tn_status apply(tni_parser *p, const subscript *s, int32_t item, int32_t *node) {
    if (s->range && !s->has_begin && !s->has_end) return TN_OK;
    if (item < 0)
        return tni_lex_fail(&p->lex, s->at, "this dimension has no part: its size is 1, or an attribute divides it");
    TN_TRY(check_axis(p, s->at, *node, item));
    const tni_size whole = size_of(p, item), one = tni_size_of(1);
    tni_size begin = s->has_begin ? s->begin : tni_size_of(0), end = s->has_end ? s->end : whole;
    if (s->begin_back && !tni_size_add(&begin, 1, &whole, &begin)) return tni_size_too_large(p, s->at);
    if (s->end_back && !tni_size_add(&end, 1, &whole, &end)) return tni_size_too_large(p, s->at);
    if (!s->range && !tni_size_add(&begin, 1, &one, &end)) return tni_size_too_large(p, s->at);
    return slice(p, s->at, item, &begin, &end, node);
}

/* Which dimension subscript i of n is for: those behind the dots count from the end. */
static int32_t dim_of(const subscript *list, int32_t n, int32_t i, int32_t n_dims) {
    int32_t dots = n;
    for (int32_t k = 0; k < n; k++) dots = list[k].dots ? k : dots;
    return i < dots ? i : n_dims - (n - i);
}

static tn_status check_packs(const tni_parser *p, const subscript *s, const value_dims *dims, int32_t from,
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
    value_dims dims;
    int32_t n = 0, dots = 0, open = p->lex.token.at;
    if (!p->formula) return tni_lex_expected(&p->lex, "no '['");
    if (p->typed) TN_TRY(need_names(p, open));
    p->brackets++;
    do {
        if (n == TN_MAX_RANK) return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d subscripts", TN_MAX_RANK);
        TN_TRY(parse_one(p, &list[n]));
        dots += list[n++].dots;
        if (dots > 1) return tni_lex_fail(&p->lex, list[n - 1].at, "'...' stands in a subscript once");
    } while (tni_parse_at(p, ','));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' behind a range");
    if (!p->typed) return note_dims(p, list, n);
    TN_TRY(dims_of(p, *node, &dims));
    if (n - dots > dims.n) {
        return tni_lex_fail(&p->lex, open, "%d subscripts for a value that has %d dimensions", (int)(n - dots),
                            (int)dims.n);
    }
    for (int32_t i = 0; i < n; i++) {
        if (list[i].dots) continue;
        const bool back = dim_of(list, n, i, dims.n + n) != i; /* behind the dots */
        const int32_t d = dim_of(list, n, i, dims.n);
        TN_TRY(back ? check_packs(p, &list[i], &dims, d, dims.n - 1) : check_packs(p, &list[i], &dims, 0, d));
        TN_TRY(check_number(p, list[i].at, &dims, d, back));
        TN_TRY(apply(p, &list[i], dims.item[d], node));
    }
    p->brackets--;
    return tni_parse_next(p);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static tn_status close_part(tni_parser *p) {
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "')'");
    p->brackets--;
    return tni_parse_next(p);
}

static tn_status comma(tni_parser *p, const char *what) {
    if (!tni_parse_at(p, ',')) return tni_lex_expected(&p->lex, "',' and %s", what);
    return tni_parse_next(p);
}

static tni_size minus(const tni_size *a) {
    tni_size made = *a;
    for (int32_t i = 0; i < made.n; i++) made.factor[i] = -made.factor[i];
    made.constant = -made.constant;
    return made;
}

/* Where `at` elements have come, the first argument's; `at` is kept between 0 and the size. */
static tn_status join(tni_parser *p, int32_t item, const tni_size *at, int32_t a, int32_t b, int32_t *node) {
    return make_part(p, TNI_P_JOIN, (tni_window){.from = item, .to = item, .begin = *at}, a, b, node);
}

static tn_status moved(tni_parser *p, int32_t item, const tni_size *begin, tni_bounds bounds, int32_t a,
                       int32_t *node) {
    const tni_window window = {.from = item, .to = item, .begin = *begin, .bounds = bounds};
    return make_part(p, TNI_P_TAKE, window, a, -1, node);
}

/* shift(x, k, axis), shift(x, k, axis, fill): element i - k, and what comes in is 0 or the fill value. */
static tn_status parse_shift(tni_parser *p, int32_t *node) {
    tni_size by, behind;
    int32_t item, fill;
    TN_TRY(comma(p, "by how much"));
    TN_TRY(tni_parse_size(p, &by));
    TN_TRY(comma(p, "the axis"));
    TN_TRY(take_axis(p, *node, &item));
    const tni_size begin = minus(&by), whole = size_of(p, item);
    TN_TRY(moved(p, item, &begin, TNI_ZEROS_OUTSIDE, *node, node));
    if (!tni_parse_at(p, ',')) return close_part(p);
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_expression(p, &fill));
    if (p->g->nodes[fill].extent.full >> item & 1) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "what comes in is the same along the axis, and this is not");
    }
    if (!tni_size_add(&whole, 1, &by, &behind)) return tni_size_too_large(p, p->lex.token.at);
    TN_TRY(join(p, item, &behind, *node, fill, node));
    TN_TRY(join(p, item, &by, fill, *node, node));
    return close_part(p);
}

/* roll(x, k, axis): what leaves at one end comes in at the other. */
static tn_status parse_roll(tni_parser *p, int32_t *node) {
    tni_size by, ahead, behind, end;
    int32_t item, here, first, last;
    TN_TRY(comma(p, "by how much"));
    TN_TRY(tni_parse_size(p, &by));
    TN_TRY(comma(p, "the axis"));
    TN_TRY(take_axis(p, *node, &item));
    const tni_size begin = minus(&by), whole = size_of(p, item);
    const bool fits = tni_size_add(&whole, 1, &begin, &ahead) && tni_size_add(&begin, -1, &whole, &behind) &&
                      tni_size_add(&whole, 1, &by, &end);
    if (!fits) return tni_size_too_large(p, p->lex.token.at);
    TN_TRY(moved(p, item, &begin, TNI_ROLLED, *node, &here));
    TN_TRY(moved(p, item, &ahead, TNI_ZEROS_OUTSIDE, *node, &first));
    TN_TRY(moved(p, item, &behind, TNI_ZEROS_OUTSIDE, *node, &last));
    TN_TRY(join(p, item, &end, here, last, node));
    TN_TRY(join(p, item, &by, first, *node, node));
    return close_part(p);
}

static tn_status parse_flip(tni_parser *p, int32_t *node) {
    int32_t item;
    TN_TRY(comma(p, "the axis"));
    TN_TRY(take_axis(p, *node, &item));
    const tni_window window = {.from = item, .to = item, .begin = tni_size_of(0)};
    TN_TRY(make_part(p, TNI_P_FLIP, window, *node, -1, node));
    return close_part(p);
}

/* The last dimension of a value. */
static tn_status last_item(const tni_parser *p, int32_t at, int32_t node, int32_t *item) {
    value_dims dims;
    TN_TRY(dims_of(p, node, &dims));
    TN_TRY(check_number(p, at, &dims, dims.n - 1, true));
    *item = dims.n ? dims.item[dims.n - 1] : -1;
    return check_axis(p, at, node, *item);
}

/* rotate_half(x): [-x2, x1] of the halves [x1, x2] */
static tn_status parse_rotate_half(tni_parser *p, int32_t at, int32_t *node) {
    int32_t item, first, second;
    tni_size half;
    bool more;
    TN_TRY(tni_parse_take(p, ',', &more));
    TN_TRY(more ? take_axis(p, *node, &item) : last_item(p, at, *node, &item));
    const tni_size whole = size_of(p, item);
    if (!tni_size_scale(&whole, 1, 2, &half)) return tni_size_too_large(p, at);
    const tni_size back = minus(&half);
    TN_TRY(moved(p, item, &half, TNI_ZEROS_OUTSIDE, *node, &first));
    TN_TRY(moved(p, item, &back, TNI_ZEROS_OUTSIDE, *node, &second));
    TN_TRY(join(p, item, &half, tni_node1(p->g, TNI_P_NEG, first), second, node));
    return close_part(p);
}

/* chunk(x, k, axis)[i]: part i of k of the same size */
static tn_status parse_chunk(tni_parser *p, int32_t at, int32_t *node) {
    int32_t item;
    tni_size begin, end;
    bool more;
    TN_TRY(comma(p, "the number of parts"));
    const int64_t k = p->lex.token.value;
    if (!tni_parse_at(p, TNI_INT) || k < 1 || k > 1 << 16) return tni_lex_expected(&p->lex, "the number of parts");
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_take(p, ',', &more));
    TN_TRY(more ? take_axis(p, *node, &item) : last_item(p, at, *node, &item));
    TN_TRY(close_part(p));
    if (!tni_parse_at(p, '[')) return tni_lex_expected(&p->lex, "'[' and which part: chunk(x, 2, axis=-1)[0]");
    TN_TRY(tni_parse_next(p));
    const int64_t i = p->lex.token.value;
    if (!tni_parse_at(p, TNI_INT) || i >= k) return tni_lex_expected(&p->lex, "a part from 0 to %d", (int)k - 1);
    const tni_size whole = size_of(p, item);
    const bool fits = tni_size_scale(&whole, i, k, &begin) && tni_size_scale(&whole, i + 1, k, &end);
    if (!fits) return tni_size_too_large(p, at);
    TN_TRY(tni_parse_next(p));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "']'");
    TN_TRY(slice(p, at, item, &begin, &end, node));
    return tni_parse_next(p);
}

/* The item of another value that stands where `item` does in this one, counted from the end. */
static tn_status item_beside(const tni_parser *p, int32_t at, int32_t node, int32_t item, int32_t other,
                             int32_t *found) {
    value_dims of, dims;
    const int32_t root = root_of(&p->formula->axes, traced(p, node, item));
    *found = tni_item_or_part(p, other, root);
    if (*found >= 0) return check_axis(p, at, other, *found);
    if (is_single(p, other, root)) return TN_OK;
    TN_TRY(dims_of(p, node, &of));
    TN_TRY(dims_of(p, other, &dims));
    for (int32_t k = 1; k <= of.n && k <= dims.n && *found < 0; k++) {
        if (of.item[of.n - k] != item) continue;
        *found = dims.item[dims.n - k];
        TN_TRY(check_number(p, at, &of, of.n - k, true));
        TN_TRY(check_number(p, at, &dims, dims.n - k, true));
    }
    return check_axis(p, at, other, *found);
}

/* concat(a, b, …, axis=n) */
static tn_status parse_concat(tni_parser *p, int32_t at, int32_t *node) {
    enum { MOST = 16 };
    int32_t nodes[MOST] = {*node}, items[MOST], n = 1;
    tni_size all, done = tni_size_of(0);
    for (;;) {
        TN_TRY(comma(p, "the axis: concat(a, b, axis=-1)"));
        if (tni_lex_is(&p->lex, "axis") || tni_lex_is(&p->lex, "dim")) break;
        if (n == MOST) return tni_lex_fail(&p->lex, p->lex.token.at, "concat takes %d values at most", MOST);
        TN_TRY(tni_parse_expression(p, &nodes[n++]));
    }
    int32_t first = 0, whole;
    TN_TRY(pass_axis_word(p));
    if (tni_parse_at(p, TNI_NAME)) { /* it may be that only another one has more than one element */
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + p->lex.token.at, p->lex.token.length);
        while (named && first < n - 1 && tni_item_or_part(p, nodes[first], __builtin_ctz(named)) < 0) first++;
    }
    TN_TRY(take_axis(p, nodes[first], &whole));
    all = tni_size_of(0);
    uint64_t taken = 0;
    for (int32_t k = 0; k < n; k++) {
        TN_TRY(item_beside(p, at, nodes[first], whole, nodes[k], &items[k]));
        const tni_size size = size_of(p, items[k]);
        taken |= p->g->nodes[nodes[k]].extent.full & ~(items[k] < 0 ? 0 : (uint64_t)1 << items[k]);
        if (!tni_size_add(&all, 1, &size, &all)) return tni_size_too_large(p, at);
    }
    const int32_t to = tni_item_of_size(p->formula, &all, taken, whole);
    for (int32_t k = 0; k < n; k++) {
        const tni_size size = size_of(p, items[k]), begin = minus(&done);
        const tni_window window = {.from = items[k], .to = to, .begin = begin};
        int32_t part;
        TN_TRY(make_part(p, TNI_P_TAKE, window, nodes[k], -1, &part));
        if (k) TN_TRY(join(p, to, &done, *node, part, node));
        if (!k) *node = part;
        if (!tni_size_add(&done, 1, &size, &done)) return tni_size_too_large(p, at);
    }
    return close_part(p);
}

/* window(x, n, begin, size(n - 1)): result i is element begin + i, or 0; join(a, b, n, k): k elements of a, then b's */
static tn_status parse_window(tni_parser *p, int32_t *node) {
    tni_window window = {.bounds = TNI_ZEROS_OUTSIDE};
    bool sized;
    TN_TRY(comma(p, "the axis"));
    TN_TRY(tni_parse_sized_axis(p, &sized, &window.from));
    if (!sized) TN_TRY(take_axis(p, *node, &window.from));
    TN_TRY(comma(p, "where it begins"));
    TN_TRY(tni_parse_size(p, &window.begin));
    TN_TRY(comma(p, "what its size is"));
    TN_TRY(tni_parse_sized_axis(p, &sized, &window.to));
    if (!sized) {
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + p->lex.token.at, p->lex.token.length);
        if (!tni_parse_at(p, TNI_NAME) || !named) return tni_lex_expected(&p->lex, "a dimension, or size(n - 1)");
        window.to = __builtin_ctz(named);
        TN_TRY(tni_parse_next(p));
    }
    const bool both = window.to >= 0 && window.to != window.from && p->g->nodes[*node].extent.full >> window.to & 1;
    if (both) return tni_lex_fail(&p->lex, p->lex.token.at, "this value has a dimension of that size already");
    tni_note_part(p->formula, window.to, window.from);
    tni_note_part(p->formula, window.from, window.to);
    TN_TRY(make_part(p, TNI_P_TAKE, window, *node, -1, node));
    return close_part(p);
}

static tn_status parse_join(tni_parser *p, int32_t *node) {
    int32_t other, item;
    tni_size at;
    bool sized;
    TN_TRY(comma(p, "the other value"));
    TN_TRY(tni_parse_expression(p, &other));
    TN_TRY(comma(p, "the axis"));
    TN_TRY(tni_parse_sized_axis(p, &sized, &item));
    if (!sized) {
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + p->lex.token.at, p->lex.token.length);
        if (!tni_parse_at(p, TNI_NAME) || !named) return tni_lex_expected(&p->lex, "a dimension, or size(n - 1)");
        item = __builtin_ctz(named);
        TN_TRY(tni_parse_next(p));
    }
    TN_TRY(comma(p, "how many elements are of the first"));
    TN_TRY(tni_parse_size(p, &at));
    TN_TRY(join(p, item, &at, *node, other, node));
    return close_part(p);
}

static const char *const functions[] = {"shift",  "roll",   "flip", "rotate_half", "chunk",
                                        "concat", "window", "join", NULL};

bool tni_is_part_function(const char *name) {
    int i = 0;
    while (functions[i] && strcmp(functions[i], name) != 0) i++;
    return functions[i] != NULL;
}

tn_status tni_parse_part_call(tni_parser *p, const tni_token *at, const char *name, int32_t *node) {
    TN_TRY(need_names(p, at->at));
    TN_TRY(tni_parse_expression(p, node));
    if (strcmp(name, "shift") == 0) return parse_shift(p, node);
    if (strcmp(name, "roll") == 0) return parse_roll(p, node);
    if (strcmp(name, "flip") == 0) return parse_flip(p, node);
    if (strcmp(name, "rotate_half") == 0) return parse_rotate_half(p, at->at, node);
    if (strcmp(name, "chunk") == 0) return parse_chunk(p, at->at, node);
    if (strcmp(name, "concat") == 0) return parse_concat(p, at->at, node);
    return strcmp(name, "window") == 0 ? parse_window(p, node) : parse_join(p, node);
}
