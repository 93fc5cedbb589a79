/* The kernels of products of 8-bit numbers, on the CPU, thread by thread (emulate.h), beside sums in double. A machine
 * without a C++ compiler leaves it out, and says so. */
#include "products.h"

#include "cuda/products/scaled.cuh"

typedef struct row {
    int64_t m, n, k;
    bool bias, relu;
} row;

static const row rows[] = {
    {1, 16, 16},  {7, 17, 33, .bias = true}, {130, 140, 200, .relu = true}, {64, 270, 128, .bias = true, .relu = true},
    {3, 40, 700}, {5, 20, 0, .bias = true},
};

/* Lines of so many bytes, from so far behind a multiple of 16. */
static matrix bytes_of(tn_type type, int64_t lines, int64_t pitch, int64_t off) {
    matrix m = {.row = pitch, .col = 1};
    char *memory = aligned_alloc(64, (size_t)round_up(lines * pitch + off + 64, 64));
    m.memory = memory + off;
    for (int64_t i = 0; i < lines * pitch; i++) tn_set(type, m.memory, i, draw() * 100);
    return m;
}

static void compare(const char *name, tn_type type, tn_type y, const row *r, const matrix *m, const float *scales) {
    const double unit = y == TN_F32 ? 0x1p-22 : y == TN_F16 ? 0x1p-10 : 0x1p-7;
    int64_t wrong = 0;
    for (int64_t at_y = 0; at_y < r->m * r->n; at_y++) {
        const int64_t i = at_y / r->n, j = at_y % r->n;
        const double bias = r->bias ? scales[r->m + r->n + j] : 0;
        double sum = 0, size = fabs(bias);
        for (int64_t l = 0; l < r->k; l++) {
            const double term = at(type, &m[0], 0, i, l) * at(type, &m[1], 0, j, l) * scales[i] * scales[r->m + j];
            sum += term;
            size += fabs(term);
        }
        sum += bias;
        if (r->relu && sum < 0) sum = 0;
        const double most = unit * fabs(sum) + 0x1p-22 * size + 0x1p-24;
        wrong += !(fabs(at(y, &m[2], 0, i, j) - sum) <= most);
    }
    CHECK_ROW(wrong == 0, "%s, %lld x %lld x %lld: %lld elements are wrong", name, (long long)r->m, (long long)r->n,
              (long long)r->k, (long long)wrong);
}

static void start_scaled(void *library, void *found, const family *f, tni_gpu_scaled *s) {
    const tni_gpu_product *p = &s->w.product;
    const unsigned tiles = (unsigned)(p->row_tiles * p->col_tiles);
    void *runner = dlsym(library, "tn_emulate");
    emulate start;
    kernel function;
    CHECK(runner);
    if (!runner) return;
    memcpy(&start, &runner, sizeof start);
    memcpy(&function, &found, sizeof function);
    s->w.tiles = tiles;
    if (f->blocks) {
        make_map(&p->a, p->m, p->a.row, p->a.col, f->rows, 1, p, s->w.a);
        make_map(&p->b, p->n, p->b.col, p->b.row, f->cols, 1, p, s->w.b);
    }
    start(function, s, f->blocks && tiles > 2 ? 2 : tiles, f->blocks ? 384 : 256, 1);
}

static void run(void *library, const char *name, tn_type type, tn_type y, const row *r, const family *f) {
    static tni_gpu_scaled s;
    static float scales[1024];
    const int64_t pitch = round_up(r->k, f->multiple), off = f->multiple == 1 ? 3 : 0;
    matrix m[3] = {bytes_of(type, r->m, pitch, off), bytes_of(type, r->n, pitch, off),
                   make(y, 1, r->m, r->n, false, 1)};
    for (int64_t i = 0; i < r->m + 2 * r->n; i++) scales[i] = (float)(draw() * 0.01 + 0.02);
    s = (tni_gpu_scaled){.row_scale = scales,
                         .col_scale = scales + r->m,
                         .bias = r->bias ? scales + r->m + r->n : NULL,
                         .w.product = {.a = on_gpu(&m[0], false),
                                       .b = {.data = m[1].memory, .row = 1, .col = pitch},
                                       .y = on_gpu(&m[2], false),
                                       .m = r->m,
                                       .n = r->n,
                                       .k = r->k,
                                       .batch = {1},
                                       .terms = 1,
                                       .row_tiles = ceil_div(r->m, f->rows),
                                       .col_tiles = ceil_div(r->n, f->cols),
                                       .alpha = 1,
                                       .relu = r->relu}};
    void *found = library ? dlsym(library, name) : NULL;
    CHECK_ROW(found, "no kernel %s", name);
    if (found) {
        start_scaled(library, found, f, &s);
        compare(name, type, y, r, m, scales);
    }
    free((char *)m[0].memory - off);
    free((char *)m[1].memory - off);
    free(m[2].memory);
}

/* The kernels of one kind, which take turns with the types of y. */
static void run_all(void *library, const char *kind, const family *f) {
    static const tn_type types[] = {TN_F32, TN_BF16, TN_F16};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const tn_type type = i % 2 ? TN_E4M3 : TN_I8, y = types[(i + i / 6) % 3];
        char name[96];
        snprintf(name, sizeof name, "product_scaled_%s_%s_%s", kind, tn_type_name(type), tn_type_name(y));
        run(library, name, type, y, &rows[i / 2], f);
    }
}

int main(void) {
    static const family plain = {16, 16, 1, 0, 1}, mma = {128, 128, 16, 0, 1}, narrow = {128, 128, 16, 1, 1},
                        wide = {128, 256, 16, 1, 1};
    if (!has_compiler()) return 0;
    void *own = build("product_scaled"), *hopper = build("product_scaled_warpgroup");
    run_all(own, "plain", &plain);
    run_all(own, "mma", &mma);
    run_all(hopper, "warpgroup_128", &narrow);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(hopper, "product_scaled_warpgroup_256_i8_f32", TN_I8, TN_F32, &rows[i], &wide);
    }
    rmdir(folder);
    return test_end();
}
