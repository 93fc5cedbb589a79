/* Which kernels a pass becomes on the GPU, how much each thread has, and over which grid. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static int64_t ceil_of(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

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
    tni_planner *p = part->p;
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
            if (!(n->op == TNI_P_SUM_TO && k == 1)) part->needed[tni_resolve(p, n->arg[k])] = true;
        }
    }
}

static void mark_used(tni_gpu_part *part, bool tail) {
    tni_planner *p = part->p;
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

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

typedef struct elements {
    int64_t most;          /* bytes of an element that lies beside its neighbours, in tensors that move */
    int32_t moving, fixed; /* bytes that are loaded for one column: of this row, and of every row */
    int32_t operations;
    bool stored; /* some are */
} elements;

static void count_memory(elements *e, const tni_pass *pass, int32_t i) {
    const tni_memory *m = &pass->memory[i];
    int64_t size = (int64_t)tn_type_size(m->type);
    if (m->strides[pass->n_dims] != 1) return;
    if (size > e->most) e->most = size;
}

static elements count_elements(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    elements e = {0};
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->g->nodes[i].op == TNI_P_CONST) continue;
        if (p->level[i] == TNI_ELEMENT) e.operations++;
        if (!tni_gpu_is_leaf(part, i)) continue;
        int32_t size = (int32_t)tn_type_size(p->pass->memory[p->memory_of[i]].type);
        if (p->fixed[i]) {
            e.fixed += size;
        } else {
            e.moving += size;
            count_memory(&e, p->pass, p->memory_of[i]);
        }
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && !p->b->todo[t].gathers && tni_level_of_todo(p, t) == TNI_ELEMENT;
        if (here) count_memory(&e, p->pass, p->todo_memory[t]);
        e.stored |= here;
    }
    return e;
}

/* 16 bytes of the largest type: with 32 of them, a warp's accesses would have gaps. */
static int32_t vector_of(const elements *e) {
    return e->most ? (int32_t)(16 / e->most) : 1;
}

/* Does every vector of every row begin at a multiple of its size? */
static bool strides_align(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    if (part->vector == 1 || (part->reduces && pass->columns % part->vector)) return part->vector == 1;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const tni_memory *m = &pass->memory[i];
        if (!part->used[i] || m->strides[pass->n_dims] != 1) continue;
        int64_t bytes = part->vector * (int64_t)tn_type_size(m->type);
        if (bytes > 16) bytes = 16;
        for (int32_t d = 0; d < pass->n_dims; d++) {
            if (m->strides[d] * (int64_t)tn_type_size(m->type) % bytes) return false;
        }
    }
    return true;
}

/* Does everything that has elements of its own lie in memory as they are counted, so that a vector may go across the end of
 * a row? */
static bool lies_in_order(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const int64_t *strides = pass->memory[i].strides;
        int64_t step = pass->columns;
        if (!part->used[i] || strides[pass->n_dims] == 0) continue;
        if (strides[pass->n_dims] != 1) return false;
        for (int32_t d = pass->n_dims - 1; d >= 0; step *= pass->size[d--]) {
            if (strides[d] != step) return false;
        }
    }
    return true;
}

/* Nothing is made but elements. */
static bool makes_elements(const tni_gpu_part *part) {
    for (int32_t t = 0; t < part->p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && !tni_gpu_waits(part, t);
        if (here && tni_level_of_todo(part->p, t) != TNI_ELEMENT) return false;
    }
    return true;
}

/* Where rows are no whole vectors, vectors of all rows together. What there is one of for a row is looked up for each. */
static bool is_spread(const tni_gpu_part *part, const elements *e) {
    bool plain = !part->flat && !part->reduces && !part->list && !part->n_sums && !part->kept && !part->random;
    return plain && !e->fixed && part->vector > 1 && part->p->pass->columns >= part->vector && !strides_align(part) &&
           lies_in_order(part) && makes_elements(part);
}

/* Rows at a time: 4 vectors under way for each thread, and no more code than is worth it. One long row has small blocks
 * and one vector for each thread: that is what memory is fastest with. Sums have fewer blocks, with twice as much under
 * way, and twice that where something is stored as well. */
