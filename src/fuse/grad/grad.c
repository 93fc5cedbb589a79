/* Reverse-mode gradients. Each primitive's derivative is a formula in its row (graph/primitive_list.h); here they are
 * chained, from the outputs back to the inputs, into a graph that contains the formula's own.
 *
 * Shapes: what arrives at a node may have more dimensions than the node, which was broadcast; it must be summed over
 * those. That is put off as long as it can be (the sum of products is the product of the sum where the factors have not
 * those dimensions), but not past a reduction, and not for values of rows or single ones: there it makes what follows
 * cheaper. What arrives may also have fewer dimensions than the node (what comes out of a sum): it stands for itself,
 * repeated, and is repeated before it is summed. */
#include <string.h>

#include "fuse/lang/language.h"
#include "gradient.h"

enum { GROUPS = 3, MOST_GUARDS = 16, MOST_TERMS = 16 };

/* Contributions that arrive over the same dimensions. */
typedef struct group {
    int32_t node;
    int32_t shape; /* a node that has these dimensions */
} group;

typedef struct differ {
    tni_gradient *made;
    tni_graph *g;
    int32_t n; /* nodes of the formula itself */
    bool active[TNI_FUSE_NODES], decided[TNI_FUSE_NODES];
    bool touched[TNI_FUSE_NODES]; /* depends on an input that floats, if only in steps */
    bool chosen[TNI_FUSE_NODES];  /* of the gradient: what arrives at a branch, `where(c, d, 0)` */
    tni_waits waits;
    group groups[TNI_FUSE_NODES][GROUPS];
    int32_t n_groups[TNI_FUSE_NODES];
} differ;

static tni_extent extent_of(const differ *d, int32_t node) {
    return node >= 0 ? d->g->nodes[node].extent : (tni_extent){0, 0};
}

static bool same_shape(const differ *d, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return tni_same_extent(extent_of(d, a), extent_of(d, b));
    return tni_same_shape(&d->g->nodes[a], &d->g->nodes[b]);
}

static bool may_be_absent(const differ *d, int32_t node) {
    return node >= 0 && d->g->nodes[node].absent;
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

/* Whether a call's attributes and absent inputs decide it: no element is looked at. */
static bool is_decided(const differ *d, int32_t i) {
    const tni_gnode *node = &d->g->nodes[i];
    switch (node->op) {
    case TNI_P_CONST:
    case TNI_P_ATTR:
    case TNI_P_ATTR_IS:
    case TNI_P_HAS:
    case TNI_P_HAS_ATTR: return true;
    case TNI_P_INPUT:
    case TNI_P_RAND:
    case TNI_P_INDEX:
    case TNI_P_INDEX_IN:
    case TNI_P_COUNT: return false;
    default: return i < d->n && d->decided[i];
    }
}

static void mark_decided(differ *d) {
    for (int32_t i = 0; i < d->n; i++) {
        const tni_gnode *node = &d->g->nodes[i];
        d->decided[i] = true;
        for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++) d->decided[i] &= is_decided(d, node->arg[k]);
    }
}

static bool is_zero(const differ *d, int32_t node) {
    return d->g->nodes[node].op == TNI_P_CONST && d->g->nodes[node].value == 0;
}

/* What arrives only where a condition holds, `where(c, d, 0)`, is passed on as d and put under the condition again: of
 * a branch that is not taken 0 * f'(x) may be NaN, and where the call decides it costs nothing then. */
typedef struct guards {
    int32_t wheres[MOST_GUARDS], n;
    int32_t inner;
} guards;

static guards take_guards(const differ *d, int32_t node, bool chosen) {
    guards found = {.inner = node};
    while (found.n < MOST_GUARDS) {
        const tni_gnode *n = &d->g->nodes[found.inner];
        if (n->op != TNI_P_WHERE || !(is_decided(d, n->arg[0]) || (chosen && d->chosen[found.inner]))) break;
        bool first = is_zero(d, n->arg[2]), second = is_zero(d, n->arg[1]);
        if (first == second) break;
        found.wheres[found.n++] = found.inner;
        found.inner = n->arg[first ? 1 : 2];
    }
    return found;
}

