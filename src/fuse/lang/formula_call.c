/* Calls of functions: has, rand, casts, reductions, primitives and the functions that are formulas themselves. */
#include <string.h>

#include "core/table/activation_names.h"
#include "formula_parse.h"

enum { MOST_ARGUMENTS = 3 };

/* ---- names of functions ------------------------------------------------------------------------------------------ */

static bool is_function(int op) {
    const tni_prim_row *row = &tni_prims[op];
    return row->kind == TNI_RESHAPE || (row->kind == TNI_ELEMENTWISE && row->binds == 0);
}

/* What is written with a second argument that says how far it goes. */
static bool is_reduction(int op) {
    return tni_is_reduction(op) || op == TNI_P_COUNT;
}

static int op_named(const char *name, bool (*which)(int op)) {
    for (int op = 0; op < TNI_PRIMS; op++) {
        if (which(op) && strcmp(tni_prims[op].name, name) == 0) return op;
    }
    return -1;
}

/* One that takes as many arguments, or else one of that name. */
static const tni_composite *composite_named(const char *name, int32_t arguments) {
    const tni_composite *found = NULL;
    for (const tni_composite *c = tni_composites; c->name; c++) {
        if (strcmp(c->name, name) == 0 && (!found || c->arity == arguments)) found = c;
    }
    return found;
}

static tn_type cast_named(const char *name) {
    tn_type type = tn_type_named(name);
    return type == TN_C64 || type == TN_C128 || type == TN_U64 ? TN_NO_TYPE : type;
}

bool tni_is_function(const char *name) {
    return op_named(name, is_function) >= 0 || composite_named(name, 1) || op_named(name, is_reduction) >= 0 ||
           cast_named(name) != TN_NO_TYPE || strcmp(name, "has") == 0 || strcmp(name, "rand") == 0;
}

const char *tni_function_name(int i) {
    if (i < TNI_PRIMS) return is_function(i) || is_reduction(i) ? tni_prims[i].name : "";
    i -= TNI_PRIMS;
    if (i < TN_TYPE_COUNT) return i && cast_named(tn_type_name((tn_type)i)) ? tn_type_name((tn_type)i) : "";
    i -= TN_TYPE_COUNT;
    return i == 0 ? "has" : i == 1 ? "rand" : NULL;
}

tn_status tni_fail_with(tni_parser *p, int32_t at, tni_text *text) {
    tn_status status = text->failed ? TN_NO_MEMORY : tni_lex_fail(&p->lex, at, "%s", text->data);
    tni_free(text->data);
    return status;
}

