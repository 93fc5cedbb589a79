/* sort and top_k: contracts, gradients, reference. Both put rows in order; top_k keeps the first k. */
#include "sorting.h"

#include <math.h>
#include <string.h>

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/elements.h"

TNI_CPU_DECLARE(sort)
TNI_CPU_DECLARE(top_k)
TNI_CUDA_DECLARE(sort)
TNI_CUDA_DECLARE(sort_grad)
TNI_CUDA_DECLARE(top_k)
TNI_CUDA_DECLARE(top_k_grad)

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static tni_key_rule rule_of(tn_type type, bool descending) {
    const uint64_t sign = (uint64_t)1 << (8 * tn_type_size(type) - 1), all = sign | (sign - 1);
    const uint64_t infinity = type == TN_F16    ? 0x7c00
                              : type == TN_BF16 ? 0x7f80
                              : type == TN_F32  ? 0x7f800000
                              : type == TN_F64  ? 0x7ff0000000000000
                                                : 0;
    const bool has_sign = TN_BIT(type) & (TN_FLOATS | TN_SIGNED);
    return (tni_key_rule){.sign = has_sign ? sign : 0, .infinity = infinity, .flip = descending ? all : 0};
}

tni_sorting tni_sorting_of_sort(const tn_call *call) {
    const sort_args a = sort_args_of(call);
    const int axis = (int)a.axis;
    const int64_t n = a.x->shape[axis], inner = tn_product(a.x, axis + 1, a.x->ndim);
    return (tni_sorting){
        .x = a.x,
        .values = a.values,
        .index = a.index,
        .rows = tn_product(a.x, 0, axis) * inner,
        .n = n,
        .k = n,
        .inner = inner,
        .rule = rule_of(a.x->type, a.descending),
    };
}

tni_sorting tni_sorting_of_top_k(const tn_call *call) {
    const top_k_args a = top_k_args_of(call);
    return (tni_sorting){
        .x = a.x,
        .values = a.values,
        .index = a.index,
        .rows = tn_product(a.x, 0, a.x->ndim - 1),
        .n = a.x->shape[a.x->ndim - 1],
        .k = a.k,
        .inner = 1,
        .rule = rule_of(a.x->type, a.largest),
    };
}

tni_sorting_grad tni_sorting_grad_of_sort(const tn_call *call) {
    const sort_grad_args a = sort_grad_args_of(call);
    const int axis = (int)a.axis;
    const int64_t n = a.dx->shape[axis], inner = tn_product(a.dx, axis + 1, a.dx->ndim);
    return (tni_sorting_grad){.dvalues = a.dvalues,
                              .index = a.index,
                              .dx = a.dx,
                              .rows = tn_product(a.dx, 0, axis) * inner,
                              .n = n,
                              .k = n,
                              .inner = inner};
}

tni_sorting_grad tni_sorting_grad_of_top_k(const tn_call *call) {
    const top_k_grad_args a = top_k_grad_args_of(call);
    return (tni_sorting_grad){.dvalues = a.dvalues,
                              .index = a.index,
                              .dx = a.dx,
                              .rows = tn_product(a.dx, 0, a.dx->ndim - 1),
                              .n = a.n,
                              .k = a.dvalues->shape[a.dvalues->ndim - 1],
                              .inner = 1};
}

/* ---- memory of the CPU's kernels --------------------------------------------------------------------------------- */

int64_t tni_sorting_few(const tni_sorting *o) {
    return o->n >= 16 && 4 * o->k <= o->n ? max(2 * o->k, 128) + TNI_SORTING_BLOCK : 0;
}

tni_sorting_room tni_sorting_room_of(const tni_sorting *o) {
    tni_sorting_room r = {.record = tni_sorting_is_narrow(o) ? 8 : 16};
    const int64_t few = tni_sorting_few(o);
    const bool together = !few && o->n >= TNI_SORTING_LONG;
    r.records = few ? few : o->n;
    r.slots = together ? 1 : min(o->rows, TNI_SORTING_SLOTS);
    if (few && o->n >= 2 * TNI_SORTING_PART) r.slots = max(r.slots, TNI_SORTING_CHUNKS);
    const int64_t tables = together ? TNI_SORTING_CHUNKS : TNI_SORTING_PASSES;
    r.counts = (size_t)(tables * TNI_SORTING_DIGITS) * sizeof(uint64_t);
    r.bytes = (size_t)round_up(2 * r.records * (int64_t)r.record, 64) + r.counts;
    r.slots = max(min(r.slots, TNI_SORTING_MOST_BYTES / (int64_t)r.bytes), 1);
    return r;
}

static size_t room_bytes(const tni_sorting *o) {
    const tni_sorting_room r = tni_sorting_room_of(o);
    return o->rows && o->k ? r.bytes * (size_t)r.slots : 0;
}