static int32_t guarded(differ *d, const guards *by, int32_t node) {
    for (int32_t i = by->n - 1; i >= 0 && node >= 0; i--) {
        const tni_gnode where = d->g->nodes[by->wheres[i]];
        bool first = is_zero(d, where.arg[2]);
        node = tni_node3(d->g, TNI_P_WHERE, 0, where.arg[0], first ? node : where.arg[1], first ? where.arg[2] : node);
        if (node >= 0) d->chosen[node] |= d->chosen[by->wheres[i]];
    }
    return node;
}

/* ---- contributions ----------------------------------------------------------------------------------------------- */

/* The group's values over all of its dimensions, for a sum: a 0 where a condition does not hold can stay alone. */
static int32_t whole(differ *d, group from) {
    if (from.node < 0) return -1;
    const guards by = take_guards(d, from.node, false);
    return guarded(d, &by, tni_node2(d->g, TNI_P_EXPAND, by.inner, from.shape));
}

/* Those, summed to the dimensions of `node`. */
static int32_t summed(differ *d, group from, int32_t node) {
    if (same_shape(d, from.shape, node)) return from.node;
    const tni_sum sum = {.target = node, .shape = from.shape};
    return tni_sum_apart(d->g, &d->waits, &sum, whole(d, from));
}

static bool rows_by_name(const differ *d) {
    return !d->made->f->axes.numpy;
}

/* Values of rows, single ones and others of fewer dimensions take their sum at once: what is made of it then has fewer
 * dimensions, too. */
static group sum_early(differ *d, group from, int32_t node) {
    tni_extent have = extent_of(d, from.shape), want = extent_of(d, node);
    bool all = tni_is_scalar(want) && !tni_is_scalar(have);
    /* By name, the last pack may turn out to have no dimensions: then rows go along another one. */
    bool rows = !rows_by_name(d) || !d->g->tail_pack;
    bool row = rows && !tni_has_tail(d->g, want) && tni_has_tail(d->g, have);
    bool fewer = rows_by_name(d) && tni_covers(have, want) && !tni_covers(want, have);
    if (!all && !row && fewer) return (group){summed(d, from, node), node};
    if (!all && !row) return from;
    int reach = all ? TNI_OVER_ALL : TNI_OVER_ROW;
    const tni_sum sum = {.kind = reach, .target = -1, .shape = from.shape};
    group made = {tni_sum_apart(d->g, &d->waits, &sum, whole(d, from)), node};
    int32_t shape = tni_node3(d->g, TNI_P_SUM, reach, from.shape, -1, -1);
    if (!same_shape(d, shape, node)) made.shape = shape;
    return made;
}

/* The shape of a group must be there even where what arrived is not. */
static void add(differ *d, int32_t node, group from) {
    group *groups = d->groups[node];
    if (from.node < 0) return;
    from = sum_early(d, from, node);
    if (may_be_absent(d, from.shape) && same_shape(d, from.shape, node)) from.shape = node;
    if (d->n_groups[node] == GROUPS) from = (group){summed(d, from, node), node};
    for (int32_t i = 0; i < d->n_groups[node]; i++) {
        const bool lost = may_be_absent(d, groups[i].shape);
        if (!same_shape(d, groups[i].shape, from.shape)) continue;
        if (lost && may_be_absent(d, from.shape) && groups[i].shape != from.shape) continue;
        groups[i].node = tni_node2(d->g, TNI_P_ADD, groups[i].node, from.node);
        if (lost) groups[i].shape = from.shape;
        return;
    }
    if (d->n_groups[node] == GROUPS) { /* none has the node's own dimensions: make room */
        groups[0] = (group){summed(d, groups[0], node), node};
        groups[0].node = tni_node2(d->g, TNI_P_ADD, groups[0].node, from.node);
        return;
    }
    groups[d->n_groups[node]++] = from;
}

