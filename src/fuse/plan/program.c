/* A formula for one form of call: which values must wait for a whole pass, and which passes there are. */
#include <string.h>

#include "planner.h"

tni_lane tni_lane_of(const tni_graph *g, int type) {
    if (type == TN_BOOL) return TNI_LANE_BOOL;
    if (type == TN_F64 || (type == TNI_TY_WEAK_FLOAT && g->wide)) return TNI_LANE_F64;
    return tni_class_of(g, type) == TNI_CLASS_INT ? TNI_LANE_INT : TNI_LANE_F32;
}

tn_type tni_lane_type(int lane) {
    static const tn_type types[] = {TN_BOOL, TN_I64, TN_F32, TN_F64};
    return types[lane];
}

int tni_lane_of_test(const tni_graph *g, const tni_gnode *node) {
    int lane = tni_lane_of(g, tni_promote(g, g->nodes[node->arg[0]].type, g->nodes[node->arg[1]].type));
    return lane == TNI_LANE_BOOL ? TNI_LANE_INT : lane;
}

/* ---- dimensions of values ---------------------------------------------------------------------------------------- */

uint32_t tni_reduced(const tni_binding *b, int32_t i) {
    const tni_gnode *node = &b->specialized.graph.nodes[i];
    bool reduces = tni_is_reduction(node->op) || node->op == TNI_P_SUM_TO;
    return reduces ? b->mask[node->arg[0]] & ~b->mask[i] : 0;
}

/* How many elements: a constant, now that the sizes are known. A position in some value has its dimensions from now on,
 * and needs the value no more. */
static void measure_shapes(tni_binding *b) {
    tni_graph *g = &b->specialized.graph;
    for (int32_t i = 0; i < g->n; i++) {
        tni_gnode *node = &g->nodes[i];
        b->mask[i] = tni_node_mask(&b->domain, node, b->mask);
        if (node->op == TNI_P_INDEX_IN) {
            node->op = TNI_P_INDEX;
            node->arg[0] = -1;
        }
        if (node->op != TNI_P_COUNT) continue;
        uint32_t of = b->mask[node->arg[0]];
        of = tni_reduced_mask(&b->domain, node->kind, of);
        *node = (tni_gnode){.op = TNI_P_CONST,
                            .type = node->type,
                            .arg = TNI_NO_ARGS,
                            .ref = b->program->n_counts,
                            .value = (double)tni_mask_count(&b->domain, of)};
        b->program->counts[b->program->n_counts++] = tni_mask_count(&b->domain, of);
    }
}

/* ---- what is to be done ------------------------------------------------------------------------------------------ */

/* Over more than a row; over everything, and along rows that are very long, in pieces as well: by the length alone, so
 * that a row comes out the same whatever is beside it. */
bool tni_gathers(const tni_binding *b, int32_t i) {
    enum { LONG_ALL = 1 << 14, LONG_ROW = 1 << 20 };
    const tni_domain *d = &b->domain;
    uint32_t gone = tni_reduced(b, i);
    if (gone == 0 || gone != d->tail) return gone != 0;
    const uint32_t kind = b->specialized.graph.nodes[i].kind, whole = (1u << d->n_dims) - 1;
    bool all = kind == TNI_OVER_ALL || (tni_is_over_items(kind) && tni_reduced_mask(d, kind, whole) == whole);
    return b->f->axes.list || d->size[d->n_dims - 1] > (all ? LONG_ALL : LONG_ROW);
}

static uint32_t rows_of(const tni_binding *b, const tni_item_todo *todo) {
    uint32_t mask = todo->gathers ? b->mask[b->specialized.graph.nodes[todo->node].arg[0]] : todo->mask;
    return mask & ~b->domain.tail;
}

/* Gathers values that have not the last dimension, where others have: they must not be counted once for each column. */
static bool is_narrow(const tni_binding *b, const tni_item_todo *todo) {
    return todo->gathers && !(b->mask[b->specialized.graph.nodes[todo->node].arg[0]] & b->domain.tail);
}

/* An output that a reduction becomes. */
static bool comes(const tni_binding *b, const tni_item_todo *todo) {
    int32_t t = todo->output >= 0 ? b->todo_of[todo->node] : -1;
    return t >= 0 && b->todo[t].becomes == todo->output;
}

