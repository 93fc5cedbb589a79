/* Loops that the host's compiler makes of formulas: near the reference, and the same bits as the interpreter's where
 * one compiler made both. A sample of the formulas; with TENON_TEST_ALL all of them. Then when they are made, and what
 * happens where they cannot be. */
#include <dirent.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuse/operator.h"
#include "tests/fuse/formula_rows.h"
#include "tests/fuse/generator.h"

#if defined(__clang__)
enum { IS_CLANG = 1 };
#else
enum { IS_CLANG = 0 };
#endif
static char folder[] = "/tmp/tenon-fuse-XXXXXX";
static bool has_compiler, same_compiler;
static int n_compiled;

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Binds and runs as TENON_JIT says. */
static bool run_as(const char *jit, call_of *c) {
    bool compiled = false;
    setenv("TENON_JIT", jit, 1);
    CHECK_ROW(views_run(c, &compiled) == TN_OK, "%s", tn_last_error());
    return compiled;
}

static array *argument(call_of *c, int i) {
    return i < TNI_MAX_ARGS ? &c->in[i] : &c->out[i - TNI_MAX_ARGS];
}

static void copy_all(call_of *c, char **copies, bool back) {
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        array *a = argument(c, i);
        if (!a->memory) continue;
        if (!back && !copies[i]) copies[i] = malloc(a->bytes);
        memcpy(back ? a->memory : copies[i], back ? copies[i] : a->memory, a->bytes);
    }
}

static void check_same(const row *r, call_of *c, char **copies, tn_type T) {
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        const array *a = argument(c, i);
        CHECK_ROW(!a->memory || memcmp(a->memory, copies[i], a->bytes) == 0, "%s with %s, %s: other bits in %s %d",
                  r->formula, r->shapes, tn_type_name(T), i < TNI_MAX_ARGS ? "input" : "output", i % TNI_MAX_ARGS);
    }
}

/* Is there anything to compile? */
static bool has_loops(call_of *c) {
    static views v;
    tni_program *program = NULL;
    char *source = NULL;
    make_views(c, &v);
    CHECK(tni_fuse_emit(c->f, &v.call, "c", &program, &source) == TN_OK);
    bool any = source && strstr(source, "tn_loop_1(");
    tni_program_free(program);
    tn_free(source);
    return any;
}

static void check_row(const row *r, tn_type T, tn_type W, int layout) {
    call_of c;
    char *before[2 * TNI_MAX_ARGS] = {NULL}, *plain[2 * TNI_MAX_ARGS] = {NULL};
    if (row_open(r, T, W, layout, (layout + 1) % 3, &c)) {
        double **want = ref_run(&c);
        copy_all(&c, before, false);
        CHECK(!run_as("0", &c));
        copy_all(&c, plain, false);
        copy_all(&c, before, true);
        bool compiled = run_as("now", &c);
        n_compiled += compiled;
        CHECK_ROW(compiled == (has_compiler && has_loops(&c)), "%s with %s: does not compile", r->formula, r->shapes);
        if (same_compiler) check_same(r, &c, plain, T);
        if (want) compare(r, &c, want, T, layout);
        ref_free(c.f, want);
    }
    for (int i = 0; i < 2 * TNI_MAX_ARGS; i++) {
        free(before[i]);
        free(plain[i]);
    }
    row_close(&c);
}

/* C is made of it, and nothing of that. */
static void emit_row(const row *r, tn_type T, tn_type W, int layout) {
    call_of c;
    if (row_open(r, T, W, layout, (layout + 1) % 3, &c)) has_loops(&c);
    row_close(&c);
}

static void check_random(uint64_t seed) {
    static generator g;
    gen_formula(&g, seed);
    row r = {g.text, gen_shapes(&g, 3, 70), -2, 2};
    check_row(&r, seed % 3 == 0 ? TN_F64 : seed % 3 == 1 ? TN_F32 : TN_BF16, TN_F64, 0);
}

/* Longer than blocks, and tails behind vectors. */
#define SUMS                                                                                                       \
    "f(x: T[n, c], z: T[n, c], s: T[c]) -> y: T[n, c], d: T[c], q: T[c] : t = where(x * s > 0, z, 0); y = t * s; " \
    "d = sum_to(t * x, s); q = sum_to(t, s)"
