/* The launch line: from <<<grid, block>>>, or from how the kernel uses its place in the grid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "from.h"

enum { MOST_DEPTH = 16 };

/* ---- expressions of the host ------------------------------------------------------------------------------------- */

typedef struct converter {
    const from_file *file;
    from_kernel *k;
    tni_text *to;
    int depth;
    bool failed;
} converter;

static void convert(converter *c, const tokens *e);

/* The parameter that is given just this: n, x.numel(), input.size(0). */
static const guess *given_as(converter *c, const char *text) {
    const launch_site *site = &c->k->site;
    for (int i = 0; i < site->n_arguments && i < c->k->n; i++) {
        const guess *g = &c->k->guesses[i];
        if (g->role != LENGTH && !(g->role == ATTRIBUTE && strcmp(g->type, "int") == 0)) continue;
        tokens given = site->arguments[i];
        for (int turn = 0; turn < 4 && given.n; turn++) {
            const char *own = joined(c->file->arena, &given);
            if (own && strcmp(own, text) == 0) return g;
            given = given.n == 1 ? definition(&site->host_body, given.at[0].s, given.at[0].n) : (tokens){0};
        }
    }
    return NULL;
}

/* x.numel(), x.size(1), where x is a tensor of the host whose data the kernel is given. */
static bool put_size(converter *c, const tokens *e) {
    const launch_site *site = &c->k->site;
    const bool counts = token_is(&e->at[2], "numel"), sizes = token_is(&e->at[2], "size");
    for (int i = 0; (counts || sizes) && i < site->n_arguments && i < c->k->n; i++) {
        const guess *g = &c->k->guesses[i];
        const tokens *given = &site->arguments[i];
        if (!g->param->pointers || given->n < 3 || !same_token(&given->at[0], &e->at[0])) continue;
        if (counts) {
            tni_text_add(c->to, "%s_count", g->param->name);
            return true;
        }
        const bool negative = e->n > 5 && token_is(&e->at[4], "-");
        const long number = strtol(e->at[4 + negative].s, NULL, 10);
        const long at = negative ? g->n_dims - number : number;
        if (at < 0 || at >= g->n_dims || (g->is_partial && !negative)) return false;
        tni_text_put(c->to, g->dims[at]);
        return true;
    }
    return false;
}

static void put_bracketed(converter *c, const tokens *e) {
    if (e->n == 1) {
        convert(c, e);
        return;
    }
    tni_text_put(c->to, "(");
    convert(c, e);
    tni_text_put(c->to, ")");
}

static int bytes_of(const tokens *type) {
    static const char *const eight[] = {"double", "int64_t", "size_t", "uint64_t", NULL};
    static const char *const two[] = {"half", "__half", "__nv_bfloat16", "nv_bfloat16", "short", NULL};
    static const char *const one[] = {"char", "bool", "uint8_t", "int8_t", NULL};
    for (int i = 0; i < type->n; i++) {
        if (token_is_one_of(&type->at[i], eight)) return 8;
        if (token_is_one_of(&type->at[i], two)) return 2;
        if (token_is_one_of(&type->at[i], one)) return 1;
        if (token_is(&type->at[i], "long")) return 8;
    }
    return type->n == 1 && (token_is(&type->at[0], "float") || token_is(&type->at[0], "int") ||
                            token_is(&type->at[0], "unsigned"))
               ? 4
               : 8; /* of a type that is not known, enough */
}

