/* Sums over rows of rows, as group_norm and batch_norm have: sum(a * (x - m)), along the last dimension and others.
 * Such sums wait for each other, since m is a sum like that, and each that keeps other dimensions reads everything
 * again. Of a single row there is a mean r without waiting, and a row's elements are read once for all its sums:
 *     sum(a * (x - m)) along a row = sum(a * (x - r)) + sum(a) * (r - m)
 *     sum((x - m) * (z - k))       = sum((x - r) * (z - q)) + n * (r - m) * (q - k)
 * So one pass keeps some numbers of each row, and all sums are made of these. No digits are lost that x and m share. */
#include <string.h>

#include "planner.h"

typedef struct maker {
    tni_binding *b;
    const tni_graph *from;
    tni_graph to;
    uint32_t *mask; /* of new nodes */
    bool *kept;     /* of new nodes: a pass keeps them */
    int32_t *made;  /* of old nodes: the new one */
    bool *late;     /* of old nodes: made of a sum that a pass completes */
} maker;

/* ---- which sums -------------------------------------------------------------------------------------------------- */

static const tni_gnode *node_at(const tni_binding *b, int32_t node) {
    return &b->specialized.graph.nodes[node];
}

static bool is_sum(const tni_binding *b, int32_t i) {
    const uint32_t gone = tni_reduced(b, i), tail = b->domain.tail;
    const int op = node_at(b, i)->op;
    return (op == TNI_P_SUM || op == TNI_P_SUM_TO) && gone & tail && gone != tail && tni_gathers(b, i) &&
           tni_lane_of(&b->specialized.graph, node_at(b, i)->type) >= TNI_LANE_F32;
}

static bool has_tail(const maker *m, int32_t old) {
    return m->b->mask[old] & m->b->domain.tail;
}

static int32_t argument(const maker *m, int32_t old, int k) {
    return tni_resolve(m->b, node_at(m->b, old)->arg[k]);
}

/* x - m, of which only m waits, and is the same along a row. */
static bool is_centred(const maker *m, int32_t old) {
    if (node_at(m->b, old)->op != TNI_P_SUB) return false;
    const int32_t x = argument(m, old, 0), mean = argument(m, old, 1);
    return has_tail(m, x) && !m->late[x] && !has_tail(m, mean);
}

static void mark_late(maker *m) {
    for (int32_t i = 0; i < m->from->n; i++) {
        const tni_gnode *n = &m->from->nodes[i];
        const bool shape = n->op == TNI_P_EXPAND || n->op == TNI_P_SUM_TO;
        m->late[i] = tni_gathers(m->b, i);
        for (int k = 0; k < (shape ? 1 : 3) && n->arg[k] >= 0; k++) m->late[i] |= m->late[n->arg[k]];
    }
}

/* ---- new nodes --------------------------------------------------------------------------------------------------- */

static int32_t add(maker *m, const tni_gnode *node) {
    const int32_t n = m->to.n, made = tni_node_as_is(&m->to, node);
    if (made == n) m->mask[made] = tni_node_mask(&m->b->domain, node, m->mask);
    return made;
}

static int32_t combine(maker *m, tni_prim op, int32_t a, int32_t b) {
    if (a < 0 || b < 0) return -1;
    const tni_graph *g = &m->to;
    const tni_gnode node = {.op = (uint8_t)op,
                            .type = (uint8_t)tni_promote(g, g->nodes[a].type, g->nodes[b].type),
                            .arg = TNI_TWO_ARGS(a, b),
                            .ref = -1};
    return add(m, &node);
}

/* A factor more; -1 counts as 1. */
static void multiply(maker *m, int32_t *product, int32_t by) {
    *product = *product < 0 ? by : combine(m, TNI_P_MUL, *product, by);
}

static int32_t number(maker *m, double value) {
    const tni_gnode node = {
        .op = TNI_P_CONST, .type = TNI_TY_WEAK_FLOAT, .arg = TNI_NO_ARGS, .ref = -1, .value = value};
    return add(m, &node);
}

