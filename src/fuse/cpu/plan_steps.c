/* The steps of a pass, in the order in which they run over a block. */
#include <string.h>

#include "fuse/plan/planner.h"

/* ---- lists that grow --------------------------------------------------------------------------------------------- */

static void *grown(tni_planner *p, void *list, int32_t count, int32_t *capacity, size_t size) {
    if (count < *capacity) return list;
    int32_t wanted = *capacity ? 2 * *capacity : 64;
    void *made = tni_realloc(list, (size_t)wanted * size);
    if (!made) {
        p->failed = true;
        return list;
    }
    *capacity = wanted;
    return made;
}

static void add_step(tni_planner *p, tni_step step) {
    p->steps = grown(p, p->steps, p->pass->n_steps, &p->step_capacity, sizeof *p->steps);
    if (p->failed) return;
    while (step.n_args < 3 && step.arg[step.n_args] != -1) step.n_args++;
    step.pair = -1;
    p->steps[p->pass->n_steps++] = step;
    p->segments[p->pass->n_segments - 1].count++;
}

static int32_t new_value(tni_planner *p, uint8_t level, int lane) {
    p->values = grown(p, p->values, p->pass->n_values, &p->value_capacity, sizeof *p->values);
    if (p->failed) return 0;
    p->values[p->pass->n_values] = (tni_value){
        .level = level, .lane = (uint8_t)lane, .segment = p->pass->n_segments - 1};
    return p->pass->n_values++;
}

static bool is_made_once(const tni_planner *p, int32_t node) {
    return p->level[node] == TNI_ONCE || (p->fixed[node] && !p->streams);
}

