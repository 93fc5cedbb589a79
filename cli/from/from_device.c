/* NAME.cu: the parts of a file that run on the GPU. What is the host's, launchers above all, is left out and named. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "from.h"

typedef struct writer {
    const from_file *file;
    tni_text *to, *notes;
} writer;

static bool begins_with(const char *s, const char *end, const char *word) {
    const size_t n = strlen(word);
    return (size_t)(end - s) >= n && memcmp(s, word, n) == 0 && !isalnum((unsigned char)s[n]) && s[n] != '_';
}

static bool has_word(const char *s, const char *end, const char *word) {
    for (; s < end; s++) {
        if (begins_with(s, end, word) && !isalnum((unsigned char)s[-1]) && s[-1] != '_') return true;
    }
    return false;
}

/* ---- lines of the preprocessor ----------------------------------------------------------------------------------- */

/* Headers that NVRTC can use, where CUDA's are installed. */
static bool is_for_devices(const char *line, const char *end) {
    static const char *const names[] = {"<tenon/", "cuda_fp16", "cuda_bf16", "cuda_fp8",       "cooperative_groups",
                                        "<cub/",   "<cuda/",    "mma.h",     "math_constants", "curand_kernel"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (memmem(line, (size_t)(end - line), names[i], strlen(names[i]))) return true;
    }
    return false;
}

static const char *why_not_included(const char *line, const char *end) {
    if (memmem(line, (size_t)(end - line), "torch/", 6) || memmem(line, (size_t)(end - line), "ATen", 4) ||
        memmem(line, (size_t)(end - line), "c10/", 4)) {
        return "PyTorch's: Tenon calls the kernel, from every framework";
    }
    if (memmem(line, (size_t)(end - line), "cuda_runtime", 12) || memmem(line, (size_t)(end - line), "<cuda.h>", 8) ||
        memmem(line, (size_t)(end - line), "device_launch", 13)) {
        return "NVRTC has it built in";
    }
    return "the host's";
}

/* Blank space and comments, with what is in between for the preprocessor. */
static void copy_space(writer *w, const char *s, const char *end) {
    while (s < end) {
        const char *line_end = memchr(s, '\n', (size_t)(end - s)), *word = s + strspn(s, " \t");
        line_end = line_end ? line_end : end;
        const char *directive = word < line_end && *word == '#' ? word + 1 + strspn(word + 1, " \t") : NULL;
        if (directive && begins_with(directive, line_end, "include") && !is_for_devices(s, line_end)) {
            const char *why = why_not_included(s, line_end);
            tni_text_add(w->to, "/* %.*s is left out: %s. */", (int)(line_end - word), word, why);
            if (strncmp(why, "PyTorch", 7) == 0)
                tni_text_add(w->notes, "  left out: %.*s, %s\n", (int)(line_end - word), word, why);
        } else {
            tni_text_add(w->to, "%.*s", (int)(line_end - s), s);
        }
        if (line_end < end) tni_text_put(w->to, "\n");
        s = line_end + 1;
    }
}

/* ---- declarations ------------------------------------------------------------------------------------------------ */

static const char *behind_bracket(const char *s, const char *end) {
    const char open = *s, close = open == '(' ? ')' : open == '{' ? '}' : ']';
    int depth = 0;
    for (; s < end; s++) {
        depth += (*s == open) - (*s == close);
        if (depth == 0) return s + 1;
    }
    return end;
}

typedef struct declaration {
    const char *begin, *end, *body; /* body: the '{'; NULL: none */
    bool has_parameters;            /* a '(' before the body, or the ';' */
    bool is_set;                    /* a '=' before that */
} declaration;

/* Behind `template <int N = 4>`; s itself where there is none. */
static const char *behind_angles(const char *s, const char *end) {
    if (!begins_with(s, end, "template")) return s;
    int depth = 0;
    while (s < end && *s != '<') s++;
    for (; s < end; s++) {
        depth += (*s == '<') - (*s == '>');
        if (depth == 0) return s + 1;
    }
    return end;
}

