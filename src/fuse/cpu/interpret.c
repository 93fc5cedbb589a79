/* Runs a program: for each pass, blocks of rows on the host's threads, the steps of the pass over each block. */
#include <math.h>
#include <string.h>

#include "compile_c.h"
#include "core/host/arith.h"

enum {
    CHUNK = 256,   /* random numbers at a time */
    ENOUGH = 32768 /* elements for a thread to be worth waking */
};

/* One thread's view of a pass: where it is, and where values are. */
typedef struct worker {
    const tni_program *program;
    const tni_pass *pass;
    const tni_cpu_pass *made;
    const tn_call *call;
    const tni_c_loop *loops; /* that are compiled; NULL: none */
    void **at;               /* (n_values) */
    int64_t *offset;         /* (n_memory), in elements, of the block's first row; then (n_accumulators) */
    int64_t *shift;          /* (n_memory) bytes to where the slice begins */
    int64_t slice;
    int64_t row;  /* the block's first row, counted over all */
    int64_t rows; /* of this block */
    int64_t column, columns;
    int64_t unit, span;
    int64_t partial; /* copy of accumulators */
    bool first;      /* block of a row */
    int32_t part;    /* which tensor of the lists */
    int64_t length;  /* of a row; of lists, this tensor's */
    int64_t number;  /* elements of the lists before this tensor */
    bool waited;     /* all units are done: what stores waited for */
} worker;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Without a workspace all accumulators are empty; their addresses are computed all the same. */
static char *workspace_at(const tn_call *call, int64_t offset) {
    static const double empty;
    return call->workspace ? (char *)call->workspace + offset : (char *)(uintptr_t)&empty;
}

static char *base_of(const worker *w, const tni_memory *m) {
    char *base = tni_memory_base(w->call, m, w->part);
    return base ? base + w->shift[m - w->pass->memory] : NULL;
}

/* Where the block begins in it. */
static char *block_of(const worker *w, int32_t i) {
    const tni_memory *m = &w->pass->memory[i];
    int64_t element = w->offset[i] + w->column * m->strides[w->pass->n_dims];
    char *base = base_of(w, m);
    return base ? base + element * (int64_t)tn_type_size(m->type) : NULL; /* no elements */
}

static int64_t row_stride(const worker *w, const int64_t *strides) {
    return w->pass->n_dims ? strides[w->pass->n_dims - 1] : 0;
}

static int64_t count_at(const worker *w, uint8_t level) {
    return level == TNI_ELEMENT ? w->rows * w->columns : level == TNI_ROW ? w->rows : 1;
}

static const void *value_at(const worker *w, int32_t value) {
    return value < 0 ? (const void *)&tni_on_cpu(w->program)->constants[-2 - value] : w->at[value];
}

static bool is_real(uint8_t lane) {
    return lane == TNI_LANE_F32 || lane == TNI_LANE_F64;
}

static void load(const worker *w, const tni_step *s) {
    const tni_memory *m = &w->pass->memory[s->operand];
    int64_t along = m->strides[w->pass->n_dims], down = row_stride(w, m->strides),
            size = (int64_t)tn_type_size(m->type);
    char *from = block_of(w, s->operand), *to = w->at[s->out];
    if (s->level == TNI_ONCE) {
        tni_load_values(s->lane, m->type, base_of(w, m), 1, to, 1);
    } else if (s->level == TNI_ROW) {
        tni_load_values(s->lane, m->type, from, down, to, w->rows);
    } else if (along == 1 && down == w->columns) {
        tni_load_values(s->lane, m->type, from, 1, to, w->rows * w->columns);
    } else if (along == 1 && from && is_real(s->lane) && TN_BIT(m->type) & TN_FLOATS) {
        tni_real_loops_of(s->lane)->load_rows(m->type, from, down, to, w->rows, w->columns);
    } else {
        for (int64_t r = 0; from && r < w->rows; r++) {
            tni_load_values(s->lane, m->type, from + r * down * size, along,
                            to + r * w->columns * tni_lane_size(s->lane), w->columns);
        }
    }
}

