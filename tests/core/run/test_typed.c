/* The typed functions of tenon/ops.h: attributes of programs from before and after an attribute came, what is told
 * about what was left out, and that the library can be shut down and used again. */
#include <pthread.h>
#include <stddef.h>

#include <tenon.h>

#include "core/host/memory.h"
#include "tests/test.h"

static bool says(tn_status status, tn_status wanted, const char *text) {
    if (status == wanted && (status == TN_OK || strstr(tn_last_error(), text))) return true;
    printf("status %d, '%s'; expected %d, '%s'\n", status, tn_last_error(), wanted, text);
    return false;
}

static float x[4] = {0, 0, 0, 0}, y[4];
static int64_t shape[] = {2, 2};

/* Of rows of equal numbers: 0.5 along any axis; causal: {1, 0}, {0.5, 0.5}. */
static tn_status softmax(const tn_softmax_attrs *attrs) {
    tn_tensor tx = tn_dense(x, TN_F32, 2, shape), ty = tn_dense(y, TN_F32, 2, shape);
    for (int i = 0; i < 4; i++) y[i] = -1;
    return tn_softmax(&tx, NULL, attrs, &ty);
}
static bool gives(float a, float b, float c, float d) {
    return y[0] == a && y[1] == b && y[2] == c && y[3] == d;
}

static void sizes(void) {
    tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS, zeros = {0};
    CHECK(attrs.size == sizeof attrs && attrs.axis == -1 && attrs.scale == 1 && !attrs.causal);
    CHECK(softmax(NULL) == TN_OK && gives(0.5F, 0.5F, 0.5F, 0.5F));
    CHECK(softmax(&zeros) == TN_OK && gives(0.5F, 0.5F, 0.5F, 0.5F)); /* not a scale of 0 */
    attrs.causal = true;
    CHECK(softmax(&attrs) == TN_OK && gives(1, 0, 0.5F, 0.5F));

    /* A program from before `causal`: what lies behind its struct is something else. */
    attrs.size = offsetof(tn_softmax_attrs, causal);
    CHECK(softmax(&attrs) == TN_OK && gives(0.5F, 0.5F, 0.5F, 0.5F));
    attrs.size = offsetof(tn_softmax_attrs, scale);
    attrs.axis = 5;
    CHECK(says(softmax(&attrs), TN_BAD_VALUE, "axis")); /* what it did know holds */

    attrs = (tn_softmax_attrs)TN_SOFTMAX_ATTRS;
    attrs.size += 8;
    CHECK(says(softmax(&attrs), TN_BAD_VALUE, "softmax: attrs.size is 40, but Tenon " TN_VERSION " has 32 bytes"));
    attrs.size = 9;
    CHECK(says(softmax(&attrs), TN_BAD_VALUE, "softmax: attrs.size is 9, which no version has; begin with TN_SOFTMAX"));
    attrs.size = 0;
    CHECK(says(softmax(&attrs), TN_BAD_VALUE, "begin with: tn_softmax_attrs attrs = TN_SOFTMAX_ATTRS;"));
    zeros.causal = true;
    CHECK(says(softmax(&zeros), TN_BAD_VALUE, "attrs has members but its size is 0"));
}

/* Each member begins where the one before it can have no padding. */
static void words(void) {
    CHECK(offsetof(tn_softmax_attrs, axis) == 8 && offsetof(tn_softmax_attrs, scale) == 16);
    CHECK(offsetof(tn_softmax_attrs, causal) == 24 && sizeof(tn_softmax_attrs) == 32);
    CHECK(sizeof(tn_sum_attrs) % 8 == 0 && offsetof(tn_sum_attrs, n_axes) % 8 == 0);
}

static void kinds(void) {
    int64_t axes[] = {0}, two[] = {2};
    float s[2];
    tn_sum_attrs attrs = TN_SUM_ATTRS;
    tn_tensor tx = tn_dense(x, TN_F32, 2, shape), ts = tn_dense(s, TN_F32, 1, two);
    attrs.axes = axes;
    attrs.n_axes = 1;
    x[1] = 3;
    CHECK(says(tn_sum(&tx, &attrs, &ts), TN_OK, "") && s[0] == 0 && s[1] == 3);
    x[1] = 0;
    attrs.axes = NULL;
    CHECK(tn_sum(&tx, &attrs, &ts) != TN_OK);
}

