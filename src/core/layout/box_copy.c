/* Copies on the CPU by boxes: each is read to a buffer that stays in the first cache, whole lines of memory at a time,
 * and written from there. Rows that lie a power of two apart would push each other out of the cache otherwise. */
#include "box_copy.h"

#include <string.h>

#include "box.h"
#include "core/host/arith.h"

enum {
    BOX_BYTES = 16384,
    BOX_ELEMENTS = 4096,
    MOST_RUNS = 1024,    /* of a box, on each side */
    FEW_ELEMENTS = 4096, /* of a copy that is not worth finding out how it is done */
    GRAIN = 1 << 15      /* elements for a thread of its own */
};

/* Runs of one side of a box. */
typedef struct side {
    int count;
    int64_t inner; /* elements of a run for each step along the dimension that is cut */
    int64_t at[MOST_RUNS];
    uint16_t other[MOST_RUNS]; /* how far along the dimension that the other side cuts; 0 where it is part of the run */
} side;

typedef struct job {
    tni_box box;
    char *to;
    const char *from;
    side sides[2];
    uint16_t places[BOX_ELEMENTS * 4]; /* in the buffer, of the elements as they are written */
    int64_t counts[TN_MAX_RANK];       /* boxes along each dimension */
} job;

static void find_runs(job *j, int view) {
    const tni_box *b = &j->box;
    side *s = &j->sides[view];
    const int other = tni_box_cut_dim(b, !view);
    s->count = (int)(tni_box_elements(b) / b->run[view]);
    s->inner = b->run[view] / b->extent[tni_box_cut_dim(b, view)];
    for (int r = 0; r < s->count; r++) {
        int64_t rest = r;
        s->at[r] = 0;
        s->other[r] = 0;
        for (int k = 0; k < b->n_dims; k++) {
            const int dim = b->order[TNI_TO][k];
            if (tni_box_in_run(b, view, dim)) continue;
            const int64_t index = rest % b->extent[dim];
            rest /= b->extent[dim];
            s->at[r] += index * b->strides[view][dim];
            if (dim == other) s->other[r] = (uint16_t)index;
        }
    }
}

/* Dimension after dimension: the places of one step further are those before, and a constant more. */
static void find_places(job *j) {
    const tni_box *b = &j->box;
    int64_t done = 1;
    j->places[0] = 0;
    for (int k = 0; k < b->n_dims; k++) {
        const int dim = b->order[TNI_TO][k];
        int run_step, place_step;
        tni_box_steps(b, dim, &run_step, &place_step);
        const int64_t step = run_step * b->run[TNI_FROM] + place_step, all = done * b->extent[dim];
        for (int64_t i = done; i < all; i++) j->places[i] = (uint16_t)(j->places[i - done] + step);
        done = all;
    }
}

/* n elements that the buffer has at `places`. */
static void gather(char *to, const char *buffer, const uint16_t *places, int64_t n, int size) {
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) to[i] = buffer[places[i]];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(to + 2 * i, buffer + 2 * (size_t)places[i], 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, buffer + 4 * (size_t)places[i], 4);
        break;
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy(to + 8 * i, buffer + 8 * (size_t)places[i], 8);
        break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + 16 * i, buffer + 16 * (size_t)places[i], 16);
    }
}

/* The box at `index`, counted in boxes. */
static void copy_box(const job *j, const int64_t *index, char *buffer) {
    const tni_box *b = &j->box;
    const int64_t size = b->size;
    int64_t at[2] = {0, 0}, rest[2];
    for (int v = TNI_TO; v <= TNI_FROM; v++) {
        const int cut = tni_box_cut_dim(b, v);
        for (int d = 0; d < b->n_dims; d++) at[v] += index[d] * b->extent[d] * b->strides[v][d];
        rest[v] = min(b->extent[cut], b->shape[cut] - index[cut] * b->extent[cut]);
    }
    const side *reads = &j->sides[TNI_FROM], *writes = &j->sides[TNI_TO];
    for (int r = 0; r < reads->count; r++) {
        if (reads->other[r] >= rest[TNI_TO]) continue;
        memcpy(buffer + r * b->run[TNI_FROM] * size, j->from + (at[TNI_FROM] + reads->at[r]) * size,
               (size_t)(reads->inner * rest[TNI_FROM] * size));
    }
    for (int r = 0; r < writes->count; r++) {
        if (writes->other[r] >= rest[TNI_FROM]) continue;
        gather(j->to + (at[TNI_TO] + writes->at[r]) * size, buffer, j->places + r * b->run[TNI_TO],
               writes->inner * rest[TNI_TO], b->size);
    }
}

static void copy_boxes(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    char buffer[4 * BOX_BYTES];
    int64_t index[TN_MAX_RANK], left = begin;
    for (int k = 0; k < j->box.n_dims; k++) {
        const int d = j->box.order[TNI_TO][k];
        index[d] = left % j->counts[d];
        left /= j->counts[d];
    }
    for (int64_t i = begin; i < end; i++) {
        copy_box(j, index, buffer);
        for (int k = 0; k < j->box.n_dims && ++index[j->box.order[TNI_TO][k]] == j->counts[j->box.order[TNI_TO][k]];
             k++)
            index[j->box.order[TNI_TO][k]] = 0;
    }
}

bool tni_box_copy(const tn_call *call, tni_box *box, char *to, const char *from) {
    job j;
    int64_t boxes = 1, elements = 1;
    for (int d = 0; d < box->n_dims; d++) elements *= box->shape[d];
    if (elements < FEW_ELEMENTS || !tni_box_cut(box, min(BOX_ELEMENTS, BOX_BYTES / box->size))) return false;
    const int64_t each = tni_box_elements(box);
    if (each > 4 * min(BOX_ELEMENTS, BOX_BYTES / box->size)) return false;
    for (int v = TNI_TO; v <= TNI_FROM; v++)
        if (each / box->run[v] > MOST_RUNS) return false;
    j.box = *box;
    j.to = to;
    j.from = from;
    for (int v = TNI_TO; v <= TNI_FROM; v++) find_runs(&j, v);
    find_places(&j);
    for (int d = 0; d < box->n_dims; d++) {
        j.counts[d] = ceil_div(box->shape[d], box->extent[d]);
        boxes *= j.counts[d];
    }
    tn_parallel(call, boxes, max(1, GRAIN / each), copy_boxes, &j);
    return true;
}
