/* take and add on the GPU by columns in shared memory: which calls they suit, and how these are shared out. */
#include <math.h>

#include "core/contract/contract.h"
#include "cuda/rows/row_plan.h"
#include "lookup_cuda.h"

enum {
    RESERVED = 1024,   /* bytes of shared memory that a block takes for itself */
    BLOCKS_PER_SM = 2, /* that columns leave room for, before a block has fewer of them: one reads, one adds */
    MOST_WIDTH = 8,    /* columns of a block, where they are neighbours in memory: 32 bytes of f32 */
    LEAST_WIDTH = 4,   /* before they are cut into parts */
    SHORT_N = 1024,    /* a block has several columns where they have fewer elements together, */
    SHORT_BYTES = 32768,
    MOST_SHORT = 32,
    LEAST_RANGE = 1024,  /* of the k of a block, where there are few columns, */
    CLAIM_BYTES = 16384, /* that are left for claims at least, */
    CLAIM_TERMS = 1024,  /* for more terms than these, */
    LEAST_CHUNK = 1024,  /* and terms of a chunk that is split, */
    MOST_CHUNK = TNI_SPLIT_THREADS * TNI_SPLIT_EACH,
    MOST_PLACES = 65535, /* and terms of a block: numbers of 16 bits */
    SPLIT_SHIFT = 13,    /* 2^13 places of a split column are a part, */
    LEAST_SHIFT = 11,    /* or less, down to these, where parts are few; also as many as leave a thread for each */
    MANY_INDICES = 1 << 20,
    LEAST_ROW = 4096,     /* bytes of a row that is taken from in shared memory, */
    LEAST_PART = 1024,    /* and indices of a block, where there are few rows */
    LEAST_THREADS = 128,  /* of a block */
    THREADS_PER_SM = 1024 /* that its registers allow */
};

/* Elements, not rows, have an index each. */
static bool is_single(const tni_lookup *l) {
    return l->inner == 1 || !tni_lookup_is_by_row(l);
}

static int64_t columns_of(const tni_lookup *l) {
    return l->outer * l->inner;
}

/* The most columns of `bytes` each that leave room for other blocks, and make work for all SMs. */
static int width_of(const tn_gpu *gpu, int64_t columns, int64_t bytes) {
    const int64_t room = min(gpu->shared_per_sm / BLOCKS_PER_SM - RESERVED, gpu->shared_per_block);
    int width = MOST_WIDTH;
    while (width > 1 && (width * bytes > room || ceil_div(columns, width) < gpu->sms)) width /= 2;
    return width;
}

/* Of columns of `whole`, which may be NULL. */
static tni_columns columns_job(const tni_lookup *l, const tn_view *whole, int width) {
    tni_index index = tni_index_of(l);
    tni_lookup_steps steps = {0};
    if (whole) tni_lookup_steps_of(l, whole, &steps);
    if (index.skipped >= index.v) index.skipped = -1;
    return (tni_columns){.index = index,
                         .by_outer = steps.by_outer,
                         .by_v = steps.by_v,
                         .count = columns_of(l),
                         .n = l->n,
                         .inner = l->inner,
                         .by_inner = tni_divided_of(l->inner, columns_of(l)),
                         .width = width,
                         .across = l->inner > 1};
}

/* Threads of a block, a power of 2: as many as there is work for, but no more than shared memory leaves room for others
 * beside, if there are others. */
static int64_t threads_of(const tn_gpu *gpu, int64_t bytes, int64_t blocks, int64_t work) {
    const int64_t beside = blocks <= gpu->sms ? 1 : max(gpu->shared_per_sm / (bytes + RESERVED), 1);
    int64_t threads = LEAST_THREADS;
    while (2 * threads * beside <= THREADS_PER_SM && threads < work) threads *= 2;
    return threads;
}

/* ---- take -------------------------------------------------------------------------------------------------------- */

