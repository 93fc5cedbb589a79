/* top_k on the CPU. Where few of many are wanted, a row is read once: what is not below the k-th best so far is passed
 * over, a block of elements at a time, and what is, is collected. When the room is full, the best k of it stay. */
#include "sort_rows.h"

/* ---- the best of what was collected ------------------------------------------------------------------------------ */

static record median(record a, record b, record c) {
    const record low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* The k-th smallest of n > k records, whose order is lost: quickselect. No two are equal. */
static record kth_smallest(record *a, int64_t n, int64_t k) {
    int64_t begin = 0, end = n;
    while (end - begin > FEW) {
        const record pivot = median(a[begin], a[begin + (end - begin) / 2], a[end - 1]);
        int64_t less = begin; /* records below the pivot go here; no branch depends on them */
        for (int64_t i = begin; i < end; i++) {
            const record r = a[i];
            a[i] = a[less];
            a[less] = r;
            less += r < pivot;
        }
        if (less < k) /* the pivot is not the smallest of three, nor the largest: either way there is less left */
            begin = less;
        else
            end = less;
    }
    insertion_sort(a + begin, end - begin);
    return a[k - 1];
}

/* The k smallest of n > k records in a stay, in the order in which they were: by their indices. Returns the largest. */
static record keep_smallest(const slot *own, int64_t n, int64_t k) {
    memcpy(own->b, own->a, (size_t)n * sizeof(record));
    const record last = kth_smallest(own->b, n, k);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const record r = own->a[i];
        own->a[kept] = r;
        kept += r <= last;
    }
    return last;
}

/* ---- a row, or a part of one ------------------------------------------------------------------------------------- */

/* Collects the best k of elements begin … end - 1 of row r by their indices; fewer where there are fewer. Returns how
 * many. An element that is as good as the k-th best comes later, and so is not wanted. */
static int64_t collect(const tni_sorting *o, int64_t r, int64_t begin, int64_t end, const slot *own, int64_t room) {
    const int64_t first = row_place(o, r, o->n);
    key keys[TNI_SORTING_BLOCK], limit = 0;
    record *const a = own->a;
    bool limited = false;
    int64_t count = 0;
    for (int64_t i = begin; i < end; i += TNI_SORTING_BLOCK) {
        const int64_t n = min(end - i, TNI_SORTING_BLOCK);
        load_keys(o, first + i, n, keys);
        if (limited) {
            key least = keys[0];
            for (int64_t j = 1; j < n; j++) least = keys[j] < least ? keys[j] : least;
            if (least >= limit) continue;
        }
        for (int64_t j = 0; j < n; j++) {
            a[count] = record_of(keys[j], i + j);
            count += !limited || keys[j] < limit;
        }
        if (count + TNI_SORTING_BLOCK <= room) continue;
        limit = key_in(keep_smallest(own, count, o->k));
        limited = true;
        count = o->k;
    }
    if (count > o->k) keep_smallest(own, count, o->k);
    return min(count, o->k);
}

static void finish_row(const tni_sorting *o, int64_t r, const slot *own) {
    const int width = 8 * (int)tn_type_size(o->x->type);
    store_records(o, r, 0, o->k, sort_records(own->a, own->b, o->k, width, own->counts));
}

static void select_slots(void *arg, int64_t begin, int64_t end) {
    const order_work *w = arg;
    const tni_sorting *o = w->o;
    for (int64_t s = begin; s < end; s++) {
        const slot own = slot_at(w->call, &w->room, s);
        for (int64_t r = o->rows * s / w->room.slots; r < o->rows * (s + 1) / w->room.slots; r++) {
            collect(o, r, 0, o->n, &own, w->room.records);
            finish_row(o, r, &own);
        }
    }
}

/* ---- few rows that are long: each in parts ----------------------------------------------------------------------- */

typedef struct parted_row {
    order_work w;
    int64_t row, parts;
    int64_t counts[TNI_SORTING_CHUNKS];
} parted_row;

static void collect_parts(void *arg, int64_t begin, int64_t end) {
    parted_row *p = arg;
    const int64_t n = p->w.o->n;
    for (int64_t c = begin; c < end; c++) {
        const slot own = slot_at(p->w.call, &p->w.room, c);
        const int64_t from = n * c / p->parts, until = n * (c + 1) / p->parts;
        p->counts[c] = collect(p->w.o, p->row, from, until, &own, p->w.room.records);
    }
}

static void select_parted(const order_work *w, int64_t row, int64_t parts) {
    parted_row p = {.w = *w, .row = row, .parts = parts};
    const slot all = slot_at(w->call, &w->room, 0);
    tn_parallel(w->call, parts, 1, collect_parts, &p);
    int64_t count = p.counts[0];
    for (int64_t c = 1; c < parts; c++) {
        const slot part = slot_at(w->call, &w->room, c);
        memcpy(all.a + count, part.a, (size_t)p.counts[c] * sizeof(record));
        count += p.counts[c];
        if (count <= w->o->k) continue;
        keep_smallest(&all, count, w->o->k);
        count = w->o->k;
    }
    finish_row(w->o, row, &all);
}

tn_status TNI_CPU(top_k)(const tn_call *call, void *state) {
    (void)state;
    const tni_sorting o = tni_sorting_of_top_k(call);
    order_work w = {call, &o, tni_sorting_room_of(&o)};
    const tn_host *host = call->host;
    if (o.rows == 0 || o.k == 0) return TN_OK;
    if (!tni_sorting_few(&o)) {
        sort_rows(call, &o);
        return TN_OK;
    }
    const int64_t threads = host->threads ? host->threads(host->context) : tn_threads();
    const int64_t parts = min(min(threads, o.n / TNI_SORTING_PART), min(w.room.slots, TNI_SORTING_CHUNKS));
    if (parts > 1 && o.rows < threads) {
        for (int64_t r = 0; r < o.rows; r++) select_parted(&w, r, parts);
    } else {
        w.room.slots = min(w.room.slots, o.rows);
        tn_parallel(call, w.room.slots, max(16384 * w.room.slots / (o.rows * o.n), 1), select_slots, &w);
    }
    return TN_OK;
}
