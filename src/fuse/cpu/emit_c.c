/* Steps of a program as C. What the interpreter does one operation after the other over a block becomes one loop, whose
 * values stay in registers between memory and memory: a function for each run of steps that work element by element
 * (loop_runs.c), and for the sums and extremes of rows that are made of their results. Everything else (values of rows,
 * random numbers, integers) the interpreter goes on doing, block by block, and calls the functions in the place of
 * their steps. So the order of everything stays, and so do the bits: the functions are made of the same vector
 * functions (functions.h), products are rounded before they are added to (`apart`), and sums go as in loops_cpu.c. */
#include "emit_c.h"
#include "cpu/isa.h"

#include <stdio.h>
#include <string.h>

/* ---- a loop ------------------------------------------------------------------------------------------------------ */

static const char *text_of(const tni_text *t) {
    return t->data ? t->data : "";
}

static const char *type_name(tn_type type) {
    return type == TN_F16 ? "TN_F16" : type == TN_BF16 ? "TN_BF16" : type == TN_F32 ? "TN_F32" : "TN_F64";
}

static tn_type native(const tni_emitter *e) {
    return e->lane == TNI_LANE_F64 ? TN_F64 : TN_F32;
}

/* The memory of `field` is gone through from one end to the other. */
static void print_fetch(tni_emitter *e, tn_type type, char field, int32_t number) {
    tni_text_add(&e->body, "    fetch(%s, in->%c%d, i, u);\n", type_name(type), field, (int)number);
}

static void print_again(tni_emitter *e, const tni_step *s);

/* A value from outside: p<v> where it is, t<v> what was loaded of it, or made again; s<v> a single one; r<v> a row's.
 */
