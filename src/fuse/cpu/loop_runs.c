/* Which steps of a pass become one compiled loop, and which values it makes anew: a sum or a product of what lies in
 * the arguments, or of a row's values, takes less time than storing it and loading it again. */
#include <string.h>

#include "emit_c.h"

enum {
    MOST_STEPS = 64, /* of a loop: longer ones only move values to the stack and back */
    MOST_REMADE = 3, /* operations for a value that is made again */
    IMPOSSIBLE = 1000
};

const char *tni_vector_function(int op, bool coarse) {
#define NAME_VECTOR(f) ("f_" #f)
#define NAME_VECTOR_2(f) ("f_" #f)
#define NAME_SCALAR(expression) NULL
#define NAME_SCALAR_2(expression) NULL
#define NAME_TEST(op) NULL
#define NAME_CHOICE NULL
#define NAME_REFERENCE NULL
#define NAME_NONE NULL
#define NAME_COARSE(f) ("f_" #f)
#define PRIMITIVE(id, value, real, ...) NAME_##real,
    static const char *const names[TNI_PRIMS] = {
#include "fuse/graph/primitive_list.h"
    };
#define PRIMITIVE(id, value, real, whole, truth, quick, ...) NAME_##quick,
    static const char *const quick[TNI_PRIMS] = {
#include "fuse/graph/primitive_list.h"
    };
    return (coarse ? quick : names)[op];
}

bool tni_is_test(int op) {
    return tni_prims[op].typing == TNI_TYPED_TEST;
}

