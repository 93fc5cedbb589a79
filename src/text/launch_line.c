/* Reads a launch line, and computes it on the way: what it says of a call is known once the sizes are. */
#include "launch_line.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/host/text.h"

enum { MOST_DEPTH = 64, BLOCK = 256, WARP = 32 };

typedef struct reader {
    const char *op, *line, *s;
    const tni_sizes *sizes;
    int depth;
    tn_status status;
} reader;

/* "scale: launch: expected ')' at column 12", the line, and a caret under the place. */
static tn_status fail(reader *r, const char *at, const char *format, const char *what) {
    if (r->status != TN_OK) return r->status;
    tni_text text = {0};
    tni_text_add(&text, "%s: launch: ", r->op);
    tni_text_add(&text, format, what); /* NOLINT(format-nonliteral): all callers' are literals */
    tni_text_add(&text, " at column %d\n  %s\n  %*s^", (int)(at - r->line) + 1, r->line, (int)(at - r->line), "");
    r->status = tni_fail_text(TN_BAD_VALUE, &text);
    return r->status;
}

static void skip(reader *r) {
    while (isspace((unsigned char)*r->s)) r->s++;
}

static bool take(reader *r, const char *word) {
    const size_t n = strlen(word);
    skip(r);
    if (strncmp(r->s, word, n) != 0) return false;
    if (isalpha((unsigned char)*word) && (isalnum((unsigned char)r->s[n]) || r->s[n] == '_')) return false;
    r->s += n;
    return true;
}

static void expect(reader *r, const char *word) {
    if (!take(r, word)) fail(r, r->s, "expected '%s'", word);
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static int64_t expression(reader *r);

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t divided(reader *r, const char *at, char op, int64_t a, int64_t b) {
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        fail(r, at, "%s", "division by 0");
        return 0;
    }
    const int64_t q = floor_div(a, b);
    return op == '%' ? a - q * b : op == 'c' ? q + (a - q * b != 0) : q;
}

static int64_t joined(reader *r, const char *at, char op, int64_t a, int64_t b) {
    int64_t y = 0;
    bool over = op == '+'   ? __builtin_add_overflow(a, b, &y)
                : op == '-' ? __builtin_sub_overflow(a, b, &y)
                            : __builtin_mul_overflow(a, b, &y);
    if (over) fail(r, at, "%s", "a number beyond 64 bits");
    return y;
}

/* ceil_div(a, b), min(a, b), max(a, b): what is behind the name */
static int64_t function(reader *r, const char *at, char which) {
    expect(r, "(");
    const int64_t a = expression(r);
    expect(r, ",");
    const int64_t b = expression(r);
    expect(r, ")");
    if (r->status != TN_OK) return 0;
    if (which == 'c') return divided(r, at, 'c', a, b);
    return (which == '<') == (a < b) ? a : b;
}

/* sizeof(T), sizeof(acc(T)): what is behind the name */
static int64_t bytes_of(reader *r) {
    expect(r, "(");
    skip(r);
    const char *at = r->s;
    const bool acc = take(r, "acc");
    if (acc) expect(r, "(");
    skip(r);
    const char *type = r->s;
    size_t n = 0;
    while (isalnum((unsigned char)type[n]) || type[n] == '_') n++;
    r->s = type + n;
    if (acc) expect(r, ")");
    expect(r, ")");
    int64_t bytes = 0;
    if (r->status == TN_OK && !r->sizes->bytes(r->sizes->context, type, n, acc, &bytes)) {
        fail(r, at, "%s", "sizeof takes a type of the contract: sizeof(T), sizeof(acc(T)), sizeof(f32)");
    }
    return bytes;
}

static int64_t name(reader *r) {
    const char *at = r->s;
    size_t n = 0;
    int64_t value = 0;
    if (take(r, "sizeof")) return bytes_of(r);
    if (take(r, "ceil_div")) return function(r, at, 'c');
    if (take(r, "min")) return function(r, at, '<');
    if (take(r, "max")) return function(r, at, '>');
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    if (n == 0) {
        fail(r, at, "%s", "expected a number or a name");
    } else if (!r->sizes->value(r->sizes->context, at, n, &value)) {
        char known[256], what[400];
        r->sizes->list(r->sizes->context, known, sizeof known);
        snprintf(what, sizeof what, "'%.*s' is none of %s", (int)(n < 64 ? n : 64), at, known);
        fail(r, at, "%s", what);
    }
    r->s = at + n;
    return value;
}

