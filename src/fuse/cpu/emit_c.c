/* Steps of a program as C. What the interpreter does one operation after the other over a block becomes one loop, whose
 * values stay in registers between memory and memory: a function for each run of steps that work element by element.
 * Everything else (rows, reductions, random numbers, integers) the interpreter goes on doing, block by block, and calls
 * the functions in the place of their steps. So the order of everything stays, and so do the bits: the functions are
 * made of the same vector functions (functions.h), and products are rounded before they are added to (`apart`). */
#include "compile_c.h"
#include "cpu/isa.h"

#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 64 }; /* of a loop: longer ones only move values to the stack and back */

/* What is known of a value of the pass. */
typedef struct value {
    uint8_t lane, level;
    int32_t segment;
    int32_t maker;       /* step; -1: none, it is where memory is */
    int32_t first, last; /* steps that use it */
    bool pointed;        /* lies in an argument's memory */
    bool seen, seen_row; /* in this loop: declared, as such and as a row's */
} value;

typedef struct emitter {
    const tni_program *program;
    const tni_pass *pass;
    tni_cpu_pass *made;
    value *values;
    uint8_t lane; /* f32 or f64: what the text is about */
    int32_t first, count;
    bool by_rows;
    bool free; /* so far: nothing of it is in the scratch memory, and rows lie behind each other */
    tni_text fields, begin, row, body, row_end, *text;
    uint8_t constant_seen[TNI_LANES * TNI_FUSE_NODES];
} emitter;

