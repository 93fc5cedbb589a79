/* Random formulas whose values and derivatives stay within reason, so that they can be compared with differences. */
#ifndef TENON_TEST_FUSE_GENERATOR_H
#define TENON_TEST_FUSE_GENERATOR_H

#include <ctype.h>
#include <stdio.h>

#include "harness.h"

typedef struct generator {
    char text[8192];
    size_t length;
    bool signature;
    bool meets; /* q does meet x, and has its shape */
    int temporaries;
} generator;

static void gen_add(generator *g, const char *text) {
    g->length += (size_t)snprintf(g->text + g->length, sizeof g->text - g->length, "%s", text);
}

static void gen_expression(generator *g, int depth);

/* '@' in a pattern is another expression. */
static void gen_pattern(generator *g, const char *pattern, int depth) {
    for (; *pattern; pattern++) {
        char one[2] = {*pattern, 0};
        if (*pattern == '@') {
            gen_expression(g, depth - 1);
        } else {
            gen_add(g, one);
        }
    }
}

/* q has a shape of its own: it meets the others as a single number. */
static void gen_leaf(generator *g) {
    static const char *const leaves[] = {"x",   "x", "x",    "z",  "b",       "s",
                                         "0.5", "2", "-1.5", "pi", "mean(q)", "sum(sin(q) * x)"};
    char name[16];
    if (g->temporaries && random_below(3) == 0) {
        snprintf(name, sizeof name, "v%d", random_below(g->temporaries));
        gen_add(g, name);
    } else {
        gen_add(g, leaves[random_below(g->signature ? 10 : g->meets ? 12 : 11)]);
    }
}

static void gen_expression(generator *g, int depth) {
    static const char *const patterns[] = {
        "tanh(@)", "sigmoid(@)", "erf(@)", "sin(@)", "cos(@)", "softplus(@)", "silu(@)", "gelu(@)", "gelu_tanh(@)",
        "relu(@)", "exp(tanh(@))", "sqrt(1.5 + sin(@))", "log(1.5 + sin(@))", "abs(@)", "log1p(abs(@))",
        "rsqrt(abs(@) + 1)", "expm1(sin(@))", "-(@)", "(@ + @)", "(@ - @)", "(tanh(@) * @)", "(@ / (2.5 + cos(@)))",
        "minimum(@, @)", "maximum(@, @)", "where(@ > @, @, @)", "(abs(@) + 0.5) ** 1.5", "(1.5 + sin(@)) ** tanh(@)",
        "clamp(@, -1, 1.2)", "(@ if @ <= 0.3 else @)", "(@) % 3", "tanh(@) ** 2", "tanh(@) ** 3", "atan(@)",
        "atan2(@, 1.5 + cos(@))", "asin(0.9 * sin(@))", "acos(0.9 * sin(@))", "tan(tanh(@))", "sinh(tanh(@))",
        "cosh(tanh(@))", "asinh(@)", "acosh(1.5 + abs(@))", "atanh(0.8 * sin(@))", "exp2(tanh(@))",
        "log2(1.5 + sin(@))", "log10(1.5 + sin(@))", "erfc(@)", "erfinv(0.9 * sin(@))", "lgamma(2 + tanh(@))",
        "digamma(2 + tanh(@))", "logaddexp(@, @)", "relu6(2 * @)", "hardtanh(@)", "where(isfinite(@), @, @)",
        /* from here on reductions */
        "mean(@, -1)", "0.3 * sum(@, -1)", "max(@, axis=-1)", "min(@, axis=-1)", "logsumexp(@, -1)", "var(tanh(@), -1)",
        "mean(@)", "(@ - mean(@, -1))", "exp(tanh(@) - logsumexp(@, -1))"};
    enum { PLAIN = 53, ALL = sizeof patterns / sizeof patterns[0] };
    if (depth <= 0 || random_below(8) == 0) {
        gen_leaf(g);
    } else {
        gen_pattern(g, patterns[random_below(g->signature || random_below(3) == 0 ? ALL : PLAIN)], depth);
    }
}

/* The inputs are x, z (n, c), b (c) and s (), with a signature; without one, q as well. */
static void gen_formula(generator *g, uint64_t seed) {
    char name[32];
    random_state = seed;
    *g = (generator){.signature = random_below(4) != 0};
    g->meets = seed % 5 == 0;
    int outputs = 1 + random_below(2), locals = random_below(3);
    if (g->signature) {
        gen_add(g, "f(x: T[n, c], z: T[n, c], b: T[c], s: T[]) -> y0: T[n, c]");
        if (outputs == 2) gen_add(g, random_below(2) ? ", y1: T[n]" : ", y1: T[]");
        gen_add(g, " : ");
    }
    bool by_rows = g->signature ? strstr(g->text, "y1: T[n]") != NULL : random_below(2);
    for (int i = 0; i < locals; i++) {
        snprintf(name, sizeof name, "v%d = ", i);
        gen_add(g, name);
        gen_expression(g, 2);
        gen_add(g, "; ");
        g->temporaries = i + 1;
    }
    gen_add(g, g->signature ? "y0 = x * " : "y0 = x + ");
    for (int i = 0; i < locals; i++) {
        snprintf(name, sizeof name, "0.1 * v%d + ", i);
        gen_add(g, name);
    }
    gen_expression(g, 3);
    if (outputs < 2) return;
    gen_add(g, "; y1 = mean(x * ");
    gen_expression(g, 3);
    gen_add(g, by_rows ? ", -1)" : ")");
    if (!g->signature && random_below(2)) gen_add(g, " * s");
}

/* The rank of an input and its shape. */
static inline int gen_shape(const generator *g, char name, int64_t n, int64_t c, int64_t shape[2]) {
    bool own = name == 'q' && !g->meets;
    shape[0] = name == 'b' ? c : own ? 2 : n;
    shape[1] = own ? 7 : c;
    return name == 's' ? 0 : name == 'b' ? 1 : 2;
}

/* The shapes of its inputs, in the order in which it takes them. */
static inline const char *gen_shapes(const generator *g, int n, int c) {
    static char shapes[128];
    const char *const names = "xzbsq";
    bool seen[5] = {false};
    size_t length = 0;
    shapes[0] = 0;
    for (const char *s = g->text; *s; s++) {
        bool inside = s > g->text && (isalnum((unsigned char)s[-1]) || s[-1] == '_');
        const char *found = strchr(names, *s);
        bool word = found && !inside && !isalnum((unsigned char)s[1]) && s[1] != '_';
        if (!word || seen[found - names]) continue;
        seen[found - names] = true;
        int64_t shape[2];
        int rank = gen_shape(g, *s, n, c, shape);
        length += (size_t)snprintf(shapes + length, sizeof shapes - length, "%s%s", length ? " " : "",
                                   rank == 0 ? "." : "");
        for (int d = 0; d < rank; d++) {
            length += (size_t)snprintf(shapes + length, sizeof shapes - length, "%s%lld", d ? "," : "",
                                       (long long)shape[d]);
        }
    }
    return shapes;
}

#endif
