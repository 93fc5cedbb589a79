/* A formula bound to one form of call: passes over memory, each a list of steps over blocks of values.
 *
 * The domain is the shape that everything in the formula broadcasts to. Rows go along its last dimension. A value has
 * some of the domain's dimensions (a mask); in a pass it is an element's, a row's or a single one. A pass walks over
 * the rows that its results have; what must be complete before it can be used (a sum over everything, over the
 * columns, or over rows that are shared) is made by an earlier pass and kept in the workspace.
 *
 * A block is R whole rows, where a row has at most `block` elements, and all steps run over it one after the other.
 * Longer rows come in blocks of their own: once for each stage of row reductions, with what the stage needs computed
 * anew from the inputs, which are in the cache by then. */
#ifndef TNI_FUSE_PROGRAM_H
#define TNI_FUSE_PROGRAM_H

#include "fuse/graph/formula.h"

enum {
    TNI_BLOCK = 2048,           /* elements */
    TNI_BLOCK_MOST = 16384,     /* where next to nothing is kept between loops: long stretches are written faster */
    TNI_SCRATCH = 40960,        /* bytes that a block's values should stay below: the first-level cache */
    TNI_SCRATCH_FEW = 4096,     /* that is next to nothing */
    TNI_SCRATCH_FIXED = 163840, /* and then what is the same for all blocks may take as much */
    TNI_SCRATCH_MOST = 262144,  /* and must, since they are on the stack */
};

/* What values are computed in. Truth values are bytes, integers int64_t. */
typedef enum tni_lane { TNI_LANE_BOOL, TNI_LANE_INT, TNI_LANE_F32, TNI_LANE_F64, TNI_LANES } tni_lane;
typedef enum tni_level { TNI_ONCE, TNI_ROW, TNI_ELEMENT } tni_level;

static inline int64_t tni_lane_size(int lane) {
    return lane == TNI_LANE_BOOL ? 1 : lane == TNI_LANE_F32 ? 4 : 8;
}
tni_lane tni_lane_of(const tni_graph *g, int type);
tn_type tni_lane_type(int lane); /* what its values are in memory */

/* In front of a loop: results may stand where an argument stood, element for element; otherwise nothing overlaps. clang
 * finds out by itself, when the loop begins. */
#if defined(__clang__)
#define TNI_IVDEP
#else
#define TNI_IVDEP _Pragma("GCC ivdep")
#endif

/* out[i] = f(arg[0][i] …); bit k of `scalars`: arg[k] is a single value. out may be one of the arguments. */
typedef void (*tni_loop)(const void *const *arg, unsigned scalars, void *out, int64_t n);

/* One set for each instruction set and precision (loops_cpu.c). */
typedef struct tni_real_loops {
    tni_loop op[TNI_STEP_OPS];
    bool own_sin; /* sin and cos are vectors' own, not the C library's (V_HAS_SIN) */
    double (*sum)(const void *x, int64_t n);
    double (*dot)(const void *x, const void *y, int64_t n);
    double (*max)(const void *x, int64_t n);
    double (*min)(const void *x, int64_t n);
    void (*add_to)(double *sums, const void *x, int64_t n);   /* sums[i] += x[i] */
    void (*add_row)(void *pending, const void *x, int64_t n); /* pending[i] += x[i] */
    void (*settle)(double *sums, void *pending, int64_t n);   /* sums[i] += pending[i], which becomes 0 */
    /* n elements of memory of a floating type from and to values */
    void (*load)(tn_type type, const void *from, void *to, int64_t n);
    void (*store)(tn_type type, const void *from, void *to, int64_t n);
} tni_real_loops;

/* Two operations in one loop (pairs_cpu.c): the first on a and b, the second on its result and c. */
enum { TNI_PAIR_ADD, TNI_PAIR_SUB, TNI_PAIR_MUL, TNI_PAIR_REVERSED /* c - t; only as the second */, TNI_PAIRS };
typedef struct tni_pair_loops {
    tni_loop loop[3][TNI_PAIRS][2]; /* 1: with relu behind */
} tni_pair_loops;

/* loops.c */
tni_loop tni_pair_loop(int lane, int first, int second, bool relu);
const tni_real_loops *tni_real_loops_of(int lane); /* for this machine */
const char *tni_loops_isa(void);                   /* its name, as in src/cpu/vec/variants.h */
tni_loop tni_loop_of(int lane, int op);            /* NULL: there is none */
tni_loop tni_convert_loop(int from, int to);
void tni_load_values(int lane, tn_type type, const void *from, int64_t step, void *to, int64_t n);
void tni_store_values(int lane, tn_type type, const void *from, void *to, int64_t step, int64_t n);
void tni_round_values(tn_type type, int lane, void *x, int64_t n); /* to what memory of the type can hold */
void tni_random(const int64_t *seed, int64_t stream, int64_t first, float *out, int64_t n);

