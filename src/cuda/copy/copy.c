/* Copies between layouts on the GPU: lines, 16 bytes at a time where both sides allow it; rows that begin anywhere; and
 * tiles and boxes, where the two are fast along different dimensions, or along short ones. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "boxes.h"
#include "chunk.h"
#include "copy.cuh"
#include "copy.h"
#include "core/host/arith.h"
#include "cuda/driver/cuda.h"
#include "walk.h"

enum { TO, FROM };
enum {
    LEAST_EDGE = 32,      /* of two dimensions that are copied by tiles */
    LEAST_ROW = 64,       /* bytes of a row that is copied in chunks */
    FEW_ELEMENTS = 32768, /* boxes take a while to get going */
};

/* ---- kernels, looked up once for each GPU ------------------------------------------------------------------------ */

typedef enum family {
    LINES_SHORT,
    LINES_LONG,
    PAIRS_SHORT,
    PAIRS_LONG,
    FILL_SHORT,
    FILL_LONG,
    TILES,
    ROWS,
    BOXES,
    FAMILIES
} family;
static const char *const names[FAMILIES] = {
    "copy_lines_%d_short", "copy_lines_%d_long", "copy_lines_pair_short", "copy_lines_pair_long", "copy_fill_%d_short",
    "copy_fill_%d_long",   "copy_tiles_%d",      "copy_rows_%d",          "copy_boxes_%d",
};

static tn_status find(const tn_call *call, family f, int size, tn_launch *launch) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tn_launch known[TNI_MOST_GPUS][FAMILIES][5];
    const tn_gpu *gpu;
    int power = 0;
    while (1 << power < size) power++;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu)); /* the index is one of an array's */
    pthread_mutex_lock(&lock);
    tn_launch *found = &known[call->device.index][f][power];
    tn_status status = TN_OK;
    if (!found->kernel) {
        char name[64];
        snprintf(name, sizeof name, names[f], size);
        status = tni_cuda_find(call, found, f == BOXES ? "boxes" : "copy", "%s", name);
        if (status != TN_OK) found->kernel = NULL;
    }
    *launch = *found;
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- the copy as loops ------------------------------------------------------------------------------------------- */

typedef struct copying {
    char *to;
    const char *from;
    int size;      /* of an element */
    tni_rows rows; /* all dimensions; strides of TO and FROM in elements */
} copying;

/* Dimensions that are written backwards are turned round on both sides, so that more of them can be merged. */
static copying copying_of(const tn_view *to, const tn_view *from) {
    copying c = {.to = to->data, .from = from->data, .size = (int)tn_type_size(to->type)};
    int64_t strides[2][TN_MAX_RANK];
    for (int d = 0; d < to->ndim; d++) {
        const bool backwards = to->strides[d] < 0 && to->shape[d] > 1;
        strides[TO][d] = backwards ? -to->strides[d] : to->strides[d];
        strides[FROM][d] = backwards ? -from->strides[d] : from->strides[d];
        if (!backwards) continue;
        c.to += (to->shape[d] - 1) * to->strides[d] * c.size;
        c.from += (to->shape[d] - 1) * from->strides[d] * c.size;
    }
    const tn_view a = {.shape = to->shape, .strides = strides[TO], .ndim = to->ndim};
    const tn_view b = {.shape = to->shape, .strides = strides[FROM], .ndim = to->ndim};
    const tn_view *views[] = {&a, &b};
    c.rows = tni_rows_of(views, 2, -1);
    return c;
}

/* The largest power of 2 up to `most` that divides the address and, in bytes, every stride but that of the last
 * dimension. */
static int64_t alignment(const copying *c, int view, int64_t most) {
    uint64_t all = (uint64_t)(uintptr_t)(view == TO ? c->to : c->from) | (uint64_t)most;
    for (int d = 0; d < c->rows.n_dims - 1; d++) all |= (uint64_t)(c->rows.strides[d][view] * c->size);
    return (int64_t)(all & -all);
}