static declaration next_declaration(const char *s, const char *end) {
    declaration d = {.begin = s};
    s = behind_angles(s, end);
    while (s < end && *s != ';') {
        if (*s == '{') {
            if (!d.body) d.body = s;
            s = behind_bracket(s, end);
            const char *next = s + strspn(s, " \t\r\n");
            const bool goes_on = d.is_set || (!d.has_parameters && (*next == ';' || isalpha((unsigned char)*next)));
            if (!goes_on || next >= end) break;
            if (*next == ';') {
                s = next;
                break;
            }
            if (!d.is_set && !begins_with(d.begin, end, "struct") && !begins_with(d.begin, end, "typedef")) break;
        } else if (*s == '(' || *s == '[') {
            if (*s == '(' && !d.is_set) d.has_parameters = true;
            s = behind_bracket(s, end);
        } else {
            if (*s == '=' && !d.body) d.is_set = true;
            s++;
        }
    }
    d.end = s < end && *s == ';' ? s + 1 : s;
    return d;
}

/* The word in front of the parameters. */
static void name_of(const declaration *d, char *name, size_t size) {
    const char *open = d->begin;
    while (open < d->end && *open != '(' && *open != ';' && *open != '{' && *open != '=') open++;
    const char *e = open;
    while (e > d->begin && isspace((unsigned char)e[-1])) e--;
    const char *s = e;
    while (s > d->begin && (isalnum((unsigned char)s[-1]) || s[-1] == '_')) s--;
    snprintf(name, size, "%.*s", (int)(e - s), s);
}

static bool is_the_devices(const declaration *d) {
    static const char *const words[] = {"__global__", "__device__", "__constant__", "__managed__"};
    const char *end = d->body ? d->body : d->end;
    for (int i = 0; i < 4; i++) {
        if (has_word(d->begin, end, words[i])) return true;
    }
    if (begins_with(d->begin, end, "using") && has_word(d->begin, end, "namespace")) {
        return has_word(d->begin, end, "cooperative_groups") || has_word(d->begin, end, "nvcuda");
    }
    static const char *const neutral[] = {"using", "typedef",   "struct", "class",         "enum",
                                          "union", "constexpr", "const",  "static_assert", "namespace"};
    const char *from = d->begin;
    if (begins_with(from, end, "static")) from += 6 + strspn(from + 6, " \t\r\n");
    from = behind_angles(from, end);
    from += strspn(from, " \t\r\n");
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        const bool is_type = i < 6;
        if (begins_with(from, end, neutral[i])) return is_type ? true : !d->has_parameters || d->is_set;
    }
    return false;
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

/* `template <typename scalar_t>` of a kernel goes: its types are the contract's, its numbers those of the launch. */
static const char *behind_template(const declaration *d) {
    if (!begins_with(d->begin, d->end, "template") || !has_word(d->begin, d->body ? d->body : d->end, "__global__")) {
        return d->begin;
    }
    const char *s = behind_angles(d->begin, d->end);
    return s + strspn(s, " \t\r\n");
}

