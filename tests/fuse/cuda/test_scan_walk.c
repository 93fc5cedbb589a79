/* Scans as one kernel: NVRTC compiles it where there is one, and it runs on the CPU, thread by thread (emulate.h), and
 * is compared with the reference of the operator. */
#include <sys/stat.h>

#include "tests/fuse/cuda/build_text.h"
#include "tests/fuse/harness.h"

#include "fuse/cuda/gpu_walk.h"
#include "fuse/operator.h"

typedef struct row_of_scans {
    const char *step, *names; /* of values in the order of the operator; - is in no step */
    const char *types;        /* of the values, and of start if there is one: "f32 bf16" */
    int32_t ndim, axis;
    int64_t shape[3];
    int layout; /* of array_make */
    bool reverse, start;
    const char *outputs; /* y b l: which are wanted */
    double first;
} row_of_scans;

/* Lines along the walk, which go through shared memory, and side by side; of fewer lines than a block has, and more
 * elements than a tile; values that are repeated along the axis, or over the rows. */
static const row_of_scans scans[] = {
    {"a * s + x", "x a", "f32 f32", 2, 1, {3, 70}, 0, false, false, "y", 0},
    {"a * s + x", "x a", "bf16 bf16", 2, 0, {21, 40}, 0, true, false, "yl", 0},
    {"max(s, x)", "x", "f16", 2, 1, {41, 33}, 0, true, false, "ybl", -1},
    {"tanh(a * s + x) / (1 + s * s)", "x a", "f64 f64 f64", 3, 1, {2, 19, 5}, 0, false, true, "yb", 0},
    {"s + x", "x", "i32 i32", 2, 1, {9, 40}, 0, false, true, "yl", 0},
    {"where(x > s, x, 0.3 * s)", "x", "f32 bf16", 3, 2, {2, 3, 45}, 4, true, true, "yl", 0},
    {"t = s * x; sin(t) + t", "x", "f32", 1, 0, {50}, 3, false, false, "bl", 0.5},
    {"0.5 * s + a", "- a", "f32 f16", 3, 0, {17, 3, 5}, 1, false, false, "yl", 2},
    {"a * s + b * c - d * e", "x a b c d e", "f64 f64 f64 f64 f64 f64", 2, 1, {5, 37}, 0, false, false, "ybl", 1},
    {"s + x", "x", "bf16", 2, 1, {3, 0}, 0, false, false, "yl", 3},
};

static char folder[64] = "/tmp/tenon-walk-XXXXXX";
static bool has_nvrtc, has_compiler;

/* ---- a call ------------------------------------------------------------------------------------------------------ */

enum { MOST_IN = TNI_SCAN_VALUES + 1, MOST_OUT = TNI_SCAN_LAST + 1 };

typedef struct scan_call {
    array in[MOST_IN], out[2][MOST_OUT]; /* out: of the reference, of the kernel */
    tn_attr attrs[8];
    int32_t n_attrs;
} scan_call;

static tn_type next_type(const char **types) {
    char name[8] = "";
    int length = 0;
    if (sscanf(*types, "%7s%n", name, &length) != 1) return TN_F32;
    *types += length;
    return tn_type_named(name);
}

static void make_scan(const row_of_scans *r, scan_call *c) {
    const char *names = r->names, *types = r->types;
    int64_t without[3];
    int32_t n = 0;
    char name[TNI_MAX_NAME + 1];
    memset(c, 0, sizeof *c);
    for (int32_t d = 0; d < r->ndim; d++) {
        if (d != r->axis) without[n++] = r->shape[d];
    }
    for (int k = 0; tni_scan_next_name(&names, name); k++) {
        array_make(&c->in[k], next_type(&types), r->ndim, r->shape, r->layout);
        array_fill(&c->in[k], -1, 1);
        if (k == 1) c->in[k].strides[r->ndim > 1 ? (r->axis + 1) % r->ndim : 0] = 0; /* repeated over rows */
        if (k == 2) c->in[k].strides[r->axis] = 0;                                   /* and along the axis */
    }
    if (r->start) {
        array_make(&c->in[TNI_SCAN_START], next_type(&types), n, without, 0);
        array_fill(&c->in[TNI_SCAN_START], -1, 1);
    }
    for (int k = 0; k < 2; k++) {
        const tn_type type = c->in[0].type;
        const int layout = r->layout == 1 ? 1 : 0;
        if (strchr(r->outputs, 'y')) array_make(&c->out[k][TNI_SCAN_Y], type, r->ndim, r->shape, layout);
        if (strchr(r->outputs, 'b')) array_make(&c->out[k][TNI_SCAN_BEFORE], type, r->ndim, r->shape, layout);
        if (strchr(r->outputs, 'l')) array_make(&c->out[k][TNI_SCAN_LAST], type, n, without, 0);
    }
    c->attrs[c->n_attrs++] = tn_attr_str("step", r->step);
    c->attrs[c->n_attrs++] = tn_attr_str("names", r->names);
    c->attrs[c->n_attrs++] = tn_attr_int("axis", r->axis);
    c->attrs[c->n_attrs++] = tn_attr_bool("reverse", r->reverse);
    c->attrs[c->n_attrs++] = tn_attr_float("first", r->first);
}

