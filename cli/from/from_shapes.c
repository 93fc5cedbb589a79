/* Shapes of tensors, from how their elements are counted: x[row * columns + i] with i < columns is (rows, columns).
 *
 * An index is multiplied out into terms. What a term counts by are the sizes in it, and what counts is the rest: a
 * variable that is compared with a size, or a place of a block or a thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "from.h"

enum { MOST_FACTORS = 12, MOST_TERMS = 32, MOST_DEPTH = 12 };

typedef struct term {
    token factors[MOST_FACTORS]; /* words: sizes, variables, blockIdx.x as one */
    int n;
    bool is_negative;
} term;

typedef struct sum {
    term terms[MOST_TERMS];
    int n;
    bool failed;
} sum;

typedef struct shaper {
    const from_file *file;
    from_kernel *k;
    int depth;
} shaper;

/* ---- what variables are compared with ---------------------------------------------------------------------------- */

static bool is_length(shaper *s, const token *t) {
    const guess *g = find_guess(s->k, t);
    return g && g->role == LENGTH;
}

/* The sizes whose product begins at i; how many. */
static int read_product(shaper *s, const tokens *all, int i, char dims[MOST_DIMS][MOST_NAME]) {
    int n = 0;
    while (i < all->n && n < MOST_DIMS && is_length(s, &all->at[i])) {
        snprintf(dims[n++], MOST_NAME, "%.*s", all->at[i].n, all->at[i].s);
        if (i + 1 >= all->n || !token_is(&all->at[i + 1], "*")) return n;
        i += 2;
    }
    return n;
}

/* Sizes that something stays below the product of. */
typedef struct bound {
    int n;
    char dims[MOST_DIMS][MOST_NAME];
} bound;

enum { MOST_BOUNDS = 4 };

static bool same_bound(const bound *a, const bound *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) same = strcmp(a->dims[i], b->dims[i]) == 0;
    return same;
}

/* Does the text at i of the body say the same as v, which is a word or `values[i]`? Returns where it ends; 0: no. */
static int matches(shaper *s, const tokens *body, int i, const token *v) {
    if (!memchr(v->s, '[', (size_t)v->n)) return same_token(&body->at[i], v) ? i + 1 : 0;
    if (i + 1 >= body->n || !token_is(&body->at[i + 1], "[")) return 0;
    const int end = closing(body, i + 1) + 1;
    const tokens here = part(body, i, end), there = read_tokens(s->file->arena, v->s, v->s + v->n);
    const char *a = joined(s->file->arena, &here), *b = joined(s->file->arena, &there);
    return a && b && strcmp(a, b) == 0 ? end : 0;
}

/* `v < n`, `v >= rows * columns`, `v + 1 < n`: what v stays below, each possibility once. */
static int bounds_of(shaper *s, const token *v, bound *found) {
    static const char *const below[] = {"<", ">=", NULL}, *const above[] = {">", "<=", NULL};
    const tokens *body = &s->k->body;
    int n = 0;
    for (int i = 0; i + 2 < body->n && n < MOST_BOUNDS; i++) {
        int end = matches(s, body, i, v);
        bound b = {0};
        while (end && end + 2 < body->n && (token_is(&body->at[end], "+") || token_is(&body->at[end], "-"))) end += 2;
        if (end && end + 1 < body->n && token_is_one_of(&body->at[end], below))
            b.n = read_product(s, body, end + 1, b.dims);
        if (!b.n && same_token(&body->at[i + 2], v) && token_is_one_of(&body->at[i + 1], above) &&
            is_length(s, &body->at[i])) {
            b.n = 1;
            snprintf(b.dims[0], MOST_NAME, "%.*s", body->at[i].n, body->at[i].s);
        }
        bool known = b.n == 0;
        for (int j = 0; j < n; j++) known |= same_bound(&found[j], &b);
        if (!known) found[n++] = b;
    }
    return n;
}

/* ---- multiplying out --------------------------------------------------------------------------------------------- */

static sum *expand(shaper *s, const tokens *e);

static sum *new_sum(shaper *s) {
    return tni_arena_alloc(s->file->arena, sizeof(sum));
}

static sum *failed_sum(shaper *s) {
    sum *made = new_sum(s);
    if (made) made->failed = true;
    return made;
}

