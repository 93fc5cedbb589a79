/* Rows that stand upright in memory (turn.c): which formulas are made so, and how the rows are shared out. */
#include <string.h>

#include "gpu.h"

enum { BLOCK = 256, SMALL = 128, LARGE = 512, LANES = 8, DOWN = 16, FEW = 8 };

/* Do elements along the dimension lie at changing places in 16 bytes? */
static bool lies_oddly(const tni_domain *d, int32_t along) {
    for (int k = 0; k < TNI_MAX_VIEWS; k++) {
        if (d->in[k].present && d->in[k].strides[along] * (int64_t)tn_type_size(d->in[k].type) % 16) return true;
    }
    return false;
}

/* One block, or the blocks of a cluster, have all of a row: that is enough blocks where rows are short, or where many
 * are neighbours. Longer ones that are read once are faster in pieces (H200: 32768 rows of 8192 f32, 247 us and 275).
 * Where elements lie oddly pieces are slower. How many others there are must make no difference to a row's bits. */
bool tni_gpu_turns(const tni_binding *b, int32_t along) {
    enum { NARROW = 32, WIDE = 4096, ENOUGH = 128 /* neighbours for each SM, times the blocks of a cluster */ };
    enum { EACH = 16, LONG = 8 };
    const tni_domain *d = &b->domain;
    const int64_t columns = d->size[along], inner = d->size[d->n_dims - 1], blocks = tni_gpu_most_blocks(b->call);
    bool again = false; /* elements are needed once more, for results as large as they are */
    for (int k = 0; k < TNI_MAX_VIEWS; k++) again |= d->out[k].present && d->out[k].mask >> along & 1;
    if (columns > 1 << 20 || inner < NARROW) return false;
    if (columns <= EACH * DOWN * blocks) return true;
    if (columns <= LONG * EACH * DOWN * blocks && inner >= WIDE && lies_oddly(d, along)) return true;
    return again && inner * blocks >= ENOUGH * (int64_t)tni_gpu_sms(b->call);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* What is needed now that some sums are made of other values, and after which stage each value is there. */
static void set_stages(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    memset(part->needed, 0, (size_t)p->g->n * sizeof *part->needed);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (tni_gpu_has_todo(part, t)) part->needed[tni_todo_node(p, &p->b->todo[t])] = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        if (!part->needed[i]) continue;
        for (int k = 0; k < 3; k++) {
            const int32_t arg = tni_gpu_upright_arg(part, i, k);
            if (arg >= 0) part->needed[arg] = true;
        }
    }
    part->stages = 1;
    for (int32_t i = 0; i < p->g->n; i++) {
        int32_t stage = 0;
        for (int k = 0; k < 3; k++) {
            const int32_t arg = tni_gpu_upright_arg(part, i, k);
            if (arg >= 0) stage = max(stage, part->stage[arg]);
        }
        part->stage[i] = stage + (p->memory_of[i] < 0 && p->needed[i] && tni_reduces_rows(p, i));
        if (part->needed[i]) part->stages = max(part->stages, part->stage[i] + 1);
    }
}

int32_t tni_gpu_upright_arg(const tni_gpu_part *part, int32_t node, int k) {
    const tni_planner *p = part->p;
    const tni_gnode *n = &p->g->nodes[node];
    if (p->memory_of[node] >= 0 || n->op == TNI_P_CONST || n->arg[k] < 0 || (n->op == TNI_P_SUM_TO && k == 1))
        return -1;
    if (part->deviates[node] >= 0) return k == 0 ? part->deviates[node] : -1;
    return tni_resolve(p->b, n->arg[k]);
}

bool tni_gpu_upright_reduces(const tni_gpu_part *part, int32_t node, int32_t stage) {
    const tni_planner *p = part->p;
    return part->needed[node] && p->memory_of[node] < 0 && p->g->nodes[node].op != TNI_P_CONST &&
           tni_reduces_rows(p, node) && part->stage[node] == stage + 1;
}

bool tni_gpu_upright_mark(tni_gpu_part *part, int32_t stage) {
    const tni_planner *p = part->p;
    bool any = false;
    memset(part->taken, 0, (size_t)p->g->n * sizeof *part->taken);
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        const int32_t node = tni_todo_node(p, &p->b->todo[t]);
        const bool here = tni_gpu_has_todo(part, t) && tni_level_of_todo(p, t) == TNI_ELEMENT;
        if (here && part->stage[node] == stage) part->taken[node] = any = true;
    }
    for (int32_t i = p->g->n - 1; i >= 0; i--) {
        const bool now = tni_gpu_upright_reduces(part, i, stage);
        any |= now;
        if (!now && !(part->taken[i] && p->level[i] == TNI_ELEMENT)) continue;
        for (int k = 0; k < 3; k++) {
            const int32_t arg = tni_gpu_upright_arg(part, i, k);
            if (arg >= 0) part->taken[arg] = true;
        }
    }
    return any;
}

