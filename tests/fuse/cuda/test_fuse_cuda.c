/* Formulas as CUDA C. Without a GPU: NVRTC compiles them for several architectures, and the kernels run on the CPU,
 * thread by thread (emulate.h), and are compared with the reference. With one: they run there. As many processes as
 * there are processors share the work; with a GPU they fill the cache, and what is in it then runs.
 *
 * A sample of the formulas. With TENON_TEST_NVRTC NVRTC compiles all of them, in f64 or in another way, those of the
 * table, and 150 random ones. With TENON_TEST_ALL it compiles them in every type and 1000 random ones, and all run.
 * TENON_TEST_ONLY=TEXT: rows that have it. TENON_TEST_PART=2/5: the second of five parts. What a machine lacks is left
 * out, and said. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuse/cuda/build_text.h"
#include "tests/fuse/formula_rows.h"
#include "tests/fuse/generator.h"

#include "core/table/sample.h"
#include "fuse/cuda/gpu.h"
#include "fuse/formula_kernel.h"
#include "fuse/operator.h"

static char folder[64] = "/tmp/tenon-cuda-XXXXXX";
static bool has_nvrtc, has_compiler, has_gpu;
static int n_compiled, n_emulated, n_together, n_gpu; /* together: launches of several steps */

/* ---- NVRTC ------------------------------------------------------------------------------------------------------- */

enum { OFAST_COMPILE = 12090 }; /* the first NVRTC that has it: a quarter of the time for code that never runs */

static void compile(const char *text, const char *source, int arch) {
    tni_compiled_code code = {0};
    const char *options[TNI_GPU_OPTIONS + 1];
    int n = tni_gpu_options("test", strstr(source, "struct tn_params"), options);
    if (tni_nvrtc_version("test") >= OFAST_COMPILE) options[n++] = "--Ofast-compile=max";
    options[n] = NULL;
    tn_status status = tni_nvrtc_compile("test", "formula.cu", source, arch / 10, arch % 10, options, &code);
    CHECK_ROW(status == TN_OK && code.bytes > 0, "%s for sm_%d: %s", text, arch, tn_last_error());
    tni_free(code.data);
    n_compiled++;
}

/* ---- on the CPU -------------------------------------------------------------------------------------------------- */

static void run_emulated(const char *text, const char *source, const tni_program *program, const tn_call *call) {
    void *library = build_text(folder, source), *found = library ? dlsym(library, "tn_emulate") : NULL;
    emulate run;
    CHECK_ROW(found, "%s: does not compile", text);
    if (!found) return;
    memcpy(&run, &found, sizeof run);
    const int k = tni_gpu_variant(program, call);
    uint64_t words[TNI_GPU_PARAMS / 8 + 8];
    for (int32_t i = 0; i < tni_on_gpu(program)->n_steps; i++) {
        const tni_gpu_step *step = &tni_on_gpu(program)->steps[i];
        emulated_kernel function;
        if (!step->steps[k]) continue;
        if (step->steps[k] > 1) n_together++;
        found = dlsym(library, step->name[k]);
        CHECK_ROW(found, "%s: no kernel %s", text, step->name[k]);
        if (!found) break;
        memcpy(&function, &found, sizeof function);
        tni_gpu_next next = {0};
        do {
            uint32_t grid = tni_gpu_words(program, step, k, call, &next, words);
            run(function, words, grid, step->grid[k].block, step->cluster > 1 ? (unsigned)step->cluster : 1);
        } while (!tni_gpu_is_done(program, step, &next));
    }
    dlclose(library);
    n_emulated++;
}

/* ---- on the GPU -------------------------------------------------------------------------------------------------- */