/* Elements that lie side by side become one of `size` bytes in the views that do: all but FROM of stride 0. */
static void widen(copying *c, int64_t size, bool both) {
    const int last = c->rows.n_dims - 1;
    const int64_t times = size / c->size;
    c->rows.shape[last] /= times;
    c->rows.count /= times;
    for (int d = 0; d < last; d++) {
        c->rows.strides[d][TO] /= times;
        if (both) c->rows.strides[d][FROM] /= times;
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Widens the elements where both sides allow it, and names the kernels that take them. */
static family widen_lines(copying *c) {
    const int last = c->rows.n_dims - 1;
    if (c->size == 16) return alignment(c, TO, 16) < 16 || alignment(c, FROM, 16) < 16 ? PAIRS_SHORT : LINES_SHORT;
    if (last < 0 || c->rows.strides[last][TO] != 1) return LINES_SHORT;
    const int64_t step = c->rows.strides[last][FROM], line = c->rows.shape[last] * c->size;
    int64_t size = min(alignment(c, TO, 16), line & -line);
    if (step == 0 && size >= 16) {
        widen(c, 16, false);
        return FILL_SHORT;
    }
    if (step == 1) size = min(size, alignment(c, FROM, 16));
    if (step == 1 && size > c->size) {
        widen(c, size, true);
        c->size = (int)size;
    }
    return LINES_SHORT;
}

static tn_status run_lines(const tn_call *call, copying *c) {
    const family f = widen_lines(c);
    tni_copy_lines p = {.to = c->to, .from = c->from};
    tni_walk_of(&p.walk, &c->rows);
    const bool is_short = p.walk.is_short, few = f != LINES_SHORT || c->size == 16 || !is_short;
    const int64_t block = TNI_COPY_THREADS * (few ? TNI_COPY_FEW_ITEMS : TNI_COPY_ITEMS);
    const int64_t grid = ceil_div(p.walk.count, block);
    if (grid > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: a copy of so many elements is not possible", call->name);
    tn_launch launch;
    TN_TRY(find(call, is_short ? f : f + 1, c->size, &launch));
    launch.grid = (uint32_t)grid;
    launch.block = TNI_COPY_THREADS;
    return tn_cuda_launch(call, &launch, (void *[]){&p});
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The dimension that FROM is fastest along where that is not the last, which TO is fastest along; -1: none. */
static int fast_in_from(const tni_rows *rows) {
    const int last = rows->n_dims - 1;
    int best = last;
    for (int d = last; d >= 0; d--) {
        const int64_t step = llabs(rows->strides[d][FROM]);
        if (rows->shape[d] >= LEAST_EDGE && step != 0 && step < llabs(rows->strides[best][FROM])) best = d;
    }
    return best == last || rows->shape[last] < LEAST_EDGE ? -1 : best;
}

/* The memory that is read, from its lowest element to behind its highest. */
static void find_reach(const copying *c, const void **low, const void **high) {
    int64_t first = 0, past = 1;
    for (int d = 0; d < c->rows.n_dims; d++) {
        const int64_t reach = (c->rows.shape[d] - 1) * c->rows.strides[d][FROM];
        *(reach < 0 ? &first : &past) += reach;
    }
    *low = c->from + first * c->size;
    *high = c->from + past * c->size;
}

/* How lines along a dimension of stride `fast` are moved. */
static int manner_of(const copying *c, int view, const tni_rows *outer, int64_t fast, int64_t slow) {
    uint64_t all = (uint64_t)(uintptr_t)(view == TO ? c->to : c->from) | (uint64_t)(slow * c->size);
    for (int d = 0; d < outer->n_dims; d++) all |= (uint64_t)(outer->strides[d][view] * c->size);
    return fast != 1 ? TNI_TILE_NARROW : all % 16 == 0 ? TNI_TILE_WIDE : TNI_TILE_ANYWHERE;
}

/* Stacks the dimension around the tiles that `view` is fastest along on a short one that divides a tile's edge. */
static void stack_dim(tni_tile_dim *dim, tni_rows *outer, int view, int64_t edge) {
    int best = -1;
    if (dim->size >= edge || edge % dim->size != 0) return;
    for (int d = outer->n_dims - 1; d >= 0; d--) {
        const int64_t step = llabs(outer->strides[d][view]);
        if (outer->shape[d] > 1 && (best < 0 || step < llabs(outer->strides[best][view]))) best = d;
    }
    if (best < 0) return;
    int64_t along[TNI_ROWS_MAX];
    dim->shift = __builtin_ctzll((unsigned long long)dim->size);
    dim->size *= tni_rows_take(outer, best, along);
    dim->stack_to = along[TO];
    dim->stack_from = along[FROM];
}

static tni_tile_dim take_dim(tni_rows *outer, int d) {
    int64_t along[TNI_ROWS_MAX];
    tni_tile_dim dim = {.size = tni_rows_take(outer, d, along), .shift = 62};
    dim.to = along[TO];
    dim.from = along[FROM];
    return dim;
}

/* Tiles are nearly all full, and moved 16 bytes at a time on both sides. */
static bool are_good(const tni_copy_tiles *p, int64_t edge) {
    return p->writes != TNI_TILE_NARROW && p->reads != TNI_TILE_NARROW && 8 * p->i.size >= 7 * edge * p->i.tiles &&
           8 * p->j.size >= 7 * edge * p->j.tiles;
}

/* *done: by tiles it was. only_good: where they suit it. */
static tn_status run_tiles(const tn_call *call, const copying *c, bool only_good, bool *done) {
    tni_rows outer = c->rows;
    const int j = outer.n_dims > 1 ? fast_in_from(&outer) : -1;
    *done = false;
    if (j < 0 || (c->size == 16 && ((uintptr_t)c->to | (uintptr_t)c->from) % 16 != 0)) return TN_OK;
    const int64_t groups = c->size == 1 ? TNI_TILE_GROUPS / 2 : TNI_TILE_GROUPS, edge = groups * 16 / c->size;
    tni_copy_tiles p = {.to = c->to, .from = c->from};
    find_reach(c, &p.low, &p.high);
    p.i = take_dim(&outer, outer.n_dims - 1);
    p.j = take_dim(&outer, j);
    p.writes = manner_of(c, TO, &outer, p.i.to, p.j.to);
    p.reads = manner_of(c, FROM, &outer, p.j.from, p.i.from);
    if (p.writes == TNI_TILE_WIDE && p.reads == TNI_TILE_WIDE) {
        stack_dim(&p.i, &outer, TO, edge);
        stack_dim(&p.j, &outer, FROM, edge);
    }
    tni_walk_of(&p.outer, &outer);
    p.i.tiles = ceil_div(p.i.size, edge);
    p.j.tiles = ceil_div(p.j.size, edge);
    if ((double)p.i.tiles * (double)p.j.tiles * (double)outer.count > INT32_MAX) return TN_OK;
    if (only_good && !are_good(&p, edge)) return TN_OK;
    tn_launch launch;
    TN_TRY(find(call, TILES, c->size, &launch));
    launch.grid = (uint32_t)(p.i.tiles * p.j.tiles * outer.count);
    launch.block = (uint32_t)(groups * groups);
    *done = true;
    return tn_cuda_launch(call, &launch, (void *[]){&p});
}

/* ---- rows that begin anywhere ------------------------------------------------------------------------------------ */

/* Lines that are wide in both layouts, but not at multiples of 16 bytes. */
static bool takes_rows(const copying *c) {
    const int last = c->rows.n_dims - 1;
    if (last < 0 || c->rows.strides[last][TO] != 1 || c->rows.strides[last][FROM] != 1) return false;
    const int64_t line = c->rows.shape[last] * c->size;
    const int64_t aligned = min(min(alignment(c, TO, 16), alignment(c, FROM, 16)), line & -line);
    return line >= LEAST_ROW && aligned < 8 && c->size < 8;
}

/* What is written follows each other, row after row. */
static bool is_dense(const copying *c) {
    int64_t so_far = 1;
    for (int d = c->rows.n_dims - 1; d >= 0; so_far *= c->rows.shape[d--])
        if (c->rows.strides[d][TO] != so_far) return false;
    return true;
}

static tn_status run_rows(const tn_call *call, const copying *c) {
    tni_copy_rows p = {.from = c->from};
    tni_rows outer = c->rows;
    int64_t strides[TNI_ROWS_MAX];
    const int64_t n = tni_rows_take(&outer, outer.n_dims - 1, strides);
    fill_chunks(&p.chunks, c->to, n, outer.count, c->size, is_dense(c), false);
    find_reach(c, &p.chunks.low, &p.chunks.high);
    tni_walk_of(&p.outer, &outer);
    tn_launch launch;
    TN_TRY(find(call, ROWS, c->size, &launch));
    return launch_chunks(call, &launch, chunk_blocks(&p.chunks), &p);
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* *done: by boxes it was. */
static tn_status run_boxes(const tn_call *call, const copying *c, bool *done) {
    const tn_gpu *gpu;
    tni_boxes p;
    int shared;
    *done = false;
    TN_TRY(tni_gpu_get(call->name, call->device.index, &gpu));
    if (c->rows.count < FEW_ELEMENTS || !tni_boxes_of(&p, &c->rows, c->to, c->from, c->size, gpu->sms, &shared))
        return TN_OK;
    tn_launch launch;
    TN_TRY(find(call, BOXES, c->size, &launch));
    launch.grid = (uint32_t)min(p.walk.count, gpu->sms * 4);
    launch.block = TNI_BOX_THREADS;
    launch.shared = (uint32_t)shared;
    *done = true;
    return tn_cuda_launch(call, &launch, (void *[]){&p});
}

/* Lines of at least 64 bytes, in pieces of 8 or 16, are as fast as any copy. */
static bool takes_lines(const copying *c) {
    const int last = c->rows.n_dims - 1;
    if (last < 1) return true; /* one line, or one element */
    if (c->rows.strides[last][TO] != 1 || c->rows.strides[last][FROM] != 1) return false;
    const int64_t line = c->rows.shape[last] * c->size;
    return line >= LEAST_ROW && min(min(alignment(c, TO, 16), alignment(c, FROM, 16)), line & -line) >= 8;
}

tn_status tni_cuda_copy(const tn_call *call, const tn_view *to, const tn_view *from) {
    bool done;
    if (tn_count(to) == 0) return TN_OK;
    copying c = copying_of(to, from);
    if (takes_rows(&c)) return run_rows(call, &c);
    if (takes_lines(&c)) return run_lines(call, &c);
    TN_TRY(run_tiles(call, &c, true, &done));
    if (!done) TN_TRY(run_boxes(call, &c, &done));
    if (!done) TN_TRY(run_tiles(call, &c, false, &done));
    return done ? TN_OK : run_lines(call, &c);
}
