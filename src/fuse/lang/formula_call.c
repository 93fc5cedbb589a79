/* Calls of functions: has, rand, casts, reductions, primitives and the functions that are formulas themselves. */
#include <stdio.h>
#include <string.h>

#include "core/contract/parts.h"
#include "core/table/activation_names.h"
#include "formula_parse.h"

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

/* Functions that are written in ways of their own. */
static const char *const words[] = {"has", "rand", "index", "one_hot", "scan", "reduce", NULL};

static bool word_named(const char *name) {
    int i = 0;
    while (words[i] && strcmp(words[i], name) != 0) i++;
    return words[i] != NULL;
}

bool tni_is_function(const char *name) {
    return op_named(name, is_function) >= 0 || composite_named(name, 1) || op_named(name, is_reduction) >= 0 ||
           cast_named(name) != TN_NO_TYPE || word_named(name);
}

const char *tni_function_name(int i) {
    if (i < TNI_PRIMS) return is_function(i) || is_reduction(i) ? tni_prims[i].name : "";
    i -= TNI_PRIMS;
    if (i < TN_TYPE_COUNT) return i && cast_named(tn_type_name((tn_type)i)) ? tn_type_name((tn_type)i) : "";
    i -= TN_TYPE_COUNT;
    return words[i];
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

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* The dimensions that index(n) has: n where dimensions have names, else all of the formula. */
static int32_t make_index(tni_parser *p, int reach) {
    const tni_axes *axes = &p->formula->axes;
    const bool by_name = p->named || (p->typed && !axes->numpy);
    uint32_t items = tni_items_over((uint32_t)reach);
    if (by_name && reach == TNI_OVER_ROW) items = 1u << (axes->n_own - 1);
    if (by_name && reach != TNI_OVER_ALL) return tni_index(p->g, reach, (int32_t)items, (tni_extent){items, 0});
    return tni_index(p->g, reach, -1, (tni_extent){p->g->all, 0});
}

/* index(), index(-1), index(n): along a dimension; index(x), index(x, -1): in x, with its dimensions. */
static tn_status parse_index(tni_parser *p, const tni_token *at, int32_t *node) {
    tni_arguments args = {.nodes = {-1}, .axes_at = at->at};
    int reach = p->kind;
    if (p->typed && p->formula->axes.list) {
        return tni_lex_fail(&p->lex, at->at, "elements of a list of tensors have no index: they are treated alike");
    }
    if (p->formula && !tni_parse_at(p, ')')) TN_TRY(tni_take_reach(p, "index", &args));
    if (args.axes.any || tni_parse_at(p, ')')) {
        TN_TRY(tni_close_call(p, "')' after the dimension"));
    } else {
        TN_TRY(tni_parse_arguments(p, "index", true, &args));
        if (args.count != 1) return tni_wrong_count(p, at, "index", 1, args.count);
    }
    if (p->formula) TN_TRY(tni_reach_of(p, "index", &args, &reach));
    *node = args.count ? tni_node3(p->g, TNI_P_INDEX_IN, reach, args.nodes[0], -1, -1) : make_index(p, reach);
    return tni_parse_made(p, *node);
}

/* one_hot(i, n): 1 where the index along n is i, else 0. */
static tn_status parse_one_hot(tni_parser *p, const tni_token *at, int32_t *node) {
    tni_arguments args;
    int reach = p->kind;
    TN_TRY(tni_parse_arguments(p, "one_hot", true, &args));
    if (args.count != 1 || !args.axes.any) {
        return tni_lex_fail(&p->lex, at->at,
                            "one_hot takes an index and the dimension that it goes along: one_hot(i, n)");
    }
    const int32_t given = args.nodes[0];
    args.nodes[0] = -1;
    if (p->formula) TN_TRY(tni_reach_of(p, "one_hot", &args, &reach));
    const int32_t index = make_index(p, reach), is = tni_node2(p->g, TNI_P_EQ, index, given);
    TN_TRY(tni_parse_made(p, is));
    if (p->g->nodes[index].ref >= 0 && p->g->nodes[given].extent.full & p->g->nodes[index].extent.full) {
        return tni_lex_fail(&p->lex, args.axes_at,
                            "the index has this dimension already: it says where the 1 is along another one");
    }
    *node = tni_node3(p->g, TNI_P_WHERE, 0, is, tni_const(p->g, TNI_TY_WEAK_INT, 1),
                      tni_const(p->g, TNI_TY_WEAK_INT, 0));
    return tni_parse_made(p, *node);
}

/* ---- calls of reductions ----------------------------------------------------------------------------------------- */

static tn_status parse_reduction(tni_parser *p, const tni_token *at, const char *name, tni_prim op, int32_t *node) {
    tni_arguments args;
    TN_TRY(tni_parse_arguments(p, name, true, &args));
    bool pairs = op == TNI_P_RMAX || op == TNI_P_RMIN;
    if (args.count == 2 && pairs) {
        *node = tni_node2(p->g, op == TNI_P_RMAX ? TNI_P_MAX : TNI_P_MIN, args.nodes[0], args.nodes[1]);
        return tni_parse_made(p, *node);
    }
    if (args.count != 1) return tni_wrong_count(p, at, name, pairs ? 2 : 1, args.count);
    int reach = p->kind;
    if (p->formula) TN_TRY(tni_reach_of(p, name, &args, &reach));
    *node = tni_node3(p->g, op, reach, args.nodes[0], -1, -1);
    return tni_parse_made(p, *node);
}

/* softmax(x), norm(x, axis=0): a formula whose reductions go as far as the call says. */
static tn_status parse_composed(tni_parser *p, const tni_token *at, const tni_composite *c, int32_t *node) {
    tni_arguments args;
    int reach = p->kind;
    TN_TRY(tni_parse_arguments(p, c->name, true, &args));
    if (args.count != 1) return tni_wrong_count(p, at, c->name, 1, args.count);
    if (c->composing == TNI_COMPOSED_ROWS && !args.axes.any) {
        args.axes = (tni_axes_given){.any = true, .back = 1};
        args.axes_at = at->at;
    }
    if (p->formula) TN_TRY(tni_reach_of(p, c->name, &args, &reach));
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
    return tni_close_call(p, "')' after the name");
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
    return tni_close_call(p, "',' or ')' after the seed");
}

/* ---- rows of the table that are formulas ------------------------------------------------------------------------- */

/* Its reductions go as far as `reach` says. */
static tn_status inline_formula(tni_parser *p, const tni_fuse *row, const tni_row_call *call, int reach,
                                int32_t *node) {
    const int32_t *inputs = call->inputs;
    const tn_value *attrs = call->attrs;
    int32_t *made = tni_malloc((size_t)row->graph.n * sizeof *made);
    if (!made) return TN_NO_MEMORY;
    for (int32_t i = 0; i < row->graph.n; i++) {
        const tni_gnode *n = &row->graph.nodes[i];
        const bool attr = tni_prims[n->op].arity == 0 && n->ref >= 0 && n->ref < row->contract->n_attrs;
        const tn_value *v = !attr                                 ? &(tn_value){0}
                            : attrs[n->ref].kind == TN_ATTR_UNSET ? &row->contract->attrs[n->ref].value
                                                                  : &attrs[n->ref];
        double number = v->kind == TN_ATTR_INT     ? (double)v->i
                        : v->kind == TN_ATTR_BOOL  ? v->b
                        : v->kind == TN_ATTR_FLOAT ? v->f
                                                   : 0;
        int32_t arg[3] = {-1, -1, -1};
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) arg[k] = made[n->arg[k]];
        switch (n->op) {
        case TNI_P_INPUT: made[i] = inputs[n->ref] >= 0 ? inputs[n->ref] : tni_const(p->g, TNI_TY_WEAK_FLOAT, 0); break;
        case TNI_P_HAS: made[i] = tni_const(p->g, TN_BOOL, inputs[n->ref] >= 0); break;
        case TNI_P_CONST: made[i] = tni_const(p->g, n->type, n->value); break;
        case TNI_P_ATTR: made[i] = call->own[n->ref] >= 0 ? call->own[n->ref] : tni_const(p->g, n->type, number); break;
        case TNI_P_ATTR_IS: made[i] = tni_const(p->g, TN_BOOL, v->choice == (int)n->value); break;
        case TNI_P_HAS_ATTR: made[i] = tni_const(p->g, TN_BOOL, v->kind != TN_ATTR_UNSET); break;
        default: {
            const int kind = tni_reaches(n->op) ? reach : (int)n->kind;
            made[i] = tni_node3(p->g, (tni_prim)n->op, kind, arg[0], arg[1], arg[2]);
        }
        }
    }
    *node = made[row->outputs[call->output].node];
    tni_free(made);
    return TN_OK;
}

