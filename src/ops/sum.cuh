/* What sum_cuda.c tells the kernels of sum.cu, and the sizes that fix the order of the additions. That order depends on
 * how many numbers are added up and nothing else: not on how many sums there are, nor where they lie. */
#pragma once

#include "../cuda/walk.cuh"

enum {
    TNI_SUM_CLUSTER = 8, /* blocks that may end a sum together */

    TNI_SUM_THREADS = 256,
    TNI_SUM_CHUNK = 4096, /* rows: 16-byte packs that a block adds up as one part */
    TNI_SUM_WHOLE = 32,   /* up to so many parts are ended by the blocks that have summed them up */

    TNI_SUM_TILE_PACKS = 9 * TNI_SUM_THREADS, /* rows: what a block takes through shared memory, */
    TNI_SUM_TILE_STRANDS = 160,               /* of up to so many strands */

    TNI_SUM_COLUMN_THREADS = 512, /* 32 slots of 16 packs */
    TNI_SUM_ODD_THREADS = 544,    /* and of 17 */
    TNI_SUM_SLOTS = 32,    /* columns: every so many rows of a part are one sum; of few rows, so many as a pack has */
    TNI_SUM_CHAPTERS = 32, /* columns: parts are added up to so many sums, then those */
    TNI_SUM_CHAPTER_BYTES = 16384, /* of which a block holds so much */
    TNI_SUM_END_LANES = 8,         /* columns that a block ends, of parts in memory */
};

/* The innermost dimension is summed up. A sum's numbers are segments of n, which are `step` apart; they are counted in
 * packs of 16 bytes, of which each segment has a whole number, the last may be short. */
typedef struct tni_sum_rows {
    const void *x;
    void *y;
    void *parts;    /* (outputs, n_parts), where a second kernel ends the sums */
    tni_walk kept;  /* from sum to sum: of x, of y */
    tni_walk packs; /* from pack to pack: of x; the number of its first element in its segment */
    long long n, step;
    long long outputs, n_packs, chunk;
    int n_parts, blocks, per_block; /* a sum's parts are shared out to blocks */
    int ends;                       /* which end it, as a cluster if they are several */
    int aligned;                    /* every segment begins at a multiple of 16 bytes */
    int tile_rows, strands;         /* tiles: rows of a block; a row is so many sums */
    int dense;                      /* tiles: rows lie one behind the other */
} tni_sum_rows;

/* The innermost dimension, of c columns, is kept. Threads are rows of `lanes`: each has a pack of columns, or of what
 * lies side by side in memory. `groups` rows of them have a part; `together` parts are done at once, of one item (a
 * tile of columns at one place of the other kept dimensions), or of as many items where they have one part each. */
typedef struct tni_sum_columns {
    const void *x;
    void *y;
    void *parts;            /* (n_parts, outputs), where a second kernel ends the sums */
    tni_walk kept;          /* all kept dimensions but the columns: of x, of y */
    tni_walk rows;          /* from row to row: of x */
    const void *low, *high; /* x's memory, beyond which nothing is read */
    long long c, step, y_step;
    long long n_rows, per_part;
    long long tiles, items, outputs;
    long long slot_step, part_step;            /* packs: from row to row of a slot; more than that from part to part */
    int n_parts, per_chapter, chapters;        /* chapters of so many parts each */
    int per_slot;                              /* packs: rows of a part that are one sum, a multiple of 8 */
    int slots, lanes, groups, together, width; /* width: columns of a tile */
    int blocks;                                /* of an item, as a cluster if they end it and are several */
    int per_block;                             /* parts of a block that does not end sums */
    int ends;
    int side_by_side; /* any layout: packs are aligned and full; else columns of a thread are `lanes` apart */
} tni_sum_columns;

/* Adds up the parts of columns: (n_parts, outputs), of c columns. */
typedef struct tni_sum_end {
    const void *parts;
    void *y;
    tni_walk kept;
    long long c, y_step, outputs;
    int n_parts, per_chapter;
} tni_sum_end;
