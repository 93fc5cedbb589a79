/* How much each thread of a kernel has, and over which grid. */
#include "gpu.h"

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

typedef struct elements {
    int64_t most;          /* bytes of an element that lies beside its neighbours, in tensors that move */
    int32_t moving, fixed; /* bytes that are loaded for one column: of this row, and of every row */
    int32_t operations;
    int32_t held;    /* tensors that are loaded and differ from row to row */
    int32_t results; /* that have elements of their own, or columns that are sums over rows */
    bool stored;     /* some are */
} elements;

static void count_memory(elements *e, const tni_pass *pass, int32_t i) {
    const tni_memory *m = &pass->memory[i];
    int64_t size = (int64_t)tn_type_size(m->type);
    if (m->strides[pass->n_dims] != 1) return;
    if (size > e->most) e->most = size;
}

/* Dimensions of the tensor that memory belongs to; what passes hand on has those of the result. */
static int32_t rank_of(const tni_gpu_part *part, int32_t memory) {
    const tni_memory *m = &part->p->pass->memory[memory];
    const tn_call *call = part->p->b->call;
    if (m->where == TNI_FROM_WORKSPACE) return TN_MAX_RANK;
    return (m->where == TNI_FROM_CALL_IN ? call->in : call->out)[m->index].views->ndim;
}

/* Has memory the same elements for every row, or would have, were there more than this one? Of a single row it is what
 * has fewer dimensions than another leaf, so that a row is computed alone as it is beside others. */
static bool is_shared(const tni_gpu_part *part, int32_t memory) {
    if (part->p->pass->n_dims > 0 || !part->reduces) return false;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (tni_gpu_is_leaf(part, i) && rank_of(part, part->p->memory_of[i]) > rank_of(part, memory)) return true;
    }
    return false;
}

static elements count_elements(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    elements e = {0};
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!part->needed[i] || p->g->nodes[i].op == TNI_P_CONST) continue;
        if (p->level[i] == TNI_ELEMENT) e.operations++;
        if (!tni_gpu_is_leaf(part, i)) continue;
        int32_t size = (int32_t)tn_type_size(p->pass->memory[p->memory_of[i]].type);
        if (p->fixed[i] || is_shared(part, p->memory_of[i]) || p->pass->memory[p->memory_of[i]].stretched) {
            e.fixed += size;
        } else {
            e.held++;
            e.moving += size;
            count_memory(&e, p->pass, p->memory_of[i]);
        }
    }
    for (int32_t t = 0; t < p->b->n_todo; t++) {
        bool here = tni_gpu_has_todo(part, t) && !p->b->todo[t].gathers && tni_level_of_todo(p, t) == TNI_ELEMENT;
        if (here && !is_shared(part, p->todo_memory[t])) count_memory(&e, p->pass, p->todo_memory[t]);
        e.stored |= here;
        e.results += here;
    }
    for (int32_t i = 0; i < part->n_sums; i++)
        e.results += p->pass->accumulators[part->sums[i]].strides[p->pass->n_dims] != 0;
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
        if (!part->used[i] || m->where == TNI_FROM_PLACE || m->strides[pass->n_dims] != 1) continue;
        int64_t bytes = part->vector * (int64_t)tn_type_size(m->type);
        if (bytes > 16) bytes = 16;
        for (int32_t d = 0; d < pass->n_dims; d++) {
            if (m->strides[d] * (int64_t)tn_type_size(m->type) % bytes) return false;
        }
    }
    return true;
}

/* Are all elements, of tensors that this part reads or writes, beside their neighbours? */
static bool lies_beside(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const int64_t step = pass->memory[i].strides[pass->n_dims];
        if (part->used[i] && step != 0 && step != 1) return false;
    }
    return true;
}

bool tni_gpu_has_rows(const tni_pass *pass, int32_t i) {
    bool moves = pass->n_dims == 0;
    if (pass->memory[i].where == TNI_FROM_PLACE) return false;
    for (int32_t d = 0; d < pass->n_dims; d++) moves |= pass->memory[i].strides[d] != 0;
    return moves && pass->memory[i].strides[pass->n_dims] == 1;
}