/* Two arguments: ceil_div(a, b), min(a, b), max(a, b). */
static void convert_call(converter *c, const char *name, const tokens *arguments) {
    const int first = end_of_expression(arguments, 0), second = end_of_expression(arguments, first + 1);
    const tokens a = part(arguments, 0, first), b = part(arguments, first + 1, second);
    const char *end = strrchr(name, ':'); /* std::min */
    const char *plain = end ? end + 1 : name;
    const bool divides = strcasestr(plain, "div") || strcasestr(plain, "ceil") || strcasestr(plain, "block") ||
                         strcasestr(plain, "cdiv");
    const bool is_min = strcmp(plain, "min") == 0, is_max = strcmp(plain, "max") == 0;
    if (a.n && b.n && second == arguments->n && (divides || is_min || is_max)) {
        tni_text_put(c->to, is_min ? "min(" : is_max ? "max(" : "ceil_div(");
        convert(c, &a);
        tni_text_put(c->to, ", ");
        convert(c, &b);
        tni_text_put(c->to, ")");
        return;
    }
    int slash = 0; /* ceil((float)n / 256) */
    while (slash < a.n && !token_is(&a.at[slash], "/")) slash++;
    if (divides && a.n == arguments->n && slash < a.n) {
        const tokens over = part(&a, 0, slash), under = part(&a, slash + 1, a.n);
        tni_text_put(c->to, "ceil_div(");
        convert(c, &over);
        tni_text_put(c->to, ", ");
        convert(c, &under);
        tni_text_put(c->to, ")");
        return;
    }
    c->failed = true;
}

/* A name with what belongs to it: x.size(0), std::min(a, b), threads. Returns where it ends. */
static int convert_name(converter *c, const tokens *e, int i) {
    static const char *const links[] = {".", "->", "::", NULL};
    int end = i + 1;
    while (end < e->n) {
        if (token_is_one_of(&e->at[end], links))
            end += 2;
        else if (token_is(&e->at[end], "(") || token_is(&e->at[end], "["))
            end = closing(e, end) + 1;
        else
            break;
    }
    const tokens whole = part(e, i, end);
    const char *text = joined(c->file->arena, &whole);
    const guess *g = text ? given_as(c, text) : NULL;
    if (g) {
        tni_text_put(c->to, g->param->name);
    } else if (whole.n > 3 && put_size(c, &whole)) {
        return end;
    } else if (token_is(&e->at[i], "sizeof")) {
        const tokens type = part(e, i + 2, end - 1);
        tni_text_add(c->to, "%d", bytes_of(&type));
    } else if (token_is(&e->at[i], "static_cast")) {
        int at = i;
        while (at < e->n && !token_is(&e->at[at], "(")) at++;
        const int close = closing(e, at);
        const tokens inner = part(e, at + 1, close);
        put_bracketed(c, &inner);
        return close + 1;
    } else if (whole.n == 1) {
        tokens set = definition(&c->k->site.host_body, e->at[i].s, e->at[i].n);
        if (!set.n) set = constant_of(c->file, &e->at[i]);
        if (!set.n || ++c->depth > MOST_DEPTH)
            c->failed = true;
        else
            put_bracketed(c, &set);
        c->depth--;
    } else if (token_is(&whole.at[whole.n - 1], ")")) {
        int open = 0;
        while (open < whole.n && !token_is(&whole.at[open], "(")) open++;
        const tokens name = part(&whole, 0, open), arguments = part(&whole, open + 1, whole.n - 1);
        const char *called = joined(c->file->arena, &name);
        if (called) convert_call(c, called, &arguments);
    } else {
        c->failed = true;
    }
    return end;
}

static void convert(converter *c, const tokens *e) {
    static const char *const signs[] = {"+", "-", "*", "/", "%", NULL};
    static const char *const casts[] = {"int", "size_t", "float", "double", "unsigned", "long", "int64_t", NULL};
    if (!e->n || c->depth > MOST_DEPTH) c->failed = true;
    for (int i = 0; i < e->n && !c->failed;) {
        const token *t = &e->at[i];
        if (t->kind == NUMERAL) {
            const double value = strtod(t->s, NULL); /* 256, 256u, 256.0f */
            if (value != (double)(long long)value) c->failed = true;
            tni_text_add(c->to, "%lld", (long long)value);
            i++;
        } else if (token_is(t, "(")) {
            const int close = closing(e, i);
            const tokens inner = part(e, i + 1, close);
            const bool is_cast = inner.n && token_is_one_of(&inner.at[0], casts);
            if (!is_cast) put_bracketed(c, &inner);
            i = close + 1;
        } else if (t->kind == WORD) {
            i = convert_name(c, e, i);
        } else if (token_is_one_of(t, signs)) {
            tni_text_add(c->to, i ? " %.*s " : "%.*s", t->n, t->s);
            i++;
        } else {
            c->failed = true;
        }
    }
}

