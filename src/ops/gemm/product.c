/* The products that calls are made of. */
#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "gemm.h"

/* A matrix without its batch. Data that is not there yet stays NULL. */
static tni_matrix matrix_of(const tn_view *v, int64_t row, int64_t column) {
    if (!v) return (tni_matrix){0};
    return (tni_matrix){.data = v->data, .type = v->type, .row = row, .column = column};
}

/* The last two dimensions of v, as they are or swapped. */
static tni_matrix plain(const tn_view *v) {
    return matrix_of(v, v->strides[v->ndim - 2], v->strides[v->ndim - 1]);
}

static tni_matrix transposed(const tn_view *v) {
    return matrix_of(v, v->strides[v->ndim - 1], v->strides[v->ndim - 2]);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

/* The stride of v in dimension d of `ndim` leading ones, with which it broadcasts; `trailing` dimensions follow. */
static int64_t stride_in(const tn_view *v, int32_t trailing, int32_t ndim, int32_t d) {
    const int32_t at = d - (ndim - (v->ndim - trailing));
    return at < 0 || v->shape[at] == 1 ? 0 : v->strides[at];
}

static void drop(int64_t *values, int32_t *count, int32_t at) {
    for (int32_t d = at; d + 1 < *count; d++) values[d] = values[d + 1];
}

/* `inner` steps and then one of `outer`: do they continue each other? */
static bool continues(int64_t outer, int64_t inner, int64_t size) {
    return outer == inner * size;
}

enum { ROW_MATRICES = 4 };

/* Loop d of the batch becomes a part of m, outside of its rows or inside of them, where that is one stride in all. */
static bool fold_row(tni_product *p, int32_t d) {
    tni_matrix *const matrices[ROW_MATRICES] = {&p->a, &p->y, &p->z, &p->residual};
    const bool single = p->batch[d] == 1; /* its strides say nothing */
    bool outside = p->b.batch[d] == 0, inside = outside && !single;
    for (int i = 0; i < ROW_MATRICES; i++) {
        const tni_matrix *x = matrices[i];
        if (x->type == TN_NO_TYPE) continue;
        outside = outside && (single || p->m == 1 || continues(x->batch[d], x->row, p->m));
        inside = inside && continues(x->row, x->batch[d], p->batch[d]);
    }
    if (!outside && !inside) return false;
    for (int i = 0; i < ROW_MATRICES; i++) {
        tni_matrix *x = matrices[i];
        if (!single && (!outside || p->m == 1)) x->row = x->batch[d];
        drop(x->batch, &p->n_batch, d);
    }
    drop(p->b.batch, &p->n_batch, d);
    p->m *= p->batch[d];
    drop(p->batch, &p->n_batch, d);
    p->n_batch--;
    return true;
}

/* The same for a loop of sums and k. */
static bool fold_sum(tni_product *p, int32_t d) {
    const tni_matrix *a = &p->a, *b = &p->b;
    const bool single = p->sums[d] == 1;
    const bool outside = continues(a->sum[d], a->column, p->k) && continues(b->sum[d], b->row, p->k);
    const bool inside = continues(a->column, a->sum[d], p->sums[d]) && continues(b->row, b->sum[d], p->sums[d]);
    if (!single && !outside && !inside && p->k != 1) return false;
    if (!single && (!outside || p->k == 1)) {
        p->a.column = p->a.sum[d];
        p->b.row = p->b.sum[d];
    }
    drop(p->a.sum, &p->n_sums, d);
    drop(p->b.sum, &p->n_sums, d);
    p->k *= p->sums[d];
    drop(p->sums, &p->n_sums, d);
    p->n_sums--;
    return true;
}

static void fold(tni_product *p) {
    for (int32_t d = p->n_batch - 1; d >= 0; d--) {
        if (fold_row(p, d)) d = p->n_batch;
    }
    for (int32_t d = p->n_sums - 1; d >= 0; d--) {
        if (fold_sum(p, d)) d = p->n_sums;
    }
}

/* All dimensions of v but the last `trailing` are loops of the batch. */
static void set_batch(tni_product *p, const tn_view *v, int32_t trailing) {
    p->n_batch = v->ndim - trailing;
    for (int32_t d = 0; d < p->n_batch; d++) p->batch[d] = v->shape[d];
}

static void set_strides(const tni_product *p, tni_matrix *x, const tn_view *v, int32_t trailing) {
    for (int32_t d = 0; v && d < p->n_batch; d++) x->batch[d] = stride_in(v, trailing, p->n_batch, d);
}

/* The batch of `like`, with the strides of a, b and y, behind whose batch as many dimensions follow. */
static void set_loops(tni_product *p, const tn_view *like, int32_t trailing, const tn_view *const views[3],
                      const int32_t behind[3]) {
    set_batch(p, like, trailing);
    set_strides(p, &p->a, views[0], behind[0]);
    set_strides(p, &p->b, views[1], behind[1]);
    set_strides(p, &p->y, views[2], behind[2]);
    fold(p);
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */

/* Rows of x: (*r, k) are one matrix where they continue each other, else a batch of rows. */
static tni_product rows_product(const tn_view *x, const tn_view *y) {
    const int32_t last = x->ndim - 1;
    tni_product p = {.m = 1, .n = y->shape[last], .k = x->shape[last], .alpha = 1};
    p.a = matrix_of(x, 0, x->strides[last]);
    p.y = matrix_of(y, 0, y->strides[last]);
    set_batch(&p, x, 1);
    set_strides(&p, &p.a, x, 1);
    set_strides(&p, &p.y, y, 1);
    return p;
}

static tni_matrix beside(const tni_product *p, const tn_view *v) {
    tni_matrix x = matrix_of(v, 0, v ? v->strides[v->ndim - 1] : 0);
    set_strides(p, &x, v, 1);
    return x;
}

static int linear_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const linear_args a = linear_args_of(call);
    tni_product *p = products;
    *p = rows_product(a.x, a.y);
    p->b = transposed(a.w);
    p->bias = matrix_of(a.b, 0, a.b ? a.b->strides[0] : 0);
    p->residual = beside(p, a.residual);
    p->z = beside(p, a.act == TNI_ACT_NONE ? NULL : a.z);
    p->act = a.act;
    fold(p);
    return 1;
}

/* y[n, k] = dz[r, n] x[r, k], with sums over *r. */
static tni_product sum_product(const tn_view *dz, const tn_view *x, const tn_view *y) {
    const int32_t last = dz->ndim - 1;
    tni_product p = {.m = dz->shape[last], .n = x ? x->shape[last] : 1, .k = 1, .n_sums = last, .alpha = 1};
    p.a = matrix_of(dz, dz->strides[last], 0);
    p.b = matrix_of(x, 0, x->strides[last]);
    p.y = plain(y);
    for (int32_t d = 0; d < last; d++) {
        p.sums[d] = dz->shape[d];
        p.a.sum[d] = stride_in(dz, 1, last, d);
        p.b.sum[d] = stride_in(x, 1, last, d);
    }
    fold(&p);
    return p;
}

/* Element 0 of it is a one of any type. */
static const tn_view *ones(tn_type type, const int64_t *shape, int32_t ndim, tn_view *room) {
    static const uint16_t f16 = 0x3c00, bf16 = 0x3f80;
    static const float f32 = 1;
    static const double f64 = 1;
    static const int64_t strides[TN_MAX_RANK];
    const void *one = type == TN_F16    ? (const void *)&f16
                      : type == TN_BF16 ? (const void *)&bf16
                      : type == TN_F32  ? (const void *)&f32
                                        : (const void *)&f64;
    *room = (tn_view){.data = (void *)(uintptr_t)one, .shape = shape, .strides = strides, .ndim = ndim, .type = type};
    return room;
}

int tni_linear_grad_products(const tn_call *call, const tn_view *dz, tni_product products[TNI_PRODUCTS_MOST]) {
    const linear_grad_args a = linear_grad_args_of(call);
    int count = 0;
    if (a.dx) {
        tni_product *p = &products[count++];
        *p = rows_product(dz, a.dx);
        p->b = plain(a.w);
        fold(p);
    }
    if (a.dw) products[count++] = sum_product(dz, a.x, a.dw);
    if (a.db) {
        /* (1, n) from a row of ones: dz is read along its rows. */
        int64_t shape[TN_MAX_RANK], strides[2] = {0, a.db->strides[0]};
        tn_view one, row = *a.db;
        for (int32_t d = 0; d < dz->ndim; d++) shape[d] = d + 1 < dz->ndim ? dz->shape[d] : 1;
        row.ndim = 2;
        row.strides = strides;
        products[count++] = sum_product(ones(dz->type, shape, dz->ndim, &one), dz, &row);
    }
    return count;
}

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

static int matmul_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const matmul_args a = matmul_args_of(call);
    const int32_t last = a.y->ndim - 1;
    tni_product *p = products;
    *p = (tni_product){.m = a.y->shape[last - 1],
                       .n = a.y->shape[last],
                       .k = a.a->shape[a.a->ndim - 1],
                       .a = plain(a.a),
                       .b = plain(a.b),
                       .y = plain(a.y),
                       .alpha = a.alpha};
    set_loops(p, a.y, 2, (const tn_view *[]){a.a, a.b, a.y}, (const int32_t[]){2, 2, 2});
    return 1;
}

