/* Functions that move elements along a dimension or take a value apart: shift, roll, flip, rotate_half, chunk, halves,
 * split, concat. They become the same operations on windows as x[1:] does. */
#include <string.h>

#include "formula_parse.h"

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

/* Where `at` elements have come, the first argument's; `at` is kept between 0 and the size. */
static tn_status join(tni_parser *p, int32_t item, const tni_size *at, int32_t a, int32_t b, int32_t *node) {
    return tni_make_part(p, TNI_P_JOIN, (tni_window){.from = item, .to = item, .begin = *at}, a, b, node);
}

static tn_status moved(tni_parser *p, int32_t item, const tni_size *begin, tni_bounds bounds, int32_t a,
                       int32_t *node) {
    const tni_window window = {.from = item, .to = item, .begin = *begin, .bounds = bounds};
    return tni_make_part(p, TNI_P_TAKE, window, a, -1, node);
}

/* shift(x, k, axis), shift(x, k, axis, fill): element i - k, and what comes in is 0 or the fill value. */
static tn_status parse_shift(tni_parser *p, int32_t *node) {
    tni_size by, behind;
    int32_t item, fill;
    TN_TRY(comma(p, "by how much"));
    TN_TRY(tni_parse_size(p, &by));
    TN_TRY(comma(p, "the axis"));
    TN_TRY(tni_take_part_axis(p, *node, &item));
    const tni_size begin = tni_size_minus(&by), whole = tni_size_of_item(p, item);
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
    TN_TRY(tni_take_part_axis(p, *node, &item));
    const tni_size begin = tni_size_minus(&by), whole = tni_size_of_item(p, item);
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
    TN_TRY(tni_take_part_axis(p, *node, &item));
    const tni_window window = {.from = item, .to = item, .begin = tni_size_of(0)};
    TN_TRY(tni_make_part(p, TNI_P_FLIP, window, *node, -1, node));
    return close_part(p);
}

/* The last dimension of a value. */
static tn_status last_item(const tni_parser *p, int32_t at, int32_t node, int32_t *item) {
    tni_value_dims dims;
    TN_TRY(tni_value_dims_of(p, node, &dims));
    TN_TRY(tni_check_number(p, at, &dims, dims.n - 1, true));
    *item = dims.n ? dims.item[dims.n - 1] : -1;
    return tni_check_axis(p, at, node, *item);
}

/* rotate_half(x): [-x2, x1] of the halves [x1, x2] */
static tn_status parse_rotate_half(tni_parser *p, int32_t at, int32_t *node) {
    int32_t item, first, second;
    tni_size half;
    bool more;
    TN_TRY(tni_parse_take(p, ',', &more));
    TN_TRY(more ? tni_take_part_axis(p, *node, &item) : last_item(p, at, *node, &item));
    const tni_size whole = tni_size_of_item(p, item);
    if (!tni_size_scale(&whole, 1, 2, &half)) return tni_size_too_large(p, at);
    const tni_size back = tni_size_minus(&half);
    TN_TRY(moved(p, item, &half, TNI_ZEROS_OUTSIDE, *node, &first));
    TN_TRY(moved(p, item, &back, TNI_ZEROS_OUTSIDE, *node, &second));
    TN_TRY(join(p, item, &half, tni_node1(p->g, TNI_P_NEG, first), second, node));
    return close_part(p);
}

/* ---- several parts at once: chunk, halves, split ----------------------------------------------------------------- */

/* The parts of a value, one behind the other along an item: where each ends, or all of one size. */
typedef struct pieces {
    int32_t item, n;
    bool even;
    tni_size end[TNI_MOST_PIECES];
} pieces;

/* Where part i begins; where it ends part i + 1 does. */
static bool begin_of(const tni_parser *p, const pieces *all, int32_t i, tni_size *begin) {
    const tni_size whole = tni_size_of_item(p, all->item);
    if (all->even) return tni_size_scale(&whole, i, all->n, begin);
    *begin = i ? all->end[i - 1] : tni_size_of(0);
    return true;
}

static tn_status make_piece(tni_parser *p, int32_t at, const pieces *all, int32_t i, int32_t *node) {
    tni_range part = {.last = i == all->n - 1};
    const bool fits = begin_of(p, all, i, &part.begin) && begin_of(p, all, i + 1, &part.end);
    if (!fits) return tni_size_too_large(p, at);
    return tni_take_range(p, at, all->item, part, node);
}

