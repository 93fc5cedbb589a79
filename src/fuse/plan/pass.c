/* A pass: which memory it walks over, in which order, and what is known of each node in it. */
#include "core/layout/nest.h"
#include "planner.h"

bool tni_is_kept(const tni_planner *p, int32_t node) {
    int32_t t = p->b->todo_of[node];
    if (t < 0) return false;
    return !(tni_in_pass(p->b, p->pass, &p->b->todo[t]) &&
             !p->b->todo[t].gathers); /* else it is made here, to be kept */
}

bool tni_reduces_rows(const tni_planner *p, int32_t node) {
    const tni_gnode *n = &p->g->nodes[node];
    bool reduces = tni_is_reduction(n->op) || n->op == TNI_P_SUM_TO;
    return reduces && !tni_is_kept(p, node) && p->b->mask[n->arg[0]] != p->b->mask[node];
}

/* ---- what is needed ---------------------------------------------------------------------------------------------- */

static void mark(tni_planner *p, int32_t node) {
    p->needed[tni_resolve(p->b, node)] = true;
}

/* Walks from what is stored and gathered back to inputs, and to what an earlier pass has kept. */
static void mark_needed(tni_planner *p) {
    const tni_binding *b = p->b;
    for (int32_t t = 0; t < b->n_todo; t++) {
        const tni_item_todo *todo = &b->todo[t];
        if (tni_in_pass(p->b, p->pass, todo)) mark(p, todo->gathers ? p->g->nodes[todo->node].arg[0] : todo->node);
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *node = &p->g->nodes[i];
        if (!p->needed[i] || tni_is_kept(p, i)) continue;
        p->pass->reduces |= tni_reduces_rows(p, i);
        for (int k = 0; k < 3 && node->arg[k] >= 0; k++) {
            if (!(node->op == TNI_P_SUM_TO && k == 1)) mark(p, node->arg[k]);
        }
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void tni_mask_strides(const tni_domain *d, uint32_t mask, int64_t *strides) {
    int64_t stride = 1;
    for (int k = d->n_dims - 1; k >= 0; k--) {
        strides[k] = mask >> k & 1 ? stride : 0;
        if (mask >> k & 1) stride *= d->size[k] > 0 ? d->size[k] : 1;
    }
}

/* From the domain's dimensions to those of the pass: its rows', then the last one. */
static void over_pass(const tni_planner *p, const int64_t *strides, int64_t *made) {
    const tni_domain *d = &p->b->domain;
    int32_t n = 0;
    for (int k = 0; k < d->n_dims; k++) {
        if (p->pass->rows_mask >> k & 1) made[n++] = strides[k];
    }
    made[n] = d->n_dims ? strides[d->n_dims - 1] : 0;
    if (!d->tail) made[n] = 0;
}

static int32_t add_memory(tni_planner *p, uint8_t where, int32_t index, tn_type type, const int64_t *strides,
                          int64_t offset) {
    tni_memory *memory = &p->pass->memory[p->pass->n_memory];
    const tni_contract *c = p->b->f->contract;
    bool of_call = where == TNI_FROM_CALL_IN || where == TNI_FROM_CALL_OUT;
    bool list = of_call && (where == TNI_FROM_CALL_IN ? c->inputs : c->outputs)[index].list;
    *memory = (tni_memory){.where = where, .index = index, .type = type, .list = list};
    memory->offset = where == TNI_FROM_WORKSPACE ? 0 : offset * (int64_t)tn_type_size(type);
    for (int k = 0; of_call && k < p->b->domain.n_dims; k++) {
        memory->step[k] = p->b->domain.size[k] * strides[k] * (int64_t)tn_type_size(type);
    }
    over_pass(p, strides, memory->strides);
    return p->pass->n_memory++;
}

static tn_type kept_type(const tni_planner *p, const tni_item_todo *todo) {
    int lane = tni_lane_of(p->g, p->g->nodes[todo->node].type);
    if (!todo->gathers) return tni_lane_type(lane);
    return lane == TNI_LANE_INT ? TN_I64 : TN_F64;
}

static void add_kept(tni_planner *p, const tni_item_todo *todo, int32_t *where) {
    int64_t strides[TN_MAX_RANK] = {0};
    tni_mask_strides(&p->b->domain, todo->mask, strides);
    *where = add_memory(p, TNI_FROM_WORKSPACE, -1, kept_type(p, todo), strides, 0);
    p->pass->memory[*where].offset = todo->offset;
}

/* Positions need no memory, only strides: 1 along the last of the dimensions that it counts along, 0 elsewhere. */
static void add_index(tni_planner *p, int32_t node) {
    const tni_domain *d = &p->b->domain;
    int64_t strides[TN_MAX_RANK] = {0};
    tni_mask_strides(d, tni_reduced_mask(d, p->g->nodes[node].kind, p->b->mask[node]), strides);
    p->memory_of[node] = add_memory(p, TNI_FROM_PLACE, -1, TN_I64, strides, 0);
}

static void add_accumulator(tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    const tni_gnode *node = &p->g->nodes[todo->node];
    int64_t strides[TN_MAX_RANK] = {0};
    tni_accumulator *made = &p->pass->accumulators[p->pass->n_accumulators];
    *made = (tni_accumulator){.op = node->op == TNI_P_SUM_TO ? TNI_P_SUM : node->op,
                              .lane = (uint8_t)tni_lane_of(p->g, node->type),
                              .deviates = p->b->lowered[todo->node].deviates,
                              .size = tni_mask_count(&p->b->domain, todo->mask),
                              .result = todo->offset,
                              .output = todo->becomes};
    tni_mask_strides(&p->b->domain, todo->mask, strides);
    over_pass(p, strides, made->strides);
    p->todo_memory[t] = p->pass->n_accumulators++;
}

static void add_output(tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    const tni_domain *d = &p->b->domain;
    if (todo->output < 0) {
        add_kept(p, todo, &p->todo_memory[t]);
        return;
    }
    int32_t updated = tni_updated_by(p->b, todo->output);
    uint8_t where = updated >= 0 ? TNI_FROM_CALL_IN : TNI_FROM_CALL_OUT;
    p->todo_memory[t] = add_memory(p, where, updated >= 0 ? updated : d->out[todo->output].index,
                                   d->out[todo->output].type, d->out[todo->output].strides,
                                   d->out[todo->output].offset);
}

static tn_status list_memory(tni_planner *p) {
    tni_binding *b = p->b;
    tni_pass *pass = p->pass;
    size_t most = (size_t)p->g->n + (size_t)b->n_todo;
    pass->memory = tni_arena_alloc(b->program->arena, most * sizeof *pass->memory);
    pass->accumulators = tni_arena_alloc(b->program->arena, ((size_t)b->n_todo + 1) * sizeof *pass->accumulators);
    if (!pass->memory || !pass->accumulators) return TN_NO_MEMORY;
    for (int32_t i = 0; i < p->g->n; i++) {
        const tni_gnode *node = &p->g->nodes[i];
        p->memory_of[i] = -1;
        if (!p->needed[i]) continue;
        if (tni_is_kept(p, i)) add_kept(p, &b->todo[b->todo_of[i]], &p->memory_of[i]);
        if (node->op == TNI_P_INDEX && !tni_is_kept(p, i)) add_index(p, i);
        bool input = node->op == TNI_P_INPUT || node->op == TNI_P_RAND;
        if (!input) continue;
        p->memory_of[i] = add_memory(p, TNI_FROM_CALL_IN, b->domain.in[node->ref].index, b->domain.in[node->ref].type,
                                     b->domain.in[node->ref].strides, b->domain.in[node->ref].offset);
        pass->memory[p->memory_of[i]].stretched = b->domain.in[node->ref].stretched;
    }
    for (int32_t t = 0; t < b->n_todo; t++) {
        if (!tni_in_pass(p->b, p->pass, &b->todo[t])) continue;
        if (b->todo[t].gathers) {
            add_accumulator(p, t);
        } else {
            add_output(p, t);
        }
    }
    return TN_OK;
}

/* ---- dimensions -------------------------------------------------------------------------------------------------- */

/* The dimensions that are walked over to reduce: more than those of a value that is only expanded to them. */
static uint32_t reduced_mask(const tni_planner *p, int32_t node) {
    return p->b->mask[p->g->nodes[node].arg[0]];
}

static void set_dims(tni_planner *p) {
    const tni_domain *d = &p->b->domain;
    tni_pass *pass = p->pass;
    pass->n_dims = 0;
    for (int k = 0; k < d->n_dims; k++) {
        if (pass->rows_mask >> k & 1) pass->size[pass->n_dims++] = d->size[k];
    }
    uint32_t tail = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (p->needed[i]) tail |= (p->b->mask[i] | (tni_reduces_rows(p, i) ? reduced_mask(p, i) : 0)) & d->tail;
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const tni_item_todo *todo = &p->b->todo[t];
        if (!tni_in_pass(p->b, p->pass, todo)) continue;
        tail |= (todo->gathers ? reduced_mask(p, todo->node) : todo->mask) & d->tail;
    }
    pass->columns = tail ? d->size[d->n_dims - 1] : 1;
    p->list = tail && p->b->program->parts;
}

/* Is something written that has not all n dimensions? It must be so once, when its row begins. */
static bool writes_fewer(const tni_planner *p, int32_t n) {
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const tni_item_todo *todo = &p->b->todo[t];
        if (todo->gathers || !tni_in_pass(p->b, p->pass, todo)) continue;
        const int64_t *strides = p->pass->memory[p->todo_memory[t]].strides;
        for (int32_t d = 0; d < n; d++) {
            if (strides[d] == 0) return true;
        }
    }
    return false;
}

