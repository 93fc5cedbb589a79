/* add on the GPU, by a sort of the positions: workspace and launches. Rows that lie in segments need none: they are
 * sorted already, and offsets say where each segment's are. */
#include "core/contract/contract.h"
#include "cuda/rows/row_plan.h"
#include "lookup_cuda.h"

enum {
    CLEARED = 8192,          /* keys for each block of the first kernel, which clears what is known of them, */
    CLEARING_BLOCKS = 1024,  /* up to so many blocks */
    LONG_ROW = 16,           /* pieces of a row that may begin anywhere */
    PARTS_BLOCKS_PER_SM = 8, /* blocks that look for parts have more chunks each before there are more of them */
};

/* What is sorted: rows of `inner` elements, or, where each has an index of its own, elements. */
typedef struct sorted {
    int64_t width;           /* indices of a row */
    int64_t positions, keys; /* for each slab */
    int64_t slabs;           /* that share an index */
    int64_t row;             /* elements */
} sorted;

static sorted sorted_of(const tni_lookup *l) {
    if (!tni_lookup_is_by_row(l)) {
        return (sorted){.width = l->inner,
                        .positions = l->outer * l->n * l->inner,
                        .slabs = 1,
                        .row = 1,
                        .keys = l->outer * l->v * l->inner};
    }
    const int64_t own = l->by_outer ? l->outer : 1; /* that have an index of their own */
    return (sorted){
        .width = 1, .positions = own * l->n, .keys = own * l->v, .slabs = l->outer / max(own, 1), .row = l->inner};
}

static int64_t position_chunks(const sorted *w) {
    return w->positions > TNI_ADD_PART ? ceil_div(w->positions, TNI_ADD_PART) : 0;
}

static size_t take_room(size_t *bytes, int64_t count, size_t size) {
    const size_t at = *bytes;
    *bytes = (size_t)round_up((int64_t)(at + (size_t)count * size), 64);
    return at;
}

/* Elements of 16 bytes. */
static int64_t vector_of(tn_type type) {
    return 16 / (int64_t)tn_type_size(type);
}

/* Rows so long that an incomplete piece at either end does not matter: they may begin anywhere. */
static bool is_long(const sorted *w, tn_type type) {
    return w->row >= LONG_ROW * vector_of(type);
}

/* Pieces of a row. */
static int64_t pieces_of(const sorted *w, tn_type type, bool by_pieces) {
    const int64_t vector = vector_of(type);
    return !by_pieces ? w->row : is_long(w, type) ? ceil_div(w->row + vector - 1, vector) : w->row / vector;
}

/* Elements of a row of partial sums. */
static int64_t partial_row(const sorted *w, tn_type type) {
    return max(w->row, pieces_of(w, type, true) * vector_of(type));
}

static bool is_ranked(const sorted *w) {
    return w->positions <= TNI_RANK_MOST;
}

tni_sort_room tni_sort_room_of(const tni_lookup *l, bool by_offsets) {
    const sorted w = sorted_of(l);
    const bool by_radix = !by_offsets && !is_ranked(&w);
    const size_t size = sizeof(uint32_t);
    tni_sort_room r = {0};
    for (int i = 0; i < 2; i++) {
        const bool used = i == 0 ? !by_offsets : by_radix;
        r.key[i] = take_room(&r.bytes, used ? w.positions : 0, size);
        r.position[i] = take_room(&r.bytes, used ? w.positions : 0, size);
    }
    r.begins = take_room(&r.bytes, by_offsets ? 0 : w.keys, size);
    r.ends = take_room(&r.bytes, by_offsets ? 0 : w.keys, size);
    r.counts = take_room(&r.bytes, by_radix ? TNI_SORT_DIGITS * ceil_div(w.positions, TNI_SORT_TILE) : 0, size);
    r.totals = take_room(&r.bytes, by_radix ? TNI_SORT_DIGITS : 0, size);
    r.partials = take_room(&r.bytes, w.slabs * position_chunks(&w) * 2 * partial_row(&w, l->to->type),
                           tn_type_size(tni_acc_type(l->to->type)));
    return r;
}

