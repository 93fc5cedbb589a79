/* Tokens of formulas. */
#include "formula_lex.h"

#include <stdlib.h>
#include <string.h>

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* digits [. digits] [e [+-] digits], .5 and 1. too; returns the length. */
static int32_t number_length(const char *s, bool *whole) {
    int32_t n = 0;
    while (is_digit(s[n])) n++;
    *whole = s[n] != '.';
    if (!*whole) {
        for (n++; is_digit(s[n]);) n++;
    }
    int32_t sign = s[n] == 'e' || s[n] == 'E' ? s[n + 1] == '-' || s[n + 1] == '+' : 0;
    if ((s[n] == 'e' || s[n] == 'E') && is_digit(s[n + 1 + sign])) {
        *whole = false;
        for (n += 1 + sign; is_digit(s[n]);) n++;
    }
    return n;
}

static tn_status lex_number(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    bool whole;
    token->length = number_length(s, &whole);
    token->kind = whole ? TNI_INT : TNI_FLOAT;
    if (is_letter(s[token->length]) || s[token->length] == '.') {
        return tni_fail_number(lex, token->at, token->length);
    }
    bool read = tni_read_double(s, (size_t)token->length, &token->number);
    if (!read || token->number > 1.7976931348623157e308) {
        return tni_lex_fail(lex, token->at, "the number is too large");
    }
    if (whole && (token->number > 0x1p53 || strtoull(s, NULL, 10) > (1ull << 53))) { /* the double may be rounded */
        return tni_lex_fail(lex, token->at, "the integer has more than 53 bits; write it with a '.' as a float");
    }
    token->value = whole ? (int64_t)token->number : 0;
    return TN_OK;
}

static tn_status lex_name(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    token->kind = TNI_NAME;
    while (is_letter(s[token->length]) || is_digit(s[token->length])) token->length++;
    if (token->length <= TNI_MAX_NAME) return TN_OK;
    return tni_lex_fail(lex, token->at, "the name is longer than %d characters", TNI_MAX_NAME);
}

static tn_status lex_string(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    const char *end = strchr(s + 1, s[0]);
    if (!end) return tni_lex_fail(lex, token->at, "the string has no closing quote");
    token->kind = TNI_STRING;
    token->at++;
    token->length = (int32_t)(end - s - 1);
    return TN_OK;
}

static tn_status lex_punctuation(tni_lexer *lex, const char *s) {
    static const struct {
        char text[3];
        int kind;
    } pairs[] = {{"**", TNI_TOKEN_POWER}, {"==", TNI_TOKEN_EQ}, {"!=", TNI_TOKEN_NE},   {"<=", TNI_TOKEN_LE},
                 {">=", TNI_TOKEN_GE},    {"->", TNI_ARROW},    {"<<", TNI_TOKEN_LEFT}, {">>", TNI_TOKEN_RIGHT}};
    tni_token *token = &lex->token;
    bool known = strchr("()[]<>:;,!=|&^~+-*/%", s[0]);
    bool alone = !strchr("=>/&|*<", s[1]); /* as nearly all are: then it is no sign of another language */
    if (!known || !alone) TN_TRY(tni_check_foreign(lex, token->at));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (s[0] != pairs[i].text[0] || s[1] != pairs[i].text[1]) continue;
        token->kind = pairs[i].kind;
        token->length = 2;
        return TN_OK;
    }
    token->kind = s[0];
    token->length = 1;
    return known ? TN_OK : tni_lex_unexpected(lex, token->at);
}

/* Over blanks and comments, and line ends unless they count. */
static int32_t skip_blanks(const char *text, int32_t at, bool lines) {
    for (;; at++) {
        if (text[at] == '#') {
            while (text[at] && text[at] != '\n') at++;
        }
        bool blank = text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || (text[at] == '\n' && !lines);
        if (!blank) return at;
    }
}

tn_status tni_formula_next(tni_lexer *lex, bool lines) {
    tni_token *token = &lex->token;
    int32_t at = skip_blanks(lex->text, token->at + token->length + (token->kind == TNI_STRING), lines);
    const char *s = lex->text + at;
    *token = (tni_token){.kind = TNI_END, .at = at};
    if (s[0] == 0) return TN_OK;
    if (s[0] == '\n') {
        token->kind = '\n';
        token->length = 1;
        return TN_OK;
    }
    if (is_letter(s[0])) return lex_name(lex, s);
    if (is_digit(s[0]) || (s[0] == '.' && is_digit(s[1]))) return lex_number(lex, s);
    if (s[0] == '\'' || s[0] == '"') return lex_string(lex, s);
    return lex_punctuation(lex, s);
}