/* Elements of a long row are made anew in each segment. */
static void begin_segment(tni_planner *p, uint8_t kind) {
    p->segments = grown(p, p->segments, p->pass->n_segments, &p->segment_capacity, sizeof *p->segments);
    if (p->failed) return;
    p->segments[p->pass->n_segments++] = (tni_segment){.kind = kind, .first = p->pass->n_steps};
    for (int lane = 0; lane < TNI_LANES; lane++) {
        for (int32_t i = 0; i < p->g->n; i++) {
            bool stays = p->level[i] != TNI_ELEMENT || is_made_once(p, i);
            if (!stays) p->value[lane][i] = -1;
            p->wide[lane][i] = -1;
        }
    }
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static int own_lane(const tni_planner *p, int32_t node) {
    return tni_lane_of(p->g, p->g->nodes[node].type);
}

static uint64_t bits_in_lane(int lane, double value) {
    uint64_t bits = 0;
    tn_set(tni_lane_type(lane), &bits, 0, value);
    return bits;
}

static int32_t constant(tni_planner *p, int32_t node, int lane) {
    tni_binding *b = p->b;
    int32_t *place = &b->constant_of[lane][node];
    if (!*place) {
        b->constants[b->n_constants] = bits_in_lane(lane, p->g->nodes[node].value);
        *place = ++b->n_constants;
    }
    return -1 - *place;
}

bool tni_is_number(const tni_planner *p, const tni_step *s, int k, double value) {
    return s->arg[k] <= -2 && p->b->constants[-2 - s->arg[k]] == bits_in_lane(s->lane, value);
}

static bool is_constant(const tni_planner *p, int32_t node) {
    return p->g->nodes[node].op == TNI_P_CONST;
}

/* The node's value in a lane, at its own level. */
static int32_t in_lane(tni_planner *p, int32_t node, int lane) {
    int own = own_lane(p, node);
    if (is_constant(p, node)) return constant(p, node, lane);
    if (p->value[lane][node] == -1) {
        int32_t out = new_value(p, p->level[node], lane);
        add_step(p, (tni_step){.kind = TNI_STEP_LOOP,
                               .level = p->level[node],
                               .lane = (uint8_t)lane,
                               .op = TNI_P_CAST,
                               .arg = {p->value[own][node], -1, -1},
                               .out = out,
                               .run = tni_convert_loop(own, lane)});
        p->value[lane][node] = out;
    }
    return p->value[lane][node];
}

static uint8_t level_of(const tni_planner *p, int32_t node) {
    return is_constant(p, node) ? TNI_ONCE : p->level[node];
}

/* As many values as the level has. */
static int32_t expanded(tni_planner *p, int32_t node, int lane, uint8_t level) {
    uint8_t from = level_of(p, node);
    int32_t value = in_lane(p, node, lane);
    if (from >= level) return value;
    if (level == TNI_ELEMENT && p->wide[lane][node] >= 0) return p->wide[lane][node];
    int32_t out = new_value(p, level, lane);
    add_step(p, (tni_step){.kind = TNI_STEP_EXPAND,
                           .level = level,
                           .from_level = from,
                           .lane = (uint8_t)lane,
                           .arg = {value, -1, -1},
                           .out = out});
    if (level == TNI_ELEMENT) p->wide[lane][node] = out;
    return out;
}

/* Argument k of a loop at `level`: a single value is taken as it is, and marked. */
static int32_t argument(tni_planner *p, int32_t node, int lane, uint8_t level, int k, uint8_t *scalars) {
    node = tni_resolve(p, node);
    uint8_t from = level_of(p, node);
    bool single = from == TNI_ONCE || (from == TNI_ROW && p->pass->rows == 1);
    if (from == level) return in_lane(p, node, lane);
    if (!single) return expanded(p, node, lane, level);
    *scalars |= (uint8_t)(1u << k);
    return in_lane(p, node, lane);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int32_t new_result(tni_planner *p, int32_t node, int lane) {
    int32_t out = new_value(p, p->level[node], lane);
    p->value[own_lane(p, node)][node] = out;
    return out;
}

/* Whether an input that is updated goes somewhere else as well, as it was: its own memory may be written first. */
static bool is_moved(const tni_planner *p, int32_t node) {
    const tni_fuse *f = p->b->f;
    bool updated = false, moved = false;
    for (int32_t k = 0; k < f->n_outputs; k++)
        updated |= f->outputs[k].inplace >= 0 && f->outputs[k].inplace == p->g->nodes[node].ref;
    for (int32_t t = 0; updated && t < p->b->n_todo; t++) {
        const tni_item_todo *todo = &p->b->todo[t];
        if (todo->gathers) continue;
        int32_t from = tni_resolve(p, todo->node);
        while (p->g->nodes[from].op == TNI_P_CAST) from = tni_resolve(p, p->g->nodes[from].arg[0]);
        moved |= from == node;
    }
    return moved;
}

static void make_leaf(tni_planner *p, int32_t node) {
    const tni_memory *memory = &p->pass->memory[p->memory_of[node]];
    int lane = own_lane(p, node);
    bool random = p->g->nodes[node].op == TNI_P_RAND;
    bool in_place = !random && p->level[node] == TNI_ELEMENT && memory->type == tni_lane_type(lane) &&
                    lane != TNI_LANE_BOOL && tni_is_contiguous(p, memory) && !is_moved(p, node);
    int32_t out = new_result(p, node, lane);
    uint8_t kind = random ? TNI_STEP_RAND : in_place ? TNI_STEP_POINT : TNI_STEP_LOAD;
    add_step(p, (tni_step){.kind = kind,
                           .level = p->level[node],
                           .lane = (uint8_t)lane,
                           .operand = (int16_t)p->memory_of[node],
                           .arg = {-1, -1, -1},
                           .out = out,
                           .type = memory->type,
                           .stream = random ? (int64_t)p->g->nodes[node].value : 0});
    if (!p->failed) p->values[out].elsewhere = in_place;
}

/* Does memory of this type hold less than the lane it is computed in? */
static bool rounds(tn_type type) {
    return type != TN_F32 && type != TN_F64 && type != TN_I64 && type != TN_BOOL;
}

static void make_cast(tni_planner *p, int32_t node) {
    tn_type type = (tn_type)p->g->nodes[node].kind;
    int lane = own_lane(p, node);
    int32_t arg = tni_resolve(p, p->g->nodes[node].arg[0]);
    int32_t from = in_lane(p, arg, lane);
    if (!rounds(type) && is_constant(p, arg) && p->level[node] != TNI_ONCE) {
        add_step(p, (tni_step){.kind = TNI_STEP_EXPAND,
                               .level = p->level[node],
                               .from_level = TNI_ONCE,
                               .lane = (uint8_t)lane,
                               .arg = {from, -1, -1},
                               .out = new_result(p, node, lane)});
        return;
    }
    if (!rounds(type)) {
        p->value[lane][node] = from;
        return;
    }
    int32_t out = new_result(p, node, lane);
    add_step(p, (tni_step){.kind = TNI_STEP_ROUND,
                           .level = p->level[node],
                           .lane = (uint8_t)lane,
                           .type = type,
                           .arg = {from, -1, -1},
                           .out = out});
}

static void make_reduction(tni_planner *p, int32_t node) {
    const tni_gnode *n = &p->g->nodes[node];
    int lane = own_lane(p, node);
    int32_t from = expanded(p, tni_resolve(p, n->arg[0]), lane, TNI_ELEMENT);
    int32_t out = new_value(p, TNI_ROW, lane);
    uint8_t op = n->op == TNI_P_SUM_TO ? TNI_P_SUM : n->op;
    add_step(p, (tni_step){.kind = TNI_STEP_REDUCE,
                           .level = TNI_ROW,
                           .lane = (uint8_t)lane,
                           .op = op,
                           .arg = {from, -1, -1},
                           .out = out});
    p->value[lane][node] = out;
    if (p->streams && !p->failed) p->values[out].gathered = true;
}

/* What a comparison compares in. */
static int lane_of_test(const tni_planner *p, const tni_gnode *n) {
    int type = tni_promote(p->g, p->g->nodes[n->arg[0]].type, p->g->nodes[n->arg[1]].type);
    int lane = tni_lane_of(p->g, type);
    return lane == TNI_LANE_BOOL ? TNI_LANE_INT : lane;
}

static void make_operation(tni_planner *p, int32_t node) {
    const tni_gnode *n = &p->g->nodes[node];
    int lane = own_lane(p, node);
    tni_step step = {
        .kind = TNI_STEP_LOOP, .level = p->level[node], .lane = (uint8_t)lane, .op = n->op, .arg = {-1, -1, -1}};
    int work = tni_prims[n->op].typing == TNI_TYPED_TEST ? lane_of_test(p, n) : lane;
    for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
        int of = n->op == TNI_P_WHERE && k == 0 ? TNI_LANE_BOOL : work;
        step.arg[k] = argument(p, n->arg[k], of, step.level, k, &step.scalars);
    }
    bool direct = p->direct[node] >= 0 && (!p->streams || p->stage[node] == p->current);
    step.out = new_result(p, node, lane);
    step.run = tni_loop_of(work, n->op);
    if (direct) {
        add_step(p, (tni_step){.kind = TNI_STEP_POINT,
                               .level = TNI_ELEMENT,
                               .lane = (uint8_t)lane,
                               .operand = (int16_t)p->direct[node],
                               .arg = {-1, -1, -1},
                               .out = step.out});
        if (!p->failed) p->values[step.out].elsewhere = true;
    }
    add_step(p, step);
}

static void make_node(tni_planner *p, int32_t node) {
    if (is_constant(p, node)) return;
    if (p->memory_of[node] >= 0) {
        make_leaf(p, node);
    } else if (tni_reduces_rows(p, node)) {
        make_reduction(p, node);
    } else if (p->g->nodes[node].op == TNI_P_CAST) {
        make_cast(p, node);
    } else {
        make_operation(p, node);
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

int32_t tni_todo_node(const tni_planner *p, const tni_item_todo *todo) {
    return tni_resolve(p, todo->gathers ? p->g->nodes[todo->node].arg[0] : todo->node);
}

/* The lane that a value is stored from: f64 rounds to any float by itself. */
static int lane_for_store(const tni_planner *p, int32_t node, tn_type type) {
    int own = is_constant(p, node) ? TNI_LANE_F64 : own_lane(p, node), lane = tni_lane_of(p->g, type);
    return own == TNI_LANE_F64 && lane == TNI_LANE_F32 ? TNI_LANE_F64 : lane;
}

static uint8_t level_of_store(const tni_planner *p, const tni_memory *memory, int32_t node) {
    const tni_pass *pass = p->pass;
    uint8_t level = level_of(p, node);
    for (int32_t d = 0; d < pass->n_dims; d++) {
        if (memory->strides[d] != 0 && level < TNI_ROW) level = TNI_ROW;
    }
    return memory->strides[pass->n_dims] != 0 ? TNI_ELEMENT : level;
}

uint8_t tni_level_of_todo(const tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    if (todo->gathers) return p->pass->narrow && p->pass->reduces ? TNI_ROW : TNI_ELEMENT;
    return level_of_store(p, &p->pass->memory[p->todo_memory[t]], tni_todo_node(p, todo));
}

static void make_result(tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    int32_t node = tni_todo_node(p, todo);
    uint8_t level = tni_level_of_todo(p, t);
    if (todo->gathers) {
        const tni_accumulator *acc = &p->pass->accumulators[p->todo_memory[t]];
        int32_t from = expanded(p, node, acc->lane, level);
        add_step(p, (tni_step){.kind = TNI_STEP_GATHER,
                               .level = level,
                               .lane = acc->lane,
                               .op = acc->op,
                               .operand = (int16_t)p->todo_memory[t],
                               .arg = {from, -1, -1},
                               .out = -1});
        return;
    }
    if (p->direct[node] == p->todo_memory[t]) return;
    const tni_memory *memory = &p->pass->memory[p->todo_memory[t]];
    int lane = lane_for_store(p, node, memory->type);
    int32_t from = expanded(p, node, lane, level);
    add_step(p, (tni_step){.kind = TNI_STEP_STORE,
                           .level = level,
                           .lane = (uint8_t)lane,
                           .type = memory->type,
                           .operand = (int16_t)p->todo_memory[t],
                           .arg = {from, -1, -1},
                           .out = -1});
}

/* Values that an operation can write to where they belong. */
static void find_direct(tni_planner *p) {
    const tni_binding *b = p->b;
    for (int32_t i = 0; i < p->g->n; i++) p->direct[i] = -1;
    for (int32_t t = 0; t < b->n_todo; t++) {
        const tni_item_todo *todo = &b->todo[t];
        if (!tni_in_pass(p->b, p->pass, todo) || todo->gathers) continue;
        int32_t node = tni_todo_node(p, todo);
        const tni_memory *memory = &p->pass->memory[p->todo_memory[t]];
        bool made = !is_constant(p, node) && p->memory_of[node] < 0 && !tni_reduces_rows(p, node) &&
                    p->g->nodes[node].op != TNI_P_CAST && p->level[node] == TNI_ELEMENT && !is_made_once(p, node);
        bool fits = made && memory->type == tni_lane_type(own_lane(p, node)) && tni_is_contiguous(p, memory);
        if (fits && memory->where != TNI_FROM_CALL_IN && p->direct[node] < 0) p->direct[node] = p->todo_memory[t];
    }
}

/* ---- short rows: everything in one go ---------------------------------------------------------------------------- */

static void plan_whole_rows(tni_planner *p) {
    begin_segment(p, TNI_SEGMENT_ROWS);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (p->needed[i] && !is_made_once(p, i)) make_node(p, i);
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (tni_in_pass(p->b, p->pass, &p->b->todo[t])) make_result(p, t);
    }
}

/* ---- long rows: stage by stage ----------------------------------------------------------------------------------- */

/* What another pass has computed of the same values, and exactly, may be compared with them. */
bool tni_makes_bf16(const tni_planner *p) {
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const tni_item_todo *todo = &p->b->todo[t];
        if (todo->gathers || todo->output < 0) return false;
        if (tni_in_pass(p->b, p->pass, todo) && p->pass->memory[p->todo_memory[t]].type != TN_BF16) return false;
    }
    return true;
}

/* When a todo is done. Updates wait for the last stage: what they overwrite may be read until then. */
int32_t tni_stage_of_todo(const tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    bool updates = todo->output >= 0 && p->b->f->outputs[todo->output].inplace >= 0;
    return updates ? p->n_stages - 1 : is_constant(p, tni_todo_node(p, todo)) ? 0 : p->stage[tni_todo_node(p, todo)];
}

static void plan_row_values(tni_planner *p, int32_t stage) {
    begin_segment(p, TNI_SEGMENT_ROWS);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!p->needed[i] || level_of(p, i) != TNI_ROW || p->stage[i] != stage) continue;
        if (!tni_reduces_rows(p, i)) {
            make_node(p, i);
            continue;
        }
        int lane = own_lane(p, i);
        int32_t gathered = p->value[lane][i], out = new_value(p, TNI_ROW, lane);
        add_step(p, (tni_step){.kind = TNI_STEP_FINISH,
                               .level = TNI_ROW,
                               .lane = (uint8_t)lane,
                               .op = p->g->nodes[i].op,
                               .arg = {gathered, -1, -1},
                               .out = out});
        p->value[lane][i] = out;
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_in_pass(p->b, p->pass, &p->b->todo[t]) && tni_level_of_todo(p, t) != TNI_ELEMENT;
        if (here && tni_stage_of_todo(p, t) == stage) make_result(p, t);
    }
}