static tn_status find_sort(const tn_call *call, const sorted *w, tni_sort_state *s) {
    const char *unit = "lookup_sort";
    const uint32_t threads = TNI_SORT_THREADS;
    s->clearing = (uint32_t)min(ceil_div(w->keys, CLEARED), CLEARING_BLOCKS);
    const bool overlaps = tni_cuda_has(call, unit, 90); /* each waits for the one before as its first step */
    s->mark = (tn_launch){
        .grid = (uint32_t)ceil_div(w->positions, threads), .block = threads, .programmatic = overlaps};
    TN_TRY(tni_cuda_find(call, &s->mark, unit, "lookup_sort_mark"));
    if (is_ranked(w)) {
        const uint32_t ranking = (uint32_t)ceil_div(w->positions, TNI_RANK_BLOCK);
        s->rank.grid = (uint32_t)max(ranking, s->clearing);
        s->rank.block = TNI_RANK_BLOCK * TNI_RANK_WAYS;
        return tni_cuda_find(call, &s->rank, unit, "lookup_sort_rank");
    }
    for (int64_t keys = w->keys; keys > 0; keys >>= TNI_SORT_BITS) s->passes++;
    s->passes = (int)max(s->passes, 1);
    s->count = s->place = (tn_launch){.grid = s->sort.blocks, .block = threads, .programmatic = overlaps};
    s->add = (tn_launch){.grid = TNI_SORT_DIGITS, .block = threads, .programmatic = overlaps};
    TN_TRY(tni_cuda_find(call, &s->count, unit, "lookup_sort_count"));
    TN_TRY(tni_cuda_find(call, &s->add, unit, "lookup_sort_add"));
    return tni_cuda_find(call, &s->place, unit, "lookup_sort_place");
}

