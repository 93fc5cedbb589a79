/* Small pieces that the vectorised kernels of several operators share. */
#ifndef TNI_RUNS_H
#define TNI_RUNS_H

#include "core/host/arith.h"
#include "cpu/rows.h"
#include "cpu/vec/vec.h"

/* Vectors that are not full: an instruction where there are masks, elsewhere a function of their own, since they are
 * many places in the code and few in the run. */
#if defined(TNI_ISA_avx512)
#define TAIL TNI_INLINE
#else
#define TAIL static __attribute__((noinline, unused))
#endif

TAIL vreal load_tail(tn_type t, const void *p, int64_t i, int64_t n, real fill) {
    return v_load_n(t, p, i, n, fill);
}

TAIL void store_tail(tn_type t, void *p, int64_t i, int64_t n, vreal v) {
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

TNI_INLINE void widen_run(const tn_type t, const void *from, real *to, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(V_NATIVE, to, i, v_load(t, from, i));
    if (i < n) store_tail(V_NATIVE, to, i, n - i, load_tail(t, from, i, n - i, 0));
}

TNI_INLINE void narrow_run(const tn_type t, const real *from, void *to, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(t, to, i, v_load(V_NATIVE, from, i));
    if (i < n) store_tail(t, to, i, n - i, load_tail(V_NATIVE, from, i, n - i, 0));
}

/* sums[i] += from[i] */
TNI_INLINE void add_to_run(const tn_type t, const void *from, real *sums, int64_t n) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store(V_NATIVE, sums, i, v_load(V_NATIVE, sums, i) + v_load(t, from, i));
    if (i < n) {
        const vreal sum = load_tail(V_NATIVE, sums, i, n - i, 0) + load_tail(t, from, i, n - i, 0);
        store_tail(V_NATIVE, sums, i, n - i, sum);
    }
}

/* A vector parameter v of n numbers as an array of `real`: its own memory where that is one, else written to `buffer`.
 * Where it is absent, all are `absent`. */
static inline const real *reals_of(const tn_view *v, int64_t n, real absent, real *buffer) {
    if (v && v->type == V_NATIVE && (v->strides[0] == 1 || n <= 1)) return v->data;
#if defined(TNI_REAL_f32) /* V_BY_TYPE has no 16-bit types where arithmetic is f64 */
    if (v && (v->type == TN_F16 || v->type == TN_BF16) && (v->strides[0] == 1 || n <= 1)) {
        V_BY_TYPE(v->type, widen_run, v->data, buffer, n);
        return buffer;
    }
#endif
    for (int64_t i = 0; i < n; i++) buffer[i] = v ? r_load(v->type, v->data, i * v->strides[0]) : absent;
    return buffer;
}

#endif
