/* Recurrences: scan('a * s + x', axis=t) has what s is behind each element along t, reduce('max(s, x)') what it is at
 * the end. The step is a text in quotes; its names are values of the formula, or are given behind it, a=sigmoid(b). */
#include <math.h>
#include <string.h>

#include "formula_parse.h"

enum { LONGEST_STEP = 500 };

typedef struct reading {
    const tni_token *at; /* the word scan */
    const char *word;
    tni_token string;
    const char *step; /* in the arena, as the names */
    int32_t n;
    struct {
        const char *name;
        int32_t at, node; /* -1: not given */
    } values[TNI_SCAN_VALUES];
    tni_arguments along;
    int32_t start, start_at, like;
    bool begins; /* with a number */
    tni_scan_call made;
} reading;

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static bool is_number(const char *name) {
    static const char *const numbers[] = {"pi", "e", "inf", "nan"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(name, numbers[i]) == 0) return true;
    }
    return false;
}

/* A name of the step that is a value of the formula: neither s, nor a function, nor what the step assigns. */
static tn_status add_value(tni_parser *p, reading *r, const tni_token *token, const char *name) {
    for (int32_t k = 0; k < r->n; k++) {
        if (strcmp(r->values[k].name, name) == 0) return TN_OK;
    }
    if (r->n == TNI_SCAN_VALUES) {
        return tni_lex_fail(&p->lex, r->string.at, "a step has at most %d values besides s", TNI_SCAN_VALUES);
    }
    r->values[r->n].name = tni_arena_text(p->formula->arena, name, strlen(name));
    r->values[r->n].at = r->string.at + token->at;
    r->values[r->n].node = -1;
    return r->values[r->n++].name ? TN_OK : TN_NO_MEMORY;
}

static bool is_assigned(const char *step, const char *name) {
    tni_lexer ahead = {.text = step, .what = "formula", .token = {.kind = TNI_END}};
    tni_token before = {.kind = TNI_END};
    while (tni_formula_next(&ahead, false) == TN_OK && ahead.token.kind != TNI_END) {
        const bool target = ahead.token.kind == '=' && before.kind == TNI_NAME;
        if (target && strlen(name) == (size_t)before.length && memcmp(step + before.at, name, strlen(name)) == 0)
            return true;
        before = ahead.token;
    }
    return false;
}

static tn_status find_values(tni_parser *p, reading *r) {
    tni_lexer ahead = {.text = r->step, .what = "formula", .token = {.kind = TNI_END}};
    for (;;) {
        char name[TNI_MAX_NAME + 1] = "";
        TN_TRY(tni_formula_next(&ahead, false));
        const tni_token token = ahead.token;
        if (token.kind == TNI_END) return TN_OK;
        if (token.kind != TNI_NAME || tni_is_keyword(r->step + token.at, token.length)) continue;
        memcpy(name, r->step + token.at, (size_t)token.length);
        const char *behind = r->step + token.at + token.length;
        const bool calls = behind[strspn(behind, " ")] == '(';
        if (calls || strcmp(name, "s") == 0 || is_number(name) || is_assigned(r->step, name)) continue;
        TN_TRY(add_value(p, r, &token, name));
    }
}

static tn_status take_step(tni_parser *p, reading *r) {
    if (!tni_parse_at(p, TNI_STRING)) {
        return tni_lex_expected(&p->lex, "the step in quotes, what s becomes: %s('a * s + x')", r->word);
    }
    r->string = p->lex.token;
    if (r->string.length > LONGEST_STEP)
        return tni_lex_fail(&p->lex, r->string.at, "the step has more than %d characters", LONGEST_STEP);
    r->step = tni_arena_text(p->formula->arena, p->lex.text + r->string.at, (size_t)r->string.length);
    if (!r->step) return TN_NO_MEMORY;
    if (strpbrk(r->step, "'\"")) return tni_lex_fail(&p->lex, r->string.at, "there are no strings in a step");
    TN_TRY(find_values(p, r));
    return tni_parse_next(p);
}

/* ---- what stands behind it --------------------------------------------------------------------------------------- */

static bool is_word(const tni_parser *p, const tni_token *token, const char *word) {
    return strlen(word) == (size_t)token->length && memcmp(p->lex.text + token->at, word, strlen(word)) == 0;
}