/* The vector function of a primitive; NULL: it has none. */
static const char *function_of(int op, bool coarse) {
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

static bool is_test(int op) {
    return tni_prims[op].typing == TNI_TYPED_TEST;
}

/* Long enough that two vectors keep the machine busy, or that four would not fit into registers. */
static bool is_heavy(int op) {
    return tni_prims[op].effort == TNI_HEAVY && function_of(op, false);
}

/* ---- which steps ------------------------------------------------------------------------------------------------- */

static int32_t segment_of(const tni_cpu_pass *made, int32_t step) {
    int32_t i = 0;
    while (step >= made->segments[i].first + made->segments[i].count) i++;
    return i;
}

static void learn_values(emitter *e) {
    const tni_cpu_pass *made = e->made;
    for (int32_t i = 0; i < made->n_values; i++) e->values[i] = (value){.maker = -1, .first = INT32_MAX, .last = -1};
    for (int32_t i = 0; i < made->n_steps; i++) {
        const tni_step *s = &made->steps[i];
        for (int k = 0; k < 3; k++) {
            if (s->arg[k] < 0) continue;
            value *v = &e->values[s->arg[k]];
            v->first = i < v->first ? i : v->first;
            v->last = i > v->last ? i : v->last;
        }
        if (s->out < 0) continue;
        e->values[s->out].lane = s->lane;
        e->values[s->out].level = s->level;
        e->values[s->out].segment = segment_of(made, i);
        if (s->kind == TNI_STEP_POINT) {
            e->values[s->out].pointed = true;
        } else {
            e->values[s->out].maker = i;
        }
    }
}

static bool is_neutral(const tni_step *s) {
    return s->kind == TNI_STEP_NONE || s->kind == TNI_STEP_POINT;
}

static int lane_of_argument(const emitter *e, const tni_step *s, int k) {
    return s->arg[k] >= 0 ? e->values[s->arg[k]].lane : -1;
}

static bool fits_loop(const emitter *e, const tni_step *s) {
    bool linked = tni_prims[s->op].calls_libm && !tni_real_loops_of(e->lane)->own_sin;
    if (linked) return false; /* no loop is linked with the C library */
    if (s->pair >= 0 || function_of(s->op, s->coarse)) return s->lane == e->lane;
    if (s->op == TNI_P_WHERE) return s->lane == e->lane;
    if (s->op == TNI_P_AND || s->op == TNI_P_OR || s->op == TNI_P_NOT) return true;
    if (s->op == TNI_P_CAST) {
        int from = lane_of_argument(e, s, 0);
        return (from == TNI_LANE_BOOL && s->lane == e->lane) || (from == e->lane && s->lane == TNI_LANE_BOOL);
    }
    if (!is_test(s->op)) return false;
    int lane = lane_of_argument(e, s, 0);
    return (lane < 0 ? lane_of_argument(e, s, 1) : lane) == e->lane;
}

static bool fits(const emitter *e, const tni_step *s) {
    const tni_memory *m = s->operand >= 0 && s->operand < e->pass->n_memory ? &e->pass->memory[s->operand] : NULL;
    if (is_neutral(s)) return true;
    if (s->level != TNI_ELEMENT) return false;
    switch (s->kind) {
    case TNI_STEP_LOOP: return fits_loop(e, s);
    case TNI_STEP_EXPAND: return s->lane == e->lane && (s->from_level == TNI_ONCE || e->pass->columns >= TNI_LONG_ROW);
    case TNI_STEP_LOAD:
        if (s->lane == TNI_LANE_BOOL) return m->type == TN_BOOL && tni_is_contiguous(e->pass, e->made, m);
        return s->lane == e->lane && TN_BIT(m->type) & TN_FLOATS && tni_is_contiguous(e->pass, e->made, m);
    case TNI_STEP_STORE:
        return s->lane == e->lane && TN_BIT(m->type) & TN_FLOATS && tni_is_contiguous(e->pass, e->made, m);
    case TNI_STEP_GATHER: return s->lane == e->lane && tni_sums_columns(e->pass, &e->pass->accumulators[s->operand]);
    default: return false;
    }
}

static bool is_inside(const emitter *e, int32_t step) {
    return step >= e->first && step < e->first + e->count;
}

static bool is_made_here(const emitter *e, int32_t v) {
    return v >= 0 && is_inside(e, e->values[v].maker);
}

/* Must it be in memory for what comes behind? */
static bool is_stored(const emitter *e, int32_t v) {
    return e->values[v].pointed || e->values[v].last >= e->first + e->count || e->values[v].first < e->first;
}

static int64_t bytes_of(const emitter *e, int32_t v) {
    return tni_block_count(e->pass, e->made, e->values[v].level) * tni_lane_size(e->values[v].lane);
}

/* In the scratch memory values take the place of others that nobody needs any more: of one that this loop still reads,
 * only element by element. */
static bool disturbs(const emitter *e, int32_t made, int32_t read) {
    const int64_t *at = e->made->offset;
    const value *a = &e->values[made], *b = &e->values[read];
    if (is_made_here(e, read) || a->pointed || b->pointed || at[made] < 0 || at[read] < 0) return false;
    if (at[made] >= at[read] + bytes_of(e, read) || at[read] >= at[made] + bytes_of(e, made)) return false;
    return at[made] != at[read] || b->level != TNI_ELEMENT || tni_lane_size(a->lane) != tni_lane_size(b->lane);
}

static bool is_bad(const emitter *e, int32_t step) {
    const tni_step *s = &e->made->steps[step];
    if (is_neutral(s) || s->out < 0 || !is_stored(e, s->out)) return false;
    if (e->values[s->out].lane != e->lane) return true; /* truth stays in registers */
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        for (int k = 0; k < 3; k++) {
            int32_t read = e->made->steps[i].arg[k];
            if (read >= 0 && disturbs(e, s->out, read)) return true;
        }
    }
    return false;
}

/* The steps from e->first on that can be one loop. */
static void find_run(emitter *e, int32_t past) {
    const tni_step *steps = e->made->steps;
    e->count = 0;
    while (e->first + e->count < past && e->count < MOST_STEPS && fits(e, &steps[e->first + e->count])) e->count++;
    for (bool whole = false; !whole;) {
        whole = true;
        for (int32_t i = 0; i < e->count && whole; i++) {
            if (!is_bad(e, e->first + i)) continue;
            e->count = i;
            whole = false;
        }
    }
    while (e->count > 0 && is_neutral(&steps[e->first + e->count - 1])) e->count--;
}

static int32_t count_work(const emitter *e, int32_t *heavy) {
    int32_t n = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        n += is_neutral(s) ? 0 : s->pair >= 0 ? 2 : 1;
        *heavy += s->kind == TNI_STEP_LOOP && s->pair < 0 && is_heavy(s->op);
    }
    return n;
}

/* ---- a loop ------------------------------------------------------------------------------------------------------ */

static const char *type_name(tn_type type) {
    return type == TN_F16 ? "TN_F16" : type == TN_BF16 ? "TN_BF16" : type == TN_F32 ? "TN_F32" : "TN_F64";
}

