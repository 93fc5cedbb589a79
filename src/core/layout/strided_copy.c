/* Copies between layouts: the one place where tensors that a kernel cannot take are made dense, and put back. */
#include <stdlib.h>
#include <string.h>

#include "box_copy.h"
#include "layout.h"
#include "lines.h"
#include "nest.h"

enum {
    GRAIN = 1 << 15,  /* elements for a thread of its own */
    TILE = 32,        /* edge of a block in a transposing copy: both sides stay in the L1 cache */
    LINE = 64,        /* bytes of a line that is copied as it is */
    SHORT_LINE = 256, /* bytes of a line that is copied together with its neighbours */
};

/* A copy as nested loops, dimension 0 outermost. */
typedef struct loops {
    char *to;
    const char *from;
    size_t size; /* of an element */
    int32_t ndim;
    int64_t shape[TN_MAX_RANK], to_step[TN_MAX_RANK], from_step[TN_MAX_RANK]; /* steps in bytes */
} loops;

/* In the destination's memory order, single dimensions left out, neighbours that continue each other merged. */
static void make_loops(loops *l, const tn_view *to, const tn_view *from) {
    l->size = tn_type_size(to->type);
    l->to = to->data;
    l->from = from->data;
    tni_nest nest = {.n_views = 2, .sizes = l->shape, .strides = (int64_t *[]){l->to_step, l->from_step}, .apart = 1};
    for (int32_t d = 0; d < to->ndim; d++) {
        if (to->shape[d] == 1) continue;
        l->shape[nest.n_loops] = to->shape[d];
        l->to_step[nest.n_loops] = to->strides[d] * (int64_t)l->size;
        l->from_step[nest.n_loops++] = from->strides[d] * (int64_t)l->size;
    }
    tni_nest_sort(&nest, 1);
    tni_nest_merge(&nest);
    l->ndim = nest.n_loops;
}

/* One line of n elements; sizes are spelt out so that the compiler makes real loads of them. */
static void copy_line(char *to, const char *from, int64_t n, int64_t to_step, int64_t from_step, size_t size) {
    if (to_step == (int64_t)size && from_step == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++) to[i * to_step] = from[i * from_step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 4);
        break;
    case 8:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, 8);
        break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, size);
    }
}

/* The last two loops, in tiles: in a transpose one side jumps a row at every element. */
static void copy_plane(const loops *l, char *to, const char *from) {
    int32_t r = l->ndim - 2, c = l->ndim - 1;
    for (int64_t i = 0; i < l->shape[r]; i += TILE) {
        int64_t rows = l->shape[r] - i < TILE ? l->shape[r] - i : TILE;
        for (int64_t j = 0; j < l->shape[c]; j += TILE) {
            int64_t cols = l->shape[c] - j < TILE ? l->shape[c] - j : TILE;
            for (int64_t k = i; k < i + rows; k++) {
                copy_line(to + k * l->to_step[r] + j * l->to_step[c], from + k * l->from_step[r] + j * l->from_step[c],
                          cols, l->to_step[c], l->from_step[c], l->size);
            }
        }
    }
}

/* Whether tiles pay: the source is faster along another loop than the destination. */
static bool transposes(const loops *l) {
    int32_t c = l->ndim - 1;
    return l->ndim >= 2 && llabs(l->from_step[c - 1]) < llabs(l->from_step[c]);
}

/* Are lines the same on both sides, and short? */
static bool has_short_lines(const loops *l) {
    const int32_t c = l->ndim - 1;
    const int64_t size = (int64_t)l->size;
    return l->ndim >= 2 && l->to_step[c] == size && l->from_step[c] == size && l->shape[c] * size <= SHORT_LINE;
}

