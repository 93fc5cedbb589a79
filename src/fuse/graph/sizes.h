/* Sizes of parts: linear in the dimensions and the whole attributes of a contract, (2 * n + k - 1) / 2. What divides
 * must divide without a rest, and a call says whether it does; or the size is rounded down, as that of x[::2] is. */
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
    bool floors; /* rounded down, where the divisor is not 1 */
} tni_size;

tni_size tni_size_of(int64_t constant);
tni_size tni_size_named(int32_t ref);
tni_size tni_size_minus(const tni_size *a);
/* a + sign * b, and a * by / divisor. False: more terms than there is room for, or numbers that are too large. */
bool tni_size_add(const tni_size *a, int64_t sign, const tni_size *b, tni_size *made);
bool tni_size_scale(const tni_size *a, int64_t by, int64_t divisor, tni_size *made);
/* How many of `length` elements there are if one of `step` is taken, beginning with the first. */
bool tni_size_steps(const tni_size *length, int64_t step, tni_size *made);
/* Of the same numbers; whether they are rounded is not compared. */
bool tni_size_same(const tni_size *a, const tni_size *b);
static inline bool tni_size_is_number(const tni_size *a) {
    return a->n == 0 && a->divisor == 1;
}
/* Of an expression of the contract. False: it is not linear. */
bool tni_size_of_node(const tni_contract *contract, int32_t node, tni_size *made);
/* "c / 2", "n - 1", "floor((n + 1) / 2)", as formulas write it; a contract rounds down anyway: "(n + 1) / 2". */
void tni_size_print(tni_text *text, const tni_contract *contract, const tni_size *size);
void tni_size_print_plain(tni_text *text, const tni_contract *contract, const tni_size *size);

#endif
