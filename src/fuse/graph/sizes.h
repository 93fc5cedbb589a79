/* Sizes of parts: linear in the dimensions and the whole attributes of a contract, (2 * n + k - 1) / 2. What divides
 * must divide without a rest; a call says whether it does. */
#ifndef TNI_FUSE_SIZES_H
#define TNI_FUSE_SIZES_H

#include "core/contract/contract.h"
#include "core/host/memory.h"

enum { TNI_SIZE_TERMS = 6, TNI_SIZE_ATTR = 1 << 10 /* + k: attribute k; below: dimension k */ };

/* One size has one form: terms by their ref, none with a factor of 0, and no common divisor. */
typedef struct tni_size {
    int32_t n;
    int32_t ref[TNI_SIZE_TERMS];
    int64_t factor[TNI_SIZE_TERMS];
    int64_t constant, divisor;
} tni_size;

tni_size tni_size_of(int64_t constant);
tni_size tni_size_named(int32_t ref);
/* a + sign * b, and a * by / divisor. False: more terms than there is room for, or numbers that are too large. */
bool tni_size_add(const tni_size *a, int64_t sign, const tni_size *b, tni_size *made);
bool tni_size_scale(const tni_size *a, int64_t by, int64_t divisor, tni_size *made);
bool tni_size_same(const tni_size *a, const tni_size *b);
static inline bool tni_size_is_number(const tni_size *a) {
    return a->n == 0 && a->divisor == 1;
}
/* Of an expression of the contract. False: it is not linear. */
bool tni_size_of_node(const tni_contract *contract, int32_t node, tni_size *made);
/* "c / 2", "n - 1", as contracts and formulas write it. */
void tni_size_print(tni_text *text, const tni_contract *contract, const tni_size *size);

#endif