static const row large[] = {
    {"relu(x * s + b)", "400,100 100 100", -2, 2},
    {"clamp(x, -1, 1) * 2", "100003", -2, 2},
    {"silu(x) * z", "3,70001 3,70001", -8, 8},
    {"-softplus(-x)", "300,20", -2, 2}, /* once the same multiplication was not part of an fma in both */
    {"x - softplus(x) * log1p(z)", "300,20 300,20", 0, 2},
    {"relu(x + b)", "7,9,2050 2050", -2, 2},
    {"where(x > z, x * 2, z - 1)", "200,99 200,99", -2, 2},
    {"x * rsqrt(mean(x * x, -1) + 1e-5) * g", "60,300 300", -2, 2},
    {"exp(x - logsumexp(x, -1)) * 2 + x", "5,40000", -2, 2},
    {"f(x: T[n, c]!, z: T[n, c], b: T[c]) -> s: T[c] : s = sum_to(x * z + 1, b); x = x * z - b", "300,200 300,200 200",
     -2, 2},
    {"f(x: T[n, c, s], g: T[c]) -> y: T[n, c, s] : (x - mean(x, axis=[n, s])) * rsqrt(var(x, axis=[n, s]) + 0.1) * g",
     "4,12,3000 12", -2, 2}, /* in slices */
    {SUMS, "300,203 300,203 203", -2, 2},
    {SUMS, "300,64 300,64 64", -2, 2},
    {SUMS, "3,2100 3,2100 2100", -2, 2},
    {SUMS, "3,2112 3,2112 2112", -2, 2},
    {SUMS, "45,5001 45,5001 5001", -2, 2},
    {"f(x: T[m, n, c], s: T[m, c]) -> d: T[m, c] : d = sum_to(x * x - 1, s)", "5,37,130 5,130", -2, 2},
    {"f(x: T[a, m, n, c], s: T[m, c]) -> d: T[m, c] : d = sum_to(x * 3 + s, s)", "40,3,2,70 3,70", -2, 2},
};

/* Sums and extremes of rows: short, with tails, in blocks of several rows, and in several blocks of a row; values that
 * several loops need; padded rows. */
#define NORM_GRAD                                                                                                 \
    "f(x: T[n, c], g: T[c], dy: T[n, c]) -> dx: T[n, c], dg: T[c] : d = x - mean(x, -1); r = rsqrt(var(x, -1) + " \
    "1e-5); t = dy * g; dx = (t - mean(t, -1) - d * r * r * mean(t * d, -1)) * r; dg = sum_to(dy * d * r, g)"
#define CHANNELS                                                                                                     \
    "f(x: T[n, c, s], g: T[c]) -> y: T[n, c, s], v: T[c] : d = x - sum_to(x, g) / 100; v = sum_to(d * d, g) / 100; " \
    "y = d * g + v"
static const struct {
    row row;
    tn_type type;
    int layout;
} reduced[] = {
    {{NORM_GRAD, "37,300 300 37,300", -2, 2}, TN_F32, 0},
    {{NORM_GRAD, "9,4099 4099 9,4099", -2, 2}, TN_BF16, 0},
    {{NORM_GRAD, "70,41 41 70,41", -2, 2}, TN_F32, 0},
    {{NORM_GRAD, "21,130 130 21,130", -2, 2}, TN_F16, 4},
    {{NORM_GRAD, "12,64 64 12,64", -2, 2}, TN_F32, 4},
    {{NORM_GRAD, "70,11 11 70,11", -2, 2}, TN_BF16, 4},
    {{NORM_GRAD, "70,48 48 70,48", -2, 2}, TN_F32, 0},
    {{NORM_GRAD, "2,70001 70001 2,70001", -2, 2}, TN_F32, 0},
    {{"exp(x - max(x, axis=-1)) / sum(exp(x - max(x, axis=-1)), -1)", "3,33001", -2, 2}, TN_BF16, 0},
    {{"x * (max(x, axis=-1) - min(x, axis=-1)) + sum(abs(x), -1)", "33,203", -2, 2}, TN_F64, 0},
    {{"x * (max(x, axis=-1) - min(x, axis=-1)) + sum(abs(x), -1)", "33,47", -2, 2}, TN_F32, 0},
    {{"max(x * x - z, axis=-1) + min(x - z, axis=-1)", "2,66003 2,66003", -2, 2}, TN_F32, 0},
    {{CHANNELS, "6,5,49 5", -2, 2}, TN_BF16, 0},
    {{CHANNELS, "6,5,400 5", -2, 2}, TN_F32, 0},
    {{CHANNELS, "2,3,70003 3", -2, 2}, TN_F32, 0},
    {{"sum(x * x)", "31,200", -2, 2}, TN_F32, 4},
    {{"sum(x, -1)", "40,517", -2, 2}, TN_BF16, 4},
    {{"sum(x, -1)", "40,7", -2, 2}, TN_BF16, 4},
    {{"x * 2 + z", "40,7 40,7", -2, 2}, TN_F16, 4},
};

/* ---- when -------------------------------------------------------------------------------------------------------- */

