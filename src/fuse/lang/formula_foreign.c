/* What other languages write and a formula does not: methods, slices, matrix products, signs of C and Python. A message
 * says how the same is written here, or that it belongs outside of the formula. */
#include <stdio.h>
#include <string.h>

#include "core/host/text.h"
#include "core/table/activation_names.h"
#include "formula_parse.h"

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */

/* Signs that are read as other tokens, or as none. */
static const struct {
    const char *sign, *hint;
} signs[] = {
    {"//", "floor(a / b) divides and rounds down, floor(f64(a) / b) large integers"},
    {"&&", "write a and b"},
    {"||", "write a or b, and abs(x) for |x|"},
    {"<>", "write a != b"},
    {"===", "write a == b"},
    {"=>", "write a >= b"},
    {":=", "write y = x"},
    {"@",
     "the product of matrices is matmul(x, y), with a contract in front, and sum(a * b, -1) the dot product of rows"},
    {"?", "write a if c else b"},
    {"\\", "a line goes on behind an operator and inside of brackets"},
    {"{", "brackets are round"},
    {"×", "write a * b"},
    {"·", "write a * b"},
    {"⋅", "write a * b"},
    {"÷", "write a / b"},
    {"−", "write a - b"},
    {"–", "write a - b"},
    {"≤", "write a <= b"},
    {"≥", "write a >= b"},
    {"≠", "write a != b"},
    {"²", "write x ** 2"},
    {"³", "write x ** 3"},
    {"√", "write sqrt(x)"},
    {"∑", "write sum(x)"},
    {"Σ", "write sum(x)"},
    {"π", "write pi"},
    {"∞", "write inf"},
    {"→", "write f(x) -> y with '-' and '>'"},
    {"‘", "write mode == 'sum', with straight quotes"},
    {"’", "write mode == 'sum', with straight quotes"},
    {"“", "write mode == 'sum', with straight quotes"},
    {"”", "write mode == 'sum', with straight quotes"},
};

static tn_status check_signs(const tni_lexer *lex, int32_t at) {
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        const char *sign = signs[i].sign;
        if (strncmp(lex->text + at, sign, strlen(sign)) != 0) continue;
        return tni_lex_fail(lex, at, "there is no '%s'; %s", sign, signs[i].hint);
    }
    return TN_OK;
}

/* x += 1 */
static int assigning_length(const char *s) {
    int n = strchr("*<>", s[0]) && s[1] == s[0] ? 2 : strchr("+-*/%&|^", s[0]) ? 1 : 0;
    return n && s[n] == '=' && s[n + 1] != '=' ? n : 0;
}

/* ---- dots and brackets ------------------------------------------------------------------------------------------- */

typedef struct word {
    char text[TNI_MAX_NAME + 1];
    int32_t begin, end;
} word;

static word word_between(const char *text, int32_t begin, int32_t end) {
    word w = {.begin = begin, .end = end};
    snprintf(w.text, sizeof w.text, "%.*s", (int)(end - begin), text + begin);
    return w;
}

/* The name that ends at `at`; empty where something else does. */
static word word_before(const char *text, int32_t at) {
    int32_t begin = at;
    while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '.')) begin--;
    return word_between(text, begin, at);
}

/* The last name of those that dots join. */
static word word_behind(const char *text, int32_t at) {
    int32_t begin = at + 1, end = begin;
    while (is_word(text[end]) || (text[end] == '.' && is_word(text[end + 1]))) {
        if (text[end++] == '.') begin = end;
    }
    return word_between(text, begin, end);
}

static bool is_module(const char *name) {
    static const char *const modules[] = {"np", "numpy", "cp", "torch", "F",     "nn", "functional", "jnp",  "jax",
                                          "tf", "keras", "K",  "math",  "cmath", "tn", "tenon",      "scipy"};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strcmp(modules[i], name) == 0) return true;
    }
    return false;
}

static bool has_function(const char *name) {
    const tn_function *op = tn_find(name);
    return tni_is_function(name) || (op && tni_is_activation(op));
}

static tn_status fail_dot(const tni_lexer *lex, int32_t at) {
    const char *text = lex->text;
    word before = word_before(text, at), behind = word_behind(text, at);
    bool call = text[behind.end] == '(', more = call && text[behind.end + 1] != ')';
    const char *value = before.text[0] ? before.text : "…";
    if (!behind.text[0]) return tni_lex_unexpected(lex, at);
    if (is_module(before.text)) {
        return tni_lex_fail(lex, before.begin, "names have no module in front of them: write %s%s", behind.text,
                            call ? "(…)" : "");
    }
    if (strcmp(behind.text, "shape") == 0 || strcmp(behind.text, "size") == 0) {
        return tni_lex_fail(lex, at, "a name has no '.': count(%s) and count(%s, -1) give sizes", value, value);
    }
    if (!call) {
        return tni_lex_fail(lex, at, "a name has no '.': give %s.%s to an input with a name of its own", value,
                            behind.text);
    }
    tni_text hint = {0};
    tni_text_add(&hint, "a value has no methods");
    if (has_function(behind.text)) {
        tni_text_add(&hint, ": write %s(%s%s)", behind.text, value, more ? ", …" : "");
    } else {
        tni_text_add(&hint, ", and there is no function '%s'", behind.text);
        tni_hint_function(&hint, behind.text);
    }
    tn_status status = hint.failed ? TN_NO_MEMORY : tni_lex_fail(lex, at, "%s", hint.data);
    tni_free(hint.data);
    return status;
}

