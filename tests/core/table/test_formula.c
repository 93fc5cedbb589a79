/* Operators that are formulas: by tn_fuse, and as rows of the table. */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tenon/fuse.h>

#include "core/host/memory.h"
#include "core/table/table.h"
#include "tests/test.h"

static const tn_function *must(const char *text, const char *name) {
    const tn_function *op = NULL;
    tn_fuse_options options = {.name = name};
    CHECK_ROW(tn_fuse(text, &options, &op) == TN_OK, "%s: %s", text, tn_last_error());
    return op;
}

/* One call on vectors of n doubles: up to four inputs, one output. */
static tn_status run(const tn_function *op, int n_in, double *const *in, double *out, int64_t n, const char *kernel) {
    tn_tensor tensors[5];
    const tn_tensor *inputs[4];
    for (int i = 0; i < n_in; i++) {
        tensors[i] = tn_dense(in[i], TN_F64, 1, &n);
        inputs[i] = &tensors[i];
    }
    tensors[4] = tn_dense(out, TN_F64, 1, &n);
    tn_tensor *outputs[] = {&tensors[4]};
    return tn_run(op, &(tn_args){.in = inputs, .n_in = n_in, .out = outputs, .n_out = 1, .kernel = kernel}, NULL);
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

static void test_identity(void) {
    const tn_function *a = must("silu(x) * y", NULL), *b = must("silu(x) * y", NULL), *fast = NULL;
    CHECK(a && a == b);
    CHECK(must("silu(x)*y", NULL) != a); /* the text is what it is known by */
    CHECK(tn_fuse("silu(x) * y", &(tn_fuse_options){.fast = true}, &fast) == TN_OK && fast != a);
    int count = tn_function_count();
    must("x + 12", NULL);
    CHECK(tn_function_count() == count);
}

static void test_values(void) {
    enum { N = 5 };
    double x[N] = {-2, -0.5, 0, 1, 3}, y[N] = {1, 2, 3, 4, 5}, z[N];
    static const char *const kernels[] = {NULL, "fused", "ref"};
    for (int k = 0; k < 3; k++) {
        CHECK_ROW(run(must("silu(x) * y", NULL), 2, (double *[]){x, y}, z, N, kernels[k]) == TN_OK, "%s",
                  tn_last_error());
        for (int i = 0; i < N; i++) CHECK(near(z[i], x[i] / (1 + exp(-x[i])) * y[i]));
        CHECK_ROW(run(must("exp(x - logsumexp(x, -1))", NULL), 1, (double *[]){x}, z, N, kernels[k]) == TN_OK, "%s",
                  tn_last_error());
        double sum = 0;
        for (int i = 0; i < N; i++) sum += z[i];
        CHECK(near(sum, 1));
    }
    const char *name = NULL;
    tn_cost cost = {0};
    int64_t n = 1000;
    tn_tensor a = tn_dense(NULL, TN_F32, 1, &n), b = a, c = a;
    tn_args args = {.in = (const tn_tensor *[]){&a, &b}, .n_in = 2, .out = (tn_tensor *[]){&c}, .n_out = 1};
    CHECK(tn_explain(must("silu(x) * y", NULL), &args, &name, &cost) == TN_OK && strcmp(name, "fused") == 0);
    CHECK(cost.bytes == 12000 && cost.flops > 0);
    args.kernel = "ref";
    CHECK(tn_explain(must("silu(x) * y", NULL), &args, &name, &cost) == TN_OK && cost.bytes == 12000);
}

/* Workspace is asked for after prepare: rows that are reduced twice need some. */
static void test_workspace(void) {
    enum { N = 6 };
    double x[N] = {1, 2, 3, 4, 5, 6}, y[N];
    CHECK_ROW(run(must("x / sum(x * x)", NULL), 1, (double *[]){x}, y, N, "fused") == TN_OK, "%s", tn_last_error());
    for (int i = 0; i < N; i++) CHECK(near(y[i], x[i] / 91));
    int64_t rows = 2, shape[2] = {2, 3};
    double sums[2];
    tn_tensor in = tn_dense(x, TN_F64, 2, shape), out = tn_dense(sums, TN_F64, 1, &rows);
    tn_args args = {.in = (const tn_tensor *[]){&in}, .n_in = 1, .out = (tn_tensor *[]){&out}, .n_out = 1};
    CHECK_ROW(tn_run(must("sum(x, -1)", NULL), &args, NULL) == TN_OK && sums[0] == 6 && sums[1] == 15, "%s",
              tn_last_error());
}

static void test_errors(void) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"sofplus(x)", "there is no function 'sofplus'; did you mean 'softplus'? at column 1\n  sofplus(x)\n  ^"},
        {"x +", "expected a number, a name or '('"},
        {"", "expected an expression"},
        {"f(x: T[*s]) -> y: T[*s]", "expected ':'"},
    };
    const tn_function *op = (const tn_function *)&bad;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ROW(tn_fuse(bad[i].text, NULL, &op) == TN_BAD_CONTRACT && strstr(tn_last_error(), bad[i].message),
                  "%s: %s", bad[i].text, tn_last_error());
        CHECK(!op);
    }
    CHECK(tn_fuse(NULL, NULL, &op) == TN_BAD_VALUE && tn_fuse("x", NULL, NULL) == TN_BAD_VALUE);
    double x[2] = {1, 2}, y[2];
    int64_t two = 2, three = 3;
    tn_tensor a = tn_dense(x, TN_F64, 1, &two), b = tn_dense(x, TN_F64, 1, &three), c = tn_dense(y, TN_F64, 1, &two);
    tn_args args = {.in = (const tn_tensor *[]){&a, &b}, .n_in = 2, .out = (tn_tensor *[]){&c}, .n_out = 1};
    CHECK(tn_run(must("x * b", NULL), &args, NULL) == TN_BAD_SHAPE && strstr(tn_last_error(), "formula: b"));
}