/* The pass's loops over each piece of memory and each accumulator. What is written counts first in memory order. */
static tn_status make_nest(const tni_planner *p, int32_t n_loops, tni_nest *nest) {
    tni_pass *pass = p->pass;
    int64_t **strides = tni_arena_alloc(p->b->arena, (size_t)(pass->n_memory + pass->n_accumulators) * sizeof *strides);
    if (!strides) return TN_NO_MEMORY;
    *nest = (tni_nest){.n_loops = n_loops, .sizes = pass->size, .strides = strides, .apart = 1};
    for (int32_t i = pass->n_memory - 1; i >= 0; i--) strides[nest->n_views++] = pass->memory[i].strides;
    for (int32_t i = 0; i < pass->n_accumulators; i++) strides[nest->n_views++] = pass->accumulators[i].strides;
    return TN_OK;
}

/* Fewer and longer dimensions: blocks are then whole more often, and there are fewer rows to find. They are in memory
 * order too, where nothing depends on which is the last one. */
static tn_status merge_dims(tni_planner *p) {
    tni_pass *pass = p->pass;
    const int32_t rows = pass->n_dims, n = rows + (pass->columns != 1);
    tni_nest nest;
    bool apart = pass->reduces, fixed = apart || p->list || writes_fewer(p, n);
    for (int32_t i = 0; i < p->g->n; i++) fixed |= p->needed[i] && p->g->nodes[i].op == TNI_P_RAND;
    for (int32_t i = 0; i < pass->n_accumulators; i++) fixed |= pass->accumulators[i].deviates;
    for (int32_t i = 0; i < pass->n_memory; i++) apart |= pass->memory[i].stretched;
    TN_TRY(make_nest(p, apart ? rows : n, &nest));
    pass->size[rows] = pass->columns;
    if (!fixed && !apart) tni_nest_sort(&nest, pass->n_memory);
    tni_nest_merge(&nest);
    pass->n_dims = nest.n_loops;
    if (apart) { /* the columns stay apart, behind the rows' dimensions */
        for (int32_t i = 0; i < nest.n_views; i++) nest.strides[i][pass->n_dims] = nest.strides[i][rows];
    } else if (pass->n_dims > 0) {
        pass->columns = pass->size[--pass->n_dims];
    }
    return TN_OK;
}

