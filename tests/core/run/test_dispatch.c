/* Dispatch: kernel choice, plans kept by shape, dense copies, memory that tensors share, and what a bad call is told.
 * The operators are the test's own, so that every path can be seen from inside the kernel. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tenon/ops.h>

#include "core/run/plan.h"
#include "core/run/run.h"
#include "tests/test.h"

/* ---- operators --------------------------------------------------------------------------------------------------- */

static _Atomic int prepared, released; /* plans are dropped by whichever thread is there */
static struct {
    const void *x, *y;
    int64_t strides[TN_MAX_RANK];
    bool has_b, has_z;
    void *workspace;
    const char *kernel;
} seen;

static tn_status note_prepare(const tn_call *call, void **state) {
    prepared++;
    *state = malloc(8);
    if (!call->kernel || call->kernel->prepare != note_prepare) return tn_fail(TN_SYSTEM, "prepare saw another kernel");
    return tn_in(call, 0)->data == NULL ? TN_OK : tn_fail(TN_SYSTEM, "prepare saw data");
}
static void note_release(void *state) {
    released++;
    free(state);
}
static size_t some_workspace(const tn_call *call) {
    return (size_t)tn_count(tn_in(call, 0)) * 8 + 1;
}
static bool only_even(const tn_call *call) {
    return call->kernel->accepts == only_even && tn_count(tn_in(call, 0)) % 2 == 0;
}

/* y = x + b (b broadcasts), z = 2 * y; strides are honoured, so this serves dense and strided rows alike. */
static tn_status add(const tn_call *call, const char *kernel) {
    const tn_view *x = tn_in(call, 0), *b = tn_in(call, 1), *y = tn_out(call, 0), *z = tn_out(call, 1);
    if (strcmp(call->kernel->name, kernel) != 0) return tn_fail(TN_SYSTEM, "%s saw another kernel", kernel);
    memcpy(seen.strides, x->strides, (size_t)x->ndim * sizeof(int64_t));
    seen.x = x->data;
    seen.y = y->data;
    seen.has_b = b != NULL;
    seen.has_z = z != NULL;
    seen.workspace = call->workspace;
    seen.kernel = kernel;
    for (int64_t i = 0, n = tn_count(x); i < n; i++) {
        int64_t at = i, ox = 0, ob = 0, oy = 0, oz = 0;
        for (int d = x->ndim - 1; d >= 0; d--) {
            int64_t k = at % x->shape[d];
            at /= x->shape[d];
            ox += k * x->strides[d];
            oy += k * y->strides[d];
            if (b) ob += k * b->strides[d];
            if (z) oz += k * z->strides[d];
        }
        double value = tn_get(x->type, x->data, ox) + (b ? tn_get(b->type, b->data, ob) : 0) + call->attrs[0].f;
        tn_set(y->type, y->data, oy, value);
        if (z) tn_set(z->type, z->data, oz, 2 * value);
    }
    return TN_OK;
}
static tn_status add_even(const tn_call *call, void *state) {
    return state ? add(call, "even") : tn_fail(TN_SYSTEM, "the state is missing");
}
static tn_status add_strided(const tn_call *call, void *state) {
    (void)state;
    return add(call, "strided");
}
static tn_status add_dense(const tn_call *call, void *state) {
    (void)state;
    return add(call, "dense");
}
/* Notes nothing, so that many threads may run it. */
static tn_status add_pure(const tn_call *call, void *state) {
    const tn_view *x = tn_in(call, 0), *y = tn_out(call, 0);
    (void)state;
    for (int64_t i = 0; i < tn_count(x); i++) ((double *)y->data)[i] = ((double *)x->data)[i] + call->attrs[0].f;
    return TN_OK;
}
static const tn_kernel add_kernels[] = {
    {.name = "cuda_only", .device = TN_CUDA, .run = add_dense},
    {.name = "even",
     .device = TN_CPU,
     .types = TN_BIT(TN_F64),
     .flags = TN_STRIDED | TN_ALIAS,
     .accepts = only_even,
     .workspace = some_workspace,
     .prepare = note_prepare,
     .release = note_release,
     .run = add_even},
    {.name = "strided", .device = TN_CPU, .types = TN_BIT(TN_F64), .flags = TN_STRIDED, .run = add_strided},
    {.name = "dense", .device = TN_CPU, .run = add_dense},
    {.name = "pure", .device = TN_CPU, .types = TN_BIT(TN_F64), .run = add_pure},
    {0}};
