/* The kernels of matrix products, on the CPU, thread by thread (emulate.h), beside sums in double: edges of tiles,
 * every way in which matrices lie, batches, what is added at the end. A machine without a C++ compiler leaves it out,
 * and says so. */
#include "products.h"

/* ---- a product --------------------------------------------------------------------------------------------------- */

typedef struct row {
    int64_t entries, m, n, k;
    bool a_turned, b_turned, y_turned; /* a: dense along m; b: along k; y: along m */
    bool shared_b, bias, residual, relu, z;
} row;

static const row rows[] = {
    {1, 1, 1, 1},
    {1, 64, 64, 16},
    {1, 130, 129, 40, .b_turned = true},
    {1, 130, 129, 40, .bias = true},
    {1, 130, 129, 40, .a_turned = true, .residual = true},
    {1, 129, 257, 71, .a_turned = true, .b_turned = true, .relu = true},
    {3, 33, 65, 100, .b_turned = true, .bias = true, .residual = true, .relu = true},
    {2, 70, 20, 161, .shared_b = true, .y_turned = true},
    {1, 5, 300, 0, .bias = true},
    {1, 1100, 3, 9, .b_turned = true},
    {2, 131, 272, 24, .bias = true, .residual = true, .relu = true, .z = true},
    {1, 259, 263, 24, .b_turned = true, .bias = true, .residual = true, .relu = true, .z = true},
    {1, 150, 30, 24, .a_turned = true, .y_turned = true, .residual = true, .z = true},
    {1, 130, 140, 712, .b_turned = true, .bias = true},
};

/* y: the type of what is not a factor. */
static void compare(const char *name, tn_type type, tn_type y, const row *r, const tni_gpu_product *p,
                    const matrix *m) {
    const double unit = y == TN_F64 ? 0x1p-52 : y == TN_F32 ? 0x1p-23 : y == TN_F16 ? 0x1p-10 : 0x1p-7;
    const double own = type == TN_F64 ? 0x1p-52 : 0x1p-23;
    int64_t wrong = 0;
    for (int64_t e = 0; e < r->entries; e++) {
        for (int64_t i = 0; i < r->m; i++) {
            for (int64_t j = 0; j < r->n; j++) {
                double sum = 0, size = 0;
                for (int64_t l = 0; l < r->k; l++) {
                    const double term = at(type, &m[0], e, i, l) * at(type, &m[1], r->shared_b ? 0 : e, l, j);
                    sum += term;
                    size += fabs(term);
                }
                sum *= p->alpha;
                if (r->bias) sum += tn_get(y, m[4].memory, j);
                if (r->residual) sum += at(y, &m[3], e, i, j);
                const double most = unit * fabs(sum) + own * (size + 2) * 8;
                if (r->z) wrong += !(fabs(at(y, &m[5], e, i, j) - sum) <= most);
                if (r->relu && sum < 0) sum = 0;
                wrong += !(fabs(at(y, &m[2], e, i, j) - sum) <= most);
            }
        }
    }
    CHECK_ROW(wrong == 0, "%s, %lld x %lld x %lld: %lld elements are wrong", name, (long long)r->m, (long long)r->n,
              (long long)r->k, (long long)wrong);
}

static const row few_rows[] = {
    {1, 1, 8, 8, .b_turned = true},
    {1, 1, 70, 1000, .b_turned = true, .bias = true},
    {1, 7, 33, 520, .b_turned = true, .residual = true, .z = true, .relu = true},
    {2, 8, 40, 264, .b_turned = true, .y_turned = true},
    {1, 9, 65, 2056, .b_turned = true, .bias = true, .residual = true},
    {2, 16, 31, 32, .b_turned = true, .shared_b = true},
    {1, 5, 48, 0, .b_turned = true, .bias = true},
    {1, 2, 30, 904, .b_turned = true, .bias = true, .y_turned = true},
    {2, 4, 21, 2056, .b_turned = true, .residual = true},
    {1, 3, 72, 1048, .bias = true},
    {2, 8, 128, 264, .residual = true, .z = true, .relu = true},
    {1, 16, 200, 520, .bias = true, .y_turned = true},
    {2, 11, 64, 40, .shared_b = true},
};

