/* Statements of a formula, and what its names stand for. */
#include "formula_parse.h"

#include <stdio.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

bool tni_is_reserved(const char *name) {
    static const char *const constants[] = {"inf", "nan"}; /* pi and e may be names of something else */
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (strcmp(name, constants[i]) == 0) return true;
    }
    return tni_is_keyword(name, (int32_t)strlen(name));
}

const tni_contract *tni_parse_attrs(const tni_parser *p) {
    return p->typed ? p->formula->contract : p->bare;
}

/* A word that looks like a value, and is none of the language. */
static tn_status check_word(tni_parser *p, int32_t at, const char *name) {
    const char *hint = tni_hint_word(name);
    return hint ? tni_lex_fail(&p->lex, at, "'%s' cannot be a name: %s", name, hint) : TN_OK;
}

tn_status tni_parse_copy_name(tni_parser *p, const char **name) {
    *name = tni_arena_text(p->formula->arena, p->lex.text + p->lex.token.at, (size_t)p->lex.token.length);
    return *name ? TN_OK : TN_NO_MEMORY;
}

tni_named *tni_find_name(tni_parser *p, const char *name) {
    tni_named *found = NULL;
    for (int i = 0; i < p->n_names; i++) {
        bool seen = p->names[i].call == 0 || p->names[i].call == p->call;
        if (!seen || strcmp(p->names[i].name, name) != 0) continue;
        if (!found || p->names[i].call) found = &p->names[i]; /* what a function takes comes before the formula's */
    }
    return found;
}

/* An input of a signature of bare names. */
static bool is_declared(const tni_parser *p, const char *name) {
    for (int i = 0; p->bare && i < p->scope->n_inputs; i++) {
        if (strcmp(p->scope->inputs[i], name) == 0) return true;
    }
    return false;
}

bool tni_names_value(tni_parser *p, const char *name) {
    const tni_contract *attrs = tni_parse_attrs(p);
    return tni_find_name(p, name) || is_declared(p, name) || (attrs && tni_attr_named(attrs, name) >= 0);
}

tn_status tni_add_name(tni_parser *p, const char *name, int32_t node, int32_t input) {
    if (p->n_names == TNI_FUSE_NAMES) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d names", TNI_FUSE_NAMES);
    }
    p->names[p->n_names++] = (tni_named){.name = name, .node = node, .input = input};
    return TN_OK;
}

static tn_status unknown_name(tni_parser *p, int32_t at, const char *name);

tn_status tni_new_input(tni_parser *p, int32_t at, const char *name, bool is_bool, bool is_seed, tni_named **made) {
    tni_scope *scope = p->scope;
    int32_t input = 0;
    while (input < scope->n_inputs && strcmp(scope->inputs[input], name) != 0) input++;
    if (input == TNI_MAX_ARGS) {
        return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d inputs", TNI_MAX_ARGS);
    }
    if (input == scope->n_inputs && p->bare) return unknown_name(p, at, name);
    if (input == scope->n_inputs) scope->inputs[scope->n_inputs++] = name; /* else a bare signature has its place */
    scope->is_bool[input] = is_bool;
    scope->is_seed[input] = is_seed;
    const bool is_index = scope->is_index[input] = p->index_input && !is_seed && !is_bool;
    tni_extent extent = {is_seed ? 0 : p->named ? p->g->all : (uint64_t)1 << input, 0};
    int type = is_seed || is_index ? TN_I64 : is_bool ? TN_BOOL : TNI_TY_VAR;
    int32_t node = tni_leaf(p->g, TNI_P_INPUT, input, 0, type, extent);
    TN_TRY(tni_parse_made(p, node));
    TN_TRY(tni_add_name(p, name, node, input));
    *made = &p->names[p->n_names - 1];
    return TN_OK;
}

/* ---- values of names --------------------------------------------------------------------------------------------- */

/* Which of the attribute's words this is; -1: none. */
static int32_t choice_named(const tni_attr *a, const char *text, int32_t length) {
    char word[TNI_MAX_NAME + 1] = "";
    if (length > TNI_MAX_NAME) return -1;
    memcpy(word, text, (size_t)length);
    if (a->kind == TNI_A_ACTIVATION) return tni_activation_choice(word);
    for (int i = 0; i < a->n_choices; i++) {
        if (strcmp(a->choices[i], word) == 0) return i;
    }
    return -1;
}

