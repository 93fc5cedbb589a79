/* Sums of squares of e - mean(e), as variances have: a backend that adds them up from e alone needs no mean first, and
 * so reads e once less. */
#include "planner.h"

static const tni_gnode *node_at(const tni_binding *b, int32_t node) {
    return &b->specialized.graph.nodes[node];
}

static int32_t argument(const tni_binding *b, int32_t node, int k) {
    return tni_resolve(b, node_at(b, node)->arg[k]);
}

static bool is_sum(const tni_binding *b, int32_t node) {
    return node_at(b, node)->op == TNI_P_SUM || node_at(b, node)->op == TNI_P_SUM_TO;
}

/* A number of elements, or one over another, as count(x) / count(g). */
static bool counts(const tni_binding *b, int32_t node, double wanted) {
    const tni_gnode *n = node_at(b, node);
    if (n->op == TNI_P_CONST) return n->value == wanted;
    if (n->op != TNI_P_DIV) return false;
    const tni_gnode *all = node_at(b, argument(b, node, 0)), *left = node_at(b, argument(b, node, 1));
    return all->op == TNI_P_CONST && left->op == TNI_P_CONST && all->value == wanted * left->value;
}

/* Is `mean` the sum of e over how many there are, along what `sum` goes along? */
static bool is_mean(const tni_binding *b, int32_t mean, int32_t e, int32_t sum) {
    if (node_at(b, mean)->op != TNI_P_DIV) return false;
    const int32_t whole = argument(b, mean, 0);
    const uint32_t gone = tni_reduced(b, sum);
    return is_sum(b, whole) && argument(b, whole, 0) == e && !b->lowered[whole].deviates &&
           tni_reduced(b, whole) == gone && gone &&
           counts(b, argument(b, mean, 1), (double)tni_mask_count(&b->domain, gone));
}

int32_t tni_deviates(const tni_binding *b, int32_t sum) {
    const int32_t product = b->lowered[sum].product;
    if (product < 0 || !is_sum(b, sum)) return -1;
    const int32_t d = argument(b, product, 0);
    if (argument(b, product, 1) != d || node_at(b, d)->op != TNI_P_SUB) return -1;
    const int32_t e = argument(b, d, 0);
    return node_at(b, e)->type == node_at(b, sum)->type && is_mean(b, argument(b, d, 1), e, sum) ? e : -1;
}

/* Those that a pass gathers, but for the ones that keep columns: a thread would need more for each column than it has
 * room for. Where there is nothing a pass may have other columns than the domain's last dimension. */
void tni_find_deviations(tni_binding *b) {
    tni_graph *g = &b->specialized.graph;
    if (!b->program->backend->deviates || b->domain.turned || b->f->axes.list) return;
    if (!tni_lies_beside(b) || tni_is_empty(&b->domain)) return;
    for (int32_t i = 0; i < g->n; i++) {
        const uint32_t kept = b->mask[i], gone = tni_reduced(b, i); /* columns are the last dimension that there is */
        const int32_t e = tni_gathers(b, i) && kept < gone ? tni_deviates(b, i) : -1;
        if (e < 0) continue;
        g->nodes[i].arg[0] = e;
        b->lowered[i].product = -1;
        b->lowered[i].deviates = true;
    }
}
