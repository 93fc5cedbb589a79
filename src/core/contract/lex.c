/* Tokens of contracts and gradient rules, and the message that points at a character. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parts.h"

enum { EXCERPT = 100 }; /* characters of the text that a message quotes */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_printable(char c) {
    return (unsigned char)c >= 0x20 && (unsigned char)c <= 0x7E;
}

/* Of a character of several bytes, one that is not the first. */
static bool is_within(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Bytes of the first character; what is none counts as one. */
static size_t step(const char *text) {
    const int length = tni_utf8_length(text);
    return length ? (size_t)length : 1;
}

static size_t columns(const char *text, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < bytes; i += step(text + i)) n++;
    return n;
}

/* The text around `at`, on one line, and a caret below it. */
static void excerpt(const char *text, int32_t at, char *line, size_t size) {
    size_t length = strlen(text);
    size_t begin = length > EXCERPT && at > EXCERPT / 2 ? (size_t)at - EXCERPT / 2 : 0;
    while (begin < (size_t)at && is_within(text[begin])) begin++;
    size_t end = length - begin > EXCERPT ? begin + EXCERPT : length;
    while (end > (size_t)at && is_within(text[end])) end--;
    size_t n = (size_t)snprintf(line, size, "\n  %s", begin ? "... " : ""), margin = n - 1;
    for (size_t i = begin, bytes; i < end; i += bytes, n += bytes) {
        bytes = step(text + i);
        memcpy(line + n, text + i, bytes);
        if (bytes == 1) line[n] = is_space(text[i]) ? ' ' : is_printable(text[i]) ? text[i] : '?';
    }
    n += (size_t)snprintf(line + n, size - n, "%s\n", end < length ? " ..." : "");
    for (size_t i = 0; i < margin + columns(text + begin, (size_t)at - begin); i++) line[n++] = ' ';
    snprintf(line + n, size - n, "^");
}

tn_status tni_lex_fail(const tni_lexer *lex, int32_t at, const char *format, ...) {
    char what[512], line[3 * EXCERPT];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    excerpt(lex->text, at, line, sizeof line);
    bool named = lex->name[0];
    return tn_fail(TN_BAD_CONTRACT, "%s%s%s%s: %s at column %d%s", lex->what, named ? " of '" : "", lex->name,
                   named ? "'" : "", what, (int)columns(lex->text, (size_t)at) + 1, line);
}

tn_status tni_lex_unexpected(const tni_lexer *lex, int32_t at) {
    const char *s = lex->text + at;
    const int length = tni_utf8_length(s);
    if (length > 1) return tni_lex_fail(lex, at, "the character '%.*s', not ASCII, is not understood", length, s);
    if (is_printable(s[0])) return tni_lex_fail(lex, at, "unexpected character '%c'", s[0]);
    return tni_lex_fail(lex, at, "unexpected byte 0x%02x", (unsigned char)s[0]);
}

tn_status tni_lex_expected(const tni_lexer *lex, const char *format, ...) {
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tni_lex_fail(lex, lex->token.at, "expected %s", what);
}

bool tni_lex_is(const tni_lexer *lex, const char *word) {
    const tni_token *token = &lex->token;
    return token->kind == TNI_NAME && (size_t)token->length == strlen(word) &&
           memcmp(lex->text + token->at, word, (size_t)token->length) == 0;
}

bool tni_is_keyword(const char *text, int32_t length) {
    static const char *const words[] = {"if", "else", "where", "and", "or", "not", "true", "false"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i]) == (size_t)length && memcmp(words[i], text, (size_t)length) == 0) return true;
    }
    return false;
}

tn_status tni_lex_begin(tni_lexer *lex, const char *what, const char *name, const char *text) {
    lex->what = what;
    snprintf(lex->name, sizeof lex->name, "%s", name);
    lex->text = text ? text : "";
    lex->token = (tni_token){.kind = TNI_END};
    if (!text || strlen(text) > INT32_MAX / 2) return tni_lex_fail(lex, 0, text ? "too long" : "there is no text");
    return tni_lex_next(lex);
}

