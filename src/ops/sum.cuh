/* What sum_cuda.c tells the kernels of sum.cu, and the sizes that fix the order of the additions. That order depends on
 * how many numbers are added up and nothing else: not on how many sums there are, nor where they lie. */
#pragma once

#include "../cuda/walk.cuh"

enum {
    TNI_SUM_THREADS = 256,
    TNI_SUM_CHUNK = 4096,    /* rows: 16-byte packs that a block adds up as one part */
    TNI_SUM_WHOLE = 32,      /* up to so many parts a block can do itself, one after the other */
    TNI_SUM_SLOTS = 16,      /* columns: threads that share the rows of a part, */
    TNI_SUM_MANY_SLOTS = 32, /* and where there are some hundreds of rows, so many */
    TNI_SUM_LANES = 16,      /* columns: packs side by side */
    TNI_SUM_END_SLOTS = 32,  /* the sums of parts of columns: threads that share the parts */
};

/* The innermost dimension is summed up. A sum's numbers are segments of n, which are `step` apart; they are counted in
 * packs of 16 bytes, of which each segment has a whole number, the last may be short. */
typedef struct tni_sum_rows {
    const void *x;
    void *y;
    void *parts;    /* (outputs, n_parts), where a sum is split over blocks */
    tni_walk kept;  /* from sum to sum: of x, of y */
    tni_walk packs; /* from pack to pack: of x; the number of its first element in its segment */
    long long n, step;
    long long outputs, n_packs, chunk;
    int n_parts, whole; /* whole: a block does all parts */
} tni_sum_rows;

/* The innermost dimension, of c columns, is kept. A part of the rows is shared out to `slots` threads in turn; `lanes` of
 * them lie side by side, each with a pack of columns. */
typedef struct tni_sum_columns {
    const void *x;
    void *y;
    void *parts;     /* (n_parts, outputs), where a sum is split over blocks */
    tni_walk kept;   /* all kept dimensions but the columns: of x, of y */
    tni_walk rows;   /* from row to row: of x */
    const void *end; /* behind x's last element */
    long long c, step, y_step;
    long long n_rows, per_part, n_parts;
    long long tiles, items; /* tiles of columns; what is done by a group of slots × lanes */
    int whole;              /* a group does all parts */
    int lanes, slots;       /* as powers of 2 */
    int wide;               /* columns lie side by side; 2: and all packs are 16-byte aligned and full */
} tni_sum_columns;

/* Adds up the parts of columns: (n_parts, outputs), of c columns. */
typedef struct tni_sum_end {
    const void *parts;
    void *y;
    tni_walk kept;
    long long c, y_step, outputs, n_parts;
} tni_sum_end;
