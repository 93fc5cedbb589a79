/* A pass on the GPU: one kernel for what it stores and sums alike, more where sums of another form are asked for.
 *
 * The rows of a pass are (kept, reduced): a sum keeps some of the rows' dimensions and perhaps the columns, and loses
 * the others. A block has one kept row, or none where nothing is summed; a piece of the reduced rows, which it walks
 * over; and a stretch of columns. So every partial result belongs to one thread or one block, and comes out the same
 * each time. A second kernel adds the pieces up. Pieces interleave: all blocks together are near the same place of
 * memory. Three forms of walking:
 *     plain   a thread has VL columns of several rows, whose loads are under way together. Where memory is one long
 *             row, rows are stretches of it.
 *     rows    `lanes` threads have a row: the lanes of a part of a warp, a whole block, or the blocks of a cluster, of
 *             which each has some of the columns. Its elements stay in registers between the stages of reductions
 *             (each thread has U vectors). Rows that no cluster holds are read once for each stage, by the blocks of
 *             a cluster all the same: so few rows are under way at a time that the GPU's cache has them when they are
 *             read again. Rows that are read once in any case, since only numbers come of them, are not held: a long
 *             one is cut by its length alone, blocks reduce one cut after the other, and as many blocks share a row
 *             as keep the GPU busy.
 *     upright rows' elements lie far apart, beside those of other rows: a thread has VL rows (upright.cuh). Formulas
 *             that reduce along one dimension, and not the innermost, are made so (turn.c).
 * Each comes in two variants: vectors of 16 bytes where all memory is aligned, and one that takes anything. In `rows`
 * both add in the same order, which depends on the length of a row alone. Rows that are no whole vectors are taken as
 * whole vectors of memory, of which threads have other elements from row to row (slot_partials in partials.cuh says how
 * they are added up in the same order all the same), in words of two elements of 16 bits, or in single elements. Long
 * ones are taken as vectors from their first element on: each is put together from two pieces of memory where it is
 * loaded, and neighbouring lanes put pieces together where they store (load_row and store_row in vectors.cuh).
 *
 * Blocks that reduce rows and sum them up are few and long: what they read comes through a ring in shared memory, by
 * bulk copies, as much of it under way as memory is fastest with (H200: about 48 KiB for each SM; with more it gets
 * slower). Rows that begin anywhere lie in it as in memory within 16 bytes, and are put together from there. So do odd
 * rows that no block holds: its registers have room for one at a time, and the next one comes meanwhile.
 *
 * Over lists a pass is plain, and its one row that of all tensors: the parameters say which blocks have which tensor,
 * for as many tensors as they have room for.
 *
 * A launch takes longer than small tensors do. Steps that one block is enough for are done by one launch, one behind
 * the other: all of them where tensors are small, and what comes after a sum over everything. Others
 * follow closely: from sm_90 on, one is brought onto the GPU while the one before still runs. */
#ifndef TNI_FUSE_GPU_H
#define TNI_FUSE_GPU_H

#include <stdatomic.h>

#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "cuda/driver/nvrtc.h"
#include "fuse/plan/planner.h"

enum {
    TNI_GPU_THREADS = 256,         /* of a block of `plain`, at most */
    TNI_GPU_PARAMS = 4000,         /* bytes that a kernel's parameters may have */
    TNI_GPU_BLOCKS = 1024,         /* where sums walk without a ring: about so many */
    TNI_GPU_SMS = 4,               /* where no GPU is asked: tests walk on the CPU then */
    TNI_GPU_STAGES = 8,            /* of a ring, at most */
    TNI_GPU_RING_ROWS = 32,        /* of a stage, at most: each lane of a warp has one copied */
    TNI_GPU_RING_MOST = 200 << 10, /* bytes of it, at most */
    TNI_GPU_RING_REST = 8 << 10,   /* bytes of shared memory beside it */
    TNI_GPU_CLUSTER = 16,          /* blocks that have a row together, at most; and cuts of a row */
    TNI_GPU_PARTS = 64,            /* tensors of lists that one launch goes over, at most */
    TNI_GPU_ROUNDS = 4,            /* of a block, with one vector for each thread: so many are small */
};