static tn_status run_reference(scan_call *c, const char *kernel) {
    tn_tensor tensors[MOST_IN + MOST_OUT];
    const tn_tensor *in[MOST_IN] = {NULL};
    tn_tensor *out[MOST_OUT] = {NULL};
    for (int k = 0; k < MOST_IN; k++) {
        tensors[k] = array_tensor(&c->in[k]);
        if (c->in[k].memory) in[k] = &tensors[k];
    }
    for (int k = 0; k < MOST_OUT; k++) {
        tensors[MOST_IN + k] = array_tensor(&c->out[0][k]);
        if (c->out[0][k].memory) out[k] = &tensors[MOST_IN + k];
    }
    const tn_args args = {.in = in,
                          .n_in = MOST_IN,
                          .out = out,
                          .n_out = MOST_OUT,
                          .attrs = c->attrs,
                          .n_attrs = c->n_attrs,
                          .kernel = kernel};
    return tn_run(tni_scans.make(), &args, NULL);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static tn_status use(void *arg, const tni_program *program, const tn_call *step, const char *source) {
    const row_of_scans *r = arg;
    const tni_gpu_walked *w = program->own;
    if (has_nvrtc) {
        tni_compiled_code code = {0};
        const char *options[TNI_GPU_OPTIONS + 1];
        options[tni_gpu_options("test", strstr(source, "struct tn_params"), options)] = NULL;
        const tn_status status = tni_nvrtc_compile("test", "scan.cu", source, 9, 0, options, &code);
        CHECK_ROW(status == TN_OK, "%s: %s", r->step, tn_last_error());
        tni_free(code.data);
    }
    if (!has_compiler) return TN_OK;
    void *library = build_text(folder, source), *run = library ? dlsym(library, "tn_emulate") : NULL;
    void *kernel = run ? dlsym(library, w->kernel) : NULL;
    CHECK_ROW(kernel, "%s: no %s in\n%s", r->step, w->kernel, strstr(source, "struct tn_params"));
    if (kernel) {
        emulate launch;
        emulated_kernel function;
        uint64_t words[TNI_GPU_PARAMS / 8];
        memcpy(&launch, &run, sizeof run);
        memcpy(&function, &kernel, sizeof kernel);
        tni_gpu_walk_words(program, step, words);
        launch(function, words, w->grid, (unsigned)w->threads, 1);
    }
    if (library) dlclose(library);
    return TN_OK;
}

static tn_status run_walked(const row_of_scans *r, scan_call *c) {
    tn_view all[MOST_IN + MOST_OUT];
    tn_slot in[MOST_IN] = {{0}}, out[MOST_OUT] = {{0}};
    tn_value attrs[8];
    for (int k = 0; k < MOST_IN + MOST_OUT; k++) {
        const array *a = k < MOST_IN ? &c->in[k] : &c->out[1][k - MOST_IN];
        tn_slot *slot = k < MOST_IN ? &in[k] : &out[k - MOST_IN];
        all[k] = (tn_view){a->data, a->shape, a->strides, a->ndim, a->type};
        if (a->memory) *slot = (tn_slot){&all[k], 1};
    }
    for (int k = 0; k < c->n_attrs; k++) attrs[k] = c->attrs[k].value;
    const tn_call call = {.name = "scan", .in = in, .out = out, .attrs = attrs, .device = {TN_CUDA, 0}};
    return tni_scan_walk(&call, use, (void *)r);
}

static void check_alike(const row_of_scans *r, const scan_call *c, const char *what) {
    for (int k = 0; k < MOST_OUT; k++) {
        const array *want = &c->out[0][k], *got = &c->out[1][k];
        const double tolerance = got->type == TN_F64 ? 1e-12 : got->type == TN_F32 ? 1e-5 : 1e-2;
        for (int64_t i = 0; want->memory && i < array_count(want); i++) {
            const double a = array_get(want, i), b = array_get(got, i);
            const bool same = fabs(a - b) <= tolerance * (1 + fabs(a));
            CHECK_ROW(same, "%s of %s, output %d, element %lld: %g, not %g", what, r->step, k, (long long)i, b, a);
            if (!same) break;
        }
    }
}

int main(void) {
    static scan_call c;
    if (!mkdtemp(folder)) return 2;
    has_compiler = system("c++ --version > /dev/null 2>&1") == 0 && !IS_CHECKED;
    has_nvrtc = tni_nvrtc_version("test") > 0 && !IS_CHECKED;
    for (size_t i = 0; i < sizeof scans / sizeof scans[0]; i++) {
        const row_of_scans *r = &scans[i];
        make_scan(r, &c);
        CHECK_ROW(run_reference(&c, "ref") == TN_OK, "%s: %s", r->step, tn_last_error());
        CHECK_ROW(run_walked(r, &c) == TN_OK, "%s: %s", r->step, tn_last_error());
        if (has_compiler) check_alike(r, &c, "the walk");
        for (int k = 0; k < MOST_OUT; k++) { /* now what the reference made stands beside the steps of the CPU */
            array kept = c.out[0][k];
            c.out[0][k] = c.out[1][k];
            c.out[1][k] = kept;
        }
        CHECK_ROW(run_reference(&c, "steps") == TN_OK, "%s: %s", r->step, tn_last_error());
        check_alike(r, &c, "steps");
        for (int k = 0; k < MOST_IN; k++) array_free(&c.in[k]);
        for (int k = 0; k < 2 * MOST_OUT; k++) array_free(&c.out[k / MOST_OUT][k % MOST_OUT]);
    }
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) printf("%s stays\n", folder);
    printf("NVRTC: %s, emulated: %s\n", has_nvrtc ? "yes" : "no", has_compiler ? "yes" : "no");
    return test_end();
}
