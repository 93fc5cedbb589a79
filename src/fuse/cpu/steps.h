/* A program on the CPU: each pass is a list of steps over blocks of values.
 *
 * A block is R whole rows, where a row has at most `block` elements, and all steps run over it one after the other.
 * Longer rows come in blocks of their own: once for each stage of row reductions, with what the stage needs computed
 * anew from the inputs, which are in the cache by then. */
#ifndef TNI_FUSE_STEPS_H
#define TNI_FUSE_STEPS_H

#include "block_loops.h"
#include "fuse/plan/planner.h"

enum {
    TNI_BLOCK = 2048,           /* elements */
    TNI_BLOCK_LIGHT = 16384,    /* where next to nothing is kept between loops: long stretches are written faster */
    TNI_BLOCK_MOST = 65536,     /* where it is one row, which is reduced, and fits into TNI_SCRATCH_ROW */
    TNI_SCRATCH = 40960,        /* bytes that a block's values should stay below: the first-level cache */
    TNI_SCRATCH_FEW = 4096,     /* that is next to nothing */
    TNI_SCRATCH_FIXED = 163840, /* and then what is the same for all blocks may take as much */
    TNI_SCRATCH_ROW = 196608,   /* for such a row: the second-level cache */
    TNI_SCRATCH_MOST = 262144,  /* and must, since they are on the stack */
};

typedef enum tni_step_kind {
    TNI_STEP_NONE, /* became part of another */
    TNI_STEP_LOOP,
    TNI_STEP_LOAD,   /* operand: memory that is not in place yet */
    TNI_STEP_POINT,  /* operand: values that are computed with, or made, where they are */
    TNI_STEP_RAND,   /* operand: the seed; stream */
    TNI_STEP_INDEX,  /* operand: memory that is none, whose strides count */
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
    bool coarse;        /* its result is rounded to bf16 */
    bool waits;         /* a store of what other units still read: behind all of them */
    uint8_t from_level; /* of EXPAND */
    tn_type type;
    int16_t operand;
    int32_t node;        /* of LOOP, REDUCE and GATHER: what it computes; -1: none of the graph */
    int32_t arg[3], out; /* values; -1: none; -2 - k: constant k */
    int64_t stream;
    tni_loop run;
} tni_step;

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
    int32_t n_more; /* memory that it reads for values which are made again, beside that of its steps */
    const int16_t *more;
} tni_loop_place;

typedef struct tni_cpu_pass {
    int64_t block, rows; /* elements, and rows, of a block */
    int64_t units, span; /* pieces of work; columns of each where rows are split */
    int64_t spans;       /* pieces that a row is split into */
    bool by_columns;     /* units of one span come behind each other; each accumulator's columns are one piece's own */
    int64_t *first_unit; /* (parts + 1) of lists: units do not go across tensors; NULL: there are none */
    int64_t pieces;      /* where something accumulates: units are added up in so many pieces, by shape alone; */
    int64_t partials;    /* and of the results there are so many copies */
    int64_t *pending; /* (accumulators) bytes into the workspace: (partials, size) floats; -1: none (tni_is_settled) */
    int32_t n_values, n_steps, n_segments;
    int64_t scratch;
    int64_t *offset; /* (n_values) of values in the scratch memory; -1: elsewhere */
    tni_step *steps;
    tni_segment *segments;
    tni_loop_place *loops; /* (n_steps): what is compiled; NULL: nothing */
    bool waits, rows_wait; /* some stores do, some of rows; those have no sums along rows then */
} tni_cpu_pass;

typedef struct tni_cpu_program {
    tni_cpu_pass *passes;    /* as many as the program has */
    uint64_t *constants;     /* 8 bytes each, in their lanes */
    struct tni_c_code *code; /* loops that are compiled, or to be; NULL: the interpreter does it all */
} tni_cpu_program;

static inline tni_cpu_program *tni_on_cpu(const tni_program *program) {
    return program->own;
}

/* Where there is a sum for each column and values are floats, a group of rows is added up as such, and then to the
 * sums: to make doubles of all values would take longer than everything else. The largest or the smallest of all rows
 * is a float. */
enum { TNI_GROUP = 64 /* rows */ };
static inline bool tni_is_settled(int64_t row, int64_t rows) { /* after this row of so many */
    return row % TNI_GROUP == TNI_GROUP - 1 || row == rows - 1;
}
/* For each, of long rows: a sum, or an extreme of floats. */
bool tni_gathers_columns(const tni_pass *pass, const tni_accumulator *accumulator);
/* Rows so long are added up one by one, whichever results they share. */
static inline bool tni_sums_rows(const tni_pass *pass, const tni_accumulator *accumulator) {
    return pass->columns >= TNI_LONG_ROW_MASKED && accumulator->strides[pass->n_dims] == 0;
}

/* Does a block of it lie in one piece? */
static inline bool tni_is_contiguous(const tni_pass *pass, const tni_cpu_pass *made, const tni_memory *m) {
    return m->strides[pass->n_dims] == 1 && (made->rows == 1 || m->strides[pass->n_dims - 1] == pass->columns);
}

/* Values of a block at a level. */
static inline int64_t tni_block_count(const tni_pass *pass, const tni_cpu_pass *made, int level) {
    if (level != TNI_ELEMENT) return level == TNI_ROW ? made->rows : 1;
    return pass->columns < made->block ? made->rows * pass->columns : made->block;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

typedef struct tni_value {
    uint8_t level, lane;
    bool elsewhere; /* in an argument's memory, no scratch */
    bool gathered;  /* 8 bytes, whatever the lane: a reduction under way */
    int32_t segment;
    bool crosses; /* used outside of its segment */
    int32_t last; /* step that uses it */
} tni_value;

/* The constants of all passes. */
typedef struct tni_constants {
    int32_t *place[TNI_LANES]; /* (nodes) among them, + 1 */
    uint64_t *bits;
    int32_t n;
} tni_constants;

typedef struct tni_cpu_planner {
    const tni_planner *p;
    tni_binding *b;
    const tni_graph *g;
    const tni_pass *pass;
    tni_cpu_pass *made;
    tni_constants *constants;
    bool streams;              /* rows are longer than a block, or that of lists */
    bool failed;               /* no memory */
    int32_t current;           /* stage */
    int32_t *value[TNI_LANES]; /* (nodes) in each lane, at the node's own level; -1: none */
    int32_t *wide[TNI_LANES];  /* the same, expanded to elements */
    int32_t *direct;           /* the memory that the node's values are made in; -1: none */
    bool *taken;               /* for walks over the graph */
    int32_t *when;             /* (nodes) the stage in which the elements of whole rows are first used */
    tni_step *steps;
    tni_value *values;
    tni_segment *segments;
    int32_t step_capacity, value_capacity, segment_capacity;
    int64_t moving; /* bytes of scratch memory that each block writes anew */
} tni_cpu_planner;

tn_status tni_plan_cpu(tni_binding *b);         /* plan_blocks.c: all passes */
tn_status tni_plan_steps(tni_cpu_planner *c);   /* for made->block and made->rows */
tn_status tni_plan_pairs(tni_cpu_planner *c);   /* joins steps (plan_pairs.c) */
tn_status tni_plan_scratch(tni_cpu_planner *c); /* offsets of values; sets made->scratch */

#endif