static void test_names(void) {
    const tn_function *op = must("x * 3", "triple"), *other = (const tn_function *)&op;
    int count = tn_function_count();
    CHECK(op && op == tn_find("triple") && op == must("x * 3", "triple"));
    CHECK(strcmp(tn_function_name(op), "triple") == 0 && tn_function_count() == count);
    CHECK(tn_fuse("x * 4", &(tn_fuse_options){.name = "triple"}, &other) == TN_BAD_CONTRACT && !other);
    CHECK(strstr(tn_last_error(), "triple: the table already has an operator of this name"));
    CHECK(tn_fuse("x * 4", &(tn_fuse_options){.name = "softmax"}, &other) != TN_OK);
    CHECK(tn_fuse("x * 4", &(tn_fuse_options){.name = "no name"}, &other) != TN_OK);
    const tn_function *renamed = must("f(x: T[*s], k: float = 2.0) -> y: T[*s] : x * k", "stretched");
    CHECK(renamed && renamed == tn_find("stretched"));
    CHECK(renamed && strcmp(renamed->row->signature, "stretched(x: T[*s], k: float = 2.0) -> y: T[*s]") == 0);
}

/* Along (1, 1, …): the gradient's outputs added up, against differences of the formula. */
static void check_slope(const tn_function *op, const tn_function *gradient, double at) {
    enum { N = 1 };
    double low = at - 1e-5, high = at + 1e-5, y0 = 0, y1 = 0, dx = 0, one = 1, x = at;
    CHECK(run(op, 1, (double *[]){&low}, &y0, N, NULL) == TN_OK &&
          run(op, 1, (double *[]){&high}, &y1, N, NULL) == TN_OK);
    double *in[2] = {&x, &one};
    CHECK_ROW(run(gradient, 2, in, &dx, N, NULL) == TN_OK, "%s", tn_last_error());
    CHECK_ROW(fabs(dx - (y1 - y0) / 2e-5) < 1e-6, "%g is not %g", dx, (y1 - y0) / 2e-5);
}

