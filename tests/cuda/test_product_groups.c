/* The kernels of grouped products, on the CPU, thread by thread (emulate.h), beside sums in double: groups that
 * begin anywhere, empty ones, rows of no group, which are NaN here and must leave no trace, and wrong offsets. A
 * machine without a C++ compiler leaves it out, and says so. */
#include "products.h"

enum { MOST_GROUPS = 40 };

typedef struct groups {
    int64_t rows, k, n, count; /* n, k: of an entry of w */
    int64_t offsets[MOST_GROUPS + 1];
    bool wrong;
} groups;

static const groups all[] = {
    {9, 16, 24, 2, {0, 4, 9}},
    {300, 72, 40, 4, {0, 131, 131, 290, 300}},
    {290, 40, 264, 3, {3, 67, 68, 283}},
    {20, 24, 16, 2, {8, 8, 8}},
    {200, 136, 48, 1, {0, 200}},
    {150, 24, 32, 35, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,  17,
                       18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 100, 140}},
    {0, 24, 32, 2, {0, 0, 0}},
    {30, 16, 24, 2, {0, 20, 10}, .wrong = true},
    {140, 16, 24, 2, {0, 20, 141}, .wrong = true},
    {30, 16, 24, 2, {-1, 20, 30}, .wrong = true},
};

enum way_of { FORWARD, OF_ROWS, OF_WEIGHTS };

/* Of a product: x w^T, dy w or dy^T x. */
typedef struct job {
    const groups *g;
    enum way_of way;
    tn_type type;
    matrix a, b, y;
    int64_t m, n, k;
    tni_gpu_product product;
    int offsets[MOST_GROUPS + 1];
} job;

static bool in_group(const groups *g, int64_t row) {
    return row >= g->offsets[0] && row < g->offsets[g->count];
}

/* Rows of no group are NaN. */
static void spoil(const job *j, matrix *x, int64_t cols) {
    for (int64_t at = 0; at < j->g->rows * cols; at++) {
        const int64_t i = at / cols;
        if (!in_group(j->g, i)) tn_set(j->type, x->memory, i * x->row + at % cols, NAN);
    }
}

static tni_gpu_matrix turned(const matrix *x, bool shared) {
    return (tni_gpu_matrix){.data = x->memory, .row = x->col, .col = x->row, .batch = {shared ? 0 : x->batch}};
}

static void make_job(job *j) {
    const groups *g = j->g;
    const bool forward = j->way == FORWARD, weights = j->way == OF_WEIGHTS;
    const int64_t width = forward ? g->k : g->n;
    j->m = weights ? g->n : g->rows;
    j->n = forward ? g->n : g->k;
    j->k = weights ? g->rows : width;
    j->a = make(j->type, 1, g->rows, width, false, 8);
    j->b = weights ? make(j->type, 1, g->rows, g->k, false, 8) : make(j->type, g->count, g->n, g->k, false, 8);
    j->y = make(j->type, weights ? g->count : 1, j->m, j->n, false, 1);
    if (!g->wrong) spoil(j, &j->a, width);
    if (weights && !g->wrong) spoil(j, &j->b, g->k);
    for (int64_t i = 0; i <= g->count; i++) j->offsets[i] = (int)g->offsets[i];
    j->product = (tni_gpu_product){.a = weights ? turned(&j->a, true) : on_gpu(&j->a, true),
                                   .b = forward ? turned(&j->b, false) : on_gpu(&j->b, weights),
                                   .y = on_gpu(&j->y, !weights),
                                   .m = j->m,
                                   .n = j->n,
                                   .k = j->k,
                                   .n_batch = 1,
                                   .batch = {g->count},
                                   .terms = 1,
                                   .alpha = 1};
    j->product.groups = (tni_gpu_groups){.offsets = j->offsets, .count = (int)g->count, .step = 1, .rows = g->rows};
}

static double b_at(const job *j, int64_t entry, int64_t l, int64_t c) {
    return j->way == FORWARD ? at(j->type, &j->b, entry, c, l) : at(j->type, &j->b, entry, l, c);
}

