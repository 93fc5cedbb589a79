#include "box.h"

#include <stdlib.h>
#include <string.h>

#include "core/host/arith.h"

enum {
    RUN_BYTES = 128, /* that a run has at least, where its dimensions allow it */
    LEAST_RUN = 16,  /* bytes: shorter runs are better copied one element at a time */
};

static void sort(tni_box *b, int view) {
    for (int i = 0; i < b->n_dims; i++) {
        int k = i;
        const int dim = b->n_dims - 1 - i;
        for (; k > 0 && llabs(b->strides[view][b->order[view][k - 1]]) > llabs(b->strides[view][dim]); k--)
            b->order[view][k] = b->order[view][k - 1];
        b->order[view][k] = dim;
    }
}

/* Does the k-th fastest dimension of a view go on where the one before ends? */
static bool continues(const tni_box *b, int view, int k) {
    const int dim = b->order[view][k];
    if (k == 0) return b->strides[view][dim] == 1;
    const int before = b->order[view][k - 1];
    return b->strides[view][dim] == b->strides[view][before] * b->shape[before];
}

static void find_run(tni_box *b, int view) {
    int k = 0;
    b->run[view] = 1;
    while (k < b->n_dims && continues(b, view, k)) {
        const int dim = b->order[view][k];
        if (b->extent[dim] == 1 && b->shape[dim] > 1) break;
        b->run[view] *= b->extent[dim];
        k++;
        if (b->extent[dim] < b->shape[dim]) break;
    }
    b->n_run[view] = k;
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Makes a view's run `want` elements long, and whole pieces of 16 bytes, if its dimensions allow it. */
static void grow(tni_box *b, int view, int64_t want) {
    int64_t length = 1;
    for (int k = 0; k < b->n_dims && length < want && continues(b, view, k); k++) {
        const int dim = b->order[view][k];
        const int64_t all = b->shape[dim], whole = 16 / greatest_divisor(16, length * b->size);
        const int64_t need = max(b->extent[dim], round_up(ceil_div(want, length), whole));
        b->extent[dim] = min(need, all);
        length *= b->extent[dim];
        if (need < all) return;
    }
}

int64_t tni_box_elements(const tni_box *b) {
    int64_t n = 1;
    for (int d = 0; d < b->n_dims; d++) n *= b->extent[d];
    return n;
}

/* The shorter run grows first. */
static void fill_up(tni_box *b, int64_t most) {
    for (bool stuck = false; !stuck;) {
        int64_t kept[TN_MAX_RANK];
        memcpy(kept, b->extent, sizeof kept);
        stuck = true;
        for (int v = TNI_TO; v <= TNI_FROM; v++) find_run(b, v);
        for (int turn = 0; turn < 2 && stuck; turn++) {
            const int view = (b->run[TNI_TO] <= b->run[TNI_FROM]) == (turn == 0) ? TNI_TO : TNI_FROM;
            grow(b, view, 2 * b->run[view]);
            stuck = tni_box_elements(b) > most || memcmp(kept, b->extent, sizeof kept) == 0;
            if (stuck) memcpy(b->extent, kept, sizeof kept);
        }
    }
}

bool tni_box_cut(tni_box *b, int64_t most) {
    const int64_t least = min(RUN_BYTES / b->size, 64);
    if (b->n_dims < 2) return false;
    for (int d = 0; d < TN_MAX_RANK; d++) b->extent[d] = 1;
    for (int d = 0; d < b->n_dims; d++)
        if (b->strides[TNI_FROM][d] == 0) return false;
    sort(b, TNI_TO);
    sort(b, TNI_FROM);
    grow(b, TNI_FROM, least);
    grow(b, TNI_TO, least);
    fill_up(b, most);
    if (b->n_run[TNI_TO] == 0 || b->n_run[TNI_FROM] == 0) return false; /* single elements of 16 bytes */
    return b->run[TNI_TO] * b->size >= LEAST_RUN && b->run[TNI_FROM] * b->size >= LEAST_RUN;
}

bool tni_box_in_run(const tni_box *b, int view, int dim) {
    for (int k = 0; k < b->n_run[view]; k++)
        if (b->order[view][k] == dim) return true;
    return false;
}

void tni_box_steps(const tni_box *b, int dim, int *run_step, int *place_step) {
    int64_t step = 1;
    *run_step = *place_step = 0;
    if (tni_box_in_run(b, TNI_FROM, dim)) {
        for (int k = 0; b->order[TNI_FROM][k] != dim; k++) step *= b->extent[b->order[TNI_FROM][k]];
        *place_step = (int)step;
        return;
    }
    for (int k = 0; b->order[TNI_TO][k] != dim; k++) {
        const int before = b->order[TNI_TO][k];
        if (!tni_box_in_run(b, TNI_FROM, before)) step *= b->extent[before];
    }
    *run_step = (int)step;
}
