/* A formula as one of an operator's kernels, beside those that are written by hand.
 *
 *     static tni_formula_kernel softmax_formula = {.statements = "…", .accepts = is_plain};
 *     static const tn_kernel softmax_kernels[] = {
 *         TNI_CUDA_KERNEL(softmax),
 *         TNI_FORMULA_KERNEL(TN_CUDA, softmax_formula),
 *
 * It is a row of the list like any other: its place says whether it or another is preferred, and it is called
 * "formula". The statements compute the outputs of the operator's contract, without lists. They are read when the
 * first call comes. A row whose kernels all come from its formula needs none of this: it has `.formula`. */
#ifndef TNI_FORMULA_KERNEL_H
#define TNI_FORMULA_KERNEL_H

#include <stdatomic.h>

#include <tenon/op.h>

typedef struct tni_formula_kernel {
    const char *statements;
    bool (*accepts)(const tn_call *call); /* NULL: whatever the signature allows */
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

/* The formula of such a kernel of an operator. */
tn_status tni_formula_kernel_parsed(const tn_kernel *kernel, const char *op, const struct tni_fuse **parsed);
/* Frees what was read. The next call reads it again. */
void tni_formula_kernels_forget(void);

#endif
