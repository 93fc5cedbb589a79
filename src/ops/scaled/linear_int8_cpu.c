/* linear_int8, vectorised: x is widened to 16 bits once, and w as it is needed. Of few rows each column of y is a
 * sum along its row of w. Of more, columns are packed pair beside pair, and a tile of y stays in registers while k
 * goes by. Sums of 8-bit integers are exact, so their order does not matter. */
#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "cpu/vec/transpose.h"
#include "ops/runs.h"
#include "scaled_linear_cpu.h"

#if defined(TNI_REAL_f32)

#include "dot_cpu.h"

enum {
    FEW = 4,     /* rows of which a column is a sum along w */
    VECTORS = 2, /* of columns, in a tile */
    COLUMNS = VECTORS * PAIRS,
#if defined(TNI_ISA_avx512) || defined(TNI_ISA_neon)
    ROWS = 12,
#else
    ROWS = 6,
#endif
};
_Static_assert((int)COLUMNS <= (int)TNI_INT8_COLUMNS, "a packed panel has room");
_Static_assert((int)PAIRS == (int)VL, "squares of pairs are transposed as numbers");

typedef struct job {
    linear_int8_args a;
    tni_scaled_size size;
    int64_t row;   /* numbers from row to row of `wide`: k and 0 behind it, in whole vectors */
    int16_t *wide; /* (m, row) */
    char *panels;  /* a thread's each */
    int64_t threads;
    _Atomic int64_t next;
} job;

static void widen_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    const int8_t *x = j->a.x->data;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t l = 0; l < j->row; l += 2 * PAIRS) {
            const vshorts v = v_widen_bytes(x + i * j->size.k + l, j->size.k - l);
            memcpy(j->wide + i * j->row + l, &v, sizeof v);
        }
    }
}

/* ---- what follows a sum ------------------------------------------------------------------------------------------ */

TNI_INLINE void put_sums(const tn_type t, const job *j, int64_t i, int64_t column, int64_t n, vsums sums) {
    const linear_int8_args *a = &j->a;
    const real by = ((const float *)a->x_scale->data)[i];
    vreal v = __builtin_convertvector(sums, vreal) * (v_load_some(TN_F32, a->w_scale->data, column, n, 0) * v_set(by));
    if (a->b) v += v_load_some(TN_F32, a->b->data, column, n, 0);
    if (a->act == TNI_ACT_RELU) v = v_atleast(v, v_set(0));
    v_store_some(t, a->y->data, i * j->size.n + column, n, v);
}

static void put(const job *j, int64_t i, int64_t column, int64_t n, vsums sums) {
    V_BY_TYPE(j->a.y->type, put_sums, j, i, column, n, sums);
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* Columns `column` … of all rows, n of them, at most a vector. */
TNI_INLINE void few_columns(const job *j, const int rows, int64_t column, int64_t n) {
    const int8_t *w = j->a.w->data;
    vsums made[FEW] = {{0}};
    for (int64_t c = 0; c < n; c++) {
        const int8_t *from = w + (column + c) * j->size.k;
        vsums sums[FEW] = {{0}};
        for (int64_t l = 0; l < j->row; l += 2 * PAIRS) {
            const vshorts v = v_widen_bytes(from + l, j->size.k - l);
            for (int i = 0; i < rows; i++) sums[i] = v_dot(sums[i], v, v_shorts_at(j->wide + i * j->row + l));
        }
        for (int i = 0; i < rows; i++) made[i][c] = v_sum_all(sums[i]);
    }
    for (int i = 0; i < rows; i++) put(j, i, column, n, made[i]);
}

static void few_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t at = begin; at < end; at++) {
        const int64_t column = at * PAIRS, n = min(j->size.n - column, PAIRS);
        switch (j->size.m) {
        case 1: few_columns(j, 1, column, n); break;
        case 2: few_columns(j, 2, column, n); break;
        case 3: few_columns(j, 3, column, n); break;
        default: few_columns(j, FEW, column, n);
        }
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Columns `column` …, n of them: to[p] has pair p of k of each, COLUMNS pairs. */
static void pack_panel(const job *j, int64_t column, int64_t n, int16_t *to) {
    const int8_t *w = (const int8_t *)j->a.w->data + column * j->size.k;
    for (int64_t l = 0; l < j->row; l += 2 * PAIRS) {
        for (int64_t first = 0; first < COLUMNS; first += PAIRS) {
            vreal square[PAIRS];
            for (int c = 0; c < PAIRS; c++) {
                const bool there = first + c < n;
                square[c] = there ? (vreal)v_widen_bytes(w + (first + c) * j->size.k + l, j->size.k - l) : (vreal){0};
            }
            v_transpose(square);
            for (int p = 0; p < PAIRS; p++)
                memcpy(to + ((l / 2 + p) * COLUMNS + first) * 2, &square[p], sizeof square[p]);
        }
    }
}

TNI_INLINE void tile_of(const int rows, const job *j, int64_t i, int64_t column, int64_t n, const int16_t *panel) {
    vsums sums[ROWS][VECTORS];
    const int16_t *x = j->wide + i * j->row;
    _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++) {
        _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) sums[r][v] = (vsums){0};
    }
    for (int64_t p = 0; p < (j->size.k + 1) / 2; p++) {
        vshorts of_w[VECTORS];
        _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++)
            of_w[v] = v_shorts_at(panel + (p * COLUMNS + v * PAIRS) * 2);
        _Pragma("GCC unroll 12") for (int r = 0; r < rows; r++) {
            const vshorts of_x = v_same_pair(x + r * j->row + 2 * p);
            _Pragma("GCC unroll 2") for (int v = 0; v < VECTORS; v++) sums[r][v] = v_dot(sums[r][v], of_x, of_w[v]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS && v * PAIRS < n; v++)
            put(j, i + r, column + v * PAIRS, min(n - v * PAIRS, PAIRS), sums[r][v]);
    }
}

