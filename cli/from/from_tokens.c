/* Words, numbers and signs of a text of CUDA C. */
#include <ctype.h>
#include <string.h>

#include "from.h"

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static int length_of(const char *s, const char *end, token_kind *kind) {
    static const char *const signs[] = {"<<<", ">>>", "<<=", ">>=", "<=", ">=", "==", "!=", "+=", "-=", "*=", "/=",
                                        "%=",  "&=",  "|=",  "^=",  "++", "--", "&&", "||", "->", "::", NULL};
    int n = 0;
    *kind = SIGN;
    if (isdigit((unsigned char)*s) || (*s == '.' && s + 1 < end && isdigit((unsigned char)s[1]))) {
        *kind = NUMERAL;
        while (s + n < end && (is_word(s[n]) || s[n] == '.' ||
                               ((s[n] == '+' || s[n] == '-') && n && strchr("eE", s[n - 1]) && s[1] != 'x')))
            n++;
        return n;
    }
    while (s + n < end && is_word(s[n])) n++;
    if (n) {
        *kind = WORD;
        return n;
    }
    for (int i = 0; signs[i]; i++) {
        const size_t length = strlen(signs[i]);
        if ((size_t)(end - s) >= length && memcmp(s, signs[i], length) == 0) return (int)length;
    }
    return 1;
}

tokens read_tokens(tni_arena *arena, const char *begin, const char *end) {
    tokens made = {0};
    for (int pass = 0; pass < 2; pass++) { /* how many, then which */
        int n = 0;
        for (const char *s = begin; s < end;) {
            token_kind kind;
            if (isspace((unsigned char)*s)) {
                s++;
                continue;
            }
            const int length = length_of(s, end, &kind);
            if (pass) made.at[n] = (token){s, length, kind};
            n++;
            s += length;
        }
        if (!pass) made.at = tni_arena_alloc(arena, (size_t)(n + 1) * sizeof *made.at);
        if (!made.at) return (tokens){0};
        made.n = n;
    }
    return made;
}

bool token_is(const token *t, const char *text) {
    return t->kind != END && strlen(text) == (size_t)t->n && memcmp(t->s, text, (size_t)t->n) == 0;
}

bool token_is_one_of(const token *t, const char *const *texts) {
    for (; *texts; texts++) {
        if (token_is(t, *texts)) return true;
    }
    return false;
}

bool same_token(const token *a, const token *b) {
    return a->n == b->n && a->kind == b->kind && a->kind != END && memcmp(a->s, b->s, (size_t)a->n) == 0;
}

int closing(const tokens *all, int i) {
    int depth = 0;
    for (; i < all->n; i++) {
        if (all->at[i].n != 1) continue;
        depth += strchr("([{", all->at[i].s[0]) != NULL;
        depth -= strchr(")]}", all->at[i].s[0]) != NULL;
        if (depth == 0) return i;
    }
    return all->n;
}

int end_of_expression(const tokens *all, int i) {
    while (i < all->n && !(all->at[i].kind == SIGN && all->at[i].n == 1 && strchr(",;)}]", all->at[i].s[0]))) {
        const bool opens = all->at[i].kind == SIGN && all->at[i].n == 1 && strchr("([{", all->at[i].s[0]);
        i = opens ? closing(all, i) + 1 : i + 1;
    }
    return i < all->n ? i : all->n;
}

tokens part(const tokens *all, int begin, int end) {
    if (end > all->n) end = all->n;
    return begin < end ? (tokens){all->at + begin, end - begin} : (tokens){0};
}

char *joined(tni_arena *arena, const tokens *t) {
    size_t length = 0;
    for (int i = 0; i < t->n; i++) length += (size_t)t->at[i].n + 1;
    char *made = tni_arena_alloc(arena, length + 1), *to = made;
    for (int i = 0; made && i < t->n; i++) {
        const bool apart = i && t->at[i].kind == WORD && t->at[i - 1].kind == WORD;
        if (apart) *to++ = ' ';
        memcpy(to, t->at[i].s, (size_t)t->at[i].n);
        to += t->at[i].n;
    }
    return made;
}

tokens definition(const tokens *all, const char *word, int length) {
    for (int i = 1; i + 1 < all->n; i++) {
        const token *t = &all->at[i];
        if (t->kind != WORD || t->n != length || memcmp(t->s, word, (size_t)length) != 0) continue;
        const token *before = t - 1;
        const bool declared = before->kind == WORD || token_is(before, ",") || token_is(before, "*") ||
                              token_is(before, ">") || token_is(before, "(");
        if (declared && token_is(t + 1, "=")) return part(all, i + 2, end_of_expression(all, i + 2));
    }
    return (tokens){0};
}