/* Memory whose elements differ from row to row, if possible of a result: what is read can lie otherwise at less cost.
 * -1: there is none. */
static int32_t find_reference(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    int32_t found = -1;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const bool result = pass->memory[i].where == TNI_FROM_CALL_OUT;
        if (part->used[i] && tni_gpu_has_rows(pass, i) && (found < 0 || result)) found = i;
        if (found == i && result) break;
    }
    return found;
}

/* Does everything that has elements of its own lie in memory as they are counted, so that a vector may go across the
 * end of a row? */
static bool lies_in_order(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        const int64_t *strides = pass->memory[i].strides;
        int64_t step = pass->columns;
        if (!part->used[i] || strides[pass->n_dims] == 0) continue;
        if (strides[pass->n_dims] != 1 || pass->memory[i].where == TNI_FROM_PLACE) return false;
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

/* Where rows are no whole vectors: vectors over all rows together. Each looks its rows' values up. */
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
                 ceil_div(part->p->pass->columns, part->vector) >= 32 * n;
    part->unroll[0] = n;
    part->unroll[1] = n * part->vector < 8 ? n * part->vector : 8;
    part->bound = part->threads;
    part->n_slots = 0;
    for (int32_t i = 0; i < part->n_sums; i++) {
        if (part->p->pass->accumulators[part->sums[i]].strides[part->p->pass->n_dims] == 0) part->n_slots = 1;
    }
}

/* One long row of one tensor, of which only sums come, is read in whole vectors of memory wherever it begins. Two
 * tensors might not begin alike. */
static void allow_shift(tni_gpu_part *part, const elements *e) {
    part->shifted = part->flat && part->n_sums && !part->column && !part->list && !e->stored && e->held == 1 &&
                    !part->random && part->vector > 1 && part->vector <= 8 && lies_beside(part);
    if (!part->shifted) return;
    part->reference = find_reference(part);
    part->unroll[1] = part->unroll[0];
}

/* Rows of 16 bits that begin anywhere, summed up by columns along one dimension: vectors of 16 bytes all the same, each
 * from the two pieces of memory that it lies in. */
static void allow_pieces(tni_gpu_part *part, const elements *e) {
    const tni_pass *pass = part->p->pass;
    int32_t summed = 0;
    for (int32_t d = 0; d < pass->n_dims; d++) summed += !(part->kept >> d & 1);
    part->pieced = part->column && summed == 1 && !part->flat && !part->list && !e->stored && e->most == 2 &&
                   !part->random && lies_beside(part);
    for (int32_t i = 0; i < part->p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || part->p->fixed[i]) continue;
        part->pieced &= tn_type_size(pass->memory[part->p->memory_of[i]].type) == 2;
    }
    if (part->pieced) part->unroll[1] = part->unroll[0];
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

/* ---- rows -------------------------------------------------------------------------------------------------------- */

enum { ROW_THREADS = 512 }; /* that have a row, at most, or what a block has of it */

/* Rows that begin anywhere: does a row lie in every tensor as in every other, if the first one does? And those that are
 * summed up by the same threads? */
static bool lie_alike(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    const int64_t *const first = pass->memory[part->reference].strides;
    for (int32_t i = 0; i < pass->n_memory; i++) {
        for (int32_t d = 0; d < pass->n_dims && part->used[i] && tni_gpu_has_rows(pass, i); d++) {
            if ((pass->memory[i].strides[d] - first[d]) % part->vector) return false;
        }
    }
    return !part->n_sums || (part->lanes >= 32 && pass->n_dims <= 1);
}

/* So many rows further a row lies as this one does. */
static int64_t rows_apart(const tni_gpu_part *part) {
    const tni_pass *pass = part->p->pass;
    const int64_t *const strides = pass->memory[part->reference].strides;
    int64_t apart = 1;
    while (pass->n_dims && apart < part->vector && strides[pass->n_dims - 1] * apart % part->vector) apart *= 2;
    return apart;
}

/* Rows that are no whole vectors: vectors of `most` elements as they lie in memory, of which a row has parts of the
 * first and the last one; or single elements, which in larger types are as fast. */