/* Which part of a block's threads has what; the numbers that a kernel's parameters end with. */
typedef struct tni_gpu_grid {
    int64_t across;  /* threads side by side along a row */
    int64_t down;    /* rows that a block has at the same time */
    int64_t columns; /* blocks that a row's columns are split into */
    int64_t span;    /* reduced rows of a piece */
    int64_t pieces;
    int64_t rows;         /* reduced rows */
    int64_t kept;         /* rows that are kept */
    int64_t room;         /* elements of a piece, where the row is that of lists */
    int64_t stages, slot; /* of a ring; elements that a stage has of each tensor */
    int64_t blocks;       /* that walk with rings */
    int64_t width;        /* columns that a block of a cluster has */
    int64_t apart;        /* rows that lie alike in vectors of memory, are so many apart */
    uint32_t block, grid, shared;
} tni_gpu_grid;

typedef enum tni_gpu_kind { TNI_GPU_PLAIN, TNI_GPU_ROWS, TNI_GPU_UPRIGHT, TNI_GPU_TAIL, TNI_GPU_FINISH } tni_gpu_kind;

/* Slots of 32 numbers of 8 bytes that a reduction of rows which begin anywhere takes: a number for each of 16 warps,
 * then as many as a vector has. */
static inline int tni_gpu_odd_slots(int vector) {
    return 1 + (vector + 1) / 2;
}

/* Partial results that a launch adds up. */
typedef struct tni_gpu_finish {
    int32_t sum;         /* the accumulator */
    int64_t partials[2]; /* how many there are after each variant */
    int64_t across, blocks;
} tni_gpu_finish;

/* One launch, or a part of one. */
typedef struct tni_gpu_step {
    uint8_t kind;
    int32_t pass, number; /* the part of the pass, see below */
    char name[2][32];     /* kernels: the aligned variant, and the other one */
    int32_t bound;        /* threads of a block, at most */
    int32_t unroll[2];    /* what the body is a template of, with the next, */
    bool whole;           /* rows are whole vectors, */
    bool odd;             /* or begin and end anywhere */
    bool shifted;         /* plain: the variant for any memory takes whole vectors of it, too, */
    bool pieced;          /* or puts vectors together from two pieces of it each */
    int32_t cluster;      /* blocks that have a row together */
    bool cut;             /* how many, the launch says: its text is for any number */
    bool sums;            /* it leaves partial sums, which the next step adds up */
    bool walks;           /* its blocks go on from row to row */
    int32_t steps[2];     /* variants: so many, this one first, are one launch; 0: of one before */
    bool small;           /* its blocks have little to do, all together */
    bool aligned;         /* strides and sizes allow the aligned one; pointers are looked at when it runs */
    int32_t reference;    /* odd: the memory that others must lie like for that */
    int32_t vector;       /* and VL, */
    int32_t along;        /* of the dimension that vectors go along */
    tni_gpu_grid grid[2];
    int32_t n_finish; /* FINISH: accumulators */
    tni_gpu_finish *finish;
    int32_t parts;       /* tensors of lists that a launch has room for; 0: no lists */
    tn_launch launch[2]; /* filled in when code is loaded; the second only when memory is met that needs it */
} tni_gpu_step;

typedef struct tni_gpu_program {
    int32_t n_steps, capacity;
    tni_gpu_step *steps;
    const char *text;       /* what follows the prelude */
    _Atomic bool loaded[2]; /* variants */
} tni_gpu_program;

static inline tni_gpu_program *tni_on_gpu(const tni_program *program) {
    return program->own;
}

