/* The primitives of formulas. Each is one row of primitive_list.h; everything here is made from that list. */
#ifndef TNI_FUSE_PRIMITIVES_H
#define TNI_FUSE_PRIMITIVES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tni_prim {
#define PRIMITIVE(id, ...) TNI_P_##id,
#include "primitive_list.h"
    TNI_PRIMS
} tni_prim;

typedef enum tni_prim_kind {
    TNI_ELEMENTWISE, /* a function or an operator, of each element by itself */
    TNI_BUILT_IN,    /* the language writes it in a way of its own: numbers, inputs, casts */
    TNI_REDUCTION,   /* node kind: tni_reach */
    TNI_RESHAPE,     /* of the second argument only the shape counts */
    TNI_FORM,        /* several primitives at once: plan/lower.c finds it, the language does not know it */
} tni_prim_kind;

/* How far a reduction, a count or an index goes: along the last dimension, over everything, or over some items of the
 * formula's shapes (dimensions and packs), whose bits stand above TNI_REACH_BITS then. */
typedef enum tni_reach { TNI_OVER_ROW, TNI_OVER_ALL, TNI_OVER_ITEMS } tni_reach;
enum { TNI_REACH_BITS = 2 };
static inline int tni_over_items(uint32_t items) {
    return (int)(TNI_OVER_ITEMS | items << TNI_REACH_BITS);
}
static inline bool tni_is_over_items(uint32_t kind) {
    return (kind & ((1u << TNI_REACH_BITS) - 1)) == TNI_OVER_ITEMS;
}
static inline uint32_t tni_items_over(uint32_t kind) {
    return tni_is_over_items(kind) ? kind >> TNI_REACH_BITS : 0;
}

static inline bool tni_is_part(int op) {
    return op == TNI_P_TAKE || op == TNI_P_FLIP || op == TNI_P_JOIN;
}

typedef enum tni_typing {
    TNI_TYPED_BY_HAND, /* leaves, casts */
    TNI_TYPED_SAME,    /* what the arguments promote to; a truth value counts as an integer */
    TNI_TYPED_FLOAT,   /* the same, and an integer becomes a float */
    TNI_TYPED_TEST,    /* a comparison: bool */
    TNI_TYPED_LOGIC,   /* bool of bools */
    TNI_TYPED_CHOICE,  /* what arguments 1 and 2 promote to */
    TNI_TYPED_FIRST,   /* argument 0's */
} tni_typing;

/* How long one element takes. */
typedef enum tni_effort {
    TNI_CHEAP, /* about as long as an addition */
    TNI_DEAR,  /* longer than to keep the result in a register */
    TNI_HEAVY, /* a long run of instructions: two vectors at a time keep a machine busy */
} tni_effort;

typedef struct tni_prim_row {
    const char *name; /* as the language writes it */
    int8_t arity;
    int8_t binds; /* of an operator: how strongly, 1 … 12; 0: written as a function */
    uint8_t kind, typing, effort;
    bool commutes;
    bool wraps;                                   /* in integers: computed without a sign */
    bool calls_libm;                              /* its vector form may be the C library's function */
    double (*eval)(double a, double b, double c); /* NULL: not of plain numbers */
    /* The gradient of each argument as a formula of a, b, c, the result y and what arrives, d. NULL: none. */
    const char *grad[3];
    const char *cuda;   /* CUDA C; $a $b $c stand for the arguments */
    const char *coarse; /* the CUDA function that has a <name>_coarse for results that are rounded to bf16 */
    const char *torch;  /* the function of torch, or of tenon.torch._decompose where it begins with '_' */
} tni_prim_row;

extern const tni_prim_row tni_prims[TNI_PRIMS];

static inline bool tni_is_reduction(int op) {
    return tni_prims[op].kind == TNI_REDUCTION;
}

/* Does it say how far it goes, and depend on the dimensions that its argument has? Its node's kind is a tni_reach. */
static inline bool tni_reaches(int op) {
    return tni_is_reduction(op) || op == TNI_P_COUNT || op == TNI_P_INDEX_IN;
}

/* Functions that are formulas themselves. */
typedef enum tni_composing {
    TNI_COMPOSED,      /* element by element */
    TNI_COMPOSED_ALL,  /* it reduces, over everything where no axis is given */
    TNI_COMPOSED_ROWS, /* along the last dimension where none is given */
} tni_composing;
typedef struct tni_composite {
    const char *name;
    int8_t arity;
    const char *formula; /* of a, b, c; its reductions go as far as the call says */
    tni_composing composing;
} tni_composite;
extern const tni_composite tni_composites[]; /* ends with a NULL name */

#endif