static tn_type native(const emitter *e) {
    return e->lane == TNI_LANE_F64 ? TN_F64 : TN_F32;
}

/* The same in every row: made once, or lying so in memory. */
static bool is_fixed(const emitter *e, int32_t v) {
    return e->values[v].segment == 0 && e->pass->n_dims > 0 && e->pass->columns <= e->made->block;
}

/* The memory of `field` is gone through from one end to the other. */
static void print_fetch(emitter *e, tn_type type, char field, int32_t number) {
    tni_text_add(&e->body, "    fetch(%s, in->%c%d, i, u);\n", type_name(type), field, (int)number);
}

/* A value from outside: p<v> where it is, t<v> what was loaded of it; s<v> a single one; r<v> a row's. */
static void take_outside(emitter *e, int32_t v, bool single) {
    value *about = &e->values[v];
    bool truth = about->lane == TNI_LANE_BOOL;
    if (about->seen) return;
    about->seen = true;
    if (single) {
        tni_text_add(&e->fields, " %s s%d;", truth ? "vint" : "vreal", (int)v);
        tni_text_add(&e->begin, ", .s%d = single%s(at[%d]%s)", (int)v, truth ? "_mask" : "", (int)v,
                     truth ? "" : ", 0");
        return;
    }
    bool by_column = is_fixed(e, v) && e->pass->columns >= TNI_LONG_ROW;
    e->by_rows |= by_column;
    e->free &= by_column || about->pointed;
    tni_text_add(&e->fields, " const void *p%d;", (int)v);
    tni_text_add(&e->begin, ", .p%d = at[%d]", (int)v, (int)v);
    const char *from = by_column ? "c" : "i";
    if (truth) {
        tni_text_add(&e->body, "    vint t%d[4];\n    EACH t%d[k] = mask(in->p%d, %s + k * VL, left);\n", (int)v,
                     (int)v, (int)v, from);
    } else {
        if (about->pointed && !by_column) print_fetch(e, native(e), 'p', v);
        tni_text_add(&e->body, "    vreal t%d[4];\n    load_all(%s, in->p%d, %s, left, u, t%d);\n", (int)v,
                     type_name(native(e)), (int)v, from, (int)v);
    }
}

static void take_constant(emitter *e, int32_t constant, bool truth) {
    if (e->constant_seen[constant]) return;
    e->constant_seen[constant] = 1;
    tni_text_add(&e->fields, " %s c%d;", truth ? "vint" : "vreal", (int)constant);
    tni_text_add(&e->begin, ", .c%d = single%s(&constants[%d]%s)", (int)constant, truth ? "_mask" : "", (int)constant,
                 truth ? "" : ", 0");
}

static bool is_single(const emitter *e, const tni_step *s, int k) {
    return s->scalars >> k & 1 || e->values[s->arg[k]].level != TNI_ELEMENT;
}

/* Argument k, which is truth or a number, into `name`. */
static void name_argument(emitter *e, const tni_step *s, int k, bool truth, char name[32]) {
    int32_t v = s->arg[k];
    if (v < 0) {
        take_constant(e, -2 - v, truth);
        snprintf(name, 32, "in->c%d", (int)(-2 - v));
        return;
    }
    bool single = !is_made_here(e, v) && is_single(e, s, k);
    if (!is_made_here(e, v)) take_outside(e, v, single);
    snprintf(name, 32, single ? "in->s%d" : "t%d[k]", (int)v);
}

static void print_pair(emitter *e, const tni_step *s, char arg[3][32]) {
    static const char *const signs[] = {" + ", " - ", " * "};
    int first = s->pair / TNI_PAIRS, second = s->pair % TNI_PAIRS;
    tni_text *t = &e->body;
    tni_text_add(t, s->relu ? "f_relu(" : second == TNI_PAIR_MUL ? "apart(" : "(");
    if (second == TNI_PAIR_REVERSED) {
        tni_text_add(t, "%s - apart(%s%s%s));\n", arg[2], arg[0], signs[first], arg[1]);
    } else {
        tni_text_add(t, "apart(%s%s%s)%s%s);\n", arg[0], signs[first], arg[1], signs[second], arg[2]);
    }
}