/* A number that the sizes of the call give: it is an argument of what is compiled. */
static int32_t count(maker *m, int64_t value) {
    tni_program *program = m->b->program;
    int32_t k = 0;
    while (k < program->n_counts && program->counts[k] != value) k++;
    if (k == program->n_counts) program->counts[program->n_counts++] = value;
    const tni_gnode node = {
        .op = TNI_P_CONST, .type = TNI_TY_WEAK_FLOAT, .arg = TNI_NO_ARGS, .ref = k, .value = (double)value};
    return add(m, &node);
}

static int32_t length(maker *m) {
    return count(m, tni_mask_count(&m->b->domain, m->b->domain.tail));
}

static int32_t row_sum(maker *m, int32_t node) {
    if (node < 0) return -1;
    const tni_gnode sum = {.op = TNI_P_SUM,
                           .type = m->to.nodes[node].type,
                           .kind = TNI_OVER_ROW,
                           .arg = TNI_TWO_ARGS(node, -1),
                           .ref = -1};
    return add(m, &sum);
}

/* The same number of a row, out of the workspace: whoever is in the row's pass takes the number itself. */
static int32_t keep(maker *m, int32_t node) {
    if (node < 0) return -1;
    const tn_type type = tni_lane_type(tni_lane_of(&m->to, m->to.nodes[node].type));
    const tni_gnode cast = {
        .op = TNI_P_CAST, .type = (uint8_t)type, .kind = type, .arg = TNI_TWO_ARGS(node, -1), .ref = -1};
    const int32_t made = add(m, &cast);
    if (made >= 0) m->kept[made] = true;
    return made;
}

static int32_t row_mean(maker *m, int32_t sum) {
    return combine(m, TNI_P_DIV, sum, length(m));
}

/* Of x - m: x less the mean of its row, and how far that is off m. */
static int32_t centred(maker *m, int32_t old) {
    const int32_t x = m->made[argument(m, old, 0)];
    return combine(m, TNI_P_SUB, x, row_mean(m, row_sum(m, x)));
}

static int32_t kept_mean(maker *m, int32_t old) {
    return row_mean(m, keep(m, row_sum(m, m->made[argument(m, old, 0)])));
}

static int32_t distance(maker *m, int32_t old) {
    return combine(m, TNI_P_SUB, kept_mean(m, old), m->made[argument(m, old, 1)]);
}

/* ---- a row's sum ------------------------------------------------------------------------------------------------- */

/* What is summed, as a product: same / over * all, of which `all` changes along a row. */
typedef struct product {
    int32_t same, over, all;
    int32_t plain;      /* of all: what waits for nothing, */
    int32_t centred[2]; /* old nodes: differences whose second sides wait, */
    int n_centred;
    bool others; /* and what else there is */
} product;

static void take_factors(maker *m, int32_t old, product *p) {
    old = tni_resolve(m->b, old);
    const int op = node_at(m->b, old)->op;
    if (!has_tail(m, old)) {
        multiply(m, &p->same, m->made[old]);
    } else if (op == TNI_P_MUL) {
        take_factors(m, node_at(m->b, old)->arg[0], p);
        take_factors(m, node_at(m->b, old)->arg[1], p);
    } else if (op == TNI_P_NEG) {
        take_factors(m, node_at(m->b, old)->arg[0], p);
        multiply(m, &p->same, number(m, -1));
    } else if (op == TNI_P_DIV && !has_tail(m, argument(m, old, 1))) {
        take_factors(m, node_at(m->b, old)->arg[0], p);
        multiply(m, &p->over, m->made[argument(m, old, 1)]);
    } else {
        multiply(m, &p->all, m->made[old]);
        if (!m->late[old]) {
            multiply(m, &p->plain, m->made[old]);
        } else if (is_centred(m, old) && p->n_centred < 2) {
            p->centred[p->n_centred++] = old;
        } else {
            p->others = true;
        }
    }
}

static product factors(maker *m, int32_t old) {
    product p = {.same = -1, .over = -1, .all = -1, .plain = -1};
    take_factors(m, old, &p);
    p.others |= p.n_centred == 2 && p.plain >= 0;
    return p;
}