static int count_files(void) {
    int n = 0;
    DIR *all = opendir(folder);
    for (const struct dirent *one; all && (one = readdir(all));) n += strlen(one->d_name) == 32;
    if (all) closedir(all);
    return n;
}

/* Until the thread that compiles is through: code that runs, and a file more in the cache. A call that comes while
 * another program is being compiled starts nothing, so the program is called again and again, as its user would. */
static void wait_for(tni_program *program, const tn_call *call, int files) {
    const struct timespec pause = {0, 10000000};
    for (int k = 0; k < 6000 && !(tni_program_is_compiled(program) && count_files() > files); k++) {
        CHECK(tni_program_run(program, call) == TN_OK);
        nanosleep(&pause, NULL);
    }
}

/* A large call is interpreted at first, the third one starts the compiler; a small one never does. */
static void test_rule(void) {
    static const row r[] = {{"x * 3 + z * x - 2", "300,300 300,300", -2, 2}, {"x * 5 - z * x - 2", "3,3 3,3", -2, 2}};
    static views v;
    int files = count_files();
    unsetenv("TENON_JIT");
    for (int i = 0; i < 2; i++) {
        call_of c;
        if (row_open(&r[i], TN_F32, TN_F32, 0, 0, &c)) {
            tni_program *program = NULL;
            make_views(&c, &v);
            CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_OK);
            for (int k = 0; k < 3; k++) {
                CHECK(!tni_program_is_compiled(program));
                CHECK(tni_program_run(program, &v.call) == TN_OK);
            }
            bool waits = i == 0 && has_compiler;
            if (waits) wait_for(program, &v.call, files);
            CHECK(tni_program_is_compiled(program) == waits);
            CHECK(count_files() == files + (has_compiler ? 1 : 0));
            tni_program_free(program);
        }
        row_close(&c);
    }
}

/* A child that ends while its parent compiles leaves the parent's compiler alone. */
static void test_fork(void) {
    static views v;
    row r = {"x * x * z + exp(z) - x", "300,300 300,300", -2, 2};
    call_of c;
    int files = count_files();
    unsetenv("TENON_JIT");
    if (row_open(&r, TN_F32, TN_F32, 0, 0, &c)) {
        tni_program *program = NULL;
        make_views(&c, &v);
        CHECK(tni_fuse_bind(c.f, &v.call, &program) == TN_OK);
        for (int k = 0; k < 3; k++) CHECK(tni_program_run(program, &v.call) == TN_OK);
        const struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            int failed = tni_program_run(program, &v.call) != TN_OK;
            if (IS_CHECKED) _exit(failed); /* what the parent's thread holds would be taken for lost */
            exit(failed);
        }
        int status = 1;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        if (has_compiler) wait_for(program, &v.call, files);
        CHECK(tni_program_is_compiled(program) == has_compiler);
        tni_program_free(program);
    }
    row_close(&c);
}

static int count_folders(void) {
    int n = 0;
    DIR *all = opendir(folder);
    for (const struct dirent *one; all && (one = readdir(all));) n += strncmp(one->d_name, "tenon-", 6) == 0;
    if (all) closedir(all);
    return n;
}

/* A child that goes by _exit while it compiles takes the compiler's files along. */
static void test_leaves_nothing(void) {
    static views v;
    row r = {"x * x * z - exp(x) + z", "300,300 300,300", -2, 2};
    call_of c;
    char slow[64], command[256]; /* a compiler that takes its time */
    snprintf(slow, sizeof slow, "%s/slow", folder);
    snprintf(command, sizeof command, "printf '#!/bin/sh\\nexec sleep 5\\n' > %s && chmod +x %s", slow, slow);
    CHECK(system(command) == 0);
    unsetenv("TENON_JIT");
    if (row_open(&r, TN_F32, TN_F32, 0, 0, &c)) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            tni_program *program = NULL;
            const struct timespec pause = {0, 1000000};
            setenv("TENON_CC", slow, 1);
            make_views(&c, &v);
            bool good = tni_fuse_bind(c.f, &v.call, &program) == TN_OK;
            for (int k = 0; k < 3; k++) good &= tni_program_run(program, &v.call) == TN_OK;
            for (int k = 0; k < 2000 && has_compiler && count_folders() == 0; k++) nanosleep(&pause, NULL);
            tni_c_end();
            _exit(!good);
        }
        int status = 1;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(count_folders() == 0);
    }
    row_close(&c);
}

