/* Rows about sizes: none, one, odd, many. */
#include "cli/check/check.h"

#include <stdio.h>

/* Slot k of the sample gets `size`, the others stay (or become `others`, where that is not 0). */
static void with_size(checker *c, int32_t k, int64_t size, int64_t others) {
    variant v;
    problem p;
    char what[96];
    if (!variant_begin(c, &v)) return;
    for (int32_t i = 0; others && i < v.n_slots; i++) *v.slots[i] = others;
    *v.slots[k] = size;
    snprintf(what, sizeof what, "with size %d as %lld", k, (long long)size);
    if (variant_problem(c, &v, &p)) check_problem(c, &p, what);
}

static int32_t count_slots(checker *c, int32_t *row) {
    variant v;
    if (!variant_begin(c, &v)) return 0;
    int32_t n = v.n_slots;
    if (row) *row = v.row;
    variant_drop(&v);
    return n;
}

static void run_empty(checker *c) {
    int32_t n = count_slots(c, NULL);
    for (int32_t k = 0; k < n; k++) with_size(c, k, 0, 0);
}

static void run_zero_dim(checker *c) {
    variant v;
    problem p;
    if (!variant_begin(c, &v)) return;
    if (!variant_flatten(&v)) {
        variant_drop(&v);
    } else if (variant_problem(c, &v, &p)) {
        check_problem(c, &p, "with packs of rank 0");
    }
}

static void run_odd_rows(checker *c) {
    static const int64_t sizes[] = {1,  2,  3,  5,  7,  8,  9,  11, 13, 15, 16,  17, 19,
                                    23, 29, 31, 32, 33, 37, 47, 63, 64, 65, 127, 129};
    int32_t row = -1;
    count_slots(c, &row);
    int step = c->options.quick ? 3 : 1;
    for (size_t i = 0; row >= 0 && i < sizeof sizes / sizeof *sizes; i += (size_t)step) with_size(c, row, sizes[i], 0);
}

/* Of a matrix T[n, n] a long row would have as many others beside it. */
static bool is_square(const checker *c) {
    const tni_contract *k = c->contract;
    bool twice = false;
    for (int i = 0; i < k->n_inputs; i++) {
        uint64_t seen = 0;
        for (int d = 0; d < k->inputs[i].shape.count; d++) {
            const tni_item *item = &k->items[k->inputs[i].shape.first + d];
            if (item->kind != TNI_ITEM_EXPR || k->nodes[item->node].kind != TNI_DIM) continue;
            twice |= seen >> k->nodes[item->node].ref & 1;
            seen |= (uint64_t)1 << k->nodes[item->node].ref;
        }
    }
    return twice;
}

static bool has_long_rows(const checker *c) {
    return has_sizes(c) && !is_square(c);
}

static void run_vocabulary(checker *c) {
    static const int64_t sizes[] = {50257, 131072, 262144};
    int32_t row = -1;
    count_slots(c, &row);
    for (int i = 0; row >= 0 && i < (c->options.quick ? 1 : 3); i++) with_size(c, row, sizes[i], 2);
}

static bool on_gpu_with_sizes(const checker *c) {
    return on_gpu(c) && has_sizes(c);
}

/* A kernel for short rows gives way to one for longer ones somewhere: lengths around every power of 2. */
static void run_row_lengths(checker *c) {
    static const int64_t sizes[] = {255,  256,  513,   1000,  1024,  2047,  4096,  4097,
                                    8192, 8193, 16384, 16387, 32768, 40001, 65536, 100003};
    int32_t row = -1;
    count_slots(c, &row);
    int step = c->options.quick ? 3 : 1;
    for (size_t i = 0; row >= 0 && i < sizeof sizes / sizeof *sizes; i += (size_t)step) with_size(c, row, sizes[i], 2);
}

static bool is_long_row(const checker *c) {
    return on_gpu_with_sizes(c) && !is_square(c) && (c->T == TN_BF16 || c->T == TN_F32);
}

/* One row for the whole GPU: it is split over many blocks. */
static void run_long_row(checker *c) {
    int32_t row = -1;
    count_slots(c, &row);
    if (row >= 0) with_size(c, row, (1 << 20) + 3, 1);
}

/* A grid of a GPU ends at 65535 in two directions; 16-bit counters end there on any machine. */
static void run_long_dims(checker *c) {
    int32_t n = count_slots(c, NULL);
    for (int32_t k = 0; k < n; k++) {
        with_size(c, k, 65536, 1);
        if (!c->options.quick) with_size(c, k, 65535, 2);
    }
}

/* Enough elements for every thread to get some. */
static void run_large(checker *c) {
    int32_t n = count_slots(c, NULL);
    for (int32_t k = 0; k < n; k++) {
        variant v;
        problem p;
        if (!variant_begin(c, &v)) return;
        variant_grow(&v, k, c->options.quick ? 40000 : 100000);
        if (variant_problem(c, &v, &p)) check_problem(c, &p, "grown");
    }
}

const check_row shape_rows[] = {
    {"empty", "each dimension 0; no error is left behind", EACH, 0, has_sizes, run_empty,
     "A dimension may be 0. Launch nothing then (a grid of 0 blocks is an error), and write what a sum of nothing is."},
    {"zero_dim", "packs of rank 0", EACH, 0, has_sizes, run_zero_dim,
     "A tensor may have no dimensions at all: shape[ndim - 1] is not there then, and there is one element."},
    {"odd_rows", "last dimension from 1 to 129, around every vector width", FEW | LANES, 100000, has_sizes,
     run_odd_rows,
     "The length of a row is no multiple of the block, warp or vector. Test `if (i < n)`, and handle what is left "
     "behind the last whole vector."},
    {"vocabulary", "rows of 50257, 131072 and 262144", ONCE | NOT_REF, 0, has_long_rows, run_vocabulary,
     "A row is longer than a block has threads: let each thread take several elements, for (i = threadIdx.x; i < n; i "
     "+= blockDim.x)."},
    {"row_lengths", "rows of 255 to 100003, around every power of 2 (cuda)", RARE, 20000, on_gpu_with_sizes,
     run_row_lengths,
     "A row is longer than a block has threads, or just about as long: let each thread take several elements, for (i = "
     "threadIdx.x; i < n; i += blockDim.x)."},
    {"long_row", "a single row of 2^20 + 3, split over many blocks (cuda; f32 and bf16)", RARE | SLOW, 20000,
     is_long_row, run_long_row},
    {"long_dims", "each dimension at 65535 and 65536", ONCE | NOT_REF, 0, has_long_rows, run_long_dims,
     "A dimension has 65536 elements: grids end at 65535 blocks in y and z. Put the large dimension into x, or loop "
     "with a step of gridDim."},
    {"large", "each dimension grown until all threads have work", RARE | NOT_REF, 100000, has_sizes, run_large,
     "Many blocks, or all threads, are at work here. Look at what they share, and at indices that are computed from "
     "the place of a block."},
    {0},
};