/* Element (i, c) of entry e, and the size of its terms. */
static double sum_at(const job *j, int64_t e, int64_t i, int64_t c, double *size) {
    const groups *g = j->g;
    double sum = 0;
    int64_t first = 0, last = j->k, entry = 0;
    *size = 0;
    if (g->wrong) return NAN;
    if (j->way == OF_WEIGHTS) {
        first = g->offsets[e];
        last = g->offsets[e + 1];
    } else {
        while (in_group(g, i) && g->offsets[entry + 1] <= i) entry++;
        if (!in_group(g, i)) last = 0;
    }
    for (int64_t l = first; l < last; l++) {
        const double a = j->way == OF_WEIGHTS ? at(j->type, &j->a, 0, l, i) : at(j->type, &j->a, 0, i, l);
        const double term = a * b_at(j, entry, l, c);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void compare(const char *name, const job *j) {
    const double unit = j->type == TN_F64   ? 0x1p-52
                        : j->type == TN_F32 ? 0x1p-23
                        : j->type == TN_F16 ? 0x1p-10
                                            : 0x1p-7;
    const double own = j->type == TN_F64 ? 0x1p-52 : 0x1p-23;
    int64_t wrong = 0;
    for (int64_t e = 0; e < (j->way == OF_WEIGHTS ? j->g->count : 1); e++) {
        for (int64_t i = 0; i < j->m; i++) {
            for (int64_t c = 0; c < j->n; c++) {
                double size;
                const double sum = sum_at(j, e, i, c, &size), made = at(j->type, &j->y, e, i, c);
                const double most = unit * fabs(sum) + own * (size + 2) * 8;
                wrong += isnan(sum) ? !isnan(made) : !(fabs(made - sum) <= most);
            }
        }
    }
    CHECK_ROW(wrong == 0, "%s, %lld rows, %lld groups: %lld elements are wrong", name, (long long)j->g->rows,
              (long long)j->g->count, (long long)wrong);
}

static void run(void *library, const char *name, tn_type type, enum way_of way, const groups *g, const family *f) {
    job j = {.g = g, .type = type, .way = way};
    make_job(&j);
    tni_gpu_product *p = &j.product;
    p->row_tiles = ceil_div(p->m, f->rows);
    p->col_tiles = ceil_div(p->n, f->cols);
    const int64_t down = way == OF_WEIGHTS ? p->row_tiles * g->count : p->m / f->rows + min(g->count + 2, p->m);
    const int64_t tiles = down * p->col_tiles;
    void *found = library ? dlsym(library, name) : NULL;
    CHECK_ROW(found, "no kernel %s", name);
    if (found && tiles > 0) {
        start_kernel(library, found, f, p, (unsigned)tiles, (unsigned)(f->blocks ? min(tiles, 3) : tiles));
        compare(name, &j);
    }
    free(j.a.memory);
    free(j.b.memory);
    free(j.y.memory);
}

static void run_tiles(void) {
    static const tn_type types[] = {TN_F32, TN_BF16, TN_F64, TN_F16};
    static const family tile = {64, 64, 1, 0, 1};
    void *library = build("product_tile");
    for (size_t i = 0; i < 3 * sizeof all / sizeof *all; i++) {
        char name[64];
        const tn_type type = types[i % 4];
        snprintf(name, sizeof name, "product_tile_%s_%s", i % 3 == OF_WEIGHTS ? "by_terms" : "by_rows",
                 tn_type_name(type));
        run(library, name, type, i % 3, &all[i / 3], &tile);
    }
}

static const char *const ways[] = {"tt", "tf", "ff"};

static void run_mma(void) {
    static const family tile = {128, 128, 8, 0, 1};
    void *library = build("product_mma");
    for (size_t i = 0; i < 3 * sizeof all / sizeof *all; i++) {
        char name[64];
        const tn_type type = i % 2 ? TN_F16 : TN_BF16;
        snprintf(name, sizeof name, "product_mma_%s_%s_%s", i % 3 == OF_WEIGHTS ? "by_terms" : "by_rows", ways[i % 3],
                 tn_type_name(type));
        run(library, name, type, i % 3, &all[i / 3], &tile);
    }
}

static void run_hopper(void) {
    static const family tiles[] = {{128, 256, 8, 1, 1}, {128, 128, 8, 1, 1}};
    void *library = build("product_grouped");
    for (size_t i = 0; i < 6 * sizeof all / sizeof *all; i++) {
        char name[64];
        const tn_type type = i / 6 % 2 ? TN_F16 : TN_BF16;
        const family *f = &tiles[i / 3 % 2];
        snprintf(name, sizeof name, "product_grouped_%d_%s_%s", f->cols, ways[i % 3], tn_type_name(type));
        run(library, name, type, i % 3, &all[i / 6], f);
    }
}

int main(void) {
    if (!has_compiler()) return 0;
    run_tiles();
    run_mma();
    run_hopper();
    rmdir(folder);
    return test_end();
}
