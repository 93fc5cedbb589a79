/* The signature in front of a formula: where it ends, and what one of bare names says. */
#include <stdio.h>
#include <string.h>

#include "formula_parse.h"

/* Behind `name<T: any>(…)`, at the bracket that closes it; false where the text begins otherwise. */
static bool skip_parameters(tni_lexer *lex) {
    int32_t brackets = 0;
    bool types;
    if (tni_lex_next(lex) != TN_OK || lex->token.kind != TNI_NAME || tni_lex_next(lex) != TN_OK) return false;
    types = lex->token.kind == '<';
    while (types && lex->token.kind != '>') {
        if (tni_lex_next(lex) != TN_OK || lex->token.kind == TNI_END || lex->token.kind == '(') return false;
    }
    if (types && tni_lex_next(lex) != TN_OK) return false;
    if (lex->token.kind != '(') return false;
    for (;;) {
        if (lex->token.kind == '(' || lex->token.kind == '[') brackets++;
        if (lex->token.kind == ')' || lex->token.kind == ']') brackets--;
        if (brackets == 0) return true;
        if (tni_lex_next(lex) != TN_OK || lex->token.kind == TNI_END) return false;
    }
}

/* `name(x:` begins nothing but a signature. */
static bool begins_signature(const char *text) {
    tni_lexer lex = {.text = text, .what = "formula", .token = {.kind = TNI_END}};
    int kinds[4] = {0};
    for (int i = 0; i < 4; i++) kinds[i] = tni_lex_next(&lex) == TN_OK ? lex.token.kind : TNI_END;
    return kinds[0] == TNI_NAME && kinds[1] == '(' && kinds[2] == TNI_NAME && kinds[3] == ':';
}

/* The ':' that closes a signature is the first one behind the parameters that does not stand between the name of an
 * output and its type. */
int32_t tni_signature_end(const char *text) {
    tni_lexer lex = {.text = text, .what = "formula", .token = {.kind = TNI_END}};
    char message[2048]; /* looking ahead is no failure */
    snprintf(message, sizeof message, "%s", tn_last_error());
    int32_t brackets = 0, end = -1;
    bool arrow = false, name_next = false, inside = skip_parameters(&lex),
         behind = true; /* right behind the parameters */
    while (inside && end < 0) {
        int before = lex.token.kind;
        if (tni_lex_next(&lex) != TN_OK || lex.token.kind == TNI_END) break;
        int kind = lex.token.kind;
        if (kind == '[' || kind == '(') brackets++;
        if (kind == ']' || kind == ')') brackets--;
        if (brackets > 0) continue;
        arrow |= behind && kind == TNI_ARROW; /* which no expression has */
        if (behind && kind != TNI_ARROW && kind != ':' && !tni_lex_is(&lex, "where")) break;
        behind = false;
        if (kind == TNI_ARROW || (kind == ',' && (before == ']' || before == '?'))) name_next = true;
        if (tni_lex_is(&lex, "where")) name_next = false;
        if (kind == ':' && !(name_next && before == TNI_NAME)) end = lex.token.at;
        if (kind == ':') name_next = false;
    }
    if (end < 0 && (arrow || begins_signature(text))) end = (int32_t)strlen(text);
    tn_fail(TN_OK, "%s", message);
    return end;
}

/* ---- bare names -------------------------------------------------------------------------------------------------- */

bool tni_is_bare(const char *text) {
    tni_lexer lex = {.text = text, .what = "formula", .token = {.kind = TNI_END}};
    int kinds[4] = {0};
    for (int i = 0; i < 4; i++) {
        kinds[i] = tni_lex_next(&lex) == TN_OK ? lex.token.kind : TNI_END;
        while (i == 1 && kinds[1] != TNI_END && kinds[1] != '(') { /* over <T: int> */
            kinds[1] = tni_lex_next(&lex) == TN_OK ? lex.token.kind : TNI_END;
        }
    }
    return kinds[0] == TNI_NAME && kinds[1] == '(' && kinds[2] == TNI_NAME && (kinds[3] == ',' || kinds[3] == ')');
}

/* <T: int>, or nothing: what all inputs are. Up to the '('. */
static tn_status take_types(tni_fuse *f, tni_lexer *lex) {
    if (lex->token.kind != '<') return TN_OK;
    TN_TRY(tni_lex_next(lex));
    const bool named = tni_lex_is(lex, "T");
    if (named) TN_TRY(tni_lex_next(lex));
    if (named && lex->token.kind == ':') TN_TRY(tni_lex_next(lex));
    const bool ints = tni_lex_is(lex, "int");
    if (!named || (!ints && !tni_lex_is(lex, "float"))) {
        return tni_lex_expected(lex, "T: int or T: float, what inputs without types are");
    }
    if (ints) f->graph.masks[0] = TN_INTS;
    TN_TRY(tni_lex_next(lex));
    return lex->token.kind == '>' ? tni_lex_next(lex) : tni_lex_expected(lex, "'>'");
}