static int32_t count_stages(tni_gpu_part *part) {
    int32_t n = 0;
    for (int32_t stage = 0; stage < part->stages; stage++) n += tni_gpu_upright_mark(part, stage);
    return n;
}

/* A variance needs one stage, not two. */
static void find_deviations(tni_gpu_part *part) {
    for (int32_t i = 0; i < part->p->g->n; i++) {
        const bool here = part->needed[i] && part->p->memory_of[i] < 0 && part->p->g->nodes[i].op != TNI_P_CONST &&
                          tni_reduces_rows(part->p, i);
        part->deviates[i] = here ? tni_deviates(part->p->b, i) : -1;
    }
    set_stages(part);
}

/* ---- sharing out ------------------------------------------------------------------------------------------------- */

/* The dimension of vectors. */
static int32_t inner_of(const tni_pass *pass) {
    return pass->n_dims - 1;
}

/* As many elements as 16 bytes of the largest type have, and no more than a thread has sums for. */
static int32_t vector_of(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    int64_t most = 2;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i)) continue;
        const tni_memory *m = &pass->memory[part->p->memory_of[i]];
        if (m->strides[inner_of(pass)] == 1) most = max(most, (int64_t)tn_type_size(m->type));
    }
    return (int32_t)(16 / most);
}

/* Elements of a row that a thread may have at once. */
static int64_t most_of(const tni_gpu_part *part) {
    enum { VECTORS = 16, CODE = 1600 };
    const tni_planner *p = part->p;
    int64_t held = 0, operations = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->level[i] != TNI_ELEMENT || p->g->nodes[i].op == TNI_P_CONST) continue;
        held += tni_gpu_is_leaf(part, i);
        operations++;
    }
    int64_t most = max(VECTORS / max(held, 1), 1);
    while (most > 2 && most * part->vector * operations > CODE) most /= 2;
    return most;
}

static void set_threads(tni_gpu_part *part, int32_t threads, int32_t down) {
    const tni_pass *pass = part->p->pass;
    const int64_t chunks = ceil_div(pass->size[inner_of(pass)], part->vector);
    part->down = down;
    part->lanes = threads / down;
    while (part->lanes > LANES && part->lanes * down > 32 && part->lanes / 2 >= chunks) part->lanes /= 2;
    part->threads = part->lanes * down;
    part->bound = down == 1 ? SMALL : LARGE; /* 128 registers are enough */
}

/* Clusters that hold rows, the first that is large enough; two blocks of the smaller one are on an SM together, so that
 * one loads while the other waits. */
static const struct { int32_t threads, down; } held[] = {{BLOCK, DOWN}, {BLOCK, 2 * DOWN}, {LARGE, 4 * DOWN}};

/* By the length of a row and the formula alone, so that a row comes out the same whatever is beside it. Short rows are
 * in the registers of a block. Of longer ones that are read once, a thread has some elements at a time. Those that are
 * read again are in the registers of a cluster, or in the GPU's cache: so few of them are under way. */
static void set_form(tni_gpu_part *part) {
    enum { SHARE = 32 };
    const int64_t columns = part->p->pass->columns, most = most_of(part);
    const int32_t blocks = tni_gpu_most_blocks(part->p->b->call);
    int32_t down = 1;
    part->cluster = 1;
    part->streams = false;
    while (down < DOWN && columns > min(FEW, most) * down) down *= 2;
    set_threads(part, down == 1 ? SMALL : BLOCK, down);
    if (columns <= most * down) return;
    find_deviations(part);
    part->streams = true;
    if (count_stages(part) == 1) {
        while (part->cluster < blocks && columns > SHARE * down * part->cluster) part->cluster *= 2;
        return;
    }
    for (size_t i = 0; i < sizeof held / sizeof *held && part->streams; i++) {
        part->cluster = 1;
        while (part->cluster < blocks && columns > most * held[i].down * part->cluster) part->cluster *= 2;
        set_threads(part, held[i].threads, held[i].down);
        part->streams = columns > most * held[i].down * part->cluster;
    }
}

/* May vectors be reduced as they lie in memory, wherever rows begin? What is made of elements must not depend on which
 * row they are of, and those of one tensor alone lie alike: a thread has every `down`-th, so the same place in 16
 * bytes. What comes of it goes to its place at the end. */
