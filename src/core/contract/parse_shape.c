/* The grammar of expressions and shapes, as contract_parse.c has it. */
#include <string.h>

#include "parts.h"

static tn_status add_node(tni_draft *d, tni_node node, int32_t at, int32_t *index) {
    tni_contract *c = d->contract;
    if (c->n_nodes == TNI_MAX_NODES) {
        return tni_lex_fail(&d->lex, at, "more than %d operations and names in expressions", TNI_MAX_NODES);
    }
    int left = node.left >= 0 ? d->node_depth[node.left] : 0;
    int right = node.right >= 0 ? d->node_depth[node.right] : 0;
    int depth = 1 + (left > right ? left : right);
    if (depth > TNI_MAX_DEPTH) {
        return tni_lex_fail(&d->lex, at, "the expression is nested more than %d deep", TNI_MAX_DEPTH);
    }
    d->node_depth[c->n_nodes] = (uint8_t)depth;
    d->node_at[c->n_nodes] = at;
    d->nodes[c->n_nodes] = node;
    *index = c->n_nodes++;
    return TN_OK;
}

static tn_status parse_expression(tni_draft *d, int lowest, int32_t *index);

/* Every recursion of the grammar passes here. */
tn_status tni_parse_nested(tni_draft *d, int lowest, int32_t *index) {
    if (d->depth == TNI_MAX_DEPTH) {
        return tni_lex_fail(&d->lex, d->lex.token.at, "the expression is nested more than %d deep", TNI_MAX_DEPTH);
    }
    d->depth++;
    tn_status status = parse_expression(d, lowest, index);
    d->depth--;
    return status;
}

/* `rank(*s)`, behind the name. */
static tn_status parse_rank(tni_draft *d, const tni_use *function, int32_t *index) {
    tni_use pack;
    if (strcmp(function->name, "rank") != 0) {
        return tni_lex_fail(&d->lex, function->at, "there is no function '%s' here", function->name);
    }
    TN_TRY(tni_draft_next(d));
    TN_TRY(tni_draft_expect(d, '*', "'*' and a name in rank(…)"));
    TN_TRY(tni_draft_take_name(d, "a name after '*'", &pack));
    TN_TRY(tni_draft_expect(d, ')', "')' after rank's argument"));
    return add_node(d, (tni_node){TNI_RANK, -1, -1, -1, 0, pack.name}, pack.at, index);
}

/* `stride[0]`, behind the name. */
static tn_status parse_element(tni_draft *d, const tni_use *attr, int32_t *index) {
    TN_TRY(tni_draft_next(d));
    int64_t element = d->lex.token.value;
    if (!tni_draft_at(d, TNI_INT)) return tni_lex_expected(&d->lex, "an integer after '%s['", attr->name);
    if (element >= TNI_MAX_INTS) {
        return tni_lex_fail(&d->lex, d->lex.token.at, "an ints attribute has at most %d elements", TNI_MAX_INTS);
    }
    TN_TRY(tni_draft_next(d));
    TN_TRY(tni_draft_expect(d, ']', "']' after the index"));
    return add_node(d, (tni_node){TNI_ATTR_AT, -1, -1, -1, element, attr->name}, attr->at, index);
}

static tn_status parse_atom(tni_draft *d, int32_t *index) {
    int32_t begin = d->lex.token.at;
    tni_node node = {TNI_LIT_INT, -1, -1, -1, d->lex.token.value, NULL};
    if (tni_draft_at(d, '(')) {
        TN_TRY(tni_draft_next(d));
        TN_TRY(tni_parse_nested(d, 1, index));
        return tni_draft_expect(d, ')', "')'");
    }
    if (tni_draft_at(d, TNI_INT)) {
        TN_TRY(tni_draft_next(d));
        return add_node(d, node, begin, index);
    }
    if (tni_draft_at(d, TNI_STRING)) {
        node = (tni_node){TNI_LIT_STR, -1, -1, -1, 0, NULL};
        TN_TRY(tni_draft_copy_token(d, &node.text));
        return add_node(d, node, begin, index);
    }
    if (tni_lex_is(&d->lex, "true") || tni_lex_is(&d->lex, "false")) {
        node = (tni_node){TNI_LIT_BOOL, -1, -1, -1, tni_lex_is(&d->lex, "true"), NULL};
        TN_TRY(tni_draft_next(d));
        return add_node(d, node, begin, index);
    }
    if (tni_draft_at(d, TNI_FLOAT)) return tni_lex_expected(&d->lex, "an integer: expressions have no fractions");
    tni_use use;
    TN_TRY(tni_draft_take_name(d, "a dimension, an attribute or a number", &use));
    if (tni_draft_at(d, '(')) return parse_rank(d, &use, index);
    if (tni_draft_at(d, '[')) return parse_element(d, &use, index);
    return add_node(d, (tni_node){TNI_DIM, -1, -1, -1, 0, use.name}, begin, index);
}

