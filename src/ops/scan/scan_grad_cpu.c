/* The gradients of cumprod, vectorised: along the axis in order, with many rows side by side (scan_lanes.h). scan.h
 * says what is computed. */
#include "scan.h"

#include "ops/runs.h"
#include "scan_lanes.h"

typedef struct job {
    tni_scan_grad g;
    tn_type type;
    tni_lanes lanes;
    int64_t ahead; /* from an element to the next one, in the order of the product */
    real *s;       /* as many as elements, for the second gradient */
} job;

/* The element of the first lane at place i, in the order of the product. */
TNI_INLINE int64_t place(const job *j, int64_t first, int64_t i) {
    return first + (j->g.reverse ? j->g.n - 1 - i : i) * j->g.inner;
}

/* s[i] of a lane from s[i + 1]; `last`: there is none. at: the lane's element i. */
TNI_INLINE double next_s(const tn_type t, const job *j, int64_t at, double s, const bool exclusive, const bool last) {
    const double x = last ? 0 : (double)r_load(t, j->g.x->data, at + j->ahead);
    if (!exclusive) return (double)r_load(t, j->g.dy->data, at) + tni_scan_times(x, s);
    return last ? 0 : (double)r_load(t, j->g.dy->data, at + j->ahead) + tni_scan_times(x, s);
}

/* p[i] */
TNI_INLINE double before(const tn_type t, const job *j, int64_t at, const bool exclusive, const bool first) {
    if (exclusive) return (double)r_load(t, j->g.y->data, at);
    return first ? 1 : (double)r_load(t, j->g.y->data, at - j->ahead);
}

TNI_INLINE void grad_step(const tn_type t, const job *j, int64_t i, int64_t at, int64_t count, const int64_t apart,
                          double *s, const bool exclusive) {
    const bool last = i == j->g.n - 1;
    for (int64_t c = 0; c < count; c++) {
        s[c] = next_s(t, j, at + c * apart, s[c], exclusive, last);
        r_store(t, j->g.dx->data, at + c * apart, (real)(before(t, j, at + c * apart, exclusive, i == 0) * s[c]));
    }
}

TNI_INLINE void grad_lanes(const tn_type t, const job *j, int64_t first, int64_t count, const int64_t apart) {
    double s[TNI_LANES] = {0};
    for (int64_t i = j->g.n - 1; i >= 0; i--) {
        const int64_t at = place(j, first, i);
        if (j->g.exclusive)
            grad_step(t, j, i, at, count, apart, s, true);
        else
            grad_step(t, j, i, at, count, apart, s, false);
    }
}

TNI_INLINE void grad_any(const tn_type t, const job *j, int64_t first, int64_t count) {
    if (j->g.inner > 1)
        grad_lanes(t, j, first, count, 1);
    else
        grad_lanes(t, j, first, count, j->g.n);
}

static void do_grad(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count);
        V_BY_TYPE(j->type, grad_any, j, first, count);
    }
}

static tn_status run(const tn_call *call, job *j, tn_body body) {
    j->type = j->g.x->type;
    if (tn_count(j->g.x) == 0) return TN_OK;
    j->lanes = tni_lanes_of(j->g.outer, j->g.n, j->g.inner);
    j->ahead = j->g.reverse ? -j->g.inner : j->g.inner;
    tn_parallel(call, j->lanes.units, tni_row_grain(j->g.n * j->lanes.width), body, j);
    return TN_OK;
}

tn_status TNI_CPU(cumprod_grad)(const tn_call *call, void *state) {
    (void)state;
    job j = {.g = tni_scan_grad_of(call)};
    return run(call, &j, do_grad);
}

/* ---- the gradient of that ---------------------------------------------------------------------------------------- */

TNI_INLINE void store_if(const tn_type t, const tn_view *v, int64_t at, double value) {
    if (v) r_store(t, v->data, at, (real)value);
}

/* Lane by lane: its s is written down from behind, then read from the front. */
TNI_INLINE void grad_grad_lane(const tn_type t, const job *j, int64_t first) {
    const tni_scan_grad *g = &j->g;
    const int64_t n = g->n, ahead = j->ahead;
    const bool exclusive = g->exclusive;
    double s = 0, a = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t at = place(j, first, i);
        s = next_s(t, j, at, s, exclusive, i == n - 1);
        j->s[at] = (real)s;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = place(j, first, i);
        const double ddx = (double)r_load(t, g->ddx->data, at), s_i = (double)j->s[at];
        store_if(t, g->gx, at, i > 0 ? a * s_i : 0);
        if (exclusive || i > 0) store_if(t, g->gy, exclusive ? at : at - ahead, ddx * s_i);
        if (exclusive) store_if(t, g->gdy, at, a);
        a = ddx * before(t, j, at, exclusive, i == 0) + tni_scan_times((double)r_load(t, g->x->data, at), a);
        if (!exclusive) store_if(t, g->gdy, at, a);
    }
    if (!exclusive) store_if(t, g->gy, place(j, first, n - 1), 0); /* no product has it before it */
}

/* Compiled once: two copies could round a sum of two products in two ways. */
static __attribute__((noinline)) void any_grad_grad_lane(const job *j, int64_t first) {
    V_BY_TYPE(j->type, grad_grad_lane, j, first);
}

static void do_grad_grad(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t u = begin; u < end; u++) {
        int64_t count;
        const int64_t first = tni_lanes_at(&j->lanes, u, &count), apart = j->g.inner > 1 ? 1 : j->g.n;
        for (int64_t c = 0; c < count; c++) any_grad_grad_lane(j, first + c * apart);
    }
}

tn_status TNI_CPU(cumprod_grad_grad)(const tn_call *call, void *state) {
    (void)state;
    job j = {.g = tni_scan_grad_grad_of(call), .s = call->workspace};
    return run(call, &j, do_grad_grad);
}