bool tni_in_pass(const tni_binding *b, const tni_pass *pass, const tni_item_todo *todo) {
    return !comes(b, todo) && todo->phase == pass->phase && rows_of(b, todo) == pass->rows_mask &&
           is_narrow(b, todo) == pass->narrow;
}

static tni_item_todo *add_todo(tni_binding *b, int32_t node, int32_t output, uint32_t mask) {
    tni_item_todo *todo = &b->todo[b->n_todo++];
    *todo = (tni_item_todo){.node = node, .output = output, .becomes = -1, .mask = mask};
    todo->gathers = output < 0 && tni_gathers(b, node);
    if (output < 0) b->todo_of[node] = b->n_todo - 1;
    return todo;
}

/* Does a value need the value of argument k, or its shape only? */
static bool takes_value(const tni_gnode *node, int k) {
    bool shape = node->op == TNI_P_EXPAND || node->op == TNI_P_SUM_TO;
    return node->arg[k] >= 0 && !(shape && k == 1);
}

static bool is_extreme_of_none(const tni_binding *b, int32_t i) {
    const tni_gnode *node = &b->specialized.graph.nodes[i];
    return (node->op == TNI_P_RMAX || node->op == TNI_P_RMIN) && tni_mask_count(&b->domain, tni_reduced(b, i)) == 0 &&
           tni_mask_count(&b->domain, b->mask[i]) > 0;
}

/* No element that is asked for may depend on the maximum of no elements. logsumexp does not: what it takes of a maximum
 * is 0 where that is -inf, and the sum is log(0) then, as it should be. */
static tn_status check_not_empty(const tni_binding *b, bool *reach) {
    const tni_graph *g = &b->specialized.graph;
    memset(reach, 0, (size_t)g->n * sizeof *reach);
    for (int32_t i = 0; i < b->specialized.n_outputs; i++) {
        bool any = b->specialized.outputs[i] >= 0 && tni_mask_count(&b->domain, b->domain.out[i].mask) > 0;
        if (any) reach[b->specialized.outputs[i]] = true;
    }
    for (int32_t i = g->n - 1; i >= 0; i--) {
        if (reach[i] && is_extreme_of_none(b, i)) {
            return tn_fail(TN_BAD_SHAPE, "%s: %s of no elements", b->f->contract->name, tni_prims[g->nodes[i].op].name);
        }
        if (!reach[i] || tni_unless_infinite(b, i) >= 0) continue;
        for (int k = 0; k < 3; k++) {
            if (takes_value(&g->nodes[i], k)) reach[g->nodes[i].arg[k]] = true;
        }
    }
    return TN_OK;
}

/* Everything that todo t computes on its way; what must be there before becomes a todo of its own. */
static void find_waits(tni_binding *b, int32_t t, bool *reach) {
    const tni_graph *g = &b->specialized.graph;
    const tni_item_todo todo = b->todo[t];
    uint32_t rows = rows_of(b, &todo);
    memset(reach, 0, (size_t)g->n * sizeof *reach);
    reach[todo.gathers ? g->nodes[todo.node].arg[0] : todo.node] = true;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        if (!reach[i]) continue;
        bool own = i == todo.node && todo.output < 0;
        bool waits = tni_gathers(b, i) || (tni_reduced(b, i) && b->mask[i] != rows && !own) ||
                     (b->lowered[i].kept && !own);
        if (waits && b->todo_of[i] < 0) add_todo(b, i, -1, b->mask[i]);
        if (waits) continue;
        for (int k = 0; k < 3; k++) {
            if (takes_value(&g->nodes[i], k)) reach[g->nodes[i].arg[k]] = true;
        }
    }
}

