/* What stands in the brackets of a call: values, and behind the first one how far a reduction goes, by the numbers or
 * the names of dimensions. */
#include <stdio.h>
#include <string.h>

#include "formula_parse.h"

/* ---- arguments --------------------------------------------------------------------------------------------------- */

tn_status tni_close_call(tni_parser *p, const char *what) {
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "%s", what);
    p->brackets--;
    return tni_parse_next(p);
}

/* max(x, 0) is the larger of two to one reader, and the maximum along dimension 0 to another. */
static tn_status two_meanings(const tni_parser *p, int32_t at, const char *name, bool minus, int64_t number) {
    const char *what = strcmp(name, "max") == 0 ? "largest" : "smallest",
               *of_two = name[1] == 'a' ? "larger" : "smaller";
    const char *sign = minus ? "-" : "";
    return tni_lex_fail(&p->lex, at,
                        "%s(…, %s%lld) can mean two things: %s(…, axis=%s%lld) is the %s along that dimension, "
                        "%simum(…, %s%lld) the %s of the two",
                        name, sign, (long long)number, name, sign, (long long)number, what, name, sign,
                        (long long)number, of_two);
}

bool tni_begins_list(const tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    return s[strspn(s, " ")] == '[';
}

void tni_go_to_list(tni_parser *p) {
    int32_t at = p->lex.token.at + p->lex.token.length;
    at += (int32_t)strspn(p->lex.text + at, " ");
    p->lex.token = (tni_token){.kind = '[', .at = at, .length = 1};
}

/* keepdim=True, inplace=True: Python has arguments by name. */
static tn_status refuse_named(const tni_parser *p, const char *name) {
    const tni_token *token = &p->lex.token;
    const char *s = p->lex.text + token->at + token->length;
    s += strspn(s, " ");
    if (token->kind != TNI_NAME || s[0] != '=' || s[1] == '=') return TN_OK;
    if (tni_lex_is(&p->lex, "keepdim") || tni_lex_is(&p->lex, "keepdims")) {
        return tni_lex_fail(&p->lex, token->at, "leave it out: inside of a formula the dimension stays, with size 1");
    }
    if (strcmp(name, "var") == 0) {
        return tni_lex_fail(&p->lex, token->at, "leave it out: var divides by the count");
    }
    return tni_lex_fail(&p->lex, token->at, "%s takes its arguments by their order, without names", name);
}

/* The items of the formula's shapes that stand here, as bits: n of [n, *s], s, or a part of one, `c / groups`. `last`
 * is the last token of it. */
static uint32_t items_at(const tni_parser *p, tni_token *last) {
    tni_lexer ahead = p->lex;
    char words[2 * TNI_MAX_NAME + 8];
    *last = p->lex.token;
    if (last->kind != TNI_NAME || !p->formula || !p->g->items[0]) return 0;
    const tni_axes *axes = &p->formula->axes;
    const tni_token first = p->lex.token;
    const bool parts = tni_lex_next(&ahead) == TN_OK && ahead.token.kind == '/' && tni_lex_next(&ahead) == TN_OK &&
                       ahead.token.kind == TNI_NAME;
    if (parts) {
        const int length = snprintf(words, sizeof words, "%.*s / %.*s", (int)first.length, p->lex.text + first.at,
                                    (int)ahead.token.length, p->lex.text + ahead.token.at);
        const uint32_t part = tni_items_named(axes, words, length);
        if (part) *last = ahead.token;
        if (part) return part;
    }
    return tni_items_named(axes, p->lex.text + first.at, first.length);
}

static tn_status not_an_axis(const tni_parser *p, const char *name) {
    if (!p->formula->contract) {
        return tni_lex_expected(&p->lex, "a number for the axis of %s: -1 is the last dimension, 0 the first", name);
    }
    return tni_lex_expected(&p->lex, "a dimension of the signature or its number for the axis of %s", name);
}