static size_t sort_workspace(const tn_call *call) {
    const tni_sorting o = tni_sorting_of_sort(call);
    return room_bytes(&o);
}

static size_t top_k_workspace(const tn_call *call) {
    const tni_sorting o = tni_sorting_of_top_k(call);
    return room_bytes(&o);
}

/* ---- the reference: a merge sort of indices ---------------------------------------------------------------------- */

/* A row as numbers: doubles, or where these are not exact, 64-bit integers. */
typedef struct row_ref {
    bool descending;
    const double *numbers; /* NULL: integers */
    const int64_t *integers;
} row_ref;

/* Whether a comes before b, ascending: NaN behind all numbers. */
static bool is_before(const row_ref *row, int64_t a, int64_t b) {
    if (!row->numbers) return row->integers[a] < row->integers[b];
    const double left = row->numbers[a], right = row->numbers[b];
    return left < right || (isnan(right) && !isnan(left));
}

/* Whether the element with the larger index, `later`, comes first all the same. */
static bool overtakes(const row_ref *row, int64_t later, int64_t earlier) {
    return row->descending ? is_before(row, earlier, later) : is_before(row, later, earlier);
}

/* Sorts begin … end - 1 of `order`, the places of elements in a row; `spare` has as much room. */
static void merge_sort(const row_ref *row, int64_t *order, int64_t *spare, int64_t begin, int64_t end) {
    const int64_t middle = begin + (end - begin) / 2;
    if (end - begin < 2) return;
    merge_sort(row, order, spare, begin, middle);
    merge_sort(row, order, spare, middle, end);
    int64_t a = begin, b = middle;
    for (int64_t i = begin; i < end; i++) {
        const bool take_later = a == middle || (b < end && overtakes(row, order[b], order[a]));
        spare[i] = order[take_later ? b++ : a++];
    }
    memcpy(order + begin, spare + begin, (size_t)(end - begin) * sizeof *order);
}

/* Element `at` of x into cell i of the row. */
static void read_ref(const tn_view *x, int64_t at, void *cells, int64_t i) {
    int64_t *integers = cells;
    if (x->type == TN_I64)
        integers[i] = ((const int64_t *)x->data)[at];
    else if (x->type == TN_U64) /* in the order of signed ones */
        integers[i] = (int64_t)(((const uint64_t *)x->data)[at] ^ (uint64_t)INT64_MIN);
    else
        ((double *)cells)[i] = get(x, at);
}

/* workspace: (3, n) */
static void order_ref(const tni_sorting *o, int64_t *order) {
    const size_t size = tn_type_size(o->x->type);
    void *cells = order + 2 * o->n;
    const bool whole = o->x->type == TN_I64 || o->x->type == TN_U64;
    const row_ref row = {.descending = o->rule.flip, .numbers = whole ? NULL : cells, .integers = cells};
    for (int64_t r = 0; r < o->rows; r++) {
        const int64_t first = r / o->inner * o->n * o->inner + r % o->inner;
        const int64_t to = r / o->inner * o->k * o->inner + r % o->inner;
        for (int64_t i = 0; i < o->n; i++) order[i] = i;
        for (int64_t i = 0; i < o->n; i++) read_ref(o->x, first + i * o->inner, cells, i);
        merge_sort(&row, order, order + o->n, 0, o->n);
        for (int64_t i = 0; i < o->k; i++) {
            const int64_t from = first + order[i] * o->inner, at = to + i * o->inner;
            if (o->values)
                memcpy((char *)o->values->data + (size_t)at * size, (char *)o->x->data + (size_t)from * size, size);
            if (o->index) ((int64_t *)o->index->data)[at] = order[i];
        }
    }
}

static tn_status sort_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting o = tni_sorting_of_sort(call);
    order_ref(&o, call->workspace);
    return TN_OK;
}

static tn_status top_k_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting o = tni_sorting_of_top_k(call);
    order_ref(&o, call->workspace);
    return TN_OK;
}

static size_t sort_ref_workspace(const tn_call *call) {
    return 3 * sizeof(int64_t) * (size_t)tni_sorting_of_sort(call).n;
}

static size_t top_k_ref_workspace(const tn_call *call) {
    return 3 * sizeof(int64_t) * (size_t)tni_sorting_of_top_k(call).n;
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static int64_t place_in(int64_t row, int64_t i, int64_t n, int64_t inner) {
    return row / inner * n * inner + row % inner + i * inner;
}

static void scatter_ref(const tni_sorting_grad *g) {
    for (int64_t i = 0; i < g->rows * g->n; i++) set(g->dx, i, 0);
    for (int64_t r = 0; r < g->rows; r++) {
        for (int64_t j = 0; j < g->k; j++) {
            const int64_t from = place_in(r, j, g->k, g->inner), at = ((const int64_t *)g->index->data)[from];
            if (at >= 0 && at < g->n) set(g->dx, place_in(r, at, g->n, g->inner), get(g->dvalues, from));
        }
    }
}

static tn_status sort_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting_grad g = tni_sorting_grad_of_sort(call);
    scatter_ref(&g);
    return TN_OK;
}

