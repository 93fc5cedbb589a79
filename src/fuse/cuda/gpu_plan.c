/* Which kernels a pass becomes on the GPU. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static uint32_t kept_by(const tni_pass *pass, const tni_accumulator *acc) {
    uint32_t mask = 0;
    for (int32_t d = 0; d < pass->n_dims; d++) mask |= acc->strides[d] != 0 ? 1u << d : 0;
    return mask;
}

/* Sums that walk alike share a part: those that keep the same rows and columns, or no rows at all. */
static bool goes_along(const tni_gpu_part *part, const tni_pass *pass, const tni_accumulator *acc) {
    uint32_t kept = kept_by(pass, acc);
    bool column = acc->strides[pass->n_dims] != 0;
    return part->n_sums == 0 || (kept == part->kept && (column == part->column || kept == 0));
}

static void take_sums(tni_gpu_part *part, bool *done) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < pass->n_accumulators; i++) {
        const tni_accumulator *acc = &pass->accumulators[i];
        if (done[i] || !goes_along(part, pass, acc)) continue;
        if (part->n_sums == 0) part->kept = kept_by(pass, acc);
        part->column |= acc->strides[pass->n_dims] != 0;
        part->sums[part->n_sums++] = i;
        done[i] = true;
    }
}

/* What the part computes: from its results back to memory. Whether it reduces rows decides which results wait, so that
 * is found out first, from all of them. */
typedef enum results { ALL, NOW, LATE } results;
static void mark_needed(tni_gpu_part *part, results which) {
    const tni_planner *p = part->p;
    memset(part->needed, 0, (size_t)p->g->n * sizeof *part->needed);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && (which == ALL || tni_gpu_waits(part, t) == (which == LATE));
        if (here) part->needed[tni_todo_node(p, &p->b->todo[t])] = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const tni_gnode *n = &p->g->nodes[i];
        if (!part->needed[i] || p->memory_of[i] >= 0 || n->op == TNI_P_CONST) continue;
        part->reduces |= tni_reduces_rows(p, i);
        for (int k = 0; k < 3 && n->arg[k] >= 0; k++) {
            if (!(n->op == TNI_P_SUM_TO && k == 1)) part->needed[tni_resolve(p->b, n->arg[k])] = true;
        }
    }
}

static void mark_used(tni_gpu_part *part, bool tail) {
    const tni_planner *p = part->p;
    const tni_pass *pass = p->pass;
    part->offsets = pass->n_memory + pass->n_accumulators + 1;
    memset(part->used, 0, (size_t)part->offsets * sizeof *part->used);
    part->stages = 1;
    part->random = false;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->g->nodes[i].op == TNI_P_CONST) continue;
        if (p->memory_of[i] >= 0) part->used[p->memory_of[i]] = true;
        if (p->g->nodes[i].op == TNI_P_RAND) part->random = part->used[part->offsets - 1] = true;
        if (p->stage[i] >= part->stages) part->stages = p->stage[i] + 1;
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (!tni_gpu_has_todo(part, t) || tni_gpu_waits(part, t) != tail) continue;
        part->used[p->todo_memory[t] + (p->b->todo[t].gathers ? pass->n_memory : 0)] = true;
        if (part->reduces && tni_stage_of_todo(p, t) >= part->stages) part->stages = tni_stage_of_todo(p, t) + 1;
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static tni_gpu_step *add_step(const tni_planner *p, tni_gpu_program *made) {
    if (made->n_steps == made->capacity) {
        int32_t wanted = made->capacity ? 2 * made->capacity : 8;
        tni_gpu_step *steps = tni_arena_alloc(p->b->program->arena, (size_t)wanted * sizeof *steps);
        if (!steps) return NULL;
        if (made->n_steps) memcpy(steps, made->steps, (size_t)made->n_steps * sizeof *steps);
        made->steps = steps;
        made->capacity = wanted;
    }
    tni_gpu_step *step = &made->steps[made->n_steps++];
    *step = (tni_gpu_step){0};
    return step;
}

/* Its kernels' names, and what the body's template is given. */
static void describe(const tni_gpu_part *part, const char *what, tni_gpu_step *step) {
    step->pass = part->index;
    step->number = part->number;
    step->vector = part->vector;
    step->bound = part->bound;
    step->whole = part->whole;
    step->odd = part->odd;
    step->shifted = part->shifted;
    step->pieced = part->pieced;
    step->cluster = part->cluster;
    step->cut = part->cuts > 0;
    step->sums = part->n_sums > 0;
    step->walks = part->reduces && part->walks;
    step->along = part->p->pass->n_dims - part->upright;
    memcpy(step->unroll, part->unroll, sizeof step->unroll);
    for (int k = 0; k < 2; k++) {
        snprintf(step->name[k], sizeof step->name[k], "tn_%d_%d%s_%c", (int)part->index, (int)part->number, what,
                 'a' + k);
    }
}