static void left_out(void) {
    tn_tensor tx = tn_dense(x, TN_F32, 2, shape), ty = tn_dense(y, TN_F32, 2, shape);
    CHECK(says(tn_softmax(&tx, 0, 0, NULL), TN_BAD_VALUE, "softmax: no output is wanted: y is NULL"));
    CHECK(says(tn_softmax(NULL, 0, 0, &ty), TN_BAD_VALUE, "softmax: "));
    CHECK(says(tn_softmax(NULL, NULL, NULL, NULL), TN_BAD_VALUE, "softmax: "));
    CHECK(says(tn_layer_norm(&tx, NULL, NULL, NULL, NULL, NULL, NULL), TN_BAD_VALUE, "y and all others are NULL"));

    const tn_tensor *in[] = {&tx};
    tn_tensor *out[] = {&ty};
    const tn_attr unnamed = tn_attr_int(NULL, 1), text = tn_attr_str("axis", NULL);
    tn_args args = {.in = in, .n_in = 1, .attrs = &unnamed, .n_attrs = 1, .out = out, .n_out = 1};
    const tn_function *op = tn_find("softmax");
    tn_spec spec;
    size_t bytes;
    const char message[] = "softmax: attribute 0 has no name (NULL)";
    CHECK(says(tn_run(op, &args, NULL), TN_BAD_VALUE, message));
    CHECK(says(tn_infer(op, &args, &spec), TN_BAD_VALUE, message));
    CHECK(says(tn_prepare(op, &args, NULL), TN_BAD_VALUE, message));
    CHECK(says(tn_workspace(op, &args, &bytes), TN_BAD_VALUE, message));
    CHECK(says(tn_explain(op, &args, NULL, NULL), TN_BAD_VALUE, message));
    args.attrs = &text;
    CHECK(tn_run(op, &args, NULL) != TN_OK);
}

/* ---- integers without a sign ------------------------------------------------------------------------------------- */

static tn_status run_on(const char *text, const tn_tensor *a, const tn_tensor *b, tn_tensor *y_out) {
    const tn_function *op;
    TN_TRY(tn_fuse(text, NULL, &op));
    const tn_tensor *in[] = {a, b};
    tn_tensor *out[] = {y_out};
    const tn_args args = {.in = in, .n_in = b ? 2 : 1, .out = out, .n_out = 1};
    return tn_run(op, &args, NULL);
}

