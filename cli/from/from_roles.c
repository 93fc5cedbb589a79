/* What each parameter of a kernel is: an input, an output, a length, a number. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "from.h"

guess *find_guess(from_kernel *k, const token *t) {
    for (int i = 0; t->kind == WORD && i < k->n; i++) {
        const char *name = k->guesses[i].param->name;
        if (strlen(name) == (size_t)t->n && memcmp(name, t->s, (size_t)t->n) == 0) return &k->guesses[i];
    }
    return NULL;
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *c, *contract;
} types[] = {
    {"float", "f32"},
    {"double", "f64"},
    {"half", "f16"},
    {"__half", "f16"},
    {"tn::f16", "f16"},
    {"__nv_bfloat16", "bf16"},
    {"nv_bfloat16", "bf16"},
    {"tn::bf16", "bf16"},
    {"int", "i32"},
    {"int32_t", "i32"},
    {"signed int", "i32"},
    {"long long", "i64"},
    {"int64_t", "i64"},
    {"long", "i64"},
    {"long long int", "i64"},
    {"unsigned int", "u32"},
    {"unsigned", "u32"},
    {"uint32_t", "u32"},
    {"size_t", "u64"},
    {"uint64_t", "u64"},
    {"unsigned long", "u64"},
    {"unsigned long long", "u64"},
    {"unsigned char", "u8"},
    {"uint8_t", "u8"},
    {"char", "i8"},
    {"signed char", "i8"},
    {"int8_t", "i8"},
    {"short", "i16"},
    {"int16_t", "i16"},
    {"uint16_t", "u16"},
    {"unsigned short", "u16"},
    {"bool", "bool"},
};

/* Which type parameter of the template it is: 0 is the first; -1: none. */
static int template_type(const from_file *file, const tni_cfunction *f, const char *type) {
    if (!f->templates) return -1;
    const tokens all = read_tokens(file->arena, f->templates, f->templates + strlen(f->templates));
    int n = 0;
    for (int i = 0; i + 1 < all.n; i++) {
        if (!token_is(&all.at[i], "typename") && !token_is(&all.at[i], "class")) continue;
        if (token_is(&all.at[i + 1], type)) return n;
        n++;
    }
    return -1;
}

static bool set_type(const from_file *file, const tni_cfunction *f, guess *g) {
    static const char *const variables[] = {"T", "U", "V", "W"};
    const int variable = template_type(file, f, g->param->type);
    if (variable >= 0 && variable < 4) return snprintf(g->type, sizeof g->type, "%s", variables[variable]) > 0;
    if (strcmp(g->param->type, "T") == 0) return snprintf(g->type, sizeof g->type, "T") > 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].c, g->param->type) == 0)
            return snprintf(g->type, sizeof g->type, "%s", types[i].contract) > 0;
    }
    return false;
}

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

static bool is_assignment(const token *t) {
    static const char *const signs[] = {
        "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--", NULL};
    return token_is_one_of(t, signs);
}

typedef struct use {
    bool written, read, accumulated;
    bool read_first; /* before anything was written: what is there matters */
} use;

/* Is the word in the statement behind i? */
static bool is_behind(const tokens *body, int i, const char *name, int length) {
    for (; i < body->n && !token_is(&body->at[i], ";"); i++) {
        if (body->at[i].kind == WORD && body->at[i].n == length && memcmp(body->at[i].s, name, (size_t)length) == 0)
            return true;
    }
    return false;
}

/* The variable that the statement around i sets: row of `const float *row = x + …`. NULL: none. */
static const token *set_by(const tokens *body, int i) {
    for (; i > 1 && !token_is(&body->at[i], ";") && !token_is(&body->at[i], "{"); i--) {
        if (token_is(&body->at[i], "=") && body->at[i - 1].kind == WORD) return &body->at[i - 1];
    }
    return NULL;
}

/* atomicAdd(&x[i], …), atomicAdd(x + i, …) */
static bool is_in_atomic(const tokens *body, int i) {
    static const char *const atomics[] = {"atomicAdd", "atomicMax", "atomicMin", "atomicSub", NULL};
    const token *t = &body->at[i];
    if (i > 2 && token_is(t - 1, "&") && token_is(t - 2, "(")) return token_is_one_of(t - 3, atomics);
    return i > 1 && token_is(t - 1, "(") && token_is_one_of(t - 2, atomics);
}

/* *x, which is no product */
static bool is_pointed_at(const tokens *body, int i) {
    const token *t = &body->at[i];
    if (!i || !token_is(t - 1, "*")) return false;
    return i < 2 || (t[-2].kind == SIGN && !token_is(t - 2, ")") && !token_is(t - 2, "]"));
}