static const tn_op op_add = {.signature = "test_add(x: T[*s], b: T[~*s]?, c: float = 0.0) -> y: T[*s], z: T[*s]?",
                             .doc = "x + b + c",
                             .kernels = add_kernels};

/* m += the sum of all tensors of a list. */
static tn_status accumulate(const tn_call *call, void *state) {
    (void)state;
    const tn_view *m = tn_in(call, 1);
    for (int32_t k = 0; k < call->in[0].count; k++) {
        const tn_view *x = &call->in[0].views[k];
        for (int64_t i = 0; i < tn_count(x); i++) {
            tn_set(m->type, m->data, 0, tn_get(m->type, m->data, 0) + tn_get(x->type, x->data, i));
        }
    }
    tn_set(tn_out(call, 0)->type, tn_out(call, 0)->data, 0, tn_get(m->type, m->data, 0));
    return TN_OK;
}
static const tn_kernel accumulate_kernels[] = {{.name = "ref", .device = TN_CPU, .run = accumulate}, {0}};
static const tn_op op_accumulate = {.signature = "test_accumulate(xs: [T[*s]], m: f64[]!) -> y: f64[]",
                                    .doc = "m += sum of xs",
                                    .kernels = accumulate_kernels};

static tn_status refuse_silently(const tn_call *call, void **state) {
    (void)call, (void)state;
    return TN_UNSUPPORTED;
}
static const tn_kernel unprepared_kernels[] = {
    {.name = "ref", .device = TN_CPU, .prepare = refuse_silently, .run = add_pure}, {0}};
static const tn_op op_unprepared = {
    .signature = "test_unprepared(x: T[*s]) -> y: T[*s]", .doc = "x", .kernels = unprepared_kernels};

static const tn_function *add_op, *accumulate_op;

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

typedef struct call {
    tn_tensor x, b, y, z;
    const tn_tensor *in[2];
    tn_tensor *out[2];
    tn_args args;
} call;

static void make_call(call *c, double *x, double *y, int ndim, int64_t *shape) {
    memset(c, 0, sizeof *c);
    c->x = tn_dense(x, TN_F64, ndim, shape);
    c->y = tn_dense(y, TN_F64, ndim, shape);
    c->in[0] = &c->x;
    c->out[0] = &c->y;
    c->args = (tn_args){.in = c->in, .n_in = 2, .out = c->out, .n_out = 2};
}

static bool says(tn_status got, tn_status want, const char *fragment) {
    bool right = got == want && strstr(tn_last_error(), fragment) != NULL;
    if (!right) printf("  got %s: %s\n", tn_status_name(got), tn_last_error());
    return right;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void kernels_are_chosen_in_order(void) {
    double x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    int64_t six[] = {6}, five[] = {5};
    call c;
    make_call(&c, x, y, 1, six);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && strcmp(seen.kernel, "even") == 0 && y[5] == 6);
    CHECK(seen.workspace && (uintptr_t)seen.workspace % 64 == 0);
    CHECK(!seen.has_b && !seen.has_z);
    make_call(&c, x, y, 1, five);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && strcmp(seen.kernel, "strided") == 0);
    CHECK(seen.workspace == NULL);
    c.args.kernel = "dense";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && strcmp(seen.kernel, "dense") == 0);
    c.args.kernel = "even";
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_UNSUPPORTED, "kernel 'even' does not take this call (f64 on cpu)"));
    c.args.kernel = "nothing";
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_UNSUPPORTED, "kernel 'nothing'"));
    float xf[4] = {1, 2, 3, 4}, yf[4];
    int64_t four[] = {4};
    make_call(&c, (double *)xf, (double *)yf, 1, four);
    c.x.dtype = c.y.dtype = tn_type_to_dlpack(TN_F32);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && strcmp(seen.kernel, "dense") == 0 && yf[3] == 4);
    const char *kernel;
    tn_cost cost;
    CHECK(tn_explain(add_op, &c.args, &kernel, &cost) == TN_OK && strcmp(kernel, "dense") == 0 && cost.bytes == 32);
}

