/* What a kernel computes, where each element of the output is one expression of elements of the inputs: that is a
 * formula, and a formula is a reference, a kernel for the CPU and a gradient. Any statement that is not understood
 * means that there is none. */
#include <stdio.h>
#include <string.h>

#include <tenon/fuse.h>

#include "from.h"

typedef struct teller {
    const from_file *file;
    from_kernel *k;
    tni_text text;
    const char *output; /* the index of what is written, as text; NULL: none yet */
    struct {
        const guess *of;
        const char *index;
    } elements[32]; /* that are read */
    int n_elements, statements;
    struct {
        token name;
        const char *text; /* what it stands for */
    } given[32];          /* parameters of functions that are called */
    int n_given, depth;
    bool failed;
} teller;

static const struct {
    const char *c, *formula;
} functions[] = {
    {"expf", "exp"},      {"exp", "exp"},           {"__expf", "exp"},        {"logf", "log"},
    {"log", "log"},       {"__logf", "log"},        {"sqrtf", "sqrt"},        {"sqrt", "sqrt"},
    {"rsqrtf", "rsqrt"},  {"rsqrt", "rsqrt"},       {"tanhf", "tanh"},        {"tanh", "tanh"},
    {"sinf", "sin"},      {"sin", "sin"},           {"cosf", "cos"},          {"cos", "cos"},
    {"erff", "erf"},      {"erf", "erf"},           {"fabsf", "abs"},         {"fabs", "abs"},
    {"abs", "abs"},       {"fmaxf", "maximum"},     {"fmax", "maximum"},      {"max", "maximum"},
    {"fminf", "minimum"}, {"fmin", "minimum"},      {"min", "minimum"},       {"powf", "pow"},
    {"pow", "pow"},       {"floorf", "floor"},      {"floor", "floor"},       {"log1pf", "log1p"},
    {"expm1f", "expm1"},  {"log1p", "log1p"},       {"expm1", "expm1"},       {"__half2float", ""},
    {"__float2half", ""}, {"__bfloat162float", ""}, {"__float2bfloat16", ""}, {"__float2half_rn", ""},
};

static const char *const number_types[] = {"float", "double", "scalar_t", "T", "auto", "const", NULL};
static const char *const index_types[] = {"int",      "size_t",  "unsigned", "long",  "int64_t",
                                          "uint32_t", "int32_t", "auto",     "const", NULL};

static void tell(teller *t, const tokens *e);

/* p[index]: the tensor itself, if it fits to what is written (are_alike). */
static int tell_element(teller *t, const tokens *e, int i, const guess *g) {
    const int close = closing(e, i + 1);
    const tokens index = part(e, i + 2, close);
    const char *text = joined(t->file->arena, &index);
    if (!g->has_shape || !text || t->n_elements == 32) {
        t->failed = true;
    } else {
        t->elements[t->n_elements].of = g;
        t->elements[t->n_elements++].index = text;
    }
    tni_text_put(&t->text, g->param->name);
    return close + 1;
}

/* Each element is read where one is written, or belongs to fewer dimensions: bias[column]. x[i + 1] is another. */
static bool are_alike(const teller *t) {
    for (int i = 0; i < t->n_elements; i++) {
        if (strcmp(t->elements[i].index, t->output) == 0) continue;
        if (strpbrk(t->elements[i].index, "+-*/%[(")) return false;
        for (int j = 0; j < t->k->n; j++) {
            const guess *g = &t->k->guesses[j];
            const bool writes = g->role == OUTPUT || g->role == UPDATED;
            if (writes && g->n_dims <= t->elements[i].of->n_dims) return false;
        }
    }
    return true;
}

static bool is_local(const teller *t, const token *word) {
    const tokens set = definition(&t->k->body, word->s, word->n);
    return set.n > 0;
}