static sum *of_factor(shaper *s, const token *t) {
    sum *made = new_sum(s);
    if (!made) return NULL;
    made->n = 1;
    made->terms[0].n = 1;
    made->terms[0].factors[0] = *t;
    return made;
}

static sum *product(shaper *s, const sum *a, const sum *b) {
    sum *made = new_sum(s);
    if (!made || !a || !b) return made;
    made->failed = a->failed || b->failed;
    for (int i = 0; i < a->n; i++) {
        for (int j = 0; j < b->n; j++) {
            if (made->n == MOST_TERMS || a->terms[i].n + b->terms[j].n > MOST_FACTORS) {
                made->failed = true;
                return made;
            }
            term *t = &made->terms[made->n++];
            *t = a->terms[i];
            memcpy(t->factors + t->n, b->terms[j].factors, (size_t)b->terms[j].n * sizeof *t->factors);
            t->n += b->terms[j].n;
            t->is_negative ^= b->terms[j].is_negative;
        }
    }
    return made;
}

static void add_terms(sum *to, const sum *from, bool is_negative) {
    to->failed |= !from || from->failed;
    for (int i = 0; from && i < from->n; i++) {
        if (to->n == MOST_TERMS) {
            to->failed = true;
            return;
        }
        to->terms[to->n] = from->terms[i];
        to->terms[to->n++].is_negative ^= is_negative;
    }
}

/* A variable is what it is declared as, unless it is compared with a size: then it counts up to that. */
static sum *of_word(shaper *s, const tokens *e, int *i) {
    const token *t = &e->at[*i];
    bound bounds[MOST_BOUNDS];
    *i += 1;
    if (*i + 1 < e->n && token_is(&e->at[*i], ".")) { /* threadIdx.x */
        const token whole = {t->s, (int)(e->at[*i + 1].s + e->at[*i + 1].n - t->s), WORD};
        *i += 2;
        return of_factor(s, &whole);
    }
    if (*i < e->n && (token_is(&e->at[*i], "(") || token_is(&e->at[*i], "["))) { /* min(a, b), index[i] */
        const int close = closing(e, *i);
        const bool is_element = token_is(&e->at[*i], "[") && close < e->n;
        const token whole = {t->s, is_element ? (int)(e->at[close].s + 1 - t->s) : 0, WORD};
        *i = close + 1;
        return is_element && bounds_of(s, &whole, bounds) ? of_factor(s, &whole) : failed_sum(s);
    }
    if (is_length(s, t) || bounds_of(s, t, bounds)) return of_factor(s, t);
    const tokens set = definition(&s->k->body, t->s, t->n);
    if (set.n && s->depth < MOST_DEPTH) return expand(s, &set);
    return of_factor(s, t);
}

static sum *primary(shaper *s, const tokens *e, int *i) {
    static const char *const casts[] = {"int", "size_t", "long", "int64_t", "unsigned", "uint32_t", NULL};
    if (token_is(&e->at[*i], "(")) {
        const int close = closing(e, *i);
        const tokens inner = part(e, *i + 1, close);
        *i = close + 1;
        if (inner.n && token_is_one_of(&inner.at[0], casts) && *i < e->n) return primary(s, e, i); /* (int64_t)row */
        return expand(s, &inner);
    }
    if (token_is(&e->at[*i], "static_cast")) {
        while (*i < e->n && !token_is(&e->at[*i], "(")) *i += 1;
        return *i < e->n ? primary(s, e, i) : failed_sum(s);
    }
    if (e->at[*i].kind == WORD) return of_word(s, e, i);
    if (e->at[*i].kind == NUMERAL) return of_factor(s, &e->at[(*i)++]);
    *i += 1;
    return failed_sum(s);
}

/* a * b * c, a % c (which stays below c), a / c (of which nothing is known) */
static sum *factors(shaper *s, const tokens *e, int *i) {
    sum *made = primary(s, e, i);
    while (made && *i + 1 < e->n) {
        const token *sign = &e->at[*i];
        if (token_is(sign, "*")) {
            *i += 1;
            made = product(s, made, primary(s, e, i));
        } else if (token_is(sign, "%") || token_is(sign, "/")) {
            const token whole = {e->at[0].s, (int)(e->at[*i + 1].s + e->at[*i + 1].n - e->at[0].s), WORD};
            const token *by = &e->at[*i + 1];
            *i += 2;
            /* As a factor it is a variable whose text ends with `% c`: find_counter knows it by that. */
            made = of_factor(s, token_is(sign, "%") && is_length(s, by) ? &whole : &(token){"", 0, WORD});
        } else {
            break;
        }
    }
    return made;
}

