/* Squares of VL x VL numbers, transposed in registers. */
#ifndef TNI_TRANSPOSE_H
#define TNI_TRANSPOSE_H

#include "vec.h"

/* Lane l of the vectors a and b, exchanged in blocks of d lanes: even blocks of both in `low`, odd ones in `high`. */
#define TRANSPOSE_LOW(l, d) ((l) & (d) ? VL + ((l) ^ (d)) : (l))
#define TRANSPOSE_HIGH(l, d) ((l) & (d) ? VL + (l) : (l) ^ (d))
#define TRANSPOSE_2(F, d) F(0, d), F(1, d)
#define TRANSPOSE_4(F, d) TRANSPOSE_2(F, d), F(2, d), F(3, d)
#define TRANSPOSE_8(F, d) TRANSPOSE_4(F, d), F(4, d), F(5, d), F(6, d), F(7, d)
#define TRANSPOSE_16(F, d) \
    TRANSPOSE_8(F, d), F(8, d), F(9, d), F(10, d), F(11, d), F(12, d), F(13, d), F(14, d), F(15, d)
#define TRANSPOSE_LANES_(n, F, d) TRANSPOSE_##n(F, d)
#define TRANSPOSE_LANES(n, F, d) TRANSPOSE_LANES_(n, F, d)

#if defined(TNI_ISA_avx512) && defined(TNI_REAL_f32)
#define TRANSPOSE_VL 16
#elif defined(TNI_ISA_avx512) || (defined(TNI_ISA_avx2) && defined(TNI_REAL_f32))
#define TRANSPOSE_VL 8
#elif defined(TNI_ISA_avx2) || defined(TNI_REAL_f32)
#define TRANSPOSE_VL 4
#else
#define TRANSPOSE_VL 2
#endif
_Static_assert(TRANSPOSE_VL == VL, "lanes of a vector");

#define TRANSPOSE_STAGE(t, d)                                                                           \
    _Pragma("GCC unroll 16") for (int i = 0; i < VL; i++) {                                             \
        if (i & (d)) continue;                                                                          \
        const vreal a = (t)[i], b = (t)[i + (d)];                                                       \
        (t)[i] = __builtin_shufflevector(a, b, TRANSPOSE_LANES(TRANSPOSE_VL, TRANSPOSE_LOW, d));        \
        (t)[i + (d)] = __builtin_shufflevector(a, b, TRANSPOSE_LANES(TRANSPOSE_VL, TRANSPOSE_HIGH, d)); \
    }

/* Lane j of t[i] and lane i of t[j] change places. */
TNI_INLINE void v_transpose(vreal t[VL]) {
    TRANSPOSE_STAGE(t, 1)
#if TRANSPOSE_VL >= 4
    TRANSPOSE_STAGE(t, 2)
#endif
#if TRANSPOSE_VL >= 8
    TRANSPOSE_STAGE(t, 4)
#endif
#if TRANSPOSE_VL >= 16
    TRANSPOSE_STAGE(t, 8)
#endif
}

#endif
