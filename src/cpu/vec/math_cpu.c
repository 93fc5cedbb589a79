#include "math_cpu.h"
#include "vec.h"

TNI_INLINE vreal exp_unscaled(vreal x) {
    return v_exp_scaled(x) * V_EXP_UNSCALE;
}

TNI_INLINE void apply(vreal (*f)(vreal), const real *x, real *y, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(V_NATIVE, y, i, f(v_load(V_NATIVE, x, i)));
    if (i < n) v_store_n(V_NATIVE, y, i, n - i, f(v_load_n(V_NATIVE, x, i, n - i, 0)));
}

void TNI_CPU(vec_exp)(const real *x, real *y, int64_t n) {
    apply(v_exp, x, y, n);
}

void TNI_CPU(vec_exp_scaled)(const real *x, real *y, int64_t n) {
    apply(exp_unscaled, x, y, n);
}

void TNI_CPU(vec_log)(const real *x, real *y, int64_t n) {
    apply(v_log, x, y, n);
}

void TNI_CPU(vec_tanh)(const real *x, real *y, int64_t n) {
    apply(v_tanh, x, y, n);
}

void TNI_CPU(vec_sin)(const real *x, real *y, int64_t n) {
    apply(v_sin, x, y, n);
}

void TNI_CPU(vec_cos)(const real *x, real *y, int64_t n) {
    apply(v_cos, x, y, n);
}

void TNI_CPU(vec_erf)(const real *x, real *y, int64_t n) {
    apply(v_erf, x, y, n);
}