static void run_on_gpu(const char *text, call_of *c) {
    static views v;
    tn_block blocks[2 * TNI_MAX_ARGS + 1] = {{0}};
    tni_cuda_scope scope;
    tn_device device = {TN_CUDA, 0};
    make_views(c, &v);
    v.call.device = device;
    if (tni_cuda_enter("test", 0, &scope) != TN_OK) return;
    const tni_cuda_api *cu = tni_cuda("test");
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        const array *a = i < TNI_MAX_ARGS ? &c->in[i] : &c->out[i - TNI_MAX_ARGS];
        if (!a->memory) continue;
        CHECK(tni_cuda_alloc(text, device, a->bytes, NULL, &blocks[i]) == TN_OK);
        cu->cuMemcpyHtoDAsync((cu_pointer)(uintptr_t)blocks[i].data, a->memory, a->bytes, NULL);
        v.views[i].data = (char *)blocks[i].data + (a->data - a->memory);
        const tn_slot *arg = i < TNI_MAX_ARGS ? &v.in[i] : &v.out[i - TNI_MAX_ARGS];
        for (int32_t k = 0; k < arg->count && arg->views != &v.views[i]; k++) { /* of a list */
            tn_view *part = (tn_view *)(uintptr_t)&arg->views[k];
            part->data = (char *)blocks[i].data + ((char *)part->data - a->memory);
        }
    }
    tni_program *program = NULL;
    tn_status status = tni_fuse_bind(c->f, &v.call, &program);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    if (status == TN_OK) {
        status = tni_cuda_alloc(text, device, program->workspace + 64, NULL, &blocks[2 * TNI_MAX_ARGS]);
        CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
        v.call.workspace = blocks[2 * TNI_MAX_ARGS].data;
        status = tni_program_run(program, &v.call);
        CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    }
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        array *a = i < TNI_MAX_ARGS ? &c->in[i] : &c->out[i - TNI_MAX_ARGS];
        if (a->memory) cu->cuMemcpyDtoHAsync(a->memory, (cu_pointer)(uintptr_t)blocks[i].data, a->bytes, NULL);
    }
    int error = cu->cuStreamSynchronize(NULL);
    CHECK_ROW(error == 0, "%s: CUDA error %d", text, error);
    for (int i = 0; i <= 2 * TNI_MAX_ARGS; i++) {
        if (blocks[i].data) tni_cuda_free(device, blocks[i], NULL);
    }
    tni_cuda_leave(&scope);
    tni_program_free(program);
    n_gpu++;
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

enum { NVRTC = 1, EMULATE = 2 };

typedef struct test_case {
    const row *row;          /* NULL: a random formula */
    const tn_function *op;   /* or a row of the table */
    const tn_kernel *kernel; /* of that row, which is a formula; NULL: the row itself is */
    uint64_t seed;
    tn_type T, W;
    int layout, ways, arch;
    bool apart; /* each step as a launch of its own, however small */
} test_case;

static test_case cases[4096];
static int n_cases;

static void run_here(const char *text, call_of *c, int ways, int arch) {
    static views v;
    tni_program *program = NULL;
    char *source = NULL;
    make_views(c, &v);
    tn_status status = tni_fuse_emit(c->f, &v.call, "cuda", &program, &source);
    CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
    if (status != TN_OK) return;
    if (getenv("TENON_TEST_SHOW")) printf("%s\n", strstr(source, "struct tn_params"));
    if (has_nvrtc && ways & NVRTC) compile(text, source, arch);
    if (has_compiler && ways & EMULATE) {
        size_t bytes = (program->workspace + 64 + 63) / 64 * 64;
        v.call.workspace = aligned_alloc(64, bytes);
        memset(v.call.workspace, 0x5a, bytes);
        run_emulated(text, source, program, &v.call);
        free(v.call.workspace);
    }
    tni_program_free(program);
    tn_free(source);
}

/* Into the cache: what binding will look for, and what the call will. */
static void fill_cache(const char *text, call_of *c, int arch) {
    static views v;
    tni_program *program = NULL;
    char *source = NULL;
    make_views(c, &v);
    if (tni_fuse_emit(c->f, &v.call, "cuda", &program, &source) != TN_OK) return;
    int first = tni_gpu_variant(program, NULL), second = tni_gpu_variant(program, &v.call);
    for (int k = 0; k < 2; k++) {
        tni_compiled_code code = {0};
        if (k != first && k != second) continue;
        tn_status status = tni_gpu_compile("test", strstr(source, "struct tn_params"), k, arch / 10, arch % 10, &code);
        CHECK_ROW(status == TN_OK, "%s: %s", text, tn_last_error());
        tni_free(code.data);
        n_compiled++;
    }
    tni_program_free(program);
    tn_free(source);
}