static void set_plain(tni_gpu_part *part, const elements *e) {
    enum { BYTES = 16, CODE = 1200 };
    bool single = part->flat && !part->n_sums;
    int32_t bytes = e->moving * part->vector, n = 1, most = !part->n_sums || part->list ? 4 : e->stored ? 16 : 8;
    part->threads = single && !part->small ? TNI_GPU_THREADS / 2 : TNI_GPU_THREADS;
    while (!single && n < most && 2 * n * bytes <= most * BYTES && 2 * n * part->vector * e->operations <= CODE) n *= 2;
    part->wide = !part->flat && !part->list && !part->n_sums && !e->fixed &&
                 ceil_of(part->p->pass->columns, part->vector) >= 32 * n;
    part->unroll[0] = n;
    part->unroll[1] = n * part->vector < 8 ? n * part->vector : 8;
    part->bound = part->threads;
    part->n_slots = 0;
    for (int32_t i = 0; i < part->n_sums; i++) {
        if (part->p->pass->accumulators[part->sums[i]].strides[part->p->pass->n_dims] == 0) part->n_slots = 1;
    }
}

static void count_rows(const tni_gpu_part *part, tni_gpu_grid *g) {
    const tni_pass *pass = part->p->pass;
    g->rows = g->kept = 1;
    for (int32_t d = 0; d < pass->n_dims; d++) *(part->kept >> d & 1 ? &g->kept : &g->rows) *= pass->size[d];
}

static bool is_small(const tni_gpu_part *part) {
    tni_gpu_grid all = {0};
    count_rows(part, &all);
    return !part->list &&
           all.kept * all.rows * part->p->pass->columns <= (int64_t)TNI_GPU_ROUNDS * TNI_GPU_THREADS * part->vector;
}

static void set_spread(tni_gpu_part *part) {
    tni_gpu_grid all = {0};
    count_rows(part, &all);
    part->whole = all.rows * part->p->pass->columns % part->vector == 0;
    part->threads = part->bound = part->small ? TNI_GPU_THREADS : TNI_GPU_THREADS / 2;
    part->unroll[0] = part->unroll[1] = 1;
    part->n_slots = 0;
}

/* How many threads have a row and how many vectors each, by the row's length and the types alone. */
static void set_rows(tni_gpu_part *part, const elements *e) {
    enum { MOST = 512, USUAL = 256, STREAM = 512 };
    int64_t chunks = ceil_of(part->p->pass->columns, part->vector),
            vectors = ceil_of((e->moving + e->fixed) * part->vector, 16);
    int64_t most = vectors > 0 ? TNI_GPU_VECTORS / vectors : TNI_GPU_VECTORS, each = 1;
    if (part->ring && vectors > 0) most = TNI_GPU_RING_VECTORS / vectors; /* threads have more registers */
    if (most < 1) most = 1;
    while (each * 2 <= most && chunks > 32 * each && each < 4) each *= 2;
    part->streams = false;
    part->bound = TNI_GPU_THREADS;
    if (chunks <= 32 * each) {
        part->lanes = 1;
        while (part->lanes * each < chunks) part->lanes *= 2;
    } else {
        /* where blocks walk, a barrier for each row is much for a thread with one vector */
        const int64_t single = part->ring ? USUAL / 2 : USUAL;
        for (each = 1; each * 2 <= most && chunks > (each == 1 ? single : USUAL * each);) each *= 2;
        part->streams = chunks > MOST * each;
        if (part->streams) each = vectors <= 1 ? 4 : vectors <= 2 ? 2 : 1;
        part->lanes = part->streams ? STREAM : (int32_t)round_up(ceil_of(chunks, each), 32);
        part->bound = part->lanes <= 256 ? 256 : 512;
    }
    /* two stages of a ring have to fit. Few rows do without: how they are shared out they have in common with many */
    int64_t down = part->lanes <= 32 ? TNI_GPU_THREADS / part->lanes : 1;
    part->ring &= !part->small && !part->streams && down <= TNI_GPU_RING_ROWS &&
                  2 * down * part->p->pass->columns * e->moving <= part->ring_most;
    part->unroll[0] = part->unroll[1] = (int32_t)each;
    part->n_slots = 1;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        bool reduced = part->needed[i] && part->p->memory_of[i] < 0 && part->p->g->nodes[i].op != TNI_P_CONST;
        if (reduced && tni_reduces_rows(part->p, i)) part->n_slots++;
    }
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

