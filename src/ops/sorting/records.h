/* Records, which the CPU's kernels put in order: the key of an element above its index. No two are equal, so every
 * way to sort them is stable. The f32 build has records of 8 bytes, for keys and indices of 32 bits; the f64 build of
 * 16. */
#ifndef TNI_SORTING_RECORDS_H
#define TNI_SORTING_RECORDS_H

#include <string.h>

#include "cpu/vec/variants.h"
#include "cpu/vec/vec.h"
#include "sorting.h"

#if defined(TNI_REAL_f32)
typedef uint64_t record;
typedef uint32_t key;
#define KEY_OF(bits, rule) tni_key_u32(bits, (key)(rule).sign, (key)(rule).infinity, (key)(rule).flip)
#define KEY_IS_SHARED(k, rule) tni_key_is_shared_u32(k, (key)(rule).sign, (key)(rule).infinity, (key)(rule).flip)
#define BITS_OF(k, rule) tni_bits_u32(k, (key)(rule).sign, (key)(rule).infinity, (key)(rule).flip)
#else
__extension__ typedef unsigned __int128 record;
typedef unsigned long long key;
#define KEY_OF(bits, rule) tni_key_u64(bits, (rule).sign, (rule).infinity, (rule).flip)
#define KEY_IS_SHARED(k, rule) tni_key_is_shared_u64(k, (rule).sign, (rule).infinity, (rule).flip)
#define BITS_OF(k, rule) tni_bits_u64(k, (rule).sign, (rule).infinity, (rule).flip)
#endif

enum {
    KEY_BITS = 8 * sizeof(key),
    FEW = 24,         /* records that are sorted by insertion */
    SHORT = 96,       /* and merged; beyond, the counting of digits pays */
    WIDE_FROM = 4096, /* records from which digits of TNI_SORTING_BITS pay, else they have 8 */
};

TNI_INLINE record record_of(key k, int64_t index) {
    return (record)k << KEY_BITS | (record)(key)index;
}
TNI_INLINE key key_in(record r) {
    return (key)(r >> KEY_BITS);
}
TNI_INLINE int64_t index_in(record r) {
    return (int64_t)(key)r;
}

/* ---- elements and keys ------------------------------------------------------------------------------------------- */

TNI_INLINE key load_bits(const void *x, int64_t i, const size_t size) {
    return size == 1   ? ((const uint8_t *)x)[i]
           : size == 2 ? ((const uint16_t *)x)[i]
           : size == 4 ? ((const uint32_t *)x)[i]
                       : (key)((const uint64_t *)x)[i];
}

TNI_INLINE void store_bits(void *x, int64_t i, key bits, const size_t size) {
    if (size == 1) ((uint8_t *)x)[i] = (uint8_t)bits;
    if (size == 2) ((uint16_t *)x)[i] = (uint16_t)bits;
    if (size == 4) ((uint32_t *)x)[i] = (uint32_t)bits;
    if (size == 8) ((uint64_t *)x)[i] = bits;
}

/* CALL(…, size) with a size that the compiler knows; 8 bytes have the f64 build alone. */
#define BY_SIZE(bytes, CALL, ...)                                   \
    do {                                                            \
        const size_t by_size = bytes;                               \
        if (by_size == 1) CALL(__VA_ARGS__, 1);                     \
        if (by_size == 2) CALL(__VA_ARGS__, 2);                     \
        if (by_size == 4) CALL(__VA_ARGS__, 4);                     \
        if (sizeof(key) == 8 && by_size == 8) CALL(__VA_ARGS__, 8); \
    } while (0)

/* Row r of x and, with k for n, of the outputs: its first element. */
static inline int64_t row_place(const tni_sorting *o, int64_t r, int64_t n) {
    if (o->inner == 1) return r * n; /* short rows would feel the division */
    return r / o->inner * n * o->inner + r % o->inner;
}

TNI_INLINE void load_keys_sized(const tni_sorting *o, int64_t at, int64_t count, key *to, const size_t size) {
    const tni_key_rule rule = o->rule;
    const void *x = o->x->data;
    if (o->inner == 1) {
        for (int64_t i = 0; i < count; i++) to[i] = KEY_OF(load_bits(x, at + i, size), rule);
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = KEY_OF(load_bits(x, at + i * o->inner, size), rule);
    }
}

/* The keys of `count` elements of a row, the first of which is element `at` of x. */
static void load_keys(const tni_sorting *o, int64_t at, int64_t count, key *to) {
    BY_SIZE(tn_type_size(o->x->type), load_keys_sized, o, at, count, to);
}

/* The records of elements begin … end - 1 of row r. */
static void load_records(const tni_sorting *o, int64_t r, int64_t begin, int64_t end, record *to) {
    const int64_t first = row_place(o, r, o->n);
    key keys[TNI_SORTING_BLOCK];
    for (int64_t i = begin; i < end; i += TNI_SORTING_BLOCK) {
        const int64_t count = min(end - i, TNI_SORTING_BLOCK);
        load_keys(o, first + i * o->inner, count, keys);
        for (int64_t j = 0; j < count; j++) to[i - begin + j] = record_of(keys[j], i + j);
    }
}