/* One axis: -1, 0, or the name of a dimension. */
tn_status tni_take_axis(tni_parser *p, const char *name, tni_axes_given *made) {
    tni_token last;
    bool sized;
    int32_t item = -1;
    made->any = true;
    TN_TRY(tni_parse_sized_axis(p, &sized, &item));
    if (sized) {
        made->items |= item >= 0 ? 1u << item : 0;
        return TN_OK;
    }
    const uint32_t items = items_at(p, &last);
    if (items) {
        made->items |= items;
        p->lex.token = last;
        return tni_parse_next(p);
    }
    bool minus;
    TN_TRY(tni_parse_take(p, '-', &minus));
    if (!tni_parse_at(p, TNI_INT)) return not_an_axis(p, name);
    int64_t number = p->lex.token.value, most = minus ? TN_MAX_RANK : TN_MAX_RANK - 1;
    if (number > most || (minus && number == 0)) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "%s%lld is no axis: there are at most %d dimensions",
                            minus ? "-" : "", (long long)number, TN_MAX_RANK);
    }
    *(minus ? &made->back : &made->front) |= 1u << (minus ? number - 1 : number);
    return tni_parse_next(p);
}

/* `-1`, `[0, 2]`, `n`: moves behind it. */
static tn_status take_axes(tni_parser *p, const char *name, tni_axes_given *made) {
    if (!tni_parse_at(p, '[')) return tni_take_axis(p, name, made);
    for (bool more = true; more;) {
        TN_TRY(tni_parse_next(p));
        TN_TRY(tni_take_axis(p, name, made));
        more = tni_parse_at(p, ',');
    }
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' after an axis");
    return tni_parse_next(p);
}

/* `-1 )`, `dim = -1 )`, `axis = [0, 2] )`, `n )`: moves over it up to the bracket. */
tn_status tni_take_reach(tni_parser *p, const char *name, tni_arguments *args) {
    tni_token begin = p->lex.token;
    bool named = tni_lex_is(&p->lex, "dim") || tni_lex_is(&p->lex, "axis");
    if (named) {
        TN_TRY(tni_parse_next(p));
        named = tni_parse_at(p, '=');
        if (named && tni_begins_list(p)) {
            tni_go_to_list(p);
        } else if (named) {
            TN_TRY(tni_parse_next(p));
        } else {
            p->lex.token = begin;
        }
    }
    int32_t at = args->axes_at = p->lex.token.at;
    bool pairs = strcmp(name, "max") == 0 || strcmp(name, "min") == 0;
    bool index = strcmp(name, "index") == 0; /* there a dimension may stand alone, whatever else is called so */
    if (!named && !tni_parse_at(p, '[')) {   /* a number alone, or the name of a dimension that is no value */
        tni_token first = p->lex.token;
        char word[TNI_MAX_NAME + 1] = "";
        memcpy(word, p->lex.text + at, first.kind == TNI_NAME ? (size_t)first.length : 0);
        tni_token last;
        bool dimension = items_at(p, &last) && (index || !tni_names_value(p, word)), minus = tni_parse_at(p, '-');
        if (minus) TN_TRY(tni_parse_next(p));
        bool whole = tni_parse_at(p, TNI_INT);
        int64_t number = p->lex.token.value;
        if (dimension) p->lex.token = last;
        if (whole || dimension) TN_TRY(tni_parse_next(p));
        bool alone = (whole || dimension) && (tni_parse_at(p, ')') || (tni_parse_at(p, ',') && !pairs && !index));
        p->lex.token = alone ? first : begin;
        if (alone && pairs && !dimension) return two_meanings(p, at, name, minus, number);
        if (!alone) return TN_OK;
    }
    TN_TRY(take_axes(p, name, &args->axes));
    if (!tni_parse_at(p, ',')) return TN_OK;
    TN_TRY(tni_parse_next(p));
    TN_TRY(refuse_named(p, name));
    return tni_lex_expected(&p->lex, "')': nothing stands behind the axis, and several are written axis=[0, 1]");
}

