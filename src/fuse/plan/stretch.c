/* A formula that reduces along the last dimensions together, as group_norm reduces along a group's channels and what
 * each of them has, over arguments of which some have only the outer one, as gamma has: they become one dimension all
 * the same, and what is reduced are rows. An argument that has the outer one alone is stretched: each of its elements
 * stands for as many columns as the inner dimension has. */
#include "planner.h"

/* The two last dimensions of a mask: 1 is the outer one, 2 the inner one. */
static uint32_t last_two(const tni_domain *d, uint32_t mask) {
    return mask >> (d->n_dims - 2) & 3;
}

/* All reductions go along both and along nothing else, and some do; nothing goes by the order of elements. */
static bool reduces_both(const tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    const uint32_t both = 3u << (b->domain.n_dims - 2);
    bool any = false;
    for (int32_t i = 0; i < g->n; i++) {
        if (g->nodes[i].op == TNI_P_RAND || g->nodes[i].op == TNI_P_INDEX) return false;
        if (tni_reduced(b, i) && tni_reduced(b, i) != both) return false;
        any |= tni_reduced(b, i) != 0;
    }
    return any;
}

/* Do both lie in memory as one dimension would, or is there neither? */
static bool is_one(const tni_domain *d, uint32_t mask, const int64_t *strides) {
    const int32_t n = d->n_dims;
    const uint32_t has = last_two(d, mask);
    return has == 0 || (has == 3 && strides[n - 1] == 1 && strides[n - 2] == d->size[n - 1]);
}

static bool may_stretch(const tni_binding *b) {
    const tni_domain *d = &b->domain;
    bool stretches = false, stored = false;
    for (int k = 0; k < TNI_MAX_VIEWS; k++) {
        if (d->out[k].present && !is_one(d, d->out[k].mask, d->out[k].strides)) return false;
        stored |= d->out[k].present && last_two(d, d->out[k].mask) == 3;
        if (!d->in[k].present || is_one(d, d->in[k].mask, d->in[k].strides)) continue;
        if (last_two(d, d->in[k].mask) != 1 || d->in[k].strides[d->n_dims - 2] != 1) return false;
        stretches = true;
    }
    for (int32_t k = 0; k < b->specialized.n_outputs; k++) {
        if (b->specialized.outputs[k] >= 0 && b->f->outputs[k].inplace >= 0) return false;
    }
    return stretches && stored;
}

/* A vector has parts of two stretched elements at most. Rows that are too long for one pass stay as they are. */
void tni_stretch(tni_binding *b) {
    enum { LEAST = 16, MOST = 1 << 20 };
    tni_domain *d = &b->domain;
    const int32_t n = d->n_dims;
    if (!b->program->backend->stretches || n < 2 || !d->tail || d->turned || tni_is_empty(d)) return;
    if (b->f->axes.list || b->f->windows || d->size[n - 2] < 2 || d->size[n - 1] < LEAST) return;
    if (d->size[n - 2] > MOST / d->size[n - 1] || !reduces_both(b) || !may_stretch(b)) return;
    const uint32_t outer = 1u << (n - 2);
    for (int k = 0; k < TNI_MAX_VIEWS; k++) {
        if (!d->in[k].present || last_two(d, d->in[k].mask) != 1) continue;
        d->in[k].mask |= outer << 1;
        d->in[k].strides[n - 1] = d->size[n - 1];
        d->in[k].stretched = true;
    }
    for (int k = 0; k < TN_MAX_RANK; k++) d->items[k] |= (d->items[k] & outer) << 1;
    for (int32_t i = 0; i < b->specialized.graph.n; i++) {
        const uint32_t mask = b->mask[i] | (b->mask[i] & outer) << 1;
        b->mask[i] = (mask & (outer - 1)) | (mask >> 1 & ~(outer - 1));
    }
    tni_merge_dim(d, n - 2);
    d->tail = 1u << (d->n_dims - 1);
}