/* The kernels that add, for pieces of 16 bytes or of single elements. */
static tn_status find_add(const tn_call *call, const tni_lookup *l, const sorted *w, bool by_pieces,
                          tni_sort_state *s) {
    const char *unit = "lookup_add", *type = tn_type_name(l->to->type);
    const char piece = by_pieces ? 'p' : 's';
    const int64_t pieces = pieces_of(w, l->to->type, by_pieces);
    const bool dense = w->positions >= w->keys; /* most k have rows */
    const tn_gpu *gpu;
    tni_add *all = &s->all[by_pieces];
    TN_TRY(tn_cuda_gpu(call, &gpu));
    *all = (tni_add){.count = w->slabs * w->keys * pieces,
                     .rows = w->positions,
                     .row = w->row,
                     .positions = (unsigned)w->positions,
                     .keys = (unsigned)w->keys,
                     .chunks = (unsigned)position_chunks(w),
                     .slabs = (unsigned)w->slabs,
                     .lanes = 1};
    while (all->lanes < 32 && all->lanes < pieces) all->lanes *= 2;
    all->tiles = (int)max(ceil_div(pieces, all->lanes), 1);
    all->pieces = tni_divided_of(pieces, all->count);
    all->by_keys = tni_divided_of(w->keys, all->count);
    const int64_t wide = (int64_t)all->tiles * all->slabs;
    all->each = (int)max(min(all->chunks * wide / (PARTS_BLOCKS_PER_SM * gpu->sms), TNI_ADD_EACH), 1);
    const int64_t many = ceil_div(all->chunks, all->each) * wide;
    const int64_t rows = ceil_div(all->count, TNI_ADD_THREADS * (dense ? 1 : TNI_ADD_ITEMS));
    if (many > INT32_MAX || rows > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: too many rows for a GPU", call->name);
    const bool overlaps = tni_cuda_has(call, unit, 90) && !s->by_offsets;
    s->parts[by_pieces] = s->ends[by_pieces] = (tn_launch){
        .grid = (uint32_t)many, .block = TNI_ADD_THREADS, .programmatic = overlaps};
    s->rows[by_pieces] = (tn_launch){.grid = (uint32_t)rows, .block = TNI_ADD_THREADS, .programmatic = overlaps};
    TN_TRY(
        tni_cuda_find(call, &s->rows[by_pieces], unit, "lookup_add_%s_%c_%s", dense ? "dense" : "rows", piece, type));
    TN_TRY(tni_cuda_find(call, &s->parts[by_pieces], unit, "lookup_add_parts_%c_%s", piece, type));
    return tni_cuda_find(call, &s->ends[by_pieces], unit, "lookup_add_ends_%c_%s", piece, type);
}

tn_status tni_sort_prepare(const tn_call *call, const tni_lookup *l, bool by_offsets, tni_sort_state *s) {
    const sorted w = sorted_of(l);
    if (w.positions >= UINT32_MAX - TNI_SORT_TILE || w.keys >= UINT32_MAX) {
        return tn_fail(TN_UNSUPPORTED, "%s: a GPU sorts fewer than 2^32 indices, and adds to fewer than 2^32 places",
                       call->name);
    }
    s->by_offsets = by_offsets;
    s->room = tni_sort_room_of(l, by_offsets);
    s->sort = (tni_sort){.index = tni_index_of(l),
                         .count = (unsigned)w.positions,
                         .keys = (unsigned)w.keys,
                         .n = (unsigned)l->n,
                         .width = (unsigned)w.width,
                         .blocks = (unsigned)ceil_div(w.positions, TNI_SORT_TILE)};
    s->any_place = is_long(&w, l->to->type);
    s->may_piece = s->any_place || (w.row % vector_of(l->to->type) == 0 && w.row > 0);
    if (s->any_place && w.positions < w.keys && !by_offsets) {
        s->longs.block = TNI_ADD_THREADS;
        s->longs.programmatic = tni_cuda_has(call, "lookup_add", 90);
        TN_TRY(tni_cuda_find(call, &s->longs, "lookup_add", "lookup_add_long_%s", tn_type_name(l->to->type)));
    }
    if (!by_offsets) TN_TRY(find_sort(call, &w, s));
    if (!s->any_place) TN_TRY(find_add(call, l, &w, false, s));
    return s->may_piece ? find_add(call, l, &w, true, s) : TN_OK;
}

static tni_sort sort_at(const tn_call *call, const tni_lookup *l, const tni_sort_state *s, int buffer) {
    char *workspace = call->workspace;
    tni_sort p = s->sort;
    p.index.data = l->index->data;
    p.key = (unsigned *)(workspace + s->room.key[buffer]);
    p.position = (unsigned *)(workspace + s->room.position[buffer]);
    p.from_key = (unsigned *)(workspace + s->room.key[!buffer]);
    p.from_position = (unsigned *)(workspace + s->room.position[!buffer]);
    p.counts = (unsigned *)(workspace + s->room.counts);
    p.totals = (unsigned *)(workspace + s->room.totals);
    p.begins = (unsigned *)(workspace + s->room.begins);
    p.ends = (unsigned *)(workspace + s->room.ends);
    return p;
}

/* Sorts, and writes down where everything is. */
static tn_status launch_sort(const tn_call *call, const tni_lookup *l, const tni_sort_state *s, tni_add *all) {
    tni_sort p = sort_at(call, l, s, 0);
    TN_TRY(tn_cuda_launch(call, &s->rank, (void *[]){&p}));
    for (int pass = 0; pass < s->passes; pass++) {
        tn_launch count = s->count;
        p = sort_at(call, l, s, pass % 2);
        p.is_first = pass == 0;
        p.shift = pass * TNI_SORT_BITS;
        count.programmatic &= !p.is_first; /* another call's kernel is ahead of it */
        if (p.is_first) count.grid = (uint32_t)max(count.grid, s->clearing);
        TN_TRY(tn_cuda_launch(call, &count, (void *[]){&p}));
        TN_TRY(tn_cuda_launch(call, &s->add, (void *[]){&p}));
        TN_TRY(tn_cuda_launch(call, &s->place, (void *[]){&p}));
    }
    all->key = p.key;
    all->position = p.position;
    all->begins = p.begins;
    all->ends = p.ends;
    return tn_cuda_launch(call, &s->mark, (void *[]){&p});
}

static tni_offsets offsets_of(const tni_lookup *l) {
    return (tni_offsets){
        .data = l->index->data, .wide = tni_lookup_is_wide(l), .segments = (unsigned)l->v, .positions = (unsigned)l->n};
}

/* The rows to which few others belong, a warp for each part of one. */
static tn_status launch_long(const tn_call *call, const tni_lookup *l, const tni_sort_state *s, tni_add *all) {
    const int64_t size = (int64_t)tn_type_size(l->to->type), rows = (int64_t)all->slabs * all->keys;
    const bool aligned = all->row * size % 16 == 0 && (uintptr_t)l->to->data % 16 == 0;
    const int64_t pieces = chunks_of(all->row, size, aligned), parts = ceil_div(pieces, 32 * TNI_ADD_LONG_ITEMS);
    const int64_t tiles = ceil_div(pieces, 32), positions = (int64_t)all->slabs * all->positions;
    const int64_t warps = positions * tiles + rows * parts, blocks = ceil_div(warps, TNI_ADD_THREADS / 32);
    tn_launch launch = s->longs;
    if (blocks > INT32_MAX) return tn_fail(TN_UNSUPPORTED, "%s: too many rows for a GPU", call->name);
    all->sums = positions * tiles;
    all->by_tiles = tni_divided_of(tiles, all->sums);
    all->by_positions = tni_divided_of(all->positions, positions);
    all->by_parts = tni_divided_of(parts, warps + TNI_ADD_THREADS);
    all->items = (int)ceil_div(pieces, 32 * parts);
    launch.grid = (uint32_t)blocks;
    return tn_cuda_launch(call, &launch, (void *[]){all});
}

tn_status tni_sort_launch(const tn_call *call, const tni_lookup *l, const tni_sort_state *s) {
    const void *base = data_of(l->base);
    const bool aligned = tni_is_aligned((const void *[]){l->from->data, l->to->data, base}, 3);
    const bool pieces = s->any_place || (s->may_piece && aligned);
    tni_add all = s->all[pieces];
    if (s->by_offsets)
        all.offsets = offsets_of(l);
    else
        TN_TRY(launch_sort(call, l, s, &all));
    all.from = l->from->data;
    all.base = base;
    all.to = l->to->data;
    all.partials = (char *)call->workspace + s->room.partials;
    TN_TRY(tn_cuda_launch(call, &s->parts[pieces], (void *[]){&all}));
    TN_TRY(tn_cuda_launch(call, &s->ends[pieces], (void *[]){&all}));
    if (s->longs.kernel) return launch_long(call, l, s, &all);
    return tn_cuda_launch(call, &s->rows[pieces], (void *[]){&all});
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

tn_status tni_segments_prepare(const tn_call *call, const tni_lookup *l, tn_launch *launch) {
    if (l->n >= UINT32_MAX || l->v >= INT32_MAX) {
        return tn_fail(TN_UNSUPPORTED, "%s: a GPU has fewer than 2^31 segments, of fewer than 2^32 rows", call->name);
    }
    *launch = (tn_launch){.grid = (uint32_t)ceil_div(l->n, TNI_SORT_THREADS), .block = TNI_SORT_THREADS};
    return tni_cuda_find(call, launch, "lookup_sort", "lookup_sort_segments");
}

tn_status tni_segments_launch(const tn_call *call, const tni_lookup *l, const tn_launch *launch, void *segments) {
    tni_segments p = {.offsets = offsets_of(l), .segment = segments};
    return tn_cuda_launch(call, launch, (void *[]){&p});
}
