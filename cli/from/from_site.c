/* Where a kernel is launched: `name<T><<<grid, block>>>(arguments)`, and the host's function around it. */
#include <ctype.h>
#include <string.h>

#include "from.h"

/* The name of the kernel in front of `<<<`, and the template's arguments. -1: it is another one. */
static int name_before(const tokens *all, int at, const char *name, tokens *templates) {
    int i = at - 1;
    *templates = (tokens){0};
    if (i > 0 && token_is(&all->at[i], ">")) {
        int depth = 0, end = i;
        for (; i >= 0; i--) {
            depth += token_is(&all->at[i], ">") - token_is(&all->at[i], "<");
            if (depth == 0) break;
        }
        *templates = part(all, i + 1, end);
        i--;
    }
    return i >= 0 && token_is(&all->at[i], name) ? i : -1;
}

/* The end of a part of `<<<a, b, c>>>`: a ',' or the '>>>' that is not inside of something. */
static int end_of_setting(const tokens *all, int i) {
    while (i < all->n && !token_is(&all->at[i], ",") && !token_is(&all->at[i], ">>>")) {
        const bool opens = all->at[i].n == 1 && strchr("([{", all->at[i].s[0]);
        i = opens ? closing(all, i) + 1 : i + 1;
    }
    return i;
}

/* The outermost braces around a place whose text begins with a function: not a namespace, not extern "C". */
static void find_host(const tokens *all, int at, launch_site *site) {
    int depth = 0;
    for (int i = at; i >= 0; i--) {
        depth += token_is(&all->at[i], "}") - token_is(&all->at[i], "{");
        if (depth >= 0 || !token_is(&all->at[i], "{")) continue;
        depth = 0;
        if (!i || !token_is(&all->at[i - 1], ")")) continue;
        int open = i - 1;
        for (int inner = 0; open >= 0; open--) {
            inner += token_is(&all->at[open], ")") - token_is(&all->at[open], "(");
            if (inner == 0) break;
        }
        if (open < 1 || all->at[open - 1].kind != WORD) continue;
        site->host_params = part(all, open + 1, i - 1);
        site->host_body = part(all, i + 1, closing(all, i));
        site->host = all->at[open - 1].s; /* ends where the word does: made a text by whoever asks */
    }
}

void find_launch(const from_file *file, from_kernel *k) {
    const tokens *all = &file->all;
    launch_site *site = &k->site;
    *site = (launch_site){.host = ""};
    for (int i = 1; i < all->n; i++) {
        if (!token_is(&all->at[i], "<<<") || name_before(all, i, k->function->name, &site->templates) < 0) continue;
        tokens settings[4] = {0};
        int n = 0, at = i + 1;
        for (; at < all->n && n < 4; n++) {
            const int end = end_of_setting(all, at);
            settings[n] = part(all, at, end);
            at = end + 1;
            if (end < all->n && token_is(&all->at[end], ">>>")) break;
        }
        site->found = true;
        site->grid = settings[0], site->block = settings[1], site->shared = settings[2];
        if (at < all->n && token_is(&all->at[at], "(")) {
            const int close = closing(all, at);
            for (at++; at < close && site->n_arguments < TNI_MOST_PARAMS;) {
                const int end = end_of_expression(all, at);
                site->arguments[site->n_arguments++] = part(all, at, end);
                at = end + 1;
            }
        }
        find_host(all, i, site);
        if (*site->host) {
            size_t length = 0;
            while (isalnum((unsigned char)site->host[length]) || site->host[length] == '_') length++;
            site->host = tni_arena_text(file->arena, site->host, length);
            if (!site->host) site->host = "";
        }
        return;
    }
}

/* `#define NAME value`, of the text with its preprocessor lines. */
static tokens macro_of(const from_file *file, const token *t) {
    for (const char *s = file->text; (s = strstr(s, "#define"));) {
        s += 7;
        s += strspn(s, " \t");
        if (strncmp(s, t->s, (size_t)t->n) != 0 || !strchr(" \t", s[t->n]) || !s[t->n]) continue;
        const char *from = s + t->n, *end = from + strcspn(from, "\n");
        const char *comment = strstr(from, "//"), *other = strstr(from, "/*");
        if (comment && comment < end) end = comment;
        if (other && other < end) end = other;
        return read_tokens(file->arena, from, end);
    }
    return (tokens){0};
}

tokens constant_of(const from_file *file, const token *t) {
    const tokens found = macro_of(file, t);
    if (found.n) return found;
    static const char *const words[] = {"constexpr", "const", NULL};
    for (int i = 2; i + 2 < file->all.n; i++) {
        if (!same_token(&file->all.at[i], t) || !token_is(&file->all.at[i + 1], "=")) continue;
        bool is_constant = false;
        for (int back = i - 1; back >= 0 && file->all.at[back].kind == WORD; back--) {
            is_constant |= token_is_one_of(&file->all.at[back], words);
        }
        if (is_constant) return part(&file->all, i + 2, end_of_expression(&file->all, i + 2));
    }
    return (tokens){0};
}