static void test_gradient(void) {
    const tn_function *op = must("x * sin(x)", NULL), *first, *second, *again;
    const tni_rule *rule;
    CHECK(tn_fuse_gradient(op, &first) == TN_OK && tn_fuse_gradient(op, &again) == TN_OK && first == again);
    check_slope(op, first, 0.7);
    CHECK(tni_operator_rule(op, &rule) == TN_OK && rule && rule->statements[0].op == first);
    CHECK_ROW(tn_fuse_gradient(first, &second) == TN_OK, "%s", tn_last_error());
    for (int order = 2; order < 5; order++) { /* every gradient has one of its own */
        CHECK_ROW(tn_fuse_gradient(second, &again) == TN_OK, "order %d: %s", order, tn_last_error());
        second = again;
    }
    CHECK(tn_fuse_gradient(must("i32(x)", NULL), &again) == TN_UNSUPPORTED && !again);
    CHECK(tni_operator_rule(must("i32(x)", NULL), &rule) == TN_OK && !rule);
    CHECK(tn_fuse_gradient(tn_find("softmax"), &again) == TN_UNSUPPORTED);
    char *json = tn_function_json(op);
    CHECK(json && strstr(json, "\"grad\": \"derived\""));
    tn_free(json);
    json = tn_gradient_json(op);
    CHECK(json && strstr(json, "\"op\": \"formula_grad\", \"formula\": \"formula_grad(x: T[*s], dy: T[*s])"));
    tn_free(json);
}

/* What a framework is told of a call, and that it is told nothing where that could not be the same. */
static void test_graph_json(void) {
    const tn_function *op = must("f(x: T[n, c], b: T[c]?, k: float = 2.0) -> y: T[n, c], s: T[n]? : "
                                 "y = x * k + b if has(b) else x; s = sum(x, -1)",
                                 NULL);
    char *json = tn_fuse_graph_json(op, (tn_type[]){TN_BF16, TN_BF16}, (int32_t[]){2, 1}, "k=3 want_s=true");
    CHECK_ROW(json && strstr(json, "{\"inputs\": [[0, 1], [-1, 0]]"), "%s", json ? json : tn_last_error());
    CHECK(json && strstr(json, "\"value\": 3") &&
          strstr(json, "{\"op\": \"sum\", \"type\": \"f32\", \"torch\": \"sum\", \"in\": \"f32\","
                       " \"over\": \"row\", \"args\": [0]}"));
    CHECK(json && strstr(json, "\"dims\": [0, -1]}]}"));
    tn_free(json);
    json = tn_fuse_graph_json(op, (tn_type[]){TN_F64, TN_NO_TYPE}, (int32_t[]){2, 0}, "");
    CHECK_ROW(json && !strstr(json, "\"+\"") && strstr(json, "{\"node\": -1"), "%s", json ? json : tn_last_error());
    tn_free(json);
    json = tn_fuse_graph_json(tn_find("mean"), (tn_type[]){TN_F32}, (int32_t[]){4}, "axes=[-1, 1] keepdim=true ");
    CHECK_ROW(json && strstr(json, "\"over\": [1, 3]") && strstr(json, "\"dims\": [0, -1, 2, -1]}"), "%s",
              json ? json : tn_last_error());
    tn_free(json);
    json = tn_fuse_graph_json(tn_find("group_norm"), (tn_type[]){TN_F32, TN_F32, TN_NO_TYPE}, (int32_t[]){3, 1, 0},
                              "groups=3");
    CHECK_ROW(json && strstr(json, "{\"inputs\": [[0, 1, 1, 2], [-1, 0, 0, -1]") &&
                  strstr(json, "\"sizes\": [-1, 3, -1, -1]") && strstr(json, "\"over\": [2, 3]"),
              "%s", json ? json : tn_last_error());
    tn_free(json);
    CHECK(!tn_fuse_graph_json(tn_find("mean"), (tn_type[]){TN_F32}, (int32_t[]){4}, "axes=[1, 3 keepdim=true"));
    CHECK(!tn_fuse_graph_json(op, (tn_type[]){TN_F32, TN_F64}, (int32_t[]){2, 1}, ""));
    CHECK(!tn_fuse_graph_json(op, (tn_type[]){TN_F32, TN_F32}, (int32_t[]){2, 2}, ""));
    CHECK(!tn_fuse_graph_json(op, (tn_type[]){TN_F32, TN_NO_TYPE}, (int32_t[]){2, 0}, "j=1"));
    CHECK(!tn_fuse_graph_json(must("x! = x * 2", NULL), (tn_type[]){TN_F32}, (int32_t[]){2}, ""));
    CHECK(!tn_fuse_graph_json(must("f(g: [T[*s]]) -> n: f32[] : sum(g * g)", NULL), (tn_type[]){TN_F32}, (int32_t[]){2},
                              ""));
    CHECK(!tn_fuse_graph_json(tn_find("sort"), (tn_type[]){TN_F32}, (int32_t[]){2}, ""));
}

