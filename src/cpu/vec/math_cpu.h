/* The vector functions over arrays, one set per variant (math_cpu.c): vec_exp_neon_f32(x, y, n) … y may be x. */
#ifndef TNI_MATH_CPU_H
#define TNI_MATH_CPU_H

#include "variants.h"

/* X(name): y[i] = name(x[i]). exp_scaled gives exp for x <= 0 alone; what underflows is as small, not always 0. */
#define TNI_VEC_FUNCTIONS(X) X(exp) X(exp_scaled) X(log) X(tanh) X(erf) X(sin) X(cos)

#define TNI_VEC_DECLARE_ONE(isa, needs, name)                           \
    void vec_##name##_##isa##_f32(const float *x, float *y, int64_t n); \
    void vec_##name##_##isa##_f64(const double *x, double *y, int64_t n);
#define TNI_VEC_DECLARE(name) TNI_VARIANTS(TNI_VEC_DECLARE_ONE, name)
TNI_VEC_FUNCTIONS(TNI_VEC_DECLARE)

#endif
