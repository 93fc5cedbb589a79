/* Hopper's kernel of attention, on the CPU, thread by thread (emulate.h), beside sums in double: the test makes the
 * maps that a driver would. The other kernels are in test_emulated.c. A machine without a C++ compiler leaves it out,
 * and says so. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/host/arith.h"
#include "ops/attention/attention.cuh"
#include "tests/test.h"
#include <tenon/op.h>

typedef void (*kernel)(const void *);
typedef void (*emulate)(kernel run, const void *arguments, unsigned grid, unsigned block, unsigned cluster);

static char folder[64] = "/tmp/tenon-attention-XXXXXX";

static void *build(void) {
    char path[128], command[1024];
    snprintf(path, sizeof path, "%s/hopper.so", folder);
    snprintf(command, sizeof command,
             "c++ -O1 -std=c++17 -shared -fPIC -w -I " SOURCES " -x c++ -D__CUDACC__ -include " EMULATE_H " " SOURCES
             "/ops/attention/attention_hopper.cu -o %s",
             path);
    void *library = system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

static double draw(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 20 & 0xfffff) / 0x80000 - 1;
}

/* ALL: a side of the window that is open. A row of queries is among others, as layers of a model have it. */
enum { ALL = 1 << 20 };
typedef struct row {
    int b, hq, hk, m, n, d;
    int64_t before, after;
    bool sinks, nan;
} row;

static const row rows[] = {
    {1, 2, 1, 130, 300, 64, ALL, ALL},
    {2, 1, 1, 5, 129, 128, ALL, ALL, .sinks = true},
    {1, 1, 1, 200, 200, 64, ALL, 0},
    {1, 2, 2, 40, 700, 64, 300, 0, .nan = true},
    {1, 1, 1, 150, 20, 128, ALL, 0, .nan = true},
};

/* (b, m, heads, d) in memory, seen as (b, heads, m, d). */
static tni_gpu_heads make(tn_type type, int b, int heads, int m, int d) {
    const int64_t count = (int64_t)b * heads * m * d;
    tni_gpu_heads x = {.at = {(long long)heads * m * d, d, (long long)heads * d, 1}};
    x.data = aligned_alloc(64, (size_t)round_up(count * 4, 64));
    for (int64_t i = 0; i < count; i++) tn_set(type, x.data, i, draw());
    return x;
}

/* As emulate.h has it. */
static void make_map(const tni_gpu_heads *x, int b, int heads, int m, int d, unsigned long long *words) {
    const unsigned long long made[] = {(uintptr_t)x->data,
                                       (unsigned long long)d,
                                       (unsigned long long)m,
                                       (unsigned long long)heads,
                                       (unsigned long long)b,
                                       1,
                                       2 * (unsigned long long)x->at[2],
                                       2 * (unsigned long long)x->at[1],
                                       2 * (unsigned long long)x->at[0],
                                       0,
                                       64,
                                       128,
                                       2};
    memcpy(words, made, sizeof made);
}

static double at(tn_type type, const tni_gpu_heads *x, int64_t p, int64_t h, int64_t i, int64_t c) {
    return tn_get(type, x->data, p * x->at[0] + h * x->at[1] + i * x->at[2] + c * x->at[3]);
}

/* Weights are rounded, so an element may be off by as much of the largest v. */
static int64_t compare_row(tn_type type, const row *r, const tni_gpu_attention *p, int b, int h, int64_t i) {
    const double unit = type == TN_F16 ? 0x1p-10 : 0x1p-7;
    const int64_t place = i + r->n - r->m, first = max(place - r->before, 0), end = min(place + r->after + 1, r->n);
    double sum = p->sinks ? exp((double)((const float *)p->sinks)[h]) : 0, o[128] = {0};
    int64_t wrong = 0;
    for (int64_t j = first; j < end; j++) {
        double score = 0;
        for (int c = 0; c < r->d; c++) score += at(type, &p->q, b, h, i, c) * at(type, &p->k, b, h / p->group, j, c);
        sum += exp(p->scale * score);
        for (int c = 0; c < r->d; c++) o[c] += exp(p->scale * score) * at(type, &p->v, b, h / p->group, j, c);
    }
    for (int c = 0; c < r->d; c++) {
        const double want = sum > 0 ? o[c] / sum : 0, have = at(type, &p->o, b, h, i, c);
        wrong += isnan(want) ? !isnan(have) : !(fabs(have - want) <= unit);
    }
    const double lse = at(TN_F32, &p->lse, b, h, i, 0);
    return wrong + (sum > 0 ? !(fabs(lse - log(sum)) <= 1e-5 * (1 + fabs(log(sum)))) : lse != -(double)INFINITY);
}

static void run(void *library, tn_type type, const row *r) {
    static tni_gpu_attention_hopper w;
    float sinks[2] = {0.5f, -1};
    char name[64];
    snprintf(name, sizeof name, "attention_hopper_%d_%s", r->d, tn_type_name(type));
    void *found = library ? dlsym(library, name) : NULL, *runner = library ? dlsym(library, "tn_emulate") : NULL;
    CHECK_ROW(found && runner, "no kernel %s", name);
    if (!found || !runner) return;
    tni_gpu_attention *p = &w.attention;
    *p = (tni_gpu_attention){.q = make(type, r->b, r->hq, r->m, r->d),
                             .k = make(type, r->b, r->hk, r->n, r->d),
                             .v = make(type, r->b, r->hk, r->n, r->d),
                             .o = make(type, r->b, r->hq, r->m, r->d),
                             .lse = make(TN_F32, r->b, r->hq, r->m, 1),
                             .sinks = r->sinks ? sinks : NULL,
                             .sinks_step = 1,
                             .sinks_type = ATTENTION_F32,
                             .m = r->m,
                             .n = r->n,
                             .before = min(r->before, r->m + r->n),
                             .after = min(r->after, r->m + r->n),
                             .b = r->b,
                             .hq = r->hq,
                             .hk = r->hk,
                             .group = r->hq / r->hk,
                             .d = r->d,
                             .e = r->d,
                             .scale = 0.3};
    p->lse.at[3] = 0;
    if (r->nan) tn_set(type, p->v.data, 0, (double)NAN); /* which only those see that see key 0 */
    make_map(&p->q, r->b, r->hq, r->m, r->d, w.q);
    make_map(&p->k, r->b, r->hk, r->n, r->d, w.k);
    make_map(&p->v, r->b, r->hk, r->n, r->d, w.v);
    emulate start;
    kernel function;
    memcpy(&start, &runner, sizeof start);
    memcpy(&function, &found, sizeof function);
    start(function, &w, (unsigned)(r->b * r->hq * ceil_div(r->m, 128)), 384, 1);
    int64_t wrong = 0;
    for (int b = 0; b < r->b; b++)
        for (int h = 0; h < r->hq; h++)
            for (int64_t i = 0; i < r->m; i++) wrong += compare_row(type, r, p, b, h, i);
    CHECK_ROW(wrong == 0, "%s, %d x %d: %lld are wrong", name, r->m, r->n, (long long)wrong);
    void *const memory[] = {p->q.data, p->k.data, p->v.data, p->o.data, p->lse.data};
    for (int i = 0; i < 5; i++) free(memory[i]);
}

int main(void) {
    if (system("c++ --version > /dev/null 2>&1") != 0) {
        printf("there is no C++ compiler: nothing was run\n");
        return 0;
    }
    CHECK(mkdtemp(folder) != NULL);
    void *library = build();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run(library, i % 2 ? TN_F16 : TN_BF16, &rows[i]);
    rmdir(folder);
    return test_end();
}