static bool may_lie(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const tni_pass *pass = p->pass;
    int32_t leaves = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->level[i] != TNI_ELEMENT || p->g->nodes[i].op == TNI_P_CONST) continue;
        if (p->memory_of[i] >= 0) {
            const tni_memory *m = &pass->memory[p->memory_of[i]];
            if (!tni_gpu_lies_along(pass, inner_of(pass), p->memory_of[i])) return false;
            if (part->vector * tn_type_size(m->type) != 16) return false;
            leaves++;
        }
        for (int k = 0; k < 3; k++) {
            const int32_t arg = tni_gpu_upright_arg(part, i, k);
            if (arg >= 0 && p->level[arg] == TNI_ROW) return false;
        }
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        if (tni_gpu_has_todo(part, t) && tni_level_of_todo(p, t) == TNI_ELEMENT) return false;
    }
    return leaves == 1 && part->down % part->vector == 0 && part->lanes > 1;
}

/* 8-byte words that a block's threads, and the blocks of a cluster, exchange. */
static void set_slots(tni_gpu_part *part) {
    const tni_planner *p = part->p;
    const int32_t width = part->lanes * part->vector;
    const int32_t groups = part->lying        ? part->down
                           : part->lanes < 32 ? (int32_t)ceil_div(part->threads, 32)
                                              : part->down;
    int32_t most = 0, n = 0;
    for (int32_t i = 0; i < p->g->n; i++) {
        for (int32_t stage = 0; stage < part->stages; stage++) {
            if (!tni_gpu_upright_reduces(part, i, stage)) continue;
            const int32_t bytes = tni_gpu_lane_of(part, i) == TNI_LANE_F32 ? 4 : 8;
            most = max(most, bytes * (part->deviates[i] >= 0 ? 3 : 1));
            n++;
        }
    }
    part->n_slots = (int32_t)ceil_div(groups * width * most, 8);
    part->sets = min(n, 2);
    part->n_shares = (int32_t)ceil_div(part->cluster * width * most, 8);
}

/* Does every vector begin at a multiple of 16 bytes, or of its size? */
static bool is_aligned(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const tni_memory *m = &pass->memory[i];
        if (!part->used[i] || !tni_gpu_lies_along(pass, inner_of(pass), i)) continue;
        const int64_t size = (int64_t)tn_type_size(m->type), bytes = min(part->vector * size, 16);
        for (int32_t d = 0; d <= pass->n_dims; d++) {
            if (d != inner_of(pass) && m->strides[d] * size % bytes) return false;
        }
    }
    return true;
}

/* Of threads side by side one has the ends of the others' vectors. */
static void count_lying(const tni_gpu_part *part, tni_gpu_grid *g) {
    const int64_t blocks = g->grid / g->columns;
    g->columns = ceil_div(part->p->pass->size[inner_of(part->p->pass)], (part->lanes - 1) * part->vector);
    g->grid = (uint32_t)(blocks * g->columns);
}

tn_status tni_gpu_set_upright(tni_gpu_part *part, tni_gpu_step *step) {
    enum { SHARED = 46 << 10, LONG = 512 };
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < part->p->g->n; i++) part->deviates[i] = -1;
    set_stages(part);
    part->vector = vector_of(part);
    part->whole = pass->size[inner_of(pass)] % part->vector == 0;
    part->flat = part->list = part->wide = part->spread = part->small = part->odd = part->shifted = part->ring = false;
    part->walks = part->ahead = part->pieced = false;
    part->cuts = 0;
    set_form(part);
    part->lying = part->streams && count_stages(part) == 1 && may_lie(part);
    set_slots(part);
    while (part->cluster > 1 && 8 * (part->n_slots + part->sets * part->n_shares) > SHARED) {
        part->cluster /= 2;
        part->streams = true;
        set_slots(part);
    }
    tni_gpu_grid g = {.across = part->lanes, .down = part->down, .kept = 1, .pieces = 1, .rows = 1};
    g.width = ceil_div(pass->columns, part->cluster);
    g.columns = ceil_div(pass->size[inner_of(pass)], part->lanes * part->vector);
    g.block = (uint32_t)part->threads;
    const int64_t each = ceil_div(g.width, part->down);
    part->unroll[0] = part->unroll[1] = (int32_t)(part->streams ? min(min(most_of(part), FEW), each) : each);
    part->longer = part->streams && each > LONG;
    int64_t blocks = g.columns * part->cluster;
    for (int32_t d = 0; d < inner_of(pass); d++) blocks *= pass->size[d];
    if (blocks > INT32_MAX / 2)
        return tn_fail(TN_UNSUPPORTED, "%s: too many rows for the GPU", part->p->b->f->contract->name);
    g.grid = (uint32_t)blocks;
    step->aligned = is_aligned(part);
    step->along = inner_of(pass);
    step->grid[0] = step->grid[1] = g;
    if (part->lying) count_lying(part, &step->grid[1]);
    return TN_OK;
}