static size_t taken; /* bytes, the alignment of each block included */

static tn_block take(void *context, tn_device device, size_t bytes) {
    taken += bytes + 63;
    return tn_default_host()->alloc(context, device, bytes);
}

/* What tn_workspace says is what tn_run takes. */
static void workspace_is_told_before(void) {
    double x[12] = {0}, y[24];
    int64_t shape[] = {3, 4}, by_column[] = {1, 3}, apart[] = {8, 2}, nothing[] = {0, 4};
    tn_host host = *tn_default_host();
    host.alloc = take;
    size_t bytes = 1;
    call c;
    make_call(&c, x, y, 2, shape);
    taken = 0; /* a kernel with a workspace */
    CHECK(tn_workspace(add_op, &c.args, &bytes) == TN_OK && bytes > 0);
    CHECK(tn_run(add_op, &c.args, &host) == TN_OK && seen.workspace && taken == bytes);
    c.args.kernel = "dense";
    CHECK(tn_workspace(add_op, &c.args, &bytes) == TN_OK && bytes == 0);
    c.x.strides = by_column;
    c.y.strides = apart;
    c.x.data = c.y.data = NULL;
    CHECK(tn_workspace(add_op, &c.args, &bytes) == TN_OK && bytes >= 2 * sizeof x);
    c.x.data = x;
    c.y.data = y;
    taken = 0;
    CHECK(tn_run(add_op, &c.args, &host) == TN_OK && taken == bytes);
    make_call(&c, x, y, 2, nothing);
    c.y.strides = apart;
    c.args.kernel = "dense";
    CHECK(tn_workspace(add_op, &c.args, &bytes) == TN_OK && bytes == 0);
    CHECK(says(tn_workspace(add_op, &c.args, NULL), TN_BAD_VALUE,
               "tn_workspace: the place for the number of bytes is NULL"));
}

static void plans_are_kept_by_shape(void) {
    double x[8] = {0}, y[8];
    int64_t shape[] = {2, 4}, other[] = {4, 2};
    call c;
    make_call(&c, x, y, 2, shape);
    int before = prepared;
    for (int i = 0; i < 10; i++) CHECK(tn_run(add_op, &c.args, NULL) == TN_OK);
    CHECK(prepared == before + 1);
    tn_attr attr = tn_attr_float("c", 3);
    c.args.attrs = &attr;
    c.args.n_attrs = 1;
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y[7] == 3);
    attr = tn_attr_float("c", 4);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y[7] == 4); /* the value is part of the key */
    CHECK(prepared == before + 3);
    make_call(&c, x, y, 2, other);
    CHECK(tn_prepare(add_op, &c.args, NULL) == TN_OK && prepared == before + 4);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && prepared == before + 4);
    /* Many shapes: old plans are given back, memory does not grow without end. */
    static double big[2 * 5000], out[2 * 5000];
    before = prepared;
    int gone = released;
    for (int64_t n = 1; n <= 5000; n++) {
        int64_t s[] = {2, n};
        make_call(&c, big, out, 2, s);
        if (tn_run(add_op, &c.args, NULL) != TN_OK) break;
    }
    CHECK(prepared == before + 5000 - 1); /* (2, 4) was known */
    CHECK(released - gone >= 5000 - 1024);
}

