/* Runs operators and formulas from plain C: the kernel that the library picks beside the loop that one would write,
 * both timed, and the error against the reference in float64. A line each:
 *     operator <tab> shape <tab> kernel <tab> largest error <tab> milliseconds <tab> milliseconds of the loop
 *
 *     make build
 *     cc -O3 examples/c/operators.c $(build/tenon flags) -lm -o build/operators && build/operators
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

/* ---- loops as one writes them ------------------------------------------------------------------------------------ */

enum { R = 1024, C = 1024, CHANNELS = 64, S = 512 };

typedef void loop(const float *const *in, int64_t rows, float *y); /* rows: the first size of the first input */

static void loop_scaled(const float *const *in, int64_t rows, float *y) {
    for (int64_t i = 0; i < rows; i++) {
        for (int k = 0; k < C; k++) y[i * C + k] = fmaxf(in[0][i * C + k] * in[1][k] + in[2][k], 0);
    }
}

static void loop_gate(const float *const *in, int64_t rows, float *y) {
    for (int64_t i = 0; i < rows * C; i++) y[i] = in[0][i] / (1 + expf(-in[0][i])) * in[1][i];
}

static void loop_softmax(const float *const *in, int64_t rows, float *y) {
    for (int64_t i = 0; i < rows; i++, y += C) {
        const float *x = in[0] + i * C;
        float most = x[0], sum = 0;
        for (int k = 1; k < C; k++) most = fmaxf(most, x[k]);
        for (int k = 0; k < C; k++) sum += y[k] = expf(x[k] - most);
        for (int k = 0; k < C; k++) y[k] /= sum;
    }
}

static void loop_layer_norm(const float *const *in, int64_t rows, float *y) {
    for (int64_t i = 0; i < rows; i++) {
        const float *x = in[0] + i * C;
        float mean = 0, var = 0;
        for (int k = 0; k < C; k++) mean += x[k] / C;
        for (int k = 0; k < C; k++) var += (x[k] - mean) * (x[k] - mean) / C;
        const float rstd = 1 / sqrtf(var + 1e-5f);
        for (int k = 0; k < C; k++) y[i * C + k] = (x[k] - mean) * rstd * in[1][k] + in[2][k];
    }
}

static void loop_cross_entropy(const float *const *in, int64_t rows, float *y) {
    float loss = 0;
    for (int64_t i = 0; i < rows; i++) {
        const float *x = in[0] + i * C;
        const int64_t label = ((const int64_t *)(const void *)in[1])[i];
        float most = x[0], sum = 0;
        for (int k = 1; k < C; k++) most = fmaxf(most, x[k]);
        for (int k = 0; k < C; k++) sum += expf(x[k] - most);
        loss += logf(sum) + most - x[label];
    }
    *y = loss / (float)rows;
}

static void loop_sum(const float *const *in, int64_t rows, float *y) {
    float sum = 0;
    for (int64_t i = 0; i < rows * C; i++) sum += in[0][i];
    *y = sum;
}

static void loop_batch_norm(const float *const *in, int64_t rows, float *y) {
    for (int c = 0; c < CHANNELS; c++) {
        float mean = 0, var = 0;
        for (int64_t n = 0; n < rows; n++) {
            for (int s = 0; s < S; s++) mean += in[0][(n * CHANNELS + c) * S + s] / (float)(rows * S);
        }
        for (int64_t n = 0; n < rows; n++) {
            for (int s = 0; s < S; s++) {
                const float off = in[0][(n * CHANNELS + c) * S + s] - mean;
                var += off * off / (float)(rows * S);
            }
        }
        const float scale = in[1][c] / sqrtf(var + 1e-5f);
        for (int64_t n = 0; n < rows; n++) {
            for (int s = 0; s < S; s++) {
                const int64_t i = (n * CHANNELS + c) * S + s;
                y[i] = (in[0][i] - mean) * scale + in[2][c];
            }
        }
    }
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

typedef struct example {
    const char *name; /* or a formula */
    const char *shape;
    loop *peer;
    int32_t n_in;
    input in[MOST]; /* in the signature's order; ndim -1: left out */
} example;

static const example examples[] = {
    {"relu(x * s + b)", "1024 x 1024", loop_scaled, 3, {{2, {R, C}}, {1, {C}}, {1, {C}}}},
    {"silu(x) * y", "1024 x 1024", loop_gate, 2, {{2, {R, C}}, {2, {R, C}}}},
    {"softmax", "1024 x 1024", loop_softmax, 1, {{2, {R, C}}}},
    {"layer_norm", "1024 x 1024", loop_layer_norm, 3, {{2, {R, C}}, {1, {C}}, {1, {C}}}},
    {"cross_entropy", "1024 x 1024", loop_cross_entropy, 2, {{2, {R, C}}, {1, {R}, TN_I64, 1000}}},
    {"sum", "1024 x 1024", loop_sum, 1, {{2, {R, C}}}},
    {"batch_norm",
     "32 x 64 x 512",
     loop_batch_norm,
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

/* Milliseconds of the fastest of some runs, or of the loop in its place; below 0 where a run fails. */
static double measure(const tn_function *op, loop *peer, const call *c, int runs) {
    const float *in[MOST];
    double best = INFINITY;
    for (int i = 0; i < MOST; i++) in[i] = c->in[i].data;
    for (int i = 0; i < runs; i++) {
        const double begin = now();
        if (peer) {
            peer(in, c->in[0].shape[0], c->out[0].data);
        } else if (tn_run(op, &c->args, NULL) != TN_OK) {
            return -1;
        }
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
    bool done = op && prepare(&fast, e, op, TN_F32, NULL) && prepare(&plain, e, op, TN_F32, NULL) &&
                prepare(&exact, e, op, TN_F64, "ref") && tn_explain(op, &fast.args, &kernel, NULL) == TN_OK &&
                measure(op, NULL, &fast, 1) >= 0 && measure(op, NULL, &exact, 1) >= 0;
    if (done) {
        const double error = largest_error(&fast, &exact), theirs = measure(op, e->peer, &plain, RUNS);
        /* the loop computes the same thing: a f32 sum of a million numbers is off in its third digit */
        done = largest_error(&plain, &exact) < 1e-2;
        if (!done) fprintf(stderr, "%s: the loop is wrong\n", e->name);
        printf("%s\t%s\t%s\t%.2g\t%.4f\t%.4f\n", e->name, e->shape, kernel, error, measure(op, NULL, &fast, RUNS),
               theirs);
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
