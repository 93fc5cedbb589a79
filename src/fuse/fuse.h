/* Formulas: text becomes an object that knows its contract, its gradient and how to run.
 *
 *     relu(x * s + b)                                            inputs x, s, b broadcast as in NumPy; the output is y
 *     t = x - mean(x, -1); y = t * rsqrt(mean(t * t, -1) + 1e-5)
 *     f(x: T[*r, c], g: W[c]?, eps: float = 1e-6) -> y: T[*r, c] :
 *         n = x * rsqrt(mean(x * x, -1) + eps)
 *         y = n * g if has(g) else n
 *
 * The language
 * - Statements `name = expression` are split by ';' or line ends; '#' begins a comment. The last one may be a bare
 *   expression: it is the output `y`, or the signature's only output. A name is assigned once.
 * - Without a signature, names that are never assigned are inputs, in order of first use, and what is assigned and not
 *   used again is an output. All inputs share one floating type T, but for conditions (`where(c, …)` with a bare c:
 *   bool) and seeds (i64[2]). Anything else is said by a contract (docs/contract.md) in front, closed by ':'; then
 *   dimensions align by name. Attributes are constants. A signature whose shapes are all single packs (`[*a]`,
 *   `[*b]`) aligns them as NumPy does.
 * - `x! = expression` updates the input x in place; with a signature x is marked `!` there, and `x = …` will do. Later
 *   statements read the new value (before it is rounded to x's type).
 * - Operators: or and not (| & !), < <= > >= == !=, + -, * / %, unary -, ** (right to left, before the minus to its
 *   left), `a if c else b`. / is true division, % has the sign of its right side, as in Python.
 * - Functions: those of graph/primitive_list.h and of tni_composites; casts f16 bf16 f32 f64 i8 i16 i32 i64 u8 bool;
 *   has(b): an optional input or attribute was given; rand(seed) and rand(seed, 1 … ): uniform in [0, 1), by the
 *   element's index in the whole shape of the formula, each second argument its own stream.
 * - Reductions: sum mean max min var logsumexp of x, over everything, or with a second argument -1 (also dim=-1,
 *   axis=-1) along the last dimension, which stays as a size of 1 and so broadcasts back. var divides by the count.
 *   An output that is reduced loses the dimension unless a signature keeps it as 1. `max(x, -1)` reduces; `max(x,
 *   -1.0)` compares. count(x), count(x, -1): how many. sum_to(x, b): x summed over the dimensions that b does not
 *   have. expand(x, b): x in the shape of both.
 * - Types: f16 and bf16 are computed in f32, integers in 64 bits; what is stored is rounded, or wrapped. Numbers in the
 *   text are weak as in Python: x * 2 has the type of x. Constants: pi e inf nan true false.
 * - Derivatives: relu'(0) is 0; where max or min have ties, each gets an equal share. */
#ifndef TNI_FUSE_H
#define TNI_FUSE_H

#include "fuse/plan/program.h"

typedef struct tni_fuse_options {
    const char *name; /* of a formula without a signature; NULL: "formula" */
    bool fast;        /* simplifications that may change the last bits, and what happens to NaN, infinity and -0 */
} tni_fuse_options;

/* Errors point at the character. options may be NULL. */
tn_status tni_fuse_parse(const char *text, const tni_fuse_options *options, tni_fuse **made);
void tni_fuse_free(tni_fuse *formula); /* NULL is fine */

const tni_contract *tni_fuse_contract(const tni_fuse *formula); /* inputs, outputs, attributes */
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