tn_status tni_parse_arguments(tni_parser *p, const char *name, bool reduction, tni_arguments *made) {
    *made = (tni_arguments){.count = 0};
    if (tni_parse_at(p, ')')) return tni_close_call(p, "");
    for (bool more = true; more;) {
        if (made->count == TNI_MOST_ARGUMENTS) {
            return tni_lex_fail(&p->lex, p->lex.token.at, "%s has too many arguments", name);
        }
        if (made->count == 1 && reduction) TN_TRY(tni_take_reach(p, name, made));
        if (made->axes.any) break;
        TN_TRY(refuse_named(p, name));
        bool condition = made->count == 0 && strcmp(name, "where") == 0;
        int32_t *node = &made->nodes[made->count++];
        TN_TRY(condition ? tni_parse_condition(p, node) : tni_parse_expression(p, node));
        more = tni_parse_at(p, ',');
        if (more && reduction && made->count == 1 && tni_begins_list(p)) {
            tni_go_to_list(p);
        } else if (more) {
            TN_TRY(tni_parse_next(p));
        }
    }
    return tni_close_call(p, "',' or ')' after an argument");
}

tn_status tni_wrong_count(tni_parser *p, const tni_token *at, const char *name, int wanted, int given) {
    static const char *const calls[] = {"clamp(x, low, high)", "where(c, a, b)", "max(a, b)", "min(a, b)"};
    const char *call = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t n = strlen(name);
        if (strncmp(calls[i], name, n) == 0 && calls[i][n] == '(') call = calls[i];
    }
    return tni_lex_fail(&p->lex, at->at, "%s takes %d argument%s, found %d%s%s", name, wanted, wanted == 1 ? "" : "s",
                        given, call ? ": " : "", call ? call : "");
}

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

/* Is the last dimension gone because a reduction took it, and not because this was never along it? */
static bool was_reduced(const tni_graph *g, int32_t node) {
    bool reach[TNI_FUSE_NODES] = {false};
    reach[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        if (!reach[i]) continue;
        if (tni_is_reduction(g->nodes[i].op) || g->nodes[i].op == TNI_P_TAKE) return true;
        for (int k = 0; k < TNI_NODE_ARGS; k++) {
            if (g->nodes[i].arg[k] >= 0) reach[g->nodes[i].arg[k]] = true;
        }
    }
    return false;
}

/* What it goes along, this must have, or have had. */
static tn_status check_items(tni_parser *p, int32_t at, const char *name, int32_t node, uint64_t items) {
    if (node < 0) return TN_OK; /* a position has what it goes along */
    const tni_extent extent = p->g->nodes[node].extent;
    const uint64_t lacks = items & ~(extent.full | extent.row);
    if (!lacks || tni_is_scalar(extent) || was_reduced(p->g, node)) return TN_OK;
    const char *key = p->formula->axes.items[__builtin_ctzll(lacks)].key;
    return tni_lex_fail(&p->lex, at, "%s goes along %s, a dimension of the formula which this has not", name, key);
}

/* Axis k from the front or from the end, as an item: no pack may stand in between. */
static tn_status item_of_axis(tni_parser *p, int32_t at, bool back, int32_t k, uint32_t *items) {
    const tni_axes *axes = &p->formula->axes;
    int32_t n = 0; /* dimensions; the two parts of one are one */
    for (int32_t i = 0; i < axes->n_own; n++) {
        const int32_t item = back ? axes->n_own - 1 - i : i;
        const char *whole = axes->items[item].whole, *key = whole ? whole : axes->items[item].key;
        if (axes->items[item].pack) {
            return tni_lex_fail(&p->lex, at, "dimension %d is one of %s or beyond them: name it, as in sum(x, axis=%s)",
                                back ? -1 - k : k, key, key + 1);
        }
        if (axes->items[item].loose) {
            return tni_lex_fail(&p->lex, at,
                                "which dimension is %d, the signature does not say, as no argument has all of them: "
                                "name it, as in sum(x, axis=%s)",
                                back ? -1 - k : k, key);
        }
        if (n == k) {
            *items |= whole ? 3u << (back ? item - 1 : item) : 1u << item;
            return TN_OK;
        }
        i += whole ? 2 : 1;
    }
    return tni_lex_fail(&p->lex, at, "there is no dimension %d: the formula has %d", back ? -1 - k : k, n);
}

