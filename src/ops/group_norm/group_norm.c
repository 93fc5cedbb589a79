/* Which calls of group_norm, instance_norm and their gradients the vectorised kernels of group_norm_cpu.c take. The
 * operators themselves are formulas (ops/formulas/normalisation.c), which take all others. */
#include "group_norm.h"

#include "core/layout/layout.h"
#include "cpu/vec/variants.h"
#include "fuse/formula_kernel.h"

TNI_CPU_DECLARE(group_norm)
TNI_CPU_DECLARE(group_norm_grad)
TNI_CPU_DECLARE(instance_norm)
TNI_CPU_DECLARE(instance_norm_grad)

/* Every sample lies in one piece, wherever the next one is. */
static bool lie_whole(const tn_view *const *tensors, int count) {
    for (int i = 0; i < count; i++) {
        const tn_view *v = tensors[i];
        if (v && !tni_is_dense(v->ndim - 1, v->shape + 1, v->strides + 1)) return false;
    }
    return true;
}

static bool group_norm_accepts(const tn_call *call) {
    const group_norm_args a = group_norm_args_of(call);
    return a.act < GROUP_NORM_ACTS && lie_whole((const tn_view *[]){a.x, a.y}, 2);
}

static bool instance_norm_accepts(const tn_call *call) {
    const instance_norm_args a = instance_norm_args_of(call);
    return a.act < GROUP_NORM_ACTS && lie_whole((const tn_view *[]){a.x, a.y}, 2);
}

static bool group_norm_grad_accepts(const tn_call *call) {
    const group_norm_grad_args a = group_norm_grad_args_of(call);
    return a.act < GROUP_NORM_ACTS && lie_whole((const tn_view *[]){a.x, a.dy, a.dx}, 3);
}

static bool instance_norm_grad_accepts(const tn_call *call) {
    const instance_norm_grad_args a = instance_norm_grad_args_of(call);
    return a.act < GROUP_NORM_ACTS && lie_whole((const tn_view *[]){a.x, a.dy, a.dx}, 3);
}

/* gamma and beta; and sums for dgamma and dbeta where they are wanted. */
static size_t workspace(const tn_view *x, bool params) {
    const int64_t n = x->shape[0], c = x->shape[1], s = tn_product(x, 2, x->ndim);
    const bool spread = tni_group_norm_spreads(c, s);
    const int64_t numbers = spread ? c * s : c, parts = spread ? ceil_div(n, rows_summed_together(n)) : n;
    return (size_t)(2 * numbers + 2 + (params ? 2 * parts * numbers : 0)) * sizeof(double);
}

static size_t group_norm_workspace(const tn_call *call) {
    return workspace(group_norm_args_of(call).x, false);
}

static size_t instance_norm_workspace(const tn_call *call) {
    return workspace(instance_norm_args_of(call).x, false);
}

static size_t group_norm_grad_workspace(const tn_call *call) {
    const group_norm_grad_args a = group_norm_grad_args_of(call);
    return workspace(a.x, a.dgamma || a.dbeta);
}

static size_t instance_norm_grad_workspace(const tn_call *call) {
    const instance_norm_grad_args a = instance_norm_grad_args_of(call);
    return workspace(a.x, a.dgamma || a.dbeta);
}

#define KERNELS(op, more) \
    TNI_CPU_KERNELS(op, .flags = TN_STRIDED | TN_ALIAS | (more), .accepts = op##_accepts, .workspace = op##_workspace)

const tn_kernel tni_group_norm_kernels[] = {
    KERNELS(group_norm, 0),
    KERNELS(group_norm_grad, TNI_OF_GRADIENT),
    {0},
};

const tn_kernel tni_instance_norm_kernels[] = {
    KERNELS(instance_norm, 0),
    KERNELS(instance_norm_grad, TNI_OF_GRADIENT),
    {0},
};