static sum *expand(shaper *s, const tokens *e) {
    sum *made = new_sum(s);
    if (!made) return NULL;
    s->depth++;
    for (int i = 0; i < e->n && !made->failed;) {
        bool is_negative = false;
        while (i < e->n && (token_is(&e->at[i], "+") || token_is(&e->at[i], "-")))
            is_negative ^= token_is(&e->at[i++], "-");
        if (i >= e->n) break;
        const sum *next = factors(s, e, &i);
        add_terms(made, next, is_negative);
        if (i < e->n && !token_is(&e->at[i], "+") && !token_is(&e->at[i], "-")) made->failed = true;
    }
    s->depth--;
    return made;
}

/* ---- from terms to sizes ----------------------------------------------------------------------------------------- */

typedef struct counter {
    int steps; /* how many sizes it counts by: the more, the further to the front it is */
    int n;     /* what it may stay below; 0: not known */
    bound bounds[MOST_BOUNDS];
} counter;

static bool is_a_place(const token *t) {
    static const char *const places[] = {"blockIdx", "threadIdx", "blockDim", "gridDim"};
    for (int i = 0; i < 4; i++) {
        if ((size_t)t->n > strlen(places[i]) && memcmp(t->s, places[i], strlen(places[i])) == 0) return true;
    }
    return false;
}

/* The sizes of a term, and what is counted with them. false: it is none of these. */
static bool find_counter(shaper *s, const term *t, counter *found) {
    int others = 0;
    *found = (counter){0};
    for (int i = 0; i < t->n; i++) {
        const token *f = &t->factors[i];
        if (is_length(s, f)) {
            found->steps++;
            continue;
        }
        others++;
        if (f->n == 0) continue;
        const char *percent = memchr(f->s, '%', (size_t)f->n);
        if (percent) {
            percent += 1 + strspn(percent + 1, " ");
            found->n = found->bounds[0].n = 1;
            snprintf(found->bounds[0].dims[0], MOST_NAME, "%.*s", (int)(f->s + f->n - percent), percent);
        } else if (f->kind == WORD && !is_a_place(f)) {
            found->n = bounds_of(s, f, found->bounds);
        }
    }
    return others > 0;
}

/* blockIdx.x * blockDim.x + threadIdx.x are one counter, and so are y + j: what both may stay below is what they do. */
static void join_counters(counter *a, const counter *b) {
    if (!a->n) {
        *a = *b;
        return;
    }
    int kept = 0;
    for (int i = 0; b->n && i < a->n; i++) {
        bool both = false;
        for (int j = 0; j < b->n; j++) both |= same_bound(&a->bounds[i], &b->bounds[j]);
        if (both) a->bounds[kept++] = a->bounds[i];
    }
    if (kept) a->n = kept;
}

static int by_steps(const void *a, const void *b) {
    return ((const counter *)b)->steps - ((const counter *)a)->steps;
}

/* The number that a term is multiplied with: 3 of 3 * i. */
static long number_of(const term *t) {
    long made = 1;
    for (int i = 0; i < t->n; i++) made *= t->factors[i].kind == NUMERAL ? strtol(t->factors[i].s, NULL, 10) : 1;
    return made;
}

/* x[3 * i], x[3 * i + 1]: what each element of i has in the last dimension. 1: nothing. */
static long elements_of_each(const sum *all) {
    long found = 0;
    for (int i = 0; i < all->n; i++) {
        const term *t = &all->terms[i];
        const bool is_number = t->n == 1 && t->factors[0].kind == NUMERAL;
        const long number = number_of(t);
        if (!is_number && found && found != number) return 1;
        if (!is_number) found = number;
    }
    return found > 1 ? found : 1;
}