static void test_rows(void) {
    enum { N = 4 };
    const tn_function *mish = tn_find("mish");
    double x[N] = {-3, -1, 0.5, 2}, y[N];
    CHECK(mish && mish->index >= 0 && strcmp(mish->row->formula, "x * tanh(softplus(x))") == 0);
    CHECK_ROW(run(mish, 1, (double *[]){x}, y, N, NULL) == TN_OK, "%s", tn_last_error());
    for (int i = 0; i < N; i++) CHECK(near(y[i], x[i] * tanh(log1p(exp(x[i])))));
    for (int i = 0; i < tn_function_count(); i++) { /* every formula of the table is one */
        const tn_function *op = tn_function_at(i);
        const tni_rule *rule;
        CHECK_ROW(tni_operator_rule(op, &rule) == TN_OK, "%s: %s", tn_function_name(op), tn_last_error());
    }
}

/* A row may bring kernels and a rule: they come first. */
static tn_status run_nothing(const tn_call *call, void *state) {
    (void)state;
    (void)call;
    return TN_OK;
}
static const tn_kernel own_kernels[] = {{.name = "mine", .device = TN_CPU, .run = run_nothing}, {0}};
static const tn_op own_row = {.signature = "own_row(x: T[*s]) -> y: T[*s]",
                              .doc = "x",
                              .formula = "x + 1",
                              .grad = "x: mul(x, dy)",
                              .kernels = own_kernels};
static const tn_op wrong_row = {.signature = "wrong_row(x: T[*s]) -> y: T[*s]", .doc = "x", .formula = "x +"};
static const tn_op loop_row = {.signature = "loop_row(x: T[*s]) -> y: T[*s]", .doc = "x", .formula = "loop_row(x) + 1"};

static void test_own_rows(void) {
    const tni_rule *rule;
    CHECK(tni_table_add((const tn_op *[]){&own_row, &wrong_row}, 2) == TN_BAD_CONTRACT && !tn_find("own_row"));
    CHECK(tni_table_add((const tn_op *[]){&wrong_row}, 1) == TN_BAD_CONTRACT && !tn_find("wrong_row"));
    CHECK(tni_table_add((const tn_op *[]){&wrong_row}, 1) == TN_BAD_CONTRACT);
    const char *message = tn_last_error(), *caret = strrchr(message, '\n');
    CHECK_ROW(strstr(message, "formula of 'wrong_row': expected a number, a name or '('"), "%s", message);
    CHECK_ROW(caret && strspn(caret + 1, " ") + 1 == strlen(caret + 1) && message[strlen(message) - 1] == '^', "%s",
              message);
    CHECK(tni_table_add((const tn_op *[]){&loop_row}, 1) == TN_BAD_CONTRACT);
    CHECK_ROW(strstr(tn_last_error(), "there is no function 'loop_row'"), "%s", tn_last_error());
    CHECK(tni_table_add((const tn_op *[]){&own_row}, 1) == TN_OK);
    const tn_function *op = tn_find("own_row");
    CHECK(op && strcmp(op->row->kernels[0].name, "mine") == 0 && strcmp(op->row->kernels[1].name, "fused") == 0);
    CHECK(tni_operator_rule(op, &rule) == TN_OK && rule && rule->statements[0].op == tn_find("mul"));
    double x = 1, y = 0;
    CHECK(run(op, 1, (double *[]){&x}, &y, 1, "fused") == TN_OK && y == 2);
}

