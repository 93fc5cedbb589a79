/* Functions that a formula defines: gate(a, b) = a * sigmoid(b); y = gate(x, w) + gate(w, x).
 *
 * A definition only notes where its expression begins. A call reads that text once more, in which the function's inputs
 * stand for the values of the call. So a function has no types and no shapes of its own, and its gradient is that of
 * what it computes. It can use functions before it, and names of the formula, but not itself. */
#include <string.h>

#include "formula_parse.h"

const tni_own_function *tni_own_named(const tni_parser *p, const char *name) {
    for (int32_t i = 0; i < p->n_known; i++) {
        if (strcmp(p->functions[i].name, name) == 0) return &p->functions[i];
    }
    return NULL;
}

/* ---- definitions ------------------------------------------------------------------------------------------------- */

/* `f(…) =`, and no comparison */
bool tni_at_definition(const tni_parser *p) {
    const char *s = p->lex.text + p->lex.token.at + p->lex.token.length;
    int32_t open = 0;
    if (!p->formula || !tni_parse_at(p, TNI_NAME)) return false;
    while (*s == ' ') s++;
    if (*s != '(') return false;
    for (; *s && *s != '\n' && *s != ';'; s++) {
        open += (*s == '(') - (*s == ')');
        if (open == 0) break;
    }
    if (*s != ')') return false;
    s++;
    while (*s == ' ') s++;
    return s[0] == '=' && s[1] != '=' && s[1] != '>';
}

static bool is_operator(const tni_lexer *lex) {
    static const char *const words[] = {"and", "or", "not", "if", "else"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (tni_lex_is(lex, words[i])) return true;
    }
    const int kind = lex->token.kind;
    return kind >= TNI_TOKEN_POWER || (kind > 0 && kind < 128 && strchr("+-*/%<>=&|^~!", kind));
}

/* To the end of the statement. Its right side may go on behind an operator at the end of a line. */
static tn_status skip_expression(tni_parser *p) {
    int32_t brackets = 0;
    for (;;) {
        const bool behind = is_operator(&p->lex);
        if (tni_parse_at(p, TNI_END) || (brackets == 0 && tni_parse_at(p, ';'))) return TN_OK;
        if (brackets == 0 && tni_parse_at(p, '\n')) return TN_OK;
        brackets += tni_parse_at(p, '(') || tni_parse_at(p, '[');
        brackets -= tni_parse_at(p, ')') || tni_parse_at(p, ']');
        p->brackets = brackets > 0 ? brackets : 0;
        if (tni_begins_list(p) && (tni_parse_at(p, '=') || tni_parse_at(p, ','))) {
            tni_go_to_list(p);
            continue;
        }
        TN_TRY(tni_parse_next(p));
        while (behind && tni_parse_at(p, '\n')) TN_TRY(tni_parse_next(p));
    }
}

static tn_status check_name(tni_parser *p, int32_t at, const char *name) {
    if (tni_is_function(name)) return tni_lex_fail(&p->lex, at, "'%s' is a function of the language", name);
    if (tni_is_reserved(name)) return tni_lex_fail(&p->lex, at, "'%s' is a word or a number of the language", name);
    if (tni_names_value(p, name)) return tni_lex_fail(&p->lex, at, "'%s' is a value already", name);
    for (int32_t i = 0; i < p->n_functions; i++) {
        if (strcmp(p->functions[i].name, name) == 0) {
            return tni_lex_fail(&p->lex, at, "'%s' is defined twice", name);
        }
    }
    return TN_OK;
}

static tn_status parse_inputs(tni_parser *p, tni_own_function *made) {
    for (bool more = true; more;) {
        TN_TRY(tni_parse_next(p));
        if (!tni_parse_at(p, TNI_NAME)) return tni_lex_expected(&p->lex, "the name of an input of '%s'", made->name);
        if (made->n_inputs == TNI_FUNCTION_INPUTS) {
            return tni_lex_fail(&p->lex, p->lex.token.at, "'%s' has more than %d inputs", made->name,
                                TNI_FUNCTION_INPUTS);
        }
        const char **input = &made->inputs[made->n_inputs++];
        TN_TRY(tni_parse_copy_name(p, input));
        if (tni_is_reserved(*input)) {
            return tni_lex_fail(&p->lex, p->lex.token.at, "'%s' is a word or a number of the language", *input);
        }
        for (int32_t i = 0; i < made->n_inputs - 1; i++) {
            if (strcmp(made->inputs[i], *input) != 0) continue;
            return tni_lex_fail(&p->lex, p->lex.token.at, "'%s' is there twice", *input);
        }
        TN_TRY(tni_parse_next(p));
        more = tni_parse_at(p, ',');
    }
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "',' or ')' after an input of '%s'", made->name);
    return tni_parse_next(p);
}

