/* The graph of a formula: nodes are made once for the same thing, so that common subexpressions are one node, and they
 * stand in an order in which arguments come first. */
#include <string.h>

#include "graph.h"

static const uint32_t REALS = TN_FLOATS | TN_BIT(TN_E4M3) | TN_BIT(TN_E5M2);

/* ---- types ------------------------------------------------------------------------------------------------------- */

static tni_class class_of_mask(uint32_t mask) {
    if (mask && !(mask & ~REALS)) return TNI_CLASS_FLOAT;
    if (mask && !(mask & ~TN_INTS)) return TNI_CLASS_INT;
    return mask == TN_BIT(TN_BOOL) ? TNI_CLASS_BOOL : TNI_CLASS_ANY;
}

tni_class tni_class_of(const tni_graph *g, int type) {
    if (type < TNI_TY_VAR) return class_of_mask(TN_BIT(type));
    if (type < TNI_TY_WEAK_INT) return class_of_mask(g->masks[type % 16]);
    return type == TNI_TY_WEAK_INT ? TNI_CLASS_INT : type == TNI_TY_SOME ? TNI_CLASS_ANY : TNI_CLASS_FLOAT;
}

/* Two different integer types: the wider. One with a sign and one without meet in a type with a sign that holds both:
 * u8 and i8 in i16, u32 and i16 in i64. */
static int promote_ints(int a, int b) {
    if (a >= TNI_TY_VAR || b >= TNI_TY_VAR) return TNI_TY_SOME;
    const size_t of_a = tn_type_size((tn_type)a), of_b = tn_type_size((tn_type)b);
    const bool a_signed = TN_BIT(a) & TN_SIGNED, b_signed = TN_BIT(b) & TN_SIGNED;
    if (a_signed == b_signed) return of_a > of_b ? a : b;
    const size_t needed = a_signed ? 2 * of_b : 2 * of_a, has = a_signed ? of_a : of_b;
    if (has >= needed) return a_signed ? a : b;
    return needed == 2 ? TN_I16 : needed == 4 ? TN_I32 : TN_I64;
}

/* Two different floating types. */
static int promote_floats(int a, int b) {
    if (a == TN_F64 || b == TN_F64) return TN_F64;
    int variable = a >= TNI_TY_VAR ? a : b, other = a >= TNI_TY_VAR ? b : a;
    if (variable >= TNI_TY_SOME_FLOAT) return variable;
    if (variable < TNI_TY_VAR) return TN_F32;                       /* what holds f16 and bf16, or is the wider one */
    bool same = other >= TNI_TY_VAR && variable % 16 == other % 16; /* T and acc(T) */
    return same || other == TN_F32 ? TNI_TY_ACC + variable % 16 : TNI_TY_SOME_FLOAT;
}

/* A number in the text, of class `weak`, meets a value of type `other`. */
static int promote_weak(int weak, int other, tni_class class) {
    if (class == TNI_CLASS_ANY) return TNI_TY_SOME;
    if (weak == TNI_TY_WEAK_INT) return class == TNI_CLASS_BOOL ? TN_I64 : other;
    return class == TNI_CLASS_FLOAT ? other : other == TNI_TY_WEAK_INT ? TNI_TY_WEAK_FLOAT : TN_F32;
}

int tni_promote(const tni_graph *g, int a, int b) {
    if (a == b) return a;
    tni_class of_a = tni_class_of(g, a), of_b = tni_class_of(g, b);
    if (a == TNI_TY_WEAK_FLOAT || (a == TNI_TY_WEAK_INT && b != TNI_TY_WEAK_FLOAT)) return promote_weak(a, b, of_b);
    if (b == TNI_TY_WEAK_FLOAT || b == TNI_TY_WEAK_INT) return promote_weak(b, a, of_a);
    if (of_a == TNI_CLASS_ANY || of_b == TNI_CLASS_ANY) return TNI_TY_SOME;
    if (of_a != of_b) return of_a > of_b ? a : b;
    return of_a == TNI_CLASS_FLOAT ? promote_floats(a, b) : of_a == TNI_CLASS_INT ? promote_ints(a, b) : TN_BOOL;
}