static void take_apart(tni_gpu_part *part, int32_t most) {
    part->reference = find_reference(part);
    part->odd = most > 1 && part->reference >= 0 && lies_beside(part);
    part->vector = part->odd ? most : 1;
    part->whole = !part->odd;
}

/* Vectors that a thread should have of a row, and at most: as many as its registers have room for. Results beside the
 * first one are sums that threads keep, or would be, were there more rows. */
typedef struct row_form {
    int64_t each, most;
} row_form;

static row_form form_of(const tni_gpu_part *part, const elements *e) {
    enum { UNROLL = 16 };
    const int64_t unit = e->most ? max(16 / (e->most * part->vector), 1) : 1; /* vectors that have 16 bytes */
    const int64_t most = e->held <= 1 && e->results <= 1 ? 8 : e->held <= 2 ? 4 : e->held <= 4 ? 2 : 1;
    /* what a thread of a row that begins anywhere has to do besides is more, and the same for more vectors */
    const int64_t each = min(most, part->odd && unit == 1 ? 4 : 2);
    return (row_form){.each = each * unit, .most = min(most * unit, UNROLL)};
}

/* Blocks of the largest cluster that there can be: 8 wherever there are clusters. 16 need as many SMs that are
 * neighbours, which data-centre GPUs with all of theirs have. */
int32_t tni_gpu_most_blocks(const tn_call *call) {
    enum { LARGE = 128 };
    const tn_gpu *gpu;
    if (call->device.kind != TN_CUDA || tni_gpu_get(call->name, call->device.index, &gpu) != TN_OK)
        return TNI_GPU_CLUSTER;
    const bool large = gpu->major <= 10 && gpu->sms >= LARGE;
    return gpu->major < 9 ? 1 : large ? TNI_GPU_CLUSTER : TNI_GPU_CLUSTER / 2;
}

int32_t tni_gpu_sms(const tn_call *call) {
    const tn_gpu *gpu;
    const bool known = call->device.kind == TN_CUDA && tni_gpu_get(call->name, call->device.index, &gpu) == TN_OK;
    return known ? gpu->sms : TNI_GPU_SMS;
}

/* Vectors that `columns` touch: one may begin before the first one. */
static int64_t count_chunks(const tni_gpu_part *part, int64_t columns) {
    return ceil_div(columns + (part->odd ? part->vector - 1 : 0), part->vector);
}

/* Of all reductions, and one more. */
static int32_t count_slots(const tni_gpu_part *part) {
    int32_t n = 1;
    for (int32_t i = 0; i < part->p->g->n; i++) {
        bool reduced = part->needed[i] && part->p->memory_of[i] < 0 && part->p->g->nodes[i].op != TNI_P_CONST;
        if (reduced && tni_reduces_rows(part->p, i)) n += part->odd ? tni_gpu_odd_slots(part->vector) : 1;
    }
    return n;
}

/* Elements that a row takes in a ring: where rows begin anywhere, as far behind 16 bytes as in memory. */
static int64_t ring_pitch(const tni_gpu_part *part) {
    return part->whole ? part->width : round_up(part->width, part->vector) + part->vector;
}

/* Do two stages of a ring fit? */
static bool fits_ring(const tni_gpu_part *part, const elements *e) {
    const int64_t down = part->lanes > 32 ? 1 : TNI_GPU_THREADS / part->lanes;
    return !part->streams && down <= TNI_GPU_RING_ROWS && 2 * down * ring_pitch(part) * e->moving <= part->ring_most;
}

/* Threads that have so many vectors, `each` a thread. */
static int64_t whole_warps(int64_t vectors, int64_t each) {
    return round_up(ceil_div(vectors, each), 32);
}

/* Vectors of a thread where whole warps have a row. The usual number, unless with another one an eighth fewer threads
 * and vectors have nothing to do: 96 vectors are a warp's, 3 a lane, and not 64 threads', 2 each. */