bool tni_is_heavy(int op) {
    return tni_prims[op].effort == TNI_HEAVY && tni_vector_function(op, false);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

int32_t tni_segment_of(const tni_cpu_pass *made, int32_t step) {
    int32_t i = 0;
    while (step >= made->segments[i].first + made->segments[i].count) i++;
    return i;
}

static void learn_values(tni_emitter *e) {
    const tni_cpu_pass *made = e->made;
    for (int32_t i = 0; i < made->n_values; i++) e->values[i] = (tni_loop_value){.maker = -1};
    for (int32_t i = 0; i < made->n_steps; i++) {
        const tni_step *s = &made->steps[i];
        if (s->out < 0) continue;
        e->values[s->out].lane = s->lane;
        e->values[s->out].level = s->level;
        e->values[s->out].segment = tni_segment_of(made, i);
        if (s->kind == TNI_STEP_POINT) {
            e->values[s->out].pointed = true;
        } else {
            e->values[s->out].maker = i;
        }
    }
}

bool tni_is_neutral(const tni_step *s) {
    return s->kind == TNI_STEP_NONE || s->kind == TNI_STEP_POINT;
}

bool tni_is_inside(const tni_emitter *e, int32_t step) {
    return step >= e->first && step < e->first + e->count;
}

bool tni_is_made_here(const tni_emitter *e, int32_t v) {
    return v >= 0 && tni_is_inside(e, e->values[v].maker);
}

bool tni_is_fixed(const tni_emitter *e, int32_t v) {
    return e->values[v].segment == 0 && e->pass->n_dims > 0 && e->pass->columns <= e->made->block;
}

/* ---- values that are made again ---------------------------------------------------------------------------------- */

static bool is_light(const tni_step *s) {
    if (s->pair >= 0) return true;
    return s->op == TNI_P_ADD || s->op == TNI_P_SUB || s->op == TNI_P_MUL || s->op == TNI_P_NEG;
}

static int remake_cost(const tni_emitter *e, int32_t v, int most) {
    const tni_loop_value *about = &e->values[v];
    if (most < 0 || about->level != TNI_ELEMENT || about->lane != e->lane || about->maker < 0) return IMPOSSIBLE;
    const tni_step *s = &e->made->steps[about->maker];
    if (!e->run_of[about->maker]) return IMPOSSIBLE;
    if (s->kind == TNI_STEP_LOAD || s->kind == TNI_STEP_EXPAND) return 0;
    if (s->kind != TNI_STEP_LOOP || !is_light(s)) return IMPOSSIBLE;
    int cost = s->pair >= 0 ? 2 : 1;
    for (int k = 0; k < s->n_args && cost <= most; k++) {
        const int32_t from = s->arg[k];
        const bool there = from < 0 || e->values[from].level != TNI_ELEMENT || e->values[from].pointed ||
                           tni_is_fixed(e, from);
        if (!there) cost += remake_cost(e, from, most - cost);
    }
    return cost;
}

/* Rows are whole then: the values of long rows are made anew anyway. Nothing that it reads may be written by then. */
bool tni_is_remade(const tni_emitter *e, int32_t v) {
    const tni_loop_value *about = &e->values[v];
    const bool whole = e->pass->columns >= TNI_LONG_ROW && e->pass->columns <= e->made->block && !e->pass->last;
    if (!whole || about->pointed || e->made->segments[about->segment].kind != TNI_SEGMENT_ROWS) return false;
    return remake_cost(e, v, MOST_REMADE) <= MOST_REMADE;
}

bool tni_is_stored(const tni_emitter *e, int32_t v) {
    if (e->values[v].pointed) return true;
    const bool remade = tni_is_remade(e, v);
    for (int32_t i = 0; i < e->made->n_steps; i++) {
        const tni_step *s = &e->made->steps[i];
        const bool uses = s->arg[0] == v || s->arg[1] == v || s->arg[2] == v;
        if (uses && !tni_is_inside(e, i) && !(remade && e->run_of[i])) return true;
    }
    return false;
}

/* ---- what a loop can do ------------------------------------------------------------------------------------------ */

static int lane_of_argument(const tni_emitter *e, const tni_step *s, int k) {
    return s->arg[k] >= 0 ? e->values[s->arg[k]].lane : -1;
}

static bool fits_loop(const tni_emitter *e, const tni_step *s) {
    bool linked = tni_prims[s->op].calls_libm && !tni_real_loops_of(e->lane)->own_sin;
    if (linked) return false; /* no loop is linked with the C library */
    if (s->pair >= 0 || tni_vector_function(s->op, s->coarse)) return s->lane == e->lane;
    if (s->op == TNI_P_WHERE) return s->lane == e->lane;
    if (s->op == TNI_P_AND || s->op == TNI_P_OR || s->op == TNI_P_NOT) return true;
    if (s->op == TNI_P_CAST) {
        int from = lane_of_argument(e, s, 0);
        return (from == TNI_LANE_BOOL && s->lane == e->lane) || (from == e->lane && s->lane == TNI_LANE_BOOL);
    }
    if (!tni_is_test(s->op)) return false;
    int lane = lane_of_argument(e, s, 0);
    return (lane < 0 ? lane_of_argument(e, s, 1) : lane) == e->lane;
}

/* Is a row worth a loop of its own? With masks, one of some vectors already is. */
static bool has_long_rows(const tni_emitter *e) {
    const bool masks = strcmp(tni_loops_isa(), "avx512") == 0 && e->lane == TNI_LANE_F32;
    return e->pass->columns >= (masks ? TNI_LONG_ROW_MASKED : TNI_LONG_ROW);
}

static bool fits_gather(const tni_emitter *e, const tni_step *s) {
    const tni_accumulator *acc = &e->pass->accumulators[s->operand];
    if (s->level != TNI_ELEMENT || s->lane != e->lane) return false;
    if (tni_gathers_columns(e->pass, acc)) return true;
    const int64_t down = e->pass->n_dims ? acc->strides[e->pass->n_dims - 1] : 0;
    return tni_sums_rows(e->pass, acc) && has_long_rows(e) && (down == 0 || down == 1) && !e->made->first_unit;
}

/* Elements that lie side by side, in rows that need not lie behind each other. */
static bool fits_memory(const tni_emitter *e, const tni_step *s, const tni_memory *m) {
    if (s->lane != e->lane || !(TN_BIT(m->type) & TN_FLOATS)) return false;
    if (tni_is_contiguous(e->pass, e->made, m)) return true;
    const bool rows = s->out < 0 || e->made->segments[e->values[s->out].segment].kind == TNI_SEGMENT_ROWS;
    const int64_t *strides = m->strides + e->pass->n_dims;
    return rows && strides[0] == 1 && strides[-1] >= e->pass->columns && has_long_rows(e);
}

static bool fits(const tni_emitter *e, const tni_step *s) {
    const tni_memory *m = s->operand >= 0 && s->operand < e->pass->n_memory ? &e->pass->memory[s->operand] : NULL;
    if (tni_is_neutral(s)) return true;
    if ((s->kind == TNI_STEP_REDUCE || s->kind == TNI_STEP_GATHER) && s->op == TNI_P_PROD) return false; /* rare */
    if (s->kind == TNI_STEP_REDUCE) return s->lane == e->lane && has_long_rows(e) && !e->made->first_unit;
    if (s->level != TNI_ELEMENT) return false;
    switch (s->kind) {
    case TNI_STEP_LOOP: return fits_loop(e, s);
    case TNI_STEP_EXPAND: return s->lane == e->lane && (s->from_level == TNI_ONCE || has_long_rows(e));
    case TNI_STEP_LOAD:
        if (s->lane == TNI_LANE_BOOL) return m->type == TN_BOOL && tni_is_contiguous(e->pass, e->made, m);
        return fits_memory(e, s, m);
    case TNI_STEP_STORE: return fits_memory(e, s, m);
    case TNI_STEP_GATHER: return fits_gather(e, s);
    default: return false;
    }
}

/* ---- which steps ------------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const tni_emitter *e, int32_t v) {
    return tni_block_count(e->pass, e->made, e->values[v].level) * tni_lane_size(e->values[v].lane);
}

/* In the scratch memory values take the place of others that nobody needs any more: of one that this loop still reads,
 * only element by element. */
static bool disturbs(const tni_emitter *e, int32_t made, int32_t read) {
    const int64_t *at = e->made->offset;
    const tni_loop_value *a = &e->values[made], *b = &e->values[read];
    if (tni_is_made_here(e, read) || a->pointed || b->pointed || at[made] < 0 || at[read] < 0) return false;
    if (at[made] >= at[read] + bytes_of(e, read) || at[read] >= at[made] + bytes_of(e, made)) return false;
    return at[made] != at[read] || a->level != b->level || b->level != TNI_ELEMENT ||
           tni_lane_size(a->lane) != tni_lane_size(b->lane);
}

static bool is_bad(const tni_emitter *e, int32_t step) {
    const tni_step *s = &e->made->steps[step];
    if (tni_is_neutral(s) || s->out < 0 || !tni_is_stored(e, s->out)) return false;
    if (e->values[s->out].lane != e->lane) return true; /* truth stays in registers */
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        for (int k = 0; k < 3; k++) {
            int32_t read = e->made->steps[i].arg[k];
            if (read >= 0 && disturbs(e, s->out, read)) return true;
        }
    }
    return false;
}

