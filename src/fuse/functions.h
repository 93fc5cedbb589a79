/* The primitives as functions of vectors: for the interpreter's loops (loops_cpu.c), and for the loops that are made of
 * formulas, whose compiler is given this file and src/cpu/vec*.h (emit_c.c). */
#ifndef TNI_FUSE_FUNCTIONS_H
#define TNI_FUSE_FUNCTIONS_H

TNI_INLINE vreal f_neg(vreal x) {
    return -x;
}
TNI_INLINE vreal f_abs(vreal x) {
    return v_abs(x);
}
TNI_INLINE vreal f_sign(vreal x) {
    vreal none = v_select((vint)(x != x), x, v_set(0));
    return v_select((vint)(x > 0), v_set(1), v_select((vint)(x < 0), v_set(-1), none));
}
TNI_INLINE vreal f_sqrt(vreal x) {
    return v_sqrt(x);
}
TNI_INLINE vreal f_rsqrt(vreal x) {
    return 1 / v_sqrt(x);
}
TNI_INLINE vreal f_exp(vreal x) {
    return v_exp(x);
}
TNI_INLINE vreal f_log(vreal x) {
    return v_log(x);
}
TNI_INLINE vreal f_sin(vreal x) {
    return v_sin(x);
}
TNI_INLINE vreal f_cos(vreal x) {
    return v_cos(x);
}
TNI_INLINE vreal f_tanh(vreal x) {
    return v_tanh(x);
}
TNI_INLINE vreal f_erf(vreal x) {
    return v_erf(x);
}
TNI_INLINE vreal f_relu(vreal x) {
    return v_max(x, v_set(0));
}

/* 1 / (1 + exp(-x)), both sides of the fraction times c, a power of 2 so small that exp cannot overflow. From where the
 * result is 1 on, and below where it is 0, x makes no difference. */
TNI_INLINE vreal f_sigmoid(vreal x) {
    const real shift = sizeof(real) == 4 ? -30 : -100, c = sizeof(real) == 4 ? (real)0x1p-30 : (real)0x1p-100;
    x = v_atmost(v_atleast(x, v_set(sizeof(real) == 4 ? -104 : -746)), v_set(sizeof(real) == 4 ? 20 : 40));
    return c / (c + exp_shifted(-x, shift));
}

/* log(1 + x), with what 1 + x has rounded away put back. Below 1 ulp of 1 it is x itself. */
TNI_INLINE vreal f_log1p(vreal x) {
    vreal u = 1 + x, y = v_log(u) - ((u - 1) - x) / u;
    y = v_select((vint)(u == 1), x, y);
    vint plain = (vint)(u == 0) | (vint)(x == (real)INFINITY);
    return v_select(plain, v_log(u), y);
}

/* u = exp(x) has an error that log(u) tells: (u - 1) x / log(u) is right where u - 1 is not. */
TNI_INLINE vreal f_expm1(vreal x) {
    vreal u = v_exp(x), less = u - 1, y = less * (x / v_log(u));
    y = v_select((vint)(u == 1), x, y);
    vint plain = (vint)(less == -1) | (vint)(u == (real)INFINITY);
    return v_select(plain, less, y);
}

TNI_INLINE vreal f_softplus(vreal x) {
    return v_max(x, v_set(0)) + f_log1p(v_exp(-v_abs(x)));
}

TNI_INLINE vreal f_add(vreal a, vreal b) {
    return a + b;
}
TNI_INLINE vreal f_sub(vreal a, vreal b) {
    return a - b;
}
TNI_INLINE vreal f_mul(vreal a, vreal b) {
    return a * b;
}
TNI_INLINE vreal f_div(vreal a, vreal b) {
    return a / b;
}
TNI_INLINE vreal f_min(vreal a, vreal b) {
    return v_min(a, b);
}
TNI_INLINE vreal f_max(vreal a, vreal b) {
    return v_max(a, b);
}

#endif