/* Hopper's blocks have several tiles each, but of parts. */
static void start_tiles(void *library, void *found, const family *f, const tni_gpu_product *p) {
    const unsigned tiles = (unsigned)(p->row_tiles * p->col_tiles * p->batch[0]);
    const unsigned blocks = (unsigned)(f->blocks * f->parts);
    start_kernel(library, found, f, p, tiles, blocks ? (tiles < 2 ? 1 : f->parts > 1 ? tiles : 2) * blocks : tiles);
}

static void run(void *library, const char *name, tn_type type, tn_type y, const row *r, const family *f) {
    const int64_t multiple = f->multiple;
    matrix m[6] = {make(type, r->entries, r->m, r->k, r->a_turned, multiple),
                   make(type, r->shared_b ? 1 : r->entries, r->k, r->n, r->b_turned, multiple),
                   make(y, r->entries, r->m, r->n, r->y_turned, 1),
                   make(y, r->entries, r->m, r->n, false, 1),
                   make(y, 1, 1, r->n, false, 1),
                   make(y, r->entries, r->m, r->n, r->y_turned, 1)};
    tni_gpu_product p = {.a = on_gpu(&m[0], false),
                         .b = on_gpu(&m[1], r->shared_b),
                         .y = on_gpu(&m[2], false),
                         .z = on_gpu(&m[5], false),
                         .residual = on_gpu(&m[3], false),
                         .bias = r->bias ? m[4].memory : NULL,
                         .bias_step = 1,
                         .m = r->m,
                         .n = r->n,
                         .k = r->k,
                         .n_batch = 1,
                         .batch = {r->entries},
                         .terms = 1,
                         .row_tiles = ceil_div(r->m, f->rows),
                         .col_tiles = ceil_div(r->n, f->cols),
                         .alpha = 0.5,
                         .relu = r->relu};
    if (!r->residual) p.residual.data = NULL;
    if (!r->z) p.z.data = NULL;
    void *found = library ? dlsym(library, name) : NULL;
    CHECK_ROW(found, "no kernel %s", name);
    if (found) {
        start_tiles(library, found, f, &p);
        compare(name, type, y, r, &p, m);
    }
    for (int i = 0; i < 6; i++) free(m[i].memory);
}

static void run_tiles(void) {
    static const tn_type types[] = {TN_F32, TN_BF16, TN_F16, TN_F64};
    static const family tile = {64, 64, 1, 0};
    void *library = build("product_tile");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "product_tile_%s", tn_type_name(types[i % 4]));
        run(library, name, types[i % 4], types[i % 4], &rows[i], &tile);
        if (tn_type_size(types[i % 4]) > 2) continue;
        snprintf(name, sizeof name, "product_tile_%s_f32", tn_type_name(types[i % 4]));
        run(library, name, types[i % 4], TN_F32, &rows[i], &tile);
    }
}

static void run_mma(void) {
    static const family tile = {128, 128, 8, 0};
    void *library = build("product_mma");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tn_type type = i % 2 ? TN_F16 : TN_BF16;
        char name[64];
        snprintf(name, sizeof name, "product_mma_%s%s_%s", rows[i].a_turned ? "f" : "t", rows[i].b_turned ? "t" : "f",
                 tn_type_name(type));
        run(library, name, type, type, &rows[i], &tile);
        strcat(name, "_f32");
        run(library, name, type, TN_F32, &rows[i], &tile);
    }
}

/* Rows 0 … of 16 by one kernel have the bits that they have alone by another one. */
static void compare_alone(void *library, tn_type type, const char *few, const family *f, const char *many,
                          const family *all) {
    enum { N = 40, K = 1000 };
    const matrix x = make(type, 1, all->rows, K, false, 8), w = make(type, 1, K, N, strstr(few, "_t_"), 8);
    const matrix alone = make(type, 1, all->rows, N, false, 1), beside = make(type, 1, all->rows, N, false, 1);
    const char *const names[] = {few, many};
    for (int i = 0; i < 2; i++) {
        const family *own = i ? all : f;
        const matrix *y = i ? &beside : &alone;
        const tni_gpu_product p = {.a = on_gpu(&x, false),
                                   .b = on_gpu(&w, false),
                                   .y = on_gpu(y, false),
                                   .m = own->rows,
                                   .n = N,
                                   .k = K,
                                   .batch = {1},
                                   .row_tiles = 1,
                                   .col_tiles = ceil_div(N, own->cols),
                                   .alpha = 1};
        void *found = library ? dlsym(library, names[i]) : NULL;
        CHECK_ROW(found, "no kernel %s", names[i]);
        if (found) start_tiles(library, found, own, &p);
    }
    CHECK_ROW(memcmp(alone.memory, beside.memory, (size_t)(f->rows * N) * tn_type_size(type)) == 0,
              "%s and %s: rows differ", few, many);
    free(x.memory);
    free(w.memory);
    free(alone.memory);
    free(beside.memory);
}

