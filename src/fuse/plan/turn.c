/* A formula that reduces along one dimension, and not the last: that dimension becomes the last one. Then what is
 * reduced are rows, which a pass may read again or keep, and everything is one pass. The rows stand upright in memory:
 * which neighbours a thread reads is the backend's matter. */
#include "planner.h"

/* Is it sure that nothing else than what is asked for below goes by the order of dimensions? */
static bool may_turn(const tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    for (int32_t i = 0; i < g->n; i++) {
        if (g->nodes[i].op == TNI_P_RAND) return false;
        const bool reaches = tni_is_reduction(g->nodes[i].op) || g->nodes[i].op == TNI_P_INDEX;
        if (reaches && !tni_is_over_items(g->nodes[i].kind)) return false;
    }
    return !b->f->axes.list && !b->f->windows && b->domain.tail != 0;
}

/* The bit of the dimension that all reductions go along; 0: there is none, or several. Everything must have all other
 * dimensions that there are: then it is one pass. */
static uint32_t find_along(const tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    const tni_domain *d = &b->domain;
    uint32_t along = 0, all = 0;
    for (int k = 0; k < d->n_dims; k++) all |= d->size[k] != 1 ? 1u << k : 0;
    for (int32_t i = 0; i < g->n; i++) along |= tni_reduced(b, i);
    if (!along || (along & (along - 1)) || along == d->tail) return 0;
    for (int32_t i = 0; i < g->n; i++) {
        const tni_gnode *n = &g->nodes[i];
        if (tni_reduced(b, i) && b->mask[i] != (all & ~along)) return 0;
        if (n->op != TNI_P_INDEX) continue;
        const uint32_t counted = tni_reduced_mask(d, n->kind, b->mask[i]);
        if (counted & along && counted != along) return 0; /* they would be counted in another order */
    }
    for (int32_t k = 0; k < b->specialized.n_outputs; k++) {
        if (b->specialized.outputs[k] < 0) continue;
        if (b->f->outputs[k].inplace >= 0 || (d->out[k].mask & ~along) != (all & ~along)) return 0;
    }
    return along;
}

bool tni_lies_beside(const tni_binding *b) {
    const tni_domain *d = &b->domain;
    for (int k = 0; k < TNI_MAX_VIEWS; k++) {
        if (d->in[k].present && d->in[k].mask & d->tail && d->in[k].strides[d->n_dims - 1] != 1) return false;
        if (d->out[k].present && d->out[k].mask & d->tail && d->out[k].strides[d->n_dims - 1] != 1) return false;
    }
    return true;
}

bool tni_is_empty(const tni_domain *d) {
    bool empty = false;
    for (int k = 0; k < d->n_dims; k++) empty = empty || d->size[k] == 0;
    return empty;
}

static uint32_t turn_mask(uint32_t mask, int32_t k, int32_t n) {
    const uint32_t below = (1u << k) - 1;
    return (mask & below) | (mask >> 1 & ~below & ((1u << (n - 1)) - 1)) | (mask >> k & 1) << (n - 1);
}

static void turn_sizes(int64_t *sizes, int32_t k, int32_t n) {
    const int64_t size = sizes[k];
    for (; k < n - 1; k++) sizes[k] = sizes[k + 1];
    sizes[n - 1] = size;
}

void tni_turn(tni_binding *b) {
    tni_domain *d = &b->domain;
    const uint32_t along = b->program->backend->turns && may_turn(b) ? find_along(b) : 0;
    if (!along || !tni_lies_beside(b) || tni_is_empty(d)) return;
    const int32_t k = __builtin_ctz(along), n = d->n_dims;
    if (!b->program->backend->turns(b, k)) return;
    turn_sizes(d->size, k, n);
    for (int i = 0; i < TN_MAX_RANK; i++) d->items[i] = turn_mask(d->items[i], k, n);
    for (int i = 0; i < TNI_MAX_VIEWS; i++) {
        d->in[i].mask = turn_mask(d->in[i].mask, k, n);
        turn_sizes(d->in[i].strides, k, n);
        d->out[i].mask = turn_mask(d->out[i].mask, k, n);
        turn_sizes(d->out[i].strides, k, n);
    }
    for (int32_t i = 0; i < b->specialized.graph.n; i++) b->mask[i] = turn_mask(b->mask[i], k, n);
    d->turned = true;
}
