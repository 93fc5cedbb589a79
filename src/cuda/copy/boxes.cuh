/* What boxes.c tells the kernels of boxes.cu. A box is a part of the copy that has long runs in both layouts: of each
 * dimension all, or, of two of them, some. */
#pragma once

#include "walk.cuh"

enum {
    TNI_BOX_THREADS = 256,
    TNI_BOX_DIMS = 16,
    TNI_BOX_RUNS = 1024, /* of a box, at most, on each side */
};

/* A side of the copy: what is read, or what is written. A run is what lies side by side in memory. */
typedef struct tni_box_side {
    int n_runs, run;     /* elements of a run */
    int width;           /* bytes that a thread moves at once */
    tni_divisor per_run; /* divides by how many of those a run has */
    int inner;           /* elements of a run for each step along the dimension that is cut */
    int n_dims;          /* around the runs: */
    tni_divisor extent[TNI_BOX_DIMS];
    long long stride[TNI_BOX_DIMS];
    int other; /* which of them the other side cuts; -1: none */
} tni_box_side;

typedef struct tni_boxes {
    void *to;
    const void *from;
    tni_box_side reads, writes;
    /* Dimensions of a box as they are written, the fastest first: what a step along each means to where an element is
     * in shared memory, as a run and as a place in it. */
    int n_dims;
    tni_divisor extent[TNI_BOX_DIMS];
    int run_step[TNI_BOX_DIMS], place_step[TNI_BOX_DIMS];
    /* So that threads use different banks, `pad` elements are left out behind every 2^pad_shift lines. */
    tni_divisor line;
    int pad, pad_shift;
    int image;  /* bytes of what is read, in shared memory; behind it, where runs begin */
    int tables; /* from where on the tables of smaller numbers lie; both are multiples of 16 */
    /* From box to box: dimension 0 is what writes cut, 1 what reads cut. */
    tni_walk walk;
    long long sizes[2]; /* of these two */
    int extents[2];     /* of a box in them */
    int same;           /* they are one: dimension 1 has size 1 */
} tni_boxes;