/* Every kernel with rows enough. */
static void run_rows(void) {
    static const family families[] = {{8, 16, 8},  {8, 32, 8}, {16, 32, 8}, {8, 64, 8},
                                      {16, 64, 8}, {1, 4, 4},  {2, 4, 4},   {4, 8, 4}};
    void *library = build("product_rows");
    for (size_t j = 0; j < 8 * sizeof few_rows / sizeof *few_rows; j++) {
        const row *r = &few_rows[j / 8];
        const family *f = &families[j % 8];
        const tn_type type = f->multiple == 4 ? TN_F32 : j / 2 % 2 ? TN_F16 : TN_BF16;
        char name[64];
        if (r->m > f->rows || r->b_turned != (f->cols < 64)) continue;
        snprintf(name, sizeof name, "product_rows_%dx%d_%c_%s", f->cols, f->rows, r->b_turned ? 't' : 'f',
                 tn_type_name(type));
        run(library, name, type, type, r, f);
    }
    const family *f = families, one = {1, 16, 8};
    compare_alone(library, TN_BF16, "product_rows_16x8_t_bf16", &one, "product_rows_32x16_t_bf16", &f[2]);
    compare_alone(library, TN_BF16, "product_rows_32x8_t_bf16", &f[1], "product_rows_32x16_t_bf16", &f[2]);
    compare_alone(library, TN_F16, "product_rows_64x8_f_f16", &f[3], "product_rows_64x16_f_f16", &f[4]);
    compare_alone(library, TN_F32, "product_rows_4x1_t_f32", &f[5], "product_rows_4x2_t_f32", &f[6]);
    compare_alone(library, TN_F32, "product_rows_4x1_t_f32", &f[5], "product_rows_8x4_t_f32", &f[7]);
}

static void run_warpgroup(void) {
    static const family tiles[] = {
        {128, 256, 8, 1, 1}, {256, 128, 8, 2, 1}, {128, 64, 8, 1, 1},  {256, 256, 8, 2, 1}, {128, 128, 8, 1, 1},
        {128, 128, 8, 1, 4}, {128, 256, 8, 1, 2}, {128, 128, 8, 1, 2}, {128, 256, 8, 1, 4},
    };
    const size_t families = sizeof tiles / sizeof *tiles;
    void *library = build("product_warpgroup");
    for (size_t j = 0; j < families * sizeof rows / sizeof *rows; j++) {
        const size_t i = j / families;
        const tn_type type = i % 2 ? TN_F16 : TN_BF16;
        const family *f = &tiles[j % families];
        char name[64];
        if (rows[i].a_turned && rows[i].b_turned) continue;   /* there is none */
        if (f->parts > 1 && (i + j % families) % 3) continue; /* which takes long */
        snprintf(name, sizeof name, "product_warpgroup_%dx%d_%s%s_%s", f->cols, f->parts, rows[i].a_turned ? "f" : "t",
                 rows[i].b_turned ? "t" : "f", tn_type_name(type));
        const bool sums = f->cols == 256 && f->parts == 1 && j / 2 % 2; /* y has their type */
        if (sums) strcat(name, "_f32");
        run(library, name, type, sums ? TN_F32 : type, &rows[i], f);
    }
    static const row deep = {1, 40, 96, 2048, .bias = true}; /* in each part the ring goes round */
    for (size_t j = 0; j < families; j++) {
        char name[64];
        if (tiles[j].parts == 1) continue;
        snprintf(name, sizeof name, "product_warpgroup_%dx%d_tf_bf16", tiles[j].cols, tiles[j].parts);
        run(library, name, TN_BF16, TN_BF16, &deep, &tiles[j]);
    }
}

int main(void) {
    if (!has_compiler()) return 0;
    run_tiles();
    run_mma();
    run_rows();
    run_warpgroup();
    rmdir(folder);
    return test_end();
}