static int64_t lane_bytes(const tni_accumulator *acc) {
    return (acc->lane == TNI_LANE_F32 ? 4 : 8) * (acc->deviates ? 3 : 1);
}

/* Partial results that a variant leaves: one for each block, or for each row that a block has at a time. */
static int64_t partials_of(const tni_gpu_part *part, const tni_accumulator *acc, const tni_gpu_grid *g) {
    bool along = acc->strides[part->p->pass->n_dims] != 0;
    if (along && part->reduces) return g->pieces * (part->lanes <= 32 ? g->block / 32 : 1);
    return g->pieces * (!along ? g->columns : g->down);
}

int64_t tni_gpu_pitch(const tni_accumulator *acc) {
    enum { FEW = 32, TOGETHER = 4 };
    return acc->size <= FEW ? acc->size : round_up(acc->size, TOGETHER);
}

static void plan_finish(tni_gpu_part *part, const tni_gpu_step *from, int32_t i, tni_gpu_finish *f) {
    tni_program *program = part->p->b->program;
    tni_accumulator *acc = &part->p->pass->accumulators[i];
    int64_t most = 0;
    *f = (tni_gpu_finish){.sum = i, .across = 1};
    while (f->across < 32 && f->across < acc->size) f->across *= 2;
    f->blocks = ceil_div(acc->size, f->across);
    for (int k = 0; k < 2; k++) {
        f->partials[k] = partials_of(part, acc, &from->grid[k]);
        if (f->partials[k] > most) most = f->partials[k];
    }
    acc->partial = (int64_t)program->workspace;
    program->workspace += (size_t)round_up(most * tni_gpu_pitch(acc) * lane_bytes(acc), 64);
}

/* One kernel behind the part's adds up all that its blocks have left. */
static tn_status add_finish(tni_gpu_part *part, tni_gpu_program *made) {
    tni_gpu_step *step = add_step(part->p, made);
    size_t bytes = (size_t)part->n_sums * sizeof *step->finish;
    if (!step) return TN_NO_MEMORY;
    step->finish = tni_arena_alloc(part->p->b->program->arena, bytes);
    if (!step->finish) return TN_NO_MEMORY;
    step->kind = TNI_GPU_FINISH;
    step->n_finish = part->n_sums;
    describe(part, "_finish", step);
    step->cluster = 1;
    step->bound = TNI_GPU_THREADS;
    int64_t blocks = 0;
    for (int32_t i = 0; i < part->n_sums; i++) {
        plan_finish(part, step - 1, part->sums[i], &step->finish[i]);
        blocks += step->finish[i].blocks;
    }
    if (blocks > INT32_MAX)
        return tn_fail(TN_UNSUPPORTED, "%s: too many sums for the GPU", part->p->b->f->contract->name);
    for (int k = 0; k < 2; k++) step->grid[k] = (tni_gpu_grid){.block = TNI_GPU_THREADS, .grid = (uint32_t)blocks};
    tni_emit_cuda_finish(part);
    return TN_OK;
}

static tn_status add_part(tni_gpu_part *part, tni_gpu_program *made) {
    tni_gpu_step *step = add_step(part->p, made);
    if (!step) return TN_NO_MEMORY;
    part->coarse = part->p->pass->coarse;
    part->upright = part->reduces && part->p->b->domain.turned && !part->n_sums && part->p->pass->n_dims > 0;
    TN_TRY(part->upright ? tni_gpu_set_upright(part, step) : tni_gpu_set_grids(part, step));
    step->kind = part->upright ? TNI_GPU_UPRIGHT : part->reduces ? TNI_GPU_ROWS : TNI_GPU_PLAIN;
    step->small = part->small;
    step->parts = part->list ? part->parts : 0;
    describe(part, "", step);
    if (part->upright) {
        tni_emit_cuda_upright(part);
    } else if (part->reduces) {
        tni_emit_cuda_rows(part);
    } else if (part->spread) {
        tni_emit_cuda_spread(part);
    } else if (part->wide) {
        tni_emit_cuda_wide(part);
    } else {
        tni_emit_cuda_plain(part);
    }
    return part->n_sums ? add_finish(part, made) : TN_OK;
}

