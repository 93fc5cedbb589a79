/* one_hot: a row of zeros for each index, with a one at its place. */
#include "one_hot.h"

#include <inttypes.h>
#include <string.h>

#include "cuda/driver/cuda.h"
#include "ops/lookup/lookup.h"

TNI_CUDA_DECLARE(one_hot)

typedef struct one_hot_job {
    one_hot_args a;
    _Atomic int64_t bad;
} one_hot_job;

static tni_lookup one_hot_lookup(const one_hot_args *a) {
    return (tni_lookup){.index = a->index,
                        .index_name = "index",
                        .outer = 1,
                        .v = a->classes,
                        .n = tn_count(a->index),
                        .inner = 1,
                        .by_n = 1,
                        .skipped = -1};
}

/* index: (rows), y: (rows, classes) */
static tn_status one_hot_ref(const tn_call *call, void *state) {
    (void)state;
    const one_hot_args a = one_hot_args_of(call);
    const tni_lookup l = one_hot_lookup(&a);
    for (int64_t row = 0; row < l.n; row++) {
        const int64_t k = tni_index_at(a.index->data, a.index->type == TN_I64, row);
        if (k < 0 || k >= a.classes) return tni_lookup_bad(call, &l, 0, row, 0);
        for (int64_t c = 0; c < a.classes; c++) tn_set(a.y->type, a.y->data, row * a.classes + c, c == k);
    }
    return TN_OK;
}

static void one_hot_rows(void *arg, int64_t begin, int64_t end) {
    one_hot_job *job = arg;
    const one_hot_args *a = &job->a;
    const int64_t classes = a->classes;
    const size_t size = tn_type_size(a->y->type);
    memset((char *)a->y->data + (size_t)(begin * classes) * size, 0, (size_t)((end - begin) * classes) * size);
    for (int64_t row = begin; row < end; row++) {
        const int64_t k = tni_index_at(a->index->data, a->index->type == TN_I64, row);
        if (k >= 0 && k < classes)
            tn_set(a->y->type, a->y->data, row * classes + k, 1);
        else
            tni_note_first(&job->bad, row);
    }
}

static tn_status one_hot_run(const tn_call *call, void *state) {
    (void)state;
    one_hot_job job = {.a = one_hot_args_of(call), .bad = INT64_MAX};
    const tni_lookup l = one_hot_lookup(&job.a);
    tn_parallel(call, l.n, max(32768 / max(l.v, 1), 1), one_hot_rows, &job);
    const int64_t bad = atomic_load(&job.bad);
    return bad == INT64_MAX ? TN_OK : tni_lookup_bad(call, &l, 0, bad, 0);
}

/* Not of complex numbers, nor of those of 8 bits. */
static bool has_one(const tn_call *call) {
    const tn_type type = one_hot_args_of(call).y->type;
    return type != TN_C64 && type != TN_C128 && type != TN_E4M3 && type != TN_E5M2;
}

static const tn_kernel one_hot_kernels[] = {
    TNI_CUDA_KERNEL(one_hot, .accepts = has_one),
    {.name = "fill", .device = TN_CPU, .accepts = has_one, .run = one_hot_run},
    {.name = "ref", .device = TN_CPU, .accepts = has_one, .run = one_hot_ref},
    {0},
};

static const tn_sample one_hot_samples[] = {
    {"s=[7] classes=4 index<classes"},
    {"s=[3, 5] classes=33 index<classes index=i32 type=f32"},
    {"s=[40] classes=3 index<classes type=bool"},
    {"s=[] classes=1 index<classes type=bf16"},
    {"s=[6] classes=17 index<classes type=f16"},
    {"s=[2, 9] classes=10 index<classes type=f64"},
    {"s=[11] classes=21 index<classes type=u8"},
    {"s=[0] classes=5 index<classes"},
    {"s=[8192] classes=1000 index<classes type=f32", .bench = true},
    {0},
};

const tn_op tni_ops_one_hot[] = {
    {
        .signature = "one_hot(index: i32|i64[*s], classes: int, type: dtype = i64) -> y: type[*s, classes] "
                     "where classes >= 0",
        .doc = "A row of zeros for each index, with a one at its place.",
        .kernels = one_hot_kernels,
        .samples = one_hot_samples,
    },
    {0},
};
