/* The steps of a pass, in the order in which they run over a block. */
#include <string.h>

#include "steps.h"

/* ---- lists that grow --------------------------------------------------------------------------------------------- */

static void *grown(tni_cpu_planner *c, void *list, int32_t count, int32_t *capacity, size_t size) {
    if (count < *capacity) return list;
    int32_t wanted = *capacity ? 2 * *capacity : 64;
    void *made = tni_realloc(list, (size_t)wanted * size);
    if (!made) {
        c->failed = true;
        return list;
    }
    *capacity = wanted;
    return made;
}

static void add_step(tni_cpu_planner *c, tni_step step) {
    c->steps = grown(c, c->steps, c->made->n_steps, &c->step_capacity, sizeof *c->steps);
    if (c->failed) return;
    while (step.n_args < 3 && step.arg[step.n_args] != -1) step.n_args++;
    step.pair = -1;
    c->steps[c->made->n_steps++] = step;
    c->segments[c->made->n_segments - 1].count++;
}

/* From one value, or -1, to another. */
static tni_step step_of(tni_step_kind kind, uint8_t level, int lane, int32_t from, int32_t out) {
    return (tni_step){
        .kind = kind, .level = level, .lane = (uint8_t)lane, .node = -1, .arg = {from, -1, -1}, .out = out};
}

static int32_t new_value(tni_cpu_planner *c, uint8_t level, int lane) {
    c->values = grown(c, c->values, c->made->n_values, &c->value_capacity, sizeof *c->values);
    if (c->failed) return 0;
    c->values[c->made->n_values] = (tni_value){
        .level = level, .lane = (uint8_t)lane, .segment = c->made->n_segments - 1};
    return c->made->n_values++;
}

static bool is_made_once(const tni_cpu_planner *c, int32_t node) {
    return c->p->level[node] == TNI_ONCE || (c->p->fixed[node] && !c->streams);
}

