/* For tests of the kernels of matrix products on the CPU, thread by thread (emulate.h): how they are built and started,
 * and matrices. */
#ifndef TNI_TEST_PRODUCTS
#define TNI_TEST_PRODUCTS

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/host/arith.h"
#include "cuda/products/product.cuh"
#include "tests/test.h"
#include <tenon/op.h>

typedef void (*kernel)(const void *);
typedef void (*emulate)(kernel run, const void *arguments, unsigned grid, unsigned block, unsigned cluster);

static char folder[64] = "/tmp/tenon-products-XXXXXX";

static void *build(const char *unit) {
    char path[128], command[1024];
    snprintf(path, sizeof path, "%s/%s.so", folder, unit);
    snprintf(command, sizeof command,
             "c++ -O1 -std=c++17 -shared -fPIC -w -I " SOURCES " -x c++ -D__CUDACC__ -include " EMULATE_H " " SOURCES
             "/cuda/products/%s.cu -o %s",
             unit, path);
    void *library = system(command) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static double draw(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(state >> 20 & 0xfffff) / 0x80000 - 1;
}

/* (entries, rows, cols), dense along rows, or `turned`: along columns; lines are `multiple` elements long. */
typedef struct matrix {
    void *memory;
    int64_t row, col, batch;
} matrix;

static matrix make(tn_type type, int64_t entries, int64_t rows, int64_t cols, bool turned, int64_t multiple) {
    const int64_t pitch = round_up(turned ? rows : cols, multiple), lines = turned ? cols : rows;
    matrix m = {.row = turned ? 1 : pitch, .col = turned ? pitch : 1, .batch = lines * pitch};
    const size_t bytes = (size_t)(entries * m.batch + 8) * tn_type_size(type);
    m.memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    for (int64_t i = 0; i < entries * m.batch; i++) tn_set(type, m.memory, i, draw());
    return m;
}

static double at(tn_type type, const matrix *m, int64_t p, int64_t i, int64_t j) {
    return tn_get(type, m->memory, p * m->batch + i * m->row + j * m->col);
}

static tni_gpu_matrix on_gpu(const matrix *m, bool shared) {
    return (tni_gpu_matrix){.data = m->memory, .row = m->row, .col = m->col, .batch = {shared ? 0 : m->batch}};
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* As emulate.h has it. Lines are rows of a, or columns of b; `line` and `step`: the strides across k and along it. */
static void make_map(const tni_gpu_matrix *x, int64_t lines, int64_t line, int64_t step, int64_t box_lines,
                     unsigned long long size, const tni_gpu_product *p, unsigned long long *words) {
    const bool turned = line == 1 && step != 1;
    const unsigned long long made[] = {(uintptr_t)x->data,
                                       (unsigned long long)(turned ? lines : p->k),
                                       (unsigned long long)(turned ? p->k : lines),
                                       x->batch[0] ? (unsigned long long)p->batch[0] : 1,
                                       1,
                                       1,
                                       size * (unsigned long long)(turned ? step : line),
                                       size * (unsigned long long)x->batch[0],
                                       0,
                                       0,
                                       128 / size,
                                       turned ? 64 : (unsigned long long)box_lines,
                                       size};
    memcpy(words, made, sizeof made);
}

/* How a kernel is told and started. */
typedef struct family {
    int rows, cols; /* of a tile */
    int64_t multiple;
    int blocks; /* of a cluster, below each other; 0: of no warpgroup's */
    int parts;  /* of k, each by a block of the cluster */
} family;

/* Of so many tiles, by so many blocks. */
static inline void start_kernel(void *library, void *found, const family *f, const tni_gpu_product *p, unsigned tiles,
                                unsigned grid) {
    static tni_gpu_warpgroup w;
    void *runner = dlsym(library, "tn_emulate");
    emulate start;
    kernel function;
    CHECK(runner);
    if (!runner) return;
    memcpy(&start, &runner, sizeof start);
    memcpy(&function, &found, sizeof function);
    if (!f->blocks) {
        start(function, p, grid, 256, 1);
        return;
    }
    w.product = *p;
    w.tiles = tiles;
    make_map(&p->a, p->m, p->a.row, p->a.col, f->rows / f->blocks, 2, p, w.a);
    make_map(&p->b, p->n, p->b.col, p->b.row, f->cols / f->blocks, 2, p, w.b);
    start(function, &w, grid, 384, (unsigned)(f->blocks * f->parts));
}

static bool has_compiler(void) {
    const bool has = system("c++ --version > /dev/null 2>&1") == 0;
    if (!has) printf("there is no C++ compiler: nothing was run\n");
    if (has) CHECK(mkdtemp(folder) != NULL);
    return has;
}

#endif