/* `[i]` behind the call, or as many names in front of it as there are parts. */
static tn_status choose_piece(tni_parser *p, int32_t at, const pieces *all, int32_t *node) {
    const int32_t whole = *node;
    if (!tni_parse_at(p, '[') && p->n_targets == all->n) {
        p->n_pieces = all->n;
        for (int32_t i = 0; i < all->n; i++) {
            p->pieces[i] = whole;
            TN_TRY(make_piece(p, at, all, i, &p->pieces[i]));
        }
        *node = p->pieces[0];
        return TN_OK;
    }
    if (!tni_parse_at(p, '[')) {
        return tni_lex_expected(&p->lex, "'[' and which part it is, or the names of all %d: a, b, … = …", (int)all->n);
    }
    TN_TRY(tni_parse_next(p));
    const int64_t i = p->lex.token.value;
    if (!tni_parse_at(p, TNI_INT) || i >= all->n) {
        return tni_lex_expected(&p->lex, "a part from 0 to %d", (int)all->n - 1);
    }
    TN_TRY(tni_parse_next(p));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "']'");
    TN_TRY(make_piece(p, at, all, (int32_t)i, node));
    return tni_parse_next(p);
}

/* `, axis)`; without one it is the last dimension. */
static tn_status take_last_or(tni_parser *p, int32_t at, int32_t node, int32_t *item) {
    bool more;
    TN_TRY(tni_parse_take(p, ',', &more));
    TN_TRY(more ? tni_take_part_axis(p, node, item) : last_item(p, at, node, item));
    return close_part(p);
}

/* chunk(x, k, axis): k parts of the same size; halves(x, axis): two */
static tn_status parse_chunk(tni_parser *p, int32_t at, bool halves, int32_t *node) {
    pieces all = {.n = 2, .even = true};
    if (!halves) {
        TN_TRY(comma(p, "the number of parts"));
        const int64_t k = p->lex.token.value;
        if (!tni_parse_at(p, TNI_INT) || k < 1 || k > 1 << 16) return tni_lex_expected(&p->lex, "the number of parts");
        all.n = (int32_t)k;
        TN_TRY(tni_parse_next(p));
    }
    TN_TRY(take_last_or(p, at, *node, &all.item));
    return choose_piece(p, at, &all, node);
}

/* split(x, [4, n, 2 * k], axis): parts of these sizes */
static tn_status parse_split(tni_parser *p, int32_t at, int32_t *node) {
    pieces all = {.n = 0};
    TN_TRY(comma(p, "the sizes of the parts"));
    if (!tni_parse_at(p, '[')) {
        return tni_lex_fail(&p->lex, p->lex.token.at,
                            "split takes a list of sizes, split(x, [2, 4]); chunk(x, 3) makes 3 parts of the same "
                            "size");
    }
    do {
        tni_size size;
        if (all.n == TNI_MOST_PIECES) return tni_lex_fail(&p->lex, at, "more than %d parts", TNI_MOST_PIECES);
        TN_TRY(tni_parse_next(p));
        TN_TRY(tni_parse_size(p, &size));
        const tni_size before = all.n ? all.end[all.n - 1] : tni_size_of(0);
        if (!tni_size_add(&before, 1, &size, &all.end[all.n++])) return tni_size_too_large(p, at);
    } while (tni_parse_at(p, ','));
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' behind a size");
    TN_TRY(tni_parse_next(p));
    TN_TRY(take_last_or(p, at, *node, &all.item));
    return choose_piece(p, at, &all, node);
}