/* Along a row, of what changes along it. */
static int32_t inner_sum(maker *m, const product *p) {
    if (p->all < 0) return length(m);
    if (p->others || p->n_centred == 0) return keep(m, row_sum(m, p->all));
    const int32_t d = centred(m, p->centred[0]), off = distance(m, p->centred[0]);
    if (p->n_centred == 1) {
        const int32_t moved = combine(m, TNI_P_MUL, p->plain < 0 ? length(m) : keep(m, row_sum(m, p->plain)), off);
        if (p->plain < 0) return moved;
        return combine(m, TNI_P_ADD, keep(m, row_sum(m, combine(m, TNI_P_MUL, p->plain, d))), moved);
    }
    const int32_t both = combine(m, TNI_P_MUL, d, centred(m, p->centred[1]));
    const int32_t offs = combine(m, TNI_P_MUL, off, distance(m, p->centred[1]));
    return combine(m, TNI_P_ADD, keep(m, row_sum(m, both)), combine(m, TNI_P_MUL, length(m), offs));
}

/* In all dimensions that are summed over. */
static int32_t repeated(maker *m, int32_t node, uint32_t mask) {
    if (node < 0 || m->mask[node] == mask) return node;
    const tni_gnode whole = {
        .op = TNI_P_EXPAND, .type = m->to.nodes[node].type, .kind = mask, .arg = TNI_TWO_ARGS(node, node), .ref = -1};
    const int32_t made = add(m, &whole);
    if (made >= 0) m->mask[made] = mask | m->mask[node];
    return made;
}

/* The sum of rows' numbers, over what else the old one goes over. */
static int32_t outer_sum(maker *m, int32_t old, int32_t node) {
    tni_gnode sum = *node_at(m->b, old);
    const uint32_t rows = m->b->mask[sum.arg[0]] & ~m->b->domain.tail;
    sum.arg[0] = repeated(m, node, rows);
    if (sum.op == TNI_P_SUM_TO) sum.arg[1] = m->made[sum.arg[1]];
    return sum.arg[0] < 0 ? -1 : add(m, &sum);
}

/* Of squares of x - mean(x): rows' means deviate from the mean of all rows, which makes no pass wait either. A pass
 * cannot sum deviations up for each column, which the rows' last dimension becomes. */
static bool is_variance(const maker *m, int32_t old, const product *p) {
    const uint32_t gone = tni_reduced(m->b, old) & ~m->b->domain.tail;
    const uint32_t rows = m->b->mask[node_at(m->b, old)->arg[0]] & ~m->b->domain.tail;
    return tni_deviates(m->b, old) >= 0 && p->n_centred == 2 && p->centred[0] == p->centred[1] && p->same < 0 &&
           p->over < 0 && !p->others && gone > (rows & ~gone);
}

static int32_t variance(maker *m, int32_t old, const product *p) {
    const int32_t d = centred(m, p->centred[0]), r = kept_mean(m, p->centred[0]);
    const uint32_t gone = tni_reduced(m->b, old) & ~m->b->domain.tail;
    const int32_t mean = combine(m, TNI_P_DIV, outer_sum(m, old, r), count(m, tni_mask_count(&m->b->domain, gone)));
    const int32_t off = combine(m, TNI_P_SUB, r, mean);
    const int32_t within = outer_sum(m, old, keep(m, row_sum(m, combine(m, TNI_P_MUL, d, d))));
    const int32_t among = outer_sum(m, old, combine(m, TNI_P_MUL, off, off));
    return combine(m, TNI_P_ADD, within, combine(m, TNI_P_MUL, length(m), among));
}