static tn_status parse_unary(tni_draft *d, int32_t *index) {
    int32_t begin = d->lex.token.at, child;
    bool negative = tni_draft_at(d, '-');
    if (!negative && !tni_lex_is(&d->lex, "not")) return parse_atom(d, index);
    TN_TRY(tni_draft_next(d));
    TN_TRY(tni_parse_nested(d, negative ? 7 : 4, &child)); /* not a == b is not (a == b) */
    tni_node *literal = &d->nodes[child];
    if (negative && literal->kind == TNI_LIT_INT) { /* -1 is one literal */
        literal->value = -literal->value;
        *index = child;
        return TN_OK;
    }
    return add_node(d, (tni_node){negative ? TNI_NEG : TNI_NOT, child, -1, -1, 0, NULL}, begin, index);
}

/* What the current token is between two operands; precedence 0: nothing. */
static int binary_operator(const tni_draft *d, tni_node_kind *kind) {
    static const struct {
        int token;
        tni_node_kind kind;
        int precedence;
    } table[] = {{TNI_TOKEN_EQ, TNI_EQ, 4}, {TNI_TOKEN_NE, TNI_NE, 4}, {'<', TNI_LT, 4},  {TNI_TOKEN_LE, TNI_LE, 4},
                 {'>', TNI_GT, 4},          {TNI_TOKEN_GE, TNI_GE, 4}, {'+', TNI_ADD, 5}, {'-', TNI_SUB, 5},
                 {'*', TNI_MUL, 6},         {'/', TNI_DIV, 6},         {'%', TNI_MOD, 6}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (tni_draft_at(d, table[i].token)) {
            *kind = table[i].kind;
            return table[i].precedence;
        }
    }
    *kind = tni_lex_is(&d->lex, "or") ? TNI_OR : TNI_AND;
    return tni_lex_is(&d->lex, "or") ? 1 : tni_lex_is(&d->lex, "and") ? 2 : 0;
}