/* Inner blocks begin … end - 1, each one line or one plane. Short lines go together, as far as they lie evenly. */
static void copy_blocks(void *arg, int64_t begin, int64_t end) {
    const loops *l = arg;
    const bool plane = transposes(l), shorts = has_short_lines(l);
    int32_t outer = l->ndim - (plane ? 2 : 1), c = l->ndim - 1;
    int64_t index[TN_MAX_RANK] = {0}, rest = begin;
    char *to = l->to;
    const char *from = l->from;
    for (int32_t d = outer - 1; d >= 0; d--) {
        index[d] = rest % l->shape[d];
        rest /= l->shape[d];
        to += index[d] * l->to_step[d];
        from += index[d] * l->from_step[d];
    }
    for (int64_t b = begin, count = 1; b < end; b += count) {
        if (plane) {
            copy_plane(l, to, from);
        } else if (shorts) {
            count = l->shape[c - 1] - index[c - 1] < end - b ? l->shape[c - 1] - index[c - 1] : end - b;
            tni_copy_lines(to, l->to_step[c - 1], from, l->from_step[c - 1], count, l->shape[c] * (int64_t)l->size);
            index[c - 1] += count - 1;
            to += (count - 1) * l->to_step[c - 1];
            from += (count - 1) * l->from_step[c - 1];
        } else {
            copy_line(to, from, l->shape[c], l->to_step[c], l->from_step[c], l->size);
        }
        for (int32_t d = outer - 1; d >= 0; d--) {
            const bool inside = ++index[d] < l->shape[d];
            const int64_t move = inside ? 1 : 1 - l->shape[d];
            to += move * l->to_step[d];
            from += move * l->from_step[d];
            if (inside) break;
            index[d] = 0;
        }
    }
}

/* Do lines follow each other on both sides, with little between them? */
static bool is_padded(const loops *l) {
    const int32_t c = l->ndim - 1;
    const int64_t most = l->shape[c] * (int64_t)l->size + LINE;
    return l->ndim >= 2 && llabs(l->to_step[c - 1]) <= most && llabs(l->from_step[c - 1]) <= most;
}

/* Lines that are short, or that only one side has side by side, go by way of boxes. */
static bool copy_by_boxes(const tn_call *call, const loops *l) {
    const int32_t c = l->ndim - 1;
    const int64_t size = (int64_t)l->size;
    tni_box box = {.size = (int)size, .n_dims = l->ndim};
    if (l->to_step[c] == size && l->from_step[c] == size && (l->shape[c] * size >= LINE || is_padded(l))) return false;
    for (int32_t d = 0; d < l->ndim; d++) {
        box.shape[d] = l->shape[d];
        box.strides[TNI_TO][d] = l->to_step[d] / size;
        box.strides[TNI_FROM][d] = l->from_step[d] / size;
    }
    return tni_box_copy(call, &box, l->to, l->from);
}

/* A single block cannot be shared out, so a long one is cut in two loops first. */
static void cut(loops *l) {
    int32_t c = l->ndim - 1;
    if (l->ndim != 1 || l->shape[c] < 2 * GRAIN || l->shape[c] % 64 != 0) return;
    l->ndim = 2;
    l->shape[1] = l->shape[0] / 64;
    l->shape[0] = 64;
    l->to_step[1] = l->to_step[0];
    l->from_step[1] = l->from_step[0];
    l->to_step[0] *= l->shape[1];
    l->from_step[0] *= l->shape[1];
}

tn_status tni_strided_copy(const tn_call *call, const tn_view *to, const tn_view *from) {
    loops l;
    if (tn_count(to) == 0) return TN_OK;
    make_loops(&l, to, from);
    if (l.ndim == 0) {
        memcpy(l.to, l.from, l.size);
        return TN_OK;
    }
    if (copy_by_boxes(call, &l)) return TN_OK;
    cut(&l);
    int32_t inner = transposes(&l) ? 2 : 1;
    int64_t blocks = 1, elements = 1;
    for (int32_t d = 0; d < l.ndim - inner; d++) blocks *= l.shape[d];
    for (int32_t d = l.ndim - inner; d < l.ndim; d++) elements *= l.shape[d];
    int64_t grain = elements >= GRAIN ? 1 : GRAIN / elements;
    tn_parallel(call, blocks, grain, copy_blocks, &l);
    return TN_OK;
}