static void tensors_become_dense_where_wanted(void) {
    double x[12], y[24];
    int64_t shape[] = {3, 4}, by_column[] = {1, 3}, apart[] = {8, 2};
    for (int i = 0; i < 12; i++) x[i] = i;
    memset(y, 0, sizeof y);
    call c;
    make_call(&c, x, y, 2, shape);
    c.x.strides = by_column;
    c.y.strides = apart;
    c.args.kernel = "dense";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK);
    CHECK(seen.x != x && seen.y != y && seen.strides[0] == 4 && seen.strides[1] == 1);
    bool right = true;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 4; j++) right &= y[i * 8 + j * 2] == x[i + 3 * j] && y[i * 8 + j * 2 + 1] == 0;
    }
    CHECK(right);
    c.args.kernel = "strided";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.x == x && seen.y == y && seen.strides[0] == 1);
    int64_t back[] = {-4, -1};
    c.x.strides = back;
    c.x.byte_offset = 11 * sizeof(double);
    c.args.kernel = "dense";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y[0] == 11 && y[2 * 8 + 3 * 2] == 0);
    /* A broadcast input has its full shape, with strides of 0, whatever shape it came in. */
    double b[4] = {100, 200, 300, 400};
    int64_t row[] = {4}, one[] = {1, 1};
    make_call(&c, x, y, 2, shape);
    c.in[1] = &c.b;
    c.b = tn_dense(b, TN_F64, 1, row);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.has_b && y[11] == 411 && y[4] == 104);
    c.b = tn_dense(b, TN_F64, 2, one);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y[11] == 111);
    c.args.kernel = "dense";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y[11] == 111);
}

/* A single number has no shape to point at. */
static void single_numbers(void) {
    double x = 3, y = 0;
    call c;
    make_call(&c, &x, &y, 0, NULL);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && y == 3);
}

static void asked_outputs(void) {
    double x[4] = {1, 2, 3, 4}, y[4], z[4];
    int64_t shape[] = {4};
    call c;
    make_call(&c, x, y, 1, shape);
    c.z = tn_dense(z, TN_F64, 1, shape);
    c.out[1] = &c.z;
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.has_z && z[3] == 8);
    c.out[0] = NULL; /* y is always computed; nobody wants it here */
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.has_z && z[3] == 8);
}

static void shared_memory(void) {
    double x[16], y[16];
    int64_t shape[] = {8};
    call c;
    for (int i = 0; i < 16; i++) x[i] = i;
    make_call(&c, x, x, 1, shape);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.y == x); /* "even" allows it */
    c.args.kernel = "strided";
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.y != x && x[7] == 7);
    c.args.kernel = NULL;
    c.y.byte_offset = 3 * sizeof(double); /* partly over x: the result is right all the same */
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK && seen.y != (void *)(x + 3));
    bool right = true;
    for (int i = 0; i < 8; i++) right &= x[i + 3] == i;
    CHECK(right);
    make_call(&c, x, y, 1, shape);
    c.z = tn_dense(y + 4, TN_F64, 1, shape);
    c.out[1] = &c.z;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "test_add: y and z are both written, but share memory"));
    int64_t still[] = {0};
    make_call(&c, x, y, 1, shape);
    c.y.strides = still;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "y is written, but some of its elements share memory"));
}