static int type_of_result(const tni_graph *g, const tni_gnode *node) {
    int typing = tni_prims[node->op].typing, first = typing == TNI_TYPED_CHOICE ? 1 : 0;
    if (node->op == TNI_P_JOIN) return tni_promote(g, g->nodes[node->arg[0]].type, g->nodes[node->arg[1]].type);
    if (typing == TNI_TYPED_BY_HAND) return node->op == TNI_P_CAST ? node->kind : node->type;
    if (typing == TNI_TYPED_TEST || typing == TNI_TYPED_LOGIC) return TN_BOOL;
    int type = g->nodes[node->arg[first]].type;
    if (typing == TNI_TYPED_FIRST) return type;
    for (int i = first + 1; i < 3 && node->arg[i] >= 0; i++) type = tni_promote(g, type, g->nodes[node->arg[i]].type);
    tni_class class = tni_class_of(g, type);
    if (typing == TNI_TYPED_CHOICE) return type;
    if (class == TNI_CLASS_BOOL) type = TN_I64;
    if ((node->op == TNI_P_SUM || node->op == TNI_P_PROD) && class == TNI_CLASS_INT && type != TNI_TY_WEAK_INT)
        type = TN_I64;
    if (typing == TNI_TYPED_FLOAT && class <= TNI_CLASS_INT) {
        type = type == TNI_TY_WEAK_INT ? TNI_TY_WEAK_FLOAT : TN_F32;
    }
    return type;
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

bool tni_covers(tni_extent a, tni_extent b) {
    return !(b.full & ~a.full) && !(b.row & ~(a.full | a.row));
}

bool tni_is_scalar(tni_extent a) {
    return !a.full && !a.row;
}

bool tni_same_extent(tni_extent a, tni_extent b) {
    return a.full == b.full && a.row == b.row;
}

bool tni_is_sure(const tni_gnode *node) {
    return tni_same_extent(node->sure, node->extent);
}

bool tni_same_shape(const tni_gnode *a, const tni_gnode *b) {
    return a == b || (tni_same_extent(a->extent, b->extent) && tni_is_sure(a) && tni_is_sure(b));
}

tni_extent tni_join(tni_extent a, tni_extent b) {
    tni_extent made = {a.full | b.full, a.row | b.row};
    made.row &= ~made.full;
    return made;
}

bool tni_has_tail(const tni_graph *g, tni_extent a) {
    return (a.full & g->tail) != 0;
}

bool tni_is_along(const tni_graph *g, tni_extent a, uint32_t kind) {
    if (kind == TNI_OVER_ALL) return !tni_is_scalar(a);
    return tni_is_over_items(kind) ? ((a.full | a.row) & tni_items_over(kind)) != 0 : tni_has_tail(g, a);
}

/* Of arguments with the extents `of`. */
static tni_extent extent_of_result(const tni_graph *g, const tni_gnode *node, const tni_extent *of) {
    tni_extent made = {0, 0}, first = of[0], target = of[1];
    if (tni_prims[node->op].arity == 0) return node->extent;
    if (node->op == TNI_P_COUNT) return made;
    if (node->op == TNI_P_SUM_TO) { /* some of both: what the target has */
        return tni_covers(first, target) ? target : tni_covers(target, first) ? first : target;
    }
    if (tni_is_reduction(node->op)) {
        if (node->kind == TNI_OVER_ALL) return made;
        if (tni_is_over_items(node->kind)) {
            const uint64_t gone = tni_items_over(node->kind);
            return (tni_extent){first.full & ~gone, first.row & ~gone};
        }
        made.full = first.full & ~g->tail;
        made.row = first.row | (g->tail_pack ? first.full & g->tail : 0);
        return made;
    }
    for (int i = 0; i < 3; i++) made = tni_join(made, of[i]);
    if (!tni_is_part(node->op)) return made;
    const tni_window *window = &g->windows[node->kind];
    if (node->op == TNI_P_TAKE && window->from >= 0) made.full &= ~((uint64_t)1 << window->from);
    if (window->to >= 0) made.full |= (uint64_t)1 << window->to;
    return made;
}

/* Of a choice one side is enough, and then only that is there. */
static void set_extents(const tni_graph *g, tni_gnode *node) {
    tni_extent all[3] = {{0, 0}}, sure[3] = {{0, 0}};
    bool absent[3] = {false}, choice = node->op == TNI_P_WHERE;
    for (int i = 0; i < 3 && node->arg[i] >= 0; i++) {
        const tni_gnode *arg = &g->nodes[node->arg[i]];
        all[i] = arg->extent;
        absent[i] = arg->absent;
        if (!choice || !arg->absent) sure[i] = arg->sure;
    }
    node->extent = extent_of_result(g, node, all);
    node->sure = extent_of_result(g, node, sure);
    node->absent = absent[0] || (choice ? absent[1] && absent[2] : absent[1] || absent[2]);
}

int32_t tni_repeated(const tni_graph *g, int32_t node, tni_extent shape) {
    bool reach[TNI_FUSE_NODES] = {false};
    if (tni_covers(g->nodes[node].extent, shape)) return -1;
    reach[node] = true;
    for (int32_t i = node; i >= 0; i--) {
        const tni_gnode *n = &g->nodes[i];
        if (!reach[i] || n->op == TNI_P_EXPAND || n->op == TNI_P_COUNT || n->op == TNI_P_INDEX_IN)
            continue; /* what is expanded is meant so */
        if (tni_is_reduction(n->op) && n->kind == TNI_OVER_ALL) {
            tni_extent of = g->nodes[n->arg[0]].extent;
            if (tni_covers(of, shape) && !tni_covers(shape, of)) return i;
            continue;
        }
        for (int k = 0; k < (n->op == TNI_P_SUM_TO ? 1 : 3) && n->arg[k] >= 0; k++) reach[n->arg[k]] = true;
    }
    return -1;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

void tni_graph_init(tni_graph *g, bool fast) {
    *g = (tni_graph){.fast = fast};
}

void tni_graph_clear(tni_graph *g) {
    for (int32_t i = 0; i < g->n_calls; i++) tni_free((char *)g->calls[i].attrs);
    tni_free(g->calls);
    tni_free(g->nodes);
    tni_free(g->table);
    g->calls = NULL;
    g->n_calls = 0;
    g->nodes = NULL;
    g->table = NULL;
    g->n = g->capacity = g->table_size = 0;
}

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t hash_of(const tni_gnode *node) {
    uint64_t hash = mix(node->op, (uint64_t)node->kind << 8 | node->type);
    for (int i = 0; i < TNI_NODE_ARGS; i++) hash = mix(hash, (uint32_t)node->arg[i]);
    return mix(mix(hash, (uint32_t)node->ref), bits_of(node->value));
}

static bool same(const tni_gnode *a, const tni_gnode *b) {
    return a->op == b->op && a->kind == b->kind && a->type == b->type && a->ref == b->ref &&
           bits_of(a->value) == bits_of(b->value) && memcmp(a->arg, b->arg, sizeof a->arg) == 0;
}

/* The slot of the table that has the node, or is free for it. */
static int32_t *slot_of(const tni_graph *g, const tni_gnode *node) {
    uint32_t i = (uint32_t)hash_of(node) & (uint32_t)(g->table_size - 1);
    while (g->table[i] >= 0 && !same(&g->nodes[g->table[i]], node)) i = (i + 1) & (uint32_t)(g->table_size - 1);
    return &g->table[i];
}

static int32_t fail(tni_graph *g, tn_status status) {
    if (g->status == TN_OK) g->status = status;
    return -1;
}

static bool grow(tni_graph *g) {
    if (g->n == TNI_FUSE_NODES) {
        fail(g, tn_fail(TN_BAD_CONTRACT, "the formula has more than %d operations", TNI_FUSE_NODES));
        return false;
    }
    if (g->n < g->capacity) return true;
    int32_t capacity = g->capacity ? 2 * g->capacity : 64, size = 4 * capacity;
    tni_gnode *nodes = tni_realloc(g->nodes, (size_t)capacity * sizeof *nodes);
    if (nodes) g->nodes = nodes;
    int32_t *table = nodes ? tni_malloc((size_t)size * sizeof *table) : NULL;
    if (!table) return fail(g, TN_NO_MEMORY) == 0;
    tni_free(g->table);
    g->table = table;
    g->table_size = size;
    g->capacity = capacity;
    for (int32_t i = 0; i < size; i++) table[i] = -1;
    for (int32_t i = 0; i < g->n; i++) *slot_of(g, &nodes[i]) = i;
    return true;
}

int32_t tni_node_as_is(tni_graph *g, const tni_gnode *node) {
    if (!grow(g)) return -1;
    int32_t found = *slot_of(g, node);
    if (found < 0 && tni_prims[node->op].commutes) {
        tni_gnode swapped = *node;
        swapped.arg[0] = node->arg[1];
        swapped.arg[1] = node->arg[0];
        found = *slot_of(g, &swapped);
    }
    if (found >= 0) return found;
    *slot_of(g, node) = g->n;
    g->nodes[g->n] = *node;
    return g->n++;
}

int32_t tni_leaf(tni_graph *g, tni_prim op, int32_t ref, double value, int type, tni_extent extent) {
    if (g->status != TN_OK) return -1;
    tni_gnode node = {.op = (uint8_t)op, .type = (uint8_t)type, .arg = TNI_NO_ARGS, .ref = ref, .value = value};
    node.extent = node.sure = extent;
    return tni_node_as_is(g, &node);
}

int32_t tni_index(tni_graph *g, int kind, int32_t items, tni_extent extent) {
    if (g->status != TN_OK) return -1;
    tni_gnode node = {.op = TNI_P_INDEX, .type = TNI_TY_WEAK_INT, .arg = TNI_NO_ARGS, .ref = items};
    node.kind = (uint32_t)kind;
    node.extent = node.sure = extent;
    return tni_node_as_is(g, &node);
}

static bool same_call(const tni_coarse *a, const tni_coarse *b) {
    bool same = a->op == b->op && a->output == b->output && a->n_args == b->n_args && a->along == b->along &&
                strcmp(a->attrs, b->attrs) == 0;
    for (int k = 0; k < a->n_args && same; k++) {
        same = a->to[k] == b->to[k] && (a->to[k] >= 0 || a->axis[k] == b->axis[k]);
    }
    return same;
}

int32_t tni_add_coarse(tni_graph *g, const tni_coarse *call) {
    for (int32_t i = 0; i < g->n_calls; i++) {
        if (same_call(&g->calls[i], call)) return i;
    }
    tni_coarse *calls = tni_realloc(g->calls, (size_t)(g->n_calls + 1) * sizeof *calls);
    if (calls) g->calls = calls;
    char *attrs = tni_strdup(call->attrs);
    if (!calls || !attrs) {
        tni_free(attrs);
        return fail(g, TN_NO_MEMORY);
    }
    calls[g->n_calls] = *call;
    calls[g->n_calls].attrs = attrs;
    return g->n_calls++;
}

int32_t tni_coarse_node(tni_graph *g, int32_t call, const int32_t *arg, int type, tni_extent extent) {
    if (g->status != TN_OK || call < 0) return -1;
    tni_gnode node = {.op = TNI_P_CALL, .type = (uint8_t)type, .arg = TNI_NO_ARGS, .ref = call};
    for (int k = 0; k < g->calls[call].n_args; k++) {
        if (arg[k] < 0) return -1;
        node.arg[k] = arg[k];
        node.absent |= g->nodes[arg[k]].absent;
    }
    node.extent = node.sure = extent;
    return tni_node_as_is(g, &node);
}

bool tni_takes_shape(const tni_graph *g, const tni_gnode *node, int k) {
    if (node->op == TNI_P_CALL) return g->calls[node->ref].to[k] < 0;
    return node->op == TNI_P_COUNT || node->op == TNI_P_INDEX_IN ||
           ((node->op == TNI_P_EXPAND || node->op == TNI_P_SUM_TO) && k == 1);
}

int32_t tni_const(tni_graph *g, int type, double value) {
    return tni_leaf(g, TNI_P_CONST, -1, tni_round_to(type, value), type, (tni_extent){0, 0});
}

/* What is not a truth value counts as one where it is not 0. */
static int32_t truth(tni_graph *g, int32_t a) {
    return a < 0 || g->nodes[a].type == TN_BOOL ? a : tni_node3(g, TNI_P_CAST, TN_BOOL, a, -1, -1);
}

int32_t tni_node3(tni_graph *g, tni_prim op, int kind, int32_t a, int32_t b, int32_t c) {
    int arity = tni_prims[op].arity;
    if (tni_prims[op].typing == TNI_TYPED_LOGIC || op == TNI_P_WHERE) a = truth(g, a);
    if (tni_prims[op].typing == TNI_TYPED_LOGIC && arity > 1) b = truth(g, b);
    if (g->status != TN_OK || a < 0 || (arity > 1 && b < 0) || (arity > 2 && c < 0)) return -1;
    tni_gnode node = {
        .op = (uint8_t)op, .kind = (uint32_t)kind, .type = TNI_TY_WEAK_FLOAT, .arg = TNI_NO_ARGS, .ref = -1};
    node.arg[0] = a;
    node.arg[1] = b;
    node.arg[2] = c;
    if (op == TNI_P_INDEX_IN) node.type = TNI_TY_WEAK_INT;
    node.type = (uint8_t)type_of_result(g, &node);
    set_extents(g, &node);
    int32_t simpler = tni_simplify(g, &node);
    return simpler == -2 ? tni_node_as_is(g, &node) : simpler;
}

int32_t tni_node2(tni_graph *g, tni_prim op, int32_t a, int32_t b) {
    return tni_node3(g, op, 0, a, b, -1);
}

int32_t tni_node1(tni_graph *g, tni_prim op, int32_t a) {
    return tni_node3(g, op, 0, a, -1, -1);
}