/* Where all is read side by side as it is, or the index leads to a few of many elements, there is nothing to gain. */
bool tni_take_columns_suit(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    const int64_t bytes = l->v * (int64_t)tn_type_size(l->to->type);
    if (l->inner == 1 || tni_lookup_is_by_row(l) || 2 * l->n < l->v || tn_type_size(l->to->type) > 8) return false;
    if (tn_cuda_gpu(call, &gpu) != TN_OK || columns_of(l) > INT32_MAX) return false;
    return columns_of(l) >= MOST_WIDTH / 2 * gpu->sms && width_of(gpu, columns_of(l), bytes) >= MOST_WIDTH / 2;
}

tn_status tni_take_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type);
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const int width = width_of(gpu, columns_of(l), l->v * size);
    s->p = columns_job(l, l->from, width);
    s->launch.block = TNI_COLUMN_TAKE_THREADS;
    s->launch.grid = (uint32_t)ceil_div(columns_of(l), width);
    s->launch.shared = (uint32_t)max(width * l->v * size, 8);
    return tni_cuda_find(call, &s->launch, "lookup_columns", "lookup_take_columns_%d", (int)size);
}

/* Rows that fit, with about as many indices or more, for half of the SMs at least, or with many indices. What fits into
 * a few lines of the first-level cache is found there as quickly (H200: 7168 rows of 768 bf16 take 20 us so, and 26
 * here), and few rows wait for memory twice (10 of 14339 bf16: 4.7 and 6.1 us). */
bool tni_take_row_suits(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type), bytes = l->v * size;
    tni_lookup_steps w;
    if (!tni_lookup_steps_of(l, l->from, &w) || (w.by_v != 1 && l->v > 1)) return false;
    if (l->inner != 1 || size > 8 || 2 * l->n < l->v || bytes < LEAST_ROW || l->n > INT32_MAX / 2) return false;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return false;
    const bool many = 2 * l->outer >= gpu->sms || l->outer * l->n >= MANY_INDICES;
    return bytes + 16 <= gpu->shared_per_block && many && l->outer * gpu->sms <= INT32_MAX;
}

/* Where there are few rows, several blocks have each of them, and its indices in parts. */
tn_status tni_take_row_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    const int64_t size = (int64_t)tn_type_size(l->to->type), bytes = l->v * size + 16;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    tni_columns *p = &s->p;
    *p = columns_job(l, l->from, 1);
    const int64_t parts = max(min(gpu->sms / max(l->outer, 1), 8 * l->n / max(l->v, 4 * LEAST_PART)), 1);
    p->range = (int)ceil_div(l->n, parts);
    p->parts = (int)max(ceil_div(l->n, max(p->range, 1)), 1);
    s->launch.grid = (uint32_t)(l->n > 0 ? l->outer * p->parts : 0);
    s->launch.block = (uint32_t)threads_of(gpu, bytes, s->launch.grid, ceil_div(p->range, TNI_ROW_TAKE_ITEMS));
    s->launch.shared = (uint32_t)bytes;
    return tni_cuda_find(call, &s->launch, "lookup_columns", "lookup_take_row_%d", (int)size);
}

/* ---- add, by lists or by claims ---------------------------------------------------------------------------------- */

static int64_t acc_size(const tni_lookup *l) {
    return (int64_t)tn_type_size(tni_acc_type(l->to->type));
}

/* A sum and the head of a list for each place; a term has its place and the next one beside it. */
static int64_t list_bytes(const tni_lookup *l, int64_t places, int64_t terms) {
    return places * (acc_size(l) + 4) + terms * 2 * acc_size(l);
}

/* What a warp has room for, where a block expects so many terms, evenly or by chance, and shared memory has `left`
 * bytes. 0: for too few. */
static int64_t room_of(const tni_lookup *l, int64_t expected, bool evenly, int64_t warps, int64_t left) {
    const int64_t items = 32 * TNI_COLUMN_ADD_ITEMS, mean = ceil_div(expected, warps);
    int64_t chance = 0; /* four standard deviations */
    while (!evenly && chance * chance < 16 * mean) chance++;
    const int64_t most = min(left / (2 * acc_size(l)), MOST_PLACES) / warps;
    return min(max(round_up(mean + chance, items) + (evenly ? 0 : items), items), most / items * items);
}