/* `eps: float = 1e-5`, from the ':' on: moves to the ',' or ')' behind it. */
static tn_status take_attribute(tni_lexer *lex, int32_t from, tni_text *attrs) {
    int32_t brackets = 0;
    for (;;) {
        if (lex->token.kind == '[') {
            return tni_lex_fail(lex, from,
                                "this input has a type and others have none: give one to all of them, or none");
        }
        if (lex->token.kind == '(') brackets++;
        if (lex->token.kind == TNI_END || (brackets == 0 && (lex->token.kind == ',' || lex->token.kind == ')'))) break;
        if (lex->token.kind == ')') brackets--;
        TN_TRY(tni_lex_next(lex));
    }
    tni_text_add(attrs, ", %.*s", (int)(lex->token.at - from), lex->text + from);
    return TN_OK;
}

static tn_status take_input(const tni_fuse *f, const tni_lexer *lex, const tni_token *token, tni_scope *scope) {
    if (scope->n_inputs == TNI_MAX_ARGS) return tni_lex_fail(lex, token->at, "more than %d inputs", TNI_MAX_ARGS);
    const char *name = tni_arena_text(f->arena, lex->text + token->at, (size_t)token->length);
    if (!name) return TN_NO_MEMORY;
    for (int i = 0; i < scope->n_inputs; i++) {
        if (strcmp(scope->inputs[i], name) == 0) return tni_lex_fail(lex, token->at, "'%s' is there twice", name);
    }
    const char *hint = tni_hint_word(name);
    if (hint) return tni_lex_fail(lex, token->at, "'%s' cannot be a name: %s", name, hint);
    if (tni_is_reserved(name)) return tni_lex_fail(lex, token->at, "'%s' is a word or a number of the language", name);
    scope->at[scope->n_inputs] = token->at;
    scope->inputs[scope->n_inputs++] = name;
    return TN_OK;
}

static tn_status read_parameters(const tni_fuse *f, tni_lexer *lex, tni_scope *scope, tni_text *attrs) {
    for (;;) {
        TN_TRY(tni_lex_next(lex));
        tni_token name = lex->token;
        if (name.kind != TNI_NAME)
            return tni_lex_expected(lex, "the name of an input, or of an attribute with its type");
        TN_TRY(tni_lex_next(lex));
        if (lex->token.kind == ':') {
            TN_TRY(take_attribute(lex, name.at, attrs));
        } else {
            TN_TRY(take_input(f, lex, &name, scope));
        }
        if (lex->token.kind == ')') return tni_lex_next(lex);
        if (lex->token.kind == '=') return tni_lex_expected(lex, "a type before the default: eps: float = 1e-5");
        if (lex->token.kind != ',') {
            return tni_lex_expected(lex,
                                    "',' or ')': what is optional ('?') or updated ('!') is told by a type, x: T[*s]?");
        }
    }
}

/* The attributes are those of a contract that has nothing else; its output is never asked for. */
static tn_status read_attributes(const char *name, const tni_text *attrs, tni_scope *scope) {
    tni_text text = {0};
    tni_text_add(&text, "%s(%s) -> nothing_else: i64[]", name, attrs->data ? attrs->data + 2 : "");
    tn_status status = text.failed || attrs->failed ? TN_NO_MEMORY : tni_contract_parse(text.data, &scope->bare);
    tni_free(text.data);
    return status;
}

tn_status tni_parse_bare(tni_fuse *f, const char *text, int32_t end, tni_scope *scope) {
    tni_lexer lex = {.text = text, .what = "formula", .token = {.kind = TNI_END}};
    tni_text attrs = {0};
    TN_TRY(tni_lex_next(&lex));
    memcpy(lex.name, text + lex.token.at, (size_t)lex.token.length);
    TN_TRY(tni_lex_next(&lex));
    TN_TRY(take_types(f, &lex));
    tn_status status = read_parameters(f, &lex, scope, &attrs);
    if (status == TN_OK && lex.token.at != end) {
        status = tni_lex_expected(&lex, "':' and the formula: inputs without types have no outputs in the signature");
    }
    if (status == TN_OK) status = read_attributes(lex.name, &attrs, scope);
    scope->attrs = attrs.data;
    return status;
}