/* A sample of a row of the table: the first, or for one of its kernels one with all inputs and outputs. */
static void run_sample(const test_case *test) {
    enum { WHOLE = 2 };
    const tni_contract *contract = test->op->contract;
    const row r = {contract->name, test->op->row->samples[test->kernel ? WHOLE : 0].args, 0.5, 2};
    const tni_fuse *f;
    tni_case *sample;
    tn_status status = test->kernel ? tni_formula_kernel_parsed(test->kernel, contract->name, &f)
                                    : tni_operator_formula(test->op, &f);
    if (status == TN_OK) status = tni_sample_case(contract, r.shapes, test->T, &sample);
    CHECK_ROW(status == TN_OK, "%s: %s", contract->name, tn_last_error());
    if (status != TN_OK) return;
    call_of c = {.f = f};
    for (int i = 0; i < sample->n_inputs; i++) {
        const tni_sample_input *in = &sample->inputs[i];
        array_make(&c.in[in->input], in->type, in->shape.ndim, in->shape.d, 0);
        array_fill(&c.in[in->input], r.low, r.high);
    }
    for (int i = 0; i < sample->n_attrs; i++) { /* all outputs are wanted */
        if (strncmp(sample->attrs[i].name, "want_", 5) != 0) c.attrs[c.n_attrs++] = sample->attrs[i];
    }
    status = call_make_outputs(&c, 0);
    CHECK_ROW(status == TN_OK, "%s: %s", contract->name, tn_last_error());
    if (status == TN_OK) {
        double **want = has_compiler && test->ways & EMULATE ? ref_run(&c) : NULL;
        run_here(contract->name, &c, test->ways, test->arch);
        if (want) compare(&r, &c, want, test->T, 0);
        ref_free(f, want);
    }
    call_free(&c);
    tni_case_free(sample);
}

/* fill: of a GPU of architecture `fill`, only compile for it. */
static void run_case(const test_case *test, int fill) {
    static generator g;
    tni_gpu_apart = test->apart;
    if (test->op) {
        run_sample(test);
        return;
    }
    row random = {g.text, "", -2, 2};
    const row *r = test->row ? test->row : &random;
    if (!test->row) {
        gen_formula(&g, test->seed);
        random.shapes = gen_shapes(&g, 3, 5);
    }
    call_of c;
    if (row_open(r, test->T, test->W, test->layout, test->layout == 1 ? 1 : 0, &c)) {
        bool runs = !fill && (has_gpu || (has_compiler && test->ways & EMULATE));
        double **want = runs ? ref_run(&c) : NULL;
        if (fill) {
            fill_cache(r->formula, &c, fill);
        } else if (has_gpu) {
            run_on_gpu(r->formula, &c);
        } else {
            run_here(r->formula, &c, test->ways, test->arch);
        }
        if (want) compare(r, &c, want, test->T, test->layout);
        ref_free(c.f, want);
    }
    row_close(&c);
}

/* Both types compute in f32: each row in one of them, unless all is asked for. */
static void list_table(bool all) {
    int n = 0;
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        if (!op->row->formula || op->contract->has_lists) continue;
        const test_case plain = {.op = op, .T = TN_F32, .W = TN_F32, .ways = NVRTC, .arch = 90, .apart = true};
        const test_case narrow = {.op = op, .T = TN_BF16, .W = TN_F32, .ways = NVRTC, .arch = 75};
        if (all || n % 2 == 0) cases[n_cases++] = plain;
        if (all || n % 2 == 1) cases[n_cases++] = narrow;
        n++;
    }
}

/* Formulas that are one of the kernels of a row. */
static void list_kernels(void) {
    for (int i = 0; i < tn_function_count(); i++) {
        const tn_function *op = tn_function_at(i);
        for (const tn_kernel *k = op->row->kernels; k->name; k++) {
            if (k->run != tni_formula_kernel_run || strcmp(k->name, "formula") != 0) continue; /* "rows" is the same */
            const int how = IS_CHECKED ? 0 : NVRTC | EMULATE; /* a sanitizer sees what is written, not what runs */
            test_case made = {.op = op, .kernel = k, .T = TN_F32, .ways = how, .arch = 90};
            cases[n_cases++] = made;
            made.T = TN_BF16;
            made.arch = 75;
            cases[n_cases++] = made;
        }
    }
}

/* Functions differ by the type that a formula computes in: f32 or f64. What it is stored in changes loads and stores,
 * and those are the same for every formula. So every second row is compiled in f64, and the others in one of the four
 * ways that compute in f32 in part or altogether. On a GPU all of them are. */
static bool is_compiled(size_t at, size_t way) {
    static const size_t others[] = {0, 1, 3, 4};
    return way == (at % 2 ? 2 : others[at / 2 % 4]);
}