/* What this stage reduces and stores needs of element values. */
bool tni_mark_elements(tni_planner *p, int32_t stage) {
    bool any = false;
    memset(p->taken, 0, (size_t)p->g->n * sizeof *p->taken);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_in_pass(p->b, p->pass, &p->b->todo[t]) && tni_level_of_todo(p, t) == TNI_ELEMENT &&
                    tni_stage_of_todo(p, t) == stage;
        if (here) p->taken[tni_todo_node(p, &p->b->todo[t])] = any = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &p->g->nodes[i];
        bool reduction = p->needed[i] && !is_constant(p, i) && tni_reduces_rows(p, i);
        bool now = reduction && p->stage[i] == stage + 1;
        any |= now;
        if (p->memory_of[i] >= 0 || !(now || (p->taken[i] && level_of(p, i) == TNI_ELEMENT))) continue;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) p->taken[tni_resolve(p, n->arg[k])] = true;
        }
        p->taken[i] = true;
    }
    return any;
}

static void plan_columns(tni_planner *p, int32_t stage) {
    if (!tni_mark_elements(p, stage)) return;
    begin_segment(p, TNI_SEGMENT_COLUMNS);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!p->taken[i] || is_constant(p, i)) continue;
        bool reduction = tni_reduces_rows(p, i) && p->stage[i] == stage + 1;
        if (reduction || p->level[i] == TNI_ELEMENT) make_node(p, i);
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_in_pass(p->b, p->pass, &p->b->todo[t]) && tni_level_of_todo(p, t) == TNI_ELEMENT;
        if (here && tni_stage_of_todo(p, t) == stage) make_result(p, t);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Where each value is used, and whether a segment apart from its own uses it. */