static void unsigned_integers(void) {
    int64_t three[] = {3};
    uint16_t u16[3] = {0, 65535, 40000}, u16_out[3];
    uint32_t u32[3] = {0, 4294967295u, 3000000000u}, u32_out[3];
    uint64_t u64[3] = {0, 1, 2};
    int16_t i16[3] = {-1, -2, 3};
    int64_t i64_out[3];
    float f32[3] = {0, 65535, 40000.75F};
    tn_tensor a = tn_dense(u16, TN_U16, 1, three), b = tn_dense(u32, TN_U32, 1, three),
              c = tn_dense(u64, TN_U64, 1, three);
    tn_tensor f = tn_dense(f32, TN_F32, 1, three), s = tn_dense(i16, TN_I16, 1, three);
    tn_tensor a_out = tn_dense(u16_out, TN_U16, 1, three), b_out = tn_dense(u32_out, TN_U32, 1, three);
    tn_tensor wide = tn_dense(i64_out, TN_I64, 1, three);
    CHECK(says(run_on("f(x: u16[n]) -> y: u16[n] : x + 1", &a, NULL, &a_out), TN_OK, ""));
    CHECK(u16_out[0] == 1 && u16_out[1] == 0 && u16_out[2] == 40001); /* it wraps around, as other integers do */
    CHECK(says(run_on("f(x: u32[n]) -> y: u32[n] : x / 2", &b, NULL, &wide), TN_BAD_TYPE, "f: y is i64, needs u32"));
    CHECK(says(run_on("f(x: u32[n]) -> y: u32[n] : x if x > 5 else 5", &b, NULL, &b_out), TN_OK, ""));
    CHECK(u32_out[0] == 5 && u32_out[1] == 4294967295u && u32_out[2] == 3000000000u);
    CHECK(says(run_on("f(x: u32[n], s: i16[n]) -> y: i64[n] : x * s", &b, &s, &wide), TN_OK, ""));
    CHECK(i64_out[0] == 0 && i64_out[1] == -8589934590ll && i64_out[2] == 9000000000ll);
    CHECK(says(run_on("f(x: f32[n]) -> y: u16[n] : u16(x)", &f, NULL, &a_out), TN_OK, ""));
    CHECK(u16_out[0] == 0 && u16_out[1] == 65535 && u16_out[2] == 40000);
    CHECK(
        says(run_on("f(x: u64[n]) -> y: i64[n] : x + 1", &c, NULL, &wide), TN_BAD_TYPE, "f: x has type u64; formulas"));
    CHECK(says(run_on("f(x: f32[n]) -> y: u64[n] : x", &f, NULL, &c), TN_BAD_TYPE, "f: y has type u64, and formulas"));

    uint64_t most[1];
    tn_set(TN_U64, most, 0, 0x1p64 - 2048);
    CHECK(most[0] == UINT64_MAX - 2047 && tn_get(TN_U64, most, 0) == 0x1p64 - 2048);
    CHECK(tn_type_from_dlpack((tn_dlpack_type){1, 32, 1}) == TN_U32 && tn_type_named("u16") == TN_U16);
}

/* ---- shutting down ----------------------------------------------------------------------------------------------- */

static tn_status run_formula(void) {
    const tn_function *op, *gradient;
    TN_TRY(tn_fuse("tanh(a) * b + 1", NULL, &op));
    TN_TRY(tn_fuse_gradient(op, &gradient));
    tn_tensor a = tn_dense(x, TN_F32, 2, shape), b = tn_dense(y, TN_F32, 2, shape), c = b;
    const tn_tensor *in[] = {&a, &b};
    tn_tensor *out[] = {&c};
    const tn_args args = {.in = in, .n_in = 2, .out = out, .n_out = 1};
    return tn_run(op, &args, NULL);
}

static tn_status shared_loop(void) {
    static float many[1 << 17];
    int64_t size[] = {1 << 9, 1 << 8};
    tn_tensor t = tn_dense(many, TN_F32, 2, size);
    return tn_softmax(&t, NULL, NULL, &t);
}

static void shut_down(void) {
    tn_memory_stats stats;
    tn_set_threads(3);
    tn_shutdown(); /* with nothing there, or what the tests before left */
    tn_shutdown();
    const int rows = tn_function_count();
    for (int i = 0; i < 3; i++) {
        CHECK(softmax(NULL) == TN_OK && gives(0.5F, 0.5F, 0.5F, 0.5F));
        CHECK(says(run_formula(), TN_OK, "") && y[0] == 1);
        CHECK(says(shared_loop(), TN_OK, ""));
        tn_fuse_options named = {.name = "in_the_table"};
        const tn_function *op;
        CHECK(says(tn_fuse("x + 1", &named, &op), TN_OK, "") && tn_find("in_the_table") == op);
        CHECK(tn_function_count() > rows);
        tn_shutdown();
        CHECK(tn_memory_get((tn_device){TN_CPU, 0}, &stats) == TN_OK && stats.in_use == 0 && stats.pooled == 0);
        CHECK(tn_find("in_the_table") == NULL && tn_function_count() == rows);
    }
}

int main(void) {
    CHECK(strcmp(tn_version(), TN_VERSION) == 0 && TN_VERSION_AT_LEAST(0, 1, 0) && !TN_VERSION_AT_LEAST(900, 0, 0));
    sizes();
    words();
    kinds();
    left_out();
    unsigned_integers();
    shut_down();
    tn_shutdown();
    return test_end();
}