static void list_rows(const char *only, size_t step, bool all, bool compiles_all) {
    static const struct {
        tn_type T, W;
        int layout;
    } ways[] = {
        {TN_F32, TN_F32, 0}, {TN_BF16, TN_F32, 0}, {TN_F64, TN_F64, 0}, {TN_F16, TN_F16, 2}, {TN_F32, TN_F64, 1}};
    static const int archs[] = {90, 75, 80, 100, 120};
    const size_t n = sizeof rows / sizeof rows[0], m = sizeof longer / sizeof longer[0];
    for (size_t i = 0; i < n + m; i++) {
        const row *r = i < n ? &rows[i] : &longer[i - n];
        if (only && !strstr(r->formula, only)) continue;
        for (size_t k = 0; k < 5; k++) {
            size_t which = i + k * (n + m);
            int how = which % step == 0 ? NVRTC | EMULATE : compiles_all && (all || is_compiled(i, k)) ? NVRTC : 0;
            if (!how && !IS_CHECKED) continue;
            cases[n_cases++] = (test_case){.row = r,
                                           .T = ways[k].T,
                                           .W = ways[k].W,
                                           .layout = ways[k].layout,
                                           .ways = how,
                                           .arch = archs[which / step % 5],
                                           .apart = (i + k) % 2};
        }
    }
}

static void list_cases(void) {
    const char *only = getenv("TENON_TEST_ONLY"), *part = getenv("TENON_TEST_PART");
    const bool all = getenv("TENON_TEST_ALL") != NULL || only, compiles_all = all || getenv("TENON_TEST_NVRTC");
    const uint64_t random = only ? 0 : all ? 1000 : compiles_all ? 150 : has_gpu ? 200 : 5;
    const uint64_t emulated = only || has_gpu ? 0 : all ? 60 : 3;
    if (compiles_all && !has_gpu && !only) list_table(all);
    if (!has_gpu && !only) list_kernels(); /* on a GPU, `tenon check` runs them */
    /* the steps have nothing in common with the 5 ways */
    list_rows(only, all || has_gpu ? 1 : IS_CHECKED ? 51 : 17, all, compiles_all);
    for (uint64_t seed = 1; seed <= random; seed++) {
        int both = seed <= emulated ? NVRTC | EMULATE : NVRTC;
        cases[n_cases++] = (test_case){.seed = seed,
                                       .T = seed % 2 ? TN_F64 : TN_F32,
                                       .W = TN_F64,
                                       .ways = both,
                                       .arch = 90,
                                       .apart = seed / 2 % 2};
    }
    int which = 1, of = 1, n = 0;
    if (part && (sscanf(part, "%d/%d", &which, &of) != 2 || of < 1 || which < 1 || which > of)) {
        printf("TENON_TEST_PART is %s, not like 2/5\n", part);
        exit(2);
    }
    for (int i = 0; i < n_cases; i++) {
        if (i % of == which - 1) cases[n++] = cases[i];
    }
    n_cases = n;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

typedef struct counts {
    _Atomic int next, done, passed, failed, compiled, emulated, together;
} counts;

static void work(counts *shared, int number, int fill) {
    size_t length = strlen(folder);
    snprintf(folder + length, sizeof folder - length, "/%d", number);
    mkdir(folder, 0700);
    for (int i; (i = atomic_fetch_add(&shared->next, 1)) < n_cases; atomic_fetch_add(&shared->done, 1)) {
        run_case(&cases[i], fill);
        fflush(stdout);
    }
    atomic_fetch_add(&shared->passed, test_passed);
    atomic_fetch_add(&shared->failed, test_failed);
    atomic_fetch_add(&shared->compiled, n_compiled);
    atomic_fetch_add(&shared->emulated, n_emulated);
    atomic_fetch_add(&shared->together, n_together);
}

static void say(const char *what, int done, double begun) {
    static time_t said;
    static int last;
    time_t now = time(NULL);
    if (done == last || (now - said < 5 && done < n_cases)) return;
    said = now;
    last = done;
    printf("%s: %d of %d after %.0f s\n", what, done, n_cases, (double)now - begun);
    fflush(stdout);
}

/* All cases, by one process for each processor. They are forked before this one has opened anything of CUDA. */
static void share_out(int fill) {
    counts *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long workers = sysconf(_SC_NPROCESSORS_ONLN);
    double begun = (double)time(NULL);
    if (shared == MAP_FAILED) exit(2);
    if (workers < 1 || workers > 64) workers = workers < 1 ? 1 : 64;
    fflush(stdout);
    for (int i = 0; i < (int)workers; i++) {
        if (fork() != 0) continue;
        test_passed = test_failed = 0;
        work(shared, i, fill);
        fflush(stdout);
        _exit(0);
    }
    for (long left = workers; left > 0;) {
        int status = 0;
        const struct timespec pause = {0, 50000000};
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            left--;
            CHECK_ROW(status == 0, "a process of the test ended with status %d", status);
        }
        if (ended < 0) break;
        if (ended == 0) nanosleep(&pause, NULL);
        say(fill ? "compiled" : "tested", atomic_load(&shared->done), begun);
    }
    test_passed += shared->passed;
    test_failed += shared->failed;
    n_compiled += shared->compiled;
    n_emulated += shared->emulated;
    n_together += shared->together;
    munmap(shared, sizeof *shared);
}