/* ---- steps ------------------------------------------------------------------------------------------------------- */

typedef enum tni_step_kind {
    TNI_STEP_NONE, /* became part of another */
    TNI_STEP_LOOP,
    TNI_STEP_LOAD,   /* operand: memory that is not in place yet */
    TNI_STEP_POINT,  /* operand: values that are computed with, or made, where they are */
    TNI_STEP_RAND,   /* operand: the seed; stream */
    TNI_STEP_EXPAND, /* a row's value to its elements, a single one to rows or elements */
    TNI_STEP_ROUND,  /* arg 0 becomes out, rounded to `type` */
    TNI_STEP_REDUCE, /* each row to one value; op; with two arguments, their product */
    TNI_STEP_FINISH, /* the same at the end of a long row: what REDUCE has gathered */
    TNI_STEP_STORE,  /* operand */
    TNI_STEP_GATHER, /* into accumulator `operand`; op; the same */
} tni_step_kind;

typedef struct tni_step {
    uint8_t kind, level, lane, op;
    uint8_t scalars, n_args;
    int8_t pair;        /* which pair of operations it is; -1: none */
    bool relu;          /* behind the pair */
    uint8_t from_level; /* of EXPAND */
    tn_type type;
    int16_t operand;
    int32_t arg[3], out; /* values; -1: none; -2 - k: constant k */
    int64_t stream;
    tni_loop run;
} tni_step;

/* Memory that a pass reads or writes. */
typedef enum tni_where { TNI_FROM_CALL_IN, TNI_FROM_CALL_OUT, TNI_FROM_WORKSPACE } tni_where;
typedef struct tni_memory {
    uint8_t where;
    int32_t index;  /* input or output */
    int64_t offset; /* bytes into the workspace */
    tn_type type;
    bool list;                        /* one tensor for each part of the row */
    int64_t strides[TN_MAX_RANK + 1]; /* over the pass's dimensions, the last one along a row; in elements */
} tni_memory;

typedef struct tni_accumulator {
    uint8_t op, lane;
    int64_t size;    /* values of 8 bytes, for each piece */
    int64_t partial; /* bytes into the workspace: (pieces, size) */
    int64_t result;  /* bytes into the workspace: (size), 8 bytes each */
    int64_t pending; /* bytes into the workspace: (pieces, size) floats; -1: none (tni_is_settled) */
    int32_t output;  /* of the call, which it becomes at once; -1: the workspace */
    int64_t strides[TN_MAX_RANK + 1];
} tni_accumulator;

/* Where there is a sum for each column and values are floats, a group of rows is added up as such, and then to the sums:
 * to make doubles of all values would take longer than everything else. */
enum { TNI_LONG_ROW = 64 /* columns: such a row is worth a loop */, TNI_GROUP = 16 /* rows */ };
static inline bool tni_is_settled(int64_t row, int64_t rows) { /* after this row of so many */
    return row % TNI_GROUP == TNI_GROUP - 1 || row == rows - 1;
}

typedef enum tni_segment_kind { TNI_SEGMENT_ONCE, TNI_SEGMENT_ROWS, TNI_SEGMENT_COLUMNS } tni_segment_kind;
typedef struct tni_segment {
    uint8_t kind;
    int32_t first, count; /* steps */
} tni_segment;

/* Compiled loop `number`, from 1, stands for `count` steps from here on; 0: none begins here. One that is all of its
 * segment and keeps nothing in the scratch memory need not stop at the end of a block: it is free, and takes any number
 * of columns, or of rows, at once. Long stretches of memory are written faster. */
typedef struct tni_loop_place {
    int32_t number, count;
    bool free;
} tni_loop_place;