static tn_status check_output(const tni_binding *b, int32_t i, int32_t node) {
    const tni_contract *c = b->f->contract;
    uint32_t extra = b->mask[node] & ~b->domain.out[i].mask;
    int32_t updated = tni_updated_by(b, i), k = b->domain.out[i].index;
    tn_type type = updated < 0 ? tn_out(b->call, k)->type : TN_F32;
    if (type == TN_C64 || type == TN_C128)
        return tn_fail(TN_BAD_TYPE, "%s: %s has type %s, and formulas make no complex numbers", c->name,
                       c->outputs[k].name, tn_type_name(type));
    if (type == TN_U64)
        return tn_fail(TN_BAD_TYPE, "%s: %s has type u64, and formulas make integers of 64 bits with a sign only",
                       c->name, c->outputs[k].name);
    if (!extra) return TN_OK;
    return tn_fail(TN_BAD_SHAPE, "%s: the formula gives %s a dimension of %lld elements that its shape does not have",
                   c->name, updated >= 0 ? c->inputs[updated].name : c->outputs[k].name,
                   (long long)b->domain.size[__builtin_ctz(extra)]);
}

static tn_status list_todo(tni_binding *b) {
    int32_t n = b->specialized.graph.n;
    for (int32_t i = 0; i < n; i++) b->todo_of[i] = -1;
    for (int32_t i = 0; i < b->specialized.n_outputs; i++) {
        int32_t node = b->specialized.outputs[i];
        if (node < 0) continue;
        TN_TRY(check_output(b, i, node));
        add_todo(b, node, i, b->domain.out[i].mask);
    }
    bool *reach = tni_arena_alloc(b->arena, ((size_t)n + 1) * sizeof *reach);
    if (!reach) return TN_NO_MEMORY;
    TN_TRY(check_not_empty(b, reach));
    for (int32_t t = 0; t < b->n_todo; t++) find_waits(b, t, reach);
    return TN_OK;
}

/* A reduction that is nothing but an output. */
static bool is_output_alone(const tni_binding *b, const tni_item_todo *output) {
    const tni_domain *d = &b->domain;
    int64_t dense[TN_MAX_RANK];
    int32_t t = b->todo_of[output->node];
    if (t < 0 || !b->todo[t].gathers || tni_updated_by(b, output->output) >= 0 || b->f->axes.list) return false;
    if (b->f->windows) return false;
    for (int32_t i = 0; i < b->specialized.graph.n; i++) {
        for (int k = 0; k < 3; k++) {
            if (takes_value(&b->specialized.graph.nodes[i], k) && b->specialized.graph.nodes[i].arg[k] == output->node)
                return false;
        }
    }
    for (int32_t i = 0; i < b->specialized.n_outputs; i++) {
        if (i != output->output && b->specialized.outputs[i] == output->node) return false;
    }
    tni_mask_strides(d, b->todo[t].mask, dense);
    for (int k = 0; k < d->n_dims; k++) {
        if (d->size[k] > 1 && d->out[output->output].strides[k] != dense[k]) return false;
    }
    return d->out[output->output].mask == b->todo[t].mask;
}

static void find_direct(tni_binding *b) {
    for (int32_t t = 0; t < b->n_todo && b->program->backend->writes_sums; t++) {
        const tni_item_todo *todo = &b->todo[t];
        if (todo->output >= 0 && is_output_alone(b, todo)) b->todo[b->todo_of[todo->node]].becomes = todo->output;
    }
}

/* ---- phases, workspace ------------------------------------------------------------------------------------------- */

static void set_phases(tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    int32_t last = 0;
    for (int32_t i = 0; i < g->n; i++) {
        int32_t phase = 0;
        for (int k = 0; k < 3; k++) {
            if (takes_value(&g->nodes[i], k) && b->phase[g->nodes[i].arg[k]] > phase)
                phase = b->phase[g->nodes[i].arg[k]];
        }
        if (b->todo_of[i] >= 0) b->todo[b->todo_of[i]].phase = phase++;
        b->phase[i] = phase;
        if (b->todo_of[i] >= 0 && phase > last) last = phase;
    }
    for (int32_t t = 0; t < b->n_todo; t++) {
        tni_item_todo *todo = &b->todo[t];
        bool updates = todo->output >= 0 && tni_updated_by(b, todo->output) >= 0;
        if (todo->output >= 0) todo->phase = updates ? last : b->phase[todo->node];
    }
}

