/* What the files of src/core share with each other, and with adapters and the CLI. */
#ifndef TNI_CORE_H
#define TNI_CORE_H

#include <stdatomic.h>

#include "core/contract/contract.h"

/* ---- memory of the core itself: every allocation goes through here, so that tests can make the Nth one fail ------ */
void *tni_malloc(size_t bytes); /* NULL and a message when there is none; 0 bytes gives a valid pointer */
void *tni_calloc(size_t count, size_t bytes);
void *tni_realloc(void *memory, size_t bytes);
char *tni_strdup(const char *string);
enum { TNI_ALIGNMENT = 64 }; /* of memory that kernels get */
void *tni_malloc_aligned(size_t bytes);
void tni_free(void *memory);
/* Tests: the n-th allocation from now (1 is the next) on any thread fails; 0: none. Returns how many were asked for
 * since. */
int64_t tni_fail_allocation(int64_t n);

/* Memory that is freed all at once. */
typedef struct tni_arena tni_arena;
tni_arena *tni_arena_new(void);                        /* NULL and a message when there is no memory */
void *tni_arena_alloc(tni_arena *arena, size_t bytes); /* zeroed, 16-byte aligned; NULL and a message */
char *tni_arena_text(tni_arena *arena, const char *begin, size_t length);
void tni_arena_free(tni_arena *arena);

/* ---- hashes, of this process only: quick, and whoever finds something compares it -------------------------------- */
static inline uint64_t tni_hash_add(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

/* ---- messages: whether this thread has failed with one since it was asked to ------------------------------------- */

void tni_expect_error(void);
bool tni_error_is_said(void);

/* ---- the table --------------------------------------------------------------------------------------------------- */
struct tn_operator {
    const tn_op *row;
    tni_contract *contract;
    int32_t index;                     /* in the table; -1: in none */
    bool completed;                    /* the row was made from a formula */
    struct tn_operator *next;          /* of those in no table */
    _Atomic(const tni_rule *) rule;    /* parsed when first asked for: tni_operator_rule */
    _Atomic(bool) no_rule;             /* there is none: a formula that cannot be differentiated */
    _Atomic(struct tni_plans *) plans; /* calls seen before (plan.c); made by the first call */
};
void tni_plans_free(struct tni_plans *plans); /* NULL is fine */
/* The operator's gradient rule; *rule is NULL where it has none. */
tn_status tni_operator_rule(const tn_operator *op, const tni_rule **rule);
/* Adds all rows or, with a message, none. The rows must stay where they are. */
tn_status tni_table_add(const tn_op *const *rows, int n);
/* An operator that is in no table. It is free to go until tni_operator_keep; from then on it stays. */
tn_status tni_operator_make(const tn_op *row, tn_operator **made);
void tni_operator_free(tn_operator *op); /* NULL is fine */
void tni_operator_keep(tn_operator *op);
tn_operator *tni_operators_kept(void); /* the last one; the others follow by `next` */
/* Letters to change, add or drop to get from one name to the other; stops counting at `most`. */
int tni_edit_distance(const char *a, const char *b, int most);
/* Rows compiled in; ends with NULL (src/tenon.c). */
extern const tn_op *const tni_builtin_ops[];

/* Rows with a formula: whoever can compile one says so (src/fuse by src/tenon.c). The core knows formulas by this
 * alone; without it, such rows are refused. */
typedef struct tni_formulas {
    /* The row with kernels that run its formula. It stays, unless drop is called. Looks at the formula when it must. */
    tn_status (*complete)(const tn_op *row, const tn_op **whole);
    void (*drop)(const tn_op *whole);
    /* The gradient of a row that was completed: a rule, and the operator that it calls, which is in no table. *rule is
     * NULL where there is none. The caller frees it. */
    tn_status (*gradient)(const tn_op *whole, char **rule, const tn_operator **called);
} tni_formulas;
void tni_set_formulas(const tni_formulas *formulas);

/* ---- tensors and views ------------------------------------------------------------------------------------------- */
tn_type tni_acc_type(tn_type type);     /* TN_NO_TYPE for TN_NO_TYPE */
tn_type tni_complex_type(tn_type type); /* TN_NO_TYPE where there is none */
void tni_dense_strides(int32_t ndim, const int64_t *shape, int64_t *strides);
bool tni_is_dense(int32_t ndim, const int64_t *shape, const int64_t *strides);
/* Every element at its own place and no gaps: dense, in some order of the dimensions. */
bool tni_is_permuted_dense(int32_t ndim, const int64_t *shape, const int64_t *strides);
/* The strides that an adapter gives output i: those of the first input that has its shape by the contract and in this
 * call, if that is permuted-dense (channels-last stays channels-last), else dense. */
void tni_output_strides(const tn_operator *op, const tn_args *args, int32_t output, const tn_spec *spec,
                        int64_t *strides);
/* Copies elements between views of the same shape and type, any strides, on the call's device. */
tn_status tni_copy(const tn_call *call, const tn_view *to, const tn_view *from);

/* The next integer towards 0 that 64 bits hold, 0 of NaN: smaller types keep its lower bits. Without branches, so that
 * loops of it become vectors. */
static inline int64_t tni_whole(double a) {
    const int64_t near = (int64_t)(a >= -0x1p63 && a < 0x1p63 ? a : 0);
    return a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : near;
}

/* ---- calls for adapters: one look-up serves inference and the run ------------------------------------------------ */
/* Makes output `output`, which the adapter owns; the core runs into it. */
typedef tn_status (*tni_make_output)(void *context, int32_t output, const tn_spec *spec, const int64_t *strides,
                                     tn_tensor **made);
/* tn_run with outputs made on the way: args->out is ignored, `?` outputs are made when their want_ attribute is true.
 * An attribute without a name is the one at its place in the contract (TN_UNSET: the default). */
tn_status tni_call_alloc(const tn_operator *op, const tn_args *args, const tn_host *host, tni_make_output make,
                         void *context);

/* A host whose memory is a piece that somebody has set aside for one call, each block of it given out once, and whatever
 * `outer` has where that is not enough; the rest is outer's. */
typedef struct tni_scratch {
    const tn_host *outer;
    char *begin, *next, *end;
    tn_host host;
} tni_scratch;
const tn_host *tni_scratch_init(tni_scratch *s, const tn_host *outer, void *data, size_t bytes);

/* The default host's parallel loop (threads.c). */
void tni_parallel(void *context, int64_t n, int64_t grain, tn_body body, void *arg);

/* ---- GPU: what the core needs of it (src/cuda) ------------------------------------------------------------------- */
tn_status tni_cuda_usable(const char *wanted); /* says why not: no driver, an error that cannot be got over, a fork */
tn_status tni_cuda_copy(const tn_call *call, const tn_view *to, const tn_view *from);
/* Stream-ordered memory, for programs without an allocator of their own. */
tn_block tni_cuda_alloc(tn_device device, size_t bytes, void *stream);
void tni_cuda_free(tn_device device, tn_block block, void *stream);
void tni_cuda_trim(void); /* gives the pools' unused memory back */

/* ---- CPU --------------------------------------------------------------------------------------------------------- */
uint32_t tni_cpu_isa(void); /* TN_ISA_… of this machine, less what TENON_ISA=none|avx2|avx512 leaves out */
bool tni_cpu_bf16(void);    /* Arm: it rounds to bf16 by itself; not with TENON_ISA=none */
enum { TNI_MOST_THREADS = 1024 };

#endif