/* ---- <<<grid, block>>> ------------------------------------------------------------------------------------------- */

/* What is between the brackets of `dim3 name(a, b)` in the host's function; an empty part where there is none. */
static tokens dim3_named(const tokens *host, const token *name) {
    for (int i = 1; i + 1 < host->n; i++) {
        if (!same_token(&host->at[i], name) || !token_is(&host->at[i - 1], "dim3")) continue;
        if (!token_is(&host->at[i + 1], "=")) return part(host, i + 2, closing(host, i + 1));
    }
    return (tokens){0};
}

/* The numbers of a dim3: `dim3 grid(a, b)`, `dim3(a, b)`, `{a, b}`, or a single number. */
static int three_of(converter *c, const tokens *e, tokens *three) {
    const tokens *host = &c->k->site.host_body;
    tokens list = {0};
    if (e->n == 1 && e->at[0].kind == WORD) {
        const tokens set = definition(host, e->at[0].s, e->at[0].n);
        if (set.n > 1 && token_is(&set.at[0], "dim3")) return three_of(c, &set, three);
        list = dim3_named(host, &e->at[0]);
    } else if (e->n > 2 && token_is(&e->at[0], "dim3")) {
        list = part(e, 2, e->n - 1);
    } else if (e->n > 1 && token_is(&e->at[0], "{")) {
        list = part(e, 1, e->n - 1);
    }
    if (!list.n) list = *e;
    int n = 0;
    for (int at = 0; at < list.n && n < 3;) {
        const int end = end_of_expression(&list, at);
        three[n++] = part(&list, at, end);
        at = end + 1;
    }
    return n;
}

static bool put_three(converter *c, const char *name, const tokens *e) {
    tokens three[3];
    const int n = three_of(c, e, three);
    tni_text_add(c->to, "%s=%s", name, n > 1 ? "(" : "");
    for (int i = 0; i < n && !c->failed; i++) {
        if (i) tni_text_put(c->to, ", ");
        convert(c, &three[i]);
    }
    tni_text_put(c->to, n > 1 ? ")" : "");
    return n > 0 && !c->failed;
}

/* Is the bracket at s around everything up to the end, or to the next setting? */
static bool encloses(const char *s) {
    int depth = 0;
    for (; *s; s++) {
        depth += (*s == '(') - (*s == ')');
        if (depth == 0) return !s[1] || strncmp(s + 1, " block=", 7) == 0;
    }
    return false;
}

static bool read_launch(const from_file *file, from_kernel *k) {
    converter c = {file, k, &k->launch, 0, false};
    if (!k->site.found) return false;
    bool good = put_three(&c, "grid", &k->site.grid);
    tni_text_put(&k->launch, " ");
    good = good && put_three(&c, "block", &k->site.block);
    const bool has_shared = k->site.shared.n && !(k->site.shared.n == 1 && token_is(&k->site.shared.at[0], "0"));
    if (good && has_shared) {
        tni_text_put(&k->launch, " shared=");
        convert(&c, &k->site.shared);
    }
    if (good && !c.failed) return true;
    if (k->launch.data) k->launch.data[k->launch.length = 0] = 0;
    return false;
}