/* A variable that counts, and of which nothing is known. */
static bool counts_with_words(const shaper *s, const tokens *index) {
    for (int i = 0; i < index->n; i++) {
        const token *t = &index->at[i];
        if (t->kind == WORD && !find_guess(s->k, t) && definition(&s->k->body, t->s, t->n).n) return true;
    }
    return false;
}

/* The sizes of a tensor, of which one element is at `index`. */
static bool shape_of(shaper *s, const tokens *index, guess *g) {
    counter counters[MOST_TERMS];
    int n = 0;
    const sum *all = expand(s, index);
    if (!all || all->failed) return false;
    const long each = elements_of_each(all);
    for (int i = 0; i < all->n; i++) {
        counter c;
        const bool is_number = all->terms[i].n == 1 && all->terms[i].factors[0].kind == NUMERAL;
        if (is_number || !find_counter(s, &all->terms[i], &c)) continue; /* x[i + 1], x[i - n] */
        int same = 0;
        while (same < n && counters[same].steps != c.steps) same++;
        if (same == n)
            counters[n++] = c;
        else
            join_counters(&counters[same], &c);
    }
    qsort(counters, (size_t)n, sizeof counters[0], by_steps);
    g->n_dims = 0;
    g->is_partial = false;
    for (int i = 0; i < n; i++) {
        if (!counters[i].n && i == 0) g->is_partial = true;
        if (!counters[i].n && i > 0) return false;
        const bound *b = &counters[i].bounds[0];
        if (b->n + g->n_dims > MOST_DIMS) return false;
        for (int j = 0; j < b->n; j++) snprintf(g->dims[g->n_dims++], MOST_NAME, "%s", b->dims[j]);
    }
    if (each > 1 && g->n_dims < MOST_DIMS) snprintf(g->dims[g->n_dims++], MOST_NAME, "%ld", each);
    return n > 0 || !counts_with_words(s, index);
}

/* ---- where elements are used ------------------------------------------------------------------------------------- */

/* `name[…]`, and through `other = name + …` also `other[…]`. */
static bool find_shape(shaper *s, const char *name, int length, const tokens *before, guess *g, int depth) {
    const tokens *body = &s->k->body;
    bool found = false;
    for (int i = 0; i + 1 < body->n; i++) {
        const token *t = &body->at[i];
        if (t->kind != WORD || t->n != length || memcmp(t->s, name, (size_t)length) != 0) continue;
        guess next = *g;
        if (token_is(t + 1, "[")) {
            tokens index = part(body, i + 2, closing(body, i + 1));
            if (before->n && index.n) { /* + what stands in front */
                token *all = tni_arena_alloc(s->file->arena, (size_t)(before->n + index.n + 1) * sizeof *all);
                if (!all) return found;
                memcpy(all, before->at, (size_t)before->n * sizeof *all);
                all[before->n] = (token){"+", 1, SIGN};
                memcpy(all + before->n + 1, index.at, (size_t)index.n * sizeof *all);
                index = (tokens){all, before->n + index.n + 1};
            }
            const bool read = shape_of(s, &index, &next);
            const bool better = read && (!found || next.n_dims > g->n_dims);
            if (better) *g = next;
            found |= read;
        } else if (depth < 3 && i > 2 && token_is(t - 1, "=") && t[-2].kind == WORD && token_is(t - 3, "*") &&
                   (token_is(t + 1, "+") || token_is(t + 1, ";"))) {
            const tokens offset = part(body, i + 2, end_of_expression(body, i + 1));
            found |= find_shape(s, t[-2].s, t[-2].n, token_is(t + 1, "+") ? &offset : &(tokens){0}, g, depth + 1);
        } else if (i && token_is(t - 1, "*") && !found && (i < 2 || t[-2].kind == SIGN)) { /* *total */
            g->n_dims = 0;
            g->is_partial = false;
            found = true;
        }
    }
    return found;
}

static bool has_dim(const guess *g, const char *name) {
    for (int i = 0; i < g->n_dims; i++) {
        if (strcmp(g->dims[i], name) == 0) return true;
    }
    return false;
}

static bool is_tensor(const guess *g) {
    return g->role == INPUT || g->role == OUTPUT || g->role == UPDATED;
}

/* A size that is never beside another one may as well be the product of several: any shape is good. */
static bool stands_alone(const from_kernel *k, const char *name) {
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        if (g->n_dims < 0) return false; /* its shape is computed with sizes */
        if (is_tensor(g) && has_dim(g, name) && (g->n_dims > 1 || g->is_partial)) return false;
    }
    return true;
}

