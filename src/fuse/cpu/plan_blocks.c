/* A program for the CPU: blocks of which size, pieces of work for threads, partial results. */
#include <string.h>

#include "core/host/arith.h"
#include "steps.h"

enum { WORTH = 32 }; /* elements that are added up for each partial result */

/* Each tensor of the lists has units of its own. */
static void set_list_units(tni_cpu_pass *made, const tni_program *program) {
    made->span = 8 * made->block;
    made->spans = 1;
    made->units = 0;
    for (int32_t k = 0; k < program->n_parts; k++) {
        made->first_unit[k] = made->units;
        made->units += (program->parts[k] + made->span - 1) / made->span;
    }
    if (made->units == 0) made->units = 1; /* single values are there all the same */
    made->first_unit[program->n_parts] = made->units;
}

/* Long columns of few rows: pieces of rows would have hardly more to add up than to keep. */
static bool goes_by_columns(const tni_pass *pass, int64_t rows) {
    enum { FEW = 8 * WORTH };
    bool all = pass->n_accumulators > 0;
    for (int32_t i = 0; i < pass->n_accumulators; i++) {
        const tni_accumulator *acc = &pass->accumulators[i];
        all &= tni_gathers_columns(pass, acc) && rows * pass->columns < FEW * acc->size;
    }
    return all;
}

static void set_units(const tni_pass *pass, tni_cpu_pass *made) {
    enum { SPAN = 4096 };
    int64_t rows = 1, inner = pass->n_dims ? pass->size[pass->n_dims - 1] : 1;
    for (int32_t d = 0; d + 1 < pass->n_dims; d++) rows *= pass->size[d];
    made->span = pass->columns;
    made->spans = 1;
    made->by_columns = false;
    if (pass->columns > made->block && !pass->reduces) {
        made->by_columns = goes_by_columns(pass, rows * inner);
        made->span = made->by_columns ? SPAN : 8 * made->block;
        made->spans = ceil_div(pass->columns, made->span);
    }
    made->units = rows * ceil_div(inner, made->rows) * made->spans;
}

static tn_status try_block(tni_cpu_planner *c, int64_t block) {
    const tni_pass *pass = c->pass;
    tni_cpu_pass *made = c->made;
    int64_t inner = pass->n_dims ? pass->size[pass->n_dims - 1] : 1;
    made->block = block;
    c->streams = pass->columns > block || c->p->list;
    made->rows = c->streams ? 1 : block / (pass->columns > 0 ? pass->columns : 1);
    if (made->rows > inner) made->rows = inner;
    if (made->rows < 1) made->rows = 1;
    if (c->p->list) {
        set_list_units(made, c->b->program);
    } else {
        set_units(pass, made);
    }
    made->n_steps = made->n_values = made->n_segments = 0;
    made->waits = made->rows_wait = false;
    TN_TRY(tni_plan_steps(c));
    return tni_plan_scratch(c);
}

/* The largest block whose values stay in the first-level cache; or one that holds a whole row, from the second: to make
 * a row's values anew for every reduction would take longer. */
static tn_status choose_block(tni_cpu_planner *c) {
    for (int64_t block = TNI_BLOCK_MOST; block >= 64; block /= 2) {
        TN_TRY(try_block(c, block));
        const int64_t columns = c->pass->columns, scratch = c->made->scratch;
        bool large = block > TNI_BLOCK;
        bool light = block <= TNI_BLOCK_LIGHT && c->moving <= TNI_SCRATCH_FEW && scratch <= TNI_SCRATCH_FIXED;
        bool whole = c->pass->reduces && columns > TNI_BLOCK && columns <= block && scratch <= TNI_SCRATCH_ROW;
        if (large ? light || whole : scratch <= TNI_SCRATCH) break;
    }
    if (c->made->scratch <= TNI_SCRATCH_MOST) return TN_OK;
    return tn_fail(TN_UNSUPPORTED, "%s: the formula keeps too many values at a time", c->b->f->contract->name);
}