/* The grid is not understood, but the block may be. */
static void read_block(const from_file *file, from_kernel *k) {
    tni_text block = {0};
    converter c = {file, k, &block, 0, false};
    if (k->site.found && put_three(&c, "block", &k->site.block)) tni_text_add(&k->launch, " %s", block.data);
    tni_free(block.data);
}

/* ---- from the kernel itself -------------------------------------------------------------------------------------- */

static bool uses(const tokens *body, const char *place, const char *which) {
    for (int i = 0; i + 2 < body->n; i++) {
        if (token_is(&body->at[i], place) && token_is(&body->at[i + 1], ".") && token_is(&body->at[i + 2], which))
            return true;
    }
    return false;
}

/* blockIdx.x that is not multiplied by blockDim.x or a number: a block for each of something. */
static bool has_block_for_each(const tokens *body) {
    for (int i = 0; i + 3 < body->n; i++) {
        if (!token_is(&body->at[i], "blockIdx") || !token_is(&body->at[i + 2], "x")) continue;
        int by = i + 4; /* what it is multiplied with, behind a cast */
        if (by < body->n && token_is(&body->at[by], "(")) by = closing(body, by) + 1;
        const bool behind = token_is(&body->at[i + 3], "*") && by < body->n &&
                            (token_is(&body->at[by], "blockDim") || body->at[by].kind == NUMERAL);
        const bool before = i > 3 && token_is(&body->at[i - 1], "*") && token_is(&body->at[i - 4], "blockDim");
        if (behind || before) return false;
    }
    return uses(body, "blockIdx", "x") && !uses(body, "gridDim", "x");
}

/* `__shared__ float tile[16][16]`: its two sizes as numbers. */
static bool find_tile(const from_file *file, const from_kernel *k, long long sides[2]) {
    for (int i = 0; i + 1 < k->body.n; i++) {
        if (!token_is(&k->body.at[i], "__shared__")) continue;
        int at = i, n = 0;
        while (at < k->body.n && !token_is(&k->body.at[at], "[") && !token_is(&k->body.at[at], ";")) at++;
        for (; n < 2 && at < k->body.n && token_is(&k->body.at[at], "["); at = closing(&k->body, at) + 1) {
            tokens size = part(&k->body, at + 1, closing(&k->body, at));
            if (size.n && size.at[0].kind == WORD) size = constant_of(file, &size.at[0]); /* TILE, TILE + 1 */
            if (!size.n || size.at[0].kind != NUMERAL) return false;
            sides[n++] = strtoll(size.at[0].s, NULL, 10);
        }
        if (n == 2) return true;
    }
    return false;
}

/* What a place in the whole grid stays below: `i < n`, `i >= rows * columns`, where i is made of blockIdx. */
typedef struct limit {
    int n; /* sizes whose product it is; 0: there is no limit */
    const guess *sizes[MOST_DIMS];
} limit;

static limit limit_of_grid(from_kernel *k) {
    static const char *const signs[] = {"<", ">=", NULL};
    for (int i = 0; i + 2 < k->body.n; i++) {
        const tokens set = definition(&k->body, k->body.at[i].s, k->body.at[i].n);
        bool is_place = false;
        for (int j = 0; j < set.n; j++) is_place |= token_is(&set.at[j], "blockIdx");
        if (!is_place || !token_is_one_of(&k->body.at[i + 1], signs)) continue;
        limit found = {0};
        for (int at = i + 2; at < k->body.n && found.n < MOST_DIMS; at += 2) {
            const guess *g = find_guess(k, &k->body.at[at]);
            if (!g || g->role != LENGTH) break;
            found.sizes[found.n++] = g;
            if (at + 1 >= k->body.n || !token_is(&k->body.at[at + 1], "*")) return found;
        }
    }
    return (limit){0};
}

/* The first tensor that is written. NULL: none is. */
static const guess *first_written(const from_kernel *k) {
    for (int i = 0; i < k->n; i++) {
        if (k->guesses[i].role == OUTPUT || k->guesses[i].role == UPDATED) return &k->guesses[i];
    }
    return NULL;
}