static void take_outside(tni_emitter *e, int32_t v, bool single) {
    tni_loop_value *about = &e->values[v];
    bool truth = about->lane == TNI_LANE_BOOL;
    if (about->seen) return;
    about->seen = true;
    if (single) {
        tni_text_add(&e->fields, " %s s%d;", truth ? "vint" : "vreal", (int)v);
        tni_text_add(&e->begin, ", .s%d = single%s(at[%d]%s)", (int)v, truth ? "_mask" : "", (int)v,
                     truth ? "" : ", 0");
        return;
    }
    if (tni_is_remade(e, v)) {
        print_again(e, &e->made->steps[about->maker]);
        return;
    }
    bool by_column = tni_is_fixed(e, v) && e->pass->columns >= TNI_LONG_ROW;
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

static void take_constant(tni_emitter *e, int32_t constant, bool truth) {
    if (e->constant_seen[constant]) return;
    e->constant_seen[constant] = 1;
    tni_text_add(&e->fields, " %s c%d;", truth ? "vint" : "vreal", (int)constant);
    tni_text_add(&e->begin, ", .c%d = single%s(&constants[%d]%s)", (int)constant, truth ? "_mask" : "", (int)constant,
                 truth ? "" : ", 0");
}

static bool is_single(const tni_emitter *e, const tni_step *s, int k) {
    return s->scalars >> k & 1 || e->values[s->arg[k]].level != TNI_ELEMENT;
}

/* Argument k, which is truth or a number, into `name`. */
static void name_argument(tni_emitter *e, const tni_step *s, int k, bool truth, char name[32]) {
    int32_t v = s->arg[k];
    if (v < 0) {
        take_constant(e, -2 - v, truth);
        snprintf(name, 32, "in->c%d", (int)(-2 - v));
        return;
    }
    bool single = !tni_is_made_here(e, v) && is_single(e, s, k);
    if (!tni_is_made_here(e, v)) take_outside(e, v, single);
    snprintf(name, 32, single ? "in->s%d" : "t%d[k]", (int)v);
}

static void print_pair(tni_emitter *e, const tni_step *s, char arg[3][32]) {
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

static void print_loop_step(tni_emitter *e, const tni_step *s) {
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
    } else if (tni_is_test(s->op)) {
        tni_text_add(t, "(vint)(%s%s%s);\n", arg[0], tni_prims[s->op].name, arg[1]);
    } else {
        bool rounds = s->op == TNI_P_MUL || tni_is_heavy(s->op);
        tni_text_add(t, "%s%s(%s%s%s)%s;\n", rounds ? "apart(" : "", tni_vector_function(s->op, s->coarse), arg[0],
                     s->n_args == 2 ? ", " : "", arg[1], rounds ? ")" : "");
    }
}

/* A row's value, or a single one, for all its elements. */
static void print_expand(tni_emitter *e, const tni_step *s) {
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

static void name_memory(tni_emitter *e, int32_t j) {
    tni_text_add(&e->fields, " char *q%d;", (int)j);
    tni_text_add(&e->begin, ", .q%d = memory[%d]", (int)j, (int)j);
}

/* Rows that do not lie behind each other: behind the memory comes how many bytes lie between two of them. Returns how
 * many there are. */
static int32_t print_padding(tni_emitter *e, const tni_memory *m, int32_t j) {
    if (tni_is_contiguous(e->pass, e->made, m)) return 1;
    e->by_rows = true;
    tni_text_add(&e->row, "        in.q%d = memory[%d] + r * (intptr_t)memory[%d];\n", (int)j, (int)j, (int)j + 1);
    return 2;
}

/* Sums and extremes of columns. q<j>: where they are; where values are pending first, these, and the sums behind them.
 * Returns how many that is. */
static int32_t print_columns(tni_emitter *e, const tni_step *s, int32_t j) {
    bool pending = e->made->pending[s->operand] >= 0;
    char arg[32];
    name_argument(e, s, 0, false, arg);
    e->by_rows = true;
    const char *joins = s->op == TNI_P_RMAX ? "most_up" : s->op == TNI_P_RMIN ? "least_up" : "add_up";
    tni_text_add(&e->body, "    EACH %s(in->q%d, c + k * VL, left, %s);\n", pending ? joins : "add_to", (int)j, arg);
    if (!pending) return 1;
    if (s->op != TNI_P_SUM) return 2; /* these settle when all is done */
    name_memory(e, j + 1);
    e->settles = true;
    tni_text_add(&e->row_end, "        if (settled) settle(in.q%d, in.q%d, columns);\n", (int)j + 1, (int)j);
    return 2;
}

/* The sum or extreme of each row, in the order of loops_cpu.c: a<j> four vectors, y<j> what they come to at the end of
 * the row. */
static void print_row_result(tni_emitter *e, const tni_step *s, int32_t j) {
    char arg[2][32] = {{0}};
    const int sign = s->op == TNI_P_RMIN ? -1 : 1, n = (int)j;
    for (int k = 0; k < s->n_args; k++) name_argument(e, s, k, false, arg[k]);
    e->by_rows = true;
    tni_text_add(&e->row_sums, " vreal a%d[4];", n);
    if (s->op != TNI_P_SUM) {
        tni_text_add(&e->row, "        EACH_OF_4 a.a%d[k] = v_set(-(real)INFINITY);\n", n);
        tni_text_add(&e->body, "    EACH most_in(a->a%d, u == 1 ? 0 : to + k, left, %s * %d);\n", n, arg[0], sign);
        tni_text_add(&e->row_end, "        double y%d = (double)(most_of_4(a.a%d) * %d);\n", n, n, sign);
        return;
    }
    tni_text_add(&e->row, "        double y%d = 0;\n", n);
    tni_text_add(&e->chunk, "            EACH_OF_4 a.a%d[k] = v_set(0);\n", n);
    tni_text_add(&e->chunk_end, "            y%d += (double)sum_of_4(a.a%d);\n", n, n);
    if (s->n_args == 2) {
        tni_text_add(&e->body, "    EACH add_in(a->a%d, to + k, left, v_fma(%s, %s, a->a%d[to + k]));\n", n, arg[0],
                     arg[1], n);
    } else {
        tni_text_add(&e->body, "    EACH add_in(a->a%d, to + k, left, a->a%d[to + k] + %s);\n", n, n, arg[0]);
    }
}

/* How a result joins one that is there: both() of interpret.c. */
static const char *join_name(int op) {
    return op == TNI_P_RMAX ? "join_max" : op == TNI_P_RMIN ? "join_min" : "join_sum";
}

/* A row's own result; of a row that comes in blocks, what is gathered so far. */
static void print_reduce(tni_emitter *e, const tni_step *s, int32_t j) {
    const int to = (int)s->out, n = (int)j;
    e->free = false;
    print_row_result(e, s, j);
    if (e->pass->columns > e->made->block) {
        tni_text_add(&e->row_end, "        *(double *)at[%d] = first ? y%d : %s(*(double *)at[%d], y%d);\n", to, n,
                     join_name(s->op), to, n);
    } else {
        tni_text_add(&e->row_end, "        ((real *)at[%d])[r] = (real)y%d;\n", to, n);
    }
}

/* A row's part of a result that rows share. Returns how many pieces of memory it has. */
static int32_t print_gather(tni_emitter *e, const tni_step *s, int32_t j) {
    const tni_accumulator *acc = &e->pass->accumulators[s->operand];
    if (tni_gathers_columns(e->pass, acc)) return print_columns(e, s, j);
    const bool own = e->pass->n_dims > 0 && acc->strides[e->pass->n_dims - 1] != 0;
    e->free &= e->pass->columns <= e->made->block; /* the order of sums goes by blocks */
    print_row_result(e, s, j);
    tni_text_add(&e->row_end, "        join(%s, (double *)in.q%d + %s, y%d);\n", join_name(s->op), (int)j,
                 own ? "r" : "0", (int)j);
    return 1;
}

/* q<j>: the memory of the j-th load, store or sum of the loop. Returns how many it has. */
static int32_t print_memory_step(tni_emitter *e, const tni_step *s, int32_t j) {
    name_memory(e, j);
    if (s->kind == TNI_STEP_GATHER) return print_gather(e, s, j);
    const tni_memory *m = &e->pass->memory[s->operand];
    const tn_type type = m->type;
    const int32_t count = print_padding(e, m, j);
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
    return count;
}

/* A step of another loop, for its value. */
static void print_again(tni_emitter *e, const tni_step *s) {
    if (s->kind == TNI_STEP_LOOP) {
        print_loop_step(e, s);
    } else if (s->kind == TNI_STEP_EXPAND) {
        print_expand(e, s);
    } else if (e->n_operands + 2 <= TNI_MOST_OPERANDS) {
        e->more[e->n_more++] = s->operand;
        e->n_operands += print_memory_step(e, s, e->n_operands);
    } else {
        e->text->failed = true; /* so many are not in a loop of at most MOST_STEPS */
    }
}

static void print_kept(tni_emitter *e, int32_t v) {
    e->free &= e->values[v].pointed;
    tni_text_add(&e->fields, " void *w%d;", (int)v);
    tni_text_add(&e->begin, ", .w%d = at[%d]", (int)v, (int)v);
    tni_text_add(&e->body, "    store_all(%s, in->w%d, i, left, u, t%d);\n", type_name(native(e)), (int)v, (int)v);
    if (e->values[v].pointed) print_fetch(e, native(e), 'w', v);
}

static void print_steps(tni_emitter *e) {
    int32_t j = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        if (tni_is_neutral(s)) continue;
        if (s->kind == TNI_STEP_LOOP) {
            print_loop_step(e, s);
        } else if (s->kind == TNI_STEP_EXPAND) {
            print_expand(e, s);
        } else if (s->kind == TNI_STEP_REDUCE) {
            print_reduce(e, s, TNI_MOST_OPERANDS + i);
        } else {
            j += print_memory_step(e, s, j);
        }
        if (s->kind != TNI_STEP_REDUCE && s->out >= 0 && tni_is_stored(e, s->out)) print_kept(e, s->out);
    }
}

/* u vectors at a time while there are so many, then one, then what is left. */
static void print_plain_loop(const tni_emitter *e, int n, int u) {
    const char *margin = e->by_rows ? "        " : "    ";
    tni_text *t = e->text;
    tni_text_add(t, "%sfor (; c + %d * VL <= n; i += %d * VL, c += %d * VL) body_%d(&in, %d, i, c, VL);\n", margin, u,
                 u, u, n, u);
    tni_text_add(t, "%sfor (; c < n; i += VL, c += VL) body_%d(&in, 1, i, c, n - c < VL ? n - c : VL);\n", margin, n);
}

/* The same for rows with sums: a chunk at a time, by four sums each, of which the first has the vectors that are left
 * over and the second the last elements. */
static void print_sum_loop(const tni_emitter *e, int n, int u) {
    tni_text *t = e->text;
    tni_text_add(t, "        for (int64_t end; c < n;) {\n            end = n - c < SUM_BLOCK ? n : c + SUM_BLOCK;\n%s",
                 text_of(&e->chunk));
    tni_text_add(t, "            for (; c + 4 * VL <= end; i += 4 * VL, c += 4 * VL) {\n");
    for (int k = 0; k < 4; k += u) {
        tni_text_add(t, "                body_%d(&in, &a, %d, %d, i + %d * VL, c + %d * VL, VL);\n", n, k, u, k, k);
    }
    tni_text_add(
        t, "            }\n            for (; c + VL <= end; i += VL, c += VL) body_%d(&in, &a, 0, 1, i, c, VL);\n", n);
    tni_text_add(t, "            if (c < end) body_%d(&in, &a, 1, 1, i, c, end - c);\n            i += end - c;\n", n);
    tni_text_add(t, "            c = end;\n%s        }\n", text_of(&e->chunk_end));
}

static void print_function(tni_emitter *e, int32_t number, int32_t u) {
    const int n = (int)number;
    const bool sums = e->row_sums.data;
    tni_text *t = e->text;
    tni_text_add(t, "\nstruct in_%d {%s int none; };\n", n, text_of(&e->fields));
    if (sums) tni_text_add(t, "struct sums_%d {%s };\n", n, text_of(&e->row_sums));
    tni_text_add(t, "TNI_INLINE void body_%d(const struct in_%d *in, ", n, n);
    if (sums) tni_text_add(t, "struct sums_%d *a, const int to, ", n);
    tni_text_add(t, "const int u, int64_t i, int64_t c, int64_t left) {\n%s}\n", text_of(&e->body));
    tni_text_add(t,
                 "void tn_loop_%d(void *const *at, char *const *memory, const uint64_t *constants, int64_t rows, "
                 "int64_t columns, int64_t row, int64_t inner, bool first) {\n    struct in_%d in = {.none = 0%s};\n",
                 n, n, text_of(&e->begin));
    if (sums) tni_text_add(t, "    struct sums_%d a;\n", n);
    if (e->by_rows) tni_text_add(t, "    for (int64_t r = 0; r < rows; r++) {\n%s", text_of(&e->row));
    tni_text_add(t, "%sint64_t i = %s, c = 0, n = %s;\n", e->by_rows ? "        " : "    ",
                 e->by_rows ? "r * columns" : "0", e->by_rows ? "columns" : "rows * columns");
    (sums ? print_sum_loop : print_plain_loop)(e, n, (int)u);
    if (e->settles) { /* as tni_is_settled says */
        tni_text_add(t, "        bool settled = (row + r) %% %d == %d || row + r == inner - 1;\n", (int)TNI_GROUP,
                     (int)TNI_GROUP - 1);
    }
    tni_text_add(t, "%s%s", text_of(&e->row_end), e->by_rows ? "    }\n}\n" : "}\n");
}

/* Is it all of its segment, and can it go beyond a block? */
static bool is_free(const tni_emitter *e) {
    const tni_pass *pass = e->pass;
    const tni_segment *segment = &e->made->segments[tni_segment_of(e->made, e->first)];
    if (!e->free || segment->kind == TNI_SEGMENT_ONCE) return false;
    for (int32_t i = segment->first; i < segment->first + segment->count; i++) {
        const tni_step *s = &e->made->steps[i];
        if (!tni_is_inside(e, i) && !tni_is_neutral(s)) return false;
        bool touches = s->kind == TNI_STEP_LOAD || s->kind == TNI_STEP_STORE || s->kind == TNI_STEP_POINT;
        if (!touches || segment->kind == TNI_SEGMENT_COLUMNS) continue;
        const int64_t *strides = pass->memory[s->operand].strides;
        if (pass->n_dims == 0 || strides[pass->n_dims] != 1 || strides[pass->n_dims - 1] != pass->columns) return false;
    }
    return true;
}

/* How many pieces of memory the interpreter hands to this loop for its own steps. */
static int32_t count_operands(const tni_emitter *e) {
    int32_t n = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        const bool moves = s->kind == TNI_STEP_LOAD || s->kind == TNI_STEP_STORE;
        n += moves || s->kind == TNI_STEP_GATHER;
        n += moves && !tni_is_contiguous(e->pass, e->made, &e->pass->memory[s->operand]);
        n += s->kind == TNI_STEP_GATHER && e->made->pending[s->operand] >= 0;
    }
    return n;
}