/* Elements of a long row are made anew in each segment. */
static void begin_segment(tni_cpu_planner *c, uint8_t kind) {
    c->segments = grown(c, c->segments, c->made->n_segments, &c->segment_capacity, sizeof *c->segments);
    if (c->failed) return;
    c->segments[c->made->n_segments++] = (tni_segment){.kind = kind, .first = c->made->n_steps};
    for (int lane = 0; lane < TNI_LANES; lane++) {
        for (int32_t i = 0; i < c->g->n; i++) {
            bool stays = c->p->level[i] != TNI_ELEMENT || is_made_once(c, i);
            if (!stays) c->value[lane][i] = -1;
            c->wide[lane][i] = -1;
        }
    }
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static int own_lane(const tni_cpu_planner *c, int32_t node) {
    return tni_lane_of(c->g, c->g->nodes[node].type);
}

static uint64_t bits_in_lane(int lane, double value) {
    uint64_t bits = 0;
    tn_set(tni_lane_type(lane), &bits, 0, value);
    return bits;
}

static int32_t constant(tni_cpu_planner *c, int32_t node, int lane) {
    tni_constants *all = c->constants;
    int32_t *place = &all->place[lane][node];
    if (!*place) {
        all->bits[all->n] = bits_in_lane(lane, c->g->nodes[node].value);
        *place = ++all->n;
    }
    return -1 - *place;
}

static bool is_constant(const tni_cpu_planner *c, int32_t node) {
    return c->g->nodes[node].op == TNI_P_CONST;
}

/* The node's value in a lane, at its own level. */
static int32_t in_lane(tni_cpu_planner *c, int32_t node, int lane) {
    int own = own_lane(c, node);
    if (is_constant(c, node)) return constant(c, node, lane);
    if (c->value[lane][node] == -1) {
        int32_t out = new_value(c, c->p->level[node], lane);
        tni_step step = step_of(TNI_STEP_LOOP, c->p->level[node], lane, c->value[own][node], out);
        step.op = TNI_P_CAST;
        step.run = tni_convert_loop(own, lane);
        add_step(c, step);
        c->value[lane][node] = out;
    }
    return c->value[lane][node];
}

static uint8_t level_of(const tni_cpu_planner *c, int32_t node) {
    return is_constant(c, node) ? TNI_ONCE : c->p->level[node];
}

static void add_expand(tni_cpu_planner *c, uint8_t level, uint8_t from_level, int lane, int32_t from, int32_t out) {
    tni_step step = step_of(TNI_STEP_EXPAND, level, lane, from, out);
    step.from_level = from_level;
    add_step(c, step);
}

/* As many values as the level has. */
static int32_t expanded(tni_cpu_planner *c, int32_t node, int lane, uint8_t level) {
    uint8_t from = level_of(c, node);
    int32_t value = in_lane(c, node, lane);
    if (from >= level) return value;
    if (level == TNI_ELEMENT && c->wide[lane][node] >= 0) return c->wide[lane][node];
    int32_t out = new_value(c, level, lane);
    add_expand(c, level, from, lane, value, out);
    if (level == TNI_ELEMENT) c->wide[lane][node] = out;
    return out;
}

/* Argument k of a loop at `level`: a single value is taken as it is, and marked. */
static int32_t argument(tni_cpu_planner *c, int32_t node, int lane, uint8_t level, int k, uint8_t *scalars) {
    node = tni_resolve(c->b, node);
    uint8_t from = level_of(c, node);
    bool single = from == TNI_ONCE || (from == TNI_ROW && c->made->rows == 1);
    if (from == level) return in_lane(c, node, lane);
    if (!single) return expanded(c, node, lane, level);
    *scalars |= (uint8_t)(1u << k);
    return in_lane(c, node, lane);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int32_t new_result(tni_cpu_planner *c, int32_t node, int lane) {
    int32_t out = new_value(c, c->p->level[node], lane);
    c->value[own_lane(c, node)][node] = out;
    return out;
}

/* Whether an input that is updated goes somewhere else as well, as it was: its own memory may be written first. */
static bool is_moved(const tni_cpu_planner *c, int32_t node) {
    const tni_fuse *f = c->b->f;
    bool updated = false, moved = false;
    for (int32_t k = 0; k < f->n_outputs; k++)
        updated |= f->outputs[k].inplace >= 0 && f->outputs[k].inplace == c->g->nodes[node].ref;
    for (int32_t t = 0; updated && t < c->b->n_todo; t++) {
        const tni_item_todo *todo = &c->b->todo[t];
        if (todo->gathers) continue;
        int32_t from = tni_resolve(c->b, todo->node);
        while (c->g->nodes[from].op == TNI_P_CAST) from = tni_resolve(c->b, c->g->nodes[from].arg[0]);
        moved |= from == node;
    }
    return moved;
}

static void make_leaf(tni_cpu_planner *c, int32_t node) {
    const tni_memory *memory = &c->pass->memory[c->p->memory_of[node]];
    int lane = own_lane(c, node);
    bool random = c->g->nodes[node].op == TNI_P_RAND, counted = memory->where == TNI_FROM_PLACE;
    bool in_place = !random && !counted && c->p->level[node] == TNI_ELEMENT && memory->type == tni_lane_type(lane) &&
                    lane != TNI_LANE_BOOL && tni_is_contiguous(c->pass, c->made, memory) && !is_moved(c, node);
    int32_t out = new_result(c, node, lane);
    uint8_t kind = random ? TNI_STEP_RAND : counted ? TNI_STEP_INDEX : in_place ? TNI_STEP_POINT : TNI_STEP_LOAD;
    tni_step step = step_of(kind, c->p->level[node], lane, -1, out);
    step.operand = (int16_t)c->p->memory_of[node];
    step.type = memory->type;
    step.stream = random ? (int64_t)c->g->nodes[node].value : 0;
    add_step(c, step);
    if (!c->failed) c->values[out].elsewhere = in_place;
}

/* Does memory of this type hold less than the lane it is computed in? */
static bool rounds(tn_type type) {
    return type != TN_F32 && type != TN_F64 && type != TN_I64 && type != TN_BOOL;
}

/* f16 or bf16 of an f64: rounded once, not to f32 first. What comes out is exact in either lane. */
static void round_wide(tni_cpu_planner *c, int32_t node, int32_t arg, tn_type type) {
    const uint8_t level = c->p->level[node];
    const int32_t wide = new_value(c, level, TNI_LANE_F64);
    tni_step round = step_of(TNI_STEP_ROUND, level, TNI_LANE_F64, in_lane(c, arg, TNI_LANE_F64), wide);
    round.type = type;
    add_step(c, round);
    tni_step convert = step_of(TNI_STEP_LOOP, level, TNI_LANE_F32, wide, new_result(c, node, TNI_LANE_F32));
    convert.op = TNI_P_CAST;
    convert.run = tni_convert_loop(TNI_LANE_F64, TNI_LANE_F32);
    add_step(c, convert);
}

static void make_cast(tni_cpu_planner *c, int32_t node) {
    tn_type type = (tn_type)c->g->nodes[node].kind;
    int lane = own_lane(c, node);
    int32_t arg = tni_resolve(c->b, c->g->nodes[node].arg[0]);
    if (rounds(type) && lane == TNI_LANE_F32 && !is_constant(c, arg) && own_lane(c, arg) == TNI_LANE_F64) {
        round_wide(c, node, arg, type);
        return;
    }
    int32_t from = in_lane(c, arg, lane);
    if (!rounds(type) && is_constant(c, arg) && c->p->level[node] != TNI_ONCE) {
        add_expand(c, c->p->level[node], TNI_ONCE, lane, from, new_result(c, node, lane));
        return;
    }
    if (!rounds(type)) {
        c->value[lane][node] = from;
        return;
    }
    tni_step step = step_of(TNI_STEP_ROUND, c->p->level[node], lane, from, new_result(c, node, lane));
    step.type = type;
    add_step(c, step);
}

static void make_reduction(tni_cpu_planner *c, int32_t node) {
    const tni_gnode *n = &c->g->nodes[node];
    int lane = own_lane(c, node);
    int32_t from = expanded(c, tni_resolve(c->b, n->arg[0]), lane, TNI_ELEMENT);
    int32_t out = new_value(c, TNI_ROW, lane);
    tni_step step = step_of(TNI_STEP_REDUCE, TNI_ROW, lane, from, out);
    step.op = n->op == TNI_P_SUM_TO ? TNI_P_SUM : n->op;
    step.node = node;
    add_step(c, step);
    c->value[lane][node] = out;
    if (c->streams && !c->failed) c->values[out].gathered = true;
}

static void make_operation(tni_cpu_planner *c, int32_t node) {
    const tni_gnode *n = &c->g->nodes[node];
    int lane = own_lane(c, node);
    tni_step step = step_of(TNI_STEP_LOOP, c->p->level[node], lane, -1, -1);
    step.op = n->op;
    step.node = node;
    int work = tni_prims[n->op].typing == TNI_TYPED_TEST ? tni_lane_of_test(c->g, n) : lane;
    for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
        int of = n->op == TNI_P_WHERE && k == 0 ? TNI_LANE_BOOL : work;
        step.arg[k] = argument(c, n->arg[k], of, step.level, k, &step.scalars);
    }
    bool direct = c->direct[node] >= 0 && (!c->streams || c->p->stage[node] == c->current);
    step.out = new_result(c, node, lane);
    step.run = tni_loop_of(work, n->op);
    if (direct) {
        tni_step point = step_of(TNI_STEP_POINT, TNI_ELEMENT, lane, -1, step.out);
        point.operand = (int16_t)c->direct[node];
        add_step(c, point);
        if (!c->failed) c->values[step.out].elsewhere = true;
    }
    add_step(c, step);
}

static void make_node(tni_cpu_planner *c, int32_t node) {
    if (is_constant(c, node)) return;
    if (c->p->memory_of[node] >= 0) {
        make_leaf(c, node);
    } else if (tni_reduces_rows(c->p, node)) {
        make_reduction(c, node);
    } else if (c->g->nodes[node].op == TNI_P_CAST) {
        make_cast(c, node);
    } else {
        make_operation(c, node);
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* The lane that a value is stored from: f64 rounds to any float by itself. */
static int lane_for_store(const tni_cpu_planner *c, int32_t node, tn_type type) {
    int own = is_constant(c, node) ? TNI_LANE_F64 : own_lane(c, node), lane = tni_lane_of(c->g, type);
    return own == TNI_LANE_F64 && lane == TNI_LANE_F32 ? TNI_LANE_F64 : lane;
}

/* Rows' and single values that update an input are read by every unit, before the first of them writes. */
static bool is_read_by_others(const tni_cpu_planner *c, const tni_item_todo *todo, uint8_t level) {
    if (todo->gathers || todo->output < 0 || tni_updated_by(c->b, todo->output) < 0) return false;
    return level == TNI_ONCE || (level == TNI_ROW && (c->made->spans > 1 || c->made->first_unit));
}

static void make_result(tni_cpu_planner *c, int32_t t) {
    const tni_item_todo *todo = &c->b->todo[t];
    int32_t node = tni_todo_node(c->p, todo), place = c->p->todo_memory[t];
    uint8_t level = tni_level_of_todo(c->p, t);
    if (!todo->gathers && c->direct[node] == place) return;
    const tni_accumulator *acc = todo->gathers ? &c->pass->accumulators[place] : NULL;
    tn_type type = acc ? TN_NO_TYPE : c->pass->memory[place].type;
    int lane = acc ? acc->lane : lane_for_store(c, node, type);
    tni_step step = step_of(acc ? TNI_STEP_GATHER : TNI_STEP_STORE, level, lane, expanded(c, node, lane, level), -1);
    step.operand = (int16_t)place;
    step.type = type;
    step.waits = is_read_by_others(c, todo, level);
    c->made->waits |= step.waits;
    c->made->rows_wait |= step.waits && level == TNI_ROW;
    if (acc) {
        step.op = acc->op;
        step.node = todo->node;
    }
    add_step(c, step);
}

/* Values that an operation can write to where they belong. */
static void find_direct(tni_cpu_planner *c) {
    const tni_binding *b = c->b;
    for (int32_t i = 0; i < c->g->n; i++) c->direct[i] = -1;
    for (int32_t t = 0; t < b->n_todo; t++) {
        const tni_item_todo *todo = &b->todo[t];
        if (!tni_in_pass(c->b, c->pass, todo) || todo->gathers) continue;
        int32_t node = tni_todo_node(c->p, todo);
        const tni_memory *memory = &c->pass->memory[c->p->todo_memory[t]];
        bool made = !is_constant(c, node) && c->p->memory_of[node] < 0 && !tni_reduces_rows(c->p, node) &&
                    c->g->nodes[node].op != TNI_P_CAST && c->p->level[node] == TNI_ELEMENT && !is_made_once(c, node);
        bool fits = made && memory->type == tni_lane_type(own_lane(c, node)) &&
                    tni_is_contiguous(c->pass, c->made, memory);
        if (fits && memory->where != TNI_FROM_CALL_IN && c->direct[node] < 0) c->direct[node] = c->p->todo_memory[t];
    }
}

/* ---- whole rows: everything in one go ---------------------------------------------------------------------------- */

/* Sums that rows share wait for the last stage, whose loop has what they are made of. */
static int32_t stage_of_result(const tni_cpu_planner *c, int32_t t) {
    return c->b->todo[t].gathers ? c->p->n_stages - 1 : tni_stage_of_todo(c->p, t);
}

static void use_at(tni_cpu_planner *c, int32_t node, int32_t stage) {
    node = tni_resolve(c->b, node);
    if (stage < c->when[node]) c->when[node] = stage;
}

/* Elements are made when they are first used, so that what one stage of reductions takes stands together: it can be one
 * loop. */
static void find_when(tni_cpu_planner *c) {
    for (int32_t i = 0; i < c->g->n; i++) c->when[i] = c->p->n_stages;
    for (int32_t t = 0; t < c->b->n_todo; t++) {
        const tni_item_todo *todo = &c->b->todo[t];
        if (tni_in_pass(c->b, c->pass, todo)) use_at(c, tni_todo_node(c->p, todo), stage_of_result(c, t));
    }
    for (int32_t i = c->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &c->g->nodes[i];
        if (!c->p->needed[i] || c->p->memory_of[i] >= 0) continue;
        const int32_t stage = tni_reduces_rows(c->p, i) ? c->p->stage[i] - 1 : c->when[i];
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) use_at(c, n->arg[k], stage);
        }
    }
}

/* Values of rows first, then elements, and what is reduced of them. */
static void plan_whole_rows(tni_cpu_planner *c) {
    begin_segment(c, TNI_SEGMENT_ROWS);
    find_when(c);
    for (int32_t stage = 0; stage < c->p->n_stages; stage++) {
        for (int k = 0; k < 2; k++) {
            for (int32_t i = 0; i < c->g->n; i++) {
                if (!c->p->needed[i] || is_made_once(c, i) || is_constant(c, i)) continue;
                const bool reduces = tni_reduces_rows(c->p, i), row = c->p->level[i] == TNI_ROW && !reduces;
                const int32_t when = reduces ? c->p->stage[i] - 1 : row ? c->p->stage[i] : c->when[i];
                if (when == stage && row == (k == 0)) make_node(c, i);
            }
        }
        for (int32_t t = 0; t < c->b->n_todo; t++) {
            if (tni_in_pass(c->b, c->pass, &c->b->todo[t]) && stage_of_result(c, t) == stage) make_result(c, t);
        }
    }
}

/* ---- long rows: stage by stage ----------------------------------------------------------------------------------- */

static void plan_row_values(tni_cpu_planner *c, int32_t stage) {
    begin_segment(c, TNI_SEGMENT_ROWS);
    for (int32_t i = 0; i < c->g->n; i++) {
        if (!c->p->needed[i] || level_of(c, i) != TNI_ROW || c->p->stage[i] != stage) continue;
        if (!tni_reduces_rows(c->p, i)) {
            make_node(c, i);
            continue;
        }
        int lane = own_lane(c, i);
        int32_t gathered = c->value[lane][i], out = new_value(c, TNI_ROW, lane);
        tni_step step = step_of(TNI_STEP_FINISH, TNI_ROW, lane, gathered, out);
        step.op = c->g->nodes[i].op;
        add_step(c, step);
        c->value[lane][i] = out;
    }
    for (int32_t t = 0; t < c->b->n_todo; t++) {
        bool here = tni_in_pass(c->b, c->pass, &c->b->todo[t]) && tni_level_of_todo(c->p, t) != TNI_ELEMENT;
        if (here && tni_stage_of_todo(c->p, t) == stage) make_result(c, t);
    }
}

/* What this stage reduces and stores needs of element values. */
static bool mark_elements(tni_cpu_planner *c, int32_t stage) {
    bool any = false;
    memset(c->taken, 0, (size_t)c->g->n * sizeof *c->taken);
    for (int32_t t = 0; t < c->b->n_todo; t++) {
        bool here = tni_in_pass(c->b, c->pass, &c->b->todo[t]) && tni_level_of_todo(c->p, t) == TNI_ELEMENT &&
                    tni_stage_of_todo(c->p, t) == stage;
        if (here) c->taken[tni_todo_node(c->p, &c->b->todo[t])] = any = true;
    }
    for (int32_t i = c->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &c->g->nodes[i];
        bool reduction = c->p->needed[i] && !is_constant(c, i) && tni_reduces_rows(c->p, i);
        bool now = reduction && c->p->stage[i] == stage + 1;
        any |= now;
        if (c->p->memory_of[i] >= 0 || !(now || (c->taken[i] && level_of(c, i) == TNI_ELEMENT))) continue;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) c->taken[tni_resolve(c->b, n->arg[k])] = true;
        }
        c->taken[i] = true;
    }
    return any;
}