/* The loops of dy: those that the result has are its batch, the others are summed. */
static void gradient_loops(tni_product *p, const tn_view *dy, tni_matrix *of_dy, const tn_view *other,
                           tni_matrix *of_other, const tn_view *result) {
    const int32_t ndim = dy->ndim - 2;
    for (int32_t d = 0; d < ndim; d++) {
        const int32_t at = d - (dy->ndim - result->ndim);
        const bool kept = at >= 0 && result->shape[at] == dy->shape[d];
        const int32_t i = kept ? p->n_batch++ : p->n_sums++;
        *(kept ? &p->batch[i] : &p->sums[i]) = dy->shape[d];
        *(kept ? &of_dy->batch[i] : &of_dy->sum[i]) = stride_in(dy, 2, ndim, d);
        *(kept ? &of_other->batch[i] : &of_other->sum[i]) = stride_in(other, 2, ndim, d);
        if (kept) p->y.batch[i] = stride_in(result, 2, ndim, d);
    }
    fold(p);
}

/* da = alpha * dy b^T */
static int matmul_a_grad_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const matmul_a_grad_args a = matmul_a_grad_args_of(call);
    const int32_t last = a.dy->ndim - 1;
    tni_product *p = products;
    *p = (tni_product){.m = a.dy->shape[last - 1],
                       .n = a.b->shape[a.b->ndim - 2],
                       .k = a.dy->shape[last],
                       .a = plain(a.dy),
                       .b = transposed(a.b),
                       .y = plain(a.da),
                       .alpha = a.alpha};
    gradient_loops(p, a.dy, &p->a, a.b, &p->b, a.da);
    return 1;
}