/* Names that templates of kernels had, as what they stand for now. */
static void write_template_names(writer *w) {
    static const char *const variables[] = {"T", "U", "V", "W"};
    char seen[1024] = " ";
    for (int i = 0; i < w->file->n; i++) {
        const from_kernel *k = &w->file->kernels[i];
        if (!k->function->templates) continue;
        const char *text = k->function->templates;
        const tokens all = read_tokens(w->file->arena, text, text + strlen(text));
        int types = 0, at = 0, place = 0;
        for (int end; at < all.n; at = end + 1, place++) {
            end = at;
            while (end < all.n && !token_is(&all.at[end], ",")) end++;
            int name = end - 1, equals = at;
            while (equals < end && !token_is(&all.at[equals], "=")) equals++;
            if (equals < end) name = equals - 1;
            const token *t = &all.at[name];
            const bool is_type = token_is(&all.at[at], "typename") || token_is(&all.at[at], "class");
            const char *variable = is_type && types < 4 ? variables[types++] : NULL;
            char word[MOST_NAME + 2];
            snprintf(word, sizeof word, " %.*s ", t->n, t->s);
            const bool known = strstr(seen, word) != NULL;
            if (known) continue;
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s", word + 1);
            if (is_type) {
                if (variable && !token_is(t, variable)) {
                    tni_text_add(w->to,
                                 "using %.*s = %s; /* a type of the contract; it was a template's parameter */\n", t->n,
                                 t->s, variable);
                }
                continue;
            }
            tokens value = part(&all, equals + 1, end);
            int argument = 0; /* the one in kernel<…> at the same place */
            for (int b = 0, e; b < k->site.templates.n; b = e + 1, argument++) {
                e = b;
                while (e < k->site.templates.n && !token_is(&k->site.templates.at[e], ",")) e++;
                if (argument == place) value = part(&k->site.templates, b, e);
            }
            const char *number = value.n ? joined(w->file->arena, &value) : NULL;
            tni_text_add(w->to, "constexpr %.*s %.*s = %s; /* %s */\n", (int)(t->s - all.at[at].s) - 1, all.at[at].s,
                         t->n, t->s, number ? number : "256",
                         number ? "it was a template's parameter" : "a guess: it was a template's parameter");
        }
    }
}

/* A declaration, with `const` in front of parameters that are only read: a kernel takes its inputs so. */
static void copy_declaration(writer *w, const char *from, const char *end) {
    const char *text = w->file->text, *clean = w->file->clean;
    for (int i = 0; i < w->file->n; i++) {
        const from_kernel *k = &w->file->kernels[i];
        for (int j = 0; j < k->n; j++) {
            const guess *g = &k->guesses[j];
            const char *at = clean + g->param->at;
            if (g->role != INPUT || g->param->is_const || at < from || at >= end) continue;
            tni_text_add(w->to, "%.*sconst ", (int)(at - from), text + (from - clean));
            from = at;
        }
    }
    tni_text_add(w->to, "%.*s", (int)(end - from), text + (from - clean));
}

static void write_range(writer *w, const char *begin, const char *end) {
    const char *text = w->file->text, *clean = w->file->clean;
    for (const char *s = begin; s < end;) {
        const char *next = s + strspn(s, " \t\r\n");
        if (next > end) next = end;
        copy_space(w, text + (s - clean), text + (next - clean));
        s = next;
        if (s >= end) break;
        if (*s == ';' || *s == '}') {
            tni_text_add(w->to, "%c", *s++);
            continue;
        }
        declaration d = next_declaration(s, end);
        const bool is_open = d.body && !d.has_parameters && !d.is_set &&
                             (begins_with(s, end, "namespace") || begins_with(s, end, "extern"));
        if (is_open) { /* namespace x {, extern "C" { */
            /* inline: the kernels in it are found by their names */
            if (begins_with(s, end, "namespace") && d.body > s + 10) tni_text_put(w->to, "inline ");
            tni_text_add(w->to, "%.*s", (int)(d.body + 1 - s), text + (s - clean));
            const char *close = behind_bracket(d.body, end);
            write_range(w, d.body + 1, close - 1);
            tni_text_put(w->to, "}");
            s = close;
        } else if (is_the_devices(&d)) {
            const char *from = behind_template(&d);
            copy_declaration(w, from, d.end);
            s = d.end;
        } else {
            char name[MOST_NAME];
            name_of(&d, name, sizeof name);
            const int32_t line = tni_line_of(clean, (int32_t)(s - clean));
            tni_text_add(w->to, "/* %s of line %d is left out: it is the host's. */", *name ? name : "What is", line);
            s = d.end;
        }
    }
}

void write_device_text(const from_file *file, tni_text *to, tni_text *notes) {
    writer w = {file, to, notes};
    write_template_names(&w);
    write_range(&w, file->clean, file->clean + strlen(file->clean));
}
