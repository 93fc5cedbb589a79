/* Small pieces that the vectorised kernels of several operators share. */
#ifndef TNI_RUNS_H
#define TNI_RUNS_H

#include "core/host/arith.h"
#include "cpu/rows.h"
#include "cpu/vec/vec.h"

/* Vectors that are not full: a function of their own, since they are many places in the code and few in the run. */
static __attribute__((noinline, unused)) vreal load_tail(tn_type t, const void *p, int64_t i, int64_t n, real fill) {
    return v_load_n(t, p, i, n, fill);
}

static __attribute__((noinline, unused)) void store_tail(tn_type t, void *p, int64_t i, int64_t n, vreal v) {
    v_store_n(t, p, i, n, v);
}

/* As v_load_n and v_store_n, and as v_load and v_store where the vector is full. */
TNI_INLINE vreal v_load_some(const tn_type t, const void *p, int64_t i, int64_t n, real fill) {
    return n >= VL ? v_load(t, p, i) : load_tail(t, p, i, n, fill);
}

TNI_INLINE void v_store_some(const tn_type t, void *p, int64_t i, int64_t n, vreal v) {
    if (n >= VL)
        v_store(t, p, i, v);
    else
        store_tail(t, p, i, n, v);
}

/* A vector parameter v of n numbers as an array of `real`: its own memory where that is one, else written to `buffer`.
 * Where it is absent, all are `absent`. */
static inline const real *reals_of(const tn_view *v, int64_t n, real absent, real *buffer) {
    if (v && v->type == V_NATIVE && (v->strides[0] == 1 || n <= 1)) return v->data;
    for (int64_t i = 0; i < n; i++) buffer[i] = v ? r_load(v->type, v->data, i * v->strides[0]) : absent;
    return buffer;
}

#endif