/* At `x`, with the defaults of its attributes. */
static tn_status inline_row(tni_parser *p, const tn_function *op, int32_t x, int32_t *node) {
    static const tn_value defaults[TNI_MAX_ARGS];
    int32_t own[TNI_MAX_ARGS];
    const tni_fuse *row;
    TN_TRY(p->formula->formula_of(op, &row));
    for (int i = 0; i < TNI_MAX_ARGS; i++) own[i] = -1;
    return inline_formula(p, row, &(tni_row_call){op, &x, own, defaults, 0, -1}, 0, node);
}

/* [*r, c]: the dimension c; -1: the shape is another one. */
static int32_t last_dim(const tni_contract *c, const tni_shape *shape, int32_t count) {
    const tni_item *items = &c->items[shape->first], *last = &items[shape->count - 1];
    if (shape->cond >= 0 || shape->count != count || last->kind != TNI_ITEM_EXPR || last->broadcast) return -1;
    if (count == 2 && (items[0].kind != TNI_ITEM_PACK || items[0].broadcast)) return -1;
    return c->nodes[last->node].kind == TNI_DIM ? c->nodes[last->node].ref : -1;
}

/* Does it go along rows, as x: T[*r, c], gamma: W[c]? -> y: T[*r, c] do, and is it made of what every formula can
 * say? */
