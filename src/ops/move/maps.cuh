/* Where elements come from, one dimension at a time; seen by both sides. Padding, rolling and repeating are the same
 * thing: element i of the result is element i - before of the operand, and a rule says what lies outside of it. Written
 * in what C and CUDA C++ share. */
#pragma once

/* In the order of pad's contract. */
enum { TNI_MAP_CONSTANT, TNI_MAP_REFLECT, TNI_MAP_REPLICATE, TNI_MAP_CIRCULAR };

/* The result has `size` elements, the operand n; before may be negative. */
typedef struct tni_map {
    long long size, n, before;
    int rule; /* TNI_MAP_… */
} tni_map;

#ifdef __CUDACC__
#define TNI_MAP_FUNCTION static __device__ __forceinline__
#define TNI_MAP_CALLED static __device__ __noinline__ /* long on a GPU, and seldom needed */
#else
#define TNI_MAP_FUNCTION static inline
#define TNI_MAP_CALLED static inline
#endif

/* a modulo n, never negative: with a division, and without one where a is less than a round away. */
TNI_MAP_CALLED long long tni_modulo_far(long long a, long long n) {
    const long long rest = a % n;
    return rest < 0 ? rest + n : rest;
}

TNI_MAP_FUNCTION long long tni_modulo(long long a, long long n) {
    const long long near = a < 0 ? a + n : a < n ? a : a - n; /* n > 0: this cannot overflow */
    return near >= 0 && near < n ? near : tni_modulo_far(a, n);
}

/* Where element i of the result is in the operand; -1: nowhere, it is the constant. */
TNI_MAP_FUNCTION long long tni_map_at(const tni_map *m, long long i) {
    const long long j = i - m->before, n = m->n;
    if (j >= 0 && j < n) return j;
    if (m->rule == TNI_MAP_CONSTANT || n == 0) return -1;
    if (m->rule == TNI_MAP_REPLICATE || n == 1) return j < 0 ? 0 : n - 1;
    if (m->rule == TNI_MAP_CIRCULAR) return tni_modulo(j, n);
    const long long back = j < 0 ? -j : 2 * n - 2 - j;
    if (back >= 0 && back < n) return back;
    const long long k = tni_modulo_far(j, 2 * n - 2); /* there and back; the ends are not repeated */
    return k < n ? k : 2 * n - 2 - k;
}

/* The other way round: the elements of the result that are element j of the operand, `count` of them. They are
 * first[0] + k * step for k < counts[0], then first[1] + k * step for k < counts[1]. */
typedef struct tni_sources {
    long long first[2], counts[2], step;
} tni_sources;

TNI_MAP_FUNCTION long long tni_steps_below(long long first, long long step, long long size) {
    return first < size ? (size - 1 - first) / step + 1 : 0;
}

TNI_MAP_FUNCTION tni_sources tni_sources_of(const tni_map *m, long long j) {
    const long long n = m->n, at = j + m->before, last = m->size - 1;
    tni_sources s = {{at, 0}, {at >= 0 && at <= last, 0}, 1};
    if (m->rule == TNI_MAP_CONSTANT) return s;
    if (m->rule == TNI_MAP_REPLICATE || (m->rule == TNI_MAP_REFLECT && n == 1)) {
        const long long begin = j == 0 || at < 0 ? 0 : at, end = j == n - 1 || at > last ? last : at;
        const int there = (at >= 0 || j == n - 1) && (at <= last || j == 0); /* the first has all before it too */
        s.first[0] = begin;
        s.counts[0] = there && end >= begin ? end - begin + 1 : 0;
        return s;
    }
    s.step = m->rule == TNI_MAP_CIRCULAR ? n : 2 * n - 2;
    s.first[0] = tni_modulo(at, s.step);
    s.counts[0] = tni_steps_below(s.first[0], s.step, m->size);
    if (m->rule == TNI_MAP_REFLECT && j > 0 && j < n - 1) {
        s.first[1] = tni_modulo(m->before - j, s.step);
        s.counts[1] = tni_steps_below(s.first[1], s.step, m->size);
    }
    return s;
}

TNI_MAP_FUNCTION long long tni_source_at(const tni_sources *s, long long k) {
    return k < s->counts[0] ? s->first[0] + k * s->step : s->first[1] + (k - s->counts[0]) * s->step;
}