static bool is_in_an_input(const from_kernel *k, const char *name) {
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        if ((g->role == INPUT || g->role == UPDATED) && has_dim(g, name)) return true;
    }
    return false;
}

/* What no text says is taken from an input that is as large as they come. */
static void take_from_others(from_kernel *k) {
    const guess *largest = NULL;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        if (is_tensor(g) && g->has_shape && (!largest || g->n_dims > largest->n_dims)) largest = g;
    }
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (!is_tensor(g) || g->has_shape) continue;
        g->n_dims = largest ? largest->n_dims : 0;
        g->is_partial = largest ? largest->is_partial : true;
        if (largest) memcpy(g->dims, largest->dims, sizeof g->dims);
        const size_t n = strlen(g->why);
        snprintf(g->why + n, sizeof g->why - n, "%s%s%.60s: its index does not tell its shape", n ? ", and " : "",
                 largest ? "of the shape of " : "of any shape", largest ? largest->param->name : "");
    }
}

static void write_shape(const from_kernel *k, guess *g) {
    size_t n = 0;
    g->shape[0] = 0;
    if (g->is_partial) n = (size_t)snprintf(g->shape, sizeof g->shape, "*r%s", g->n_dims ? ", " : "");
    for (int i = 0; i < g->n_dims && n < sizeof g->shape; i++) {
        const bool alone = stands_alone(k, g->dims[i]) && is_in_an_input(k, g->dims[i]);
        n += (size_t)snprintf(g->shape + n, sizeof g->shape - n, "%s%s%s", i ? ", " : "", alone ? "*" : "", g->dims[i]);
    }
}

/* The one integer that the kernel is given and does not look at. NULL: there is none, or several. */
static guess *unused_size(from_kernel *k) {
    guess *found = NULL;
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        const bool number = g->role == LENGTH || (g->role == ATTRIBUTE && strcmp(g->type, "int") == 0);
        bool used = !number || g->param->pointers;
        for (int j = 0; !used && j < k->body.n; j++) used = token_is(&k->body.at[j], g->param->name);
        if (used) continue;
        if (found) return NULL;
        found = g;
    }
    return found;
}

/* Such a size, beside tensors whose first dimension is a place of the grid that nothing is compared with, is how many
 * of these there are: (…, int rows, int cols) with row = blockIdx.y. */
static void take_unused(from_kernel *k) {
    guess *size = unused_size(k);
    bool any = false;
    for (int i = 0; size && i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (!is_tensor(g) || !g->is_partial || g->n_dims < 0 || g->n_dims == MOST_DIMS) continue;
        memmove(g->dims[1], g->dims[0], (size_t)g->n_dims * sizeof g->dims[0]);
        snprintf(g->dims[0], MOST_NAME, "%s", size->param->name);
        g->n_dims++;
        g->is_partial = false;
        any = true;
    }
    if (any) size->role = LENGTH;
}

void guess_shapes(const from_file *file, from_kernel *k) {
    shaper s = {file, k, 0};
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (!is_tensor(g)) continue;
        g->has_shape = find_shape(&s, g->param->name, (int)strlen(g->param->name), &(tokens){0}, g, 0);
    }
    take_from_others(k);
    take_unused(k);
    bool partial_input = false;
    for (int i = 0; i < k->n; i++) {
        const guess *g = &k->guesses[i];
        partial_input |= (g->role == INPUT || g->role == UPDATED) && g->is_partial;
    }
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (g->role == OUTPUT && g->is_partial && !partial_input) {
            snprintf(g->why, sizeof g->why, "an output with an element for each block");
            g->is_partial = false;
            g->n_dims = -1; /* as many as there are blocks: guess_launch writes it */
        }
    }
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (g->role == LENGTH && !is_in_an_input(k, g->param->name)) {
            g->role = ATTRIBUTE;
            snprintf(g->why, sizeof g->why,
                     "a number of the call: no input has a dimension that it could be read from");
        }
    }
    for (int i = 0; i < k->n; i++) {
        if (is_tensor(&k->guesses[i])) write_shape(k, &k->guesses[i]);
    }
}
