/* How a copy is shared out as boxes on the GPU (core/layout/box.h cuts them). */
#include "boxes.h"

#include "core/host/arith.h"
#include "core/layout/box.h"
#include "walk.h"

enum {
    BOX_BYTES = 16384,   /* of a box at most, */
    BOX_ELEMENTS = 8192, /* and elements */
    BOXES_PER_SM = 8,    /* boxes are not made larger than to have so many */
    FEW_ELEMENTS = 1024, /* but they have so many elements */
    MOST_SHARED = 48 << 10,
};

/* ---- sides ------------------------------------------------------------------------------------------------------- */

/* The bytes that can be moved at once: everything that a run begins at, or ends at, is a multiple of them. */
static int width_of(const tni_box *c, int view, const void *data) {
    const int last = tni_box_cut_dim(c, view);
    const int64_t run = c->run[view];
    const int64_t part = run / c->extent[last] * (c->shape[last] % c->extent[last]);
    uint64_t all = (uint64_t)(uintptr_t)data | 16;
    all |= (uint64_t)(run * c->size);
    all |= (uint64_t)(part * c->size);
    for (int k = c->n_run[view]; k < c->n_dims; k++) all |= (uint64_t)(c->strides[view][c->order[view][k]] * c->size);
    return (int)(all & -all);
}

/* The dimensions around the runs of a side, in the order that they are written in: neighbours in what is written are
 * neighbours in shared memory. */
static void fill_side(const tni_box *c, int view, const void *data, tni_box_side *side) {
    const int64_t run = c->run[view];
    const int other = tni_box_cut_dim(c, !view);
    side->run = (int)run;
    side->inner = (int)(run / c->extent[tni_box_cut_dim(c, view)]);
    side->width = width_of(c, view, data);
    side->per_run = tni_divisor_of((uint64_t)(run * c->size / side->width));
    side->n_runs = 1;
    side->n_dims = 0;
    side->other = -1;
    for (int k = 0; k < c->n_dims; k++) {
        const int dim = c->order[TNI_TO][k];
        if (c->extent[dim] == 1 || tni_box_in_run(c, view, dim)) continue;
        if (dim == other) side->other = side->n_dims;
        side->extent[side->n_dims] = tni_divisor_of((uint64_t)c->extent[dim]);
        side->stride[side->n_dims++] = c->strides[view][dim];
        side->n_runs *= (int)c->extent[dim];
    }
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

static void add_dim(const tni_box *c, int dim, tni_boxes *b) {
    if (c->extent[dim] == 1) return;
    tni_box_steps(c, dim, &b->run_step[b->n_dims], &b->place_step[b->n_dims]);
    b->extent[b->n_dims++] = tni_divisor_of((uint64_t)c->extent[dim]);
}

/* As elements are written: those of a run, then the runs as fill_side has them. */
static void fill_places(const tni_box *c, tni_boxes *b) {
    b->n_dims = 0;
    for (int k = 0; k < c->n_dims; k++) add_dim(c, c->order[TNI_TO][k], b);
}

/* A thread gathers the elements of one wide store, which are a line apart: its neighbours' lines should begin in other
 * banks. What is read at once lies in one line. */
static int fill_shared(const tni_box *c, tni_boxes *b) {
    const int together = b->writes.width / c->size, at_once = b->reads.width / c->size;
    const bool turns = b->n_dims > 0 && b->place_step[0] * c->size >= 16 && b->place_step[0] % at_once == 0;
    const int64_t line = turns ? b->place_step[0] : b->reads.run;
    const int64_t count = (int64_t)b->reads.n_runs * b->reads.run;
    b->line = tni_divisor_of((uint64_t)line);
    b->pad_shift = __builtin_ctz((unsigned)together);
    b->pad = (int)max(max(b->reads.width, 4) / c->size, 1);
    const int64_t padded = count + ((count / line) >> b->pad_shift) * b->pad;
    const int runs = b->reads.n_runs + b->writes.n_runs;
    b->image = (int)round_up(padded * c->size, 16);
    b->tables = (int)round_up(b->image + runs * 8, 16);
    return b->tables + (int)(count + runs) * 2;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void push(const tni_box *c, int dim, tni_boxes *b) {
    const int64_t e = c->extent[dim];
    tni_walk_push(&b->walk, ceil_div(c->shape[dim], e), e * c->strides[TNI_TO][dim], e * c->strides[TNI_FROM][dim]);
}

/* The two that are cut first, so that blocks that run at a time are neighbours in both layouts. */
static void fill_walk(const tni_box *c, tni_boxes *b) {
    const int cuts[2] = {tni_box_cut_dim(c, TNI_TO), tni_box_cut_dim(c, TNI_FROM)};
    b->walk = (tni_walk){.count = 1, .is_short = 1};
    b->same = cuts[0] == cuts[1];
    for (int k = 0; k < 2; k++) {
        b->sizes[k] = c->shape[cuts[k]];
        b->extents[k] = (int)c->extent[cuts[k]];
    }
    push(c, cuts[0], b);
    if (b->same)
        tni_walk_push(&b->walk, 1, 0, 0);
    else
        push(c, cuts[1], b);
    for (int k = 0; k < c->n_dims; k++) {
        const int dim = c->order[TNI_TO][k];
        if (dim != cuts[0] && dim != cuts[1] && c->extent[dim] < c->shape[dim]) push(c, dim, b);
    }
}

bool tni_boxes_of(tni_boxes *b, const tni_rows *rows, void *to, const void *from, int size, int sms, int *shared) {
    tni_box c = {.size = size, .n_dims = rows->n_dims};
    for (int d = 0; d < c.n_dims; d++) {
        c.shape[d] = rows->shape[d];
        for (int v = TNI_TO; v <= TNI_FROM; v++) c.strides[v][d] = rows->strides[d][v];
    }
    const int64_t most = min(min(BOX_ELEMENTS, BOX_BYTES / size), rows->count / (sms * BOXES_PER_SM));
    if (!tni_box_cut(&c, max(FEW_ELEMENTS, most)) || tni_box_elements(&c) > 4 * BOX_ELEMENTS) return false;
    for (int v = TNI_TO; v <= TNI_FROM; v++)
        if (tni_box_elements(&c) / c.run[v] > TNI_BOX_RUNS) return false;
    b->to = to;
    b->from = from;
    fill_side(&c, TNI_FROM, from, &b->reads);
    fill_side(&c, TNI_TO, to, &b->writes);
    fill_places(&c, b);
    fill_walk(&c, b);
    *shared = fill_shared(&c, b);
    return *shared <= MOST_SHARED;
}