static void lists_and_in_place(void) {
    double a[2] = {1, 2}, b[3] = {3, 4, 5}, m = 100, y;
    int64_t two[] = {2}, three[] = {3};
    tn_tensor ta = tn_dense(a, TN_F64, 1, two), tb = tn_dense(b, TN_F64, 1, three);
    tn_tensor tm = tn_dense(&m, TN_F64, 0, NULL), ty = tn_dense(&y, TN_F64, 0, NULL);
    const tn_tensor *in[] = {&ta, &tb, &tm};
    tn_tensor *out[] = {&ty};
    int32_t lengths[] = {2, 1};
    tn_args args = {.in = in, .n_in = 3, .lengths = lengths, .out = out, .n_out = 1};
    CHECK(tn_run(accumulate_op, &args, NULL) == TN_OK && m == 115 && y == 115);
    CHECK(tn_run(accumulate_op, &args, NULL) == TN_OK && m == 130);
    const tn_tensor *empty[] = {&tm};
    lengths[0] = 0;
    tn_args none = {.in = empty, .n_in = 1, .lengths = lengths, .out = out, .n_out = 1};
    tn_status status = tn_run(accumulate_op, &none, NULL);
    CHECK(status != TN_OK || m == 130); /* an empty list: refused with a reason, or nothing to add */
    args.lengths = NULL;
    CHECK(says(tn_run(accumulate_op, &args, NULL), TN_BAD_VALUE, "args.lengths"));
    /* Hundreds of tensors go through the heap. */
    enum { MANY = 300 };
    const tn_tensor *many[MANY + 1];
    int32_t long_lengths[] = {MANY, 1};
    for (int i = 0; i < MANY; i++) many[i] = &ta;
    many[MANY] = &tm;
    tn_args big = {.in = many, .n_in = MANY + 1, .lengths = long_lengths, .out = out, .n_out = 1};
    m = 0;
    CHECK(tn_run(accumulate_op, &big, NULL) == TN_OK && m == 3.0 * MANY);
}

static tn_status made_output(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                             tn_tensor **made) {
    tn_tensor *t = (tn_tensor *)context + output;
    int64_t *numbers = malloc(sizeof(int64_t) * 2 * TN_MAX_RANK);
    memcpy(numbers, spec->shape, sizeof spec->shape);
    memcpy(numbers + TN_MAX_RANK, strides, (size_t)spec->ndim * sizeof *strides);
    *t = tn_dense(calloc(64, 8), spec->type, spec->ndim, numbers);
    t->strides = numbers + TN_MAX_RANK;
    *made = t;
    return TN_OK;
}

/* The typed functions lay lists out one after the other, however many tensors there are. */
static void typed_lists(void) {
    enum { N = 5000 };
    static float p[N], g[N], m[N];
    static tn_tensor tensors[3][N];
    static const tn_tensor *lists[3][N];
    float lr = 0.5F;
    tn_tensor rate = tn_dense(&lr, TN_F32, 0, NULL);
    for (int i = 0; i < N; i++) {
        float *const data[] = {p + i, g + i, m + i};
        g[i] = (float)i;
        for (int k = 0; k < 3; k++) {
            tensors[k][i] = tn_dense(data[k], TN_F32, 0, NULL);
            lists[k][i] = &tensors[k][i];
        }
    }
    CHECK(tn_sgd_step_list(lists[0], N, lists[1], N, lists[2], N, &rate, NULL) == TN_OK);
    CHECK(p[3] == -1.5F && p[N - 1] == -0.5F * (N - 1));
    CHECK(says(tn_sgd_step_list(NULL, 2, lists[1], 2, lists[2], 2, &rate, NULL), TN_BAD_VALUE,
               "sgd_step_list: the list p is NULL"));
    CHECK(says(tn_sgd_step_list(lists[0], 2, lists[1], -2, lists[2], 2, &rate, NULL), TN_BAD_VALUE,
               "sgd_step_list: the list g is NULL or has a negative length (-2)"));
}