/* All that has arrived, as one. */
static group arrived(differ *d, int32_t node) {
    group made = {-1, node};
    if (d->n_groups[node] == 1) return d->groups[node][0];
    for (int32_t i = 0; i < d->n_groups[node]; i++) {
        int32_t part = summed(d, d->groups[node][i], node);
        made.node = made.node < 0 ? part : tni_node2(d->g, TNI_P_ADD, made.node, part);
    }
    return made;
}

/* ---- the chain rule ---------------------------------------------------------------------------------------------- */

/* What passes through a choice between elements arrives at each side where that is taken. */
static void mark_chosen(differ *d, int op, int32_t node) {
    bool chooses = op == TNI_P_WHERE || op == TNI_P_MIN || op == TNI_P_MAX || op == TNI_P_CLAMP;
    while (chooses && node >= 0 && d->g->nodes[node].op == TNI_P_WHERE) {
        const int32_t *arg = d->g->nodes[node].arg;
        d->chosen[node] = true;
        node = is_zero(d, arg[2]) ? arg[1] : is_zero(d, arg[1]) ? arg[2] : -1;
    }
}

static void pass_term(differ *d, int32_t i, group from) {
    const tni_gnode node = d->g->nodes[i];
    const guards by = take_guards(d, from.node, true);
    int32_t names[5] = {node.arg[0], node.arg[1], node.arg[2], i, by.inner};
    const bool square = node.op == TNI_P_MUL && node.arg[0] == node.arg[1]; /* both ways at once */
    if (square) names[4] = tni_node2(d->g, TNI_P_MUL, tni_const(d->g, TNI_TY_WEAK_FLOAT, 2), by.inner);
    for (int k = 0; k < (square ? 1 : 3) && node.arg[k] >= 0; k++) {
        const char *rule = tni_prims[node.op].grad[k];
        if (!rule || !d->active[node.arg[k]]) continue;
        int32_t made = tni_template(d->g, rule, names, (int)node.kind);
        mark_chosen(d, node.op, made);
        add(d, node.arg[k], (group){guarded(d, &by, made), from.shape});
    }
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Is the node taken by these two and by nothing else, and no output? */
static bool serves_only(const differ *d, int32_t node, int32_t one, int32_t other) {
    const tni_fuse *f = d->made->f;
    for (int32_t i = 0; i < d->n; i++) {
        for (int k = 0; k < TNI_NODE_ARGS; k++) {
            if (d->g->nodes[i].arg[k] == node && i != one && i != other) return false;
        }
    }
    for (int32_t k = 0; k < f->contract->n_outputs; k++) {
        if (f->outputs[k].node == node) return false;
    }
    return true;
}

/* y = exp(u) / sum(exp(u)) passes y (d - sum(d y)) on to u: two reductions fewer than step by step. Where u is x - m,
 * with one m for all that is summed, y does not depend on m: nothing is passed on to the maximum that people write. */
static bool pass_softmax(differ *d, int32_t i, group from) {
    const tni_gnode *nodes = d->g->nodes;
    if (nodes[i].op != TNI_P_DIV) return false;
    const int32_t exp = nodes[i].arg[0], sum = nodes[i].arg[1], u = nodes[exp].arg[0];
    const tni_gnode reduction = nodes[sum], inner = nodes[exp].op == TNI_P_EXP ? nodes[u] : (tni_gnode){0};
    bool is = nodes[exp].op == TNI_P_EXP && reduction.op == TNI_P_SUM && reduction.arg[0] == exp;
    if (!is || !serves_only(d, exp, i, sum) || !serves_only(d, sum, i, i)) return false;
    bool shifted = inner.op == TNI_P_SUB && !tni_is_along(d->g, extent_of(d, inner.arg[1]), reduction.kind) &&
                   serves_only(d, u, exp, exp);
    int32_t dy = tni_node2(d->g, TNI_P_EXPAND, summed(d, from, i), i);
    int32_t both = tni_node2(d->g, TNI_P_MUL, dy, i);
    int32_t mean = tni_node3(d->g, TNI_P_SUM, (int)reduction.kind, both, -1, -1);
    int32_t du = tni_node2(d->g, TNI_P_MUL, i, tni_node2(d->g, TNI_P_SUB, dy, mean));
    const int32_t to = shifted ? inner.arg[0] : u;
    if (d->active[to]) add(d, to, (group){du, i});
    return true;
}

/* What arrives at a part arrives at its place in the whole, and 0 elsewhere: the window the other way round. */
static bool pass_part(differ *d, int32_t i, group from) {
    const tni_gnode node = d->g->nodes[i];
    if (!tni_is_part(node.op)) return false;
    const int32_t dy = tni_node2(d->g, TNI_P_EXPAND, summed(d, from, i), i);
    for (int k = 0; k < tni_prims[node.op].arity && dy >= 0; k++) {
        const int32_t zero = tni_const(d->g, TNI_TY_WEAK_FLOAT, 0), arg = node.arg[k];
        if (!d->active[arg]) continue;
        if (node.op == TNI_P_JOIN) {
            const int32_t part = tni_node3(d->g, TNI_P_JOIN, (int)node.kind, k ? zero : dy, k ? dy : zero, -1);
            add(d, arg, (group){part, i});
            continue;
        }
        const int kind = (int)(node.op == TNI_P_TAKE ? node.kind ^ 1 : node.kind);
        const int32_t part = tni_node3(d->g, (tni_prim)node.op, kind, dy, -1, -1);
        add(d, arg, (group){part, part});
    }
    return true;
}

static bool same_guards(const differ *d, const guards *a, const guards *b) {
    for (int32_t i = 0; i < a->n && a->n == b->n; i++) {
        const tni_gnode *one = &d->g->nodes[a->wheres[i]], *other = &d->g->nodes[b->wheres[i]];
        if (one->arg[0] != other->arg[0] || is_zero(d, one->arg[2]) != is_zero(d, other->arg[2])) return false;
    }
    return a->n == b->n;
}

/* Terms under the same conditions become one: else there would be more of them from node to node. */
static int32_t merge_terms(differ *d, int32_t *terms, int32_t n) {
    guards by[MOST_TERMS];
    int32_t merged = 0;
    for (int32_t k = n - 1; k >= 0; k--) {
        const guards found = take_guards(d, terms[k], true);
        int32_t m = 0;
        while (m < merged && !same_guards(d, &by[m], &found)) m++;
        if (m == merged) {
            by[merged++] = found;
        } else if (by[m].inner >= 0) {
            by[m].inner = tni_node2(d->g, TNI_P_ADD, by[m].inner, found.inner);
        }
    }
    for (int32_t m = 0; m < merged; m++) terms[m] = guarded(d, &by[m], by[m].inner);
    return merged;
}

static void pass_through_scan(differ *d, int32_t i, int32_t dy) {
    const tni_gnode node = d->g->nodes[i];
    int32_t made[TNI_NODE_ARGS];
    if (dy < 0) return;
    const tn_status status = tni_scan_gradient(d->g, d->made->f->scanning, i, dy, made);
    if (status != TN_OK && d->g->status == TN_OK) d->g->status = status;
    for (int k = 0; k < TNI_NODE_ARGS && node.arg[k] >= 0 && status == TN_OK; k++) {
        if (made[k] >= 0 && d->active[node.arg[k]]) add(d, node.arg[k], (group){made[k], made[k]});
    }
}

/* Past an operator of the table. */
static void pass_through_call(differ *d, int32_t i, group from) {
    const tni_gnode node = d->g->nodes[i];
    const int32_t dy = tni_node2(d->g, TNI_P_EXPAND, summed(d, from, i), i);
    if (d->g->calls[node.ref].scans) {
        pass_through_scan(d, i, dy);
        return;
    }
    for (int k = 0; k < TNI_NODE_ARGS && node.arg[k] >= 0 && dy >= 0; k++) {
        int32_t made;
        if (tni_takes_shape(d->g, &node, k) || !d->active[node.arg[k]]) continue;
        const tn_status status = tni_call_gradient(d->g, i, k, dy, &made);
        if (status != TN_OK && d->g->status == TN_OK) d->g->status = status;
        add(d, node.arg[k], (group){status == TN_OK ? made : -1, node.arg[k]});
    }
}

/* What has arrived in several branches, of which a call takes one, goes on branch by branch. */
static void pass_on(differ *d, int32_t i) {
    const tni_gnode node = d->g->nodes[i];
    bool reduces = tni_is_reduction(node.op) || node.op == TNI_P_SUM_TO, guarded_ones = false;
    group from = arrived(d, i);
    if (from.node < 0 || pass_softmax(d, i, from) || pass_part(d, i, from)) return;
    if (node.op == TNI_P_CALL) {
        pass_through_call(d, i, from);
        return;
    }
    if (reduces) from = (group){summed(d, from, i), node.arg[0]};
    if (node.op == TNI_P_SUM_TO) { /* what is summed to more dimensions than it has was repeated there */
        bool lacks = !tni_covers(extent_of(d, node.arg[0]), extent_of(d, node.arg[1]));
        if (lacks) from.node = whole(d, (group){from.node, node.arg[1]});
        from.node = tni_node2(d->g, TNI_P_SUM_TO, whole(d, from), node.arg[0]);
    }
    if (from.node < 0) return;
    int32_t terms[MOST_TERMS], n = 0, rest = from.node;
    for (; n < MOST_TERMS - 1 && d->g->nodes[rest].op == TNI_P_ADD; rest = d->g->nodes[rest].arg[0])
        terms[n++] = d->g->nodes[rest].arg[1];
    terms[n++] = rest;
    for (int32_t k = 0; k < n; k++) guarded_ones |= take_guards(d, terms[k], false).n > 0;
    if (!guarded_ones) {
        pass_term(d, i, from);
        return;
    }
    n = merge_terms(d, terms, n);
    for (int32_t k = 0; k < n; k++) {
        if (terms[k] >= 0) pass_term(d, i, (group){terms[k], from.shape});
    }
}

/* What floats and depends on an input that does. */
static void mark_active(differ *d) {
    const tni_contract *c = d->made->f->contract;
    for (int32_t i = 0; i < d->n; i++) {
        const tni_gnode *node = &d->g->nodes[i];
        tni_class class = tni_class_of(d->g, node->type);
        bool real = class == TNI_CLASS_FLOAT || class == TNI_CLASS_ANY;
        bool input = node->op == TNI_P_INPUT && !tni_is_seed(c, node->ref);
        d->active[i] = d->touched[i] = input && real;
        for (int k = 0; k < TNI_NODE_ARGS && node->arg[k] >= 0; k++) {
            bool counts = node->op == TNI_P_CALL ? !tni_takes_shape(d->g, node, k)
                                                 : tni_prims[node->op].grad[k] != NULL || tni_is_part(node->op);
            d->active[i] |= real && counts && d->active[node->arg[k]];
            d->touched[i] |= d->touched[node->arg[k]];
        }
    }
}

/* ---- outputs and inputs ------------------------------------------------------------------------------------------ */

static tn_status items_of(const tni_fuse *f, const tni_param *param, uint64_t *bits) {
    tni_extent extent;
    TN_TRY(tni_param_extent(f, param, &extent));
    *bits = extent.full | extent.row;
    return TN_OK;
}

/* By position, [*s] is all that inputs T[~*s] have of it, or what an input T[*s] has. A value that has neither is
 * repeated. */
static tn_status pack_extent(const tni_fuse *f, const tni_param *output, tni_extent *extent) {
    const tni_contract *c = f->contract;
    const int32_t pack = c->items[output->shape.first].ref;
    const uint64_t has = extent->full | extent->row;
    uint64_t own, shared = 0, bits;
    TN_TRY(items_of(f, output, &own));
    for (int i = 0; i < c->n_inputs; i++) {
        const tni_shape *shape = &c->inputs[i].shape;
        if (tni_is_seed(c, i) || !tni_broadcasts(c, shape) || c->items[shape->first].ref != pack) continue;
        TN_TRY(items_of(f, &c->inputs[i], &bits));
        shared |= bits;
    }
    const bool whole = (has & own) || (shared && (has & shared) == shared);
    bits = whole ? has : shared ? shared : own;
    *extent = tni_is_row(f, output, NULL) ? (tni_extent){0, bits} : (tni_extent){bits, 0};
    return TN_OK;
}

/* The dimensions that an output has by the contract: perhaps more than its value. */
static tn_status output_extent(const tni_fuse *f, int32_t k, tni_extent *extent) {
    const tni_param *param = &f->contract->outputs[k];
    const tni_item *first = &f->contract->items[param->shape.first];
    *extent = f->graph.nodes[f->outputs[k].node].extent;
    if (!f->signed_by_user || param->shape.cond >= 0) return TN_OK;
    if (f->axes.numpy) {
        return param->shape.count && first->kind == TNI_ITEM_PACK ? pack_extent(f, param, extent) : TN_OK;
    }
    return tni_param_extent(f, param, extent);
}

/* Whether something can arrive at an output: its value may be rounded to an integer when it is stored. */
static bool floats(const differ *d, int32_t k) {
    const tni_fuse *f = d->made->f;
    const tni_class stored = tni_class_of(d->g, tni_param_type(&f->contract->outputs[k].type));
    const tni_class value = tni_class_of(d->g, d->g->nodes[f->outputs[k].node].type);
    return value == TNI_CLASS_FLOAT && (stored == TNI_CLASS_FLOAT || stored == TNI_CLASS_ANY);
}

static tn_status start(differ *d) {
    const tni_fuse *f = d->made->f;
    for (int32_t k = 0; k < f->contract->n_outputs; k++) {
        int32_t node = f->outputs[k].node;
        d->made->arriving[k] = -1;
        if (f->contract->outputs[k].shape.cond >= 0 && d->active[node]) {
            return tn_fail(TN_UNSUPPORTED, "%s: an attribute chooses the shape of %s, so no gradient can be derived",
                           f->contract->name, f->contract->outputs[k].name);
        }
        if (!floats(d, k) || !d->touched[node]) continue;
        tni_extent extent;
        TN_TRY(output_extent(f, k, &extent));
        int32_t leaf = tni_leaf(d->g, TNI_P_INPUT, tni_ref_of_d(f, k), 0, d->g->nodes[node].type, extent);
        if (leaf < 0) return d->g->status;
        d->g->nodes[leaf].absent = f->contract->outputs[k].want != TNI_ALWAYS;
        d->made->arriving[k] = leaf;
        if (!d->active[node]) continue;
        int32_t arriving = leaf;
        if (d->g->nodes[leaf].absent) { /* what was not asked for has nothing that arrives */
            int32_t has = tni_leaf(d->g, TNI_P_HAS, tni_ref_of_d(f, k), 0, TN_BOOL, (tni_extent){0, 0});
            arriving = tni_node3(d->g, TNI_P_WHERE, 0, has, leaf, tni_const(d->g, TNI_TY_WEAK_FLOAT, 0));
        }
        add(d, node, (group){arriving, leaf});
    }
    return TN_OK;
}

static bool broadcasts_by_name(const tni_fuse *f, int32_t input) {
    return !f->axes.numpy && tni_broadcasts(f->contract, &f->contract->inputs[input].shape);
}

/* By name, an input that broadcasts (~) is seen in the full shape; what its own shape was, nothing tells. */
static tn_status check_input(const tni_fuse *f, int32_t input) {
    const tni_contract *c = f->contract;
    if (!broadcasts_by_name(f, input)) return TN_OK;
    return tn_fail(TN_UNSUPPORTED, "%s: %s broadcasts (~), so its gradient has no shape; write its dimensions out",
                   c->name, c->inputs[input].name);
}

/* Whether what arrives anywhere depends on an input; nothing has arrived at that, so it does so in steps: through a
 * comparison, or a function such as floor. The derivative is 0. */
static bool is_stepped(const differ *d, int32_t input) {
    bool depends[TNI_FUSE_NODES] = {false};
    depends[input] = true;
    for (int32_t i = input + 1; i < d->n; i++) {
        const int32_t *arg = d->g->nodes[i].arg;
        for (int k = 0; k < TNI_NODE_ARGS; k++) depends[i] |= arg[k] >= 0 && depends[arg[k]];
    }
    const tni_fuse *f = d->made->f;
    for (int32_t k = 0; k < f->contract->n_outputs; k++) {
        if (depends[f->outputs[k].node] && d->made->arriving[k] >= 0) return true;
    }
    return false;
}

static tn_status finish(differ *d) {
    const tni_fuse *f = d->made->f;
    for (int32_t i = 0; i < f->contract->n_inputs; i++) d->made->result[i] = -1;
    for (int32_t i = 0; i < d->n; i++) {
        const tni_gnode *node = &d->g->nodes[i];
        if (node->op != TNI_P_INPUT || !d->active[i]) continue;
        int32_t input = node->ref;
        if (d->n_groups[i]) {
            TN_TRY(check_input(f, input));
            int32_t result = summed(d, arrived(d, i), i);
            bool repeated = result >= 0 && tni_repeated(d->g, result, d->g->nodes[i].extent) >= 0;
            d->made->result[input] = repeated ? tni_node2(d->g, TNI_P_EXPAND, result, i) : result;
        } else if (is_stepped(d, i) && !broadcasts_by_name(f, input)) {
            d->made->result[input] = tni_node2(d->g, TNI_P_EXPAND, tni_const(d->g, TNI_TY_WEAK_FLOAT, 0), i);
        }
    }
    return d->g->status;
}

static tn_status copy_graph(tni_gradient *made) {
    const tni_graph *from = &made->f->graph;
    tni_graph_init(&made->g, from->fast);
    for (int i = 0; i < TNI_MAX_TYPES; i++) { /* what may be of any type has a gradient where it is a float */
        const uint32_t floats = from->masks[i] & TN_FLOATS;
        made->g.masks[i] = floats ? floats : from->masks[i];
    }
    made->g.tail = from->tail;
    made->g.tail_pack = from->tail_pack;
    made->g.all = from->all;
    made->g.windows = from->windows;
    made->g.n_items = from->n_items;
    memcpy(made->g.items, from->items, sizeof from->items);
    for (int32_t i = 0; i < from->n_calls; i++) { /* each once: their numbers stay */
        if (tni_add_coarse(&made->g, &from->calls[i]) < 0) return made->g.status;
    }
    for (int32_t i = 0; i < from->n; i++) {
        if (tni_node_as_is(&made->g, &from->nodes[i]) < 0) break;
    }
    return made->g.status;
}

tn_status tni_differentiate(tni_gradient *made) {
    const tni_contract *c = made->f->contract;
    if (made->f->axes.list) return tn_fail(TN_UNSUPPORTED, "%s: takes lists, so it has no gradient", c->name);
    for (int32_t i = 0; i < made->f->n_outputs; i++) {
        int32_t updated = made->f->outputs[i].inplace;
        if (updated < 0) continue;
        return tn_fail(TN_UNSUPPORTED, "%s: updates %s in place, so it has no gradient", c->name,
                       c->inputs[updated].name);
    }
    TN_TRY(copy_graph(made));
    differ *d = tni_calloc(1, sizeof *d);
    if (!d) return TN_NO_MEMORY;
    d->made = made;
    d->g = &made->g;
    d->n = made->f->graph.n;
    mark_active(d);
    mark_decided(d);
    tn_status status = start(d);
    for (int32_t i = d->n - 1; i >= 0 && status == TN_OK; i--) {
        if (d->n_groups[i] && tni_prims[d->g->nodes[i].op].arity) pass_on(d, i);
        status = d->g->status;
    }
    if (status == TN_OK) status = finish(d);
    tni_free(d);
    return status;
}