static int64_t each_of_warps(int64_t vectors, const row_form *f) {
    int64_t usual = f->each;
    while (usual * ROW_THREADS < vectors) usual++;
    int64_t best = usual, least = whole_warps(vectors, usual) * usual * 7 / 8;
    for (int64_t each = 2; each <= f->most; each++) {
        const int64_t lanes = whole_warps(vectors, each);
        if (lanes > ROW_THREADS || lanes * each > least) continue;
        best = each;
        least = lanes * each - 1;
    }
    return best;
}

/* How many threads have a row and how many vectors each, by the row's length and the types alone. Measured on an H200:
 * memory is fastest with 32 bytes under way for each of many threads, up to 512 for a row; with longer rows those have
 * more, and where registers end, blocks of a cluster share a row. */
static void set_rows(tni_gpu_part *part, const elements *e) {
    enum { SUMS = 32 };
    const row_form f = form_of(part, e);
    const int64_t columns = part->p->pass->columns, chunks = count_chunks(part, columns);
    const int32_t blocks = tni_gpu_most_blocks(part->p->b->call);
    int64_t each = f.each, here = chunks; /* of a block */
    part->cluster = 1;
    part->width = columns;
    while (here > ROW_THREADS * f.most && part->cluster <= blocks) {
        part->cluster *= 2;
        part->width = round_up(ceil_div(columns, part->cluster), 64 * part->vector);
        here = count_chunks(part, part->width);
    }
    part->streams = part->cluster > blocks;
    if (part->streams) { /* each block some columns, in rounds that are alike */
        part->cluster = blocks;
        part->width = blocks > 1 ? round_up(ceil_div(columns, blocks), 64 * part->vector) : columns;
        part->lanes = ROW_THREADS;
        here = count_chunks(part, part->width);
        /* sums that threads keep in memory, or would keep, are in registers as long as a round takes */
        int64_t most = f.most;
        while (most > 1 && most * part->vector * (e->results - 1) > SUMS) most /= 2;
        each = ceil_div(here, ROW_THREADS * ceil_div(here, ROW_THREADS * most));
    } else if (here <= 32 * each) {
        part->lanes = 1;
        while (part->lanes * each < here) part->lanes *= 2;
        each = here > part->lanes ? ceil_div(here, part->lanes) : 1;
    } else {
        each = each_of_warps(here, &f);
        part->lanes = (int32_t)whole_warps(here, each);
    }
    part->threads = part->lanes > 32              ? part->lanes
                    : part->small || part->n_sums ? TNI_GPU_THREADS
                                                  : TNI_GPU_THREADS / 2;
    part->bound = part->threads <= 128 ? 128 : part->threads <= 256 ? 256 : 512;
    /* few rows do without: how they are shared out they have in common with many */
    part->ring &= !part->small && fits_ring(part, e);
    part->walks = part->n_sums || part->ring || (part->cluster > 1 && part->whole);
    part->ahead = part->n_sums && !part->ring && !part->streams && (part->vector <= 2 || part->odd);
    part->unroll[0] = part->unroll[1] = (int32_t)each;
    part->n_slots = count_slots(part);
}

/* Is every element read for one stage alone, and nothing made of it but numbers of rows? */
static bool reads_once(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        const bool made = part->needed[i] && p->memory_of[i] < 0 && p->g->nodes[i].op != TNI_P_CONST;
        if (made && tni_reduces_rows(p, i) && p->stage[i] > 1) return false;
    }
    return !part->n_sums && !part->list;
}

/* Long rows that are read once: see emit_cuda_cuts.c. A cut has something for each thread to do. A row has 2^20
 * elements at most (program.c), so that no thread adds up more than f32 does well. */