#define TILE(rows)                                                                                      \
    static void tile_##rows(const job *j, int64_t i, int64_t column, int64_t n, const int16_t *panel) { \
        tile_of(rows, j, i, column, n, panel);                                                          \
    }
TILE(6)
TILE(3)
TILE(1)
#if defined(TNI_ISA_avx512) || defined(TNI_ISA_neon)
TILE(12)
#define WHOLE_TILE {ROWS, tile_12},
#else
#define WHOLE_TILE
#endif

/* The largest first. */
static const struct {
    int64_t rows;
    void (*run)(const job *j, int64_t i, int64_t column, int64_t n, const int16_t *panel);
} tiles[] = {WHOLE_TILE{6, tile_6}, {3, tile_3}, {1, tile_1}};

static void all_rows(const job *j, int64_t column, int64_t n, const int16_t *panel) {
    int64_t i = 0;
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        for (; i + tiles[t].rows <= j->size.m; i += tiles[t].rows) tiles[t].run(j, i, column, n, panel);
    }
}

static void panels(void *arg, int64_t begin, int64_t end) {
    job *j = arg;
    const int64_t count = ceil_div(j->size.n, COLUMNS), bytes = j->row * COLUMNS * (int64_t)sizeof(int16_t);
    for (int64_t thread = begin; thread < end; thread++) {
        int16_t *panel = (int16_t *)(j->panels + thread * bytes);
        for (int64_t at; (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < count;) {
            const int64_t column = at * COLUMNS, n = min(j->size.n - column, COLUMNS);
            pack_panel(j, column, n, panel);
            all_rows(j, column, n, panel);
        }
    }
}

tn_status TNI_CPU(linear_int8)(const tn_call *call, void *state) {
    const tni_scaled_room *room = state;
    job j = {.a = linear_int8_args_of(call), .wide = call->workspace};
    j.size = tni_scaled_size_of(&j.a);
    if (j.size.m * j.size.n == 0) return TN_OK;
    const int64_t work = j.size.k + 1;
    j.row = round_up(j.size.k, 2 * PAIRS);
    j.panels = (char *)call->workspace + room->wide_bytes;
    j.threads = room->threads;
    tn_parallel(call, j.size.m, max(TNI_SCALED_GRAIN / work, 1), widen_rows, &j);
    if (j.size.m <= FEW)
        tn_parallel(call, ceil_div(j.size.n, PAIRS), max(TNI_SCALED_GRAIN / (PAIRS * work), 1), few_rows, &j);
    else
        tn_parallel(call, min(j.threads, ceil_div(j.size.n, COLUMNS)), 1, panels, &j);
    return TN_OK;
}

#endif