/* A function of the file that is one expression, `{ return 1 / (1 + exp(-z)); }`: its parameters and result. */
static bool find_helper(const teller *t, const token *name, tokens *params, tokens *result) {
    const tokens *all = &t->file->all;
    for (int i = 1; i + 2 < all->n; i++) {
        if (!same_token(&all->at[i], name) || !token_is(&all->at[i + 1], "(")) continue;
        const int close = closing(all, i + 1);
        if (close + 3 >= all->n || !token_is(&all->at[close + 1], "{") || !token_is(&all->at[close + 2], "return"))
            continue;
        const int end = end_of_expression(all, close + 3);
        if (end + 1 >= all->n || !token_is(&all->at[end], ";") || !token_is(&all->at[end + 1], "}")) return false;
        *params = part(all, i + 2, close);
        *result = part(all, close + 3, end);
        return true;
    }
    return false;
}

static bool is_in_one_bracket(const char *text) {
    int depth = 0;
    for (; *text; text++) {
        depth += (*text == '(') - (*text == ')');
        if (depth == 0) return !text[1];
    }
    return false;
}

/* A call of such a function: its expression, with what it is given in place of its parameters. */
static bool tell_helper(teller *t, const tokens *e, int i, int *end) {
    tokens params, result;
    if (t->depth > 8 || !find_helper(t, &e->at[i], &params, &result)) return false;
    const int close = closing(e, i + 1), before = t->n_given;
    const tokens arguments = part(e, i + 2, close);
    int p = 0, a = 0, n = 0;
    *end = close + 1;
    while (p < params.n && a < arguments.n && before + n < 32) {
        const int p_end = end_of_expression(&params, p), a_end = end_of_expression(&arguments, a);
        const tokens one = part(&arguments, a, a_end);
        const tni_text kept = t->text;
        t->text = (tni_text){0};
        tell(t, &one);
        const char *text = t->text.data ? tni_arena_text(t->file->arena, t->text.data, t->text.length) : NULL;
        tni_free(t->text.data);
        t->text = kept;
        if (text && *text == '(' && is_in_one_bracket(text)) {
            text = tni_arena_text(t->file->arena, text + 1, strlen(text) - 2);
        }
        if (!text || p_end == p) return false;
        t->given[before + n].name = params.at[p_end - 1];
        t->given[before + n++].text = text;
        p = p_end + 1, a = a_end + 1;
    }
    if (p < params.n || a < arguments.n) return false;
    t->n_given = before + n;
    t->depth++;
    tni_text_put(&t->text, "(");
    tell(t, &result);
    tni_text_put(&t->text, ")");
    t->depth--;
    t->n_given = before;
    return true;
}

static int tell_word(teller *t, const tokens *e, int i) {
    for (int j = t->n_given - 1; j >= 0; j--) {
        if (!same_token(&t->given[j].name, &e->at[i])) continue;
        const char *text = t->given[j].text;
        const bool is_name = !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
        tni_text_add(&t->text, is_name ? "%s" : "(%s)", text);
        return i + 1;
    }
    const token *w = &e->at[i];
    const guess *g = find_guess(t->k, w);
    const bool calls = i + 1 < e->n && token_is(&e->at[i + 1], "(");
    if (g && g->param->pointers) {
        if (i + 1 < e->n && token_is(&e->at[i + 1], "[")) return tell_element(t, e, i, g);
        t->failed = true;
    } else if (g) {
        if (g->role != ATTRIBUTE) t->failed = true;
        tni_text_put(&t->text, g->param->name);
    } else if (token_is(w, "static_cast")) {
        int open = i;
        while (open < e->n && !token_is(&e->at[open], "(")) open++;
        const int close = closing(e, open);
        const tokens inner = part(e, open, close + 1);
        tell(t, &inner);
        return close + 1;
    } else if (calls) {
        for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
            if (token_is(w, functions[f].c)) {
                tni_text_put(&t->text, functions[f].formula);
                return i + 1;
            }
        }
        int end;
        if (tell_helper(t, e, i, &end)) return end;
        if (!token_is_one_of(w, number_types)) t->failed = true; /* float(x): the brackets stay */
    } else if (is_local(t, w)) {
        tni_text_add(&t->text, "%.*s", w->n, w->s);
    } else {
        t->failed = true;
    }
    return i + 1;
}

