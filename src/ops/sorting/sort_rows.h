/* Rows that are sorted whole, for sort, and for top_k where it wants many of a row. */
#ifndef TNI_SORTING_SORT_ROWS_H
#define TNI_SORTING_SORT_ROWS_H

#include "records.h"
#include "sort_lanes.h"

typedef struct order_work {
    const tn_call *call;
    const tni_sorting *o;
    tni_sorting_room room;
} order_work;

/* ---- many rows --------------------------------------------------------------------------------------------------- */

static void sort_slots(void *arg, int64_t begin, int64_t end) {
    const order_work *w = arg;
    const tni_sorting *o = w->o;
    const int width = 8 * (int)tn_type_size(o->x->type);
    for (int64_t s = begin; s < end; s++) {
        const slot own = slot_at(w->call, &w->room, s);
        for (int64_t r = o->rows * s / w->room.slots; r < o->rows * (s + 1) / w->room.slots; r++) {
            load_records(o, r, 0, o->n, own.a);
            store_records(o, r, 0, o->k, sort_records(own.a, own.b, o->n, width, own.counts));
        }
    }
}

/* ---- a long row -------------------------------------------------------------------------------------------------- */

/* A row in chunks. A pass counts the digits of every chunk; from these follows where each chunk's records with each
 * digit go, so that chunks move theirs all at once and equal digits keep their order. */
typedef struct long_row {
    const tni_sorting *o;
    int64_t row, chunks;
    int pass;
    record *from, *to;
    uint64_t *counts; /* (chunks, TNI_SORTING_DIGITS) */
} long_row;

static int64_t chunk_begin(const long_row *l, int64_t chunk) {
    return l->o->n / l->chunks * chunk + min(l->o->n % l->chunks, chunk);
}

static void load_chunks(void *arg, int64_t begin, int64_t end) {
    const long_row *l = arg;
    const int64_t first = chunk_begin(l, begin);
    load_records(l->o, l->row, first, chunk_begin(l, end), l->from + first);
}

static void store_chunks(void *arg, int64_t begin, int64_t end) {
    const long_row *l = arg;
    const int64_t until = min(chunk_begin(l, end), l->o->k);
    store_records(l->o, l->row, chunk_begin(l, begin), until, l->from);
}

static void count_chunks(void *arg, int64_t begin, int64_t end) {
    const long_row *l = arg;
    for (int64_t c = begin; c < end; c++) {
        uint64_t *counts = l->counts + c * TNI_SORTING_DIGITS;
        const record *from = l->from;
        const int64_t until = chunk_begin(l, c + 1);
        const int pass = l->pass;
        memset(counts, 0, TNI_SORTING_DIGITS * sizeof *counts);
        for (int64_t i = chunk_begin(l, c); i < until; i++) counts[digit_of(from[i], pass, TNI_SORTING_BITS)]++;
    }
}

static void move_chunks(void *arg, int64_t begin, int64_t end) {
    const long_row *l = arg;
    for (int64_t c = begin; c < end; c++) {
        uint64_t *place = l->counts + c * TNI_SORTING_DIGITS;
        const record *from = l->from;
        record *to = l->to;
        const int64_t until = chunk_begin(l, c + 1);
        const int pass = l->pass;
        for (int64_t i = chunk_begin(l, c); i < until; i++) {
            const record r = from[i];
            to[place[digit_of(r, pass, TNI_SORTING_BITS)]++] = r;
        }
    }
}

/* Counts become places. False: all records have the same digit, and stay. */
static bool place_chunks(const long_row *l) {
    uint64_t sum = 0;
    for (int64_t d = 0; d < TNI_SORTING_DIGITS; d++) {
        const uint64_t before = sum;
        for (int64_t c = 0; c < l->chunks; c++) {
            uint64_t *count = &l->counts[c * TNI_SORTING_DIGITS + d], own = *count;
            *count = sum;
            sum += own;
        }
        if (sum - before == (uint64_t)l->o->n) return false;
    }
    return true;
}

static void sort_long(const tn_call *call, const tni_sorting *o, int64_t row, const slot *own, int64_t chunks) {
    const int width = 8 * (int)tn_type_size(o->x->type);
    long_row l = {.o = o, .row = row, .chunks = chunks, .from = own->a, .to = own->b, .counts = own->counts};
    tn_parallel(call, chunks, 1, load_chunks, &l);
    if (chunks == 1 && o->n < UINT32_MAX) {
        l.from = sort_records(own->a, own->b, o->n, width, own->counts);
    } else {
        for (; l.pass * TNI_SORTING_BITS < width; l.pass++) {
            tn_parallel(call, chunks, 1, count_chunks, &l);
            if (!place_chunks(&l)) continue;
            tn_parallel(call, chunks, 1, move_chunks, &l);
            record *const sorted = l.to;
            l.to = l.from;
            l.from = sorted;
        }
    }
    tn_parallel(call, chunks, 1, store_chunks, &l);
}

static void sort_rows(const tn_call *call, const tni_sorting *o) {
    order_work w = {call, o, tni_sorting_room_of(o)};
    const tn_host *host = call->host;
    if (o->rows == 0 || o->k == 0) return;
    if (goes_by_lanes(o)) {
        tn_parallel(call, o->rows, 4096 / o->n, sort_by_lanes, (void *)(uintptr_t)o);
        return;
    }
    if (o->n < TNI_SORTING_LONG) {
        tn_parallel(call, w.room.slots, max(4096 * w.room.slots / max(o->rows * o->n, 1), 1), sort_slots, &w);
        return;
    }
    const slot own = slot_at(call, &w.room, 0);
    const int64_t threads = host->threads ? host->threads(host->context) : tn_threads();
    for (int64_t r = 0; r < o->rows; r++) sort_long(call, o, r, &own, max(min(threads, TNI_SORTING_CHUNKS), 1));
}

#endif
