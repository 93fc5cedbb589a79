/* Scans on the GPU: what the kernel is made from, its parameters, the launch. */
#include <stdlib.h>
#include <string.h>

#include "gpu_walk.h"

static const tni_gpu_walked *walked(const tni_program *program) {
    return program->own;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static tn_status refuse(const tni_binding *b) {
    return tn_fail(TN_UNSUPPORTED, "%s: the step of this scan runs element by element", b->f->contract->name);
}

/* Everything must be computed of one element of every line. */
static tn_status check_step(const tni_binding *b) {
    const tni_program *program = b->program;
    if (program->n_passes != 1 || program->n_counts || program->passes[0].n_accumulators) return refuse(b);
    const tni_planner *p = &b->planners[0];
    for (int32_t i = 0; i < p->pass->n_memory; i++) {
        const tni_memory *m = &p->pass->memory[i];
        if (m->where == TNI_FROM_PLACE || m->where == TNI_FROM_WORKSPACE) return refuse(b);
        if (m->type == TN_E4M3 || m->type == TN_E5M2) return refuse(b);
    }
    for (int32_t i = 0; i < p->g->n; i++) {
        const int op = p->g->nodes[i].op;
        if (!p->needed[i]) continue;
        if (op == TNI_P_RAND || (tni_is_reduction(op) && tni_resolve(p->b, i) == i)) return refuse(b);
        if (tni_prims[op].kind == TNI_ELEMENTWISE && !tni_prims[op].cuda) return refuse(b);
    }
    return TN_OK;
}

static void describe_memory(const tni_planner *p, const tni_gpu_walk *walk, tni_gpu_walked *made) {
    const tni_pass *pass = p->pass;
    made->state = made->next = -1;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const tni_memory *m = &pass->memory[i];
        tni_walk_memory *w = &made->memory[i];
        const bool in = m->where == TNI_FROM_CALL_IN;
        const int32_t role = in ? TNI_WALK_ROLES : walk->role[m->index];
        if (in && m->index == 0) made->state = i;
        if (role == TNI_WALK_NEXT) made->next = i;
        w->there = in ? m->index != 0 : role == TNI_WALK_RESULT || role == TNI_WALK_LAST;
        w->written = !in;
        w->along = in ? walk->in[m->index] : walk->out[m->index];
        w->tile = w->there && llabs(w->along) == 1;
        made->tiled |= w->tile;
    }
}

/* Of tiles in 46 KiB of shared memory, and of what a thread has under way in its registers. */
static void set_sizes(const tni_pass *pass, tni_gpu_walked *made) {
    enum { SHARED = 46 << 10, REGISTERS = 64, MOST = 32, LEAST = 4 };
    int64_t bytes = 0, offsets = 0, words = 0;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const int64_t size = (int64_t)tn_type_size(pass->memory[i].type);
        if (made->memory[i].tile) bytes += size;
        if (made->memory[i].tile) offsets += (int64_t)sizeof(int64_t) * 32;
        if (made->memory[i].there && !made->memory[i].written) words += 2 * ceil_div(size, 4);
    }
    made->width = MOST;
    while (made->width > LEAST && bytes * 32 * (made->width + 1) + offsets > SHARED) made->width /= 2;
    made->unroll = 16;
    while (made->unroll > LEAST && words * made->unroll > REGISTERS) made->unroll /= 2;
}

/* A warp has 32 lines, or fewer where blocks would be fewer than keep a large GPU busy. */
static tn_status set_grid(const tni_binding *b, tni_gpu_walked *made) {
    enum { FEW = 32 * 256 };
    const tni_pass *pass = b->planners[0].pass;
    made->lines = pass->columns;
    for (int32_t d = 0; d < pass->n_dims; d++) made->lines *= pass->size[d];
    int64_t each = made->lines < FEW ? 32 : TNI_WALK_THREADS;
    made->kernel = "tn_walk_side";
    if (made->tiled) {
        each = made->lines < FEW ? TNI_WALK_FEW_LINES : 32;
        made->kernel = each == 32 ? "tn_walk_32" : "tn_walk_8";
    }
    made->threads = made->tiled ? 32 : (int32_t)each;
    const int64_t blocks = ceil_div(made->lines, each);
    if (blocks > INT32_MAX) return refuse(b);
    made->grid = (uint32_t)blocks;
    return TN_OK;
}