static tn_status top_k_grad_ref(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting_grad g = tni_sorting_grad_of_top_k(call);
    scatter_ref(&g);
    return TN_OK;
}

static void clear_bytes(void *arg, int64_t begin, int64_t end) {
    memset((char *)arg + begin, 0, (size_t)(end - begin));
}

/* Elements begin … end - 1 of dvalues; what an index outside of the row would write is left out. */
static inline void scatter_sized(const tni_sorting_grad *g, int64_t begin, int64_t end, const size_t size) {
    const int64_t *index = g->index->data, block = g->k * g->inner;
    for (int64_t done = begin; done < end;) { /* a block of `inner` rows, or what is left of it */
        const int64_t outer = done / block, until = min(end, (outer + 1) * block);
        char *to = (char *)g->dx->data + (size_t)(outer * g->n * g->inner) * size;
        for (int64_t column = done % g->inner; done < until; done++) {
            const int64_t at = index[done];
            if (at >= 0 && at < g->n) {
                memcpy(to + (size_t)(at * g->inner + column) * size, (char *)g->dvalues->data + (size_t)done * size,
                       size);
            }
            if (++column == g->inner) column = 0;
        }
    }
}

static void scatter_some(void *arg, int64_t begin, int64_t end) {
    const tni_sorting_grad *g = arg;
    switch (tn_type_size(g->dx->type)) {
    case 2: scatter_sized(g, begin, end, 2); break;
    case 4: scatter_sized(g, begin, end, 4); break;
    default: scatter_sized(g, begin, end, 8); break;
    }
}

static tn_status scatter(const tn_call *call, tni_sorting_grad g) {
    const int64_t bytes = g.rows * g.n * (int64_t)tn_type_size(g.dx->type);
    if (g.k < g.n) tn_parallel(call, bytes, 1 << 18, clear_bytes, g.dx->data);
    tn_parallel(call, g.rows * g.k, 1 << 15, scatter_some, &g);
    return TN_OK;
}

static tn_status sort_grad_run(const tn_call *call, void *state) {
    (void)state;
    return scatter(call, tni_sorting_grad_of_sort(call));
}

static tn_status top_k_grad_run(const tn_call *call, void *state) {
    (void)state;
    return scatter(call, tni_sorting_grad_of_top_k(call));
}

/* ---- the rows of the table --------------------------------------------------------------------------------------- */

#define SMALL_TYPES                                                                                        \
    (TN_BIT(TN_F16) | TN_BIT(TN_BF16) | TN_BIT(TN_F32) | TN_BIT(TN_I8) | TN_BIT(TN_I16) | TN_BIT(TN_I32) | \
     TN_BIT(TN_U8) | TN_BIT(TN_U16) | TN_BIT(TN_U32) | TN_BIT(TN_BOOL))

static bool sort_is_narrow(const tn_call *call) {
    const tni_sorting o = tni_sorting_of_sort(call);
    return tni_sorting_is_narrow(&o);
}

static bool top_k_is_narrow(const tn_call *call) {
    const tni_sorting o = tni_sorting_of_top_k(call);
    return tni_sorting_is_narrow(&o);
}

