/* Two operations in one loop, (a + b) * c and the like, perhaps with relu behind: half the traffic between the loops.
 * This file is compiled without contraction, so that a product is rounded before it is added to: the same bits as in
 * two loops. */
#include "block_loops.h"
#include "cpu/vec/vec.h"

enum { UNROLL = 4 };

TNI_INLINE vreal first(const int op, vreal a, vreal b) {
    return op == TNI_PAIR_ADD ? a + b : op == TNI_PAIR_SUB ? a - b : a * b;
}

TNI_INLINE vreal second(const int op, const bool relu, vreal t, vreal c) {
    vreal y = op == TNI_PAIR_REVERSED ? c - t : first(op, t, c);
    return relu ? v_max(y, v_set(0)) : y;
}

/* A single value is spread out, and not moved along. */
TNI_INLINE const real *spread(const void *from, bool single, real *room) {
    const real *x = from;
    if (!single) return x;
    for (int i = 0; i < UNROLL * VL; i++) room[i] = x[0];
    return room;
}

TNI_INLINE void pair(const int op1, const int op2, const bool relu, const void *const *arg, unsigned scalars, void *out,
                     int64_t n) {
    real room[3][UNROLL * VL];
    const real *x[3];
    int64_t by[3], i = 0;
    for (int k = 0; k < 3; k++) {
        by[k] = scalars >> k & 1 ? 0 : 1;
        x[k] = n > 0 ? spread(arg[k], !by[k], room[k]) : NULL;
    }
    for (; i + UNROLL * VL <= n; i += UNROLL * VL) {
        const real *a = x[0] + by[0] * i, *b = x[1] + by[1] * i, *c = x[2] + by[2] * i;
        vreal made[UNROLL];
        for (int k = 0; k < UNROLL; k++) {
            vreal t = first(op1, v_load(V_NATIVE, a, k * VL), v_load(V_NATIVE, b, k * VL));
            made[k] = second(op2, relu, t, v_load(V_NATIVE, c, k * VL));
        }
        for (int k = 0; k < UNROLL; k++) v_store(V_NATIVE, out, i + k * VL, made[k]);
    }
    for (; i < n; i++) {
        vreal t = first(op1, v_set(x[0][by[0] * i]), v_set(x[1][by[1] * i]));
        ((real *)out)[i] = second(op2, relu, t, v_set(x[2][by[2] * i]))[0];
    }
}

#define PAIR(op1, op2)                                                                                    \
    static void pair_##op1##_##op2(const void *const *arg, unsigned scalars, void *out, int64_t n) {      \
        pair(TNI_PAIR_##op1, TNI_PAIR_##op2, false, arg, scalars, out, n);                                \
    }                                                                                                     \
    static void relu_pair_##op1##_##op2(const void *const *arg, unsigned scalars, void *out, int64_t n) { \
        pair(TNI_PAIR_##op1, TNI_PAIR_##op2, true, arg, scalars, out, n);                                 \
    }
#define PAIRS(op1) PAIR(op1, ADD) PAIR(op1, SUB) PAIR(op1, MUL) PAIR(op1, REVERSED)
PAIRS(ADD)
PAIRS(SUB)
PAIRS(MUL)

#define ROW(op1)                                                                              \
    {                                                                                         \
        {pair_##op1##_ADD, relu_pair_##op1##_ADD}, {pair_##op1##_SUB, relu_pair_##op1##_SUB}, \
            {pair_##op1##_MUL, relu_pair_##op1##_MUL}, {                                      \
            pair_##op1##_REVERSED, relu_pair_##op1##_REVERSED                                 \
        }                                                                                     \
    }
const tni_pair_loops TNI_CPU(fuse_pairs) = {{ROW(ADD), ROW(SUB), ROW(MUL)}};