static bool set_cuts(tni_gpu_part *part, const elements *e) {
    enum { BUSY = 8 }; /* blocks for each SM that are enough */
    const int64_t columns = part->p->pass->columns;
    if (e->stored || !reads_once(part) || count_chunks(part, columns) <= ROW_THREADS * form_of(part, e).most)
        return false;
    tni_gpu_grid all = {0};
    count_rows(part, &all);
    part->vector = vector_of(e);
    part->whole = columns % part->vector == 0;
    if (!part->whole) take_apart(part, part->vector > 8 ? 1 : part->vector);
    const int64_t chunks = count_chunks(part, columns), each = form_of(part, e).most;
    part->cuts = 1;
    while (part->cuts < TNI_GPU_CLUSTER && chunks >= 2 * part->cuts * TNI_GPU_THREADS * each) part->cuts *= 2;
    part->width = round_up(ceil_div(columns, part->cuts), 64 * part->vector);
    while (2 * part->cluster <= min(part->cuts, tni_gpu_most_blocks(part->p->b->call)) &&
           all.rows * part->cluster < (int64_t)BUSY * part->sms)
        part->cluster *= 2;
    part->streams = true;
    part->ring = part->walks = part->ahead = false;
    part->lanes = part->threads = part->bound = TNI_GPU_THREADS;
    part->unroll[0] = part->unroll[1] = (int32_t)each;
    part->n_slots = count_slots(part);
    return true;
}

/* Rows that are no whole vectors, as vectors from their first element on, wherever that is: each is put together from
 * two pieces of memory. Threads have the same elements of every row. */
static void take_together(tni_gpu_part *part, const elements *e) {
    part->vector = vector_of(e);
    part->odd = part->whole = false;
}

/* Does all that differs from row to row come in vectors of 16 bytes? */
static bool comes_in_vectors(const tni_gpu_part *part) {
    const tni_planner *p = part->p;
    for (int32_t i = 0; i < p->g->n; i++) {
        if (!tni_gpu_is_leaf(part, i) || p->fixed[i] || is_shared(part, p->memory_of[i])) continue;
        const tni_memory *m = &p->pass->memory[p->memory_of[i]];
        if (m->strides[p->pass->n_dims] != 1 || part->vector * tn_type_size(m->type) != 16) return false;
    }
    return true;
}

/* Rows that are no whole vectors. Those that are summed up by columns as well (which are results like others where
 * there is one row) are put together where a ring can have them, and so are long ones. The others, measured on an H200
 * (share of a copy's speed, rows of 769, 3001 and 8191 bf16): 0.69, 0.75 and 0.83 in vectors of 8 elements, 0.60, 0.72
 * and 0.67 in such of 2, which are the faster ones, by a sixth, with such sums. */
