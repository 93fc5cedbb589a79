/* linear_fp8, vectorised: x is widened to f32 once, and each row of w as it is needed. A column of y is a sum along
 * its row of w, for some rows of x at a time. */
#include "core/contract/contract.h"
#include "core/host/arith.h"
#include "ops/runs.h"
#include "scaled_linear_cpu.h"

#if defined(TNI_REAL_f32)

enum {
    ROWS = 4, /* of x, for which a row of w is read once */
    COLUMNS = TNI_FP8_COLUMNS,
};

typedef uint8_t vbytes __attribute__((vector_size(VL)));

typedef struct job {
    linear_int8_args a;
    tni_scaled_size size;
    int64_t row; /* numbers from row to row: k and 0 behind it, in whole vectors */
    float *wide; /* (m, row) */
    char *panels;
    _Atomic int64_t next;
} job;

/* An exponent of 0 is that of 1 without the leading bit, and all ones are NaN. Nothing here is too small to be a normal
 * number: some programs have the processor take those as 0. */
TNI_INLINE vreal v_widen_e4m3(const uint8_t *from, int64_t n) {
    vbytes bytes = {0};
    if (n >= VL)
        memcpy(&bytes, from, sizeof bytes);
    else
        memcpy(&bytes, from, (size_t)n);
    const vint all = __builtin_convertvector(bytes, vint), rest = all & v_seti(0x7f);
    const vreal normal = (vreal)((rest << 20) + v_seti(120 << 23));
    vreal size = v_select((vint)(rest < v_seti(8)), normal * v_set(2) - v_set(0x1p-6f), normal);
    size = v_select((vint)(rest == v_seti(0x7f)), v_set(NAN), size);
    return (vreal)((vint)size | ((all & v_seti(0x80)) << 24));
}

static void widen_row(const job *j, const uint8_t *from, float *to) {
    for (int64_t l = 0; l < j->row; l += VL) v_store(V_NATIVE, to, l, v_widen_e4m3(from + l, j->size.k - l));
}

static void widen_rows(void *arg, int64_t begin, int64_t end) {
    const job *j = arg;
    for (int64_t i = begin; i < end; i++)
        widen_row(j, (const uint8_t *)j->a.x->data + i * j->size.k, j->wide + i * j->row);
}

/* Element (i, column) of y. */
static void put(const job *j, int64_t i, int64_t column, float sum) {
    const linear_int8_args *a = &j->a;
    float y = sum * (((const float *)a->x_scale->data)[i] * ((const float *)a->w_scale->data)[column]);
    if (a->b) y += ((const float *)a->b->data)[column];
    if (a->act == TNI_ACT_RELU && y < 0) y = 0;
    tn_set(a->y->type, a->y->data, i * j->size.n + column, y);
}

TNI_INLINE void tile_of(const int rows, const job *j, int64_t i, int64_t column, int64_t n, const float *w) {
    vreal sums[ROWS][COLUMNS];
    const float *x = j->wide + i * j->row;
    _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) {
        _Pragma("GCC unroll 2") for (int c = 0; c < COLUMNS; c++) sums[r][c] = v_set(0);
    }
    for (int64_t l = 0; l < j->row; l += VL) {
        vreal of_w[COLUMNS];
        _Pragma("GCC unroll 2") for (int c = 0; c < COLUMNS; c++) of_w[c] = v_load(V_NATIVE, w, c * j->row + l);
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) {
            const vreal of_x = v_load(V_NATIVE, x, r * j->row + l);
            _Pragma("GCC unroll 2") for (int c = 0; c < COLUMNS; c++) sums[r][c] = v_fma(of_x, of_w[c], sums[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) put(j, i + r, column + c, v_sum(sums[r][c]));
}

static void some_columns(const job *j, int64_t column, int64_t n, float *panel) {
    int64_t i = 0;
    for (int64_t c = 0; c < n; c++)
        widen_row(j, (const uint8_t *)j->a.w->data + (column + c) * j->size.k, panel + c * j->row);
    for (; i + ROWS <= j->size.m; i += ROWS) tile_of(ROWS, j, i, column, n, panel);
    for (; i < j->size.m; i++) tile_of(1, j, i, column, n, panel);
}

static void panels(void *arg, int64_t begin, int64_t end) {
    job *j = arg;
    const int64_t count = ceil_div(j->size.n, COLUMNS), bytes = j->row * COLUMNS * (int64_t)sizeof(float);
    for (int64_t thread = begin; thread < end; thread++) {
        float *panel = (float *)(j->panels + thread * bytes);
        if (bytes) memset(panel, 0, (size_t)bytes); /* a column less may be there */
        for (int64_t at; (at = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < count;)
            some_columns(j, at * COLUMNS, min(j->size.n - at * COLUMNS, COLUMNS), panel);
    }
}

tn_status TNI_CPU(linear_fp8)(const tn_call *call, void *state) {
    const tni_scaled_room *room = state;
    job j = {.a = linear_int8_args_of(call), .wide = call->workspace};
    j.size = tni_scaled_size_of(&j.a);
    if (j.size.m * j.size.n == 0) return TN_OK;
    j.row = round_up(j.size.k, VL);
    j.panels = (char *)call->workspace + room->wide_bytes;
    tn_parallel(call, j.size.m, max(TNI_SCALED_GRAIN / (j.size.k + 1), 1), widen_rows, &j);
    tn_parallel(call, min(room->threads, ceil_div(j.size.n, COLUMNS)), 1, panels, &j);
    return TN_OK;
}

#endif
