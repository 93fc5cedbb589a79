/* Checks that do real work: an operator and a formula, on the CPU and on the GPU, against their references. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/fuse.h>

#include "cli/bench/bench.h"
#include "core/run/plan.h"
#include "cuda/driver/cuda.h"
#include "cuda/driver/nvrtc.h"
#include "cuda/libraries/cublaslt.h"
#include "doctor.h"
#include "fuse/cpu/compile_c.h"
#include "fuse/operator.h"

/* ---- by the program itself --------------------------------------------------------------------------------------- */

/* `tenon words…`, in a process of its own: the program beside the library. */
static void try_command(doctor_result *r, const char *const *words) {
    char program[PATH_MAX], how[128], command[256] = "tenon";
    char *all[16] = {program};
    const double seconds = tni_doctor_timeout() * 0.9; /* the check itself must answer, too */
    for (int i = 0; words[i] && i < 14; i++) {
        bool plain = !strpbrk(words[i], " *()");
        all[i + 1] = (char *)(uintptr_t)words[i];
        snprintf(command + strlen(command), sizeof command - strlen(command), plain ? " %s" : " \"%s\"", words[i]);
    }
    if (own_file(program, sizeof program - 8)) strcpy(strrchr(program, '/') + 1, "tenon");
    const double begin = bench_now();
    program_end end = run_program(all, seconds);
    if (!end.found) {
        judge(r, SKIPPED, "the program tenon is not beside libtenon.so", NULL);
        return;
    }
    describe_end(&end, seconds, how);
    require(r, "results within the bounds of the float64 reference");
    if (end.late || end.signal || end.status) {
        observe(r, "`%s` %s", command, how);
        judge(r, FAILED, last_line(end.output)[0] ? last_line(end.output) : "it said nothing", "%s   # shows all of it",
              command);
    } else {
        observe(r, "`%s`: right, in %.1f s", command, bench_now() - begin);
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define QUICKLY "--quick", "--dtype", "f32", "--case", "values", "--alone", "--in-process" /* this is one of its own */

static void check_operator(doctor_result *r) {
    try_command(r, WORDS("check", "softmax", QUICKLY));
}

static void check_operator_gpu(doctor_result *r) {
    if (!has_gpu()) {
        judge(r, SKIPPED, "there is no GPU to use", NULL);
    } else if (!tni_image_unit(0)) {
        judge(r, SKIPPED, "this build has no CUDA kernels", NULL);
    } else {
        try_command(r, WORDS("check", "softmax", QUICKLY, "--device", "cuda:0"));
    }
}

static void check_formula_gpu(doctor_result *r) {
    if (!has_gpu() || !tni_nvrtc_version("tenon doctor")) {
        judge(r, SKIPPED, has_gpu() ? "there is no NVRTC" : "there is no GPU to use", NULL);
    } else {
        setenv("TENON_NVRTC", tni_nvrtc_file(), 1); /* the same one */
        setenv("TENON_CACHE_DIR", "/dev/null/none", 1);
        try_command(r, WORDS("check", "scale_bias_relu", QUICKLY, "--device", "cuda:0"));
    }
}

/* A handle makes a context: this process does nothing else. */
static void check_cublaslt_gpu(doctor_result *r) {
    const tn_call call = {.name = "tenon doctor", .device = {TN_CUDA, 0}};
    const bool found = !tni_cublaslt_look()->why_not[0];
    tn_cublaslt lt;
    if (!has_gpu() || !found) {
        judge(r, SKIPPED, found ? "there is no GPU to use" : "there is no cuBLASLt", NULL);
    } else if (tn_cuda_cublaslt(&call, &lt) != TN_OK) {
        observe(r, "%s", tni_cublaslt_look()->file);
        judge(r, WARNED, tn_last_error(), "TENON_CUBLASLT=none   # Tenon's own kernels make all products then");
    } else if (!tni_image_unit(0)) {
        judge(r, SKIPPED, "this build has no CUDA kernels", NULL);
    } else {
        try_command(r, WORDS("check", "linear", QUICKLY, "--device", "cuda:0", "--kernel", "cublaslt"));
    }
}

/* ---- a formula on the CPU ---------------------------------------------------------------------------------------- */

enum { ROWS = 8, COLUMNS = 100 };

typedef struct formula_call {
    float x[ROWS * COLUMNS], b[COLUMNS], y[ROWS * COLUMNS];
    int64_t shape[2];
    tn_tensor in[2], out;
} formula_call;

/* relu(x * 2 + b); whether it was compiled is asked of a program of its own, which shares the code. */
static tn_status run_formula(formula_call *c, bool *compiled) {
    const tn_function *op;
    const tni_fuse *formula;
    tni_plan *plan;
    tni_program *program = NULL;
    const tn_tensor *in[2] = {&c->in[0], &c->in[1]};
    tn_tensor *out[1] = {&c->out};
    tn_args args = {.in = in, .n_in = 2, .out = out, .n_out = 1};
    c->shape[0] = ROWS;
    c->shape[1] = COLUMNS;
    c->in[0] = tn_dense(c->x, TN_F32, 2, c->shape);
    c->in[1] = tn_dense(c->b, TN_F32, 1, c->shape + 1);
    c->out = tn_dense(c->y, TN_F32, 2, c->shape);
    TN_TRY(tn_fuse("relu(x * 2 + b)", NULL, &op));
    TN_TRY(tn_run(op, &args, NULL));
    TN_TRY(tni_operator_formula(op, &formula));
    TN_TRY(tni_plan_get(op, &args, false, &plan));
    const tn_call planned = tni_plan_call(plan);
    const tn_status status = tni_fuse_bind(formula, &planned, &program);
    if (status == TN_OK) *compiled = tni_program_is_compiled(program);
    tni_program_free(program);
    tni_plan_release(plan);
    return status;
}

static int count_wrong(const formula_call *c) {
    int wrong = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float v = c->x[i] * 2 + c->b[i % COLUMNS], want = v > 0 ? v : 0;
        wrong += !(fabsf(c->y[i] - want) <= 1e-5f);
    }
    return wrong;
}

/* This process does nothing else: it may be told to compile at once, past the cache, which would hide the compiler. */
static void check_formula(doctor_result *r) {
    static formula_call c;
    const char *jit = getenv("TENON_JIT");
    const bool off = jit && strcmp(jit, "0") == 0;
    char name[512], path[PATH_MAX];
    bool compiled = false;
    for (int i = 0; i < ROWS * COLUMNS; i++) c.x[i] = (float)(i % 17 - 8) / 4;
    for (int i = 0; i < COLUMNS; i++) c.b[i] = (float)(i % 5 - 2) / 8;
    snprintf(name, sizeof name, "%s", tni_c_compiler());
    name[strcspn(name, " ")] = 0;
    require(r, "the right result, by compiled code where there is a compiler");
    if (!off) setenv("TENON_JIT", "now", 1);
    setenv("TENON_CACHE_DIR", "/dev/null/none", 1);
    const double begin = bench_now();
    if (run_formula(&c, &compiled) != TN_OK || count_wrong(&c)) {
        observe(r, "relu(x * 2 + b) is wrong");
        judge(r, FAILED, count_wrong(&c) ? "elements differ from what C computes" : tn_last_error(),
              "TENON_JIT=0 tenon fuse \"relu(x * 2 + b)\" --no-bench   # right? then the C compiler is at fault");
        return;
    }
    observe(r, "relu(x * 2 + b): right, by %s, in %.1f s",
            compiled ? "the C compiler's code"
            : off    ? "the interpreter (TENON_JIT=0)"
                     : "the interpreter",
            bench_now() - begin);
    if (!compiled && !off && find_program(name, path, sizeof path)) {
        char reason[PATH_MAX + 128];
        snprintf(reason, sizeof reason, "%s makes nothing that runs here, so formulas run slower on the CPU", path);
        judge(r, WARNED, reason,
              "echo 'int main(void) { return 0; }' | %s -x c - -o /tmp/a.out && /tmp/a.out   # says why",
              tni_c_compiler());
    }
}

const doctor_row smoke_checks[] = {
    {"operator_cpu", "softmax on the CPU against float64, in a process of its own", check_operator},
    {"formula_cpu", "a formula on the CPU, compiled by the C compiler or interpreted", check_formula, ALONE},
    {"operator_gpu", "softmax on the GPU against float64, in a process of its own", check_operator_gpu},
    {"formula_gpu", "a formula on the GPU, in a process of its own", check_formula_gpu, ALONE},
    {"cublaslt_gpu", "a product by cuBLASLt against float64, in a process of its own", check_cublaslt_gpu, ALONE},
    {0},
};