static tn_status lex_name(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    int32_t n = 1;
    while (is_letter(s[n]) || is_digit(s[n])) n++;
    token->kind = TNI_NAME;
    token->length = n;
    if (n <= TNI_MAX_NAME) return TN_OK;
    return tni_lex_fail(lex, token->at, "the name is longer than %d characters", TNI_MAX_NAME);
}

static tn_status lex_number(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    int32_t n = 0;
    bool overflow = false;
    token->value = 0;
    for (; is_digit(s[n]); n++) {
        overflow |= __builtin_mul_overflow(token->value, 10, &token->value);
        overflow |= __builtin_add_overflow(token->value, s[n] - '0', &token->value);
    }
    token->kind = TNI_INT;
    if (s[n] == '.' && is_digit(s[n + 1])) {
        token->kind = TNI_FLOAT;
        for (n++; is_digit(s[n]);) n++;
    }
    int32_t sign = s[n] == 'e' && (s[n + 1] == '-' || s[n + 1] == '+');
    if (s[n] == 'e' && is_digit(s[n + 1 + sign])) {
        token->kind = TNI_FLOAT;
        for (n += 1 + sign; is_digit(s[n]);) n++;
    }
    token->length = n;
    if (is_letter(s[n]) || s[n] == '.') return tni_lex_fail(lex, token->at, "malformed number");
    if (token->kind == TNI_INT && overflow) {
        return tni_lex_fail(lex, token->at, "the integer does not fit in 64 bits");
    }
    if (!tni_read_double(s, (size_t)n, &token->number) || token->number > 1.7976931348623157e308) {
        return tni_lex_fail(lex, token->at, "the number is too large");
    }
    return TN_OK;
}

static tn_status lex_string(tni_lexer *lex, const char *s) {
    tni_token *token = &lex->token;
    int32_t n = 1;
    for (; s[n] != '\''; n++) {
        if (s[n] == 0) return tni_lex_fail(lex, token->at, "the string has no closing quote");
        if (!is_printable(s[n])) return tni_lex_fail(lex, token->at + n, "a string takes printable ASCII only");
    }
    token->kind = TNI_STRING;
    token->at++;
    token->length = n - 1;
    return TN_OK;
}

static tn_status lex_punctuation(tni_lexer *lex, const char *s) {
    static const struct {
        char text[3];
        int kind;
    } pairs[] = {
        {"->", TNI_ARROW}, {"==", TNI_TOKEN_EQ}, {"!=", TNI_TOKEN_NE}, {"<=", TNI_TOKEN_LE}, {">=", TNI_TOKEN_GE}};
    tni_token *token = &lex->token;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (s[0] == pairs[i].text[0] && s[1] == pairs[i].text[1]) {
            token->kind = pairs[i].kind;
            token->length = 2;
            return TN_OK;
        }
    }
    token->kind = s[0];
    token->length = 1;
    if (strchr("()[]<>:;,?!~*=|+-/%", s[0])) return TN_OK;
    return tni_lex_unexpected(lex, token->at);
}

tn_status tni_lex_next(tni_lexer *lex) {
    tni_token *token = &lex->token;
    int32_t at = token->at + token->length + (token->kind == TNI_STRING); /* past the closing quote */
    while (is_space(lex->text[at]) || lex->text[at] == '#') {             /* a comment goes on to the end of its line */
        at += lex->text[at] == '#' ? (int32_t)strcspn(lex->text + at, "\n") : 1;
    }
    const char *s = lex->text + at;
    *token = (tni_token){.kind = TNI_END, .at = at};
    if (s[0] == 0) return TN_OK;
    if (is_letter(s[0])) return lex_name(lex, s);
    if (is_digit(s[0])) return lex_number(lex, s);
    if (s[0] == '\'') return lex_string(lex, s);
    return lex_punctuation(lex, s);
}