static void find_uses(tni_planner *p) {
    for (int32_t s = 0; s < p->pass->n_segments; s++) {
        const tni_segment *segment = &p->segments[s];
        for (int32_t i = segment->first; i < segment->first + segment->count; i++) {
            for (int k = 0; k < 4; k++) {
                int32_t value = k < 3 ? p->steps[i].arg[k] : p->steps[i].out;
                if (value < 0) continue;
                p->values[value].last = i;
                p->values[value].crosses |= p->values[value].segment != s;
            }
        }
    }
}

tn_status tni_plan_steps(tni_planner *p) {
    for (int lane = 0; lane < TNI_LANES; lane++) {
        for (int32_t i = 0; i < p->g->n; i++) p->value[lane][i] = p->wide[lane][i] = -1;
    }
    find_direct(p);
    begin_segment(p, TNI_SEGMENT_ONCE);
    for (int32_t i = 0; i < p->g->n; i++) {
        if (p->needed[i] && is_made_once(p, i)) make_node(p, i);
    }
    if (!p->streams) plan_whole_rows(p);
    for (int32_t stage = 0; p->streams && stage < p->n_stages; stage++) {
        p->current = stage;
        plan_row_values(p, stage);
        plan_columns(p, stage);
    }
    if (p->failed) return TN_NO_MEMORY;
    TN_TRY(tni_plan_pairs(p));
    find_uses(p);
    return TN_OK;
}