static void choose_apart(tni_gpu_part *part, const elements *e) {
    enum { WORD = 2 };
    take_together(part, e);
    if (e->results > 1 && comes_in_vectors(part)) {
        set_rows(part, e);
        if (fits_ring(part, e)) return;
    }
    const bool ring = part->ring && e->results <= 1 && comes_in_vectors(part);
    part->ring = false;
    take_apart(part, e->most != 2 ? 1 : e->results > 1 ? WORD : part->vector);
    const int64_t held = ROW_THREADS * form_of(part, e).most;
    if (part->odd && e->results <= 1 && count_chunks(part, part->p->pass->columns) > held) {
        take_together(part, e);
        part->ring = ring;
    }
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

/* Bulk copies move pieces of 16 bytes, from sm_90 on. Text that is only shown is for such a GPU. */
static bool may_have_ring(tni_gpu_part *part, const elements *e) {
    const tni_planner *p = part->p;
    const tn_call *call = p->b->call;
    const tn_gpu *gpu;
    bool known = call->device.kind == TN_CUDA && tni_gpu_get(call->name, call->device.index, &gpu) == TN_OK;
    part->sms = tni_gpu_sms(call);
    part->ring_most = TNI_GPU_RING_MOST;
    if (known && gpu->shared_per_block - TNI_GPU_RING_REST < part->ring_most)
        part->ring_most = gpu->shared_per_block - TNI_GPU_RING_REST;
    if ((known && gpu->major < 9) || !part->reduces || !e->moving || (!part->n_sums && part->whole)) return false;
    for (int32_t i = 0; i < p->g->n; i++) {
        for (int32_t d = 0; tni_gpu_is_leaf(part, i) && d < p->pass->n_dims; d++) {
            if (p->pass->memory[p->memory_of[i]].strides[d] < 0) return false;
        }
    }
    return comes_in_vectors(part) && (!part->whole || strides_align(part));
}

/* Few threads, and about as much on its way as memory is fastest with: twice as much is a tenth slower. A stage has as
 * many rows as a block has at a time. */
static void set_ring(const tni_gpu_part *part, const elements *e, tni_gpu_grid *g) {
    enum { THREADS = 512, BYTES = 64 << 10, MOST = 96 << 10, WIDE = 160 << 10 };
    const int64_t most = part->cluster > 1 ? WIDE : MOST; /* who waits for other blocks has another one beside it */
    g->slot = g->down * ring_pitch(part);
    int64_t stage = g->slot * e->moving, per_sm = max((THREADS + g->block / 2) / g->block, 1);
    while (per_sm > 1 && 2 * per_sm * stage > most) per_sm--;
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

/* As many of the blocks that there may be as leave each with rows that lie alike. */
int64_t tni_gpu_whole_turns(int64_t blocks, int64_t apart) {
    return blocks > apart ? blocks - blocks % apart : apart;
}

/* Pieces of the reduced rows: one round of the block each, or where something is summed as many as fill the GPU. */
static tn_status set_pieces(const tni_gpu_part *part, int64_t round, tni_gpu_grid *g) {
    /* blocks for each SM that walk over one long row, or several; threads that walk over rows and reduce them */
    enum { FLAT = 16, PLAIN = 8, HALVES = 4, WALKING = 1024 };
    int64_t rounds = ceil_div(g->rows, round), pieces = rounds;
    if (part->n_sums) {
        int64_t most = TNI_GPU_BLOCKS;
        /* such sums are as long as a row, one for each piece */
        if (part->reduces && part->column) most = part->sms * (g->block < WALKING ? WALKING / g->block : 1);
        /* what each leaves behind is f32, which counts for more beside smaller elements */
        int32_t few = part->flat ? FLAT : part->vector <= 4 ? PLAIN : HALVES;
        if (!part->reduces && !part->list) most = (int64_t)few * part->sms;
        if (g->stages) most = g->blocks;
        if (part->small && g->block == TNI_GPU_THREADS) most = 1;
        int64_t others = g->kept * g->columns, wanted = others > 0 ? most / others : 1;
        if (pieces > wanted) pieces = wanted;
    }
    if (pieces < 1) pieces = 1;
    g->span = round * ceil_div(rounds, pieces);
    g->pieces = g->rows > 0 ? ceil_div(g->rows, g->span) : 1;
    if (part->odd && part->n_sums && g->pieces < rounds) g->pieces = tni_gpu_whole_turns(pieces, g->apart);
    if (g->span == 0) g->span = round;
    return count_blocks(part, (double)g->kept * (double)g->columns * (double)g->pieces, g);
}

/* No piece goes across tensors: there are more of them. */
static void split_lists(const tni_gpu_part *part, int64_t vector, tni_gpu_grid *g) {
    const tni_program *program = part->p->b->program;
    g->room = g->span * g->across * vector;
    g->pieces = 0;
    for (int32_t k = 0; k < program->n_parts; k++) g->pieces += ceil_div(program->parts[k], g->room);
    if (g->pieces == 0) g->pieces = 1;
}

static tn_status spread_grid(const tni_gpu_part *part, int k, tni_gpu_grid *g) {
    *g = (tni_gpu_grid){.columns = 1, .down = 1, .span = 1, .across = part->threads, .block = (uint32_t)part->threads};
    count_rows(part, g);
    g->pieces = ceil_div(g->rows * part->p->pass->columns, g->across * (k ? 1 : part->vector));
    return count_blocks(part, (double)g->pieces, g);
}

static tn_status plain_grid(const tni_gpu_part *part, int k, tni_gpu_grid *g) {
    const tni_pass *pass = part->p->pass;
    int64_t vector = k && !part->shifted && !part->pieced ? 1 : part->vector,
            more = k && part->shifted ? vector - 1 : 0;
    int64_t chunks = ceil_div(pass->columns + more, vector);
    *g = (tni_gpu_grid){.columns = 1, .down = 1};
    if (part->flat) {
        g->across = part->threads;
        g->kept = 1;
        g->rows = ceil_div(chunks, g->across);
        if (g->rows == 0) g->rows = 1; /* single values are there all the same */
    } else {
        int64_t each = part->wide ? part->unroll[k] : 1;
        count_rows(part, g);
        if (chunks < 1) chunks = 1;
        g->columns = ceil_div(chunks, part->threads * each);
        g->across = ceil_div(chunks, g->columns * each);
        g->down = part->threads / g->across;
    }
    g->block = part->small ? TNI_GPU_THREADS : (uint32_t)round_up(g->across * g->down, 32);
    TN_TRY(set_pieces(part, g->down * (part->wide ? 1 : part->unroll[k]), g));
    if (part->list) split_lists(part, vector, g);
    return TN_OK;
}

static tn_status rows_grid(const tni_gpu_part *part, const elements *e, int k, tni_gpu_grid *g) {
    *g = (tni_gpu_grid){.columns = part->cluster, .across = part->lanes, .width = part->width};
    count_rows(part, g);
    g->down = part->threads / part->lanes;
    g->apart = part->odd ? rows_apart(part) : 1;
    g->block = (uint32_t)part->threads;
    if (part->ring && (k == 0 || !part->whole)) set_ring(part, e, g);
    return set_pieces(part, g->down, g);
}

/* Does a thread add up so much that what f32 loses each time would show? */
static bool goes_far(const tni_gpu_part *part, const tni_gpu_step *step) {
    enum { FAR = 512 };
    for (int k = 0; k < 2 && part->n_sums; k++) {
        const tni_gpu_grid *g = &step->grid[k];
        int64_t each = part->column                           ? 1
                       : part->reduces                        ? part->unroll[k] * part->vector
                       : k && !part->shifted && !part->pieced ? 1
                                                              : part->vector;
        if (ceil_div(g->rows, g->pieces * g->down) * each > FAR) return true;
    }
    return false;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

tn_status tni_gpu_set_grids(tni_gpu_part *part, tni_gpu_step *step) {
    elements e = count_elements(part);
    part->vector = vector_of(&e);
    part->flat = part->p->pass->n_dims == 0 && !part->reduces;
    part->list = part->p->list;
    part->whole = !part->list && part->p->pass->columns % part->vector == 0;
    part->wide = false;
    part->spread = is_spread(part, &e);
    part->small = is_small(part);
    part->odd = part->shifted = part->pieced = false;
    part->cluster = 1;
    part->cuts = 0;
    part->ring = may_have_ring(part, &e);
    if (part->reduces && !part->whole) choose_apart(part, &e);
    if (part->reduces && !set_cuts(part, &e)) {
        set_rows(part, &e);
        if (part->streams && part->p->pass->columns % vector_of(&e)) {
            take_together(part, &e);
            set_rows(part, &e);
        }
    } else if (part->spread) {
        set_spread(part);
    } else if (!part->reduces) {
        set_plain(part, &e);
        allow_shift(part, &e);
        allow_pieces(part, &e);
    }
    step->reference = part->reference;
    step->aligned = part->spread || (part->odd ? lie_alike(part) : strides_align(part));
    for (int k = 0; k < 2; k++) {
        TN_TRY(part->reduces  ? rows_grid(part, &e, k, &step->grid[k])
               : part->spread ? spread_grid(part, k, &step->grid[k])
                              : plain_grid(part, k, &step->grid[k]));
    }
    part->longer = goes_far(part, step);
    return TN_OK;
}

tn_status tni_gpu_set_tail_grids(tni_gpu_part *part, tni_gpu_step *step) {
    tni_gpu_grid *g = &step->grid[0];
    part->vector = part->unroll[0] = part->unroll[1] = 1;
    part->bound = TNI_GPU_THREADS;
    *g = (tni_gpu_grid){.columns = 1, .down = TNI_GPU_THREADS, .across = TNI_GPU_THREADS, .block = TNI_GPU_THREADS};
    count_rows(part, g);
    TN_TRY(set_pieces(part, TNI_GPU_THREADS, g));
    step->grid[1] = *g;
    return TN_OK;
}