static int64_t atom(reader *r) {
    skip(r);
    const char *at = r->s;
    if (++r->depth > MOST_DEPTH) {
        fail(r, at, "%s", "too many brackets");
        return 0;
    }
    int64_t value = 0;
    if (take(r, "(")) {
        value = expression(r);
        expect(r, ")");
    } else if (take(r, "-")) {
        value = joined(r, at, '-', 0, atom(r));
    } else if (isdigit((unsigned char)*r->s)) {
        for (; isdigit((unsigned char)*r->s); r->s++) {
            value = joined(r, at, '+', joined(r, at, '*', value, 10), *r->s - '0');
        }
    } else {
        value = name(r);
    }
    r->depth--;
    return value;
}

static int64_t product(reader *r) {
    int64_t a = atom(r);
    for (skip(r); r->status == TN_OK && *r->s && strchr("*/%", *r->s); skip(r)) {
        const char *at = r->s++;
        const int64_t b = atom(r);
        if (r->status == TN_OK) a = *at == '*' ? joined(r, at, '*', a, b) : divided(r, at, *at, a, b);
    }
    return a;
}

static int64_t expression(reader *r) {
    int64_t a = product(r);
    for (skip(r); r->status == TN_OK && (*r->s == '+' || *r->s == '-'); skip(r)) {
        const char *at = r->s++;
        a = joined(r, at, *at, a, product(r));
    }
    return a;
}