/* ---- threads, forks, memory -------------------------------------------------------------------------------------- */

enum { THREADS = 4, TEXTS = 24 };

static void *fuse_all(void *arg) {
    const tn_function **made = arg;
    for (int i = 0; i < TEXTS; i++) {
        char text[64], name[32];
        snprintf(text, sizeof text, "x * %d + tanh(x)", i / 2 + 100);
        snprintf(name, sizeof name, "threaded_%d", i / 2);
        tn_fuse_options options = {.name = i % 2 ? name : NULL};
        double x = 1, y = 0;
        if (tn_fuse(text, &options, &made[i]) != TN_OK) continue;
        if (run(made[i], 1, (double *[]){&x}, &y, 1, NULL) != TN_OK || !near(y, i / 2 + 100 + tanh(1.0)))
            made[i] = NULL;
    }
    return NULL;
}

static void test_threads(void) {
    static const tn_function *made[THREADS][TEXTS];
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, fuse_all, made[t]);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (int i = 0; i < TEXTS; i++) {
        for (int t = 0; t < THREADS; t++) CHECK(made[t][i] && made[t][i] == made[0][i]);
    }
}

static void test_fork(void) {
    double x = 2, y = 0;
    const tn_function *op = must("x * x + 7", NULL);
    CHECK(run(op, 1, (double *[]){&x}, &y, 1, NULL) == TN_OK);
    pid_t child = fork();
    if (child == 0) {
        const tn_function *fresh;
        bool good = run(op, 1, (double *[]){&x}, &y, 1, NULL) == TN_OK && y == 11 &&
                    tn_fuse("x + 77", NULL, &fresh) == TN_OK;
        _exit(good ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- what nobody holds goes -------------------------------------------------------------------------------------- */

static int count_kept(void) {
    int n = 0;
    tni_operators_lock();
    for (const tn_function *op = tni_operators_kept(); op; op = op->next) n++;
    tni_operators_unlock();
    return n;
}

/* Makes a formula, calls it and its gradient, and gives both back. */
static bool use_once(int number) {
    char text[64];
    double x = 0.5, y = 0, dy = 2, dx = 0;
    const tn_function *op, *gradient;
    snprintf(text, sizeof text, "x * %d.25 + tanh(x)", number);
    if (tn_fuse(text, NULL, &op) != TN_OK || tn_fuse_gradient(op, &gradient) != TN_OK) return false;
    bool good = run(op, 1, (double *[]){&x}, &y, 1, NULL) == TN_OK && near(y, 0.5 * (number + 0.25) + tanh(0.5));
    char *rule = tn_gradient_json(op); /* the operator holds its gradient from here on */
    good &= rule && run(gradient, 2, (double *[]){&x, &dy}, &dx, 1, NULL) == TN_OK;
    good &= near(dx, 2 * (number + 0.25 + 1 - tanh(0.5) * tanh(0.5)));
    tn_free(rule);
    tn_fuse_release(gradient);
    tn_fuse_release(op);
    return good;
}

static void test_release(void) {
    enum { FORMULAS = 2000, SETTLED = 200, MOST_BYTES = 64 * 1024 };
    const tn_function *held = must("x * 3 + 0.125", NULL), *again = NULL;
    size_t before = 0;
    for (int i = 0; i < FORMULAS; i++) {
        CHECK_ROW(use_once(i), "%d: %s", i, tn_last_error());
        if (i == SETTLED) before = mallinfo2().uordblks;
    }
    size_t after = mallinfo2().uordblks; /* 0 where a sanitizer has the heap, and says by itself what was lost */
    CHECK_ROW(after <= before + MOST_BYTES, "%zu bytes became %zu", before, after);
    int kept = count_kept();
    for (int i = 0; i < 100; i++) CHECK(use_once(FORMULAS + i));
    CHECK_ROW(count_kept() == kept, "%d operators became %d", kept, count_kept());

    double x = 1, y = 0; /* one that is held stays what it is, as often as another gives it back */
    for (int i = 0; i < 3; i++) {
        CHECK(tn_fuse("x * 3 + 0.125", NULL, &again) == TN_OK && again == held);
        tn_fuse_release(again);
    }
    CHECK(run(held, 1, (double *[]){&x}, &y, 1, NULL) == TN_OK && y == 3.125);
    tn_fuse_release(held);
    CHECK(tn_fuse("x * 3 + 0.125", NULL, &again) == TN_OK && again == held); /* it was the last one to go idle */
    tn_fuse_release(again);
    const tn_function *named = must("x * 3 + 0.5", "release_named");
    tn_fuse_release(named);
    tn_fuse_release(named);
    tn_fuse_release(tn_find("relu"));
    tn_fuse_release(NULL);
    for (int i = 0; i < 100; i++) CHECK(use_once(2 * FORMULAS + i));
    CHECK(tn_find("release_named") == named && run(named, 1, (double *[]){&x}, &y, 1, NULL) == TN_OK && y == 3.5);
}

/* Threads that share some formulas, and give them back while others call them. */
static void *use_many(void *arg) {
    int *good = arg;
    for (int i = 0; i < 300; i++) *good += use_once(7000 + i % 60);
    return NULL;
}

static void test_release_in_threads(void) {
    pthread_t threads[THREADS];
    int good[THREADS] = {0};
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, use_many, &good[t]);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++) CHECK(good[t] == 300);
}

/* Every allocation fails once; what fails leaves nothing behind, and the next try works. */
static void test_memory(void) {
    for (int64_t n = 1; n < 4000; n++) {
        const tn_function *op, *gradient = NULL;
        char text[64];
        snprintf(text, sizeof text, "sigmoid(x) * %lld", (long long)n);
        tni_fail_allocation(n);
        tn_status status = tn_fuse(text, NULL, &op);
        if (status == TN_OK) status = tn_fuse_gradient(op, &gradient);
        char *graph = status == TN_OK ? tn_fuse_graph_json(op, (tn_type[]){TN_F32}, (int32_t[]){2}, "") : NULL;
        char *rule = graph ? tn_gradient_json(op) : NULL;
        if (status == TN_OK && !rule) status = TN_NO_MEMORY;
        tn_free(graph);
        tn_free(rule);
        int64_t asked = tni_fail_allocation(0);
        CHECK_ROW(status == TN_OK || status == TN_NO_MEMORY, "%lld: %s", (long long)n, tn_last_error());
        if (asked < n) {
            CHECK(status == TN_OK);
            break;
        }
        CHECK_ROW(tn_fuse(text, NULL, &op) == TN_OK && tn_fuse_gradient(op, &gradient) == TN_OK, "%s", tn_last_error());
    }
}

int main(void) {
    test_identity();
    test_values();
    test_workspace();
    test_errors();
    test_names();
    test_gradient();
    test_graph_json();
    test_rows();
    test_own_rows();
    test_threads();
    test_release();
    test_release_in_threads();
    test_fork();
    test_memory();
    return test_end();
}