/* Neighbours are read together, but for long ones; short rows share a block, if there are enough of them. */
static int add_width(const tn_gpu *gpu, const tni_lookup *l, bool by_claims) {
    const int64_t columns = columns_of(l);
    const int64_t bytes = by_claims ? l->v * acc_size(l) : list_bytes(l, l->v, min(l->n, l->v));
    if (l->inner > 1) {
        const int width = width_of(gpu, columns, bytes);
        return width < LEAST_WIDTH && ceil_div(columns, LEAST_WIDTH) >= gpu->sms ? LEAST_WIDTH : width;
    }
    int width = 1;
    while (width < MOST_SHORT && 2 * width * l->n <= SHORT_N && 2 * width * bytes <= SHORT_BYTES &&
           columns / (2 * width) >= 2 * gpu->sms)
        width *= 2;
    return width;
}

static int64_t places_of(const tni_lookup *l, int width, int64_t parts) {
    return width * column_pitch(ceil_div(l->v, parts), width);
}

/* As many as shared memory makes necessary, which holds all that is added to them, or half of it their sums. Where
 * there are few columns, so many that SMs have work: each block reads all indices of its columns. */
static int64_t list_parts(const tn_gpu *gpu, const tni_lookup *l, int width) {
    const int64_t room = gpu->shared_per_block - RESERVED, groups = max(ceil_div(columns_of(l), width), 1);
    int64_t parts = max(min(gpu->sms / groups, l->v / LEAST_RANGE), 1);
    for (;; parts++) {
        const int64_t places = places_of(l, width, parts), terms = ceil_div(l->n * width, parts);
        const bool fits = list_bytes(l, places, terms + terms / 8 + 4096) <= room;
        if (places <= MOST_PLACES && (fits || list_bytes(l, places, 0) <= room / 2)) return parts;
    }
}

/* Claims take no more than the sums do. */
static int64_t claim_parts(const tn_gpu *gpu, const tni_lookup *l, int width) {
    const int64_t room = gpu->shared_per_block - CLAIM_BYTES - width * 64 * acc_size(l); /* of column_pitch */
    return max(ceil_div(l->v * width * acc_size(l), room), 1);
}

/* How a call is shared out. */
typedef struct shares {
    int width;
    int64_t parts, blocks;
} shares;

static shares shares_of(const tn_gpu *gpu, const tni_lookup *l, bool by_claims) {
    shares s = {.width = add_width(gpu, l, by_claims)};
    s.parts = by_claims ? claim_parts(gpu, l, s.width) : list_parts(gpu, l, s.width);
    s.blocks = ceil_div(columns_of(l), s.width) * s.parts;
    return s;
}

/* Picoseconds that a block takes for a term that it looks at, and for one that it adds, and nanoseconds for all else.
 * From 40 shapes on an H200; claims are slower where an SM has few blocks, for their threads wait for each other. */
enum { LOOK_PS = 420, LIST_PS = 900, CLAIM_LOOK_PS = 700, CLAIM_PS = 850, COLUMNS_NS = 5000 };

static double columns_ns(const tn_gpu *gpu, const tni_lookup *l, bool by_claims) {
    const shares s = shares_of(gpu, l, by_claims);
    const double terms = (double)(l->n * s.width), waves = (double)ceil_div(s.blocks, gpu->sms);
    if (s.blocks > INT32_MAX || (by_claims && (2 * s.blocks < 7 * gpu->sms || terms <= CLAIM_TERMS))) return INFINITY;
    const double look = by_claims && s.parts > 1 ? CLAIM_LOOK_PS : LOOK_PS;
    return COLUMNS_NS + waves * terms * (look + (by_claims ? CLAIM_PS : LIST_PS) / (double)s.parts) / 1000;
}

double tni_add_columns_ns(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    if (!is_single(l) || tn_cuda_gpu(call, &gpu) != TN_OK) return INFINITY;
    if (columns_of(l) > INT32_MAX || l->v > INT32_MAX / MOST_SHORT || l->n > INT32_MAX / MOST_SHORT) return INFINITY;
    return fmin(columns_ns(gpu, l, false), columns_ns(gpu, l, true));
}

