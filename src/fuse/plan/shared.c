/* Values that many rows share, as what batch_norm makes of a channel's mean, variance and gamma: a pass would make them
 * anew for each row, or for each block of rows, and where rows are short that is most of its work. So a pass of their
 * own makes them once, all side by side, and the others read them. They come out with the same bits either way, so it
 * may go by the size of the call. */
#include <string.h>

#include "planner.h"

enum { MANY = 8 /* rows for each value: less is not worth a pass */ };

/* Functions that come out otherwise in a pass of which all is rounded to bf16. */
#define IS_NONE 0
#define IS_COARSE(function) 1
#define PRIMITIVE(id, value, real, whole, truth, coarse, ...) [TNI_P_##id] = IS_##coarse,
static const bool has_coarse[TNI_PRIMS] = {
#include "fuse/graph/primitive_list.h"
};

static const tni_gnode *node_at(const tni_binding *b, int32_t node) {
    return &b->specialized.graph.nodes[node];
}

/* How many rows of a node that takes the value of node i share it. */
static double rows_for_each(const tni_binding *b, int32_t i, int32_t user) {
    const tni_domain *d = &b->domain;
    const uint32_t rows = b->mask[user] & ~d->tail;
    if ((b->mask[i] & ~rows) || rows == b->mask[i]) return 0;
    return (double)tni_mask_count(d, rows) / (double)tni_mask_count(d, b->mask[i]);
}

/* Made of others by an operation, and the same in every kind of pass. */
static bool may_be_kept(const tni_binding *b, int32_t i, const bool *plain) {
    const tni_domain *d = &b->domain;
    const bool made = tni_prims[node_at(b, i)->op].kind == TNI_ELEMENTWISE && tni_resolve(b, i) == i;
    return made && plain[i] && b->mask[i] && !(b->mask[i] & d->tail);
}

/* Values without any function that has a coarse form, up to what passes give anyway. */
static void find_plain(const tni_binding *b, bool *plain) {
    for (int32_t i = 0; i < b->specialized.graph.n; i++) {
        const tni_gnode *n = node_at(b, i);
        plain[i] = !has_coarse[n->op] && n->op != TNI_P_RAND;
        for (int k = 0; k < 3 && n->arg[k] >= 0 && !tni_gathers(b, i); k++) plain[i] &= plain[n->arg[k]];
        plain[i] |= tni_gathers(b, i);
    }
}

tn_status tni_keep_shared(tni_binding *b) {
    const tni_graph *g = &b->specialized.graph;
    const tni_domain *d = &b->domain;
    if (!b->program->backend->keeps_shared || b->f->axes.list || b->f->windows || !d->tail || tni_is_empty(d))
        return TN_OK;
    bool *plain = tni_arena_alloc(b->arena, (size_t)g->n + 1);
    if (!plain) return TN_NO_MEMORY;
    find_plain(b, plain);
    for (int32_t user = 0; user < g->n; user++) {
        const tni_gnode *n = node_at(b, user);
        const bool first_alone = n->op == TNI_P_EXPAND || n->op == TNI_P_SUM_TO; /* the other one gives a shape */
        for (int k = 0; k < (first_alone ? 1 : 3) && n->arg[k] >= 0; k++) {
            const int32_t i = tni_resolve(b, n->arg[k]);
            if (may_be_kept(b, i, plain) && rows_for_each(b, i, user) >= MANY) b->lowered[i].kept = true;
        }
    }
    return TN_OK;
}