static tn_status take_truth(tni_parser *p, bool *made) {
    *made = tni_lex_is(&p->lex, "true");
    if (!*made && !tni_lex_is(&p->lex, "false")) return tni_lex_expected(&p->lex, "true or false");
    return tni_parse_next(p);
}

static tn_status take_result(tni_parser *p, const reading *r, int32_t *output) {
    if (!tni_parse_at(p, TNI_STRING) || p->lex.token.length != 6 ||
        memcmp(p->lex.text + p->lex.token.at, "before", 6) != 0) {
        return tni_lex_expected(&p->lex, "'before': what s is in front of each element, not behind it");
    }
    if (*output == TNI_SCAN_LAST)
        return tni_lex_fail(&p->lex, r->at->at, "reduce has one result, what s is at the end");
    *output = TNI_SCAN_BEFORE;
    return tni_parse_next(p);
}

static tn_status take_value(tni_parser *p, reading *r, const tni_token *name) {
    int32_t *node = is_word(p, name, "like") ? &r->like : NULL;
    for (int32_t k = 0; k < r->n; k++) {
        if (is_word(p, name, r->values[k].name)) node = &r->values[k].node;
    }
    if (!node) {
        return tni_lex_fail(&p->lex, name->at,
                            "the step has no value '%.*s'; besides these there are axis, start and reverse",
                            (int)name->length, p->lex.text + name->at);
    }
    return tni_parse_expression(p, node);
}

/* axis=t, start=h, reverse=true, result='before', a=exp(b) */
static tn_status take_named(tni_parser *p, reading *r) {
    const tni_token name = p->lex.token;
    if (name.kind != TNI_NAME) return tni_lex_expected(&p->lex, "axis=…, start=…, reverse=true or a value of the step");
    TN_TRY(tni_parse_next(p));
    if (!tni_parse_at(p, '=')) return tni_lex_expected(&p->lex, "'=': behind the step everything has its name");
    TN_TRY(tni_parse_next(p));
    if (is_word(p, &name, "axis") || is_word(p, &name, "dim")) {
        r->along.axes_at = p->lex.token.at;
        return tni_take_axis(p, r->word, &r->along.axes);
    }
    if (is_word(p, &name, "reverse")) return take_truth(p, &r->made.reverse);
    if (is_word(p, &name, "result")) return take_result(p, r, &r->made.output);
    if (!is_word(p, &name, "start")) return take_value(p, r, &name);
    r->start_at = p->lex.token.at;
    return tni_parse_expression(p, &r->start);
}

static tn_status take_all(tni_parser *p, reading *r) {
    TN_TRY(take_step(p, r));
    for (bool more = tni_parse_at(p, ','); more; more = tni_parse_at(p, ',')) {
        TN_TRY(tni_parse_next(p));
        TN_TRY(take_named(p, r));
    }
    TN_TRY(tni_close_call(p, "',' or ')' behind the step"));
    r->begins = r->start >= 0 && p->g->nodes[r->start].op == TNI_P_CONST;
    if (r->begins) r->made.first = p->g->nodes[r->start].value;
    if (r->begins) r->start = -1;
    for (int32_t k = 0; k < r->n; k++) {
        const tni_token name = {.kind = TNI_NAME, .at = r->values[k].at, .length = (int32_t)strlen(r->values[k].name)};
        if (r->values[k].node < 0) TN_TRY(tni_value_of(p, &name, &r->values[k].node));
    }
    return TN_OK;
}

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

enum { BY_POSITION = -1, NO_NAMES_YET = -2 };

/* Dimensions without names: the last one is told by its place, where what comes out has it too. */
static tn_status find_place(tni_parser *p, reading *r, int32_t *item) {
    const tni_axes_given *given = &r->along.axes;
    const bool last = given->back == 1 && !given->front && !given->items;
    *item = last && r->made.output != TNI_SCAN_LAST && r->start < 0 ? BY_POSITION : NO_NAMES_YET;
    if (*item == BY_POSITION) return TN_OK;
    if (p->typed) {
        return tni_lex_fail(&p->lex, r->along.axes_at, "here %s goes along a dimension with a name, as in x: T[n, c]",
                            r->word);
    }
    p->formula->names_axes = true; /* fuse.c reads it again, with names */
    return TN_OK;
}