/* Threads, and what each warp has room for, of a block with so many places that expects so many terms. */
static void fill_lists(const tn_gpu *gpu, const tni_lookup *l, tn_launch *launch, int64_t places, int64_t expected,
                       bool evenly, int *room) {
    const int64_t work = ceil_div(expected, TNI_COLUMN_ADD_ITEMS), kept = list_bytes(l, places, 0);
    int64_t threads = threads_of(gpu, list_bytes(l, places, expected), launch->grid, work);
    for (;; threads /= 2) {
        *room = (int)room_of(l, expected, evenly, threads / 32, gpu->shared_per_block - RESERVED - kept);
        if (*room > 0) break;
    }
    launch->block = (uint32_t)threads;
    launch->shared = (uint32_t)list_bytes(l, places, threads / 32 * *room);
}

/* Two tables, with room for those that claim nothing. */
static int64_t claim_bytes(const tni_columns *p) {
    return 2 * (p->table + 32) * 4;
}

static void fill_claims(const tn_gpu *gpu, const tni_lookup *l, tni_columns_state *s, int64_t places) {
    const int64_t sums = places * acc_size(l), work = ceil_div(s->p.n * s->p.width, TNI_COLUMN_ADD_ITEMS);
    s->launch.block = (uint32_t)threads_of(gpu, sums + CLAIM_BYTES / 2, s->launch.grid, work);
    s->p.table = (int)s->launch.block * TNI_COLUMN_ADD_ITEMS;
    while (sums + claim_bytes(&s->p) > gpu->shared_per_block) s->p.table /= 2;
    s->launch.shared = (uint32_t)(sums + claim_bytes(&s->p));
}

tn_status tni_add_columns_prepare(const tn_call *call, const tni_lookup *l, tni_columns_state *s) {
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    const bool by_claims = columns_ns(gpu, l, true) < columns_ns(gpu, l, false);
    const shares how = shares_of(gpu, l, by_claims);
    const char *type = tn_type_name(l->to->type);
    tni_columns *p = &s->p;
    *p = columns_job(l, l->base, how.width);
    p->range = (int)max(ceil_div(l->v, how.parts), 1);
    p->parts = (int)ceil_div(l->v, p->range); /* 0: there is nothing to write */
    s->launch.grid = (uint32_t)(ceil_div(columns_of(l), p->width) * p->parts);
    const int64_t places = p->width * column_pitch(p->range, p->width), terms = p->n * p->width;
    if (by_claims) {
        fill_claims(gpu, l, s, places);
        return tni_cuda_find(call, &s->launch, "lookup_claims", "lookup_add_claimed_%s", type);
    }
    fill_lists(gpu, l, &s->launch, places, ceil_div(terms, max(p->parts, 1)), p->parts <= 1, &p->room);
    return tni_cuda_find(call, &s->launch, "lookup_lists", "lookup_add_listed_%s", type);
}

/* ---- add, of columns that are split ------------------------------------------------------------------------------ */

enum { WORKSPACE = 256 << 20 }; /* bytes for the columns that are split at a time, if one does not take more */

/* Bytes of a column in the workspace. */
static int64_t split_bytes(const tni_lookup *l, const tni_split *p) {
    const int64_t size = (int64_t)tn_type_size(l->to->type);
    return p->chunks * (p->chunk * (size + 2) + (p->parts + 1) * 2);
}

static tni_split split_job(const tn_gpu *gpu, const tni_lookup *l) {
    tni_split p = {.index = tni_index_of(l), .n = l->n, .shift = SPLIT_SHIFT, .chunk = MOST_CHUNK};
    while (p.shift > LEAST_SHIFT && l->outer * (l->v >> p.shift) < 2 * gpu->sms) p.shift--;
    while (p.shift < SPLIT_SHIFT && l->v >> p.shift >= LEAST_CHUNK / TNI_SPLIT_EACH) p.shift++;
    p.parts = (unsigned)ceil_div(l->v, (int64_t)1 << p.shift);
    while (p.chunk > LEAST_CHUNK && l->outer * ceil_div(l->n, p.chunk) < gpu->sms) p.chunk /= 2;
    while (p.chunk < MOST_CHUNK && p.chunk / TNI_SPLIT_EACH < p.parts) p.chunk *= 2;
    p.chunks = (unsigned)ceil_div(l->n, p.chunk);
    p.rows = (unsigned)max(min(WORKSPACE / max(split_bytes(l, &p), 1), l->outer), 1);
    return p;
}

