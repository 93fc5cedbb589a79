/* Rows of so few elements that many are sorted side by side, lane by lane of vectors. All take the same steps: a
 * network that compares elements at places which depend on n alone (Knuth's merge exchange, 5.2.2 M). No branch depends
 * on the elements. For records of 8 bytes, which vectors have. */
#ifndef TNI_SORTING_SORT_LANES_H
#define TNI_SORTING_SORT_LANES_H

#include "records.h"

enum {
    LANES = 16,   /* rows */
    NETWORK = 16, /* elements of the longest of them */
};

/* Is a row one of those, and do they lie behind each other? */
static bool goes_by_lanes(const tni_sorting *o) {
    return sizeof(record) == 8 && o->inner == 1 && o->n > 1 && o->n <= NETWORK && o->k == o->n;
}

TNI_INLINE void compare_exchange(record *restrict a, record *restrict b) {
    for (int l = 0; l < LANES; l++) {
        const record less = b[l] < a[l] ? b[l] : a[l], more = b[l] < a[l] ? a[l] : b[l];
        a[l] = less;
        b[l] = more;
    }
}

static void sort_lanes(record (*a)[LANES], int64_t n) {
    int64_t top = 1;
    while (2 * top < n) top *= 2;
    for (int64_t p = top; p > 0; p /= 2) {
        for (int64_t q = top, r = 0, d = p;; d = q - p, q /= 2, r = p) {
            for (int64_t i = 0; i + d < n; i++) {
                if ((i & p) == r) compare_exchange(a[i], a[i + d]);
            }
            if (q == p) break;
        }
    }
}

/* `rows` rows, the first of which begins with element `first` of x and of the outputs. */
TNI_INLINE void sort_together(const tni_sorting *o, int64_t first, int64_t rows, const size_t size) {
    const tni_key_rule rule = o->rule;
    const int64_t n = o->n, count = rows * n;
    record a[NETWORK][LANES];
    key keys[NETWORK * LANES];
    for (int64_t i = 0; i < count; i++) keys[i] = KEY_OF(load_bits(o->x->data, first + i, size), rule);
    for (int64_t i = count; i < n * LANES; i++) keys[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t l = 0; l < LANES; l++) a[i][l] = record_of(keys[l * n + i], i);
    }
    sort_lanes(a, n);
    for (int64_t l = 0; l < rows && o->index; l++) {
        int64_t *to = (int64_t *)o->index->data + first + l * n;
        for (int64_t i = 0; i < n; i++) to[i] = index_in(a[i][l]);
    }
    if (!o->values) return;
    key shared = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t l = 0; l < LANES; l++) {
            const key k = key_in(a[i][l]);
            shared |= KEY_IS_SHARED(k, rule);
            keys[l * n + i] = BITS_OF(k, rule);
        }
    }
    for (int64_t l = 0; l < rows && shared; l++) { /* what several bit patterns have is read from x again */
        for (int64_t i = 0; i < n; i++) {
            if (KEY_IS_SHARED(key_in(a[i][l]), rule))
                keys[l * n + i] = load_bits(o->x->data, first + l * n + index_in(a[i][l]), size);
        }
    }
    for (int64_t i = 0; i < count; i++) store_bits(o->values->data, first + i, keys[i], size);
}

static void sort_by_lanes(void *arg, int64_t begin, int64_t end) {
    const tni_sorting *o = arg;
    for (int64_t r = begin; r < end; r += LANES) {
        const int64_t rows = min(end - r, LANES);
        BY_SIZE(tn_type_size(o->x->type), sort_together, o, r * o->n, rows);
    }
}

#endif