/* The one item that it goes along. */
static tn_status find_axis(tni_parser *p, reading *r, int32_t *item) {
    const tni_axes *axes = &p->formula->axes;
    int reach;
    if (axes->list) return tni_lex_fail(&p->lex, r->at->at, "of lists there is no %s", r->word);
    if (!r->along.axes.any) {
        r->along.axes = (tni_axes_given){.any = true, .back = 1};
        r->along.axes_at = r->at->at;
    }
    r->along.count = 1;
    r->along.nodes[0] = r->made.values[0];
    TN_TRY(tni_reach_of(p, r->word, &r->along, &reach));
    if (!p->named && (!p->typed || axes->numpy)) return find_place(p, r, item);
    const uint64_t items = reach == TNI_OVER_ROW   ? (uint64_t)1 << (axes->n_own - 1)
                           : reach == TNI_OVER_ALL ? p->g->all
                                                   : tni_items_over((uint32_t)reach);
    if (!items || items & (items - 1)) {
        return tni_lex_fail(&p->lex, r->along.axes_at, "%s goes along one dimension", r->word);
    }
    *item = __builtin_ctzll(items);
    const bool last = reach == TNI_OVER_ROW && r->made.output != TNI_SCAN_LAST && r->start < 0;
    if (!axes->items[*item].pack || last) return TN_OK;
    return tni_lex_fail(&p->lex, r->along.axes_at, "%s goes along one dimension, and %s can be several", r->word,
                        axes->items[*item].key);
}

/* Which dimension of a tensor with these the item is, for the operator: from the front, or from behind. */
static tn_status number_axis(const tni_parser *p, const reading *r, uint64_t whole, int32_t item, int32_t *axis) {
    int32_t before = 0, behind = 0, items[TN_MAX_RANK];
    bool pack = false, pack_behind = false, past = false;
    const int32_t n = tni_items_in_order(&p->formula->axes, whole, items);
    for (int32_t k = 0; k < n; k++) {
        past |= items[k] == item;
        if (items[k] == item) continue;
        *(past ? &behind : &before) += 1;
        *(past ? &pack_behind : &pack) |= p->formula->axes.items[items[k]].pack;
    }
    *axis = pack_behind ? before : -1 - behind;
    if (!pack || !pack_behind) return TN_OK;
    return tni_lex_fail(&p->lex, r->along.axes_at, "packs stand before and behind the dimension that %s goes along",
                        r->word);
}

/* An input of the formula lies as its shape is written: in the order of the formula, without dimensions of size 1. */
static tn_status in_order(tni_parser *p, int32_t *node) {
    tni_entry entries[TN_MAX_RANK];
    int32_t n, before = -1;
    bool plain = true;
    const tni_gnode *of = &p->g->nodes[*node];
    if (of->op != TNI_P_INPUT || !p->typed) return TN_OK;
    const tni_param *param = &p->formula->contract->inputs[of->ref];
    plain = param->shape.cond < 0;
    if (plain) TN_TRY(tni_param_entries(p->formula, param, entries, &n));
    for (int32_t k = 0; plain && k < n; k++) {
        plain = entries[k].item > before && !entries[k].both && entries[k].keep < 0;
        before = entries[k].item;
    }
    if (plain) return TN_OK;
    tni_gnode copy = *of;
    copy.op = TNI_P_EXPAND;
    copy.ref = -1;
    copy.arg[0] = copy.arg[1] = *node;
    *node = tni_node_as_is(p->g, &copy);
    return tni_parse_made(p, *node);
}

/* ---- types and values -------------------------------------------------------------------------------------------- */