static int64_t count_words(const tni_pass *pass) {
    const int64_t width = pass->n_dims + 1;
    return pass->n_memory * (width + 2) + width + 3;
}

static tn_status plan(tni_binding *b) {
    const tni_gpu_walk *walk = b->call->state;
    TN_TRY(check_step(b));
    const tni_planner *p = &b->planners[0];
    const size_t n = (size_t)p->g->n + 1;
    tni_gpu_walked *made = b->program->own = tni_arena_alloc(b->program->arena, sizeof *made);
    if (!made) return TN_NO_MEMORY;
    made->memory = tni_arena_alloc(b->program->arena, ((size_t)p->pass->n_memory + 1) * sizeof *made->memory);
    tni_text text = {0};
    tni_gpu_part part = {.p = p, .text = &text, .main = true};
    part.needed = tni_arena_alloc(b->arena, n * sizeof(bool));
    part.saved = tni_arena_alloc(b->arena, n * sizeof(bool));
    if (!made->memory || !part.needed || !part.saved) return TN_NO_MEMORY;
    made->n = walk->n;
    describe_memory(p, walk, made);
    if (count_words(p->pass) * 8 > TNI_GPU_PARAMS) return refuse(b);
    set_sizes(p->pass, made);
    TN_TRY(set_grid(b, made));
    tni_emit_cuda_walk(&part, walk, made);
    made->text = text.failed ? NULL : tni_arena_text(b->program->arena, text.data, text.length);
    tni_free(text.data);
    return made->text ? TN_OK : TN_NO_MEMORY;
}

static tn_status emit(tni_program *program, tni_text *text) {
    tni_text_put(text, tni_cuda_prelude);
    tni_text_put(text, walked(program)->text);
    return TN_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static tn_status load(tni_program *program, const tn_call *call) {
    tni_gpu_walked *w = program->own;
    w->launch = (tn_launch){.grid = w->grid, .block = (uint32_t)w->threads};
    memcpy(w->launch.name, w->kernel, strlen(w->kernel) + 1);
    return tni_gpu_find(call, w->text, &w->launch);
}

void tni_gpu_walk_words(const tni_program *program, const tn_call *call, uint64_t *words) {
    const tni_pass *pass = &program->passes[0];
    const tni_gpu_walked *w = walked(program);
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const char *base = w->memory[i].there ? tni_memory_base(call, &pass->memory[i], 0) : NULL;
        *words++ = (uint64_t)(uintptr_t)base;
    }
    for (int32_t i = 0; i < pass->n_memory; i++) {
        for (int32_t d = 0; d <= pass->n_dims; d++) *words++ = (uint64_t)pass->memory[i].strides[d];
    }
    for (int32_t d = 0; d < pass->n_dims; d++) *words++ = (uint64_t)pass->size[d];
    *words++ = (uint64_t)pass->columns;
    for (int32_t i = 0; i < pass->n_memory; i++) *words++ = (uint64_t)w->memory[i].along;
    *words++ = (uint64_t)w->n;
    *words++ = (uint64_t)w->lines;
    *words++ = (uint64_t)w->threads;
}

static tn_status run(const tni_program *program, const tn_call *call) {
    uint64_t words[TNI_GPU_PARAMS / 8];
    if (walked(program)->lines == 0) return TN_OK;
    tni_gpu_walk_words(program, call, words);
    return tn_cuda_launch(call, &walked(program)->launch, (void *[]){words});
}

const tni_backend tni_cuda_walk = {
    .name = "walk", .device = TN_CUDA, .plan = plan, .emit = emit, .load = load, .run = run};