/* How many vectors are under way at a time. */
static int32_t vectors_of(const tni_emitter *e) {
    int32_t work = 0, heavy = 0;
    for (int32_t i = e->first; i < e->first + e->count; i++) {
        const tni_step *s = &e->made->steps[i];
        work += tni_is_neutral(s) ? 0 : s->pair >= 0 ? 2 : 1;
        heavy += s->kind == TNI_STEP_LOOP && s->pair < 0 && tni_is_heavy(s->op);
    }
    bool shorter = strcmp(tni_loops_isa(), "neon") == 0; /* of such vectors more are under way at a time */
    return heavy > shorter || work > 12 ? 2 : 4;
}

/* The loop of e->count steps from e->first on. */
static bool emit_loop(tni_emitter *e, int32_t number) {
    tni_text *const parts[] = {&e->fields, &e->begin, &e->row,       &e->row_sums,
                               &e->body,   &e->chunk, &e->chunk_end, &e->row_end};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    for (int i = 0; i < PARTS; i++) *parts[i] = (tni_text){0};
    for (int32_t i = 0; i < e->made->n_values; i++) e->values[i].seen = e->values[i].seen_row = false;
    memset(e->constant_seen, 0, sizeof e->constant_seen);
    e->by_rows = e->settles = false;
    e->free = true;
    e->n_operands = count_operands(e);
    e->n_more = 0;
    e->more = tni_arena_alloc(e->program->arena, TNI_MOST_OPERANDS * sizeof *e->more);
    if (!e->more) return false;
    print_steps(e);
    print_function(e, number, vectors_of(e));
    for (int i = 0; i < PARTS; i++) {
        e->text->failed |= parts[i]->failed;
        tni_free(parts[i]->data);
    }
    e->made->loops[e->first] = (tni_loop_place){number, e->count, is_free(e), e->n_more, e->more};
    return true;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static bool emit_pass(tni_emitter *e, const tni_pass *pass, tni_cpu_pass *made, int32_t *n_loops) {
    e->pass = pass;
    e->made = made;
    e->values = tni_malloc(((size_t)made->n_values + 1) * sizeof *e->values);
    e->run_of = tni_malloc(((size_t)made->n_steps + 1) * sizeof *e->run_of);
    made->loops = tni_arena_alloc(e->program->arena, (size_t)made->n_steps * sizeof *made->loops);
    bool room = e->values && e->run_of && made->loops;
    if (room) tni_find_runs(e);
    for (e->first = 0; room && e->first<made->n_steps; e->first += e->count> 0 ? e->count : 1) {
        e->count = tni_run_count(e, e->first);
        if (e->count > 0) room = emit_loop(e, ++*n_loops);
    }
    tni_free(e->run_of);
    tni_free(e->values);
    if (!room) made->loops = NULL;
    return room;
}

/* Is anything computed in it for each element? */
static bool has_lane(const tni_program *program, int lane) {
    for (int32_t i = 0; i < program->n_passes; i++) {
        const tni_cpu_pass *made = &tni_on_cpu(program)->passes[i];
        for (int32_t k = 0; k < made->n_steps; k++) {
            const tni_step *s = &made->steps[k];
            const bool works = s->kind == TNI_STEP_LOOP || s->kind == TNI_STEP_GATHER;
            const bool here = s->kind == TNI_STEP_REDUCE || (works && s->level == TNI_ELEMENT);
            if (here && s->lane == lane) return true;
        }
    }
    return false;
}

int32_t tni_emit_c(tni_program *program, tni_text *text) {
    tni_emitter *e = tni_calloc(1, sizeof *e);
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