/* That of the values, or of those that have the type variable T; then acc(T) where one of them has that. */
static tn_status type_of(tni_parser *p, const reading *r, int *type) {
    int variable = -1;
    bool any = r->like >= 0, several = false, wide = false;
    *type = r->like >= 0 ? p->g->nodes[r->like].type : TNI_TY_WEAK_INT;
    for (int32_t k = 0; k < r->n && r->like < 0; k++) {
        const tni_gnode *node = &p->g->nodes[r->values[k].node];
        const bool acc = node->type >= TNI_TY_ACC && node->type < TNI_TY_WEAK_INT;
        const int of = acc ? node->type - TNI_TY_ACC : node->type - TNI_TY_VAR;
        if (tni_is_scalar(node->extent)) continue;
        *type = tni_promote(p->g, *type, node->type);
        any = true;
        if (node->type < TNI_TY_VAR || node->type >= TNI_TY_WEAK_INT) continue;
        several |= variable >= 0 && of != variable;
        wide |= acc;
        variable = of;
    }
    if (!any) return tni_lex_fail(&p->lex, r->string.at, "the step takes no value that has dimensions");
    if (variable >= 0 && !several) *type = (wide ? TNI_TY_ACC : TNI_TY_VAR) + variable;
    if (*type == TN_BOOL || *type == TNI_TY_WEAK_INT) *type = TN_I64;
    if (*type < TNI_TY_WEAK_INT) return TN_OK;
    return tni_lex_fail(&p->lex, r->string.at,
                        "the types of what the step takes cannot be told to be one: casts such as f32(…) make them so");
}

/* In the same dimensions as all others; a single number stays one. */
static int32_t spread(tni_parser *p, const reading *r, int32_t node) {
    node = tni_scan_typed(p->g, node);
    if (node < 0 || tni_is_scalar(p->g->nodes[node].extent)) return node;
    for (int32_t k = 0; k < r->n; k++) {
        if (!tni_is_scalar(p->g->nodes[r->values[k].node].extent))
            node = tni_node2(p->g, TNI_P_EXPAND, node, r->values[k].node);
    }
    return r->like >= 0 ? tni_node2(p->g, TNI_P_EXPAND, node, r->like) : node;
}

/* The values in the order of the operator: the first one has the type of the result. */
static tn_status set_values(tni_parser *p, reading *r, int type, tni_text *names) {
    tni_scan_call *c = &r->made;
    int32_t first = -1;
    for (int32_t k = 0; k < r->n && r->like < 0; k++) {
        const tni_gnode *node = &p->g->nodes[r->values[k].node];
        const bool whole = !tni_is_scalar(node->extent);
        if (whole && (first < 0 || (node->type == type && p->g->nodes[r->values[first].node].type != type))) first = k;
    }
    for (int32_t k = -1; k < r->n; k++) {
        const int32_t which = k < 0 ? first : k;
        if (k >= 0 && k == first) continue;
        int32_t node = spread(p, r, which < 0 ? r->like : r->values[which].node);
        if (k < 0 && node >= 0 && p->g->nodes[node].type != type)
            node = tni_node3(p->g, TNI_P_CAST, type, node, -1, -1);
        TN_TRY(tni_parse_made(p, node));
        TN_TRY(in_order(p, &node));
        if (c->n == TNI_SCAN_VALUES)
            return tni_lex_fail(&p->lex, r->string.at, "a step has at most %d values besides s", TNI_SCAN_VALUES - 1);
        tni_text_add(names, "%s%s", c->n ? " " : "", which < 0 ? "-" : r->values[which].name);
        c->values[c->n++] = node;
    }
    if (p->g->nodes[c->values[0]].type != type && type >= TNI_TY_VAR) {
        return tni_lex_fail(&p->lex, r->string.at, "none of the values has the type of the result");
    }
    return TN_OK;
}

/* What s begins with where nobody says: the number that the step leaves as it is. */
static bool neutral(const tni_fuse *step, double *first) {
    const tni_gnode *root = &step->graph.nodes[step->outputs[0].node];
    bool bare = false;
    for (int k = 0; k < 2 && root->arg[k] >= 0; k++) {
        const tni_gnode *arg = &step->graph.nodes[root->arg[k]];
        bare |= arg->op == TNI_P_INPUT && arg->ref == 0;
    }
    *first = root->op == TNI_P_MUL   ? 1
             : root->op == TNI_P_MAX ? -(double)INFINITY
             : root->op == TNI_P_MIN ? (double)INFINITY
                                     : 0;
    return root->op == TNI_P_ADD || root->op == TNI_P_SUB || (bare && *first != 0);
}