/* ---- rows in another order --------------------------------------------------------------------------------------- */

static void swap_dims(int64_t *of, int32_t a, int32_t b) {
    const int64_t kept = of[a];
    of[a] = of[b];
    of[b] = kept;
}

/* Of sums, only those of whole rows over another dimension than the last one may be turned: the rows that a result is
 * the sum of keep their order. */
static bool sums_keep_order(const tni_pass *pass, int32_t other) {
    const int32_t last = pass->n_dims - 1;
    for (int32_t i = 0; i < pass->n_accumulators; i++) {
        const int64_t *strides = pass->accumulators[i].strides;
        if (pass->n_dims != 2 || strides[pass->n_dims] != 0 || strides[last] == 0 || strides[other] != 0) return false;
    }
    return true;
}

/* A block has rows of the last dimension alone. Where these are few and short, as the channels of small images, most of
 * the time would go into beginning blocks: the longest dimension becomes the last one then. */
static void turn_rows(const tni_planner *p, tni_pass *pass) {
    enum { ENOUGH = TNI_BLOCK / 2 }; /* elements */
    const int32_t last = pass->n_dims - 1;
    int32_t longest = last;
    if (last < 1 || p->list || pass->size[last] * pass->columns >= ENOUGH) return;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (p->needed[i] && p->g->nodes[i].op == TNI_P_RAND) return; /* numbers go by the order of rows */
    }
    for (int32_t d = 0; d < last; d++) longest = pass->size[d] > pass->size[longest] ? d : longest;
    if (!sums_keep_order(pass, longest)) return;
    swap_dims(pass->size, longest, last);
    for (int32_t i = 0; i < pass->n_memory; i++) swap_dims(pass->memory[i].strides, longest, last);
    for (int32_t i = 0; i < pass->n_accumulators; i++) swap_dims(pass->accumulators[i].strides, longest, last);
}

bool tni_gathers_columns(const tni_pass *pass, const tni_accumulator *acc) {
    const bool same_in_rows = pass->n_dims == 0 || acc->strides[pass->n_dims - 1] == 0;
    const bool sums = acc->op == TNI_P_SUM, extreme = acc->op == TNI_P_RMAX || acc->op == TNI_P_RMIN;
    const bool known = sums || (extreme && acc->lane == TNI_LANE_F32 && pass->n_dims > 0);
    return pass->columns >= TNI_LONG_ROW && known && acc->strides[pass->n_dims] == 1 && same_in_rows;
}

static int64_t reserve(tni_program *program, int64_t bytes) {
    int64_t begin = (int64_t)program->workspace;
    program->workspace += ((size_t)bytes + 63) & ~(size_t)63;
    return begin;
}

/* Partial results of sums over more than rows: as many as are worth it and as memory allows, whoever runs it. */
static void set_pieces(tni_program *program, tni_pass *pass, tni_cpu_pass *made) {
    enum { MOST = 64, BYTES = 1 << 25 };
    int64_t size = 0, elements = made->units * made->rows * made->span;
    for (int32_t i = 0; i < pass->n_accumulators; i++) size += pass->accumulators[i].size;
    if (!pass->n_accumulators) return;
    made->pieces = min(made->units, MOST / min(program->n_slices, MOST)); /* slices are shared out, too */
    if (size > 0 && made->pieces > BYTES / (8 * size)) made->pieces = BYTES / (8 * size);
    if (size > 0 && made->pieces > elements / (WORTH * size)) made->pieces = elements / (WORTH * size);
    if (made->pieces < 1) made->pieces = 1;
    made->partials = made->pieces;
    if (made->by_columns) {
        made->pieces = made->spans;
        made->partials = 1;
    }
    for (int32_t i = 0; i < pass->n_accumulators; i++) {
        tni_accumulator *acc = &pass->accumulators[i];
        bool groups = acc->lane == TNI_LANE_F32 && pass->n_dims > 0 && tni_gathers_columns(pass, acc);
        acc->partial = reserve(program, acc->size * made->partials * 8);
        made->pending[i] = groups ? reserve(program, acc->size * made->partials * 4) : -1;
    }
}