static void print_loop_step(emitter *e, const tni_step *s) {
    char arg[3][32] = {{0}};
    bool truth = s->lane == TNI_LANE_BOOL;
    for (int k = 0; k < s->n_args; k++) {
        bool logic = s->op == TNI_P_AND || s->op == TNI_P_OR || s->op == TNI_P_NOT;
        bool chooses = (s->op == TNI_P_WHERE && k == 0) || (s->op == TNI_P_CAST && !truth);
        name_argument(e, s, k, logic || chooses, arg[k]);
    }
    tni_text *t = &e->body;
    tni_text_add(t, "    %s t%d[4];\n    EACH t%d[k] = ", truth ? "vint" : "vreal", (int)s->out, (int)s->out);
    if (s->pair >= 0) {
        print_pair(e, s, arg);
    } else if (s->op == TNI_P_WHERE) {
        tni_text_add(t, "v_select(%s, %s, %s);\n", arg[0], arg[1], arg[2]);
    } else if (s->op == TNI_P_NOT) {
        tni_text_add(t, "~%s;\n", arg[0]);
    } else if (s->op == TNI_P_AND || s->op == TNI_P_OR) {
        tni_text_add(t, "%s %s %s;\n", arg[0], s->op == TNI_P_AND ? "&" : "|", arg[1]);
    } else if (s->op == TNI_P_CAST) {
        tni_text_add(t, truth ? "(vint)(%s != 0);\n" : "number(%s);\n", arg[0]);
    } else if (is_test(s->op)) {
        tni_text_add(t, "(vint)(%s%s%s);\n", arg[0], tni_prims[s->op].name, arg[1]);
    } else {
        bool rounds = s->op == TNI_P_MUL || is_heavy(s->op);
        tni_text_add(t, "%s%s(%s%s%s)%s;\n", rounds ? "apart(" : "", function_of(s->op, s->coarse), arg[0],
                     s->n_args == 2 ? ", " : "", arg[1], rounds ? ")" : "");
    }
}

/* A row's value, or a single one, for all its elements. */
static void print_expand(emitter *e, const tni_step *s) {
    char arg[32];
    int32_t v = s->arg[0];
    if (v >= 0 && s->from_level == TNI_ROW) {
        e->by_rows = true;
        e->free = false; /* there are as many of them as a block has rows */
        snprintf(arg, sizeof arg, "in->r%d", (int)v);
        if (!e->values[v].seen_row) {
            tni_text_add(&e->fields, " vreal r%d;", (int)v);
            tni_text_add(&e->row, "        in.r%d = single(at[%d], r);\n", (int)v, (int)v);
        }
        e->values[v].seen_row = true;
    } else {
        name_argument(e, s, 0, false, arg);
    }
    tni_text_add(&e->body, "    vreal t%d[4];\n    EACH t%d[k] = %s;\n", (int)s->out, (int)s->out, arg);
}

static void name_memory(emitter *e, int32_t j) {
    tni_text_add(&e->fields, " char *q%d;", (int)j);
    tni_text_add(&e->begin, ", .q%d = memory[%d]", (int)j, (int)j);
}

/* q<j>: the sums; where values are pending first, these, and the sums behind them. Returns how many that is. */
static int32_t print_gather(emitter *e, const tni_step *s, int32_t j) {
    bool pending = e->made->pending[s->operand] >= 0;
    char arg[32];
    name_argument(e, s, 0, false, arg);
    e->by_rows = true;
    tni_text_add(&e->body, "    EACH %s(in->q%d, c + k * VL, left, %s);\n", pending ? "add_up" : "add_to", (int)j, arg);
    if (!pending) return 1;
    name_memory(e, j + 1);
    tni_text_add(&e->row_end, "        if (settled) settle(in.q%d, in.q%d, columns);\n", (int)j + 1, (int)j);
    return 2;
}

