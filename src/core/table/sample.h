/* Samples: the calls that an operator is checked and measured with. */
#ifndef TNI_SAMPLE_H
#define TNI_SAMPLE_H

#include "core/contract/contract.h"

/* X(NAME, "name"): how the numbers of an input stand to each other, along its last dimension, or along
 * the axis of an operator that has an attribute `axis`. */
#define TNI_ORDERS(X)                                                       \
    X(NONE, "")                                                             \
    X(SORTED, "sorted")           /* none is less than the one before it */ \
    X(UNIQUE, "unique")           /* no integer twice */                    \
    X(PERMUTATION, "permutation") /* 0 … n - 1, each once */              \
    X(OFFSETS, "offsets")         /* sorted, from 0 to below - 1: where parts begin */

typedef enum tni_order {
#define TNI_ORDER_ENUM(NAME, name) TNI_ORDER_##NAME,
    TNI_ORDERS(TNI_ORDER_ENUM)
#undef TNI_ORDER_ENUM
} tni_order;

const char *tni_order_name(tni_order order);

typedef struct tni_sample_input {
    int32_t input; /* of the contract */
    tn_type type;  /* for the given T */
    tni_dims shape;
    int64_t below; /* integers from 0 … below - 1; 0: not said */
    bool positive;
    tni_order order;
    int32_t along; /* the dimension that the order is of */
} tni_sample_input;

/* A sample made concrete for one T. */
typedef struct tni_case {
    int32_t n_inputs; /* present tensors; the elements of a list follow each other */
    tni_sample_input *inputs;
    int32_t n_attrs;
    tn_attr *attrs;
    void *arena;
} tni_case;

/* T: the type that the type variable T takes; others are T unless the sample says `W=f32`. */
tn_status tni_sample_case(const tni_contract *contract, const char *args, tn_type T, tni_case **made);
/* T where nobody asks for one: f32 if it may be that. */
tn_type tni_sample_type(const tni_contract *contract);
/* A random call that the contract allows, near the sample: same options, other ranks of packs and sizes (0, 1, odd,
 * powers of two and their neighbours), drawn from *seed. `most`: elements of the largest input. */
tn_status tni_sample_random(const tni_contract *contract, const char *args, tn_type T, uint64_t *seed, int64_t most,
                            tni_case **made);
void tni_case_free(tni_case *made);

#endif
