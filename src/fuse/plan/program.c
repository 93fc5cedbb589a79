/* A formula for one form of call: which values must wait for a whole pass, and which passes there are. */
#include <math.h>
#include <string.h>

#include "fuse/cpu/compile_c.h"
#include "fuse/cuda/gpu.h"

tni_lane tni_lane_of(const tni_graph *g, int type) {
    if (type == TN_BOOL) return TNI_LANE_BOOL;
    if (type == TN_F64 || (type == TNI_TY_WEAK_FLOAT && g->wide)) return TNI_LANE_F64;
    return tni_class_of(g, type) == TNI_CLASS_INT ? TNI_LANE_INT : TNI_LANE_F32;
}

tn_type tni_lane_type(int lane) {
    static const tn_type types[] = {TN_BOOL, TN_I64, TN_F32, TN_F64};
    return types[lane];
}

/* ---- dimensions of values ---------------------------------------------------------------------------------------- */

static uint32_t mask_of(const tni_binding *b, const tni_gnode *node) {
    const tni_domain *d = &b->domain;
    uint32_t made = 0, first = node->arg[0] >= 0 ? b->mask[node->arg[0]] : 0;
    switch (node->op) {
    case TNI_P_INPUT: return d->in[node->ref].mask;
    case TNI_P_RAND:
        for (int k = 0; k < d->n_dims; k++) made |= d->size[k] != 1 ? 1u << k : 0;
        return made;
    case TNI_P_COUNT: return 0;
    case TNI_P_SUM_TO: return first & b->mask[node->arg[1]];
    default: break;
    }
    if (tni_is_reduction(node->op)) return node->kind == TNI_OVER_ALL ? 0 : first & ~d->tail;
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) made |= b->mask[node->arg[k]];
    return made;
}

/* The dimensions that a node takes away from its argument. */
static uint32_t reduced(const tni_binding *b, int32_t i) {
    const tni_gnode *node = &b->special.graph.nodes[i];
    bool reduces = tni_is_reduction(node->op) || node->op == TNI_P_SUM_TO;
    return reduces ? b->mask[node->arg[0]] & ~b->mask[i] : 0;
}

/* How many: a constant, now that the sizes are known. */
static void count_elements(tni_binding *b) {
    tni_graph *g = &b->special.graph;
    for (int32_t i = 0; i < g->n; i++) {
        tni_gnode *node = &g->nodes[i];
        b->mask[i] = mask_of(b, node);
        if (node->op != TNI_P_COUNT) continue;
        uint32_t of = b->mask[node->arg[0]];
        if (node->kind == TNI_OVER_ROW) of &= b->domain.tail;
        *node = (tni_gnode){.op = TNI_P_CONST,
                            .type = node->type,
                            .arg = {-1, -1, -1},
                            .ref = b->n_counts,
                            .value = (double)tni_mask_count(&b->domain, of)};
        b->counts[b->n_counts++] = tni_mask_count(&b->domain, of);
    }
}

/* ---- what is to be done ------------------------------------------------------------------------------------------ */

/* Over more than a row; over everything, and along rows that are very long, in pieces as well: by the length alone, so
 * that a row comes out the same whatever is beside it. */
static bool gathers(const tni_binding *b, int32_t i) {
    enum { LONG_ALL = 1 << 14, LONG_ROW = 1 << 20 };
    const tni_domain *d = &b->domain;
    uint32_t gone = reduced(b, i);
    if (gone == 0 || gone != d->tail) return gone != 0;
    bool all = b->special.graph.nodes[i].kind == TNI_OVER_ALL;
    return b->f->axes.list || d->size[d->n_dims - 1] > (all ? LONG_ALL : LONG_ROW);
}

static uint32_t rows_of(const tni_binding *b, const tni_item_todo *todo) {
    uint32_t mask = todo->gathers ? b->mask[b->special.graph.nodes[todo->node].arg[0]] : todo->mask;
    return mask & ~b->domain.tail;
}

/* Gathers values that have not the last dimension, where others have: they must not be counted once for each column. */
static bool is_narrow(const tni_binding *b, const tni_item_todo *todo) {
    return todo->gathers && !(b->mask[b->special.graph.nodes[todo->node].arg[0]] & b->domain.tail);
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
    todo->gathers = output < 0 && gathers(b, node);
    if (output < 0) b->todo_of[node] = b->n_todo - 1;
    return todo;
}

/* Does a value need the value of argument k, or its shape only? */
static bool takes_value(const tni_gnode *node, int k) {
    bool shape = node->op == TNI_P_EXPAND || node->op == TNI_P_SUM_TO;
    return node->arg[k] >= 0 && !(shape && k == 1);
}