static void place_in_workspace(tni_binding *b) {
    for (int32_t t = 0; t < b->n_todo; t++) {
        tni_item_todo *todo = &b->todo[t];
        if (todo->output >= 0) continue;
        todo->offset = (int64_t)b->program->workspace;
        b->program->workspace += ((size_t)tni_mask_count(&b->domain, todo->mask) * 8 + 63) & ~(size_t)63;
    }
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static bool updates_input(const tni_binding *b, const tni_item_todo *todo) {
    return todo->output >= 0 && tni_updated_by(b, todo->output) >= 0;
}

static tni_pass *pass_for(tni_binding *b, const tni_item_todo *todo) {
    tni_program *program = b->program;
    for (int32_t i = 0; i < program->n_passes; i++) {
        if (tni_in_pass(b, &program->passes[i], todo)) return &program->passes[i];
    }
    tni_pass *pass = &program->passes[program->n_passes++];
    pass->phase = todo->phase;
    pass->rows_mask = rows_of(b, todo);
    pass->narrow = is_narrow(b, todo);
    return pass;
}

static void sort_passes(tni_program *program) {
    for (int32_t i = 1; i < program->n_passes; i++) {
        for (int32_t k = i; k > 0; k--) {
            tni_pass *a = &program->passes[k - 1], *c = &program->passes[k];
            if (2 * a->phase + a->last <= 2 * c->phase + c->last) break;
            tni_pass other = *a;
            *a = *c;
            *c = other;
        }
    }
}

static bool reads(const tni_pass *pass, int32_t input) {
    for (int32_t i = 0; i < pass->n_memory; i++) {
        if (pass->memory[i].where == TNI_FROM_CALL_IN && pass->memory[i].index == input) return true;
    }
    return false;
}

/* What a pass updates, no later pass may still read. */
static tn_status check_updates(const tni_binding *b) {
    const tni_program *program = b->program;
    for (int32_t t = 0; t < b->n_todo; t++) {
        if (!updates_input(b, &b->todo[t])) continue;
        int32_t input = tni_updated_by(b, b->todo[t].output);
        bool behind = false;
        for (int32_t i = 0; i < program->n_passes; i++) {
            const tni_pass *pass = &program->passes[i];
            if (behind && reads(pass, input)) {
                return tn_fail(TN_UNSUPPORTED, "%s: updates %s, which a result of another shape still needs",
                               b->f->contract->name, b->f->contract->inputs[input].name);
            }
            behind |= tni_in_pass(b, pass, &b->todo[t]);
        }
    }
    return TN_OK;
}

static tn_status make_passes(tni_binding *b) {
    tni_program *program = b->program;
    program->passes = tni_arena_alloc(program->arena, (size_t)(b->n_todo + 1) * sizeof *program->passes);
    if (!program->passes) return TN_NO_MEMORY;
    for (int32_t t = 0; t < b->n_todo; t++) {
        if (comes(b, &b->todo[t])) continue;
        tni_pass *pass = pass_for(b, &b->todo[t]);
        pass->last |= updates_input(b, &b->todo[t]);
    }
    sort_passes(program);
    b->planners = tni_arena_alloc(b->arena, (size_t)(program->n_passes + 1) * sizeof *b->planners);
    if (!b->planners) return TN_NO_MEMORY;
    for (int32_t i = 0; i < program->n_passes; i++) {
        TN_TRY(tni_plan_pass(b, &program->passes[i], &b->planners[i]));
    }
    return check_updates(b);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* Bytes: every input that is read or updated, once, and every output. Operations: one for each element of each
 * elementwise node. */
static void add_cost(tni_binding *b, bool *reach) {
    const tni_domain *d = &b->domain;
    const tni_graph *g = &b->specialized.graph;
    tn_cost *cost = &b->program->cost;
    bool read[TNI_MAX_VIEWS] = {false};
    memset(reach, 0, (size_t)g->n * sizeof *reach);
    for (int32_t k = 0; k < b->specialized.n_outputs; k++) {
        int32_t node = b->specialized.outputs[k];
        if (node < 0) continue;
        reach[node] = true;
        if (tni_updated_by(b, k) >= 0) read[tni_updated_by(b, k)] = true;
        cost->bytes += (double)tni_mask_count(d, d->out[k].mask) * (double)tn_type_size(d->out[k].type);
    }
    for (int32_t i = g->n - 1; i >= 0; i--) {
        const tni_gnode *node = &g->nodes[i];
        if (!reach[i]) continue;
        if (node->op == TNI_P_INPUT || node->op == TNI_P_RAND) read[node->ref] = true;
        if (tni_prims[node->op].kind == TNI_ELEMENTWISE) cost->flops += (double)tni_mask_count(d, b->mask[i]);
        for (int k = 0; k < 3; k++) {
            if (takes_value(node, k)) reach[node->arg[k]] = true;
        }
    }
    for (int32_t k = 0; k < TNI_MAX_VIEWS; k++) {
        if (read[k]) cost->bytes += (double)tni_mask_count(d, d->in[k].mask) * (double)tn_type_size(d->in[k].type);
    }
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tn_status note_parts(const tni_binding *b) {
    tni_program *program = b->program;
    if (!b->f->axes.list) return TN_OK;
    const tn_slot *list = tni_list_of(b->f, b->call);
    program->n_parts = list->count;
    program->parts = tni_arena_alloc(program->arena, (size_t)list->count * sizeof *program->parts);
    if (!program->parts) return TN_NO_MEMORY;
    for (int32_t k = 0; k < list->count; k++) program->parts[k] = tn_count(&list->views[k]);
    return TN_OK;
}

/* For what is known of each node. */
static tn_status make_room(tni_binding *b) {
    const size_t n = (size_t)b->specialized.graph.n + 1;
    b->phase = tni_arena_alloc(b->arena, n * sizeof *b->phase);
    b->todo_of = tni_arena_alloc(b->arena, n * sizeof *b->todo_of);
    b->todo = tni_arena_alloc(b->arena, (n + TNI_MAX_VIEWS) * sizeof *b->todo);
    return b->phase && b->todo_of && b->todo ? TN_OK : TN_NO_MEMORY;
}

/* The graph of the call, with what every backend and the cost are made from. */
static tn_status lower(tni_binding *b) {
    TN_TRY(tni_make_domain(b->f, b->call, &b->domain));
    tni_merge_domain(b->f, &b->domain);
    TN_TRY(note_parts(b));
    TN_TRY(tni_specialize_in(b->f, &b->domain, b->call->attrs, &b->specialized));
    const size_t n = (size_t)b->specialized.graph.n + 1;
    b->mask = tni_arena_alloc(b->arena, n * sizeof *b->mask);
    b->program->counts = tni_arena_alloc(b->program->arena, n * sizeof *b->program->counts);
    if (!b->mask || !b->program->counts) return TN_NO_MEMORY;
    measure_shapes(b);
    if (b->f->windows) TN_TRY(tni_take_parts_apart(b));
    bool *reach = tni_arena_alloc(b->arena, ((size_t)b->specialized.graph.n + 1) * sizeof *reach);
    if (!reach) return TN_NO_MEMORY;
    add_cost(b, reach);
    return tni_lower(b);
}

static const tni_backend *const no_backends[] = {NULL};
static const tni_backend *const *backends = no_backends;

void tni_set_backends(const tni_backend *const *list) {
    backends = list;
}

const tni_backend *const *tni_backends(void) {
    return backends;
}

/* The first backend of the call's device that takes it. */
static tn_status choose_backend(tni_binding *b) {
    const tni_backend *const *list = backends;
    for (; *list; list++) {
        bool here = (int32_t)(*list)->device == b->call->device.kind;
        if (here && (!(*list)->accepts || (*list)->accepts(b->program))) break;
    }
    b->program->backend = *list;
    return *list ? TN_OK : tn_fail(TN_UNSUPPORTED, "%s: formulas have nothing for this device", b->f->contract->name);
}

/* For program->backend; NULL: for the one that is best. */
static tn_status bind(tni_binding *b) {
    TN_TRY(lower(b));
    if (!b->program->backend) TN_TRY(choose_backend(b));
    tni_turn(b);
    tni_stretch(b);
    TN_TRY(tni_sum_rows_first(b));
    tni_find_deviations(b);
    TN_TRY(tni_keep_shared(b));
    TN_TRY(make_room(b));
    TN_TRY(list_todo(b));
    find_direct(b);
    set_phases(b);
    tni_slice(b);
    place_in_workspace(b);
    TN_TRY(make_passes(b));
    TN_TRY(b->program->backend->plan(b));
    b->program->slice_workspace = b->program->workspace;
    b->program->workspace *= (size_t)b->program->n_slices;
    return TN_OK;
}

/* Begins a program and does `what` with it; where that fails, there is none. */
static tn_status make_program(const tni_fuse *f, const tn_call *call, const tni_backend *backend,
                              tn_status (*what)(tni_binding *b), tni_program **made) {
    *made = NULL;
    if (f->steps)
        return tn_fail(TN_UNSUPPORTED, "%s: calls operators of the table, and runs in steps", f->contract->name);
    tni_binding *b = tni_calloc(1, sizeof *b);
    if (!b) return TN_NO_MEMORY;
    b->f = f;
    b->call = call;
    b->arena = tni_arena_new();
    tni_arena *arena = tni_arena_new();
    b->program = arena && b->arena ? tni_arena_alloc(arena, sizeof *b->program) : NULL;
    tn_status status = TN_NO_MEMORY;
    if (b->program) {
        b->program->arena = arena;
        b->program->backend = backend;
        status = what(b);
    }
    if (status == TN_OK) {
        *made = b->program;
    } else {
        tni_arena_free(arena);
    }
    tni_graph_clear(&b->specialized.graph);
    tni_arena_free(b->arena);
    tni_free(b);
    return status;
}

tn_status tni_fuse_bind_to(const tni_fuse *f, const tn_call *call, const tni_backend *backend, tni_program **made) {
    TN_TRY(make_program(f, call, backend, bind, made));
    backend = (*made)->backend;
    tn_status status = backend->load ? backend->load(*made, call) : TN_OK;
    if (status == TN_OK) return TN_OK;
    tni_program_free(*made);
    *made = NULL;
    return status;
}

tn_status tni_fuse_bind(const tni_fuse *f, const tn_call *call, tni_program **made) {
    return tni_fuse_bind_to(f, call, NULL, made);
}

static const tni_backend *backend_named(const char *name) {
    const tni_backend *const *list = backends;
    while (*list && strcmp((*list)->name, name) != 0) list++;
    return *list;
}

tn_status tni_fuse_emit(const tni_fuse *f, const tn_call *call, const char *name, tni_program **made, char **source) {
    const tni_backend *backend = backend_named(name);
    *made = NULL;
    *source = NULL;
    if (!backend || !backend->emit) return tn_fail(TN_BAD_VALUE, "no backend '%s' compiles formulas", name);
    return tni_fuse_emit_for(f, call, backend, made, source);
}

tn_status tni_fuse_emit_for(const tni_fuse *f, const tn_call *call, const tni_backend *backend, tni_program **made,
                            char **source) {
    tni_text text = {0};
    *source = NULL;
    TN_TRY(make_program(f, call, backend, bind, made));
    tn_status status = backend->emit(*made, &text);
    if (status == TN_OK && text.failed) status = TN_NO_MEMORY;
    if (status == TN_OK) {
        *source = text.data;
        return TN_OK;
    }
    tni_free(text.data);
    tni_program_free(*made);
    *made = NULL;
    return status;
}

tn_status tni_fuse_cost(const tni_fuse *f, const tn_call *call, tn_cost *cost) {
    tni_program *program;
    TN_TRY(make_program(f, call, NULL, lower, &program));
    *cost = program->cost;
    tni_program_free(program);
    return TN_OK;
}

void tni_program_free(tni_program *program) {
    if (!program) return;
    if (program->backend && program->backend->release) program->backend->release(program);
    tni_arena_free(program->arena);
}

tn_status tni_program_run(const tni_program *program, const tn_call *call) {
    return program->backend->run(program, call);
}

/* A call without a workspace has no memory there, and nothing in it. */
char *tni_memory_base(const tn_call *call, const tni_memory *m, int32_t part) {
    if (m->where == TNI_FROM_PLACE) return NULL;
    if (m->where == TNI_FROM_WORKSPACE) return call->workspace ? (char *)call->workspace + m->offset : NULL;
    const tn_slot *args = m->where == TNI_FROM_CALL_IN ? call->in : call->out;
    char *base = args[m->index].views[m->list ? part : 0].data;
    return m->offset ? base + m->offset : base;
}