static tn_status check_step(tni_parser *p, reading *r, int type) {
    static const char floats[] = "", ints[] = "i8 i16 i32 i64 u8 u16 u32",
                      all[] = "f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32";
    const tni_class class = tni_class_of(p->g, type);
    tni_fuse *step;
    TN_TRY(tni_scan_step(p->formula->scanning, r->made.step, r->made.names,
                         class == TNI_CLASS_FLOAT ? floats
                         : class == TNI_CLASS_INT ? ints
                                                  : all,
                         &step));
    const tni_gnode *result = &step->graph.nodes[step->outputs[0].node];
    const bool grows = class == TNI_CLASS_INT && tni_class_of(&step->graph, result->type) == TNI_CLASS_FLOAT;
    const bool calls = step->graph.n_calls > 0, known = r->start >= 0 || r->begins || neutral(step, &r->made.first);
    bool mixes = false;
    for (int32_t i = 0; i < step->graph.n; i++) {
        const int op = step->graph.nodes[i].op;
        mixes |= tni_is_reduction(op) || op == TNI_P_RAND || op == TNI_P_INDEX || op == TNI_P_INDEX_IN;
    }
    p->formula->scanning->free(step);
    if (calls || mixes) {
        return tni_lex_fail(&p->lex, r->string.at,
                            "a step is about one element: it reduces nothing, calls no operators "
                            "and asks for no positions");
    }
    if (grows)
        return tni_lex_fail(&p->lex, r->string.at, "the step makes a float of integers: f32(…) makes those floats");
    if (known) return TN_OK;
    return tni_lex_fail(&p->lex, r->at->at, "what does s begin with? start=0 says so");
}

/* s at the beginning: a number, or a tensor without the dimension that it goes along. */
static tn_status set_start(tni_parser *p, reading *r, int32_t item) {
    tni_scan_call *c = &r->made;
    c->start = -1;
    if (r->start < 0) return TN_OK;
    const tni_gnode *start = &p->g->nodes[r->start];
    if (start->extent.full >> item & 1) {
        return tni_lex_fail(&p->lex, r->start_at, "what s begins with has the dimension that %s goes along", r->word);
    }
    const uint32_t gone = 1u << item;
    const int32_t like = tni_node3(p->g, TNI_P_SUM, tni_over_items(gone), c->values[0], -1, -1);
    c->start = tni_node2(p->g, TNI_P_EXPAND, tni_scan_typed(p->g, r->start), like);
    TN_TRY(tni_parse_made(p, c->start));
    return in_order(p, &c->start);
}

/* Along a dimension that has a name. */
static tn_status place(tni_parser *p, reading *r, int32_t item) {
    const tni_extent whole = p->g->nodes[r->made.values[0]].extent;
    if (whole.row || !(whole.full >> item & 1)) {
        return tni_lex_fail(&p->lex, r->along.axes_at, "no value of the step has the dimension that %s goes along",
                            r->word);
    }
    TN_TRY(set_start(p, r, item));
    if (r->made.start >= 0 && p->g->nodes[r->made.start].extent.full & ~whole.full) {
        return tni_lex_fail(&p->lex, r->start_at, "what s begins with has a dimension that no value of the step has");
    }
    r->made.along = item;
    return number_axis(p, r, whole.full, item, &r->made.axis);
}

static tn_status make(tni_parser *p, reading *r, int32_t *node) {
    tni_text names = {0};
    int32_t item = NO_NAMES_YET;
    int type;
    TN_TRY(type_of(p, r, &type));
    tn_status status = set_values(p, r, type, &names);
    r->made.step = r->step;
    r->made.names = names.failed || !names.data ? NULL : tni_arena_text(p->formula->arena, names.data, names.length);
    tni_free(names.data);
    TN_TRY(status);
    if (!r->made.names) return TN_NO_MEMORY;
    TN_TRY(check_step(p, r, type));
    TN_TRY(find_axis(p, r, &item));
    *node = r->made.values[0];
    r->made.start = r->made.axis = -1;
    if (item == NO_NAMES_YET) return TN_OK;
    if (item >= 0) TN_TRY(place(p, r, item));
    *node = tni_scan_node(p->g, p->formula->scanning, &r->made);
    return tni_parse_made(p, *node);
}

tn_status tni_parse_scan(tni_parser *p, const tni_token *at, bool reduces, int32_t *node) {
    if (!p->formula) return tn_fail(TN_BAD_CONTRACT, "a template has no scan");
    reading r = {.at = at, .word = reduces ? "reduce" : "scan", .start = -1, .like = -1};
    r.made.output = reduces ? TNI_SCAN_LAST : TNI_SCAN_Y;
    TN_TRY(take_all(p, &r));
    return make(p, &r, node);
}