static bool is_extreme_of_none(const tni_binding *b, int32_t i) {
    const tni_gnode *node = &b->special.graph.nodes[i];
    return (node->op == TNI_P_RMAX || node->op == TNI_P_RMIN) && tni_mask_count(&b->domain, reduced(b, i)) == 0 &&
           tni_mask_count(&b->domain, b->mask[i]) > 0;
}

/* where(abs(m) == inf, 0, m), what logsumexp takes of a maximum: 0 for that of no elements, which is -inf here. The sum
 * is log(0) then, as it should be. */
static bool takes_extreme_of_none(const tni_graph *g, int32_t i) {
    const tni_gnode *where = &g->nodes[i];
    if (where->op != TNI_P_WHERE || g->nodes[where->arg[0]].op != TNI_P_EQ) return false;
    const int32_t *test = g->nodes[where->arg[0]].arg;
    const tni_gnode *abs = &g->nodes[test[0]], *inf = &g->nodes[test[1]];
    return abs->op == TNI_P_ABS && abs->arg[0] == where->arg[2] && inf->op == TNI_P_CONST && isinf(inf->value);
}

/* No element that is asked for may depend on the maximum of no elements. */
static tn_status check_not_empty(const tni_binding *b, bool *reach) {
    const tni_graph *g = &b->special.graph;
    memset(reach, 0, (size_t)g->n * sizeof *reach);
    for (int32_t i = 0; i < b->special.n_outputs; i++) {
        bool any = b->special.outputs[i] >= 0 && tni_mask_count(&b->domain, b->domain.out[i].mask) > 0;
        if (any) reach[b->special.outputs[i]] = true;
    }
    for (int32_t i = g->n - 1; i >= 0; i--) {
        if (reach[i] && is_extreme_of_none(b, i)) {
            return tn_fail(TN_BAD_SHAPE, "%s: %s of no elements", b->f->contract->name, tni_prims[g->nodes[i].op].name);
        }
        if (!reach[i] || takes_extreme_of_none(g, i)) continue;
        for (int k = 0; k < 3; k++) {
            if (takes_value(&g->nodes[i], k)) reach[g->nodes[i].arg[k]] = true;
        }
    }
    return TN_OK;
}

