/* Parts of values: the dimensions that they have, and the windows through which they see the whole. */
#include <stdio.h>
#include <string.h>

#include "formula_object.h"

static const char *copy_text(const tni_fuse *f, tni_text *text) {
    const char *made = text->failed ? NULL : tni_arena_text(f->arena, text->data, text->length);
    tni_free(text->data);
    return made;
}

/* A dimension of the contract by itself. */
static bool is_plain(const tni_size *size) {
    return size->n == 1 && size->ref[0] < TNI_SIZE_ATTR && size->factor[0] == 1 && !size->constant &&
           size->divisor == 1;
}

const char *tni_item_text(const tni_fuse *f, int32_t item) {
    if (item < 0) return "size(1)";
    const char *key = f->axes.items[item].key;
    const tni_size *size = &f->axes.items[item].size;
    if (!f->axes.items[item].sized) return key;
    if (is_plain(size) && !f->axes.items[item].nth) return f->contract->dims[size->ref[0]];
    tni_text text = {0};
    tni_text_add(&text, "size(");
    tni_size_print(&text, f->contract, size);
    if (f->axes.items[item].nth) tni_text_add(&text, ", %d", (int)f->axes.items[item].nth + 1);
    tni_text_add(&text, ")");
    return copy_text(f, &text);
}

int32_t tni_item_of_size(tni_fuse *f, const tni_size *size, uint64_t taken, int32_t source) {
    tni_axes *axes = &f->axes;
    int32_t nth = 0;
    if (tni_size_is_number(size) && size->constant == 1) return -1;
    for (int32_t i = 0; i < axes->n_items; i++) {
        if (!axes->items[i].sized || !tni_size_same(&axes->items[i].size, size)) continue;
        nth = axes->items[i].nth >= nth ? axes->items[i].nth + 1 : nth;
        if (taken >> i & 1) continue;
        axes->items[i].size.floors &= size->floors; /* a size that must have no rest is checked */
        const bool apart = i != source && axes->items[i].source < 0 && !is_plain(size);
        if (apart) axes->items[i].source = source;
        return i;
    }
    if (axes->n_items == TN_MAX_RANK) return -2;
    const int32_t made = axes->n_items;
    axes->items[made].sized = true;
    axes->items[made].size = *size;
    axes->items[made].nth = nth;
    axes->items[made].source = source;
    axes->items[made].key = tni_item_text(f, made);
    if (!axes->items[made].key) return -2;
    f->graph.items[made] = axes->items[made].key;
    axes->n_items++;
    return made;
}

static bool same_window(const tni_window *a, const tni_window *b) {
    return a->from == b->from && a->to == b->to && a->bounds == b->bounds && a->step == b->step &&
           a->spreads == b->spreads && tni_size_same(&a->begin, &b->begin);
}

static const char *begin_text(const tni_fuse *f, const tni_size *begin) {
    tni_text text = {0};
    tni_size_print(&text, f->contract, begin);
    return copy_text(f, &text);
}

int32_t tni_add_window(tni_fuse *f, tni_window window) {
    if (!f->windows) {
        f->windows = tni_arena_alloc(f->arena, TNI_WINDOWS * sizeof *f->windows);
        if (!f->windows) return -1;
        f->graph.windows = f->windows;
    }
    if (!window.step) window.step = 1;
    for (int32_t i = 0; i < f->n_windows; i++) {
        if (same_window(&f->windows[i], &window)) return i;
    }
    tni_window back = {.from = window.to, .to = window.from, .step = window.step};
    back.spreads = window.step > 1 && !window.spreads;
    if (f->n_windows + 2 > TNI_WINDOWS || !tni_size_scale(&window.begin, -1, 1, &back.begin)) return -1;
    window.text = begin_text(f, &window.begin);
    back.text = begin_text(f, &back.begin);
    if (!window.text || !back.text) return -1;
    f->windows[f->n_windows] = window;
    f->windows[f->n_windows + 1] = back;
    f->n_windows += 2;
    return f->n_windows - 2;
}

/* The place of an item among the whole ones. */
static int32_t root_of(const tni_axes *axes, int32_t item) {
    while (axes->items[item].source >= 0) item = axes->items[item].source;
    return item;
}

void tni_note_part(tni_fuse *f, int32_t item, int32_t of) {
    tni_axes *axes = &f->axes;
    if (item < 0 || of < 0 || !axes->items[item].sized || is_plain(&axes->items[item].size)) return;
    if (axes->items[item].source < 0 && root_of(axes, of) != item) axes->items[item].source = of;
}

int32_t tni_items_in_order(const tni_axes *axes, uint64_t items, int32_t *made) {
    int32_t n = 0;
    for (int32_t i = 0; i < axes->n_items; i++) {
        if (!(items >> i & 1)) continue;
        int32_t k = n++;
        for (; k > 0 && root_of(axes, made[k - 1]) > root_of(axes, i); k--) made[k] = made[k - 1];
        made[k] = i;
    }
    return n;
}
