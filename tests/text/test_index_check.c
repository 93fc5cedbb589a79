/* TENON_CHECK_INDEX: texts with pointers that know their tensor still compile, and say the same. */
#include <stdlib.h>

#include "tests/test.h"
#include "text/index_check.h"

static void test_texts(void) {
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"__global__ void k(const float *x, float *__restrict__ y, int n) { y[0] = x[0]; }",
         "__global__ void k(tn_checked<const float> x, tn_checked<float> y, int n) { y[0] = x[0]; }"},
        {"__global__ void k(const T *x) {\n    const T *row = x + 3;\n    const T\n*p = row;\n    T *a = b, *c;\n}",
         "__global__ void k(tn_checked<const T> x) {\n    auto row = x + 3;\n    auto \np = row;\n    T *a = b, *c;\n}"},
        {"__global__ void k(T **list, T *y) { int n = 2 * 3; y = 0; a * b == c; for (;;) { float *p = &y[1]; } }",
         "__global__ void k(T **list, tn_checked<T> y) { int n = 2 * 3; y = 0; a * b == c; for (;;) { auto p = &y[1]; } }"},
        {"int f(const float *x) { const float *p = x; return 0; }", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_arena *arena = tni_arena_new();
        tni_cfunctions all;
        tni_text text = {0};
        CHECK(tni_find_functions(rows[i].text, false, arena, &all) == TN_OK);
        tni_put_checked(&text, rows[i].text, &all, arena);
        const char *want = rows[i].want ? rows[i].want : rows[i].text;
        CHECK_ROW(!text.failed && strcmp(text.data, want) == 0, "have %s\n  want %s", text.data, want);
        tni_free(text.data);
        tni_arena_free(arena);
    }
}

static void test_setting(void) {
    unsetenv("TENON_CHECK_INDEX");
    CHECK(!tni_checks_index());
    setenv("TENON_CHECK_INDEX", "0", 1);
    CHECK(!tni_checks_index());
    setenv("TENON_CHECK_INDEX", "1", 1);
    CHECK(tni_checks_index());
}

int main(void) {
    test_texts();
    test_setting();
    return test_end();
}