static tn_status keep(tni_cpu_planner *c) {
    tni_cpu_pass *made = c->made;
    tni_arena *arena = c->b->program->arena;
    made->steps = tni_arena_alloc(arena, (size_t)made->n_steps * sizeof *made->steps);
    made->segments = tni_arena_alloc(arena, (size_t)made->n_segments * sizeof *made->segments);
    if (!made->steps || !made->segments) return TN_NO_MEMORY;
    memcpy(made->steps, c->steps, (size_t)made->n_steps * sizeof *made->steps);
    memcpy(made->segments, c->segments, (size_t)made->n_segments * sizeof *made->segments);
    return TN_OK;
}

/* For what is known of each node in this pass. */
static tn_status make_room(tni_cpu_planner *c) {
    const size_t n = (size_t)c->g->n + 1;
    tni_arena *arena = c->b->arena, *kept = c->b->program->arena;
    for (int lane = 0; lane < TNI_LANES; lane++) {
        c->value[lane] = tni_arena_alloc(arena, n * sizeof(int32_t));
        c->wide[lane] = tni_arena_alloc(arena, n * sizeof(int32_t));
        if (!c->value[lane] || !c->wide[lane]) return TN_NO_MEMORY;
    }
    c->direct = tni_arena_alloc(arena, n * sizeof *c->direct);
    c->taken = tni_arena_alloc(arena, n * sizeof *c->taken);
    c->when = tni_arena_alloc(arena, n * sizeof *c->when);
    c->made->pending = tni_arena_alloc(kept, ((size_t)c->pass->n_accumulators + 1) * sizeof *c->made->pending);
    if (!c->direct || !c->taken || !c->when || !c->made->pending) return TN_NO_MEMORY;
    if (!c->p->list) return TN_OK;
    c->made->first_unit = tni_arena_alloc(kept, ((size_t)c->b->program->n_parts + 1) * sizeof *c->made->first_unit);
    return c->made->first_unit ? TN_OK : TN_NO_MEMORY;
}

static tn_status plan_pass(const tni_planner *p, tni_cpu_pass *made, tni_constants *constants) {
    tni_cpu_planner c = {.p = p, .b = p->b, .g = p->g, .pass = p->pass, .made = made, .constants = constants};
    tn_status status = make_room(&c);
    turn_rows(p, p->pass);
    if (status == TN_OK) status = choose_block(&c);
    if (status == TN_OK) set_pieces(p->b->program, p->pass, made);
    if (status == TN_OK) status = keep(&c);
    tni_free(c.steps);
    tni_free(c.values);
    tni_free(c.segments);
    return status;
}

tn_status tni_plan_cpu(tni_binding *b) {
    tni_program *program = b->program;
    const size_t n = (size_t)b->specialized.graph.n + 1;
    tni_cpu_program *made = program->own = tni_arena_alloc(program->arena, sizeof *made);
    tni_constants constants = {.bits = tni_arena_alloc(b->arena, TNI_LANES * n * sizeof *constants.bits)};
    if (!made || !constants.bits) return TN_NO_MEMORY;
    made->passes = tni_arena_alloc(program->arena, (size_t)program->n_passes * sizeof *made->passes);
    if (!made->passes) return TN_NO_MEMORY;
    for (int lane = 0; lane < TNI_LANES; lane++) {
        constants.place[lane] = tni_arena_alloc(b->arena, n * sizeof(int32_t));
        if (!constants.place[lane]) return TN_NO_MEMORY;
    }
    for (int32_t i = 0; i < program->n_passes; i++) {
        TN_TRY(plan_pass(&b->planners[i], &made->passes[i], &constants));
    }
    made->constants = tni_arena_alloc(program->arena, (size_t)constants.n * sizeof *made->constants);
    if (!made->constants) return TN_NO_MEMORY;
    memcpy(made->constants, constants.bits, (size_t)constants.n * sizeof *made->constants);
    return TN_OK;
}