/* mode == 'sum', at the comparison */
static tn_status choice_value(tni_parser *p, const tni_token *at, int32_t attr, int32_t *node) {
    const tni_attr *a = &tni_parse_attrs(p)->attrs[attr];
    const char *example = a->kind == TNI_A_ACTIVATION ? "none" : a->choices[0];
    bool differs = tni_parse_at(p, TNI_TOKEN_NE);
    if (!differs && !tni_parse_at(p, TNI_TOKEN_EQ)) {
        return tni_lex_fail(&p->lex, at->at, "'%s' is a word: compare it, %s == '%s'", a->name, a->name, example);
    }
    TN_TRY(tni_parse_next(p));
    if (!tni_parse_at(p, TNI_STRING)) return tni_lex_expected(&p->lex, "a word in quotes, such as '%s'", example);
    int32_t which = choice_named(a, p->lex.text + p->lex.token.at, p->lex.token.length);
    if (which < 0) return tni_lex_expected(&p->lex, "one of the words of '%s', such as '%s'", a->name, example);
    *node = tni_leaf(p->g, TNI_P_ATTR_IS, attr, which, TN_BOOL, (tni_extent){0, 0});
    if (differs) *node = tni_node1(p->g, TNI_P_NOT, *node);
    TN_TRY(tni_parse_made(p, *node));
    return tni_parse_next(p);
}

static tn_status attribute_value(tni_parser *p, const tni_token *at, int32_t attr, int32_t *node) {
    const tni_attr *a = &tni_parse_attrs(p)->attrs[attr];
    int type = a->kind == TNI_A_INT ? TNI_TY_WEAK_INT : a->kind == TNI_A_FLOAT ? TNI_TY_WEAK_FLOAT : TN_BOOL;
    if (a->kind == TNI_A_CHOICE || a->kind == TNI_A_ACTIVATION) return choice_value(p, at, attr, node);
    if (a->kind != TNI_A_INT && a->kind != TNI_A_FLOAT && a->kind != TNI_A_BOOL) {
        return tni_lex_fail(&p->lex, at->at,
                            "the attribute '%s' has no value in a formula: only int, float, bool and words have",
                            a->name);
    }
    *node = tni_leaf(p->g, TNI_P_ATTR, attr, 0, type, (tni_extent){0, 0});
    return tni_parse_made(p, *node);
}

static tn_status unknown_name(tni_parser *p, int32_t at, const char *name) {
    const tni_contract *c = p->formula->contract;
    for (int i = 0; c && i < c->n_dims; i++) {
        if (strcmp(c->dims[i], name) != 0) continue;
        return tni_lex_fail(&p->lex, at, "'%s' is a dimension; count(x) and count(x, -1) give sizes", name);
    }
    TN_TRY(check_word(p, at, name));
    TN_TRY(tni_check_words(&p->lex, at));
    tni_text text = {0};
    tni_text_add(&text, "there is no '%s' in the signature, and it is not assigned before", name);
    tni_hint_value(&text, p, name);
    return tni_fail_with(p, at, &text);
}

static tn_status template_value(tni_parser *p, const tni_token *at, int32_t *node) {
    static const char letters[] = "abcyd";
    const char *letter = strchr(letters, p->lex.text[at->at]);
    *node = letter && at->length == 1 ? p->nodes[letter - letters] : -1;
    return TN_OK;
}

