/* What machine this is. */
#include "bench.h"
#include "cpu/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first line of a program's output or a file that begins with `key`, behind its colon. */
static bool find_line(FILE *f, const char *key, char *to, size_t size) {
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = strchr(line, ':');
        if (!value) continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(to, size, "%.*s", (int)strcspn(value, "\n"), value);
        return true;
    }
    return false;
}

/* Arm's part numbers, as /proc/cpuinfo has no names there. */
static const struct {
    const char *part, *name;
} arm_parts[] = {
    {"0xd03", "Cortex-A53"},  {"0xd07", "Cortex-A57"},  {"0xd08", "Cortex-A72"},  {"0xd0b", "Cortex-A76"},
    {"0xd0c", "Neoverse-N1"}, {"0xd40", "Neoverse-V1"}, {"0xd49", "Neoverse-N2"}, {"0xd4f", "Neoverse-V2"},
    {"0xd84", "Neoverse-V3"}, {"0xd8e", "Neoverse-N3"},
};

const char *bench_cpu(void) {
    static char name[256];
    if (name[0]) return name;
    snprintf(name, sizeof name, "unknown");
    char part[64] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    bool named = find_line(f, "model name", name, sizeof name);
    if (f) rewind(f);
    if (!named && find_line(f, "CPU part", part, sizeof part)) {
        snprintf(name, sizeof name, "Arm part %s", part);
        for (size_t i = 0; i < sizeof arm_parts / sizeof *arm_parts; i++) {
            if (strcmp(part, arm_parts[i].part) == 0) snprintf(name, sizeof name, "Arm %s", arm_parts[i].name);
        }
    }
    if (f) fclose(f);
    return name;
}

int bench_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

#if defined(__aarch64__)
static const char BASELINE[] = "neon";
#elif defined(__x86_64__)
static const char BASELINE[] = "sse2";
#else
static const char BASELINE[] = "vector";
#endif

const char *bench_isa(void) {
    static char text[32];
    uint32_t isa = tni_cpu_isa();
    snprintf(text, sizeof text, "%s%s%s", isa & TN_ISA_AVX512 ? "avx512 " : "", isa & TN_ISA_AVX2 ? "avx2 " : "",
             BASELINE);
    return text;
}

int64_t bench_cache(void) {
    int64_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[96];
        long long size = 0;
        char unit = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%lld%c", &size, &unit) >= 1) {
            int64_t bytes = size * (unit == 'K' ? 1024 : unit == 'M' ? 1 << 20 : 1);
            if (bytes > most) most = bytes;
        }
        fclose(f);
    }
    return most > 0 ? most : (int64_t)32 << 20;
}

const char *bench_date(void) {
    static char text[32];
    time_t t = time(NULL);
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
    return text;
}
