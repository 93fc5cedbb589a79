/* What the windows of a formula come to in a call: which elements of which dimension a part has. */
#include "core/contract/parts.h"
#include "program.h"

static int64_t tail_place(const tn_view *view, const tni_shape *shape, int k) {
    return view->ndim - (shape->count - k);
}

/* The dimensions that entries of a shape tell, n of T[n, *s, 2 * m], and m too. */
static void take_dims(const tni_contract *c, const tni_param *param, const tn_view *view, int64_t *dims) {
    bool behind = false;
    if (param->shape.cond >= 0) return;
    for (int k = 0; k < param->shape.count; k++) {
        const tni_item *item = &c->items[param->shape.first + k];
        tni_size size;
        const int64_t place = behind ? tail_place(view, &param->shape, k) : k;
        if (item->kind != TNI_ITEM_EXPR && item->kind != TNI_ITEM_PACK) return;
        behind |= item->kind == TNI_ITEM_PACK;
        if (item->kind == TNI_ITEM_PACK || item->broadcast || place < 0 || place >= view->ndim) continue;
        if (!tni_size_of_node(c, item->node, &size) || size.n != 1 || size.ref[0] >= TNI_SIZE_ATTR) continue;
        if (size.divisor > 1 && dims[size.ref[0]] >= 0) continue; /* it may have been rounded down */
        dims[size.ref[0]] = (view->shape[place] * size.divisor - size.constant) / size.factor[0];
    }
}

static void find_dims(const tni_fuse *f, const tn_call *call, int64_t *dims) {
    const tni_contract *c = f->contract;
    for (int i = 0; i < c->n_dims; i++) dims[i] = -1;
    for (int i = 0; i < c->n_inputs; i++) {
        if (tn_in(call, i)) take_dims(c, &c->inputs[i], tn_in(call, i), dims);
    }
    for (int i = 0; i < c->n_outputs; i++) {
        if (tn_out(call, i)) take_dims(c, &c->outputs[i], tn_out(call, i), dims);
    }
}

/* "c is 7" */
static tn_status no_rest(const tni_fuse *f, const tni_size *size, int64_t value) {
    tni_text text = {0};
    tni_size_print(&text, f->contract, size);
    tn_status status = text.failed
                           ? TN_NO_MEMORY
                           : tn_fail(TN_BAD_SHAPE, "%s: %s must be a whole number of elements, and is %lld / %lld",
                                     f->contract->name, text.data, (long long)value, (long long)size->divisor);
    tni_free(text.data);
    return status;
}

tn_status tni_size_in(const tni_fuse *f, const tn_call *call, const int64_t *dims, const tni_size *size,
                      int64_t *made) {
    int64_t sum = size->constant;
    for (int32_t i = 0; i < size->n; i++) {
        const int32_t ref = size->ref[i];
        const int64_t value = ref >= TNI_SIZE_ATTR ? call->attrs[ref - TNI_SIZE_ATTR].i : dims[ref];
        int64_t term;
        if (ref < TNI_SIZE_ATTR && value < 0) {
            return tn_fail(TN_BAD_SHAPE, "%s: no argument of this call tells how large %s is", f->contract->name,
                           f->contract->dims[ref]);
        }
        if (__builtin_mul_overflow(size->factor[i], value, &term) || __builtin_add_overflow(sum, term, &sum)) {
            return tn_fail(TN_BAD_SHAPE, "%s: the size of a part has more than 63 bits", f->contract->name);
        }
    }
    *made = sum / size->divisor - (sum % size->divisor < 0);
    return size->floors || sum % size->divisor == 0 ? TN_OK : no_rest(f, size, sum);
}

static const char *item_name(const tni_fuse *f, int32_t item) {
    return item < 0 ? "a dimension" : f->axes.items[item].key;
}

static tn_status check_window(const tni_fuse *f, const tni_window *window, int64_t begin, int64_t size,
                              int64_t length) {
    const int64_t end = size ? begin + (size - 1) * window->step + 1 : begin;
    if (window->bounds == TNI_AT_END && end != length) {
        return tn_fail(TN_BAD_SHAPE, "%s: the parts of %s come to %lld elements, and there are %lld", f->contract->name,
                       item_name(f, window->from), (long long)end, (long long)length);
    }
    if (window->bounds == TNI_INSIDE && (begin < 0 || end > length)) {
        return tn_fail(TN_BAD_SHAPE, "%s: a part of %s goes from %lld to %lld, and there are %lld elements",
                       f->contract->name, item_name(f, window->from), (long long)begin, (long long)end,
                       (long long)length);
    }
    if (window->bounds == TNI_ROLLED && (begin > length || begin < -length)) {
        return tn_fail(TN_BAD_SHAPE, "%s: %s is rolled by %lld, which is more than its %lld elements",
                       f->contract->name, item_name(f, window->from), (long long)-begin, (long long)length);
    }
    return TN_OK;
}

tn_status tni_place_windows(const tni_fuse *f, const tn_call *call, const int32_t *first, tni_domain *domain) {
    const tni_axes *axes = &f->axes;
    int64_t dims[TNI_MAX_NAMES], size;
    find_dims(f, call, dims);
    for (int32_t i = axes->n_own; i < axes->n_items; i++) {
        TN_TRY(tni_size_in(f, call, dims, &axes->items[i].size, &size));
        if (size < 0) {
            return tn_fail(TN_BAD_SHAPE, "%s: a part has %s elements, which is %lld", f->contract->name,
                           axes->items[i].key, (long long)size);
        }
        domain->size[first[i]] = size;
    }
    for (int32_t k = 0; k < f->n_windows; k++) {
        const tni_window *window = &f->windows[k];
        int64_t begin;
        TN_TRY(tni_size_in(f, call, dims, &window->begin, &begin));
        const int64_t length = window->from < 0 ? 1 : domain->size[first[window->from]];
        const int64_t part = window->to < 0 ? 1 : domain->size[first[window->to]];
        TN_TRY(check_window(f, window, begin, part, length));
        domain->windows[k].from = window->from < 0 ? -1 : first[window->from];
        domain->windows[k].to = window->to < 0 ? -1 : first[window->to];
        domain->windows[k].begin = begin;
        domain->windows[k].length = length;
        domain->windows[k].step = window->step;
        domain->windows[k].spreads = window->spreads;
    }
    return TN_OK;
}