static void store(const worker *w, const tni_step *s) {
    const tni_memory *m = &w->pass->memory[s->operand];
    int64_t along = m->strides[w->pass->n_dims], down = row_stride(w, m->strides),
            size = (int64_t)tn_type_size(m->type);
    char *to = block_of(w, s->operand);
    const char *from = value_at(w, s->arg[0]);
    if (s->waits != w->waited) return;
    if (s->level == TNI_ONCE) { /* the same for all blocks: one of them writes it */
        if (w->unit == 0) tni_store_values(s->lane, m->type, from, to, 1, 1);
    } else if (s->level == TNI_ROW) {
        if (w->span == 0) tni_store_values(s->lane, m->type, from, to, down, w->rows);
    } else if (along == 1 && down == w->columns) {
        tni_store_values(s->lane, m->type, from, to, 1, w->rows * w->columns);
    } else if (along == 1 && to && is_real(s->lane) && TN_BIT(m->type) & TN_FLOATS) {
        tni_real_loops_of(s->lane)->store_rows(m->type, from, to, down, w->rows, w->columns);
    } else {
        for (int64_t r = 0; to && r < w->rows; r++) {
            tni_store_values(s->lane, m->type, from + r * w->columns * tni_lane_size(s->lane), to + r * down * size,
                             along, w->columns);
        }
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void fill(const char *from, int64_t size, char *to, int64_t n) {
    if (size == 1) {
        memset(to, *(const unsigned char *)from, (size_t)n);
    } else if (size == 4) {
        uint32_t word;
        memcpy(&word, from, sizeof word);
        for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, &word, sizeof word);
    } else {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        for (int64_t i = 0; i < n; i++) memcpy(to + 8 * i, &word, sizeof word);
    }
}

static void expand(const worker *w, const tni_step *s) {
    const char *from = value_at(w, s->arg[0]);
    char *to = w->at[s->out];
    int64_t size = tni_lane_size(s->lane);
    if (s->from_level == TNI_ONCE) {
        fill(from, size, to, count_at(w, s->level));
    } else if (is_real(s->lane)) {
        tni_real_loops_of(s->lane)->expand_rows(from, to, w->rows, w->columns);
    } else {
        for (int64_t r = 0; r < w->rows; r++) fill(from + r * size, size, to + r * w->columns * size, w->columns);
    }
}

static void random_values(const worker *w, const tni_step *s) {
    const int64_t *seed = (const int64_t *)base_of(w, &w->pass->memory[s->operand]);
    const tn_view *view = w->call->in[w->pass->memory[s->operand].index].views;
    int64_t both[2] = {seed[0], seed[view->strides[0]]};
    for (int64_t r = 0; r < w->rows; r++) {
        int64_t first = w->number + (w->row + r) * w->pass->columns + w->column;
        char *to = (char *)w->at[s->out] + r * w->columns * tni_lane_size(s->lane);
        for (int64_t c = 0; c < w->columns; c += CHUNK) {
            float drawn[CHUNK];
            int64_t some = w->columns - c < CHUNK ? w->columns - c : CHUNK;
            tni_random(both, s->stream, first + c, drawn, some);
            tni_load_values(s->lane, TN_F32, drawn, 1, to + c * tni_lane_size(s->lane), some);
        }
    }
}

/* Positions: how far an element is from the first one by the strides of memory that is none. */
static void index_values(const worker *w, const tni_step *s) {
    const int64_t *strides = w->pass->memory[s->operand].strides;
    const int64_t along = strides[w->pass->n_dims], down = row_stride(w, strides);
    const int64_t rows = s->level == TNI_ONCE ? 1 : w->rows, columns = s->level == TNI_ELEMENT ? w->columns : 1;
    const int64_t first = w->offset[s->operand] + (s->level == TNI_ELEMENT ? w->column * along : 0);
    int64_t *to = w->at[s->out];
    for (int64_t r = 0; r < rows; r++, to += columns) {
        for (int64_t c = 0; c < columns; c++) to[c] = first + r * down + c * along;
    }
}

/* A running result: a double, or an int64_t for integers. */
typedef union running {
    double real;
    int64_t whole;
} running;

static running nothing(uint8_t op, uint8_t lane) {
    running none;
    if (lane == TNI_LANE_INT) {
        none.whole = op == TNI_P_RMAX ? INT64_MIN : op == TNI_P_RMIN ? INT64_MAX : op == TNI_P_PROD;
    } else {
        none.real = op == TNI_P_RMAX ? -(double)INFINITY : op == TNI_P_RMIN ? (double)INFINITY : op == TNI_P_PROD;
    }
    return none;
}

static running both(uint8_t op, uint8_t lane, running a, running b) {
    running made;
    if (op == TNI_P_PROD) {
        if (lane == TNI_LANE_INT) {
            made.whole = (int64_t)((uint64_t)a.whole * (uint64_t)b.whole);
        } else {
            made.real = a.real * b.real;
        }
    } else if (lane == TNI_LANE_INT) {
        int64_t sum = (int64_t)((uint64_t)a.whole + (uint64_t)b.whole);
        bool second = op == TNI_P_RMAX ? b.whole > a.whole : b.whole < a.whole;
        made.whole = op == TNI_P_RMAX || op == TNI_P_RMIN ? (second ? b.whole : a.whole) : sum;
    } else {
        bool second = b.real != b.real || (op == TNI_P_RMAX ? b.real > a.real : b.real < a.real);
        made.real = op == TNI_P_RMAX || op == TNI_P_RMIN ? (second && a.real == a.real ? b.real : a.real)
                                                         : a.real + b.real;
    }
    return made;
}

/* y: what x is multiplied with; NULL: nothing. */
static running over(uint8_t op, uint8_t lane, const void *x, const void *y, int64_t n) {
    running made = nothing(op, lane);
    if (lane == TNI_LANE_INT) {
        for (int64_t i = 0; i < n; i++) made = both(op, lane, made, (running){.whole = ((const int64_t *)x)[i]});
    } else if (n > 0) {
        const tni_real_loops *loops = tni_real_loops_of(lane);
        made.real = y                  ? loops->dot(x, y, n)
                    : op == TNI_P_PROD ? loops->prod(x, n)
                    : op == TNI_P_RMAX ? loops->max(x, n)
                    : op == TNI_P_RMIN ? loops->min(x, n)
                                       : loops->sum(x, n);
    }
    return made;
}

static void put(void *to, int64_t i, uint8_t lane, running value) {
    if (lane == TNI_LANE_INT) {
        ((int64_t *)to)[i] = value.whole;
    } else if (lane == TNI_LANE_F32) {
        ((float *)to)[i] = (float)value.real;
    } else {
        ((double *)to)[i] = value.real;
    }
}

/* The values of a reduction from a place of the block on: of row r, so many bytes each. */
static running over_row(const worker *w, const tni_step *s, int64_t r, int64_t bytes, int64_t n) {
    const char *x = w->at[s->arg[0]], *y = s->n_args == 2 ? w->at[s->arg[1]] : NULL;
    return over(s->op, s->lane, x + r * bytes, y ? y + r * bytes : NULL, n);
}

static void reduce(const worker *w, const tni_step *s) {
    int64_t bytes = w->columns * tni_lane_size(s->lane);
    if (w->pass->columns > w->made->block) { /* a long row: gathered block by block */
        running value = over_row(w, s, 0, bytes, w->columns), *sum = w->at[s->out];
        *sum = w->first ? value : both(s->op, s->lane, *sum, value);
        return;
    }
    if (s->lane == TNI_LANE_INT || w->columns == 0) {
        for (int64_t r = 0; r < w->rows; r++) put(w->at[s->out], r, s->lane, over_row(w, s, r, bytes, w->columns));
        return;
    }
    const tni_real_loops *loops = tni_real_loops_of(s->lane);
    const void *x = w->at[s->arg[0]], *y = s->n_args == 2 ? w->at[s->arg[1]] : NULL;
    void *to = w->at[s->out];
    if (s->op == TNI_P_RMAX) {
        loops->max_rows(x, w->rows, w->columns, to);
    } else if (s->op == TNI_P_RMIN) {
        loops->min_rows(x, w->rows, w->columns, to);
    } else if (s->op == TNI_P_PROD) {
        loops->prod_rows(x, w->rows, w->columns, to);
    } else {
        loops->sum_rows(x, y, w->rows, w->columns, to);
    }
}

/* The block's first among this piece's partial results. */
static int64_t sum_of(const worker *w, const tni_step *s) {
    const tni_accumulator *acc = &w->pass->accumulators[s->operand];
    int64_t begin = w->offset[w->pass->n_memory + s->operand] + w->column * acc->strides[w->pass->n_dims];
    return w->partial * acc->size + begin;
}

static running *sums_of(const worker *w, const tni_step *s) {
    return (running *)workspace_at(w->call, w->pass->accumulators[s->operand].partial) + sum_of(w, s);
}

/* NULL: nothing ever is pending. */
static float *pending_of(const worker *w, const tni_step *s) {
    int64_t pending = w->made->pending[s->operand];
    bool any = s->level == TNI_ELEMENT && pending >= 0;
    return any ? (float *)workspace_at(w->call, pending) + sum_of(w, s) : NULL;
}

/* Rows side by side, and which of them the block begins with. */
static int64_t inner_of(const worker *w) {
    int64_t inner = w->pass->n_dims ? w->pass->size[w->pass->n_dims - 1] : 1;
    return inner > 0 ? inner : 1; /* where there are none, single values are made all the same */
}

static int64_t row_of(const worker *w) {
    return w->row % inner_of(w);
}

/* What takes a row's elements to the result of each column. */
static void (*columns_to(const tni_real_loops *loops, uint8_t op))(double *, const void *, int64_t) {
    if (op == TNI_P_PROD) return loops->prod_to;
    return op == TNI_P_RMAX ? loops->max_to : op == TNI_P_RMIN ? loops->min_to : loops->add_to;
}

/* The results of short rows, a row's to the one of its own or to one that all share: many rows in a loop. */
static void gather_short_rows(const worker *w, const tni_step *s, int64_t columns, running *to, int64_t down) {
    enum { MANY = 256 };
    const tni_real_loops *loops = tni_real_loops_of(s->lane);
    const int64_t bytes = columns * tni_lane_size(s->lane);
    const char *x = w->at[s->arg[0]], *y = s->n_args == 2 ? w->at[s->arg[1]] : NULL;
    char made[MANY * sizeof(double)] __attribute__((aligned(64)));
    for (int64_t first = 0, count; first < w->rows; first += count) {
        count = min(w->rows - first, MANY);
        if (s->op == TNI_P_SUM) {
            loops->sum_rows(x + first * bytes, y ? y + first * bytes : NULL, count, columns, made);
        } else {
            (s->op == TNI_P_RMAX ? loops->max_rows : loops->min_rows)(x + first * bytes, count, columns, made);
        }
        for (int64_t r = 0; r < count; r++, to += down) {
            running one = {.real = s->lane == TNI_LANE_F32 ? (double)((float *)made)[r] : ((double *)made)[r]};
            *to = both(s->op, s->lane, *to, one);
        }
    }
}

static void gather(const worker *w, const tni_step *s) {
    const tni_accumulator *acc = &w->pass->accumulators[s->operand];
    int64_t along = acc->strides[w->pass->n_dims], down = row_stride(w, acc->strides);
    running *to = sums_of(w, s);
    float *pending = pending_of(w, s);
    const tni_real_loops *loops = s->lane == TNI_LANE_INT ? NULL : tni_real_loops_of(s->lane);
    const char *from = w->at[s->arg[0]];
    int64_t columns = s->level == TNI_ROW ? 1 : w->columns, bytes = columns * tni_lane_size(s->lane);
    if (along == 0 && down == 0 && !tni_sums_rows(w->pass, acc)) { /* all of the block to one place */
        *to = both(s->op, s->lane, *to, over_row(w, s, 0, bytes, w->rows * columns));
        return;
    }
    if (along == 1 && down == 0 && loops && s->op == TNI_P_SUM && columns < TNI_LONG_ROW) {
        loops->add_columns(&to->real, from, w->rows, columns);
        return;
    }
    if (along == 1 && down == 0 && loops && s->op == TNI_P_PROD) {
        loops->prod_columns(&to->real, from, w->rows, columns);
        return;
    }
    const bool known = s->op == TNI_P_SUM || s->op == TNI_P_RMAX || s->op == TNI_P_RMIN;
    if (along == 0 && loops && known && columns > 0 && w->pass->columns < TNI_LONG_ROW_MASKED) {
        gather_short_rows(w, s, columns, to, down);
        return;
    }
    for (int64_t r = 0; r < w->rows; r++, from += bytes, to += down) {
        if (along == 0) {
            *to = both(s->op, s->lane, *to, over_row(w, s, r, bytes, columns));
        } else if (pending && s->op != TNI_P_SUM) {
            (s->op == TNI_P_RMAX ? loops->max_row : loops->min_row)(pending, from, columns);
        } else if (pending) {
            loops->add_row(pending, from, columns);
            if (tni_is_settled(row_of(w) + r, inner_of(w))) loops->settle(&to->real, pending, columns);
        } else if (along == 1 && s->lane != TNI_LANE_INT) {
            columns_to(loops, s->op)(&to->real, from, columns);
        } else {
            for (int64_t c = 0; c < columns; c++) {
                running *one = to + c * along;
                *one = both(s->op, s->lane, *one, over(s->op, s->lane, from + c * tni_lane_size(s->lane), NULL, 1));
            }
        }
    }
}

static void round_values(const worker *w, const tni_step *s) {
    int64_t n = count_at(w, s->level);
    memcpy(w->at[s->out], value_at(w, s->arg[0]), (size_t)(n * tni_lane_size(s->lane)));
    tni_round_values(s->type, s->lane, w->at[s->out], n);
}

static void run_loop(const worker *w, const tni_step *s) {
    const void *arg[3] = {NULL, NULL, NULL};
    for (int k = 0; k < s->n_args; k++) arg[k] = value_at(w, s->arg[k]);
    s->run(arg, s->scalars, w->at[s->out], count_at(w, s->level));
}

/* Where the block begins; where its rows do not lie behind each other, also how many bytes lie between them. */
static int32_t take_memory(const worker *w, int32_t i, char **memory) {
    const tni_memory *m = &w->pass->memory[i];
    memory[0] = block_of(w, i);
    if (tni_is_contiguous(w->pass, w->made, m)) return 1;
    memory[1] = (char *)(intptr_t)((row_stride(w, m->strides) - w->columns) * (int64_t)tn_type_size(m->type));
    return 2;
}

/* The compiled loop of steps `first` …: everything that they point at, then all of them at once. */
static void run_compiled(worker *w, int32_t first, const tni_loop_place *place) {
    char *memory[TNI_MOST_OPERANDS];
    int32_t n = 0;
    for (int32_t i = first; i < first + place->count; i++) {
        const tni_step *s = &w->made->steps[i];
        if (s->kind == TNI_STEP_POINT) w->at[s->out] = block_of(w, s->operand);
        if (s->kind == TNI_STEP_LOAD || s->kind == TNI_STEP_STORE) n += take_memory(w, s->operand, memory + n);
        if (s->kind == TNI_STEP_GATHER && pending_of(w, s)) memory[n++] = (char *)pending_of(w, s);
        if (s->kind == TNI_STEP_GATHER) memory[n++] = (char *)sums_of(w, s);
    }
    for (int32_t k = 0; k < place->n_more; k++) n += take_memory(w, place->more[k], memory + n);
    w->loops[place->number - 1](w->at, memory, tni_on_cpu(w->program)->constants, w->rows, w->columns, row_of(w),
                                inner_of(w), w->first);
}

/* What stores that waited may need. */
static bool is_waited_for(const tni_cpu_pass *made, const tni_step *s) {
    const bool level = s->level == TNI_ONCE || (s->level == TNI_ROW && made->rows_wait);
    return level && s->kind != TNI_STEP_GATHER;
}

static void run_steps(worker *w, const tni_segment *segment) {
    for (int32_t i = segment->first; i < segment->first + segment->count; i++) {
        const tni_step *s = &w->made->steps[i];
        if (w->waited && !is_waited_for(w->made, s)) continue;
        if (w->loops && w->made->loops[i].number) {
            run_compiled(w, i, &w->made->loops[i]);
            i += w->made->loops[i].count - 1;
            continue;
        }
        switch (s->kind) {
        case TNI_STEP_NONE: break;
        case TNI_STEP_LOOP: run_loop(w, s); break;
        case TNI_STEP_LOAD: load(w, s); break;
        case TNI_STEP_POINT: w->at[s->out] = block_of(w, s->operand); break;
        case TNI_STEP_RAND: random_values(w, s); break;
        case TNI_STEP_INDEX: index_values(w, s); break;
        case TNI_STEP_EXPAND: expand(w, s); break;
        case TNI_STEP_ROUND: round_values(w, s); break;
        case TNI_STEP_REDUCE: reduce(w, s); break;
        case TNI_STEP_FINISH: put(w->at[s->out], 0, s->lane, *(const running *)w->at[s->arg[0]]); break;
        case TNI_STEP_STORE: store(w, s); break;
        case TNI_STEP_GATHER: gather(w, s); break;
        }
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static const int64_t *strides_of(const tni_pass *pass, int32_t i) {
    return i < pass->n_memory ? pass->memory[i].strides : pass->accumulators[i - pass->n_memory].strides;
}

/* Units come in order: the tensor that it is in is this one or one behind it. */
static void go_to_part(worker *w, int64_t unit) {
    const tni_program *program = w->program;
    while (w->part + 1 < program->n_parts && w->made->first_unit[w->part + 1] <= unit) {
        w->number += program->parts[w->part++];
    }
    w->unit = unit;
    w->span = unit - w->made->first_unit[w->part];
    w->rows = 1;
    w->length = program->parts[w->part];
}

/* From the number of a unit to its rows and columns. */
static void go_to(worker *w, int64_t unit) {
    const tni_pass *pass = w->pass;
    const tni_cpu_pass *made = w->made;
    if (made->first_unit) {
        go_to_part(w, unit);
        return;
    }
    const int64_t inner = inner_of(w), blocks = ceil_div(inner, made->rows), all = made->units / made->spans;
    const int64_t nth = made->by_columns ? unit % all : unit / made->spans; /* block of rows */
    int64_t block = nth % blocks, outer = nth / blocks, begin = block * made->rows;
    int32_t n = pass->n_memory + pass->n_accumulators;
    w->unit = unit;
    w->span = made->by_columns ? unit / all : unit % made->spans;
    w->row = outer * inner + begin;
    w->rows = inner - begin < made->rows ? inner - begin : made->rows;
    for (int32_t i = 0; i < n; i++) w->offset[i] = begin * row_stride(w, strides_of(pass, i));
    for (int32_t d = pass->n_dims - 2; d >= 0; d--) {
        int64_t index = outer % pass->size[d];
        outer /= pass->size[d];
        for (int32_t i = 0; i < n; i++) w->offset[i] += index * strides_of(pass, i)[d];
    }
}

/* The compiled loop that is all of a segment; NULL: none is. */
static const tni_loop_place *free_loop(const worker *w, const tni_segment *segment) {
    for (int32_t i = 0; w->loops && i < segment->count; i++) {
        const tni_loop_place *place = &w->made->loops[segment->first + i];
        if (place->number) return place->free ? place : NULL;
    }
    return NULL;
}

/* Is everything that a unit does one compiled loop that needs no blocks? */
static bool is_free(const worker *w) {
    bool any = false;
    for (int32_t i = 1; i < w->made->n_segments; i++) {
        const tni_segment *segment = &w->made->segments[i];
        if (segment->count == 0) continue;
        if (any || !free_loop(w, segment)) return false;
        any = true;
    }
    return any;
}

/* Units side by side that one compiled loop can do at once: more rows, or more of a row; how many they are. */
static int64_t take_more(worker *w, int64_t unit, int64_t end) {
    const tni_pass *pass = w->pass;
    const tni_cpu_pass *made = w->made;
    if (!is_free(w) || made->by_columns) return 1;
    int64_t spans = made->first_unit ? made->first_unit[w->part + 1] - made->first_unit[w->part] : made->spans;
    if (spans > 1) return spans - w->span < end - unit ? spans - w->span : end - unit;
    if (!pass->n_dims || pass->columns > made->block) return 1;
    int64_t left = inner_of(w) - row_of(w), most = (end - unit) * made->rows;
    w->rows = left < most ? left : most;
    return ceil_div(w->rows, made->rows);
}

/* `count`: spans of a row, where it has several. */
static void run_unit(worker *w, int64_t count) {
    const tni_cpu_pass *made = w->made;
    bool split = made->spans > 1 || made->first_unit;
    int64_t begin = w->span * made->span, end = begin + (split ? count : 1) * made->span;
    if (end > w->length) end = w->length;
    for (int32_t i = 1; i < made->n_segments; i++) {
        const tni_segment *segment = &made->segments[i];
        w->column = begin;
        w->columns = end - begin;
        if (segment->kind == TNI_SEGMENT_ROWS) {
            run_steps(w, segment);
            continue;
        }
        int64_t block = free_loop(w, segment) ? end - begin : made->block;
        for (; w->column < end; w->column += block) {
            w->first = w->column == begin;
            w->columns = end - w->column < block ? end - w->column : block;
            run_steps(w, segment);
        }
    }
}

/* What a piece has of an accumulator: `n` of every `apart` results, from `begin` on; all of a copy, or of the only one
 * some columns. */
typedef struct own {
    running *sums;
    float *pending; /* NULL: nothing ever is */
    int64_t begin, n, apart, end;
} own;

static own own_of(const worker *w, int32_t i) {
    const tni_accumulator *acc = &w->pass->accumulators[i];
    const int64_t size = acc->size, first = w->partial * size, pending = w->made->pending[i];
    own made = {.n = size, .apart = size, .end = size};
    made.sums = (running *)workspace_at(w->call, acc->partial) + first;
    if (pending >= 0) made.pending = (float *)workspace_at(w->call, pending) + first;
    if (!w->made->by_columns) return made;
    made.begin = w->span * w->made->span;
    made.n = min(w->made->span, w->pass->columns - made.begin);
    made.apart = w->pass->columns;
    return made;
}

static void clear_partials(const worker *w) {
    for (int32_t i = 0; i < w->pass->n_accumulators; i++) {
        const tni_accumulator *acc = &w->pass->accumulators[i];
        const running none = nothing(acc->op, acc->lane);
        const float none_pending = (float)none.real;
        const own o = own_of(w, i);
        for (int64_t k = o.begin; k < o.end; k += o.apart) {
            fill((const char *)&none, sizeof none, (char *)(o.sums + k), o.n);
            if (o.pending) fill((const char *)&none_pending, sizeof none_pending, (char *)(o.pending + k), o.n);
        }
    }
}

/* A piece may end within a group of rows; extremes are pending until then. */
static void settle_partials(const worker *w) {
    const bool whole = w->made->spans == 1 || w->made->by_columns;
    const bool settled = whole && tni_is_settled(row_of(w) + w->rows - 1, inner_of(w));
    for (int32_t i = 0; i < w->pass->n_accumulators; i++) {
        const tni_accumulator *acc = &w->pass->accumulators[i];
        const own o = own_of(w, i);
        if (!o.pending || (settled && acc->op == TNI_P_SUM)) continue;
        for (int64_t k = o.begin; k < o.end; k += o.apart)
            columns_to(tni_real_loops_of(acc->lane), acc->op)(&o.sums[k].real, o.pending + k, o.n);
    }
}

static void run_units(worker *w, int64_t begin, int64_t end) {
    const tni_cpu_pass *made = w->made;
    w->unit = begin;
    w->rows = made->rows;
    w->column = 0;
    w->columns = w->pass->columns;
    run_steps(w, &made->segments[0]);
    for (int64_t unit = begin, count; unit < end; unit += count) {
        go_to(w, unit);
        count = take_more(w, unit, end);
        run_unit(w, count);
    }
}

/* Stores that waited: rows' and single values are made once more, of inputs that nobody has updated yet. */
static void run_waiting(worker *w) {
    const tni_cpu_pass *made = w->made;
    w->rows = made->rows;
    run_steps(w, &made->segments[0]);
    for (int64_t unit = 0; unit < (made->rows_wait ? made->units : 1); unit++) {
        go_to(w, unit);
        for (int32_t i = 1; w->span == 0 && i < made->n_segments; i++) run_steps(w, &made->segments[i]);
    }
}

static void go_to_slice(worker *w) {
    const tni_program *program = w->program;
    for (int32_t i = 0; i < w->pass->n_memory; i++) w->shift[i] = 0;
    for (int64_t k = TN_MAX_RANK - 1, left = w->slice; left > 0; k--) {
        if (program->slices[k] == 1) continue;
        const int64_t index = left % program->slices[k];
        left /= program->slices[k];
        for (int32_t i = 0; i < w->pass->n_memory; i++) w->shift[i] += index * w->pass->memory[i].step[k];
    }
}

/* The scratch memory is this thread's stack: kernels do not allocate. */
static void run_range(const worker *all, int64_t begin, int64_t end, int64_t piece) {
    const tni_cpu_pass *made = all->made;
    int32_t n = all->pass->n_memory + all->pass->n_accumulators;
    char scratch[made->scratch + 64] __attribute__((aligned(64)));
    void *at[made->n_values + 1];
    int64_t offset[n + 1], shift[n + 1];
    worker w = *all;
    w.at = at;
    w.offset = offset;
    w.shift = shift;
    w.partial = made->by_columns ? 0 : piece;
    w.span = made->by_columns ? piece : 0;
    for (int32_t i = 0; i < made->n_values; i++) at[i] = made->offset[i] < 0 ? NULL : scratch + made->offset[i];
    memset(offset, 0, sizeof offset);
    go_to_slice(&w);
    if (w.waited) {
        run_waiting(&w);
        return;
    }
    clear_partials(&w);
    run_units(&w, begin, end);
    settle_partials(&w);
}

static void do_units(void *arg, int64_t begin, int64_t end) {
    run_range(arg, begin, end, 0);
}

/* Which units a piece has depends on the shape alone, so the sums come out the same on any number of threads. */
static void do_pieces(void *arg, int64_t begin, int64_t end) {
    const worker *all = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t units = all->made->units, pieces = all->made->pieces;
        run_range(all, units * piece / pieces, units * (piece + 1) / pieces, piece);
    }
}

typedef struct sums {
    int64_t pieces;
    const tni_accumulator *acc;
    const running *from; /* (pieces, size) */
    running *to;
} sums;

/* Piece by piece, so that memory is gone through as it lies. */
static void add_pieces(void *arg, int64_t begin, int64_t end) {
    const sums *s = arg;
    const tni_accumulator *acc = s->acc;
    memcpy(s->to + begin, s->from + begin, (size_t)(end - begin) * sizeof *s->to);
    for (int64_t piece = 1; piece < s->pieces; piece++) {
        const running *more = s->from + piece * acc->size;
        if (acc->lane != TNI_LANE_INT) {
            columns_to(tni_real_loops_of(TNI_LANE_F64), acc->op)(&s->to[begin].real, &more[begin], end - begin);
        } else {
            for (int64_t k = begin; k < end; k++) s->to[k] = both(acc->op, acc->lane, s->to[k], more[k]);
        }
    }
}

static void add_sums(const tn_call *call, int64_t pieces, const tni_accumulator *acc) {
    sums s = {pieces, acc, (const running *)workspace_at(call, acc->partial),
              (running *)workspace_at(call, acc->result)};
    tn_parallel(call, acc->size, 1 + ENOUGH / pieces, add_pieces, &s);
}

/* All passes over one slice, which is all of the call where that has one slice alone. */
static void run_passes(const tni_program *program, const tn_call *call, const tni_c_loop *loops, int64_t slice) {
    for (int32_t i = 0; i < program->n_passes; i++) {
        const tni_pass *pass = &program->passes[i];
        const tni_cpu_pass *made = &tni_on_cpu(program)->passes[i];
        worker all = {.program = program,
                      .pass = pass,
                      .made = made,
                      .call = call,
                      .loops = loops,
                      .slice = slice,
                      .length = pass->columns};
        int64_t elements = made->rows * (made->span > 0 ? made->span : 1);
        if (made->first_unit) elements = 1 + pass->columns / made->units; /* of lists, units may be small */
        if (pass->n_accumulators) {
            tn_parallel(call, made->pieces, 1 + ENOUGH / (1 + elements * made->units / made->pieces), do_pieces, &all);
        } else {
            tn_parallel(call, made->units, 1 + ENOUGH / elements, do_units, &all);
        }
        for (int32_t k = 0; k < pass->n_accumulators; k++) add_sums(call, made->partials, &pass->accumulators[k]);
        all.waited = made->waits;
        if (made->waits) run_range(&all, 0, 0, 0);
    }
}

typedef struct sliced {
    const tni_program *program;
    const tn_call *call;
    const tni_c_loop *loops;
} sliced;

static void do_slices(void *arg, int64_t begin, int64_t end) {
    const sliced *all = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        tn_call call = *all->call;
        call.workspace = workspace_at(all->call, slice * (int64_t)all->program->slice_workspace);
        run_passes(all->program, &call, all->loops, slice);
    }
}

/* Slices are for one thread each, unless there are so few that most threads would have none. */
tn_status tni_interpret(const tni_program *program, const tn_call *call, const tni_c_loop *loops) {
    sliced all = {program, call, loops};
    const bool few = program->n_slices < call->host->threads(call->host->context) / 4;
    tn_parallel(call, program->n_slices, few ? program->n_slices : 1, do_slices, &all);
    return TN_OK;
}

static tn_status run(const tni_program *program, const tn_call *call) {
    return tni_interpret(program, call, NULL);
}

const tni_backend tni_interpreter_backend = {
    .name = "interpreter", .device = TN_CPU, .keeps_shared = true, .slices = true, .plan = tni_plan_cpu, .run = run};
