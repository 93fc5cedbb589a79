/* Sums in gradients, taken apart: sum(s * a + t * b) is s * sum(a) + t * sum(b) where s and t are the same for all that
 * is summed. So sum(dy * rstd) is rstd * sum(dy): it need not wait for rstd, and is there one pass over memory earlier.
 *
 * A difference such as x - mean(x) stays one term: its sides, summed apart, would lose the digits that they share. */
#include "gradient.h"

enum { MOST_TERMS = 64, MOST_VISITS = 8 * MOST_TERMS };

typedef struct taker {
    tni_graph *g;
    tni_waits *waits;
    const tni_sum *sum;
    int32_t terms, visits;
    int32_t most; /* reductions that a term waits for */
} taker;

/* A product: times * inner / over, of which only `inner` changes along the sum. */
typedef struct product {
    int32_t times, over; /* -1: none */
    int32_t inner;
} product;

/* How many reductions, each of which needs the one before it, a value waits for. */
static int32_t waits_for(tni_waits *waits, const tni_graph *g, int32_t node) {
    for (; waits->n <= node; waits->n++) {
        const tni_gnode *n = &g->nodes[waits->n];
        const bool shape = n->op == TNI_P_SUM_TO || n->op == TNI_P_EXPAND;
        const bool twice = n->op == TNI_P_VAR || n->op == TNI_P_LSE; /* the mean before, or the maximum */
        const bool once = tni_is_reduction(n->op) || n->op == TNI_P_SUM_TO || n->op == TNI_P_CALL;
        int32_t most = 0;
        for (int k = 0; k < (shape ? 1 : TNI_NODE_ARGS) && n->arg[k] >= 0; k++) {
            if (waits->of[n->arg[k]] > most) most = waits->of[n->arg[k]];
        }
        waits->of[waits->n] = n->op == TNI_P_COUNT || n->op == TNI_P_INDEX_IN ? 0 : most + (twice ? 2 : once);
    }
    return waits->of[node];
}

/* Terms are repeated over all that is summed: whether they were before does not matter. */
static int32_t unrepeated(const taker *t, int32_t node) {
    while (t->g->nodes[node].op == TNI_P_EXPAND) node = t->g->nodes[node].arg[0];
    return node;
}

/* Whether a value changes along the sum. */
static bool is_along(const taker *t, int32_t node) {
    const tni_extent extent = t->g->nodes[unrepeated(t, node)].extent;
    if (t->sum->target < 0) return tni_is_along(t->g, extent, (uint32_t)t->sum->kind);
    return !tni_covers(t->g->nodes[t->sum->target].sure, extent);
}

static int32_t whole_sum(tni_graph *g, const tni_sum *sum, int32_t node) {
    if (sum->target >= 0) return tni_node2(g, TNI_P_SUM_TO, node, sum->target);
    return tni_node3(g, TNI_P_SUM, sum->kind, node, -1, -1);
}

static int32_t sum_term(taker *t, int32_t node) {
    const int32_t waited = waits_for(t->waits, t->g, node);
    if (waited > t->most) t->most = waited;
    t->terms++;
    return whole_sum(t->g, t->sum, tni_node2(t->g, TNI_P_EXPAND, node, t->sum->shape));
}

/* -1 counts as 1. */
static int32_t times(tni_graph *g, int32_t a, int32_t b) {
    return a < 0 ? b : b < 0 ? a : tni_node2(g, TNI_P_MUL, a, b);
}

/* What does not change along the sum, out of a product. */
static product split(taker *t, int32_t node) {
    const tni_gnode n = t->g->nodes[node];
    if (t->visits++ >= MOST_VISITS || (n.op != TNI_P_MUL && n.op != TNI_P_DIV)) return (product){-1, -1, node};
    const int32_t one = unrepeated(t, n.arg[0]), other = unrepeated(t, n.arg[1]);
    if (n.op == TNI_P_DIV) {
        if (is_along(t, other)) return (product){-1, -1, node};
        const product made = split(t, one);
        return (product){made.times, times(t->g, made.over, other), made.inner};
    }
    if (!is_along(t, one) || !is_along(t, other)) {
        const int32_t along = is_along(t, one) ? one : other, same = along == one ? other : one;
        const product made = split(t, along);
        return (product){times(t->g, same, made.times), made.over, made.inner};
    }
    const product a = split(t, one), b = split(t, other);
    return (product){times(t->g, a.times, b.times), times(t->g, a.over, b.over), times(t->g, a.inner, b.inner)};
}

static int32_t take(taker *t, int32_t node);

static int32_t take_product(taker *t, int32_t node) {
    const product made = split(t, node);
    const bool real = made.inner >= 0 && tni_class_of(t->g, t->g->nodes[made.inner].type) == TNI_CLASS_FLOAT;
    if (!real || (made.times < 0 && made.over < 0)) return sum_term(t, node);
    const int32_t whole = times(t->g, made.times, take(t, made.inner));
    return made.over < 0 ? whole : tni_node2(t->g, TNI_P_DIV, whole, made.over);
}

/* The sum of a node, as terms; a 0 stays one, and has no dimensions then. */
static int32_t take(taker *t, int32_t node) {
    const tni_gnode n = node >= 0 ? t->g->nodes[node] : (tni_gnode){.op = TNI_P_CONST};
    if (node < 0 || (n.op == TNI_P_CONST && n.value == 0)) return node;
    if (t->visits++ >= MOST_VISITS || !is_along(t, node)) return sum_term(t, node);
    switch (n.op) {
    case TNI_P_EXPAND: return take(t, n.arg[0]);
    case TNI_P_NEG: return tni_node1(t->g, TNI_P_NEG, take(t, n.arg[0]));
    case TNI_P_ADD:
    case TNI_P_SUB:
        if (!is_along(t, n.arg[0]) || !is_along(t, n.arg[1])) return sum_term(t, node);
        return tni_node2(t->g, (tni_prim)n.op, take(t, n.arg[0]), take(t, n.arg[1]));
    case TNI_P_WHERE:
        if (is_along(t, n.arg[0])) return sum_term(t, node);
        return tni_node3(t->g, TNI_P_WHERE, 0, n.arg[0], take(t, n.arg[1]), take(t, n.arg[2]));
    case TNI_P_MUL:
    case TNI_P_DIV: return take_product(t, node);
    default: return sum_term(t, node);
    }
}

int32_t tni_sum_apart(tni_graph *g, tni_waits *waits, const tni_sum *sum, int32_t node) {
    if (node < 0) return -1;
    const int32_t waited = waits_for(waits, g, node);
    const tni_extent shape = g->nodes[sum->shape].extent;
    const bool covers = tni_covers(shape, g->nodes[node].extent) &&
                        (sum->target < 0 || tni_covers(shape, g->nodes[sum->target].extent));
    if (waited > 0 && covers) {
        taker t = {.g = g, .waits = waits, .sum = sum};
        const int32_t made = take(&t, node);
        const bool better = t.most < waited || (t.most == waited && t.terms == 1);
        if (better && t.terms > 0 && t.terms <= MOST_TERMS && t.visits < MOST_VISITS) return made;
    }
    return whole_sum(g, sum, node);
}
