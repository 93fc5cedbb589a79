/* What a kernel leaves open, and the nearest line of a table. */
#include "tests/test.h"
#include "text/tune.h"

static const char text[] = "TN_TUNE(BLOCK, 128, 256, 512)\n"
                           "// TN_TUNE(NOT, 1)\n"
                           "TN_TUNE( UNROLL , 1, 2, 4 )\n"
                           "/* TN_TUNED\n"
                           "# a heading\n"
                           "sm_90 f32 rows=4096 columns=1024: BLOCK=256 UNROLL=4  # 12.3 us\n"
                           "sm_90 f32 rows=16 columns=100000: BLOCK=512 UNROLL=2\n"
                           "sm_90 bf16 rows=4096 columns=1024: BLOCK=512 UNROLL=3\n"
                           "sm_80 f32 rows=4096 columns=1024: UNROLL=2\n"
                           "nonsense\n"
                           "*/\n"
                           "sm_90 f32 rows=1 columns=1: BLOCK=512\n";

static tni_choice choose(const tni_tunables *of, int arch, tn_type type, int64_t rows, int64_t columns) {
    const tni_tune_point point = {arch / 10, arch % 10, type, rows, columns};
    return tni_tune_choose(of, &point);
}

static void test_table(void) {
    tni_arena *arena = tni_arena_new();
    tni_tunables of;
    CHECK(tni_find_tunables("op", text, arena, &of) == TN_OK && of.n == 2);
    CHECK(strcmp(of.of[0].name, "BLOCK") == 0 && of.of[0].n == 3 && of.of[1].n == 3 && of.of[1].values[2] == 4);
    static const struct {
        int arch;
        tn_type type;
        int64_t rows, columns, block, unroll;
    } rows[] = {
        {90, TN_F32, 4096, 1024, 256, 4}, {90, TN_F32, 5000, 999, 256, 4},
        {90, TN_F32, 1, 200000, 512, 2},  {90, TN_BF16, 4096, 1024, 512, 1}, /* 3 is not offered */
        {90, TN_F16, 4000, 1000, 512, 1}, {80, TN_F32, 4096, 1024, 128, 2},
        {86, TN_F32, 4096, 1024, 128, 2}, {100, TN_F32, 0, 0, 512, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tni_choice c = choose(&of, rows[i].arch, rows[i].type, rows[i].rows, rows[i].columns);
        CHECK_ROW(c.values[0] == rows[i].block && c.values[1] == rows[i].unroll, "row %zu: %lld %lld", i,
                  (long long)c.values[0], (long long)c.values[1]);
    }
    const tni_choice force = {{128, 4}};
    tni_force_choice(&force);
    CHECK(choose(&of, 90, TN_F32, 4096, 1024).values[0] == 128);
    tni_force_choice(NULL);
    tni_arena_free(arena);
}

static void test_texts(void) {
    static const struct {
        const char *text, *says; /* NULL: nothing is wrong */
    } rows[] = {
        {"int a;", NULL},
        {"int TN_TUNER;", NULL},
        {"TN_TUNE BLOCK", "line 1: TN_TUNE has no '('"},
        {"\nTN_TUNE()", "line 2: TN_TUNE has no name"},
        {"TN_TUNE(A)", "has no values"},
        {"TN_TUNE(A, b)", "whole numbers"},
        {"TN_TUNE(A, 1", "has no values"},
        {"TN_TUNE(A,1) TN_TUNE(B,1) TN_TUNE(C,1) TN_TUNE(D,1) TN_TUNE(E,1)", "at most 4"},
        {"TN_TUNE(A, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17)", "at most 16 values"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_arena *arena = tni_arena_new();
        tni_tunables of;
        const tn_status status = tni_find_tunables("op", rows[i].text, arena, &of);
        CHECK_ROW((status == TN_OK) == !rows[i].says, "%s", rows[i].text);
        if (rows[i].says) CHECK_ROW(strstr(tn_last_error(), rows[i].says), "%s: %s", rows[i].text, tn_last_error());
        tni_arena_free(arena);
    }
    tni_arena *arena = tni_arena_new();
    tni_tunables of;
    CHECK(tni_find_tunables("op", "TN_TUNE(A, 7, 8)", arena, &of) == TN_OK && !of.table);
    CHECK(choose(&of, 90, TN_F32, 4, 4).values[0] == 7);
    CHECK(tni_is_option("maxrregcount") && !tni_is_option("A"));
    tni_arena_free(arena);
}

int main(void) {
    test_table();
    test_texts();
    return test_end();
}
