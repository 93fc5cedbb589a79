/* The graph of one call: types are known, attributes are constants, what absent inputs are guarded by has folded away,
 * and reductions are sums, maxima and minima. */
#include "core/table/activation_names.h"
#include "formula_object.h"

#include <math.h>

enum { ABSENT = -10 }; /* ABSENT - i: needs input i, which is not there; below - TNI_MAX_ARGS: attribute i */

typedef struct maker {
    const tni_fuse *f;
    const tni_call_form *given;
    tni_graph *g;
    int32_t made[TNI_FUSE_NODES]; /* node of the new graph for each of the old */
    bool needed[TNI_FUSE_NODES];
    int32_t n_known; /* nodes of the new graph of which `zero` says whether they are 0 */
    bool zero[TNI_FUSE_NODES];
} maker;

static bool is_absent(int32_t node) {
    return node <= ABSENT;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

static int32_t make_attribute(maker *m, const tni_gnode *node) {
    const tn_value *value = &m->given->attrs[node->ref];
    if (value->kind == TN_ATTR_UNSET) return ABSENT - TNI_MAX_ARGS - node->ref;
    double number = value->kind == TN_ATTR_INT ? (double)value->i : value->kind == TN_ATTR_BOOL ? value->b : value->f;
    return tni_const(m->g, node->type, number);
}

static int32_t make_leaf(maker *m, const tni_gnode *node) {
    const tni_call_form *given = m->given;
    switch (node->op) {
    case TNI_P_INPUT:
        if (given->types[node->ref] == TN_NO_TYPE) return ABSENT - node->ref;
        return tni_leaf(m->g, TNI_P_INPUT, node->ref, 0, given->types[node->ref], node->extent);
    case TNI_P_ATTR: return make_attribute(m, node);
    case TNI_P_ATTR_IS: return tni_const(m->g, TN_BOOL, given->attrs[node->ref].choice == (int)node->value);
    case TNI_P_HAS: return tni_const(m->g, TN_BOOL, given->types[node->ref] != TN_NO_TYPE);
    case TNI_P_HAS_ATTR: return tni_const(m->g, TN_BOOL, given->attrs[node->ref].kind != TN_ATTR_UNSET);
    default: return tni_node_as_is(m->g, node);
    }
}

/* ---- operations with something absent ---------------------------------------------------------------------------- */

static bool is_number(const maker *m, int32_t node) {
    return node >= 0 && m->g->nodes[node].op == TNI_P_CONST;
}

/* 0 everywhere, also where it was repeated; sums of such, and what it is a factor of. */
static bool find_zero(const maker *m, const tni_gnode *n) {
    const bool first = n->arg[0] >= 0 && m->zero[n->arg[0]], second = n->arg[1] >= 0 && m->zero[n->arg[1]];
    switch (n->op) {
    case TNI_P_CONST: return n->value == 0;
    case TNI_P_EXPAND:
    case TNI_P_TAKE:
    case TNI_P_FLIP:
    case TNI_P_NEG:
    case TNI_P_SUM:
    case TNI_P_SUM_TO:
    case TNI_P_DIV: return first;
    case TNI_P_JOIN:
    case TNI_P_ADD:
    case TNI_P_SUB: return first && second;
    case TNI_P_MUL: return first || second;
    case TNI_P_WHERE: return second && m->zero[n->arg[2]];
    default: return false;
    }
}

static bool is_zero(maker *m, int32_t node) {
    for (; m->n_known <= node; m->n_known++) m->zero[m->n_known] = find_zero(m, &m->g->nodes[m->n_known]);
    return node >= 0 && m->zero[node];
}

/* A branch that is not taken may need it; so may a gradient of that branch, which is 0 times something. */
static int32_t make_around_absent(maker *m, const tni_gnode *node, const int32_t *arg) {
    int32_t absent = is_absent(arg[0]) ? arg[0] : is_absent(arg[1]) ? arg[1] : arg[2];
    switch (node->op) {
    case TNI_P_WHERE:
        if (is_number(m, arg[0])) return m->g->nodes[arg[0]].value != 0 ? arg[1] : arg[2];
        return arg[1] == arg[2] ? arg[1] : is_zero(m, arg[1]) && is_zero(m, arg[2]) ? arg[1] : absent;
    case TNI_P_AND:
    case TNI_P_OR:
        for (int k = 0; k < 2; k++) {
            bool decides = is_number(m, arg[k]) && (m->g->nodes[arg[k]].value != 0) == (node->op == TNI_P_OR);
            if (decides) return arg[k];
        }
        return absent;
    case TNI_P_MUL: return is_zero(m, arg[0]) ? arg[0] : is_zero(m, arg[1]) ? arg[1] : absent;
    case TNI_P_DIV: return is_zero(m, arg[0]) ? arg[0] : absent;
    case TNI_P_EXPAND: return is_absent(arg[0]) || is_number(m, arg[0]) || is_zero(m, arg[0]) ? arg[0] : absent;
    case TNI_P_SUM_TO: return is_zero(m, arg[0]) ? arg[0] : absent;
    case TNI_P_JOIN: return is_zero(m, arg[0]) ? arg[0] : is_zero(m, arg[1]) ? arg[1] : absent;
    default: return absent;
    }
}

/* ---- reductions in terms of sum and max -------------------------------------------------------------------------- */

static int32_t make_mean(tni_graph *g, int32_t a, int kind) {
    int32_t sum = tni_node3(g, TNI_P_SUM, kind, a, -1, -1);
    return tni_node2(g, TNI_P_DIV, sum, tni_node3(g, TNI_P_COUNT, kind, a, -1, -1));
}

/* m + log(sum(exp(x - m))); where the maximum m is infinite, nothing is taken away: inf - inf would be NaN. */
static int32_t make_logsumexp(tni_graph *g, int32_t a, int kind) {
    int32_t most = tni_node3(g, TNI_P_RMAX, kind, a, -1, -1);
    int32_t infinite = tni_node2(g, TNI_P_EQ, tni_node1(g, TNI_P_ABS, most),
                                 tni_const(g, TNI_TY_WEAK_FLOAT, (double)INFINITY));
    int32_t shift = tni_node3(g, TNI_P_WHERE, 0, infinite, tni_const(g, TNI_TY_WEAK_FLOAT, 0), most);
    int32_t terms = tni_node1(g, TNI_P_EXP, tni_node2(g, TNI_P_SUB, a, shift));
    return tni_node2(g, TNI_P_ADD, tni_node1(g, TNI_P_LOG, tni_node3(g, TNI_P_SUM, kind, terms, -1, -1)), shift);
}

static int32_t make_var(tni_graph *g, int32_t a, int kind) {
    int32_t off = tni_node2(g, TNI_P_SUB, a, make_mean(g, a, kind));
    return make_mean(g, tni_node2(g, TNI_P_MUL, off, off), kind);
}

/* sum_to(a, b) has the shape of b. Formulas need not say that a has all dimensions of b, as those of gradients do not:
 * where it lacks some in a call, the value is there once, and is repeated by what it meets. Before its shape counts it
 * is repeated here, though by the formula alone it has these dimensions. */
static int32_t in_full(tni_graph *g, int32_t node) {
    bool reach[TNI_FUSE_NODES] = {false};
    int32_t made = node;
    reach[node] = true;
    for (int32_t i = node; i >= 0 && made >= 0; i--) {
        const tni_gnode *n = &g->nodes[i], *last = &g->nodes[made];
        const bool sums = n->op == TNI_P_SUM_TO;
        if (!reach[i] || tni_reaches(n->op)) continue;
        for (int k = 0; k < 3 && !sums && n->arg[k] >= 0; k++) reach[n->arg[k]] = true;
        if (!sums || tni_covers(g->nodes[n->arg[0]].extent, g->nodes[n->arg[1]].extent)) continue;
        tni_gnode whole = {.op = TNI_P_EXPAND, .type = last->type, .arg = TNI_TWO_ARGS(made, n->arg[1]), .ref = -1};
        whole.extent = whole.sure = last->extent;
        made = tni_node_as_is(g, &whole);
    }
    return made;
}

/* A float becomes an integer of `type`: as one of 64 bits, which no backend lets wrap around, and what is out of the
 * type's range the end of it. */
static int32_t make_cast(tni_graph *g, int type, int32_t a) {
    double least, most;
    if (tni_class_of(g, g->nodes[a].type) == TNI_CLASS_FLOAT && tni_int_range(type, &least, &most)) {
        a = tni_node3(g, TNI_P_CAST, TN_I64, a, -1, -1);
        a = tni_node2(g, TNI_P_MAX, a, tni_const(g, TNI_TY_WEAK_INT, least));
        a = tni_node2(g, TNI_P_MIN, a, tni_const(g, TNI_TY_WEAK_INT, most));
    }
    return tni_node3(g, TNI_P_CAST, type, a, -1, -1);
}

/* Of which arguments the shape counts. */
static bool is_measured(const tni_gnode *node, int k) {
    if (k == 1) return node->op == TNI_P_SUM_TO || node->op == TNI_P_EXPAND;
    return k == 0 && (node->op == TNI_P_SUM_TO || tni_reaches(node->op));
}

static int32_t make_operation(maker *m, const tni_gnode *node, const int32_t *arg) {
    tni_graph *g = m->g;
    bool reals = node->op == TNI_P_VAR || node->op == TNI_P_LSE; /* of integers: as floats from the start */
    int32_t real = reals ? tni_node2(g, TNI_P_DIV, arg[0], tni_const(g, TNI_TY_WEAK_INT, 1)) : arg[0];
    switch (node->op) {
    case TNI_P_CLAMP: return tni_node2(g, TNI_P_MIN, tni_node2(g, TNI_P_MAX, arg[0], arg[1]), arg[2]);
    case TNI_P_CAST: return make_cast(g, (int)node->kind, arg[0]);
    case TNI_P_DETACH: return arg[0];
    case TNI_P_MEAN: return make_mean(g, arg[0], (int)node->kind);
    case TNI_P_VAR: return make_var(g, real, (int)node->kind);
    case TNI_P_LSE: return make_logsumexp(g, real, (int)node->kind);
    default: return tni_node3(g, (tni_prim)node->op, (int)node->kind, arg[0], arg[1], arg[2]);
    }
}

static int32_t make_node(maker *m, const tni_gnode *node) {
    int32_t arg[3] = {-1, -1, -1};
    bool absent = false;
    if (tni_prims[node->op].arity == 0) return make_leaf(m, node);
    for (int k = 0; k < 3 && node->arg[k] >= 0; k++) {
        arg[k] = m->made[node->arg[k]];
        absent |= is_absent(arg[k]);
        if (!is_absent(arg[k]) && is_measured(node, k)) arg[k] = in_full(m->g, arg[k]);
    }
    return absent ? make_around_absent(m, node, arg) : make_operation(m, node, arg);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void mark_needed(maker *m) {
    const tni_graph *g = &m->f->graph;
    for (int32_t i = 0; i < m->f->n_outputs; i++) m->needed[m->f->outputs[i].node] |= m->given->wanted[i];
    for (int32_t i = g->n - 1; i >= 0; i--) {
        for (int k = 0; k < 3 && m->needed[i]; k++) {
            if (g->nodes[i].arg[k] >= 0) m->needed[g->nodes[i].arg[k]] = true;
        }
    }
}

static tn_status set_output(const maker *m, int32_t i, int32_t *output) {
    const tni_contract *c = m->f->contract;
    *output = m->given->wanted[i] ? m->made[m->f->outputs[i].node] : -1;
    /* It is repeated when it is stored, as often as the output's shape says: an attribute may choose a smaller one. */
    while (*output >= 0 && m->g->nodes[*output].op == TNI_P_EXPAND) *output = m->g->nodes[*output].arg[0];
    double least, most;
    bool cast = *output >= 0 && tni_class_of(m->g, m->g->nodes[*output].type) == TNI_CLASS_FLOAT &&
                tni_int_range((int)m->given->made[i], &least, &most);
    if (cast) *output = make_cast(m->g, (int)m->given->made[i], *output);
    if (cast && *output < 0) return m->g->status;
    if (!is_absent(*output)) return TN_OK;
    int32_t which = ABSENT - *output;
    int32_t updated = m->f->outputs[i].inplace;
    return tn_fail(TN_BAD_VALUE, "%s: %s needs %s, which is absent", c->name,
                   updated >= 0 ? c->inputs[updated].name : c->outputs[i].name,
                   which >= TNI_MAX_ARGS ? c->attrs[which - TNI_MAX_ARGS].name : c->inputs[which].name);
}

/* Branches that the call does not take are gone from here on. */
static tn_status keep_live(tni_specialized *made) {
    tni_graph *all = &made->graph, live;
    int32_t place[TNI_FUSE_NODES];
    bool needed[TNI_FUSE_NODES] = {false};
    for (int32_t i = 0; i < made->n_outputs; i++) {
        if (made->outputs[i] >= 0) needed[made->outputs[i]] = true;
    }
    for (int32_t i = all->n - 1; i >= 0; i--) {
        for (int k = 0; k < 3 && needed[i] && all->nodes[i].arg[k] >= 0; k++) needed[all->nodes[i].arg[k]] = true;
    }
    tni_graph_init(&live, all->fast);
    live.wide = all->wide;
    live.tail = all->tail;
    live.tail_pack = all->tail_pack;
    live.all = all->all;
    live.windows = all->windows;
    for (int32_t i = 0; i < all->n; i++) {
        tni_gnode node = all->nodes[i];
        if (!needed[i]) continue;
        for (int k = 0; k < 3 && node.arg[k] >= 0; k++) node.arg[k] = place[node.arg[k]];
        place[i] = tni_node_as_is(&live, &node);
        if (live.status != TN_OK) break;
    }
    for (int32_t i = 0; i < made->n_outputs && live.status == TN_OK; i++) {
        if (made->outputs[i] >= 0) made->outputs[i] = place[made->outputs[i]];
    }
    tni_graph_clear(all);
    *all = live;
    return live.status;
}

static tn_status specialize(maker *m, tni_specialized *made) {
    const tni_graph *g = &m->f->graph;
    mark_needed(m);
    for (int32_t i = 0; i < g->n; i++) {
        if (m->needed[i]) m->made[i] = make_node(m, &g->nodes[i]);
        if (m->g->status != TN_OK) return m->g->status;
    }
    made->n_outputs = m->f->n_outputs;
    for (int32_t i = 0; i < made->n_outputs; i++) TN_TRY(set_output(m, i, &made->outputs[i]));
    return m->f->contract->n_attrs ? keep_live(made) : TN_OK;
}

tn_status tni_specialize(const tni_fuse *f, const tni_call_form *given, tni_specialized *made) {
    const tni_contract *c = f->contract;
    tni_graph_init(&made->graph, f->fast);
    made->graph.tail = f->graph.tail;
    made->graph.tail_pack = f->graph.tail_pack;
    made->graph.all = f->graph.all;
    made->graph.windows = f->graph.windows;
    for (int i = 0; i < c->n_inputs; i++) {
        made->graph.wide |= given->types[i] == TN_F64;
        if (given->types[i] == TN_U64) {
            return tn_fail(TN_BAD_TYPE,
                           "%s: %s has type u64; formulas compute integers in 64 bits with a sign, so make it "
                           "an i64 before",
                           c->name, c->inputs[i].name);
        }
        if (given->types[i] != TN_C64 && given->types[i] != TN_C128) continue;
        return tn_fail(TN_BAD_TYPE, "%s: %s has type %s; formulas take real numbers", c->name, c->inputs[i].name,
                       tn_type_name(given->types[i]));
    }
    for (int i = 0; i < c->n_attrs; i++) {
        const int64_t most = (int64_t)1 << 53, value = given->attrs[i].i;
        if (given->attrs[i].kind != TN_ATTR_INT || (value <= most && value >= -most)) continue;
        return tn_fail(TN_BAD_VALUE, "%s: %s is %lld, and numbers of a formula have 53 bits; a tensor may have more",
                       c->name, c->attrs[i].name, (long long)value);
    }
    if (c->activation >= 0 && given->attrs[c->activation].choice >= TNI_ACT_OTHER + f->n_known) {
        return tn_fail(TN_UNSUPPORTED, "%s: %s '%s' was added to the table after this formula was first used", c->name,
                       c->attrs[c->activation].name, tni_activation_name(given->attrs[c->activation].choice));
    }
    maker *m = tni_calloc(1, sizeof *m);
    if (!m) return TN_NO_MEMORY;
    m->f = f;
    m->given = given;
    m->g = &made->graph;
    tn_status status = specialize(m, made);
    tni_free(m);
    if (status != TN_OK) tni_graph_clear(&made->graph);
    return status;
}
