/* Sums of what a move brings to several places: a thread has an output. */
#include "fold.cuh"

TN_DEVICE tni_sources sources_of(const tni_fold_job &p, int d, i64 index) {
    if (d < 0) return tni_sources{{0, 0}, {1, 0}, 1};
    return tni_sources_of(&p.dims[d].map, index);
}

template <class T> TN_DEVICE void fold(const tni_fold_job &p) {
    const u64 i = (u64)blockIdx.x * TNI_FOLD_THREADS + threadIdx.x;
    if (i >= (u64)p.count) return;
    u64 left = i;
    i64 to = 0, from = 0, near[TNI_FOLD_NEAR] = {0, 0}, far[TNI_FOLD_DIMS];
    u64 terms = 1; /* of the far dimensions together */
    bool any = true;
#pragma unroll 1
    for (int d = 0; d < p.n_dims; d++) {
        const u64 n = (u64)p.dims[d].map.n;
        const u64 rest = p.is_short ? quotient((u32)left, p.dims[d].divisor) : left / n;
        const i64 index = (i64)(left - rest * n);
        left = rest;
        to += index * p.dims[d].to;
        if (d == p.near[0]) {
            near[0] = index;
        } else if (d == p.near[1]) {
            near[1] = index;
        } else if (p.dims[d].far >= 0) {
            const tni_sources s = tni_sources_of(&p.dims[d].map, index);
            far[p.dims[d].far] = index;
            terms *= (u64)(s.counts[0] + s.counts[1]);
        } else {
            const i64 at = index + p.dims[d].map.before; /* the map is plain, or cuts */
            any = any && at >= 0 && at < p.dims[d].map.size;
            from += at * p.dims[d].from;
        }
    }
    const tni_sources a = sources_of(p, p.near[0], near[0]), b = sources_of(p, p.near[1], near[1]);
    const i64 step_a = p.near[0] < 0 ? 0 : p.dims[p.near[0]].from, step_b = p.near[1] < 0 ? 0 : p.dims[p.near[1]].from;
    acc<T> sum = 0; /* of some terms; those sums are added up in double */
    f64 total = 0;
    int depth = 0;
#pragma unroll 1
    for (u64 t = 0; any && t < terms; t++) {
        i64 at = from;
        u64 k = t;
#pragma unroll 1
        for (int d = 0; d < p.n_dims && p.n_far > 0; d++) {
            if (p.dims[d].far < 0) continue;
            const tni_sources s = tni_sources_of(&p.dims[d].map, far[p.dims[d].far]);
            const u64 n = (u64)(s.counts[0] + s.counts[1]);
            at += tni_source_at(&s, (i64)(k % n)) * p.dims[d].from;
            k /= n;
        }
#pragma unroll 1
        for (i64 q = 0; q < b.counts[0] + b.counts[1]; q++) {
            const T *row = (const T *)p.from + at + tni_source_at(&b, q) * step_b;
#pragma unroll 4
            for (i64 r = 0; r < a.counts[0] + a.counts[1]; r++) {
                sum += widen(row[tni_source_at(&a, r) * step_a]);
                if (++depth < TNI_FOLD_DEEP) continue;
                total += sum;
                sum = 0;
                depth = 0;
            }
        }
    }
    narrow((acc<T>)(total + sum), ((T *)p.to)[to]);
}

#define FOLD(T, type) TN_ROW_KERNEL(fold_##type, TNI_FOLD_THREADS, 4, tni_fold_job, (fold<T>(p)))
TN_FOR_TYPES(FOLD)