/* q<j>: the memory of the j-th load, store or sum of the loop. Returns how many it has. */
static int32_t print_memory_step(emitter *e, const tni_step *s, int32_t j) {
    name_memory(e, j);
    if (s->kind == TNI_STEP_GATHER) return print_gather(e, s, j);
    tn_type type = e->pass->memory[s->operand].type;
    if (type != TN_BOOL) print_fetch(e, type, 'q', j);
    if (s->kind == TNI_STEP_STORE) {
        char arg[32];
        name_argument(e, s, 0, false, arg);
        if (arg[0] == 't') { /* vectors, not a single value */
            tni_text_add(&e->body, "    store_all(%s, in->q%d, i, left, u, t%d);\n", type_name(type), (int)j,
                         (int)s->arg[0]);
        } else {
            tni_text_add(&e->body, "    EACH store(%s, in->q%d, i + k * VL, left, %s);\n", type_name(type), (int)j,
                         arg);
        }
    } else if (s->lane == TNI_LANE_BOOL) {
        tni_text_add(&e->body, "    vint t%d[4];\n    EACH t%d[k] = mask(in->q%d, i + k * VL, left);\n", (int)s->out,
                     (int)s->out, (int)j);
    } else {
        tni_text_add(&e->body, "    vreal t%d[4];\n    load_all(%s, in->q%d, i, left, u, t%d);\n", (int)s->out,
                     type_name(type), (int)j, (int)s->out);
    }
    return 1;
}

static void print_kept(emitter *e, int32_t v) {
    e->free &= e->values[v].pointed;
    tni_text_add(&e->fields, " void *w%d;", (int)v);
    tni_text_add(&e->begin, ", .w%d = at[%d]", (int)v, (int)v);
    tni_text_add(&e->body, "    store_all(%s, in->w%d, i, left, u, t%d);\n", type_name(native(e)), (int)v, (int)v);
    if (e->values[v].pointed) print_fetch(e, native(e), 'w', v);
}

static void print_steps(emitter *e) {
    int32_t j = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        if (is_neutral(s)) continue;
        if (s->kind == TNI_STEP_LOOP) {
            print_loop_step(e, s);
        } else if (s->kind == TNI_STEP_EXPAND) {
            print_expand(e, s);
        } else {
            j += print_memory_step(e, s, j);
        }
        if (s->out >= 0 && is_stored(e, s->out)) print_kept(e, s->out);
    }
}

/* u vectors at a time while there are so many, then one, then what is left. */
static void print_function(emitter *e, int32_t number, int32_t u) {
    int n = (int)number;
    tni_text *t = e->text;
    tni_text_add(t, "\nstruct in_%d {%s int none; };\n", n, e->fields.data ? e->fields.data : "");
    tni_text_add(
        t, "TNI_INLINE void body_%d(const struct in_%d *in, const int u, int64_t i, int64_t c, int64_t left) {\n%s}\n",
        n, n, e->body.data ? e->body.data : "");
    tni_text_add(t,
                 "void tn_loop_%d(void *const *at, char *const *memory, const uint64_t *constants, int64_t rows, "
                 "int64_t columns, int64_t row, int64_t inner) {\n    struct in_%d in = {.none = 0%s};\n",
                 n, n, e->begin.data ? e->begin.data : "");
    const char *margin = e->by_rows ? "        " : "    ", *begin = e->by_rows ? "r * columns" : "0";
    if (e->by_rows) tni_text_add(t, "    for (int64_t r = 0; r < rows; r++) {\n%s", e->row.data ? e->row.data : "");
    tni_text_add(t, "%sint64_t i = %s, c = 0, n = %s;\n", margin, begin, e->by_rows ? "columns" : "rows * columns");
    tni_text_add(t, "%sfor (; c + %d * VL <= n; i += %d * VL, c += %d * VL) body_%d(&in, %d, i, c, VL);\n", margin,
                 (int)u, (int)u, (int)u, n, (int)u);
    tni_text_add(t, "%sfor (; c < n; i += VL, c += VL) body_%d(&in, 1, i, c, n - c < VL ? n - c : VL);\n", margin, n);
    if (e->row_end.data) { /* as tni_is_settled says */
        tni_text_add(t, "        bool settled = (row + r) %% %d == %d || row + r == inner - 1;\n%s", (int)TNI_GROUP,
                     (int)TNI_GROUP - 1, e->row_end.data);
    }
    tni_text_add(t, e->by_rows ? "    }\n}\n" : "}\n");
}