/* The f32 build of a file has records of 8 bytes, the f64 build of 16. */
#define ORDER_KERNELS(set, needs, op) \
    {.name = #set,                    \
     .device = TN_CPU,                \
     .types = SMALL_TYPES,            \
     .isa = needs,                    \
     .accepts = op##_is_narrow,       \
     .workspace = op##_workspace,     \
     .run = op##_##set##_f32},        \
        {.name = #set, .device = TN_CPU, .isa = needs, .workspace = op##_workspace, .run = op##_##set##_f64},

static const tn_kernel sort_kernels[] = {
    TNI_VARIANTS(ORDER_KERNELS, sort) /* */
    TNI_CUDA_KERNEL(sort, .workspace = tni_sort_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .workspace = sort_ref_workspace, .run = sort_ref},
    {0},
};

static const tn_kernel top_k_kernels[] = {
    TNI_VARIANTS(ORDER_KERNELS, top_k) /* */
    TNI_CUDA_KERNEL(top_k, .workspace = tni_top_k_cuda_workspace),
    {.name = "ref", .device = TN_CPU, .workspace = top_k_ref_workspace, .run = top_k_ref},
    {0},
};

static const tn_kernel sort_grad_kernels[] = {
    {.name = "scatter", .device = TN_CPU, .run = sort_grad_run},
    TNI_CUDA_KERNEL(sort_grad),
    {.name = "ref", .device = TN_CPU, .run = sort_grad_ref},
    {0},
};

static const tn_kernel top_k_grad_kernels[] = {
    {.name = "scatter", .device = TN_CPU, .run = top_k_grad_run},
    TNI_CUDA_KERNEL(top_k_grad),
    {.name = "ref", .device = TN_CPU, .run = top_k_grad_ref},
    {0},
};

/* Rows of every way that a kernel takes: a few elements, some hundreds, a block's, and more than one block holds. */
static const tn_sample sort_samples[] = {
    {"s=[7]"},
    {"s=[4, 33]"},
    {"s=[4, 33] descending=true"},
    {"s=[3, 5, 17] axis=1"},
    {"s=[65, 6] axis=0 descending=true"},
    {"s=[2, 300]"},
    {"s=[5, 1500] descending=true"},
    {"s=[1500, 5] axis=0"},
    {"s=[2, 5000]"},
    {"s=[9000] descending=true"},
    {"s=[0, 5]"},
    {"s=[5, 0]"},
    {"s=[2, 1]"},
    {"s=[4096, 1024]", .bench = true},
    {"s=[1048576]", .bench = true},
    {0},
};

static const tn_sample sort_grad_samples[] = {
    {"s=[7] index=permutation"},
    {"s=[4, 33] index=permutation"},
    {"s=[3, 5, 17] axis=1 index=permutation"},
    {"s=[65, 6] axis=0 index=permutation"},
    {"s=[9000] index=permutation"},
    {"s=[0, 5] index=permutation"},
    {"s=[5, 0] index=permutation"},
    {"s=[4096, 1024] index=permutation", .bench = true},
    {0},
};

static const tn_sample top_k_samples[] = {
    {"r=[] n=7 k=3"},
    {"r=[4] n=33 k=5"},
    {"r=[4] n=33 k=33"},
    {"r=[2, 3] n=17 k=1 largest=false"},
    {"r=[3] n=300 k=20"},
    {"r=[3] n=3000 k=64"},
    {"r=[2] n=5000 k=3000 largest=false"},
    {"r=[] n=9000 k=10 largest=false"},
    {"r=[] n=9000 k=1500"},
    {"r=[0] n=5 k=2"},
    {"r=[5] n=4 k=0"},
    {"r=[4096] n=8192 k=64", .bench = true},
    {"r=[64] n=131072 k=64", .bench = true},
    {0},
};

static const tn_sample top_k_grad_samples[] = {
    {"r=[] k=3 n=7 index<7 index=unique"},
    {"r=[4] k=5 n=33 index<33 index=unique"},
    {"r=[2, 3] k=17 n=17 index=permutation"},
    {"r=[2] k=64 n=5000 index<5000 index=unique"},
    {"r=[0] k=2 n=5 index<5 index=unique"},
    {"r=[5] k=0 n=4 index<4 index=unique"},
    {"r=[64] k=64 n=131072 index<131072 index=unique", .bench = true},
    {0},
};

#define ORDERED "T: f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool"

const tn_op tni_ops_sorting[] = {
    {
        .signature = "sort<" ORDERED ">(x: T[*s], axis: axis = -1, descending: bool = false) "
                     "-> values: T[*s], index: i64[*s] where rank(*s) >= 1",
        .doc = "x in order along an axis, and where each element was. Equal elements keep their order; NaN is the "
               "largest number.",
        .grad = "x: sort_grad(dvalues, index)",
        .kernels = sort_kernels,
        .samples = sort_samples,
    },
    {
        .signature = "sort_grad(dvalues: T[*s], index: i64[*s], axis: axis = -1) -> dx: T[*s] where rank(*s) >= 1",
        .doc = "The gradient of sort: each element of dvalues goes back to where its index says.",
        .grad = "dvalues: gather(ddx, index)",
        .kernels = sort_grad_kernels,
        .samples = sort_grad_samples,
    },
    {
        .signature = "top_k<" ORDERED ">(x: T[*r, n], k: int, largest: bool = true) "
                     "-> values: T[*r, k], index: i64[*r, k] where k <= n",
        .doc = "The k largest or smallest elements of each row in order, and where they were: the first k of a stable "
               "sort.",
        .grad = "x: top_k_grad(dvalues, index, n = n)",
        .kernels = top_k_kernels,
        .samples = top_k_samples,
    },
    {
        .signature = "top_k_grad(dvalues: T[*r, k], index: i64[*r, k], n: int) -> dx: T[*r, n] where k <= n",
        .doc = "The gradient of top_k: dvalues where their indices say, and 0 elsewhere.",
        .grad = "dvalues: gather(ddx, index)",
        .kernels = top_k_grad_kernels,
        .samples = top_k_grad_samples,
    },
    {0},
};
