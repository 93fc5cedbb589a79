/* Products, vectorised. y is divided into blocks, which threads take by turns. For each step of k a block's rows of a
 * are packed, then its columns of b by panels that stay in the second cache, and tiles of y take both from there. What
 * follows a sum (alpha, bias, residual, act) is done to a tile when its last step is. */
#include "gemm_plan.h"

#include "pack_cpu.h"
#include "stream_cpu.h"

#define TILE(rows, vectors)                                                                              \
    static void tile_##rows##_##vectors(int64_t k, const real *a, const real *b, int64_t b_row, real *c, \
                                        int64_t c_row, bool add) {                                       \
        if (add)                                                                                         \
            tile_of(rows, vectors, k, a, b, b_row, c, c_row, true);                                      \
        else                                                                                             \
            tile_of(rows, vectors, k, a, b, b_row, c, c_row, false);                                     \
    }
TILE_ROW_COUNTS(TILE, 1)
TILE_ROW_COUNTS(TILE, 2)
#define TILE_NAME(rows, vectors) tile_##rows##_##vectors,
tile_function *const TNI_CPU(gemm_tiles)[2][TILE_ROWS] = {{TILE_ROW_COUNTS(TILE_NAME, 1)},
                                                          {TILE_ROW_COUNTS(TILE_NAME, 2)}};

#define STREAM(rows)                                                                                             \
    static void stream_##rows(tn_type t, int64_t k, const real *a, const void *b, int64_t step, int64_t columns, \
                              real *c, int64_t c_row, bool add) {                                                \
        V_BY_TYPE(t, stream_of, rows, k, a, b, step, columns, c, c_row, add);                                    \
    }
STREAM(1)
STREAM(2)
STREAM(3)
STREAM(4)
static stream_function *const streams[STREAM_ROWS] = {stream_1, stream_2, stream_3, stream_4};

enum { PANEL = GEMM_PANEL * 4 / (int)sizeof(real) };
_Static_assert(PANEL % TILE_COLUMNS == 0 && (int)TILE_ROWS <= (int)GEMM_FEW, "blocks are made of tiles");

/* A block of y: elements (row, column) … of one entry of the batch. */
typedef struct block {
    const tni_product *p;
    const void *a, *b;               /* of the entry, from the block's first row or column on */
    tni_matrix y, z, residual, bias; /* the same */
    int64_t rows, columns;
    real *packed_a, *packed_b;
    real *c; /* (rows, c_row): sums of steps, where those are several and y cannot hold them; else NULL */
    int64_t c_row;
    bool direct; /* y holds sums as they are */
} block;

/* ---- what follows a sum ------------------------------------------------------------------------------------------ */

TNI_INLINE bool is_beside(const tni_matrix *x) {
    return x->type == TN_NO_TYPE || x->column == 1;
}

TNI_INLINE void finish_row(const tn_type t, const block *k, int64_t i, int64_t j, int64_t columns, const real *c) {
    const tni_product *p = k->p;
    const void *bias = r_at(t, k->bias.data, j), *residual = r_at(t, k->residual.data, i * k->residual.row + j);
    void *y = r_at(t, k->y.data, i * k->y.row + j), *z = r_at(t, k->z.data, i * k->z.row + j);
    for (int64_t l = 0; l < columns; l += VL) {
        const int64_t n = columns - l;
        vreal v = v_load_some(V_NATIVE, c, l, n, 0) * v_set((real)p->alpha);
        if (p->bias.type) v += v_load_some(t, bias, l, n, 0);
        if (p->residual.type) v += v_load_some(t, residual, l, n, 0);
        if (p->z.type) v_store_some(t, z, l, n, v);
        if (p->act == TNI_ACT_RELU) v = v_atleast(v, v_set(0));
        v_store_some(t, y, l, n, v);
    }
}