/* Does the first tensor that is written have as many elements? */
static bool is_written_count(const from_kernel *k, const limit *most) {
    const guess *g = first_written(k);
    if (!g) return true;
    bool same = g->n_dims == most->n && !g->is_partial;
    for (int d = 0; same && d < g->n_dims; d++) {
        bool found = false;
        for (int i = 0; i < most->n; i++) found |= strcmp(g->dims[d], most->sizes[i]->param->name) == 0;
        same = found;
    }
    return same;
}

static void put_limit(tni_text *to, const limit *most) {
    for (int i = 0; i < most->n; i++) tni_text_add(to, "%s%s", i ? " * " : "", most->sizes[i]->param->name);
}

/* blockIdx.y without threadIdx.y: a line of blocks for each row. The limit of x is the length of a row. */
static bool put_lines(from_kernel *k, const limit *most) {
    const guess *g = first_written(k);
    const bool lines = uses(&k->body, "blockIdx", "y") && !uses(&k->body, "threadIdx", "y");
    if (!lines || uses(&k->body, "blockIdx", "z") || most->n != 1 || !g || g->n_dims < 1) return false;
    const char *row = most->sizes[0]->param->name;
    if (strcmp(g->dims[g->n_dims - 1], row) != 0) return false;
    tni_text_add(&k->launch, "grid=(ceil_div(%s, 256), %s_count / %s) block=256", row, g->param->name, row);
    return true;
}

static void write_guess(const from_file *file, from_kernel *k) {
    const limit most = limit_of_grid(k);
    long long sides[2] = {16, 16};
    tni_text *to = &k->launch;
    if (put_lines(k, &most)) {
        /* written */
    } else if (uses(&k->body, "threadIdx", "y") || uses(&k->body, "blockIdx", "y")) {
        if (find_tile(file, k, sides) && sides[1] > sides[0]) sides[1] = sides[0]; /* [32][33] */
        tni_text_add(to, "tiles(%lld, %lld)", sides[1], sides[0]);
    } else if (has_block_for_each(&k->body)) {
        tni_text_put(to, "rows");
    } else if (most.n && !is_written_count(k, &most)) {
        tni_text_put(to, "grid=ceil_div(");
        put_limit(to, &most);
        tni_text_put(to, ", 256) block=256");
    } else {
        tni_text_put(to, "elements");
    }
    for (int i = 0; i + 1 < k->body.n; i++) {
        if (token_is(&k->body.at[i], "extern") && token_is(&k->body.at[i + 1], "__shared__")) {
            tni_text_put(to, " shared=8*256");
            break;
        }
    }
}

/* The first number behind `grid=`, for outputs with an element for each block. */
static void shape_by_blocks(from_kernel *k) {
    const char *begin = k->launch.data ? strstr(k->launch.data, "grid=") : NULL;
    for (int i = 0; i < k->n; i++) {
        guess *g = &k->guesses[i];
        if (g->role != OUTPUT || g->n_dims >= 0) continue;
        g->n_dims = 0;
        const char *text = !begin ? "" : begin[5] == '(' && encloses(begin + 5) ? begin + 6 : begin + 5;
        size_t length = 0;
        for (int depth = 0; text[length] && !(depth == 0 && strchr(",)", text[length])); length++) {
            depth += (text[length] == '(') - (text[length] == ')');
            if (depth == 0 && strncmp(text + length + 1, " block=", 7) == 0) {
                length++;
                break;
            }
        }
        if (length && length < sizeof g->shape) snprintf(g->shape, sizeof g->shape, "%.*s", (int)length, text);
    }
}

void guess_launch(const from_file *file, from_kernel *k) {
    k->launch_is_read = read_launch(file, k);
    if (!k->launch_is_read) {
        write_guess(file, k);
        read_block(file, k);
    }
    shape_by_blocks(k);
}
