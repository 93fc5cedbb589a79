/* embedding: rows of a table, and their gradient. */
#include "embedding.h"

#include "cpu/vec/variants.h"
#include "cuda/driver/cuda.h"
#include "ops/lookup/lookup.h"

TNI_CPU_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_add)
TNI_CUDA_DECLARE(lookup_take)

static tni_lookup embedding_lookup(const tn_call *call) {
    const embedding_args a = embedding_args_of(call);
    tni_lookup l = {.from = a.table, .to = a.y, .index = a.index, .index_name = "index", .skipped = -1};
    l.outer = 1;
    l.v = a.table->shape[0];
    l.inner = a.table->shape[1];
    if (a.zero_padding && a.padding_idx >= 0) l.skipped = a.padding_idx;
    tni_lookup_by_row(&l);
    return l;
}

static tni_lookup embedding_grad_lookup(const tn_call *call) {
    const embedding_grad_args a = embedding_grad_args_of(call);
    tni_lookup l = {.from = a.dy, .to = a.dtable, .index = a.index, .index_name = "index", .skipped = -1};
    l.outer = 1;
    l.v = a.v;
    l.inner = a.dtable->shape[1];
    if (a.padding_idx >= 0) l.skipped = a.padding_idx;
    tni_lookup_by_row(&l);
    return l;
}

static const tni_lookup_kind embedding_kind = {embedding_lookup}, embedding_grad_kind = {embedding_grad_lookup};
static const tn_kernel embedding_kernels[] = {TNI_TAKE_KERNELS(embedding_kind), {0}};
static const tn_kernel embedding_grad_kernels[] = {TNI_ADD_KERNELS(embedding_grad_kind), {0}};

static const tn_sample embedding_samples[] = {
    {"v=10 d=4 s=[7] index<v"},
    {"v=10 d=33 s=[3, 5] index<v index=i32"},
    {"v=3 d=1 s=[40] index<v"},
    {"v=50 d=64 s=[] index<v"},
    /* With padding_idx alone, the gradient is not the slope: its row gets none. */
    {"v=12 d=17 s=[4, 9] index<v padding_idx=3 zero_padding=true"},
    {"v=5 d=16 s=[2, 30] index<v padding_idx=2 zero_padding=true"},
    {"v=9 d=6 s=[0] index<v"},
    {"v=9 d=0 s=[4] index<v"},
    {"v=700 d=256 s=[300] index<v"},
    {"v=50257 d=768 s=[8, 1024] index<v", .bench = true},
    {"v=128256 d=2048 s=[8192] index<v", .bench = true},
    {0},
};

static const tn_sample embedding_grad_samples[] = {
    {"v=10 d=4 s=[7] index<v"},
    {"v=10 d=33 s=[3, 5] index<v index=i32"},
    {"v=3 d=1 s=[300] index<v"},
    {"v=50 d=64 s=[] index<v"},
    {"v=12 d=17 s=[4, 9] index<v padding_idx=3"},
    {"v=5 d=16 s=[2, 300] index<v padding_idx=2"}, /* more of each than one thread adds up on the GPU */
    {"v=9 d=6 s=[0] index<v"},
    {"v=9 d=0 s=[4] index<v"},
    {"v=0 d=4 s=[0] index<v"},
    {"v=1 d=8 s=[2000] index<v"},
    {"v=40 d=301 s=[90] index<v"}, /* long rows that begin anywhere */
    {"v=700 d=256 s=[300] index<v"},
    {"v=70000 d=8 s=[9000] index<v"}, /* a sort in several passes on the GPU */
    {"v=50257 d=768 s=[8, 1024] index<v", .bench = true},
    {"v=128256 d=2048 s=[8192] index<v", .bench = true},
    {0},
};

const tn_op tni_ops_embedding[] = {
    {
        .signature = "embedding(table: T[v, d], index: i32|i64[*s], padding_idx: int = -1, zero_padding: bool = false) "
                     "-> y: T[*s, d]",
        .doc = "Rows of a table. The row padding_idx gets no gradient, and comes out as 0 with zero_padding; -1: none.",
        .grad = "table: embedding_grad(dy, index, v)",
        .kernels = embedding_kernels,
        .samples = embedding_samples,
    },
    {
        .signature = "embedding_grad(dy: T[*s, d], index: i32|i64[*s], v: int, padding_idx: int = -1) "
                     "-> dtable: T[v, d] where v >= 0",
        .doc =
            "The gradient of embedding: each row of dy is added to the row of the table that it came from, in order.",
        .grad = "dy: embedding(ddtable, index, zero_padding=true)",
        .kernels = embedding_grad_kernels,
        .samples = embedding_grad_samples,
    },
    {0},
};
