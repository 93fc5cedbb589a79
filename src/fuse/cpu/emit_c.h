/* What emit_c.c and loop_runs.c share: the loops of one pass while their text is made. */
#ifndef TNI_FUSE_EMIT_C_H
#define TNI_FUSE_EMIT_C_H

#include "compile_c.h"

/* What is known of a value of the pass. */
typedef struct tni_loop_value {
    uint8_t lane, level;
    int32_t segment;
    int32_t maker;       /* step; -1: none, it is where memory is */
    bool pointed;        /* lies in an argument's memory */
    bool seen, seen_row; /* in this loop: declared, as such and as a row's */
} tni_loop_value;

typedef struct tni_emitter {
    const tni_program *program;
    const tni_pass *pass;
    tni_cpu_pass *made;
    tni_loop_value *values; /* (n_values) */
    int32_t *run_of;        /* (n_steps): the loop that a step is in, by its first step + 1; 0: none */
    uint8_t lane;           /* f32 or f64: what the text is about */
    int32_t first, count;   /* steps of this loop */
    bool by_rows;
    bool settles;       /* has sums of columns with values that are pending */
    bool free;          /* so far: nothing of it is in the scratch memory, and rows lie behind each other */
    int32_t n_operands; /* of `memory`: of its own steps, then of those that are done again */
    int32_t n_more;
    int16_t *more; /* (n_more): which memory these load */
    tni_text fields, begin, row, row_sums, body, chunk, chunk_end, row_end, *text;
    uint8_t constant_seen[TNI_LANES * TNI_FUSE_NODES];
} tni_emitter;

/* ---- loop_runs.c ------------------------------------------------------------------------------------------------- */

/* The vector function of a primitive; NULL: it has none. */
const char *tni_vector_function(int op, bool coarse);
bool tni_is_test(int op);
/* Long enough that two vectors keep the machine busy, or that four would not fit into registers. */
bool tni_is_heavy(int op);

/* Sets values and run_of: which steps of the pass become one loop. */
void tni_find_runs(tni_emitter *e);
int32_t tni_run_count(const tni_emitter *e, int32_t first); /* steps of the loop that begins here; 0: none does */
int32_t tni_segment_of(const tni_cpu_pass *made, int32_t step);
bool tni_is_neutral(const tni_step *s);
bool tni_is_inside(const tni_emitter *e, int32_t step);
bool tni_is_made_here(const tni_emitter *e, int32_t value);
bool tni_is_fixed(const tni_emitter *e, int32_t value);  /* the same in every row: made once, or lying so in memory */
bool tni_is_stored(const tni_emitter *e, int32_t value); /* must it be in memory for what comes behind? */
/* Is a value that another loop has made made again, where it is used, rather than kept? */
bool tni_is_remade(const tni_emitter *e, int32_t value);

#endif
