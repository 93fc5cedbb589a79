/* The vector functions against the C library in the next wider precision: every variant that this machine runs, every
 * exponent, both signs, many mantissas, and the special values. Bounds: f32 2 ulp, f64 3 ulp.
 *     test_vec_math           some seconds
 *     test_vec_math --full    all 2^32 floats: minutes for each function */
#include <math.h>
#include <stdlib.h>

#include "cpu/isa.h"
#include "cpu/vec/math_cpu.h"
#include "tests/test.h"

enum { BATCH = 4099 }; /* odd: the last vector of a batch is not full */

typedef struct function {
    const char *name;
    uint32_t needs; /* TN_ISA_… */
    bool negative;  /* only x <= 0 */
    void (*f32)(const float *, float *, int64_t);
    void (*f64)(const double *, double *, int64_t);
    double (*wide)(double);
    long double (*wider)(long double);
} function;

#define ROW(name, isa, needs, negative, reference) \
    { #name " " #isa, needs, negative, vec_##name##_##isa##_f32, vec_##name##_##isa##_f64, reference, reference##l }
#define ROWS(isa, needs, unused)                                                                                \
    ROW(exp, isa, needs, false, exp), ROW(exp_scaled, isa, needs, true, exp), ROW(log, isa, needs, false, log), \
        ROW(tanh, isa, needs, false, tanh), ROW(erf, isa, needs, false, erf), ROW(sin, isa, needs, false, sin), \
        ROW(cos, isa, needs, false, cos),

static const function functions[] = {TNI_VARIANTS(ROWS, )};

typedef struct worst {
    double ulps;
    double at;
} worst;

static void note(worst *w, double ulps, double at) {
    if (ulps > w->ulps || ulps != ulps) *w = (worst){ulps, at};
}

/* How far y is from the true value, in units of the last place of a number with `digits` bits whose exponents end at
 * `least`. Signs of zero, infinities and NaN must be the same: else infinity. */
static double ulps_off(double y, long double truth, double rounded, int digits, int least) {
    if (isnan(rounded) || isnan(y)) return isnan(rounded) && isnan(y) ? 0 : INFINITY;
    if (isinf(rounded) && y == rounded) return 0;
    if (rounded == 0 && y == 0) return !signbit(y) == !signbit(rounded) ? 0 : INFINITY;
    if (isinf(y)) return INFINITY;
    int exponent = truth == 0 ? least : (int)ilogbl(truth);
    if (exponent < least) exponent = least;
    return (double)(fabsl((long double)y - truth) / ldexpl(1, exponent - digits + 1));
}

static void check_f32(const function *f, const float *x, int64_t n, worst *w) {
    static float y[BATCH];
    f->f32(x, y, n);
    for (int64_t i = 0; i < n; i++) {
        double truth = f->wide(x[i]);
        if ((float)truth == y[i] && y[i] != 0) continue;
        note(w, ulps_off(y[i], truth, (float)truth, 24, -126), x[i]);
    }
}

static void check_f64(const function *f, const double *x, int64_t n, worst *w) {
    static double y[BATCH];
    f->f64(x, y, n);
    for (int64_t i = 0; i < n; i++) {
        long double truth = f->wider(x[i]);
        note(w, ulps_off(y[i], truth, (double)truth, 53, -1022), x[i]);
    }
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state ^ *state >> 29;
}

/* Both ends of the mantissas, then random ones; exponent 255 is infinity and NaN. */
static worst sweep_f32(const function *f) {
    static float x[BATCH];
    worst w = {0, 0};
    uint64_t seed = 1;
    for (uint32_t high = f->negative ? 256 : 0; high < 512; high++) {
        for (int i = 0; i < BATCH; i++) {
            uint32_t mantissa = i < 64    ? (uint32_t)i
                                : i < 128 ? 0x7fffff - (uint32_t)(i - 64)
                                          : next_random(&seed) >> 41;
            x[i] = float_of(high << 23 | mantissa);
        }
        check_f32(f, x, BATCH, &w);
    }
    return w;
}

static worst every_f32(const function *f) {
    static float x[BATCH];
    worst w = {0, 0};
    uint64_t bits = f->negative ? (uint64_t)1 << 31 : 0;
    while (bits >> 32 == 0) {
        int64_t n = 0;
        for (; n < BATCH && bits >> 32 == 0; n++, bits++) x[n] = float_of((uint32_t)bits);
        check_f32(f, x, n, &w);
    }
    return w;
}

static worst sweep_f64(const function *f) {
    static double x[BATCH];
    enum { EACH = 16, NEAR = 40000 };
    worst w = {0, 0};
    uint64_t seed = 2;
    for (uint64_t high = f->negative ? 2048 : 0; high < 4096; high++) {
        for (int i = 0; i < EACH; i++) {
            uint64_t mantissa = i == 0 ? 0 : i == 1 ? ~(uint64_t)0 >> 12 : next_random(&seed) >> 12;
            x[i] = double_of(high << 52 | mantissa);
        }
        check_f64(f, x, EACH, &w);
    }
    /* where the functions are neither 0 nor 1 nor x */
    const double widths[] = {1, 8, 750};
    for (int k = 0; k < 3 * NEAR; k++) {
        double u = (double)(next_random(&seed) >> 11) * 0x1p-53, width = widths[k % 3];
        x[k % BATCH] = f->negative ? -width * u : width * (2 * u - 1);
        if (k % BATCH == BATCH - 1) check_f64(f, x, BATCH, &w);
    }
    return w;
}

/* Every length up to some vectors, in place, at every alignment: the same bits, and nothing written beside. */
static void check_lengths(const function *f) {
    float x[70], y[72], whole[70];
    for (int i = 0; i < 70; i++) x[i] = -(float)i * 0.11f;
    f->f32(x, whole, 70);
    for (int n = 0; n <= 64; n++) {
        for (int from = 0; from < 4; from++) {
            for (int i = 0; i < 72; i++) y[i] = 77;
            memcpy(y + from, x, (size_t)n * sizeof(float));
            f->f32(y + from, y + from, n);
            bool same = memcmp(y + from, whole, (size_t)n * sizeof(float)) == 0;
            for (int i = 0; i < 72; i++) same = same && ((i >= from && i < from + n) || y[i] == 77);
            CHECK_ROW(same, "%s n=%d from=%d", f->name, n, from);
        }
    }
}

static void check_function(const function *f, bool full) {
    worst narrow = full ? every_f32(f) : sweep_f32(f);
    printf("%-18s f32 %.3f ulp at %a", f->name, narrow.ulps, narrow.at);
    CHECK_ROW(narrow.ulps <= 2, "%s f32: %g ulp at %a", f->name, narrow.ulps, narrow.at);
    worst wide = sweep_f64(f);
    printf(", f64 %.3f ulp at %a\n", wide.ulps, wide.at);
    CHECK_ROW(wide.ulps <= 3, "%s f64: %g ulp at %a", f->name, wide.ulps, wide.at);
    check_lengths(f);
}

int main(int argc, char **argv) {
    bool full = argc > 1 && strcmp(argv[1], "--full") == 0;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if ((functions[i].needs & ~tni_cpu_isa()) == 0) check_function(&functions[i], full);
    }
    return test_end();
}