/* The item of another value that stands where `item` does in this one, counted from the end. */
static tn_status item_beside(const tni_parser *p, int32_t at, int32_t node, int32_t item, int32_t other,
                             int32_t *found) {
    tni_value_dims of, dims;
    const int32_t root = tni_root_of(&p->formula->axes, tni_traced(p, node, item));
    *found = tni_item_or_part(p, other, root);
    if (*found >= 0) return tni_check_axis(p, at, other, *found);
    if (tni_is_single(p, other, root)) return TN_OK;
    TN_TRY(tni_value_dims_of(p, node, &of));
    TN_TRY(tni_value_dims_of(p, other, &dims));
    for (int32_t k = 1; k <= of.n && k <= dims.n && *found < 0; k++) {
        if (of.item[of.n - k] != item) continue;
        *found = dims.item[dims.n - k];
        TN_TRY(tni_check_number(p, at, &of, of.n - k, true));
        TN_TRY(tni_check_number(p, at, &dims, dims.n - k, true));
    }
    return tni_check_axis(p, at, other, *found);
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
    TN_TRY(tni_pass_axis_word(p));
    if (tni_parse_at(p, TNI_NAME)) { /* it may be that only another one has more than one element */
        const uint32_t named = tni_items_named(&p->formula->axes, p->lex.text + p->lex.token.at, p->lex.token.length);
        while (named && first < n - 1 && tni_item_or_part(p, nodes[first], __builtin_ctz(named)) < 0) first++;
    }
    TN_TRY(tni_take_part_axis(p, nodes[first], &whole));
    all = tni_size_of(0);
    uint64_t taken = 0;
    for (int32_t k = 0; k < n; k++) {
        TN_TRY(item_beside(p, at, nodes[first], whole, nodes[k], &items[k]));
        const tni_size size = tni_size_of_item(p, items[k]);
        taken |= p->g->nodes[nodes[k]].extent.full & ~(items[k] < 0 ? 0 : (uint64_t)1 << items[k]);
        if (!tni_size_add(&all, 1, &size, &all)) return tni_size_too_large(p, at);
    }
    const int32_t to = tni_item_of_size(p->formula, &all, taken, whole);
    for (int32_t k = 0; k < n; k++) {
        const tni_size size = tni_size_of_item(p, items[k]), begin = tni_size_minus(&done);
        const tni_window window = {.from = items[k], .to = to, .begin = begin};
        int32_t part;
        TN_TRY(tni_make_part(p, TNI_P_TAKE, window, nodes[k], -1, &part));
        if (k) TN_TRY(join(p, to, &done, *node, part, node));
        if (!k) *node = part;
        if (!tni_size_add(&done, 1, &size, &done)) return tni_size_too_large(p, at);
    }
    return close_part(p);
}

static tn_status take_count(tni_parser *p, int32_t *made) {
    if (!tni_parse_at(p, TNI_INT) || p->lex.token.value < 1 || p->lex.token.value > 1 << 20) {
        return tni_lex_expected(&p->lex, "a step: 2, or 1 / 2");
    }
    *made = (int32_t)p->lex.token.value;
    return tni_parse_next(p);
}

/* `, 2`, `, 1 / 2`: the step of a window. */
static tn_status take_step(tni_parser *p, tni_window *window) {
    bool more;
    TN_TRY(tni_parse_take(p, ',', &more));
    if (more) TN_TRY(take_count(p, &window->step));
    if (more) TN_TRY(tni_parse_take(p, '/', &window->spreads));
    return window->spreads ? take_count(p, &window->step) : TN_OK;
}

/* window(x, n, begin, size(n - 1)): result i is element begin + i, or 0; with a step of 2 element begin + 2 * i, and
 * with 1 / 2 element (begin + i) / 2 where there is one; join(a, b, n, k): k elements of a, then b's */
