/* The interpreter's loops over blocks of values: one for each primitive and lane, pairs of operations, conversions,
 * memory of every type. */
#ifndef TNI_FUSE_BLOCK_LOOPS_H
#define TNI_FUSE_BLOCK_LOOPS_H

#include "fuse/plan/program.h"

/* In front of a loop: results may stand where an argument stood, element for element; otherwise nothing overlaps. clang
 * finds out by itself, when the loop begins. */
#if defined(__clang__)
#define TNI_IVDEP
#else
#define TNI_IVDEP _Pragma("GCC ivdep")
#endif

/* out[i] = f(arg[0][i] …); bit k of `scalars`: arg[k] is a single value. out may be one of the arguments. */
typedef void (*tni_loop)(const void *const *arg, unsigned scalars, void *out, int64_t n);

/* The body of such a loop: y[i] of a, or of a and b, each an element or one number for all. */
#define TNI_UNARY_LOOP(type, expression)        \
    const type *x = arg[0];                     \
    type *y = out;                              \
    TNI_IVDEP for (int64_t i = 0; i < n; i++) { \
        const type a = x[i];                    \
        y[i] = expression;                      \
    }
#define TNI_BINARY_LOOP(type, result, expression)   \
    const type *p = arg[0], *q = arg[1];            \
    result *y = out;                                \
    if (scalars == 1) {                             \
        const type a = *p;                          \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) { \
            const type b = q[i];                    \
            y[i] = expression;                      \
        }                                           \
    } else if (scalars == 2) {                      \
        const type b = *q;                          \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) { \
            const type a = p[i];                    \
            y[i] = expression;                      \
        }                                           \
    } else {                                        \
        TNI_IVDEP for (int64_t i = 0; i < n; i++) { \
            const type a = p[i], b = q[i];          \
            y[i] = expression;                      \
        }                                           \
    }

/* Whether a column of primitive_list.h makes a loop. */
#define TNI_HAS_VECTOR(f) 1
#define TNI_HAS_VECTOR_2(f) 1
#define TNI_HAS_SCALAR(expression) 1
#define TNI_HAS_SCALAR_2(expression) 1
#define TNI_HAS_INTEGER(expression) 1
#define TNI_HAS_INTEGER_2(expression) 1
#define TNI_HAS_TRUTH(expression) 1
#define TNI_HAS_TRUTH_2(expression) 1
#define TNI_HAS_TEST(op) 1
#define TNI_HAS_CHOICE 1
#define TNI_HAS_REFERENCE 1
#define TNI_HAS_NONE 0

enum {
    TNI_LONG_ROW = 64,        /* columns: such a row is worth a loop; */
    TNI_LONG_ROW_MASKED = 24, /* where the machine has masks, such a one already is */
};

/* One set for each instruction set and precision (loops_cpu.c). */
typedef struct tni_real_loops {
    tni_loop op[TNI_PRIMS];
    tni_loop coarse[TNI_PRIMS]; /* for results that are rounded to bf16; f32 only */
    bool own_sin;               /* sin and cos are vectors' own, not the C library's (V_HAS_SIN) */
    double (*sum)(const void *x, int64_t n);
    double (*dot)(const void *x, const void *y, int64_t n);
    double (*prod)(const void *x, int64_t n);
    double (*max)(const void *x, int64_t n);
    double (*min)(const void *x, int64_t n);
    /* Rows of n elements that lie behind each other: a value for each, or each row's for all its elements. */
    void (*sum_rows)(const void *x, const void *y, int64_t rows, int64_t n, void *sums); /* y NULL: of x alone */
    void (*prod_rows)(const void *x, int64_t rows, int64_t n, void *products);
    void (*max_rows)(const void *x, int64_t rows, int64_t n, void *most);
    void (*min_rows)(const void *x, int64_t rows, int64_t n, void *least);
    void (*expand_rows)(const void *from, void *to, int64_t rows, int64_t n);
    void (*add_columns)(double *sums, const void *x, int64_t rows, int64_t n); /* of such rows: sums[i] += x[r, i] */
    void (*prod_columns)(double *products, const void *x, int64_t rows, int64_t n);
    void (*add_to)(double *sums, const void *x, int64_t n);      /* sums[i] += x[i] */
    void (*prod_to)(double *products, const void *x, int64_t n); /* products[i] *= x[i] */
    void (*max_to)(double *most, const void *x, int64_t n);      /* the larger of the two; a NaN stays */
    void (*min_to)(double *least, const void *x, int64_t n);
    void (*add_row)(void *pending, const void *x, int64_t n); /* pending[i] += x[i] */
    void (*max_row)(void *pending, const void *x, int64_t n); /* the larger of the two; a NaN stays */
    void (*min_row)(void *pending, const void *x, int64_t n);
    void (*settle)(double *sums, void *pending, int64_t n); /* sums[i] += pending[i], which becomes 0 */
    /* n elements of memory of a floating type from and to values */
    void (*load)(tn_type type, const void *from, void *to, int64_t n);
    void (*store)(tn_type type, const void *from, void *to, int64_t n);
    /* The same for rows of n elements that lie `apart` elements from each other in memory. */
    void (*load_rows)(tn_type type, const void *from, int64_t apart, void *to, int64_t rows, int64_t n);
    void (*store_rows)(tn_type type, const void *from, void *to, int64_t apart, int64_t rows, int64_t n);
} tni_real_loops;

/* Two operations in one loop (pairs_cpu.c): the first on a and b, the second on its result and c. */
enum { TNI_PAIR_ADD, TNI_PAIR_SUB, TNI_PAIR_MUL, TNI_PAIR_REVERSED /* c - t; only as the second */, TNI_PAIRS };
typedef struct tni_pair_loops {
    tni_loop loop[3][TNI_PAIRS][2]; /* 1: with relu behind */
} tni_pair_loops;

/* loops.c */
tni_loop tni_pair_loop(int lane, int first, int second, bool relu);
const tni_real_loops *tni_real_loops_of(int lane); /* for this machine */
const char *tni_loops_isa(void);                   /* its name, as in src/cpu/vec/variants.h */
tni_loop tni_loop_of(int lane, int op);            /* NULL: there is none */
tni_loop tni_convert_loop(int from, int to);
void tni_load_values(int lane, tn_type type, const void *from, int64_t step, void *to, int64_t n);
void tni_store_values(int lane, tn_type type, const void *from, void *to, int64_t step, int64_t n);
void tni_round_values(tn_type type, int lane, void *x, int64_t n); /* to what memory of the type can hold */

#endif
