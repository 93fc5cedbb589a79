/* Operators with their GPU's kernels, on the CPU, thread by thread (emulate.h). An operator gets a twin, in no table,
 * whose kernels are "cuda" and the reference; `tenon check` compares the two. The host's half is the library's own,
 * except for what finds and launches kernels. A machine without a C++ compiler leaves it out, and says so. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/check/check.h"
#include "core/run/plan.h"
#include "core/table/table.h"
#include "cuda/driver/cuda.h"
#include "tests/test.h"

typedef void (*kernel)(const void *);
typedef void (*emulate)(kernel run, const void *arguments, unsigned grid, unsigned block, unsigned cluster);

/* ---- units, each built once -------------------------------------------------------------------------------------- */

static char folder[64] = "/tmp/tenon-emulated-XXXXXX";

static struct unit {
    const char *name, *path;
    bool is_built; /* a kernel of it was asked for */
    void *library;
    emulate start;
} units[] = {
    {.name = "product_tile", .path = "cuda/products/product_tile.cu"},
    {.name = "product_scaled", .path = "cuda/products/product_scaled.cu"},
    {.name = "scan", .path = "ops/scan/scan.cu"},
    {.name = "scan_grad", .path = "ops/scan/scan_grad.cu"},
    {.name = "cummax", .path = "ops/scan/cummax.cu"},
    {.name = "move", .path = "ops/move/move.cu"},
    {.name = "triangle", .path = "ops/triangle/triangle.cu"},
    {.name = "lookup_take", .path = "ops/lookup/lookup_take.cu"},
    {.name = "lookup_columns", .path = "ops/lookup/lookup_columns.cu"},
    {.name = "lookup_lists", .path = "ops/lookup/lookup_lists.cu"},
    {.name = "lookup_claims", .path = "ops/lookup/lookup_claims.cu"},
    {.name = "lookup_add", .path = "ops/lookup/lookup_add.cu"},
    {.name = "lookup_sort", .path = "ops/lookup/lookup_sort.cu"},
    {.name = "attention", .path = "ops/attention/attention.cu"},
    {.name = "attention_mma", .path = "ops/attention/attention_mma.cu"},
    {.name = "attention_grad_mma", .path = "ops/attention/attention_grad_mma.cu"},
};

static void build(struct unit *u) {
    char path[128], command[1024];
    snprintf(path, sizeof path, "%s/%s.so", folder, u->name);
    snprintf(command, sizeof command,
             "c++ -O1 -std=c++17 -ffp-contract=off -shared -fPIC -w -I " SOURCES
             " -x c++ -D__CUDACC__ -include " EMULATE_H " " SOURCES "/%s -o %s",
             u->path, path);
    u->library = system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    void *start = u->library ? dlsym(u->library, "tn_emulate") : NULL;
    memcpy(&u->start, &start, sizeof start);
    u->is_built = true;
    CHECK_ROW(start, "%s", u->path);
}

static struct unit *unit_named(const char *name) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(units[i].name, name) != 0) continue;
        if (!units[i].is_built) build(&units[i]);
        return units[i].library ? &units[i] : NULL;
    }
    return NULL;
}

/* ---- the linker puts these in the place of the driver's ---------------------------------------------------------- */

static bool interleaved; /* up to 32 blocks of a launch take turns: they wait for each other */
static int64_t n_launches, n_interleaved;

tn_status __wrap_tni_cuda_find(const tn_call *call, tn_launch *l, const char *unit, const char *name, ...);
tn_status __wrap_tni_cuda_find(const tn_call *call, tn_launch *l, const char *unit, const char *name, ...) {
    const struct unit *u = unit_named(unit);
    va_list list;
    va_start(list, name);
    vsnprintf(l->name, sizeof l->name, name, list);
    va_end(list);
    void *found = u ? dlsym(u->library, l->name) : NULL;
    if (!found) return tn_fail(TN_NOT_FOUND, "%s: no kernel %s in %s.cu", call->name, l->name, unit);
    l->kernel = found;
    return TN_OK;
}

