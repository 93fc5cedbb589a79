/* Where the values of a pass are kept. Those that live inside one segment share memory as soon as the last step that
 * uses one is through; the fewer bytes, the larger the blocks that fit into the first-level cache. */
#include "fuse/plan/planner.h"

typedef struct hole {
    int64_t offset, bytes;
} hole;

typedef struct allocator {
    tni_planner *p;
    hole *holes;
    int32_t n_holes;
    int64_t top;
} allocator;

static int64_t bytes_of(const tni_planner *p, const tni_value *value) {
    const tni_pass *pass = p->pass;
    int64_t elements = pass->columns < pass->block ? pass->rows * pass->columns : pass->block;
    int64_t n = value->level == TNI_ELEMENT ? elements : value->level == TNI_ROW ? pass->rows : 1;
    int64_t bytes = n * (value->gathered ? 8 : tni_lane_size(value->lane));
    return (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
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
    int64_t *offset = &a->p->pass->offset[value];
    a->holes[a->n_holes++] = (hole){*offset, bytes_of(a->p, &a->p->values[value])};
}

/* Only values of this segment alone are ever given back. */
static bool ends_here(const allocator *a, int32_t value, int32_t step) {
    if (value < 0) return false;
    const tni_value *v = &a->p->values[value];
    return !v->elsewhere && !v->crosses && v->last == step;
}

static void give_arguments(allocator *a, const tni_step *step, int32_t index) {
    for (int k = 0; k < 3; k++) {
        bool again = (k > 0 && step->arg[k] == step->arg[0]) || (k > 1 && step->arg[k] == step->arg[1]);
        if (!again && step->arg[k] != step->out && ends_here(a, step->arg[k], index)) give(a, step->arg[k]);
    }
}

/* A loop may write over an argument, element by element, if both have elements of one size. */
static bool may_overwrite(const tni_planner *p, const tni_step *step) {
    if (step->kind != TNI_STEP_LOOP || step->scalars) return false;
    for (int k = 0; k < 3; k++) {
        if (step->arg[k] >= 0 && tni_lane_size(p->values[step->arg[k]].lane) != tni_lane_size(step->lane)) return false;
    }
    return true;
}

static void place(allocator *a, int32_t index) {
    tni_planner *p = a->p;
    const tni_step *step = &p->steps[index];
    bool overwrites = may_overwrite(p, step);
    if (overwrites) give_arguments(a, step, index);
    if (step->out >= 0 && p->pass->offset[step->out] < 0 && !p->values[step->out].elsewhere) {
        p->pass->offset[step->out] = take(a, bytes_of(p, &p->values[step->out]));
    }
    if (!overwrites) give_arguments(a, step, index);
    bool unused = step->out >= 0 && p->values[step->out].last == index;
    if (unused && ends_here(a, step->out, index)) give(a, step->out);
}

tn_status tni_plan_scratch(tni_planner *p) {
    tni_pass *pass = p->pass;
    pass->offset = tni_arena_alloc(p->b->program->arena, (size_t)pass->n_values * sizeof *pass->offset);
    allocator a = {.p = p, .holes = tni_malloc((size_t)(pass->n_values + 1) * sizeof *a.holes)};
    if (!pass->offset || !a.holes) {
        tni_free(a.holes);
        return TN_NO_MEMORY;
    }
    for (int32_t i = 0; i < pass->n_values; i++) pass->offset[i] = -1;
    for (int32_t i = 0; i < pass->n_values; i++) {
        if (p->values[i].crosses && !p->values[i].elsewhere) pass->offset[i] = take(&a, bytes_of(p, &p->values[i]));
    }
    int64_t fixed = a.top;
    for (int32_t i = 0; i < pass->n_steps; i++) place(&a, i);
    pass->scratch = a.top;
    p->moving = a.top - fixed;
    tni_free(a.holes);
    return TN_OK;
}