/* Everything that todo t computes on its way; what must be there before becomes a todo of its own. */
static void find_waits(tni_binding *b, int32_t t, bool *reach) {
    const tni_graph *g = &b->special.graph;
    const tni_item_todo todo = b->todo[t];
    uint32_t rows = rows_of(b, &todo);
    memset(reach, 0, (size_t)g->n * sizeof *reach);
    reach[todo.gathers ? g->nodes[todo.node].arg[0] : todo.node] = true;
    for (int32_t i = g->n - 1; i >= 0; i--) {
        if (!reach[i]) continue;
        bool own = i == todo.node && todo.output < 0;
        bool waits = gathers(b, i) || (reduced(b, i) && b->mask[i] != rows && !own);
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
    int32_t updated = b->f->outputs[i].inplace;
    tn_type type = updated < 0 ? tn_out(b->call, i)->type : TN_F32;
    if (type == TN_C64 || type == TN_C128)
        return tn_fail(TN_BAD_TYPE, "%s: %s has type %s, and formulas make no complex numbers", c->name,
                       c->outputs[i].name, tn_type_name(type));
    if (!extra) return TN_OK;
    return tn_fail(TN_BAD_SHAPE, "%s: the formula gives %s a dimension of %lld elements that its shape does not have",
                   c->name, updated >= 0 ? c->inputs[updated].name : c->outputs[i].name,
                   (long long)b->domain.size[__builtin_ctz(extra)]);
}

static tn_status list_todo(tni_binding *b) {
    int32_t n = b->special.graph.n;
    for (int32_t i = 0; i < n; i++) b->todo_of[i] = -1;
    for (int32_t i = 0; i < b->special.n_outputs; i++) {
        int32_t node = b->special.outputs[i];
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

/* On a GPU, where each kernel counts, a reduction that is nothing but an output goes there at once. */
static bool is_output_alone(const tni_binding *b, const tni_item_todo *output) {
    const tni_domain *d = &b->domain;
    int64_t dense[TN_MAX_RANK];
    int32_t t = b->todo_of[output->node];
    if (t < 0 || !b->todo[t].gathers || b->f->outputs[output->output].inplace >= 0 || b->f->axes.list) return false;
    for (int32_t i = 0; i < b->special.graph.n; i++) {
        for (int k = 0; k < 3; k++) {
            if (takes_value(&b->special.graph.nodes[i], k) && b->special.graph.nodes[i].arg[k] == output->node)
                return false;
        }
    }
    for (int32_t i = 0; i < b->special.n_outputs; i++) {
        if (i != output->output && b->special.outputs[i] == output->node) return false;
    }
    tni_mask_strides(d, b->todo[t].mask, dense);
    for (int k = 0; k < d->n_dims; k++) {
        if (d->size[k] > 1 && d->out[output->output].strides[k] != dense[k]) return false;
    }
    return d->out[output->output].mask == b->todo[t].mask;
}

static void find_direct(tni_binding *b) {
    for (int32_t t = 0; t < b->n_todo && b->cuda_text; t++) {
        const tni_item_todo *todo = &b->todo[t];
        if (todo->output >= 0 && is_output_alone(b, todo)) b->todo[b->todo_of[todo->node]].becomes = todo->output;
    }
}

/* ---- phases, workspace ------------------------------------------------------------------------------------------- */

static void set_phases(tni_binding *b) {
    const tni_graph *g = &b->special.graph;
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
        bool updates = todo->output >= 0 && b->f->outputs[todo->output].inplace >= 0;
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
    return todo->output >= 0 && b->f->outputs[todo->output].inplace >= 0;
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
        int32_t input = b->f->outputs[b->todo[t].output].inplace;
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

static void add_cost(tni_binding *b) {
    const tni_domain *d = &b->domain;
    tn_cost *cost = &b->program->cost;
    bool read[TNI_MAX_ARGS] = {false};
    for (int32_t i = 0; i < b->program->n_passes; i++) {
        const tni_pass *pass = &b->program->passes[i];
        double elements = (double)pass->columns;
        for (int32_t k = 0; k < pass->n_dims; k++) elements *= (double)pass->size[k];
        for (int32_t k = 0; k < pass->n_steps; k++) {
            bool counts = pass->steps[k].kind == TNI_STEP_LOOP && pass->steps[k].level == TNI_ELEMENT;
            if (counts) cost->flops += elements;
        }
        for (int32_t k = 0; k < b->f->contract->n_inputs; k++) read[k] |= reads(pass, k);
    }
    for (int32_t k = 0; k < b->f->contract->n_inputs; k++) {
        if (read[k]) cost->bytes += (double)tni_mask_count(d, d->in[k].mask) * (double)tn_type_size(d->in[k].type);
    }
    for (int32_t k = 0; k < b->f->n_outputs; k++) {
        if (b->special.outputs[k] < 0) continue;
        cost->bytes += (double)tni_mask_count(d, d->out[k].mask) * (double)tn_type_size(d->out[k].type);
    }
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
    for (int32_t i = 0; i < program->n_passes; i++) TN_TRY(tni_plan_pass(b, &program->passes[i]));
    return check_updates(b);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static tn_status specialise(tni_binding *b) {
    const tni_fuse *f = b->f;
    tni_given given = {.attrs = b->call->attrs};
    for (int i = 0; i < f->contract->n_inputs; i++) given.types[i] = b->domain.in[i].type;
    for (int i = 0; i < f->n_outputs; i++) given.wanted[i] = b->domain.out[i].present;
    return tni_specialise(f, &given, &b->special);
}

static tn_status note_parts(const tni_binding *b) {
    tni_program *program = b->program;
    if (!b->f->axes.list) return TN_OK;
    const tn_arg *list = tni_list_of(b->f, b->call);
    program->n_parts = list->count;
    program->parts = tni_arena_alloc(program->arena, (size_t)list->count * sizeof *program->parts);
    if (!program->parts) return TN_NO_MEMORY;
    for (int32_t k = 0; k < list->count; k++) program->parts[k] = tn_count(&list->views[k]);
    return TN_OK;
}

/* For what is known of each node. */
static tn_status make_room(tni_binding *b) {
    const size_t n = (size_t)b->special.graph.n + 1;
    b->mask = tni_arena_alloc(b->arena, n * sizeof *b->mask);
    b->phase = tni_arena_alloc(b->arena, n * sizeof *b->phase);
    b->todo_of = tni_arena_alloc(b->arena, n * sizeof *b->todo_of);
    b->todo = tni_arena_alloc(b->arena, (n + 2 * TNI_MAX_ARGS) * sizeof *b->todo);
    b->constants = tni_arena_alloc(b->arena, TNI_LANES * n * sizeof *b->constants);
    b->counts = tni_arena_alloc(b->arena, n * sizeof *b->counts);
    bool there = b->mask && b->phase && b->todo_of && b->todo && b->constants && b->counts;
    for (int lane = 0; lane < TNI_LANES && there; lane++) {
        b->constant_of[lane] = tni_arena_alloc(b->arena, n * sizeof *b->constant_of[lane]);
        there = b->constant_of[lane];
    }
    return there ? TN_OK : TN_NO_MEMORY;
}

static tn_status bind(tni_binding *b) {
    TN_TRY(tni_make_domain(b->f, b->call, &b->domain));
    TN_TRY(note_parts(b));
    TN_TRY(specialise(b));
    TN_TRY(make_room(b));
    count_elements(b);
    TN_TRY(list_todo(b));
    find_direct(b);
    set_phases(b);
    place_in_workspace(b);
    TN_TRY(make_passes(b));
    add_cost(b);
    size_t bytes = (size_t)b->n_constants * sizeof *b->constants;
    b->program->constants = tni_arena_alloc(b->program->arena, bytes);
    if (!b->program->constants) return TN_NO_MEMORY;
    memcpy(b->program->constants, b->constants, bytes);
    b->program->n_constants = b->n_constants;
    b->program->n_counts = b->n_counts;
    b->program->counts = tni_arena_alloc(b->program->arena, ((size_t)b->n_counts + 1) * sizeof *b->counts);
    if (!b->program->counts) return TN_NO_MEMORY;
    memcpy(b->program->counts, b->counts, (size_t)b->n_counts * sizeof *b->counts);
    if (b->cuda_text) {
        tni_gpu_join(b->program);
        tni_emit_cuda_kernels(b->program->gpu, b->cuda_text);
    }
    return TN_OK;
}

static tn_status bind_with(const tni_fuse *f, const tn_call *call, tni_text *cuda_text, tni_program **made) {
    *made = NULL;
    tni_binding *b = tni_calloc(1, sizeof *b);
    if (!b) return TN_NO_MEMORY;
    b->f = f;
    b->call = call;
    b->cuda_text = cuda_text;
    b->arena = tni_arena_new();
    tni_arena *arena = tni_arena_new();
    b->program = arena && b->arena ? tni_arena_alloc(arena, sizeof *b->program) : NULL;
    tn_status status = TN_NO_MEMORY;
    if (b->program && cuda_text) b->program->gpu = tni_arena_alloc(arena, sizeof *b->program->gpu);
    if (b->program && (b->program->gpu || !cuda_text)) {
        b->program->arena = arena;
        status = bind(b);
    }
    if (status == TN_OK) {
        *made = b->program;
    } else {
        tni_arena_free(arena);
    }
    tni_graph_clear(&b->special.graph);
    tni_arena_free(b->arena);
    tni_free(b);
    return status;
}

/* The text becomes the caller's, or is freed where something failed. */
static tn_status give_text(tn_status status, tni_text *text, tni_program **made, char **source) {
    *source = NULL;
    if (status == TN_OK && text->failed) {
        tni_program_free(*made);
        *made = NULL;
        status = TN_NO_MEMORY;
    }
    if (status == TN_OK) {
        *source = text->data;
    } else {
        tni_free(text->data);
    }
    return status;
}

tn_status tni_fuse_emit_c(const tni_fuse *f, const tn_call *call, tni_program **made, char **source) {
    tni_text text = {0};
    tn_status status = bind_with(f, call, NULL, made);
    if (status == TN_OK) tni_emit_c(*made, &text);
    return give_text(status, &text, made, source);
}

tn_status tni_fuse_emit_cuda(const tni_fuse *f, const tn_call *call, tni_program **made, char **source) {
    tni_text text = {0};
    tni_text_put(&text, tni_cuda_prelude);
    return give_text(bind_with(f, call, &text, made), &text, made, source);
}

tn_status tni_fuse_bind(const tni_fuse *f, const tn_call *call, tni_program **made) {
    char *source;
    if (call->device.kind != TN_CUDA) {
        TN_TRY(bind_with(f, call, NULL, made));
        tni_c_look(*made);
        return TN_OK;
    }
    tni_text text = {0};
    TN_TRY(give_text(bind_with(f, call, &text, made), &text, made, &source));
    tn_status status = tni_gpu_load(*made, call, source);
    tni_free(source);
    if (status == TN_OK) return TN_OK;
    tni_program_free(*made);
    *made = NULL;
    return status;
}

void tni_program_free(tni_program *program) {
    if (program) tni_arena_free(program->arena);
}

size_t tni_program_workspace(const tni_program *program) {
    return program->workspace;
}

tn_cost tni_program_cost(const tni_program *program) {
    return program->cost;
}