static void plan_columns(tni_cpu_planner *c, int32_t stage) {
    if (!mark_elements(c, stage)) return;
    begin_segment(c, TNI_SEGMENT_COLUMNS);
    for (int32_t i = 0; i < c->g->n; i++) {
        if (!c->taken[i] || is_constant(c, i)) continue;
        bool reduction = tni_reduces_rows(c->p, i) && c->p->stage[i] == stage + 1;
        if (reduction || c->p->level[i] == TNI_ELEMENT) make_node(c, i);
    }
    for (int32_t t = 0; t < c->b->n_todo; t++) {
        bool here = tni_in_pass(c->b, c->pass, &c->b->todo[t]) && tni_level_of_todo(c->p, t) == TNI_ELEMENT;
        if (here && tni_stage_of_todo(c->p, t) == stage) make_result(c, t);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Where each value is used, and whether a segment apart from its own uses it. */
static void find_uses(tni_cpu_planner *c) {
    for (int32_t s = 0; s < c->made->n_segments; s++) {
        const tni_segment *segment = &c->segments[s];
        for (int32_t i = segment->first; i < segment->first + segment->count; i++) {
            for (int k = 0; k < 4; k++) {
                int32_t value = k < 3 ? c->steps[i].arg[k] : c->steps[i].out;
                if (value < 0) continue;
                c->values[value].last = i;
                c->values[value].crosses |= c->values[value].segment != s;
            }
        }
    }
}

tn_status tni_plan_steps(tni_cpu_planner *c) {
    for (int lane = 0; lane < TNI_LANES; lane++) {
        for (int32_t i = 0; i < c->g->n; i++) c->value[lane][i] = c->wide[lane][i] = -1;
    }
    find_direct(c);
    begin_segment(c, TNI_SEGMENT_ONCE);
    for (int32_t i = 0; i < c->g->n; i++) {
        if (c->p->needed[i] && is_made_once(c, i)) make_node(c, i);
    }
    if (!c->streams) plan_whole_rows(c);
    for (int32_t stage = 0; c->streams && stage < c->p->n_stages; stage++) {
        c->current = stage;
        plan_row_values(c, stage);
        plan_columns(c, stage);
    }
    if (c->failed) return TN_NO_MEMORY;
    TN_TRY(tni_plan_pairs(c));
    find_uses(c);
    return TN_OK;
}
