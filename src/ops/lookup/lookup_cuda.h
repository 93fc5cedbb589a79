/* What looks up on the GPU: what segment_sum by offsets shares with the others. */
#ifndef TNI_LOOKUP_CUDA_H
#define TNI_LOOKUP_CUDA_H

#include "cuda/copy/walk.h"
#include "cuda/driver/cuda.h"
#include "lookup.cuh"
#include "lookup.h"

tni_divided tni_divided_of(int64_t by, int64_t below);
tni_index tni_index_of(const tni_lookup *l);

/* ---- by columns in shared memory --------------------------------------------------------------------------------- */

typedef struct tni_columns_state {
    tn_launch launch;
    tni_columns p;
} tni_columns_state;

bool tni_take_columns_suit(const tn_call *call, const tni_lookup *l);
tn_status tni_take_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s);
bool tni_take_row_suits(const tn_call *call, const tni_lookup *l);
tn_status tni_take_row_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s);
/* What it takes, estimated; infinity: it cannot be done so. */
double tni_add_columns_ns(const tn_call *call, const tni_lookup *l);
tn_status tni_add_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s);
/* `index` is where it lies now. */
tn_status tni_columns_launch(const tn_call *call, const tni_lookup *l, const tni_columns_state *s, const void *index);

/* ---- add, of columns that are split ------------------------------------------------------------------------------ */

typedef struct tni_split_state {
    tn_launch split, add;
    tni_split p;
    size_t places, bounds, bytes; /* of the workspace */
} tni_split_state;

double tni_add_split_ns(const tn_call *call, const tni_lookup *l);
tn_status tni_add_split_prepare(const tn_call *call, const tni_lookup *l, tni_split_state *s);
tn_status tni_add_split_launch(const tn_call *call, const tni_lookup *l, const tni_split_state *s);

/* ---- take -------------------------------------------------------------------------------------------------------- */

typedef struct tni_take_state {
    tn_launch pieces, elements; /* as many bytes at a time as divide a row; where memory is not aligned to them */
    tn_launch rows;             /* long ones */
    tn_launch fours;            /* elements that have an index each */
    bool by_columns;
    tni_columns_state columns;
    tni_take p;
    int64_t bytes, size, row; /* of a piece, an element, a row */
    tni_lookup_steps whole;
    int64_t warps; /* of long rows, at least */
} tni_take_state;

tn_status tni_take_prepare(const tn_call *call, const tni_lookup *l, tni_take_state *s);
/* `index` is where it lies now. */
tn_status tni_take_launch(const tn_call *call, const tni_lookup *l, const tni_take_state *s, const void *index);

/* ---- add, by a sort ---------------------------------------------------------------------------------------------- */

/* Offsets into the workspace. */
typedef struct tni_sort_room {
    size_t key[2], position[2], begins, ends, counts, totals, partials, bytes;
} tni_sort_room;

typedef struct tni_sort_state {
    tn_launch rank, count, add, place, mark;
    uint32_t clearing;                    /* blocks of the first kernel, at least */
    tn_launch rows[2], parts[2], ends[2]; /* of single elements, and of pieces of 16 bytes */
    tn_launch longs;                      /* instead of rows[1], if it has a kernel */
    tni_sort sort;
    tni_add all[2];
    tni_sort_room room;
    int passes;
    bool may_piece, any_place; /* pieces of 16 bytes: if memory is aligned; wherever it is */
    bool by_offsets;
} tni_sort_state;

/* by_offsets: rows lie in segments, and the index is where those begin. */
tni_sort_room tni_sort_room_of(const tni_lookup *l, bool by_offsets);
tn_status tni_sort_prepare(const tn_call *call, const tni_lookup *l, bool by_offsets, tni_sort_state *s);
tn_status tni_sort_launch(const tn_call *call, const tni_lookup *l, const tni_sort_state *s);

/* The segment of each row, as i32: v for those that are in none. */
tn_status tni_segments_prepare(const tn_call *call, const tni_lookup *l, tn_launch *launch);
tn_status tni_segments_launch(const tn_call *call, const tni_lookup *l, const tn_launch *launch, void *segments);

#endif
