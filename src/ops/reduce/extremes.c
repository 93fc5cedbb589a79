/* Which calls of max, min, argmax and argmin the vectorised kernels of extremes_cpu.c take. The operators themselves
 * are formulas (ops/formulas/reductions.c), which take all others. */
#include "extremes.h"

#include "core/layout/layout.h"
#include "cpu/vec/variants.h"

TNI_CPU_DECLARE(max)
TNI_CPU_DECLARE(min)
TNI_CPU_DECLARE(argmax)
TNI_CPU_DECLARE(argmin)

static uint32_t reduced(const tn_view *x, const tn_value *axes) {
    uint32_t made = axes->count ? 0 : (1u << x->ndim) - 1;
    for (int32_t k = 0; k < axes->count; k++) made |= 1u << axes->ints[k];
    return made;
}

/* Dimensions that are reduced must follow each other: what is counted then lies in its order. */
tni_extreme_along tni_extreme_along_of(const tn_call *call) {
    const argmax_args a = argmax_args_of(call);
    const uint32_t gone = reduced(a.x, a.axes);
    tni_extreme_along p = {.x = a.x, .y = a.index, .outer = 1, .n = 1, .inner = 1};
    bool apart = false;
    for (int d = 0; d < a.x->ndim; d++) {
        const int64_t size = a.x->shape[d];
        if (size == 1) continue;
        if (gone >> d & 1) {
            apart = apart || p.inner != 1;
            p.n *= size;
        } else if (p.n == 1) {
            p.outer *= size;
        } else {
            p.inner *= size;
        }
    }
    if (apart || p.n > INT32_MAX) p.n = 0;
    return p;
}

static bool accepts(const tn_call *call) {
    const tni_extreme_along p = tni_extreme_along_of(call);
    return p.n > 0 && tni_is_dense(p.x->ndim, p.x->shape, p.x->strides) &&
           tni_is_dense(p.y->ndim, p.y->shape, p.y->strides);
}

/* A long row is one unit of work here, and the formula shares it out. By the shape alone. */
static bool accepts_values(const tn_call *call) {
    enum { UNITS = 16, LITTLE = 65536 /* elements */ };
    const tni_extreme_along e = tni_extreme_along_of(call);
    return accepts(call) && (e.n * e.inner <= LITTLE || e.outer * ceil_div(e.inner, TNI_EXTREMES_TILE) >= UNITS);
}

#define KERNELS(op, which)                                            \
    {                                                                 \
        TNI_CPU_KERNELS(op, .flags = TN_STRIDED, .accepts = which), { \
            0                                                         \
        }                                                             \
    }

const tn_kernel tni_max_kernels[] = KERNELS(max, accepts_values);
const tn_kernel tni_min_kernels[] = KERNELS(min, accepts_values);
const tn_kernel tni_argmax_kernels[] = KERNELS(argmax, accepts);
const tn_kernel tni_argmin_kernels[] = KERNELS(argmin, accepts);