/* Keys that several bit patterns have are read from x again. */
TNI_INLINE void store_values_sized(const tni_sorting *o, int64_t r, int64_t begin, int64_t end, const record *from,
                                   const size_t size) {
    const tni_key_rule rule = o->rule;
    const int64_t first = row_place(o, r, o->n), to = row_place(o, r, o->k);
    for (int64_t i = begin; i < end; i++) {
        const key k = key_in(from[i]);
        const key bits = KEY_IS_SHARED(k, rule) ? load_bits(o->x->data, first + index_in(from[i]) * o->inner, size)
                                                : BITS_OF(k, rule);
        store_bits(o->values->data, to + i * o->inner, bits, size);
    }
}

/* Elements begin … end - 1 of row r of the outputs, from the records in order. */
static void store_records(const tni_sorting *o, int64_t r, int64_t begin, int64_t end, const record *from) {
    if (o->values) BY_SIZE(tn_type_size(o->x->type), store_values_sized, o, r, begin, end, from);
    if (!o->index) return;
    int64_t *to = (int64_t *)o->index->data + row_place(o, r, o->k);
    for (int64_t i = begin; i < end; i++) to[i * o->inner] = index_in(from[i]);
}

/* ---- sorting ----------------------------------------------------------------------------------------------------- */

static void insertion_sort(record *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const record r = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] > r; j--) a[j] = a[j - 1];
        a[j] = r;
    }
}

/* Two sorted runs become one. No branch depends on the records. */
static void merge(const record *a, const record *a_end, const record *b, const record *b_end, record *to) {
    while (a < a_end && b < b_end) {
        const record left = *a, right = *b;
        const bool later = right < left;
        *to++ = later ? right : left;
        a += !later;
        b += later;
    }
    memcpy(to, a, (size_t)(a_end - a) * sizeof *a);
    memcpy(to + (a_end - a), b, (size_t)(b_end - b) * sizeof *b);
}

/* Sorts n records in a; b has as much room. Returns the one of the two that has them. */
static record *merge_sort(record *a, record *b, int64_t n) {
    for (int64_t i = 0; i < n; i += FEW) insertion_sort(a + i, min(n - i, FEW));
    for (int64_t run = FEW; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            const int64_t middle = min(i + run, n), end = min(i + 2 * run, n);
            merge(a + i, a + middle, a + middle, a + end, b + i);
        }
        record *const sorted = b;
        b = a;
        a = sorted;
    }
    return a;
}

TNI_INLINE int64_t digit_of(record r, int pass, int bits) {
    return (int64_t)(r >> (KEY_BITS + pass * bits)) & ((1 << bits) - 1);
}

TNI_INLINE void count_digits(const record *a, int64_t n, const int passes, const int bits, uint32_t *counts) {
    for (int64_t i = 0; i < n; i++) {
        for (int p = 0; p < passes; p++) counts[(p << bits) + digit_of(a[i], p, bits)]++;
    }
}

TNI_INLINE record *radix_passes(record *a, record *b, int64_t n, const int passes, const int bits, uint32_t *counts) {
    memset(counts, 0, ((size_t)passes << bits) * sizeof *counts);
    count_digits(a, n, passes, bits, counts);
    for (int p = 0; p < passes; p++) {
        uint32_t *place = counts + ((size_t)p << bits), sum = 0;
        if (place[digit_of(a[0], p, bits)] == n) continue; /* all the same */
        for (int d = 0; d < 1 << bits; d++) {
            const uint32_t count = place[d];
            place[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) b[place[digit_of(a[i], p, bits)]++] = a[i];
        record *const sorted = b;
        b = a;
        a = sorted;
    }
    return a;
}

/* As merge_sort, for keys of `width` bits; `counts` are those of a slot. n < 2^32. */
static record *sort_records(record *a, record *b, int64_t n, int width, void *counts) {
    if (n <= (width > 32 ? 3 * SHORT : SHORT)) return merge_sort(a, b, n);
    if (width == 8) return radix_passes(a, b, n, 1, 8, counts);
    if (width == 16) return radix_passes(a, b, n, 2, 8, counts);
    if (width == 32 && n < WIDE_FROM) return radix_passes(a, b, n, 4, 8, counts);
    if (width == 32) return radix_passes(a, b, n, 3, TNI_SORTING_BITS, counts);
    if (n < WIDE_FROM) return radix_passes(a, b, n, 8, 8, counts);
    return radix_passes(a, b, n, 6, TNI_SORTING_BITS, counts);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

typedef struct slot {
    record *a, *b;
    void *counts;
} slot;

static inline slot slot_at(const tn_call *call, const tni_sorting_room *room, int64_t i) {
    char *begin = (char *)call->workspace + (size_t)i * room->bytes;
    return (slot){
        .a = (record *)begin, .b = (record *)begin + room->records, .counts = begin + (room->bytes - room->counts)};
}

#endif