/* What is emitted into, and what for. */
typedef struct tni_gpu_part {
    const tni_planner *p;
    tni_text *text;
    int32_t index;  /* of the pass */
    int32_t number; /* of the part */
    int32_t parts;  /* of lists: tensors that a launch has room for */
    bool main;      /* stores, too */
    bool reduces, streams, flat, random, list;
    bool upright;      /* rows that stand upright */
    bool lying;        /* and where they begin anywhere, vectors are summed as they lie in memory */
    bool wide;         /* a thread has several vectors of a row, not of several rows */
    bool spread;       /* rows lie one behind the other: vectors go across their ends */
    bool whole;        /* rows are whole vectors, or all of them together are */
    bool coarse;       /* everything that it makes is rounded to bf16 */
    bool ring;         /* what it reads comes through shared memory */
    bool odd;          /* rows begin and end anywhere in vectors of memory */
    bool shifted;      /* the one long row of one tensor may begin anywhere */
    bool pieced;       /* plain: rows of 16 bits that are summed up by columns, and may begin anywhere */
    bool walks;        /* its blocks go on from row to row: where there are sums, and in most clusters */
    bool ahead;        /* what it reads of the next row is under way while it has this one */
    int32_t reference; /* odd: the memory whose rows say how vectors lie */
    int32_t cluster;   /* blocks that have a row together, */
    int64_t width;     /* and columns that each of them has, */
    int32_t cuts;      /* or each cut of a row: so many, shared out to the blocks; 0: rows are not cut */
    bool longer;       /* its sums go over so many rows that f32 alone would lose too much */
    bool small;        /* so few elements that one block may do them all */
    uint32_t kept;     /* dimensions of rows that its sums keep */
    bool column;       /* and they keep columns */
    int32_t n_sums, sums[TNI_MAX_ARGS * 2];
    int32_t vector, unroll[2], each; /* VL, rows (or vectors) at a time */
    int32_t lanes, bound, n_slots;
    int32_t down, n_shares, sets; /* upright: threads of a block that have a row, what blocks tell each other, and how
                                     many reductions take turns with that */
    int32_t threads;              /* of a block of `plain` */
    int32_t sms;                  /* of the GPU */
    int64_t ring_most;            /* bytes of shared memory that a ring may take there */
    int32_t stages;
    int32_t offsets;      /* memory, accumulators and the element's number: each has an offset */
    bool *needed, *taken; /* of each node, as all arrays but `used` */
    bool *saved;          /* made in one stage, taken from registers in the next ones */
    int32_t *made;        /* the stage that makes what is saved */
    int32_t *stage;       /* upright: after which reductions a value is there */
    int32_t *deviates;    /* upright: a sum of squares of e - mean(e), made of e at once: that e; -1: no such sum */
    int32_t *beside;      /* a maximum m: the sum of exp(x - m) that is made with it; -1: none */
    bool *along;          /* that sum */
    bool *used;           /* offsets that are */
} tni_gpu_part;

static inline const tni_gnode *tni_gpu_node_of(const tni_gpu_part *part, int32_t node) {
    return &part->p->g->nodes[node];
}
static inline int tni_gpu_lane_of(const tni_gpu_part *part, int32_t node) {
    return tni_lane_of(part->p->g, tni_gpu_node_of(part, node)->type);
}
/* A position: it is counted, not loaded. */
static inline bool tni_gpu_is_index(const tni_gpu_part *part, int32_t node) {
    const int32_t i = part->p->memory_of[node];
    return i >= 0 && part->p->pass->memory[i].where == TNI_FROM_PLACE;
}
/* Of what a leaf is loaded from. */
static inline tn_type tni_gpu_type_of(const tni_gpu_part *part, int32_t node) {
    return part->p->pass->memory[part->p->memory_of[node]].type;
}

/* What the text of every formula begins with: src/cuda/device/formula.cuh and what it includes (cmake/text.cmake). */
extern const char tni_cuda_prelude[];

tn_status tni_plan_cuda(tni_binding *b); /* gpu_plan.c */
/* gpu_grid.c: threads, vectors and blocks of a part, which its step has from then on */
tn_status tni_gpu_set_grids(tni_gpu_part *part, tni_gpu_step *step);
int64_t tni_gpu_whole_turns(int64_t blocks, int64_t apart);
/* Blocks of the largest cluster that the call's GPU has. */
int32_t tni_gpu_most_blocks(const tn_call *call);
int32_t tni_gpu_sms(const tn_call *call);
/* How far apart the partial results of a sum are, in elements: many begin at multiples of 16 bytes. */
int64_t tni_gpu_pitch(const tni_accumulator *acc);
/* Has memory elements, one beside the other, that differ from row to row? */
bool tni_gpu_has_rows(const tni_pass *pass, int32_t i);
/* Does memory have elements, one beside the other, along a dimension? */
static inline bool tni_gpu_lies_along(const tni_pass *pass, int32_t dim, int32_t i) {
    return pass->memory[i].where != TNI_FROM_PLACE && pass->memory[i].strides[dim] == 1;
}
tn_status tni_gpu_set_tail_grids(tni_gpu_part *part, tni_gpu_step *step);
extern bool tni_gpu_apart; /* for tests: no steps are joined in one launch */
/* Which of the pass's memory is a list's: its place among the lists, -1 where it is none. Returns how many lists. */
int32_t tni_gpu_list_memory(const tni_pass *pass, int32_t *slot);

