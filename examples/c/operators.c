/* Runs operators and formulas from plain C: the kernel that the library picks against the plain reference, both timed,
 * and the error against the reference in float64. A line each:
 *     operator <tab> shape <tab> kernel <tab> largest error <tab> milliseconds <tab> milliseconds of the reference
 *
 *     make build
 *     cc -O2 examples/c/operators.c $(build/tenon flags) -lm -o build/operators && build/operators
 *
 * build/operators 8 divides the first size of every matrix by 8. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tenon.h>

enum { MOST = 8, RUNS = 15 };

/* An input: its own type, or TN_NO_TYPE for the type that the operator is tried in. Integers lie below `below`. */
typedef struct input {
    int32_t ndim;
    int64_t shape[4];
    tn_type type;
    int below;
} input;

typedef struct example {
    const char *name; /* or a formula */
    const char *shape;
    int32_t n_in;
    input in[MOST]; /* in the signature's order; ndim -1: left out */
} example;

static const example examples[] = {
    {"relu(x * s + b)", "1024 x 1024", 3, {{2, {1024, 1024}}, {1, {1024}}, {1, {1024}}}},
    {"silu(x) * y", "1024 x 1024", 2, {{2, {1024, 1024}}, {2, {1024, 1024}}}},
    {"softmax", "1024 x 1024", 1, {{2, {1024, 1024}}}},
    {"layer_norm", "1024 x 1024", 3, {{2, {1024, 1024}}, {1, {1024}}, {1, {1024}}}},
    {"cross_entropy", "1024 x 1024", 2, {{2, {1024, 1024}}, {1, {1024}, TN_I64, 1000}}},
    {"sum", "1024 x 1024", 1, {{2, {1024, 1024}}}},
    {"batch_norm",
     "32 x 64 x 512",
     5,
     {{3, {32, 64, 512}}, {1, {64}}, {1, {64}}, {1, {64}, TN_F32}, {1, {64}, TN_F32}}},
};

/* The tensors of one call. */
typedef struct call {
    tn_tensor in[MOST], out[MOST];
    const tn_tensor *in_list[MOST];
    tn_tensor *out_list[MOST];
    int64_t shapes[MOST][4];
    tn_spec specs[MOST];
    tn_args args;
} call;

static int64_t count(const tn_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

/* Numbers around 0 that every type holds exactly enough, the same in each run. */
static void fill(tn_tensor *t, int below) {
    const tn_type type = tn_type_from_dlpack(t->dtype);
    uint32_t seed = 12345;
    for (int64_t i = 0, n = count(t); i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t bits = seed >> 16;
        tn_set(type, t->data, i, below ? (double)(bits % (uint32_t)below) : (double)bits / 16384 - 2);
    }
}

static bool make(tn_tensor *t, tn_type type, int32_t ndim, int64_t *shape) {
    *t = tn_dense(NULL, type, ndim, shape);
    t->data = calloc((size_t)count(t) + 1, tn_type_size(type));
    return t->data != NULL;
}

static void drop(call *c) {
    for (int i = 0; i < MOST; i++) {
        free(c->in[i].data);
        free(c->out[i].data);
    }
}

static int64_t divisor = 1;

static bool prepare(call *c, const example *e, const tn_function *op, tn_type type, const char *kernel) {
    *c = (call){.args = {.in = c->in_list, .n_in = e->n_in, .out = c->out_list, .kernel = kernel}};
    for (int i = 0; i < e->n_in; i++) {
        const input *in = &e->in[i];
        memcpy(c->shapes[i], in->shape, sizeof in->shape);
        if (e->in[0].shape[0] == in->shape[0] && (in->ndim > 1 || in->below)) c->shapes[i][0] /= divisor;
        if (!make(&c->in[i], in->type ? in->type : type, in->ndim, c->shapes[i])) return false;
        fill(&c->in[i], in->below);
        c->in_list[i] = &c->in[i];
    }
    if (tn_infer(op, &c->args, c->specs) != TN_OK) return false;
    for (int i = 0; i < MOST && c->specs[i].type != TN_NO_TYPE; i++) {
        tn_spec *spec = &c->specs[i];
        if (spec->present && !make(&c->out[i], spec->type, spec->ndim, spec->shape)) return false;
        c->out_list[i] = spec->present ? &c->out[i] : NULL;
        c->args.n_out = i + 1;
    }
    return true;
}

static double largest_error(const call *a, const call *b) {
    const tn_type ta = tn_type_from_dlpack(a->out[0].dtype), tb = tn_type_from_dlpack(b->out[0].dtype);
    double error = 0;
    for (int64_t i = 0, n = count(&a->out[0]); i < n; i++) {
        const double exact = tn_get(tb, b->out[0].data, i), off = fabs(tn_get(ta, a->out[0].data, i) - exact);
        error = fmax(error, off / fmax(1, fabs(exact)));
    }
    return error;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Milliseconds of the fastest of some runs; below 0 where a run fails. */
static double measure(const tn_function *op, const call *c, int runs) {
    double best = INFINITY;
    for (int i = 0; i < runs; i++) {
        const double begin = now();
        if (tn_run(op, &c->args, NULL) != TN_OK) return -1;
        best = fmin(best, now() - begin);
    }
    return best;
}

static bool try_one(const example *e) {
    const tn_function *op = NULL;
    if (!strchr(e->name, '(')) {
        op = tn_find(e->name);
    } else if (tn_fuse(e->name, NULL, &op) != TN_OK) {
        fprintf(stderr, "%s\n", tn_last_error());
    }
    call fast = {0}, plain = {0}, exact = {0};
    const char *kernel = "";
    bool done = op && prepare(&fast, e, op, TN_F32, NULL) && prepare(&plain, e, op, TN_F32, "ref") &&
                prepare(&exact, e, op, TN_F64, "ref") && tn_explain(op, &fast.args, &kernel, NULL) == TN_OK &&
                measure(op, &fast, 1) >= 0 && measure(op, &exact, 1) >= 0;
    if (done) {
        const double error = largest_error(&fast, &exact);
        printf("%s\t%s\t%s\t%.2g\t%.4f\t%.4f\n", e->name, e->shape, kernel, error, measure(op, &fast, RUNS),
               measure(op, &plain, 3));
    } else {
        fprintf(stderr, "%s: %s\n", e->name, tn_last_error());
    }
    drop(&fast);
    drop(&plain);
    drop(&exact);
    return done;
}

int main(int argc, char **argv) {
    bool done = true;
    if (argc > 1 && atoi(argv[1]) > 0) divisor = atoi(argv[1]);
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) done = try_one(&examples[i]) && done;
    tn_shutdown();
    return done ? 0 : 1;
}
