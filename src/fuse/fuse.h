/* Formulas: text becomes an object that knows its contract, its gradient and how to run.
 *
 *     relu(x * s + b)                                            inputs x, s, b broadcast as in NumPy; the output is y
 *     t = x - mean(x, -1); y = t * rsqrt(mean(t * t, -1) + 1e-5)
 *     f(x: T[*r, c], g: W[c]?, eps: float = 1e-6) -> y: T[*r, c] :
 *         n = x * rsqrt(mean(x * x, -1) + eps)
 *         y = n * g if has(g) else n
 *
 * docs/formulas.md has the language. Functions are rows of graph/primitive_list.h and of tni_composites. Values of f16
 * and bf16 are computed in f32, integers in 64 bits; what is stored is rounded; integers keep
 * their lower bits, and floats that become integers stay in range. Where an input is updated
 * (`x! = …`), later statements read the new value, before it is rounded to the type of x. */
#ifndef TNI_FUSE_H
#define TNI_FUSE_H

#include "fuse/plan/program.h"

typedef struct tni_fuse_options {
    const char *name; /* of a formula without a signature; NULL: "formula" */
    bool fast;        /* simplifications that may change the last bits, and what happens to NaN, infinity and -0 */
    int32_t n_known;  /* rows of the table that it may call; 0: all that there are */
} tni_fuse_options;

/* Errors point at the character. options may be NULL. */
tn_status tni_fuse_parse(const char *text, const tni_fuse_options *options, tni_fuse **made);
void tni_fuse_free(tni_fuse *formula); /* NULL is fine */

/* The contract, ':' and statements; parsing it gives the same formula. The caller frees it with tn_free. */
char *tni_fuse_print(const tni_fuse *formula);
/* Its statements with one operation in each, split by "; ". The caller frees it with tn_free. */
char *tni_fuse_print_apart(const tni_fuse *formula);
/* One line for each operation with its type and level, for `--show`. */
char *tni_fuse_print_graph(const tni_fuse *formula);

/* The gradient as another formula, named <name>_grad, and the rule of the contract language that calls it:
 *     x, b: f_grad(x, b, dy)
 * Its inputs are those inputs and outputs of the formula that it needs, and d<output> for every floating output; its
 * outputs d<input> (d_<input> where that is taken) are made only when asked for. Which outputs it takes instead of
 * computing them again is decided by the bytes that move. The caller frees both. */
tn_status tni_fuse_grad(const tni_fuse *formula, tni_fuse **grad, char **rule);

#endif
