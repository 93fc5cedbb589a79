/* cummax and cummin: contracts, gradients, reference. */
#include "cummax.h"

#include <math.h>
#include <string.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(cummax)
TNI_CUDA_DECLARE(cummax)

tni_extremes tni_extremes_of(const tn_call *call) {
    const cummax_args a = cummax_args_of(call);
    const int axis = (int)a.axis;
    return (tni_extremes){
        .x = a.x,
        .values = a.values,
        .index = a.index,
        .outer = tn_product(a.x, 0, axis),
        .n = a.x->shape[axis],
        .inner = tn_product(a.x, axis + 1, a.x->ndim),
        .smallest = ((const tni_extremes_kind *)call->kernel->data)->smallest,
    };
}

/* ---- reference --------------------------------------------------------------------------------------------------- */

/* Whether element `at` takes the place of the one at `best`, which is before it. */
static bool takes_over(const tni_extremes *e, int64_t at, int64_t best) {
    if (e->x->type == TN_I64) {
        const int64_t *x = e->x->data;
        return e->smallest ? x[at] <= x[best] : x[at] >= x[best];
    }
    if (e->x->type == TN_U64) {
        const uint64_t *x = e->x->data;
        return e->smallest ? x[at] <= x[best] : x[at] >= x[best];
    }
    const double now = get(e->x, at), so_far = get(e->x, best);
    return isnan(now) || (e->smallest ? now <= so_far : now >= so_far);
}

static tn_status cummax_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_extremes e = tni_extremes_of(call);
    const size_t size = tn_type_size(e.x->type);
    for (int64_t r = 0; r < e.outer * e.inner; r++) {
        const int64_t first = r / e.inner * e.n * e.inner + r % e.inner;
        int64_t best = 0;
        for (int64_t i = 0; i < e.n; i++) {
            const int64_t at = first + i * e.inner;
            if (i > 0 && takes_over(&e, at, first + best * e.inner)) best = i;
            if (e.index) ((int64_t *)e.index->data)[at] = best;
            if (!e.values) continue;
            const char *from = (const char *)e.x->data + (size_t)(first + best * e.inner) * size;
            memcpy((char *)e.values->data + (size_t)at * size, from, size);
        }
    }
    return TN_OK;
}

/* ---- the rows of the table --------------------------------------------------------------------------------------- */

static const tni_extremes_kind largest_kind = {.smallest = false}, smallest_kind = {.smallest = true};

/* The f32 build serves integers, too. */
#define CUMMAX_VARIANT(set, needs, kind) \
    {.name = #set,                       \
     .device = TN_CPU,                   \
     .types = ~TN_BIT(TN_F64),           \
     .isa = needs,                       \
     .run = cummax_##set##_f32,          \
     .data = &(kind)},                   \
        {.name = #set,                   \
         .device = TN_CPU,               \
         .types = TN_BIT(TN_F64),        \
         .isa = needs,                   \
         .run = cummax_##set##_f64,      \
         .data = &(kind)},
#define CUMMAX_KERNELS(kind)                                                            \
    TNI_VARIANTS(CUMMAX_VARIANT, kind)                                                  \
    TNI_CUDA_KERNEL(cummax, .workspace = tni_cummax_cuda_workspace, .data = &(kind)), { \
        .name = "ref", .device = TN_CPU, .run = cummax_ref, .data = &(kind)             \
    }

static const tn_kernel cummax_kernels[] = {CUMMAX_KERNELS(largest_kind), {0}};
static const tn_kernel cummin_kernels[] = {CUMMAX_KERNELS(smallest_kind), {0}};

static const tn_sample cummax_samples[] = {
    {"s=[7]"},
    {"s=[4, 33]"},
    {"s=[3, 5, 17] axis=1"},
    {"s=[65, 6] axis=0"},
    {"s=[2, 300, 70] axis=1"},
    {"s=[3, 1030]"},
    {"s=[2, 5000]"},
    {"s=[40000]"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[2, 1]"},
    {"s=[3, 300] x=sorted T=i32"}, /* every element is a new one */
    {"s=[40, 9] T=i32"},
    {"s=[70, 8] axis=0 T=u8"},
    {"s=[2, 600] T=i64"},
    {"s=[2, 21] T=u64"},
    {"s=[9, 21] T=bool"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[4096, 1024] axis=0", .bench = true},
    {"s=[64, 256, 256] axis=1", .bench = true},
    {0},
};

#define ORDERED "T: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool"
#define RESULTS "-> values: T[*s], index: i64[*s] where rank(*s) >= 1"
/* Each element gets the sum of what arrives where it is the largest so far: always added up in the same order. */
#define CUMMAX_GRAD "x: gather_grad(dvalues, index, *s)"

const tn_op tni_ops_cummax[] = {
    {
        .signature = "cummax<" ORDERED ">(x: T[*s], axis: axis = -1) " RESULTS,
        .doc =
            "The largest element so far along an axis, and where it is. Of equal ones that is the last; NaN is larger "
            "than every number.",
        .grad = CUMMAX_GRAD,
        .kernels = cummax_kernels,
        .samples = cummax_samples,
    },
    {
        .signature = "cummin<" ORDERED ">(x: T[*s], axis: axis = -1) " RESULTS,
        .doc = "The smallest element so far along an axis, and where it is. Of equal ones that is the last; NaN is "
               "smaller than every number.",
        .grad = CUMMAX_GRAD,
        .kernels = cummin_kernels,
        .samples = cummax_samples,
    },
    {0},
};