static tn_status add_tail(tni_gpu_part *part, tni_gpu_program *made) {
    tni_gpu_step *step = add_step(part->p, made);
    if (!step) return TN_NO_MEMORY;
    TN_TRY(tni_gpu_set_tail_grids(part, step));
    step->kind = TNI_GPU_TAIL;
    describe(part, "", step);
    tni_emit_cuda_tail(part);
    return TN_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static void print_params(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    int32_t width = pass->n_dims + 1, sums = pass->n_accumulators ? pass->n_accumulators : 1;
    tni_text_add(part->text,
                 "struct tn_params_%d {\n    char *memory[%d], *sums[%d];\n    i64 s[%d], z[%d], size[%d];\n"
                 "    i64 across, down, columns, span, pieces, rows, threads, stages, slot, width;\n",
                 (int)part->index, (int)(pass->n_memory ? pass->n_memory : 1), (int)sums,
                 (int)((pass->n_memory + pass->n_accumulators + 1) * width),
                 (int)(width + part->p->b->program->n_counts), (int)sums);
    if (part->p->list) {
        int n = (int)part->parts;
        tni_text_add(part->text, "    i64 parts, piece, begin[%d], number[%d], length[%d];\n    char *lists[%d][%d];\n",
                     n, n, n, n, (int)tni_gpu_list_memory(pass, NULL));
    }
    tni_text_add(part->text, "};\n");
}

/* An argument that is read and written has one place. */
int32_t tni_gpu_list_memory(const tni_pass *pass, int32_t *slot) {
    int32_t first[2 * TNI_MAX_ARGS], n = 0;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const tni_memory *m = &pass->memory[i];
        int32_t k = 0;
        while (k < n && (pass->memory[first[k]].where != m->where || pass->memory[first[k]].index != m->index)) k++;
        if (slot) slot[i] = m->list ? k : -1;
        if (m->list && k == n) first[n++] = i;
    }
    return n;
}

/* 8-byte words that print_params has, at most. */
static int64_t param_words(const tni_pass *pass, int32_t n_counts) {
    int64_t n = pass->n_memory + pass->n_accumulators + 2, width = pass->n_dims + 1;
    return n * (width + 2) + width + n_counts + 13;
}

static tn_status check_params(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const tni_pass *pass = p->pass;
    int64_t words = param_words(pass, p->b->program->n_counts), each = 0;
    if (p->list) {
        each = 3 + tni_gpu_list_memory(pass, NULL);
        part->parts = (int32_t)((TNI_GPU_PARAMS / 8 - words) / each);
        if (part->parts > TNI_GPU_PARTS) part->parts = TNI_GPU_PARTS;
    }
    if ((words + each) * 8 <= TNI_GPU_PARAMS) return TN_OK;
    return tn_fail(TN_UNSUPPORTED, "%s: the formula has too many tensors for a kernel of the GPU",
                   p->b->f->contract->name);
}

/* A part of the pass, which nothing is known of yet. */
static tn_status begin_part(const tni_gpu_part *like, tni_gpu_part *part) {
    const tni_pass *pass = like->p->pass;
    tni_arena *arena = like->p->b->arena;
    const size_t n = (size_t)like->p->g->n + 1, offsets = (size_t)pass->n_memory + (size_t)pass->n_accumulators + 1;
    *part = *like;
    bool **const flags[] = {&part->needed, &part->taken, &part->saved, &part->along};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (!(*flags[i] = tni_arena_alloc(arena, n * sizeof(bool)))) return TN_NO_MEMORY;
    }
    part->made = tni_arena_alloc(arena, n * sizeof *part->made);
    part->beside = tni_arena_alloc(arena, n * sizeof *part->beside);
    part->stage = tni_arena_alloc(arena, n * sizeof *part->stage);
    part->deviates = tni_arena_alloc(arena, n * sizeof *part->deviates);
    part->used = tni_arena_alloc(arena, offsets * sizeof *part->used);
    return part->made && part->beside && part->stage && part->deviates && part->used ? TN_OK : TN_NO_MEMORY;
}

/* Sums of other forms go first: what is stored may update what they read. */
static tn_status add_parts(tni_gpu_part *part, tni_gpu_program *made, bool *done) {
    tni_gpu_part main;
    TN_TRY(begin_part(part, &main));
    main.main = true;
    take_sums(&main, done);
    mark_needed(&main, ALL);
    mark_needed(&main, NOW);
    for (;;) {
        tni_gpu_part other;
        TN_TRY(begin_part(part, &other));
        take_sums(&other, done);
        if (!other.n_sums) break;
        other.number = ++part->number;
        mark_needed(&other, NOW);
        mark_used(&other, false);
        TN_TRY(add_part(&other, made));
    }
    mark_used(&main, false);
    bool any = main.n_sums > 0, late = false;
    for (int32_t t = 0; t < part->p->b->n_todo; t++) {
        if (!tni_gpu_has_todo(&main, t)) continue;
        any |= !tni_gpu_waits(&main, t);
        late |= tni_gpu_waits(&main, t);
    }
    if (any) TN_TRY(add_part(&main, made));
    if (!late) return TN_OK;
    tni_gpu_part tail;
    TN_TRY(begin_part(part, &tail));
    tail.main = true;
    tail.number = part->number + 1;
    mark_needed(&tail, LATE);
    mark_used(&tail, true);
    return add_tail(&tail, made);
}

