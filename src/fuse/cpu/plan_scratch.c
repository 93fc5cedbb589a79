/* Where the values of a pass are kept. Those that live inside one segment share memory as soon as the last step that
 * uses one is through; the fewer bytes, the larger the blocks that fit into the first-level cache. */
#include "core/host/arith.h"
#include "steps.h"

typedef struct hole {
    int64_t offset, bytes;
} hole;

typedef struct allocator {
    const tni_cpu_planner *c;
    hole *holes;
    int32_t n_holes;
    int64_t top;
} allocator;

static int64_t bytes_of(const tni_cpu_planner *c, const tni_value *value) {
    int64_t bytes = tni_block_count(c->pass, c->made, value->level) *
                    (value->gathered ? 8 : tni_lane_size(value->lane));
    return max(round_up(bytes, 64), 64);
}

static int64_t take(allocator *a, int64_t bytes) {
    for (int32_t i = 0; i < a->n_holes; i++) {
        if (a->holes[i].bytes != bytes) continue;
        int64_t offset = a->holes[i].offset;
        a->holes[i] = a->holes[--a->n_holes];
        return offset;
    }
    a->top += bytes;
    return a->top - bytes;
}

static void give(allocator *a, int32_t value) {
    int64_t *offset = &a->c->made->offset[value];
    a->holes[a->n_holes++] = (hole){*offset, bytes_of(a->c, &a->c->values[value])};
}

/* Only values of this segment alone are ever given back. Those of long rows stay: they are few, and a compiled loop may
 * make elements of them again. */
static bool ends_here(const allocator *a, int32_t value, int32_t step) {
    if (value < 0) return false;
    const tni_value *v = &a->c->values[value];
    const bool stays = v->level != TNI_ELEMENT && a->c->pass->columns >= TNI_LONG_ROW;
    return !v->elsewhere && !v->crosses && !stays && v->last == step;
}

static void give_arguments(allocator *a, const tni_step *step, int32_t index) {
    for (int k = 0; k < 3; k++) {
        bool again = (k > 0 && step->arg[k] == step->arg[0]) || (k > 1 && step->arg[k] == step->arg[1]);
        if (!again && step->arg[k] != step->out && ends_here(a, step->arg[k], index)) give(a, step->arg[k]);
    }
}

/* A loop may write over an argument, element by element, if both have elements of one size; over a single one never. */
static bool may_overwrite(const tni_cpu_planner *c, const tni_step *step) {
    if (step->kind != TNI_STEP_LOOP) return false;
    for (int k = 0; k < 3; k++) {
        const bool single = step->scalars >> k & 1 && step->arg[k] >= 0;
        if (single && bytes_of(c, &c->values[step->out]) == bytes_of(c, &c->values[step->arg[k]])) return false;
        if (step->arg[k] >= 0 && tni_lane_size(c->values[step->arg[k]].lane) != tni_lane_size(step->lane)) return false;
    }
    return true;
}

static void place(allocator *a, int32_t index) {
    const tni_cpu_planner *c = a->c;
    const tni_step *step = &c->steps[index];
    bool overwrites = may_overwrite(c, step);
    if (overwrites) give_arguments(a, step, index);
    if (step->out >= 0 && c->made->offset[step->out] < 0 && !c->values[step->out].elsewhere) {
        c->made->offset[step->out] = take(a, bytes_of(c, &c->values[step->out]));
    }
    if (!overwrites) give_arguments(a, step, index);
    bool unused = step->out >= 0 && c->values[step->out].last == index;
    if (unused && ends_here(a, step->out, index)) give(a, step->out);
}

tn_status tni_plan_scratch(tni_cpu_planner *c) {
    tni_cpu_pass *made = c->made;
    made->offset = tni_arena_alloc(c->b->program->arena, (size_t)made->n_values * sizeof *made->offset);
    allocator a = {.c = c, .holes = tni_malloc((size_t)(made->n_values + 1) * sizeof *a.holes)};
    if (!made->offset || !a.holes) {
        tni_free(a.holes);
        return TN_NO_MEMORY;
    }
    for (int32_t i = 0; i < made->n_values; i++) made->offset[i] = -1;
    for (int32_t i = 0; i < made->n_values; i++) {
        if (c->values[i].crosses && !c->values[i].elsewhere) made->offset[i] = take(&a, bytes_of(c, &c->values[i]));
    }
    int64_t fixed = a.top;
    for (int32_t i = 0; i < made->n_steps; i++) place(&a, i);
    made->scratch = a.top;
    c->moving = a.top - fixed;
    tni_free(a.holes);
    return TN_OK;
}