/* What does not compile is said with the user's own line, and is not cached; what does is found again. */
static void test_compile(void) {
    static const char bad[] = "#line 7 \"mine.cu\"\n__device__ int f() { return nothing; }\n";
    static const char good[] = "extern \"C\" __global__ void f(float *x) { x[0] = 1; }\n";
    tni_compiled_code code[2] = {{0}};
    if (!has_nvrtc) return;
    for (int i = 0; i < 2; i++) {
        tn_status status = tni_gpu_compile("test", bad, 0, 9, 0, &code[0]);
        CHECK_ROW(status != TN_OK && strstr(tn_last_error(), "mine.cu(7)"), "%s", tn_last_error());
    }
    for (int i = 0; i < 2; i++) CHECK(tni_gpu_compile("test", good, 0, 9, 0, &code[i]) == TN_OK);
    CHECK(code[0].bytes == code[1].bytes && memcmp(code[0].data, code[1].data, code[0].bytes) == 0);
    CHECK(!code[0].is_ptx);
    tni_free(code[0].data);
    tni_free(code[1].data);
    CHECK(tni_nvrtc_compile("test", "f.cu", good, 99, 9, NULL, &code[0]) == TN_OK && code[0].is_ptx); /* yet to come */
    tni_free(code[0].data);
    CHECK(tni_nvrtc_compile("test", "f.cu", good, 1, 0, NULL, &code[0]) == TN_UNSUPPORTED);
}