/* Operators of at least this precedence: 1 or, 2 and, 3 not, 4 == < …, 5 + -, 6 * / %, 7 none. */
static tn_status parse_expression(tni_draft *d, int lowest, int32_t *index) {
    int32_t left, right;
    TN_TRY(parse_unary(d, &left));
    tni_node_kind kind;
    bool compared = false;
    for (int precedence; (precedence = binary_operator(d, &kind)) >= lowest && precedence > 0;) {
        int32_t where = d->lex.token.at;
        if (precedence == 4 && compared)
            return tni_lex_fail(&d->lex, where, "comparisons cannot be chained; use 'and'");
        compared = precedence == 4;
        TN_TRY(tni_draft_next(d));
        TN_TRY(parse_expression(d, precedence + 1, &right)); /* at most 7 levels before tni_parse_nested counts */
        TN_TRY(add_node(d, (tni_node){kind, left, right, -1, 0, NULL}, where, &left));
    }
    *index = left;
    return TN_OK;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Is this word next, and an opening bracket behind it? */
static bool at_call(tni_draft *d, const char *word) {
    if (!tni_lex_is(&d->lex, word)) return false;
    tni_token token = d->lex.token;
    bool call = tni_lex_next(&d->lex) == TN_OK && tni_draft_at(d, '(');
    d->lex.token = token;
    return call;
}

static tn_status parse_star(tni_draft *d, tni_use *use) {
    TN_TRY(tni_draft_expect(d, '*', "'*' and a name: a shape function works on *s"));
    return tni_draft_take_name(d, "a name after '*'", use);
}

/* Behind the first operand of broadcast and rows. */
static tn_status parse_operands(tni_draft *d, tni_draft_item *item) {
    tni_use uses[TNI_MAX_PACKS], *kept;
    int32_t n = 0;
    for (bool more = tni_draft_at(d, ','); more; more = tni_draft_at(d, ',')) {
        if (n == TNI_MAX_PACKS) return tni_lex_fail(&d->lex, d->lex.token.at, "more than %d operands", TNI_MAX_PACKS);
        TN_TRY(tni_draft_next(d));
        bool rows = item->item.kind == TNI_ITEM_BROADCAST && at_call(d, "rows");
        if (n && uses[n - 1].rows && !rows) return tni_lex_expected(&d->lex, "rows(*name): columns come last");
        if (rows) TN_TRY(tni_draft_next(d));
        if (rows) TN_TRY(tni_draft_next(d));
        TN_TRY(parse_star(d, &uses[n]));
        if (rows) TN_TRY(tni_draft_expect(d, ')', "')' after the operand of rows"));
        uses[n++].rows = rows;
    }
    kept = tni_arena_alloc(d->arena, (size_t)n * sizeof *kept);
    if (!kept) return TN_NO_MEMORY;
    memcpy(kept, uses, (size_t)n * sizeof *kept);
    item->more = kept;
    item->item.n_more = n;
    return tni_draft_expect(d, ')', "',' or ')' after an operand of a shape function");
}

/* broadcast(*a, rows(*b), …)   rows(*a, …)   reduce(*s, axes, keepdim)   permute(*s, dims)   pad(*s, pad)
 * repeat(*s, repeats)   concat(*s, axis)   resize(*s, axis, n) */
static tn_status parse_function(tni_draft *d, tni_draft_item *item) {
    tni_item_kind kind = item->item.kind;
    bool more;
    TN_TRY(tni_draft_next(d));
    TN_TRY(tni_draft_expect(d, '(', "'('"));
    TN_TRY(parse_star(d, &item->a));
    if (kind == TNI_ITEM_ROWS) return parse_operands(d, item);
    if (!tni_draft_at(d, ',')) return tni_lex_expected(&d->lex, "',' and a second argument");
    if (kind == TNI_ITEM_BROADCAST) return parse_operands(d, item);
    TN_TRY(tni_draft_next(d));
    TN_TRY(tni_draft_take_name(d, "the name of an attribute", &item->attr));
    if (kind == TNI_ITEM_REDUCE) {
        TN_TRY(tni_draft_take(d, ',', &more));
        if (more) TN_TRY(tni_draft_take_name(d, "the name of a bool attribute", &item->keep));
    }
    if (kind == TNI_ITEM_RESIZE) {
        TN_TRY(tni_draft_expect(d, ',', "',' and the size along the axis"));
        TN_TRY(tni_parse_nested(d, 1, &item->item.node));
    }
    return tni_draft_expect(d, ')', "')' after the arguments of a shape function");
}

/* Is a shape function next? */
static bool at_function(tni_draft *d, tni_item_kind *kind) {
    for (int i = 0; i < TNI_FUNCTIONS; i++) {
        if (!at_call(d, tni_functions[i])) continue;
        *kind = TNI_ITEM_BROADCAST + i;
        return true;
    }
    return false;
}

static tn_status parse_item(tni_draft *d) {
    tni_contract *c = d->contract;
    int32_t begin = d->lex.token.at;
    if (c->n_items == TNI_MAX_NODES) return tni_lex_fail(&d->lex, begin, "more than %d dimensions", TNI_MAX_NODES);
    tni_draft_item *item = &d->items[c->n_items];
    *item = (tni_draft_item){.item = {.node = -1, .ref = -1, .attr = -1, .keep_attr = -1}, .at = begin};
    TN_TRY(tni_draft_take(d, '~', &item->item.broadcast));
    if (tni_draft_at(d, '*')) {
        item->item.kind = TNI_ITEM_PACK;
        TN_TRY(parse_star(d, &item->a));
    } else if (at_function(d, &item->item.kind)) {
        if (item->item.broadcast) return tni_lex_fail(&d->lex, begin, "'~' does not go with a shape function");
        TN_TRY(parse_function(d, item));
    } else {
        item->item.kind = TNI_ITEM_EXPR;
        TN_TRY(tni_parse_nested(d, 1, &item->item.node));
    }
    c->n_items++;
    return TN_OK;
}

static tn_status parse_items(tni_draft *d, int32_t *first, int32_t *count) {
    *first = d->contract->n_items;
    *count = 0;
    bool more = !tni_draft_at(d, ']') && !tni_lex_is(&d->lex, "if");
    while (more) {
        if (*count == TN_MAX_RANK) {
            return tni_lex_fail(&d->lex, d->lex.token.at, "a tensor has at most %d dimensions", TN_MAX_RANK);
        }
        TN_TRY(parse_item(d));
        ++*count;
        TN_TRY(tni_draft_take(d, ',', &more));
    }
    return TN_OK;
}

tn_status tni_parse_shape(tni_draft *d, tni_shape *shape) {
    *shape = (tni_shape){.cond = -1};
    TN_TRY(tni_draft_expect(d, '[', "'[' and the shape, as in T[n, k]"));
    TN_TRY(parse_items(d, &shape->first, &shape->count));
    if (tni_lex_is(&d->lex, "if")) {
        TN_TRY(tni_draft_next(d));
        TN_TRY(tni_parse_nested(d, 1, &shape->cond));
        if (!tni_lex_is(&d->lex, "else")) return tni_lex_expected(&d->lex, "'else' after the condition");
        TN_TRY(tni_draft_next(d));
        TN_TRY(parse_items(d, &shape->else_first, &shape->else_count));
    }
    return tni_draft_expect(d, ']', "',' or ']' in a shape");
}