/* db = alpha * a^T dy */
static int matmul_b_grad_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const matmul_b_grad_args a = matmul_b_grad_args_of(call);
    const int32_t last = a.dy->ndim - 1;
    tni_product *p = products;
    *p = (tni_product){.m = a.a->shape[a.a->ndim - 1],
                       .n = a.dy->shape[last],
                       .k = a.dy->shape[last - 1],
                       .a = transposed(a.a),
                       .b = plain(a.dy),
                       .y = plain(a.db),
                       .alpha = a.alpha};
    gradient_loops(p, a.dy, &p->b, a.a, &p->a, a.db);
    return 1;
}

/* c = alpha * a b + c, or without what c was. */
static int matmul_add_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const matmul_add_args a = matmul_add_args_of(call);
    const int32_t last = a.c->ndim - 1;
    tni_product *p = products;
    *p = (tni_product){.m = a.c->shape[last - 1],
                       .n = a.c->shape[last],
                       .k = a.a->shape[last],
                       .a = plain(a.a),
                       .b = plain(a.b),
                       .y = plain(a.c),
                       .residual = a.add ? plain(a.c) : (tni_matrix){0},
                       .alpha = a.alpha};
    set_batch(p, a.c, 2);
    if (a.add) set_strides(p, &p->residual, a.c, 2);
    set_loops(p, a.c, 2, (const tn_view *[]){a.a, a.b, a.c}, (const int32_t[]){2, 2, 2});
    return 1;
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* One row for each entry of the batch: so sums are in the order that they have beside other rows. */
static tni_product row_product(const tn_view *x, const tn_view *of_a, tni_matrix a, int64_t n, const tn_view *y) {
    const int32_t last = x->ndim - 1;
    tni_product p = {.m = 1, .n = n, .k = x->shape[last], .b = a, .alpha = 1};
    p.a = matrix_of(x, 0, x->strides[last]);
    p.y = matrix_of(y, 0, y->strides[last]);
    set_loops(&p, of_a, 2, (const tn_view *[]){x, of_a, y}, (const int32_t[]){1, 2, 1});
    return p;
}

/* y^T = x^T a^T */
static int matvec_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const matvec_args a = matvec_args_of(call);
    products[0] = row_product(a.x, a.a, transposed(a.a), a.a->shape[a.a->ndim - 2], a.y);
    return 1;
}

/* y = x^T a */
static int vecmat_products(const tn_call *call, tni_product products[TNI_PRODUCTS_MOST]) {
    const vecmat_args a = vecmat_args_of(call);
    products[0] = row_product(a.x, a.a, plain(a.a), a.a->shape[a.a->ndim - 1], a.y);
    return 1;
}

const tni_products tni_linear_products = {linear_products}, tni_matmul_products = {matmul_products},
                   tni_matmul_a_grad_products = {matmul_a_grad_products},
                   tni_matmul_b_grad_products = {matmul_b_grad_products},
                   tni_matmul_add_products = {matmul_add_products}, tni_matvec_products = {matvec_products},
                   tni_vecmat_products = {vecmat_products};

/* ---- what they cost ---------------------------------------------------------------------------------------------- */

static tn_cost cost_of(const tni_product *products, int count) {
    tn_cost cost = {0}; /* no bytes: those of the tensors */
    for (int i = 0; i < count; i++) {
        const tni_product *p = &products[i];
        double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        for (int32_t d = 0; d < p->n_batch; d++) flops *= (double)p->batch[d];
        for (int32_t d = 0; d < p->n_sums; d++) flops *= (double)p->sums[d];
        cost.flops += flops;
    }
    return cost;
}

#define COST(op)                                                 \
    tn_cost tni_##op##_cost(const tn_call *call) {               \
        tni_product products[TNI_PRODUCTS_MOST];                 \
        return cost_of(products, op##_products(call, products)); \
    }
COST(linear)
COST(matmul)
COST(matmul_a_grad)
COST(matmul_b_grad)
COST(matvec)
COST(vecmat)

tn_cost tni_linear_grad_cost(const tn_call *call) {
    tni_product products[TNI_PRODUCTS_MOST];
    return cost_of(products, tni_linear_grad_products(call, linear_grad_args_of(call).dy, products));
}