tn_status tni_fail_bracket(const tni_lexer *lex, int32_t at) {
    bool alone = lex->text[strspn(lex->text, " \n")] == '[';
    return tni_lex_fail(lex, at, "there are no lists%s",
                        alone ? "; a formula with several results is written a = …; b = …" : "");
}

tn_status tni_check_foreign(const tni_lexer *lex, int32_t at) {
    const char *s = lex->text + at;
    int n = assigning_length(s);
    TN_TRY(check_signs(lex, at));
    if (n) {
        return tni_lex_fail(lex, at, "there is no '%.*s='; write y = x %.*s …, or x! = x %.*s … to update an input", n,
                            s, n, s, n, s);
    }
    if (s[0] == '.') return fail_dot(lex, at);
    if (tni_utf8_length(s) > 1) {
        return tni_lex_fail(lex, at, "'%.*s' is not ASCII: names are of letters a to z, digits and '_'",
                            tni_utf8_length(s), s);
    }
    return TN_OK;
}

tn_status tni_fail_number(const tni_lexer *lex, int32_t at, int32_t length) {
    const char *s = lex->text + at;
    int32_t end = length;
    while (is_word(s[end])) end++;
    int rest = (int)(end - length);
    if (s[length] == '_') return tni_lex_fail(lex, at, "a number has no '_' in it");
    if (length == 1 && s[0] == '0' && strchr("xXbBoO", s[1])) return tni_lex_fail(lex, at, "numbers are decimal");
    if (rest == 0) return tni_lex_fail(lex, at, "malformed number");
    const char *suffix = rest == 1 && strchr("fFlLdD", s[length]) ? "it has no suffix, and " : "";
    return tni_lex_fail(lex, at, "malformed number: %sa product is written %.*s * %.*s", suffix, (int)length, s, rest,
                        s + length);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const char inputs_in_front[] = "inputs are named in front as in f(x, y) : x + y, or not at all";

/* The hint where two words stand beside each other, of which one is no name; NULL: both can be. */
static const char *hint_of_word(const char *s) {
    static const struct {
        const char *word, *hint;
    } words[] = {
        {"return", "the last statement is the result, with no word in front"},
        {"lambda", inputs_in_front},
        {"def", inputs_in_front},
        {"let", "a value is named with no word in front: y = …"},
        {"const", "a value is named with no word in front: y = …"},
        {"auto", "a value is named with no word in front: y = …"},
        {"int", "a value is named with no word in front: y = …"},
        {"float", "a value is named with no word in front: y = …"},
        {"double", "a value is named with no word in front: y = …"},
        {"for", "there are no loops: a formula is computed for each element"},
        {"while", "there are no loops: a formula is computed for each element"},
        {"import", "all functions of the language are there"},
        {"from", "all functions of the language are there"},
        {"is", "a == b compares, and has(x) says whether an optional input is there"},
        {"in", "compare with each: x == 1 or x == 2"},
        {"not", "compare with each: x != 1 and x != 2"},
        {"mod", "a remainder is written a % b"},
        {"div", "a quotient that is rounded down is written floor(a / b)"},
        {"xor", "of truth values, it is written a != b"},
        {"where", "a choice is written where(c, a, b), or a if c else b"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if (strncmp(s, words[i].word, n) == 0 && !is_word(s[n])) return words[i].hint;
    }
    return NULL;
}

static bool begins_value(const tni_token *token) {
    return token->kind == TNI_NAME || token->kind == TNI_INT || token->kind == TNI_FLOAT || token->kind == '(';
}

tn_status tni_check_words(const tni_lexer *lex, int32_t at) {
    const char *hint = begins_value(&lex->token) ? hint_of_word(lex->text + at) : NULL;
    return hint ? tni_lex_fail(lex, at, "%s", hint) : TN_OK;
}

tn_status tni_fail_comma(const tni_lexer *lex) {
    bool arrow = strstr(lex->text + lex->token.at, "->"); /* x, y -> x + y */
    return tni_lex_fail(lex, lex->token.at, "%s",
                        arrow ? inputs_in_front : "a formula with several results is written a = …; b = …");
}

tn_status tni_fail_behind(const tni_lexer *lex, int32_t statement) {
    const tni_token *token = &lex->token;
    const char *first = hint_of_word(lex->text + statement), *here = hint_of_word(lex->text + token->at);
    if (first) return tni_lex_fail(lex, statement, "%s", first);
    if (here) return tni_lex_fail(lex, token->at, "%s", here);
    if (token->kind == '=') return tni_lex_fail(lex, token->at, "'=' stands behind one name; '==' compares");
    if (token->kind == ')') return tni_lex_fail(lex, token->at, "this ')' closes nothing");
    if (token->kind == ',') return tni_fail_comma(lex);
    if (token->kind == TNI_ARROW) return tni_lex_fail(lex, token->at, "%s", inputs_in_front);
    return tni_lex_expected(lex, "an operator or the end of the statement%s",
                            begins_value(token) ? "; a product is written with '*'" : "");
}

/* f(x) = x * 2, f(x) => x * 2, f(x) { x * 2 } */
bool tni_defines_function(const char *s) {
    int32_t open = 0;
    while (*s && *s != '(') s++;
    for (; *s; s++) {
        open += (*s == '(') - (*s == ')');
        if (open == 0) break;
    }
    if (*s == ')') s++;
    while (*s == ' ') s++;
    return s[0] == '{' || (s[0] == '=' && s[1] != '=');
}