/* The same for any strides. */
TNI_INLINE void finish_any_row(const tn_type t, const block *k, int64_t i, int64_t j, int64_t columns, const real *c) {
    const tni_product *p = k->p;
    for (int64_t l = 0; l < columns; l++) {
        real v = c[l] * (real)p->alpha;
        if (p->bias.type) v += r_load(t, k->bias.data, (j + l) * k->bias.column);
        if (p->residual.type) v += r_load(t, k->residual.data, i * k->residual.row + (j + l) * k->residual.column);
        if (p->z.type) r_store(t, k->z.data, i * k->z.row + (j + l) * k->z.column, v);
        if (p->act == TNI_ACT_RELU && v < 0) v = 0;
        r_store(t, k->y.data, i * k->y.row + (j + l) * k->y.column, v);
    }
}

/* rows x columns of sums at c become elements (i, j) … of the block. */
TNI_INLINE void finish_of(const tn_type t, const block *k, int64_t i, int64_t rows, int64_t j, int64_t columns,
                          const real *c, int64_t c_row) {
    const bool beside = is_beside(&k->y) && is_beside(&k->z) && is_beside(&k->residual) && is_beside(&k->bias);
    for (int64_t r = 0; r < rows; r++) {
        if (beside)
            finish_row(t, k, i + r, j, columns, c + r * c_row);
        else
            finish_any_row(t, k, i + r, j, columns, c + r * c_row);
    }
}