/* Is it all of its segment, and can it go beyond a block? */
static bool is_free(const emitter *e) {
    const tni_pass *pass = e->pass;
    const tni_segment *segment = &e->made->segments[segment_of(e->made, e->first)];
    if (!e->free || segment->kind == TNI_SEGMENT_ONCE) return false;
    for (int32_t i = segment->first; i < segment->first + segment->count; i++) {
        const tni_step *s = &e->made->steps[i];
        if (!is_inside(e, i) && !is_neutral(s)) return false;
        bool touches = s->kind == TNI_STEP_LOAD || s->kind == TNI_STEP_STORE || s->kind == TNI_STEP_POINT;
        if (!touches || segment->kind == TNI_SEGMENT_COLUMNS) continue;
        const int64_t *strides = pass->memory[s->operand].strides;
        if (pass->n_dims == 0 || strides[pass->n_dims] != 1 || strides[pass->n_dims - 1] != pass->columns) return false;
    }
    return true;
}

static void emit_loop(emitter *e, int32_t number, int32_t work, int32_t heavy) {
    tni_text *const parts[] = {&e->fields, &e->begin, &e->row, &e->body, &e->row_end};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    for (int i = 0; i < PARTS; i++) *parts[i] = (tni_text){0};
    for (int32_t i = 0; i < e->made->n_values; i++) e->values[i].seen = e->values[i].seen_row = false;
    memset(e->constant_seen, 0, sizeof e->constant_seen);
    e->by_rows = false;
    e->free = true;
    print_steps(e);
    bool shorter = strcmp(tni_loops_isa(), "neon") == 0; /* of such vectors more are under way at a time */
    print_function(e, number, heavy > shorter || work > 12 ? 2 : 4);
    for (int i = 0; i < PARTS; i++) {
        e->text->failed |= parts[i]->failed;
        tni_free(parts[i]->data);
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static bool emit_pass(emitter *e, const tni_pass *pass, tni_cpu_pass *made, int32_t *n_loops) {
    e->pass = pass;
    e->made = made;
    e->values = tni_malloc(((size_t)made->n_values + 1) * sizeof *e->values);
    made->loops = tni_arena_alloc(e->program->arena, (size_t)made->n_steps * sizeof *made->loops);
    bool room = e->values && made->loops;
    if (room) learn_values(e);
    for (int32_t i = 0; room && i < made->n_segments; i++) {
        const tni_segment *segment = &made->segments[i];
        int32_t past = segment->first + segment->count;
        for (e->first = segment->first; e->first<past; e->first += e->count> 0 ? e->count : 1) {
            int32_t heavy = 0;
            find_run(e, past);
            int32_t work = count_work(e, &heavy);
            if (work == 0 || (work == 1 && heavy)) continue; /* the interpreter's own loop is as good */
            emit_loop(e, ++*n_loops, work, heavy);
            made->loops[e->first] = (tni_loop_place){*n_loops, e->count, is_free(e)};
        }
    }
    tni_free(e->values);
    if (!room) made->loops = NULL;
    return room;
}

static bool has_lane(const tni_program *program, int lane) {
    for (int32_t i = 0; i < program->n_passes; i++) {
        const tni_cpu_pass *made = &tni_on_cpu(program)->passes[i];
        for (int32_t k = 0; k < made->n_steps; k++) {
            bool here = made->steps[k].level == TNI_ELEMENT && made->steps[k].kind == TNI_STEP_LOOP;
            if (here && made->steps[k].lane == lane) return true;
        }
    }
    return false;
}

int32_t tni_emit_c(tni_program *program, tni_text *text) {
    emitter *e = tni_calloc(1, sizeof *e);
    int32_t n_loops = 0;
    if (!e) {
        text->failed = true;
        return 0;
    }
    e->program = program;
    e->text = text;
    e->lane = has_lane(program, TNI_LANE_F32) ? TNI_LANE_F32 : TNI_LANE_F64;
    tni_text_add(text, "#define TNI_ISA_%s\n#define TNI_REAL_%s\n%s#include \"loop.h\"\n", tni_loops_isa(),
                 e->lane == TNI_LANE_F64 ? "f64" : "f32", tni_cpu_bf16() ? "#define TNI_BF16\n" : "");
    for (int32_t i = 0; i < program->n_passes; i++) {
        text->failed |= !emit_pass(e, &program->passes[i], &tni_on_cpu(program)->passes[i], &n_loops);
    }
    tni_free(e);
    return n_loops;
}