static void outputs_made_on_the_way(void) {
    double x[24];
    for (int i = 0; i < 24; i++) x[i] = i;
    int64_t shape[] = {2, 3, 4}, last[] = {12, 1, 3};
    call c;
    make_call(&c, x, NULL, 3, shape);
    c.x.strides = last; /* channels-last in, channels-last out */
    tn_tensor made[2] = {{0}};
    tn_attr attrs[] = {{NULL, {.kind = TN_ATTR_FLOAT, .f = 1}}, {NULL, {.kind = TN_ATTR_BOOL, .b = true}}};
    c.args.attrs = attrs;
    c.args.n_attrs = 2;
    CHECK(tni_call_alloc(add_op, &c.args, NULL, made_output, made) == TN_OK);
    CHECK(made[0].strides && made[0].strides[1] == 1 && made[0].strides[2] == 3);
    CHECK(made[1].data && ((double *)made[1].data)[23] == 2 * 24);
    for (int i = 0; i < 2; i++) {
        free(made[i].data);
        free(made[i].shape);
        made[i] = (tn_tensor){0};
    }
    attrs[1].value.b = false;
    CHECK(tni_call_alloc(add_op, &c.args, NULL, made_output, made) == TN_OK && !made[1].data);
    free(made[0].data);
    free(made[0].shape);
}

static void bad_calls_get_a_message(void) {
    double x[8] = {0}, y[8];
    int64_t shape[] = {8}, negative[] = {-8}, seven[] = {7}, far[] = {INT64_MAX / 2}, huge[] = {INT64_MAX / 4, 64};
    call c;
    make_call(&c, x, y, 1, shape);
    CHECK(says(tn_run(NULL, &c.args, NULL), TN_BAD_VALUE, "NULL"));
    CHECK(says(tn_infer(NULL, &c.args, NULL), TN_BAD_VALUE, "tn_infer: the operator is NULL"));
    CHECK(tn_function_json(NULL) == NULL && tn_gradient_json(NULL) == NULL && tn_function_name(NULL) == NULL);
    CHECK(tn_function_row(NULL) == NULL && tn_type_named(NULL) == TN_NO_TYPE);
    CHECK(says(tn_run(add_op, NULL, NULL), TN_BAD_VALUE, "NULL"));
    c.x.data = NULL;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "test_add: x has no data (NULL)"));
    c.x.data = (char *)x + 1;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "address of x is not a multiple"));
    make_call(&c, x, y, 1, negative);
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "dimension 0 of x has the negative size -8"));
    make_call(&c, x, y, 1, shape);
    c.x.ndim = 17;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "x has rank 17"));
    c.x.ndim = -3;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "negative rank"));
    make_call(&c, x, y, 1, NULL);
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "x has no shape"));
    make_call(&c, x, y, 1, shape);
    c.x.dtype = (tn_dlpack_type){2, 64, 2};
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_TYPE, "element type that Tenon lacks"));
    c.x.dtype = (tn_dlpack_type){1, 128, 1};
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_TYPE, "x has type uint128, which Tenon does not have"));
    c.x.dtype = tn_type_to_dlpack(TN_U32);
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_TYPE, "x has type u32, needs f16, bf16, f32 or f64"));
    make_call(&c, x, y, 1, shape);
    c.y.dtype = tn_type_to_dlpack(TN_F32);
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_TYPE, "test_add: y is f32, needs f64"));
    make_call(&c, x, y, 1, shape);
    c.y.shape = seven;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "test_add: y has shape (7), needs (8)"));
    make_call(&c, x, y, 1, shape);
    c.x.device.kind = TN_CUDA;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_DEVICE, "y is on cpu, but x is on cuda:0"));
    c.y.device.kind = 7;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_DEVICE, "device 7:0"));
    make_call(&c, x, y, 1, shape);
    c.x.strides = far;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "reach past 2^63 bytes"));
    make_call(&c, x, y, 2, huge);
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_SHAPE, "test_add"));
    make_call(&c, x, y, 1, shape);
    c.in[0] = NULL;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "x"));
    c.args.n_in = 3;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "takes at most 2 tensors, got 3"));
    make_call(&c, x, y, 1, shape);
    c.args.n_out = 3;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "has 2 outputs, got 3"));
    make_call(&c, x, y, 1, shape);
    tn_attr unknown = tn_attr_int("cc", 1);
    c.args.attrs = &unknown;
    c.args.n_attrs = 1;
    CHECK(says(tn_run(add_op, &c.args, NULL), TN_BAD_VALUE, "cc"));
    unknown = tn_attr_str("c", "text");
    CHECK(tn_run(add_op, &c.args, NULL) != TN_OK && strstr(tn_last_error(), "test_add"));
    unknown = (tn_attr){"c", {.kind = 99}};
    CHECK(tn_run(add_op, &c.args, NULL) != TN_OK && strstr(tn_last_error(), "test_add"));
    unknown = tn_attr_ints("axes", NULL, -1000);
    c.args.n_in = c.args.n_out = 1;
    CHECK(says(tn_run(tn_find("sum"), &c.args, NULL), TN_BAD_VALUE, "axes has no elements behind its count of -1000"));
    c.args.n_attrs = 0;
    CHECK(says(tn_run(tn_find("test_unprepared"), &c.args, NULL), TN_UNSUPPORTED,
               "test_unprepared: kernel 'ref' could not be prepared and did not say why"));
    CHECK(tn_find("sofmax") == NULL && strstr(tn_last_error(), "did you mean 'softmax'"));
    CHECK(tn_find("") == NULL && tn_find(NULL) == NULL);
    CHECK(tn_find("a name that is nowhere near any other and far too long to be one, at all, in any table") == NULL);
    CHECK(tn_function_at(-1) == NULL && tn_function_at(1 << 20) == NULL);
    const tn_op *again[] = {&op_add};
    CHECK(says(tni_table_add(again, 1), TN_BAD_CONTRACT, "test_add: the table already has"));
}

