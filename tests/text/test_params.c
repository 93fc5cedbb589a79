/* Declarations in texts of CUDA C and C, as people write them. */
#include <stdlib.h>

#include "tests/test.h"
#include "text/params.h"

typedef struct row {
    const char *text, *want; /* name(type*name, …) of each function, with '!' for const; '|' between them */
    bool host;
} row;

static const row rows[] = {
    {"__global__ void add(const float *x, float *y, int n) { y[0] = x[0]; }", "add(!float*x,float*y,int n)", false},
    {"extern \"C\" __global__ void __launch_bounds__(256, 2) k(float *__restrict__ y) {}", "k(float*y)", false},
    {"__global__ void __launch_bounds__(256)\nk ( const  unsigned  int* a , long long   n )\n{ }",
     "k(!unsigned int*a,long long n)", false},
    {"template <typename T, int N = 4>\n__global__ void k(const T* x, T* y, int64_t n) { for (;;) {} }",
     "k<typename T, int N = 4>(!T*x,T*y,int64_t n)", false},
    {"// __global__ void no(int a) {}\n/* __global__ void no2(int a) {} */ __global__ void yes(void) {}", "yes()",
     false},
    {"const char *s = \"__global__ void no(int a) {}\"; __global__ void yes(bool a[], int b[4][4]) {}",
     "yes(bool*a,int**b)", false},
    {"__global__ void declared(int a);\n__global__ void declared(int a) {}", "declared(int a)", false},
    {"#define K __global__ void no(int a) {}\n__global__ void yes(const float4 *p, dim3 d = dim3(1, 2)) {}",
     "yes(!float4*p,dim3 d)", false},
    {"static void __global__ k(float const *x, const float *const *list) {}", "k(!float*x,!float**list)", false},
    {"namespace a { __global__ void k(std::size_t n, thing<int, 3> t) {} }", "k(std::size_t n,thing<int, 3> t)", false},
    {"__global__ void first(int *a) { if (a) { } }\n__global__ void second(int *b) { }", "first(int*a)|second(int*b)",
     false},
    {"__global__ void none(int) {}", "none(int )", false},
    {"__device__ float f(float a) { return a; }", "", false},
    {"", "", false},
    {"__global__ void cut(int a", "", false},
    {"__global__ void cut(int a) {", "cut(int a)", false},
    {"static float half_of(float a) { return a / 2; }\nvoid scale(const float *x, float *y, long n) { if (n) { } }",
     "half_of(float a)|scale(!float*x,float*y,long n)", true},
    {"extern \"C\" { void f(int a) { while (a) { g(a); } } }\nint g(int);", "f(int a)", true},
    {"struct s { int a; }; enum { N = 3 };\nvoid f(struct s *p, unsigned char b) { }", "f(struct s*p,unsigned char b)",
     true},
};

static void print(const tni_cfunctions *all, char *text, size_t size) {
    size_t n = 0;
    text[0] = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const tni_cfunction *f = &all->functions[i];
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? "|" : "", f->name);
        if (f->templates) n += (size_t)snprintf(text + n, size - n, "<%s>", f->templates);
        n += (size_t)snprintf(text + n, size - n, "(");
        for (int32_t k = 0; k < f->n_params; k++) {
            const tni_cparam *p = &f->params[k];
            n += (size_t)snprintf(text + n, size - n, "%s%s%s%s%s", k ? "," : "", p->is_const ? "!" : "", p->type,
                                  &"**"[2 - (p->pointers < 2 ? p->pointers : 2)], p -> pointers ? "" : " ");
            n += (size_t)snprintf(text + n, size - n, "%s", p->name);
        }
        n += (size_t)snprintf(text + n, size - n, ")");
    }
}

static void test_rows(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char have[1000];
        tni_cfunctions found;
        tni_arena *arena = tni_arena_new();
        CHECK_ROW(tni_find_functions(rows[i].text, rows[i].host, arena, &found) == TN_OK, "%s", rows[i].text);
        print(&found, have, sizeof have);
        CHECK_ROW(strcmp(have, rows[i].want) == 0, "%s\n  have %s\n  want %s", rows[i].text, have, rows[i].want);
        tni_arena_free(arena);
    }
}

static void test_lines(void) {
    static const char text[] = "// one\n\n__constant__ float w[9];\n__global__ void k(\n    int a,\n    int b) {\n}\n";
    tni_cfunctions found;
    tni_arena *arena = tni_arena_new();
    CHECK(tni_find_functions(text, false, arena, &found) == TN_OK && found.n == 1 && found.n_constants == 1);
    CHECK(strcmp(found.constants[0].name, "w") == 0 && found.constants[0].line == 3);
    CHECK(found.functions[0].line == 4 && found.functions[0].params[1].line == 6);
    CHECK(text[found.functions[0].body] == '{' && text[found.functions[0].end - 1] == '}');
    tni_arena_free(arena);
}

/* No text that is cut anywhere reads beyond its end. */
static void test_cuts(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t n = 0; n <= strlen(rows[i].text); n++) {
            char *text = strndup(rows[i].text, n);
            tni_cfunctions found;
            tni_arena *arena = tni_arena_new();
            CHECK_ROW(tni_find_functions(text, rows[i].host, arena, &found) == TN_OK, "%s", text);
            tni_arena_free(arena);
            free(text);
        }
    }
}

int main(void) {
    test_rows();
    test_lines();
    test_cuts();
    return test_end();
}