/* What happens to `name[…]` and `*name`, and to what is set to it: `row = name + …`, `(float4 *)name`. */
static void look_at_uses(const from_kernel *k, const char *name, int length, use *found, int depth) {
    const tokens *body = &k->body;
    for (int i = 0; i < body->n; i++) {
        const token *t = &body->at[i];
        if (t->kind != WORD || t->n != length || memcmp(t->s, name, (size_t)length) != 0) continue;
        if (i && (token_is(t - 1, ".") || token_is(t - 1, "->"))) continue;
        int end = i + 1;
        while (end < body->n && token_is(&body->at[end], "[")) end = closing(body, end) + 1;
        const bool element = end > i + 1 || is_pointed_at(body, i);
        if (is_in_atomic(body, i)) {
            found->written = found->read = found->accumulated = found->read_first = true;
        } else if (element && end < body->n && is_assignment(&body->at[end])) {
            const bool adds = !token_is(&body->at[end], "=");
            if (!found->written) found->read_first |= adds || is_behind(body, end, name, length);
            if (adds) found->read = found->accumulated = true;
            found->written = true;
        } else if (element) {
            if (!found->written) found->read_first = true;
            found->read = true;
        } else {
            const token *other = depth < 3 ? set_by(body, i) : NULL;
            if (other && !same_token(other, t)) look_at_uses(k, other->s, other->n, found, depth + 1);
        }
    }
}

static void guess_pointer(const from_kernel *k, guess *g) {
    use found = {0};
    look_at_uses(k, g->param->name, (int)strlen(g->param->name), &found, 0);
    g->is_accumulated = found.accumulated;
    if (g->param->is_const || (found.read && !found.written)) {
        g->role = INPUT;
        if (!g->param->is_const) snprintf(g->why, sizeof g->why, "an input: it is only read, though it is not const");
        return;
    }
    g->role = found.read_first ? UPDATED : OUTPUT;
    if (g->role == OUTPUT) snprintf(g->why, sizeof g->why, "an output");
    if (g->role == UPDATED) {
        snprintf(g->why, sizeof g->why,
                 found.accumulated
                     ? "updated in place: the kernel adds to what is there, so the caller puts the first value there"
                     : "updated in place: it is read before it is written");
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static bool is_integer(const guess *g) {
    return g->type[0] == 'i' || g->type[0] == 'u';
}

/* Compared with, or multiplied, as sizes are. */
static bool is_used_as_length(const from_kernel *k, const guess *g) {
    static const char *const comparisons[] = {"<", ">=", "<=", ">", "*", "%", NULL};
    for (int i = 1; i + 1 < k->body.n; i++) {
        const token *t = &k->body.at[i];
        if (!token_is(t, g->param->name) || token_is(t - 1, ".")) continue;
        if (token_is_one_of(t - 1, comparisons) || token_is_one_of(t + 1, comparisons)) return true;
        if (token_is(t - 1, "/")) return true; /* i / columns */
    }
    return false;
}

static bool is_passed_a_size(const from_kernel *k, const guess *g) {
    static const char *const words[] = {"numel", "size", "sizes", "shape", "ncols", "nrows", NULL};
    const int at = (int)(g - k->guesses);
    if (!k->site.found || at >= k->site.n_arguments) return false;
    tokens given = k->site.arguments[at];
    for (int turn = 0; turn < 4 && given.n == 1; turn++) {
        const tokens next = definition(&k->site.host_body, given.at[0].s, given.at[0].n);
        if (!next.n) break;
        given = next;
    }
    for (int i = 0; i < given.n; i++) {
        if (token_is_one_of(&given.at[i], words)) return true;
    }
    return false;
}

static void guess_number(const from_kernel *k, guess *g) {
    static const char *const not_lengths[] = {"stride", "pad", "padding", "dilation", "seed", "offset", "flag", "mode"};
    g->role = ATTRIBUTE;
    if (is_integer(g)) {
        bool named = false;
        for (size_t i = 0; i < sizeof not_lengths / sizeof not_lengths[0]; i++)
            named |= strstr(g->param->name, not_lengths[i]) != NULL;
        if (is_passed_a_size(k, g) || (!named && is_used_as_length(k, g))) g->role = LENGTH;
        snprintf(g->type, sizeof g->type, "int");
    } else if (strcmp(g->type, "bool") != 0) {
        snprintf(g->type, sizeof g->type, "float");
    }
}

void guess_roles(const from_file *file, from_kernel *k) {
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        const tni_cparam *p = g->param;
        if (strstr(p->type, "Accessor") || strstr(p->type, "Tensor")) {
            g->role = STRANGE;
            snprintf(g->why, sizeof g->why,
                     "%s is %.60s of PyTorch; Tenon gives a kernel pointers and sizes: const T *%s", p->name, p->type,
                     p->name);
        } else if (!*p->name) {
            g->role = STRANGE;
            snprintf(g->why, sizeof g->why, "parameter %d has no name, by which it would be given its value", i + 1);
        } else if (p->pointers > 1 || !set_type(file, k->function, g)) {
            g->role = STRANGE;
            snprintf(g->why, sizeof g->why, "%s is of type %.60s%s, which no tensor has", p->name, p->type,
                     p->pointers > 1 ? " **"
                     : p->pointers   ? " *"
                                     : "");
        }
    }
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (g->role == STRANGE) continue;
        if (g->param->pointers)
            guess_pointer(k, g);
        else
            guess_number(k, g);
    }
}