tn_status tni_value_of(tni_parser *p, const tni_token *at, int32_t *node) {
    char text[TNI_MAX_NAME + 1] = "";
    const char *name;
    bool lone = p->want_truth && (tni_parse_at(p, ',') || tni_lex_is(&p->lex, "else"));
    p->want_truth = false;
    if (!p->formula) return template_value(p, at, node);
    memcpy(text, p->lex.text + at->at, (size_t)at->length);
    tni_named *named = tni_find_name(p, text);
    const tni_contract *attrs = tni_parse_attrs(p);
    int32_t attr = attrs ? tni_attr_named(attrs, text) : -1;
    if (attr >= 0) return attribute_value(p, at, attr, node);
    if (!named && p->typed) return unknown_name(p, at->at, text);
    if (!named) TN_TRY(check_word(p, at->at, text));
    if (!named && tni_is_function(text) && !is_declared(p, text))
        return tni_lex_fail(&p->lex, at->at, "'%s' is a function: expected '(' behind it", text);
    if (!named) {
        name = tni_arena_text(p->formula->arena, text, (size_t)at->length);
        if (!name) return TN_NO_MEMORY;
        TN_TRY(tni_new_input(p, at->at, name, lone, false, &named));
    }
    if (named->input >= 0 && p->scope->is_seed[named->input]) {
        return tni_lex_fail(&p->lex, at->at, "'%s' is a seed: it is for rand and has no value", text);
    }
    named->used = true;
    *node = named->node;
    return TN_OK;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool at_end(const tni_parser *p) {
    return tni_parse_at(p, TNI_END) || tni_parse_at(p, ';') || tni_parse_at(p, '\n');
}

static tn_status parse_right_side(tni_parser *p, int32_t *node) {
    int32_t begin = p->lex.token.at;
    TN_TRY(tni_parse_expression(p, node));
    return at_end(p) ? TN_OK : tni_fail_behind(&p->lex, begin);
}

/* `x! = …`, or `x = …` for an input that the signature marks. */
static tn_status update_input(tni_parser *p, int32_t at, tni_named *named, int32_t node) {
    const tni_contract *c = p->typed ? p->formula->contract : NULL;
    if (c && !c->inputs[named->input].inplace) {
        return tni_lex_fail(&p->lex, at, "'%s' is an input that the signature does not mark '!'", named->name);
    }
    if (p->scope->is_seed[named->input]) return tni_lex_fail(&p->lex, at, "'%s' is a seed", named->name);
    p->scope->is_updated[named->input] = true;
    p->scope->updated_nodes[named->input] = node;
    named->node = node;
    return TN_OK;
}

static tn_status assign(tni_parser *p, int32_t at, const char *name, bool update, int32_t node) {
    tni_named *named = tni_find_name(p, name);
    const tni_contract *attrs = tni_parse_attrs(p);
    if (tni_is_reserved(name) || (attrs && tni_attr_named(attrs, name) >= 0)) {
        return tni_lex_fail(&p->lex, at, "'%s' cannot be assigned: it is a constant", name);
    }
    if (!named && (strcmp(name, "e") == 0 ? p->read_e : strcmp(name, "pi") == 0 && p->read_pi)) {
        return tni_lex_fail(&p->lex, at, "'%s' was read as the constant before; assign it first", name);
    }
    TN_TRY(check_word(p, at, name));
    if (tni_own_named(p, name)) return tni_lex_fail(&p->lex, at, "'%s' is a function already", name);
    bool input = is_declared(p, name) && !named;
    if (input && !update)
        return tni_lex_fail(&p->lex, at, "'%s' is an input; '%s! = …' updates it in place", name, name);
    if (update && !named && !p->typed) TN_TRY(tni_new_input(p, at, name, false, false, &named));
    if (update && (!named || named->input < 0))
        return tni_lex_fail(&p->lex, at, "'%s' is no input: only inputs are updated", name);
    if (named && named->input >= 0 && (update || p->typed)) return update_input(p, at, named, node);
    if (named && named->input >= 0) {
        return tni_lex_fail(
            &p->lex, at,
            "'%s' was read before, so it is an input; call this otherwise, or write '%s! = …' to update "
            "it in place",
            name, name);
    }
    if (named) return tni_lex_fail(&p->lex, at, "'%s' is assigned twice", name);
    TN_TRY(tni_add_name(p, name, node, -1));
    p->names[p->n_names - 1].at = at;
    return TN_OK;
}

/* `name =` or `name! =`: moves behind it. */
static tn_status take_target(tni_parser *p, const char **name, bool *update) {
    tni_token begin = p->lex.token;
    *name = NULL;
    *update = false;
    if (!tni_parse_at(p, TNI_NAME)) return TN_OK;
    TN_TRY(tni_parse_next(p));
    TN_TRY(tni_parse_take(p, '!', update));
    bool target = tni_parse_at(p, '=');
    if (*update && !target) return tni_lex_expected(&p->lex, "'=' behind the '!' of a name that is updated");
    tni_token behind = p->lex.token;
    p->lex.token = begin;
    if (!target) return TN_OK;
    TN_TRY(tni_parse_copy_name(p, name));
    p->lex.token = behind;
    return tni_parse_next(p);
}

static tn_status skip_separators(tni_parser *p) {
    while (tni_parse_at(p, ';') || tni_parse_at(p, '\n')) TN_TRY(tni_parse_next(p));
    return TN_OK;
}

/* The name of a bare expression; that of its gradient has to be free too. */
static tn_status name_result(tni_parser *p, int32_t at, const char **name) {
    static const char *const names[][2] = {{"y", "dy"}, {"z", "dz"}, {"out", "dout"}, {"result", "dresult"}};
    const tni_contract *c = p->typed ? p->formula->contract : NULL;
    if (c && c->n_outputs != 1)
        return tni_lex_fail(&p->lex, at, "expected 'name = …': the signature has %d outputs", c->n_outputs);
    *name = c ? c->outputs[0].name : NULL;
    for (size_t i = 0; !*name && i < sizeof names / sizeof names[0]; i++) {
        if (!tni_names_value(p, names[i][0]) && !tni_names_value(p, names[i][1])) *name = names[i][0];
    }
    return *name ? TN_OK : tni_lex_fail(&p->lex, at, "expected 'name = …'");
}

/* `a, b = …`: how many names; 0: it begins otherwise. */
static int32_t count_targets(const tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at;
    int32_t n = 0;
    for (;;) {
        const size_t name = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        if (!name) return 0;
        n++;
        s += name;
        s += strspn(s, " ");
        if (*s != ',') break;
        s++;
        s += strspn(s, " ");
    }
    return n > 1 && s[0] == '=' && s[1] != '=' ? n : 0;
}

/* a, b = halves(x) */
static tn_status parse_pieces(tni_parser *p, int32_t n) {
    const char *names[TNI_MOST_PIECES];
    int32_t at[TNI_MOST_PIECES], node;
    if (n > TNI_MOST_PIECES) return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d parts", TNI_MOST_PIECES);
    for (int32_t i = 0; i < n; i++) {
        if (!tni_parse_at(p, TNI_NAME)) return tni_lex_expected(&p->lex, "a name");
        at[i] = p->lex.token.at;
        TN_TRY(tni_parse_copy_name(p, &names[i]));
        TN_TRY(tni_parse_next(p)); /* to the ',' or '=' */
        TN_TRY(tni_parse_next(p));
    }
    p->n_targets = n;
    p->n_pieces = 0;
    const int32_t begin = p->lex.token.at;
    TN_TRY(parse_right_side(p, &node));
    p->n_targets = 0;
    if (p->n_pieces != n || node != p->pieces[0]) {
        return tni_lex_fail(&p->lex, begin,
                            "several names take the parts of a value, as in a, b = halves(x), "
                            "chunk(x, 3) or split(x, [2, 4])");
    }
    for (int32_t i = 0; i < n; i++) TN_TRY(assign(p, at[i], names[i], false, p->pieces[i]));
    return skip_separators(p);
}

static tn_status parse_statement(tni_parser *p) {
    const char *name;
    bool update;
    int32_t node, at = p->lex.token.at;
    if (tni_at_definition(p)) {
        TN_TRY(tni_parse_definition(p));
        return skip_separators(p);
    }
    p->n_known = p->n_functions;
    const int32_t n_targets = p->formula ? count_targets(p) : 0;
    if (n_targets) return parse_pieces(p, n_targets);
    name = NULL;
    update = false;
    if (!tni_at_lookup(p)) TN_TRY(take_target(p, &name, &update));
    TN_TRY(parse_right_side(p, &node));
    bool bare = !name;
    if (bare) TN_TRY(name_result(p, at, &name));
    TN_TRY(assign(p, at, name, update, node));
    TN_TRY(skip_separators(p));
    if (bare && !tni_parse_at(p, TNI_END)) {
        return tni_lex_fail(&p->lex, at, "expected 'name = …': only the last statement may be a bare expression");
    }
    return TN_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static tn_status add_output(tni_parser *p, const char *name, int32_t node) {
    tni_scope *scope = p->scope;
    if (scope->n_outputs == TNI_MAX_ARGS)
        return tni_lex_fail(&p->lex, p->lex.token.at, "more than %d outputs", TNI_MAX_ARGS);
    scope->outputs[scope->n_outputs] = name;
    scope->output_nodes[scope->n_outputs++] = node;
    return TN_OK;
}

/* One number for everything is not what an output wants that has some of the dimensions. */
static tn_status check_output(tni_parser *p, int32_t i, const tni_named *named) {
    const tni_param *output = &p->formula->contract->outputs[i];
    const tni_axes *axes = &p->formula->axes;
    tni_extent shape = {0, 0};
    if (axes->numpy || axes->list || output->shape.cond >= 0) return TN_OK;
    TN_TRY(tni_param_extent(p->formula, output, &shape));
    int32_t node = tni_repeated(p->g, named->node, shape);
    if (node < 0) return TN_OK;
    const char *name = tni_prims[p->g->nodes[node].op].name;
    return tni_lex_fail(&p->lex, named->at,
                        "%s(…) is one number for everything, and '%s' has dimensions that it went over: %s(…, axis=-1) "
                        "goes along the last dimension alone, sum_to(x, b) sums to the dimensions of b, and "
                        "expand(%s(…), x) repeats the number",
                        name, named->name, name, name);
}

/* What the signature lists; everything else must have been of use. */
static tn_status collect_typed(tni_parser *p) {
    const tni_contract *c = p->formula->contract;
    int32_t at = p->lex.token.at;
    for (int i = 0; i < c->n_outputs; i++) {
        tni_named *named = tni_find_name(p, c->outputs[i].name);
        if (!named)
            return tni_lex_fail(&p->lex, at, "the output '%s' of the signature is not assigned", c->outputs[i].name);
        named->used = true;
        TN_TRY(check_output(p, i, named));
        TN_TRY(add_output(p, named->name, named->node));
    }
    for (int i = 0; i < c->n_inputs; i++) {
        if (!c->inputs[i].inplace || p->scope->is_updated[i]) continue;
        return tni_lex_fail(&p->lex, at, "'%s' is marked '!' but not assigned", c->inputs[i].name);
    }
    for (int i = 0; i < p->n_names; i++) {
        if (p->names[i].used || p->names[i].input >= 0) continue;
        return tni_lex_fail(&p->lex, at, "'%s' is assigned, but no output of the signature and not used",
                            p->names[i].name);
    }
    return TN_OK;
}

static tn_status collect_free(tni_parser *p) {
    bool any = false;
    for (int i = 0; i < p->n_names; i++) {
        if (p->names[i].input < 0 && !p->names[i].used) TN_TRY(add_output(p, p->names[i].name, p->names[i].node));
    }
    for (int i = 0; i < p->scope->n_inputs; i++) any |= p->scope->is_updated[i];
    for (int i = 0; p->bare && i < p->scope->n_inputs; i++) {
        if (tni_find_name(p, p->scope->inputs[i])) continue;
        return tni_lex_fail(&p->lex, p->scope->at[i],
                            "'%s' is not used: an input without a type takes it from where it is read",
                            p->scope->inputs[i]);
    }
    if (any || p->scope->n_outputs) return TN_OK;
    if (p->n_functions) {
        const char *function = p->functions[0].name;
        return tni_lex_expected(&p->lex, "an expression that calls %s; a formula with that name is written %s(…) : …",
                                function, function);
    }
    return tni_lex_expected(&p->lex, "an expression, or 'name = …'");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tn_status check_names(tni_parser *p) {
    const tni_contract *c = p->formula->contract;
    for (int i = 0; i < c->n_inputs + c->n_attrs; i++) {
        const char *name = i < c->n_inputs ? c->inputs[i].name : c->attrs[i - c->n_inputs].name;
        TN_TRY(check_word(p, 0, name));
        if (!tni_is_reserved(name)) continue;
        return tni_lex_fail(&p->lex, 0, "an %s cannot be called '%s', which is a constant of the language",
                            i < c->n_inputs ? "input" : "attribute", name);
    }
    return TN_OK;
}

static tn_status declare_inputs(tni_parser *p) {
    tni_fuse *f = p->formula;
    const tni_contract *c = f->contract;
    TN_TRY(check_names(p));
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_param *param = &c->inputs[i];
        tni_extent extent = {0, 0};
        p->scope->is_seed[i] = tni_is_seed(c, i);
        if (!p->scope->is_seed[i]) TN_TRY(tni_param_extent(f, param, &extent));
        int32_t node = tni_leaf(p->g, TNI_P_INPUT, i, 0, tni_param_type(&param->type), extent);
        TN_TRY(tni_parse_made(p, node));
        p->g->nodes[node].absent = param->optional;
        TN_TRY(tni_add_name(p, param->name, node, i));
    }
    p->scope->n_inputs = c->n_inputs;
    return TN_OK;
}

/* Without a signature each input has dimensions of its own, which broadcast. */
static void set_graph_items(tni_parser *p) {
    const tni_axes *axes = &p->formula->axes;
    int n = p->typed || p->named ? axes->n_items : TNI_MAX_ARGS;
    p->g->all = n ? ~(uint64_t)0 >> (64 - n) : 0;
    bool by_name = p->named || (p->typed && !axes->numpy);
    for (int i = 0; by_name && i < n; i++) {
        p->g->items[i] = axes->items[i].sized ? tni_item_text(p->formula, i) : axes->items[i].key;
        if (!p->g->items[i]) p->g->items[i] = axes->items[i].key;
    }
    p->g->n_items = by_name ? n : 0;
    /* Of dimensions that an attribute lists nobody knows which is the last: those that it does list count as it. */
    const bool listed = by_name && n && axes->items[n - 1].part == TNI_PART_OTHERS;
    p->g->tail = by_name && n ? (uint64_t)1 << (n - 1 - listed) : p->g->all;
    p->g->tail_pack = !by_name || (n && axes->items[n - 1].pack);
    p->g->names_tail = by_name && n && axes->items[n - 1].loose;
}

tn_status tni_parse_formula(tni_fuse *formula, const char *text, int32_t begin, tni_scope *scope) {
    tni_parser *p = tni_calloc(1, sizeof *p);
    if (!p) return TN_NO_MEMORY;
    p->g = &formula->graph;
    p->formula = formula;
    p->scope = scope;
    p->typed = formula->contract != NULL;
    p->named = !p->typed && formula->axes.n_items > 0;
    p->bare = scope->bare;
    p->lex = (tni_lexer){.text = text, .what = "formula", .token = {.kind = TNI_END, .at = begin}};
    const tni_contract *signature = tni_parse_attrs(p);
    if (signature) memcpy(p->lex.name, signature->name, strlen(signature->name) + 1);
    for (int i = 0; i < TNI_MAX_ARGS; i++) scope->updated_nodes[i] = -1;
    set_graph_items(p);
    tn_status status = p->typed ? declare_inputs(p) : TN_OK;
    if (status == TN_OK) status = tni_parse_next(p);
    if (status == TN_OK) status = skip_separators(p);
    while (status == TN_OK && !tni_parse_at(p, TNI_END)) status = parse_statement(p);
    if (status == TN_OK) status = p->typed ? collect_typed(p) : collect_free(p);
    tni_free(p);
    return status;
}

int32_t tni_template(tni_graph *g, const char *text, const int32_t nodes[5], int kind) {
    int32_t node = -1;
    tni_parser *p = g->status == TN_OK ? tni_calloc(1, sizeof *p) : NULL;
    if (!p) {
        if (g->status == TN_OK) g->status = TN_NO_MEMORY;
        return -1;
    }
    p->g = g;
    p->nodes = nodes;
    p->kind = kind;
    p->lex = (tni_lexer){.text = text, .what = "template", .token = {.kind = TNI_END}};
    tn_status status = tni_parse_next(p);
    if (status == TN_OK) status = tni_parse_expression(p, &node);
    if (status != TN_OK && g->status == TN_OK) g->status = status;
    tni_free(p);
    return status == TN_OK ? node : -1;
}