typedef struct tni_pass {
    uint32_t rows_mask; /* dimensions of the domain that its rows have */
    int32_t phase;
    bool narrow;    /* gathers values of rows, without the last dimension */
    bool last;      /* updates inputs: after everything else of its phase */
    int32_t n_dims; /* of rows, merged where memory allows */
    int64_t size[TN_MAX_RANK + 1];
    int64_t columns;
    bool reduces;        /* has row reductions: rows stay whole */
    int64_t block, rows; /* elements, and rows, of a block */
    int64_t units, span; /* pieces of work; columns of each where rows are split */
    int64_t spans;       /* pieces that a row is split into */
    int64_t
        *first_unit; /* (parts + 1) where the row is that of lists: units do not go across tensors; NULL: it is not */
    int64_t pieces;  /* where something accumulates: units are added up in so many pieces, by shape alone */
    int32_t n_values, n_steps, n_segments, n_memory, n_accumulators;
    int64_t scratch;
    int64_t *offset; /* (n_values) of values in the scratch memory; -1: elsewhere */
    tni_step *steps;
    tni_segment *segments;
    tni_memory *memory;
    tni_accumulator *accumulators;
    tni_loop_place *loops; /* (n_steps): what is compiled; NULL: nothing */
} tni_pass;

struct tni_program {
    int32_t n_passes;
    tni_pass *passes;
    int32_t n_constants;
    uint64_t *constants; /* 8 bytes each, in their lanes */
    size_t workspace;
    tn_cost cost;
    tni_arena *arena;
    int32_t n_parts;
    int64_t *parts; /* elements of each tensor of the lists; NULL: there are none */
    int32_t n_counts;
    int64_t *counts;             /* sizes that the formula computes with */
    struct tni_gpu_program *gpu; /* NULL: for the CPU */
    struct tni_c_code *code;     /* loops that are compiled, or to be; NULL: the interpreter does it all */
};

bool tni_sums_columns(const tni_pass *pass, const tni_accumulator *accumulator); /* plan.c: for each, of long rows */

/* run.c */
char *tni_memory_base(const tn_call *call, const tni_memory *memory, int32_t part);
void tni_clear_sums(const tni_accumulator *accumulator, void *sums); /* of one piece: as if nothing had been added */
void tni_add_sums(const tn_call *call, const tni_pass *pass, const tni_accumulator *accumulator); /* all pieces */

/* ---- binding ----------------------------------------------------------------------------------------------------- */

/* The domain and where each argument lies in it. */
typedef struct tni_domain {
    int32_t n_dims;
    int64_t size[TN_MAX_RANK];
    uint32_t tail; /* the last dimension's bit; 0 where its size is 1, unless it is that of lists */
    struct {
        uint32_t mask;                /* dimensions that it has with a size other than 1 */
        int64_t strides[TN_MAX_RANK]; /* 0 where it has not */
        tn_type type;
        bool present;
    } in[TNI_MAX_ARGS], out[2 * TNI_MAX_ARGS];
} tni_domain;

tn_status tni_make_domain(const tni_fuse *formula, const tn_call *call, tni_domain *domain);
/* An argument of the call that is a list, for how many tensors there are and how large they are. */
const tn_arg *tni_list_of(const tni_fuse *formula, const tn_call *call);

/* What is to be done: a value stored, or one accumulated. */
typedef struct tni_item_todo {
    int32_t node;
    int32_t output;  /* of the formula; -1: to the workspace */
    bool gathers;    /* a reduction over more than rows: its argument is accumulated */
    int32_t becomes; /* where it gathers: the output that it is, and nothing else is made of it; -1: the workspace */
    uint32_t mask;   /* of the result */
    int32_t phase;
    int64_t offset; /* in the workspace */
} tni_item_todo;

typedef struct tni_binding {
    const tni_fuse *f;
    const tn_call *call;
    tni_domain domain;
    tni_special special;
    tni_program *program;
    tni_arena *arena; /* of what is needed until the program is made; all that follows has room for every node */
    uint32_t *mask;   /* dimensions of each node */
    int32_t *phase;   /* after which its value is there */
    int32_t *todo_of; /* what keeps it in the workspace; -1: nothing does */
    int32_t n_todo;
    tni_item_todo *todo;
    int32_t *constant_of[TNI_LANES]; /* its place among the constants, + 1 */
    uint64_t *constants;
    tni_text *cuda_text; /* the passes as CUDA C are added to it; NULL: not wanted */
    int32_t n_counts;    /* sizes that the formula computes with: arguments of what is compiled, not part of it */
    int64_t *counts;
    int32_t n_constants;
} tni_binding;

tn_status tni_plan_pass(tni_binding *b, tni_pass *pass); /* plan.c */
bool tni_in_pass(const tni_binding *b, const tni_pass *pass, const tni_item_todo *todo);
int64_t tni_mask_count(const tni_domain *domain, uint32_t mask);
void tni_mask_strides(const tni_domain *domain, uint32_t mask,
                      int64_t *strides); /* of memory that has its dimensions */

#endif