static int32_t whole_sum(maker *m, int32_t old) {
    const product p = factors(m, node_at(m->b, old)->arg[0]);
    if (is_variance(m, old, &p)) return variance(m, old, &p);
    int32_t made = inner_sum(m, &p);
    if (p.same >= 0) made = combine(m, TNI_P_MUL, p.same, made);
    if (p.over >= 0) made = combine(m, TNI_P_DIV, made, p.over);
    return outer_sum(m, old, made);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int32_t copied(maker *m, int32_t old) {
    tni_gnode node = *node_at(m->b, old);
    for (int k = 0; k < 3 && node.arg[k] >= 0; k++) node.arg[k] = m->made[node.arg[k]];
    const int32_t n = m->to.n, made = tni_node_as_is(&m->to, &node);
    if (made == n) m->mask[made] = m->b->mask[old];
    return made;
}

static tn_status make_all(maker *m) {
    for (int32_t i = 0; i < m->from->n; i++) {
        m->made[i] = is_sum(m->b, i) ? whole_sum(m, i) : copied(m, i);
        if (m->made[i] < 0) return m->to.status != TN_OK ? m->to.status : TN_NO_MEMORY;
    }
    return TN_OK;
}

/* A sum that waits for another one, and need not; or two that keep different dimensions, of which one waits. */
static bool is_worth_it(maker *m) {
    uint32_t masks[2] = {0};
    int n = 0;
    bool waits = false, need_not = false;
    for (int32_t i = 0; i < m->from->n; i++) {
        if (!is_sum(m->b, i)) continue;
        if (n == 0 || (n == 1 && masks[0] != m->b->mask[i])) masks[n++] = m->b->mask[i];
        const int32_t old = argument(m, i, 0);
        if (!m->late[old] || tni_deviates(m->b, i) >= 0) continue;
        waits = true;
        const tni_gnode *e = node_at(m->b, old);
        const bool times = e->op == TNI_P_MUL && !(m->late[argument(m, old, 0)] && m->late[argument(m, old, 1)] &&
                                                   argument(m, old, 0) != argument(m, old, 1));
        need_not |= times || is_centred(m, old);
    }
    return waits && (n == 2 || need_not);
}

/* Rows that a few lanes of a warp are enough for would be stored as more than they are; those that are too long for one
 * pass are sums over everything. */
static bool has_rows(const tni_binding *b) {
    enum { LEAST = 32, MOST = 1 << 20 };
    const tni_domain *d = &b->domain;
    if (!b->program->backend->rows_first || d->turned || b->f->axes.list || b->f->windows || !d->tail) return false;
    return d->size[d->n_dims - 1] >= LEAST && d->size[d->n_dims - 1] <= MOST && !tni_is_empty(d);
}

static tn_status make_room(maker *m) {
    tni_binding *b = m->b;
    const size_t old = (size_t)m->from->n + 1;
    m->mask = tni_arena_alloc(b->arena, (size_t)TNI_FUSE_NODES * sizeof *m->mask);
    m->kept = tni_arena_alloc(b->arena, (size_t)TNI_FUSE_NODES * sizeof *m->kept);
    m->made = tni_arena_alloc(b->arena, old * sizeof *m->made);
    m->late = tni_arena_alloc(b->arena, old * sizeof *m->late);
    int64_t *counts = tni_arena_alloc(b->program->arena, 2 * old * sizeof *counts);
    if (!m->mask || !m->kept || !m->made || !m->late || !counts) return TN_NO_MEMORY;
    memset(m->kept, 0, (size_t)TNI_FUSE_NODES * sizeof *m->kept);
    memcpy(counts, b->program->counts, (size_t)b->program->n_counts * sizeof *counts);
    b->program->counts = counts;
    return TN_OK;
}

static tn_status replace_graph(maker *m) {
    tni_binding *b = m->b;
    for (int32_t i = 0; i < b->specialized.n_outputs; i++) {
        int32_t *output = &b->specialized.outputs[i];
        if (*output >= 0) *output = m->made[*output];
    }
    tni_graph_clear(&b->specialized.graph);
    b->specialized.graph = m->to;
    b->mask = m->mask;
    TN_TRY(tni_lower(b));
    for (int32_t i = 0; i < m->to.n; i++) b->lowered[i].kept = m->kept[i];
    return TN_OK;
}

tn_status tni_sum_rows_first(tni_binding *b) {
    maker m = {.b = b, .from = &b->specialized.graph};
    if (!has_rows(b)) return TN_OK;
    TN_TRY(make_room(&m));
    mark_late(&m);
    if (!is_worth_it(&m)) return TN_OK;
    tni_graph_init(&m.to, m.from->fast);
    memcpy(m.to.masks, m.from->masks, sizeof m.to.masks);
    m.to.wide = m.from->wide;
    const tn_status status = make_all(&m);
    if (status == TN_OK) return replace_graph(&m);
    tni_graph_clear(&m.to);
    return status;
}