/* A primitive may have been added without a form for the GPU. */
static tn_status check_primitives(const tni_planner *p) {
    for (int32_t i = 0; i < p->g->n; i++) {
        const tni_prim_row *row = &tni_prims[p->g->nodes[i].op];
        if (!p->needed[i] || row->kind != TNI_ELEMENTWISE || row->cuda) continue;
        return tn_fail(TN_UNSUPPORTED, "%s: %s has no form for the GPU", p->b->f->contract->name, row->name);
    }
    return TN_OK;
}

static tn_status plan_pass(const tni_planner *p, tni_gpu_program *made, tni_text *text, int32_t index) {
    tni_gpu_part part = {.p = p, .text = text, .index = index};
    TN_TRY(check_primitives(p));
    TN_TRY(check_params(&part));
    bool *done = tni_arena_alloc(p->b->arena, ((size_t)p->pass->n_accumulators + 1) * sizeof *done);
    if (!done) return TN_NO_MEMORY;
    print_params(&part);
    return add_parts(&part, made, done);
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

bool tni_gpu_apart;

/* One block does this step, or may do the little that a few would. */
static bool is_one_block(const tni_gpu_step *step, int k) {
    enum { FEW = 8, PARTIALS = 256 };
    const tni_gpu_grid *g = &step->grid[k];
    bool little = g->grid <= FEW && (step->small || step->kind == TNI_GPU_FINISH);
    for (int32_t i = 0; i < step->n_finish; i++) little = little && step->finish[i].partials[k] <= PARTIALS;
    return (g->grid == 1 || little) && g->block == TNI_GPU_THREADS && !g->shared && !step->parts;
}

/* Which steps are one launch? */
static void join_steps(tni_program *program) {
    enum { FINISH_WORDS = 7 }; /* of finish_params */
    tni_gpu_program *made = program->own;
    for (int k = 0; k < 2; k++) {
        tni_gpu_step *first = NULL; /* of the launch so far */
        int64_t words = 0;
        for (int32_t i = 0; i < made->n_steps; i++) {
            tni_gpu_step *step = &made->steps[i];
            const int64_t own = step->kind == TNI_GPU_FINISH
                                    ? step->n_finish * FINISH_WORDS
                                    : param_words(&program->passes[step->pass], program->n_counts);
            const bool joins = first && is_one_block(first, k) && is_one_block(step, k) &&
                               (words + own) * 8 <= TNI_GPU_PARAMS && !tni_gpu_apart;
            step->steps[k] = 0;
            if (!joins) {
                first = step;
                words = 0;
            }
            first->steps[k]++;
            words += own;
        }
    }
}

/* Device code has no 8-bit floats. */
static tn_status check_types(const tni_binding *b) {
    for (int32_t i = 0; i < b->program->n_passes; i++) {
        const tni_pass *pass = &b->program->passes[i];
        for (int32_t k = 0; k < pass->n_memory; k++) {
            const tn_type type = pass->memory[k].type;
            if (type != TN_E4M3 && type != TN_E5M2) continue;
            return tn_fail(TN_UNSUPPORTED, "%s: formulas on a GPU have no %s yet; the CPU has, or cast outside of it",
                           b->f->contract->name, tn_type_name(type));
        }
    }
    return TN_OK;
}

tn_status tni_plan_cuda(tni_binding *b) {
    tni_program *program = b->program;
    tni_text text = {0};
    TN_TRY(check_types(b));
    tni_gpu_program *made = program->own = tni_arena_alloc(program->arena, sizeof *made);
    tn_status status = made ? TN_OK : TN_NO_MEMORY;
    for (int32_t i = 0; status == TN_OK && i < program->n_passes; i++) {
        status = plan_pass(&b->planners[i], made, &text, i);
    }
    if (status == TN_OK) {
        join_steps(program);
        tni_emit_cuda_kernels(made, &text);
        made->text = text.failed ? NULL : tni_arena_text(program->arena, text.data, text.length);
        if (!made->text) status = TN_NO_MEMORY;
    }
    tni_free(text.data);
    return status;
}