/* In a process of its own, so that those which are forked later inherit nothing. 0: there is no GPU. */
static int find_gpu(void) {
    pid_t child = fork();
    if (child == 0) {
        const tn_gpu *gpu;
        bool found = tni_gpu_count("test") > 0 && tni_gpu_get("test", 0, &gpu) == TN_OK;
        _exit(found ? gpu->major * 10 + gpu->minor : 0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

/* Rows of equal numbers come to equal sums, though those of odd lengths begin at other places of a word each. The sums
 * are f32: rounded to 16 bits a difference would hardly show. */
static void rows_have_the_same_bits(void) {
    static const row r[] = {
        {"f(x: T[n, c]) -> s: f32[n, 1] : s = sum(x * x, -1)", "4,33", -2, 2},
        {"f(x: T[n, c]) -> s: f32[n, 1] : s = sum(x * x, -1)", "3,3001", -2, 2},
        {"f(x: T[n, c]) -> s: f32[n, 1] : s = sum(x * x, -1)", "2,50257", -2, 2}, /* clusters */
        {"f(x: T[n, c], g: T[c]) -> s: f32[n, 1], d: f32[c] : s = sum(x * x, -1); d = sum_to(x * s, g)", "4,1501 1501",
         -2, 2},
    };
    for (size_t i = 0; i < sizeof r / sizeof *r; i++) {
        call_of c;
        if (row_open(&r[i], TN_BF16, TN_BF16, 0, 0, &c)) {
            const int64_t n = c.in[0].shape[0];
            const size_t bytes = (size_t)c.in[0].shape[1] * tn_type_size(TN_BF16);
            for (int64_t k = 1; k < n; k++) memcpy(c.in[0].data + (size_t)k * bytes, c.in[0].data, bytes);
            if (has_gpu) {
                run_on_gpu(r[i].formula, &c);
            } else {
                run_here(r[i].formula, &c, EMULATE, 90);
            }
            for (int64_t k = 1; k < n; k++) {
                float first, other;
                memcpy(&first, c.out[0].data, sizeof first);
                memcpy(&other, c.out[0].data + (size_t)k * sizeof other, sizeof other);
                CHECK_ROW(first == other && first > 1, "%s of %s: row 0 is %.9g, row %d %.9g", r[i].formula,
                          r[i].shapes, (double)first, (int)k, (double)other);
            }
        }
        row_close(&c);
    }
}

/* Columns of equal numbers have equal variances, in vectors or in parts of them, wherever rows begin; and one launch
 * makes them: in a block, in clusters that hold them, and a part at a time. */
static void columns_have_the_same_bits(void) {
    static const char formula[] = "f(x: T[n, c]) -> y: f32[c], z: T[n, c] : y = var(x, n); z = x - max(x, n)";
    static const char *const shapes[] = {"7,35", "100,40", "300,35", "700,40", "300,129"};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const row r = {formula, shapes[i / 2], -2, 2};
        const tn_type type = i % 2 ? TN_BF16 : TN_F32;
        const size_t size = tn_type_size(type);
        static views v;
        tni_program *program = NULL;
        char *source = NULL;
        call_of c;
        if (row_open(&r, type, type, 0, 0, &c)) {
            const int64_t n = c.in[0].shape[0], columns = c.in[0].shape[1];
            for (int64_t k = 0; k < n * columns; k++)
                memcpy(c.in[0].data + (size_t)k * size, c.in[0].data + (size_t)(k / columns * columns) * size, size);
            make_views(&c, &v);
            const tn_status status = tni_fuse_emit(c.f, &v.call, "cuda", &program, &source);
            CHECK_ROW(status == TN_OK && tni_on_gpu(program)->n_steps == 1 &&
                          tni_on_gpu(program)->steps[0].kind == TNI_GPU_UPRIGHT,
                      "%s of %s is not one launch", formula, r.shapes);
            tni_program_free(program);
            tn_free(source);
            if (has_gpu) {
                run_on_gpu(formula, &c);
            } else {
                run_here(formula, &c, EMULATE, 90);
            }
            for (int64_t k = 1; k < columns; k++) {
                float first, other;
                memcpy(&first, c.out[0].data, sizeof first);
                memcpy(&other, c.out[0].data + (size_t)k * sizeof other, sizeof other);
                CHECK_ROW(first == other && first > 0, "%s of %s: column 0 is %.9g, column %d %.9g", formula, r.shapes,
                          (double)first, (int)k, (double)other);
            }
        }
        row_close(&c);
    }
}

/* Runs `sum`, of an f32 tensor whose numbers repeat after `period`, and which begins `shift` elements behind a multiple
 * of 16 bytes. Returns the first sum. */
static float sum_of(const row *sum, int64_t period, int shift) {
    call_of c;
    float first = 0;
    if (row_open(sum, TN_F32, TN_F32, 0, 0, &c)) {
        array *x = &c.in[0];
        x->data += shift * (int)sizeof(float);
        for (int64_t i = 0; i < array_count(x); i++) {
            const float value = 1 + (float)((i % period * 40503) % 65536) / 65536;
            memcpy(x->data + i * (int64_t)sizeof value, &value, sizeof value);
        }
        if (has_gpu) {
            run_on_gpu(sum->formula, &c);
        } else {
            run_here(sum->formula, &c, EMULATE, 90);
        }
        memcpy(&first, c.out[0].data, sizeof first);
    }
    row_close(&c);
    return first;
}

/* Few rows that are cut are shared by the blocks of clusters, many are not: a row comes out the same. */
static void cut_rows_are_the_same_beside_others(void) {
    static const char formula[] = "f(x: T[n, c]) -> s: f32[n, 1] : s = sum(x * x, -1)";
    const float alone = sum_of(&(row){formula, "1,20001", 1, 2}, 20001, 0);
    const float moved = sum_of(&(row){formula, "1,20001", 1, 2}, 20001, 1);
    const float beside = sum_of(&(row){formula, "40,20001", 1, 2}, 20001, 0);
    CHECK_ROW(alone > 20001 && alone == beside && alone == moved,
              "a row's sum is %.9g alone, %.9g one element on, %.9g "
              "beside others",
              (double)alone, (double)moved, (double)beside);
}

/* A sum over everything takes memory as it lies, and leaves out what is before and behind. */
static void sums_begin_anywhere(void) {
    const row sum = {"f(x: T[n]) -> s: f32[] : s = sum(x)", "20001", 1, 2};
    const float aligned = sum_of(&sum, 20001, 0), moved = sum_of(&sum, 20001, 1);
    CHECK_ROW(aligned > 20001 && fabsf(aligned - moved) < aligned * 1e-6f, "%.9g where memory is aligned, else %.9g",
              (double)aligned, (double)moved);
}

#define NORM "y = (x - mean(x, -1)) * rsqrt(var(x, -1) + 1e-5) * g + b"
#define SOFTMAX "t = exp(x - max(x, axis=-1)); y = t / sum(t, -1)"
#define GRADIENT "r = rsqrt(mean(x * x, -1) + 1e-5); y = x * r * g; d = sum_to(x * r, g)"

/* Rows that are put together from pieces of memory: those that no block holds, those that not even a cluster holds, and
 * those that are whole vectors but begin elsewhere. Tensors may lie differently. Nothing before a result is written. */
static void rows_are_put_together(void) {
    static const struct {
        row row;
        tn_type type;
        int in, out; /* elements that tensors begin behind a multiple of 16 bytes */
    } given[] = {
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,36001", -2, 2}, TN_BF16, 0, 1},
        {{"f(x: T[n, c], g: T[c], b: T[c]) -> y: T[n, c] : " NORM, "2,35003 35003 35003", -2, 2}, TN_F16, 1, 0},
        {{"f(x: T[n, c], g: T[c], b: T[c]) -> y: T[n, c] : " NORM, "5,1001 1001 1001", -2, 2}, TN_BF16, 1, 0},
        {{"f(x: T[n, c], g: T[c], b: T[c]) -> y: T[n, c] : " NORM, "5,8 8 8", -2, 2}, TN_BF16, 0, 1},
        {{"f(x: T[n, c], g: T[c], b: T[c]) -> y: T[n, c] : " NORM, "3,2048 2048 2048", -2, 2}, TN_BF16, 1, 1},
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "3,2048", -2, 2}, TN_F32, 1, 1},
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,270001", -2, 2}, TN_F32, 0, 1},
        {{"f(x: T[n, c], dy: T[n, c], g: T[c]) -> y: T[n, c], d: T[c], e: T[c] : r = rsqrt(mean(x * x, -1) + 1e-5); "
          "y = (dy * g - x * r * mean(x * dy * g, -1)) * r; d = sum_to(x * dy * r, g); e = sum_to(dy, g)",
          "3,140001 3,140001 140001", -2, 2},
         TN_F32,
         1,
         0},
        /* rings: blocks of a row and of several, clusters, tensors whose first and last pieces are not whole */
        {{"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : " GRADIENT, "41,301 301", -2, 2}, TN_BF16, 1, 1},
        {{"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : " GRADIENT, "37,1027 1027", -2, 2}, TN_F32, 1, 0},
        {{"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : " GRADIENT, "19,16389 16389", -2, 2}, TN_F16, 1, 1},
        {{"f(x: T[n, c], dy: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : r = rsqrt(mean(x * x, -1) + 1e-5); y = (dy * g "
          "- "
          "x * r * mean(x * dy * g, -1)) * r; d = sum_to(x * dy * r, g)",
          "5,4099 5,4099 4099", -2, 2},
         TN_BF16,
         1,
         0},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const row *r = &given[i].row;
        call_of c;
        if (row_open(r, given[i].type, given[i].type, 0, 0, &c)) {
            const size_t size = tn_type_size(given[i].type);
            for (int k = 0; k < TNI_MAX_ARGS; k++) {
                if (c.in[k].memory) c.in[k].data += (size_t)given[i].in * size;
                if (c.out[k].memory) c.out[k].data += (size_t)given[i].out * size;
            }
            for (int k = 0; k < c.f->contract->n_inputs; k++) array_fill(&c.in[k], r->low, r->high);
            double **want = ref_run(&c);
            if (has_gpu) {
                run_on_gpu(r->formula, &c);
            } else {
                run_here(r->formula, &c, EMULATE, 90);
            }
            compare(r, &c, want, given[i].type, 0);
            CHECK_ROW(c.out[0].data[-(int)(given[i].out * size)] == 0x5a || !given[i].out, "%s of %s writes before y",
                      r->formula, r->shapes);
            ref_free(c.f, want);
        }
        row_close(&c);
    }
}