/* gpu_upright.c: rows that stand upright */
bool tni_gpu_turns(const tni_binding *b, int32_t along);
tn_status tni_gpu_set_upright(tni_gpu_part *part, tni_gpu_step *step);
int32_t tni_gpu_upright_arg(const tni_gpu_part *part, int32_t node, int k); /* what it is made of; -1: nothing */
bool tni_gpu_upright_reduces(const tni_gpu_part *part, int32_t node, int32_t stage); /* at the end of a stage */
bool tni_gpu_upright_mark(tni_gpu_part *part,
                          int32_t stage);       /* sets `taken` for element values; false: there are none */
void tni_emit_cuda_upright(tni_gpu_part *part); /* emit_cuda_upright.c */

void tni_emit_cuda_plain(tni_gpu_part *part); /* emit_cuda.c: kernels of one form */
void tni_emit_cuda_wide(tni_gpu_part *part);
void tni_emit_cuda_spread(tni_gpu_part *part);
void tni_emit_cuda_rows(tni_gpu_part *part);                    /* emit_cuda_rows.c */
void tni_gpu_partials(const tni_gpu_part *part, int32_t stage); /* a<i> of what the stage reduces */
/* t<i>: what the block has of them, in every thread; its slots begin at `slot`. Returns the slots behind. */
int tni_gpu_reduce_block(const tni_gpu_part *part, int32_t stage, int slot);
void tni_gpu_cut_stage(const tni_gpu_part *part); /* emit_cuda_cuts.c: all that is done with elements of cut rows */
void tni_emit_cuda_tail(tni_gpu_part *part);
void tni_emit_cuda_finish(const tni_gpu_part *part);
void tni_emit_cuda_kernels(const tni_gpu_program *made, tni_text *text); /* the entries, behind all bodies */

/* emit_cuda_nodes.c */
int32_t tni_gpu_product_of(const tni_gpu_part *part, int32_t sum); /* what a sum is the sum of; -1: no product */
void tni_gpu_factors(const tni_gpu_part *part, int32_t product, int lane);
void tni_gpu_loaded(const tni_gpu_part *part, int32_t node, const char *what); /* from memory to the lane */
void tni_gpu_node(const tni_gpu_part *part, const char *margin, int32_t node); /* not of an element's leaf */
void tni_gpu_row_nodes(const tni_gpu_part *part, const char *margin, int32_t stage);

/* emit_cuda_parts.c, for both forms */
bool tni_gpu_has_todo(const tni_gpu_part *part, int32_t t);
bool tni_gpu_is_leaf(const tni_gpu_part *part, int32_t node);    /* an element's, from memory that this part reads */
void tni_gpu_begin(const tni_gpu_part *part);                    /* the kernel's template up to the sums */
void tni_gpu_once(const tni_gpu_part *part, const char *margin); /* the single values */
/* Offsets of the rows with the dimensions of `mask`, number `from`, are added to o<i>. */
void tni_gpu_offsets(const tni_gpu_part *part, const char *margin, uint32_t mask, const char *from);
/* Vectors of an element's leaf i: `at` is where the row begins, `count` how many columns there are. */
void tni_gpu_vector(const tni_gpu_part *part, int32_t node, const char *at, const char *count);
/* Of parts that reduce rows: vector u begins at column c, and n says how many of its elements, or which, are before
 * `past`. What is done with them stands between the other two. */
void tni_gpu_place(const tni_gpu_part *part, const char *past);
void tni_gpu_some(const tni_gpu_part *part, const char *past);
void tni_gpu_some_end(const tni_gpu_part *part, const char *past);
/* Rows that begin anywhere: are a memory's vectors whole ones, as a template's argument? Those of the reference are,
 * unless rows that are summed up by columns have vectors in common. */