/* ---- levels and stages ------------------------------------------------------------------------------------------- */

static uint8_t level_of_memory(const tni_pass *pass, const tni_memory *memory) {
    uint8_t level = TNI_ONCE;
    for (int32_t d = 0; d < pass->n_dims; d++) {
        if (memory->strides[d] != 0) level = TNI_ROW;
    }
    return memory->strides[pass->n_dims] != 0 ? TNI_ELEMENT : level;
}

/* Elements that depend on the column alone. */
static bool is_fixed(const tni_planner *p, int32_t i) {
    const tni_gnode *node = &p->g->nodes[i];
    if (p->level[i] != TNI_ELEMENT || node->op == TNI_P_RAND || p->pass->n_dims == 0) return false;
    if (p->memory_of[i] >= 0) {
        const int64_t *strides = p->pass->memory[p->memory_of[i]].strides;
        for (int32_t d = 0; d < p->pass->n_dims; d++) {
            if (strides[d] != 0) return false;
        }
        return true;
    }
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) {
        int32_t arg = tni_resolve(p->b, node->arg[k]);
        if (p->level[arg] != TNI_ONCE && !p->fixed[arg]) return false;
    }
    return true;
}

static void set_levels(tni_planner *p) {
    const tni_pass *pass = p->pass;
    p->n_stages = 1;
    for (int32_t i = 0; i < p->g->n; i++) {
        const tni_gnode *node = &p->g->nodes[i];
        if (!p->needed[i]) continue;
        bool leaf = p->memory_of[i] >= 0;
        p->level[i] = leaf ? level_of_memory(pass, &pass->memory[p->memory_of[i]]) : TNI_ONCE;
        p->stage[i] = 0;
        if (node->op == TNI_P_RAND) p->level[i] = TNI_ELEMENT;
        for (int k = 0; k < 3 && !leaf && node->arg[k] >= 0; k++) {
            if (node->op == TNI_P_SUM_TO && k == 1) continue;
            int32_t arg = tni_resolve(p->b, node->arg[k]);
            if (p->level[arg] > p->level[i]) p->level[i] = p->level[arg];
            if (p->stage[arg] > p->stage[i]) p->stage[i] = p->stage[arg];
        }
        if (!leaf && tni_reduces_rows(p, i)) {
            p->level[i] = TNI_ROW;
            p->stage[i]++;
        }
        if (p->stage[i] >= p->n_stages) p->n_stages = p->stage[i] + 1;
        p->fixed[i] = is_fixed(p, i);
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

int32_t tni_todo_node(const tni_planner *p, const tni_item_todo *todo) {
    return tni_resolve(p->b, todo->gathers ? p->g->nodes[todo->node].arg[0] : todo->node);
}

uint8_t tni_level_of_todo(const tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    const tni_pass *pass = p->pass;
    if (todo->gathers) return pass->narrow && pass->reduces ? TNI_ROW : TNI_ELEMENT;
    int32_t node = tni_todo_node(p, todo);
    uint8_t stored = level_of_memory(pass, &pass->memory[p->todo_memory[t]]);
    uint8_t level = p->g->nodes[node].op == TNI_P_CONST ? TNI_ONCE : p->level[node];
    return stored > level ? stored : level;
}

/* When a todo is done. Updates wait for the last stage: what they overwrite may be read until then. */
int32_t tni_stage_of_todo(const tni_planner *p, int32_t t) {
    const tni_item_todo *todo = &p->b->todo[t];
    int32_t node = tni_todo_node(p, todo);
    bool updates = todo->output >= 0 && tni_updated_by(p->b, todo->output) >= 0;
    return updates ? p->n_stages - 1 : p->g->nodes[node].op == TNI_P_CONST ? 0 : p->stage[node];
}

/* Is everything that the pass makes rounded to bf16? What another pass has computed of the same values, and exactly,
 * may be compared with them, so nothing may be kept for one. */
static bool makes_bf16(const tni_planner *p) {
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const tni_item_todo *todo = &p->b->todo[t];
        const bool shared = !todo->gathers && todo->output < 0 && p->b->lowered[todo->node].kept;
        if (shared && !tni_in_pass(p->b, p->pass, todo)) continue; /* exact in either kind of pass (shared.c) */
        if (todo->gathers || todo->output < 0) return false;
        if (tni_in_pass(p->b, p->pass, todo) && p->pass->memory[p->todo_memory[t]].type != TN_BF16) return false;
    }
    return true;
}

/* Does a step, such as floor or a comparison, stand behind a quotient or a function? Where its argument is a little off
 * the step, the result is wholly another: floor(6 / 3) is 2 and never 1. */
static tn_status has_steps(const tni_planner *p, bool *steps) {
    const tni_graph *g = p->g;
    bool *rounded = tni_arena_alloc(p->b->arena, (size_t)g->n + 1);
    if (!rounded) return TN_NO_MEMORY;
    *steps = false;
    for (int32_t i = 0; i < g->n; i++) {
        const tni_gnode *n = &g->nodes[i];
        bool behind = false;
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) behind |= rounded[tni_resolve(p->b, n->arg[k])];
        const bool whole = n->op == TNI_P_CAST && tni_class_of(g, n->kind) != TNI_CLASS_FLOAT;
        const bool is_step = whole || n->op == TNI_P_FLOOR || n->op == TNI_P_CEIL || n->op == TNI_P_TRUNC ||
                             n->op == TNI_P_ROUND || n->op == TNI_P_SIGN || n->op == TNI_P_MOD ||
                             tni_prims[n->op].typing == TNI_TYPED_TEST;
        *steps |= p->needed[i] && p->memory_of[i] < 0 && is_step && behind;
        const bool made = p->b->lowered[i].kept || (p->memory_of[i] < 0 && !tni_is_kept(p, i));
        rounded[i] = made && (behind || tni_prims[n->op].typing == TNI_TYPED_FLOAT);
    }
    return TN_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* For what is known of each node in this pass. */
static tn_status make_room(tni_planner *p) {
    tni_arena *arena = p->b->arena;
    const size_t n = (size_t)p->g->n + 1;
    p->needed = tni_arena_alloc(arena, n * sizeof *p->needed);
    p->level = tni_arena_alloc(arena, n * sizeof *p->level);
    p->fixed = tni_arena_alloc(arena, n * sizeof *p->fixed);
    p->stage = tni_arena_alloc(arena, n * sizeof *p->stage);
    p->memory_of = tni_arena_alloc(arena, n * sizeof *p->memory_of);
    p->todo_memory = tni_arena_alloc(arena, ((size_t)p->b->n_todo + 1) * sizeof *p->todo_memory);
    bool there = p->needed && p->level && p->fixed && p->stage && p->memory_of && p->todo_memory;
    return there ? TN_OK : TN_NO_MEMORY;
}

tn_status tni_plan_pass(tni_binding *b, tni_pass *pass, tni_planner *p) {
    *p = (tni_planner){.b = b, .pass = pass, .g = &b->specialized.graph};
    TN_TRY(make_room(p));
    mark_needed(p);
    TN_TRY(list_memory(p));
    set_dims(p);
    TN_TRY(merge_dims(p));
    set_levels(p);
    bool steps;
    TN_TRY(has_steps(p, &steps));
    pass->coarse = makes_bf16(p) && !steps;
    return TN_OK;
}