tn_status tni_parse_definition(tni_parser *p) {
    const int32_t at = p->lex.token.at;
    if (p->n_functions == TNI_OWN_FUNCTIONS)
        return tni_lex_fail(&p->lex, at, "more than %d functions", TNI_OWN_FUNCTIONS);
    tni_own_function *made = &p->functions[p->n_functions];
    *made = (tni_own_function){.at = 0};
    TN_TRY(tni_parse_copy_name(p, &made->name));
    TN_TRY(check_name(p, at, made->name));
    TN_TRY(tni_parse_next(p)); /* to the '(' */
    TN_TRY(parse_inputs(p, made));
    made->at = p->lex.token.at + p->lex.token.length; /* behind the '=' */
    TN_TRY(tni_parse_next(p));
    while (tni_parse_at(p, '\n')) TN_TRY(tni_parse_next(p));
    if (tni_parse_at(p, TNI_END) || tni_parse_at(p, ';')) {
        return tni_lex_expected(&p->lex, "an expression: what '%s' computes", made->name);
    }
    TN_TRY(skip_expression(p));
    p->n_functions++;
    return TN_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* A name for the values of a call, in the place of one that is over. */
static tn_status bind_input(tni_parser *p, const char *name, int32_t node, int32_t call) {
    int32_t i = 0;
    while (i < p->n_names && p->names[i].name[0]) i++;
    if (i == p->n_names) TN_TRY(tni_add_name(p, name, node, -1));
    p->names[i] = (tni_named){.name = name, .node = node, .input = -1, .call = call, .used = true};
    return TN_OK;
}

static tn_status read_expression(tni_parser *p, const tni_own_function *function, int32_t *node) {
    p->lex.token = (tni_token){.kind = TNI_END, .at = function->at};
    p->brackets = 0;
    do {
        TN_TRY(tni_parse_next(p));
    } while (tni_parse_at(p, '\n'));
    const int32_t begin = p->lex.token.at;
    TN_TRY(tni_parse_expression(p, node));
    const bool whole = tni_parse_at(p, TNI_END) || tni_parse_at(p, ';') || tni_parse_at(p, '\n');
    return whole ? TN_OK : tni_fail_behind(&p->lex, begin);
}

static tn_status parse_values(tni_parser *p, const tni_own_function *f, const tni_token *at, int32_t *nodes) {
    int32_t n = 0;
    for (bool more = !tni_parse_at(p, ')'); more; n++) {
        int32_t node;
        TN_TRY(tni_parse_expression(p, &node));
        if (n < f->n_inputs) nodes[n] = node;
        TN_TRY(tni_parse_take(p, ',', &more));
    }
    if (!tni_parse_at(p, ')')) return tni_lex_expected(&p->lex, "',' or ')' after an argument");
    if (n == f->n_inputs) return TN_OK;
    return tni_lex_fail(&p->lex, at->at, "%s takes %d argument%s, found %d", f->name, (int)f->n_inputs,
                        f->n_inputs == 1 ? "" : "s", (int)n);
}

tn_status tni_parse_own_call(tni_parser *p, const tni_own_function *f, const tni_token *at, int32_t *node) {
    int32_t nodes[TNI_FUNCTION_INPUTS];
    TN_TRY(parse_values(p, f, at, nodes));
    if (p->n_calls == TNI_FUSE_NODES) { /* functions of functions double from one to the next */
        return tni_lex_fail(&p->lex, at->at, "functions of the formula are called more than %d times", TNI_FUSE_NODES);
    }
    const tni_lexer lex = p->lex;
    const int32_t brackets = p->brackets - 1, known = p->n_known, outer = p->call, call = ++p->n_calls;
    for (int32_t i = 0; i < f->n_inputs; i++) TN_TRY(bind_input(p, f->inputs[i], nodes[i], call));
    p->call = call;
    p->n_known = (int32_t)(f - p->functions);
    TN_TRY(read_expression(p, f, node));
    for (int32_t i = 0; i < p->n_names; i++) {
        if (p->names[i].call == call) p->names[i] = (tni_named){.name = "", .input = -1, .call = -1, .used = true};
    }
    p->lex = lex;
    p->brackets = brackets;
    p->n_known = known;
    p->call = outer;
    return tni_parse_next(p);
}
