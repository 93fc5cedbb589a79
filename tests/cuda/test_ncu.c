/* What `tenon bench --ncu` makes of the profiler's output. The profiler is a script here. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench/bench_kernel.h"
#include "tests/test.h"

static char folder[] = "/tmp/tenon-ncu-XXXXXX", why[256];

/* Puts it first on the PATH. It leaves its own arguments in the file `said`. */
static void write_ncu(const char *body) {
    char path[64];
    snprintf(path, sizeof path, "%s/ncu", folder);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "#!/bin/sh\nfor word; do echo \"$word\"; done > %s/said\n%s", folder, body);
    fclose(file);
    chmod(path, 0755);
}

static void measure(kernel_use *uses, int32_t n) {
    for (int32_t i = 0; i < n; i++) uses[i].measured = 0;
    ncu_measure("bench my_op --shape 's=[4, 8]'", uses, n, why, sizeof why);
}

static bool was_said(const char *line) {
    char path[64], text[4096] = "\n";
    snprintf(path, sizeof path, "%s/said", folder);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    text[1 + fread(text + 1, 1, sizeof text - 2, file)] = 0;
    fclose(file);
    return strstr(text, line) != NULL;
}

/* As ncu of CUDA 13.0 printed it for `tenon bench --ncu` on an H200: remarks, what the program says, and the table,
 * with commas in texts. Kernels, values and the lines in the middle are the tests'. */
#define TITLES                                                                                                    \
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\"," \
    "\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
#define ROW(id, kernel, value)                                                                                       \
    "\"" id "\",\"77\",\"tenon\",\"127.0.0.1\",\"" kernel "\",\"1\",\"13\",\"(128, 1, 1)\",\"(8192, 1, 1)\",\"0\","  \
    "\"9.0\",\"Command line profiler metrics\",\"sm__warps_active.avg.pct_of_peak_sustained_active\",\"%\",\"" value \
    "\"\n"
#define TABLE(rows)                                                                                            \
    "cat <<'END'\n==PROF== Connected to process 77 (/usr/bin/tenon)\nNVIDIA H200 (cuda:0), 132 SMs\n\nmy_op\n" \
    "==PROF== Disconnected from process 77\n" TITLES rows "END\n"

static void test_numbers(void) {
    kernel_use uses[] = {{.launch = {.name = "sum_parts", .grid = 0}}, /* not needed for this shape */
                         {.launch = {.name = "scan", .grid = 8}},
                         {.launch = {.name = "scan_parts", .grid = 8192}}};
    write_ncu(TABLE(ROW("0", "scan_parts(const float *, float *, long long)", "71.34") ROW("1", "scan", "8.50")));
    measure(uses, 3);
    CHECK_ROW(why[0] == 0, "%s", why);
    CHECK(uses[0].measured == 0);
    CHECK_ROW(uses[1].measured > 0.0849 && uses[1].measured < 0.0851, "%g", uses[1].measured);
    CHECK_ROW(uses[2].measured > 0.7133 && uses[2].measured < 0.7135, "%g", uses[2].measured);
    CHECK(was_said("\nregex:^(scan|scan_parts)$\n-c\n2\n"));
    CHECK(was_said("\nbench\nmy_op\n--shape\ns=[4, 8]\n"));
}

static void test_what_stands_in_the_way(void) {
    static const struct {
        const char *body, *says;
    } rows[] = {
        {"echo '==PROF== Connected'; echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
         "NVIDIA GPU Performance Counters on the target device 0.'; exit 9\n",
         "ERR_NVGPUCTRPERM"},
        {"echo '==ERROR== Unknown option: --x' >&2; exit 1\n", "ncu says: Unknown option: --x"},
        {"exit 3\n", "ncu ended with status 3"},
        {"echo '==WARNING== No kernels were profiled.'\n", "ncu saw none of these kernels"},
        {TABLE(ROW("0", "another", "71.34")), "ncu saw none of these kernels"},
        {TABLE(ROW("0", "scan", "n/a")), "ncu saw none of these kernels"},
        {"echo '\"ID\",\"Kernel Name\"'; echo '\"0\",\"scan\"'; echo '\"'\n", "ncu saw none of these kernels"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kernel_use use = {.launch = {.name = "scan", .grid = 8}};
        write_ncu(rows[i].body);
        measure(&use, 1);
        CHECK_ROW(strstr(why, rows[i].says) && use.measured == 0, "row %zu: %s", i, why);
    }
}

static void test_nothing_to_start(void) {
    kernel_use use = {.launch = {.name = "scan", .grid = 8}};
    char path[64];
    measure(&use, 0);
    CHECK_ROW(strstr(why, "by itself"), "%s", why);
    snprintf(path, sizeof path, "%s/ncu", folder);
    unlink(path);
    if (access("/usr/local/cuda/bin/ncu", X_OK) == 0 || access("/usr/bin/ncu", X_OK) == 0) return;
    setenv("PATH", "/usr/bin:/bin", 1);
    measure(&use, 1);
    CHECK_ROW(strstr(why, "no ncu on the PATH"), "%s", why);
}

int main(void) {
    char path[4200];
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    test_numbers();
    test_what_stands_in_the_way();
    test_nothing_to_start();
    snprintf(path, sizeof path, "%s/said", folder);
    unlink(path);
    rmdir(folder);
    return test_end();
}