/* Bulk copies have pieces of 16 bytes, and GPUs have them from sm_90 on. Text that is only looked at is for such a one. */
static bool may_have_ring(tni_gpu_part *part, const elements *e) {
    const tni_planner *p = part->p;
    const tn_call *call = p->b->call;
    const tni_gpu *gpu;
    bool known = call->device.kind == TN_CUDA && tni_gpu_get(call->name, call->device.index, &gpu) == TN_OK;
    part->sms = known ? gpu->sms : TNI_GPU_SMS;
    part->ring_most = TNI_GPU_RING_MOST;
    if (known && gpu->shared_per_block - TNI_GPU_RING_REST < part->ring_most)
        part->ring_most = gpu->shared_per_block - TNI_GPU_RING_REST;
    if ((known && gpu->major < 9) || !part->n_sums || !part->reduces || !part->whole || !e->moving) return false;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || p->fixed[i]) continue;
        const tni_memory *m = &p->pass->memory[p->memory_of[i]];
        if (m->strides[p->pass->n_dims] != 1 || part->vector * tn_type_size(m->type) < 16) return false;
    }
    return strides_align(part);
}

/* Few threads, and about as much on its way as memory is fastest with: twice as much is a tenth slower. A stage has as many
 * rows as a block has at a time. */
static void set_ring(const tni_gpu_part *part, const elements *e, tni_gpu_grid *g) {
    enum { THREADS = 512, BYTES = 64 << 10, MOST = 96 << 10 };
    g->slot = g->down * part->p->pass->columns;
    int64_t stage = g->slot * e->moving, per_sm = THREADS / g->block > 1 ? THREADS / g->block : 1;
    while (per_sm > 1 && 2 * per_sm * stage > MOST) per_sm--;
    g->stages = BYTES / (per_sm * stage);
    if (g->stages < 2) g->stages = 2;
    if (g->stages > TNI_GPU_STAGES) g->stages = TNI_GPU_STAGES;
    while (g->stages > 2 && g->stages * stage > part->ring_most) g->stages--;
    g->shared = (uint32_t)(g->stages * stage);
    g->blocks = part->sms * per_sm;
}

/* ---- grids ------------------------------------------------------------------------------------------------------- */

static tn_status count_blocks(const tni_gpu_part *part, double blocks, tni_gpu_grid *g) {
    if (blocks > INT32_MAX)
        return tn_fail(TN_UNSUPPORTED, "%s: too many rows for the GPU", part->p->b->f->contract->name);
    g->grid = (uint32_t)blocks;
    return TN_OK;
}

/* Pieces of the reduced rows: one round of the block each, or where something is summed as many as fill the GPU. */
static tn_status set_pieces(const tni_gpu_part *part, int64_t round, tni_gpu_grid *g) {
    enum { FLAT = 16, PLAIN = 8, HALVES = 4 }; /* blocks for each SM that walk over one long row, or several */
    int64_t rounds = ceil_of(g->rows, round), pieces = rounds;
    if (part->n_sums) {
        int64_t most = TNI_GPU_BLOCKS;
        if (part->reduces && part->column) most /= 4; /* such sums are as long as a row, one for each piece */
        /* what each leaves behind is f32, which counts for more beside smaller elements */
        int32_t few = part->flat ? FLAT : part->vector <= 4 ? PLAIN : HALVES;
        if (!part->reduces && !part->list) most = (int64_t)few * part->sms;
        if (g->stages) most = g->blocks;
        if (part->small && g->block == TNI_GPU_THREADS) most = 1;
        int64_t others = g->kept * g->columns, wanted = others > 0 ? most / others : 1;
        if (pieces > wanted) pieces = wanted;
    }
    if (pieces < 1) pieces = 1;
    g->span = round * ceil_of(rounds, pieces);
    g->pieces = g->rows > 0 ? ceil_of(g->rows, g->span) : 1;
    if (g->span == 0) g->span = round;
    return count_blocks(part, (double)g->kept * (double)g->columns * (double)g->pieces, g);
}

/* No piece goes across tensors: there are more of them. */
static void split_lists(const tni_gpu_part *part, int64_t vector, tni_gpu_grid *g) {
    const tni_program *program = part->p->b->program;
    g->room = g->span * g->across * vector;
    g->pieces = 0;
    for (int32_t k = 0; k < program->n_parts; k++) g->pieces += ceil_of(program->parts[k], g->room);
    if (g->pieces == 0) g->pieces = 1;
}

static tn_status spread_grid(const tni_gpu_part *part, int k, tni_gpu_grid *g) {
    *g = (tni_gpu_grid){.columns = 1, .down = 1, .span = 1, .across = part->threads, .block = (uint32_t)part->threads};
    count_rows(part, g);
    g->pieces = ceil_of(g->rows * part->p->pass->columns, g->across * (k ? 1 : part->vector));
    return count_blocks(part, (double)g->pieces, g);
}