/* Nobody waits for what the cache on disk has: the first result is there before; the second call takes it. */
static bool second_call_loads(call_of *c) {
    static views v;
    tni_program *program = NULL;
    unsetenv("TENON_JIT");
    make_views(c, &v);
    CHECK(tni_fuse_bind(c->f, &v.call, &program) == TN_OK);
    CHECK(tni_program_run(program, &v.call) == TN_OK && !tni_program_is_compiled(program));
    CHECK(tni_program_run(program, &v.call) == TN_OK);
    bool compiled = tni_program_is_compiled(program);
    tni_program_free(program);
    return compiled;
}

/* In a process of its own: another compiler. What the cache has is used all the same. */
static int as_child(const char *formula) {
    row r = {formula, "300,300 300,300", -2, 2};
    call_of c;
    if (getenv("TENON_TEST_SECOND")) {
        bool loaded = row_open(&r, TN_F32, TN_F32, 0, 0, &c) && second_call_loads(&c);
        row_close(&c);
        return test_failed ? 2 : loaded ? 1 : 0;
    }
    bool compiled = row_open(&r, TN_F32, TN_F32, 0, 0, &c) && run_as("now", &c);
    row_close(&c);
    return test_failed ? 2 : compiled ? 1 : 0;
}

static int run_child(const char *self, const char *compiler, const char *formula) {
    char command[1024];
    snprintf(command, sizeof command, "TENON_CC='%s' '%s' '%s'", compiler, self, formula);
    int status = system(command);
    return status < 0 ? -1 : status >> 8;
}

static void test_compilers(const char *self) {
    static const char cached[] = "x * 3 + z * x - 2", fresh[] = "x * 7 + z * z * x - 4";
    int files = count_files(), yes = has_compiler ? 1 : 0;
    CHECK(run_child(self, "/nowhere/cc", cached) == yes);
    setenv("TENON_TEST_SECOND", "1", 1);
    CHECK(run_child(self, "/nowhere/cc", cached) == yes);
    unsetenv("TENON_TEST_SECOND");
    CHECK(run_child(self, "/nowhere/cc", fresh) == 0);
    CHECK(run_child(self, "false", fresh) == 0);
    CHECK(run_child(self, "cc -nonsense", fresh) == 0);
    CHECK(count_files() == files); /* no failure is cached */
    CHECK(run_child(self, "cc -O1", fresh) == yes);
    CHECK(count_files() == files + yes);
}

int main(int argc, char **argv) {
    if (argc > 1) return as_child(argv[1]);
    if (!mkdtemp(folder)) return 1;
    setenv("TENON_CACHE_DIR", folder, 1);
    setenv("TMPDIR", folder, 1);
    has_compiler = system("command -v cc >/dev/null 2>&1") == 0;
    /* Sanitizers come with less optimisation, and then not the same multiplications and additions become one. */
    same_compiler = has_compiler && !IS_CHECKED &&
                    (system("${TENON_CC:-${CC:-cc}} --version | grep -qi clang") == 0) == IS_CLANG;
    const bool all = getenv("TENON_TEST_ALL") != NULL;
    const size_t n = sizeof rows / sizeof rows[0], m = sizeof longer / sizeof longer[0];
    const size_t step = all ? 1 : IS_CHECKED ? 24 : 4;
    static const struct {
        tn_type T, W;
        int layout;
    } ways[] = {
        {TN_F32, TN_F32, 0}, {TN_BF16, TN_F32, 0}, {TN_F64, TN_F64, 0}, {TN_F16, TN_F16, 2}, {TN_F32, TN_F64, 1}};
    for (size_t i = 0; i < n + m; i++) {
        const row *r = i < n ? &rows[i] : &longer[i - n];
        for (size_t k = 0; k < 5; k++) {
            bool chosen = all || (i % step == 0 && i / step % 5 == k);
            if (chosen) check_row(r, ways[k].T, ways[k].W, ways[k].layout);
            if (!chosen && IS_CHECKED) emit_row(r, ways[k].T, ways[k].W, ways[k].layout);
        }
    }
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i += IS_CHECKED ? 3 : 1)
        check_row(&large[i], i % 2 ? TN_BF16 : TN_F32, TN_F32, 0);
    for (size_t i = 0; i < sizeof reduced / sizeof reduced[0]; i += IS_CHECKED ? 3 : 1)
        check_row(&reduced[i].row, reduced[i].type, TN_F32, reduced[i].layout);
    for (uint64_t seed = 1; seed <= (all ? 300 : IS_CHECKED ? 2 : 8); seed++) check_random(seed);
    CHECK(!has_compiler || n_compiled > 5);
    test_rule();
    test_fork();
    test_leaves_nothing();
    test_compilers(argv[0]);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command) != 0) printf("%s stays\n", folder);
    printf("%s, %d programs%s\n", has_compiler ? "compiled and run" : "no compiler", n_compiled,
           same_compiler ? ", the same bits" : "");
    return test_end();
}