static bool is_of_rows(const tni_fuse *row, int32_t output) {
    const tni_contract *c = row->contract;
    const int32_t dim = last_dim(c, &c->inputs[0].shape, 2);
    if (dim < 0 || row->steps || row->windows || row->axes.list || output >= c->n_outputs) return false;
    if (!tni_prints_alike(c, &c->outputs[output].shape, &c->inputs[0].shape)) return false;
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_shape *shape = &c->inputs[i].shape;
        if (c->inputs[i].inplace) return false;
        if (!tni_prints_alike(c, shape, &c->inputs[0].shape) && last_dim(c, shape, 1) != dim) return false;
    }
    const uint32_t last = tni_items_named(&row->axes, c->dims[dim], (int32_t)strlen(c->dims[dim]));
    for (int32_t i = 0; i < row->graph.n; i++) {
        const tni_gnode *n = &row->graph.nodes[i];
        if (n->op == TNI_P_RAND || n->op == TNI_P_INDEX || n->op == TNI_P_INDEX_IN) return false;
        const bool along = n->kind == TNI_OVER_ROW || (tni_is_over_items(n->kind) && tni_items_over(n->kind) == last);
        if (tni_reaches(n->op) && !along) return false;
    }
    return true;
}

tn_status tni_inline_rows(tni_parser *p, const tni_token *at, const tni_row_call *call, bool *done, int32_t *node) {
    const tni_fuse *row;
    int reach;
    const bool elements = tni_is_activation(call->op);
    *done = p->formula->formula_of(call->op, &row) == TN_OK && (elements || is_of_rows(row, call->output));
    if (!*done) return TN_OK;
    if (elements) {
        TN_TRY(inline_formula(p, row, call, 0, node));
        return tni_parse_made(p, *node);
    }
    tni_arguments args = {.nodes = {call->inputs[0]}, .count = 1, .axes = {.any = true}, .axes_at = at->at};
    if (call->last < 0) {
        args.axes.back = 1;
    } else {
        args.axes.items = 1u << call->last;
    }
    TN_TRY(tni_reach_of(p, call->op->contract->name, &args, &reach));
    TN_TRY(inline_formula(p, row, call, reach, node));
    return tni_parse_made(p, *node);
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* act(x) where `act` is an attribute: x itself, or one of the activations. When a call says which, the rest goes. */
static tn_status parse_activation(tni_parser *p, const tni_token *at, int32_t attr, int32_t *node) {
    const tni_contract *c = tni_parse_attrs(p);
    tni_arguments args;
    TN_TRY(tni_parse_arguments(p, c->attrs[attr].name, false, &args));
    if (args.count != 1) return tni_wrong_count(p, at, c->attrs[attr].name, 1, args.count);
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
    if (given == 0 || c->n_attrs == 0) return tni_wrong_count(p, at, c->name, 1, given);
    return tni_lex_fail(&p->lex, at->at,
                        "%s takes 1 argument, found %d: in a formula '%s' has its default; another one is written out, "
                        "as where(x > 0, x, 0.1 * x)",
                        c->name, given, c->attrs[0].name);
}

static tn_status parse_row(tni_parser *p, const tni_token *at, const tn_function *op, int32_t *node) {
    tni_arguments args;
    TN_TRY(tni_parse_arguments(p, op->contract->name, false, &args));
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
    tni_arguments args;
    int op = op_named(name, is_function);
    tn_type type = cast_named(name);
    TN_TRY(tni_parse_arguments(p, name, false, &args));
    const tni_composite *composite = composite_named(name, args.count);
    int wanted = op >= 0 ? tni_prims[op].arity : composite ? composite->arity : 1;
    if (args.count != wanted) return tni_wrong_count(p, at, name, wanted, args.count);
    for (int i = args.count; i < TNI_MOST_ARGUMENTS; i++) args.nodes[i] = -1;
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

/* Behind the '(': has the call an argument by name that is no axis, as roll(x, shift=1, axis=0)? Then the operator of
 * the table is meant as it stands there, not the function of the language that takes parts, or a row of one tensor. */
static bool calls_operator(const tni_parser *p, const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    if (!tni_coarse_named(p, name)) return false;
    const char *s = p->lex.text + p->lex.token.at;
    for (int32_t open = 1; *s && open > 0;) {
        const size_t word = strspn(s, letters);
        const char *behind = s + word + strspn(s + word, " ");
        const bool axis = (word == 4 && memcmp(s, "axis", 4) == 0) || (word == 3 && memcmp(s, "dim", 3) == 0);
        if (open == 1 && word && !axis && behind[0] == '=' && behind[1] != '=') return true;
        open += (*s == '(' || *s == '[') - (*s == ')' || *s == ']');
        if (*s == '\'' || *s == '"') s += 1 + strcspn(s + 1, *s == '"' ? "\"" : "'");
        s += word ? word : *s != 0;
    }
    return false;
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
    const bool part = p->formula && tni_is_part_function(text) && !tni_find_name(p, text);
    if (part && !calls_operator(p, text)) return tni_parse_part_call(p, name, text, node);
    const tn_function *row = tni_is_function(text) || tni_find_name(p, text) ? NULL : row_named(p, text);
    if (row && !calls_operator(p, text)) return parse_row(p, name, row, node);
    const tn_function *coarse = tni_is_function(text) || tni_find_name(p, text) ? NULL : tni_coarse_named(p, text);
    if (coarse) return tni_parse_coarse(p, name, coarse, node);
    if (!tni_is_function(text)) return unknown_function(p, name, text);
    const tni_composite *composite = composite_named(text, 1);
    if (composite && composite->composing) return parse_composed(p, name, composite, node);
    const bool reduces = strcmp(text, "reduce") == 0;
    if (reduces || strcmp(text, "scan") == 0) return tni_parse_scan(p, name, reduces, node);
    if (strcmp(text, "has") == 0) return parse_has(p, node);
    if (strcmp(text, "rand") == 0) return parse_rand(p, node);
    if (strcmp(text, "index") == 0) return parse_index(p, name, node);
    if (strcmp(text, "one_hot") == 0) return parse_one_hot(p, name, node);
    return reduction >= 0 ? parse_reduction(p, name, text, (tni_prim)reduction, node)
                          : parse_plain(p, name, text, node);
}