/* One row that cannot be read would keep everybody from reading the table. */
static void rows_can_be_read(void) {
    static const tn_sample typo[] = {{.args = "s=[3] axs=1"}, {0}}, right[] = {{.args = "s=[3]"}, {0}};
    static tn_op row = {.signature = "test_row<T: i8 u8>(x: T[*s]) -> y: T[*s]", .doc = "x", .kernels = add_kernels};
    const tn_op *rows[] = {&row};
    const int before = tn_function_count();
    row.samples = typo;
    CHECK(says(tni_table_add(rows, 1), TN_BAD_VALUE, "test_row: sample 's=[3] axs=1': nothing is named 'axs'"));
    row.samples = right;
    row.autocast = "64";
    CHECK(says(tni_table_add(rows, 1), TN_BAD_CONTRACT, "test_row: autocast is '64'"));
    CHECK(tn_function_count() == before && tn_find("test_row") == NULL);
    row.autocast = NULL;
    CHECK(tni_table_add(rows, 1) == TN_OK);
    char *table = tn_table_json();
    CHECK(table && strstr(table, "test_row")); /* though T is never f32 */
    tn_free(table);
}

static void every_allocation_may_fail(void) {
    double x[6] = {0}, y[6];
    int64_t shape[] = {3, 2}, columns[] = {1, 3};
    call c;
    int refused = 0;
    for (int64_t n = 1;; n++) {
        tn_attr attr = tn_attr_float("c", 1000.0 + (double)n); /* a new plan each time */
        make_call(&c, x, y, 2, shape);
        c.x.strides = columns;
        c.args.kernel = "dense";
        c.args.attrs = &attr;
        c.args.n_attrs = 1;
        tn_pool_trim();
        tni_fail_allocation(n);
        tn_status status = tn_run(add_op, &c.args, NULL);
        tni_fail_allocation(0);
        if (status == TN_OK) break;
        refused++;
        CHECK_ROW(status == TN_NO_MEMORY, "allocation %lld: %s", (long long)n, tn_last_error());
    }
    CHECK(refused >= 3);
}