/* One number, or (x, y, z) of which the last may be missing. */
static void three(reader *r, int64_t *values) {
    const char *begin = r->s;
    if (take(r, "(")) {
        int n = 0;
        do values[n++] = expression(r);
        while (n < 3 && take(r, ","));
        expect(r, ")");
        skip(r);
        if (n > 1 || !*r->s || !strchr("*/%+-", *r->s) || r->status != TN_OK) return;
        r->s = begin; /* (n + 1) / 2 is one number */
    }
    values[0] = expression(r);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int64_t ceil_of(int64_t a, int64_t b) {
    return b > 0 ? a / b + (a % b != 0) : 0;
}

/* How the grid follows from the sizes, where the line does not say it. */
typedef enum way { BY_HAND, ELEMENTS, ROWS, WARPS, TILES } way;

/* What a step says of its grid, where that is not a number of blocks. */
typedef struct plan {
    way how;
    int64_t each;    /* elements for a thread */
    int64_t tile[2]; /* elements for a block: along the last dimension, and along the one before */
    bool loops;      /* the kernel goes on from its tile by the size of the grid */
} plan;

static int64_t positive(reader *r) {
    skip(r);
    const char *at = r->s;
    const int64_t value = expression(r);
    if (value < 1) fail(r, at, "%s", "expected a number above 0");
    return value;
}

static bool read_way(reader *r, plan *p) {
    if (take(r, "elements")) {
        p->how = ELEMENTS;
        if (take(r, "(")) {
            p->each = positive(r);
            expect(r, ")");
        }
    } else if (take(r, "rows")) {
        p->how = ROWS;
        if (take(r, "(")) {
            expect(r, "warp");
            expect(r, ")");
            p->how = WARPS;
        }
    } else if (take(r, "tiles")) {
        p->how = TILES;
        expect(r, "(");
        p->tile[0] = positive(r);
        expect(r, ",");
        p->tile[1] = positive(r);
        expect(r, ")");
    } else {
        return false;
    }
    return true;
}

static bool read_setting(reader *r, tni_launch_step *step, int64_t *scratch, bool *has_grid) {
    struct {
        const char *name;
        int64_t *to;
        bool three;
    } settings[] = {{"grid", step->grid, true},
                    {"block", step->block, true},
                    {"shared", &step->shared, false},
                    {"cluster", &step->cluster, false},
                    {"scratch", scratch, false}};
    for (int i = 0; i < 5; i++) {
        if (!take(r, settings[i].name)) continue;
        expect(r, "=");
        if (settings[i].three) {
            three(r, settings[i].to);
        } else {
            *settings[i].to = expression(r);
        }
        *has_grid |= i == 0;
        return true;
    }
    return false;
}

static void set_grid(const tni_sizes *sizes, const plan *p, tni_launch_step *step) {
    enum { MOST = 65535 }; /* blocks along y and z */
    int64_t *grid = step->grid;
    const int64_t threads = step->block[0] * step->block[1] * step->block[2];
    if (p->how == ELEMENTS) grid[0] = ceil_of(ceil_of(sizes->count, p->each), threads);
    if (p->how == ROWS) grid[0] = sizes->rows;
    if (p->how == WARPS) grid[0] = ceil_of(sizes->rows, threads / WARP);
    if (p->how == TILES) {
        grid[0] = ceil_of(sizes->width, p->tile[0]);
        grid[1] = ceil_of(sizes->height, p->tile[1]);
        grid[2] = sizes->batch;
    }
    for (int i = 1; i < 3 && p->loops; i++) grid[i] = grid[i] < MOST ? grid[i] : MOST;
}

/* What the driver would refuse without saying which number it means. */
static void check(reader *r, const char *at, const tni_launch_step *step) {
    static const int64_t most_grid[] = {2147483647, 65535, 65535}, most_block[] = {1024, 1024, 64};
    char what[160];
    for (int i = 0; i < 3 && r->status == TN_OK; i++) {
        if (step->grid[i] < 0 || step->grid[i] > most_grid[i]) {
            const char *fix = i && step->grid[i] > 0 ? "; a kernel that goes on by gridDim says `loop`" : "";
            snprintf(what, sizeof what, "the grid has %lld blocks along %c; 0 to %lld are possible%s",
                     (long long)step->grid[i], 'x' + i, (long long)most_grid[i], fix);
            fail(r, at, "%s", what);
        } else if (step->block[i] < 1 || step->block[i] > most_block[i]) {
            snprintf(what, sizeof what, "a block has %lld threads along %c; 1 to %lld are possible",
                     (long long)step->block[i], 'x' + i, (long long)most_block[i]);
            fail(r, at, "%s", what);
        }
    }
    const int64_t threads = step->block[0] * step->block[1] * step->block[2];
    if (r->status == TN_OK && threads > 1024) {
        snprintf(what, sizeof what, "a block has %lld threads; 1024 are possible", (long long)threads);
        fail(r, at, "%s", what);
    }
    const bool fits = step->shared >= 0 && step->shared < 1 << 28 && step->cluster >= 0 && step->cluster <= 16;
    if (!fits) fail(r, at, "%s", "shared is a number of bytes, and cluster one of blocks, at most 16");
}

/* `name:`, which says which kernel it is of */
static void read_name(reader *r, tni_launch_step *step) {
    skip(r);
    size_t n = 0;
    while (isalnum((unsigned char)r->s[n]) || r->s[n] == '_') n++;
    const char *behind = r->s + n + strspn(r->s + n, " \t");
    if (n == 0 || *behind != ':') return;
    if (n >= sizeof step->kernel) fail(r, r->s, "%s", "a name of at most 63 characters");
    snprintf(step->kernel, sizeof step->kernel, "%.*s", (int)n, r->s);
    r->s = behind + 1;
}

static void read_step(reader *r, tni_launch_step *step, int64_t *scratch) {
    plan p = {.how = BY_HAND, .each = 1};
    bool has_grid = false;
    *step = (tni_launch_step){.grid = {0, 1, 1}, .block = {0, 1, 1}};
    read_name(r, step);
    skip(r);
    const char *begin = r->s;
    while (r->status == TN_OK && *r->s && *r->s != ';') {
        const char *at = r->s;
        bool known = (p.how == BY_HAND && read_way(r, &p)) || read_setting(r, step, scratch, &has_grid);
        if (!known) known = p.loops = take(r, "loop");
        if (!known) {
            fail(r, at, "%s", "expected elements, rows, tiles(…), loop, grid=, block=, shared=, cluster= or scratch=");
        }
        take(r, ",");
        skip(r);
    }
    if (r->status != TN_OK) return;
    if (p.how == BY_HAND && !has_grid) p.how = ELEMENTS;
    if (step->block[0] == 0) {
        step->block[0] = p.how == TILES ? p.tile[0] : BLOCK;
        step->block[1] = p.how == TILES ? p.tile[1] : 1;
    }
    if (p.how == WARPS && step->block[0] % WARP) {
        fail(r, begin, "%s", "a block of whole warps is needed, of 32 threads each");
    }
    if (p.how != BY_HAND && !has_grid) set_grid(r->sizes, &p, step);
    check(r, begin, step);
}

tn_status tni_launch_read(const char *op, const char *line, const tni_sizes *sizes, tni_launch_steps *made) {
    reader r = {.op = op, .line = line, .s = line, .sizes = sizes, .status = TN_OK};
    *made = (tni_launch_steps){0};
    do {
        skip(&r);
        if (!*r.s && made->n) break; /* a ';' at the end */
        if (made->n == TNI_MOST_STEPS) return fail(&r, r.s, "%s", "at most 8 kernels one after the other");
        read_step(&r, &made->steps[made->n++], &made->scratch);
    } while (r.status == TN_OK && take(&r, ";"));
    if (r.status == TN_OK && (made->scratch < 0 || made->scratch > (int64_t)1 << 48)) {
        fail(&r, line, "%s", "scratch is a number of bytes");
    }
    return r.status;
}