/* Along n a part x[1:] has n - 1. */
static uint32_t with_parts(const tni_parser *p, int32_t node, uint32_t items) {
    uint32_t made = items;
    for (int32_t i = 0; i < p->formula->axes.n_items; i++) {
        const int32_t own = items >> i & 1 ? tni_item_or_part(p, node, i) : -1;
        if (own >= 0 && own != i) made = (made & ~(1u << i)) | 1u << own;
    }
    return made;
}

/* Does the value say by itself which dimensions it has? That of a formula with parts does, and what has a dimension
 * that no argument has, or has in a place: top_k(x, k=3). */
static bool counts_own(const tni_parser *p, int32_t node) {
    const tni_axes *axes = &p->formula->axes;
    if (node < 0 || p->formula->windows) return node >= 0;
    const uint64_t has = p->g->nodes[node].extent.full;
    for (int32_t i = 0; i < axes->n_items && p->g->n_calls; i++) {
        if (has >> i & 1 && (i >= axes->n_own || axes->items[i].loose)) return true;
    }
    return false;
}

/* Of a formula whose dimensions have names. */
static tn_status reach_by_name(tni_parser *p, const char *name, const tni_arguments *args, int *reach) {
    const tni_axes_given *given = &args->axes;
    const int32_t last = p->formula->axes.n_own - 1;
    uint32_t items = given->items;
    const bool of_part = counts_own(p, args->nodes[0]);
    const bool row = given->back == 1 && !given->front && !items && last >= 0;
    const bool several = row && p->formula->axes.items[last].pack && !p->formula->axes.items[last].part;
    if (several && !p->formula->axes.items[last].loose) {
        *reach = TNI_OVER_ROW;
        return check_items(p, args->axes_at, name, args->nodes[0], (uint64_t)1 << last);
    }
    for (int32_t k = 0; k < TN_MAX_RANK; k++) {
        for (int back = 0; back < 2; back++) {
            if (!((back ? given->back : given->front) >> k & 1)) continue;
            /* What has parts says by itself which dimensions it has. */
            int32_t own = -1;
            if (of_part) TN_TRY(tni_item_at(p, args->axes_at, args->nodes[0], back, k, &own));
            if (own < 0) TN_TRY(item_of_axis(p, args->axes_at, back, k, &items));
            if (own >= 0) items |= 1u << own;
        }
    }
    if (of_part) items = with_parts(p, args->nodes[0], items);
    TN_TRY(check_items(p, args->axes_at, name, args->nodes[0], items));
    const bool tail = items == 1u << last && !p->formula->axes.items[last].pack;
    *reach = tail ? TNI_OVER_ROW : items == p->g->all ? TNI_OVER_ALL : tni_over_items(items);
    return TN_OK;
}

/* Without a signature the dimensions get names when all axes are known: fuse.c reads the formula again then. */
tn_status tni_reach_of(tni_parser *p, const char *name, const tni_arguments *args, int *reach) {
    tni_fuse *f = p->formula;
    const tni_axes_given *given = &args->axes;
    *reach = TNI_OVER_ALL;
    if (!given->any) return TN_OK;
    const bool row = given->back == 1 && !given->front && !given->items;
    if (p->named || (p->typed && !f->axes.numpy && !f->axes.list)) return reach_by_name(p, name, args, reach);
    if (row) *reach = TNI_OVER_ROW;
    if (p->typed && !row) {
        return tni_lex_fail(&p->lex, args->axes_at,
                            "%s goes along the last dimension, -1, or over everything here: the signature gives the "
                            "others no names, as x: T[n, c] does",
                            name);
    }
    if (p->typed) return TN_OK;
    f->names_axes |= !row;
    while (given->front >> f->n_front) f->n_front++;
    while (given->back >> f->n_back) f->n_back++;
    return TN_OK;
}