bool __wrap_tni_cuda_has(const tn_call *call, const char *unit, int arch);
bool __wrap_tni_cuda_has(const tn_call *call, const char *unit, int arch) {
    (void)call, (void)unit, (void)arch;
    return true;
}

/* A small GPU, so that small samples are cut into parts, too. */
tn_status __wrap_tn_cuda_gpu(const tn_call *call, const tn_gpu **gpu);
tn_status __wrap_tn_cuda_gpu(const tn_call *call, const tn_gpu **gpu) {
    static const tn_gpu small = {.sms = 6,
                                 .threads_per_block = 1024,
                                 .threads_per_sm = 1024,
                                 .shared_per_block = 64 << 10,
                                 .shared_per_sm = 64 << 10,
                                 .shared_reserved = 1024};
    (void)call;
    *gpu = &small;
    return TN_OK;
}

tn_status __wrap_tn_cuda_launch(const tn_call *call, const tn_launch *l, void **arguments);
tn_status __wrap_tn_cuda_launch(const tn_call *call, const tn_launch *l, void **arguments) {
    (void)call;
    kernel run;
    memcpy(&run, &l->kernel, sizeof run);
    unsigned together = 1;
    if (l->grid == 0) return TN_OK; /* of nothing; no kernel was asked for */
    for (unsigned k = 2; interleaved && k <= 32; k++) {
        if (l->grid % k == 0) together = k;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        void *mine = units[i].library ? dlsym(units[i].library, l->name) : NULL;
        if (mine != (void *)l->kernel) continue;
        units[i].start(run, arguments[0], l->grid, l->block, together);
        n_launches++;
        n_interleaved += together > 1;
    }
    return TN_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

enum { MOST_SAMPLES = 64 };

/* Longer ones than an operator's own, so that a row has many tiles, and groups of tiles. */
static const tn_sample long_rows[] = {
    {"s=[2, 9000] T=bf16"},
    {"s=[73000] reverse=true T=f64"},
    {"s=[4096, 3] axis=0 T=f32"},
    {"s=[600, 70] axis=0 exclusive=true T=f16"},
    {"s=[2, 300, 2] axis=1 reverse=true T=f32"},
    {0},
};

static const tn_sample long_extremes[] = {
    {"s=[2, 9000] T=bf16"},       {"s=[9000] x=sorted T=f32"},          {"s=[70000] T=i64"},
    {"s=[600, 70] axis=0 T=f64"}, {"s=[300, 2] x=sorted axis=0 T=f16"}, {0},
};

/* Rows of a few bytes, of less than 1 KiB, and of more. */
static const tn_sample pads[] = {
    {"s=[3, 40, 9, 14] pad=[1, 1, 1, 1] value=2.0"},
    {"s=[2, 30, 21] pad=[2, 3, 1, 0] mode='reflect'"},
    {"s=[500, 2] pad=[-1, 0]"},
    {"s=[300, 1] pad=[1, 1] mode='circular'"},
    {"s=[5, 4099] pad=[8, 8]"},
    {"s=[5, 4099] pad=[3, 2] mode='replicate'"},
    {0},
};

/* Rows of a few elements, of more than a warp writes at once, and such that begin anywhere. */
static const tn_sample repeats[] = {
    {"s=[3, 5000] repeats=[2, 3]"},
    {"s=[2, 3, 700] repeats=[3, 1, 2] T=bf16"},
    {"s=[4, 9, 2] repeats=[2, 1, 300] T=i64"},
    {"s=[2, 1, 2001] repeats=[2, 3, 1] T=bool"},
    {0},
};

/* Lines of many chunks, which begin anywhere. */
static const tn_sample triangles[] = {
    {"r=[2] n=9 m=3001 diagonal=700"},
    {"r=[] n=20 m=1000 diagonal=-3 T=bf16"},
    {"r=[3] n=5 m=2048 diagonal=-1 T=f64"},
    {0},
};

/* Few places, long rows, rows that share a block, columns that are neighbours. */
static const tn_sample sums[] = {
    {"shape=[2, 3] n=600 index<shape[axis]"},
    {"shape=[2, 1500] n=1100 index<shape[axis]"},
    {"shape=[40, 50] n=37 index<shape[axis] index=i32"},
    {"shape=[90, 21] axis=0 n=200 index<shape[axis] T=f16"},
    {"shape=[1, 5000] n=1500 index<shape[axis] T=bf16"},
    {"shape=[30, 1200] n=1300 index<shape[axis] T=f16"},
    {"shape=[2, 700, 20] n=900 axis=1 index<shape[axis]"},
    {"shape=[3, 9000] n=7000 index<shape[axis] T=f32"},
    {"shape=[2, 3] n=9000 index<shape[axis] T=f64"},
    {"shape=[1, 21000] n=19000 index<shape[axis] index=i32 T=f16"},
    {0},
};

/* Rows that a block has in shared memory. */
static const tn_sample long_rows_taken[] = {
    {"s=[3, 1203] n=1000 index<s[axis] T=bf16"},
    {"s=[7, 301] n=600 index<s[axis] index=i32 T=f64"},
    {"s=[1, 1500] n=4000 index<s[axis] T=i32"},
    {"s=[2, 2001] n=1001 index<s[axis] T=bool"},
    {0},
};

/* Rows of many chunks, which begin anywhere. */
static const tn_sample tables[] = {
    {"v=5 d=1203 s=[7] index<v"},
    {"v=5 d=9001 s=[3] index<v index=i32 T=f16"},
    {"v=5 d=701 s=[9] index<v padding_idx=2 zero_padding=true T=f64"},
    {0},
};
static const tn_sample table_grads[] = {
    {"v=40 d=301 s=[90] index<v"},
    {"v=3 d=133 s=[2, 200] index<v padding_idx=2 T=bf16"}, /* more rows of each than one thread adds up */
    {"v=70 d=67 s=[30] index<v T=f64"},
    {0},
};
static const tn_sample long_parts[] = {
    {"s=[3, 8, 601] n=5 axis=1 index<s[axis]"},
    {"s=[2, 3, 2000] n=4 axis=1 index<s[axis] T=bool"},
    {0},
};

/* Several tiles of rows and of keys, in all sizes of tensor cores' lines; those of 72 are filled up. */
static const tn_sample tiles[] = {
    {"b=1 hq=2 hk=1 m=70 n=130 d=64 e=64 causal=true T=bf16"},
    {"b=1 hq=1 hk=1 m=40 n=90 d=128 e=72 window=[30, 5] sinks T=f16"},
    {"b=2 hq=1 hk=1 m=20 n=40 d=200 e=256 bias=[2, 1, 1, 40] T=bf16"},
    {0},
};
#define GRADIENTS " want_dq=true want_dk=true want_dv=true"
static const tn_sample tile_grads[] = {
    {"b=1 hq=2 hk=1 m=70 n=130 d=64 e=64 dy causal=true T=bf16" GRADIENTS},
    {"b=1 hq=1 hk=1 m=40 n=90 d=128 e=72 dy window=[30, 5] T=f16" GRADIENTS},
    {"b=2 hq=1 hk=1 m=20 n=70 d=16 e=32 dy dlse wb=2 wh=1 wm=1 wn=70 bias softcap=3.0 want_dbias=true "
     "T=bf16" GRADIENTS},
    {0},
};

/* kernel: NULL is "cuda"; of another one its own types and sizes are run, not calls that it leaves to others. */
static const struct {
    const char *op;
    const tn_sample *more;
    const char *kernel;
} operators[] = {
    {"grouped_linear", NULL, "tile"},
    {"grouped_linear_x_grad", NULL, "tile"},
    {"grouped_linear_w_grad", NULL, "tile"},
    {"linear_int8", NULL, "plain"},
    {"linear_fp8", NULL, "plain"},
    {"cumsum", long_rows},
    {"cumprod", long_rows},
    {"cumprod_grad", long_rows},
    {"cumprod_grad_grad", long_rows},
    {"cummax", long_extremes},
    {"cummin", NULL},
    {"pad", pads},
    {"roll", NULL},
    {"repeat", repeats},
    {"triu", triangles},
    {"tril", triangles},
    {"gather", long_rows_taken},
    {"gather_grad", sums},
    {"scatter_add", NULL},
    {"embedding", tables},
    {"embedding_grad", table_grads},
    {"index_select", long_parts},
    {"index_select_grad", NULL},
    {"segment_sum", NULL},
    {"segment_sum_offsets", NULL},
    {"segment_sum_grad", NULL},
    {"segment_sum_offsets_grad", NULL},
    {"attention", NULL},
    {"attention_grad", NULL},
    {"attention", tiles, "mma"},
    {"attention_grad", tile_grads, "mma"},
};

static const tn_kernel *kernel_of(const tn_op *row, const char *name) {
    const tn_kernel *k = row->kernels;
    while (k->name && strcmp(k->name, name) != 0) k++;
    return k;
}

static void is_right(const char *name, const char *which, const tn_sample *samples, const char *rows) {
    const tn_op *row = tn_find(name)->row;
    tn_kernel kernels[] = {*kernel_of(row, which), *kernel_of(row, "ref"), {0}};
    tn_op twin = *row;
    tn_function *op;
    kernels[0].device = TN_CPU;
    twin.kernels = kernels;
    if (samples) twin.samples = samples;
    const tn_status status = tni_operator_make(&twin, &op);
    CHECK_ROW(status == TN_OK, "%s", tn_last_error());
    if (status != TN_OK) return;
    checker *c = checker_new((check_options){.quick = true,
                                             .in_process = true,
                                             .kernel = which,
                                             .rows = rows,
                                             .cases = 1,
                                             .limit = 600,
                                             .seed = 1,
                                             .sample = -1,
                                             .again = "build/test_emulated"});
    CHECK(c);
    if (!c) return;
    const tn_function *checked = op;
    check_operators(c, &checked, 1, NULL);
    CHECK_ROW(c->failed == 0 && c->passed > 0 && c->status == 0, "%s: %lld passed, %lld failed", name,
              (long long)c->passed, (long long)c->failed);
    checker_free(c);
    tni_plans_free(op);
    tni_operator_free(op);
}

/* Blocks of tensor cores' kernels do not wait for each other. */
static void run_operator(size_t i) {
    const char *op = operators[i].op, *which = operators[i].kernel ? operators[i].kernel : "cuda";
    const bool of_tiles = operators[i].kernel && operators[i].more;
    is_right(op, which, NULL, of_tiles ? "values,masked" : "values,outputs,special,misaligned,empty,padded,expanded");
    if (!operators[i].more) return;
    is_right(op, which, operators[i].more, "values");
    if (operators[i].kernel) return;
    interleaved = true;
    is_right(op, which, operators[i].more, "values");
    interleaved = false;
}

/* test_emulated [OPERATOR …]: those alone. */
int main(int argc, char **argv) {
    if (system("c++ --version > /dev/null 2>&1") != 0) {
        printf("there is no C++ compiler: nothing was run\n");
        return 0;
    }
    CHECK(mkdtemp(folder) != NULL);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        bool asked = argc == 1;
        for (int k = 1; k < argc; k++) asked = asked || strcmp(argv[k], operators[i].op) == 0;
        if (asked) run_operator(i);
    }
    CHECK(n_interleaved > 0);
    printf("%lld launches\n", (long long)n_launches);
    rmdir(folder);
    return test_end();
}
