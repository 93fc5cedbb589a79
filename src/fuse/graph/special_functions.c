/* The inverse of erf, and the derivatives of lgamma. The device has the same in src/cuda/device/math.cuh. */
#include "special_functions.h"

#include <math.h>
#include <stdbool.h>

static const double PI = 3.14159265358979323846;

/* ---- erfinv ------------------------------------------------------------------------------------------------------ */

/* To 2e-3, by Winitzki's formula. */
static double about_erfinv(double y) {
    const double a = 0.147, l = log1p(-y * y), b = 2 / (PI * a) + 0.5 * l;
    return sqrt(sqrt(b * b - l / a) - b);
}

/* Each step of Halley's method takes the third power of the error. From 0.5 on, 1 - y and erfc have the bits that y and
 * erf have lost. */
double tni_erfinv(double y) {
    const double m = fabs(y);
    if (!(m < 1)) return m == 1 ? copysign((double)INFINITY, y) : (double)NAN;
    if (m < 1e-9) return y * 0.88622692545275801365; /* sqrt(pi) / 2 */
    double x = about_erfinv(m);
    for (int k = 0; k < 3; k++) {
        const double off = m < 0.5 ? erf(x) - m : (1 - m) - erfc(x);
        const double step = off * 0.88622692545275801365 * exp(x * x);
        x -= step / (1 + x * step);
    }
    return copysign(x, y);
}

/* ---- derivatives of lgamma --------------------------------------------------------------------------------------- */

/* pi / tan(pi x); the whole part of x makes no difference, and a large x would lose the rest of it. */
static double pi_over_tan(double x) {
    const double rest = x - nearbyint(x);
    return fabs(rest) == 0.5 ? 0 : PI / tan(PI * rest);
}

double tni_digamma(double x) {
    /* B(2 k) / 2 k */
    static const double series[] = {0x1.5555555555555p-4,  -0x1.1111111111111p-7, 0x1.041041041041p-8,
                                    -0x1.1111111111111p-8, 0x1.f07c1f07c1f08p-8,  -0x1.5995995995996p-6,
                                    0x1.5555555555555p-4};
    double sum = 0, tail = 0;
    if (x == 0) return -1 / x;
    if (x == -(double)INFINITY || (x < 0 && x == floor(x))) return (double)NAN;
    if (x < 0) {
        sum = -pi_over_tan(x);
        x = 1 - x;
    }
    for (; x < 10; x += 1) sum -= 1 / x;
    const double z = 1 / (x * x);
    for (int k = (int)(sizeof series / sizeof series[0]) - 1; k >= 0; k--) tail = (tail + series[k]) * z;
    return x < 1e17 ? sum + (log(x) - 0.5 / x - tail) : sum + log(x);
}

/* 1 / x^s + 1 / (x + 1)^s + … for x > 0 and a whole s > 1: some terms, and the rest by the formula of Euler and
 * Maclaurin. */
static double zeta(double s, double x) {
    /* B(2 k) / (2 k)! */
    static const double series[] = {0x1.5555555555555p-4,   -0x1.6c16c16c16c17p-10, 0x1.1566abc011567p-15,
                                    -0x1.bbd779334ef0bp-21, 0x1.66a8f2bf70ebep-26,  -0x1.22805d644267fp-31,
                                    0x1.d6db2c4e09162p-37,  -0x1.7da4e1f79955cp-42, 0x1.355871d652e9ep-47,
                                    -0x1.f57d968caacf1p-53, 0x1.967e1f09c376fp-58,  -0x1.497d9033a2b5cp-63};
    double sum = 0;
    for (; x < 10 + s / 2; x += 1) {
        const double term = pow(x, -s);
        sum += term;
        if (term < 0x1p-60 * sum) return sum;
    }
    const double power = pow(x, -s);
    double factor = s / x, tail = 0;
    for (int k = 0; k < (int)(sizeof series / sizeof series[0]); k++) {
        tail += series[k] * factor;
        factor *= (s + 2 * k + 1) / x * ((s + 2 * k + 2) / x);
    }
    return sum + power * (x / (s - 1) + 0.5 + tail);
}

/* Below 0 the terms with a negative x are those of two sums over positive ones. */
static double zeta_anywhere(double s, double x) {
    if (x > 0) return zeta(s, x);
    const double rest = x - floor(x), below = zeta(s, 1 - rest) - zeta(s, 1 - x);
    return zeta(s, rest) + (fmod(s, 2) == 0 ? below : -below);
}

double tni_polygamma(double n, double x) {
    if (n == 0) return tni_digamma(x);
    if (!(n > 0) || n != floor(n) || n > 170 || x != x || x == -(double)INFINITY) return (double)NAN;
    if (x == (double)INFINITY) return fmod(n, 2) == 1 ? 0 : -0.0;
    const bool odd = fmod(n, 2) == 1;
    if (x <= 0 && x == floor(x)) return odd ? (double)INFINITY : (double)NAN;
    const double value = tgamma(n + 1) * zeta_anywhere(n + 1, x);
    return odd ? value : -value;
}