static tn_status parse_window(tni_parser *p, int32_t *node) {
    tni_window window = {.bounds = TNI_ZEROS_OUTSIDE};
    bool sized;
    TN_TRY(comma(p, "the axis"));
    TN_TRY(tni_parse_sized_axis(p, &sized, &window.from));
    if (!sized) TN_TRY(tni_take_part_axis(p, *node, &window.from));
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
    TN_TRY(take_step(p, &window));
    const bool both = window.to >= 0 && window.to != window.from && p->g->nodes[*node].extent.full >> window.to & 1;
    if (both) return tni_lex_fail(&p->lex, p->lex.token.at, "this value has a dimension of that size already");
    tni_note_part(p->formula, window.to, window.from);
    tni_note_part(p->formula, window.from, window.to);
    TN_TRY(tni_make_part(p, TNI_P_TAKE, window, *node, -1, node));
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

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Where a function has its axis: behind so many arguments. `last`: without one it goes along the last dimension. */
static const struct part_function {
    const char *name;
    int axis;
    bool last;
} functions[] = {{"shift", 2, false},  {"roll", 2, false},  {"flip", 1, false}, {"rotate_half", 1, true},
                 {"chunk", 2, true},   {"halves", 1, true}, {"split", 2, true}, {"concat", -1, false},
                 {"window", 1, false}, {"join", 2, false},  {NULL, 0, false}};

static const struct part_function *function_named(const char *name) {
    int i = 0;
    while (functions[i].name && strcmp(functions[i].name, name) != 0) i++;
    return functions[i].name ? &functions[i] : NULL;
}

bool tni_is_part_function(const char *name) {
    return function_named(name) != NULL;
}

/* `-1` or `0`: a name for this dimension, from the end or from the front. */
static tn_status note_axis(tni_parser *p) {
    bool minus;
    TN_TRY(tni_parse_take(p, '-', &minus));
    const int64_t k = p->lex.token.value;
    if (!tni_parse_at(p, TNI_INT) || k >= TN_MAX_RANK || (minus && k == 0)) {
        return tni_lex_expected(&p->lex, "the number of a dimension; names of dimensions are for formulas with a "
                                         "contract in front");
    }
    int32_t *most = minus ? &p->formula->n_back : &p->formula->n_front;
    const int32_t wanted = (int32_t)(minus ? k : k + 1);
    if (wanted > *most) *most = wanted;
    return tni_parse_next(p);
}

/* Sizes, in brackets or not, or another value. */
static tn_status pass_argument(tni_parser *p, const struct part_function *function, int32_t place) {
    int32_t node;
    tni_size size;
    const bool list = tni_parse_at(p, '['), value = function->axis < 0 || place > function->axis;
    if (value) return tni_parse_expression(p, &node);
    do {
        if (list) TN_TRY(tni_parse_next(p));
        TN_TRY(tni_parse_size(p, &size));
    } while (list && tni_parse_at(p, ','));
    if (!list) return TN_OK;
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' behind a size");
    return tni_parse_next(p);
}

/* Without a contract: which dimension needs a name, behind the first argument. The formula is read again with it. */
static tn_status note_call(tni_parser *p, const struct part_function *function, int32_t node) {
    bool given = false;
    p->formula->takes_parts = true;
    for (int32_t place = 1; tni_parse_at(p, ','); place++) {
        TN_TRY(tni_parse_next(p));
        const int32_t at = p->lex.token.at;
        TN_TRY(tni_pass_axis_word(p));
        const bool axis = p->lex.token.at != at || place == function->axis;
        given |= axis;
        TN_TRY(axis ? note_axis(p) : pass_argument(p, function, place));
    }
    TN_TRY(close_part(p));
    if (!given && !function->last) {
        return tni_lex_expected(&p->lex, "the axis: %s(x, …, axis=-1)", function->name);
    }
    if (!given && p->formula->n_back < 1) p->formula->n_back = 1;
    const bool several = function->last && strcmp(function->name, "rotate_half") != 0;
    if (!several) return TN_OK;
    if (tni_parse_at(p, '[')) {
        while (!tni_parse_at(p, ']') && !tni_parse_at(p, TNI_END)) TN_TRY(tni_parse_next(p));
        return tni_parse_at(p, ']') ? tni_parse_next(p) : tni_lex_expected(&p->lex, "']'");
    }
    p->n_pieces = p->n_targets;
    for (int32_t i = 0; i < p->n_pieces; i++) p->pieces[i] = node;
    return TN_OK;
}

tn_status tni_parse_part_call(tni_parser *p, const tni_token *at, const char *name, int32_t *node) {
    const struct part_function *function = function_named(name);
    if (p->typed || strcmp(name, "window") == 0 || strcmp(name, "join") == 0) TN_TRY(tni_need_names(p, at->at));
    TN_TRY(tni_parse_expression(p, node));
    if (!p->typed) return note_call(p, function, *node);
    if (strcmp(name, "shift") == 0) return parse_shift(p, node);
    if (strcmp(name, "roll") == 0) return parse_roll(p, node);
    if (strcmp(name, "flip") == 0) return parse_flip(p, node);
    if (strcmp(name, "rotate_half") == 0) return parse_rotate_half(p, at->at, node);
    if (strcmp(name, "chunk") == 0) return parse_chunk(p, at->at, false, node);
    if (strcmp(name, "halves") == 0) return parse_chunk(p, at->at, true, node);
    if (strcmp(name, "split") == 0) return parse_split(p, at->at, node);
    if (strcmp(name, "concat") == 0) return parse_concat(p, at->at, node);
    return strcmp(name, "window") == 0 ? parse_window(p, node) : parse_join(p, node);
}