/* What it takes, estimated: two launches, and how many terms an SM splits and adds in 10 nanoseconds. */
enum { SPLIT_NS = 9000, SPLIT_PER_10_NS = 4 };

double tni_add_split_ns(const tn_call *call, const tni_lookup *l) {
    const tn_gpu *gpu;
    if (l->inner != 1 || l->v >= LEAST_CHUNK << SPLIT_SHIFT || l->n >= INT32_MAX / 2 || l->n == 0) return INFINITY;
    if (tn_cuda_gpu(call, &gpu) != TN_OK) return INFINITY;
    const tni_split p = split_job(gpu, l);
    if (p.parts <= 1 || p.parts > p.chunk / TNI_SPLIT_EACH) return INFINITY;
    return SPLIT_NS + 10.0 * (double)l->outer * (double)l->n / (SPLIT_PER_10_NS * gpu->sms);
}

tn_status tni_add_split_prepare(const tn_call *call, const tni_lookup *l, tni_split_state *s) {
    const char *type = tn_type_name(l->to->type);
    const tn_gpu *gpu;
    TN_TRY(tn_cuda_gpu(call, &gpu));
    tni_split *p = &s->p;
    tni_lookup_steps base = {0};
    *p = split_job(gpu, l);
    if (l->base) tni_lookup_steps_of(l, l->base, &base);
    p->by_outer = base.by_outer;
    p->by_v = base.by_v;
    const int64_t terms = (int64_t)p->rows * p->chunks * p->chunk;
    s->places = (size_t)round_up(terms * (int64_t)tn_type_size(l->to->type), 64);
    s->bounds = s->places + (size_t)round_up(terms * 2, 64);
    s->bytes = s->bounds + (size_t)p->rows * p->chunks * (p->parts + 1) * 2;
    s->split.grid = p->rows * p->chunks;
    s->split.block = p->chunk / TNI_SPLIT_EACH;
    s->split.shared = (uint32_t)(p->chunk * (tn_type_size(l->to->type) + 2) + p->parts * 4);
    s->add.grid = p->rows * p->parts;
    s->add.programmatic = tni_cuda_has(call, "lookup_lists", 90);
    fill_lists(gpu, l, &s->add, (int64_t)1 << p->shift, ceil_div(l->n, p->parts), false, &p->room);
    TN_TRY(tni_cuda_find(call, &s->split, "lookup_lists", "lookup_split_%s", type));
    return tni_cuda_find(call, &s->add, "lookup_lists", "lookup_add_split_%s", type);
}

tn_status tni_add_split_launch(const tn_call *call, const tni_lookup *l, const tni_split_state *s) {
    char *workspace = call->workspace;
    tni_split p = s->p;
    tn_launch split = s->split, add = s->add;
    p.index.data = l->index->data;
    p.from = l->from->data;
    p.base = data_of(l->base);
    p.to = l->to->data;
    p.terms = workspace;
    p.places = (unsigned short *)(workspace + s->places);
    p.bounds = (unsigned short *)(workspace + s->bounds);
    for (; p.first < l->outer; p.first += p.rows) {
        const uint32_t rows = (uint32_t)min(l->outer - p.first, p.rows);
        split.grid = rows * p.chunks;
        add.grid = rows * p.parts;
        TN_TRY(tn_cuda_launch(call, &split, (void *[]){&p}));
        TN_TRY(tn_cuda_launch(call, &add, (void *[]){&p}));
    }
    return TN_OK;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

tn_status tni_columns_launch(const tn_call *call, const tni_lookup *l, const tni_columns_state *s, const void *index) {
    tni_columns p = s->p;
    p.index.data = index;
    p.from = l->from->data;
    p.base = data_of(l->base);
    p.to = l->to->data;
    return tn_cuda_launch(call, &s->launch, (void *[]){&p});
}
