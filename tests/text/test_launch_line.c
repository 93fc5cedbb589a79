/* Launch lines: what they come to, and what is wrong with them. */
#include "tests/test.h"
#include "text/launch_line.h"

static bool value_of(const void *context, const char *name, size_t length, int64_t *value) {
    (void)context;
    *value = 1000;
    if (length == 1 && *name == 'n') return true;
    *value = 3;
    return length == 3 && memcmp(name, "sms", 3) == 0;
}

/* T is f16. */
static bool bytes_of(const void *context, const char *type, size_t length, bool acc, int64_t *bytes) {
    (void)context;
    *bytes = acc ? 4 : 2;
    return length == 1 && *type == 'T';
}

static void list(const void *context, char *text, size_t size) {
    (void)context;
    snprintf(text, size, "n, sms");
}

static const tni_sizes sizes = {.value = value_of,
                                .bytes = bytes_of,
                                .list = list,
                                .count = 1000,
                                .rows = 10,
                                .columns = 100,
                                .height = 20,
                                .width = 50,
                                .batch = 2};

static void test_lines(void) {
    static const struct {
        const char *line;
        int64_t grid[3], block[3], shared;
    } rows[] = {
        {"elements", {4, 1, 1}, {256, 1, 1}, 0},
        {"", {4, 1, 1}, {256, 1, 1}, 0},
        {"elements(4)", {1, 1, 1}, {256, 1, 1}, 0},
        {"elements(n / 500) block=128", {4, 1, 1}, {128, 1, 1}, 0},
        {"rows", {10, 1, 1}, {256, 1, 1}, 0},
        {"rows block=1024 shared=4*n", {10, 1, 1}, {1024, 1, 1}, 4000},
        {"rows(warp)", {2, 1, 1}, {256, 1, 1}, 0},
        {"rows(warp) block=64", {5, 1, 1}, {64, 1, 1}, 0},
        {"tiles(16, 8)", {4, 3, 2}, {16, 8, 1}, 0},
        {"tiles(32, 32) block=(32, 8)", {2, 1, 2}, {32, 8, 1}, 0}, /* a thread does four elements */
        {"tiles(16, 8) loop", {4, 3, 2}, {16, 8, 1}, 0},
        {"shared=n * sizeof(T)", {4, 1, 1}, {256, 1, 1}, 2000},
        {"shared=min(n * sizeof( acc(T) ), 9999)", {4, 1, 1}, {256, 1, 1}, 4000},
        {"grid=(ceil_div(n, 256), 2, 3) block=(8, 4, 2)", {4, 2, 3}, {8, 4, 2}, 0},
        {"grid=(n + 1) / 2, block=min(n, 64)", {500, 1, 1}, {64, 1, 1}, 0},
        {"grid=max(n, 2) - n % 7 - -1", {995, 1, 1}, {256, 1, 1}, 0},
        {"grid=sms*2", {6, 1, 1}, {256, 1, 1}, 0},
        {"k: grid=0", {0, 1, 1}, {256, 1, 1}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_launch_steps made;
        const tn_status status = tni_launch_read("op", rows[i].line, &sizes, &made);
        CHECK_ROW(status == TN_OK && made.n == 1, "%s: %s", rows[i].line, tn_last_error());
        const tni_launch_step *s = &made.steps[0];
        bool same = memcmp(s->block, rows[i].block, sizeof s->block) == 0 && s->shared == rows[i].shared;
        same &= memcmp(s->grid, rows[i].grid, sizeof s->grid) == 0;
        CHECK_ROW(same, "%s: grid %lld %lld %lld, block %lld %lld", rows[i].line, (long long)s->grid[0],
                  (long long)s->grid[1], (long long)s->grid[2], (long long)s->block[0], (long long)s->block[1]);
    }
}

static void test_several(void) {
    tni_launch_steps made;
    CHECK(tni_launch_read("op", "first: rows scratch=8*n; second : grid=1 block=32;", &sizes, &made) == TN_OK);
    CHECK(made.n == 2 && made.scratch == 8000 && strcmp(made.steps[1].kernel, "second") == 0);
    CHECK(made.steps[0].grid[0] == 10 && made.steps[1].block[0] == 32);
}

/* CUDA has at most 65535 blocks along y and z. */
static void test_loops(void) {
    tni_sizes tall = sizes;
    tall.height = tall.batch = 70000;
    tni_launch_steps made;
    CHECK(tni_launch_read("op", "tiles(16, 1)", &tall, &made) == TN_BAD_VALUE);
    CHECK(tni_launch_read("op", "tiles(16, 1) loop", &tall, &made) == TN_OK);
    const int64_t *grid = made.steps[0].grid;
    CHECK(grid[0] == 4 && grid[1] == 65535 && grid[2] == 65535);
}

static void test_mistakes(void) {
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"row", "expected elements, rows"},
        {"grid=m", "'m' is none of n, sms at column 6"},
        {"grid=(1, 2", "expected ')'"},
        {"grid=n / 0", "division by 0"},
        {"block=2000", "a block has 2000 threads along x; 1 to 1024"},
        {"block=(64, 64)", "a block has 4096 threads; 1024"},
        {"block=0-1", "a block has -1 threads along x"},
        {"grid=(1, 70000)",
         "70000 blocks along y; 0 to 65535 are possible; a kernel that goes on by gridDim says `loop`"},
        {"tiles(0, 8)", "above 0"},
        {"shared=sizeof(U)", "sizeof takes a type of the contract"},
        {"shared=sizeof(acc(T)", "expected ')'"},
        {"grid=9223372036854775807 * 2", "beyond 64 bits"},
        {"elements(0)", "above 0"},
        {"rows(warp) block=48", "whole warps"},
        {"tiles(16)", "expected ','"},
        {"shared=0-4", "shared is a number of bytes"},
        {"cluster=17", "at most 16"},
        {"elements rows", "expected elements"},
        {"scratch=0-1", "scratch is a number of bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tni_launch_steps made;
        CHECK_ROW(tni_launch_read("op", rows[i].line, &sizes, &made) == TN_BAD_VALUE, "%s", rows[i].line);
        const char *said = tn_last_error();
        CHECK_ROW(strncmp(said, "op: launch: ", 12) == 0 && strstr(said, rows[i].says), "%s: %s", rows[i].line, said);
    }
    char deep[300] = "grid=";
    memset(deep + 5, '(', 200);
    deep[205] = 0;
    tni_launch_steps made;
    CHECK(tni_launch_read("op", deep, &sizes, &made) == TN_BAD_VALUE);
}

int main(void) {
    test_lines();
    test_several();
    test_loops();
    test_mistakes();
    return test_end();
}
