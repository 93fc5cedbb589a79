/* A backend is one struct: this one, made up here, does formulas with their plain reference. It takes the place of the
 * CPU's in the list, is given the lowered graph and its passes, and runs a formula from beginning to end. */
#include "tests/fuse/harness.h"

#include "fuse/plan/planner.h"

/* What hangs off a program. */
typedef struct made_up {
    const tni_fuse *formula;
    int32_t forms; /* that lowering has found */
} made_up;

static int n_planned, n_emitted, n_loaded, n_run, n_released;
static double most_bytes = 1e9;

static bool accepts(const tni_program *program) {
    return program->cost.bytes <= most_bytes;
}

static tn_status plan(tni_binding *b) {
    made_up *own = b->program->own = tni_arena_alloc(b->program->arena, sizeof *own);
    if (!own) return TN_NO_MEMORY;
    own->formula = b->f;
    for (int32_t i = 0; i < b->specialized.graph.n; i++) own->forms += b->lowered[i].forms[0].n_inside > 0;
    CHECK(b->program->n_passes > 0 && b->planners[0].n_stages > 0);
    n_planned++;
    return TN_OK;
}

static tn_status emit(tni_program *program, tni_text *text) {
    tni_text_add(text, "%d passes", (int)program->n_passes);
    n_emitted++;
    return TN_OK;
}

static tn_status load(tni_program *program, const tn_call *call) {
    CHECK(program->own && call->device.kind == TN_CPU);
    n_loaded++;
    return TN_OK;
}

static tn_status run(const tni_program *program, const tn_call *call) {
    const made_up *own = program->own;
    n_run++;
    return tni_fuse_reference(own->formula, call);
}

static void release(tni_program *program) {
    CHECK(program->own != NULL);
    n_released++;
}

static const tni_backend made_up_backend = {.name = "made up",
                                            .device = TN_CPU,
                                            .accepts = accepts,
                                            .plan = plan,
                                            .emit = emit,
                                            .load = load,
                                            .run = run,
                                            .release = release};

static const row cases[] = {
    {"relu(x * s + b)", "4,5 5 5", -2, 2},
    {"t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)", "7,33", -3, 3},
    {"x * tanh(softplus(x))", "100", -4, 4},
    {"mean(x * y) + w", "6,7 6,7 3", -2, 2},
};

static void test_formulas(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        call_of c;
        bool compiled = true;
        if (row_open(&cases[i], TN_F64, TN_F64, 0, 0, &c)) {
            double **want = ref_run(&c);
            CHECK_ROW(views_run(&c, &compiled) == TN_OK && !compiled, "%s: %s", cases[i].formula, tn_last_error());
            if (want) compare(&cases[i], &c, want, TN_F64, 0);
            ref_free(c.f, want);
        }
        row_close(&c);
    }
    const int n = sizeof cases / sizeof cases[0];
    CHECK(n_planned == n && n_loaded == n && n_run == n && n_released == n);
}

/* The text by the backend's name; a program that is emitted is not loaded. */
static void test_text(void) {
    static views v;
    call_of c;
    tni_program *program = NULL;
    char *source = NULL;
    const int loaded = n_loaded;
    if (!row_open(&cases[2], TN_F32, TN_F32, 0, 0, &c)) return;
    make_views(&c, &v);
    CHECK(tni_fuse_emit(c.f, &v.call, "made up", &program, &source) == TN_OK);
    CHECK(source && strcmp(source, "1 passes") == 0 && n_loaded == loaded);
    CHECK(program && ((const made_up *)program->own)->forms == 1); /* tanh(softplus(x)) */
    tni_program_free(program);
    tn_free(source);
    CHECK(tni_fuse_emit(c.f, &v.call, "interpreter", &program, &source) == TN_BAD_VALUE); /* compiles nothing */
    CHECK(tni_fuse_emit(c.f, &v.call, "nobody", &program, &source) == TN_BAD_VALUE && !program && !source);
    row_close(&c);
}

/* What the first does not take, the next one of the device gets; and no other device's. */
static void test_order(void) {
    static views v;
    call_of c;
    tni_program *program = NULL;
    if (!row_open(&cases[2], TN_F32, TN_F32, 0, 0, &c)) return;
    make_views(&c, &v);
    CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_OK && program->backend == &made_up_backend);
    tni_program_free(program);
    most_bytes = 1;
    CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_OK && program->backend == &tni_interpreter_backend);
    tni_program_free(program);
    static const tni_backend *const alone[] = {&made_up_backend, NULL};
    tni_set_backends(alone);
    CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_UNSUPPORTED && !program);
    most_bytes = 1e9;
    v.call.device.kind = TN_CUDA;
    CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_UNSUPPORTED);
    row_close(&c);
}

/* The cost is that of the lowered graph: no backend is asked. */
static void test_cost(void) {
    static views v;
    call_of c;
    tn_cost cost = {0};
    const int planned = n_planned;
    if (!row_open(&cases[0], TN_F32, TN_F32, 0, 0, &c)) return;
    make_views(&c, &v);
    CHECK(tni_fuse_cost(c.f, &v.call, &cost) == TN_OK && n_planned == planned);
    CHECK_ROW(cost.bytes == 4 * (20 + 5 + 5 + 20) && cost.flops == 3 * 20, "%g bytes, %g operations", cost.bytes,
              cost.flops);
    row_close(&c);
}

int main(void) {
    static const tni_backend *const list[] = {&made_up_backend, &tni_interpreter_backend, NULL};
    CHECK(tni_backends() == tni_formula_backends && strcmp(tni_backends()[0]->name, "cuda") == 0);
    tni_set_backends(list);
    test_formulas();
    test_text();
    test_cost();
    test_order();
    return test_end();
}