static tn_status plain_grid(const tni_gpu_part *part, int k, tni_gpu_grid *g) {
    const tni_pass *pass = part->p->pass;
    int64_t vector = k ? 1 : part->vector, chunks = ceil_of(pass->columns, vector);
    *g = (tni_gpu_grid){.columns = 1, .down = 1};
    if (part->flat) {
        g->across = part->threads;
        g->kept = 1;
        g->rows = ceil_of(chunks, g->across);
        if (g->rows == 0) g->rows = 1; /* single values are there all the same */
    } else {
        int64_t each = part->wide ? part->unroll[k] : 1;
        count_rows(part, g);
        if (chunks < 1) chunks = 1;
        g->columns = ceil_of(chunks, part->threads * each);
        g->across = ceil_of(chunks, g->columns * each);
        g->down = part->threads / g->across;
    }
    g->block = part->small ? TNI_GPU_THREADS : (uint32_t)round_up(g->across * g->down, 32);
    TN_TRY(set_pieces(part, g->down * (part->wide ? 1 : part->unroll[k]), g));
    if (part->list) split_lists(part, vector, g);
    return TN_OK;
}

static tn_status rows_grid(const tni_gpu_part *part, const elements *e, int k, tni_gpu_grid *g) {
    *g = (tni_gpu_grid){.columns = 1, .across = part->lanes};
    count_rows(part, g);
    g->down = part->lanes <= 32 ? TNI_GPU_THREADS / part->lanes : 1;
    g->block = (uint32_t)(g->across * g->down);
    if (part->ring && k == 0) set_ring(part, e, g);
    return set_pieces(part, g->down, g);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static tni_gpu_step *add_step(tni_planner *p, tni_gpu_program *made) {
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

static void name_kernels(const tni_gpu_part *part, const char *what, tni_gpu_step *step) {
    step->pass = part->index;
    step->number = part->number;
    for (int k = 0; k < 2; k++) {
        snprintf(step->name[k], sizeof step->name[k], "tn_%d_%d%s_%c", (int)part->index, (int)part->number, what,
                 'a' + k);
    }
}

/* What the body's template is given. */
static void set_template(const tni_gpu_part *part, tni_gpu_step *step) {
    step->bound = part->bound;
    step->whole = part->whole;
    memcpy(step->unroll, part->unroll, sizeof step->unroll);
}

static int64_t lane_bytes(const tni_accumulator *acc) {
    return acc->lane == TNI_LANE_F32 ? 4 : 8;
}

/* Partial results that a variant leaves: one for each block, or for each row that a block has at a time. */
static int64_t partials_of(const tni_gpu_part *part, const tni_accumulator *acc, const tni_gpu_grid *g) {
    bool along = acc->strides[part->p->pass->n_dims] != 0;
    return g->pieces * (!along ? g->columns : g->down);
}

static void plan_finish(tni_gpu_part *part, const tni_gpu_step *from, int32_t i, tni_gpu_finish *f) {
    tni_program *program = part->p->b->program;
    tni_accumulator *acc = &part->p->pass->accumulators[i];
    int64_t most = 0;
    *f = (tni_gpu_finish){.sum = i, .across = 1};
    while (f->across < 32 && f->across < acc->size) f->across *= 2;
    f->blocks = ceil_of(acc->size, f->across);
    for (int k = 0; k < 2; k++) {
        f->partials[k] = partials_of(part, acc, &from->grid[k]);
        if (f->partials[k] > most) most = f->partials[k];
    }
    acc->partial = (int64_t)program->workspace;
    program->workspace += (size_t)round_up(most * acc->size * lane_bytes(acc), 64);
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
    step->bound = TNI_GPU_THREADS;
    name_kernels(part, "_finish", step);
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

/* Does a thread add up so much that what f32 loses each time would show? */
static bool goes_far(const tni_gpu_part *part, const tni_gpu_step *step) {
    enum { FAR = 512 };
    for (int k = 0; k < 2 && part->n_sums; k++) {
        const tni_gpu_grid *g = &step->grid[k];
        int64_t each = part->column ? 1 : part->reduces ? part->unroll[k] * part->vector : k ? 1 : part->vector;
        if (ceil_of(g->rows, g->pieces * g->down) * each > FAR) return true;
    }
    return false;
}

static tn_status add_part(tni_gpu_part *part, tni_gpu_program *made) {
    elements e = count_elements(part);
    tni_gpu_step *step = add_step(part->p, made);
    if (!step) return TN_NO_MEMORY;
    part->vector = vector_of(&e);
    part->flat = part->p->pass->n_dims == 0 && !part->reduces;
    part->coarse = tni_makes_bf16(part->p);
    part->list = part->p->list;
    part->whole = !part->list && part->p->pass->columns % part->vector == 0;
    part->wide = false;
    part->spread = is_spread(part, &e);
    part->small = is_small(part);
    *step = (tni_gpu_step){.kind = part->reduces ? TNI_GPU_ROWS : TNI_GPU_PLAIN,
                           .vector = part->vector,
                           .small = part->small,
                           .parts = part->list ? part->p->parts : 0};
    name_kernels(part, "", step);
    step->aligned = part->spread || strides_align(part);
    part->ring = may_have_ring(part, &e);
    if (part->reduces) {
        set_rows(part, &e);
        for (int k = 0; k < 2; k++) TN_TRY(rows_grid(part, &e, k, &step->grid[k]));
    } else if (part->spread) {
        set_spread(part);
        for (int k = 0; k < 2; k++) TN_TRY(spread_grid(part, k, &step->grid[k]));
    } else {
        set_plain(part, &e);
        for (int k = 0; k < 2; k++) TN_TRY(plain_grid(part, k, &step->grid[k]));
    }
    part->longer = goes_far(part, step);
    set_template(part, step);
    if (part->reduces) {
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
    part->vector = part->unroll[0] = part->unroll[1] = 1;
    part->bound = TNI_GPU_THREADS;
    *step = (tni_gpu_step){.kind = TNI_GPU_TAIL, .vector = 1};
    name_kernels(part, "", step);
    set_template(part, step);
    tni_gpu_grid *g = &step->grid[0];
    *g = (tni_gpu_grid){.columns = 1, .down = TNI_GPU_THREADS, .across = TNI_GPU_THREADS, .block = TNI_GPU_THREADS};
    count_rows(part, g);
    TN_TRY(set_pieces(part, TNI_GPU_THREADS, g));
    step->grid[1] = *g;
    tni_emit_cuda_tail(part);
    return TN_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static void print_params(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    int32_t width = pass->n_dims + 1, sums = pass->n_accumulators ? pass->n_accumulators : 1;
    tni_text_add(part->text,
                 "struct tn_params_%d {\n    char *memory[%d], *sums[%d];\n    i64 s[%d], z[%d], size[%d];\n"
                 "    i64 across, down, columns, span, pieces, rows, threads, stages, slot;\n",
                 (int)part->index, (int)(pass->n_memory ? pass->n_memory : 1), (int)sums,
                 (int)((pass->n_memory + pass->n_accumulators + 1) * width), (int)(width + part->p->b->n_counts),
                 (int)sums);
    if (part->p->list) {
        int n = (int)part->p->parts;
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
    return n * (width + 2) + width + n_counts + 12;
}

static tn_status check_params(tni_planner *p) {
    const tni_pass *pass = p->pass;
    int64_t words = param_words(pass, p->b->n_counts), each = 0;
    if (p->list) {
        each = 3 + tni_gpu_list_memory(pass, NULL);
        p->parts = (int32_t)((TNI_GPU_PARAMS / 8 - words) / each);
        if (p->parts > TNI_GPU_PARTS) p->parts = TNI_GPU_PARTS;
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
    bool **const flags[] = {&part->needed, &part->taken, &part->saved, &part->along, &part->guarded};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (!(*flags[i] = tni_arena_alloc(arena, n * sizeof(bool)))) return TN_NO_MEMORY;
    }
    part->made = tni_arena_alloc(arena, n * sizeof *part->made);
    part->beside = tni_arena_alloc(arena, n * sizeof *part->beside);
    part->used = tni_arena_alloc(arena, offsets * sizeof *part->used);
    return part->made && part->beside && part->used ? TN_OK : TN_NO_MEMORY;
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

tn_status tni_emit_cuda_pass(tni_planner *p, tni_gpu_program *made, tni_text *text, int32_t index) {
    TN_TRY(check_params(p));
    tni_gpu_part part = {.p = p, .text = text, .index = index};
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

void tni_gpu_join(tni_program *program) {
    enum { FINISH_WORDS = 6 }; /* of finish_params */
    tni_gpu_program *made = program->gpu;
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
