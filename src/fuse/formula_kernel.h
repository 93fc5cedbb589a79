/* A formula as one of an operator's kernels, beside those that are written by hand.
 *
 *     static tni_formula_kernel softmax_formula = {.statements = "…", .accepts = is_plain};
 *     static const tn_kernel softmax_kernels[] = {
 *         TNI_CUDA_KERNEL(softmax),
 *         TNI_FORMULA_KERNEL(TN_CUDA, softmax_formula),
 *
 * It is a row of the list like any other: its place says whether it or another is preferred, and it is called
 * "formula". The statements compute the outputs of the operator's contract, without lists. They are read when the
 * first call comes. A row whose kernels all come from its formula needs none of this: it has `.formula`.
 *
 * Where the formula is faster for some calls, a second row, "rows", stands in front of the kernels by hand and takes
 * just those: TNI_FORMULA_ROWS(TN_CUDA, softmax_formula), with `.wins`. */
#ifndef TNI_FORMULA_KERNEL_H
#define TNI_FORMULA_KERNEL_H

#include <stdatomic.h>

#include <tenon/op.h>

typedef struct tni_formula_kernel {
    const char *statements;
    bool (*accepts)(const tn_call *call); /* NULL: whatever the signature allows */
    bool (*wins)(const tn_call *call);    /* of TNI_FORMULA_ROWS: where it is faster than the kernels behind it */
    _Atomic(struct tni_fuse *) parsed;    /* NULL: no call has come yet */
    struct tni_formula_kernel *older;     /* that was parsed before */
} tni_formula_kernel;

/* On a GPU it takes no call where there is no NVRTC to compile it with: the next kernel of the list does. */
bool tni_formula_kernel_accepts(const tn_call *call);
tn_status tni_formula_kernel_prepare(const tn_call *call, void **state);
size_t tni_formula_kernel_workspace(const tn_call *call);
tn_status tni_formula_kernel_run(const tn_call *call, void *state);
void tni_formula_kernel_release(void *state);

#define TNI_FORMULA_KERNEL(on, formula)                                                                \
    {                                                                                                  \
        .name = "formula", .device = (on), .flags = TN_STRIDED, .accepts = tni_formula_kernel_accepts, \
        .workspace = tni_formula_kernel_workspace, .prepare = tni_formula_kernel_prepare,              \
        .release = tni_formula_kernel_release, .run = tni_formula_kernel_run, .data = &(formula)       \
    }

bool tni_formula_rows_accepts(const tn_call *call);
#define TNI_FORMULA_ROWS(on, formula)                                                             \
    {                                                                                             \
        .name = "rows", .device = (on), .flags = TN_STRIDED, .accepts = tni_formula_rows_accepts, \
        .workspace = tni_formula_kernel_workspace, .prepare = tni_formula_kernel_prepare,         \
        .release = tni_formula_kernel_release, .run = tni_formula_kernel_run, .data = &(formula)  \
    }

/* A flag: of a row with a formula, a kernel that is its gradient's. It sees the arguments of the gradient that is
 * derived from the formula, and comes before what is derived. */
enum { TNI_OF_GRADIENT = 1 << 16 };

/* Lengths of a row: from <= n < below. */
typedef struct tni_lengths {
    int64_t from, below;
} tni_lengths;
/* Those for which kernels by hand are faster than a formula, for elements of 2 bytes and of 4. */
typedef struct tni_lengths_by_hand {
    tni_lengths whole[2]; /* rows of whole vectors of 16 bytes */
    tni_lengths odd[2];   /* others */
} tni_lengths_by_hand;
/* Whether a formula is faster for rows of x, along the last dimension. */
bool tni_formula_wins(const tn_view *x, const tni_lengths_by_hand *hand);

/* The formula of such a kernel of an operator. */
tn_status tni_formula_kernel_parsed(const tn_kernel *kernel, const char *op, const struct tni_fuse **parsed);
/* Frees what was read. The next call reads it again. */
void tni_formula_kernels_forget(void);

#endif
