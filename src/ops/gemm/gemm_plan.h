/* How a product is divided: into blocks of y that threads take by turns, and those into tiles.
 *
 * What an element of y is made of never depends on these blocks: its terms are added up in steps of GEMM_STEP of k, one
 * after the other within a step, and the steps' sums after each other. So a row's result has the same bits beside any
 * other rows, on any number of threads. */
#ifndef TNI_GEMM_PLAN_H
#define TNI_GEMM_PLAN_H

#include <stdatomic.h>

#include "core/contract/contract.h"
#include "core/host/memory.h"
#include "cpu/vec/variants.h"
#include "gemm.h"

enum {
    GEMM_STEP = 256, /* terms that are added up in registers */
    GEMM_PANEL =
        288,       /* columns of an f32 b that are packed at once: with GEMM_STEP of k they stay in the second cache */
    GEMM_FEW = 12, /* rows that are few: b is taken column by column, and some steps of a are packed at once */
    GEMM_TOGETHER = 16, /* those steps */
};

/* One product of a call. */
typedef struct gemm_blocks {
    int64_t rows, columns; /* of a block of y */
    int64_t down, across;  /* blocks of one entry of the batch */
    int64_t count;         /* of all entries */
} gemm_blocks;

/* What `prepare` makes. */
typedef struct gemm_plan {
    int32_t n_products;
    int64_t slices;      /* shares of the workspace, a thread's each */
    int64_t slice_bytes; /* of one */
    int64_t a_bytes, b_bytes, c_bytes;
    int64_t dz_bytes; /* of linear_grad, behind the slices: dy times the activation's slope; 0: it is not kept there */
    gemm_blocks blocks[TNI_PRODUCTS_MOST];
} gemm_plan;

/* In X.c: TNI_CPU_DECLARE(gemm) and, in a list of kernels, GEMM_KERNELS(&tni_matmul_products). */
#define GEMM_KERNELS(products)                                                                   \
    TNI_CPU_KERNELS(gemm, .flags = TN_STRIDED, .prepare = tni_gemm_prepare, .release = tni_free, \
                    .workspace = tni_gemm_workspace, .data = products)

tn_status tni_gemm_prepare(const tn_call *call, void **state);
tn_status tni_linear_grad_prepare(const tn_call *call, void **state);
size_t tni_gemm_workspace(const tn_call *call);

/* For products that are known when they run: each is a part of p, with fewer rows, or terms. Their blocks are made by
 * tni_gemm_divide then. */
tn_status tni_gemm_plan_parts(const tn_call *call, const tni_product *p, gemm_plan **made);
gemm_blocks tni_gemm_divide(const tni_product *p, int64_t entries, int64_t threads);

/* linear_grad keeps dz by itself: relu is in the way of dy, and nobody wants dresidual, which would have it. */
static inline bool gemm_keeps_dz(const linear_grad_args *a) {
    return a->act != TNI_ACT_NONE && !a->dresidual;
}

/* What its products read as dz: dy itself, dresidual, or a dense tensor at `data`, whose strides go into `room`. */
tn_view tni_linear_grad_dz(const linear_grad_args *a, void *data, int64_t room[TN_MAX_RANK]);

/* All steps of a product: k in pieces, for each entry of sums. */
static inline int64_t gemm_steps(const tni_product *p) {
    int64_t entries = 1;
    for (int32_t d = 0; d < p->n_sums; d++) entries *= p->sums[d];
    return entries * ((p->k + GEMM_STEP - 1) / GEMM_STEP);
}

#ifdef TNI_ISA
/* The products of a call, one after the other: for operators that do more than that. */
void TNI_CPU(gemm_run)(const tn_call *call, const gemm_plan *plan, const tni_product *products);
#endif

#endif