static void finish(const block *k, int64_t i, int64_t rows, int64_t j, int64_t columns, const real *c, int64_t c_row) {
    V_BY_TYPE(k->y.type, finish_of, k, i, rows, j, columns, c, c_row);
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

typedef struct step {
    const real *a; /* (rows, k), packed */
    int64_t k;
    bool first, last;
} step;

/* Where the sums of a tile go: into c, into y, or into `room`, which has what y holds so far. */
static real *sums_of(const block *k, step s, int64_t i, int64_t rows, int64_t j, int64_t columns, bool whole,
                     real *room, int64_t *row) {
    if (k->c) {
        *row = k->c_row;
        return k->c + i * k->c_row + j;
    }
    real *y = k->direct ? (real *)k->y.data + i * k->y.row + j : NULL;
    *row = y && whole ? k->y.row : TILE_COLUMNS;
    if (y && whole) return y;
    for (int64_t r = 0; !s.first && r < rows; r++)
        for (int64_t l = 0; l < columns; l += VL)
            v_store(V_NATIVE, room, r * TILE_COLUMNS + l, v_load_some(V_NATIVE, y + r * k->y.row, l, columns - l, 0));
    return room;
}

static void end_tile(const block *k, step s, int64_t i, int64_t rows, int64_t j, int64_t columns, bool whole,
                     const real *c, int64_t c_row) {
    if (k->c ? s.last : !(k->direct && whole)) finish(k, i, rows, j, columns, c, c_row);
}

static void do_tile(const block *k, step s, int64_t i, int64_t rows, int64_t j, int64_t columns, const real *b,
                    int64_t b_row) {
    _Alignas(64) real room[TILE_ROWS * TILE_COLUMNS];
    const int vectors = columns > VL ? 2 : 1;
    const bool whole = columns == vectors * VL;
    int64_t row;
    real *c = sums_of(k, s, i, rows, j, columns, whole, room, &row);
    TNI_CPU(gemm_tiles)[vectors - 1][rows - 1](s.k, s.a + i * A_ROW, b, b_row, c, row, !s.first);
    end_tile(k, s, i, rows, j, columns, whole, c, row);
}

/* All rows, and VL columns of b at most. */
static void do_stream(const block *k, step s, int64_t j, int64_t columns, const void *b) {
    _Alignas(64) real room[TILE_ROWS * TILE_COLUMNS];
    const tni_matrix *matrix = &k->p->b;
    const bool whole = columns == VL;
    int64_t row;
    real *c = sums_of(k, s, 0, k->rows, j, columns, whole, room, &row);
    streams[k->rows - 1](matrix->type, s.k, s.a, b, matrix->column, columns, c, row, !s.first);
    end_tile(k, s, 0, k->rows, j, columns, whole, c, row);
}

static void pack_a(const tni_matrix *a, const void *from, int64_t rows, int64_t k, real *to) {
    V_BY_TYPE(a->type, pack_a_of, a, from, rows, k, to);
}

static void pack_b(const tni_matrix *b, const void *from, int64_t k, int64_t columns, int64_t width, real *to) {
    V_BY_TYPE(b->type, pack_b_of, b, from, k, columns, width, to);
}

/* Columns j … of the block, at most PANEL; b has them for this step. */
static void do_panel(const block *k, step s, const void *b, int64_t j, int64_t columns) {
    const tni_matrix *matrix = &k->p->b;
    for (int64_t l = 0; l < columns; l += TILE_COLUMNS) {
        const int64_t n = min(columns - l, TILE_COLUMNS);
        pack_b(matrix, r_at(matrix->type, b, l * matrix->column), s.k, n, round_up(n, VL), k->packed_b + l * s.k);
    }
    for (int64_t i = 0; i < k->rows; i += TILE_ROWS) {
        for (int64_t l = 0; l < columns; l += TILE_COLUMNS) {
            const int64_t n = min(columns - l, TILE_COLUMNS);
            do_tile(k, s, i, min(k->rows - i, TILE_ROWS), j + l, n, k->packed_b + l * s.k, round_up(n, VL));
        }
    }
}

/* Columns j … where there are so few rows that nothing of b is used twice; returns how many columns it did. */
static int64_t do_few_rows(const block *k, step s, const void *b, int64_t j) {
    const tni_matrix *matrix = &k->p->b;
    const bool stream = matrix->row == 1 && k->rows <= STREAM_ROWS;
    const bool plain = matrix->column == 1 && matrix->type == V_NATIVE;
    const int64_t n = min(k->columns - j, stream ? VL : TILE_COLUMNS);
    if (stream)
        do_stream(k, s, j, n, b);
    else if (plain && n == TILE_COLUMNS)
        do_tile(k, s, 0, k->rows, j, n, b, matrix->row);
    else
        do_panel(k, s, b, j, n);
    return n;
}

/* Step `at` of the block, and where a and b begin in it. */
static step step_of(const block *k, int64_t at, const void **a, const void **b) {
    const tni_product *p = k->p;
    const int64_t of_k = ceil_div(p->k, GEMM_STEP), first = at % of_k * GEMM_STEP;
    int64_t entry = at / of_k, in_a = first * p->a.column, in_b = first * p->b.row;
    for (int32_t d = p->n_sums - 1; d >= 0; entry /= p->sums[d--]) {
        in_a += entry % p->sums[d] * p->a.sum[d];
        in_b += entry % p->sums[d] * p->b.sum[d];
    }
    *a = r_at(p->a.type, k->a, in_a);
    *b = r_at(p->b.type, k->b, in_b);
    return (step){k->packed_a, min(p->k - first, GEMM_STEP), at == 0, at == gemm_steps(p) - 1};
}

static void do_step(const block *k, int64_t at) {
    const void *a, *b;
    const step s = step_of(k, at, &a, &b);
    pack_a(&k->p->a, a, k->rows, s.k, k->packed_a);
    for (int64_t j = 0; j < k->columns; j += PANEL)
        do_panel(k, s, r_at(k->p->b.type, b, j * k->p->b.column), j, min(k->columns - j, PANEL));
}

/* Some steps of few rows: memory is read along the columns of b, where those lie together. */
static void do_few_steps(const block *k, int64_t begin, int64_t end) {
    step steps[GEMM_TOGETHER];
    const void *a, *b[GEMM_TOGETHER];
    for (int64_t i = 0; i < end - begin; i++) {
        real *packed = k->packed_a + i * GEMM_FEW * A_ROW;
        steps[i] = step_of(k, begin + i, &a, &b[i]);
        steps[i].a = packed;
        pack_a(&k->p->a, a, k->rows, steps[i].k, packed);
    }
    for (int64_t j = 0, n = 0; j < k->columns; j += n) {
        for (int64_t i = 0; i < end - begin; i++)
            n = do_few_rows(k, steps[i], r_at(k->p->b.type, b[i], j * k->p->b.column), j);
    }
}

/* Nothing is summed: there is only what follows. */
static void do_empty(const block *k) {
    const real zeros[TILE_COLUMNS] = {0};
    for (int64_t i = 0; i < k->rows; i++)
        for (int64_t j = 0; j < k->columns; j += TILE_COLUMNS)
            finish(k, i, 1, j, min(k->columns - j, TILE_COLUMNS), zeros, 0);
}

static void do_block(const block *k) {
    const int64_t steps = gemm_steps(k->p);
    if (steps == 0) do_empty(k);
    if (k->rows <= TILE_ROWS) {
        for (int64_t at = 0; at < steps; at += GEMM_TOGETHER) do_few_steps(k, at, min(at + GEMM_TOGETHER, steps));
    } else {
        for (int64_t at = 0; at < steps; at++) do_step(k, at);
    }
}

/* ---- all blocks -------------------------------------------------------------------------------------------------- */

typedef struct job {
    const tni_product *p;
    const gemm_plan *plan;
    const gemm_blocks *blocks;
    char *workspace;
    _Atomic int64_t next;
} job;

static tni_matrix part(const tni_product *p, const tni_matrix *x, int64_t entry, int64_t row, int64_t column) {
    tni_matrix at = *x;
    int64_t first = row * x->row + column * x->column;
    for (int32_t d = p->n_batch - 1; d >= 0; entry /= p->batch[d--]) first += entry % p->batch[d] * x->batch[d];
    if (x->type) at.data = r_at(x->type, x->data, first);
    return at;
}

static block block_of(const job *j, int64_t at, char *memory) {
    const tni_product *p = j->p;
    const gemm_blocks *blocks = j->blocks;
    const int64_t across = at % blocks->across, down = at / blocks->across % blocks->down;
    const int64_t entry = at / (blocks->across * blocks->down);
    const int64_t row = down * blocks->rows, column = across * blocks->columns;
    block k = {.p = p,
               .a = part(p, &p->a, entry, row, 0).data,
               .b = part(p, &p->b, entry, 0, column).data,
               .y = part(p, &p->y, entry, row, column),
               .z = part(p, &p->z, entry, row, column),
               .residual = part(p, &p->residual, entry, row, column),
               .bias = part(p, &p->bias, entry, 0, column),
               .rows = min(p->m - row, blocks->rows),
               .columns = min(p->n - column, blocks->columns),
               .packed_a = (real *)memory,
               .packed_b = (real *)(memory + j->plan->a_bytes),
               .direct = p->y.type == V_NATIVE && p->y.column == 1 && p->alpha == 1 && !p->z.type && !p->bias.type &&
                         !p->residual.type && p->act == TNI_ACT_NONE};
    if (!k.direct && gemm_steps(p) > 1) {
        k.c = (real *)(memory + j->plan->a_bytes + j->plan->b_bytes);
        k.c_row = round_up(k.columns, TILE_COLUMNS);
    }
    return k;
}

static void slices_body(void *arg, int64_t begin, int64_t end) {
    job *j = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        char *memory = j->workspace + slice * j->plan->slice_bytes;
        for (int64_t at; (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->blocks->count;) {
            const block k = block_of(j, at, memory);
            do_block(&k);
        }
    }
}

void TNI_CPU(gemm_run)(const tn_call *call, const gemm_plan *plan, const tni_product *products) {
    for (int32_t i = 0; i < plan->n_products; i++) {
        job j = {.p = &products[i], .plan = plan, .blocks = &plan->blocks[i], .workspace = call->workspace};
        tn_parallel(call, min(plan->slices, j.blocks->count), 1, slices_body, &j);
    }
}

tn_status TNI_CPU(gemm)(const tn_call *call, void *state) {
    const tni_products *products = call->kernel->data;
    tni_product all[TNI_PRODUCTS_MOST];
    products->of(call, all);
    TNI_CPU(gemm_run)(call, state, all);
    return TN_OK;
}