/* What no cluster holds is shared by the blocks of one all the same; odd rows have a ring where they are summed up or
 * no block holds them, and a launch that adds up what is left may begin before the first one ends. */
static void rows_have_clusters_and_rings(void) {
    static const struct {
        row row;
        tn_type type;
        int cluster, vector;
        bool ring, two; /* launches */
    } given[] = {
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,36001", -2, 2}, TN_BF16, 2, 8, true, false},
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,32001", -2, 2}, TN_BF16, 1, 8, false, false},
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,270001", -2, 2}, TN_F32, TNI_GPU_CLUSTER, 4, false, false},
        {{"f(x: T[n, c]) -> y: T[n, c] : " SOFTMAX, "2,300000", -2, 2}, TN_F32, TNI_GPU_CLUSTER, 4, false, false},
        {{"f(x: T[n, c], g: T[c]) -> y: T[n, c], d: T[c] : " GRADIENT, "40,1027 1027", -2, 2},
         TN_BF16,
         1,
         8,
         true,
         true},
        /* alone, it is computed as beside others */
        {{"f(x: T[n, c], g: W[c]) -> y: T[n, c], d: W[c] : " GRADIENT, "40,1027 1027", -2, 2},
         TN_BF16,
         1,
         8,
         true,
         true},
        {{"f(x: T[n, c], g: W[c]) -> y: T[n, c], d: W[c] : " GRADIENT, "1,1027 1027", -2, 2},
         TN_BF16,
         1,
         8,
         false,
         false},
    };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        static views v;
        tni_program *program = NULL;
        char *source = NULL;
        call_of c;
        if (row_open(&given[i].row, given[i].type, TN_F32, 0, 0, &c)) {
            make_views(&c, &v);
            tn_status status = tni_fuse_emit(c.f, &v.call, "cuda", &program, &source);
            CHECK_ROW(status == TN_OK, "%s: %s", given[i].row.formula, tn_last_error());
            const tni_gpu_step *step = status == TN_OK ? &tni_on_gpu(program)->steps[0] : NULL;
            CHECK_ROW(step && step->cluster == given[i].cluster && step->vector == given[i].vector &&
                          (step->grid[1].stages > 0) == given[i].ring,
                      "%s of %s: %d blocks have a row, in vectors of %d, with a ring of %d rounds",
                      given[i].row.formula, given[i].row.shapes, step ? (int)step->cluster : 0,
                      step ? (int)step->vector : 0, step ? (int)step->grid[1].stages : 0);
            const char *text = source ? strstr(source, "struct tn_params") : "";
            CHECK_ROW(!strstr(text, "let_next_begin();") == !given[i].two &&
                          !strstr(text, "wait_for_last();") == !given[i].two,
                      "%s: its launches do not wait for each other", given[i].row.formula);
            tni_program_free(program);
            tn_free(source);
        }
        row_close(&c);
    }
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    setenv("TENON_CACHE_DIR", folder, 1);
    int arch = find_gpu();
    has_gpu = arch > 0;
    has_nvrtc = tni_nvrtc_version("test") > 0;
    has_compiler = !has_gpu && system("command -v c++ >/dev/null 2>&1") == 0;
    if (getenv("TENON_TEST_NVRTC")) CHECK_ROW(has_nvrtc, "%s", tn_last_error());
    if (!getenv("TENON_TEST_ONLY") && (has_gpu || has_compiler)) {
        rows_have_the_same_bits();
        columns_have_the_same_bits();
        cut_rows_are_the_same_beside_others();
        sums_begin_anywhere();
        rows_are_put_together();
    }
    if (!getenv("TENON_TEST_ONLY")) rows_have_clusters_and_rings();
    list_cases();
    share_out(arch);
    test_compile();
    double begun = (double)time(NULL);
    for (int i = 0; has_gpu && i < n_cases; i++) {
        run_case(&cases[i], 0);
        say("run on the GPU", i + 1, begun);
    }
    if (system(command) != 0) printf("%s stays\n", folder);
    printf("%d compiled by NVRTC%s, %d run on the CPU (with %d launches of several steps), %d on the GPU\n", n_compiled,
           has_nvrtc ? "" : " (there is none)", n_emulated, n_together, n_gpu);
    return test_end();
}