static void a_child_goes_on(void) {
    double x[4] = {1, 2, 3, 4}, y[4] = {0};
    int64_t shape[] = {4};
    call c;
    make_call(&c, x, y, 1, shape);
    CHECK(tn_run(add_op, &c.args, NULL) == TN_OK);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(tn_run(add_op, &c.args, NULL) == TN_OK && y[3] == 4 ? 0 : 1);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *call_from_a_thread(void *arg) {
    double x[64], y[64];
    uintptr_t right = 1;
    for (int i = 0; i < 64; i++) x[i] = i;
    for (int i = 0; i < 2000; i++) {
        int64_t shape[] = {1 + i % 7, 1 + i / 7 % 9}; /* shapes that the threads share, known and new */
        call c;
        tn_attr attr = tn_attr_float("c", (double)(i % 3));
        make_call(&c, x, y, 2, shape);
        c.args.kernel = "pure";
        c.args.attrs = &attr;
        c.args.n_attrs = 1;
        int64_t last = shape[0] * shape[1] - 1;
        right &= tn_run(arg, &c.args, NULL) == TN_OK && y[last] == (double)(last + i % 3);
    }
    return (void *)right;
}

static void many_threads(void) {
    pthread_t id[8];
    for (int i = 0; i < 8; i++) pthread_create(&id[i], NULL, call_from_a_thread, (void *)add_op);
    for (int i = 0; i < 8; i++) {
        void *right = NULL;
        pthread_join(id[i], &right);
        CHECK(right != NULL);
    }
}

enum { CALLS = 100, YARDS = 1000 }; /* fewer than a busy machine lets run in one go */

static double nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Multiplications that wait for each other: how fast the machine is now, whatever else runs on it. */
static double yardstick(void) {
    static volatile uint64_t kept;
    uint64_t x = kept | 1;
    const double begin = nanoseconds();
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < YARDS; k++) x *= x + 2;
        kept = x;
    }
    return (nanoseconds() - begin) / CALLS;
}

/* About 1 us on the machines of 2020, and a quarter of that is needed. */
static void a_small_call_is_quick(void) {
    float x[8] = {1}, y[8];
    int64_t shape[] = {1, 8};
    call c;
    make_call(&c, (double *)x, (double *)y, 2, shape);
    c.x.dtype = c.y.dtype = tn_type_to_dlpack(TN_F32);
    c.args.n_out = 1;
    const tn_function *softmax = tn_find("softmax");
    double best = 1e9, limit = 1e9;
    for (int repeat = 0; repeat < 400; repeat++) {
        const double begin = nanoseconds();
        for (int i = 0; i < CALLS; i++) (void)tn_run(softmax, &c.args, NULL);
        best = fmin(best, (nanoseconds() - begin) / CALLS);
        limit = fmin(limit, yardstick());
    }
    printf("a call of softmax on 8 values takes %.0f ns (limit %.0f)\n", best, limit);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_ROW(best < limit, "%.0f ns, and %.0f are the limit", best, limit);
#else
    (void)limit;
#endif
}

int main(void) {
    const tn_op *rows[] = {&op_add, &op_accumulate, &op_unprepared};
    if (tni_table_add(rows, 3) != TN_OK) {
        printf("%s\n", tn_last_error());
        return 1;
    }
    add_op = tn_find("test_add");
    accumulate_op = tn_find("test_accumulate");
    kernels_are_chosen_in_order();
    workspace_is_told_before();
    plans_are_kept_by_shape();
    tensors_become_dense_where_wanted();
    single_numbers();
    asked_outputs();
    shared_memory();
    lists_and_in_place();
    typed_lists();
    outputs_made_on_the_way();
    bad_calls_get_a_message();
    rows_can_be_read();
    every_allocation_may_fail();
    a_child_goes_on();
    many_threads();
    a_small_call_is_quick();
    return test_end();
}
