/* The lanes of a vector moved along, for what goes along a row within a vector. With a constant k it is an instruction
 * or two. */
#ifndef TNI_SCAN_SHIFT_H
#define TNI_SCAN_SHIFT_H

#include "cpu/vec/vec.h"

/* Lane i is lane i - k, or with `reverse` lane i + k; what comes from outside is `outside`, the same in every lane.
 * v_taken: lane i is lane from[i], which is one of v. */
#if defined(__clang__)
TNI_INLINE vreal v_shifted(vreal v, vreal outside, const int k, const bool reverse) {
    vreal r;
    for (int i = 0; i < VL; i++) {
        const int from = reverse ? i + k : i - k;
        r[i] = from >= 0 && from < VL ? v[from < 0 ? 0 : from % VL] : outside[0];
    }
    return r;
}

TNI_INLINE vreal v_taken(vreal v, vint from) {
    vreal r;
    for (int i = 0; i < VL; i++) r[i] = v[from[i]];
    return r;
}
#else
TNI_INLINE vreal v_shifted(vreal v, vreal outside, const int k, const bool reverse) {
    vint from = {0};
    for (int i = 0; i < VL; i++) from[i] = reverse ? i + k : i - k < 0 ? 2 * VL - 1 : i - k;
    return __builtin_shuffle(v, outside, from); /* VL and more: from outside */
}

TNI_INLINE vreal v_taken(vreal v, vint from) {
    return __builtin_shuffle(v, from);
}
#endif

#endif