/* c ? a : b at the outermost level: where they are; false: there is none */
static bool find_choice(const tokens *e, int *question, int *colon) {
    *question = *colon = -1;
    for (int i = 0; i < e->n; i++) {
        if (token_is(&e->at[i], "(") || token_is(&e->at[i], "["))
            i = closing(e, i);
        else if (token_is(&e->at[i], "?") && *question < 0)
            *question = i;
        else if (token_is(&e->at[i], ":") && *colon < 0)
            *colon = i;
    }
    return *question > 0 && *colon > *question;
}

static void tell(teller *t, const tokens *e) {
    static const char *const signs[] = {"+", "-", "*", "/", "<", ">", "<=", ">=", "==", "!=", ",", NULL};
    int question, colon;
    if (!e->n) t->failed = true;
    if (find_choice(e, &question, &colon)) {
        const tokens parts[] = {part(e, 0, question), part(e, question + 1, colon), part(e, colon + 1, e->n)};
        for (int i = 0; i < 3; i++) {
            tni_text_put(&t->text, i ? ", " : "where(");
            tell(t, &parts[i]);
        }
        tni_text_put(&t->text, ")");
        return;
    }
    for (int i = 0; i < e->n && !t->failed;) {
        const token *a = &e->at[i];
        if (a->kind == NUMERAL) {
            const int suffix = strchr("fFuUlL", a->s[a->n - 1]) != NULL &&
                               !(a->n > 1 && (a->s[1] == 'x' || a->s[1] == 'X'));
            int length = a->n - suffix;
            if (length > 0 && a->s[length - 1] == '.') length--; /* 2. */
            tni_text_add(&t->text, "%.*s", length, a->s);
            i++;
        } else if (token_is(a, "(")) {
            const int close = closing(e, i);
            const tokens inner = part(e, i + 1, close);
            i = close + 1;
            if (inner.n == 1 && token_is_one_of(&inner.at[0], number_types)) continue; /* (float)x */
            tni_text_put(&t->text, "(");
            tell(t, &inner);
            tni_text_put(&t->text, ")");
        } else if (a->kind == WORD) {
            i = tell_word(t, e, i);
        } else if (token_is_one_of(a, signs)) {
            const bool alone = i == 0 || token_is(a, ","); /* -x, f(a, b) */
            tni_text_add(&t->text,
                         alone && !token_is(a, ",") ? "%.*s"
                         : token_is(a, ",")         ? "%.*s "
                                                    : " %.*s ",
                         a->n, a->s);
            i++;
        } else if (token_is(a, "&&") || token_is(a, "||")) {
            tni_text_put(&t->text, a->s[0] == '&' ? " and " : " or ");
            i++;
        } else {
            t->failed = true;
        }
    }
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* `float v = …, w = …;` behind the type */
static int tell_locals(teller *t, const tokens *b, int i) {
    while (i < b->n && !token_is(&b->at[i], ";") && !t->failed) {
        const token *name = &b->at[i];
        if (name->kind != WORD || !token_is(&b->at[i + 1], "=")) {
            t->failed = true;
            break;
        }
        const int end = end_of_expression(b, i + 2);
        const tokens set = part(b, i + 2, end);
        if (t->statements++) tni_text_put(&t->text, "; ");
        tni_text_add(&t->text, "%.*s = ", name->n, name->s);
        tell(t, &set);
        i = end + (end < b->n && token_is(&b->at[end], ","));
    }
    return i + 1;
}

/* `out[i] = …;`, `w[i] -= …;` */
static int tell_output(teller *t, const tokens *b, int i, const guess *g) {
    const int close = closing(b, i + 1), end = close + 1 < b->n ? end_of_expression(b, close + 2) : b->n;
    const tokens index = part(b, i + 2, close), set = part(b, close + 2, end);
    const char *own = joined(t->file->arena, &index);
    const bool again = own && t->output && strcmp(own, t->output) != 0;
    static const char *const signs[] = {"=", "+=", "-=", "*=", "/=", NULL};
    const token *sign = &b->at[close + 1 < b->n ? close + 1 : i];
    /* bins[values[i]], out[2 * i]: not every element is written, or one of them often. */
    const char *last = g->n_dims > 0 ? g->dims[g->n_dims - 1] : "";
    const bool elsewhere = !own || strchr(own, '[') || (*last >= '0' && *last <= '9');
    if ((g->role != OUTPUT && g->role != UPDATED) || !token_is_one_of(sign, signs) || elsewhere || again)
        t->failed = true;
    t->output = own;
    if (t->statements++) tni_text_put(&t->text, "; ");
    tni_text_add(&t->text, "%s = ", g->param->name);
    const bool changes = !token_is(sign, "=");
    if (changes) tni_text_add(&t->text, "%s %.1s (", g->param->name, sign->s);
    tell(t, &set);
    if (changes) tni_text_put(&t->text, ")");
    return end + 1;
}

/* `int i = …;` counts, if it is made of places alone. */
static bool is_index(const teller *t, const tokens *b, int i, int *end) {
    *end = i;
    while (*end < b->n && !token_is(&b->at[*end], ";")) *end += 1;
    for (int j = i; j < *end; j++) {
        const guess *g = find_guess(t->k, &b->at[j]);
        const bool is_member = j && token_is(&b->at[j - 1], "."); /* blockIdx.x is no x */
        if (g && g->param->pointers && !is_member) return false;
    }
    return true;
}

static void tell_statements(teller *t, const tokens *b) {
    for (int i = 0; i < b->n && !t->failed;) {
        const token *a = &b->at[i];
        int end;
        const guess *g = find_guess(t->k, a);
        if (token_is(a, "{") || token_is(a, "}") || token_is(a, ";")) {
            i++;
        } else if (token_is(a, "if") || token_is(a, "for")) { /* i < n: a guard, or a loop over the grid */
            const int close = closing(b, i + 1);
            const tokens head = part(b, i + 2, close);
            if (!is_index(t, &head, 0, &end)) t->failed = true;
            bool places = token_is(a, "if");
            for (int j = 0; j < head.n; j++)
                places |= token_is(&head.at[j], "gridDim") || token_is(&head.at[j], "stride");
            if (!places) t->failed = true; /* a loop over something else */
            i = close + 1;
        } else if (token_is(a, "return") && token_is(&b->at[i + 1], ";")) {
            i += 2;
        } else if (g && g->param->pointers && i + 1 < b->n && token_is(&b->at[i + 1], "[")) {
            i = tell_output(t, b, i, g);
        } else if (token_is_one_of(a, index_types) && is_index(t, b, i, &end) && !token_is(a, "const") &&
                   !token_is(a, "auto")) {
            i = end + 1;
        } else if (token_is(a, "const") && i + 1 < b->n && token_is_one_of(&b->at[i + 1], index_types) &&
                   is_index(t, b, i, &end)) {
            i = end + 1;
        } else if (token_is_one_of(a, number_types)) {
            while (i < b->n && token_is_one_of(&b->at[i], number_types)) i++;
            i = tell_locals(t, b, i);
        } else {
            t->failed = true;
        }
    }
}

/* The library reads it: what it does not take is none. */
static bool is_formula(const from_kernel *k, const char *formula) {
    tni_text all = {0};
    const tn_function *made = NULL;
    tni_text_add(&all, "%s : %s", k->signature.data, formula);
    const bool good = !all.failed && tn_fuse(all.data, NULL, &made) == TN_OK;
    if (good) tn_fuse_release(made);
    tni_free(all.data);
    return good;
}

void guess_formula(const from_file *file, from_kernel *k) {
    teller t = {.file = file, .k = k};
    tell_statements(&t, &k->body);
    if (!t.failed && t.output && !t.text.failed && are_alike(&t) && is_formula(k, t.text.data)) {
        k->formula = t.text;
    } else {
        tni_free(t.text.data);
    }
}