/* Does it need what a row of this loop gives, which is there when the row is through? */
static bool needs_row(const tni_emitter *e, const tni_step *s) {
    for (int k = 0; k < 3; k++) {
        const int32_t v = s->arg[k];
        if (tni_is_made_here(e, v) && e->made->steps[e->values[v].maker].kind == TNI_STEP_REDUCE) return true;
    }
    return false;
}

/* The steps from e->first on that can be one loop. */
static void find_run(tni_emitter *e, int32_t past) {
    const tni_step *steps = e->made->steps;
    e->count = 0;
    while (e->first + e->count < past && e->count < MOST_STEPS && fits(e, &steps[e->first + e->count]) &&
           !needs_row(e, &steps[e->first + e->count]))
        e->count++;
    for (bool whole = false; !whole;) {
        whole = true;
        for (int32_t i = 0; i < e->count && whole; i++) {
            if (!is_bad(e, e->first + i)) continue;
            e->count = i;
            whole = false;
        }
    }
    while (e->count > 0 && tni_is_neutral(&steps[e->first + e->count - 1])) e->count--;
}

/* One function alone is the interpreter's, whose own loop is as good. */
static bool is_worth_it(const tni_emitter *e) {
    int32_t work = 0, heavy = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        work += tni_is_neutral(s) ? 0 : s->pair >= 0 ? 2 : 1;
        heavy += s->kind == TNI_STEP_LOOP && s->pair < 0 && tni_is_heavy(s->op);
    }
    return work > 1 || (work == 1 && heavy == 0);
}

void tni_find_runs(tni_emitter *e) {
    learn_values(e);
    memset(e->run_of, 0, (size_t)e->made->n_steps * sizeof *e->run_of);
    for (int32_t i = 0; i < e->made->n_segments; i++) {
        const tni_segment *segment = &e->made->segments[i];
        const int32_t past = segment->first + segment->count;
        for (e->first = segment->first; e->first<past; e->first += e->count> 0 ? e->count : 1) {
            find_run(e, past);
            for (int32_t k = 0; k < e->count && is_worth_it(e); k++) e->run_of[e->first + k] = e->first + 1;
        }
    }
}

int32_t tni_run_count(const tni_emitter *e, int32_t first) {
    int32_t count = 0;
    while (first + count < e->made->n_steps && e->run_of[first + count] == first + 1) count++;
    return count;
}
