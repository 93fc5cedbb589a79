/* Which instruction sets this machine has. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "isa.h"

static uint32_t found;

#if defined(__x86_64__)
#include <cpuid.h>

/* The compiler's run-time check asks the processor, and the system whether it saves the wide registers. */
static uint32_t detect(void) {
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C; /* clang 14 cannot be asked for this one */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return (avx2 ? TN_ISA_AVX2 : 0) | (avx512 ? TN_ISA_AVX512 : 0);
}

#else

static uint32_t detect(void) {
    return 0;
}

#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Armv8.6, and some before. */
static bool detect_bf16(void) {
    enum { BF16 = 1 << 14 };
    return getauxval(AT_HWCAP2) & BF16;
}

#else

static bool detect_bf16(void) {
    return false;
}

#endif

/* TENON_ISA=none|avx2|avx512: nothing beyond that. */
static uint32_t allowed(void) {
    const char *most = getenv("TENON_ISA");
    if (most != NULL && strcmp(most, "none") == 0) return 0;
    if (most != NULL && strcmp(most, "avx2") == 0) return TN_ISA_AVX2;
    return TN_ISA_AVX2 | TN_ISA_AVX512;
}

static bool has_bf16;

static void find(void) {
    const char *most = getenv("TENON_ISA");
    found = detect() & allowed();
    has_bf16 = detect_bf16() && !(most && strcmp(most, "none") == 0);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

uint32_t tni_cpu_isa(void) {
    pthread_once(&once, find);
    return found;
}

bool tni_cpu_bf16(void) {
    pthread_once(&once, find);
    return has_bf16;
}