static tn_status unknown_function(tni_parser *p, const tni_token *at, const char *name) {
    tni_text text = {0};
    bool known = tni_find_name(p, name) != NULL;
    tni_text_add(&text, known ? "'%s' is a value; a product is written with '*'" : "there is no function '%s'", name);
    if (!known && tni_defines_function(p->lex.text + at->at)) {
        tni_text_add(&text, "; a formula with a name and inputs is written %s(x) : …", name);
    } else if (!known) {
        tni_hint_function(&text, name);
    }
    return tni_fail_with(p, at->at, &text);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Axes that a reduction is given: bits by their number from the front, from the end (bit 0: the last), or of items. */
typedef struct axes_given {
    bool any;
    uint32_t front, back, items;
} axes_given;

typedef struct arguments {
    int32_t count, nodes[MOST_ARGUMENTS];
    axes_given axes; /* behind the first one */
    int32_t axes_at;
} arguments;

static tn_status close_call(tni_parser *p, const char *what) {
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

/* The item of the formula's shapes that a word names, n of [n, *s] or s; -1: none. */
static int32_t item_at(const tni_parser *p) {
    const tni_token *token = &p->lex.token;
    for (int k = 0; token->kind == TNI_NAME && k < TN_MAX_RANK; k++) {
        const char *key = p->g->items[k] ? p->g->items[k] + (p->g->items[k][0] == '*') : "";
        if ((int32_t)strlen(key) == token->length && strncmp(key, p->lex.text + token->at, strlen(key)) == 0) return k;
    }
    return -1;
}

static tn_status not_an_axis(const tni_parser *p, const char *name) {
    if (!p->formula->contract) {
        return tni_lex_expected(&p->lex, "a number for the axis of %s: -1 is the last dimension, 0 the first", name);
    }
    return tni_lex_expected(&p->lex, "a dimension of the signature or its number for the axis of %s", name);
}

/* One axis: -1, 0, or the name of a dimension. */
static tn_status take_axis(tni_parser *p, const char *name, axes_given *made) {
    int32_t item = item_at(p);
    made->any = true;
    if (item >= 0) {
        made->items |= 1u << item;
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
static tn_status take_axes(tni_parser *p, const char *name, axes_given *made) {
    if (!tni_parse_at(p, '[')) return take_axis(p, name, made);
    for (bool more = true; more;) {
        TN_TRY(tni_parse_next(p));
        TN_TRY(take_axis(p, name, made));
        more = tni_parse_at(p, ',');
    }
    if (!tni_parse_at(p, ']')) return tni_lex_expected(&p->lex, "',' or ']' after an axis");
    return tni_parse_next(p);
}

/* `-1 )`, `dim = -1 )`, `axis = [0, 2] )`, `n )`: moves over it up to the bracket. */
static tn_status take_reach(tni_parser *p, const char *name, arguments *args) {
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
    if (!named && !tni_parse_at(p, '[')) { /* a number alone, or the name of a dimension that is no value */
        tni_token first = p->lex.token;
        char word[TNI_MAX_NAME + 1] = "";
        memcpy(word, p->lex.text + at, first.kind == TNI_NAME ? (size_t)first.length : 0);
        bool dimension = item_at(p) >= 0 && !tni_names_value(p, word), minus = tni_parse_at(p, '-');
        if (minus) TN_TRY(tni_parse_next(p));
        bool whole = tni_parse_at(p, TNI_INT);
        int64_t number = p->lex.token.value;
        if (whole || dimension) TN_TRY(tni_parse_next(p));
        bool alone = (whole || dimension) && (tni_parse_at(p, ')') || (tni_parse_at(p, ',') && !pairs));
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

static tn_status parse_arguments(tni_parser *p, const char *name, bool reduction, arguments *made) {
    *made = (arguments){.count = 0};
    if (tni_parse_at(p, ')')) return close_call(p, "");
    for (bool more = true; more;) {
        if (made->count == MOST_ARGUMENTS) {
            return tni_lex_fail(&p->lex, p->lex.token.at, "%s has too many arguments", name);
        }
        if (made->count == 1 && reduction) TN_TRY(take_reach(p, name, made));
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
    return close_call(p, "',' or ')' after an argument");
}

static tn_status wrong_count(tni_parser *p, const tni_token *at, const char *name, int wanted, int given) {
    static const char *const calls[] = {"clamp(x, low, high)", "where(c, a, b)", "max(a, b)", "min(a, b)"};
    const char *call = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t n = strlen(name);
        if (strncmp(calls[i], name, n) == 0 && calls[i][n] == '(') call = calls[i];
    }
    return tni_lex_fail(&p->lex, at->at, "%s takes %d argument%s, found %d%s%s", name, wanted, wanted == 1 ? "" : "s",
                        given, call ? ": " : "", call ? call : "");
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Is the last dimension gone because a reduction took it, and not because this was never along it? */
static bool was_reduced(const tni_graph *g, int32_t node) {
    bool reach[TNI_FUSE_NODES] = {false};
    reach[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        if (!reach[i]) continue;
        if (tni_is_reduction(g->nodes[i].op)) return true;
        for (int k = 0; k < 3; k++) {
            if (g->nodes[i].arg[k] >= 0) reach[g->nodes[i].arg[k]] = true;
        }
    }
    return false;
}

/* What it goes along, this must have, or have had. */
static tn_status check_items(tni_parser *p, int32_t at, const char *name, int32_t node, uint64_t items) {
    const tni_extent extent = p->g->nodes[node].extent;
    const uint64_t lacks = items & ~(extent.full | extent.row);
    if (!lacks || tni_is_scalar(extent) || was_reduced(p->g, node)) return TN_OK;
    const char *key = p->formula->axes.items[__builtin_ctzll(lacks)].key;
    return tni_lex_fail(&p->lex, at, "%s goes along %s, a dimension of the formula which this has not", name, key);
}

/* Axis k from the front or from the end, as an item: no pack may stand in between. */
static tn_status item_of_axis(tni_parser *p, int32_t at, bool back, int32_t k, uint32_t *items) {
    const tni_axes *axes = &p->formula->axes;
    for (int32_t i = 0; i < axes->n_items; i++) {
        const int32_t item = back ? axes->n_items - 1 - i : i;
        if (axes->items[item].pack) {
            return tni_lex_fail(&p->lex, at, "dimension %d is one of %s or beyond them: name it, as in sum(x, axis=%s)",
                                back ? -1 - k : k, axes->items[item].key, axes->items[item].key + 1);
        }
        if (i == k) {
            *items |= 1u << item;
            return TN_OK;
        }
    }
    return tni_lex_fail(&p->lex, at, "there is no dimension %d: the formula has %d", back ? -1 - k : k, axes->n_items);
}

/* Of a formula whose dimensions have names. */
static tn_status reach_by_name(tni_parser *p, const char *name, const arguments *args, int *reach) {
    const axes_given *given = &args->axes;
    const int32_t last = p->formula->axes.n_items - 1;
    uint32_t items = given->items;
    const bool row = given->back == 1 && !given->front && !items && last >= 0;
    if (row && p->formula->axes.items[last].pack) { /* the last of several */
        *reach = TNI_OVER_ROW;
        return check_items(p, args->axes_at, name, args->nodes[0], (uint64_t)1 << last);
    }
    for (int32_t k = 0; k < TN_MAX_RANK; k++) {
        if (given->front >> k & 1) TN_TRY(item_of_axis(p, args->axes_at, false, k, &items));
        if (given->back >> k & 1) TN_TRY(item_of_axis(p, args->axes_at, true, k, &items));
    }
    TN_TRY(check_items(p, args->axes_at, name, args->nodes[0], items));
    const bool tail = items == 1u << last && !p->formula->axes.items[last].pack;
    *reach = tail ? TNI_OVER_ROW : items == p->g->all ? TNI_OVER_ALL : tni_over_items(items);
    return TN_OK;
}

/* Without a signature the dimensions get names when all axes are known: fuse.c reads the formula again then. */
static tn_status reach_of(tni_parser *p, const char *name, const arguments *args, int *reach) {
    tni_fuse *f = p->formula;
    const axes_given *given = &args->axes;
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

static tn_status parse_reduction(tni_parser *p, const tni_token *at, const char *name, tni_prim op, int32_t *node) {
    arguments args;
    TN_TRY(parse_arguments(p, name, true, &args));
    bool pairs = op == TNI_P_RMAX || op == TNI_P_RMIN;
    if (args.count == 2 && pairs) {
        *node = tni_node2(p->g, op == TNI_P_RMAX ? TNI_P_MAX : TNI_P_MIN, args.nodes[0], args.nodes[1]);
        return tni_parse_made(p, *node);
    }
    if (args.count != 1) return wrong_count(p, at, name, pairs ? 2 : 1, args.count);
    int reach = p->kind;
    if (p->formula) TN_TRY(reach_of(p, name, &args, &reach));
    *node = tni_node3(p->g, op, reach, args.nodes[0], -1, -1);
    return tni_parse_made(p, *node);
}

/* softmax(x), norm(x, axis=0): a formula whose reductions go as far as the call says. */
static tn_status parse_composed(tni_parser *p, const tni_token *at, const tni_composite *c, int32_t *node) {
    arguments args;
    int reach = p->kind;
    TN_TRY(parse_arguments(p, c->name, true, &args));
    if (args.count != 1) return wrong_count(p, at, c->name, 1, args.count);
    if (c->composing == TNI_COMPOSED_ROWS && !args.axes.any) {
        args.axes = (axes_given){.any = true, .back = 1};
        args.axes_at = at->at;
    }
    if (p->formula) TN_TRY(reach_of(p, c->name, &args, &reach));
    *node = tni_template(p->g, c->formula, (int32_t[5]){args.nodes[0], -1, -1, -1, -1}, reach);
    return tni_parse_made(p, *node);
}

/* ---- has, rand --------------------------------------------------------------------------------------------------- */

static tn_status no_such_input(tni_parser *p, int32_t at, const char *name) {
    tni_text text = {0};
    tni_text_add(&text, "there is no input or attribute '%s'", name);
    tni_hint_value(&text, p, name);
    return tni_fail_with(p, at, &text);
}

static tn_status parse_has(tni_parser *p, int32_t *node) {
    const char *name;
    if (!tni_parse_at(p, TNI_NAME)) return tni_lex_expected(&p->lex, "the name of an optional input");
    int32_t at = p->lex.token.at;
    TN_TRY(tni_parse_copy_name(p, &name));
    TN_TRY(tni_parse_next(p));
    const tni_contract *c = tni_parse_attrs(p);
    int32_t input = p->typed ? tni_input_named(c, name) : -1, attr = c ? tni_attr_named(c, name) : -1;
    bool optional = input >= 0 ? c->inputs[input].optional : attr >= 0 && c->attrs[attr].optional;
    if (p->typed && input < 0 && attr < 0) return no_such_input(p, at, name);
    if (!optional)
        return tni_lex_fail(&p->lex, at, "'%s' is not optional: only a signature makes it so, with '?'", name);
    tni_prim op = input >= 0 ? TNI_P_HAS : TNI_P_HAS_ATTR;
    *node = tni_leaf(p->g, op, input >= 0 ? input : attr, 0, TN_BOOL, (tni_extent){0, 0});
    TN_TRY(tni_parse_made(p, *node));
    return close_call(p, "')' after the name");
}

static bool is_seed(const tni_parser *p, const tni_named *named) {
    if (named->input < 0) return false;
    if (!p->typed) return p->scope->is_seed[named->input];
    return p->g->nodes[named->node].type == TN_I64 && p->scope->is_seed[named->input];
}

static tn_status parse_stream(tni_parser *p, double *stream) {
    bool more;
    *stream = 0;
    TN_TRY(tni_parse_take(p, ',', &more));
    if (!more) return TN_OK;
    if (!tni_parse_at(p, TNI_INT) || p->lex.token.value > INT32_MAX) {
        return tni_lex_expected(&p->lex, "a whole number that tells this rand from others with the same seed");
    }
    *stream = p->lex.token.number;
    return tni_parse_next(p);
}

static tn_status parse_rand(tni_parser *p, int32_t *node) {
    const char *name;
    double stream;
    if (!tni_parse_at(p, TNI_NAME)) return tni_lex_expected(&p->lex, "the name of the seed, an input of type i64[2]");
    int32_t at = p->lex.token.at;
    TN_TRY(tni_parse_copy_name(p, &name));
    tni_named *named = tni_find_name(p, name);
    if (!named && !p->typed) TN_TRY(tni_new_input(p, at, name, false, true, &named));
    if (!named || !is_seed(p, named)) {
        return tni_lex_fail(&p->lex, at, "'%s' is no seed: rand takes an input of type i64[2] that is nothing else",
                            name);
    }
    named->used = true;
    TN_TRY(tni_parse_next(p));
    TN_TRY(parse_stream(p, &stream));
    tni_extent whole = {p->g->all, 0};
    *node = tni_leaf(p->g, TNI_P_RAND, named->input, stream, TNI_TY_WEAK_FLOAT, whole);
    TN_TRY(tni_parse_made(p, *node));
    return close_call(p, "',' or ')' after the seed");
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* The formula of a row of the table, at `x`, with the defaults of its attributes. */
static tn_status inline_row(tni_parser *p, const tn_function *op, int32_t x, int32_t *node) {
    const tni_fuse *row;
    TN_TRY(p->formula->formula_of(op, &row));
    int32_t *made = tni_malloc((size_t)row->graph.n * sizeof *made);
    if (!made) return TN_NO_MEMORY;
    for (int32_t i = 0; i < row->graph.n; i++) {
        const tni_gnode *n = &row->graph.nodes[i];
        const tn_value *v = tni_prims[n->op].arity == 0 && n->ref >= 0 && n->ref < row->contract->n_attrs
                                ? &row->contract->attrs[n->ref].value
                                : &(tn_value){0};
        double number = v->kind == TN_ATTR_INT     ? (double)v->i
                        : v->kind == TN_ATTR_BOOL  ? v->b
                        : v->kind == TN_ATTR_FLOAT ? v->f
                                                   : 0;
        int32_t arg[3] = {-1, -1, -1};
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) arg[k] = made[n->arg[k]];
        switch (n->op) {
        case TNI_P_INPUT: made[i] = x; break;
        case TNI_P_CONST: made[i] = tni_const(p->g, n->type, n->value); break;
        case TNI_P_ATTR: made[i] = tni_const(p->g, n->type, number); break;
        case TNI_P_ATTR_IS: made[i] = tni_const(p->g, TN_BOOL, v->choice == (int)n->value); break;
        case TNI_P_HAS_ATTR: made[i] = tni_const(p->g, TN_BOOL, v->kind != TN_ATTR_UNSET); break;
        default: made[i] = tni_node3(p->g, (tni_prim)n->op, (int)n->kind, arg[0], arg[1], arg[2]); break;
        }
    }
    *node = made[row->outputs[0].node];
    tni_free(made);
    return TN_OK;
}

/* act(x) where `act` is an attribute: x itself, or one of the activations. When a call says which, the rest goes. */
static tn_status parse_activation(tni_parser *p, const tni_token *at, int32_t attr, int32_t *node) {
    const tni_contract *c = tni_parse_attrs(p);
    arguments args;
    TN_TRY(parse_arguments(p, c->attrs[attr].name, false, &args));
    if (args.count != 1) return wrong_count(p, at, c->attrs[attr].name, 1, args.count);
    *node = tni_const(p->g, TNI_TY_WEAK_FLOAT, 0); /* no other one comes here: specialize.c */
    for (int i = -1; i < p->formula->n_known; i++) {
        const tn_function *op = i < 0 ? NULL : tn_function_at(i);
        int32_t made = args.nodes[0];
        if (op && !tni_is_activation(op)) continue;
        if (op) TN_TRY(inline_row(p, op, args.nodes[0], &made));
        int16_t choice = op ? tni_activation_choice(op->contract->name) : TNI_ACT_NONE;
        int32_t is = tni_leaf(p->g, TNI_P_ATTR_IS, attr, choice, TN_BOOL, (tni_extent){0, 0});
        *node = tni_node3(p->g, TNI_P_WHERE, 0, is, made, *node);
        TN_TRY(tni_parse_made(p, *node));
    }
    return TN_OK;
}

/* mish(x): a row of the table. A row's own formula has those before it. */
static const tn_function *row_named(const tni_parser *p, const char *name) {
    const tn_function *op = p->formula ? tn_find(name) : NULL;
    return op && op->index < p->formula->n_known && tni_is_activation(op) ? op : NULL;
}

/* leaky_relu(x, 0.1) */
static tn_status wrong_count_of_row(tni_parser *p, const tni_token *at, const tni_contract *c, int given) {
    if (given == 0 || c->n_attrs == 0) return wrong_count(p, at, c->name, 1, given);
    return tni_lex_fail(&p->lex, at->at,
                        "%s takes 1 argument, found %d: in a formula '%s' has its default; another one is written out, "
                        "as where(x > 0, x, 0.1 * x)",
                        c->name, given, c->attrs[0].name);
}

static tn_status parse_row(tni_parser *p, const tni_token *at, const tn_function *op, int32_t *node) {
    arguments args;
    TN_TRY(parse_arguments(p, op->contract->name, false, &args));
    if (args.count != 1) return wrong_count_of_row(p, at, op->contract, args.count);
    TN_TRY(inline_row(p, op, args.nodes[0], node));
    return tni_parse_made(p, *node);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* sum_to(a, b) has the shape of b. Here a has some of b's dimensions and no others; else specialize.c decides. */
static int32_t with_dims_of(tni_graph *g, int32_t a, int32_t b) {
    tni_extent have = g->nodes[a].extent, want = g->nodes[b].extent;
    return tni_covers(want, have) && !tni_covers(have, want) ? tni_node2(g, TNI_P_EXPAND, a, b) : a;
}

static tn_status parse_plain(tni_parser *p, const tni_token *at, const char *name, int32_t *node) {
    arguments args;
    int op = op_named(name, is_function);
    tn_type type = cast_named(name);
    TN_TRY(parse_arguments(p, name, false, &args));
    const tni_composite *composite = composite_named(name, args.count);
    int wanted = op >= 0 ? tni_prims[op].arity : composite ? composite->arity : 1;
    if (args.count != wanted) return wrong_count(p, at, name, wanted, args.count);
    for (int i = args.count; i < MOST_ARGUMENTS; i++) args.nodes[i] = -1;
    if (op == TNI_P_DETACH && p->formula) p->formula->detaches = true;
    if (op == TNI_P_SUM_TO) args.nodes[0] = with_dims_of(p->g, args.nodes[0], args.nodes[1]);
    if (op >= 0) {
        *node = tni_node3(p->g, (tni_prim)op, 0, args.nodes[0], args.nodes[1], args.nodes[2]);
    } else if (composite) {
        *node = tni_template(p->g, composite->formula,
                             (int32_t[5]){args.nodes[0], args.nodes[1], args.nodes[2], -1, -1}, 0);
    } else {
        *node = tni_node3(p->g, TNI_P_CAST, (int)type, args.nodes[0], -1, -1);
    }
    return tni_parse_made(p, *node);
}

tn_status tni_parse_call(tni_parser *p, const tni_token *name, int32_t *node) {
    char text[TNI_MAX_NAME + 1] = "";
    memcpy(text, p->lex.text + name->at, (size_t)name->length);
    p->want_truth = false;
    int reduction = op_named(text, is_reduction);
    const tni_contract *c = tni_parse_attrs(p);
    int32_t attr = c ? tni_attr_named(c, text) : -1;
    if (attr >= 0 && c->attrs[attr].kind == TNI_A_ACTIVATION) {
        return parse_activation(p, name, attr, node);
    }
    const tni_own_function *own = tni_own_named(p, text);
    if (own) return tni_parse_own_call(p, own, name, node);
    const tn_function *row = tni_is_function(text) || tni_find_name(p, text) ? NULL : row_named(p, text);
    if (row) return parse_row(p, name, row, node);
    if (!tni_is_function(text)) return unknown_function(p, name, text);
    const tni_composite *composite = composite_named(text, 1);
    if (composite && composite->composing) return parse_composed(p, name, composite, node);
    if (strcmp(text, "has") == 0) return parse_has(p, node);
    if (strcmp(text, "rand") == 0) return parse_rand(p, node);
    return reduction >= 0 ? parse_reduction(p, name, text, (tni_prim)reduction, node)
                          : parse_plain(p, name, text, node);
}
