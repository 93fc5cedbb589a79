/* Which instruction sets this machine has. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "isa.h"

static uint32_t found;

#if defined(__x86_64__)
#include <cpuid.h>

/* The registers that the system saves when it switches threads: without it their instructions are not allowed. */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Asks the processor itself: zig's libraries lack __builtin_cpu_supports. */
static uint32_t detect(void) {
    enum { YMM = 0x06, ZMM = 0xe6 };
    const unsigned beside_avx2 = bit_FMA | bit_F16C | bit_OSXSAVE;
    const unsigned all_avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & beside_avx2) != beside_avx2) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const uint32_t saved = saved_registers();
    const bool avx2 = b & bit_AVX2 && (saved & YMM) == YMM;
    const bool avx512 = avx2 && (b & all_avx512) == all_avx512 && (saved & ZMM) == ZMM;
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