const char *tni_gpu_alike(const tni_gpu_part *part, int32_t memory);
void tni_gpu_random(const tni_gpu_part *part, const char *margin);
void tni_gpu_fold(const tni_gpu_part *part);                                            /* at the end of each round */
void tni_gpu_row_begin(const tni_gpu_part *part, const char *margin, const char *from); /* its o<i> */
void tni_gpu_slots(const tni_gpu_part *part);
bool tni_gpu_reduces_now(const tni_gpu_part *part, int32_t node, int32_t stage); /* a row, at the end of a stage */
void tni_gpu_values(const tni_gpu_part *part, const char *inner, int32_t stage, const char *index);
/* Element j's values, what is stored of them into arrays, what is summed; then the arrays into memory. */
void tni_gpu_elements(const tni_gpu_part *part, const char *margin, int32_t stage, const char *index);
/* Its pieces: room for results, the loop over the vector's elements, which begins with `guard`, and stores. */
void tni_gpu_results(const tni_gpu_part *part, const char *margin, int32_t stage);
void tni_gpu_element_loop(const tni_gpu_part *part, const char *margin, int32_t stage, const char *index,
                          const char *guard);
void tni_gpu_stores(const tni_gpu_part *part, const char *margin, int32_t stage);
/* Of rows that are streamed: h<i>[u] of sums that keep columns, from their places in memory. */
void tni_gpu_sum_loads(const tni_gpu_part *part, int32_t stage);
/* The lane that a value is stored from. */
int tni_gpu_lane_for_store(const tni_gpu_part *part, int32_t node, tn_type type);
void tni_gpu_row_results(const tni_gpu_part *part, const char *margin, int32_t stage, const char *condition);
void tni_gpu_end(const tni_gpu_part *part); /* partial results */
bool tni_gpu_waits(const tni_gpu_part *part,
                   int32_t t); /* for a kernel behind this one: updates of what all blocks read */
void tni_gpu_put(const tni_gpu_part *part, const char *margin, int32_t t);
void tni_gpu_row_loads(const tni_gpu_part *part, const char *margin, const char *index, const char *there);
const char *tni_gpu_operation(int op); /* take_sum, take_max_nan, take_min_nan */

/* emit_cuda_ring.c. Each does nothing where the part has no ring. */
bool tni_gpu_is_moving(const tni_gpu_part *part, int32_t node);  /* a leaf that comes through it */
void tni_gpu_ring(const tni_gpu_part *part);                     /* and its first rounds are sent */
void tni_gpu_ring_refill(const tni_gpu_part *part, bool synced); /* behind a barrier, if there was one */
/* v<i> of a leaf: all vectors from the ring, or vector u from memory. */
void tni_gpu_ring_take(const tni_gpu_part *part, int32_t node);
void tni_gpu_take(const tni_gpu_part *part, int32_t node, const char *at, const char *count);

/* gpu_run.c */
extern const tni_backend tni_cuda_backend;
/* Options for a text without the prelude, up to NULL; returns how many. Leaves out what the text does not need. */
enum { TNI_GPU_OPTIONS = 6 };
int tni_gpu_options(const char *wanted, const char *text, const char **options);
/* text: what follows the prelude; variant 0: the kernels for aligned memory, 1: those for any */
tn_status tni_gpu_compile(const char *wanted, const char *text, int variant, int major, int minor,
                          tni_compiled_code *code);
/* The kernel that the launch names, of a text without the prelude. */
tn_status tni_gpu_find(const tn_call *call, const char *text, tn_launch *launch);
/* One launch of a step, and of those that are done with it, for variant k: the parameters as 8-byte words, and the
 * grid. Over lists there are several: *next begins as {0}, and the launches end when next->part is the number of
 * tensors. */
typedef struct tni_gpu_next {
    int32_t part, words;   /* the words of the last step */
    int64_t piece, number; /* blocks, and elements, so far */
} tni_gpu_next;
uint32_t tni_gpu_words(const tni_program *program, const tni_gpu_step *step, int k, const tn_call *call,
                       tni_gpu_next *next, uint64_t *words);
bool tni_gpu_is_done(const tni_program *program, const tni_gpu_step *step, const tni_gpu_next *next);
/* Which variant a call takes; call NULL: which it takes where pointers are aligned. */
int tni_gpu_variant(const tni_program *program, const tn_call *call);
bool tni_gpu_aligned(const tni_program *program, const tni_gpu_step *step, const tn_call *call);

/* emit_value.c */
const char *tni_emit_lane(int lane);
const char *tni_emit_memory(tn_type type);
void tni_emit_value(tni_text *text, const tni_planner *p, int32_t node, int lane);
void tni_emit_operation(tni_text *text, const tni_planner *p, int32_t node);
void tni_emit_form(tni_text *text, const tni_planner *p, const tni_form *form, int lane);
void tni_emit_cast(tni_text *text, const tni_planner *p, int32_t node);

#endif
