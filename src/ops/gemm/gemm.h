/* Products of matrices: the arguments of the operators, and one description of a product that all of them share.
 *
 * An operator's call is a list of products (tni_products). Kernels know products and no operators: they take the list
 * from their row's `data`. Transposes and broadcasts are strides, so the products of a gradient read the same tensors
 * as the forward product does, in another order. */
#ifndef TNI_GEMM_H
#define TNI_GEMM_H

#include "ops/arguments.h"

#define LINEAR_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(w) IN(b) IN(residual) ATTR(act, choice) OUT(y) OUT(z)
TNI_ARGUMENTS(linear, LINEAR_ARGUMENTS)

#define LINEAR_GRAD_ARGUMENTS(IN, OUT, ATTR) \
    IN(x) IN(w) IN(dy) IN(z) ATTR(act, choice) OUT(dx) OUT(dw) OUT(db) OUT(dresidual)
TNI_ARGUMENTS(linear_grad, LINEAR_GRAD_ARGUMENTS)

#define GATED_LINEAR_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(w) ATTR(act, choice) OUT(y)
TNI_ARGUMENTS(gated_linear, GATED_LINEAR_ARGUMENTS)

#define MATMUL_ARGUMENTS(IN, OUT, ATTR) IN(a) IN(b) ATTR(alpha, number) OUT(y)
TNI_ARGUMENTS(matmul, MATMUL_ARGUMENTS)

#define MATMUL_A_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(b) IN(dy) ATTR(shape, list) ATTR(alpha, number) OUT(da)
TNI_ARGUMENTS(matmul_a_grad, MATMUL_A_GRAD_ARGUMENTS)

#define MATMUL_B_GRAD_ARGUMENTS(IN, OUT, ATTR) IN(a) IN(dy) ATTR(shape, list) ATTR(alpha, number) OUT(db)
TNI_ARGUMENTS(matmul_b_grad, MATMUL_B_GRAD_ARGUMENTS)

#define MATMUL_ADD_ARGUMENTS(IN, OUT, ATTR) IN(a) IN(b) IN(c) ATTR(alpha, number) ATTR(add, boolean)
TNI_ARGUMENTS(matmul_add, MATMUL_ADD_ARGUMENTS)

#define MATVEC_ARGUMENTS(IN, OUT, ATTR) IN(a) IN(x) OUT(y)
TNI_ARGUMENTS(matvec, MATVEC_ARGUMENTS)

#define VECMAT_ARGUMENTS(IN, OUT, ATTR) IN(x) IN(a) OUT(y)
TNI_ARGUMENTS(vecmat, VECMAT_ARGUMENTS)

/* The choices of act that gated_linear has, in the order of its contract. */
#define TNI_GATES "silu", "gelu", "gelu_tanh", "relu", "sigmoid", "none"
typedef enum tni_gate {
    TNI_GATE_SILU,
    TNI_GATE_GELU,
    TNI_GATE_GELU_TANH,
    TNI_GATE_RELU,
    TNI_GATE_SIGMOID,
    TNI_GATE_NONE
} tni_gate;

/* Element (i, j) of entry p of the batch is at data + sum(p[d] * batch[d]) + i * row + j * column. Strides are in
 * elements, and may be 0 or negative. */
typedef struct tni_matrix {
    void *data;   /* NULL before `run` */
    tn_type type; /* TN_NO_TYPE: there is no such matrix */
    int64_t row, column;
    int64_t batch[TN_MAX_RANK]; /* (n_batch), 0 where it is the same for all entries */
    int64_t sum[TN_MAX_RANK];   /* (n_sums), of a and b */
} tni_matrix;

/* For each entry of the batch, with `+` over all entries of `sums` and all of k:
 *
 *     t = alpha * sum(a[i, k] * b[k, j]) + bias[j] + residual[i, j]
 *     z = t, y = act(t)
 *
 * Sums are in acc(type). With k = 0, or an entry of sums that is 0, they are 0. */
typedef struct tni_product {
    int64_t m, n, k;
    int32_t n_batch, n_sums;
    int64_t batch[TN_MAX_RANK], sums[TN_MAX_RANK]; /* the sizes of these loops; what continues m or k is part of it */
    tni_matrix a;                                  /* (m, k) */
    tni_matrix b;                                  /* (k, n) */
    tni_matrix y, z, residual;                     /* (m, n); of the type of a, or acc of it where there is no bias */
    tni_matrix bias;                               /* (n): its row stride is 0 */
    double alpha;
    int act; /* TNI_ACT_NONE or TNI_ACT_RELU */
} tni_product;

enum { TNI_PRODUCTS_MOST = 3 };

/* The `data` of a kernel: makes the products of a call, and returns how many there are. They follow each other, and
 * none reads what another one wrote. */
typedef struct tni_products {
    int (*of)(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]);
} tni_products;

extern const tni_products tni_linear_products, tni_matmul_products, tni_matmul_a_grad_products,
    tni_matmul_b_grad_products, tni_matmul_add_products, tni_matvec_products, tni_vecmat_products;

/* linear_grad: with dz = dy * act'(z), which is dy itself without act, the products are dx = dz w, dw = dz^T x and
 * db = 1^T dz, as far as they are wanted. dz: its data is where a kernel has put it (or NULL, before `run`); where
 * there is no act, give dy. dresidual is dz, and left to the kernel. */
int tni_linear_grad_products(const tn_call *call, const tn_view *dz, tni_product products[TNI_PRODUCTS_MOST]);

/* For the rows of the table: two operations for each term, and each tensor moved once. */
tn_cost tni_linear_cost(const tn_call *call);
tn_cost tni_linear_grad_cost(const tn_call *call);
tn_cost tni_matmul_cost(const tn_call *call);
tn_cost tni_matmul_a_grad_cost(const tn_call *call);
tn_cost tni_matmul_b_grad_cost(const tn_call *call);
tn_cost tni_matvec_cost(const tn_call *call);
tn_cost tni_vecmat_cost(const tn_call *call);

#endif
